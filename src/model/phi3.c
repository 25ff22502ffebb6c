// SPDX-License-Identifier: Apache-2.0
// Phi-3, 3.5 and 4 (Abdin et al. 2024): LLaMA with queries, keys and values in one tensor, and the
// gate and the other factor of the MLP in another.
#include "model/decoder.h"

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    enum { PADDING = 32000 };
    struct sw_decoder_spec *s = &decoder->spec;
    s->rotary.original_tokens = 4096;
    SW_TRY(sw_decoder_read_llama(doc, config, 10000, 0, decoder));
    SW_TRY(sw_model_read_dropout(doc, config, "resid_pdrop", 0, &s->hidden_dropout));
    if (s->rotary.kind != SW_ROTARY_DEFAULT && s->rotary.kind != SW_ROTARY_LONGROPE) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: a rope_type other than default and longrope is not built in this "
                       "version for phi3",
                       sw_json_name(doc));
    }
    sw_decoder_read_padding(config, decoder->super.vocab > PADDING ? PADDING : -1, decoder);
    s->qkv = SW_QKV_PACKED;
    return sw_decoder_read_window(doc, config, 0, decoder);
}

const struct sw_decoder_family sw_family_phi3 = {
    SW_DECODER_OPS("phi3"),
    .ops.classes =
        SW_DECODER_CLASSES("Phi3ForCausalLM", "Phi3ForSequenceClassification", "Phi3Model"),
    .ops.sizes = SW_LLAMA_SIZES(3072, 32, 32, 8192, 32064, 4096),
    .names = {.trunk = "model",
              .embedding = "embed_tokens",
              .layers = "layers",
              .final_norm = "norm",
              .head = "lm_head",
              .attention_norm = "input_layernorm",
              .qkv = "self_attn.qkv_proj",
              .out = "self_attn.o_proj",
              .mlp_norm = "post_attention_layernorm",
              .gate_up = "mlp.gate_up_proj",
              .down = "mlp.down_proj"},
    .rms_norm_eps = 1e-5,
    .rotates_part = true,
    .read = read,
};
