// SPDX-License-Identifier: Apache-2.0
// The oracle itself: the reference kernels against the definitions of their ops. Gradients are
// checked against finite differences in double, updates against the textbook's form, and properties
// against the contract.
#include "device/tests/op_cases.h"
#include "support/test.h"

static int set_up(void **state)
{
    const struct sw_cpu_options options = {.n_threads = 2, .reference = true};
    assert_int_equal(sw_device_open_cpu(&options, (struct sw_device **)state), SW_OK);
    return 0;
}

static int tear_down(void **state)
{
    sw_device_close(*state);
    return 0;
}

static void run(struct sw_device *dev, const struct op_case *c, struct op_case *result)
{
    if (case_run(dev, c, result) < 0) {
        fail_msg("%s: %s", c->name, sw_error_message());
    }
}

static double at(const struct case_tensor *t, int64_t i)
{
    return sw_load_f64(t->view.dtype, t->view.data, i);
}

static int64_t n_elems(const struct case_tensor *t)
{
    return sw_shape_elems(&t->view.shape);
}

static void near(const char *name, double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance * (1 + fabs(b)))) {
        fail_msg("%s: got %.17g, want %.17g", name, a, b);
    }
}

/* Adds an input with the bytes of an output. */
static void in_from_output(struct op_case *c, const struct case_tensor *from)
{
    const int i = case_in_zero(c, from->view.dtype, from->view.shape);
    memcpy(c->in[i].view.data, from->view.data, from->bytes);
}

static void in_from_input(struct op_case *c, const struct case_tensor *from)
{
    struct case_tensor *t = &c->in[c->op.n_in++];
    *t = *from;
    t->view.data = sw_alloc("test", from->bytes);
    assert_non_null(t->view.data);
    memcpy(t->view.data, from->view.data, from->bytes);
}

/* ---- products ---- */

static void test_matmul_is_its_definition(void **state)
{
    for (int variant = 0; variant < 4; variant++) {
        struct op_case c, r;
        assert_true(op_cases[SW_OP_MATMUL](&c, SW_F64, variant));
        run(*state, &c, &r);
        const int64_t m = 7, k = 13, n = 5;
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) {
                double sum = c.op.attrs.matmul.has_bias ? at(&c.in[2], j) : 0;
                for (int64_t q = 0; q < k; q++) {
                    sum += at(&c.in[0], c.op.attrs.matmul.ta ? q * m + i : i * k + q) *
                           at(&c.in[1], c.op.attrs.matmul.tb ? j * k + q : q * n + j);
                }
                near(c.name, at(&r.out[0], i * n + j), sum, 1e-13);
            }
        }
        case_fini(&c);
        case_fini(&r);
    }
}

/* ---- gradients: d/dx of sum_i seed_i out0_i, by central differences ---- */

static double weighted_output(struct sw_device *dev, const struct op_case *c, const double *seed)
{
    struct op_case r;
    double sum = 0;
    run(dev, c, &r);
    for (int64_t i = 0; i < n_elems(&r.out[0]); i++) {
        sum += seed[i] * at(&r.out[0], i);
    }
    case_fini(&r);
    return sum;
}

/* Storage offset of row-major element i of a (possibly strided) view. */
static int64_t storage_index(const struct sw_view *view, int64_t i)
{
    int64_t place = 0;
    for (int d = view->shape.rank - 1; d >= 0; d--) {
        place += i % view->shape.dims[d] * view->strides[d];
        i /= view->shape.dims[d];
    }
    return place;
}

static void check_gradient(struct sw_device *dev, struct op_case *c, int i_in, const double *seed,
                           const struct case_tensor *gradient)
{
    double *x = c->in[i_in].view.data;
    const double step = 1e-5;
    for (int64_t i = 0; i < n_elems(&c->in[i_in]); i++) {
        const int64_t e = storage_index(&c->in[i_in].view, i);
        const double old = x[e];
        x[e] = old + step;
        const double above = weighted_output(dev, c, seed);
        x[e] = old - step;
        const double below = weighted_output(dev, c, seed);
        x[e] = old;
        near(c->name, at(gradient, i), (above - below) / (2 * step), 2e-8);
    }
}

static double *copy_seed(const struct case_tensor *dy)
{
    double *seed = sw_alloc("test", dy->bytes);
    assert_non_null(seed);
    memcpy(seed, dy->view.data, dy->bytes);
    return seed;
}

/* Values that PyTorch 2.15 gives for some numbers in double. */
static void test_act_values(void **state)
{
    static const double x[] = {-4, -1.5, -0.1, 0.7, 2.5, 7, 12};
    static const struct {
        enum sw_act act;
        double want[7];
    } rows[] = {
        {SW_ACT_GELU_10,
         {-0.00012668496733248, -0.100210801903287, -0.0460172162722971, 0.530625443443849,
          2.48447583668556, 6.99999999999104, 10}},
        {SW_ACT_RELU6, {0, 0, 0, 0.7, 2.5, 6, 6}},
        {SW_ACT_RELU2, {0, 0, 0, 0.49, 6.25, 49, 144}},
        {SW_ACT_LEAKY_RELU, {-0.04, -0.015, -0.001, 0.7, 2.5, 7, 12}},
        {SW_ACT_HARDSWISH,
         {0, -0.375, -0.0483333333333333, 0.431666666666667, 2.29166666666667, 7, 12}},
        {SW_ACT_MISH,
         {-0.0725917407920253, -0.298099742166807, -0.0567885752128447, 0.561148377643852,
          2.47139230455788, 6.99998837980974, 11.999999999094}},
        {SW_ACT_LAPLACE,
         {0, 2.55351295663786e-15, 0.00211075142418554, 0.489950254770629, 0.999999999896217, 1,
          1}},
    };
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct op_case c, r;
        case_init(&c, SW_OP_ACT, "act %d", (int)rows[i].act);
        c.op.attrs.act.act = rows[i].act;
        case_in_zero(&c, SW_F64, SW_SHAPE(7));
        memcpy(c.in[0].view.data, x, sizeof x);
        case_out(&c, SW_F64, SW_SHAPE(7));
        run(*state, &c, &r);
        for (int k = 0; k < 7; k++) {
            near(c.name, at(&r.out[0], k), rows[i].want[k], 1e-14);
        }
        case_fini(&c);
        case_fini(&r);
    }
}

