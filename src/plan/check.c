// SPDX-License-Identifier: Apache-2.0
// Verifies a finished plan against its graph, independently of how it was made.
#include <string.h>

#include "plan/private.h"

struct check {
    const struct sw_plan *plan;
    const struct sw_program *program;
    int32_t *written; /* [n_values] instruction that wrote the value; -1 = not yet; leaves: 0 */
    bool one_round;   /* every micro-step is the last of its step */
    bool is_stage;    /* see sw_program_is_stage */
    sw_value *newest; /* [n_values] by root: the version that its bytes hold now */
    bool *always;     /* [n_values] by root: an instruction that never is left out writes it */
    int32_t *issued;  /* [n_instrs] see sw_program_issued */
    struct sw_cells cells;
};

static const char *value_name(const struct sw_ir *ir, sw_value v)
{
    return ir->values[v].name ? ir->values[v].name : "a transient";
}

/* Checks that instruction i reads the newest version of v, within the life of its buffer. A value
 * made in the last micro-step must not be read in all of them. */
static sw_status check_read(const struct check *c, int32_t i, sw_value v)
{
    const struct sw_ir *ir = c->program->ir;
    const sw_value version = sw_ir_version(ir, v);
    const sw_value root = sw_ir_root(ir, version);
    const bool leaf = ir->values[version].producer < 0;
    if (!leaf && c->written[version] < 0) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s) reads %%%d before it is written", i,
                       sw_ir_op_name(&ir->ops[c->program->instrs[i].op]), version);
    }
    if (c->newest[root] != version) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s) reads %s after it was overwritten", i,
                       sw_ir_op_name(&ir->ops[c->program->instrs[i].op]), value_name(ir, version));
    }
    const struct sw_instr *reader = &c->program->instrs[i];
    const struct sw_instr *writer = leaf ? NULL : &c->program->instrs[c->written[version]];
    if (writer && writer->last_only && !reader->last_only && reader->segment < SW_SEGMENT_UPDATE &&
        !c->one_round) {
        return SW_FAIL(
            SW_E_ARG,
            "plan: instruction %d (%s) runs in every micro-step and reads %%%d, which is "
            "written in the last one",
            i, sw_ir_op_name(&ir->ops[reader->op]), version);
    }
    if (writer && writer->turn.first_only && !reader->turn.first_only && !c->always[root]) {
        return SW_FAIL(SW_E_ARG,
                       "plan: instruction %d (%s) runs in every micro-step and reads %%%d, which "
                       "only the update of the step before writes",
                       i, sw_ir_op_name(&ir->ops[reader->op]), version);
    }
    const struct sw_buffer *buffer = &c->program->buffers[c->program->buffer_of[root]];
    if (!buffer->persistent && (i < buffer->first || i > buffer->last)) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d reads %%%d outside of its buffer's life", i,
                       version);
    }
    return SW_OK;
}

/* Checks predicates. Loads may run unnecessarily. Other ops must be predicated if the step or
 * micro-step leaves them out, and SKIP may be used only once it is known. finished: the norm of the
 * step is known. */
static sw_status check_when(const struct check *c, int32_t i, bool *finished)
{
    const struct sw_instr *instr = &c->program->instrs[i];
    const struct sw_ir_op *op = &c->program->ir->ops[instr->op];
    const bool early =
        op->phase == SW_PHASE_UPDATE && !op->chunk.in_forward && instr->segment < SW_SEGMENT_UPDATE;
    const bool in_forward = op->chunk.in_forward && !instr->turn.for_next;
    if (in_forward != instr->turn.first_only || (in_forward && instr->last_only)) {
        return SW_FAIL(SW_E_ARG,
                       "plan: instruction %d (%s) of the update of the step before runs in every "
                       "micro-step, or another one does not",
                       i, sw_ir_op_name(op));
    }
    if ((early || op->in_backward) && !instr->last_only) {
        return SW_FAIL(SW_E_ARG,
                       "plan: instruction %d (%s) is of the update and runs in every micro-step", i,
                       sw_ir_op_name(op));
    }
    if (op->unless_skipped && !instr->unless_skipped && !op->chunk.in_forward &&
        op->move != SW_MOVE_LOAD) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s) runs in a skipped step, too", i,
                       sw_ir_op_name(op));
    }
    if (instr->unless_skipped && !instr->last_only && !*finished) {
        return SW_FAIL(SW_E_ARG,
                       "plan: instruction %d (%s) asks whether the step is skipped before it is "
                       "known",
                       i, sw_ir_op_name(op));
    }
    *finished = *finished || sw_ir_has(op, SW_TRAIT_SKIP);
    return SW_OK;
}

