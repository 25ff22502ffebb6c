// SPDX-License-Identifier: Apache-2.0
// What each value of a graph is made of, for given sizes: from the outputs back, each value that is
// needed gets a pattern, or the file is refused. Blocks are what repeats in the list of matches.
#include <stdio.h>
#include <string.h>

#include "onnx/import.h"

/* ---- folds ---- */

enum { MOST_INPUTS = 8 };
struct inputs {
    struct sw_onnx_given_input items[MOST_INPUTS];
    int n;
};

static double *numbers(struct sw_onnx_plan *p, int64_t n)
{
    return sw_arena_array(&p->arena, (size_t)n + 1, sizeof(double));
}

static void add(struct inputs *in, const char *name, const int64_t *dims, int rank,
                const double *elems)
{
    struct sw_onnx_given_input *item = &in->items[in->n++];
    *item = (struct sw_onnx_given_input){.name = name, .rank = rank, .elems = elems};
    memcpy(item->dims, dims, (size_t)rank * sizeof *dims);
}

/* The inputs of a fold, of which some are constant: all those of a probe, counted positions, and
 * what the task does not have. */
static sw_status give_inputs(struct sw_onnx_plan *p, const struct sw_onnx_plan_spec *spec,
                             int i_probe, struct inputs *in)
{
    const struct sw_model *model = &p->of->super;
    const bool probes = i_probe >= 0;
    const int64_t batch = probes ? p->probe_batch : spec->batch, n = batch * spec->tokens;
    const int64_t row[2] = {batch, spec->tokens};
    const int64_t image[4] = {batch, model->channels, model->image_height, model->image_width};
    const int64_t pixels = batch * image[1] * image[2] * image[3];
    const bool no_types = spec->task && !sw_task_input_of(spec->task, "token_type_ids");
    double *positions = numbers(p, n), *ids = numbers(p, n), *mask = numbers(p, n);
    const double *zeros = numbers(p, sw_max_i64(n, pixels));
    if (!positions || !ids || !mask || !zeros) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for an ONNX graph");
    }
    for (int64_t i = 0; i < n; i++) {
        positions[i] = (double)(i % spec->tokens);
        ids[i] = !probes ? 0 : (double)p->probe_ids[i];
        ids[i] += i_probe == 1 && p->probe_ids[i] != p->pad ? (double)(p->pad + 1 + i % 5) : 0;
        mask[i] = i_probe < 1 || !spec->has_mask ? 1 : (double)p->probe_mask[i];
    }
    add(in, "input_ids", row, 2, probes ? ids : NULL);
    add(in, "attention_mask", row, 2, probes || !spec->has_mask ? mask : NULL);
    add(in, "token_type_ids", row, 2, probes || no_types ? zeros : NULL);
    add(in, "position_ids", row, 2, positions);
    add(in, "pixel_values", image, 4, probes ? zeros : NULL);
    return SW_OK;
}

static sw_status fold(struct sw_onnx_plan *p, const struct sw_onnx_plan_spec *spec, int i_probe,
                      struct sw_onnx_graph **out)
{
    struct inputs in = {.n = 0};
    SW_TRY(give_inputs(p, spec, i_probe, &in));
    const struct sw_onnx_fold_options options = {.inputs = in.items, .n_inputs = in.n};
    return sw_onnx_graph_fold(p->of->graph, &options, out);
}

/* Holes in the mask; the first token is real, so that each query sees a key. */
static bool is_hole(int64_t row, int64_t token, int64_t tokens)
{
    return token > 0 && ((token + row) % 3 == 2 || token == tokens - 1);
}

static sw_status make_probes(struct sw_onnx_plan *p, const struct sw_onnx_plan_spec *spec)
{
    enum { LONG = 1024 };
    const int32_t ids = sw_onnx_graph_find(p->of->graph, "input_ids");
    const int64_t fixed = ids >= 0 ? p->of->graph->values[ids].dims[0] : spec->batch;
    p->pad = p->of->super.pad_id >= 0 ? p->of->super.pad_id : 1;
    p->probe_batch = fixed > 0 ? fixed : spec->tokens > LONG ? 1 : 2;
    const size_t n = (size_t)(p->probe_batch * spec->tokens) + 1;
    p->probe_ids = sw_arena_array(&p->arena, n, sizeof *p->probe_ids);
    p->probe_mask = sw_arena_array(&p->arena, n, sizeof *p->probe_mask);
    SW_TRY_ALLOC(p->probe_ids && p->probe_mask, "an ONNX graph");
    for (int64_t i = 0; i < p->probe_batch * spec->tokens; i++) {
        const bool hole = is_hole(i / spec->tokens, i % spec->tokens, spec->tokens);
        p->probe_mask[i] = !hole;
        p->probe_ids[i] = hole ? p->pad : p->pad == 0 ? 1 : 0;
    }
    for (int k = 0; k < ONNX_PROBES; k++) {
        SW_TRY(fold(p, spec, k, &p->probes[k]));
    }
    return SW_OK;
}

