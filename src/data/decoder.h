// SPDX-License-Identifier: Apache-2.0
// Decoders of tokenizer files: from tokens to text, step by step. Each step gets the list that the
// one before made; the text is what the last list says, joined.
#pragma once

#include "data/regex.h"

enum sw_decode_kind {
    SW_DECODE_WORDPIECE, /* a space before what does not continue; clean: spaces before marks go */
    SW_DECODE_METASPACE, /* the mark is a space, but in the first token */
    SW_DECODE_REPLACE,   /* each match, by `text` */
    SW_DECODE_BYTE_FALLBACK, /* neighbours <0x00> .. are bytes */
    SW_DECODE_FUSE,          /* one token of all */
    SW_DECODE_STRIP,         /* up to left and right times the pattern, at the ends of each */
    SW_DECODE_SUFFIX         /* the suffix of a word is a space, but in the last token nothing */
};

struct sw_decode_step {
    enum sw_decode_kind kind;
    struct sw_regex *regex; /* REPLACE: owned; NULL: the pattern is `pattern` */
    /* Prefix of WORDPIECE, mark of METASPACE, suffix of SUFFIX, ..; owned, or NULL. */
    char *pattern, *text;
    bool clean;          /* WORDPIECE */
    bool keep_first;     /* METASPACE: the first token's marks are spaces, too */
    int64_t left, right; /* STRIP */
};

enum { SW_DECODER_MAX = 8 };

struct sw_decoder {
    struct sw_decode_step steps[SW_DECODER_MAX];
    int n_steps;
};

void sw_decoder_fini(struct sw_decoder *decoder);
/* The next step, all zero but for its kind; SW_E_UNSUP: there are too many. */
sw_status sw_decoder_add(struct sw_decoder *decoder, enum sw_decode_kind kind,
                         struct sw_decode_step **out);

/* A list of texts, one behind the other. */
struct sw_texts {
    struct sw_str bytes;
    size_t *ends; /* [n] where each ends */
    size_t n, cap;
};
void sw_texts_fini(struct sw_texts *texts);
/* What was appended to `bytes` since is one more. */
sw_status sw_texts_end(struct sw_texts *texts);
sw_status sw_texts_add(struct sw_texts *texts, const char *text, size_t len);

/* All steps; tokens is replaced. SW_E_FORMAT: its text grows beyond SW_DECODED_MOST_TIMES its
 * length and SW_DECODED_MOST_MORE bytes. */
enum { SW_DECODED_MOST_TIMES = 64, SW_DECODED_MOST_MORE = 1024 };
sw_status sw_decoder_apply(const struct sw_decoder *decoder, struct sw_texts *tokens);
