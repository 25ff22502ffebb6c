// SPDX-License-Identifier: Apache-2.0
// The table of cuts (sw_op_cut) against the reference kernels. Every case of every op runs whole,
// and in parts for every dimension that can be cut. Put together, the parts' outputs have the bits
// of the whole. Sums of the parts' outputs are near it. Parts that run in turn are also compared
// with the fast kernels, whose order of additions depends on pieces and chunks.
#include "device/tests/op_cases.h"
#include "support/test.h"

enum { MOST_PARTS = 3 };
static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16};
/* The reference is slow, so larger cases are left out. Pieces and chunks are large. */
static const double most_flops = 1e5, most_flops_in_turn = 7e6;

struct parts {
    struct sw_device *dev;
    const struct op_case *c, *whole; /* the op, and its run */
    const struct sw_op_desc *desc;
    struct sw_cut cut;
    int n;
    int64_t first[MOST_PARTS + 1]; /* part t has units first[t] .. first[t + 1] - 1 */
};

enum { REFERENCE, FAST, N_DEVICES };

static int set_up(void **state)
{
    static struct sw_device *devices[N_DEVICES];
    for (int i = 0; i < N_DEVICES; i++) {
        const struct sw_cpu_options options = {.n_threads = 1, .reference = i == REFERENCE};
        assert_int_equal(sw_device_open_cpu(&options, &devices[i]), SW_OK);
    }
    *state = devices;
    return 0;
}

static int tear_down(void **state)
{
    for (int i = 0; i < N_DEVICES; i++) {
        sw_device_close(((struct sw_device **)*state)[i]);
    }
    return 0;
}

static void run(struct sw_device *dev, const struct op_case *c, struct op_case *result)
{
    if (case_run(dev, c, result) < 0) {
        fail_msg("%s: %s", c->name, sw_error_message());
    }
}

static void fail_at(const struct parts *p, int k, const char *what)
{
    fail_msg("%s cut along '%c' of operand %d: operand %d %s", p->c->name, p->cut.axis,
             p->cut.operand, k, what);
}

static const struct sw_operand_cut *effect_on(const struct parts *p, int k)
{
    return &p->cut.operands[k];
}

/* ---- elements of a part ---- */

static struct sw_shape shape_of_part(const struct parts *p, int k, int t, struct sw_shape shape)
{
    const struct sw_operand_cut *to = effect_on(p, k);
    int64_t n;
    shape.dims[to->dim] = 0;
    for (int s = 0; s < SW_CUT_SECTIONS && to->per[s] > 0; s++) {
        sw_cut_run(&p->cut, k, s, p->first[t], p->first[t + 1] - p->first[t], &n);
        shape.dims[to->dim] += n;
    }
    return shape;
}

/* The index in the whole of index i of part t. */
static int64_t index_in_whole(const struct parts *p, int k, int t, int64_t i)
{
    int64_t n, from = 0;
    for (int s = 0; s < SW_CUT_SECTIONS; s++) {
        from = sw_cut_run(&p->cut, k, s, p->first[t], p->first[t + 1] - p->first[t], &n);
        if (i < n) {
            break;
        }
        i -= n;
    }
    return from + i;
}

/* Offset in the whole of element e of a part with this shape; t < 0 = it is the whole. */
static int64_t offset_in_whole(const struct parts *p, int k, int t, const struct sw_shape *shape,
                               const struct sw_view *whole, int64_t e)
{
    int64_t offset = 0;
    for (int d = shape->rank - 1; d >= 0; d--) {
        const int64_t i = e % shape->dims[d];
        e /= shape->dims[d];
        offset += whole->strides[d] *
                  (t >= 0 && d == effect_on(p, k)->dim ? index_in_whole(p, k, t, i) : i);
    }
    return offset;
}

