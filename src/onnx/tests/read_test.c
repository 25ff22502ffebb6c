// SPDX-License-Identifier: Apache-2.0
// Files that are read: what is damaged or not read is refused by name, what is good is what was
// written, and a file that is written again is the same but for its new weights.
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "onnx/onnx.h"
#include "onnx/read.h"
#include "onnx/tests/proto_model.h"
#include "support/scratch.h"
#include "support/test.h"

static const int64_t four[] = {4}, batch_of_four[] = {TEST_FREE, 4};
static const float numbers[] = {1, 2, 3, 4};

static void ports(struct sw_proto_writer *p)
{
    test_port(p, ONNX_GRAPH_INPUT, "x", ONNX_F32, 2, batch_of_four, "batch");
    test_port(p, ONNX_GRAPH_OUTPUT, "y", ONNX_F32, 2, batch_of_four, "batch");
}

static void weight(struct sw_proto_writer *p)
{
    test_tensor(p, "w", ONNX_F32, 1, four, numbers, sizeof numbers);
}

static void good(struct sw_proto_writer *p, const void *ctx)
{
    (void)ctx;
    ports(p);
    weight(p);
    test_begin_node(p, "/encoder/layer.0/Add", "Add", "x w", "y");
    test_end_node(p);
}

static struct sw_onnx_graph *open_good(const char *name)
{
    struct sw_onnx_graph *g = NULL;
    if (sw_onnx_graph_open(test_at(name), &g) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return g;
}

static void a_file_is_what_was_written(void **state)
{
    (void)state;
    test_write_model(test_at("good.onnx"), 17, good, NULL);
    struct sw_onnx_graph *g = open_good("good.onnx");
    char words[64];
    assert_int_equal(g->opset, 17);
    assert_int_equal(g->n_nodes, 1);
    assert_int_equal(g->n_inputs, 1);
    assert_int_equal(g->n_outputs, 1);
    assert_string_equal(g->nodes[0].op, "Add");
    assert_string_equal(g->nodes[0].scope, "encoder.layer.0");
    const struct sw_onnx_graph_value *x = &g->values[g->inputs[0]];
    assert_string_equal(x->name, "x");
    assert_string_equal(x->sizes[0], "batch");
    assert_string_equal(sw_onnx_value_words(x, words, sizeof words), "f32 [?, 4]");
    const struct sw_onnx_graph_value *w = &g->values[sw_onnx_graph_find(g, "w")];
    assert_int_equal(w->kind, ONNX_VALUE_WEIGHT);
    assert_int_equal(w->data->i_file, 0);
    assert_memory_equal(g->files[0].bytes + w->data->offset, numbers, sizeof numbers);
    assert_int_equal(w->n_uses, 1);
    assert_int_equal(g->uses[w->first_use].i_in, 1);
    assert_int_equal(sw_onnx_graph_find(g, "z"), -1);
    sw_onnx_graph_close(g);
}

/* ---- what exporters write ---- */

static void put_metadata(struct sw_proto_writer *p, const char *key, const char *value)
{
    sw_proto_begin(p, ONNX_NODE_METADATA);
    sw_proto_put_text(p, ONNX_ENTRY_KEY, key);
    sw_proto_put_text(p, ONNX_ENTRY_VALUE, value);
    sw_proto_end(p);
}

static void nodes_with_scopes(struct sw_proto_writer *p, const void *ctx)
{
    static const char *const key = "pkg.torch.onnx.name_scopes";
    (void)ctx;
    ports(p);
    test_begin_node(p, "node_0", "Neg", "x", "a");
    put_metadata(p, "namespace", "['', 'wrong', 'neg']");
    put_metadata(p, key, "['', 'encoder', 'encoder.layer.0', 'neg']");
    test_end_node(p);
    test_begin_node(p, "node_1", "Neg", "a", "b");
    put_metadata(p, key, "['', 'neg_1']");
    test_end_node(p);
    test_begin_node(p, "node_2", "Neg", "b", "c");
    put_metadata(p, key, "[\"it's\", 'neg");
    test_end_node(p);
    test_begin_node(p, "/encoder/layer.1/Neg_2", "Neg", "c", "d");
    test_end_node(p);
    test_begin_node(p, "h.0.attn/Neg", "Neg", "d", "e");
    test_end_node(p);
    test_begin_node(p, "/Neg", "Neg", "e", "y");
    test_end_node(p);
}

static void scopes_are_those_of_modules(void **state)
{
    (void)state;
    static const char *const scopes[] = {"encoder.layer.0", "",         "",
                                         "encoder.layer.1", "h.0.attn", ""};
    test_write_model(test_at("scopes.onnx"), 18, nodes_with_scopes, NULL);
    struct sw_onnx_graph *g = open_good("scopes.onnx");
    assert_int_equal(g->n_nodes, SW_LEN(scopes));
    for (size_t i = 0; i < SW_LEN(scopes); i++) {
        assert_string_equal(g->nodes[i].scope, scopes[i]);
    }
    sw_onnx_graph_close(g);
}

static void a_weight_that_is_an_input(struct sw_proto_writer *p, const void *ctx)
{
    test_port(p, ONNX_GRAPH_INPUT, "w", ONNX_F32, 1, four, NULL);
    good(p, ctx);
}

/* Files of before 2019 list weights as inputs with defaults. */
static void a_weight_is_not_an_input(void **state)
{
    (void)state;
    test_write_model(test_at("old.onnx"), 17, a_weight_that_is_an_input, NULL);
    struct sw_onnx_graph *g = open_good("old.onnx");
    assert_int_equal(g->n_inputs, 1);
    assert_string_equal(g->values[g->inputs[0]].name, "x");
    sw_onnx_graph_close(g);
}

/* ---- refused ---- */

static void cycle(struct sw_proto_writer *p, const void *ctx)
{
    (void)ctx;
    ports(p);
    test_node(p, "Add", "x b", "a");
    test_node(p, "Neg", "a", "b");
    test_node(p, "Neg", "b", "y");
}

static void self_reader(struct sw_proto_writer *p, const void *ctx)
{
    (void)ctx;
    ports(p);
    test_node(p, "Add", "x y", "y");
}

static void missing_input(struct sw_proto_writer *p, const void *ctx)
{
    (void)ctx;
    ports(p);
    test_node(p, "Add", "x nothing", "y");
}

static void twice_made(struct sw_proto_writer *p, const void *ctx)
{
    (void)ctx;
    ports(p);
    test_node(p, "Neg", "x", "y");
    test_node(p, "Abs", "x", "y");
}

static void twice_named(struct sw_proto_writer *p, const void *ctx)
{
    good(p, ctx);
    weight(p);
}

static void twice_an_input(struct sw_proto_writer *p, const void *ctx)
{
    good(p, ctx);
    ports(p);
}

static void no_output(struct sw_proto_writer *p, const void *ctx)
{
    (void)ctx;
    ports(p);
}

static void operator_of(struct sw_proto_writer *p, const void *op)
{
    ports(p);
    test_begin_node(p, "n", op, "x", "y");
    test_end_node(p);
}

static void nested_graph(struct sw_proto_writer *p, const void *ctx)
{
    (void)ctx;
    ports(p);
    test_begin_node(p, "n", "SequenceMap", "x", "y");
    sw_proto_begin(p, ONNX_NODE_ATTRIBUTE);
    sw_proto_put_text(p, ONNX_ATTRIBUTE_NAME, "body");
    sw_proto_put_int(p, ONNX_ATTRIBUTE_KIND, ONNX_ATTR_GRAPH);
    sw_proto_end(p);
    test_end_node(p);
}

static void other_domain(struct sw_proto_writer *p, const void *ctx)
{
    (void)ctx;
    ports(p);
    test_begin_node(p, "n", "SkipLayerNormalization", "x", "y");
    sw_proto_put_text(p, ONNX_NODE_DOMAIN, "com.microsoft");
    test_end_node(p);
}

static void name_of_bytes(struct sw_proto_writer *p, const void *name)
{
    ports(p);
    test_begin_node(p, name, "Neg", "x", "y");
    test_end_node(p);
}

struct shape {
    int64_t type;
    int rank;
    int64_t dims[10];
};

static void tensor_of_shape(struct sw_proto_writer *p, const void *ctx)
{
    const struct shape *shape = ctx;
    test_tensor(p, "w", shape->type, shape->rank, shape->dims, numbers, sizeof numbers);
    good(p, ctx);
}

static void long_attribute(struct sw_proto_writer *p, const void *ctx)
{
    (void)ctx;
    ports(p);
    test_begin_node(p, "n", "Neg", "x", "y");
    sw_proto_put_bytes(p, ONNX_NODE_ATTRIBUTE, 3); /* whose text ends after the node */
    sw_proto_add(p, "\x0a\x7f-", 3);
    test_end_node(p);
}

static void wrong_wire(struct sw_proto_writer *p, const void *ctx)
{
    (void)ctx;
    ports(p);
    sw_proto_put_int(p, ONNX_GRAPH_NODE, 1);
}

struct external {
    int64_t n;
    const char *location, *offset, *length;
    int n_tensors;
};

static void external(struct sw_proto_writer *p, const void *ctx)
{
    const struct external *e = ctx;
    ports(p);
    test_node(p, "Add", "x a", "y");
    test_external(p, "a", e->n, e->location, e->offset, e->length);
    if (e->n_tensors > 1) {
        test_external(p, "b", 4, e->location, "8", "16");
    }
}

static const struct {
    const char *what, *message; /* a part of it, after the path */
    test_graph_fn graph;
    const void *ctx;
    int64_t opset; /* 0 = 17 */
    sw_status status;
} refusals[] = {
    {"opset 99", ": opset 99, wanted 17 to 23", good, NULL, 99, SW_E_UNSUP},
    {"opset 9", ": opset 9, wanted 17 to 23", good, NULL, 9, SW_E_UNSUP},
    {"a cycle",
     ": node 1 (Neg): node 0 (Add) reads its output b before it is made: nodes are not in order, "
     "or in a cycle",
     cycle, NULL, 0, SW_E_FORMAT},
    {"a node that reads itself", ": node 0 (Add): it reads its output y before it is made",
     self_reader, NULL, 0, SW_E_FORMAT},
    {"a missing input",
     ": node 0 (Add): input nothing: wanted an output of a node, an input of the model or an "
     "initializer, found none",
     missing_input, NULL, 0, SW_E_FORMAT},
    {"an output twice", ": node 1 (Abs): output y is also that of another node", twice_made, NULL,
     0, SW_E_FORMAT},
    {"an initializer twice", ": two initializers have the name w", twice_named, NULL, 0,
     SW_E_FORMAT},
    {"an input twice", ": two inputs of the model have the name x", twice_an_input, NULL, 0,
     SW_E_FORMAT},
    {"an output that nobody makes", ": output y of the model: no node makes it", no_output, NULL, 0,
     SW_E_FORMAT},
    {"If", ": node n (If): control flow is not read", operator_of, "If", 0, SW_E_UNSUP},
    {"Loop", ": node n (Loop): control flow is not read", operator_of, "Loop", 0, SW_E_UNSUP},
    {"Scan", ": node n (Scan): control flow is not read", operator_of, "Scan", 0, SW_E_UNSUP},
    {"a nested graph", ": node n (SequenceMap): attribute body is a graph", nested_graph, NULL, 0,
     SW_E_UNSUP},
    {"QuantizeLinear", ": node n (QuantizeLinear): quantised operators are not trained",
     operator_of, "QuantizeLinear", 0, SW_E_UNSUP},
    {"QLinearMatMul", ": node n (QLinearMatMul): quantised operators are not trained", operator_of,
     "QLinearMatMul", 0, SW_E_UNSUP},
    {"MatMulInteger", ": node n (MatMulInteger): quantised operators are not trained", operator_of,
     "MatMulInteger", 0, SW_E_UNSUP},
    {"another domain",
     ": node n (SkipLayerNormalization): its operator is of domain com.microsoft, wanted one of "
     "ONNX's own",
     other_domain, NULL, 0, SW_E_UNSUP},
    {"no operator", ": node n (): it has no operator", operator_of, "", 0, SW_E_FORMAT},
    {"a name of bytes", ": node 0 (): the name of a node is not UTF-8 at its byte 1", name_of_bytes,
     "a\xff", 0, SW_E_FORMAT},
    {"a surrogate", ": node 0 (): the name of a node is not UTF-8 at its byte 0", name_of_bytes,
     "\xed\xa0\x80", 0, SW_E_FORMAT},
    {"an overflow", ": initializer w: the product of its dimensions overflows", tensor_of_shape,
     &(struct shape){ONNX_F32, 3, {INT64_C(1) << 31, INT64_C(1) << 31, 4}}, 0, SW_E_FORMAT},
    {"an overflow beside 0", ": initializer w: the product of its dimensions overflows",
     tensor_of_shape, &(struct shape){ONNX_F32, 3, {0, INT64_C(1) << 40, INT64_C(1) << 40}}, 0,
     SW_E_FORMAT},
    {"a negative dimension", ": initializer w: dimension 0 is -1, wanted 0 or more",
     tensor_of_shape, &(struct shape){ONNX_F32, 1, {-1}}, 0, SW_E_FORMAT},
    {"nine dimensions", ": initializer w: it has 9 dimensions, wanted at most 8", tensor_of_shape,
     &(struct shape){ONNX_F32, 9, {4, 1, 1, 1, 1, 1, 1, 1, 1}}, 0, SW_E_UNSUP},
    {"too few bytes", ": initializer w: raw_data has 16 bytes, wanted 20", tensor_of_shape,
     &(struct shape){ONNX_F32, 1, {5}}, 0, SW_E_FORMAT},
    {"floats of 8 bits", ": initializer w: its type is number 17 of TensorProto.DataType",
     tensor_of_shape, &(struct shape){17, 1, {16}}, 0, SW_E_UNSUP},
    {"texts", ": initializer w: its type is number 8 of TensorProto.DataType", tensor_of_shape,
     &(struct shape){ONNX_TEXTS, 1, {16}}, 0, SW_E_UNSUP},
    {"a length beyond its message",
     ": node n (Neg): byte offset 2 of a message of 3: a field is "
     "longer than what is left",
     long_attribute, NULL, 0, SW_E_FORMAT},
    {"a number for a node", ": node 0 (): a node has wire type 0, wanted bytes", wrong_wire, NULL,
     0, SW_E_FORMAT},
    {"external data above the folder",
     ": initializer a: external data are in \"../../etc/passwd\", wanted the name of a file in the "
     "folder",
     external, &(struct external){4, "../../etc/passwd", "0", "16", 1}, 0, SW_E_FORMAT},
    {"external data above the folder, later",
     ": initializer a: external data are in \"sub/../../x\"", external,
     &(struct external){4, "sub/../../x", "0", "16", 1}, 0, SW_E_FORMAT},
    {"an absolute path", ": initializer a: external data are in \"/etc/passwd\"", external,
     &(struct external){4, "/etc/passwd", "0", "16", 1}, 0, SW_E_FORMAT},
    {"external data on a link", ": initializer a: external data link.data: it is a link", external,
     &(struct external){4, "link.data", "0", "16", 1}, 0, SW_E_FORMAT},
    {"external data below a link", ": initializer a: external data folder/real.data: it is a link",
     external, &(struct external){4, "folder/real.data", "0", "16", 1}, 0, SW_E_FORMAT},
    {"external data past the end",
     ": initializer a: its external data are 16 bytes at offset 20 of real.data, which has 32 "
     "bytes",
     external, &(struct external){4, "real.data", "20", "16", 1}, 0, SW_E_FORMAT},
    {"an offset that overflows",
     ": initializer a: its external data are 16 bytes at offset 18446744073709551615", external,
     &(struct external){4, "real.data", "18446744073709551615", "16", 1}, 0, SW_E_FORMAT},
    {"an offset of 21 digits",
     ": initializer a: external data: offset is \"184467440737095516160\", wanted a number of "
     "bytes",
     external, &(struct external){4, "real.data", "184467440737095516160", "16", 1}, 0,
     SW_E_FORMAT},
    {"a negative offset", ": initializer a: external data: offset is \"-4\"", external,
     &(struct external){4, "real.data", "-4", "16", 1}, 0, SW_E_FORMAT},
    {"a length that is not the tensor's",
     ": initializer a: its external data have 12 bytes, wanted 16", external,
     &(struct external){4, "real.data", "0", "12", 1}, 0, SW_E_FORMAT},
    {"external data that overlap",
     ": initializer b: its external data begin at byte 8, within those of initializer a", external,
     &(struct external){4, "real.data", "0", "16", 2}, 0, SW_E_FORMAT},
    {"external data in the file itself", ": initializer a: its external data are in the file",
     external, &(struct external){4, "case.onnx", "0", "16", 1}, 0, SW_E_FORMAT},
    {"external data that are not there", ": initializer a: external data none.data: No such file",
     external, &(struct external){4, "none.data", "0", "16", 1}, 0, SW_E_IO},
    {"external data in a folder", ": initializer a: external data sub: it is not a regular file",
     external, &(struct external){4, "sub", "0", "16", 1}, 0, SW_E_IO},
};

static void put_floats(const char *name, int n)
{
    float all[16] = {0};
    for (int i = 0; i < n; i++) {
        all[i] = (float)(i + 1);
    }
    test_write_bytes(test_at(name), all, (size_t)n * sizeof *all);
}

static void what_is_not_read_is_refused_by_name(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", test_at("case.onnx"));
    put_floats("real.data", 8);
    assert_int_equal(sw_mkdirs(test_at("sub")), SW_OK);
    assert_int_equal(symlink("real.data", test_at("link.data")), 0);
    assert_int_equal(symlink(".", test_at("folder")), 0);
    for (size_t i = 0; i < SW_LEN(refusals); i++) {
        struct sw_onnx_graph *g = NULL;
        test_write_model(path, refusals[i].opset ? refusals[i].opset : 17, refusals[i].graph,
                         refusals[i].ctx);
        const sw_status st = sw_onnx_graph_open(path, &g);
        if (st != refusals[i].status || !strstr(sw_error_message(), refusals[i].message) ||
            strncmp(sw_error_message(), path, strlen(path)) != 0) {
            fail_msg("%s: status %d, message \"%s\", wanted %d and \"%s\"", refusals[i].what, st,
                     st < 0 ? sw_error_message() : "", refusals[i].status, refusals[i].message);
        }
        assert_null(g);
    }
}

static void models_without_a_graph_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *message;
    } cases[] = {
        {"", 0, ": the file has no graph"},
        {"\x08\x08", 2, ": the file has no graph"},
        {"\x3a\x00", 2, ": the model has no opset"},
        {"\x42\x02\x10\x11\x3a\x00\x3a\x00", 8, ": the model has two graphs"},
        {"\x42\x02\x10\x11\x3a\x00", 6, ": the graph has no output"},
        {"\xca\x01\x03\x0a\x01\x66", 6, ": function f of the model: wanted a graph without"},
        {"\xa2\x01\x00", 3, ": training_info is not read"},
        {"not a model", 11, ": byte offset "},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct sw_onnx_graph *g = NULL;
        test_write_bytes(test_at("small.onnx"), cases[i].bytes, cases[i].len);
        assert_true(sw_onnx_graph_open(test_at("small.onnx"), &g) < 0);
        if (!strstr(sw_error_message(), cases[i].message)) {
            fail_msg("case %zu: \"%s\", wanted \"%s\"", i, sw_error_message(), cases[i].message);
        }
    }
}

