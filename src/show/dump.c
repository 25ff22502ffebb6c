// SPDX-License-Identifier: Apache-2.0
// Writes a whole plan as JSON: parameters, states, ports, and what running each instruction needs,
// as lower.c stored it. The members are those of fields.h; docs/train.md, "The plan for programs",
// explains them.
#include <stdio.h>
#include <string.h>

#include "show/fields.h"

/* Each row of a list becomes a statement that writes its member to `out`. */
#define PUT(key, type, presence, compare, ...) PUT_##type(#key, (__VA_ARGS__))
#define PUT_TEXT(key, value) sw_put_text(out, key, value);
#define PUT_COUNT(key, value) sw_put_count(out, key, (int64_t)value);
#define PUT_NUMBER(key, value) sw_put_number(out, key, (int64_t)value);
#define PUT_INDEX(key, value) sw_put_number(out, key, (int64_t)value);
#define PUT_FLAG(key, value) sw_put_flag(out, key, value);
#define PUT_ANY(key, value)                                                                        \
    {                                                                                              \
        const size_t before = sw_put_key(out, key);                                                \
        value;                                                                                     \
        sw_put_end(out, before);                                                                   \
    }
#define PUT_OBJECT PUT_ANY
#define PUT_LIST PUT_ANY

/* Begins an object in a list. */
static void begin_element(struct sw_str *out)
{
    sw_put_element(out);
    sw_str_putc(out, '{');
}

/* ---- operands ---- */

static void write_dims(int n, const int64_t *dims, struct sw_str *out)
{
    char text[32];
    sw_str_putc(out, '[');
    for (int d = 0; d < n; d++) {
        const int len = snprintf(text, sizeof text, "%s%lld", d ? "," : "", (long long)dims[d]);
        sw_str_append(out, text, (size_t)len);
    }
    sw_str_putc(out, ']');
}

static void write_shape(const struct sw_shape *shape, struct sw_str *out)
{
    if (shape) {
        write_dims(shape->rank, shape->dims, out);
    }
}

/* Writes the strides unless they are row-major. */
static void write_strides(const struct sw_view *view, struct sw_str *out)
{
    int64_t dense[SW_MAX_RANK];
    if (!view) {
        return;
    }
    sw_shape_row_major(&view->shape, dense);
    if (memcmp(view->strides, dense, (size_t)view->shape.rank * sizeof *dense) != 0) {
        write_dims(view->shape.rank, view->strides, out);
    }
}

static void write_rings(const struct sw_operand *operand, struct sw_str *out)
{
    bool any = false;
    for (int k = 0; k < SW_OPERAND_RINGS; k++) {
        const struct sw_ring *ring = &operand->ring[k];
        if (ring->stride > 0) {
            sw_str_puts(out, any ? "" : "[");
            begin_element(out);
            sw_put_text(out, "by", sw_ring_name(ring->by));
            sw_put_number(out, "stride", (int64_t)ring->stride);
            sw_put_count(out, "modulus", ring->modulus);
            sw_str_putc(out, '}');
            any = true;
        }
    }
    sw_str_puts(out, any ? "]" : "");
}

/* view: NULL = none; else its dtype and shape are written, too */
static void write_operand(const struct sw_operand *operand, const struct sw_view *view,
                          struct sw_str *out)
{
    sw_str_putc(out, '{');
    SW_OPERAND_FIELDS(PUT)
    sw_str_putc(out, '}');
}

/* Writes the operands, null for absent ones. Those of kernels also have a shape. */
static void write_operands(const struct sw_program *program, int32_t i, struct sw_str *out)
{
    const struct sw_instr *instr = &program->instrs[i];
    const struct sw_operand *operands = &program->operands[instr->operands];
    const bool is_kernel = instr->verb == SW_VERB_KERNEL;
    struct sw_op math;
    struct sw_op_desc desc;
    if (is_kernel) {
        sw_program_describe(program, i, &math, &desc);
    }
    sw_str_putc(out, '[');
    for (int k = 0; k < instr->n_in + instr->n_out; k++) {
        sw_put_element(out);
        if (operands[k].tier == SW_TIER_COUNT) {
            sw_str_puts(out, "null");
        } else if (is_kernel) {
            const struct sw_view *view = k < instr->n_in ? &desc.in[k] : &desc.out[k - instr->n_in];
            write_operand(&operands[k], view, out);
        } else {
            write_operand(&operands[k], NULL, out);
        }
    }
    sw_str_putc(out, ']');
}

/* ---- instructions ---- */

static void write_waits(const struct sw_instr *instr, struct sw_str *out)
{
    sw_str_putc(out, '{');
    SW_WAITS_FIELDS(PUT)
    sw_put_object_end(out);
}

