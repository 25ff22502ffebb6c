// SPDX-License-Identifier: Apache-2.0
// Folded graphs: operators on constants give what ONNX's Operators.md says. Weights stay, and so do
// nodes that depend on the model's inputs. Exports of ours have static shapes everywhere.
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "onnx/read.h"
#include "onnx/tests/models.h"
#include "onnx/tests/proto_model.h"
#include "support/scratch.h"
#include "support/test.h"

/* ---- operators on constants ---- */

/* A tensor of int64, as text: "2 3: 1 2 3 4 5 6" is [[1, 2, 3], [4, 5, 6]], ": 7" a scalar. After f
 * or b it is of f32 or bool. */
struct operand {
    int64_t type;
    int rank, n;
    int64_t dims[8];
    double elems[64];
};

static void parse(const char *text, struct operand *out)
{
    memset(out, 0, sizeof *out);
    out->type = *text == 'f' ? ONNX_F32 : *text == 'b' ? ONNX_BOOL : ONNX_I64;
    text += out->type != ONNX_I64;
    bool in_shape = true;
    while (*text) {
        char *end;
        if (*text == ' ' || *text == ':') {
            in_shape = in_shape && *text != ':';
            text++;
            continue;
        }
        const double x = strtod(text, &end);
        assert_true(end > text);
        if (in_shape) {
            out->dims[out->rank++] = (int64_t)x;
        } else {
            out->elems[out->n++] = x;
        }
        text = end;
    }
}

struct op_case {
    const char *op, *attrs; /* "axis 1 perm 1,0" */
    const char *in[5];      /* NULL = no more, "" = absent */
    const char *out;        /* of the first output */
};

static void put_attrs(struct sw_proto_writer *p, const char *text)
{
    while (*text) {
        char name[32];
        int64_t ints[8];
        int n = 0, len;
        assert_int_equal(sscanf(text, "%31s %n", name, &len), 1);
        text += len;
        do {
            char *end;
            ints[n++] = strtoll(text, &end, 10);
            text = end;
        } while (*text++ == ',');
        text -= text[-1] == '\0';
        if (n == 1 && strcmp(name, "axes") != 0) {
            test_node_int(p, name, ints[0]);
        } else {
            test_node_ints(p, name, ints, n);
        }
    }
}

static void put_operand(struct sw_proto_writer *p, const char *name, const struct operand *x)
{
    unsigned char bytes[8 * 64];
    size_t len = 0;
    for (int i = 0; i < x->n; i++) {
        const int64_t whole = (int64_t)x->elems[i];
        const float number = (float)x->elems[i];
        const size_t size = x->type == ONNX_I64 ? 8 : x->type == ONNX_F32 ? 4 : 1;
        memcpy(bytes + len, x->type == ONNX_F32 ? (const void *)&number : (const void *)&whole,
               size);
        len += size;
    }
    test_tensor(p, name, x->type, x->rank, x->dims, bytes, len);
}

static void graph_of_case(struct sw_proto_writer *p, const void *ctx)
{
    const struct op_case *c = ctx;
    char names[64] = "";
    for (int i = 0; i < 5 && c->in[i]; i++) {
        char name[4] = {(char)('a' + i), '\0'};
        struct operand x;
        if (*c->in[i]) {
            parse(c->in[i], &x);
            put_operand(p, name, &x);
        }
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? " " : "",
                 *c->in[i] ? name : "-");
    }
    test_begin_node(p, "n", c->op, names, "y");
    put_attrs(p, c->attrs);
    test_end_node(p);
    test_port(p, ONNX_GRAPH_OUTPUT, "y", ONNX_I64, 0, NULL, NULL);
}

