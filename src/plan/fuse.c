// SPDX-License-Identifier: Apache-2.0
// Joins what the kernels do in one sweep: product + bias + activation, residual + norm. Runs before
// every other pass: what it leaves is the arithmetic of the training.
#include <string.h>

#include "plan/plan.h"

/* How many operands read v. */
static int32_t *count_uses(const struct sw_graph *g)
{
    int32_t *uses = sw_alloc_zero("plan", (size_t)g->n_values, sizeof *uses);
    for (int32_t i = 0; uses && i < g->n_ops; i++) {
        for (int k = 0; !g->ops[i].removed && k < g->ops[i].n_in; k++) {
            uses[g->ops[i].in[k]]++;
        }
    }
    for (int32_t i = 0; uses && i < g->n_streams; i++) {
        uses[g->streams[i].grad]++;
    }
    return uses;
}

/* The live op that makes v, when v is read once only and is no output. */
static struct sw_op *sole_producer(struct sw_graph *g, const int32_t *uses, sw_value v,
                                   enum sw_op_kind kind)
{
    const struct sw_value_info *info = &g->values[v];
    if (uses[v] != 1 || info->is_output || info->producer < 0) {
        return NULL;
    }
    struct sw_op *op = &g->ops[info->producer];
    return op->kind == kind && !op->removed ? op : NULL;
}

/* The innermost block around a scope, -1 outside of blocks. */
static int32_t block_of(const struct sw_graph *g, int32_t scope)
{
    while (scope >= 0 && !g->scopes[scope].is_block) {
        scope = g->scopes[scope].parent;
    }
    return scope;
}

static void take_output(struct sw_graph *g, struct sw_op *to, int i_out, sw_value v)
{
    to->out[i_out] = v;
    g->values[v].producer = (int32_t)(to - g->ops);
}

static void fuse_bias(struct sw_graph *g, const int32_t *uses, struct sw_op *add)
{
    const struct sw_value_info *bias = &g->values[add->in[1]];
    struct sw_op *product = sole_producer(g, uses, add->in[0], SW_OP_MATMUL);
    if (!product || product->attrs.matmul.has_bias || product->phase != add->phase ||
        bias->shape.rank != 1 || bias->producer >= 0) {
        return; /* the bias must exist before the product: a leaf does */
    }
    product->attrs.matmul.has_bias = true;
    product->in[product->n_in++] = add->in[1];
    take_output(g, product, 0, add->out[0]);
    add->removed = true;
}

static void fuse_act(struct sw_graph *g, const int32_t *uses, struct sw_op *act)
{
    const sw_value pre = act->in[0];
    const struct sw_value_info *info = &g->values[pre];
    if (info->producer < 0 || info->is_output || info->base >= 0) {
        return;
    }
    struct sw_op *product = &g->ops[info->producer];
    if (product->kind != SW_OP_MATMUL || product->removed ||
        product->attrs.matmul.act != SW_ACT_NONE || product->out[0] != pre ||
        product->phase != act->phase) {
        return;
    }
    product->attrs.matmul.act = act->attrs.act.act;
    take_output(g, product, 0, act->out[0]);
    if (uses[pre] > 1) { /* backward reads what the activation was given */
        product->n_out = 2;
        take_output(g, product, 1, pre);
    }
    act->removed = true;
}

static void fuse_norm(struct sw_graph *g, struct sw_op *norm, const struct sw_plan_options *options)
{
    const struct sw_value_info *info = &g->values[norm->in[0]];
    if (info->producer < 0 || info->base >= 0) {
        return;
    }
    struct sw_op *add = &g->ops[info->producer];
    if (add->kind != SW_OP_ADD || add->removed || add->phase != norm->phase ||
        !sw_shape_equal(&g->values[add->in[0]].shape, &g->values[add->in[1]].shape) ||
        g->values[norm->in[1]].producer >= 0 || g->values[norm->in[2]].producer >= 0) {
        return;
    }
    /* Across the border of a block, recomputing one block would need the norm of the next. */
    if (block_of(g, add->scope) != block_of(g, norm->scope)) {
        return;
    }
    struct sw_op joined = *add;
    joined.kind = SW_OP_ADD_LAYER_NORM;
    joined.attrs = norm->attrs;
    joined.n_in = 4;
    joined.in[2] = norm->in[1];
    joined.in[3] = norm->in[2];
    joined.n_out = 4;
    for (int k = 0; k < 3; k++) {
        joined.out[1 + k] = norm->out[k];
    }
    struct sw_op_desc desc;
    struct sw_kernel_info kernel = {0};
    sw_graph_describe(g, &joined, &desc);
    options->query(options->query_ctx, &desc, &kernel);
    if (!kernel.supported) {
        return;
    }
    *add = joined;
    for (int k = 0; k < 4; k++) {
        take_output(g, add, k, joined.out[k]);
    }
    norm->removed = true;
}

/* How products of large parameters are cut. */
static void cut_products(struct sw_graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct sw_op *op = &g->ops[i];
        const struct sw_value_info *b = &g->values[op->kind == SW_OP_MATMUL ? op->in[1] : 0];
        if (op->kind == SW_OP_MATMUL && !op->removed && b->role == SW_ROLE_PARAM &&
            b->producer < 0 && !op->attrs.matmul.ta) {
            op->attrs.matmul.piece = sw_piece_rows(&b->shape);
        }
    }
    for (int32_t i = 0; i < g->n_streams; i++) {
        const struct sw_value_info *grad = &g->values[g->streams[i].grad];
        struct sw_op *op = grad->producer >= 0 ? &g->ops[grad->producer] : NULL;
        if (op && op->kind == SW_OP_MATMUL && op->attrs.matmul.ta && !op->attrs.matmul.tb) {
            op->attrs.matmul.piece = sw_piece_rows(&g->values[g->streams[i].param].shape);
        }
    }
}

void sw_pass_fuse(struct sw_graph *g, const struct sw_plan_options *options)
{
    int32_t *uses = count_uses(g);
    if (!uses) {
        sw_graph_fail(g, SW_E_NOMEM, "out of host memory for the plan");
        return;
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct sw_op *op = &g->ops[i];
        if (op->removed) {
            continue;
        }
        if (op->kind == SW_OP_ADD) {
            fuse_bias(g, uses, op);
        } else if (op->kind == SW_OP_ACT) {
            fuse_act(g, uses, op);
        } else if (op->kind == SW_OP_LAYER_NORM) {
            fuse_norm(g, op, options);
        }
    }
    cut_products(g);
    sw_free(uses);
}
