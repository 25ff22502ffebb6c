// SPDX-License-Identifier: Apache-2.0
// Products of a GPU: operands that lack the promised alignment are refused, the chosen algorithms
// are reported, and libraries are found in the given folders.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/gpu/blas.h"
#include "device/gpu/libs.h"
#include "device/gpu/open.h"
#include "device/tests/op_case.h"
#include "support/test.h"

static struct sw_device *open_with(const char *blas, const char *emu)
{
    struct sw_device *dev = NULL;
    char path[512];
    if (!sw_gpu_module_path(emu, path, sizeof path)) {
        print_message("skipped: there is no %s\n", path);
        exit(77);
    }
    assert_int_equal(setenv("SPILLWAY_GPU_BLAS", blas, 1), 0);
    if (sw_gpu_open(emu, 0, &dev) < 0) {
        fail_msg("%s", sw_error_message());
    }
    unsetenv("SPILLWAY_GPU_BLAS");
    return dev;
}

static struct sw_device *open_emulation(void)
{
    return open_with("", "emu32");
}

/* A view of a value's rows may begin at any of its elements; the library is told. */
static void operands_may_begin_anywhere_in_others(void **state)
{
    static const char *const emus[] = {"emu32", "emu64"};
    (void)state;
    for (int i = 0; i < (int)(2 * SW_LEN(emus)); i++) {
        struct sw_device *dev = open_with(i / 2 ? "own" : "", emus[i % 2]);
        struct op_case c, want, got;
        case_init(&c, SW_OP_MATMUL, "matmul somewhere");
        c.op.attrs.matmul.has_bias = true;
        case_in(&c, SW_BF16, SW_SHAPE(5, 7), -1, 1);
        case_in(&c, SW_BF16, SW_SHAPE(7, 3), -1, 1);
        case_in(&c, SW_BF16, SW_SHAPE(3), -1, 1);
        case_out(&c, SW_BF16, SW_SHAPE(5, 3));
        assert_int_equal(case_run(dev, &c, &want), SW_OK);
        for (c.shift = 1; c.shift <= 8; c.shift++) { /* 2-byte elements */
            if (case_run(dev, &c, &got) < 0) {
                fail_msg("%s", sw_error_message());
            }
            assert_true(case_error(&got, &want, 0) <= case_tolerance(&got, 0));
            case_fini(&got);
        }
        case_fini(&want);
        case_fini(&c);
        sw_device_close(dev);
    }
}

/* Refuses them if the alignment was not given when the kernel was prepared. */
static void operands_that_are_not_aligned_as_was_said_are_refused(void **state)
{
    struct sw_device *dev = open_with("", "emu32");
    struct sw_stream_queue *on;
    struct sw_kernel *kernel;
    struct op_case c;
    void *mem;
    (void)state;
    case_init(&c, SW_OP_MATMUL, "matmul");
    case_in(&c, SW_BF16, SW_SHAPE(5, 7), -1, 1);
    case_in(&c, SW_BF16, SW_SHAPE(7, 3), -1, 1);
    case_out(&c, SW_BF16, SW_SHAPE(5, 3));
    struct sw_op_desc desc = {
        .op = &c.op, .in = {c.in[0].view, c.in[1].view}, .out = {c.out[0].view}};
    assert_int_equal(sw_device_alloc(dev, SW_MEM_DEVICE, 8192, &mem), SW_OK);
    assert_int_equal(dev->ops->stream_open(dev, &on), SW_OK);
    assert_int_equal(sw_device_prepare(dev, &desc, &kernel), SW_OK);
    void *in[2] = {mem, (char *)mem + 1024 + 8}, *out[1] = {(char *)mem + 2048};
    assert_int_equal(sw_device_launch(dev, on, kernel, in, out, (char *)mem + 4096,
                                      (double *)(void *)((char *)mem + 3072)),
                     SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "wanted at a multiple of 16 bytes"));
    dev->ops->release(dev, kernel);
    dev->ops->stream_close(dev, on);
    sw_device_free(dev, SW_MEM_DEVICE, mem, 8192);
    case_fini(&c);
    sw_device_close(dev);
}

