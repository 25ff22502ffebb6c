// SPDX-License-Identifier: Apache-2.0
// The emulation's table: host memory, and streams that run work at once. A GPU's separate address
// space and deferred work come from the mock device, which runs over this one. Device 0 runs
// threads in ascending, device 1 in descending order.
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/gpu/module/emu_graph.h"
#include "device/gpu/module/registry.h"
#include "device/gpu/module/tables.h"

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* the emulation runs one block at a time */

static void describe(int code, char *text, size_t cap)
{
    snprintf(text, cap, "%s", emu_describe(code));
}

static int count(int *n_devices)
{
    *n_devices = 2;
    return 0;
}

static int facts(int device, struct sw_gpu_facts *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "emulation%s", device == 1 ? ", threads reversed" : "");
    snprintf(out->arch, sizeof out->arch, "warps of %d", SW_WARP);
    const char *arch = getenv("SPILLWAY_STANDIN_ARCH"); /* for libraries: "gfx908" */
    if (arch) {
        snprintf(out->arch, sizeof out->arch, "%s", arch);
    }
    out->n_processors = 4;
    out->warp = SW_WARP;
    out->shared_max = 64 << 10;
    const char *bus = getenv("SPILLWAY_STANDIN_BUS"); /* of a GPU that ranks share */
    snprintf(out->bus, sizeof out->bus, "%s", bus ? bus : "");
    /* 1: a driver that is too old for graphs */
    const char *driver = getenv("SPILLWAY_STANDIN_DRIVER");
    out->driver = out->runtime = driver ? atoi(driver) : 2;
    return 0;
}

static int open_device(int device)
{
    (void)device;
    return 0;
}

static int memory(int device, size_t *free_bytes, size_t *total_bytes)
{
    (void)device;
    *free_bytes = *total_bytes = (size_t)16 << 30;
    return 0;
}

static int alloc(int device, size_t bytes, void **out)
{
    (void)device;
    *out = NULL;
    const int code = emu_forbid_here();
    if (code != 0) {
        return code;
    }
    if (bytes > (size_t)1 << 46 || posix_memalign(out, 4096, bytes) != 0) {
        return EMU_NO_MEMORY;
    }
    memset(*out, 0xff, bytes); /* NaN in every float type */
    return 0;
}

/* SPILLWAY_STANDIN_NODE: the NUMA node that the calling thread must prefer. */
static int host_alloc(int device, size_t bytes, void **out)
{
    const char *wanted = getenv("SPILLWAY_STANDIN_NODE");
    if (wanted) {
        unsigned long nodes[16] = {};
        int mode = 0;
        const long node = strtol(wanted, nullptr, 10);
        if (syscall(SYS_get_mempolicy, &mode, nodes, sizeof nodes * 8, nullptr, 0) != 0 ||
            mode != MPOL_PREFERRED || nodes[node / 64] != 1UL << node % 64) {
            *out = nullptr;
            return EMU_WRONG_NODE;
        }
    }
    return alloc(device, bytes, out);
}

static int release(int device, void *mem)
{
    (void)device;
    free(mem);
    return emu_forbid_here();
}

static int stream_open(int device, void **out)
{
    (void)device;
    struct emu_stream *made = (struct emu_stream *)calloc(1, sizeof *made);
    *out = made;
    return made ? 0 : (int)EMU_NO_MEMORY;
}

static int stream_busy(int device, void *stream, int *busy)
{
    struct emu_stream *s = (struct emu_stream *)stream;
    (void)device;
    const int code = emu_forbid(s);
    if (code != 0) {
        return code;
    }
    *busy = s->poll && s->poll(s->work);
    if (!*busy) {
        s->poll = nullptr;
    }
    return 0;
}

static int stream_wait(int device, void *stream)
{
    int busy = 1, code;
    while ((code = stream_busy(device, stream, &busy)) == 0 && busy) {
        sched_yield();
    }
    return code;
}

static int stream_close(int device, void *stream)
{
    stream_wait(device, stream);
    free(stream);
    return 0;
}

/* Runs work now, or records it. A NULL stream is the one that all threads share. */
static int queue(void *stream, int (*run)(void *args), void *args, size_t bytes)
{
    struct emu_stream *s = (struct emu_stream *)stream;
    return s && s->record ? s->record(s, run, args, bytes) : run(args);
}

