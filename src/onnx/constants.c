// SPDX-License-Identifier: Apache-2.0
// Elements of constants. A result is a view of an operand where strides can say it, and has no more
// elements than differ: a mask that is the same for all rows of a batch is stored once.
#include <math.h>
#include <string.h>

#include "onnx/file.h"
#include "onnx/fold.h"
#include "onnx/reading.h"

typedef struct sw_onnx_case Case;
typedef struct sw_onnx_known Known;
typedef struct sw_onnx_data Data;

/* ---- memory ---- */

sw_status sw_onnx_work(struct sw_onnx_folding *f, int64_t elems)
{
    if (!sw_add_i64(f->work, elems, &f->work) || f->work / 4 > f->most_bytes) {
        return SW_FAIL(SW_E_UNSUP, "constants of more than %lld elements in all",
                       (long long)f->most_bytes);
    }
    return SW_OK;
}

static sw_status new_buffer(struct sw_onnx_folding *f, int64_t bytes, struct sw_onnx_buffer **out)
{
    char a[32], b[32];
    if (bytes > f->most_bytes - f->bytes) {
        return SW_FAIL(SW_E_UNSUP, "constants take more than %s: another %s",
                       sw_format_bytes(a, sizeof a, (double)f->most_bytes),
                       sw_format_bytes(b, sizeof b, (double)bytes));
    }
    struct sw_onnx_buffer *buffer = sw_alloc("onnx", sizeof *buffer + (size_t)bytes);
    SW_TRY_ALLOC(buffer, "constants of an ONNX file");
    *buffer =
        (struct sw_onnx_buffer){.next = f->buffers, .n_refs = 1, .bytes = bytes, .mem = buffer + 1};
    if (f->buffers) {
        f->buffers->prev = buffer;
    }
    f->buffers = buffer;
    f->bytes += bytes;
    *out = buffer;
    return SW_OK;
}

void sw_onnx_release(struct sw_onnx_folding *f, struct sw_onnx_buffer *buffer)
{
    if (!buffer || --buffer->n_refs > 0) {
        return;
    }
    f->bytes -= buffer->bytes;
    if (buffer->prev) {
        buffer->prev->next = buffer->next;
    } else {
        f->buffers = buffer->next;
    }
    if (buffer->next) {
        buffer->next->prev = buffer->prev;
    }
    sw_free(buffer);
}

void sw_onnx_free_buffers(struct sw_onnx_buffer *buffer)
{
    while (buffer) {
        struct sw_onnx_buffer *next = buffer->next;
        sw_free(buffer);
        buffer = next;
    }
}

/* ---- strides ---- */

static void row_major(int rank, const int64_t *dims, int64_t *out)
{
    int64_t n = 1;
    for (int d = rank - 1; d >= 0; d--) {
        out[d] = dims[d] > 1 ? n : 0;
        n *= dims[d];
    }
}

/* In elements; 0 along dimensions of 1. */
static void strides_of(const Data *data, int64_t *out)
{
    row_major(data->rank, data->dims, out);
    for (int d = 0; d < data->rank && data->strided; d++) {
        out[d] = data->dims[d] > 1 ? data->strides[d] : 0;
    }
}

/* The same, as of an operand that is broadcast to `rank` dimensions. */
static void strides_within(const Data *data, int rank, int64_t *out)
{
    int64_t own[ONNX_READ_RANK];
    strides_of(data, own);
    for (int d = 0; d < rank; d++) {
        const int at = d - (rank - data->rank);
        out[d] = at < 0 ? 0 : own[at];
    }
}

static bool is_flat(const Data *data) /* one stored element */
{
    int64_t strides[ONNX_READ_RANK];
    strides_of(data, strides);
    for (int d = 0; d < data->rank; d++) {
        if (strides[d] != 0) {
            return false;
        }
    }
    return data->n > 0;
}

static sw_status new_data(Case *c, int k, const void *elems, struct sw_onnx_buffer *buffer,
                          const int64_t *strides)
{
    Known *out = &c->out[k];
    int64_t dense[ONNX_READ_RANK];
    Data *data = sw_arena_alloc(c->folding->arena, sizeof *data);
    SW_TRY_ALLOC(data, "a constant of an ONNX file");
    *data = (Data){.type = out->type, .rank = out->rank, .elems = elems, .i_file = -1};
    memcpy(data->dims, out->dims, sizeof data->dims);
    if (!sw_onnx_elems(out->rank, out->dims, 1, &data->n)) {
        return SW_FAIL(SW_E_FORMAT, "the product of dimensions overflows");
    }
    row_major(out->rank, out->dims, dense);
    for (int d = 0; strides && d < out->rank; d++) {
        data->strides[d] = out->dims[d] > 1 ? strides[d] : 0;
        data->strided = data->strided || data->strides[d] != dense[d];
    }
    out->data = data;
    out->buffer = buffer;
    return SW_OK;
}

/* out[k] sees the elements of in[i], from an offset on. */
static sw_status new_view(Case *c, int k, int i, int64_t offset, const int64_t *strides)
{
    const Data *of = c->in[i]->data;
    const char *elems = of->elems;
    SW_TRY(new_data(c, k, elems + (size_t)offset * sw_onnx_type_bytes(of->type), c->in[i]->buffer,
                    strides));
    if (c->in[i]->buffer) {
        c->in[i]->buffer->n_refs++;
    }
    return SW_OK;
}

/* ---- a walk over elements ---- */

struct walk {
    int rank;
    int64_t n, left, dims[ONNX_READ_RANK], at[ONNX_READ_RANK];
};

static void start_walk(struct walk *w, int rank, const int64_t *dims)
{
    *w = (struct walk){.rank = rank, .n = 1};
    for (int d = 0; d < rank; d++) {
        w->dims[d] = dims[d];
        w->n *= dims[d];
    }
    w->left = w->n;
}

static void step(struct walk *w)
{
    w->left--;
    for (int d = w->rank - 1; d >= 0 && ++w->at[d] == w->dims[d]; d--) {
        w->at[d] = 0;
    }
}

