// SPDX-License-Identifier: Apache-2.0
// The table of scalars: derived scalars, and the rates of an update. GPU kernels repeat the latter
// (device/gpu/module/update.h), so powers are computed as products.
#include <math.h>

#include "graph/graph.h"

void sw_scalars_complete(double scalars[SW_SCALAR_COUNT])
{
    const double t = scalars[SW_SCALAR_STEP];
    scalars[SW_SCALAR_CORRECTION1] = 1 - pow(scalars[SW_SCALAR_BETA1], t);
    scalars[SW_SCALAR_CORRECTION2] = 1 - pow(scalars[SW_SCALAR_BETA2], t);
}

double sw_update_squares_kept(const struct sw_update_attrs *attrs, double t)
{
    return 1 - pow(t, attrs->decay_rate);
}

static double power(double base, int64_t n)
{
    double result = 1;
    for (; n > 0; n >>= 1) {
        result = n & 1 ? result * base : result;
        base = base * base;
    }
    return result;
}

struct sw_update_rates sw_update_rates_of(const struct sw_update_attrs *attrs,
                                          const double scalars[SW_SCALAR_COUNT])
{
    const double t = scalars[SW_SCALAR_STEP];
    struct sw_update_rates r = {.lr = scalars[SW_SCALAR_LR],
                                .beta1 = scalars[SW_SCALAR_BETA1],
                                .beta2 = scalars[SW_SCALAR_BETA2],
                                .correction1 = scalars[SW_SCALAR_CORRECTION1],
                                .correction2 = scalars[SW_SCALAR_CORRECTION2]};
    if (attrs->is_scaled) {
        r.lr = r.lr * attrs->lr_scale;
    }
    if (attrs->has_betas) {
        r.beta1 = attrs->beta1;
        r.beta2 = attrs->beta2;
        r.correction1 = 1 - power(r.beta1, (int64_t)t);
        r.correction2 = 1 - power(r.beta2, (int64_t)t);
    }
    r.step_size = r.lr;
    if (attrs->kind == SW_UPDATE_ADAGRAD) {
        r.step_size = r.lr / (1 + (t - 1) * attrs->lr_decay);
    } else if (attrs->kind == SW_UPDATE_ADAM && attrs->bias_correction) {
        r.step_size = r.lr / r.correction1;
    } else if (attrs->bias_correction) {
        r.step_size = r.lr * sqrt(r.correction2) / r.correction1;
    }
    return r;
}
