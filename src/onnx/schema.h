// SPDX-License-Identifier: Apache-2.0
// The numbers of fields and values in onnx.proto (ONNX's IR specification) that this room writes
// and reads. No other file names one.
#pragma once

// clang-format off
#define ONNX_FIELD_LIST(X)                                                                         \
    X(MODEL_IR_VERSION,       1)                                                                   \
    X(MODEL_PRODUCER,         2)                                                                   \
    X(MODEL_GRAPH,            7)                                                                   \
    X(MODEL_OPSET,            8)                                                                   \
    X(MODEL_TRAINING,        20)                                                                   \
    X(MODEL_FUNCTION,        25)                                                                   \
    X(OPSET_DOMAIN,           1)                                                                   \
    X(OPSET_VERSION,          2)                                                                   \
    X(GRAPH_NODE,             1)                                                                   \
    X(GRAPH_NAME,             2)                                                                   \
    X(GRAPH_INITIALIZER,      5)                                                                   \
    X(GRAPH_INPUT,           11)                                                                   \
    X(GRAPH_OUTPUT,          12)                                                                   \
    X(GRAPH_SPARSE,          15)                                                                   \
    X(NODE_INPUT,             1)                                                                   \
    X(NODE_OUTPUT,            2)                                                                   \
    X(NODE_NAME,              3)                                                                   \
    X(NODE_OP,                4)                                                                   \
    X(NODE_ATTRIBUTE,         5)                                                                   \
    X(NODE_DOMAIN,            7)                                                                   \
    X(NODE_METADATA,          9)                                                                   \
    X(ATTRIBUTE_NAME,         1)                                                                   \
    X(ATTRIBUTE_FLOAT,        2)                                                                   \
    X(ATTRIBUTE_INT,          3)                                                                   \
    X(ATTRIBUTE_TEXT,         4)                                                                   \
    X(ATTRIBUTE_TENSOR,       5)                                                                   \
    X(ATTRIBUTE_FLOATS,       7)                                                                   \
    X(ATTRIBUTE_INTS,         8)                                                                   \
    X(ATTRIBUTE_KIND,        20)                                                                   \
    X(ATTRIBUTE_REFERENCE,   21)                                                                   \
    X(TENSOR_DIMS,            1)                                                                   \
    X(TENSOR_TYPE,            2)                                                                   \
    X(TENSOR_SEGMENT,         3)                                                                   \
    X(TENSOR_FLOATS,          4)                                                                   \
    X(TENSOR_INT32S,          5)                                                                   \
    X(TENSOR_INT64S,          7)                                                                   \
    X(TENSOR_NAME,            8)                                                                   \
    X(TENSOR_RAW,             9)                                                                   \
    X(TENSOR_DOUBLES,        10)                                                                   \
    X(TENSOR_UINT64S,        11)                                                                   \
    X(TENSOR_EXTERNAL,       13)                                                                   \
    X(TENSOR_LOCATION,       14)                                                                   \
    X(ENTRY_KEY,              1)                                                                   \
    X(ENTRY_VALUE,            2)                                                                   \
    X(FUNCTION_NAME,          1)                                                                   \
    X(VALUE_NAME,             1)                                                                   \
    X(VALUE_TYPE,             2)                                                                   \
    X(TYPE_TENSOR,            1)                                                                   \
    X(TENSOR_TYPE_ELEM,       1)                                                                   \
    X(TENSOR_TYPE_SHAPE,      2)                                                                   \
    X(SHAPE_DIM,              1)                                                                   \
    X(DIM_VALUE,              1)                                                                   \
    X(DIM_NAME,               2)
// clang-format on

enum sw_onnx_field {
#define ONNX_FIELD_ENUM(name, number) ONNX_##name = (number),
    ONNX_FIELD_LIST(ONNX_FIELD_ENUM)
#undef ONNX_FIELD_ENUM
};

/* TensorProto.DataType */
enum sw_onnx_type {
    ONNX_F32 = 1,
    ONNX_U8 = 2,
    ONNX_I8 = 3,
    ONNX_U16 = 4,
    ONNX_I16 = 5,
    ONNX_I32 = 6,
    ONNX_I64 = 7,
    ONNX_TEXTS = 8,
    ONNX_BOOL = 9,
    ONNX_F16 = 10,
    ONNX_F64 = 11,
    ONNX_U32 = 12,
    ONNX_U64 = 13,
    ONNX_BF16 = 16
};

/* AttributeProto.AttributeType */
enum sw_onnx_attr_kind {
    ONNX_ATTR_FLOAT = 1,
    ONNX_ATTR_INT = 2,
    ONNX_ATTR_TEXT = 3,
    ONNX_ATTR_TENSOR = 4,
    ONNX_ATTR_GRAPH = 5,
    ONNX_ATTR_FLOATS = 6,
    ONNX_ATTR_INTS = 7,
    ONNX_ATTR_TEXTS = 8,
    ONNX_ATTR_GRAPHS = 10
};

enum { ONNX_EXTERNAL = 1 /* TensorProto.DataLocation */ };
