// SPDX-License-Identifier: Apache-2.0
// rocblas - our prototypes and constants for the used part of rocBLAS, from ROCm 5 and 6. Used by
// blas_rocblas.c and by the stand-in that checks its calls. Matrices are column-major. They have
// not been tried with the real library.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    ROCBLAS_SUCCESS = 0,
    ROCBLAS_OP_N = 111,
    ROCBLAS_OP_T = 112,
    ROCBLAS_F16 = 150,
    ROCBLAS_F32 = 151,
    ROCBLAS_BF16 = 168,
    ROCBLAS_ATOMICS_NOT_ALLOWED = 0,
    ROCBLAS_ALGO_STANDARD = 0,
};

struct rocblas_functions {
    int (*create_handle)(void **handle);
    int (*destroy_handle)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*set_atomics_mode)(void *handle, int mode);
    int (*get_version_string)(char *text, size_t cap);
    /* d = alpha op(a) op(b) + beta c */
    int (*gemm_ex)(void *handle, int op_a, int op_b, int32_t m, int32_t n, int32_t k,
                   const void *alpha, const void *a, int a_type, int32_t lda, const void *b,
                   int b_type, int32_t ldb, const void *beta, const void *c, int c_type,
                   int32_t ldc, void *d, int d_type, int32_t ldd, int compute_type, int algo,
                   int32_t solution_index, uint32_t flags);
};
