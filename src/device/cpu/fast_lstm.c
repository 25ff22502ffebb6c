// SPDX-License-Identifier: Apache-2.0
// LSTM and LSTM_GRAD. The steps of a sample are sequential. An item takes a few samples through all
// steps, so that no step waits for another thread. A sample's bits do not depend on the other
// samples of its item. The gradient of the weights is one product over all tokens at the end.
#include <string.h>

#include "device/cpu/fast.h"

enum { MOST_SAMPLES = 32, RUN_ELEMS = 16384, RUN_COLUMNS = 64 };

struct lstm {
    const struct cpu_vector *vector;
    struct cpu_grid weights; /* LSTM_GRAD: [4H,H] over all tokens */
};

struct job {
    const struct lstm *lstm;
    const struct cpu_call *call;
    struct cpu_lstm l;
    int64_t samples; /* samples of an item */
    bool back;
    float *packed, *shifted;
    char *scratch; /* scratch of worker 0 */
    size_t worker_bytes;
};

/* Bytes of the workspace, in this order: packed weights, dz, shifted y, scratch of each worker. */
struct sizes {
    size_t packed, dz, shifted, worker;
};

static int64_t samples_of(int64_t batch, int workers)
{
    return sw_max_i64(1, sw_min_i64(MOST_SAMPLES, sw_ceil_div(batch, workers)));
}

static size_t floats(int64_t n)
{
    return sw_round_up((size_t)n * sizeof(float), CPU_LINE);
}

/* y: [B,T,H]; weights: NULL = not wanted, or forward */
static struct sizes sizes_of(const struct cpu_vector *vector, const struct sw_shape *y, bool back,
                             const struct cpu_grid *weights, int workers)
{
    const int64_t batch = y->dims[0], tokens = y->dims[1], n = y->dims[2];
    struct sizes s = {
        .packed = sw_round_up(vector->lstm_packed_bytes(n, back), CPU_LINE),
        .dz = back ? floats(batch * tokens * 4 * n) : 0,
        .shifted = weights ? floats(batch * tokens * n) : 0,
        .worker = sw_round_up(vector->lstm_scratch_bytes(n, samples_of(batch, workers)), CPU_LINE)};
    if (weights) {
        const size_t product = weights->scratch_bytes + cpu_grid_block_bytes(weights);
        s.worker = product > s.worker ? product : s.worker;
    }
    return s;
}

static size_t all_bytes(const struct sizes *s, int workers)
{
    return s->packed + s->dz + s->shifted + s->worker * (size_t)workers;
}

/* ---- both directions ---- */

static struct job job_of(const struct cpu_call *call, bool back)
{
    const struct sw_op_desc *desc = call->desc;
    const struct sw_view *y = back ? &desc->in[2] : &desc->out[0];
    const struct lstm *lstm = call->prepared;
    struct job job = {.lstm = lstm,
                      .call = call,
                      .back = back,
                      .samples = samples_of(y->shape.dims[0], cpu_workers(call->pool)),
                      .l = {.dtype = y->dtype,
                            .batch = y->shape.dims[0],
                            .tokens = y->shape.dims[1],
                            .hidden = y->shape.dims[2],
                            .reverse = desc->op->attrs.lstm.reverse,
                            .w = call->in[1]}};
    const bool has_weights = back && lstm->weights.whole.m > 0;
    const struct sizes s = sizes_of(lstm->vector, &y->shape, back,
                                    has_weights ? &lstm->weights : NULL, cpu_workers(call->pool));
    job.packed = call->workspace;
    job.l.packed = job.packed;
    job.l.dz = (float *)((char *)call->workspace + s.packed);
    job.shifted = (float *)((char *)job.l.dz + s.dz);
    job.scratch = (char *)job.shifted + s.shifted;
    job.worker_bytes = s.worker;
    return job;
}

static void pack_item(void *ctx, int64_t item, int i_worker)
{
    const struct job *job = ctx;
    (void)i_worker;
    job->lstm->vector->lstm_pack(&job->l, job->back, item, job->packed);
}

static void steps_item(void *ctx, int64_t item, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_vector *vector = job->lstm->vector;
    const int64_t first = item * job->samples;
    (job->back ? vector->lstm_steps_grad
               : vector->lstm_steps)(&job->l, first, sw_min_i64(job->samples, job->l.batch - first),
                                     job->scratch + (size_t)i_worker * job->worker_bytes);
}

