// SPDX-License-Identifier: Apache-2.0
// Tests a pipeline whose stages are threads: after some steps, every parameter has the bits that
// one rank gives it.
#include <pthread.h>
#include <string.h>

#include "run/run.h"
#include "support/plans.h"
#include "support/test.h"
#include "support/towers.h"

enum { BLOCKS = 6, MOST_PARAMS = 16, MOST_BYTES = 1024, STEPS = 3 };

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    sw_device_query(ctx, desc, out);
}

static struct sw_graph *build(void)
{
    return test_tower(&(struct test_tower){
        .graph = {.dtype = SW_BF16, .grad_dtype = SW_BF16, .training = true, .loss_chunk = 5},
        .blocks = BLOCKS,
        .batch = 2,
        .tokens = 3,
        .vocab = 11,
        .width = 6,
        .inner = 8,
        .std = 0.3,
        .has_side = true,
    });
}

/* The parameters of all stages after training. */
struct trained {
    enum sw_step_schedule schedule;
    int stages, chunks, micro_batches;
    pthread_mutex_t lock;
    int n;
    struct {
        char name[32];
        size_t bytes;
        char at[MOST_BYTES];
    } params[MOST_PARAMS];
};

static uint64_t number_of(const char *name)
{
    uint64_t n = 7;
    for (; *name; name++) {
        n = n * 31 + (uint64_t)*name;
    }
    return n;
}

/* Initial values depend on the name alone. */
static sw_status give_values(struct sw_executor *ex, const struct sw_plan *plan)
{
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        char bytes[MOST_BYTES];
        SW_TRY(sw_executor_zero(ex, item));
        for (int64_t k = 0; item->role == SW_ROLE_PARAM && k < sw_shape_elems(&item->shape); k++) {
            sw_store_f64(item->dtype, bytes, k,
                         0.5 * sw_philox_normal(1, number_of(item->name), (uint64_t)k));
        }
        SW_TRY(item->role == SW_ROLE_PARAM ? sw_executor_load(ex, item, 0, bytes, item->bytes)
                                           : SW_OK);
    }
    return SW_OK;
}

static sw_status give_inputs(struct sw_executor *ex, const struct sw_program *program, int step,
                             int32_t k)
{
    const int32_t ids[6] = {1, 5, step, 10, k, 5}, labels[6] = {5, 2, -100, k, 5, 9};
    const struct sw_port *port = sw_program_input(program, "ids", 0);
    SW_TRY(sw_executor_give(ex, port, k, ids, sizeof ids));
    port = sw_program_input(program, "labels", 0);
    return sw_executor_give(ex, port, k, labels, sizeof labels);
}

static sw_status run_steps(struct sw_executor *ex, const struct sw_plan *plan)
{
    const double micro_batches = (double)plan->step.rounds;
    sw_executor_set(ex, SW_SCALAR_LOSS_SCALE, 1);
    sw_executor_set(ex, SW_SCALAR_GRAD_FACTOR, 1 / micro_batches);
    sw_executor_set(ex, SW_SCALAR_OVERFLOW_FACTOR, 1 / micro_batches);
    sw_executor_set(ex, SW_SCALAR_LR, 0.01);
    sw_executor_set(ex, SW_SCALAR_BETA1, 0.9);
    sw_executor_set(ex, SW_SCALAR_BETA2, 0.99);
    for (int step = 0; step < STEPS; step++) {
        for (int64_t k = 0; k < plan->step.rounds; k++) {
            sw_executor_set_of(ex, k, SW_SCALAR_MICRO, step * micro_batches + (double)k);
            sw_executor_set_of(ex, k, SW_SCALAR_FIRST, k == 0);
        }
        sw_executor_set(ex, SW_SCALAR_STEP, step + 1);
        for (int32_t at = 0; at < plan->step.n_phases;) {
            const struct sw_step_phase *phase = &plan->step.phases[at];
            if (phase->action == SW_STEP_RUN && phase->segment == SW_SEGMENT_FORWARD &&
                phase->chunk == 0) {
                SW_TRY(give_inputs(ex, &plan->programs[0], step, (int32_t)phase->round));
            }
            SW_TRY(sw_executor_walk(ex, NULL, &at, at + 1));
        }
    }
    return SW_OK;
}