/* An offloaded value lies in another tier. If a later op loads it from there, a store has put it
 * there. */
static sw_status check_home(const struct check *c, int32_t i)
{
    const struct sw_ir *ir = c->program->ir;
    const struct sw_ir_op *op = &ir->ops[c->program->instrs[i].op];
    const sw_value v = op->in[0], home = sw_ir_root(ir, v);
    const enum sw_role role = ir->values[home].role;
    if (ir->values[home].tier == SW_TIER_DEVICE) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s) moves %%%d, which lies on the device",
                       i, sw_ir_op_name(op), home);
    }
    if (op->move == SW_MOVE_LOAD && role != SW_ROLE_PARAM && role != SW_ROLE_STATE &&
        (c->written[v] < 0 || c->newest[home] != v)) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d (load) reads %%%d, which nobody has stored",
                       i, v);
    }
    return SW_OK;
}

/* An exchange is on the queue of its group, and its operands fit. */
static sw_status check_exchange(const struct check *c, int32_t i)
{
    const struct sw_ir *ir = c->program->ir;
    const struct sw_instr *instr = &c->program->instrs[i];
    const struct sw_ir_op *op = &ir->ops[instr->op];
    if (op->exchange.group < 0 || op->exchange.group >= c->plan->n_groups) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s) is in group %d of %d", i,
                       sw_ir_op_name(op), op->exchange.group, c->plan->n_groups);
    }
    if (instr->queue != sw_move_queue(ir, op)) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s) is on the queue %s, not on %s", i,
                       sw_ir_op_name(op), sw_queue_name(instr->queue),
                       sw_queue_name(sw_move_queue(ir, op)));
    }
    return sw_exchange_check(ir, op);
}

/* A batch travels as one: all of its exchanges run, or none. */
static sw_status check_batch(const struct check *c, int32_t i)
{
    const struct sw_instr *instr = &c->program->instrs[i];
    const struct sw_ir *ir = c->program->ir;
    if (!sw_instr_is_inside(instr)) {
        return SW_OK;
    }
    const int32_t first = sw_program_issued(c->program, i);
    const struct sw_instr *leader = &c->program->instrs[first];
    if (i >= first + leader->exchange.batch ||
        ir->ops[leader->op].move != ir->ops[instr->op].move ||
        leader->last_only != instr->last_only || leader->turn.once != instr->turn.once ||
        leader->turn.first_only != instr->turn.first_only ||
        leader->unless_skipped != instr->unless_skipped) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s) is no part of the batch of %d", i,
                       sw_ir_op_name(&ir->ops[instr->op]), first);
    }
    return SW_OK;
}

/* Checks each instruction against those issued before it: its inputs, segment, batch and waits.
 * Fills `written`, `newest` and `issued`. */
static sw_status check_order(struct check *c)
{
    const struct sw_program *program = c->program;
    const struct sw_ir *ir = program->ir;
    bool finished = false;
    for (sw_value v = 0; v < ir->n_values; v++) {
        c->written[v] = -1;
        c->newest[v] = v;
    }
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        const bool inside = sw_instr_is_inside(&program->instrs[i]);
        c->issued[i] = inside && i > 0 ? c->issued[i - 1] : i;
        SW_TRY(op->move != SW_MOVE_NONE ? sw_move_check(ir, op) : SW_OK);
        SW_TRY(sw_ir_is_collective(op) ? check_exchange(c, i) : SW_OK);
        for (int k = sw_ir_is_transfer(op); k < op->n_in; k++) {
            /* check_transfer checks the ranges of transfers */
            SW_TRY(check_read(c, i, op->in[k]));
        }
        SW_TRY(sw_ir_is_transfer(op) ? check_home(c, i) : SW_OK);
        for (int k = 0; k < op->n_out; k++) {
            if (op->out[k] < 0) {
                continue;
            }
            c->written[op->out[k]] = i;
            c->always[sw_ir_root(ir, op->out[k])] |= !program->instrs[i].turn.first_only;
            c->newest[sw_ir_root(ir, op->out[k])] = op->out[k];
        }
        if (i > 0 && sw_instr_key(&program->instrs[i]) < sw_instr_key(&program->instrs[i - 1])) {
            return SW_FAIL(SW_E_ARG, "plan: instruction %d goes back to an earlier segment", i);
        }
        SW_TRY(check_when(c, i, &finished));
        SW_TRY(check_batch(c, i));
        for (int w = 0; w < SW_QUEUE_COUNT; w++) {
            if (program->instrs[i].waits[w] >= i) {
                return SW_FAIL(SW_E_ARG, "plan: instruction %d waits for a later one", i);
            }
        }
    }
    return SW_OK;
}

