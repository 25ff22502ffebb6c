// SPDX-License-Identifier: Apache-2.0
// optim - update rules and their states, learning-rate schedules, loss scaling.
//
// Schedules and the scaler are plain values with pure functions. They are saved in checkpoints, and
// their results go into the table of scalars on the device.
#pragma once

#include "config/config.h"
#include "graph/graph.h"

/* ======== schedules (schedule.c) ======== */

enum { SW_SCHEDULE_GROUPS = 16 };

/* Parameters of the closed forms, as plain values. The parameter groups of an optimizer differ only
 * in rates that the scheduler gives as lists. */
struct sw_schedule {
    enum sw_scheduler_type type;
    int n_groups;
    bool has_betas;                  /* the optimizer has beta1 and beta2 */
    bool is_relative, starts_slowly; /* Adafactor: relative_step and warmup_init */
    double lr;                       /* from the optimizer block */
    double beta1, beta2;             /* from the optimizer block */
    /* for Warmup*, OneCycle, LRRangeTest (min only) */
    double min_lr[SW_SCHEDULE_GROUPS], max_lr[SW_SCHEDULE_GROUPS];
    /* for Warmup* */
    bool linear;
    double warmup_steps, total_steps, min_ratio, end_ratio;
    /* for OneCycle */
    bool cycle_momentum;
    double min_beta1[SW_SCHEDULE_GROUPS], max_beta1[SW_SCHEDULE_GROUPS];
    double first_steps, second_steps;
    int64_t first_stairs, second_stairs;
    double decay_steps, decay_lr_rate, decay_beta1_rate;
    /* for LRRangeTest */
    bool staircase;
    double range_steps, range_rate;
};

struct sw_rates {
    double lr, beta1, beta2;
};

/*
 * sw_schedule_init - makes the schedule that a configuration describes.
 *
 * Without a scheduler block, the rate is that of the optimizer. A list in the block needs one
 * value for each parameter group.
 *
 * SW_E_CONFIG  no optimizer block, or a list of another length
 * SW_E_UNSUP   the schedule is known by name only
 */
sw_status sw_schedule_init(struct sw_schedule *schedule, const struct sw_config *config,
                           int n_groups);

/* Number of groups in the lists of the scheduler block; 1 without lists. */
int sw_schedule_groups(const struct sw_scheduler_config *scheduler);

/* Rates of optimizer step i_step. 0 is the first step that is applied; skipped steps do not count.
 * DeepSpeed's schedules advance after a step, so steps 0 and 1 of a warm-up have the same rate. */
struct sw_rates sw_schedule_at(const struct sw_schedule *schedule, int i_group, int64_t i_step);

/* ======== loss scaling (scaler.c) ======== */

/* All members are saved in a checkpoint. */
struct sw_scaler {
    double scale; /* for the next backward; unscale with the value that backward used */
    int64_t iteration, last_overflow, hysteresis_left;
    bool dynamic;
    /* settings */
    int64_t window, hysteresis;
    bool consecutive;
    double min_scale;
};

/* The scale is always 1 if fp16 is disabled. */
void sw_scaler_init(struct sw_scaler *scaler, const struct sw_fp16_config *fp16);

/* The scaler with which a run resumes. A static scale is the configuration's. A dynamic one goes on
 * from `saved`, of which only the state counts. was_dynamic: `saved` was; if not, a dynamic scale
 * begins anew. */
void sw_scaler_resume(struct sw_scaler *scaler, const struct sw_fp16_config *fp16,
                      const struct sw_scaler *saved, bool was_dynamic);

/*
 * sw_scaler_update - call it at each boundary, once it is known whether a gradient overflowed.
 *
 * The rule is that of DeepSpeed's ZeRO stages, for every stage. An overflow skips the step even if
 * the scale is static.
 *
 * SW_E_CONFIG  overflow at the smallest scale, fp16.min_loss_scale; the state is unchanged
 */
sw_status sw_scaler_update(struct sw_scaler *scaler, bool overflow);

/* ======== update rules (update.c) ======== */

