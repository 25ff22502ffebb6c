// SPDX-License-Identifier: Apache-2.0
// The graph for given sizes. Nodes are taken once, in order: their shapes are inferred, and those
// whose operands are all constant are computed. What is left are nodes that depend on elements of
// the model's inputs, and those that look at weights.
#include "onnx/fold.h"

#include <stdio.h>
#include <string.h>

#include "onnx/file.h"
#include "onnx/reading.h"

struct fold {
    const struct sw_onnx_graph *src;
    const struct sw_onnx_fold_options *options;
    struct sw_onnx_graph *g;
    struct sw_onnx_folding folding;
    struct sw_names sizes; /* of free dimensions, with their index in known_sizes */
    int64_t *known_sizes;
    int32_t n_sizes, cap_sizes;
    struct sw_onnx_known *known;       /* [n_values] */
    int32_t *same;                     /* [n_values] the value that replaces it, or itself */
    int32_t *left;                     /* [n_values] users that have not been looked at */
    const struct sw_onnx_rule **rules; /* [n_nodes] NULL = no rule */
    bool *live;                        /* [n_nodes] an output needs it */
    bool *constant, *fixed;            /* [n_values] */
    struct sw_onnx_case c;
};

static const struct sw_onnx_rule *rule_of(const char *op)
{
    int first = 0, end = sw_onnx_n_rules;
    while (first < end) {
        const int middle = (first + end) / 2;
        const int order = strcmp(op, sw_onnx_rules[middle].op);
        if (order == 0) {
            return &sw_onnx_rules[middle];
        }
        first = order > 0 ? middle + 1 : first;
        end = order > 0 ? end : middle;
    }
    return NULL;
}

static bool is_of_shape(const struct sw_onnx_rule *rule)
{
    return rule->eval == sw_onnx_eval_shape || rule->eval == sw_onnx_eval_size;
}

static const char *plain(const char *text, char out[200])
{
    return sw_plain_words(text, out, 200);
}

/* ---- sizes ---- */

static sw_status give_size(struct fold *f, const char *name, int64_t size)
{
    char words[200];
    const int32_t found = sw_names_find(&f->sizes, 0, name);
    if (size < 1) {
        return SW_FAIL(SW_E_CONFIG, "size %s is %lld, wanted 1 or more", plain(name, words),
                       (long long)size);
    }
    if (found >= 0) {
        return f->known_sizes[found] == size
                   ? SW_OK
                   : SW_FAIL(SW_E_CONFIG, "size %s is %lld and %lld", plain(name, words),
                             (long long)f->known_sizes[found], (long long)size);
    }
    SW_TRY(sw_onnx_grow(&f->known_sizes, f->n_sizes, &f->cap_sizes, sizeof *f->known_sizes));
    if (!sw_names_add(&f->sizes, 0, name, f->n_sizes)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the sizes of an ONNX file");
    }
    f->known_sizes[f->n_sizes++] = size;
    return SW_OK;
}

static const struct sw_onnx_given_input *given_input(const struct fold *f, const char *name)
{
    for (int i = 0; i < f->options->n_inputs; i++) {
        if (strcmp(f->options->inputs[i].name, name) == 0) {
            return &f->options->inputs[i];
        }
    }
    return NULL;
}

static sw_status give_input(struct fold *f, const struct sw_onnx_graph_value *v,
                            const struct sw_onnx_given_input *given)
{
    char words[200], shape[200];
    if (given->rank != v->rank) {
        return SW_FAIL(SW_E_CONFIG, "input %s of the model has %d dimensions, wanted %d",
                       plain(v->name, words), v->rank, given->rank);
    }
    for (int d = 0; d < v->rank; d++) {
        if (v->dims[d] >= 0 && v->dims[d] != given->dims[d]) {
            return SW_FAIL(SW_E_CONFIG,
                           "input %s of the model is %s: its dimension %d is fixed, wanted %lld",
                           plain(v->name, words), sw_onnx_value_words(v, shape, sizeof shape), d,
                           (long long)given->dims[d]);
        }
        if (v->dims[d] < 0 && *v->sizes[d]) {
            SW_TRY(give_size(f, v->sizes[d], given->dims[d]));
        }
    }
    return SW_OK;
}

