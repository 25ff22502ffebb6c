// SPDX-License-Identifier: Apache-2.0
// Products of a GPU: operands that do not lie as the library was promised are refused, what was
// chosen is told, libraries are found where it is said.
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

static void describe(const struct gpu_device *dev, char *out, size_t cap)
{
    struct sw_str text = {0};
    sw_gpu_products_describe(dev->products, &text);
    snprintf(out, cap, "%s", sw_str_text(&text));
    sw_str_fini(&text);
}

/* What is looked at is not a kernel's; what is prepared is named once, with what was chosen, by the
 * mock in front too. */
static void what_was_chosen_for_kernels_is_told(void **state)
{
    struct sw_device *super = open_emulation(), *mock = NULL;
    const struct sw_mock_options options = {.n_threads = 1, .inner = super};
    const struct gpu_device *dev = SW_CONTAINER(super, struct gpu_device, super);
    struct sw_kernel_info info;
    struct sw_kernel *kernels[2];
    struct sw_str through = {0};
    struct op_case c;
    char text[1024];
    (void)state;
    case_init(&c, SW_OP_MATMUL, "matmul");
    case_in(&c, SW_BF16, SW_SHAPE(5, 7), -1, 1);
    case_in(&c, SW_BF16, SW_SHAPE(7, 3), -1, 1);
    case_out(&c, SW_F32, SW_SHAPE(5, 3));
    struct sw_op_desc desc = {
        .op = &c.op, .in = {c.in[0].view, c.in[1].view}, .out = {c.out[0].view}};
    sw_device_query(super, &desc, &info);
    assert_true(info.supported);
    describe(dev, text, sizeof text);
    assert_string_equal(text, "");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sw_device_prepare(super, &desc, &kernels[i]), SW_OK);
    }
    describe(dev, text, sizeof text);
    assert_ptr_equal(
        strstr(text, "5x7x3 of bf16 to f32, rows of 7 3 3, aligned to 16 16 16: algorithm "), text);
    assert_null(strchr(text, ';'));
    assert_int_equal(sw_device_open_mock(&options, &mock), SW_OK);
    sw_device_algorithms(mock, &through);
    assert_string_equal(sw_str_text(&through), text);
    sw_str_fini(&through);
    for (int i = 0; i < 2; i++) {
        super->ops->release(super, kernels[i]);
    }
    case_fini(&c);
    sw_device_close(mock);
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
        cmocka_unit_test(what_was_chosen_for_kernels_is_told),
        cmocka_unit_test(a_library_is_found_in_the_folders_that_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
