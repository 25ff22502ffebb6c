// SPDX-License-Identifier: Apache-2.0
// blas - products of matrices on a GPU: by the vendor's library, which is found and opened at run
// time and of which no header is needed (blas_lt.c: cuBLASLt and hipBLASLt; blas_rocblas.c), or by
// a kernel of ours where there is none, or none for a product. SPILLWAY_GPU_BLAS=own: by ours.
//
// What a library is asked depends on the product's shape, dtypes and alignment alone, never on
// memory that happens to be free: fp32 sums (no TF32), no sums of partial products, a constant
// limit of workspace, the first answer taken. Each product is asked for once and kept with the
// device.
#pragma once

#include "device/gpu/gpu.h"

/* Operands begin at multiples of so many bytes; what lies a piece behind them may at fewer. */
enum { GPU_ALIGN = 16 };
/* All a library may use. Part of the kernel set: another one makes it choose otherwise. */
enum { GPU_BLAS_WORKSPACE = 32 << 20 };

/* d [m, n] = a [m, k] b [k, n] (+ bias [n]), row-major; ta: a lies as [k, m], tb: b as [n, k].
 * gelu: d is GELU by tanh of that, which keeps_pre keeps, rounded to d's dtype, in a matrix with
 * rows and alignment of d's. Compared byte by byte: no padding. */
struct gpu_product {
    int64_t m, n, k;
    int64_t lda, ldb, ldd; /* elements from one row in memory to the next */
    int32_t ta, tb, has_bias, gelu, keeps_pre;
    int32_t in, out; /* enum sw_dtype, F32, BF16, F16; a's and b's; d's and the bias's */
    int32_t align_a, align_b, align_d; /* bytes: see sw_gpu_align */
};
_Static_assert(sizeof(struct gpu_product) == 88, "compared byte by byte");

/* What an address is a multiple of, that is so many bytes behind an operand's, or several times
 * so many. */
static inline int32_t sw_gpu_align(int64_t bytes)
{
    const int64_t low = bytes & -bytes;
    return low == 0 || low > GPU_ALIGN ? GPU_ALIGN : (int32_t)low;
}

/* Of an operand that begins so many bytes behind such a multiple (sw_op_desc), and of what lies
 * any number of pieces behind it. */
static inline int32_t sw_gpu_align_in(uint8_t shift, int64_t piece_bytes)
{
    return sw_gpu_align(shift | piece_bytes);
}

struct gpu_blas;

/* One product, ready to be queued. */
struct gpu_prepared {
    struct gpu_product shape;
    struct gpu_blas *blas; /* NULL = our kernel */
    size_t workspace_bytes;
    char algorithm[96]; /* what was chosen, in words */
    bool is_used;       /* by a kernel; others were looked at, while a plan was made */
    void *handle;       /* the library's part */
};

/* Addresses are the device's. */
struct gpu_product_call {
    void *stream;
    const void *a, *b, *bias;
    void *d, *pre;
    void *workspace; /* prepared->workspace_bytes, 64-byte aligned */
};

/* A library. Its own part of a device comes behind this in memory. */
struct gpu_blas_ops {
    bool adds_bias; /* products with a bias may be asked for */
    bool has_gelu;  /* and with GELU */
    void (*close)(struct gpu_blas *blas);
    /* Fills workspace_bytes, algorithm and handle; SW_E_UNSUP: the library has no way to do it. */
    sw_status (*prepare)(struct gpu_blas *blas, struct gpu_prepared *product);
    void (*release)(struct gpu_blas *blas, struct gpu_prepared *product);
    /* One at a time. */
    sw_status (*run)(struct gpu_blas *blas, const struct gpu_prepared *product,
                     const struct gpu_product_call *call);
};
struct gpu_blas {
    const struct gpu_blas_ops *ops;
    char name[48];  /* "cublaslt 13.1.0": of the kernel set */
    char path[512]; /* where it is */
};

/* Opens the library at path, for the calling thread's current device. */
sw_status sw_gpu_blas_open_cublaslt(const char *path, struct gpu_blas **out);
sw_status sw_gpu_blas_open_hipblaslt(const char *path, struct gpu_blas **out);
sw_status sw_gpu_blas_open_rocblas(const char *path, struct gpu_blas **out);

/* ---- for the device and its ops ---- */

/*
 * sw_gpu_products_open - the products of a device: finds the library, or goes without.
 *
 * Every library that is there and does not work is logged, as a warning; the result's name (see
 * below) says what is used.
 */
sw_status sw_gpu_products_open(struct gpu_device *dev, struct gpu_products **out);
void sw_gpu_products_close(struct gpu_products *products); /* NULL is fine */
/* "cublaslt 13.1.0", or "own". */
const char *sw_gpu_products_name(const struct gpu_products *products);
/* SPILLWAY_GPU_BLAS=own asks for our kernel instead of a library. */
bool sw_gpu_products_own(void);
/* The library's file; NULL = none. */
const char *sw_gpu_products_path(const struct gpu_products *products);
/* Bias of the result's dtype is added by the product itself. */
bool sw_gpu_products_add_bias(const struct gpu_products *products);
/* A product may be asked for with GELU. Whether there is one like that, its `blas` says. */
bool sw_gpu_products_have_gelu(const struct gpu_products *products);
/* Products that are asked for from here on are a kernel's, or are only looked at. */
void sw_gpu_products_use(struct gpu_products *products, bool used);
/* Appends what was chosen for each product of a kernel (see sw_device_algorithms). */
void sw_gpu_products_describe(const struct gpu_products *products, struct sw_str *out);

/* The product of that shape; the device's, and there as long as it is. */
sw_status sw_gpu_product_get(const struct gpu_device *dev, const struct gpu_product *shape,
                             const struct gpu_prepared **out);
/* Queues it. what: all but the stream; bias and pre NULL without. Refuses operands that are not
 * aligned as the shape says. */
sw_status sw_gpu_product_run(const struct gpu_call *call, const struct gpu_prepared *product,
                             const struct gpu_product_call *what);
/* Queues what follows products; dtype: of out and pre. */
sw_status sw_gpu_product_finish(const struct gpu_call *call, enum sw_dtype dtype,
                                struct gpu_product_finish_args *args);
