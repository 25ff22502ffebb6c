// SPDX-License-Identifier: Apache-2.0
// Tests the cut of a pipeline. Together the stages have every op once, each has what its ops read,
// and neighbours send what the other one receives, in the same order.
#include "plan/private.h"

#include <stdlib.h>
#include <string.h>

#include "support/plans.h"
#include "support/test.h"
#include "support/towers.h"

enum { BLOCKS = 6, MOST_VALUES = 512, MOST_BUFFERS = 512, MOST_SLOTS = 16 };

static struct sw_graph *tower(bool tied)
{
    return test_tower(&(struct test_tower){
        .graph = {.dtype = SW_F32, .grad_dtype = SW_F32, .training = true},
        .blocks = BLOCKS,
        .batch = 3,
        .tokens = 5,
        .vocab = 19,
        .width = 8,
        .inner = 32,
        .std = 0.1,
        .is_tied = tied,
        .has_side = true,
    });
}

/* The lists of all stages. */
struct stages {
    int n, chunks, ranks[BLOCKS], bounds[BLOCKS + 1];
    struct sw_blocks blocks;
    struct sw_group groups[BLOCKS][SW_GROUP_COUNT + 1];
    struct sw_ir *irs[BLOCKS];
};

static sw_status open_stages(struct stages *s, const struct sw_graph *g, int n,
                             const struct sw_stage_cut *how)
{
    *s = (struct stages){.n = n, .chunks = how->chunks};
    assert_int_equal(sw_blocks_add(&s->blocks, g), SW_OK);
    for (int i = 0; i < n; i++) {
        s->ranks[i] = i;
    }
    sw_partition_uniform(BLOCKS, n * how->chunks, s->bounds);
    sw_status st = SW_OK;
    for (int i = 0; i < n && st >= 0; i++) {
        assert_int_equal(sw_ir_open(g, &s->irs[i]), SW_OK);
        s->groups[i][SW_GROUP_COUNT] =
            (struct sw_group){.axes = 1U << SW_AXIS_PIPE, .n = n, .me = i, .ranks = s->ranks};
        s->irs[i]->groups = s->groups[i];
        struct sw_stage_cut cut = *how;
        cut.bounds = s->bounds;
        cut.blocks = &s->blocks;
        cut.group = SW_GROUP_COUNT;
        st = sw_pass_stage(s->irs[i], &cut);
    }
    return st;
}

static void close_stages(struct stages *s)
{
    for (int i = 0; i < s->n; i++) {
        sw_ir_close(s->irs[i]);
    }
    sw_blocks_close(&s->blocks);
}

/* Each op reads leaves of this stage, and what an earlier op of its list makes or receives. */
static void check_reads(const struct sw_ir *ir)
{
    bool made[MOST_VALUES] = {false};
    assert_true(ir->n_values <= MOST_VALUES);
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const struct sw_ir_op *op = &ir->ops[i];
        if (op->move != SW_MOVE_NONE) {
            assert_int_equal(sw_move_check(ir, op), SW_OK);
        }
        for (int k = 0; k < op->n_in; k++) {
            const struct sw_ir_value *info = &ir->values[op->in[k]];
            const bool is_leaf = info->role == SW_ROLE_INPUT || info->role == SW_ROLE_STATE ||
                                 info->role == SW_ROLE_PARAM;
            assert_true(made[op->in[k]] || is_leaf || sw_ir_has(op, SW_TRAIT_VIEW));
        }
        for (int k = 0; k < op->n_out; k++) {
            if (op->out[k] >= 0) {
                made[op->out[k]] = true;
            }
        }
    }
    for (int32_t i = 0; i < ir->n_streams; i++) {
        assert_true(made[ir->streams[i].grad]);
        assert_int_equal(ir->values[ir->streams[i].param].role, SW_ROLE_PARAM);
    }
}