/* ONNX Runtime 1.32 gives the same results. */
static const struct op_case op_cases[] = {
    {"Shape", "", {"2 3: 1 2 3 4 5 6"}, "2: 2 3"},
    {"Shape", "start -1", {"2 3: 1 2 3 4 5 6"}, "1: 3"},
    {"Size", "", {"2 3: 1 2 3 4 5 6"}, ": 6"},
    {"Gather", "axis 0", {"3: 5 6 7", ": -1"}, ": 7"},
    {"Gather", "axis 1", {"2 3: 1 2 3 4 5 6", "2: 2 0"}, "2 2: 3 1 6 4"},
    {"GatherElements", "axis 1", {"2 2: 1 2 3 4", "2 2: 0 0 1 0"}, "2 2: 1 1 4 3"},
    {"GatherND", "", {"2 2: 1 2 3 4", "2 2: 0 0 1 1"}, "2: 1 4"},
    {"GatherND", "batch_dims 1", {"2 2: 1 2 3 4", "2 1: 1 0"}, "2: 2 3"},
    {"ScatterND", "", {"4: 1 2 3 4", "2 1: 3 1", "2: 9 8"}, "4: 1 8 3 9"},
    {"ScatterElements", "axis 1", {"1 3: 1 2 3", "1 2: 2 0", "1 2: 7 8"}, "1 3: 8 2 7"},
    {"Concat", "axis 0", {"1: 1", "2: 2 3"}, "3: 1 2 3"},
    {"Concat", "axis -1", {"2 1: 1 2", "2 1: 3 4"}, "2 2: 1 3 2 4"},
    {"Range", "", {": 1", ": 8", ": 3"}, "3: 1 4 7"},
    {"Range", "", {": 3", ": 0", ": -1"}, "3: 3 2 1"},
    {"Expand", "", {"2 1: 1 2", "3: 2 1 3"}, "2 2 3: 1 1 1 2 2 2 1 1 1 2 2 2"},
    {"Where", "", {"b2: 1 0", "2 1: 1 2", ": 9"}, "2 2: 1 9 2 9"},
    {"Slice", "", {"5: 1 2 3 4 5", "1: 1", "1: 4611686018427387904"}, "4: 2 3 4 5"},
    {"Slice",
     "",
     {"5: 1 2 3 4 5", "1: -1", "1: -4611686018427387904", "1: 0", "1: -2"},
     "3: 5 3 1"},
    {"Slice", "", {"2 3: 1 2 3 4 5 6", "1: 1", "1: 3", "1: 1"}, "2 2: 2 3 5 6"},
    {"Cast", "to 7", {"f3: 1.9 -1.9 0.5"}, "3: 1 -1 0"},
    {"Cast", "to 9", {"3: 0 2 -1"}, "b3: 0 1 1"},
    {"Cast", "to 1", {"2: 3 -4"}, "f2: 3 -4"},
    {"ConstantOfShape", "", {"2: 2 2"}, "f2 2: 0 0 0 0"},
    {"Unsqueeze", "", {"2: 1 2", "2: 0 -1"}, "1 2 1: 1 2"},
    {"Squeeze", "", {"1 2 1: 1 2", "1: 0"}, "2 1: 1 2"},
    {"Squeeze", "", {"1 2 1: 1 2"}, "2: 1 2"},
    {"Reshape", "", {"2 3: 1 2 3 4 5 6", "2: -1 2"}, "3 2: 1 2 3 4 5 6"},
    {"Reshape", "", {"2 3: 1 2 3 4 5 6", "3: 0 1 -1"}, "2 1 3: 1 2 3 4 5 6"},
    {"Flatten", "axis 2", {"1 2 2: 1 2 3 4"}, "2 2: 1 2 3 4"},
    {"Transpose", "perm 1,0", {"2 3: 1 2 3 4 5 6"}, "3 2: 1 4 2 5 3 6"},
    {"Tile", "", {"1 2: 1 2", "2: 2 2"}, "2 4: 1 2 1 2 1 2 1 2"},
    {"Split", "axis 0", {"3: 1 2 3", "1: 3"}, "3: 1 2 3"},
    {"Pad", "", {"2: 1 2", "2: 1 2", ": 9"}, "5: 9 1 2 9 9"},
    {"Trilu", "", {"3 3: 1 1 1 1 1 1 1 1 1", ": 1"}, "3 3: 0 1 1 0 0 1 0 0 0"},
    {"Trilu", "upper 0", {"2 2: 1 2 3 4"}, "2 2: 1 0 3 4"},
    {"CumSum", "", {"2 2: 1 2 3 4", ": 1"}, "2 2: 1 3 3 7"},
    {"CumSum", "exclusive 1 reverse 1", {"3: 1 2 3", ": 0"}, "3: 5 3 0"},
    {"ReduceSum", "keepdims 0", {"2 2: 1 2 3 4", "1: 0"}, "2: 4 6"},
    {"ReduceProd", "", {"2 2: 1 2 3 4"}, "1 1: 24"},
    {"ReduceMax", "axes 1 keepdims 0", {"2 2: 1 2 4 3"}, "2: 2 4"},
    {"ReduceMean", "keepdims 0", {"f4: 1 2 3 4"}, "f: 2.5"},
    {"ArgMax", "axis 1 keepdims 0", {"2 2: 1 2 4 3"}, "2: 1 0"},
    {"NonZero", "", {"2 2: 0 1 2 0"}, "2 2: 0 1 1 0"},
    {"OneHot", "axis -1", {"2: 1 0", ": 2", "2: 7 9"}, "2 2: 7 9 9 7"},
    {"EyeLike", "k 1 dtype 7", {"2 3: 0 0 0 0 0 0"}, "2 3: 0 1 0 0 0 1"},
    {"Add", "", {"2 1: 1 2", "2: 10 20"}, "2 2: 11 21 12 22"},
    {"Sub", "", {": 1", "2: 2 3"}, "2: -1 -2"},
    {"Mul", "", {"2: 3 4", "2: 5 -6"}, "2: 15 -24"},
    {"Div", "", {"3: 7 -7 6", ": 2"}, "3: 3 -3 3"},
    {"Mod", "", {"3: 7 -7 6", ": 4"}, "3: 3 1 2"},
    {"Mod", "fmod 1", {"2: 7 -7", ": 4"}, "2: 3 -3"},
    {"Pow", "", {"f2: 2 9", "f: 0.5"}, "f2: 1.41421356 3"},
    {"Neg", "", {"2: 3 -4"}, "2: -3 4"},
    {"Abs", "", {"2: 3 -4"}, "2: 3 4"},
    {"Sqrt", "", {"f2: 16 2"}, "f2: 4 1.41421356"},
    {"Floor", "", {"f2: 1.5 -1.5"}, "f2: 1 -2"},
    {"Ceil", "", {"f2: 1.5 -1.5"}, "f2: 2 -1"},
    {"Round", "", {"f2: 2.5 -1.5"}, "f2: 2 -2"},
    {"Reciprocal", "", {"f2: 4 -2"}, "f2: 0.25 -0.5"},
    {"Sign", "", {"3: 4 0 -2"}, "3: 1 0 -1"},
    {"Cos", "", {"f2: 0 1"}, "f2: 1 0.54030231"},
    {"Sin", "", {"f2: 0 1"}, "f2: 0 0.84147098"},
    {"Exp", "", {"f2: 0 1"}, "f2: 1 2.71828183"},
    {"Log", "", {"f2: 1 2"}, "f2: 0 0.69314718"},
    {"Min", "", {"3: 1 5 3", "3: 2 4 3", ": 3"}, "3: 1 3 3"},
    {"Max", "", {"2: 1 5"}, "2: 1 5"},
    {"Clip", "", {"3: 1 5 9", ": 2", ": 6"}, "3: 2 5 6"},
    {"Equal", "", {"2: 1 2", ": 2"}, "b2: 0 1"},
    {"Less", "", {"2: 1 2", ": 2"}, "b2: 1 0"},
    {"LessOrEqual", "", {"2: 1 3", ": 2"}, "b2: 1 0"},
    {"Greater", "", {"2: 1 3", ": 2"}, "b2: 0 1"},
    {"GreaterOrEqual", "", {"2: 1 2", ": 2"}, "b2: 0 1"},
    {"And", "", {"b2: 1 0", "b: 1"}, "b2: 1 0"},
    {"Or", "", {"b2: 1 0", "b: 0"}, "b2: 1 0"},
    {"Xor", "", {"b2: 1 0", "b: 1"}, "b2: 0 1"},
    {"Not", "", {"b2: 1 0"}, "b2: 0 1"},
    {"MatMul", "", {"f2 1: 1 2", "f1 2: 3 4"}, "f2 2: 3 4 6 8"},
    {"Identity", "", {"2: 1 2"}, "2: 1 2"},
};

