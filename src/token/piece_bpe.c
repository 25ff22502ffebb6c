// SPDX-License-Identifier: Apache-2.0
// Symbols are a doubly linked list, pairs a heap; a pair is stale when one of its symbols is gone
// or has grown, and is checked when it is popped.
#include "token/piece_bpe.h"

#include "text/text.h"

struct sw_piece_symbol {
    size_t first, len;      /* of the text; len 0: joined into its left neighbour */
    int64_t previous, next; /* -1 = none */
    bool whole;             /* user-defined piece, never merged */
};

struct sw_piece_pair {
    double score;
    int64_t left, right;
    size_t len;
};

void sw_piece_bpe_fini(struct sw_piece_bpe *model)
{
    sw_free(model->symbols);
    sw_free(model->pairs);
    sw_free(model->splits);
    *model = (struct sw_piece_bpe){0};
}

static bool comes_first(const struct sw_piece_pair *a, const struct sw_piece_pair *b)
{
    return a->score > b->score || (a->score == b->score && a->left < b->left);
}

static sw_status push(struct sw_piece_bpe *model, struct sw_piece_pair pair)
{
    if (model->n_pairs == model->cap_pairs) {
        const size_t cap = model->cap_pairs ? 2 * model->cap_pairs : 256;
        struct sw_piece_pair *pairs = sw_realloc("pieces", model->pairs, cap * sizeof(*pairs));
        SW_TRY_ALLOC(pairs, "the merging of a text");
        model->pairs = pairs;
        model->cap_pairs = cap;
    }
    size_t i = model->n_pairs++;
    while (i > 0 && comes_first(&pair, &model->pairs[(i - 1) / 2])) {
        model->pairs[i] = model->pairs[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    model->pairs[i] = pair;
    return SW_OK;
}

static struct sw_piece_pair pop(struct sw_piece_bpe *model)
{
    struct sw_piece_pair *pairs = model->pairs;
    const struct sw_piece_pair top = pairs[0], last = pairs[--model->n_pairs];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= model->n_pairs) {
            break;
        }
        child += child + 1 < model->n_pairs && comes_first(&pairs[child + 1], &pairs[child]);
        if (!comes_first(&pairs[child], &last)) {
            break;
        }
        pairs[i] = pairs[child];
        i = child;
    }
    pairs[i] = last;
    return top;
}

/* Finds a piece by its text. Control, unknown and byte pieces do not match text. */
static int32_t find_text(const struct sw_piece_bpe *model, const char *text, size_t len)
{
    const int32_t id = len <= model->longest ? sw_vocab_find(model->vocab, text, len) : -1;
    const int kind = id >= 0 ? model->kinds[id] : 0;
    return kind == SW_PIECE_NORMAL || kind == SW_PIECE_USER_DEFINED || kind == SW_PIECE_UNUSED ? id
                                                                                               : -1;
}

static sw_status offer(struct sw_piece_bpe *model, const char *text, int64_t left, int64_t right)
{
    if (left < 0 || right < 0 || model->symbols[left].whole || model->symbols[right].whole) {
        return SW_OK;
    }
    const struct sw_piece_symbol *symbol = &model->symbols[left];
    const size_t len = symbol->len + model->symbols[right].len;
    const int32_t id = find_text(model, text + symbol->first, len);
    if (id < 0) {
        return SW_OK;
    }
    if (model->kinds[id] == SW_PIECE_UNUSED) {
        model->splits[id] = (int64_t)symbol->len;
    }
    return push(model, (struct sw_piece_pair){model->scores[id], left, right, len});
}

/* Sets the initial symbols: characters and user-defined pieces. Returns their number. */
static int64_t first_symbols(struct sw_piece_bpe *model, const char *text, size_t len)
{
    int64_t n = 0;
    for (size_t at = 0; at < len; ++n) {
        int32_t id;
        size_t end = at;
        const size_t user = sw_prefix_longest(model->user, text + at, len - at, &id);
        sw_utf8_next(text, len, &end);
        end = user > 0 ? at + user : end + (end == at);
        model->symbols[n] = (struct sw_piece_symbol){at, end - at, n - 1, n + 1, user > 0};
        at = end;
    }
    if (n > 0) {
        model->symbols[n - 1].next = -1;
    }
    return n;
}

static sw_status join_all(struct sw_piece_bpe *model, const char *text)
{
    while (model->n_pairs > 0) {
        const struct sw_piece_pair pair = pop(model);
        struct sw_piece_symbol *left = &model->symbols[pair.left];
        struct sw_piece_symbol *right = &model->symbols[pair.right];
        if (left->len == 0 || right->len == 0 || left->len + right->len != pair.len) {
            continue;
        }
        left->len += right->len;
        right->len = 0;
        left->next = right->next;
        if (left->next >= 0) {
            model->symbols[left->next].previous = pair.left;
        }
        SW_TRY(offer(model, text, left->previous, pair.left));
        SW_TRY(offer(model, text, pair.left, left->next));
    }
    return SW_OK;
}

/* Emits a piece. An UNUSED piece is emitted as the two pieces it was made of. */
static sw_status give(const struct sw_piece_bpe *model, const char *text, size_t len,
                      sw_piece_fn fn, void *ctx)
{
    const int32_t id = find_text(model, text, len);
    if (id < 0 || model->kinds[id] != SW_PIECE_UNUSED || model->splits[id] == 0) {
        return fn(ctx, text, len, id);
    }
    const size_t left = (size_t)model->splits[id];
    SW_TRY(give(model, text, left, fn, ctx));
    return give(model, text + left, len - left, fn, ctx);
}

static sw_status reserve(struct sw_piece_bpe *model, size_t n)
{
    if (!model->splits) {
        model->splits =
            sw_alloc_zero("pieces", (size_t)model->vocab->n_ids + 1, sizeof(*model->splits));
        SW_TRY_ALLOC(model->splits, "the merging of a text");
    }
    if (model->cap < n) {
        struct sw_piece_symbol *symbols =
            sw_realloc("pieces", model->symbols, n * sizeof(*symbols));
        SW_TRY_ALLOC(symbols, "the merging of a text");
        model->symbols = symbols;
        model->cap = n;
    }
    model->n_pairs = 0;
    return SW_OK;
}

sw_status sw_piece_bpe_cut(struct sw_piece_bpe *model, const char *text, size_t len, sw_piece_fn fn,
                           void *ctx)
{
    if (len == 0) {
        return SW_OK;
    }
    SW_TRY(reserve(model, len));
    const int64_t n = first_symbols(model, text, len);
    for (int64_t i = 0; i + 1 < n; ++i) {
        SW_TRY(offer(model, text, i, i + 1));
    }
    SW_TRY(join_all(model, text));
    for (int64_t i = 0; i >= 0; i = model->symbols[i].next) {
        SW_TRY(give(model, text + model->symbols[i].first, model->symbols[i].len, fn, ctx));
    }
    return SW_OK;
}
