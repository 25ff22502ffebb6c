// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: builders and gradient rules. A router chooses experts for each token. The
// chosen (token, expert) pairs become rows, those of an expert together; every expert multiplies
// its rows, and the rows of a token are added with their weights. The number of an expert's rows is
// known only at run time, so buffers have room for all of them.
#include "graph/private.h"

static const struct sw_value_info *info_of(const sw_graph *g, sw_value v)
{
    return &g->values[v];
}

/* ---- routes ---- */

static bool router_fits(sw_graph *g, sw_value logits, sw_value bias, sw_value mask,
                        const struct sw_router_attrs *attrs)
{
    if (!sw_graph_usable(g, logits, "router")) {
        return false;
    }
    const struct sw_shape *shape = &info_of(g, logits)->shape;
    const int64_t n = shape->rank == 2 ? shape->dims[1] : 0;
    const struct sw_shape one_each = SW_SHAPE(n);
    const struct sw_shape tokens = SW_SHAPE(shape->rank == 2 ? shape->dims[0] : 0);
    const int64_t among = attrs->groups > 0 ? n / attrs->groups * attrs->kept : n;
    if (n < 1 || (bias >= 0 && !sw_shape_equal(&info_of(g, bias)->shape, &one_each)) ||
        (mask >= 0 && !sw_shape_equal(&info_of(g, mask)->shape, &tokens))) {
        sw_graph_bad_shapes(g, "router", logits, bias >= 0 ? bias : mask,
                            "wants logits [N, E], a bias [E] and a mask [N]");
        return false;
    }
    if (attrs->k < 1 || attrs->k > among || (attrs->groups > 0 && n % attrs->groups != 0)) {
        sw_graph_fail(g, SW_E_ARG,
                      "router: %lld of %lld experts, %lld of %lld groups; wanted no more experts "
                      "than the kept groups have, and groups of equal size",
                      (long long)attrs->k, (long long)n, (long long)attrs->kept,
                      (long long)attrs->groups);
        return false;
    }
    return true;
}

struct sw_routes sw_route(sw_graph *g, sw_value logits, sw_value bias, sw_value mask,
                          const struct sw_router_attrs *attrs, int64_t capacity, int64_t ranks)
{
    struct sw_routes r = {SW_NO_VALUE, SW_NO_VALUE, SW_NO_VALUE,
                          SW_NO_VALUE, SW_NO_VALUE, SW_NO_VALUE};
    if (!router_fits(g, logits, bias, mask, attrs)) {
        return r;
    }
    const struct sw_attrs choice = {.experts = {.router = *attrs}};
    const struct sw_attrs rows = {
        .experts = {.n = info_of(g, logits)->shape.dims[1], .capacity = capacity, .ranks = ranks}};
    const sw_value in[2] = {sw_graph_dense(g, logits), bias};
    const int32_t router = sw_graph_emit(g, SW_OP_ROUTER, in, bias >= 0 ? 2 : 1, &choice);
    if (router < 0) {
        return r;
    }
    r.weights = g->ops[router].out[0];
    r.experts = g->ops[router].out[1];
    const int32_t sort = sw_graph_emit(g, SW_OP_EXPERT_ROWS, &r.experts, 1, &rows);
    if (sort < 0) {
        return r;
    }
    r.slots = g->ops[sort].out[0];
    r.sources = g->ops[sort].out[1];
    r.offsets = g->ops[sort].out[2];
    const sw_value of[4] = {in[0], r.experts, r.slots, mask};
    r.stats = sw_graph_emit_one(g, SW_OP_ROUTER_STATS, of, mask >= 0 ? 4 : 3, NULL);
    return r;
}

void sw_grad_router(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                    sw_value *d_in)
{
    const sw_value in[3] = {d_out[0], op->in[0], op->out[1]};
    if (d_out[0] >= 0) {
        d_in[0] = sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_ROUTER_GRAD, in, 3, &op->attrs),
                                        op->in[0]);
    }
}

void sw_grad_router_stats(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                          sw_value *d_in)
{
    const sw_value in[3] = {d_out[0], op->in[0], op->n_in > 3 ? op->in[3] : SW_NO_VALUE};
    d_in[0] = sw_graph_gradient_out(
        g, sw_graph_add_op(g, SW_OP_ROUTER_STATS_GRAD, in, op->n_in > 3 ? 3 : 2, &op->attrs),
        op->in[0]);
}