static void run_steps(struct job *job)
{
    const int64_t n = (job->back ? 1 : 4) * job->l.hidden;
    sw_pool_run(job->call->pool, sw_ceil_div(n, job->lstm->vector->lstm_panel), pack_item, job);
    sw_pool_run(job->call->pool, sw_ceil_div(job->l.batch, job->samples), steps_item, job);
}

static bool is_float(const struct sw_op_desc *desc, int n_in, int n_alike)
{
    for (int i = 0; i < n_in; i++) {
        if (desc->in[i].dtype != (i < n_alike ? desc->in[0].dtype : SW_F32)) {
            return false;
        }
    }
    return cpu_is_fast_float(desc->in[0].dtype);
}

static void release(void *prepared)
{
    struct lstm *lstm = prepared;
    sw_cpu_grid_close(&lstm->weights);
    sw_free(lstm);
}

/* ---- forward: x, w, bias [, mask] -> y, gates, cells ---- */

static void forward_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                          struct sw_kernel_info *out)
{
    const struct cpu_vector *vector = sw_cpu_vector_for(dev->isa);
    const int workers = cpu_workers(dev->pool);
    const struct sizes s = sizes_of(vector, &desc->out[0].shape, false, NULL, workers);
    out->supported = is_float(desc, 3, 3) && desc->out[0].dtype == desc->in[0].dtype;
    out->workspace_bytes = all_bytes(&s, workers);
    out->path = vector->name;
}

static sw_status open(const struct cpu_device *dev, const struct cpu_gemm *weights, void **prepared)
{
    struct lstm *lstm = sw_alloc_zero("device", 1, sizeof *lstm);
    SW_TRY_ALLOC(lstm, "a recurrence");
    lstm->vector = sw_cpu_vector_for(dev->isa);
    sw_status st = SW_OK;
    SW_TRY_OR(free, sw_cpu_grid_cut(dev, weights, false, &lstm->weights));
    SW_TRY_OR(free, sw_cpu_grid_open(dev, &lstm->weights));
    *prepared = lstm;
    return SW_OK;
free:
    sw_free(lstm);
    return st;
}

static sw_status forward_prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                 void **prepared)
{
    const struct cpu_gemm none = {.m = 0};
    (void)desc;
    return open(dev, &none, prepared);
}

static void forward_run(const struct cpu_call *call)
{
    struct job job = job_of(call, false);
    job.l.mask = call->desc->op->attrs.lstm.has_mask ? call->in[3] : NULL;
    job.l.x = call->in[0];
    job.l.bias = call->in[2];
    job.l.y = call->out[0];
    job.l.gates = cpu_has_output(call->desc, 1) ? call->out[1] : NULL;
    job.l.cells = cpu_has_output(call->desc, 2) ? call->out[2] : NULL;
    run_steps(&job);
}

const struct cpu_kernel sw_cpu_lstm = {.name = "fast",
                                       .query = forward_query,
                                       .prepare = forward_prepare,
                                       .release = release,
                                       .run = forward_run};

/* ---- backward: dy, w, y, gates, cells [, mask] -> dx, dw, dbias ---- */

/* dz^T times y of the steps before; empty if it is not wanted. */
static struct cpu_gemm weights_of(const struct sw_op_desc *desc)
{
    const struct sw_shape *y = &desc->in[2].shape;
    const int64_t n = y->dims[2];
    const bool wanted = cpu_has_output(desc, 1);
    return (struct cpu_gemm){.dtype = SW_F32,
                             .dtype_b = SW_F32,
                             .ta = true,
                             .m = wanted ? 4 * n : 0,
                             .n = n,
                             .k = y->dims[0] * y->dims[1],
                             .lda = 4 * n,
                             .ldb = n};
}

