// SPDX-License-Identifier: Apache-2.0
// ELECTRA (Clark et al. 2020): BERT's layers on embeddings of another width. Classification has no
// pooler. The head that tells replaced tokens is not used: a folder with it is a trunk.
#include "model/encoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_encoder *encoder)
{
    static const struct sw_model_key width = {"embedding_size", NULL, 128};
    struct sw_encoder_spec *s = &encoder->spec;
    SW_TRY(sw_bert_read(doc, config, encoder));
    SW_TRY(sw_model_read_size(doc, config, &width, width.fallback, &encoder->table_width));
    encoder->names.project =
        encoder->table_width == encoder->super.width ? NULL : "embeddings_project";
    s->pool_act = s->mask_act = SW_ACT_GELU; /* regardless of hidden_act */
    s->pool_dropout = s->classifier_dropout;
    return SW_OK;
}

static const char *const ignored[] = {"*embeddings.position_ids", "discriminator_predictions.*",
                                      NULL};
static const char *const aliases[] = {"generator_lm_head.bias", "generator_lm_head.decoder.bias",
                                      NULL};

const struct sw_encoder_family sw_family_electra = {
    SW_ENCODER_OPS("electra"),
    .ops.classes = {{"ElectraForMaskedLM", "masked"},
                    {"ElectraForSequenceClassification", "classify"},
                    {"ElectraForTokenClassification", "tokens"},
                    {"ElectraForQuestionAnswering", "answers"},
                    {"ElectraModel", "embed"}},
    .ops.trunk_class = "ElectraForPreTraining",
    .ops.sizes = {[SW_SIZE_WIDTH] = {"hidden_size", NULL, 256},
                  [SW_SIZE_LAYERS] = {"num_hidden_layers", NULL, 12},
                  [SW_SIZE_HEADS] = {"num_attention_heads", NULL, 4},
                  [SW_SIZE_INNER] = {"intermediate_size", NULL, 1024},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 30522},
                  [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, 512}},
    .names = {.trunk = "electra",
              SW_BERT_TRUNK,
              .pool = "classifier.dense",
              .classifier = "classifier.out_proj",
              .tokens = "classifier",
              .answers = "qa_outputs",
              .mask_dense = "generator_predictions.dense",
              .mask_norm = "generator_predictions.LayerNorm",
              .mask_head = "generator_lm_head",
              .mask_bias = "generator_lm_head.bias",
              .head = "classifier"},
    .ignored = ignored,
    .aliases = aliases,
    .read = read,
};
