// SPDX-License-Identifier: Apache-2.0
// What the ranks of a training compare beside what their engines do: the data, by samples of each
// split, and the flags.
#include "job/private.h"

/* So many samples of each split are compared, spread over all; smaller data whole. */
enum { MOST_SAMPLES = 2048 };

static sw_status write_samples(const sw_dataset *dataset, enum sw_split split, int64_t tokens,
                               int32_t *rows, struct sw_str *out)
{
    const int64_t n = sw_dataset_n_samples(dataset, split);
    const int64_t looked = sw_min_i64(n, MOST_SAMPLES);
    sw_str_printf(out, "%lld samples of %lld;", (long long)n, (long long)tokens);
    for (int64_t i = 0; i < looked; i++) {
        uint8_t digest[16];
        SW_TRY(sw_dataset_fetch(dataset, split, n * i / looked, 1, rows, rows + tokens, NULL));
        sw_blake2s(NULL, 0, rows, 2 * (size_t)tokens * sizeof *rows, digest, sizeof digest);
        sw_str_append(out, (const char *)digest, sizeof digest);
    }
    return SW_OK;
}

sw_status sw_job_agree(sw_comm *comm, const sw_dataset *dataset, int64_t tokens, const char *flags)
{
    struct sw_str data = {0}, run = {0};
    struct sw_agreed items[2] = {
        {.what = "data", .hint = "the files must be the same on all hosts, in the same order"},
        {.what = "flags",
         .hint = "--steps, and what happens every so many steps, is the same on "
                 "all ranks of a run"}};
    int32_t *rows = sw_alloc("train", 2 * (size_t)tokens * sizeof *rows);
    SW_TRY_ALLOC(rows, "a sample");
    sw_str_printf(&data, "%lld tokens;", (long long)sw_dataset_n_tokens(dataset));
    sw_status st = write_samples(dataset, SW_SPLIT_TRAIN, tokens, rows, &data);
    st = st < 0 ? st : write_samples(dataset, SW_SPLIT_VAL, tokens, rows, &data);
    sw_free(rows);
    sw_str_puts(&run, flags);
    const sw_status made = sw_engine_digest(&data, &items[0]),
                    made_too = sw_engine_digest(&run, &items[1]);
    SW_TRY(st);
    SW_TRY(made);
    SW_TRY(made_too);
    return sw_engine_compare(comm, items, 2);
}