static int64_t place(const struct walk *w, const int64_t *strides)
{
    int64_t at = 0;
    for (int d = 0; d < w->rank; d++) {
        at += w->at[d] * strides[d];
    }
    return at;
}

/* Memory for out[k] that is the same along dimensions without `keep`, and the walk over what is
 * stored. */
static sw_status new_out(Case *c, int k, const bool *keep, void **out_elems, struct walk *w)
{
    Known *out = &c->out[k];
    int64_t dims[ONNX_READ_RANK], strides[ONNX_READ_RANK], n, whole;
    struct sw_onnx_buffer *buffer;
    for (int d = 0; d < out->rank; d++) {
        dims[d] = (keep && !keep[d] && out->dims[d] > 0) ? 1 : out->dims[d];
    }
    if (!sw_onnx_elems(out->rank, dims, 8, &n) || !sw_onnx_elems(out->rank, out->dims, 8, &whole)) {
        return SW_FAIL(SW_E_FORMAT, "the product of dimensions overflows");
    }
    SW_TRY(new_buffer(c->folding, n * (int64_t)sw_onnx_type_bytes(out->type), &buffer));
    row_major(out->rank, dims, strides);
    sw_status st = sw_onnx_work(c->folding, n);
    st = st < 0 ? st : new_data(c, k, buffer->mem, buffer, strides);
    if (st < 0) {
        sw_onnx_release(c->folding, buffer);
        return st;
    }
    *out_elems = buffer->mem;
    if (n > 0) {
        start_walk(w, out->rank, dims);
    } else {
        *w = (struct walk){0};
    }
    return SW_OK;
}

sw_status sw_onnx_new_constant(Case *c, int k, void **out_elems)
{
    struct walk w;
    return new_out(c, k, NULL, out_elems, &w);
}

static void copy_elem(enum sw_onnx_type type, void *to, int64_t i, const void *from, int64_t j)
{
    const size_t bytes = sw_onnx_type_bytes(type);
    memcpy((char *)to + (size_t)i * bytes, (const char *)from + (size_t)j * bytes, bytes);
}

/* ---- element by element ---- */

enum map_op { /* of one operand up to MAP_CAST */
              MAP_ABS,
              MAP_CEIL,
              MAP_COS,
              MAP_ERF,
              MAP_EXP,
              MAP_FLOOR,
              MAP_LOG,
              MAP_NEG,
              MAP_RECIPROCAL,
              MAP_RELU,
              MAP_ROUND,
              MAP_SIGMOID,
              MAP_SIGN,
              MAP_SIN,
              MAP_SQRT,
              MAP_TANH,
              MAP_NOT,
              MAP_IS_NAN,
              MAP_IS_INF,
              MAP_CAST,
              MAP_ADD,
              MAP_SUB,
              MAP_MUL,
              MAP_DIV,
              MAP_MOD,
              MAP_POW,
              MAP_MIN,
              MAP_MAX,
              MAP_AND,
              MAP_OR,
              MAP_XOR,
              MAP_EQUAL,
              MAP_LESS,
              MAP_LESS_EQUAL,
              MAP_GREATER,
              MAP_GREATER_EQUAL,
              MAP_WHERE,
              MAP_CLIP,
};

static const struct {
    const char *name;
    enum map_op op;
} map_ops[] = {
    {"Abs", MAP_ABS},
    {"Ceil", MAP_CEIL},
    {"Cos", MAP_COS},
    {"Erf", MAP_ERF},
    {"Exp", MAP_EXP},
    {"Floor", MAP_FLOOR},
    {"Log", MAP_LOG},
    {"Neg", MAP_NEG},
    {"Reciprocal", MAP_RECIPROCAL},
    {"Relu", MAP_RELU},
    {"Round", MAP_ROUND},
    {"Sigmoid", MAP_SIGMOID},
    {"Sign", MAP_SIGN},
    {"Sin", MAP_SIN},
    {"Sqrt", MAP_SQRT},
    {"Tanh", MAP_TANH},
    {"Not", MAP_NOT},
    {"IsNaN", MAP_IS_NAN},
    {"IsInf", MAP_IS_INF},
    {"Cast", MAP_CAST},
    {"CastLike", MAP_CAST},
    {"Add", MAP_ADD},
    {"Sum", MAP_ADD},
    {"Sub", MAP_SUB},
    {"Mul", MAP_MUL},
    {"Div", MAP_DIV},
    {"Mod", MAP_MOD},
    {"Pow", MAP_POW},
    {"Min", MAP_MIN},
    {"Max", MAP_MAX},
    {"And", MAP_AND},
    {"Or", MAP_OR},
    {"Xor", MAP_XOR},
    {"Equal", MAP_EQUAL},
    {"Less", MAP_LESS},
    {"LessOrEqual", MAP_LESS_EQUAL},
    {"Greater", MAP_GREATER},
    {"GreaterOrEqual", MAP_GREATER_EQUAL},
    {"Where", MAP_WHERE},
    {"Clip", MAP_CLIP},
};

static double map_number(enum map_op op, double a, double b)
{
    switch (op) {
    case MAP_ABS:
        return fabs(a);
    case MAP_CEIL:
        return ceil(a);
    case MAP_COS:
        return cos(a);
    case MAP_ERF:
        return erf(a);
    case MAP_EXP:
        return exp(a);
    case MAP_FLOOR:
        return floor(a);
    case MAP_LOG:
        return log(a);
    case MAP_NEG:
        return -a;
    case MAP_RECIPROCAL:
        return 1 / a;
    case MAP_RELU:
        return a < 0 ? 0 : a;
    case MAP_ROUND:
        return rint(a);
    case MAP_SIGMOID:
        return 1 / (1 + exp(-a));
    case MAP_SIGN:
        return (double)((a > 0) - (a < 0));
    case MAP_SIN:
        return sin(a);
    case MAP_SQRT:
        return sqrt(a);
    case MAP_TANH:
        return tanh(a);
    case MAP_NOT:
        return a == 0;
    case MAP_IS_NAN:
        return isnan(a);
    case MAP_IS_INF:
        return isinf(a);
    case MAP_ADD:
        return a + b;
    case MAP_SUB:
        return a - b;
    case MAP_MUL:
        return a * b;
    case MAP_DIV:
        return a / b;
    case MAP_MOD:
        return fmod(a, b);
    case MAP_POW:
        return pow(a, b);
    case MAP_MIN:
        return b < a || isnan(b) ? b : a;
    case MAP_MAX:
        return b > a || isnan(b) ? b : a;
    case MAP_EQUAL:
        return a == b;
    case MAP_LESS:
        return a < b;
    case MAP_LESS_EQUAL:
        return a <= b;
    case MAP_GREATER:
        return a > b;
    case MAP_GREATER_EQUAL:
        return a >= b;
    default:
        return a;
    }
}

