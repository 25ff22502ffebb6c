// SPDX-License-Identifier: Apache-2.0
// Training with LAMB. The first step moves every tensor by its own norm times the rate.
// Recomputation and threads change no bit, and a load continues to the same bits.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 9, K = 3, V = 37, STEPS = 6, MAX_ELEMS = 4096 };
static const double lr = 0.02, beta1 = 0.8, beta2 = 0.95, min_coeff = 0.02, max_coeff = 5;

static char model_path[96];

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":37,"
    "\"n_positions\":16,\"n_embd\":24,\"n_layer\":3,\"n_head\":3,\"n_inner\":40,\"embd_pdrop\":0.1,"
    "\"attn_pdrop\":0.1,\"resid_pdrop\":0.1}";

static const char *const precisions[] = {
    "", "\"bf16\": {\"enabled\": true}, ",
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 20, \"loss_scale_window\": 4}, "};

static sw_engine *open_with(const char *precision, const char *set)
{
    char config[512];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_accumulation_steps\": %d, %s"
             "\"gradient_clipping\": 0.5, \"optimizer\": {\"type\": \"Lamb\", \"params\": {\"lr\": "
             "%g, \"betas\": [%g, %g], \"weight_decay\": 0.1, \"min_coeff\": %g, \"max_coeff\": "
             "%g}}}",
             B, K, precision, lr, beta1, beta2, min_coeff, max_coeff);
    const struct sw_engine_options options = {
        .config = {.text = config, .sets = &set, .n_sets = set ? 1 : 0},
        .model.path = model_path,
        .inputs.seq_len = T,
        .seed = 5,
        .train.wanted = true};
    sw_engine *engine = NULL;
    if (sw_initialize(&options, &engine) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return engine;
}

