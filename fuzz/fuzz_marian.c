// SPDX-License-Identifier: Apache-2.0
// EXECUTIONS 2000
// Any bytes as vocab.json and, behind the first form feed, tokenizer_config.json, beside two small
// SentencePiece models: refused with a message that names a file, or a tokenizer that gives the
// same ids twice on either side.
#include "token/marian.h"

#include "encode_twice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One piece of a model: {1 text, 3 kind}. */
static size_t put_piece(char *out, const char *text, int kind)
{
    const size_t n = strlen(text);
    const char head[] = {1 << 3 | 2, (char)(n + 4), 1 << 3 | 2, (char)n};
    const char tail[] = {3 << 3, (char)kind};
    memcpy(out, head, sizeof head);
    memcpy(out + sizeof head, text, n);
    memcpy(out + sizeof head + n, tail, sizeof tail);
    return sizeof head + n + sizeof tail;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const pieces[] = {"a", "e", "l", "o", "\xE2\x96\x81", "tool"};
    char model[256];
    size_t n_model = put_piece(model, "<unk>", 2);
    for (size_t i = 0; i < SW_LEN(pieces); ++i) {
        n_model += put_piece(model + n_model, pieces[i], 1);
    }
    const char *text = size ? (const char *)data : "", *cut = memchr(text, '\f', size);
    const size_t n = cut ? (size_t)(cut - text) : size;
    const struct sw_named_text files[SW_MARIAN_FILES] = {
        [SW_MARIAN_SOURCE] = {"source.spm", model, n_model},
        [SW_MARIAN_TARGET] = {"target.spm", model, n_model},
        [SW_MARIAN_VOCAB] = {"vocab.json", text, n},
        [SW_MARIAN_SETTINGS] = {"settings", cut ? cut + 1 : NULL, cut ? size - n - 1 : 0}};
    struct sw_tokenizer *tokenizer;
    struct sw_ids ids = {0};
    sw_log_set_level(SW_LOG_ERROR);
    if (sw_marian_parse(files, &tokenizer) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), "vocab.json:", 11) == 0 ||
                  strncmp(sw_error_message(), "settings:", 9) == 0 ||
                  strncmp(sw_error_message(), "source.spm: none", 16) == 0);
        return 0;
    }
    encode_twice(tokenizer);
    SW_ASSERT(sw_tokenizer_encode_target(tokenizer, text, n, true, &ids) == SW_OK ||
              *sw_error_message());
    for (int64_t i = 0; i < ids.len; ++i) {
        SW_ASSERT(sw_tokenizer_token(tokenizer, ids.ptr[i], NULL));
    }
    sw_ids_fini(&ids);
    sw_tokenizer_close(tokenizer);
    return 0;
}
