// SPDX-License-Identifier: Apache-2.0
// Tests every gradient rule against central differences in double precision, through the whole
// path: graph, backward, plan, executor, reference kernels; with odd shapes.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/run.h"
#include "support/plans.h"
#include "support/test.h"

struct harness {
    struct sw_device *dev;
    struct sw_plan *plan;
    struct sw_executor *ex;
};

typedef sw_value (*build_fn)(sw_graph *g);

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    sw_device_query(ctx, desc, out);
}

/* Fills inputs by name: ids and labels below 7, a mask with both kinds of padding, positions. */
static void fill_input(struct harness *h, const struct sw_port *info)
{
    const int64_t n = sw_shape_elems(&info->shape);
    int32_t *data = malloc((size_t)n * sizeof *data);
    for (int64_t i = 0; i < n; i++) {
        const int32_t r =
            (int32_t)(sw_philox_u64(5, sw_hash_str(SW_HASH_INIT, info->name), (uint64_t)i) % 5);
        if (strcmp(info->name, "mask") == 0) {
            const int64_t t = i % info->shape.dims[1], b = i / info->shape.dims[1];
            data[i] = b == 0 ? t != 0 : t < info->shape.dims[1] - 1;
        } else if (strcmp(info->name, "labels") == 0) {
            data[i] = i == 1 ? -100 : r;
        } else if (strcmp(info->name, "position") == 0) {
            data[i] = 2;
        } else if (strcmp(info->name, "segments") == 0) {
            const int64_t t = i % info->shape.dims[1];
            /* contiguous segments in one row, alternating in others */
            data[i] = (int32_t)(i == t ? t / 3 : t % 2);
        } else if (strcmp(info->name, "targets") == 0) {
            const float target = i == 2 ? NAN : 0.3F * (float)r;
            memcpy(&data[i], &target, sizeof target);
        } else if (strcmp(info->name, "slopes") == 0) {
            const float slope = -0.25F * (float)(i + 1);
            memcpy(&data[i], &slope, sizeof slope);
        } else {
            data[i] = r;
        }
    }
    assert_int_equal(sw_executor_write(h->ex, info, data, (size_t)n * sizeof *data), SW_OK);
    free(data);
}

static double *read_param(struct harness *h, const struct sw_persistent *item)
{
    double *values = malloc(item->bytes);
    assert_int_equal(sw_executor_save(h->ex, item, 0, values, item->bytes), SW_OK);
    return values;
}

static double loss_at(struct harness *h)
{
    const struct sw_program *program = &h->plan->programs[0];
    for (int32_t i = 0; i < program->ports.n_inputs; i++) {
        fill_input(h, &program->ports.inputs[i]);
    }
    double loss = NAN;
    int32_t at = 0;
    assert_int_equal(sw_executor_walk(h->ex, NULL, &at, 1), SW_OK);
    assert_int_equal(
        sw_executor_read(h->ex, sw_program_output(program, "loss", 0), &loss, sizeof loss), SW_OK);
    return loss;
}

