// SPDX-License-Identifier: Apache-2.0
// The size of a parameter's Adafactor step, used by every kernel. It comes from exact sums over the
// whole tensor.
#include <math.h>

#include "device/cpu/cpu.h"

/* NaN if an element is not finite or too large. */
static double rms(const int64_t *stats, int64_t n)
{
    return stats[SW_EXACT_WORDS] > 0 ? NAN : sqrt(sw_exact_value(stats) / (double)n);
}

struct cpu_adafactor_step sw_cpu_adafactor_step(const struct sw_update_op_attrs *attrs,
                                                const double *scalars, const int64_t *words,
                                                const int64_t *norm)
{
    const struct sw_update_attrs *rule = &attrs->rule;
    const double too_far = rms(norm, attrs->whole) / rule->clip_threshold;
    struct cpu_adafactor_step step = {.lr = sw_update_rates_of(rule, scalars).lr};
    if (rule->scale_parameter) { /* NaN passes the comparisons */
        const double scale = rms(words, attrs->whole);
        step.lr *= scale < rule->least_scale ? rule->least_scale : scale;
    }
    step.size = too_far < 1 ? step.lr : step.lr / too_far;
    return step;
}
