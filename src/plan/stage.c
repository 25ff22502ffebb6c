// SPDX-License-Identifier: Apache-2.0
// The cut of a pipeline. The blocks are divided into parts; a stage has a part, or several that are
// its chunks. The first part also has what comes before the blocks, and the last one what comes
// after them. Views, and ops that depend on nothing but inputs, are repeated on each stage.
//
// A value that a later part needs is handed on from each part to the next, and a gradient in the
// other direction, until all stages have it. Forward and backward of a chunk begin with what they
// receive and end with what they send, in the order of the values. All ranks cut the same list, so
// both sides of a message agree. Outside of training, the stage that makes an output then sends it
// to the stages that lack it.
//
// If weights have a segment, ops of backward that make only gradients of parameters go there.
#include <string.h>

#include "plan/private.h"

enum { EVERYWHERE = -1 };

struct pass {
    struct sw_ir *ir;
    struct sw_stage_cut cut;
    int stages, me;
    int parts;       /* stages * chunks; part c * stages + s is chunk c of stage s */
    int *block_part; /* [n_scopes] part of the block around a scope; -1 = in no block */
    int *op_part;    /* [n_ops] or EVERYWHERE */
    /* [n_values] part that makes a value, or EVERYWHERE; then the first and last that need it */
    int *home, *first, *last;
    bool *is_grad;     /* [n_values] it is a gradient of a parameter, which no op reads */
    bool *goes_to_all; /* [n_values] it is an output that all stages get */
    sw_value n_values; /* of the whole model; the pass adds more */
    struct sw_op_order order;
};

/* ---- where ops belong ---- */

static int part_of_block(const struct pass *p, int block)
{
    int part = 0;
    while (part < p->parts - 1 && block >= p->cut.bounds[part + 1]) {
        part++;
    }
    return part;
}

static void place_blocks(const struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    for (int32_t i = 0; i < ir->n_scopes; i++) {
        const int32_t parent = ir->scopes[i].parent;
        p->block_part[i] = ir->scopes[i].is_block
                               ? part_of_block(p, sw_blocks_find(p->cut.blocks, ir->scopes[i].name))
                           : parent >= 0 ? p->block_part[parent]
                                         : -1;
    }
}

static int part_of_scope(const struct pass *p, const struct sw_ir_op *op)
{
    return op->scope >= 0 ? p->block_part[op->scope] : -1;
}

static bool is_leaf(const struct sw_ir *ir, sw_value v)
{
    return ir->values[v].producer < 0;
}

/* True if the op depends on nothing but inputs and constants, so that every stage can repeat it. */
static bool is_free(const struct pass *p, const struct sw_ir_op *op)
{
    const struct sw_ir *ir = p->ir;
    bool is = op->phase == SW_PHASE_FORWARD;
    for (int k = 0; k < op->n_in && is; k++) {
        const struct sw_ir_value *root = &ir->values[sw_ir_root(ir, op->in[k])];
        is = is_leaf(ir, op->in[k])
                 ? root->role == SW_ROLE_INPUT || (root->role == SW_ROLE_STATE && root->form->data)
                 : p->home[op->in[k]] == EVERYWHERE && root->role != SW_ROLE_PARAM;
    }
    return is;
}

/* The furthest part that makes an operand in the op's own phase; `none` = there is no such one. */
static int furthest_maker(const struct pass *p, const struct sw_ir_op *op, int none)
{
    const bool forward = op->phase == SW_PHASE_FORWARD;
    int part = none;
    for (int k = 0; k < op->n_in; k++) {
        const int32_t producer = p->ir->values[op->in[k]].producer;
        const int home = p->home[op->in[k]];
        if (producer >= 0 && home != EVERYWHERE && p->ir->ops[producer].phase == op->phase) {
            part = (forward ? home > part : home < part) || part == none ? home : part;
        }
    }
    return part;
}

/* The ops of a phase that are in blocks, and the parts of what comes before and after them. */
struct extent {
    int32_t first_block, last_block;
    int before, after;
};

/* The number of the block around a scope; -1 = in no block */
static int block_of_scope(const struct pass *p, int32_t scope)
{
    while (scope >= 0 && !p->ir->scopes[scope].is_block) {
        scope = p->ir->scopes[scope].parent;
    }
    return scope < 0 ? -1 : sw_blocks_find(p->cut.blocks, p->ir->scopes[scope].name);
}

