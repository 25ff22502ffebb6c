// SPDX-License-Identifier: Apache-2.0
// args_update - kernels that move parameters: gradient streams, their sums, statistics and update
// rules.
#pragma once

#include <stdint.h>

#define SW_GPU_UPDATE_KERNELS(X)                                                                   \
    X(accumulate)                                                                                  \
    X(accumulate_many)                                                                             \
    X(accumulate_clear)                                                                            \
    X(accumulate_rows)                                                                             \
    X(update)                                                                                      \
    X(update_many)                                                                                 \
    X(update_coded)                                                                                \
    X(reset_words)                                                                                 \
    X(grad_stats)                                                                                  \
    X(grad_stats_many)                                                                             \
    X(grad_stats_rows)                                                                             \
    X(stats_finish)                                                                                \
    X(lamb_moments)                                                                                \
    X(lamb_apply)                                                                                  \
    X(lamb_many)                                                                                   \
    X(lamb_add_norms)

enum { GPU_MAX_STREAMS = 11, GPU_RUN = 8, GPU_EXACT_WORDS = 44, GPU_STATS_WORDS = 48 };

/* One gradient stream of a parameter: dense, or rows and their index, ascending, then -1. */
struct gpu_stream {
    const void *x;
    const int32_t *index; /* NULL: dense */
    int64_t n_rows;       /* entries of index */
    int64_t first;        /* offset of element 0 of the computation in the stream */
    int type;
};
struct gpu_streams {
    struct gpu_stream stream[GPU_MAX_STREAMS];
    int n;
    int64_t row_elems; /* elements per row of the row-sparse streams */
};

/* A dense stream, starting at its first used element. */
struct gpu_dense {
    const void *x;
    int type;
};

/* A parameter and its states. master: low halves (bf16), fp32 (f16), NULL (f32). */
struct gpu_param {
    void *param, *master;
    void *moment[2]; /* NULL = absent */
    /* bf16 moments: index of element 0 in the whole tensor, and the tensor's draw key */
    uint64_t origin, draw;
    int half;
};
/* Same values as enum sw_update_kind. */
enum {
    GPU_RULE_ADAM,
    GPU_RULE_SGD,
    GPU_RULE_LAMB,
    GPU_RULE_ADAGRAD,
    GPU_RULE_LION,
    GPU_RULE_SPARSE_ADAM,
    GPU_RULE_RMSPROP
};
struct gpu_rule {
    double eps, weight_decay, dampening, min_coeff, max_coeff, lr_decay, initial;
    double lr_scale, beta1, beta2; /* a group's own values: see is_scaled, has_betas */
    int kind, decoupled, bias_correction, nesterov, maximize, eps_inside_sqrt;
    int is_scaled, has_betas;
};
/* Addresses in the table of scalars. */
struct gpu_rates {
    const double *grad_factor, *clip, *lr, *beta1, *beta2, *step, *correction1, *correction2;
    const double *seed_lo, *seed_hi;
};

/* Several tensors per launch. Item k has the blocks from its first_block to the next item's; each
 * thread takes PART elements. CUDA passes at most 4 KiB by value. */
enum {
    GPU_UPDATE_PART = 4,
    GPU_UPDATE_THREADS = 256,
    GPU_UPDATE_BLOCK = GPU_UPDATE_THREADS * GPU_UPDATE_PART
};

