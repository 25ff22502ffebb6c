// SPDX-License-Identifier: Apache-2.0
// Opens the tokenizer of support/chats.h, for tests of rooms that have tokenizers.
#pragma once

#include "spillway/data.h"
#include "support/chats.h"
#include "support/scratch.h"
#include "support/test.h"

/* Writes the tokenizer into test_folder() and opens it. template_text: NULL = none */
static inline sw_tokenizer *test_open_chat_tokenizer(const char *template_text)
{
    sw_tokenizer *tokenizer = NULL;
    test_write_chat_tokenizer(test_folder(), template_text);
    if (sw_tokenizer_open(test_folder(), NULL, &tokenizer) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return tokenizer;
}
