// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// COST 5
// Counts how often the thread that issues a step waits for the device. It may wait for the losses,
// before work that cannot be rolled back, and for the report, but not per layer or micro-batch. The
// mock device runs work either when somebody waits for it, or as early as possible.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/private.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 1, T = 5, V = 31, STEPS = 2, MOST_K = 8, MOST_WAITS = 3 };

/* The mock with counted waits. They are counted where they are called, so the executor cannot omit
 * one. */
static const struct sw_device_ops *mock_ops;
static struct sw_device_ops counting_ops;
static _Thread_local int64_t n_called;

static sw_status stream_wait(struct sw_device *dev, struct sw_stream_queue *stream)
{
    n_called++;
    return mock_ops->stream_wait(dev, stream);
}

static sw_status timeline_wait(struct sw_device *dev, struct sw_timeline *timeline, int64_t value)
{
    n_called++;
    return mock_ops->timeline_wait(dev, timeline, value);
}

struct way {
    const char *device, *offload, *dtype;
    int stage, ranks, micro_batches, layers;
    bool vertical, overlap;
    double clip;
    int64_t waits[STEPS]; /* on rank 0, by step */
    int64_t n_skipped;
};

static void model_path(int layers, char *path, size_t size)
{
    snprintf(path, size, "%s/%d.json", test_folder(), layers);
}

static void write_model(int layers)
{
    char path[96], text[256];
    model_path(layers, path, sizeof path);
    snprintf(text, sizeof text,
             "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":%d,"
             "\"n_positions\":7,\"n_embd\":12,\"n_layer\":%d,\"n_head\":3,\"n_inner\":17}",
             V, layers);
    assert_int_equal(sw_file_write_atomic(path, text, strlen(text)), SW_OK);
}

static sw_status open_engine(const struct way *way, sw_comm *comm, sw_engine **out)
{
    char model[96], config[1536], offload[256] = "";
    model_path(way->layers, model, sizeof model);
    if (*way->offload) {
        snprintf(offload, sizeof offload,
                 "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}, ",
                 way->offload, test_folder());
    }
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": %g, %s"
             "\"zero_optimization\": {%s\"stage\": %d, \"overlap_comm\": %s, "
             "\"stage3_param_persistence_threshold\": 20}, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
             "\"spillway\": {\"micro_batches\": %d, \"threads\": 1, \"schedule\": \"%s\"}}",
             B, way->clip, way->dtype, offload, way->stage, way->overlap ? "true" : "false",
             way->micro_batches, way->vertical ? "vertical" : "horizontal");
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = model,
                                              .inputs.seq_len = T,
                                              .run = {.comm = comm, .device = way->device},
                                              .seed = 5,
                                              .train.wanted = true};
    return sw_initialize(&options, out);
}

/* Waits of the issuing thread. Waits of the queues' threads are listed separately and added to
 * *others. */
static int64_t waits_of(const sw_engine *e, int64_t *others)
{
    struct sw_queue_times times[SW_QUEUE_COUNT];
    sw_executor_queue_times(e->executor, times);
    *others = 0;
    for (int q = SW_QUEUE_COMPUTE + 1; q < SW_QUEUE_COUNT; q++) {
        *others += times[q].n_host_waits;
    }
    return times[SW_QUEUE_COMPUTE].n_host_waits;
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct way *way = ctx;
    sw_engine *e = NULL;
    int32_t ids[B * T] = {3, 1, 4, 1, 5}, labels[B * T] = {1, 4, 1, 5, -100};
    const struct sw_shape shape = SW_SHAPE(B, T);
    const struct sw_tensor tensors[2] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = labels, .dtype = SW_I32, .shape = shape}}};
    struct sw_batch batches[MOST_K];
    for (int k = 0; k < MOST_K; k++) {
        batches[k] = (struct sw_batch){tensors, 2};
    }
    sw_status st = open_engine(way, comm, &e);
    if (st >= 0) {
        e->device->ops = &counting_ops;
    }
    for (int i = 0; i < STEPS && st >= 0; i++) {
        struct sw_step_report report = {0};
        int64_t others_before, others;
        const int64_t before = waits_of(e, &others_before), called = n_called;
        st = sw_train_batch(e, batches, e->sizes.local, &report);
        const int64_t waits = waits_of(e, &others) - before;
        if (e->data.rank == 0) {
            way->waits[i] = waits;
            way->n_skipped += report.skipped;
        }
        if (st >= 0 && waits != n_called - called) {
            st = SW_FAIL(SW_E_ARG, "%lld waits were counted, the device has seen %lld",
                         (long long)waits, (long long)(n_called - called));
        }
        if (st >= 0 && (*way->offload || e->data.size > 1) && others == others_before) {
            st = SW_FAIL(SW_E_ARG, "no other thread has waited, and bytes have moved");
        }
    }
    sw_close(e);
    return st;
}

static void check(struct way *way)
{
    const sw_status st =
        way->ranks > 1 ? sw_threads_run(way->ranks, 60, train, way) : train(way, NULL);
    for (int i = 0; i < STEPS; i++) {
        if (st < 0 || way->waits[i] > MOST_WAITS || way->waits[i] < 1) {
            fail_msg("%s, stage %d, %d ranks, %d micro-batches %s, %d layers, offloaded to \"%s\", "
                     "%sclip %g: step %d waits %lld times, %s",
                     way->device, way->stage, way->ranks, way->micro_batches,
                     way->vertical ? "vertical" : "horizontal", way->layers, way->offload,
                     way->dtype, way->clip, i, (long long)way->waits[i],
                     st < 0 ? sw_error_message() : "wanted 1 to 3");
        }
    }
}

