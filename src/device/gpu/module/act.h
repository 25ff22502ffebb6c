// SPDX-License-Identifier: Apache-2.0
// act - activations and their slopes in fp32, as in cpu/ref_act.inc. act: enum sw_gpu_act.
#pragma once

#include "device/gpu/module/args_act.h"
#include "device/gpu/module/gpu_rt.h"

#define LAPLACE_MEAN 0.707107f
#define LAPLACE_STD 0.282095f

SW_DEVICE float gelu(float x)
{
    return 0.5f * x * (1 + erff(x * 0.70710678118654752440f));
}

/* tanh(log(1 + e^x)) = n / (n + 2) with n = e^x (e^x + 2); 1 long before e^x is infinite. */
SW_DEVICE float mish_gate(float x)
{
    const float e = expf(x < 20 ? x : 20), n = e * (e + 2);
    return n / (n + 2);
}

SW_DEVICE float activate(int act, float x)
{
    switch (act) {
    case SW_GPU_ACT_GELU:
        return gelu(x);
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
    case SW_GPU_ACT_GELU_10:
        return x > 10 ? 10 : gelu(x);
    case SW_GPU_ACT_RELU6:
        return x > 6 ? 6 : x < 0 ? 0 : x;
    case SW_GPU_ACT_RELU2:
        return x < 0 ? 0 : x * x;
    case SW_GPU_ACT_LEAKY_RELU:
        return x > 0 ? x : 0.01f * x;
    case SW_GPU_ACT_HARDSWISH:
        return x > 3 ? x : x < -3 ? 0 : x * (x + 3) / 6;
    case SW_GPU_ACT_MISH:
        return x * mish_gate(x);
    case SW_GPU_ACT_LAPLACE:
        return 0.5f * (1 + erff((x - LAPLACE_MEAN) * (0.70710678118654752440f / LAPLACE_STD)));
    default:
        return x;
    }
}

SW_DEVICE float normal_density(float x)
{
    return 0.39894228040143267794f * expf(-0.5f * x * x);
}

/* Phi(x) + x phi(x) */
SW_DEVICE float gelu_slope(float x)
{
    return 0.5f * (1 + erff(x * 0.70710678118654752440f)) + x * normal_density(x);
}

SW_DEVICE float gelu_tanh_slope(float x)
{
    const float c = 0.79788456080286535588f, d = 0.044715f;
    const float t = tanhf(c * (x + d * x * x * x));
    const float inner_slope = c * (1 + 3 * d * x * x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * inner_slope;
}

/* Slope of x sigmoid(b x). */
SW_DEVICE float swish_slope(float b, float x)
{
    const float s = 1 / (1 + expf(-b * x));
    return s * (1 + b * x * (1 - s));
}

SW_DEVICE float mish_slope(float x)
{
    const float t = mish_gate(x), s = 1 / (1 + expf(-x));
    return t + x * s * (1 - t * t);
}

/* d act(x) / dx */
SW_DEVICE float activate_slope(int act, float x)
{
    switch (act) {
    case SW_GPU_ACT_GELU:
        return gelu_slope(x);
    case SW_GPU_ACT_GELU_TANH:
        return gelu_tanh_slope(x);
    case SW_GPU_ACT_RELU:
        return x > 0 ? 1 : 0;
    case SW_GPU_ACT_SILU:
        return swish_slope(1, x);
    case SW_GPU_ACT_TANH: {
        const float t = tanhf(x);
        return 1 - t * t;
    }
    case SW_GPU_ACT_SIGMOID: {
        const float s = 1 / (1 + expf(-x));
        return s * (1 - s);
    }
    case SW_GPU_ACT_QUICK_GELU:
        return swish_slope(1.702f, x);
    case SW_GPU_ACT_GELU_10:
        return x > 10 ? 0 : gelu_slope(x);
    case SW_GPU_ACT_RELU6:
        return x > 0 && x < 6 ? 1 : 0;
    case SW_GPU_ACT_RELU2:
        return x > 0 ? 2 * x : 0;
    case SW_GPU_ACT_LEAKY_RELU:
        return x > 0 ? 1 : 0.01f;
    case SW_GPU_ACT_HARDSWISH:
        return x > 3 ? 1 : x < -3 ? 0 : x / 3 + 0.5f;
    case SW_GPU_ACT_MISH:
        return mish_slope(x);
    case SW_GPU_ACT_LAPLACE:
        return normal_density((x - LAPLACE_MEAN) / LAPLACE_STD) / LAPLACE_STD;
    default:
        return 1;
    }
}