sw_value sw_router_loss(sw_graph *g, sw_value stats, bool z)
{
    if (!sw_graph_usable(g, stats, "router loss")) {
        return SW_NO_VALUE;
    }
    const struct sw_attrs attrs = {.experts = {.z = z}};
    const int32_t i = sw_graph_emit(g, SW_OP_ROUTER_LOSS, &stats, 1, &attrs);
    if (i < 0) {
        return SW_NO_VALUE;
    }
    const sw_value in[2] = {g->ops[i].out[0], g->ops[i].out[1]};
    const struct sw_attrs mean = {.loss_mean = {.weight = g->token_mean ? 1 : 0}};
    return sw_graph_emit_one(g, SW_OP_LOSS_MEAN, in, 2, &mean);
}

void sw_grad_router_loss(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                         sw_value *d_in)
{
    const sw_value in[2] = {d_out[0], op->in[0]};
    if (d_out[0] >= 0) {
        d_in[0] = sw_graph_gradient_out(
            g, sw_graph_add_op(g, SW_OP_ROUTER_LOSS_GRAD, in, 2, &op->attrs), op->in[0]);
    }
}

sw_value sw_expert_loads(sw_graph *g, const struct sw_routes *routes)
{
    return sw_graph_usable(g, routes->offsets, "expert loads")
               ? sw_graph_emit_one(g, SW_OP_EXPERT_LOADS, &routes->offsets, 1, NULL)
               : SW_NO_VALUE;
}

/* ---- ranks ---- */

sw_value sw_experts_exchange(sw_graph *g, sw_value x, sw_value sent, sw_value received,
                             const struct sw_expert_ranks *ranks)
{
    const struct sw_exchange_attrs attrs = {.from = SW_SPREAD_CUT,
                                            .to = SW_SPREAD_CUT,
                                            .axis = ranks->axis,
                                            .ranks = ranks->n,
                                            .me = ranks->me};
    return ranks->n <= 1 ? x
           : sent >= 0   ? sw_graph_exchange_rows(g, x, sent, received, &attrs)
                         : sw_graph_exchange(g, x, &attrs);
}

void sw_param_of_expert(sw_graph *g, sw_value param, bool mine)
{
    if (param >= 0) {
        g->values[param].is_local = true;
        g->values[param].is_elsewhere = !mine;
    }
}

void sw_param_of_experts(sw_graph *g, sw_value param, int64_t n)
{
    if (param < 0 || sw_graph_param_part(g, param) ||
        !sw_graph_grow(g, (void **)&g->parts, g->n_parts, sizeof *g->parts)) {
        return;
    }
    struct sw_shape whole = info_of(g, param)->shape;
    whole.dims[0] = n;
    g->values[param].is_local = true;
    g->parts[g->n_parts++] =
        (struct sw_param_part){.param = param,
                               .whole = whole,
                               .split = {.dim = 0, .n_groups = 1, .group = {n}, .unit = 1},
                               .of_experts = true};
}

/* ---- rows ---- */

sw_value sw_to_experts(sw_graph *g, sw_value x, const struct sw_routes *routes)
{
    if (!sw_graph_usable(g, x, "to experts") || !sw_graph_usable(g, routes->slots, "to experts")) {
        return SW_NO_VALUE;
    }
    const struct sw_shape *shape = &info_of(g, x)->shape;
    if (shape->rank != 2 || shape->dims[0] != info_of(g, routes->slots)->shape.dims[0]) {
        return sw_graph_bad_shapes(g, "to experts", x, routes->slots,
                                   "wants x [N, C] and choices [N, k]");
    }
    const sw_value in[3] = {sw_graph_dense(g, x), routes->slots, routes->sources};
    return sw_graph_emit_one(g, SW_OP_TO_EXPERTS, in, 3, NULL);
}

void sw_grad_to_experts(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                        sw_value *d_in)
{
    const sw_value in[3] = {d_out[0], op->in[1], op->in[2]};
    d_in[0] =
        sw_graph_gradient_out(g, sw_graph_add_op(g, SW_OP_FROM_EXPERTS, in, 3, NULL), op->in[0]);
}