static void test_act_gradients(void **state)
{
    for (int act = SW_ACT_GELU; act < SW_ACT_COUNT; act++) {
        struct op_case c, g, r;
        case_init(&c, SW_OP_ACT, "act %d", act);
        c.op.attrs.act.act = (enum sw_act)act;
        case_in(&c, SW_F64, SW_SHAPE(11), -3, 3);
        case_out(&c, SW_F64, SW_SHAPE(11));
        case_init(&g, SW_OP_ACT_GRAD, "act grad %d", act);
        g.op.attrs.act.act = (enum sw_act)act;
        in_from_input(&g, &c.in[0]);
        case_in(&g, SW_F64, SW_SHAPE(11), -1, 1);
        case_out(&g, SW_F64, SW_SHAPE(11));
        double *seed = copy_seed(&g.in[1]);
        run(*state, &g, &r);
        check_gradient(*state, &c, 0, seed, &r.out[0]);
        sw_free(seed);
        case_fini(&c);
        case_fini(&g);
        case_fini(&r);
    }
}

static void test_layer_norm_gradient(void **state)
{
    struct op_case c, f, g, r;
    assert_true(op_cases[SW_OP_LAYER_NORM](&c, SW_F64, 2)); /* 3 x 7 */
    run(*state, &c, &f);
    case_init(&g, SW_OP_LAYER_NORM_GRAD, "layer_norm_grad");
    case_in(&g, SW_F64, c.out[0].view.shape, -1, 1);
    in_from_input(&g, &c.in[0]);
    in_from_input(&g, &c.in[1]);
    in_from_output(&g, &f.out[1]);
    in_from_output(&g, &f.out[2]);
    for (int i = 0; i < 3; i++) {
        case_out(&g, SW_F64, c.in[i].view.shape);
    }
    double *seed = copy_seed(&g.in[0]);
    run(*state, &g, &r);
    for (int i = 0; i < 3; i++) {
        check_gradient(*state, &c, i, seed, &r.out[i]);
    }
    sw_free(seed);
    case_fini(&c);
    case_fini(&f);
    case_fini(&g);
    case_fini(&r);
}

/* ---- attention ---- */

/* Element d of (b, token, head) of query (0), key (1), value (2). */
static double head_at(const struct op_case *c, int which, int64_t b, int64_t t, int64_t head,
                      int64_t d)
{
    const struct sw_attention_attrs *a = &c->op.attrs.attention;
    const int64_t width = sw_attention_width(a, &c->in[0].view.shape);
    const int64_t before = !a->packed || which == 0 ? 0 : a->heads + (which - 1) * a->kv_heads;
    const struct case_tensor *x = &c->in[a->packed ? 0 : which];
    const int64_t tokens = x->view.shape.dims[1], elems = n_elems(x) / x->view.shape.dims[0];
    const int64_t i = b * elems + t * (elems / tokens) + (before + head) * width + d;
    return at(x, storage_index(&x->view, i));
}

