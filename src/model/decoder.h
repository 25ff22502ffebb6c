// SPDX-License-Identifier: Apache-2.0
// decoder - every decoder-only family as data. struct sw_decoder_spec is the computation, struct
// sw_decoder_names the tensor names; decoder.c builds the graph from both. A family's file reads
// its config.json into the two. Part of model.h.
#pragma once

#include "model/model.h"
#include "nn/nn.h"

enum sw_norm_kind {
    SW_NORM_LAYER,       /* mean and variance, weight and bias */
    SW_NORM_RMS,         /* root mean square, weight */
    SW_NORM_RMS_ONE_PLUS /* the same, with the weight 1 + w */
};

/* How queries and keys are normalised. */
enum sw_head_norm_kind {
    SW_HEAD_NORM_SHARED, /* over a head; all heads have the same weights */
    SW_HEAD_NORM_OWN,    /* over a head; each has its own weights, in one tensor [heads, width] */
    SW_HEAD_NORM_LISTED, /* the same, in a tensor for each head */
    SW_HEAD_NORM_JOINT   /* over all heads */
};

enum sw_position_kind {
    SW_POSITION_LEARNED, /* a table of embeddings */
    SW_POSITION_ROTARY,  /* queries and keys are rotated */
    SW_POSITION_ALIBI    /* scores get a per-head slope times the key's position */
};

/* How attention and MLP are arranged in a layer. */
enum sw_branches {
    SW_BRANCHES_IN_TURN,   /* pre-norm: each reads norm(h) and is added to h */
    SW_BRANCHES_PARALLEL,  /* both read the same h, and both are added to it */
    SW_BRANCHES_POST_NORM, /* in sequence; the norms follow the sums */
    SW_BRANCHES_ON_NORM    /* in sequence; each is added to its normalised input */
};

/* How a file stores the weights of queries, keys and values. */
enum sw_qkv_layout {
    SW_QKV_SEPARATE, /* three matrices */
    SW_QKV_PACKED,   /* one: all queries, then all keys, then all values */
    SW_QKV_BY_HEAD   /* one: for each key head, the queries that read it, its key and its value */
};

/* Rotary position embeddings (Su et al. 2021) and their extensions for longer texts. */
enum sw_rotary_kind {
    SW_ROTARY_DEFAULT,
    SW_ROTARY_LINEAR,  /* all frequencies divided by `factor` (Chen et al. 2023) */
    SW_ROTARY_LLAMA3,  /* long waves divided by `factor`, short ones kept, a ramp between */
    SW_ROTARY_YARN,    /* as LLAMA3, by number of turns; and larger scores (Peng et al. 2023) */
    SW_ROTARY_DYNAMIC, /* a theta that grows with the row, beyond max_tokens */
    SW_ROTARY_LONGROPE /* each frequency divided by its own factor (Ding et al. 2024) */
};

struct sw_rotary_spec {
    enum sw_rotary_kind kind;
    int64_t width;    /* rotated columns of a head; even */
    bool is_odd;      /* frequencies are computed for width - 1 columns */
    bool interleaved; /* pairs (2i, 2i+1) instead of (i, i + width/2) */
    double theta, factor;
    /* LLAMA3, YARN, LONGROPE: context length of pretraining. A family that sets it before reading
     * reads it beside the other sizes only. */
    double original_tokens;
    double max_tokens; /* DYNAMIC */
    double low, high;  /* LLAMA3: low_freq_factor, high_freq_factor */
    /* YARN: turns above which a wave is kept, below which it is stretched */
    double beta_fast, beta_slow;
    bool keeps_fractions;    /* YARN: the ramp's bounds are not rounded ("truncate": false) */
    double attention_factor; /* YARN, LONGROPE: factor of cosines and sines; 0 = 1 */
    /* LONGROPE: [width/2] factors for rows of up to original_tokens, then as many for longer rows;
     * owned by the model. */
    const float *factors;
};

/* Latent attention (DeepSeek-AI 2024): queries through q_rank numbers, keys and values through
 * kv_rank. `nope` columns of a head of queries and keys are not rotated, `rope` are, and all heads
 * share those of keys. */
