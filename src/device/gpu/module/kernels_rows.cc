// SPDX-License-Identifier: Apache-2.0
// Integers made from ids; rows zeroed by a mask, and the mean of the others; concatenation of
// tensors. Sums go over the tokens of a sample in order.
#include "device/gpu/module/pack.h"
#include "device/gpu/module/registry.h"
#include "device/gpu/module/team.h"

enum { THREADS = 256, NO_LABEL = -100 };

SW_KERNEL(THREADS) void not_equal(struct gpu_integers_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        args.y[i] = args.x[i] != args.value;
    }
}

/* A row's last id that is neither padding nor ignored, which follow the others; else padding. */
SW_DEVICE int64_t last_of_row(const struct gpu_integers_args &args, int64_t at)
{
    int64_t n = 0;
    for (int64_t t = 0; t < args.tokens; t++) {
        n += args.x[at + t] != NO_LABEL && args.x[at + t] != args.pad;
    }
    return n > 0 && args.x[at + n - 1] != NO_LABEL ? args.x[at + n - 1] : args.pad;
}

SW_KERNEL(THREADS) void shift_right(struct gpu_integers_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        const bool first = i - quotient(i, args.tokens) * args.tokens == 0;
        const int64_t before = !first           ? args.x[i - 1]
                               : args.value < 0 ? last_of_row(args, i)
                                                : args.value;
        args.y[i] = (int32_t)(!first && before == NO_LABEL ? args.pad : before);
    }
}

SW_KERNEL(THREADS) void trim(struct gpu_integers_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        const int64_t row = quotient(i, args.tokens);
        args.y[i] = i - row * args.tokens < args.lengths[row] ? args.x[i] : -1;
    }
}

template <typename T> SW_KERNEL(THREADS) void mask_rows(struct gpu_mask_rows_args args)
{
    constexpr int N = pack_elems<T>;
    if (skipped(args.skip)) {
        return;
    }
    const T *x = (const T *)args.x;
    const bool wide = aligned(x) && aligned(args.y) && args.width % N == 0;
    const int step = wide ? N : 1;
    for (int64_t i = first_element() * step; i < args.n_rows * args.width;
         i += grid_threads() * step) {
        float values[N];
        const bool there = args.mask[quotient(i, args.width)] != 0;
        load_pack<N>(x, there ? i : 0, there ? step : 0, wide, values);
        store_pack_any<N>(args.y, args.out_type, i, step, wide, values);
    }
}

/* Copies a unit of 1 to 16 bytes. */
SW_DEVICE void copy_unit(void *to, int64_t i, const void *from, int64_t k, int unit)
{
    if (unit == 16) {
        store_words((char *)to + i * 16, load_words<16>((const char *)from + k * 16));
    } else if (unit == 4) {
        ((uint32_t *)to)[i] = ((const uint32_t *)from)[k];
    } else {
        ((uint16_t *)to)[i] = ((const uint16_t *)from)[k];
    }
}

SW_KERNEL(THREADS) void place_run(struct gpu_place_run_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        const int64_t outer = quotient(i, args.run);
        copy_unit(args.y, outer * args.whole + args.start + (i - outer * args.run), args.x, i,
                  args.unit);
    }
}

/* An element of the mean [batch, width], and the mask of its sample. */
struct mean_element {
    int64_t sample, column;
    const int32_t *mask;
};
SW_DEVICE struct mean_element mean_element_of(const struct gpu_masked_mean_args &args, int64_t i)
{
    const int64_t sample = quotient(i, args.width);
    return {sample, i - sample * args.width, args.mask + sample * args.tokens};
}

SW_DEVICE int64_t count_rows(const int32_t *mask, int64_t tokens)
{
    int64_t n = 0;
    for (int64_t t = 0; t < tokens; t++) {
        n += mask[t] != 0;
    }
    return n;
}

