// SPDX-License-Identifier: Apache-2.0
// Granite 3 (IBM 2024): LLaMA with factors on embeddings, scores, branches and logits.
#include "model/decoder.h"

/* A factor of 1 is none. */
static sw_status read_factor(struct sw_json_doc *doc, const struct sw_json *config, const char *key,
                             double *out)
{
    SW_TRY(sw_decoder_read_factor(doc, config, key, 1, out));
    *out = *out == 1 ? 0 : *out;
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    double divisor = 1;
    bool bias = false;
    SW_TRY(sw_decoder_read_llama(doc, config, 10000, 0, decoder));
    SW_TRY(sw_json_get_bool(doc, config, "attention_bias", false, &bias));
    SW_TRY(sw_json_get_bool(doc, config, "mlp_bias", false, &s->mlp_bias));
    SW_TRY(read_factor(doc, config, "embedding_multiplier", &s->embedding_scale));
    SW_TRY(read_factor(doc, config, "residual_multiplier", &s->branch_scale));
    SW_TRY(sw_decoder_read_factor(doc, config, "attention_multiplier", 1, &s->score_scale));
    SW_TRY(sw_decoder_read_factor(doc, config, "logits_scaling", 1, &divisor));
    s->logits_scale = divisor == 1 ? 0 : 1 / divisor;
    s->qkv_bias = s->out_bias = bias;
    return SW_OK;
}

const struct sw_decoder_family sw_family_granite = {
    SW_DECODER_OPS("granite"),
    .ops.classes = {{"GraniteForCausalLM", "causal"}, {"GraniteModel", "causal"}},
    .ops.sizes = SW_LLAMA_SIZES(4096, 32, 32, 11008, 32000, 2048),
    .names = SW_LLAMA_NAMES,
    .read = read,
};
