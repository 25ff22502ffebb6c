// SPDX-License-Identifier: Apache-2.0
// Candidates end where a character ends, and are tried from the longest on.
#include "data/wordpiece.h"

#include "data/utf8.h"

#include <string.h>

void sw_wordpiece_fini(struct sw_wordpiece *model)
{
    sw_str_fini(&model->prefix);
    sw_str_fini(&model->rest);
    *model = (struct sw_wordpiece){0};
}

/* The longest token at the beginning of `text`; *out_len bytes of it, 0 = there is none. */
static int32_t longest(const struct sw_vocab *vocab, const char *text, size_t least, size_t len,
                       size_t *out_len)
{
    for (size_t end = len; end > least; --end) {
        if (end == len || sw_utf8_begins(text[end])) {
            const int32_t id = sw_vocab_find(vocab, text, end);
            if (id >= 0) {
                *out_len = end - least;
                return id;
            }
        }
    }
    *out_len = 0;
    return -1;
}

sw_status sw_wordpiece_encode(struct sw_wordpiece *model, const char *word, size_t len,
                              struct sw_ids *out)
{
    const int64_t before = out->len;
    if (sw_utf8_count(word, len) > model->max_chars) {
        return sw_ids_push(out, model->unknown);
    }
    for (size_t at = 0; at < len;) {
        const char *text = word;
        size_t n;
        if (at > 0) {
            sw_str_clear(&model->rest);
            sw_str_append(&model->rest, sw_str_text(&model->prefix), model->prefix.len);
            sw_str_append(&model->rest, word + at, len - at);
            if (model->rest.failed) {
                return SW_FAIL(SW_E_NOMEM, "out of host memory for a word of %zu bytes", len);
            }
            text = sw_str_text(&model->rest);
        }
        const size_t prefix = at > 0 ? model->prefix.len : 0;
        const int32_t id = longest(model->vocab, text, prefix, prefix + len - at, &n);
        if (id < 0) {
            out->len = before;
            return sw_ids_push(out, model->unknown);
        }
        SW_TRY(sw_ids_push(out, id));
        at += n;
    }
    return SW_OK;
}
