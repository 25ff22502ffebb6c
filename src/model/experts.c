// SPDX-License-Identifier: Apache-2.0
// The experts of a layer, and the keys of config.json that several families of them share.
#include "model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the graph ---- */

struct build {
    const struct sw_decoder *m;
    sw_graph *g;
    struct sw_layer_names *names;
    const struct sw_expert_ranks *ranks;
};

static sw_value param(struct build *b, const char *suffix, const char *end, struct sw_shape shape,
                      double std)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s", sw_name_in_layer(b->names, suffix), end);
    return sw_param(b->g, name, shape,
                    (struct sw_init){std > 0 ? SW_INIT_NORMAL : SW_INIT_ZERO, std});
}

/* A matrix [out,in] for each expert. */
static sw_value separate(struct build *b, const struct sw_routes *routes, const char *suffix,
                         sw_value x, int64_t in, int64_t out, double std)
{
    const struct sw_experts_spec *s = &b->m->spec.experts;
    sw_value *weights = sw_alloc("model", (size_t)s->n * sizeof *weights);
    if (!weights) {
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for the model");
        return SW_NO_VALUE;
    }
    const int64_t ranks = sw_max_i64(b->ranks->n, 1), own = s->n / ranks;
    for (int64_t e = 0; e < s->n; e++) {
        char name[96];
        snprintf(name, sizeof name, "%s.%lld.%s", b->m->names.experts, (long long)e, suffix);
        weights[e] = param(b, name, ".weight", SW_SHAPE(out, in), std);
        if (ranks > 1) {
            sw_param_of_expert(b->g, weights[e], e / own == b->ranks->me);
        }
    }
    const sw_value y =
        sw_expert_linear(b->g, x, routes, weights + b->ranks->me * own, NULL, own, false);
    sw_free(weights);
    return y;
}

/* One tensor [E,in,out] of all experts, and one of biases. */
static sw_value packed(struct build *b, const struct sw_routes *routes, const char *suffix,
                       sw_value x, int64_t in, int64_t out, double std)
{
    const int64_t ranks = sw_max_i64(b->ranks->n, 1), n = b->m->spec.experts.n, own = n / ranks;
    char name[96];
    snprintf(name, sizeof name, "%s.%s", b->m->names.experts, suffix);
    const sw_value weight = param(b, name, "", SW_SHAPE(own, in, out), std);
    const sw_value bias = param(b, name, "_bias", SW_SHAPE(own, out), 0);
    if (ranks > 1) {
        sw_param_of_experts(b->g, weight, n);
        sw_param_of_experts(b->g, bias, n);
    }
    return sw_expert_linear(b->g, x, routes, &weight, &bias, 1, true);
}

/* Each row by its expert, of those that this rank has. */
static sw_value by_experts(struct build *b, const struct sw_routes *routes, sw_value rows)
{
    const struct sw_decoder_names *n = &b->m->names;
    const struct sw_decoder_spec *s = &b->m->spec;
    const int64_t width = b->m->super.width, inner = s->experts.inner;
    if (n->expert_gate_up) {
        const sw_value both =
            packed(b, routes, n->expert_gate_up, rows, width, 2 * inner, s->init_range);
        const sw_value h = sw_clamped_gate(b->g, both, s->experts.alpha, s->experts.limit);
        return packed(b, routes, n->expert_down, h, inner, width, s->proj_range);
    }
    const sw_value gate = separate(b, routes, n->expert_gate, rows, width, inner, s->init_range);
    const sw_value up = separate(b, routes, n->expert_up, rows, width, inner, s->init_range);
    const sw_value h = sw_gated_act(b->g, gate, up, s->act);
    return separate(b, routes, n->expert_down, h, inner, width, s->proj_range);
}