/* Lists the values of the messages of one kind in a phase, of a part of the model. */
static int list_messages(const struct stages *s, enum sw_move move, enum sw_phase phase, int part,
                         int peer, sw_value *out)
{
    const struct sw_ir *ir = s->irs[part % s->n];
    int n = 0;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const struct sw_ir_op *op = &ir->ops[i];
        if (op->move == move && op->phase == phase && op->chunk.number == part / s->n) {
            assert_int_equal(op->exchange.group, SW_GROUP_COUNT);
            assert_int_equal(op->exchange.peer, peer % s->n);
            out[n++] = move == SW_MOVE_SEND ? op->in[0] : op->out[0];
        }
    }
    return n;
}

static int count_messages(const struct sw_ir *ir)
{
    int n = 0;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        n += ir->ops[i].move != SW_MOVE_NONE;
    }
    return n;
}

/* Both sides of a boundary agree. The residual crosses it, and its gradient, and the gradient of
 * `side`; so does `side`, until all stages have it. */
static void check_messages(const struct stages *s)
{
    sw_value sent[MOST_VALUES], received[MOST_VALUES];
    int all = 0, met = 0;
    for (int i = 0; i < s->n; i++) {
        all += count_messages(s->irs[i]);
    }
    for (int i = 0; i + 1 < s->n * s->chunks && s->n > 1; i++) {
        for (int back = 0; back < 2; back++) {
            const enum sw_phase phase = back ? SW_PHASE_BACKWARD : SW_PHASE_FORWARD;
            const int from = back ? i + 1 : i, to = back ? i : i + 1;
            const int n = list_messages(s, SW_MOVE_SEND, phase, from, to, sent);
            assert_int_equal(list_messages(s, SW_MOVE_RECV, phase, to, from, received), n);
            assert_memory_equal(sent, received, (size_t)n * sizeof *sent);
            assert_int_equal(n, back || to < s->n ? 2 : 1);
            met += 2 * n;
        }
    }
    assert_int_equal(met, all);
}

/* With a segment for weights, the products that make their gradients are there; nothing else reads
 * what the segment makes. */
static void check_weights(const struct sw_ir *ir, bool has_weights)
{
    bool of_weights[MOST_VALUES] = {false};
    int n_products = 0;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const struct sw_ir_op *op = &ir->ops[i];
        n_products += op->chunk.of_weights && op->kind == SW_OP_MATMUL;
        for (int k = 0; k < op->n_out; k++) {
            of_weights[op->out[k] < 0 ? MOST_VALUES - 1 : op->out[k]] = op->chunk.of_weights;
        }
        for (int k = 0; k < op->n_in; k++) {
            assert_false(of_weights[op->in[k]]);
        }
    }
    int n_linear = 0;
    for (int32_t i = 0; i < ir->n_streams; i++) {
        const char *name = ir->values[ir->streams[i].param].name;
        n_linear += strcmp(name, "table") != 0 && strcmp(name, "head") != 0;
    }
    assert_int_equal(n_products, has_weights ? n_linear : 0);
}

/* Number of stages on which an op of the whole list runs. */
static int count_runs(const struct stages *s, const struct sw_op *op)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        for (int32_t k = 0; k < s->irs[i]->n_ops; k++) {
            const struct sw_ir_op *own = &s->irs[i]->ops[k];
            n += own->move == SW_MOVE_NONE && own->kind == op->kind && own->out[0] == op->out[0];
        }
    }
    return n;
}

static void check_ops(const struct stages *s, const struct sw_graph *g)
{
    int n_params = 0, n_streams = 0, n_outputs = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (!sw_kind_has(g->ops[i].kind, SW_TRAIT_VIEW)) {
            assert_int_equal(count_runs(s, &g->ops[i]), 1);
        }
    }
    for (int i = 0; i < s->n; i++) {
        n_params += s->irs[i]->params.n;
        n_streams += s->irs[i]->n_streams;
        n_outputs += s->irs[i]->outputs.n;
        assert_int_equal(s->irs[i]->outputs.n, i == s->n - 1); /* the loss */
    }
    assert_int_equal(n_params, g->n_params);
    assert_int_equal(n_streams, g->n_streams);
    assert_int_equal(n_outputs, g->n_outputs);
}

