// SPDX-License-Identifier: Apache-2.0
// BERT (Devlin et al. 2018): learned positions and token types, post-norm branches, a pooler on the
// first token. Old files call weight and bias of norms gamma and beta.
#include "model/encoder.h"

/* Buffers stored in old files. */
static const char *const ignored[] = {"*embeddings.position_ids", "*embeddings.token_type_ids",
                                      NULL};
static const char *const aliases[] = {"cls.predictions.bias", "cls.predictions.decoder.bias",
                                      "cls.predictions.decoder.bias", "cls.predictions.bias", NULL};

const struct sw_encoder_family sw_family_bert = {
    SW_ENCODER_OPS("bert"),
    .ops.classes = {{"BertForMaskedLM", "masked"},
                    {"BertForPreTraining", "pretrain"},
                    {"BertForSequenceClassification", "classify"},
                    {"BertForTokenClassification", "tokens"},
                    {"BertForQuestionAnswering", "answers"},
                    {"BertModel", "embed"}},
    .ops.sizes = {[SW_SIZE_WIDTH] = {"hidden_size", NULL, 768},
                  [SW_SIZE_LAYERS] = {"num_hidden_layers", NULL, 12},
                  [SW_SIZE_HEADS] = {"num_attention_heads", NULL, 12},
                  [SW_SIZE_INNER] = {"intermediate_size", NULL, 3072},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 30522},
                  [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, 512}},
    .names = {.trunk = "bert",
              SW_BERT_TRUNK,
              .pooler = "pooler",
              .pool = "bert.pooler.dense",
              SW_BERT_HEADS,
              .next = "cls.seq_relationship"},
    .ignored = ignored,
    .aliases = aliases,
    .read = sw_bert_read,
};
