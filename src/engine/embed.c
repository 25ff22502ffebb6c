// SPDX-License-Identifier: Apache-2.0
// Text embeddings: the outputs of the trunk for each token, pooled by row.
#include <math.h>
#include <string.h>

#include "engine/private.h"

int64_t sw_engine_width(const sw_engine *e)
{
    return e->weights.model ? e->weights.model->width : 0;
}

/* The attention mask of the batch; NULL: every token counts. */
static const int32_t *mask_of(const struct sw_batch *batch)
{
    for (int i = 0; i < batch->n_tensors; i++) {
        if (strcmp(batch->tensors[i].name, "attention_mask") == 0) {
            return batch->tensors[i].view.data;
        }
    }
    return NULL;
}

/* Sums in the order of the tokens. A row without tokens gives 0. */
static void mean(const float *hidden, const int32_t *mask, int64_t tokens, int64_t width,
                 float *out)
{
    for (int64_t c = 0; c < width; c++) {
        double sum = 0, count = 0;
        for (int64_t t = 0; t < tokens; t++) {
            const bool counts = !mask || mask[t] != 0;
            sum += counts ? (double)hidden[t * width + c] : 0;
            count += counts;
        }
        out[c] = (float)(count > 0 ? sum / count : 0);
    }
}

static void normalize(float *x, int64_t width)
{
    double squares = 0;
    for (int64_t c = 0; c < width; c++) {
        squares += (double)x[c] * (double)x[c];
    }
    const double length = fmax(sqrt(squares), 1e-12);
    for (int64_t c = 0; c < width; c++) {
        x[c] = (float)((double)x[c] / length);
    }
}

sw_status sw_embed(sw_engine *e, const struct sw_batch *batch,
                   const struct sw_embed_options *options, float *out)
{
    SW_TRY_OPTIONS(options);
    if (!e->weights.model || e->weights.model->task->n_losses > 0 || e->programs.logits < 0) {
        return SW_FAIL(SW_E_ARG, "sw_embed: the engine was opened without embed.wanted");
    }
    const int64_t width = e->weights.model->width, row = e->sizes.tokens * width;
    const int32_t *mask = mask_of(batch);
    float *hidden = sw_alloc("engine", (size_t)(e->sizes.batch * row) * sizeof *hidden);
    SW_TRY_ALLOC(hidden, "the vectors of tokens");
    const sw_status st = sw_logits(e, batch, hidden);
    for (int64_t b = 0; st >= 0 && b < e->sizes.batch; b++) {
        float *vector = out + b * width;
        if (options->pool == SW_POOL_CLS) {
            memcpy(vector, hidden + b * row, (size_t)width * sizeof *vector);
        } else {
            mean(hidden + b * row, mask ? mask + b * e->sizes.tokens : NULL, e->sizes.tokens, width,
                 vector);
        }
        if (options->normalize) {
            normalize(vector, width);
        }
    }
    sw_free(hidden);
    return st;
}
