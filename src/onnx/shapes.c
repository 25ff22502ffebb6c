// SPDX-License-Identifier: Apache-2.0
// Types and shapes of results, by operator: one row each, as in ONNX's Operators.md at opsets 17 to
// 23. An operator without a row is refused by name.
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "onnx/fold.h"
#include "onnx/reading.h"

typedef struct sw_onnx_case Case;
typedef struct sw_onnx_known Known;

/* ---- checks ---- */

static const char *words_of(const Known *x, char out[160])
{
    struct sw_onnx_graph_value v = {.type = x->type, .rank = x->rank};
    memcpy(v.dims, x->dims, sizeof v.dims);
    return sw_onnx_value_words(&v, out, 160);
}

static sw_status misfit(const Case *c, int i, const char *wanted)
{
    char words[160];
    return SW_FAIL(SW_E_FORMAT, "input %d is %s, wanted %s", i, words_of(c->in[i], words), wanted);
}

static const Known *in(const Case *c, int i)
{
    return i < c->n_in ? c->in[i] : NULL;
}

static sw_status want_in(const Case *c, int i, int least_rank, const char *wanted)
{
    if (!in(c, i)) {
        return SW_FAIL(SW_E_FORMAT, "input %d is absent, wanted %s", i, wanted);
    }
    return in(c, i)->rank < least_rank ? misfit(c, i, wanted) : SW_OK;
}

/* Elements of an operand that decides a shape. */
static sw_status want_data(const Case *c, int i, const struct sw_onnx_data **out)
{
    if (!in(c, i)) {
        return SW_FAIL(SW_E_FORMAT, "input %d is absent", i);
    }
    if (!in(c, i)->data) {
        return SW_FAIL(SW_E_UNSUP,
                       "the shape of its output depends on elements of input %d, wanted one that "
                       "sizes of the model's inputs decide",
                       i);
    }
    *out = in(c, i)->data;
    return SW_OK;
}

/* The same, for a list of at most cap integers. */
static sw_status want_ints(const Case *c, int i, int cap, int64_t *out, int *out_n)
{
    const struct sw_onnx_data *data;
    SW_TRY(want_data(c, i, &data));
    if (data->rank > 1 || data->n > cap || sw_onnx_is_float(data->type)) {
        return misfit(c, i, "a list of a few integers");
    }
    for (int64_t k = 0; k < data->n; k++) {
        out[k] = sw_onnx_data_int(data, k);
    }
    *out_n = (int)data->n;
    return SW_OK;
}

static sw_status set_out(Case *c, int k, enum sw_onnx_type type, int rank, const int64_t *dims)
{
    int64_t n;
    if (rank > ONNX_READ_RANK) {
        return SW_FAIL(SW_E_UNSUP, "its output has %d dimensions, wanted at most %d", rank,
                       ONNX_READ_RANK);
    }
    Known *x = &c->out[k];
    int64_t copy[ONNX_READ_RANK] = {0};
    memcpy(copy, dims, (size_t)rank * sizeof *dims);
    *x = (Known){.type = type, .rank = rank};
    memcpy(x->dims, copy, sizeof copy);
    if (!sw_onnx_elems(rank, x->dims, 8, &n)) {
        char words[160];
        return SW_FAIL(SW_E_FORMAT, "its output is %s: the product of dimensions overflows",
                       words_of(x, words));
    }
    return SW_OK;
}

static sw_status set_like(Case *c, int k, int i)
{
    const Known *x = c->in[i];
    return set_out(c, k, x->type, x->rank, x->dims);
}

sw_status sw_onnx_axis(const Case *c, int64_t axis, int rank, int *out)
{
    (void)c;
    if (axis < -rank || axis >= rank) {
        return SW_FAIL(SW_E_FORMAT, "axis %lld of %d dimensions", (long long)axis, rank);
    }
    *out = (int)(axis < 0 ? axis + rank : axis);
    return SW_OK;
}

sw_status sw_onnx_axes(const Case *c, int i_in, int rank, bool *out_given, unsigned *out)
{
    const struct sw_onnx_graph_attr *attr = sw_onnx_attr(c->node, "axes");
    int64_t list[ONNX_READ_RANK];
    int n = 0;
    *out = 0;
    *out_given = false;
    if (attr && attr->kind == ONNX_ATTR_INTS) {
        if (attr->n > ONNX_READ_RANK) {
            return SW_FAIL(SW_E_FORMAT, "%lld axes of %d dimensions", (long long)attr->n, rank);
        }
        n = (int)attr->n;
        memcpy(list, attr->ints, (size_t)n * sizeof *list);
        *out_given = true;
    } else if (in(c, i_in)) {
        SW_TRY(want_ints(c, i_in, ONNX_READ_RANK, list, &n));
        *out_given = true;
    }
    for (int i = 0; i < n; i++) {
        int axis;
        SW_TRY(sw_onnx_axis(c, list[i], rank, &axis));
        *out |= 1U << axis;
    }
    return SW_OK;
}

/* ---- element by element ---- */

static sw_status broadcast(const Case *c, int first, int n, int *out_rank, int64_t *dims)
{
    int rank = 0;
    for (int i = first; i < n; i++) {
        SW_TRY(want_in(c, i, 0, "a tensor"));
        rank = c->in[i]->rank > rank ? c->in[i]->rank : rank;
    }
    for (int d = 0; d < rank; d++) {
        dims[d] = 1;
    }
    for (int i = first; i < n; i++) {
        const Known *x = c->in[i];
        for (int d = 0; d < x->rank; d++) {
            int64_t *dim = &dims[rank - x->rank + d];
            if (*dim == 1) {
                *dim = x->dims[d];
            } else if (x->dims[d] != 1 && x->dims[d] != *dim) {
                char a[160];
                return SW_FAIL(SW_E_FORMAT,
                               "input %d is %s, and another has %lld in place of %lld: they do "
                               "not broadcast",
                               i, words_of(x, a), (long long)*dim, (long long)x->dims[d]);
            }
        }
    }
    *out_rank = rank;
    return SW_OK;
}

static sw_status infer_same(Case *c)
{
    for (int k = 0; k < c->n_out; k++) {
        SW_TRY(set_like(c, k, 0));
    }
    return SW_OK;
}

static sw_status same_types(const Case *c, int first)
{
    for (int i = first + 1; i < c->n_in; i++) {
        if (c->in[i] && c->in[i]->type != c->in[first]->type) {
            char words[160];
            char wanted[200];
            snprintf(wanted, sizeof wanted, "the type of input %d, %s", first,
                     words_of(c->in[first], words));
            return misfit(c, i, wanted);
        }
    }
    return SW_OK;
}

static sw_status infer_broadcast(Case *c)
{
    int rank;
    int64_t dims[ONNX_READ_RANK];
    SW_TRY(broadcast(c, 0, c->n_in, &rank, dims));
    SW_TRY(same_types(c, 0));
    return set_out(c, 0, c->in[0]->type, rank, dims);
}

