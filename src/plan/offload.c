// SPDX-License-Identifier: Apache-2.0
// Placement of values in tiers (ZeRO-Offload, Ren et al. 2021; ZeRO-Infinity, Rajbhandari et al.
// 2021). Optimizer states, sums of gradients and, at stage 3, parameters may lie in host memory or
// on disk. So may values that one segment keeps for a later one.
//
// An offloaded value is loaded into device memory before the first op of a block, or of an update,
// that uses it. That op and later ones use the copy. A result is stored at once. Because of
// liveness, the device holds the parameters of one block, and the states of one tensor, at a time.
// An update with long states loads them in pieces.
//
// Small tensors on disk lie in packs (pack.c), which are loaded and stored as a whole, once for all
// ops that use their members. No operand changes its value, so training stays bit-identical.
#include "plan/offload.h"

bool sw_offload_reads_rows(const struct sw_offload *p, const struct sw_ir_op *op)
{
    const sw_value table =
        sw_ir_has(op, SW_TRAIT_LOOKUP) ? sw_offload_home(p, op->in[0]) : SW_NO_VALUE;
    const bool is_part =
        sw_ir_attrs(op) == SW_ATTRS_EMBEDDING && op->detail->attrs.embedding.whole > 0;
    return table >= 0 && !is_part && table == op->in[0] && !sw_offload_is_here(p, op, table);
}

static void become_rows(const struct sw_offload *p, struct sw_ir_op *op)
{
    struct sw_ir_op rows = sw_ir_move_beside(SW_MOVE_LOAD, op);
    rows.n_in = 2;
    rows.in[0] = sw_offload_current(p, op, op->in[0]);
    rows.in[1] = op->in[1];
    rows.out[0] = op->out[0];
    *op = rows;
}

/* The operand that op overwrites with `out`: a part of `home`, or all of it. */
static sw_value target_of(const struct sw_offload *p, const struct sw_ir_op *op, sw_value out,
                          sw_value home)
{
    for (int k = 0; sw_ir_is_part(p->ir, out) && k < op->n_in; k++) {
        if (sw_offload_home(p, op->in[k]) == home &&
            sw_offload_part_first(p, op->in[k]) == sw_offload_part_first(p, out)) {
            return op->in[k];
        }
    }
    return home;
}

/* Output `out` becomes the current version of what was loaded for the op. An update within forward
 * leaves its tile for the first reader. */
static void commit(struct sw_offload *p, const struct sw_ir_op *op, sw_value out, sw_value home)
{
    const sw_value target = target_of(p, op, out, home);
    sw_offload_commit(p, out, p->here[target]);
    if (target != home && op->chunk.in_forward && p->ir->values[home].role == SW_ROLE_PARAM) {
        p->here[target] = out;
        p->loaded_in[target] = sw_ir_block_segment(p->ir, op);
    }
}

/* Stores output k, or its pack if it is the last output in it. written: [by output] the offloaded
 * values */
static bool store_written(struct sw_offload *p, const struct sw_ir_op *op, int k,
                          const sw_value *written, int64_t first)
{
    if (!p->ir->values[written[k]].is_pack) {
        return sw_offload_store(p, op, written[k], first, op->out[k]);
    }
    for (int later = k + 1; later < op->n_out; later++) {
        if (written[later] == written[k]) {
            return true;
        }
    }
    return sw_offload_store_pack(p, op, written[k]);
}

/* Adds an op to the new order: loads before it, stores after it. Updates on the host or in pieces
 * have functions of their own. */
static bool rewrite(struct sw_offload *p, struct sw_ir_op *op)
{
    if (sw_ir_is_transfer(op)) {
        return sw_op_order_add(&p->order, op); /* it keeps a gradient */
    }
    if (sw_offload_runs_on_host(p, op)) {
        return sw_offload_update_on_host(p, op);
    }
    if (sw_offload_goes_in_pieces(p, op)) {
        return sw_offload_update_in_pieces(p, op);
    }
    const bool rows = sw_offload_reads_rows(p, op);
    if (rows) {
        become_rows(p, op);
    }
    const struct sw_ir_op before = *op;
    for (int k = rows; k < op->n_in; k++) {
        if (!sw_offload_fetch(p, op, k)) {
            return false;
        }
    }
    sw_value written[SW_MAX_OUTPUTS];
    int64_t at[SW_MAX_OUTPUTS];
    for (int k = 0; k < op->n_out; k++) {
        const sw_value out = op->out[k];
        written[k] = sw_offload_home(p, out);
        at[k] = written[k] >= 0 ? sw_offload_part_first(p, out) : 0;
        if (written[k] >= 0) {
            commit(p, &before, out, written[k]);
        }
    }
    if (!sw_op_order_add(&p->order, op)) {
        return false;
    }
    for (int k = 0; k < op->n_out; k++) {
        const sw_value out = op->out[k], offloaded = out < 0 ? SW_NO_VALUE : p->offloaded[out];
        if ((written[k] >= 0 && !store_written(p, op, k, written, at[k])) ||
            (offloaded >= 0 &&
             !sw_offload_store_as(p, op, sw_ir_root(p->ir, offloaded), 0, out, offloaded))) {
            return false;
        }
    }
    return true;
}

