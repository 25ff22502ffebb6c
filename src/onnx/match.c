// SPDX-License-Identifier: Apache-2.0
// The table of patterns: what a value of a folded graph is made of. A pattern reads nodes backward
// from the last one, and names the values that it starts from. A value between them that is also
// read elsewhere has a pattern of its own.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "onnx/fold.h"
#include "onnx/import.h"

/* ---- reading a folded graph ---- */

const struct sw_onnx_graph_value *sw_onnx_value(const struct sw_onnx_plan *p, int32_t v)
{
    return &p->graph->values[v];
}

const struct sw_onnx_graph_node *sw_onnx_maker(const struct sw_onnx_plan *p, int32_t v)
{
    return v >= 0 && sw_onnx_value(p, v)->kind == ONNX_VALUE_COMPUTED
               ? &p->graph->nodes[sw_onnx_value(p, v)->producer]
               : NULL;
}

const struct sw_onnx_graph_node *sw_onnx_made_by(const struct sw_onnx_plan *p, int32_t v,
                                                 const char *op)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    return node && strcmp(node->op, op) == 0 ? node : NULL;
}

static bool is_weight(const struct sw_onnx_plan *p, int32_t v)
{
    return v >= 0 && sw_onnx_value(p, v)->kind == ONNX_VALUE_WEIGHT;
}

static bool is_constant(const struct sw_onnx_plan *p, int32_t v)
{
    return v >= 0 && sw_onnx_value(p, v)->kind == ONNX_VALUE_CONSTANT;
}

static bool is_float(const struct sw_onnx_plan *p, int32_t v)
{
    const enum sw_onnx_type type = sw_onnx_value(p, v)->type;
    return type == ONNX_F32 || type == ONNX_F16 || type == ONNX_BF16 || type == ONNX_F64;
}

bool sw_onnx_single(const struct sw_onnx_plan *p, int32_t v, double *out)
{
    return is_constant(p, v) && sw_onnx_data_uniform(sw_onnx_value(p, v)->data, out);
}

bool sw_onnx_is_single(const struct sw_onnx_plan *p, int32_t v, double wanted)
{
    double x;
    return sw_onnx_single(p, v, &x) && fabs(x - wanted) <= 1e-4 * fabs(wanted) + 1e-12;
}

/* The operand in place i; -1 = absent. */
static int32_t operand(const struct sw_onnx_graph_node *node, int i)
{
    return node && i < node->n_in ? node->in[i] : -1;
}

int32_t sw_onnx_uncast(const struct sw_onnx_plan *p, int32_t v)
{
    for (int i = 0; i < ONNX_STEPS; i++) {
        const struct sw_onnx_graph_node *node = sw_onnx_made_by(p, v, "Cast");
        if (!node || !is_float(p, v) || !is_float(p, node->in[0])) {
            return v;
        }
        v = node->in[0];
    }
    return v;
}

static bool same(const struct sw_onnx_plan *p, int32_t a, int32_t b)
{
    return sw_onnx_uncast(p, a) == sw_onnx_uncast(p, b);
}

void sw_onnx_need(struct sw_onnx_match *m, int32_t v)
{
    if (m->n_in < ONNX_MATCH_IN) {
        m->in[m->n_in++] = v;
    }
}

/* Operands of a binary node, either of which may come first: the constant or weight is *b. */
static bool with_leaf(const struct sw_onnx_plan *p, const struct sw_onnx_graph_node *node,
                      bool (*is)(const struct sw_onnx_plan *, int32_t), int32_t *a, int32_t *b)
{
    for (int i = 0; node && node->n_in == 2 && i < 2; i++) {
        if (is(p, node->in[i])) {
            *a = node->in[1 - i];
            *b = node->in[i];
            return true;
        }
    }
    return false;
}

static bool same_dims(const struct sw_onnx_graph_value *a, const struct sw_onnx_graph_value *b)
{
    return a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)sw_max_i64(0, a->rank) * sizeof *a->dims) == 0;
}

static int64_t last_dim(const struct sw_onnx_graph_value *v)
{
    return v->rank > 0 ? v->dims[v->rank - 1] : -1;
}

/* A list of integers that is an attribute, or since a later opset an operand. */
static int ints_of(const struct sw_onnx_plan *p, const struct sw_onnx_graph_node *node,
                   const char *name, int i_in, int64_t *out, int most)
{
    const struct sw_onnx_graph_attr *attr = sw_onnx_attr(node, name);
    const int32_t v = operand(node, i_in);
    int n = 0;
    if (attr) {
        for (; n < attr->n && n < most; n++) {
            out[n] = attr->ints[n];
        }
    } else if (is_constant(p, v)) {
        const struct sw_onnx_data *data = sw_onnx_value(p, v)->data;
        for (; n < data->n && n < most; n++) {
            out[n] = sw_onnx_data_int(data, n);
        }
    }
    return n;
}

