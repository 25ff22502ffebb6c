// SPDX-License-Identifier: Apache-2.0
// One row per kind of op: its name, operands and outputs, cost, and how it may be cut.
#include <string.h>

#include "graph/private.h"

/* ---- aliasing ---- */

static int in_first(const struct sw_op *op, int k)
{
    (void)op;
    return k == 0 ? 0 : -1;
}

static int in_same(const struct sw_op *op, int k)
{
    (void)op;
    return k;
}

/* The moments are the last two states. */
static int in_moments(const struct sw_op *op, int k)
{
    return k < 2 ? op->attrs.update.rule.n_states - 1 + k : -1;
}

/* The momentum is the last state. */
static int in_momentum(const struct sw_op *op, int k)
{
    return k == 0 ? op->attrs.update.rule.n_states : -1;
}

/* In place: the parameter, its master, and the ratio, which follows states and norms. */
static int in_applied(const struct sw_op *op, int k)
{
    return k == op->n_out - 1 ? op->attrs.update.rule.n_states + 2 : k;
}

/* The means of squares are the last states: either two, or one without factors. */
static int in_squares(const struct sw_op *op, int k)
{
    const int n_squares = op->attrs.update.matrices > 0 ? 2 : 1;
    return k < n_squares ? op->attrs.update.rule.n_states + 1 - n_squares + k : -1;
}

/* The rows of other experts, if there are some. */
static int in_rows(const struct sw_op *op, int k)
{
    return k == 0 && op->attrs.experts.continues ? op->n_in - 1 : -1;
}

/* ---- shapes ---- */

static void set(struct sw_view *view, enum sw_dtype dtype, struct sw_shape shape)
{
    view->dtype = dtype;
    view->shape = shape;
}

static void like(struct sw_view *view, const struct sw_view *other)
{
    set(view, other->dtype, other->shape);
}

static struct sw_shape with_last(const struct sw_shape *shape, int64_t last)
{
    struct sw_shape out = *shape;
    out.dims[out.rank - 1] = last;
    return out;
}

static struct sw_shape without_last(const struct sw_shape *shape)
{
    struct sw_shape out = *shape;
    out.rank -= 1;
    return out;
}

static void shapes_like_first(const struct sw_op_desc *d, struct sw_view *out)
{
    like(&out[0], &d->in[0]);
}

static void shapes_embedding(const struct sw_op_desc *d, struct sw_view *out)
{
    struct sw_shape shape = d->in[1].shape;
    shape.dims[shape.rank++] = sw_shape_last(&d->in[0].shape);
    set(&out[0], d->in[0].dtype, shape);
}

static void shapes_embedding_grad(const struct sw_op_desc *d, struct sw_view *out)
{
    const int64_t n = sw_shape_elems(&d->in[1].shape);
    set(&out[0], d->in[0].dtype, SW_SHAPE(n, sw_shape_last(&d->in[0].shape)));
    set(&out[1], SW_I32, SW_SHAPE(n));
}

static void shapes_matmul(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_matmul_attrs *attrs = &d->op->attrs.matmul;
    const struct sw_shape *a = &d->in[0].shape, *b = &d->in[1].shape;
    const int64_t n = attrs->tb ? sw_shape_rows(b) : sw_shape_last(b);
    set(&out[0], d->in[0].dtype, attrs->ta ? SW_SHAPE(sw_shape_last(a), n) : with_last(a, n));
    like(&out[1], &out[0]); /* value before the activation, if requested */
}

/* y, and two numbers per row. */
static void set_norm(const struct sw_view *x, struct sw_view *out)
{
    like(&out[0], x);
    set(&out[1], sw_stat_dtype(x->dtype), without_last(&x->shape));
    like(&out[2], &out[1]);
}

static void shapes_layer_norm(const struct sw_op_desc *d, struct sw_view *out)
{
    set_norm(&d->in[0], out);
}

static void shapes_add_layer_norm(const struct sw_op_desc *d, struct sw_view *out)
{
    like(&out[0], &d->in[0]);
    set_norm(&d->in[0], &out[1]);
}

static void shapes_layer_norm_grad(const struct sw_op_desc *d, struct sw_view *out)
{
    like(&out[0], &d->in[1]);
    like(&out[1], &d->in[2]);
    like(&out[2], &d->in[2]);
}

static void set_rms_norm(const struct sw_view *x, struct sw_view *out)
{
    like(&out[0], x);
    set(&out[1], sw_stat_dtype(x->dtype), without_last(&x->shape));
}

static void shapes_rms_norm(const struct sw_op_desc *d, struct sw_view *out)
{
    set_rms_norm(&d->in[0], out);
}

static void shapes_add_rms_norm(const struct sw_op_desc *d, struct sw_view *out)
{
    like(&out[0], &d->in[0]);
    set_rms_norm(&d->in[0], &out[1]);
}

/* For RMS_NORM_GRAD and GATED_ACT_GRAD: the gradients of inputs 1 and 2. */
static void shapes_of_two_gradients(const struct sw_op_desc *d, struct sw_view *out)
{
    like(&out[0], &d->in[1]);
    like(&out[1], &d->in[2]);
}

int64_t sw_head_width(const struct sw_shape *x, int64_t heads)
{
    if (x->rank == 4) {
        return x->dims[2] == heads ? x->dims[3] : 0;
    }
    return x->rank == 3 && x->dims[2] % heads == 0 ? x->dims[2] / heads : 0;
}

int64_t sw_attention_width(const struct sw_attention_attrs *attrs, const struct sw_shape *q)
{
    return sw_head_width(q, attrs->packed ? attrs->heads + 2 * attrs->kv_heads : attrs->heads);
}

int sw_attention_bias_input(const struct sw_attention_attrs *attrs, int first)
{
    return first + (attrs->packed ? 1 : 3) + attrs->has_mask + attrs->has_position +
           attrs->has_slopes + attrs->has_segments;
}

static void shapes_attention(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_attention_attrs *attrs = &d->op->attrs.attention;
    const struct sw_shape *q = &d->in[0].shape;
    set(&out[0], d->in[0].dtype,
        SW_SHAPE(q->dims[0], q->dims[1], attrs->heads * sw_attention_width(attrs, q)));
    set(&out[1], sw_stat_dtype(d->in[0].dtype), SW_SHAPE(q->dims[0], attrs->heads, q->dims[1]));
}

static void shapes_attention_grad(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_attention_attrs *attrs = &d->op->attrs.attention;
    for (int k = 0; k < (attrs->packed ? 1 : 3); k++) {
        like(&out[k], &d->in[3 + k]);
    }
    if (attrs->has_bias) {
        like(&out[sw_attention_bias_output(attrs)], &d->in[sw_attention_bias_input(attrs, 3)]);
    }
}

static void shapes_last_index(const struct sw_op_desc *d, struct sw_view *out)
{
    set(&out[0], SW_I32, SW_SHAPE(d->in[0].shape.dims[0]));
}

static void shapes_select_rows(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_shape *x = &d->in[0].shape;
    set(&out[0], d->in[0].dtype, SW_SHAPE(x->dims[0], x->dims[2]));
}

static void shapes_second_like_first(const struct sw_op_desc *d, struct sw_view *out)
{
    like(&out[0], &d->in[1]);
}

/* Sum and count of the targets, and one number per row of logits. */
static void shapes_loss(const struct sw_op_desc *d, struct sw_view *out)
{
    const enum sw_dtype dtype = sw_stat_dtype(d->in[0].dtype);
    set(&out[0], dtype, SW_SHAPE(1));
    set(&out[1], dtype, SW_SHAPE(1));
    set(&out[2], dtype, SW_SHAPE(sw_shape_rows(&d->in[0].shape)));
}