static sw_status infer_pow(Case *c)
{
    int rank;
    int64_t dims[ONNX_READ_RANK];
    SW_TRY(broadcast(c, 0, c->n_in, &rank, dims));
    return set_out(c, 0, c->in[0]->type, rank, dims);
}

static sw_status infer_compare(Case *c)
{
    int rank;
    int64_t dims[ONNX_READ_RANK];
    SW_TRY(broadcast(c, 0, c->n_in, &rank, dims));
    SW_TRY(same_types(c, 0));
    return set_out(c, 0, ONNX_BOOL, rank, dims);
}

static sw_status infer_where(Case *c)
{
    int rank;
    int64_t dims[ONNX_READ_RANK];
    SW_TRY(broadcast(c, 0, 3, &rank, dims));
    SW_TRY(same_types(c, 1));
    return c->in[0]->type != ONNX_BOOL ? misfit(c, 0, "bool")
                                       : set_out(c, 0, c->in[1]->type, rank, dims);
}

static sw_status infer_clip(Case *c)
{
    for (int i = 1; i < c->n_in; i++) {
        int64_t n = 1;
        if (in(c, i) && (!sw_onnx_elems(in(c, i)->rank, in(c, i)->dims, 1, &n) || n != 1)) {
            return misfit(c, i, "one number");
        }
    }
    SW_TRY(same_types(c, 0));
    return set_like(c, 0, 0);
}

static sw_status infer_bool(Case *c)
{
    return set_out(c, 0, ONNX_BOOL, c->in[0]->rank, c->in[0]->dims);
}

static sw_status infer_identity(Case *c)
{
    c->same_as_in = true;
    return infer_same(c);
}

static sw_status infer_cast(Case *c)
{
    const int64_t to = sw_onnx_attr_int(c->node, "to", 0);
    const enum sw_onnx_type type = to > 0 && to <= ONNX_BF16 ? (enum sw_onnx_type)to : ONNX_TEXTS;
    if (!sw_onnx_type_name(type)) {
        return SW_FAIL(SW_E_UNSUP, "it casts to type number %lld of TensorProto.DataType",
                       (long long)to);
    }
    c->same_as_in = type == c->in[0]->type;
    return set_out(c, 0, type, c->in[0]->rank, c->in[0]->dims);
}

static sw_status infer_cast_like(Case *c)
{
    SW_TRY(want_in(c, 1, 0, "a tensor"));
    c->same_as_in = c->in[1]->type == c->in[0]->type;
    return set_out(c, 0, c->in[1]->type, c->in[0]->rank, c->in[0]->dims);
}

static sw_status infer_dropout(Case *c)
{
    const struct sw_onnx_data *data;
    if (in(c, 2)) {
        SW_TRY(want_data(c, 2, &data));
        if (data->n != 1 || sw_onnx_data_int(data, 0) != 0) {
            return SW_FAIL(SW_E_UNSUP,
                           "training_mode is set, wanted a model exported for inference");
        }
    }
    c->same_as_in = true;
    SW_TRY(set_like(c, 0, 0));
    return c->n_out > 1 ? set_out(c, 1, ONNX_BOOL, c->in[0]->rank, c->in[0]->dims) : SW_OK;
}

/* ---- norms ---- */

static sw_status infer_norm(Case *c)
{
    int axis;
    int64_t dims[ONNX_READ_RANK];
    const Known *x = c->in[0];
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", -1), x->rank, &axis));
    for (int i = 1; i < c->n_in; i++) {
        if (in(c, i) && in(c, i)->rank > x->rank) {
            return misfit(c, i, "at most the dimensions of input 0");
        }
    }
    SW_TRY(set_like(c, 0, 0));
    memcpy(dims, x->dims, sizeof dims);
    for (int d = axis; d < x->rank; d++) {
        dims[d] = 1;
    }
    for (int k = 1; k < c->n_out; k++) {
        SW_TRY(set_out(c, k, ONNX_F32, x->rank, dims));
    }
    return SW_OK;
}

static sw_status infer_batch_norm(Case *c)
{
    SW_TRY(want_in(c, 0, 2, "at least 2 dimensions"));
    if (sw_onnx_attr_int(c->node, "training_mode", 0) != 0 || c->n_out > 1) {
        return SW_FAIL(SW_E_UNSUP, "training_mode is set, wanted a model exported for inference");
    }
    return set_like(c, 0, 0);
}

static sw_status infer_axis(Case *c) /* Softmax and the like */
{
    int axis;
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", -1), c->in[0]->rank, &axis));
    return set_like(c, 0, 0);
}

/* ---- products ---- */

static sw_status infer_matmul(Case *c)
{
    int64_t dims[ONNX_READ_RANK];
    SW_TRY(want_in(c, 0, 1, "at least 1 dimension"));
    SW_TRY(want_in(c, 1, 1, "at least 1 dimension"));
    SW_TRY(same_types(c, 0));
    const Known *a = c->in[0], *b = c->in[1];
    const int ra = a->rank, rb = b->rank;
    const int64_t inner = rb == 1 ? b->dims[0] : b->dims[rb - 2];
    if (a->dims[ra - 1] != inner) {
        char words[160];
        return SW_FAIL(SW_E_FORMAT, "input 1 is %s, wanted %lld rows", words_of(b, words),
                       (long long)a->dims[ra - 1]);
    }
    const int ba = ra > 2 ? ra - 2 : 0, bb = rb > 2 ? rb - 2 : 0, batch = ba > bb ? ba : bb;
    int n = 0;
    for (int d = 0; d < batch; d++) {
        const int64_t x = d - (batch - ba) >= 0 ? a->dims[d - (batch - ba)] : 1;
        const int64_t y = d - (batch - bb) >= 0 ? b->dims[d - (batch - bb)] : 1;
        if (x != y && x != 1 && y != 1) {
            return misfit(c, 1, "a batch that broadcasts with input 0");
        }
        dims[n++] = x == 1 ? y : x;
    }
    if (ra > 1) {
        dims[n++] = a->dims[ra - 2];
    }
    if (rb > 1) {
        dims[n++] = b->dims[rb - 1];
    }
    return set_out(c, 0, a->type, n, dims);
}

static sw_status infer_gemm(Case *c)
{
    SW_TRY(want_in(c, 0, 2, "a matrix"));
    SW_TRY(want_in(c, 1, 2, "a matrix"));
    SW_TRY(same_types(c, 0));
    const Known *a = c->in[0], *b = c->in[1];
    if (a->rank != 2 || b->rank != 2) {
        return misfit(c, a->rank != 2 ? 0 : 1, "a matrix");
    }
    const int ta = sw_onnx_attr_int(c->node, "transA", 0) != 0;
    const int tb = sw_onnx_attr_int(c->node, "transB", 0) != 0;
    const int64_t dims[] = {a->dims[ta], b->dims[!tb]};
    if (a->dims[!ta] != b->dims[tb]) {
        return misfit(c, 1, "as many rows as input 0 has columns");
    }
    for (int d = 0; in(c, 2) && d < in(c, 2)->rank; d++) {
        const int at = 2 - in(c, 2)->rank + d;
        if (at < 0 || (in(c, 2)->dims[d] != 1 && in(c, 2)->dims[d] != dims[at])) {
            return misfit(c, 2, "a tensor that broadcasts to the product");
        }
    }
    return set_out(c, 0, a->type, 2, dims);
}