static void check_stages(const struct sw_graph *g, int n, const struct sw_stage_cut *how)
{
    struct stages s;
    if (open_stages(&s, g, n, how) < 0) {
        fail_msg("%s", sw_error_message());
    }
    for (int i = 0; i < n; i++) {
        check_reads(s.irs[i]);
        check_weights(s.irs[i], how->has_weights);
    }
    check_messages(&s);
    check_ops(&s, g);
    close_stages(&s);
}

static void stages_make_up_the_model(void **state)
{
    (void)state;
    struct sw_graph *g = tower(false);
    for (int n = 1; n <= BLOCKS; n++) {
        check_stages(g, n,
                     &(struct sw_stage_cut){.chunks = 1, .trains = true, .has_weights = true});
        for (int chunks = 1; n * chunks <= BLOCKS; chunks++) {
            check_stages(g, n, &(struct sw_stage_cut){.chunks = chunks, .trains = true});
        }
    }
    sw_graph_close(g);
}

/* ---- plans of stages ---- */

/* A run of a plan's schedule, and the micro-batch whose value each slot of each buffer has; -1 =
 * none. */
struct memory {
    const struct sw_plan *plan;
    const struct sw_program *program;
    int64_t micro[MOST_BUFFERS][MOST_SLOTS];
};

static int slots_of(const struct sw_buffer *buffer)
{
    return buffer->micro_bytes > 0 ? (int)(buffer->bytes / buffer->micro_bytes) : 1;
}

/* A slot gets a value; those that lie in the same bytes lose theirs. */
static void fill(struct memory *m, int32_t b, int64_t micro)
{
    const struct sw_buffer *to = &m->program->buffers[b];
    const int slot = (int)(micro % slots_of(to));
    const size_t bytes = to->bytes / (size_t)slots_of(to);
    const size_t first = to->offset + (size_t)slot * to->micro_bytes;
    for (int32_t i = 0; i < m->program->n_buffers; i++) {
        const struct sw_buffer *other = &m->program->buffers[i];
        for (int s = 0; s < slots_of(other) && !other->persistent; s++) {
            const size_t size = other->bytes / (size_t)slots_of(other);
            const size_t at = other->offset + (size_t)s * other->micro_bytes;
            m->micro[i][s] = at < first + bytes && first < at + size ? -1 : m->micro[i][s];
        }
    }
    m->micro[b][slot] = micro;
}

static void run_instr(struct memory *m, int32_t i, int64_t micro)
{
    const struct sw_program *program = m->program;
    const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
    for (int k = 0; k < op->n_in; k++) {
        const int32_t b = program->buffer_of[sw_ir_root(program->ir, op->in[k])];
        const struct sw_buffer *buffer = b < 0 ? NULL : &program->buffers[b];
        if (buffer && !buffer->persistent && m->micro[b][micro % slots_of(buffer)] != micro) {
            fail_msg("instruction %d (%s) of micro-batch %lld reads what is gone", i,
                     program->instrs[i].about->name, (long long)micro);
        }
    }
    if (program->instrs[i].workspace >= 0) {
        fill(m, program->instrs[i].workspace, micro);
    }
    for (int k = 0; k < op->n_out; k++) {
        const sw_value root = op->out[k] < 0 ? -1 : sw_ir_root(program->ir, op->out[k]);
        const int32_t b = root < 0 ? -1 : program->buffer_of[root];
        if (b >= 0 && !program->buffers[b].persistent) {
            fill(m, b, micro);
        }
    }
}

/* Runs all phases of a step: each value is there until its last reader, in the order of the
 * schedule. */