static void describe(const struct gpu_device *dev, char *out, size_t cap)
{
    struct sw_str text = {0};
    sw_gpu_products_describe(dev->products, &text);
    snprintf(out, cap, "%s", sw_str_text(&text));
    sw_str_fini(&text);
}

/* Products that were only queried are not listed. Prepared ones are listed once with their
 * algorithm, also through the mock. */
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

/* The epilogue of cuBLASLt and hipBLASLt is tanh GELU. It is asked for if the result has 16 bits
 * and the kept input is aligned as the library requires. If there is no algorithm with it, the
 * product goes without. */
static void gelu_by_tanh_is_asked_of_the_library(void **state)
{
    static const struct {
        enum sw_act act;
        enum sw_dtype dtype;
        int64_t m, n;
        bool keeps;
        const char *said, *not_said;
    } rows[] = {
        {SW_ACT_GELU_TANH, SW_BF16, 5, 16, true, "with bias and gelu, kept before it", NULL},
        {SW_ACT_GELU_TANH, SW_F16, 5, 16, false, "with bias and gelu, rows", "kept"},
        {SW_ACT_GELU_TANH, SW_BF16, 5, 12, false, "with bias and gelu, rows", "kept"},
        /* not a multiple of 8 */
        {SW_ACT_GELU_TANH, SW_BF16, 5, 12, true, "with bias, rows", "gelu"},
        /* no algorithm with the epilogue */
        {SW_ACT_GELU_TANH, SW_BF16, 1, 16, true, "with bias, rows", "gelu"},
        {SW_ACT_GELU_TANH, SW_F32, 5, 16, true, "with bias, rows", "gelu"},
        {SW_ACT_GELU, SW_BF16, 5, 16, true, "with bias, rows", "gelu"},
        {SW_ACT_RELU, SW_BF16, 5, 16, false, "with bias, rows", "gelu"},
    };
    static const char *const emus[] = {"emu32", "emu64"};
    (void)state;
    for (size_t i = 0; i < 2 * SW_LEN(rows); i++) {
        struct sw_device *super = open_with("", emus[i % 2]);
        const struct sw_op op = {
            .kind = SW_OP_MATMUL,
            .n_in = 3,
            .n_out = 1 + rows[i / 2].keeps,
            .attrs.matmul = {.has_bias = true, .act = rows[i / 2].act},
        };
        struct sw_op_desc desc = {.op = &op};
        struct sw_kernel *kernel;
        char text[1024];
        const struct sw_shape shapes[] = {SW_SHAPE(rows[i / 2].m, 8), SW_SHAPE(8, rows[i / 2].n),
                                          SW_SHAPE(rows[i / 2].n)};
        for (int k = 0; k < 3; k++) {
            desc.in[k] = (struct sw_view){.dtype = rows[i / 2].dtype, .shape = shapes[k]};
        }
        for (int k = 0; k < 2; k++) {
            desc.out[k] = (struct sw_view){.dtype = rows[i / 2].dtype,
                                           .shape = SW_SHAPE(rows[i / 2].m, rows[i / 2].n)};
        }
        assert_int_equal(sw_device_prepare(super, &desc, &kernel), SW_OK);
        describe(SW_CONTAINER(super, struct gpu_device, super), text, sizeof text);
        if (!strstr(text, rows[i / 2].said) || strchr(text, ';') ||
            (rows[i / 2].not_said && strstr(text, rows[i / 2].not_said))) {
            fail_msg("row %d on %s: %s", (int)i / 2, emus[i % 2], text);
        }
        super->ops->release(super, kernel);
        sw_device_close(super);
    }
}

