// SPDX-License-Identifier: Apache-2.0
// The GPU part of `doctor`: per back end the module, the driver, each GPU, and its libraries for
// products and exchanges. If something is missing, it says how to get it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/blas.h"
#include "device/gpu/numa.h"
#include "device/gpu/open.h"

static const struct vendor {
    const char *backend, *gpus;
    const char *driver_file; /* file of the system in which the driver gives its version */
    const char *library;     /* library for products, and how to get it */
} vendors[] = {
    {"cuda", "no NVIDIA GPUs: ", "/proc/driver/nvidia/version",
     "no cuBLASLt was found (it is in the CUDA toolkit, and pip install nvidia-cublas"},
    {"hip", "no AMD GPUs: ", "/sys/module/amdgpu/version",
     "no hipBLASLt, no rocBLAS was found (both are in ROCm"},
};

static const struct vendor *vendor_of(const char *backend)
{
    for (size_t i = 0; i < SW_LEN(vendors); i++) {
        if (strcmp(vendors[i].backend, backend) == 0) {
            return &vendors[i];
        }
    }
    return NULL; /* the emulation */
}

/* The last error without its prefix "device cuda: " or "device cuda:0 (..): ". */
static const char *reason(const char *backend)
{
    const char *text = sw_error_message();
    char prefix[64];
    snprintf(prefix, sizeof prefix, "device %s", backend);
    const char *end = strncmp(text, prefix, strlen(prefix)) == 0 ? strstr(text, ": ") : NULL;
    return end ? end + 2 : text;
}

/* The first word of the file that is a dotted number: "580.65.06". */
static void read_driver_number(const char *path, char *out, size_t cap)
{
    char line[512];
    FILE *file = fopen(path, "r");
    *out = '\0';
    if (file && fgets(line, sizeof line, file)) {
        for (const char *at = line; *at && !*out;) {
            at += strspn(at, " \t\n");
            const size_t n = strcspn(at, " \t\n"), digits = strspn(at, "0123456789.");
            if (n > 0 && n == digits && memchr(at, '.', n)) {
                snprintf(out, cap, "%.*s", (int)n, at);
            }
            at += n;
        }
    }
    if (file) {
        fclose(file);
    }
}

static void report_driver(const struct vendor *vendor, const struct sw_gpu_module *module,
                          struct sw_str *out)
{
    struct sw_gpu_facts facts;
    char number[64] = "";
    if (vendor) {
        read_driver_number(vendor->driver_file, number, sizeof number);
    }
    const bool knows_cuda = strcmp(module->backend, "cuda") == 0 && module->facts(0, &facts) == 0;
    if (*number || knows_cuda) {
        sw_str_printf(out, "✓ driver    %s", *number ? number : "it does not say which");
        if (knows_cuda) {
            sw_str_printf(out, ", for programs up to CUDA %d.%d", facts.driver / 1000,
                          facts.driver % 1000 / 10);
        }
        sw_str_putc(out, '\n');
    }
}

static void report_products(const struct vendor *vendor, const struct gpu_products *products,
                            struct sw_str *out)
{
    const char *path = sw_gpu_products_path(products);
    if (path) {
        sw_str_printf(out, "✓ products  %s, %s\n", sw_gpu_products_name(products), path);
    } else if (!vendor || sw_gpu_products_own()) {
        sw_str_puts(out, "✗ products  by our own kernel, slowly, as SPILLWAY_GPU_BLAS=own says\n");
    } else {
        sw_str_printf(
            out, "✗ products  by our own kernel, slowly: %s; SPILLWAY_GPU_LIBS names its folder)\n",
            vendor->library);
    }
}

static void report_exchanges(struct sw_device *dev, struct sw_str *out)
{
    struct sw_ccl_facts facts;
    if (!dev->ccl) {
        return;
    }
    if (dev->ccl->facts(dev, &facts) >= 0) {
        sw_str_printf(out, "✓ exchanges %s, %s\n", facts.name, facts.path);
    } else {
        sw_str_printf(out, "✗ exchanges among ranks through host memory: %s\n", sw_error_message());
    }
}

static void report_node(const struct gpu_device *dev, const char *name, struct sw_str *out)
{
    if (dev->node != GPU_NODE_UNKNOWN) {
        sw_str_printf(out, "✓ memory    of the host, for %s, from NUMA node %d\n", name, dev->node);
    } else if (dev->no_node[0]) {
        sw_str_printf(out, "✗ memory    of the host, for %s, from any NUMA node: %s\n", name,
                      dev->no_node);
    }
}

/* True if the GPU opened. */
static bool report_gpu(const char *backend, int i, bool with_products, struct sw_str *out)
{
    struct sw_device *super = NULL;
    char name[64], free_text[32], total_text[32];
    snprintf(name, sizeof name, "%s:%d", backend, i);
    if (sw_gpu_open(backend, i, &super) < 0) {
        sw_str_printf(out, "✗ %-9s %s\n", name, reason(backend));
        return false;
    }
    const struct gpu_device *dev = SW_CONTAINER(super, struct gpu_device, super);
    size_t free_bytes = 0, total = 0;
    dev->module->memory(i, &free_bytes, &total);
    sw_str_printf(out, "✓ %-9s %s (%s), %d processors, %s of %s free\n", name, dev->facts.name,
                  dev->facts.arch, dev->facts.n_processors,
                  sw_format_bytes(free_text, sizeof free_text, (double)free_bytes),
                  sw_format_bytes(total_text, sizeof total_text, (double)total));
    report_node(dev, name, out);
    if (with_products) {
        report_products(vendor_of(backend), dev->products, out);
        report_exchanges(super, out);
    }
    sw_device_close(super);
    return true;
}

void sw_gpu_report(const char *backend, struct sw_str *out)
{
    const struct vendor *vendor = vendor_of(backend);
    const struct sw_gpu_module *module;
    char path[512];
    int n = 0;
    if (sw_gpu_module_open(backend, &module) < 0) {
        sw_str_printf(out, "✗ %-9s %s%s\n", backend, vendor ? vendor->gpus : "", reason(backend));
        return;
    }
    sw_gpu_module_path(backend, path, sizeof path);
    sw_str_printf(out, "✓ %-9s %s, built by %s, for %s, kernels %s\n", backend, path,
                  module->built_with, module->archs, module->digest);
    if (sw_gpu_count_of(backend, module, &n) < 0) {
        sw_str_printf(out, "✗ driver    %s\n", reason(backend));
    } else {
        report_driver(vendor, module, out);
        bool said = false; /* one library serves all GPUs */
        for (int i = 0; i < n; i++) {
            said |= report_gpu(backend, i, !said, out);
        }
    }
}

void sw_device_gpu_report(struct sw_str *out)
{
    for (size_t i = 0; i < SW_LEN(vendors); i++) {
        sw_gpu_report(vendors[i].backend, out);
    }
}
