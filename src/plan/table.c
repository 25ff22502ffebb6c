// SPDX-License-Identifier: Apache-2.0
// Tabulates what a finished plan takes and sends, by kind, for users who choose a ZeRO stage. It
// counts buffers and instructions, so the sums match the run. The formulas stand beside them, and
// the table explains each difference.
#include <string.h>

#include "plan/private.h"

const char *sw_held_name(enum sw_held kind)
{
    static const char *const names[SW_HELD_COUNT] = {
        "parameters", "gradients", "optimizer", "kept_whole",          "second_sums",
        "other",      "gathered",  "loaded",    "gradients_in_flight", "activations",
        "arriving",   "workspace", "gaps"};
    return names[kind];
}

const char *sw_sent_name(enum sw_sent kind)
{
    static const char *const names[SW_SENT_COUNT] = {"reduce", "gather_forward", "gather_backward",
                                                     "gather_update", "statistics"};
    return names[kind];
}

/* ---- held ---- */

static enum sw_held kind_of_state(const struct sw_persistent *item)
{
    if (item->role == SW_ROLE_PARAM) {
        return SW_HELD_PARAMS;
    }
    if (sw_state_is_sum(item->state)) {
        return item->state == SW_STATE_SUM && item->use == 0 ? SW_HELD_GRADS : SW_HELD_SECOND;
    }
    return item->param ? SW_HELD_OPTIMIZER : SW_HELD_OTHER;
}

/* [n_values] by root: gradients of parameters on their way to the owners of their shards. NULL =
 * out of memory */
static bool *find_leaving(const struct sw_ir *ir)
{
    bool *leaves = sw_alloc_zero("plan", (size_t)ir->n_values + 1, sizeof *leaves);
    for (int32_t i = 0; leaves && i < ir->n_ops; i++) {
        if (ir->ops[i].move == SW_MOVE_REDUCE) {
            leaves[sw_ir_root(ir, ir->ops[i].in[1])] = true;
        }
    }
    return leaves;
}

/* True for a parameter or an optimizer state, or a pack of them; false for offloaded
 * activations. */
static bool is_of_the_model(const struct sw_ir *ir, sw_value v)
{
    const enum sw_role role = ir->values[sw_ir_root(ir, v)].role;
    return role == SW_ROLE_PARAM || role == SW_ROLE_STATE;
}

static enum sw_held kind_of_transient(const struct sw_program *program,
                                      const struct sw_buffer *buffer, const bool *leaves)
{
    const struct sw_ir *ir = program->ir;
    if (buffer->value < 0) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[buffer->first].op];
        return sw_ir_is_collective(op) ? SW_HELD_WIRE : SW_HELD_WORKSPACE;
    }
    const struct sw_ir_value *info = &ir->values[buffer->value];
    if (info->producer >= 0 && ir->ops[info->producer].move == SW_MOVE_GATHER) {
        return SW_HELD_GATHERED;
    }
    if (info->producer >= 0 && ir->ops[info->producer].move == SW_MOVE_LOAD &&
        is_of_the_model(ir, ir->ops[info->producer].in[0])) {
        return SW_HELD_LOADED;
    }
    return info->role == SW_ROLE_GRAD || leaves[buffer->value] ? SW_HELD_GRADS_NOW
                                                               : SW_HELD_ACTIVATIONS;
}

/* True if a rank holds a shard of the tensor, or would without the threshold for small ones. */
static bool is_cut(enum sw_held kind, const struct sw_plan_options *options)
{
    const int from = kind == SW_HELD_PARAMS ? 3 : kind == SW_HELD_OPTIMIZER ? 1 : 0;
    return sw_data_ranks(options) > 1 && options->policy.stage >= from;
}

/* Counts persistent device memory by kind. Stage 3 keeps some parameters whole: one shard of them
 * counts as parameters, and the rest as kept whole. */
static void count_persistent(const struct sw_plan *plan, const struct sw_plan_options *options,
                             struct sw_plan_table *out)
{
    size_t taken = 0;
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        if (item->tier != SW_TIER_DEVICE) {
            continue;
        }
        const enum sw_held kind = kind_of_state(item);
        const bool summed_whole = kind == SW_HELD_GRADS && sw_sums_before_reducing(options);
        const bool cut = is_cut(kind, options) && !summed_whole;
        const size_t bytes = sw_persistent_taken(item);
        taken += bytes;
        size_t mine = bytes;
        if (cut && kind == SW_HELD_PARAMS && sw_shape_equal(&item->shape, &item->layout.whole)) {
            mine = bytes / (size_t)sw_data_ranks(options);
            out->held[SW_HELD_KEPT] += bytes - mine;
        }
        out->held[kind] += mine;
        if (kind < SW_HELD_STATES) {
            const double whole =
                (double)sw_shape_elems(&item->layout.whole) * (double)sw_dtype_bytes(item->dtype);
            out->padding += (double)mine - (cut ? whole / sw_data_ranks(options) : whole);
        }
    }
    out->held[SW_HELD_GAPS] =
        plan->persistent_bytes[SW_TIER_DEVICE] - taken; /* after the last one */
}

