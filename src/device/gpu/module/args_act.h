// SPDX-License-Identifier: Apache-2.0
// args_act - activations by number; the numbers of enum sw_act (checked where C fills them in).
#pragma once

#define SW_GPU_ACTS(X)                                                                             \
    X(NONE)                                                                                        \
    X(GELU)                                                                                        \
    X(GELU_TANH)                                                                                   \
    X(RELU)                                                                                        \
    X(SILU)                                                                                        \
    X(TANH)                                                                                        \
    X(SIGMOID)                                                                                     \
    X(QUICK_GELU)                                                                                  \
    X(GELU_10)                                                                                     \
    X(RELU6)                                                                                       \
    X(RELU2)                                                                                       \
    X(LEAKY_RELU)                                                                                  \
    X(HARDSWISH)                                                                                   \
    X(MISH)                                                                                        \
    X(LAPLACE)                                                                                     \
    X(COUNT)

#define SW_GPU_ACT_NUMBER(name) SW_GPU_ACT_##name,
enum sw_gpu_act { SW_GPU_ACTS(SW_GPU_ACT_NUMBER) };