static struct sw_onnx_graph *fold(const struct sw_onnx_graph *g,
                                  const struct sw_onnx_fold_options *options)
{
    struct sw_onnx_graph *folded = NULL;
    if (sw_onnx_graph_fold(g, options, &folded) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return folded;
}

static struct sw_onnx_graph *open_good(const char *path)
{
    struct sw_onnx_graph *g = NULL;
    if (sw_onnx_graph_open(path, &g) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return g;
}

/* Operands of floats are weights, unless they are inputs with given elements. */
static void graph_of_inputs(struct sw_proto_writer *p, const void *ctx)
{
    const struct op_case *c = ctx;
    char names[64] = "";
    for (int i = 0; i < 5 && c->in[i]; i++) {
        char name[4] = {(char)('a' + i), '\0'};
        struct operand x;
        if (*c->in[i]) {
            parse(c->in[i], &x);
            test_port(p, ONNX_GRAPH_INPUT, name, x.type, x.rank, x.dims, NULL);
        }
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? " " : "",
                 *c->in[i] ? name : "-");
    }
    test_begin_node(p, "n", c->op, names, "y");
    put_attrs(p, c->attrs);
    test_end_node(p);
    test_port(p, ONNX_GRAPH_OUTPUT, "y", ONNX_I64, 0, NULL, NULL);
}

static void check_result(const struct op_case *c, const struct sw_onnx_graph *folded)
{
    const struct sw_onnx_graph_value *y = &folded->values[folded->outputs[0]];
    struct operand want;
    char words[128];
    parse(c->out, &want);
    if (y->kind != ONNX_VALUE_CONSTANT || (int64_t)y->type != want.type || y->rank != want.rank ||
        memcmp(y->dims, want.dims, (size_t)want.rank * sizeof *want.dims) != 0) {
        fail_msg("%s (%s): %s of kind %d, wanted %s", c->op, c->attrs,
                 sw_onnx_value_words(y, words, sizeof words), (int)y->kind, c->out);
    }
    for (int i = 0; i < want.n; i++) {
        const double found = sw_onnx_data_number(y->data, i);
        if (!(fabs(found - want.elems[i]) <= 1e-7 * fabs(want.elems[i]))) {
            fail_msg("%s (%s): element %d is %.9g, wanted %.9g", c->op, c->attrs, i, found,
                     want.elems[i]);
        }
    }
}

static void operators_compute_what_is_documented(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(op_cases); i++) {
        const struct op_case *c = &op_cases[i];
        struct operand x[5];
        struct sw_onnx_given_input given[5];
        struct sw_onnx_fold_options options = {.inputs = given};
        for (int k = 0; k < 5 && c->in[k]; k++) {
            static const char *const names[] = {"a", "b", "c", "d", "e"};
            parse(c->in[k], &x[k]);
            given[options.n_inputs++] =
                (struct sw_onnx_given_input){.name = names[k], .rank = -1, .elems = x[k].elems};
        }
        test_write_model(test_at("case.onnx"), 17, graph_of_inputs, c);
        struct sw_onnx_graph *g = open_good(test_at("case.onnx"));
        struct sw_onnx_graph *folded = fold(g, &options);
        check_result(c, folded);
        sw_onnx_graph_close(folded);
        sw_onnx_graph_close(g);
    }
}

