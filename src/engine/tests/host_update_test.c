// SPDX-License-Identifier: Apache-2.0
// COST 20
// ZeRO-Offload: the host's CPU or the device can update states in host memory. Both give the same
// bits; updates on the host move only gradients and parameters. The planner chooses the faster one,
// and updates that the host cannot run are refused.
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "support/test.h"

static const char *const devices[] = {"mock", "mock:early", "emu", "emu:early"};

struct job {
    const char *device, *update, *precision, *clipping, *params, *optimizer;
    int stage, accumulate;
    const char *const *rates;
    int n_rates;
};

static sw_status open_engine(const struct job *job, sw_engine **out)
{
    char config[1024];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": %d, %s"
             "\"gradient_clipping\": %s, \"zero_optimization\": {\"stage\": %d, "
             "\"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": "
             "\"%s\"}, \"stage3_param_persistence_threshold\": 0}, \"optimizer\": {\"type\": "
             "\"%s\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1}}, \"spillway\": "
             "{\"update\": \"%s\", \"threads\": 2}}",
             job->accumulate, job->precision, job->clipping, job->stage, job->params,
             job->optimizer ? job->optimizer : "AdamW", job->update);
    const struct sw_engine_options options = {
        .config.text = config,
        .model = {.path = "gpt2-tiny", .vocab_size = 67},
        .inputs.seq_len = 8,
        .run.device = job->device,
        .seed = 3,
        .train.wanted = true,
        .plan = {.rates = job->rates, .n_rates = job->n_rates},
    };
    return sw_initialize(&options, out);
}

/* Returns NULL if this build lacks the device. */
static sw_engine *open_job(const struct job *job)
{
    sw_engine *e = NULL;
    if (open_engine(job, &e) < 0) {
        if (!strstr(sw_error_message(), "SPILLWAY_GPU_EMULATION")) {
            fail_msg("%s", sw_error_message());
        }
        print_message("skipped: %s\n", sw_error_message());
    }
    return e;
}

#ifdef TEST_SANITIZED /* sanitizers are slow; the second step reads the results of the first */
enum { STEPS = 2, MOST = 4 };
#else
enum { STEPS = 3, MOST = 4 };
#endif

static uint64_t train(sw_engine *e, double losses[STEPS])
{
    int32_t ids[MOST][16], labels[MOST][16];
    struct sw_tensor tensors[MOST][2];
    struct sw_batch batches[MOST];
    const int64_t n = sw_engine_local_micro_batches(e);
    assert_true(n <= MOST);
    for (int s = 0; s < STEPS; s++) {
        struct sw_step_report report;
        for (int64_t m = 0; m < n; m++) {
            const struct sw_shape shape = {2, {2, 8}};
            for (int i = 0; i < 16; i++) {
                ids[m][i] = (int32_t)(s * 31 + m * 17 + i * 5) % 67;
                labels[m][i] = (ids[m][i] * 3 + 1) % 67;
            }
            tensors[m][0] =
                (struct sw_tensor){"input_ids", {.data = ids[m], .dtype = SW_I32, .shape = shape}};
            tensors[m][1] =
                (struct sw_tensor){"labels", {.data = labels[m], .dtype = SW_I32, .shape = shape}};
            batches[m] = (struct sw_batch){tensors[m], 2};
        }
        assert_int_equal(sw_train_batch(e, batches, n, &report), SW_OK);
        losses[s] = report.loss;
    }
    uint64_t hash = SW_HASH_INIT;
    for (int32_t i = 0; i < sw_engine_n_tensors(e); i++) {
        const char *name;
        struct sw_shape shape;
        static float values[1 << 17];
        assert_int_equal(sw_engine_tensor(e, i, &name, &shape), SW_OK);
        const int64_t elems = sw_shape_elems(&shape);
        assert_true(elems <= (int64_t)SW_LEN(values));
        assert_int_equal(sw_get_weight(e, name, 0, elems, values), SW_OK);
        hash = sw_hash(hash, values, (size_t)elems * sizeof *values);
    }
    return hash;
}

/* Counts host instructions in a step. */
static int on_host(const sw_engine *e)
{
    const struct sw_engine_facts facts = sw_engine_facts(e);
    const struct sw_program *program = &facts.plan->programs[facts.train_program];
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        n += instr->queue == SW_QUEUE_HOST;
        for (int k = 0; instr->queue == SW_QUEUE_HOST && k < instr->n_in + instr->n_out; k++) {
            assert_int_equal(program->operands[instr->operands + k].tier, SW_TIER_HOST);
        }
    }
    return n;
}

