// SPDX-License-Identifier: Apache-2.0
// device - memory, streams, timelines, and kernels by op kind, as constant tables. The front
// functions below check, count and trace; the back ends trust their callers. Back ends: cpu (fast
// rows and the plain C reference), gpu (CUDA, HIP and an emulation of both), and mock. The mock's
// memory is out of the host's reach and poisoned after release; its work runs as late, or as early,
// as its order allows.
#pragma once

#include "base/base.h"
#include "graph/graph.h"
#include "tensor/tensor.h"

struct sw_device;
struct sw_stream_queue; /* an ordered queue of work */
/* A counter in memory that both sides see. Streams and the host set it and wait for it; it only
 * grows. On CUDA and HIP it is a word that the stream itself writes and waits for. */
struct sw_timeline;
struct sw_kernel; /* a prepared kernel: one op with its shapes, ready to launch */

enum sw_mem { SW_MEM_DEVICE, SW_MEM_HOST, SW_MEM_COUNT };

/* Who may use addresses of SW_MEM_DEVICE. Everyone else copies through SW_MEM_HOST
 * (staging_bytes). */
enum sw_device_cap {
    SW_DEVICE_HOST_VISIBLE = 1, /* the host; copies then take host memory from anywhere */
    SW_DEVICE_DISK_REACHES = 2, /* disk transfers */
    SW_DEVICE_COMM_REACHES = 4, /* transports, to send from and receive into */
    /* Nothing: the device only answers what a planner asks, and nothing can be allocated. */
    SW_DEVICE_SIMULATED = 8,
};

/* The slices that ranks sent, added in rank order: acc[i] += float(slices[k][i]) for k = 0, 1, ..
 * Each addition is rounded to fp32 by itself. The bits are those of one rank that adds its
 * micro-batches one after the other. */
struct sw_slice_sum {
    float *acc;          /* device [n] */
    enum sw_dtype dtype; /* dtype of slices: SW_F32, SW_BF16 or SW_F16 */
    const void *slices;  /* device [n_slices, n] */
    int64_t n;
    int n_slices;
    bool fresh; /* acc is uninitialised: the first slice is converted into it, not added */
    /* device [n] of the same dtype as the slices: gets the sums, rounded once; NULL = not wanted */
    void *rounded;
};

struct sw_device_ops {
    const char *name;
    void (*close)(struct sw_device *dev);
    sw_status (*mem_alloc)(struct sw_device *dev, enum sw_mem kind, size_t bytes, void **out);
    void (*mem_free)(struct sw_device *dev, enum sw_mem kind, void *mem, size_t bytes);
    sw_status (*stream_open)(struct sw_device *dev, struct sw_stream_queue **out);
    void (*stream_close)(struct sw_device *dev, struct sw_stream_queue *stream);
    sw_status (*stream_wait)(struct sw_device *dev,
                             struct sw_stream_queue *stream); /* the host waits */
    /* dst and src are memory of this device; with SW_DEVICE_HOST_VISIBLE they may be any memory. */
    sw_status (*copy)(struct sw_device *dev, struct sw_stream_queue *on, void *dst, const void *src,
                      size_t bytes);
    sw_status (*fill)(struct sw_device *dev, struct sw_stream_queue *on, void *dst, int byte,
                      size_t bytes);
    sw_status (*add_slices)(struct sw_device *dev, struct sw_stream_queue *on,
                            const struct sw_slice_sum *sum);
    /* Adds words of exact sums: out[i] = words[0][i] + words[1][i] + .. words is device memory
     * [n_sets, n] that does not overlap out. */
    sw_status (*add_words)(struct sw_device *dev, struct sw_stream_queue *on, int64_t *out,
                           const int64_t *words, int64_t n_sets, int64_t n);
    sw_status (*timeline_open)(struct sw_device *dev, struct sw_timeline **out); /* starts at 0 */
    /* No queued work may still set it or wait for it. */
    void (*timeline_close)(struct sw_device *dev, struct sw_timeline *timeline);
    /* The counter becomes `value` once all work queued on `on` before has run. */
    sw_status (*stream_signal)(struct sw_device *dev, struct sw_stream_queue *on,
                               struct sw_timeline *timeline, int64_t value);
    /* Work queued on `on` after this starts once the counter is at least `value`. The signal may be
     * queued later than the wait. If streams run on the queueing thread (the CPU), that thread
     * waits. */
    sw_status (*stream_await)(struct sw_device *dev, struct sw_stream_queue *on,
                              struct sw_timeline *timeline, int64_t value);
    /* The host sets the counter, for streams and threads that wait. */
    sw_status (*timeline_set)(struct sw_device *dev, struct sw_timeline *timeline, int64_t value);
    int64_t (*timeline_get)(struct sw_device *dev, const struct sw_timeline *timeline);
    /* The host waits until the counter is at least `value`. */
    sw_status (*timeline_wait)(struct sw_device *dev, struct sw_timeline *timeline, int64_t value);
    /* Can this op run, and with how much workspace? Never fails: sets supported = false. */
    void (*query)(struct sw_device *dev, const struct sw_op_desc *desc, struct sw_kernel_info *out);
    /* Called while the plan is made: creates primitives and picks algorithms. */
    sw_status (*prepare)(struct sw_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel **out);
    void (*release)(struct sw_device *dev, struct sw_kernel *kernel);
    /* in [desc n_in], out [desc n_out]: device addresses of element 0 of each view (NULL = absent).
     * workspace: the size that query gave, 64-byte aligned. scalars: [SW_SCALAR_COUNT] on the
     * device. A predicated kernel reads SKIP there; if it is set, the kernel leaves its operands
     * unchanged. Exception: an fp16 working copy is then rounded from its master, since nothing has
     * loaded it. */
    sw_status (*launch)(struct sw_device *dev, struct sw_stream_queue *on, struct sw_kernel *kernel,
                        void *const *in, void *const *out, void *workspace, double *scalars);
    void (*algorithms)(struct sw_device *dev, struct sw_str *out); /* NULL: nothing is chosen */
};
/* The functions of an implementation, which have these names in its file. */
#define SW_DEVICE_OPS                                                                              \
    .close = close_device, .mem_alloc = mem_alloc, .mem_free = mem_free,                           \
    .stream_open = stream_open, .stream_close = stream_close, .stream_wait = stream_wait,          \
    .copy = copy, .fill = fill, .add_slices = add_slices, .add_words = add_words,                  \
    .timeline_open = timeline_open, .timeline_close = timeline_close,                              \
    .stream_signal = stream_signal, .stream_await = stream_await, .timeline_set = timeline_set,    \
    .timeline_get = timeline_get, .timeline_wait = timeline_wait, .query = query,                  \
    .prepare = prepare, .release = release, .launch = launch