struct moved {
    void *dst;
    const void *src;
    size_t bytes;
    int byte;
};

static int run_copy(void *args)
{
    const struct moved *m = (const struct moved *)args;
    memmove(m->dst, m->src, m->bytes);
    return 0;
}

static int run_fill(void *args)
{
    const struct moved *m = (const struct moved *)args;
    memset(m->dst, m->byte, m->bytes);
    return 0;
}

static int copy(int device, void *stream, void *dst, const void *src, size_t bytes)
{
    (void)device;
    struct moved moved = {dst, src, bytes, 0};
    return queue(stream, run_copy, &moved, sizeof moved);
}

static int fill(int device, void *stream, void *dst, int byte, size_t bytes)
{
    (void)device;
    struct moved moved = {dst, nullptr, bytes, byte};
    return queue(stream, run_fill, &moved, sizeof moved);
}

static int signal_word(int device, void *stream, uint64_t *word, uint64_t value)
{
    (void)device;
    const int code = emu_forbid((struct emu_stream *)stream);
    if (code == 0) {
        __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
    }
    return code;
}

static int await_word(int device, void *stream, const uint64_t *word, uint64_t value)
{
    (void)device;
    const int code = emu_forbid((struct emu_stream *)stream);
    while (code == 0 && __atomic_load_n(word, __ATOMIC_SEQ_CST) < value) {
        sched_yield();
    }
    return code;
}

/* CUDA passes no more by value. */
enum { MOST_ARGS = 4096 };

struct queued {
    struct emu_launch launch;
    alignas(16) unsigned char args[MOST_ARGS];
};

static int run_launch(void *args)
{
    struct queued *queued = (struct queued *)args;
    queued->launch.args = queued->args; /* of this copy */
    pthread_mutex_lock(&lock);
    emu_run(&queued->launch);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int launch(int device, void *stream, const struct sw_gpu_kernel *kernel,
                  enum sw_gpu_type type, const struct sw_gpu_launch *what)
{
    struct queued run;
    if (kernel->args_bytes > sizeof run.args) {
        return EMU_INVALID;
    }
    run.launch = {
        .name = kernel->name,
        .call = (void (*)(const void *))kernel->entry[type],
        .args = nullptr,
        .n_threads = kernel->n_threads,
        .grid = {what->grid[0], what->grid[1], what->grid[2]},
        .shared = what->shared,
        .reversed = device == 1,
    };
    memcpy(run.args, what->args, kernel->args_bytes);
    return queue(stream, run_launch, &run, offsetof(struct queued, args) + kernel->args_bytes);
}

static int capture_begin(int device, void *stream)
{
    return emu_capture_begin(device, (struct emu_stream *)stream);
}

static int capture_end(int device, void *stream, void **graph, int *n_nodes)
{
    return emu_capture_end(device, (struct emu_stream *)stream, graph, n_nodes);
}

static int replay(int device, void *stream, void *graph)
{
    return emu_replay(device, (struct emu_stream *)stream, graph);
}

static int graph_release(int device, void *graph)
{
    return emu_graph_release(device, graph);
}

#define SW_TEXT_OF(x) #x
#define SW_TEXT(x) SW_TEXT_OF(x)

extern "C" __attribute__((visibility("default"))) const struct sw_gpu_module sw_gpu_module;
const struct sw_gpu_module sw_gpu_module = {
    .abi = SW_GPU_ABI,
    .bytes = sizeof sw_gpu_module,
    .backend = "emu",
    .built_with = "the host's compiler",
    .archs = "warps of " SW_TEXT(SW_WARP),
    .digest = SW_GPU_DIGEST,
    .kernels = all_kernels,
    .n_kernels = SW_ROWS(all_kernels),
    .describe = describe,
    .count = count,
    .facts = facts,
    .open = open_device,
    .use = open_device,
    .memory = memory,
    .alloc = alloc,
    .release = release,
    .host_alloc = host_alloc,
    .host_release = release,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .stream_wait = stream_wait,
    .stream_busy = stream_busy,
    .copy = copy,
    .fill = fill,
    .signal = signal_word,
    .await = await_word,
    .launch = launch,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay = replay,
    .graph_release = graph_release,
};
