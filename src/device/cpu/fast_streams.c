// SPDX-License-Identifier: Apache-2.0
// Ops that read the gradient streams of one parameter: ACCUMULATE, GRAD_STATS, UPDATE. A stream is
// dense or row-sparse (rows and their index, ascending, then -1). Items are runs of the parameter's
// elements; a small buffer first collects the sum of the streams, in order.
#include <math.h>
#include <string.h>

#include "device/cpu/fast_streams.h"

static bool is_index(const struct sw_op_desc *desc, int i)
{
    return i < desc->op->n_in && desc->in[i].dtype == SW_I32;
}

void sw_cpu_streams_of(struct cpu_streams *s, const struct cpu_call *call, int first,
                       int64_t n_elems)
{
    const struct sw_op_desc *desc = call->desc;
    *s = (struct cpu_streams){.n_elems = n_elems, .row_elems = 1};
    int64_t reach = 0;
    for (int i = first; i < desc->op->n_in; i++) {
        struct cpu_grad_stream *stream = &s->stream[s->n++];
        *stream = (struct cpu_grad_stream){.dtype = desc->in[i].dtype, .data = call->in[i]};
        int64_t extent = sw_shape_elems(&desc->in[i].shape);
        if (is_index(desc, i + 1)) {
            s->row_elems = sw_shape_last(&desc->in[i].shape);
            stream->index = call->in[i + 1];
            stream->n_rows = sw_first_row(stream->index, desc->in[i + 1].shape.dims[0], INT32_MAX);
            extent = stream->n_rows > 0
                         ? ((int64_t)stream->index[stream->n_rows - 1] + 1) * s->row_elems
                         : 0;
            i++;
        }
        reach = sw_max_i64(reach, extent);
    }
    if (n_elems < 0) {
        s->n_elems = reach;
    }
}

/* Adds the rows of stream k that lie among elements start .. start+n-1 to sum. */
static void add_rows(const struct cpu_vector *vector, const struct cpu_streams *s, int k,
                     int64_t start, int64_t n, float *sum)
{
    const struct cpu_grad_stream *stream = &s->stream[k];
    const int64_t width = s->row_elems;
    int64_t at = sw_first_row(stream->index, stream->n_rows, start / width);
    for (; at < stream->n_rows && stream->index[at] * width < start + n; at++) {
        const int64_t row = stream->index[at] * width; /* the row's first element */
        const int64_t from = sw_max_i64(start, row), end = sw_min_i64(start + n, row + width);
        vector->accumulate(stream->dtype, false, sum + (from - start),
                           stream->data +
                               (size_t)(at * width + from - row) * sw_dtype_bytes(stream->dtype),
                           0, end - from);
    }
}

const float *sw_cpu_streams_sum(const struct cpu_vector *vector, const struct cpu_streams *s,
                                int64_t start, int64_t n, float *buffer)
{
    if (s->n == 1 && !s->stream[0].index && s->stream[0].dtype == SW_F32) {
        return (const float *)s->stream[0].data + s->stream[0].first + start;
    }
    if (s->n == 0 || s->stream[0].index) {
        memset(buffer, 0, (size_t)n * sizeof *buffer);
    }
    for (int k = 0; k < s->n; k++) {
        const struct cpu_grad_stream *stream = &s->stream[k];
        if (stream->index) {
            add_rows(vector, s, k, stream->first + start, n, buffer);
        } else {
            const size_t at = (size_t)(stream->first + start) * sw_dtype_bytes(stream->dtype);
            vector->accumulate(stream->dtype, k == 0, buffer, stream->data + at, 0, n);
        }
    }
    return buffer;
}

const float *sw_cpu_streams_item(const struct cpu_vector *vector, const struct cpu_streams *s,
                                 int64_t i_item, struct cpu_streams_item *out)
{
    out->start = i_item * CPU_STREAM_ELEMS;
    out->n = sw_min_i64(CPU_STREAM_ELEMS, s->n_elems - out->start);
    return sw_cpu_streams_sum(vector, s, out->start, out->n, out->buffer);
}

bool sw_cpu_takes_streams(const struct sw_op_desc *desc, int first)
{
    for (int i = first; i < desc->op->n_in; i++) {
        if (!cpu_is_fast_float(desc->in[i].dtype)) {
            return false;
        }
        i += is_index(desc, i + 1);
    }
    return true;
}

struct job {
    const struct cpu_vector *vector;
    const struct cpu_call *call;
    struct cpu_streams streams;
    struct cpu_update update;
};

/* ---- ACCUMULATE: acc (f32, in place), g [, index] ---- */

