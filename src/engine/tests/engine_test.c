// SPDX-License-Identifier: Apache-2.0
// Guarantees of an engine that hold for any kernels. The bits do not depend on recomputation,
// threads, a save and a load, or whether a step runs by sw_train_batch or by its parts. Measured
// peak memory equals the planned peak. Nothing is allocated after the first step. Misuse is refused
// by name.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "engine/private.h"
#include "spillway/config.h"
#include "spillway/engine.h"
#include "plan/plan.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 9, K = 3, V = 37, STEPS = 8 };

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":37,"
    "\"n_positions\":16,\"n_embd\":24,\"n_layer\":3,\"n_head\":3,\"n_inner\":40,\"embd_pdrop\":0.1,"
    "\"attn_pdrop\":0.1,\"resid_pdrop\":0.1}";

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    return path;
}

struct batches {
    int32_t ids[K][B * T], labels[K][B * T];
    struct sw_tensor tensors[K][2];
    struct sw_batch batches[K];
};

static void fill(struct batches *d, int64_t step)
{
    const struct sw_shape shape = {2, {B, T}};
    for (int k = 0; k < K; k++) {
        for (int i = 0; i < B * T; i++) {
            const uint64_t at = (uint64_t)((step * K + k) * B * T + i);
            d->ids[k][i] = (int32_t)(sw_philox_u64(9, 1, at) % V);
            d->labels[k][i] = i % 7 == 3 + k ? -100 : (int32_t)(sw_philox_u64(9, 2, at) % V);
        }
        d->tensors[k][0] =
            (struct sw_tensor){"input_ids", {.data = d->ids[k], .dtype = SW_I32, .shape = shape}};
        d->tensors[k][1] =
            (struct sw_tensor){"labels", {.data = d->labels[k], .dtype = SW_I32, .shape = shape}};
        d->batches[k] = (struct sw_batch){d->tensors[k], 2};
    }
}

static const char *config_of(const char *precision, int k)
{
    static char text[512];
    snprintf(
        text, sizeof text,
        "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_accumulation_steps\": %d, %s"
        "\"gradient_clipping\": 0.5, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
        "0.01, "
        "\"weight_decay\": 0.1}}}",
        B, k, precision);
    return text;
}

static const char *const precisions[] = {
    "", "\"bf16\": {\"enabled\": true}, ",
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 20, \"loss_scale_window\": 4}, "};

