// SPDX-License-Identifier: Apache-2.0
// The forward graph of every encoder family, from its specification and its names; and names in
// files.
#include "model/encoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/seq2seq.h"

static const struct sw_encoder *encoder_of(const struct sw_model *model)
{
    return SW_CONTAINER(model, struct sw_encoder, super);
}

sw_value sw_encoder_columns(struct sw_encoder_build *b, const char *suffix, sw_value x, int64_t out,
                            int64_t unit)
{
    const struct sw_linear_spec spec = {
        .in = b->m->super.width, .out = out, .std = b->m->spec.init_range, .columns = unit};
    return sw_nn_linear(b->g, sw_name_in_layer(&b->names, suffix), x, &spec);
}

sw_value sw_encoder_rows(struct sw_encoder_build *b, const char *suffix, sw_value x, int64_t in,
                         int64_t unit)
{
    const struct sw_linear_spec spec = {
        .in = in, .out = b->m->super.width, .std = b->m->spec.init_range, .rows = unit};
    return sw_nn_linear(b->g, sw_name_in_layer(&b->names, suffix), x, &spec);
}

sw_value sw_encoder_norm(struct sw_encoder_build *b, const char *name, sw_value x)
{
    return sw_nn_layer_norm(b->g, name, x, b->m->super.width, b->m->spec.eps);
}

static sw_value drop(struct sw_encoder_build *b, sw_value x, double p)
{
    return sw_dropout(b->g, x, p);
}

static sw_value input(const struct sw_encoder_build *b, const char *name)
{
    return sw_model_input(b->g, &b->m->super, b->spec, name);
}

/* ---- embeddings ---- */

static sw_value places(struct sw_encoder_build *b, sw_value ids)
{
    const struct sw_encoder_spec *s = &b->m->spec;
    const bool counts = s->counts_tokens && !b->spec->is_packed;
    if (counts) {
        return sw_positions(b->g, sw_not_equal(b->g, ids, s->padding_id), s->padding_id + 1);
    }
    const sw_value positions = input(b, "positions");
    return s->counts_tokens ? sw_add_offset(b->g, positions, s->padding_id + 1) : positions;
}

static sw_value table_of(struct sw_encoder_build *b, const char *suffix, int64_t rows)
{
    return sw_nn_table(b->g, sw_name_in_trunk(&b->names, suffix), rows, b->m->table_width,
                       b->m->spec.init_range);
}

static sw_value table_of_positions(struct sw_encoder_build *b, int64_t rows)
{
    char name[240];
    if (!b->m->spec.begins_with_sines) {
        return table_of(b, b->m->names.positions, rows);
    }
    snprintf(name, sizeof name, "%s.weight", sw_name_in_trunk(&b->names, b->m->names.positions));
    return sw_param(b->g, name, SW_SHAPE(rows, b->m->table_width),
                    (struct sw_init){SW_INIT_SINES, 0});
}

static sw_value embed(struct sw_encoder_build *b, sw_value table, sw_value ids)
{
    const struct sw_encoder_spec *s = &b->m->spec;
    const struct sw_encoder_names *n = &b->m->names;
    const struct sw_model *m = &b->m->super;
    sw_value h = sw_embedding(b->g, table, ids, s->padding_id);
    if (s->types > 0) {
        const sw_value types = table_of(b, n->types, s->types);
        h = sw_add(b->g, h, sw_embedding(b->g, types, input(b, "token_type_ids"), -1));
    }
    const int64_t padding = s->counts_tokens ? s->padding_id : -1;
    const sw_value positions = table_of_positions(b, m->max_tokens + padding + 1);
    h = sw_add(b->g, h, sw_embedding(b->g, positions, places(b, ids), padding));
    h = sw_nn_layer_norm(b->g, sw_name_in_trunk(&b->names, n->embedding_norm), h, b->m->table_width,
                         s->eps);
    h = drop(b, h, s->embedding_dropout);
    return n->project ? sw_encoder_linear(b->m, b->g, sw_name_in_trunk(&b->names, n->project), h,
                                          b->m->table_width, m->width)
                      : h;
}

/* f32 [H,T,T], which all layers share. */
static sw_value relative_bias(struct sw_encoder_build *b)
{
    const struct sw_encoder_spec *s = &b->m->spec;
    const int64_t n = b->spec->tokens;
    if (s->buckets == 0) {
        return SW_NO_VALUE;
    }
    const sw_value ids =
        sw_bucket_ids(b->g, "relative_position", s->buckets, s->bucket_distance, true, n);
    const struct sw_linear_spec heads = {.out = s->heads, .columns = 1};
    const sw_value table = sw_nn_table(b->g, sw_name_in_trunk(&b->names, b->m->names.relative),
                                       s->buckets, s->heads, s->init_range);
    sw_nn_split_linear(b->g, table, 1, -1, &heads);
    return sw_relative_bias(b->g, sw_embedding(b->g, table, ids, -1), SW_NO_VALUE, n, n, n - 1);
}

/* ---- a layer ---- */

static sw_value attend(struct sw_encoder_build *b, sw_value h)
{
    const struct sw_encoder_spec *s = &b->m->spec;
    const struct sw_encoder_names *n = &b->m->names;
    const int64_t width = b->m->super.width;
    const struct sw_attention_spec spec = {
        .heads = s->heads,
        .scale = 1 / sqrt((double)(width / s->heads)),
        .dropout = s->attention_dropout,
        .mask = b->mask,
        .position = SW_NO_VALUE,
        .slopes = SW_NO_VALUE,
        .segments = b->segments,
        .bias = b->bias,
    };
    const sw_value q = sw_encoder_columns(b, n->q, h, width, width / s->heads);
    const sw_value k = sw_encoder_columns(b, n->k, h, width, width / s->heads);
    const sw_value v = sw_encoder_columns(b, n->v, h, width, width / s->heads);
    const sw_value o = sw_attention(b->g, q, k, v, &spec);
    return sw_encoder_rows(b, n->out, o, width, width / s->heads);
}

