// SPDX-License-Identifier: Apache-2.0
// Sums of gradients and steps of parameters. A thread takes four elements at a time, so that fp32
// states are loaded in 16 bytes.
#include "device/gpu/module/codes.h"
#include "device/gpu/module/registry.h"
#include "device/gpu/module/update.h"

enum { THREADS = GPU_UPDATE_THREADS, WARPS = THREADS / SW_WARP, PART = GPU_UPDATE_PART };

/* ---- sums over micro-batches ---- */

/* acc = g if first, else acc + g, for elements i .. i+n-1. */
SW_DEVICE void put_sum(float *acc, int64_t i, int n, bool first, float (&g)[PART])
{
    if (!first) {
        float before[PART];
        load_run(acc + i, n, before);
        SW_UNROLL
        for (int e = 0; e < PART; e++) {
            g[e] = before[e] + g[e];
        }
    }
    store_run(acc + i, n, g);
}

template <typename T> SW_KERNEL(THREADS) void accumulate(struct gpu_accumulate_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const bool first = args.first && *args.first != 0;
    for (int64_t i = first_element() * PART; i < args.n; i += grid_threads() * PART) {
        const int n = part_of(i, args.n);
        float g[PART];
        load_run((const T *)args.g + i, n, g);
        put_sum(args.acc, i, n, first, g);
    }
}

SW_KERNEL(THREADS) void accumulate_many(struct gpu_accumulate_many_args by_value)
{
    const struct gpu_accumulate_many_args &args = in_place(by_value);
    const struct gpu_accumulate_item &item = item_of_block(args.item, args.n);
    const int64_t i = ((block_x() - item.first_block) * THREADS + thread_index()) * PART;
    if (i >= item.n || skipped(args.skip)) {
        return;
    }
    const int n = part_of(i, item.n);
    float g[PART];
    load_run_any(item.g.x, item.g.type, i, n, g);
    put_sum(item.acc, i, n, !item.continues && *args.first != 0, g);
}

SW_KERNEL(THREADS) void accumulate_clear(struct gpu_accumulate_clear_args args)
{
    if (skipped(args.skip) || (args.first && *args.first == 0)) {
        return;
    }
    const float zeros[PART] = {};
    for (int64_t i = first_element() * PART; i < args.n; i += grid_threads() * PART) {
        store_run(args.acc + i, part_of(i, args.n), zeros);
    }
}

