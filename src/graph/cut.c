// SPDX-License-Identifier: Apache-2.0
// Cuts: how an op works in parts if one dimension of an operand is cut. The row of an op names the
// axes of its operands (struct sw_op_info, axes). From these names follow the effects on all
// operands; functions of a row add the rest: units, sections, attributes of a part.
#include <stdio.h>
#include <string.h>

#include "graph/private.h"

/* ---- reading the names of axes ---- */

enum { MAX_OPERANDS = SW_MAX_INPUTS + SW_MAX_OUTPUTS, WHOLE = '.' };

struct axes {
    char of[MAX_OPERANDS][SW_MAX_RANK]; /* name of the axis of each dimension */
    bool same[MAX_OPERANDS];            /* output: parts that lack the axis make all of it */
    char absent[MAX_OPERANDS][16];      /* the names as written, for absent outputs */
    /* the dims that '*' stands for in the first operand that has it; -1 = not yet known */
    struct sw_shape star;
    bool is_flat; /* an operand has these dims as one: only the first of them can be cut */
};

/* The dims that `*` stands for are named '0', '1', .. from the last one on. */
static char star_axis(const struct axes *axes, int dim)
{
    return (char)('0' + axes->star.rank - 1 - dim);
}

static int first_long(const int64_t *dims, int rank)
{
    int d = 0;
    while (d < rank - 1 && dims[d] == 1) {
        d++;
    }
    return d;
}

static int64_t product(const int64_t *dims, int rank)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++) {
        n *= dims[d];
    }
    return n;
}

/* `*`: the last dims of the star. */
static bool read_star(struct axes *axes, char *names, const int64_t *dims, int rank)
{
    if (axes->star.rank < 0) {
        axes->star.rank = rank;
        memcpy(axes->star.dims, dims, (size_t)rank * sizeof *dims);
    }
    const int skipped = axes->star.rank - rank;
    for (int d = 0; d < rank && skipped >= 0; d++) {
        names[d] = star_axis(axes, skipped + d);
    }
    return skipped >= 0 &&
           memcmp(dims, axes->star.dims + skipped, (size_t)rank * sizeof *dims) == 0;
}

/* `#`: as many elements as the star, perhaps in other dims. */
static bool read_flat(struct axes *axes, char *names, const int64_t *dims, int rank)
{
    if (axes->star.rank == rank && read_star(axes, names, dims, rank)) {
        return true;
    }
    memset(names, WHOLE, (size_t)rank);
    if (rank == 0 || axes->star.rank <= 0 ||
        product(dims, rank) != product(axes->star.dims, axes->star.rank)) {
        return false;
    }
    names[first_long(dims, rank)] = star_axis(axes, first_long(axes->star.dims, axes->star.rank));
    axes->is_flat = true;
    return true;
}

/* Names the dims of operand k. False if it has other dims than the names. */
static bool read_operand(struct axes *axes, int k, const char *text, int len,
                         const struct sw_shape *shape)
{
    char *names = axes->of[k];
    if (text[0] == '=') {
        axes->same[k] = true;
        text++;
        len--;
    }
    SW_ASSERT(len < (int)sizeof axes->absent[k]);
    memcpy(axes->absent[k], text, (size_t)len);
    if (shape->rank < 0) {
        return true;
    }
    const int before = (int)strcspn(text, "*#_ ");
    const bool wild = before < len;
    const int rank = shape->rank - len + wild, after = len - before - wild;
    if (rank < 0 || (!wild && rank > 0)) {
        return false;
    }
    memcpy(names, text, (size_t)before);
    memcpy(names + before + rank, text + before + wild, (size_t)after);
    switch (wild ? text[before] : WHOLE) {
    case '*':
        return read_star(axes, names + before, shape->dims + before, rank);
    case '#':
        return read_flat(axes, names + before, shape->dims + before, rank);
    default:
        memset(names + before, WHOLE, (size_t)rank);
        return true;
    }
}

static const struct sw_view *operand_of(const struct sw_op_desc *desc, int k)
{
    return k < desc->op->n_in ? &desc->in[k] : &desc->out[k - desc->op->n_in];
}

