// SPDX-License-Identifier: Apache-2.0
// ROTARY: items are runs of tokens. The factors of a head's elements are made once per token, for
// all of its heads.
#include <math.h>

#include "device/cpu/fast.h"

enum { RUN_TOKENS = 8 };

struct rotary_job {
    const struct cpu_vector *vector;
    const struct cpu_call *call;
    struct cpu_rotary rotary;
    int64_t tokens; /* tokens of all samples */
    bool by_sample;
    float sign;
};

static void rotary_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel_info *out)
{
    const enum sw_dtype dtype = desc->in[0].dtype;
    out->supported = cpu_is_fast_float(dtype) && desc->out[0].dtype == dtype &&
                     desc->in[1].shape.dims[1] <= CPU_ROTARY_MOST;
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

/* The factors are NaN if the position is unknown. */
static void find_factors(const struct rotary_job *job, int64_t token, float *own, float *other)
{
    const struct sw_op_desc *desc = job->call->desc;
    const int64_t t = job->by_sample ? token : token % desc->in[0].shape.dims[1];
    const int64_t p = ((const int32_t *)job->call->in[2])[t], turned = job->rotary.turned;
    const bool known = p >= 0 && p < desc->in[1].shape.dims[0];
    const int64_t half = turned / 2, step = job->rotary.interleaved ? 2 : 1;
    const int64_t apart = job->rotary.interleaved ? 1 : half;
    const float *row = (const float *)job->call->in[1] + (known ? p * turned : 0);
    for (int64_t i = 0; i < half; i++) {
        const float cosine = known ? row[i] : NAN;
        const float sine = known ? job->sign * row[half + i] : NAN;
        own[i * step] = own[i * step + apart] = cosine;
        other[i * step] = -sine;
        other[i * step + apart] = sine;
    }
}

static void rotary_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct rotary_job *job = ctx;
    const struct sw_view *x = &job->call->desc->in[0];
    const size_t bytes = sw_dtype_bytes(x->dtype);
    float own[CPU_ROTARY_MOST], other[CPU_ROTARY_MOST];
    (void)i_worker;
    const int64_t first = i_item * RUN_TOKENS;
    for (int64_t token = first; token < sw_min_i64(job->tokens, first + RUN_TOKENS); token++) {
        struct cpu_rotary r = job->rotary;
        const int64_t b = token / x->shape.dims[1], t = token % x->shape.dims[1];
        find_factors(job, token, own, other);
        r.own = own;
        r.other = other;
        r.x = (const char *)job->call->in[0] +
              (b * x->strides[0] + t * x->strides[1]) * (int64_t)bytes;
        r.y = (char *)job->call->out[0] + (size_t)(token * r.heads * r.width) * bytes;
        job->vector->rotary(&r);
    }
}

static void rotary_run(const struct cpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const struct sw_view *x = &desc->in[0];
    struct rotary_job job = {.vector = call->prepared,
                             .call = call,
                             .tokens = x->shape.dims[0] * x->shape.dims[1],
                             .by_sample = desc->in[2].shape.rank == 2,
                             .sign = desc->op->attrs.rotary.inverse ? -1.0f : 1.0f,
                             .rotary = {.dtype = x->dtype,
                                        .heads = x->shape.dims[2],
                                        .width = x->shape.dims[3],
                                        .turned = desc->in[1].shape.dims[1],
                                        .ld_x = x->strides[2],
                                        .interleaved = desc->op->attrs.rotary.interleaved}};
    sw_pool_run(call->pool, sw_ceil_div(job.tokens, RUN_TOKENS), rotary_item, &job);
}

const struct cpu_kernel sw_cpu_rotary = {.name = "fast",
                                         .query = rotary_query,
                                         .prepare = sw_cpu_prepare_vector,
                                         .release = sw_cpu_release_nothing,
                                         .run = rotary_run};