/* A program may have a part of the blocks only. What comes before its first block, and after its
 * last one, goes with that block, unless it is the first or the last one of the model. */
static struct extent find_extent(const struct pass *p, enum sw_phase phase)
{
    const bool forward = phase == SW_PHASE_FORWARD;
    struct extent e = {INT32_MAX, -1, forward ? 0 : p->parts - 1, forward ? p->parts - 1 : 0};
    for (int32_t i = 0; i < p->ir->n_ops; i++) {
        if (p->ir->ops[i].phase == phase && part_of_scope(p, &p->ir->ops[i]) >= 0) {
            e.first_block = i < e.first_block ? i : e.first_block;
            e.last_block = i;
        }
    }
    if (e.last_block >= 0 && forward) {
        const int first = block_of_scope(p, p->ir->ops[e.first_block].scope);
        const int last = block_of_scope(p, p->ir->ops[e.last_block].scope);
        e.before = first > 0 ? part_of_block(p, first) : e.before;
        e.after = last < p->cut.blocks->n - 1 ? part_of_block(p, last) : e.after;
    }
    return e;
}

/* The part of an op by its place in the list. Between blocks it goes with what it reads, or with
 * the next block. */
static int part_by_place(const struct pass *p, const struct extent *e, int32_t i)
{
    const struct sw_ir_op *op = &p->ir->ops[i];
    const int own = part_of_scope(p, op);
    if (own >= 0) {
        return own;
    }
    if (i < e->first_block || i > e->last_block) {
        return i < e->first_block ? e->before : e->after;
    }
    const int maker = furthest_maker(p, op, -1);
    int32_t next = i;
    while (maker < 0 && part_of_scope(p, &p->ir->ops[next]) < 0) {
        next++;
    }
    return maker >= 0 ? maker : part_of_scope(p, &p->ir->ops[next]);
}

/* Finds the parts of the ops of a phase, and of the values that they make. */
static sw_status place_ops(const struct pass *p, enum sw_phase phase)
{
    const struct sw_ir *ir = p->ir;
    const struct extent e = find_extent(p, phase);
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const struct sw_ir_op *op = &ir->ops[i];
        if (op->phase != phase) {
            continue;
        }
        const bool is_view = sw_ir_has(op, SW_TRAIT_VIEW);
        const int part = is_free(p, op) ? EVERYWHERE
                         : is_view      ? p->home[op->in[0]]
                                        : part_by_place(p, &e, i);
        const int maker = is_view ? part : furthest_maker(p, op, part);
        if (phase == SW_PHASE_FORWARD ? maker > part : maker < part) {
            return SW_FAIL(SW_E_UNSUP,
                           "spillway.mesh.pipe: %s in %s is on stage %d, but reads a value of "
                           "stage %d, which the step makes later",
                           sw_ir_op_name(op), sw_ir_where(ir, op), part % p->stages,
                           maker % p->stages);
        }
        p->op_part[i] = is_view ? EVERYWHERE : part;
        for (int k = 0; k < op->n_out; k++) {
            if (op->out[k] >= 0) {
                p->home[op->out[k]] = part;
            }
        }
    }
    return SW_OK;
}

/* ---- what travels ---- */

/* True if the value is the bytes of a message. Another one is copied before it is sent. */
static bool is_packed(const struct sw_ir_value *info)
{
    return info->base < 0 && info->form->contiguous;
}

/* True if a message can carry the value. Views of it keep their strides, so it must, too. */
static bool can_travel(const struct sw_ir *ir, sw_value v)
{
    bool can = true;
    for (int32_t i = 0; i < ir->n_ops && !ir->values[v].form->contiguous; i++) {
        can = can && !(sw_ir_has(&ir->ops[i], SW_TRAIT_VIEW) && ir->ops[i].in[0] == v);
    }
    return can;
}