/* Counts the transients that are live at the peak. */
static sw_status count_transients(const struct sw_program *program, size_t held[SW_HELD_COUNT])
{
    bool *leaves = find_leaving(program->ir);
    SW_TRY_ALLOC(leaves, "a table of the plan");
    for (int32_t i = 0; i < program->n_buffers; i++) {
        const struct sw_buffer *buffer = &program->buffers[i];
        if (!buffer->persistent && buffer->tier == SW_TIER_DEVICE &&
            buffer->first <= program->peak.instr && program->peak.instr <= buffer->last) {
            held[kind_of_transient(program, buffer, leaves)] += buffer->bytes;
        }
    }
    held[SW_HELD_GAPS] += program->peak.bytes[SW_TIER_DEVICE] - program->peak.live_bytes;
    sw_free(leaves);
    return SW_OK;
}

/* ---- sent ---- */

/* How often a parameter travels. */
struct trips {
    int dense, sparse, gathers[3]; /* gathers by phase */
    int64_t padded;
};

struct count {
    const struct sw_ir *ir;
    const struct sw_plan_options *options;
    struct trips *trips; /* [n_values] by parameter */
    int64_t rounds;      /* micro-steps per step */
    int64_t runs;        /* how often forward and backward run in a step */
};

/* The parameter of v, or the tile that it belongs to. */
static sw_value param_of(const struct sw_ir *ir, sw_value v)
{
    const sw_value root = sw_ir_root(ir, v);
    /* a pack has views, each for one parameter */
    const bool in_pack = root != v && ir->values[root].param < 0;
    return ir->values[root].role == SW_ROLE_PARAM ? root : ir->values[in_pack ? v : root].param;
}

static bool is_sparse(const struct sw_ir *ir, sw_value grad)
{
    const int32_t producer = ir->values[grad].producer;
    return producer >= 0 && sw_ir_has(&ir->ops[producer], SW_TRAIT_DENSE);
}

/* Every rank sends a shard of the tensor to each other rank. */
static void add_op(struct count *c, const struct sw_ir_op *op, struct sw_plan_table *out)
{
    const struct sw_ir *ir = c->ir;
    const int64_t others = sw_ir_data(c->ir)->n - 1;
    const int64_t times = op->phase == SW_PHASE_UPDATE ? 1 : c->runs;
    enum sw_sent kind = SW_SENT_STATS;
    const int64_t slice = sw_exchange_bytes(ir, op);
    const sw_value param = op->move != SW_MOVE_MERGE ? param_of(ir, op->in[0]) : SW_NO_VALUE;
    if (op->move == SW_MOVE_GATHER && param < 0) { /* the updated shards */
        kind = SW_SENT_UPDATE;
        out->sent[kind].matrices += (double)(slice * others * times);
    } else if (op->move != SW_MOVE_MERGE) {
        const int64_t elems = ir->values[op->in[0]].form->elems;
        struct trips *trips = &c->trips[param];
        trips->padded = elems * sw_ir_data(c->ir)->n;
        if (op->move == SW_MOVE_REDUCE) {
            kind = SW_SENT_GRADS;
            const int64_t whole = sw_exchange_slice_bytes(ir, op);
            out->sent[kind].rows += (double)((whole - slice) * others * times);
            *(is_sparse(ir, op->in[1]) ? &trips->sparse : &trips->dense) += op->micro == 0;
        } else {
            kind = (enum sw_sent)(SW_SENT_FORWARD + (int)op->phase);
            trips->gathers[op->phase]++;
        }
    }
    out->sent[kind].bytes += slice * others * times;
}

/* Splits the bytes of one parameter in a kind into parts: `unit` bytes per element; the formula
 * counts it once. */
static void split(struct sw_sent_parts *parts, int64_t elems, const struct trips *trips, int dense,
                  int sparse, double unit)
{
    const double once = (double)elems * unit;
    const int n = dense + sparse, n_sparse = dense > 0 ? sparse : sparse - 1;
    parts->formula += once;
    if (n == 0) {
        parts->spared += once;
        return;
    }
    parts->second += once * (dense > 0 ? dense - 1 : 0);
    parts->sparse += once * n_sparse;
    parts->padding += (double)(trips->padded - elems) * unit * n;
}