static void every_beginning_of_a_file_is_refused(void **state)
{
    (void)state;
    char *bytes;
    size_t len;
    test_write_model(test_at("whole.onnx"), 17, good, NULL);
    assert_int_equal(sw_file_read(test_at("whole.onnx"), &bytes, &len), SW_OK);
    for (size_t n = 0; n < len; n++) {
        struct sw_onnx_graph *g = NULL;
        test_write_bytes(test_at("part.onnx"), bytes, n);
        assert_true(sw_onnx_graph_open(test_at("part.onnx"), &g) < 0);
        assert_non_null(strstr(sw_error_message(), "part.onnx: "));
    }
    sw_free(bytes);
}

/* ---- a large graph ---- */

static void chain(struct sw_proto_writer *p, const void *ctx)
{
    const int n = *(const int *)ctx;
    ports(p);
    for (int i = 0; i < n; i++) {
        char in[16], out[16];
        snprintf(in, sizeof in, i > 0 ? "%d" : "x", i);
        snprintf(out, sizeof out, i + 1 < n ? "%d" : "y", i + 1);
        test_node(p, i % 2 ? "Neg" : "Identity", in, out);
    }
}

/* A pass that takes the square of their number does not end. */
static void a_million_nodes_are_read_and_folded(void **state)
{
    (void)state;
#ifdef TEST_SANITIZED
    const int n = 100000;
#else
    const int n = 1000000;
#endif
    struct sw_onnx_graph *folded = NULL;
    const struct sw_onnx_given_size size = {"batch", 2};
    const struct sw_onnx_fold_options options = {.sizes = &size, .n_sizes = 1};
    test_write_model(test_at("chain.onnx"), 17, chain, &n);
    struct sw_onnx_graph *g = open_good("chain.onnx");
    assert_int_equal(g->n_nodes, n);
    assert_int_equal(sw_onnx_graph_fold(g, &options, &folded), SW_OK);
    assert_int_equal(folded->n_nodes, n / 2);
    sw_onnx_graph_close(folded);
    sw_onnx_graph_close(g);
    assert_int_equal(unlink(test_at("chain.onnx")), 0);
}

