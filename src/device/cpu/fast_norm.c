// SPDX-License-Identifier: Apache-2.0
// LAYER_NORM, RMS_NORM and their ADD_ variants: items are runs of rows. Their gradients and
// SUM_ROWS: items are blocks of SW_SUM_BLOCK rows, each with its partial sums in the workspace. The
// partial sums are added in order at the end.
#include "device/cpu/fast.h"

/* ---- LAYER_NORM, ADD_LAYER_NORM ---- */

enum { RUN_ROWS = 16 };

static void norm_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    const enum sw_dtype dtype = desc->in[0].dtype;
    bool ok = cpu_is_fast_float(dtype);
    for (int i = 1; i < desc->op->n_in; i++) {
        ok = ok && desc->in[i].dtype == dtype;
    }
    for (int i = 0; i < desc->op->n_out; i++) {
        ok = ok && cpu_has_output(desc, i);
    }
    out->supported = ok;
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

struct norm_job {
    const struct cpu_vector *vector;
    struct cpu_norm norm;
    int64_t rows;
};

static void norm_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct norm_job *job = ctx;
    const int64_t first = i_item * RUN_ROWS;
    (void)i_worker;
    job->vector->norm(&job->norm, first, sw_min_i64(RUN_ROWS, job->rows - first));
}

static void norm_run(const struct cpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const int added = desc->op->kind == SW_OP_ADD_LAYER_NORM; /* one more input and output */
    struct norm_job job = {.vector = call->prepared,
                           .rows = sw_shape_rows(&desc->in[0].shape),
                           .norm = {.dtype = desc->in[0].dtype,
                                    .width = sw_shape_last(&desc->in[0].shape),
                                    .eps = (float)desc->op->attrs.norm.eps,
                                    .x = call->in[0],
                                    .added = added ? call->in[1] : NULL,
                                    .w = call->in[1 + added],
                                    .bias = call->in[2 + added],
                                    .s = added ? call->out[0] : NULL,
                                    .y = call->out[added],
                                    .mean = call->out[1 + added],
                                    .rstd = call->out[2 + added]}};
    sw_pool_run(call->pool, sw_ceil_div(job.rows, RUN_ROWS), norm_item, &job);
}

const struct cpu_kernel sw_cpu_layer_norm = {.name = "fast",
                                             .query = norm_query,
                                             .prepare = sw_cpu_prepare_vector,
                                             .release = sw_cpu_release_nothing,
                                             .run = norm_run};

/* ---- RMS_NORM, ADD_RMS_NORM ---- */

static void rms_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                      struct sw_kernel_info *out)
{
    out->supported = sw_cpu_are_alike(desc, 1 + (desc->op->kind == SW_OP_ADD_RMS_NORM));
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void rms_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct norm_job *job = ctx;
    const int64_t first = i_item * RUN_ROWS;
    (void)i_worker;
    job->vector->rms_norm(&job->norm, first, sw_min_i64(RUN_ROWS, job->rows - first));
}

static void rms_run(const struct cpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const int added = desc->op->kind == SW_OP_ADD_RMS_NORM; /* one more input and output */
    struct norm_job job = {.vector = call->prepared,
                           .rows = sw_shape_rows(&desc->in[0].shape),
                           .norm = {.dtype = desc->in[0].dtype,
                                    .width = sw_shape_last(&desc->in[0].shape),
                                    .eps = (float)desc->op->attrs.norm.eps,
                                    .one_plus = desc->op->attrs.norm.one_plus,
                                    .x = call->in[0],
                                    .added = added ? call->in[1] : NULL,
                                    .w = call->in[1 + added],
                                    .s = added ? call->out[0] : NULL,
                                    .y = call->out[added]}};
    job.norm.rstd = cpu_has_output(desc, 1 + added) ? call->out[1 + added] : NULL;
    sw_pool_run(call->pool, sw_ceil_div(job.rows, RUN_ROWS), rms_item, &job);
}

const struct cpu_kernel sw_cpu_rms_norm = {.name = "fast",
                                           .query = rms_query,
                                           .prepare = sw_cpu_prepare_vector,
                                           .release = sw_cpu_release_nothing,
                                           .run = rms_run};

/* ---- sums over blocks of rows ---- */