/* Rows go to the ranks of their experts, and come back. */
static sw_value routed(struct build *b, const struct sw_routes *routes, sw_value x)
{
    struct sw_routes there = *routes;
    const sw_value here = sw_to_experts(b->g, x, routes);
    there.offsets = sw_experts_exchange(b->g, routes->offsets, SW_NO_VALUE, SW_NO_VALUE, b->ranks);
    const sw_value rows = sw_experts_exchange(b->g, here, routes->offsets, there.offsets, b->ranks);
    const sw_value y = sw_experts_exchange(b->g, by_experts(b, &there, rows), there.offsets,
                                           routes->offsets, b->ranks);
    return sw_from_experts(b->g, y, routes);
}

/* Experts are divided over the ranks of their axis by number. */
static void check_ranks(const struct build *b)
{
    const int64_t n = b->m->spec.experts.n;
    if (b->ranks->n > 1 && (n % b->ranks->n != 0 || b->ranks->n > SW_MOST_EXPERT_RANKS)) {
        sw_graph_fail(b->g, SW_E_CONFIG,
                      "spillway.mesh.expert %d: wanted a divisor of the %lld experts of a layer",
                      b->ranks->n, (long long)n);
    }
}

/* Sigmoid routers compute their scores in fp32, also where the layers do not. */
static sw_value scores(struct build *b, sw_value x)
{
    const struct sw_decoder_spec *s = &b->m->spec;
    sw_value weight = param(b, b->m->names.router, ".weight",
                            SW_SHAPE(s->experts.n, b->m->super.width), s->init_range);
    const sw_value bias = s->experts.router_bias
                              ? param(b, b->m->names.router, ".bias", SW_SHAPE(s->experts.n), 0)
                              : SW_NO_VALUE;
    if (s->experts.router.sigmoid && sw_graph_dtype(b->g) != SW_F64) {
        x = sw_cast(b->g, x, SW_F32);
        weight = sw_cast(b->g, weight, SW_F32);
    }
    return sw_linear(b->g, x, weight, bias, false);
}

static void add(sw_graph *g, sw_value *sum, sw_value more)
{
    *sum = more < 0 ? *sum : *sum < 0 ? more : sw_add(g, *sum, more);
}

sw_value sw_experts_branch(const struct sw_decoder *m, sw_graph *g, struct sw_layer_names *names,
                           const struct sw_forward_spec *spec, sw_value x, sw_value mask,
                           struct sw_router_sums *sums)
{
    struct build b = {m, g, names, &spec->experts};
    const struct sw_experts_spec *s = &m->spec.experts;
    const int64_t n = spec->batch * spec->tokens;
    const double share = (double)(n * s->router.k) / (double)s->n;
    const double bound = sw_graph_training(g) ? spec->capacity_factor * share : 0;
    if (bound > 0 && bound < 1) {
        sw_graph_fail(g, SW_E_CONFIG,
                      "spillway.capacity_factor %g: an expert would take %g of the %lld choices of "
                      "a micro-batch; wanted at least 1",
                      spec->capacity_factor, bound, (long long)(n * s->router.k));
    }
    const double capacity = ceil(bound);
    check_ranks(&b);
    const sw_value rows = sw_reshape(g, x, SW_SHAPE(n, m->super.width));
    sw_value bias = SW_NO_VALUE;
    if (m->names.choice_bias) {
        char name[256];
        snprintf(name, sizeof name, "%s", sw_name_in_layer(names, m->names.choice_bias));
        bias = sw_param_fixed_wide(g, name, SW_SHAPE(s->n), (struct sw_init){SW_INIT_ZERO, 0});
    }
    const sw_value counted = mask >= 0 ? sw_reshape(g, mask, SW_SHAPE(n)) : SW_NO_VALUE;
    const sw_value logits = scores(&b, rows);
    if (spec->want_hidden) {
        char name[48];
        snprintf(name, sizeof name, "router_logits.%lld", (long long)names->layer);
        sw_output(g, name, logits);
    }
    const struct sw_routes routes =
        sw_route(g, logits, bias, counted, &s->router, capacity < (double)n ? (int64_t)capacity : 0,
                 spec->experts.n);
    add(g, &sums->stats, routes.stats);
    if (spec->has_labels) {
        add(g, &sums->loads, sw_expert_loads(g, &routes));
    }
    return sw_reshape(g, routed(&b, &routes, rows),
                      SW_SHAPE(spec->batch, spec->tokens, m->super.width));
}