/* False if the op has operands that its row does not name. */
static bool read_axes(const struct sw_op_desc *desc, const char *text, struct axes *axes)
{
    const struct sw_op *op = desc->op;
    int k = 0, end = op->n_in;
    memset(axes, 0, sizeof *axes);
    memset(axes->of, WHOLE, sizeof axes->of);
    axes->star.rank = -1;
    for (; *text; text += strspn(text, " ")) {
        const int len = (int)strcspn(text, " ");
        if (strncmp(text, "->", 2) == 0) {
            if (k < end) {
                return false;
            }
            k = end;
            end += op->n_out;
        } else if (k < end) {
            if (!read_operand(axes, k, text, len, &operand_of(desc, k)->shape)) {
                return false;
            }
            k++;
        }
        text += len;
    }
    return k == end;
}

/* ---- effects ---- */

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int dim_of(const struct axes *axes, int k, const struct sw_shape *shape, char axis)
{
    for (int d = 0; d < shape->rank; d++) {
        if (axes->of[k][d] == axis) {
            return d;
        }
    }
    return -1;
}

static bool absent_has(const struct axes *axes, int k, char axis)
{
    return strchr(axes->absent[k], axis) ||
           (axis >= '0' && axis <= '9' && strpbrk(axes->absent[k], "*#"));
}

/* Operands that have the axis are cut along it. Outputs that lack it are sums over it. */
static void set_effects(const struct sw_op_desc *desc, const struct axes *axes, struct sw_cut *out)
{
    const int n = desc->op->n_in + desc->op->n_out;
    for (int k = 0; k < n; k++) {
        const struct sw_shape *shape = &operand_of(desc, k)->shape;
        struct sw_operand_cut *to = &out->operands[k];
        to->dim = dim_of(axes, k, shape, out->axis);
        if (to->dim >= 0 || (shape->rank < 0 && absent_has(axes, k, out->axis))) {
            to->effect = SW_CUT_ALIKE;
            to->elems = to->dim >= 0 ? shape->dims[to->dim] : 0;
            out->n = common_divisor(out->n, to->elems);
        } else if (k >= desc->op->n_in) {
            to->effect = axes->same[k] ? SW_CUT_SAME : SW_CUT_ADDED;
        }
    }
    for (int k = 0; k < n; k++) {
        if (out->operands[k].effect == SW_CUT_ALIKE) {
            out->operands[k].per[0] = out->operands[k].elems / out->n;
        }
    }
}

/* Makes one unit of `units` units. */
static void join_units(struct sw_cut *cut, int64_t units)
{
    cut->n = sw_ceil_div(cut->n, units);
    for (int k = 0; k < MAX_OPERANDS; k++) {
        cut->operands[k].per[0] *= units;
    }
}

bool sw_op_cut(const struct sw_op_desc *desc, int operand, int dim, struct sw_cut *out)
{
    const struct sw_op_info *info = sw_op_info(desc->op->kind);
    char text[SW_AXES_TEXT];
    struct axes axes;
    const char *names = info->axes_of ? info->axes_of(desc, text) : info->axes;
    memset(out, 0, sizeof *out);
    if (!names || !read_axes(desc, names, &axes) || axes.of[operand][dim] == WHOLE) {
        return false;
    }
    out->operand = out->tiled = operand;
    out->axis = axes.of[operand][dim];
    out->apart = true;
    if (axes.is_flat && out->axis >= '0' && out->axis <= '9' &&
        out->axis != star_axis(&axes, first_long(axes.star.dims, axes.star.rank))) {
        return false;
    }
    set_effects(desc, &axes, out);
    if (out->n == 0 || (info->cut && !info->cut(desc, out))) {
        return false;
    }
    const struct sw_operand_cut *asked = &out->operands[operand];
    const struct sw_shape *sum = &desc->out[0].shape;
    out->unit = asked->per[0] + asked->per[1] + asked->per[2];
    if (out->turns == SW_TURNS_SUM && out->partial.rank == 0 && sum->rank > 0) {
        out->partial = SW_SHAPE(sw_shape_rows(sum), sw_shape_last(sum));
    }
    return true;
}

