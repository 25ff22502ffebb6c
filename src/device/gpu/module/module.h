// SPDX-License-Identifier: Apache-2.0
// module - what spillway_cuda.so, spillway_hip.so and the emulations (spillway_emu32.so,
// spillway_emu64.so) export: one table, sw_gpu_module. It wraps the vendor's run time and holds the
// kernels; everything that is decided is decided by its user (gpu.h), in C, for all of them alike.
// Status codes are the vendor's, 0 = success; `describe` says them in words. Any thread may call.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change of this file, of args.h and of what args.h includes. */
enum { SW_GPU_ABI = 5 };

/* The element type that an instance of a kernel is compiled for; PLAIN: it has none. */
enum sw_gpu_type { SW_GPU_F32, SW_GPU_BF16, SW_GPU_F16, SW_GPU_PLAIN, SW_GPU_N_TYPES };

/* One kernel: its instances, and what must hold where it is launched. */
struct sw_gpu_kernel {
    int id;           /* enum sw_gpu_kernel_id (args.h) */
    const char *name; /* for messages, traces and the list of registers */
    int n_threads;    /* of a block */
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
    char bus[32];        /* PCI address, empty where there is none */
    int major, minor;    /* compute capability; 0, 0 elsewhere */
    int n_processors;    /* multiprocessors or compute units */
    int warp;            /* lanes of one */
    size_t shared_max;   /* bytes of shared memory a block may have */
    int driver, runtime; /* versions as the vendor counts them */
};

struct sw_gpu_launch {
    unsigned grid[3];
    size_t shared;    /* bytes of dynamic shared memory */
    const void *args; /* args_bytes */
};

struct sw_gpu_module {
    int abi;                                     /* SW_GPU_ABI of its build */
    size_t bytes;                                /* sizeof (struct sw_gpu_module) of its build */
    const char *backend;                         /* "cuda", "hip", "emu" */
    const char *built_with;                      /* "nvcc 13.0", .. */
    const char *archs;                           /* it has code for: "sm_80 sm_90" */
    const char *digest;                          /* of the kernels' sources, hexadecimal */
    const struct sw_gpu_kernels *const *kernels; /* one table a file of them */
    int n_kernels;

    void (*describe)(int code, char *text, size_t cap);
    /* Driver and devices that are there. Fails where there is no driver, or one that is too old. */
    int (*count)(int *n_devices);
    int (*facts)(int device, struct sw_gpu_facts *out);
    /* Makes the device's context, with all kernels loaded, so that nothing is loaded in a step. */
    int (*open)(int device);
    /* Of the calling thread from here on, for libraries that work on a thread's current device. */
    int (*use)(int device);
    int (*memory)(int device, size_t *free_bytes, size_t *total_bytes);
    int (*alloc)(int device, size_t bytes, void **out);
    int (*release)(int device, void *mem);
    int (*host_alloc)(int device, size_t bytes, void **out); /* pinned, mapped into the device */
    int (*host_release)(int device, void *mem);
    int (*stream_open)(int device, void **out); /* the vendor's handle */
    int (*stream_close)(int device, void *stream);
    int (*stream_wait)(int device, void *stream); /* the host waits */
    int (*copy)(int device, void *stream, void *dst, const void *src, size_t bytes);
    int (*fill)(int device, void *stream, void *dst, int byte, size_t bytes);
    /* A word of pinned host memory: set by the stream; waited for until it is at least value. */
    int (*signal)(int device, void *stream, uint64_t *word, uint64_t value);
    int (*await)(int device, void *stream, const uint64_t *word, uint64_t value);
    int (*launch)(int device, void *stream, const struct sw_gpu_kernel *kernel,
                  enum sw_gpu_type type, const struct sw_gpu_launch *launch);
};

#ifdef __cplusplus
}
#endif