static sw_status take_params(struct sw_executor *ex, const struct sw_plan *plan,
                             struct trained *out)
{
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        if (item->role != SW_ROLE_PARAM || item->layout.is_absent) {
            continue;
        }
        pthread_mutex_lock(&out->lock);
        const int n = out->n++;
        pthread_mutex_unlock(&out->lock);
        snprintf(out->params[n].name, sizeof out->params[n].name, "%s", item->name);
        out->params[n].bytes = item->bytes;
        SW_TRY(sw_executor_save(ex, item, 0, out->params[n].at, item->bytes));
    }
    return SW_OK;
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct trained *t = ctx;
    struct sw_device *dev = NULL;
    struct sw_plan *plan = NULL;
    struct sw_executor *ex = NULL;
    const int parts = t->stages * t->chunks;
    int bounds[BLOCKS + 1];
    SW_TRY(sw_device_open("cpu:reference", 1, &dev));
    const struct sw_plan_options options = {
        .device = {query, dev},
        .policy.micro_batches = t->micro_batches,
        .policy.schedule = t->schedule,
        .policy.chunks = t->chunks,
        .clip = 0.5,
        .rule = &test_adam,
        .mesh.size = {[SW_AXIS_PIPE] = t->stages},
        .me = sw_comm_rank(comm),
        .stage_blocks = t->stages > 1 ? bounds : NULL,
    };
    const struct sw_executor_options ex_options = {.verify = true, .comm = comm};
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, build()};
    for (int i = 0; i <= parts; i++) {
        bounds[i] = i * BLOCKS / parts;
    }
    sw_status st = plan_once(&spec, 1, &options, &plan);
    st = st < 0 ? st : sw_executor_open(plan, dev, &ex_options, &ex);
    st = st < 0 ? st : give_values(ex, plan);
    st = st < 0 ? st : run_steps(ex, plan);
    st = st < 0 ? st : take_params(ex, plan, t);
    sw_executor_close(ex);
    sw_plan_close(plan);
    sw_device_close(dev);
    return st;
}

static void run(struct trained *t, enum sw_step_schedule schedule, int stages, int chunks,
                int micro_batches)
{
    *t = (struct trained){schedule, stages, chunks, micro_batches,
                          .lock = PTHREAD_MUTEX_INITIALIZER};
    if (sw_threads_run(stages, 20, train, t) < 0) {
        fail_msg("%s, %d stages of %d chunks, %d micro-batches: %s", sw_schedule_name(schedule),
                 stages, chunks, micro_batches, sw_error_message());
    }
    assert_int_equal(t->n, 3 + 2 * BLOCKS);
}

static void assert_same(const struct trained *a, const struct trained *b)
{
    for (int i = 0; i < a->n; i++) {
        int k = 0;
        while (k < b->n && strcmp(a->params[i].name, b->params[k].name) != 0) {
            k++;
        }
        assert_in_range(k, 0, b->n - 1);
        assert_int_equal(a->params[i].bytes, b->params[k].bytes);
        assert_memory_equal(a->params[i].at, b->params[k].at, a->params[i].bytes);
    }
}

static void stages_give_the_bits_of_one_rank(void **state)
{
    (void)state;
    static const enum sw_step_schedule schedules[] = {SW_STEP_GPIPE, SW_STEP_1F1B,
                                                      SW_STEP_ZERO_BUBBLE, SW_STEP_INTERLEAVED};
    struct trained *one = malloc(sizeof *one), *many = malloc(sizeof *many);
    for (int micro_batches = 1; micro_batches <= 8; micro_batches = 2 * micro_batches + 1) {
        run(one, SW_STEP_HORIZONTAL, 1, 1, micro_batches);
        for (int stages = 2; stages <= BLOCKS; stages++) {
            for (size_t s = 0; s < SW_LEN(schedules); s++) {
                const int most = schedules[s] == SW_STEP_INTERLEAVED ? BLOCKS / stages : 1;
                for (int chunks = 1; chunks <= most; chunks++) {
                    run(many, schedules[s], stages, chunks, micro_batches);
                    assert_same(one, many);
                }
            }
        }
    }
    free(one);
    free(many);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stages_give_the_bits_of_one_rank),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