/* ---- exchanges among devices by the vendor's library: NCCL, RCCL ---- */

struct sw_ccl; /* a communicator of the library */

enum { SW_CCL_ID_BYTES = 128 };
struct sw_ccl_facts {
    char name[32];   /* "nccl 2.21.5"; ranks need the same */
    char path[512];  /* of the library */
    char device[96]; /* what no two ranks may share, such as a PCI address; "" = anything */
};
struct sw_ccl_options {
    unsigned char id[SW_CCL_ID_BYTES]; /* of one member, the same for all */
    int rank, n;
    double deadline_s; /* longest wait for the others to open theirs */
    const char *name;  /* for messages; borrowed for the call */
};

enum sw_ccl_verb {
    SW_CCL_SEND,           /* src [bytes] to a member */
    SW_CCL_RECEIVE,        /* dst [bytes] from a member */
    SW_CCL_ALL_GATHER,     /* src [bytes] to dst [n, bytes]; src may be this rank's slice of it */
    SW_CCL_REDUCE_SCATTER, /* src [n, bytes] to the sums of this rank's slices, dst [bytes] */
    SW_CCL_BROADCAST,      /* src [bytes] of a member to dst [bytes] of all; they may be equal */
};
/* Addresses are on the device. All members give collectives in the same order. */
struct sw_ccl_op {
    enum sw_ccl_verb verb;
    int peer; /* SEND, RECEIVE, BROADCAST: the member */
    const void *src;
    void *dst;
    size_t bytes;
    enum sw_dtype dtype; /* REDUCE_SCATTER: SW_F32, SW_BF16, SW_F16 */
};

/* All members are set, but for `busy`: only a device that another one wraps has it. */
struct sw_ccl_ops {
    /* Finds and opens the library. SW_E_UNSUP: none, or older than 2.18; out->device is set */
    sw_status (*facts)(struct sw_device *dev, struct sw_ccl_facts *out);
    /* After facts; one member calls it. */
    sw_status (*new_id)(struct sw_device *dev, unsigned char id[SW_CCL_ID_BYTES]);
    /* Collective. SW_E_PEER: not all members came within the deadline */
    sw_status (*open)(struct sw_device *dev, const struct sw_ccl_options *options,
                      struct sw_ccl **out);
    /* failed: do not wait for the members. No queued work may use it. NULL is a no-op. */
    void (*close)(struct sw_device *dev, struct sw_ccl *ccl, bool failed);
    /* The error that the library met since, if any. Any thread may call it. */
    sw_status (*check)(struct sw_device *dev, struct sw_ccl *ccl);
    /* Ends queued exchanges, whose results are undefined, and refuses later ones. Any thread. */
    void (*abort)(struct sw_device *dev, struct sw_ccl *ccl);
    /* Queues ops [n] that travel together. Of one communicator, all are queued on one stream. */
    sw_status (*exchange)(struct sw_device *dev, struct sw_stream_queue *on, struct sw_ccl *ccl,
                          const struct sw_ccl_op *ops, int n);
    /* Whether the vendor's stream still has queued work. */
    sw_status (*busy)(struct sw_device *dev, struct sw_stream_queue *on, bool *out);
};

