// SPDX-License-Identifier: Apache-2.0
// The plan's list as a container. Invariant: after the first failure additions are no-ops, and the
// first message is kept.
#include "plan/ir.h"

#include <stdio.h>
#include <string.h>

/* Makes room for `need` elements. false = out of memory, and the list has failed */
static bool grow(struct sw_ir *ir, void **array, int32_t *cap, int32_t need, size_t elem_bytes)
{
    if (need <= *cap) {
        return true;
    }
    const int32_t new_cap = need < 64 ? 64 : need * 2;
    void *mem = sw_realloc("plan", *array, (size_t)new_cap * elem_bytes);
    if (!mem) {
        sw_ir_fail(ir, SW_E_NOMEM, "out of host memory for the plan");
        return false;
    }
    *array = mem;
    *cap = new_cap;
    return true;
}

void sw_ir_fail(struct sw_ir *ir, sw_status code, const char *fmt, ...)
{
    if (ir->failure.status < 0) {
        return;
    }
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ir->failure.status = code;
    ir->failure.message = sw_arena_strdup(&ir->names, text);
}

sw_status sw_ir_status(const struct sw_ir *ir)
{
    if (ir->failure.status < 0) {
        return SW_FAIL(ir->failure.status, "%s",
                       ir->failure.message ? ir->failure.message : "the plan could not be made");
    }
    return SW_OK;
}

/* ---- from a graph ---- */

static const char *copy_name(struct sw_ir *ir, const char *name)
{
    const char *copy = name ? sw_arena_strdup(&ir->names, name) : NULL;
    if (name && !copy) {
        sw_ir_fail(ir, SW_E_NOMEM, "out of host memory for the plan");
    }
    return copy;
}

static const void *copy_data(struct sw_ir *ir, const struct sw_value_info *info)
{
    void *copy = info->data ? sw_arena_alloc(&ir->names, sw_value_bytes(info)) : NULL;
    if (copy) {
        memcpy(copy, info->data, sw_value_bytes(info));
    } else if (info->data) {
        sw_ir_fail(ir, SW_E_NOMEM, "out of host memory for the plan");
    }
    return copy;
}

static void take_value(struct sw_ir *ir, const struct sw_value_info *info)
{
    struct sw_ir_form form = {.shape = info->shape,
                              .contiguous = info->contiguous,
                              .init = info->init,
                              .data = copy_data(ir, info)};
    memcpy(form.strides, info->strides, sizeof form.strides);
    struct sw_ir_value *value = &ir->values[ir->n_values++];
    *value = (struct sw_ir_value){
        .form = sw_ir_form(ir, &form),
        .dtype = info->dtype,
        .role = info->role,
        .name = copy_name(ir, info->name),
        .producer = info->producer,
        .base = info->base,
        .base_offset = info->base_offset,
        .sparse_index = info->sparse_index,
        .param = info->param,
        .needs_grad = info->needs_grad,
        .param_facts = {.is_local = info->is_local, .is_elsewhere = info->is_elsewhere},
        .is_output = info->is_output,
        .state = info->data ? SW_STATE_CONSTANT : SW_STATE_OTHER,
    };
}

const char *sw_ir_key(const struct sw_ir *ir, sw_value v, int32_t base, int32_t *key)
{
    const struct sw_ir_value *value = &ir->values[v];
    const bool of_param = sw_state_infos[value->state].name != NULL;
    *key = of_param ? sw_state_key(base, value->state, value->use) : base;
    return of_param ? ir->values[value->param].name : value->name;
}

/* Lookups find the first of several values with one key. */
static bool list_leaf(struct sw_ir *ir, sw_value v)
{
    const struct sw_ir_value *value = &ir->values[v];
    int32_t key;
    const char *text = sw_ir_key(ir, v, (int32_t)value->role, &key);
    if (!value->name || value->producer >= 0) {
        return true;
    }
    if (!sw_names_add(&ir->leaves, key, text, v)) {
        sw_ir_fail(ir, SW_E_NOMEM, "out of host memory for the plan");
        return false;
    }
    return true;
}

