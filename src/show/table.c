// SPDX-License-Identifier: Apache-2.0
// Tabulates what a finished plan takes and sends, by kind, for users who choose a ZeRO stage. It
// counts buffers and instructions, so the sums match the run. The formulas stand beside them, and
// the table explains each difference.
#include <string.h>

#include "show/show.h"

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
    static const char *const names[SW_SENT_COUNT] = {
        "reduce", "gather_forward", "gather_backward", "gather_update", "statistics", "other"};
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

/* True if a rank holds a shard of the tensor, or would without the threshold for small ones. */
static bool is_cut(enum sw_held kind, const struct sw_plan_options *options)
{
    const int from = kind == SW_HELD_PARAMS ? 3 : kind == SW_HELD_OPTIMIZER ? 1 : 0;
    return sw_zero_ranks(options) > 1 && options->policy.stage >= from;
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
            mine = bytes / (size_t)sw_zero_ranks(options);
            out->held[SW_HELD_KEPT] += bytes - mine;
        }
        out->held[kind] += mine;
        if (kind < SW_HELD_STATES) {
            const struct sw_shape part = sw_layout_part(&item->layout);
            const int64_t elems = item->layout.is_absent ? 0 : sw_shape_elems(&part);
            const double whole = (double)elems * (double)sw_dtype_bytes(item->dtype);
            out->padding += (double)mine - (cut ? whole / sw_zero_ranks(options) : whole);
        }
    }
    out->held[SW_HELD_GAPS] =
        plan->persistent_bytes[SW_TIER_DEVICE] - taken; /* after the last one */
}

/* Counts the transients that are live at the peak. */
static sw_status count_transients(const struct sw_program *program, size_t held[SW_HELD_COUNT])
{
    static const enum sw_held kinds[SW_USE_COUNT] = {
        [SW_USE_ACTIVATION] = SW_HELD_ACTIVATIONS, [SW_USE_GRADIENT] = SW_HELD_GRADS_NOW,
        [SW_USE_GATHERED] = SW_HELD_GATHERED,      [SW_USE_LOADED] = SW_HELD_LOADED,
        [SW_USE_ARRIVING] = SW_HELD_WIRE,          [SW_USE_WORKSPACE] = SW_HELD_WORKSPACE};
    enum sw_buffer_use *uses = sw_alloc("plan", ((size_t)program->n_buffers + 1) * sizeof *uses);
    SW_TRY_ALLOC(uses, "a table of the plan");
    const sw_status st = sw_program_uses(program, uses);
    for (int32_t i = 0; i < program->n_buffers && st >= 0; i++) {
        const struct sw_buffer *buffer = &program->buffers[i];
        if (!buffer->persistent && buffer->tier == SW_TIER_DEVICE &&
            buffer->first <= program->peak.instr && program->peak.instr <= buffer->last) {
            held[kinds[uses[i]]] += buffer->bytes;
        }
    }
    held[SW_HELD_GAPS] += program->peak.bytes[SW_TIER_DEVICE] - program->peak.live_bytes;
    sw_free(uses);
    return st;
}

/* ---- sent ---- */

/* How often a parameter travels. */
struct trips {
    int dense, sparse, gathers[3]; /* gathers by phase */
    int once[3];                   /* of these, how many serve all micro-batches */
    int64_t padded;
};

struct count {
    const struct sw_plan *plan;
    const struct sw_program *program;
    const struct sw_plan_options *options;
    struct trips *trips; /* [values of the program] by parameter */
    int64_t rounds;      /* micro-steps per step */
    int64_t runs;        /* how often forward and backward run in a step */
    int ranks;           /* along the data axis */
    int64_t wire;        /* bytes of an element of a gradient that travels; 0 = none travels */
};

/* The kind of an exchange. The formulas are about parameters and the data axis, so only exchanges
 * of those have a kind of their own. */
static enum sw_sent kind_of_exchange(const struct sw_instr *instr, enum sw_phase phase,
                                     sw_value param)
{
    const bool updates = instr->verb == SW_VERB_GATHER && phase == SW_PHASE_UPDATE;
    if (instr->verb == SW_VERB_MERGE) {
        return SW_SENT_STATS;
    }
    if (instr->exchange.group != SW_GROUP_DATA || (param < 0 && !updates)) {
        return SW_SENT_OTHER;
    }
    return instr->verb == SW_VERB_REDUCE   ? SW_SENT_GRADS
           : instr->verb == SW_VERB_GATHER ? (enum sw_sent)(SW_SENT_FORWARD + (int)phase)
                                           : SW_SENT_OTHER;
}

/* Counts a trip of a parameter or its gradient. Momentum has no formula, so it counts by its bytes.
 * times: messages that a member sends in a step */