/* n: number of values, including packs */
static bool open_tables(struct sw_offload *p, size_t n)
{
    p->here = sw_alloc("plan", n * sizeof *p->here);
    p->loaded_in = sw_alloc("plan", n * sizeof *p->loaded_in);
    p->stored = sw_alloc("plan", n * sizeof *p->stored);
    p->offloaded = sw_alloc("plan", n * sizeof *p->offloaded);
    p->home = sw_alloc("plan", n * sizeof *p->home);
    p->when = sw_alloc("plan", n * sizeof *p->when);
    p->n_before = sw_alloc_zero("plan", (size_t)p->n_ops + 1, sizeof *p->n_before);
    p->update_of = sw_alloc("plan", n * sizeof *p->update_of);
    p->read_in = sw_alloc("plan", n * sizeof *p->read_in);
    const bool good = sw_op_order_open(&p->order, p->ir) >= 0 && p->here && p->loaded_in &&
                      p->stored && p->offloaded && p->home && p->when && p->n_before &&
                      p->update_of && p->read_in;
    for (size_t v = 0; good && v < n; v++) {
        p->here[v] = p->stored[v] = p->offloaded[v] = p->home[v] = SW_NO_VALUE;
        p->update_of[v] = -1;
        p->read_in[v] = SW_SEGMENT_FORWARD;
    }
    return good;
}

static void close_tables(struct sw_offload *p)
{
    sw_op_order_close(&p->order);
    sw_free(p->here);
    sw_free(p->loaded_in);
    sw_free(p->stored);
    sw_free(p->offloaded);
    sw_free(p->update_of);
    sw_free(p->read_in);
    sw_free(p->home);
    sw_free(p->when);
    sw_free(p->n_before);
    sw_free(p->packs.n_members);
    sw_free(p->packs.touches_of);
    sw_free(p->packs.touch_ops);
}

/* Fills `n_before` and `update_of`. */
static void note_ops(struct sw_offload *p)
{
    for (int32_t i = 0; i < p->n_ops; i++) {
        const struct sw_ir_op *op = &p->ir->ops[i];
        const bool is_plain = op->phase != SW_PHASE_UPDATE && !sw_ir_has(op, SW_TRAIT_SUM);
        p->n_before[i + 1] = p->n_before[i] + is_plain;
        if (sw_ir_has(op, SW_TRAIT_STATES) && op->detail->attrs.update.rule.n_states > 0) {
            p->update_of[sw_ir_root(p->ir, op->in[0])] = i;
        }
    }
}

static bool rewrite_all(struct sw_offload *p)
{
    for (int32_t i = 0; i < p->n_ops; i++) {
        struct sw_ir_op op = p->ir->ops[i];
        p->i_op = i;
        if (!rewrite(p, &op)) {
            return false;
        }
    }
    return true;
}

sw_status sw_pass_offload(struct sw_ir *ir, const struct sw_ir *first,
                          const struct sw_plan_options *options, size_t reserved)
{
    if (options->policy.states_tier == SW_TIER_DEVICE &&
        options->policy.params_tier == SW_TIER_DEVICE &&
        options->policy.grads_tier == SW_TIER_DEVICE &&
        options->policy.activations_tier == SW_TIER_DEVICE) {
        return SW_OK;
    }
    struct sw_offload p = {.ir = ir,
                           .first = first,
                           .options = options,
                           .reserved = reserved,
                           .places = sw_places_of(options),
                           .left.grads_tier = options->policy.grads_tier,
                           .n_ops = ir->n_ops,
                           .n_values = ir->n_values};
    bool good = open_tables(&p, (size_t)ir->n_values * 2); /* a pack has at least two members */
    if (good) {
        note_ops(&p);
        good = sw_offload_choose_tiers(&p) && sw_offload_list_packs(&p) && rewrite_all(&p);
    }
    if (good) {
        sw_op_order_install(&p.order, ir);
    }
    close_tables(&p);
    return good ? sw_ir_status(ir) : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}
