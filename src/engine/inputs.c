// SPDX-License-Identifier: Apache-2.0
// Inputs of a program: the tensors of a batch, by name. Ids and labels index tables; an index out
// of range would read or write out of bounds. The engine learns the range of each input from the
// ops that index with it. Batches are checked here before anything runs.
#include <math.h>
#include <string.h>

#include "engine/private.h"

enum { IGNORED = -100 }; /* label of a target that has no loss */

/* Bound on the elements of input `name`, or on a view of it: 0 .. limit - 1, or IGNORED if
 * may_ignore is set. */
struct engine_bound {
    const char *name;
    int64_t limit;
    bool may_ignore;
    struct sw_shape shape;
    int64_t strides[SW_MAX_RANK], offset; /* of the view in the tensor */
};

/* ---- learning ---- */

/* Position of the op's index operand; -1 if it has none. */
static int index_of(const struct sw_graph *g, const struct sw_op *op, struct engine_bound *out)
{
    const struct sw_op_info *info = sw_op_info(op->kind);
    struct sw_op_desc desc;
    if (!info->n_indexed) {
        return -1;
    }
    sw_graph_describe(g, op, &desc);
    out->limit = info->n_indexed(&desc);
    out->may_ignore = sw_op_has(op, SW_TRAIT_LABELS);
    return info->index_input;
}

/* The output of POSITIONS is below `limit` if its input is below `limit - offset`. If it counts a
 * mask, the input must be 0 or 1. */
static int64_t limit_before(const struct sw_op *op, int64_t limit)
{
    return op->attrs.positions.counted ? 2 : limit - op->attrs.positions.offset;
}

/* Follows v through views, copies and positions to the input that it shows elements of; NULL: v is
 * computed. A part of a copy counts as the whole copy. */
static const char *input_of(const struct sw_graph *g, sw_value v, struct engine_bound *out)
{
    sw_value root = sw_graph_root(g, v);
    while (g->values[root].role != SW_ROLE_INPUT) {
        const int32_t producer = g->values[root].producer;
        const bool places =
            producer >= 0 && sw_op_info(g->ops[producer].kind)->attrs == SW_ATTRS_POSITIONS;
        if (producer < 0 || (!places && !sw_op_has(&g->ops[producer], SW_TRAIT_COPY))) {
            return NULL;
        }
        out->limit = places ? limit_before(&g->ops[producer], out->limit) : out->limit;
        out->may_ignore = out->may_ignore || sw_op_has(&g->ops[producer], SW_TRAIT_LABELS);
        v = g->ops[producer].in[0];
        root = sw_graph_root(g, v);
    }
    const struct sw_value_info *info = &g->values[v];
    out->shape = info->shape;
    out->offset = info->base_offset;
    memcpy(out->strides, info->strides, sizeof out->strides);
    return g->values[root].name;
}

static bool same(const struct engine_bound *a, const struct engine_bound *b)
{
    return strcmp(a->name, b->name) == 0 && a->limit == b->limit &&
           a->may_ignore == b->may_ignore && sw_shape_equal(&a->shape, &b->shape) &&
           a->offset == b->offset &&
           memcmp(a->strides, b->strides, (size_t)a->shape.rank * sizeof *a->strides) == 0;
}

static sw_status add(struct engine_bounds *b, const struct engine_bound *bound)
{
    for (int i = 0; i < b->n; i++) {
        if (same(&b->items[i], bound)) {
            return SW_OK; /* known from another program */
        }
    }
    struct engine_bound *items = sw_realloc("engine", b->items, (size_t)(b->n + 1) * sizeof *items);
    SW_TRY_ALLOC(items, "the bounds of inputs");
    b->items = items;
    items[b->n] = *bound;
    items[b->n].name = sw_arena_strdup(&b->names, bound->name);
    SW_TRY_ALLOC(items[b->n].name, "the bounds of inputs");
    b->n++;
    return SW_OK;
}