/* Initializers of integers and bools are constants like any other. */
static void initializers_of_integers_fold(void **state)
{
    (void)state;
    const struct sw_onnx_fold_options options = {0};
    for (size_t i = 0; i < SW_LEN(op_cases); i++) {
        const struct op_case *c = &op_cases[i];
        if (*c->in[0] == 'f') {
            continue;
        }
        test_write_model(test_at("case.onnx"), 17, graph_of_case, c);
        struct sw_onnx_graph *g = open_good(test_at("case.onnx"));
        struct sw_onnx_graph *folded = fold(g, &options);
        check_result(c, folded);
        assert_int_equal(folded->n_nodes, 0);
        sw_onnx_graph_close(folded);
        sw_onnx_graph_close(g);
    }
}

/* ---- what does not fit ---- */

static const struct op_case misfits[] = {
    {"Add", "", {"2: 1 2", "3: 1 2 3"}, "do not broadcast"},
    {"Add", "", {"2: 1 2", "f2: 1 2"}, "input 1 is f32 [2], wanted the type of input 0, i64 [2]"},
    {"Reshape", "", {"2: 1 2", "1: 3"}, "input 0 is i64 [2], which cannot become i64 [3]"},
    {"Reshape", "", {"2: 1 2", "2: -1 0"}, "wanted as many dimensions"},
    {"Gather", "axis 1", {"2: 1 2", ": 0"}, "axis 1 of 1 dimensions"},
    {"Gather", "axis 0", {"2: 1 2", ": 5"}, "index 5 of 2"},
    {"GatherND", "", {"2: 1 2", "1 1: -3"}, "index -3 of 2"},
    {"Concat", "axis 0", {"2: 1 2", "1 1: 1"}, "wanted one that fits input 0, i64 [2], along axis"},
    {"MatMul", "", {"f2 1: 1 2", "f2 1: 1 2"}, "input 1 is f32 [2, 1], wanted 1 rows"},
    {"Div", "", {"2: 1 2", "2: 0 1"}, "it divides 1 by 0"},
    {"Range", "", {": 0", ": 8", ": 0"}, "from 0 to 8 in steps of 0"},
    {"Transpose", "perm 0,0", {"1 1: 1"}, "attribute perm has a dimension twice"},
    {"Expand", "", {"2: 1 2", "1: 3"}, "which does not expand to 3 in dimension 0"},
    {"ConstantOfShape", "", {"2: 4611686018427387904 4"}, "the product of dimensions overflows"},
    {"ConstantOfShape", "", {"1: -1"}, "dimension 0 is -1"},
    {"Unsqueeze", "", {"1: 1", "2: 0 0"}, "an axis is there twice"},
    {"Squeeze", "", {"2: 1 2", "1: 0"}, "wanted 1 in the dimensions that go"},
    {"Slice", "", {"2: 1 2", "1: 0", "2: 1 1"}, "are not of one length"},
    {"Slice", "", {"2: 1 2", "1: 0", "1: 1", "1: 0", "1: 0"}, "step 0 along axis 0"},
    {"Split", "axis 0", {"3: 1 2 3", "1: 2"}, "its parts have 2 elements, wanted 3"},
    {"Where", "", {"2: 1 0", ": 1", ": 2"}, "input 0 is i64 [2], wanted bool"},
    {"Neg", "", {"2: 1 2", "2: 1 2"}, "it has 2 inputs and 1 outputs, wanted 1 to 1 inputs"},
    {"Bernoulli", "", {"2: 1 2"}, "this operator is not known: it has no rule for its shape"},
    {"Range", "", {": 0", ": 1000000000", ": 1"}, "constants take more than"},
};

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    const struct sw_onnx_fold_options options = {0};
    for (size_t i = 0; i < SW_LEN(misfits); i++) {
        const struct op_case *c = &misfits[i];
        char prefix[64];
        struct sw_onnx_graph *folded = NULL;
        test_write_model(test_at("case.onnx"), 17, graph_of_case, c);
        struct sw_onnx_graph *g = open_good(test_at("case.onnx"));
        assert_true(sw_onnx_graph_fold(g, &options, &folded) < 0);
        snprintf(prefix, sizeof prefix, ": node n (%s): ", c->op);
        if (!strstr(sw_error_message(), prefix) || !strstr(sw_error_message(), c->out)) {
            fail_msg("%s: \"%s\", wanted \"%s\"", c->op, sw_error_message(), c->out);
        }
        sw_onnx_graph_close(g);
    }
}