/* Wraps around like the runtimes; b is not 0 for MAP_DIV and MAP_MOD. */
static int64_t map_int(enum map_op op, int64_t a, int64_t b)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch (op) {
    case MAP_ABS:
        return a < 0 ? (int64_t)(0 - x) : a;
    case MAP_NEG:
        return (int64_t)(0 - x);
    case MAP_RELU:
        return a < 0 ? 0 : a;
    case MAP_SIGN:
        return (a > 0) - (a < 0);
    case MAP_NOT:
        return a == 0;
    case MAP_ADD:
        return (int64_t)(x + y);
    case MAP_SUB:
        return (int64_t)(x - y);
    case MAP_MUL:
        return (int64_t)(x * y);
    case MAP_DIV:
        return b == -1 ? (int64_t)(0 - x) : a / b;
    case MAP_MOD:
        return b == -1 ? 0 : a % b;
    case MAP_MIN:
        return b < a ? b : a;
    case MAP_MAX:
        return b > a ? b : a;
    case MAP_AND:
        return a && b;
    case MAP_OR:
        return a || b;
    case MAP_XOR:
        return !a != !b;
    case MAP_EQUAL:
        return a == b;
    case MAP_LESS:
        return a < b;
    case MAP_LESS_EQUAL:
        return a <= b;
    case MAP_GREATER:
        return a > b;
    case MAP_GREATER_EQUAL:
        return a >= b;
    default: /* of floats, or exact in them */
        return sw_onnx_whole(map_number(op, (double)a, (double)b));
    }
}

struct map {
    enum map_op op;
    int n_in;
    bool floats, of_floor; /* of_floor: Mod has the sign of the divisor */
    const Data *in[ONNX_MOST_IN];
    int64_t strides[ONNX_MOST_IN][ONNX_READ_RANK];
};

static double number_at(const struct map *m, const struct walk *w, int i)
{
    return sw_onnx_load_number(m->in[i]->type, m->in[i]->elems, place(w, m->strides[i]));
}

static int64_t int_at(const struct map *m, const struct walk *w, int i)
{
    return sw_onnx_load_int(m->in[i]->type, m->in[i]->elems, place(w, m->strides[i]));
}

/* Element number i of the walk, of inputs that are floats. */
static void map_floats(const struct map *m, const struct walk *w, const Data *out, void *to)
{
    double x = number_at(m, w, 0);
    if (m->op < MAP_CAST) {
        x = map_number(m->op, x, 0);
    }
    for (int i = 1; i < m->n_in; i++) {
        x = map_number(m->op, x, number_at(m, w, i));
    }
    sw_onnx_store_number(out->type, to, w->n - w->left, x);
}

static sw_status map_ints(const struct map *m, const struct walk *w, const Data *out, void *to)
{
    int64_t x = int_at(m, w, 0);
    if (m->op < MAP_CAST) {
        x = map_int(m->op, x, 0);
    }
    for (int i = 1; i < m->n_in; i++) {
        const int64_t y = int_at(m, w, i);
        if (y == 0 && (m->op == MAP_DIV || m->op == MAP_MOD)) {
            return SW_FAIL(SW_E_FORMAT, "it divides %lld by 0", (long long)x);
        }
        x = map_int(m->op, x, y);
        if (m->of_floor && x != 0 && (x < 0) != (y < 0)) {
            x += y;
        }
    }
    sw_onnx_store_int(out->type, to, w->n - w->left, x);
    return SW_OK;
}

/* Inputs of several types: Where, Clip with absent bounds. */
static void map_choice(const struct map *m, const struct walk *w, const Data *out, void *to)
{
    const int64_t i = w->n - w->left;
    if (m->op == MAP_WHERE) {
        const int from = int_at(m, w, 0) ? 1 : 2;
        copy_elem(out->type, to, i, m->in[from]->elems, place(w, m->strides[from]));
        return;
    }
    double x = number_at(m, w, 0);
    if (m->in[1]) {
        x = map_number(MAP_MAX, x, number_at(m, w, 1));
    }
    if (m->in[2]) {
        x = map_number(MAP_MIN, x, number_at(m, w, 2));
    }
    sw_onnx_store_number(out->type, to, i, x);
}

sw_status sw_onnx_eval_map(Case *c)
{
    struct map m = {.op = MAP_CAST, .n_in = c->n_in};
    struct walk w;
    bool keep[ONNX_READ_RANK] = {false};
    void *to;
    for (size_t i = 0; i < SW_LEN(map_ops); i++) {
        m.op = strcmp(map_ops[i].name, c->node->op) == 0 ? map_ops[i].op : m.op;
    }
    m.n_in = m.op == MAP_CAST ? 1 : m.n_in;
    m.of_floor = m.op == MAP_MOD && sw_onnx_attr_int(c->node, "fmod", 0) == 0;
    for (int i = 0; i < m.n_in; i++) {
        if (!c->in[i]) {
            continue;
        }
        m.in[i] = c->in[i]->data;
        m.floats = m.floats || sw_onnx_is_float(m.in[i]->type);
        strides_within(m.in[i], c->out[0].rank, m.strides[i]);
        for (int d = 0; d < c->out[0].rank; d++) {
            keep[d] = keep[d] || m.strides[i][d] != 0;
        }
    }
    SW_TRY(new_out(c, 0, keep, &to, &w));
    for (; w.left > 0; step(&w)) {
        if (m.op == MAP_WHERE || m.op == MAP_CLIP) {
            map_choice(&m, &w, c->out[0].data, to);
        } else if (m.floats) {
            map_floats(&m, &w, c->out[0].data, to);
        } else {
            SW_TRY(map_ints(&m, &w, c->out[0].data, to));
        }
    }
    return SW_OK;
}

