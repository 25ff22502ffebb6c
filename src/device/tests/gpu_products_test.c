// SPDX-License-Identifier: Apache-2.0
// Products of a GPU: operands that do not lie as the library was promised are refused, what was
// chosen has a digest that does not depend on the order, libraries are found where it is said.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/gpu/blas.h"
#include "device/gpu/libs.h"
#include "device/gpu/open.h"
#include "device/tests/op_case.h"
#include "support/test.h"

static struct sw_device *open_emulation(void)
{
    struct sw_device *dev = NULL;
    if (sw_gpu_open("emu32", 0, 1, &dev) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        exit(77);
    }
    return dev;
}

static void operands_that_are_not_aligned_are_refused(void **state)
{
    struct sw_device *dev = open_emulation();
    struct op_case c, result;
    (void)state;
    for (int shift = 0; shift <= 8; shift += 4) { /* elements of 2 bytes */
        case_init(&c, SW_OP_MATMUL, "matmul shifted by %d", shift);
        case_in(&c, SW_BF16, SW_SHAPE(5, 7), -1, 1);
        case_in(&c, SW_BF16, SW_SHAPE(7, 3), -1, 1);
        case_out(&c, SW_BF16, SW_SHAPE(5, 3));
        c.shift = shift;
        const sw_status st = case_run(dev, &c, &result);
        assert_int_equal(st, shift == 4 ? SW_E_ARG : SW_OK);
        assert_true(shift != 4 || strstr(sw_error_message(), "wanted at a multiple of 16 bytes"));
        case_fini(&result);
        case_fini(&c);
    }
    sw_device_close(dev);
}

static struct gpu_product plain(int64_t m)
{
    return (struct gpu_product){.m = m,
                                .n = 8,
                                .k = 8,
                                .lda = 8,
                                .ldb = 8,
                                .ldd = 8,
                                .align_a = GPU_ALIGN,
                                .align_b = GPU_ALIGN,
                                .align_d = GPU_ALIGN};
}

static void what_was_chosen_has_a_digest_whatever_the_order(void **state)
{
    struct sw_device *devices[2] = {open_emulation(), open_emulation()};
    uint64_t digests[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct gpu_device *dev = SW_CONTAINER(devices[i], struct gpu_device, super);
        const struct gpu_product shapes[] = {plain(i ? 2 : 1), plain(i ? 1 : 2)};
        const struct gpu_prepared *first, *second, *again;
        assert_int_equal(sw_gpu_product_get(dev, &shapes[0], &first), SW_OK);
        const uint64_t one = sw_gpu_products_digest(dev->products);
        assert_int_equal(sw_gpu_product_get(dev, &shapes[1], &second), SW_OK);
        assert_int_equal(sw_gpu_product_get(dev, &shapes[0], &again), SW_OK);
        assert_ptr_equal(again, first);
        assert_ptr_not_equal(second, first);
        assert_non_null(strstr(first->algorithm, "algorithm "));
        digests[i] = sw_gpu_products_digest(dev->products);
        assert_true(digests[i] != one);
    }
    assert_true(digests[0] == digests[1]);
    sw_device_close(devices[0]);
    sw_device_close(devices[1]);
}

static void a_library_is_found_in_the_folders_that_are_named(void **state)
{
    char folder[] = "/tmp/spillway_libs_XXXXXX", folders[128], file[128], found[256];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/libspillway_nowhere.so.3", folder);
    snprintf(folders, sizeof folders, "/nonexistent:%s", folder);
    assert_int_equal(setenv("SPILLWAY_GPU_LIBS", folders, 1), 0);
    assert_false(sw_gpu_find_library("libspillway_nowhere.so.3", found, sizeof found));
    FILE *made = fopen(file, "w");
    assert_non_null(made);
    fclose(made);
    assert_true(sw_gpu_find_library("libspillway_nowhere.so.3", found, sizeof found));
    assert_string_equal(found, file);
    /* And where the system looks. */
    assert_true(sw_gpu_find_library("libc.so.6", found, sizeof found));
    assert_true(found[0] == '/');
    unsetenv("SPILLWAY_GPU_LIBS");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_that_are_not_aligned_are_refused),
        cmocka_unit_test(what_was_chosen_has_a_digest_whatever_the_order),
        cmocka_unit_test(a_library_is_found_in_the_folders_that_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