sw_status sw_engine_learn_inputs(struct engine_bounds *bounds, const struct sw_graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct engine_bound bound = {0};
        const int at = index_of(g, &g->ops[i], &bound);
        bound.name = at < 0 ? NULL : input_of(g, g->ops[i].in[at], &bound);
        if (bound.name) {
            SW_TRY(add(bounds, &bound));
        }
    }
    return SW_OK;
}

void sw_engine_forget_inputs(struct engine_bounds *bounds)
{
    sw_free(bounds->items);
    sw_arena_fini(&bounds->names);
    *bounds = (struct engine_bounds){0};
    sw_arena_init(&bounds->names, "engine");
}

/* ---- checking ---- */

static bool is_bad(const struct engine_bound *b, int32_t id)
{
    return (id < 0 || id >= b->limit) && !(b->may_ignore && id == IGNORED);
}

/* Formats the index of an element of a row-major tensor: "[1, 17]". */
static void format_place(const struct sw_shape *shape, int64_t element, char *buf, size_t cap)
{
    struct sw_shape place = *shape;
    for (int d = shape->rank - 1; d >= 0; d--) {
        place.dims[d] = element % shape->dims[d];
        element /= shape->dims[d];
    }
    sw_shape_format(&place, buf, cap);
}

static sw_status refuse(const struct engine_bound *b, const struct sw_view *view, int64_t element)
{
    char place[96];
    format_place(&view->shape, element, place, sizeof place);
    return SW_FAIL(SW_E_ARG, "%s: %d at %s; wanted 0 .. %lld%s", b->name,
                   ((const int32_t *)view->data)[element], place, (long long)b->limit - 1,
                   b->may_ignore ? ", or -100 for none" : "");
}

/* Scans the last dimension without a branch. The bad element is located only if there is one. */
static sw_status check_bound(const struct engine_bound *b, const struct sw_view *view)
{
    const int rank = b->shape.rank;
    const int64_t n = sw_shape_last(&b->shape), rows = sw_shape_rows(&b->shape);
    const int64_t stride = rank > 0 ? b->strides[rank - 1] : 1;
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = b->offset, left = row;
        for (int d = rank - 2; d >= 0; d--) {
            at += left % b->shape.dims[d] * b->strides[d];
            left /= b->shape.dims[d];
        }
        const int32_t *ids = (const int32_t *)view->data + at;
        int any = 0;
        for (int64_t i = 0; i < n; i++) {
            any |= is_bad(b, ids[i * stride]);
        }
        for (int64_t i = 0; any && i < n; i++) {
            if (is_bad(b, ids[i * stride])) {
                return refuse(b, view, at + i * stride);
            }
        }
    }
    return SW_OK;
}

static const struct sw_tensor *find_tensor(const struct sw_batch *batch, const char *name)
{
    for (int i = 0; i < batch->n_tensors; i++) {
        if (strcmp(batch->tensors[i].name, name) == 0) {
            return &batch->tensors[i];
        }
    }
    return NULL;
}

/* The task's rule for an input that a batch omits. */
static enum sw_task_absent absent(const struct sw_engine *e, const struct sw_port *port)
{
    const struct sw_task_input *input =
        e->weights.model ? sw_task_input_of(e->weights.model->task, port->name) : NULL;
    return input ? input->absent : SW_ABSENT_REFUSED;
}

static sw_status check_tensor(const struct sw_engine *e, const struct sw_port *port,
                              const struct sw_tensor *tensor)
{
    const struct sw_view *view = &tensor->view;
    if (view->dtype != port->dtype || !sw_shape_equal(&view->shape, &port->shape)) {
        char have[96], want[96];
        return SW_FAIL(SW_E_ARG, "%s: wanted %s%s, got %s%s", port->name,
                       sw_dtype_name(port->dtype), sw_shape_format(&port->shape, want, sizeof want),
                       sw_dtype_name(view->dtype),
                       sw_shape_format(&view->shape, have, sizeof have));
    }
    if (!view->data) {
        return SW_FAIL(SW_E_ARG, "%s: it has no data", port->name);
    }
    for (int i = 0; i < e->bounds.n; i++) {
        if (strcmp(e->bounds.items[i].name, port->name) == 0) {
            SW_TRY(check_bound(&e->bounds.items[i], view));
        }
    }
    return SW_OK;
}

