// SPDX-License-Identifier: Apache-2.0
// device - memory, streams, timelines, and kernels by op kind. Constant tables; the front functions
// below check, count and trace, the back ends trust. Back ends: cpu (fast, and the plain C
// reference), gpu (CUDA, HIP and an emulation of both), mock (memory that the host cannot reach,
// poison after release, work as late, or as early, as its order allows).
#pragma once

#include "base/base.h"
#include "graph/graph.h"
#include "tensor/tensor.h"

struct sw_device;
struct sw_stream_queue; /* an ordered queue of work */
/* A counter in memory that both sides see: streams and the host set it, and wait for it. It only
 * grows. (On CUDA and HIP a word that the stream writes and waits for by itself.) */
struct sw_timeline;
struct sw_kernel; /* prepared: one op with its shapes, ready to launch */

enum sw_mem { SW_MEM_DEVICE, SW_MEM_HOST, SW_MEM_COUNT };

/* Who may use addresses of SW_MEM_DEVICE. What may not passes through SW_MEM_HOST (staging_bytes of
 * it), and copies. */
enum sw_device_cap {
    SW_DEVICE_HOST_VISIBLE = 1, /* the host; and copies take host memory from anywhere */
    SW_DEVICE_DISK_REACHES = 2, /* transfers of a disk */
    SW_DEVICE_COMM_REACHES = 4, /* transports, to send from and to receive into */
};

/* What ranks sent of a slice, added in their order: acc[i] += float(slices[k][i]) for k = 0, 1, ..,
 * each addition rounded to fp32 by itself, so that the bits are those of one rank that adds its
 * micro-batches one after the other. */
struct sw_slice_sum {
    float *acc;          /* device [n] */
    enum sw_dtype dtype; /* of slices: SW_F32, SW_BF16 or SW_F16 */
    const void *slices;  /* device [n_slices, n] */
    int64_t n;
    int n_slices;
    bool fresh; /* acc holds nothing yet: the first slice is converted into it, not added */
};

struct sw_device_ops {
    const char *name;
    void (*close)(struct sw_device *dev);
    sw_status (*mem_alloc)(struct sw_device *dev, enum sw_mem kind, size_t bytes, void **out);
    void (*mem_free)(struct sw_device *dev, enum sw_mem kind, void *mem, size_t bytes);
    sw_status (*stream_open)(struct sw_device *dev, struct sw_stream_queue **out);
    void (*stream_close)(struct sw_device *dev, struct sw_stream_queue *stream);
    sw_status (*stream_wait)(struct sw_device *dev,
                             struct sw_stream_queue *stream); /* host waits */
    /* Both sides: memory that this device gave, or with SW_DEVICE_HOST_VISIBLE any. */
    sw_status (*copy)(struct sw_device *dev, struct sw_stream_queue *on, void *dst, const void *src,
                      size_t bytes);
    sw_status (*fill)(struct sw_device *dev, struct sw_stream_queue *on, void *dst, int byte,
                      size_t bytes);
    sw_status (*add_slices)(struct sw_device *dev, struct sw_stream_queue *on,
                            const struct sw_slice_sum *sum);
    /* Words of exact sums: out[i] = words[0][i] + words[1][i] + .., of device memory [n_sets, n];
     * apart from out. */
    sw_status (*add_words)(struct sw_device *dev, struct sw_stream_queue *on, int64_t *out,
                           const int64_t *words, int64_t n_sets, int64_t n);
    sw_status (*timeline_open)(struct sw_device *dev, struct sw_timeline **out); /* at 0 */
    /* No queued work has it left to set or to wait for. */
    void (*timeline_close)(struct sw_device *dev, struct sw_timeline *timeline);
    /* The counter is `value` once what was queued on `on` before has run. */
    sw_status (*stream_signal)(struct sw_device *dev, struct sw_stream_queue *on,
                               struct sw_timeline *timeline, int64_t value);
    /* What is queued on `on` afterwards starts once the counter is at least `value`. Whoever sets
     * it may be queued later than this. Where streams run on the thread that queues (the CPU), that
     * thread is the one that waits. */
    sw_status (*stream_await)(struct sw_device *dev, struct sw_stream_queue *on,
                              struct sw_timeline *timeline, int64_t value);
    /* By the host, for streams and threads that wait. */
    sw_status (*timeline_set)(struct sw_device *dev, struct sw_timeline *timeline, int64_t value);
    int64_t (*timeline_get)(struct sw_device *dev, const struct sw_timeline *timeline);
    /* The host waits until it is at least `value`. */
    sw_status (*timeline_wait)(struct sw_device *dev, struct sw_timeline *timeline, int64_t value);
    /* Can this op run, with how much workspace? Never fails: supported = false. */
    void (*query)(struct sw_device *dev, const struct sw_op_desc *desc, struct sw_kernel_info *out);
    /* When the plan is made: creates primitives, picks algorithms. */
    sw_status (*prepare)(struct sw_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel **out);
    void (*release)(struct sw_device *dev, struct sw_kernel *kernel);
    /* in [desc n_in], out [desc n_out]: device addresses of element 0 of each view (NULL = absent);
     * workspace: as query said, 64-byte aligned; scalars: [SW_SCALAR_COUNT] on the device. A
     * predicated kernel looks at SKIP there; if it is set it leaves its operands as they were, of
     * an fp16 working copy by rounding it from its master: nobody has read it. */
    sw_status (*launch)(struct sw_device *dev, struct sw_stream_queue *on, struct sw_kernel *kernel,
                        void *const *in, void *const *out, void *workspace, double *scalars);
    void (*algorithms)(struct sw_device *dev, struct sw_str *out); /* NULL: nothing is chosen */
};

