// SPDX-License-Identifier: Apache-2.0
// Keeps weights from one micro-batch to the next (as FSDP does, which does not reshard the last
// block after forward). A phase ends with all transfers complete, so the next one would begin by
// waiting for the weights of its first block to be gathered or loaded. They are brought in the
// first micro-batch of a step only, and stay until the last backward, in memory of their own. The
// gathers and loads of later blocks run ahead while the first block is computed. Weights change
// between steps only, so no bit depends on it.
#include "plan/private.h"

/* Readers and writers of a root. */
struct root {
    int32_t writer;    /* the only instruction that writes it; NONE, SEVERAL */
    bool changes;      /* it is written before the update, and not only in the last micro-step */
    bool is_gathered;  /* a gather reads it */
    bool is_read_more; /* an instruction that runs in every micro-step reads it */
};
enum { NONE = -1, SEVERAL = -2 };

struct pass {
    struct sw_program *program;
    const struct sw_ir *ir;
    struct root *roots; /* [n_values] */
    int64_t elems;      /* that may still stay gathered */
    size_t bytes;       /* that may still stay loaded */
};

static const struct sw_ir_op *op_of(const struct pass *p, int32_t i)
{
    return &p->ir->ops[p->program->instrs[i].op];
}

static void note_roots(const struct pass *p)
{
    for (sw_value v = 0; v < p->ir->n_values; v++) {
        p->roots[v] = (struct root){.writer = NONE};
    }
    for (int32_t i = 0; i < p->program->n_instrs; i++) {
        const struct sw_instr *instr = &p->program->instrs[i];
        const struct sw_ir_op *op = op_of(p, i);
        for (int k = 0; k < op->n_in; k++) {
            p->roots[sw_ir_root(p->ir, op->in[k])].is_gathered |= op->move == SW_MOVE_GATHER;
        }
        for (int k = 0; k < op->n_out; k++) {
            struct root *root = op->out[k] < 0 ? NULL : &p->roots[sw_ir_root(p->ir, op->out[k])];
            if (root) {
                root->writer = root->writer == NONE ? i : SEVERAL;
                root->changes |= instr->segment < SW_SEGMENT_UPDATE && !instr->last_only;
            }
        }
    }
}

/* True if instruction i loads weights that no micro-step changes, and nothing changes its copy. */
static bool loads_weights(const struct pass *p, int32_t i)
{
    const struct sw_instr *instr = &p->program->instrs[i];
    const struct sw_ir_op *op = op_of(p, i);
    if (op->move != SW_MOVE_LOAD || op->n_in != 1 || op->loop > 0 || instr->unless_skipped ||
        instr->last_only || instr->turn.first_only || instr->turn.from_last) {
        return false;
    }
    const sw_value home = sw_ir_root(p->ir, op->in[0]), here = sw_ir_root(p->ir, op->out[0]);
    return p->ir->values[home].role == SW_ROLE_PARAM && !sw_ir_is_part(p->ir, op->in[0]) &&
           !p->roots[home].changes && p->ir->values[here].role == SW_ROLE_TRANSIENT &&
           p->roots[here].writer == i;
}

/* The same for a gather. Tiles are used if there is no room for two, so they do not stay. */
static bool gathers_weights(const struct pass *p, int32_t i)
{
    const struct sw_instr *instr = &p->program->instrs[i];
    const struct sw_ir_op *op = op_of(p, i);
    if (op->move != SW_MOVE_GATHER || instr->unless_skipped || instr->last_only ||
        instr->turn.first_only || sw_ir_is_part(p->ir, op->in[0])) {
        return false;
    }
    const sw_value slice = sw_ir_root(p->ir, op->in[0]), here = sw_ir_root(p->ir, op->out[0]);
    const sw_value param = p->ir->values[slice].param;
    const bool is_tile = param >= 0 && sw_ir_is_part(p->ir, param);
    const int32_t maker = p->roots[slice].writer;
    const bool stays = p->ir->values[slice].role == SW_ROLE_PARAM
                           ? !p->roots[slice].changes
                           : maker >= 0 && loads_weights(p, maker);
    return !is_tile && stays && p->ir->values[here].role == SW_ROLE_TRANSIENT &&
           p->roots[here].writer == i;
}

