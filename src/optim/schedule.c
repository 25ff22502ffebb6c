// SPDX-License-Identifier: Apache-2.0
// The five schedules of DeepSpeed in closed form. Its schedulers count from -1: making one sets the
// first rate, and it moves after each optimizer step, so that step k >= 1 has the rate of index
// i = k - 1. The order of operations is DeepSpeed's, so that values agree to the last place.
// Schedules of transformers' Trainer count from 0: the update after k others has the factor of k.
#include "optim/optim.h"

#include <math.h>

static int longest(int n, const struct sw_config_numbers *numbers)
{
    return numbers->is_list && numbers->n > n ? numbers->n : n;
}

int sw_schedule_groups(const struct sw_scheduler_config *scheduler)
{
    int n = 1;
    n = longest(n, &scheduler->warmup_min_lr);
    n = longest(n, &scheduler->warmup_max_lr);
    n = longest(n, &scheduler->cycle_min_lr);
    n = longest(n, &scheduler->cycle_max_lr);
    n = longest(n, &scheduler->cycle_min_mom);
    n = longest(n, &scheduler->cycle_max_mom);
    return longest(n, &scheduler->range_min_lr);
}

/* Spreads a number over all groups, or copies a list with one number per group. */
static sw_status spread(const struct sw_config_numbers *numbers, const char *key, int n_groups,
                        double *out)
{
    if (numbers->n == 0 && !numbers->is_list) { /* null: the default */
        return SW_OK;
    }
    if (numbers->is_list && numbers->n != n_groups) {
        return SW_FAIL(SW_E_CONFIG,
                       "scheduler.params.%s: a list must have one value for each parameter group: "
                       "%d values, %d groups",
                       key, numbers->n, n_groups);
    }
    for (int i = 0; i < n_groups; i++) {
        out[i] = numbers->items[numbers->is_list ? i : 0];
    }
    return SW_OK;
}

static sw_status init_warmup(struct sw_schedule *s, const struct sw_scheduler_config *c)
{
    s->linear = c->warmup_type == SW_WARMUP_LINEAR;
    s->warmup_steps = (double)sw_max_i64(2, c->warmup_num_steps);
    s->total_steps = (double)c->total_num_steps;
    s->min_ratio = c->warmup_min_ratio;
    s->end_ratio = c->cos_min_ratio;
    for (int i = 0; i < s->n_groups; i++) {
        s->max_lr[i] = s->lr; /* default of warmup_max_lr */
    }
    SW_TRY(spread(&c->warmup_min_lr, "warmup_min_lr", s->n_groups, s->min_lr));
    SW_TRY(spread(&c->warmup_max_lr, "warmup_max_lr", s->n_groups, s->max_lr));
    return SW_OK;
}

static void init_trainer(struct sw_schedule *s, const struct sw_scheduler_config *c)
{
    s->warmup_steps = (double)c->warmup_num_steps;
    s->total_steps = (double)c->total_num_steps;
}

static sw_status init_cycle(struct sw_schedule *s, const struct sw_scheduler_config *c)
{
    s->cycle_momentum = c->cycle_momentum && s->has_betas;
    s->first_steps = c->cycle_first_step_size;
    s->second_steps = c->cycle_second_step_size < 0 ? s->first_steps : c->cycle_second_step_size;
    s->first_stairs = c->cycle_first_stair_count;
    s->second_stairs =
        c->cycle_second_stair_count < 0 ? s->first_stairs : c->cycle_second_stair_count;
    s->decay_steps = c->decay_step_size;
    s->decay_lr_rate = c->decay_lr_rate;
    s->decay_beta1_rate = c->decay_mom_rate;
    SW_TRY(spread(&c->cycle_min_lr, "cycle_min_lr", s->n_groups, s->min_lr));
    SW_TRY(spread(&c->cycle_max_lr, "cycle_max_lr", s->n_groups, s->max_lr));
    SW_TRY(spread(&c->cycle_min_mom, "cycle_min_mom", s->n_groups, s->min_beta1));
    SW_TRY(spread(&c->cycle_max_mom, "cycle_max_mom", s->n_groups, s->max_beta1));
    return SW_OK;
}

static sw_status init_range(struct sw_schedule *s, const struct sw_scheduler_config *c)
{
    s->range_steps = (double)c->range_step_size;
    s->range_rate = c->range_step_rate;
    s->staircase = c->range_staircase;
    SW_TRY(spread(&c->range_min_lr, "lr_range_test_min_lr", s->n_groups, s->min_lr));
    return SW_OK;
}

