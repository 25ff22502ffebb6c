// SPDX-License-Identifier: Apache-2.0
// Describes ops of the list: to people (their name and where they are), to kernels, and by cost.
#include "plan/ir.h"

#include <string.h>

enum sw_attrs_kind sw_ir_attrs(const struct sw_ir_op *op)
{
    return op->move == SW_MOVE_NONE ? sw_op_info(op->kind)->attrs : SW_ATTRS_NONE;
}

const char *sw_ir_op_name(const struct sw_ir_op *op)
{
    const struct sw_op math = {.kind = op->kind, .user = op->detail->user};
    return op->move == SW_MOVE_NONE ? sw_op_name(&math) : sw_move_info(op->move)->name;
}

/* The op that an op outside of all scopes works on. NULL: *out is the name of its place, or NULL if
 * it has none. */
static const struct sw_ir_op *works_on(const struct sw_ir *ir, const struct sw_ir_op *op,
                                       const char **out)
{
    const char *scope = ir->scopes[op->scope].name;
    *out = *scope ? scope : NULL;
    if (op->n_in == 0 || *scope) {
        return NULL;
    }
    const bool sums = sw_ir_has(op, SW_TRAIT_SUM);
    const sw_value v = op->in[sums]; /* a sum works on the gradient, not on the accumulator */
    const struct sw_ir_value *value = &ir->values[v];
    const sw_value param = value->role == SW_ROLE_PARAM ? v : value->param;
    if (value->producer >= 0) {
        return &ir->ops[value->producer];
    }
    *out = param >= 0 ? ir->values[param].name : NULL;
    return NULL;
}

const char *sw_ir_where(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    static const char *const phases[] = {"forward", "backward", "update"};
    const char *name = NULL;
    if (op->move == SW_MOVE_SEND || op->move == SW_MOVE_RECV) {
        return phases[op->phase]; /* the same on both sides */
    }
    if (ir->where) {
        name = ir->where[op - ir->ops];
    } else {
        for (const struct sw_ir_op *at = op; at;) {
            at = works_on(ir, at, &name);
        }
    }
    return name ? name : phases[op->phase];
}

bool sw_ir_note_where(struct sw_ir *ir)
{
    const char **where = sw_alloc("plan", ((size_t)ir->n_ops + 1) * sizeof *where);
    for (int32_t i = 0; where && i < ir->n_ops; i++) {
        const struct sw_ir_op *on = works_on(ir, &ir->ops[i], &where[i]);
        SW_ASSERT(on < &ir->ops[i]);
        where[i] = on ? where[on - ir->ops] : where[i];
    }
    sw_free(ir->where);
    ir->where = where;
    return where != NULL;
}

void sw_ir_forget_where(struct sw_ir *ir)
{
    sw_free(ir->where);
    ir->where = NULL;
}

/* Number of elements that another rank counts, among n of a part from `first` on. If several ranks
 * hold all of the part, both norms count it as often, and their ratio stays. */
static int64_t shared_elems(const struct sw_ir *ir, sw_value param, int64_t first, int64_t n)
{
    const int me = ir->params.is_cut ? ir->groups[ir->params.group].me : 0;
    const int64_t counted = sw_ir_counted(ir, param, me);
    return counted == 0 ? 0 : n - sw_min_i64(sw_max_i64(counted - first, 0), n);
}

