// SPDX-License-Identifier: Apache-2.0
// Update rules as ops: which states a parameter needs, and the one op that moves it. The arithmetic is
// the kernels'; the rates come from the scalar table.
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
    if (rule->attrs.kind == SW_UPDATE_ADAM) {
        out[n++] = (struct sw_update_state){"exp_avg", dtype};
        out[n++] = (struct sw_update_state){"exp_avg_sq", dtype};
    } else if (rule->momentum != 0) {
        out[n++] = (struct sw_update_state){"momentum", dtype};
    }
    return n;
}

sw_value sw_update_emit(struct sw_graph *g, const struct sw_update_rule *rule, sw_value param,
                        sw_value target, const sw_value *streams, int n_streams)
{
    if (g->status < 0) {
        return SW_NO_VALUE;
    }
    const struct sw_value_info info = g->values[param], slice = g->values[target];
    const int rank = sw_value_is_slice(&info) ? info.whole.rank : info.shape.rank;
    struct sw_update_state states[SW_UPDATE_MAX_STATES];
    struct sw_attrs attrs = {.update = rule->attrs};
    attrs.update.n_states = sw_update_states(rule, info.dtype, states);
    if (rank <= 1 && !rule->decay_1d) {
        attrs.update.weight_decay = 0;
    }
    sw_value in[SW_OP_MAX_IN];
    int n_in = 0;
    in[n_in++] = target;
    for (int i = 0; i < attrs.update.n_states; i++) {
        char name[512];
        snprintf(name, sizeof name, "%s/%s", states[i].kind, info.name);
        const sw_value state = sw_graph_state(g, name, states[i].dtype, slice.shape, param);
        if (state >= 0) {
            g->values[state].whole = slice.whole;
            g->values[state].first = slice.first;
        }
        in[n_in++] = state;
    }
    for (int i = 0; i < n_streams; i++) {
        const sw_value index = g->values[streams[i]].sparse_index;
        if (n_in + 2 > SW_OP_MAX_IN) {
            sw_graph_fail(g, SW_E_UNSUP, "%s: more than %d uses of one parameter", info.name, i);
            return SW_NO_VALUE;
        }
        in[n_in++] = streams[i];
        if (index >= 0) {
            in[n_in++] = index;
        }
    }
    const int32_t op = sw_graph_add_op(g, SW_OP_UPDATE, in, n_in, &attrs);
    for (int i = 0; i <= attrs.update.n_states; i++) {
        sw_graph_add_out_in_place(g, op, in[i]);
    }
    if (op < 0) {
        return SW_NO_VALUE;
    }
    g->ops[op].unless_skipped = true;
    return g->ops[op].out[0];
}