static sw_engine *open_with(struct sw_engine_options options, const char *const *sets, int n_sets)
{
    sw_engine *engine = NULL;
    options.model.path =
        options.model.path || options.model.forward ? options.model.path : path_of("config.json");
    options.inputs.seq_len = options.inputs.seq_len ? options.inputs.seq_len : T;
    options.config.sets = sets;
    options.config.n_sets = n_sets;
    options.seed = 5;
    if (sw_initialize(&options, &engine) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return engine;
}

/* Hashes all masters. */
static uint64_t weights(sw_engine *engine)
{
    uint64_t h = SW_HASH_INIT;
    for (int32_t i = 0; i < sw_engine_n_tensors(engine); i++) {
        const char *name;
        struct sw_shape shape;
        static float values[4096];
        assert_int_equal(sw_engine_tensor(engine, i, &name, &shape), SW_OK);
        int64_t n = 1;
        for (int d = 0; d < shape.rank; d++) {
            n *= shape.dims[d];
        }
        assert_true(n <= 4096);
        assert_int_equal(sw_get_weight(engine, name, 0, n, values), SW_OK);
        for (int64_t k = 0; k < n; k++) {
            assert_true(isfinite(values[k]));
        }
        h = sw_hash(h, values, (size_t)n * sizeof *values);
    }
    return h;
}

static void step(sw_engine *engine, int64_t i, int k, struct sw_step_report *report)
{
    static struct batches data;
    fill(&data, i);
    if (sw_train_batch(engine, data.batches, k, report) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static uint64_t run(const char *precision, int k, const char *const *sets, int n_sets, bool verify)
{
    const struct sw_engine_options options = {
        .config.text = config_of(precision, k), .run.verify = verify, .train.wanted = true};
    sw_engine *engine = open_with(options, sets, n_sets);
    struct sw_step_report report;
    for (int64_t i = 0; i < STEPS; i++) {
        step(engine, i, k, &report);
        assert_true(isfinite(report.loss));
    }
    if (verify) {
        assert_int_equal(sw_engine_high_water(engine), sw_engine_tier_bytes(engine, 0));
    }
    const uint64_t h = weights(engine);
    sw_close(engine);
    return h;
}

static void recomputation_changes_no_bit(void **state)
{
    (void)state;
    static const char *const every[] = {"spillway.recompute=blocks", "spillway.recompute=2"};
    static const char *const first[] = {"spillway.recompute=blocks", "spillway.recompute_blocks=1"};
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        const uint64_t keep = run(precisions[p], 1, NULL, 0, false);
        for (size_t i = 0; i < SW_LEN(every); i++) {
            assert_true(run(precisions[p], 1, &every[i], 1, false) == keep);
        }
        assert_true(run(precisions[p], 1, first, 2, false) == keep);
    }
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    static const char *const threads[] = {"spillway.threads=1", "spillway.threads=2",
                                          "spillway.threads=3", "spillway.threads=7"};
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        const uint64_t one = run(precisions[p], K, &threads[0], 1, false);
        for (size_t i = 1; i < SW_LEN(threads); i++) {
            assert_true(run(precisions[p], K, &threads[i], 1, false) == one);
        }
    }
}

static void planned_peak_is_touched_peak(void **state)
{
    (void)state;
    static const char *const recompute[] = {"spillway.recompute=blocks"};
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        const uint64_t plain = run(precisions[p], K, NULL, 0, false);
        /* poisoned memory affects no result */
        assert_true(run(precisions[p], K, NULL, 0, true) == plain);
        run(precisions[p], 1, recompute, 1, true);
    }
}

static void parts_equal_the_whole(void **state)
{
    (void)state;
    static struct batches data;
    const struct sw_engine_options options = {.config.text = config_of("", K),
                                              .train.wanted = true};
    sw_engine *whole = open_with(options, NULL, 0), *parts = open_with(options, NULL, 0);
    for (int64_t i = 0; i < 4; i++) {
        struct sw_step_report a, b;
        step(whole, i, K, &a);
        fill(&data, i);
        for (int k = 0; k < K; k++) {
            assert_int_equal(sw_forward(parts, &data.batches[k], NULL), SW_OK);
            assert_int_equal(sw_backward(parts), SW_OK);
        }
        assert_int_equal(sw_step(parts, &b), SW_OK);
        assert_true(a.loss == b.loss && a.grad_norm == b.grad_norm);
    }
    assert_true(weights(whole) == weights(parts));
    sw_close(whole);
    sw_close(parts);
}

static void nothing_is_allocated_after_the_first_step(void **state)
{
    (void)state;
    const struct sw_engine_options options = {.config.text = config_of(precisions[1], K),
                                              .train.wanted = true};
    sw_engine *engine = open_with(options, NULL, 0);
    struct sw_step_report report;
    step(engine, 0, K, &report);
    const int64_t calls = sw_engine_allocations(engine);
    for (int64_t i = 1; i < 5; i++) {
        step(engine, i, K, &report);
    }
    assert_int_equal(sw_engine_allocations(engine), calls);
    sw_close(engine);
}

static void a_load_continues_to_the_same_bits(void **state)
{
    (void)state;
    const struct sw_save_options save = {.val_loss = NAN};
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        char dir[128];
        snprintf(dir, sizeof dir, "%s/save.%zu", test_folder(), p);
        const struct sw_engine_options options = {.config.text = config_of(precisions[p], K),
                                                  .train.wanted = true};
        struct sw_step_report report;
        sw_engine *never = open_with(options, NULL, 0), *first = open_with(options, NULL, 0);
        for (int64_t i = 0; i < STEPS; i++) {
            step(never, i, K, &report);
            if (i < 3) {
                step(first, i, K, &report);
            }
        }
        assert_int_equal(sw_load(first, dir), SW_PENDING);
        assert_int_equal(sw_save(first, dir, &save), SW_OK);
        sw_close(first);
        sw_engine *again = open_with(options, NULL, 0);
        assert_int_equal(sw_load(again, dir), SW_OK);
        assert_int_equal(sw_engine_step(again), 3);
        for (int64_t i = 3; i < STEPS; i++) {
            step(again, i, K, &report);
        }
        assert_true(weights(again) == weights(never));
        assert_int_equal(sw_engine_samples(again), STEPS * K * B);
        sw_close(again);
        sw_close(never);
    }
}