static void start(struct harness *h, build_fn build, bool training)
{
    const struct sw_cpu_options cpu = {.n_threads = 1, .reference = true};
    const struct sw_graph_options options = {
        .dtype = SW_F64, .grad_dtype = SW_F64, .training = training, .loss_chunk = 3};
    const struct sw_executor_options ex = {.verify = true};
    struct sw_graph *g;
    memset(h, 0, sizeof *h);
    assert_int_equal(sw_device_open_cpu(&cpu, &h->dev), SW_OK);
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value loss = build(g);
    sw_output(g, "loss", loss);
    if (sw_graph_backward(g, loss) < 0) {
        fail_msg("%s", sw_error_message());
    }
    const struct sw_plan_options plan = {
        .device = {query, h->dev}, .policy.micro_batches = 1, .keep_gradients = true};
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    if (plan_once(&spec, 1, &plan, &h->plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_executor_open(h->plan, h->dev, &ex, &h->ex), SW_OK);
    sw_executor_set(h->ex, SW_SCALAR_LOSS_SCALE, 1);
    sw_executor_set(h->ex, SW_SCALAR_SEED_LO, 17);
    for (int32_t i = 0; i < h->plan->n_persistent; i++) {
        const struct sw_persistent *item = &h->plan->persistent[i];
        const int64_t n = sw_shape_elems(&item->shape);
        if (item->data) {
            assert_int_equal(sw_executor_zero(h->ex, item), SW_OK);
            continue;
        }
        double *values = malloc(item->bytes);
        for (int64_t k = 0; k < n; k++) {
            values[k] = 0.7 * sw_philox_normal(3, (uint64_t)i, (uint64_t)k);
        }
        assert_int_equal(sw_executor_load(h->ex, item, 0, values, item->bytes), SW_OK);
        free(values);
    }
}

static void stop(struct harness *h)
{
    sw_executor_close(h->ex);
    sw_plan_close(h->plan);
    sw_device_close(h->dev);
}

static const struct sw_port *kept(const struct harness *h, enum sw_state_kind kind, int use,
                                  const struct sw_persistent *item)
{
    return sw_program_gradient(&h->plan->programs[0], item->name, kind, use);
}

/* The sum of the gradients of all uses of a parameter, dense. */
static double *analytic(struct harness *h, const struct sw_persistent *item)
{
    double *sum = calloc((size_t)sw_shape_elems(&item->shape) + 1, sizeof *sum);
    for (int use = 0;; use++) {
        const struct sw_port *grad = kept(h, SW_STATE_GRADIENT, use, item);
        const struct sw_port *rows_of = kept(h, SW_STATE_GRADIENT_INDEX, use, item);
        if (!grad) {
            break;
        }
        const int64_t n = sw_shape_elems(&grad->shape), width = sw_shape_last(&grad->shape);
        double *part = malloc(sw_port_bytes(grad));
        int32_t *index = malloc((size_t)n * sizeof *index + 4);
        assert_int_equal(sw_executor_read(h->ex, grad, part, sw_port_bytes(grad)), SW_OK);
        if (rows_of) {
            const int64_t rows = sw_shape_rows(&grad->shape);
            assert_int_equal(sw_executor_read(h->ex, rows_of, index, (size_t)rows * sizeof *index),
                             SW_OK);
            for (int64_t r = 0; r < rows && index[r] >= 0; r++) {
                for (int64_t c = 0; c < width; c++) {
                    sum[index[r] * width + c] += part[r * width + c];
                }
            }
        } else {
            for (int64_t k = 0; k < n; k++) {
                sum[k] += part[k];
            }
        }
        free(part);
        free(index);
    }
    return sum;
}

static void check(build_fn build, bool training)
{
    const double eps = 1e-5;
    struct harness h;
    start(&h, build, training);
    const double loss = loss_at(&h);
    assert_true(isfinite(loss));
    int32_t phase = 1;
    assert_int_equal(sw_executor_walk(h.ex, NULL, &phase, 2), SW_OK);
    double **gradients = calloc((size_t)h.plan->n_persistent, sizeof *gradients);
    for (int32_t i = 0; i < h.plan->n_persistent; i++) {
        gradients[i] = analytic(&h, &h.plan->persistent[i]);
    }
    double largest = 0;
    for (int32_t i = 0; i < h.plan->n_persistent; i++) {
        const struct sw_persistent *item = &h.plan->persistent[i];
        /* constants do not change */
        const int64_t n = item->data ? 0 : sw_shape_elems(&item->shape);
        double *values = read_param(&h, item);
        for (int64_t k = 0; k < n; k++) {
            const double at = values[k];
            double side[2];
            for (int s = 0; s < 2; s++) {
                const double moved = at + (s ? eps : -eps);
                assert_int_equal(sw_executor_load(h.ex, item, (size_t)k * 8, &moved, 8), SW_OK);
                side[s] = loss_at(&h);
            }
            assert_int_equal(sw_executor_load(h.ex, item, (size_t)k * 8, &at, 8), SW_OK);
            const double numeric = (side[1] - side[0]) / (2 * eps);
            if (!(fabs(numeric - gradients[i][k]) < 1e-7 + 1e-6 * fabs(numeric))) {
                fail_msg("%s[%lld]: rule %.12g, differences %.12g", item->name, (long long)k,
                         gradients[i][k], numeric);
            }
            largest = fmax(largest, fabs(numeric));
        }
        free(values);
        free(gradients[i]);
    }
    assert_true(largest > 1e-4); /* a graph without gradients would prove nothing */
    assert_true(sw_executor_high_water(h.ex) <= h.plan->tier_bytes[SW_TIER_DEVICE]);
    free(gradients);
    stop(&h);
}

/* ---- the cases ---- */

static sw_value param(sw_graph *g, const char *name, struct sw_shape shape)
{
    return sw_param(g, name, shape, (struct sw_init){SW_INIT_NORMAL, 1});
}

static sw_value loss_of(sw_graph *g, sw_value x)
{
    struct sw_shape rows = g->values[x].shape;
    rows.rank -= 1;
    return sw_cross_entropy(g, x, sw_input(g, "labels", SW_I32, rows));
}

static sw_value build_linear(sw_graph *g)
{
    const sw_value x = param(g, "x", SW_SHAPE(2, 3, 5));
    const sw_value y =
        sw_linear(g, x, param(g, "w", SW_SHAPE(7, 5)), param(g, "b", SW_SHAPE(7)), false);
    return loss_of(g, sw_linear(g, y, param(g, "v", SW_SHAPE(7, 6)), SW_NO_VALUE, true));
}

static sw_value build_matmul(sw_graph *g)
{
    const sw_value a = param(g, "a", SW_SHAPE(5, 4)), b = param(g, "b", SW_SHAPE(6, 5));
    const sw_value c = sw_matmul(g, a, true, b, true);                              /* [4, 6] */
    const sw_value d = sw_matmul(g, c, true, param(g, "d", SW_SHAPE(4, 7)), false); /* [6, 7] */
    return loss_of(g, sw_matmul(g, d, false, param(g, "e", SW_SHAPE(7, 5)), false));
}

static sw_value build_add(sw_graph *g)
{
    const sw_value a = param(g, "a", SW_SHAPE(3, 2, 6));
    sw_value x = sw_add(g, a, param(g, "b", SW_SHAPE(3, 2, 6)));
    x = sw_add(g, x, param(g, "t", SW_SHAPE(2, 6)));
    x = sw_add(g, sw_scale(g, x, -1.5), param(g, "c", SW_SHAPE(6)));
    return loss_of(g, sw_add(g, x, a));
}

static enum sw_act the_act;

static sw_value build_act(sw_graph *g)
{
    const sw_value x = param(g, "x", SW_SHAPE(5, 7));
    const sw_value y =
        sw_act(g, sw_linear(g, x, param(g, "w", SW_SHAPE(7, 7)), param(g, "b", SW_SHAPE(7)), true),
               the_act);
    return loss_of(g, sw_add(g, y, sw_act(g, x, the_act)));
}

static sw_value build_norm(sw_graph *g)
{
    const sw_value x = param(g, "x", SW_SHAPE(2, 3, 7)), r = param(g, "r", SW_SHAPE(2, 3, 7));
    const sw_value s = sw_add(g, x, r);
    const sw_value y =
        sw_layer_norm(g, s, param(g, "w", SW_SHAPE(7)), param(g, "b", SW_SHAPE(7)), 1e-5);
    return loss_of(g, sw_add(g, y, s));
}

static sw_value build_embedding(sw_graph *g)
{
    const sw_value table = param(g, "table", SW_SHAPE(6, 5));
    const sw_value x = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(2, 5)), -1);
    return sw_linear_cross_entropy(g, x, table, SW_NO_VALUE,
                                   sw_input(g, "labels", SW_I32, SW_SHAPE(2, 5)), 0);
}