/* ---- graphs ---- */

static const int64_t free_ids[] = {TEST_FREE, 4};
static const float angles[] = {1.0F, 0.5F};

static void graph_of_parts(struct sw_proto_writer *p, const void *ctx)
{
    static const int64_t two[] = {2}, table[] = {3, 2}, one[] = {1};
    static const float rows[] = {1, 2, 3, 4, 5, 6};
    static const int64_t back[] = {-1};
    (void)ctx;
    test_port(p, ONNX_GRAPH_INPUT, "ids", ONNX_I64, 2, free_ids, "batch");
    test_port(p, ONNX_GRAPH_INPUT, "unused", ONNX_I64, 2, free_ids, "batch");
    test_tensor(p, "table", ONNX_F32, 2, table, rows, sizeof rows);
    test_tensor(p, "inverse", ONNX_F32, 1, two, angles, sizeof angles);
    test_tensor(p, "bias", ONNX_F32, 1, one, rows, sizeof *rows);
    test_tensor(p, "number", ONNX_F32, 0, NULL, rows, sizeof *rows);
    test_tensor(p, "minus", ONNX_I64, 1, one, back, sizeof back);
    test_node(p, "Gather", "table ids", "found");   /* stays */
    test_node(p, "Identity", "found", "same");      /* found */
    test_node(p, "Shape", "same", "shape");         /* [batch, 4, 2] */
    test_node(p, "Reshape", "same minus", "flat");  /* stays, with a constant */
    test_node(p, "Reshape", "flat shape", "again"); /* stays */
    test_node(p, "Cos", "inverse", "cosine");       /* a table: folds */
    test_node(p, "Mul", "again cosine", "y");       /* stays */
    test_node(p, "Sin", "again", "dead");           /* goes */
    test_node(p, "Exp", "again", "measured");       /* goes: only its shape is read */
    test_node(p, "Shape", "measured", "of_exp");
    test_begin_node(p, "", "Transpose", "table", "turned"); /* of a weight: stays */
    test_end_node(p);
    test_node(p, "Neg", "bias", "less");     /* a weight of one element: stays */
    test_node(p, "Neg", "number", "minus1"); /* folds */
    test_port(p, ONNX_GRAPH_OUTPUT, "of_exp", ONNX_I64, 1, (const int64_t[]){3}, NULL);
    test_port(p, ONNX_GRAPH_OUTPUT, "less", ONNX_F32, 1, one, NULL);
    test_port(p, ONNX_GRAPH_OUTPUT, "minus1", ONNX_F32, 0, NULL, NULL);
    test_port(p, ONNX_GRAPH_OUTPUT, "y", ONNX_F32, 3, (const int64_t[]){TEST_FREE, 4, 2}, "batch");
    test_port(p, ONNX_GRAPH_OUTPUT, "turned", ONNX_F32, 2, (const int64_t[]){2, 3}, NULL);
    test_port(p, ONNX_GRAPH_OUTPUT, "shape", ONNX_I64, 1, (const int64_t[]){3}, NULL);
}

