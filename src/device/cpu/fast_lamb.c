// SPDX-License-Identifier: Apache-2.0
// LAMB_MOMENTS and LAMB_APPLY. Items are runs of elements as in fast_streams.c. The sums of squares
// are those of GRAD_STATS, over the weights and over their directions.
#include <math.h>
#include <string.h>

#include "device/cpu/fast_streams.h"

struct job {
    const struct cpu_vector *vector;
    struct cpu_streams streams;
    struct cpu_update update;
    int64_t *parts; /* [NORM_PARTS, SW_LAMB_WORDS] */
    int64_t n_elems, n_counted;
};

enum { NORM_PARTS = 64 }; /* items, each with accumulators of its own in the workspace */

/* True if the vector kernels support the parameter and its states. */
static bool takes_param(const struct sw_op_desc *desc)
{
    return cpu_is_fast_float(desc->in[0].dtype);
}

/* ---- LAMB_MOMENTS: param, states.., streams.. -> m, v, norms ---- */

static void moments_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                          struct sw_kernel_info *out)
{
    out->supported =
        takes_param(desc) && sw_cpu_takes_streams(desc, 1 + desc->op->attrs.update.rule.n_states);
    out->workspace_bytes = (size_t)NORM_PARTS * SW_LAMB_WORDS * sizeof(int64_t);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void add_run(int64_t *stats, const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t e = 0; e < n; e++) {
        if (isfinite(x[e])) {
            sum += (double)x[e] * (double)x[e];
        } else {
            stats[SW_EXACT_WORDS]++;
        }
    }
    sw_exact_add(stats, sum);
}

void sw_cpu_add_squares(const struct cpu_vector *vector, int64_t *stats, const float *x, int64_t n)
{
    if (n == CPU_STREAM_ELEMS && vector->add_squares(SW_F32, x, 0x1.fffffep127, stats)) {
        return;
    }
    for (int64_t e = 0; e < n; e += SW_SQUARES_RUN) {
        add_run(stats, x + e, sw_min_i64(SW_SQUARES_RUN, n - e));
    }
}

static void moments_item(void *ctx, int64_t i_part, int i_worker)
{
    const struct job *job = ctx;
    const int64_t n_items = sw_ceil_div(job->n_elems, CPU_STREAM_ELEMS);
    int64_t *norms = job->parts + i_part * SW_LAMB_WORDS;
    float sums[CPU_STREAM_ELEMS], w[CPU_STREAM_ELEMS], direction[CPU_STREAM_ELEMS];
    (void)i_worker;
    memset(norms, 0, SW_LAMB_WORDS * sizeof *norms);
    const int64_t end = n_items * (i_part + 1) / NORM_PARTS;
    for (int64_t i = n_items * i_part / NORM_PARTS; i < end; i++) {
        const int64_t start = i * CPU_STREAM_ELEMS;
        const int64_t n = sw_min_i64(CPU_STREAM_ELEMS, job->n_elems - start);
        const float *sum = sw_cpu_streams_sum(job->vector, &job->streams, start, n, sums);
        job->vector->lamb_moments(&job->update, start, n, sum, w, direction);
        const int64_t counted = sw_min_i64(sw_max_i64(job->n_counted - start, 0), n);
        sw_cpu_add_squares(job->vector, norms, w, counted);
        sw_cpu_add_squares(job->vector, norms + SW_STATS_WORDS, direction, counted);
    }
}

static void moments_run(const struct cpu_call *call)
{
    struct job job = {.vector = call->prepared,
                      .update = sw_cpu_update_of(call),
                      .parts = call->workspace,
                      .n_elems = call->desc->op->attrs.update.n_elems};
    job.n_counted = job.n_elems - call->desc->op->attrs.update.n_shared;
    sw_cpu_streams_of(&job.streams, call, 1 + job.update.attrs->n_states, job.n_elems);
    sw_pool_run(call->pool, NORM_PARTS, moments_item, &job);
    sw_cpu_lamb_merge(call->out[2], job.parts, NORM_PARTS);
}

const struct cpu_kernel sw_cpu_lamb_moments = {.name = "fast",
                                               .query = moments_query,
                                               .prepare = sw_cpu_prepare_vector,
                                               .release = sw_cpu_release_nothing,
                                               .run = moments_run};

/* ---- LAMB_APPLY: param, states.., norms, ratio ---- */

static void apply_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                        struct sw_kernel_info *out)
{
    out->supported = takes_param(desc);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void apply_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const int64_t start = i_item * CPU_STREAM_ELEMS;
    (void)i_worker;
    job->vector->lamb_apply(&job->update, start,
                            sw_min_i64(CPU_STREAM_ELEMS, job->n_elems - start));
}

static void apply_run(const struct cpu_call *call)
{
    struct job job = {.vector = call->prepared,
                      .update = sw_cpu_update_of(call),
                      .n_elems = call->desc->op->attrs.update.n_elems};
    const int i_norms = 1 + job.update.attrs->n_states;
    const double ratio = sw_cpu_lamb_ratio(job.update.attrs, call->in[i_norms]);
    job.update.step_size =
        (float)(sw_update_rates_of(job.update.attrs, call->scalars).step_size * ratio);
    sw_pool_run(call->pool, sw_ceil_div(job.n_elems, CPU_STREAM_ELEMS), apply_item, &job);
    *(float *)call->in[i_norms + 1] = (float)ratio;
}

const struct cpu_kernel sw_cpu_lamb_apply = {.name = "fast",
                                             .query = apply_query,
                                             .prepare = sw_cpu_prepare_vector,
                                             .release = sw_cpu_release_nothing,
                                             .run = apply_run};
