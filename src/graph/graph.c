// SPDX-License-Identifier: Apache-2.0
// The graph as a container: values, ops, scopes, leaves, outputs. Shape rules of the operations are
// in build.c, gradient rules in grad.c. Invariant: after the first failure nothing is added, and
// the first message is kept.
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

#include "graph/private.h"

/* Capacity of an array with n elements: the next power of two. */
static int32_t room_for(int32_t n)
{
    int32_t room = 64;
    while (room < n) {
        room *= 2;
    }
    return room;
}

bool sw_graph_grow(struct sw_graph *g, void **array, int32_t n, size_t elem_bytes)
{
    if (*array && n < room_for(n)) {
        return true;
    }
    void *mem = sw_realloc("graph", *array, (size_t)room_for(n + 1) * elem_bytes);
    if (!mem) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the graph");
        return false;
    }
    *array = mem;
    return true;
}

sw_status sw_graph_open(const struct sw_graph_options *options, struct sw_graph **out)
{
    struct sw_graph *g = sw_alloc_zero("graph", 1, sizeof *g);
    SW_TRY_ALLOC(g, "the graph");
    sw_arena_init(&g->arena, "graph");
    g->dtype = options->dtype;
    g->grad_dtype = options->grad_dtype;
    g->training = options->training;
    g->token_mean = options->token_mean;
    g->loss_chunk = options->loss_chunk > 0 ? options->loss_chunk : SW_LOSS_CHUNK;
    g->frozen = options->frozen;
    g->n_frozen = options->n_frozen;
    g->adapted.by = options->adapter;
    g->quantizer = options->quantizer;
    g->scope = -1;
    sw_scope_push(g, "");
    if (g->status < 0) {
        const sw_status st = g->status;
        sw_graph_close(g);
        return st;
    }
    *out = g;
    return SW_OK;
}

static void *copied(const void *array, int32_t n, size_t elem_bytes)
{
    void *copy = sw_alloc("graph", (size_t)room_for(n) * elem_bytes);
    if (copy && n > 0) {
        memcpy(copy, array, (size_t)n * elem_bytes);
    }
    return copy;
}

sw_status sw_graph_copy(const struct sw_graph *g, struct sw_graph **out)
{
    struct sw_graph *copy = sw_alloc("graph", sizeof *copy);
    SW_TRY_ALLOC(copy, "a copy of the graph");
    *copy = *g;
    sw_arena_init(&copy->arena, "graph");
    copy->values = copied(g->values, g->n_values, sizeof *g->values);
    copy->ops = copied(g->ops, g->n_ops, sizeof *g->ops);
    copy->scopes = copied(g->scopes, g->n_scopes, sizeof *g->scopes);
    copy->streams = copied(g->streams, g->n_streams, sizeof *g->streams);
    copy->outputs = copied(g->outputs, g->n_outputs, sizeof *g->outputs);
    copy->params = copied(g->params, g->n_params, sizeof *g->params);
    copy->parts = copied(g->parts, g->n_parts, sizeof *g->parts);
    copy->adapted.items = copied(g->adapted.items, g->adapted.n, sizeof *g->adapted.items);
    const bool named = sw_names_copy(&g->leaves, &copy->leaves);
    if (!copy->values || !copy->ops || !copy->scopes || !copy->streams || !copy->outputs ||
        !copy->params || !copy->adapted.items || !copy->parts || !named) {
        sw_graph_close(copy);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a copy of the graph");
    }
    *out = copy;
    return SW_OK;
}

void sw_graph_close(struct sw_graph *g)
{
    if (!g) {
        return;
    }
    sw_free(g->values);
    sw_free(g->ops);
    sw_free(g->scopes);
    sw_free(g->streams);
    sw_free(g->outputs);
    sw_free(g->params);
    sw_free(g->adapted.items);
    sw_free(g->parts);
    sw_names_close(&g->leaves);
    sw_arena_fini(&g->arena);
    sw_free(g);
}