/* Buffer b must live from the time when instruction i is issued until `last`. */
static sw_status check_held(const struct check *c, int32_t i, int32_t b, int32_t last)
{
    const struct sw_buffer *buffer = &c->program->buffers[b];
    const int32_t first = c->issued[i];
    if (!buffer->persistent && (buffer->first > first || buffer->last < last)) {
        return SW_FAIL(SW_E_ARG,
                       "plan: instruction %d is under way from %d to %d, its buffer lives from %d "
                       "to %d",
                       i, first, last, buffer->first, buffer->last);
    }
    return SW_OK;
}

/* Instruction i may be in flight until `last`. */
static sw_status check_under_way(const struct check *c, int32_t i, int32_t last)
{
    const struct sw_instr *instr = &c->program->instrs[i];
    const struct sw_ir *ir = c->program->ir;
    const struct sw_ir_op *op = &ir->ops[instr->op];
    for (int k = 0; k < op->n_in + op->n_out; k++) {
        const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
        if (v >= 0 && !(instr->turn.for_next && instr->workspace >= 0)) {
            SW_TRY(check_held(c, i, c->program->buffer_of[sw_ir_root(ir, v)], last));
        }
    }
    return instr->workspace >= 0 ? check_held(c, i, instr->workspace, last) : SW_OK;
}

/* Transfers of a cell of an offloaded value; -1 = none. */
struct moved {
    int32_t loaded, stored; /* the latest ones */
    /* the ones of the op that is latest in the list */
    int32_t last_load, last_store;
};

struct beside {
    struct sw_clocks clocks;
    struct sw_touches touches;     /* touches of instructions in flight */
    struct moved *moved;           /* [n_cells] */
    int32_t found[SW_QUEUE_COUNT]; /* instructions that the present one finds complete */
};

/* Instruction i must find the latest instruction of each queue complete. root: what they touch, for
 * the message. */
static sw_status check_latest(const struct check *c, const struct beside *b, int32_t i,
                              const int32_t latest[SW_QUEUE_COUNT], sw_value root)
{
    const struct sw_ir *ir = c->program->ir;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (latest[q] > b->found[q]) {
            return SW_FAIL(SW_E_ARG,
                           "plan: instruction %d (%s) does not wait for instruction %d (%s), "
                           "which is under way with %s",
                           i, sw_ir_op_name(&ir->ops[c->program->instrs[i].op]), latest[q],
                           sw_ir_op_name(&ir->ops[c->program->instrs[latest[q]].op]),
                           value_name(ir, root));
        }
    }
    return SW_OK;
}

/* Checks instruction i against an earlier one that moves some of the same bytes. At least one of
 * the two is a store. */
static sw_status check_after(const struct check *c, const struct beside *b, int32_t i, int32_t j)
{
    const struct sw_program *program = c->program;
    const struct sw_ir *ir = program->ir;
    const struct sw_instr *instr = &program->instrs[i], *other = j < 0 ? NULL : &program->instrs[j];
    /* a read for the next step follows all stores, whatever the list says */
    const bool after = instr->turn.for_next || (other && other->op < instr->op);
    if (!other || (after && !other->turn.for_next && j <= b->found[other->queue])) {
        return SW_OK;
    }
    const struct sw_ir_op *op = &ir->ops[instr->op];
    return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s of %s) %s instruction %d (%s)", i,
                   sw_ir_op_name(op), value_name(ir, sw_ir_root(ir, op->in[0])),
                   j > b->found[other->queue] ? "does not wait for" : "comes after", j,
                   sw_ir_op_name(&ir->ops[other->op]));
}