int64_t sw_cut_run(const struct sw_cut *cut, int k, int section, int64_t first, int64_t n,
                   int64_t *n_elems)
{
    const struct sw_operand_cut *of = &cut->operands[k];
    int64_t start = 0;
    for (int s = 0; s < section; s++) {
        start += cut->n * of->per[s];
    }
    const int64_t from = sw_min_i64(start + first * of->per[section], of->elems);
    *n_elems = sw_min_i64(start + (first + n) * of->per[section], of->elems) - from;
    return from;
}

void sw_op_take_part(const struct sw_op_desc *desc, struct sw_op *op, const struct sw_cut *cut,
                     int64_t first, int64_t n)
{
    const struct sw_op_info *info = sw_op_info(op->kind);
    if (info->part) {
        info->part(desc, op, cut, first, n);
    }
}

void sw_op_make_partial(struct sw_op *op, const struct sw_cut *cut)
{
    const int n_in = op->n_in;
    sw_op_tile(op)->partial = true;
    while (op->n_in > 0 && cut->operands[op->n_in - 1].effect == SW_CUT_ONCE) {
        op->n_in--;
    }
    while (op->n_out > 1 && (cut->operands[n_in + op->n_out - 1].effect == SW_CUT_ADDED ||
                             cut->operands[n_in + op->n_out - 1].effect == SW_CUT_MERGED)) {
        op->n_out--;
    }
    if (op->kind == SW_OP_MATMUL) {
        op->attrs.matmul.has_bias = false;
        op->attrs.matmul.act = SW_ACT_NONE;
    }
}

/* ---- rows whose kernels know of tiles ---- */

static bool is_tile(const struct sw_tile_attrs *tile)
{
    return tile->first > 0 || tile->continues || tile->partial;
}

static int64_t first_elem(const struct sw_cut *cut, int64_t first)
{
    int64_t n;
    return sw_cut_run(cut, cut->operand, 0, first, 0, &n);
}

const char *sw_axes_of_matmul(const struct sw_op_desc *d, char *text)
{
    static const char *const axes[2][2] = {{"*k kn n -> #n #n", "*k nk n -> #n #n"},
                                           {"*m #n n -> mn mn", "*m n# n -> mn mn"}};
    const struct sw_matmul_attrs *attrs = &d->op->attrs.matmul;
    (void)text;
    return is_tile(&attrs->tile) ? NULL : axes[attrs->ta][attrs->tb];
}

/* The rows of a large parameter are columns of the result, are rows of it, or are summed over. A
 * bias is added once. An activation needs the whole sum. */
bool sw_cut_matmul(const struct sw_op_desc *d, struct sw_cut *out)
{
    const struct sw_op *op = d->op;
    const struct sw_matmul_attrs *attrs = &op->attrs.matmul;
    const bool is_sum = out->operands[op->n_in].effect == SW_CUT_ADDED;
    const char by_piece = attrs->ta ? 'm' : attrs->tb ? 'n' : 'k';
    if (attrs->piece > 0 && out->axis == by_piece) {
        join_units(out, attrs->piece);
        const bool in_turn = attrs->ta ? out->operand == op->n_in && !attrs->tb : out->operand == 1;
        out->turns = !in_turn ? SW_TURNS_NONE : is_sum ? SW_TURNS_SUM : SW_TURNS_WRITE;
    }
    if (is_sum && attrs->has_bias) {
        out->operands[2].effect = SW_CUT_ONCE;
    }
    out->apart = !is_sum || attrs->act == SW_ACT_NONE;
    return out->apart || out->turns != SW_TURNS_NONE;
}

void sw_part_matmul(const struct sw_op_desc *desc, struct sw_op *op, const struct sw_cut *cut,
                    int64_t first, int64_t n)
{
    (void)desc;
    (void)n;
    if (first > 0 && op->attrs.matmul.has_bias && cut->operands[2].effect == SW_CUT_ONCE) {
        op->attrs.matmul.has_bias = false;
        op->n_in--;
    }
}

