// SPDX-License-Identifier: Apache-2.0
// Reading a graph: names of ops, their cost, the printed form, the math fingerprint.
#include <string.h>

#include "graph/graph.h"

const char *sw_op_name(const struct sw_op *op)
{
    static const char *const names[SW_OP_COUNT] = {
#define SW_OP_TEXT(name, text) [SW_OP_##name] = text,
        SW_OP_LIST(SW_OP_TEXT)
#undef SW_OP_TEXT
    };
    return op->kind == SW_OP_USER && op->user ? op->user->name : names[op->kind];
}

static int64_t elems(const struct sw_graph *g, sw_value v)
{
    return v < 0 ? 0 : sw_shape_elems(&g->values[v].shape);
}

const char *sw_op_where(const struct sw_graph *g, const struct sw_op *op)
{
    static const char *const phases[] = {"forward", "backward", "update"};
    const struct sw_op *at = op;
    while (at->n_in > 0 && !*g->scopes[at->scope].name) {
        const bool sums = at->kind == SW_OP_REDUCE || at->kind == SW_OP_ACCUMULATE;
        const sw_value v = at->in[sums]; /* of a sum the gradient, not what it is added to */
        const struct sw_value_info *info = &g->values[v];
        const sw_value param = info->role == SW_ROLE_PARAM ? v : info->param;
        if (info->producer < 0) {
            return param >= 0 && g->values[param].name ? g->values[param].name : phases[op->phase];
        }
        at = &g->ops[info->producer];
    }
    return *g->scopes[at->scope].name ? g->scopes[at->scope].name : phases[op->phase];
}

int64_t sw_op_flops(const struct sw_graph *g, const struct sw_op *op)
{
    switch (op->kind) {
    case SW_OP_VIEW:
    case SW_OP_CONTIGUOUS:
    case SW_OP_EMBEDDING:
    case SW_OP_LAST_INDEX:
    case SW_OP_SELECT_ROWS:
    case SW_OP_SELECT_ROWS_GRAD:
    case SW_OP_SLICE_GRAD:
    case SW_OP_SELECT_INDEX:
    case SW_OP_KV_APPEND:
    case SW_OP_SEED:
    case SW_OP_STATS_RESET:
    case SW_OP_STATS_FINISH:
    case SW_OP_LAMB_ADD_NORMS:
        return 0;
    case SW_OP_MATMUL: {
        const struct sw_shape *a = &g->values[op->in[0]].shape;
        return 2 * sw_shape_rows(a) * elems(g, op->attrs.ta ? op->out[0] : op->in[1]);
    }
    case SW_OP_LINEAR_CE: /* one product; two more and the recomputed logits in backward */
        return 2 * elems(g, op->in[0]) * g->values[op->in[1]].shape.dims[0];
    case SW_OP_LINEAR_CE_GRAD:
        return (2 + 2 * (op->out[0] >= 0) + 2 * (op->out[1] >= 0)) * elems(g, op->in[1]) *
               g->values[op->in[2]].shape.dims[0];
    case SW_OP_ATTENTION:
    case SW_OP_ATTENTION_GRAD: {
        const bool grad = op->kind == SW_OP_ATTENTION_GRAD;
        const sw_value *in = op->in + (grad ? 3 : 0);
        const struct sw_shape *q = &g->values[in[0]].shape;
        const int64_t keys = g->values[in[op->attrs.packed ? 0 : 1]].shape.dims[1];
        const int64_t width =
            op->attrs.packed ? op->attrs.heads + 2 * op->attrs.kv_heads : op->attrs.heads;
        const int64_t head = q->dims[2] / width;
        const int64_t pairs = q->dims[0] * op->attrs.heads * q->dims[1] * keys;
        return (grad ? 10 : 4) * pairs * head / (op->attrs.causal && q->dims[1] == keys ? 2 : 1);
    }
    case SW_OP_LAYER_NORM:
    case SW_OP_ADD_LAYER_NORM:
        return 8 * elems(g, op->in[0]);
    case SW_OP_LAYER_NORM_GRAD:
    case SW_OP_ACT:
    case SW_OP_ACT_GRAD:
        return 12 * elems(g, op->in[0]);
    case SW_OP_UPDATE: /* of a piece its states tell the length: the parameter is there as a whole */
        return 12 * elems(g, op->in[op->attrs.update.n_states > 0]);
    case SW_OP_LAMB_MOMENTS:
        return 12 * elems(g, op->in[0]);
    case SW_OP_ACCUMULATE: /* of a row-sparse gradient its rows alone */
        return elems(g, op->in[1]);
    default: {
        int64_t most = 0;
        for (int i = 0; i < op->n_in; i++) {
            most = sw_max_i64(most, elems(g, op->in[i]));
        }
        return most;
    }
    }
}

