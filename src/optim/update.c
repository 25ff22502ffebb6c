// SPDX-License-Identifier: Apache-2.0
// Update rules as ops: which states a parameter needs, and the op that moves it. LAMB needs two,
// with the norms of the whole tensor between them. The arithmetic is the kernels'; the rates come
// from the scalar table.
#include <stdio.h>

#include "optim/optim.h"

sw_status sw_update_rule_init(const struct sw_optimizer_config *optimizer, bool decay_1d,
                              struct sw_update_rule *out)
{
    struct sw_update_rule rule = {.decay_1d = decay_1d};
    rule.attrs.weight_decay = optimizer->weight_decay;
    rule.attrs.eps = optimizer->eps;
    switch (optimizer->type) {
    case SW_OPTIMIZER_ADAM:
        rule.attrs.kind = SW_UPDATE_ADAM;
        rule.attrs.decoupled = optimizer->adam_w_mode;
        rule.attrs.bias_correction = optimizer->bias_correction;
        break;
    case SW_OPTIMIZER_SGD:
        rule.attrs.kind = SW_UPDATE_SGD;
        rule.attrs.dampening = optimizer->dampening;
        rule.attrs.nesterov = optimizer->nesterov;
        rule.attrs.maximize = optimizer->maximize;
        rule.momentum = optimizer->momentum;
        break;
    case SW_OPTIMIZER_LAMB:
        rule.attrs.kind = SW_UPDATE_LAMB;
        rule.attrs.bias_correction = optimizer->bias_correction;
        rule.attrs.eps_inside_sqrt = optimizer->eps_inside_sqrt;
        rule.attrs.min_coeff = optimizer->min_coeff;
        rule.attrs.max_coeff = optimizer->max_coeff;
        break;
    default:
        return SW_FAIL(SW_E_UNSUP, "optimizer.type: %s has no update rule in this version",
                       optimizer->name ? optimizer->name : "none given");
    }
    *out = rule;
    return SW_OK;
}

int sw_update_states(const struct sw_update_rule *rule, enum sw_dtype param_dtype,
                     struct sw_update_state out[SW_UPDATE_MAX_STATES])
{
    const enum sw_dtype dtype = param_dtype == SW_F64 ? SW_F64 : SW_F32;
    int n = 0;
    if (param_dtype == SW_BF16) {
        out[n++] = (struct sw_update_state){"master_lo", SW_I16};
    } else if (param_dtype == SW_F16) {
        out[n++] = (struct sw_update_state){"master", SW_F32};
    }
    if (rule->attrs.kind != SW_UPDATE_SGD) {
        out[n++] = (struct sw_update_state){"exp_avg", dtype};
        out[n++] = (struct sw_update_state){"exp_avg_sq", dtype};
    } else if (rule->momentum != 0) {
        out[n++] = (struct sw_update_state){"momentum", dtype};
    }
    return n;
}

/* The streams as inputs of an op that has n_in already; returns how many it has then, -1 = too
 * many. */
static int add_streams(struct sw_graph *g, const char *name, const sw_value *streams, int n_streams,
                       sw_value in[SW_MAX_INPUTS], int n_in)
{
    for (int i = 0; i < n_streams; i++) {
        const sw_value index = g->values[streams[i]].sparse_index;
        if (n_in + 2 > SW_MAX_INPUTS) {
            sw_graph_fail(g, SW_E_UNSUP, "%s: more than %d uses of one parameter", name, i);
            return -1;
        }
        in[n_in++] = streams[i];
        if (index >= 0) {
            in[n_in++] = index;
        }
    }
    return n_in;
}

static int32_t add_predicated(struct sw_graph *g, enum sw_op_kind kind, const sw_value *in,
                              int n_in, const struct sw_attrs *attrs)
{
    const int32_t op = sw_graph_add_op(g, kind, in, n_in, attrs);
    if (op >= 0) {
        g->ops[op].unless_skipped = true;
    }
    return op;
}

/* Elements of the tensor in `info`; behind them a slice has padding. */
static int64_t real_elems(const struct sw_value_info *info)
{
    const int64_t elems = sw_shape_elems(&info->shape);
    if (!sw_value_is_slice(info)) {
        return elems;
    }
    const int64_t left = sw_shape_elems(&info->whole) - info->first;
    return left < 0 ? 0 : sw_min_i64(left, elems);
}

