// SPDX-License-Identifier: Apache-2.0
// Graphs of ONNX files as models, from exports of recorded ones: the losses of the family, names,
// blocks, the file on the way out, and refusals.
#include <string.h>
#include <sys/stat.h>

#include "engine/private.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *gpt2, *roberta; /* the latter is a folder without other weights */
static const char *whole;          /* GPT-2 at opset 23: attention is one node */

static sw_status write_opset(const char *model, const char *folder, int opset, bool asked)
{
    const struct sw_engine_onnx to = {.folder = folder, .is_asked = asked, .opset = opset};
    struct sw_onnx_summary summary;
    return sw_engine_onnx_folder(model, &to, &summary);
}

static sw_status write_file(const char *model, const char *folder, bool asked)
{
    return write_opset(model, folder, 17, asked);
}

static int make_files(void **state)
{
    (void)state;
    gpt2 = test_at("gpt2/model.onnx");
    roberta = test_at("roberta");
    whole = test_at("whole/model.onnx");
    return write_opset("tests/cases/gpt2_tied", test_at("whole"), 23, false) < 0 ||
           write_file("tests/cases/gpt2_tied", test_at("gpt2"), false) < 0 ||
           write_file("tests/cases/roberta_untied", roberta, false) < 0;
}

static sw_status open_with(const char *model, const char *config, bool only, sw_engine **out)
{
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = model,
        .inputs.seq_len = 6,
        .train = {.wanted = true, .no_dropout = true}, /* exports have none */
        .plan.only = only,
    };
    return sw_initialize(&options, out);
}

static sw_engine *opened(const char *model, const char *config, bool only)
{
    sw_engine *e = NULL;
    const sw_status st = open_with(model, config, only, &e);
    if (st < 0) {
        fail_msg("%s: %s", model, sw_error_message());
    }
    return e;
}

#define ONE_ROW "{\"train_micro_batch_size_per_gpu\": 1"
#define TRAINED                                                                                    \
    ONE_ROW ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "                 \
            "\"spillway\": {\"threads\": 1}}"

static char *bytes_of(const char *path, size_t *len)
{
    char *bytes = NULL;
    assert_int_equal(sw_file_read(path, &bytes, len), SW_OK);
    return bytes;
}

static void layers_are_blocks_and_weights_have_the_names_of_modules(void **state)
{
    (void)state;
    sw_engine *e = opened(gpt2, ONE_ROW "}", true);
    const struct sw_model *model = sw_engine_weights(e)->model;
    assert_int_equal(model->layers, 2);
    assert_int_equal(model->max_tokens, 24);
    assert_int_equal(model->vocab, 41);
    assert_string_equal(model->task->name, "causal");
    assert_non_null(sw_weights_find(&e->weights, "transformer.h.1.attn.c_attn.weight"));
    assert_null(sw_weights_find(&e->weights, "lm_head.weight")); /* tied */
    sw_close(e);

    e = opened(roberta, ONE_ROW "}", true);
    assert_non_null(
        sw_weights_find(&e->weights, "roberta.encoder.layer.0.attention.self.query.weight"));
    assert_non_null(sw_weights_find(&e->weights, "lm_head.decoder.weight")); /* untied */
    assert_string_equal(sw_engine_weights(e)->model->task->name, "masked");
    sw_close(e);
}

static void adapters_find_layers_by_name(void **state)
{
    (void)state;
    sw_engine *e = opened(gpt2,
                          ONE_ROW ", \"spillway\": {\"lora\": {\"r\": 2, \"target_modules\": "
                                  "[\"c_attn\", \"h.0.mlp.c_fc\"]}}}",
                          true);
    assert_non_null(sw_weights_find(&e->weights, "transformer.h.1.attn.c_attn.lora_A.weight"));
    assert_non_null(sw_weights_find(&e->weights, "transformer.h.0.mlp.c_fc.lora_B.weight"));
    assert_null(sw_weights_find(&e->weights, "transformer.h.1.mlp.c_fc.lora_B.weight"));
    sw_close(e);
}

static void a_file_that_is_not_trained_comes_out_the_same(void **state)
{
    (void)state;
    assert_int_equal(write_file(gpt2, test_at("same"), false), SW_OK);
    test_same_file(gpt2, test_at("same/model.onnx"));
}

/* The values of a parameter, [n]. */
static void values_of(sw_engine *e, const char *name, int64_t n, float *out)
{
    const struct sw_parameter *param = sw_weights_find(&e->weights, name);
    assert_non_null(param);
    assert_int_equal(sw_shape_elems(&param->work->layout.whole), n);
    assert_int_equal(sw_weights_get(&e->weights, param, 0, n, out), SW_OK);
}

