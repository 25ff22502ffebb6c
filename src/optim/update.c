// SPDX-License-Identifier: Apache-2.0
// Update rules: parsing them from a configuration, and the states that a parameter needs. The ops
// that apply a rule belong to plan.
#include "optim/optim.h"

#include <string.h>

static void init_muon(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule)
{
    const double lr = optimizer->lr;
    rule->attrs.kind = SW_UPDATE_MUON;
    rule->attrs.nesterov = optimizer->nesterov;
    rule->attrs.ns_steps = (int)optimizer->ns_steps;
    rule->attrs.has_betas = true;
    rule->attrs.beta1 = rule->momentum = optimizer->momentum;
    rule->matrix_scale = optimizer->muon_lr > 0 ? optimizer->muon_lr / lr : 1;
    rule->other_scale = optimizer->adam_lr > 0 ? optimizer->adam_lr / lr : 1;
}

static void init_adafactor(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule)
{
    const double *eps = optimizer->adafactor_eps.items;
    rule->attrs.kind = SW_UPDATE_ADAFACTOR;
    rule->attrs.eps = eps[0];
    rule->attrs.least_scale = eps[1];
    rule->attrs.clip_threshold = optimizer->clip_threshold;
    rule->attrs.decay_rate = optimizer->decay_rate;
    rule->attrs.scale_parameter = optimizer->scale_parameter;
    rule->attrs.has_betas = true;
    rule->attrs.beta1 = rule->momentum = optimizer->momentum;
}

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
        rule.min_8bit_elems = optimizer->min_8bit_size;
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
    case SW_OPTIMIZER_ADAGRAD:
        rule.attrs.kind = SW_UPDATE_ADAGRAD;
        rule.attrs.lr_decay = optimizer->lr_decay;
        rule.attrs.initial = optimizer->initial_accumulator_value;
        break;
    case SW_OPTIMIZER_LION:
        rule.attrs.kind = SW_UPDATE_LION;
        break;
    case SW_OPTIMIZER_SPARSE_ADAM:
        rule.attrs.kind = SW_UPDATE_SPARSE_ADAM;
        rule.attrs.bias_correction = true;
        break;
    case SW_OPTIMIZER_RMSPROP:
        rule.attrs.kind = SW_UPDATE_RMSPROP;
        rule.attrs.maximize = optimizer->maximize;
        rule.attrs.has_betas = true;
        rule.attrs.beta1 = rule.momentum = optimizer->momentum;
        rule.attrs.beta2 = optimizer->alpha;
        break;
    case SW_OPTIMIZER_MUON:
        init_muon(optimizer, &rule);
        break;
    case SW_OPTIMIZER_ADAFACTOR:
        init_adafactor(optimizer, &rule);
        break;
    default:
        return SW_FAIL(SW_E_UNSUP, "optimizer.type: %s has no update rule in this version",
                       optimizer->name ? optimizer->name : "none given");
    }
    *out = rule;
    return SW_OK;
}

static bool is_hidden_matrix(const char *name, int rank)
{
    static const char *const others[] = {"embed", "lm_head", "wte", "wpe", "shared"};
    for (size_t i = 0; i < SW_LEN(others); i++) {
        if (strstr(name, others[i])) {
            return false;
        }
    }
    return rank == 2;
}

struct sw_update_rule sw_update_rule_of(const struct sw_update_rule *rule, const char *name,
                                        int rank)
{
    struct sw_update_rule of = *rule;
    if (rule->attrs.kind != SW_UPDATE_MUON) {
        return of;
    }
    of.attrs.lr_scale = rule->matrix_scale;
    if (!is_hidden_matrix(name, rank)) {
        of.attrs = (struct sw_update_attrs){.kind = SW_UPDATE_ADAM,
                                            .decoupled = true,
                                            .bias_correction = true,
                                            .eps = rule->attrs.eps,
                                            .weight_decay = rule->attrs.weight_decay,
                                            .lr_scale = rule->other_scale};
    }
    of.attrs.is_scaled = of.attrs.lr_scale != 1;
    return of;
}

