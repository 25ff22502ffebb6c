// SPDX-License-Identifier: Apache-2.0
// gpu - a device behind a module (module/module.h): CUDA, HIP, or the emulation of both. Declares
// what the back end's files share: the device, the call, the rows of ops. An op runs as kernels of
// the module and products of the vendor's library. The choice of kernels and their grid sizes
// depend only on shapes, dtypes and the kernel set.
#pragma once

#include "device/device.h"
#include "device/gpu/module/args.h"
#include "device/gpu/module/args_draw.h"

struct gpu_products; /* blas.h */
struct gpu_batch;    /* batch.h */
struct nccl_library; /* ccl.c */

struct gpu_device {
    struct sw_device super;
    const struct sw_gpu_module *module;
    int index; /* index of the device in the vendor's numbering */
    struct sw_gpu_facts facts;
    const struct sw_gpu_kernel *kernels[GPU_N_KERNELS];
    struct gpu_products *products;
    struct nccl_library *nccl; /* NULL until it is asked for */
    int node;                  /* NUMA node of staging memory, or GPU_NODE_UNKNOWN */
    char kernel_set[256], what[256], no_capture[128];
    char no_node
        [128]; /* why node is unknown; empty: the machine has one, or the bus has no address */
};

static inline struct gpu_device *sw_gpu_of(struct sw_device *dev)
{
    return SW_CONTAINER(dev, struct gpu_device, super);
}

/* SW_E_DEVICE with the vendor's text for a code. */
sw_status sw_gpu_failed(const struct gpu_device *dev, int code, const char *doing);
/* Launches batched ops; returns the vendor's stream. */
sw_status sw_gpu_stream(struct gpu_device *dev, struct sw_stream_queue *on, void **out);
void *sw_gpu_raw_stream(const struct sw_stream_queue *on); /* launches nothing */

/* ---- capture.c ---- */
extern const struct sw_capture_ops sw_gpu_capture;
/* Sets `capture` of the device, or `no_capture`, by its driver. */
void sw_gpu_find_capture(struct gpu_device *dev);

/* ---- ccl.c ---- */
extern const struct sw_ccl_ops sw_gpu_ccl;
/* Device memory assumed for a communicator of the device's library; 0 = it has no library. */
size_t sw_gpu_ccl_bytes(const struct gpu_device *dev);
void sw_gpu_ccl_forget(struct gpu_device *dev);

/* One launch of an op. Addresses are on the device: the host must not read or write them. */
struct gpu_call {
    struct gpu_device *dev;
    void *stream; /* the vendor's stream */
    const struct sw_op_desc *desc;
    void *const *in;    /* [desc n_in], NULL = absent */
    void *const *out;   /* [desc n_out], NULL = absent or not wanted */
    void *workspace;    /* of the size that query gave, 64-byte aligned */
    double *scalars;    /* [SW_SCALAR_COUNT] */
    bool is_predicated; /* the op does nothing if scalars[SW_SCALAR_SKIP] is not 0 */
    void *prepared;
    int *tickets;            /* the stream's [GPU_TICKETS], zeros before each kernel */
    struct gpu_batch *batch; /* the stream's batched ops; NULL: this op is never batched */
};

/* The implementation of one kind of op. */
struct gpu_op {
    /* Sets supported = true, and workspace_bytes if some is needed; leaves supported false for what
     * it does not take. Float types are f32, bf16 and f16: f64 is refused earlier. */
    void (*query)(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out);
    sw_status (*prepare)(struct gpu_device *dev, const struct sw_op_desc *desc,
                         void **prepared);                   /* NULL: nothing to prepare */
    void (*release)(struct gpu_device *dev, void *prepared); /* NULL if prepare is NULL */
    /* Queues kernels; never waits, never allocates. */
    sw_status (*run)(const struct gpu_call *call);
    bool stands_in_line; /* the op may be batched with other ops of the stream */
};

