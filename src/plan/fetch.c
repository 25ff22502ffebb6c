// SPDX-License-Identifier: Apache-2.0
// Brings the operands of an op to the device. It loads them, makes room for those that the op
// overwrites, or makes an fp16 copy from its master.
#include "plan/offload.h"

/* True if an fp16 copy is made from its master instead of being loaded. It is needed just before
 * its update, which loads the master anyway; that saves 2 bytes per element. This requires that
 * every backward of it ends in an update. Small ones are excluded: their masters come with other
 * states. */
static bool comes_from_master(const struct sw_offload *p, const struct sw_ir_op *op, sw_value what)
{
    const struct sw_ir_value *info = &p->ir->values[what];
    const int32_t update = p->update_of[what];
    const sw_value master =
        update >= 0 ? sw_offload_home(p, p->ir->ops[update].in[1]) : SW_NO_VALUE;
    return info->dtype == SW_F16 && info->two_slots && master >= 0 &&
           sw_has_one_round(p->options) && !p->ir->values[master].is_pack &&
           p->ir->ops[update].in_backward && sw_op_segment(op) == SW_SEGMENT_BACKWARD &&
           sw_ir_block_segment(p->ir, op) == sw_ir_block_segment(p->ir, &p->ir->ops[update]);
}

/* Loads the master of an fp16 copy, and casts it into the memory of the copy. */
static bool load_from_master(struct sw_offload *p, const struct sw_ir_op *reader, sw_value what)
{
    const sw_value master = sw_offload_home(p, p->ir->ops[p->update_of[what]].in[1]);
    if (!sw_offload_load(p, reader, master) || !sw_offload_make_room(p, reader, what)) {
        return false;
    }
    struct sw_ir_op op = sw_ir_beside(SW_OP_CAST, reader);
    op.n_in = 1;
    op.in[0] = p->here[master];
    op.out[0] = p->here[what];
    /* a rank without a micro-batch makes its copy for the other ranks, too */
    op.in_backward = true;
    return sw_op_order_add(&p->order, &op);
}

/* The first term of a sum over micro-batches overwrites the old contents. */
static bool begins_sum(const struct sw_offload *p, const struct sw_ir_op *op, int k)
{
    const bool adds_more = op->move == SW_MOVE_NONE && sw_ir_attrs(op) == SW_ATTRS_STATS &&
                           op->detail->attrs.stats.continues;
    return sw_ir_has(op, SW_TRAIT_SUM) && k == 0 && !adds_more && !op->exchange.continues &&
           (op->whole_step || (op->micro == 0 && sw_has_one_round(p->options)));
}

bool sw_offload_overwrites(const struct sw_offload *p, const struct sw_ir_op *op, int k,
                           sw_value what)
{
    if (begins_sum(p, op, k)) {
        return true;
    }
    /* Operand 0 of an update is the parameter. An fp16 one is made from the master, and not read;
     * but the step may have no update that makes it before forward reads it.
     * A pack is overwritten only if all of its members are. */
    return sw_ir_has(op, SW_TRAIT_ELEMENTS) && k == 0 && !op->chunk.in_forward &&
           p->ir->values[op->in[k]].dtype == SW_F16 &&
           (!p->ir->values[what].is_pack || sw_offload_writes_pack(p, op, what));
}

/* True if an update within forward loads the parameter that it updates. Forward reads it, too, in
 * every micro-step. */
static bool serves_forward(const struct sw_offload *p, const struct sw_ir_op *op, sw_value what)
{
    return op->chunk.in_forward && p->ir->values[what].role == SW_ROLE_PARAM;
}

static void make_forward(struct sw_ir_op *op)
{
    op->chunk.in_forward = op->unless_skipped = false;
    op->phase = SW_PHASE_FORWARD;
}

/* Loads tile v for an op. Exception: the first reader in forward has what the update has left. */
static bool fetch_tile(struct sw_offload *p, struct sw_ir_op *op, int k, sw_value what)
{
    const sw_value v = op->in[k];
    const bool is_left = p->here[v] >= 0 && p->loaded_in[v] == sw_ir_block_segment(p->ir, op);
    p->loaded_in[v] = -1;
    if (!is_left) {
        p->here[v] = sw_offload_load_part(p, op, what, sw_offload_part_first(p, v),
                                          p->ir->values[v].form->shape);
        if (p->here[v] < 0) {
            return false;
        }
        if (serves_forward(p, op, what)) {
            make_forward(&p->order.ops[p->order.n - 1]);
        }
        if (p->ir->values[what].role == SW_ROLE_PARAM) {
            p->ir->values[p->here[v]].param = v;
        }
    }
    op->in[k] = p->here[v];
    return true;
}

/* Loads `what` for operand k of an op, makes room for it, or makes it from its master. */
static bool bring(struct sw_offload *p, const struct sw_ir_op *op, int k, sw_value what)
{
    if (sw_offload_overwrites(p, op, k, what)) {
        return sw_offload_make_room(p, op, what);
    }
    if (comes_from_master(p, op, what)) {
        return load_from_master(p, op, what);
    }
    struct sw_ir_op reader = *op;
    if (serves_forward(p, op, what)) {
        make_forward(&reader);
    }
    return sw_offload_load(p, &reader, what);
}

/* A loaded weight serves the next place, too. Packs are small, and updates may change weights. */
static void extend(struct sw_offload *p, const struct sw_ir_op *op, sw_value what)
{
    const int64_t place = sw_ir_block_segment(p->ir, op);
    const struct sw_ir_value *info = &p->ir->values[what];
    if (info->role != SW_ROLE_PARAM || info->is_pack || op->phase == SW_PHASE_UPDATE) {
        return;
    }
    sw_places_enter(&p->places, place);
    if (p->here[what] >= 0 && sw_places_reach(&p->places, p->loaded_in[what])) {
        p->loaded_in[what] = place;
    }
}

bool sw_offload_fetch(struct sw_offload *p, struct sw_ir_op *op, int k)
{
    const sw_value what = sw_offload_root(p, op, k), v = op->in[k];
    if (what < 0) {
        return true;
    }
    if (sw_ir_is_part(p->ir, v)) {
        return fetch_tile(p, op, k, what);
    }
    extend(p, op, what);
    if (!sw_offload_is_here(p, op, what) && !bring(p, op, k, what)) {
        return false;
    }
    op->in[k] =
        p->ir->values[what].is_pack ? sw_offload_view_member(p, op, what, v) : p->here[what];
    return op->in[k] >= 0;
}

/* Output v becomes the current version of the loaded copy, or of a member of a loaded pack. */
void sw_offload_commit(struct sw_offload *p, sw_value v, sw_value here)
{
    struct sw_ir_value *info = &p->ir->values[v];
    const sw_value home = sw_offload_home(p, v);
    if (!sw_ir_is_part(p->ir, v)) {
        p->home[v] = home;
        p->here[home] = v;
    }
    info->base = sw_ir_root(p->ir, here);
    info->base_offset = p->ir->values[home].is_pack ? info->base_offset : 0;
    info->role = SW_ROLE_TRANSIENT;
}