/* The same, or each row's. */
static void shapes_linear_ce(const struct sw_op_desc *d, struct sw_view *out)
{
    shapes_loss(d, out);
    if (d->op->attrs.linear_ce.by_row) {
        out[0].shape = out[1].shape = d->in[2].shape;
    }
}

static void shapes_preference(const struct sw_op_desc *d, struct sw_view *out)
{
    set(&out[0], d->in[0].dtype, SW_SHAPE(1));
    set(&out[1], d->in[0].dtype, SW_SHAPE(1));
    set(&out[2], d->in[0].dtype, SW_SHAPE(d->in[0].shape.dims[0]));
    set(&out[3], d->in[0].dtype, SW_SHAPE(SW_PREFERENCE_TOTALS));
}

static void shapes_dequantize(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_weight_attrs *attrs = &d->op->attrs.weight;
    set(&out[0], attrs->to, SW_SHAPE(attrs->rows, attrs->columns));
}

static void shapes_quantized_matmul(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_attrs *attrs = &d->op->attrs;
    const int64_t n = attrs->matmul.tb ? attrs->weight.rows : attrs->weight.columns;
    set(&out[0], d->in[0].dtype, with_last(&d->in[0].shape, n));
    like(&out[1], &out[0]); /* value before the activation, if requested */
}

static void shapes_inverse_norms(const struct sw_op_desc *d, struct sw_view *out)
{
    set(&out[0], d->in[0].dtype, SW_SHAPE(d->in[2].shape.dims[0]));
}

static void shapes_element_loss(const struct sw_op_desc *d, struct sw_view *out)
{
    set(&out[0], sw_stat_dtype(d->in[0].dtype), SW_SHAPE(1));
    like(&out[1], &out[0]);
}

static void shapes_linear_ce_grad(const struct sw_op_desc *d, struct sw_view *out)
{
    shapes_of_two_gradients(d, out);
    if (d->op->attrs.linear_ce.has_bias) {
        like(&out[2], &d->in[5]);
    }
}

/* The first two outputs of LINEAR_CE, and those of LINEAR_CE_GRAD. */
static void shapes_linear_ce_at_once(const struct sw_op_desc *d, struct sw_view *out)
{
    set(&out[0], sw_stat_dtype(d->in[1].dtype), SW_SHAPE(1));
    like(&out[1], &out[0]);
    like(&out[2], &d->in[1]);
    like(&out[3], &d->in[2]);
    if (d->op->attrs.linear_ce.has_bias) {
        like(&out[4], &d->in[4]);
    }
}

static void shapes_select_index(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_shape *rows = &d->in[0].shape;
    const int64_t n = sw_min_i64(rows->dims[0], d->op->attrs.select_index.n);
    set(&out[0], d->in[0].dtype, SW_SHAPE(n, rows->dims[1]));
    set(&out[1], SW_I32, SW_SHAPE(n));
}

static void shapes_moments(const struct sw_op_desc *d, struct sw_view *out)
{
    const int n_states = d->op->attrs.update.rule.n_states;
    like(&out[0], &d->in[n_states - 1]);
    like(&out[1], &d->in[n_states]);
    set(&out[2], SW_I64, SW_SHAPE(SW_LAMB_WORDS));
}

static void shapes_muon(const struct sw_op_desc *d, struct sw_view *out)
{
    like(&out[0], &d->in[d->op->attrs.update.rule.n_states]);
    set(&out[1], SW_BF16, d->in[0].shape);
}

/* Number of rows and columns of all matrices. */
static int64_t n_lines(const struct sw_op_desc *d)
{
    const struct sw_update_op_attrs *attrs = &d->op->attrs.update;
    return attrs->matrices * (attrs->rows + attrs->columns);
}

static void shapes_adafactor_sums(const struct sw_op_desc *d, struct sw_view *out)
{
    set(&out[0], SW_I64, SW_SHAPE(SW_STATS_WORDS + n_lines(d) * SW_LINE_WORDS));
}

static void shapes_adafactor_moments(const struct sw_op_desc *d, struct sw_view *out)
{
    int k = 0;
    for (; in_squares(d->op, k) >= 0; k++) {
        like(&out[k], &d->in[in_squares(d->op, k)]);
    }
    set(&out[k], SW_I64, SW_SHAPE(SW_STATS_WORDS));
    if (k == 2) {
        set(&out[3], d->in[in_squares(d->op, 0)].dtype, SW_SHAPE(n_lines(d)));
    }
}

/* The sum of the inputs along one dim. */
static void shapes_concat(const struct sw_op_desc *d, struct sw_view *out)
{
    like(&out[0], &d->in[0]);
    for (int k = 1; k < d->op->n_in; k++) {
        out[0].shape.dims[d->op->attrs.slice.dim] += d->in[k].shape.dims[d->op->attrs.slice.dim];
    }
}

static void shapes_masked_mean(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_shape *x = &d->in[0].shape;
    set(&out[0], d->in[0].dtype, SW_SHAPE(x->dims[0], x->dims[2]));
}

int64_t sw_window_places(const struct sw_window_attrs *attrs, int dim, int64_t n)
{
    const int64_t span = n + 2 * attrs->padding[dim] - attrs->kernel[dim];
    return span < 0 ? 0 : span / attrs->stride[dim] + 1;
}

void sw_image_view(const struct sw_view *x, struct sw_view *out)
{
    *out = *x;
    if (x->shape.rank == 3) {
        out->shape = SW_SHAPE(x->shape.dims[0], x->shape.dims[1], 1, x->shape.dims[2]);
        out->strides[2] = 0;
        out->strides[3] = x->strides[2];
    }
}

static void shapes_im2col(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_window_attrs *attrs = &d->op->attrs.window;
    struct sw_view x;
    sw_image_view(&d->in[0], &x);
    const int64_t *dims = x.shape.dims;
    set(&out[0], x.dtype,
        SW_SHAPE(dims[0], sw_window_places(attrs, 0, dims[2]) * sw_window_places(attrs, 1, dims[3]),
                 dims[1] * attrs->kernel[0] * attrs->kernel[1]));
}

static void shapes_pool(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_window_attrs *attrs = &d->op->attrs.window;
    const int64_t *dims = d->in[0].shape.dims;
    set(&out[0], d->in[0].dtype,
        SW_SHAPE(dims[0], dims[1], sw_window_places(attrs, 0, dims[2]),
                 sw_window_places(attrs, 1, dims[3])));
}

static void shapes_lstm(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_shape *x = &d->in[0].shape;
    const enum sw_dtype dtype = sw_stat_dtype(d->in[0].dtype);
    set(&out[0], d->in[0].dtype, with_last(x, sw_shape_last(x) / 4));
    set(&out[1], dtype, *x);
    set(&out[2], dtype, out[0].shape);
}

static void shapes_relative_bias(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_relative_attrs *attrs = &d->op->attrs.relative;
    set(&out[0], sw_stat_dtype(d->in[0].dtype),
        SW_SHAPE(sw_shape_last(&d->in[0].shape), attrs->queries, attrs->keys));
}

static void shapes_relative_scores(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_shape *x = &d->in[0].shape;
    set(&out[0], sw_stat_dtype(d->in[0].dtype),
        SW_SHAPE(x->dims[0], x->dims[2], x->dims[1], x->dims[1]));
}