/* The i-th number of a list, or one for all. */
static sw_status list_at(const Case *c, const char *name, int n, int i, int64_t or_else,
                         int64_t *out)
{
    const struct sw_onnx_graph_attr *attr = sw_onnx_attr(c->node, name);
    *out = or_else;
    if (!attr || attr->kind != ONNX_ATTR_INTS) {
        return SW_OK;
    }
    if (attr->n != n) {
        return SW_FAIL(SW_E_FORMAT, "attribute %s has %lld numbers, wanted %d", name,
                       (long long)attr->n, n);
    }
    *out = attr->ints[i];
    return SW_OK;
}

/* The length along spatial dimension i of n after a window of `kernel`. */
static sw_status window(const Case *c, int n, int i, int64_t len, int64_t kernel, int64_t *out)
{
    int64_t stride, dilation, before, after;
    const char *pad = sw_onnx_attr_text(c->node, "auto_pad", "NOTSET");
    SW_TRY(list_at(c, "strides", n, i, 1, &stride));
    SW_TRY(list_at(c, "dilations", n, i, 1, &dilation));
    SW_TRY(list_at(c, "pads", 2 * n, i, 0, &before));
    SW_TRY(list_at(c, "pads", 2 * n, n + i, 0, &after));
    const int64_t most = INT64_C(1) << 31;
    if (stride < 1 || dilation < 1 || before < 0 || after < 0 || kernel < 1 || stride > most ||
        dilation > most || before > most || after > most || kernel > most || len > most) {
        return SW_FAIL(SW_E_FORMAT,
                       "its window has stride %lld, dilation %lld, padding %lld and "
                       "%lld and length %lld",
                       (long long)stride, (long long)dilation, (long long)before, (long long)after,
                       (long long)kernel);
    }
    if (strncmp(pad, "SAME", 4) == 0) {
        *out = sw_ceil_div(len, stride);
        return SW_OK;
    }
    int64_t room;
    if (!sw_mul_i64(dilation, kernel - 1, &room)) {
        return SW_FAIL(SW_E_FORMAT, "its window overflows");
    }
    room = (strcmp(pad, "VALID") == 0 ? 0 : before + after) + len - (room + 1);
    if (room < 0) {
        return SW_FAIL(SW_E_FORMAT, "its window of %lld is longer than dimension %d of %lld",
                       (long long)kernel, i + 2, (long long)len);
    }
    *out =
        (sw_onnx_attr_int(c->node, "ceil_mode", 0) ? sw_ceil_div(room, stride) : room / stride) + 1;
    return SW_OK;
}

static sw_status infer_conv(Case *c)
{
    int64_t dims[ONNX_READ_RANK];
    SW_TRY(want_in(c, 0, 3, "at least 3 dimensions"));
    SW_TRY(want_in(c, 1, 3, "at least 3 dimensions"));
    const Known *x = c->in[0], *w = c->in[1];
    const int64_t group = sw_onnx_attr_int(c->node, "group", 1);
    int64_t channels;
    if (w->rank != x->rank || group < 1 || !sw_mul_i64(w->dims[1], group, &channels) ||
        channels != x->dims[1]) {
        return misfit(c, 1, "weights for the channels of input 0");
    }
    dims[0] = x->dims[0];
    dims[1] = w->dims[0];
    for (int i = 0; i < x->rank - 2; i++) {
        SW_TRY(window(c, x->rank - 2, i, x->dims[i + 2], w->dims[i + 2], &dims[i + 2]));
    }
    return set_out(c, 0, x->type, x->rank, dims);
}

static sw_status infer_pool(Case *c)
{
    int64_t dims[ONNX_READ_RANK], kernel;
    SW_TRY(want_in(c, 0, 3, "at least 3 dimensions"));
    const Known *x = c->in[0];
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 0; i < x->rank - 2; i++) {
        SW_TRY(list_at(c, "kernel_shape", x->rank - 2, i, 1, &kernel));
        SW_TRY(window(c, x->rank - 2, i, x->dims[i + 2], kernel, &dims[i + 2]));
    }
    for (int k = 0; k < c->n_out; k++) {
        SW_TRY(set_out(c, k, k ? ONNX_I64 : x->type, x->rank, dims));
    }
    return SW_OK;
}

static sw_status infer_global_pool(Case *c)
{
    int64_t dims[ONNX_READ_RANK];
    SW_TRY(want_in(c, 0, 3, "at least 3 dimensions"));
    memcpy(dims, c->in[0]->dims, sizeof dims);
    for (int d = 2; d < c->in[0]->rank; d++) {
        dims[d] = 1;
    }
    return set_out(c, 0, c->in[0]->type, c->in[0]->rank, dims);
}

/* ---- shapes ---- */

static sw_status infer_transpose(Case *c)
{
    const struct sw_onnx_graph_attr *attr = sw_onnx_attr(c->node, "perm");
    const Known *x = c->in[0];
    int64_t dims[ONNX_READ_RANK];
    unsigned seen = 0;
    bool same = true;
    if (attr && (attr->kind != ONNX_ATTR_INTS || attr->n != x->rank)) {
        return SW_FAIL(SW_E_FORMAT, "attribute perm has %lld numbers, wanted %d",
                       (long long)attr->n, x->rank);
    }
    for (int d = 0; d < x->rank; d++) {
        int from;
        SW_TRY(sw_onnx_axis(c, attr ? attr->ints[d] : x->rank - 1 - d, x->rank, &from));
        dims[d] = x->dims[from];
        seen |= 1U << from;
        same = same && from == d;
    }
    if (seen != (1U << x->rank) - 1) {
        return SW_FAIL(SW_E_FORMAT, "attribute perm has a dimension twice");
    }
    c->same_as_in = same;
    return set_out(c, 0, x->type, x->rank, dims);
}

