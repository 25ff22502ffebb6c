// SPDX-License-Identifier: Apache-2.0
// PCRE2: compile with JIT, find under a match limit. The only file that knows its header.
#include "text/regex.h"

#if SW_HAVE_PCRE2

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Limits of one match, in steps and in KiB of heap, because a pattern from a file may take
 * exponential time. They are far above what a split pattern needs on a million spaces. */
enum { MATCH_LIMIT = 20000000, HEAP_LIMIT_KIB = 65536, JIT_STACK_BYTES = 1 << 20 };
enum { MAX_PATTERN_BYTES = 1 << 16 };

struct sw_regex {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

void sw_regex_close(struct sw_regex *regex)
{
    if (!regex) {
        return;
    }
    pcre2_match_data_free(regex->match);
    pcre2_match_context_free(regex->context);
    pcre2_jit_stack_free(regex->stack);
    pcre2_code_free(regex->code);
    sw_free(regex);
}

static sw_status compile(const char *pattern, size_t len, uint32_t options, pcre2_code **out)
{
    int error;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    SW_TRY_ALLOC(context, "a regular expression");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *out = pcre2_compile((PCRE2_SPTR)pattern, len, options, &error, &at, context);
    pcre2_compile_context_free(context);
    if (!*out) {
        PCRE2_UCHAR text[160];
        pcre2_get_error_message(error, text, sizeof(text));
        return SW_FAIL(SW_E_FORMAT, "regular expression '%.80s': %s", pattern, (char *)text);
    }
    return SW_OK;
}

/* Compiles a pattern, or literal text with PCRE2_LITERAL. The other options are the same. */
static sw_status compile_any(const char *pattern, size_t len, bool literal, pcre2_code **out)
{
    sw_status st;
    struct sw_str translated = {0};
    if (literal) {
        return compile(pattern, len, PCRE2_UTF | PCRE2_LITERAL, out);
    }
    SW_TRY_OR(done, sw_regex_translate(pattern, len, &translated));
    SW_TRY_OR(done, compile(sw_str_text(&translated), translated.len, PCRE2_UTF | PCRE2_UCP, out));
done:
    sw_str_fini(&translated);
    return st;
}

sw_status sw_regex_open(const char *pattern, size_t len, bool literal, struct sw_regex **out)
{
    sw_status st;
    uint32_t matches_empty = 0;
    if (len > MAX_PATTERN_BYTES) {
        return SW_FAIL(SW_E_FORMAT, "regular expression of %zu bytes: longer than %d", len,
                       MAX_PATTERN_BYTES);
    }
    struct sw_regex *regex = sw_alloc_zero("regular expression", 1, sizeof(*regex));
    SW_TRY_ALLOC(regex, "a regular expression");
    SW_TRY_OR(fail, compile_any(pattern, len, literal, &regex->code));
    pcre2_pattern_info(regex->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty || len == 0) {
        st = SW_FAIL(SW_E_FORMAT, "regular expression '%.80s' matches the empty string", pattern);
        goto fail;
    }
    regex->match = pcre2_match_data_create(1, NULL);
    regex->context = pcre2_match_context_create(NULL);
    if (!regex->match || !regex->context) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a regular expression");
        goto fail;
    }
    pcre2_set_match_limit(regex->context, MATCH_LIMIT);
    pcre2_set_heap_limit(regex->context, HEAP_LIMIT_KIB);
    /* On a CPU without PCRE2 JIT the interpreter gives the same matches. */
    if (pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0) {
        regex->stack = pcre2_jit_stack_create(32768, JIT_STACK_BYTES, NULL);
        pcre2_jit_stack_assign(regex->context, NULL, regex->stack);
    }
    *out = regex;
    return SW_OK;
fail:
    sw_regex_close(regex);
    return st;
}

sw_status sw_regex_find(struct sw_regex *regex, const char *text, size_t len, size_t from,
                        size_t *out_first, size_t *out_end)
{
    const int n = pcre2_match(regex->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK,
                              regex->match, regex->context);
    if (n == PCRE2_ERROR_NOMATCH) {
        *out_first = *out_end = len;
        return SW_OK;
    }
    if (n < 0) {
        PCRE2_UCHAR reason[160];
        pcre2_get_error_message(n, reason, sizeof(reason));
        return SW_FAIL(SW_E_FORMAT, "splitting the text at byte offset %zu: %s", from,
                       (char *)reason);
    }
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(regex->match);
    if (span[0] >= span[1]) { /* \K and the like are refused when the pattern is read */
        return SW_FAIL(SW_E_FORMAT, "splitting the text at byte offset %zu: an empty match", from);
    }
    *out_first = span[0];
    *out_end = span[1];
    return SW_OK;
}

#else

sw_status sw_regex_open(const char *pattern, size_t len, bool literal, struct sw_regex **out)
{
    (void)pattern, (void)len, (void)literal, (void)out;
    return SW_FAIL(SW_E_UNSUP, "this build has no PCRE2, which splits text by patterns: "
                               "install libpcre2-dev and build again");
}

void sw_regex_close(struct sw_regex *regex)
{
    (void)regex;
}

sw_status sw_regex_find(struct sw_regex *regex, const char *text, size_t len, size_t from,
                        size_t *out_first, size_t *out_end)
{
    (void)regex, (void)text, (void)len, (void)from, (void)out_first, (void)out_end;
    return SW_FAIL(SW_E_UNSUP, "this build has no PCRE2: install libpcre2-dev and build again");
}

#endif