static void shapes_exchange(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_exchange_attrs *attrs = &d->op->attrs.exchange;
    like(&out[0], &d->in[0]);
    if (attrs->from == SW_SPREAD_CUT) {
        out[0].shape.dims[attrs->dim] *= attrs->ranks;
    }
    if (attrs->to == SW_SPREAD_CUT) {
        out[0].shape.dims[sw_exchange_to_dim(attrs)] /= attrs->ranks;
    }
}

static void shapes_router(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_shape shape = with_last(&d->in[0].shape, d->op->attrs.experts.router.k);
    set(&out[0], sw_stat_dtype(d->in[0].dtype), shape);
    set(&out[1], SW_I32, shape);
}

static void shapes_expert_rows(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_experts_attrs *attrs = &d->op->attrs.experts;
    const int64_t ranks = sw_max_i64(attrs->ranks, 1), own = attrs->n / ranks;
    const struct sw_shape *choices = &d->in[0].shape;
    const int64_t most = choices->dims[0] * sw_min_i64(choices->dims[1], own); /* of a part */
    like(&out[0], &d->in[0]);
    set(&out[1], SW_I32,
        SW_SHAPE(ranks * (attrs->capacity > 0 ? sw_min_i64(most, own * attrs->capacity) : most)));
    set(&out[2], SW_I32, attrs->ranks > 1 ? SW_SHAPE(ranks, own + 2) : SW_SHAPE(own + 2));
}

static void shapes_expert_loads(const struct sw_op_desc *d, struct sw_view *out)
{
    (void)d;
    set(&out[0], SW_F32, SW_SHAPE(2 * SW_LOADS));
}

static void shapes_to_experts(const struct sw_op_desc *d, struct sw_view *out)
{
    set(&out[0], d->in[0].dtype, SW_SHAPE(d->in[2].shape.dims[0], sw_shape_last(&d->in[0].shape)));
}

static void shapes_from_experts(const struct sw_op_desc *d, struct sw_view *out)
{
    set(&out[0], d->in[0].dtype, SW_SHAPE(d->in[1].shape.dims[0], sw_shape_last(&d->in[0].shape)));
}

static void shapes_from_experts_grad(const struct sw_op_desc *d, struct sw_view *out)
{
    like(&out[0], &d->in[1]);
    like(&out[1], &d->in[4]);
}

static void shapes_expert_matmul(const struct sw_op_desc *d, struct sw_view *out)
{
    const struct sw_shape *w = &d->in[2].shape;
    set(&out[0], d->in[0].dtype,
        SW_SHAPE(d->in[0].shape.dims[0],
                 d->op->attrs.experts.tb ? w->dims[w->rank - 2] : sw_shape_last(w)));
}

static void shapes_router_stats(const struct sw_op_desc *d, struct sw_view *out)
{
    set(&out[0], sw_stat_dtype(d->in[0].dtype),
        SW_SHAPE(sw_router_stats(sw_shape_last(&d->in[0].shape))));
}

static void shapes_router_loss(const struct sw_op_desc *d, struct sw_view *out)
{
    set(&out[0], d->in[0].dtype, SW_SHAPE(1));
    like(&out[1], &out[0]);
}

static void shapes_clamped_gate(const struct sw_op_desc *d, struct sw_view *out)
{
    set(&out[0], d->in[0].dtype, with_last(&d->in[0].shape, sw_shape_last(&d->in[0].shape) / 2));
}

static void shapes_attention_sink(const struct sw_op_desc *d, struct sw_view *out)
{
    like(&out[0], &d->in[0]);
    like(&out[1], &d->in[1]);
}

static void shapes_attention_sink_grad(const struct sw_op_desc *d, struct sw_view *out)
{
    like(&out[0], &d->in[3]);
}

/* ---- indices ---- */

static int64_t rows_of_table(const struct sw_op_desc *d)
{
    const int64_t whole = d->op->attrs.embedding.whole;
    return whole > 0 ? whole : d->in[0].shape.dims[0];
}

static int64_t tokens_of_first(const struct sw_op_desc *d)
{
    return d->in[0].shape.dims[1];
}

static int64_t lengths_of_first(const struct sw_op_desc *d)
{
    return d->in[0].shape.dims[1] + 1; /* 0 .. T */
}

static int64_t classes_of_first(const struct sw_op_desc *d)
{
    const struct sw_cross_entropy_attrs *attrs = &d->op->attrs.cross_entropy;
    return attrs->ignores_beyond ? INT64_C(1) << 31
                                 : sw_cross_entropy_all(attrs, sw_shape_last(&d->in[0].shape));
}

static int64_t rows_of_second(const struct sw_op_desc *d)
{
    return d->in[1].shape.dims[0];
}

static int64_t words_of_loss(const struct sw_op_desc *d)
{
    const int64_t whole = d->op->attrs.linear_ce.whole;
    return whole > 0 ? whole : d->in[1].shape.dims[0];
}

static int64_t words_of_third(const struct sw_op_desc *d)
{
    return d->in[2].shape.dims[0];
}

/* ---- cost ---- */

static int64_t flops_matmul(const struct sw_op_desc *d)
{
    const bool ta = d->op->attrs.matmul.ta;
    return 2 * sw_shape_rows(&d->in[0].shape) *
           sw_shape_elems(ta ? &d->out[0].shape : &d->in[1].shape);
}

/* The product, and the decoding. */
static int64_t flops_quantized_matmul(const struct sw_op_desc *d)
{
    const struct sw_weight_attrs *weight = &d->op->attrs.weight;
    return (2 * sw_shape_rows(&d->in[0].shape) + 1) * weight->rows * weight->columns;
}

static int64_t flops_linear_ce(const struct sw_op_desc *d)
{
    return 2 * sw_shape_elems(&d->in[0].shape) * d->in[1].shape.dims[0];
}

/* The logits, and one product per gradient. dh: the first output that is a gradient */
static int64_t flops_of_loss(const struct sw_op_desc *d, int dh)
{
    const bool has_dh = d->out[dh].shape.rank >= 0, has_dw = d->out[dh + 1].shape.rank >= 0;
    return (2 + 2 * has_dh + 2 * has_dw) * sw_shape_elems(&d->in[1].shape) * d->in[2].shape.dims[0];
}

static int64_t flops_linear_ce_grad(const struct sw_op_desc *d)
{
    return flops_of_loss(d, 0);
}

static int64_t flops_linear_ce_at_once(const struct sw_op_desc *d)
{
    return flops_of_loss(d, 2);
}

/* Two products forward, five backward. A causal mask halves them; a window counts what it shows. */
static int64_t attention_flops(const struct sw_op_desc *d, int first, int64_t per_pair)
{
    const struct sw_attention_attrs *attrs = &d->op->attrs.attention;
    const struct sw_shape *q = &d->in[first].shape;
    const int64_t keys = d->in[first + (attrs->packed ? 0 : 1)].shape.dims[1];
    const bool halved = attrs->causal && q->dims[1] == keys;
    const int64_t all = q->dims[1] * keys / (halved ? 2 : 1);
    const int64_t pairs = attrs->window > 0 ? sw_min_i64(all, q->dims[1] * attrs->window) : all;
    return per_pair * q->dims[0] * attrs->heads * sw_attention_width(attrs, q) * pairs;
}

static int64_t flops_attention(const struct sw_op_desc *d)
{
    return attention_flops(d, 0, 4);
}

static int64_t flops_attention_grad(const struct sw_op_desc *d)
{
    return attention_flops(d, 3, 10);
}

static int64_t flops_relative_scores(const struct sw_op_desc *d)
{
    return 2 * sw_shape_elems(&d->in[0].shape) * d->in[1].shape.dims[0];
}

static int64_t flops_relative_scores_grad(const struct sw_op_desc *d)
{
    return 4 * sw_shape_elems(&d->in[1].shape) * d->in[2].shape.dims[0];
}