/* ---- captured work: CUDA and HIP graphs ---- */

/* Work that was recorded once, and is queued as one. It has the addresses of its operands; what is
 * at them, scalars included, is read when it runs. Base class. */
struct sw_captured {
    int n_launches; /* kernels, products, fills and copies in it */
};

struct sw_capture_ops {
    /* Work queued on `on` is recorded from here on, and does not run. Only kernels, fills, copies
     * and sums may be queued; anything else fails, and so does `end` then. */
    sw_status (*begin)(struct sw_device *dev, struct sw_stream_queue *on);
    /* By the thread that began. out NULL = drops what was recorded */
    sw_status (*end)(struct sw_device *dev, struct sw_stream_queue *on, struct sw_captured **out);
    sw_status (*replay)(struct sw_device *dev, struct sw_stream_queue *on,
                        struct sw_captured *captured);
    /* No queued work may be of it. NULL is a no-op. Kernels that it has are released later. */
    void (*close)(struct sw_device *dev, struct sw_captured *captured);
};

struct sw_device { /* base class: first member of every implementation */
    const struct sw_device_ops *ops;
    const struct sw_ccl_ops *ccl;         /* NULL = the device has no such library */
    const struct sw_capture_ops *capture; /* NULL = nothing can be captured */
    /* Why not, for a device of a kind on which it can: "the driver has ..". NULL otherwise. */
    const char *no_capture;
    /* Device memory that the library takes for a communicator, as far as is known. */
    size_t ccl_bytes;
    unsigned caps;
    /* Host memory that a plan sets aside if something does not reach SW_MEM_DEVICE; 0 = everything
     * reaches it. */
    size_t staging_bytes;
    const char *kernel_set; /* see sw_device_kernel_set; owned by the implementation */
    /* SW_MEM_DEVICE bytes for this rank: those that were free at open, or its share of them (see
     * sw_device_share). 0 = the device uses the system's memory. */
    size_t memory_bytes;
    size_t free_bytes;   /* GPUs: what the driver said was free at open */
    const char *address; /* GPUs: on the machine's bus; NULL or "" = none is known */
    /* Simulated devices: this rank's share of its host's memory and disks. disk_bytes 0 = the
     * host has no disks. */
    size_t host_bytes, disk_bytes;
    const char *what; /* description for people: "cuda:0, NVIDIA H200 (sm_90), 138.2 GiB free" */
    int64_t live_bytes[SW_MEM_COUNT], peak_bytes[SW_MEM_COUNT], n_allocs;
};

struct sw_cpu_options {
    int n_threads;  /* 0 = all that this process may use */
    bool reference; /* plain C kernels only */
    /* Newest instruction set to use: "portable", "avx2", "avx512", "avx512_bf16" or "amx_bf16".
     * NULL: SPILLWAY_ISA if it is set, else the newest that the processor has. */
    const char *max_isa;
    bool by_library; /* products by oneDNN; SW_E_UNSUP if it has none for this processor */
};

sw_status sw_device_open_cpu(const struct sw_cpu_options *options, struct sw_device **out);

struct sw_mock_options {
    int n_threads; /* as in sw_cpu_options */
    bool early;    /* work runs when it is queued; false: only when something waits for it */
    /* Device whose kernels run, on memory that the host gave. The mock owns it from here on, and
     * closes it even if the open fails. NULL = the reference kernels of the CPU. */
    struct sw_device *inner;
};
/* Runs the kernels of `inner` in memory that the host cannot reach. */
sw_status sw_device_open_mock(const struct sw_mock_options *options, struct sw_device **out);

/* This rank among the ranks of its machine, which open its GPUs round-robin. */
struct sw_device_place {
    int rank, n_ranks;
    int n_world; /* ranks on all machines; 0 = 1. Simulated devices have their share by it */
};

/*
 * sw_device_open_at - opens a device by name.
 *
 * name     "cpu", "cpu:reference"; "cuda" or "hip": this rank's GPU in round-robin order, or by
 *          number, "cuda:1"; "auto": the device that SPILLWAY_DEVICE names, else a GPU if there is
 *          one, else the CPU. For tests "mock", "mock:early" and "emu": GPU kernels emulated on the
 *          CPU with warps of 32, behind the mock's memory and ordering rules. Variants: "emu:64",
 *          "emu:early", "emu:reversed" (threads in reverse order), "emu:direct" (without the mock).
 *          "sim:NAME": a device of that cluster, or of the cluster in that file (cluster.h), for
 *          plans; it has SW_DEVICE_SIMULATED
 * place    NULL = alone
 *
 * SW_E_ARG     no such name: the message lists the known ones
 * SW_E_UNSUP   no module for that GPU in this build, no driver, or no such GPU: the message says
 *              what is missing
 */