/* ---- views ---- */

/* Strides of the same elements in another shape, if dimensions of 1 are all that differs, or all
 * elements are one. */
static bool reshaped_strides(const Data *x, const Known *out, int64_t *strides)
{
    int64_t own[ONNX_READ_RANK];
    int d = 0;
    strides_of(x, own);
    if (is_flat(x)) {
        memset(strides, 0, ONNX_READ_RANK * sizeof *strides);
        return true;
    }
    for (int k = 0; k < out->rank; k++) {
        strides[k] = 0;
        if (out->dims[k] == 1) {
            continue;
        }
        while (d < x->rank && x->dims[d] == 1) {
            d++;
        }
        if (d == x->rank || x->dims[d] != out->dims[k]) {
            return false;
        }
        strides[k] = own[d++];
    }
    return true;
}

static sw_status copy_in_order(Case *c, const Data *x)
{
    struct walk w, from;
    int64_t strides[ONNX_READ_RANK];
    void *to;
    SW_TRY(new_out(c, 0, NULL, &to, &w));
    strides_of(x, strides);
    if (w.n == 0 || x->n == 0) {
        return SW_OK;
    }
    start_walk(&from, x->rank, x->dims);
    for (; from.left > 0; step(&from)) {
        copy_elem(x->type, to, from.n - from.left, x->elems, place(&from, strides));
    }
    return SW_OK;
}

sw_status sw_onnx_eval_view(Case *c)
{
    const Data *x = c->in[0]->data;
    int64_t strides[ONNX_READ_RANK];
    if (c->n_out > 1) {
        return SW_PENDING; /* Dropout's mask: the node stays */
    }
    if (!x->strided) {
        row_major(c->out[0].rank, c->out[0].dims, strides);
        return new_view(c, 0, 0, 0, strides);
    }
    return reshaped_strides(x, &c->out[0], strides) ? new_view(c, 0, 0, 0, strides)
                                                    : copy_in_order(c, x);
}

sw_status sw_onnx_eval_transpose(Case *c)
{
    const struct sw_onnx_graph_attr *perm = sw_onnx_attr(c->node, "perm");
    const Data *x = c->in[0]->data;
    int64_t own[ONNX_READ_RANK], strides[ONNX_READ_RANK];
    strides_of(x, own);
    for (int d = 0; d < x->rank; d++) {
        int from;
        SW_TRY(sw_onnx_axis(c, perm ? perm->ints[d] : x->rank - 1 - d, x->rank, &from));
        strides[d] = own[from];
    }
    return new_view(c, 0, 0, 0, strides);
}

sw_status sw_onnx_eval_expand(Case *c)
{
    int64_t strides[ONNX_READ_RANK];
    strides_within(c->in[0]->data, c->out[0].rank, strides);
    return new_view(c, 0, 0, 0, strides);
}

sw_status sw_onnx_eval_slice(Case *c)
{
    struct sw_onnx_bounds b;
    int64_t strides[ONNX_READ_RANK], offset = 0;
    SW_TRY(sw_onnx_slice_bounds(c, &b));
    strides_of(c->in[0]->data, strides);
    for (int d = 0; d < c->in[0]->rank; d++) {
        offset += b.n[d] > 0 ? b.first[d] * strides[d] : 0;
        strides[d] = b.n[d] > 1 ? strides[d] * b.step[d] : 0;
    }
    return new_view(c, 0, 0, c->in[0]->data->n > 0 ? offset : 0, strides);
}

sw_status sw_onnx_eval_split(Case *c)
{
    int64_t strides[ONNX_READ_RANK], first = 0;
    int axis;
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), c->in[0]->rank, &axis));
    strides_of(c->in[0]->data, strides);
    for (int k = 0; k < c->n_out; k++) {
        const int64_t n = c->out[k].dims[axis];
        SW_TRY(
            new_view(c, k, 0, n > 0 && c->in[0]->data->n > 0 ? first * strides[axis] : 0, strides));
        first += n;
    }
    return SW_OK;
}

/* ---- made from sizes ---- */

sw_status sw_onnx_eval_shape(Case *c)
{
    struct walk w;
    void *to;
    const int rank = c->in[0]->rank;
    int64_t first = sw_onnx_attr_int(c->node, "start", 0);
    first = first < 0 ? first + rank : first;
    first = first < 0 ? 0 : first;
    SW_TRY(new_out(c, 0, NULL, &to, &w));
    for (int64_t i = 0; i < c->out[0].dims[0]; i++) {
        sw_onnx_store_int(ONNX_I64, to, i, c->in[0]->dims[first + i]);
    }
    return SW_OK;
}

sw_status sw_onnx_eval_size(Case *c)
{
    struct walk w;
    void *to;
    int64_t n;
    SW_TRY(new_out(c, 0, NULL, &to, &w));
    if (!sw_onnx_elems(c->in[0]->rank, c->in[0]->dims, 1, &n)) {
        return SW_FAIL(SW_E_FORMAT, "the product of dimensions overflows");
    }
    sw_onnx_store_int(ONNX_I64, to, 0, n);
    return SW_OK;
}

sw_status sw_onnx_eval_range(Case *c)
{
    struct walk w;
    void *to;
    const Data *first = c->in[0]->data, *by = c->in[2]->data;
    SW_TRY(new_out(c, 0, NULL, &to, &w));
    for (int64_t i = 0; i < c->out[0].dims[0]; i++) {
        if (sw_onnx_is_float(first->type)) {
            sw_onnx_store_number(first->type, to, i,
                                 sw_onnx_data_number(first, 0) +
                                     (double)i * sw_onnx_data_number(by, 0));
        } else {
            sw_onnx_store_int(first->type, to, i,
                              map_int(MAP_ADD, sw_onnx_data_int(first, 0),
                                      map_int(MAP_MUL, i, sw_onnx_data_int(by, 0))));
        }
    }
    return SW_OK;
}