static void check_survival(const struct sw_plan *plan)
{
    static struct memory m;
    const struct sw_program *program = &plan->programs[0];
    m = (struct memory){.plan = plan, .program = program};
    memset(m.micro, 0xff, sizeof m.micro);
    assert_true(program->n_buffers <= MOST_BUFFERS);
    for (int32_t p = 0; p < plan->step.n_phases; p++) {
        const struct sw_step_phase *phase = &plan->step.phases[p];
        const bool runs = phase->action <= SW_STEP_RECEIVE;
        const bool micro_step = runs && phase->segment < SW_SEGMENT_UPDATE;
        const int64_t micro = micro_step ? phase->round : plan->step.rounds - 1;
        const bool begins = micro_step && phase->action == SW_STEP_RUN &&
                            phase->segment == SW_SEGMENT_FORWARD && phase->chunk == 0;
        for (int32_t b = 0; b < program->n_buffers && begins; b++) {
            const sw_value v = program->buffers[b].value;
            if (v >= 0 && program->ir->values[v].role == SW_ROLE_INPUT) {
                fill(&m, b, micro);
            }
        }
        const struct sw_instr_range range = sw_program_range(program, phase->segment, phase->chunk);
        for (int32_t i = range.first; runs && i < range.end; i++) {
            const bool receives = program->instrs[i].verb == SW_VERB_RECV;
            if (phase->turn == 0 || receives == (phase->action == SW_STEP_RECEIVE)) {
                run_instr(&m, i, micro);
            }
        }
    }
}

/* Most slots of a value that is neither sent nor received. Values that travel have memory of their
 * own during forward and backward. */
static void check_memory(const struct sw_plan *plan, int slots)
{
    const struct sw_program *program = &plan->programs[0];
    const int32_t update = program->segment_first[SW_SEGMENT_UPDATE];
    bool travels[MOST_BUFFERS] = {false};
    int most = 1;
    for (int32_t i = 0; i < update; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const struct sw_ir_op *op = &program->ir->ops[instr->op];
        if (instr->verb == SW_VERB_SEND || instr->verb == SW_VERB_RECV) {
            const sw_value v = instr->verb == SW_VERB_SEND ? op->in[0] : op->out[0];
            const struct sw_buffer *buffer = &program->buffers[program->buffer_of[v]];
            assert_true(buffer->first == 0 && buffer->last == update - 1);
            assert_false(instr->exchange.blocking);
            travels[program->buffer_of[v]] = true;
        }
    }
    for (int32_t b = 0; b < program->n_buffers; b++) {
        const int n = slots_of(&program->buffers[b]);
        most = n > most && !travels[b] ? n : most;
    }
    assert_int_equal(most, slots);
}

/* True if a stage gets a message in such a phase. */
static bool receives(const struct sw_pipe *pipe, int me, const struct sw_pipe_phase *phase)
{
    return (phase->segment == SW_SEGMENT_FORWARD && (me > 0 || phase->chunk > 0)) ||
           (phase->segment == SW_SEGMENT_BACKWARD &&
            (me < pipe->stages - 1 || phase->chunk < pipe->chunks - 1));
}

/* The runs of forward, backward and weights are the phases of the schedule. The receives of a phase
 * begin before the phase before it runs, but not ahead of LOSSES. Messages run on, until the last
 * phase. */
static void check_step(const struct sw_plan *plan, const struct sw_pipe *pipe, int me,
                       const struct sw_pipe_phase *phases, int64_t n)
{
    int64_t at = 0, received = 0; /* phases that ran, and that receive or do not have to */
    for (int32_t i = 0; i < plan->step.n_phases; i++) {
        const struct sw_step_phase *phase = &plan->step.phases[i];
        while (received < n && !receives(pipe, me, &phases[received])) {
            received++;
        }
        if (phase->action == SW_STEP_RECEIVE) {
            assert_int_equal(phase->round, phases[received].micro);
            assert_int_equal(phase->turn, ++received);
            assert_true(!phase->drains && at + 2 >= received);
        }
        assert_true(phase->action != SW_STEP_LOSSES || received <= at + 1 || at == n);
        if (phase->action != SW_STEP_RUN || phase->segment >= SW_SEGMENT_UPDATE) {
            continue;
        }
        assert_true(at < n && at < received && phase->drains && phase->n_micro == 1);
        assert_int_equal(phase->round, phases[at].micro);
        assert_int_equal(phase->chunk, phases[at].chunk);
        assert_int_equal(phase->segment, phases[at].segment);
        assert_int_equal(phase->turn, ++at);
        assert_int_equal(phase->runs_on, at < n);
    }
    assert_int_equal(at, n);
}

