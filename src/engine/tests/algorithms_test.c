// SPDX-License-Identifier: Apache-2.0
// Compares the algorithms that a library chose for products: product by product, between ranks, and
// with the run that wrote a checkpoint. Older checkpoints without algorithms still load. The
// products run on an emulated GPU, whose library is then made to answer differently.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "engine/agree.h"
#include "spillway/comm.h"
#include "support/scratch.h"
#include "support/test.h"

static char model_path[64];

static void only_the_same_question_is_compared(void **state)
{
    (void)state;
    static const struct {
        const char *was, *is, *product, *old, *now; /* product NULL: there is no difference */
    } cases[] = {
        {"", "", NULL, NULL, NULL},
        {"1x2x3: algorithm 1", "", NULL, NULL, NULL},
        {"1x2x3: algorithm 1", "1x2x3: algorithm 1", NULL, NULL, NULL},
        {"1x2x3: algorithm 1; 4x5x6: own", "4x5x6: own; 1x2x3: algorithm 1", NULL, NULL, NULL},
        {"1x2x3: algorithm 1", "1x2x33: algorithm 2; 11x2x3: algorithm 2", NULL, NULL, NULL},
        {"1x2x3: algorithm 1", "4x5x6: own; 1x2x3: algorithm 12", "1x2x3", "algorithm 1",
         "algorithm 12"},
        {"7x8x9: own; 1x2x3: algorithm 12", "1x2x3: algorithm 1; 4x5x6: own", "1x2x3",
         "algorithm 12", "algorithm 1"},
        {"no question; 1x2x3: own", "no answer; 1x2x3: own", NULL, NULL, NULL},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct sw_other_algorithm other;
        const char *was = cases[i].was;
        const bool found = sw_device_next_other_algorithm(&was, cases[i].is, &other);
        assert_int_equal(found, cases[i].product != NULL);
        if (found) {
            assert_string_equal(other.product, cases[i].product);
            assert_string_equal(other.was, cases[i].old);
            assert_string_equal(other.is, cases[i].now);
            assert_false(sw_device_next_other_algorithm(&was, cases[i].is, &other));
        }
    }
}

/* ---- engines ---- */

static sw_status open_engine(sw_comm *comm, const char *device, bool any_math, sw_engine **out)
{
    char config[512];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\", "
             "\"params\": {\"lr\": 0.01}}, \"spillway\": {\"threads\": 1, \"device\": \"%s\", "
             "\"allow_other_math\": %s}}",
             device, any_math ? "true" : "false");
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = model_path,
                                              .inputs.seq_len = 8,
                                              .run.comm = comm,
                                              .seed = 5,
                                              .train.wanted = true};
    return sw_initialize(&options, out);
}

/* A wrapper around the real library that changes or drops its answers. */
static const struct sw_device_ops *real;

static void otherwise(struct sw_device *dev, struct sw_str *out)
{
    real->algorithms(dev, out);
    sw_str_puts(out, "9"); /* changes the number at the end of the last entry */
}

static void silent(struct sw_device *dev, struct sw_str *out)
{
    (void)dev;
    (void)out;
}

static void answer(sw_engine *e, void (*algorithms)(struct sw_device *, struct sw_str *),
                   struct sw_device_ops *ops)
{
    *ops = *real;
    ops->algorithms = algorithms;
    e->device->ops = ops;
}

static sw_engine *open_alone(const char *device, bool any_math)
{
    sw_engine *e = NULL;
    if (open_engine(NULL, device, any_math, &e) < 0) {
        if (strstr(sw_error_message(), "SPILLWAY_GPU_EMULATION")) {
            print_message("skipped: %s\n", sw_error_message());
            skip();
        }
        fail_msg("%s", sw_error_message());
    }
    real = e->device->ops;
    return e;
}

static void save(sw_engine *e, const char *path, const char *wants)
{
    struct sw_ckpt *ckpt = NULL;
    assert_int_equal(sw_save(e, path, NULL), SW_OK);
    assert_int_equal(sw_ckpt_open(path, &ckpt), SW_OK);
    const char *says = sw_ckpt_meta(ckpt)->algorithms;
    if (wants ? !says || !strstr(says, wants) : says != NULL) {
        fail_msg("%s, wanted %s", says ? says : "nothing", wants ? wants : "nothing");
    }
    sw_ckpt_close(ckpt);
}

