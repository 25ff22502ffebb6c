// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 900
// COST 40
// SLOW SPILLWAY_FAULTS=all
// Steps whose disk fails once. With two slots a failed step has changed nothing: the checkpoint is
// that of the step before, byte for byte, also if that one is loaded first. Repeating the step and
// continuing gives the bits of a run without faults. With one slot the engine refuses to continue,
// and says why. SPILLWAY_FAULTS=all covers ten times as many transfers.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

#ifdef TEST_SANITIZED
enum { SPARSER = 3 }; /* strides are longer by this factor, without SPILLWAY_FAULTS */
#else
enum { SPARSER = 2 };
#endif

enum { B = 2, T = 5, V = 31, STEPS = 3, MOST_RANKS = 2, MOST_ELEMS = 1 << 14, MOST_K = 4 };
enum { MOST_TRANSFERS = 30000, BLOCKS = 8 * 4096 };
static const double deadline_s = 120;

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":31,"
    "\"n_positions\":7,\"n_embd\":15,\"n_layer\":1,\"n_head\":3,\"n_inner\":17}";
static char model_path[96];

struct way {
    const char *dtype; /* a member of the configuration, or "" */
    const char *clip, *optimizer, *schedule;
    const char *params; /* the device that holds parameters */
    const char *more;   /* further keys of the "spillway" block */
    bool parts;         /* calls sw_forward, sw_backward and sw_step separately */
    int ranks, micro_batches, stride;
};

static const char fp32[] = "";
static const char bf16[] = "\"bf16\": {\"enabled\": true}, ";
/* the first steps overflow */
static const char fp16[] =
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 18, \"loss_scale_window\": 3, "
    "\"hysteresis\": 1}, ";

struct run {
    const struct way *way;
    struct sw_nvme_fault fault;
    int bad_rank;
    bool loads;        /* after a failed step that has changed nothing, loads what was before it */
    const char *saves; /* folder that it saves to: at every step, or after a failed step */
    struct sw_transport transports[MOST_RANKS];
    /* results */
    sw_status st[MOST_RANKS];
    char message[MOST_RANKS][1024];
    int64_t failed_step; /* -1 = no step failed */
    bool opened, two_slots, refused;
    bool trained; /* all steps succeeded; later failures do not matter here */
    double losses[STEPS];
    int n_skipped;
    float weights[MOST_ELEMS];
};
static struct run want; /* the run without faults */

static sw_status one_step(sw_engine *e, struct run *run)
{
    const struct sw_shape shape = {2, {B, T}};
    const int64_t step = sw_engine_step(e);
    struct sw_step_report report;
    int32_t ids[MOST_K][B * T];
    struct sw_tensor tensors[MOST_K][2];
    struct sw_batch batches[MOST_K];
    int64_t n = 0;
    for (int64_t k = e->data.rank; k < e->sizes.micro_batches; k += e->data.size, n++) {
        for (int i = 0; i < B * T; i++) {
            const uint64_t at = (uint64_t)((step * e->sizes.micro_batches + k) * B * T + i);
            ids[n][i] = (int32_t)(sw_philox_u64(9, 1, at) % V);
        }
        for (int t = 0; t < 2; t++) {
            tensors[n][t] = (struct sw_tensor){t == 0 ? "input_ids" : "labels",
                                               {.data = ids[n], .dtype = SW_I32, .shape = shape}};
        }
        batches[n] = (struct sw_batch){tensors[n], 2};
    }
    for (int64_t k = 0; k < n && run->way->parts; k++) {
        SW_TRY(sw_forward(e, &batches[k], NULL));
        SW_TRY(sw_backward(e));
    }
    SW_TRY(run->way->parts ? sw_step(e, &report) : sw_train_batch(e, batches, n, &report));
    if (e->data.rank == 0) {
        run->losses[step] = report.loss;
        run->n_skipped += report.skipped;
    }
    return SW_OK;
}

