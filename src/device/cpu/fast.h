// SPDX-License-Identifier: Apache-2.0
// fast - declarations that the fast CPU rows share: a table of single-threaded vector kernels per
// instruction set, and products cut into blocks. A row (fast_<op>.c) cuts its op into items by
// shape and dtype; it may also use the number of threads if no bit depends on the cut. An item
// calls the vector kernels below on its part. Results never depend on the number of threads. Each
// file deals either with the cut or with the arithmetic.
#pragma once

#include "device/cpu/cpu.h"

enum { CPU_LINE = 64 }; /* bytes of a cache line: alignment of all scratch memory */

/* ---- one single-threaded product: c [m,n] = op(a) op(b), c in f32 ---- */

struct cpu_gemm {
    enum sw_dtype dtype, dtype_b; /* of a and of b: f32, bf16, f16 */
    bool ta, tb;                  /* a is stored [k,m]; b is stored [n,k] */
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* strides between stored rows, in elements */
};

enum cpu_side { CPU_LEFT, CPU_RIGHT }; /* operand of a product: a, b */

/* n rows of that many bytes, `step` bytes apart. */
struct cpu_rows {
    const char *at;
    int64_t n, bytes, step;
};

/* Both operands of a product, packed. Blocks of gemm_depth terms follow each other at the given
 * stride in floats. */
struct cpu_packed {
    const float *at[2];
    int64_t step[2];
    const struct cpu_rows *next; /* fetched into the L2 cache meanwhile, or NULL */
};

/* Processing of a block of a product while it is in cache. */
struct cpu_epilogue {
    enum sw_dtype dtype; /* dtype of out and pre */
    enum sw_dtype bias_dtype;
    enum sw_act act;
    const void *bias; /* bias of the block's first column, or NULL */
    void *out;        /* the block's first element; rows are ld_out elements apart */
    void *pre;        /* values before act, in the layout of out; or NULL */
    int64_t ld_out;
    bool streams; /* a large result: bf16 products write whole lines of it past the caches */
};

/* UPDATE with its constants, named as in ref_update.inc, which explains them. */
struct cpu_update {
    const struct sw_update_attrs *attrs;
    enum sw_dtype dtype; /* dtype of the parameter */
    void *param;
    void *master; /* low halves (bf16), fp32 (f16), else NULL */
    void *moment[2];
    float *scale[2]; /* scales of 8-bit moments, else NULL */
    bool half;       /* moments are bf16, rounded by draw */
    struct cpu_draw draw;
    uint64_t origin; /* index of element 0 in the whole tensor */
    bool first_step;
    float factor, decay, weight_decay;
    float beta1, one_minus_beta1, beta2, one_minus_beta2, correction2, eps;
    float step_size, one_minus_dampening, initial;
};

/* Elements of a parameter in one item: 16 KiB of sums, which stay in the L1 cache. */
enum { CPU_STREAM_ELEMS = 4096 };

/* One (sample, query head) of attention. A row of q, k, .. holds the head's d elements of one
 * token; rows are ld_x elements apart. */
struct cpu_attention {
    enum sw_dtype dtype;
    int64_t t, s, d;  /* queries, keys, head width */
    int64_t position; /* absolute index of query 0 */
    int64_t window;   /* 0 = none */
    bool causal;
    float scale, cap; /* cap 0 = none */
    float slope;      /* added to the scores per key position; 0 = none */
    bool bf16_slopes;
    const int32_t *mask, *segments; /* [s] or NULL */
    const float *bias;              /* [t,s] or NULL */
    float *dbias;                   /* backward: [t,s] or NULL, added to */
    const void *q, *k, *v;
    int64_t ld_q, ld_k, ld_v;
    void *o; /* backward: read */
    int64_t ld_o;
    float *lse; /* [t] */
    /* draw of dropout on the probabilities; p = 0: no dropout */
    struct cpu_draw draw;
    double p;
    uint64_t first_element; /* draw element of (absolute query 0, key 0) */
    /* backward only */
    const void *d_o;
    int64_t ld_do;
    void *dq, *dk, *dv; /* NULL: not wanted */
    int64_t ld_dq, ld_dk, ld_dv;
};

/* The part of the gradients that is computed at a time, for the heads that share a key head. It
 * covers whole blocks of queries and keys and makes dq (with all keys), dk and dv (with all
 * queries), or both. */
struct cpu_attention_part {
    int64_t first_query, end_query, first_key, end_key;
    bool dq, dkv, dbias;
};