sw_value sw_experts_loss(const struct sw_decoder *m, sw_graph *g,
                         const struct sw_forward_spec *spec, sw_value stats)
{
    const double weights[2] = {spec->router_aux_loss >= 0 ? spec->router_aux_loss
                                                          : m->spec.experts.aux_loss,
                               spec->router_z_loss};
    sw_value loss = SW_NO_VALUE;
    if (spec->want_hidden && stats >= 0 && weights[0] > 0) {
        sw_output(g, "aux_loss", sw_router_loss(g, stats, false));
    }
    for (int z = 0; z < 2 && stats >= 0 && spec->has_labels; z++) {
        if (weights[z] > 0) {
            const sw_value mean = sw_router_loss(g, stats, z == 1);
            const sw_value term = sw_scale(g, mean, weights[z]);
            loss = loss < 0 ? term : sw_add(g, loss, term);
        }
    }
    return loss;
}

/* ---- config.json ---- */

sw_status sw_experts_read(struct sw_json_doc *doc, const struct sw_json *config,
                          const struct sw_experts_keys *keys, struct sw_decoder *m)
{
    struct sw_experts_spec *s = &m->spec.experts;
    const struct sw_model_key n = {keys->n, keys->n_alias, keys->fallback_n};
    const struct sw_model_key k = {"num_experts_per_tok", NULL, keys->fallback_k};
    bool wants_loss = false;
    double aux = 0;
    SW_TRY(sw_model_read_size(doc, config, &n, keys->fallback_n, &s->n));
    SW_TRY(sw_model_read_size(doc, config, &k, keys->fallback_k, &s->router.k));
    s->inner = m->spec.inner;
    if (keys->inner) {
        const struct sw_model_key inner = {keys->inner, NULL, keys->fallback_inner};
        SW_TRY(sw_model_read_size(doc, config, &inner, keys->fallback_inner, &s->inner));
    }
    s->router.scale = 1;
    m->super.experts = s->n;
    if (s->router.k > s->n) {
        return SW_FAIL(SW_E_FORMAT, "%s: num_experts_per_tok %lld; wanted at most %s %lld",
                       sw_json_name(doc), (long long)s->router.k, keys->n, (long long)s->n);
    }
    SW_TRY(sw_json_get_bool(doc, config, "output_router_logits", false, &wants_loss));
    SW_TRY(sw_model_read_amount(doc, config, "router_aux_loss_coef", 0.001, &aux));
    s->aux_loss = wants_loss ? aux : 0;
    return SW_OK;
}

static bool lists(const struct sw_json *list, int64_t layer)
{
    for (const struct sw_json *i = list ? list->first : NULL; i; i = i->next) {
        if (i->type == SW_JSON_INT && i->integer == layer) {
            return true;
        }
    }
    return false;
}

sw_status sw_experts_read_layers(struct sw_json_doc *doc, const struct sw_json *config,
                                 struct sw_decoder *m)
{
    const struct sw_json *only = sw_json_get(config, "mlp_only_layers");
    int64_t step = 1;
    SW_TRY(sw_json_get_i64(doc, config, "decoder_sparse_step", 1, &step));
    SW_TRY(sw_model_check_size(doc, "decoder_sparse_step", step));
    if (only && only->type != SW_JSON_ARRAY && only->type != SW_JSON_NULL) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d:%d: mlp_only_layers: wanted a list of layers",
                       sw_json_name(doc), only->line, only->column);
    }
    bool *dense = sw_alloc_zero("model", (size_t)m->super.layers, sizeof *dense);
    SW_TRY_ALLOC(dense, "the layers without experts");
    m->spec.experts.is_dense = dense;
    for (int64_t i = 0; i < m->super.layers; i++) {
        dense[i] = lists(only, i) || (i + 1) % step != 0;
    }
    return SW_OK;
}