static void note_view(struct sw_ir *ir, const struct sw_ir_op *op)
{
    if (sw_ir_has(op, SW_TRAIT_VIEW)) {
        ir->values[op->in[0]].param_facts.is_viewed = true;
    }
}

static bool take_op(struct sw_ir *ir, const struct sw_op *math)
{
    struct sw_ir_op *op = &ir->ops[ir->n_ops++];
    *op = (struct sw_ir_op){.detail = &sw_ir_no_detail, .phase = math->phase, .scope = math->scope};
    memcpy(op->in, math->in, sizeof op->in);
    memcpy(op->out, math->out, sizeof op->out);
    sw_ir_take_math(ir, op, math);
    note_view(ir, op);
    return ir->failure.status >= 0;
}

static bool take_scopes(struct sw_ir *ir, const struct sw_graph *g)
{
    ir->scopes = sw_alloc("plan", ((size_t)g->n_scopes + 1) * sizeof *ir->scopes);
    for (int32_t i = 0; ir->scopes && i < g->n_scopes; i++) {
        ir->scopes[i] = g->scopes[i];
        ir->scopes[i].name = copy_name(ir, g->scopes[i].name);
    }
    ir->n_scopes = g->n_scopes;
    return ir->scopes != NULL;
}

static bool take_lists(struct sw_ir *ir, const struct sw_graph *g)
{
    ir->params.at = sw_alloc("plan", ((size_t)g->n_params + 1) * sizeof *ir->params.at);
    ir->streams = sw_alloc("plan", ((size_t)g->n_streams + 1) * sizeof *ir->streams);
    ir->params.parts = sw_alloc("plan", ((size_t)g->n_parts + 1) * sizeof *ir->params.parts);
    if (!ir->params.at || !ir->streams || !ir->params.parts) {
        return false;
    }
    for (int cut = 1; cut >= 0; cut--) {
        for (int32_t i = 0; i < g->n_parts; i++) {
            const struct sw_param_part *part = &g->parts[i];
            if (sw_shape_equal(&g->values[part->param].shape, &part->whole) != (cut > 0)) {
                ir->params.parts[ir->params.n_splits++] = *part;
            }
        }
        ir->params.n_parts = cut > 0 ? ir->params.n_splits : ir->params.n_parts;
    }
    for (; ir->params.n < g->n_params; ir->params.n++) {
        ir->params.at[ir->params.n] = g->params[ir->params.n];
    }
    for (; ir->n_streams < g->n_streams; ir->n_streams++) {
        const struct sw_stream *stream = &g->streams[ir->n_streams];
        ir->streams[ir->n_streams] = (struct sw_ir_stream){
            .param = stream->param, .grad = stream->grad, .continues = stream->continues};
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        sw_ir_output(ir, g->outputs[i].name, g->outputs[i].value);
    }
    return true;
}

sw_status sw_ir_open(const struct sw_graph *g, struct sw_ir **out)
{
    struct sw_ir *ir = sw_alloc_zero("plan", 1, sizeof *ir);
    SW_TRY_ALLOC(ir, "the plan");
    sw_arena_init(&ir->names, "plan");
    ir->dtype = g->dtype;
    bool good = grow(ir, (void **)&ir->values, &ir->room.values, g->n_values, sizeof *ir->values) &&
                grow(ir, (void **)&ir->ops, &ir->room.ops, g->n_ops, sizeof *ir->ops) &&
                take_scopes(ir, g);
    for (sw_value v = 0; good && v < g->n_values; v++) {
        take_value(ir, &g->values[v]);
        good = ir->failure.status >= 0 && list_leaf(ir, v);
    }
    for (int32_t i = 0; good && i < g->n_ops; i++) {
        good = take_op(ir, &g->ops[i]);
    }
    good = good && take_lists(ir, g) && ir->failure.status >= 0;
    if (!good) {
        sw_ir_close(ir);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    }
    *out = ir;
    return SW_OK;
}

