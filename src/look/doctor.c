// SPDX-License-Identifier: Apache-2.0
// The report of `spillway doctor`. It lists the libraries of the build and the features lost
// without each, and the GPUs and what they lack. It also has measured CPU rates, with the kernel
// path of each dtype.
#include "spillway/doctor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "look/private.h"
#include "model/model.h"
#include "spillway/comm.h"

/* The build defines these for every room that wraps the library. */
static const struct {
    const char *name;
    int found;
    const char *without;
} libraries[] = {
    {"oneDNN", SW_HAVE_DNNL, "matrix products use the built-in kernels"},
    {"liburing", SW_HAVE_URING, "file transfers use a pool of threads"},
    {"PCRE2", SW_HAVE_PCRE2, "no byte-level BPE tokenizers (apt-get install libpcre2-dev)"},
    {"utf8proc", SW_HAVE_UTF8PROC,
     "no WordPiece, no tokenizers with normal forms (apt-get install libutf8proc-dev)"},
    {"libpng", SW_HAVE_PNG, "no pictures of PNG files (apt-get install libpng-dev)"},
    {"libjpeg", SW_HAVE_JPEG, "no pictures of JPEG files (apt-get install libjpeg-dev)"},
    {"xxHash", SW_HAVE_XXHASH, "checkpoints carry CRC-32C instead of XXH3"},
    {"hwloc", SW_HAVE_HWLOC,
     "processors are counted by the affinity mask alone, and host memory for GPUs lies on any NUMA "
     "node (apt-get install libhwloc-dev)"},
};

/* Prints the libraries of the build, then what is found at run time: the MPIs and the GPUs. */
static void print_libraries(struct sw_str *text)
{
    for (size_t i = 0; i < SW_LEN(libraries); i++) {
        if (libraries[i].found) {
            sw_str_printf(text, "✓ %s\n", libraries[i].name);
        } else {
            sw_str_printf(text, "✗ %-9s %s\n", libraries[i].name, libraries[i].without);
        }
    }
    char *world = NULL;
    if (sw_world_text(&world) >= 0) {
        sw_str_puts(text, world);
        sw_text_free(world);
    }
    sw_device_gpu_report(text);
}

/* Prints this host, by the name that tells hosts apart in a mesh, and what a launcher said. */
static void print_host(struct sw_str *text)
{
    char name[64] = "";
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    gethostname(name, sizeof name - 1);
    sw_str_printf(text, "host     %s", name);
    if (rank && size) {
        sw_str_printf(text, ", rank %s of %s", rank, size);
    }
    sw_str_puts(text, "; all ranks form the data axis unless spillway.mesh says otherwise\n");
}

static void print_processor(const struct sw_cpu_report *report, const char *kernels,
                            struct sw_str *text)
{
    sw_str_printf(text, "cpu      %s, %d threads\nisa      %s\nkernels  %s\n", report->cpu,
                  report->n_threads, report->isa, kernels);
    for (size_t i = 0; i < SW_LEN(report->peak); i++) {
        sw_str_printf(text,
                      "%-8s register peak %7.1f GFLOP/s a thread (%s), product %7.1f GFLOP/s: %s\n",
                      sw_dtype_name(report->peak[i].dtype), report->peak[i].register_gflops,
                      report->peak[i].unit, report->peak[i].product_gflops, report->peak[i].path);
    }
    if (report->without_amx) {
        sw_str_printf(text, "amx      found, but %s\n", report->without_amx);
    }
    for (size_t i = 0; i < SW_LEN(report->kernel); i++) {
        sw_str_printf(text, "%-8s", i == 0 ? "by op" : "");
        sw_str_printf(text, " %-18s", report->kernel[i].op);
        for (size_t k = 0; k < SW_LEN(report->peak); k++) {
            sw_str_printf(text, "%s%s: %s", k ? "; " : "", sw_dtype_name(report->peak[k].dtype),
                          report->kernel[i].path[k]);
        }
        sw_str_puts(text, "\n");
    }
    sw_str_printf(text, "memcpy   %.1f GB/s, read and written\n", report->copy_gb_s);
}

sw_status sw_doctor_text(int n_threads, char **out)
{
    const struct sw_cpu_options options = {.n_threads = n_threads};
    struct sw_device *dev = NULL;
    struct sw_cpu_report report;
    memset(&report, 0, sizeof report);
    SW_TRY(sw_device_open_cpu(&options, &dev));
    const sw_status st = sw_device_cpu_report(dev, &report);
    if (st < 0) {
        sw_device_close(dev);
        return st;
    }
    struct sw_str text = {0};
    sw_str_printf(&text, "spillway %s\n", sw_version());
    print_libraries(&text);
    sw_str_printf(&text,
                  "onnx     written at opsets %d to %d (spillway export --onnx), and trained from "
                  "files (--model FILE.onnx)\n",
                  SW_ONNX_LEAST_OPSET, SW_ONNX_MOST_OPSET);
    print_host(&text);
    print_processor(&report, sw_device_kernel_set(dev), &text);
    sw_device_close(dev);
    if (text.failed) {
        sw_str_fini(&text);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a report");
    }
    *out = text.ptr;
    return SW_OK;
}

sw_status sw_doctor_mesh_text(const struct sw_engine_config *config, int ranks, char **out)
{
    enum { DEADLINE_S = 300 };
    struct sw_engine_options options = {.config = *config, .plan.only = ranks > 0};
    struct sw_str text = {0};
    SW_TRY(ranks > 0 ? sw_comm_open(&(struct sw_transport){.size = ranks}, &options.run.comm)
                     : sw_world_open(DEADLINE_S, &options.run.comm));
    const bool prints = !options.run.comm || sw_comm_rank(options.run.comm) == 0;
    const sw_status st = sw_engine_describe_mesh(&options, &text);
    sw_comm_close(options.run.comm, st < 0);
    if (!prints) {
        sw_str_fini(&text);
    }
    return sw_look_give(st, &text, out);
}

sw_status sw_models_text(char **out)
{
    struct sw_str text = {0};
    sw_model_list(&text);
    sw_str_printf(&text,
                  "\nspillway export --onnx writes models of all families, at opsets %d to "
                  "%d.\n--model FILE.onnx trains a graph of transformer layers without a family "
                  "(docs/onnx.md).\n",
                  SW_ONNX_LEAST_OPSET, SW_ONNX_MOST_OPSET);
    if (text.failed) {
        sw_str_fini(&text);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a list");
    }
    *out = text.ptr;
    return SW_OK;
}