/* Rows of ids that the part does not have are 0, or stay as they are (attrs tile). */
bool sw_cut_embedding(const struct sw_op_desc *d, struct sw_cut *out)
{
    out->turns = out->axis == 'v' ? SW_TURNS_WRITE : SW_TURNS_NONE;
    return out->axis != 'v' ||
           (!is_tile(&d->op->attrs.embedding.tile) && d->op->attrs.embedding.whole == 0);
}

void sw_part_embedding(const struct sw_op_desc *desc, struct sw_op *op, const struct sw_cut *cut,
                       int64_t first, int64_t n)
{
    (void)desc;
    (void)n;
    if (cut->axis == 'v') {
        op->attrs.embedding.tile.first = first_elem(cut, first);
        op->attrs.embedding.whole = desc->in[0].shape.dims[0];
    }
}

/* Cuts of the vocabulary: maxima and sums of the parts are merged. */
bool sw_cut_linear_ce(const struct sw_op_desc *d, struct sw_cut *out)
{
    const struct sw_linear_ce_attrs *attrs = &d->op->attrs.linear_ce;
    if (out->axis == 'v') {
        join_units(out, attrs->chunk);
        out->apart = false;
        out->turns = SW_TURNS_SUM;
        out->partial = SW_SHAPE(3, sw_shape_rows(&d->in[0].shape));
        for (int k = 0; k < 3; k++) {
            out->operands[d->op->n_in + k].effect = SW_CUT_MERGED;
        }
    }
    return out->axis != 'v' || (!is_tile(&attrs->tile) && attrs->whole == 0);
}

/* The bias and its gradient are whole, since labels and attrs tile name rows of the whole. */
bool sw_cut_linear_ce_grad(const struct sw_op_desc *d, struct sw_cut *out)
{
    const struct sw_linear_ce_attrs *attrs = &d->op->attrs.linear_ce;
    if (out->axis == 'v') {
        join_units(out, attrs->chunk);
        out->turns = SW_TURNS_SUM;
        out->tiled = 2;
        if (attrs->has_bias) {
            out->operands[d->op->n_in + 2].effect = SW_CUT_WRITTEN;
        }
    }
    return !is_tile(&attrs->tile) && attrs->whole == 0;
}

void sw_part_linear_ce(const struct sw_op_desc *desc, struct sw_op *op, const struct sw_cut *cut,
                       int64_t first, int64_t n)
{
    (void)desc;
    (void)n;
    if (cut->axis == 'v') {
        op->attrs.linear_ce.tile.first = first_elem(cut, first);
    }
}

/* ---- attention ---- */

/* Queries are independent unless something depends on their positions, or draws by them. */
static bool queries_are_apart(const struct sw_attention_attrs *attrs)
{
    return !attrs->packed && !attrs->causal && attrs->window == 0 && !attrs->has_slopes &&
           !attrs->has_segments && attrs->dropout == 0;
}

enum { INPUTS_TEXT = SW_AXES_TEXT / 2 };

/* Names the inputs that ATTENTION and its gradient share. Returns those of the bias. */
static const char *attention_inputs(const struct sw_op_desc *d, int first, char text[INPUTS_TEXT])
{
    const struct sw_attention_attrs *attrs = &d->op->attrs.attention;
    const bool apart = queries_are_apart(attrs);
    const char *bias = "";
    if (attrs->has_bias) {
        const struct sw_shape *shape = &d->in[sw_attention_bias_input(attrs, first)].shape;
        bias = shape->rank == 3                               ? apart ? "ht." : "h.."
               : shape->dims[0] == d->in[first].shape.dims[0] ? apart ? "bht." : "bh.."
                                                              : ".h..";
    }
    snprintf(text, INPUTS_TEXT, "%s%s%s%s%s%s %s", apart ? "bth_" : "b.h_",
             attrs->packed ? "" : " b.h_ b.h_", attrs->has_mask ? " b." : "",
             attrs->has_position ? " ." : "", attrs->has_slopes ? " h" : "",
             attrs->has_segments ? " b." : "", bias);
    return bias;
}

const char *sw_axes_of_attention(const struct sw_op_desc *d, char *text)
{
    char inputs[INPUTS_TEXT];
    const bool apart = queries_are_apart(&d->op->attrs.attention);
    attention_inputs(d, 0, inputs);
    snprintf(text, SW_AXES_TEXT, "%s -> %s", inputs, apart ? "bth bht" : "b.h bh.");
    return text;
}