static void print_value(const struct sw_graph *g, sw_value v, struct sw_str *out)
{
    if (v < 0) {
        sw_str_puts(out, "_");
    } else if (g->values[v].name && g->values[v].producer < 0) {
        sw_str_printf(out, "%s", g->values[v].name);
    } else {
        sw_str_printf(out, "%%%d", v);
    }
}

void sw_graph_print(const struct sw_graph *g, struct sw_str *out)
{
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct sw_op *op = &g->ops[i];
        if (op->removed) {
            continue;
        }
        for (int k = 0; k < op->n_out; k++) {
            sw_str_puts(out, k ? ", " : "");
            print_value(g, op->out[k], out);
        }
        sw_str_printf(out, " = %s(", sw_op_name(op));
        for (int k = 0; k < op->n_in; k++) {
            sw_str_puts(out, k ? ", " : "");
            print_value(g, op->in[k], out);
        }
        sw_str_puts(out, ")");
        if (op->n_out > 0 && op->out[0] >= 0) {
            char text[96];
            const struct sw_value_info *info = &g->values[op->out[0]];
            sw_str_printf(out, " %s%s", sw_dtype_name(info->dtype),
                          sw_shape_format(&info->shape, text, sizeof text));
        }
        sw_str_printf(out, "  %s%s\n", g->scopes[op->scope].name, op->is_clone ? " (again)" : "");
    }
}

static uint64_t hash_i64(uint64_t h, int64_t x)
{
    return sw_hash(h, &x, sizeof x);
}

static uint64_t hash_f64(uint64_t h, double x)
{
    return sw_hash(h, &x, sizeof x);
}

static uint64_t hash_attrs(uint64_t h, const struct sw_attrs *a)
{
    const int64_t whole[] = {a->ta,
                             a->tb,
                             a->act,
                             a->packed,
                             a->causal,
                             a->has_mask,
                             a->has_position,
                             a->has_bias,
                             a->view,
                             a->dim,
                             a->dim_b,
                             a->heads,
                             a->kv_heads,
                             a->window,
                             a->n,
                             a->update.kind,
                             a->update.decoupled,
                             a->update.bias_correction,
                             a->update.nesterov,
                             a->update.maximize,
                             a->update.n_states};
    const double real[] = {a->alpha,           a->eps, a->p, a->update.eps, a->update.weight_decay,
                           a->update.dampening};
    for (size_t i = 0; i < SW_LEN(whole); i++) {
        h = hash_i64(h, whole[i]);
    }
    for (size_t i = 0; i < SW_LEN(real); i++) {
        h = hash_f64(h, real[i]);
    }
    if (a->piece > 0) {
        h = hash_i64(h, a->piece);
    }
    if (a->update.kind == SW_UPDATE_LAMB) {
        h = hash_i64(h, a->update.eps_inside_sqrt);
        h = hash_f64(hash_f64(h, a->update.min_coeff), a->update.max_coeff);
    }
    return h;
}

uint64_t sw_graph_fingerprint(const struct sw_graph *g, uint64_t h)
{
    h = hash_i64(h, g->dtype);
    h = hash_i64(h, g->grad_dtype);
    h = hash_i64(h, g->token_mean);
    for (sw_value v = 0; v < g->n_values; v++) {
        const struct sw_value_info *info = &g->values[v];
        h = hash_i64(h, info->dtype);
        h = hash_i64(h, info->shape.rank);
        for (int d = 0; d < info->shape.rank; d++) {
            h = hash_i64(h, info->shape.dims[d]);
        }
        h = sw_hash_str(h, info->name ? info->name : "");
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct sw_op *op = &g->ops[i];
        if (op->removed) {
            continue;
        }
        h = sw_hash_str(h, sw_op_name(op));
        h = hash_attrs(h, &op->attrs);
        for (int k = 0; k < op->n_in; k++) {
            h = hash_i64(h, op->in[k]);
        }
        for (int k = 0; k < op->n_out; k++) {
            h = hash_i64(h, op->out[k]);
        }
        h = sw_hash(h, &op->path, sizeof op->path);
        for (int k = 0; op->user && k < (int)SW_LEN(op->user->param); k++) {
            h = hash_f64(h, op->user->param[k]);
        }
    }
    return h;
}
