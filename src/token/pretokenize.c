// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers as a cascade: each step cuts the pieces of the previous step and passes them on,
// so no list of pieces is made.
//
// ByteLevel is the last step. It puts a space before every piece that reaches it, if the file asks
// for one. GPT-2's pattern then splits the piece, as one more step.
#include "token/pretokenize.h"

#include "text/text.h"

#include <stdio.h>
#include <string.h>

const char sw_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char sw_qwen2_pattern[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                                " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static sw_status next_step(struct sw_pretokenizer *pretokenizer, struct sw_split_step **out)
{
    if (pretokenizer->n_steps == SW_PRETOKENIZER_MAX_STEPS) {
        return SW_FAIL(SW_E_UNSUP, "more than %d pre-tokenizers", SW_PRETOKENIZER_MAX_STEPS);
    }
    *out = &pretokenizer->steps[pretokenizer->n_steps];
    return SW_OK;
}

sw_status sw_pretokenizer_add(struct sw_pretokenizer *pretokenizer, const char *pattern, size_t len,
                              bool literal, enum sw_split_behavior behavior, bool invert)
{
    struct sw_split_step *step;
    SW_TRY(next_step(pretokenizer, &step));
    SW_TRY(sw_regex_open(pattern, len, literal, &step->regex));
    step->behavior = behavior;
    step->invert = invert;
    pretokenizer->n_steps++;
    return SW_OK;
}

sw_status sw_pretokenizer_add_class(struct sw_pretokenizer *pretokenizer,
                                    bool (*is_match)(int32_t code_point),
                                    enum sw_split_behavior behavior)
{
    struct sw_split_step *step;
    SW_TRY(next_step(pretokenizer, &step));
    step->is_match = is_match;
    step->behavior = behavior;
    pretokenizer->n_steps++;
    return SW_OK;
}

sw_status sw_pretokenizer_add_metaspace(struct sw_pretokenizer *pretokenizer, const char *mark,
                                        enum sw_prepend prepend, bool split)
{
    struct sw_split_step *step;
    SW_TRY(next_step(pretokenizer, &step));
    snprintf(step->mark, sizeof(step->mark), "%s", mark);
    step->behavior = SW_SPLIT_MERGED_WITH_NEXT;
    step->prepend = prepend;
    step->split = split;
    pretokenizer->n_steps++;
    return SW_OK;
}

sw_status sw_pretokenizer_add_scripts(struct sw_pretokenizer *pretokenizer)
{
    struct sw_split_step *step;
    SW_TRY(next_step(pretokenizer, &step));
    step->by_script = true;
    pretokenizer->n_steps++;
    return SW_OK;
}

void sw_pretokenizer_fini(struct sw_pretokenizer *pretokenizer)
{
    for (int i = 0; i < pretokenizer->n_steps; ++i) {
        sw_regex_close(pretokenizer->steps[i].regex);
        sw_str_fini(&pretokenizer->steps[i].marked);
    }
    sw_str_fini(&pretokenizer->prefixed);
    *pretokenizer = (struct sw_pretokenizer){0};
}

struct words {
    struct sw_pretokenizer *pretokenizer;
    sw_word_fn fn;
    void *ctx;
};

/* A piece of the text: the input of a step. */
struct span {
    const char *text;
    size_t len;
    bool first; /* start of the text */
};

static sw_status cut(const struct words *words, int i_step, struct span span);

/* A piece under construction from runs (matches and the text between them). */
struct piece {
    size_t first, end; /* first == end: none */
    bool match;        /* its last run was a match */
};

static sw_status flush(const struct words *words, int i_step, const struct span *of,
                       struct piece *piece)
{
    const size_t first = piece->first, len = piece->end - piece->first;
    piece->first = piece->end;
    return len > 0 ? cut(words, i_step + 1,
                         (struct span){of->text + first, len, of->first && first == 0})
                   : SW_OK;
}

/* Takes the next run, which extends the piece or ends it. */
static sw_status take_run(const struct words *words, int i_step, const struct span *of,
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
        SW_TRY(flush(words, i_step, of, piece));
        piece->first = first;
    }
    piece->end = end;
    piece->match = match;
    if (match && step->behavior == SW_SPLIT_REMOVED) {
        piece->first = end;
    }
    return SW_OK;
}

/* The first code point of a class. */
static void find_class(bool (*is_match)(int32_t code_point), const struct span *of, size_t from,
                       size_t *first, size_t *end)
{
    *first = *end = of->len;
    for (size_t pos = from; pos < of->len;) {
        const size_t at = pos;
        const int32_t code_point = sw_utf8_step(of->text, of->len, &pos);
        if (code_point >= 0 && is_match(code_point)) {
            *first = at;
            *end = pos;
            return;
        }
    }
}