/* The lookup of a padding row gives it no gradient; the head, which is the same table, still
 * does. */
static sw_value build_padding(sw_graph *g)
{
    const sw_value x = sw_embedding(g, param(g, "table", SW_SHAPE(5, 6)),
                                    sw_input(g, "ids", SW_I32, SW_SHAPE(2, 5)), 2);
    return loss_of(g, x);
}

static void padding_rows_get_no_gradient(void **state)
{
    (void)state;
    struct harness h;
    start(&h, build_padding, false);
    loss_at(&h);
    int32_t phase = 1;
    assert_int_equal(sw_executor_walk(h.ex, NULL, &phase, 2), SW_OK);
    double *gradient = analytic(&h, &h.plan->persistent[0]);
    double others = 0;
    for (int c = 0; c < 6; c++) {
        assert_true(gradient[2 * 6 + c] == 0);
        for (int row = 0; row < 5; row++) {
            others += row == 2 ? 0 : fabs(gradient[row * 6 + c]);
        }
    }
    assert_true(others > 0);
    free(gradient);
    stop(&h);
}

static sw_value build_linear_loss(sw_graph *g)
{
    const sw_value x = param(g, "h", SW_SHAPE(2, 3, 5));
    return sw_linear_cross_entropy(g, x, param(g, "w", SW_SHAPE(8, 5)), SW_NO_VALUE,
                                   sw_input(g, "labels", SW_I32, SW_SHAPE(2, 3)), 0);
}

static sw_value build_views(sw_graph *g)
{
    const sw_value x = param(g, "x", SW_SHAPE(3, 4, 5));
    const sw_value t = sw_transpose(g, x, 0, 2); /* [5, 4, 3] strided */
    const sw_value s = sw_slice(g, sw_reshape(g, t, SW_SHAPE(10, 6)), 0, 2, 7);
    const sw_value c = sw_slice(g, s, 1, 1, 4); /* [7, 4] strided */
    const sw_value m = sw_matmul(g, sw_transpose(g, param(g, "m", SW_SHAPE(4, 7)), 0, 1), false,
                                 sw_transpose(g, c, 0, 1), false); /* [7, 4] [4, 7] */
    return loss_of(g, m);
}

