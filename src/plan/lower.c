// SPDX-License-Identifier: Apache-2.0
// The last pass stores in each instruction all that running it needs, as plain numbers: a verb,
// operands as ranges of an arena, what counts as moved or computed, and the words for messages. It
// also lists the inputs and outputs of the program. Code that runs, traces or predicts a plan reads
// these, and never the list.
#include <string.h>

#include "plan/private.h"

/* Bytes from the first element to the end of the last one, with strides; 0 if there are none. */
static size_t extent_of(const struct sw_ir_value *value)
{
    const struct sw_ir_form *form = value->form;
    int64_t last = 0;
    if (form->elems == 0) {
        return 0;
    }
    for (int d = 0; d < form->shape.rank; d++) {
        last += (form->shape.dims[d] - 1) * form->strides[d];
    }
    return (size_t)(last + 1) * sw_dtype_bytes(value->dtype);
}

/* The bytes of v in its arena. If v has no buffer, the tier is SW_TIER_COUNT. */
static struct sw_operand operand_of(const struct sw_program *program, sw_value v)
{
    const struct sw_ir *ir = program->ir;
    const int32_t b = v < 0 ? -1 : program->buffer_of[sw_ir_root(ir, v)];
    if (b < 0) {
        return (struct sw_operand){.tier = SW_TIER_COUNT};
    }
    const struct sw_ir_value *value = &ir->values[v];
    const struct sw_buffer *buffer = &program->buffers[b];
    const size_t bytes = extent_of(value);
    struct sw_ring ring = {buffer->slot_bytes, SW_PLAN_SLOTS,
                           buffer->is_late ? SW_RING_LATE : SW_RING_STEP};
    if (buffer->micro_bytes > 0) {
        const size_t n = buffer->bytes / buffer->micro_bytes;
        ring = (struct sw_ring){buffer->micro_bytes, (int32_t)n, SW_RING_MICRO};
    }
    return (struct sw_operand){
        .tier = buffer->tier,
        .offset = sw_program_address(program, v),
        .bytes = bytes,
        .room = value->base < 0 ? sw_ir_storage_bytes(value) : bytes,
        .ring = {ring, {.by = SW_RING_PIECE}},
    };
}

static void add_operand(struct sw_program *program, struct sw_instr *instr,
                        const struct sw_operand *operand)
{
    program->operands[program->n_operands++] = *operand;
    instr->n_in++;
}

/* A parameter that stays on the device and is stored on disk moves its exact bytes; all other
 * tensors move whole disk blocks. */
static size_t moved_bytes(const struct sw_program *program, const struct sw_ir_op *op,
                          sw_value here)
{
    const struct sw_ir *ir = program->ir;
    const struct sw_buffer *buffer = &program->buffers[program->buffer_of[sw_ir_root(ir, here)]];
    return sw_ir_is_on_disk(ir, op->in[0]) && !buffer->persistent ? sw_transfer_disk_bytes(ir, op)
                                                                  : sw_transfer_bytes(ir, op);
}

static void take_turns(const struct sw_program *program, sw_value v, struct sw_operand *operand)
{
    const struct sw_ir_value *root = &program->ir->values[sw_ir_root(program->ir, v)];
    operand->ring[1] = (struct sw_ring){sw_ir_turn_bytes(root), program->turns, SW_RING_PIECE};
}

/* Sets the ranges that a transfer moves, and how far they advance from piece to piece. */
static void lower_transfer(struct sw_program *program, struct sw_instr *instr,
                           const struct sw_ir_op *op, struct sw_operand operands[SW_MOVE_OPERANDS])
{
    struct sw_operand *there = &operands[0], *here = &operands[1];
    const int64_t pieces = sw_instr_pieces(program, instr);
    if (!sw_ir_moves_rows(op)) {
        there->offset += (size_t)op->first * sw_dtype_bytes(program->ir->values[op->in[0]].dtype);
        there->bytes = here->bytes = moved_bytes(program, op, sw_ir_moved(op)) / (size_t)pieces;
    }
    if (pieces > 1) {
        there->ring[1].stride = there->bytes;
        take_turns(program, sw_ir_moved(op), here);
    }
    instr->bytes = (int64_t)sw_transfer_bytes(program->ir, op) / pieces;
    if (sw_ir_waits_for_router(op)) {
        const struct sw_shape *offsets = &program->ir->values[op->in[1]].form->shape;
        const struct sw_experts_attrs *experts = &op->detail->attrs.experts;
        instr->turn.chosen.first = (int32_t)experts->expert;
        instr->turn.chosen.n = (int32_t)experts->n;
        instr->turn.chosen.of = (int32_t)sw_shape_last(offsets) - SW_OFFSETS_BEHIND;
    }
}

/* The slot of what an update within the next forward reads or writes. */
static void choose_late_slot(const struct sw_ir *ir, const struct sw_instr *instr,
                             const struct sw_ir_op *op, struct sw_operand *operand)
{
    struct sw_ring *ring = &operand->ring[0];
    if (ring->by == SW_RING_LATE && sw_state_is_sum(ir->values[sw_ir_root(ir, op->in[0])].state)) {
        ring->by = op->chunk.in_forward ? SW_RING_KEPT : SW_RING_MADE;
    } else if (op->move == SW_MOVE_LOAD &&
               (sw_ir_is_renewed(ir, op->in[0]) || instr->turn.for_next)) {
        ring->by = SW_RING_NEWEST;
    }
}