const char *sw_axes_of_attention_grad(const struct sw_op_desc *d, char *text)
{
    const struct sw_attention_attrs *attrs = &d->op->attrs.attention;
    char inputs[INPUTS_TEXT];
    const bool apart = queries_are_apart(attrs);
    const char *bias = attention_inputs(d, 3, inputs);
    snprintf(text, SW_AXES_TEXT, "%s %s -> %s%s %s", apart ? "bth bth bht" : "b.h b.h bh.", inputs,
             apart ? "bth_" : "b.h_", attrs->packed ? "" : " b.h_ b.h_", bias);
    return text;
}

static bool is_packed(const struct sw_op *op, int k)
{
    const bool is_grad = op->kind == SW_OP_ATTENTION_GRAD;
    return op->attrs.attention.packed && (is_grad ? k == 3 || k == op->n_in : k == 0);
}

/* A unit is a key head with the query heads that share it. If q, k and v are packed, it has a part
 * of each. */
bool sw_cut_attention(const struct sw_op_desc *d, struct sw_cut *out)
{
    const struct sw_attention_attrs *attrs = &d->op->attrs.attention;
    const int64_t shared = attrs->heads / attrs->kv_heads;
    if (out->axis != 'h') { /* samples and queries: draws name them by their places in the whole */
        return attrs->dropout == 0;
    }
    out->n = attrs->kv_heads;
    for (int k = 0; k < d->op->n_in + d->op->n_out; k++) {
        struct sw_operand_cut *to = &out->operands[k];
        to->per[0] = to->elems / out->n;
        if (is_packed(d->op, k)) {
            to->per[1] = to->per[2] = to->per[0] / (shared + 2);
            to->per[0] = to->per[1] * shared;
        }
    }
    return true;
}

void sw_part_attention(const struct sw_op_desc *desc, struct sw_op *op, const struct sw_cut *cut,
                       int64_t first, int64_t n)
{
    (void)desc;
    struct sw_attention_attrs *attrs = &op->attrs.attention;
    if (cut->axis == 'h') {
        attrs->first_head += attrs->heads / attrs->kv_heads * first;
        attrs->heads = attrs->heads / attrs->kv_heads * n;
        attrs->kv_heads = n;
    }
}

/* ---- other rows ---- */

/* A cut of a part along one more dimension. n of its `dim_elems` indices are kept, from `first` on;
 * each has `inner` elements here. */
static void cut_dropout_again(struct sw_dropout_attrs *attrs, int64_t dim_elems, int64_t inner,
                              int64_t first, int64_t n)
{
    const struct sw_dropout_cut old = {attrs->part, attrs->whole, attrs->first};
    const int64_t here = dim_elems * inner;
    const struct sw_dropout_cut now = {n * inner, here, first * inner};
    if (old.part <= inner) { /* a later dimension was cut */
        const int64_t grow = old.whole / old.part;
        attrs->outer = (struct sw_dropout_cut){now.part * grow, now.whole * grow, now.first * grow};
    } else if (old.part > here || old.whole > attrs->sample) { /* an earlier one: samples */
        attrs->part = now.part;
        attrs->whole = now.whole;
        attrs->first = now.first;
        attrs->outer = old;
    } else { /* the same one */
        attrs->part = now.part;
        attrs->first += now.first;
    }
}

/* The part has a run of each `whole` elements, which are those from the cut dimension on. */
void sw_part_dropout(const struct sw_op_desc *desc, struct sw_op *op, const struct sw_cut *cut,
                     int64_t first, int64_t n)
{
    const struct sw_shape *shape = &desc->in[0].shape;
    const int dim = cut->operands[0].dim;
    const int64_t inner = product(shape->dims + dim + 1, shape->rank - dim - 1);
    struct sw_dropout_attrs *attrs = &op->attrs.dropout;
    if (attrs->part > 0) {
        cut_dropout_again(attrs, shape->dims[dim], inner, first_elem(cut, first),
                          n * cut->operands[0].per[0]);
        return;
    }
    attrs->whole = shape->dims[dim] * inner;
    attrs->part = n * cut->operands[0].per[0] * inner;
    attrs->first = first_elem(cut, first) * inner;
    attrs->sample = product(shape->dims + 1, shape->rank - 1);
}