void sw_ir_close(struct sw_ir *ir)
{
    if (!ir) {
        return;
    }
    sw_free(ir->forms.at);
    sw_free(ir->values);
    sw_free(ir->ops);
    sw_free(ir->scopes);
    sw_free(ir->streams);
    sw_free(ir->outputs.at);
    sw_free(ir->params.at);
    sw_free(ir->params.parts);
    sw_free(ir->params.absent);
    sw_free(ir->params.holders);
    sw_free(ir->loops.pieces);
    sw_free(ir->where);
    sw_names_close(&ir->leaves);
    sw_arena_fini(&ir->names);
    sw_free(ir);
}

/* Among the first n; NULL = it is none of them. */
static const struct sw_param_part *find_split(const struct sw_ir *ir, sw_value param, int32_t n)
{
    for (int32_t i = 0; i < n; i++) { /* the root may be a pack */
        const sw_value known = ir->params.parts[i].param;
        if (known == param || known == sw_ir_root(ir, param)) {
            return &ir->params.parts[i];
        }
    }
    return NULL;
}

const struct sw_param_part *sw_ir_param_part(const struct sw_ir *ir, sw_value param)
{
    return find_split(ir, param, ir->params.n_parts);
}

const struct sw_param_part *sw_ir_param_split(const struct sw_ir *ir, sw_value param)
{
    return find_split(ir, param, ir->params.n_splits);
}

int64_t sw_ir_counted(const struct sw_ir *ir, sw_value param, int rank)
{
    const struct sw_param_part *part = sw_ir_param_part(ir, param);
    if (!ir->params.is_cut || !part || part->of_experts) {
        return !ir->params.is_cut || rank == 0 ? INT64_MAX : 0; /* each has all of it */
    }
    const struct sw_layout layout = {.whole = part->whole,
                                     .split = part->split,
                                     .tensor = {rank, ir->groups[ir->params.group].n}};
    const struct sw_shape shape = sw_layout_part(&layout);
    const int64_t counted = sw_layout_counted(&layout);
    return counted == sw_shape_elems(&shape) ? INT64_MAX : counted;
}

int64_t sw_ir_origin(const struct sw_ir *ir, sw_value param, sw_value v)
{
    const sw_value root = sw_ir_root(ir, param);
    const int64_t tile =
        sw_ir_is_part(ir, param)
            ? sw_layout_tile_first(&ir->values[root].form->layout, ir->values[param].base_offset)
            : 0;
    return tile + sw_layout_first(&ir->values[v].form->layout);
}

/* ---- values ---- */

size_t sw_ir_bytes(const struct sw_ir_value *value)
{
    return (size_t)value->form->elems * sw_dtype_bytes(value->dtype);
}

size_t sw_ir_storage_bytes(const struct sw_ir_value *value)
{
    const struct sw_ir_form *form = value->form;
    return (size_t)(form->layout.is_padded ? sw_layout_elems(&form->layout) : form->elems) *
           sw_dtype_bytes(value->dtype);
}

sw_value sw_ir_new_value(struct sw_ir *ir, enum sw_role role, enum sw_dtype dtype,
                         struct sw_shape shape)
{
    return sw_ir_new_like(ir, role, dtype, sw_ir_plain_form(ir, shape));
}

sw_value sw_ir_new_like(struct sw_ir *ir, enum sw_role role, enum sw_dtype dtype,
                        const struct sw_ir_form *form)
{
    if (ir->failure.status < 0 ||
        !grow(ir, (void **)&ir->values, &ir->room.values, ir->n_values + 1, sizeof *ir->values)) {
        return SW_NO_VALUE;
    }
    ir->values[ir->n_values] = (struct sw_ir_value){.form = form,
                                                    .role = role,
                                                    .dtype = dtype,
                                                    .producer = -1,
                                                    .base = SW_NO_VALUE,
                                                    .sparse_index = SW_NO_VALUE,
                                                    .param = SW_NO_VALUE,
                                                    .micro = ir->next.micro};
    return ir->n_values++;
}

