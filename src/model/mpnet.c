// SPDX-License-Identifier: Apache-2.0
// MPNet (Song et al. 2020): RoBERTa's layers and positions without token types, and a bias of
// scores by distance that all layers share. Its padding id is always 1.
#include "model/encoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_encoder *encoder)
{
    enum { PADDING = 1 };
    static const struct sw_model_key buckets = {"relative_attention_num_buckets", NULL, 32};
    struct sw_encoder_spec *s = &encoder->spec;
    SW_TRY(sw_bert_read(doc, config, encoder));
    SW_TRY(sw_model_read_size(doc, config, &buckets, buckets.fallback, &s->buckets));
    s->bucket_distance = 128;
    if (s->buckets < 4 || s->buckets > 256) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %lld; wanted 4 to 256", sw_json_name(doc),
                       buckets.key, (long long)s->buckets);
    }
    s->types = 0;
    s->padding_id = PADDING;
    s->counts_tokens = true;
    s->mask_act = SW_ACT_GELU; /* regardless of hidden_act */
    s->pool_dropout = s->classifier_dropout = s->tokens_dropout = s->hidden_dropout;
    return SW_OK;
}

static const char *const ignored[] = {"*embeddings.position_ids", "*pooler.dense.*", NULL};
static const char *const aliases[] = {"lm_head.bias", "lm_head.decoder.bias",
                                      "lm_head.decoder.bias", "lm_head.bias", NULL};

const struct sw_encoder_family sw_family_mpnet = {
    SW_ENCODER_OPS("mpnet"),
    .ops.classes = {{"MPNetForMaskedLM", "masked"},
                    {"MPNetForSequenceClassification", "classify"},
                    {"MPNetForTokenClassification", "tokens"},
                    {"MPNetForQuestionAnswering", "answers"},
                    {"MPNetModel", "embed"}},
    .ops.sizes = {[SW_SIZE_WIDTH] = {"hidden_size", NULL, 768},
                  [SW_SIZE_LAYERS] = {"num_hidden_layers", NULL, 12},
                  [SW_SIZE_HEADS] = {"num_attention_heads", NULL, 12},
                  [SW_SIZE_INNER] = {"intermediate_size", NULL, 3072},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 30527},
                  [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, 512}},
    .ops.extra_tokens = 2,
    .names = {.trunk = "mpnet",
              .embedding = "embeddings.word_embeddings",
              .positions = "embeddings.position_embeddings",
              .embedding_norm = "embeddings.LayerNorm",
              .layers = "encoder.layer",
              .relative = "encoder.relative_attention_bias",
              .q = "attention.attn.q",
              .k = "attention.attn.k",
              .v = "attention.attn.v",
              .out = "attention.attn.o",
              .attention_norm = "attention.LayerNorm",
              .up = "intermediate.dense",
              .down = "output.dense",
              .mlp_norm = "output.LayerNorm",
              .pool = "classifier.dense",
              .classifier = "classifier.out_proj",
              .tokens = "classifier",
              .answers = "qa_outputs",
              .mask_dense = "lm_head.dense",
              .mask_norm = "lm_head.layer_norm",
              .mask_head = "lm_head.decoder",
              .mask_bias = "lm_head.bias",
              .head = "classifier"},
    .ignored = ignored,
    .aliases = aliases,
    .padding_id = 1,
    .read = read,
};
