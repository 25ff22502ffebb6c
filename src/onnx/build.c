// SPDX-License-Identifier: Apache-2.0
// The forward graph of an imported model: its matches in order, in the scopes and blocks of its
// nodes, then the head of its task.
#include <stdio.h>
#include <string.h>

#include "onnx/import.h"

/* ---- values ---- */

static struct sw_shape shape_of(const struct sw_onnx_graph_value *v)
{
    struct sw_shape shape = {.rank = v->rank};
    for (int d = 0; d < v->rank && d < SW_MAX_RANK; d++) {
        shape.dims[d] = v->dims[d];
    }
    return shape;
}

static const struct sw_onnx_graph_value *value_at(const struct sw_onnx_build *b, int32_t v)
{
    return sw_onnx_value(b->plan, v);
}

const struct sw_onnx_param *sw_onnx_param_of(const struct sw_onnx_build *b, int32_t weight)
{
    return &b->plan->of->params[b->plan->of->param_of[weight]];
}

/* True if the model has the initializer's transpose. */
static bool is_turned(const struct sw_onnx_param *param, int32_t weight)
{
    return param->copy == weight || param->transposed;
}

static sw_value param(struct sw_onnx_build *b, int32_t weight)
{
    const struct sw_onnx_param *p = sw_onnx_param_of(b, weight);
    struct sw_shape shape = shape_of(value_at(b, p->value));
    if (p->transposed) {
        const int64_t in = shape.dims[0];
        shape.dims[0] = shape.dims[1];
        shape.dims[1] = in;
    }
    return sw_param(b->g, p->name, shape, (struct sw_init){SW_INIT_NORMAL, 0.02});
}

static sw_value constant(struct sw_onnx_build *b, int32_t v, const struct sw_onnx_data *data,
                         enum sw_dtype dtype)
{
    char name[320];
    struct sw_shape shape = {.rank = data->rank};
    void *elems = sw_alloc("onnx", (size_t)(data->n + 1) * sizeof(double));
    if (!elems || data->rank > SW_MAX_RANK) {
        sw_free(elems);
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for constants of an ONNX graph");
        return SW_NO_VALUE;
    }
    memcpy(shape.dims, data->dims, (size_t)data->rank * sizeof *data->dims);
    for (int64_t i = 0; i < data->n; i++) {
        if (dtype == SW_I32) {
            ((int32_t *)elems)[i] = (int32_t)sw_onnx_data_int(data, i);
        } else {
            const double x = sw_onnx_data_number(data, i);
            const float narrow = (float)x;
            if (dtype == SW_F64) {
                ((double *)elems)[i] = x;
            } else {
                sw_convert(dtype, (char *)elems + (size_t)i * sw_dtype_bytes(dtype), SW_F32,
                           &narrow, 1);
            }
        }
    }
    snprintf(name, sizeof name, "constant.%.200s.%lld", value_at(b, v)->name, (long long)data->n);
    const sw_value out = sw_constant(b->g, name, dtype, shape, elems);
    sw_free(elems);
    return out;
}

static sw_value input(struct sw_onnx_build *b, const char *name)
{
    const sw_value x = sw_model_input(b->g, &b->plan->of->super, b->spec, name);
    return strcmp(name, "pixel_values") == 0 ? sw_cast(b->g, x, sw_graph_dtype(b->g)) : x;
}

/* A value in its shape, or in the end of it if leading dims repeat. */
static sw_value use_any(struct sw_onnx_build *b, int32_t v)
{
    const struct sw_onnx_graph_value *value = value_at(b, v);
    switch (value->kind) {
    case ONNX_VALUE_INPUT:
        return input(b, value->name);
    case ONNX_VALUE_WEIGHT: {
        const struct sw_onnx_param *p = sw_onnx_param_of(b, v);
        const sw_value x = param(b, v);
        return is_turned(p, v) ? sw_transpose(b->g, x, 0, 1) : x;
    }
    case ONNX_VALUE_CONSTANT:
        return constant(b, v, value->data, sw_graph_dtype(b->g));
    case ONNX_VALUE_COMPUTED:
    case ONNX_VALUE_GONE:
        break;
    }
    return b->built[v];
}

