// SPDX-License-Identifier: Apache-2.0
// Attention and rotary positions in parts. What masks hide is known from their values: two folds of
// the graph have constant inputs, one of them a mask with holes.
#include <math.h>
#include <string.h>

#include "onnx/import.h"

/* ---- layouts ---- */

/* Dims of a value that are batch, token, head and column. */
struct layout {
    int32_t value;
    int of[4];
    double scale; /* factor that was taken off */
};

static int axis_of_transpose(const struct sw_onnx_graph_node *node, int d)
{
    const struct sw_onnx_graph_attr *perm = sw_onnx_attr(node, "perm");
    return perm && d < perm->n ? (int)perm->ints[d] : -1;
}

/* The value whose last two of four dims are exchanged by a Reshape, a Transpose of three dims and a
 * Reshape; -1: v is not made so. */
static int32_t turned_in_three(const struct sw_onnx_plan *p, int32_t v)
{
    const struct sw_onnx_graph_node *split = sw_onnx_made_by(p, v, "Reshape");
    const struct sw_onnx_graph_node *turn =
        split ? sw_onnx_made_by(p, split->in[0], "Transpose") : NULL;
    const struct sw_onnx_graph_node *join =
        turn ? sw_onnx_made_by(p, turn->in[0], "Reshape") : NULL;
    if (!join || sw_onnx_value(p, join->in[0])->rank != 4 || sw_onnx_value(p, v)->rank != 4 ||
        sw_onnx_value(p, turn->in[0])->rank != 3 || axis_of_transpose(turn, 0) != 0 ||
        axis_of_transpose(turn, 1) != 2) {
        return -1;
    }
    const int64_t *from = sw_onnx_value(p, join->in[0])->dims, *to = sw_onnx_value(p, v)->dims;
    const int64_t *three = sw_onnx_value(p, turn->in[0])->dims;
    return from[0] == to[0] && from[1] == to[1] && from[2] == to[3] && from[3] == to[2] &&
                   three[1] == from[2] && three[2] == from[3]
               ? join->in[0]
               : -1;
}

/* Takes factors and transposes off a value of four dims. */
static void peel(const struct sw_onnx_plan *p, struct layout *l)
{
    for (int steps = 0; steps < ONNX_STEPS; steps++) {
        l->value = sw_onnx_uncast(p, l->value);
        const struct sw_onnx_graph_node *node = sw_onnx_maker(p, l->value);
        double x;
        if (!node) {
            return;
        }
        if (strcmp(node->op, "Mul") == 0 && sw_onnx_single(p, node->in[1], &x)) {
            l->scale *= x;
        } else if (strcmp(node->op, "Mul") == 0 && sw_onnx_single(p, node->in[0], &x)) {
            l->scale *= x;
            l->value = node->in[1];
            continue;
        } else if (strcmp(node->op, "Div") == 0 && sw_onnx_single(p, node->in[1], &x)) {
            l->scale /= x;
        } else if (strcmp(node->op, "Transpose") == 0 && sw_onnx_value(p, l->value)->rank == 4) {
            for (int i = 0; i < 4; i++) {
                l->of[i] = axis_of_transpose(node, l->of[i]);
            }
        } else if (turned_in_three(p, l->value) >= 0) {
            for (int i = 0; i < 4; i++) {
                l->of[i] = l->of[i] < 2 ? l->of[i] : 5 - l->of[i];
            }
            l->value = turned_in_three(p, l->value);
            continue;
        } else {
            return;
        }
        l->value = node->in[0];
    }
}