static bool same_dims(const Known *a, const Known *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

static sw_status reshaped(Case *c, int rank, const int64_t *dims)
{
    int64_t n, m;
    SW_TRY(set_out(c, 0, c->in[0]->type, rank, dims));
    if (!sw_onnx_elems(c->in[0]->rank, c->in[0]->dims, 1, &n) ||
        !sw_onnx_elems(rank, dims, 1, &m) || n != m) {
        char a[160], b[160];
        return SW_FAIL(SW_E_FORMAT, "input 0 is %s, which cannot become %s", words_of(c->in[0], a),
                       words_of(&c->out[0], b));
    }
    c->same_as_in = same_dims(c->in[0], &c->out[0]);
    return SW_OK;
}

static sw_status infer_reshape(Case *c)
{
    int64_t dims[ONNX_READ_RANK], n, known = 1;
    int rank, free_dim = -1;
    const Known *x = c->in[0];
    const bool zeros = sw_onnx_attr_int(c->node, "allowzero", 0) != 0;
    SW_TRY(want_ints(c, 1, ONNX_READ_RANK, dims, &rank));
    for (int d = 0; d < rank; d++) {
        if (dims[d] == 0 && !zeros) {
            if (d >= x->rank) {
                return misfit(c, 0, "as many dimensions as the shape refers to");
            }
            dims[d] = x->dims[d];
        }
        if (dims[d] == -1 && free_dim < 0) {
            free_dim = d;
        } else if (dims[d] < 0 || !sw_mul_i64(known, dims[d], &known)) {
            return SW_FAIL(SW_E_FORMAT, "dimension %d of the new shape is %lld", d,
                           (long long)dims[d]);
        }
    }
    if (free_dim >= 0) {
        if (!sw_onnx_elems(x->rank, x->dims, 1, &n) || known == 0 || n % known != 0) {
            return SW_FAIL(SW_E_FORMAT,
                           "%lld elements do not fill a shape of %lld times a free dimension",
                           (long long)n, (long long)known);
        }
        dims[free_dim] = n / known;
    }
    return reshaped(c, rank, dims);
}

static sw_status infer_flatten(Case *c)
{
    const Known *x = c->in[0];
    int64_t axis = sw_onnx_attr_int(c->node, "axis", 1), dims[2] = {1, 1};
    if (axis < -x->rank || axis > x->rank) {
        return SW_FAIL(SW_E_FORMAT, "axis %lld of %d dimensions", (long long)axis, x->rank);
    }
    axis += axis < 0 ? x->rank : 0;
    for (int d = 0; d < x->rank; d++) {
        if (!sw_mul_i64(dims[d >= axis], x->dims[d], &dims[d >= axis])) {
            return SW_FAIL(SW_E_FORMAT, "the product of dimensions overflows");
        }
    }
    return reshaped(c, 2, dims);
}

static sw_status infer_squeeze(Case *c)
{
    const Known *x = c->in[0];
    int64_t dims[ONNX_READ_RANK];
    unsigned axes;
    bool given;
    int rank = 0;
    SW_TRY(sw_onnx_axes(c, 1, x->rank, &given, &axes));
    for (int d = 0; d < x->rank; d++) {
        const bool out = given ? (axes >> d & 1) != 0 : x->dims[d] == 1;
        if (out && x->dims[d] != 1) {
            return misfit(c, 0, "1 in the dimensions that go");
        }
        if (!out) {
            dims[rank++] = x->dims[d];
        }
    }
    return reshaped(c, rank, dims);
}

static sw_status infer_unsqueeze(Case *c)
{
    const Known *x = c->in[0];
    int64_t dims[ONNX_READ_RANK], list[ONNX_READ_RANK];
    unsigned axes;
    bool given;
    int n = 0;
    const struct sw_onnx_graph_attr *attr = sw_onnx_attr(c->node, "axes");
    if (attr && attr->kind == ONNX_ATTR_INTS) {
        n = attr->n > ONNX_READ_RANK ? ONNX_READ_RANK + 1 : (int)attr->n;
    } else {
        SW_TRY(want_ints(c, 1, ONNX_READ_RANK, list, &n));
    }
    if (x->rank + n > ONNX_READ_RANK) {
        return SW_FAIL(SW_E_UNSUP, "its output has %d dimensions, wanted at most %d", x->rank + n,
                       ONNX_READ_RANK);
    }
    SW_TRY(sw_onnx_axes(c, 1, x->rank + n, &given, &axes));
    int from = 0;
    for (int d = 0; d < x->rank + n; d++) {
        if (axes >> d & 1) {
            dims[d] = 1;
        } else if (from == x->rank) {
            return SW_FAIL(SW_E_FORMAT, "an axis is there twice");
        } else {
            dims[d] = x->dims[from++];
        }
    }
    return reshaped(c, x->rank + n, dims);
}

static sw_status infer_expand(Case *c)
{
    const Known *x = c->in[0];
    int64_t dims[ONNX_READ_RANK], out[ONNX_READ_RANK];
    int rank;
    SW_TRY(want_ints(c, 1, ONNX_READ_RANK, dims, &rank));
    const int most = rank > x->rank ? rank : x->rank;
    for (int d = 0; d < most; d++) {
        const int64_t a = d - (most - x->rank) >= 0 ? x->dims[d - (most - x->rank)] : 1;
        const int64_t b = d - (most - rank) >= 0 ? dims[d - (most - rank)] : 1;
        if (b < 0 || (a != b && a != 1 && b != 1)) {
            char words[160];
            return SW_FAIL(SW_E_FORMAT,
                           "input 0 is %s, which does not expand to %lld in "
                           "dimension %d",
                           words_of(x, words), (long long)b, d);
        }
        out[d] = a == 1 ? b : a;
    }
    SW_TRY(set_out(c, 0, x->type, most, out));
    c->same_as_in = same_dims(x, &c->out[0]);
    return SW_OK;
}

static int64_t clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

sw_status sw_onnx_slice_bounds(const Case *c, struct sw_onnx_bounds *out)
{
    const Known *x = c->in[0];
    int64_t starts[ONNX_READ_RANK], ends[ONNX_READ_RANK], axes[ONNX_READ_RANK];
    int64_t steps[ONNX_READ_RANK];
    int n, m;
    SW_TRY(want_ints(c, 1, ONNX_READ_RANK, starts, &n));
    SW_TRY(want_ints(c, 2, ONNX_READ_RANK, ends, &m));
    bool fit = n == m;
    for (int i = 0; i < n; i++) {
        axes[i] = i;
        steps[i] = 1;
    }
    if (in(c, 3)) {
        SW_TRY(want_ints(c, 3, ONNX_READ_RANK, axes, &m));
        fit = fit && n == m;
    }
    if (in(c, 4)) {
        SW_TRY(want_ints(c, 4, ONNX_READ_RANK, steps, &m));
        fit = fit && n == m;
    }
    if (!fit) {
        return SW_FAIL(SW_E_FORMAT, "starts, ends, axes and steps are not of one length");
    }
    for (int d = 0; d < x->rank; d++) {
        out->first[d] = 0;
        out->step[d] = 1;
        out->n[d] = x->dims[d];
    }
    for (int i = 0; i < n; i++) {
        int d;
        SW_TRY(sw_onnx_axis(c, axes[i], x->rank, &d));
        const int64_t len = x->dims[d], step = steps[i];
        if (step == 0 || step == INT64_MIN) {
            return SW_FAIL(SW_E_FORMAT, "step %lld along axis %d", (long long)step, d);
        }
        int64_t start = starts[i] + (starts[i] < 0 ? len : 0);
        int64_t end = ends[i] + (ends[i] < 0 ? len : 0);
        start = step > 0 ? clamp(start, 0, len) : clamp(start, 0, len - 1);
        end = step > 0 ? clamp(end, 0, len) : clamp(end, -1, len - 1);
        const int64_t room = step > 0 ? end - start : start - end;
        out->first[d] = start;
        out->step[d] = step;
        out->n[d] = len > 0 && room > 0 ? sw_ceil_div(room, step > 0 ? step : -step) : 0;
    }
    return SW_OK;
}

static sw_status infer_slice(Case *c)
{
    struct sw_onnx_bounds b;
    bool same = true;
    SW_TRY(sw_onnx_slice_bounds(c, &b));
    for (int d = 0; d < c->in[0]->rank; d++) {
        same = same && b.n[d] == c->in[0]->dims[d] && (b.step[d] == 1 || b.n[d] == 1);
    }
    c->same_as_in = same;
    return set_out(c, 0, c->in[0]->type, c->in[0]->rank, b.n);
}

static sw_status split_sizes(const Case *c, int64_t len, int64_t *sizes)
{
    const struct sw_onnx_graph_attr *attr = sw_onnx_attr(c->node, "split");
    const struct sw_onnx_data *data = NULL;
    int64_t sum = 0;
    const bool given = in(c, 1) || (attr && attr->kind == ONNX_ATTR_INTS);
    if (in(c, 1)) {
        SW_TRY(want_data(c, 1, &data));
    }
    if (given && (data ? data->n : attr->n) != c->n_out) {
        return SW_FAIL(SW_E_FORMAT, "split has %lld numbers, wanted one for each of %d outputs",
                       (long long)(data ? data->n : attr->n), c->n_out);
    }
    const int64_t each = sw_ceil_div(len, c->n_out > 0 ? c->n_out : 1);
    for (int k = 0; k < c->n_out; k++) {
        const int64_t left = len - k * each;
        sizes[k] = !given ? clamp(left, 0, each) : data ? sw_onnx_data_int(data, k) : attr->ints[k];
        if (sizes[k] < 0 || !sw_add_i64(sum, sizes[k], &sum)) {
            return SW_FAIL(SW_E_FORMAT, "part %d has length %lld", k, (long long)sizes[k]);
        }
    }
    return sum == len ? SW_OK
                      : SW_FAIL(SW_E_FORMAT, "its parts have %lld elements, wanted %lld",
                                (long long)sum, (long long)len);
}

static sw_status infer_split(Case *c)
{
    const Known *x = c->in[0];
    int64_t sizes[ONNX_MOST_IN], dims[ONNX_READ_RANK];
    int axis;
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), x->rank, &axis));
    SW_TRY(split_sizes(c, x->dims[axis], sizes));
    memcpy(dims, x->dims, sizeof dims);
    for (int k = 0; k < c->n_out; k++) {
        dims[axis] = sizes[k];
        SW_TRY(set_out(c, k, x->type, x->rank, dims));
    }
    c->same_as_in = c->n_out == 1;
    return SW_OK;
}

