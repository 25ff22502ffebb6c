// SPDX-License-Identifier: Apache-2.0
// Any bytes as a shard of token ids (.bin): refused with the path, or samples whose ids are all in
// the vocabulary, the same twice.
#include "data/data.h"

#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { T = 3, VOCAB = 70000 };

static void fetch(const struct sw_dataset *dataset)
{
    int32_t rows[2][3][T];
    const int64_t n = sw_dataset_n_samples(dataset, SW_SPLIT_TRAIN);
    for (int64_t i = 0; i < n && i < 100; i++) {
        for (int k = 0; k < 2; k++) {
            SW_ASSERT(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, i, 1, rows[k][0], rows[k][1],
                                       rows[k][2]) == SW_OK);
        }
        SW_ASSERT(memcmp(rows[0], rows[1], sizeof rows[0]) == 0);
        for (int t = 0; t < T; t++) {
            SW_ASSERT(rows[0][0][t] >= 0 && rows[0][0][t] < VOCAB);
            SW_ASSERT(rows[0][1][t] >= 0 && rows[0][1][t] < VOCAB);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[256];
    const char *files[] = {path};
    struct sw_dataset *dataset;
    scratch_path(path, "x.bin");
    scratch_write("x.bin", data, size);
    const struct sw_dataset_options options = {
        .files = files, .n_files = 1, .vocab_size = VOCAB, .seq_len = T};
    if (sw_dataset_open(&options, &dataset) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), path, strlen(path)) == 0);
        return 0;
    }
    fetch(dataset);
    sw_dataset_close(dataset);
    return 0;
}