enum { CPU_COLUMN = 32 }; /* queries of one head that are side by side in the lanes of vectors */

struct cpu_column {
    const struct cpu_attention *a;
    int64_t i0, rows; /* first query; number of queries, at most CPU_COLUMN */
    /* The keys lo .. hi-1 of a block, whole strips of CPU_COLUMN keys, include all that a query may
     * see; lo = hi = 0 if there are none. */
    int64_t lo, hi;
};

static inline int64_t cpu_whole_strips(int64_t n)
{
    return (n + CPU_COLUMN - 1) / CPU_COLUMN * CPU_COLUMN;
}

/* Attention with one kind of products, single-threaded. The heads share a key head; their columns
 * are numbered by query first, then by head. A query's bits depend on nothing but its own row and
 * the keys that it sees; those of dk and dv are added by head and query. */
struct cpu_attention_kernel {
    const char *name;
    const struct cpu_dot_kernel *dot; /* of products in bf16, else NULL */
    int64_t query_block, key_block;   /* the parts of a gradient are multiples of these */
    size_t (*scratch_bytes)(int64_t n_columns, int64_t s, int64_t d);
    /* Computes columns first .. end-1 -> o, lse. */
    void (*run)(const struct cpu_attention_kernel *self, const struct cpu_attention *heads,
                int64_t n_heads, int64_t first, int64_t end, void *scratch);
    /* n_keys: keys of a part with dkv, else min(s, key_block) */
    size_t (*grad_scratch_bytes)(int64_t t, int64_t n_keys, int64_t d);
    /* Takes the heads in order -> each dq; the common dk, dv. Every sum is added in the same order,
     * however the work is cut into parts. */
    void (*run_grad)(const struct cpu_attention_kernel *self, const struct cpu_attention *heads,
                     int64_t n_heads, const struct cpu_attention_part *part, void *scratch);
};

/* ACT, ACT_GRAD (x, y = dy), ADD and MUL (y repeats every `period` elements), SCALE. */
struct cpu_elementwise {
    enum sw_op_kind kind;
    enum sw_dtype dtype;
    enum sw_act act;
    double alpha;
    const void *x, *y;
    int64_t period;
    void *out;
};

/* act(gate) up; or its gradient if dy is not NULL. */
struct cpu_gate {
    enum sw_dtype dtype;
    enum sw_act act;
    const void *gate, *up, *dy;
    void *y;
    void *dgate, *dup; /* NULL: not wanted */
};

enum { CPU_ROTARY_MOST = 512 }; /* most elements of a head that are rotated */

/* The heads of one token, for rotation. */
struct cpu_rotary {
    enum sw_dtype dtype;
    int64_t heads, width, turned; /* the first `turned` of a head's `width` elements are rotated */
    int64_t ld_x;                 /* stride between heads of x; the heads of y are contiguous */
    bool interleaved;
    const void *x;
    void *y;
    /* [turned] for each element: its own factor, and the factor of its partner in the pair,
     * negative for the first of the two */
    const float *own, *other;
};

struct cpu_norm {
    enum sw_dtype dtype;
    int64_t width;
    float eps;
    const void *x, *w, *bias; /* bias NULL: RMS norm */
    const void *added;        /* ADD_LAYER_NORM: s = x + added; else NULL */
    void *s, *y;
    float *mean, *rstd; /* RMS norm: no mean; rstd may be NULL */
    bool one_plus;      /* RMS norm: the weight is 1 + w */
};

struct cpu_norm_grad {
    enum sw_dtype dtype;
    int64_t width;
    const void *dy, *x, *w;
    const float *mean, *rstd;
    void *dx;      /* or NULL */
    bool one_plus; /* RMS norm: the weight is 1 + w */
};

/* An LSTM; operands as in the op. */
struct cpu_lstm {
    enum sw_dtype dtype; /* dtype of x, w, bias, y, dy */
    int64_t batch, tokens, hidden;
    bool reverse;
    const int32_t *mask;           /* [B,T] or NULL */
    const void *x, *w, *bias, *dy; /* dy: backward, as is dz */
    const float *packed;           /* w, packed for this direction */
    void *y;                       /* backward: read */
    float *gates, *cells;          /* forward: may be NULL; backward: read */
    float *dz;
};

/* Row index of the token that sample b takes at step `step`. */
static inline int64_t cpu_lstm_row(const struct cpu_lstm *l, int64_t b, int64_t step)
{
    return b * l->tokens + (l->reverse ? l->tokens - 1 - step : step);
}

