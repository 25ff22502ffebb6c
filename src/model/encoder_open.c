// SPDX-License-Identifier: Apache-2.0
// Reads the config.json of an encoder family into its specification.
#include <stdio.h>
#include <string.h>

#include "model/encoder.h"

static sw_status check(const struct sw_json_doc *doc, const struct sw_encoder *m)
{
    const struct sw_model *model = &m->super;
    const struct sw_model_key *keys = model->ops->sizes;
    const double width = (double)model->width;
    if (model->width % m->spec.heads != 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s %lld does not divide into %s %lld heads",
                       sw_json_name(doc), keys[SW_SIZE_WIDTH].key, (long long)model->width,
                       keys[SW_SIZE_HEADS].key, (long long)m->spec.heads);
    }
    if (m->spec.padding_id >= model->vocab) {
        return SW_FAIL(SW_E_FORMAT, "%s: pad_token_id is %lld; wanted less than %s %lld",
                       sw_json_name(doc), (long long)m->spec.padding_id, keys[SW_SIZE_VOCAB].key,
                       (long long)model->vocab);
    }
    return sw_model_check_parameters(doc, model, width * (4 * width + 2 * (double)m->spec.inner),
                                     m->spec.inner);
}

static void name_heads(struct sw_encoder *m)
{
    struct sw_model *model = &m->super;
    struct sw_encoder_names *n = &m->names;
    const char *head = model->task->head;
    const bool masked = strcmp(head, "masked") == 0 || strcmp(head, "pretrain") == 0;
    snprintf(m->embedding, sizeof m->embedding, "%s.%s.weight", n->trunk, n->embedding);
    snprintf(m->mask_head, sizeof m->mask_head, "%s.weight", n->mask_head);
    snprintf(m->mask_bias, sizeof m->mask_bias, "%s.bias", n->mask_head);
    snprintf(m->pooler, sizeof m->pooler, "%s.%s", n->trunk, n->pooler ? n->pooler : "");
    n->mask_bias = model->tied ? n->mask_bias : m->mask_bias; /* an untied head has its own bias */
    model->trunk = n->trunk;
    model->pooler = n->pooler ? m->pooler : NULL;
    model->embedding_name = m->embedding;
    model->lm_head_name = m->mask_head;
    model->head_name = masked && !model->tied ? m->mask_head : NULL;
    model->head_module = masked && model->tied          ? NULL
                         : masked                       ? n->mask_head
                         : strcmp(head, "answers") == 0 ? n->answers
                         : strcmp(head, "tokens") == 0  ? n->tokens
                                                        : n->head;
}

sw_status sw_encoder_read(struct sw_json_doc *doc, const struct sw_json *config,
                          const struct sw_model_options *options, struct sw_model *model)
{
    struct sw_encoder *m = SW_CONTAINER(model, struct sw_encoder, super);
    m->family = SW_CONTAINER(model->ops, struct sw_encoder_family, ops);
    m->names = m->family->names;
    SW_TRY(sw_model_read_sizes(doc, config, model, &m->spec.heads, &m->spec.inner));
    m->table_width = model->width;
    SW_TRY(sw_json_get_bool(doc, config, "tie_word_embeddings", true, &model->tied));
    model->pad_id = sw_model_token_id(config, "pad_token_id");
    model->pad_id = model->pad_id < 0 ? m->family->padding_id : model->pad_id;
    model->eos_id = sw_model_token_id(config, "eos_token_id");
    m->spec.padding_id = sw_model_padding_row(config, model, model->pad_id);
    SW_TRY(m->family->read(doc, config, m));
    SW_TRY(check(doc, m));
    SW_TRY(sw_model_read_task(model->ops, doc, config, options, model));
    name_heads(m);
    return SW_OK;
}

/* ---- BERT and RoBERTa ---- */

sw_status sw_bert_read(struct sw_json_doc *doc, const struct sw_json *config,
                       struct sw_encoder *encoder)
{
    struct sw_encoder_spec *s = &encoder->spec;
    static const struct sw_model_key types = {"type_vocab_size", NULL, 2};
    const char *positions = NULL;
    SW_TRY(sw_model_only(doc, config, "is_decoder", false));
    SW_TRY(sw_model_only(doc, config, "add_cross_attention", false));
    SW_TRY(sw_json_get_str(doc, config, "position_embedding_type", "absolute", &positions));
    if (strcmp(positions, "absolute") != 0) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: position_embedding_type \"%s\" is not built in this version",
                       sw_json_name(doc), positions);
    }
    SW_TRY(sw_model_read_size(doc, config, &types, types.fallback, &s->types));
    SW_TRY(sw_model_read_act(doc, config, "hidden_act", "gelu", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_eps", 1e-12, &s->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "hidden_dropout_prob", 0.1, &s->hidden_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_probs_dropout_prob", 0.1,
                                 &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "classifier_dropout", s->hidden_dropout,
                                 &s->classifier_dropout));
    s->embedding_dropout = s->hidden_dropout;
    s->tokens_dropout = s->classifier_dropout;
    s->pool_act = SW_ACT_TANH;
    s->mask_act = s->act;
    return SW_OK;
}