/* To 8 bits, ties to even. */
static double nearest_bf16(double x)
{
    int exponent;
    const double fraction = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

/* The scores of a query, -inf for keys it does not see, by textbook formulas. */
static void scores_of(const struct op_case *c, int64_t b, int64_t head, int64_t i, double *scores)
{
    const struct sw_attention_attrs *a = &c->op.attrs.attention;
    const int64_t n = c->in[a->packed ? 0 : 1].view.shape.dims[1];
    const int64_t width = sw_attention_width(a, &c->in[0].view.shape);
    int k = a->packed ? 1 : 3;
    const int32_t *mask = a->has_mask ? (const int32_t *)c->in[k++].view.data + b * n : NULL;
    const int64_t query = i + (a->has_position ? *(const int32_t *)c->in[k++].view.data : 0);
    const float *slopes = a->has_slopes ? c->in[k++].view.data : NULL;
    const int32_t *segments = a->has_segments ? (const int32_t *)c->in[k].view.data + b * n : NULL;
    for (int64_t j = 0, real = 0; j < n; j++) {
        double s = 0;
        for (int64_t d = 0; d < width; d++) {
            s += head_at(c, 0, b, i, head, d) *
                 head_at(c, 1, b, j, head / (a->heads / a->kv_heads), d);
        }
        s *= a->scale;
        s = a->cap > 0 ? a->cap * tanh(s / a->cap) : s;
        real += !mask || mask[j] == 1;
        s += !slopes          ? 0
             : a->bf16_slopes ? nearest_bf16(slopes[head] * nearest_bf16(real - 1)) * a->scale
                              : slopes[head] * (double)(real - 1);
        const bool hidden = (a->causal && j > query) || (a->window && j <= query - a->window) ||
                            (mask && mask[j] == 0) || (segments && segments[j] != segments[query]);
        scores[j] = hidden ? -INFINITY : s;
    }
}

static void check_definition(const struct op_case *c, const struct op_case *r, int64_t b,
                             int64_t head, int64_t i)
{
    const struct sw_attention_attrs *a = &c->op.attrs.attention;
    const int64_t n = c->in[a->packed ? 0 : 1].view.shape.dims[1];
    const struct sw_shape *o = &r->out[0].view.shape;
    const int64_t width = o->dims[2] / a->heads;
    double scores[64], sum = 0;
    assert_true(n <= (int64_t)SW_LEN(scores));
    scores_of(c, b, head, i, scores);
    for (int64_t j = 0; j < n; j++) {
        sum += exp(scores[j]);
    }
    near(c->name, at(&r->out[1], (b * a->heads + head) * o->dims[1] + i), log(sum), 1e-13);
    for (int64_t d = 0; d < width; d++) {
        double want = 0;
        for (int64_t j = 0; j < n; j++) {
            want += exp(scores[j]) / sum * head_at(c, 2, b, j, head / (a->heads / a->kv_heads), d);
        }
        near(c->name, at(&r->out[0], ((b * o->dims[1] + i) * a->heads + head) * width + d), want,
             1e-13);
    }
}

/* All cases but those with dropout and those in which a query sees nothing. */
static void test_attention_is_its_definition(void **state)
{
    static const int variants[] = {0, 5, 6, 7, 10, 11, 12, 13, 18, 32};
    for (size_t v = 0; v < SW_LEN(variants); v++) {
        struct op_case c, r;
        assert_true(op_cases[SW_OP_ATTENTION](&c, SW_F64, variants[v]));
        c.op.attrs.attention.dropout = 0;
        run(*state, &c, &r);
        const struct sw_shape o = r.out[0].view.shape;
        for (int64_t row = 0; row < o.dims[0] * c.op.attrs.attention.heads * o.dims[1]; row++) {
            const int64_t i = row % o.dims[1], of = row / o.dims[1];
            const int64_t heads = c.op.attrs.attention.heads;
            if (at(&r.out[1], row) > -INFINITY) {
                check_definition(&c, &r, of / heads, of % heads, i);
            }
        }
        case_fini(&c);
        case_fini(&r);
    }
}

/* T tokens from `first` on of a longer row: two heads, one key head, all of width 3. */
static void a_document(struct op_case *c, const struct op_case *whole, int64_t first, int64_t n)
{
    case_init(c, SW_OP_ATTENTION, "attention of a document");
    c->op.attrs = whole->op.attrs;
    c->op.attrs.attention.has_segments = false;
    const int qkv = case_in_zero(c, SW_F64, SW_SHAPE(1, n, 12));
    memcpy(c->in[qkv].view.data, (const double *)whole->in[0].view.data + first * 12,
           (size_t)(n * 12) * sizeof(double));
    in_from_input(c, &whole->in[1]);
    case_out(c, SW_F64, SW_SHAPE(1, n, 6));
    case_out(c, SW_F64, SW_SHAPE(1, 2, n));
}

/* Documents that share a row give the same results as alone: starting at later positions shifts all
 * scores of a query equally. */
static void test_segments_are_documents_alone(void **state)
{
    enum { FIRST = 4, SECOND = 5, T = FIRST + SECOND };
    struct op_case c, r;
    case_init(&c, SW_OP_ATTENTION, "attention of two documents");
    c.op.attrs.attention = (struct sw_attention_attrs){.packed = true,
                                                       .causal = true,
                                                       .heads = 2,
                                                       .kv_heads = 1,
                                                       .window = 3,
                                                       .scale = 0.7,
                                                       .has_slopes = true,
                                                       .has_segments = true};
    case_in(&c, SW_F64, SW_SHAPE(1, T, 12), -1, 1);
    case_in(&c, SW_F32, SW_SHAPE(2), 0.1, 0.5);
    case_in_i32(&c, T, (int32_t[T]){7, 7, 7, 7, -1, -1, -1, -1, -1});
    case_out(&c, SW_F64, SW_SHAPE(1, T, 6));
    case_out(&c, SW_F64, SW_SHAPE(1, 2, T));
    run(*state, &c, &r);
    for (int64_t first = 0; first <= FIRST; first += FIRST) {
        struct op_case alone, ra;
        const int64_t n = first == 0 ? FIRST : SECOND;
        a_document(&alone, &c, first, n);
        run(*state, &alone, &ra);
        for (int64_t e = 0; e < n * 6; e++) {
            near(c.name, at(&r.out[0], first * 6 + e), at(&ra.out[0], e), 1e-13);
        }
        case_fini(&alone);
        case_fini(&ra);
    }
    case_fini(&c);
    case_fini(&r);
}

/* Variants of op_cases' attention that are small enough: packed; grouped heads, mask and dropout;
 * separate keys; a position; then caps, slopes, segments, windows and strided heads together. */
static void test_attention_gradient(void **state)
{
    static const int variants[] = {0, 4, 5, 7, 10, 11, 12, 13, 32};
    for (size_t v = 0; v < SW_LEN(variants); v++) {
        struct op_case c, f, g, r;
        assert_true(op_cases[SW_OP_ATTENTION](&c, SW_F64, variants[v]));
        run(*state, &c, &f);
        case_init(&g, SW_OP_ATTENTION_GRAD, "attention_grad %d", variants[v]);
        const struct sw_attrs attrs = c.op.attrs;
        g.op.attrs = attrs;
        case_in(&g, SW_F64, c.out[0].view.shape, -1, 1);
        in_from_output(&g, &f.out[0]);
        in_from_output(&g, &f.out[1]);
        for (int i = 0; i < c.op.n_in; i++) {
            in_from_input(&g, &c.in[i]);
        }
        const int n_grads = attrs.attention.packed ? 1 : 3;
        for (int i = 0; i < n_grads; i++) {
            case_out(&g, SW_F64, c.in[i].view.shape);
        }
        double *seed = copy_seed(&g.in[0]);
        run(*state, &g, &r);
        for (int i = 0; i < n_grads; i++) {
            check_gradient(*state, &c, i, seed, &r.out[i]);
        }
        sw_free(seed);
        case_fini(&c);
        case_fini(&f);
        case_fini(&g);
        case_fini(&r);
    }
}

static void test_a_query_without_keys_gives_zero(void **state)
{
    struct op_case c, r;
    assert_true(op_cases[SW_OP_ATTENTION](&c, SW_F32, 4)); /* left padding b + 1 long, causal */
    c.op.attrs.attention.dropout = 0;
    run(*state, &c, &r);
    const int64_t heads = c.op.attrs.attention.heads, tokens = c.in[0].view.shape.dims[1];
    const int64_t width = c.out[0].view.shape.dims[2];
    for (int64_t i = 0; i < 3; i++) { /* in sample 1 two queries see nothing */
        for (int64_t e = 0; e < width; e++) {
            assert_int_equal(at(&r.out[0], (tokens + i) * width + e) == 0, i < 2);
        }
        for (int64_t h = 0; h < heads; h++) {
            const double lse = at(&r.out[1], (heads + h) * tokens + i);
            assert_int_equal(lse == -INFINITY, i < 2);
        }
    }
    case_fini(&c);
    case_fini(&r);
}

/* ---- losses ---- */

static void test_cross_entropy_gradient(void **state)
{
    struct op_case c, f, g, r;
    assert_true(op_cases[SW_OP_CROSS_ENTROPY](&c, SW_F64, 1));
    run(*state, &c, &f);
    case_init(&g, SW_OP_CROSS_ENTROPY_GRAD, "cross_entropy_grad");
    const int dsum = case_in(&g, SW_F64, SW_SHAPE(1), 0.5, 1);
    in_from_input(&g, &c.in[0]);
    in_from_input(&g, &c.in[1]);
    in_from_output(&g, &f.out[2]);
    case_out(&g, SW_F64, c.in[0].view.shape);
    run(*state, &g, &r);
    check_gradient(*state, &c, 0, g.in[dsum].view.data, &r.out[0]);
    assert_true(at(&f.out[1], 0) == 4); /* one of five rows is ignored */
    case_fini(&c);
    case_fini(&f);
    case_fini(&g);
    case_fini(&r);
}

static void test_linear_ce_is_product_and_loss(void **state)
{
    struct op_case c, f, product, logits, loss, r;
    assert_true(op_cases[SW_OP_LINEAR_CE](&c, SW_F64, 2));
    run(*state, &c, &f);
    case_init(&product, SW_OP_MATMUL, "logits");
    product.op.attrs.matmul.tb = true;
    in_from_input(&product, &c.in[0]);
    in_from_input(&product, &c.in[1]);
    const int64_t rows = n_elems(&c.in[2]), vocab = c.in[1].view.shape.dims[0];
    case_out(&product, SW_F64, SW_SHAPE(rows, vocab));
    run(*state, &product, &logits);
    case_init(&loss, SW_OP_CROSS_ENTROPY, "loss");
    in_from_output(&loss, &logits.out[0]);
    in_from_input(&loss, &c.in[2]);
    case_out(&loss, SW_F64, SW_SHAPE(1));
    case_out(&loss, SW_F64, SW_SHAPE(1));
    case_out(&loss, SW_F64, SW_SHAPE(rows));
    run(*state, &loss, &r);
    for (int i = 0; i < 3; i++) {
        assert_true(case_error(&f, &r, i) < 1e-14);
    }
    case_fini(&c);
    case_fini(&f);
    case_fini(&product);
    case_fini(&logits);
    case_fini(&loss);
    case_fini(&r);
}

static void test_linear_ce_gradient(void **state)
{
    struct op_case c, f, g, r;
    assert_true(op_cases[SW_OP_LINEAR_CE](&c, SW_F64, 0));
    run(*state, &c, &f);
    case_init(&g, SW_OP_LINEAR_CE_GRAD, "linear_ce_grad");
    g.op.attrs.linear_ce.chunk = 2;
    const int dsum = case_in(&g, SW_F64, SW_SHAPE(1), 0.5, 1);
    for (int i = 0; i < 3; i++) {
        in_from_input(&g, &c.in[i]);
    }
    in_from_output(&g, &f.out[2]);
    case_out(&g, SW_F64, c.in[0].view.shape);
    case_out(&g, SW_F64, c.in[1].view.shape);
    run(*state, &g, &r);
    check_gradient(*state, &c, 0, g.in[dsum].view.data, &r.out[0]);
    check_gradient(*state, &c, 1, g.in[dsum].view.data, &r.out[1]);
    case_fini(&c);
    case_fini(&f);
    case_fini(&g);
    case_fini(&r);
}

/* ---- randomness ---- */

/* Two samples as micro-batch 2 and 3, or four as micro-batch 1: the same global samples give the
 * same draw. */
static void test_dropout_names_global_samples(void **state)
{
    struct op_case whole, all, part, r;
    const int64_t width = 37;
    case_init(&whole, SW_OP_DROPOUT, "dropout");
    whole.op.attrs.dropout.p = 0.3;
    whole.scalars[SW_SCALAR_MICRO] = 1;
    case_in(&whole, SW_F32, SW_SHAPE(4, width), 1, 2);
    case_out(&whole, SW_F32, SW_SHAPE(4, width));
    run(*state, &whole, &all);
    int64_t kept = 0;
    for (int64_t i = 0; i < 4 * width; i++) {
        const double x = at(&whole.in[0], i), y = at(&all.out[0], i);
        kept += y != 0;
        near("dropout", y, y != 0 ? x / 0.7 : 0, 1e-6);
    }
    assert_in_range(kept, 80, 130); /* 104 expected of 148 */
    for (int half = 0; half < 2; half++) {
        case_init(&part, SW_OP_DROPOUT, "dropout");
        part.op.attrs.dropout.p = 0.3;
        part.scalars[SW_SCALAR_MICRO] = 2 + half;
        case_in(&part, SW_F32, SW_SHAPE(2, width), 1, 2);
        const size_t bytes = part.in[0].bytes;
        memcpy(part.in[0].view.data, (char *)whole.in[0].view.data + (size_t)half * bytes, bytes);
        case_out(&part, SW_F32, SW_SHAPE(2, width));
        run(*state, &part, &r);
        assert_memory_equal(r.out[0].view.data, (char *)all.out[0].view.data + (size_t)half * bytes,
                            bytes);
        case_fini(&part);
        case_fini(&r);
    }
    case_fini(&whole);
    case_fini(&all);
}

/* If another rank counts the last elements, they add nothing. */
static void test_grad_stats_of_counted_elements(void **state)
{
    struct op_case all, some, r, q;
    assert_true(op_cases[SW_OP_GRAD_STATS](&all, SW_F32, 9));
    assert_true(op_cases[SW_OP_GRAD_STATS](&some, SW_F32, 9));
    const int64_t counted = all.op.attrs.stats.counted;
    all.op.attrs.stats.counted = 0;
    for (int64_t e = counted; e < n_elems(&all.in[1]); e++) {
        assert_true(at(&all.in[1], e) != 0);
        sw_store_f64(SW_F32, all.in[1].view.data, e, 0);
    }
    run(*state, &all, &r);
    run(*state, &some, &q);
    assert_memory_equal(r.out[0].view.data, q.out[0].view.data, SW_STATS_WORDS * sizeof(int64_t));
    case_fini(&all);
    case_fini(&some);
    case_fini(&r);
    case_fini(&q);
}

/* The sum of squares equals the whole's, and cutting between two runs changes no bit. */
static void test_grad_stats_of_shards(void **state)
{
    struct op_case whole, all, part, r;
    const int64_t n = 1300, cut = 56 * SW_SQUARES_RUN + SW_SQUARES_RUN;
    case_init(&whole, SW_OP_GRAD_STATS, "stats");
    case_in_zero(&whole, SW_I64, SW_SHAPE(SW_STATS_WORDS));
    case_in(&whole, SW_F32, SW_SHAPE(n), -1, 1);
    case_out_in_place(&whole, 0);
    run(*state, &whole, &all);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += at(&whole.in[1], i) * at(&whole.in[1], i);
    }
    near("sum of squares", sw_exact_value(all.out[0].view.data), sum, 1e-13);
    int64_t merged[SW_STATS_WORDS] = {0};
    for (int half = 0; half < 2; half++) {
        const int64_t start = half ? cut : 0, len = half ? n - cut : cut;
        case_init(&part, SW_OP_GRAD_STATS, "stats");
        case_in_zero(&part, SW_I64, SW_SHAPE(SW_STATS_WORDS));
        case_in(&part, SW_F32, SW_SHAPE(len), -1, 1);
        memcpy(part.in[1].view.data, (float *)whole.in[1].view.data + start, part.in[1].bytes);
        case_out_in_place(&part, 0);
        run(*state, &part, &r);
        sw_exact_merge(merged, r.out[0].view.data);
        case_fini(&part);
        case_fini(&r);
    }
    assert_true(sw_exact_value(merged) == sw_exact_value(all.out[0].view.data));
    case_fini(&whole);
    case_fini(&all);
}

