// SPDX-License-Identifier: Apache-2.0
// Products with rocBLAS, if hipBLASLt is absent. Without atomics it gives a product the same bits
// every time. It allocates its memory with its handle, so a step allocates none. Our kernel applies
// bias and activation. This path has not been run against the real library.
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "device/gpu/blas.h"
#include "device/gpu/rocblas.h"

struct rocblas {
    struct gpu_blas super;
    struct rocblas_functions f;
    void *library, *handle;
};

static struct rocblas *rocblas_of(struct gpu_blas *blas)
{
    return SW_CONTAINER(blas, struct rocblas, super);
}

bool sw_gpu_rocblas_takes(const struct gpu_product *s)
{
    const int64_t all[] = {s->m, s->n, s->k, s->lda, s->ldb, s->ldd};
    for (size_t i = 0; i < SW_LEN(all); i++) {
        if (all[i] > INT32_MAX) {
            return false;
        }
    }
    return true;
}

static sw_status prepare(struct gpu_blas *blas, struct gpu_prepared *product)
{
    (void)blas;
    if (!sw_gpu_rocblas_takes(&product->shape)) {
        return SW_E_UNSUP;
    }
    snprintf(product->algorithm, sizeof product->algorithm, "standard");
    return SW_OK;
}

static void release(struct gpu_blas *blas, struct gpu_prepared *product)
{
    (void)blas;
    (void)product;
}

static int type_of(int32_t dtype)
{
    return dtype == SW_BF16 ? ROCBLAS_BF16 : dtype == SW_F16 ? ROCBLAS_F16 : ROCBLAS_F32;
}

/* Column-major: d^T = b^T a^T. */
static sw_status run(struct gpu_blas *blas, const struct gpu_prepared *product,
                     const struct gpu_product_call *call)
{
    struct rocblas *r = rocblas_of(blas);
    const struct gpu_product *s = &product->shape;
    const int in = type_of(s->in), out = type_of(s->out);
    const float one = 1, zero = 0;
    int code = r->f.set_stream(r->handle, call->stream);
    if (code == ROCBLAS_SUCCESS) {
        code = r->f.gemm_ex(r->handle, s->tb ? ROCBLAS_OP_T : ROCBLAS_OP_N,
                            s->ta ? ROCBLAS_OP_T : ROCBLAS_OP_N, (int32_t)s->n, (int32_t)s->m,
                            (int32_t)s->k, &one, call->b, in, (int32_t)s->ldb, call->a, in,
                            (int32_t)s->lda, &zero, call->d, out, (int32_t)s->ldd, call->d, out,
                            (int32_t)s->ldd, ROCBLAS_F32, ROCBLAS_ALGO_STANDARD, 0, 0);
    }
    return code == ROCBLAS_SUCCESS
               ? SW_OK
               : SW_FAIL(SW_E_DEVICE, "%s: a product of %lldx%lldx%lld: status %d", blas->name,
                         (long long)s->m, (long long)s->k, (long long)s->n, code);
}

static void close_rocblas(struct gpu_blas *blas)
{
    struct rocblas *r = rocblas_of(blas);
    if (r->handle) {
        r->f.destroy_handle(r->handle);
    }
    sw_free(r);
}

static const struct gpu_blas_ops rocblas_ops = {
    .adds_bias = false, .close = close_rocblas, .prepare = prepare, .release = release, .run = run};

static sw_status find_all(struct rocblas *r, const char *path)
{
#define ROCBLAS_FUNCTION(name)                                                                     \
    {                                                                                              \
        "rocblas_" #name, offsetof(struct rocblas_functions, name)                                 \
    }
    static const struct {
        const char *name;
        size_t at;
    } wanted[] = {ROCBLAS_FUNCTION(create_handle),      ROCBLAS_FUNCTION(destroy_handle),
                  ROCBLAS_FUNCTION(set_stream),         ROCBLAS_FUNCTION(set_atomics_mode),
                  ROCBLAS_FUNCTION(get_version_string), ROCBLAS_FUNCTION(gemm_ex)};
#undef ROCBLAS_FUNCTION
    for (size_t i = 0; i < SW_LEN(wanted); i++) {
        void *function = dlsym(r->library, wanted[i].name);
        if (!function) {
            return SW_FAIL(SW_E_UNSUP, "%s has no %s", path, wanted[i].name);
        }
        memcpy((char *)&r->f + wanted[i].at, &function, sizeof function);
    }
    return SW_OK;
}

sw_status sw_gpu_blas_open_rocblas(const char *path, struct gpu_blas **out)
{
    struct rocblas *r = sw_alloc_zero("device", 1, sizeof *r);
    SW_TRY_ALLOC(r, "a library of products");
    sw_status st = SW_OK;
    char version[256] = ""; /* the library refuses less than it needs */
    r->super.ops = &rocblas_ops;
    r->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!r->library) {
        const char *why = dlerror();
        st = SW_FAIL(SW_E_UNSUP, "%s", why ? why : path);
        goto close;
    }
    SW_TRY_OR(close, find_all(r, path));
    int code = r->f.create_handle(&r->handle);
    code = code ? code : r->f.set_atomics_mode(r->handle, ROCBLAS_ATOMICS_NOT_ALLOWED);
    code = code ? code : r->f.get_version_string(version, sizeof version);
    if (code != ROCBLAS_SUCCESS) {
        st = SW_FAIL(SW_E_DEVICE, "%s does not begin: status %d", path, code);
        goto close;
    }
    snprintf(r->super.name, sizeof r->super.name, "rocblas:%.39s", version);
    *out = &r->super;
    return SW_OK;
close:
    close_rocblas(&r->super);
    return st;
}