sw_status sw_device_open_at(const char *name, int n_threads, const struct sw_device_place *place,
                            struct sw_device **out);
/* Returns the device that "auto" stands for on this machine, and any other name as it is. */
const char *sw_device_chosen(const char *name);
/* place = NULL */
sw_status sw_device_open(const char *name, int n_threads, struct sw_device **out);
void sw_device_close(struct sw_device *dev);
/* Leaves this rank its share of memory_bytes: n ranks use the device. Call it once. */
void sw_device_share(struct sw_device *dev, int n);

/* Front functions: same meaning as the slots. Memory is aligned to 4096 bytes and not zeroed.
 * Threads: one thread at a time asks about kernels, and opens and closes memory, kernels and
 * queues. Several threads may queue work and wait for it, each on its own queues. */
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
/* A device that has sw_capture_ops, as in the slots. */
sw_status sw_device_capture_begin(struct sw_device *dev, struct sw_stream_queue *on);
sw_status sw_device_capture_end(struct sw_device *dev, struct sw_stream_queue *on,
                                struct sw_captured **out);
sw_status sw_device_replay(struct sw_device *dev, struct sw_stream_queue *on,
                           struct sw_captured *captured);
void sw_device_captured_close(struct sw_device *dev, struct sw_captured *captured);
/* A device that has sw_ccl_ops. */
sw_status sw_device_exchange(struct sw_device *dev, struct sw_stream_queue *on, struct sw_ccl *ccl,
                             const struct sw_ccl_op *ops, int n);
void sw_device_query(struct sw_device *dev, const struct sw_op_desc *desc,
                     struct sw_kernel_info *out);
sw_status sw_device_prepare(struct sw_device *dev, const struct sw_op_desc *desc,
                            struct sw_kernel **out);
sw_status sw_device_launch(struct sw_device *dev, struct sw_stream_queue *on,
                           struct sw_kernel *kernel, void *const *in, void *const *out,
                           void *workspace, double *scalars);

/* Names the kernel set in use, with all that can change a bit: "cpu avx512 v2 bf16:native ..". It
 * is part of the math fingerprint and constant for the device's life. */
const char *sw_device_kernel_set(struct sw_device *dev);

/* Appends the algorithms that a library chose by shape for the prepared kernels, in the order of
 * preparation: "5x7x3 of f32 to f32, ..: algorithm 3 tile 2; ..". Each entry is the product asked
 * for, ": " and the algorithm; "; " separates entries. If the same question gets another answer,
 * the bits differ. Appends nothing if the kernel set already determines the bits. */
void sw_device_algorithms(struct sw_device *dev, struct sw_str *out);
struct sw_other_algorithm {
    char product[256], was[128], is[128];
};
/* Finds the next product in `*was` that `is` has too, with a different algorithm, and moves *was
 * past it. Both are texts of sw_device_algorithms. False: there is none. */
bool sw_device_next_other_algorithm(const char **was, const char *is,
                                    struct sw_other_algorithm *out);

/* ---- for `doctor` ---- */
/* Appends lines for CUDA and HIP that begin with a check mark or a cross: the module, the driver,
 * each GPU, and its libraries for products and exchanges. A line about something missing says
 * how to get it. */
void sw_device_gpu_report(struct sw_str *out);

enum { SW_CPU_DTYPES = 3, SW_CPU_OPS = 6 };

struct sw_cpu_report {
    char cpu[128]; /* model name */
    char isa[256]; /* the instruction sets found and used */
    int n_threads;
    const char *without_amx; /* why AMX is not used although the processor has it; NULL */
    struct {
        enum sw_dtype dtype;
        /* measured, one thread, operands in registers: the largest of the instructions in use */
        double register_gflops;
        const char *unit;      /* the instruction of register_gflops; a product may use others */
        double product_gflops; /* measured, all threads, 1024x1024x1024 through our MATMUL */
        char path[128];        /* how a product of this dtype is computed */
    } peak[SW_CPU_DTYPES];     /* f32, bf16, f16 */
    struct {
        const char *op;
        char path[SW_CPU_DTYPES][128]; /* the kernel by dtype, for a shape of GPT-2 */
    } kernel[SW_CPU_OPS];
    double copy_gb_s; /* memcpy, all threads, read + written */
};
sw_status sw_device_cpu_report(struct sw_device *dev, struct sw_cpu_report *out);
/* The processor's model name; takes no time. */
void sw_device_processor_name(char *out, size_t cap);