static sw_status infer_concat(Case *c)
{
    int axis;
    int64_t dims[ONNX_READ_RANK];
    SW_TRY(want_in(c, 0, 1, "at least 1 dimension"));
    const Known *x = c->in[0];
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), x->rank, &axis));
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 1; i < c->n_in; i++) {
        SW_TRY(want_in(c, i, 1, "at least 1 dimension"));
        bool fits = c->in[i]->rank == x->rank && c->in[i]->type == x->type;
        for (int d = 0; fits && d < x->rank; d++) {
            fits = d == axis || c->in[i]->dims[d] == x->dims[d];
        }
        if (!fits || !sw_add_i64(dims[axis], c->in[i]->dims[axis], &dims[axis])) {
            char words[160], wanted[240];
            snprintf(wanted, sizeof wanted, "one that fits input 0, %s, along axis %d",
                     words_of(x, words), axis);
            return misfit(c, i, wanted);
        }
    }
    c->same_as_in = c->n_in == 1;
    return set_out(c, 0, x->type, x->rank, dims);
}

static sw_status infer_gather(Case *c)
{
    int axis, n = 0;
    int64_t dims[3 * ONNX_READ_RANK];
    SW_TRY(want_in(c, 0, 1, "at least 1 dimension"));
    SW_TRY(want_in(c, 1, 0, "indices"));
    const Known *x = c->in[0], *i = c->in[1];
    if (i->type != ONNX_I64 && i->type != ONNX_I32) {
        return misfit(c, 1, "integers of 32 or 64 bits");
    }
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), x->rank, &axis));
    for (int d = 0; d < axis; d++) {
        dims[n++] = x->dims[d];
    }
    for (int d = 0; d < i->rank; d++) {
        dims[n++] = i->dims[d];
    }
    for (int d = axis + 1; d < x->rank; d++) {
        dims[n++] = x->dims[d];
    }
    return set_out(c, 0, x->type, n, dims);
}

static sw_status infer_gather_elements(Case *c)
{
    int axis;
    SW_TRY(want_in(c, 0, 1, "at least 1 dimension"));
    SW_TRY(want_in(c, 1, c->in[0]->rank, "indices of the dimensions of input 0"));
    const Known *x = c->in[0], *i = c->in[1];
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), x->rank, &axis));
    for (int d = 0; d < x->rank; d++) {
        if (i->rank != x->rank || (d != axis && i->dims[d] > x->dims[d])) {
            return misfit(c, 1, "indices within input 0");
        }
    }
    return i->type != ONNX_I64 && i->type != ONNX_I32 ? misfit(c, 1, "integers of 32 or 64 bits")
                                                      : set_out(c, 0, x->type, i->rank, i->dims);
}

static sw_status infer_gather_nd(Case *c)
{
    int64_t dims[2 * ONNX_READ_RANK];
    int n = 0;
    SW_TRY(want_in(c, 0, 1, "at least 1 dimension"));
    SW_TRY(want_in(c, 1, 1, "indices"));
    const Known *x = c->in[0], *i = c->in[1];
    const int64_t batch = sw_onnx_attr_int(c->node, "batch_dims", 0);
    const int64_t depth = i->dims[i->rank - 1];
    if (i->type != ONNX_I64) {
        return misfit(c, 1, "integers of 64 bits");
    }
    if (batch < 0 || batch >= i->rank || batch >= x->rank || depth < 1 || depth > x->rank - batch) {
        return misfit(c, 1, "indices of dimensions that input 0 has");
    }
    for (int d = 0; d < batch; d++) {
        if (i->dims[d] != x->dims[d]) {
            return misfit(c, 1, "the batch of input 0");
        }
    }
    for (int d = 0; d < i->rank - 1; d++) {
        dims[n++] = i->dims[d];
    }
    for (int d = (int)(batch + depth); d < x->rank; d++) {
        dims[n++] = x->dims[d];
    }
    return set_out(c, 0, x->type, n, dims);
}

