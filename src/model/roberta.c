// SPDX-License-Identifier: Apache-2.0
// RoBERTa (Liu et al. 2019): BERT's layers; positions count the tokens that are not padding,
// starting at the row after the padding id's; classification has no pooler. XLM-RoBERTa (Conneau et
// al. 2019) and CamemBERT (Martin et al. 2019) are the same model with other words.
#include "model/encoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_encoder *encoder)
{
    struct sw_model *m = &encoder->super;
    const int64_t padding = encoder->spec.padding_id;
    SW_TRY(sw_bert_read(doc, config, encoder));
    m->max_tokens += m->ops->extra_tokens - (padding + 1); /* rows that no token of a text uses */
    if (padding < 0 || m->max_tokens < 1) {
        return SW_FAIL(
            SW_E_FORMAT,
            "%s: pad_token_id %lld, max_position_embeddings %lld; wanted an id, and more "
            "position embeddings than that, as positions begin after it",
            sw_json_name(doc), (long long)padding, (long long)(m->max_tokens + padding + 1));
    }
    encoder->spec.counts_tokens = true;
    encoder->spec.mask_act = SW_ACT_GELU; /* regardless of hidden_act */
    encoder->spec.pool_dropout = encoder->spec.classifier_dropout;
    return SW_OK;
}

/* Buffers stored in files. */
static const char *const ignored[] = {"*embeddings.position_ids", "*embeddings.token_type_ids",
                                      NULL};
static const char *const aliases[] = {"lm_head.bias", "lm_head.decoder.bias",
                                      "lm_head.decoder.bias", "lm_head.bias", NULL};

/* The family of a model_type whose classes begin with `prefix`. They differ in their words only. */
#define ROBERTA(type, prefix, words)                                                               \
    {                                                                                              \
        SW_ENCODER_OPS(type),                                                                      \
            .ops.classes = {{prefix "ForMaskedLM", "masked"},                                      \
                            {prefix "ForSequenceClassification", "classify"},                      \
                            {prefix "ForTokenClassification", "tokens"},                           \
                            {prefix "ForQuestionAnswering", "answers"},                            \
                            {prefix "Model", "embed"}},                                            \
            .ops.sizes = {[SW_SIZE_WIDTH] = {"hidden_size", NULL, 768},                            \
                          [SW_SIZE_LAYERS] = {"num_hidden_layers", NULL, 12},                      \
                          [SW_SIZE_HEADS] = {"num_attention_heads", NULL, 12},                     \
                          [SW_SIZE_INNER] = {"intermediate_size", NULL, 3072},                     \
                          [SW_SIZE_VOCAB] = {"vocab_size", NULL, (words)},                         \
                          [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, 512}},              \
            .ops.extra_tokens = 2,                                                                 \
            .names = {.trunk = "roberta",                                                          \
                      SW_BERT_TRUNK,                                                               \
                      .pool = "classifier.dense",                                                  \
                      .classifier = "classifier.out_proj",                                         \
                      .tokens = "classifier",                                                      \
                      .answers = "qa_outputs",                                                     \
                      .mask_dense = "lm_head.dense",                                               \
                      .mask_norm = "lm_head.layer_norm",                                           \
                      .mask_head = "lm_head.decoder",                                              \
                      .mask_bias = "lm_head.bias",                                                 \
                      .head = "classifier"},                                                       \
            .ignored = ignored, .aliases = aliases, .padding_id = 1, .read = read,                 \
    }

const struct sw_encoder_family sw_family_roberta = ROBERTA("roberta", "Roberta", 50265);
const struct sw_encoder_family sw_family_xlm_roberta = ROBERTA("xlm-roberta", "XLMRoberta", 30522);
const struct sw_encoder_family sw_family_camembert = ROBERTA("camembert", "Camembert", 30522);
