// SPDX-License-Identifier: Apache-2.0
// DistilBERT (Sanh et al. 2019): BERT's layers without token types and pooler.
#include "model/encoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_encoder *encoder)
{
    struct sw_encoder_spec *s = &encoder->spec;
    SW_TRY(sw_json_get_bool(doc, config, "sinusoidal_pos_embds", false, &s->begins_with_sines));
    SW_TRY(sw_model_read_act(doc, config, "activation", "gelu", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "dropout", 0.1, &s->hidden_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_dropout", 0.1, &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "seq_classif_dropout", 0.2, &s->classifier_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "qa_dropout", 0.1, &s->answers_dropout));
    s->eps = 1e-12;
    s->embedding_dropout = s->hidden_dropout;
    s->tokens_dropout = s->hidden_dropout;
    s->pool_act = SW_ACT_RELU;
    s->mask_act = s->act;
    return SW_OK;
}

static const char *const ignored[] = {"*embeddings.position_ids", NULL};

const struct sw_encoder_family sw_family_distilbert = {
    SW_ENCODER_OPS("distilbert"),
    .ops.classes = {{"DistilBertForMaskedLM", "masked"},
                    {"DistilBertForSequenceClassification", "classify"},
                    {"DistilBertForTokenClassification", "tokens"},
                    {"DistilBertForQuestionAnswering", "answers"},
                    {"DistilBertModel", "embed"}},
    .ops.sizes = {[SW_SIZE_WIDTH] = {"dim", "hidden_size", 768},
                  [SW_SIZE_LAYERS] = {"n_layers", "num_hidden_layers", 6},
                  [SW_SIZE_HEADS] = {"n_heads", "num_attention_heads", 12},
                  [SW_SIZE_INNER] = {"hidden_dim", NULL, 3072},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 30522},
                  [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, 512}},
    .names = {.trunk = "distilbert",
              .embedding = "embeddings.word_embeddings",
              .positions = "embeddings.position_embeddings",
              .embedding_norm = "embeddings.LayerNorm",
              .layers = "transformer.layer",
              .q = "attention.q_lin",
              .k = "attention.k_lin",
              .v = "attention.v_lin",
              .out = "attention.out_lin",
              .attention_norm = "sa_layer_norm",
              .up = "ffn.lin1",
              .down = "ffn.lin2",
              .mlp_norm = "output_layer_norm",
              .pool = "pre_classifier",
              .classifier = "classifier",
              .tokens = "classifier",
              .answers = "qa_outputs",
              .mask_dense = "vocab_transform",
              .mask_norm = "vocab_layer_norm",
              .mask_head = "vocab_projector",
              .mask_bias = "vocab_projector.bias",
              .head = "classifier"},
    .ignored = ignored,
    .read = read,
};
