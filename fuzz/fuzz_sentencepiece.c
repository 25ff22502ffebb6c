// SPDX-License-Identifier: Apache-2.0
// Any bytes as a SentencePiece model: refused with a message that names it, or a tokenizer whose
// ids all have a piece, and which gives the same ids twice.
#include "token/sentencepiece.h"

#include "encode_twice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_tokenizer *tokenizer;
    sw_log_set_level(SW_LOG_ERROR);
    if (sw_sentencepiece_parse("fuzz", size ? (const char *)data : "", size, &tokenizer) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), "fuzz: ", 6) == 0);
        return 0;
    }
    encode_twice(tokenizer);
    sw_tokenizer_close(tokenizer);
    return 0;
}
