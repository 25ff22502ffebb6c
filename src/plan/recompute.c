// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing (Chen et al. 2016): of every group of `every` blocks only what later blocks
// read is kept; what its backward needs besides is computed again, by clones of its forward ops placed
// before the first backward op that needs one. Clones keep the path of their original, so dropout
// draws the same numbers and the bits are those of the plan that keeps everything.
#include <string.h>

#include "plan/private.h"

struct pass {
    struct sw_ir *ir;
    int32_t n_forward;  /* ops before the first backward op */
    int32_t *group_of;  /* [n_ops] group of blocks an op of the forward belongs to, -1 = none */
    sw_value *clone_of; /* [n_values] the recomputed value, SW_NO_VALUE = not cloned */
    bool *wanted;       /* [n_ops] forward ops of the present group that are to be cloned */
    struct sw_op_order order;
    int32_t n_values; /* before cloning */
};

/* The number of the block op's scope lies in, -1 outside of blocks. Blocks count in order of use. */
static int32_t block_of(const struct sw_ir *ir, const int32_t *block_number, int32_t scope)
{
    for (; scope >= 0; scope = ir->scopes[scope].parent) {
        if (block_number[scope] >= 0) {
            return block_number[scope];
        }
    }
    return -1;
}

static bool group_ops(struct pass *p, int64_t every)
{
    const struct sw_ir *ir = p->ir;
    int32_t *number = sw_alloc("plan", (size_t)ir->n_scopes * sizeof *number);
    if (!number) {
        return false;
    }
    int32_t n_blocks = 0;
    for (int32_t i = 0; i < ir->n_scopes; i++) {
        number[i] = ir->scopes[i].is_block ? n_blocks++ : -1;
    }
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const int32_t block = block_of(ir, number, ir->ops[i].scope);
        p->group_of[i] = block < 0 || i >= p->n_forward ? -1 : (int32_t)(block / every);
    }
    sw_free(number);
    return true;
}

/* Is v made by an op of this group, and read outside of the group's forward before backward begins?
 * Then it is kept: it is the input of what follows. */
static bool leaves_group(const struct pass *p, sw_value v, int32_t group)
{
    const struct sw_ir *ir = p->ir;
    if (ir->values[v].is_output) {
        return true;
    }
    for (int32_t i = 0; i < p->n_forward; i++) {
        if (p->group_of[i] == group) {
            continue;
        }
        for (int k = 0; k < ir->ops[i].n_in; k++) {
            if (ir->ops[i].in[k] == v) {
                return true;
            }
        }
    }
    return false;
}

/* Marks the ops of the group that must run again so that v exists in backward. */
static void want(struct pass *p, const bool *kept, sw_value v, int32_t group)
{
    const int32_t producer = p->ir->values[v].producer;
    if (producer < 0 || producer >= p->n_forward || p->group_of[producer] != group || kept[v] ||
        p->wanted[producer]) {
        return;
    }
    p->wanted[producer] = true;
    const struct sw_ir_op *op = &p->ir->ops[producer];
    for (int k = 0; k < op->n_in; k++) {
        want(p, kept, op->in[k], group);
    }
}

/* A new value with the same type as v; views keep pointing into the clone of their base. */
static sw_value clone_value(struct pass *p, sw_value v)
{
    struct sw_ir *ir = p->ir;
    const sw_value copy = sw_ir_copy_value(ir, v);
    if (copy < 0) {
        return SW_NO_VALUE;
    }
    struct sw_ir_value *info = &ir->values[copy];
    info->is_output = false;
    if (info->base >= 0 && info->base < p->n_values && p->clone_of[info->base] >= 0) {
        info->base = p->clone_of[info->base];
    }
    return copy;
}

static sw_value again(const struct pass *p, sw_value v)
{
    return v >= 0 && v < p->n_values && p->clone_of[v] >= 0 ? p->clone_of[v] : v;
}

