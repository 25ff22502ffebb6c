// SPDX-License-Identifier: Apache-2.0
// Unicode properties for tokenizers. White space and ideographs are built-in short lists. The rest
// comes from utf8proc.
#pragma once

#include "base/base.h"

/* Unicode's White_Space: the characters of \s in sw_regex_translate. */
bool sw_char_is_space(int32_t code_point);
/* The ideographs that BERT's normalizer puts spaces around. */
bool sw_char_is_ideograph(int32_t code_point);
/* The script, a number above 0; 0: the code point fits any script. Hiragana and Katakana are
 * Han. */
int sw_char_script(int32_t code_point);

/* ---- with utf8proc only; without it all are false (sw_char_is_word: ASCII) ---- */

/* Category P, and the rest of ASCII that is neither letter, digit nor space. */
bool sw_char_is_punctuation(int32_t code_point);
/* Category M: the marks that StripAccents removes. */
bool sw_char_is_mark(int32_t code_point);
/* Category Mn: the marks that BERT's normalizer removes as accents. */
bool sw_char_is_nonspacing_mark(int32_t code_point);
/* Categories Cc, Cf and Co. */
bool sw_char_is_control(int32_t code_point);
/* Categories L and N, and the underscore: the characters of \w. */
bool sw_char_is_word(int32_t code_point);
/* Case_Ignorable: characters that do not end a word. Used for the final sigma. */
bool sw_char_is_case_ignorable(int32_t code_point);
/* Cased: lower- and upper-case letters and related characters. Some case-ignorable ones are
 * missing. */
bool sw_char_is_cased(int32_t code_point);
/* The lower- or upper-case form of a code point, or itself. */
int32_t sw_char_lower(int32_t code_point);
int32_t sw_char_upper(int32_t code_point);

enum sw_unicode_form { SW_UNICODE_NFC, SW_UNICODE_NFD, SW_UNICODE_NFKC, SW_UNICODE_NFKD };
/* Appends the normal form of a well-formed text. */
sw_status sw_unicode_form(enum sw_unicode_form form, const char *text, size_t len,
                          struct sw_str *out);
/* End of the extended grapheme cluster that begins at `at` < len. The text is well-formed. */
size_t sw_unicode_cluster(const char *text, size_t len, size_t at);