static sw_status give_sizes(struct fold *f)
{
    for (int i = 0; i < f->options->n_sizes; i++) {
        SW_TRY(give_size(f, f->options->sizes[i].name, f->options->sizes[i].size));
    }
    for (int32_t i = 0; i < f->src->n_inputs; i++) {
        const struct sw_onnx_graph_value *v = &f->src->values[f->src->inputs[i]];
        const struct sw_onnx_given_input *given = given_input(f, v->name);
        if (given && given->rank >= 0) {
            SW_TRY(give_input(f, v, given));
        }
    }
    return SW_OK;
}

/* The constant that an input is given as. */
static sw_status give_elems(struct fold *f, struct sw_onnx_known *x, const double *elems)
{
    struct sw_onnx_case *c = &f->c;
    void *to;
    c->out[0] = *x;
    SW_TRY(sw_onnx_new_constant(c, 0, &to));
    for (int64_t i = 0; i < c->out[0].data->n; i++) {
        sw_onnx_store_number(x->type, to, i, elems[i]);
    }
    *x = c->out[0];
    return SW_OK;
}

static sw_status settle_input(struct fold *f, int32_t i)
{
    const struct sw_onnx_graph_value *v = &f->src->values[i];
    const struct sw_onnx_given_input *given = given_input(f, v->name);
    struct sw_onnx_known *x = &f->known[i];
    char words[200], size[200];
    *x = (struct sw_onnx_known){.type = v->type, .rank = v->rank};
    for (int d = 0; d < v->rank; d++) {
        const int32_t found = sw_names_find(&f->sizes, 0, v->sizes[d]);
        x->dims[d] = v->dims[d] >= 0              ? v->dims[d]
                     : given && given->rank >= 0  ? given->dims[d]
                     : found >= 0 && *v->sizes[d] ? f->known_sizes[found]
                                                  : -1;
        if (x->dims[d] < 0) {
            return SW_FAIL(SW_E_CONFIG,
                           "input %s of the model: dimension %d, size \"%s\", is not given",
                           plain(v->name, words), d, plain(v->sizes[d], size));
        }
    }
    int64_t n;
    if (!sw_onnx_elems(x->rank, x->dims, 8, &n)) {
        return SW_FAIL(SW_E_CONFIG,
                       "input %s of the model: the product of its dimensions overflows",
                       plain(v->name, words));
    }
    return given && given->elems ? give_elems(f, x, given->elems) : SW_OK;
}

/* ---- what is constant ---- */

static void mark_live(struct fold *f)
{
    bool *wanted = f->fixed; /* used here first */
    for (int32_t i = 0; i < f->src->n_outputs; i++) {
        wanted[f->src->outputs[i]] = true;
    }
    for (int32_t i = 0; i < f->options->n_keep; i++) {
        wanted[f->options->keep[i]] = true;
    }
    for (int32_t i = f->src->n_nodes - 1; i >= 0; i--) {
        const struct sw_onnx_graph_node *node = &f->src->nodes[i];
        for (int32_t k = 0; k < node->n_out; k++) {
            f->live[i] = f->live[i] || (node->out[k] >= 0 && wanted[node->out[k]]);
        }
        for (int32_t k = 0; k < node->n_in && f->live[i]; k++) {
            if (node->in[k] >= 0) {
                wanted[node->in[k]] = true;
            }
        }
    }
    memset(f->fixed, 0, (size_t)f->src->n_values * sizeof *f->fixed);
}