/* The part of a parameter that the update of one element depends on. */
enum sw_update_reach {
    SW_REACH_ELEMENT, /* that element, its states and its gradient */
    SW_REACH_NORMS,   /* two norms of the whole parameter */
    SW_REACH_MATRIX,  /* the whole matrix */
    SW_REACH_LINES,   /* means over rows and columns, and norms */
    SW_REACH_COUNT
};
/* Facts about the rules of a kind. */
struct sw_update_facts {
    enum sw_update_reach reach;
    enum sw_update_kind dense; /* the kind that updates parameters with a dense gradient */
};
const struct sw_update_facts *sw_update_facts(enum sw_update_kind kind);

struct sw_update_rule {
    struct sw_update_attrs attrs; /* n_states is set for the dtype when the update is emitted */
    bool decay_1d;                /* false = one-dimensional parameters do not decay */
    /* ADAM: bf16 moments are rounded stochastically; with 8-bit moments, small tensors stay fp32 */
    enum sw_moments moments;
    int64_t min_8bit_elems;
    /* MUON: factors on the rate, for matrices and for other parameters */
    double matrix_scale, other_scale;
    /* bound to names; NULL = none; owned by the creator of the rule */
    struct sw_update_groups *groups;
};

/* SW_E_UNSUP: no rule for optimizer.type, which is named. */
sw_status sw_update_rule_init(const struct sw_optimizer_config *optimizer, bool decay_1d,
                              struct sw_update_rule *out);

/* Hashes all that may change a bit of an update. */
uint64_t sw_update_rule_hash(const struct sw_update_rule *rule, uint64_t h);

/*
 * sw_update_rule_of - returns the rule for a parameter of this name and rank.
 *
 * Muon updates matrices that are neither tables nor the head, judged by name; AdamW updates the
 * rest.
 */
struct sw_update_rule sw_update_rule_of(const struct sw_update_rule *rule, const char *name,
                                        int rank);

/* ======== groups of parameters (groups.c) ======== */

struct sw_update_groups;
/*
 * sw_update_groups_open - reads spillway.groups and spillway.layer_decay.
 *
 * out          NULL if neither is given; release with sw_update_groups_close
 *
 * SW_E_CONFIG  names the group and the key
 */
sw_status sw_update_groups_open(const struct sw_config *config, struct sw_update_groups **out);
void sw_update_groups_close(struct sw_update_groups *groups);
/* names: all parameters in forward order, copied. A parameter belongs to the first group that
 * matches. SW_E_CONFIG: a pattern matches nothing, or there are no layers. It may be called
 * again. */
sw_status sw_update_groups_bind(struct sw_update_groups *groups, const char *const *names,
                                int64_t n);
/* Applies to `rule` the settings of the group that has parameter `name`; groups NULL = no-op. */
void sw_update_groups_apply(const struct sw_update_groups *groups, const char *name,
                            struct sw_update_attrs *attrs);
uint64_t sw_update_groups_hash(const struct sw_update_groups *groups, uint64_t h);

/* ======== kinds of states (state.c) ======== */

/* Who keeps a state, and for how long. */
enum sw_state_purpose {
    SW_STATE_HELPS,   /* state of the graph (caches), or of a step (statistics, ratios) */
    SW_STATE_SUMS,    /* sum of the gradients of one use of a parameter */
    SW_STATE_KEPT,    /* gradient of one use, readable after backward */
    SW_STATE_MASTERS, /* optimizer state; checkpoints hold the decoded master instead */
    SW_STATE_SAVED    /* optimizer state; checkpoints hold it by its name */
};
/* Number of elements: one per element of the parameter, per row or column of the matrices of its
 * last two dims, or per run of SW_CODE_RUN elements. */
enum sw_state_extent {
    SW_STATE_OF_ELEMENTS,
    SW_STATE_OF_ROWS,
    SW_STATE_OF_COLUMNS,
    SW_STATE_OF_RUNS
};

/* X(kind, name, purpose, extent). A state of a parameter is identified by the parameter, this kind
 * and, for sums and kept gradients, the use. `name` is what checkpoints, dumps and messages say;
 * states without one have a name of their own and no parameter. */