static void other_math_is_refused(void **state)
{
    (void)state;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/save.0", test_folder());
    const struct sw_engine_options options = {.config.text = config_of(precisions[0], 1),
                                              .train.wanted = true};
    sw_engine *engine = open_with(options, NULL, 0);
    assert_int_equal(sw_load(engine, dir), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "allow_other_math"));
    sw_close(engine);
    static const char *const allow[] = {"spillway.allow_other_math=true"};
    engine = open_with(options, allow, 1);
    assert_int_equal(sw_load(engine, dir), SW_OK);
    sw_close(engine);
}

static void token_mean_weighs_targets_alike(void **state)
{
    (void)state;
    static const char *const tokens[] = {"spillway.loss=tokens"};
    const struct sw_engine_options options = {.config.text = config_of("", K),
                                              .train.wanted = true};
    sw_engine *engine = open_with(options, tokens, 1);
    struct sw_step_report report;
    step(engine, 0, K, &report);
    static struct batches data;
    fill(&data, 0);
    double targets = 0;
    for (int i = 0; i < K * B * T; i++) {
        targets += data.labels[i / (B * T)][i % (B * T)] != -100;
    }
    assert_true(report.targets == targets);
    assert_true(fabs(report.loss - log(V)) < 0.5);
    sw_close(engine);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    static struct batches data;
    fill(&data, 0);
    const struct sw_engine_options options = {.config.text = config_of("", K),
                                              .train.wanted = true};
    sw_engine *engine = open_with(options, NULL, 0);
    double sum, count;
    assert_int_equal(sw_backward(engine), SW_E_ARG);
    assert_int_equal(sw_step(engine, NULL), SW_E_ARG);
    assert_int_equal(sw_train_batch(engine, data.batches, K - 1, NULL), SW_E_ARG);
    assert_int_equal(sw_evaluate(engine, &data.batches[0], &sum, &count), SW_E_ARG);
    data.ids[0][T + 2] = V;
    assert_int_equal(sw_forward(engine, &data.batches[0], NULL), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "input_ids: 37 at [1, 2]"));
    data.ids[0][T + 2] = 0;
    data.tensors[0][0].view.shape.dims[1] = T - 1;
    assert_int_equal(sw_forward(engine, &data.batches[0], NULL), SW_E_ARG);
    data.tensors[0][0].view.shape.dims[1] = T;
    data.batches[0].n_tensors = 1;
    assert_int_equal(sw_forward(engine, &data.batches[0], NULL), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "labels"));
    sw_close(engine);

    struct sw_engine_options bad = options;
    bad.model.path = path_of("config.json");
    bad.inputs.seq_len = 17;
    assert_int_equal(sw_initialize(&bad, &engine), SW_E_CONFIG);
    bad.inputs.seq_len = T;
    bad.model.path = path_of("nothing.json");
    assert_int_equal(sw_initialize(&bad, &engine), SW_E_IO);
    static const char *const tight[] = {"spillway.device_memory=10000"};
    bad.model.path = path_of("config.json");
    bad.config.sets = tight;
    bad.config.n_sets = 1;
    assert_int_equal(sw_initialize(&bad, &engine), SW_E_NOMEM);
    assert_non_null(strstr(sw_error_message(), "missing"));
}