/* The keys or values that a Reshape of an Expand repeats for several heads of queries. */
static void unrepeat(const struct sw_onnx_plan *p, struct layout *l)
{
    const struct sw_onnx_graph_node *reshape = sw_onnx_made_by(p, l->value, "Reshape");
    const struct sw_onnx_graph_node *expand =
        reshape ? sw_onnx_made_by(p, reshape->in[0], "Expand") : NULL;
    const struct sw_onnx_graph_node *lift = expand ? sw_onnx_maker(p, expand->in[0]) : NULL;
    if (!lift || (strcmp(lift->op, "Unsqueeze") != 0 && strcmp(lift->op, "Reshape") != 0)) {
        return;
    }
    const struct sw_onnx_graph_value *from = sw_onnx_value(p, lift->in[0]);
    const struct sw_onnx_graph_value *one = sw_onnx_value(p, expand->in[0]);
    const struct sw_onnx_graph_value *many = sw_onnx_value(p, reshape->in[0]);
    const int head = l->of[2];
    if (from->rank != 4 || one->rank != 5 || many->rank != 5 || one->dims[head + 1] != 1) {
        return;
    }
    for (int d = 0; d < 5; d++) {
        const int64_t had = d == head + 1 ? 1 : from->dims[d <= head ? d : d - 1];
        if (one->dims[d] != had || (d != head + 1 && many->dims[d] != had)) {
            return;
        }
    }
    l->value = lift->in[0];
}

static struct layout layout_of(const struct sw_onnx_plan *p, int32_t v, const int of[4])
{
    struct layout l = {.value = v, .scale = 1};
    memcpy(l.of, of, sizeof l.of);
    peel(p, &l);
    unrepeat(p, &l);
    peel(p, &l);
    return l;
}

/* ---- masks ---- */

/* A node that hides scores. */
struct hides {
    int32_t node;
    int i_in;
    enum { HIDES_ADDED, HIDES_IF, HIDES_UNLESS } how;
};
enum { MOST_HIDES = 4 };

struct scores {
    int32_t product; /* MatMul */
    double scale;
    struct hides hides[MOST_HIDES];
    int n_hides;
    bool causal; /* besides what is hidden */
};

/* In a probe, operand i_in of this node is a constant. */
static bool is_known(const struct sw_onnx_plan *p, const struct sw_onnx_graph_node *node, int i_in)
{
    return sw_onnx_probe(p, 0, (int32_t)(node - p->graph->nodes), i_in) != NULL;
}

static bool is_low(const struct sw_onnx_data *data)
{
    double x = 0;
    return data && sw_onnx_data_uniform(data, &x) && x < -1000;
}

static bool note(struct scores *s, const struct sw_onnx_plan *p,
                 const struct sw_onnx_graph_node *node, int i_in, int how)
{
    if (s->n_hides == MOST_HIDES) {
        return false;
    }
    s->hides[s->n_hides++] = (struct hides){(int32_t)(node - p->graph->nodes), i_in, how};
    return true;
}

/* One node between Softmax and the product. Returns the value before it, or -1. */
static int32_t step(const struct sw_onnx_plan *p, const struct sw_onnx_graph_node *node,
                    struct scores *s)
{
    const int32_t at = (int32_t)(node - p->graph->nodes);
    double x;
    if (strcmp(node->op, "Add") == 0) {
        const int mask = is_known(p, node, 1) ? 1 : is_known(p, node, 0) ? 0 : -1;
        return mask >= 0 && note(s, p, node, mask, HIDES_ADDED) ? node->in[1 - mask] : -1;
    }
    if (strcmp(node->op, "Where") == 0 && is_known(p, node, 0)) {
        const int low = is_low(sw_onnx_probe(p, 0, at, 2))   ? 2
                        : is_low(sw_onnx_probe(p, 0, at, 1)) ? 1
                                                             : 0;
        return low > 0 && note(s, p, node, 0, low == 1 ? HIDES_IF : HIDES_UNLESS)
                   ? node->in[3 - low]
                   : -1;
    }
    if (strcmp(node->op, "Max") == 0 && node->n_in == 2) {
        const int low = is_low(sw_onnx_probe(p, 0, at, 1)) ? 1 : 0;
        return is_low(sw_onnx_probe(p, 0, at, low)) ? node->in[1 - low] : -1;
    }
    if (strcmp(node->op, "Mul") == 0 || strcmp(node->op, "Div") == 0) {
        const bool divides = strcmp(node->op, "Div") == 0;
        const int number = sw_onnx_single(p, node->in[1], &x)               ? 1
                           : !divides && sw_onnx_single(p, node->in[0], &x) ? 0
                                                                            : -1;
        s->scale *= number < 0 ? 1 : divides ? 1 / x : x;
        return number < 0 ? -1 : node->in[1 - number];
    }
    return -1;
}

