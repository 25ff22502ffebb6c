// SPDX-License-Identifier: Apache-2.0
// Tests the executor on the mock device, which has its own address space, copies as late as the
// order allows, and poisons memory after release. A missing wait, or a host pointer used as a
// device pointer, changes bits in comparison with the plain device. Small plans also survive the
// failure of every allocation.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/run.h"
#include "support/plans.h"
#include "support/test.h"

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    sw_device_query(ctx, desc, out);
}

static struct sw_graph *build(enum sw_dtype dtype)
{
    const struct sw_graph_options options = {
        .dtype = dtype, .grad_dtype = dtype, .training = true, .loss_chunk = 5};
    const struct sw_init init = {SW_INIT_NORMAL, 0.3};
    struct sw_graph *g = NULL;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value table = sw_param(g, "table", SW_SHAPE(11, 6), init);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(2, 3)), -1);
    const sw_value qkv =
        sw_linear(g, h, sw_param(g, "qkv", SW_SHAPE(6, 18), init), SW_NO_VALUE, true);
    const struct sw_attention_spec spec = {.heads = 2,
                                           .scale = 0.5,
                                           .causal = true,
                                           .dropout = 0.2,
                                           .mask = -1,
                                           .position = -1,
                                           .slopes = -1,
                                           .segments = -1,
                                           .bias = SW_NO_VALUE};
    h = sw_add(g, h, sw_dropout(g, sw_attention_packed(g, qkv, &spec), 0.1));
    h = sw_layer_norm(g, h, sw_param(g, "w", SW_SHAPE(6), (struct sw_init){SW_INIT_ONE, 0}),
                      sw_param(g, "b", SW_SHAPE(6), (struct sw_init){SW_INIT_ZERO, 0}), 1e-5);
    const sw_value loss = sw_linear_cross_entropy(g, h, table, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(2, 3)), 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}

static struct sw_plan_options options_of(struct sw_device *dev)
{
    return (struct sw_plan_options){.device = {query, dev},
                                    .policy.micro_batches = 2,
                                    .clip = 0.5,
                                    .rule = &test_adam,
                                    .staging_bytes = dev->staging_bytes};
}

/* Opens plan and executor; *plan and *ex are set as far as it got. */
static sw_status open_with(struct sw_device *dev, struct sw_graph *g,
                           const struct sw_plan_options *options, struct sw_plan **plan,
                           struct sw_executor **ex)
{
    const struct sw_executor_options ex_options = {.verify = true};
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    const sw_status st = plan_once(&spec, 1, options, plan);
    return st < 0 ? st : sw_executor_open(*plan, dev, &ex_options, ex);
}

/* budget: for host memory */
static sw_status open_within(struct sw_device *dev, struct sw_graph *g, size_t budget,
                             struct sw_plan **plan, struct sw_executor **ex)
{
    struct sw_plan_options options = options_of(dev);
    options.policy.budget[SW_TIER_HOST] = budget;
    return open_with(dev, g, &options, plan, ex);
}

static sw_status open_all(struct sw_device *dev, struct sw_graph *g, struct sw_plan **plan,
                          struct sw_executor **ex)
{
    const struct sw_plan_options options = options_of(dev);
    return open_with(dev, g, &options, plan, ex);
}