/* ---- written again ---- */

static void put_tensor(struct sw_proto_writer *p, const char *name, int64_t type, int field)
{
    sw_proto_begin(p, ONNX_GRAPH_INITIALIZER);
    sw_proto_put_int(p, ONNX_TENSOR_DIMS, 4);
    sw_proto_put_int(p, ONNX_TENSOR_TYPE, type);
    if (field == ONNX_TENSOR_FLOATS) {
        sw_proto_put_bytes(p, field, sizeof numbers);
        sw_proto_add(p, numbers, sizeof numbers);
    } else {
        for (int i = 0; i < 4; i++) {
            sw_proto_put_int(p, field, 0x3c00 + 0x100 * i); /* halves from 1 on */
        }
    }
    sw_proto_put_text(p, ONNX_TENSOR_NAME, name);
    sw_proto_end(p);
}

static void stored_in_four_ways(struct sw_proto_writer *p, const void *ctx)
{
    static const uint16_t halves[] = {0x3c00, 0x4000, 0x4200, 0x4400};
    (void)ctx;
    ports(p);
    test_node(p, "Add", "x raw", "a");
    test_node(p, "Add", "a packed", "b");
    test_node(p, "Add", "b outside", "y");
    test_tensor(p, "raw", ONNX_F32, 1, four, numbers, sizeof numbers);
    put_tensor(p, "packed", ONNX_F32, ONNX_TENSOR_FLOATS);
    test_external(p, "outside", 4, "sub/model.data", "4", "16");
    put_tensor(p, "varied", ONNX_F16, ONNX_TENSOR_INT32S);
    test_tensor(p, "half", ONNX_F16, 1, four, halves, sizeof halves);
    sw_proto_put_text(p, 10, "a text that is not read"); /* doc_string */
}