static void step(sw_engine *engine, int64_t i_step)
{
    static int32_t ids[K][B * T], labels[K][B * T];
    struct sw_tensor tensors[K][2];
    struct sw_batch batches[K];
    struct sw_step_report report;
    const struct sw_shape shape = {2, {B, T}};
    for (int k = 0; k < K; k++) {
        for (int i = 0; i < B * T; i++) {
            const uint64_t at = (uint64_t)((i_step * K + k) * B * T + i);
            ids[k][i] = (int32_t)(sw_philox_u64(9, 1, at) % V);
            labels[k][i] = i % 7 == 3 + k ? -100 : (int32_t)(sw_philox_u64(9, 2, at) % V);
        }
        tensors[k][0] =
            (struct sw_tensor){"input_ids", {.data = ids[k], .dtype = SW_I32, .shape = shape}};
        tensors[k][1] =
            (struct sw_tensor){"labels", {.data = labels[k], .dtype = SW_I32, .shape = shape}};
        batches[k] = (struct sw_batch){tensors[k], 2};
    }
    if (sw_train_batch(engine, batches, K, &report) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_true(isfinite(report.loss));
}

/* Reads the master of tensor i; returns its size. */
static int64_t read_weight(sw_engine *engine, int32_t i, const char **name, float *values)
{
    struct sw_shape shape;
    assert_int_equal(sw_engine_tensor(engine, i, name, &shape), SW_OK);
    const int64_t n = sw_shape_elems(&shape);
    assert_true(n <= MAX_ELEMS);
    assert_int_equal(sw_get_weight(engine, *name, 0, n, values), SW_OK);
    return n;
}

static uint64_t hash_weights(sw_engine *engine)
{
    uint64_t h = SW_HASH_INIT;
    for (int32_t i = 0; i < sw_engine_n_tensors(engine); i++) {
        static float values[MAX_ELEMS];
        const char *name;
        const int64_t n = read_weight(engine, i, &name, values);
        for (int64_t k = 0; k < n; k++) {
            assert_true(isfinite(values[k]));
        }
        h = sw_hash(h, values, (size_t)n * sizeof *values);
    }
    return h;
}

static float trust_ratio(sw_engine *engine, const char *param)
{
    float ratio = NAN;
    const struct sw_persistent *item =
        sw_plan_find_state(engine->plan, param, SW_STATE_TRUST_RATIO, 0);
    assert_non_null(item);
    assert_int_equal(sw_executor_save(engine->executor, item, 0, &ratio, sizeof ratio), SW_OK);
    return ratio;
}

static double norm_of(const float *x, const float *minus, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (minus ? (double)minus[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* |dw| = step |w| if the ratio |w| / |u| is within its bounds; the ratio is 1 for a tensor of
 * zeros. */
static void every_tensor_moves_by_its_own_norm(void **state)
{
    (void)state;
    enum { MAX_TENSORS = 64 };
    static float before[MAX_TENSORS][MAX_ELEMS], after[MAX_ELEMS];
    sw_engine *engine = open_with("", NULL);
    const int32_t n_tensors = sw_engine_n_tensors(engine);
    int n_within = 0, n_zero = 0;
    const char *name;
    assert_true(n_tensors <= MAX_TENSORS);
    for (int32_t i = 0; i < n_tensors; i++) {
        read_weight(engine, i, &name, before[i]);
    }
    step(engine, 0);
    for (int32_t i = 0; i < n_tensors; i++) {
        const int64_t n = read_weight(engine, i, &name, after);
        const double was = norm_of(before[i], NULL, n), moved = norm_of(after, before[i], n);
        const double ratio = (double)trust_ratio(engine, name);
        assert_true(moved > 0);
        if (was == 0) {
            assert_true(ratio == 1);
            n_zero++;
        } else if (ratio > min_coeff * 1.001 && ratio < max_coeff * 0.999) {
            const double want = lr * sqrt(1 - beta2) / (1 - beta1) * was;
            if (fabs(moved / want - 1) > 1e-5) {
                fail_msg("%s: moved by %g, wanted %g", name, moved, want);
            }
            n_within++;
        }
    }
    assert_true(n_within > 0 && n_zero > 0);
    sw_close(engine);
}

static uint64_t run(const char *precision, const char *set)
{
    sw_engine *engine = open_with(precision, set);
    for (int64_t i = 0; i < STEPS; i++) {
        step(engine, i);
    }
    const uint64_t h = hash_weights(engine);
    sw_close(engine);
    return h;
}

static void recomputation_and_threads_change_no_bit(void **state)
{
    (void)state;
    static const char *const sets[] = {"spillway.threads=2", "spillway.threads=3",
                                       "spillway.threads=7", "spillway.recompute=blocks",
                                       "spillway.recompute=2"};
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        const uint64_t one = run(precisions[p], "spillway.threads=1");
        for (size_t i = 0; i < SW_LEN(sets); i++) {
            assert_true(run(precisions[p], sets[i]) == one);
        }
    }
}

static void a_load_continues_to_the_same_bits(void **state)
{
    (void)state;
    const struct sw_save_options save = {.val_loss = NAN};
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        char dir[128];
        snprintf(dir, sizeof dir, "%s/save.%zu", test_folder(), p);
        sw_engine *first = open_with(precisions[p], NULL);
        for (int64_t i = 0; i < STEPS / 2; i++) {
            step(first, i);
        }
        assert_int_equal(sw_save(first, dir, &save), SW_OK);
        sw_close(first);
        sw_engine *again = open_with(precisions[p], NULL);
        assert_int_equal(sw_load(again, dir), SW_OK);
        for (int64_t i = STEPS / 2; i < STEPS; i++) {
            step(again, i);
        }
        assert_true(hash_weights(again) == run(precisions[p], NULL));
        sw_close(again);
    }
}

/* Other bounds change the arithmetic: a checkpoint does not resume under other bounds, unless
 * allowed. */
static void bounds_are_part_of_the_fingerprint(void **state)
{
    (void)state;
    char dir[128];
    snprintf(dir, sizeof dir, "%s/save.0", test_folder());
    sw_engine *engine = open_with(precisions[0], "optimizer.params.max_coeff=7");
    assert_int_equal(sw_load(engine, dir), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "allow_other_math"));
    sw_close(engine);
}

static int make_files(void **state)
{
    (void)state;
    test_put("config.json", model_json);
    snprintf(model_path, sizeof model_path, "%s/config.json", test_folder());
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_tensor_moves_by_its_own_norm),
    cmocka_unit_test(recomputation_and_threads_change_no_bit),
    cmocka_unit_test(a_load_continues_to_the_same_bits),
    cmocka_unit_test(bounds_are_part_of_the_fingerprint),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_files};
