// SPDX-License-Identifier: Apache-2.0
// ViT (Dosovitskiy et al. 2020): image patches as tokens after a learned one, pre-norm branches.
// Classes, or numbers, are predicted from the learned token. DeiT (Touvron et al. 2020) has a
// second learned token. DINOv2 (Oquab et al. 2023) multiplies branches by learned vectors, may have
// a gate, and predicts from the learned token and the mean of the patches.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/heads.h"
#include "model/nets.h"
#include "nn/nn.h"

struct vit {
    struct sw_model super;
    int64_t heads, inner;
    int64_t patch[2]; /* height, width */
    enum sw_act act;
    bool qkv_bias, gated;
    double eps, init_range, hidden_dropout, attention_dropout;
};

struct build {
    const struct vit *m;
    sw_graph *g;
    const struct sw_forward_spec *spec;
    struct sw_layer_names names;
};

static const struct sw_vit_family *family_of(const struct build *b)
{
    return SW_CONTAINER(b->m->super.ops, struct sw_vit_family, ops);
}

/* A product that begins a branch: ranks have columns, whole units of them. */
static sw_value columns(struct build *b, const char *suffix, sw_value x, int64_t out, int64_t unit,
                        bool bias)
{
    const struct sw_linear_spec spec = {.in = b->m->super.width,
                                        .out = out,
                                        .no_bias = !bias,
                                        .std = b->m->init_range,
                                        .columns = unit};
    return sw_nn_linear(b->g, sw_name_in_layer(&b->names, suffix), x, &spec);
}

/* A product that ends a branch: ranks have rows. */
static sw_value rows(struct build *b, const char *suffix, sw_value x, int64_t in, int64_t unit)
{
    const struct sw_linear_spec spec = {
        .in = in, .out = b->m->super.width, .std = b->m->init_range, .rows = unit};
    return sw_nn_linear(b->g, sw_name_in_layer(&b->names, suffix), x, &spec);
}

static sw_value norm(struct build *b, const char *name, sw_value x)
{
    return sw_nn_layer_norm(b->g, name, x, b->m->super.width, b->m->eps);
}

/* A learned token, a row for each sample. */
static sw_value token(struct build *b, const char *suffix)
{
    const struct sw_model *m = &b->m->super;
    const struct sw_init init = {SW_INIT_NORMAL, b->m->init_range};
    const int64_t batch = b->spec->batch;
    char name[48];
    const size_t bytes = (size_t)(batch * m->width) * sw_dtype_bytes(sw_graph_dtype(b->g));
    void *zeros = sw_alloc_zero("model", 1, bytes);
    if (!zeros) {
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for the model");
        return SW_NO_VALUE;
    }
    snprintf(name, sizeof name, "%s.rows.%lld", m->trunk, (long long)batch);
    const sw_value rows =
        sw_constant(b->g, name, sw_graph_dtype(b->g), SW_SHAPE(batch, 1, m->width), zeros);
    sw_free(zeros);
    const sw_value learned =
        sw_param(b->g, sw_name_in_trunk(&b->names, suffix), SW_SHAPE(1, 1, m->width), init);
    return sw_add(b->g, rows, sw_reshape(b->g, learned, SW_SHAPE(m->width)));
}

/* Prepends the learned tokens to the patches [B,n,C] and adds position embeddings to all. */
static sw_value with_tokens(struct build *b, sw_value patches, int64_t n)
{
    const struct sw_model *m = &b->m->super;
    const struct sw_init init = {SW_INIT_NORMAL, b->m->init_range};
    const char *second = family_of(b)->second_token;
    sw_value all[3];
    int n_all = 0;
    all[n_all++] = token(b, "embeddings.cls_token");
    if (second) {
        all[n_all++] = token(b, second);
        n++;
    }
    all[n_all++] = patches;
    const sw_value places =
        sw_param(b->g, sw_name_in_trunk(&b->names, "embeddings.position_embeddings"),
                 SW_SHAPE(1, n + 1, m->width), init);
    return sw_add(b->g, sw_concat(b->g, all, n_all, 1),
                  sw_reshape(b->g, places, SW_SHAPE(n + 1, m->width)));
}