/* ---- LAMB ---- */

/* in: target, states, streams. */
static int32_t emit_moments(struct sw_graph *g, struct sw_attrs *attrs, const sw_value *in,
                            int n_in)
{
    attrs->update.n_elems = real_elems(&g->values[in[0]]);
    const int32_t op = add_predicated(g, SW_OP_LAMB_MOMENTS, in, n_in, attrs);
    for (int i = attrs->update.rule.n_states - 1; i <= attrs->update.rule.n_states; i++) {
        sw_graph_add_out_in_place(g, op, in[i]);
    }
    sw_graph_add_out(g, op, SW_I64, SW_SHAPE(SW_LAMB_WORDS));
    return g->status < 0 ? -1 : op;
}

/* The norms of slices are added exactly, so every rank has the ratio that one rank would have. */
sw_value sw_lamb_emit_merge(struct sw_graph *g, int32_t moments, sw_value norms)
{
    if (g->status < 0 || !sw_value_is_slice(&g->values[g->ops[moments].in[0]])) {
        return norms;
    }
    const int32_t merge = add_predicated(g, SW_OP_STATS_MERGE, &norms, 1, NULL);
    return sw_graph_add_out_in_place(g, merge, norms);
}

static sw_value trust_ratio(struct sw_graph *g, sw_value param)
{
    const struct sw_value_info info = g->values[param];
    char name[512];
    snprintf(name, sizeof name, "trust_ratio/%s", info.name);
    return sw_graph_state(g, name, info.dtype == SW_F64 ? SW_F64 : SW_F32, SW_SHAPE(1), param);
}

/* in: target, states, norms, ratio. Returns the op; its first output is the target, the last the
 * ratio. */
static int32_t emit_apply(struct sw_graph *g, const struct sw_attrs *attrs, const sw_value *in)
{
    const int n_states = attrs->update.rule.n_states;
    const int32_t apply = add_predicated(g, SW_OP_LAMB_APPLY, in, n_states + 3, attrs);
    sw_graph_add_out_in_place(g, apply, in[0]);
    for (int i = 1; i < n_states - 1; i++) {
        sw_graph_add_out_in_place(g, apply, in[i]); /* the master, or the rest of it */
    }
    sw_graph_add_out_in_place(g, apply, in[n_states + 2]);
    return g->status < 0 ? -1 : apply;
}

static sw_value emit_lamb(struct sw_graph *g, struct sw_attrs *attrs, sw_value param, sw_value *in,
                          int n_in)
{
    const int n_states = attrs->update.rule.n_states;
    const int32_t moments = emit_moments(g, attrs, in, n_in);
    if (moments < 0) {
        return SW_NO_VALUE;
    }
    in[n_states - 1] = g->ops[moments].out[0];
    in[n_states] = g->ops[moments].out[1];
    in[n_states + 1] = sw_lamb_emit_merge(g, moments, g->ops[moments].out[2]);
    in[n_states + 2] = trust_ratio(g, param);
    const int32_t apply = emit_apply(g, attrs, in);
    return apply < 0 ? SW_NO_VALUE : g->ops[apply].out[0];
}

sw_value sw_lamb_emit_norms(struct sw_graph *g, int32_t moments, sw_value before)
{
    if (g->status < 0 || before < 0) {
        return g->status < 0 ? SW_NO_VALUE : g->ops[moments].out[2];
    }
    const sw_value in[2] = {before, g->ops[moments].out[2]};
    return sw_graph_add_out_in_place(g, add_predicated(g, SW_OP_LAMB_ADD_NORMS, in, 2, NULL),
                                     before);
}