/* Notes that a part reads a value. */
static sw_status reach(const struct pass *p, const struct sw_ir_op *reader, int part, sw_value v)
{
    const struct sw_ir *ir = p->ir;
    const sw_value source = sw_ir_version(ir, v);
    const int home = p->home[source];
    if (home == EVERYWHERE || home == part) {
        return SW_OK;
    }
    const struct sw_ir_value *info = &ir->values[source];
    const bool forward = ir->ops[info->producer].phase == SW_PHASE_FORWARD;
    if ((home < part) != forward || !can_travel(ir, source)) {
        return SW_FAIL(SW_E_UNSUP,
                       "spillway.mesh.pipe: %s in %s on stage %d reads what %s in %s on stage %d "
                       "makes; such a value is not sent",
                       sw_ir_op_name(reader), sw_ir_where(ir, reader), part % p->stages,
                       sw_ir_op_name(&ir->ops[info->producer]),
                       sw_ir_where(ir, &ir->ops[info->producer]), home % p->stages);
    }
    p->first[source] = part < p->first[source] ? part : p->first[source];
    p->last[source] = part > p->last[source] ? part : p->last[source];
    return SW_OK;
}

/* Notes the outputs that all stages get. */
static sw_status find_outputs(const struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    for (int32_t i = 0; i < ir->outputs.n && !p->cut.trains; i++) {
        const sw_value v = sw_ir_version(ir, ir->outputs.at[i].value);
        if (p->home[v] != EVERYWHERE && !can_travel(ir, v)) {
            return SW_FAIL(SW_E_UNSUP,
                           "spillway.mesh.pipe: the output \"%s\" of stage %d is a view with gaps; "
                           "such a value is not sent",
                           ir->outputs.at[i].name, p->home[v] % p->stages);
        }
        p->goes_to_all[v] = p->home[v] != EVERYWHERE;
    }
    return SW_OK;
}

static sw_status find_travels(const struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    for (sw_value v = 0; v < ir->n_values; v++) {
        p->first[v] = p->last[v] = p->home[v];
    }
    for (int32_t i = 0; i < ir->n_ops; i++) {
        for (int k = 0; k < ir->ops[i].n_in && p->op_part[i] != EVERYWHERE; k++) {
            SW_TRY(reach(p, &ir->ops[i], p->op_part[i], ir->ops[i].in[k]));
        }
    }
    return SW_OK;
}

/* True if the part is a chunk of this stage. */
static bool is_mine(const struct pass *p, int part)
{
    return part >= 0 && part % p->stages == p->me;
}

/* The first part of a stage that backward reaches. */
static int last_part(const struct pass *p, int stage)
{
    return p->parts - p->stages + stage;
}

/* True if the part makes the value or gets it from a neighbour. Further parts are on stages that
 * have it already. */
static bool gets(const struct pass *p, sw_value v, int part)
{
    const int home = p->home[v], far = part > home ? part - home : home - part;
    return home != EVERYWHERE && far < p->stages && p->first[v] <= part && part <= p->last[v];
}

/* The part of a stage that makes, repeats or gets the value; -1 = the stage lacks it. */
static int entry_of(const struct pass *p, int stage, sw_value v)
{
    int part = p->home[v] == EVERYWHERE ? stage : last_part(p, stage);
    while (part >= 0 && p->home[v] != EVERYWHERE && !gets(p, v, part)) {
        part -= p->stages;
    }
    return part < 0 ? -1 : part;
}

static bool has(const struct pass *p, int stage, sw_value v)
{
    return entry_of(p, stage, v) >= 0;
}

/* True if this stage has the value. */
static bool is_here(const struct pass *p, sw_value v)
{
    return has(p, p->me, v) || p->goes_to_all[v];
}

/* True for a view of an output of another stage, which comes last. */
static bool is_late(const struct pass *p, const struct sw_ir_op *op)
{
    return sw_ir_has(op, SW_TRAIT_VIEW) && !has(p, p->me, sw_ir_version(p->ir, op->in[0]));
}

/* ---- the list of this stage ---- */

/* The chunk of a part in the list. */
static int16_t chunk_of(const struct pass *p, int part)
{
    return (int16_t)(p->cut.trains ? part / p->stages : 0);
}

/* Adds a copy of the value that is the bytes of a message; SW_NO_VALUE = out of memory. */
static sw_value pack(struct pass *p, int part, sw_value v)
{
    struct sw_ir *ir = p->ir;
    const sw_value packed =
        sw_ir_new_value(ir, SW_ROLE_TRANSIENT, ir->values[v].dtype, ir->values[v].form->shape);
    struct sw_ir_op op = sw_ir_beside(SW_OP_CONTIGUOUS, &ir->ops[ir->values[v].producer]);
    op.chunk.number = chunk_of(p, part);
    op.n_in = op.n_out = 1;
    op.in[0] = v;
    op.out[0] = packed;
    return packed >= 0 && sw_op_order_add(&p->order, &op) ? packed : SW_NO_VALUE;
}

