// SPDX-License-Identifier: Apache-2.0
// Added tokens.
//
// The order is that of the reference (tokenizers 0.23): matches are found in the whole text first,
// then the flags apply. White space consumed by an rstrip token can thus also match a later token.
#include "token/added.h"

#include "text/text.h"

#include <stdlib.h>
#include <string.h>

static const char word_pattern[] = "[" SW_WORD_CLASS "]";

static int compare_text(const struct sw_added_token *a, const struct sw_added_token *b)
{
    const size_t n = a->len < b->len ? a->len : b->len;
    const int order = memcmp(a->text, b->text, n);
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

static int compare(const void *a, const void *b)
{
    const struct sw_added_token *x = a, *y = b;
    const int order = compare_text(x, y);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

sw_status sw_added_set_init(struct sw_added_set *set, struct sw_added_token *tokens, size_t n)
{
    bool any_single_word = false;
    size_t kept = 0;
    *set = (struct sw_added_set){.tokens = tokens};
    if (n == 0) {
        return SW_OK;
    }
    qsort(tokens, n, sizeof(*tokens), compare);
    for (size_t i = 0; i < n; ++i) {
        if (kept > 0 && compare_text(&tokens[kept - 1], &tokens[i]) == 0) {
            continue;
        }
        SW_TRY(sw_prefix_add(&set->texts, tokens[i].text, tokens[i].len, (int32_t)kept));
        tokens[kept++] = tokens[i];
        any_single_word = any_single_word || tokens[i].single_word;
    }
    set->n = kept;
    sw_prefix_sort(&set->texts);
    if (any_single_word) {
        SW_TRY(sw_regex_open(word_pattern, sizeof(word_pattern) - 1, false, &set->word));
    }
    return SW_OK;
}

void sw_added_set_fini(struct sw_added_set *set)
{
    sw_free(set->tokens);
    sw_prefix_fini(&set->texts);
    sw_regex_close(set->word);
    *set = (struct sw_added_set){0};
}

/* The longest token at text[at], or NULL. */
static const struct sw_added_token *match_at(const struct sw_added_set *set, const char *text,
                                             size_t len, size_t at)
{
    int32_t i;
    return sw_prefix_longest(&set->texts, text + at, len - at, &i) > 0 ? &set->tokens[i] : NULL;
}

static size_t previous_char(const char *text, size_t at)
{
    do {
        at--;
    } while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

/* Start of the white space before `at`, but not before `from`. */
static size_t space_before(const char *text, size_t from, size_t at)
{
    while (at > from) {
        const size_t before = previous_char(text, at);
        size_t pos = before;
        if (!sw_char_is_space(sw_utf8_next(text, at, &pos))) {
            break;
        }
        at = before;
    }
    return at;
}

/* A match inside white space consumed by another takes the rest of it, so it is walked only
 * once. */
static size_t space_after(struct sw_added_scan *scan, size_t at)
{
    size_t pos = at;
    if (at >= scan->spaces_end) {
        scan->spaces_end = at;
        while (pos < scan->len && sw_char_is_space(sw_utf8_next(scan->text, scan->len, &pos))) {
            scan->spaces_end = pos;
        }
    }
    return scan->spaces_end;
}

static sw_status is_word(const struct sw_added_set *set, const char *text, size_t first, size_t end,
                         bool *out)
{
    size_t match_first, match_end;
    SW_TRY(sw_regex_find(set->word, text + first, end - first, 0, &match_first, &match_end));
    *out = match_first == 0 && match_end > 0;
    return SW_OK;
}

static sw_status stands_alone(const struct sw_added_scan *scan, size_t first, size_t end, bool *out)
{
    bool word_before = false, word_after = false;
    if (first > 0) {
        SW_TRY(
            is_word(scan->set, scan->text, previous_char(scan->text, first), first, &word_before));
    }
    if (end < scan->len) {
        size_t after = end;
        sw_utf8_next(scan->text, scan->len, &after);
        SW_TRY(is_word(scan->set, scan->text, end, after, &word_after));
    }
    *out = !word_before && !word_after;
    return SW_OK;
}

void sw_added_scan_init(struct sw_added_scan *scan, const struct sw_added_set *set,
                        const char *text, size_t len)
{
    *scan = (struct sw_added_scan){.set = set, .text = text, .len = len};
}

/* The next match that its flags allow; *out_token NULL at the end of the text. */
static sw_status next_match(struct sw_added_scan *scan, const struct sw_added_token **out_token,
                            size_t *out_first)
{
    *out_token = NULL;
    for (size_t at = scan->search; at < scan->len && scan->set->n > 0; ++at) {
        const struct sw_added_token *token = match_at(scan->set, scan->text, scan->len, at);
        bool alone = true;
        if (!token) {
            continue;
        }
        if (token->single_word) {
            SW_TRY(stands_alone(scan, at, at + token->len, &alone));
        }
        if (alone) {
            *out_token = token;
            *out_first = at;
            scan->search = at + token->len;
            return SW_OK;
        }
        at += token->len - 1; /* the inside of a rejected match is not searched again */
    }
    scan->search = scan->len;
    return SW_OK;
}

static void give_pending(struct sw_added_scan *scan, size_t first, struct sw_added_piece *out)
{
    *out = (struct sw_added_piece){first, scan->pending_end - first, scan->pending};
    scan->covered = scan->pending_end;
    scan->pending = NULL;
}

/* The next match with its white space. A match already consumed entirely by another is skipped.
 * *out_token NULL: there is none. */
static sw_status next_piece(struct sw_added_scan *scan, const struct sw_added_token **out_token,
                            size_t *out_first)
{
    do {
        SW_TRY(next_match(scan, out_token, out_first));
        const struct sw_added_token *token = *out_token;
        if (!token) {
            return SW_OK;
        }
        scan->pending_end = *out_first + token->len;
        if (token->lstrip) {
            *out_first = *out_first > scan->covered
                             ? space_before(scan->text, scan->covered, *out_first)
                             : scan->covered;
        }
        if (token->rstrip) {
            scan->pending_end = space_after(scan, scan->pending_end);
        }
    } while (*out_first >= scan->pending_end);
    return SW_OK;
}

sw_status sw_added_scan_next(struct sw_added_scan *scan, struct sw_added_piece *out, bool *out_more)
{
    const struct sw_added_token *token;
    size_t first;

    *out_more = true;
    if (scan->pending) {
        give_pending(scan, scan->covered, out);
        return SW_OK;
    }
    SW_TRY(next_piece(scan, &token, &first));
    if (!token) {
        *out = (struct sw_added_piece){scan->covered, scan->len - scan->covered, NULL};
        *out_more = scan->covered < scan->len;
        scan->covered = scan->len;
        return SW_OK;
    }
    scan->pending = token;
    if (scan->covered < first) {
        *out = (struct sw_added_piece){scan->covered, first - scan->covered, NULL};
        scan->covered = first;
        return SW_OK;
    }
    give_pending(scan, first, out);
    return SW_OK;
}
