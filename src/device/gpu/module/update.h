// SPDX-License-Identifier: Apache-2.0
// update - the arithmetic of update rules, with the bits of the CPU's (cpu/ref_update.inc has the
// formulas): each step one correctly rounded fp32 operation, the constants in double and rounded.
#pragma once

#include "device/gpu/module/streams.h"

struct rule {
    bool is_adam, first_step, decoupled, nesterov, maximize, has_decay, eps_inside_sqrt;
    float factor, decay, weight_decay, beta1, one_minus_beta1, beta2, one_minus_beta2, correction2;
    float eps, step_size, one_minus_dampening;
};

SW_DEVICE struct rule rule_of(const struct gpu_rule &attrs, const struct gpu_rates &rates)
{
    const double lr = *rates.lr, b1 = *rates.beta1, b2 = *rates.beta2;
    const bool corrected = attrs.kind == GPU_RULE_ADAM && attrs.bias_correction;
    struct rule u;
    u.is_adam = attrs.kind == GPU_RULE_ADAM;
    u.first_step = *rates.step == 1;
    u.decoupled = attrs.decoupled;
    u.nesterov = attrs.nesterov;
    u.maximize = attrs.maximize;
    u.has_decay = attrs.weight_decay != 0;
    u.eps_inside_sqrt = attrs.eps_inside_sqrt;
    u.factor = (float)(*rates.grad_factor * *rates.clip);
    u.decay = (float)(1 - lr * attrs.weight_decay);
    u.weight_decay = (float)attrs.weight_decay;
    u.beta1 = (float)b1;
    u.one_minus_beta1 = (float)(1 - b1);
    u.beta2 = (float)b2;
    u.one_minus_beta2 = (float)(1 - b2);
    u.correction2 = (float)(corrected ? *rates.correction2 : 1);
    u.eps = (float)attrs.eps;
    u.step_size = (float)(corrected ? lr / *rates.correction1 : lr);
    u.one_minus_dampening = (float)(1 - attrs.dampening);
    return u;
}

/* ---- the master: the parameter (f32), joined from it and its low half (bf16), fp32 (f16) ---- */

template <int N>
SW_DEVICE void load_master(const struct gpu_param &p, const float *param, int64_t i, int n,
                           float (&w)[N])
{
    (void)p;
    load_run(param + i, n, w);
}
template <int N>
SW_DEVICE void load_master(const struct gpu_param &p, const f16 *param, int64_t i, int n,
                           float (&w)[N])
{
    (void)param;
    load_run((const float *)p.master + i, n, w);
}
template <int N>
SW_DEVICE void load_master(const struct gpu_param &p, const bf16 *param, int64_t i, int n,
                           float (&w)[N])
{
    bf16 high[N];
    int16_t low[N];
    fetch_run(param + i, n, high);
    fetch_run((const int16_t *)p.master + i, n, low);
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        w[e] = of_bits(((uint32_t)high[e].bits << 16) + (uint32_t)(int32_t)low[e]);
    }
}

template <int N>
SW_DEVICE void store_master(const struct gpu_param &p, float *param, int64_t i, int n,
                            const float (&w)[N])
{
    (void)p;
    store_run(param + i, n, w);
}
template <int N>
SW_DEVICE void store_master(const struct gpu_param &p, f16 *param, int64_t i, int n,
                            const float (&w)[N])
{
    store_run((float *)p.master + i, n, w);
    store_run(param + i, n, w);
}
template <int N>
SW_DEVICE void store_master(const struct gpu_param &p, bf16 *param, int64_t i, int n,
                            const float (&w)[N])
{
    bf16 high[N];
    int16_t low[N];
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        const uint32_t bits =
            w[e] != w[e] ? (bits_of(w[e]) & 0x80000000u) | 0x7fc00000u : bits_of(w[e]);
        const uint32_t rounded = (bits + 0x8000u) >> 16;
        high[e].bits = (uint16_t)rounded;
        low[e] = (int16_t)(uint16_t)(bits - (rounded << 16));
    }
    put_run(param + i, n, high);
    put_run((int16_t *)p.master + i, n, low);
}

/* ---- the rules ---- */

SW_DEVICE float gradient(const struct rule &u, float sum)
{
    return u.maximize ? -(sum * u.factor) : sum * u.factor;
}

SW_DEVICE void move_moments(const struct rule &u, float g, float *m, float *v)
{
    *m = u.beta1 * *m + u.one_minus_beta1 * g;
    *v = u.beta2 * *v + u.one_minus_beta2 * g * g;
}

SW_DEVICE float adam(const struct rule &u, float w, float g, float *m, float *v)
{
    if (u.has_decay) {
        if (u.decoupled) {
            w = w * u.decay;
        } else {
            g = g + u.weight_decay * w;
        }
    }
    move_moments(u, g, m, v);
    return w - u.step_size * (*m / (sqrtf(*v / u.correction2) + u.eps));
}

SW_DEVICE float sgd(const struct rule &u, float w, float g, bool has_buffer, float *buffer)
{
    if (u.has_decay) {
        g = g + u.weight_decay * w;
    }
    if (has_buffer) {
        *buffer = u.first_step ? g : u.beta1 * *buffer + u.one_minus_dampening * g;
        g = u.nesterov ? g + u.beta1 * *buffer : *buffer;
    }
    return w - u.step_size * g;
}

SW_DEVICE float lamb_direction(const struct rule &u, float w, float m, float v)
{
    const float root = u.eps_inside_sqrt ? sqrtf(v + u.eps) : sqrtf(v) + u.eps;
    const float direction = m / root;
    return u.has_decay ? direction + u.weight_decay * w : direction;
}