/* Gives a value that arrives, and the views of it, storage of their own: no op of this stage writes
 * it in place. */
static sw_value unpack(struct pass *p, sw_value v)
{
    struct sw_ir *ir = p->ir;
    const int64_t offset = ir->values[v].base_offset;
    const sw_value root = ir->values[v].base;
    for (sw_value u = 0; u < p->n_values && root >= 0; u++) {
        if (u != v && ir->values[u].base == root && sw_ir_version(ir, u) == v) {
            ir->values[u].base = v;
            ir->values[u].base_offset -= offset;
        }
    }
    ir->values[v].base = SW_NO_VALUE;
    ir->values[v].base_offset = 0;
    ir->values[v].role = SW_ROLE_TRANSIENT;
    sw_ir_reshape(ir, v, ir->values[v].form->shape); /* packed */
    return v;
}

static bool add_message(struct pass *p, enum sw_move move, int part, int peer, sw_value v)
{
    const bool sends = move == SW_MOVE_SEND;
    struct sw_ir_op op = sw_ir_move_beside(move, &p->ir->ops[p->ir->values[v].producer]);
    if (!is_packed(&p->ir->values[v])) {
        v = sends ? pack(p, part, v) : unpack(p, v);
    }
    if (v < 0) {
        return false;
    }
    op.scope = 0; /* it belongs to no block */
    op.chunk.number = chunk_of(p, part);
    op.exchange.group = (int8_t)p->cut.group;
    op.exchange.peer = (int16_t)peer;
    op.n_in = sends;
    op.n_out = !sends;
    *(sends ? &op.in[0] : &op.out[0]) = v;
    return sw_op_order_add(&p->order, &op);
}

/* Adds a message of each value that travels between a part of this stage and a neighbour of it. */
static bool add_messages(struct pass *p, enum sw_phase phase, int part, enum sw_move move)
{
    const struct sw_ir *ir = p->ir;
    const bool sends = move == SW_MOVE_SEND, up = (phase == SW_PHASE_FORWARD) == sends;
    const int other = part + (up ? 1 : -1), to = sends ? other : part;
    for (sw_value v = 0; v < p->n_values; v++) {
        const int32_t producer = ir->values[v].producer;
        if (producer < 0 || ir->ops[producer].phase != phase || p->home[v] == to ||
            sw_ir_has(&ir->ops[producer], SW_TRAIT_VIEW) || !gets(p, v, part) ||
            !gets(p, v, other)) {
            continue;
        }
        if (!add_message(p, move, part, other % p->stages, v)) {
            return false;
        }
    }
    return true;
}

/* Adds the messages that give outputs to the stages that lack them. */
static bool add_output_messages(struct pass *p)
{
    const int me = p->me;
    bool good = true;
    for (sw_value v = 0; v < p->n_values && good; v++) {
        if (!p->goes_to_all[v]) {
            continue;
        }
        for (int stage = 0; stage < p->stages && good && is_mine(p, p->home[v]); stage++) {
            good = has(p, stage, v) || add_message(p, SW_MOVE_SEND, me, stage, v);
        }
        good =
            good && (has(p, me, v) || add_message(p, SW_MOVE_RECV, me, p->home[v] % p->stages, v));
    }
    return good;
}

/* The part with which an op of this stage runs; -1 = it is not of this stage. A view comes with the
 * value that it looks at. If an earlier phase makes that, it comes with the first part of its own
 * phase. */
static int runs_with(const struct pass *p, int32_t i)
{
    const struct sw_ir *ir = p->ir;
    const struct sw_ir_op *op = &ir->ops[i];
    if (p->op_part[i] != EVERYWHERE) {
        return is_mine(p, p->op_part[i]) ? p->op_part[i] : -1;
    }
    if (!sw_ir_has(op, SW_TRAIT_VIEW)) {
        return p->me;
    }
    const sw_value source = sw_ir_version(ir, op->in[0]);
    if (!is_here(p, source)) {
        return -1;
    }
    const bool is_older =
        is_leaf(ir, source) || ir->ops[ir->values[source].producer].phase != op->phase;
    return op->phase == SW_PHASE_BACKWARD && is_older ? last_part(p, p->me)
           : has(p, p->me, source)                    ? entry_of(p, p->me, source)
                                                      : p->me;
}