static inline bool cpu_lstm_takes(const struct cpu_lstm *l, int64_t row)
{
    return !l->mask || l->mask[row] != 0;
}

/* A label's one-hot target in a gradient: `hot` at the label, on top of `smooth` everywhere. */
struct cpu_onehot {
    float smooth, hot;
};

/* Kernels of one instruction set, all single-threaded. */
struct cpu_vector {
    const char *name;
    const char *gemm_path_converted; /* path name of products whose tiles are converted to f32 */
    size_t gemm_scratch_bytes;
    void (*gemm)(const struct cpu_gemm *g, const void *a, const void *b, float *c, void *scratch);
    /* A product in two parts, packing and multiplying. Packing takes gemm_depth terms (at the end,
     * the rest) of n rows of op(a), or columns of op(b), starting at `first`. Multiplying sets c
     * [m,n] to the product of g's k terms, or adds it to c. The bits are the same as in one part if
     * the number of terms before was a multiple of gemm_depth. */
    int64_t gemm_depth;
    int64_t gemm_tile[2]; /* rows and columns computed together */
    int64_t (*gemm_packed_elems)(enum cpu_side side, int64_t n);
    void (*gemm_pack)(const struct cpu_gemm *g, enum cpu_side side, const void *x, int64_t first,
                      int64_t n, int64_t k, float *to);
    void (*gemm_packed)(const struct cpu_gemm *g, const struct cpu_packed *packed, bool adds,
                        float *c);
    /* multiply-adds on registers, for a measurement; returns the number of operations */
    double (*peak)(int64_t rounds, float *sink);
    /* block [m,n] f32, rows ld apart -> e->out, e->pre */
    void (*epilogue)(const struct cpu_epilogue *e, const float *block, int64_t m, int64_t n,
                     int64_t ld);
    /* block += part, both [m,n] */
    void (*accumulate_block)(float *block, int64_t ld, const float *part, int64_t ld_part,
                             int64_t m, int64_t n);
    /* max[i] of a row of logits, and sum[i] of exp(x - max) over it: 0 if all of them are -inf */
    void (*softmax_stats)(const float *logits, int64_t ld, int64_t m, int64_t n, float *max,
                          float *sum);
    /* out[i,j] = dsum (exp(x - lse_i) - smooth - hot (first_label + j == label_i)), times 1 - (x /
     * cap)^2 for capped x. label_i -100: the row is 0. cap 0: no cap. f32: out may be the logits */
    void (*softmax_grad)(enum sw_dtype dtype, const float *logits, int64_t ld, int64_t m, int64_t n,
                         const float *lse, const int32_t *labels, int64_t first_label,
                         struct cpu_onehot onehot, float dsum, float cap, void *out,
                         int64_t ld_out);
    /* x = cap tanh((x + bias_j) / cap) of [m,n]; bias NULL, cap 0: none */
    void (*finish_logits)(enum sw_dtype dtype, float *logits, int64_t m, int64_t n,
                          const void *bias, float cap);
    const struct cpu_attention_kernel *attention; /* products in f32 */
    /* The following kernels take elements (or rows) first .. first + n - 1. */
    void (*elementwise)(const struct cpu_elementwise *e, int64_t first, int64_t n);
    void (*cast)(enum sw_dtype to, enum sw_dtype from, void *out, const void *x, int64_t first,
                 int64_t n);
    void (*dropout)(enum sw_dtype dtype, const struct cpu_draw *draw, float factor, const void *x,
                    void *out, int64_t first, int64_t n);
    void (*accumulate)(enum sw_dtype dtype, bool set, float *acc, const void *g, int64_t first,
                       int64_t n);
    void (*add_slices)(const struct sw_slice_sum *sum);
    /* sum: the sum of the gradient streams for these elements, starting at sum[0] */
    void (*update)(const struct cpu_update *u, int64_t first, int64_t n, const float *sum);
    /* LAMB_MOMENTS: as update; then writes w [n] and its direction u [n] */
    void (*lamb_moments)(const struct cpu_update *u, int64_t first, int64_t n, const float *sum,
                         float *w, float *direction);
    /* LAMB_APPLY: u->step_size is the step times the ratio */
    void (*lamb_apply)(const struct cpu_update *u, int64_t first, int64_t n);
    /* MUON_MOMENTS: as update; direction: bf16, starting at element 0 */
    void (*muon_moments)(const struct cpu_update *u, int64_t first, int64_t n, const float *sum,
                         uint16_t *direction);
    /* MUON_APPLY: u->step_size is the matrix's; x: these elements, starting at x[0] */
    void (*muon_apply)(const struct cpu_update *u, int64_t first, int64_t n, const float *x);
    /* Adds the sums of squares of the runs among CPU_STREAM_ELEMS elements. Returns false and adds
     * nothing if an element is NaN or above limit in size. */
    bool (*add_squares)(enum sw_dtype dtype, const void *g, double limit, int64_t *stats);
    void (*gate)(const struct cpu_gate *g, int64_t first, int64_t n);
    void (*rotary)(const struct cpu_rotary *r);
    void (*norm)(const struct cpu_norm *c, int64_t first, int64_t n);
    /* dw, db [width]: sums over these rows only */
    void (*norm_grad)(const struct cpu_norm_grad *c, int64_t first, int64_t n, float *dw,
                      float *db);
    void (*rms_norm)(const struct cpu_norm *c, int64_t first, int64_t n);
    /* dw NULL: not wanted */
    void (*rms_norm_grad)(const struct cpu_norm_grad *c, int64_t first, int64_t n, float *dw);
    /* LSTM kernels: pack w as the right side of a product, in panels of lstm_panel columns; run all
     * steps of n samples, with scratch for as many; shift y of sample b by one step. */
    int64_t lstm_panel;
    size_t (*lstm_packed_bytes)(int64_t hidden, bool back);
    size_t (*lstm_scratch_bytes)(int64_t hidden, int64_t n);
    void (*lstm_pack)(const struct cpu_lstm *l, bool back, int64_t i_panel, float *packed);
    void (*lstm_steps)(const struct cpu_lstm *l, int64_t first, int64_t n, void *scratch);
    void (*lstm_steps_grad)(const struct cpu_lstm *l, int64_t first, int64_t n, void *scratch);
    void (*lstm_shift)(const struct cpu_lstm *l, int64_t b, float *shifted);
    /* out[i] = values[code i]: 4-bit codes, the first of two in a byte in its high bits. n: a
     * multiple of 32 */
    void (*look_up)(const uint16_t values[16], const uint8_t *codes, int64_t n, uint16_t *out);
    /* out[i] = code i of INT8, times scale, over 127, rounded to `form` and then to `to`: float
     * types of at most four bytes. n: a multiple of 16 */
    void (*scale_codes)(const int8_t *codes, float scale, int64_t n, enum sw_dtype form,
                        enum sw_dtype to, void *out);
    /* sums [n] over `rows` rows, ld elements apart */
    void (*sum_rows)(enum sw_dtype dtype, const void *x, int64_t rows, int64_t ld, int64_t n,
                     float *sums);
};