static void lower_move(struct sw_program *program, struct sw_instr *instr,
                       const struct sw_ir_op *op)
{
    sw_value values[SW_MOVE_OPERANDS];
    struct sw_operand operands[SW_MOVE_OPERANDS];
    const int n = sw_move_operands(op, values);
    for (int k = 0; k < n; k++) {
        operands[k] = operand_of(program, values[k]);
    }
    if (sw_ir_is_transfer(op)) {
        instr->verb = sw_move_info(op->move)->verb[operands[0].tier == SW_TIER_DISK];
        choose_late_slot(program->ir, instr, op, &operands[0]);
        lower_transfer(program, instr, op, operands);
    } else {
        sw_exchange_describe(program->ir, op, instr);
    }
    for (int k = 0; k < n; k++) {
        add_operand(program, instr, &operands[k]);
    }
}

/* A kernel operand that is longer than a piece is not moved; the kernel advances through it. */
static void step_by_pieces(const struct sw_program *program, const struct sw_ir_op *op, sw_value v,
                           struct sw_operand *operand)
{
    const struct sw_ir *ir = program->ir;
    const struct sw_ir_value *value = &ir->values[v], *piece = &ir->values[op->in[1]];
    if (ir->values[sw_ir_root(ir, v)].takes_turns) {
        take_turns(program, v, operand);
    } else if (value->form->elems > piece->form->elems) {
        operand->ring[1].stride = operand->bytes = operand->room =
            (size_t)piece->form->elems * sw_dtype_bytes(value->dtype);
    }
}

static void lower_kernel(struct sw_program *program, struct sw_instr *instr,
                         const struct sw_ir_op *op)
{
    instr->verb = SW_VERB_KERNEL;
    for (int k = 0; k < op->n_in + op->n_out; k++) {
        const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
        struct sw_operand *operand = &program->operands[program->n_operands++];
        *operand = operand_of(program, v);
        if (instr->turn.loop > 0 && v >= 0) {
            step_by_pieces(program, op, v, operand);
        }
    }
    instr->n_in = (int8_t)op->n_in;
    instr->n_out = (int8_t)op->n_out;
}

static void lower_instr(struct sw_program *program, struct sw_instr *instr)
{
    const struct sw_ir *ir = program->ir;
    const struct sw_ir_op *op = &ir->ops[instr->op];
    instr->operands = program->n_operands;
    instr->n_in = instr->n_out = 0;
    instr->micro = op->phase == SW_PHASE_UPDATE || op->in_backward ? -1 : op->micro;
    instr->flops = sw_ir_flops(ir, op);
    if (op->move != SW_MOVE_NONE) {
        lower_move(program, instr, op);
    } else {
        lower_kernel(program, instr, op);
    }
}

/* ---- ports ---- */

static struct sw_port port_of(const struct sw_program *program, const char *name, sw_value v)
{
    const struct sw_ir_value *value = &program->ir->values[v];
    return (struct sw_port){.name = name,
                            .micro = value->micro,
                            .dtype = value->dtype,
                            .shape = value->form->shape,
                            .at = operand_of(program, v),
                            .slot = {.tier = SW_TIER_COUNT}};
}

/* The inputs of a micro-step wait in host memory after the staging area, in the order of its
 * ports. */
static struct sw_operand slot_of(const struct sw_plan *plan, const struct sw_program *program,
                                 const struct sw_port *port)
{
    const size_t bytes = sw_port_bytes(port);
    size_t at = plan->staging.bytes;
    for (const struct sw_port *p = program->ports.inputs; p < port; p++) {
        at += p->micro == port->micro ? sw_round_up(sw_port_bytes(p), SW_PLAN_ALIGN) : 0;
    }
    return (struct sw_operand){
        .offset = at,
        .bytes = bytes,
        .room = bytes,
        .tier = SW_TIER_HOST,
        .ring = {{.stride = plan->staging.input_bytes, .by = SW_RING_MICRO}}};
}

/* Lists inputs and outputs. Inputs of the first program get a slot in host memory if the plan has
 * room for them. */