/* Three products per iteration. */
static int64_t flops_muon(const struct sw_op_desc *d)
{
    const int64_t *dims = d->in[d->op->n_in - 1].shape.dims;
    const int64_t rows = sw_min_i64(dims[0], dims[1]), columns = sw_max_i64(dims[0], dims[1]);
    return d->op->attrs.update.rule.ns_steps * 2 * rows * rows * (2 * columns + rows);
}

/* One product per step, with the output of the previous step; twice as much in backward. */
static int64_t flops_inverse_norms(const struct sw_op_desc *d)
{
    return 2 * sw_shape_elems(&d->in[0].shape) * (d->in[1].shape.dims[0] + 1);
}

static int64_t flops_lstm(const struct sw_op_desc *d)
{
    return 2 * sw_shape_rows(&d->in[0].shape) * sw_shape_elems(&d->in[1].shape);
}

static int64_t flops_lstm_grad(const struct sw_op_desc *d)
{
    return 2 * flops_lstm(d);
}

/* The share of all rows that the experts of w have, if experts have equally many. A gradient has
 * those of one part. */
static double share_of_rows(const struct sw_op_desc *d, const struct sw_view *w, int offsets)
{
    const struct sw_shape *shape = &d->in[offsets].shape;
    const int64_t own = w->shape.rank == 3 ? w->shape.dims[0] : 1;
    const int64_t parts = offsets == 2 && shape->rank == 2 ? shape->dims[0] : 1;
    return (double)own / (double)((sw_shape_last(shape) - 2) * parts);
}

/* w and the row of the offsets, in EXPERT_MATMUL or its gradient */
static const struct sw_view *expert_weights(const struct sw_op_desc *d, int *offsets)
{
    const bool forward = d->op->kind == SW_OP_EXPERT_MATMUL;
    *offsets = forward ? 1 : 2;
    return forward ? &d->in[2] : &d->out[0];
}

static int64_t flops_expert_matmul(const struct sw_op_desc *d)
{
    int offsets;
    const struct sw_view *w = expert_weights(d, &offsets);
    if (w->shape.rank < 2) {
        return 0;
    }
    const int64_t matrix = w->shape.dims[w->shape.rank - 1] * w->shape.dims[w->shape.rank - 2];
    return (int64_t)(2 * (double)d->in[0].shape.dims[0] * share_of_rows(d, w, offsets) *
                     (double)matrix);
}

/* The states give the length of a piece of an update, since the parameter is whole. */
static int64_t flops_update(const struct sw_op_desc *d)
{
    return 12 * sw_update_elems(d);
}

/* For a row-sparse gradient, only its rows count. */
static int64_t flops_accumulate(const struct sw_op_desc *d)
{
    return sw_shape_elems(&d->in[1].shape);
}

/* ---- names of dimensions ---- */

static const char *axes_of_linear_ce(const struct sw_op_desc *d, char *text)
{
    (void)text;
    return d->op->attrs.linear_ce.by_row ? "*. v. # . -> # # #" : "*. v. # . -> . . #";
}

static const char *axes_of_linear_ce_grad(const struct sw_op_desc *d, char *text)
{
    (void)text;
    return d->op->attrs.linear_ce.by_row ? "# *. v. # # . -> #. v. ." : ". *. v. # # . -> #. v. .";
}

/* ---- fused ops ---- */

/* The activation of the stored value. In 16 bits it cannot be split off: the stored value was
 * rounded, while the activation got the unrounded one. */
static bool apart_matmul(const struct sw_op_desc *d, struct sw_op *out)
{
    const struct sw_op *op = d->op;
    const enum sw_act act = op->attrs.matmul.act;
    if (act == SW_ACT_NONE || op->n_out < 2 || op->out[1] < 0 ||
        sw_stat_dtype(d->out[1].dtype) != d->out[1].dtype) {
        return false;
    }
    *out = *op;
    out->kind = SW_OP_ACT;
    out->attrs = (struct sw_attrs){.act = {act}};
    out->n_in = out->n_out = 1;
    out->in[0] = op->out[1];
    return true;
}

/* The norm of the sum, which both get rounded. */
static bool apart_norm(const struct sw_op_desc *d, struct sw_op *out, enum sw_op_kind kind)
{
    const struct sw_op *op = d->op;
    *out = *op;
    out->kind = kind;
    out->n_in = op->n_in - 1;
    out->n_out = op->n_out - 1;
    memmove(&out->in[1], &op->in[2], (size_t)(op->n_in - 2) * sizeof *out->in);
    memmove(&out->out[0], &op->out[1], (size_t)(op->n_out - 1) * sizeof *out->out);
    out->in[0] = op->out[0];
    return true;
}

static bool apart_add_layer_norm(const struct sw_op_desc *d, struct sw_op *out)
{
    return apart_norm(d, out, SW_OP_LAYER_NORM);
}

static bool apart_add_rms_norm(const struct sw_op_desc *d, struct sw_op *out)
{
    return apart_norm(d, out, SW_OP_RMS_NORM);
}

/* ---- the rows ---- */

static const char norm[] = "a norm needs the whole row";
static const char classes[] = "a softmax needs all classes";
static const char tokens[] = "tokens depend on their positions";
static const char steps[] = "a step needs the whole output of the previous one";
static const char windows[] = "windows cross the borders of parts";
static const char indices[] = "indices name rows of the whole";
static const char draws[] = "a part of a part of a part";
static const char numbers[] = "single numbers";
static const char sums[] = "its parts would all add to the sums that are there";
static const char shards[] = "made by passes, for elements that a layout has chosen";
static const char ranks[] = "its operand is cut over ranks";
static const char rows_together[] = "the loss of a row depends on other rows";
static const char routed[] = "the rows of an expert are those of all tokens";
static const char blocks[] = "a scale of codes may serve elements of two rows";
static const char theirs[] = "the kernel of the user knows whole tensors";