/* The first step of fp16 overflows. */
static const char fp16[] = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 24}, ";

/* Covers all stages on one rank and on two, each combined with each of the other choices. */
static void a_step_waits_three_times_at_most(void **state)
{
    (void)state;
    static const char *const devices[] = {"mock", "mock:early"};
    static const char *const offloads[] = {"", "cpu", "nvme"};
    static const int micro_batches[] = {1, 3, 8};
    int64_t n_skipped = 0;
    for (int i = 0; i < 4 * 2 * 3 * 3; i++) {
        const int stage = i % 4, ranks = 1 + i / 4 % 2, o = i / 8 % 3, k = i / 24;
        struct way way = {.device = devices[(stage + ranks + o + k) % 2],
                          .offload = stage == 0            ? ""
                                     : o == 2 && stage < 3 ? "cpu"
                                                           : offloads[o],
                          .dtype = (stage + o) % 2 ? fp16 : "",
                          .stage = stage,
                          .ranks = ranks,
                          .micro_batches = micro_batches[k],
                          .layers = (i / 4 + k) % 2 ? 2 : 6,
                          .vertical = (i + i / 8) % 3 == 0,
                          .overlap = (i + i / 4) % 3 > 0,
                          .clip = (i / 2 + k) % 2 ? 0.5 : 0};
        check(&way);
        n_skipped += way.n_skipped;
    }
    assert_true(n_skipped > 0);
}

/* The number of waits does not depend on layers and micro-batches. */
static void layers_and_micro_batches_add_no_wait(void **state)
{
    (void)state;
    for (int o = 0; o < 3; o++) {
        int64_t few = -1;
        for (int i = 0; i < 4; i++) {
            struct way way = {.device = "mock",
                              .offload = o == 0   ? ""
                                         : o == 1 ? "cpu"
                                                  : "nvme",
                              .dtype = fp16,
                              .stage = 3,
                              .ranks = 2,
                              .micro_batches = i % 2 ? 8 : 1,
                              .layers = i / 2 ? 6 : 2,
                              .overlap = true,
                              .clip = 0.5};
            check(&way);
            few = few < 0 ? way.waits[STEPS - 1] : few;
            assert_int_equal(way.waits[STEPS - 1], few);
        }
    }
}

static int set_up(void **state)
{
    (void)state;
    struct sw_device *dev = NULL;
    assert_int_equal(sw_device_open("mock", 1, &dev), SW_OK);
    mock_ops = dev->ops;
    counting_ops = *mock_ops;
    counting_ops.stream_wait = stream_wait;
    counting_ops.timeline_wait = timeline_wait;
    sw_device_close(dev);
    write_model(2);
    write_model(6);
    return 0;
}

/* LAMB's sums over ranks are exchanges that computation waits for, only in the last micro-step.
 * Before that, no wait shows that the exchanges of every micro-step have arrived. BLOOM has
 * gradients after the last block of backward, and operations after their updates. */
static sw_status look_at_exchanges(void *ctx, sw_comm *comm)
{
    char path[96];
    snprintf(path, sizeof path, "%s/bloom.json", test_folder());
    const struct sw_engine_options options = {
        .config.text =
            "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 0, "
            "\"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true, "
            "\"reduce_bucket_size\": 1000, \"offload_optimizer\": {\"device\": \"cpu\"}}, "
            "\"optimizer\": {\"type\": \"Lamb\"}, "
            "\"spillway\": {\"micro_batches\": 6, \"threads\": 1}}",
        .model.path = path,
        .inputs.seq_len = T,
        .run.comm = comm,
        .train.wanted = true,
    };
    int *n_wrong = ctx, n_seen = 0;
    sw_engine *e = NULL;
    SW_TRY(sw_initialize(&options, &e));
    const struct sw_program *program = &e->plan->programs[e->programs.train];
    for (int32_t i = 0; i < program->n_instrs && sw_comm_rank(comm) == 0; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        if (instr->queue == SW_QUEUE_COMM && !instr->exchange.blocking && !instr->last_only) {
            const struct sw_instr *known_by = &program->instrs[instr->retired];
            *n_wrong += known_by->exchange.blocking && known_by->last_only;
            n_seen++;
        }
    }
    sw_close(e);
    return n_seen > 0 || sw_comm_rank(comm) > 0 ? SW_OK : SW_FAIL(SW_E_ARG, "nothing is reduced");
}

static void an_exchange_that_is_left_out_tells_nothing(void **state)
{
    static const char model[] = "{\"model_type\":\"bloom\",\"vocab_size\":37,\"hidden_size\":21,"
                                "\"n_layer\":2,\"n_head\":3,\"seq_length\":11}";
    char path[96];
    int n_wrong = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/bloom.json", test_folder());
    assert_int_equal(sw_file_write_atomic(path, model, strlen(model)), SW_OK);
    if (sw_threads_run(2, 60, look_at_exchanges, &n_wrong) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(n_wrong, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_waits_three_times_at_most),
    cmocka_unit_test(layers_and_micro_batches_add_no_wait),
    cmocka_unit_test(an_exchange_that_is_left_out_tells_nothing),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
