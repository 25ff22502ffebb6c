// SPDX-License-Identifier: Apache-2.0
// Every message of a start and a training step fails once, or the rank falls silent there: every rank gets a status
// that names it, nobody hangs, nothing leaks; and when no message fails any more the step is done.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "engine/engine.h"
#include "support/test.h"

enum { B = 1, T = 4, V = 12, RANKS = 3, MOST = 4000 };

static char model_path[64];
static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":12,\"n_positions\":4,\"n_embd\":6,\"n_layer\":1,"
    "\"n_head\":2}";

struct job {
    struct sw_transport transports[RANKS];
    int stage;
    int64_t fail_at, silent_at;
    sw_status st[RANKS];
};

static sw_status step(sw_comm *comm, int stage)
{
    char config[256];
    int32_t ids[B * T] = {1, 2, 3, 4};
    const struct sw_shape shape = {2, {B, T}};
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = ids, .dtype = SW_I32, .shape = shape}}};
    const struct sw_batch batch = {tensors, 2};
    struct sw_step_report report;
    sw_engine *e = NULL;
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"optimizer\": {\"type\": \"AdamW\"}, "
             "\"zero_optimization\": {\"stage\": %d, \"stage3_param_persistence_threshold\": 0}, "
             "\"spillway\": {\"threads\": 1}}",
             B, stage);
    const struct sw_engine_options options = {
        .config_text = config, .model = model_path, .seq_len = T, .seed = 1, .comm = comm};
    SW_TRY(sw_initialize(&options, &e));
    const sw_status st = sw_train_batch(e, &batch, 1, &report);
    sw_close(e);
    return st;
}

static sw_status run_rank(void *ctx, sw_comm *place)
{
    struct job *job = ctx;
    const int rank = sw_comm_rank(place);
    struct sw_transport transport = job->transports[rank];
    const struct sw_fault_options fault = {.fail_at = job->fail_at, .silent_at = job->silent_at};
    sw_comm *comm = NULL;
    if (rank == 1) {
        SW_TRY(sw_fault_open(&job->transports[rank], &fault, &transport));
    }
    SW_TRY(sw_comm_open(&transport, &comm));
    job->st[rank] = step(comm, job->stage);
    if (job->st[rank] < 0) {
        sw_comm_abort(comm, job->st[rank]);
    }
    sw_comm_close(comm, job->st[rank] < 0);
    return SW_OK;
}

/* True when the fault was met. */
static bool run(int stage, int64_t fail_at, int64_t silent_at)
{
    struct job job = {.stage = stage, .fail_at = fail_at, .silent_at = silent_at};
    /* a failure is told to the others; silence they have to wait out */
    assert_int_equal(sw_thread_transports_open(RANKS, silent_at ? 0.3 : 600, job.transports),
                     SW_OK);
    if (sw_threads_run(RANKS, 600, run_rank, &job) < 0) {
        fail_msg("%s", sw_error_message());
    }
    const bool met = job.st[1] == SW_E_IO;
    for (int r = 0; r < RANKS; r++) {
        if (r != 1 && met && job.st[r] != SW_E_PEER && job.st[r] != SW_OK) {
            fail_msg("stage %d, message %lld: rank %d has status %d", stage, (long long)fail_at, r,
                     job.st[r]);
        }
        if (!met && !silent_at) {
            assert_int_equal(job.st[r], SW_OK);
        }
    }
    return met;
}

static void every_message_fails_once(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage += 3) {
        int64_t n = 1;
        while (n < MOST && run(stage, n, 0)) {
            n++;
        }
        assert_true(n > 3 && n < MOST); /* the last ones may reach who has all that it needs */
        struct sw_alloc_stats before, after;
        sw_alloc_get_stats(&before);
        run(stage, 2, 0);
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_bytes, before.live_bytes);
    }
}

static void a_silent_rank_is_waited_out(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 9; n += 4) {
        run(3, 0, n);
    }
}

static int make_file(void **state)
{
    (void)state;
    snprintf(model_path, sizeof model_path, "/tmp/spillway-faults-%d.json", (int)getpid());
    return sw_file_write_atomic(model_path, model_json, strlen(model_json)) < 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(model_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_fails_once),
        cmocka_unit_test(a_silent_rank_is_waited_out),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