/* Parses "key value, key value and key value" of a refusal into settings; returns their number. */
static int remedy_of(const char *message, char sets[8][160])
{
    static const char begin[] = "; it fits with ";
    const char *at = strstr(message, begin);
    int n = 0;
    for (at = at ? at + sizeof begin - 1 : NULL; at && n < 6;) {
        char key[96], value[32];
        int length = 0;
        if (sscanf(at, "%95s %31[^,\" ]%n", key, value, &length) != 2) {
            assert_int_equal(sscanf(at, "%95s \"%31[^\"]\"%n", key, value, &length), 2);
        }
        snprintf(sets[n++], sizeof *sets, "%s=%s", key, value);
        at += length;
        if (strcmp(value, "nvme") == 0) {
            char *device = strrchr(key, '.');
            snprintf(sets[n++], sizeof *sets, "%.*s.nvme_path=/tmp", (int)(device - key), key);
        }
        at = strstr(at, ", zero")       ? strstr(at, ", zero") + 2
             : strstr(at, ", spillway") ? strstr(at, ", spillway") + 2
             : strstr(at, " and ")      ? strstr(at, " and ") + 5
                                        : NULL;
    }
    return n;
}

/* A refused budget names a change that makes it fit. The change must be sufficient and necessary,
 * and the same refusal must name the same change. */
static void a_refusal_names_what_fits(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int64_t first, end, by;
        const char *sets[4];
        const char *model; /* NULL: the small model */
    } cases[] = {
        {"device_memory", 200000, 1980000, 46000, {"spillway.threads=1"}, NULL},
        {"device_memory",
         200000,
         1500000,
         90000,
         {"spillway.threads=1", "zero_optimization.stage=2"},
         NULL},
        {"host_memory",
         100000,
         900000,
         90000,
         {"zero_optimization.stage=3", "zero_optimization.offload_optimizer.device=cpu",
          "zero_optimization.offload_param.device=cpu"},
         NULL},
        {"host_memory", 7000000, 17000000, 2000000, {"spillway.threads=1"}, "gpt2-tiny"},
    };
    for (size_t c = 0; c < SW_LEN(cases); c++) {
        int n_named = 0;
        for (int64_t budget = cases[c].first; budget < cases[c].end; budget += cases[c].by) {
            char text[64], message[2048], remedies[8][160];
            const char *sets[16] = {text};
            int n = 1;
            snprintf(text, sizeof text, "spillway.%s=%lld", cases[c].key, (long long)budget);
            for (int i = 0; i < 4 && cases[c].sets[i]; i++) {
                sets[n++] = cases[c].sets[i];
            }
            struct sw_engine_options o = {
                .config = {.text = config_of(precisions[0], 1), .sets = sets, .n_sets = n},
                .model.path = cases[c].model ? cases[c].model : path_of("config.json"),
                .inputs.seq_len = T,
                .train.wanted = true,
                .plan.only = true,
            };
            sw_engine *engine = NULL;
            if (sw_initialize(&o, &engine) == SW_OK) {
                sw_close(engine);
                continue;
            }
            snprintf(message, sizeof message, "%s", sw_error_message());
            assert_int_equal(sw_initialize(&o, &engine), SW_E_NOMEM);
            assert_string_equal(message, sw_error_message());
            const int n_sets = remedy_of(message, remedies);
            for (int i = 0; i < n_sets; i++) {
                sets[o.config.n_sets++] = remedies[i];
            }
            if (n_sets > 0 && sw_initialize(&o, &engine) < 0) {
                fail_msg("%s says: %s; with that: %s", text, message, sw_error_message());
            }
            sw_close(n_sets > 0 ? engine : NULL);
            n_named += n_sets > 0;
        }
        if (n_named == 0) {
            fail_msg("budgets of %s from %lld on: no change is named", cases[c].key,
                     (long long)cases[c].first);
        }
    }
}

