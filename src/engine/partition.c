// SPDX-License-Identifier: Apache-2.0
// The partition of a model among the stages of a pipeline, as spillway.partition asks for it. Its
// items are what comes before the first block, each block, and what comes after the last one.
#include "engine/private.h"

struct items {
    const struct sw_graph *graph;
    int n_blocks;
    int *block;      /* [n_scopes] block around a scope; -1 = in no block */
    int64_t *weight; /* [n_blocks + 2] */
};

/* Numbers the blocks in the order of their scopes, as the plan does. */
static void number_blocks(struct items *items)
{
    const struct sw_graph *g = items->graph;
    for (int32_t i = 0; i < g->n_scopes; i++) {
        const int32_t parent = g->scopes[i].parent;
        items->block[i] = g->scopes[i].is_block ? items->n_blocks++
                          : parent >= 0         ? items->block[parent]
                                                : -1;
    }
}

/* Adds the weight of each op to its item. Ops between blocks count with the block before them, and
 * backward runs through the items from the last to the first. */
static void add_weights(struct items *items,
                        int64_t (*weigh)(void *ctx, const struct sw_graph *, const struct sw_op *),
                        void *ctx)
{
    const struct sw_graph *g = items->graph;
    const int last = items->n_blocks + 1;
    int32_t last_block[] = {-1, -1}; /* last op in a block: of forward, of backward */
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (items->block[g->ops[i].scope] >= 0) {
            last_block[g->ops[i].phase != SW_PHASE_FORWARD] = i;
        }
    }
    int item[] = {0, last};
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct sw_op *op = &g->ops[i];
        const bool back = op->phase != SW_PHASE_FORWARD;
        const int block = items->block[op->scope];
        item[back] = block >= 0 ? block + 1 : i > last_block[back] ? (back ? 0 : last) : item[back];
        items->weight[item[back]] += weigh(ctx, g, op);
    }
}

static int64_t flops_of(void *ctx, const struct sw_graph *g, const struct sw_op *op)
{
    struct sw_op_desc desc;
    (void)ctx;
    sw_graph_describe(g, op, &desc);
    return sw_op_flops(&desc);
}

/* The trained elements that no op before this one reads. counts: [n_values] the parameters to
 * count, which it clears */
static int64_t elems_of(void *ctx, const struct sw_graph *g, const struct sw_op *op)
{
    bool *counts = ctx;
    int64_t elems = 0;
    for (int k = 0; k < op->n_in; k++) {
        const sw_value root = sw_graph_root(g, op->in[k]);
        elems += counts[root] ? sw_shape_elems(&g->values[root].shape) : 0;
        counts[root] = false;
    }
    return elems;
}

static sw_status count_elems(struct items *items)
{
    const struct sw_graph *g = items->graph;
    bool *counts = sw_alloc_zero("engine", (size_t)g->n_values + 1, sizeof *counts);
    SW_TRY_ALLOC(counts, "the partition");
    for (int32_t i = 0; i < g->n_streams; i++) {
        counts[sw_graph_root(g, g->streams[i].param)] = true;
    }
    for (int32_t i = 0; i < g->n_params && g->n_streams == 0; i++) { /* nothing is trained */
        counts[g->params[i]] = true;
    }
    add_weights(items, elems_of, counts);
    sw_free(counts);
    return SW_OK;
}

static sw_status cut_by_elems(struct items *items, int stages, int *bounds)
{
    const int n = items->n_blocks + 2;
    SW_TRY(count_elems(items));
    double *weights = sw_alloc("engine", (size_t)n * sizeof *weights);
    SW_TRY_ALLOC(weights, "the partition");
    for (int i = 0; i < n; i++) {
        weights[i] = (double)items->weight[i];
    }
    const sw_status st = sw_partition_balanced(weights, n, stages, bounds);
    sw_free(weights);
    return st;
}

/* Takes the user's bounds, which are of blocks already. */
static sw_status take_bounds(const struct sw_config_numbers *given, int n_blocks, int stages,
                             int *bounds)
{
    int64_t *all = sw_alloc("engine", (size_t)given->n * sizeof *all);
    SW_TRY_ALLOC(all, "the partition");
    for (int i = 0; i < given->n; i++) {
        all[i] = (int64_t)given->items[i];
    }
    const sw_status st = sw_partition_check(all, given->n, n_blocks, stages);
    for (int i = 0; i <= stages && st >= 0; i++) {
        bounds[i] = (int)all[i];
    }
    sw_free(all);
    return st;
}

static sw_status cut(struct items *items, const struct sw_partition_config *p, int stages,
                     int *bounds)
{
    switch (p->by) {
    case SW_PARTITION_BOUNDS:
        return take_bounds(&p->bounds, items->n_blocks, stages, bounds);
    case SW_PARTITION_TYPE:
        return SW_FAIL(SW_E_UNSUP,
                       "spillway.partition \"type:%s\" is not built; \"time\", \"parameters\", "
                       "\"uniform\" and lists of blocks are",
                       p->type);
    case SW_PARTITION_UNIFORM:
        sw_partition_uniform(items->n_blocks + 2, stages, bounds);
        break;
    case SW_PARTITION_PARAMETERS:
        SW_TRY(cut_by_elems(items, stages, bounds));
        break;
    case SW_PARTITION_TIME:
        add_weights(items, flops_of, NULL);
        SW_TRY(sw_partition_least(items->weight, items->n_blocks + 2, stages, bounds));
        break;
    }
    sw_partition_to_blocks(items->n_blocks, stages, bounds);
    return SW_OK;
}

sw_status sw_engine_cut_blocks(const struct sw_graph *g, const struct sw_partition_config *p,
                               int stages, int *bounds)
{
    struct items items = {.graph = g};
    items.block = sw_alloc("engine", ((size_t)g->n_scopes + 1) * sizeof *items.block);
    items.weight = sw_alloc_zero("engine", (size_t)g->n_scopes + 2, sizeof *items.weight);
    sw_status st = SW_OK;
    if (!items.block || !items.weight) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the partition");
    } else {
        number_blocks(&items);
        st = cut(&items, p, stages, bounds);
    }
    sw_free(items.block);
    sw_free(items.weight);
    return st;
}