/* The vector table for an instruction set of at most `isa`; the portable one if this machine or
 * build has no other. */
const struct cpu_vector *sw_cpu_vector_for(enum cpu_isa isa);
extern const struct cpu_vector sw_cpu_vector_portable;
#if defined(__x86_64__)
extern const struct cpu_vector sw_cpu_vector_avx2, sw_cpu_vector_avx512;
/* Attention in bf16 with the instructions, which need them, or with their models. All need
 * AVX512-BF16. */
extern const struct cpu_attention_kernel sw_cpu_attention_amx, sw_cpu_attention_avx512bf16,
    sw_cpu_attention_amx_model, sw_cpu_attention_avx512bf16_model;
double sw_cpu_peak_bf16(int64_t rounds, float *sink); /* needs AVX512-BF16 */
double sw_cpu_peak_amx(int64_t rounds, float *sink);  /* needs AMX-BF16 */
#endif

/* Rows that prepare only their vector table use these two. */
sw_status sw_cpu_prepare_vector(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                void **prepared);
void sw_cpu_release_nothing(void *prepared);

/* ---- a product of one fixed piece shape, prepared ---- */

struct cpu_product_ops {
    /* m: wanted rows; the others may be computed, too, or left unchanged */
    void (*run)(const void *self, int i_worker, int64_t m, const void *a, const void *b, float *c,
                void *scratch);
    void (*close)(void *self);
};

struct cpu_product {
    const struct cpu_product_ops *ops;
    size_t scratch_bytes; /* per worker, aligned to a cache line */
    const char *path;     /* how it computes, for people; static string */
};