/* Slots of what the first segment of a stage's chunk makes and its last one reads. */
static int most_slots(const struct sw_pipe *pipe, const struct sw_pipe_schedule *row,
                      const struct sw_pipe_phase *phases)
{
    int most = 1;
    for (int c = 0; c < pipe->chunks; c++) {
        const struct sw_pipe_phase from = {c, 0, SW_SEGMENT_FORWARD};
        const struct sw_pipe_phase until = {
            c, 0, row->has_weights ? SW_SEGMENT_WEIGHTS : SW_SEGMENT_BACKWARD};
        const int slots = sw_pipe_slots(phases, sw_pipe_phases(row, pipe), &from, &until, 0, 0);
        most = slots > most ? slots : most;
    }
    return most;
}

/* bounds: [parts + 1] */
static struct sw_plan_options options_of(enum sw_step_schedule schedule, const struct sw_pipe *pipe,
                                         int me, int *bounds)
{
    sw_partition_uniform(BLOCKS, pipe->stages * pipe->chunks, bounds);
    return (struct sw_plan_options){.device = {test_query, NULL},
                                    .policy.micro_batches = pipe->micro_batches,
                                    .policy.schedule = schedule,
                                    .policy.chunks = pipe->chunks,
                                    .clip = 1,
                                    .rule = &test_adam,
                                    .kernel_set = "test",
                                    .mesh.size = {[SW_AXIS_PIPE] = pipe->stages},
                                    .me = me,
                                    .stage_blocks = bounds};
}

static struct sw_plan *open_plan(const struct sw_plan_options *options)
{
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, tower(false)};
    if (plan_once(&spec, 1, options, &plan) < 0) { /* verifies the plan, too */
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

static void check_plan(enum sw_step_schedule schedule, struct sw_pipe pipe, int me)
{
    const struct sw_pipe_schedule *row = sw_schedule_info(schedule)->pipe;
    struct sw_pipe_phase phases[128];
    int bounds[BLOCKS + 1];
    const struct sw_plan_options options = options_of(schedule, &pipe, me, bounds);
    struct sw_plan *plan = open_plan(&options);
    row->list(&pipe, me, phases);
    check_step(plan, &pipe, me, phases, sw_pipe_phases(row, &pipe));
    check_memory(plan, most_slots(&pipe, row, phases));
    check_survival(plan);
    sw_plan_close(plan);
}

static void stages_are_planned(void **state)
{
    (void)state;
    for (int stages = 2; stages <= BLOCKS; stages++) {
        for (int me = 0; me < stages; me++) {
            check_plan(SW_STEP_1F1B, (struct sw_pipe){stages, 1, 3}, me);
            check_plan(SW_STEP_1F1B, (struct sw_pipe){stages, 1, 8}, me);
            check_plan(SW_STEP_GPIPE, (struct sw_pipe){stages, 1, 3}, me);
            check_plan(SW_STEP_ZERO_BUBBLE, (struct sw_pipe){stages, 1, 8}, me);
            for (int chunks = 2; stages * chunks <= BLOCKS; chunks++) {
                check_plan(SW_STEP_INTERLEAVED, (struct sw_pipe){stages, chunks, 8}, me);
                check_plan(SW_STEP_INTERLEAVED, (struct sw_pipe){stages, chunks, 5}, me);
            }
        }
    }
}

/* The first and the last stage have a tied table, and both know its two uses in the same order. */
static void stages_with_a_copy_know_all_its_uses(void **state)
{
    (void)state;
    struct sw_graph *g = tower(true);
    struct stages s;
    assert_int_equal(open_stages(&s, g, 3, &(struct sw_stage_cut){.chunks = 1, .trains = true}),
                     SW_OK);
    for (int i = 0; i < s.n; i++) {
        const struct sw_ir *ir = s.irs[i];
        const sw_value table = sw_ir_find(ir, SW_ROLE_PARAM, "table");
        int from[2], n = 0;
        assert_int_equal(table >= 0, i != 1);
        for (int stage = 0; stage < s.n; stage++) {
            assert_int_equal(sw_ir_is_held(ir, "table", stage), stage != 1);
            assert_int_equal(sw_ir_is_held(ir, "side", stage), stage == 0);
        }
        for (int32_t k = 0; k < ir->n_streams; k++) {
            if (table >= 0 && ir->streams[k].param == table) {
                assert_true(n < 2);
                from[n++] = ir->streams[k].from;
            } else {
                assert_int_equal(ir->streams[k].from, 0);
            }
        }
        assert_int_equal(n, i == 1 ? 0 : 2);
        if (n > 0) {
            assert_true(sw_ir_is_shared(ir, table));
            /* the embedding is used first */
            assert_int_equal(from[0], i == 0 ? 0 : 1);
            assert_int_equal(from[1], i == 0 ? 3 : 0);
        }
    }
    close_stages(&s);
    sw_graph_close(g);
}

/* Number of messages with a value between a stage and a peer. */
static int count_of(const struct sw_ir *ir, enum sw_move move, int peer, sw_value v)
{
    int n = 0;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const struct sw_ir_op *op = &ir->ops[i];
        n += op->move == move && op->exchange.peer == peer &&
             (move == SW_MOVE_SEND ? op->in[0] : op->out[0]) == v;
    }
    return n;
}