static sw_status list_ports(const struct sw_plan *plan, struct sw_program *program)
{
    const struct sw_ir *ir = program->ir;
    int32_t n = 0;
    for (sw_value v = 0; v < ir->n_values; v++) {
        n += ir->values[v].role == SW_ROLE_INPUT && ir->values[v].producer < 0;
    }
    program->ports.inputs = sw_alloc("plan", ((size_t)n + 1) * sizeof *program->ports.inputs);
    program->ports.outputs =
        sw_alloc("plan", ((size_t)ir->outputs.n + 1) * sizeof *program->ports.outputs);
    SW_TRY_ALLOC(program->ports.inputs, "the plan");
    SW_TRY_ALLOC(program->ports.outputs, "the plan");
    for (sw_value v = 0; v < ir->n_values; v++) {
        if (ir->values[v].role == SW_ROLE_INPUT && ir->values[v].producer < 0) {
            struct sw_port *port = &program->ports.inputs[program->ports.n_inputs++];
            *port = port_of(program, ir->values[v].name, v);
            if (plan->staging.input_bytes > 0 && program == plan->programs &&
                port->at.tier != SW_TIER_COUNT) {
                port->slot = slot_of(plan, program, port);
            }
        }
    }
    for (int32_t i = 0; i < ir->outputs.n; i++) {
        const struct sw_ir_output *output = &ir->outputs.at[i];
        struct sw_port *port = &program->ports.outputs[program->ports.n_outputs++];
        *port = port_of(program, output->name, output->value);
        port->param = output->param >= 0 ? ir->values[output->param].name : NULL;
        port->kind = output->kind;
        port->use = output->use;
    }
    return SW_OK;
}

/* Notes the queues that exchanges of these groups may use. It does not ask the instructions: all
 * ranks of a mesh must get the same shares. */
static void find_exchanges(const struct sw_plan *plan, bool out[SW_QUEUE_COUNT])
{
    out[SW_QUEUE_COMM] = true;
    for (int g = 0; g < plan->n_groups; g++) {
        const unsigned axes = plan->groups[g].axes;
        out[sw_exchange_queue(axes, SW_VERB_GATHER)] = true;
        for (int q = SW_QUEUE_SENT; q <= SW_QUEUE_RECEIVED_BACK; q++) {
            out[q] |= axes == 1U << SW_AXIS_PIPE;
        }
    }
}

/* Each queue has staging memory of its own, so that queues do not wait for each other. Half of it
 * is for exchanges, since ranks exchange many shards at once. Copies between tiers need it for row
 * indices only. */
void sw_plan_share_staging(struct sw_plan *plan)
{
    static const int eighths[SW_QUEUE_COUNT] = {
        [SW_QUEUE_COMPUTE] = 1, [SW_QUEUE_H2D] = 1, [SW_QUEUE_READ] = 1, [SW_QUEUE_WRITE] = 1};
    const size_t eighth = plan->staging.bytes / 8 / SW_PLAN_DISK_ALIGN * SW_PLAN_DISK_ALIGN;
    bool exchanges[SW_QUEUE_COUNT] = {false};
    size_t at = 0, n = 0;
    find_exchanges(plan, exchanges);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        n += exchanges[q];
    }
    const size_t of_exchanges = 4 * eighth / n / SW_PLAN_DISK_ALIGN * SW_PLAN_DISK_ALIGN;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        const size_t bytes = exchanges[q] ? of_exchanges : (size_t)eighths[q] * eighth;
        plan->staging.share[q] = (struct sw_operand){.offset = at, .bytes = bytes, .room = bytes};
        plan->staging.share[q].tier = bytes > 0 ? SW_TIER_HOST : SW_TIER_COUNT;
        at += bytes;
    }
}

sw_status sw_pass_lower(struct sw_plan *plan, struct sw_program *program)
{
    size_t n = 1;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
        n += (size_t)(op->n_in + op->n_out);
    }
    program->operands = sw_alloc("plan", n * sizeof *program->operands);
    SW_TRY_ALLOC(program->operands, "the plan");
    for (int32_t i = 0; i < program->n_instrs; i++) {
        lower_instr(program, &program->instrs[i]);
    }
    sw_plan_share_staging(plan);
    SW_TRY(sw_pass_hazards(program));
    return list_ports(plan, program);
}

/* ---- queries ---- */

static const struct sw_port *find_port(const struct sw_port *ports, int32_t n, const char *name,
                                       int micro)
{
    for (int32_t i = 0; i < n; i++) {
        if (ports[i].micro == micro && strcmp(ports[i].name, name) == 0) {
            return &ports[i];
        }
    }
    return NULL;
}

const struct sw_port *sw_program_input(const struct sw_program *program, const char *name,
                                       int micro)
{
    return find_port(program->ports.inputs, program->ports.n_inputs, name, micro);
}

const struct sw_port *sw_program_output(const struct sw_program *program, const char *name,
                                        int micro)
{
    return find_port(program->ports.outputs, program->ports.n_outputs, name, micro);
}

const struct sw_port *sw_program_gradient(const struct sw_program *program, const char *param,
                                          enum sw_state_kind kind, int use)
{
    for (int32_t i = 0; i < program->ports.n_outputs; i++) {
        const struct sw_port *port = &program->ports.outputs[i];
        if (port->kind == kind && port->use == use && port->micro == 0 &&
            strcmp(port->param, param) == 0) {
            return port;
        }
    }
    return NULL;
}

size_t sw_port_bytes(const struct sw_port *port)
{
    return sw_shape_bytes(&port->shape, port->dtype);
}

void sw_program_describe(const struct sw_program *program, int32_t i, struct sw_op *op,
                         struct sw_op_desc *out)
{
    sw_ir_describe(program->ir, &program->ir->ops[program->instrs[i].op], op, out);
}