static sw_value embed(struct build *b)
{
    const struct vit *m = b->m;
    const int64_t width = m->super.width, area = m->patch[0] * m->patch[1] * m->super.channels;
    const struct sw_window window = {
        {m->patch[0], m->patch[1]}, {m->patch[0], m->patch[1]}, {0, 0}};
    const int64_t n = m->super.max_tokens - (family_of(b)->second_token ? 2 : 1);
    char name[80];
    const sw_value pixels = sw_model_input(b->g, &m->super, b->spec, "pixel_values");
    const sw_value seen = sw_im2col(b->g, sw_cast(b->g, pixels, sw_graph_dtype(b->g)), &window);
    snprintf(name, sizeof name, "%s.embeddings.patch_embeddings.projection.weight", m->super.trunk);
    const sw_value weight =
        sw_param(b->g, name, SW_SHAPE(width, m->super.channels, m->patch[0], m->patch[1]),
                 (struct sw_init){SW_INIT_NORMAL, m->init_range});
    snprintf(name, sizeof name, "%s.embeddings.patch_embeddings.projection.bias", m->super.trunk);
    const sw_value bias = sw_param(b->g, name, SW_SHAPE(width), (struct sw_init){SW_INIT_ZERO, 0});
    const sw_value patches =
        sw_linear(b->g, seen, sw_reshape(b->g, weight, SW_SHAPE(width, area)), bias, false);
    return sw_dropout(b->g, with_tokens(b, patches, n), m->hidden_dropout);
}

static sw_value attend(struct build *b, sw_value x)
{
    const struct vit *m = b->m;
    const int64_t width = m->super.width;
    const struct sw_attention_spec spec = {
        .heads = m->heads,
        .scale = 1 / sqrt((double)(width / m->heads)),
        .dropout = m->attention_dropout,
        .mask = SW_NO_VALUE,
        .position = SW_NO_VALUE,
        .slopes = SW_NO_VALUE,
        .segments = SW_NO_VALUE,
        .bias = SW_NO_VALUE,
    };
    const sw_value q =
        columns(b, "attention.attention.query", x, width, width / m->heads, m->qkv_bias);
    const sw_value k =
        columns(b, "attention.attention.key", x, width, width / m->heads, m->qkv_bias);
    const sw_value v =
        columns(b, "attention.attention.value", x, width, width / m->heads, m->qkv_bias);
    return rows(b, "attention.output.dense", sw_attention(b->g, q, k, v, &spec), width,
                width / m->heads);
}

/* suffix: of the learned vector; NULL: returns x unchanged. */
static sw_value scale(struct build *b, const char *suffix, sw_value x)
{
    if (!suffix) {
        return x;
    }
    return sw_mul(b->g, x,
                  sw_param(b->g, sw_name_in_layer(&b->names, suffix), SW_SHAPE(b->m->super.width),
                           (struct sw_init){SW_INIT_ONE, 0}));
}

/* silu(gate) up, both of one product. */
static sw_value gated(struct build *b, sw_value x)
{
    const struct vit *m = b->m;
    const struct sw_linear_spec spec = {.in = m->super.width,
                                        .out = 2 * m->inner,
                                        .std = m->init_range,
                                        .columns = 1,
                                        .groups = {m->inner, m->inner}};
    const sw_value both =
        sw_nn_linear(b->g, sw_name_in_layer(&b->names, "mlp.weights_in"), x, &spec);
    x = sw_gated_act(b->g, sw_slice(b->g, both, 2, 0, m->inner),
                     sw_slice(b->g, both, 2, m->inner, m->inner), SW_ACT_SILU);
    return rows(b, "mlp.weights_out", x, m->inner, 1);
}

static sw_value mlp(struct build *b, sw_value x)
{
    const struct vit *m = b->m;
    if (m->gated) {
        return gated(b, x);
    }
    x = sw_act(b->g, columns(b, family_of(b)->up, x, m->inner, 1, true), m->act);
    return rows(b, family_of(b)->down, x, m->inner, 1);
}