static void test_stats_finish(void **state)
{
    struct op_case c, r;
    const double norm = 7 * 0.3;
    assert_true(op_cases[SW_OP_STATS_FINISH](&c, SW_F32, 1)); /* clip at 0.5 */
    run(*state, &c, &r);
    near("norm", r.scalars[SW_SCALAR_NORM], norm, 1e-15);
    near("clip", r.scalars[SW_SCALAR_CLIP], 0.5 / (norm + 1e-6), 1e-15);
    assert_true(r.scalars[SW_SCALAR_SKIP] == 0);
    case_fini(&c);
    case_fini(&r);
    assert_true(op_cases[SW_OP_STATS_FINISH](&c, SW_F32, 3)); /* fp16, an element overflows */
    run(*state, &c, &r);
    assert_true(isinf(r.scalars[SW_SCALAR_NORM]) && r.scalars[SW_SCALAR_SKIP] == 1);
    case_fini(&c);
    case_fini(&r);
}

/* Rows ascend, then -1; each is the sum of its tokens' gradients. */
static void test_embedding_grad_sums_by_id(void **state)
{
    struct op_case c, r;
    assert_true(op_cases[SW_OP_EMBEDDING_GRAD](&c, SW_F64, 2)); /* id 4 is padding */
    run(*state, &c, &r);
    const int64_t tokens = n_elems(&c.in[1]), width = c.out[0].view.shape.dims[1];
    const int32_t *ids = c.in[1].view.data, *index = r.out[1].view.data;
    int64_t row = 0;
    for (int32_t id = 0; id < 9; id++) {
        double sum = 0;
        int64_t uses = 0;
        for (int64_t t = 0; t < tokens; t++) {
            sum += ids[t] == id ? at(&c.in[0], t * width) : 0;
            uses += ids[t] == id;
        }
        if (uses > 0 && id != 4) {
            assert_int_equal(index[row], id);
            near(c.name, at(&r.out[0], row * width), sum, 1e-14);
            row++;
        }
    }
    for (; row < tokens; row++) {
        assert_int_equal(index[row], -1);
        assert_true(at(&r.out[0], row * width) == 0);
    }
    case_fini(&c);
    case_fini(&r);
}