static bool read_scores(const struct sw_onnx_plan *p, int32_t v, struct scores *s)
{
    *s = (struct scores){.scale = 1, .product = -1};
    for (int steps = 0; steps < ONNX_STEPS && v >= 0; steps++) {
        v = sw_onnx_uncast(p, v);
        const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
        if (!node || strcmp(node->op, "MatMul") == 0) {
            s->product = v;
            return node != NULL;
        }
        v = step(p, node, s);
    }
    return false;
}

/* The element of a mask that [b,h,q,k] reads, broadcast from its last dims on. */
static double element(const struct sw_onnx_data *data, const int64_t *at)
{
    int64_t i = 0;
    for (int d = 0; d < data->rank; d++) {
        const int64_t own = data->dims[d], x = at[4 - data->rank + d];
        i = i * own + (own == 1 ? 0 : x < own ? x : own - 1);
    }
    return sw_onnx_data_number(data, i);
}

/* 1 = visible, 0 = hidden, -1 = neither */
static int shows(const struct hides *h, const struct sw_onnx_data *data, const int64_t *at)
{
    const double x = element(data, at);
    switch (h->how) {
    case HIDES_IF:
        return x == 0;
    case HIDES_UNLESS:
        return x != 0;
    case HIDES_ADDED:
        break;
    }
    return x == 0 ? 1 : x < -1000 ? 0 : -1;
}

/* Whether query q sees key k of sample b in a probe. */
static int visible(const struct sw_onnx_plan *p, const struct scores *s, int i_probe, int64_t b,
                   int64_t q, int64_t k)
{
    const int64_t at[4] = {b, 0, q, k};
    int all = !s->causal || k <= q;
    for (int i = 0; i < s->n_hides; i++) {
        const struct sw_onnx_data *data =
            sw_onnx_probe(p, i_probe, s->hides[i].node, s->hides[i].i_in);
        const int one = data && data->rank <= 4 ? shows(&s->hides[i], data, at) : -1;
        if (one < 0) {
            return -1;
        }
        all = all && one;
    }
    return all;
}

/* Heads have the same mask, so that looking at one is enough. */
static bool is_of_all_heads(const struct sw_onnx_plan *p, const struct scores *s)
{
    for (int i = 0; i < s->n_hides; i++) {
        const struct sw_onnx_data *data = sw_onnx_probe(p, 1, s->hides[i].node, s->hides[i].i_in);
        if (!data || data->rank > 4 || (data->rank >= 3 && data->dims[data->rank - 3] > 1)) {
            return false;
        }
    }
    return true;
}

/* The first and the last key that query q sees, in a probe without holes. */
static bool keys_of(const struct sw_onnx_plan *p, const struct scores *s, int64_t keys, int64_t q,
                    int64_t *first, int64_t *last)
{
    *first = *last = -1;
    for (int64_t k = 0; k < keys; k++) {
        const int one = visible(p, s, 0, 0, q, k);
        if (one < 0 || (one > 0 && *last >= 0 && *last != k - 1)) {
            return false;
        }
        *first = one > 0 && *first < 0 ? k : *first;
        *last = one > 0 ? k : *last;
    }
    return *last >= 0;
}