/* One step; returns the loss before it. */
static double train(sw_engine *e)
{
    static int32_t ids[6] = {3, 4, 5, 6, 7, 8}, labels[6] = {4, 5, 6, 7, 8, -100};
    const struct sw_tensor tensors[] = {{"input_ids", {ids, SW_I32, SW_SHAPE(1, 6), {0}}},
                                        {"labels", {labels, SW_I32, SW_SHAPE(1, 6), {0}}}};
    const struct sw_batch batch = {tensors, 2};
    struct sw_step_report report;
    if (sw_train_batch(e, &batch, 1, &report) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return report.loss;
}

static void losses_are_those_of_the_family(void **state)
{
    (void)state;
    sw_engine *graph = opened(gpt2, TRAINED, false);
    sw_engine *one_node = opened(whole, TRAINED, false);
    sw_engine *family = opened("tests/cases/gpt2_tied", TRAINED, false);
    for (int i = 0; i < 3; i++) {
        const double wanted = train(family);
        assert_float_equal(train(graph) / wanted, 1, 1e-5);
        assert_float_equal(train(one_node) / wanted, 1, 1e-5);
    }
    sw_close(one_node);
    sw_close(graph);
    sw_close(family);
}

/* The file of a checkpoint has other weights than the one that was read, in the same places. */
static void what_was_trained_is_written_into_the_file(void **state)
{
    enum { N = 41 * 12 };
    static const char table[] = "transformer.wte.weight";
    float before[N], after[N], again[N];
    struct sw_ckpt *ckpt = NULL;
    struct sw_onnx_summary summary;
    size_t n, m;
    (void)state;
    sw_engine *e = opened(gpt2, TRAINED, false);
    values_of(e, table, N, before);
    train(e);
    values_of(e, table, N, after);
    assert_memory_not_equal(before, after, sizeof after);
    assert_int_equal(sw_save(e, test_at("run"), NULL), SW_OK);
    sw_close(e);

    assert_int_equal(sw_ckpt_open(test_at("run"), &ckpt), SW_OK);
    const struct sw_engine_onnx to = {.folder = test_at("trained")};
    assert_int_equal(sw_engine_onnx_checkpoint(ckpt, NULL, &to, &summary), SW_OK);
    enum sw_dtype dtype = SW_F32;
    assert_int_equal(sw_weights_export_checkpoint(ckpt, test_at("none"), &dtype), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "has no family"));
    sw_ckpt_close(ckpt);

    e = opened(test_at("trained/model.onnx"), TRAINED, false);
    values_of(e, table, N, again);
    assert_memory_equal(after, again, sizeof after);
    sw_close(e);
    sw_free(bytes_of(gpt2, &n));
    sw_free(bytes_of(test_at("trained/model.onnx"), &m));
    assert_int_equal(n, m);
}

/* The file with one operator's name replaced by one of the same length. */
static const char *with_operator(const char *from, const char *to)
{
    size_t len;
    char *bytes = bytes_of(gpt2, &len);
    const size_t n = strlen(from);
    bool found = false;
    for (size_t i = 0; i + n + 2 < len; i++) {
        /* field 4 of a node is its operator, after the length of the text */
        if (bytes[i] == 0x22 && (size_t)bytes[i + 1] == n && memcmp(bytes + i + 2, from, n) == 0) {
            memcpy(bytes + i + 2, to, n);
            found = true;
        }
    }
    assert_true(found);
    FILE *file = fopen(test_at("other.onnx"), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    fclose(file);
    sw_free(bytes);
    return test_at("other.onnx");
}

static void expect_refusal(const char *model, const char *config, sw_status status,
                           const char *const *words)
{
    sw_engine *e = NULL;
    assert_int_equal(open_with(model, config, true, &e), status);
    for (; *words; words++) {
        if (!strstr(sw_error_message(), *words)) {
            fail_msg("\"%s\" is not in \"%s\"", *words, sw_error_message());
        }
    }
}

static void a_node_without_a_pattern_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const root[] = {"other.onnx", "node transformer.h.1.mlp/Tanh (Sqrt)",
                                       ": no pattern takes it", "no pattern ends in it", NULL};
    static const char *const product[] = {"node transformer.h.1.attn/MatMul_1 (MatMul)",
                                          "patterns that end in it: attention (Softmax of",
                                          "product (MatMul with", NULL};
    expect_refusal(with_operator("Tanh", "Sqrt"), ONE_ROW "}", SW_E_UNSUP, root);
    expect_refusal(with_operator("Softmax", "Sigmoid"), ONE_ROW "}", SW_E_UNSUP, product);
}

static void what_a_graph_cannot_do_is_refused(void **state)
{
    (void)state;
    static const char *const packing[] = {"spillway.packing", NULL};
    expect_refusal(gpt2, ONE_ROW ", \"spillway\": {\"packing\": true}}", SW_E_UNSUP, packing);
    assert_int_equal(write_file(gpt2, test_at("asked"), true), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "keeps its opset"));
    sw_engine *e = NULL;
    const struct sw_engine_options options = {.config.text = ONE_ROW "}",
                                              .model = {.path = gpt2, .task = "classify"},
                                              .train.wanted = true,
                                              .plan.only = true};
    assert_int_equal(sw_initialize(&options, &e), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "as for the task \"causal\""));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(layers_are_blocks_and_weights_have_the_names_of_modules),
    cmocka_unit_test(losses_are_those_of_the_family),
    cmocka_unit_test(adapters_find_layers_by_name),
    cmocka_unit_test(a_file_that_is_not_trained_comes_out_the_same),
    cmocka_unit_test(what_was_trained_is_written_into_the_file),
    cmocka_unit_test(a_node_without_a_pattern_is_refused_by_name),
    cmocka_unit_test(what_a_graph_cannot_do_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_files};