/* Adam as in Kingma and Ba (decay as in Loshchilov and Hutter), one dense stream, in double. */
static void check_adam(struct sw_device *dev, enum sw_dtype dtype, double tolerance)
{
    struct op_case c, r;
    assert_true(op_cases[SW_OP_UPDATE](&c, dtype, 0));
    run(dev, &c, &r);
    const double *s = c.scalars;
    const int first_moment = dtype == SW_BF16 || dtype == SW_F16 ? 2 : 1;
    for (int64_t e = 0; e < n_elems(&c.in[0]); e++) {
        double w = at(&c.in[0], e), got = at(&r.out[0], e);
        if (dtype == SW_BF16) {
            w = sw_master_join(((uint16_t *)c.in[0].view.data)[e],
                               ((int16_t *)c.in[1].view.data)[e]);
            got = sw_master_join(((uint16_t *)r.out[0].view.data)[e],
                                 ((int16_t *)r.out[1].view.data)[e]);
        } else if (dtype == SW_F16) {
            w = at(&c.in[1], e);
            got = at(&r.out[1], e);
            assert_true(at(&r.out[0], e) == sw_f16_to_f32(sw_f32_to_f16((float)got)));
        }
        const double g = at(&c.in[c.op.n_in - 1], e) * s[SW_SCALAR_GRAD_FACTOR] * s[SW_SCALAR_CLIP];
        const double m = 0.9 * at(&c.in[first_moment], e) + 0.1 * g;
        const double v = 0.99 * at(&c.in[first_moment + 1], e) + 0.01 * g * g;
        const double m_hat = m / (1 - pow(0.9, 3)), v_hat = v / (1 - pow(0.99, 3));
        near(c.name, got, w - 0.01 * 0.1 * w - 0.01 * m_hat / (sqrt(v_hat) + 1e-8), tolerance);
        near(c.name, at(&r.out[first_moment], e), m, tolerance);
        near(c.name, at(&r.out[first_moment + 1], e), v, tolerance);
    }
    case_fini(&c);
    case_fini(&r);
}

static void test_adam(void **state)
{
    check_adam(*state, SW_F64, 1e-14);
    check_adam(*state, SW_F32, 1e-6);
    check_adam(*state, SW_BF16, 1e-6);
    check_adam(*state, SW_F16, 1e-6);
}