static sw_value build_select(sw_graph *g)
{
    const sw_value x = param(g, "x", SW_SHAPE(3, 4, 5));
    const sw_value ids = sw_input(g, "ids", SW_I32, SW_SHAPE(3, 4));
    return loss_of(g, sw_select_rows(g, x, sw_last_index(g, ids, 2)));
}

static struct sw_attention_spec the_attention;
static bool with_mask, with_position, with_slopes, with_segments, with_bias;

/* Adds the optional inputs of attention. The bias is also used by other scores. */
static struct sw_attention_spec attention_with(sw_graph *g, int64_t n_queries, int64_t n_keys)
{
    struct sw_attention_spec spec = the_attention;
    const struct sw_shape keys = SW_SHAPE(2, n_keys);
    spec.mask = with_mask ? sw_input(g, "mask", SW_I32, keys) : SW_NO_VALUE;
    spec.position = with_position ? sw_input(g, "position", SW_I32, SW_SHAPE(1)) : SW_NO_VALUE;
    spec.slopes = with_slopes ? sw_input(g, "slopes", SW_F32, SW_SHAPE(spec.heads)) : SW_NO_VALUE;
    spec.segments = with_segments ? sw_input(g, "segments", SW_I32, keys) : SW_NO_VALUE;
    const struct sw_shape shared = SW_SHAPE(spec.heads, n_queries, n_keys);
    const struct sw_shape each = SW_SHAPE(2, spec.heads, n_queries, n_keys);
    spec.bias =
        with_bias ? sw_scale(g, param(g, "bias", spec.causal ? shared : each), 0.5) : SW_NO_VALUE;
    return spec;
}

static sw_value projected(sw_graph *g, sw_value o, const struct sw_attention_spec *spec)
{
    const sw_value w = param(g, "w", SW_SHAPE(6, spec->heads * 3));
    return loss_of(g, sw_linear(g, o, w, SW_NO_VALUE, false));
}

static sw_value build_packed(sw_graph *g)
{
    struct sw_attention_spec spec = attention_with(g, 5, 5);
    const int64_t kv = spec.kv_heads ? spec.kv_heads : spec.heads;
    spec.position = SW_NO_VALUE;
    const sw_value x = param(g, "x", SW_SHAPE(2, 5, (spec.heads + 2 * kv) * 3));
    return projected(g, sw_attention_packed(g, x, &spec), &spec);
}

static sw_value build_separate(sw_graph *g)
{
    const int64_t n_queries = with_segments && !with_position ? 6 : 4;
    struct sw_attention_spec spec = attention_with(g, n_queries, 6);
    const int64_t kv = spec.kv_heads ? spec.kv_heads : spec.heads;
    const sw_value q = param(g, "q", SW_SHAPE(2, n_queries, spec.heads * 3));
    const sw_value kv_both = param(g, "kv", SW_SHAPE(2, 6, 2 * kv * 3));
    return projected(g,
                     sw_attention(g, q, sw_slice(g, kv_both, 2, 0, kv * 3),
                                  sw_slice(g, kv_both, 2, kv * 3, kv * 3), &spec),
                     &spec);
}

/* Keys and values are the halves of one tensor, so their rows are strided. */
static sw_value build_strided_heads(sw_graph *g)
{
    struct sw_attention_spec spec = attention_with(g, 6, 6);
    const int64_t kv = spec.kv_heads ? spec.kv_heads : spec.heads;
    const sw_value q = param(g, "q", SW_SHAPE(2, spec.heads, 6, 3));
    const sw_value kv_both = param(g, "kv", SW_SHAPE(2, 6, kv, 6));
    return projected(g,
                     sw_attention(g, sw_transpose(g, q, 1, 2), sw_slice(g, kv_both, 3, 0, 3),
                                  sw_slice(g, kv_both, 3, 3, 3), &spec),
                     &spec);
}

static sw_value build_dropout(sw_graph *g)
{
    const sw_value x = sw_dropout(g, param(g, "x", SW_SHAPE(3, 4, 5)), 0.4);
    return loss_of(g, sw_add(g, x, sw_dropout(g, x, 0.3)));
}

static sw_status square_infer(const struct sw_user_op *op, const struct sw_view *in,
                              struct sw_view *out)
{
    (void)op;
    out[0] = in[0];
    return SW_OK;
}

static void square_kernel(const struct sw_user_op *op, const struct sw_view *in,
                          const struct sw_view *out)
{
    for (int64_t i = 0; i < sw_shape_elems(&in[0].shape); i++) {
        const double x = sw_load_f64(in[0].dtype, in[0].data, i);
        const double y = op->n_in == 2 ? sw_load_f64(in[1].dtype, in[1].data, i) * 2 * x : x * x;
        sw_store_f64(out[0].dtype, out[0].data, i, op->param[0] * y);
    }
}