/* Host memory holds the required tensors; the remaining space is a cache of the disk. */
static void host_memory_is_a_cache_behind_what_has_to_be_there(void **state)
{
    (void)state;
    enum { STEP = 9000 };
    static const char *const which[] = {"offload_optimizer", "offload_param"};
    for (int k = 0; k < 2; k++) {
        int64_t needs = 0, before = INT64_MAX;
        int n_cached = 0;
        for (int64_t budget = 0; before > 0; budget += STEP) {
            char device[96], paths[96], memory[64];
            snprintf(device, sizeof device, "zero_optimization.%s.device=cpu", which[k]);
            snprintf(paths, sizeof paths, "zero_optimization.%s.device=nvme", which[1 - k]);
            snprintf(memory, sizeof memory, "spillway.host_memory=%lld",
                     (long long)(needs + budget));
            const char *sets[] = {"zero_optimization.stage=3",
                                  "zero_optimization.offload_optimizer.nvme_path=/tmp",
                                  "zero_optimization.offload_param.nvme_path=/tmp",
                                  "zero_optimization.param_persistence_threshold=0",
                                  "spillway.disk_slots=1",
                                  device,
                                  paths,
                                  memory};
            struct sw_engine_options o = {
                .config = {.text = config_of(precisions[0], 1),
                           .sets = sets,
                           .n_sets = needs == 0 ? 7 : 8},
                .model.path = path_of("config.json"),
                .inputs.seq_len = T,
                .train.wanted = true,
                .plan.only = true,
            };
            sw_engine *engine = NULL;
            if (sw_initialize(&o, &engine) < 0) {
                fail_msg("%s: %s", memory, sw_error_message());
            }
            const int64_t disk = sw_engine_tier_bytes(engine, SW_TIER_DISK);
            const int64_t host = sw_engine_tier_bytes(engine, SW_TIER_HOST);
            sw_close(engine);
            if (needs == 0) {
                needs = host;
                budget -= STEP; /* starts at the needed budget */
                continue;
            }
            assert_true(host <= needs + budget);
            n_cached += host > needs;
            before = disk;
        }
        assert_true(needs > 0 && n_cached > 2);
    }
}

/* A ratio of 0 is the same as no offloading. Budgets of 0 bytes and folders without a name are
 * refused. */
static void edges_of_offloading(void **state)
{
    (void)state;
    int64_t device[3];
    static const char *const ways[] = {"zero_optimization.offload_optimizer.ratio=0",
                                       "zero_optimization.offload_optimizer.device=none",
                                       "zero_optimization.offload_optimizer.ratio=1"};
    static const char *const refused[][2] = {
        {"spillway.device_memory=0", "spillway.device_memory"},
        {"spillway.host_memory=0", "spillway.host_memory"},
        {"spillway.nvme_space=0", "spillway.nvme_space"},
        {"zero_optimization.offload_optimizer.nvme_path=",
         "zero_optimization.offload_optimizer.nvme_path"},
    };
    const char *sets[] = {"zero_optimization.stage=3",
                          "zero_optimization.offload_optimizer.device=nvme",
                          "zero_optimization.offload_optimizer.nvme_path=/tmp", NULL};
    struct sw_engine_options o = {
        .config = {.text = config_of(precisions[0], 1), .sets = sets, .n_sets = 4},
        .model.path = path_of("config.json"),
        .inputs.seq_len = T,
        .train.wanted = true,
        .plan.only = true,
    };
    sw_engine *engine = NULL;
    for (int i = 0; i < 3; i++) {
        sets[3] = ways[i];
        assert_int_equal(sw_initialize(&o, &engine), SW_OK);
        device[i] = sw_engine_tier_bytes(engine, SW_TIER_DEVICE);
        assert_int_equal(sw_engine_tier_bytes(engine, SW_TIER_DISK) > 0, i == 2);
        sw_close(engine);
    }
    assert_int_equal(device[0], device[1]);
    assert_int_not_equal(device[0], device[2]);
    o.plan.only = false; /* uses the folders of both */
    char folders[2][384], listing[2][512];
    const char *both[] = {"zero_optimization.stage=3",
                          "zero_optimization.offload_optimizer.device=nvme",
                          "zero_optimization.offload_param.device=nvme", folders[0], folders[1]};
    static const char *const whose[] = {"offload_optimizer", "offload_param"};
    for (int i = 0; i < 2; i++) {
        snprintf(folders[i], sizeof *folders, "zero_optimization.%s.nvme_path=%s", whose[i],
                 path_of(whose[i]));
        assert_int_equal(mkdir(path_of(whose[i]), 0777), 0);
        /* the files have no name any more; only the process that holds them open sees them */
        snprintf(listing[i], sizeof *listing, "ls -l /proc/%d/fd | grep -q '%s/.*(deleted)'",
                 (int)getpid(), path_of(whose[i]));
    }
    o.model.path = path_of("config.json");
    o.config.sets = both;
    o.config.n_sets = 5;
    assert_int_equal(sw_initialize(&o, &engine), SW_OK);
    assert_true(system(listing[0]) == 0 && system(listing[1]) == 0);
    sw_close(engine);
    assert_true(system(listing[0]) != 0 && system(listing[1]) != 0);
    o.config.sets = sets;
    o.config.n_sets = 4;
    for (size_t i = 0; i < SW_LEN(refused); i++) {
        sets[3] = refused[i][0];
        assert_int_equal(sw_initialize(&o, &engine), SW_E_CONFIG);
        assert_non_null(strstr(sw_error_message(), refused[i][1]));
    }
}

