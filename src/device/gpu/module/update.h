// SPDX-License-Identifier: Apache-2.0
// update - the arithmetic of the update rules, with the CPU's bits (cpu/ref_update.inc has the
// formulas): each step is one correctly rounded fp32 operation; constants are computed in double
// and rounded.
#pragma once

#include "device/gpu/module/philox.h"
#include "device/gpu/module/streams.h"

struct rule {
    int kind;
    bool first_step, decoupled, nesterov, maximize, has_decay, eps_inside_sqrt;
    float factor, decay, weight_decay, beta1, one_minus_beta1, beta2, one_minus_beta2, correction2;
    float eps, step_size, one_minus_dampening, initial;
};

SW_DEVICE double power(double base, int64_t n)
{
    double result = 1;
    for (; n > 0; n >>= 1) {
        result = n & 1 ? result * base : result;
        base = base * base;
    }
    return result;
}

/* As sw_update_rates_of (graph/scalars.c) computes them. */
struct step_rates {
    double lr, beta1, beta2, correction1, correction2, step_size;
};
SW_DEVICE struct step_rates step_rates_of(const struct gpu_rule &attrs,
                                          const struct gpu_rates &rates)
{
    const double t = *rates.step;
    struct step_rates r;
    r.lr = attrs.is_scaled ? *rates.lr * attrs.lr_scale : *rates.lr;
    r.beta1 = attrs.has_betas ? attrs.beta1 : *rates.beta1;
    r.beta2 = attrs.has_betas ? attrs.beta2 : *rates.beta2;
    r.correction1 = *rates.correction1;
    r.correction2 = *rates.correction2;
    if (attrs.has_betas) {
        r.correction1 = 1 - power(r.beta1, (int64_t)t);
        r.correction2 = 1 - power(r.beta2, (int64_t)t);
    }
    r.step_size = r.lr;
    if (attrs.kind == GPU_RULE_ADAGRAD) {
        r.step_size = r.lr / (1 + (t - 1) * attrs.lr_decay);
    } else if (attrs.kind == GPU_RULE_ADAM && attrs.bias_correction) {
        r.step_size = r.lr / r.correction1;
    } else if (attrs.bias_correction) {
        r.step_size = r.lr * sqrt(r.correction2) / r.correction1;
    }
    return r;
}

SW_DEVICE struct rule rule_of(const struct gpu_rule &attrs, const struct gpu_rates &rates)
{
    const struct step_rates r = step_rates_of(attrs, rates);
    const bool corrected = attrs.kind == GPU_RULE_ADAM && attrs.bias_correction;
    struct rule u;
    u.kind = attrs.kind;
    u.first_step = *rates.step == 1;
    u.decoupled = attrs.decoupled;
    u.nesterov = attrs.nesterov;
    u.maximize = attrs.maximize;
    u.has_decay = attrs.weight_decay != 0;
    u.eps_inside_sqrt = attrs.eps_inside_sqrt;
    u.factor = (float)(*rates.grad_factor * *rates.clip);
    u.decay = (float)(1 - r.lr * attrs.weight_decay);
    u.weight_decay = (float)attrs.weight_decay;
    u.beta1 = (float)r.beta1;
    u.one_minus_beta1 = (float)(1 - r.beta1);
    u.beta2 = (float)r.beta2;
    u.one_minus_beta2 = (float)(1 - r.beta2);
    u.correction2 = (float)(corrected ? r.correction2 : 1);
    u.eps = (float)attrs.eps;
    u.step_size = (float)r.step_size;
    u.one_minus_dampening = (float)(1 - attrs.dampening);
    u.initial = (float)attrs.initial;
    return u;
}

/* ---- moments: fp32, or bf16 rounded with random bits (see cpu/cpu.h) ---- */

template <int N>
SW_DEVICE void load_moment(const struct gpu_param &p, int k, int64_t i, int n, float (&x)[N])
{
    if (p.half) {
        load_run((const bf16 *)p.moment[k] + i, n, x);
    } else {
        load_run((const float *)p.moment[k] + i, n, x);
    }
}