/* Adds input k of the op, or part t of it. */
static void add_input(struct op_case *part, const struct parts *p, int k, int t)
{
    const struct sw_view *from = &p->c->in[k].view;
    const struct sw_shape shape = t >= 0 ? shape_of_part(p, k, t, from->shape) : from->shape;
    const size_t width = sw_dtype_bytes(from->dtype);
    const int i = case_in_zero(part, from->dtype, shape);
    for (int64_t e = 0; e < sw_shape_elems(&shape); e++) {
        memcpy((char *)part->in[i].view.data + (size_t)e * width,
               (char *)from->data + (size_t)offset_in_whole(p, k, t, &shape, from, e) * width,
               width);
    }
}

static int add_output_as_input(struct op_case *part, const struct op_case *before, int k)
{
    const int i = case_in_zero(part, before->out[k].view.dtype, before->out[k].view.shape);
    memcpy(part->in[i].view.data, before->out[k].view.data, part->in[i].bytes);
    return i;
}

static void begin(struct op_case *part, const struct parts *p)
{
    *part = *p->c;
    memset(part->in, 0, sizeof part->in);
    memset(part->out, 0, sizeof part->out);
}

/* ---- comparing ---- */

static bool same_number(const struct sw_view *a, int64_t i, const struct sw_view *b, int64_t j)
{
    const size_t width = sw_dtype_bytes(a->dtype);
    return memcmp((char *)a->data + (size_t)i * width, (char *)b->data + (size_t)j * width,
                  width) == 0 ||
           (sw_dtype_is_float(a->dtype) && isnan(sw_load_f64(a->dtype, a->data, i)) &&
            isnan(sw_load_f64(b->dtype, b->data, j)));
}

/* Nothing reads the statistics of a row without a label. */
static bool is_read(const struct parts *p, int i_out, int64_t offset)
{
    return p->c->op.kind != SW_OP_LINEAR_CE || i_out != 2 || p->c->labels[offset] != -100;
}

/* Output i of part t is a part of the whole; t < 0 = all of it. */
static void check_bits(const struct parts *p, const struct op_case *have, int i, int t)
{
    const struct sw_view *x = &have->out[i].view, *all = &p->whole->out[i].view;
    const int k = p->c->op.n_in + i;
    for (int64_t e = 0; e < sw_shape_elems(&x->shape); e++) {
        const int64_t offset = offset_in_whole(p, k, t, &x->shape, all, e);
        if (is_read(p, i, offset) && !same_number(x, e, all, offset)) {
            fail_at(p, k, "has other bits than the whole");
        }
    }
}

/* A part has written only its elements of output i. */
static void check_written(const struct parts *p, const struct op_case *have, int i, int t)
{
    int64_t n;
    const int64_t from =
        sw_cut_run(&p->cut, p->cut.operand, 0, p->first[t], p->first[t + 1] - p->first[t], &n);
    for (int64_t e = from; e < from + n; e++) {
        if (!same_number(&have->out[i].view, e, &p->whole->out[i].view, e)) {
            fail_at(p, p->c->op.n_in + i, "has other bits in the elements of a part");
        }
    }
}

/* Parts of sums are rounded, and may cancel each other: the tolerance is that of the sizes. */
static void check_sum(const struct parts *p, const struct op_case *have, int i)
{
    const struct sw_view *all = &p->whole->out[i].view;
    double worst = 0, size = 0;
    for (int64_t e = 0; e < sw_shape_elems(&all->shape); e++) {
        double sum = 0, sizes = 0;
        for (int t = 0; t < p->n; t++) {
            const double x = sw_load_f64(all->dtype, have[t].out[i].view.data, e);
            sum += x;
            sizes += fabs(x);
        }
        const double want = sw_load_f64(all->dtype, all->data, e);
        if (isnan(want)) { /* the row of an id that is in no part */
            continue;
        }
        worst = isnan(sum) ? INFINITY : fmax(worst, fabs(sum - want));
        size = fmax(size, sizes);
    }
    if (!(worst <= size * case_tolerance(p->c, i))) {
        fail_at(p, p->c->op.n_in + i, "is not the sum of the parts");
    }
}

/* ---- parts that run apart ---- */