/* Weights that only lead to constants, and to Sin or Cos, are tables of angles. */
static void mark_fixed(struct fold *f)
{
    const struct sw_onnx_graph *src = f->src;
    for (int32_t i = 0; i < src->n_values; i++) {
        f->constant[i] = f->known[i].data || src->values[i].kind == ONNX_VALUE_WEIGHT;
    }
    for (int32_t i = 0; i < src->n_nodes; i++) {
        const struct sw_onnx_graph_node *node = &src->nodes[i];
        bool all = f->live[i] && f->rules[i] && f->rules[i]->eval;
        for (int32_t k = 0; all && k < node->n_in && !is_of_shape(f->rules[i]); k++) {
            all = node->in[k] < 0 || f->constant[node->in[k]];
        }
        for (int32_t k = 0; all && k < node->n_out; k++) {
            if (node->out[k] >= 0) {
                f->constant[node->out[k]] = true;
            }
        }
    }
    for (int32_t i = src->n_nodes - 1; i >= 0; i--) {
        const struct sw_onnx_graph_node *node = &src->nodes[i];
        const int32_t out = node->n_out > 0 ? node->out[0] : -1;
        if (!f->live[i] || out < 0 || !f->constant[out] || is_of_shape(f->rules[i]) ||
            (!f->fixed[out] && strcmp(node->op, "Sin") != 0 && strcmp(node->op, "Cos") != 0)) {
            continue;
        }
        for (int32_t k = 0; k < node->n_in; k++) {
            if (node->in[k] >= 0) {
                f->fixed[node->in[k]] = true;
            }
        }
    }
}

static sw_status settle_values(struct fold *f)
{
    const struct sw_onnx_graph *src = f->src;
    for (int32_t i = 0; i < src->n_values; i++) {
        const struct sw_onnx_graph_value *v = &src->values[i];
        f->known[i] = (struct sw_onnx_known){.type = v->type, .rank = -1};
        f->same[i] = i;
        if (v->data) {
            f->known[i].rank = v->rank;
            memcpy(f->known[i].dims, v->dims, sizeof v->dims);
            f->known[i].data = v->kind == ONNX_VALUE_CONSTANT ? v->data : NULL;
        }
    }
    for (int32_t i = 0; i < src->n_inputs; i++) {
        SW_TRY(settle_input(f, src->inputs[i]));
    }
    for (int32_t i = 0; i < src->n_nodes; i++) {
        f->rules[i] = rule_of(src->nodes[i].op);
    }
    mark_live(f);
    mark_fixed(f);
    for (int32_t i = 0; i < src->n_values; i++) {
        if (f->fixed[i] && src->values[i].kind == ONNX_VALUE_WEIGHT) {
            f->known[i].data = src->values[i].data;
        }
    }
    for (int32_t i = 0; i < src->n_nodes; i++) {
        for (int32_t k = 0; f->live[i] && k < src->nodes[i].n_in; k++) {
            if (src->nodes[i].in[k] >= 0) {
                f->left[src->nodes[i].in[k]]++;
            }
        }
    }
    for (int32_t i = 0; i < src->n_outputs; i++) {
        f->left[src->outputs[i]]++;
    }
    for (int32_t i = 0; i < f->options->n_keep; i++) {
        f->left[f->options->keep[i]]++;
    }
    return SW_OK;
}

/* ---- a node ---- */