static const struct sw_onnx_graph_value *value(const struct sw_onnx_graph *g, const char *name)
{
    const int32_t i = sw_onnx_graph_find(g, name);
    assert_true(i >= 0);
    return &g->values[i];
}

static void what_depends_on_inputs_and_weights_stays(void **state)
{
    (void)state;
    const struct sw_onnx_given_size size = {"batch", 5};
    const struct sw_onnx_fold_options options = {.sizes = &size, .n_sizes = 1};
    const char *const left[] = {"Gather", "Reshape", "Reshape", "Mul", "Transpose", "Neg"};
    test_write_model(test_at("parts.onnx"), 17, graph_of_parts, NULL);
    struct sw_onnx_graph *g = open_good(test_at("parts.onnx"));
    struct sw_onnx_graph *folded = fold(g, &options);
    assert_int_equal(folded->n_nodes, SW_LEN(left));
    for (size_t i = 0; i < SW_LEN(left); i++) {
        assert_string_equal(folded->nodes[i].op, left[i]);
        assert_true(i == 0 || folded->nodes[i].index > folded->nodes[i - 1].index);
    }
    assert_int_equal(value(folded, "same")->kind, ONNX_VALUE_GONE);
    assert_int_equal(value(folded, "dead")->kind, ONNX_VALUE_GONE);
    assert_int_equal(value(folded, "measured")->kind, ONNX_VALUE_GONE);
    assert_int_equal(value(folded, "table")->kind, ONNX_VALUE_WEIGHT);
    assert_int_equal(value(folded, "inverse")->kind, ONNX_VALUE_GONE);
    assert_int_equal(value(folded, "unused")->kind, ONNX_VALUE_INPUT);
    assert_int_equal(value(folded, "unused")->n_uses, 0);
    const struct sw_onnx_graph_value *cosine = value(folded, "cosine"), *y = value(folded, "y");
    assert_int_equal(cosine->kind, ONNX_VALUE_CONSTANT);
    assert_true(fabs(sw_onnx_data_number(cosine->data, 1) - cos(0.5)) < 1e-7);
    assert_int_equal(y->dims[0], 5);
    assert_string_equal(folded->nodes[y->producer].op, "Mul");
    assert_int_equal(folded->nodes[1].in[0], folded->nodes[0].out[0]);
    const struct sw_onnx_graph_value *shape = &folded->values[folded->outputs[5]];
    assert_true(sw_onnx_data_number(value(folded, "minus1")->data, 0) == -1);
    assert_int_equal(sw_onnx_data_int(shape->data, 0), 5);
    for (int32_t i = 0; i < folded->n_values; i++) {
        const struct sw_onnx_graph_value *v = &folded->values[i];
        for (int32_t k = 0; k < v->n_uses; k++) {
            const struct sw_onnx_graph_use *use = &folded->uses[v->first_use + k];
            assert_int_equal(folded->nodes[use->node].in[use->i_in], i);
        }
    }
    sw_onnx_graph_close(folded);
    sw_onnx_graph_close(g);
}