SW_DEVICE uint16_t bf16_by(float x, uint32_t noise)
{
    const uint32_t bits = bits_of(x);
    return (uint16_t)(x != x ? (bits >> 16 & 0x8000u) | 0x7fc0u : (bits + noise) >> 16);
}

/* Stores both moments of elements i .. i+n-1. */
template <int N>
SW_DEVICE void store_half_moments(const struct gpu_param &p, const struct gpu_rates &rates,
                                  int64_t i, int n, const float (&m)[N], const float (&v)[N])
{
    const uint32_t k0 = (uint32_t)*rates.seed_lo ^ (uint32_t)p.draw;
    const uint32_t k1 = (uint32_t)*rates.seed_hi ^ (uint32_t)(p.draw >> 32);
    const uint64_t step = (uint64_t)*rates.step;
    uint64_t block = (p.origin + (uint64_t)i) / 4;
    struct philox_block bits = philox(k0, k1, block, step);
    bf16 half_m[N], half_v[N];
    SW_UNROLL
    for (int e = 0; e < N; e++) {
        const uint64_t at = p.origin + (uint64_t)(i + e);
        if (at / 4 != block) {
            block = at / 4;
            bits = philox(k0, k1, block, step);
        }
        const uint32_t word = bits.words[at % 4];
        half_m[e].bits = bf16_by(m[e], word & 0xffff);
        half_v[e].bits = bf16_by(v[e], word >> 16);
    }
    put_run((bf16 *)p.moment[0] + i, n, half_m);
    put_run((bf16 *)p.moment[1] + i, n, half_v);
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

SW_DEVICE float adagrad(const struct rule &u, float w, float g, float *sum)
{
    if (u.has_decay) {
        g = g + u.weight_decay * w;
    }
    *sum = g * g + (u.first_step ? u.initial : *sum);
    return w - u.step_size * (g / (sqrtf(*sum) + u.eps));
}

SW_DEVICE float lion(const struct rule &u, float w, float g, float *m)
{
    const float c = u.beta1 * *m + u.one_minus_beta1 * g;
    if (u.has_decay) {
        w = w * u.decay;
    }
    *m = u.beta2 * *m + u.one_minus_beta2 * g;
    return w - (c != c ? c : of_bits((bits_of(c) & 0x80000000u) ^ bits_of(u.step_size)));
}

SW_DEVICE float rmsprop(const struct rule &u, float w, float g, bool has_buffer, float *square,
                        float *buffer)
{
    if (u.has_decay) {
        g = g + u.weight_decay * w;
    }
    *square = u.beta2 * *square + u.one_minus_beta2 * g * g;
    const float step = g / (sqrtf(*square) + u.eps);
    if (!has_buffer) {
        return w - u.step_size * step;
    }
    *buffer = u.beta1 * *buffer + step;
    return w - u.step_size * *buffer;
}

SW_DEVICE float sparse_adam(const struct rule &u, float w, float g, float *m, float *v)
{
    if (g == 0) {
        return w;
    }
    move_moments(u, g, m, v);
    return w - u.step_size * (*m / (sqrtf(*v) + u.eps));
}

SW_DEVICE float moved(const struct rule &u, float w, float g, bool has_m, bool has_v, float *m,
                      float *v)
{
    switch (u.kind) {
    case GPU_RULE_ADAM:
        return adam(u, w, g, m, v);
    case GPU_RULE_ADAGRAD:
        return adagrad(u, w, g, m);
    case GPU_RULE_LION:
        return lion(u, w, g, m);
    case GPU_RULE_SPARSE_ADAM:
        return sparse_adam(u, w, g, m, v);
    case GPU_RULE_RMSPROP:
        return rmsprop(u, w, g, has_v, m, v);
    default:
        return sgd(u, w, g, has_m, m);
    }
}

SW_DEVICE float lamb_direction(const struct rule &u, float w, float m, float v)
{
    const float root = u.eps_inside_sqrt ? sqrtf(v + u.eps) : sqrtf(v) + u.eps;
    const float direction = m / root;
    return u.has_decay ? direction + u.weight_decay * w : direction;
}
