// SPDX-License-Identifier: Apache-2.0
// args_draw - which randomness an op's dropout has; a part of the arguments of kernels that draw.
// What changes from step to step is read on the device, so that a launch is the same in all of them.
#pragma once

#include <stdint.h>

/* Filled by sw_gpu_draw_args (gpu.h). */
struct gpu_draw_args {
    const double *seed_lo, *seed_hi, *micro; /* in the table of scalars */
    uint64_t path;                           /* the op's */
    int64_t batch;                           /* samples of a micro-batch */
    uint32_t threshold; /* an element is kept where its word is at least that */
};
