// SPDX-License-Identifier: Apache-2.0
// Normalizers of tokenizer files: steps that transform a text before it is cut into words. The
// names are those of tokenizer.json.
#pragma once

#include "text/text.h"
#include "token/charsmap.h"

enum sw_normal_form {
    SW_NORMAL_NFC = SW_UNICODE_NFC,
    SW_NORMAL_NFD = SW_UNICODE_NFD,
    SW_NORMAL_NFKC = SW_UNICODE_NFKC,
    SW_NORMAL_NFKD = SW_UNICODE_NFKD,
    SW_NORMAL_LOWER,
    SW_NORMAL_STRIP_ACCENTS, /* leaves out marks */
    SW_NORMAL_BERT,
    SW_NORMAL_PRECOMPILED, /* by the charsmap: clusters of up to 5 bytes, else code points */
    SW_NORMAL_STRIP,       /* white space at the ends */
    SW_NORMAL_REPLACE,     /* replaces each match by `text` */
    SW_NORMAL_PREPEND,     /* puts `text` before a text that is not empty */
    SW_NORMAL_NMT          /* removes control characters; other white space becomes a space */
};

struct sw_normal_step {
    enum sw_normal_form form;
    bool left, right;                       /* STRIP */
    bool clean, ideographs, accents, lower; /* BERT; accents: removes them */
    struct sw_regex *regex;                 /* REPLACE; owned; NULL: match `literal` */
    char *literal, *text;                   /* [literal_len], [text_len]; owned */
    size_t literal_len, text_len;
    struct sw_charsmap charsmap; /* PRECOMPILED */
};

enum { SW_NORMALIZER_MAX = 16 };

/* Limit on growth: a factor of the text's length, plus a constant in bytes. Normal forms of Unicode
 * make at most 11 bytes of one. */
enum { SW_NORMAL_MOST_TIMES = 64, SW_NORMAL_MOST_MORE = 1024 };
static inline size_t sw_normal_most(size_t len)
{
    return SW_NORMAL_MOST_TIMES * len + SW_NORMAL_MOST_MORE;
}

/* All zero: text stays as it is. */
struct sw_normalizer {
    struct sw_normal_step steps[SW_NORMALIZER_MAX];
    int n_steps;
};

void sw_normalizer_fini(struct sw_normalizer *normalizer);
/* Looks up a form that tokenizer.json gives by name alone. False: there is no such form. */
bool sw_normal_form_by_name(const char *name, enum sw_normal_form *out);
/* Appends a step, all zero except its form. SW_E_UNSUP: there are too many steps. */
sw_status sw_normalizer_add(struct sw_normalizer *normalizer, enum sw_normal_form form,
                            struct sw_normal_step **out);
/* SW_E_UNSUP if a step needs utf8proc and the build lacks it. Called when a tokenizer is opened. */
sw_status sw_normalizer_check(const struct sw_normalizer *normalizer);
/* out is replaced. text is well-formed UTF-8. SW_E_FORMAT: it grows beyond sw_normal_most. */
sw_status sw_normalizer_apply(const struct sw_normalizer *normalizer, const char *text, size_t len,
                              struct sw_str *out);
