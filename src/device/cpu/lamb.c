// SPDX-License-Identifier: Apache-2.0
// The scalars of a LAMB step, used by every kernel: the norms of a tensor from their exact sums,
// and the trust ratio.
#include <math.h>

#include "device/cpu/cpu.h"

void sw_cpu_lamb_merge(int64_t *norms, const int64_t *parts, int64_t n_parts)
{
    for (int w = 0; w < SW_LAMB_WORDS; w++) {
        norms[w] = 0;
        for (int64_t i = 0; i < n_parts; i++) {
            norms[w] += parts[i * SW_LAMB_WORDS + w];
        }
    }
    sw_exact_carry(norms);
    sw_exact_carry(norms + SW_STATS_WORDS);
}

/* NaN if an element is not finite or too large. */
static double norm(const int64_t *stats)
{
    return stats[SW_EXACT_WORDS] > 0 ? NAN : sqrt(sw_exact_value(stats));
}

double sw_cpu_lamb_ratio(const struct sw_update_attrs *attrs, const int64_t *norms)
{
    const double of_w = norm(norms), of_u = norm(norms + SW_STATS_WORDS);
    if (of_w == 0 || of_u == 0) {
        return 1;
    }
    double ratio = of_w / of_u; /* NaN passes the comparisons */
    ratio = ratio > attrs->max_coeff ? attrs->max_coeff : ratio;
    return ratio < attrs->min_coeff ? attrs->min_coeff : ratio;
}