void sw_graph_fail(struct sw_graph *g, sw_status code, const char *fmt, ...)
{
    if (g->status < 0) {
        return;
    }
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    g->status = code;
    const char *scope = g->n_scopes > 0 && g->scope >= 0 ? g->scopes[g->scope].name : "";
    g->error = scope[0] ? sw_arena_printf(&g->arena, "%s: %s", scope, text)
                        : sw_arena_strdup(&g->arena, text);
}

sw_status sw_graph_status(const sw_graph *g)
{
    if (g->status < 0) {
        return SW_FAIL(g->status, "%s", g->error ? g->error : "the graph could not be built");
    }
    return SW_OK;
}

enum sw_dtype sw_graph_dtype(const sw_graph *g)
{
    return g->dtype;
}

bool sw_graph_training(const sw_graph *g)
{
    return g->training;
}

/* ---- values ---- */

static sw_value new_value(struct sw_graph *g, enum sw_role role, enum sw_dtype dtype,
                          const struct sw_shape *shape)
{
    if (g->status < 0) {
        return SW_NO_VALUE;
    }
    if (!sw_shape_check(shape, sw_dtype_bytes(dtype))) {
        char text[96];
        sw_graph_fail(g, SW_E_ARG, "shape %s is negative or too large",
                      sw_shape_format(shape, text, sizeof text));
        return SW_NO_VALUE;
    }
    if (!sw_graph_grow(g, (void **)&g->values, g->n_values, sizeof *g->values)) {
        return SW_NO_VALUE;
    }
    struct sw_value_info *info = &g->values[g->n_values];
    memset(info, 0, sizeof *info);
    info->role = role;
    info->dtype = dtype;
    info->shape = *shape;
    info->producer = -1;
    info->base = SW_NO_VALUE;
    info->sparse_index = SW_NO_VALUE;
    info->param = SW_NO_VALUE;
    sw_shape_row_major(shape, info->strides);
    info->contiguous = true;
    return g->n_values++;
}

static sw_value new_named(struct sw_graph *g, enum sw_role role, const char *name,
                          enum sw_dtype dtype, const struct sw_shape *shape)
{
    const sw_value v = new_value(g, role, dtype, shape);
    if (v < 0) {
        return v;
    }
    g->values[v].name = sw_arena_strdup(&g->arena, name);
    if (!g->values[v].name || !sw_names_add(&g->leaves, (int32_t)role, g->values[v].name, v)) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the graph");
        return SW_NO_VALUE;
    }
    return v;
}

sw_value sw_graph_find(const struct sw_graph *g, enum sw_role role, const char *name)
{
    return sw_names_find(&g->leaves, (int32_t)role, name);
}

sw_value sw_graph_root(const struct sw_graph *g, sw_value v)
{
    return g->values[v].base >= 0 ? g->values[v].base : v;
}

size_t sw_value_bytes(const struct sw_value_info *info)
{
    return sw_shape_bytes(&info->shape, info->dtype);
}

/* ---- leaves ---- */

sw_value sw_input(sw_graph *g, const char *name, enum sw_dtype dtype, struct sw_shape shape)
{
    if (g->status < 0) {
        return SW_NO_VALUE;
    }
    const sw_value known = sw_graph_find(g, SW_ROLE_INPUT, name);
    if (known >= 0) {
        if (g->values[known].dtype != dtype || !sw_shape_equal(&g->values[known].shape, &shape)) {
            sw_graph_fail(g, SW_E_ARG, "input %s requested twice with different shapes", name);
            return SW_NO_VALUE;
        }
        return known;
    }
    return new_named(g, SW_ROLE_INPUT, name, dtype, &shape);
}

bool sw_glob_match(const char *pattern, const char *text)
{
    const char *star = NULL, *resume = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            resume = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == 0;
}

static bool is_frozen(const struct sw_graph *g, const char *name)
{
    for (int i = 0; i < g->n_frozen; i++) {
        if (sw_glob_match(g->frozen[i], name)) {
            return true;
        }
    }
    return g->adapted.by && !g->adapted.by->trains(g->adapted.by, name);
}