/* True if the node reduces the last dim only. */
static bool of_last_dim(const struct sw_onnx_plan *p, const struct sw_onnx_graph_node *node)
{
    int64_t dims[2];
    const int rank = sw_onnx_value(p, node->in[0])->rank;
    return ints_of(p, node, "axes", 1, dims, 2) == 1 && (dims[0] == -1 || dims[0] == rank - 1);
}

static bool is_last_axis(const struct sw_onnx_plan *p, const struct sw_onnx_graph_node *node,
                         int64_t or_else)
{
    const int64_t axis = sw_onnx_attr_int(node, "axis", or_else);
    return axis == -1 || axis == sw_onnx_value(p, node->in[0])->rank - 1;
}

static int find_node(const struct sw_onnx_graph *graph, int32_t index)
{
    int32_t low = 0, high = graph->n_nodes - 1;
    while (low <= high) {
        const int32_t mid = low + (high - low) / 2;
        if (graph->nodes[mid].index == index) {
            return mid;
        }
        if (graph->nodes[mid].index < index) {
            low = mid + 1;
        } else {
            high = mid - 1;
        }
    }
    return -1;
}

const struct sw_onnx_data *sw_onnx_probe(const struct sw_onnx_plan *p, int i_probe, int32_t node,
                                         int i_in)
{
    const struct sw_onnx_graph *graph = p->probes[i_probe];
    const int32_t i = graph ? find_node(graph, p->graph->nodes[node].index) : -1;
    const int32_t v = i >= 0 ? operand(&graph->nodes[i], i_in) : -1;
    return v >= 0 && graph->values[v].kind == ONNX_VALUE_CONSTANT ? graph->values[v].data : NULL;
}

/* ---- views ---- */

static bool match_same(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const int32_t x = operand(sw_onnx_maker(p, v), 0);
    sw_onnx_need(m, x);
    return x >= 0 && is_float(p, v) && is_float(p, x) &&
           same_dims(sw_onnx_value(p, x), sw_onnx_value(p, v));
}

static bool match_reshape(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const int32_t x = operand(sw_onnx_maker(p, v), 0);
    sw_onnx_need(m, x);
    return x >= 0 && is_float(p, x);
}

static bool match_transpose(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    const int rank = sw_onnx_value(p, v)->rank;
    int64_t order[4];
    if (rank < 2 || rank > 4 || ints_of(p, node, "perm", -1, order, 4) != rank) {
        return false;
    }
    for (int d = 0; d < rank; d++) {
        m->order[d] = (int)order[d];
    }
    sw_onnx_need(m, node->in[0]);
    return is_float(p, v);
}

/* Where output i_out of a Split begins in its input, `len` long along the axis. The sizes of the
 * outputs before it are those of the node: an output without a name has no value to ask. */
static int64_t begin_of_part(const struct sw_onnx_plan *p, const struct sw_onnx_graph_node *split,
                             int64_t len, int i_out)
{
    int64_t sizes[ONNX_MOST_IN], begin = 0;
    const int given = ints_of(p, split, "split", 1, sizes, ONNX_MOST_IN);
    if (given == 0) { /* equal parts, of which the last one may be smaller */
        return sw_min_i64(len, i_out * sw_ceil_div(len, split->n_out));
    }
    for (int k = 0; k < i_out && k < given; k++) {
        begin += sizes[k];
    }
    return begin;
}

/* A Slice along one dim with steps of 1, or a part of a Split. */
static bool slice_of(const struct sw_onnx_plan *p, int32_t v, int32_t *x, int *dim, int64_t *first)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    int64_t starts[2], axes[2], steps[2] = {1, 1};
    if (node && strcmp(node->op, "Split") == 0) {
        const int rank = sw_onnx_value(p, v)->rank;
        const int64_t axis = sw_onnx_attr_int(node, "axis", 0);
        *x = node->in[0];
        *dim = (int)(axis < 0 ? axis + rank : axis);
        *first =
            begin_of_part(p, node, sw_onnx_value(p, *x)->dims[*dim], sw_onnx_value(p, v)->i_out);
        return true;
    }
    if (!node || strcmp(node->op, "Slice") != 0 || ints_of(p, node, "starts", 1, starts, 2) != 1 ||
        ints_of(p, node, "axes", 3, axes, 2) != 1 ||
        (operand(node, 4) >= 0 && ints_of(p, node, "steps", 4, steps, 2) != 1) || steps[0] != 1) {
        return false;
    }
    const struct sw_onnx_graph_value *in = sw_onnx_value(p, node->in[0]);
    *x = node->in[0];
    *dim = (int)(axes[0] < 0 ? axes[0] + in->rank : axes[0]);
    *first = starts[0] < 0 ? starts[0] + in->dims[*dim] : starts[0];
    *first = sw_max_i64(0, sw_min_i64(*first, in->dims[*dim]));
    return true;
}

static bool match_slice(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    int32_t x;
    if (!is_float(p, v) || !slice_of(p, v, &x, &m->dim, &m->first)) {
        return false;
    }
    sw_onnx_need(m, x);
    return true;
}