struct sw_device { /* base; first member of every implementation */
    const struct sw_device_ops *ops;
    unsigned caps;
    /* Host memory that a plan sets aside where something does not reach SW_MEM_DEVICE; 0 =
     * everything does. */
    size_t staging_bytes;
    const char *kernel_set; /* see sw_device_kernel_set; the implementation's */
    /* Of SW_MEM_DEVICE that was free when it was opened, this rank's share of what several use; 0 =
     * it is the system's memory. */
    size_t memory_bytes;
    const char *what; /* for people: "cuda:0, NVIDIA H200 (sm_90), 138.2 GiB free" */
    int64_t live_bytes[SW_MEM_COUNT], peak_bytes[SW_MEM_COUNT], n_allocs;
};

struct sw_cpu_options {
    int n_threads;  /* 0 = all this process may use */
    bool reference; /* plain C kernels only */
    /* Newest instruction set to use: "portable", "avx2", "avx512" or "avx512_bf16". NULL: the
     * variable SPILLWAY_ISA, else the newest that the processor has. */
    const char *max_isa;
};

sw_status sw_device_open_cpu(const struct sw_cpu_options *options, struct sw_device **out);

struct sw_mock_options {
    int n_threads; /* as of the CPU */
    bool early;    /* work runs when it is queued; false: not before somebody waits for it */
    /* Whose kernels run, on memory that the host gave; the mock's from here on, closed too where it
     * does not open. NULL = the reference kernels of the CPU. */
    struct sw_device *inner;
};
/* Those kernels, in memory that the host cannot reach. */
sw_status sw_device_open_mock(const struct sw_mock_options *options, struct sw_device **out);

/* This rank among those of its machine, which take its GPUs in turns. */
struct sw_device_place {
    int rank, n_ranks;
};