sw_status sw_schedule_init(struct sw_schedule *schedule, const struct sw_config *config,
                           int n_groups)
{
    const struct sw_optimizer_config *optimizer = &config->optimizer;
    struct sw_schedule s = {.type = config->scheduler.type, .n_groups = n_groups};
    if (optimizer->type == SW_OPTIMIZER_NONE) {
        return SW_FAIL(SW_E_CONFIG,
                       "a schedule needs an optimizer block: optimizer.type is missing");
    }
    if (n_groups < 1 || n_groups > SW_SCHEDULE_GROUPS) {
        return SW_FAIL(SW_E_ARG, "%d parameter groups; wanted 1 to %d", n_groups,
                       SW_SCHEDULE_GROUPS);
    }
    s.lr = optimizer->lr;
    s.is_relative = optimizer->type == SW_OPTIMIZER_ADAFACTOR && optimizer->relative_step;
    s.starts_slowly = optimizer->warmup_init;
    s.has_betas = optimizer->betas.n == 2;
    s.beta1 = s.has_betas ? optimizer->betas.items[0] : 0;
    s.beta2 = s.has_betas ? optimizer->betas.items[1] : 0;
    switch (s.type) {
    case SW_SCHEDULER_NONE:
        break;
    case SW_SCHEDULER_WARMUP:
    case SW_SCHEDULER_WARMUP_DECAY:
    case SW_SCHEDULER_WARMUP_COSINE:
        SW_TRY(init_warmup(&s, &config->scheduler));
        break;
    case SW_SCHEDULER_ONE_CYCLE:
        SW_TRY(init_cycle(&s, &config->scheduler));
        break;
    case SW_SCHEDULER_LR_RANGE_TEST:
        SW_TRY(init_range(&s, &config->scheduler));
        break;
    case SW_SCHEDULER_CONSTANT:
    case SW_SCHEDULER_CONSTANT_WITH_WARMUP:
    case SW_SCHEDULER_LINEAR:
    case SW_SCHEDULER_COSINE:
    case SW_SCHEDULER_INVERSE_SQRT:
        init_trainer(&s, &config->scheduler);
        break;
    case SW_SCHEDULER_OTHER:
        return SW_FAIL(SW_E_UNSUP, "scheduler.type: \"%s\" is not built yet",
                       config->scheduler.name);
    }
    *schedule = s;
    return SW_OK;
}

/* DeepSpeed's OneCycle sets beta2 to this, whatever the betas of the optimizer are. */
static const double CYCLE_BETA2 = 0.99;

/* ---- warm-up: from 0 at i = 0 to 1 at i = warmup_steps (linear) or warmup_steps - 1 (log) ---- */

static double warmup_gamma(const struct sw_schedule *s, double i)
{
    return s->linear ? i / s->warmup_steps : (1.0 / log(s->warmup_steps)) * log(i + 1);
}

/* Steps from the end of the warm-up to total_steps, at least 1. */
static double steps_after_warmup(const struct sw_schedule *s)
{
    return fmax(1.0, s->total_steps - s->warmup_steps);
}

static double warmup_lr(const struct sw_schedule *s, int i_group, double i)
{
    double gamma = 1.0;
    if (i < s->warmup_steps) {
        gamma = warmup_gamma(s, i);
    } else if (s->type == SW_SCHEDULER_WARMUP_DECAY) {
        gamma = fmax(0.0, (s->total_steps - i) / steps_after_warmup(s));
    }
    return s->min_lr[i_group] + (s->max_lr[i_group] - s->min_lr[i_group]) * gamma;
}

static double cosine_lr(const struct sw_schedule *s, double i)
{
    double ratio;
    if (i < s->warmup_steps) {
        ratio = s->min_ratio + (1.0 - s->min_ratio) * warmup_gamma(s, i);
    } else {
        const double progress = fmin(1.0, (i - s->warmup_steps + 1) / steps_after_warmup(s));
        ratio = s->end_ratio + (1.0 - s->end_ratio) * ((1 + cos(M_PI * progress)) / 2);
    }
    return s->lr * ratio;
}

/* ---- OneCycle ---- */

/* Height in the cycle, 0 .. 1, after n = 1 .. total steps. */
static double cycle_height(const struct sw_schedule *s, double n)
{
    const double total = s->first_steps + s->second_steps;
    const double peak = s->first_steps / total;
    const double x = 1.0 + n / total - floor(1 + n / total);
    const bool rising = x <= peak;
    const int64_t stairs = rising ? s->first_stairs : s->second_stairs;
    if (stairs > 0) {
        const double at = fmod(n, total);
        const double stair = at <= s->first_steps ? at * (double)stairs / s->first_steps
                                                  : (total - at) * (double)stairs / s->second_steps;
        return floor(stair) / (double)stairs;
    }
    return rising ? x / peak : (x - 1) / (peak - 1);
}

