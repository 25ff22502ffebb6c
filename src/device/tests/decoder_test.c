// SPDX-License-Identifier: Apache-2.0
// Decoder ops match their definitions, on the plain and on the fast kernels: rounding in RMS norm,
// the element pairs of a rotation, the first position.
#include <math.h>

#include "device/tests/op_cases.h"
#include "support/test.h"

static struct sw_device *devices[2]; /* plain, fast */

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct sw_cpu_options options = {.n_threads = 2, .reference = i == 0};
        assert_int_equal(sw_device_open_cpu(&options, &devices[i]), SW_OK);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sw_device_close(devices[0]);
    sw_device_close(devices[1]);
    return 0;
}

static void run(int i_device, const struct op_case *c, struct op_case *result)
{
    if (case_run(devices[i_device], c, result) < 0) {
        fail_msg("%s: %s", c->name, sw_error_message());
    }
}

static double at(const struct case_tensor *t, int64_t i)
{
    return sw_load_f64(t->view.dtype, t->view.data, i);
}

static void same(const struct op_case *c, double got, double want)
{
    if (got != want) {
        fail_msg("%s: got %.17g, want %.17g", c->name, got, want);
    }
}

static double rounded(enum sw_dtype dtype, double x)
{
    uint64_t storage = 0;
    sw_store_f64(dtype, &storage, 0, x);
    return sw_load_f64(dtype, &storage, 0);
}

/* x rstd is rounded to the dtype before it is multiplied by w; with 1 + w it is not. */
static void rms_norm_rounds_where_models_do(void **state)
{
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    (void)state;
    for (int i = 0; i < 2 * 2 * (int)SW_LEN(dtypes); i++) {
        const enum sw_dtype dtype = dtypes[i / 4];
        struct op_case c, r;
        assert_true(op_cases[SW_OP_RMS_NORM](&c, dtype, 4 + i % 2)); /* 70 rows of 33 */
        assert_int_equal(c.op.attrs.norm.one_plus, i % 2);
        run(i / 2 % 2, &c, &r);
        const int64_t width = sw_shape_last(&c.in[0].view.shape);
        double squares = 0;
        for (int64_t k = 0; k < width; k++) {
            squares += at(&c.in[0], k) * at(&c.in[0], k);
        }
        const double rstd = at(&r.out[1], 0), want = 1 / sqrt(squares / (double)width + 1e-6);
        assert_true(fabs(rstd - want) < 1e-6 * want);
        for (int64_t k = 0; k < width; k++) {
            const float hat = (float)at(&c.in[0], k) * (float)rstd, w = (float)at(&c.in[1], k);
            const float y = i % 2 ? hat * (1 + w) : (float)rounded(dtype, hat) * w;
            same(&c, at(&r.out[0], k), rounded(dtype, y));
        }
        case_fini(&c);
        case_fini(&r);
    }
}

/* Checks every case against complex numbers. */
static void rotary_turns_pairs(void **state)
{
    (void)state;
    for (int i_device = 0; i_device < 2; i_device++) {
        struct op_case c, r;
        for (int variant = 0; op_cases[SW_OP_ROTARY](&c, SW_F32, variant); variant++) {
            run(i_device, &c, &r);
            const struct sw_view *x = &c.in[0].view;
            const int64_t *dims = x->shape.dims, turned = c.in[1].view.shape.dims[1];
            const int32_t *positions = c.in[2].view.data;
            const bool interleaved = c.op.attrs.rotary.interleaved;
            for (int64_t e = 0; e < sw_shape_elems(&x->shape); e++) {
                const int64_t d = e % dims[3], h = e / dims[3] % dims[2];
                const int64_t token = e / dims[3] / dims[2], half = turned / 2;
                const bool second = interleaved ? d % 2 : d >= half;
                const int64_t pair = interleaved ? d / 2 : d % half;
                const int64_t other = interleaved ? d ^ 1 : second ? d - half : d + half;
                const int64_t head = token / dims[1] * x->strides[0] +
                                     token % dims[1] * x->strides[1] + h * x->strides[2];
                const int64_t p = positions[c.in[2].view.shape.rank == 2 ? token : token % dims[1]];
                double want = at(&c.in[0], head + d);
                if (d < turned) {
                    const double angle = (second ? 1 : -1) * (c.op.attrs.rotary.inverse ? -1 : 1) *
                                         at(&c.in[1], p * turned + half + pair);
                    want =
                        want * at(&c.in[1], p * turned + pair) + at(&c.in[0], head + other) * angle;
                }
                assert_true(fabs(at(&r.out[0], e) - want) < 3e-7);
            }
            case_fini(&c);
            case_fini(&r);
        }
    }
}

/* NaN outside of the table, and nowhere else. */
static void an_unknown_position_turns_to_nan(void **state)
{
    (void)state;
    for (int i_device = 0; i_device < 2; i_device++) {
        struct op_case c, r;
        assert_true(op_cases[SW_OP_ROTARY](&c, SW_F32, 3)); /* 32 of 80 elements are rotated */
        ((int32_t *)c.in[2].view.data)[0] = -1;
        ((int32_t *)c.in[2].view.data)[1] = (int32_t)c.in[1].view.shape.dims[0];
        run(i_device, &c, &r);
        for (int64_t e = 0; e < sw_shape_elems(&c.out[0].view.shape); e++) {
            assert_int_equal(isnan(at(&r.out[0], e)), e / 160 < 2 && e % 80 < 32);
        }
        case_fini(&c);
        case_fini(&r);
    }
}

static void positions_count_real_tokens(void **state)
{
    static const int32_t mask[] = {0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1};
    static const int32_t want[] = {1, 1, 2, 3, 4, 2, 3, 4, 1, 1, 2, 3, 1, 4, 5};
    struct op_case c, r;
    (void)state;
    case_init(&c, SW_OP_POSITIONS, "positions");
    c.op.attrs.positions.offset = 2;
    c.op.attrs.positions.counted = true;
    memcpy(c.in[case_in_ints(&c, SW_SHAPE(3, 5), 0, 1)].view.data, mask, sizeof mask);
    case_out(&c, SW_I32, SW_SHAPE(3, 5));
    run(0, &c, &r);
    assert_memory_equal(r.out[0].view.data, want, sizeof want);
    case_fini(&c);
    case_fini(&r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rms_norm_rounds_where_models_do),
    cmocka_unit_test(rotary_turns_pairs),
    cmocka_unit_test(an_unknown_position_turns_to_nan),
    cmocka_unit_test(positions_count_real_tokens),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
