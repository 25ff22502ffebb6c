// SPDX-License-Identifier: Apache-2.0
// args_act - activations by number; the same numbers as enum sw_act (checked where C fills them in).
#pragma once

enum sw_gpu_act {
    SW_GPU_ACT_NONE,
    SW_GPU_ACT_GELU,
    SW_GPU_ACT_GELU_TANH,
    SW_GPU_ACT_RELU,
    SW_GPU_ACT_SILU,
    SW_GPU_ACT_TANH,
    SW_GPU_ACT_SIGMOID,
    SW_GPU_ACT_QUICK_GELU,
    SW_GPU_N_ACTS
};