/* The gathers and loads of one place: instructions first .. end - 1 are of it, or move nothing. */
struct place {
    int32_t first, end;
    int64_t elems;
    size_t bytes;
};

static bool is_loaded_only(const struct pass *p, int32_t i)
{
    return loads_weights(p, i) && !p->roots[sw_ir_root(p->ir, op_of(p, i)->out[0])].is_gathered;
}

/* Finds the next place of a phase from `first` on. It is empty if there is none. */
static struct place next_place(const struct pass *p, int32_t first, int32_t end)
{
    struct place out = {.first = first, .end = first};
    int64_t place = -1;
    for (int32_t i = first; i < end; i++) {
        const bool gathers = gathers_weights(p, i), loads = is_loaded_only(p, i);
        const struct sw_ir_op *op = op_of(p, i);
        if (!gathers && !loads) {
            continue;
        }
        if (place >= 0 && sw_ir_block_segment(p->ir, op) != place) {
            break;
        }
        place = sw_ir_block_segment(p->ir, op);
        out.elems +=
            gathers ? p->ir->values[op->in[0]].form->elems * p->ir->groups[op->exchange.group].n
                    : 0;
        out.bytes += loads ? sw_transfer_bytes(p->ir, op) : 0;
        out.end = i + 1;
    }
    return out;
}

/* Keeps the weights of the first places of a phase, up to its first block, as far as they fit. */
static void keep_first(struct pass *p, int32_t first, int32_t end)
{
    for (bool is_block = false; !is_block;) {
        const struct place place = next_place(p, first, end);
        if (place.end == first) {
            return;
        }
        const bool fits = place.elems <= p->elems && place.bytes <= p->bytes;
        for (int32_t i = place.first; fits && i < place.end; i++) {
            p->program->instrs[i].turn.once = gathers_weights(p, i) || is_loaded_only(p, i);
        }
        p->elems -= fits ? place.elems : 0;
        p->bytes -= fits ? place.bytes : 0;
        is_block = sw_ir_is_in_block(p->ir, op_of(p, place.end - 1));
        first = place.end;
    }
}

/* A load for kept gathers alone runs once, too. */
static void keep_loads(const struct pass *p)
{
    for (int32_t i = 0; i < p->program->n_instrs; i++) {
        const struct sw_ir_op *op = op_of(p, i);
        for (int k = 0; k < op->n_in; k++) {
            p->roots[sw_ir_root(p->ir, op->in[k])].is_read_more |= !p->program->instrs[i].turn.once;
        }
    }
    for (int32_t i = 0; i < p->program->n_instrs; i++) {
        const struct root *root =
            loads_weights(p, i) ? &p->roots[sw_ir_root(p->ir, op_of(p, i)->out[0])] : NULL;
        p->program->instrs[i].turn.once |= root && root->is_gathered && !root->is_read_more;
    }
}

sw_status sw_pass_keep(struct sw_program *program, const struct sw_plan_options *options)
{
    struct pass p = {.program = program,
                     .ir = program->ir,
                     .elems = options->overlap ? options->limits.kept_elems : 0,
                     .bytes = options->policy.transfer_bytes};
    if (program->kind != SW_PROGRAM_TRAIN || sw_has_one_round(options) ||
        (p.elems <= 0 && p.bytes == 0)) {
        return SW_OK;
    }
    p.roots = sw_alloc("plan", ((size_t)program->ir->n_values + 1) * sizeof *p.roots);
    SW_TRY_ALLOC(p.roots, "the plan");
    note_roots(&p);
    for (int32_t i = 0; i < program->segment_first[SW_SEGMENT_UPDATE];) {
        const struct sw_instr *instr = &program->instrs[i];
        const struct sw_instr_range range =
            sw_program_range(program, instr->segment, (int)instr->chunk);
        keep_first(&p, range.first, range.end);
        i = range.end;
    }
    keep_loads(&p);
    sw_free(p.roots);
    return SW_OK;
}