sw_value sw_onnx_use(struct sw_onnx_build *b, int32_t v)
{
    const sw_value x = use_any(b, v);
    const struct sw_shape wanted = shape_of(value_at(b, v));
    if (sw_graph_status(b->g) >= 0 && x >= 0 &&
        sw_shape_elems(&b->g->values[x].shape) != sw_shape_elems(&wanted)) {
        sw_graph_fail(b->g, SW_E_UNSUP,
                      "%s: \"%s\" is the same for each sample, and read by more than sums",
                      b->plan->graph->path, value_at(b, v)->name);
        return SW_NO_VALUE;
    }
    return x;
}

/* ---- views ---- */

sw_value sw_onnx_permute(sw_graph *g, sw_value x, const int *order, int rank)
{
    int at[4] = {0, 1, 2, 3};
    for (int d = 0; d < rank; d++) {
        int from = d;
        while (from < rank && at[from] != order[d]) {
            from++;
        }
        if (from != d && from < rank) {
            x = sw_transpose(g, x, d, from);
            at[from] = at[d];
            at[d] = order[d];
        }
    }
    return x;
}

static sw_value as_value(struct sw_onnx_build *b, const struct sw_onnx_match *m, sw_value x)
{
    return sw_reshape(b->g, x, shape_of(value_at(b, m->value)));
}

ONNX_EMIT(sw_onnx_emit_same)
{
    return sw_onnx_use(b, m->in[0]);
}

ONNX_EMIT(sw_onnx_emit_reshape)
{
    return as_value(b, m, sw_onnx_use(b, m->in[0]));
}

ONNX_EMIT(sw_onnx_emit_transpose)
{
    return sw_onnx_permute(b->g, sw_onnx_use(b, m->in[0]), m->order, value_at(b, m->value)->rank);
}

ONNX_EMIT(sw_onnx_emit_slice)
{
    const struct sw_onnx_graph_value *v = value_at(b, m->value);
    const bool drops = v->rank < value_at(b, m->in[0])->rank;
    const int64_t n = drops ? 1 : v->dims[m->dim];
    const sw_value x = sw_slice(b->g, sw_onnx_use(b, m->in[0]), m->dim, m->first, n);
    return drops ? as_value(b, m, x) : x;
}

ONNX_EMIT(sw_onnx_emit_concat)
{
    sw_value all[ONNX_MATCH_IN];
    for (int i = 0; i < m->n_in; i++) {
        all[i] = sw_onnx_use(b, m->in[i]);
    }
    return sw_concat(b->g, all, m->n_in, m->dim);
}

/* Learned rows, added to zeros for each sample. */
ONNX_EMIT(sw_onnx_emit_rows)
{
    const struct sw_shape shape = shape_of(value_at(b, m->value));
    char name[64];
    snprintf(name, sizeof name, "rows.%lld.%lld.%lld", (long long)shape.dims[0],
             (long long)shape.dims[1], (long long)shape.dims[2]);
    void *zeros =
        sw_alloc_zero("onnx", (size_t)sw_shape_elems(&shape), sw_dtype_bytes(sw_graph_dtype(b->g)));
    if (!zeros) {
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for the model");
        return SW_NO_VALUE;
    }
    const sw_value rows = sw_constant(b->g, name, sw_graph_dtype(b->g), shape, zeros);
    sw_free(zeros);
    return sw_add(b->g, rows,
                  sw_reshape(b->g, param(b, m->weight), SW_SHAPE(shape.dims[1], shape.dims[2])));
}

/* ---- layers ---- */

/* The module of a parameter "MODULE.weight". */
static const char *module_of(struct sw_onnx_build *b, const char *name)
{
    const size_t len = strlen(name), end = strlen(".weight");
    const bool is_weight = len > end && strcmp(name + len - end, ".weight") == 0;
    return sw_arena_strndup(&b->arena, name, is_weight ? len - end : len);
}

