// SPDX-License-Identifier: Apache-2.0
// Lane layouts of gpu/module/mma.h. A warp's product of tiles with distinct elements is correct in
// each type, for warps of 32 and 64 lanes, with both ways to load the second factor. The
// instructions are emulated by the vendors' tables of lanes.
#include <stdlib.h>

#include "device/gpu/gpu.h"
#include "device/gpu/open.h"
#include "device/tests/op_case.h"
#include "support/test.h"

enum { N = 16 };

/* Distinct integers that even bf16 represents, in no order; sums of products are exact. */
static int64_t a_of(int row, int k)
{
    return (row * N + k) * 37 % 256;
}
static int64_t b_of(int k, int col)
{
    return ((k * N + col) * 101 + 7) % 256;
}

/* Device memory that holds a tile. */
static void *tile_on(struct sw_device *dev, struct sw_stream_queue *on, enum sw_dtype dtype,
                     int64_t (*element)(int, int), bool transposed)
{
    const size_t bytes = (size_t)(N * N) * sw_dtype_bytes(dtype);
    float host[N * N];
    void *mem = NULL;
    for (int i = 0; i < N * N; i++) {
        const int row = transposed ? i % N : i / N, col = transposed ? i / N : i % N;
        sw_store_f64(dtype, host, i, (double)element(row, col));
    }
    assert_int_equal(sw_device_alloc(dev, SW_MEM_DEVICE, bytes, &mem), SW_OK);
    assert_int_equal(case_to_device(dev, on, mem, host, bytes), SW_OK);
    return mem;
}

static void check_product(struct sw_device *dev, struct sw_stream_queue *on, enum sw_dtype dtype,
                          bool transposed)
{
    const size_t bytes = (size_t)(N * N) * sw_dtype_bytes(dtype);
    float c[N * N];
    void *a = tile_on(dev, on, dtype, a_of, false), *b = tile_on(dev, on, dtype, b_of, transposed);
    void *out = NULL;
    assert_int_equal(sw_device_alloc(dev, SW_MEM_DEVICE, sizeof c, &out), SW_OK);
    struct gpu_product_of_tiles_args args = {.a = a, .b = b, .c = out, .transposed = transposed};
    const struct gpu_call call = {.dev = SW_CONTAINER(dev, struct gpu_device, super)};
    assert_int_equal(sw_gpu_run_kernel(&call, GPU_product_of_tiles, sw_gpu_type_of(dtype),
                                       (struct gpu_grid){.x = 1}, 0, &args, sizeof args),
                     SW_OK);
    assert_int_equal(case_to_host(dev, on, c, out, sizeof c), SW_OK);
    for (int row = 0; row < N; row++) {
        for (int col = 0; col < N; col++) {
            int64_t want = 0;
            for (int k = 0; k < N; k++) {
                want += a_of(row, k) * b_of(k, col);
            }
            if ((double)c[row * N + col] != (double)want) {
                fail_msg("%s on %s%s: element %d, %d is %g, not %lld", sw_dtype_name(dtype),
                         sw_device_kernel_set(dev), transposed ? ", transposed" : "", row, col,
                         (double)c[row * N + col], (long long)want);
            }
        }
    }
    sw_device_free(dev, SW_MEM_DEVICE, a, bytes);
    sw_device_free(dev, SW_MEM_DEVICE, b, bytes);
    sw_device_free(dev, SW_MEM_DEVICE, out, sizeof c);
}

static void test_product_of_tiles_is_the_product(void **state)
{
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    static const char *const backends[] = {"emu32", "emu64"};
    (void)state;
    int n_met = 0;
    for (size_t i = 0; i < SW_LEN(backends); i++) {
        struct sw_device *dev;
        struct sw_stream_queue *on;
        if (sw_gpu_open(backends[i], 0, &dev) < 0) {
            print_message("left out: %s\n", sw_error_message());
            continue;
        }
        n_met++;
        assert_int_equal(dev->ops->stream_open(dev, &on), SW_OK);
        for (size_t d = 0; d < SW_LEN(dtypes); d++) {
            check_product(dev, on, dtypes[d], false);
            check_product(dev, on, dtypes[d], true);
        }
        dev->ops->stream_close(dev, on);
        sw_device_close(dev);
    }
    if (n_met == 0) {
        exit(77);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_product_of_tiles_is_the_product),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
