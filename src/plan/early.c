// SPDX-License-Identifier: Apache-2.0
// Moves sums and updates from the end of the list into the step's last backward, as early as their
// operands allow. Moves updates of the step before into the forward, before their first reader.
#include <stdlib.h>

#include "plan/private.h"

struct move {
    int32_t op, after;
};

static int by_place(const void *a, const void *b)
{
    const struct move *x = a, *y = b;
    if (x->after != y->after) {
        return x->after < y->after ? -1 : 1;
    }
    return (x->op > y->op) - (x->op < y->op);
}

/* A sum moves right after its terms, so that each gradient is freed before the next one. moves: [by
 * op] */
static int32_t latest_term(const struct sw_ir *ir, const struct move *moves, int32_t i,
                           int32_t n_before)
{
    int32_t latest = 0;
    for (int k = 0; k < ir->ops[i].n_in; k++) {
        for (int root = 0; root < 2; root++) {
            const sw_value v = root ? sw_ir_root(ir, ir->ops[i].in[k]) : ir->ops[i].in[k];
            const int32_t at = ir->values[v].producer;
            const int32_t after = at < n_before || at >= i ? at : moves[at - n_before].after;
            latest = at < i && after > latest ? after : latest;
        }
    }
    return latest;
}

/* Finds where each op from n_before on goes. Sums go after their terms. An update goes
 * after its `ready` op. Other appended ops stay last. late_of: [by op] */
static void find_moves(struct sw_ir *ir, const struct sw_late_ops *const *late_of, int32_t n_before,
                       struct move *moves)
{
    for (int32_t i = n_before; i < ir->n_ops; i++) {
        moves[i - n_before] = (struct move){i, INT32_MAX};
    }
    for (int32_t i = n_before; i < ir->n_ops; i++) {
        struct sw_ir_op *op = &ir->ops[i];
        const struct sw_late_ops *late = late_of[i - n_before];
        const bool in_forward = late && i >= late->forward_first && i < late->forward_end;
        const int32_t after = !late        ? INT32_MAX
                              : in_forward ? late->before - 1
                              : i >= late->sum_first && i < late->sum_end
                                  ? latest_term(ir, moves, i, n_before)
                                  : late->ready;
        moves[i - n_before].after = after;
        if (after < INT32_MAX) {
            const struct sw_ir_op *beside = &ir->ops[in_forward ? late->before : after];
            op->in_backward = op->phase == SW_PHASE_UPDATE && !in_forward;
            op->scope = beside->scope;
            op->chunk = beside->chunk;
            op->chunk.in_forward = in_forward;
        }
    }
}

sw_status sw_move_into_backward(struct sw_ir *ir, const struct sw_late_ops *late, int n_late,
                                int32_t n_before)
{
    struct sw_op_order order;
    const int32_t n_moves = ir->n_ops - n_before;
    if (n_before == 0) {
        return SW_OK; /* gradients are inputs: there is no backward */
    }
    struct move *moves = sw_alloc("plan", ((size_t)n_moves + 1) * sizeof *moves);
    const struct sw_late_ops **late_of =
        sw_alloc_zero("plan", (size_t)n_moves + 1, sizeof *late_of);
    bool good = sw_op_order_open(&order, ir) >= 0 && moves && late_of;
    for (int f = n_late - 1; good && f >= 0; f--) {
        for (int32_t i = late[f].update_first; i < late[f].update_end; i++) {
            late_of[i - n_before] = &late[f];
        }
        for (int32_t i = late[f].sum_first; i < late[f].sum_end; i++) {
            late_of[i - n_before] = &late[f];
        }
        for (int32_t i = late[f].forward_first; i < late[f].forward_end; i++) {
            late_of[i - n_before] = &late[f];
        }
    }
    if (good) {
        find_moves(ir, late_of, n_before, moves);
        qsort(moves, (size_t)n_moves, sizeof *moves, by_place);
    }
    for (int32_t i = 0, m = 0; good && (i < n_before || m < n_moves); i++) {
        for (; good && m < n_moves && (moves[m].after < i || i >= n_before); m++) {
            good = sw_op_order_add(&order, &ir->ops[moves[m].op]);
        }
        good = good && (i >= n_before || sw_op_order_add(&order, &ir->ops[i]));
    }
    if (good) {
        sw_op_order_install(&order, ir);
    }
    sw_op_order_close(&order);
    sw_free(moves);
    sw_free(late_of);
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}
