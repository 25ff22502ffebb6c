// SPDX-License-Identifier: Apache-2.0
// COST 25
// Checkpoints of a run with 200 MB on disk. Saving and loading stream the data, so memory grows
// little beyond that of training. A resumed run has the saved state bit for bit, and continues to
// the same bits, with the same loss scale.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "engine/private.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 1, T = 16, V = 1000, K = 2, STEPS = 9, SAVED_AT = 6, MIB = 1 << 20 };
#ifdef TEST_SANITIZED /* sanitizers do not measure memory, and are slow */
#define WIDTH "64"
enum { MOST_GROWTH = 32 * MIB, LEAST_ON_DISK = MIB };
#else
#define WIDTH "512"
enum { MOST_GROWTH = 32 * MIB, LEAST_ON_DISK = 180 * MIB };
#endif

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":1000,"
    "\"n_positions\":16,\"n_embd\":" WIDTH ",\"n_layer\":5,\"n_head\":8}";
static char model_path[96];

struct run {
    const char *precision;
    struct sw_step_report reports[STEPS];
    int64_t save_growth, load_growth;
};

/* ---- memory ---- */

/* Reads a line of /proc/self/status, in bytes. */
static int64_t status_bytes(const char *key)
{
    char line[256], format[64];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    snprintf(format, sizeof format, "%s: %%lld kB", key);
    while (file && fgets(line, sizeof line, file) && sscanf(line, format, &kib) != 1) {
    }
    if (file) {
        fclose(file);
    }
    return kib * 1024;
}

/* Resets the VmHWM peak. False if the system cannot do that. */
static bool forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    const bool done = file && fputs("5", file) >= 0 && fflush(file) == 0;
    if (file) {
        fclose(file);
    }
    return done;
}

struct growth {
    bool known;
    int64_t resident, counted; /* at the start */
};

static struct growth growth_begin(void)
{
    struct sw_alloc_stats stats;
    sw_alloc_get_stats(&stats);
    const bool known = forget_peak();
    return (struct growth){known, status_bytes("VmRSS"), stats.live_bytes};
}

/* Growth by the system's figure or by our own counter, whichever is larger. The counter only knows
 * its overall peak. */
static int64_t growth_end(const struct growth *g, const char *what)
{
    struct sw_alloc_stats stats;
    sw_alloc_get_stats(&stats);
    const int64_t resident = g->known ? status_bytes("VmHWM") - g->resident : 0;
    const int64_t counted = stats.peak_bytes - g->counted;
    print_message("%s: resident memory grew by %.1f MiB; counted %.1f MiB now, at most %.1f MiB\n",
                  what, (double)resident / MIB, (double)g->counted / MIB,
                  (double)stats.peak_bytes / MIB);
    return sw_max_i64(resident, counted);
}

/* ---- one training ---- */

static sw_status one_step(sw_engine *e, struct run *run)
{
    const struct sw_shape shape = {2, {B, T}};
    const int64_t step = sw_engine_step(e);
    int32_t ids[K][B * T];
    struct sw_tensor tensors[K][2];
    struct sw_batch batches[K];
    for (int k = 0; k < K; k++) {
        for (int i = 0; i < B * T; i++) {
            ids[k][i] = (int32_t)(sw_philox_u64(9, 1, (uint64_t)((step * K + k) * B * T + i)) % V);
        }
        const struct sw_view view = {.data = ids[k], .dtype = SW_I32, .shape = shape};
        tensors[k][0] = (struct sw_tensor){"input_ids", view};
        tensors[k][1] = (struct sw_tensor){"labels", view};
        batches[k] = (struct sw_batch){tensors[k], 2};
    }
    return sw_train_batch(e, batches, K, &run->reports[step]);
}

static sw_status begin(struct run *run, sw_engine **out)
{
    char config[1024];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, %s \"gradient_clipping\": 0.5, "
             "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 0, "
             "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
             "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}}, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}, "
             "\"spillway\": {\"micro_batches\": %d}}",
             B, run->precision, test_folder(), test_folder(), K);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = model_path,
                                              .inputs.seq_len = T,
                                              .seed = 5,
                                              .train.wanted = true};
    return sw_initialize(&options, out);
}

