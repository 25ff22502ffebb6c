// SPDX-License-Identifier: Apache-2.0
// Loss scaling for fp16: halve on overflow, double after a window of good steps. The rule is that
// of DeepSpeed's ZeRO optimizers (docs/differences.md, scaler-one-rule).
#include "optim/optim.h"

#include <math.h>

void sw_scaler_init(struct sw_scaler *scaler, const struct sw_fp16_config *fp16)
{
    *scaler = (struct sw_scaler){.scale = 1, .last_overflow = -1};
    if (!fp16->enabled) {
        return;
    }
    scaler->dynamic = fp16->loss_scale == 0;
    scaler->scale = scaler->dynamic ? ldexp(1, (int)fp16->initial_scale_power) : fp16->loss_scale;
    scaler->window = fp16->loss_scale_window;
    scaler->hysteresis = scaler->hysteresis_left = fp16->hysteresis;
    scaler->consecutive = fp16->consecutive_hysteresis;
    scaler->min_scale = (double)fp16->min_loss_scale;
}

void sw_scaler_resume(struct sw_scaler *scaler, const struct sw_fp16_config *fp16,
                      const struct sw_scaler *saved, bool was_dynamic)
{
    const struct sw_scaler state = *saved; /* it may be the same object */
    sw_scaler_init(scaler, fp16);
    if (scaler->dynamic && !was_dynamic) {
        return;
    }
    scaler->iteration = state.iteration;
    scaler->last_overflow = state.last_overflow;
    if (scaler->dynamic) {
        /* fp16.hysteresis may have changed, and a count of 0 would never come to 1 */
        const bool counts = state.hysteresis_left <= scaler->hysteresis &&
                            (state.hysteresis_left >= 1 || scaler->hysteresis < 1);
        scaler->hysteresis_left = counts ? state.hysteresis_left : scaler->hysteresis;
        scaler->scale = state.scale;
    }
}

/* The first hysteresis - 1 overflows do not change the scale; a halving does not reset them. */
static sw_status overflowed(struct sw_scaler *scaler)
{
    if (scaler->hysteresis != 1 && scaler->hysteresis_left != 1) {
        scaler->hysteresis_left--;
    } else if (scaler->scale == scaler->min_scale) {
        return SW_FAIL(
            SW_E_CONFIG,
            "gradients overflow at the smallest loss scale %g (fp16.min_loss_scale): the model "
            "computes NaN or infinity",
            scaler->scale);
    } else {
        scaler->scale = fmax(scaler->scale / 2, scaler->min_scale);
    }
    scaler->last_overflow = scaler->iteration;
    return SW_OK;
}

/* Good steps are counted from the one after an overflow, so the first doubling comes after window +
 * 1 good steps. */
static void went_well(struct sw_scaler *scaler)
{
    const int64_t good = scaler->iteration - scaler->last_overflow - 1;
    if (scaler->consecutive) {
        scaler->hysteresis_left = scaler->hysteresis;
    }
    if (good > 0 && good % scaler->window == 0) {
        scaler->hysteresis_left = scaler->hysteresis;
        scaler->scale *= 2;
    }
}

sw_status sw_scaler_update(struct sw_scaler *scaler, bool overflow)
{
    if (!scaler->dynamic) {
        scaler->last_overflow = overflow ? scaler->iteration : scaler->last_overflow;
    } else if (overflow) {
        SW_TRY(overflowed(scaler));
    } else {
        went_well(scaler);
    }
    scaler->iteration++;
    return SW_OK;
}
