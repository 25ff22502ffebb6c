// SPDX-License-Identifier: Apache-2.0
// Sums over ranks, in rank order.
#include "device/gpu/module/registry.h"

enum { THREADS = 256 };

template <typename T> SW_KERNEL(THREADS) void add_slices(struct gpu_add_slices_args args)
{
    const T *slices = (const T *)args.slices;
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        float sum = args.fresh ? load(slices, i) : args.acc[i];
        for (int64_t k = args.fresh ? 1 : 0; k < args.n_slices; k++) {
            sum += load(slices, k * args.n + i);
        }
        args.acc[i] = sum;
        if (args.rounded) {
            store((T *)args.rounded, i, sum);
        }
    }
}

SW_KERNEL(THREADS) void add_words(struct gpu_add_words_args args)
{
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        uint64_t sum = 0; /* unsigned: words of a skipped update may hold anything */
        for (int64_t k = 0; k < args.n_sets; k++) {
            sum += (uint64_t)args.words[k * args.n + i];
        }
        args.out[i] = (int64_t)sum;
    }
}

static const struct sw_gpu_kernel rows[] = {SW_FLOATS(add_slices, THREADS),
                                            SW_PLAIN(add_words, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_sums = {rows, SW_ROWS(rows)};
