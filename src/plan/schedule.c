// SPDX-License-Identifier: Apache-2.0
// Turns the ops of a graph into instructions. Unused results are dropped, views vanish, and each op
// gets a queue, a segment and a kernel. Gradients are accumulated as soon as they are final.
// Matrices are accumulated at once, vectors together at the end of their block, where a GPU adds
// all of them in one launch.
#include <string.h>

#include "plan/private.h"

/* True if an op is needed even if nothing reads its outputs. */
static bool has_effect(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    if (sw_ir_has(op, SW_TRAIT_SKIP) || op->move == SW_MOVE_SEND || op->move == SW_MOVE_RECV) {
        return true; /* it writes the scalar table, or another rank takes part in it */
    }
    for (int k = 0; k < op->n_out; k++) {
        if (op->out[k] < 0) {
            continue;
        }
        const struct sw_ir_value *info = &ir->values[op->out[k]];
        const enum sw_role role = ir->values[sw_ir_root(ir, op->out[k])].role;
        if (info->is_output ||
            (!sw_ir_has(op, SW_TRAIT_VIEW) && (role == SW_ROLE_PARAM || role == SW_ROLE_STATE))) {
            return true;
        }
    }
    return false;
}

/* live[i]: op i has an effect, or feeds an op that has. */
static bool *find_live(const struct sw_ir *ir)
{
    bool *live = sw_alloc_zero("plan", (size_t)ir->n_ops + 1, sizeof *live);
    for (int32_t i = ir->n_ops - 1; live && i >= 0; i--) {
        if (!live[i] && !has_effect(ir, &ir->ops[i])) {
            continue;
        }
        live[i] = true;
        for (int k = 0; k < ir->ops[i].n_in; k++) {
            const int32_t producer = ir->values[ir->ops[i].in[k]].producer;
            if (producer >= 0) {
                live[producer] = true;
            }
        }
    }
    return live;
}

struct sw_plan_kernels sw_kernels_of(const struct sw_plan_options *options,
                                     const struct sw_ir_op *op)
{
    return op->on_host ? options->host : options->device;
}

struct pass {
    struct sw_program *program;
    const struct sw_plan_options *options;
    /* Recent entries, since neighbours are often alike: pieces of an update, micro-batches of a
     * block. */
    const struct sw_instr_about *recent[16];
    int next;
    /* sums of vectors of one block that are not placed yet; is_late: by op */
    int32_t *late;
    int32_t n_late;
    int64_t late_block;
    bool *is_late;
};

static const char *name_of(const struct sw_ir *ir, sw_value v)
{
    const struct sw_ir_value *value = &ir->values[v], *root = &ir->values[sw_ir_root(ir, v)];
    const sw_value param = root->param >= 0 ? root->param : value->param;
    return root->role == SW_ROLE_INPUT ? NULL
           : root->name                ? root->name
           : param >= 0                ? ir->values[param].name
                                       : NULL;
}

/* The parameter that an op works on, or the tensor that it moves. */
static const char *tensor_of(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    const char *name = NULL;
    for (int k = 0; k < op->n_in + op->n_out && !name; k++) {
        const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
        name = v < 0 ? NULL : name_of(ir, v);
    }
    return name;
}

static bool are_alike(const struct sw_instr_about *a, const struct sw_instr_about *b)
{
    return a->name == b->name && a->where == b->where && a->scope == b->scope &&
           a->tensor == b->tensor && a->kernel.path == b->kernel.path &&
           a->kernel.workspace_bytes == b->kernel.workspace_bytes;
}

/* NULL = out of memory. */
static const struct sw_instr_about *share(struct pass *p, const struct sw_instr_about *about)
{
    for (size_t i = 0; i < SW_LEN(p->recent); i++) {
        if (p->recent[i] && are_alike(p->recent[i], about)) {
            return p->recent[i];
        }
    }
    struct sw_instr_about *mine = sw_arena_alloc(&p->program->ir->names, sizeof *mine);
    if (mine) {
        *mine = *about;
        p->recent[p->next++ % (int)SW_LEN(p->recent)] = mine;
    }
    return mine;
}

