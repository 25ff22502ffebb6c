// SPDX-License-Identifier: Apache-2.0
// cpu - declarations that the CPU back end's files share: the call, the kernel rows, the draw of
// dropout. Every op kind has a reference row (plain C, any float dtype including f64). Fast rows
// are tried first and say through query whether they take an op. A kernel's result depends only on
// shapes, dtypes and the kernel set. It never depends on the number of threads or on which worker
// ran an item.
#pragma once

#include "device/device.h"

enum cpu_isa { CPU_PORTABLE, CPU_AVX2, CPU_AVX512, CPU_AVX512_BF16, CPU_AMX_BF16 };

const char *sw_cpu_isa_name(enum cpu_isa isa);
bool sw_cpu_isa_parse(const char *text, enum cpu_isa *out);
/* The newest set that the processor has, the operating system enables and this build has kernels
 * for. Asks the system once for the process for the tiles of AMX. amx_bf16: the processor has them,
 * whatever the build. */
enum cpu_isa sw_cpu_isa_detect(bool *amx_bf16);
/* The processor has AMX for bf16, and the operating system does not let this process use it. */
bool sw_cpu_isa_amx_is_withheld(void);
/* Does VDPBF16PS run at the rate of fp32 multiply-adds, for twice as many terms? True for AMD. On
 * Intel's processors with AMX it runs at half that rate. */
bool sw_cpu_isa_fast_vdpbf16(void);

struct cpu_grid;

struct cpu_device {
    struct sw_device super;
    struct sw_pool *pool;
    bool reference;
    enum cpu_isa isa;  /* newest to use */
    bool is_limited;   /* the processor has a newer set */
    bool has_amx_bf16; /* oneDNN's bf16 products may use AMX */
    bool by_library;   /* products by oneDNN, not by own dot-product kernels */
    bool fast_vdpbf16; /* VDPBF16PS does more than two fused multiply-adds of fp32 */
    char kernel_set[192];
    /* [CPU_KNOWN_GRIDS] answers of sw_cpu_grid_cut so far, by hash; NULL = none is remembered */
    struct cpu_grid *known_grids;
};

/* Sets isa .. kernel_set: the part of the processor that is used, and the name of the kernels for
 * it. limit NULL: use all of it. */
void sw_cpu_use(struct cpu_device *cpu, enum cpu_isa found, bool amx_bf16,
                const enum cpu_isa *limit);

struct cpu_call {
    const struct sw_op_desc *desc;
    void *const *in;
    void *const *out;
    void *workspace;
    double *scalars;
    struct sw_pool *pool;
    void *prepared;
};

struct cpu_kernel {
    const char *name; /* "ref", "avx512", "dnnl" */
    /* Sets supported, workspace_bytes and path; leaves supported false to decline the op. */
    void (*query)(const struct cpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out);
    sw_status (*prepare)(const struct cpu_device *dev, const struct sw_op_desc *desc,
                         void **prepared); /* NULL: nothing to prepare */
    void (*release)(void *prepared);       /* NULL if prepare is NULL */
    void (*run)(const struct cpu_call *call);
};

/* Rows for one op kind, best first, NULL-terminated. The reference row is tried after them. */
extern const struct cpu_kernel *const sw_cpu_fast_rows[SW_N_OP_KINDS][4]; /* may be all NULL */
extern const struct cpu_kernel sw_cpu_reference_rows[SW_N_OP_KINDS];

/* The kernel that runs an op, and its facts; NULL = none, or no_memory. */
const struct cpu_kernel *sw_cpu_choose(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                       struct sw_kernel_info *out);

/* Names everything besides the instruction set that changes the bits of the fast rows
 * ("onednn-2.6.3"); empty if nothing does. Appended to the kernel set. At most cap bytes with the
 * NUL. */
void sw_cpu_fast_describe(const struct cpu_device *dev, char *out, size_t cap);

/* ---- Muon (muon.c) ---- */

/* Coefficients of PyTorch's Newton-Schulz steps, rounded to fp32. */
#define CPU_MUON_A 3.4445f
#define CPU_MUON_B -4.7750f
#define CPU_MUON_C 2.0315f
#define CPU_MUON_LEAST_NORM 0x1.AEp-24f /* 1e-7 rounded to bf16, the norm's dtype */
/* The learning rate of a matrix, scaled by its shape: tall matrices get larger steps. */
double sw_cpu_muon_step(const struct sw_op_desc *desc, double lr);

/* ---- Adafactor's scalars (adafactor.c) ---- */

struct cpu_adafactor_step {
    /* lr: with the parameter's scale; size: also with the clipping of its direction */
    double lr, size;
};
/* words: exact sums with stats of w^2; norm: stats of u^2. */
struct cpu_adafactor_step sw_cpu_adafactor_step(const struct sw_update_op_attrs *attrs,
                                                const double *scalars, const int64_t *words,
                                                const int64_t *norm);

/* ---- LAMB's scalars (lamb.c) ---- */

/* Merges parts [n_parts, SW_LAMB_WORDS] into norms [SW_LAMB_WORDS]. */
void sw_cpu_lamb_merge(int64_t *norms, const int64_t *parts, int64_t n_parts);
/* |w| / |u| clamped to the bounds; exactly 1 if either norm is 0. */
double sw_cpu_lamb_ratio(const struct sw_update_attrs *attrs, const int64_t *norms);

/* X(kind, name): rules that op UPDATE applies, by function `name` of ref_update.inc and of
 * fast_update.inc. Missing: Adam, whose moments also come in bf16 and in 8 bits. */
#define CPU_UPDATES(X)                                                                             \
    X(SGD, sgd)                                                                                    \
    X(ADAGRAD, adagrad)                                                                            \
    X(LION, lion)                                                                                  \
    X(SPARSE_ADAM, sparse_adam)                                                                    \
    X(RMSPROP, rmsprop)

/*
 * The draw of dropout for element e of global sample s = MICRO * B + b. e is row-major within its
 * sample; dim 0 is the batch. An element is kept if its 32-bit word is >= p * 2^32. One Philox
 * block serves four elements: key = seed ^ path, counter = (e / 4, s), word e % 4. For attention's
 * probabilities e = ((h * T) + i) * S + j with i the absolute query (position + row).
 */
struct cpu_draw {
    uint32_t key[2];
    uint64_t sample;
    uint32_t threshold;
};
void sw_cpu_draw_init(struct cpu_draw *draw, const double *scalars, uint64_t path, double p,
                      int64_t batch, int64_t i_batch);
uint32_t sw_cpu_draw_word(const struct cpu_draw *draw, uint64_t element);
static inline bool cpu_draw_keep(const struct cpu_draw *draw, uint64_t element)
{
    return sw_cpu_draw_word(draw, element) >= draw->threshold;
}

/* A run of elements of DROPOUT that belong to one sample: elements here .. here + n - 1 of x are
 * elements first .. of a sample of the whole, which has `batch` samples. */
struct cpu_draw_run {
    int64_t here, n, batch, sample, first;
};
/* Number of runs, and run i. */
int64_t sw_cpu_draw_runs(const struct sw_op_desc *desc);
struct cpu_draw_run sw_cpu_draw_run(const struct sw_op_desc *desc, int64_t i);

/* The draw of UPDATE, which rounds the bf16 moments of element e of the whole tensor. It is word e
 * % 4 of the Philox block with key = seed ^ the tensor's name and counter = (e / 4, STEP). Its low
 * half rounds the first moment, its high half the second. */
struct cpu_draw sw_cpu_draw_of_update(const struct cpu_call *call);
