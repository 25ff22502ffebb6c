// SPDX-License-Identifier: Apache-2.0
// args_elementwise - output elements from the input elements at the same position.
#pragma once

#include "device/gpu/module/args_draw.h"

#define SW_GPU_ELEMENTWISE_KERNELS(X)                                                              \
    X(add)                                                                                         \
    X(scale)                                                                                       \
    X(cast)                                                                                        \
    X(act)                                                                                         \
    X(act_grad)                                                                                    \
    X(mul)                                                                                         \
    X(gated_act)                                                                                   \
    X(gated_act_grad)                                                                              \
    X(dropout)

/* Inputs have the kernel's type, outputs out_type. */
struct gpu_map_args {
    const double *skip;
    const void *in[3];
    void *out[2]; /* NULL = not wanted */
    int64_t n;
    int64_t n_b; /* add, mul: period of the second input */
    float factor;
    int act, out_type; /* enum sw_gpu_act, sw_gpu_type */
};
/* y = keep ? x factor : 0; n elements in each of `runs` runs of a sample. part > 0: x is a part, as
 * in struct sw_dropout_attrs. */
struct gpu_dropout_args {
    const double *skip;
    const void *x;
    void *y;
    int64_t n, runs, part, whole, first, sample;
    int64_t outer_part, outer_whole, outer_first;
    float factor;
    struct gpu_draw_args draw;
};