static void inputs_with_given_elements_fold(void **state)
{
    (void)state;
    double ids[8];
    for (int i = 0; i < 8; i++) {
        ids[i] = i % 3;
    }
    const struct sw_onnx_given_input given = {
        .name = "ids", .rank = 2, .dims = {2, 4}, .elems = ids};
    struct sw_onnx_fold_options options = {.inputs = &given, .n_inputs = 1};
    struct sw_onnx_graph *g = open_good(test_at("parts.onnx"));
    const int32_t keep = sw_onnx_graph_find(g, "shape");
    options.keep = &keep;
    options.n_keep = 1;
    struct sw_onnx_graph *folded = fold(g, &options);
    assert_string_equal(folded->nodes[0].op, "Gather"); /* of a weight */
    const struct sw_onnx_graph_value *x = value(folded, "ids");
    assert_int_equal(x->kind, ONNX_VALUE_CONSTANT);
    assert_int_equal(sw_onnx_data_int(x->data, 7), 1);
    assert_int_equal(folded->n_inputs, 1); /* unused */
    assert_int_equal(sw_onnx_data_int(value(folded, "shape")->data, 0), 2);
    sw_onnx_graph_close(folded);
    sw_onnx_graph_close(g);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct {
        struct sw_onnx_given_size size;
        struct sw_onnx_given_input input;
        const char *message;
    } cases[] = {
        {{"other", 1},
         {.name = "other", .rank = -1},
         ": input ids of the model: dimension 0, size \"batch\", is not given"},
        {{"batch", 0}, {.name = "other", .rank = -1}, ": size batch is 0, wanted 1 or more"},
        {{"batch", 2}, {.name = "ids", .rank = 2, .dims = {3, 4}}, ": size batch is 2 and 3"},
        {{"batch", 2},
         {.name = "ids", .rank = 3, .dims = {2, 4, 1}},
         ": input ids of the model has 2 dimensions, wanted 3"},
        {{"batch", 2},
         {.name = "ids", .rank = 2, .dims = {2, 5}},
         ": input ids of the model is i64 [?, 4]: its dimension 1 is fixed, wanted 5"},
    };
    struct sw_onnx_graph *g = open_good(test_at("parts.onnx")), *folded = NULL;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        const struct sw_onnx_fold_options options = {
            .sizes = &cases[i].size, .inputs = &cases[i].input, .n_sizes = 1, .n_inputs = 1};
        assert_int_equal(sw_onnx_graph_fold(g, &options, &folded), SW_E_CONFIG);
        if (!strstr(sw_error_message(), cases[i].message)) {
            fail_msg("\"%s\", wanted \"%s\"", sw_error_message(), cases[i].message);
        }
    }
    sw_onnx_graph_close(g);
}

/* A mask that is the same for all rows of a batch takes no memory for each. */
static void graph_of_mask(struct sw_proto_writer *p, const void *ctx)
{
    static const int64_t shape[] = {1 << 20, 1, 64, 64}, four[] = {4}, one[] = {1};
    static const int64_t value = 64, zero = 0;
    (void)ctx;
    test_tensor(p, "shape", ONNX_I64, 1, four, shape, sizeof shape);
    test_tensor(p, "n", ONNX_I64, 0, NULL, &value, sizeof value);
    test_tensor(p, "zero", ONNX_I64, 0, NULL, &zero, sizeof zero);
    test_tensor(p, "one", ONNX_I64, 0, NULL, one, sizeof one);
    test_tensor(p, "last", ONNX_I64, 1, one, one, sizeof one);
    test_node(p, "Range", "zero n one", "keys");
    test_node(p, "Unsqueeze", "keys last", "queries");
    test_node(p, "LessOrEqual", "keys queries", "causal");
    test_node(p, "Expand", "causal shape", "all");
    test_node(p, "Not", "all", "y");
    test_port(p, ONNX_GRAPH_OUTPUT, "y", ONNX_BOOL, 4, shape, NULL);
}

