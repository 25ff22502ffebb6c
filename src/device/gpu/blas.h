// SPDX-License-Identifier: Apache-2.0
// blas - matrix products on a GPU. The vendor's library is found and opened at run time, without
// its headers (blas_lt.c: cuBLASLt and hipBLASLt; blas_rocblas.c). A kernel of ours is used if
// there is no library, if it has no such product, or with SPILLWAY_GPU_BLAS=own. The question to a
// library depends only on the product's shape, dtypes and alignment, never on free memory: fp32
// sums (no TF32), no split-K, a constant workspace limit, the first answer taken. Each product is
// asked for once and kept with the device.
#pragma once

#include "device/gpu/gpu.h"

/* Alignment of operands, in bytes; a piece's offset may have less. */
enum { GPU_ALIGN = 16 };
/* Workspace limit of a library. It is part of the kernel set: another limit changes the library's
 * choices. */
enum { GPU_BLAS_WORKSPACE = 32 << 20 };
/* cuBLASLt refuses a workspace that is not at a multiple of it. */
enum { GPU_BLAS_WORKSPACE_ALIGN = 256 };

/* d [m, n] = a [m, k] b [k, n] (+ bias [n]), row-major. ta: a is stored as [k, m]; tb: b as [n, k].
 * gelu: d is the tanh GELU of that; keeps_pre keeps the input of GELU, rounded to d's dtype, in a
 * matrix with d's row stride and alignment. Compared byte by byte: no padding. */
struct gpu_product {
    int64_t m, n, k;
    int64_t lda, ldb, ldd; /* strides between stored rows, in elements */
    int32_t ta, tb, has_bias, gelu, keeps_pre;
    int32_t in, out; /* enum sw_dtype: F32, BF16, F16; in: of a and b; out: of d and the bias */
    int32_t align_a, align_b, align_d; /* bytes: see sw_gpu_align */
};
_Static_assert(sizeof(struct gpu_product) == 88, "compared byte by byte");

/* Alignment of an address that is `bytes`, or a multiple of it, after an operand's start. */
static inline int32_t sw_gpu_align(int64_t bytes)
{
    const int64_t low = bytes & -bytes;
    return low == 0 || low > GPU_ALIGN ? GPU_ALIGN : (int32_t)low;
}

/* Alignment of an operand that starts at such an offset (sw_op_desc), and of any piece of it. */
static inline int32_t sw_gpu_align_in(uint8_t shift, int64_t piece_bytes)
{
    return sw_gpu_align(shift | piece_bytes);
}

struct gpu_blas;

/* One product, ready to queue. */
struct gpu_prepared {
    struct gpu_product shape;
    struct gpu_blas *blas; /* NULL = our kernel */
    /* The library's, plus the bytes that aligning it may take. */
    size_t workspace_bytes;
    char algorithm[96]; /* description of the chosen algorithm */
    bool is_used;       /* used by a kernel; others were only queried while a plan was made */
    void *handle;       /* the library's data */
};

/* All addresses are on the device. */
struct gpu_product_call {
    void *stream;
    const void *a, *b, *bias;
    void *d, *pre;
    /* prepared->workspace_bytes at a multiple of SW_STORAGE_ALIGN. A library gets its part of them
     * at a multiple of GPU_BLAS_WORKSPACE_ALIGN, or NULL if it needs none. */
    void *workspace;
};

/* A library. Its own per-device data follows this struct in memory. */
struct gpu_blas_ops {
    bool adds_bias; /* products may have a bias */
    bool has_gelu;  /* products may have GELU */
    void (*close)(struct gpu_blas *blas);
    /* Fills workspace_bytes (its own), algorithm and handle; SW_E_UNSUP: the library does not
     * support the product. */
    sw_status (*prepare)(struct gpu_blas *blas, struct gpu_prepared *product);
    void (*release)(struct gpu_blas *blas, struct gpu_prepared *product);
    /* One call at a time. */
    sw_status (*run)(struct gpu_blas *blas, const struct gpu_prepared *product,
                     const struct gpu_product_call *call);
};
struct gpu_blas {
    const struct gpu_blas_ops *ops;
    char name[48];  /* "cublaslt 13.1.0": part of the kernel set */
    char path[512]; /* its file */
};

/* Opens the library at path, for the calling thread's current device. */
sw_status sw_gpu_blas_open_cublaslt(const char *path, struct gpu_blas **out);
sw_status sw_gpu_blas_open_hipblaslt(const char *path, struct gpu_blas **out);
sw_status sw_gpu_blas_open_rocblas(const char *path, struct gpu_blas **out);

/* Products that a library takes. Both are asked before it is. */
bool sw_gpu_lt_takes(const struct gpu_product *product);
bool sw_gpu_rocblas_takes(const struct gpu_product *product);
/* A library of that name that only answers: it takes what the real one does, with the workspace
 * limit as workspace, since only the library itself knows how much a product needs. NULL: no
 * memory. */
struct gpu_blas *sw_gpu_blas_assume(const char *name);

/* ---- for the device and its ops ---- */

/*
 * sw_gpu_products_open - opens the products of a device, with a library if one works.
 *
 * Every library that is present and does not work is logged as a warning. The result's name (see
 * below) says which one is used.
 */
sw_status sw_gpu_products_open(struct gpu_device *dev, struct gpu_products **out);
/* The same for a simulated device. Its library is assumed: the first one of its back end, or the
 * one that SPILLWAY_GPU_BLAS names. */
sw_status sw_gpu_products_assume(struct gpu_device *dev, struct gpu_products **out);
void sw_gpu_products_close(struct gpu_products *products); /* NULL is allowed */
/* "cublaslt 13.1.0", or "own". */
const char *sw_gpu_products_name(const struct gpu_products *products);
/* SPILLWAY_GPU_BLAS=own asks for our kernel instead of a library. */
bool sw_gpu_products_own(void);
/* The library's file; NULL = none. */
const char *sw_gpu_products_path(const struct gpu_products *products);
/* True if the product itself adds a bias of the result's dtype. */
bool sw_gpu_products_add_bias(const struct gpu_products *products);
/* True if products may ask for GELU; a product's `blas` says whether it was granted. */
bool sw_gpu_products_have_gelu(const struct gpu_products *products);
/* Marks the products asked for from here on as used by a kernel (true), or only queried (false). */
void sw_gpu_products_use(struct gpu_products *products, bool used);
/* Appends the choice for each product of a kernel (see sw_device_algorithms). */
void sw_gpu_products_describe(const struct gpu_products *products, struct sw_str *out);

/* Gets the product of that shape. The device owns it, and it lives as long as the device. */
sw_status sw_gpu_product_get(const struct gpu_device *dev, const struct gpu_product *shape,
                             const struct gpu_prepared **out);
/* Queues a product. what: all but the stream; bias and pre are NULL if absent. Refuses operands
 * whose alignment is below the shape's. */
sw_status sw_gpu_product_run(const struct gpu_call *call, const struct gpu_prepared *product,
                             const struct gpu_product_call *what);
/* Queues the kernel that follows products; dtype: of out and pre. */
sw_status sw_gpu_product_finish(const struct gpu_call *call, enum sw_dtype dtype,
                                struct gpu_product_finish_args *args);