static void check_apart(const struct parts *p)
{
    struct op_case part[MOST_PARTS], have[MOST_PARTS];
    const struct sw_op *op = &p->c->op;
    for (int t = 0; t < p->n; t++) {
        begin(&part[t], p);
        sw_op_take_part(p->desc, &part[t].op, &p->cut, p->first[t], p->first[t + 1] - p->first[t]);
        const int n_in = part[t].op.n_in;
        part[t].op.n_in = part[t].op.n_out = 0;
        for (int k = 0; k < n_in; k++) {
            add_input(&part[t], p, k, effect_on(p, k)->effect == SW_CUT_ALIKE ? t : -1);
        }
        for (int i = 0; i < op->n_out; i++) {
            const struct sw_view *whole = &p->c->out[i].view;
            const bool alike = effect_on(p, op->n_in + i)->effect == SW_CUT_ALIKE;
            if (whole->shape.rank < 0) {
                case_out_absent(&part[t]);
            } else if (p->c->out[i].alias >= 0) {
                case_out_in_place(&part[t], p->c->out[i].alias);
            } else {
                case_out(&part[t], whole->dtype,
                         alike ? shape_of_part(p, op->n_in + i, t, whole->shape) : whole->shape);
            }
        }
        run(p->dev, &part[t], &have[t]);
        for (int i = 0; i < op->n_out; i++) {
            const enum sw_cut_effect effect = effect_on(p, op->n_in + i)->effect;
            if (p->c->out[i].view.shape.rank >= 0 && effect == SW_CUT_WRITTEN) {
                check_written(p, &have[t], i, t);
            } else if (p->c->out[i].view.shape.rank >= 0 && effect != SW_CUT_ADDED) {
                check_bits(p, &have[t], i, effect == SW_CUT_ALIKE ? t : -1);
            }
        }
    }
    for (int i = 0; i < op->n_out; i++) {
        if (p->c->out[i].view.shape.rank >= 0 &&
            effect_on(p, op->n_in + i)->effect == SW_CUT_ADDED) {
            check_sum(p, have, i);
        }
    }
    for (int t = 0; t < p->n; t++) {
        case_fini(&part[t]);
        case_fini(&have[t]);
    }
}

/* ---- parts that run in turn ---- */

/* Adds output i of part t, and if it continues one of the part before, that as an input. */
static void add_output_in_turn(struct op_case *part, const struct parts *p, int i, int t,
                               const struct op_case *before)
{
    const struct sw_view *whole = &p->c->out[i].view;
    const int k = p->c->op.n_in + i;
    const enum sw_cut_effect effect = effect_on(p, k)->effect;
    const bool sums = p->cut.turns == SW_TURNS_SUM;
    const bool own = effect == SW_CUT_ALIKE && (sums || p->cut.tiled == k);
    if (whole->shape.rank < 0) {
        case_out_absent(part);
    } else if (own) {
        case_out(part, whole->dtype, shape_of_part(p, k, t, whole->shape));
    } else if (sums && i == 0) {
        const int sum = before ? add_output_as_input(part, before, i) : -1;
        if (t == p->n - 1) {
            case_out(part, whole->dtype, whole->shape);
        } else if (before) {
            case_out_in_place(part, sum);
        } else {
            case_out(part, SW_F32, p->cut.partial);
        }
    } else if (before && (!sums || effect == SW_CUT_WRITTEN)) {
        case_out_in_place(part, add_output_as_input(part, before, i));
    } else {
        case_out(part, whole->dtype, whole->shape);
    }
}

static void check_in_turn(const struct parts *p)
{
    struct op_case part, have[MOST_PARTS];
    const bool sums = p->cut.turns == SW_TURNS_SUM;
    for (int t = 0; t < p->n; t++) {
        int64_t n;
        begin(&part, p);
        struct sw_tile_attrs *tile = sw_op_tile(&part.op);
        tile->first = sw_cut_run(&p->cut, p->cut.tiled, 0, p->first[t], 0, &n);
        tile->continues = t > 0 && p->cut.tiled < p->c->op.n_in;
        if (sums && t < p->n - 1) {
            sw_op_make_partial(&part.op, &p->cut);
        }
        const int n_in = part.op.n_in, n_out = part.op.n_out;
        part.op.n_in = part.op.n_out = 0;
        for (int k = 0; k < n_in; k++) {
            add_input(&part, p, k, k == p->cut.tiled ? t : -1);
        }
        for (int i = 0; i < n_out; i++) {
            add_output_in_turn(&part, p, i, t, t > 0 ? &have[t - 1] : NULL);
        }
        run(p->dev, &part, &have[t]);
        for (int i = 0; i < n_out; i++) {
            const struct sw_shape *made = &part.out[i].view.shape;
            const bool own = made->rank >= 0 && (i > 0 || !sums) &&
                             !sw_shape_equal(made, &p->c->out[i].view.shape);
            if (made->rank >= 0 && (own || t == p->n - 1)) {
                check_bits(p, &have[t], i, own ? t : -1);
            }
        }
        case_fini(&part);
    }
    for (int t = 0; t < p->n; t++) {
        case_fini(&have[t]);
    }
}