sw_value sw_graph_param(struct sw_graph *g, const char *name, enum sw_dtype dtype,
                        struct sw_shape shape, struct sw_init init)
{
    if (g->status < 0) {
        return SW_NO_VALUE;
    }
    const sw_value known = sw_graph_find(g, SW_ROLE_PARAM, name);
    if (known >= 0) {
        const struct sw_value_info *info = &g->values[known];
        if (!sw_shape_equal(&info->shape, &shape)) {
            char a[96], b[96];
            sw_graph_fail(g, SW_E_ARG, "parameter %s requested as %s and as %s", name,
                          sw_shape_format(&info->shape, a, sizeof a),
                          sw_shape_format(&shape, b, sizeof b));
            return SW_NO_VALUE;
        }
        return known;
    }
    const sw_value v = new_named(g, SW_ROLE_PARAM, name, dtype, &shape);
    if (v < 0 || !sw_graph_grow(g, (void **)&g->params, g->n_params, sizeof(sw_value))) {
        return SW_NO_VALUE;
    }
    g->params[g->n_params++] = v;
    g->values[v].init = init;
    g->values[v].needs_grad = !is_frozen(g, name);
    return v;
}

sw_value sw_param(sw_graph *g, const char *name, struct sw_shape shape, struct sw_init init)
{
    return sw_graph_param(g, name, g->dtype, shape, init);
}

static sw_value fix(sw_graph *g, sw_value param)
{
    if (param >= 0) {
        g->values[param].needs_grad = false;
    }
    return param;
}

sw_value sw_param_fixed(sw_graph *g, const char *name, struct sw_shape shape, struct sw_init init)
{
    return fix(g, sw_param(g, name, shape, init));
}

sw_value sw_param_fixed_wide(sw_graph *g, const char *name, struct sw_shape shape,
                             struct sw_init init)
{
    return fix(g, sw_graph_param(g, name, g->dtype == SW_F64 ? SW_F64 : SW_F32, shape, init));
}

/* A layer that is used twice has the same adapters each time. */
static bool is_noted(const struct sw_graph *g, sw_value weight)
{
    for (int32_t i = 0; i < g->adapted.n; i++) {
        if (g->adapted.items[i].weight == weight) {
            return true;
        }
    }
    return false;
}

void sw_graph_note_adapted(struct sw_graph *g, const struct sw_adapted *layer)
{
    if (is_noted(g, layer->weight)) {
        return;
    }
    if (g->status < 0 ||
        !sw_graph_grow(g, (void **)&g->adapted.items, g->adapted.n, sizeof *g->adapted.items)) {
        return;
    }
    struct sw_adapted *copy = &g->adapted.items[g->adapted.n];
    *copy = *layer;
    copy->module = sw_arena_strdup(&g->arena, layer->module);
    if (!copy->module) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the graph");
        return;
    }
    g->adapted.n++;
}

