// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers split a text into the words that a model cuts into tokens.
#pragma once

#include "text/text.h"

enum sw_split_behavior {
    SW_SPLIT_ISOLATED,
    SW_SPLIT_REMOVED,
    SW_SPLIT_MERGED_WITH_PREVIOUS,
    SW_SPLIT_MERGED_WITH_NEXT,
    SW_SPLIT_CONTIGUOUS,
};

enum sw_prepend { SW_PREPEND_ALWAYS, SW_PREPEND_FIRST, SW_PREPEND_NEVER };

struct sw_split_step {
    bool by_script; /* pieces are runs of one script; the other members are unused */
    /* A match is one of the regex, or a code point of a class. Without both, it is `mark`. */
    struct sw_regex *regex; /* owned */
    bool (*is_match)(int32_t code_point);
    enum sw_split_behavior behavior;
    bool invert; /* the text between matches counts as the match */
    /* Metaspace: spaces become `mark`. A piece without a leading mark gets one (FIRST: only at the
     * start of the text). split: each mark begins a word. */
    char mark[5]; /* one character; "": not a Metaspace step */
    enum sw_prepend prepend;
    bool split;
    struct sw_str marked; /* scratch */
};

enum { SW_PRETOKENIZER_MAX_STEPS = 8 };

/* Steps in order. All zero: the whole text is one word. */
struct sw_pretokenizer {
    struct sw_split_step steps[SW_PRETOKENIZER_MAX_STEPS];
    int n_steps;
    bool prefix_space;      /* puts a space before each piece */
    int i_prefix_step;      /* step before which that is done (n_steps: for each word) */
    struct sw_str prefixed; /* scratch */
};

/* The split pattern of GPT-2, which ByteLevel implies. */
extern const char sw_gpt2_pattern[];
/* The split pattern of Qwen2, where each digit is a word. */
extern const char sw_qwen2_pattern[];

/* SW_E_UNSUP: too many steps, or an unsupported pattern. */
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
/* Calls fn with each word of a well-formed text, in order. Words are borrowed and not empty. first:
 * no other text comes before this one. */
sw_status sw_pretokenize(struct sw_pretokenizer *pretokenizer, const char *text, size_t len,
                         bool first, sw_word_fn fn, void *ctx);
