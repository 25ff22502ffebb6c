// SPDX-License-Identifier: Apache-2.0
// Optimizers in training. SparseAdam leaves table rows alone that were not looked up. With bf16
// moments, states take 8 bytes per parameter and the disk moves 18; a load continues to the same
// bits. Groups move their parameters by their own rates.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 8, K = 2, V = 64, C = 64, STEPS = 4, MAX_ELEMS = 1 << 15 };

static char model_path[96];

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":64,"
    "\"n_positions\":16,\"n_embd\":64,\"n_layer\":6,\"n_head\":2,\"embd_pdrop\":0,"
    "\"attn_pdrop\":0,\"resid_pdrop\":0,\"tie_word_embeddings\":false}";

/* more: the rest of the configuration, starting at its optimizer */
static sw_engine *open_with(const char *more)
{
    char config[1024];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_accumulation_steps\": %d, "
             "\"gradient_clipping\": 0, %s}",
             B, K, more);
    const struct sw_engine_options options = {.config.text = config,
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

/* Trains on even tokens only. */
static void step(sw_engine *engine, int64_t i_step)
{
    static int32_t ids[K][B * T];
    struct sw_tensor tensors[K][2];
    struct sw_batch batches[K];
    struct sw_step_report report;
    const struct sw_shape shape = {2, {B, T}};
    for (int k = 0; k < K; k++) {
        for (int i = 0; i < B * T; i++) {
            const uint64_t at = (uint64_t)((i_step * K + k) * B * T + i);
            ids[k][i] = 2 * (int32_t)(sw_philox_u64(9, 1, at) % (V / 2));
        }
        const struct sw_view view = {.data = ids[k], .dtype = SW_I32, .shape = shape};
        tensors[k][0] = (struct sw_tensor){"input_ids", view};
        tensors[k][1] = (struct sw_tensor){"labels", view};
        batches[k] = (struct sw_batch){tensors[k], 2};
    }
    if (sw_train_batch(engine, batches, K, &report) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_true(isfinite(report.loss));
}

static int64_t read_weight(sw_engine *engine, const char *part, float *values)
{
    for (int32_t i = 0; i < sw_engine_n_tensors(engine); i++) {
        const char *name;
        struct sw_shape shape;
        assert_int_equal(sw_engine_tensor(engine, i, &name, &shape), SW_OK);
        if (strstr(name, part)) {
            const int64_t n = sw_shape_elems(&shape);
            assert_true(n <= MAX_ELEMS);
            assert_int_equal(sw_get_weight(engine, name, 0, n, values), SW_OK);
            return n;
        }
    }
    fail_msg("no tensor %s", part);
    return 0;
}

static uint64_t hash_weights(sw_engine *engine)
{
    static float values[MAX_ELEMS];
    uint64_t h = SW_HASH_INIT;
    for (int32_t i = 0; i < sw_engine_n_tensors(engine); i++) {
        const char *name;
        struct sw_shape shape;
        assert_int_equal(sw_engine_tensor(engine, i, &name, &shape), SW_OK);
        const int64_t n = read_weight(engine, name, values);
        h = sw_hash(h, values, (size_t)n * sizeof *values);
    }
    return h;
}

static void rows_that_nobody_looks_up_stay(void **state)
{
    (void)state;
    static float before[MAX_ELEMS], after[MAX_ELEMS];
    sw_engine *e =
        open_with("\"optimizer\": {\"type\": \"SparseAdam\", \"params\": {\"lr\": 0.01}}");
    const int64_t n = read_weight(e, "wte.weight", before);
    int n_moved = 0;
    assert_int_equal(n, V * C);
    for (int64_t i = 0; i < STEPS; i++) {
        step(e, i);
    }
    read_weight(e, "wte.weight", after);
    for (int64_t row = 0; row < V; row++) {
        const bool same = memcmp(before + row * C, after + row * C, C * sizeof *after) == 0;
        assert_true(same || row % 2 == 0);
        n_moved += !same;
    }
    assert_true(n_moved > V / 4);
    sw_close(e);
}

#define ADAM "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
#define HALF                                                                                       \
    "\"bf16\": {\"enabled\": true}, \"spillway\": {\"moments\": \"bf16\", \"micro_batches\": 1"

static void bf16_moments_are_eight_bytes_and_move_eighteen(void **state)
{
    (void)state;
    char more[512];
    snprintf(more, sizeof more,
             ADAM HALF ", \"recompute\": \"blocks\"}, \"zero_optimization\": {\"stage\": 3, "
                       "\"stage3_param_persistence_threshold\": 0, "
                       "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
                       "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}}",
             test_folder(), test_folder());
    sw_engine *e = open_with(more);
    int64_t params = 0, states = 0;
    for (int32_t i = 0; i < e->plan->n_persistent; i++) {
        const struct sw_persistent *item = &e->plan->persistent[i];
        const int64_t n = sw_shape_elems(&item->shape),
                      width = (int64_t)sw_dtype_bytes(item->dtype);
        params += item->role == SW_ROLE_PARAM ? n : 0;
        states += item->role == SW_ROLE_PARAM || item->param ? n * width : 0;
    }
    assert_int_equal(states, 8 * params);
    const struct sw_transfers t = sw_plan_transfers(e->plan, 1);
    const double moved = (double)(t.in[SW_TIER_DISK] + t.out[SW_TIER_DISK]) / (double)params;
    if (moved < 17.5 || moved > 18.5) { /* small tensors stay, or travel with padding */
        fail_msg("%g bytes a parameter", moved);
    }
    sw_close(e);
}

static void a_load_goes_on_with_bf16_moments(void **state)
{
    (void)state;
    const struct sw_save_options save = {.val_loss = NAN};
    static const char more[] = ADAM "\"bf16\": {\"enabled\": true}, \"spillway\": {\"moments\": "
                                    "\"bf16\"}";
    char dir[128];
    snprintf(dir, sizeof dir, "%s/save", test_folder());
    sw_engine *whole = open_with(more), *e = open_with(more);
    for (int64_t i = 0; i < STEPS; i++) {
        step(whole, i);
    }
    for (int64_t i = 0; i < STEPS / 2; i++) {
        step(e, i);
    }
    assert_int_equal(sw_save(e, dir, &save), SW_OK);
    sw_close(e);
    e = open_with(more);
    assert_int_equal(sw_load(e, dir), SW_OK);
    for (int64_t i = STEPS / 2; i < STEPS; i++) {
        step(e, i);
    }
    assert_true(hash_weights(e) == hash_weights(whole));
    sw_close(e);
    e = open_with(ADAM "\"bf16\": {\"enabled\": true}"); /* different arithmetic */
    assert_int_equal(sw_load(e, dir), SW_E_CONFIG);
    sw_close(e);
    sw_close(whole);
}

static double moved_by(const char *spillway, const char *name)
{
    static float before[MAX_ELEMS], after[MAX_ELEMS];
    char more[512];
    double most = 0;
    snprintf(more, sizeof more, ADAM "\"spillway\": {%s}", spillway);
    sw_engine *e = open_with(more);
    const int64_t n = read_weight(e, name, before);
    step(e, 0);
    read_weight(e, name, after);
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)after[i] - (double)before[i]));
    }
    sw_close(e);
    return most;
}

