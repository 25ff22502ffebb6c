// SPDX-License-Identifier: Apache-2.0
// Tests the idle time of pipelines by the clock, with phases of equal length and messages that take
// no time.
#include <math.h>
#include <stdlib.h>

#include "support/plans.h"
#include "support/test.h"
#include "walk/walk.h"

enum { MOST_STAGES = 8, MOST_PARTS = 16 };

static struct sw_graph *tower(int blocks)
{
    const struct sw_graph_options options = {
        .dtype = SW_F32, .grad_dtype = SW_F32, .training = true};
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    struct sw_graph *g;
    char name[32];
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    sw_value h = sw_input(g, "x", SW_F32, SW_SHAPE(3, 8));
    for (int i = 0; i < blocks; i++) {
        snprintf(name, sizeof name, "h.%d", i);
        sw_scope_push_block(g, name);
        const sw_value w = sw_param(g, name, SW_SHAPE(8, 8), init);
        h = sw_act(g, sw_linear(g, h, w, SW_NO_VALUE, true), SW_ACT_GELU);
        sw_scope_pop(g);
    }
    const sw_value head = sw_param(g, "head", SW_SHAPE(5, 8), init);
    const sw_value loss = sw_linear_cross_entropy(g, h, head, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(3)), 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}

static struct sw_plan *plan_of(enum sw_step_schedule schedule, const struct sw_pipe *pipe, int me)
{
    const int parts = pipe->stages * pipe->chunks;
    int bounds[MOST_PARTS + 1];
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, tower(parts)};
    const struct sw_plan_options options = {.device = {test_query, NULL},
                                            .policy.micro_batches = pipe->micro_batches,
                                            .policy.schedule = schedule,
                                            .policy.chunks = pipe->chunks,
                                            .clip = 1,
                                            .rule = &test_adam,
                                            .kernel_set = "test",
                                            .mesh.size = {[SW_AXIS_PIPE] = pipe->stages},
                                            .me = me,
                                            .stage_blocks = bounds};
    sw_partition_uniform(parts, parts, bounds);
    if (plan_once(&spec, 1, &options, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

/* The first kernel of each phase takes a second, and nothing else takes time. */
static struct sw_cost (*costs_of(const struct sw_program *program))[2]
{
    struct sw_cost(*costs)[2] = calloc((size_t)program->n_instrs, sizeof *costs);
    const int32_t update = program->segment_first[SW_SEGMENT_UPDATE];
    for (int32_t i = 0; i < update;) {
        const struct sw_instr *instr = &program->instrs[i];
        const struct sw_instr_range range =
            sw_program_range(program, instr->segment, (int)instr->chunk);
        while (program->instrs[i].verb != SW_VERB_KERNEL) {
            i++;
        }
        costs[i][0].seconds = costs[i][1].seconds = 1;
        i = range.end;
    }
    return costs;
}

/* Idle time over computing time, of all stages from the first forward to the last phase. */
static double idle_over_computing(enum sw_step_schedule schedule, const struct sw_pipe *pipe)
{
    struct sw_clock_rank stages[MOST_STAGES];
    struct sw_pace paces[MOST_STAGES];
    struct sw_cost(*costs[MOST_STAGES])[2];
    double idle = 0;
    for (int s = 0; s < pipe->stages; s++) {
        struct sw_plan *plan = plan_of(schedule, pipe, s);
        costs[s] = costs_of(&plan->programs[0]);
        paces[s] = (struct sw_pace){.costs = (const struct sw_cost(*)[2])costs[s]};
        stages[s] = (struct sw_clock_rank){.plan = plan, .pace = &paces[s]};
    }
    if (sw_clock_ranks(stages, pipe->stages) < 0) {
        fail_msg("%s", sw_error_message());
    }
    for (int s = 0; s < pipe->stages; s++) {
        idle += stages[s].idle / pipe->stages;
        sw_plan_close((struct sw_plan *)(uintptr_t)stages[s].plan);
        free(costs[s]);
    }
    return idle / (1 - idle);
}

/* parts: by how much the schedule divides the time to fill and to drain */
static void check(enum sw_step_schedule schedule, const struct sw_pipe *pipe, int parts)
{
    const double wanted = (pipe->stages - 1.0) / (parts * pipe->micro_batches);
    const double found = idle_over_computing(schedule, pipe);
    if (!(fabs(found - wanted) <= 0.1 * wanted)) {
        fail_msg("%s, %d stages of %d chunks, %d micro-batches: idle %g of the computing time, "
                 "wanted %g",
                 sw_schedule_name(schedule), pipe->stages, pipe->chunks, pipe->micro_batches, found,
                 wanted);
    }
}

static void chunks_divide_the_time_to_fill_and_drain(void **state)
{
    (void)state;
    for (int stages = 4; stages <= MOST_STAGES; stages *= 2) {
        for (int chunks = 2; stages * chunks <= MOST_PARTS; chunks++) {
            for (int n = stages; n <= 3 * stages; n++) {
                check(SW_STEP_INTERLEAVED, &(struct sw_pipe){stages, chunks, n}, chunks);
            }
        }
    }
}

static void weights_fill_the_time_to_drain(void **state)
{
    (void)state;
    for (int stages = 4; stages <= MOST_STAGES; stages *= 2) {
        for (int n = stages; n <= 3 * stages; n++) {
            check(SW_STEP_ZERO_BUBBLE, &(struct sw_pipe){stages, 1, n}, 3);
        }
    }
}

static void one_chunk_waits_to_fill_and_drain(void **state)
{
    (void)state;
    for (int stages = 4; stages <= MOST_STAGES; stages *= 2) {
        check(SW_STEP_1F1B, &(struct sw_pipe){stages, 1, 2 * stages}, 1);
        check(SW_STEP_GPIPE, &(struct sw_pipe){stages, 1, 2 * stages}, 1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(chunks_divide_the_time_to_fill_and_drain),
    cmocka_unit_test(weights_fill_the_time_to_drain),
    cmocka_unit_test(one_chunk_waits_to_fill_and_drain),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