static const struct sw_user_op square_grad = {.name = "square_grad",
                                              .n_in = 2,
                                              .n_out = 1,
                                              .param = {3},
                                              .infer = square_infer,
                                              .kernel = square_kernel};

static void square_gradient(sw_graph *g, const struct sw_user_op *op, const sw_value *in,
                            const sw_value *out, const sw_value *d_out, sw_value *d_in)
{
    (void)op;
    (void)out;
    const sw_value pair[2] = {in[0], d_out[0]};
    sw_user(g, &square_grad, pair, d_in);
}

static const struct sw_user_op square = {.name = "square",
                                         .n_in = 1,
                                         .n_out = 1,
                                         .param = {3},
                                         .infer = square_infer,
                                         .gradient = square_gradient,
                                         .kernel = square_kernel};

static sw_value build_user(sw_graph *g)
{
    const sw_value x = param(g, "x", SW_SHAPE(4, 5));
    sw_value y;
    sw_user(g, &square, &x, &y);
    return loss_of(g, y);
}

/* ---- features of decoder families ---- */

static int variant; /* a bit set of options */

static sw_value build_rms_norm(sw_graph *g)
{
    const sw_value x = param(g, "x", SW_SHAPE(2, 3, 7)), r = param(g, "r", SW_SHAPE(2, 3, 7));
    const sw_value s = sw_add(g, x, r), w = param(g, "w", SW_SHAPE(7));
    const sw_value y = sw_rms_norm(g, s, w, 1e-6, variant & 1);
    return loss_of(g, sw_add(g, sw_rms_norm(g, y, param(g, "v", SW_SHAPE(7)), 1e-6, false), s));
}

static sw_value build_gates(sw_graph *g)
{
    const sw_value gate = param(g, "gate", SW_SHAPE(3, 2, 7)), up = param(g, "up", SW_SHAPE(3, 14));
    const sw_value half = sw_reshape(g, sw_slice(g, up, 1, 0, 14), SW_SHAPE(3, 2, 7));
    const sw_value y = sw_gated_act(g, gate, half, the_act);
    const sw_value row = param(g, "row", SW_SHAPE(7)), rows = param(g, "rows", SW_SHAPE(2, 7));
    const sw_value z = sw_mul(g, sw_mul(g, y, rows), row);
    return loss_of(g, sw_mul(g, z, sw_add(g, sw_mul(g, gate, gate), half)));
}

/* Rotary embedding of heads inside a larger tensor, on the whole head or a part of it. */
static sw_value build_rotary(sw_graph *g)
{
    enum { ROWS = 7 };
    const bool by_sample = variant & 1, interleaved = variant & 2;
    const int64_t turned = variant & 4 ? 4 : 6;
    float table[ROWS * 6];
    for (int64_t i = 0; i < ROWS * turned; i++) {
        const double angle = (double)(i / turned) / (double)(1 + i % (turned / 2));
        table[i] = (float)(i % turned < turned / 2 ? cos(angle) : sin(angle));
    }
    const sw_value all = param(g, "x", SW_SHAPE(2, 4, 3, 12));
    const sw_value angles = sw_constant(g, "angles", SW_F32, SW_SHAPE(ROWS, turned), table);
    const sw_value positions = by_sample
                                   ? sw_positions(g, sw_input(g, "mask", SW_I32, SW_SHAPE(2, 4)), 1)
                                   : sw_add_offset(g, sw_input(g, "ids", SW_I32, SW_SHAPE(4)), 2);
    const sw_value x = sw_slice(g, all, 3, 6, 6);
    return loss_of(
        g, sw_add(g, sw_rotary(g, x, angles, positions, interleaved), sw_slice(g, all, 3, 0, 6)));
}

static sw_value build_loss_with_cap_or_bias(sw_graph *g)
{
    const sw_value x = param(g, "h", SW_SHAPE(2, 3, 5));
    const sw_value bias = variant & 1 ? param(g, "b", SW_SHAPE(8)) : SW_NO_VALUE;
    return sw_linear_cross_entropy(g, x, param(g, "w", SW_SHAPE(8, 5)), bias,
                                   sw_input(g, "labels", SW_I32, SW_SHAPE(2, 3)),
                                   variant & 2 ? 1.5 : 0);
}

/* ---- features of encoders, sequence pairs and images ---- */

