// SPDX-License-Identifier: Apache-2.0
// Gemma 3, text only (Gemma Team 2025): Gemma 2 without caps on scores, with norms of each head's
// queries and keys. Layers with a window have rotary positions of their own.
#include <math.h>

#include "model/decoder.h"

/* The rotary positions of one kind of layers, in rope_parameters of transformers 5. */
static sw_status find_rope(const struct sw_json_doc *doc, const struct sw_json *config,
                           const char *layers, const struct sw_json **out)
{
    const struct sw_json *all = sw_json_get(config, "rope_parameters");
    const bool given = all && all->type == SW_JSON_OBJECT && all->n_children > 0;
    *out = given ? sw_json_get(all, layers) : NULL;
    *out = *out && (*out)->type != SW_JSON_NULL ? *out : NULL;
    if (given && !sw_json_get(all, "full_attention") && !sw_json_get(all, "sliding_attention")) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s:%d:%d: rope_parameters: wanted the members full_attention and "
                       "sliding_attention",
                       sw_json_name(doc), all->line, all->column);
    }
    if (*out && (*out)->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d:%d: %s: wanted an object", sw_json_name(doc),
                       (*out)->line, (*out)->column, layers);
    }
    return SW_OK;
}

/* Older files have rope_local_base_freq for layers with a window, rope_theta and rope_scaling for
 * the others. */
static sw_status read_rotary(struct sw_json_doc *doc, const struct sw_json *config,
                             struct sw_decoder *decoder)
{
    const struct sw_json *local = NULL, *full = NULL;
    const struct sw_json *scaling = sw_json_get(config, "rope_scaling");
    double theta = 0;
    SW_TRY(find_rope(doc, config, "sliding_attention", &local));
    SW_TRY(find_rope(doc, config, "full_attention", &full));
    SW_TRY(sw_json_get_f64(doc, config, "rope_local_base_freq", 10000, &theta));
    SW_TRY(sw_decoder_read_rope(doc, config, local, theta, 1, decoder));
    decoder->spec.local = decoder->spec.rotary;
    decoder->spec.rotary = (struct sw_rotary_spec){0};
    SW_TRY(sw_json_get_f64(doc, config, "rope_theta", 1000000, &theta));
    SW_TRY(sw_json_get_f64(doc, full, "rope_theta", theta, &theta));
    const bool scales = scaling && scaling->type == SW_JSON_OBJECT;
    return sw_decoder_read_rope(doc, config, scales ? scaling : full, theta, 1, decoder);
}

static bool is_windowed(int64_t layer, int64_t every)
{
    return (layer + 1) % every != 0;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    static const struct sw_model_key every = {"sliding_window_pattern", NULL, 6};
    struct sw_decoder_spec *s = &decoder->spec;
    struct sw_decoder_names *n = &decoder->names;
    int64_t pattern = 0;
    double scalar = 0;
    SW_TRY(sw_gemma_read(doc, config, decoder));
    SW_TRY(read_rotary(doc, config, decoder));
    SW_TRY(sw_model_read_act(doc, config, "hidden_activation", "gelu_pytorch_tanh", &s->act));
    SW_TRY(sw_decoder_read_factor(doc, config, "query_pre_attn_scalar", 256, &scalar));
    SW_TRY(sw_decoder_read_cap(doc, config, "final_logit_softcapping", 0, &s->logits_cap));
    SW_TRY(sw_model_read_size(doc, config, &every, every.fallback, &pattern));
    s->score_scale = 1 / sqrt(scalar);
    n->q_norm = "self_attn.q_norm";
    n->k_norm = "self_attn.k_norm";
    n->mlp_norm = "pre_feedforward_layernorm";
    n->attention_out_norm = "post_attention_layernorm";
    n->mlp_out_norm = "post_feedforward_layernorm";
    SW_TRY(sw_decoder_read_window(doc, config, 4096, decoder));
    return sw_decoder_read_windows(doc, config, is_windowed, pattern, decoder);
}

const struct sw_decoder_family sw_family_gemma3 = {
    SW_DECODER_OPS("gemma3_text"),
    .ops.classes = SW_DECODER_CLASSES("Gemma3ForCausalLM", "Gemma3TextForSequenceClassification",
                                      "Gemma3TextModel"),
    .ops.sizes = SW_LLAMA_SIZES(2304, 26, 8, 9216, 262208, 131072),
    .names = SW_LLAMA_NAMES,
    .tied = true,
    .kv_heads = 4,
    .rounds_scale = true,
    .read = read,
};