/* ---- matches ---- */

static bool is_of_deberta(const struct sw_onnx_graph *g)
{
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const struct sw_onnx_graph_node *node = &g->nodes[i];
        if (strcmp(node->op, "GatherElements") == 0 && node->out[0] >= 0 &&
            g->values[node->out[0]].type == ONNX_F32) {
            return true;
        }
    }
    return false;
}

static sw_status refuse(const struct sw_onnx_plan *p, int32_t value)
{
    const struct sw_onnx_graph *g = p->graph;
    const struct sw_onnx_graph_value *v = &g->values[value];
    const struct sw_onnx_graph_node *node = &g->nodes[v->producer];
    char words[160], shape[96];
    struct sw_str nearest = {0};
    sw_onnx_node_words(node, words, sizeof words);
    sw_onnx_value_words(v, shape, sizeof shape);
    if (is_of_deberta(g)) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: it has DeBERTa's disentangled attention in parts (GatherElements of "
                       "scores), which is not read from ONNX files; its folder is trained",
                       g->path);
    }
    sw_onnx_nearest(node, &nearest);
    const sw_status st = SW_FAIL(SW_E_UNSUP, "%s: %s, output \"%s\" %s: no pattern takes it%s",
                                 g->path, words, v->name, shape, sw_str_text(&nearest));
    sw_str_fini(&nearest);
    return st;
}

static sw_status match_all(struct sw_onnx_plan *p)
{
    const struct sw_onnx_graph *g = p->graph;
    bool *needed = sw_arena_array(&p->arena, (size_t)g->n_values + 1, sizeof *needed);
    p->match_of = sw_arena_array(&p->arena, (size_t)g->n_values + 1, sizeof *p->match_of);
    p->matches = sw_arena_array(&p->arena, (size_t)g->n_values + 1, sizeof *p->matches);
    SW_TRY_ALLOC(needed && p->match_of && p->matches, "an ONNX graph");
    for (int i = 0; i < p->of->n_outputs; i++) {
        needed[g->outputs[p->of->outputs[i]]] = true;
    }
    int32_t n = 0, at = g->n_values;
    for (int32_t i = g->n_nodes - 1; i >= 0; i--) {
        for (int k = g->nodes[i].n_out - 1; k >= 0; k--) {
            const int32_t v = g->nodes[i].out[k];
            if (v < 0 || !needed[v] || g->values[v].kind != ONNX_VALUE_COMPUTED) {
                continue;
            }
            struct sw_onnx_match *m = &p->matches[--at];
            if (!sw_onnx_match_value(p, v, m)) {
                return refuse(p, v);
            }
            m->node = g->values[v].producer;
            for (int j = 0; j < m->n_in; j++) {
                needed[m->in[j]] = true;
            }
            n++;
        }
    }
    memmove(p->matches, p->matches + at, (size_t)n * sizeof *p->matches);
    p->n = n;
    for (int32_t v = 0; v < g->n_values; v++) {
        p->match_of[v] = -1;
    }
    for (int32_t i = 0; i < n; i++) {
        p->match_of[p->matches[i].value] = i;
    }
    return SW_OK;
}

/* ---- blocks ---- */

/* Matches of blocks that repeat have the same kinds and shapes. */
static uint64_t signature(const struct sw_onnx_plan *p, const struct sw_onnx_match *m)
{
    char text[512];
    char shape[128], weight[128] = "";
    sw_onnx_value_words(sw_onnx_value(p, m->value), shape, sizeof shape);
    if (m->weight >= 0) {
        sw_onnx_value_words(sw_onnx_value(p, m->weight), weight, sizeof weight);
    }
    snprintf(text, sizeof text, "%s %s %s %s %d %lld", m->by->name, p->graph->nodes[m->node].op,
             shape, weight, m->dim, (long long)m->first);
    return sw_hash_str(SW_HASH_INIT, text);
}

/* Number of values that are made before each match and read by it or later. */
static void count_crossing(const struct sw_onnx_plan *p, int32_t *last, int32_t *crossing)
{
    for (int32_t i = 0; i < p->n; i++) {
        last[i] = i;
    }
    for (int32_t i = 0; i < p->n; i++) {
        for (int k = 0; k < p->matches[i].n_in; k++) {
            const int32_t from = p->match_of[p->matches[i].in[k]];
            if (from >= 0) {
                last[from] = i;
            }
        }
    }
    for (int32_t i = 0; i < p->n; i++) {
        crossing[i + 1]++;
        crossing[last[i] + 1]--;
    }
    for (int32_t i = 0; i < p->n; i++) {
        crossing[i + 1] += crossing[i];
    }
}

static bool has_attention(const struct sw_onnx_plan *p, int32_t first, int32_t n)
{
    for (int32_t i = first; i < first + n; i++) {
        if (p->matches[i].by->emit == sw_onnx_emit_attention) {
            return true;
        }
    }
    return false;
}