static double wire_bytes(const struct sw_ir *ir)
{
    for (int32_t i = 0; i < ir->n_ops; i++) {
        if (ir->ops[i].move == SW_MOVE_REDUCE) {
            return (double)sw_dtype_bytes(sw_exchange_dtype(ir, &ir->ops[i]));
        }
    }
    return 0;
}

/* The formulas of docs/zero.md, all times (R-1)/R. Stage 0: (m c + 4) P. Stages 1 and 2: (m c + w)
 * P. Stage 3: m (2 w + c) P, or (2 w + m c) P with the vertical schedule. */
static void add_formulas(const struct count *c, sw_value param, struct sw_plan_table *out)
{
    const struct sw_ir_value *info = &c->ir->values[param];
    const struct trips *trips = &c->trips[param];
    const int stage = c->options->policy.stage;
    const int64_t elems = sw_shape_elems(&info->form->layout.whole);
    const double share = (double)(sw_ir_data(c->ir)->n - 1) / sw_ir_data(c->ir)->n;
    const double m = (double)c->rounds, runs = (double)c->runs, grad = wire_bytes(c->ir) * share;
    const double work = (double)sw_dtype_bytes(info->dtype) * share;
    const double update = stage == 0 ? sizeof(float) * share : work;
    out->elems += elems;
    out->trained += trips->dense + trips->sparse > 0 ? elems : 0;
    if (sw_ir_data(c->ir)->n <= 1) {
        return;
    }
    split(&out->sent[SW_SENT_GRADS], elems, trips, trips->dense, trips->sparse,
          sw_sums_before_reducing(c->options) ? grad : m * grad);
    if (stage == 3) {
        split(&out->sent[SW_SENT_FORWARD], elems, trips, trips->gathers[SW_PHASE_FORWARD], 0,
              runs * work);
        split(&out->sent[SW_SENT_BACKWARD], elems, trips, trips->gathers[SW_PHASE_BACKWARD], 0,
              runs * work);
        const int kept = trips->gathers[SW_PHASE_UPDATE];
        out->sent[SW_SENT_UPDATE].kept += (double)(elems * kept) * work;
        out->sent[SW_SENT_UPDATE].padding += (double)((trips->padded - elems) * kept) * work;
        return;
    }
    split(&out->sent[SW_SENT_UPDATE], elems, trips, trips->gathers[SW_PHASE_UPDATE], 0, update);
    if (stage < 2) {
        out->boundary += (double)elems * (grad + update);
    }
}

/* A single rank sends nothing and does not reduce its streams, but their parameters are trained. */
static void note_streams(struct count *c)
{
    for (int32_t i = 0; sw_ir_data(c->ir)->n <= 1 && i < c->ir->n_streams; i++) {
        c->trips[c->ir->streams[i].param].dense++;
    }
}

sw_status sw_plan_tabulate(const struct sw_plan *plan, const struct sw_plan_options *options,
                           struct sw_plan_table *out)
{
    const struct sw_program *program = &plan->programs[0];
    if (program->kind != SW_PROGRAM_TRAIN || !options->rule) {
        return SW_FAIL(SW_E_ARG, "a table of ZeRO stages is of a training with an optimizer");
    }
    const struct sw_ir *ir = program->ir;
    struct count c = {
        .ir = ir,
        .options = options,
        .trips = sw_alloc_zero("plan", (size_t)ir->n_values + 1, sizeof *c.trips),
        .rounds = sw_ceil_div(options->policy.micro_batches, sw_data_ranks(options)),
    };
    c.runs = program->micro_batches > 1 ? 1 : c.rounds;
    SW_TRY_ALLOC(c.trips, "a table of the plan");
    *out = (struct sw_plan_table){0};
    memcpy(out->tier_bytes, plan->tier_bytes, sizeof out->tier_bytes);
    count_persistent(plan, options, out);
    const sw_status st = count_transients(sw_plan_largest_program(plan, SW_TIER_DEVICE), out->held);
    if (st < 0) {
        sw_free(c.trips);
        return st;
    }
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        if (sw_ir_is_collective(op)) {
            add_op(&c, op, out);
        }
    }
    note_streams(&c);
    for (int32_t i = 0; i < ir->params.n; i++) {
        add_formulas(&c, ir->params.at[i], out);
    }
    sw_free(c.trips);
    return SW_OK;
}