// clang-format off
static const struct sw_op_info table[SW_N_OP_KINDS] = {
    [SW_OP_VIEW] = {.attrs = SW_ATTRS_VIEW, .traits = SW_TRAIT_VIEW, .n_out = 1, .alias = in_first,
        .gradient = sw_grad_view, .flops_per_elem = -1, .axes_of = sw_axes_of_view,
        .uncut = "a dim that the view splits or takes a part of"},
    [SW_OP_CONTIGUOUS] = {.n_out = 1, .shapes = shapes_like_first, .gradient = sw_grad_pass,
        .flops_per_elem = -1, .traits = SW_TRAIT_COPY, .axes = "* -> *"},
    [SW_OP_CAST] = {.n_out = 1, .gradient = sw_grad_cast, .axes = "* -> *"},
    [SW_OP_EMBEDDING] = {.attrs = SW_ATTRS_EMBEDDING, .traits = SW_TRAIT_LOOKUP, .n_out = 1,
        .shapes = shapes_embedding, .gradient = sw_grad_embedding, .flops_per_elem = -1,
        .index_input = 1, .n_indexed = rows_of_table, .axes = "vc * -> *c",
        .cut = sw_cut_embedding, .part = sw_part_embedding},
    [SW_OP_EMBEDDING_GRAD] = {.attrs = SW_ATTRS_EMBEDDING, .n_out = 2,
        .shapes = shapes_embedding_grad, .axes = "_c _ -> .c =.", .uncut = indices},
    [SW_OP_MATMUL] = {.attrs = SW_ATTRS_MATMUL, .traits = SW_TRAIT_PRODUCTS, .n_out = 1,
        .shapes = shapes_matmul, .gradient = sw_grad_matmul, .flops = flops_matmul,
        .apart = apart_matmul, .axes_of = sw_axes_of_matmul, .cut = sw_cut_matmul,
        .part = sw_part_matmul},
    [SW_OP_SUM_ROWS] = {.n_out = 1, .axes = "* -> *"},
    [SW_OP_ADD] = {.n_out = 1, .shapes = shapes_like_first, .gradient = sw_grad_add,
        .axes = "* * -> *"},
    [SW_OP_SCALE] = {.attrs = SW_ATTRS_SCALE, .n_out = 1, .shapes = shapes_like_first,
        .gradient = sw_grad_scale, .axes = "* -> *"},
    [SW_OP_ACT] = {.attrs = SW_ATTRS_ACT, .n_out = 1, .shapes = shapes_like_first,
        .gradient = sw_grad_act, .flops_per_elem = 12, .axes = "* -> *"},
    [SW_OP_ACT_GRAD] = {.attrs = SW_ATTRS_ACT, .n_out = 1, .shapes = shapes_like_first,
        .flops_per_elem = 12, .axes = "* * -> *"},
    [SW_OP_LAYER_NORM] = {.attrs = SW_ATTRS_NORM, .n_out = 3, .shapes = shapes_layer_norm,
        .gradient = sw_grad_layer_norm, .flops_per_elem = 8, .axes = "*. . . -> *. * *",
        .uncut = norm},
    [SW_OP_LAYER_NORM_GRAD] = {.attrs = SW_ATTRS_NORM, .n_out = 3,
        .shapes = shapes_layer_norm_grad, .flops_per_elem = 12, .axes = "*. *. . * * -> *. . .",
        .uncut = norm},
    [SW_OP_ADD_LAYER_NORM] = {.attrs = SW_ATTRS_NORM, .n_out = 4, .shapes = shapes_add_layer_norm,
        .flops_per_elem = 8, .apart = apart_add_layer_norm, .axes = "*. *. . . -> *. *. * *",
        .uncut = norm},
    [SW_OP_DROPOUT] = {.attrs = SW_ATTRS_DROPOUT, .n_out = 1, .shapes = shapes_like_first,
        .gradient = sw_grad_dropout, .axes_of = sw_axes_of_dropout, .part = sw_part_dropout,
        .uncut = draws},
    [SW_OP_ATTENTION] = {.attrs = SW_ATTRS_ATTENTION, .traits = SW_TRAIT_PRODUCTS, .n_out = 2,
        .shapes = shapes_attention, .gradient = sw_grad_attention, .flops = flops_attention,
        .axes_of = sw_axes_of_attention, .cut = sw_cut_attention, .part = sw_part_attention,
        .uncut = tokens},
    [SW_OP_ATTENTION_GRAD] = {.attrs = SW_ATTRS_ATTENTION, .traits = SW_TRAIT_PRODUCTS,
        .shapes = shapes_attention_grad, .flops = flops_attention_grad,
        .axes_of = sw_axes_of_attention_grad, .cut = sw_cut_attention, .part = sw_part_attention,
        .uncut = tokens},
    [SW_OP_LAST_INDEX] = {.attrs = SW_ATTRS_LAST_INDEX, .n_out = 1, .shapes = shapes_last_index,
        .flops_per_elem = -1, .axes = "b. -> b", .uncut = tokens},
    [SW_OP_SELECT_ROWS] = {.traits = SW_TRAIT_LOOKUP, .n_out = 1, .shapes = shapes_select_rows,
        .gradient = sw_grad_select_rows, .flops_per_elem = -1, .index_input = 1,
        .n_indexed = tokens_of_first, .axes = "b.c b -> bc", .uncut = indices},
    [SW_OP_SELECT_ROWS_GRAD] = {.n_out = 1, .flops_per_elem = -1, .axes = "bc b -> b.c",
        .uncut = indices},
    [SW_OP_SLICE_GRAD] = {.attrs = SW_ATTRS_SLICE, .n_out = 1, .flops_per_elem = -1,
        .gradient = sw_grad_slice_grad,
        .axes_of = sw_axes_of_slice, .uncut = "a part of the dim that was sliced"},
    [SW_OP_KV_APPEND] = {.n_out = 1, .alias = in_first, .flops_per_elem = -1,
        .axes = "b.w b.w . -> b.w", .uncut = tokens},
    [SW_OP_CROSS_ENTROPY] = {.attrs = SW_ATTRS_CROSS_ENTROPY, .n_out = 3, .shapes = shapes_loss,
        .gradient = sw_grad_cross_entropy, .traits = SW_TRAIT_LABELS, .index_input = 1,
        .n_indexed = classes_of_first, .axes = "*. # -> . . #", .uncut = classes},
    [SW_OP_CROSS_ENTROPY_GRAD] = {.attrs = SW_ATTRS_CROSS_ENTROPY, .n_out = 1,
        .shapes = shapes_second_like_first, .axes = ". *. # # -> *.", .uncut = classes},
    [SW_OP_LINEAR_CE] = {.attrs = SW_ATTRS_LINEAR_CE,
        .traits = SW_TRAIT_PRODUCTS | SW_TRAIT_LABELS, .n_out = 3, .shapes = shapes_linear_ce,
        .gradient = sw_grad_linear_ce, .flops = flops_linear_ce, .index_input = 2,
        .n_indexed = words_of_loss, .axes_of = axes_of_linear_ce, .cut = sw_cut_linear_ce,
        .part = sw_part_linear_ce, .uncut = classes},
    [SW_OP_LINEAR_CE_GRAD] = {.attrs = SW_ATTRS_LINEAR_CE, .traits = SW_TRAIT_PRODUCTS, .n_out = 2,
        .shapes = shapes_linear_ce_grad, .flops = flops_linear_ce_grad, .factor = 1,
        .axes_of = axes_of_linear_ce_grad, .cut = sw_cut_linear_ce_grad,
        .part = sw_part_linear_ce, .uncut = classes},
    [SW_OP_LOSS_MEAN] = {.attrs = SW_ATTRS_LOSS_MEAN, .n_out = 1, .shapes = shapes_like_first,
        .gradient = sw_grad_loss_mean, .uncut = numbers},
    [SW_OP_LOSS_MEAN_GRAD] = {.attrs = SW_ATTRS_LOSS_MEAN, .n_out = 1, .shapes = shapes_like_first,
        .uncut = numbers},
    [SW_OP_SEED] = {.n_out = 1, .flops_per_elem = -1, .uncut = numbers},
    [SW_OP_ACCUMULATE] = {.attrs = SW_ATTRS_STATS, .traits = SW_TRAIT_SUM, .n_out = 1,
        .alias = in_first,
        .flops = flops_accumulate, .axes_of = sw_axes_of_accumulate, .uncut = indices},
    [SW_OP_STATS_RESET] = {.traits = SW_TRAIT_FRESH, .n_out = 1, .alias = in_first,
        .flops_per_elem = -1, .uncut = sums},
    [SW_OP_GRAD_STATS] = {.attrs = SW_ATTRS_STATS, .n_out = 1, .alias = in_first, .uncut = sums},
    [SW_OP_STATS_FINISH] = {.attrs = SW_ATTRS_STATS, .traits = SW_TRAIT_SKIP, .flops_per_elem = -1,
        .uncut = numbers},
    [SW_OP_DENSIFY] = {.traits = SW_TRAIT_DENSE, .n_out = 1, .axes = ".c . -> .c",
        .uncut = indices},
    [SW_OP_SELECT_INDEX] = {.attrs = SW_ATTRS_SELECT_INDEX, .n_out = 2,
        .shapes = shapes_select_index, .flops_per_elem = -1, .axes = ".c . -> .c =.",
        .uncut = indices},
    [SW_OP_UPDATE] = {.attrs = SW_ATTRS_UPDATE, .alias = in_same,
        .traits = SW_TRAIT_UPDATE | SW_TRAIT_STATES | SW_TRAIT_ELEMENTS, .flops = flops_update,
        .uncut = shards},
    [SW_OP_LAMB_MOMENTS] = {.attrs = SW_ATTRS_UPDATE, .n_out = 3,
        .traits = SW_TRAIT_UPDATE | SW_TRAIT_STATES, .alias = in_moments, .shapes = shapes_moments,
        .flops_per_elem = 12, .uncut = shards},
    [SW_OP_LAMB_APPLY] = {.attrs = SW_ATTRS_UPDATE, .traits = SW_TRAIT_UPDATE, .alias = in_applied,
        .uncut = shards},
    [SW_OP_MUON_MOMENTS] = {.attrs = SW_ATTRS_UPDATE, .n_out = 2,
        .traits = SW_TRAIT_UPDATE | SW_TRAIT_STATES, .alias = in_momentum, .shapes = shapes_muon,
        .flops_per_elem = 6, .uncut = shards},
    [SW_OP_MUON_APPLY] = {.attrs = SW_ATTRS_UPDATE, .traits = SW_TRAIT_UPDATE | SW_TRAIT_PRODUCTS,
        .alias = in_same, .flops = flops_muon, .factor = 1, .uncut = shards},
    [SW_OP_ADAFACTOR_SUMS] = {.attrs = SW_ATTRS_UPDATE, .n_out = 1,
        .traits = SW_TRAIT_UPDATE | SW_TRAIT_STATES, .shapes = shapes_adafactor_sums,
        .flops_per_elem = 5, .uncut = shards},
    [SW_OP_ADAFACTOR_MOMENTS] = {.attrs = SW_ATTRS_UPDATE, .traits = SW_TRAIT_UPDATE,
        .alias = in_squares, .shapes = shapes_adafactor_moments, .flops_per_elem = 4,
        .uncut = shards},
    [SW_OP_ADAFACTOR_APPLY] = {.attrs = SW_ATTRS_UPDATE, .traits = SW_TRAIT_UPDATE,
        .alias = in_same, .flops_per_elem = 7, .uncut = shards},
    [SW_OP_USER] = {.gradient = sw_grad_user, .uncut = theirs},
    [SW_OP_LAMB_ADD_NORMS] = {.traits = SW_TRAIT_UPDATE, .n_out = 1, .alias = in_first,
        .flops_per_elem = -1, .uncut = numbers},
    [SW_OP_RMS_NORM] = {.attrs = SW_ATTRS_NORM, .n_out = 2, .shapes = shapes_rms_norm,
        .gradient = sw_grad_rms_norm, .flops_per_elem = 5, .axes = "*. . -> *. *", .uncut = norm},
    [SW_OP_RMS_NORM_GRAD] = {.attrs = SW_ATTRS_NORM, .n_out = 2, .shapes = shapes_of_two_gradients,
        .flops_per_elem = 9, .axes = "*. *. . * -> *. .", .uncut = norm},
    [SW_OP_ADD_RMS_NORM] = {.attrs = SW_ATTRS_NORM, .n_out = 3, .shapes = shapes_add_rms_norm,
        .flops_per_elem = 6, .apart = apart_add_rms_norm, .axes = "*. *. . -> *. *. *",
        .uncut = norm},
    [SW_OP_MUL] = {.n_out = 1, .shapes = shapes_like_first, .gradient = sw_grad_mul,
        .axes = "* * -> *"},
    [SW_OP_GATED_ACT] = {.attrs = SW_ATTRS_ACT, .n_out = 1, .shapes = shapes_like_first,
        .gradient = sw_grad_gated_act, .flops_per_elem = 13, .axes = "* * -> *"},
    [SW_OP_GATED_ACT_GRAD] = {.attrs = SW_ATTRS_ACT, .n_out = 2, .shapes = shapes_of_two_gradients,
        .flops_per_elem = 16, .axes = "* * * -> * *"},
    [SW_OP_ROTARY] = {.attrs = SW_ATTRS_ROTARY, .n_out = 1, .shapes = shapes_like_first,
        .gradient = sw_grad_rotary, .flops_per_elem = 3, .index_input = 2,
        .n_indexed = rows_of_second, .axes = "*h. .. * -> *h.",
        .uncut = "a rotation takes pairs of a head"},
    [SW_OP_POSITIONS] = {.attrs = SW_ATTRS_POSITIONS, .n_out = 1, .shapes = shapes_like_first,
        .flops_per_elem = -1, .axes_of = sw_axes_of_positions, .uncut = tokens},
    [SW_OP_NOT_EQUAL] = {.attrs = SW_ATTRS_INTEGERS, .n_out = 1, .shapes = shapes_like_first,
        .flops_per_elem = -1, .axes = "* -> *"},
    [SW_OP_SHIFT_RIGHT] = {.attrs = SW_ATTRS_INTEGERS, .n_out = 1, .shapes = shapes_like_first,
        .traits = SW_TRAIT_COPY | SW_TRAIT_LABELS, .flops_per_elem = -1, .axes = "b. -> b.",
        .uncut = tokens},
    [SW_OP_TRIM] = {.n_out = 1, .shapes = shapes_like_first, .traits = SW_TRAIT_COPY,
        .flops_per_elem = -1, .index_input = 1, .n_indexed = lengths_of_first,
        .axes = "b. b -> b.", .uncut = tokens},
    [SW_OP_MASK_ROWS] = {.n_out = 1, .shapes = shapes_like_first, .gradient = sw_grad_mask_rows,
        .flops_per_elem = -1, .axes = "*c * -> *c"},
    [SW_OP_CONCAT] = {.attrs = SW_ATTRS_SLICE, .n_out = 1, .shapes = shapes_concat,
        .gradient = sw_grad_concat, .flops_per_elem = -1, .axes_of = sw_axes_of_slice,
        .uncut = "a part of the dim along which it joins"},
    [SW_OP_MASKED_MEAN] = {.n_out = 1, .shapes = shapes_masked_mean,
        .gradient = sw_grad_masked_mean, .axes = "b.c b. -> bc",
        .uncut = "a mean needs all tokens"},
    [SW_OP_MASKED_MEAN_GRAD] = {.n_out = 1, .axes = "bc b. -> b.c",
        .uncut = "a mean needs all tokens"},
    [SW_OP_ELEMENT_LOSS] = {.attrs = SW_ATTRS_ELEMENT_LOSS, .n_out = 2,
        .shapes = shapes_element_loss, .gradient = sw_grad_element_loss, .flops_per_elem = 4,
        .axes = "* # -> . ."},
    [SW_OP_LSTM] = {.attrs = SW_ATTRS_LSTM, .traits = SW_TRAIT_PRODUCTS, .n_out = 3,
        .shapes = shapes_lstm, .gradient = sw_grad_lstm, .flops = flops_lstm, .factor = 1,
        .axes = "b.. .. . b. -> b.. b.. b..", .uncut = steps},
    [SW_OP_LSTM_GRAD] = {.attrs = SW_ATTRS_LSTM, .traits = SW_TRAIT_PRODUCTS, .n_out = 3,
        .flops = flops_lstm_grad, .factor = 1, .axes = "b.. .. b.. b.. b.. b. -> b.. .. .",
        .uncut = steps},
    [SW_OP_IM2COL] = {.attrs = SW_ATTRS_WINDOW, .n_out = 1, .shapes = shapes_im2col,
        .gradient = sw_grad_im2col, .flops_per_elem = -1, .axes = "bc_ -> b.c", .uncut = windows},
    [SW_OP_COL2IM] = {.attrs = SW_ATTRS_WINDOW, .n_out = 1, .axes = "b.c -> bc_",
        .uncut = windows},
    [SW_OP_POOL] = {.attrs = SW_ATTRS_WINDOW, .n_out = 1, .shapes = shapes_pool,
        .gradient = sw_grad_pool, .axes = "bc.. -> bc..", .uncut = windows},
    [SW_OP_POOL_GRAD] = {.attrs = SW_ATTRS_WINDOW, .n_out = 1, .shapes = shapes_second_like_first,
        .axes = "bc.. bc.. -> bc..", .uncut = windows},
    [SW_OP_RELATIVE_BIAS] = {.attrs = SW_ATTRS_RELATIVE, .n_out = 1,
        .shapes = shapes_relative_bias, .gradient = sw_grad_relative_bias, .flops_per_elem = -1,
        .axes = ".h . -> hts", .part = sw_part_relative_bias, .uncut = indices},
    [SW_OP_RELATIVE_BIAS_GRAD] = {.attrs = SW_ATTRS_RELATIVE, .n_out = 1, .axes = "hts . -> .h",
        .part = sw_part_relative_bias, .uncut = indices},
    [SW_OP_RELATIVE_SCORES] = {.attrs = SW_ATTRS_RELATIVE, .traits = SW_TRAIT_PRODUCTS, .n_out = 1,
        .shapes = shapes_relative_scores, .gradient = sw_grad_relative_scores,
        .flops = flops_relative_scores, .axes = "b.hd .hd . -> bh..", .uncut = indices},
    [SW_OP_RELATIVE_SCORES_GRAD] = {.attrs = SW_ATTRS_RELATIVE, .traits = SW_TRAIT_PRODUCTS,
        .n_out = 2, .shapes = shapes_of_two_gradients, .flops = flops_relative_scores_grad,
        .factor = 1, .axes = "bh.. b.hd .hd . -> b.hd .hd", .uncut = indices},
    [SW_OP_ELEMENT_LOSS_GRAD] = {.attrs = SW_ATTRS_ELEMENT_LOSS, .n_out = 1,
        .shapes = shapes_second_like_first, .flops_per_elem = 4, .axes = ". * # -> *"},
    [SW_OP_LINEAR_CE_MERGE] = {.attrs = SW_ATTRS_LINEAR_CE, .traits = SW_TRAIT_LABELS, .n_out = 3,
        .shapes = shapes_linear_ce, .gradient = sw_grad_linear_ce, .flops_per_elem = -1,
        .index_input = 2, .n_indexed = words_of_loss, .uncut = classes},
    [SW_OP_CROSS_ENTROPY_MERGE] = {.attrs = SW_ATTRS_CROSS_ENTROPY, .traits = SW_TRAIT_LABELS,
        .n_out = 3, .shapes = shapes_loss, .gradient = sw_grad_cross_entropy, .flops_per_elem = -1,
        .index_input = 1, .n_indexed = classes_of_first, .uncut = classes},
    [SW_OP_PREFERENCE] = {.attrs = SW_ATTRS_PREFERENCE, .n_out = 4, .shapes = shapes_preference,
        .gradient = sw_grad_preference, .flops_per_elem = 2, .uncut = rows_together},
    [SW_OP_PREFERENCE_GRAD] = {.attrs = SW_ATTRS_PREFERENCE, .n_out = 1,
        .shapes = shapes_second_like_first, .flops_per_elem = 2, .uncut = rows_together},
    [SW_OP_EXCHANGE] = {.attrs = SW_ATTRS_EXCHANGE, .n_out = 1, .shapes = shapes_exchange,
        .gradient = sw_grad_exchange, .flops_per_elem = -1, .uncut = ranks},
    [SW_OP_ROUTER] = {.attrs = SW_ATTRS_EXPERTS, .n_out = 2, .shapes = shapes_router,
        .gradient = sw_grad_router, .flops_per_elem = 16, .axes = "n. . -> n. n.",
        .uncut = classes},
    [SW_OP_ROUTER_GRAD] = {.attrs = SW_ATTRS_EXPERTS, .n_out = 1,
        .shapes = shapes_second_like_first, .flops_per_elem = 16, .axes = "n. n. n. -> n.",
        .uncut = classes},
    [SW_OP_EXPERT_ROWS] = {.attrs = SW_ATTRS_EXPERTS, .n_out = 3, .shapes = shapes_expert_rows,
        .flops_per_elem = -1, .uncut = routed},
    [SW_OP_TO_EXPERTS] = {.n_out = 1, .shapes = shapes_to_experts, .gradient = sw_grad_to_experts,
        .flops_per_elem = -1, .axes = ".c .. . -> .c", .uncut = routed},
    [SW_OP_FROM_EXPERTS] = {.n_out = 1, .shapes = shapes_from_experts,
        .gradient = sw_grad_from_experts, .flops_per_elem = 2, .axes = ".c .. . .. -> .c",
        .uncut = routed},
    [SW_OP_FROM_EXPERTS_GRAD] = {.n_out = 2, .shapes = shapes_from_experts_grad,
        .flops_per_elem = 4, .uncut = routed},
    [SW_OP_EXPERT_MATMUL] = {.attrs = SW_ATTRS_EXPERTS, .traits = SW_TRAIT_PRODUCTS, .n_out = 1,
        .alias = in_rows, .shapes = shapes_expert_matmul, .gradient = sw_grad_expert_matmul,
        .flops = flops_expert_matmul, .factor = 2, .uncut = routed},
    [SW_OP_EXPERT_MATMUL_GRAD] = {.attrs = SW_ATTRS_EXPERTS, .traits = SW_TRAIT_PRODUCTS,
        .n_out = 1, .flops = flops_expert_matmul, .factor = 1, .uncut = routed},
    [SW_OP_ROUTER_STATS] = {.attrs = SW_ATTRS_EXPERTS, .n_out = 1, .shapes = shapes_router_stats,
        .gradient = sw_grad_router_stats, .flops_per_elem = 8, .uncut = routed},
    [SW_OP_ROUTER_STATS_GRAD] = {.attrs = SW_ATTRS_EXPERTS, .n_out = 1,
        .shapes = shapes_second_like_first, .flops_per_elem = 8, .uncut = routed},
    [SW_OP_ROUTER_LOSS] = {.attrs = SW_ATTRS_EXPERTS, .n_out = 2, .shapes = shapes_router_loss,
        .gradient = sw_grad_router_loss, .uncut = numbers},
    [SW_OP_ROUTER_LOSS_GRAD] = {.attrs = SW_ATTRS_EXPERTS, .n_out = 1,
        .shapes = shapes_second_like_first, .uncut = numbers},
    [SW_OP_CLAMPED_GATE] = {.attrs = SW_ATTRS_EXPERTS, .n_out = 1, .shapes = shapes_clamped_gate,
        .gradient = sw_grad_clamped_gate, .flops_per_elem = 8, .axes = "r. -> r.",
        .uncut = "gates and ups take turns"},
    [SW_OP_CLAMPED_GATE_GRAD] = {.attrs = SW_ATTRS_EXPERTS, .n_out = 1,
        .shapes = shapes_second_like_first, .flops_per_elem = 16, .axes = "r. r. -> r.",
        .uncut = "gates and ups take turns"},
    [SW_OP_ATTENTION_SINK] = {.n_out = 2, .shapes = shapes_attention_sink,
        .gradient = sw_grad_attention_sink, .flops_per_elem = 1, .axes = "bth bht h -> bth bht"},
    [SW_OP_ATTENTION_SINK_GRAD] = {.n_out = 1, .shapes = shapes_attention_sink_grad,
        .flops_per_elem = 2, .axes = "bth bth bht h -> h"},
    [SW_OP_EXPERT_LOADS] = {.n_out = 1, .shapes = shapes_expert_loads, .flops_per_elem = -1,
        .uncut = routed},
    [SW_OP_DEQUANTIZE] = {.attrs = SW_ATTRS_WEIGHT, .n_out = 1, .shapes = shapes_dequantize,
        .flops_per_elem = 1, .uncut = blocks},
    [SW_OP_INVERSE_NORMS] = {.attrs = SW_ATTRS_WEIGHT, .n_out = 1, .shapes = shapes_inverse_norms,
        .flops = flops_inverse_norms, .axes_of = sw_axes_of_inverse_norms},
    [SW_OP_QUANTIZED_MATMUL] = {.attrs = SW_ATTRS_QUANTIZED_MATMUL, .traits = SW_TRAIT_PRODUCTS,
        .n_out = 1, .shapes = shapes_quantized_matmul, .flops = flops_quantized_matmul,
        .apart = apart_matmul, .uncut = blocks},
    [SW_OP_LINEAR_CE_AT_ONCE] = {.attrs = SW_ATTRS_LINEAR_CE,
        .traits = SW_TRAIT_PRODUCTS | SW_TRAIT_LABELS, .n_out = 4,
        .shapes = shapes_linear_ce_at_once, .flops = flops_linear_ce_at_once, .factor = 1,
        .index_input = 3, .n_indexed = words_of_third, .uncut = classes},
};
// clang-format on