/* Can this op run, and with how much workspace? sw_device_ops.query of every GPU. */
void sw_gpu_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out);
/* The memory for plans: what is free, less a reserve for the runtime's own allocations when kernels
 * first run. */
static inline size_t sw_gpu_usable(size_t free_bytes)
{
    enum { RESERVE = 64 }; /* one part in 64 */
    return free_bytes - free_bytes / RESERVE;
}
/* Pinned memory for disks and other ranks to access the device's memory. A read takes an eighth:
 * one half is being read from disk while the other is copied. */
enum { GPU_STAGING_BYTES = 64 << 20 };

/* By kind; NULL = not implemented (op_table.c). */
extern const struct gpu_op *const sw_gpu_ops[SW_N_OP_KINDS];

/* The kernel instance for a dtype: SW_GPU_F32, _BF16, _F16. */
enum sw_gpu_type sw_gpu_type_of(enum sw_dtype dtype);

struct gpu_grid {
    int64_t x, y, z; /* 0 = 1 */
};
/* A grid of blocks of n_threads for n elements in a grid-stride loop: 1 to 65536 blocks. */
struct gpu_grid sw_gpu_grid_for(int64_t n, int n_threads);

/*
 * sw_gpu_run_kernel - queues a kernel.
 *
 * id          GPU_scale, ..
 * type        SW_GPU_PLAIN for a kernel without an element type
 * shared      bytes of dynamic shared memory
 * args        its struct; this function sets the first member `skip`
 * bytes       size of the struct; must equal the module's
 */
sw_status sw_gpu_run_kernel(const struct gpu_call *call, enum sw_gpu_kernel_id id,
                            enum sw_gpu_type type, struct gpu_grid grid, size_t shared, void *args,
                            size_t bytes);
#define GPU_LAUNCH(call, kernel, type, grid, args)                                                 \
    SW_TRY(sw_gpu_run_kernel(call, GPU_##kernel, type, grid, 0, args, sizeof *(args)))

/* Queues a fill of device memory with zeros. */
sw_status sw_gpu_zero(const struct gpu_call *call, void *dst, size_t bytes);
/* acc [n] = 0, if first is NULL or the scalar is not 0. */
sw_status sw_gpu_clear(const struct gpu_call *call, const double *first, float *acc, int64_t n);
/* y [width] of a dtype = sums [n_blocks, width] added in order. */
sw_status sw_gpu_add_in_order(const struct gpu_call *call, const float *sums, int64_t n_blocks,
                              int64_t width, void *y, enum sw_dtype dtype);
/* The same for the sums of n_rows rows; a block has SW_SUM_BLOCK of them. */
sw_status sw_gpu_add_blocks(const struct gpu_call *call, const float *sums, int64_t n_rows,
                            int64_t width, void *y, enum sw_dtype dtype);

/* The draw of an op with dropout p (module/philox.h). */
struct gpu_draw_args sw_gpu_draw_args(const struct gpu_call *call, double p, int64_t batch);

/* Operand shapes. */
static inline int64_t gpu_elems(const struct sw_view *x)
{
    return sw_shape_elems(&x->shape);
}
static inline bool gpu_is_float(enum sw_dtype dtype) /* dtypes that kernels take */
{
    return sw_gpu_type_of(dtype) != SW_GPU_PLAIN;
}
static inline bool gpu_has_output(const struct sw_op_desc *desc, int i)
{
    return i < desc->op->n_out && desc->out[i].shape.rank >= 0;
}
/* The address `elems` elements after `at`; NULL stays NULL. */
static inline void *gpu_behind(const void *at, int64_t elems, enum sw_dtype dtype)
{
    return at ? (char *)(uintptr_t)at + elems * (int64_t)sw_dtype_bytes(dtype) : NULL;
}

/* True if all present operands have one type that kernels have instances for. */
bool sw_gpu_all_floats(const struct sw_view *views, int n);
