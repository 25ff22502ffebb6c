// SPDX-License-Identifier: Apache-2.0
// One output element from the elements at its place; a thread goes over the elements in steps of the
// grid.
#include "device/gpu/module/registry.h"

enum { THREADS = 256 };

template <typename T> SW_KERNEL(THREADS) void add(struct gpu_add_args args)
{
    if (args.skip && *args.skip != 0) {
        return;
    }
    const T *a = (const T *)args.a, *b = (const T *)args.b;
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        store((T *)args.y, i, load(a, i) + load(b, i % args.n_b));
    }
}

template <typename T> SW_KERNEL(THREADS) void scale(struct gpu_scale_args args)
{
    if (args.skip && *args.skip != 0) {
        return;
    }
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        store((T *)args.y, i, args.factor * load((const T *)args.x, i));
    }
}

static const struct sw_gpu_kernel rows[] = {SW_FLOATS(add, THREADS), SW_FLOATS(scale, THREADS)};
extern const struct sw_gpu_kernels sw_gpu_kernels_elementwise;
const struct sw_gpu_kernels sw_gpu_kernels_elementwise = {rows, SW_ROWS(rows)};