void sw_ir_go_to_maker(struct sw_ir *ir, sw_value v, int micro)
{
    const int32_t maker = ir->values[sw_ir_version(ir, v)].producer;
    ir->next = (struct sw_ir_next){
        .phase = SW_PHASE_BACKWARD, .micro = micro, .chunk = ir->ops[maker].chunk};
}

sw_value sw_ir_copy_value(struct sw_ir *ir, sw_value v)
{
    if (ir->failure.status < 0 ||
        !grow(ir, (void **)&ir->values, &ir->room.values, ir->n_values + 1, sizeof *ir->values)) {
        return SW_NO_VALUE;
    }
    ir->values[ir->n_values] = ir->values[v];
    return ir->n_values++;
}

bool sw_ir_name_value(struct sw_ir *ir, sw_value v, const char *name)
{
    ir->values[v].name = copy_name(ir, name);
    return ir->values[v].name && list_leaf(ir, v);
}

sw_value sw_ir_find(const struct sw_ir *ir, enum sw_role role, const char *name)
{
    const sw_value v = sw_names_find(&ir->leaves, (int32_t)role, name);
    return v >= 0 && ir->values[v].role == role ? v : SW_NO_VALUE; /* another stage may have it */
}

sw_value sw_ir_find_same(const struct sw_ir *other, const struct sw_ir *ir, sw_value v)
{
    int32_t key;
    const char *text = sw_ir_key(ir, v, (int32_t)ir->values[v].role, &key);
    return sw_names_find(&other->leaves, key, text);
}

sw_value sw_ir_state(struct sw_ir *ir, const char *name, enum sw_dtype dtype, struct sw_shape shape)
{
    const sw_value known =
        ir->failure.status < 0 ? SW_NO_VALUE : sw_ir_find(ir, SW_ROLE_STATE, name);
    if (known >= 0) {
        return known;
    }
    const sw_value v = sw_ir_new_value(ir, SW_ROLE_STATE, dtype, shape);
    return v >= 0 && sw_ir_name_value(ir, v, name) ? v : SW_NO_VALUE;
}

static const char *name_state(struct sw_ir *ir, sw_value param, enum sw_state_kind kind, int use)
{
    const char *name = sw_state_name(&ir->names, ir->values[param].name, kind, use);
    if (!name) {
        sw_ir_fail(ir, SW_E_NOMEM, "out of host memory for the plan");
    }
    return name;
}

sw_value sw_ir_param_state(struct sw_ir *ir, sw_value param, enum sw_state_kind kind, int use,
                           enum sw_dtype dtype, struct sw_shape shape)
{
    if (ir->failure.status < 0) {
        return SW_NO_VALUE;
    }
    const char *of = ir->values[param].name;
    const sw_value known = sw_names_find(&ir->leaves, sw_state_key(SW_ROLE_STATE, kind, use), of);
    const sw_value v = known >= 0 ? known : sw_ir_new_value(ir, SW_ROLE_STATE, dtype, shape);
    if (known >= 0 || v < 0) {
        return v;
    }
    struct sw_ir_value *value = &ir->values[v];
    value->name = name_state(ir, param, kind, use);
    value->param = param;
    value->state = kind;
    value->use = (uint8_t)use;
    return value->name && list_leaf(ir, v) ? v : SW_NO_VALUE;
}

sw_value sw_ir_version(const struct sw_ir *ir, sw_value v)
{
    while (ir->values[v].producer >= 0 &&
           sw_ir_has(&ir->ops[ir->values[v].producer], SW_TRAIT_VIEW)) {
        v = ir->ops[ir->values[v].producer].in[0];
    }
    return v;
}