/* The vertical schedule runs a step in another order to the same bits, also after a change of
 * schedule. Its parts cannot be called. */
static void vertical_runs_whole_steps_to_the_same_bits(void **state)
{
    (void)state;
    static const char *const sets[] = {"spillway.schedule=vertical", "spillway.recompute=blocks",
                                       "spillway.loss=tokens"};
    static struct batches data;
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        assert_true(run(precisions[p], K, sets, 2, true) == run(precisions[p], K, NULL, 0, false));
        assert_true(run(precisions[p], K, sets, 3, false) ==
                    run(precisions[p], K, sets + 2, 1, false));
        assert_true(run(precisions[p], 1, sets, 1, false) == run(precisions[p], 1, NULL, 0, false));
    }
    for (int k = 1; k <= K; k += K - 1) {
        const struct sw_engine_options options = {.config.text = config_of(precisions[2], k),
                                                  .train.wanted = true};
        sw_engine *horizontal = open_with(options, NULL, 0);
        sw_engine *vertical = open_with(options, sets, 1);
        struct sw_step_report a, b;
        step(horizontal, 0, k, &a);
        assert_int_equal(sw_save(horizontal, path_of("save"), NULL), SW_OK);
        assert_int_equal(sw_load(vertical, path_of("save")), SW_OK);
        fill(&data, 1);
        data.ids[k - 1][3] = V; /* refused before anything runs */
        assert_int_equal(sw_train_batch(vertical, data.batches, k, &b), SW_E_ARG);
        assert_int_equal(sw_forward(vertical, &data.batches[0], NULL), SW_E_CONFIG);
        assert_non_null(strstr(sw_error_message(), "sw_forward: under spillway.schedule"));
        assert_int_equal(sw_backward(vertical), SW_E_CONFIG);
        assert_int_equal(sw_step(vertical, &b), SW_E_CONFIG);
        assert_non_null(strstr(sw_error_message(), "sw_train_batch"));
        for (int64_t i = 1; i < 4; i++) {
            step(horizontal, i, k, &a);
            step(vertical, i, k, &b);
            assert_true(a.loss == b.loss && a.skipped == b.skipped && a.samples == b.samples);
            assert_true(memcmp(&a.grad_norm, &b.grad_norm, sizeof a.grad_norm) == 0);
            assert_true(a.loss_scale == b.loss_scale && a.targets == b.targets);
        }
        const int64_t calls = sw_engine_allocations(vertical);
        step(vertical, 4, k, &b);
        step(horizontal, 4, k, &a);
        assert_int_equal(sw_engine_allocations(vertical), calls);
        assert_true(weights(horizontal) == weights(vertical));
        assert_true(sw_engine_step_flops(horizontal) == sw_engine_step_flops(vertical));
        sw_close(horizontal);
        sw_close(vertical);
        char command[320];
        snprintf(command, sizeof command, "rm -rf %s", path_of("save"));
        assert_int_equal(system(command), 0);
    }
    static const char *const tight[] = {"spillway.schedule=vertical",
                                        "spillway.device_memory=200000"};
    struct sw_engine_options bad = {
        .config = {.text = config_of("", K), .sets = tight, .n_sets = 1},
        .model.path = path_of("config.json"),
        .inputs.seq_len = T,
        .train = {.wanted = true, .keep_gradients = true},
    };
    sw_engine *engine = NULL;
    assert_int_equal(sw_initialize(&bad, &engine), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "keep_gradients"));
    bad.train.keep_gradients = false;
    bad.config.n_sets = 2;
    assert_int_equal(sw_initialize(&bad, &engine), SW_E_NOMEM);
    assert_non_null(strstr(sw_error_message(), "spillway.schedule \"horizontal\""));
}