/* In an evaluation, the last stage sends the loss to all others. All chunks are one phase. */
static void outputs_go_to_all_stages(void **state)
{
    (void)state;
    struct sw_graph *g = tower(false);
    for (int chunks = 1; chunks <= 2; chunks++) {
        struct stages s;
        assert_int_equal(open_stages(&s, g, 3, &(struct sw_stage_cut){.chunks = chunks}), SW_OK);
        const int last = s.n - 1;
        const sw_value loss = s.irs[last]->outputs.at[0].value;
        for (int i = 0; i < s.n; i++) {
            assert_int_equal(s.irs[i]->outputs.n, 1);
            assert_int_equal(s.irs[i]->outputs.at[0].value, loss);
            check_reads(s.irs[i]);
            for (int32_t k = 0; k < s.irs[i]->n_ops; k++) {
                assert_int_equal(s.irs[i]->ops[k].chunk.number, 0);
            }
            for (int peer = 0; peer < s.n; peer++) {
                assert_int_equal(count_of(s.irs[i], SW_MOVE_SEND, peer, loss),
                                 i == last && peer != last);
                assert_int_equal(count_of(s.irs[i], SW_MOVE_RECV, peer, loss),
                                 i != last && peer == last);
            }
        }
        close_stages(&s);
    }
    sw_graph_close(g);
}

/* A slot less, or memory that is shared, of anything that outlasts its phase is found. */
static void hazards_across_phases_are_found(void **state)
{
    (void)state;
    int bounds[BLOCKS + 1], n_fewer = 0, n_shared = 0;
    const struct sw_pipe pipe = {3, 1, 4};
    const struct sw_plan_options options = options_of(SW_STEP_1F1B, &pipe, 1, bounds);
    struct sw_plan *plan = open_plan(&options);
    const struct sw_program *program = &plan->programs[0];
    const int32_t update = program->segment_first[SW_SEGMENT_UPDATE];
    for (int32_t b = 0; b < program->n_buffers; b++) {
        struct sw_buffer *buffer = &program->buffers[b];
        const struct sw_buffer before = *buffer;
        const bool apart = !buffer->persistent && buffer->first == 0 && buffer->last == update - 1;
        if (apart && buffer->micro_bytes > 0) {
            buffer->bytes -= buffer->micro_bytes;
            assert_int_equal(sw_plan_check_phases(program, &options), SW_E_ARG);
            assert_non_null(strstr(sw_error_message(), "slots, and needs more"));
            *buffer = before;
            n_fewer++;
        }
        if (apart) {
            buffer->last--;
            assert_int_equal(sw_plan_check_phases(program, &options), SW_E_ARG);
            assert_non_null(strstr(sw_error_message(), "and shares its memory"));
            *buffer = before;
            n_shared++;
        }
    }
    assert_true(n_fewer > 3 && n_shared >= n_fewer);
    assert_int_equal(sw_plan_check(plan, &options), SW_OK);
    sw_plan_close(plan);
}

