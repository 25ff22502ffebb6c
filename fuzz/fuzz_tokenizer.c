// SPDX-License-Identifier: Apache-2.0
// Any bytes as tokenizer.json: refused with a message, or a tokenizer whose ids all have a token,
// whose two texts fit together as its template says, and which gives the same ids twice.
#include "token/pipeline.h"

#include "encode_twice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sw_tokenizer_options options = {0};
    struct sw_pipeline *tokenizer;
    sw_log_set_level(SW_LOG_ERROR);
    if (sw_tokenizer_parse_json("fuzz", (const char *)data, size, &options, &tokenizer) < 0) {
        SW_ASSERT(*sw_error_message());
        return 0;
    }
    encode_twice(&tokenizer->super);
    sw_tokenizer_close(&tokenizer->super);
    return 0;
}