static void run(struct sw_executor *ex, struct sw_plan *plan)
{
    const struct sw_program *program = &plan->programs[0];
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        assert_int_equal(sw_executor_zero(ex, item), SW_OK);
        if (item->role == SW_ROLE_PARAM) {
            const int64_t n = sw_shape_elems(&item->shape);
            void *values = malloc(item->bytes);
            for (int64_t k = 0; k < n; k++) {
                sw_store_f64(item->dtype, values, k, sw_philox_normal(1, (uint64_t)i, (uint64_t)k));
            }
            assert_int_equal(sw_executor_load(ex, item, 0, values, item->bytes), SW_OK);
            free(values);
        }
    }
    const int64_t micro_batches = plan->step.rounds;
    sw_executor_set(ex, SW_SCALAR_LOSS_SCALE, 1);
    sw_executor_set(ex, SW_SCALAR_GRAD_FACTOR, 1.0 / (double)micro_batches);
    sw_executor_set(ex, SW_SCALAR_OVERFLOW_FACTOR, 1.0 / (double)micro_batches);
    sw_executor_set(ex, SW_SCALAR_LR, 0.01);
    sw_executor_set(ex, SW_SCALAR_BETA1, 0.9);
    sw_executor_set(ex, SW_SCALAR_BETA2, 0.99);
    for (int step = 0; step < 3; step++) {
        for (int64_t k = 0; k < micro_batches; k++) {
            sw_executor_set_of(ex, k, SW_SCALAR_MICRO, (double)(step * micro_batches + k));
            sw_executor_set_of(ex, k, SW_SCALAR_FIRST, k == 0);
        }
        sw_executor_set(ex, SW_SCALAR_STEP, step + 1);
        for (int32_t at = 0; at < plan->step.n_phases;) {
            const struct sw_step_phase *phase = &plan->step.phases[at];
            const int32_t k = (int32_t)phase->round;
            const int32_t ids[6] = {1, 5, step, 10, k, 5}, labels[6] = {5, 2, -100, k, 5, 9};
            if (phase->action == SW_STEP_RUN && phase->segment == SW_SEGMENT_FORWARD) {
                const struct sw_port *port = sw_program_input(program, "ids", 0);
                assert_int_equal(sw_executor_give(ex, port, k, ids, sizeof ids), SW_OK);
                port = sw_program_input(program, "labels", 0);
                assert_int_equal(sw_executor_give(ex, port, k, labels, sizeof labels), SW_OK);
            }
            assert_int_equal(sw_executor_walk(ex, NULL, &at, at + 1), SW_OK);
        }
        assert_true(isfinite(sw_executor_get(ex, SW_SCALAR_NORM)));
        assert_true(sw_executor_get(ex, SW_SCALAR_NORM) > 0);
    }
}

/* Compares the persistent bytes of two executors. */
static void assert_same(struct sw_executor *const ex[2], struct sw_plan *const plan[2])
{
    for (int32_t i = 0; i < plan[0]->n_persistent; i++) {
        const struct sw_persistent *item = &plan[0]->persistent[i];
        char *bytes[2];
        for (int k = 0; k < 2; k++) {
            bytes[k] = malloc(item->bytes);
            assert_int_equal(
                sw_executor_save(ex[k], &plan[k]->persistent[i], 0, bytes[k], item->bytes), SW_OK);
        }
        assert_memory_equal(bytes[0], bytes[1], item->bytes);
        free(bytes[0]);
        free(bytes[1]);
    }
}

static void mock_gives_the_same_bits(void **state)
{
    (void)state;
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    static const char *const names[] = {"cpu:reference", "mock", "cpu:reference", "mock:early"};
    for (size_t d = 0; d < 2 * SW_LEN(dtypes); d++) {
        struct sw_device *dev[2] = {0};
        struct sw_plan *plan[2] = {0};
        struct sw_executor *ex[2] = {0};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(sw_device_open(names[2 * (d % 2) + (size_t)i], 2, &dev[i]), SW_OK);
            if (open_all(dev[i], build(dtypes[d / 2]), &plan[i], &ex[i]) < 0) {
                fail_msg("%s", sw_error_message());
            }
            run(ex[i], plan[i]);
        }
        assert_same(ex, plan);
        for (int i = 0; i < 2; i++) {
            sw_executor_close(ex[i]);
            sw_plan_close(plan[i]);
            sw_device_close(dev[i]);
        }
    }
}

/* ---- several micro-batches in flight ---- */

enum { IN_FLIGHT = 5 };

/* Sum of the rings of a program, whose slots are as many as micro-batches are in flight. */
static size_t bytes_of_rings(const struct sw_program *program)
{
    size_t bytes = 0;
    for (int32_t b = 0; b < program->n_buffers; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        if (buffer->micro_bytes > 0) {
            assert_int_equal(buffer->bytes, IN_FLIGHT * buffer->micro_bytes);
            bytes += buffer->bytes;
        }
    }
    return bytes;
}

/* Trains under a schedule; what it computes has the bits of one micro-batch after the other. way: a
 * set of 1: on the mock, 2: activations in host memory, 4: updates in the last backward */
