// SPDX-License-Identifier: Apache-2.0
// Properties of every tokenizer: all ids have tokens, and the same text gives the same ids.
#pragma once

#include "token/pipeline.h"

#include <string.h>

/* Every flag of an added token, spaces, digits, marks, two scripts, an emoji. */
static const char encode_sample[] =
    "Hello  world's 1234\r\n\n  caf\xC3\xA9 e\xCC\x81 <|endoftext|> [MASK] tool\t"
    "\xE4\xB8\xAD\xE6\x96\x87 \xF0\x9F\x98\x80 \xC2\x85 x";

/* A pattern may be too slow for its limit: that is an error with a message, not a failure. */
static inline void encode_twice(struct sw_tokenizer *tokenizer)
{
    struct sw_ids ids = {0}, again = {0}, types = {0};
    struct sw_str text = {0};
    const size_t len = sizeof(encode_sample) - 1;
    if (sw_tokenizer_encode(tokenizer, encode_sample, len, true, &ids) < 0) {
        SW_ASSERT(*sw_error_message());
        sw_ids_fini(&ids);
        return;
    }
    for (int64_t i = 0; i < ids.len; ++i) {
        SW_ASSERT(sw_tokenizer_token(tokenizer, ids.ptr[i], NULL));
        SW_ASSERT(ids.ptr[i] < sw_tokenizer_vocab_size(tokenizer));
    }
    SW_ASSERT(sw_tokenizer_encode(tokenizer, encode_sample, len, true, &again) == SW_OK);
    SW_ASSERT(again.len == ids.len);
    SW_ASSERT(ids.len == 0 || memcmp(ids.ptr, again.ptr, (size_t)ids.len * sizeof(*ids.ptr)) == 0);
    SW_ASSERT(sw_tokenizer_encode_pair(tokenizer, encode_sample, len, "b", 1, true, &again,
                                       &types) == SW_OK);
    SW_ASSERT(again.len - ids.len == types.len);
    SW_ASSERT(sw_tokenizer_decode_str(tokenizer, ids.ptr, ids.len, true, &text) == SW_OK);
    sw_ids_fini(&ids);
    sw_ids_fini(&again);
    sw_ids_fini(&types);
    sw_str_fini(&text);
}
