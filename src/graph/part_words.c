// SPDX-License-Identifier: Apache-2.0
// Losses over a vocabulary that the ranks of the tensor axis divide: each rank makes its part, and
// from the parts of all ranks comes the whole loss.
#include <string.h>

#include "graph/part.h"

/* Adds the loss over the words of this rank, and the merge of all ranks' losses. */
static void merge_words(struct sw_part_pass *p, const struct sw_op *op, const sw_value *in,
                        int n_in)
{
    struct sw_graph *g = p->out;
    struct sw_attrs attrs = op->attrs;
    sw_value all[SW_MAX_INPUTS];
    const int64_t rows = sw_shape_rows(&sw_part_info(p, op->in[0])->shape);
    const int64_t words = g->values[in[1]].shape.dims[0];
    attrs.linear_ce.whole = sw_part_info(p, op->in[1])->shape.dims[0];
    attrs.linear_ce.chunk = sw_min_i64(attrs.linear_ce.chunk, words);
    attrs.linear_ce.tile = (struct sw_tile_attrs){.first = p->ranks.me * words, .partial = true};
    const enum sw_dtype dtype = sw_stat_dtype(g->values[in[0]].dtype);
    memcpy(all, in, (size_t)n_in * sizeof *in);
    all[n_in] = sw_graph_add_out(g, sw_graph_add_op(g, SW_OP_LINEAR_CE, in, n_in, &attrs), dtype,
                                 SW_SHAPE(3, rows));
    all[n_in] = sw_part_change(p, SW_SPREAD_CUT, all[n_in], SW_SPREAD_WHOLE, 0);
    attrs.linear_ce.tile.partial = false;
    const int32_t i = sw_graph_emit(g, SW_OP_LINEAR_CE_MERGE, all, n_in + 1, &attrs);
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    for (int k = 0; k < op->n_out && i >= 0; k++) {
        sw_part_set(p, op->out[k], &whole, g->ops[i].out[k]);
    }
}

bool sw_part_by_words(struct sw_part_pass *p, const struct sw_op *op)
{
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    const struct sw_spread copied = sw_spread_of(SW_SPREAD_COPIED);
    sw_value in[SW_MAX_INPUTS];
    if (!p->ranks.words || op->kind != SW_OP_LINEAR_CE) {
        return false;
    }
    const struct sw_spread *words = &p->forms[op->in[1]].native;
    const bool is_cut = words->kind == SW_SPREAD_CUT && words->parts == p->ranks.n &&
                        words->split.dim == 0 && words->split.n_groups == 1;
    if (!is_cut || (op->n_in > 3 && !sw_spread_equal(words, &p->forms[op->in[3]].native))) {
        return false;
    }
    const struct sw_spread *const want[4] = {&copied, words, &whole, words};
    for (int k = 0; k < op->n_in; k++) {
        if (!sw_part_can(p, op->in[k], want[k])) {
            return false;
        }
    }
    for (int k = 0; k < op->n_in; k++) {
        in[k] = sw_graph_dense(p->out, sw_part_in(p, op->in[k], want[k]));
    }
    if (p->out->status >= 0) {
        merge_words(p, op, in, op->n_in);
    }
    return true;
}

/* Adds the same for logits of which each rank has some classes. */
static void merge_classes(struct sw_part_pass *p, const struct sw_op *op, sw_value logits,
                          sw_value labels)
{
    struct sw_graph *g = p->out;
    struct sw_attrs attrs = op->attrs;
    const int64_t rows = sw_shape_rows(&sw_part_info(p, op->in[0])->shape);
    const enum sw_dtype dtype = sw_stat_dtype(g->values[logits].dtype);
    attrs.cross_entropy.whole = sw_shape_last(&sw_part_info(p, op->in[0])->shape);
    attrs.cross_entropy.first = p->ranks.me * sw_shape_last(&g->values[logits].shape);
    attrs.cross_entropy.partial = true;
    sw_value in[3] = {logits, labels};
    in[2] = sw_graph_add_out(g, sw_graph_add_op(g, SW_OP_CROSS_ENTROPY, in, 2, &attrs), dtype,
                             SW_SHAPE(4, rows));
    in[2] = sw_part_change(p, SW_SPREAD_CUT, in[2], SW_SPREAD_WHOLE, 0);
    attrs.cross_entropy.partial = false;
    const int32_t i = sw_graph_emit(g, SW_OP_CROSS_ENTROPY_MERGE, in, 3, &attrs);
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    for (int k = 0; k < op->n_out && i >= 0; k++) {
        sw_part_set(p, op->out[k], &whole, g->ops[i].out[k]);
    }
}

bool sw_part_by_classes(struct sw_part_pass *p, const struct sw_op *op)
{
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    if (!p->ranks.words || op->kind != SW_OP_CROSS_ENTROPY) {
        return false;
    }
    const struct sw_spread *classes = &p->forms[op->in[0]].native;
    if (!sw_part_is_model_cut(p, op->in[0]) || classes->parts != p->ranks.n ||
        classes->split.dim != sw_part_info(p, op->in[0])->shape.rank - 1 ||
        classes->split.n_groups != 1 || !sw_part_can(p, op->in[1], &whole)) {
        return false;
    }
    const sw_value logits = sw_graph_dense(p->out, sw_part_in(p, op->in[0], classes));
    const sw_value labels = sw_graph_dense(p->out, sw_part_in(p, op->in[1], &whole));
    if (p->out->status >= 0) {
        merge_classes(p, op, logits, labels);
    }
    return true;
}
