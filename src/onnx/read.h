// SPDX-License-Identifier: Apache-2.0
// ONNX files that are read: the graph as its file has it (read.c), and the graph with static
// shapes in which all arithmetic on shapes is folded (fold.c). Weights stay in the mapped file.
// Private to the room.
//
//     sw_onnx_graph_open("model.onnx", &graph);          the file, checked
//     sw_onnx_graph_fold(graph, &options, &folded);      static; as often as there are sizes
//     .. folded->nodes, in the order of execution; sw_onnx_attr_int(node, "axis", -1) ..
//     sw_onnx_graph_close(folded);                       before the graph that it came from
//     sw_onnx_graph_close(graph);
#pragma once

#include "base/base.h"
#include "onnx/schema.h"

enum { ONNX_READ_RANK = 8 }; /* the most dimensions of a tensor that is read */

/* Elements of a constant. Unless `strided`, they are contiguous, row-major and little-endian. */
struct sw_onnx_data {
    enum sw_onnx_type type;
    int rank;
    int64_t dims[ONNX_READ_RANK], n; /* n: product of dims */
    const void *elems;               /* borrowed from the graph; of any alignment */
    bool strided;                    /* strides count; 0 = the same elements along this dimension */
    int64_t strides[ONNX_READ_RANK]; /* in elements */
    /* Where the elements are in a file. A rewritten file has others in the same place. */
    int i_file; /* graph->files[i_file]; -1 = computed, or stored in a way that has no place */
    uint64_t offset, bytes;
};

/* Element i in row-major order, of any numeric type; bool is 0 or 1. */
int64_t sw_onnx_data_int(const struct sw_onnx_data *data, int64_t i);
double sw_onnx_data_number(const struct sw_onnx_data *data, int64_t i);
/* Elements [first, first + n) as f32. Those of a file do not stay in memory. */
void sw_onnx_data_floats(const struct sw_onnx_data *data, int64_t first, int64_t n, float *out);
/* The only value that all elements have. False: there are several, or none. */
bool sw_onnx_data_uniform(const struct sw_onnx_data *data, double *out);

struct sw_onnx_graph_attr {
    const char *name;
    enum sw_onnx_attr_kind kind;
    double number;
    int64_t integer;
    const char *text;                /* its bytes until NUL; TEXTS: not kept */
    const int64_t *ints;             /* [n] */
    const float *floats;             /* [n] */
    int64_t n;                       /* ints, floats */
    const struct sw_onnx_data *data; /* TENSOR */
};

struct sw_onnx_graph_node {
    const char *name;  /* "" = none */
    const char *op;    /* such as "MatMul", of ONNX's own domain */
    const char *scope; /* modules, such as "bert.encoder.layer.0.attention.self.query"; "" = none */
    int32_t *in;       /* [n_in] values; -1 = absent */
    int32_t *out;      /* [n_out] the same */
    const struct sw_onnx_graph_attr *attrs; /* [n_attrs] */
    int32_t n_in, n_out, n_attrs;
    int32_t index; /* of the node in the file */
};

enum sw_onnx_value_kind {
    ONNX_VALUE_INPUT,  /* of the model */
    ONNX_VALUE_WEIGHT, /* an initializer of floats, except of rank 0: those are numbers */
    ONNX_VALUE_CONSTANT,
    ONNX_VALUE_COMPUTED, /* by node `producer` */
    ONNX_VALUE_GONE,     /* folded graph: nothing reads it, or another value replaces it */
};

struct sw_onnx_graph_value {
    const char *name; /* unique */
    enum sw_onnx_value_kind kind;
    enum sw_onnx_type type; /* 0 = unknown; never so for a value of a folded graph that is there */
    int rank;               /* -1 = unknown; never so there either */
    int64_t dims[ONNX_READ_RANK];    /* -1 = free or unknown; all are known in a folded graph */
    const char *const *sizes;        /* inputs: [rank] names of free dimensions or ""; else NULL */
    const struct sw_onnx_data *data; /* WEIGHT, CONSTANT: its elements; else NULL */
    int32_t producer, i_out;         /* COMPUTED: node, and which of its outputs; else -1 */
    int32_t first_use, n_uses;       /* in graph->uses */
    bool is_output, is_initializer;
};

struct sw_onnx_graph_use {
    int32_t node, i_in;
};

struct sw_onnx_graph_file {
    const char
        *name; /* of external data, relative to the folder; that of the .onnx file is first */
    const unsigned char *bytes;
    size_t len;
};

struct sw_onnx_graph {
    const char *path;
    int64_t ir_version;
    int opset;
    struct sw_onnx_graph_node *nodes; /* in the order of execution */
    int32_t n_nodes;
    struct sw_onnx_graph_value *values; /* a folded graph has the indices of its source */
    int32_t n_values;
    struct sw_onnx_graph_use *uses; /* consumers, by value, then by node */
    int32_t n_uses;
    int32_t *inputs; /* [n_inputs] values; initializers are not among them */
    int32_t n_inputs;
    int32_t *outputs; /* [n_outputs] values; folded: of what replaces them */
    const char **output_names;
    int32_t n_outputs;
    struct sw_onnx_graph_file *files;
    int n_files;
    const struct sw_onnx_graph *source; /* folded: the graph of the file; else NULL */
    struct sw_onnx_graph_own *own;
};