static void add_trip(struct count *c, int32_t i, enum sw_sent kind, int64_t times,
                     struct sw_sent_parts *parts)
{
    const struct sw_instr *instr = &c->program->instrs[i];
    const struct sw_exchanged moved = sw_instr_exchanged(c->program, i);
    if (moved.param < 0) {
        parts->matrices += (double)(sw_instr_sent_bytes(instr) * times);
        return;
    }
    struct trips *trips = &c->trips[moved.param];
    trips->padded = moved.elems * c->ranks;
    if (kind == SW_SENT_GRADS) {
        const bool is_first = sw_instr_op(c->program, i).micro == 0;
        c->wire = (int64_t)sw_dtype_bytes(instr->exchange.dtype);
        parts->rows += (double)((instr->bytes - sw_instr_sent_bytes(instr)) * times);
        *(moved.is_row_sparse ? &trips->sparse : &trips->dense) += is_first;
    } else {
        trips->gathers[kind - SW_SENT_FORWARD]++;
        trips->once[kind - SW_SENT_FORWARD] += instr->turn.once;
    }
}

/* Counts an exchange. In those with a formula, every member sends a slice of the tensor to each
 * other one. */
static void add_exchange(struct count *c, int32_t i, struct sw_plan_table *out)
{
    const struct sw_instr *instr = &c->program->instrs[i];
    const enum sw_phase phase = sw_instr_op(c->program, i).math.phase;
    const struct sw_group *group = &c->plan->groups[instr->exchange.group];
    const enum sw_sent kind =
        kind_of_exchange(instr, phase, sw_instr_exchanged(c->program, i).param);
    const int64_t runs = phase == SW_PHASE_UPDATE || instr->turn.once ? 1 : c->runs;
    if (kind < SW_SENT_STATS) {
        add_trip(c, i, kind, (group->n - 1) * runs, &out->sent[kind]);
    }
    out->sent[kind].bytes += sw_instr_traffic(instr, group->n, group->me).sent * runs;
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

/* The formulas of docs/zero.md, all times (R-1)/R. Stage 0: (m c + 4) P. Stages 1 and 2: (m c + w)
 * P. Stage 3: m (2 w + c) P, or (2 w + m c) P with the vertical schedule. */
static void add_formulas(const struct count *c, sw_value param, struct sw_plan_table *out)
{
    const struct sw_value_facts value = sw_program_value(c->program, param);
    const struct trips *trips = &c->trips[param];
    const int stage = c->options->policy.stage;
    const int64_t elems = value.whole_elems;
    const double share = (double)(c->ranks - 1) / c->ranks;
    const double m = (double)c->rounds, runs = (double)c->runs, grad = (double)c->wire * share;
    const double work = (double)sw_dtype_bytes(value.dtype) * share;
    const double update = stage == 0 ? sizeof(float) * share : work;
    out->elems += elems;
    out->trained += trips->dense + trips->sparse > 0 ? elems : 0;
    if (c->ranks <= 1) {
        return;
    }
    split(&out->sent[SW_SENT_GRADS], elems, trips, trips->dense, trips->sparse,
          sw_sums_before_reducing(c->options) ? grad : m * grad);
    if (stage == 3) {
        for (int phase = SW_PHASE_FORWARD; phase <= SW_PHASE_BACKWARD; phase++) {
            struct sw_sent_parts *parts = &out->sent[SW_SENT_FORWARD + phase];
            split(parts, elems, trips, trips->gathers[phase], 0, runs * work);
            parts->stays += (runs - 1) * work * (double)(trips->padded * trips->once[phase]);
        }
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
    const int32_t n = c->ranks > 1 ? 0 : sw_program_n_streams(c->program);
    for (int32_t i = 0; i < n; i++) {
        c->trips[sw_program_stream_param(c->program, i)].dense++;
    }
}

/* Counts what travels, and what the formulas say. */
static void count_sent(struct count *c, struct sw_plan_table *out)
{
    int32_t n;
    for (int32_t i = 0; i < c->program->n_instrs; i++) {
        if (c->program->instrs[i].verb >= SW_VERB_REDUCE) {
            add_exchange(c, i, out);
        }
    }
    note_streams(c);
    const sw_value *params = sw_program_params(c->program, &n);
    for (int32_t i = 0; i < n; i++) {
        add_formulas(c, params[i], out);
    }
}

sw_status sw_plan_tabulate(const struct sw_plan *plan, const struct sw_plan_options *options,
                           struct sw_plan_table *out)
{
    const struct sw_program *program = &plan->programs[0];
    if (program->kind != SW_PROGRAM_TRAIN || !options->rule) {
        return SW_FAIL(SW_E_ARG, "a table of ZeRO stages is of a training with an optimizer");
    }
    const size_t n = (size_t)sw_program_n_values(program) + 1;
    struct count c = {
        .plan = plan,
        .program = program,
        .options = options,
        .trips = sw_alloc_zero("plan", n, sizeof *c.trips),
        .rounds = sw_ceil_div(options->policy.micro_batches, sw_data_ranks(options)),
        .ranks = plan->groups[SW_GROUP_DATA].n,
    };
    c.runs = program->micro_batches > 1 ? 1 : c.rounds;
    SW_TRY_ALLOC(c.trips, "a table of the plan");
    *out = (struct sw_plan_table){0};
    memcpy(out->tier_bytes, plan->tier_bytes, sizeof out->tier_bytes);
    count_persistent(plan, options, out);
    const sw_status st = count_transients(sw_plan_largest_program(plan, SW_TIER_DEVICE), out->held);
    if (st >= 0) {
        count_sent(&c, out);
    }
    sw_free(c.trips);
    return st;
}