/* Nesterov's first step, and plain SGD. */
static void test_sgd(void **state)
{
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        struct op_case c, r;
        assert_true(op_cases[SW_OP_UPDATE](&c, SW_F64, nesterov ? 6 : 4));
        run(*state, &c, &r);
        for (int64_t e = 0; e < n_elems(&c.in[0]); e++) {
            const double w = at(&c.in[0], e);
            double g = at(&c.in[c.op.n_in - 1], e) * 0.3 * 0.7;
            if (nesterov) { /* maximize, weight decay 0.1; the momentum starts as the gradient */
                g = -g + 0.1 * w;
                near(c.name, at(&r.out[1], e), g, 1e-14);
                g = g + 0.9 * g;
            }
            near(c.name, at(&r.out[0], e), w - 0.01 * g, 1e-14);
        }
        case_fini(&c);
        case_fini(&r);
    }
}

/* The new w of a rule with one dense stream, in double; also updates its moments. */
static double moved_by(const struct sw_update_attrs *a, double w, double g, double t, double m[2])
{
    const double b1 = 0.9, b2 = 0.99, lr = 0.01;
    if (a->kind == SW_UPDATE_LION) {
        const double c = b1 * m[0] + (1 - b1) * g;
        m[0] = b2 * m[0] + (1 - b2) * g;
        return w * (1 - lr * a->weight_decay) - copysign(lr, c);
    }
    if (a->kind == SW_UPDATE_ADAGRAD) {
        g += a->weight_decay * w;
        m[0] = g * g + (t == 1 ? a->initial : m[0]);
        return w - lr / (1 + (t - 1) * a->lr_decay) * g / (sqrt(m[0]) + a->eps);
    }
    if (a->kind == SW_UPDATE_RMSPROP) {
        g = (a->maximize ? -g : g) + a->weight_decay * w;
        m[0] = a->beta2 * m[0] + (1 - a->beta2) * g * g;
        m[1] = a->beta1 * m[1] + g / (sqrt(m[0]) + a->eps);
        return w - lr * m[1];
    }
    if (g == 0) { /* SparseAdam */
        return w;
    }
    m[0] = b1 * m[0] + (1 - b1) * g;
    m[1] = b2 * m[1] + (1 - b2) * g * g;
    return w - lr * sqrt(1 - pow(b2, t)) / (1 - pow(b1, t)) * m[0] / (sqrt(m[1]) + a->eps);
}

static void test_adagrad_lion_sparse_adam_and_rmsprop(void **state)
{
    for (int variant = 11; variant < 19; variant++) {
        struct op_case c, r;
        assert_true(op_cases[SW_OP_UPDATE](&c, SW_F64, variant));
        const struct sw_update_attrs *a = &c.op.attrs.update.rule;
        const int i_grad = 1 + a->n_states;
        const bool sparse = c.in[c.op.n_in - 1].view.dtype == SW_I32;
        const int64_t width = sw_shape_last(&c.in[0].view.shape);
        int64_t n_left = 0;
        run(*state, &c, &r);
        for (int64_t e = 0; e < n_elems(&c.in[0]); e++) {
            double sum = 0, m[2] = {0};
            for (int i = i_grad; i < c.op.n_in; i += 2) {
                const int32_t *index = sparse ? c.in[c.op.n_in - 1].view.data : NULL;
                const bool is_rows = sparse && i + 2 == c.op.n_in;
                sum += is_rows ? 0 : at(&c.in[i], e);
                for (int64_t k = 0; is_rows && k < n_elems(&c.in[c.op.n_in - 1]); k++) {
                    sum += index[k] == e / width ? at(&c.in[i], k * width + e % width) : 0;
                }
                i -= !is_rows; /* a dense stream has no index after it */
            }
            for (int k = 0; k < a->n_states; k++) {
                m[k] = at(&c.in[1 + k], e);
            }
            const double w = at(&c.in[0], e);
            const double want = moved_by(a, w, sum * 0.3 * 0.7, c.scalars[SW_SCALAR_STEP], m);
            near(c.name, at(&r.out[0], e), want, 1e-14);
            for (int k = 0; k < a->n_states; k++) {
                near(c.name, at(&r.out[1 + k], e), m[k], 1e-14);
            }
            n_left += want == w;
        }
        assert_true((n_left > 0) == (a->kind == SW_UPDATE_SPARSE_ADAM));
        case_fini(&c);
        case_fini(&r);
    }
}

/* Over many steps whose fp32 moment stays constant, the bf16 moments have it as their mean. */
static void test_bf16_moments_are_right_on_average(void **state)
{
    enum { STEPS = 400, MOMENT = 1, SOME = 8 };
    double sum[SOME] = {0}, want[SOME];
    for (int t = 1; t <= STEPS; t++) {
        struct op_case c, r;
        assert_true(op_cases[SW_OP_UPDATE](&c, SW_F32, 20));
        c.scalars[SW_SCALAR_STEP] = t;
        run(*state, &c, &r);
        for (int64_t e = 0; e < SOME; e++) {
            const double g = at(&c.in[c.op.n_in - 1], e) * 0.3 * 0.7;
            want[e] = 0.7 * at(&c.in[MOMENT], e) + 0.3 * g;
            const double got = at(&r.out[MOMENT], e);
            /* one of the two nearest values */
            assert_true(fabs(got - want[e]) <= 0x1p-7 * fabs(want[e]));
            sum[e] += got;
        }
        case_fini(&c);
        case_fini(&r);
    }
    for (int64_t e = 0; e < SOME; e++) { /* within four standard deviations of the mean */
        assert_true(fabs(sum[e] / STEPS - want[e]) <= 4 * 0x1p-8 / sqrt(STEPS) * fabs(want[e]));
    }
}

static double lamb_u(const struct sw_update_attrs *a, double w, double m, double v)
{
    return m / (a->eps_inside_sqrt ? sqrt(v + a->eps) : sqrt(v) + a->eps) + a->weight_decay * w;
}

/* LAMB's norms as DeepSpeed's kernel defines them, in double: moments without correction, decay
 * within the direction, eps in either place. Padding adds nothing. */
