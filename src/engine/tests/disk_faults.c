// SPDX-License-Identifier: Apache-2.0
// A run with parameters and states on disk: opening, a step, a checkpoint, two steps, another
// checkpoint, reading the weights. One transfer of one rank fails, is cut short, is interrupted or
// is delayed. Either the run ends with the bits of a run without faults, or the rank names file,
// offset and length. In that case earlier results are right, and the newest checkpoint resumes to
// the same bits. No memory and no swap file may remain.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "engine/tests/disk_faults.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 5, V = 31, K = 2, STEPS = 3, MOST_RANKS = 2, MOST_ELEMS = 1 << 14 };
enum { MOST_TRANSFERS = 20000 };
static const double deadline_s = 120;

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":31,"
    "\"n_positions\":7,\"n_embd\":15,\"n_layer\":1,\"n_head\":3,\"n_inner\":17}";
static char model_path[96], save_path[96];

static const struct {
    const char *name;
    enum sw_nvme_fault_action action;
    bool fatal;
} actions[] = {
    {"EIO", SW_NVME_FAULT_EIO, true},      {"ENOSPC", SW_NVME_FAULT_ENOSPC, true},
    {"short", SW_NVME_FAULT_SHORT, false}, {"EINTR", SW_NVME_FAULT_EINTR, false},
    {"late", SW_NVME_FAULT_DELAY, false},
};

struct run {
    int ranks, bad_rank;
    const char *device; /* NULL = the CPU */
    struct sw_nvme_fault fault;
    struct sw_transport transports[MOST_RANKS];
    /* results */
    sw_status st[MOST_RANKS];
    char message[MOST_RANKS][1024];
    double losses[STEPS]; /* NaN = not reached */
    float weights[MOST_ELEMS];
};
static struct run want; /* the run without faults */

/* ---- one training ---- */

static sw_status one_step(sw_engine *e, struct run *run)
{
    const struct sw_shape shape = {2, {B, T}};
    const int64_t step = sw_engine_step(e);
    struct sw_step_report report;
    int32_t ids[B * T];
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = ids, .dtype = SW_I32, .shape = shape}}};
    const struct sw_batch batch = {tensors, 2};
    for (int64_t k = e->data.rank; k < K; k += e->data.size) {
        for (int i = 0; i < B * T; i++) {
            ids[i] = (int32_t)(sw_philox_u64(9, 1, (uint64_t)((step * K + k) * B * T + i)) % V);
        }
        SW_TRY(sw_forward(e, &batch, NULL));
        SW_TRY(sw_backward(e));
    }
    SW_TRY(sw_step(e, &report));
    if (e->data.rank == 0) {
        run->losses[step] = report.loss;
    }
    return SW_OK;
}

static sw_status train(struct run *run, sw_comm *comm, sw_engine **out)
{
    char config[1024];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.5, "
             "\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3, "
             "\"stage3_param_persistence_threshold\": 0, "
             "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
             "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}}, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
             "\"spillway\": {\"micro_batches\": %d, \"threads\": 1, \"kernels\": \"reference\"}}",
             B, test_folder(), test_folder(), K);
    const bool bad = sw_comm_rank(comm) == run->bad_rank;
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = model_path,
        .inputs.seq_len = T,
        .run = {.comm = comm,
                .device = run->device,
                .verify = true,
                .disk_fault = bad ? &run->fault : NULL},
        .seed = 5,
        .train.wanted = true,
    };
    const struct sw_save_options save = {.val_loss = NAN};
    SW_TRY(sw_initialize(&options, out));
    /* SW_PENDING: there is no checkpoint, so training begins anew */
    SW_TRY(sw_load(*out, save_path));
    while (sw_engine_step(*out) < STEPS) {
        SW_TRY(one_step(*out, run));
        if (sw_engine_step(*out) != 2) {
            SW_TRY(sw_save(*out, save_path, &save));
        }
    }
    SW_TRY(test_owned_weights(*out, run->weights, MOST_ELEMS));
    return sw_comm_barrier(comm, "the end"); /* so that a finished rank hears of failures */
}

static sw_status on_rank(void *ctx, sw_comm *ignored)
{
    struct run *run = ctx;
    const int rank = sw_comm_rank(ignored);
    sw_comm *comm = NULL;
    sw_engine *engine = NULL;
    SW_TRY(sw_comm_open(&run->transports[rank], &comm));
    run->st[rank] = train(run, comm, &engine);
    snprintf(run->message[rank], sizeof run->message[rank], "%s", sw_error_message());
    if (run->st[rank] < 0) {
        sw_comm_abort(comm, run->st[rank]);
    }
    sw_close(engine);
    sw_comm_close(comm, run->st[rank] < 0);
    return SW_OK;
}