const struct sw_op_info *sw_op_info(enum sw_op_kind kind)
{
    SW_ASSERT((unsigned)kind < SW_N_OP_KINDS);
    return &table[kind];
}

bool sw_op_has(const struct sw_op *op, unsigned traits)
{
    return sw_kind_has(op->kind, traits);
}

const char *sw_op_name(const struct sw_op *op)
{
    static const char *const names[SW_N_OP_KINDS] = {
#define SW_OP_TEXT(name, text) [SW_OP_##name] = text,
        SW_OP_LIST(SW_OP_TEXT)
#undef SW_OP_TEXT
    };
    return op->kind == SW_OP_USER && op->user ? op->user->name : names[op->kind];
}

/* ---- queries ---- */

int sw_op_alias(const struct sw_op *op, int k)
{
    const struct sw_op_info *info = sw_op_info(op->kind);
    return info->alias && op->out[k] >= 0 ? info->alias(op, k) : -1;
}

enum sw_access sw_op_access(const struct sw_op *op, int k)
{
    const struct sw_op_info *info = sw_op_info(op->kind);
    bool in_place = false;
    for (int i = 0; i < op->n_out && !sw_op_has(op, SW_TRAIT_VIEW); i++) {
        in_place = in_place || sw_op_alias(op, i) == k;
    }
    return in_place ? (info->traits & SW_TRAIT_FRESH ? SW_ACCESS_WRITE
                       : info->traits & SW_TRAIT_SUM ? SW_ACCESS_ACCUMULATE
                                                     : SW_ACCESS_UPDATE)
           : k == 0 && info->traits & SW_TRAIT_LOOKUP ? SW_ACCESS_ROWS
                                                      : SW_ACCESS_READ;
}