/* Adam's first step equals the rate, up to eps. */
static void groups_have_rates_of_their_own(void **state)
{
    (void)state;
    static const char groups[] = "\"groups\": [{\"match\": \"*.h.0.*\", \"lr_scale\": 0.5}], "
                                 "\"layer_decay\": 0.5";
    const double whole = moved_by("", "h.5.mlp.c_proj.bias");
    assert_true(fabs(whole / 0.01 - 1) < 0.01);
    assert_true(fabs(moved_by(groups, "h.5.mlp.c_proj.bias") / whole - 0.5) < 0.01);
    assert_true(fabs(moved_by(groups, "h.4.mlp.c_proj.bias") / whole - 0.25) < 0.01);
    assert_true(fabs(moved_by(groups, "ln_f.bias") / whole - 1) < 0.01);
    assert_true(fabs(moved_by(groups, "h.0.mlp.c_proj.bias") / whole - 1.0 / 128) < 0.001);
    struct sw_engine_options options = {
        .config.text = "{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"AdamW\"}, "
                       "\"spillway\": {\"groups\": [{\"match\": \"decoder.*\"}]}}",
        .model.path = model_path,
        .inputs.seq_len = T,
        .train.wanted = true,
    };
    sw_engine *engine = NULL;
    assert_int_equal(sw_initialize(&options, &engine), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "spillway.groups[0].match"));
}

static int make_files(void **state)
{
    (void)state;
    test_put("config.json", model_json);
    snprintf(model_path, sizeof model_path, "%s/config.json", test_folder());
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_that_nobody_looks_up_stay),
    cmocka_unit_test(bf16_moments_are_eight_bytes_and_move_eighteen),
    cmocka_unit_test(a_load_goes_on_with_bf16_moments),
    cmocka_unit_test(groups_have_rates_of_their_own),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_files};
