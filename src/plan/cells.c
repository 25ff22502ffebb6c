// SPDX-License-Identifier: Apache-2.0
// Finds transfers that move the same bytes. The elements of an offloaded tensor are cut wherever
// one of its transfers begins or ends. The range between two cuts is a cell. A transfer moves whole
// cells, mostly one, and two transfers overlap if they share a cell. The latest transfer of given
// bytes is found by looking at their cells only.
#include <stdlib.h>
#include <string.h>

#include "plan/private.h"

/* The cuts of an offloaded tensor, while they are collected: at [from] .. at [from + n - 1]. */
struct home {
    int64_t from;
    int32_t n;
    int32_t first_cell;
    int32_t next; /* guess for the start of the next transfer */
    bool unsorted;
};

struct pass {
    const struct sw_ir *ir;
    struct home *homes; /* [n_homes] by root: offloaded tensors come early in the list */
    int32_t n_homes;
    int64_t *cuts;
    struct sw_cells *out;
};

static int by_element(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Most cuts recur at once, in the next piece or in the store after its load. */
static void add_cut(const struct pass *p, struct home *home, int64_t at)
{
    int64_t *cuts = p->cuts + home->from;
    const int32_t n = home->n;
    if ((n > 0 && cuts[n - 1] == at) || (n > 1 && cuts[n - 2] == at)) {
        return;
    }
    home->unsorted = home->unsorted || (n > 0 && cuts[n - 1] > at);
    cuts[home->n++] = at;
}

/* Sorts the cuts and removes duplicates. */
static void sort_cuts(const struct pass *p, struct home *home)
{
    int64_t *cuts = p->cuts + home->from;
    int32_t n = 0;
    if (!home->unsorted) {
        return;
    }
    qsort(cuts, (size_t)home->n, sizeof *cuts, by_element);
    for (int32_t i = 0; i < home->n; i++) {
        if (n == 0 || cuts[n - 1] != cuts[i]) {
            cuts[n++] = cuts[i];
        }
    }
    home->n = n;
}

/* Index of the cut at an element; tries `guess` and the cuts after it first. */
static int32_t find_cut(const struct pass *p, const struct home *home, int64_t at, int32_t guess)
{
    const int64_t *cuts = p->cuts + home->from;
    int32_t low = 0, high = home->n - 1;
    for (int32_t i = guess; i < home->n && i <= guess + 1; i++) {
        if (cuts[i] == at) {
            return i;
        }
    }
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (cuts[middle] < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Numbers the cells, and sets the range of cells of each transfer. */
static void number_cells(const struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    for (sw_value v = 0; v < p->n_homes; v++) {
        struct home *home = &p->homes[v];
        sort_cuts(p, home);
        home->first_cell = p->out->n;
        p->out->n += home->n > 1 ? home->n - 1 : 0;
    }
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const struct sw_ir_op *op = &ir->ops[i];
        if (!sw_ir_is_transfer(op)) {
            continue;
        }
        struct home *home = &p->homes[sw_ir_root(ir, op->in[0])];
        const struct sw_range range = sw_transfer_range(ir, op);
        const int32_t first = find_cut(p, home, range.first, home->next);
        const int32_t end = find_cut(p, home, range.end, first);
        p->out->of[i] = (struct sw_cell_range){home->first_cell + first, home->first_cell + end};
        home->next = op->move == SW_MOVE_STORE ? end : first;
    }
}

/* Collects the cuts of all tensors, unsorted. At first, `from` counts the cuts that a tensor may
 * have. */
static void find_cuts(const struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    int64_t n = 0;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        if (sw_ir_is_transfer(&ir->ops[i])) {
            p->homes[sw_ir_root(ir, ir->ops[i].in[0])].from += 2;
        }
    }
    for (sw_value v = 0; v < p->n_homes; v++) {
        const int64_t most = p->homes[v].from;
        p->homes[v].from = n;
        n += most;
    }
    for (int32_t i = 0; i < ir->n_ops; i++) {
        if (sw_ir_is_transfer(&ir->ops[i])) {
            struct home *home = &p->homes[sw_ir_root(ir, ir->ops[i].in[0])];
            const struct sw_range range = sw_transfer_range(ir, &ir->ops[i]);
            add_cut(p, home, range.first);
            add_cut(p, home, range.end);
        }
    }
}

sw_status sw_cells_open(struct sw_cells *cells, const struct sw_ir *ir)
{
    struct pass p = {.ir = ir, .out = cells};
    size_t n_cuts = 0;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        if (sw_ir_is_transfer(&ir->ops[i])) {
            const sw_value home = sw_ir_root(ir, ir->ops[i].in[0]);
            p.n_homes = home < p.n_homes ? p.n_homes : home + 1;
            n_cuts += 2;
        }
    }
    *cells = (struct sw_cells){0};
    p.homes = sw_alloc_zero("plan", (size_t)p.n_homes + 1, sizeof *p.homes);
    p.cuts = sw_alloc("plan", (n_cuts + 1) * sizeof *p.cuts);
    cells->of = sw_alloc("plan", ((size_t)ir->n_ops + 1) * sizeof *cells->of);
    const bool good = p.homes && p.cuts && cells->of;
    if (good) {
        find_cuts(&p);
        number_cells(&p);
    }
    sw_free(p.homes);
    sw_free(p.cuts);
    if (!good) {
        sw_cells_close(cells);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    }
    return SW_OK;
}

void sw_cells_close(struct sw_cells *cells)
{
    sw_free(cells->of);
    *cells = (struct sw_cells){0};
}
