// SPDX-License-Identifier: Apache-2.0
// Loads and stores of offloaded values, and views of their copies on the device.
#include "plan/offload.h"

sw_value sw_offload_home(const struct sw_offload *p, sw_value v)
{
    const sw_value root = v < 0 || v >= p->n_values ? SW_NO_VALUE : sw_ir_root(p->ir, v);
    return root >= 0 && p->ir->values[root].tier != SW_TIER_DEVICE ? root : SW_NO_VALUE;
}

bool sw_offload_is_here(const struct sw_offload *p, const struct sw_ir_op *op, sw_value what)
{
    const struct sw_ir_value *info = &p->ir->values[what];
    const bool is_sum =
        sw_state_is_sum(info->state) && info->param >= 0 && sw_ir_is_part(p->ir, info->param);
    return p->here[what] >= 0 && p->loaded_in[what] == sw_ir_block_segment(p->ir, op) &&
           (!is_sum || p->when[what] == p->n_before[p->i_op]);
}

sw_value sw_offload_root(const struct sw_offload *p, const struct sw_ir_op *op, int k)
{
    const sw_value v = op->in[k];
    if (v >= 0 && v < p->n_values && p->offloaded[v] >= 0 &&
        (sw_op_segment(op) > sw_op_segment(&p->ir->ops[p->ir->values[v].producer]) ||
         sw_offload_reads_late(p, p->i_op, v))) {
        return v;
    }
    const sw_value home = v < 0 || v >= p->n_values ? SW_NO_VALUE : p->home[v];
    return home >= 0 ? home : sw_offload_home(p, v);
}

sw_value sw_offload_current(const struct sw_offload *p, const struct sw_ir_op *reader,
                            sw_value what)
{
    const struct sw_ir_value *info = &p->ir->values[what];
    const bool renewed = info->two_slots == SW_SLOTS_LATE && !sw_state_is_sum(info->state) &&
                         p->stored[what] >= 0 && !reader->chunk.in_forward;
    return p->offloaded[what] >= 0 ? p->offloaded[what] : renewed ? p->stored[what] : what;
}

sw_value sw_offload_load_part(struct sw_offload *p, const struct sw_ir_op *reader, sw_value what,
                              int64_t first, struct sw_shape shape)
{
    const struct sw_ir_value info = p->ir->values[what];
    const sw_value here = sw_ir_new_value(p->ir, SW_ROLE_TRANSIENT, info.dtype, shape);
    if (here < 0) {
        return SW_NO_VALUE;
    }
    p->ir->values[here].needs_grad = info.needs_grad;
    p->ir->values[here].param = info.role == SW_ROLE_PARAM && !info.is_pack ? what : info.param;
    struct sw_ir_op op = sw_ir_move_beside(SW_MOVE_LOAD, reader);
    op.first = first;
    op.n_in = 1;
    op.in[0] = sw_offload_current(p, reader, what);
    op.out[0] = here;
    return sw_op_order_add(&p->order, &op) ? here : SW_NO_VALUE;
}

bool sw_offload_load(struct sw_offload *p, const struct sw_ir_op *reader, sw_value what)
{
    p->here[what] = sw_offload_load_part(p, reader, what, 0, p->ir->values[what].form->shape);
    p->loaded_in[what] = sw_ir_block_segment(p->ir, reader);
    p->when[what] = p->n_before[p->i_op];
    return p->here[what] >= 0;
}

bool sw_offload_make_room(struct sw_offload *p, const struct sw_ir_op *writer, sw_value what)
{
    const struct sw_ir_value info = p->ir->values[what];
    p->here[what] = sw_ir_new_value(p->ir, SW_ROLE_TRANSIENT, info.dtype, info.form->shape);
    p->loaded_in[what] = sw_ir_block_segment(p->ir, writer);
    p->when[what] = p->n_before[p->i_op];
    if (p->here[what] >= 0 && !info.is_pack) {
        p->ir->values[p->here[what]].param = what;
    }
    return p->here[what] >= 0;
}

bool sw_offload_store_as(struct sw_offload *p, const struct sw_ir_op *writer, sw_value home,
                         int64_t first, sw_value here, sw_value version)
{
    struct sw_ir_op op = sw_ir_move_beside(SW_MOVE_STORE, writer);
    op.first = first;
    op.n_in = 2;
    op.in[0] = home;
    op.in[1] = here;
    op.out[0] = version;
    return sw_op_order_add(&p->order, &op);
}

bool sw_offload_store(struct sw_offload *p, const struct sw_ir_op *writer, sw_value state,
                      int64_t first, sw_value here)
{
    const struct sw_ir_value info = p->ir->values[state];
    if (p->stored[state] < 0) {
        const sw_value version = sw_ir_new_value(p->ir, info.role, info.dtype, info.form->shape);
        if (version < 0) {
            return false;
        }
        p->ir->values[version].base = state;
        p->ir->values[version].param = info.param;
        p->stored[state] = version;
    }
    return sw_offload_store_as(p, writer, state, first, here, p->stored[state]);
}

int64_t sw_offload_part_first(const struct sw_offload *p, sw_value v)
{
    return sw_ir_is_part(p->ir, v) ? p->ir->values[v].base_offset : 0;
}

sw_value sw_offload_view(struct sw_offload *p, const struct sw_ir_op *reader, sw_value version,
                         int64_t first, enum sw_dtype dtype, struct sw_shape shape)
{
    struct sw_ir *ir = p->ir;
    const sw_value root = sw_ir_root(ir, version);
    const sw_value v = sw_ir_new_value(ir, SW_ROLE_TRANSIENT, dtype, shape);
    if (v < 0) {
        return SW_NO_VALUE;
    }
    ir->values[v].base = root;
    ir->values[v].base_offset = first;
    ir->values[v].param = ir->values[root].param;
    struct sw_ir_op op = sw_ir_beside(SW_OP_VIEW, reader);
    struct sw_op math = sw_ir_math(p->ir, &op);
    math.attrs.view.kind = SW_VIEW_SLICE;
    math.attrs.view.start = first;
    sw_ir_take_math(ir, &op, &math);
    op.n_in = 1;
    op.in[0] = version;
    op.out[0] = v;
    return sw_op_order_add(&p->order, &op) ? v : SW_NO_VALUE;
}

sw_value sw_offload_version(struct sw_offload *p, sw_value of)
{
    const struct sw_ir_value info = p->ir->values[of];
    const sw_value v = sw_ir_new_like(p->ir, info.role, info.dtype, info.form);
    if (v >= 0) {
        struct sw_ir_value *copy = &p->ir->values[v];
        copy->base = info.base >= 0 ? info.base : of;
        copy->base_offset = info.base_offset;
        copy->param = info.param;
    }
    return v;
}
