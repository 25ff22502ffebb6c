// SPDX-License-Identifier: Apache-2.0
// Updates on the host (ZeRO-Offload, Ren et al. 2021): states in host memory are updated there, in
// place. Gradients are stored for it, and the parameter is loaded afterwards.
#include "plan/offload.h"
#include "plan/technique.h"

/* The offloaded value that operand k lies in; SW_NO_VALUE = it is on the device. */
static sw_value home_of_operand(const struct sw_offload *p, const struct sw_ir_op *op, int k)
{
    const sw_value what = sw_offload_root(p, op, k);
    return what < 0 ? SW_NO_VALUE
                    : sw_ir_root(p->ir, p->offloaded[what] >= 0 ? p->offloaded[what] : what);
}

/* True if operand k lies in host memory as a whole, and in no pack. */
static bool is_in_host(const struct sw_offload *p, const struct sw_ir_op *op, int k)
{
    const sw_value home = home_of_operand(p, op, k);
    const struct sw_ir_value *info = home >= 0 ? &p->ir->values[home] : NULL;
    return info && info->tier == SW_TIER_HOST && !info->is_pack && !info->two_slots;
}

bool sw_offload_runs_on_host(const struct sw_offload *p, const struct sw_ir_op *op)
{
    if (!p->options->policy.host_updates || !p->options->host.query ||
        !sw_ir_has(op, SW_TRAIT_ELEMENTS) || !sw_ir_has(op, SW_TRAIT_STATES) ||
        op->detail->attrs.update.rule.n_states == 0) {
        return false;
    }
    for (int k = 0; k < op->n_in; k++) {
        const bool state = k >= 1 && k <= op->detail->attrs.update.rule.n_states;
        const bool elsewhere = sw_offload_root(p, op, k) >= 0;
        if (sw_ir_is_part(p->ir, op->in[k]) || ((elsewhere || state) && !is_in_host(p, op, k)) ||
            p->ir->values[sw_ir_root(p->ir, op->in[k])].two_slots) {
            return false;
        }
    }
    return true;
}

/* A new version of a value in host memory. */
static sw_value version_of(struct sw_offload *p, sw_value home)
{
    const struct sw_ir_value info = p->ir->values[home];
    const sw_value v = sw_ir_new_like(p->ir, info.role, info.dtype, info.form);
    if (v >= 0) {
        p->ir->values[v].base = home;
        p->ir->values[v].param = info.param;
    }
    return v;
}

/* Allocates host memory for v; SW_NO_VALUE when out of memory. */
static sw_value room_in_host(struct sw_offload *p, sw_value v)
{
    const struct sw_ir_value info = p->ir->values[v];
    const sw_value home = sw_ir_new_value(p->ir, SW_ROLE_TRANSIENT, info.dtype, info.form->shape);
    if (home >= 0) {
        p->ir->values[home].tier = SW_TIER_HOST;
        p->ir->values[home].host_computes = true;
        p->ir->values[home].param = info.param >= 0 ? info.param : sw_ir_root(p->ir, v);
    }
    return home;
}

/* Operand k in host memory: the value itself, or a copy of the one on the device. */
static sw_value operand_in_host(struct sw_offload *p, const struct sw_ir_op *op, int k)
{
    const sw_value what = sw_offload_root(p, op, k);
    if (what >= 0) {
        const sw_value home = home_of_operand(p, op, k);
        p->ir->values[home].host_computes = true;
        return p->offloaded[what] >= 0 ? p->offloaded[what]
               : p->stored[home] >= 0  ? p->stored[home]
                                       : home;
    }
    const sw_value home = room_in_host(p, op->in[k]);
    if (home < 0 || sw_offload_overwrites(p, op, k, sw_ir_root(p->ir, op->in[k]))) {
        return home;
    }
    const sw_value version = version_of(p, home);
    return version >= 0 && sw_offload_store_as(p, op, home, 0, op->in[k], version) ? version
                                                                                   : SW_NO_VALUE;
}

bool sw_offload_update_on_host(struct sw_offload *p, struct sw_ir_op *op)
{
    struct sw_ir_op host = *op;
    const sw_value param = sw_offload_root(p, op, 0), out = op->out[0];
    host.on_host = true;
    for (int k = 0; k < op->n_in; k++) {
        host.in[k] = operand_in_host(p, op, k);
        if (host.in[k] < 0) {
            return false;
        }
    }
    if (param >= 0) { /* the loaded copy is out of date */
        p->here[sw_ir_root(p->ir, param)] = SW_NO_VALUE;
        return sw_op_order_add(&p->order, &host);
    }
    host.out[0] = version_of(p, sw_ir_root(p->ir, host.in[0]));
    struct sw_ir_op back = sw_ir_move_beside(SW_MOVE_LOAD, op);
    back.n_in = 1;
    back.in[0] = host.out[0];
    back.out[0] = out;
    return host.out[0] >= 0 && sw_op_order_add(&p->order, &host) &&
           sw_op_order_add(&p->order, &back);
}

const struct sw_technique sw_technique_host_update = {
    .keys = "spillway.update",
};