static bool read_shape(const struct sw_onnx_plan *p, const struct scores *s, int64_t n,
                       struct sw_onnx_match *m)
{
    int64_t first, last;
    if (!keys_of(p, s, n, 0, &first, &last)) {
        return false;
    }
    m->attention.causal = last == 0 && n > 1;
    for (int64_t q = 0; q < n; q++) {
        if (!keys_of(p, s, n, q, &first, &last) || last != (m->attention.causal ? q : n - 1) ||
            (!m->attention.causal && first != 0)) {
            return false;
        }
        if (first > 0 && m->attention.window == 0) {
            m->attention.window = q - first + 1;
        }
        if (first != (m->attention.window > 0 ? sw_max_i64(0, q - m->attention.window + 1) : 0)) {
            return false;
        }
    }
    return true;
}

/* Whether attention reads the mask: with holes in it, these keys are hidden too. */
static bool read_holes(const struct sw_onnx_plan *p, const struct scores *s, int64_t n,
                       struct sw_onnx_match *m)
{
    bool by_mask = p->probe_mask != NULL && n == p->tokens, without = true;
    for (int64_t b = 0; b < p->probe_batch; b++) {
        for (int64_t q = 0; q < n; q++) {
            for (int64_t k = 0; k < n; k++) {
                const int one = visible(p, s, 1, b, q, k);
                const bool seen = (!m->attention.causal || k <= q) &&
                                  (m->attention.window == 0 || k > q - m->attention.window);
                without = without && one == seen;
                by_mask = by_mask && one == (seen && p->probe_mask[b * n + k] != 0);
            }
        }
    }
    m->attention.has_mask = by_mask && !without;
    return by_mask || without;
}

static bool read_mask(const struct sw_onnx_plan *p, const struct scores *s, int64_t queries,
                      int64_t keys, struct sw_onnx_match *m)
{
    return (s->n_hides == 0 && !s->causal) ||
           (queries == keys && is_of_all_heads(p, s) && read_shape(p, s, keys, m) &&
            read_holes(p, s, keys, m));
}

/* ---- attention ---- */

/* The probabilities before what exporters do to rows of which all is hidden. */
static int32_t probabilities(const struct sw_onnx_plan *p, int32_t v)
{
    v = sw_onnx_uncast(p, v);
    const struct sw_onnx_graph_node *where = sw_onnx_made_by(p, v, "Where");
    const struct sw_onnx_graph_node *nan = where ? sw_onnx_made_by(p, where->in[0], "IsNaN") : NULL;
    return nan && sw_onnx_is_single(p, where->in[1], 0) ? sw_onnx_uncast(p, where->in[2]) : v;
}

/* Queries, keys and values that are columns of one product, as sw_attention_packed takes them. */
static void find_packed(const struct sw_onnx_plan *p, const struct layout *const *all,
                        struct sw_onnx_match *m)
{
    int32_t x[3];
    int64_t first[3], n[3], at = 0;
    for (int i = 0; i < 3; i++) {
        const struct layout *l = all[i];
        const struct sw_onnx_graph_node *reshape = sw_onnx_made_by(p, l->value, "Reshape");
        const bool in_order = l->of[0] == 0 && l->of[1] == 1 && l->of[2] == 2 && l->of[3] == 3;
        if (!reshape || !in_order || sw_onnx_value(p, reshape->in[0])->rank != 3 ||
            sw_onnx_value(p, reshape->in[0])->dims[1] != sw_onnx_value(p, l->value)->dims[1] ||
            !sw_onnx_columns(p, reshape->in[0], &x[i], &first[i], &n[i]) || x[i] != x[0] ||
            first[i] != at) {
            return;
        }
        at += n[i];
    }
    const struct sw_onnx_graph_value *whole = sw_onnx_value(p, x[0]);
    if (whole->dims[2] == at && n[1] == n[2]) {
        m->attention.packed = true;
        m->n_in = 0;
        sw_onnx_need(m, x[0]);
    }
}