struct sw_latent_spec {
    int64_t q_rank; /* 0 = one matrix makes the queries */
    int64_t kv_rank, nope, rope;
    int64_t value; /* width of a head of values; 0 = no latent attention */
    bool bias;     /* of the first matrices */
};

/* Experts in the place of a layer's MLP. */
struct sw_experts_spec {
    int64_t n; /* 0 = no layer has experts */
    struct sw_router_attrs router;
    bool router_bias;
    int64_t inner;        /* of an expert */
    int64_t shared;       /* of the expert that all tokens share; 0 = there is none */
    double alpha, limit;  /* of gates that are clamped (expert_gate_up) */
    double aux_loss;      /* weight of the load-balancing loss */
    const bool *is_dense; /* [layers] that have an MLP, owned by the model; NULL: none */
};

/* The computation. All zeros: LayerNorm, learned positions, separate weights without biases. */
struct sw_decoder_spec {
    int64_t heads, kv_heads, head_width, inner;
    enum sw_norm_kind norm;
    bool plain_norms;                 /* LAYER: without weight and bias */
    bool biasless_norms;              /* LAYER: without bias */
    enum sw_head_norm_kind head_norm; /* of queries and keys, if they have a norm */
    double eps;
    enum sw_position_kind positions;
    /* LEARNED: rows of the table before position 0. Above 0, positions count the tokens in the
     * attention mask (OPT). */
    int64_t position_offset;
    struct sw_rotary_spec rotary;
    struct sw_rotary_spec local; /* of layers with a window; width 0: as the others */
    bool bf16_slopes;            /* ALIBI: as in struct sw_attention_spec */
    const bool *is_rotated;      /* [layers], owned by the model; NULL: every layer */
    enum sw_qkv_layout qkv;
    bool in_out; /* weights are stored [in, out] */
    bool qkv_bias, out_bias, mlp_bias, head_bias;
    double score_scale;           /* factor of q . k; 0 = 1 / sqrt(head_width) */
    double score_cap, logits_cap; /* cap tanh(x / cap); 0 = none */
    int64_t window;               /* keys that a query sees, including its own; 0 = all */
    const bool *is_windowed;      /* [layers], owned by the model; NULL: every layer */
    bool scale_by_layer;          /* scores are divided by the layer's number, counted from 1 */
    enum sw_branches branches;
    enum sw_act act;
    /* factors of embedded rows, of a branch that is added, of logits; 0 = none */
    double embedding_scale, branch_scale, logits_scale;
    int64_t padding_id; /* the lookup gives its embedding no gradient; -1 = none */
    struct sw_latent_spec latent;
    struct sw_experts_spec experts;
    double init_range, proj_range; /* of weights; of weights that end a branch, 0 = init_range */
    double embedding_dropout, attention_dropout, hidden_dropout;
    bool drops_mlp_only; /* hidden_dropout leaves attention's branch as it is */
    bool drops_sum;      /* PARALLEL: hidden_dropout drops elements of the branches' sum */
};

/* Names of tensors, without ".weight" and ".bias". All but `trunk` and `head` follow the trunk's
 * name; a layer's names follow "<layers>.<number>.". NULL: there is no such tensor. */
struct sw_decoder_names {
    const char *trunk; /* absent in files that hold only the trunk */
    const char *embedding, *positions, *embedding_norm, *layers, *final_norm;
    const char *head;
    const char *project_in, *project_out; /* between the table's width and the layers' width */
    const char *attention_norm, *attention_out_norm; /* before and after attention */
    const char *qkv, *q, *k, *v, *q_norm, *k_norm, *out;
    const char *sinks;    /* [heads] scores without a value */
    const char *mlp_norm; /* NULL: the MLP reads what attention reads */
    const char *mlp_out_norm;
    const char *gate, *up, *down;               /* with gate: act(gate) up, else act(up) */
    const char *gate_up;                        /* both in one tensor, instead of them */
    const char *router, *choice_bias, *experts; /* choice_bias: the whole suffix */
    /* After "<experts>.<number>."; or with expert_gate_up, after "<experts>.": gate and up of all
     * experts interleaved, and down, each [E,in,out] with "_bias". */
    const char *expert_gate, *expert_up, *expert_down, *expert_gate_up;
    /* The expert that all tokens share; scale: a gate for the whole of it, or NULL. */
    const char *shared_gate, *shared_up, *shared_down, *shared_scale;
};

