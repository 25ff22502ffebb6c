// SPDX-License-Identifier: Apache-2.0
// Update rules: one row each, which says how the rule is read from a configuration, the states that
// it saves, and what it adds to the math fingerprint. The ops that apply a rule belong to plan.
#include "optim/optim.h"

#include <stddef.h>
#include <string.h>

/* ---- settings, from a configuration ---- */

/* For rules that have only a rate, betas, eps and decay, as all rules do. */
static void read_nothing(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule)
{
    (void)optimizer;
    (void)rule;
}

static void read_adam(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule)
{
    rule->attrs.decoupled = optimizer->adam_w_mode;
    rule->attrs.bias_correction = optimizer->bias_correction;
    rule->min_8bit_elems = optimizer->min_8bit_size;
}

/* The momentum is a constant of the rule, so it replaces the scheduled beta1. */
static void read_momentum(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule)
{
    rule->attrs.has_betas = true;
    rule->attrs.beta1 = optimizer->momentum;
}

static void read_sgd(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule)
{
    read_momentum(optimizer, rule);
    rule->attrs.dampening = optimizer->dampening;
    rule->attrs.nesterov = optimizer->nesterov;
    rule->attrs.maximize = optimizer->maximize;
}

static void read_lamb(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule)
{
    rule->attrs.bias_correction = optimizer->bias_correction;
    rule->attrs.eps_inside_sqrt = optimizer->eps_inside_sqrt;
    rule->attrs.min_coeff = optimizer->min_coeff;
    rule->attrs.max_coeff = optimizer->max_coeff;
}

static void read_adagrad(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule)
{
    rule->attrs.lr_decay = optimizer->lr_decay;
    rule->attrs.initial = optimizer->initial_accumulator_value;
}

static void read_sparse_adam(const struct sw_optimizer_config *optimizer,
                             struct sw_update_rule *rule)
{
    (void)optimizer;
    rule->attrs.bias_correction = true;
}

static void read_rmsprop(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule)
{
    read_momentum(optimizer, rule);
    rule->attrs.beta2 = optimizer->alpha;
    rule->attrs.maximize = optimizer->maximize;
}

static void read_muon(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule)
{
    const double lr = optimizer->lr;
    read_momentum(optimizer, rule);
    rule->attrs.nesterov = optimizer->nesterov;
    rule->attrs.ns_steps = (int)optimizer->ns_steps;
    rule->matrix_scale = optimizer->muon_lr >= 0 && lr > 0 ? optimizer->muon_lr / lr : 1;
    rule->other_scale = optimizer->adam_lr >= 0 && lr > 0 ? optimizer->adam_lr / lr : 1;
}

static void read_adafactor(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule)
{
    const double *eps = optimizer->adafactor_eps.items;
    read_momentum(optimizer, rule);
    rule->attrs.eps = eps[0];
    rule->attrs.least_scale = eps[1];
    rule->attrs.clip_threshold = optimizer->clip_threshold;
    rule->attrs.decay_rate = optimizer->decay_rate;
    rule->attrs.scale_parameter = optimizer->scale_parameter;
}

/* ---- the rows ---- */

/* Parameters that have a state. */
enum when { ALWAYS, WITH_MOMENTUM, OF_VECTORS, OF_MATRICES };
/* Bits of a state: those of the master (fp32, or fp64 in f64 graphs), or as spillway.moments
 * says. */
enum bits { FULL, AS_MOMENTS };
struct rule_state {
    enum sw_state_kind kind; /* OTHER = end of the list */
    enum when when;
    enum bits bits;
};
/* A setting of the rule that may change a bit of the result. */
struct setting {
    size_t at;
    enum { END, IS_BOOL, IS_INT, IS_DOUBLE } type;
};
enum { MAX_RULE_STATES = 4, MAX_SETTINGS = 4 };
struct row {
    enum sw_optimizer_type type;
    void (*read)(const struct sw_optimizer_config *optimizer, struct sw_update_rule *rule);
    struct sw_update_facts facts;
    struct rule_state states[MAX_RULE_STATES + 1];
    struct setting settings[MAX_SETTINGS + 1];
};