ONNX_EMIT(sw_onnx_emit_linear)
{
    const struct sw_onnx_param *p = sw_onnx_param_of(b, m->weight);
    const struct sw_onnx_graph_value *w = value_at(b, m->weight);
    const struct sw_linear_spec spec = {.in = w->dims[m->in_out ? 0 : 1],
                                        .out = w->dims[m->in_out ? 1 : 0],
                                        .in_out = m->in_out != is_turned(p, m->weight)};
    const sw_value x = sw_onnx_use(b, m->in[0]), weight = param(b, m->weight);
    const sw_value bias = m->bias >= 0 ? param(b, m->bias) : SW_NO_VALUE;
    const struct sw_nn_layer layer = {module_of(b, p->name), x, weight, weight, bias, &spec};
    if (!layer.prefix) {
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for an ONNX graph");
        return SW_NO_VALUE;
    }
    return sw_nn_adapted(b->g, &layer);
}

/* i32 [T] */
static sw_value repeated(struct sw_onnx_build *b, int64_t id)
{
    const int64_t n = b->plan->tokens;
    char name[64];
    int32_t *ids = sw_alloc("onnx", (size_t)n * sizeof *ids);
    if (!ids) {
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for constants of an ONNX graph");
        return SW_NO_VALUE;
    }
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)id;
    }
    snprintf(name, sizeof name, "ids.%lld.%lld", (long long)id, (long long)n);
    const sw_value out = sw_constant(b->g, name, SW_I32, SW_SHAPE(n), ids);
    sw_free(ids);
    return out;
}

static sw_value ids_of(struct sw_onnx_build *b, const struct sw_onnx_match *m)
{
    if (m->dim == ONNX_IDS_SAME) {
        return repeated(b, m->first);
    }
    if (m->data[0]) {
        const bool counted = m->dim == ONNX_IDS_COUNTED &&
                             sw_task_input_of(b->plan->of->super.task, "positions") != NULL;
        return !counted ? constant(b, b->plan->graph->nodes[m->node].in[1], m->data[0], SW_I32)
               : m->first == 0 ? input(b, "positions")
                               : sw_add_offset(b->g, input(b, "positions"), m->first);
    }
    const sw_value ids = input(b, m->n_in > 0 ? value_at(b, m->in[0])->name : "input_ids");
    return m->dim == ONNX_IDS_REAL
               ? sw_positions(b->g, sw_not_equal(b->g, ids, b->plan->pad), m->first)
               : ids;
}

/* The row that gets no gradient. A graph does not say, and transformers' encoders leave out the row
 * of padding. */
static int64_t padding_of(const struct sw_onnx_build *b, const struct sw_onnx_match *m)
{
    const struct sw_model *model = &b->plan->of->super;
    const bool of_words = m->dim == ONNX_IDS_GIVEN && m->n_in > 0 &&
                          strcmp(value_at(b, m->in[0])->name, "input_ids") == 0;
    return sw_model_is_causal(model) ? -1
           : of_words                ? model->pad_id
           : m->dim == ONNX_IDS_REAL ? m->first - 1
                                     : -1;
}

ONNX_EMIT(sw_onnx_emit_embedding)
{
    return sw_embedding(b->g, param(b, m->weight), ids_of(b, m), padding_of(b, m));
}

ONNX_EMIT(sw_onnx_emit_layer_norm)
{
    return sw_layer_norm(b->g, sw_onnx_use(b, m->in[0]), param(b, m->weight), param(b, m->bias),
                         m->number);
}

ONNX_EMIT(sw_onnx_emit_rms_norm)
{
    return sw_rms_norm(b->g, sw_onnx_use(b, m->in[0]), param(b, m->weight), m->number, false);
}

ONNX_EMIT(sw_onnx_emit_act)
{
    return sw_act(b->g, sw_onnx_use(b, m->in[0]), m->act);
}

ONNX_EMIT(sw_onnx_emit_gate)
{
    return sw_gated_act(b->g, sw_onnx_use(b, m->in[0]), sw_onnx_use(b, m->in[1]), m->act);
}

ONNX_EMIT(sw_onnx_emit_scale)
{
    return sw_scale(b->g, sw_onnx_use(b, m->in[0]), m->number);
}

