// SPDX-License-Identifier: Apache-2.0
// What tokenizers ask of Unicode. White space and ideographs are short lists and always there; the
// rest is utf8proc's.
#pragma once

#include "base/base.h"

/* Unicode's White_Space: the characters of \s in sw_regex_translate. */
bool sw_char_is_space(int32_t code_point);
/* The ideographs that BERT's normalizer puts spaces around. */
bool sw_char_is_ideograph(int32_t code_point);
/* The script, a number above 0; 0: the code point goes with any. Hiragana and Katakana are Han. */
int sw_char_script(int32_t code_point);

/* ---- with utf8proc alone; without, no character is any of it (of words: ASCII's) ---- */

/* Category P, and the rest of ASCII that is neither letter, digit nor space. */
bool sw_char_is_punctuation(int32_t code_point);
/* Category M: what StripAccents leaves out. */
bool sw_char_is_mark(int32_t code_point);
/* Category Mn: what BERT's normalizer leaves out with accents. */
bool sw_char_is_nonspacing_mark(int32_t code_point);
/* Categories Cc, Cf and Co. */
bool sw_char_is_control(int32_t code_point);
/* Categories L and N, and the underscore: what words of \w are made of. */
bool sw_char_is_word(int32_t code_point);
/* What stands between letters without ending a word, for the final sigma. */
bool sw_char_is_case_ignorable(int32_t code_point);
/* Letters that are small or capital, and others that Unicode counts with them; of those that are
 * case-ignorable only some. */
bool sw_char_is_cased(int32_t code_point);
/* Its small letter, its capital; or itself. */
int32_t sw_char_lower(int32_t code_point);
int32_t sw_char_upper(int32_t code_point);

enum sw_unicode_form { SW_UNICODE_NFC, SW_UNICODE_NFD, SW_UNICODE_NFKC, SW_UNICODE_NFKD };
/* Appends the normal form of a well-formed text. */
sw_status sw_unicode_form(enum sw_unicode_form form, const char *text, size_t len,
                          struct sw_str *out);
/* Where the extended grapheme cluster that begins at `at` ends; at < len, well-formed. */
size_t sw_unicode_cluster(const char *text, size_t len, size_t at);