/* STATE refuses to compile with a kind that checkpoints do not save. */
enum {
#define SAVED_ENUM(kind, name, purpose, extent)                                                    \
    IS_SAVED_##kind = SW_STATE_##purpose == SW_STATE_SAVED,
    SW_STATE_LIST(SAVED_ENUM)
#undef SAVED_ENUM
};
// clang-format off
#define STATE(kind, when, bits)                                                                    \
    {(enum sw_state_kind)(SW_STATE_##kind + 0 * sizeof(char[IS_SAVED_##kind ? 1 : -1])), when, bits}
#define SETTING(member)                                                                            \
    {offsetof(struct sw_update_rule, member),                                                      \
     _Generic(((struct sw_update_rule *)0)->member, bool: IS_BOOL, int: IS_INT, double: IS_DOUBLE)}
#define STATES(...) __VA_ARGS__
#define SETTINGS(...) __VA_ARGS__
#define NO_SETTINGS {0, END}

/* ROW(kind, read, reach, dense, states, settings)
 *   kind      of SW_OPTIMIZER_ and SW_UPDATE_
 *   read      reads its settings from the configuration
 *   reach     enum sw_update_reach
 *   dense     the kind that updates parameters with a dense gradient
 *   states    all are saved, resumed, sharded and offloaded; masters and scales are added
 *   settings  part of the fingerprint, besides those that all rules have (sw_update_rule_hash) */
#define ROWS(ROW)                                                                                  \
    ROW(ADAM, read_adam, ELEMENT, ADAM,                                                            \
        STATES(STATE(EXP_AVG, ALWAYS, AS_MOMENTS), STATE(EXP_AVG_SQ, ALWAYS, AS_MOMENTS)),         \
        NO_SETTINGS)                                                                               \
    ROW(SGD, read_sgd, ELEMENT, SGD,                                                               \
        STATES(STATE(MOMENTUM, WITH_MOMENTUM, FULL)),                                              \
        NO_SETTINGS)                                                                               \
    ROW(LAMB, read_lamb, NORMS, LAMB,                                                              \
        STATES(STATE(EXP_AVG, ALWAYS, FULL), STATE(EXP_AVG_SQ, ALWAYS, FULL)),                     \
        SETTINGS(SETTING(attrs.eps_inside_sqrt), SETTING(attrs.min_coeff),                         \
                 SETTING(attrs.max_coeff)))                                                        \
    ROW(ADAGRAD, read_adagrad, ELEMENT, ADAGRAD,                                                   \
        STATES(STATE(SQUARE_SUM, ALWAYS, FULL)),                                                   \
        SETTINGS(SETTING(attrs.lr_decay), SETTING(attrs.initial)))                                 \
    ROW(LION, read_nothing, ELEMENT, LION,                                                         \
        STATES(STATE(EXP_AVG, ALWAYS, FULL)),                                                      \
        NO_SETTINGS)                                                                               \
    ROW(SPARSE_ADAM, read_sparse_adam, ELEMENT, ADAM,                                              \
        STATES(STATE(EXP_AVG, ALWAYS, FULL), STATE(EXP_AVG_SQ, ALWAYS, FULL)),                     \
        NO_SETTINGS)                                                                               \
    ROW(RMSPROP, read_rmsprop, ELEMENT, RMSPROP,                                                   \
        STATES(STATE(SQUARE_AVG, ALWAYS, FULL), STATE(MOMENTUM, WITH_MOMENTUM, FULL)),             \
        SETTINGS(SETTING(attrs.beta2)))                                                            \
    ROW(MUON, read_muon, MATRIX, MUON,                                                             \
        STATES(STATE(MOMENTUM, ALWAYS, FULL)),                                                     \
        SETTINGS(SETTING(attrs.ns_steps), SETTING(matrix_scale), SETTING(other_scale)))            \
    ROW(ADAFACTOR, read_adafactor, LINES, ADAFACTOR,                                               \
        STATES(STATE(EXP_AVG, WITH_MOMENTUM, FULL), STATE(EXP_AVG_SQ, OF_VECTORS, FULL),           \
               STATE(EXP_AVG_SQ_ROW, OF_MATRICES, FULL),                                           \
               STATE(EXP_AVG_SQ_COL, OF_MATRICES, FULL)),                                          \
        SETTINGS(SETTING(attrs.least_scale), SETTING(attrs.clip_threshold),                        \
                 SETTING(attrs.decay_rate), SETTING(attrs.scale_parameter)))
// clang-format on

#define ROW(kind, read, reach, dense, states, settings)                                            \
    [SW_UPDATE_##kind] = {                                                                         \
        SW_OPTIMIZER_##kind, read, {SW_REACH_##reach, SW_UPDATE_##dense}, {states}, {settings}},
static const struct row rows[SW_N_UPDATE_KINDS] = {ROWS(ROW)};

#define IS_COMPLETE(kind, read, reach, dense, states, settings)                                    \
    _Static_assert(sizeof #states > 1 && sizeof #settings > 1,                                     \
                   "a rule lists the states that it saves, and settings or NO_SETTINGS");
ROWS(IS_COMPLETE)
#define BIT(kind, ...) +(1U << SW_UPDATE_##kind)
_Static_assert(0 ROWS(BIT) == (1U << SW_N_UPDATE_KINDS) - 1, "each kind of update has one row");

const struct sw_update_facts *sw_update_facts(enum sw_update_kind kind)
{
    return &rows[kind].facts;
}

sw_status sw_update_rule_init(const struct sw_optimizer_config *optimizer, bool decay_1d,
                              struct sw_update_rule *out)
{
    for (int kind = 0; kind < SW_N_UPDATE_KINDS; kind++) {
        if (rows[kind].type == optimizer->type) {
            struct sw_update_rule rule = {.decay_1d = decay_1d};
            rule.attrs.kind = (enum sw_update_kind)kind;
            rule.attrs.weight_decay = optimizer->weight_decay;
            rule.attrs.eps = optimizer->eps;
            rows[kind].read(optimizer, &rule);
            *out = rule;
            return SW_OK;
        }
    }
    return SW_FAIL(SW_E_UNSUP, "optimizer.type: %s has no update rule in this version",
                   optimizer->name ? optimizer->name : "none given");
}

/* ---- rules of single parameters ---- */

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

/* ---- states ---- */

static bool is_kept(enum when when, const struct sw_update_rule *rule, int rank)
{
    switch (when) {
    case WITH_MOMENTUM:
        return rule->attrs.beta1 != 0;
    case OF_VECTORS:
        return rank < 2;
    case OF_MATRICES:
        return rank >= 2;
    default:
        return true;
    }
}

static enum sw_dtype dtype_of(enum bits bits, const struct sw_update_rule *rule, enum sw_dtype full,
                              int64_t elems)
{
    if (bits == FULL || full != SW_F32) {
        return full;
    }
    return rule->moments == SW_MOMENTS_BF16 ? SW_BF16
           : rule->moments == SW_MOMENTS_8BIT && elems >= rule->min_8bit_elems && elems > 0 ? SW_U8
                                                                                            : full;
}

int sw_update_states(const struct sw_update_rule *rule, enum sw_dtype param_dtype,
                     const struct sw_shape *shape, struct sw_update_state out[SW_UPDATE_MAX_STATES])
{
    const enum sw_dtype full = param_dtype == SW_F64 ? SW_F64 : SW_F32;
    const struct rule_state *states = rows[rule->attrs.kind].states;
    int n = 0;
    if (param_dtype == SW_BF16) {
        out[n++] = (struct sw_update_state){SW_STATE_MASTER_LO, SW_I16};
    } else if (param_dtype == SW_F16) {
        out[n++] = (struct sw_update_state){SW_STATE_MASTER, SW_F32};
    }
    const int n_masters = n;
    for (const struct rule_state *s = states; s->kind != SW_STATE_OTHER; s++) {
        if (is_kept(s->when, rule, shape->rank)) {
            const enum sw_dtype dtype = dtype_of(s->bits, rule, full, sw_shape_elems(shape));
            out[n++] = (struct sw_update_state){s->kind, dtype};
        }
    }
    const int n_states = n;
    for (int i = n_masters; i < n_states; i++) {
        enum sw_codes codes;
        if (out[i].dtype == SW_U8) {
            out[n++] = (struct sw_update_state){sw_state_scales(out[i].kind, &codes), SW_F32};
        }
    }
    return n;
}

/* ---- the fingerprint ---- */

static double value_of(const struct sw_update_rule *rule, const struct setting *setting)
{
    const char *at = (const char *)rule + setting->at;
    return setting->type == IS_BOOL  ? *(const bool *)at
           : setting->type == IS_INT ? *(const int *)at
                                     : *(const double *)at;
}

uint64_t sw_update_rule_hash(const struct sw_update_rule *rule, uint64_t h)
{
    const struct sw_update_attrs *a = &rule->attrs;
    const int64_t whole[] = {a->kind,     a->decoupled, a->bias_correction,
                             a->nesterov, a->maximize,  rule->decay_1d};
    const double real[] = {a->eps, a->weight_decay, a->dampening, a->beta1};
    h = sw_hash(h, whole, sizeof whole);
    h = sw_hash(h, real, sizeof real);
    for (const struct setting *s = rows[a->kind].settings; s->type != END; s++) {
        const double value = value_of(rule, s);
        h = sw_hash(h, &value, sizeof value);
    }
    h = sw_update_groups_hash(rule->groups, h);
    if (rule->moments == SW_MOMENTS_8BIT) {
        h = sw_hash_str(h, "moments 8bit");
        return sw_hash(h, &rule->min_8bit_elems, sizeof rule->min_8bit_elems);
    }
    return rule->moments == SW_MOMENTS_BF16 ? sw_hash_str(h, "moments bf16") : h;
}