sw_status sw_onnx_eval_fill(Case *c)
{
    const struct sw_onnx_graph_attr *value = sw_onnx_attr(c->node, "value");
    const bool keep[ONNX_READ_RANK] = {false};
    struct walk w;
    void *to;
    SW_TRY(new_out(c, 0, keep, &to, &w));
    if (w.n > 0 && value) {
        copy_elem(value->data->type, to, 0, value->data->elems, 0);
    } else if (w.n > 0) {
        sw_onnx_store_number(ONNX_F32, to, 0, 0);
    }
    return SW_OK;
}

sw_status sw_onnx_eval_eye(Case *c)
{
    const int64_t k = sw_onnx_attr_int(c->node, "k", 0);
    struct walk w;
    void *to;
    SW_TRY(new_out(c, 0, NULL, &to, &w));
    for (; w.left > 0; step(&w)) {
        sw_onnx_store_int(c->out[0].type, to, w.n - w.left,
                          map_int(MAP_SUB, w.at[1], w.at[0]) == k);
    }
    return SW_OK;
}

/* ---- gathered ---- */

static sw_status check_index(int64_t i, int64_t n, int64_t *out)
{
    if (i < -n || i >= n) {
        return SW_FAIL(SW_E_FORMAT, "index %lld of %lld", (long long)i, (long long)n);
    }
    *out = i < 0 ? i + n : i;
    return SW_OK;
}

sw_status sw_onnx_eval_concat(Case *c)
{
    const int rank = c->out[0].rank;
    bool keep[ONNX_READ_RANK] = {false};
    int64_t strides[ONNX_READ_RANK], first = 0;
    struct walk w;
    void *to;
    int axis;
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), rank, &axis));
    keep[axis] = true;
    for (int i = 0; i < c->n_in; i++) {
        strides_of(c->in[i]->data, strides);
        for (int d = 0; d < rank; d++) {
            keep[d] = keep[d] || strides[d] != 0;
        }
    }
    SW_TRY(new_out(c, 0, keep, &to, &w));
    if (w.n == 0) {
        return SW_OK;
    }
    int64_t out_strides[ONNX_READ_RANK], dims[ONNX_READ_RANK];
    row_major(rank, w.dims, out_strides);
    for (int i = 0; i < c->n_in; i++) {
        const Data *x = c->in[i]->data;
        struct walk from;
        memcpy(dims, w.dims, sizeof dims);
        dims[axis] = x->dims[axis];
        strides_of(x, strides);
        start_walk(&from, rank, dims);
        for (; from.left > 0; step(&from)) {
            copy_elem(x->type, to, place(&from, out_strides) + first * out_strides[axis], x->elems,
                      place(&from, strides));
        }
        first += x->dims[axis];
    }
    return SW_OK;
}

sw_status sw_onnx_eval_gather(Case *c)
{
    const Data *x = c->in[0]->data, *index = c->in[1]->data;
    int64_t xs[ONNX_READ_RANK], is[ONNX_READ_RANK];
    bool keep[ONNX_READ_RANK];
    struct walk w;
    void *to;
    int axis;
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), x->rank, &axis));
    strides_of(x, xs);
    strides_of(index, is);
    const int after = axis + index->rank; /* first dimension of x after the axis */
    for (int d = 0; d < c->out[0].rank; d++) {
        keep[d] = (d < axis ? xs[d] : d < after ? is[d - axis] : xs[d - after + axis + 1]) != 0;
    }
    SW_TRY(new_out(c, 0, keep, &to, &w));
    for (; w.left > 0; step(&w)) {
        int64_t at = 0, from = 0, i;
        for (int d = 0; d < w.rank; d++) {
            if (d >= axis && d < after) {
                at += w.at[d] * is[d - axis];
            } else {
                from += w.at[d] * xs[d < axis ? d : d - after + axis + 1];
            }
        }
        SW_TRY(check_index(sw_onnx_load_int(index->type, index->elems, at), x->dims[axis], &i));
        copy_elem(x->type, to, w.n - w.left, x->elems, from + i * xs[axis]);
    }
    return SW_OK;
}

sw_status sw_onnx_eval_gather_elements(Case *c)
{
    const Data *x = c->in[0]->data, *index = c->in[1]->data;
    int64_t xs[ONNX_READ_RANK], is[ONNX_READ_RANK];
    bool keep[ONNX_READ_RANK];
    struct walk w;
    void *to;
    int axis;
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), x->rank, &axis));
    strides_of(x, xs);
    strides_of(index, is);
    for (int d = 0; d < x->rank; d++) {
        keep[d] = is[d] != 0 || (d != axis && xs[d] != 0);
    }
    SW_TRY(new_out(c, 0, keep, &to, &w));
    for (; w.left > 0; step(&w)) {
        int64_t from = 0, i;
        SW_TRY(check_index(sw_onnx_load_int(index->type, index->elems, place(&w, is)),
                           x->dims[axis], &i));
        for (int d = 0; d < w.rank; d++) {
            from += (d == axis ? i : w.at[d]) * xs[d];
        }
        copy_elem(x->type, to, w.n - w.left, x->elems, from);
    }
    return SW_OK;
}

/* The element of x that a row of indices names, in x's strides. at: of the row's first index. */
static sw_status place_of_row(const Data *x, const int64_t *xs, int first_dim, const Data *index,
                              int64_t at, int64_t stride, int64_t *out)
{
    const int depth = (int)index->dims[index->rank - 1];
    for (int k = 0; k < depth; k++) {
        int64_t i;
        SW_TRY(check_index(sw_onnx_load_int(index->type, index->elems, at + k * stride),
                           x->dims[first_dim + k], &i));
        *out += i * xs[first_dim + k];
    }
    return SW_OK;
}

