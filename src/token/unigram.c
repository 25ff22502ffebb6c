// SPDX-License-Identifier: Apache-2.0
// On ties the first segmentation found is kept: pieces that begin earlier come first.
#include "token/unigram.h"

#include "text/text.h"

#include <math.h>

static const double unknown_penalty = 10;
/* Above this, an fp32 sum is rebased to keep its precision, as in the library. */
static const double most_single = 100000;

void sw_unigram_fini(struct sw_unigram *model)
{
    sw_prefix_fini(&model->pieces);
    sw_free(model->scores);
    sw_free(model->kinds);
    sw_free(model->nodes);
    *model = (struct sw_unigram){0};
}

/* User-defined pieces score at least 0, and a long one beats several short ones. */
static double score_of(const struct sw_unigram *model, int32_t id, size_t len)
{
    const bool user = model->kinds && model->kinds[id] == SW_PIECE_USER_DEFINED;
    return user ? (double)(float)(0.1 * (double)(len - 1)) : model->scores[id];
}

static void offer(const struct sw_unigram *model, struct sw_unigram_node *node, double score,
                  int64_t start, int32_t id)
{
    score = model->single ? (double)(float)score : score;
    if (node->start < 0 || score > node->score) {
        *node = (struct sw_unigram_node){score, start, id};
    }
}

/* Tries all pieces that begin at `start`. The character there has `n_char` bytes. */
static void extend(const struct sw_unigram *model, const char *word, size_t len, size_t start,
                   size_t n_char)
{
    const double before = model->nodes[start].score;
    struct sw_prefix_walk walk = sw_prefix_start(&model->pieces);
    bool alone = false; /* a piece is this character */
    for (size_t i = start; i < len && sw_prefix_step(&walk, (unsigned char)word[i]); ++i) {
        const int32_t id = sw_prefix_here(&walk);
        if (id >= 0 && !(model->kinds && model->kinds[id] == SW_PIECE_UNUSED)) {
            const size_t n = i + 1 - start;
            offer(model, &model->nodes[i + 1], score_of(model, id, n) + before, (int64_t)start, id);
            alone |= n == n_char;
        }
    }
    if (!alone) {
        offer(model, &model->nodes[start + n_char], model->min_score - unknown_penalty + before,
              (int64_t)start, -1);
    }
}

/* Rebases the sums to that of `at`, including those of pieces already found that end after it. */
static void begin_anew(const struct sw_unigram *model, size_t at, size_t len)
{
    const double gone = model->nodes[at].score;
    for (size_t i = at; i <= len && i <= at + model->longest; ++i) {
        if (i == at || model->nodes[i].start >= 0) {
            model->nodes[i].score = (double)(float)(model->nodes[i].score - gone);
        }
    }
}

static sw_status reserve(struct sw_unigram *model, size_t n)
{
    if (model->cap < n) {
        struct sw_unigram_node *nodes = sw_realloc("unigram", model->nodes, n * sizeof(*nodes));
        SW_TRY_ALLOC(nodes, "the best way through a text");
        model->nodes = nodes;
        model->cap = n;
    }
    for (size_t i = 0; i < n; ++i) {
        model->nodes[i] = (struct sw_unigram_node){0, -1, -1};
    }
    return SW_OK;
}

static bool is_unknown(const struct sw_unigram *model, const struct sw_unigram_node *node)
{
    return node->id < 0 || node->id == model->unknown;
}

/* Reverses the best path, which is known from its end: `start` of a node becomes its piece's
 * end. */
static void turn_round(const struct sw_unigram *model, size_t len)
{
    struct sw_unigram_node next = model->nodes[len];
    for (int64_t end = (int64_t)len; end > 0;) {
        const int64_t start = next.start;
        const struct sw_unigram_node here = {0, end, next.id};
        next = model->nodes[start];
        model->nodes[start] = here;
        end = start;
    }
}

sw_status sw_unigram_cut(struct sw_unigram *model, const char *word, size_t len, sw_piece_fn fn,
                         void *ctx)
{
    SW_TRY(reserve(model, len + 1));
    for (size_t at = 0; at < len;) {
        size_t next = at;
        sw_utf8_step(word, len, &next);
        if (model->single && fabs(model->nodes[at].score) > most_single) {
            begin_anew(model, at, len);
        }
        extend(model, word, len, at, next - at);
        at = next;
    }
    turn_round(model, len);
    for (size_t at = 0; at < len;) {
        const struct sw_unigram_node *node = &model->nodes[at];
        size_t end = (size_t)node->start;
        const bool unknown = is_unknown(model, node);
        while (unknown && end < len && is_unknown(model, &model->nodes[end])) {
            end = (size_t)model->nodes[end].start;
        }
        SW_TRY(fn(ctx, word + at, end - at, unknown ? -1 : node->id));
        at = end;
    }
    return SW_OK;
}