struct sw_update_op_attrs sw_ir_update_attrs(const struct sw_ir *ir,
                                             const struct sw_ir_detail *detail)
{
    const struct sw_ir_update *update = &detail->update;
    const struct sw_ir_value *param = &ir->values[update->param];
    const struct sw_ir_value *target = &ir->values[update->target];
    const struct sw_layout *layout = &target->form->layout;
    const struct sw_shape *whole = &layout->whole;
    struct sw_update_op_attrs out = detail->attrs.update;
    const enum sw_update_reach reach = sw_update_facts(out.rule.kind)->reach;
    const bool is_placed = reach == SW_REACH_MATRIX || reach == SW_REACH_LINES;
    if (reach != SW_REACH_ELEMENT || update->moments == SW_MOMENTS_8BIT) {
        out.n_elems = sw_layout_held(layout);
    }
    const int64_t tile = param->param_facts.is_tiled
                             ? sw_layout_tile_first(&param->form->layout, target->base_offset)
                             : 0;
    const int64_t origin = tile + sw_layout_first(layout);
    if (is_placed || update->moments == SW_MOMENTS_BF16) {
        out.origin = origin;
    }
    if (reach == SW_REACH_NORMS) {
        out.n_shared = shared_elems(ir, update->param, origin, out.n_elems);
    }
    if (reach == SW_REACH_LINES) {
        out.slice = layout->is_sliced ? layout->data.rank : 0;
        out.whole = sw_shape_elems(whole);
    }
    if (reach == SW_REACH_LINES && whole->rank >= 2) {
        out.rows = whole->dims[whole->rank - 2];
        out.columns = sw_shape_last(whole);
        out.matrices = out.whole / (out.rows * out.columns);
    }
    return out;
}

struct sw_op sw_ir_math(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    struct sw_op math = {.kind = op->kind,
                         .phase = op->phase,
                         .n_in = op->n_in,
                         .n_out = op->n_out,
                         .attrs = op->detail->attrs,
                         .user = op->detail->user,
                         .scope = op->scope,
                         .path = op->detail->path};
    if (sw_ir_attrs(op) == SW_ATTRS_UPDATE) {
        math.attrs.update = sw_ir_update_attrs(ir, op->detail);
        math.attrs.update.first = op->first;
    }
    memcpy(math.in, op->in, sizeof math.in);
    memcpy(math.out, op->out, sizeof math.out);
    return math;
}

/* Describes v; an absent one has rank -1. shift: see sw_storage_shift */
static void describe(const struct sw_ir *ir, sw_value v, struct sw_view *out, uint8_t *shift)
{
    if (v < 0) {
        out->shape.rank = -1;
        return;
    }
    const struct sw_ir_value *value = &ir->values[v];
    out->dtype = value->dtype;
    out->shape = value->form->shape;
    memcpy(out->strides, value->form->strides, sizeof out->strides);
    *shift = sw_storage_shift(value->base_offset, value->dtype);
}

/* In a loop: reduces an operand that is longer than a piece to the elements of one piece. */
static void take_piece(struct sw_view *view, const struct sw_view *piece)
{
    const int64_t n = sw_shape_elems(&piece->shape);
    if (view->shape.rank >= 0 && sw_shape_elems(&view->shape) > n) {
        view->shape = SW_SHAPE(n);
        view->strides[0] = 1;
    }
}

void sw_ir_describe(const struct sw_ir *ir, const struct sw_ir_op *op, struct sw_op *math,
                    struct sw_op_desc *out)
{
    SW_ASSERT(op->move == SW_MOVE_NONE);
    memset(out, 0, sizeof *out);
    *math = sw_ir_math(ir, op);
    out->op = math;
    out->is_predicated = op->unless_skipped;
    for (int k = 0; k < op->n_in; k++) {
        describe(ir, op->in[k], &out->in[k], &out->in_shift[k]);
    }
    for (int k = 0; k < op->n_out; k++) {
        describe(ir, op->out[k], &out->out[k], &out->out_shift[k]);
    }
    for (int k = 0; k < op->n_in + op->n_out && op->loop > 0; k++) {
        take_piece(k < op->n_in ? &out->in[k] : &out->out[k - op->n_in], &out->in[1]);
    }
}

size_t sw_ir_turn_bytes(const struct sw_ir_value *value)
{
    return sw_round_up(sw_ir_storage_bytes(value), SW_PLAN_DISK_ALIGN);
}

/* A reduction does one addition per input element. */
int64_t sw_ir_flops(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    struct sw_op math;
    struct sw_op_desc desc;
    if (op->move != SW_MOVE_NONE) {
        return op->move == SW_MOVE_REDUCE ? ir->values[op->in[1]].form->elems : 0;
    }
    sw_ir_describe(ir, op, &math, &desc);
    return sw_op_flops(&desc);
}

double sw_ir_op_bytes(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    struct sw_op math;
    struct sw_op_desc desc;
    sw_ir_describe(ir, op, &math, &desc);
    return sw_op_bytes(&desc);
}
