// SPDX-License-Identifier: Apache-2.0
// The nodes of one op of a forward graph. Private to the room.
#pragma once

#include "onnx/file.h"
#include "onnx/forward.h"

struct sw_onnx_emit {
    struct sw_onnx_file file;
    const struct sw_onnx_forward *forward;
    const struct sw_graph *graph; /* forward's */
    const char **names;           /* [n_values] of tensors; NULL = not there yet */
    bool *centered;               /* [n_values] rows by distance, of the longest rows */
    bool *needed;                 /* [n_ops] */
    bool *wanted;                 /* [n_values] read by an op that is needed, or an output */
    const struct sw_op *op;       /* the current one */
    const char *scope;            /* of it */
    int opset;
    struct sw_names memo; /* of what several ops use, with its index in memos */
    const char **memos;   /* [n_memos] */
    int32_t n_memos, cap_memos;
    const char **parts; /* [n_parts] rows of a product by experts so far */
    int64_t n_parts, cap_parts;
};

typedef void (*sw_onnx_row_fn)(struct sw_onnx_emit *e);
struct sw_onnx_row {
    sw_onnx_row_fn emit; /* NULL: reason says why */
    const char *reason;  /* a clause that begins with the op: "is of backward" */
    const char *nodes;   /* for people, at the least opset */
    const char *later;   /* what differs later: "from 20: Gelu"; NULL = nothing */
};
const struct sw_onnx_row *sw_onnx_row_of(enum sw_op_kind kind);

#define ONNX_IN(...)                                                                               \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
/* A node in the scope of the op. */
#define ONNX_ADD(e, op, ...) sw_onnx_add(&(e)->file, (e)->scope, op, ONNX_IN(__VA_ARGS__))

/* ---- operands ---- */

const char *sw_onnx_in(const struct sw_onnx_emit *e, int k);
const struct sw_value_info *sw_onnx_in_info(const struct sw_onnx_emit *e, int k);
const struct sw_onnx_dims *sw_onnx_in_dims(const struct sw_onnx_emit *e, int k);
const struct sw_onnx_dims *sw_onnx_out_dims(const struct sw_onnx_emit *e);
enum sw_onnx_type sw_onnx_in_type(const struct sw_onnx_emit *e, int k);
/* The tensor of the op's first output. */
void sw_onnx_set_out(struct sw_onnx_emit *e, const char *name);
/* The same for output k, which may be absent. */
void sw_onnx_set_output(struct sw_onnx_emit *e, int k, const char *name);
/* The current op cannot be written; why is a clause that follows its name. */
void sw_onnx_refuse(struct sw_onnx_emit *e, const char *why);

/* ---- what several rows use (emit.c) ---- */

const char *sw_onnx_size_value(struct sw_onnx_emit *e,
                               const struct sw_onnx_size *size); /* int64 [1] */
const char *sw_onnx_shape_value(struct sw_onnx_emit *e,
                                const struct sw_onnx_dims *dims); /* int64 [rank] */
/* 0, 1, .. size - 1 as int64. */
const char *sw_onnx_range(struct sw_onnx_emit *e, const struct sw_onnx_size *size);
const char *sw_onnx_reshape(struct sw_onnx_emit *e, const char *x, const struct sw_onnx_dims *from,
                            const struct sw_onnx_dims *to);
const char *sw_onnx_transpose(struct sw_onnx_emit *e, const char *x, const int64_t *order,
                              int rank);
/* Elements [start, end) of one dimension; both int64 [1]. */
const char *sw_onnx_slice(struct sw_onnx_emit *e, const char *x, int dim, const char *start,
                          const char *end);
const char *sw_onnx_slice_at(struct sw_onnx_emit *e, const char *x, int dim, int64_t start,
                             int64_t end);
const char *sw_onnx_unsqueeze(struct sw_onnx_emit *e, const char *x, const int64_t *dims, int n);
const char *sw_onnx_cast(struct sw_onnx_emit *e, const char *x, enum sw_onnx_type type);
const char *sw_onnx_concat(struct sw_onnx_emit *e, const char *const *in, int dim);
const char *sw_onnx_reduce(struct sw_onnx_emit *e, const char *op, const char *x, int64_t dim,
                           bool keeps);
/* A parameter's transpose, once for all ops. */
const char *sw_onnx_transposed(struct sw_onnx_emit *e, const char *x);
const char *sw_onnx_act(struct sw_onnx_emit *e, const char *x, enum sw_onnx_type type,
                        enum sw_act act);
/* Results that several ops use; NULL = not there yet. Nodes in between are in scope `scope`. */
const char *sw_onnx_known(struct sw_onnx_emit *e, const char *key);
const char *sw_onnx_note(struct sw_onnx_emit *e, const char *key, const char *name);

/* ---- attention.c, rotary.c ---- */
void sw_onnx_attention(struct sw_onnx_emit *e);
void sw_onnx_rotary(struct sw_onnx_emit *e);

/* ---- experts.c ---- */
void sw_onnx_router(struct sw_onnx_emit *e);
void sw_onnx_expert_rows(struct sw_onnx_emit *e);
void sw_onnx_to_experts(struct sw_onnx_emit *e);
void sw_onnx_from_experts(struct sw_onnx_emit *e);
void sw_onnx_expert_matmul(struct sw_onnx_emit *e);
void sw_onnx_clamped_gate(struct sw_onnx_emit *e);
void sw_onnx_attention_sink(struct sw_onnx_emit *e);