struct sw_tile_attrs *sw_op_tile(struct sw_op *op)
{
    switch (sw_op_info(op->kind)->attrs) {
    case SW_ATTRS_MATMUL:
        return &op->attrs.matmul.tile;
    case SW_ATTRS_EMBEDDING:
        return &op->attrs.embedding.tile;
    case SW_ATTRS_LINEAR_CE:
        return &op->attrs.linear_ce.tile;
    default:
        return NULL;
    }
}

static int64_t elems(const struct sw_view *view)
{
    return view->shape.rank < 0 ? 0 : sw_shape_elems(&view->shape);
}

int64_t sw_op_flops(const struct sw_op_desc *desc)
{
    const struct sw_op_info *info = sw_op_info(desc->op->kind);
    if (info->flops_per_elem < 0) {
        return 0;
    }
    if (info->flops) {
        return info->flops(desc);
    }
    if (info->flops_per_elem > 0) {
        return info->flops_per_elem * elems(&desc->in[0]);
    }
    int64_t most = 0;
    for (int i = 0; i < desc->op->n_in; i++) {
        most = sw_max_i64(most, elems(&desc->in[i]));
    }
    return most;
}

static double view_bytes(const struct sw_view *view)
{
    return (double)elems(view) * (double)sw_dtype_bytes(view->dtype);
}

