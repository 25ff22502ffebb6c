// SPDX-License-Identifier: Apache-2.0
// Fuses neighbouring kernels: product + bias + activation, residual + norm, and products with what
// decodes their quantized weight, so that none is decoded as a whole. It runs before every other
// pass, and its result fixes the arithmetic of training.
#include <string.h>

#include "plan/private.h"

struct pass {
    struct sw_graph *g;
    const struct sw_plan_options *options;
    int32_t *uses; /* [n_values] number of operands that read it */
    bool *gone;    /* [n_ops] fused into another op */
};

/* Counts the readers of each value. A gradient stream counts, since the update reads it. */
static void count_uses(const struct pass *p)
{
    const struct sw_graph *g = p->g;
    for (int32_t i = 0; i < g->n_ops; i++) {
        for (int k = 0; k < g->ops[i].n_in; k++) {
            p->uses[g->ops[i].in[k]]++;
        }
    }
    for (int32_t i = 0; i < g->n_streams; i++) {
        p->uses[g->streams[i].grad]++;
    }
}

/* The op that makes v, if v has one reader and is not an output. */
static struct sw_op *sole_producer(const struct pass *p, sw_value v, enum sw_op_kind kind)
{
    const struct sw_value_info *info = &p->g->values[v];
    if (p->uses[v] != 1 || info->is_output || info->producer < 0) {
        return NULL;
    }
    struct sw_op *op = &p->g->ops[info->producer];
    return op->kind == kind && !p->gone[info->producer] ? op : NULL;
}

/* The innermost block around a scope; -1 = none. */
static int32_t block_of(const struct sw_graph *g, int32_t scope)
{
    while (scope >= 0 && !g->scopes[scope].is_block) {
        scope = g->scopes[scope].parent;
    }
    return scope;
}

/* Makes v output i_out of `to`. If another op made it, the caller drops that op. */
static void take_output(struct sw_graph *g, struct sw_op *to, int i_out, sw_value v)
{
    to->out[i_out] = v;
    g->values[v].producer = (int32_t)(to - g->ops);
}

/* Makes the addition of a bias part of the product before it. */
static void fuse_bias(const struct pass *p, int32_t i)
{
    const struct sw_op *add = &p->g->ops[i];
    const struct sw_value_info *bias = &p->g->values[add->in[1]];
    struct sw_op *product = sole_producer(p, add->in[0], SW_OP_MATMUL);
    if (!product || product->attrs.matmul.has_bias || product->phase != add->phase ||
        bias->shape.rank != 1 || bias->producer >= 0) {
        return; /* the bias must exist before the product, so only a leaf is possible */
    }
    product->attrs.matmul.has_bias = true;
    product->in[product->n_in++] = add->in[1];
    take_output(p->g, product, 0, add->out[0]);
    p->gone[i] = true;
}

/* Makes an activation part of the product before it. If its input has other readers, the product
 * writes both. */
static void fuse_act(const struct pass *p, int32_t i)
{
    const struct sw_op *act = &p->g->ops[i];
    const sw_value pre = act->in[0];
    const struct sw_value_info *info = &p->g->values[pre];
    if (info->producer < 0 || info->is_output || info->base >= 0) {
        return;
    }
    struct sw_op *product = &p->g->ops[info->producer];
    if (product->kind != SW_OP_MATMUL || p->gone[info->producer] ||
        product->attrs.matmul.act != SW_ACT_NONE || product->out[0] != pre ||
        product->phase != act->phase) {
        return;
    }
    product->attrs.matmul.act = act->attrs.act.act;
    take_output(p->g, product, 0, act->out[0]);
    if (p->uses[pre] > 1) { /* backward reads the input of the activation */
        product->n_out = 2;
        take_output(p->g, product, 1, pre);
    }
    p->gone[i] = true;
}

/* Fuses a sum and its norm into one op. false = not possible */
static bool join_norm(const struct pass *p, const struct sw_op *norm, struct sw_op *out)
{
    const struct sw_graph *g = p->g;
    const struct sw_value_info *info = &g->values[norm->in[0]];
    if (info->producer < 0 || info->base >= 0) {
        return false;
    }
    const struct sw_op *add = &g->ops[info->producer];
    const int n_vectors = norm->n_in - 1; /* the weight, and the bias if there is one */
    bool are_leaves = true;
    for (int k = 1; k <= n_vectors; k++) {
        are_leaves = are_leaves && g->values[norm->in[k]].producer < 0;
    }
    if (!are_leaves || add->kind != SW_OP_ADD || p->gone[info->producer] ||
        add->phase != norm->phase ||
        !sw_shape_equal(&g->values[add->in[0]].shape, &g->values[add->in[1]].shape)) {
        return false;
    }
    /* Do not fuse across the border of a block: recomputing one block would need the norm of the
     * next. */
    if (block_of(g, add->scope) != block_of(g, norm->scope)) {
        return false;
    }
    *out = *add;
    out->kind = norm->kind == SW_OP_RMS_NORM ? SW_OP_ADD_RMS_NORM : SW_OP_ADD_LAYER_NORM;
    out->attrs = norm->attrs;
    out->n_in = 2 + n_vectors;
    for (int k = 0; k < n_vectors; k++) {
        out->in[2 + k] = norm->in[1 + k];
    }
    out->n_out = 1 + norm->n_out;
    for (int k = 0; k < norm->n_out; k++) {
        out->out[1 + k] = norm->out[k];
    }
    return true;
}