sw_status sw_onnx_eval_gather_nd(Case *c)
{
    const Data *x = c->in[0]->data, *index = c->in[1]->data;
    const int batch = (int)sw_onnx_attr_int(c->node, "batch_dims", 0);
    const int depth = (int)index->dims[index->rank - 1], n_index = index->rank - 1;
    int64_t xs[ONNX_READ_RANK], is[ONNX_READ_RANK];
    bool keep[ONNX_READ_RANK];
    struct walk w;
    void *to;
    strides_of(x, xs);
    strides_of(index, is);
    for (int d = 0; d < c->out[0].rank; d++) {
        keep[d] = d < n_index ? is[d] != 0 || (d < batch && xs[d] != 0)
                              : xs[d - n_index + batch + depth] != 0;
    }
    SW_TRY(new_out(c, 0, keep, &to, &w));
    for (; w.left > 0; step(&w)) {
        int64_t at = 0, from = 0;
        for (int d = 0; d < w.rank; d++) {
            at += d < n_index ? w.at[d] * is[d] : 0;
            from += d < batch      ? w.at[d] * xs[d]
                    : d >= n_index ? w.at[d] * xs[d - n_index + batch + depth]
                                   : 0;
        }
        SW_TRY(place_of_row(x, xs, batch, index, at, is[n_index], &from));
        copy_elem(x->type, to, w.n - w.left, x->elems, from);
    }
    return SW_OK;
}

/* ---- scattered ---- */

static sw_status copy_of_in(Case *c, void **out_elems)
{
    const Data *x = c->in[0]->data;
    int64_t strides[ONNX_READ_RANK];
    struct walk w;
    SW_TRY(new_out(c, 0, NULL, out_elems, &w));
    strides_of(x, strides);
    for (; w.left > 0; step(&w)) {
        copy_elem(x->type, *out_elems, w.n - w.left, x->elems, place(&w, strides));
    }
    return SW_OK;
}

static bool is_plain_update(const Case *c)
{
    return strcmp(sw_onnx_attr_text(c->node, "reduction", "none"), "none") == 0;
}

sw_status sw_onnx_eval_scatter_nd(Case *c)
{
    const Data *x = c->in[0]->data, *index = c->in[1]->data, *u = c->in[2]->data;
    const int depth = (int)index->dims[index->rank - 1], n_index = index->rank - 1;
    int64_t xs[ONNX_READ_RANK], is[ONNX_READ_RANK], us[ONNX_READ_RANK];
    struct walk w;
    void *to;
    if (!is_plain_update(c)) {
        return SW_PENDING;
    }
    SW_TRY(copy_of_in(c, &to));
    row_major(x->rank, x->dims, xs);
    strides_of(index, is);
    strides_of(u, us);
    SW_TRY(sw_onnx_work(c->folding, u->n));
    start_walk(&w, u->rank, u->dims);
    for (; w.left > 0 && u->n > 0; step(&w)) {
        int64_t at = 0, place_in = 0;
        for (int d = 0; d < w.rank; d++) {
            at += d < n_index ? w.at[d] * is[d] : 0;
            place_in += d >= n_index ? w.at[d] * xs[d - n_index + depth] : 0;
        }
        SW_TRY(place_of_row(x, xs, 0, index, at, is[n_index], &place_in));
        copy_elem(x->type, to, place_in, u->elems, place(&w, us));
    }
    return SW_OK;
}

sw_status sw_onnx_eval_scatter_elements(Case *c)
{
    const Data *x = c->in[0]->data, *index = c->in[1]->data, *u = c->in[2]->data;
    int64_t xs[ONNX_READ_RANK], is[ONNX_READ_RANK], us[ONNX_READ_RANK];
    struct walk w;
    void *to;
    int axis;
    if (!is_plain_update(c)) {
        return SW_PENDING;
    }
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), x->rank, &axis));
    SW_TRY(copy_of_in(c, &to));
    row_major(x->rank, x->dims, xs);
    strides_of(index, is);
    strides_of(u, us);
    SW_TRY(sw_onnx_work(c->folding, u->n));
    start_walk(&w, u->rank, u->dims);
    for (; w.left > 0 && u->n > 0; step(&w)) {
        int64_t at = 0, i;
        SW_TRY(check_index(sw_onnx_load_int(index->type, index->elems, place(&w, is)),
                           x->dims[axis], &i));
        for (int d = 0; d < w.rank; d++) {
            at += (d == axis ? i : w.at[d]) * xs[d];
        }
        copy_elem(x->type, to, at, u->elems, place(&w, us));
    }
    return SW_OK;
}

/* ---- the rest ---- */

sw_status sw_onnx_eval_tile(Case *c)
{
    const Data *x = c->in[0]->data;
    int64_t strides[ONNX_READ_RANK];
    bool keep[ONNX_READ_RANK];
    struct walk w;
    void *to;
    strides_of(x, strides);
    for (int d = 0; d < x->rank; d++) {
        keep[d] = strides[d] != 0;
    }
    SW_TRY(new_out(c, 0, keep, &to, &w));
    for (; w.left > 0; step(&w)) {
        int64_t from = 0;
        for (int d = 0; d < w.rank; d++) {
            from += w.at[d] % x->dims[d] * strides[d];
        }
        copy_elem(x->type, to, w.n - w.left, x->elems, from);
    }
    return SW_OK;
}

sw_status sw_onnx_eval_pad(Case *c)
{
    const Data *x = c->in[0]->data;
    int64_t before[ONNX_READ_RANK], after[ONNX_READ_RANK], strides[ONNX_READ_RANK];
    struct walk w;
    void *to;
    if (strcmp(sw_onnx_attr_text(c->node, "mode", "constant"), "constant") != 0) {
        return SW_PENDING;
    }
    const Known *fill = c->n_in > 2 ? c->in[2] : NULL;
    if (fill && (fill->data->n != 1 || fill->type != x->type)) {
        return SW_FAIL(SW_E_FORMAT, "input 2 is not one number of the type of input 0");
    }
    SW_TRY(sw_onnx_pads(c, before, after));
    SW_TRY(new_out(c, 0, NULL, &to, &w));
    strides_of(x, strides);
    for (; w.left > 0; step(&w)) {
        int64_t from = 0;
        bool inside = true;
        for (int d = 0; d < w.rank; d++) {
            const int64_t at = w.at[d] - before[d];
            inside = inside && at >= 0 && at < x->dims[d];
            from += inside ? at * strides[d] : 0;
        }
        if (inside) {
            copy_elem(x->type, to, w.n - w.left, x->elems, from);
        } else if (fill) {
            copy_elem(x->type, to, w.n - w.left, fill->data->elems, 0);
        } else {
            sw_onnx_store_int(x->type, to, w.n - w.left, 0);
        }
    }
    return SW_OK;
}

