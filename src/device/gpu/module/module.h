// SPDX-License-Identifier: Apache-2.0
// module - the interface of spillway_cuda.so, spillway_hip.so and the emulations
// (spillway_emu32.so, spillway_emu64.so): one exported table, sw_gpu_module. It wraps the vendor's
// runtime and holds the kernels. All decisions are made by its user (gpu.h), in C, in the same way
// for all of them. Status codes are the vendor's, 0 = success; `describe` gives the text. Any
// thread may call.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented by every change of this file, of args.h and of the headers it includes. */
enum { SW_GPU_ABI = 8 };

/* The element type of a kernel instance; PLAIN: the kernel has none. */
enum sw_gpu_type { SW_GPU_F32, SW_GPU_BF16, SW_GPU_F16, SW_GPU_PLAIN, SW_GPU_N_TYPES };

/* One kernel: its instances, and its launch constraints. */
struct sw_gpu_kernel {
    int id;           /* enum sw_gpu_kernel_id (args.h) */
    const char *name; /* for messages, traces and the list of registers */
    int n_threads;    /* per block */
    size_t args_bytes;
    const void *entry[SW_GPU_N_TYPES]; /* NULL = no such instance */
};

struct sw_gpu_kernels {
    const struct sw_gpu_kernel *rows;
    int n;
};

struct sw_gpu_facts {
    char name[128];      /* "NVIDIA H200" */
    char arch[32];       /* "sm_90", "gfx942", "emulated, warps of 32" */
    char bus[32];        /* PCI address, empty if there is none */
    int major, minor;    /* compute capability; 0, 0 elsewhere */
    int n_processors;    /* multiprocessors or compute units */
    int warp;            /* lanes per warp */
    size_t shared_max;   /* most bytes of shared memory per block */
    int driver, runtime; /* versions in the vendor's numbering */
};

struct sw_gpu_launch {
    unsigned grid[3];
    size_t shared;    /* bytes of dynamic shared memory */
    const void *args; /* args_bytes */
};

struct sw_gpu_module {
    int abi;                /* SW_GPU_ABI of the module's build */
    size_t bytes;           /* sizeof (struct sw_gpu_module) in the module's build */
    const char *backend;    /* "cuda", "hip", "emu" */
    const char *built_with; /* "nvcc 13.0", .. */
    const char *archs;      /* architectures with code: "sm_80 sm_90" */
    const char *digest;     /* digest of the kernels' sources, hexadecimal */
    const struct sw_gpu_kernels *const *kernels; /* one table per source file */
    int n_kernels;

    void (*describe)(int code, char *text, size_t cap);
    /* Counts the devices. Fails if there is no driver, or too old a driver. */
    int (*count)(int *n_devices);
    int (*facts)(int device, struct sw_gpu_facts *out);
    /* Makes the device's context and loads all kernels, so that nothing is loaded during a step. */
    int (*open)(int device);
    /* Sets the calling thread's current device, for libraries that depend on it. */
    int (*use)(int device);
    int (*memory)(int device, size_t *free_bytes, size_t *total_bytes);
    int (*alloc)(int device, size_t bytes, void **out);
    int (*release)(int device, void *mem);
    int (*host_alloc)(int device, size_t bytes, void **out); /* pinned, mapped into the device */
    int (*host_release)(int device, void *mem);
    int (*stream_open)(int device, void **out); /* the vendor's handle */
    int (*stream_close)(int device, void *stream);
    int (*stream_wait)(int device, void *stream);            /* the host waits */
    int (*stream_busy)(int device, void *stream, int *busy); /* does it still have work? */
    int (*copy)(int device, void *stream, void *dst, const void *src, size_t bytes);
    int (*fill)(int device, void *stream, void *dst, int byte, size_t bytes);
    /* word: in pinned host memory. signal: the stream sets it; await: the stream waits until it is
     * at least value. */
    int (*signal)(int device, void *stream, uint64_t *word, uint64_t value);
    int (*await)(int device, void *stream, const uint64_t *word, uint64_t value);
    int (*launch)(int device, void *stream, const struct sw_gpu_kernel *kernel,
                  enum sw_gpu_type type, const struct sw_gpu_launch *launch);
    /* Graphs. After capture_begin, work queued on the stream is recorded and does not run; the
     * calling thread may not allocate, nor wait for the stream, until it has called capture_end.
     * graph: ready for replay, with that many nodes; NULL = not wanted. A forbidden call fails,
     * and makes capture_end fail. */
    int (*capture_begin)(int device, void *stream);
    int (*capture_end)(int device, void *stream, void **graph, int *n_nodes);
    int (*replay)(int device, void *stream, void *graph);
    int (*graph_release)(int device, void *graph);
};

#ifdef __cplusplus
}
#endif