static void write_config(const struct way *way, char *text, size_t size)
{
    char params[160] = "";
    if (*way->params) {
        snprintf(params, sizeof params,
                 ", \"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}", way->params,
                 test_folder());
    }
    snprintf(text, size,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": %s, %s"
             "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 20, "
             "\"sub_group_size\": 300, "
             "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}%s}, "
             "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 0.01}}, "
             "\"spillway\": {\"micro_batches\": %d, \"threads\": 1, \"kernels\": \"reference\", "
             "\"schedule\": \"%s\"%s}}",
             B, way->clip, way->dtype, test_folder(), params, way->optimizer, way->micro_batches,
             way->schedule, way->more);
}

/* Checks the engine after a failed step: the step failed on all ranks, and nothing has changed. */
static sw_status look_behind(sw_engine *e, struct run *run, sw_status st)
{
    const struct sw_save_options save = {.val_loss = NAN};
    char path[128];
    snprintf(path, sizeof path, "%s/%lld", want.saves, (long long)sw_engine_step(e));
    snprintf(run->message[e->data.rank], sizeof run->message[e->data.rank], "%s",
             sw_error_message());
    run->st[e->data.rank] = st;
    if (e->data.rank == 0) {
        run->failed_step = sw_engine_step(e);
    }
    if (e->progress.failed) {
        run->refused = sw_save(e, run->saves, &save) < 0 && one_step(e, run) < 0;
        return e->data.size > 1 ? SW_OK : sw_load(e, path);
    }
    SW_TRY(run->loads ? sw_load(e, path) : SW_OK);
    return sw_save(e, run->saves, &save);
}

static sw_status train(struct run *run, sw_comm *comm, sw_engine **out)
{
    char config[2048];
    write_config(run->way, config, sizeof config);
    const bool bad = sw_comm_rank(comm) == run->bad_rank;
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = model_path,
        .inputs.seq_len = T,
        .run = {.comm = comm, .verify = true, .disk_fault = bad ? &run->fault : NULL},
        .seed = 5,
        .train.wanted = true,
    };
    const struct sw_save_options save = {.val_loss = NAN};
    SW_TRY(sw_initialize(&options, out));
    sw_engine *e = *out;
    if (bad) {
        run->opened = true;
        run->two_slots = e->plan->update.two_slots;
    }
    while (sw_engine_step(e) < STEPS) {
        if (run == &want) {
            char path[128];
            snprintf(path, sizeof path, "%s/%lld", run->saves, (long long)sw_engine_step(e));
            SW_TRY(sw_save(e, path, &save));
        }
        const sw_status st = one_step(e, run);
        if (st < 0 && run->st[e->data.rank] < 0) {
            return st; /* repeats the step */
        }
        if (st < 0) {
            SW_TRY(look_behind(e, run, st));
            if (e->progress.failed) {
                return SW_OK;
            }
        }
    }
    if (bad) {
        run->trained = true;
    }
    return test_owned_weights(e, run->weights, MOST_ELEMS);
}

static sw_status on_rank(void *ctx, sw_comm *ignored)
{
    struct run *run = ctx;
    const int rank = sw_comm_rank(ignored);
    sw_comm *comm = NULL;
    sw_engine *engine = NULL;
    SW_TRY(sw_comm_open(&run->transports[rank], &comm));
    const sw_status st = train(run, comm, &engine);
    if (st < 0) {
        sw_comm_abort(comm, st);
    }
    sw_close(engine);
    sw_comm_close(comm, st < 0);
    return rank == run->bad_rank && run->opened && !run->trained ? st : SW_OK;
}

static void run_once(struct run *run)
{
    struct sw_alloc_stats before, after;
    run->failed_step = -1;
    sw_alloc_get_stats(&before);
    assert_int_equal(sw_thread_transports_open(run->way->ranks, deadline_s, run->transports),
                     SW_OK);
    const sw_status st = sw_threads_run(run->way->ranks, deadline_s, on_rank, run);
    if (st < 0) {
        fail_msg("%s, clipping %s, transfer %lld of rank %d: %s", run->way->dtype, run->way->clip,
                 (long long)run->fault.at, run->bad_rank, sw_error_message());
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_bytes, before.live_bytes);
}

static int shell(const char *fmt, const char *a, const char *b, long long n)
{
    char command[512];
    snprintf(command, sizeof command, fmt, a, b, n);
    return system(command);
}