static struct sw_rates cycle_rates(const struct sw_schedule *s, int i_group, double i)
{
    const double total = s->first_steps + s->second_steps;
    const double low = s->min_lr[i_group], high = s->max_lr[i_group];
    const double top = s->max_beta1[i_group], bottom = s->min_beta1[i_group];
    struct sw_rates out = {low, s->beta1, s->beta2};
    if (s->cycle_momentum) {
        out.beta1 = top;
        out.beta2 = CYCLE_BETA2;
    }
    if (i < total) {
        const double height = cycle_height(s, i + 1);
        out.lr = low + (high - low) * height;
        if (s->cycle_momentum) {
            out.beta1 = top - (top - bottom) * height;
        }
        return out;
    }
    if (s->decay_steps == 0) {
        return out;
    }
    const double intervals = (i - total + 1) / s->decay_steps;
    out.lr = low / (1 + s->decay_lr_rate * intervals);
    if (s->cycle_momentum) {
        out.beta1 = top * (1 + s->decay_beta1_rate * intervals);
    }
    return out;
}

static double range_lr(const struct sw_schedule *s, int i_group, double i)
{
    const double intervals = (i + 1) / s->range_steps;
    return s->min_lr[i_group] * (1 + s->range_rate * (s->staircase ? floor(intervals) : intervals));
}

/* ---- schedules of the Trainer ---- */

/* Factor on lr after k updates, as in transformers' get_scheduler with its defaults. */
static double trainer_factor(const struct sw_schedule *s, double k)
{
    const double warmup = s->warmup_steps;
    if (s->type == SW_SCHEDULER_CONSTANT) {
        return 1.0;
    }
    if (k < warmup) {
        return k / warmup;
    }
    switch (s->type) {
    case SW_SCHEDULER_LINEAR:
        return fmax(0.0, (s->total_steps - k) / steps_after_warmup(s));
    case SW_SCHEDULER_COSINE:
        return fmax(0.0, 0.5 * (1.0 + cos(M_PI * ((k - warmup) / steps_after_warmup(s)))));
    case SW_SCHEDULER_INVERSE_SQRT: {
        const double timescale = warmup > 0 ? warmup : 10000.0;
        return 1.0 / sqrt((k + (timescale - warmup)) / timescale);
    }
    default:
        return 1.0;
    }
}

static bool is_trainers(enum sw_scheduler_type type)
{
    return type >= SW_SCHEDULER_CONSTANT;
}

/* ---- public functions ---- */

/* Step 0 has the rates that the schedulers' constructors set. */
static struct sw_rates first_rates(const struct sw_schedule *s, int i_group)
{
    struct sw_rates out = {s->min_lr[i_group], s->beta1, s->beta2};
    if (s->type == SW_SCHEDULER_WARMUP_COSINE) {
        out.lr = 0;
    } else if (s->type == SW_SCHEDULER_ONE_CYCLE && s->cycle_momentum) {
        out.beta1 = s->min_beta1[i_group];
        out.beta2 = CYCLE_BETA2;
    }
    return out;
}

struct sw_rates sw_schedule_at(const struct sw_schedule *s, int i_group, int64_t i_step)
{
    SW_ASSERT(i_group >= 0 && i_group < s->n_groups && i_step >= 0);
    struct sw_rates out = {s->lr, s->beta1, s->beta2};
    if (s->is_relative) {
        const double t = (double)(i_step + 1);
        out.lr = fmin(s->starts_slowly ? 1e-6 * t : 1e-2, 1 / sqrt(t));
    }
    if (s->type == SW_SCHEDULER_NONE) {
        return out;
    }
    if (is_trainers(s->type)) {
        out.lr = s->lr * trainer_factor(s, (double)i_step);
        return out;
    }
    if (i_step == 0) {
        return first_rates(s, i_group);
    }
    const double i = (double)(i_step - 1);
    switch (s->type) {
    case SW_SCHEDULER_WARMUP:
    case SW_SCHEDULER_WARMUP_DECAY:
        out.lr = warmup_lr(s, i_group, i);
        break;
    case SW_SCHEDULER_WARMUP_COSINE:
        out.lr = cosine_lr(s, i);
        break;
    case SW_SCHEDULER_ONE_CYCLE:
        return cycle_rates(s, i_group, i);
    case SW_SCHEDULER_LR_RANGE_TEST:
        out.lr = range_lr(s, i_group, i);
        break;
    default:
        break;
    }
    return out;
}