/* Masked rows, alone and combined with others; positions of tokens that are not padding. */
static sw_value build_rows(sw_graph *g)
{
    const sw_value mask = sw_input(g, "mask", SW_I32, SW_SHAPE(2, 4));
    const sw_value ids = sw_input(g, "ids", SW_I32, SW_SHAPE(2, 4));
    const sw_value table = param(g, "table", SW_SHAPE(6, 5));
    const sw_value places = sw_positions(g, sw_not_equal(g, ids, 1), 2);
    const sw_value x[3] = {sw_mask_rows(g, param(g, "x", SW_SHAPE(2, 4, 5)), mask),
                           sw_embedding(g, table, sw_shift_right(g, ids, 5, 0), -1),
                           sw_embedding(g, table, sw_add_offset(g, places, -1), -1)};
    const sw_value wide = sw_concat(g, x, 3, 2); /* [2, 4, 15] */
    const sw_value parts[2] = {sw_slice(g, wide, 2, 1, 7), sw_slice(g, wide, 2, 8, 7)};
    const sw_value y = sw_mask_rows(g, sw_concat(g, parts, 2, 1),
                                    sw_input(g, "more.mask", SW_I32, SW_SHAPE(2, 8)));
    const sw_value last = sw_select_rows(g, y, sw_last_index_of(g, ids, 2));
    const sw_value mean = sw_masked_mean(g, wide, mask);
    return loss_of(g, sw_add(g, last, sw_slice(g, mean, 1, 3, 7)));
}

/* Losses with label smoothing, with labels beyond the classes, with both, and with float
 * targets. */
static sw_value build_more_losses(sw_graph *g)
{
    const int64_t classes = variant & 2 ? 3 : 6;
    const sw_value x = param(g, "x", SW_SHAPE(2, 4, classes));
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(2, 4));
    const struct sw_cross_entropy_spec spec = {.smoothing = variant & 1 ? 0.3 : 0,
                                               .ignores_beyond = variant & 2};
    if (variant == 4) {
        return sw_smoothed_linear_cross_entropy(g, x, param(g, "w", SW_SHAPE(5, classes)),
                                                param(g, "b", SW_SHAPE(5)), labels, 2, 0.2);
    }
    if (variant > 4) {
        const sw_value targets = sw_input(g, "targets", SW_F32, SW_SHAPE(2, 4, classes));
        return variant == 5 ? sw_mean_squared_error(g, x, targets)
                            : sw_binary_cross_entropy(g, x, targets);
    }
    return sw_cross_entropy_of(g, x, labels, &spec);
}

static void more_losses(void **state)
{
    (void)state;
    for (variant = 1; variant < 7; variant++) {
        check(build_more_losses, false);
    }
}

/* A relative-position table that two attentions share, and position terms that depend on tokens. */
static sw_value build_relative(sw_graph *g)
{
    static const int32_t rows[9] = {4, 4, 3, 3, 2, 1, 1, 0, 0};
    const sw_value index = sw_constant(g, "index", SW_I32, SW_SHAPE(9), rows);
    const sw_value table = param(g, "table", SW_SHAPE(6, 2)), x = param(g, "x", SW_SHAPE(2, 5, 6));
    const sw_value ids = sw_constant(g, "buckets", SW_I32, SW_SHAPE(7), rows);
    const sw_value by_distance = sw_relative_bias(
        g, sw_embedding(g, table, ids, -1),
        variant & 1 ? sw_input(g, "position", SW_I32, SW_SHAPE(1)) : SW_NO_VALUE, 5, 5, 3);
    struct sw_attention_spec spec = {.heads = 2,
                                     .scale = 1,
                                     .mask = SW_NO_VALUE,
                                     .position = SW_NO_VALUE,
                                     .slopes = SW_NO_VALUE,
                                     .segments = SW_NO_VALUE,
                                     .bias = by_distance};
    const sw_value y = sw_attention(g, x, x, x, &spec);
    const sw_value heads = sw_reshape(g, y, SW_SHAPE(2, 5, 2, 3));
    const sw_value p = param(g, "p", SW_SHAPE(5, 2, 3));
    spec.bias = sw_add(g, sw_relative_scores(g, heads, p, index, variant & 1, 0.7), by_distance);
    return loss_of(g, sw_attention(g, y, x, y, &spec));
}

static void relative_positions(void **state)
{
    (void)state;
    for (variant = 0; variant < 2; variant++) {
        check(build_relative, false);
    }
}

/* Two convolutions with a pool between them; the second is over a sequence. */
static sw_value build_convolutions(sw_graph *g)
{
    const struct sw_window first = {{3, 2}, {1, 2}, {1, 1}},
                           second = {.kernel = {0, 3}, .padding = {0, 1}};
    const struct sw_window of_pool = {.kernel = {2, 2}, .stride = {2, 1}};
    const sw_value x = param(g, "x", SW_SHAPE(2, 2, 5, 5));
    const sw_value seen = sw_im2col(g, x, &first); /* [2, 5 3, 12] */
    const sw_value y = sw_linear(g, seen, param(g, "w", SW_SHAPE(4, 12)), SW_NO_VALUE, false);
    const sw_value image =
        sw_transpose(g, sw_transpose(g, sw_reshape(g, y, SW_SHAPE(2, 5, 3, 4)), 2, 3), 1, 2);
    const sw_value small =
        variant ? sw_pool_mean(g, image, &of_pool) : sw_pool_max(g, image, &of_pool);
    const sw_value row = sw_reshape(g, small, SW_SHAPE(2, 4, 4)); /* [2, 4, 2 2] */
    const sw_value again = sw_im2col(g, sw_transpose(g, row, 1, 2), &second);
    return loss_of(g, sw_linear(g, again, param(g, "v", SW_SHAPE(5, 12)), SW_NO_VALUE, false));
}