/* out[c] = the sum of the blocks' partial sums of column c, in order. */
struct fold {
    const struct cpu_vector *vector;
    const float *partial; /* [n_blocks] rows, ld apart */
    int64_t n_blocks, ld, n;
    enum sw_dtype dtype;
    void *out;
};

enum { FOLD_COLUMNS = 256 };

static void fold_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct fold *f = ctx;
    const int64_t first = i_item * FOLD_COLUMNS, n = sw_min_i64(FOLD_COLUMNS, f->n - first);
    float sums[FOLD_COLUMNS];
    (void)i_worker;
    f->vector->sum_rows(SW_F32, f->partial + first, f->n_blocks, f->ld, n, sums);
    f->vector->cast(f->dtype, SW_F32, (char *)f->out + (size_t)first * sw_dtype_bytes(f->dtype),
                    sums, 0, n);
}

static void fold(struct sw_pool *pool, struct fold f)
{
    sw_pool_run(pool, sw_ceil_div(f.n, FOLD_COLUMNS), fold_item, &f);
}

/* ---- LAYER_NORM_GRAD ---- */

static void norm_grad_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                            struct sw_kernel_info *out)
{
    const enum sw_dtype dtype = desc->in[0].dtype;
    bool ok = cpu_is_fast_float(dtype) && desc->in[1].dtype == dtype && desc->in[2].dtype == dtype;
    for (int i = 0; i < 3; i++) {
        ok = ok && (!cpu_has_output(desc, i) || cpu_is_fast_float(desc->out[i].dtype));
    }
    if (!ok || (cpu_has_output(desc, 0) && desc->out[0].dtype != dtype)) {
        return;
    }
    const int64_t n_blocks = sw_ceil_div(sw_shape_rows(&desc->in[0].shape), SW_SUM_BLOCK);
    out->supported = true;
    out->workspace_bytes =
        (size_t)(n_blocks * 2 * sw_shape_last(&desc->in[0].shape)) * sizeof(float);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

struct norm_grad_job {
    const struct cpu_vector *vector;
    struct cpu_norm_grad grad;
    int64_t rows;
    float *partial; /* dw, db: [n_blocks][2][width]; RMS norm: [n_blocks][width], or NULL */
};

static void norm_grad_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct norm_grad_job *job = ctx;
    const int64_t first = i_item * SW_SUM_BLOCK, width = job->grad.width;
    float *dw = job->partial + i_item * 2 * width;
    (void)i_worker;
    job->vector->norm_grad(&job->grad, first, sw_min_i64(SW_SUM_BLOCK, job->rows - first), dw,
                           dw + width);
}

static void norm_grad_run(const struct cpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct norm_grad_job job = {.vector = call->prepared,
                                .rows = sw_shape_rows(&desc->in[0].shape),
                                .partial = call->workspace,
                                .grad = {.dtype = desc->in[0].dtype,
                                         .width = sw_shape_last(&desc->in[0].shape),
                                         .dy = call->in[0],
                                         .x = call->in[1],
                                         .w = call->in[2],
                                         .mean = call->in[3],
                                         .rstd = call->in[4],
                                         .dx = cpu_has_output(desc, 0) ? call->out[0] : NULL}};
    const int64_t width = job.grad.width, n_blocks = sw_ceil_div(job.rows, SW_SUM_BLOCK);
    sw_pool_run(call->pool, n_blocks, norm_grad_item, &job);
    for (int i = 0; i < 2; i++) {
        if (cpu_has_output(desc, 1 + i)) {
            fold(call->pool, (struct fold){job.vector, job.partial + i * width, n_blocks, 2 * width,
                                           width, desc->out[1 + i].dtype, call->out[1 + i]});
        }
    }
}

const struct cpu_kernel sw_cpu_layer_norm_grad = {.name = "fast",
                                                  .query = norm_grad_query,
                                                  .prepare = sw_cpu_prepare_vector,
                                                  .release = sw_cpu_release_nothing,
                                                  .run = norm_grad_run};

/* ---- RMS_NORM_GRAD ---- */