static sw_status steps(sw_engine *e, struct run *run, int64_t until)
{
    while (sw_engine_step(e) < until) {
        SW_TRY(one_step(e, run));
    }
    return SW_OK;
}

static void fine(sw_status st)
{
    if (st != SW_OK) {
        fail_msg("%d: %s", st, sw_error_message());
    }
}

static void assert_same_files(const char *first, const char *second)
{
    struct sw_ckpt *a = NULL, *b = NULL;
    struct sw_ckpt_diff diff;
    fine(sw_ckpt_open(first, &a));
    fine(sw_ckpt_open(second, &b));
    fine(sw_ckpt_diff(a, b, &diff));
    assert_true(diff.n_items > 100); /* masters and two moments of each parameter */
    for (int64_t i = 0; i < diff.n_items; i++) {
        assert_int_equal(diff.items[i].n_different, 0);
    }
    sw_ckpt_diff_fini(&diff);
    assert_memory_equal(&sw_ckpt_meta(a)->scaler, &sw_ckpt_meta(b)->scaler,
                        sizeof sw_ckpt_meta(a)->scaler);
    sw_ckpt_close(a);
    sw_ckpt_close(b);
}

static void streams(const char *precision, bool scales)
{
    struct run first = {.precision = precision}, again = {.precision = precision};
    const struct sw_save_options save = {.val_loss = NAN};
    sw_engine *e = NULL;
    fine(begin(&first, &e));
    assert_true(sw_engine_tier_bytes(e, SW_TIER_DISK) > LEAST_ON_DISK);
    fine(steps(e, &first, SAVED_AT));
    struct growth growth = growth_begin();
    fine(sw_save(e, test_at("first"), &save));
    first.save_growth = growth_end(&growth, "saving");
    fine(steps(e, &first, STEPS)); /* continues as if it had not been stopped */
    sw_close(e);

    e = NULL;
    fine(begin(&again, &e));
    growth = growth_begin();
    fine(sw_load(e, test_at("first")));
    again.load_growth = growth_end(&growth, "resuming");
    assert_int_equal(sw_engine_step(e), SAVED_AT);
    fine(sw_save(e, test_at("second"), &save));
    assert_same_files(test_at("first"), test_at("second"));
    fine(steps(e, &again, STEPS));
    sw_close(e);
    int64_t skipped = 0;
    for (int64_t i = 0; i < STEPS; i++) {
        const struct sw_step_report *a = &first.reports[i], *b = &again.reports[i];
        skipped += a->skipped;
        if (i >= SAVED_AT) {
            assert_true(a->step == b->step && a->applied == b->applied && a->samples == b->samples);
            assert_true(a->loss == b->loss && a->grad_norm == b->grad_norm && a->lr == b->lr);
            assert_true(a->loss_scale == b->loss_scale && a->skipped == b->skipped);
        }
    }
    assert_true(!scales || (skipped > 0 && first.reports[STEPS - 1].applied > 1));
#ifndef TEST_SANITIZED
    assert_true(first.save_growth <= MOST_GROWTH);
    assert_true(again.load_growth <= MOST_GROWTH);
#endif
    test_remove(test_at("first"));
    test_remove(test_at("second"));
}

static void bf16_streams(void **state)
{
    (void)state;
    streams("\"bf16\": {\"enabled\": true},", false);
}

static void fp16_streams_with_its_scale(void **state)
{
    (void)state;
    streams("\"fp16\": {\"enabled\": true, \"initial_scale_power\": 19, \"loss_scale_window\": 2, "
            "\"hysteresis\": 1},",
            true);
}

static int make_files(void **state)
{
    (void)state;
    test_put("config.json", model_json);
    snprintf(model_path, sizeof model_path, "%s/config.json", test_folder());
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bf16_streams),
    cmocka_unit_test(fp16_streams_with_its_scale),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_files};
