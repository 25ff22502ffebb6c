// SPDX-License-Identifier: Apache-2.0
// Simulated devices: what they say of themselves, and that nothing runs on them. That they answer
// a planner as a GPU does is in look/tests/on_cluster_test.c.
#include <stdlib.h>

#include "device/device.h"
#include "support/test.h"

static struct sw_device *open_sim(const char *name, int n_world)
{
    struct sw_device *dev = NULL;
    const struct sw_device_place place = {.n_ranks = 1, .n_world = n_world};
    if (sw_device_open_at(name, 1, &place, &dev) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return dev;
}

static void the_memory_is_the_clusters(void **state)
{
    (void)state;
    struct sw_device *dev = open_sim("sim:mi250x-node", 4);
    assert_int_equal(dev->caps, SW_DEVICE_SIMULATED);
    assert_true(dev->memory_bytes == (64ull << 30) / 64 * 63);
    assert_true(dev->host_bytes == (512ull << 30) / 4);
    assert_true(dev->disk_bytes == 2 * 1920000000000ull / 4);
    assert_true(dev->staging_bytes > 0);
    assert_string_equal(dev->what, "sim:mi250x-node, Instinct MI250X, one die (gfx90a), 64.0 GiB");
    sw_device_close(dev);
    dev = open_sim("sim:share/clusters/mi300x-node.json", 0);
    assert_true(dev->host_bytes == 1850ull << 30 && dev->disk_bytes == 0);
    sw_device_close(dev);
}

static void nothing_can_be_done_with_it(void **state)
{
    (void)state;
    struct sw_device *dev = open_sim("sim:dgx2-v100", 1);
    struct sw_stream_queue *queue = NULL;
    struct sw_timeline *timeline = NULL;
    struct sw_kernel *kernel = NULL;
    struct sw_op op = {.kind = SW_OP_MATMUL};
    void *mem = NULL;
    assert_int_equal(sw_device_alloc(dev, SW_MEM_DEVICE, 4096, &mem), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "is simulated and computes nothing"));
    assert_int_equal(sw_device_alloc(dev, SW_MEM_HOST, 4096, &mem), SW_E_UNSUP);
    assert_int_equal(dev->ops->stream_open(dev, &queue), SW_E_UNSUP);
    assert_int_equal(dev->ops->timeline_open(dev, &timeline), SW_E_UNSUP);
    assert_int_equal(sw_device_prepare(dev, &(struct sw_op_desc){.op = &op}, &kernel), SW_E_UNSUP);
    assert_int_equal(dev->n_allocs, 0);
    sw_device_close(dev);
}

static void a_library_of_the_back_end_is_assumed(void **state)
{
    (void)state;
    static const struct {
        const char *name, *wish, *products;
    } cases[] = {{"sim:h100-node", NULL, "sim cuda sm_90 processors:132 products:cublaslt"},
                 {"sim:mi300x-node", NULL, "sim hip gfx942 processors:304 products:hipblaslt"},
                 {"sim:mi100-node", NULL, "sim hip gfx908 processors:120 products:rocblas"},
                 {"sim:mi300x-node", "rocblas", "sim hip gfx942 processors:304 products:rocblas"},
                 {"sim:h100-node", "own", "sim cuda sm_90 processors:132 products:own"}};
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        if (cases[i].wish) {
            setenv("SPILLWAY_GPU_BLAS", cases[i].wish, 1);
        }
        struct sw_device *dev = open_sim(cases[i].name, 1);
        assert_string_equal(sw_device_kernel_set(dev), cases[i].products);
        sw_device_close(dev);
        unsetenv("SPILLWAY_GPU_BLAS");
    }
    struct sw_device *dev = NULL;
    setenv("SPILLWAY_GPU_BLAS", "rocblas", 1);
    assert_int_equal(sw_device_open("sim:h100-node", 1, &dev), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "device cuda has own, cublaslt"));
    unsetenv("SPILLWAY_GPU_BLAS");
}

static void auto_is_the_device_that_is_asked_for(void **state)
{
    (void)state;
    assert_string_equal(sw_device_chosen("cpu"), "cpu");
    setenv("SPILLWAY_DEVICE", "cuda", 1);
    assert_string_equal(sw_device_chosen("auto"), "cuda");
    assert_string_equal(sw_device_chosen("mock"), "mock");
    unsetenv("SPILLWAY_DEVICE");
    assert_string_not_equal(sw_device_chosen("auto"), "auto");
}

static void other_names_are_refused(void **state)
{
    (void)state;
    struct sw_device *dev = NULL;
    assert_int_equal(sw_device_open("sim", 1, &dev), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "sim:CLUSTER"));
    assert_int_equal(sw_device_open("sim:", 1, &dev), SW_E_ARG);
    assert_int_equal(sw_device_open("sim:h100", 1, &dev), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "no cluster \"h100\""));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_memory_is_the_clusters),
    cmocka_unit_test(nothing_can_be_done_with_it),
    cmocka_unit_test(a_library_of_the_back_end_is_assumed),
    cmocka_unit_test(auto_is_the_device_that_is_asked_for),
    cmocka_unit_test(other_names_are_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
