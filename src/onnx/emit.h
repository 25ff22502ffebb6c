// SPDX-License-Identifier: Apache-2.0
// The nodes of one op of a forward graph. Private to the room.
#pragma once

#include "onnx/file.h"
#include "onnx/forward.h"

struct onnx_emit {
    struct onnx_file file;
    const struct onnx_forward *forward;
    const struct sw_graph *graph; /* forward's */
    const char **names;           /* [n_values] of tensors; NULL = not there yet */
    bool *centered;               /* [n_values] rows by distance, of the longest rows */
    bool *needed;                 /* [n_ops] */
    const struct sw_op *op;       /* the current one */
    const char *scope;            /* of it */
    int opset;
    struct sw_names memo; /* of what several ops use, with its index in memos */
    const char **memos;   /* [n_memos] */
    int32_t n_memos, cap_memos;
};

typedef void (*onnx_row_fn)(struct onnx_emit *e);
struct onnx_row {
    onnx_row_fn emit;   /* NULL: reason says why */
    const char *reason; /* a clause that begins with the op: "is of backward" */
    const char *nodes;  /* for people, at the least opset */
    const char *later;  /* what differs later: "from 20: Gelu"; NULL = nothing */
};
const struct onnx_row *onnx_row_of(enum sw_op_kind kind);

#define ONNX_IN(...)                                                                               \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
/* A node in the scope of the op. */
#define ONNX_ADD(e, op, ...) onnx_add(&(e)->file, (e)->scope, op, ONNX_IN(__VA_ARGS__))

/* ---- operands ---- */

const char *onnx_in(const struct onnx_emit *e, int k);
const struct sw_value_info *onnx_in_info(const struct onnx_emit *e, int k);
const struct onnx_dims *onnx_in_dims(const struct onnx_emit *e, int k);
const struct onnx_dims *onnx_out_dims(const struct onnx_emit *e);
enum onnx_type onnx_in_type(const struct onnx_emit *e, int k);
/* The tensor of the op's first output. */
void onnx_set_out(struct onnx_emit *e, const char *name);
/* The current op cannot be written; why is a clause that follows its name. */
void onnx_refuse(struct onnx_emit *e, const char *why);

/* ---- what several rows use (emit.c) ---- */

const char *onnx_size_value(struct onnx_emit *e, const struct onnx_size *size);  /* int64 [1] */
const char *onnx_shape_value(struct onnx_emit *e, const struct onnx_dims *dims); /* int64 [rank] */
/* 0, 1, .. size - 1 as int64. */
const char *onnx_range(struct onnx_emit *e, const struct onnx_size *size);
const char *onnx_reshape(struct onnx_emit *e, const char *x, const struct onnx_dims *from,
                         const struct onnx_dims *to);
const char *onnx_transpose(struct onnx_emit *e, const char *x, const int64_t *order, int rank);
/* Elements [start, end) of one dimension; both int64 [1]. */
const char *onnx_slice(struct onnx_emit *e, const char *x, int dim, const char *start,
                       const char *end);
const char *onnx_slice_at(struct onnx_emit *e, const char *x, int dim, int64_t start, int64_t end);
const char *onnx_unsqueeze(struct onnx_emit *e, const char *x, const int64_t *dims, int n);
const char *onnx_cast(struct onnx_emit *e, const char *x, enum onnx_type type);
const char *onnx_concat(struct onnx_emit *e, const char *const *in, int dim);
const char *onnx_reduce(struct onnx_emit *e, const char *op, const char *x, int64_t dim,
                        bool keeps);
/* A parameter's transpose, once for all ops. */
const char *onnx_transposed(struct onnx_emit *e, const char *x);
const char *onnx_act(struct onnx_emit *e, const char *x, enum onnx_type type, enum sw_act act);
/* Results that several ops use; NULL = not there yet. Nodes in between are in scope `scope`. */
const char *onnx_known(struct onnx_emit *e, const char *key);
const char *onnx_note(struct onnx_emit *e, const char *key, const char *name);

/* ---- attention.c, rotary.c ---- */
void onnx_attention(struct onnx_emit *e);
void onnx_rotary(struct onnx_emit *e);
