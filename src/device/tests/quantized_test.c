// SPDX-License-Identifier: Apache-2.0
// A product that decodes its weight block by block has the bits of one with the weight that
// DEQUANTIZE makes, and needs a workspace that does not grow with the weight.
#include "device/gpu/open.h"
#include "device/tests/op_cases.h"
#include "support/test.h"

static const struct {
    enum sw_dtype dtype;
    struct quantized_shape shape;
} cases[] = {
    /* several blocks of columns on a CPU (the first one also on a GPU), the last of them short */
    {SW_F32, {500, 4099, 2, true, {SW_QUANTIZED_NF4, true, SW_BF16}}},
    {SW_BF16, {4100, 520, 2, false, {SW_QUANTIZED_NF4, false, SW_F32}}},
    /* one block, with ends within a byte */
    {SW_BF16, {67, 129, 33, false, {SW_QUANTIZED_NF4, true, SW_F32}}},
    {SW_F32, {67, 129, 33, true, {SW_QUANTIZED_INT8, false, SW_F16}}},
    {SW_BF16, {67, 130, 33, false, {SW_QUANTIZED_INT8, false, SW_F32}}},
};

static void run(struct sw_device *dev, const struct op_case *c, struct op_case *result)
{
    if (case_run(dev, c, result) < 0) {
        fail_msg("%s on %s: %s", c->name, sw_device_kernel_set(dev), sw_error_message());
    }
}

static void copy_in(struct op_case *c, const struct case_tensor *from)
{
    const int i = case_in_zero(c, from->view.dtype, from->view.shape);
    memcpy(c->in[i].view.data, from->view.data, from->bytes);
}

static void check(struct sw_device *dev, enum sw_dtype dtype, const struct quantized_shape *shape)
{
    struct op_case c, have, decode, weight, product, want;
    case_quantized_product(&c, dtype, shape);
    const struct sw_attrs *attrs = &c.op.attrs;
    const int n_weight = shape->form.is_nested ? 3 : 2;
    run(dev, &c, &have);
    case_init(&decode, SW_OP_DEQUANTIZE, "the weight of %s", c.name);
    decode.op.attrs.weight = attrs->weight;
    for (int i = 1; i <= n_weight; i++) {
        copy_in(&decode, &c.in[i]);
    }
    case_out(&decode, dtype, SW_SHAPE(shape->rows, shape->columns));
    run(dev, &decode, &weight);
    case_init(&product, SW_OP_MATMUL, "the product of %s", c.name);
    product.op.attrs.matmul = attrs->matmul;
    copy_in(&product, &c.in[0]);
    copy_in(&product, &weight.out[0]);
    if (attrs->matmul.has_bias) {
        copy_in(&product, &c.in[1 + n_weight]);
    }
    for (int i = 0; i < c.op.n_out; i++) {
        case_out(&product, dtype, c.out[i].view.shape);
    }
    run(dev, &product, &want);
    for (int i = 0; i < c.op.n_out; i++) {
        if (!case_same_bits(&have, &want, i)) {
            fail_msg("%s on %s: output %d has other bits than decoding the whole weight", c.name,
                     sw_device_kernel_set(dev), i);
        }
    }
    case_fini(&c);
    case_fini(&have);
    case_fini(&decode);
    case_fini(&weight);
    case_fini(&product);
    case_fini(&want);
}

static void check_all(struct sw_device *dev)
{
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        check(dev, cases[i].dtype, &cases[i].shape);
    }
    sw_device_close(dev);
}

static void blocks_have_the_bits_of_the_whole(void **state)
{
    static const char *const limits[] = {NULL, "portable"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(limits); i++) {
        const struct sw_cpu_options options = {.n_threads = 2, .max_isa = limits[i]};
        struct sw_device *dev;
        assert_int_equal(sw_device_open_cpu(&options, &dev), SW_OK);
        check_all(dev);
    }
}

static void blocks_on_a_gpu_have_the_bits_of_the_whole(void **state)
{
    struct sw_device *dev;
    (void)state;
    if (sw_gpu_open("emu32", 0, &dev) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        return;
    }
    check_all(dev);
}

static size_t workspace(struct sw_device *dev, int64_t rows)
{
    struct op_case c;
    struct sw_op_desc desc = {.op = &c.op};
    struct sw_kernel_info info;
    const struct quantized_shape shape = {rows, 1024, 4, true, {SW_QUANTIZED_NF4, false, SW_F32}};
    case_quantized_product(&c, SW_BF16, &shape);
    for (int i = 0; i < c.op.n_in; i++) {
        desc.in[i] = c.in[i].view;
    }
    desc.out[0] = c.out[0].view;
    sw_device_query(dev, &desc, &info);
    assert_true(info.supported);
    case_fini(&c);
    return info.workspace_bytes;
}

static void the_workspace_is_that_of_a_block(void **state)
{
    const struct sw_cpu_options options = {.n_threads = 2};
    struct sw_device *dev;
    (void)state;
    assert_int_equal(sw_device_open_cpu(&options, &dev), SW_OK);
    const size_t whole = 8192 * 1024 * sizeof(uint16_t);
    assert_true(workspace(dev, 8192) < whole);
    assert_int_equal(workspace(dev, 16384), workspace(dev, 8192));
    sw_device_close(dev);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(blocks_have_the_bits_of_the_whole),
    cmocka_unit_test(blocks_on_a_gpu_have_the_bits_of_the_whole),
    cmocka_unit_test(the_workspace_is_that_of_a_block),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
