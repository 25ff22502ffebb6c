// SPDX-License-Identifier: Apache-2.0
// Decoders of tokenizer files turn tokens into text, step by step. Each step transforms the list of
// the step before. The text is the last list, joined.
#pragma once

#include "text/text.h"

enum sw_decode_kind {
    SW_DECODE_WORDPIECE, /* adds a space before tokens without prefix; clean: none before marks */
    SW_DECODE_METASPACE, /* the mark becomes a space, except in the first token */
    SW_DECODE_REPLACE,   /* replaces each match by `text` */
    SW_DECODE_BYTE_FALLBACK, /* runs of <0xNN> tokens become bytes */
    SW_DECODE_FUSE,          /* joins all tokens into one */
    SW_DECODE_STRIP,         /* strips the pattern from each token, up to left and right times */
    SW_DECODE_SUFFIX         /* the word suffix becomes a space; in the last token it is removed */
};

struct sw_decode_step {
    enum sw_decode_kind kind;
    struct sw_regex *regex; /* REPLACE; owned; NULL: matches `pattern` literally */
    /* Prefix of WORDPIECE, mark of METASPACE, suffix of SUFFIX, ..; owned, or NULL. */
    char *pattern, *text;
    bool clean;          /* WORDPIECE */
    bool keep_first;     /* METASPACE: marks in the first token become spaces, too */
    int64_t left, right; /* STRIP */
};

enum { SW_DECODER_MAX = 8 };

struct sw_decoder {
    struct sw_decode_step steps[SW_DECODER_MAX];
    int n_steps;
};

void sw_decoder_fini(struct sw_decoder *decoder);
/* Appends a step, all zero except its kind. SW_E_UNSUP: there are too many steps. */
sw_status sw_decoder_add(struct sw_decoder *decoder, enum sw_decode_kind kind,
                         struct sw_decode_step **out);

/* Removes the space before English punctuation and contractions, as transformers does if
 * clean_up_tokenization_spaces is true. */
void sw_clean_up_spaces(struct sw_str *text);

/* A list of texts, stored back to back. */
struct sw_texts {
    struct sw_str bytes;
    size_t *ends; /* [n] where each ends */
    size_t n, cap;
};
void sw_texts_fini(struct sw_texts *texts);
/* Closes a text: the bytes appended since the last end become one list item. */
sw_status sw_texts_end(struct sw_texts *texts);
sw_status sw_texts_add(struct sw_texts *texts, const char *text, size_t len);

/* Applies all steps to `tokens` in place. SW_E_FORMAT: the text grows beyond SW_DECODED_MOST_TIMES
 * its length plus SW_DECODED_MOST_MORE bytes. */
enum { SW_DECODED_MOST_TIMES = 64, SW_DECODED_MOST_MORE = 1024 };
sw_status sw_decoder_apply(const struct sw_decoder *decoder, struct sw_texts *tokens);
