// SPDX-License-Identifier: Apache-2.0
// Compares the inputs of a training over all ranks, beyond what their engines compare: samples of
// each split of the data, and the flags. Puts the results of all ranks in the order of samples.
#include <string.h>

#include "job/training.h"

/* At most this many samples of each split are compared, spread evenly. */
enum { MOST_SAMPLES = 2048 };

static void digest_row(const struct sw_job_rows *rows, uint8_t digest[16])
{
    const struct sw_batch *batch = &rows->batches[0];
    memset(digest, 0, 16);
    for (int i = 0; i < batch->n_tensors; i++) { /* hash the first row of each input */
        const struct sw_view *view = &batch->tensors[i].view;
        const size_t bytes = (size_t)(sw_shape_elems(&view->shape) / rows->batch) * 4;
        sw_blake2s(digest, 16, view->data, bytes, digest, 16);
    }
}

static sw_status write_samples(const sw_dataset *dataset, enum sw_split split,
                               const struct sw_job_rows *rows, struct sw_str *out)
{
    const int64_t n = sw_dataset_n_samples(dataset, split);
    const int64_t looked = sw_min_i64(n, MOST_SAMPLES);
    sw_str_printf(out, "%lld samples;", (long long)n);
    for (int64_t i = 0; i < looked; i++) {
        uint8_t digest[16];
        SW_TRY(sw_job_rows_fetch(rows, dataset, split, n * i / looked, 1, 0));
        digest_row(rows, digest);
        sw_str_append(out, (const char *)digest, sizeof digest);
    }
    return SW_OK;
}

sw_status sw_job_agree(sw_comm *comm, const sw_dataset *dataset, const struct sw_job_rows *rows,
                       const char *flags)
{
    struct sw_str data = {0}, run = {0};
    struct sw_agreed items[2] = {
        {.what = "data", .hint = "the files must be the same on all hosts, in the same order"},
        {.what = "flags",
         .hint = "--steps, and what happens every so many steps, is the same on "
                 "all ranks of a run"}};
    sw_str_printf(&data, "%lld tokens;", (long long)sw_dataset_n_tokens(dataset));
    sw_status st = write_samples(dataset, SW_SPLIT_TRAIN, rows, &data);
    st = st < 0 ? st : write_samples(dataset, SW_SPLIT_VAL, rows, &data);
    sw_str_puts(&run, flags);
    const sw_status made = sw_engine_digest(&data, &items[0]),
                    made_too = sw_engine_digest(&run, &items[1]);
    SW_TRY(st);
    SW_TRY(made);
    SW_TRY(made_too);
    return sw_engine_compare(comm, items, 2);
}

/* The rank whose micro-batches data rank r computes, and that has its results. */
static int rank_of(const struct sw_engine_facts *facts, int r)
{
    int place[SW_AXIS_COUNT] = {0};
    sw_mesh_place_batch(&facts->mesh, r, place);
    return sw_mesh_rank(&facts->mesh, place);
}

void sw_job_in_order(const struct job *job, const float *all, int64_t n, int64_t width, float *out)
{
    const int ranks = job->facts.data.size;
    const int64_t rounds = sw_ceil_div(sw_ceil_div(n, job->batch), ranks);
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = i / job->batch;
        const int64_t round = rank_of(&job->facts, (int)(k % ranks)) * rounds + k / ranks;
        memcpy(out + width * i, all + width * (round * job->batch + i % job->batch),
               (size_t)width * sizeof *out);
    }
}