sw_value sw_lamb_emit_step(struct sw_graph *g, int32_t moments, sw_value norms, sw_value ratio)
{
    if (g->status < 0) {
        return SW_NO_VALUE;
    }
    const struct sw_op first = g->ops[moments];
    const int n_states = first.attrs.update.rule.n_states;
    sw_value in[SW_MAX_INPUTS];
    for (int i = 0; i <= n_states; i++) {
        in[i] = first.in[i];
    }
    in[n_states + 1] = norms;
    in[n_states + 2] = ratio >= 0 ? ratio : trust_ratio(g, sw_graph_root(g, first.in[0]));
    const int32_t apply = emit_apply(g, &first.attrs, in);
    return apply < 0 ? SW_NO_VALUE : g->ops[apply].out[g->ops[apply].n_out - 1];
}

/* ---- all rules ---- */

/* What belongs to a tile of the parameter. */
static sw_value tile_of_state(struct sw_graph *g, sw_value state, const struct sw_value_info *tile)
{
    const sw_value v = state < 0 ? SW_NO_VALUE : sw_graph_copy_value(g, state);
    if (v >= 0) {
        g->values[v].shape = tile->shape;
        g->values[v].base = state;
        g->values[v].base_offset = tile->base_offset;
        g->values[v].whole = tile->whole;
        g->values[v].first = tile->first;
    }
    return v;
}

/* Target, states and streams as inputs of an update, and its attributes; returns how many inputs,
 * -1 after a failure. */
static int list_inputs(struct sw_graph *g, const struct sw_update_rule *rule, sw_value param,
                       sw_value target, const sw_value *streams, int n_streams,
                       struct sw_attrs *attrs, sw_value in[SW_MAX_INPUTS])
{
    if (g->status < 0) {
        return -1;
    }
    const struct sw_value_info info = g->values[sw_graph_root(g, param)];
    const struct sw_value_info slice = g->values[target];
    const bool is_tile = info.is_tiled;
    const int rank = sw_value_is_slice(&info) ? info.whole.rank : info.shape.rank;
    struct sw_update_state states[SW_UPDATE_MAX_STATES];
    *attrs = (struct sw_attrs){.update = {.rule = rule->attrs}};
    attrs->update.rule.n_states = sw_update_states(rule, info.dtype, states);
    if (rank <= 1 && !rule->decay_1d) {
        attrs->update.rule.weight_decay = 0;
    }
    int n_in = 0;
    in[n_in++] = target;
    for (int i = 0; i < attrs->update.rule.n_states; i++) {
        char name[512];
        snprintf(name, sizeof name, "%s/%s", states[i].kind, info.name);
        const sw_value state = sw_graph_state(
            g, name, states[i].dtype, is_tile ? info.shape : slice.shape, sw_graph_root(g, param));
        if (state >= 0) {
            g->values[state].whole = is_tile ? info.whole : slice.whole;
            g->values[state].first = is_tile ? info.first : slice.first;
            g->values[state].is_optimizer_state = true;
        }
        in[n_in++] = is_tile ? tile_of_state(g, state, &slice) : state;
    }
    return add_streams(g, info.name, streams, n_streams, in, n_in);
}

int32_t sw_lamb_emit_moments(struct sw_graph *g, const struct sw_update_rule *rule, sw_value tile,
                             const sw_value *streams, int n_streams)
{
    struct sw_attrs attrs;
    sw_value in[SW_MAX_INPUTS];
    const int n_in = list_inputs(g, rule, tile, tile, streams, n_streams, &attrs, in);
    return n_in < 0 ? -1 : emit_moments(g, &attrs, in, n_in);
}

sw_value sw_update_emit(struct sw_graph *g, const struct sw_update_rule *rule, sw_value param,
                        sw_value target, const sw_value *streams, int n_streams)
{
    struct sw_attrs attrs;
    sw_value in[SW_MAX_INPUTS];
    const int n_in = list_inputs(g, rule, param, target, streams, n_streams, &attrs, in);
    if (n_in < 0) {
        return SW_NO_VALUE;
    }
    if (rule->attrs.kind == SW_UPDATE_LAMB) {
        return emit_lamb(g, &attrs, param, in, n_in);
    }
    const int32_t op = add_predicated(g, SW_OP_UPDATE, in, n_in, &attrs);
    for (int i = 0; i <= attrs.update.rule.n_states; i++) {
        sw_graph_add_out_in_place(g, op, in[i]);
    }
    return op < 0 ? SW_NO_VALUE : g->ops[op].out[0];
}