static sw_value layer(struct sw_encoder_build *b, sw_value h)
{
    const struct sw_encoder_spec *s = &b->m->spec;
    const struct sw_encoder_names *n = &b->m->names;
    sw_scope_push(b->g, "attention");
    const sw_value a = drop(b, attend(b, h), s->hidden_dropout);
    sw_scope_pop(b->g);
    h = sw_encoder_norm(b, sw_name_in_layer(&b->names, n->attention_norm), sw_add(b->g, h, a));
    sw_scope_push(b->g, "mlp");
    const sw_value hidden = sw_act(b->g, sw_encoder_columns(b, n->up, h, s->inner, 1), s->act);
    const sw_value f = drop(b, sw_encoder_rows(b, n->down, hidden, s->inner, 1),
                            s->keeps_mlp ? 0 : s->hidden_dropout);
    sw_scope_pop(b->g);
    return sw_encoder_norm(b, sw_name_in_layer(&b->names, n->mlp_norm), sw_add(b->g, h, f));
}

/* ---- the whole ---- */

/* The parts of a layer that uses those of its group. */
static sw_value grouped(struct sw_encoder_build *b, sw_value h)
{
    const struct sw_encoder_spec *s = &b->m->spec;
    const struct sw_layer_names own = b->names;
    char parts[96], scope[32];
    snprintf(parts, sizeof parts, "%s.%lld.albert_layers", own.layers,
             (long long)(own.layer * s->groups / b->m->super.layers));
    b->names.layers = parts;
    for (b->names.layer = 0; b->names.layer < s->parts; b->names.layer++) {
        snprintf(scope, sizeof scope, "part.%lld", (long long)b->names.layer);
        sw_scope_push(b->g, scope);
        h = layer(b, h);
        sw_scope_pop(b->g);
    }
    b->names = own;
    return h;
}

static sw_value layers(struct sw_encoder_build *b, sw_value h)
{
    for (b->names.layer = 0; b->names.layer < b->m->super.layers; b->names.layer++) {
        sw_model_begin_layer(b->g, b->spec, &b->names, h);
        h = b->m->spec.groups > 0 ? grouped(b, h) : layer(b, h);
        sw_scope_pop(b->g);
    }
    sw_model_name_hidden(b->g, b->spec, b->names.layer, h);
    return h;
}

void sw_encoder_forward(const struct sw_model *model, sw_graph *g,
                        const struct sw_forward_spec *spec, sw_value *out_loss)
{
    struct sw_encoder_build b = {.m = encoder_of(model), .g = g, .spec = spec};
    b.names = (struct sw_layer_names){.trunk = b.m->names.trunk, .layers = b.m->names.layers};
    const sw_value ids = input(&b, "input_ids");
    b.segments = spec->is_packed ? input(&b, "segments") : SW_NO_VALUE;
    b.mask = spec->is_packed && !spec->has_mask ? SW_NO_VALUE : input(&b, "attention_mask");
    sw_scope_push(g, b.m->names.trunk);
    const sw_value table = sw_nn_vocabulary(g, sw_name_in_trunk(&b.names, b.m->names.embedding),
                                            model->vocab, b.m->table_width, b.m->spec.init_range);
    b.bias = relative_bias(&b);
    const sw_value h = layers(&b, embed(&b, table, ids));
    sw_scope_pop(g);
    *out_loss = sw_encoder_head(b.m, g, spec, h, table);
}

/* ---- names in files ---- */

/* The name with the "LayerNorm.gamma" of early files for "LayerNorm.weight"; false: the name has no
 * such part. */
static bool old_norm(const char *name, char *buf, size_t cap)
{
    static const char *const ends[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                          {"LayerNorm.bias", "LayerNorm.beta"}};
    const size_t len = strlen(name);
    for (size_t i = 0; i < SW_LEN(ends); i++) {
        const size_t n = strlen(ends[i][0]);
        if (len >= n && strcmp(name + len - n, ends[i][0]) == 0) {
            snprintf(buf, cap, "%.*s%s", (int)(len - n), name, ends[i][1]);
            return true;
        }
    }
    return false;
}

const char *sw_encoder_alias(const struct sw_model *model, const char *name, int i, char *buf,
                             size_t cap)
{
    const struct sw_encoder *m = encoder_of(model);
    const size_t trunk = strlen(m->names.trunk);
    const bool in = strncmp(name, m->names.trunk, trunk) == 0 && name[trunk] == '.';
    char old[512];
    const bool has_old = old_norm(name, old, sizeof old);
    const char *names[4];
    int n = 0;
    names[n++] = name;
    if (in) {
        names[n++] = name + trunk + 1;
    }
    if (has_old) {
        names[n++] = old;
    }
    if (has_old && in) {
        names[n++] = old + trunk + 1;
    }
    const char *found = i < n ? names[i] : sw_model_other_name(m->family->aliases, name, i - n);
    if (found) {
        snprintf(buf, cap, "%s", found);
    }
    return found ? buf : NULL;
}

bool sw_encoder_ignores(const struct sw_model *model, const char *file_name)
{
    const struct sw_encoder_family *family = encoder_of(model)->family;
    /* the bias of a tied head, which files of an untied one also have */
    return sw_model_ignores(model, family->ignored, file_name) ||
           (!model->tied && strcmp(file_name, family->names.mask_bias) == 0);
}
