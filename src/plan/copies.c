// SPDX-License-Identifier: Apache-2.0
// Parameters that several stages of a pipeline have, such as a table of an embedding and a head.
// Each of these stages has the uses of its own ops. Before the update it gets the sums of the other
// uses, so that all copies are updated with the gradients of all uses, in forward order. The first
// of these stages counts the gradient in the norm, and writes the tensor to checkpoints.
#include <stdlib.h>

#include "plan/private.h"

/* ---- the stages that have a parameter ---- */

static int by_param(const void *a, const void *b)
{
    const struct sw_ir_holder *x = a, *y = b;
    if (x->param != y->param) {
        return x->param < y->param ? -1 : 1;
    }
    return (x->stage > y->stage) - (x->stage < y->stage);
}

/* Lists the parameters that ops of a stage read; out: NULL = counts only. Returns their number. */
static int32_t list_readers(const struct sw_ir *ir, const int *op_part, int stages,
                            struct sw_ir_holder *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        for (int k = 0; k < ir->ops[i].n_in && op_part[i] >= 0; k++) {
            const sw_value root = sw_ir_root(ir, ir->ops[i].in[k]);
            if (ir->values[root].role != SW_ROLE_PARAM) {
                continue;
            }
            if (out) {
                out[n] = (struct sw_ir_holder){root, op_part[i] % stages};
            }
            n++;
        }
    }
    return n;
}

sw_status sw_ir_list_holders(struct sw_ir *ir, const int *op_part, int stages)
{
    struct sw_ir_params *params = &ir->params;
    const int32_t n = list_readers(ir, op_part, stages, NULL);
    params->holders = sw_alloc("plan", ((size_t)n + 1) * sizeof *params->holders);
    SW_TRY_ALLOC(params->holders, "the plan");
    list_readers(ir, op_part, stages, params->holders);
    qsort(params->holders, (size_t)n, sizeof *params->holders, by_param);
    for (int32_t i = 0; i < n; i++) {
        const int32_t kept = params->n_holders;
        if (kept == 0 || by_param(&params->holders[kept - 1], &params->holders[i]) != 0) {
            params->holders[params->n_holders++] = params->holders[i];
        }
    }
    return SW_OK;
}

const struct sw_ir_holder *sw_ir_holders(const struct sw_ir *ir, sw_value param, int *out_n)
{
    const struct sw_ir_params *params = &ir->params;
    const sw_value root = sw_ir_root(ir, param);
    int32_t low = 0, high = params->n_holders;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (params->holders[middle].param < root) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    int n = 0;
    while (low + n < params->n_holders && params->holders[low + n].param == root) {
        n++;
    }
    *out_n = n;
    return &params->holders[low];
}

bool sw_ir_is_held(const struct sw_ir *ir, const char *param, int stage)
{
    const sw_value v = sw_names_find(&ir->leaves, SW_ROLE_PARAM, param);
    int n = 0;
    const struct sw_ir_holder *holders = v < 0 ? NULL : sw_ir_holders(ir, v, &n);
    bool found = false;
    for (int i = 0; i < n; i++) {
        found = found || holders[i].stage == stage;
    }
    return found;
}

bool sw_ir_is_shared(const struct sw_ir *ir, sw_value param)
{
    int n;
    sw_ir_holders(ir, param, &n);
    return n > 1;
}

/* ---- messages between them ---- */

int32_t sw_ir_add_message(struct sw_ir *ir, enum sw_move move, int stage, sw_value sent)
{
    const int32_t op =
        sw_ir_add_exchange(ir, move, ir->params.pipe, &sent, move == SW_MOVE_SEND ? 1 : 0);
    if (op >= 0) {
        ir->ops[op].exchange.peer = (int16_t)stage;
    }
    return op;
}

sw_status sw_ir_drop_elsewhere(struct sw_ir *ir)
{
    struct sw_ir_params *params = &ir->params;
    int32_t n = 0;
    bool any = false;
    for (int32_t i = 0; i < params->n; i++) {
        any = any || ir->values[params->at[i]].param_facts.is_elsewhere;
    }
    if (!any) {
        return SW_OK;
    }
    params->absent = sw_alloc("plan", ((size_t)params->n + 1) * sizeof *params->absent);
    SW_TRY_ALLOC(params->absent, "the plan");
    for (int32_t i = 0; i < params->n; i++) {
        struct sw_ir_value *info = &ir->values[params->at[i]];
        const bool is_here = !info->param_facts.is_elsewhere;
        info->role = is_here ? info->role : SW_ROLE_TRANSIENT;
        *(is_here ? &params->at[n++] : &params->absent[params->n_absent++]) = params->at[i];
    }
    params->n = n;
    return SW_OK;
}