static void backward_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                           struct sw_kernel_info *out)
{
    const struct cpu_vector *vector = sw_cpu_vector_for(dev->isa);
    const int workers = cpu_workers(dev->pool);
    const struct cpu_gemm gemm = weights_of(desc);
    struct cpu_grid grid;
    bool takes = is_float(desc, 5, 3);
    for (int i = 0; i < desc->op->n_out; i++) {
        takes = takes && (!cpu_has_output(desc, i) || cpu_is_fast_float(desc->out[i].dtype));
    }
    const sw_status st = takes ? sw_cpu_grid_cut(dev, &gemm, false, &grid) : SW_E_UNSUP;
    out->no_memory = st == SW_E_NOMEM;
    if (st < 0) {
        return;
    }
    const struct sizes s =
        sizes_of(vector, &desc->in[2].shape, true, gemm.m > 0 ? &grid : NULL, workers);
    out->supported = true;
    out->workspace_bytes = all_bytes(&s, workers);
    out->path = vector->name;
}

static sw_status backward_prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                  void **prepared)
{
    const struct cpu_gemm gemm = weights_of(desc);
    return open(dev, &gemm, prepared);
}

static void shift_item(void *ctx, int64_t b, int i_worker)
{
    const struct job *job = ctx;
    (void)i_worker;
    job->lstm->vector->lstm_shift(&job->l, b, job->shifted);
}

static void weights_item(void *ctx, int64_t item, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_grid *grid = &job->lstm->weights;
    const struct cpu_block block = sw_cpu_grid_block(grid, item);
    const struct sw_view *out = &job->call->desc->out[1];
    char *scratch = job->scratch + (size_t)i_worker * job->worker_bytes;
    sw_cpu_grid_run(grid, item, i_worker, job->l.dz, job->shifted, (float *)scratch,
                    scratch + cpu_grid_block_bytes(grid));
    const struct cpu_epilogue epilogue = {.dtype = out->dtype,
                                          .act = SW_ACT_NONE,
                                          .out = (char *)job->call->out[1] +
                                                 (size_t)(block.i * job->l.hidden + block.j) *
                                                     sw_dtype_bytes(out->dtype),
                                          .ld_out = job->l.hidden};
    job->lstm->vector->epilogue(&epilogue, (float *)scratch, block.m, block.n, block.n);
}

static void bias_item(void *ctx, int64_t item, int i_worker)
{
    const struct job *job = ctx;
    const int64_t all = 4 * job->l.hidden, first = item * RUN_COLUMNS;
    const int64_t n = sw_min_i64(RUN_COLUMNS, all - first);
    const enum sw_dtype dtype = job->call->desc->out[2].dtype;
    float sums[RUN_COLUMNS];
    (void)i_worker;
    job->lstm->vector->sum_rows(SW_F32, job->l.dz + first, job->l.batch * job->l.tokens, all, n,
                                sums);
    job->lstm->vector->cast(dtype, SW_F32,
                            (char *)job->call->out[2] + (size_t)first * sw_dtype_bytes(dtype), sums,
                            0, n);
}

static void cast_item(void *ctx, int64_t item, int i_worker)
{
    const struct job *job = ctx;
    const int64_t all = job->l.batch * job->l.tokens * 4 * job->l.hidden;
    (void)i_worker;
    job->lstm->vector->cast(job->call->desc->out[0].dtype, SW_F32, job->call->out[0], job->l.dz,
                            item * RUN_ELEMS, sw_min_i64(RUN_ELEMS, all - item * RUN_ELEMS));
}

static void backward_run(const struct cpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct job job = job_of(call, true);
    job.l.mask = desc->op->attrs.lstm.has_mask ? call->in[5] : NULL;
    job.l.dy = call->in[0];
    job.l.y = call->in[2];
    job.l.gates = call->in[3];
    job.l.cells = call->in[4];
    run_steps(&job);
    const int64_t n_dz = job.l.batch * job.l.tokens * 4 * job.l.hidden;
    if (cpu_has_output(desc, 0)) {
        sw_pool_run(call->pool, sw_ceil_div(n_dz, RUN_ELEMS), cast_item, &job);
    }
    if (cpu_has_output(desc, 1)) {
        sw_pool_run(call->pool, job.l.batch, shift_item, &job);
        sw_pool_run(call->pool, cpu_grid_items(&job.lstm->weights), weights_item, &job);
    }
    if (cpu_has_output(desc, 2)) {
        sw_pool_run(call->pool, sw_ceil_div(4 * job.l.hidden, RUN_COLUMNS), bias_item, &job);
    }
}

const struct cpu_kernel sw_cpu_lstm_grad = {.name = "fast",
                                            .query = backward_query,
                                            .prepare = backward_prepare,
                                            .release = release,
                                            .run = backward_run};
