// SPDX-License-Identifier: Apache-2.0
// ref - the plain C kernels: the oracle for every other kernel. Clear before fast. Arithmetic is in
// one type `real`: float if every operand is f32, bf16 or f16, double if one is f64. The kernels
// that compute are written once, in ref_*.inc, against ref_real.inc, and compiled twice, by
// ref_f32.c and ref_f64.c. Kernels that only move bytes or integers are in ref_move.c. ref_table.c
// picks.
#pragma once

#include "device/cpu/cpu.h"

struct ref_kernel {
    void (*run)(const struct cpu_call *call);
    /* Scratch memory; NULL = none. threads: size of the pool that will run it. */
    size_t (*workspace_bytes)(const struct sw_op_desc *desc, int threads);
};

extern const struct ref_kernel sw_cpu_ref_f32[SW_N_OP_KINDS];
extern const struct ref_kernel sw_cpu_ref_f64[SW_N_OP_KINDS];
extern const struct ref_kernel sw_cpu_ref_move[SW_N_OP_KINDS];

/* An operand without its shape. */
struct ref_tensor {
    void *data; /* NULL = absent */
    enum sw_dtype dtype;
};

static inline struct ref_tensor ref_in(const struct cpu_call *call, int i)
{
    return (struct ref_tensor){call->in[i], call->desc->in[i].dtype};
}
static inline struct ref_tensor ref_out(const struct cpu_call *call, int i)
{
    return (struct ref_tensor){i < call->desc->op->n_out ? call->out[i] : NULL,
                               call->desc->out[i].dtype};
}

/* Runs items of independent work in any order; an item function gets the call as ctx. */
static inline void ref_items(const struct cpu_call *call, int64_t n_items, sw_pool_fn fn)
{
    sw_pool_run(call->pool, n_items, fn, (void *)call);
}

enum { REF_BLOCK = 4096 }; /* elements of one item of an elementwise kernel */

/* The range of elements of item i when n elements are cut into blocks. */
static inline int64_t ref_block_end(int64_t i_block, int64_t n)
{
    return sw_min_i64((i_block + 1) * REF_BLOCK, n);
}
