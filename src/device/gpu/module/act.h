// SPDX-License-Identifier: Apache-2.0
// act - activations and their slopes in fp32, as cpu/ref_elementwise.inc has them. act: enum
// sw_gpu_act.
#pragma once

#include "device/gpu/module/args_act.h"
#include "device/gpu/module/gpu_rt.h"

SW_DEVICE float activate(int act, float x)
{
    switch (act) {
    case SW_GPU_ACT_GELU:
        return 0.5f * x * (1 + erff(x * 0.70710678118654752440f));
    case SW_GPU_ACT_GELU_TANH:
        return 0.5f * x * (1 + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x)));
    case SW_GPU_ACT_RELU:
        return x > 0 || x != x ? x : 0;
    case SW_GPU_ACT_SILU:
        return x / (1 + expf(-x));
    case SW_GPU_ACT_TANH:
        return tanhf(x);
    case SW_GPU_ACT_SIGMOID:
        return 1 / (1 + expf(-x));
    case SW_GPU_ACT_QUICK_GELU:
        return x / (1 + expf(-1.702f * x));
    default:
        return x;
    }
}

/* d act(x) / dx */
SW_DEVICE float activate_slope(int act, float x)
{
    switch (act) {
    case SW_GPU_ACT_GELU: { /* Phi(x) + x phi(x) */
        const float cdf = 0.5f * (1 + erff(x * 0.70710678118654752440f));
        return cdf + x * (0.39894228040143267794f * expf(-0.5f * x * x));
    }
    case SW_GPU_ACT_GELU_TANH: {
        const float c = 0.79788456080286535588f, d = 0.044715f;
        const float t = tanhf(c * (x + d * x * x * x));
        const float inner_slope = c * (1 + 3 * d * x * x);
        return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * inner_slope;
    }
    case SW_GPU_ACT_RELU:
        return x > 0 ? 1 : 0;
    case SW_GPU_ACT_SILU: {
        const float s = 1 / (1 + expf(-x));
        return s * (1 + x * (1 - s));
    }
    case SW_GPU_ACT_TANH: {
        const float t = tanhf(x);
        return 1 - t * t;
    }
    case SW_GPU_ACT_SIGMOID: {
        const float s = 1 / (1 + expf(-x));
        return s * (1 - s);
    }
    case SW_GPU_ACT_QUICK_GELU: {
        const float s = 1 / (1 + expf(-1.702f * x));
        return s * (1 + 1.702f * x * (1 - s));
    }
    default:
        return 1;
    }
}