static void test_lamb_norms(void **state)
{
    struct op_case c;
    for (int variant = 0; op_cases[SW_OP_LAMB_MOMENTS](&c, SW_F64, variant); variant++) {
        const struct sw_update_attrs *a = &c.op.attrs.update.rule;
        struct op_case r;
        double of_w = 0, of_u = 0;
        run(*state, &c, &r);
        const int64_t counted = c.op.attrs.update.n_elems - c.op.attrs.update.n_shared;
        for (int64_t e = 0; c.op.n_in == 4 && e < c.op.attrs.update.n_elems;
             e++) { /* one dense stream */
            const double w = at(&c.in[0], e), g = at(&c.in[3], e) * 0.3 * 0.7;
            const double m = 0.9 * at(&c.in[1], e) + 0.1 * g;
            const double v = 0.99 * at(&c.in[2], e) + 0.01 * g * g;
            const double u = isfinite(g) ? lamb_u(a, w, m, v) : 0;
            if (isfinite(g)) {
                near(c.name, at(&r.out[0], e), m, 1e-14);
                near(c.name, at(&r.out[1], e), v, 1e-14);
            }
            of_u += e < counted ? u * u : 0;
            of_w += e < counted ? w * w : 0;
        }
        const int64_t *norms = r.out[2].view.data;
        if (c.op.n_in == 4) {
            near(c.name, sw_exact_value(norms) / of_w, 1, 1e-13);
        }
        if (c.op.n_in == 4 && norms[SW_STATS_WORDS + SW_EXACT_WORDS] == 0) {
            near(c.name, sw_exact_value(norms + SW_STATS_WORDS) / of_u, 1, 1e-13);
        }
        case_fini(&c);
        case_fini(&r);
    }
}

/* Puts the sums of w^2 and u^2 as stats, and checks the resulting ratio. */
static void check_ratio(struct sw_device *dev, double w2, double u2, double min, double max,
                        double want)
{
    struct op_case c, r;
    assert_true(op_cases[SW_OP_LAMB_APPLY](&c, SW_F64, 1));
    struct sw_update_attrs *a = &c.op.attrs.update.rule;
    int64_t *norms = c.in[3].view.data;
    memset(norms, 0, SW_LAMB_WORDS * sizeof *norms);
    sw_exact_add(norms, w2);
    sw_exact_add(norms + SW_STATS_WORDS, u2);
    a->min_coeff = min;
    a->max_coeff = max;
    run(dev, &c, &r);
    assert_true(at(&r.out[1], 0) == want);
    const double step = 0.01 * sqrt(1 - pow(0.99, 3)) / (1 - pow(0.9, 3));
    for (int64_t e = 0; e < n_elems(&c.in[0]); e++) {
        const double w = at(&c.in[0], e), u = lamb_u(a, w, at(&c.in[1], e), at(&c.in[2], e));
        near(c.name, at(&r.out[0], e), w - step * want * u, 1e-13);
    }
    case_fini(&c);
    case_fini(&r);
}

static void test_lamb_ratio(void **state)
{
    check_ratio(*state, 9, 4, 0.01, 10, 1.5);
    check_ratio(*state, 9, 4, 0.01, 1.25, 1.25);
    check_ratio(*state, 9, 4, 1.75, 10, 1.75);
    check_ratio(*state, 0, 4, 2, 10, 1); /* exactly 1, regardless of the bounds */
    check_ratio(*state, 9, 0, 2, 10, 1);
}

/* A non-finite element makes the whole step NaN: the norm is of all elements. */
static void test_lamb_of_what_is_not_finite(void **state)
{
    struct op_case c, r;
    assert_true(op_cases[SW_OP_LAMB_MOMENTS](&c, SW_F32, 5));
    run(*state, &c, &r);
    const int64_t *norms = r.out[2].view.data;
    assert_int_equal(norms[SW_EXACT_WORDS], 0);
    assert_int_equal(norms[SW_STATS_WORDS + SW_EXACT_WORDS], 2);
    case_fini(&c);
    case_fini(&r);
    assert_true(op_cases[SW_OP_LAMB_APPLY](&c, SW_F32, 5));
    run(*state, &c, &r);
    assert_true(isnan(at(&r.out[1], 0)));
    assert_true(isnan(at(&r.out[0], 0)));
    case_fini(&c);
    case_fini(&r);
}

/* Slices of whole runs, the last one padded, add up to the norms of the tensor. */
static void test_lamb_norms_of_shards(void **state)
{
    enum { SLICE = 95 * SW_SQUARES_RUN, PADDED = 11 * SLICE };
    struct op_case whole, r;
    int64_t sum[SW_LAMB_WORDS] = {0};
    assert_true(op_cases[SW_OP_LAMB_MOMENTS](&whole, SW_F32, 0));
    const int64_t n = n_elems(&whole.in[0]);
    assert_true(n < PADDED && n > PADDED - SLICE);
    for (int64_t first = 0; first < PADDED; first += SLICE) {
        struct op_case part, q;
        const int64_t n_here = sw_min_i64(SLICE, n - first);
        case_init(&part, SW_OP_LAMB_MOMENTS, "lamb_moments of a slice");
        part.op.attrs = whole.op.attrs;
        part.op.attrs.update.n_elems = n_here;
        for (int i = 0; i < 4; i++) {
            const int k = case_in_zero(&part, SW_F32, SW_SHAPE(SLICE));
            memcpy(part.in[k].view.data, (const float *)whole.in[i].view.data + first,
                   (size_t)n_here * sizeof(float));
        }
        case_out_in_place(&part, 1);
        case_out_in_place(&part, 2);
        case_out(&part, SW_I64, SW_SHAPE(SW_LAMB_WORDS));
        run(*state, &part, &q);
        for (int w = 0; w < SW_LAMB_WORDS; w++) {
            sum[w] += ((const int64_t *)q.out[2].view.data)[w];
        }
        case_fini(&part);
        case_fini(&q);
    }
    run(*state, &whole, &r);
    sw_exact_carry(sum);
    sw_exact_carry(sum + SW_STATS_WORDS);
    assert_memory_equal(sum, r.out[2].view.data, sizeof sum);
    case_fini(&whole);
    case_fini(&r);
}