/* x without leading dims of 1 */
static sw_value without_ones(struct sw_onnx_build *b, sw_value x)
{
    struct sw_shape shape = b->g->values[x].shape;
    int skip = 0;
    while (skip + 1 < shape.rank && shape.dims[skip] == 1) {
        skip++;
    }
    shape.rank -= skip;
    memmove(shape.dims, shape.dims + skip, (size_t)shape.rank * sizeof *shape.dims);
    return skip > 0 ? sw_reshape(b->g, x, shape) : x;
}

/* Operands of which the second is repeated over leading dims of the first. */
static sw_value pair(struct sw_onnx_build *b, const struct sw_onnx_match *m,
                     sw_value (*op)(sw_graph *, sw_value, sw_value))
{
    sw_value x = use_any(b, m->in[0]), y = use_any(b, m->in[1]);
    if (sw_graph_status(b->g) < 0) {
        return SW_NO_VALUE;
    }
    const int64_t n = sw_shape_elems(&b->g->values[x].shape);
    if (n < sw_shape_elems(&b->g->values[y].shape)) {
        const sw_value swapped = x;
        x = y;
        y = swapped;
    }
    if (!sw_shape_equal(&b->g->values[x].shape, &b->g->values[y].shape)) {
        y = without_ones(b, y);
    }
    return op(b->g, x, y);
}

ONNX_EMIT(sw_onnx_emit_add)
{
    return pair(b, m, sw_add);
}

ONNX_EMIT(sw_onnx_emit_mul)
{
    return pair(b, m, sw_mul);
}

/* Windows as rows, times the weights; then channels first, as the node has it. */
ONNX_EMIT(sw_onnx_emit_conv)
{
    const struct sw_onnx_graph_value *w = value_at(b, m->weight), *y = value_at(b, m->value);
    const int64_t *d = w->dims;
    const struct sw_window window = {{d[2], d[3]}, {d[2], d[3]}, {0, 0}};
    const sw_value seen = sw_im2col(b->g, sw_onnx_use(b, m->in[0]), &window);
    const sw_value weight =
        sw_reshape(b->g, param(b, m->weight), SW_SHAPE(d[0], d[1] * d[2] * d[3]));
    const sw_value bias = m->bias >= 0 ? param(b, m->bias) : SW_NO_VALUE;
    const sw_value rows = sw_linear(b->g, seen, weight, bias, false);
    const sw_value turned = sw_transpose(b->g, rows, 1, 2);
    return sw_reshape(b->g, turned, SW_SHAPE(y->dims[0], y->dims[1], y->dims[2], y->dims[3]));
}

ONNX_EMIT(sw_onnx_emit_masked_mean)
{
    return sw_masked_mean(b->g, sw_onnx_use(b, m->in[0]), input(b, "attention_mask"));
}

/* ---- attention ---- */

static sw_value heads_of(struct sw_onnx_build *b, int32_t v, const int *of)
{
    return sw_onnx_permute(b->g, sw_onnx_use(b, v), of, 4);
}

ONNX_EMIT(sw_onnx_emit_attention)
{
    const struct sw_onnx_graph_value *v = value_at(b, m->value);
    const struct sw_attention_spec spec = {
        .heads = m->attention.heads,
        .kv_heads = m->attention.kv_heads,
        .scale = m->number,
        .causal = m->attention.causal,
        .window = m->attention.window,
        .mask = m->attention.has_mask ? input(b, "attention_mask") : SW_NO_VALUE,
        .position = SW_NO_VALUE,
        .slopes = SW_NO_VALUE,
        .segments = SW_NO_VALUE,
        .bias = SW_NO_VALUE,
    };
    if (m->attention.flat) {
        return sw_attention(b->g, sw_onnx_use(b, m->in[0]), sw_onnx_use(b, m->in[1]),
                            sw_onnx_use(b, m->in[2]), &spec);
    }
    const sw_value o = m->attention.packed
                           ? sw_attention_packed(b->g, sw_onnx_use(b, m->in[0]), &spec)
                           : sw_attention(b->g, heads_of(b, m->in[0], m->attention.of_q),
                                          heads_of(b, m->in[1], m->attention.of_k),
                                          heads_of(b, m->in[2], m->attention.of_v), &spec);
    const sw_value heads =
        sw_reshape(b->g, o, SW_SHAPE(v->dims[0], v->dims[2], v->dims[1], v->dims[3]));
    return sw_transpose(b->g, heads, 1, 2);
}