static sw_status infer_scatter_nd(Case *c)
{
    SW_TRY(want_in(c, 0, 1, "at least 1 dimension"));
    SW_TRY(want_in(c, 1, 1, "indices"));
    SW_TRY(want_in(c, 2, 0, "updates"));
    const Known *x = c->in[0], *i = c->in[1], *u = c->in[2];
    const int64_t depth = i->dims[i->rank - 1];
    if (i->type != ONNX_I64 || depth < 1 || depth > x->rank) {
        return misfit(c, 1, "indices of dimensions that input 0 has");
    }
    bool fits = u->type == x->type && u->rank == i->rank - 1 + x->rank - (int)depth;
    for (int d = 0; fits && d < u->rank; d++) {
        const int at = d - (i->rank - 1);
        fits = u->dims[d] == (at < 0 ? i->dims[d] : x->dims[depth + at]);
    }
    return fits ? set_like(c, 0, 0) : misfit(c, 2, "updates for these indices");
}

static sw_status infer_scatter_elements(Case *c)
{
    int axis;
    SW_TRY(want_in(c, 0, 1, "at least 1 dimension"));
    SW_TRY(want_in(c, 1, 1, "indices"));
    SW_TRY(want_in(c, 2, 1, "updates"));
    const Known *x = c->in[0], *i = c->in[1], *u = c->in[2];
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), x->rank, &axis));
    if (i->rank != x->rank || !same_dims(i, u) || u->type != x->type) {
        return misfit(c, 2, "updates for these indices");
    }
    for (int d = 0; d < x->rank; d++) {
        if (d != axis && i->dims[d] > x->dims[d]) {
            return misfit(c, 1, "indices within input 0");
        }
    }
    return set_like(c, 0, 0);
}

static sw_status infer_tile(Case *c)
{
    int64_t dims[ONNX_READ_RANK];
    int n;
    const Known *x = c->in[0];
    SW_TRY(want_ints(c, 1, ONNX_READ_RANK, dims, &n));
    if (n != x->rank) {
        return misfit(c, 1, "a number for each dimension");
    }
    for (int d = 0; d < n; d++) {
        if (dims[d] < 0 || !sw_mul_i64(dims[d], x->dims[d], &dims[d])) {
            return SW_FAIL(SW_E_FORMAT, "dimension %d is repeated %lld times", d,
                           (long long)dims[d]);
        }
    }
    SW_TRY(set_out(c, 0, x->type, n, dims));
    c->same_as_in = same_dims(x, &c->out[0]);
    return SW_OK;
}

sw_status sw_onnx_pads(const Case *c, int64_t before[ONNX_READ_RANK], int64_t after[ONNX_READ_RANK])
{
    const int rank = c->in[0]->rank;
    int64_t pads[2 * ONNX_READ_RANK], axes[ONNX_READ_RANK];
    int n, n_axes = rank;
    SW_TRY(want_ints(c, 1, 2 * ONNX_READ_RANK, pads, &n));
    for (int d = 0; d < rank; d++) {
        before[d] = after[d] = 0;
        axes[d] = d;
    }
    if (in(c, 3)) {
        SW_TRY(want_ints(c, 3, ONNX_READ_RANK, axes, &n_axes));
    }
    if (n != 2 * n_axes) {
        return misfit(c, 1, "two numbers for each axis");
    }
    for (int i = 0; i < n_axes; i++) {
        int d;
        SW_TRY(sw_onnx_axis(c, axes[i], rank, &d));
        before[d] = pads[i];
        after[d] = pads[n_axes + i];
    }
    return SW_OK;
}

static sw_status infer_pad(Case *c)
{
    int64_t before[ONNX_READ_RANK], after[ONNX_READ_RANK], dims[ONNX_READ_RANK];
    const Known *x = c->in[0];
    SW_TRY(sw_onnx_pads(c, before, after));
    for (int d = 0; d < x->rank; d++) {
        if (!sw_add_i64(x->dims[d], before[d], &dims[d]) ||
            !sw_add_i64(dims[d], after[d], &dims[d]) || dims[d] < 0) {
            return SW_FAIL(SW_E_FORMAT, "dimension %d of %lld is padded by %lld and %lld", d,
                           (long long)x->dims[d], (long long)before[d], (long long)after[d]);
        }
    }
    SW_TRY(set_out(c, 0, x->type, x->rank, dims));
    c->same_as_in = same_dims(x, &c->out[0]) && x->rank > 0 && before[0] == 0;
    for (int d = 0; d < x->rank; d++) {
        c->same_as_in = c->same_as_in && before[d] == 0;
    }
    return SW_OK;
}

static sw_status infer_range(Case *c)
{
    const struct sw_onnx_data *part[3];
    int64_t n;
    for (int i = 0; i < 3; i++) {
        SW_TRY(want_data(c, i, &part[i]));
        if (part[i]->n != 1) {
            return misfit(c, i, "one number");
        }
    }
    SW_TRY(same_types(c, 0));
    const double first = sw_onnx_data_number(part[0], 0), end = sw_onnx_data_number(part[1], 0);
    const double step = sw_onnx_data_number(part[2], 0);
    const double steps = ceil((end - first) / step);
    if (step == 0 || !(steps <= 0x1p40)) {
        return SW_FAIL(SW_E_FORMAT, "from %g to %g in steps of %g", first, end, step);
    }
    n = steps > 0 ? (int64_t)steps : 0;
    return set_out(c, 0, c->in[0]->type, 1, &n);
}

static sw_status infer_shape(Case *c)
{
    const int rank = c->in[0]->rank;
    int64_t first = sw_onnx_attr_int(c->node, "start", 0);
    int64_t end = sw_onnx_attr_int(c->node, "end", rank);
    first = clamp(first < 0 ? first + rank : first, 0, rank);
    end = clamp(end < 0 ? end + rank : end, 0, rank);
    const int64_t n = end > first ? end - first : 0;
    return set_out(c, 0, ONNX_I64, 1, &n);
}

static sw_status infer_size(Case *c)
{
    return set_out(c, 0, ONNX_I64, 0, c->in[0]->dims);
}

static sw_status infer_fill(Case *c)
{
    int64_t dims[ONNX_READ_RANK];
    int rank;
    const struct sw_onnx_graph_attr *value = sw_onnx_attr(c->node, "value");
    SW_TRY(want_ints(c, 0, ONNX_READ_RANK, dims, &rank));
    for (int d = 0; d < rank; d++) {
        if (dims[d] < 0) {
            return SW_FAIL(SW_E_FORMAT, "dimension %d is %lld", d, (long long)dims[d]);
        }
    }
    if (value && (value->kind != ONNX_ATTR_TENSOR || value->data->n != 1)) {
        return SW_FAIL(SW_E_FORMAT, "attribute value is not one number");
    }
    return set_out(c, 0, value ? value->data->type : ONNX_F32, rank, dims);
}