/* Chooses the kernel. Moves have none, but may need workspace. */
static sw_status choose_kernel(const struct pass *p, const struct sw_ir_op *op,
                               struct sw_kernel_info *out)
{
    const struct sw_ir *ir = p->program->ir;
    struct sw_op math;
    struct sw_op_desc desc;
    if (op->move != SW_MOVE_NONE) {
        const bool exchanges = sw_ir_is_collective(op);
        *out = (struct sw_kernel_info){.supported = true,
                                       .path = exchanges ? "collective" : "transfer",
                                       .workspace_bytes =
                                           exchanges ? sw_exchange_workspace(ir, op) : 0};
        return SW_OK;
    }
    sw_ir_describe(ir, op, &math, &desc);
    const struct sw_plan_kernels kernels = sw_kernels_of(p->options, op);
    kernels.query(kernels.ctx, &desc, out);
    if (out->no_memory) {
        return sw_fail_prefix(SW_E_NOMEM, "a kernel of %s", sw_ir_op_name(op));
    }
    if (!out->supported) {
        return SW_FAIL(SW_E_UNSUP, "no kernel on this device for %s (%s) in %s", sw_ir_op_name(op),
                       op->n_in > 0 ? sw_dtype_name(desc.in[0].dtype) : "no input",
                       sw_ir_where(ir, op));
    }
    p->program->flops += sw_op_flops(&desc) * sw_ir_pieces(ir, op);
    return SW_OK;
}

/* Chooses a kernel for an op, and appends the op to the scheduled order. */
static sw_status add_instr(struct pass *p, int32_t i_op)
{
    const struct sw_ir *ir = p->program->ir;
    const struct sw_ir_op *op = &ir->ops[i_op];
    struct sw_instr_about about = {.name = sw_ir_op_name(op),
                                   .where = sw_ir_where(ir, op),
                                   .scope = ir->scopes[op->scope].name,
                                   .tensor = tensor_of(ir, op)};
    SW_TRY(choose_kernel(p, op, &about.kernel));
    const struct sw_instr_about *shared = share(p, &about);
    SW_TRY_ALLOC(shared, "the plan");
    p->program->draft.scheduled[p->program->n_instrs++] = (struct sw_scheduled){shared, i_op};
    return SW_OK;
}

static enum sw_queue queue_of(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return op->move != SW_MOVE_NONE ? sw_move_queue(ir, op)
           : op->on_host            ? SW_QUEUE_HOST
                                    : SW_QUEUE_COMPUTE;
}

static unsigned chunk_of(const struct sw_ir_op *op)
{
    return sw_op_segment(op) < SW_SEGMENT_UPDATE ? (unsigned)op->chunk.number : 0;
}

sw_status sw_program_begin(struct sw_program *program)
{
    const struct sw_ir *ir = program->ir;
    program->instrs = sw_alloc("plan", ((size_t)program->n_instrs + 1) * sizeof *program->instrs);
    SW_TRY_ALLOC(program->instrs, "the plan");
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->draft.scheduled[i].op];
        struct sw_instr *instr = &program->instrs[i];
        *instr = (struct sw_instr){.op = program->draft.scheduled[i].op,
                                   .about = program->draft.scheduled[i].about,
                                   .queue = queue_of(ir, op),
                                   .segment = sw_op_segment(op),
                                   .chunk = chunk_of(op),
                                   .unless_skipped = op->unless_skipped && !op->chunk.in_forward,
                                   .last_only = op->in_backward,
                                   .turn.first_only = op->chunk.in_forward,
                                   .retired = -1,
                                   .turn.again = -1,
                                   .exchange.batch = sw_ir_is_collective(op),
                                   .exchange.blocking = sw_ir_is_collective(op),
                                   .workspace = -1};
        memset(instr->waits, 0xff, sizeof instr->waits);
    }
    sw_program_find_segments(program);
    return SW_OK;
}

void sw_program_find_segments(struct sw_program *program)
{
    int32_t i = 0;
    for (int s = 0; s < SW_SEGMENT_COUNT; s++) {
        program->segment_first[s] = i;
        while (i < program->n_instrs && (int)program->instrs[i].segment == s) {
            i++;
        }
    }
    program->segment_first[SW_SEGMENT_COUNT] = i;
}

/* after[i]: the accumulation that follows op i at once, so that the gradient is freed. The
 * accumulation of a second gradient of op i follows the first. */
static void find_sums(const struct sw_ir *ir, bool *live, int32_t *after)
{
    memset(after, 0xff, ((size_t)ir->n_ops + 1) * sizeof *after);
    for (int32_t i = 0; i < ir->n_ops; i++) {
        if (sw_ir_has(&ir->ops[i], SW_TRAIT_SUM) && live[i]) {
            const sw_value grad = sw_ir_version(ir, ir->ops[i].in[1]);
            const int32_t sum = ir->values[ir->ops[i].in[0]].producer;
            const bool loaded = sum >= 0 && ir->ops[sum].move == SW_MOVE_LOAD;
            int32_t at = ir->values[grad].producer;
            if (at < 0 || loaded || ir->ops[at].phase != ir->ops[i].phase) {
                continue;
            }
            while (after[at] >= 0) {
                at = after[at];
            }
            after[at] = i;
            live[i] = false; /* it is placed together with its producer */
        }
    }
}

