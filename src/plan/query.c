// SPDX-License-Identifier: Apache-2.0
// Questions about ops and programs: those that several passes ask, and those of other rooms.
#include "plan/private.h"

enum sw_segment sw_op_segment(const struct sw_ir_op *op)
{
    if (op->in_backward || op->phase == SW_PHASE_BACKWARD) {
        return op->chunk.of_weights ? SW_SEGMENT_WEIGHTS : SW_SEGMENT_BACKWARD;
    }
    return op->commits                                             ? SW_SEGMENT_COMMIT
           : op->phase == SW_PHASE_UPDATE && !op->chunk.in_forward ? SW_SEGMENT_UPDATE
                                                                   : SW_SEGMENT_FORWARD;
}

struct sw_instr_range sw_program_range(const struct sw_program *program, enum sw_segment segment,
                                       int chunk)
{
    const int key = sw_range_key(segment, chunk);
    struct sw_instr_range out;
    for (int side = 0; side < 2; side++) { /* the first instruction with this key, or a later one */
        int32_t low = program->segment_first[segment], high = program->segment_first[segment + 1];
        while (low < high) {
            const int32_t middle = low + (high - low) / 2;
            const bool before = sw_instr_key(&program->instrs[middle]) < key + side;
            *(before ? &low : &high) = middle + before;
        }
        *(side ? &out.end : &out.first) = low;
    }
    return out;
}

/* The scope of the block that contains the op; -1 = none. */
static int32_t block_of(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    int32_t scope = op->scope;
    while (scope >= 0 && !ir->scopes[scope].is_block) {
        scope = ir->scopes[scope].parent;
    }
    return scope;
}

bool sw_ir_is_in_block(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return block_of(ir, op) >= 0;
}

int64_t sw_ir_block_segment(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    const int32_t scope = block_of(ir, op);
    const int64_t place = scope >= 0 ? scope : ir->n_scopes + op->scope;
    return place * SW_SEGMENT_COUNT + (int64_t)sw_op_segment(op);
}

struct sw_places sw_places_of(const struct sw_plan_options *options)
{
    return (struct sw_places){
        .now = -1, .before = -1, .alone = sw_schedule_info(options->policy.schedule)->pipe};
}

void sw_places_enter(struct sw_places *places, int64_t place)
{
    if (place != places->now) {
        places->before = places->now;
        places->now = place;
    }
}

bool sw_places_reach(const struct sw_places *places, int64_t place)
{
    return place >= 0 && (place == places->now || (place == places->before && !places->alone));
}

size_t sw_program_address(const struct sw_program *program, sw_value v)
{
    const struct sw_ir_value *info = &program->ir->values[v];
    const int32_t buffer = program->buffer_of[sw_ir_root(program->ir, v)];
    SW_ASSERT(buffer >= 0);
    return program->buffers[buffer].offset +
           (size_t)info->base_offset * sw_dtype_bytes(info->dtype);
}

struct sw_transfers sw_plan_transfers(const struct sw_plan *plan, int64_t rounds)
{
    const struct sw_program *program = &plan->programs[0];
    const struct sw_ir *ir = program->ir;
    struct sw_transfers sum = {0};
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        const bool once = op->phase == SW_PHASE_UPDATE || program->micro_batches > 1 ||
                          program->instrs[i].turn.once;
        const bool again = program->instrs[i].turn.for_next; /* instead of one in forward */
        const int64_t times = again ? 0 : once ? 1 : rounds;
        if (sw_ir_is_transfer(op)) {
            const struct sw_ir_value *home = &ir->values[sw_ir_root(ir, op->in[0])];
            (op->move == SW_MOVE_LOAD ? sum.in : sum.out)[home->tier] +=
                times * (int64_t)sw_transfer_bytes(ir, op);
        }
    }
    return sum;
}

int64_t sw_plan_group_bytes(const struct sw_plan *plan, int group)
{
    const struct sw_group *who = &plan->groups[group];
    int64_t sum = 0;
    for (int32_t p = 0; p < plan->step.n_phases; p++) {
        const struct sw_step_phase *phase = &plan->step.phases[p];
        const struct sw_program *program = &plan->programs[phase->program];
        const struct sw_instr_range range = sw_program_range(program, phase->segment, phase->chunk);
        for (int32_t i = range.first; phase->action == SW_STEP_RUN && i < range.end; i++) {
            const struct sw_instr *instr = &program->instrs[i];
            const bool runs = (phase->is_last || !instr->last_only) &&
                              (phase->is_first || !instr->turn.first_only) &&
                              (phase->round == 0 || !instr->turn.once);
            if (runs && sw_instr_exchanges(instr) && instr->exchange.group == group) {
                sum += sw_instr_traffic(instr, who->n, who->me).sent;
            }
        }
    }
    return sum;
}