/* The table that sw_rotary takes: row by row, cosines of half a head, then sines. */
static sw_value angles(struct sw_onnx_build *b, const struct sw_onnx_match *m, int64_t width)
{
    const int64_t rows = b->plan->tokens, half = width / 2;
    char name[320];
    float *table = sw_alloc("onnx", (size_t)(rows * width + 1) * sizeof *table);
    if (!table) {
        sw_graph_fail(b->g, SW_E_NOMEM, "out of host memory for rotary positions");
        return SW_NO_VALUE;
    }
    for (int64_t i = 0; i < rows * width; i++) {
        const int64_t column = i % width, at = i / width * width + column % half;
        table[i] = (float)sw_onnx_data_number(m->data[column >= half], at);
    }
    snprintf(
        name, sizeof name, "rotary.%016llx",
        (unsigned long long)sw_hash(SW_HASH_INIT, table, (size_t)(rows * width) * sizeof *table));
    const sw_value out = sw_constant(b->g, name, SW_F32, SW_SHAPE(rows, width), table);
    sw_free(table);
    return out;
}

ONNX_EMIT(sw_onnx_emit_rotary)
{
    const int64_t width = value_at(b, m->value)->dims[3];
    const sw_value x = heads_of(b, m->in[0], m->order);
    const sw_value y = sw_rotary(b->g, x, angles(b, m, width), input(b, "positions"), false);
    return sw_onnx_permute(b->g, y, m->order, 4); /* the order is its own inverse */
}

/* ---- the whole ---- */

/* The product of which a language model's logits are made, whose loss is then made in chunks; NULL:
 * the task has no such head. */
static const struct sw_onnx_match *head_of(const struct sw_onnx_build *b)
{
    const struct sw_onnx_plan *p = b->plan;
    const char *head = p->of->super.task->head;
    const int32_t v = p->graph->outputs[p->of->outputs[0]], i = p->match_of[v];
    const struct sw_onnx_match *m = i >= 0 ? &p->matches[i] : NULL;
    if (!m || m->by->emit != sw_onnx_emit_linear || value_at(b, v)->n_uses > 0 ||
        (strcmp(head, "causal") != 0 && strcmp(head, "masked") != 0)) {
        return NULL;
    }
    return m->in_out == is_turned(sw_onnx_param_of(b, m->weight), m->weight) ? m : NULL;
}

static void push_block(struct sw_onnx_build *b, int32_t i)
{
    const char *text, *other;
    char name[224];
    const size_t n = sw_onnx_block_name(b->plan, i, &text);
    const size_t before = i > 0 ? sw_onnx_block_name(b->plan, i - 1, &other) : 0;
    const size_t after =
        i == 0 && b->plan->n_blocks > 1 ? sw_onnx_block_name(b->plan, 1, &other) : before;
    if (n == 0 || (after == n && strncmp(text, other, n) == 0)) {
        snprintf(name, sizeof name, "block.%d", i);
    } else {
        snprintf(name, sizeof name, "%.*s", (int)n, text);
    }
    sw_scope_push_block(b->g, name);
}

/* Emits match i in the scope of its node. */
static void emit(struct sw_onnx_build *b, int32_t i)
{
    const struct sw_onnx_plan *p = b->plan;
    const struct sw_onnx_match *m = &p->matches[i];
    const char *scope = p->graph->nodes[m->node].scope, *block;
    const int32_t at = p->n_blocks > 0 && i >= p->first ? (i - p->first) / p->period : -1;
    if (at >= 0 && at < p->n_blocks) {
        const size_t n = sw_onnx_block_name(p, at, &block);
        scope += *scope && n > 0 ? n + (scope[n] == '.') : 0;
    }
    if (*scope) {
        sw_scope_push(b->g, scope);
    }
    b->built[m->value] = m->by->emit(b, m);
    if (*scope) {
        sw_scope_pop(b->g);
    }
}