int64_t sw_update_run(const struct sw_update_rule *rule)
{
    return rule && rule->moments == SW_MOMENTS_8BIT ? SW_CODE_RUN : SW_SQUARES_RUN;
}

/* Appends the moments after the n states so far; returns the new number. */
static int add_moments(const struct sw_update_rule *rule, enum sw_dtype dtype, int64_t elems,
                       struct sw_update_state *out, int n)
{
    const bool coded = dtype == SW_F32 && rule->moments == SW_MOMENTS_8BIT &&
                       elems >= rule->min_8bit_elems && elems > 0;
    const enum sw_dtype moment = coded                                                 ? SW_U8
                                 : rule->moments == SW_MOMENTS_BF16 && dtype == SW_F32 ? SW_BF16
                                                                                       : dtype;
    out[n++] = (struct sw_update_state){.kind = SW_STATE_EXP_AVG, .dtype = moment};
    out[n++] = (struct sw_update_state){.kind = SW_STATE_EXP_AVG_SQ, .dtype = moment};
    if (coded) {
        out[n++] = (struct sw_update_state){SW_STATE_EXP_AVG_SCALE, SW_F32};
        out[n++] = (struct sw_update_state){SW_STATE_EXP_AVG_SQ_SCALE, SW_F32};
    }
    return n;
}

int sw_update_states(const struct sw_update_rule *rule, enum sw_dtype param_dtype,
                     const struct sw_shape *shape, struct sw_update_state out[SW_UPDATE_MAX_STATES])
{
    const enum sw_dtype dtype = param_dtype == SW_F64 ? SW_F64 : SW_F32;
    int n = 0;
    if (param_dtype == SW_BF16) {
        out[n++] = (struct sw_update_state){.kind = SW_STATE_MASTER_LO, .dtype = SW_I16};
    } else if (param_dtype == SW_F16) {
        out[n++] = (struct sw_update_state){.kind = SW_STATE_MASTER, .dtype = SW_F32};
    }
    switch (rule->attrs.kind) {
    case SW_UPDATE_MUON:
        out[n++] = (struct sw_update_state){.kind = SW_STATE_MOMENTUM, .dtype = dtype};
        break;
    case SW_UPDATE_SGD:
        if (rule->momentum != 0) {
            out[n++] = (struct sw_update_state){.kind = SW_STATE_MOMENTUM, .dtype = dtype};
        }
        break;
    case SW_UPDATE_ADAGRAD:
        out[n++] = (struct sw_update_state){.kind = SW_STATE_SQUARE_SUM, .dtype = dtype};
        break;
    case SW_UPDATE_RMSPROP:
        out[n++] = (struct sw_update_state){.kind = SW_STATE_SQUARE_AVG, .dtype = dtype};
        if (rule->momentum != 0) {
            out[n++] = (struct sw_update_state){.kind = SW_STATE_MOMENTUM, .dtype = dtype};
        }
        break;
    case SW_UPDATE_ADAFACTOR:
        if (rule->momentum != 0) {
            out[n++] = (struct sw_update_state){.kind = SW_STATE_EXP_AVG, .dtype = dtype};
        }
        if (shape->rank < 2) {
            out[n++] = (struct sw_update_state){.kind = SW_STATE_EXP_AVG_SQ, .dtype = dtype};
            break;
        }
        out[n++] = (struct sw_update_state){SW_STATE_EXP_AVG_SQ_ROW, dtype};
        out[n++] = (struct sw_update_state){SW_STATE_EXP_AVG_SQ_COL, dtype};
        break;
    case SW_UPDATE_LION:
        out[n++] = (struct sw_update_state){.kind = SW_STATE_EXP_AVG, .dtype = dtype};
        break;
    default:
        n = add_moments(rule, dtype, sw_shape_elems(shape), out, n);
    }
    return n;
}