static void accumulate_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                             struct sw_kernel_info *out)
{
    out->supported = desc->in[0].dtype == SW_F32 && sw_cpu_takes_streams(desc, 1);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void accumulate_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_grad_stream *g = &job->streams.stream[0];
    const int64_t start = i_item * CPU_STREAM_ELEMS;
    const int64_t n = sw_min_i64(CPU_STREAM_ELEMS, job->streams.n_elems - start);
    const bool first =
        job->call->scalars[SW_SCALAR_FIRST] != 0 && !job->call->desc->op->attrs.stats.continues;
    float *acc = (float *)job->call->in[0] + start;
    (void)i_worker;
    if (!g->index) {
        job->vector->accumulate(g->dtype, first, acc,
                                g->data + (size_t)start * sw_dtype_bytes(g->dtype), 0, n);
        return;
    }
    if (first) {
        memset(acc, 0, (size_t)n * sizeof *acc);
    }
    add_rows(job->vector, &job->streams, 0, start, n, acc);
}

static void accumulate_run(const struct cpu_call *call)
{
    struct job job = {.vector = call->prepared, .call = call};
    sw_cpu_streams_of(&job.streams, call, 1, sw_shape_elems(&call->desc->in[0].shape));
    sw_pool_run(call->pool, sw_ceil_div(job.streams.n_elems, CPU_STREAM_ELEMS), accumulate_item,
                &job);
}

const struct cpu_kernel sw_cpu_accumulate = {.name = "fast",
                                             .query = accumulate_query,
                                             .prepare = sw_cpu_prepare_vector,
                                             .release = sw_cpu_release_nothing,
                                             .run = accumulate_run};

/* ---- GRAD_STATS: stats, streams..: sums of squares over runs, added exactly ---- */

enum { STATS_PARTS = 64 }; /* items, each with an accumulator of its own in the workspace */
static const float largest_f16 = 65504;