static void masks_are_stored_once(void **state)
{
    (void)state;
    const struct sw_onnx_fold_options options = {.most_bytes = 1 << 16};
    test_write_model(test_at("mask.onnx"), 17, graph_of_mask, NULL);
    struct sw_onnx_graph *g = open_good(test_at("mask.onnx"));
    struct sw_onnx_graph *folded = fold(g, &options);
    const struct sw_onnx_data *y = folded->values[folded->outputs[0]].data;
    assert_int_equal(y->n, INT64_C(1) << 32);
    for (int64_t i = 0; i < 64 * 64; i++) {
        assert_int_equal(sw_onnx_data_int(y, y->n - 64 * 64 + i), i % 64 > i / 64);
    }
    sw_onnx_graph_close(folded);
    sw_onnx_graph_close(g);
}

/* ---- exports of ours ---- */

static bool is_of_shapes(const char *op)
{
    static const char *const ops[] = {"Shape", "Range", "ConstantOfShape", "Identity", "Dropout"};
    for (size_t i = 0; i < SW_LEN(ops); i++) {
        if (strcmp(op, ops[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void check_static(const struct sw_onnx_graph *g)
{
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const struct sw_onnx_graph_node *node = &g->nodes[i];
        bool constant = true;
        char words[64];
        for (int32_t k = 0; k < node->n_in; k++) {
            constant =
                constant && (node->in[k] < 0 || g->values[node->in[k]].kind == ONNX_VALUE_CONSTANT);
        }
        if (constant || is_of_shapes(node->op)) {
            fail_msg("%s is left", sw_onnx_node_words(node, words, sizeof words));
        }
        for (int32_t k = 0; k < node->n_out; k++) {
            const struct sw_onnx_graph_value *v = &g->values[node->out[k]];
            assert_true(v->rank >= 0 && v->type != 0);
            for (int d = 0; d < v->rank; d++) {
                assert_true(v->dims[d] >= 0);
            }
        }
    }
}

static void exports_of_ours_have_static_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int64_t last; /* dimension of the logits */
    } models[] = {{TEST_GPT2, 16}, {TEST_BERT, 16}, {TEST_LLAMA, 16}, {TEST_VIT, 3}};
    for (size_t i = 0; i < SW_LEN(models); i++) {
        for (int opset = 17; opset <= 23; opset += 3) {
            struct sw_onnx_summary summary;
            char path[512];
            const struct sw_onnx_given_size sizes[] = {{"batch", 3}, {"sequence", 5}};
            const struct sw_onnx_fold_options options = {.sizes = sizes, .n_sizes = 2};
            assert_int_equal(
                test_export(models[i].config, test_at("ours"), opset, SW_F32, 0, &summary), SW_OK);
            snprintf(path, sizeof path, "%s/model.onnx", test_at("ours"));
            struct sw_onnx_graph *g = open_good(path);
            struct sw_onnx_graph *folded = fold(g, &options);
            check_static(folded);
            const struct sw_onnx_graph_value *y = &folded->values[folded->outputs[0]];
            assert_int_equal(y->dims[0], 3);
            assert_int_equal(y->dims[y->rank - 1], models[i].last);
            sw_onnx_graph_close(folded);
            sw_onnx_graph_close(g);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(operators_compute_what_is_documented),
    cmocka_unit_test(initializers_of_integers_fold),
    cmocka_unit_test(what_does_not_fit_is_refused_by_name),
    cmocka_unit_test(what_depends_on_inputs_and_weights_stays),
    cmocka_unit_test(inputs_with_given_elements_fold),
    cmocka_unit_test(sizes_that_do_not_fit_are_refused),
    cmocka_unit_test(masks_are_stored_once),
    cmocka_unit_test(exports_of_ours_have_static_shapes),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