bool sw_onnx_match_attention(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    static const int head_first[4] = {0, 2, 1, 3}, keys_turned[4] = {0, 3, 1, 2};
    const struct sw_onnx_graph_node *node = sw_onnx_made_by(p, v, "MatMul");
    const struct sw_onnx_graph_node *softmax =
        node ? sw_onnx_made_by(p, probabilities(p, node->in[0]), "Softmax") : NULL;
    struct scores s;
    if (!softmax || sw_onnx_value(p, v)->rank != 4 || !read_scores(p, softmax->in[0], &s)) {
        return false;
    }
    const struct sw_onnx_graph_value *shape = sw_onnx_value(p, s.product);
    const int64_t axis = sw_onnx_attr_int(softmax, "axis", -1);
    const struct sw_onnx_graph_node *product = sw_onnx_maker(p, s.product);
    if (shape->rank != 4 || (axis != -1 && axis != 3) ||
        !read_mask(p, &s, shape->dims[2], shape->dims[3], m)) {
        return false;
    }
    const struct layout q = layout_of(p, product->in[0], head_first);
    const struct layout k = layout_of(p, product->in[1], keys_turned);
    const struct layout w = layout_of(p, node->in[1], head_first);
    const struct layout *all[3] = {&q, &k, &w};
    int *const of[3] = {m->attention.of_q, m->attention.of_k, m->attention.of_v};
    for (int i = 0; i < 3; i++) {
        sw_onnx_need(m, all[i]->value);
        memcpy(of[i], all[i]->of, sizeof all[i]->of);
        if (sw_onnx_value(p, all[i]->value)->rank != 4) {
            return false;
        }
    }
    m->attention.heads = shape->dims[1];
    m->attention.kv_heads = sw_onnx_value(p, k.value)->dims[k.of[2]];
    m->number = s.scale * q.scale * k.scale;
    const bool fits = w.scale == 1 &&
                      sw_onnx_value(p, q.value)->dims[q.of[2]] == m->attention.heads &&
                      sw_onnx_value(p, w.value)->dims[w.of[2]] == m->attention.kv_heads;
    if (fits) {
        find_packed(p, all, m);
    }
    return fits;
}

/* Attention as a single node, since opset 23: [B,T,H D], or heads first. */
bool sw_onnx_match_whole_attention(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    static const int head_first[4] = {0, 2, 1, 3};
    const struct sw_onnx_graph_node *node = sw_onnx_maker(p, v);
    const struct sw_onnx_graph_value *q = sw_onnx_value(p, node->in[0]);
    const struct sw_onnx_graph_value *k = sw_onnx_value(p, node->in[1]);
    const bool flat = q->rank == 3, has_mask = node->n_in > 3 && node->in[3] >= 0;
    struct scores s = {.product = -1, .causal = sw_onnx_attr_int(node, "is_causal", 0) != 0};
    if (sw_onnx_value(p, v)->i_out != 0 || node->n_in > 4 ||
        sw_onnx_attr_number(node, "softcap", 0) != 0 || q->rank != k->rank ||
        (has_mask &&
         !(is_known(p, node, 3) &&
           note(&s, p, node, 3,
                sw_onnx_value(p, node->in[3])->type == ONNX_BOOL ? HIDES_UNLESS : HIDES_ADDED)))) {
        return false;
    }
    m->attention.flat = flat;
    m->attention.heads = flat ? sw_onnx_attr_int(node, "q_num_heads", 0) : q->dims[1];
    m->attention.kv_heads = flat ? sw_onnx_attr_int(node, "kv_num_heads", 0) : k->dims[1];
    if (m->attention.heads < 1 || m->attention.kv_heads < 1 || q->rank < 3 || q->rank > 4) {
        return false;
    }
    const int64_t width = flat ? q->dims[2] / m->attention.heads : q->dims[3];
    m->number = sw_onnx_attr_number(node, "scale", 1 / sqrt((double)width));
    for (int i = 0; i < 3; i++) {
        sw_onnx_need(m, node->in[i]);
    }
    memcpy(m->attention.of_q, head_first, sizeof head_first);
    memcpy(m->attention.of_k, head_first, sizeof head_first);
    memcpy(m->attention.of_v, head_first, sizeof head_first);
    return read_mask(p, &s, q->dims[flat ? 1 : 2], k->dims[flat ? 1 : 2], m);
}

