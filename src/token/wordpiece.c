// SPDX-License-Identifier: Apache-2.0
// A word takes one walk through a set per token. No walk is longer than the longest token.
#include "token/wordpiece.h"

#include "text/text.h"

#include <string.h>

void sw_wordpiece_fini(struct sw_wordpiece *model)
{
    sw_str_fini(&model->prefix);
    sw_prefix_fini(&model->first);
    sw_prefix_fini(&model->rest);
    *model = (struct sw_wordpiece){0};
}

/* Skips a token that cannot occur in a word: words are whole characters and at most max_chars
 * long. */
static sw_status add(const struct sw_wordpiece *model, const char *text, size_t len, int32_t id,
                     struct sw_prefix_set *set)
{
    const bool is_text = len > 0 && sw_utf8_valid_len(text, len) == len;
    return is_text && sw_utf8_count(text, len) <= model->max_chars
               ? sw_prefix_add(set, text, len, id)
               : SW_OK;
}

sw_status sw_wordpiece_init(struct sw_wordpiece *model, const struct sw_vocab *vocab)
{
    const size_t n = model->prefix.len;
    for (int64_t id = 0; id < vocab->n_ids; ++id) {
        const struct sw_vocab_token *token = sw_vocab_token(vocab, id);
        if (!token) {
            continue;
        }
        SW_TRY(add(model, token->text, token->len, (int32_t)id, &model->first));
        if (token->len >= n && memcmp(token->text, sw_str_text(&model->prefix), n) == 0) {
            SW_TRY(add(model, token->text + n, token->len - n, (int32_t)id, &model->rest));
        }
    }
    sw_prefix_sort(&model->first);
    sw_prefix_sort(&model->rest);
    return SW_OK;
}

sw_status sw_wordpiece_encode(struct sw_wordpiece *model, const char *word, size_t len,
                              struct sw_ids *out)
{
    const int64_t before = out->len;
    if (sw_utf8_count(word, len) > model->max_chars) {
        return sw_ids_push(out, model->unknown);
    }
    for (size_t at = 0; at < len;) {
        int32_t id;
        const struct sw_prefix_set *set = at > 0 ? &model->rest : &model->first;
        const size_t n = sw_prefix_longest(set, word + at, len - at, &id);
        if (n == 0) {
            out->len = before;
            return sw_ids_push(out, model->unknown);
        }
        SW_TRY(sw_ids_push(out, id));
        at += n;
    }
    return SW_OK;
}