sw_value sw_from_experts(sw_graph *g, sw_value y, const struct sw_routes *routes)
{
    if (!sw_graph_usable(g, y, "from experts")) {
        return SW_NO_VALUE;
    }
    const struct sw_shape *shape = &info_of(g, y)->shape;
    if (shape->rank != 2 || shape->dims[0] != info_of(g, routes->sources)->shape.dims[0]) {
        return sw_graph_bad_shapes(g, "from experts", y, routes->sources,
                                   "wants y [R, C] and sources [R]");
    }
    const sw_value in[4] = {sw_graph_dense(g, y), routes->slots, routes->sources, routes->weights};
    return sw_graph_emit_one(g, SW_OP_FROM_EXPERTS, in, 4, NULL);
}

void sw_grad_from_experts(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                          sw_value *d_in)
{
    const sw_value in[5] = {d_out[0], op->in[0], op->in[1], op->in[2], op->in[3]};
    const int32_t i = sw_graph_add_op(g, SW_OP_FROM_EXPERTS_GRAD, in, 5, NULL);
    d_in[0] = sw_graph_gradient_out(g, i, op->in[0]);
    d_in[3] = sw_graph_gradient_out(g, i, op->in[3]);
}

sw_value sw_clamped_gate(sw_graph *g, sw_value x, double alpha, double limit)
{
    if (!sw_graph_usable(g, x, "clamped gate")) {
        return SW_NO_VALUE;
    }
    const struct sw_shape *shape = &info_of(g, x)->shape;
    if (shape->rank != 2 || shape->dims[1] % 2 != 0) {
        return sw_graph_bad_shapes(g, "clamped gate", x, SW_NO_VALUE, "wants x [R, 2 F]");
    }
    const struct sw_attrs attrs = {.experts = {.alpha = alpha, .limit = limit}};
    x = sw_graph_dense(g, x);
    return sw_graph_emit_one(g, SW_OP_CLAMPED_GATE, &x, 1, &attrs);
}

/* ---- products ---- */

/* Checks the weights of an expert, or of all. */
static bool weights_fit(sw_graph *g, sw_value x, const struct sw_routes *routes, sw_value w,
                        int64_t n, bool in_out)
{
    if (!sw_graph_usable(g, w, "expert linear")) {
        return false;
    }
    const struct sw_shape *shape = &info_of(g, w)->shape;
    const int64_t experts = sw_shape_last(&info_of(g, routes->offsets)->shape) - 2;
    const int rank = shape->rank;
    const bool all = rank == 3 && n == 1 && shape->dims[0] == experts;
    if (!(all || (rank == 2 && n == experts)) ||
        sw_shape_last(&info_of(g, x)->shape) != shape->dims[in_out ? rank - 2 : rank - 1]) {
        sw_graph_bad_shapes(g, "expert linear", x, w,
                            in_out ? "wants weights [in, out] for each expert"
                                   : "wants weights [out, in] for each expert");
        return false;
    }
    return true;
}

/* Writes the rows of one expert (or all) of y = x w + bias; `before` has rows of others, or is
 * SW_NO_VALUE. */
static sw_value product(sw_graph *g, sw_value x, sw_value offsets, sw_value w, sw_value bias,
                        sw_value before, struct sw_experts_attrs attrs)
{
    sw_value in[5] = {x, offsets, w};
    int n_in = 3;
    attrs.has_bias = bias >= 0;
    attrs.continues = before >= 0;
    if (bias >= 0) {
        in[n_in++] = bias;
    }
    if (before >= 0) {
        in[n_in++] = before;
    }
    const struct sw_attrs all = {.experts = attrs};
    if (before < 0) {
        return sw_graph_emit_one(g, SW_OP_EXPERT_MATMUL, in, n_in, &all);
    }
    const int32_t i = sw_graph_add_op(g, SW_OP_EXPERT_MATMUL, in, n_in, &all);
    return i < 0 ? SW_NO_VALUE : sw_graph_add_out_in_place(g, i, before);
}

sw_value sw_expert_linear(sw_graph *g, sw_value x, const struct sw_routes *routes,
                          const sw_value *weights, const sw_value *biases, int64_t n, bool in_out)
{
    sw_value y = SW_NO_VALUE;
    if (!sw_graph_usable(g, x, "expert linear") ||
        !sw_graph_usable(g, routes->offsets, "expert linear")) {
        return SW_NO_VALUE;
    }
    x = sw_graph_dense(g, x);
    for (int64_t e = 0; e < n; e++) {
        const struct sw_experts_attrs attrs = {.expert = e, .tb = !in_out, .ends = e == n - 1};
        if (!weights_fit(g, x, routes, weights[e], n, in_out)) {
            return SW_NO_VALUE;
        }
        y = product(g, x, routes->offsets, weights[e], biases ? biases[e] : SW_NO_VALUE, y, attrs);
    }
    return y;
}

