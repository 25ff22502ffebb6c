// SPDX-License-Identifier: Apache-2.0
// A library of products that is not there, for simulated devices: it answers which products it
// takes, and never runs one.
#include <stdio.h>
#include <string.h>

#include "device/gpu/blas.h"

static sw_status prepare_lt(struct gpu_blas *blas, struct gpu_prepared *product)
{
    (void)blas;
    if (!sw_gpu_lt_takes(&product->shape)) {
        return SW_E_UNSUP;
    }
    product->workspace_bytes = GPU_BLAS_WORKSPACE;
    snprintf(product->algorithm, sizeof product->algorithm, "assumed");
    return SW_OK;
}

static sw_status prepare_rocblas(struct gpu_blas *blas, struct gpu_prepared *product)
{
    (void)blas;
    snprintf(product->algorithm, sizeof product->algorithm, "assumed");
    return sw_gpu_rocblas_takes(&product->shape) ? SW_OK : SW_E_UNSUP;
}

static void release(struct gpu_blas *blas, struct gpu_prepared *product)
{
    (void)blas;
    (void)product;
}

static void close_assumed(struct gpu_blas *blas)
{
    sw_free(blas);
}

/* run is NULL: a device that is simulated launches nothing. */
static const struct gpu_blas_ops lt_ops = {.adds_bias = true,
                                           .has_gelu = true,
                                           .close = close_assumed,
                                           .prepare = prepare_lt,
                                           .release = release};
static const struct gpu_blas_ops rocblas_ops = {
    .close = close_assumed, .prepare = prepare_rocblas, .release = release};

struct gpu_blas *sw_gpu_blas_assume(const char *name)
{
    struct gpu_blas *blas = sw_alloc_zero("device", 1, sizeof *blas);
    if (blas) {
        blas->ops = strcmp(name, "rocblas") == 0 ? &rocblas_ops : &lt_ops;
        snprintf(blas->name, sizeof blas->name, "%s", name);
    }
    return blas;
}