/* True if the op makes nothing but gradients of parameters, and they have a segment. */
static bool is_of_weights(const struct pass *p, const struct sw_ir_op *op)
{
    bool is = p->cut.trains && p->cut.has_weights && op->phase == SW_PHASE_BACKWARD;
    for (int k = 0; k < op->n_out && is; k++) {
        is = op->out[k] < 0 || p->is_grad[op->out[k]];
    }
    return is;
}

/* Adds the ops of a part in a phase, or its ops of weights only. late: views of outputs of other
 * stages */
static bool add_ops(struct pass *p, enum sw_phase phase, int part, bool of_weights, bool late)
{
    const struct sw_ir *ir = p->ir;
    bool good = true;
    for (int32_t i = 0; i < ir->n_ops && good; i++) {
        struct sw_ir_op op = ir->ops[i];
        if (op.phase == phase && runs_with(p, i) == part && is_of_weights(p, &op) == of_weights &&
            is_late(p, &op) == late) {
            op.chunk = (struct sw_ir_chunk){chunk_of(p, part), of_weights, false};
            good = sw_op_order_add(&p->order, &op);
        }
    }
    return good;
}

/* Adds the ops of a part in a phase, and its messages. */
static bool add_part(struct pass *p, enum sw_phase phase, int part)
{
    return add_messages(p, phase, part, SW_MOVE_RECV) && add_ops(p, phase, part, false, false) &&
           add_messages(p, phase, part, SW_MOVE_SEND);
}

/* Adds all ops of this stage: forward from its first part to its last, backward and weights from
 * the last to the first. */
static bool add_all(struct pass *p)
{
    const int last = last_part(p, p->me);
    bool good = true;
    for (int part = p->me; part <= last && good; part += p->stages) {
        good = add_part(p, SW_PHASE_FORWARD, part);
    }
    good = good && add_output_messages(p) && add_ops(p, SW_PHASE_FORWARD, p->me, false, true);
    for (int part = last; part >= 0 && good; part -= p->stages) {
        good = add_part(p, SW_PHASE_BACKWARD, part);
    }
    for (int part = last; part >= 0 && good; part -= p->stages) {
        good = add_ops(p, SW_PHASE_BACKWARD, part, true, false);
    }
    return good;
}

/* Marks the gradients of parameters that no op reads. */
static void find_grads(const struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    for (int32_t i = 0; i < ir->n_streams; i++) {
        const sw_value grad = ir->streams[i].grad, index = ir->values[grad].sparse_index;
        p->is_grad[grad] = true;
        p->is_grad[index >= 0 ? index : grad] = true;
    }
    for (int32_t i = 0; i < ir->n_ops; i++) {
        for (int k = 0; k < ir->ops[i].n_in; k++) {
            p->is_grad[ir->ops[i].in[k]] = false;
        }
    }
}

/* Marks the values that this stage reads, and their storage. What it could repeat, but does not
 * read, does not count. used: [n_values] */
static void find_used(const struct pass *p, bool *used)
{
    const struct sw_ir *ir = p->ir;
    for (int32_t i = ir->n_ops - 1; i >= 0; i--) {
        const struct sw_ir_op *op = &ir->ops[i];
        bool runs = is_mine(p, p->op_part[i]);
        for (int k = 0; k < op->n_out && p->op_part[i] == EVERYWHERE; k++) {
            runs = runs || (op->out[k] >= 0 && used[op->out[k]]);
        }
        for (int k = 0; k < op->n_in && runs; k++) {
            used[op->in[k]] = used[sw_ir_root(ir, op->in[k])] = true;
        }
    }
}

/* Drops the outputs of other stages, and the parameters and states that this one does not read.
 * Streams of other stages stay if this one has a copy of their parameter. */