#ifdef __SANITIZE_THREAD__ /* thread sanitizer is slow; all precisions use the same threads */
enum { FIRST_JOB = 3 };
#else
enum { FIRST_JOB = 0 };
#endif

/* Returns false if this build lacks the device. */
static bool check_host_beside_device(struct job job)
{
    uint64_t weights[2];
    double losses[2][STEPS];
    int64_t moved[2];
    for (int host = 0; host < 2; host++) {
        job.update = host ? "host" : "device";
        sw_engine *e = open_job(&job);
        if (!e) {
            return false;
        }
        assert_int_equal(on_host(e), host ? sw_engine_n_tensors(e) : 0);
        weights[host] = train(e, losses[host]);
        const struct sw_transfers t = sw_plan_transfers(sw_engine_facts(e).plan, 1);
        moved[host] = t.in[SW_TIER_HOST] + t.out[SW_TIER_HOST];
        sw_close(e);
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
    assert_true(weights[0] == weights[1]);
    assert_true(moved[1] < moved[0]);
    return true;
}

static void the_host_gives_the_bits_of_the_device_and_moves_less(void **state)
{
    static const struct job jobs[] = {
        {NULL, NULL, "", "0", "none", NULL, 1, 1, NULL, 0},
        {NULL, NULL, "\"bf16\": {\"enabled\": true}, ", "0", "none", NULL, 2, 1, NULL, 0},
        {NULL, NULL, "\"bf16\": {\"enabled\": true}, ", "0.5", "none", NULL, 2, 3, NULL, 0},
        {NULL, NULL, "\"bf16\": {\"enabled\": true}, ", "0", "cpu", NULL, 3, 2, NULL, 0},
        {NULL, NULL, "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 24}, ", "0.5", "none",
         NULL, 2, 2, NULL, 0},
    };
    (void)state;
    for (size_t d = 0; d < SW_LEN(devices); d++) {
        const bool emulated = d >= 2; /* emulation is slow: one case is enough */
        for (size_t j = emulated ? d - 1 : FIRST_JOB; j < (emulated ? d : SW_LEN(jobs)); j++) {
            struct job job = jobs[j];
            job.device = devices[d];
            if (!check_host_beside_device(job)) {
                return;
            }
        }
    }
}

/* GPU kernels and CPU kernels give the same 8-bit codes. */
static void codes_of_8_bits_are_the_same_on_both(void **state)
{
    const struct job job = {
        "emu", NULL, "\"bf16\": {\"enabled\": true}, ", "0.5", "none", "AdamW8bit", 2, 1, NULL, 0};
    (void)state;
    (void)check_host_beside_device(job);
}

static void an_update_is_where_a_step_takes_less(void **state)
{
    static const char *const slow_copies[] = {"copy=1", "host=100", "f32=1e6"};
    static const char *const slow_host[] = {"copy=100", "host=1", "f32=1e6"};
    struct job job = {"mock", "auto", "", "0", "none", NULL, 2, 1, slow_copies, 3};
    (void)state;
    sw_engine *e = open_job(&job);
    assert_true(on_host(e) > 0);
    sw_close(e);
    job.rates = slow_host;
    e = open_job(&job);
    assert_int_equal(on_host(e), 0);
    sw_close(e);
    job.device = "cpu"; /* the CPU has one memory, so there is no choice */
    job.rates = slow_copies;
    e = open_job(&job);
    assert_int_equal(on_host(e), 0);
    sw_close(e);
}

static void what_the_host_cannot_update_is_refused(void **state)
{
    struct job job = {"mock", "host", "", "0", "none", "Lamb", 2, 1, NULL, 0};
    const struct sw_engine_options nothing_there = {
        .config.text = "{\"optimizer\": {\"type\": \"AdamW\"}, \"spillway\": {\"update\": "
                       "\"host\"}}",
        .model.path = "gpt2-tiny",
        .run.device = "mock",
        .train.wanted = true,
    };
    sw_engine *e = NULL;
    (void)state;
    assert_int_equal(open_engine(&job, &e), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "spillway.update"));
    assert_non_null(strstr(sw_error_message(), "LAMB"));
    assert_int_equal(sw_initialize(&nothing_there, &e), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "offload_optimizer.device \"cpu\""));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_host_gives_the_bits_of_the_device_and_moves_less),
    cmocka_unit_test(codes_of_8_bits_are_the_same_on_both),
    cmocka_unit_test(an_update_is_where_a_step_takes_less),
    cmocka_unit_test(what_the_host_cannot_update_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