static bool is_rows(const struct sw_op_desc *desc, int k)
{
    return k + 1 < desc->op->n_in && desc->in[k + 1].dtype == SW_I32;
}

/* For an update in pieces, operands that are given as a whole count in the first piece only. */
static bool is_counted(const struct sw_op_desc *desc, const struct sw_view *view, bool rows)
{
    const struct sw_op *op = desc->op;
    if (view->shape.rank < 0) {
        return false;
    }
    if (!sw_op_has(op, SW_TRAIT_ELEMENTS) || op->attrs.update.first == 0) {
        return true;
    }
    const int64_t n = sw_update_elems(desc);
    const bool is_scale = sw_update_codes(desc) > 0 && view->dtype == SW_F32 &&
                          elems(view) == sw_ceil_div(n, SW_CODE_RUN);
    return !rows && (elems(view) == n || is_scale);
}

/* Rows that are appended to a cache, or added to a sum, which is also read. */
static double bytes_of_rows(const struct sw_op_desc *desc)
{
    const struct sw_view *rows = &desc->in[1], *to = &desc->in[0];
    const int touched = desc->op->kind == SW_OP_KV_APPEND ? 1 : 2;
    return view_bytes(rows) + touched * (double)elems(rows) * (double)sw_dtype_bytes(to->dtype);
}

/* Weights and biases, and the share of all other operands that lies in rows of their experts. */
static double bytes_of_experts(const struct sw_op_desc *desc)
{
    int offsets;
    const struct sw_view *w = expert_weights(desc, &offsets);
    const double share = share_of_rows(desc, w, offsets);
    double sum = view_bytes(w);
    for (int k = 0; k < desc->op->n_in && k < offsets; k++) {
        sum += share * view_bytes(&desc->in[k]);
    }
    return offsets == 1 ? sum + share * view_bytes(&desc->out[0]) : sum;
}

double sw_op_bytes(const struct sw_op_desc *desc)
{
    const struct sw_op *op = desc->op;
    double sum = 0;
    if (op->kind == SW_OP_EXPERT_MATMUL || op->kind == SW_OP_EXPERT_MATMUL_GRAD) {
        return bytes_of_experts(desc);
    }
    if (op->kind == SW_OP_KV_APPEND || (op->kind == SW_OP_ACCUMULATE && is_rows(desc, 1))) {
        return bytes_of_rows(desc);
    }
    for (int k = 0; k < op->n_out; k++) {
        sum += is_counted(desc, &desc->out[k], false) ? view_bytes(&desc->out[k]) : 0;
    }
    if (sw_op_has(op, SW_TRAIT_LOOKUP)) {
        return 2 * sum;
    }
    for (int k = 0; k < op->n_in; k++) {
        sum += is_counted(desc, &desc->in[k], is_rows(desc, k)) ? view_bytes(&desc->in[k]) : 0;
    }
    return sum;
}