static sw_value layer(struct build *b, sw_value h)
{
    const struct vit *m = b->m;
    const struct sw_vit_family *f = family_of(b);
    sw_scope_push(b->g, "attention");
    sw_value x = attend(b, norm(b, sw_name_in_layer(&b->names, f->attention_norm), h));
    x = scale(b, f->attention_scale, sw_dropout(b->g, x, m->hidden_dropout));
    h = sw_add(b->g, h, x);
    sw_scope_pop(b->g);
    sw_scope_push(b->g, "mlp");
    x = mlp(b, norm(b, sw_name_in_layer(&b->names, f->mlp_norm), h));
    x = f->mlp_scale ? scale(b, f->mlp_scale, x) : sw_dropout(b->g, x, m->hidden_dropout);
    h = sw_add(b->g, h, x);
    sw_scope_pop(b->g);
    return h;
}

/* The first token's row [B,C], and the mean of the patches if the family predicts from both. */
static sw_value pooled(struct build *b, sw_value h)
{
    const struct sw_model *model = &b->m->super;
    const int64_t batch = b->spec->batch, n = model->max_tokens - 1;
    const sw_value first =
        sw_reshape(b->g, sw_slice(b->g, h, 1, 0, 1), SW_SHAPE(batch, model->width));
    if (!family_of(b)->has_mean) {
        return first;
    }
    int32_t *ones = sw_alloc("model", (size_t)(batch * n) * sizeof *ones);
    char name[48];
    if (!ones) {
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for the model");
        return SW_NO_VALUE;
    }
    for (int64_t i = 0; i < batch * n; i++) {
        ones[i] = 1;
    }
    snprintf(name, sizeof name, "%s.patches.%lld", model->trunk, (long long)batch);
    const sw_value mask = sw_constant(b->g, name, SW_I32, SW_SHAPE(batch, n), ones);
    sw_free(ones);
    const sw_value both[2] = {first, sw_masked_mean(b->g, sw_slice(b->g, h, 1, 1, n), mask)};
    return sw_concat(b->g, both, 2, 1);
}

static void forward(const struct sw_model *model, sw_graph *g, const struct sw_forward_spec *spec,
                    sw_value *out_loss)
{
    struct build b = {.m = SW_CONTAINER(model, struct vit, super), .g = g, .spec = spec};
    b.names = (struct sw_layer_names){.trunk = model->trunk, .layers = "encoder.layer"};
    struct sw_head head = {model, g, spec, SW_NO_VALUE};
    char name[32];
    sw_scope_push(g, model->trunk);
    sw_value h = embed(&b);
    for (b.names.layer = 0; b.names.layer <= model->layers; b.names.layer++) {
        sw_model_name_hidden(g, spec, b.names.layer, h);
        if (b.names.layer < model->layers) {
            snprintf(name, sizeof name, "layer.%lld", (long long)b.names.layer);
            sw_scope_push_block(g, name);
            h = layer(&b, h);
            sw_scope_pop(g);
        }
    }
    h = norm(&b, sw_name_in_trunk(&b.names, "layernorm"), h);
    sw_scope_pop(g);
    sw_scope_push(g, "head");
    const struct sw_linear_spec classes = {.in = model->width * (family_of(&b)->has_mean ? 2 : 1),
                                           .out = model->labels,
                                           .std = b.m->init_range};
    if (model->task->n_losses > 0) {
        sw_head_term(&head, 0, sw_nn_linear(g, "classifier", pooled(&b, h), &classes));
    }
    *out_loss = sw_head_end(&head);
    sw_scope_pop(g);
}

/* ---- config.json ---- */

