// SPDX-License-Identifier: Apache-2.0
// A small ONNX file as text, so that mutations change nodes and numbers, and not only lengths of
// messages. Each line is a field of the graph, or changes bytes of the file:
//
//     opset 17
//     < input_ids 7 batch,4              an input: name, number of its type, dimensions
//     > logits                           an output
//     : table 1 2,2 1,2,3,4              an initializer: name, type, dimensions, elements
//     @ table 1 2 x.data 0 8             the same as external data: file, offset, length
//     Gather table,input_ids found axis=0 name=/a/b/Gather
//     ! 17 255                           the byte at 17
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "onnx/schema.h"

enum { TEXT_PARTS = 12, TEXT_NUMBERS = 64 };

static inline sw_status text_put(void *ctx, const void *data, size_t len)
{
    sw_str_append(ctx, data, len);
    return SW_OK;
}

/* The names of a list with commas; "-" = none. */
static inline void text_names(struct sw_proto_writer *p, int field, char *list)
{
    for (char *name; (name = strsep(&list, ","));) {
        sw_proto_put_text(p, field, strcmp(name, "-") == 0 ? "" : name);
    }
}

static inline int text_numbers(char *list, double out[TEXT_NUMBERS])
{
    int n = 0;
    for (char *number; n < TEXT_NUMBERS && list && (number = strsep(&list, ","));) {
        if (strcmp(number, "-") != 0) {
            out[n++] = strtod(number, NULL);
        }
    }
    return n;
}

static inline int64_t text_whole(double x)
{
    return x >= -0x1p62 && x <= 0x1p62 ? (int64_t)x : INT64_MIN;
}

static inline void text_attribute(struct sw_proto_writer *p, const char *name, char *value)
{
    double numbers[TEXT_NUMBERS];
    const int n = text_numbers(value, numbers);
    sw_proto_begin(p, ONNX_NODE_ATTRIBUTE);
    sw_proto_put_text(p, ONNX_ATTRIBUTE_NAME, name + (*name == '*'));
    if (n == 1 && *name != '*') { /* "*axes=0" is a list of one */
        sw_proto_put_int(p, ONNX_ATTRIBUTE_INT, text_whole(numbers[0]));
    }
    for (int i = 0; i < n; i++) {
        sw_proto_put_int(p, ONNX_ATTRIBUTE_INTS, text_whole(numbers[i]));
    }
    sw_proto_put_int(p, ONNX_ATTRIBUTE_KIND,
                     n == 1 && *name != '*' ? ONNX_ATTR_INT : ONNX_ATTR_INTS);
    sw_proto_end(p);
}

static inline void text_node(struct sw_proto_writer *p, char *parts[TEXT_PARTS], int n)
{
    sw_proto_begin(p, ONNX_GRAPH_NODE);
    text_names(p, ONNX_NODE_INPUT, n > 1 ? parts[1] : NULL);
    text_names(p, ONNX_NODE_OUTPUT, n > 2 ? parts[2] : NULL);
    sw_proto_put_text(p, ONNX_NODE_OP, parts[0]);
    for (int i = 3; i < n; i++) {
        char *value = parts[i], *name = strsep(&value, "=");
        if (value && strcmp(name, "name") == 0) {
            sw_proto_put_text(p, ONNX_NODE_NAME, value);
        } else if (value && strcmp(name, "domain") == 0) {
            sw_proto_put_text(p, ONNX_NODE_DOMAIN, value);
        } else if (value) {
            text_attribute(p, name, value);
        }
    }
    sw_proto_end(p);
}

static inline void text_port(struct sw_proto_writer *p, int field, char *parts[TEXT_PARTS], int n)
{
    char *dims = n > 3 ? parts[3] : NULL;
    sw_proto_begin(p, field);
    sw_proto_put_text(p, ONNX_VALUE_NAME, n > 1 ? parts[1] : "");
    sw_proto_begin(p, ONNX_VALUE_TYPE);
    sw_proto_begin(p, ONNX_TYPE_TENSOR);
    sw_proto_put_int(p, ONNX_TENSOR_TYPE_ELEM, n > 2 ? atoi(parts[2]) : 1);
    sw_proto_begin(p, ONNX_TENSOR_TYPE_SHAPE);
    for (char *dim; (dim = strsep(&dims, ","));) {
        sw_proto_begin(p, ONNX_SHAPE_DIM);
        if (*dim >= '0' && *dim <= '9') {
            sw_proto_put_int(p, ONNX_DIM_VALUE, text_whole(strtod(dim, NULL)));
        } else {
            sw_proto_put_text(p, ONNX_DIM_NAME, dim);
        }
        sw_proto_end(p);
    }
    sw_proto_end(p);
    sw_proto_end(p);
    sw_proto_end(p);
    sw_proto_end(p);
}