static void add_output(struct sw_ir *ir, const struct sw_ir_output *output)
{
    if (ir->failure.status >= 0 && grow(ir, (void **)&ir->outputs.at, &ir->outputs.cap,
                                        ir->outputs.n + 1, sizeof *ir->outputs.at)) {
        ir->values[output->value].is_output = true;
        ir->outputs.at[ir->outputs.n++] = *output;
    }
}

void sw_ir_output(struct sw_ir *ir, const char *name, sw_value v)
{
    if (ir->failure.status >= 0 && v >= 0) {
        add_output(ir,
                   &(struct sw_ir_output){copy_name(ir, name), v, SW_NO_VALUE, SW_STATE_OTHER, 0});
    }
}

void sw_ir_param_output(struct sw_ir *ir, sw_value param, enum sw_state_kind kind, int use,
                        sw_value v)
{
    if (ir->failure.status >= 0 && v >= 0) {
        add_output(ir, &(struct sw_ir_output){name_state(ir, param, kind, use), v, param, kind,
                                              (uint8_t)use});
    }
}

sw_value sw_ir_find_output(const struct sw_ir *ir, const char *name, int micro)
{
    for (int32_t i = 0; i < ir->outputs.n; i++) {
        const sw_value v = ir->outputs.at[i].value;
        if (ir->values[v].micro == micro && strcmp(ir->outputs.at[i].name, name) == 0) {
            return v;
        }
    }
    return SW_NO_VALUE;
}

bool sw_ir_is_part(const struct sw_ir *ir, sw_value v)
{
    const struct sw_ir_value *value = &ir->values[v];
    if (value->base < 0) {
        return false;
    }
    const struct sw_ir_value *root = &ir->values[value->base];
    const sw_value param = root->role == SW_ROLE_PARAM ? value->base : root->param;
    return param >= 0 && ir->values[param].param_facts.is_tiled &&
           (root->role == SW_ROLE_PARAM || sw_state_is_optimizer(root->state));
}

int32_t sw_ir_spread_group(const struct sw_ir *ir, sw_value v)
{
    const struct sw_ir_value *info = &ir->values[v];
    const sw_value of = info->role == SW_ROLE_PARAM ? v
                        : info->param >= 0          ? info->param
                                                    : sw_ir_root(ir, v);
    return ir->values[of].param_facts.is_local ? ir->params.local : SW_GROUP_DATA;
}

struct sw_coord sw_ir_spread(const struct sw_ir *ir, sw_value v)
{
    const int32_t group = sw_ir_spread_group(ir, v);
    return group < 0 ? (struct sw_coord){0, 1}
                     : (struct sw_coord){ir->groups[group].me, ir->groups[group].n};
}

struct sw_layout sw_ir_shard_of(const struct sw_ir *ir, sw_value v, int64_t run)
{
    const struct sw_layout *layout = &ir->values[v].form->layout;
    return layout->is_sliced ? *layout : sw_layout_sharded(layout, sw_ir_spread(ir, v), run);
}

bool sw_ir_is_packed(const struct sw_ir *ir, sw_value v)
{
    const struct sw_ir_value *value = &ir->values[v];
    return value->producer < 0 && value->base >= 0 && ir->values[value->base].is_pack;
}

/* ---- ops ---- */

/* Appends an op like `like`, with these inputs and no outputs. -1: the list has failed, or an input
 * is missing. */