/* The one of two instructions whose op is later in the list; i if there is no j. */
static int32_t later_op(const struct check *c, int32_t i, int32_t j)
{
    const struct sw_instr *instrs = c->program->instrs;
    return j >= 0 && instrs[j].op > instrs[i].op ? j : i;
}

/* Checks that transfers of overlapping parts keep the order of the graph, if one of them writes,
 * and are not in flight together. */
static sw_status check_transfer(const struct check *c, const struct beside *b, int32_t i)
{
    const struct sw_instr *instr = &c->program->instrs[i];
    const struct sw_ir *ir = c->program->ir;
    const struct sw_ir_op *op = &ir->ops[instr->op];
    const bool stores = op->move == SW_MOVE_STORE;
    const struct sw_cell_range cells = c->cells.of[instr->op];
    if (instr->exchange.blocking || instr->queue != sw_move_queue(ir, op)) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s) is on the queue %s", i,
                       sw_ir_op_name(op), sw_queue_name(instr->queue));
    }
    for (int32_t k = cells.first; k < cells.end; k++) {
        struct moved *moved = &b->moved[k];
        SW_TRY(check_after(c, b, i, moved->stored));
        SW_TRY(check_after(c, b, i, moved->last_store));
        if (stores) {
            SW_TRY(check_after(c, b, i, moved->loaded));
            SW_TRY(check_after(c, b, i, moved->last_load));
            moved->stored = i;
            moved->last_store = later_op(c, i, moved->last_store);
        } else {
            moved->loaded = i;
            moved->last_load = later_op(c, i, moved->last_load);
        }
    }
    return SW_OK;
}

/* Checks that the writers of what instruction i reads, and all users of what it writes, are known
 * to be complete. Then records its own touches. */
static sw_status check_operands(const struct check *c, struct beside *b, int32_t i)
{
    const struct sw_ir *ir = c->program->ir;
    const struct sw_ir_op *op = &ir->ops[c->program->instrs[i].op];
    const enum sw_queue q = sw_instr_queue(&c->program->instrs[i]);
    const int first = sw_ir_first_touched(ir, op);
    const bool outputs = sw_ir_touches_outputs(ir, op);
    for (int k = first; k < op->n_in; k++) {
        const sw_value root = sw_ir_root(ir, op->in[k]);
        SW_TRY(check_latest(c, b, i, sw_touch_of(&b->touches, root)->wrote, root));
    }
    for (int k = 0; k < op->n_out && outputs; k++) {
        const sw_value root = op->out[k] < 0 ? SW_NO_VALUE : sw_ir_root(ir, op->out[k]);
        if (root >= 0) {
            SW_TRY(check_latest(c, b, i, sw_touch_of(&b->touches, root)->read, root));
            SW_TRY(check_latest(c, b, i, sw_touch_of(&b->touches, root)->wrote, root));
        }
    }
    for (int k = first; k < op->n_in; k++) {
        sw_touch_of(&b->touches, op->in[k])->read[q] = i;
    }
    for (int k = 0; k < op->n_out && outputs; k++) {
        if (op->out[k] >= 0) {
            sw_touch_of(&b->touches, op->out[k])->wrote[q] = i;
        }
    }
    return SW_OK;
}

/* Checks the buffers of the instructions that are known to be complete from instruction i on. */
static sw_status check_retired(const struct check *c, const struct beside *b,
                               int32_t known[SW_QUEUE_COUNT], int32_t i)
{
    for (int q = 1; q < SW_QUEUE_COUNT; q++) {
        for (; known[q] < b->clocks.now[SW_QUEUE_COMPUTE][q]; known[q]++) {
            const struct sw_instr *done = &c->program->instrs[known[q] + 1];
            if ((int)done->queue == q && !done->exchange.blocking) {
                SW_TRY(check_under_way(c, known[q] + 1, i));
            }
        }
    }
    return SW_OK;
}

/* Goes through the instructions and what each finds complete. Checks operands, transfers, and that
 * a buffer lives until its instructions are known to be complete. */
