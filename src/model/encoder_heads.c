// SPDX-License-Identifier: Apache-2.0
// Heads on an encoder: masked tokens, next sentence, text classes and numbers from the first token,
// token classes, answer positions.
#include <stdio.h>
#include <string.h>

#include "model/encoder.h"
#include "model/heads.h"

sw_value sw_encoder_linear(const struct sw_encoder *m, sw_graph *g, const char *name, sw_value x,
                           int64_t in, int64_t out)
{
    const struct sw_linear_spec spec = {.in = in, .out = out, .std = m->spec.init_range};
    return sw_nn_linear(g, name, x, &spec);
}

/* x [..,C] -> [..,out] */
static sw_value linear(const struct sw_encoder *m, sw_graph *g, const char *name, sw_value x,
                       int64_t out)
{
    return sw_encoder_linear(m, g, name, x, m->super.width, out);
}

/* The first token's row [B,C], through the pooling layer. */
static sw_value pooled(const struct sw_encoder *m, sw_graph *g, sw_value h)
{
    const struct sw_shape shape = g->status < 0 ? SW_SHAPE(1, 1, 1) : g->values[h].shape;
    const sw_value first =
        sw_reshape(g, sw_slice(g, h, 1, 0, 1), SW_SHAPE(shape.dims[0], shape.dims[2]));
    const sw_value x = sw_dropout(g, first, m->spec.pool_dropout);
    return sw_act(g, linear(m, g, m->names.pool, x, m->super.width), m->spec.pool_act);
}

/* Logits over the vocabulary for each row. */
static void masked(const struct sw_encoder *m, struct sw_head *head, sw_value h, sw_value table)
{
    const struct sw_model *model = &m->super;
    sw_graph *g = head->g;
    sw_value x = sw_act(g, linear(m, g, m->names.mask_dense, h, m->table_width), m->spec.mask_act);
    x = sw_nn_layer_norm(g, m->names.mask_norm, x, m->table_width, m->spec.eps);
    const sw_value weight =
        model->head_name ? sw_param(g, model->head_name, SW_SHAPE(model->vocab, m->table_width),
                                    (struct sw_init){SW_INIT_NORMAL, m->spec.init_range})
                         : table;
    const sw_value bias =
        sw_param(g, m->names.mask_bias, SW_SHAPE(model->vocab), (struct sw_init){SW_INIT_ZERO, 0});
    sw_nn_split_words(g, weight, 0);
    sw_nn_split_words(g, bias, 0);
    sw_head_linear_term(head, 0, x, x, weight, bias, 0);
}

static void answers(const struct sw_encoder *m, struct sw_head *head, sw_value h)
{
    const struct sw_forward_spec *spec = head->spec;
    const sw_value x = sw_dropout(head->g, h, m->spec.answers_dropout);
    const sw_value both = linear(m, head->g, m->names.answers, x, 2);
    for (int i = 0; i < 2; i++) {
        const sw_value one = sw_slice(head->g, both, 2, i, 1);
        sw_head_term(head, i, sw_reshape(head->g, one, SW_SHAPE(spec->batch, spec->tokens)));
    }
}

static void tokens(const struct sw_encoder *m, struct sw_head *head, sw_value h)
{
    const sw_value x = sw_dropout(head->g, h, m->spec.tokens_dropout);
    sw_head_term(head, 0, linear(m, head->g, m->names.tokens, x, m->super.labels));
}

static void classes(const struct sw_encoder *m, struct sw_head *head, sw_value h)
{
    const sw_value x = sw_dropout(head->g, pooled(m, head->g, h), m->spec.classifier_dropout);
    sw_head_term(head, 0, linear(m, head->g, m->names.classifier, x, m->super.labels));
}

/* [R,C] of ones, which all elements of vectors count by. */
static sw_value all_count(sw_graph *g, enum sw_dtype dtype, int64_t rows, int64_t width)
{
    const int64_t n = rows * width;
    const float one = 1;
    char name[64], *ones = sw_alloc("model", (size_t)n * sw_dtype_bytes(dtype));
    if (!ones) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the model");
        return SW_NO_VALUE;
    }
    for (int64_t i = 0; i < n; i++) {
        sw_convert(dtype, ones + (size_t)i * sw_dtype_bytes(dtype), SW_F32, &one, 1);
    }
    snprintf(name, sizeof name, "vectors.ones.%lld", (long long)rows);
    const sw_value out = sw_constant(g, name, dtype, SW_SHAPE(rows, width), ones);
    sw_free(ones);
    return out;
}

/* The vectors of texts, and the loss that is linear in them: vector times gradient, and an
 * offset. */
static void vectors(const struct sw_encoder *m, struct sw_head *head, sw_value h)
{
    sw_graph *g = head->g;
    const struct sw_forward_spec *spec = head->spec;
    const struct sw_model *model = &m->super;
    const int64_t rows = spec->batch, width = model->width;
    const sw_value pooled =
        spec->pools_first ? sw_reshape(g, sw_slice(g, h, 1, 0, 1), SW_SHAPE(rows, width))
                          : sw_masked_mean(g, h, sw_model_input(g, model, spec, "attention_mask"));
    const sw_value e = sw_to_statistic(g, pooled);
    if (g->status < 0) {
        return;
    }
    const enum sw_dtype dtype = g->values[e].dtype;
    sw_output(g, model->task->losses[0].output, e);
    struct sw_preference_spec loss = {.attrs = spec->preference, .kinds = SW_NO_VALUE};
    loss.attrs.kind = SW_PREFERENCE_LINEAR;
    loss.x = sw_mul(g, e, sw_cast(g, sw_model_input(g, model, spec, "labels"), dtype));
    loss.counts = all_count(g, dtype, rows, width);
    loss.reference = sw_model_input(g, model, spec, SW_TASK_OFFSETS);
    sw_value values, totals;
    head->loss = sw_preference_loss(g, &loss, &values, &totals);
    if (head->loss >= 0) {
        sw_output(g, "totals", totals);
    }
}

sw_value sw_encoder_head(const struct sw_encoder *m, sw_graph *g,
                         const struct sw_forward_spec *spec, sw_value h, sw_value table)
{
    struct sw_head head = {&m->super, g, spec, SW_NO_VALUE};
    const char *task = m->super.task->head;
    sw_scope_push(g, "head");
    if (strcmp(task, "masked") == 0) {
        masked(m, &head, h, table);
    } else if (strcmp(task, "pretrain") == 0) {
        masked(m, &head, h, table);
        sw_head_term(&head, 1, linear(m, g, m->names.next, pooled(m, g, h), 2));
    } else if (strcmp(task, "tokens") == 0) {
        tokens(m, &head, h);
    } else if (strcmp(task, "answers") == 0) {
        answers(m, &head, h);
    } else if (strcmp(task, "embed") != 0) {
        classes(m, &head, h);
    } else if (m->super.task->n_losses > 0 && spec->has_labels) {
        vectors(m, &head, h);
    } else if (spec->want_logits) {
        sw_output(g, "hidden", h);
    }
    const sw_value loss = sw_head_end(&head);
    sw_scope_pop(g);
    return loss;
}
