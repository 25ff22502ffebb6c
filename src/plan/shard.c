// SPDX-License-Identifier: Apache-2.0
// ZeRO stage 3 as a pass (Rajbhandari et al. 2020): every parameter is one flat tensor, padded and cut
// into equal slices, one a rank; before an op reads a parameter the slices are gathered, and the whole
// one is released after its last reader by the ordinary liveness of transients. Readers in one block of
// one phase share a gather. Model code knows nothing of it; tied tables, parameters of another scope and
// frozen ones are uses like any other. Of a parameter in tiles every tile is cut and gathered by itself, so no rank ever
// has all of it.
#include "plan/plan.h"

/* What a collective needs beside its operands: the slices that arrive, or the sums of the ranks. */
size_t sw_collective_workspace(const struct sw_graph *g, const struct sw_op *op, int ranks)
{
    switch (op->kind) {
    case SW_OP_REDUCE:
        return (size_t)(sw_shape_elems(&g->values[op->in[0]].shape) * ranks) *
               sw_dtype_bytes(g->values[op->in[1]].dtype);
    case SW_OP_STATS_MERGE:
        return (size_t)ranks * sw_value_bytes(&g->values[op->in[0]]);
    default:
        return 0;
    }
}

struct current { /* the gathered copy of a parameter that readers may share */
    sw_value whole;
    int64_t place;
};

struct pass {
    struct sw_graph *g;
    const struct sw_plan_options *options;
    struct current *current; /* [n_values] by parameter */
    struct sw_op_order order;
};

int64_t sw_shard_place(const struct sw_graph *g, const struct sw_op *op)
{
    int32_t scope = op->scope;
    while (scope >= 0 && !g->scopes[scope].is_block) {
        scope = g->scopes[scope].parent;
    }
    const int64_t place = scope >= 0 ? scope : g->n_scopes + op->scope;
    return place * SW_SEGMENT_COUNT + (int64_t)sw_op_segment(op);
}

bool sw_param_has_view(const struct sw_graph *g, sw_value param)
{
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (sw_op_has(&g->ops[i], SW_TRAIT_VIEW) && g->ops[i].in[0] == param) {
            return true;
        }
    }
    return false;
}

/* The parameter becomes this rank's slice of itself. */
static void cut(struct sw_graph *g, sw_value param, int64_t slice, int rank)
{
    struct sw_value_info *info = &g->values[param];
    info->whole = info->shape;
    info->shape = SW_SHAPE(slice);
    info->strides[0] = 1;
    info->first = slice * rank;
}

/* A tile becomes this rank's slice of itself. The slices of a parameter's tiles lie one behind the other: its own shape
 * grows with each. */
static void cut_tile(struct sw_graph *g, sw_value tile, int64_t slice, int rank)
{
    const sw_value param = g->values[tile].base;
    if (!sw_value_is_slice(&g->values[param])) {
        cut(g, param, 0, rank);
    }
    cut(g, tile, slice, rank);
    g->values[tile].base_offset = g->values[param].shape.dims[0];
    g->values[param].shape.dims[0] += slice;
}

/* A gathered copy of `param` for op; SW_NO_VALUE when out of memory. */
static sw_value gather(struct pass *p, sw_value param, const struct sw_op *reader)
{
    struct sw_graph *g = p->g;
    const struct sw_value_info info = g->values[param];
    const sw_value whole = sw_graph_new_value(g, SW_ROLE_TRANSIENT, info.dtype, info.whole);
    if (whole < 0) {
        return SW_NO_VALUE;
    }
    g->values[whole].padded_elems = sw_shape_elems(&info.shape) * p->options->ranks;
    g->values[whole].needs_grad = info.needs_grad;
    struct sw_op op = {.kind = SW_OP_GATHER,
                       .phase = reader->phase,
                       .n_in = 1,
                       .n_out = 1,
                       .in = {param},
                       .scope = reader->scope};
    for (int k = 0; k < SW_MAX_OUTPUTS; k++) {
        op.out[k] = k == 0 ? whole : SW_NO_VALUE;
    }
    return sw_op_order_add(&p->order, &op) ? whole : SW_NO_VALUE;
}

static bool rewrite(struct pass *p, struct sw_op *op)
{
    const int64_t place = sw_shard_place(p->g, op);
    for (int k = 0; k < op->n_in; k++) {
        const sw_value v = op->in[k];
        if (p->g->values[v].role != SW_ROLE_PARAM || !sw_value_is_slice(&p->g->values[v])) {
            continue;
        }
        struct current *now = &p->current[v];
        /* a tile is here for one op */
        if (now->whole < 0 || now->place != place || sw_value_is_part(p->g, v)) {
            now->whole = gather(p, v, op);
            now->place = place;
            if (now->whole < 0) {
                return false;
            }
        }
        op->in[k] = now->whole;
    }
    return sw_op_order_add(&p->order, op);
}

sw_status sw_pass_shard(struct sw_graph *g, const struct sw_plan_options *options)
{
    if (options->ranks <= 1) {
        return SW_OK;
    }
    bool any = false;
    int64_t left = options->persistence_total;
    for (int32_t i = 0; i < g->n_params; i++) {
        const sw_value param = g->params[i];
        const int64_t elems = sw_shape_elems(&g->values[param].shape);
        const int64_t slice = sw_slice_elems(elems, options->ranks);
        if (sw_value_is_part(g, param)) {
            cut_tile(g, param, slice, options->rank);
            any = true;
            continue;
        }
        const bool persists = elems <= options->persistence_elems && elems <= left;
        left -= persists ? elems : 0;
        if (options->stage < 3 || persists || sw_param_has_view(g, param)) {
            g->values[param].padded_elems = slice * options->ranks;
        } else {
            cut(g, param, slice, options->rank);
            any = true;
        }
    }
    if (!any) {
        return SW_OK;
    }
    struct pass p = {.g = g, .options = options};
    const int32_t n_ops = g->n_ops, n_values = g->n_values;
    p.current = sw_alloc("plan", (size_t)n_values * sizeof *p.current);
    bool good = sw_op_order_open(&p.order, g) >= 0 && p.current;
    for (sw_value v = 0; good && v < n_values; v++) {
        p.current[v] = (struct current){SW_NO_VALUE, 0};
    }
    for (int32_t i = 0; good && i < n_ops; i++) {
        struct sw_op op = g->ops[i];
        good = op.removed || rewrite(&p, &op);
    }
    if (good) {
        sw_op_order_install(&p.order, g);
    }
    sw_op_order_close(&p.order);
    sw_free(p.current);
    return good ? sw_graph_status(g) : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}