struct sw_decoder;

struct sw_decoder_family {
    struct sw_model_ops ops; /* SW_DECODER_OPS of its model_type, and SW_DECODER_CLASSES */
    struct sw_decoder_names names;
    bool tied;                   /* default if config.json does not say */
    int64_t kv_heads;            /* the same; 0 = as many as query heads */
    double rms_norm_eps;         /* the same; 0 = 1e-6 */
    const char *rope_parameters; /* the same: JSON; NULL = none */
    bool rotates_part;           /* partial_rotary_factor counts */
    bool rounds_scale;           /* embedding_scale has the dtype of the weights */
    const char *const *ignored;  /* globs of file tensors to ignore; NULL-terminated, or NULL */
    /* pairs: a parameter's name and an alternative; NULL-terminated, or NULL */
    const char *const *aliases;
    /* Reads the rest of config.json; may remove or add names. Refuses a key that changes the
     * computation in an unsupported way, and names it. */
    sw_status (*read)(struct sw_json_doc *doc, const struct sw_json *config,
                      struct sw_decoder *decoder);
};

/* An opened model of any decoder family. */
struct sw_decoder {
    struct sw_model super;
    const struct sw_decoder_family *family;
    struct sw_decoder_spec spec;
    struct sw_decoder_names names;
    int64_t table_width;          /* width of the embedding table, and of the head's input */
    char embedding[96], head[96]; /* full names of the two parameters */
};

/* ---- the members of struct sw_model_ops for these families ---- */

sw_status sw_decoder_read(struct sw_json_doc *doc, const struct sw_json *config,
                          const struct sw_model_options *options, struct sw_model *model);
void sw_decoder_release(struct sw_model *model);
void sw_decoder_forward(const struct sw_model *model, sw_graph *g,
                        const struct sw_forward_spec *spec, sw_value *out_loss);
const char *sw_decoder_alias(const struct sw_model *model, const char *name, int i, char *buf,
                             size_t cap);
bool sw_decoder_ignores(const struct sw_model *model, const char *file_name);

#define SW_DECODER_OPS(type)                                                                       \
    .ops.model_type = (type), .ops.bytes = sizeof(struct sw_decoder), .ops.read = sw_decoder_read, \
    .ops.release = sw_decoder_release, .ops.forward = sw_decoder_forward,                          \
    .ops.alias = sw_decoder_alias, .ops.ignores = sw_decoder_ignores
/* Files that hold only the trunk are language models whose head is the embedding table. */
#define SW_DECODER_CLASSES(lm, classify, trunk)                                                    \
    {                                                                                              \
        {(lm), "causal"}, {(classify), "classify"}, {(trunk), "causal"},                           \
    }

extern const struct sw_decoder_family sw_family_gpt2, sw_family_llama, sw_family_mistral,
    sw_family_qwen2, sw_family_qwen3, sw_family_gemma2, sw_family_gpt_neox, sw_family_opt,
    sw_family_phi, sw_family_bloom, sw_family_gptj, sw_family_gemma, sw_family_gemma3,
    sw_family_phi3, sw_family_smollm3, sw_family_olmo2, sw_family_granite, sw_family_stablelm,
    sw_family_starcoder2, sw_family_cohere, sw_family_glm4, sw_family_mixtral, sw_family_qwen3_moe,
    sw_family_qwen2_moe, sw_family_gpt_oss, sw_family_deepseek_v3, sw_family_falcon;

/* ---- reading config.json ---- */

/* Reads a tanh cap: null is 0 (no cap), absent is `fallback`. */
sw_status sw_decoder_read_cap(struct sw_json_doc *doc, const struct sw_json *config,
                              const char *key, double fallback, double *out);
/* Reads a factor, which is more than 0. */
sw_status sw_decoder_read_factor(struct sw_json_doc *doc, const struct sw_json *config,
                                 const char *key, double fallback, double *out);
/* Reads rope_parameters as transformers 5 writes them, or rope_theta, rope_scaling and
 * partial_rotary_factor. share: default for the rotated part of a head. */