static void assert_untouched(const struct run *run)
{
    char saves[128], behind[128];
    snprintf(saves, sizeof saves, "%s", want.saves);
    snprintf(behind, sizeof behind, "%s", run->saves);
    if (shell("diff -r %s %s/%lld >/dev/null", behind, saves, (long long)run->failed_step) != 0) {
        fail_msg("%s, clipping %s, transfer %lld of rank %d, step %lld: the checkpoint behind is "
                 "another",
                 run->way->dtype, run->way->clip, (long long)run->fault.at, run->bad_rank,
                 (long long)run->failed_step);
    }
    for (int r = 0; r < run->way->ranks; r++) {
        assert_int_equal(run->st[r], r == run->bad_rank ? SW_E_IO : SW_E_PEER);
        assert_non_null(strstr(run->message[r], r == run->bad_rank ? test_folder() : "rank"));
    }
    assert_memory_equal(run->losses, want.losses, sizeof want.losses);
    assert_memory_equal(run->weights, want.weights, sizeof want.weights);
}

/* Returns the number of failed steps. */
static int meet(const struct way *way, bool two_slots)
{
    static struct run run;
    static char saves[2][96];
    int n_failed = 0;
    snprintf(saves[0], sizeof saves[0], "%s/want", test_folder());
    snprintf(saves[1], sizeof saves[1], "%s/behind", test_folder());
    assert_int_equal(shell("rm -rf %s %s", saves[0], saves[1], 0), 0);
    want = (struct run){.way = way, .saves = saves[0]};
    run_once(&want);
    assert_int_equal(want.two_slots, two_slots);
    assert_true(want.n_skipped < STEPS && (want.n_skipped > 0) == (way->dtype == fp16));
    const int64_t stride = getenv("SPILLWAY_FAULTS") ? way->stride / 5 : SPARSER * way->stride;
    for (int bad = 0; bad < way->ranks; bad++) {
        bool met = true;
        for (int64_t at = 1; met && at < MOST_TRANSFERS; at += stride) {
            const bool loads = at / stride % 2 == 1;
            run = (struct run){.way = way, .bad_rank = bad, .loads = loads, .saves = saves[1]};
            run.fault = (struct sw_nvme_fault){
                .action = at / stride % 4 < 2 ? SW_NVME_FAULT_EIO : SW_NVME_FAULT_ENOSPC, .at = at};
            run_once(&run);
            const bool failed = run.opened && run.failed_step >= 0;
            met = !run.opened || failed;
            const bool in_place = failed && strstr(run.message[bad], "in place");
            assert_true(!in_place || !two_slots);
            assert_true(!failed || in_place == run.refused);
            /* with clipping, sums are written before any update */
            assert_false(in_place && strcmp(way->clip, "0") != 0 &&
                         strstr(run.message[bad], "store of grad_acc"));
            if (failed && !in_place) {
                assert_untouched(&run);
            } else if (failed) { /* resumed from the checkpoint */
                assert_memory_equal(run.weights, want.weights, sizeof want.weights);
            }
            n_failed += two_slots ? failed : in_place;
            assert_int_equal(shell("rm -rf %s%s", saves[1], "", 0), 0);
        }
    }
    print_message("%sclipping %s, %s, %s, %d ranks, %d micro-batches%s: %d steps failed\n",
                  way->dtype, way->clip, way->optimizer, way->schedule, way->ranks,
                  way->micro_batches, way->more, n_failed);
    return n_failed;
}