void sw_param_split(sw_graph *g, sw_value param, const struct sw_tensor_split *split)
{
    if (g->status < 0) {
        return;
    }
    const int32_t maker = param >= 0 && param < g->n_values ? g->values[param].producer : -1;
    if (maker >= 0 && g->ops[maker].kind == SW_OP_DEQUANTIZE) {
        sw_graph_split_quantized(g, &g->ops[maker], split);
        return;
    }
    if (param < 0 || param >= g->n_values || g->values[param].role != SW_ROLE_PARAM) {
        sw_graph_fail(g, SW_E_ARG, "split: no such parameter in this graph");
        return;
    }
    const struct sw_value_info *info = &g->values[param];
    const bool is_dim = split->dim >= 0 && split->dim < info->shape.rank;
    const bool is_some = split->n_groups >= 1 && split->n_groups <= SW_SPLIT_MAX_GROUPS;
    int64_t sum = 0;
    for (int i = 0; is_some && i < split->n_groups; i++) {
        sum = split->group[i] < 1 || sum < 0 || sum > INT64_MAX - split->group[i]
                  ? -1
                  : sum + split->group[i];
    }
    if (!is_dim || !is_some || split->unit < 0 || sum < 1 ||
        info->shape.dims[split->dim] % sum != 0) {
        char text[96];
        sw_graph_fail(
            g, SW_E_ARG,
            "%s: a split of dimension %d into %d groups with a total of %lld does not fit %s",
            info->name, split->dim, split->n_groups, (long long)sum,
            sw_shape_format(&info->shape, text, sizeof text));
        return;
    }
    const struct sw_param_part *known = sw_graph_param_part(g, param);
    if (known && memcmp(&known->split, split, sizeof *split) != 0) {
        sw_graph_fail(g, SW_E_ARG, "%s: two different splits", info->name);
    }
    if (known || !sw_graph_grow(g, (void **)&g->parts, g->n_parts, sizeof *g->parts)) {
        return;
    }
    g->parts[g->n_parts++] =
        (struct sw_param_part){.param = param, .whole = info->shape, .split = *split};
}

const struct sw_param_part *sw_graph_param_part(const struct sw_graph *g, sw_value param)
{
    for (int32_t i = 0; i < g->n_parts; i++) {
        if (g->parts[i].param == param) {
            return &g->parts[i];
        }
    }
    return NULL;
}

sw_value sw_graph_state(struct sw_graph *g, const char *name, enum sw_dtype dtype,
                        struct sw_shape shape, sw_value param)
{
    if (g->status < 0) {
        return SW_NO_VALUE;
    }
    const sw_value known = sw_graph_find(g, SW_ROLE_STATE, name);
    if (known >= 0) {
        return known;
    }
    const sw_value v = new_named(g, SW_ROLE_STATE, name, dtype, &shape);
    if (v >= 0) {
        g->values[v].param = param;
    }
    return v;
}

sw_value sw_constant(sw_graph *g, const char *name, enum sw_dtype dtype, struct sw_shape shape,
                     const void *data)
{
    const sw_value known = g->status < 0 ? SW_NO_VALUE : sw_graph_find(g, SW_ROLE_STATE, name);
    if (known >= 0) {
        const struct sw_value_info *info = &g->values[known];
        if (!info->data || info->dtype != dtype || !sw_shape_equal(&info->shape, &shape) ||
            memcmp(info->data, data, sw_value_bytes(info)) != 0) {
            sw_graph_fail(g, SW_E_ARG, "constant %s requested twice with different values", name);
            return SW_NO_VALUE;
        }
        return known;
    }
    const sw_value v = sw_graph_state(g, name, dtype, shape, SW_NO_VALUE);
    if (v < 0) {
        return v;
    }
    const size_t bytes = sw_value_bytes(&g->values[v]);
    void *copy = sw_arena_alloc(&g->arena, bytes);
    if (!copy) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the graph");
        return SW_NO_VALUE;
    }
    memcpy(copy, data, bytes);
    g->values[v].data = copy;
    return v;
}

void sw_output(sw_graph *g, const char *name, sw_value value)
{
    if (g->status < 0 || value < 0) {
        return;
    }
    if (!sw_graph_grow(g, (void **)&g->outputs, g->n_outputs, sizeof *g->outputs)) {
        return;
    }
    char *copy = sw_arena_strdup(&g->arena, name);
    if (!copy) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the graph");
        return;
    }
    g->values[value].is_output = true;
    g->outputs[g->n_outputs++] = (struct sw_named){copy, value};
}

sw_value sw_graph_find_output(const struct sw_graph *g, const char *name)
{
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) == 0) {
            return g->outputs[i].value;
        }
    }
    return SW_NO_VALUE;
}

/* ---- scopes ---- */

/* Kind of a scope in the table of names; negative, since roles are not. */
static int32_t kind_of_scope(int32_t parent)
{
    return -2 - parent;
}

