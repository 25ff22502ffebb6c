// SPDX-License-Identifier: Apache-2.0
// Verifies the program of a pipeline's stage across its phases, independently of how memory was
// given. Phases come in the order of the schedule, and messages run on into the next ones. So a
// buffer lives within one phase and no message touches it; or it has memory of its own during
// forward and backward, and a slot is free again when its next micro-batch needs it.
#include "plan/private.h"

/* The instructions that touch a buffer. */
struct use {
    int32_t first, last; /* -1 = none */
    bool sent, received; /* before the update */
};

struct check {
    const struct sw_program *program;
    const struct sw_pipe_phase *phases;
    int64_t n;
    int late;         /* see sw_pipe_late */
    struct use *uses; /* [n_buffers] */
};

static bool is_alike(const struct sw_pipe_phase *a, const struct sw_pipe_phase *b)
{
    return a->chunk == b->chunk && a->segment == b->segment;
}

static void note_use(const struct check *c, int32_t i, int32_t b)
{
    const struct sw_instr *instr = &c->program->instrs[i];
    struct use *use = &c->uses[b];
    const enum sw_move move = c->program->ir->ops[instr->op].move;
    use->first = use->first < 0 ? i : use->first;
    use->last = i;
    use->sent |= move == SW_MOVE_SEND && instr->segment < SW_SEGMENT_UPDATE;
    use->received |= move == SW_MOVE_RECV && instr->segment < SW_SEGMENT_UPDATE;
}

/* Finds what touches each buffer. Receives must be first in their phase. */
static sw_status find_uses(const struct check *c)
{
    const struct sw_ir *ir = c->program->ir;
    bool heads = true; /* the phase has had nothing but receives so far */
    for (int32_t b = 0; b < c->program->n_buffers; b++) {
        c->uses[b] = (struct use){-1, -1, false, false};
    }
    for (int32_t i = 0; i < c->program->n_instrs; i++) {
        const struct sw_instr *instr = &c->program->instrs[i];
        const struct sw_ir_op *op = &ir->ops[instr->op];
        heads = heads || sw_program_settles(c->program, true, i - 1);
        if (op->move == SW_MOVE_RECV && !heads && instr->segment < SW_SEGMENT_UPDATE) {
            return SW_FAIL(SW_E_ARG,
                           "plan: instruction %d (%s) is not at the beginning of its phase", i,
                           sw_ir_op_name(op));
        }
        heads = op->move == SW_MOVE_RECV;
        for (int k = 0; k < op->n_in + op->n_out; k++) {
            const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
            if (v >= 0) {
                note_use(c, i, c->program->buffer_of[sw_ir_root(ir, v)]);
            }
        }
    }
    return SW_OK;
}

/* True if micro-batch k is done with its slot before micro-batch k + slots begins to use it. */
static bool is_free_again(const struct check *c, const struct sw_pipe_phase *from,
                          const struct sw_pipe_phase *until, const struct use *use, int64_t slots)
{
    const int64_t early = use->received, late = use->sent ? c->late : 0;
    int64_t begun = 0, ended = 0,
            end = -1; /* of micro-batches; phase in which the last one ended */
    for (int64_t at = 0; at < c->n; at++) {
        if (!is_alike(&c->phases[at], from)) {
            continue;
        }
        for (begun++; ended < begun - slots;) {
            end++;
            ended += end < c->n && is_alike(&c->phases[end], until);
            if (end >= at) {
                return false;
            }
        }
        if (begun > slots && at - early <= end + late) {
            return false;
        }
    }
    return true;
}

static sw_status check_buffer(const struct check *c, int32_t b)
{
    const struct sw_program *program = c->program;
    const struct sw_buffer *buffer = &program->buffers[b];
    const struct use *use = &c->uses[b];
    const int32_t update = program->segment_first[SW_SEGMENT_UPDATE];
    const bool travels = use->sent || use->received;
    if (use->first < 0 || use->first >= update || (buffer->persistent && !travels) ||
        (use->last >= update && !travels)) {
        return SW_OK;
    }
    if (buffer->persistent || use->last >= update) {
        return SW_FAIL(SW_E_ARG, "plan: buffer %d is sent or received, and outlasts backward", b);
    }
    const struct sw_instr *first = &program->instrs[use->first],
                          *last = &program->instrs[use->last];
    const struct sw_pipe_phase from = sw_pipe_phase_of(first), until = sw_pipe_phase_of(last);
    const struct sw_instr_range range =
        sw_program_range(program, first->segment, (int)first->chunk);
    const bool is_apart = buffer->first == 0 && buffer->last >= update - 1;
    if (!is_apart) { /* an output is read when its phase has run */
        return !travels && is_alike(&from, &until) && buffer->first >= range.first &&
                       (buffer->last < range.end || buffer->last >= update)
                   ? SW_OK
                   : SW_FAIL(SW_E_ARG,
                             "plan: buffer %d is used from instruction %d to %d, in several phases "
                             "or by messages, and shares its memory",
                             b, use->first, use->last);
    }
    const bool is_input =
        buffer->value >= 0 && program->ir->values[buffer->value].role == SW_ROLE_INPUT;
    const struct sw_pipe_phase start = {.segment = SW_SEGMENT_FORWARD};
    const int64_t slots =
        buffer->micro_bytes > 0 ? (int64_t)(buffer->bytes / buffer->micro_bytes) : 1;
    return is_free_again(c, is_input ? &start : &from, &until, use, slots)
               ? SW_OK
               : SW_FAIL(SW_E_ARG, "plan: buffer %d has %lld slots, and needs more", b,
                         (long long)slots);
}

static sw_status check_buffers(const struct check *c)
{
    SW_TRY(find_uses(c));
    for (int32_t b = 0; b < c->program->n_buffers; b++) {
        SW_TRY(check_buffer(c, b));
    }
    return SW_OK;
}

sw_status sw_plan_check_phases(const struct sw_program *program,
                               const struct sw_plan_options *options)
{
    struct check c = {.program = program, .late = sw_stage_late(options)};
    struct sw_pipe_phase *phases;
    SW_TRY(sw_stage_phases(options, &phases, &c.n));
    c.phases = phases;
    c.uses = sw_alloc("plan", ((size_t)program->n_buffers + 1) * sizeof *c.uses);
    const sw_status st = c.uses ? check_buffers(&c)
                                : SW_FAIL(SW_E_NOMEM, "out of host memory for checking the plan");
    sw_free(c.uses);
    sw_free(phases);
    return st;
}
