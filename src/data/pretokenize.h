// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers: text to the words that a model cuts into tokens.
#pragma once

#include "data/regex.h"

enum sw_split_behavior {
    SW_SPLIT_ISOLATED,
    SW_SPLIT_REMOVED,
    SW_SPLIT_MERGED_WITH_PREVIOUS,
    SW_SPLIT_MERGED_WITH_NEXT,
    SW_SPLIT_CONTIGUOUS,
};

enum sw_prepend { SW_PREPEND_ALWAYS, SW_PREPEND_FIRST, SW_PREPEND_NEVER };

struct sw_split_step {
    bool by_script; /* pieces are runs of one script; the rest of the members is for other steps */
    /* What is a match: of the regex, a code point of a class, or, with neither, `mark`. */
    struct sw_regex *regex; /* owned */
    bool (*is_match)(int32_t code_point);
    enum sw_split_behavior behavior;
    bool invert; /* what lies between the matches counts as a match */
    /* Metaspace: spaces become `mark`, which also goes in front (FIRST: of what begins the text) of
     * what does not begin with it; split: each mark begins a word. */
    char mark[5]; /* one character; "" = this step is none */
    enum sw_prepend prepend;
    bool split;
    struct sw_str marked; /* scratch */
};

enum { SW_PRETOKENIZER_MAX_STEPS = 8 };

/* Steps in order. All zero: the whole text is one word. */
struct sw_pretokenizer {
    struct sw_split_step steps[SW_PRETOKENIZER_MAX_STEPS];
    int n_steps;
    bool prefix_space;      /* a space in front of each piece .. */
    int i_prefix_step;      /* .. that reaches this step (n_steps: each word) */
    struct sw_str prefixed; /* scratch */
};

/* The split pattern of GPT-2, which ByteLevel brings along. */
extern const char sw_gpt2_pattern[];
/* The one of Qwen2: each digit is a word. */
extern const char sw_qwen2_pattern[];

/* SW_E_UNSUP: more steps than SW_PRETOKENIZER_MAX_STEPS, or the pattern. */
sw_status sw_pretokenizer_add(struct sw_pretokenizer *pretokenizer, const char *pattern, size_t len,
                              bool literal, enum sw_split_behavior behavior, bool invert);
/* Splits at code points of a class. */
sw_status sw_pretokenizer_add_class(struct sw_pretokenizer *pretokenizer,
                                    bool (*is_match)(int32_t code_point),
                                    enum sw_split_behavior behavior);
/* mark: one character. */
sw_status sw_pretokenizer_add_metaspace(struct sw_pretokenizer *pretokenizer, const char *mark,
                                        enum sw_prepend prepend, bool split);
/* Splits where the script of the text changes. */
sw_status sw_pretokenizer_add_scripts(struct sw_pretokenizer *pretokenizer);
void sw_pretokenizer_fini(struct sw_pretokenizer *pretokenizer);

typedef sw_status (*sw_word_fn)(void *ctx, const char *word, size_t len);
/* Calls fn with each word of a well-formed text, in order; words are not empty, borrowed. first: no
 * other text comes before this one. */
sw_status sw_pretokenize(struct sw_pretokenizer *pretokenizer, const char *text, size_t len,
                         bool first, sw_word_fn fn, void *ctx);