static sw_status check_queues(const struct check *c, struct beside *b)
{
    const struct sw_program *program = c->program;
    const int32_t end = program->n_instrs;
    int32_t known[SW_QUEUE_COUNT];
    memset(known, 0xff, sizeof known);
    for (int32_t i = 0; i < end; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        if (!sw_instr_is_inside(instr)) {
            sw_clocks_find(&b->clocks, i, instr->waits, b->found);
        } else {
            b->found[instr->queue] = i - 1; /* it is issued with the first of its batch */
        }
        SW_TRY(check_operands(c, b, i));
        if (sw_ir_is_transfer(&program->ir->ops[instr->op])) {
            SW_TRY(check_transfer(c, b, i));
        }
        sw_clocks_step(&b->clocks, i);
        SW_TRY(check_under_way(c, i, i));
        SW_TRY(check_retired(c, b, known, i));
        if (sw_program_settles(program, c->is_stage, i)) { /* check_phases.c has what is left */
            sw_clocks_settle(&b->clocks, i);
            SW_TRY(check_retired(c, b, known, i));
        }
    }
    for (int32_t i = 0; i < end; i++) { /* the others are waited for at the end */
        const struct sw_instr *instr = &program->instrs[i];
        if (instr->queue != SW_QUEUE_COMPUTE && !instr->exchange.blocking &&
            i > known[instr->queue]) {
            SW_TRY(check_under_way(c, i, end - 1));
        }
    }
    return SW_OK;
}

/* Checks that nobody reads what another queue may still write, or writes what it may still
 * touch. */
static sw_status check_overlap(const struct check *c)
{
    struct beside b = {0};
    SW_TRY(sw_touches_open(&b.touches, c->program->ir));
    b.moved = sw_alloc("plan", ((size_t)c->cells.n + 1) * sizeof *b.moved);
    sw_status st = b.moved ? sw_clocks_open(&b.clocks, c->program)
                           : SW_FAIL(SW_E_NOMEM, "out of host memory for checking the plan");
    if (st >= 0) {
        memset(b.moved, 0xff, (size_t)c->cells.n * sizeof *b.moved);
        st = check_queues(c, &b);
    }
    sw_clocks_close(&b.clocks);
    sw_touches_close(&b.touches);
    sw_free(b.moved);
    return st;
}

/* Checks a transfer from or to the disk, which moves whole blocks. On both sides the buffer must be
 * aligned, and have room for the last block. Exceptions: rows may start anywhere, and a persistent
 * device buffer moves its exact bytes. */
static sw_status check_disk(const struct check *c, int32_t i)
{
    const struct sw_program *program = c->program;
    const struct sw_ir *ir = program->ir;
    const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
    if (!sw_ir_is_transfer(op) || sw_ir_moves_rows(op) || !sw_ir_is_on_disk(ir, op->in[0])) {
        return SW_OK;
    }
    const sw_value ends[] = {op->in[0], sw_ir_moved(op)};
    for (int k = 0; k < 2; k++) {
        const struct sw_ir_value *info = &ir->values[ends[k]];
        const struct sw_buffer *buffer =
            &program->buffers[program->buffer_of[sw_ir_root(ir, ends[k])]];
        const size_t first = (size_t)(k == 0 ? op->first : info->base_offset);
        /* the device holds one piece */
        const size_t pieces = k > 0 ? (size_t)sw_ir_pieces(ir, op) : 1;
        const size_t end =
            first * sw_dtype_bytes(info->dtype) + sw_transfer_disk_bytes(ir, op) / pieces;
        if (!(k > 0 && buffer->persistent) &&
            (buffer->offset % SW_PLAN_DISK_ALIGN != 0 || end > buffer->bytes)) {
            return SW_FAIL(SW_E_ARG,
                           "plan: instruction %d (%s) moves blocks of the disk up to byte %zu of a "
                           "buffer of %zu bytes at %zu",
                           i, sw_ir_op_name(op), end, buffer->bytes, buffer->offset);
        }
    }
    return SW_OK;
}

