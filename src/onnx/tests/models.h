// SPDX-License-Identifier: Apache-2.0
// Small models, and values for them that depend on name and place only.
#pragma once

#include "onnx/onnx.h"

/* Opens a model by the text of its config.json; fails the test if it is refused. */
struct sw_model *test_model(const char *config);
/* Exports to `folder`, which is made. */
sw_status test_export_model(const struct sw_model *model, const char *folder, int opset,
                            enum sw_dtype dtype, int64_t inside_bytes, struct sw_onnx_summary *out);
sw_status test_export(const char *config, const char *folder, int opset, enum sw_dtype dtype,
                      int64_t inside_bytes, struct sw_onnx_summary *out);
/* Element i of a parameter, as test_export writes it. */
float test_value(const char *name, int64_t i);

#define TEST_GPT2                                                                                  \
    "{\"model_type\":\"gpt2\",\"vocab_size\":16,\"n_positions\":8,\"n_embd\":8,\"n_layer\":1,"     \
    "\"n_head\":2}"
#define TEST_BERT                                                                                  \
    "{\"model_type\":\"bert\",\"architectures\":[\"BertForMaskedLM\"],\"vocab_size\":16,"          \
    "\"max_position_embeddings\":8,\"hidden_size\":8,\"num_hidden_layers\":1,"                     \
    "\"num_attention_heads\":2,\"intermediate_size\":12}"
#define TEST_LLAMA                                                                                 \
    "{\"model_type\":\"llama\",\"vocab_size\":16,\"max_position_embeddings\":8,\"hidden_size\":8," \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"                 \
    "\"intermediate_size\":12}"
#define TEST_T5                                                                                    \
    "{\"model_type\":\"t5\",\"architectures\":[\"T5ForConditionalGeneration\"],\"vocab_size\":16," \
    "\"d_model\":8,\"d_kv\":4,\"num_heads\":2,\"d_ff\":12,\"num_layers\":1,"                       \
    "\"feed_forward_proj\":\"gated-gelu\",\"tie_word_embeddings\":false,"                          \
    "\"decoder_start_token_id\":0,\"pad_token_id\":0}"
#define TEST_VIT                                                                                   \
    "{\"model_type\":\"vit\",\"architectures\":[\"ViTForImageClassification\"],\"image_size\":8,"  \
    "\"patch_size\":4,\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"        \
    "\"intermediate_size\":12,\"num_labels\":3}"
