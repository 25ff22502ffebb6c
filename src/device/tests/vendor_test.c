// SPDX-License-Identifier: Apache-2.0
// The vendors' modules, as far as they can be tested without a GPU: they open, have all kernels,
// and say why there is no device.
#include <stddef.h>
#include <string.h>

#include "device/gpu/gpu.h"
#include "device/gpu/open.h"
#include "support/test.h"

static bool has_kernel(const struct sw_gpu_module *module, int id)
{
    for (int t = 0; t < module->n_kernels; t++) {
        for (int i = 0; i < module->kernels[t]->n; i++) {
            if (module->kernels[t]->rows[i].id == id) {
                return module->kernels[t]->rows[i].n_threads > 0;
            }
        }
    }
    return false;
}

static void check_complete(const struct sw_gpu_module *module)
{
    const size_t first = offsetof(struct sw_gpu_module, describe);
    for (size_t at = first; at < sizeof *module; at += sizeof(void (*)(void))) {
        void (*call)(void);
        memcpy(&call, (const char *)module + at, sizeof call);
        assert_true(call != NULL);
    }
    for (int id = 0; id < GPU_N_KERNELS; id++) {
        assert_true(has_kernel(module, id));
    }
}

static void check_count(const struct sw_gpu_module *module)
{
    struct sw_gpu_facts facts;
    char text[512] = "";
    int n = -1;
    const int code = module->count(&n);
    if (code == 0) {
        assert_true(n > 0);
        assert_int_equal(module->facts(0, &facts), 0);
        assert_true(facts.n_processors > 0 && facts.name[0] && facts.arch[0]);
        return;
    }
    assert_int_equal(n, 0);
    module->describe(code, text, sizeof text);
    assert_non_null(strstr(text, "driver")); /* the driver is missing, or a GPU that it sees */
    if (strstr(text, "there is no NVIDIA driver")) {
        assert_non_null(strstr(text, ": wanted driver "));
        assert_non_null(strstr(text, "nvidia.com/drivers"));
    }
    assert_int_not_equal(module->facts(0, &facts), 0);
}

static void check_module(const char *backend)
{
    const struct sw_gpu_module *module;
    char text[512] = "";
    if (sw_gpu_module_open(backend, &module) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        skip();
    }
    assert_string_equal(module->backend, backend);
    assert_true(strlen(module->archs) > 0 && strlen(module->built_with) > 0);
    assert_int_equal(strlen(module->digest), 12);
    check_complete(module);
    module->describe(2, text, sizeof text);
    assert_true(strlen(text) > 0);
    check_count(module);
}

static void cuda_opens_or_says_why_not(void **state)
{
    (void)state;
    check_module("cuda");
}

static void hip_opens_or_says_why_not(void **state)
{
    (void)state;
    check_module("hip");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(cuda_opens_or_says_why_not),
    cmocka_unit_test(hip_opens_or_says_why_not),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