static sw_status set_case(struct fold *f, int32_t i)
{
    const struct sw_onnx_graph_node *node = &f->src->nodes[i];
    const struct sw_onnx_rule *rule = f->rules[i];
    struct sw_onnx_case *c = &f->c;
    if (!rule) {
        return SW_FAIL(SW_E_UNSUP, "this operator is not known: it has no rule for its shape");
    }
    const int most_in = rule->most_in < 0 ? ONNX_MOST_IN : rule->most_in;
    const int most_out = rule->n_out < 0 ? ONNX_MOST_IN : rule->n_out;
    if (node->n_in < rule->least_in || node->n_in > most_in || node->n_out < 1 ||
        node->n_out > most_out) {
        return SW_FAIL(SW_E_FORMAT,
                       "it has %d inputs and %d outputs, wanted %d to %d inputs and 1 to %d "
                       "outputs",
                       node->n_in, node->n_out, rule->least_in, most_in, most_out);
    }
    c->node = node;
    c->rule = rule;
    c->n_in = node->n_in;
    c->n_out = node->n_out;
    c->same_as_in = false;
    for (int32_t k = 0; k < node->n_in; k++) {
        c->in[k] = node->in[k] >= 0 ? &f->known[f->same[node->in[k]]] : NULL;
        if (k < rule->least_in && !c->in[k]) {
            return SW_FAIL(SW_E_FORMAT, "input %d is absent", k);
        }
    }
    return SW_OK;
}

static bool is_constant(const struct sw_onnx_case *c)
{
    for (int32_t k = 0; k < c->n_in && !is_of_shape(c->rule); k++) {
        if (c->in[k] && !c->in[k]->data) {
            return false;
        }
    }
    return c->rule->eval != NULL;
}

/* A user less of a value; constants without users go. */
static void release(struct fold *f, int32_t i)
{
    const int32_t v = f->same[i];
    if (--f->left[v] == 0) {
        sw_onnx_release(&f->folding, f->known[v].buffer);
        f->known[v].buffer = NULL;
        f->known[v].data = NULL;
    }
}

/* The first output is the first input, if nothing reads the others. */
static bool replace(struct fold *f, const struct sw_onnx_graph_node *node)
{
    for (int32_t k = 1; k < node->n_out; k++) {
        if (node->out[k] >= 0 && f->left[node->out[k]] > 0) {
            return false;
        }
    }
    const int32_t from = f->same[node->in[0]];
    f->same[node->out[0]] = from;
    f->left[from] += f->left[node->out[0]];
    return true;
}

/* true: the node is gone. */
static sw_status fold_node(struct fold *f, int32_t i, bool *out_gone)
{
    const struct sw_onnx_graph_node *node = &f->src->nodes[i];
    struct sw_onnx_case *c = &f->c;
    *out_gone = false;
    SW_TRY(set_case(f, i));
    SW_TRY(c->rule->infer(c));
    if (c->same_as_in && node->out[0] >= 0) {
        *out_gone = replace(f, node);
    } else if (is_constant(c)) {
        const sw_status st = c->rule->eval(c);
        SW_TRY(st);
        *out_gone = st != SW_PENDING;
    }
    for (int32_t k = 0; k < node->n_out; k++) {
        if (node->out[k] < 0 || f->left[node->out[k]] == 0) {
            sw_onnx_release(&f->folding, c->out[k].buffer);
            c->out[k].buffer = NULL;
            c->out[k].data = NULL;
        }
        if (node->out[k] >= 0 && f->same[node->out[k]] == node->out[k]) {
            f->known[node->out[k]] = c->out[k];
        }
    }
    for (int32_t k = 0; k < node->n_in && *out_gone; k++) {
        if (node->in[k] >= 0) {
            release(f, node->in[k]);
        }
    }
    return SW_OK;
}

static sw_status fold_nodes(struct fold *f)
{
    char words[300];
    for (int32_t i = 0; i < f->src->n_nodes; i++) {
        bool gone = true;
        if (f->live[i]) {
            const sw_status st = fold_node(f, i, &gone);
            if (st < 0) {
                return sw_fail_prefix(st, "%s",
                                      sw_onnx_node_words(&f->src->nodes[i], words, sizeof words));
            }
        }
        f->live[i] = !gone;
    }
    return SW_OK;
}

/* ---- the graph that is left ---- */