/* ---- rotary positions ---- */

/* A product of *x and a constant table of angles' cosines or sines. */
static const struct sw_onnx_data *turned(const struct sw_onnx_plan *p, int32_t v, int32_t *x)
{
    const struct sw_onnx_graph_node *times = sw_onnx_made_by(p, sw_onnx_uncast(p, v), "Mul");
    for (int i = 0; times && i < 2; i++) {
        const struct sw_onnx_graph_value *table = sw_onnx_value(p, sw_onnx_uncast(p, times->in[i]));
        if (table->kind == ONNX_VALUE_CONSTANT && table->data->n > 1) {
            *x = sw_onnx_uncast(p, times->in[1 - i]);
            return table->data;
        }
    }
    return NULL;
}

/* v is x with its halves exchanged, and the new first one negated. */
static bool is_exchanged(const struct sw_onnx_plan *p, int32_t v, int32_t x, int64_t width)
{
    const struct sw_onnx_graph_node *both = sw_onnx_made_by(p, v, "Concat");
    const struct sw_onnx_graph_node *minus =
        both && both->n_in == 2 ? sw_onnx_made_by(p, both->in[0], "Neg") : NULL;
    int32_t of[2];
    int64_t first[2], n[2];
    return minus && sw_onnx_columns(p, minus->in[0], &of[0], &first[0], &n[0]) &&
           sw_onnx_columns(p, both->in[1], &of[1], &first[1], &n[1]) &&
           sw_onnx_uncast(p, of[0]) == x && sw_onnx_uncast(p, of[1]) == x &&
           first[0] == width / 2 && first[1] == 0 && n[0] == width / 2 && n[1] == width / 2;
}

/* Where the tokens of a table [..] are: m->order is batch, token, head, column of x. */
static bool read_tables(const struct sw_onnx_plan *p, const struct sw_onnx_graph_value *x,
                        struct sw_onnx_match *m)
{
    const struct sw_onnx_data *table = m->data[0];
    static const int head_first[4] = {0, 2, 1, 3}, tokens_first[4] = {0, 1, 2, 3};
    const int64_t width = x->dims[3], rows = p->tokens;
    const int rank = table->rank;
    if (table->n % (rows * width) != 0 || m->data[1]->n != table->n || rank < 2 ||
        table->dims[rank - 1] != width || width % 2 != 0) {
        return false;
    }
    const bool second = table->dims[rank - 2] == rows && x->dims[2] == rows;
    const bool first = rank >= 3 && table->dims[rank - 2] == 1 && table->dims[rank - 3] == rows &&
                       x->dims[1] == rows;
    memcpy(m->order, second ? head_first : tokens_first, sizeof m->order);
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < table->n; i++) {
            const int64_t at = i % (rows * width), column = at % width;
            const int64_t half = column < width / 2 ? at : at - width / 2;
            if (sw_onnx_data_number(m->data[k], i) != sw_onnx_data_number(m->data[k], half)) {
                return false;
            }
        }
    }
    return second || first;
}

bool sw_onnx_match_rotary(const struct sw_onnx_plan *p, int32_t v, struct sw_onnx_match *m)
{
    const struct sw_onnx_graph_node *sum = sw_onnx_maker(p, v);
    int32_t x[2];
    for (int i = 0; i < 2; i++) {
        m->data[0] = turned(p, sum->in[i], &x[0]);
        m->data[1] = turned(p, sum->in[1 - i], &x[1]);
        const struct sw_onnx_graph_value *shape = m->data[0] ? sw_onnx_value(p, x[0]) : NULL;
        if (m->data[0] && m->data[1] && shape->rank == 4 &&
            is_exchanged(p, x[1], x[0], shape->dims[3]) && read_tables(p, shape, m)) {
            m->n_in = 0;
            sw_onnx_need(m, x[0]);
            return true;
        }
    }
    return false;
}
