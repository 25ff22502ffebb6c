// SPDX-License-Identifier: Apache-2.0
// text - UTF-8, properties and normal forms of code points, and the regular expressions that
// tokenizer files use.
#pragma once

#include "base/base.h"

/* ---- utf8.c: surrogates and overlong forms are not UTF-8, as in the Unicode standard ---- */

/* Returns the code point at text[*pos] and advances *pos past it. Ill-formed: returns -1, *pos
 * stays. */
int32_t sw_utf8_next(const char *text, size_t len, size_t *pos);
/* As sw_utf8_next, but an ill-formed sequence advances *pos by one byte. For loops over checked
 * text. */
int32_t sw_utf8_step(const char *text, size_t len, size_t *pos);
/* Whether a code point begins with this byte. */
static inline bool sw_utf8_begins(char byte)
{
    return ((unsigned char)byte & 0xC0) != 0x80;
}
/* Number of code points in a well-formed text. */
int64_t sw_utf8_count(const char *text, size_t len);
/* Offset of the first byte that is not UTF-8; len if there is none. */
size_t sw_utf8_valid_len(const char *text, size_t len);
/* SW_E_FORMAT naming the first bad byte and its offset; `name` says what the text is. */
sw_status sw_utf8_check(const char *name, const char *text, size_t len);
/* Encodes a code point. Returns the number of bytes, 1 to 4. */
size_t sw_utf8_put(int32_t code_point, char out[4]);
/* Appends text, replacing each maximal ill-formed part by U+FFFD (Unicode 3.9, as web decoders
 * do). */
void sw_utf8_append_lossy(struct sw_str *out, const char *bytes, size_t len);

/* ---- unicode.c, scripts.c: properties of code points ---- */

/* Unicode's White_Space: the characters of \s in sw_regex_translate. */
bool sw_char_is_space(int32_t code_point);
/* The ideographs that BERT's normalizer puts spaces around. */
bool sw_char_is_ideograph(int32_t code_point);
/* The script, a number above 0; 0: the code point fits any script. Hiragana and Katakana are
 * Han. */
int sw_char_script(int32_t code_point);

/* ---- with utf8proc only. Without it is_word, is_cased, lower and upper know ASCII, the other
 * tests are false, sw_unicode_form is SW_E_UNSUP, and a cluster is the rest of the text ---- */

/* Category P, and in ASCII all visible characters that are neither letter nor digit. */
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
/* The lower-, upper- or title-case form of a code point, or itself. */
int32_t sw_char_lower(int32_t code_point);
int32_t sw_char_upper(int32_t code_point);
int32_t sw_char_title(int32_t code_point);
/* Whether a capital sigma at text[at, end) ends a word: a letter precedes it and none follows,
 * ignoring marks. */
bool sw_text_is_final_sigma(const char *text, size_t len, size_t at, size_t end);

enum sw_unicode_form { SW_UNICODE_NFC, SW_UNICODE_NFD, SW_UNICODE_NFKC, SW_UNICODE_NFKD };
/* Appends the normal form of a well-formed text. */
sw_status sw_unicode_form(enum sw_unicode_form form, const char *text, size_t len,
                          struct sw_str *out);
/* End of the extended grapheme cluster that begins at `at` < len. The text is well-formed. */
size_t sw_unicode_cluster(const char *text, size_t len, size_t at);

/*
 * ---- regex.c ----
 *
 * Patterns have the meaning they have in the reference (Oniguruma, Unicode 16). PCRE2 runs them. A
 * construct that PCRE2 reads differently is rewritten if an exact equivalent exists, else refused
 * by name.
 */

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
