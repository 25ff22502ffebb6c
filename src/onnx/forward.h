// SPDX-License-Identifier: Apache-2.0
// A model's forward graph with sizes as expressions. Private to the room.
#pragma once

#include "onnx/file.h"

/* How a constant depends on the sizes of a batch. */
enum sw_onnx_constant {
    ONNX_FIXED,    /* it does not */
    ONNX_REPEATED, /* the same for each sample, along the first dimension */
    ONNX_PREFIX,   /* that of shorter rows is its beginning, along the first dimension */
    ONNX_CENTERED  /* that of shorter rows is its middle: distances between tokens */
};

enum { ONNX_N_SMALL = 1 + ONNX_N_FREE };

/* Two tables in place of one that depends on the length of rows. */
struct sw_onnx_tables {
    int64_t rows;          /* up to so many tokens it is the first one, which has as many rows */
    struct sw_graph *less; /* that of this many tokens; NULL = one table is enough */
};

struct sw_onnx_forward {
    const struct sw_model *model;
    enum sw_dtype dtype;
    struct sw_graph *graph; /* of the longest rows: the constants are those of this one */
    struct sw_graph *small[ONNX_N_SMALL]; /* of short rows; the others differ in one size each */
    int64_t sizes[ONNX_N_SMALL][ONNX_N_FREE], whole[ONNX_N_FREE];
    struct sw_onnx_dims *dims; /* [n_values] of graph */
    sw_value encoded;          /* output of an encoder that a decoder reads; SW_NO_VALUE = none */
};

/* Builds the forward graph of logits for several sizes, and compares them. SW_E_UNSUP: their ops
 * differ, or a size is not a product of free sizes. */
sw_status sw_onnx_forward_open(const struct sw_model *model, enum sw_dtype dtype,
                               struct sw_onnx_forward *out);
void sw_onnx_forward_close(struct sw_onnx_forward *f);
/* The size of which `of` has the number that each graph has. */
sw_status sw_onnx_forward_size(const struct sw_onnx_forward *f, const int64_t numbers[ONNX_N_SMALL],
                               int64_t in_whole, const char *what, struct sw_onnx_size *out);
/* The kind of constant v; false = none of them. */
bool sw_onnx_forward_constant(const struct sw_onnx_forward *f, sw_value v,
                              enum sw_onnx_constant *out);
/* Finds the length up to which a table, which is no constant of those kinds, is another one.
 * SW_E_UNSUP: it has more than two forms. Close tables->less with sw_graph_close. */
sw_status sw_onnx_forward_tables(const struct sw_onnx_forward *f, sw_value v,
                                 struct sw_onnx_tables *out);