/* A buffer has room for its value. A persistent one on the device lies in the persistent part. */
static sw_status check_buffers(const struct check *c)
{
    const struct sw_program *program = c->program;
    const struct sw_ir *ir = program->ir;
    for (int32_t b = 0; b < program->n_buffers; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        if (buffer->value < 0) {
            continue;
        }
        const size_t need = sw_ir_storage_bytes(&ir->values[buffer->value]);
        if (buffer->bytes < need) {
            return SW_FAIL(SW_E_ARG, "plan: %s (%%%d) has %zu bytes and needs %zu",
                           value_name(ir, buffer->value), buffer->value, buffer->bytes, need);
        }
        if (buffer->persistent && buffer->tier == SW_TIER_DEVICE &&
            buffer->offset + need > c->plan->persistent_bytes[SW_TIER_DEVICE]) {
            return SW_FAIL(SW_E_ARG, "plan: %s lies outside of the persistent part",
                           value_name(ir, buffer->value));
        }
    }
    return SW_OK;
}

/* Workspace that an op requires. */
static sw_status ask_workspace(const struct sw_ir *ir, const struct sw_ir_op *op,
                               const struct sw_plan_options *options, size_t *out)
{
    struct sw_op math;
    struct sw_op_desc desc;
    struct sw_kernel_info kernel = {0};
    if (sw_ir_is_transfer(op)) {
        *out = 0;
    } else if (sw_ir_is_collective(op)) {
        *out = sw_exchange_workspace(ir, op);
    } else {
        sw_ir_describe(ir, op, &math, &desc);
        const struct sw_plan_kernels kernels = sw_kernels_of(options, op);
        kernels.query(kernels.ctx, &desc, &kernel);
        if (kernel.no_memory) {
            return sw_fail_prefix(SW_E_NOMEM, "a kernel of %s", sw_ir_op_name(op));
        }
        *out = kernel.workspace_bytes;
    }
    return SW_OK;
}

static sw_status check_sizes(const struct check *c, const struct sw_plan_options *options)
{
    const struct sw_program *program = c->program;
    const struct sw_ir *ir = program->ir;
    SW_TRY(check_buffers(c));
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        size_t need;
        SW_TRY(check_disk(c, i));
        SW_TRY(ask_workspace(ir, &ir->ops[instr->op], options, &need));
        const size_t have = instr->workspace >= 0 ? program->buffers[instr->workspace].bytes : 0;
        if (have < need) {
            return SW_FAIL(SW_E_ARG,
                           "plan: instruction %d (%s) has %zu bytes of workspace and needs %zu", i,
                           sw_ir_op_name(&ir->ops[instr->op]), have, need);
        }
    }
    return SW_OK;
}

sw_status sw_plan_check(const struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int p = 0; p < plan->n_programs; p++) {
        struct check c = {.plan = plan,
                          .program = &plan->programs[p],
                          .one_round = sw_has_one_round(options),
                          .is_stage = sw_program_is_stage(&plan->programs[p], options)};
        const size_t n = (size_t)c.program->ir->n_values + 1;
        c.written = sw_alloc("plan", n * sizeof *c.written);
        c.newest = sw_alloc("plan", n * sizeof *c.newest);
        c.always = sw_alloc_zero("plan", n, sizeof *c.always);
        c.issued = sw_alloc("plan", ((size_t)c.program->n_instrs + 1) * sizeof *c.issued);
        sw_status st = SW_OK;
        if (!c.written || !c.newest || !c.always || !c.issued) {
            st = SW_FAIL(SW_E_NOMEM, "out of host memory for checking the plan");
        }
        if (st == SW_OK) {
            st = sw_cells_open(&c.cells, c.program->ir);
        }
        if (st == SW_OK) {
            st = check_order(&c);
        }
        if (st == SW_OK) {
            st = check_overlap(&c);
        }
        if (st == SW_OK) {
            st = check_sizes(&c, options);
        }
        if (st == SW_OK) {
            st = sw_plan_check_loops(c.program);
        }
        if (st == SW_OK) {
            st = sw_plan_check_kept(c.program, c.one_round);
        }
        if (st == SW_OK) {
            st = sw_plan_check_lives(plan, c.program);
        }
        if (st == SW_OK && c.is_stage) {
            st = sw_plan_check_phases(c.program, options);
        }
        if (st == SW_OK) {
            st = sw_plan_check_places(c.program, &c.cells);
        }
        if (st == SW_OK) {
            st = sw_plan_check_packs(plan, c.program);
        }
        sw_free(c.written);
        sw_free(c.newest);
        sw_free(c.always);
        sw_free(c.issued);
        sw_cells_close(&c.cells);
        SW_TRY(st);
    }
    return SW_OK;
}
