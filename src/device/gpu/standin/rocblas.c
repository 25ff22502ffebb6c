// SPDX-License-Identifier: Apache-2.0
// Stands in for rocBLAS when GPUs with warps of 64 are emulated. It checks a product's arguments
// and refuses invalid ones with a line on stderr. Strides decide the order of summation, as they
// may in the library.
#include "device/gpu/rocblas.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/gpu/module/emu_stream.h"
#include "device/gpu/standin/standin.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    INVALID_HANDLE = 1,
    INVALID_POINTER = 3,
    INVALID_SIZE = 4,
    MEMORY_ERROR = 5,
    INVALID_VALUE = 11
};

struct handle {
    void *stream;
    int atomics;
};

EXPORT int rocblas_create_handle(void **out)
{
    struct handle *handle = calloc(1, sizeof *handle);
    if (!handle) {
        return MEMORY_ERROR;
    }
    handle->atomics = 1; /* the library's default */
    *out = handle;
    return ROCBLAS_SUCCESS;
}

EXPORT int rocblas_destroy_handle(void *handle)
{
    free(handle);
    return handle ? ROCBLAS_SUCCESS : INVALID_HANDLE;
}

EXPORT int rocblas_set_stream(void *handle, void *stream)
{
    if (!handle) {
        return INVALID_HANDLE;
    }
    ((struct handle *)handle)->stream = stream;
    return ROCBLAS_SUCCESS;
}

EXPORT int rocblas_set_atomics_mode(void *handle, int mode)
{
    if (!handle) {
        return INVALID_HANDLE;
    }
    ((struct handle *)handle)->atomics = mode;
    return ROCBLAS_SUCCESS;
}

EXPORT int rocblas_get_version_string(char *text, size_t cap)
{
    /* as long as that of a build between releases, whose last part is from `git describe` */
    static const char version[] = "stand-in.20250912-42-1205-g554bb20204";
    if (!text || cap < sizeof version) {
        return text ? INVALID_SIZE : INVALID_POINTER;
    }
    memcpy(text, version, sizeof version);
    return ROCBLAS_SUCCESS;
}

static int refuse(const char *why)
{
    fprintf(stderr, "stand-in for rocblas_gemm_ex: %s\n", why);
    return INVALID_VALUE;
}

static enum sw_dtype dtype_of(int type)
{
    return type == ROCBLAS_BF16  ? SW_BF16
           : type == ROCBLAS_F16 ? SW_F16
           : type == ROCBLAS_F32 ? SW_F32
                                 : SW_I32;
}

static int run_queued(void *args)
{
    return standin_run(args) ? ROCBLAS_SUCCESS : MEMORY_ERROR;
}

EXPORT int rocblas_gemm_ex(void *x, int op_a, int op_b, int32_t m, int32_t n, int32_t k,
                           const void *alpha, const void *a, int a_type, int32_t lda, const void *b,
                           int b_type, int32_t ldb, const void *beta, const void *c, int c_type,
                           int32_t ldc, void *d, int d_type, int32_t ldd, int compute_type,
                           int algo, int32_t solution_index, uint32_t flags)
{
    const struct handle *handle = x;
    const struct standin_product product = {
        .m = m,
        .n = n,
        .k = k,
        .lda = lda,
        .ldb = ldb,
        .ldd = ldd,
        .ta = op_a == ROCBLAS_OP_T,
        .tb = op_b == ROCBLAS_OP_T,
        .backwards = (lda + 2 * ldb + 3 * ldd) % 4 == 1,
        .in = dtype_of(a_type),
        .out = dtype_of(d_type),
        .a = a,
        .b = b,
        .d = d,
    };
    if (!handle || !handle->stream || handle->atomics != ROCBLAS_ATOMICS_NOT_ALLOWED) {
        return refuse("no handle, no stream, or atomics are allowed");
    }
    if ((op_a != ROCBLAS_OP_N && op_a != ROCBLAS_OP_T) ||
        (op_b != ROCBLAS_OP_N && op_b != ROCBLAS_OP_T)) {
        return refuse("a transposition");
    }
    if (a_type != b_type || c_type != d_type || c != d || ldc != ldd ||
        compute_type != ROCBLAS_F32 || algo != ROCBLAS_ALGO_STANDARD || solution_index != 0 ||
        flags != 0 || !alpha || !beta || *(const float *)alpha != 1 || *(const float *)beta != 0) {
        return refuse("not a plain product in fp32");
    }
    const char *problem = standin_problem(&product);
    if (problem) {
        return refuse(problem);
    }
    struct emu_stream *on = handle->stream;
    struct standin_product queued = product;
    return on->record ? on->record(on, run_queued, &queued, sizeof queued) : run_queued(&queued);
}
