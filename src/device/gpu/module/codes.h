// SPDX-License-Identifier: Apache-2.0
// codes - 8-bit codes with the codes and scales of tensor/codes.c. A warp has a run of them, and
// each lane CODES_EACH neighbours.
#pragma once

#include "device/gpu/module/run.h"

enum { CODES_EACH = GPU_CODE_RUN / SW_WARP };
enum { SIGNED_CODES, UNSIGNED_CODES, KINDS_OF_CODES };

/* Decoded values, and the sizes above which step k + 1 is nearer than step k. Both kinds have the
 * same table length, so that one search serves both. */
struct code_tables {
    float step[KINDS_OF_CODES][GPU_UNSIGNED_STEPS];
    float middle[KINDS_OF_CODES][GPU_UNSIGNED_STEPS];
};

/* Called by all threads of the block. An unsigned value above 0 never becomes 0. */
SW_DEVICE void fill_tables(const struct gpu_update_coded_args &args, struct code_tables *tables)
{
    for (int k = thread_index(); k < GPU_UNSIGNED_STEPS; k += block_threads()) {
        const bool is_step = k < GPU_SIGNED_STEPS, has_next = k + 1 < GPU_SIGNED_STEPS;
        tables->step[SIGNED_CODES][k] = is_step ? args.signed_steps[k] : 1;
        tables->middle[SIGNED_CODES][k] =
            has_next ? 0.5f * (args.signed_steps[k] + args.signed_steps[k + 1]) : INFINITY;
        tables->step[UNSIGNED_CODES][k] = args.unsigned_steps[k];
        tables->middle[UNSIGNED_CODES][k] =
            k == 0 ? 0
            : k + 1 < GPU_UNSIGNED_STEPS
                ? 0.5f * (args.unsigned_steps[k] + args.unsigned_steps[k + 1])
                : INFINITY;
    }
    sync_block();
}

/* The step nearest to a size; the smaller one of two equally near. */
SW_DEVICE int nearest_step(const float *middle, float size)
{
    int step = 0;
    SW_UNROLL
    for (int half = GPU_UNSIGNED_STEPS / 2; half > 0; half /= 2) {
        step += size > middle[step + half - 1] ? half : 0;
    }
    return step;
}

SW_DEVICE float value_of_code(const struct code_tables &tables, int kind, int code)
{
    if (kind == UNSIGNED_CODES) {
        return tables.step[kind][code];
    }
    return code < GPU_SIGNED_ZERO ? -tables.step[kind][GPU_SIGNED_ZERO - code]
                                  : tables.step[kind][code - GPU_SIGNED_ZERO];
}

SW_DEVICE uint8_t code_of(const struct code_tables &tables, int kind, float x)
{
    const int step = nearest_step(tables.middle[kind], fabsf(x));
    if (kind == UNSIGNED_CODES) {
        return (uint8_t)step;
    }
    const bool is_least = x < 0 && step == GPU_SIGNED_STEPS - 1; /* -1 has no code */
    return (uint8_t)(x < 0 ? GPU_SIGNED_ZERO - step + is_least : GPU_SIGNED_ZERO + step);
}

/* Loads the first n codes of this lane. */
SW_DEVICE void load_codes(const struct code_tables &tables, int kind, const uint8_t *codes,
                          float scale, int n, float (&x)[CODES_EACH])
{
    uint8_t raw[CODES_EACH];
    fetch_run(codes, n, raw);
    SW_UNROLL
    for (int e = 0; e < CODES_EACH; e++) {
        x[e] = e < n ? value_of_code(tables, kind, raw[e]) * scale : 0;
    }
}

/* The largest size over all lanes; NaN if a number is not finite. Sizes compare as their bits
 * do. */
SW_DEVICE float scale_of(const float (&x)[CODES_EACH])
{
    uint32_t top = 0;
    SW_UNROLL
    for (int e = 0; e < CODES_EACH; e++) {
        const uint32_t size = bits_of(x[e]) & 0x7fffffffu;
        top = size > top ? size : top;
    }
    SW_UNROLL
    for (int mask = SW_WARP / 2; mask > 0; mask /= 2) {
        const uint32_t other = shuffle_xor(top, mask);
        top = other > top ? other : top;
    }
    return of_bits(top < 0x7f800000u ? top : 0x7fc00000u);
}

/* x must be 0 after this lane's n numbers. Returns the scale. */
SW_DEVICE float store_codes(const struct code_tables &tables, int kind, int n,
                            const float (&x)[CODES_EACH], uint8_t *codes)
{
    const float scale = scale_of(x);
    const bool is_scaled = scale > 0;
    uint8_t raw[CODES_EACH];
    SW_UNROLL
    for (int e = 0; e < CODES_EACH; e++) {
        raw[e] = code_of(tables, kind, is_scaled ? x[e] / scale : 0);
    }
    put_run(codes, n, raw);
    return scale;
}