/* Gather of one constant index, or of consecutive ones. */
static bool match_index(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    const int32_t x = node->in[0], index = node->in[1];
    if (!is_constant(p, index) || is_weight(p, x) || !is_float(p, x)) {
        return false;
    }
    const struct sw_onnx_data *data = sw_onnx_value(p, index)->data;
    const int64_t axis = sw_onnx_attr_int(node, "axis", 0);
    m->dim = (int)(axis < 0 ? axis + sw_onnx_value(p, x)->rank : axis);
    for (int64_t i = 0; i < data->n; i++) {
        if (sw_onnx_data_int(data, i) != sw_onnx_data_int(data, 0) + i) {
            return false;
        }
    }
    m->first = data->n > 0 ? sw_onnx_data_int(data, 0) : 0;
    m->first += m->first < 0 ? sw_onnx_value(p, x)->dims[m->dim] : 0;
    sw_onnx_need(m, x);
    return data->n > 0;
}

bool sw_onnx_columns(const struct sw_onnx_plan *p, int32_t v, int32_t *x, int64_t *first,
                     int64_t *n)
{
    int dim;
    *n = last_dim(sw_onnx_value(p, v));
    return slice_of(p, v, x, &dim, first) && dim == sw_onnx_value(p, v)->rank - 1;
}

static bool match_concat(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    const int64_t axis = sw_onnx_attr_int(node, "axis", 0);
    m->dim = (int)(axis < 0 ? axis + sw_onnx_value(p, v)->rank : axis);
    for (int i = 0; i < node->n_in; i++) {
        sw_onnx_need(m, node->in[i]);
    }
    return node->n_in >= 1 && node->n_in <= ONNX_MATCH_IN && is_float(p, v);
}

/* Expand of a learned vector to a row for each sample, such as a class token. */
static bool match_rows(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    const struct sw_onnx_graph_value *x = sw_onnx_value(p, node->in[0]);
    const struct sw_onnx_graph_value *y = sw_onnx_value(p, v);
    if (!is_weight(p, node->in[0]) || x->rank != 3 || y->rank != 3 || x->dims[0] != 1 ||
        x->dims[1] != y->dims[1] || x->dims[2] != y->dims[2]) {
        return false;
    }
    m->weight = node->in[0];
    return true;
}

/* ---- products ---- */

/* A weight, or the transpose of one. in_out: of the weight as the file has it */
static bool weight_of(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *turned = sw_onnx_made_by(p, v, "Transpose");
    m->weight = turned ? turned->in[0] : v;
    m->in_out = !turned;
    return is_weight(p, m->weight) && sw_onnx_value(p, m->weight)->rank == 2;
}

static bool product_of(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_made_by(p, sw_onnx_uncast(p, v), "MatMul");
    if (!node || !weight_of(p, node->in[1], m)) {
        return false;
    }
    m->n_in = 0;
    sw_onnx_need(m, node->in[0]);
    m->node = (int32_t)(node - p->graph->nodes);
    return sw_onnx_value(p, node->in[0])->rank >= 2;
}

static bool match_gemm(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    const bool turns = sw_onnx_attr_int(node, "transB", 0) != 0;
    if (!weight_of(p, node->in[1], m) || sw_onnx_attr_int(node, "transA", 0) != 0 ||
        sw_onnx_attr_number(node, "alpha", 1) != 1 || sw_onnx_attr_number(node, "beta", 1) != 1) {
        return false;
    }
    m->in_out = m->in_out != turns;
    m->bias = operand(node, 2);
    sw_onnx_need(m, node->in[0]);
    return m->bias < 0 || (is_weight(p, m->bias) && sw_onnx_value(p, m->bias)->rank == 1);
}

static bool match_product(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    return product_of(p, v, m);
}

static bool match_biased(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    int32_t x, bias;
    if (!with_leaf(p, node, is_weight, &x, &bias) || sw_onnx_value(p, bias)->rank != 1 ||
        !product_of(p, x, m)) {
        return false;
    }
    m->bias = bias;
    return sw_onnx_value(p, bias)->dims[0] == last_dim(sw_onnx_value(p, v));
}

/* A convolution whose windows do not overlap or lie in a padding. */
static bool match_conv(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    int64_t strides[2] = {1, 1}, pads[4] = {0}, dilations[2] = {1, 1};
    m->weight = operand(node, 1);
    m->bias = operand(node, 2);
    if (!is_weight(p, m->weight) || sw_onnx_value(p, m->weight)->rank != 4 ||
        (m->bias >= 0 && !is_weight(p, m->bias))) {
        return false;
    }
    const int64_t *kernel = sw_onnx_value(p, m->weight)->dims + 2;
    ints_of(p, node, "strides", -1, strides, 2);
    ints_of(p, node, "pads", -1, pads, 4);
    ints_of(p, node, "dilations", -1, dilations, 2);
    sw_onnx_need(m, node->in[0]);
    return sw_onnx_attr_int(node, "group", 1) == 1 && strides[0] == kernel[0] &&
           strides[1] == kernel[1] && dilations[0] == 1 && dilations[1] == 1 &&
           pads[0] + pads[1] + pads[2] + pads[3] == 0 &&
           strcmp(sw_onnx_attr_text(node, "auto_pad", "NOTSET"), "NOTSET") == 0;
}

