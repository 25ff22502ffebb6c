// SPDX-License-Identifier: Apache-2.0
// Exported files: their bytes are those that the checker of the package onnx and ONNX Runtime took
// (tests/peers/same_onnx.py), tensors are defined before they are read, weights are where the file
// says, and a large model takes no more memory than a small one.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "onnx/onnx.h"
#include "onnx/schema.h"
#include "onnx/tests/models.h"
#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"

static void read_file(const char *path, char **out, size_t *len)
{
    if (sw_file_read(path, out, len) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static void export_good(const char *config, const char *folder, int opset, enum sw_dtype dtype,
                        int64_t inside_bytes, struct sw_onnx_summary *out)
{
    if (test_export(config, folder, opset, dtype, inside_bytes, out) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

/* ---- bytes ---- */

static void bytes_are_those_that_the_checker_took(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int opset;
        const char *sha256; /* the first 16 digits, of all files in their order */
    } cases[] = {
        {TEST_GPT2, 17, "28379204667e0c28"}, {TEST_GPT2, 20, "905c345dc7f65832"},
        {TEST_GPT2, 23, "a451329b406c97cf"}, {TEST_BERT, 17, "b3ecfe36d105c32d"},
        {TEST_BERT, 23, "13439d435b5e7f54"}, {TEST_T5, 17, "79b1a66ece200891"},
        {TEST_T5, 23, "ba3e7ee54dbdc758"},   {TEST_VIT, 17, "0a01b94913113c48"},
        {TEST_VIT, 23, "b0f7cdc60d76e48e"},
    };
    bool wrong = false;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct sw_onnx_summary summary;
        struct sw_str all = {0};
        char found[65], name[32];
        snprintf(name, sizeof name, "case%zu", i);
        export_good(cases[i].config, test_at(name), cases[i].opset, SW_F32, 0, &summary);
        for (int k = 0; k < summary.n_files; k++) {
            char path[512], *bytes;
            size_t len;
            snprintf(path, sizeof path, "%s/%s", test_at(name), summary.files[k]);
            read_file(path, &bytes, &len);
            sw_str_append(&all, bytes, len);
            sw_free(bytes);
        }
        sw_test_sha256(all.ptr, all.len, found);
        sw_str_fini(&all);
        found[16] = '\0';
        if (strcmp(found, cases[i].sha256) != 0) {
            print_message("case %zu: %s, recorded %s\n", i, found, cases[i].sha256);
            wrong = true;
        }
    }
    assert_false(wrong);
}

/* ---- structure ---- */

enum { TENSOR, NODE_NAME };

struct reading {
    struct sw_arena arena;
    struct sw_names known; /* tensors so far, and names of nodes */
    int64_t n_nodes, n_weights;
    const char *data; /* of external weights; NULL = none */
    size_t data_len;
    uint64_t last_end;
};

static bool next(struct sw_proto *proto, struct sw_proto_field *field)
{
    bool more = false;
    assert_int_equal(sw_proto_next(proto, field, &more), SW_OK);
    return more;
}

static struct sw_proto within(const struct sw_proto_field *field)
{
    assert_int_equal(field->wire, SW_PROTO_BYTES);
    return (struct sw_proto){field->bytes, field->len, 0};
}

static char *text_of(struct reading *r, const struct sw_proto_field *field)
{
    char *text = sw_arena_strndup(&r->arena, (const char *)field->bytes, field->len);
    assert_non_null(text);
    return text;
}

/* A name is new. */
static void define(struct reading *r, int kind, const char *name)
{
    assert_int_equal(sw_names_find(&r->known, kind, name), -1);
    assert_true(sw_names_add(&r->known, kind, name, 1));
}

static void read_node(struct reading *r, const struct sw_proto_field *message)
{
    struct sw_proto proto = within(message);
    struct sw_proto_field field;
    while (next(&proto, &field)) {
        if (field.number == ONNX_NODE_INPUT && field.len > 0) {
            const char *name = text_of(r, &field);
            if (sw_names_find(&r->known, TENSOR, name) < 0) {
                fail_msg("%s is read before it is defined", name);
            }
        } else if (field.number == ONNX_NODE_OUTPUT) {
            define(r, TENSOR, text_of(r, &field));
        } else if (field.number == ONNX_NODE_NAME) {
            define(r, NODE_NAME, text_of(r, &field));
        }
    }
    r->n_nodes++;
}

static uint64_t entry_value(struct reading *r, const struct sw_proto_field *message,
                            const char *wanted)
{
    struct sw_proto proto = within(message);
    struct sw_proto_field key, value;
    assert_true(next(&proto, &key) && next(&proto, &value));
    return strcmp(text_of(r, &key), wanted) == 0 ? strtoull(text_of(r, &value), NULL, 10)
                                                 : UINT64_MAX;
}

static void check_values(const char *name, const char *bytes, uint64_t len)
{
    float x;
    for (uint64_t i = 0; i < len / sizeof x; i++) {
        memcpy(&x, bytes + i * sizeof x, sizeof x);
        assert_true(x == test_value(name, (int64_t)i));
    }
}

static void read_tensor(struct reading *r, const struct sw_proto_field *message)
{
    struct sw_proto proto = within(message);
    struct sw_proto_field field;
    const char *name = "";
    uint64_t offset = UINT64_MAX, len = UINT64_MAX;
    while (next(&proto, &field)) {
        if (field.number == ONNX_TENSOR_NAME) {
            name = text_of(r, &field);
            define(r, TENSOR, name);
        } else if (field.number == ONNX_TENSOR_EXTERNAL) {
            const uint64_t at = entry_value(r, &field, "offset");
            const uint64_t n = entry_value(r, &field, "length");
            offset = at != UINT64_MAX ? at : offset;
            len = n != UINT64_MAX ? n : len;
        }
    }
    if (offset != UINT64_MAX) {
        assert_int_equal(offset % 4096, 0);
        assert_true(offset >= r->last_end && len <= r->data_len - offset);
        r->last_end = offset + len;
        check_values(name, r->data + offset, len);
        r->n_weights++;
    }
}

static void read_graph(struct reading *r, const struct sw_proto_field *message)
{
    struct sw_proto_field field;
    for (int pass = 0; pass < 2; pass++) { /* nodes are in front of the tensors that they read */
        struct sw_proto proto = within(message);
        while (next(&proto, &field)) {
            if (pass == 0 && field.number == ONNX_GRAPH_INITIALIZER) {
                read_tensor(r, &field);
            } else if (pass == 0 && field.number == ONNX_GRAPH_INPUT) {
                struct sw_proto port = within(&field);
                assert_true(next(&port, &field));
                define(r, TENSOR, text_of(r, &field));
            } else if (pass == 1 && field.number == ONNX_GRAPH_NODE) {
                read_node(r, &field);
            } else if (pass == 1 && field.number == ONNX_GRAPH_OUTPUT) {
                struct sw_proto port = within(&field);
                assert_true(next(&port, &field));
                assert_true(sw_names_find(&r->known, TENSOR, text_of(r, &field)) >= 0);
            }
        }
    }
}

static void check_structure(const char *path, const char *data_path, int64_t *nodes,
                            int64_t *weights)
{
    struct reading r = {0};
    struct sw_proto_field field;
    char *bytes, *data = NULL;
    size_t len;
    sw_arena_init(&r.arena, "test");
    read_file(path, &bytes, &len);
    if (data_path) {
        read_file(data_path, &data, &r.data_len);
        r.data = data;
    }
    struct sw_proto proto = {(const unsigned char *)bytes, len, 0};
    while (next(&proto, &field)) {
        if (field.number == ONNX_MODEL_GRAPH) {
            read_graph(&r, &field);
        }
    }
    *nodes += r.n_nodes;
    *weights += r.n_weights;
    sw_names_close(&r.known);
    sw_arena_fini(&r.arena);
    sw_free(bytes);
    sw_free(data);
}

static void tensors_are_defined_before_they_are_read_and_weights_are_on_pages(void **state)
{
    (void)state;
    static const char *const configs[] = {TEST_GPT2, TEST_BERT, TEST_LLAMA, TEST_T5, TEST_VIT};
    for (size_t i = 0; i < 2 * SW_LEN(configs); i++) {
        struct sw_onnx_summary summary;
        int64_t nodes = 0, weights = 0;
        export_good(configs[i / 2], test_at("apart"), i % 2 ? 17 : 23, SW_F32, 1, &summary);
        assert_true(summary.external);
        for (int k = 0; k < summary.n_files; k++) {
            char path[512], data[520];
            snprintf(path, sizeof path, "%s/%s", test_at("apart"), summary.files[k]);
            snprintf(data, sizeof data, "%s.data", path);
            check_structure(path, data, &nodes, &weights);
        }
        assert_int_equal(nodes, summary.nodes);
        assert_int_equal(weights, summary.weights);
        assert_true(weights > 8);
    }
}

static void files_of_an_earlier_export_go(void **state)
{
    (void)state;
    struct sw_onnx_summary summary;
    export_good(TEST_GPT2, test_at("twice"), 17, SW_F32, 1, &summary);
    assert_int_equal(access(test_at("twice/model.onnx.data"), F_OK), 0);
    export_good(TEST_GPT2, test_at("twice"), 17, SW_BF16, 0, &summary);
    assert_int_equal(access(test_at("twice/model.onnx.data"), F_OK), -1);
    export_good(TEST_T5, test_at("twice"), 17, SW_F16, 0, &summary);
    assert_int_equal(summary.n_files, 2);
    assert_int_equal(access(test_at("twice/model.onnx"), F_OK), -1);
}

/* ---- memory ---- */

static void a_model_of_24_MiB_takes_5_more(void **state)
{
    (void)state;
    struct sw_alloc_stats before, after;
    struct sw_onnx_summary summary;
    sw_alloc_get_stats(&before);
    export_good("{\"model_type\":\"gpt2\",\"vocab_size\":65536,\"n_positions\":8,\"n_embd\":96,"
                "\"n_layer\":1,\"n_head\":2}",
                test_at("large"), 17, SW_F32, 0, &summary);
    sw_alloc_get_stats(&after);
    assert_true(summary.bytes > 24 << 20);
    assert_true(after.peak_bytes - before.live_bytes < 5 << 20);
    assert_int_equal(after.live_bytes, before.live_bytes);
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    struct sw_alloc_stats before, after;
    struct sw_onnx_summary summary;
    struct sw_model *model = test_model(TEST_LLAMA);
    const char *folder = test_at("lack");
    sw_status st = SW_E_NOMEM;
    int64_t n = 0;
    sw_alloc_get_stats(&before);
    while (st < 0) {
        sw_alloc_fail_nth(++n);
        st = test_export_model(model, folder, 17, SW_F32, 0, &summary);
        sw_alloc_fail_nth(0);
        assert_true(st == SW_E_NOMEM || st == SW_OK);
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_bytes, before.live_bytes);
    }
    assert_true(n > 20);
    sw_model_close(model);
}

/* ---- positions whose table depends on the length of rows ---- */

#define LONGROPE(long_factor)                                                                      \
    "{\"model_type\":\"llama\",\"vocab_size\":16,\"max_position_embeddings\":32,"                  \
    "\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"                         \
    "\"intermediate_size\":12,\"original_max_position_embeddings\":12,"                            \
    "\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":[1,1],"                         \
    "\"long_factor\":[1," long_factor "],\"original_max_position_embeddings\":12}}"

static void two_tables_are_written_where_long_rows_have_another_one(void **state)
{
    (void)state;
    struct sw_onnx_summary one, two;
    export_good(LONGROPE("1"), test_at("rope1"), 17, SW_F32, 0, &one);
    export_good(LONGROPE("4"), test_at("rope2"), 17, SW_F32, 0, &two);
    /* Greater, Cast, Mul, Concat, Add, Slice, for all layers once */
    assert_in_range(two.nodes, one.nodes + 5, one.nodes + 7);
    /* the first one has as many rows as tokens that it is for */
    assert_true(two.bytes >= one.bytes + 12 * 4 * (int64_t)sizeof(float));
    assert_true(two.bytes < one.bytes + 13 * 4 * (int64_t)sizeof(float) + 2048);
}

/* ---- refusals ---- */

static void what_cannot_be_exported_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int opset;
        enum sw_dtype dtype;
        sw_status status;
        const char *message;
    } cases[] = {
        {TEST_GPT2, 16, SW_F32, SW_E_ARG, "opset 16; wanted 17 to 23"},
        {TEST_GPT2, 99, SW_F32, SW_E_ARG, "opset 99; wanted 17 to 23"},
        {TEST_GPT2, 17, SW_F64, SW_E_ARG, "dtype f64; wanted f32, f16 or bf16"},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct sw_onnx_summary summary;
        assert_int_equal(test_export(cases[i].config, test_at("refused"), cases[i].opset,
                                     cases[i].dtype, 0, &summary),
                         cases[i].status);
        assert_string_equal(sw_error_message(), cases[i].message);
        assert_int_equal(access(test_at("refused/model.onnx"), F_OK), -1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bytes_are_those_that_the_checker_took),
    cmocka_unit_test(tensors_are_defined_before_they_are_read_and_weights_are_on_pages),
    cmocka_unit_test(files_of_an_earlier_export_go),
    cmocka_unit_test(a_model_of_24_MiB_takes_5_more),
    cmocka_unit_test(lack_of_memory_is_an_error),
    cmocka_unit_test(two_tables_are_written_where_long_rows_have_another_one),
    cmocka_unit_test(what_cannot_be_exported_is_refused_by_name),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