template <typename T> SW_KERNEL(THREADS) void accumulate_rows(struct gpu_accumulate_rows_args args)
{
    if (skipped(args.skip)) {
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

/* The update writes its fp16 working copy as a whole. A skipped update rounds it from its
 * master. */
SW_DEVICE void leave(const struct gpu_param &p, f16 *param, int64_t i, int n)
{
    for (int e = 0; e < n; e++) {
        store(param, i + e, ((const float *)p.master)[i + e]);
    }
}
template <typename T> SW_DEVICE void leave(const struct gpu_param &, T *, int64_t, int)
{
}

/* Updates elements i .. i+n-1 from the sums of their gradients. */
template <typename T>
SW_DEVICE void move(const struct gpu_param &p, const struct gpu_rates &rates, const struct rule &u,
                    int64_t i, int n, const float (&g)[PART])
{
    T *param = (T *)p.param;
    const bool has_first = p.moment[0] != nullptr, has_second = p.moment[1] != nullptr;
    float w[PART], m[PART] = {}, v[PART] = {};
    load_master(p, param, i, n, w);
    if (has_first && (u.kind != GPU_RULE_SGD || !u.first_step)) {
        load_moment(p, 0, i, n, m);
    }
    if (has_second) {
        load_moment(p, 1, i, n, v);
    }
    SW_UNROLL
    for (int e = 0; e < PART; e++) {
        w[e] = moved(u, w[e], gradient(u, g[e]), has_first, has_second, &m[e], &v[e]);
    }
    store_master(p, param, i, n, w);
    if (p.half) {
        store_half_moments(p, rates, i, n, m, v);
        return;
    }
    if (has_first) {
        store_run((float *)p.moment[0] + i, n, m);
    }
    if (has_second) {
        store_run((float *)p.moment[1] + i, n, v);
    }
}

template <typename T> SW_KERNEL(THREADS) void update(struct gpu_update_args by_value)
{
    const struct gpu_update_args &args = in_place(by_value);
    const bool skips = skipped(args.skip);
    const struct rule u = rule_of(args.rule, args.rates);
    for (int64_t i = first_element() * PART; i < args.n; i += grid_threads() * PART) {
        const int n = part_of(i, args.n);
        float g[PART];
        unsigned bad;
        if (skips) {
            leave(args.param, (T *)args.param.param, i, n);
            continue;
        }
        add_streams(args.streams, i, n, g, &bad);
        move<T>(args.param, args.rates, u, i, n, g);
    }
}

template <typename T> SW_KERNEL(THREADS) void update_many(struct gpu_update_many_args by_value)
{
    const struct gpu_update_many_args &args = in_place(by_value);
    const struct gpu_update_item &item = item_of_block(args.item, args.n);
    const int64_t i = ((block_x() - item.first_block) * THREADS + thread_index()) * PART;
    if (i >= item.n) {
        return;
    }
    const int n = part_of(i, item.n);
    if (skipped(args.skip)) {
        leave(item.param, (T *)item.param.param, i, n);
        return;
    }
    float g[PART];
    load_run_any(item.g.x, item.g.type, i, n, g);
    move<T>(item.param, args.rates, rule_of(args.rule, args.rates), i, n, g);
}

/* ---- 8-bit moments: a warp takes a run ---- */

template <typename T>
SW_DEVICE void move_run(const struct gpu_update_coded_args &args, const struct code_tables &tables,
                        const struct rule &u, int64_t i_run)
{
    const int64_t i = i_run * GPU_CODE_RUN + lane_index() * CODES_EACH, left = args.n_coded - i;
    const int n = left >= CODES_EACH ? (int)CODES_EACH : left > 0 ? (int)left : 0;
    uint8_t *m_codes = (uint8_t *)args.param.moment[0] + i;
    uint8_t *v_codes = (uint8_t *)args.param.moment[1] + i;
    T *param = (T *)args.param.param;
    float w[CODES_EACH], g[CODES_EACH], m[CODES_EACH], v[CODES_EACH];
    unsigned bad;
    load_codes(tables, SIGNED_CODES, m_codes, args.scale[0][i_run], n, m);
    load_codes(tables, UNSIGNED_CODES, v_codes, args.scale[1][i_run], n, v);
    load_master(args.param, param, i, n, w);
    add_streams(args.streams, i, n, g, &bad);
    SW_UNROLL
    for (int e = 0; e < CODES_EACH; e++) {
        if (e < n) {
            w[e] = adam(u, w[e], gradient(u, g[e]), &m[e], &v[e]);
        }
    }
    store_master(args.param, param, i, n, w);
    const float m_scale = store_codes(tables, SIGNED_CODES, n, m, m_codes);
    const float v_scale = store_codes(tables, UNSIGNED_CODES, n, v, v_codes);
    if (lane_index() == 0) {
        args.scale[0][i_run] = m_scale;
        args.scale[1][i_run] = v_scale;
    }
}

template <typename T> SW_KERNEL(THREADS) void update_coded(struct gpu_update_coded_args by_value)
{
    SW_SHARED(struct code_tables, tables);
    const struct gpu_update_coded_args &args = in_place(by_value);
    if (args.skip && *args.skip != 0) {
        for (int64_t i = first_element() * PART; i < args.n; i += grid_threads() * PART) {
            leave(args.param, (T *)args.param.param, i, part_of(i, args.n));
        }
        return;
    }
    const struct rule u = rule_of(args.rule, args.rates);
    const int64_t n_runs = (args.n_coded + GPU_CODE_RUN - 1) / GPU_CODE_RUN;
    fill_tables(args, &tables);
    for (int64_t i_run = block_x() * WARPS + warp_index(); i_run < n_runs;
         i_run += grid_x() * WARPS) {
        move_run<T>(args, tables, u, i_run);
    }
}

static const struct sw_gpu_kernel rows[] = {
    SW_FLOATS(accumulate, THREADS),      SW_PLAIN(accumulate_many, THREADS),
    SW_PLAIN(accumulate_clear, THREADS), SW_FLOATS(accumulate_rows, THREADS),
    SW_FLOATS(update, THREADS),          SW_FLOATS(update_many, THREADS),
    SW_FLOATS(update_coded, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_update = {rows, SW_ROWS(rows)};