const struct sw_ir_op *sw_program_peak(const struct sw_program *program)
{
    return &program->ir->ops[program->instrs[program->peak.instr].op];
}

/* ---- for other rooms, which see no list ---- */

struct sw_instr_op sw_instr_op(const struct sw_program *program, int32_t i)
{
    const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
    return (struct sw_instr_op){.math = sw_ir_math(program->ir, op),
                                .attrs = sw_ir_attrs(op),
                                .micro = op->micro,
                                .is_clone = op->is_clone};
}

struct sw_value_facts sw_program_value(const struct sw_program *program, sw_value v)
{
    const struct sw_ir_value *value = &program->ir->values[v];
    return (struct sw_value_facts){.name = value->producer < 0 ? value->name : NULL,
                                   .role = value->role,
                                   .dtype = value->dtype,
                                   .micro = value->micro,
                                   .whole_elems = sw_shape_elems(&value->form->layout.whole),
                                   .bytes = sw_ir_bytes(value)};
}

int32_t sw_program_n_values(const struct sw_program *program)
{
    return program->ir->n_values;
}

const sw_value *sw_program_params(const struct sw_program *program, int32_t *out_n)
{
    *out_n = program->ir->params.n;
    return program->ir->params.at;
}

int32_t sw_program_n_streams(const struct sw_program *program)
{
    return program->ir->n_streams;
}

sw_value sw_program_stream_param(const struct sw_program *program, int32_t i)
{
    return program->ir->streams[i].param;
}

/* The parameter of v, or the tile that it belongs to. */
static sw_value param_of(const struct sw_ir *ir, sw_value v)
{
    const sw_value root = sw_ir_root(ir, v);
    /* a pack has views, each for one parameter */
    const bool in_pack = root != v && ir->values[root].param < 0;
    return ir->values[root].role == SW_ROLE_PARAM ? root : ir->values[in_pack ? v : root].param;
}

struct sw_exchanged sw_instr_exchanged(const struct sw_program *program, int32_t i)
{
    const struct sw_ir *ir = program->ir;
    const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
    const int32_t grad = op->move == SW_MOVE_REDUCE ? ir->values[op->in[1]].producer : -1;
    return (struct sw_exchanged){.param = param_of(ir, op->in[0]),
                                 .elems = ir->values[op->in[0]].form->elems,
                                 .is_row_sparse =
                                     grad >= 0 && sw_ir_has(&ir->ops[grad], SW_TRAIT_DENSE)};
}

/* Marks the roots of gradients on their way to the owners of their slices. leaves: [n_values] */
static void find_leaving(const struct sw_ir *ir, bool *leaves)
{
    for (int32_t i = 0; i < ir->n_ops; i++) {
        if (ir->ops[i].move == SW_MOVE_REDUCE) {
            leaves[sw_ir_root(ir, ir->ops[i].in[1])] = true;
        }
    }
}

/* True for a parameter or an optimizer state, or a pack of them; false for offloaded
 * activations. */
static bool is_of_the_model(const struct sw_ir *ir, sw_value v)
{
    const enum sw_role role = ir->values[sw_ir_root(ir, v)].role;
    return role == SW_ROLE_PARAM || role == SW_ROLE_STATE;
}

static enum sw_buffer_use use_of(const struct sw_program *program, const struct sw_buffer *buffer,
                                 const bool *leaves)
{
    const struct sw_ir *ir = program->ir;
    if (buffer->value < 0) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[buffer->first].op];
        return sw_ir_is_collective(op) ? SW_USE_ARRIVING : SW_USE_WORKSPACE;
    }
    const struct sw_ir_value *info = &ir->values[buffer->value];
    const struct sw_ir_op *op = info->producer >= 0 ? &ir->ops[info->producer] : NULL;
    if (op && op->move == SW_MOVE_GATHER) {
        return SW_USE_GATHERED;
    }
    if (op && op->move == SW_MOVE_LOAD && is_of_the_model(ir, op->in[0])) {
        return SW_USE_LOADED;
    }
    return info->role == SW_ROLE_GRAD || leaves[buffer->value] ? SW_USE_GRADIENT
                                                               : SW_USE_ACTIVATION;
}

sw_status sw_program_uses(const struct sw_program *program, enum sw_buffer_use *out)
{
    bool *leaves = sw_alloc_zero("plan", (size_t)program->ir->n_values + 1, sizeof *leaves);
    SW_TRY_ALLOC(leaves, "a table of the plan");
    find_leaving(program->ir, leaves);
    for (int32_t i = 0; i < program->n_buffers; i++) {
        out[i] = use_of(program, &program->buffers[i], leaves);
    }
    sw_free(leaves);
    return SW_OK;
}
