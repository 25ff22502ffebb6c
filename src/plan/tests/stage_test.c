// SPDX-License-Identifier: Apache-2.0
// Tests the cut of a pipeline. Together the stages have every op once, each has what its ops read,
// and neighbours send what the other one receives, in the same order.
#include "plan/private.h"

#include <stdlib.h>
#include <string.h>

#include "support/plans.h"
#include "support/test.h"

enum { BLOCKS = 5, MOST_VALUES = 512 };

/* A tower of blocks between an embedding and a head. All blocks read what was made before them
 * (`side`), and the positions, which depend on nothing. */
static struct sw_graph *tower(bool tied)
{
    const struct sw_graph_options options = {
        .dtype = SW_F32, .grad_dtype = SW_F32, .training = true};
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    struct sw_graph *g;
    char name[32];
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value table = sw_param(g, "table", SW_SHAPE(19, 8), init);
    const sw_value head = tied ? table : sw_param(g, "head", SW_SHAPE(19, 8), init);
    const sw_value ids = sw_input(g, "ids", SW_I32, SW_SHAPE(3, 5));
    sw_value h = sw_embedding(g, table, ids, -1);
    const sw_value side =
        sw_linear(g, h, sw_param(g, "side", SW_SHAPE(8, 8), init), SW_NO_VALUE, true);
    for (int i = 0; i < BLOCKS; i++) {
        snprintf(name, sizeof name, "h.%d", i);
        sw_scope_push_block(g, name);
        snprintf(name, sizeof name, "up.%d", i);
        const sw_value up = sw_param(g, name, SW_SHAPE(8, 32), init);
        snprintf(name, sizeof name, "down.%d", i);
        const sw_value down = sw_param(g, name, SW_SHAPE(32, 8), init);
        sw_value x = sw_act(g, sw_linear(g, h, up, SW_NO_VALUE, true), SW_ACT_GELU);
        x = sw_dropout(g, sw_linear(g, x, down, SW_NO_VALUE, true), 0.1);
        h = sw_add(g, sw_add(g, h, x), side);
        sw_scope_pop(g);
    }
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(3, 5));
    const sw_value loss = sw_linear_cross_entropy(g, h, head, SW_NO_VALUE, labels, 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}

/* The lists of all stages. */
struct stages {
    int n, ranks[BLOCKS], bounds[BLOCKS + 1];
    struct sw_blocks blocks;
    struct sw_group groups[BLOCKS][SW_GROUP_COUNT + 1];
    struct sw_ir *irs[BLOCKS];
};

