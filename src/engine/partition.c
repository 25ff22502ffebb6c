// SPDX-License-Identifier: Apache-2.0
// The partition of a model among the parts of a pipeline, as spillway.partition asks for it. Its
// items are what comes before the first block, each block, and what comes after the last one. All
// programs have the same partition. If the model is trained, the program of a step decides it.
#include <stdio.h>
#include <string.h>

#include "engine/private.h"
#include "text/text.h"

struct items {
    const struct sw_program_spec *specs; /* [n_specs] */
    int n_specs;
    struct sw_blocks blocks; /* of all programs */
    int64_t *weight;         /* [blocks.n + 2] */
};

/* The weight of an op, and what it depends on. */
struct scale {
    int64_t (*weigh)(const struct scale *scale, const struct sw_graph *g, const struct sw_op *op);
    const struct sw_machine_rates *rates; /* for seconds */
    bool *counts; /* [n_values] the parameters of the graph that still count; weigh clears them */
};

/* The number of the block around a scope; -1 = in no block */
static int block_of(const struct items *items, const struct sw_graph *g, int32_t scope)
{
    while (scope >= 0 && !g->scopes[scope].is_block) {
        scope = g->scopes[scope].parent;
    }
    return scope < 0 ? -1 : sw_blocks_find(&items->blocks, g->scopes[scope].name);
}

/* Adds the weight of each op to its item. Ops between blocks count with the block before them, and
 * backward runs through the items from the last to the first. */
static void add_weights(struct items *items, const struct sw_graph *g, const struct scale *scale)
{
    const int last = items->blocks.n + 1;
    int32_t last_block[] = {-1, -1}; /* last op in a block: of forward, of backward */
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (block_of(items, g, g->ops[i].scope) >= 0) {
            last_block[g->ops[i].phase != SW_PHASE_FORWARD] = i;
        }
    }
    int item[] = {0, last};
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct sw_op *op = &g->ops[i];
        const bool back = op->phase != SW_PHASE_FORWARD;
        const int block = block_of(items, g, op->scope);
        item[back] = block >= 0 ? block + 1 : i > last_block[back] ? (back ? 0 : last) : item[back];
        items->weight[item[back]] += scale->weigh(scale, g, op);
    }
}

/* Picoseconds, by the rates of the clock. */
static int64_t time_of(const struct scale *scale, const struct sw_graph *g, const struct sw_op *op)
{
    struct sw_op_desc desc;
    if (sw_op_has(op, SW_TRAIT_VIEW)) {
        return 0;
    }
    sw_graph_describe(g, op, &desc);
    const bool products = sw_op_has(op, SW_TRAIT_PRODUCTS);
    const enum sw_dtype dtype =
        products ? g->values[op->in[sw_op_info(op->kind)->factor]].dtype : SW_F32;
    const enum sw_load load = !products          ? SW_LOAD_OTHER
                              : dtype == SW_BF16 ? SW_LOAD_PRODUCTS_BF16
                              : dtype == SW_F16  ? SW_LOAD_PRODUCTS_F16
                                                 : SW_LOAD_PRODUCTS_F32;
    const double work = products ? (double)sw_op_flops(&desc) : sw_op_bytes(&desc);
    return scale->rates->work[load] > 0 ? (int64_t)(work / scale->rates->work[load] * 1e12) : 0;
}

/* The elements of parameters that no op before this one reads. */
static int64_t elems_of(const struct scale *scale, const struct sw_graph *g, const struct sw_op *op)
{
    int64_t elems = 0;
    for (int k = 0; k < op->n_in; k++) {
        const sw_value root = sw_graph_root(g, op->in[k]);
        elems += scale->counts[root] ? sw_shape_elems(&g->values[root].shape) : 0;
        scale->counts[root] = false;
    }
    return elems;
}

/* The parameters that count: those that are trained, or all that no program before this one has. */
static void mark_params(const struct items *items, int program, bool *counts)
{
    const struct sw_graph *g = items->specs[program].graph;
    for (int32_t i = 0; i < g->n_streams; i++) {
        counts[sw_graph_root(g, g->streams[i].param)] = true;
    }
    for (int32_t i = 0; i < g->n_params && g->n_streams == 0; i++) {
        bool known = false;
        for (int k = 0; k < program && !known; k++) {
            known = sw_graph_find(items->specs[k].graph, SW_ROLE_PARAM,
                                  g->values[g->params[i]].name) >= 0;
        }
        counts[g->params[i]] = !known;
    }
}

/* Weighs the items by the program of a step, or by all programs if there is none. */
static sw_status weigh_items(struct items *items, struct scale scale)
{
    const int n = items->specs[0].kind == SW_PROGRAM_TRAIN ? 1 : items->n_specs;
    for (int i = 0; i < n; i++) {
        const struct sw_graph *g = items->specs[i].graph;
        scale.counts = sw_alloc_zero("engine", (size_t)g->n_values + 1, sizeof *scale.counts);
        SW_TRY_ALLOC(scale.counts, "the partition");
        mark_params(items, i, scale.counts);
        add_weights(items, g, &scale);
        sw_free(scale.counts);
    }
    return SW_OK;
}