static void a_library_that_is_named_makes_the_products_or_nobody_does(void **state)
{
    struct sw_device *dev = open_with("rocblas", "emu64");
    (void)state;
    assert_non_null(strstr(sw_device_kernel_set(dev), "products:rocblas:stand-in."));
    sw_device_close(dev);
    assert_int_equal(setenv("SPILLWAY_GPU_BLAS", "blis", 1), 0);
    assert_int_equal(sw_gpu_open("emu64", 0, &dev), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(),
                           "SPILLWAY_GPU_BLAS=blis: device emu has own, hipblaslt, rocblas"));
    assert_int_equal(setenv("SPILLWAY_GPU_BLAS", "rocblas", 1), 0);
    assert_int_equal(sw_gpu_open("emu32", 0, &dev), SW_E_ARG);
    unsetenv("SPILLWAY_GPU_BLAS");
}

static void keep_line(void *ctx, enum sw_log_level level, const char *text)
{
    (void)level;
    snprintf(ctx, 512, "%s", text);
}

/* On an MI100, rocBLAS is used: hipBLASLt opens, and has no product. One that is asked for is used
 * as far as it can, with a warning. */
static void an_mi100_gets_the_library_that_has_code_for_it(void **state)
{
    (void)state;
    char warning[512] = "";
    struct sw_kernel *kernel;
    const struct sw_op op = {.kind = SW_OP_MATMUL, .n_in = 2, .n_out = 1};
    const struct sw_view view = {.dtype = SW_BF16, .shape = SW_SHAPE(8, 8)};
    const struct sw_op_desc desc = {.op = &op, .in = {view, view}, .out = {view}};
    static const struct {
        const char *wish, *products, *warning;
    } rows[] = {{"", "products:rocblas:", ""},
                {"hipblaslt", "products:hipblaslt:", " has no product of 8x8x8 of bf16 to bf16"}};
    assert_int_equal(setenv("SPILLWAY_STANDIN_ARCH", "gfx908", 1), 0);
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct sw_device *dev = open_with(rows[i].wish, "emu64");
        if (!strstr(sw_device_kernel_set(dev), rows[i].products)) {
            fail_msg("wanted %s, got %s", rows[i].products, sw_device_kernel_set(dev));
        }
        sw_log_set_sink(keep_line, warning);
        assert_int_equal(sw_device_prepare(dev, &desc, &kernel), SW_OK);
        sw_log_set_sink(NULL, NULL);
        assert_true(*rows[i].warning ? strstr(warning, rows[i].warning) != NULL : !*warning);
        dev->ops->release(dev, kernel);
        sw_device_close(dev);
    }
    unsetenv("SPILLWAY_STANDIN_ARCH");
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
    /* The system's search path is searched, too. */
    assert_true(sw_gpu_find_library("libc.so.6", found, sizeof found));
    assert_true(found[0] == '/');
    unsetenv("SPILLWAY_GPU_LIBS");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* Opens emu32 with these folders: path of its library ("" = our kernel), and the last warning. */
static void open_in(const char *folders, char path[512], char warning[512])
{
    *warning = '\0';
    assert_int_equal(setenv("SPILLWAY_GPU_LIBS", folders, 1), 0);
    sw_log_set_sink(keep_line, warning);
    struct sw_device *dev = open_emulation();
    sw_log_set_sink(NULL, NULL);
    unsetenv("SPILLWAY_GPU_LIBS");
    const struct gpu_device *gpu = SW_CONTAINER(dev, struct gpu_device, super);
    const char *found = sw_gpu_products_path(gpu->products);
    snprintf(path, 512, "%s", found ? found : "");
    sw_device_close(dev);
}

