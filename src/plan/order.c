// SPDX-License-Identifier: Apache-2.0
// The order of micro-batches. A schedule says in which order the blocks of all micro-batches run in
// one program. Each micro-batch has its own ops and values, in the same order as on its own;
// parameters are shared. The update pass adds gradients in the order of micro-batches, so the bits
// do not depend on the schedule. Liveness, the memory map and waits follow from the order.
#include "plan/private.h"
#include "plan/technique.h"

/* ---- schedules, a row for each ---- */

/* One micro-batch after the other, each in a run of its own. */
static struct sw_turn turn_horizontal(const struct sw_order *order, int64_t i)
{
    return (struct sw_turn){(int32_t)(i % order->stretches), (int)(i / order->stretches)};
}
static const struct sw_schedule_info horizontal = {.turn = turn_horizontal};

/* All micro-batches of a block before the next block, which is gathered and loaded once for all of
 * them. */
static struct sw_turn turn_vertical(const struct sw_order *order, int64_t i)
{
    return (struct sw_turn){(int32_t)(i / order->micro_batches), (int)(i % order->micro_batches)};
}
static const struct sw_schedule_info vertical = {.at_once = true, .turn = turn_vertical};

/* A program of a pipeline's stage holds one micro-batch. The step orders its runs. */
static const struct sw_schedule_info gpipe = {.turn = turn_horizontal, .pipe = &sw_pipe_gpipe};
static const struct sw_schedule_info one_by_one = {.turn = turn_horizontal, .pipe = &sw_pipe_1f1b};
static const struct sw_schedule_info interleaved = {.turn = turn_horizontal,
                                                    .pipe = &sw_pipe_interleaved};
static const struct sw_schedule_info zero_bubble = {.turn = turn_horizontal,
                                                    .pipe = &sw_pipe_zero_bubble};

const struct sw_schedule_info *sw_schedule_info(enum sw_step_schedule schedule)
{
    static const struct sw_schedule_info *const rows[SW_STEP_SCHEDULE_COUNT] = {
        [SW_STEP_HORIZONTAL] = &horizontal,
        [SW_STEP_VERTICAL] = &vertical,
        [SW_STEP_GPIPE] = &gpipe,
        [SW_STEP_1F1B] = &one_by_one,
        [SW_STEP_INTERLEAVED] = &interleaved,
        [SW_STEP_ZERO_BUBBLE] = &zero_bubble,
    };
    return rows[schedule];
}

bool sw_schedule_is_at_once(enum sw_step_schedule schedule)
{
    return sw_schedule_info(schedule)->at_once;
}

int sw_stage_chunks(const struct sw_plan_options *options)
{
    return options->stage_blocks && options->policy.chunks > 1 ? options->policy.chunks : 1;
}

bool sw_program_is_stage(const struct sw_program *program, const struct sw_plan_options *options)
{
    return program->kind == SW_PROGRAM_TRAIN && sw_schedule_info(options->policy.schedule)->pipe;
}

static struct sw_pipe pipe_of(const struct sw_plan_options *options)
{
    const int64_t micro = sw_ceil_div(options->policy.micro_batches, sw_data_ranks(options));
    const int stages = options->stage_blocks ? sw_mesh_size(&options->mesh, 1U << SW_AXIS_PIPE) : 1;
    return (struct sw_pipe){stages, sw_stage_chunks(options), (int)micro};
}

int sw_stage_late(const struct sw_plan_options *options)
{
    const struct sw_pipe_schedule *schedule = sw_schedule_info(options->policy.schedule)->pipe;
    const struct sw_pipe pipe = pipe_of(options);
    return schedule ? sw_pipe_late(schedule, &pipe) : 0;
}

sw_status sw_stage_phases(const struct sw_plan_options *options, struct sw_pipe_phase **out,
                          int64_t *n)
{
    const struct sw_pipe_schedule *schedule = sw_schedule_info(options->policy.schedule)->pipe;
    int place[SW_AXIS_COUNT];
    *out = NULL;
    *n = 0;
    if (!schedule) {
        return SW_OK;
    }
    const struct sw_pipe pipe = pipe_of(options);
    sw_mesh_place(&options->mesh, options->me, place);
    const int64_t phases = sw_pipe_phases(schedule, &pipe);
    *out = sw_alloc("plan", (size_t)phases * sizeof **out);
    SW_TRY_ALLOC(*out, "the plan of a step");
    schedule->list(&pipe, place[SW_AXIS_PIPE] % pipe.stages, *out);
    *n = phases;
    return SW_OK;
}

/* ---- the pass ---- */

struct pass {
    struct sw_ir *ir;
    const struct sw_schedule_info *schedule;
    int micro_batches;
    sw_value *copies; /* [micro_batches, n_values] the copy of a value for a micro-batch */
    int32_t n_values; /* number of values before copying */
    struct sw_op_order order;
};