static sw_status reduced(Case *c, enum sw_onnx_type type, unsigned axes, bool keep)
{
    const Known *x = c->in[0];
    int64_t dims[ONNX_READ_RANK];
    int rank = 0;
    for (int d = 0; d < x->rank; d++) {
        if (!(axes >> d & 1)) {
            dims[rank++] = x->dims[d];
        } else if (keep) {
            dims[rank++] = 1;
        }
    }
    return set_out(c, 0, type, rank, dims);
}

static sw_status infer_reduce(Case *c)
{
    unsigned axes;
    bool given;
    SW_TRY(sw_onnx_axes(c, 1, c->in[0]->rank, &given, &axes));
    if (axes == 0) {
        c->same_as_in = sw_onnx_attr_int(c->node, "noop_with_empty_axes", 0) != 0;
        axes = c->same_as_in ? 0 : ~0U;
    }
    return reduced(c, c->in[0]->type, axes, sw_onnx_attr_int(c->node, "keepdims", 1) != 0);
}

static sw_status infer_arg(Case *c)
{
    int axis;
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), c->in[0]->rank, &axis));
    return reduced(c, ONNX_I64, 1U << axis, sw_onnx_attr_int(c->node, "keepdims", 1) != 0);
}

static sw_status infer_top_k(Case *c)
{
    int axis, n;
    int64_t k[1], dims[ONNX_READ_RANK];
    const Known *x = c->in[0];
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", -1), x->rank, &axis));
    SW_TRY(want_ints(c, 1, 1, k, &n));
    if (n != 1 || k[0] < 0 || k[0] > x->dims[axis]) {
        return misfit(c, 1, "a number of elements that input 0 has");
    }
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = k[0];
    for (int i = 0; i < c->n_out; i++) {
        SW_TRY(set_out(c, i, i ? ONNX_I64 : x->type, x->rank, dims));
    }
    return SW_OK;
}

static sw_status infer_nonzero(Case *c)
{
    const struct sw_onnx_data *data;
    int64_t dims[2] = {c->in[0]->rank > 0 ? c->in[0]->rank : 1, 0};
    SW_TRY(want_data(c, 0, &data));
    SW_TRY(sw_onnx_work(c->folding, data->n));
    for (int64_t i = 0; i < data->n; i++) {
        dims[1] += sw_onnx_data_number(data, i) != 0;
    }
    return set_out(c, 0, ONNX_I64, 2, dims);
}

static sw_status infer_one_hot(Case *c)
{
    int64_t depth[1], dims[ONNX_READ_RANK + 1];
    int axis, n;
    SW_TRY(want_ints(c, 1, 1, depth, &n));
    SW_TRY(want_in(c, 2, 1, "two values"));
    const Known *x = c->in[0];
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", -1), x->rank + 1, &axis));
    if (n != 1 || depth[0] < 0 || c->in[2]->rank != 1 || c->in[2]->dims[0] != 2) {
        return misfit(c, 2, "two values, and a depth of 0 or more");
    }
    for (int d = 0; d <= x->rank; d++) {
        dims[d] = d == axis ? depth[0] : x->dims[d - (d > axis)];
    }
    return set_out(c, 0, c->in[2]->type, x->rank + 1, dims);
}

static sw_status infer_eye(Case *c)
{
    const int64_t to = sw_onnx_attr_int(c->node, "dtype", c->in[0]->type);
    if (c->in[0]->rank != 2 || to < 1 || to > ONNX_BF16 ||
        !sw_onnx_type_name((enum sw_onnx_type)to)) {
        return misfit(c, 0, "a matrix of numbers");
    }
    return set_out(c, 0, (enum sw_onnx_type)to, 2, c->in[0]->dims);
}

/* ---- attention of opset 23 ---- */

static sw_status infer_attention(Case *c)
{
    SW_TRY(want_in(c, 0, 3, "3 or 4 dimensions"));
    SW_TRY(want_in(c, 1, c->in[0]->rank, "the dimensions of input 0"));
    SW_TRY(want_in(c, 2, c->in[0]->rank, "the dimensions of input 0"));
    const Known *q = c->in[0], *v = c->in[2];
    int64_t dims[ONNX_READ_RANK];
    memcpy(dims, q->dims, sizeof dims);
    if (c->n_out > 1) {
        return SW_FAIL(SW_E_UNSUP, "its caches and scores are not read, wanted one output");
    }
    if (q->rank == 4) {
        dims[3] = v->dims[3];
    } else {
        const int64_t heads = sw_onnx_attr_int(c->node, "q_num_heads", 0);
        const int64_t groups = sw_onnx_attr_int(c->node, "kv_num_heads", 0);
        if (q->rank != 3 || v->rank != 3 || heads < 1 || groups < 1 || v->dims[2] % groups != 0 ||
            !sw_mul_i64(v->dims[2] / groups, heads, &dims[2])) {
            return misfit(c, 2, "values of q_num_heads and kv_num_heads");
        }
    }
    return set_out(c, 0, q->type, q->rank, dims);
}

/* ---- the table ---- */

#define VIEW sw_onnx_eval_view
#define MAP sw_onnx_eval_map
#define REDUCE sw_onnx_eval_reduce