// clang-format off
static const struct way ways[] = {
    {bf16, "0",   "AdamW", "horizontal", "nvme", "", false, 1, 2, 37},
    {bf16, "0.5", "AdamW", "horizontal", "nvme", "", false, 1, 2, 37},
    {fp32, "0",   "AdamW", "horizontal", "nvme", "", false, 1, 1, 37},
    {fp32, "0.5", "AdamW", "horizontal", "nvme", "", true, 1, 2, 37},
    {fp16, "0",   "AdamW", "horizontal", "nvme", "", false, 1, 1, 37},
    {fp16, "0.5", "AdamW", "horizontal", "nvme", "", false, 1, 2, 37},
    {bf16, "0",   "AdamW", "vertical",   "nvme", "", false, 1, 3, 37},
    {fp16, "0.5", "AdamW", "vertical",   "nvme", "", false, 1, 3, 37},
    {bf16, "0.5", "Lamb",  "horizontal", "nvme", "", false, 1, 2, 37},
    /* first gradient sums on the disk, then a cache in host memory, then parameters on the
     * device */
    {bf16, "0.5", "AdamW", "horizontal", "nvme", ", \"device_memory\": \"64MiB\", "
     "\"host_memory\": 1", false, 1, 2, 37},
    {fp16, "0",   "AdamW", "horizontal", "nvme", ", \"device_memory\": \"64MiB\", "
     "\"host_memory\": 30000, \"disk_slots\": 2", false, 1, 2, 37},
    {bf16, "0",   "AdamW", "horizontal", "none", ", \"disk_slots\": 2", false, 1, 2, 37},
    {bf16, "0",   "AdamW", "horizontal", "cpu",  ", \"disk_slots\": 2", false, 1, 2, 37},
    {fp16, "0.5", "AdamW", "horizontal", "nvme", ", \"clipped_update\": \"next_forward\"", false,
     1, 2, 37},
};
static const struct way of_ranks[] = {
    {bf16, "0",   "AdamW", "horizontal", "nvme", "", true, 2, 3, 47},
    {fp16, "0.5", "AdamW", "horizontal", "nvme", "", false, 2, 4, 47},
    {fp32, "0.5", "Lamb",  "vertical",   "nvme", "", false, 2, 3, 47},
    {bf16, "0.5", "AdamW", "horizontal", "nvme", ", \"clipped_update\": \"next_forward\"", true, 2,
     3, 47},
};
static const struct way in_place[] = {
    {bf16, "0",   "AdamW", "horizontal", "nvme", ", \"disk_slots\": 1", false, 1, 1, 29},
    {fp16, "0",   "AdamW", "horizontal", "nvme", ", \"disk_slots\": 1", false, 1, 1, 29},
    {bf16, "0.5", "AdamW", "horizontal", "nvme", ", \"device_memory\": \"64MiB\", "
     "\"host_memory\": 1, \"disk_slots\": 1", false, 1, 2, 19},
};
// clang-format on

static void a_step_that_fails_changes_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(ways); i++) {
        assert_true(meet(&ways[i], true) >= 3 / SPARSER);
    }
}

static void nor_does_it_on_several_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(of_ranks); i++) {
        assert_true(meet(&of_ranks[i], true) >= 3 / SPARSER);
    }
}

static void in_place_it_is_the_last(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(in_place); i++) {
        assert_true(meet(&in_place[i], false) >= 1);
    }
}

/* Makes the plan only, and returns the status of opening. */
static sw_status plan(const struct way *way, bool *two_slots, int64_t *disk, char *text,
                      size_t size)
{
    char config[2048];
    write_config(way, config, sizeof config);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = model_path,
                                              .inputs.seq_len = T,
                                              .seed = 5,
                                              .train.wanted = true,
                                              .plan.only = true};
    sw_engine *e = NULL;
    const sw_status st = sw_initialize(&options, &e);
    snprintf(text, size, "%s", st < 0 ? sw_error_message() : "");
    if (st >= 0) {
        *two_slots = e->plan->update.two_slots;
        *disk = sw_engine_tier_bytes(e, SW_TIER_DISK);
        struct sw_str report = {0};
        sw_techniques_describe(e->plan, NULL, &report);
        snprintf(text, size, "%s", sw_str_text(&report));
        sw_str_fini(&report);
    }
    sw_close(e);
    return st;
}

