// SPDX-License-Identifier: Apache-2.0
// Updates in pieces: an update with long states loads, updates and stores them piece by piece. Many
// pieces that differ only in their offset are a loop.
#include "plan/offload.h"
#include "plan/technique.h"

/* A dense stream is split into the same pieces as the states; the rows of a sparse stream are
 * not. */
static bool comes_in_pieces(const struct sw_offload *p, const struct sw_ir_op *op, int k)
{
    const bool index = p->ir->values[op->in[k]].dtype == SW_I32;
    const bool sparse = k + 1 < op->n_in && p->ir->values[op->in[k + 1]].dtype == SW_I32;
    const sw_value what = sw_offload_root(p, op, k);
    return !index && !sparse && what >= 0 && !sw_offload_is_here(p, op, what);
}

/* Elements [first, first + n) of a state that is loaded as a whole; `version`: its current
 * version. */
static sw_value view_piece(struct sw_offload *p, const struct sw_ir_op *reader, sw_value version,
                           int64_t first, int64_t n)
{
    return sw_offload_view(p, reader, version, first, p->ir->values[version].dtype, SW_SHAPE(n));
}

/* Offset, in the offloaded tensor, of the chunk that starts at update element `first`. */
static int64_t piece_first(const struct sw_offload *p, sw_value v, int64_t first)
{
    return sw_offload_part_first(p, v) + sw_ir_per_run(&p->ir->values[v], first);
}

/* Elements per piece of an update; whole runs if states are 8-bit codes. */
static int64_t piece_elems(const struct sw_offload *p)
{
    const int64_t most = p->options->policy.update_elems;
    const int64_t run = p->options->rule->moments == SW_MOMENTS_8BIT ? SW_CODE_RUN : 1;
    return sw_max_i64(most / run * run, run);
}

/* Elements [first, first + n) of an update; in a loop, the first of its pieces. */
struct piece {
    int64_t first, n;
    int32_t loop; /* 0 = it runs once */
};

/* Number of leading elements of an update whose pieces differ only in their offset, so that they
 * can run as a loop. Excluded are kernels that depend on the element index: stochastic rounding,
 * row lookups, padding that is left out. Each piece must consist of whole disk blocks. */
static int64_t alike_elems(const struct sw_offload *p, const struct sw_ir_op *op)
{
    bool alike = p->options->rule->moments != SW_MOMENTS_BF16;
    for (int k = 0; k < op->n_in; k++) {
        const struct sw_ir_value *value = &p->ir->values[op->in[k]];
        const int64_t elems = sw_ir_per_run(value, piece_elems(p));
        alike = alike && value->dtype != SW_I32 &&
                elems * (int64_t)sw_dtype_bytes(value->dtype) % SW_PLAN_DISK_ALIGN == 0;
    }
    const bool coded = p->options->rule->moments == SW_MOMENTS_8BIT;
    const struct sw_ir_value *target = &p->ir->values[op->detail->update.target];
    return !alike  ? 0
           : coded ? sw_layout_held(&target->form->layout)
                   : p->ir->values[op->in[1]].form->elems;
}

/* Makes the piece that starts at element `first` of an update of n elements. If many alike pieces
 * follow, up to element `alike`, it is a loop over them. Nothing is stored when a loop begins, and
 * nothing is loaded when it ends; so a few pieces are better on their own. false = out of memory */
static bool piece_at(struct sw_offload *p, int64_t first, int64_t n, int64_t alike,
                     struct piece *out)
{
    enum { LEAST = 64 };
    const int64_t elems = piece_elems(p), pieces = (alike - first) / elems;
    *out = (struct piece){first, sw_min_i64(elems, n - first), 0};
    if (pieces >= LEAST) {
        out->loop = sw_ir_new_loop(p->ir, (int32_t)sw_min_i64(pieces, INT32_MAX));
        return out->loop > 0;
    }
    return true;
}

static int64_t end_of(const struct sw_offload *p, const struct piece *piece)
{
    return piece->first + piece->n * (piece->loop > 0 ? p->ir->loops.pieces[piece->loop - 1] : 1);
}

/* Puts the op that was added last into the piece's loop. */
static void note_loop(struct sw_offload *p, const struct piece *piece)
{
    p->order.ops[p->order.n - 1].loop = piece->loop;
}

/* Loads the piece of operand k. */
static sw_value load_piece(struct sw_offload *p, const struct sw_ir_op *whole, int k,
                           const struct piece *piece)
{
    const sw_value v = whole->in[k];
    const struct sw_shape shape = SW_SHAPE(sw_ir_per_run(&p->ir->values[v], piece->n));
    const sw_value here = sw_offload_load_part(p, whole, sw_offload_root(p, whole, k),
                                               piece_first(p, v, piece->first), shape);
    if (here >= 0) {
        p->ir->values[here].takes_turns = piece->loop > 0;
        note_loop(p, piece);
    }
    return here;
}

/* Updates one piece. The states of a piece are loaded and stored, while the parameter stays. A tile
 * (param: SW_NO_VALUE) is loaded and stored with them. out: version of the parameter after the
 * update. master: version of the master if it is on the device, else SW_NO_VALUE. */
