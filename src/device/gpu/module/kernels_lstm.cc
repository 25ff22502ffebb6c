// SPDX-License-Identifier: Apache-2.0
// LSTM, as defined in cpu/ref_lstm.inc. A block goes through the steps of a sample; a warp takes
// one unit with its four gates at a time.
#include "device/gpu/module/registry.h"
#include "device/gpu/module/team.h"

enum { THREADS = 256, WARPS = THREADS / SW_WARP };

SW_DEVICE int64_t token_of(const struct gpu_lstm_args &args, int64_t b, int64_t step)
{
    return b * args.tokens + (args.reverse ? args.tokens - 1 - step : step);
}

SW_DEVICE bool takes_step(const struct gpu_lstm_args &args, int64_t row)
{
    return !args.mask || args.mask[row] != 0;
}

SW_DEVICE float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* One unit k of a step, by all lanes of a warp. last: the previous y; c: in and out. */
template <typename T>
SW_DEVICE void unit_step(const struct gpu_lstm_args &args, int64_t row, int64_t k,
                         const float *last, float *next, float *c)
{
    const int64_t n = args.hidden;
    float z[4];
    SW_UNROLL
    for (int gate = 0; gate < 4; gate++) {
        const T *w = (const T *)args.w + (gate * n + k) * n;
        float sum = 0;
        for (int64_t i = lane_index(); i < n; i += SW_WARP) {
            sum = fmaf(load(w, i), last[i], sum);
        }
        z[gate] = load((const T *)args.x, row * 4 * n + gate * n + k) + warp_sum(sum) +
                  load((const T *)args.bias, gate * n + k);
        z[gate] = gate == 2 ? tanhf(z[gate]) : sigmoid(z[gate]);
    }
    if (lane_index() != 0) {
        return;
    }
    c[k] = z[1] * c[k] + z[0] * z[2];
    const T out = round_to<T>(z[3] * tanhf(c[k]));
    ((T *)args.y)[row * n + k] = out;
    next[k] = to_f32(out);
    if (args.cells) {
        args.cells[row * n + k] = c[k];
    }
    for (int gate = 0; args.gates && gate < 4; gate++) {
        args.gates[row * 4 * n + gate * n + k] = z[gate];
    }
}

/* One block per sample. Shared memory: y of two steps alternately, cells. */
template <typename T> SW_KERNEL(THREADS) void lstm(struct gpu_lstm_args args)
{
    SW_DYNAMIC_SHARED(shared);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t n = args.hidden, b = block_x();
    float *last = (float *)shared, *next = last + n, *c = next + n;
    for (int64_t k = thread_index(); k < n; k += THREADS) {
        last[k] = 0;
        c[k] = 0;
    }
    sync_block();
    for (int64_t step = 0; step < args.tokens; step++) {
        const int64_t row = token_of(args, b, step);
        if (!takes_step(args, row)) {
            for (int64_t k = thread_index(); k < 4 * n; k += THREADS) {
                if (args.gates) {
                    args.gates[row * 4 * n + k] = 0;
                }
                if (k < n) {
                    store((T *)args.y, row * n + k, 0);
                }
                if (k < n && args.cells) {
                    args.cells[row * n + k] = 0;
                }
            }
            continue;
        }
        for (int64_t k = warp_index(); k < n; k += WARPS) {
            unit_step<T>(args, row, k, last, next, c);
        }
        sync_block();
        float *const swap = last;
        last = next;
        next = swap;
    }
}

/* One block per sample. Shared memory: dz of a step, dy and dc of the next one. */
template <typename T> SW_KERNEL(THREADS) void lstm_steps_back(struct gpu_lstm_args args)
{
    SW_DYNAMIC_SHARED(shared);
    if (skipped(args.skip)) {
        return;
    }
    const int64_t n = args.hidden, b = block_x();
    float *dz = (float *)shared, *dy = dz + 4 * n, *dc = dy + n;
    for (int64_t k = thread_index(); k < n; k += THREADS) {
        dy[k] = 0;
        dc[k] = 0;
    }
    for (int64_t step = args.tokens - 1; step >= 0; step--) {
        const int64_t row = token_of(args, b, step);
        const bool takes = takes_step(args, row);
        int64_t before = step - 1;
        while (before >= 0 && !takes_step(args, token_of(args, b, before))) {
            before--;
        }
        const int64_t row_before = before < 0 ? -1 : token_of(args, b, before);
        sync_block();
        for (int64_t k = thread_index(); k < n && takes; k += THREADS) {
            const float *gates = args.gates + row * 4 * n + k;
            const float i = gates[0], f = gates[n], g = gates[2 * n], o = gates[3 * n];
            const float c_before = row_before < 0 ? 0 : args.cells[row_before * n + k];
            const float t = tanhf(args.cells[row * n + k]);
            const float d = dy[k] + load_any(args.dy, args.dy_type, row * n + k);
            const float of_cell = dc[k] + d * o * (1 - t * t);
            dz[k] = of_cell * g * i * (1 - i);
            dz[n + k] = of_cell * c_before * f * (1 - f);
            dz[2 * n + k] = of_cell * i * (1 - g * g);
            dz[3 * n + k] = d * t * o * (1 - o);
            dc[k] = of_cell * f;
        }
        sync_block();
        for (int64_t r = thread_index(); r < 4 * n; r += THREADS) {
            const float value = takes ? dz[r] : 0;
            args.dz[row * 4 * n + r] = value;
            if (args.dx) {
                store_any(args.dx, args.dx_type, row * 4 * n + r, value);
            }
        }
        for (int64_t k = thread_index(); k < n && takes; k += THREADS) {
            float sum = 0;
            for (int64_t r = 0; r < 4 * n; r++) {
                sum = fmaf(dz[r], load((const T *)args.w, r * n + k), sum);
            }
            dy[k] = sum;
        }
    }
}

/* One thread per element of dw, then per element of dbias. */
template <typename T> SW_KERNEL(THREADS) void lstm_weights(struct gpu_lstm_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t n = args.hidden, n_w = 4 * n * n;
    for (int64_t i = first_element(); i < n_w + 4 * n; i += grid_threads()) {
        const bool is_bias = i >= n_w;
        const int64_t r = is_bias ? i - n_w : quotient(i, n), k = is_bias ? 0 : i - r * n;
        if (!(is_bias ? args.dbias : args.dw)) {
            continue;
        }
        float sum = 0;
        for (int64_t b = 0; b < args.batch; b++) {
            float last = is_bias ? 1 : 0;
            for (int64_t step = 0; step < args.tokens; step++) {
                const int64_t row = token_of(args, b, step);
                if (takes_step(args, row)) {
                    sum = fmaf(args.dz[row * 4 * n + r], last, sum);
                    last = is_bias ? 1 : load((const T *)args.y, row * n + k);
                }
            }
        }
        store_any(is_bias ? args.dbias : args.dw, is_bias ? args.dbias_type : args.dw_type,
                  is_bias ? r : i, sum);
    }
}

static const struct sw_gpu_kernel rows[] = {SW_FLOATS(lstm, THREADS),
                                            SW_FLOATS(lstm_steps_back, THREADS),
                                            SW_FLOATS(lstm_weights, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_lstm = {rows, SW_ROWS(rows)};
