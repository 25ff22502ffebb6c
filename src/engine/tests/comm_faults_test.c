// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 600
// COST 20
// Fails each exchange of a run once. The run covers opening, a step with more rounds than some
// ranks have micro-batches, and a checkpoint. Every rank must return a status, no rank may wait for
// the deadline, and no memory may leak.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

#ifdef TEST_SANITIZED
enum { STRIDE = 5 }; /* each combination of ranks and stage starts at a different offset below 5 */
#else
enum { STRIDE = 1 };
#endif

enum { B = 2, T = 7, V = 37, K = 4, MOST_RANKS = 3, MOST_EXCHANGES = 1000 };
static const double deadline_s = 120;

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":37,"
    "\"n_positions\":11,\"n_embd\":21,\"n_layer\":2,\"n_head\":3,\"n_inner\":29}";
static char model_path[96], save_path[96];

struct run {
    int stage, bad_rank;
    int64_t fail_at;
    struct sw_transport transports[MOST_RANKS];
    sw_status st[MOST_RANKS];
    char message[MOST_RANKS][512];
};

static sw_status train(const struct run *run, sw_comm *comm, sw_engine **out)
{
    char config[512];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.5, "
             "\"zero_optimization\": {\"stage\": %d, \"stage3_param_persistence_threshold\": 30}, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
             "\"spillway\": {\"micro_batches\": %d, \"threads\": 1, \"kernels\": \"reference\"}}",
             B, run->stage, K);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = model_path,
                                              .inputs.seq_len = T,
                                              .run.comm = comm,
                                              .seed = 5,
                                              .train.wanted = true};
    const struct sw_save_options save = {.val_loss = NAN};
    SW_TRY(sw_initialize(&options, out));
    SW_TRY(test_train_step(*out, K, B, T, V, NULL));
    return sw_save(*out, save_path, &save);
}

static sw_status on_rank(void *ctx, sw_comm *ignored)
{
    struct run *run = ctx;
    const int rank = sw_comm_rank(ignored);
    const struct sw_fault_options fault = {.fail_at = rank == run->bad_rank ? run->fail_at : 0};
    struct sw_transport transport;
    sw_comm *comm = NULL;
    sw_engine *engine = NULL;
    SW_TRY(sw_fault_open(&run->transports[rank], &fault, &transport));
    SW_TRY(sw_comm_open(&transport, &comm));
    run->st[rank] = train(run, comm, &engine);
    snprintf(run->message[rank], sizeof run->message[rank], "%s", sw_error_message());
    if (run->st[rank] < 0) {
        sw_comm_abort(comm, run->st[rank]);
    }
    sw_close(engine);
    sw_comm_close(comm, run->st[rank] < 0);
    return SW_OK;
}

/* Returns true if the run succeeded: then the exchange to fail was never reached. */
static bool run_once(struct run *run, int ranks)
{
    struct sw_alloc_stats before, after;
    const double begin = sw_now_s();
    sw_alloc_get_stats(&before);
    assert_int_equal(sw_thread_transports_open(ranks, deadline_s, run->transports), SW_OK);
    assert_int_equal(sw_threads_run(ranks, deadline_s, on_rank, run), SW_OK);
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_true(sw_now_s() - begin < deadline_s);
    const bool well = run->st[run->bad_rank] >= 0;
    for (int r = 0; r < ranks; r++) {
        const sw_status want = well ? SW_OK : r == run->bad_rank ? SW_E_IO : SW_E_PEER;
        if (run->st[r] != want) {
            fail_msg("%d ranks, stage %d, exchange %lld of rank %d: rank %d returns %d: %s", ranks,
                     run->stage, (long long)run->fail_at, run->bad_rank, r, run->st[r],
                     run->message[r]);
        }
    }
    return well;
}

static void every_exchange_failed_once(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
        for (int stage = 0; stage <= 3; stage += 3) {
            for (int bad = 0; bad < ranks; bad++) {
                struct run run = {
                    .stage = stage, .bad_rank = bad, .fail_at = 1 + (bad + stage / 3) % STRIDE};
                while (run.fail_at < MOST_EXCHANGES && !run_once(&run, ranks)) {
                    run.fail_at += STRIDE;
                }
                assert_true(run.fail_at > 10 && run.fail_at < MOST_EXCHANGES);
            }
        }
    }
}

static int make_files(void **state)
{
    (void)state;
    test_put("config.json", model_json);
    snprintf(model_path, sizeof model_path, "%s/config.json", test_folder());
    snprintf(save_path, sizeof save_path, "%s/save", test_folder());
    return 0;
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(every_exchange_failed_once)};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_files};