/* Length of the modules' common name of matches [first, first + n). */
static size_t common_scope(const struct sw_onnx_plan *p, int32_t first, int32_t n)
{
    const char *name = NULL;
    size_t len = 0;
    for (int32_t i = first; i < first + n; i++) {
        const char *scope = p->graph->nodes[p->matches[i].node].scope;
        if (!*scope) {
            continue;
        }
        len = name ? len : strlen(scope);
        name = name ? name : scope;
        size_t k = 0;
        while (k < len && scope[k] == name[k]) {
            k++;
        }
        const bool whole = (k == len && (scope[k] == '.' || !scope[k])) ||
                           (!scope[k] && (name[k] == '.' || !name[k]));
        while (!whole && k > 0 && name[--k] != '.') {
        }
        len = k;
    }
    return len;
}

/* Cuts a run of repetitions into blocks that only one value leads into. */
static void cut_blocks(struct sw_onnx_plan *p, const int32_t *crossing, int32_t first,
                       int32_t period, int32_t end)
{
    size_t best = 0;
    for (int32_t d = first; d < first + period; d++) {
        int32_t n = 0;
        while (d + (n + 1) * period <= end && crossing[d + n * period] == 1 &&
               (d + (n + 1) * period == p->n || crossing[d + (n + 1) * period] == 1)) {
            n++;
        }
        const size_t scope = n > 0 ? common_scope(p, d, period) : 0;
        if (n > p->n_blocks || (n == p->n_blocks && n > 0 && scope > best)) {
            p->first = d;
            p->period = period;
            p->n_blocks = n;
            best = scope;
        }
    }
}

static sw_status find_blocks(struct sw_onnx_plan *p)
{
    enum { LONGEST_BLOCK = 1024 };
    const size_t n = (size_t)p->n + 2;
    uint64_t *of = sw_arena_array(&p->arena, n, sizeof *of);
    int32_t *last = sw_arena_array(&p->arena, n, sizeof *last);
    int32_t *crossing = sw_arena_array(&p->arena, n, sizeof *crossing);
    int32_t best = 0, first = 0, period = 0;
    SW_TRY_ALLOC(of && last && crossing, "an ONNX graph");
    for (int32_t i = 0; i < p->n; i++) {
        of[i] = signature(p, &p->matches[i]);
    }
    count_crossing(p, last, crossing);
    const int32_t most =
        has_attention(p, 0, p->n) ? (int32_t)sw_min_i64(LONGEST_BLOCK, p->n / 2) : 0;
    for (int32_t step = 1; step <= most; step++) {
        int32_t run = 0;
        for (int32_t i = 0; i + step < p->n; i++) {
            run = of[i] == of[i + step] ? run + 1 : 0;
            const int32_t covered = run >= step ? (run + step) / step * step : 0;
            const int32_t begin = i - run + 1;
            if (covered > best && has_attention(p, begin, step)) {
                best = covered;
                first = begin;
                period = step;
            }
        }
    }
    if (period > 0) { /* the run goes on beyond whole repetitions */
        int32_t end = first + period;
        while (end < p->n && of[end] == of[end - period]) {
            end++;
        }
        cut_blocks(p, crossing, first, period, end);
    }
    return SW_OK;
}

size_t sw_onnx_block_name(const struct sw_onnx_plan *p, int32_t i, const char **out)
{
    const int32_t first = p->first + i * p->period;
    *out = "";
    for (int32_t k = first; k < first + p->period && !**out; k++) {
        *out = p->graph->nodes[p->matches[k].node].scope;
    }
    return common_scope(p, first, p->period);
}

/* ---- open ---- */

static sw_status open_plan(struct sw_onnx_plan *p, const struct sw_onnx_plan_spec *spec)
{
    SW_TRY(fold(p, spec, -1, &p->graph));
    SW_TRY(make_probes(p, spec));
    SW_TRY(match_all(p));
    return find_blocks(p);
}

sw_status sw_onnx_plan_open(const struct sw_onnx_import *of, const struct sw_onnx_plan_spec *spec,
                            struct sw_onnx_plan **out)
{
    struct sw_onnx_plan *p = sw_alloc_zero("onnx", 1, sizeof *p);
    SW_TRY_ALLOC(p, "an ONNX graph");
    p->of = of;
    p->batch = spec->batch;
    p->tokens = spec->tokens;
    sw_arena_init(&p->arena, "onnx");
    const sw_status st = open_plan(p, spec);
    if (st < 0) {
        sw_onnx_plan_close(p);
        return st;
    }
    *out = p;
    return SW_OK;
}

void sw_onnx_plan_close(struct sw_onnx_plan *p)
{
    if (p) {
        sw_onnx_graph_close(p->graph);
        for (int k = 0; k < ONNX_PROBES; k++) {
            sw_onnx_graph_close(p->probes[k]);
        }
        sw_arena_fini(&p->arena);
        sw_free(p);
    }
}
