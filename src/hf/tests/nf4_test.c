// SPDX-License-Identifier: Apache-2.0
// NF4 against values that bitsandbytes recorded: codes, scales and decoded values have the same
// bits; what double quantization makes agrees to the recorded tolerances. A recorded weight in the
// form of files on the hub is read.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hf/hf.h"
#include "json/json.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

static char folder[TEST_PATH_CAP];

static int begin(char **argv)
{
    (void)argv;
    return test_fixture_folder("quantize", folder) ? 0 : TEST_EXIT_SKIPPED;
}

static const struct sw_safetensor *get(const struct sw_safetensors *file, const char *tensor,
                                       const char *what)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", tensor, what);
    const struct sw_safetensor *t = sw_safetensors_find(file, name);
    if (!t) {
        fail_msg("no %s", name);
    }
    return t;
}

static double tolerance(const struct sw_json_doc *doc, const char *key)
{
    const struct sw_json *all =
        sw_json_get(sw_json_root((struct sw_json_doc *)(uintptr_t)doc), "tolerance");
    const struct sw_json *v = sw_json_get(all, key);
    assert_non_null(v);
    return v->number;
}

static void near(const char *what, const float *got, const float *wanted, int64_t n, double rel)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - (double)wanted[i]) <=
              rel * fmax(fabs((double)wanted[i]), 1e-30))) {
            fail_msg("%s[%lld]: %.9g, wanted %.9g", what, (long long)i, (double)got[i],
                     (double)wanted[i]);
        }
    }
}

static void check_tensor(const struct sw_safetensors *file, const struct sw_json_doc *doc,
                         const char *name)
{
    const struct sw_safetensor *value = get(file, name, "value");
    const int64_t n = sw_shape_elems(&value->shape), n_blocks = sw_ceil_div(n, SW_NF4_BLOCK);
    const int64_t n_nested = sw_ceil_div(n_blocks, SW_NF4_NESTED);
    float *x = malloc((size_t)n * 4), *y = malloc((size_t)n * 4);
    float *scales = malloc((size_t)n_blocks * 4), *nested = malloc((size_t)n_nested * 4), offset;
    uint8_t *packed = malloc((size_t)(n + 1) / 2), *codes = malloc((size_t)n_blocks);
    void *rounded = malloc((size_t)n * 8);
    float map[256];
    struct sw_quantized q = {
        .form = {SW_QUANTIZED_NF4, false, value->dtype}, .codes = packed, .scales = scales};
    sw_convert(SW_F32, x, value->dtype, value->data, n);
    sw_nf4_scales(x, n, scales);
    sw_nf4_encode(x, n, scales, packed);
    assert_memory_equal(packed, get(file, name, "packed")->data, (size_t)(n + 1) / 2);
    assert_memory_equal(scales, get(file, name, "absmax")->data, (size_t)n_blocks * 4);
    for (int64_t at = 0; at < n; at += 77) { /* any part may be decoded alone */
        sw_quantized_decode(&q, at, sw_min_i64(77, n - at), value->dtype,
                            (char *)rounded + (size_t)at * sw_dtype_bytes(value->dtype));
    }
    assert_memory_equal(rounded, get(file, name, "dequantized")->data,
                        (size_t)n * sw_dtype_bytes(value->dtype));

    double sum = 0;
    for (int64_t i = 0; i < n_blocks; i++) {
        sum += (double)scales[i];
    }
    offset = (float)(sum / (double)n_blocks);
    sw_nf4_map(map);
    sw_nf4_encode_scales(scales, n_blocks, map, offset, codes, nested);
    const float *wanted = get(file, name, "double.nested_absmax")->data;
    near("offset", &offset, get(file, name, "double.offset")->data, 1,
         tolerance(doc, "double.offset_rel"));
    near("nested", nested, wanted, n_nested, tolerance(doc, "double.nested_absmax_rel"));
    if (wanted[0] > 0) { /* else the recorded codes mean nothing */
        assert_memory_equal(codes, get(file, name, "double.absmax_codes")->data, (size_t)n_blocks);
    }
    q.form.is_nested = true;
    q.scales = codes;
    q.map = map;
    q.nested = nested;
    q.offset = offset;
    sw_quantized_decode(&q, 0, n, SW_F32, y);
    const struct sw_safetensor *back = get(file, name, "double.dequantized");
    sw_convert(SW_F32, x, back->dtype, back->data, n);
    near("double.dequantized", y, x, n, tolerance(doc, "double.dequantized_rel"));
    free(x);
    free(y);
    free(scales);
    free(nested);
    free(packed);
    free(codes);
    free(rounded);
}

static void recorded_tensors_have_the_same_codes(void **state)
{
    struct sw_safetensors *file = NULL;
    struct sw_json_doc *doc = NULL;
    float map[256];
    (void)state;
    assert_int_equal(sw_safetensors_open(test_in(folder, "nf4.safetensors"), &file), SW_OK);
    assert_int_equal(sw_json_read(test_in(folder, "nf4.json"), SW_JSON_STRICT, &doc), SW_OK);
    sw_nf4_map(map);
    assert_memory_equal(map, get(file, "code", "dynamic")->data, sizeof map);
    for (int i = 0; i < 16; i++) {
        assert_true(sw_nf4_level(i) == ((const float *)get(file, "code", "nf4")->data)[i]);
    }
    const struct sw_json *list = sw_json_get(sw_json_root(doc), "tensors");
    for (const struct sw_json *t = list->first; t; t = t->next) {
        check_tensor(file, doc, sw_json_get(t, "name")->string);
    }
    sw_json_close(doc);
    sw_safetensors_close(file);
}

/* A folder with one weight in the form of files on the hub. */
static void a_recorded_file_is_read(void **state)
{
    struct sw_safetensors *file = NULL;
    struct sw_hf_folder *hub = NULL;
    struct sw_hf_quantized weight;
    char path[TEST_PATH_CAP];
    size_t bytes = 0;
    char *data = NULL;
    (void)state;
    snprintf(path, sizeof path, "%s", test_in(folder, "nf4_linear.safetensors"));
    assert_int_equal(sw_file_read(path, &data, &bytes), SW_OK);
    assert_int_equal(sw_mkdirs(test_at("hub")), SW_OK);
    assert_int_equal(sw_file_write_atomic(test_at("hub/model.safetensors"), data, bytes), SW_OK);
    sw_free(data);
    assert_int_equal(sw_safetensors_open(path, &file), SW_OK);
    assert_int_equal(sw_hf_folder_open(test_at("hub"), &hub), SW_OK);
    assert_int_equal(sw_hf_quantized_open(hub, sw_hf_folder_find(hub, "layer.weight"), &weight),
                     SW_OK);
    const struct sw_safetensor *wanted = sw_safetensors_find(file, "dequantized");
    const int64_t n = sw_shape_elems(&weight.shape);
    assert_true(sw_shape_equal(&weight.shape, &wanted->shape));
    assert_true(weight.q.form.kind == SW_QUANTIZED_NF4 && weight.q.form.is_nested);
    float *back = malloc((size_t)n * sizeof *back);
    sw_quantized_decode(&weight.q, 0, n, SW_F32, back);
    assert_memory_equal(back, wanted->data, (size_t)n * sizeof *back);
    free(back);
    sw_hf_folder_close(hub);
    sw_safetensors_close(file);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(recorded_tensors_have_the_same_codes),
                                          cmocka_unit_test(a_recorded_file_is_read)};

const struct test_program sw_tests = {.begin = begin, TEST_TABLE(tests)};
