// SPDX-License-Identifier: Apache-2.0
// Error messages when a GPU cannot be opened, and doctor's report. Covers modules that are missing,
// belong to another build or back end, or are not modules at all; drivers; and an emulated GPU.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/gpu/gpu.h"
#include "device/gpu/open.h"
#include "support/test.h"

static char folder[] = "/tmp/spillway_open_XXXXXX";
static char *modules; /* the old value of the variable */

static int use_modules(const char *where)
{
    return setenv("SPILLWAY_MODULES", where, 1);
}

static void want(const char *text, const char *const *says, int n)
{
    for (int i = 0; i < n; i++) {
        if (!strstr(text, says[i])) {
            fail_msg("%s\nwanted: %s", text, says[i]);
        }
    }
}
#define WANT(text, ...)                                                                            \
    do {                                                                                           \
        static const char *const says[] = {__VA_ARGS__};                                           \
        want(text, says, (int)SW_LEN(says));                                                       \
    } while (0)

static const char *report(const char *backend)
{
    static char text[8192];
    struct sw_str out = {0};
    if (backend) {
        sw_gpu_report(backend, &out);
    } else {
        sw_device_gpu_report(&out);
    }
    snprintf(text, sizeof text, "%s", sw_str_text(&out));
    sw_str_fini(&out);
    return text;
}

static void a_missing_module_says_what_makes_it(void **state)
{
    (void)state;
    assert_int_equal(use_modules("/nowhere"), 0);
    const char *text = report(NULL);
    WANT(text, "✗ cuda      no NVIDIA GPUs: there is no /nowhere/spillway_cuda.so",
         "SPILLWAY_CUDA=ON", "✗ hip       no AMD GPUs: there is no /nowhere/spillway_hip.so",
         "SPILLWAY_HIP=ON");
    assert_null(strstr(text, "✓"));
}

static void write_module(const char *name, const char *bytes, size_t n)
{
    char file[96];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    unlink(file); /* an open module keeps its contents */
    FILE *out = fopen(file, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

/* The interface number in a module's file: the module's table begins with it and with its size. */
static int *find_interface(char *bytes, size_t n)
{
    const uint64_t begin[] = {SW_GPU_ABI, sizeof(struct sw_gpu_module)};
    for (size_t at = 0; at + sizeof begin <= n; at += sizeof begin[0]) {
        if (memcmp(bytes + at, begin, sizeof begin) == 0) {
            return (int *)(void *)(bytes + at);
        }
    }
    fail_msg("the file has no table");
    return NULL;
}

/* A text file; an emulation under the name of CUDA's module; one with another interface as
 * HIP's. */
static void a_module_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    char path[512], *bytes = NULL;
    size_t n = 0;
    int count;
    if (!sw_gpu_module_path("emu32", path, sizeof path)) {
        print_message("skipped: there is no %s\n", path);
        skip();
    }
    assert_int_equal(sw_file_read(path, &bytes, &n), SW_OK);
    assert_int_equal(use_modules(folder), 0);
    write_module("spillway_cuda.so", "no module", 9);
    WANT(report("cuda"), "✗ cuda      no NVIDIA GPUs: ", "too short");
    assert_ptr_equal(strstr(sw_error_message(), folder), sw_error_message()); /* only once */
    assert_null(strstr(sw_error_message() + 1, folder));
    write_module("spillway_cuda.so", bytes, n);
    WANT(report("cuda"), "✗ cuda      no NVIDIA GPUs: ", "it is the module for emu, wanted cuda");
    assert_int_equal(sw_gpu_count("cuda", &count), SW_E_UNSUP);
    *find_interface(bytes, n) = SW_GPU_ABI + 97;
    write_module("spillway_hip.so", bytes, n);
    WANT(report("hip"), "✗ hip       no AMD GPUs: ", "another build, so build both again");
    assert_int_equal(sw_gpu_count("hip", &count), SW_E_UNSUP);
    sw_free(bytes);
}

static void keep_lines(void *ctx, enum sw_log_level level, const char *text)
{
    (void)level;
    sw_str_printf(ctx, "%s\n", text);
}

/* Sets the variable, "" = none, opens a module that is none, and wants the value after it. */
static void check_variable(const char *backend, const char *name, const char *value,
                           const char *wanted, const char *warning)
{
    const struct sw_gpu_module *module;
    struct sw_str lines = {0};
    assert_int_equal(*value ? setenv(name, value, 1) : unsetenv(name), 0);
    sw_log_set_sink(keep_lines, &lines);
    assert_int_equal(sw_gpu_module_open(backend, &module), SW_E_UNSUP);
    sw_log_set_sink(NULL, NULL);
    assert_string_equal(getenv(name), wanted);
    if (warning ? !strstr(sw_str_text(&lines), warning) : lines.len > 0) {
        fail_msg("%s=%s: \"%s\"", name, value, sw_str_text(&lines));
    }
    sw_str_fini(&lines);
    unsetenv(name);
}

/* Megatron's scripts export the 1, and many for AMD's GPUs the 2. */
static void streams_get_hardware_queues_of_their_own(void **state)
{
    static const char connections[] = "CUDA_DEVICE_MAX_CONNECTIONS", queues[] = "GPU_MAX_HW_QUEUES";
    static const char loading[] = "CUDA_MODULE_LOADING";
    (void)state;
    assert_int_equal(use_modules(folder), 0);
    write_module("spillway_cuda.so", "no module", 9);
    write_module("spillway_hip.so", "no module", 9);
    check_variable("cuda", connections, "", "32", NULL);
    check_variable("cuda", connections, "1", "32",
                   "CUDA_DEVICE_MAX_CONNECTIONS=1: wanted 24 or more, since a stream that waits "
                   "would block others; this process sets 32");
    check_variable("cuda", connections, "24", "24", NULL);
    check_variable("cuda", connections, "many", "32", "CUDA_DEVICE_MAX_CONNECTIONS=many: wanted");
    check_variable("hip", queues, "", "24", NULL);
    check_variable("hip", queues, "2", "24", "GPU_MAX_HW_QUEUES=2: wanted 24 or more");
    check_variable("hip", queues, "30", "30", NULL);
    check_variable("hip", connections, "1", "1", NULL); /* CUDA's */
    check_variable("cuda", loading, "", "EAGER", NULL);
    check_variable("cuda", loading, "LAZY", "EAGER", "CUDA_MODULE_LOADING=LAZY: wanted EAGER");
}

static void a_colon_announces_more(void **state)
{
    static const char *const names[] = {"cpu:", "cuda:", "hip:", "emu:", "mock:"};
    struct sw_device *dev = NULL;
    (void)state;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        assert_int_equal(sw_device_open(names[i], 1, &dev), SW_E_ARG);
        want(sw_error_message(), &names[i], 1);
        WANT(sw_error_message(), "one of auto, cpu");
    }
}