static bool has(void *ctx, const char *name)
{
    return strstr(ctx, name) != NULL;
}

static sw_status fetch(void *ctx, const char *name, int64_t first, int64_t n, float *out)
{
    (void)ctx;
    (void)name;
    for (int64_t i = 0; i < n; i++) {
        out[i] = (float)(first + i + 1) * -0.5F;
    }
    return SW_OK;
}

static void same_file(const char *a, const char *b)
{
    char *x, *y, from[512];
    size_t n, m;
    snprintf(from, sizeof from, "%s", test_at(a));
    assert_int_equal(sw_file_read(from, &x, &n), SW_OK);
    assert_int_equal(sw_file_read(test_at(b), &y, &m), SW_OK);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    sw_free(x);
    sw_free(y);
}

static const struct sw_onnx_data *data_of(const struct sw_onnx_graph *g, const char *name)
{
    const int32_t i = sw_onnx_graph_find(g, name);
    assert_true(i >= 0 && g->values[i].data);
    return g->values[i].data;
}

static void a_file_is_written_again_with_new_weights(void **state)
{
    (void)state;
    static const char *const names[] = {"raw", "packed", "outside", "half", "varied"};
    char all[] = "raw packed outside half";
    struct sw_onnx_new_values values = {.has = has, .fetch = fetch, .ctx = all};
    float old[4], new[4];
    assert_int_equal(sw_mkdirs(test_at("sub")), SW_OK);
    assert_int_equal(sw_mkdirs(test_at("again")), SW_OK);
    put_floats("sub/model.data", 7);
    test_write_model(test_at("four.onnx"), 17, stored_in_four_ways, NULL);
    struct sw_onnx_graph *g = open_good("four.onnx");
    for (size_t i = 0; i < SW_LEN(names); i++) {
        sw_onnx_data_floats(data_of(g, names[i]), 0, 4, old);
        assert_true(old[0] == (i == 2 ? 2.0F : 1.0F));
    }
    assert_int_equal(sw_onnx_rewrite(g, test_at("again"), NULL), SW_OK);
    same_file("four.onnx", "again/four.onnx");
    same_file("sub/model.data", "again/sub/model.data");
    assert_int_equal(sw_onnx_rewrite(g, test_at("again"), &values), SW_OK);
    struct sw_onnx_graph *h = open_good("again/four.onnx");
    for (size_t i = 0; i < SW_LEN(names); i++) {
        sw_onnx_data_floats(data_of(g, names[i]), 0, 4, old);
        sw_onnx_data_floats(data_of(h, names[i]), 0, 4, new);
        for (int k = 0; k < 4; k++) {
            assert_true(new[k] == (i == 4 ? old[k] : (float)(k + 1) * -0.5F));
        }
    }
    /* All other bytes: the old weights in their places give the old file. */
    size_t changed = 0;
    for (size_t i = 0; i < g->files[0].len; i++) {
        changed += g->files[0].bytes[i] != h->files[0].bytes[i];
    }
    assert_true(changed > 0 && changed <= 16 + 16 + 8);
    assert_memory_equal(g->files[1].bytes, h->files[1].bytes, 4);
    assert_memory_equal(g->files[1].bytes + 20, h->files[1].bytes + 20, 8);
    sw_onnx_graph_close(h);
    values.ctx = "varied";
    assert_int_equal(sw_onnx_rewrite(g, test_at("again"), &values), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "initializer varied cannot get new elements"));
    sw_onnx_graph_close(g);
}