static void write_workspace(const struct sw_program *program, const struct sw_instr *instr,
                            struct sw_str *out)
{
    if (instr->workspace >= 0 && !instr->turn.for_next) {
        const struct sw_buffer *buffer = &program->buffers[instr->workspace];
        sw_str_putc(out, '{');
        SW_WORKSPACE_FIELDS(PUT)
        sw_str_putc(out, '}');
    }
}

/* Name of the phase that it belongs to; NULL = that of its segment */
static const char *other_phase(const struct sw_instr *instr, const struct sw_instr_op *op)
{
    const enum sw_segment of = (enum sw_segment)op->math.phase;
    return of != instr->segment ? sw_segment_name(of) : NULL;
}

static const char *predicate_of(const struct sw_instr *instr)
{
    return instr->verb == SW_VERB_KERNEL && instr->unless_skipped ? "skip" : NULL;
}

/* A number of runs; 1 is usual, and left out */
static int64_t above_1(int64_t runs)
{
    return runs > 1 ? runs : 0;
}

static void write_instr(const struct sw_program *program, int32_t i, struct sw_str *out)
{
    const struct sw_instr *instr = &program->instrs[i];
    const struct sw_instr_op facts = sw_instr_op(program, i), *op = &facts;
    const struct sw_instr_exchange *sent = sw_instr_exchanges(instr) ? &instr->exchange : NULL;
    begin_element(out);
    SW_INSTR_FIELDS(PUT)
    sw_str_putc(out, '}');
}

/* ---- programs; NULL = the member is left out, here and below ---- */

static void write_ports(const struct sw_port *ports, int32_t n, struct sw_str *out)
{
    sw_str_putc(out, '[');
    for (int32_t i = 0; i < n; i++) {
        begin_element(out);
        sw_put_text(out, "name", ports[i].name);
        sw_put_count(out, "micro_batch", ports[i].micro);
        sw_put_text(out, "dtype", sw_dtype_name(ports[i].dtype));
        sw_put_key(out, "shape");
        write_shape(&ports[i].shape, out);
        if (ports[i].at.tier != SW_TIER_COUNT) {
            sw_put_key(out, "at");
            write_operand(&ports[i].at, NULL, out);
        }
        if (ports[i].slot.tier != SW_TIER_COUNT) {
            sw_put_key(out, "slot");
            write_operand(&ports[i].slot, NULL, out);
        }
        sw_str_putc(out, '}');
    }
    sw_str_putc(out, ']');
}

static void write_inputs(const struct sw_program *program, struct sw_str *out)
{
    if (program) {
        write_ports(program->ports.inputs, program->ports.n_inputs, out);
    }
}

static void write_outputs(const struct sw_program *program, struct sw_str *out)
{
    if (program) {
        write_ports(program->ports.outputs, program->ports.n_outputs, out);
    }
}

static void write_instrs(const struct sw_program *program, struct sw_str *out)
{
    if (!program) {
        return;
    }
    sw_str_putc(out, '[');
    for (int32_t i = 0; i < program->n_instrs; i++) {
        write_instr(program, i, out);
    }
    sw_str_putc(out, ']');
}

static void write_programs(const struct sw_plan *plan, bool full, struct sw_str *out)
{
    sw_str_putc(out, '[');
    for (int p = 0; p < plan->n_programs; p++) {
        const struct sw_program *program = &plan->programs[p];
        begin_element(out);
        SW_PROGRAM_FIELDS(PUT)
        sw_str_putc(out, '}');
    }
    sw_str_putc(out, ']');
}

/* ---- parameters and states ---- */

/* The pack that contains a byte of the disk. Packs are adjacent. */
static const char *pack_at(const struct sw_plan *plan, size_t offset)
{
    int32_t low = 0, high = plan->n_packs;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        *(plan->packs[middle].offset <= offset ? &low : &high) = middle;
    }
    return plan->packs[low].name;
}

static const char *word_of_state(const struct sw_persistent *item)
{
    return sw_state_is_optimizer(item->state)              ? "optimizer"
           : item->state == SW_STATE_SUM && item->use == 0 ? "sum"
           : sw_state_is_sum(item->state)                  ? "further_sum"
           : item->state == SW_STATE_CONSTANT              ? "constant"
                                                           : "other";
}

static void write_tensors(const struct sw_plan *plan, struct sw_str *out)
{
    if (!plan) {
        return;
    }
    sw_str_putc(out, '[');
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        const struct sw_layout *slice = item->layout.is_sliced ? &item->layout : NULL;
        const struct sw_layout *part = item->layout.tensor.size > 1 ? &item->layout : NULL;
        begin_element(out);
        SW_TENSOR_FIELDS(PUT)
        sw_str_putc(out, '}');
    }
    sw_str_putc(out, ']');
}