static sw_value in_micro(const struct pass *p, int micro, sw_value v)
{
    return v < 0 ? v : p->copies[(size_t)micro * (size_t)p->n_values + (size_t)v];
}

/* Marks values that each micro-batch has for itself: inputs, and outputs of ops. */
static void find_own(const struct pass *p, bool *own)
{
    const struct sw_ir *ir = p->ir;
    for (sw_value v = 0; v < p->n_values; v++) {
        own[v] = ir->values[v].role == SW_ROLE_INPUT;
    }
    for (int32_t i = 0; i < ir->n_ops; i++) {
        for (int k = 0; k < ir->ops[i].n_out; k++) {
            if (ir->ops[i].out[k] >= 0) {
                own[ir->ops[i].out[k]] = true;
            }
        }
    }
}

static bool is_shared_storage(const struct sw_ir *ir, sw_value v)
{
    const enum sw_role role = ir->values[sw_ir_root(ir, v)].role;
    return role == SW_ROLE_PARAM || role == SW_ROLE_STATE;
}

/* An op that writes a state in forward would see the micro-batches in another order. */
static sw_status check_states(const struct sw_ir *ir, enum sw_step_schedule schedule)
{
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const struct sw_ir_op *op = &ir->ops[i];
        for (int k = 0; k < op->n_out; k++) {
            if (!sw_ir_has(op, SW_TRAIT_VIEW) && op->out[k] >= 0 &&
                is_shared_storage(ir, op->out[k])) {
                return SW_FAIL(SW_E_UNSUP,
                               "spillway.schedule \"%s\": %s in %s writes %s, which all "
                               "micro-batches share",
                               sw_schedule_name(schedule), sw_ir_op_name(op), sw_ir_where(ir, op),
                               ir->values[op->out[k]].name ? ir->values[op->out[k]].name
                                                           : "a state");
            }
        }
    }
    return SW_OK;
}

/* Gives each micro-batch after the first its own copies of the values that it does not share. */
static sw_status copy_values(struct pass *p)
{
    struct sw_ir *ir = p->ir;
    bool *own = sw_alloc_zero("plan", (size_t)p->n_values + 1, sizeof *own);
    SW_TRY_ALLOC(own, "the plan");
    find_own(p, own);
    for (int micro = 0; micro < p->micro_batches; micro++) {
        sw_value *copies = &p->copies[(size_t)micro * (size_t)p->n_values];
        for (sw_value v = 0; v < p->n_values; v++) {
            copies[v] = micro > 0 && own[v] ? sw_ir_copy_value(ir, v) : v;
            if (copies[v] < 0) {
                break; /* the status of the graph has the failure */
            }
        }
        for (sw_value v = 0; ir->failure.status >= 0 && v < p->n_values; v++) {
            struct sw_ir_value *info = &ir->values[copies[v]];
            if (own[v]) {
                info->micro = micro;
                info->base = in_micro(p, micro, info->base);
                info->sparse_index = in_micro(p, micro, info->sparse_index);
            }
        }
        if (ir->failure.status < 0) {
            break;
        }
    }
    sw_free(own);
    return sw_ir_status(ir);
}

/* ---- order ---- */

static bool reads_parameter(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    for (int k = 0; k < op->n_in; k++) {
        if (ir->values[sw_ir_root(ir, op->in[k])].role == SW_ROLE_PARAM) {
            return true;
        }
    }
    return false;
}

/* Ops first .. end - 1 are in one block segment, or in several that go along. */
struct stretch {
    int32_t first, end;
    enum sw_phase phase;
    bool reads; /* reads parameters */
};

/* The ops from `first` on that are in one block segment. It is empty at the end of the list. */
static struct stretch next_stretch(const struct sw_ir *ir, int32_t first)
{
    struct stretch s = {.first = first, .end = first};
    if (first == ir->n_ops) {
        return s;
    }
    const int64_t segment = sw_ir_block_segment(ir, &ir->ops[first]);
    s.phase = ir->ops[first].phase;
    for (; s.end < ir->n_ops; s.end++) {
        const struct sw_ir_op *op = &ir->ops[s.end];
        if (sw_ir_block_segment(ir, op) != segment) {
            break;
        }
        s.reads |= reads_parameter(ir, op);
    }
    return s;
}

/* A stretch without parameters joins the one that made its operands; in backward, the one that
 * reads its results. Values between the two are then live for one micro-batch at a time. */
static bool goes_along(const struct stretch *a, const struct stretch *b)
{
    return a->phase == b->phase && !(b->phase == SW_PHASE_FORWARD ? b->reads : a->reads);
}

/* Lists the stretches. stretches: [n_ops] */
static void find_stretches(const struct sw_ir *ir, struct stretch *stretches,
                           struct sw_order *order)
{
    struct stretch now = next_stretch(ir, 0);
    while (now.first < now.end) {
        struct stretch next = next_stretch(ir, now.end);
        while (next.first < next.end && goes_along(&now, &next)) {
            now.end = next.end;
            now.reads |= next.reads;
            next = next_stretch(ir, now.end);
        }
        order->forward += now.phase == SW_PHASE_FORWARD;
        stretches[order->stretches++] = now;
        now = next;
    }
}