/* ---- all cases ---- */

static void describe(const struct op_case *c, struct sw_op_desc *desc)
{
    *desc = (struct sw_op_desc){.op = &c->op};
    for (int k = 0; k < c->op.n_in; k++) {
        desc->in[k] = c->in[k].view;
    }
    for (int k = 0; k < c->op.n_out; k++) {
        desc->out[k] = c->out[k].view;
    }
}

/* Two parts of equal sizes, or three of different ones. */
static void choose_parts(struct parts *p)
{
    const int64_t n = p->cut.n;
    p->n = n < MOST_PARTS ? (int)n : MOST_PARTS;
    for (int t = 0; t <= p->n; t++) {
        p->first[t] = t == p->n ? n : t == 2 ? 1 + sw_max_i64(1, n / 2) : t;
    }
}

static void check_parts(struct parts *p, bool apart)
{
    choose_parts(p);
    assert_true(p->cut.apart || p->cut.turns != SW_TURNS_NONE);
    if (p->cut.apart && apart) {
        check_apart(p);
    }
    if (p->cut.turns != SW_TURNS_NONE) {
        check_in_turn(p);
    }
}

/* apart: checks parts that run apart, too. Returns the number of dimensions that were cut. */
static int check_case(struct sw_device *dev, const struct op_case *c, bool apart)
{
    struct op_case whole = {.name = ""};
    struct sw_op_desc desc;
    int n_cut = 0;
    describe(c, &desc);
    struct parts p = {.dev = dev, .c = c, .whole = &whole, .desc = &desc};
    for (int k = 0; k < c->op.n_in + c->op.n_out; k++) {
        const struct sw_view *of = k < c->op.n_in ? &desc.in[k] : &desc.out[k - c->op.n_in];
        for (int d = 0; d < of->shape.rank; d++) {
            const bool may = sw_op_cut(&desc, k, d, &p.cut) && p.cut.n > 1;
            const bool in_turn = may && p.cut.turns != SW_TURNS_NONE;
            if (!may || (!in_turn && !apart) ||
                (double)sw_op_flops(&desc) > (in_turn ? most_flops_in_turn : most_flops)) {
                continue;
            }
            if (n_cut++ == 0) {
                run(dev, c, &whole);
            }
            check_parts(&p, apart);
        }
    }
    case_fini(&whole);
    return n_cut;
}

static void parts_make_the_whole(void **state)
{
    struct sw_device **devices = *state;
    for (int kind = 0; kind < SW_N_OP_KINDS; kind++) {
        const struct sw_op_info *info = sw_op_info((enum sw_op_kind)kind);
        const bool may = info->axes || info->axes_of;
        int n_cut = 0;
        for (size_t i = 0; op_cases[kind] && may && i < SW_LEN(dtypes); i++) {
            struct op_case c;
            for (int variant = 0; op_cases[kind](&c, dtypes[i], variant); variant++) {
                n_cut += check_case(devices[REFERENCE], &c, true);
                check_case(devices[FAST], &c, false);
                case_fini(&c);
            }
            case_fini(&c);
        }
        if (op_cases[kind] && may && n_cut == 0) {
            const struct sw_op op = {.kind = (enum sw_op_kind)kind};
            fail_msg("%s: no case has a dimension that can be cut", sw_op_name(&op));
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parts_make_the_whole),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
