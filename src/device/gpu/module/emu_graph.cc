// SPDX-License-Identifier: Apache-2.0
// A graph is a list of functions with copies of their arguments, as the vendors copy a kernel's.
#include "device/gpu/module/emu_graph.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x67726170, RELEASED = 0x676f6e65 };

struct node {
    struct node *next;
    int (*run)(void *args);
    size_t bytes;
    alignas(16) unsigned char args[1];
};

struct emu_graph {
    int magic, device, n;
    bool invalid;
    struct node *first, **last;
};

/* The stream that this thread captures. */
static thread_local struct emu_stream *captured;

const char *emu_describe(int code)
{
    switch (code) {
    case EMU_NO_MEMORY:
        return "out of memory";
    case EMU_WRONG_NODE:
        return "not by a thread that prefers the device's NUMA node";
    case EMU_BAD_HANDLE:
        return "not a graph of this device";
    case EMU_NOT_CAPTURABLE:
        return "not permitted while a stream is captured";
    case EMU_CAPTURE_INVALID:
        return "the capture met a call that is not permitted";
    case EMU_NOT_CAPTURED:
        return "the stream is not captured, or is already";
    case EMU_WRONG_THREAD:
        return "another thread began the capture";
    default:
        return "invalid argument";
    }
}

int emu_forbid(struct emu_stream *stream)
{
    if (!stream->graph) {
        return 0;
    }
    stream->graph->invalid = true;
    return EMU_NOT_CAPTURABLE;
}

int emu_forbid_here(void)
{
    return captured ? emu_forbid(captured) : 0;
}

static int record(struct emu_stream *stream, int (*run)(void *args), const void *args, size_t bytes)
{
    struct emu_graph *graph = stream->graph;
    struct node *node = (struct node *)calloc(1, sizeof *node + bytes);
    if (!node || graph->invalid) {
        free(node);
        graph->invalid = true;
        return node ? EMU_CAPTURE_INVALID : EMU_NO_MEMORY;
    }
    node->run = run;
    node->bytes = bytes;
    memcpy(node->args, args, bytes);
    *graph->last = node;
    graph->last = &node->next;
    graph->n++;
    return 0;
}

int emu_capture_begin(int device, struct emu_stream *stream)
{
    if (stream->graph || captured) {
        return EMU_NOT_CAPTURED;
    }
    struct emu_graph *graph = (struct emu_graph *)calloc(1, sizeof *graph);
    if (!graph) {
        return EMU_NO_MEMORY;
    }
    graph->magic = MAGIC;
    graph->device = device;
    graph->last = &graph->first;
    stream->graph = graph;
    stream->record = record;
    captured = stream;
    return 0;
}

static void free_graph(struct emu_graph *graph)
{
    while (graph->first) {
        struct node *next = graph->first->next;
        free(graph->first);
        graph->first = next;
    }
    graph->magic = RELEASED;
    free(graph);
}

int emu_capture_end(int device, struct emu_stream *stream, void **out, int *n_nodes)
{
    struct emu_graph *graph = stream->graph;
    if (!graph || graph->device != device) {
        return EMU_NOT_CAPTURED;
    }
    if (captured != stream) {
        graph->invalid = true;
        return EMU_WRONG_THREAD;
    }
    captured = nullptr;
    stream->graph = nullptr;
    stream->record = nullptr;
    const int code = graph->invalid ? (int)EMU_CAPTURE_INVALID : 0;
    if (code != 0 || !out) {
        free_graph(graph);
        return code;
    }
    *out = graph;
    *n_nodes = graph->n;
    return 0;
}

static bool is_graph(const void *graph, int device)
{
    const struct emu_graph *g = (const struct emu_graph *)graph;
    return g && g->magic == MAGIC && g->device == device;
}

int emu_replay(int device, struct emu_stream *stream, void *graph)
{
    if (!is_graph(graph, device)) {
        return EMU_BAD_HANDLE;
    }
    int code = emu_forbid(stream);
    for (struct node *n = ((struct emu_graph *)graph)->first; n && code == 0; n = n->next) {
        code = n->run(n->args);
    }
    return code;
}

int emu_graph_release(int device, void *graph)
{
    if (!is_graph(graph, device)) {
        return EMU_BAD_HANDLE;
    }
    free_graph((struct emu_graph *)graph);
    return 0;
}
