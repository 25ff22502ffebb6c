// SPDX-License-Identifier: Apache-2.0
// Captured work of a GPU: a graph of the vendor's run time. Batched ops are launched before a
// capture begins, and into it before it ends.
#include "device/gpu/gpu.h"

#include <stdio.h>
#include <string.h>

struct graph {
    struct sw_captured super;
    void *handle;
};

/* Drivers that have all calls of graphs. HIP's are no longer called a beta version from 5.3 on. */
static const struct {
    const char *backend;
    int driver;
    const char *text;
} needs[] = {
    {"cuda", 12000, "CUDA 12.0"},
    {"hip", 50300000, "HIP 5.3"},
    {"emu", 2, "2"},
};

void sw_gpu_find_capture(struct gpu_device *dev)
{
    for (size_t i = 0; i < SW_LEN(needs); i++) {
        if (strcmp(needs[i].backend, dev->module->backend) != 0) {
            continue;
        }
        if (dev->facts.driver >= needs[i].driver) {
            dev->super.capture = &sw_gpu_capture;
        } else {
            snprintf(dev->no_capture, sizeof dev->no_capture,
                     "the driver is too old for graphs: its version is %d, wanted %d (%s)",
                     dev->facts.driver, needs[i].driver, needs[i].text);
            dev->super.no_capture = dev->no_capture;
        }
    }
}

static sw_status begin(struct sw_device *super, struct sw_stream_queue *on)
{
    struct gpu_device *dev = sw_gpu_of(super);
    void *stream;
    SW_TRY(sw_gpu_stream(dev, on, &stream));
    const int code = dev->module->capture_begin(dev->index, stream);
    return code == 0 ? SW_OK : sw_gpu_failed(dev, code, "beginning a capture");
}

static sw_status end(struct sw_device *super, struct sw_stream_queue *on, struct sw_captured **out)
{
    struct gpu_device *dev = sw_gpu_of(super);
    struct graph *graph = NULL;
    void *stream = NULL, *handle = NULL;
    sw_status st = sw_gpu_stream(dev, on, &stream);
    if (st >= 0 && out) {
        graph = sw_alloc_zero("device", 1, sizeof *graph);
        st = graph ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for a graph");
    }
    int n = 0;
    const int code =
        dev->module->capture_end(dev->index, sw_gpu_raw_stream(on), graph ? &handle : NULL, &n);
    if (st >= 0 && code != 0) {
        st = sw_gpu_failed(dev, code, "ending a capture");
    }
    if (st < 0 || !out) {
        sw_free(graph);
        return st;
    }
    *graph = (struct graph){.super.n_launches = n, .handle = handle};
    *out = &graph->super;
    return SW_OK;
}

static sw_status replay(struct sw_device *super, struct sw_stream_queue *on,
                        struct sw_captured *captured)
{
    struct gpu_device *dev = sw_gpu_of(super);
    const struct graph *graph = SW_CONTAINER(captured, struct graph, super);
    void *stream;
    SW_TRY(sw_gpu_stream(dev, on, &stream));
    const int code = dev->module->replay(dev->index, stream, graph->handle);
    return code == 0 ? SW_OK : sw_gpu_failed(dev, code, "replaying a graph");
}

static void close_graph(struct sw_device *super, struct sw_captured *captured)
{
    struct gpu_device *dev = sw_gpu_of(super);
    struct graph *graph = SW_CONTAINER(captured, struct graph, super);
    const int code = dev->module->graph_release(dev->index, graph->handle);
    if (code != 0) {
        sw_gpu_failed(dev, code, "releasing a graph");
        sw_log(SW_LOG_ERROR, "%s", sw_error_message());
    }
    sw_free(graph);
}

const struct sw_capture_ops sw_gpu_capture = {
    .begin = begin,
    .end = end,
    .replay = replay,
    .close = close_graph,
};