static void convolutions(void **state)
{
    (void)state;
    for (variant = 0; variant < 2; variant++) {
        check(build_convolutions, false);
    }
}

/* A two-layer LSTM, also reversed, with and without missing tokens. */
static sw_value build_lstm(sw_graph *g)
{
    struct sw_lstm_spec spec = {
        .w_ih = param(g, "w_ih", SW_SHAPE(12, 2)),
        .w_hh = param(g, "w_hh", SW_SHAPE(12, 3)),
        .b_ih = param(g, "b_ih", SW_SHAPE(12)),
        .b_hh = param(g, "b_hh", SW_SHAPE(12)),
        .mask = variant & 1 ? sw_input(g, "mask", SW_I32, SW_SHAPE(2, 4)) : SW_NO_VALUE,
        .reverse = variant & 2,
    };
    const sw_value y = sw_lstm(g, param(g, "x", SW_SHAPE(2, 4, 2)), &spec);
    spec.w_ih = param(g, "v_ih", SW_SHAPE(12, 3));
    spec.reverse = !spec.reverse;
    const sw_value both[2] = {y, sw_lstm(g, y, &spec)};
    return loss_of(g, sw_linear(g, sw_concat(g, both, 2, 2), param(g, "head", SW_SHAPE(5, 6)),
                                SW_NO_VALUE, false));
}

enum { EXPERTS = 4 };

/* Two MLPs of experts, with each kind of router: separate matrices, then packed ones with biases
 * and clamped gates. Some choices are dropped in every second variant. */
static sw_value build_experts(sw_graph *g)
{
    const struct sw_router_attrs attrs = {.k = 2,
                                          .sigmoid = variant & 1,
                                          .normalise = variant & 2,
                                          .scale = 1.5,
                                          .groups = variant & 1 ? 2 : 0,
                                          .kept = variant & 1 ? 1 : 0};
    sw_value x = param(g, "x", SW_SHAPE(6, 3)), weights[EXPERTS], biases[2];
    const sw_value mask = sw_reshape(g, sw_input(g, "mask", SW_I32, SW_SHAPE(2, 3)), SW_SHAPE(6));
    const sw_value bias = variant & 1 ? param(g, "b", SW_SHAPE(EXPERTS)) : SW_NO_VALUE;
    const sw_value logits =
        sw_linear(g, x, param(g, "r", SW_SHAPE(EXPERTS, 3)), SW_NO_VALUE, false);
    const struct sw_routes routes =
        sw_route(g, logits, bias, variant & 2 ? mask : SW_NO_VALUE, &attrs, variant & 2 ? 3 : 0, 1);
    for (int e = 0; e < EXPERTS; e++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", e);
        weights[e] = param(g, name, SW_SHAPE(3, 3));
    }
    const sw_value rows = sw_to_experts(g, x, &routes);
    const sw_value y = sw_expert_linear(g, rows, &routes, weights, NULL, EXPERTS, variant & 1);
    x = sw_add(g, x, sw_from_experts(g, sw_act(g, y, SW_ACT_SILU), &routes));
    weights[0] = param(g, "up", SW_SHAPE(EXPERTS, 3, 4));
    weights[1] = param(g, "down", SW_SHAPE(EXPERTS, 2, 3));
    biases[0] = param(g, "up_bias", SW_SHAPE(EXPERTS, 4));
    biases[1] = param(g, "down_bias", SW_SHAPE(EXPERTS, 3));
    const sw_value up =
        sw_expert_linear(g, sw_to_experts(g, x, &routes), &routes, weights, biases, 1, true);
    const sw_value down = sw_expert_linear(g, sw_clamped_gate(g, up, 1.7, 0.8), &routes,
                                           weights + 1, biases + 1, 1, true);
    const sw_value head = param(g, "head", SW_SHAPE(5, 3));
    const sw_value all = sw_reshape(g, sw_from_experts(g, down, &routes), SW_SHAPE(1, 6, 3));
    const sw_value loss = loss_of(g, sw_linear(g, all, head, SW_NO_VALUE, false));
    const sw_value balance = sw_scale(g, sw_router_loss(g, routes.stats, false), 0.3);
    return sw_add(g, sw_add(g, loss, balance),
                  sw_scale(g, sw_router_loss(g, routes.stats, true), 0.2));
}