static inline void text_raw(struct sw_proto_writer *p, int type, const double *numbers, int n)
{
    const uint64_t size = type == ONNX_I64 ? 8 : type == ONNX_F32 ? 4 : 1;
    sw_proto_put_bytes(p, ONNX_TENSOR_RAW, size * (uint64_t)n);
    for (int i = 0; i < n; i++) {
        const int64_t whole = text_whole(numbers[i]);
        const float number = (float)numbers[i];
        sw_proto_add(p, type == ONNX_F32 ? (const void *)&number : (const void *)&whole, size);
    }
}

static inline void text_entry(struct sw_proto_writer *p, const char *key, const char *value)
{
    sw_proto_begin(p, ONNX_TENSOR_EXTERNAL);
    sw_proto_put_text(p, ONNX_ENTRY_KEY, key);
    sw_proto_put_text(p, ONNX_ENTRY_VALUE, value);
    sw_proto_end(p);
}

static inline void text_tensor(struct sw_proto_writer *p, char *parts[TEXT_PARTS], int n)
{
    double numbers[TEXT_NUMBERS];
    const int type = n > 2 ? atoi(parts[2]) : 1;
    const int rank = text_numbers(n > 3 ? parts[3] : NULL, numbers);
    sw_proto_begin(p, ONNX_GRAPH_INITIALIZER);
    for (int d = 0; d < rank; d++) {
        sw_proto_put_int(p, ONNX_TENSOR_DIMS, text_whole(numbers[d]));
    }
    sw_proto_put_int(p, ONNX_TENSOR_TYPE, type);
    sw_proto_put_text(p, ONNX_TENSOR_NAME, n > 1 ? parts[1] : "");
    if (*parts[0] == '@') {
        text_entry(p, "location", n > 4 ? parts[4] : "");
        text_entry(p, "offset", n > 5 ? parts[5] : "0");
        text_entry(p, "length", n > 6 ? parts[6] : "0");
        sw_proto_put_int(p, ONNX_TENSOR_LOCATION, ONNX_EXTERNAL);
    } else {
        const int n_elems = text_numbers(n > 4 ? parts[4] : NULL, numbers);
        text_raw(p, type, numbers, n_elems);
    }
    sw_proto_end(p);
}

static inline void text_line(struct sw_proto_writer *p, char *line, int64_t *opset)
{
    char *parts[TEXT_PARTS];
    int n = 0;
    for (char *part; n < TEXT_PARTS && (part = strsep(&line, " "));) {
        parts[n++] = part;
    }
    switch (*parts[0]) {
    case '<':
        text_port(p, ONNX_GRAPH_INPUT, parts, n);
        break;
    case '>':
        text_port(p, ONNX_GRAPH_OUTPUT, parts, n);
        break;
    case ':':
    case '@':
        text_tensor(p, parts, n);
        break;
    case '!':
    case '\0':
        break;
    default:
        if (strcmp(parts[0], "opset") == 0) {
            *opset = n > 1 ? atoi(parts[1]) : 0;
        } else {
            text_node(p, parts, n);
        }
    }
}

/* A pass of the writer over a copy of the text. */
static inline void text_pass(struct sw_proto_writer *p, const char *text, int64_t *opset)
{
    char *copy = sw_strdup("fuzz", text), *rest = copy;
    SW_ASSERT(copy);
    sw_proto_begin(p, ONNX_MODEL_GRAPH);
    for (char *line; (line = strsep(&rest, "\n"));) {
        text_line(p, line, opset);
    }
    sw_proto_end(p);
    sw_proto_begin(p, ONNX_MODEL_OPSET);
    sw_proto_put_int(p, ONNX_OPSET_VERSION, *opset);
    sw_proto_end(p);
    sw_free(copy);
}

/* The file that the text says, of which "!" lines change bytes. */
static inline void text_file(const char *text, struct sw_str *out)
{
    struct sw_proto_writer writer = {0};
    int64_t opset = 17;
    uint64_t len;
    text_pass(&writer, text, &opset);
    SW_ASSERT(sw_proto_measured(&writer, text_put, out, &len) == SW_OK);
    text_pass(&writer, text, &opset);
    SW_ASSERT(sw_proto_written(&writer) == SW_OK && len == out->len);
    sw_proto_writer_fini(&writer);
    for (const char *at = text; (at = strchr(at, '!')); at++) {
        unsigned place, byte;
        if (sscanf(at, "! %u %u", &place, &byte) == 2 && place < out->len) {
            out->ptr[place] = (char)byte;
        }
    }
}