static sw_status copy_node(struct fold *f, const struct sw_onnx_graph_node *from)
{
    struct sw_onnx_graph *g = f->g;
    struct sw_onnx_graph_node *node = &g->nodes[g->n_nodes];
    *node = *from;
    node->in = sw_arena_array(&g->own->arena, (size_t)from->n_in + 1, sizeof *node->in);
    SW_TRY_ALLOC(node->in, "the graph of an ONNX file");
    for (int32_t k = 0; k < from->n_in; k++) {
        node->in[k] = from->in[k] >= 0 ? f->same[from->in[k]] : -1;
    }
    for (int32_t k = 0; k < from->n_out; k++) {
        if (from->out[k] >= 0) {
            g->values[from->out[k]].producer = g->n_nodes;
            g->values[from->out[k]].i_out = k;
        }
    }
    g->n_nodes++;
    return SW_OK;
}

/* Values that are there: known is what they are. */
static void settle_value(struct fold *f, int32_t i, bool is_there)
{
    const struct sw_onnx_known *x = &f->known[i];
    struct sw_onnx_graph_value *v = &f->g->values[i];
    const enum sw_onnx_value_kind kind = f->src->values[i].kind;
    v->type = x->type;
    v->rank = x->rank;
    memcpy(v->dims, x->dims, sizeof v->dims);
    v->data = NULL;
    v->kind = ONNX_VALUE_GONE;
    v->is_output = false;
    if (is_there && x->data) {
        v->kind = ONNX_VALUE_CONSTANT;
        v->data = x->data;
    } else if (is_there && kind == ONNX_VALUE_WEIGHT) {
        v->kind = kind;
        v->data = f->src->values[i].data;
    } else if (is_there || (kind == ONNX_VALUE_INPUT && !x->data)) {
        v->kind = kind == ONNX_VALUE_INPUT ? kind : ONNX_VALUE_COMPUTED;
    }
    if (v->kind != ONNX_VALUE_COMPUTED) {
        v->producer = v->i_out = -1;
    }
}

static void settle_ports(struct fold *f)
{
    struct sw_onnx_graph *g = f->g;
    for (int32_t i = 0; i < f->src->n_inputs; i++) {
        if (g->values[f->src->inputs[i]].kind == ONNX_VALUE_INPUT) {
            g->inputs[g->n_inputs++] = f->src->inputs[i];
        }
    }
    for (int32_t i = 0; i < f->src->n_outputs; i++) {
        g->outputs[i] = f->same[f->src->outputs[i]];
        g->values[g->outputs[i]].is_output = true;
    }
    for (int32_t i = 0; i < f->options->n_keep; i++) {
        const int32_t kept = f->options->keep[i];
        g->values[kept].data = f->known[f->same[kept]].data;
    }
}

static sw_status build(struct fold *f)
{
    const struct sw_onnx_graph *src = f->src;
    bool *wanted = f->constant; /* not used any more */
    memset(wanted, 0, (size_t)src->n_values * sizeof *wanted);
    for (int32_t i = 0; i < src->n_outputs; i++) {
        wanted[f->same[src->outputs[i]]] = true;
    }
    for (int32_t i = src->n_nodes - 1; i >= 0; i--) {
        const struct sw_onnx_graph_node *node = &src->nodes[i];
        bool needed = false;
        for (int32_t k = 0; k < node->n_out; k++) {
            needed = needed || (node->out[k] >= 0 && wanted[node->out[k]]);
        }
        f->live[i] = f->live[i] && needed;
        for (int32_t k = 0; k < node->n_in && f->live[i]; k++) {
            if (node->in[k] >= 0) {
                wanted[f->same[node->in[k]]] = true;
            }
        }
    }
    for (int32_t i = 0; i < src->n_nodes; i++) {
        if (f->live[i]) {
            SW_TRY(copy_node(f, &src->nodes[i]));
        }
    }
    for (int32_t i = 0; i < src->n_values; i++) {
        settle_value(f, i, wanted[i]);
    }
    settle_ports(f);
    return sw_onnx_count_uses(f->g);
}

/* ---- all of it ---- */

