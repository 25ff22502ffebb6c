// SPDX-License-Identifier: Apache-2.0
// lt - our prototypes and constants for the used part of cuBLASLt, and of hipBLASLt, whose
// interface mirrors it. Used by blas_lt.c and by the stand-ins that check its calls. Descriptors
// are opaque; only the size of an algorithm is known. Matrices are column-major. cuBLASLt's
// constants were compared with those of CUDA 13. hipBLASLt's are those of ROCm 6, and have not been
// tried with the real library.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { LT_SUCCESS = 0 };
enum { LT_MAX_ALGO_BYTES = 64, LT_MAX_ANSWER_BYTES = 96 };

/* Functions that both have, by the name after the prefix. */
struct lt_functions {
    int (*Create)(void **handle);
    int (*Destroy)(void *handle);
    int (*MatmulDescCreate)(void **desc, int compute_type, int scale_type);
    int (*MatmulDescDestroy)(void *desc);
    int (*MatmulDescSetAttribute)(void *desc, int attribute, const void *value, size_t bytes);
    int (*MatrixLayoutCreate)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
    int (*MatrixLayoutDestroy)(void *layout);
    int (*MatmulPreferenceCreate)(void **preference);
    int (*MatmulPreferenceDestroy)(void *preference);
    int (*MatmulPreferenceSetAttribute)(void *preference, int attribute, const void *value,
                                        size_t bytes);
    /* answers: an array of struct { algorithm; size_t workspace; int status; float waves; int
     * reserved[4]; }. */
    int (*MatmulAlgoGetHeuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d,
                                  void *preference, int n_wanted, void *answers, int *n_answers);
    int (*Matmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
                  const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                  void *d, void *d_layout, const void *algo, void *workspace,
                  size_t workspace_bytes, void *stream);
    /* cuBLASLt only; NULL for hipBLASLt. */
    int (*MatmulAlgoConfigGetAttribute)(const void *algo, int attribute, void *value, size_t bytes,
                                        size_t *n_written);
    size_t (*version_of_cuda)(void);                   /* cublasLtGetVersion: 130100 */
    int (*version_of_hip)(void *handle, int *version); /* hipblasLtGetVersion: 700, 100400 */
};

enum { LT_NONE = -1 }; /* the library has no such value */
/* Data types and epilogues have the same values in both. */
enum { LT_R_32F = 0, LT_R_16F = 2, LT_R_16BF = 14 };
/* GELU: by tanh. AUX: keeps the input of GELU, in the result's type. */
enum {
    LT_EPILOGUE_DEFAULT = 1,
    LT_EPILOGUE_BIAS = 4,
    LT_EPILOGUE_GELU = 32,
    LT_EPILOGUE_AUX = 128,
};
/* Alignment, in elements, of the rows of the kept GELU input. */
enum { LT_AUX_LD_UNIT = 8 };
/* Attributes of a chosen cuBLASLt algorithm: 32-bit values; 16-bit for shapes. */
enum {
    LT_CONFIG_ID = 0,
    LT_CONFIG_TILE = 1,
    LT_CONFIG_SPLIT_K = 2,
    LT_CONFIG_REDUCTION = 3,
    LT_CONFIG_SWIZZLE = 4,
    LT_CONFIG_CUSTOM = 5,
    LT_CONFIG_STAGES = 6,
    LT_CONFIG_INNER = 7,
    LT_CONFIG_CLUSTER = 8
};

struct lt_values {
    const char *name, *prefix;
    size_t algo_bytes;
    int compute_32f, op_n, op_t;
    int desc_trans_a, desc_trans_b, desc_epilogue, desc_bias_pointer, desc_bias_type;
    int desc_aux_pointer, desc_aux_ld;
    int pref_workspace, pref_reductions, pref_align_a, pref_align_b, pref_align_c, pref_align_d;
    size_t workspace_limit;
};

static const struct lt_values lt_of_cuda = {
    .name = "cublaslt",
    .prefix = "cublasLt",
    .algo_bytes = 64,
    .compute_32f = 68,
    .op_n = 0,
    .op_t = 1,
    .desc_trans_a = 3,
    .desc_trans_b = 4,
    .desc_epilogue = 7,
    .desc_bias_pointer = 8,
    .desc_bias_type = 26,
    .desc_aux_pointer = 11,
    .desc_aux_ld = 12,
    .pref_workspace = 1,
    .pref_reductions = 3,
    .pref_align_a = 5,
    .pref_align_b = 6,
    .pref_align_c = 7,
    .pref_align_d = 8,
    .workspace_limit = 32 << 20,
};

/* hipBLASLt has no reduction mask: it gets no workspace, without which it does no split-K. */
static const struct lt_values lt_of_hip = {
    .name = "hipblaslt",
    .prefix = "hipblasLt",
    .algo_bytes = 24,
    .compute_32f = 2,
    .op_n = 111,
    .op_t = 112,
    .desc_trans_a = 0,
    .desc_trans_b = 1,
    .desc_epilogue = 2,
    .desc_bias_pointer = 3,
    .desc_bias_type = 4,
    .desc_aux_pointer = 10,
    .desc_aux_ld = 11,
    .pref_workspace = 1,
    .pref_reductions = LT_NONE,
    .pref_align_a = LT_NONE,
    .pref_align_b = LT_NONE,
    .pref_align_c = LT_NONE,
    .pref_align_d = LT_NONE,
    .workspace_limit = 0,
};