static void a_checkpoint_of_other_algorithms_is_refused(void **state)
{
    (void)state;
    char path[96];
    struct sw_device_ops ops;
    snprintf(path, sizeof path, "%s/run", test_folder());
    sw_engine *e = open_alone("emu", false);
    save(e, path, ": algorithm ");
    assert_int_equal(sw_load(e, path), SW_OK);
    answer(e, otherwise, &ops);
    assert_int_equal(sw_load(e, path), SW_E_CONFIG);
    static const char *const says[] = {"product of ", " of f32 to f32", "algorithm ", " -> ",
                                       "spillway.allow_other_math=true"};
    for (size_t i = 0; i < SW_LEN(says); i++) {
        if (!strstr(sw_error_message(), says[i])) {
            fail_msg("%s, wanted %s", sw_error_message(), says[i]);
        }
    }
    sw_close(e);
    e = open_alone("emu", true);
    answer(e, otherwise, &ops);
    sw_log_set_level(SW_LOG_ERROR);
    assert_int_equal(sw_load(e, path), SW_OK);
    sw_log_set_level(SW_LOG_WARN);
    sw_close(e);
}

static void a_checkpoint_that_does_not_say_goes_on(void **state)
{
    (void)state;
    char path[96];
    struct sw_device_ops ops;
    snprintf(path, sizeof path, "%s/old", test_folder());
    sw_engine *e = open_alone("emu", false);
    answer(e, silent, &ops);
    save(e, path, NULL);
    answer(e, otherwise, &ops);
    assert_int_equal(sw_load(e, path), SW_OK);
    sw_close(e);
    snprintf(path, sizeof path, "%s/cpu", test_folder());
    e = open_alone("cpu", false);
    save(e, path, NULL);
    sw_close(e);
}

/* ---- ranks ---- */

struct job {
    bool any_math;
    sw_status agreed[2];
    char message[2][1024];
};

static sw_status rank_main(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    const int rank = sw_comm_rank(comm);
    struct sw_device_ops ops;
    sw_engine *e = NULL;
    SW_TRY(open_engine(comm, "emu", job->any_math, &e)); /* this rank agrees with rank 0 */
    if (rank == 1) {
        answer(e, otherwise, &ops);
    }
    job->agreed[rank] = sw_engine_agree_on_algorithms(e);
    snprintf(job->message[rank], sizeof job->message[0], "%s", sw_error_message());
    sw_close(e);
    return SW_OK;
}

static void ranks_of_other_algorithms_are_named(void **state)
{
    (void)state;
    sw_close(open_alone("emu", false));
    for (int any = 0; any < 2; any++) {
        struct job job = {.any_math = any};
        if (sw_threads_run(2, 60, rank_main, &job) < 0) {
            fail_msg("%s", sw_error_message());
        }
        for (int r = 0; r < 2; r++) {
            assert_int_equal(job.agreed[r], any ? SW_OK : SW_E_CONFIG);
            assert_true(any || (strstr(job.message[r], "the product of ") &&
                                strstr(job.message[r], " on rank 0, by algorithm ") &&
                                strstr(job.message[r], "9 on rank 1")));
        }
    }
}

static int set_up(void **state)
{
    (void)state;
    static const char model[] = "{\"model_type\":\"gpt2\",\"vocab_size\":37,\"n_positions\":16,"
                                "\"n_embd\":24,\"n_layer\":1,\"n_head\":3}";
    snprintf(model_path, sizeof model_path, "%s/config.json", test_folder());
    test_put("config.json", model);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(only_the_same_question_is_compared),
    cmocka_unit_test(a_checkpoint_of_other_algorithms_is_refused),
    cmocka_unit_test(a_checkpoint_that_does_not_say_goes_on),
    cmocka_unit_test(ranks_of_other_algorithms_are_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
