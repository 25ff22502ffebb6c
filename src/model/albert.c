// SPDX-License-Identifier: Apache-2.0
// ALBERT (Lan et al. 2019): BERT's layers on embeddings of another width, and groups of layers that
// share their weights.
#include "model/encoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_encoder *encoder)
{
    static const struct sw_model_key width = {"embedding_size", NULL, 128};
    static const struct sw_model_key groups = {"num_hidden_groups", NULL, 1};
    static const struct sw_model_key parts = {"inner_group_num", NULL, 1};
    struct sw_encoder_spec *s = &encoder->spec;
    SW_TRY(sw_bert_read(doc, config, encoder));
    SW_TRY(sw_model_read_act(doc, config, "hidden_act", "gelu_new", &s->act));
    SW_TRY(sw_model_read_dropout(doc, config, "hidden_dropout_prob", 0, &s->hidden_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_probs_dropout_prob", 0,
                                 &s->attention_dropout));
    SW_TRY(
        sw_model_read_dropout(doc, config, "classifier_dropout_prob", 0.1, &s->classifier_dropout));
    SW_TRY(sw_model_read_size(doc, config, &width, width.fallback, &encoder->table_width));
    SW_TRY(sw_model_read_size(doc, config, &groups, groups.fallback, &s->groups));
    SW_TRY(sw_model_read_size(doc, config, &parts, parts.fallback, &s->parts));
    if (s->groups > encoder->super.layers || s->parts > 64) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: num_hidden_groups is %lld, inner_group_num %lld; wanted at most "
                       "num_hidden_layers %lld, and 64",
                       sw_json_name(doc), (long long)s->groups, (long long)s->parts,
                       (long long)encoder->super.layers);
    }
    s->embedding_dropout = s->hidden_dropout;
    s->tokens_dropout = s->classifier_dropout;
    s->mask_act = s->act;
    s->keeps_mlp = true;
    return SW_OK;
}

static const char *const ignored[] = {"*embeddings.position_ids", "*sop_classifier.*", NULL};
static const char *const aliases[] = {"predictions.bias", "predictions.decoder.bias",
                                      "predictions.decoder.bias", "predictions.bias", NULL};

const struct sw_encoder_family sw_family_albert = {
    SW_ENCODER_OPS("albert"),
    .ops.classes = {{"AlbertForMaskedLM", "masked"},
                    {"AlbertForSequenceClassification", "classify"},
                    {"AlbertForTokenClassification", "tokens"},
                    {"AlbertForQuestionAnswering", "answers"},
                    {"AlbertModel", "embed"}},
    .ops.sizes = {[SW_SIZE_WIDTH] = {"hidden_size", NULL, 4096},
                  [SW_SIZE_LAYERS] = {"num_hidden_layers", NULL, 12},
                  [SW_SIZE_HEADS] = {"num_attention_heads", NULL, 64},
                  [SW_SIZE_INNER] = {"intermediate_size", NULL, 16384},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 30000},
                  [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, 512}},
    .names = {.trunk = "albert",
              .embedding = "embeddings.word_embeddings",
              .positions = "embeddings.position_embeddings",
              .types = "embeddings.token_type_embeddings",
              .embedding_norm = "embeddings.LayerNorm",
              .project = "encoder.embedding_hidden_mapping_in",
              .layers = "encoder.albert_layer_groups",
              .q = "attention.query",
              .k = "attention.key",
              .v = "attention.value",
              .out = "attention.dense",
              .attention_norm = "attention.LayerNorm",
              .up = "ffn",
              .down = "ffn_output",
              .mlp_norm = "full_layer_layer_norm",
              .pooler = "pooler",
              .pool = "albert.pooler",
              .classifier = "classifier",
              .tokens = "classifier",
              .answers = "qa_outputs",
              .mask_dense = "predictions.dense",
              .mask_norm = "predictions.LayerNorm",
              .mask_head = "predictions.decoder",
              .mask_bias = "predictions.bias",
              .head = "classifier"},
    .ignored = ignored,
    .aliases = aliases,
    .read = read,
};