/* As documented in the headers: required options are demanded, the others have defaults. */
static void options_may_be_left_out(void **state)
{
    (void)state;
    sw_engine *engine = NULL;
    char *text = NULL, *notes = NULL;
    assert_int_equal(sw_initialize(NULL, &engine), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "sw_initialize"));
    assert_int_equal(sw_config_report(NULL, &text, &notes), SW_E_ARG);
    assert_int_equal(sw_config_elastic_text(NULL, &text), SW_E_ARG);

    engine = open_with((struct sw_engine_options){.config.text = config_of("", 1),
                                                  .train.wanted = true,
                                                  .generate = {.wanted = true, .tokens = 16}},
                       NULL, 0);
    const int32_t prompt[] = {3, 1};
    const struct sw_sampling greedy = {.stop_id = -1};
    int32_t plain[6], same[6];
    int64_t n = 0;
    assert_int_equal(sw_generate(engine, prompt, 2, 6, NULL, plain, &n, NULL), SW_OK);
    assert_int_equal(n, 6);
    assert_int_equal(sw_generate(engine, prompt, 2, 6, &greedy, same, &n, NULL), SW_OK);
    assert_memory_equal(plain, same, sizeof same);
    assert_int_equal(sw_save(engine, path_of("plain"), NULL), SW_OK);
    assert_int_equal(sw_load(engine, path_of("plain")), SW_OK);
    sw_close(engine);
}

static void generation_does_not_depend_on_the_cache(void **state)
{
    (void)state;
    const struct sw_engine_options options = {.config.text = config_of("", 1),
                                              .evaluate.logits = true,
                                              .generate = {.wanted = true, .tokens = 16}};
    const struct sw_sampling greedy = {.stop_id = -1};
    const int32_t prompt[] = {3, 1, 4, 1, 5};
    sw_engine *engine = open_with(options, NULL, 0);
    int32_t out[4];
    int64_t n = 0;
    static float step_logits[4 * V], all[B * T * V];
    assert_int_equal(sw_generate(engine, prompt, 5, 4, &greedy, out, &n, step_logits), SW_OK);
    assert_int_equal(n, 4);
    int32_t ids[B][T] = {{3, 1, 4, 1, 5, out[0], out[1], out[2], out[3]}};
    const struct sw_tensor tensor = {"input_ids",
                                     {.data = ids, .dtype = SW_I32, .shape = {2, {B, T}}}};
    const struct sw_batch batch = {&tensor, 1};
    assert_int_equal(sw_logits_elems(engine), B * T * V);
    assert_int_equal(sw_logits(engine, &batch, all), SW_OK);
    for (int i = 0; i < 4 * V; i++) {
        assert_float_equal(step_logits[i], all[4 * V + i], 1e-4);
    }
    sw_close(engine);
}

