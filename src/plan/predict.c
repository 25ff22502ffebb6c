// SPDX-License-Identifier: Apache-2.0
// Predicts the time of a step: the work of a finished plan by kind, divided by measured rates. It
// is pure.
#include <math.h>
#include <string.h>

#include "plan/private.h"

const char *sw_load_name(enum sw_load kind)
{
    static const char *const names[SW_LOAD_COUNT] = {
        "products_f32", "products_bf16", "products_f16", "other", "copies_in",
        "copies_out",   "disk_read",     "disk_written", "sent",  "host"};
    return names[kind];
}

enum sw_queue sw_load_queue(enum sw_load kind)
{
    return kind <= SW_LOAD_OTHER        ? SW_QUEUE_COMPUTE
           : kind == SW_LOAD_COPIES_IN  ? SW_QUEUE_H2D
           : kind == SW_LOAD_COPIES_OUT ? SW_QUEUE_D2H
           : kind == SW_LOAD_SENT       ? SW_QUEUE_COMM
           : kind == SW_LOAD_HOST       ? SW_QUEUE_HOST
           : kind == SW_LOAD_DISK_READ  ? SW_QUEUE_READ
                                        : SW_QUEUE_WRITE;
}

static enum sw_load kernel_load(const struct sw_ir *ir, const struct sw_ir_op *op, double *out_work)
{
    if (!sw_ir_has(op, SW_TRAIT_PRODUCTS)) {
        *out_work = sw_ir_op_bytes(ir, op);
        return op->on_host ? SW_LOAD_HOST : SW_LOAD_OTHER;
    }
    const enum sw_dtype dtype = ir->values[op->in[sw_op_info(op->kind)->factor]].dtype;
    *out_work = (double)sw_ir_flops(ir, op);
    return dtype == SW_BF16  ? SW_LOAD_PRODUCTS_BF16
           : dtype == SW_F16 ? SW_LOAD_PRODUCTS_F16
                             : SW_LOAD_PRODUCTS_F32;
}

enum sw_load sw_instr_load(const struct sw_plan *plan, const struct sw_program *program, int32_t i,
                           double *out_work)
{
    static const enum sw_load kinds[] = {[SW_VERB_COPY_IN] = SW_LOAD_COPIES_IN,
                                         [SW_VERB_COPY_OUT] = SW_LOAD_COPIES_OUT,
                                         [SW_VERB_READ] = SW_LOAD_DISK_READ,
                                         [SW_VERB_WRITE] = SW_LOAD_DISK_WRITTEN};
    const struct sw_instr *instr = &program->instrs[i];
    if (instr->verb == SW_VERB_KERNEL) {
        return kernel_load(program->ir, &program->ir->ops[instr->op], out_work);
    }
    if (instr->verb >= SW_VERB_REDUCE) { /* its shard to, or the shard of, each of the others */
        *out_work =
            (double)sw_instr_sent_bytes(instr) * (plan->step.ranks > 1 ? plan->step.ranks - 1 : 0);
        return SW_LOAD_SENT;
    }
    const bool copied = instr->verb == SW_VERB_COPY_IN || instr->verb == SW_VERB_COPY_OUT;
    *out_work = (copied ? 2 : 1) * (double)instr->bytes; /* read and written */
    return kinds[instr->verb];
}

void sw_plan_loads(const struct sw_plan *plan, int64_t rounds, double out[SW_LOAD_COUNT])
{
    const struct sw_program *program = &plan->programs[0];
    const struct sw_ir *ir = program->ir;
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        out[k] = 0;
    }
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        const bool once = op->phase == SW_PHASE_UPDATE || program->micro_batches > 1;
        const double times = once ? 1 : (double)rounds;
        if (sw_ir_is_transfer(op) || sw_ir_is_collective(op)) {
            continue;
        }
        double work = 0;
        const enum sw_load kind = kernel_load(ir, op, &work);
        out[kind] += times * work * (double)sw_ir_pieces(ir, op);
    }
    const struct sw_transfers moved = sw_plan_transfers(plan, rounds);
    out[SW_LOAD_COPIES_IN] = 2 * (double)moved.in[SW_TIER_HOST]; /* read and written */
    out[SW_LOAD_COPIES_OUT] = 2 * (double)moved.out[SW_TIER_HOST];
    out[SW_LOAD_DISK_READ] = (double)moved.in[SW_TIER_DISK];
    out[SW_LOAD_DISK_WRITTEN] = (double)moved.out[SW_TIER_DISK];
}

void sw_predict(const double loads[SW_LOAD_COUNT], const double rates[SW_LOAD_COUNT],
                struct sw_prediction *out)
{
    struct sw_prediction p = {.bound = SW_QUEUE_COMPUTE};
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        p.part[k] = loads[k] > 0 ? rates[k] > 0 ? loads[k] / rates[k] : NAN : 0;
        if (isnan(p.part[k])) {
            p.unknown = true;
        } else {
            p.seconds[sw_load_queue((enum sw_load)k)] += p.part[k];
            p.most += p.part[k];
        }
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        p.bound = p.seconds[q] > p.seconds[p.bound] ? (enum sw_queue)q : p.bound;
    }
    p.least = p.seconds[p.bound];
    *out = p;
}

void sw_builtin_rates(double out[SW_LOAD_COUNT])
{
    static const double rates[SW_LOAD_COUNT] = {
        [SW_LOAD_PRODUCTS_F32] = 500e9, [SW_LOAD_PRODUCTS_BF16] = 1000e9,
        [SW_LOAD_PRODUCTS_F16] = 500e9, [SW_LOAD_OTHER] = 20e9,
        [SW_LOAD_COPIES_IN] = 20e9,     [SW_LOAD_COPIES_OUT] = 20e9,
        [SW_LOAD_DISK_READ] = 3e9,      [SW_LOAD_DISK_WRITTEN] = 1.5e9,
        [SW_LOAD_SENT] = 1.2e9,         [SW_LOAD_HOST] = 20e9,
    };
    memcpy(out, rates, sizeof rates);
}

double sw_plan_seconds(const struct sw_plan *plan, int64_t rounds,
                       const double rates[SW_LOAD_COUNT])
{
    double loads[SW_LOAD_COUNT];
    struct sw_prediction p;
    sw_plan_loads(plan, rounds, loads);
    sw_predict(loads, rates, &p);
    return p.least;
}