static void push(struct sw_graph *g, const char *name, bool is_block)
{
    if (g->status < 0) {
        return;
    }
    const char *parent = g->scope >= 0 ? g->scopes[g->scope].name : "";
    char *full = parent[0] ? sw_arena_printf(&g->arena, "%s.%s", parent, name)
                           : sw_arena_strdup(&g->arena, name);
    if (!full || !sw_graph_grow(g, (void **)&g->scopes, g->n_scopes, sizeof *g->scopes)) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the graph");
        return;
    }
    /* Entering a scope again continues it, so that the ordinals in paths continue. */
    const int32_t kind = kind_of_scope(g->scope);
    const int32_t known = sw_names_find(&g->leaves, kind, full);
    if (known >= 0) {
        g->scope = known;
        return;
    }
    if (!sw_names_add(&g->leaves, kind, full, g->n_scopes)) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the graph");
        return;
    }
    struct sw_scope *scope = &g->scopes[g->n_scopes];
    memset(scope, 0, sizeof *scope);
    scope->name = full;
    scope->parent = g->scope;
    scope->is_block = is_block;
    g->scope = g->n_scopes++;
}

void sw_scope_push(sw_graph *g, const char *name)
{
    push(g, name, false);
}

void sw_scope_push_block(sw_graph *g, const char *name)
{
    push(g, name, true);
}

void sw_scope_pop(sw_graph *g)
{
    if (g->status < 0) {
        return;
    }
    if (g->scope <= 0) {
        sw_graph_fail(g, SW_E_ARG, "a scope was popped that was never pushed");
        return;
    }
    g->scope = g->scopes[g->scope].parent;
}

/* ---- ops ---- */

/* At least sixteen pieces, if the matrix has enough rows. */
int64_t sw_piece_rows(const struct sw_shape *shape)
{
    if (shape->rank != 2 || sw_shape_elems(shape) <= SW_PIECE_ABOVE) {
        return 0;
    }
    const int64_t rows = shape->dims[0];
    const int64_t piece =
        (int64_t)sw_round_up((size_t)sw_ceil_div(rows, 16), (size_t)SW_PIECE_LEAST);
    return rows <= SW_PIECE_LEAST ? 0 : sw_min_i64(piece, SW_PIECE_MOST);
}

int32_t sw_graph_add_op(struct sw_graph *g, enum sw_op_kind kind, const sw_value *in, int n_in,
                        const struct sw_attrs *attrs)
{
    if (g->status < 0) {
        return -1;
    }
    if (n_in > SW_MAX_INPUTS) {
        sw_graph_fail(g, SW_E_ARG, "an op with %d inputs; %d is the limit", n_in, SW_MAX_INPUTS);
        return -1;
    }
    for (int i = 0; i < n_in; i++) {
        if (in[i] < 0 || in[i] >= g->n_values) {
            sw_graph_fail(g, SW_E_ARG, "input %d of an op is not a value of this graph", i);
            return -1;
        }
    }
    if (!sw_graph_grow(g, (void **)&g->ops, g->n_ops, sizeof *g->ops)) {
        return -1;
    }
    struct sw_op *op = &g->ops[g->n_ops];
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->phase = g->phase;
    op->n_in = n_in;
    if (n_in > 0) {
        memcpy(op->in, in, (size_t)n_in * sizeof *in);
    }
    for (int i = 0; i < SW_MAX_OUTPUTS; i++) {
        op->out[i] = SW_NO_VALUE;
    }
    if (attrs) {
        op->attrs = *attrs;
    }
    op->scope = g->scope;
    struct sw_scope *scope = &g->scopes[g->scope];
    uint64_t path = sw_hash_str(SW_HASH_INIT, scope->name);
    path = sw_hash_str(path, sw_op_name(op));
    const uint16_t ordinal = scope->n_kinds[kind]++;
    op->path = sw_hash(path, &ordinal, sizeof ordinal);
    return g->n_ops++;
}

