// SPDX-License-Identifier: Apache-2.0
// Weights of an imported graph that an exporter has transposed: their names, their values on the
// way in and out, and the transpose of a table of words.
#include <string.h>

#include "onnx/import.h"
#include "onnx/tests/proto_model.h"
#include "support/scratch.h"
#include "support/test.h"

enum { WORDS = 5, WIDTH = 3 };

/* Element [r,c] of the table of words, and of the product as the model has it, [out,in]. */
static float word(int64_t r, int64_t c)
{
    return (float)(r * 10 + c);
}

static float factor(int64_t r, int64_t c)
{
    return (float)(r - c) + 0.5F;
}

static void named_node(struct sw_proto_writer *p, const char *name, const char *op, const char *in,
                       const char *out)
{
    test_begin_node(p, name, op, in, out);
    test_end_node(p);
}

/* logits = (table[ids] product + bias) table^T, all products transposed in the file. */
static void write_graph(struct sw_proto_writer *p, const void *ctx)
{
    static const float bias[WIDTH] = {1, 2, 3};
    const int64_t row[] = {2, 4}, logits[] = {2, 4, WORDS};
    float table[WORDS * WIDTH], turned[WIDTH * WORDS], product[WIDTH * WIDTH];
    (void)ctx;
    for (int64_t i = 0; i < WORDS * WIDTH; i++) {
        table[i] = word(i / WIDTH, i % WIDTH);
        turned[i] = word(i % WORDS, i / WORDS);
    }
    for (int64_t i = 0; i < WIDTH * WIDTH; i++) {
        product[i] = factor(i % WIDTH, i / WIDTH);
    }
    named_node(p, "/model/embed/Gather", "Gather", "model.embed.weight input_ids", "x");
    named_node(p, "/model/proj/MatMul", "MatMul", "x onnx::MatMul_7", "y");
    named_node(p, "/model/proj/Add", "Add", "model.proj.bias y", "z");
    named_node(p, "/head/MatMul", "MatMul", "z onnx::MatMul_8", "logits");
    test_tensor(p, "model.embed.weight", ONNX_F32, 2, (int64_t[]){WORDS, WIDTH}, table,
                sizeof table);
    test_tensor(p, "model.proj.bias", ONNX_F32, 1, (int64_t[]){WIDTH}, bias, sizeof bias);
    test_tensor(p, "onnx::MatMul_7", ONNX_F32, 2, (int64_t[]){WIDTH, WIDTH}, product,
                sizeof product);
    test_tensor(p, "onnx::MatMul_8", ONNX_F32, 2, (int64_t[]){WIDTH, WORDS}, turned, sizeof turned);
    test_port(p, ONNX_GRAPH_INPUT, "input_ids", ONNX_I64, 2, row, NULL);
    test_port(p, ONNX_GRAPH_OUTPUT, "logits", ONNX_F32, 3, logits, NULL);
}

