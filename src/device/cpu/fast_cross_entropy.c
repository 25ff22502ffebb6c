// SPDX-License-Identifier: Apache-2.0
// CROSS_ENTROPY and its gradient for given logits. The items are rows, processed in pieces in fp32.
// (fast_linear_ce.c avoids making the logits if they are a product.)
#include <math.h>

#include "device/cpu/fast.h"

enum { PIECE = 2048, RUN_ROWS = 4, IGNORED = -100 };

struct job {
    const struct cpu_vector *vector;
    const struct cpu_call *call;
    int64_t rows, vocab;
    float *row_loss; /* [rows], forward */
    int64_t beyond;  /* labels from here on are ignored */
    float smoothing;
};

static struct job job_of(const struct cpu_call *call, int i_logits)
{
    const struct sw_shape *shape = &call->desc->in[i_logits].shape;
    const struct sw_op *op = call->desc->op;
    return (struct job){.vector = call->prepared,
                        .call = call,
                        .beyond = op->attrs.cross_entropy.ignores_beyond ? sw_shape_last(shape)
                                                                         : INT64_MAX,
                        .smoothing = (float)op->attrs.cross_entropy.smoothing,
                        .rows = sw_shape_rows(shape),
                        .vocab = sw_shape_last(shape),
                        .row_loss = call->workspace};
}

static const void *logits_at(const struct job *job, int i_logits, int64_t row, int64_t column)
{
    return (const char *)job->call->in[i_logits] +
           (size_t)(row * job->vocab + column) *
               sw_dtype_bytes(job->call->desc->in[i_logits].dtype);
}

/* ---- forward: logits, labels -> sum, count, lse ---- */

static void forward_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                          struct sw_kernel_info *out)
{
    out->supported = cpu_is_fast_float(desc->in[0].dtype) &&
                     sw_shape_last(&desc->in[0].shape) > 0 &&
                     desc->op->attrs.cross_entropy.whole == 0; /* parts: the reference */
    out->workspace_bytes = (size_t)sw_shape_rows(&desc->in[0].shape) * sizeof(float);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

/* Several partial sums, so that additions do not wait for each other. */
static float sum_of(const float *x, int64_t n)
{
    enum { SUMS = 16 };
    float sums[SUMS] = {0}, total = 0;
    for (int64_t i = 0; i + SUMS <= n; i += SUMS) {
        for (int s = 0; s < SUMS; s++) {
            sums[s] += x[i + s];
        }
    }
    for (int64_t i = n / SUMS * SUMS; i < n; i++) {
        sums[i % SUMS] += x[i];
    }
    for (int s = 0; s < SUMS; s++) {
        total += sums[s];
    }
    return total;
}

static void forward_row(const struct job *job, int64_t row)
{
    const enum sw_dtype dtype = job->call->desc->in[0].dtype;
    const int64_t label = ((const int32_t *)job->call->in[1])[row];
    float piece[PIECE], top = -INFINITY, mass = 0, label_logit = NAN, total = 0;
    for (int64_t v = 0; v < job->vocab; v += PIECE) {
        const int64_t n = sw_min_i64(PIECE, job->vocab - v);
        float max, sum;
        job->vector->cast(SW_F32, dtype, piece, logits_at(job, 0, row, v), 0, n);
        job->vector->softmax_stats(piece, n, 1, n, &max, &sum);
        const float peak = max > top ? max : top;
        const float base = peak == -INFINITY ? 0 : peak;
        total += job->smoothing > 0 ? sum_of(piece, n) : 0;
        mass = mass * expf(top - base) + sum * expf(max - base);
        top = peak;
        if (label >= v && label < v + n) {
            label_logit = piece[label - v];
        }
    }
    const float lse = top + logf(mass);
    const float e = job->smoothing, each = e / (float)job->vocab;
    job->row_loss[row] = e > 0 ? lse - (1 - e) * label_logit - each * total : lse - label_logit;
    if (job->call->out[2]) {
        ((float *)job->call->out[2])[row] = lse;
    }
}

static void forward_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    (void)i_worker;
    for (int64_t r = i_item * RUN_ROWS; r < sw_min_i64(job->rows, (i_item + 1) * RUN_ROWS); r++) {
        forward_row(job, r);
    }
}

static void forward_run(const struct cpu_call *call)
{
    struct job job = job_of(call, 0);
    sw_pool_run(call->pool, sw_ceil_div(job.rows, RUN_ROWS), forward_item, &job);
    const int32_t *labels = call->in[1];
    double total = 0, count = 0;
    for (int64_t r = 0; r < job.rows; r++) {
        if (labels[r] != IGNORED && labels[r] < job.beyond) {
            total += (double)job.row_loss[r];
            count += 1;
        }
    }
    *(float *)call->out[0] = (float)total;
    *(float *)call->out[1] = (float)count;
}

const struct cpu_kernel sw_cpu_cross_entropy = {.name = "fast",
                                                .query = forward_query,
                                                .prepare = sw_cpu_prepare_vector,
                                                .release = sw_cpu_release_nothing,
                                                .run = forward_run};

/* ---- backward: dsum, logits, labels, lse -> dlogits ---- */

static void backward_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                           struct sw_kernel_info *out)
{
    out->supported = desc->op->attrs.cross_entropy.whole == 0 &&
                     cpu_is_fast_float(desc->in[1].dtype) && desc->in[0].dtype == SW_F32 &&
                     desc->in[3].dtype == SW_F32 && cpu_is_fast_float(desc->out[0].dtype);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void backward_item(void *ctx, int64_t row, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_call *call = job->call;
    const enum sw_dtype dtype = call->desc->out[0].dtype;
    const int32_t given = ((const int32_t *)call->in[2])[row];
    const int32_t label = given < job->beyond ? given : IGNORED;
    const struct cpu_onehot onehot = {job->smoothing / (float)job->vocab, 1 - job->smoothing};
    float piece[PIECE];
    (void)i_worker;
    for (int64_t v = 0; v < job->vocab; v += PIECE) {
        const int64_t n = sw_min_i64(PIECE, job->vocab - v);
        char *out = (char *)call->out[0] + (size_t)(row * job->vocab + v) * sw_dtype_bytes(dtype);
        job->vector->cast(SW_F32, call->desc->in[1].dtype, piece, logits_at(job, 1, row, v), 0, n);
        job->vector->softmax_grad(dtype, piece, n, 1, n, (const float *)call->in[3] + row, &label,
                                  v, onehot, *(const float *)call->in[0], 0, out, n);
    }
}

static void backward_run(const struct cpu_call *call)
{
    struct job job = job_of(call, 1);
    sw_pool_run(call->pool, job.rows, backward_item, &job);
}

const struct cpu_kernel sw_cpu_cross_entropy_grad = {.name = "fast",
                                                     .query = backward_query,
                                                     .prepare = sw_cpu_prepare_vector,
                                                     .release = sw_cpu_release_nothing,
                                                     .run = backward_run};