/* ---- lookups ---- */

/* Constant ids, the same for each sample; *first: they are first, first + 1, .. */
static bool is_counted(const struct sw_onnx_data *data, int64_t tokens, int64_t *first)
{
    const int64_t begin = data->n > 0 ? sw_onnx_data_int(data, 0) : -1;
    for (int64_t i = 0; i < data->n; i++) {
        if (sw_onnx_data_int(data, i) != begin + i % tokens) {
            return false;
        }
    }
    *first = begin;
    return data->n > 0 && data->n % tokens == 0;
}

/* Positions of the tokens that are not padding, counted from pad + 1 on (RoBERTa). */
static bool counts_tokens(const struct sw_onnx_plan *p, int32_t node, int64_t *first)
{
    const struct sw_onnx_data *data = sw_onnx_probe(p, 0, node, 1);
    const int64_t tokens = p->tokens;
    if (!data || !p->probe_ids || data->n != p->probe_batch * tokens) {
        return false;
    }
    for (int64_t b = 0; b < p->probe_batch; b++) {
        int64_t seen = 0;
        for (int64_t t = 0; t < tokens; t++) {
            const bool real = p->probe_ids[b * tokens + t] != p->pad;
            seen += real;
            if (sw_onnx_data_int(data, b * tokens + t) != p->pad + (real ? seen : 0)) {
                return false;
            }
        }
    }
    *first = p->pad + 1;
    return true;
}

/* The same id for each token, whatever the inputs are. */
static bool is_same(const struct sw_onnx_plan *p, int32_t node, int64_t *out)
{
    double all[ONNX_PROBES];
    for (int k = 0; k < ONNX_PROBES; k++) {
        const struct sw_onnx_data *data = sw_onnx_probe(p, k, node, 1);
        if (!data || !sw_onnx_data_uniform(data, &all[k])) {
            return false;
        }
    }
    *out = (int64_t)all[0];
    return all[0] == all[1] && p->tokens > 1;
}

static bool match_embedding(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    const int32_t ids = node->in[1];
    m->weight = node->in[0];
    if (!is_weight(p, m->weight) || sw_onnx_value(p, m->weight)->rank != 2 ||
        sw_onnx_attr_int(node, "axis", 0) != 0) {
        return false;
    }
    const struct sw_onnx_graph_node *cast = sw_onnx_made_by(p, ids, "Cast");
    const int32_t from = cast ? cast->in[0] : ids;
    if (sw_onnx_value(p, from)->kind == ONNX_VALUE_INPUT) {
        m->dim = ONNX_IDS_GIVEN;
        sw_onnx_need(m, from);
        return true;
    }
    if (is_constant(p, ids)) {
        m->data[0] = sw_onnx_value(p, ids)->data;
        m->dim = p->tokens > 1 && is_counted(m->data[0], p->tokens, &m->first) ? ONNX_IDS_COUNTED
                                                                               : ONNX_IDS_CONSTANT;
        return true;
    }
    m->dim = is_same(p, m->node, &m->first) ? ONNX_IDS_SAME : ONNX_IDS_REAL;
    return m->dim == ONNX_IDS_SAME || counts_tokens(p, m->node, &m->first);
}

/* ---- norms ---- */

/* Mean over the last dim of the square of *x. */
static bool mean_square(const struct sw_onnx_plan *p, int32_t v, int32_t *x)
{
    const struct sw_onnx_graph_node *mean = sw_onnx_made_by(p, v, "ReduceMean");
    const int32_t square = mean && of_last_dim(p, mean) ? mean->in[0] : -1;
    const struct sw_onnx_graph_node *power = sw_onnx_made_by(p, square, "Pow");
    const struct sw_onnx_graph_node *twice = sw_onnx_made_by(p, square, "Mul");
    *x = power ? power->in[0] : twice ? twice->in[0] : -1;
    return (power && sw_onnx_is_single(p, power->in[1], 2)) ||
           (twice && same(p, twice->in[0], twice->in[1]));
}

/* sqrt(mean(x^2) + eps) */
static bool root_of(const struct sw_onnx_plan *p, int32_t v, int32_t *x, double *eps)
{
    const struct sw_onnx_graph_node *root = sw_onnx_made_by(p, v, "Sqrt");
    const struct sw_onnx_graph_node *sum = sw_onnx_made_by(p, operand(root, 0), "Add");
    int32_t mean, number;
    return with_leaf(p, sum, is_constant, &mean, &number) && sw_onnx_single(p, number, eps) &&
           mean_square(p, mean, x);
}