/* Names the missing input, and the batch's own names: the caller may have misspelled one. */
static sw_status refuse_missing(const struct sw_engine *e, const struct sw_port *port,
                                const struct sw_batch *batch)
{
    char want[96];
    const struct sw_task_input *input =
        e->weights.model ? sw_task_input_of(e->weights.model->task, port->name) : NULL;
    struct sw_str given = {0};
    for (int i = 0; i < batch->n_tensors; i++) {
        sw_str_printf(&given, "%s%s", i ? ", " : "", batch->tensors[i].name);
    }
    const sw_status st =
        SW_FAIL(SW_E_ARG, "the batch has no tensor \"%s\", %s%s%s; it has %s", port->name,
                sw_dtype_name(port->dtype), sw_shape_format(&port->shape, want, sizeof want),
                input && input->is_label ? ", which the loss needs" : "",
                given.len > 0 ? sw_str_text(&given) : "none");
    sw_str_fini(&given);
    return st;
}

/* Tensors that no program reads are left out, but a loss without its weights is another one. */
static sw_status refuse_weights(const struct sw_engine *e, const struct sw_batch *batch)
{
    const bool could = e->weights.model && !e->config->spillway.token_weights &&
                       sw_task_input_of(e->weights.model->task, SW_TASK_WEIGHTS);
    return could && find_tensor(batch, SW_TASK_WEIGHTS)
               ? SW_FAIL(SW_E_ARG,
                         "the batch has \"%s\", which the loss reads only with "
                         "spillway.token_weights true",
                         SW_TASK_WEIGHTS)
               : SW_OK;
}

sw_status sw_engine_check_inputs(const struct sw_engine *e, int i_program, int micro,
                                 const struct sw_batch *batch)
{
    const struct sw_program *program = &e->plan->programs[i_program];
    if (!batch || (batch->n_tensors > 0 && !batch->tensors)) {
        return SW_FAIL(SW_E_ARG, "no batch is given");
    }
    SW_TRY(refuse_weights(e, batch));
    for (int32_t i = 0; i < program->ports.n_inputs; i++) {
        const struct sw_port *port = &program->ports.inputs[i];
        const struct sw_tensor *tensor =
            port->micro == micro ? find_tensor(batch, port->name) : NULL;
        if (tensor) {
            SW_TRY(check_tensor(e, port, tensor));
        } else if (port->micro == micro && absent(e, port) == SW_ABSENT_REFUSED) {
            return refuse_missing(e, port, batch);
        }
    }
    return SW_OK;
}

/* ---- listing ---- */

/* Input `wanted` of the program's first micro-batch, in order. */
static const struct sw_port *listed(const struct sw_engine *e, int32_t wanted, int32_t *out_n)
{
    const struct engine_programs *p = &e->programs;
    const int i_program = p->train >= 0 ? p->train : p->eval >= 0 ? p->eval : p->logits;
    const struct sw_port *found = NULL;
    *out_n = 0;
    if (i_program < 0) {
        return NULL;
    }
    const struct sw_program *program = &e->plan->programs[i_program];
    for (int32_t i = 0; i < program->ports.n_inputs; i++) {
        if (program->ports.inputs[i].micro == 0) {
            found = *out_n == wanted ? &program->ports.inputs[i] : found;
            ++*out_n;
        }
    }
    return found;
}

int32_t sw_engine_n_inputs(const sw_engine *e)
{
    int32_t n;
    listed(e, -1, &n);
    return n;
}

