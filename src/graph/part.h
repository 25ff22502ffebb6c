// SPDX-License-Identifier: Apache-2.0
// Shared by the files that make the graph of one of several ranks: the walk, the values of a rank,
// and the rules by which ops work on parts.
#pragma once

#include "graph/spread.h"

enum { SW_N_SPREADS = SW_SPREAD_SUM + 1 };

/* A value of the whole graph in the graph of this rank. */
struct sw_part_form {
    bool is_made;
    struct sw_spread native;   /* as its op leaves it */
    struct sw_spread cut;      /* of at[SW_SPREAD_CUT] */
    sw_value at[SW_N_SPREADS]; /* SW_NO_VALUE = not made in that spread */
};

struct sw_part_pass {
    const struct sw_graph *g;
    struct sw_ranks ranks;
    struct sw_graph *out;
    struct sw_part_form *forms; /* [g->n_values] */
};

static inline const struct sw_value_info *sw_part_info(const struct sw_part_pass *p, sw_value v)
{
    return &p->g->values[v];
}

static inline bool sw_part_is_cut(const struct sw_part_pass *p, sw_value v)
{
    return p->forms[v].native.kind == SW_SPREAD_CUT;
}

static inline bool sw_part_is_cut_along(const struct sw_part_pass *p, sw_value v, int dim)
{
    return sw_part_is_cut(p, v) && p->forms[v].native.split.dim == dim;
}

/* True if the value was computed from parts of a parameter, not from a part of the rows. */
static inline bool sw_part_is_model_cut(const struct sw_part_pass *p, sw_value v)
{
    return sw_part_is_cut(p, v) && !p->forms[v].native.is_rows;
}

/* ---- part_values.c ---- */

/* Makes all leaves in their order. Exception: a cache is made when its first op needs it. */
void sw_part_leaves(struct sw_part_pass *p);
/* Records that `value` of this rank's graph is value v, as its op leaves it. */
void sw_part_set(struct sw_part_pass *p, sw_value v, const struct sw_spread *spread,
                 sw_value value);
/* True if a value can have this spread. */
bool sw_part_can(struct sw_part_pass *p, sw_value v, const struct sw_spread *want);
/* Returns the value in this spread. `sw_part_can` must have said that it can have it. */
sw_value sw_part_in(struct sw_part_pass *p, sw_value v, const struct sw_spread *want);
/* Adds an exchange of x, a value of this rank's graph. dim: of the parts, if one of both is CUT */
sw_value sw_part_change(struct sw_part_pass *p, enum sw_spread_kind from, sw_value x,
                        enum sw_spread_kind to, int dim);
/* Adds an exchange by which parts along `dim` become parts along `to_dim`. Dimension 1 of all ranks
 * together has so many tokens; a last part that has fewer than the others is padded. */
sw_value sw_part_turn(struct sw_part_pass *p, sw_value x, int dim, int to_dim, int64_t tokens);

/* ---- part_ops.c ---- */

/* Adds the op of this rank with its outputs. in: of this rank's graph */
void sw_part_add_op(struct sw_part_pass *p, const struct sw_op *whole,
                    const struct sw_op_part *part, const sw_value *in);
/* True if all inputs can have the spreads of the part. */
bool sw_part_all_can(struct sw_part_pass *p, const struct sw_op *op, const struct sw_op_part *part);
/* Adds the op with inputs in the spreads of the part. */
void sw_part_emit(struct sw_part_pass *p, const struct sw_op *op, const struct sw_op_part *part);

/* ---- rules: true = the op was added, or the graph has an error ---- */

/* part_ops.c: the op reads copies. */
bool sw_part_by_copies(struct sw_part_pass *p, const struct sw_op *op);
/* part_ops.c: the op reads whole inputs. The last rule: it fails if an input has no whole. */
void sw_part_on_all(struct sw_part_pass *p, const struct sw_op *op);
/* part_words.c: losses from products with an embedding, and from logits. */
bool sw_part_by_words(struct sw_part_pass *p, const struct sw_op *op);
bool sw_part_by_classes(struct sw_part_pass *p, const struct sw_op *op);
/* part_tokens.c: the op works on the tokens of this rank, if an input is cut along them. */
bool sw_part_along_tokens(struct sw_part_pass *p, const struct sw_op *op,
                          const struct sw_op_desc *desc);
/* part_heads.c: attention, and the terms of its scores. */
bool sw_part_by_attention(struct sw_part_pass *p, const struct sw_op *op,
                          const struct sw_op_desc *desc);
bool sw_part_by_heads(struct sw_part_pass *p, const struct sw_op *op,
                      const struct sw_op_desc *desc);

/* part_tensor.c, part_tokens.c: all rules of an axis in their order. */
void sw_part_take_tensor(struct sw_part_pass *p, const struct sw_op *op,
                         const struct sw_op_desc *desc);
void sw_part_take_tokens(struct sw_part_pass *p, const struct sw_op *op,
                         const struct sw_op_desc *desc);

/* part_tokens.c: the part that an op has if input `lead` is cut like that. A cut of rows leaves
 * pieces of a product as they are. */
bool sw_part_of_tokens(struct sw_part_pass *p, const struct sw_op *op,
                       const struct sw_op_desc *desc, int lead, const struct sw_spread *cut,
                       struct sw_op_part *part);
