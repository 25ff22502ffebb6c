// SPDX-License-Identifier: Apache-2.0
// Scalars around the loss, by one thread.
#include "device/gpu/module/registry.h"

enum { THREADS = 64 };

SW_KERNEL(THREADS) void seed(struct gpu_seed_args args)
{
    if (!skipped(args.skip) && thread_index() == 0) {
        store_any(args.y, args.out_type, 0, (float)*args.scalar);
    }
}

SW_KERNEL(THREADS) void loss_mean(struct gpu_loss_mean_args args)
{
    if (!skipped(args.skip) && thread_index() == 0) {
        *args.y = *args.count > 0 ? *args.x / *args.count : 0;
    }
}

SW_KERNEL(THREADS) void loss_mean_grad(struct gpu_loss_mean_args args)
{
    if (!skipped(args.skip) && thread_index() == 0) {
        *args.y = args.weight != 0  ? *args.x * args.weight
                  : *args.count > 0 ? *args.x / *args.count
                                    : 0;
    }
}

static const struct sw_gpu_kernel rows[] = {SW_PLAIN(seed, THREADS), SW_PLAIN(loss_mean, THREADS),
                                            SW_PLAIN(loss_mean_grad, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_scalar = {rows, SW_ROWS(rows)};
