// SPDX-License-Identifier: Apache-2.0
// The contrastive loss over the pairs of the global batch (in-batch negatives; van den Oord et al.
// 2018, Henderson et al. 2017): the cross entropy of scale x cosine(anchor, each positive).
//
// A step runs twice (Gao et al. 2021). First every rank computes the vectors of its micro-batches,
// and gathers those of all. The loss and its gradients by the vectors follow from them, on the
// host, in double and in the order of pairs. Then forward and backward run, with a loss that is
// linear in the vectors and has these gradients. Gradients are those of the whole batch, and no
// micro-batch or rank changes a bit.
#include <math.h>
#include <string.h>

#include "job/training.h"
#include "spillway/comm.h"

struct sw_job_contrast {
    int64_t pairs, width; /* of the global batch, or of a batch of validation */
    int64_t rounds;       /* micro-batches of this rank */
    float *mine;          /* [rounds, 2 batch, width] */
    float *all;           /* [world, rounds, 2 batch, width] */
    float *vectors;       /* [2 pairs, width] anchor and positive of each pair, in order */
    double *units;        /* the same, of length 1 */
    double *lengths;      /* [2 pairs] */
    double *sums;         /* [pairs] log of the sum of exp(score) over an anchor's row */
    double *gradient;     /* [width] scratch */
};

void sw_job_close_contrast(struct job *job)
{
    struct sw_job_contrast *c = job->task.contrast;
    if (c) {
        sw_free(c->mine);
        sw_free(c->all);
        sw_free(c->vectors);
        sw_free(c->units);
        sw_free(c->lengths);
        sw_free(c->sums);
        sw_free(c->gradient);
        sw_free(c);
    }
}

sw_status sw_job_open_contrast(struct job *job)
{
    static const enum sw_axis others[] = {SW_AXIS_PIPE, SW_AXIS_TENSOR, SW_AXIS_CONTEXT,
                                          SW_AXIS_EXPERT};
    if (!sw_job_is_contrast(job)) {
        return SW_OK;
    }
    for (size_t i = 0; i < SW_LEN(others); i++) {
        if (sw_mesh_size(&job->facts.mesh, 1U << others[i]) > 1) {
            return SW_FAIL(SW_E_UNSUP,
                           "task \"%s\": ranks are data-parallel only; wanted spillway.mesh "
                           "without other axes",
                           job->task.task->name);
        }
    }
    struct sw_job_contrast *c = job->task.contrast = sw_alloc_zero("train", 1, sizeof *c);
    SW_TRY_ALLOC(c, "the vectors of a step");
    c->pairs = job->micro_batches * job->batch;
    c->width = job->facts.sizes.of[SW_DIM_LABELS];
    c->rounds = sw_ceil_div(job->micro_batches, job->facts.data.size);
    const size_t rows = 2 * (size_t)c->pairs, slice = (size_t)(c->rounds * 2 * job->batch);
    const size_t width = (size_t)c->width;
    c->mine = sw_alloc_zero("train", slice * width, sizeof *c->mine);
    c->all = sw_alloc_zero("train", slice * width * (size_t)job->facts.world.size, sizeof *c->all);
    c->vectors = sw_alloc("train", rows * width * sizeof *c->vectors);
    c->units = sw_alloc("train", rows * width * sizeof *c->units);
    c->lengths = sw_alloc("train", rows * sizeof *c->lengths);
    c->sums = sw_alloc("train", rows * sizeof *c->sums);
    c->gradient = sw_alloc("train", width * sizeof *c->gradient);
    const bool good = c->mine && c->all && c->vectors && c->units && c->lengths && c->sums;
    SW_TRY_ALLOC(good && c->gradient ? c : NULL, "the vectors of a step");
    return SW_OK;
}

/* ---- the loss, from vectors ---- */

/* Eight sums, so that a compiler may use vectors; their order is fixed. */
static double dot(const double *a, const double *b, int64_t n)
{
    double sums[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) {
            sums[k] += a[i + k] * b[i + k];
        }
    }
    for (int k = 0; i < n; i++, k++) {
        sums[k] += a[i] * b[i];
    }
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

static const double *unit_of(const struct sw_job_contrast *c, int64_t pair, int side)
{
    return c->units + (2 * pair + side) * c->width;
}

static double score_of(const struct sw_job_contrast *c, double scale, int64_t anchor,
                       int64_t positive)
{
    return scale * dot(unit_of(c, anchor, 0), unit_of(c, positive, 1), c->width);
}

/* Length 1, as torch's normalize: a vector of 0 stays 0. */
static void normalise(struct sw_job_contrast *c, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        double *u = c->units + r * c->width;
        for (int64_t i = 0; i < c->width; i++) {
            u[i] = (double)c->vectors[r * c->width + i];
        }
        const double length = sqrt(dot(u, u, c->width));
        c->lengths[r] = length > 1e-12 ? length : 1e-12;
        for (int64_t i = 0; i < c->width; i++) {
            u[i] /= c->lengths[r];
        }
    }
}

/* The sums of an anchor's row among n pairs. Returns whether its own positive is the nearest. */
static bool sum_row(struct sw_job_contrast *c, double scale, int64_t n, int64_t anchor)
{
    const double own = score_of(c, scale, anchor, anchor);
    double sum = 0; /* of exp(score - own score), which overflows no earlier than a loss of 700 */
    bool nearest = true;
    for (int64_t j = 0; j < n; j++) {
        const double score = score_of(c, scale, anchor, j);
        sum += exp(score - own);
        nearest = nearest && (j == anchor || score < own);
    }
    c->sums[anchor] = own + log(sum);
    return nearest;
}