/* Opens our own kernels, which support all of f32, bf16 and f16. */
sw_status sw_cpu_product_open_own(const struct cpu_device *dev, const struct cpu_gemm *gemm,
                                  struct cpu_product **out);
/* Opens oneDNN's primitive. *out stays NULL if oneDNN is absent or has no direct implementation for
 * these dtypes. Fails as sw_cpu_dnnl_has_room does. */
sw_status sw_cpu_product_open_dnnl(const struct cpu_device *dev, const struct cpu_gemm *gemm,
                                   struct cpu_product **out);
/* Can oneDNN map memory for the code of a primitive? It does not check that itself and crashes.
 * SW_E_NOMEM names the limit. */
sw_status sw_cpu_dnnl_has_room(void);
/* Is oneDNN available, with a direct implementation of this dtype on this processor? */
bool sw_cpu_dnnl_takes(const struct cpu_device *dev, enum sw_dtype dtype);
/* Are large fp32 products of MATMUL own ones although oneDNN has them? */
bool sw_cpu_owns_large_f32(const struct cpu_device *dev);
/* Version and instruction set in use, "onednn-2.6.3:e7", or "". */
void sw_cpu_dnnl_describe(char *out, size_t cap);

/* ---- a product cut into blocks ---- */

/* Blocks of mb x nb cover [m,n]; the last row and column of blocks are smaller. Block sizes follow
 * from m and n; if only own kernels may run, they also depend on the number of threads. */
struct cpu_grid {
    struct cpu_gemm whole;
    bool prefer_dnnl; /* pieces that oneDNN does not have are own kernels */
    int64_t mb, nb, n_m, n_n;
    size_t scratch_bytes; /* per worker */
    const char *path;
    /* [last row of blocks][last column of blocks]; NULL until the grid is opened */
    struct cpu_product *piece[2][2];
};

struct cpu_block {
    int64_t i, j, m, n; /* first row and column, size */
};

enum { CPU_KNOWN_GRIDS = 256 }; /* a model asks for some dozens */

/* Finds the blocks, scratch_bytes and path of a product. For the first question of its kind, pieces
 * are opened and closed; the device remembers the answer. whole->ldc 0: each block's result is
 * dense (ld = its n). Fails as sw_cpu_dnnl_has_room does. */
sw_status sw_cpu_grid_cut(const struct cpu_device *dev, const struct cpu_gemm *whole,
                          bool prefer_dnnl, struct cpu_grid *out);
/* Opens the pieces of a grid that was cut; then it can run. On failure there is nothing to
 * close. */
sw_status sw_cpu_grid_open(const struct cpu_device *dev, struct cpu_grid *grid);
/* A grid that was only cut, or is all zero, has nothing to close. */
void sw_cpu_grid_close(struct cpu_grid *grid);
static inline int64_t cpu_grid_items(const struct cpu_grid *grid)
{
    return grid->n_m * grid->n_n;
}
struct cpu_block sw_cpu_grid_block(const struct cpu_grid *grid, int64_t i_item);
/* a, b: element 0 of the whole operands; c: element 0 of the block's result. */
void sw_cpu_grid_run(const struct cpu_grid *grid, int64_t i_item, int i_worker, const void *a,
                     const void *b, float *c, void *scratch);
/* Like sw_cpu_grid_run, but only the first n_rows rows of the whole product are wanted. */
void sw_cpu_grid_run_rows(const struct cpu_grid *grid, int64_t i_item, int i_worker, int64_t n_rows,
                          const void *a, const void *b, float *c, void *scratch);
static inline size_t cpu_grid_block_bytes(const struct cpu_grid *grid)
{
    return sw_round_up((size_t)(grid->mb * grid->nb) * sizeof(float), CPU_LINE);
}

/* ---- a product by own kernels that packs each operand about once (fast_panels.c) ---- */

/* Slabs of b are packed for all workers. Each item packs the rows of a that it multiplies by the
 * blocks of a slab. If a has few rows, the whole of it is packed for all workers instead, and each
 * item packs the columns of b that it multiplies. The cut follows from the shape, the limit and the
 * number of threads; no bit depends on it. */
struct cpu_panels {
    struct cpu_gemm whole;
    const struct cpu_vector *vector;
    bool has_few_rows;      /* only nb is used of the numbers below */
    int64_t slab_n, slab_k; /* columns and terms of b that are packed at a time */
    int64_t nb;             /* columns of a block */
    int64_t n_m, n_n;       /* items: ranges of rows, groups of blocks of a slab */
    int64_t mb;             /* most rows of an item */
    bool in_place;          /* c is the whole result, rows whole.ldc apart */
    size_t packed_bytes;    /* a slab, or the whole of a; then each worker has worker_bytes */
    size_t worker_bytes;
};