/* The gradient of x. Its ops write rows of one value in turn, as those of forward do: the first op
 * that is differentiated, the last of forward, makes all of them. */
static sw_value gradient_of_rows(struct sw_graph *g, const struct sw_op *last, sw_value dy)
{
    sw_value dx = SW_NO_VALUE;
    for (struct sw_op op = *last;;) {
        const struct sw_experts_attrs attrs = {
            .expert = op.attrs.experts.expert, .tb = !op.attrs.experts.tb, .ends = true};
        dx = product(g, dy, op.in[1], op.in[2], SW_NO_VALUE, dx, attrs);
        if (!op.attrs.experts.continues || dx < 0) {
            return dx;
        }
        op = g->ops[info_of(g, op.in[op.n_in - 1])->producer];
    }
}

/* The parameter behind the exchanges that make what a product reads of it. *grad, the gradient of
 * what is read, becomes that of the parameter. */
static sw_value parameter_of(struct sw_graph *g, sw_value read, sw_value *grad)
{
    while (info_of(g, read)->role != SW_ROLE_PARAM) {
        const struct sw_op view = g->ops[info_of(g, read)->producer];
        SW_ASSERT(view.kind == SW_OP_VIEW && view.attrs.view.exchange.ranks > 0);
        *grad = sw_graph_exchange_gradient(g, *grad, view.in[0], &view.attrs.view.exchange);
        read = view.in[0];
    }
    return read;
}

/* Gradients of the weights, and of a bias, for the rows of each part. Streams are listed backwards,
 * so the part that continues comes first. */
static void gradients_of_parts(struct sw_graph *g, const struct sw_op *op, const sw_value *in,
                               int64_t parts)
{
    const int n = op->attrs.experts.has_bias ? 2 : 1;
    sw_value grads[2][SW_MOST_EXPERT_RANKS], params[2];
    SW_ASSERT(parts <= SW_MOST_EXPERT_RANKS);
    for (int64_t p = 0; p < parts; p++) {
        struct sw_attrs attrs = op->attrs;
        attrs.experts.part = p;
        const int32_t i = sw_graph_add_op(g, SW_OP_EXPERT_MATMUL_GRAD, in, 3, &attrs);
        for (int k = 0; k < n; k++) {
            grads[k][p] = sw_graph_gradient_out(g, i, op->in[SW_EXPERTS_WEIGHTS + k]);
        }
        for (int k = 0; k < n; k++) {
            params[k] = parameter_of(g, op->in[SW_EXPERTS_WEIGHTS + k], &grads[k][p]);
        }
    }
    for (int64_t p = parts - 1; p >= 0; p--) {
        for (int k = 0; k < n; k++) {
            if (grads[k][p] >= 0) {
                sw_graph_add_stream(g, params[k], grads[k][p], p > 0);
            }
        }
    }
}

void sw_grad_expert_matmul(struct sw_graph *g, const struct sw_op *op, const sw_value *d_out,
                           sw_value *d_in)
{
    const struct sw_experts_attrs *attrs = &op->attrs.experts;
    const sw_value in[3] = {d_out[0], op->in[0], op->in[1]};
    const sw_value bias = attrs->has_bias ? op->in[3] : SW_NO_VALUE;
    if (attrs->continues) {
        d_in[op->n_in - 1] = d_out[0]; /* of which that op reads its own rows */
    }
    if (attrs->ends && sw_graph_wants(g, op->in[0])) {
        d_in[0] = gradient_of_rows(g, op, d_out[0]);
    }
    if (!sw_graph_wants(g, op->in[2]) && !sw_graph_wants(g, bias)) {
        return;
    }
    const struct sw_shape *offsets = &info_of(g, op->in[1])->shape;
    if (offsets->rank == 2) { /* a gradient for the rows of each rank, which are a micro-batch */
        gradients_of_parts(g, op, in, offsets->dims[0]);
        return;
    }
    const int32_t i = sw_graph_add_op(g, SW_OP_EXPERT_MATMUL_GRAD, in, 3, &op->attrs);
    d_in[2] = sw_graph_gradient_out(g, i, op->in[2]);
    if (bias >= 0) {
        d_in[3] = sw_graph_gradient_out(g, i, bias);
    }
}