/* Adds the ops of a stretch with the values of one micro-batch. */
static bool emit(struct pass *p, int micro, const struct stretch *stretch)
{
    for (int32_t i = stretch->first; i < stretch->end; i++) {
        struct sw_ir_op op = p->ir->ops[i];
        op.micro = micro;
        for (int k = 0; k < op.n_in; k++) {
            op.in[k] = in_micro(p, micro, op.in[k]);
        }
        for (int k = 0; k < op.n_out; k++) {
            op.out[k] = in_micro(p, micro, op.out[k]);
        }
        if (!sw_op_order_add(&p->order, &op)) {
            return false;
        }
    }
    return true;
}

/* false = out of memory */
static bool order_ops(struct pass *p)
{
    struct sw_order order = {.micro_batches = p->micro_batches};
    struct stretch *stretches = sw_alloc("plan", ((size_t)p->ir->n_ops + 1) * sizeof *stretches);
    bool good = stretches != NULL;
    if (good) {
        find_stretches(p->ir, stretches, &order);
    }
    const int64_t n = (int64_t)order.stretches * order.micro_batches;
    for (int64_t i = 0; i < n && good; i++) {
        const struct sw_turn turn = p->schedule->turn(&order, i);
        good = emit(p, turn.micro, &stretches[turn.stretch]);
    }
    sw_free(stretches);
    return good;
}

/* ---- attributes of the graph's values ---- */

/* Lists the streams of each use in the order of micro-batches. */
static bool spread_streams(struct pass *p)
{
    struct sw_ir *ir = p->ir;
    const int32_t n = ir->n_streams * p->micro_batches;
    struct sw_ir_stream *streams = sw_alloc("graph", ((size_t)n + 1) * sizeof *streams);
    if (!streams) {
        return false;
    }
    for (int32_t i = 0; i < n; i++) {
        const struct sw_ir_stream *use = &ir->streams[i / p->micro_batches];
        const int micro = i % p->micro_batches;
        streams[i] = (struct sw_ir_stream){
            .param = use->param, .grad = in_micro(p, micro, use->grad), .micro = micro};
    }
    sw_free(ir->streams);
    ir->streams = streams;
    ir->n_streams = n;
    return true;
}

/* Adds the outputs of all micro-batches after the first. */
static void add_outputs(struct pass *p)
{
    const int32_t n = p->ir->outputs.n;
    for (int micro = 1; micro < p->micro_batches; micro++) {
        for (int32_t i = 0; i < n; i++) {
            const struct sw_ir_output output = p->ir->outputs.at[i];
            sw_ir_output(p->ir, output.name, in_micro(p, micro, output.value));
        }
    }
}

sw_status sw_pass_order(struct sw_ir *ir, enum sw_step_schedule schedule, int micro_batches)
{
    struct pass p = {.ir = ir,
                     .schedule = sw_schedule_info(schedule),
                     .micro_batches = micro_batches,
                     .n_values = ir->n_values};
    if (micro_batches <= 1) {
        return SW_OK;
    }
    SW_TRY(check_states(ir, schedule));
    const size_t n_copies = (size_t)micro_batches * (size_t)ir->n_values + 1;
    p.copies = sw_alloc("plan", n_copies * sizeof *p.copies);
    SW_TRY_ALLOC(p.copies, "the plan");
    sw_status st = copy_values(&p);
    if (st >= 0) {
        const bool good =
            sw_op_order_open(&p.order, ir) >= 0 && order_ops(&p) && spread_streams(&p);
        st = good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    }
    if (st >= 0) {
        sw_op_order_install(&p.order, ir);
        add_outputs(&p);
        st = sw_ir_status(ir);
    }
    sw_op_order_close(&p.order);
    sw_free(p.copies);
    return st;
}

/* ---- the technique ---- */

static sw_status run(struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int i = 0; i < plan->n_programs; i++) {
        struct sw_program *program = &plan->programs[i];
        if (program->kind == SW_PROGRAM_TRAIN) {
            program->micro_batches = sw_program_micro_batches(options);
            SW_TRY(sw_stage_phases(options, &program->draft.phases, &program->draft.n_phases));
            program->draft.late = sw_stage_late(options);
            SW_TRY(sw_pass_order(program->ir, options->policy.schedule, program->micro_batches));
        }
    }
    return SW_OK;
}

static void advise(const struct sw_shortage *s, struct sw_str *out)
{
    if (s->tier == SW_TIER_DEVICE && s->program->micro_batches > 1) {
        sw_advise(out, ", ", "spillway.schedule \"horizontal\"");
    }
}

const struct sw_technique sw_technique_order = {
    .keys = "spillway.schedule",
    .run = run,
    .advise = advise,
};