/* In the order of names: sw_onnx_rule_of searches by halves. */
const struct sw_onnx_rule sw_onnx_rules[] = {
    {"Abs", 1, 1, 1, infer_same, MAP},
    {"Add", 2, 2, 1, infer_broadcast, MAP},
    {"And", 2, 2, 1, infer_compare, MAP},
    {"ArgMax", 1, 1, 1, infer_arg, sw_onnx_eval_arg},
    {"ArgMin", 1, 1, 1, infer_arg, sw_onnx_eval_arg},
    {"Attention", 3, 6, 4, infer_attention, NULL},
    {"AveragePool", 1, 1, 1, infer_pool, NULL},
    {"BatchNormalization", 5, 5, 5, infer_batch_norm, NULL},
    {"Cast", 1, 1, 1, infer_cast, MAP},
    {"CastLike", 2, 2, 1, infer_cast_like, MAP},
    {"Ceil", 1, 1, 1, infer_same, MAP},
    {"Clip", 1, 3, 1, infer_clip, MAP},
    {"Concat", 1, -1, 1, infer_concat, sw_onnx_eval_concat},
    {"ConstantOfShape", 1, 1, 1, infer_fill, sw_onnx_eval_fill},
    {"Conv", 2, 3, 1, infer_conv, NULL},
    {"Cos", 1, 1, 1, infer_same, MAP},
    {"CumSum", 2, 2, 1, infer_same, sw_onnx_eval_cumsum},
    {"Div", 2, 2, 1, infer_broadcast, MAP},
    {"Dropout", 1, 3, 2, infer_dropout, VIEW},
    {"Elu", 1, 1, 1, infer_same, NULL},
    {"Equal", 2, 2, 1, infer_compare, MAP},
    {"Erf", 1, 1, 1, infer_same, MAP},
    {"Exp", 1, 1, 1, infer_same, MAP},
    {"Expand", 2, 2, 1, infer_expand, sw_onnx_eval_expand},
    {"EyeLike", 1, 1, 1, infer_eye, sw_onnx_eval_eye},
    {"Flatten", 1, 1, 1, infer_flatten, VIEW},
    {"Floor", 1, 1, 1, infer_same, MAP},
    {"Gather", 2, 2, 1, infer_gather, sw_onnx_eval_gather},
    {"GatherElements", 2, 2, 1, infer_gather_elements, sw_onnx_eval_gather_elements},
    {"GatherND", 2, 2, 1, infer_gather_nd, sw_onnx_eval_gather_nd},
    {"Gelu", 1, 1, 1, infer_same, NULL},
    {"Gemm", 2, 3, 1, infer_gemm, NULL},
    {"GlobalAveragePool", 1, 1, 1, infer_global_pool, NULL},
    {"GlobalMaxPool", 1, 1, 1, infer_global_pool, NULL},
    {"Greater", 2, 2, 1, infer_compare, MAP},
    {"GreaterOrEqual", 2, 2, 1, infer_compare, MAP},
    {"GroupNormalization", 3, 3, 1, infer_same, NULL},
    {"HardSigmoid", 1, 1, 1, infer_same, NULL},
    {"HardSwish", 1, 1, 1, infer_same, NULL},
    {"Identity", 1, 1, 1, infer_identity, VIEW},
    {"InstanceNormalization", 3, 3, 1, infer_same, NULL},
    {"IsInf", 1, 1, 1, infer_bool, MAP},
    {"IsNaN", 1, 1, 1, infer_bool, MAP},
    {"LayerNormalization", 2, 3, 3, infer_norm, NULL},
    {"LeakyRelu", 1, 1, 1, infer_same, NULL},
    {"Less", 2, 2, 1, infer_compare, MAP},
    {"LessOrEqual", 2, 2, 1, infer_compare, MAP},
    {"Log", 1, 1, 1, infer_same, MAP},
    {"LogSoftmax", 1, 1, 1, infer_axis, NULL},
    {"MatMul", 2, 2, 1, infer_matmul, sw_onnx_eval_matmul},
    {"Max", 1, -1, 1, infer_broadcast, MAP},
    {"MaxPool", 1, 1, 2, infer_pool, NULL},
    {"Mean", 1, -1, 1, infer_broadcast, NULL},
    {"Min", 1, -1, 1, infer_broadcast, MAP},
    {"Mish", 1, 1, 1, infer_same, NULL},
    {"Mod", 2, 2, 1, infer_broadcast, MAP},
    {"Mul", 2, 2, 1, infer_broadcast, MAP},
    {"Neg", 1, 1, 1, infer_same, MAP},
    {"NonZero", 1, 1, 1, infer_nonzero, sw_onnx_eval_nonzero},
    {"Not", 1, 1, 1, infer_bool, MAP},
    {"OneHot", 3, 3, 1, infer_one_hot, sw_onnx_eval_one_hot},
    {"Or", 2, 2, 1, infer_compare, MAP},
    {"Pad", 2, 4, 1, infer_pad, sw_onnx_eval_pad},
    {"Pow", 2, 2, 1, infer_pow, MAP},
    {"RMSNormalization", 2, 2, 1, infer_norm, NULL},
    {"Range", 3, 3, 1, infer_range, sw_onnx_eval_range},
    {"Reciprocal", 1, 1, 1, infer_same, MAP},
    {"ReduceL1", 1, 2, 1, infer_reduce, NULL},
    {"ReduceL2", 1, 2, 1, infer_reduce, NULL},
    {"ReduceLogSum", 1, 2, 1, infer_reduce, NULL},
    {"ReduceLogSumExp", 1, 2, 1, infer_reduce, NULL},
    {"ReduceMax", 1, 2, 1, infer_reduce, REDUCE},
    {"ReduceMean", 1, 2, 1, infer_reduce, REDUCE},
    {"ReduceMin", 1, 2, 1, infer_reduce, REDUCE},
    {"ReduceProd", 1, 2, 1, infer_reduce, REDUCE},
    {"ReduceSum", 1, 2, 1, infer_reduce, REDUCE},
    {"ReduceSumSquare", 1, 2, 1, infer_reduce, NULL},
    {"Relu", 1, 1, 1, infer_same, MAP},
    {"Reshape", 2, 2, 1, infer_reshape, VIEW},
    {"RotaryEmbedding", 3, 4, 1, infer_same, NULL},
    {"Round", 1, 1, 1, infer_same, MAP},
    {"ScatterElements", 3, 3, 1, infer_scatter_elements, sw_onnx_eval_scatter_elements},
    {"ScatterND", 3, 3, 1, infer_scatter_nd, sw_onnx_eval_scatter_nd},
    {"Shape", 1, 1, 1, infer_shape, sw_onnx_eval_shape},
    {"Sigmoid", 1, 1, 1, infer_same, MAP},
    {"Sign", 1, 1, 1, infer_same, MAP},
    {"Sin", 1, 1, 1, infer_same, MAP},
    {"Size", 1, 1, 1, infer_size, sw_onnx_eval_size},
    {"Slice", 3, 5, 1, infer_slice, sw_onnx_eval_slice},
    {"Softmax", 1, 1, 1, infer_axis, NULL},
    {"Softplus", 1, 1, 1, infer_same, NULL},
    {"Split", 1, 2, -1, infer_split, sw_onnx_eval_split},
    {"Sqrt", 1, 1, 1, infer_same, MAP},
    {"Squeeze", 1, 2, 1, infer_squeeze, VIEW},
    {"Sub", 2, 2, 1, infer_broadcast, MAP},
    {"Sum", 1, -1, 1, infer_broadcast, MAP},
    {"Tanh", 1, 1, 1, infer_same, MAP},
    {"Tile", 2, 2, 1, infer_tile, sw_onnx_eval_tile},
    {"TopK", 2, 2, 2, infer_top_k, NULL},
    {"Transpose", 1, 1, 1, infer_transpose, sw_onnx_eval_transpose},
    {"Trilu", 1, 2, 1, infer_same, sw_onnx_eval_trilu},
    {"Unsqueeze", 1, 2, 1, infer_unsqueeze, VIEW},
    {"Where", 3, 3, 1, infer_where, MAP},
    {"Xor", 2, 2, 1, infer_compare, MAP},
};
const int sw_onnx_n_rules = SW_LEN(sw_onnx_rules);
