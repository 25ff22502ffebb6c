// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizer files, with the meaning they have in the reference (Oniguruma,
// Unicode 16). PCRE2 runs them. A construct that PCRE2 reads differently
// is rewritten if an exact equivalent exists, else refused by name.
#pragma once

#include "base/base.h"

struct sw_regex;

/* Members of \w in the reference's engine: alphabetic, marks, decimal digits, connectors, joiners.
 * The ranges are alphabetic symbols (circled and squared letters). */
#define SW_WORD_CLASS                                                                              \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}"                       \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

/*
 * sw_regex_open - compile a pattern of a tokenizer file.
 *
 * literal      the pattern is a plain string
 *
 * SW_E_UNSUP   a construct that PCRE2 cannot reproduce, or the build lacks PCRE2
 * SW_E_FORMAT  an invalid pattern, or one that matches the empty string
 */
sw_status sw_regex_open(const char *pattern, size_t len, bool literal, struct sw_regex **out);
void sw_regex_close(struct sw_regex *regex);

/*
 * sw_regex_find - the first match at or after `from`.
 *
 * text         [len] well-formed UTF-8; look-behind sees the text before `from`
 * out_first    start of the match; len: no match
 * out_end      end of the match; len: no match
 */
sw_status sw_regex_find(struct sw_regex *regex, const char *text, size_t len, size_t from,
                        size_t *out_first, size_t *out_end);

/* Appends the pattern translated to PCRE2's syntax. Pure. */
sw_status sw_regex_translate(const char *pattern, size_t len, struct sw_str *out);