sw_status sw_decoder_read_rotary(struct sw_json_doc *doc, const struct sw_json *config,
                                 double theta, double share, struct sw_decoder *decoder);
/* Reads one such object, or NULL, with these defaults. */
sw_status sw_decoder_read_rope(struct sw_json_doc *doc, const struct sw_json *config,
                               const struct sw_json *rope, double theta, double share,
                               struct sw_decoder *decoder);
/* The layers of "layer_types" that are "sliding_attention"; without the key, the layers that
 * `is_windowed` selects. */
sw_status sw_decoder_read_windows(struct sw_json_doc *doc, const struct sw_json *config,
                                  bool (*is_windowed)(int64_t layer, int64_t from), int64_t from,
                                  struct sw_decoder *decoder);
/* Reads sliding_window into spec.window: null is no window, absent is `fallback`. */
sw_status sw_decoder_read_window(struct sw_json_doc *doc, const struct sw_json *config,
                                 int64_t fallback, struct sw_decoder *decoder);
/* Reads num_key_value_heads; absent: the family's default; null: as many as query heads. */
sw_status sw_decoder_read_kv_heads(struct sw_json_doc *doc, const struct sw_json *config,
                                   struct sw_decoder *decoder);
/* Reads pad_token_id for the embedding's padding row; absent: `fallback`. */
void sw_decoder_read_padding(const struct sw_json *config, int64_t fallback,
                             struct sw_decoder *decoder);
/* Reads the keys that LLaMA and related families share: num_key_value_heads, head_dim (fallback
 * 0: width over heads), hidden_act, rms_norm_eps, initializer_range, attention_dropout,
 * pad_token_id. */
sw_status sw_decoder_read_llama(struct sw_json_doc *doc, const struct sw_json *config, double theta,
                                int64_t head_width, struct sw_decoder *decoder);
/* The same without rotary positions. */
sw_status sw_decoder_read_llama_layers(struct sw_json_doc *doc, const struct sw_json *config,
                                       int64_t head_width, struct sw_decoder *decoder);
/* The same without num_key_value_heads, head_dim and the keys of rotary positions. */
sw_status sw_decoder_read_common(struct sw_json_doc *doc, const struct sw_json *config,
                                 struct sw_decoder *decoder);
/* The keys of their sizes, with transformers' defaults. */
#define SW_LLAMA_SIZES(width, layers, heads, inner, vocab, tokens)                                 \
    {                                                                                              \
        [SW_SIZE_WIDTH] = {"hidden_size", NULL, (width)},                                          \
        [SW_SIZE_LAYERS] = {"num_hidden_layers", NULL, (layers)},                                  \
        [SW_SIZE_HEADS] = {"num_attention_heads", NULL, (heads)},                                  \
        [SW_SIZE_INNER] = {"intermediate_size", NULL, (inner)},                                    \
        [SW_SIZE_VOCAB] = {"vocab_size", NULL, (vocab)},                                           \
        [SW_SIZE_TOKENS] = {"max_position_embeddings", NULL, (tokens)},                            \
    }
#define SW_LLAMA_NAMES                                                                             \
    {                                                                                              \
        .trunk = "model", .embedding = "embed_tokens", .layers = "layers", .final_norm = "norm",   \
        .head = "lm_head", .attention_norm = "input_layernorm", .q = "self_attn.q_proj",           \
        .k = "self_attn.k_proj", .v = "self_attn.v_proj", .out = "self_attn.o_proj",               \
        .mlp_norm = "post_attention_layernorm", .gate = "mlp.gate_proj", .up = "mlp.up_proj",      \
        .down = "mlp.down_proj",                                                                   \
    }

/* Reads the keys that Gemma 1, 2 and 3 share, without rotary positions. */
sw_status sw_gemma_read(struct sw_json_doc *doc, const struct sw_json *config,
                        struct sw_decoder *decoder);
/* Reads use_sliding_window, max_window_layers and layer_types of Qwen 2 and 3. */
sw_status sw_qwen_read_windows(struct sw_json_doc *doc, const struct sw_json *config,
                               struct sw_decoder *decoder);

/* Reads what Qwen 3 has in common with and without experts: all but its windows. head_width: as in
 * sw_decoder_read_llama. */