static void mixtures_of_experts(void **state)
{
    (void)state;
    for (variant = 0; variant < 4; variant++) {
        check(build_experts, false);
    }
}

/* Attention with sinks, of values that are narrower than queries. */
static sw_value build_sinks(sw_graph *g)
{
    const struct sw_attention_spec spec = {.heads = 2,
                                           .kv_heads = 1,
                                           .causal = true,
                                           .scale = 0.5,
                                           .mask = SW_NO_VALUE,
                                           .position = SW_NO_VALUE,
                                           .slopes = SW_NO_VALUE,
                                           .segments = SW_NO_VALUE,
                                           .bias = SW_NO_VALUE};
    const sw_value x = param(g, "x", SW_SHAPE(2, 3, 2, 4));
    const sw_value v = sw_pad(g, param(g, "v", SW_SHAPE(2, 3, 1, 3)), 3, 1, 4);
    const sw_value o = sw_attention(g, x, sw_slice(g, x, 2, 1, 1), v, &spec);
    return loss_of(g, sw_attention_sink(g, o, param(g, "sinks", SW_SHAPE(2))));
}

static void attention_sinks(void **state)
{
    (void)state;
    check(build_sinks, false);
}

static void recurrences(void **state)
{
    (void)state;
    for (variant = 0; variant < 4; variant++) {
        check(build_lstm, false);
    }
}

static void rows_of_encoders(void **state)
{
    (void)state;
    check(build_rows, false);
}

static void rms_norms(void **state)
{
    (void)state;
    for (variant = 0; variant < 2; variant++) {
        check(build_rms_norm, false);
    }
}

static void gates(void **state)
{
    (void)state;
    for (the_act = SW_ACT_NONE; the_act < SW_ACT_COUNT; the_act++) {
        check(build_gates, false);
    }
}

static void rotary_positions(void **state)
{
    (void)state;
    for (variant = 0; variant < 8; variant++) {
        check(build_rotary, false);
    }
}

static void losses_with_cap_or_bias(void **state)
{
    (void)state;
    for (variant = 1; variant < 4; variant++) {
        check(build_loss_with_cap_or_bias, false);
    }
}

static void products(void **state)
{
    (void)state;
    check(build_linear, false);
    check(build_matmul, false);
}

static void sums_and_norms(void **state)
{
    (void)state;
    check(build_add, false);
    check(build_norm, false);
}

static void activations(void **state)
{
    (void)state;
    for (the_act = SW_ACT_GELU; the_act < SW_ACT_COUNT; the_act++) {
        check(build_act, false);
    }
}

static void look_ups_and_losses(void **state)
{
    (void)state;
    check(build_embedding, false);
    check(build_linear_loss, false);
    check(build_select, false);
}

static void views(void **state)
{
    (void)state;
    check(build_views, false);
}

static void attention(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        the_attention = (struct sw_attention_spec){.heads = 4,
                                                   .kv_heads = i & 1 ? 2 : 0,
                                                   .scale = 0.6,
                                                   .causal = (i & 2) != 0,
                                                   .window = i & 4 ? 3 : 0,
                                                   .dropout = i & 8 ? 0.25 : 0,
                                                   .cap = i & 16 && i % 3 ? 0.8 : 0};
        with_mask = (i & 4) == 0;
        with_position = (i & 2) != 0;
        with_slopes = i & 16 && i % 5 < 3;
        with_segments = i & 16 && i % 7 < 4;
        with_bias = i % 3 == 1;
        check(build_packed, (i & 8) != 0);
        check(build_separate, (i & 8) != 0);
        check(build_strided_heads, (i & 8) != 0);
    }
}

static void dropout(void **state)
{
    (void)state;
    check(build_dropout, true);
}

static void user_op(void **state)
{
    (void)state;
    check(build_user, false);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(products),
    cmocka_unit_test(sums_and_norms),
    cmocka_unit_test(activations),
    cmocka_unit_test(look_ups_and_losses),
    cmocka_unit_test(padding_rows_get_no_gradient),
    cmocka_unit_test(views),
    cmocka_unit_test(attention),
    cmocka_unit_test(dropout),
    cmocka_unit_test(user_op),
    cmocka_unit_test(rms_norms),
    cmocka_unit_test(gates),
    cmocka_unit_test(rotary_positions),
    cmocka_unit_test(mixtures_of_experts),
    cmocka_unit_test(attention_sinks),
    cmocka_unit_test(losses_with_cap_or_bias),
    cmocka_unit_test(rows_of_encoders),
    cmocka_unit_test(more_losses),
    cmocka_unit_test(relative_positions),
    cmocka_unit_test(convolutions),
    cmocka_unit_test(recurrences),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
