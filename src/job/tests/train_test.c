// SPDX-License-Identifier: Apache-2.0
// Requests that a training refuses before it opens anything, and steps after which it does not go
// on.
#include <unistd.h>

#include "base/base.h"
#include "spillway/data.h"
#include "spillway/engine.h"
#include "spillway/train.h"
#include "support/scratch.h"
#include "support/test.h"

static void no_options_are_refused(void **state)
{
    (void)state;
    struct sw_train_result result;
    sw_dataset *dataset = NULL;
    bool started = true;
    assert_int_equal(sw_train(NULL, stdout, &started, &result), SW_E_ARG);
    assert_false(started);
    assert_int_equal(sw_dataset_open(NULL, &dataset), SW_E_ARG);
}

/* ---- a finite loss whose gradient is not ---- */

enum { V = 64, C = 16, T = 8 };

static void set(sw_engine *e, const char *name, int64_t n, const float *values)
{
    assert_int_equal(sw_set_weight(e, name, 0, n, values), SW_OK);
}

/* The input of the last layer norm is constant in each row, so that its output is the bias for any
 * weight. Backward multiplies by the weight, which is near the largest float. */
static void write_model(const char *folder)
{
    static const char model[] =
        "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":8,\"n_embd\":16,\"n_layer\":1,"
        "\"n_head\":2,\"embd_pdrop\":0,\"attn_pdrop\":0,\"resid_pdrop\":0}";
    static float zeros[4 * C * C], rows[V * C], weight[C], bias[C];
    char path[128];
    sw_engine *e = NULL;
    test_put("config.json", model);
    snprintf(path, sizeof path, "%s/config.json", test_folder());
    const struct sw_engine_options options = {.config.text =
                                                  "{\"train_micro_batch_size_per_gpu\": 1}",
                                              .model.path = path,
                                              .inputs.seq_len = T,
                                              .evaluate.logits = true};
    assert_int_equal(sw_initialize(&options, &e), SW_OK);
    for (int i = 0; i < V * C; i++) {
        rows[i] = (float)(i / C) / 8;
    }
    for (int i = 0; i < C; i++) {
        weight[i] = i % 2 == 0 ? 1e38F : 0;
        bias[i] = i % 2 == 0;
    }
    set(e, "transformer.wte.weight", V * C, rows);
    set(e, "transformer.wpe.weight", T * C, zeros);
    set(e, "transformer.h.0.attn.c_proj.weight", C * C, zeros);
    set(e, "transformer.h.0.mlp.c_proj.weight", 4 * C * C, zeros);
    set(e, "transformer.ln_f.weight", C, weight);
    set(e, "transformer.ln_f.bias", C, bias);
    assert_int_equal(sw_export(e, folder, SW_F32), SW_OK);
    sw_close(e);
}

/* Trains the model, and saves after each step. */
static void expect_refusal(const char *folder, const char *output, const char *const *sets,
                           int n_sets, int64_t ranks)
{
    struct sw_train_result result;
    bool started = false;
    char data[96];
    snprintf(data, sizeof data, "%s/text.txt", test_folder());
    const char *file = data;
    const struct sw_train_options o = {.model = folder,
                                       .data = &file,
                                       .n_data = 1,
                                       .output = output,
                                       .ranks = ranks,
                                       .steps = 4,
                                       .seq_len = T,
                                       .sets = sets,
                                       .n_sets = n_sets,
                                       .save_every = 1,
                                       .no_export = true,
                                       .quiet = true,
                                       .export_dtype = -1};
    if (sw_train(&o, stdout, &started, &result) != SW_E_ARG || !started) {
        fail_msg("%s", sw_error_message());
    }
}

static void a_step_with_an_infinite_gradient_is_not_saved(void **state)
{
    (void)state;
    static const char *const sets[] = {"train_micro_batch_size_per_gpu=1", "bf16.enabled=true"};
    static const char folder[] = "model", *const outputs[] = {"fp32", "bf16", "two"};
    char model[128], output[128], saved[160];
    snprintf(model, sizeof model, "%s/%s", test_folder(), folder);
    write_model(model);
    test_put("text.txt", "abcdefgh hgfedcba abcdefgh hgfedcba\n");
    for (int i = 0; i < 3; i++) {
        snprintf(output, sizeof output, "%s/%s", test_folder(), outputs[i]);
        expect_refusal(model, output, sets, i == 1 ? 2 : 1, i == 2 ? 2 : 0);
        if (!strstr(sw_error_message(), "step 1: the norm of the gradient is inf; no checkpoint")) {
            fail_msg("%s: %s", outputs[i], sw_error_message());
        }
        snprintf(saved, sizeof saved, "%s/checkpoint-1", output);
        assert_int_not_equal(access(saved, F_OK), 0);
    }
}

/* The first update leaves weights that are no numbers, though loss and gradient were finite. */
static void weights_that_are_not_finite_are_not_saved(void **state)
{
    (void)state;
    static const char *const sets[] = {"train_micro_batch_size_per_gpu=1", "optimizer.type=AdamW",
                                       "optimizer.params.lr=3e38",
                                       "optimizer.params.weight_decay=3e38"};
    char output[128], saved[160];
    snprintf(output, sizeof output, "%s/huge", test_folder());
    snprintf(saved, sizeof saved, "%s/checkpoint-1", output);
    expect_refusal("gpt2-tiny", output, sets, 4, 0);
    if (!strstr(sw_error_message(), "NaN or infinite, so no checkpoint is written")) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_not_equal(access(saved, F_OK), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_options_are_refused),
    cmocka_unit_test(a_step_with_an_infinite_gradient_is_not_saved),
    cmocka_unit_test(weights_that_are_not_finite_are_not_saved),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