static void compare_with_horizontal(enum sw_step_schedule schedule, unsigned way)
{
    struct sw_device *dev[2] = {0};
    struct sw_plan *plan[2] = {0};
    struct sw_executor *ex[2] = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sw_device_open((way & 1) ? "mock" : "cpu:reference", 2, &dev[i]), SW_OK);
        struct sw_plan_options options = options_of(dev[i]);
        options.policy.micro_batches = IN_FLIGHT;
        options.policy.schedule = i == 0 ? SW_STEP_HORIZONTAL : schedule;
        options.policy.activations_tier = (way & 2) ? SW_TIER_HOST : SW_TIER_DEVICE;
        options.policy.states_tier = (way & 4) ? SW_TIER_HOST : SW_TIER_DEVICE;
        options.clip = (way & 4) ? 0 : options.clip;
        if (open_with(dev[i], build(SW_BF16), &options, &plan[i], &ex[i]) < 0) {
            fail_msg("%s", sw_error_message());
        }
        run(ex[i], plan[i]);
    }
    assert_int_equal(bytes_of_rings(&plan[0]->programs[0]), 0);
    const bool keeps = schedule == SW_STEP_GPIPE; /* one stage of 1F1B has one in flight */
    assert_int_equal(bytes_of_rings(&plan[1]->programs[0]) > 0, keeps);
    assert_int_equal(sw_executor_high_water(ex[1]), plan[1]->tier_bytes[SW_TIER_DEVICE]);
    assert_same(ex, plan);
    for (int i = 0; i < 2; i++) {
        sw_executor_close(ex[i]);
        sw_plan_close(plan[i]);
        sw_device_close(dev[i]);
    }
}

static void micro_batches_are_in_flight(void **state)
{
    (void)state;
    for (unsigned way = 0; way < 8; way++) {
        compare_with_horizontal(SW_STEP_GPIPE, way);
        compare_with_horizontal(SW_STEP_1F1B, way);
    }
}

/* Staging memory and the places for inputs are part of the plan and of its budget; without them
 * opening fails. */
static void staging_memory_is_planned(void **state)
{
    (void)state;
    struct sw_device *dev = NULL;
    struct sw_plan *plan = NULL;
    struct sw_executor *ex = NULL;
    assert_int_equal(sw_device_open("mock", 1, &dev), SW_OK);
    /* two inputs of 24 bytes in two micro-batches */
    const size_t wanted = dev->staging_bytes + 4096;
    assert_int_equal(open_within(dev, build(SW_F32), wanted - 1, &plan, &ex), SW_E_NOMEM);
    assert_non_null(strstr(sw_error_message(), "host memory needs 69632 bytes"));
    assert_int_equal(open_within(dev, build(SW_F32), wanted, &plan, &ex), SW_OK);
    assert_int_equal(plan->tier_bytes[SW_TIER_HOST], wanted);
    assert_int_equal(plan->staging.input_bytes, 2 * 64);
    const struct sw_program *program = &plan->programs[0];
    for (int32_t i = 0; i < program->ports.n_inputs; i++) {
        /* a place for each input in both micro-batches */
        const struct sw_operand *slot = &program->ports.inputs[i].slot;
        assert_int_equal(slot->tier, SW_TIER_HOST);
        assert_int_equal(slot->offset, plan->staging.bytes + (size_t)i * 64);
        for (int64_t micro = 0; micro < 2; micro++) {
            const int64_t index[SW_RING_COUNT] = {[SW_RING_MICRO] = micro};
            assert_int_equal(sw_operand_shift(slot, index), (size_t)micro * 2 * 64);
        }
    }
    sw_executor_close(ex);
    plan->staging.bytes = 4096;
    sw_plan_share_staging(plan);
    const struct sw_executor_options options = {0};
    assert_int_equal(sw_executor_open(plan, dev, &options, &ex), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "4096 bytes of host memory"));
    sw_plan_close(plan);
    sw_device_close(dev);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const struct sw_cpu_options cpu = {.n_threads = 1, .reference = true};
    struct sw_device *dev = NULL;
    struct sw_alloc_stats before, after;
    assert_int_equal(sw_device_open_cpu(&cpu, &dev), SW_OK);
    sw_alloc_get_stats(&before);
    for (int n = 1;; n++) {
        struct sw_graph *g = build(SW_F32);
        struct sw_plan *plan = NULL;
        struct sw_executor *ex = NULL;
        sw_alloc_fail_nth(n);
        const sw_status st = open_all(dev, g, &plan, &ex);
        sw_alloc_fail_nth(0);
        sw_executor_close(ex);
        sw_plan_close(plan);
        if (st == SW_OK) {
            assert_true(n > 10);
            break;
        }
        assert_int_equal(st, SW_E_NOMEM);
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
    assert_int_equal(dev->live_bytes[SW_MEM_DEVICE], 0);
    sw_device_close(dev);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(mock_gives_the_same_bits),
    cmocka_unit_test(micro_batches_are_in_flight),
    cmocka_unit_test(staging_memory_is_planned),
    cmocka_unit_test(every_allocation_may_fail),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