/* x / sqrt(mean(x^2) + eps) */
static bool normed(const struct sw_onnx_plan *p, int32_t v, int32_t *x, double *eps)
{
    v = sw_onnx_uncast(p, v);
    const struct sw_onnx_graph_node *quotient = sw_onnx_made_by(p, v, "Div");
    const struct sw_onnx_graph_node *times = sw_onnx_made_by(p, v, "Mul");
    if (quotient) {
        return root_of(p, quotient->in[1], x, eps) && same(p, quotient->in[0], *x);
    }
    for (int i = 0; times && i < 2; i++) {
        const struct sw_onnx_graph_node *inverse = sw_onnx_maker(p, times->in[i]);
        int32_t root = -1;
        if (inverse && strcmp(inverse->op, "Reciprocal") == 0) {
            root = inverse->in[0];
        } else if (inverse && strcmp(inverse->op, "Div") == 0 &&
                   sw_onnx_is_single(p, inverse->in[0], 1)) {
            root = inverse->in[1];
        }
        if (root >= 0 && root_of(p, root, x, eps) && same(p, times->in[1 - i], *x)) {
            return true;
        }
    }
    return false;
}

static bool is_vector(const struct sw_onnx_plan *p, int32_t v, int64_t n)
{
    return is_weight(p, v) && sw_onnx_value(p, v)->rank == 1 && sw_onnx_value(p, v)->dims[0] == n;
}

static bool match_rms_parts(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    int32_t x, inner;
    if (!with_leaf(p, sw_onnx_maker(p, v), is_weight, &inner, &m->weight) ||
        !is_vector(p, m->weight, last_dim(sw_onnx_value(p, v))) ||
        !normed(p, inner, &x, &m->number)) {
        return false;
    }
    sw_onnx_need(m, sw_onnx_uncast(p, x));
    return true;
}

static bool match_rms(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    m->weight = operand(node, 1);
    m->number = sw_onnx_attr_number(node, "epsilon", 1e-5);
    sw_onnx_need(m, node->in[0]);
    return is_last_axis(p, node, -1) && is_vector(p, m->weight, last_dim(sw_onnx_value(p, v)));
}

static bool match_layer_norm(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    const int64_t n = last_dim(sw_onnx_value(p, v));
    m->weight = operand(node, 1);
    m->bias = operand(node, 2);
    m->number = sw_onnx_attr_number(node, "epsilon", 1e-5);
    sw_onnx_need(m, node->in[0]);
    return is_last_axis(p, node, -1) && sw_onnx_value(p, v)->i_out == 0 &&
           is_vector(p, m->weight, n) && is_vector(p, m->bias, n);
}

static bool match_layer_norm_parts(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const int64_t n = last_dim(sw_onnx_value(p, v));
    int32_t scaled, inner, centered;
    if (!with_leaf(p, sw_onnx_maker(p, v), is_weight, &scaled, &m->bias) ||
        !with_leaf(p, sw_onnx_made_by(p, sw_onnx_uncast(p, scaled), "Mul"), is_weight, &inner,
                   &m->weight) ||
        !is_vector(p, m->bias, n) || !is_vector(p, m->weight, n) ||
        !normed(p, inner, &centered, &m->number)) {
        return false;
    }
    const struct sw_onnx_graph_node *minus = sw_onnx_made_by(p, sw_onnx_uncast(p, centered), "Sub");
    const struct sw_onnx_graph_node *mean = sw_onnx_made_by(p, operand(minus, 1), "ReduceMean");
    if (!mean || !of_last_dim(p, mean) || !same(p, mean->in[0], minus->in[0])) {
        return false;
    }
    sw_onnx_need(m, sw_onnx_uncast(p, minus->in[0]));
    return true;
}

/* ---- activations ---- */

enum { FACTORS = 6 };
struct product {
    int32_t factors[FACTORS];
    int n;
    double number; /* constant factors, multiplied */
};

/* The factors of nested Mul, and Div by numbers, at most `depth` of them in each other. */
static bool factors_within(const struct sw_onnx_plan *p, int32_t v, int depth, struct product *out)
{
    const struct sw_onnx_graph_node *times = sw_onnx_made_by(p, v = sw_onnx_uncast(p, v), "Mul");
    const struct sw_onnx_graph_node *by = sw_onnx_made_by(p, v, "Div");
    double x;
    if (sw_onnx_single(p, v, &x)) {
        out->number *= x;
        return true;
    }
    if (times) {
        return depth > 0 && factors_within(p, times->in[0], depth - 1, out) &&
               factors_within(p, times->in[1], depth - 1, out);
    }
    if (by && sw_onnx_single(p, by->in[1], &x)) {
        out->number /= x;
        return depth > 0 && factors_within(p, by->in[0], depth - 1, out);
    }
    if (out->n == FACTORS) {
        return false;
    }
    out->factors[out->n++] = v;
    return true;
}

static bool factors_of(const struct sw_onnx_plan *p, int32_t v, struct product *out)
{
    return factors_within(p, v, FACTORS, out);
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-4;
}