static void products_are_made_by_a_library_of_the_folders_that_are_named(void **state)
{
    static const char name[] = "spillway_emu_cublaslt.so", ours[] = "our own slow kernel is used";
    char folder[] = "/tmp/spillway_libs_XXXXXX", other[] = "/tmp/spillway_none_XXXXXX";
    char file[128], folders[128];
    char beside[512], path[512], warning[512];
    (void)state;
    open_in("", beside, warning);
    assert_string_equal(warning, "");
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/%s", folder, name);
    /* The folder is empty. */
    open_in(folder, path, warning);
    assert_string_equal(path, beside);
    assert_non_null(strstr(warning, "SPILLWAY_GPU_LIBS=/tmp/spillway_libs_"));
    assert_non_null(strstr(warning, beside));
    /* The library is in the second folder. */
    assert_int_equal(symlink(beside, file), 0);
    snprintf(folders, sizeof folders, "/nonexistent:%s", folder);
    open_in(folders, path, warning);
    assert_string_equal(path, file);
    assert_string_equal(warning, "");
    /* An invalid file, elsewhere: the loader recognises libraries it has opened by their path. */
    assert_int_equal(unlink(file) | rmdir(folder), 0);
    assert_non_null(mkdtemp(other));
    snprintf(file, sizeof file, "%s/%s", other, name);
    FILE *made = fopen(file, "w");
    assert_non_null(made);
    fclose(made);
    open_in(other, path, warning);
    assert_string_equal(path, "");
    assert_non_null(strstr(warning, ours));
    assert_int_equal(unlink(file) | rmdir(other), 0);
}

/* A virtual environment that is not activated, but whose bin folder is in PATH. */
static void a_library_is_found_beside_the_python_in_path(void **state)
{
    static const char *const folders[] = {"",
                                          "/bin",
                                          "/lib",
                                          "/lib/python3.99",
                                          "/lib/python3.99/site-packages",
                                          "/lib/python3.99/site-packages/nvidia",
                                          "/lib/python3.99/site-packages/nvidia/cu13",
                                          "/lib/python3.99/site-packages/nvidia/cu13/lib"};
    char root[] = "/tmp/spillway_venv_XXXXXX", python[128], library[256], path[8192], found[512];
    const char *before = getenv("PATH");
    (void)state;
    assert_non_null(mkdtemp(root));
    for (size_t i = 1; i < SW_LEN(folders); i++) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(python, sizeof python, "%s/bin/python3", root);
    snprintf(library, sizeof library, "%s%s/libspillway_nowhere.so.3", root,
             folders[SW_LEN(folders) - 1]);
    /* the base interpreter does not matter, only the link */
    assert_int_equal(symlink("/nowhere", python), 0);
    assert_int_equal(symlink("/proc/self/exe", library), 0);
    snprintf(path, sizeof path, "%s/bin:%s", root, before);
    assert_int_equal(setenv("PATH", path, 1), 0);
    assert_false(sw_gpu_find_library("libspillway_nowhere.so.3", found, sizeof found));
    assert_int_equal(unlink(python), 0);
    assert_int_equal(symlink("/proc/self/exe", python), 0);
    assert_true(sw_gpu_find_library("libspillway_nowhere.so.3", found, sizeof found));
    assert_non_null(strstr(found, "/nvidia/cu13/lib/libspillway_nowhere.so.3"));
    snprintf(path, sizeof path, "%s", strchr(getenv("PATH"), ':') + 1);
    assert_int_equal(setenv("PATH", path, 1), 0);
    assert_int_equal(unlink(python) | unlink(library), 0);
    for (size_t i = SW_LEN(folders); i-- > 0;) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        assert_int_equal(rmdir(path), 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(operands_may_begin_anywhere_in_others),
    cmocka_unit_test(operands_that_are_not_aligned_as_was_said_are_refused),
    cmocka_unit_test(what_was_chosen_for_kernels_is_told),
    cmocka_unit_test(gelu_by_tanh_is_asked_of_the_library),
    cmocka_unit_test(a_library_that_is_named_makes_the_products_or_nobody_does),
    cmocka_unit_test(an_mi100_gets_the_library_that_has_code_for_it),
    cmocka_unit_test(a_library_is_found_in_the_folders_that_are_named),
    cmocka_unit_test(products_are_made_by_a_library_of_the_folders_that_are_named),
    cmocka_unit_test(a_library_is_found_beside_the_python_in_path),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