/*
 * sw_onnx_graph_open - read and check a file, in a time that is linear in its length.
 *
 * Files stay mapped until sw_onnx_graph_close. External data are found in the file's folder only.
 *
 * SW_E_FORMAT  damaged: lengths, names, dimensions, order of nodes, external data
 * SW_E_UNSUP   what is not read: opsets, domains, quantised operators, control flow, functions
 * SW_E_IO      the file, or one of external data
 */
sw_status sw_onnx_graph_open(const char *path, struct sw_onnx_graph **out);
void sw_onnx_graph_close(struct sw_onnx_graph *graph); /* NULL is a no-op */

/* The value of that name, or -1. In a folded graph it may be GONE. */
int32_t sw_onnx_graph_find(const struct sw_onnx_graph *graph, const char *name);

/* ---- folding ---- */

struct sw_onnx_given_size { /* of a free dimension, such as {"batch_size", 4} */
    const char *name;
    int64_t size;
};
struct sw_onnx_given_input { /* of the model, by its name */
    const char *name;
    int rank;                     /* -1 = by given_size only */
    int64_t dims[ONNX_READ_RANK]; /* names of free dimensions get these sizes everywhere */
    const double *elems;          /* [product of dims] makes the input a constant; NULL = free */
};
struct sw_onnx_fold_options {
    const struct sw_onnx_given_size *sizes;
    const struct sw_onnx_given_input *inputs; /* those that the model does not have are ignored */
    int n_sizes, n_inputs;
    /* Values whose constants stay although nothing reads them any more: their `data` is set, even
     * if their kind is GONE. Those of values that are not constant are NULL. */
    const int32_t *keep; /* [n_keep] */
    int32_t n_keep;
    int64_t most_bytes; /* of constants in memory; 0 = 1 GiB */
};

/*
 * sw_onnx_graph_fold - the graph for given sizes, with static shapes and types everywhere.
 *
 * Gone are: arithmetic on shapes and on constants, Identity, Dropout, casts to the same type, a
 * Reshape to the same shape and the like, nodes that no output needs. Their values are constants,
 * or replaced by what they equal. Weights stay as they are: a Transpose, Gather, Reshape or Add of
 * a weight is a node that is left. Exception: initializers that lead through constants to Sin and
 * Cos are tables of rotations, and fold.
 * So do not expect any of these nodes, unless a weight or an input of the model is their operand.
 * The source must outlive *out.
 *
 * SW_E_CONFIG  a size is not given, or is not that of the file
 * SW_E_UNSUP   an operator without a rule for its shape; a shape that depends on the input's
 *              elements; constants above most_bytes
 * SW_E_FORMAT  operands whose types, ranks or sizes do not fit
 */
sw_status sw_onnx_graph_fold(const struct sw_onnx_graph *graph,
                             const struct sw_onnx_fold_options *options,
                             struct sw_onnx_graph **out);

/* ---- nodes ---- */

const struct sw_onnx_graph_attr *sw_onnx_attr(const struct sw_onnx_graph_node *node,
                                              const char *name); /* NULL = absent */
int64_t sw_onnx_attr_int(const struct sw_onnx_graph_node *node, const char *name, int64_t or_else);
double sw_onnx_attr_number(const struct sw_onnx_graph_node *node, const char *name, double or_else);
const char *sw_onnx_attr_text(const struct sw_onnx_graph_node *node, const char *name,
                              const char *or_else);

/* "node NAME (MatMul)", or "node 17 (MatMul)" if it has no name, for messages; control characters
 * are replaced. Returns out. */
const char *sw_onnx_node_words(const struct sw_onnx_graph_node *node, char *out, size_t cap);
/* "f32 [2, 16, 64]"; unknown sizes are "?". Returns out. */
const char *sw_onnx_value_words(const struct sw_onnx_graph_value *value, char *out, size_t cap);

/* ---- new weights (rewrite.c) ---- */

struct sw_onnx_new_values {
    /* Whether the initializer of this name gets new elements; others keep their bytes. */
    bool (*has)(void *ctx, const char *name);
    /* Elements [first, first + n) in the file's order; they are rounded to the file's type. */
    sw_status (*fetch)(void *ctx, const char *name, int64_t first, int64_t n, float *out);
    void *ctx;
};

/*
 * sw_onnx_rewrite - write the file and its external data into a folder, with new weights.
 *
 * All other bytes are the same. It takes a few MiB of memory, whatever the size of the weights.
 *
 * folder     exists; the files in it that have these names are replaced
 * values     NULL or without `has`: the same bytes
 *
 * SW_E_UNSUP  a weight that is to be new is not of floats, or is not stored as bytes (ONNX allows
 *             numbers of variable length)
 */
sw_status sw_onnx_rewrite(const struct sw_onnx_graph *graph, const char *folder,
                          const struct sw_onnx_new_values *values);
