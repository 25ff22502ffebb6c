// SPDX-License-Identifier: Apache-2.0
// Ops on single elements: ACT, ACT_GRAD, ADD, MUL, SCALE, CAST, DROPOUT. The items are runs of
// elements.
#include "device/cpu/fast.h"

enum { RUN_ELEMS = 16384 };

struct job {
    const struct cpu_vector *vector;
    const struct cpu_call *call;
    struct cpu_elementwise e;
    int64_t n;      /* elements; for dropout: in a run of a sample */
    int64_t n_runs; /* dropout: items per such run */
};

static int64_t run_length(const struct job *job, int64_t first)
{
    return sw_min_i64(RUN_ELEMS, job->n - first);
}

/* Requires the first n_in inputs and output 0 to have one fast dtype. */
static void query_alike(const struct cpu_device *dev, const struct sw_op_desc *desc,
                        struct sw_kernel_info *out)
{
    out->supported = sw_cpu_are_alike(desc, 1);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

/* ---- ACT, ACT_GRAD, ADD, MUL, SCALE ---- */

static void elementwise_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    (void)i_worker;
    job->vector->elementwise(&job->e, i_item * RUN_ELEMS, run_length(job, i_item * RUN_ELEMS));
}

static void elementwise_run(const struct cpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct job job = {.vector = call->prepared,
                      .call = call,
                      .n = sw_shape_elems(&desc->in[0].shape),
                      .e = {.kind = desc->op->kind,
                            .dtype = desc->in[0].dtype,
                            .x = call->in[0],
                            .y = desc->op->n_in > 1 ? call->in[1] : NULL,
                            .out = call->out[0]}};
    switch (sw_op_info(desc->op->kind)->attrs) {
    case SW_ATTRS_ACT:
        job.e.act = desc->op->attrs.act.act;
        break;
    case SW_ATTRS_SCALE:
        job.e.alpha = desc->op->attrs.scale.factor;
        break;
    default:
        break;
    }
    job.e.period = sw_max_i64(1, sw_shape_elems(&desc->in[desc->op->n_in > 1].shape));
    sw_pool_run(call->pool, sw_ceil_div(job.n, RUN_ELEMS), elementwise_item, &job);
}

const struct cpu_kernel sw_cpu_elementwise = {.name = "fast",
                                              .query = query_alike,
                                              .prepare = sw_cpu_prepare_vector,
                                              .release = sw_cpu_release_nothing,
                                              .run = elementwise_run};

/* ---- CAST ---- */

static void cast_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    out->supported = cpu_is_fast_float(desc->in[0].dtype) && cpu_is_fast_float(desc->out[0].dtype);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void cast_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct sw_op_desc *desc = job->call->desc;
    (void)i_worker;
    job->vector->cast(desc->out[0].dtype, desc->in[0].dtype, job->call->out[0], job->call->in[0],
                      i_item * RUN_ELEMS, run_length(job, i_item * RUN_ELEMS));
}

static void cast_run(const struct cpu_call *call)
{
    struct job job = {
        .vector = call->prepared, .call = call, .n = sw_shape_elems(&call->desc->in[0].shape)};
    sw_pool_run(call->pool, sw_ceil_div(job.n, RUN_ELEMS), cast_item, &job);
}

const struct cpu_kernel sw_cpu_cast = {.name = "fast",
                                       .query = cast_query,
                                       .prepare = sw_cpu_prepare_vector,
                                       .release = sw_cpu_release_nothing,
                                       .run = cast_run};

/* ---- DROPOUT ---- */

static void dropout_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_call *call = job->call;
    const double p = call->desc->op->attrs.dropout.p;
    const int64_t first = i_item % job->n_runs * RUN_ELEMS;
    const struct cpu_draw_run run = sw_cpu_draw_run(call->desc, i_item / job->n_runs);
    const enum sw_dtype dtype = call->desc->in[0].dtype;
    /* the address of an element is that of its sample plus its index in the sample */
    const ptrdiff_t before = (ptrdiff_t)(run.here - run.first) * (ptrdiff_t)sw_dtype_bytes(dtype);
    struct cpu_draw draw;
    (void)i_worker;
    sw_cpu_draw_init(&draw, call->scalars, call->desc->op->path, p, run.batch, run.sample);
    job->vector->dropout(dtype, &draw, (float)(1.0 / (1.0 - p)), (const char *)call->in[0] + before,
                         (char *)call->out[0] + before, run.first + first, run_length(job, first));
}

static void dropout_run(const struct cpu_call *call)
{
    const int64_t n = sw_cpu_draw_runs(call->desc);
    struct job job = {.vector = call->prepared, .call = call};
    job.n = n > 0 ? sw_cpu_draw_run(call->desc, 0).n : 0;
    job.n_runs = sw_ceil_div(job.n, RUN_ELEMS);
    sw_pool_run(call->pool, n * job.n_runs, dropout_item, &job);
}

const struct cpu_kernel sw_cpu_dropout = {.name = "fast",
                                          .query = query_alike,
                                          .prepare = sw_cpu_prepare_vector,
                                          .release = sw_cpu_release_nothing,
                                          .run = dropout_run};
