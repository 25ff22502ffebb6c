// SPDX-License-Identifier: Apache-2.0
// A property that tests of several tokenizers check.
#pragma once

#include <string.h>

#include "support/test.h"
#include "token/token.h"

/* If any allocation fails, opening this tokenizer, encoding the input and decoding its ids report
 * it and leak nothing. */
static inline void sw_test_failing_allocations(const char *path, const char *input)
{
    struct sw_alloc_stats before, after;
    sw_status st = SW_E_NOMEM;
    sw_alloc_get_stats(&before);
    for (int64_t n = 1; st != SW_OK; ++n) {
        struct sw_tokenizer *tokenizer = NULL;
        struct sw_ids ids = {0};
        char *text = NULL;
        sw_alloc_fail_nth(n);
        st = sw_tokenizer_open(path, NULL, &tokenizer);
        st = st == SW_OK ? sw_tokenizer_encode(tokenizer, input, strlen(input), true, &ids) : st;
        st =
            st == SW_OK ? sw_tokenizer_decode(tokenizer, ids.ptr, ids.len, false, &text, NULL) : st;
        sw_alloc_fail_nth(0);
        sw_text_free(text);
        sw_tokenizer_close(tokenizer);
        sw_ids_fini(&ids);
        sw_alloc_get_stats(&after);
        if (st != SW_OK && st != SW_E_NOMEM) {
            fail_msg("allocation %lld: %s", (long long)n, sw_error_message());
        }
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
}