static void stats_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                        struct sw_kernel_info *out)
{
    out->supported = sw_cpu_takes_streams(desc, 1);
    out->workspace_bytes = (size_t)STATS_PARTS * SW_STATS_WORDS * sizeof(int64_t);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

/* Takes one run element by element: for runs at the end, and if something is wrong. */
static void stats_of_run(int64_t *stats, const struct cpu_call *call, const float *g, int64_t n)
{
    const bool fp16 = call->desc->op->attrs.stats.overflow_skips;
    const float factor = (float)call->scalars[SW_SCALAR_OVERFLOW_FACTOR];
    double sum = 0;
    for (int64_t e = 0; e < n; e++) {
        if (!isfinite(g[e]) || (fp16 && fabsf(g[e] * factor) > largest_f16)) {
            stats[SW_EXACT_WORDS]++;
        } else {
            sum += (double)g[e] * (double)g[e];
        }
    }
    sw_exact_add(stats, sum);
}

/* Elements up to this size certainly pass the checks of stats_of_run. */
static double certain_limit(const struct cpu_call *call)
{
    const double factor = fabs((double)(float)call->scalars[SW_SCALAR_OVERFLOW_FACTOR]);
    if (!call->desc->op->attrs.stats.overflow_skips || factor == 0) {
        return 0x1.fffffep127;
    }
    const double limit = 0.99 * (double)largest_f16 / factor;
    return limit < 0x1.fffffep127 ? limit : 0x1.fffffep127;
}

static void stats_item(void *ctx, int64_t i_part, int i_worker)
{
    const struct job *job = ctx;
    const int64_t n_elems = job->streams.n_elems;
    const int64_t n_runs = sw_ceil_div(n_elems, CPU_STREAM_ELEMS);
    const double limit = certain_limit(job->call);
    int64_t *stats = (int64_t *)job->call->workspace + i_part * SW_STATS_WORDS;
    /* a single dense stream is read as it is */
    const struct cpu_grad_stream *only =
        job->streams.n == 1 && !job->streams.stream[0].index ? &job->streams.stream[0] : NULL;
    const size_t bytes = only ? sw_dtype_bytes(only->dtype) : 0;
    float buffer[CPU_STREAM_ELEMS];
    (void)i_worker;
    memset(stats, 0, SW_STATS_WORDS * sizeof *stats);
    for (int64_t i = n_runs * i_part / STATS_PARTS; i < n_runs * (i_part + 1) / STATS_PARTS; i++) {
        const int64_t start = i * CPU_STREAM_ELEMS,
                      n = sw_min_i64(CPU_STREAM_ELEMS, n_elems - start);
        if (n == CPU_STREAM_ELEMS && only &&
            job->vector->add_squares(
                only->dtype, only->data + (size_t)(only->first + start) * bytes, limit, stats)) {
            continue;
        }
        const float *g = sw_cpu_streams_sum(job->vector, &job->streams, start, n, buffer);
        if (n == CPU_STREAM_ELEMS && !only && job->vector->add_squares(SW_F32, g, limit, stats)) {
            continue;
        }
        for (int64_t e = 0; e < n; e += SW_SQUARES_RUN) {
            stats_of_run(stats, job->call, g + e, sw_min_i64(SW_SQUARES_RUN, n - e));
        }
    }
}

static void stats_run(const struct cpu_call *call)
{
    struct job job = {.vector = call->prepared, .call = call};
    const int64_t counted = call->desc->op->attrs.stats.counted;
    sw_cpu_streams_of(&job.streams, call, 1, -1);
    job.streams.n_elems =
        counted > 0 ? sw_min_i64(counted, job.streams.n_elems) : job.streams.n_elems;
    sw_pool_run(call->pool, STATS_PARTS, stats_item, &job);
    int64_t *stats = call->in[0];
    for (int64_t i = 0; i < STATS_PARTS; i++) {
        const int64_t *part = (const int64_t *)call->workspace + i * SW_STATS_WORDS;
        sw_exact_merge(stats, part);
        stats[SW_EXACT_WORDS] += part[SW_EXACT_WORDS];
    }
    sw_exact_carry(stats);
}

const struct cpu_kernel sw_cpu_grad_stats = {.name = "fast",
                                             .query = stats_query,
                                             .prepare = sw_cpu_prepare_vector,
                                             .release = sw_cpu_release_nothing,
                                             .run = stats_run};

/* ---- UPDATE: param, states.., streams.. ---- */

static void update_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel_info *out)
{
    const int n_states = desc->op->attrs.update.rule.n_states;
    out->supported =
        cpu_is_fast_float(desc->in[0].dtype) && sw_cpu_takes_streams(desc, 1 + n_states);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

struct cpu_update sw_cpu_update_of(const struct cpu_call *call)
{
    const struct sw_update_attrs *attrs = &call->desc->op->attrs.update.rule;
    const double *s = call->scalars;
    const struct sw_update_rates r = sw_update_rates_of(attrs, s);
    const bool corrected = attrs->kind == SW_UPDATE_ADAM && attrs->bias_correction;
    struct cpu_update u = {
        .attrs = attrs,
        .dtype = call->desc->in[0].dtype,
        .param = call->in[0],
        .draw = sw_cpu_draw_of_update(call),
        .origin =
            (uint64_t)(call->desc->op->attrs.update.origin + call->desc->op->attrs.update.first),
        .first_step = s[SW_SCALAR_STEP] == 1,
        .factor = (float)(s[SW_SCALAR_GRAD_FACTOR] * s[SW_SCALAR_CLIP]),
        .decay = (float)(1 - r.lr * attrs->weight_decay),
        .weight_decay = (float)attrs->weight_decay,
        .beta1 = (float)r.beta1,
        .one_minus_beta1 = (float)(1 - r.beta1),
        .beta2 = (float)r.beta2,
        .one_minus_beta2 = (float)(1 - r.beta2),
        .correction2 = (float)(corrected ? r.correction2 : 1),
        .eps = (float)attrs->eps,
        .step_size = (float)r.step_size,
        .one_minus_dampening = (float)(1 - attrs->dampening),
        .initial = (float)attrs->initial,
    };
    int i = 1;
    if (u.dtype != SW_F32) {
        u.master = call->in[i++];
    }
    for (int k = 0; k < 2 && i <= attrs->n_states; k++) {
        u.half = call->desc->in[i].dtype == SW_BF16;
        u.moment[k] = call->in[i++];
    }
    for (int k = 0; k < 2 && sw_update_codes(call->desc) > 0; k++) {
        u.scale[k] = call->in[i++];
    }
    return u;
}

static void update_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    struct cpu_streams_item item;
    (void)i_worker;
    const float *sum = sw_cpu_streams_item(job->vector, &job->streams, i_item, &item);
    job->vector->update(&job->update, item.start, item.n, sum);
}

static void update_run(const struct cpu_call *call)
{
    struct job job = {.vector = call->prepared, .call = call, .update = sw_cpu_update_of(call)};
    const struct sw_op_desc *desc = call->desc;
    const int64_t n = sw_update_elems(desc);
    sw_cpu_streams_of(&job.streams, call, 1 + desc->op->attrs.update.rule.n_states, n);
    if (sw_shape_elems(&desc->in[0].shape) > n) {
        job.update.param = (char *)job.update.param +
                           (size_t)desc->op->attrs.update.first * sw_dtype_bytes(desc->in[0].dtype);
    }
    for (int k = 0, i = 1 + desc->op->attrs.update.rule.n_states; k < job.streams.n; k++, i++) {
        job.streams.stream[k].first = sw_update_first(desc, i);
        i += job.streams.stream[k].index != NULL;
    }
    if (sw_update_codes(desc) > 0) {
        job.streams.n_elems = sw_update_coded_elems(desc);
    }
    sw_pool_run(call->pool, sw_ceil_div(job.streams.n_elems, CPU_STREAM_ELEMS), update_item, &job);
}

const struct cpu_kernel sw_cpu_update = {.name = "fast",
                                         .query = update_query,
                                         .prepare = sw_cpu_prepare_vector,
                                         .release = sw_cpu_release_nothing,
                                         .run = update_run};
