// SPDX-License-Identifier: Apache-2.0
// Texts that an encoder-decoder generates for rows of a dataset, each next to its target: one JSON
// object a line.
#include <string.h>

#include "job/private.h"

sw_status sw_job_texts_open(sw_engine *engine, const sw_tokenizer *tokenizer, const char *model,
                            FILE *file, struct sw_job_texts *out)
{
    const struct sw_engine_facts facts = sw_engine_facts(engine);
    *out = (struct sw_job_texts){.engine = engine, .tokenizer = tokenizer, .file = file};
    if (!tokenizer) {
        return SW_FAIL(SW_E_ARG, "--predictions: texts need a tokenizer; give --tokenizer");
    }
    SW_TRY(sw_job_settings_read(model, true, &(struct sw_sampling){0}, &out->settings));
    SW_TRY(sw_job_settings_stop(&out->settings, tokenizer));
    const int64_t said = sw_job_settings_most(&out->settings);
    out->most = said > 0 ? sw_min_i64(said, facts.generate_tokens)
                         : facts.generate_tokens; /* the length of a target */
    const int64_t longest =
        sw_max_i64(facts.sizes.of[SW_DIM_TOKENS], facts.sizes.of[SW_DIM_TARGETS]);
    out->ids = sw_alloc("eval", (size_t)longest * sizeof *out->ids);
    out->fresh = sw_alloc("eval", (size_t)out->most * sizeof *out->fresh);
    SW_TRY_ALLOC(out->ids && out->fresh ? out : NULL, "texts");
    return SW_OK;
}

void sw_job_texts_close(struct sw_job_texts *texts)
{
    sw_job_settings_fini(&texts->settings);
    sw_free(texts->ids);
    sw_free(texts->fresh);
    *texts = (struct sw_job_texts){0};
}

static const struct sw_view *input(const struct sw_job_rows *rows, const char *name)
{
    const struct sw_view *found = NULL;
    for (int i = 0; i < rows->n_inputs; i++) {
        found = strcmp(rows->names[i], name) == 0 ? &rows->batches[0].tensors[i].view : found;
    }
    SW_ASSERT(found);
    return found;
}

/* Copies to t->ids the ids of a row whose element in `by` differs from `none`. Returns their
 * number. */
static int64_t pick(struct sw_job_texts *t, const struct sw_view *ids, const struct sw_view *by,
                    int32_t none, int64_t row)
{
    const int64_t width = sw_shape_last(&ids->shape);
    int64_t n = 0;
    for (int64_t i = 0; i < width; i++) {
        const int32_t id = ((const int32_t *)ids->data)[row * width + i];
        t->ids[n] = id;
        n += ((const int32_t *)by->data)[row * width + i] != none;
    }
    return n;
}

static sw_status put_text(struct sw_job_texts *t, const char *key, const int32_t *ids, int64_t n,
                          struct sw_str *line)
{
    char *text;
    size_t len;
    SW_TRY(sw_tokenizer_decode(t->tokenizer, ids, n, true, &text, &len));
    sw_str_printf(line, "%s\"%s\": ", line->len > 0 ? ", " : "{", key);
    sw_json_write_string(text, len, line);
    sw_text_free(text);
    return SW_OK;
}

static sw_status write_row(struct sw_job_texts *t, const struct sw_job_rows *rows, int64_t row,
                           struct sw_str *line)
{
    const struct sw_view *source = input(rows, "input_ids"), *labels = input(rows, "labels");
    struct sw_sampling sampling = {0};
    int64_t n = pick(t, source, input(rows, "attention_mask"), 0, row);
    sw_job_settings_apply(&t->settings, n, true, &sampling);
    SW_TRY(sw_generate(t->engine, t->ids, n, t->most, &sampling, t->fresh, &n, NULL));
    SW_TRY(put_text(t, "prediction", t->fresh, n, line));
    n = pick(t, labels, labels, SW_IGNORED_LABEL, row);
    SW_TRY(put_text(t, "target", t->ids, n, line));
    sw_str_puts(line, "}\n");
    return !line->failed && (!t->file || fwrite(line->ptr, 1, line->len, t->file) == line->len)
               ? SW_OK
               : SW_FAIL(SW_E_IO, "--predictions: a text cannot be written");
}

sw_status sw_job_texts_add(struct sw_job_texts *texts, const struct sw_job_rows *rows, int64_t n)
{
    sw_status st = SW_OK;
    for (int64_t row = 0; row < n && st >= 0; row++) {
        struct sw_str line = {0};
        st = write_row(texts, rows, row, &line);
        sw_str_fini(&line);
    }
    return st;
}