/* As DeepSpeed's "parameters" and "type:REGEX". */
static sw_status cut_balanced(const struct items *items, int parts, int *bounds)
{
    const int n = items->blocks.n + 2;
    double *weights = sw_alloc("engine", (size_t)n * sizeof *weights);
    SW_TRY_ALLOC(weights, "the partition");
    for (int i = 0; i < n; i++) {
        weights[i] = (double)items->weight[i];
    }
    const sw_status st = sw_partition_balanced(weights, n, parts, bounds);
    sw_free(weights);
    return st;
}

/* Gives the blocks whose names match a weight of 1. */
static sw_status match_blocks(struct items *items, struct sw_regex *regex, int *out_n)
{
    const struct sw_names *names = &items->blocks.numbers;
    for (int32_t i = 0; i < names->cap; i++) {
        const struct sw_name_entry *entry = &names->entries[i];
        size_t first, end;
        if (!entry->name) {
            continue;
        }
        const size_t len = strlen(entry->name);
        SW_TRY(sw_regex_find(regex, entry->name, len, 0, &first, &end));
        items->weight[entry->value + 1] = first < len;
        *out_n += first < len;
    }
    return SW_OK;
}

static sw_status weigh_by_type(struct items *items, const char *type)
{
    struct sw_regex *regex = NULL;
    struct sw_str pattern = {0};
    int n = 0;
    sw_str_printf(&pattern, "(?i:%s)", type); /* as DeepSpeed */
    sw_status st = sw_regex_open(sw_str_text(&pattern), pattern.len, false, &regex);
    sw_str_fini(&pattern);
    st = st < 0 ? sw_fail_prefix(st, "spillway.partition \"type:%s\"", type)
                : match_blocks(items, regex, &n);
    sw_regex_close(regex);
    if (st >= 0 && n == 0) {
        const struct sw_graph *g = items->specs[0].graph;
        int32_t first = 0;
        while (first < g->n_scopes - 1 && !g->scopes[first].is_block) {
            first++;
        }
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.partition \"type:%s\": no block has such a name; wanted a part of "
                       "names such as %s",
                       type, g->scopes[first].name);
    }
    return st;
}

/* Takes the user's bounds, which are of blocks already. */
static sw_status take_bounds(const struct sw_config_numbers *given, int n_blocks, int parts,
                             int *bounds)
{
    int64_t *all = sw_alloc("engine", (size_t)given->n * sizeof *all);
    SW_TRY_ALLOC(all, "the partition");
    for (int i = 0; i < given->n; i++) {
        all[i] = (int64_t)given->items[i];
    }
    const sw_status st = sw_partition_check(all, given->n, n_blocks, parts);
    for (int i = 0; i <= parts && st >= 0; i++) {
        bounds[i] = (int)all[i];
    }
    sw_free(all);
    return st;
}

static sw_status cut(struct items *items, const struct sw_partition_config *p,
                     const struct sw_machine_rates *rates, int parts, int *bounds)
{
    const int n = items->blocks.n;
    switch (p->by) {
    case SW_PARTITION_BOUNDS:
        return take_bounds(&p->bounds, n, parts, bounds);
    case SW_PARTITION_TYPE:
        SW_TRY(weigh_by_type(items, p->type));
        SW_TRY(cut_balanced(items, parts, bounds));
        break;
    case SW_PARTITION_UNIFORM:
        sw_partition_uniform(n + 2, parts, bounds);
        break;
    case SW_PARTITION_PARAMETERS:
        SW_TRY(weigh_items(items, (struct scale){.weigh = elems_of}));
        SW_TRY(cut_balanced(items, parts, bounds));
        break;
    case SW_PARTITION_TIME:
        SW_TRY(weigh_items(items, (struct scale){.weigh = time_of, .rates = rates}));
        SW_TRY(sw_partition_least(items->weight, n + 2, parts, bounds));
        break;
    }
    sw_partition_to_blocks(n, parts, bounds);
    return SW_OK;
}

static sw_status check_blocks(int64_t n_blocks, const struct sw_config *config)
{
    const struct sw_parallel_config *p = &config->parallel;
    const int64_t most = n_blocks / sw_max_i64(p->chunks, 1);
    char why[256];
    if (p->pipe <= most) {
        return SW_OK;
    }
    snprintf(why, sizeof why,
             "%lld with %lld chunk%s per stage: the model has %lld blocks, and each chunk needs "
             "one; wanted at most %lld stages",
             (long long)p->pipe, (long long)p->chunks, p->chunks > 1 ? "s" : "",
             (long long)n_blocks, (long long)most);
    return sw_config_refuse_key(config, "spillway.mesh.pipe", why);
}

sw_status sw_engine_cut_blocks(const struct sw_program_spec *specs, int n_specs,
                               const struct sw_config *config, const struct sw_machine_rates *rates,
                               int parts, int *bounds)
{
    struct items items = {.specs = specs, .n_specs = n_specs};
    sw_status st = SW_OK;
    for (int i = 0; i < n_specs && st >= 0; i++) {
        st = sw_blocks_add(&items.blocks, specs[i].graph);
    }
    st = st < 0 ? st : check_blocks(items.blocks.n, config);
    items.weight = sw_alloc_zero("engine", (size_t)items.blocks.n + 2, sizeof *items.weight);
    if (st >= 0 && !items.weight) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the partition");
    }
    st = st < 0 ? st : cut(&items, &config->parallel.partition, rates, parts, bounds);
    sw_blocks_close(&items.blocks);
    sw_free(items.weight);
    return st;
}