/* number times x */
static bool scaled_of(const struct sw_onnx_plan *p, int32_t v, double number, int32_t x)
{
    struct product f = {.number = 1};
    return factors_of(p, v, &f) && f.n == 1 && f.factors[0] == x && near(f.number, number);
}

/* sqrt(2 / pi) (x + 0.044715 x^3) */
static bool is_cubic(const struct sw_onnx_plan *p, int32_t v, int32_t x)
{
    struct product f = {.number = 1};
    const struct sw_onnx_graph_node *sum = NULL;
    if (factors_of(p, v, &f) && f.n == 1 && near(f.number, 0.7978845608)) {
        sum = sw_onnx_made_by(p, f.factors[0], "Add");
    }
    for (int i = 0; sum && i < 2; i++) {
        struct product cube = {.number = 1};
        if (sw_onnx_uncast(p, sum->in[i]) != x || !factors_of(p, sum->in[1 - i], &cube) ||
            !near(cube.number, 0.044715)) {
            continue;
        }
        const struct sw_onnx_graph_node *power = sw_onnx_made_by(p, cube.factors[0], "Pow");
        if ((cube.n == 1 && power && sw_onnx_uncast(p, power->in[0]) == x &&
             sw_onnx_is_single(p, power->in[1], 3)) ||
            (cube.n == 3 && cube.factors[0] == x && cube.factors[1] == x && cube.factors[2] == x)) {
            return true;
        }
    }
    return false;
}

/* The activation that is number times x times f. */
static enum sw_act act_of(const struct sw_onnx_plan *p, int32_t x, int32_t f, double number)
{
    const struct sw_onnx_graph_node *gate = sw_onnx_made_by(p, f, "Sigmoid");
    int32_t inner, one;
    if (gate && near(number, 1)) {
        return scaled_of(p, gate->in[0], 1, x)       ? SW_ACT_SILU
               : scaled_of(p, gate->in[0], 1.702, x) ? SW_ACT_QUICK_GELU
                                                     : SW_ACT_NONE;
    }
    if (!near(number, 0.5) ||
        !with_leaf(p, sw_onnx_made_by(p, f, "Add"), is_constant, &inner, &one) ||
        !sw_onnx_is_single(p, one, 1)) {
        return SW_ACT_NONE;
    }
    const struct sw_onnx_graph_node *erf = sw_onnx_made_by(p, inner, "Erf");
    const struct sw_onnx_graph_node *tanh = sw_onnx_made_by(p, inner, "Tanh");
    return erf && scaled_of(p, erf->in[0], 0.7071067812, x) ? SW_ACT_GELU
           : tanh && is_cubic(p, tanh->in[0], x)            ? SW_ACT_GELU_TANH
                                                            : SW_ACT_NONE;
}

/* An activation whose factors are not next to each other; *up: what is left, or -1. */
static bool find_act(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m, int32_t *up)
{
    struct product f = {.number = 1};
    if (!factors_of(p, v, &f) || f.n < 2 || f.n > 3) {
        return false;
    }
    for (int i = 0; i < f.n; i++) {
        for (int k = 0; k < f.n; k++) {
            m->act = i == k ? SW_ACT_NONE : act_of(p, f.factors[i], f.factors[k], f.number);
            if (m->act != SW_ACT_NONE) {
                sw_onnx_need(m, f.factors[i]);
                *up = f.n == 3 ? f.factors[3 - i - k] : -1;
                return true;
            }
        }
    }
    return false;
}

static bool match_act_parts(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    int32_t up;
    return find_act(p, v, m, &up) && up < 0;
}

static enum sw_act whole_act(const struct sw_onnx_graph_node *node)
{
    static const struct {
        const char *op;
        enum sw_act act;
    } acts[] = {{"Relu", SW_ACT_RELU},           {"Tanh", SW_ACT_TANH}, {"Sigmoid", SW_ACT_SIGMOID},
                {"HardSwish", SW_ACT_HARDSWISH}, {"Mish", SW_ACT_MISH}, {"Gelu", SW_ACT_GELU}};
    if (node && strcmp(node->op, "Gelu") == 0 &&
        strcmp(sw_onnx_attr_text(node, "approximate", "none"), "tanh") == 0) {
        return SW_ACT_GELU_TANH;
    }
    for (size_t i = 0; node && i < SW_LEN(acts); i++) {
        if (strcmp(node->op, acts[i].op) == 0) {
            return acts[i].act;
        }
    }
    return SW_ACT_NONE;
}

static bool match_act(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    m->act = whole_act(node);
    sw_onnx_need(m, node->in[0]);
    return m->act != SW_ACT_NONE;
}

/* An activation times another value of the same shape. */
static bool match_gate(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    int32_t up = -1;
    if (find_act(p, v, m, &up) && up >= 0) {
        sw_onnx_need(m, up);
    } else {
        for (int i = 0; i < 2 && up < 0; i++) {
            const struct sw_onnx_graph_node *act = sw_onnx_maker(p, node->in[i]);
            m->act = whole_act(act);
            if (m->act != SW_ACT_NONE && m->act != SW_ACT_SIGMOID) {
                m->n_in = 0;
                up = node->in[1 - i];
                sw_onnx_need(m, act->in[0]);
                sw_onnx_need(m, up);
            }
        }
    }
    return up >= 0 && !is_weight(p, up) &&
           same_dims(sw_onnx_value(p, up), sw_onnx_value(p, m->in[0]));
}