static void several_ids_end_a_text(void **state)
{
    (void)state;
    sw_engine *engine =
        open_with((struct sw_engine_options){.config.text = config_of("", 1),
                                             .generate = {.wanted = true, .tokens = 16}},
                  NULL, 0);
    const int32_t prompt[] = {3, 1};
    int32_t all[10], out[10];
    int64_t n = 0;
    assert_int_equal(sw_generate(engine, prompt, 2, 10, NULL, all, &n, NULL), SW_OK);
    assert_int_equal(n, 10);
    const int32_t stops[] = {V, all[4]};
    const struct sw_sampling sampling = {.stop_id = -1, .stop_ids = stops, .n_stop_ids = 2};
    assert_int_equal(sw_generate(engine, prompt, 2, 10, &sampling, out, &n, NULL), SW_OK);
    assert_true(n >= 1 && n <= 5); /* equals the first occurrence in the text */
    assert_int_equal(out[n - 1], all[4]);
    assert_memory_equal(out, all, (size_t)n * sizeof *out);
    sw_close(engine);
}

static void a_bound_makes_rows_shorter_and_never_longer(void **state)
{
    (void)state;
    static const struct {
        int64_t seq_len, most, wanted;
    } cases[] = {{0, 0, 16}, {0, 7, 7}, {0, 1024, 16}, {9, 7, 9}};
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        sw_engine *engine = NULL;
        const struct sw_engine_options options = {
            .config.text = config_of("", 1),
            .model.path = path_of("config.json"),
            .inputs = {.seq_len = cases[i].seq_len, .most_tokens = cases[i].most},
            .train.wanted = true,
        };
        assert_int_equal(sw_initialize(&options, &engine), SW_OK);
        assert_int_equal(sw_engine_seq_len(engine), cases[i].wanted);
        sw_close(engine);
    }
}

/* The same generation on a program without position inputs. */
static void generation_gives_no_input_that_a_program_lacks(void **state)
{
    (void)state;
    static const char *const names[] = {"position", "positions", "last"};
    const int32_t prompt[] = {3, 1};
    for (size_t i = 0; i < SW_LEN(names); i++) {
        sw_engine *e =
            open_with((struct sw_engine_options){.config.text = config_of("", 1),
                                                 .generate = {.wanted = true, .tokens = 16}},
                      NULL, 0);
        const struct sw_program *program = &e->plan->programs[e->programs.decode];
        const struct sw_port *found = sw_program_input(program, names[i], 0);
        assert_non_null(found);
        struct sw_port *port = &program->ports.inputs[found - program->ports.inputs];
        const int32_t zero = 0;
        assert_int_equal(sw_executor_write(e->executor, port, &zero, sizeof zero), SW_OK);
        assert_int_equal(sw_executor_write(e->executor, port, &zero, 2), SW_E_ARG);
        port->name = "another";
        int32_t out[4];
        int64_t n = 0;
        if (sw_generate(e, prompt, 2, 4, NULL, out, &n, NULL) < 0) {
            fail_msg("without %s: %s", names[i], sw_error_message());
        }
        assert_int_equal(n, 4);
        assert_null(sw_program_input(program, names[i], 0));
        assert_null(sw_program_output(program, "no such output", 0));
        sw_close(e);
    }
}

static int make_files(void **state)
{
    (void)state;
    test_put("config.json", model_json);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(recomputation_changes_no_bit),
    cmocka_unit_test(threads_change_no_bit),
    cmocka_unit_test(planned_peak_is_touched_peak),
    cmocka_unit_test(parts_equal_the_whole),
    cmocka_unit_test(nothing_is_allocated_after_the_first_step),
    cmocka_unit_test(a_load_continues_to_the_same_bits),
    cmocka_unit_test(other_math_is_refused),
    cmocka_unit_test(token_mean_weighs_targets_alike),
    cmocka_unit_test(misuse_is_refused),
    cmocka_unit_test(a_refusal_names_what_fits),
    cmocka_unit_test(host_memory_is_a_cache_behind_what_has_to_be_there),
    cmocka_unit_test(edges_of_offloading),
    cmocka_unit_test(vertical_runs_whole_steps_to_the_same_bits),
    cmocka_unit_test(options_may_be_left_out),
    cmocka_unit_test(generation_does_not_depend_on_the_cache),
    cmocka_unit_test(several_ids_end_a_text),
    cmocka_unit_test(a_bound_makes_rows_shorter_and_never_longer),
    cmocka_unit_test(generation_gives_no_input_that_a_program_lacks),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_files};
