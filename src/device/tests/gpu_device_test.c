// SPDX-License-Identifier: Apache-2.0
// A GPU as a device, without the mock around it: how the host handles threads, failures and the
// bus. Modules are the emulation's with some calls replaced.
#include <string.h>

#include "device/gpu/blas.h"
#include "device/gpu/open.h"
#include "support/test.h"

static struct gpu_device *open_emulation(void)
{
    struct sw_device *dev = NULL;
    if (sw_gpu_open("emu32", 1, 1, &dev) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        skip();
    }
    return SW_CONTAINER(dev, struct gpu_device, super);
}

static int memory_of_a_device_that_failed(int device, size_t *free_bytes, size_t *total_bytes)
{
    (void)device;
    (void)free_bytes;
    (void)total_bytes;
    return 1;
}

/* Neither disks nor ranks reach the device's memory, so a plan must set aside staging memory. */
static void it_asks_for_memory_to_be_reached_through(void **state)
{
    (void)state;
    struct gpu_device *dev = open_emulation();
    assert_int_equal(dev->super.caps, 0);
    assert_true(dev->super.staging_bytes >= 1 << 20);
    sw_device_close(&dev->super);
}

static void who_waits_for_a_device_that_failed_is_told(void **state)
{
    (void)state;
    struct gpu_device *dev = open_emulation();
    const struct sw_gpu_module *whole = dev->module;
    struct sw_gpu_module module = *whole;
    struct sw_timeline *timeline;
    module.memory = memory_of_a_device_that_failed;
    assert_int_equal(dev->super.ops->timeline_open(&dev->super, &timeline), SW_OK);
    dev->module = &module;
    assert_int_equal(dev->super.ops->timeline_wait(&dev->super, timeline, 1), SW_E_DEVICE);
    assert_non_null(strstr(sw_error_message(), "waiting for a timeline"));
    dev->module = whole;
    dev->super.ops->timeline_close(&dev->super, timeline);
    sw_device_close(&dev->super);
}

static int refuse_to_be_used(int device)
{
    return device == 1 ? 1 : 0;
}

/* Libraries work on the thread's current device, whichever thread opened it. */
static void products_are_asked_for_on_the_device(void **state)
{
    (void)state;
    struct gpu_device *dev = open_emulation();
    const struct sw_gpu_module *whole = dev->module;
    struct sw_gpu_module module = *whole;
    const struct gpu_product shape = {.m = 1,
                                      .n = 8,
                                      .k = 8,
                                      .lda = 8,
                                      .ldb = 8,
                                      .ldd = 8,
                                      .align_a = GPU_ALIGN,
                                      .align_b = GPU_ALIGN,
                                      .align_d = GPU_ALIGN};
    const struct gpu_prepared *product;
    module.use = refuse_to_be_used;
    dev->module = &module;
    assert_int_equal(sw_gpu_product_get(dev, &shape, &product), SW_E_DEVICE);
    dev->module = whole;
    assert_int_equal(sw_gpu_product_get(dev, &shape, &product), SW_OK);
    sw_device_close(&dev->super);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(it_asks_for_memory_to_be_reached_through),
    cmocka_unit_test(who_waits_for_a_device_that_failed_is_told),
    cmocka_unit_test(products_are_asked_for_on_the_device),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