/* ---- elementwise ---- */

/* in[1] is repeated over leading dims of in[0]. */
static bool fits(const struct sw_onnx_plan *p, int32_t a, int32_t b)
{
    const struct sw_onnx_graph_value *x = sw_onnx_value(p, a), *y = sw_onnx_value(p, b);
    int skip = 0;
    while (skip < y->rank && y->dims[skip] == 1 && y->rank - skip > 1) {
        skip++;
    }
    if (same_dims(x, y)) {
        return true;
    }
    for (int d = 1; d <= y->rank - skip; d++) {
        if (d > x->rank || x->dims[x->rank - d] != y->dims[y->rank - d]) {
            return false;
        }
    }
    return y->rank <= x->rank;
}

static bool match_pair(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    const int first = fits(p, node->in[0], node->in[1]) ? 0 : 1;
    const int32_t a = node->in[first], b = node->in[1 - first];
    sw_onnx_need(m, a);
    sw_onnx_need(m, b);
    return is_float(p, v) && fits(p, a, b) && same_dims(sw_onnx_value(p, a), sw_onnx_value(p, v)) &&
           sw_onnx_value(p, a)->kind != ONNX_VALUE_CONSTANT;
}

static bool match_scale(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    const bool divides = strcmp(node->op, "Div") == 0;
    int32_t x, number;
    if (divides ? !sw_onnx_single(p, node->in[1], &m->number)
                : !with_leaf(p, node, is_constant, &x, &number) ||
                      !sw_onnx_single(p, number, &m->number)) {
        return false;
    }
    m->number = divides ? 1 / m->number : m->number;
    sw_onnx_need(m, divides ? node->in[0] : x);
    return is_float(p, v) && same_dims(sw_onnx_value(p, m->in[0]), sw_onnx_value(p, v));
}

/* ---- poolers ---- */

/* True if operand i_in of a node is the mask, with a dim of columns. */
static bool is_mask_of(const struct sw_onnx_plan *p, int32_t node, int i_in)
{
    const struct sw_onnx_data *ones = sw_onnx_probe(p, 0, node, i_in);
    const struct sw_onnx_data *holes = sw_onnx_probe(p, 1, node, i_in);
    double one;
    if (!ones || !holes || !p->probe_mask || !sw_onnx_data_uniform(ones, &one) || one != 1 ||
        holes->rank != 3 || holes->dims[1] != p->tokens) {
        return false;
    }
    const int64_t rows = p->probe_batch * p->tokens, width = rows > 0 ? holes->n / rows : 0;
    for (int64_t i = 0; i < holes->n; i++) {
        if (sw_onnx_data_int(holes, i) != p->probe_mask[i / width]) {
            return false;
        }
    }
    return holes->n == rows * width && width > 0;
}

/* The sum over tokens of x times the mask, divided by the number of real tokens. */
static bool match_masked_mean(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    const struct sw_onnx_graph_node *sum = sw_onnx_made_by(p, node->in[0], "ReduceSum");
    const struct sw_onnx_graph_node *times = sw_onnx_made_by(p, operand(sum, 0), "Mul");
    const struct sw_onnx_data *count = sw_onnx_probe(p, 1, m->node, 1);
    int64_t dims[2];
    if (!times || !count || ints_of(p, sum, "axes", 1, dims, 2) != 1 || dims[0] != 1 ||
        sw_onnx_value(p, node->in[0])->rank != 2) {
        return false;
    }
    const int64_t width = count->n / p->probe_batch;
    for (int64_t i = 0; i < count->n; i++) {
        int64_t real = 0;
        for (int64_t t = 0; t < p->tokens; t++) {
            real += p->probe_mask[i / width * p->tokens + t];
        }
        if (fabs(sw_onnx_data_number(count, i) - (double)real) > 1e-6 * (double)real) {
            return false;
        }
    }
    const int32_t at = (int32_t)(times - p->graph->nodes);
    const int mask = is_mask_of(p, at, 1) ? 1 : is_mask_of(p, at, 0) ? 0 : -1;
    if (mask >= 0) {
        sw_onnx_need(m, times->in[1 - mask]);
    }
    return mask >= 0 && sw_onnx_value(p, times->in[1 - mask])->rank == 3;
}

/* ---- the table ---- */