/* Reads one number for both height and width, or a list of two. */
static sw_status read_pair(struct sw_json_doc *doc, const struct sw_json *config,
                           const struct sw_model_key *key, int64_t *out)
{
    const struct sw_json *list = sw_json_get(config, key->key);
    if (!list || list->type != SW_JSON_ARRAY) {
        SW_TRY(sw_model_read_size(doc, config, key, key->fallback, &out[0]));
        out[1] = out[0];
        return SW_OK;
    }
    const struct sw_json *both[2] = {list->first, list->last};
    for (int i = 0; i < 2; i++) {
        if (list->n_children != 2 || both[i]->type != SW_JSON_INT) {
            return SW_FAIL(SW_E_FORMAT, "%s:%d:%d: %s: wanted a number, or a list of two",
                           sw_json_name(doc), list->line, list->column, key->key);
        }
        out[i] = both[i]->integer;
        SW_TRY(sw_model_check_size(doc, key->key, out[i]));
    }
    return SW_OK;
}

/* The rest of an image beyond whole patches is ignored. */
static sw_status read_image(struct sw_json_doc *doc, const struct sw_json *config, struct vit *m)
{
    enum { MOST_SIDE = 16384, MOST_CHANNELS = 1024 };
    static const struct sw_model_key image = {"image_size", NULL, 224};
    const struct sw_model_key patch = {
        "patch_size", NULL, SW_CONTAINER(m->super.ops, struct sw_vit_family, ops)->patch};
    static const struct sw_model_key channels = {"num_channels", NULL, 3};
    int64_t side[2];
    SW_TRY(read_pair(doc, config, &image, side));
    SW_TRY(read_pair(doc, config, &patch, m->patch));
    SW_TRY(sw_model_read_size(doc, config, &channels, channels.fallback, &m->super.channels));
    for (int i = 0; i < 2; i++) {
        if (side[i] < m->patch[i] || side[i] > MOST_SIDE || m->super.channels > MOST_CHANNELS) {
            return SW_FAIL(
                SW_E_FORMAT,
                "%s: image_size %lld, patch_size %lld, num_channels %lld; wanted a patch "
                "or more, at most %d pixels a side and %d channels",
                sw_json_name(doc), (long long)side[i], (long long)m->patch[i],
                (long long)m->super.channels, MOST_SIDE, MOST_CHANNELS);
        }
    }
    m->super.image_height = side[0];
    m->super.image_width = side[1];
    m->super.max_tokens = (side[0] / m->patch[0]) * (side[1] / m->patch[1]) + 1;
    m->super.max_tokens +=
        SW_CONTAINER(m->super.ops, struct sw_vit_family, ops)->second_token != NULL;
    return SW_OK;
}

/* DINOv2's MLP: its width is given as a factor, which a gate lessens. Branches that are left out in
 * training are not built. */
static sw_status read_mlp(struct sw_json_doc *doc, const struct sw_json *config, struct vit *m)
{
    double ratio = 0, dropped = 0;
    SW_TRY(sw_model_read_amount(doc, config, "mlp_ratio", 4, &ratio));
    SW_TRY(sw_model_read_amount(doc, config, "drop_path_rate", 0, &dropped));
    SW_TRY(sw_json_get_bool(doc, config, "use_swiglu_ffn", false, &m->gated));
    const double inner = (double)m->super.width * ratio;
    if (!(inner >= 1 && inner <= INT32_MAX)) {
        return SW_FAIL(SW_E_FORMAT, "%s: mlp_ratio is %g; wanted a width from 1 to 2^31",
                       sw_json_name(doc), ratio);
    }
    if (dropped > 0) {
        return SW_FAIL(SW_E_UNSUP, "%s: drop_path_rate %g is not built in this version (it has: 0)",
                       sw_json_name(doc), dropped);
    }
    m->inner = m->gated ? ((int64_t)inner * 2 / 3 + 7) / 8 * 8 : (int64_t)inner;
    return SW_OK;
}

