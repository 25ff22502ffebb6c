// SPDX-License-Identifier: Apache-2.0
// ONNX files for tests, written field by field, so that they can also be wrong.
#pragma once

#include "base/base.h"
#include "onnx/schema.h"
#include "support/test.h"

enum { TEST_FREE = -1 }; /* a dimension whose name is that of test_port */

typedef void (*test_graph_fn)(struct sw_proto_writer *p, const void *ctx);

/* A file of these bytes. */
void test_write_bytes(const char *path, const void *data, size_t len);
/* The file at path: this opset, and a graph of what fn writes. Length of the file. */
uint64_t test_write_model(const char *path, int64_t opset, test_graph_fn fn, const void *ctx);
/* Fields of the graph. in and out: names with spaces between; "-" = absent. */
void test_begin_node(struct sw_proto_writer *p, const char *name, const char *op, const char *in,
                     const char *out);
void test_node_int(struct sw_proto_writer *p, const char *name, int64_t value);
void test_node_ints(struct sw_proto_writer *p, const char *name, const int64_t *ints, int n);
void test_end_node(struct sw_proto_writer *p);
void test_node(struct sw_proto_writer *p, const char *op, const char *in, const char *out);
/* An input (ONNX_GRAPH_INPUT) or output of the model. */
void test_port(struct sw_proto_writer *p, int field, const char *name, int64_t type, int rank,
               const int64_t *dims, const char *free_name);
/* An initializer with raw data. */
void test_tensor(struct sw_proto_writer *p, const char *name, int64_t type, int rank,
                 const int64_t *dims, const void *data, uint64_t bytes);
void test_external(struct sw_proto_writer *p, const char *name, int64_t n, const char *location,
                   const char *offset, const char *length);