/* Two blocks: the first one writes into a state, and the second one reads all of it, and a view. */
static struct sw_graph *writer_and_reader(void)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value x = sw_input(g, "x", SW_F32, SW_SHAPE(1, 2, 8));
    const sw_value position = sw_input(g, "position", SW_I32, SW_SHAPE(1));
    sw_scope_push_block(g, "writer");
    const sw_value cache = sw_graph_state(g, "cache", SW_F32, SW_SHAPE(1, 6, 8), SW_NO_VALUE);
    const sw_value in[3] = {cache, sw_act(g, x, SW_ACT_GELU), position};
    const sw_value all =
        sw_graph_add_out_in_place(g, sw_graph_add_op(g, SW_OP_KV_APPEND, in, 3, NULL), cache);
    sw_scope_pop(g);
    sw_scope_push_block(g, "reader");
    const sw_value sum = sw_add(g, sw_act(g, all, SW_ACT_GELU), all);
    sw_output(g, "y",
              sw_add(g, sw_reshape(g, sum, SW_SHAPE(6, 8)), sw_reshape(g, all, SW_SHAPE(6, 8))));
    sw_scope_pop(g);
    assert_int_equal(sw_graph_status(g), SW_OK);
    return g;
}

static void a_value_in_place_is_copied_before_it_is_sent(void **state)
{
    (void)state;
    for (int me = 0; me < 2; me++) {
        static const int bounds[] = {0, 1, 2};
        struct sw_plan *plan = NULL;
        const struct sw_program_spec spec = {SW_PROGRAM_LOGITS, writer_and_reader()};
        const struct sw_plan_options options = {.device = {test_query, NULL},
                                                .policy.micro_batches = 1,
                                                .kernel_set = "test",
                                                .mesh.size = {[SW_AXIS_PIPE] = 2},
                                                .me = me,
                                                .stage_blocks = bounds};
        if (plan_once(&spec, 1, &options, &plan) < 0) { /* verifies the plan, too */
            fail_msg("stage %d: %s", me, sw_error_message());
        }
        const struct sw_ir *ir = plan->programs[0].ir;
        int n_copies = 0;
        for (int32_t i = 0; i < ir->n_ops; i++) {
            const struct sw_ir_op *op = &ir->ops[i];
            n_copies += sw_ir_is(op, SW_OP_CONTIGUOUS);
            if (op->move == SW_MOVE_SEND || op->move == SW_MOVE_RECV) {
                const sw_value v = op->move == SW_MOVE_SEND ? op->in[0] : op->out[0];
                assert_int_equal(ir->values[v].base, SW_NO_VALUE);
                assert_int_equal(ir->values[v].role, SW_ROLE_TRANSIENT);
            }
        }
        assert_int_equal(n_copies, me == 0);
        /* only the writer has the state */
        assert_int_equal(sw_plan_find(plan, "cache") != NULL, me == 0);
        sw_plan_close(plan);
    }
}

static void what_cannot_be_cut_is_named(void **state)
{
    (void)state;
    struct sw_graph *g = tower(false);
    struct sw_group groups[1] = {{.axes = 1U << SW_AXIS_PIPE, .n = BLOCKS + 1}};
    struct sw_ir *ir;
    assert_int_equal(sw_ir_open(g, &ir), SW_OK);
    ir->groups = groups;
    struct sw_blocks blocks = {.n = 0};
    assert_int_equal(sw_blocks_add(&blocks, g), SW_OK);
    const struct sw_stage_cut cut = {
        .bounds = (int[]){0, 1, 2, 3, 4, 5, 6, 6}, .chunks = 1, .blocks = &blocks};
    assert_int_equal(sw_pass_stage(ir, &cut), SW_E_CONFIG);
    sw_blocks_close(&blocks);
    assert_non_null(strstr(sw_error_message(), "each of the 6 blocks of the model, got 7"));
    sw_ir_close(ir);
    sw_graph_close(g);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stages_make_up_the_model),
    cmocka_unit_test(stages_are_planned),
    cmocka_unit_test(stages_with_a_copy_know_all_its_uses),
    cmocka_unit_test(outputs_go_to_all_stages),
    cmocka_unit_test(hazards_across_phases_are_found),
    cmocka_unit_test(a_value_in_place_is_copied_before_it_is_sent),
    cmocka_unit_test(what_cannot_be_cut_is_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