static int32_t add_op(struct sw_ir *ir, const struct sw_ir_op *like, const sw_value *in, int n_in)
{
    if (ir->failure.status < 0) {
        return -1;
    }
    SW_ASSERT(n_in <= SW_MAX_INPUTS);
    for (int i = 0; i < n_in; i++) {
        if (in[i] < 0) {
            return -1;
        }
    }
    if (!grow(ir, (void **)&ir->ops, &ir->room.ops, ir->n_ops + 1, sizeof *ir->ops)) {
        return -1;
    }
    struct sw_ir_op *op = &ir->ops[ir->n_ops];
    *op = *like;
    op->phase = ir->next.phase;
    op->micro = ir->next.micro;
    op->chunk = ir->next.chunk;
    op->n_in = (int8_t)n_in;
    memcpy(op->in, in, (size_t)n_in * sizeof *in);
    note_view(ir, op);
    for (int i = 0; i < SW_MAX_OUTPUTS; i++) {
        op->out[i] = SW_NO_VALUE;
    }
    return ir->n_ops++;
}

const struct sw_ir_detail sw_ir_no_detail = {0};

const struct sw_ir_detail *sw_ir_keep_detail(struct sw_ir *ir, const struct sw_ir_detail *like)
{
    struct sw_ir_detail *detail = sw_arena_alloc(&ir->names, sizeof *detail);
    if (!detail) {
        sw_ir_fail(ir, SW_E_NOMEM, "out of host memory for the plan");
        return NULL;
    }
    *detail = *like;
    return detail;
}

void sw_ir_take_math(struct sw_ir *ir, struct sw_ir_op *op, const struct sw_op *math)
{
    const struct sw_ir_detail *detail = sw_ir_keep_detail(
        ir, &(struct sw_ir_detail){.attrs = math->attrs, .user = math->user, .path = math->path});
    if (detail) {
        op->detail = detail;
        op->kind = math->kind;
        op->n_in = (int8_t)math->n_in;
        op->n_out = (int8_t)math->n_out;
    }
}

int32_t sw_ir_add_detailed(struct sw_ir *ir, enum sw_op_kind kind, const sw_value *in, int n_in,
                           const struct sw_ir_detail *detail)
{
    const struct sw_ir_op op = {.detail = detail, .kind = kind};
    return add_op(ir, &op, in, n_in);
}

int32_t sw_ir_add_op(struct sw_ir *ir, enum sw_op_kind kind, const sw_value *in, int n_in,
                     const struct sw_attrs *attrs)
{
    struct sw_ir_op op = {.detail = &sw_ir_no_detail, .kind = kind};
    struct sw_op math = {.kind = kind};
    if (attrs) {
        math.attrs = *attrs;
        sw_ir_take_math(ir, &op, &math);
    }
    return add_op(ir, &op, in, n_in);
}

int32_t sw_ir_add_move(struct sw_ir *ir, enum sw_move move, const sw_value *in, int n_in)
{
    const struct sw_ir_op op = {.detail = &sw_ir_no_detail, .kind = SW_N_OP_KINDS, .move = move};
    return add_op(ir, &op, in, n_in);
}

int32_t sw_ir_add_exchange(struct sw_ir *ir, enum sw_move move, int group, const sw_value *in,
                           int n_in)
{
    const struct sw_ir_op op = {.detail = &sw_ir_no_detail,
                                .kind = SW_N_OP_KINDS,
                                .move = move,
                                .exchange.group = (int8_t)group};
    return add_op(ir, &op, in, n_in);
}

static sw_value add_out(struct sw_ir *ir, int32_t i_op, sw_value v)
{
    if (v < 0) {
        return v;
    }
    struct sw_ir_op *op = &ir->ops[i_op];
    SW_ASSERT(op->n_out < SW_MAX_OUTPUTS);
    op->out[op->n_out++] = v;
    ir->values[v].producer = i_op;
    for (int i = 0; i < op->n_in; i++) {
        ir->values[v].needs_grad |= ir->values[op->in[i]].needs_grad;
    }
    return v;
}

sw_value sw_ir_add_out(struct sw_ir *ir, int32_t i_op, enum sw_dtype dtype, struct sw_shape shape)
{
    return i_op < 0 ? SW_NO_VALUE
                    : add_out(ir, i_op, sw_ir_new_value(ir, SW_ROLE_TRANSIENT, dtype, shape));
}