/* True for a sum of a vector by a kernel, which takes no longer than its launch. */
static bool may_be_late(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    enum { SMALL_ELEMS = 1 << 14 };
    const struct sw_shape *shape = &ir->values[op->in[1]].form->shape;
    return op->move == SW_MOVE_NONE && shape->rank == 1 && sw_shape_elems(shape) <= SMALL_ELEMS;
}

/* Emits the sums that were held back, in their order. */
static sw_status place_late(struct pass *p)
{
    for (int32_t k = 0; k < p->n_late; k++) {
        p->is_late[p->late[k]] = false;
        SW_TRY(add_instr(p, p->late[k]));
    }
    p->n_late = 0;
    return SW_OK;
}

/* True if the op reads a sum that is held back. */
static bool reads_late(const struct pass *p, const struct sw_ir_op *op)
{
    const struct sw_ir *ir = p->program->ir;
    for (int k = 0; k < op->n_in && p->n_late > 0; k++) {
        const int32_t producer = ir->values[sw_ir_version(ir, op->in[k])].producer;
        if (producer >= 0 && p->is_late[producer]) {
            return true;
        }
    }
    return false;
}

/* Places the op, and the sums that follow it at once. Late sums are placed before an op that reads
 * one of them, and before another block. */
static sw_status place(struct pass *p, int32_t i_op, const int32_t *after)
{
    const struct sw_ir *ir = p->program->ir;
    const int64_t block = sw_ir_block_segment(ir, &ir->ops[i_op]);
    if (block != p->late_block || reads_late(p, &ir->ops[i_op])) {
        SW_TRY(place_late(p));
    }
    p->late_block = block;
    SW_TRY(add_instr(p, i_op));
    for (int32_t k = after[i_op]; k >= 0; k = after[k]) {
        if (may_be_late(ir, &ir->ops[k])) {
            p->late[p->n_late++] = k;
            p->is_late[k] = true;
        } else {
            SW_TRY(reads_late(p, &ir->ops[k]) ? place_late(p) : SW_OK);
            SW_TRY(add_instr(p, k));
        }
    }
    return SW_OK;
}

/* Places the live ops of a chunk in a segment. Late sums stay there. */
static sw_status place_range(struct pass *p, const bool *live, const int32_t *after,
                             enum sw_segment segment, unsigned chunk)
{
    const struct sw_ir *ir = p->program->ir;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        if (live[i] && !sw_ir_has(&ir->ops[i], SW_TRAIT_VIEW) &&
            sw_op_segment(&ir->ops[i]) == segment && chunk_of(&ir->ops[i]) == chunk) {
            SW_TRY(place(p, i, after));
        }
    }
    return place_late(p);
}

static sw_status place_all(struct pass *p, const bool *live, const int32_t *after)
{
    const unsigned chunks = (unsigned)sw_stage_chunks(p->options);
    for (int s = 0; s < SW_SEGMENT_COUNT; s++) {
        for (unsigned c = 0; c < (s < SW_SEGMENT_UPDATE ? chunks : 1); c++) {
            const unsigned chunk = s == SW_SEGMENT_FORWARD ? c : chunks - 1 - c;
            SW_TRY(
                place_range(p, live, after, (enum sw_segment)s, s < SW_SEGMENT_UPDATE ? chunk : 0));
        }
    }
    return SW_OK;
}

sw_status sw_pass_schedule(struct sw_program *program, const struct sw_plan_options *options)
{
    const struct sw_ir *ir = program->ir;
    const size_t n = (size_t)ir->n_ops + 1;
    struct pass p = {.program = program, .options = options};
    sw_status st = SW_OK;
    const bool noted = sw_ir_note_where(program->ir);
    bool *live = find_live(ir);
    int32_t *after = sw_alloc("plan", n * sizeof *after);
    program->draft.scheduled = sw_alloc("plan", n * sizeof *program->draft.scheduled);
    p.late = sw_alloc("plan", n * sizeof *p.late);
    p.is_late = sw_alloc_zero("plan", n, sizeof *p.is_late);
    if (!noted || !live || !after || !program->draft.scheduled || !p.late || !p.is_late) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
        goto done;
    }
    find_sums(ir, live, after);
    SW_TRY_OR(done, place_all(&p, live, after));
    sw_ir_forget_where(program->ir);
done:
    sw_free(live);
    sw_free(after);
    sw_free(p.late);
    sw_free(p.is_late);
    return st;
}