/* Attrs origin is the row of the first query and the first key. */
void sw_part_relative_bias(const struct sw_op_desc *desc, struct sw_op *op,
                           const struct sw_cut *cut, int64_t first, int64_t n)
{
    (void)desc;
    struct sw_relative_attrs *attrs = &op->attrs.relative;
    if (cut->axis == 't') {
        attrs->queries = n;
        attrs->origin -= first;
    } else if (cut->axis == 's') {
        attrs->keys = n;
        attrs->origin += first;
    }
}

/* A row-sparse sum, or one of equal shapes. */
const char *sw_axes_of_accumulate(const struct sw_op_desc *d, char *text)
{
    (void)text;
    return d->op->n_in > 2 ? ".c .c . -> .c" : "* * -> *";
}

/* Each norm is of a row of outputs. */
const char *sw_axes_of_inverse_norms(const struct sw_op_desc *d, char *text)
{
    (void)text;
    return d->op->attrs.weight.in_out ? ".o .. o. -> o" : "o. .. o. -> o";
}

const char *sw_axes_of_dropout(const struct sw_op_desc *d, char *text)
{
    (void)text;
    return d->op->attrs.dropout.outer.part > 0 ? NULL : "* -> *";
}

const char *sw_axes_of_positions(const struct sw_op_desc *d, char *text)
{
    (void)text;
    return d->op->attrs.positions.counted ? "b. -> b." : "* -> *";
}

/* Names of n dims: letters, but the dim `whole` has none. */
static void letters(char *out, int n, int whole)
{
    SW_ASSERT(n >= 0 && n <= SW_MAX_RANK);
    for (int d = 0; d < n; d++) {
        out[d] = (char)(d == whole ? WHOLE : 'a' + d);
    }
    out[n] = 0;
}

/* All operands have the same dims, except along attrs dim. */
const char *sw_axes_of_slice(const struct sw_op_desc *d, char *text)
{
    char names[SW_MAX_RANK + 1];
    int at = 0;
    letters(names, d->in[0].shape.rank, d->op->attrs.slice.dim);
    for (int k = 0; k < d->op->n_in; k++) {
        at += snprintf(text + at, (size_t)(SW_AXES_TEXT - at), "%s ", names);
    }
    snprintf(text + at, (size_t)(SW_AXES_TEXT - at), "-> %s", names);
    return text;
}

/* A dim of the input is a dim of the output if both begin after the same number of elements. */
static void names_of_reshape(const struct sw_shape *in, const struct sw_shape *out, char *names)
{
    for (int d = 0; d < out->rank; d++) {
        names[d] = WHOLE;
        for (int i = 0; i < in->rank && out->dims[d] > 1; i++) {
            if (in->dims[i] > 1 && product(in->dims, i) == product(out->dims, d)) {
                names[d] = (char)('a' + i);
            }
        }
    }
    names[out->rank] = 0;
}

const char *sw_axes_of_view(const struct sw_op_desc *d, char *text)
{
    const struct sw_view_attrs *attrs = &d->op->attrs.view;
    const struct sw_shape *in = &d->in[0].shape, *out = &d->out[0].shape;
    char from[SW_MAX_RANK + 1], to[SW_MAX_RANK + 1];
    letters(from, in->rank, attrs->kind == SW_VIEW_SLICE ? attrs->dim : -1);
    memcpy(to, from, sizeof to);
    if (attrs->kind == SW_VIEW_TRANSPOSE) {
        to[attrs->dim] = from[attrs->dim_b];
        to[attrs->dim_b] = from[attrs->dim];
    } else if (attrs->kind == SW_VIEW_RESHAPE) {
        names_of_reshape(in, out, to);
        for (int i = 0; i < in->rank; i++) { /* dims that begin inside a dim of the output */
            from[i] = (char)(strchr(to, from[i]) ? from[i] : WHOLE);
        }
    }
    snprintf(text, SW_AXES_TEXT, "%s -> %s", from, to);
    return text;
}