// clang-format off
#define SW_STATE_LIST(X)                                                                           \
    X(OTHER,            NULL,               HELPS,   ELEMENTS)                                     \
    X(CONSTANT,         NULL,               HELPS,   ELEMENTS) /* given by the graph; read-only */ \
    X(TRUST_RATIO,      "trust_ratio",      HELPS,   ELEMENTS) /* of LAMB, [1] */                  \
    X(SUM,              "grad_acc",         SUMS,    ELEMENTS) /* over micro-batches or ranks */   \
    X(SUM_INDEX,        "grad_acc_index",   SUMS,    ELEMENTS) /* rows of a sum of one gradient */ \
    X(REDUCED_SUM,      "grad_sum",         SUMS,    ELEMENTS) /* a sum, reduced over ranks */     \
    X(GRADIENT,         "grad",             KEPT,    ELEMENTS)                                     \
    X(GRADIENT_INDEX,   "grad_index",       KEPT,    ELEMENTS) /* rows of a row-sparse gradient */ \
    X(MASTER_LO,        "master_lo",        MASTERS, ELEMENTS) /* see sw_master_split */           \
    X(MASTER,           "master",           MASTERS, ELEMENTS)                                     \
    X(EXP_AVG,          "exp_avg",          SAVED,   ELEMENTS)                                     \
    X(EXP_AVG_SQ,       "exp_avg_sq",       SAVED,   ELEMENTS)                                     \
    X(EXP_AVG_SCALE,    "exp_avg_scale",    SAVED,   RUNS) /* scales of 8-bit codes */             \
    X(EXP_AVG_SQ_SCALE, "exp_avg_sq_scale", SAVED,   RUNS)                                         \
    X(EXP_AVG_SQ_ROW,   "exp_avg_sq_row",   SAVED,   ROWS) /* means of squares */                  \
    X(EXP_AVG_SQ_COL,   "exp_avg_sq_col",   SAVED,   COLUMNS)                                      \
    X(MOMENTUM,         "momentum",         SAVED,   ELEMENTS)                                     \
    X(SQUARE_SUM,       "sum",              SAVED,   ELEMENTS)                                     \
    X(SQUARE_AVG,       "square_avg",       SAVED,   ELEMENTS)
// clang-format on
enum sw_state_kind {
#define SW_STATE_ENUM(kind, name, purpose, extent) SW_STATE_##kind,
    SW_STATE_LIST(SW_STATE_ENUM)
#undef SW_STATE_ENUM
        SW_N_STATE_KINDS
};

struct sw_state_info {
    const char *name;
    enum sw_state_purpose purpose;
    enum sw_state_extent of;
};
extern const struct sw_state_info sw_state_infos[SW_N_STATE_KINDS];
static inline bool sw_state_is_sum(enum sw_state_kind kind)
{
    return sw_state_infos[kind].purpose == SW_STATE_SUMS;
}
static inline bool sw_state_is_optimizer(enum sw_state_kind kind)
{
    return sw_state_infos[kind].purpose >= SW_STATE_MASTERS;
}
/* Makes the name of a state: "exp_avg/<parameter>", "grad_acc.<use>/<parameter>". NULL = out of
 * memory. */
const char *sw_state_name(struct sw_arena *arena, const char *param, enum sw_state_kind kind,
                          int use);
/* 8-bit moments: which codes a state of this kind has, and the kind of the state with their
 * scales; SW_STATE_OTHER = a state of this kind has no codes. */
enum sw_state_kind sw_state_scales(enum sw_state_kind kind, enum sw_codes *codes);

/* ======== states of a rule (update.c) ======== */

/* The state of a parameter between steps, in the operand order of UPDATE. First the master: for
 * bf16 the low half (sw_master_split), for fp16 an fp32 copy. Then the moments in fp32 or bf16, or
 * as 8-bit codes followed by the scales of both. */
struct sw_update_state {
    enum sw_state_kind kind;
    enum sw_dtype dtype;
};
enum { SW_UPDATE_MAX_STATES = 5 };
/* shape: that of the whole parameter */
int sw_update_states(const struct sw_update_rule *rule, enum sw_dtype param_dtype,
                     const struct sw_shape *shape,
                     struct sw_update_state out[SW_UPDATE_MAX_STATES]);
/* Shards of tensors with this rule must be multiples of so many elements. */
int64_t sw_update_run(const struct sw_update_rule *rule);