/* Returns false if the run failed with a message. */
static bool run_once(struct run *run, const char *fault)
{
    struct sw_alloc_stats before, after;
    char command[256];
    const double begin = sw_now_s();
    for (int i = 0; i < STEPS; i++) {
        run->losses[i] = NAN;
    }
    memset(run->weights, 0, sizeof run->weights);
    sw_alloc_get_stats(&before);
    assert_int_equal(sw_thread_transports_open(run->ranks, deadline_s, run->transports), SW_OK);
    assert_int_equal(sw_threads_run(run->ranks, deadline_s, on_rank, run), SW_OK);
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_true(sw_now_s() - begin < deadline_s);
    const bool well = run->st[run->bad_rank] >= 0;
    for (int r = 0; r < run->ranks; r++) {
        const sw_status st = well ? SW_OK : r == run->bad_rank ? SW_E_IO : SW_E_PEER;
        if (run->st[r] != st) {
            fail_msg("%s at transfer %lld of rank %d of %d: rank %d returns %d: %s", fault,
                     (long long)run->fault.at, run->bad_rank, run->ranks, r, run->st[r],
                     run->message[r]);
        }
    }
    snprintf(command, sizeof command, "ls %s | grep -c swap >/dev/null", test_folder());
    assert_int_not_equal(system(command), 0); /* grep finds no match */
    return well;
}

/* Checks the steps that were reached, and with `whole` the entire model. */
static void assert_right(const struct run *run, const char *fault, bool whole)
{
    for (int i = 0; i < STEPS; i++) {
        if (!isnan(run->losses[i]) && run->losses[i] != want.losses[i]) {
            fail_msg("%s at transfer %lld of rank %d of %d: step %d: loss %.17g, wanted %.17g",
                     fault, (long long)run->fault.at, run->bad_rank, run->ranks, i, run->losses[i],
                     want.losses[i]);
        }
    }
    if (whole && memcmp(run->weights, want.weights, sizeof want.weights) != 0) {
        fail_msg("%s at transfer %lld of rank %d of %d: other weights", fault,
                 (long long)run->fault.at, run->bad_rank, run->ranks);
    }
}

static void assert_named(const struct run *run, const char *fault)
{
    const char *const words[] = {test_folder(), "rank", "offset", "bytes"};
    const char *message = run->message[run->bad_rank];
    for (size_t i = 0; i < SW_LEN(words); i++) {
        if (!strstr(message, words[i])) {
            fail_msg("%s at transfer %lld of rank %d of %d: \"%s\" has no \"%s\"", fault,
                     (long long)run->fault.at, run->bad_rank, run->ranks, message, words[i]);
        }
    }
}

static void forget_checkpoints(void)
{
    test_remove(save_path);
}

/* Returns whether a fault that fails a run occurred at all. */
static bool meet(struct run *run, int i_action)
{
    static struct run again;
    const char *name = actions[i_action].name;
    const int64_t at = run->fault.at;
    run->fault =
        (struct sw_nvme_fault){.action = actions[i_action].action, .at = at, .delay_s = 0.003};
    const bool well = run_once(run, name);
    assert_right(run, name, well);
    if (!well && !actions[i_action].fatal) {
        fail_msg("%s at transfer %lld of rank %d of %d: %s", name, (long long)at, run->bad_rank,
                 run->ranks, run->message[run->bad_rank]);
    }
    if (!well) {
        assert_named(run, name);
        again.ranks = run->ranks;
        again.bad_rank = 0;
        assert_true(run_once(&again, "nothing"));
        assert_right(&again, name, true);
    }
    forget_checkpoints();
    return !well;
}

void disk_faults_meet(int ranks, const char *device, int stride)
{
    static struct run run;
    want = (struct run){.ranks = ranks};
    assert_true(run_once(&want, "nothing"));
    forget_checkpoints();
    for (int bad = 0; bad < ranks; bad++) {
        /* count of transfers in the run, learned from the fatal faults, which come first */
        int64_t n = MOST_TRANSFERS;
        for (size_t i = 0; i < SW_LEN(actions); i++) {
            run = (struct run){.ranks = ranks, .bad_rank = bad, .device = device};
            /* strides start at a different offset for each fault, to hit different transfers */
            for (run.fault.at = 1 + (int64_t)i % stride; run.fault.at <= n;
                 run.fault.at += stride) {
                if (!meet(&run, (int)i) && actions[i].fatal) {
                    n = run.fault.at - 1;
                }
            }
        }
        assert_true(n > 100 && n < MOST_TRANSFERS);
        print_message("%d ranks, rank %d: about %lld transfers, every %d\n", ranks, bad,
                      (long long)n, stride);
    }
}

/* ---- files ---- */

int disk_faults_set_up(void **state)
{
    (void)state;
    snprintf(model_path, sizeof model_path, "%s/config.json", test_folder());
    snprintf(save_path, sizeof save_path, "%s/save", test_folder());
    return sw_file_write_atomic(model_path, model_json, strlen(model_json)) < 0;
}
