// SPDX-License-Identifier: Apache-2.0
// A GPU as a device, without the mock around it: how the host handles threads, failures, the bus
// and NUMA nodes. Modules are the emulation's with some calls replaced.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/gpu/blas.h"
#include "device/gpu/numa.h"
#include "device/gpu/open.h"
#include "support/test.h"

static struct gpu_device *open_emulation_of(const char *backend)
{
    struct sw_device *dev = NULL;
    if (sw_gpu_open(backend, 1, &dev) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        skip();
    }
    return SW_CONTAINER(dev, struct gpu_device, super);
}

static struct gpu_device *open_emulation(void)
{
    return open_emulation_of("emu32");
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

/* ---- grids ---- */

static int n_launches;

static int count_launch(int device, void *stream, const struct sw_gpu_kernel *kernel,
                        enum sw_gpu_type type, const struct sw_gpu_launch *launch)
{
    (void)device, (void)stream, (void)kernel, (void)type, (void)launch;
    n_launches++;
    return 0;
}

/* HIP counts threads in 32 bits, CUDA blocks in 31. Nothing may be cut off. */
static void a_grid_that_the_runtime_does_not_take_is_refused(void **state)
{
    static const struct {
        const char *backend;
        int64_t x, y;
        sw_status wanted;
    } rows[] = {
        {"emu32", INT32_MAX, 0, SW_OK},      {"emu32", (int64_t)1 << 31, 0, SW_E_UNSUP},
        {"emu32", 1, 65536, SW_E_UNSUP},     {"emu32", (int64_t)1 << 32, 0, SW_E_UNSUP},
        {"emu64", (1 << 24) - 1, 0, SW_OK},  {"emu64", 1 << 24, 0, SW_E_UNSUP},
        {"emu64", INT32_MAX, 0, SW_E_UNSUP},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct gpu_device *dev = open_emulation_of(rows[i].backend);
        const struct sw_gpu_module *whole = dev->module;
        struct sw_gpu_module module = *whole;
        struct gpu_add_words_args args = {.n = 1};
        const struct gpu_call call = {.dev = dev};
        assert_int_equal(dev->kernels[GPU_add_words]->n_threads, 256);
        module.launch = count_launch;
        dev->module = &module;
        n_launches = 0;
        const sw_status st = sw_gpu_run_kernel(&call, GPU_add_words, SW_GPU_PLAIN,
                                               (struct gpu_grid){.x = rows[i].x, .y = rows[i].y}, 0,
                                               &args, sizeof args);
        if (st != rows[i].wanted || n_launches != (st >= 0)) {
            fail_msg("row %zu: %d, %d launches", i, st, n_launches);
        }
        dev->module = whole;
        sw_device_close(&dev->super);
    }
    assert_non_null(strstr(sw_error_message(), "blocks of 256 threads, wanted at most 16777215 x"));
}

/* ---- NUMA ---- */

#define SETS(set)                                                                                  \
    " cpuset=\"" set "\" complete_cpuset=\"" set "\" nodeset=\"" set "\" complete_nodeset=\"" set  \
    "\""
#define PCI(bus, number)                                                                           \
    "<object type=\"Bridge\" gp_index=\"" number "0\" bridge_type=\"0-1\" depth=\"0\" "            \
    "bridge_pci=\"0000:[" bus "-" bus "]\"><object type=\"PCIDev\" gp_index=\"" number             \
    "1\" pci_busid=\"0000:" bus ":00.0\" pci_type=\"0302 [10de:2330] [10de:1839] a1\" "            \
    "pci_link_speed=\"0\"/></object>"
#define PACKAGE(i, set, number, inside)                                                            \
    "<object type=\"Package\" os_index=\"" i "\" gp_index=\"" number                               \
    "2\"" SETS(set) "><object type=\"NUMANode\" os_index=\"" i "\" gp_index=\"" number             \
                    "3\"" SETS(set) "/><object type=\"PU\" os_index=\"" i "\" gp_index=\"" number  \
                                    "4\"" SETS(set) "/>" inside "</object>"

/* Two packages with a node and a GPU each, and a GPU that is next to neither. */
static const char topology[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?><!DOCTYPE topology SYSTEM \"hwloc2.dtd\">"
    "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" gp_index=\"1\" "
    "allowed_cpuset=\"0x3\" allowed_nodeset=\"0x3\"" SETS("0x3") ">" PACKAGE("0", "0x1", "1",
                                                                             PCI("01", "3"))
        PACKAGE("1", "0x2", "2", PCI("81", "4")) PCI("c1", "5") "</object></topology>";

static char topology_path[] = "/tmp/spillway_numa_XXXXXX";

/* hwloc reads the topology above. */
static void use_topology(void)
{
    const int fd = mkstemp(topology_path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, topology, sizeof topology - 1), sizeof topology - 1);
    close(fd);
    assert_int_equal(setenv("HWLOC_XMLFILE", topology_path, 1), 0);
}

static int forget_topology(void **state)
{
    (void)state;
    unlink(topology_path);
    memcpy(strstr(topology_path, "numa_") + 5, "XXXXXX", 6);
    return unsetenv("HWLOC_XMLFILE") | unsetenv("SPILLWAY_STANDIN_BUS") |
           unsetenv("SPILLWAY_STANDIN_NODE");
}

static void the_topology_tells_the_node_of_a_gpu(void **state)
{
    char why[128] = "";
    (void)state;
    if (!SW_HAVE_HWLOC) {
        assert_int_equal(sw_gpu_node_of("0000:01:00.0", why, sizeof why), GPU_NODE_UNKNOWN);
        assert_non_null(strstr(why, "no hwloc"));
        return;
    }
    use_topology();
    assert_int_equal(sw_gpu_node_of("0000:01:00.0", why, sizeof why), 0);
    assert_int_equal(sw_gpu_node_of("00000000:81:00.0", why, sizeof why), 1);
    assert_int_equal(sw_gpu_node_of("0000:C1:00.0", why, sizeof why), GPU_NODE_UNKNOWN);
    assert_non_null(strstr(why, "does not tell the NUMA node of 0000:C1:00.0"));
    assert_int_equal(sw_gpu_node_of("0000:02:00.0", why, sizeof why), GPU_NODE_UNKNOWN);
}

/* The emulation refuses host memory of a thread that does not prefer the node. */
static void staging_memory_lies_on_the_node_of_its_gpu(void **state)
{
    enum { BYTES = 1 << 20 };
    struct gpu_node_policy before, after;
    struct sw_str said = {0};
    void *mem = NULL;
    (void)state;
    if (!SW_HAVE_HWLOC || !sw_gpu_prefer_node(0, &before)) {
        print_message("skipped: no hwloc, or the system does not allow it\n");
        skip();
    }
    sw_gpu_put_back_policy(&before);
    use_topology();
    assert_int_equal(setenv("SPILLWAY_STANDIN_BUS", "0000:01:00.0", 1), 0);
    assert_int_equal(setenv("SPILLWAY_STANDIN_NODE", "0", 1), 0);
    struct gpu_device *dev = open_emulation();
    assert_int_equal(dev->node, 0);
    assert_int_equal(sw_device_alloc(&dev->super, SW_MEM_HOST, BYTES, &mem), SW_OK);
    sw_device_free(&dev->super, SW_MEM_HOST, mem, BYTES);
    assert_true(sw_gpu_prefer_node(0, &after)); /* the thread's policy is what it was */
    sw_gpu_put_back_policy(&after);
    assert_int_equal(after.mode, before.mode);
    dev->node = GPU_NODE_UNKNOWN;
    assert_int_equal(sw_device_alloc(&dev->super, SW_MEM_HOST, BYTES, &mem), SW_E_NOMEM);
    sw_device_close(&dev->super);
    sw_gpu_report("emu32", &said);
    assert_non_null(
        strstr(sw_str_text(&said), "✓ memory    of the host, for emu32:0, from NUMA node 0\n"));
    sw_str_fini(&said);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(it_asks_for_memory_to_be_reached_through),
    cmocka_unit_test(who_waits_for_a_device_that_failed_is_told),
    cmocka_unit_test(products_are_asked_for_on_the_device),
    cmocka_unit_test(a_grid_that_the_runtime_does_not_take_is_refused),
    cmocka_unit_test_setup_teardown(the_topology_tells_the_node_of_a_gpu, NULL, forget_topology),
    cmocka_unit_test_setup_teardown(staging_memory_lies_on_the_node_of_its_gpu, NULL,
                                    forget_topology),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