/*
 * sw_device_open_at - opens a device by name.
 *
 * name     "cpu", "cpu:reference"; "cuda" or "hip", the one of several that is this rank's turn, or
 *          by number, "cuda:1"; "auto": what SPILLWAY_DEVICE names, else a GPU if there is one,
 *          else the CPU. For tests "mock", "mock:early" and "emu": the kernels of GPUs on the CPU,
 *          with warps of 32, behind the manners of mock; "emu:64", "emu:early", "emu:reversed" (the
 *          other order of threads), "emu:direct" (without those manners)
 * place    NULL = alone
 *
 * SW_E_ARG     there is no such name: lists them
 * SW_E_UNSUP   no module for that GPU in this build, no driver, no such GPU: says what is missing
 */
sw_status sw_device_open_at(const char *name, int n_threads, const struct sw_device_place *place,
                            struct sw_device **out);
sw_status sw_device_open(const char *name, int n_threads, struct sw_device **out); /* alone */
void sw_device_close(struct sw_device *dev);

/* Front functions: same meaning as the slots. Memory is aligned to 4096 bytes, not zeroed. Threads:
 * memory, kernels and queues are opened and closed by one at a time; work is queued and waited for
 * by several, each on queues of its own. */
sw_status sw_device_alloc(struct sw_device *dev, enum sw_mem kind, size_t bytes, void **out);
void sw_device_free(struct sw_device *dev, enum sw_mem kind, void *mem, size_t bytes);
sw_status sw_device_copy(struct sw_device *dev, struct sw_stream_queue *on, void *dst,
                         const void *src, size_t bytes);
sw_status sw_device_fill(struct sw_device *dev, struct sw_stream_queue *on, void *dst, int byte,
                         size_t bytes);
sw_status sw_device_add_slices(struct sw_device *dev, struct sw_stream_queue *on,
                               const struct sw_slice_sum *sum);
sw_status sw_device_add_words(struct sw_device *dev, struct sw_stream_queue *on, int64_t *out,
                              const int64_t *words, int64_t n_sets, int64_t n);
void sw_device_query(struct sw_device *dev, const struct sw_op_desc *desc,
                     struct sw_kernel_info *out);
sw_status sw_device_prepare(struct sw_device *dev, const struct sw_op_desc *desc,
                            struct sw_kernel **out);
sw_status sw_device_launch(struct sw_device *dev, struct sw_stream_queue *on,
                           struct sw_kernel *kernel, void *const *in, void *const *out,
                           void *workspace, double *scalars);

/* Which kernel set is in use, all that can change a bit: "cpu avx512 v2 bf16:native ..".
 * Part of the math fingerprint. Static for the device's life. */
const char *sw_device_kernel_set(struct sw_device *dev);

/* Appends what a library chose for the kernels that were prepared, where it chooses by shapes:
 * "5x7x3 of f32 to f32, ..: algorithm 3 tile 2; .." - of each product what was asked for, ": ", the
 * algorithm, "; " between them, in the order in which they were prepared. The same question with
 * another answer has other bits. Appends nothing where the kernel set says all. */
void sw_device_algorithms(struct sw_device *dev, struct sw_str *out);

/* ---- for `doctor` ---- */
/* Appends, for CUDA and for HIP, lines that begin with a check mark or a cross: the module, the
 * driver, each GPU, the library of products; of what is missing how to get it. */
void sw_device_gpu_report(struct sw_str *out);

struct sw_cpu_report {
    char cpu[128]; /* model name */
    char isa[256]; /* what was found, what is used */
    int n_threads;
    /* Matrix units, which a library's products of bf16 may use; no register peak is theirs. */
    bool has_amx;
    struct {
        enum sw_dtype dtype;
        double register_gflops; /* measured, one thread, out of registers .. */
        const char *unit;       /* .. of these instructions; a product may use others */
        double product_gflops;  /* measured, all threads, 1024x1024x1024 through our MATMUL */
        char path[128];         /* how a product of this dtype is computed */
    } peak[3];                  /* f32, bf16, f16 */
    double copy_gb_s;           /* memcpy, all threads, read + written */
};
sw_status sw_device_cpu_report(struct sw_device *dev, struct sw_cpu_report *out);
/* The model name alone, which takes no time. */
void sw_device_processor_name(char *out, size_t cap);