static sw_status open_stages(struct stages *s, const struct sw_graph *g, int n, bool trains)
{
    *s = (struct stages){.n = n};
    assert_int_equal(sw_blocks_add(&s->blocks, g), SW_OK);
    for (int i = 0; i < n; i++) {
        s->ranks[i] = i;
    }
    sw_partition_uniform(BLOCKS, n, s->bounds);
    sw_status st = SW_OK;
    for (int i = 0; i < n && st >= 0; i++) {
        assert_int_equal(sw_ir_open(g, &s->irs[i]), SW_OK);
        s->groups[i][SW_GROUP_COUNT] =
            (struct sw_group){.axes = 1U << SW_AXIS_PIPE, .n = n, .me = i, .ranks = s->ranks};
        s->irs[i]->groups = s->groups[i];
        const struct sw_stage_cut cut = {s->bounds, &s->blocks, SW_GROUP_COUNT, trains};
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

/* Lists the values of a stage's messages of one kind in a phase. */
static int list_messages(const struct sw_ir *ir, enum sw_move move, enum sw_phase phase, int peer,
                         sw_value *out)
{
    int n = 0;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const struct sw_ir_op *op = &ir->ops[i];
        if (op->move == move && op->phase == phase && op->exchange.peer == peer) {
            assert_int_equal(op->exchange.group, SW_GROUP_COUNT);
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

/* Both sides of a boundary agree. Two values cross it: the residual and `side`; so do their
 * gradients. */
static void check_messages(const struct stages *s)
{
    sw_value sent[MOST_VALUES], received[MOST_VALUES];
    int all = 0, met = 0;
    for (int i = 0; i < s->n; i++) {
        all += count_messages(s->irs[i]);
    }
    for (int i = 0; i + 1 < s->n; i++) {
        for (int back = 0; back < 2; back++) {
            const enum sw_phase phase = back ? SW_PHASE_BACKWARD : SW_PHASE_FORWARD;
            const int from = back ? i + 1 : i, to = back ? i : i + 1;
            const int n = list_messages(s->irs[from], SW_MOVE_SEND, phase, to, sent);
            assert_int_equal(list_messages(s->irs[to], SW_MOVE_RECV, phase, from, received), n);
            assert_memory_equal(sent, received, (size_t)n * sizeof *sent);
            assert_int_equal(n, 2);
            met += 2 * n;
        }
    }
    assert_int_equal(met, all);
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

static void stages_make_up_the_model(void **state)
{
    (void)state;
    struct sw_graph *g = tower(false);
    for (int n = 1; n <= BLOCKS; n++) {
        struct stages s;
        if (open_stages(&s, g, n, true) < 0) {
            fail_msg("%s", sw_error_message());
        }
        for (int i = 0; i < n; i++) {
            check_reads(s.irs[i]);
        }
        check_messages(&s);
        check_ops(&s, g);
        close_stages(&s);
    }
    sw_graph_close(g);
}

/* ---- plans of stages ---- */

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Values that wait for backward have as many slots as micro-batches are in flight. What is sent has
 * memory of its own during forward and backward. */
static void check_memory(const struct sw_plan *plan, int slots)
{
    const struct sw_program *program = &plan->programs[0];
    const int32_t update = program->segment_first[SW_SEGMENT_UPDATE];
    int n_rings = 0;
    for (int32_t b = 0; b < program->n_buffers; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        n_rings += buffer->micro_bytes > 0;
        assert_true(buffer->micro_bytes == 0 ||
                    buffer->bytes == (size_t)slots * buffer->micro_bytes);
    }
    assert_int_equal(n_rings > 0, slots > 1);
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const struct sw_ir_op *op = &program->ir->ops[instr->op];
        if (instr->verb == SW_VERB_SEND) {
            const struct sw_buffer *buffer = &program->buffers[program->buffer_of[op->in[0]]];
            assert_true(buffer->first == 0 && buffer->last == update - 1);
            assert_false(instr->exchange.blocking);
        }
    }
}

/* The runs of forward and backward are the phases of the schedule; what they send may be on its
 * way, until the last one. */
static void check_step(const struct sw_plan *plan, const struct sw_pipe_phase *phases, int64_t n)
{
    int64_t at = 0;
    for (int32_t i = 0; i < plan->step.n_phases; i++) {
        const struct sw_step_phase *phase = &plan->step.phases[i];
        if (phase->action != SW_STEP_RUN || phase->segment > SW_SEGMENT_BACKWARD) {
            continue;
        }
        assert_true(at < n && phase->drains && phase->n_micro == 1);
        assert_int_equal(phase->round, phases[at].micro);
        assert_int_equal(phase->segment == SW_SEGMENT_FORWARD,
                         phases[at].segment == SW_PIPE_FORWARD);
        assert_int_equal(phase->after_sent, phase->segment == SW_SEGMENT_BACKWARD);
        assert_int_equal(phase->leaves_sent, ++at < n);
    }
    assert_int_equal(at, n);
}

static void check_plan(enum sw_step_schedule schedule, int stages, int me, int micro_batches)
{
    const struct sw_pipe pipe = {stages, 1, micro_batches};
    const struct sw_pipe_schedule *row = sw_schedule_info(schedule)->pipe;
    struct sw_pipe_phase phases[64];
    int bounds[BLOCKS + 1];
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, tower(false)};
    const struct sw_plan_options options = {.device = {test_query, NULL},
                                            .policy.micro_batches = micro_batches,
                                            .policy.schedule = schedule,
                                            .clip = 1,
                                            .rule = &test_adam,
                                            .kernel_set = "test",
                                            .mesh.size = {[SW_AXIS_PIPE] = stages},
                                            .me = me,
                                            .stage_blocks = bounds};
    sw_partition_uniform(BLOCKS, stages, bounds);
    if (plan_once(&spec, 1, &options, &plan) < 0) { /* verifies the plan, too */
        fail_msg("%s", sw_error_message());
    }
    row->list(&pipe, me, phases);
    check_step(plan, phases, sw_pipe_phases(row, &pipe));
    check_memory(plan,
                 schedule == SW_STEP_GPIPE ? micro_batches : least(stages - me, micro_batches));
    sw_plan_close(plan);
}

static void stages_are_planned(void **state)
{
    (void)state;
    for (int stages = 2; stages <= BLOCKS; stages++) {
        for (int me = 0; me < stages; me++) {
            check_plan(SW_STEP_1F1B, stages, me, 3);
            check_plan(SW_STEP_1F1B, stages, me, 8);
            check_plan(SW_STEP_GPIPE, stages, me, 3);
        }
    }
}

/* The first and the last stage have a tied table, and both know its two uses in the same order. */
static void stages_with_a_copy_know_all_its_uses(void **state)
{
    (void)state;
    struct sw_graph *g = tower(true);
    struct stages s;
    assert_int_equal(open_stages(&s, g, 3, true), SW_OK);
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

/* In an evaluation, the last stage sends the loss to all others. */
static void outputs_go_to_all_stages(void **state)
{
    (void)state;
    struct sw_graph *g = tower(false);
    struct stages s;
    assert_int_equal(open_stages(&s, g, 4, false), SW_OK);
    const sw_value loss = s.irs[3]->outputs.at[0].value;
    for (int i = 0; i < s.n; i++) {
        sw_value messages[MOST_VALUES];
        const int last = s.n - 1;
        assert_int_equal(s.irs[i]->outputs.n, 1);
        assert_int_equal(s.irs[i]->outputs.at[0].value, loss);
        check_reads(s.irs[i]);
        if (i == last) {
            for (int peer = 0; peer < last; peer++) {
                assert_int_equal(
                    list_messages(s.irs[i], SW_MOVE_SEND, SW_PHASE_FORWARD, peer, messages), 1);
                assert_int_equal(messages[0], loss);
            }
        } else {
            const int n = list_messages(s.irs[i], SW_MOVE_RECV, SW_PHASE_FORWARD, last, messages);
            assert_int_equal(n, 1);
            assert_int_equal(messages[0], loss);
        }
    }
    close_stages(&s);
    sw_graph_close(g);
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
    const struct sw_stage_cut cut = {(int[]){0, 1, 2, 3, 4, 5, 5}, &blocks, 0, true};
    assert_int_equal(sw_pass_stage(ir, &cut), SW_E_CONFIG);
    sw_blocks_close(&blocks);
    assert_non_null(strstr(sw_error_message(), "each of the 5 blocks of the model, got 6"));
    sw_ir_close(ir);
    sw_graph_close(g);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stages_make_up_the_model),
    cmocka_unit_test(stages_are_planned),
    cmocka_unit_test(stages_with_a_copy_know_all_its_uses),
    cmocka_unit_test(outputs_go_to_all_stages),
    cmocka_unit_test(what_cannot_be_cut_is_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