static sw_status read(struct sw_json_doc *doc, const struct sw_json *config,
                      const struct sw_model_options *options, struct sw_model *model)
{
    struct vit *m = SW_CONTAINER(model, struct vit, super);
    const struct sw_vit_family *family = SW_CONTAINER(model->ops, struct sw_vit_family, ops);
    model->trunk = family->trunk;
    model->head_module = "classifier";
    SW_TRY(sw_model_read_sizes(doc, config, model, &m->heads, &m->inner));
    SW_TRY(read_image(doc, config, m));
    SW_TRY(sw_model_read_act(doc, config, "hidden_act", "gelu", &m->act));
    SW_TRY(sw_model_read_amount(doc, config, "layer_norm_eps", family->eps, &m->eps));
    SW_TRY(sw_model_read_amount(doc, config, "initializer_range", 0.02, &m->init_range));
    SW_TRY(sw_model_read_dropout(doc, config, "hidden_dropout_prob", 0, &m->hidden_dropout));
    SW_TRY(sw_model_read_dropout(doc, config, "attention_probs_dropout_prob", 0,
                                 &m->attention_dropout));
    SW_TRY(sw_json_get_bool(doc, config, "qkv_bias", true, &m->qkv_bias));
    if (!model->ops->sizes[SW_SIZE_INNER].key) {
        SW_TRY(read_mlp(doc, config, m));
    }
    if (model->width % m->heads != 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: hidden_size %lld does not divide into %lld heads",
                       sw_json_name(doc), (long long)model->width, (long long)m->heads);
    }
    const double width = (double)model->width;
    SW_TRY(sw_model_check_parameters(doc, model, width * (4 * width + 2 * (double)m->inner),
                                     m->inner));
    return sw_model_read_task(model->ops, doc, config, options, model);
}

/* Files may have a pooler, and a token for masked patches, which no class uses. */
static bool ignores(const struct sw_model *model, const char *file_name)
{
    (void)model;
    return sw_glob_match("*pooler.dense.*", file_name) ||
           sw_glob_match("*embeddings.mask_token", file_name);
}

/* The name, and the name without the trunk's. */
static const char *alias(const struct sw_model *model, const char *name, int i, char *buf,
                         size_t cap)
{
    const size_t trunk = strlen(model->trunk) + 1;
    if (i == 1 && strncmp(name, model->trunk, trunk - 1) == 0 && name[trunk - 1] == '.') {
        snprintf(buf, cap, "%s", name + trunk);
        return buf;
    }
    return sw_nets_alias(model, name, i, buf, cap);
}

#define OPS(type, prefix)                                                                          \
    .ops.model_type = (type), .ops.classes = {{prefix "ForImageClassification", "images"}},        \
    .ops.trunk_class = prefix "Model", .ops.bytes = sizeof(struct vit), .ops.read = read,          \
    .ops.forward = forward, .ops.alias = alias, .ops.ignores = ignores
#define SIZES                                                                                      \
    [SW_SIZE_WIDTH] = {"hidden_size", NULL, 768},                                                  \
    [SW_SIZE_LAYERS] = {"num_hidden_layers", NULL, 12},                                            \
    [SW_SIZE_HEADS] = {"num_attention_heads", NULL, 12}
#define VIT_LAYER                                                                                  \
    .attention_norm = "layernorm_before", .mlp_norm = "layernorm_after",                           \
    .up = "intermediate.dense", .down = "output.dense"

const struct sw_vit_family sw_family_vit = {
    OPS("vit", "ViT"), .ops.sizes = {SIZES, [SW_SIZE_INNER] = {"intermediate_size", NULL, 3072}},
    .trunk = "vit",    VIT_LAYER,
    .patch = 16,       .eps = 1e-12,
};

const struct sw_vit_family sw_family_deit = {
    OPS("deit", "DeiT"), .ops.sizes = {SIZES, [SW_SIZE_INNER] = {"intermediate_size", NULL, 3072}},
    .trunk = "deit",     .second_token = "embeddings.distillation_token",
    VIT_LAYER,           .patch = 16,
    .eps = 1e-12,
};

const struct sw_vit_family sw_family_dinov2 = {
    OPS("dinov2", "Dinov2"),
    .ops.sizes = {SIZES},
    .trunk = "dinov2",
    .attention_norm = "norm1",
    .attention_scale = "layer_scale1.lambda1",
    .mlp_norm = "norm2",
    .mlp_scale = "layer_scale2.lambda1",
    .up = "mlp.fc1",
    .down = "mlp.fc2",
    .has_mean = true,
    .patch = 14,
    .eps = 1e-6,
};
