// SPDX-License-Identifier: Apache-2.0
// Shapes, the table of dtypes, elements as doubles.
#include "tensor/tensor.h"

#include "support/test.h"

static void products(void **state)
{
    (void)state;
    const struct sw_shape scalar = {0}, vector = SW_SHAPE(7), cube = SW_SHAPE(2, 3, 5),
                          empty = SW_SHAPE(4, 0);
    assert_int_equal(sw_shape_elems(&scalar), 1);
    assert_int_equal(sw_shape_rows(&scalar), 1);
    assert_int_equal(sw_shape_last(&scalar), 1);
    assert_int_equal(sw_shape_elems(&vector), 7);
    assert_int_equal(sw_shape_rows(&vector), 1);
    assert_int_equal(sw_shape_last(&vector), 7);
    assert_int_equal(sw_shape_elems(&cube), 30);
    assert_int_equal(sw_shape_rows(&cube), 6);
    assert_int_equal(sw_shape_last(&cube), 5);
    assert_int_equal(sw_shape_elems(&empty), 0);
    assert_int_equal(sw_shape_rows(&empty), 4);
}

static void equality(void **state)
{
    (void)state;
    const struct sw_shape a = SW_SHAPE(2, 3), b = SW_SHAPE(2, 3), c = SW_SHAPE(3, 2),
                          d = SW_SHAPE(2, 3, 1);
    assert_true(sw_shape_equal(&a, &b));
    assert_false(sw_shape_equal(&a, &c));
    assert_false(sw_shape_equal(&a, &d));
}

static void row_major_strides_count_the_elements_behind(void **state)
{
    (void)state;
    const struct sw_shape shape = SW_SHAPE(4, 1, 5, 3), scalar = {.rank = 0};
    int64_t strides[SW_MAX_RANK];
    sw_shape_row_major(&shape, strides);
    for (int d = 0; d < shape.rank; d++) {
        int64_t behind = 1;
        for (int k = d + 1; k < shape.rank; k++) {
            behind *= shape.dims[k];
        }
        assert_int_equal(strides[d], behind);
    }
    assert_int_equal(sw_shape_bytes(&shape, SW_BF16), strides[0] * 4 * 2);
    assert_int_equal(sw_shape_bytes(&scalar, SW_F64), 8);
}

static void overflow_is_refused(void **state)
{
    (void)state;
    const struct sw_shape good = SW_SHAPE(INT64_C(1) << 30, INT64_C(1) << 30),
                          negative = SW_SHAPE(2, -1),
                          large = SW_SHAPE(INT64_C(1) << 31, INT64_C(1) << 31),
                          hidden = SW_SHAPE(0, INT64_C(1) << 40, INT64_C(1) << 40);
    assert_true(sw_shape_check(&good, 4));
    assert_false(sw_shape_check(&good, 8));
    assert_false(sw_shape_check(&negative, 1));
    assert_true(sw_shape_check(&large, 1));
    assert_false(sw_shape_check(&large, 2));
    assert_false(sw_shape_check(&hidden, 1));
    struct sw_shape deep = {.rank = SW_MAX_RANK + 1};
    assert_false(sw_shape_check(&deep, 1));
}

static void printing(void **state)
{
    (void)state;
    char buf[64], small[6];
    const struct sw_shape scalar = {0}, cube = SW_SHAPE(2, 30, 5);
    assert_string_equal(sw_shape_format(&scalar, buf, sizeof(buf)), "[]");
    assert_string_equal(sw_shape_format(&cube, buf, sizeof(buf)), "[2, 30, 5]");
    assert_string_equal(sw_shape_format(&cube, small, sizeof(small)), "[2, 3");
}

static void dtype_names(void **state)
{
    (void)state;
    for (int i = 0; i < SW_DTYPE_COUNT; i++) {
        enum sw_dtype parsed = SW_DTYPE_COUNT;
        assert_true(sw_dtype_parse(sw_dtype_name((enum sw_dtype)i), &parsed));
        assert_int_equal(parsed, i);
    }
    static const struct {
        const char *text;
        enum sw_dtype dtype;
    } rows[] = {{"fp32", SW_F32},   {"float32", SW_F32}, {"bfloat16", SW_BF16},
                {"half", SW_F16},   {"float16", SW_F16}, {"BF16", SW_BF16},
                {"double", SW_F64}, {"int64", SW_I64},   {"uint8", SW_U8}};
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        enum sw_dtype parsed = SW_DTYPE_COUNT;
        assert_true(sw_dtype_parse(rows[i].text, &parsed));
        assert_int_equal(parsed, rows[i].dtype);
    }
    enum sw_dtype kept = SW_I8;
    assert_false(sw_dtype_parse("float8", &kept));
    assert_false(sw_dtype_parse("", &kept));
    assert_int_equal(kept, SW_I8);
    assert_true(sw_dtype_is_float(SW_BF16) && !sw_dtype_is_float(SW_I32));
    assert_int_equal(sw_dtype_bytes(SW_BF16) + sw_dtype_bytes(SW_U64), 10);
}

static void integers_are_rounded_and_clamped(void **state)
{
    (void)state;
    static const struct {
        enum sw_dtype dtype;
        double in, out;
    } rows[] = {{SW_I8, -128.4, -128},
                {SW_I8, 1e9, 127},
                {SW_I8, -1e9, -128},
                {SW_U8, -1, 0},
                {SW_U8, 255.6, 255},
                {SW_U8, 2.5, 2},
                {SW_I16, 40000, 32767},
                {SW_U16, 65535, 65535},
                {SW_I32, -3e9, -2147483648.0},
                {SW_I32, 2147483647, 2147483647},
                {SW_U32, 5e9, 4294967295.0},
                {SW_I64, -0x1p63, -0x1p63},
                {SW_I64, 1e30, 0x1p63}, /* INT64_MAX as a double */
                {SW_U64, 1e30, 0x1p64},
                {SW_U64, 0x1p63, 0x1p63},
                {SW_I32, NAN, 0},
                {SW_BOOL, 0.5, 1},
                {SW_BOOL, 0, 0}};
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        unsigned char mem[3 * 8];
        memset(mem, 0xee, sizeof(mem));
        sw_store_f64(rows[i].dtype, mem, 1, rows[i].in);
        assert_true(sw_load_f64(rows[i].dtype, mem, 1) == rows[i].out);
        const size_t bytes = sw_dtype_bytes(rows[i].dtype);
        for (size_t j = 0; j < sizeof(mem); j++) { /* neighbours untouched */
            assert_true(mem[j] == 0xee || (j >= bytes && j < 2 * bytes));
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(products),
    cmocka_unit_test(equality),
    cmocka_unit_test(row_major_strides_count_the_elements_behind),
    cmocka_unit_test(overflow_is_refused),
    cmocka_unit_test(printing),
    cmocka_unit_test(dtype_names),
    cmocka_unit_test(integers_are_rounded_and_clamped),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
