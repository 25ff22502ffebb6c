// SPDX-License-Identifier: Apache-2.0
// dots - whole bf16 products by a microkernel of dot-product instructions (bf16_tiles.h). The right
// operand is packed for all threads, some columns at a time; the left one is read where it lies if
// it can be. A block of sums is finished (bias, activation, rounding) while the next one is
// computed.
// An element is one chain of steps of 32 terms, counted from its first term, or from the first of
// each piece of terms. So its bits depend on nothing but its row, its column and the piece: not on
// blocks, threads or other rows.
#pragma once

#include "device/cpu/bf16_tiles.h"
#include "device/cpu/fast.h"

enum { DOT_PART = 4 * DOT_EDGE };      /* columns of a row that are handed over at once */
enum { DOT_STREAMED_BYTES = 2 << 20 }; /* a larger result leaves the L2 cache before it is read */

struct cpu_dots {
    const struct cpu_dot_kernel *kernel;
    struct cpu_gemm whole; /* ldc is not used */
    int64_t piece;         /* terms that begin with a new step; 0: there is one piece */
    int64_t nb;            /* columns of an item, a multiple of `part`; 0: the cut chooses */
    int64_t part;          /* columns that are handed over at once; 0: DOT_PART */
    /* set by the cut */
    int64_t mb;       /* rows of an item, a multiple of 32 */
    int64_t steps;    /* of all pieces */
    int64_t chunk;    /* steps at a time */
    int64_t together; /* columns packed at a time, a multiple of nb */
    bool packs_left, packs_alone;
    size_t shared_bytes, worker_bytes;
};

/* The microkernels for bf16 products on this device: a fixed table by instruction set and
 * processor. NULL: oneDNN's products or those converted to f32 are faster. */
const struct cpu_dot_kernel *sw_cpu_dot_kernel(const struct cpu_device *dev);

/* Cuts a product, whose first fields are set, for so many threads. */
void sw_cpu_dots_cut(struct cpu_dots *dots, int n_threads);

/* Takes a part of a row of the finished result; block says where it is in the whole, with m = 1.
 * Parts begin at multiples of `part` columns, and those of a row of an item come in order.
 * c: the sums of 32 columns, then those of the next 32 at c + DOT_ELEMS, and so on. */
typedef void (*cpu_dots_sink_fn)(void *ctx, const struct cpu_block *block, const float *c);

/* Bias, activation and rounding of such a part of a row. The kernels of this need AVX512-BF16. */
bool sw_cpu_dot_epilogue_takes(const struct cpu_epilogue *e);
void sw_cpu_dot_epilogue(const struct cpu_epilogue *e, const float *c, int64_t n);

struct cpu_dots_run {
    const void *a, *b;   /* element 0 of the operands */
    const float *before; /* [m,n] sums to continue, or NULL */
    int64_t n_rows;      /* wanted rows, at most m */
    int64_t n_terms;     /* terms that there are; those after them are left out. 0: k */
    void *workspace;     /* shared_bytes + worker_bytes for each worker */
    cpu_dots_sink_fn sink;
    void *ctx;
};

void sw_cpu_dots_run(const struct cpu_dots *dots, struct sw_pool *pool,
                     const struct cpu_dots_run *run);

static inline size_t cpu_dots_bytes(const struct cpu_dots *dots, int n_threads)
{
    return dots->shared_bytes + dots->worker_bytes * (size_t)n_threads;
}