/* acc = g if *first is not 0, else acc + g. first: NULL = it continues */
struct gpu_accumulate_args {
    const double *skip;
    const double *first;
    float *acc;
    const void *g;
    int64_t n;
};
/* The same for several tensors. */
enum { GPU_ACCUMULATE_MANY = 96 };
struct gpu_accumulate_item {
    float *acc;
    struct gpu_dense g;
    int64_t n;
    int first_block, continues;
};
struct gpu_accumulate_many_args {
    const double *skip;
    const double *first;
    struct gpu_accumulate_item item[GPU_ACCUMULATE_MANY];
    int n;
};
/* acc = 0 if first is NULL or *first is not 0. */
struct gpu_accumulate_clear_args {
    const double *skip;
    const double *first;
    float *acc;
    int64_t n;
};
/* acc[index[i]] += g[i] */
struct gpu_accumulate_rows_args {
    const double *skip;
    float *acc;
    const void *g; /* [n_rows, width] */
    const int32_t *index;
    int64_t n_rows, width, acc_rows;
};
struct gpu_update_args {
    const double *skip;
    struct gpu_param param; /* covers only the updated elements */
    struct gpu_streams streams;
    struct gpu_rule rule;
    struct gpu_rates rates;
    int64_t n;
};
/* The same for several tensors with one dense stream each. */
enum { GPU_UPDATE_MANY = 40 };
struct gpu_update_item {
    struct gpu_param param;
    struct gpu_dense g;
    int64_t n;
    int first_block;
};
struct gpu_update_many_args {
    const double *skip;
    struct gpu_rule rule;
    struct gpu_rates rates;
    struct gpu_update_item item[GPU_UPDATE_MANY];
    int n;
};
/* Moments as 8-bit codes, with a scale for each run (tensor/codes.c defines the steps). */
enum {
    GPU_CODE_RUN = 256,
    GPU_SIGNED_ZERO = 127,
    GPU_SIGNED_STEPS = 129,
    GPU_UNSIGNED_STEPS = 256
};
struct gpu_update_coded_args {
    const double *skip;
    struct gpu_param param; /* its moments are codes */
    float *scale[2];
    struct gpu_streams streams;
    struct gpu_rule rule;
    struct gpu_rates rates;
    int64_t n;       /* includes padding, which stays unchanged */
    int64_t n_coded; /* excludes padding */
    float signed_steps[GPU_SIGNED_STEPS], unsigned_steps[GPU_UNSIGNED_STEPS];
};
struct gpu_reset_words_args {
    const double *skip;
    int64_t *words;
    int64_t n;
};
struct gpu_grad_stats_args {
    const double *skip;
    const double *overflow_factor;
    int64_t *stats;
    struct gpu_streams streams;
    int64_t n;
    int overflow_skips;
};
/* The same for several tensors with one dense stream each; a thread takes GPU_STATS_RUNS runs. */
enum {
    GPU_STATS_MANY = 120,
    GPU_STATS_RUNS = 4,
    GPU_STATS_BLOCK = GPU_UPDATE_THREADS * GPU_STATS_RUNS * GPU_RUN
};
struct gpu_grad_stats_item {
    struct gpu_dense g;
    int64_t n;
    int first_block;
};
struct gpu_grad_stats_many_args {
    const double *skip;
    const double *overflow_factor;
    int64_t *stats;
    struct gpu_grad_stats_item item[GPU_STATS_MANY];
    int n, overflow_skips;
};
/* Row-sparse streams only, as far as their rows reach. */
struct gpu_grad_stats_rows_args {
    struct gpu_grad_stats_args of; /* n: unused */
};
struct gpu_stats_finish_args {
    const double *skip;
    const int64_t *stats;
    const double *grad_factor;
    double *out_norm, *out_clip, *out_skip;
    double clip;
    int overflow_skips;
};
struct gpu_lamb_moments_args {
    const double *skip;
    struct gpu_param param;
    struct gpu_streams streams;
    struct gpu_rule rule;
    struct gpu_rates rates;
    int64_t n, n_counted; /* those whose squares are added, the first ones */
    int64_t *norms;       /* zeros on entry */
};
struct gpu_lamb_apply_args {
    const double *skip;
    struct gpu_param param;
    struct gpu_rule rule;
    struct gpu_rates rates;
    int64_t n;
    const int64_t *norms;
    float *ratio;
};
/* Moments and step of several tensors with one dense stream each; one block per tensor. */
enum { GPU_LAMB_MANY = 40 };
struct gpu_lamb_item {
    struct gpu_param param;
    struct gpu_dense g;
    int64_t n;
    int64_t *norms; /* NULL: not wanted */
    float *ratio;   /* NULL: moments only, no step */
};
struct gpu_lamb_many_args {
    const double *skip;
    struct gpu_rule rule;
    struct gpu_rates rates;
    struct gpu_lamb_item item[GPU_LAMB_MANY];
};
struct gpu_lamb_add_norms_args {
    const double *skip;
    int64_t *norms;
    const int64_t *more;
};
