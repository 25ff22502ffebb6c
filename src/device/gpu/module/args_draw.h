// SPDX-License-Identifier: Apache-2.0
// args_draw - the random state of an op's dropout, part of the arguments of kernels that draw.
// Values that change every step are read on the device, so that the launch is always the same.
#pragma once

#include <stdint.h>

/* Filled by sw_gpu_draw_args (gpu.h). */
struct gpu_draw_args {
    const double *seed_lo, *seed_hi, *micro; /* in the table of scalars */
    uint64_t path;                           /* the op's path */
    int64_t batch;                           /* samples of a micro-batch */
    uint32_t threshold;                      /* an element is kept if its word is at least that */
};
