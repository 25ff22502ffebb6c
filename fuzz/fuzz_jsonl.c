// SPDX-License-Identifier: Apache-2.0
// Any bytes as JSON lines of texts, or of prompts and completions: refused with the path, or
// samples whose ids are all in the vocabulary.
#include "data/data.h"

#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void fuzz_end(void);

static struct sw_tokenizer *tokenizer; /* takes longer to make than all the rest */

void fuzz_end(void)
{
    sw_tokenizer_close(tokenizer);
}

enum { T = 4 };

static void fetch(const struct sw_dataset *dataset, int64_t vocab)
{
    int32_t ids[T], labels[T], mask[T];
    const int64_t n = sw_dataset_n_samples(dataset, SW_SPLIT_TRAIN);
    for (int64_t i = 0; i < n && i < 100; i++) {
        SW_ASSERT(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, i, 1, ids, labels, mask) == SW_OK);
        for (int t = 0; t < T; t++) {
            SW_ASSERT(ids[t] >= 0 && ids[t] < vocab);
            SW_ASSERT(labels[t] == SW_IGNORED_LABEL || (labels[t] >= 0 && labels[t] < vocab));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ,.!?\n";
    char path[256];
    const char *files[] = {path};
    struct sw_dataset *dataset;
    sw_log_set_level(SW_LOG_ERROR);
    scratch_path(path, "x.jsonl");
    scratch_write("x.jsonl", data, size);
    SW_ASSERT(tokenizer ||
              sw_tokenizer_open_chars("letters", letters, sizeof letters - 1, &tokenizer) == SW_OK);
    const struct sw_dataset_options options = {
        .files = files, .n_files = 1, .tokenizer = tokenizer, .seq_len = T};
    if (sw_dataset_open(&options, &dataset) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), path, strlen(path)) == 0);
    } else {
        fetch(dataset, sw_tokenizer_vocab_size(tokenizer));
        sw_dataset_close(dataset);
    }
    return 0;
}