static struct sw_model *open_file(const char *path, struct sw_json_doc **doc)
{
    const struct sw_model_options options = {.task = "tokens"};
    struct sw_model *model = NULL;
    assert_int_equal(sw_json_new("config.json", doc), SW_OK);
    assert_non_null(sw_json_put_str(*doc, sw_json_root(*doc), SW_ONNX_KEY, path));
    if (sw_onnx_model_open(*doc, &options, &model) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return model;
}

static void expect_values(const struct sw_model *model, float plus)
{
    const struct sw_shape table = SW_SHAPE(WORDS, WIDTH), product = SW_SHAPE(WIDTH, WIDTH);
    float words[WORDS * WIDTH], factors[WIDTH * WIDTH - 2];
    assert_int_equal(
        sw_onnx_model_fetch(model, "model.embed.weight", &table, 0, WORDS * WIDTH, words), SW_OK);
    assert_int_equal(
        sw_onnx_model_fetch(model, "model.proj.weight", &product, 2, WIDTH * WIDTH - 2, factors),
        SW_OK);
    for (int64_t i = 0; i < WORDS * WIDTH; i++) {
        assert_float_equal(words[i], word(i / WIDTH, i % WIDTH) + plus, 0);
    }
    for (int64_t i = 2; i < WIDTH * WIDTH; i++) {
        assert_float_equal(factors[i - 2], factor(i / WIDTH, i % WIDTH) + plus, 0);
    }
}

static sw_status one_more(void *ctx, const char *name, const struct sw_shape *shape, int64_t first,
                          int64_t n, float *out)
{
    SW_TRY(sw_onnx_model_fetch(ctx, name, shape, first, n, out));
    for (int64_t i = 0; i < n; i++) {
        out[i] += 1;
    }
    return SW_OK;
}

static void transposed_weights_have_their_modules_names_and_are_turned_back(void **state)
{
    struct sw_json_doc *doc, *again;
    struct sw_onnx_summary summary;
    (void)state;
    test_write_model(test_at("in.onnx"), 17, write_graph, NULL);
    struct sw_model *model = open_file(test_at("in.onnx"), &doc);
    expect_values(model, 0);
    assert_int_equal(model->vocab, WORDS);
    const struct sw_shape head = SW_SHAPE(WORDS, WIDTH);
    float one;
    assert_int_equal(sw_onnx_model_fetch(model, "head.weight", &head, 0, 1, &one), SW_E_FORMAT);

    const struct sw_onnx_values values = {one_more, model};
    assert_int_equal(sw_mkdirs(test_at("out")), SW_OK);
    assert_int_equal(sw_onnx_model_write(model, &values, test_at("out"), &summary), SW_OK);
    assert_int_equal(summary.weights, 3); /* the table is one parameter with its transpose */
    struct sw_model *written = open_file(test_at("out/in.onnx"), &again);
    expect_values(written, 1);
    struct sw_str was = {0}, is = {0}, same = {0};
    sw_onnx_model_describe(model, &was);
    sw_onnx_model_describe(model, &same);
    sw_onnx_model_describe(written, &is);
    assert_string_equal(sw_str_text(&was), sw_str_text(&same));
    assert_string_not_equal(sw_str_text(&was), sw_str_text(&is));
    sw_str_fini(&was);
    sw_str_fini(&is);
    sw_str_fini(&same);
    assert_int_equal(summary.nodes, 4);
    sw_model_close(written); /* tied again: the copy has the new values, too */
    sw_json_close(again);
    sw_model_close(model);
    sw_json_close(doc);
}

/* logits = the second part of the rows of a table; the first part has no name. */
static void write_split(struct sw_proto_writer *p, const void *ctx)
{
    static const float table[WORDS * 12];
    const int64_t *sizes = ctx, row[] = {2, 4}, logits[] = {2, 4, sizes[1]};
    named_node(p, "/model/embed/Gather", "Gather", "model.embed.weight input_ids", "x");
    test_begin_node(p, "/cut/Split", "Split", sizes[0] == sizes[1] ? "x" : "x sizes", "- logits");
    test_node_int(p, "axis", 2);
    test_end_node(p);
    test_tensor(p, "model.embed.weight", ONNX_F32, 2, (int64_t[]){WORDS, 12}, table, sizeof table);
    test_tensor(p, "sizes", ONNX_I64, 1, (int64_t[]){2}, sizes, 2 * sizeof *sizes);
    test_port(p, ONNX_GRAPH_INPUT, "input_ids", ONNX_I64, 2, row, NULL);
    test_port(p, ONNX_GRAPH_OUTPUT, "logits", ONNX_F32, 3, logits, NULL);
}

static void a_part_of_a_split_begins_after_those_without_a_name(void **state)
{
    const int64_t sizes[][2] = {{8, 4}, {4, 8}, {6, 6}};
    const struct sw_onnx_plan_spec spec = {.batch = 2, .tokens = 4};
    (void)state;
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        struct sw_json_doc *doc;
        struct sw_onnx_plan *plan = NULL;
        int64_t first = -1;
        test_write_model(test_at("split.onnx"), 17, write_split, sizes[i]);
        struct sw_model *model = open_file(test_at("split.onnx"), &doc);
        if (sw_onnx_plan_open(SW_CONTAINER(model, struct sw_onnx_import, super), &spec, &plan) <
            0) {
            fail_msg("%s", sw_error_message());
        }
        for (int32_t k = 0; k < plan->n; k++) {
            const bool is_slice = strcmp(plan->matches[k].by->name, "slice") == 0;
            first = is_slice ? plan->matches[k].first : first;
        }
        assert_int_equal(first, sizes[i][0]);
        sw_onnx_plan_close(plan);
        sw_model_close(model);
        sw_json_close(doc);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_part_of_a_split_begins_after_those_without_a_name),
    cmocka_unit_test(transposed_weights_have_their_modules_names_and_are_turned_back),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