static void the_budget_decides(void **state)
{
    (void)state;
    static char text[1 << 14];
    const char *const dtypes[] = {bf16, fp32, fp16}, *const clips[] = {"0", "0.5"};
    for (int i = 0; i < 6; i++) {
        char more[64] = "";
        struct way way = {
            dtypes[i % 3], clips[i / 3], "AdamW", "horizontal", "nvme", more, false, 1, 2, 1};
        int64_t one, two, disk;
        bool two_slots;
        assert_int_equal(plan(&way, &two_slots, &two, text, sizeof text), SW_OK);
        assert_true(two_slots);
        assert_non_null(strstr(text, "updates write to second slots"));
        snprintf(more, sizeof more, ", \"disk_slots\": 1");
        assert_int_equal(plan(&way, &two_slots, &one, text, sizeof text), SW_OK);
        assert_false(two_slots);
        assert_non_null(strstr(text, "updates write in place"));
        assert_true(two > one && two <= 2 * one + BLOCKS); /* the packs may differ */
        snprintf(more, sizeof more, ", \"nvme_space\": %lld", (long long)two);
        assert_int_equal(plan(&way, &two_slots, &disk, text, sizeof text), SW_OK);
        assert_true(two_slots && disk == two);
        snprintf(more, sizeof more, ", \"nvme_space\": %lld", (long long)two - 1);
        assert_int_equal(plan(&way, &two_slots, &disk, text, sizeof text), SW_OK);
        assert_true(!two_slots && disk == one);
        snprintf(more, sizeof more, ", \"disk_slots\": 2, \"nvme_space\": %lld",
                 (long long)two - 1);
        assert_int_equal(plan(&way, &two_slots, &disk, text, sizeof text), SW_E_NOMEM);
        assert_non_null(strstr(text, "spillway.disk_slots 1"));
        snprintf(more, sizeof more, ", \"nvme_space\": %lld", (long long)one - 1);
        assert_int_equal(plan(&way, &two_slots, &disk, text, sizeof text), SW_E_NOMEM);
    }
}

/* Without a budget the disks of all ranks decide: reserving one of the files finds no space. */
static void a_full_disk_decides(void **state)
{
    (void)state;
    static struct run run;
    static char text[1 << 14];
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        struct way way = {bf16, "0", "AdamW", "horizontal", "nvme", "", false, ranks, ranks, 1};
        want = (struct run){.way = &way, .saves = test_folder()};
        run_once(&want);
        assert_true(want.trained && want.two_slots);
        for (int bad = 0; bad < ranks; bad++) {
            run = (struct run){.way = &way, .bad_rank = bad, .saves = test_folder()};
            snprintf(text, sizeof text, "preallocate:%d:enospc", bad + 1);
            assert_int_equal(sw_fault_set(text), SW_OK);
            run_once(&run);
            assert_true(run.trained && !run.two_slots);
            assert_memory_equal(run.losses, want.losses, sizeof want.losses);
            assert_memory_equal(run.weights, want.weights, sizeof want.weights);
        }
    }
}

/* A plan that needs two slots fails with the error of the disk. */
static void a_full_disk_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *clip, *more, *helps;
    } cases[] = {{"0", ", \"disk_slots\": 2", ""},
                 {"0.5", ", \"clipped_update\": \"next_forward\"", "spillway.next_forward_share"}};
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        const struct way way = {
            bf16, cases[i].clip, "AdamW", "horizontal", "nvme", cases[i].more, false, 1, 1, 1};
        char config[2048];
        write_config(&way, config, sizeof config);
        const struct sw_engine_options options = {.config.text = config,
                                                  .model.path = model_path,
                                                  .inputs.seq_len = T,
                                                  .seed = 5,
                                                  .train.wanted = true};
        sw_engine *e = NULL;
        assert_int_equal(sw_fault_set("preallocate:1:enospc"), SW_OK);
        assert_int_equal(sw_initialize(&options, &e), SW_E_NOMEM);
        assert_non_null(strstr(sw_error_message(), test_folder()));
        assert_non_null(strstr(sw_error_message(), "no space for"));
        assert_non_null(strstr(sw_error_message(), cases[i].helps));
        assert_int_equal(sw_fault_set(NULL), SW_OK);
    }
}

static int set_up(void **state)
{
    (void)state;
    snprintf(model_path, sizeof model_path, "%s/config.json", test_folder());
    test_put("config.json", model_json);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return shell("rm -rf %s%s", test_folder(), "", 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_step_that_fails_changes_nothing),
    cmocka_unit_test(nor_does_it_on_several_ranks),
    cmocka_unit_test(in_place_it_is_the_last),
    cmocka_unit_test(the_budget_decides),
    cmocka_unit_test(a_full_disk_decides),
    cmocka_unit_test(a_full_disk_is_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
