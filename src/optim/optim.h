// SPDX-License-Identifier: Apache-2.0
// optim - update rules and the states they keep; learning-rate schedules; loss scaling.
//
// Schedules and the scaler are plain values and pure functions: they are saved in checkpoints, and
// what they say goes into the table of scalars on the device.
#pragma once

#include "config/config.h"
#include "graph/graph.h"

/* ======== schedules (schedule.c) ======== */

enum { SW_SCHEDULE_GROUPS = 16 };

/* Everything the closed forms need; plain values. The parameter groups of an optimizer differ in
 * the rates that a scheduler gives as lists. */
struct sw_schedule {
    enum sw_scheduler_type type;
    int n_groups;
    bool has_betas;                  /* the optimizer has beta1 and beta2 */
    bool is_relative, starts_slowly; /* Adafactor's relative_step, and its warmup_init */
    double lr;                       /* of the optimizer block */
    double beta1, beta2;             /* of the optimizer block */
    /* Warmup*, OneCycle, LRRangeTest (min only) */
    double min_lr[SW_SCHEDULE_GROUPS], max_lr[SW_SCHEDULE_GROUPS];
    /* Warmup* */
    bool linear;
    double warmup_steps, total_steps, min_ratio, end_ratio;
    /* OneCycle */
    bool cycle_momentum;
    double min_beta1[SW_SCHEDULE_GROUPS], max_beta1[SW_SCHEDULE_GROUPS];
    double first_steps, second_steps;
    int64_t first_stairs, second_stairs;
    double decay_steps, decay_lr_rate, decay_beta1_rate;
    /* LRRangeTest */
    bool staircase;
    double range_steps, range_rate;
};

struct sw_rates {
    double lr, beta1, beta2;
};

/*
 * sw_schedule_init - the schedule that a configuration describes, for a number of parameter groups.
 *
 * Without a scheduler block the rate is the optimizer's. A list in the block needs one value for
 * each group.
 *
 * SW_E_CONFIG  no optimizer block, or a list of another length
 * SW_E_UNSUP   a schedule that is known by name only
 */
sw_status sw_schedule_init(struct sw_schedule *schedule, const struct sw_config *config,
                           int n_groups);

/* Groups that the lists of the scheduler block ask for; 1 without lists. */
int sw_schedule_groups(const struct sw_scheduler_config *scheduler);

/* What optimizer step i_step uses: 0 is the first step that is applied; skipped steps do not count.
 * DeepSpeed's schedules move after a step, so steps 0 and 1 of a warm-up have the same rate. */
struct sw_rates sw_schedule_at(const struct sw_schedule *schedule, int i_group, int64_t i_step);

/* ======== loss scaling (scaler.c) ======== */

/* All of it goes into a checkpoint. */
struct sw_scaler {
    double scale; /* of the next backward; unscale with the value that backward used */
    int64_t iteration, last_overflow, hysteresis_left;
    bool dynamic;
    /* settings */
    int64_t window, hysteresis;
    bool consecutive;
    double min_scale;
};

/* Scale 1 for ever when fp16 is not enabled. */
void sw_scaler_init(struct sw_scaler *scaler, const struct sw_fp16_config *fp16);

/*
 * sw_scaler_update - at each boundary, after it is known whether a gradient overflowed.
 *
 * The rule of DeepSpeed's ZeRO stages, at every stage. An overflow is a skipped step also when the
 * scale is static.
 *
 * SW_E_CONFIG  overflow at the least scale, fp16.min_loss_scale; state unchanged
 */
sw_status sw_scaler_update(struct sw_scaler *scaler, bool overflow);

/* ======== update rules (update.c) ======== */

struct sw_update_rule {
    struct sw_update_attrs attrs; /* n_states is set per dtype when emitted */
    bool decay_1d;                /* false: parameters of one dimension do not decay */
    /* ADAM: bf16 is rounded stochastically; of 8 bits, tensors with fewer elements stay fp32 */
    enum sw_moments moments;
    int64_t min_8bit_elems;
    double matrix_scale, other_scale; /* MUON: of the rate; of what is no matrix */
    double momentum;                  /* SGD: goes into the scalar BETA1; RMSprop, Adafactor */
    struct sw_update_groups *groups;  /* bound; NULL = there are none; of who made the rule */
};

/* SW_E_UNSUP names optimizer.type where no rule exists. */
sw_status sw_update_rule_init(const struct sw_optimizer_config *optimizer, bool decay_1d,
                              struct sw_update_rule *out);

/*
 * sw_update_rule_of - the rule that moves a parameter of this name and rank.
 *
 * Muon is for matrices that are neither tables nor the head, by their names; AdamW moves the rest.
 */
struct sw_update_rule sw_update_rule_of(const struct sw_update_rule *rule, const char *name,
                                        int rank);

/* ======== groups of parameters (groups.c) ======== */

struct sw_update_groups;
/*
 * sw_update_groups_open - what spillway.groups and spillway.layer_decay say.
 *
 * out          NULL where they say nothing; sw_update_groups_close
 *
 * SW_E_CONFIG  names the group and the key
 */
sw_status sw_update_groups_open(const struct sw_config *config, struct sw_update_groups **out);
void sw_update_groups_close(struct sw_update_groups *groups);
/* names: of all parameters in the order of forward, copied; the first group that matches has it.
 * SW_E_CONFIG: a pattern matches none, or there are no layers. May be called again. */
sw_status sw_update_groups_bind(struct sw_update_groups *groups, const char *const *names,
                                int64_t n);
/* What the groups change of the rule for parameter `name`; groups NULL: nothing. */
void sw_update_groups_apply(const struct sw_update_groups *groups, const char *name,
                            struct sw_update_attrs *attrs);
uint64_t sw_update_groups_hash(const struct sw_update_groups *groups, uint64_t h);

/* ======== states (update.c) ======== */

/* What one parameter keeps between steps, in the order the UPDATE op takes it. bf16 parameters: the
 * low half of the master (sw_master_split); fp16: an fp32 master; then the moments in fp32 or
 * bf16, or as codes of 8 bits and behind these the scales of both. */
struct sw_update_state {
    const char *kind; /* "master_lo", "master", "exp_avg", "exp_avg_sq", "momentum", "sum", .. */
    enum sw_dtype dtype;
    /* one for each row or column of the matrices that the last two dimensions are; for each run of
     * SW_CODE_RUN elements of the whole tensor */
    enum { SW_STATE_OF_ELEMENTS, SW_STATE_OF_ROWS, SW_STATE_OF_COLUMNS, SW_STATE_OF_RUNS } of;
};
enum { SW_UPDATE_MAX_STATES = 5 };
/* shape: of the whole parameter. */
int sw_update_states(const struct sw_update_rule *rule, enum sw_dtype param_dtype,
                     const struct sw_shape *shape,
                     struct sw_update_state out[SW_UPDATE_MAX_STATES]);
/* Elements between which ranks may cut what is updated so. */
int64_t sw_update_run(const struct sw_update_rule *rule);
