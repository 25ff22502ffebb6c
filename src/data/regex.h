// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizer files, with the meaning they have in the reference (Oniguruma,
// Unicode 16). PCRE2 runs them; what PCRE2 would read differently is rewritten where an exact
// equivalent exists and refused by name where none does.
#pragma once

#include "base/base.h"

struct sw_regex;

/* Members of a class: \w of the reference's engine, which is alphabetic, marks, decimal digits,
 * connectors, joiners. The ranges are the alphabetic symbols (circled and squared letters). */
#define SW_WORD_CLASS                                                                              \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}"                       \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

/*
 * sw_regex_open - compile a pattern of a tokenizer file.
 *
 * literal      the pattern is a plain string
 *
 * SW_E_UNSUP   a construct that would not mean the same here; or this build has no PCRE2
 * SW_E_FORMAT  not a pattern, or one that matches the empty string
 */
sw_status sw_regex_open(const char *pattern, size_t len, bool literal, struct sw_regex **out);
void sw_regex_close(struct sw_regex *regex);

/*
 * sw_regex_find - the first match at or after `from`.
 *
 * text         [len] well-formed UTF-8; what lies before `from` is seen by look-behind
 * out_first    start of the match; len when there is none
 * out_end      its end; len when there is none
 */
sw_status sw_regex_find(struct sw_regex *regex, const char *text, size_t len, size_t from,
                        size_t *out_first, size_t *out_end);

/* The pattern in PCRE2's words, appended to out: a pure function of the pattern. */
sw_status sw_regex_translate(const char *pattern, size_t len, struct sw_str *out);