/* ---- memory ---- */

static void every_failed_allocation_is_a_status(void **state)
{
    (void)state;
    const struct sw_onnx_given_size size = {"batch", 2};
    const struct sw_onnx_fold_options options = {.sizes = &size, .n_sizes = 1};
    struct sw_alloc_stats before, after;
    test_write_model(test_at("fails.onnx"), 17, good, NULL);
    sw_alloc_get_stats(&before);
    sw_status st = SW_E_NOMEM;
    for (int64_t n = 1; st < 0; n++) {
        struct sw_onnx_graph *g = NULL, *folded = NULL;
        sw_alloc_fail_nth(n);
        st = sw_onnx_graph_open(test_at("fails.onnx"), &g);
        if (st >= 0) {
            st = sw_onnx_graph_fold(g, &options, &folded);
        }
        sw_alloc_fail_nth(0);
        assert_true(st == SW_E_NOMEM || st == SW_OK);
        sw_onnx_graph_close(folded);
        sw_onnx_graph_close(g);
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_file_is_what_was_written),
    cmocka_unit_test(scopes_are_those_of_modules),
    cmocka_unit_test(a_weight_is_not_an_input),
    cmocka_unit_test(what_is_not_read_is_refused_by_name),
    cmocka_unit_test(models_without_a_graph_are_refused),
    cmocka_unit_test(every_beginning_of_a_file_is_refused),
    cmocka_unit_test(a_million_nodes_are_read_and_folded),
    cmocka_unit_test(a_file_is_written_again_with_new_weights),
    cmocka_unit_test(every_failed_allocation_is_a_status),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