struct cpu_panels_call {
    const void *a, *b; /* element 0 of the whole operands */
    float *c;          /* in place; else NULL */
    bool adds;         /* in place: the product is added to c */
    void *workspace;   /* packed_bytes + worker_bytes of each worker, aligned to a cache line */
    /* not in place: takes a block of c, whose rows are where.n apart; it may change them */
    void (*finish)(void *ctx, float *block, struct cpu_block where);
    void *ctx;
};

/* unit: blocks begin at multiples of so many columns, a power of two up to 128. most_bytes: limit
 * of a slab. False if there are no terms, or if sums are too long for a slab. Between the cut and a
 * run the caller may make whole.m and whole.k smaller. */
bool sw_cpu_panels_cut(const struct cpu_device *dev, const struct cpu_gemm *whole, bool in_place,
                       int64_t unit, size_t most_bytes, struct cpu_panels *out);
/* Bytes of a call's workspace. */
size_t sw_cpu_panels_bytes(const struct cpu_panels *panels, int n_threads);
void sw_cpu_panels_run(const struct cpu_panels *panels, struct sw_pool *pool,
                       const struct cpu_panels_call *call);

static inline int cpu_workers(const struct sw_pool *pool)
{
    return pool ? sw_pool_threads(pool) : 1;
}

/* True for the dtypes that the fast rows compute in f32: f32, bf16 and f16. */
static inline bool cpu_is_fast_float(enum sw_dtype dtype)
{
    return dtype == SW_F32 || dtype == SW_BF16 || dtype == SW_F16;
}

/* The size of equal parts of `whole`, multiples of `unit` and at most about `most`; at least one
 * unit. */
static inline int64_t cpu_even_part(int64_t whole, int64_t most, int64_t unit)
{
    const int64_t n = sw_max_i64(1, sw_ceil_div(whole, most));
    return sw_max_i64(1, sw_ceil_div(sw_ceil_div(whole, n), unit)) * unit;
}

static inline bool cpu_has_output(const struct sw_op_desc *desc, int i)
{
    return i < desc->op->n_out && desc->out[i].shape.rank >= 0;
}

/* True if all inputs, and those of the first n_out outputs that exist, have one fast dtype. */
bool sw_cpu_are_alike(const struct sw_op_desc *desc, int n_out);

/* ---- the rows, by file ---- */

extern const struct cpu_kernel sw_cpu_quantized_matmul;
extern const struct cpu_kernel sw_cpu_matmul_dots, sw_cpu_matmul_dnnl, sw_cpu_matmul_own;
extern const struct cpu_kernel sw_cpu_linear_ce, sw_cpu_linear_ce_grad, sw_cpu_linear_ce_at_once;
extern const struct cpu_kernel sw_cpu_elementwise, sw_cpu_cast, sw_cpu_dropout;
extern const struct cpu_kernel sw_cpu_accumulate, sw_cpu_grad_stats, sw_cpu_update;
extern const struct cpu_kernel sw_cpu_lamb_moments, sw_cpu_lamb_apply;
extern const struct cpu_kernel sw_cpu_adafactor_sums, sw_cpu_adafactor_moments,
    sw_cpu_adafactor_apply;
extern const struct cpu_kernel sw_cpu_muon_moments, sw_cpu_muon_apply;
extern const struct cpu_kernel sw_cpu_layer_norm, sw_cpu_layer_norm_grad, sw_cpu_sum_rows;
extern const struct cpu_kernel sw_cpu_rms_norm, sw_cpu_rms_norm_grad;
extern const struct cpu_kernel sw_cpu_gate, sw_cpu_rotary;
extern const struct cpu_kernel sw_cpu_cross_entropy, sw_cpu_cross_entropy_grad;
extern const struct cpu_kernel sw_cpu_embedding, sw_cpu_embedding_grad;
extern const struct cpu_kernel sw_cpu_attention, sw_cpu_attention_grad;
extern const struct cpu_kernel sw_cpu_im2col, sw_cpu_col2im, sw_cpu_pool, sw_cpu_pool_grad;
extern const struct cpu_kernel sw_cpu_lstm, sw_cpu_lstm_grad;
extern const struct cpu_kernel sw_cpu_relative_scores, sw_cpu_relative_scores_grad;