static sw_value add_out(struct sw_graph *g, int32_t i_op, sw_value v)
{
    if (v < 0) {
        return v;
    }
    struct sw_op *op = &g->ops[i_op];
    SW_ASSERT(op->n_out < SW_MAX_OUTPUTS);
    op->out[op->n_out++] = v;
    g->values[v].producer = i_op;
    for (int i = 0; i < op->n_in; i++) {
        g->values[v].needs_grad |= g->values[op->in[i]].needs_grad;
    }
    return v;
}

sw_value sw_graph_add_out(struct sw_graph *g, int32_t i_op, enum sw_dtype dtype,
                          struct sw_shape shape)
{
    if (i_op < 0 || g->status < 0) {
        return SW_NO_VALUE;
    }
    return add_out(g, i_op, new_value(g, SW_ROLE_TRANSIENT, dtype, &shape));
}

void sw_graph_add_out_absent(struct sw_graph *g, int32_t i_op)
{
    if (i_op >= 0 && g->status >= 0) {
        SW_ASSERT(g->ops[i_op].n_out < SW_MAX_OUTPUTS);
        g->ops[i_op].out[g->ops[i_op].n_out++] = SW_NO_VALUE;
    }
}

sw_value sw_graph_add_out_in_place(struct sw_graph *g, int32_t i_op, sw_value of)
{
    if (i_op < 0 || g->status < 0) {
        return SW_NO_VALUE;
    }
    const struct sw_value_info src = g->values[of];
    const sw_value v = add_out(g, i_op, new_value(g, src.role, src.dtype, &src.shape));
    if (v >= 0) {
        struct sw_value_info *info = &g->values[v];
        info->name = src.name;
        info->param = src.param;
        info->base = sw_graph_root(g, of);
        info->base_offset = src.base_offset;
        memcpy(info->strides, src.strides, sizeof info->strides);
        info->contiguous = src.contiguous;
    }
    return v;
}

void sw_graph_describe(const struct sw_graph *g, const struct sw_op *op, struct sw_op_desc *out)
{
    memset(out, 0, sizeof *out);
    out->op = op;
    for (int side = 0; side < 2; side++) {
        const int n = side == 0 ? op->n_in : op->n_out;
        for (int i = 0; i < n; i++) {
            const sw_value v = side == 0 ? op->in[i] : op->out[i];
            struct sw_view *view = side == 0 ? &out->in[i] : &out->out[i];
            if (v < 0) {
                view->shape.rank = -1;
                continue;
            }
            const struct sw_value_info *info = &g->values[v];
            view->dtype = info->dtype;
            view->shape = info->shape;
            memcpy(view->strides, info->strides, sizeof view->strides);
            *(side == 0 ? &out->in_shift[i] : &out->out_shift[i]) =
                sw_storage_shift(info->base_offset, info->dtype);
        }
    }
}

int64_t sw_update_elems(const struct sw_op_desc *desc)
{
    return sw_shape_elems(&desc->in[desc->op->attrs.update.rule.n_states > 0].shape);
}

int sw_update_codes(const struct sw_op_desc *desc)
{
    enum { CODED = 4 }; /* number of states with two 8-bit moments */
    const int first = desc->op->attrs.update.rule.n_states - CODED + 1;
    return first >= 1 && desc->in[first].dtype == SW_U8 ? first : 0;
}

int64_t sw_update_coded_elems(const struct sw_op_desc *desc)
{
    const struct sw_update_op_attrs *attrs = &desc->op->attrs.update;
    return sw_min_i64(sw_update_elems(desc), sw_max_i64(attrs->n_elems - attrs->first, 0));
}

int64_t sw_update_first(const struct sw_op_desc *desc, int i)
{
    const bool sparse = i + 1 < desc->op->n_in && desc->in[i + 1].dtype == SW_I32;
    return sparse || sw_shape_elems(&desc->in[i].shape) > sw_update_elems(desc)
               ? desc->op->attrs.update.first
               : 0;
}