static sw_status make_graph(struct fold *f)
{
    const struct sw_onnx_graph *src = f->src;
    struct sw_onnx_graph *g = sw_alloc_zero("onnx", 1, sizeof *g);
    SW_TRY_ALLOC(g, "the graph of an ONNX file");
    *g = *src;
    g->nodes = NULL;
    g->values = NULL;
    g->uses = NULL;
    g->n_nodes = g->n_uses = g->n_inputs = 0;
    g->source = src;
    g->own = sw_alloc_zero("onnx", 1, sizeof *g->own);
    if (!g->own) {
        sw_free(g);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the graph of an ONNX file");
    }
    f->g = g;
    struct sw_arena *arena = &g->own->arena;
    sw_arena_init(arena, "onnx");
    f->folding.arena = arena;
    g->nodes = sw_alloc_zero("onnx", (size_t)src->n_nodes + 1, sizeof *g->nodes);
    g->values = sw_alloc_zero("onnx", (size_t)src->n_values + 1, sizeof *g->values);
    g->inputs = sw_arena_array(arena, (size_t)src->n_inputs + 1, sizeof *g->inputs);
    g->outputs = sw_arena_array(arena, (size_t)src->n_outputs + 1, sizeof *g->outputs);
    if (!g->nodes || !g->values || !g->inputs || !g->outputs) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the graph of an ONNX file");
    }
    memcpy(g->values, src->values, (size_t)src->n_values * sizeof *g->values);
    return SW_OK;
}

static sw_status make_room(struct fold *f)
{
    const size_t n = (size_t)f->src->n_values + 1, m = (size_t)f->src->n_nodes + 1;
    f->known = sw_alloc_zero("onnx", n, sizeof *f->known);
    f->same = sw_alloc_zero("onnx", n, sizeof *f->same);
    f->left = sw_alloc_zero("onnx", n, sizeof *f->left);
    f->constant = sw_alloc_zero("onnx", n, sizeof *f->constant);
    f->fixed = sw_alloc_zero("onnx", n, sizeof *f->fixed);
    f->rules = sw_alloc_zero("onnx", m, sizeof *f->rules);
    f->live = sw_alloc_zero("onnx", m, sizeof *f->live);
    if (!f->known || !f->same || !f->left || !f->constant || !f->fixed || !f->rules || !f->live) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the graph of an ONNX file");
    }
    return make_graph(f);
}

static sw_status fold_all(struct fold *f)
{
    SW_TRY(make_room(f));
    SW_TRY(give_sizes(f));
    SW_TRY(settle_values(f));
    SW_TRY(fold_nodes(f));
    SW_TRY(build(f));
    return SW_OK;
}

sw_status sw_onnx_graph_fold(const struct sw_onnx_graph *graph,
                             const struct sw_onnx_fold_options *options, struct sw_onnx_graph **out)
{
    enum { MOST_BYTES = 1 << 30 };
    struct fold *f = sw_alloc_zero("onnx", 1, sizeof *f);
    SW_TRY_ALLOC(f, "the graph of an ONNX file");
    SW_ASSERT(!graph->source);
    f->src = graph;
    f->options = options;
    f->folding.most_bytes = options->most_bytes > 0 ? options->most_bytes : MOST_BYTES;
    f->c.folding = &f->folding;
    sw_status st = fold_all(f);
    if (st < 0) {
        sw_fail_prefix(st, "%s", graph->path);
    }
    if (f->g) {
        f->g->own->buffers = f->folding.buffers;
    }
    if (st >= 0) {
        *out = f->g;
    } else {
        sw_onnx_graph_close(f->g);
    }
    sw_names_close(&f->sizes);
    sw_free(f->known_sizes);
    sw_free(f->known);
    sw_free(f->same);
    sw_free(f->left);
    sw_free(f->constant);
    sw_free(f->fixed);
    sw_free(f->rules);
    sw_free(f->live);
    sw_free(f);
    return st;
}
