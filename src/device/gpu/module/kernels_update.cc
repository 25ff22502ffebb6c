// SPDX-License-Identifier: Apache-2.0
// Sums of gradients and steps of parameters. A thread has four elements at a time, so that states of
// fp32 come by loads of 16 bytes.
#include "device/gpu/module/registry.h"
#include "device/gpu/module/update.h"

enum { THREADS = 256, PART = 4 };

/* ---- sums over micro-batches ---- */

template <typename T> SW_KERNEL(THREADS) void accumulate(struct gpu_accumulate_args args)
{
    if (args.skip && *args.skip != 0) {
        return;
    }
    const bool first = *args.first != 0;
    for (int64_t i = first_element() * PART; i < args.n; i += grid_threads() * PART) {
        const int n = args.n - i < PART ? (int)(args.n - i) : (int)PART;
        float g[PART], acc[PART];
        load_run((const T *)args.g + i, n, g);
        if (!first) {
            load_run(args.acc + i, n, acc);
            SW_UNROLL
            for (int e = 0; e < PART; e++) {
                g[e] = acc[e] + g[e];
            }
        }
        store_run(args.acc + i, n, g);
    }
}

SW_KERNEL(THREADS) void accumulate_clear(struct gpu_accumulate_clear_args args)
{
    if ((args.skip && *args.skip != 0) || *args.first == 0) {
        return;
    }
    const float zeros[PART] = {};
    for (int64_t i = first_element() * PART; i < args.n; i += grid_threads() * PART) {
        store_run(args.acc + i, args.n - i < PART ? (int)(args.n - i) : (int)PART, zeros);
    }
}

template <typename T> SW_KERNEL(THREADS) void accumulate_rows(struct gpu_accumulate_rows_args args)
{
    if (args.skip && *args.skip != 0) {
        return;
    }
    for (int64_t i_row = block_x(); i_row < args.n_rows; i_row += grid_x()) {
        const int64_t row = args.index[i_row];
        if (row < 0 || row >= args.acc_rows) {
            continue;
        }
        float *acc = args.acc + row * args.width;
        for (int64_t c = thread_index(); c < args.width; c += THREADS) {
            acc[c] = acc[c] + load((const T *)args.g, i_row * args.width + c);
        }
    }
}

/* ---- all rules but LAMB ---- */

/* An fp16 working copy is all written by its update: of one that is skipped it is its master,
 * rounded. */
SW_DEVICE void leave_param(const struct gpu_update_args &args, f16 *param)
{
    for (int64_t i = first_element(); i < args.n; i += grid_threads()) {
        store(param, i, ((const float *)args.param.master)[i]);
    }
}
template <typename T> SW_DEVICE void leave_param(const struct gpu_update_args &, T *)
{
}

template <typename T> SW_KERNEL(THREADS) void update(struct gpu_update_args args)
{
    T *param = (T *)args.param.param;
    if (args.skip && *args.skip != 0) {
        leave_param(args, param);
        return;
    }
    const struct rule u = rule_of(args.rule, args.rates);
    const bool has_first = args.param.moment[0] != nullptr;
    const bool has_second = args.param.moment[1] != nullptr;
    for (int64_t i = first_element() * PART; i < args.n; i += grid_threads() * PART) {
        const int n = args.n - i < PART ? (int)(args.n - i) : (int)PART;
        float g[PART], w[PART], m[PART] = {}, v[PART] = {};
        unsigned bad;
        load_master(args.param, param, i, n, w);
        if (has_first && (u.kind != GPU_RULE_SGD || !u.first_step)) {
            load_moment(args.param, 0, i, n, m);
        }
        if (has_second) {
            load_moment(args.param, 1, i, n, v);
        }
        add_streams(args.streams, i, n, g, &bad);
        SW_UNROLL
        for (int e = 0; e < PART; e++) {
            w[e] = moved(u, w[e], gradient(u, g[e]), has_first, has_second, &m[e], &v[e]);
        }
        store_master(args.param, param, i, n, w);
        if (args.param.half) {
            store_half_moments(args.param, args.rates, i, n, m, v);
            continue;
        }
        if (has_first) {
            store_run((float *)args.param.moment[0] + i, n, m);
        }
        if (has_second) {
            store_run((float *)args.param.moment[1] + i, n, v);
        }
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_FLOATS(accumulate, THREADS), SW_PLAIN(accumulate_clear, THREADS),
    SW_FLOATS(accumulate_rows, THREADS), SW_FLOATS(update, THREADS)};
extern const struct sw_gpu_kernels sw_gpu_kernels_update;
const struct sw_gpu_kernels sw_gpu_kernels_update = {rows, SW_ROWS(rows)};
