// SPDX-License-Identifier: Apache-2.0
// An ONNX graph in memory, without its weights, and its file. Private to the room.
#pragma once

#include "base/base.h"
#include "onnx/onnx.h"
#include "onnx/schema.h"

enum { ONNX_MAX_ATTRS = 6, ONNX_MAX_RANK = 8 };

/* The size of a dimension: c0 + c1 times those of batch, tokens and targets that are set. */
struct sw_onnx_size {
    int64_t c0, c1;
    bool free[3]; /* batch, tokens, targets */
};
enum { ONNX_BATCH, ONNX_TOKENS, ONNX_TARGETS, ONNX_N_FREE };

static inline bool sw_onnx_is_fixed(const struct sw_onnx_size *size)
{
    return !size->free[ONNX_BATCH] && !size->free[ONNX_TOKENS] && !size->free[ONNX_TARGETS];
}
bool sw_onnx_sizes_equal(const struct sw_onnx_size *a, const struct sw_onnx_size *b);

struct sw_onnx_dims {
    int rank;
    struct sw_onnx_size of[ONNX_MAX_RANK];
};

struct sw_onnx_attr {
    const char *name;
    enum sw_onnx_attr_kind kind;
    double number;
    int64_t integer;
    const char *text;
    const int64_t *ints; /* [n] */
    int n;
};

struct sw_onnx_node {
    const char *name, *op;
    const char **in;        /* [n_in] "" = absent */
    const char *out, *more; /* more: a second output, or NULL */
    struct sw_onnx_attr attrs[ONNX_MAX_ATTRS];
    int n_in, n_attrs;
};

struct sw_onnx_tensor {
    const char *name;
    enum sw_onnx_type type;
    struct sw_shape shape;
    const void *data; /* NULL = a parameter of the model */
    uint64_t bytes;
    uint64_t offset; /* of external data */
};

struct sw_onnx_port { /* an input or output */
    const char *name;
    enum sw_onnx_type type;
    struct sw_onnx_dims dims;
};

struct sw_onnx_file {
    struct sw_arena arena; /* of names and small data */
    int opset;
    const char *graph_name;
    struct sw_onnx_node *nodes;
    struct sw_onnx_tensor *tensors;
    int64_t n_nodes, cap_nodes, n_tensors, cap_tensors;
    struct sw_onnx_port inputs[8], outputs[4];
    int n_inputs, n_outputs;
    const char *free_names[ONNX_N_FREE]; /* of free sizes */
    struct sw_names names;               /* of tensors; of nodes, with their index in counts */
    int32_t *counts;                     /* [n_counts] nodes that would have the same name */
    int64_t n_counts, cap_counts;
    struct sw_onnx_attr lost; /* takes an attribute after a failure */
    sw_status status;         /* of the first failure */
};

void sw_onnx_file_fini(struct sw_onnx_file *file);
void sw_onnx_fail(struct sw_onnx_file *file, sw_status status);
/* Adds a node in a scope; in: NULL-terminated. Returns the name of its output. */
const char *sw_onnx_add(struct sw_onnx_file *file, const char *scope, const char *op,
                        const char *const *in);
/* Adds a second output to the last node, and returns its name. */
const char *sw_onnx_more(struct sw_onnx_file *file);
/* Attributes of the last node. ints are copied. */
void sw_onnx_set_int(struct sw_onnx_file *file, const char *name, int64_t value);
void sw_onnx_set_float(struct sw_onnx_file *file, const char *name, double value);
void sw_onnx_set_text(struct sw_onnx_file *file, const char *name, const char *text);
void sw_onnx_set_ints(struct sw_onnx_file *file, const char *name, const int64_t *ints, int n);
/* Adds an initializer, once for each name; returns the name. data NULL: a parameter; else it is
 * copied. The name is copied. */
const char *sw_onnx_tensor(struct sw_onnx_file *file, const char *name, enum sw_onnx_type type,
                           struct sw_shape shape, const void *data);
/* Constants, named after their contents: int64 [n] ("int64 [0, -1]") or a scalar. */
const char *sw_onnx_ints(struct sw_onnx_file *file, const int64_t *ints, int n);
const char *sw_onnx_int(struct sw_onnx_file *file, int64_t value);    /* [1] */
const char *sw_onnx_scalar(struct sw_onnx_file *file, int64_t value); /* [] */
const char *sw_onnx_number(struct sw_onnx_file *file, enum sw_onnx_type type,
                           double value); /* [] */

size_t sw_onnx_type_bytes(enum sw_onnx_type type);
enum sw_onnx_type sw_onnx_type_of(enum sw_dtype dtype);

/* Writes FOLDER/NAME, and FOLDER/NAME.data if weights are external. */
sw_status sw_onnx_write(struct sw_onnx_file *file, const struct sw_onnx_export_options *options,
                        const char *name, struct sw_onnx_summary *summary);
