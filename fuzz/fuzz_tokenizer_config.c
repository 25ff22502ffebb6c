// SPDX-License-Identifier: Apache-2.0
// EXECUTIONS 5000
// Any bytes as tokenizer_config.json beside a small vocabulary: refused with a message that names
// the file or the vocabulary that they do not fit, or a tokenizer that gives the same ids twice,
// with tokens for its roles.
#include "token/pipeline.h"

#include <stdio.h>
#include <stdlib.h>

#include "encode_twice.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Without PCRE2 the vocabulary beside it is refused before any of its bytes is read. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    if (!SW_HAVE_PCRE2) {
        printf("skipped: this build has no PCRE2\n");
        exit(77);
    }
    return 0;
}

static const char vocab[] =
    "{\"a\":0,\"b\":1,\"ab\":2,\"H\":3,\"e\":4,\"l\":5,\"o\":6,\"\\u0120\":7,"
    "\"<|endoftext|>\":8,\"he\":9}";
static const char merges[] = "#version: 0.2\na b\n";

static void check_role(struct sw_pipeline *tokenizer, int32_t id)
{
    SW_ASSERT(id < 0 || sw_tokenizer_token(&tokenizer->super, id, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sw_tokenizer_options options = {0};
    const char *text = size ? (const char *)data : "";
    const struct sw_named_text files[SW_VOCAB_MERGES_FILES] = {
        {"vocab.json", vocab, sizeof(vocab) - 1},
        {"merges.txt", merges, sizeof(merges) - 1},
        {"settings", text, size},
        {"config.json", NULL, 0}};
    struct sw_pipeline *tokenizer;
    sw_log_set_level(SW_LOG_ERROR);
    if (sw_tokenizer_parse_vocab_merges(files, &options, &tokenizer) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), "settings:", 9) == 0 ||
                  strncmp(sw_error_message(), "vocab.json:", 11) == 0);
        return 0;
    }
    if (sw_tokenizer_parse_roles(&tokenizer->super, "settings", text, size) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), "settings:", 9) == 0);
    }
    check_role(tokenizer, sw_tokenizer_eos(&tokenizer->super));
    check_role(tokenizer, sw_tokenizer_bos(&tokenizer->super));
    check_role(tokenizer, sw_tokenizer_pad(&tokenizer->super));
    encode_twice(&tokenizer->super);
    sw_tokenizer_close(&tokenizer->super);
    return 0;
}