static bool emit_clones(struct pass *p, const bool *kept)
{
    for (int32_t i = 0; i < p->n_forward; i++) {
        if (!p->wanted[i]) {
            continue;
        }
        struct sw_ir_op op = p->ir->ops[i];
        op.is_clone = true;
        op.phase = SW_PHASE_BACKWARD;
        for (int k = 0; k < op.n_in; k++) {
            op.in[k] = again(p, op.in[k]);
        }
        for (int k = 0; k < op.n_out; k++) {
            if (op.out[k] < 0) {
                continue;
            }
            const sw_value v = op.out[k];
            const sw_value copy = clone_value(p, v);
            if (copy < 0) {
                return false;
            }
            op.out[k] = copy;
            if (!kept[v]) {
                p->clone_of[v] = copy;
            }
        }
        if (!sw_op_order_add(&p->order, &op)) {
            return false;
        }
        p->wanted[i] = false;
    }
    return true;
}

/* Does backward op `op` read something of `group` that was not kept? */
static bool reads_group(const struct pass *p, const struct sw_ir_op *op, const bool *kept,
                        int32_t group)
{
    for (int k = 0; k < op->n_in; k++) {
        const sw_value v = op->in[k];
        const int32_t producer = p->ir->values[v].producer;
        if (v < p->n_values && producer >= 0 && producer < p->n_forward &&
            p->group_of[producer] == group && !kept[v]) {
            return true;
        }
    }
    return false;
}

static bool rewrite(struct pass *p, const bool *kept, int32_t n_groups)
{
    struct sw_ir *ir = p->ir;
    bool *done = sw_alloc_zero("plan", (size_t)n_groups, sizeof *done);
    bool good = done != NULL;
    for (int32_t i = 0; good && i < p->n_forward; i++) {
        good = sw_op_order_add(&p->order, &ir->ops[i]);
    }
    const int32_t n_ops = ir->n_ops;
    for (int32_t i = p->n_forward; good && i < n_ops; i++) {
        for (int32_t group = n_groups - 1; good && group >= 0; group--) {
            if (done[group] || !reads_group(p, &ir->ops[i], kept, group)) {
                continue;
            }
            done[group] = true;
            for (int32_t j = p->n_forward; j < n_ops; j++) {
                for (int k = 0; k < ir->ops[j].n_in; k++) {
                    want(p, kept, ir->ops[j].in[k], group);
                }
            }
            good = emit_clones(p, kept);
        }
        struct sw_ir_op op = ir->ops[i];
        for (int k = 0; k < op.n_in; k++) {
            op.in[k] = again(p, op.in[k]);
        }
        good = good && sw_op_order_add(&p->order, &op);
    }
    sw_free(done);
    return good;
}

sw_status sw_pass_recompute(struct sw_ir *ir, int64_t every)
{
    struct pass p = {.ir = ir, .n_values = ir->n_values};
    bool *kept = NULL;
    bool good = false;
    if (every <= 0) {
        return SW_OK;
    }
    for (p.n_forward = 0; p.n_forward < ir->n_ops; p.n_forward++) {
        if (ir->ops[p.n_forward].phase != SW_PHASE_FORWARD) {
            break;
        }
    }
    p.group_of = sw_alloc_zero("plan", (size_t)ir->n_ops, sizeof *p.group_of);
    p.wanted = sw_alloc_zero("plan", (size_t)ir->n_ops, sizeof *p.wanted);
    p.clone_of = sw_alloc("plan", (size_t)ir->n_values * sizeof *p.clone_of);
    kept = sw_alloc_zero("plan", (size_t)ir->n_values, sizeof *kept);
    if (p.group_of && p.wanted && p.clone_of && kept && sw_op_order_open(&p.order, ir) >= 0 &&
        group_ops(&p, every)) {
        int32_t n_groups = 0;
        for (int32_t i = 0; i < ir->n_ops; i++) {
            n_groups = p.group_of[i] >= n_groups ? p.group_of[i] + 1 : n_groups;
        }
        for (sw_value v = 0; v < ir->n_values; v++) {
            const int32_t producer = ir->values[v].producer;
            p.clone_of[v] = SW_NO_VALUE;
            kept[v] = producer >= 0 && producer < p.n_forward && p.group_of[producer] >= 0 &&
                      leaves_group(&p, v, p.group_of[producer]);
        }
        good = rewrite(&p, kept, n_groups);
        if (good) {
            sw_op_order_install(&p.order, ir);
        }
    }
    sw_free(p.group_of);
    sw_free(p.wanted);
    sw_free(p.clone_of);
    sw_free(kept);
    sw_op_order_close(&p.order);
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}