/* Finds the next match; first = end = length: no match. */
static sw_status find_match(const struct sw_split_step *step, const struct span *of, size_t from,
                            size_t *first, size_t *end)
{
    if (step->regex) {
        return sw_regex_find(step->regex, of->text, of->len, from, first, end);
    }
    if (step->is_match) {
        find_class(step->is_match, of, from, first, end);
        return SW_OK;
    }
    const size_t n = strlen(step->mark);
    const char *at = memmem(of->text + from, of->len - from, step->mark, n);
    *first = at ? (size_t)(at - of->text) : of->len;
    *end = at ? *first + n : of->len;
    return SW_OK;
}

static sw_status split(const struct words *words, int i_step, struct span of)
{
    const struct sw_split_step *step = &words->pretokenizer->steps[i_step];
    struct piece piece = {0};
    size_t at = 0;
    while (at < of.len) {
        size_t first, end;
        SW_TRY(find_match(step, &of, at, &first, &end));
        if (at < first) {
            SW_TRY(take_run(words, i_step, &of, &piece, at, first, false));
        }
        if (first < end) {
            SW_TRY(take_run(words, i_step, &of, &piece, first, end, true));
        }
        at = end;
    }
    return flush(words, i_step, &of, &piece);
}

/* As in the reference, text before the first character of a script is dropped. */
static sw_status split_scripts(const struct words *words, int i_step, struct span of)
{
    struct piece piece = {0};
    int script = 0;
    for (size_t pos = 0; pos < of.len;) {
        const size_t at = pos;
        const int here = sw_char_script(sw_utf8_step(of.text, of.len, &pos));
        if (here > 0 && here != script) {
            SW_TRY(flush(words, i_step, &of, &piece));
            piece.first = at;
            script = here;
        }
        piece.end = script > 0 ? pos : piece.first;
    }
    return flush(words, i_step, &of, &piece);
}

/* Metaspace: writes the marked piece to the step's scratch. */
static sw_status mark_spaces(struct sw_split_step *step, struct span *span)
{
    struct sw_str *marked = &step->marked;
    const size_t n = strlen(step->mark);
    const bool begins =
        (span->len >= n && memcmp(span->text, step->mark, n) == 0) || span->text[0] == ' ';
    sw_str_clear(marked);
    if (!begins && (step->prepend == SW_PREPEND_ALWAYS ||
                    (step->prepend == SW_PREPEND_FIRST && span->first))) {
        sw_str_append(marked, step->mark, n);
    }
    for (size_t at = 0; at < span->len;) {
        const char *space = memchr(span->text + at, ' ', span->len - at);
        const size_t plain = space ? (size_t)(space - span->text) - at : span->len - at;
        sw_str_append(marked, span->text + at, plain);
        if (space) {
            sw_str_append(marked, step->mark, n);
        }
        at += plain + (space != NULL);
    }
    span->text = sw_str_text(marked);
    span->len = marked->len;
    return marked->failed
               ? SW_FAIL(SW_E_NOMEM, "out of host memory for a piece of %zu bytes", span->len)
               : SW_OK;
}

static sw_status put_prefix(struct sw_pretokenizer *pretokenizer, struct span *span)
{
    struct sw_str *prefixed = &pretokenizer->prefixed;
    sw_str_clear(prefixed);
    sw_str_putc(prefixed, ' ');
    sw_str_append(prefixed, span->text, span->len);
    if (prefixed->failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a piece of %zu bytes", span->len);
    }
    span->text = prefixed->ptr;
    span->len = prefixed->len;
    return SW_OK;
}

static sw_status cut(const struct words *words, int i_step, struct span span)
{
    struct sw_pretokenizer *pretokenizer = words->pretokenizer;
    if (pretokenizer->prefix_space && i_step == pretokenizer->i_prefix_step &&
        span.text[0] != ' ') {
        SW_TRY(put_prefix(pretokenizer, &span));
    }
    if (i_step == pretokenizer->n_steps) {
        return words->fn(words->ctx, span.text, span.len);
    }
    struct sw_split_step *step = &pretokenizer->steps[i_step];
    if (step->by_script) {
        return split_scripts(words, i_step, span);
    }
    if (step->mark[0]) {
        SW_TRY(mark_spaces(step, &span));
        if (!step->split) {
            return cut(words, i_step + 1, span);
        }
    }
    return split(words, i_step, span);
}

sw_status sw_pretokenize(struct sw_pretokenizer *pretokenizer, const char *text, size_t len,
                         bool first, sw_word_fn fn, void *ctx)
{
    const struct words words = {pretokenizer, fn, ctx};
    return len > 0 ? cut(&words, 0, (struct span){text, len, first}) : SW_OK;
}