/* ---- what programs share ---- */

static void write_groups(const struct sw_plan *plan, struct sw_str *out)
{
    sw_str_puts(out, plan ? "[" : "");
    for (int g = 0; plan && g < plan->n_groups; g++) {
        const struct sw_group *group = &plan->groups[g];
        char name[64];
        begin_element(out);
        sw_put_text(out, "name", sw_group_format(group, name, sizeof name));
        sw_put_number(out, "ranks", group->n);
        sw_put_number(out, "rank", group->me);
        sw_str_putc(out, '}');
    }
    sw_str_puts(out, plan ? "]" : "");
}

static void write_step(const struct sw_step *step, struct sw_str *out)
{
    sw_str_puts(out, step ? "[" : "");
    for (int32_t i = 0; step && i < step->n_phases; i++) {
        const struct sw_step_phase *phase = &step->phases[i];
        const bool runs = phase->action <= SW_STEP_RECEIVE;
        begin_element(out);
        sw_put_text(out, "action", sw_step_action_name(phase->action));
        sw_put_text(out, "segment", runs ? sw_segment_name(phase->segment) : NULL);
        sw_put_number(out, "stage_chunk", runs && phase->chunk > 0 ? phase->chunk : -1);
        sw_put_number(out, "round", runs ? phase->round : -1);
        sw_put_number(out, "micro_batches", runs ? phase->n_micro : -1);
        sw_put_flag(out, "last", runs && phase->is_last);
        sw_put_flag(out, "first", runs && phase->is_first);
        sw_put_flag(out, "finds", runs && phase->finds);
        sw_put_flag(out, "drains", runs && phase->drains);
        sw_put_flag(out, "runs_on", runs && phase->runs_on);
        sw_put_flag(out, "joins", runs && phase->joins);
        sw_put_flag(out, "rolls_back", i < step->n_safe);
        sw_str_putc(out, '}');
    }
    sw_str_puts(out, step ? "]" : "");
}

static void write_packs(const struct sw_plan *plan, struct sw_str *out)
{
    sw_str_puts(out, plan ? "[" : "");
    for (int32_t i = 0; plan && i < plan->n_packs; i++) {
        begin_element(out);
        sw_put_text(out, "name", plan->packs[i].name);
        sw_put_number(out, "offset", (int64_t)plan->packs[i].offset);
        sw_put_number(out, "bytes", (int64_t)plan->packs[i].bytes);
        sw_put_count(out, "slot_bytes", (int64_t)plan->packs[i].slot_bytes);
        sw_str_putc(out, '}');
    }
    sw_str_puts(out, plan ? "]" : "");
}

static void write_tiles(const struct sw_plan *plan, struct sw_str *out)
{
    sw_str_puts(out, plan ? "[" : "");
    for (int32_t i = 0; plan && i < plan->n_tiled; i++) {
        begin_element(out);
        sw_put_text(out, "name", plan->tiled[i].name);
        sw_put_number(out, "tiles", plan->tiled[i].n_tiles);
        sw_put_number(out, "rows", plan->tiled[i].rows);
        sw_put_number(out, "bytes", (int64_t)plan->tiled[i].bytes);
        sw_str_putc(out, '}');
    }
    sw_str_puts(out, plan ? "]" : "");
}

static void write_staging(const struct sw_plan *plan, struct sw_str *out)
{
    sw_str_puts(out, plan ? "[" : "");
    for (int q = 0; plan && q < SW_QUEUE_COUNT; q++) {
        const struct sw_operand *share = &plan->staging.share[q];
        if (share->tier != SW_TIER_COUNT) {
            begin_element(out);
            sw_put_text(out, "queue", sw_queue_name((enum sw_queue)q));
            sw_put_number(out, "offset", (int64_t)share->offset);
            sw_put_number(out, "bytes", (int64_t)share->bytes);
            sw_str_putc(out, '}');
        }
    }
    sw_str_puts(out, plan ? "]" : "");
}

static void write_moved(const struct sw_plan *plan, struct sw_str *out)
{
    if (plan->step.n_phases > 0) {
        const struct sw_moved sums = sw_moved(plan), *moved = &sums;
        sw_str_putc(out, '{');
        SW_MOVED_FIELDS(PUT)
        sw_str_putc(out, '}');
    }
}

void sw_plan_print_json(const struct sw_plan *plan, bool full, struct sw_str *out)
{
    const struct sw_role_bytes roles = sw_role_bytes(plan);
    const struct sw_tiles tiles = sw_tiles(plan);
    char fingerprint[24];
    snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)plan->fingerprint);
    sw_str_putc(out, '{');
    SW_PLAN_FIELDS(PUT)
    sw_str_putc(out, '}');
}