sw_status sw_onnx_eval_trilu(Case *c)
{
    const Data *x = c->in[0]->data;
    const bool upper = sw_onnx_attr_int(c->node, "upper", 1) != 0;
    const Known *shift = c->n_in > 1 ? c->in[1] : NULL;
    int64_t strides[ONNX_READ_RANK], k = 0;
    bool keep[ONNX_READ_RANK];
    struct walk w;
    void *to;
    if (x->rank < 2 || (shift && shift->data->n != 1)) {
        return SW_FAIL(SW_E_FORMAT, "wanted a matrix, and one number for its diagonal");
    }
    if (shift) {
        k = sw_onnx_data_int(shift->data, 0);
        k = k < -(INT64_C(1) << 50) ? -(INT64_C(1) << 50) : k;
        k = k > INT64_C(1) << 50 ? INT64_C(1) << 50 : k;
    }
    strides_of(x, strides);
    for (int d = 0; d < x->rank; d++) {
        keep[d] = d >= x->rank - 2 || strides[d] != 0;
    }
    SW_TRY(new_out(c, 0, keep, &to, &w));
    for (; w.left > 0; step(&w)) {
        const int64_t distance = w.at[w.rank - 1] - w.at[w.rank - 2];
        if (upper ? distance >= k : distance <= k) {
            copy_elem(x->type, to, w.n - w.left, x->elems, place(&w, strides));
        } else {
            sw_onnx_store_int(x->type, to, w.n - w.left, 0);
        }
    }
    return SW_OK;
}

sw_status sw_onnx_eval_cumsum(Case *c)
{
    const Data *x = c->in[0]->data;
    const bool exclusive = sw_onnx_attr_int(c->node, "exclusive", 0) != 0;
    const bool reverse = sw_onnx_attr_int(c->node, "reverse", 0) != 0;
    int64_t strides[ONNX_READ_RANK], dims[ONNX_READ_RANK], dense[ONNX_READ_RANK];
    struct walk w;
    void *to;
    int axis;
    if (c->in[1]->data->n != 1) {
        return SW_FAIL(SW_E_FORMAT, "input 1 is not one axis");
    }
    SW_TRY(sw_onnx_axis(c, sw_onnx_data_int(c->in[1]->data, 0), x->rank, &axis));
    SW_TRY(new_out(c, 0, NULL, &to, &w));
    if (w.n == 0) {
        return SW_OK;
    }
    strides_of(x, strides);
    row_major(x->rank, x->dims, dense);
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = 1;
    start_walk(&w, x->rank, dims);
    for (; w.left > 0; step(&w)) {
        double sum = 0;
        int64_t whole = 0;
        for (int64_t k = 0; k < x->dims[axis]; k++) {
            const int64_t i = reverse ? x->dims[axis] - 1 - k : k;
            const int64_t from = place(&w, strides) + i * strides[axis];
            const int64_t at = place(&w, dense) + i * dense[axis];
            const double before = sum;
            const int64_t whole_before = whole;
            sum += sw_onnx_load_number(x->type, x->elems, from);
            whole = map_int(MAP_ADD, whole, sw_onnx_load_int(x->type, x->elems, from));
            if (sw_onnx_is_float(x->type)) {
                sw_onnx_store_number(x->type, to, at, exclusive ? before : sum);
            } else {
                sw_onnx_store_int(x->type, to, at, exclusive ? whole_before : whole);
            }
        }
    }
    return SW_OK;
}

/* The axes of a node that is reduced as bits. */
static sw_status reduced_axes(const Case *c, unsigned *out)
{
    bool given;
    if (c->rule->eval == sw_onnx_eval_arg) {
        int axis;
        SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", 0), c->in[0]->rank, &axis));
        *out = 1U << axis;
        return SW_OK;
    }
    SW_TRY(sw_onnx_axes(c, 1, c->in[0]->rank, &given, out));
    *out = *out ? *out : ~0U;
    return SW_OK;
}

/* Calls fn for each element of the output with a walk over the elements that it is made of. */
static sw_status each_reduced(Case *c,
                              void (*fn)(Case *c, const Data *x, int64_t first, struct walk *inner,
                                         const int64_t *strides, void *to, int64_t i))
{
    const Data *x = c->in[0]->data;
    unsigned axes;
    int64_t strides[ONNX_READ_RANK], kept[ONNX_READ_RANK], kept_strides[ONNX_READ_RANK];
    int64_t gone[ONNX_READ_RANK], gone_strides[ONNX_READ_RANK];
    struct walk out, outer, inner;
    int n_kept = 0, n_gone = 0;
    void *to;
    SW_TRY(reduced_axes(c, &axes));
    SW_TRY(new_out(c, 0, NULL, &to, &out));
    SW_TRY(sw_onnx_work(c->folding, x->n));
    strides_of(x, strides);
    for (int d = 0; d < x->rank; d++) {
        if (axes >> d & 1) {
            gone[n_gone] = x->dims[d];
            gone_strides[n_gone++] = strides[d];
        } else {
            kept[n_kept] = x->dims[d];
            kept_strides[n_kept++] = strides[d];
        }
    }
    start_walk(&outer, n_kept, kept);
    for (; outer.left > 0 && out.n > 0; step(&outer)) {
        start_walk(&inner, n_gone, gone);
        fn(c, x, place(&outer, kept_strides), &inner, gone_strides, to, outer.n - outer.left);
    }
    return SW_OK;
}

