// SPDX-License-Identifier: Apache-2.0
// args_scalar - scalars around the loss.
#pragma once

#define SW_GPU_SCALAR_KERNELS(X) X(seed) X(loss_mean) X(loss_mean_grad)

/* y = the scalar */
struct gpu_seed_args {
    const double *skip;
    const double *scalar;
    void *y;
    int out_type;
};
/* y = x / count, 0 (of the mean) if count is 0; or x weight if weight is not 0. */
struct gpu_loss_mean_args {
    const double *skip;
    const float *x, *count;
    float *y;
    float weight;
};