/* ---- drivers ---- */

static int no_driver(int *n)
{
    *n = 0;
    return 35;
}

static int no_devices(int *n)
{
    *n = 0;
    return 0;
}

static int two_devices(int *n)
{
    *n = 2;
    return 0;
}

static void describe(int code, char *text, size_t cap)
{
    snprintf(text, cap, "code %d, there is no driver: wanted 580 or later", code);
}

static void a_missing_driver_is_described_by_the_module(void **state)
{
    (void)state;
    struct sw_gpu_module module = {.backend = "cuda", .describe = describe, .count = no_driver};
    int n = -1;
    assert_int_equal(sw_gpu_count_of("cuda", &module, &n), SW_E_UNSUP);
    assert_string_equal(sw_error_message(),
                        "device cuda: code 35, there is no driver: wanted 580 or later");
    module.count = no_devices;
    assert_int_equal(sw_gpu_count_of("cuda", &module, &n), SW_E_UNSUP);
    assert_string_equal(sw_error_message(), "device cuda: the driver reports no GPU");
    module.count = two_devices;
    assert_int_equal(sw_gpu_count_of("cuda", &module, &n), SW_OK);
    assert_int_equal(n, 2);
}

/* The Python package torch has an RCCL, but for the HIP runtime that it brings along. */
static void a_missing_library_says_where_one_for_us_comes_from(void **state)
{
    (void)state;
    static const struct sw_gpu_module module = {.backend = "hip"};
    struct gpu_device dev = {.module = &module};
    struct sw_ccl_facts facts;
    if (sw_gpu_ccl.facts(&dev.super, &facts) >= 0) {
        print_message("skipped: there is %s\n", facts.path);
        sw_gpu_ccl_forget(&dev);
        skip();
    }
    WANT(sw_error_message(), "there is no librccl.so.1; it comes with ROCm", "SPILLWAY_GPU_LIBS");
    assert_null(strstr(sw_error_message(), "torch"));
    sw_gpu_ccl_forget(&dev);
}

/* ---- an available GPU ---- */

static void a_gpu_is_named_with_what_makes_its_products(void **state)
{
    (void)state;
    char path[512];
    if (!sw_gpu_module_path("emu32", path, sizeof path)) {
        print_message("skipped: there is no %s\n", path);
        skip();
    }
    const char *text = report("emu32");
    WANT(text, "✓ emu32     ", "spillway_emu32.so, built by ", ", kernels ", "✓ emu32:0   ",
         "emulation (warps of 32), ", " processors, ", " free\n",
         "✓ products  cublaslt:", "spillway_emu_cublaslt.so\n");
    assert_null(strstr(text, "✗"));
    assert_int_equal(setenv("SPILLWAY_GPU_BLAS", "own", 1), 0);
    WANT(report("emu32"), "✓ emu32:0   ", "✗ products  by our own kernel", "SPILLWAY_GPU_BLAS");
    unsetenv("SPILLWAY_GPU_BLAS");
    struct sw_device *dev = NULL;
    assert_int_equal(sw_gpu_open("emu32", 0, &dev), SW_OK);
    assert_true(dev->free_bytes == (size_t)16 << 30);
    assert_true(dev->memory_bytes == dev->free_bytes / 64 * 63);
    sw_device_share(dev, 2);
    assert_true(dev->memory_bytes == dev->free_bytes / 64 * 63 / 2);
    sw_device_close(dev);
}

static int set_up(void **state)
{
    (void)state;
    const char *before = getenv("SPILLWAY_MODULES");
    modules = before ? sw_strdup("test", before) : NULL;
    return mkdtemp(folder) ? 0 : -1;
}

static int put_back(void **state)
{
    (void)state;
    return modules ? use_modules(modules) : unsetenv("SPILLWAY_MODULES");
}

static int tear_down(void **state)
{
    char command[64];
    (void)state;
    sw_free(modules);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(a_missing_module_says_what_makes_it, NULL, put_back),
    cmocka_unit_test_setup_teardown(a_module_that_does_not_fit_is_refused, NULL, put_back),
    cmocka_unit_test_setup_teardown(streams_get_hardware_queues_of_their_own, NULL, put_back),
    cmocka_unit_test(a_colon_announces_more),
    cmocka_unit_test(a_missing_driver_is_described_by_the_module),
    cmocka_unit_test(a_missing_library_says_where_one_for_us_comes_from),
    cmocka_unit_test(a_gpu_is_named_with_what_makes_its_products),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