static double loss_of(const struct sw_job_contrast *c, double scale, int64_t pair)
{
    return c->sums[pair] - score_of(c, scale, pair, pair);
}

/* The gradient by a vector of the sum of all losses. */
static void gradient_of(struct sw_job_contrast *c, double scale, int64_t pair, int side,
                        double *out)
{
    const double *u = unit_of(c, pair, side);
    memset(out, 0, (size_t)c->width * sizeof *out);
    for (int64_t j = 0; j < c->pairs; j++) {
        const int64_t anchor = side == 0 ? pair : j, positive = side == 0 ? j : pair;
        const double p = exp(score_of(c, scale, anchor, positive) - c->sums[anchor]);
        const double weight = scale * (p - (anchor == positive));
        const double *other = unit_of(c, j, 1 - side);
        for (int64_t i = 0; i < c->width; i++) {
            out[i] += weight * other[i];
        }
    }
    const double along = dot(out, u, c->width);
    for (int64_t i = 0; i < c->width; i++) {
        out[i] = (out[i] - along * u[i]) / c->lengths[2 * pair + side];
    }
}

/* ---- a step ---- */

static float *input(const struct job *job, int64_t i, const char *name)
{
    const struct sw_batch *batch = &job->rows.batches[i];
    for (int k = 0; k < job->rows.n_inputs; k++) {
        if (strcmp(batch->tensors[k].name, name) == 0) {
            return batch->tensors[k].view.data;
        }
    }
    return NULL;
}

/* Computes the vectors of micro-batch i of this rank. */
static sw_status embed(struct job *job, int64_t i, float *out)
{
    const int64_t rows = 2 * job->batch, width = job->task.contrast->width;
    double sums[SW_ENGINE_MAX_SUMS];
    memset(input(job, i, "labels"), 0, (size_t)(rows * width) * sizeof(float));
    memset(input(job, i, SW_TASK_OFFSETS), 0, (size_t)rows * sizeof(float));
    SW_TRY(sw_engine_evaluate(job->engine, &job->rows.batches[i], sums));
    return sw_engine_evaluated(job->engine, "embeddings", out);
}

/* Computes the vectors of all ranks. A rank without a micro-batch in the last round takes part. */
static sw_status gather(struct job *job)
{
    struct sw_job_contrast *c = job->task.contrast;
    const int64_t slice = 2 * job->batch * c->width;
    for (int64_t j = 0; j < c->rounds; j++) {
        SW_TRY(embed(job, sw_min_i64(j, sw_max_i64(job->local, 1) - 1), c->mine + j * slice));
    }
    const float *all = c->mine;
    if (job->facts.world.size > 1) {
        SW_TRY(sw_comm_all_gather(job->comm, c->mine, c->all,
                                  (size_t)(c->rounds * slice) * sizeof *c->mine,
                                  "the vectors of a step"));
        all = c->all;
    }
    sw_job_in_order(job, all, c->pairs, 2 * c->width, c->vectors);
    return SW_OK;
}

/* Writes what the loss of micro-batch i reads: gradients by its vectors, and offsets. */
static void put_gradients(const struct job *job, double scale, int64_t i)
{
    struct sw_job_contrast *c = job->task.contrast;
    const int64_t k = i * job->facts.data.size + job->facts.data.rank;
    float *gradients = input(job, i, "labels"), *offsets = input(job, i, SW_TASK_OFFSETS);
    for (int64_t r = 0; r < 2 * job->batch; r++) {
        const int64_t pair = k * job->batch + r / 2;
        const float *vector = c->vectors + (2 * k * job->batch + r) * c->width;
        double offset = r % 2 == 0 ? loss_of(c, scale, pair) : 0;
        gradient_of(c, scale, pair, (int)(r % 2), c->gradient);
        for (int64_t e = 0; e < c->width; e++) {
            const float g = (float)c->gradient[e];
            gradients[r * c->width + e] = g;
            offset -= (double)(g * vector[e]);
        }
        offsets[r] = (float)offset;
    }
}

sw_status sw_job_contrast(struct job *job)
{
    struct sw_job_contrast *c = job->task.contrast;
    if (!c) {
        return SW_OK;
    }
    const double scale = job->facts.config->spillway.contrastive.scale;
    c->pairs = job->micro_batches * job->batch;
    SW_TRY(gather(job));
    normalise(c, 2 * c->pairs);
    for (int64_t p = 0; p < c->pairs; p++) {
        sum_row(c, scale, c->pairs, p);
    }
    for (int64_t j = 0; j < job->local; j++) {
        put_gradients(job, scale, j);
    }
    return SW_OK;
}

sw_status sw_job_contrast_validate(struct job *job, int64_t first, double sums[4])
{
    struct sw_job_contrast *c = job->task.contrast;
    const double scale = job->facts.config->spillway.contrastive.scale;
    const int64_t of = sw_dataset_n_samples(job->dataset, SW_SPLIT_VAL);
    const int64_t n = sw_min_i64(of - first, job->batch);
    SW_TRY(embed(job, 0, c->vectors));
    normalise(c, 2 * n);
    for (int64_t p = 0; p < n; p++) {
        sums[2] += sum_row(c, scale, n, p);
        sums[0] += loss_of(c, scale, p);
    }
    sums[1] += (double)n;
    sums[3] += (double)n;
    return SW_OK;
}
