// SPDX-License-Identifier: Apache-2.0
// GPT-J (Wang and Komatsuzaki 2021): attention and MLP in parallel after one norm; neighbouring
// columns of a head are rotated in pairs; a head with a bias.
#include "model/decoder.h"

/* rotary_dim columns of a head are rotated; null: all. */
static sw_status read_rotary(struct sw_json_doc *doc, const struct sw_json *config,
                             struct sw_decoder *decoder)
{
    struct sw_rotary_spec *r = &decoder->spec.rotary;
    const int64_t head = decoder->super.width / decoder->spec.heads;
    const struct sw_json *given = sw_json_get(config, "rotary_dim");
    const int64_t fallback = given ? head : 64;
    SW_TRY(sw_json_get_i64(doc, config, "rotary_dim", fallback, &r->width));
    if (r->width < 2 || r->width > head || r->width % 2 != 0) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: rotary_dim is %lld; wanted an even number up to the %lld "
                       "columns of a head",
                       sw_json_name(doc), (long long)r->width, (long long)head);
    }
    r->theta = 10000;
    r->interleaved = true;
    decoder->spec.positions = SW_POSITION_ROTARY;
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder)
{
    struct sw_decoder_spec *s = &decoder->spec;
    SW_TRY(sw_model_read_act(doc, config, "activation_function", "gelu_new", &s->act));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_epsilon", 1e-5, &s->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &s->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "embd_pdrop", 0, &s->embedding_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "attn_pdrop", 0, &s->attention_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "resid_pdrop", 0, &s->hidden_dropout));
    s->branches = SW_BRANCHES_PARALLEL;
    s->mlp_bias = s->head_bias = true;
    return read_rotary(doc, config, decoder);
}

/* The causal masks that old files store as buffers. */
static const char *const ignored[] = {"*.attn.bias", "*.attn.masked_bias", NULL};

const struct sw_decoder_family sw_family_gptj = {
    SW_DECODER_OPS("gptj"),
    .ops.classes =
        SW_DECODER_CLASSES("GPTJForCausalLM", "GPTJForSequenceClassification", "GPTJModel"),
    .ops.sizes = {[SW_SIZE_WIDTH] = {"n_embd", "hidden_size", 4096},
                  [SW_SIZE_LAYERS] = {"n_layer", "num_hidden_layers", 28},
                  [SW_SIZE_HEADS] = {"n_head", "num_attention_heads", 16},
                  [SW_SIZE_INNER] = {"n_inner", NULL, 0},
                  [SW_SIZE_VOCAB] = {"vocab_size", NULL, 50400},
                  [SW_SIZE_TOKENS] = {"n_positions", "max_position_embeddings", 2048}},
    .names = {.trunk = "transformer",
              .embedding = "wte",
              .layers = "h",
              .final_norm = "ln_f",
              .head = "lm_head",
              .attention_norm = "ln_1",
              .q = "attn.q_proj",
              .k = "attn.k_proj",
              .v = "attn.v_proj",
              .out = "attn.out_proj",
              .up = "mlp.fc_in",
              .down = "mlp.fc_out"},
    .ignored = ignored,
    .read = read,
};