static bool update_piece(struct sw_offload *p, const struct sw_ir_op *whole,
                         const struct piece *piece, sw_value param, sw_value out, sw_value *master)
{
    struct sw_ir_op op = *whole;
    const int n_states = op.detail->attrs.update.rule.n_states, first_moved = param >= 0;
    op.first = piece->first;
    op.loop = piece->loop;
    op.in[0] = param;
    op.out[0] = out;
    for (int k = first_moved; k < op.n_in; k++) {
        if (k > n_states && !comes_in_pieces(p, whole, k)) {
            continue;
        }
        op.in[k] = k == 1 && *master >= 0 ? view_piece(p, whole, *master, piece->first, piece->n)
                                          : load_piece(p, whole, k, piece);
        if (op.in[k] >= 0 && k <= n_states) {
            op.out[k] = sw_offload_version(p, op.in[k]);
        }
        if (op.in[k] < 0 || (k <= n_states && op.out[k] < 0)) {
            return false;
        }
    }
    if (!sw_op_order_add(&p->order, &op)) {
        return false;
    }
    *master = *master >= 0 ? op.out[1] : *master;
    for (int k = first_moved; k <= n_states; k++) {
        if (!sw_offload_store(p, whole, sw_offload_home(p, whole->in[k]),
                              piece_first(p, whole->in[k], piece->first), op.out[k])) {
            return false;
        }
        note_loop(p, piece);
    }
    return true;
}

bool sw_offload_goes_in_pieces(const struct sw_offload *p, const struct sw_ir_op *op)
{
    if (!sw_ir_has(op, SW_TRAIT_ELEMENTS) || op->detail->attrs.update.rule.n_states == 0) {
        return false;
    }
    for (int k = 1; k <= op->detail->attrs.update.rule.n_states; k++) {
        if (sw_offload_home(p, op->in[k]) < 0) {
            return false;
        }
    }
    return p->options->policy.update_elems > 0 &&
           p->ir->values[op->in[1]].form->elems > p->options->policy.update_elems;
}

/* True for an update within forward if its place only looks up rows of the parameter. They are
 * loaded from where the update has stored them. */
static bool is_read_by_rows(const struct sw_offload *p, const struct sw_ir_op *op)
{
    const sw_value param = sw_offload_home(p, op->in[0]);
    const int64_t place = sw_ir_block_segment(p->ir, op);
    if (!op->chunk.in_forward || param < 0 || param != op->in[0]) {
        return false;
    }
    for (int32_t i = p->i_op + 1; i < p->n_ops; i++) {
        const struct sw_ir_op *later = &p->ir->ops[i];
        if (sw_ir_block_segment(p->ir, later) != place) {
            break;
        }
        for (int k = 0; k < later->n_in; k++) {
            if (sw_ir_root(p->ir, later->in[k]) == param &&
                !(sw_ir_has(later, SW_TRAIT_LOOKUP) && k == 0 && sw_offload_reads_rows(p, later))) {
                return false;
            }
        }
    }
    return true;
}

/* Updates a tile in pieces, or a table of which forward reads rows. Afterwards no op gets the whole
 * parameter as an operand. */
static bool update_tile(struct sw_offload *p, struct sw_ir_op *op, int64_t n)
{
    p->ir->values[op->out[0]].producer = -1;
    const int64_t alike = alike_elems(p, op);
    struct piece piece;
    for (int64_t first = 0; first < n; first = end_of(p, &piece)) {
        sw_value none = SW_NO_VALUE;
        if (!piece_at(p, first, n, alike, &piece) ||
            !update_piece(p, op, &piece, SW_NO_VALUE, SW_NO_VALUE, &none)) {
            return false;
        }
    }
    return true;
}

bool sw_offload_update_in_pieces(struct sw_offload *p, struct sw_ir_op *op)
{
    const sw_value state = sw_offload_home(p, op->out[0]);
    const int64_t n = p->ir->values[op->in[1]].form->elems;
    for (int k = 1 + op->detail->attrs.update.rule.n_states; k < op->n_in; k++) {
        if (!comes_in_pieces(p, op, k) && !sw_offload_fetch(p, op, k)) {
            return false;
        }
    }
    if (sw_ir_is_part(p->ir, op->in[0]) || is_read_by_rows(p, op)) {
        return update_tile(p, op, n);
    }
    if (!sw_offload_fetch(p, op, 0)) {
        return false;
    }
    if (state >= 0) {
        sw_offload_commit(p, op->out[0], op->in[0]);
    }
    const sw_value first_state = sw_offload_home(p, op->in[1]);
    const bool here =
        p->here[first_state] >= 0 && p->loaded_in[first_state] == sw_ir_block_segment(p->ir, op);
    sw_value param = op->in[0], master = here ? p->here[first_state] : SW_NO_VALUE;
    const int64_t alike = master < 0 ? alike_elems(p, op) : 0;
    struct piece piece;
    for (int64_t first = 0; first < n; first = end_of(p, &piece)) {
        const bool good = piece_at(p, first, n, alike, &piece);
        const sw_value out = end_of(p, &piece) == n ? op->out[0] : sw_offload_version(p, param);
        if (!good || out < 0 || !update_piece(p, op, &piece, param, out, &master)) {
            return false;
        }
        param = out;
    }
    return state < 0 || sw_offload_store(p, op, state, 0, param);
}

/* ---- the technique ---- */

static void advise(const struct sw_shortage *s, struct sw_str *out)
{
    if (s->tier == SW_TIER_DEVICE && s->options->policy.states_tier != SW_TIER_DEVICE &&
        sw_program_peak(s->program)->phase == SW_PHASE_UPDATE) {
        sw_advise(out, ", ", "a smaller zero_optimization.sub_group_size");
    }
}

const struct sw_technique sw_technique_pieces = {
    .keys = "zero_optimization.sub_group_size",
    .advise = advise,
};