/* Makes a sum and its norm one op, if the device has a kernel for that. */
static sw_status fuse_norm(const struct pass *p, int32_t i)
{
    struct sw_graph *g = p->g;
    const struct sw_op *norm = &g->ops[i];
    struct sw_op joined;
    struct sw_op_desc desc;
    struct sw_kernel_info kernel = {0};
    if (!join_norm(p, norm, &joined)) {
        return SW_OK;
    }
    sw_graph_describe(g, &joined, &desc);
    p->options->device.query(p->options->device.ctx, &desc, &kernel);
    if (kernel.no_memory) { /* another time there may be one, which would be another fingerprint */
        return sw_fail_prefix(SW_E_NOMEM, "a kernel of %s", sw_op_name(&joined));
    }
    if (!kernel.supported) {
        return SW_OK;
    }
    struct sw_op *add = &g->ops[g->values[norm->in[0]].producer];
    *add = joined;
    for (int k = 0; k < joined.n_out; k++) {
        take_output(g, add, k, joined.out[k]);
    }
    p->gone[i] = true;
    return SW_OK;
}

/* Chooses the pieces of products of large parameters. */
static void cut_products(const struct pass *p)
{
    struct sw_graph *g = p->g;
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct sw_op *op = &g->ops[i];
        const struct sw_value_info *b = &g->values[op->kind == SW_OP_MATMUL ? op->in[1] : 0];
        if (op->kind == SW_OP_MATMUL && b->role == SW_ROLE_PARAM && b->producer < 0 &&
            !op->attrs.matmul.ta) {
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

/* If the weight of a product is decoded from a quantized one, makes the product decode it. The
 * decoding itself stays for readers other than products. */
static void fuse_weight(const struct pass *p, struct sw_op *product)
{
    struct sw_graph *g = p->g;
    const sw_value weight = product->in[1];
    const int32_t maker = g->values[weight].producer;
    const struct sw_op *decode = maker >= 0 ? &g->ops[maker] : NULL;
    if (!decode || decode->kind != SW_OP_DEQUANTIZE || product->attrs.matmul.ta) {
        return;
    }
    const sw_value bias = product->in[product->n_in - 1];
    product->kind = SW_OP_QUANTIZED_MATMUL;
    product->attrs.weight = decode->attrs.weight;
    product->n_in = 1;
    for (int k = 0; k < decode->n_in; k++) {
        product->in[product->n_in++] = decode->in[k];
    }
    if (product->attrs.matmul.has_bias) {
        product->in[product->n_in++] = bias;
    }
    p->uses[weight]--;
    p->gone[maker] = p->uses[weight] == 0 && !g->values[weight].is_output;
}

static void fuse_weights(const struct pass *p)
{
    for (int32_t i = 0; i < p->g->n_ops; i++) {
        if (!p->gone[i] && p->g->ops[i].kind == SW_OP_MATMUL) {
            fuse_weight(p, &p->g->ops[i]);
        }
    }
}

/* Removes fused ops from the list. Values keep their numbers; values without a maker lose their
 * producer. */
static void drop_gone(const struct pass *p)
{
    struct sw_graph *g = p->g;
    int32_t n = 0;
    for (sw_value v = 0; v < g->n_values; v++) {
        g->values[v].producer = -1;
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (p->gone[i]) {
            continue;
        }
        for (int k = 0; k < g->ops[i].n_out; k++) {
            if (g->ops[i].out[k] >= 0) {
                g->values[g->ops[i].out[k]].producer = n;
            }
        }
        g->ops[n++] = g->ops[i];
    }
    g->n_ops = n;
}

/* Fuses in the order of the list, so a product has its bias before its activation. */
static sw_status run(const struct pass *p)
{
    count_uses(p);
    for (int32_t i = 0; i < p->g->n_ops; i++) {
        switch (p->gone[i] ? SW_N_OP_KINDS : p->g->ops[i].kind) {
        case SW_OP_ADD:
            fuse_bias(p, i);
            break;
        case SW_OP_ACT:
            fuse_act(p, i);
            break;
        case SW_OP_LAYER_NORM:
        case SW_OP_RMS_NORM:
            SW_TRY(fuse_norm(p, i));
            break;
        default:
            break;
        }
    }
    cut_products(p);
    fuse_weights(p);
    drop_gone(p);
    return SW_OK;
}

sw_status sw_pass_fuse(const struct sw_graph *g, const struct sw_plan_options *options,
                       struct sw_graph **out)
{
    struct pass p = {.options = options};
    SW_TRY(sw_graph_status(g));
    SW_TRY(sw_graph_copy(g, &p.g));
    p.uses = sw_alloc_zero("plan", (size_t)g->n_values + 1, sizeof *p.uses);
    p.gone = sw_alloc_zero("plan", (size_t)g->n_ops + 1, sizeof *p.gone);
    const sw_status st =
        p.uses && p.gone ? run(&p) : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    if (st >= 0) {
        *out = p.g;
    } else {
        sw_graph_close(p.g);
    }
    sw_free(p.uses);
    sw_free(p.gone);
    return st;
}