sw_status sw_qwen3_read(struct sw_json_doc *doc, const struct sw_json *config, int64_t head_width,
                        struct sw_decoder *decoder);

/* ---- experts (experts.c) ---- */

/* Sums over layers; SW_NO_VALUE: no layer so far has any. */
struct sw_router_sums {
    sw_value stats, loads; /* outputs of ROUTER_STATS, of EXPERT_LOADS */
};
/* x [B,T,C] -> the same shape, by the layer's routed experts. Adds to *sums; the loads only if
 * there are labels. mask [B,T] or SW_NO_VALUE: tokens that count in the router's statistics. */
sw_value sw_experts_branch(const struct sw_decoder *m, sw_graph *g, struct sw_layer_names *names,
                           const struct sw_forward_spec *spec, sw_value x, sw_value mask,
                           struct sw_router_sums *sums);
/* The weighted losses of all routers; SW_NO_VALUE: there are none. With hidden states, output
 * "aux_loss" is the load-balancing loss without its weight. */
sw_value sw_experts_loss(const struct sw_decoder *m, sw_graph *g,
                         const struct sw_forward_spec *spec, sw_value stats);
static inline bool sw_experts_has(const struct sw_decoder *m, int64_t layer)
{
    const struct sw_experts_spec *s = &m->spec.experts;
    return s->n > 0 && !(s->is_dense && s->is_dense[layer]);
}

/* Keys of config.json; inner NULL: as wide as an MLP. */
struct sw_experts_keys {
    const char *n, *n_alias, *inner;
    int64_t fallback_n, fallback_k, fallback_inner;
};
/* Reads sizes of experts, the number that a token chooses, and the weight of the load-balancing
 * loss, which counts if output_router_logits is true. */
sw_status sw_experts_read(struct sw_json_doc *doc, const struct sw_json *config,
                          const struct sw_experts_keys *keys, struct sw_decoder *m);
/* Reads mlp_only_layers and decoder_sparse_step. */
sw_status sw_experts_read_layers(struct sw_json_doc *doc, const struct sw_json *config,
                                 struct sw_decoder *m);
/* SW_LLAMA_NAMES with experts in "mlp". */
#define SW_EXPERTS_NAMES                                                                           \
    {                                                                                              \
        .trunk = "model", .embedding = "embed_tokens", .layers = "layers", .final_norm = "norm",   \
        .head = "lm_head", .attention_norm = "input_layernorm", .q = "self_attn.q_proj",           \
        .k = "self_attn.k_proj", .v = "self_attn.v_proj", .out = "self_attn.o_proj",               \
        .mlp_norm = "post_attention_layernorm", .gate = "mlp.gate_proj", .up = "mlp.up_proj",      \
        .down = "mlp.down_proj", .router = "mlp.gate", .experts = "mlp.experts",                   \
        .expert_gate = "gate_proj", .expert_up = "up_proj", .expert_down = "down_proj",            \
    }

/* ---- rotary positions ---- */

/* width/2 angular frequencies for rows of `tokens` tokens, in fp32 as in transformers. */
void sw_rotary_frequencies(const struct sw_rotary_spec *spec, int64_t tokens, float *out);
/* The table of sw_rotary for positions 0 .. rows - 1: [rows, width], cosines, then sines. It is the
 * constant "<name>.<rows>". */
sw_value sw_rotary_table(sw_graph *g, const char *name, const struct sw_rotary_spec *spec,
                         int64_t rows);
/* [heads] slopes of ALiBi (Press et al. 2021), for any number of heads; perhaps rounded to bf16. */
sw_value sw_alibi_slopes(sw_graph *g, int64_t heads, bool bf16);

/* ---- heads (model/heads.h has the parts shared with other families) ---- */

/* Logits and loss of a language model; h [B,T,C], table [V,C] of the embedding. more: is added to
 * the loss, or SW_NO_VALUE. */
sw_value sw_head_lm(const struct sw_decoder *m, sw_graph *g, const struct sw_forward_spec *spec,
                    sw_value h, sw_value table, sw_value more);
/* Head of a text classifier: one row of logits from the last token that is not padding. */
sw_value sw_head_classify(const struct sw_decoder *m, sw_graph *g,
                          const struct sw_forward_spec *spec, sw_value h, sw_value ids);
