// SPDX-License-Identifier: Apache-2.0
// OPT (Zhang et al. 2022): learned positions that count the mask's tokens, starting at the third
// row of their table; relu.
#include "model/decoder.h"

static sw_status refuse(struct sw_json_doc *doc, const struct sw_json *config)
{
    double layerdrop = 0;
    SW_TRY(sw_json_get_f64(doc, config, "layerdrop", 0, &layerdrop));
    if (layerdrop != 0) {
        return SW_FAIL(SW_E_UNSUP, "%s: layerdrop %g is not built in this version",
                       sw_json_name(doc), layerdrop);
    }
    return SW_OK;
}

/* The 350M variant: post-norm, no final norm, and a table narrower than the layers. Norms may be
 * without weights. */
static sw_status read_variant(struct sw_json_doc *doc, const struct sw_json *config,
                              struct sw_decoder *m)
{
    static const struct sw_model_key projected = {"word_embed_proj_dim", NULL, 0};
    bool before = true, removed = false, affine = true;
    SW_TRY(sw_json_get_bool(doc, config, "do_layer_norm_before", true, &before));
    SW_TRY(sw_json_get_bool(doc, config, "_remove_final_layer_norm", false, &removed));
    SW_TRY(sw_model_read_size(doc, config, &projected, m->super.width, &m->table_width));
    m->spec.branches = before ? SW_BRANCHES_IN_TURN : SW_BRANCHES_POST_NORM;
    SW_TRY(sw_json_get_bool(doc, config, "layer_norm_elementwise_affine", true, &affine));
    m->spec.plain_norms = !affine;
    m->names.final_norm = before && !removed ? m->names.final_norm : NULL;
    if (m->table_width != m->super.width) {
        m->names.project_in = "project_in";
        m->names.project_out = "project_out";
    }
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    SW_TRY(refuse(doc, config));
    SW_TRY(read_variant(doc, config, decoder));
    SW_TRY(sw_model_read_act(doc, config, "activation_function", "relu", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "init_std", 0.02, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_dropout", 0, &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "dropout", 0.1, &s->hidden_dropout));
    SW_TRY(sw_json_get_bool(doc, config, "enable_bias", true, &s->qkv_bias));
    s->out_bias = s->mlp_bias = s->qkv_bias;
    s->eps = 1e-5;
    s->position_offset = 2;
    sw_decoder_read_padding(config, 1, decoder);
    return SW_OK;
}

static const char *const aliases[] = {
    "model.decoder.final_layer_norm.weight", "decoder.layer_norm.weight",
    "model.decoder.final_layer_norm.bias", "decoder.layer_norm.bias", NULL};

const struct sw_decoder_family sw_family_opt = {
    SW_DECODER_OPS("opt"),
    .ops.classes = SW_DECODER_CLASSES("OPTForCausalLM", "OPTForSequenceClassification", "OPTModel"),
    .ops.sizes = {[SW_SIZE_WIDTH] = {"hidden_size", NULL, 768},
                  [SW_SIZE_LAYERS] = {"num_hidden_layers", NULL, 12},
                  [SW_SIZE_HEADS] = {"num_attention_heads", NULL, 12},
                  [SW_SIZE_INNER] = {"ffn_dim", NULL, 3072},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 50272},
                  [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, 2048}},
    .names = {.trunk = "model.decoder",
              .embedding = "embed_tokens",
              .positions = "embed_positions",
              .layers = "layers",
              .final_norm = "final_layer_norm",
              .head = "lm_head",
              .attention_norm = "self_attn_layer_norm",
              .q = "self_attn.q_proj",
              .k = "self_attn.k_proj",
              .v = "self_attn.v_proj",
              .out = "self_attn.out_proj",
              .mlp_norm = "final_layer_norm",
              .up = "fc1",
              .down = "fc2"},
    .tied = true,
    .aliases = aliases,
    .read = read,
};