static void reduce(Case *c, const Data *x, int64_t first, struct walk *w, const int64_t *strides,
                   void *to, int64_t i)
{
    const char *kind = c->node->op + strlen("Reduce");
    const enum map_op op = strcmp(kind, "Max") == 0    ? MAP_MAX
                           : strcmp(kind, "Min") == 0  ? MAP_MIN
                           : strcmp(kind, "Prod") == 0 ? MAP_MUL
                                                       : MAP_ADD;
    double number = op == MAP_MUL ? 1 : op == MAP_MAX ? -HUGE_VAL : op == MAP_MIN ? HUGE_VAL : 0;
    int64_t whole = op == MAP_MUL ? 1 : op == MAP_MAX ? INT64_MIN : op == MAP_MIN ? INT64_MAX : 0;
    const bool floats = sw_onnx_is_float(x->type);
    const int64_t n = w->n;
    for (; w->left > 0; step(w)) {
        const int64_t at = first + place(w, strides);
        if (floats) {
            number = map_number(op, number, sw_onnx_load_number(x->type, x->elems, at));
        } else {
            whole = map_int(op, whole, sw_onnx_load_int(x->type, x->elems, at));
        }
    }
    if (strcmp(kind, "Mean") == 0) {
        number /= (double)n;
        whole = n > 0 ? whole / n : 0;
    }
    if (floats) {
        sw_onnx_store_number(x->type, to, i, number);
    } else {
        sw_onnx_store_int(x->type, to, i, whole);
    }
}

sw_status sw_onnx_eval_reduce(Case *c)
{
    return each_reduced(c, reduce);
}

static void find_most(Case *c, const Data *x, int64_t first, struct walk *w, const int64_t *strides,
                      void *to, int64_t i)
{
    const bool last = sw_onnx_attr_int(c->node, "select_last_index", 0) != 0;
    const double sign = strcmp(c->node->op, "ArgMin") == 0 ? -1 : 1;
    double best = -HUGE_VAL;
    int64_t found = 0;
    for (; w->left > 0; step(w)) {
        const double v = sign * sw_onnx_load_number(x->type, x->elems, first + place(w, strides));
        if (v > best || (last && v == best)) {
            best = v;
            found = w->n - w->left;
        }
    }
    sw_onnx_store_int(ONNX_I64, to, i, found);
}

sw_status sw_onnx_eval_arg(Case *c)
{
    return each_reduced(c, find_most);
}

/* For tables of angles: outer products and other small ones. */
sw_status sw_onnx_eval_matmul(Case *c)
{
    const Data *a = c->in[0]->data, *b = c->in[1]->data;
    const int rank = c->out[0].rank, ra = a->rank, rb = b->rank;
    int64_t as[ONNX_READ_RANK], bs[ONNX_READ_RANK], a_at[ONNX_READ_RANK] = {0};
    int64_t b_at[ONNX_READ_RANK] = {0}, work;
    struct walk w;
    void *to;
    if (ra < 2 || rb < 2 || !sw_onnx_is_float(a->type)) {
        return SW_PENDING;
    }
    strides_of(a, as);
    strides_of(b, bs);
    for (int d = 0; d < rank; d++) {
        const int x = d - (rank - ra), y = d - (rank - rb);
        a_at[d] = x < 0 || d == rank - 1 ? 0 : as[x];
        b_at[d] = y < 0 || d == rank - 2 ? 0 : bs[y];
    }
    SW_TRY(new_out(c, 0, NULL, &to, &w));
    const int64_t inner = a->dims[ra - 1];
    if (!sw_mul_i64(w.n, inner, &work)) {
        return SW_FAIL(SW_E_FORMAT, "the product of dimensions overflows");
    }
    SW_TRY(sw_onnx_work(c->folding, work));
    for (; w.left > 0; step(&w)) {
        const int64_t x = place(&w, a_at), y = place(&w, b_at);
        double sum = 0;
        for (int64_t k = 0; k < inner; k++) {
            sum += sw_onnx_load_number(a->type, a->elems, x + k * as[ra - 1]) *
                   sw_onnx_load_number(b->type, b->elems, y + k * bs[rb - 2]);
        }
        sw_onnx_store_number(a->type, to, w.n - w.left, sum);
    }
    return SW_OK;
}

sw_status sw_onnx_eval_nonzero(Case *c)
{
    const Data *x = c->in[0]->data;
    int64_t strides[ONNX_READ_RANK], n = 0;
    const int64_t n_out = c->out[0].dims[1];
    struct walk w;
    void *to;
    SW_TRY(new_out(c, 0, NULL, &to, &w));
    strides_of(x, strides);
    start_walk(&w, x->rank, x->dims);
    for (; w.left > 0 && x->n > 0; step(&w)) {
        if (sw_onnx_load_number(x->type, x->elems, place(&w, strides)) == 0) {
            continue;
        }
        for (int d = 0; d < (x->rank > 0 ? x->rank : 1); d++) {
            sw_onnx_store_int(ONNX_I64, to, d * n_out + n, w.at[d]);
        }
        n++;
    }
    return SW_OK;
}

sw_status sw_onnx_eval_one_hot(Case *c)
{
    const Data *x = c->in[0]->data, *values = c->in[2]->data;
    int64_t strides[ONNX_READ_RANK], us[ONNX_READ_RANK];
    struct walk w;
    void *to;
    int axis;
    SW_TRY(sw_onnx_axis(c, sw_onnx_attr_int(c->node, "axis", -1), x->rank + 1, &axis));
    SW_TRY(new_out(c, 0, NULL, &to, &w));
    strides_of(x, strides);
    strides_of(values, us);
    for (; w.left > 0; step(&w)) {
        int64_t from = 0;
        for (int d = 0; d < w.rank; d++) {
            from += d == axis ? 0 : w.at[d] * strides[d - (d > axis)];
        }
        int64_t i = sw_onnx_load_int(x->type, x->elems, from);
        i += i < 0 ? c->out[0].dims[axis] : 0;
        copy_elem(values->type, to, w.n - w.left, values->elems, i == w.at[axis] ? us[0] : 0);
    }
    return SW_OK;
}