static void emit_all(struct sw_onnx_build *b, const struct sw_onnx_match *head)
{
    const struct sw_onnx_plan *p = b->plan;
    const int32_t end = p->first + p->n_blocks * p->period;
    for (int32_t i = 0; i < p->n; i++) {
        const bool in_block = p->n_blocks > 0 && i >= p->first && i < end;
        const int32_t at = in_block ? (i - p->first) % p->period : -1;
        if (at == 0) {
            push_block(b, (i - p->first) / p->period);
        }
        if (&p->matches[i] != head) {
            emit(b, i);
        }
        if (in_block && at == p->period - 1) {
            sw_scope_pop(b->g);
        }
        if (sw_graph_status(b->g) < 0) {
            return;
        }
    }
}

static sw_value output(struct sw_onnx_build *b, int i)
{
    return sw_onnx_use(b, b->plan->graph->outputs[b->plan->of->outputs[i]]);
}

static sw_value emit_head(struct sw_onnx_build *b, const struct sw_onnx_match *linear)
{
    const struct sw_model *model = &b->plan->of->super;
    struct sw_head head = {model, b->g, b->spec, SW_NO_VALUE};
    sw_scope_push(b->g, "head");
    if (linear) {
        const sw_value h = sw_onnx_use(b, linear->in[0]);
        sw_head_linear_term(&head, 0, h, h, param(b, linear->weight),
                            linear->bias >= 0 ? param(b, linear->bias) : SW_NO_VALUE, 0);
    } else if (model->task->n_losses == 0) {
        if (b->spec->want_logits) {
            sw_output(b->g, "hidden", output(b, 0));
        }
    } else {
        for (int i = 0; i < model->task->n_losses; i++) {
            sw_head_term(&head, i, output(b, i));
        }
    }
    const sw_value loss = sw_head_end(&head);
    sw_scope_pop(b->g);
    return loss;
}

static bool is_built(sw_graph *g, const struct sw_forward_spec *spec)
{
    if (spec->is_packed || spec->cache_tokens > 0) {
        sw_graph_fail(g, SW_E_UNSUP, "a model from an ONNX file %s",
                      spec->is_packed ? "takes one text a row: set spillway.packing to false"
                                      : "has no cache of keys and values, and generates no text");
    }
    return sw_graph_status(g) >= 0;
}

void sw_onnx_forward(const struct sw_model *model, sw_graph *g, const struct sw_forward_spec *spec,
                     sw_value *out_loss)
{
    const struct sw_onnx_import *of = SW_CONTAINER(model, struct sw_onnx_import, super);
    const struct sw_onnx_plan_spec sizes = {
        .batch = spec->batch,
        .tokens = model->channels > 0 ? 1 : spec->tokens,
        .has_mask = spec->has_mask || !sw_model_is_causal(model),
        .task = model->task,
    };
    struct sw_onnx_plan *plan = NULL;
    *out_loss = SW_NO_VALUE;
    if (!is_built(g, spec)) {
        return;
    }
    const sw_status st = sw_onnx_plan_open(of, &sizes, &plan);
    if (st < 0) {
        sw_graph_fail(g, st, "%s", sw_error_message());
        return;
    }
    struct sw_onnx_build b = {.plan = plan, .spec = spec, .g = g};
    sw_arena_init(&b.arena, "onnx");
    b.built = sw_arena_array(&b.arena, (size_t)plan->graph->n_values + 1, sizeof *b.built);
    if (b.built) {
        memset(b.built, 0xff, (size_t)plan->graph->n_values * sizeof *b.built);
        const struct sw_onnx_match *head = head_of(&b);
        emit_all(&b, head);
        *out_loss = emit_head(&b, head);
    } else {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for an ONNX graph");
    }
    sw_arena_fini(&b.arena);
    sw_onnx_plan_close(plan);
}
