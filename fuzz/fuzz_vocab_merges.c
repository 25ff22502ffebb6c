// SPDX-License-Identifier: Apache-2.0
// Any bytes as vocab.json and, behind the first form feed, merges.txt: refused with a message that
// names the file, or a tokenizer that gives the same ids twice. Without PCRE2 both are read, and
// then refused for that.
#include "token/pipeline.h"

#include "encode_twice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sw_tokenizer_options options = {0};
    const char *text = size ? (const char *)data : "", *cut = memchr(text, '\f', size);
    const size_t n = cut ? (size_t)(cut - text) : size;
    const struct sw_named_text files[SW_VOCAB_MERGES_FILES] = {
        {"vocab.json", text, n}, {"merges.txt", cut ? cut + 1 : "", cut ? size - n - 1 : 0}};
    struct sw_pipeline *tokenizer;
    sw_log_set_level(SW_LOG_ERROR);
    if (sw_tokenizer_parse_vocab_merges(files, &options, &tokenizer) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), "vocab.json:", 11) == 0 ||
                  strncmp(sw_error_message(), "merges.txt:", 11) == 0 ||
                  (!SW_HAVE_PCRE2 && strstr(sw_error_message(), "this build has no PCRE2")));
        return 0;
    }
    encode_twice(&tokenizer->super);
    sw_tokenizer_close(&tokenizer->super);
    return 0;
}
