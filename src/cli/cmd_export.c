// SPDX-License-Identifier: Apache-2.0
// spillway export - a checkpoint as a Hugging Face folder.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "spillway/checkpoint.h"
#include "spillway/data.h"
#include "spillway/tensor.h"

/* The tokenizer of a run stands beside its checkpoints; NULL where there is none. */
static const char *tokenizer_of(const char *checkpoint, char *buf, size_t cap)
{
    static const char *const above[] = {"",
                                        "/.."}; /* a folder of checkpoints stands for its newest */
    for (size_t i = 0; i < sizeof above / sizeof above[0]; i++) {
        snprintf(buf, cap, "%s%s/tokenizer", checkpoint, above[i]);
        if (access(buf, R_OK) == 0) {
            return buf;
        }
    }
    return NULL;
}

int sw_cmd_export(int argc, char **argv)
{
    const char *output = NULL, *dtype_name = "f32", *tokenizer_path = NULL;
    struct words words = {0};
    const struct flag flags[] = {
        {"--output", FLAG_TEXT, &output, "DIR", "the Hugging Face folder to write", 0},
        {"--dtype", FLAG_TEXT, &dtype_name, "f32|bf16|f16",
         "of the weights (f32, as checkpoints have them)", 0},
        {"--tokenizer", FLAG_TEXT, &tokenizer_path, "DIR",
         "put these tokenizer files beside them (those of the run)", 0},
    };
    const struct command command = {
        "export", "CHECKPOINT --output DIR [--dtype D] [--tokenizer DIR]",
        "Writes the weights of a checkpoint as a Hugging Face folder.", flags, 3};
    int status = cli_parse(&command, argc, argv, &words);
    const char *path = words.n == 1 ? words.items[0] : NULL;
    int dtype = strcmp(dtype_name, "f32") == 0    ? SW_F32
                : strcmp(dtype_name, "bf16") == 0 ? SW_BF16
                : strcmp(dtype_name, "f16") == 0  ? SW_F16
                                                  : -1;
    if (status < 0 && (!path || !output || dtype < 0)) {
        status = cli_fail(&command, CLI_REFUSED,
                          "wanted one CHECKPOINT, --output, and --dtype f32, bf16 or f16");
    }
    if (status < 0) {
        sw_tokenizer *tokenizer = NULL;
        char own[4096];
        tokenizer_path = tokenizer_path ? tokenizer_path : tokenizer_of(path, own, sizeof own);
        sw_status st = tokenizer_path ? sw_tokenizer_open(tokenizer_path, NULL, &tokenizer) : SW_OK;
        st = st < 0 ? st : sw_checkpoint_export(path, output, dtype);
        st = st < 0 || !tokenizer ? st : sw_tokenizer_save(tokenizer, output);
        sw_tokenizer_close(tokenizer);
        if (st >= 0) {
            printf("%s: %s weights\n", output, dtype_name);
        }
        status = st >= 0 ? CLI_DONE : cli_error(&command, CLI_FAILED);
    }
    cli_free_words(&words);
    return status;
}