/* Slices of whole runs add up to the words of the matrix and to the means of its lines. */
static void test_adafactor_of_shards(void **state)
{
    enum { SLICE = 95 * SW_SQUARES_RUN, WORDS = SW_STATS_WORDS + (61 + 37) * SW_LINE_WORDS };
    static int64_t sum[WORDS];
    struct op_case whole, r;
    assert_true(op_cases[SW_OP_ADAFACTOR_SUMS](&whole, SW_F32, 0));
    const int64_t n = n_elems(&whole.in[0]), n_slices = sw_ceil_div(n, SLICE);
    memset(sum, 0, sizeof sum);
    for (int64_t s = 0; s < n_slices; s++) {
        struct op_case part, q;
        case_init(&part, SW_OP_ADAFACTOR_SUMS, "adafactor_sums of a slice");
        part.op.attrs = whole.op.attrs;
        part.op.attrs.update.slice = s;
        part.op.attrs.update.origin = s * SLICE;
        part.op.attrs.update.n_elems = sw_min_i64(SLICE, n - s * SLICE);
        for (int i = 0; i < whole.op.n_in; i++) {
            const bool is_mean = i == 1 || i == 2;
            const int64_t all = n_elems(&whole.in[i]);
            const int64_t most =
                is_mean ? sw_ceil_div(all, n_slices * SW_SQUARES_RUN) * SW_SQUARES_RUN : SLICE;
            const int64_t first = sw_min_i64(s * most, all);
            const int k = case_in_zero(&part, SW_F32, SW_SHAPE(most));
            memcpy(part.in[k].view.data, (const float *)whole.in[i].view.data + first,
                   (size_t)sw_min_i64(most, all - first) * sizeof(float));
        }
        case_out(&part, SW_I64, SW_SHAPE(WORDS));
        run(*state, &part, &q);
        for (int w = 0; w < WORDS; w++) {
            sum[w] += ((const int64_t *)q.out[0].view.data)[w];
        }
        case_fini(&part);
        case_fini(&q);
    }
    run(*state, &whole, &r);
    sw_exact_carry(sum);
    for (int i = 0; i < 61 + 37; i++) {
        sw_exact_carry(sum + SW_STATS_WORDS + i * SW_LINE_WORDS);
    }
    assert_memory_equal(sum, r.out[0].view.data, sizeof sum);
    case_fini(&whole);
    case_fini(&r);
}

static void check_skipped(struct sw_device *dev, enum sw_op_kind kind, int variant)
{
    struct op_case c, r;
    assert_true(op_cases[kind](&c, SW_F32, variant));
    assert_true(c.scalars[SW_SCALAR_SKIP] == 1);
    run(dev, &c, &r);
    for (int i = 0; i < c.op.n_out; i++) {
        const struct case_tensor *was = &c.in[c.out[i].alias];
        assert_memory_equal(r.out[i].view.data, was->view.data, was->bytes);
    }
    case_fini(&c);
    case_fini(&r);
}

static void test_a_skipped_update_changes_nothing(void **state)
{
    check_skipped(*state, SW_OP_UPDATE, 10);
    check_skipped(*state, SW_OP_LAMB_APPLY, 6);
    check_skipped(*state, SW_OP_ADAFACTOR_APPLY, 8);
}

/* The copy was not loaded: the updated elements are rounded from the master. */
static void test_a_skipped_update_makes_the_fp16_copy(void **state)
{
    for (int variant = 8; variant <= 10; variant += 2) { /* a piece, and the whole */
        struct op_case c, r;
        assert_true(op_cases[SW_OP_UPDATE](&c, SW_F16, variant));
        c.scalars[SW_SCALAR_SKIP] = 1;
        uint16_t *copy = c.in[0].view.data;
        const float *master = c.in[1].view.data;
        const int64_t first = c.op.attrs.update.first, n = sw_shape_elems(&c.in[1].view.shape);
        for (int64_t e = 0; e < (int64_t)(c.in[0].bytes / sizeof *copy); e++) {
            copy[e] = 0x1234;
        }
        run(*state, &c, &r);
        for (int64_t e = 0; e < (int64_t)(c.in[0].bytes / sizeof *copy); e++) {
            const bool is_updated = e >= first && e < first + n;
            assert_int_equal(((const uint16_t *)r.out[0].view.data)[e],
                             is_updated ? sw_f32_to_f16(master[e - first]) : 0x1234);
        }
        for (int i = 1; i < c.op.n_out; i++) {
            assert_memory_equal(r.out[i].view.data, c.in[i].view.data, c.in[i].bytes);
        }
        case_fini(&c);
        case_fini(&r);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_matmul_is_its_definition),
    cmocka_unit_test(test_act_values),
    cmocka_unit_test(test_act_gradients),
    cmocka_unit_test(test_layer_norm_gradient),
    cmocka_unit_test(test_attention_is_its_definition),
    cmocka_unit_test(test_segments_are_documents_alone),
    cmocka_unit_test(test_attention_gradient),
    cmocka_unit_test(test_a_query_without_keys_gives_zero),
    cmocka_unit_test(test_cross_entropy_gradient),
    cmocka_unit_test(test_linear_ce_is_product_and_loss),
    cmocka_unit_test(test_linear_ce_gradient),
    cmocka_unit_test(test_dropout_names_global_samples),
    cmocka_unit_test(test_grad_stats_of_shards),
    cmocka_unit_test(test_grad_stats_of_counted_elements),
    cmocka_unit_test(test_stats_finish),
    cmocka_unit_test(test_embedding_grad_sums_by_id),
    cmocka_unit_test(test_adam),
    cmocka_unit_test(test_sgd),
    cmocka_unit_test(test_adagrad_lion_sparse_adam_and_rmsprop),
    cmocka_unit_test(test_bf16_moments_are_right_on_average),
    cmocka_unit_test(test_lamb_norms),
    cmocka_unit_test(test_lamb_ratio),
    cmocka_unit_test(test_lamb_of_what_is_not_finite),
    cmocka_unit_test(test_lamb_norms_of_shards),
    cmocka_unit_test(test_adafactor_of_shards),
    cmocka_unit_test(test_a_skipped_update_changes_nothing),
    cmocka_unit_test(test_a_skipped_update_makes_the_fp16_copy),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