template <typename T> SW_KERNEL(THREADS) void masked_mean(struct gpu_masked_mean_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t i = first_element(); i < args.batch * args.width; i += grid_threads()) {
        const struct mean_element at = mean_element_of(args, i);
        const T *x = (const T *)args.x + at.sample * args.tokens * args.width + at.column;
        float sum = 0;
        int64_t n = 0;
        for (int64_t t = 0; t < args.tokens; t++) {
            if (at.mask[t] != 0) {
                sum += load(x, t * args.width);
                n++;
            }
        }
        store_any(args.y, args.out_type, i, n > 0 ? sum / (float)n : 0);
    }
}

template <typename T> SW_KERNEL(THREADS) void masked_mean_grad(struct gpu_masked_mean_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t i = first_element(); i < args.batch * args.width; i += grid_threads()) {
        const struct mean_element at = mean_element_of(args, i);
        const int64_t n = count_rows(at.mask, args.tokens);
        const float dy = load((const T *)args.x, i) / (float)n;
        for (int64_t t = 0; t < args.tokens; t++) {
            store_any(args.y, args.out_type, (at.sample * args.tokens + t) * args.width + at.column,
                      at.mask[t] != 0 ? dy : 0);
        }
    }
}

SW_DEVICE float decoded_scale(const struct gpu_dequantize_args &args, int64_t i)
{
    return args.nested ? args.nested[args.scale_codes[i]] *
                                 args.nested[GPU_NESTED_SCALES + i / GPU_NESTED_RUN] +
                             args.nested[GPU_NESTED_OFFSET]
                       : args.scales[i];
}

SW_DEVICE float decoded(const struct gpu_dequantize_args &args, int64_t i)
{
    const float scale = decoded_scale(args, quotient(i, args.block));
    const int two = args.int8 ? 0 : args.codes[i / 2];
    const float x = args.int8 ? (float)(int8_t)args.codes[i] * scale * 7.874015718698502e-3f
                              : args.levels[i % 2 == 0 ? two >> 4 : two & 15] * scale;
    return args.rounds == SW_GPU_BF16  ? rounded<bf16>(x)
           : args.rounds == SW_GPU_F16 ? rounded<f16>(x)
                                       : x;
}

template <typename T> SW_KERNEL(THREADS) void dequantize(struct gpu_dequantize_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        const int64_t run = quotient(i, args.run);
        store((T *)args.y, i, decoded(args, args.first + run * args.stride + i - run * args.run));
    }
}

/* A block has a row. */
template <typename T> SW_KERNEL(THREADS) void inverse_norms(struct gpu_inverse_norms_args args)
{
    SW_SHARED(struct team_scratch<THREADS>, scratch);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t row = block_x();
    double squares = 0;
    for (int64_t i = thread_index(); i < args.width; i += THREADS) {
        float x = load((const T *)args.w, args.in_out ? i * args.rows + row : row * args.width + i);
        for (int64_t k = 0; k < args.rank; k++) {
            x += args.factor * load((const T *)args.b, row * args.rank + k) *
                 load((const T *)args.a, k * args.width + i);
        }
        squares += (double)x * (double)x;
    }
    const float sum = team_sum((float)squares, THREADS, scratch);
    if (thread_index() == 0) {
        store((T *)args.y, row, 1 / sqrtf(sum));
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_FLOATS(inverse_norms, THREADS),
    SW_FLOATS(dequantize, THREADS),
    SW_PLAIN(trim, THREADS),
    SW_PLAIN(not_equal, THREADS),
    SW_PLAIN(shift_right, THREADS),
    SW_FLOATS(mask_rows, THREADS),
    SW_PLAIN(place_run, THREADS),
    SW_FLOATS(masked_mean, THREADS),
    SW_FLOATS(masked_mean_grad, THREADS),
};
const struct sw_gpu_kernels sw_gpu_kernels_rows = {rows, SW_ROWS(rows)};