static void drop_others(const struct pass *p, const bool *used)
{
    struct sw_ir *ir = p->ir;
    int32_t n = 0;
    for (sw_value v = 0; v < p->n_values; v++) {
        struct sw_ir_value *info = &ir->values[v];
        const bool is_kept = info->role == SW_ROLE_PARAM || info->role == SW_ROLE_STATE;
        info->role = is_kept && !used[sw_ir_root(ir, v)] ? SW_ROLE_TRANSIENT : info->role;
        info->is_output = info->is_output &&
                          (!p->cut.trains || p->home[v] == EVERYWHERE || is_mine(p, p->home[v]));
    }
    for (int32_t i = 0; i < ir->params.n; i++) {
        const bool is_here = ir->values[ir->params.at[i]].role == SW_ROLE_PARAM;
        *(is_here ? &ir->params.at[n++] : &ir->params.absent[ir->params.n_absent++]) =
            ir->params.at[i];
    }
    ir->params.n = n;
    n = 0;
    for (int32_t i = 0; i < ir->n_streams; i++) {
        struct sw_ir_stream stream = ir->streams[i];
        const int home = p->home[stream.grad];
        stream.from = is_mine(p, home) ? 0 : 1 + home % p->stages;
        if (ir->values[stream.param].role == SW_ROLE_PARAM) {
            ir->streams[n++] = stream;
        }
    }
    ir->n_streams = n;
    n = 0;
    for (int32_t i = 0; i < ir->outputs.n; i++) {
        if (ir->values[ir->outputs.at[i].value].is_output) {
            ir->outputs.at[n++] = ir->outputs.at[i];
        }
    }
    ir->outputs.n = n;
}

/* Makes the list of this stage. used: [n_values], all false */
static sw_status make_list(struct pass *p, bool *used)
{
    SW_TRY(sw_op_order_open(&p->order, p->ir));
    find_grads(p);
    if (!add_all(p)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    }
    p->ir->params.absent =
        sw_alloc("plan", ((size_t)p->ir->params.n + 1) * sizeof *p->ir->params.absent);
    SW_TRY_ALLOC(p->ir->params.absent, "the plan");
    find_used(p, used);
    sw_op_order_install(&p->order, p->ir);
    drop_others(p, used);
    return SW_OK;
}

static sw_status cut(struct pass *p)
{
    const int n_blocks = p->cut.blocks->n;
    if (n_blocks < p->parts) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.mesh.pipe: wanted at most a chunk for each of the %d blocks of "
                       "the model, got %d stages with %d each",
                       n_blocks, p->stages, p->cut.chunks);
    }
    place_blocks(p);
    SW_TRY(place_ops(p, SW_PHASE_FORWARD));
    SW_TRY(place_ops(p, SW_PHASE_BACKWARD));
    SW_TRY(find_travels(p));
    SW_TRY(find_outputs(p));
    SW_TRY(sw_ir_list_holders(p->ir, p->op_part, p->stages));
    p->ir->params.pipe = p->cut.group;
    bool *used = sw_alloc_zero("plan", (size_t)p->ir->n_values + 1, sizeof *used);
    SW_TRY_ALLOC(used, "the plan");
    const sw_status st = make_list(p, used);
    sw_free(used);
    return st;
}

sw_status sw_pass_stage(struct sw_ir *ir, const struct sw_stage_cut *of)
{
    const struct sw_group *group = &ir->groups[of->group];
    struct pass p = {.ir = ir,
                     .cut = *of,
                     .stages = group->n,
                     .me = group->me,
                     .parts = group->n * of->chunks,
                     .n_values = ir->n_values};
    const size_t n_values = (size_t)ir->n_values + 1;
    p.block_part = sw_alloc("plan", ((size_t)ir->n_scopes + 1) * sizeof(int));
    p.op_part = sw_alloc("plan", ((size_t)ir->n_ops + 1) * sizeof(int));
    p.home = sw_alloc("plan", n_values * sizeof(int));
    p.first = sw_alloc("plan", n_values * sizeof(int));
    p.last = sw_alloc("plan", n_values * sizeof(int));
    p.is_grad = sw_alloc_zero("plan", n_values, sizeof *p.is_grad);
    p.goes_to_all = sw_alloc_zero("plan", n_values, sizeof *p.goes_to_all);
    sw_status st = SW_OK;
    if (!p.block_part || !p.op_part || !p.home || !p.first || !p.last || !p.is_grad ||
        !p.goes_to_all) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    } else {
        memset(p.home, 0xff, n_values * sizeof(int)); /* EVERYWHERE */
        st = cut(&p);
    }
    sw_op_order_close(&p.order);
    sw_free(p.block_part);
    sw_free(p.op_part);
    sw_free(p.home);
    sw_free(p.first);
    sw_free(p.last);
    sw_free(p.is_grad);
    sw_free(p.goes_to_all);
    return st;
}
