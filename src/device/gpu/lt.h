// SPDX-License-Identifier: Apache-2.0
// lt - what is used of cuBLASLt, and of hipBLASLt, whose interface mirrors it: prototypes and
// constants of ours, for blas_lt.c and for the stand-ins that check its calls. Descriptors are
// opaque; of an algorithm that was chosen only its size is known. Matrices are column-major.
// cuBLASLt's constants were compared with those of CUDA 13; hipBLASLt's are those of ROCm 6, and
// have never met the library.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { LT_SUCCESS = 0 };
enum { LT_MAX_ALGO_BYTES = 64, LT_MAX_ANSWER_BYTES = 96 };

/* What both have, by the name behind the prefix. */
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
    /* cuBLASLt alone; NULL where there is none. */
    int (*MatmulAlgoConfigGetAttribute)(const void *algo, int attribute, void *value, size_t bytes,
                                        size_t *n_written);
    size_t (*version_of_cuda)(void);                   /* cublasLtGetVersion: 130100 */
    int (*version_of_hip)(void *handle, int *version); /* hipblasLtGetVersion: 700, 100400 */
};

enum { LT_NONE = -1 }; /* the library has no such thing */
/* Data types and epilogues are the same. */
enum { LT_R_32F = 0, LT_R_16F = 2, LT_R_16BF = 14 };
/* GELU: by tanh. AUX: what it is given is kept, in the result's type. */
enum {
    LT_EPILOGUE_DEFAULT = 1,
    LT_EPILOGUE_BIAS = 4,
    LT_EPILOGUE_GELU = 32,
    LT_EPILOGUE_AUX = 128,
};
/* Of what an epilogue keeps: rows begin at multiples of so many elements. */
enum { LT_AUX_LD_UNIT = 8 };
/* Of a chosen algorithm of cuBLASLt: numbers of 32 bits, of 16 those for shapes. */
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

/* It has no mask of reductions: it is given no workspace, without which it has no sums of partial
 * products. */
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