static sw_status find_listed(const struct sw_engine *e, int32_t i, const struct sw_port **out)
{
    int32_t n;
    const struct sw_port *port = listed(e, i, &n);
    if (!port) {
        return SW_FAIL(SW_E_ARG, "input %d does not exist; a micro-batch has %d", (int)i, (int)n);
    }
    *out = port;
    return SW_OK;
}

sw_status sw_engine_input(const sw_engine *e, int32_t i, struct sw_input_info *out)
{
    const struct sw_port *port;
    SW_TRY(find_listed(e, i, &port));
    *out = (struct sw_input_info){port->name, port->dtype, port->shape,
                                  absent(e, port) != SW_ABSENT_REFUSED};
    return SW_OK;
}

static double pad_of(const struct sw_model *model, const struct sw_task_input *input)
{
    switch (input->pad) {
    case SW_PAD_ID:
        return (double)model->pad_id;
    case SW_PAD_IGNORED:
        return input->dtype == SW_F32 ? (double)NAN : IGNORED;
    default:
        return 0;
    }
}

sw_status sw_engine_hf_input(const sw_engine *e, int32_t i, struct sw_hf_input *out)
{
    const struct sw_port *port;
    SW_TRY(find_listed(e, i, &port));
    struct sw_hf_input found = {.name = port->name, .start = -1};
    const struct sw_task_input *input =
        e->weights.model ? sw_task_input_of(e->weights.model->task, port->name) : NULL;
    if (input) {
        const bool is_weights = strcmp(port->name, SW_TASK_WEIGHTS) == 0;
        const struct sw_task_loss *loss =
            sw_task_loss_of(e->weights.model->task, is_weights ? "labels" : port->name);
        const bool is_read = loss && sw_model_is_seq2seq(e->weights.model);
        found.name = input->recorded ? input->recorded : port->name;
        found.pad = pad_of(e->weights.model, input);
        found.start = is_read ? (int32_t)e->weights.model->start_id : -1;
        found.shifted = loss && loss->shifted;
    }
    *out = found;
    return SW_OK;
}

/* ---- passing inputs on ---- */

static sw_status give(struct sw_engine *e, const struct sw_port *port, int64_t round,
                      const void *data, size_t bytes)
{
    return round < 0 ? sw_executor_write(e->executor, port, data, bytes)
                     : sw_executor_give(e->executor, port, round, data, bytes);
}

/* Passes on the default of an input that the batch omits. */
static sw_status give_absent(struct sw_engine *e, const struct sw_port *port, int64_t round)
{
    const int64_t n = sw_shape_elems(&port->shape), width = sw_shape_last(&port->shape);
    const enum sw_task_absent what = absent(e, port);
    SW_ASSERT(n <= sw_engine_scratch_elems(&e->sizes) && sw_dtype_bytes(port->dtype) == 4);
    for (int64_t i = 0; i < n; i++) {
        const int64_t value = what == SW_ABSENT_COUNTED ? i % width : what == SW_ABSENT_ONES;
        sw_store_f64(port->dtype, e->scratch, i, (double)value);
    }
    return give(e, port, round, e->scratch, (size_t)n * sw_dtype_bytes(port->dtype));
}

sw_status sw_engine_give_inputs(struct sw_engine *e, int i_program, int micro, int64_t round,
                                const struct sw_batch *batch)
{
    const struct sw_program *program = &e->plan->programs[i_program];
    for (int32_t i = 0; i < program->ports.n_inputs; i++) {
        const struct sw_port *port = &program->ports.inputs[i];
        if (port->micro != micro) {
            continue;
        }
        const struct sw_tensor *tensor = find_tensor(batch, port->name);
        SW_TRY(tensor ? give(e, port, round, tensor->view.data, sw_port_bytes(port))
                      : give_absent(e, port, round));
    }
    return SW_OK;
}
