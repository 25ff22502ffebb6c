// SPDX-License-Identifier: Apache-2.0
// What the files of folding share: one node with what is known about its operands. Private to
// fold.c, shapes.c, constants.c and data.c.
#pragma once

#include "onnx/read.h"

enum { ONNX_MOST_IN = 512 }; /* inputs and outputs of a node that is folded */

bool sw_onnx_is_float(enum sw_onnx_type type);
int64_t sw_onnx_whole(double x); /* towards zero, at most the largest; NaN is the smallest */
int64_t sw_onnx_load_int(enum sw_onnx_type type, const void *elems, int64_t i);
double sw_onnx_load_number(enum sw_onnx_type type, const void *elems, int64_t i);
void sw_onnx_store_int(enum sw_onnx_type type, void *elems, int64_t i, int64_t x);
void sw_onnx_store_number(enum sw_onnx_type type, void *elems, int64_t i, double x);
/* Where element i in row-major order is stored. */
int64_t sw_onnx_place(const struct sw_onnx_data *data, int64_t i);

/* Memory of computed constants, which views share. */
struct sw_onnx_buffer {
    struct sw_onnx_buffer *prev, *next;
    int64_t n_refs, bytes;
    void *mem;
};

/* An operand or a result. */
struct sw_onnx_known {
    enum sw_onnx_type type;
    int rank;
    int64_t dims[ONNX_READ_RANK];
    const struct sw_onnx_data *data; /* of a constant that may be folded; else NULL */
    struct sw_onnx_buffer *buffer;   /* of data; NULL = of the file */
};

struct sw_onnx_case {
    const struct sw_onnx_graph_node *node;
    const struct sw_onnx_rule *rule;
    int32_t n_in, n_out;
    const struct sw_onnx_known *in[ONNX_MOST_IN]; /* NULL = absent */
    struct sw_onnx_known out[ONNX_MOST_IN];       /* results; those not wanted, too */
    bool same_as_in;                              /* out[0] is in[0], element by element */
    struct sw_onnx_folding *folding;
};

typedef sw_status (*sw_onnx_rule_fn)(struct sw_onnx_case *c);

/* The rule of an operator. */
struct sw_onnx_rule {
    const char *op;
    int least_in, most_in, n_out; /* n_out: the most; -1 = any */
    sw_onnx_rule_fn infer;        /* types and shapes of out[] */
    sw_onnx_rule_fn eval; /* elements of out[], all in[] being constants; NULL = never folded */
};
extern const struct sw_onnx_rule sw_onnx_rules[];
extern const int sw_onnx_n_rules;

/* Limits of one graph's folding. */
struct sw_onnx_folding {
    struct sw_arena *arena;         /* of the folded graph */
    struct sw_onnx_buffer *buffers; /* all that are in use */
    int64_t bytes, most_bytes, work;
};

/* Counts elements that are looked at, so that no file makes folding endless. */
sw_status sw_onnx_work(struct sw_onnx_folding *folding, int64_t elems);
/* One user less of a buffer; the last one frees it. NULL is a no-op. */
void sw_onnx_release(struct sw_onnx_folding *folding, struct sw_onnx_buffer *buffer);

/* ---- constants.c ---- */

/* Elements of out[k], contiguous and not yet set. */
sw_status sw_onnx_new_constant(struct sw_onnx_case *c, int k, void **out_elems);

/* Each fills `data` and `buffer` of out[]. SW_PENDING: it does not compute this; the node stays. */
sw_status sw_onnx_eval_map(struct sw_onnx_case *c);  /* element by element */
sw_status sw_onnx_eval_view(struct sw_onnx_case *c); /* Reshape, Squeeze, .. */
sw_status sw_onnx_eval_transpose(struct sw_onnx_case *c);
sw_status sw_onnx_eval_expand(struct sw_onnx_case *c);
sw_status sw_onnx_eval_slice(struct sw_onnx_case *c);
sw_status sw_onnx_eval_split(struct sw_onnx_case *c);
sw_status sw_onnx_eval_shape(struct sw_onnx_case *c);
sw_status sw_onnx_eval_size(struct sw_onnx_case *c);
sw_status sw_onnx_eval_range(struct sw_onnx_case *c);
sw_status sw_onnx_eval_fill(struct sw_onnx_case *c); /* ConstantOfShape */
sw_status sw_onnx_eval_concat(struct sw_onnx_case *c);
sw_status sw_onnx_eval_gather(struct sw_onnx_case *c);
sw_status sw_onnx_eval_gather_elements(struct sw_onnx_case *c);
sw_status sw_onnx_eval_gather_nd(struct sw_onnx_case *c);
sw_status sw_onnx_eval_scatter_nd(struct sw_onnx_case *c);
sw_status sw_onnx_eval_scatter_elements(struct sw_onnx_case *c);
sw_status sw_onnx_eval_tile(struct sw_onnx_case *c);
sw_status sw_onnx_eval_pad(struct sw_onnx_case *c);
sw_status sw_onnx_eval_trilu(struct sw_onnx_case *c);
sw_status sw_onnx_eval_cumsum(struct sw_onnx_case *c);
sw_status sw_onnx_eval_reduce(struct sw_onnx_case *c);
sw_status sw_onnx_eval_arg(struct sw_onnx_case *c);
sw_status sw_onnx_eval_matmul(struct sw_onnx_case *c);
sw_status sw_onnx_eval_nonzero(struct sw_onnx_case *c);
sw_status sw_onnx_eval_one_hot(struct sw_onnx_case *c);
sw_status sw_onnx_eval_eye(struct sw_onnx_case *c);

/* ---- shapes.c: what both sides need ---- */

/* Adds the rank to a negative axis, and checks it. */
sw_status sw_onnx_axis(const struct sw_onnx_case *c, int64_t axis, int rank, int *out);
/* The axes of a reduction, of Squeeze or Unsqueeze as bits: attribute or input; all if there are
 * none. rank: that they count in. */
sw_status sw_onnx_axes(const struct sw_onnx_case *c, int i_in, int rank, bool *out_given,
                       unsigned *out);
/* Bounds of Slice along each dimension. */
struct sw_onnx_bounds {
    int64_t first[ONNX_READ_RANK], step[ONNX_READ_RANK], n[ONNX_READ_RANK];
};
sw_status sw_onnx_slice_bounds(const struct sw_onnx_case *c, struct sw_onnx_bounds *out);
/* Elements before each dimension of Pad. */
sw_status sw_onnx_pads(const struct sw_onnx_case *c, int64_t before[ONNX_READ_RANK],
                       int64_t after[ONNX_READ_RANK]);
