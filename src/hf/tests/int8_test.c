// SPDX-License-Identifier: Apache-2.0
// INT8 against weights that bitsandbytes made on the CPU (tests/peers/record_int8.py): codes,
// scales of rows and decoded values have the same bits, and its tensors are read from a folder.
#include <stdlib.h>
#include <string.h>

#include "hf/hf.h"
#include "support/test.h"

static const char recorded[] = "tests/cases/int8";

static const struct sw_safetensor *get(const struct sw_hf_folder *folder, const char *tensor,
                                       const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", tensor, what);
    const struct sw_safetensor *t = sw_hf_folder_find(folder, name);
    if (!t) {
        fail_msg("no %s", name);
    }
    return t;
}

static void check_tensor(const struct sw_hf_folder *folder, const char *name)
{
    const struct sw_safetensor *value = get(folder, name, "value");
    const struct sw_safetensor *weight = get(folder, name, "weight");
    const int64_t n = sw_shape_elems(&value->shape), columns = value->shape.dims[1];
    float *x = malloc((size_t)n * sizeof *x);
    int8_t *codes = malloc((size_t)n);
    struct sw_hf_quantized q;
    assert_int_equal(sw_hf_quantized_open(folder, weight, &q), SW_OK);
    assert_true(q.q.form.kind == SW_QUANTIZED_INT8 && sw_shape_equal(&q.shape, &value->shape));
    sw_convert(SW_F32, x, value->dtype, value->data, n);
    for (int64_t at = 0; at < n; at += columns) {
        const float peak = sw_quantized_peak(x + at, columns);
        assert_memory_equal(&peak, (const float *)q.q.scales + at / columns, sizeof peak);
        sw_int8_encode(x + at, columns, peak, codes + at);
    }
    assert_memory_equal(codes, weight->data, (size_t)n);
    for (int64_t at = 0; at < n; at += 77) { /* any part may be decoded alone */
        sw_quantized_decode(&q.q, at, sw_min_i64(77, n - at), SW_F32, x + at);
    }
    assert_memory_equal(x, get(folder, name, "decoded")->data, (size_t)n * sizeof *x);
    free(x);
    free(codes);
}

static void recorded_tensors_have_the_same_bits(void **state)
{
    struct sw_hf_folder *folder = NULL;
    (void)state;
    assert_int_equal(sw_hf_folder_open(recorded, &folder), SW_OK);
    check_tensor(folder, "fp16");
    check_tensor(folder, "bf16");
    sw_hf_folder_close(folder);
}

/* The reciprocal of their largest number is not finite. */
static void tiny_rows_are_0(void **state)
{
    static const float tiny[] = {1e-38f, -1e-40f, 0};
    int8_t codes[3] = {1, 1, 1};
    (void)state;
    sw_int8_encode(tiny, 3, sw_quantized_peak(tiny, 3), codes);
    assert_true(codes[0] == 0 && codes[1] == 0 && codes[2] == 0);
    sw_int8_encode(tiny + 2, 1, 0, codes + 2);
    assert_int_equal(codes[2], 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(recorded_tensors_have_the_same_bits),
    cmocka_unit_test(tiny_rows_are_0),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
