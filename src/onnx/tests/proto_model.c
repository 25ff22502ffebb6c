// SPDX-License-Identifier: Apache-2.0
// ONNX files for tests.
#include "onnx/tests/proto_model.h"

#include <string.h>

#include "base/base.h"

static sw_status put(void *ctx, const void *data, size_t len)
{
    sw_str_append(ctx, data, len);
    return SW_OK;
}

static void write_all(struct sw_proto_writer *p, int64_t opset, test_graph_fn fn, const void *ctx)
{
    sw_proto_put_int(p, ONNX_MODEL_IR_VERSION, 8);
    sw_proto_begin(p, ONNX_MODEL_OPSET);
    sw_proto_put_int(p, ONNX_OPSET_VERSION, opset);
    sw_proto_end(p);
    sw_proto_begin(p, ONNX_MODEL_GRAPH);
    fn(p, ctx);
    sw_proto_end(p);
}

void test_write_bytes(const char *path, const void *data, size_t len)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

uint64_t test_write_model(const char *path, int64_t opset, test_graph_fn fn, const void *ctx)
{
    struct sw_proto_writer writer = {0};
    struct sw_str bytes = {0};
    uint64_t len;
    write_all(&writer, opset, fn, ctx);
    assert_int_equal(sw_proto_measured(&writer, put, &bytes, &len), SW_OK);
    write_all(&writer, opset, fn, ctx);
    assert_int_equal(sw_proto_written(&writer), SW_OK);
    sw_proto_writer_fini(&writer);
    test_write_bytes(path, sw_str_text(&bytes), bytes.len);
    sw_str_fini(&bytes);
    return len;
}

static void put_names(struct sw_proto_writer *p, int field, const char *names)
{
    while (*names) {
        const size_t len = strcspn(names, " ");
        const bool absent = len == 1 && *names == '-';
        sw_proto_put_bytes(p, field, absent ? 0 : len);
        sw_proto_add(p, names, absent ? 0 : len);
        names += len + (names[len] == ' ');
    }
}

void test_begin_node(struct sw_proto_writer *p, const char *name, const char *op, const char *in,
                     const char *out)
{
    sw_proto_begin(p, ONNX_GRAPH_NODE);
    put_names(p, ONNX_NODE_INPUT, in);
    put_names(p, ONNX_NODE_OUTPUT, out);
    sw_proto_put_text(p, ONNX_NODE_NAME, name);
    sw_proto_put_text(p, ONNX_NODE_OP, op);
}

void test_end_node(struct sw_proto_writer *p)
{
    sw_proto_end(p);
}

void test_node(struct sw_proto_writer *p, const char *op, const char *in, const char *out)
{
    test_begin_node(p, "", op, in, out);
    test_end_node(p);
}

void test_node_int(struct sw_proto_writer *p, const char *name, int64_t value)
{
    sw_proto_begin(p, ONNX_NODE_ATTRIBUTE);
    sw_proto_put_text(p, ONNX_ATTRIBUTE_NAME, name);
    sw_proto_put_int(p, ONNX_ATTRIBUTE_INT, value);
    sw_proto_put_int(p, ONNX_ATTRIBUTE_KIND, ONNX_ATTR_INT);
    sw_proto_end(p);
}

void test_node_ints(struct sw_proto_writer *p, const char *name, const int64_t *ints, int n)
{
    sw_proto_begin(p, ONNX_NODE_ATTRIBUTE);
    sw_proto_put_text(p, ONNX_ATTRIBUTE_NAME, name);
    for (int i = 0; i < n; i++) {
        sw_proto_put_int(p, ONNX_ATTRIBUTE_INTS, ints[i]);
    }
    sw_proto_put_int(p, ONNX_ATTRIBUTE_KIND, ONNX_ATTR_INTS);
    sw_proto_end(p);
}

void test_port(struct sw_proto_writer *p, int field, const char *name, int64_t type, int rank,
               const int64_t *dims, const char *free_name)
{
    sw_proto_begin(p, field);
    sw_proto_put_text(p, ONNX_VALUE_NAME, name);
    sw_proto_begin(p, ONNX_VALUE_TYPE);
    sw_proto_begin(p, ONNX_TYPE_TENSOR);
    sw_proto_put_int(p, ONNX_TENSOR_TYPE_ELEM, type);
    sw_proto_begin(p, ONNX_TENSOR_TYPE_SHAPE);
    for (int d = 0; d < rank; d++) {
        sw_proto_begin(p, ONNX_SHAPE_DIM);
        if (dims[d] == TEST_FREE) {
            sw_proto_put_text(p, ONNX_DIM_NAME, free_name);
        } else {
            sw_proto_put_int(p, ONNX_DIM_VALUE, dims[d]);
        }
        sw_proto_end(p);
    }
    sw_proto_end(p);
    sw_proto_end(p);
    sw_proto_end(p);
    sw_proto_end(p);
}

static void begin_tensor(struct sw_proto_writer *p, const char *name, int64_t type, int rank,
                         const int64_t *dims)
{
    sw_proto_begin(p, ONNX_GRAPH_INITIALIZER);
    for (int d = 0; d < rank; d++) {
        sw_proto_put_int(p, ONNX_TENSOR_DIMS, dims[d]);
    }
    sw_proto_put_int(p, ONNX_TENSOR_TYPE, type);
    sw_proto_put_text(p, ONNX_TENSOR_NAME, name);
}

void test_tensor(struct sw_proto_writer *p, const char *name, int64_t type, int rank,
                 const int64_t *dims, const void *data, uint64_t bytes)
{
    begin_tensor(p, name, type, rank, dims);
    sw_proto_put_bytes(p, ONNX_TENSOR_RAW, bytes);
    sw_proto_add(p, data, bytes);
    sw_proto_end(p);
}

static void put_entry(struct sw_proto_writer *p, const char *key, const char *value)
{
    sw_proto_begin(p, ONNX_TENSOR_EXTERNAL);
    sw_proto_put_text(p, ONNX_ENTRY_KEY, key);
    sw_proto_put_text(p, ONNX_ENTRY_VALUE, value);
    sw_proto_end(p);
}

void test_external(struct sw_proto_writer *p, const char *name, int64_t n, const char *location,
                   const char *offset, const char *length)
{
    begin_tensor(p, name, ONNX_F32, 1, &n);
    put_entry(p, "location", location);
    put_entry(p, "offset", offset);
    put_entry(p, "length", length);
    sw_proto_put_int(p, ONNX_TENSOR_LOCATION, ONNX_EXTERNAL);
    sw_proto_end(p);
}
