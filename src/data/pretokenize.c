// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers as a cascade: each step cuts what the step before gives it and hands the pieces
// on, so no list of pieces is ever made.
//
// ByteLevel is the last of them: a space in front of every piece that reaches it, if the file asks
// for one, and then GPT-2's pattern, kept here as one more step.
#include "data/pretokenize.h"

#include <string.h>

const char sw_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

sw_status sw_pretokenizer_add(struct sw_pretokenizer *pretokenizer, const char *pattern, size_t len,
                              bool literal, enum sw_split_behavior behavior, bool invert)
{
    if (pretokenizer->n_steps == SW_PRETOKENIZER_MAX_STEPS) {
        return SW_FAIL(SW_E_UNSUP, "more than %d pre-tokenizers", SW_PRETOKENIZER_MAX_STEPS);
    }
    struct sw_split_step *step = &pretokenizer->steps[pretokenizer->n_steps];
    SW_TRY(sw_regex_open(pattern, len, literal, &step->regex));
    step->behavior = behavior;
    step->invert = invert;
    pretokenizer->n_steps++;
    return SW_OK;
}

void sw_pretokenizer_fini(struct sw_pretokenizer *pretokenizer)
{
    for (int i = 0; i < pretokenizer->n_steps; ++i) {
        sw_regex_close(pretokenizer->steps[i].regex);
    }
    sw_str_fini(&pretokenizer->prefixed);
    *pretokenizer = (struct sw_pretokenizer){0};
}

struct words {
    struct sw_pretokenizer *pretokenizer;
    sw_word_fn fn;
    void *ctx;
};

static sw_status cut(const struct words *words, int i_step, const char *text, size_t len);

/* A piece being put together from runs (matches and what lies between them). */
struct piece {
    size_t first, end; /* first == end: none */
    bool match;        /* its last run was a match */
};

static sw_status flush(const struct words *words, int i_step, const char *text, struct piece *piece)
{
    const size_t first = piece->first, len = piece->end - piece->first;
    piece->first = piece->end;
    return len > 0 ? cut(words, i_step + 1, text + first, len) : SW_OK;
}

/* The next run belongs to the piece, or ends it. */
static sw_status take_run(const struct words *words, int i_step, const char *text,
                          struct piece *piece, size_t first, size_t end, bool match)
{
    const struct sw_split_step *step = &words->pretokenizer->steps[i_step];
    const bool open = piece->first < piece->end;
    bool join = false;

    match = match != step->invert;
    switch (step->behavior) {
    case SW_SPLIT_ISOLATED:
    case SW_SPLIT_REMOVED:
        break;
    case SW_SPLIT_CONTIGUOUS:
        join = match == piece->match;
        break;
    case SW_SPLIT_MERGED_WITH_PREVIOUS:
        join = match && !piece->match;
        break;
    case SW_SPLIT_MERGED_WITH_NEXT:
        join = !match && piece->match;
        break;
    }
    if (!(open && join)) {
        SW_TRY(flush(words, i_step, text, piece));
        piece->first = first;
    }
    piece->end = end;
    piece->match = match;
    if (match && step->behavior == SW_SPLIT_REMOVED) {
        piece->first = end;
    }
    return SW_OK;
}

static sw_status split(const struct words *words, int i_step, const char *text, size_t len)
{
    struct sw_regex *regex = words->pretokenizer->steps[i_step].regex;
    struct piece piece = {0};
    size_t at = 0;
    while (at < len) {
        size_t first, end;
        SW_TRY(sw_regex_find(regex, text, len, at, &first, &end));
        if (at < first) {
            SW_TRY(take_run(words, i_step, text, &piece, at, first, false));
        }
        if (first < end) {
            SW_TRY(take_run(words, i_step, text, &piece, first, end, true));
        }
        at = end;
    }
    return flush(words, i_step, text, &piece);
}

static sw_status cut(const struct words *words, int i_step, const char *text, size_t len)
{
    struct sw_pretokenizer *pretokenizer = words->pretokenizer;
    if (pretokenizer->prefix_space && i_step == pretokenizer->i_prefix_step && text[0] != ' ') {
        struct sw_str *prefixed = &pretokenizer->prefixed;
        sw_str_clear(prefixed);
        sw_str_putc(prefixed, ' ');
        sw_str_append(prefixed, text, len);
        if (prefixed->failed) {
            return SW_FAIL(SW_E_NOMEM, "out of host memory for a piece of %zu bytes", len);
        }
        text = prefixed->ptr;
        len = prefixed->len;
    }
    if (i_step == pretokenizer->n_steps) {
        return words->fn(words->ctx, text, len);
    }
    return split(words, i_step, text, len);
}

sw_status sw_pretokenize(struct sw_pretokenizer *pretokenizer, const char *text, size_t len,
                         sw_word_fn fn, void *ctx)
{
    const struct words words = {pretokenizer, fn, ctx};
    return len > 0 ? cut(&words, 0, text, len) : SW_OK;
}