static void rms_grad_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                           struct sw_kernel_info *out)
{
    const bool has_dw = cpu_has_output(desc, 1);
    const enum sw_dtype dtype = desc->in[0].dtype;
    if (!cpu_is_fast_float(dtype) || desc->in[1].dtype != dtype || desc->in[2].dtype != dtype ||
        (cpu_has_output(desc, 0) && desc->out[0].dtype != dtype) ||
        (has_dw && !cpu_is_fast_float(desc->out[1].dtype))) {
        return;
    }
    const int64_t n_blocks = sw_ceil_div(sw_shape_rows(&desc->in[0].shape), SW_SUM_BLOCK);
    out->supported = true;
    out->workspace_bytes =
        has_dw ? (size_t)(n_blocks * sw_shape_last(&desc->in[0].shape)) * sizeof(float) : 0;
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void rms_grad_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct norm_grad_job *job = ctx;
    const int64_t first = i_item * SW_SUM_BLOCK;
    (void)i_worker;
    job->vector->rms_norm_grad(&job->grad, first, sw_min_i64(SW_SUM_BLOCK, job->rows - first),
                               job->partial ? job->partial + i_item * job->grad.width : NULL);
}

static void rms_grad_run(const struct cpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct norm_grad_job job = {.vector = call->prepared,
                                .rows = sw_shape_rows(&desc->in[0].shape),
                                .partial = cpu_has_output(desc, 1) ? call->workspace : NULL,
                                .grad = {.dtype = desc->in[0].dtype,
                                         .width = sw_shape_last(&desc->in[0].shape),
                                         .one_plus = desc->op->attrs.norm.one_plus,
                                         .dy = call->in[0],
                                         .x = call->in[1],
                                         .w = call->in[2],
                                         .rstd = call->in[3],
                                         .dx = cpu_has_output(desc, 0) ? call->out[0] : NULL}};
    const int64_t width = job.grad.width, n_blocks = sw_ceil_div(job.rows, SW_SUM_BLOCK);
    sw_pool_run(call->pool, n_blocks, rms_grad_item, &job);
    if (job.partial) {
        fold(call->pool, (struct fold){job.vector, job.partial, n_blocks, width, width,
                                       desc->out[1].dtype, call->out[1]});
    }
}

const struct cpu_kernel sw_cpu_rms_norm_grad = {.name = "fast",
                                                .query = rms_grad_query,
                                                .prepare = sw_cpu_prepare_vector,
                                                .release = sw_cpu_release_nothing,
                                                .run = rms_grad_run};

/* ---- SUM_ROWS ---- */

struct sum_job {
    const struct cpu_vector *vector;
    enum sw_dtype dtype;
    const void *x;
    int64_t rows, width;
    float *partial; /* [n_blocks][width] */
};

static void sum_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                      struct sw_kernel_info *out)
{
    const int64_t width = sw_shape_elems(&desc->out[0].shape);
    if (!cpu_is_fast_float(desc->in[0].dtype) || !cpu_is_fast_float(desc->out[0].dtype) ||
        width == 0) {
        return;
    }
    const int64_t rows = sw_shape_elems(&desc->in[0].shape) / width;
    out->supported = true;
    out->workspace_bytes = (size_t)(sw_ceil_div(rows, SW_SUM_BLOCK) * width) * sizeof(float);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void sum_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct sum_job *job = ctx;
    const int64_t first = i_item * SW_SUM_BLOCK;
    (void)i_worker;
    job->vector->sum_rows(job->dtype,
                          (const char *)job->x +
                              (size_t)(first * job->width) * sw_dtype_bytes(job->dtype),
                          sw_min_i64(SW_SUM_BLOCK, job->rows - first), job->width, job->width,
                          job->partial + i_item * job->width);
}

static void sum_run(const struct cpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct sum_job job = {.vector = call->prepared,
                          .dtype = desc->in[0].dtype,
                          .x = call->in[0],
                          .width = sw_shape_elems(&desc->out[0].shape),
                          .partial = call->workspace};
    job.rows = sw_shape_elems(&desc->in[0].shape) / job.width;
    const int64_t n_blocks = sw_ceil_div(job.rows, SW_SUM_BLOCK);
    sw_pool_run(call->pool, n_blocks, sum_item, &job);
    fold(call->pool, (struct fold){job.vector, job.partial, n_blocks, job.width, job.width,
                                   desc->out[0].dtype, call->out[0]});
}

const struct cpu_kernel sw_cpu_sum_rows = {.name = "fast",
                                           .query = sum_query,
                                           .prepare = sw_cpu_prepare_vector,
                                           .release = sw_cpu_release_nothing,
                                           .run = sum_run};