sw_value sw_ir_add_out_in_place(struct sw_ir *ir, int32_t i_op, sw_value of)
{
    if (i_op < 0 || ir->failure.status < 0) {
        return SW_NO_VALUE;
    }
    const struct sw_ir_value src = ir->values[of];
    struct sw_ir_form form = *src.form;
    form.init = (struct sw_init){0};
    form.layout.is_padded = false; /* padding belongs to the storage, that is to `of` */
    const sw_value v =
        add_out(ir, i_op, sw_ir_new_like(ir, src.role, src.dtype, sw_ir_form(ir, &form)));
    if (v >= 0) {
        struct sw_ir_value *value = &ir->values[v];
        value->name = src.name;
        value->param = src.param;
        value->base = sw_ir_root(ir, of);
        value->base_offset = src.base_offset;
    }
    return v;
}

/* ---- loops ---- */

int32_t sw_ir_new_loop(struct sw_ir *ir, int32_t pieces)
{
    if (!grow(ir, (void **)&ir->loops.pieces, &ir->loops.cap, ir->loops.n + 1,
              sizeof *ir->loops.pieces)) {
        return 0;
    }
    ir->loops.pieces[ir->loops.n++] = pieces;
    return ir->loops.n;
}

/* ---- replacing the ops ---- */

sw_status sw_op_order_open(struct sw_op_order *order, const struct sw_ir *ir)
{
    *order = (struct sw_op_order){.cap = ir->n_ops * 2 + 16};
    order->ops = sw_alloc("plan", (size_t)order->cap * sizeof *order->ops);
    SW_TRY_ALLOC(order->ops, "the plan");
    return SW_OK;
}

void sw_op_order_close(struct sw_op_order *order)
{
    sw_free(order->ops);
    *order = (struct sw_op_order){0};
}

struct sw_ir_op sw_ir_beside(enum sw_op_kind kind, const struct sw_ir_op *of)
{
    struct sw_ir_op op = {.detail = &sw_ir_no_detail,
                          .kind = kind,
                          .phase = of->phase,
                          .scope = of->scope,
                          .chunk = of->chunk,
                          .n_out = 1,
                          .unless_skipped = of->unless_skipped,
                          .in_backward = of->in_backward};
    for (int k = 0; k < SW_MAX_OUTPUTS; k++) {
        op.out[k] = SW_NO_VALUE;
    }
    return op;
}

struct sw_ir_op sw_ir_move_beside(enum sw_move move, const struct sw_ir_op *of)
{
    struct sw_ir_op op = sw_ir_beside(SW_N_OP_KINDS, of);
    op.move = move;
    return op;
}

bool sw_op_order_add(struct sw_op_order *order, const struct sw_ir_op *op)
{
    if (order->n == order->cap) {
        const int32_t cap = order->cap * 2;
        void *mem = sw_realloc("plan", order->ops, (size_t)cap * sizeof *order->ops);
        if (!mem) {
            return false;
        }
        order->ops = mem;
        order->cap = cap;
    }
    order->ops[order->n++] = *op;
    return true;
}

void sw_op_order_install(struct sw_op_order *order, struct sw_ir *ir)
{
    sw_free(ir->ops);
    ir->ops = order->ops;
    ir->n_ops = order->n;
    ir->room.ops = order->cap;
    *order = (struct sw_op_order){0};
    for (sw_value v = 0; v < ir->n_values; v++) {
        ir->values[v].producer = -1; /* includes outputs of ops that the new order leaves out */
    }
    for (int32_t i = 0; i < ir->n_ops; i++) {
        for (int k = 0; k < ir->ops[i].n_out; k++) {
            if (ir->ops[i].out[k] >= 0) {
                ir->values[ir->ops[i].out[k]].producer = i;
            }
        }
    }
}