static const struct sw_onnx_pattern patterns[] = {
    {"attention", " MatMul ",
     "Softmax of the product of queries and keys, with numbers as scale and masks of 0 and -inf, "
     "times values",
     sw_onnx_match_attention, sw_onnx_emit_attention},
    {"attention", " Attention ", "queries, keys, values, and masks of 0 and -inf",
     sw_onnx_match_whole_attention, sw_onnx_emit_attention},
    {"product", " MatMul ", "MatMul with a matrix of weights", match_product, sw_onnx_emit_linear},
    {"product", " Gemm ", "Gemm with a matrix of weights, alpha 1 and beta 1", match_gemm,
     sw_onnx_emit_linear},
    {"product with bias", " Add ", "Add of a product with weights, and a vector of weights",
     match_biased, sw_onnx_emit_linear},
    {"layer norm", " LayerNormalization ", "weight and bias along the last dim", match_layer_norm,
     sw_onnx_emit_layer_norm},
    {"layer norm", " Add ", "ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add",
     match_layer_norm_parts, sw_onnx_emit_layer_norm},
    {"RMS norm", " RMSNormalization ", "a weight along the last dim", match_rms,
     sw_onnx_emit_rms_norm},
    {"RMS norm", " Mul ", "Pow, ReduceMean, Add, Sqrt, Div, Mul, and Mul with a weight",
     match_rms_parts, sw_onnx_emit_rms_norm},
    {"rotation", " Add ", "x times cosines, plus x with its halves exchanged times sines",
     sw_onnx_match_rotary, sw_onnx_emit_rotary},
    {"activation", " Mul Div ", "GELU by Erf or Tanh, or x times Sigmoid", match_act_parts,
     sw_onnx_emit_act},
    {"activation", " Relu Tanh Sigmoid HardSwish Mish Gelu ", "any operand", match_act,
     sw_onnx_emit_act},
    {"gate", " Mul ", "an activation times a value of its shape", match_gate, sw_onnx_emit_gate},
    {"factor", " Mul Div ", "a number", match_scale, sw_onnx_emit_scale},
    {"sum", " Add ", "shapes that are equal, or one that is the end of the other", match_pair,
     sw_onnx_emit_add},
    {"elementwise product", " Mul ", "shapes that are equal, or one that is the end of the other",
     match_pair, sw_onnx_emit_mul},
    {"lookup", " Gather ",
     "rows of a table of weights, by an input, by constants, or by counted tokens", match_embedding,
     sw_onnx_emit_embedding},
    {"index", " Gather ", "constant indices that follow each other", match_index,
     sw_onnx_emit_slice},
    {"slice", " Slice Split ", "one dim, and steps of 1", match_slice, sw_onnx_emit_slice},
    {"view", " Reshape Squeeze Unsqueeze Flatten ", "floats", match_reshape, sw_onnx_emit_reshape},
    {"transpose", " Transpose ", "2 to 4 dims", match_transpose, sw_onnx_emit_transpose},
    {"concatenation", " Concat ", "floats, at most 12", match_concat, sw_onnx_emit_concat},
    {"learned row", " Expand ", "weights [1,1,C], to a row for each sample", match_rows,
     sw_onnx_emit_rows},
    {"patches", " Conv ", "windows side by side, without groups, padding or dilation", match_conv,
     sw_onnx_emit_conv},
    {"masked mean", " Div ", "ReduceSum of x times the mask, by the number of real tokens",
     match_masked_mean, sw_onnx_emit_masked_mean},
    {"cast", " Cast Expand ", "floats of the same shape", match_same, sw_onnx_emit_same},
};

static bool ends_in(const struct sw_onnx_pattern *row, const struct sw_onnx_graph_node *node)
{
    char word[80];
    snprintf(word, sizeof word, " %s ", node->op);
    return strstr(row->ops, word) != NULL;
}

bool sw_onnx_match_value(const struct sw_onnx_plan *p, int32_t value, struct sw_onnx_match *out)
{
    const int32_t node = sw_onnx_value(p, value)->producer;
    for (size_t i = 0; i < SW_LEN(patterns); i++) {
        *out = (struct sw_onnx_match){
            .by = &patterns[i], .value = value, .node = node, .weight = -1, .bias = -1};
        if (ends_in(&patterns[i], &p->graph->nodes[node]) && patterns[i].match(p, value, out)) {
            return true;
        }
    }
    return false;
}

void sw_onnx_nearest(const struct sw_onnx_graph_node *node, struct sw_str *out)
{
    int n = 0;
    for (size_t i = 0; i < SW_LEN(patterns); i++) {
        if (ends_in(&patterns[i], node)) {
            sw_str_printf(out, "%s%s (%s)",
                          n++ > 0 ? ", " : "; patterns that end in it: ", patterns[i].name,
                          patterns[i].wants);
        }
    }
    sw_str_puts(out, n > 0 ? "" : "; no pattern ends in it");
}

void sw_onnx_list_patterns(struct sw_str *out)
{
    sw_str_puts(out, "| Pattern | Last node | Of |\n|---|---|---|\n");
    for (size_t i = 0; i < SW_LEN(patterns); i++) {
        const struct sw_onnx_pattern *row = &patterns[i];
        sw_str_printf(out, "| %s | %.*s | %s |\n", row->name, (int)strlen(row->ops) - 2,
                      row->ops + 1, row->wants);
    }
}
