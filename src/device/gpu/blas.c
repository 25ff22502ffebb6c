// SPDX-License-Identifier: Apache-2.0
// Chooses the library for a device's products, records what it was asked, and falls back to our
// kernel.
#include "device/gpu/blas.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/libs.h"

struct gpu_products {
    struct gpu_device *dev;
    struct gpu_blas *blas; /* NULL = no library */
    pthread_mutex_t lock;  /* one launch at a time uses a library's descriptors */
    struct gpu_prepared **all;
    int n, cap;
    bool uses; /* products asked for now belong to a kernel */
    bool has_warned;
};

/* ---- libraries ---- */

typedef sw_status (*open_fn)(const char *path, struct gpu_blas **out);

/* Per back end, the first library that works is used; names are tried in order. */
static const struct library {
    const char *backend;
    int warp; /* warp size of the emulation; 0 = any */
    open_fn open;
    const char *name; /* see SPILLWAY_GPU_BLAS */
    const char *names[5];
} libraries[] = {
    {"cuda", 0, sw_gpu_blas_open_cublaslt, "cublaslt", {"libcublasLt.so.13", "libcublasLt.so.12"}},
    {"hip",
     0,
     sw_gpu_blas_open_hipblaslt,
     "hipblaslt",
     {"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"}},
    {"hip",
     0,
     sw_gpu_blas_open_rocblas,
     "rocblas", /* ROCm 7, 6, 5, and Debian's package of 5 */
     {"librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0", "librocblas.so"}},
    /* Stand-ins, which check their arguments. */
    {"emu", 32, sw_gpu_blas_open_cublaslt, "cublaslt", {"spillway_emu_cublaslt.so"}},
    {"emu", 64, sw_gpu_blas_open_hipblaslt, "hipblaslt", {"spillway_emu_hipblaslt.so"}},
    {"emu", 64, sw_gpu_blas_open_rocblas, "rocblas", {"spillway_emu_rocblas.so"}},
};

/* NULL = whichever is present. */
static const char *wanted_library(void)
{
    const char *wish = getenv("SPILLWAY_GPU_BLAS");
    return wish && *wish ? wish : NULL;
}

bool sw_gpu_products_own(void)
{
    const char *wish = wanted_library();
    return wish && strcmp(wish, "own") == 0;
}

static bool is_for(const struct library *l, const struct gpu_device *dev)
{
    return strcmp(l->backend, dev->module->backend) == 0 &&
           (l->warp == 0 || l->warp == dev->facts.warp);
}

/* A library that was named explicitly is used, or opening fails. */
static sw_status check_wanted(const struct gpu_device *dev, const struct gpu_blas *blas)
{
    const char *wish = wanted_library();
    char known[128] = "own";
    if (blas || !wish || sw_gpu_products_own()) {
        return SW_OK;
    }
    for (size_t i = 0; i < SW_LEN(libraries); i++) {
        const size_t n = strlen(known);
        if (is_for(&libraries[i], dev) && strcmp(libraries[i].name, wish) == 0) {
            return SW_FAIL(SW_E_UNSUP, "SPILLWAY_GPU_BLAS=%s: no working %s was found", wish,
                           libraries[i].names[0]);
        }
        if (is_for(&libraries[i], dev)) {
            snprintf(known + n, sizeof known - n, ", %s", libraries[i].name);
        }
    }
    return SW_FAIL(SW_E_ARG, "SPILLWAY_GPU_BLAS=%s: device %s has %s", wish, dev->module->backend,
                   known);
}

static bool find(const struct library *l, const char *name, char *path, size_t cap)
{
    const bool is_stand_in = l->warp > 0; /* stand-ins are beside the modules */
    return is_stand_in ? sw_gpu_find_named(name, path, cap) || sw_module_find(name, path, cap)
                       : sw_gpu_find_library(name, path, cap);
}

/* A user who names folders expects the library to be in them: warns if it is not. */
static void warn_of_folders(const struct gpu_blas *blas)
{
    const char *folders = getenv("SPILLWAY_GPU_LIBS");
    const char *name = blas ? strrchr(blas->path, '/') : NULL;
    char named[sizeof blas->path];
    if (!folders || !*folders || sw_gpu_products_own() ||
        (name && sw_gpu_find_named(name + 1, named, sizeof named) &&
         strcmp(named, blas->path) == 0)) {
        return;
    }
    sw_log(SW_LOG_WARN,
           "SPILLWAY_GPU_LIBS=%s: no library there can compute matrix products here; %s is used",
           folders, blas ? blas->path : "our own slow kernel");
}

/* hipBLASLt has kernels for MI200 and later ones. It opens on others, too, and then has no
 * product. */
static bool knows(const struct library *l, const struct gpu_device *dev)
{
    return strcmp(l->name, "hipblaslt") != 0 || strcmp(dev->facts.arch, "gfx908") != 0;
}

/* May this library make the products of the device? wish: see wanted_library */
static bool may_make(const struct library *l, const struct gpu_device *dev, const char *wish)
{
    return is_for(l, dev) && (wish ? strcmp(wish, l->name) == 0 : knows(l, dev));
}

static sw_status assume_library(const struct gpu_device *dev, struct gpu_blas **out)
{
    const char *wish = wanted_library();
    for (size_t i = 0; i < SW_LEN(libraries) && !*out; i++) {
        const struct library *l = &libraries[i];
        if (may_make(l, dev, wish)) {
            *out = sw_gpu_blas_assume(l->name);
            SW_TRY_ALLOC(*out, "a library of products");
        }
    }
    return SW_OK;
}

static struct gpu_blas *open_library(const struct gpu_device *dev)
{
    const char *wish = wanted_library();
    char path[512];
    struct gpu_blas *blas = NULL;
    for (size_t i = 0; i < SW_LEN(libraries); i++) {
        const struct library *l = &libraries[i];
        if (!may_make(l, dev, wish)) {
            continue;
        }
        for (int k = 0; k < (int)SW_LEN(l->names) && l->names[k]; k++) {
            const bool there = find(l, l->names[k], path, sizeof path);
            if (there && l->open(path, &blas) >= 0) {
                snprintf(blas->path, sizeof blas->path, "%s", path);
                return blas;
            }
            if (there) {
                sw_log(SW_LOG_WARN, "matrix products do not use %s: %s", path, sw_error_message());
            }
        }
    }
    return NULL;
}

static sw_status open_products(struct gpu_device *dev, bool assume, struct gpu_products **out)
{
    struct gpu_products *products = sw_alloc_zero("device", 1, sizeof *products);
    SW_TRY_ALLOC(products, "the products of a device");
    pthread_mutex_init(&products->lock, NULL);
    products->dev = dev;
    sw_status st = SW_OK;
    if (assume) {
        st = assume_library(dev, &products->blas);
    } else {
        products->blas = open_library(dev);
    }
    st = st < 0 ? st : check_wanted(dev, products->blas);
    if (st < 0) {
        sw_gpu_products_close(products);
        return st;
    }
    *out = products;
    return SW_OK;
}

sw_status sw_gpu_products_open(struct gpu_device *dev, struct gpu_products **out)
{
    SW_TRY(open_products(dev, false, out));
    warn_of_folders((*out)->blas);
    return SW_OK;
}

sw_status sw_gpu_products_assume(struct gpu_device *dev, struct gpu_products **out)
{
    return open_products(dev, true, out);
}

void sw_gpu_products_close(struct gpu_products *products)
{
    if (!products) {
        return;
    }
    for (int i = 0; i < products->n; i++) {
        struct gpu_prepared *product = products->all[i];
        if (product->blas) {
            product->blas->ops->release(product->blas, product);
        }
        sw_free(product);
    }
    if (products->blas) {
        products->blas->ops->close(products->blas);
    }
    pthread_mutex_destroy(&products->lock);
    sw_free(products->all);
    sw_free(products);
}

const char *sw_gpu_products_name(const struct gpu_products *products)
{
    return products->blas ? products->blas->name : "own";
}

const char *sw_gpu_products_path(const struct gpu_products *products)
{
    return products->blas ? products->blas->path : NULL;
}

bool sw_gpu_products_add_bias(const struct gpu_products *products)
{
    return !products->blas || products->blas->ops->adds_bias;
}

bool sw_gpu_products_have_gelu(const struct gpu_products *products)
{
    return products->blas && products->blas->ops->has_gelu;
}

void sw_gpu_products_use(struct gpu_products *products, bool used)
{
    products->uses = used;
}

/* The text before ": " is all that a library is asked for. */
static void describe(const struct gpu_prepared *p, struct sw_str *out)
{
    const struct gpu_product *s = &p->shape;
    sw_str_printf(out, "%s%lldx%lldx%lld%s%s of %s to %s%s%s, rows of %lld %lld %lld, ",
                  out->len ? "; " : "", (long long)s->m, (long long)s->k, (long long)s->n,
                  s->ta ? " a^T" : "", s->tb ? " b^T" : "", sw_dtype_name((enum sw_dtype)s->in),
                  sw_dtype_name((enum sw_dtype)s->out), s->has_bias ? " with bias" : "",
                  s->keeps_pre ? " and gelu, kept before it"
                  : s->gelu    ? " and gelu"
                               : "",
                  (long long)s->lda, (long long)s->ldb, (long long)s->ldd);
    sw_str_printf(out, "aligned to %d %d %d: %s", (int)s->align_a, (int)s->align_b, (int)s->align_d,
                  p->algorithm);
}

void sw_gpu_products_describe(const struct gpu_products *products, struct sw_str *out)
{
    for (int i = 0; i < products->n; i++) {
        if (products->all[i]->is_used) {
            describe(products->all[i], out);
        }
    }
}

/* ---- products ---- */

/* Sets the calling thread's current device, on which a library works. */
static sw_status use_device(const struct gpu_device *dev)
{
    const int code = dev->module->use(dev->index);
    if (code != 0) {
        return SW_FAIL(SW_E_DEVICE, "device %s:%d cannot be used by this thread: error %d",
                       dev->module->backend, dev->index, code);
    }
    return SW_OK;
}

static sw_status prepare(struct gpu_products *products, const struct gpu_product *shape,
                         struct gpu_prepared **out)
{
    if (!(products->dev->super.caps & SW_DEVICE_SIMULATED)) {
        SW_TRY(use_device(products->dev));
    }
    struct gpu_prepared *p = sw_alloc_zero("device", 1, sizeof *p);
    SW_TRY_ALLOC(p, "a product");
    p->shape = *shape;
    p->blas = products->blas;
    SW_ASSERT(!shape->gelu || p->blas);
    sw_status st = p->blas ? p->blas->ops->prepare(p->blas, p) : SW_E_UNSUP;
    if (st == SW_E_UNSUP) {
        p->blas = NULL;
        p->handle = NULL;
        p->workspace_bytes = 0;
        snprintf(p->algorithm, sizeof p->algorithm, "own");
        st = SW_OK;
    }
    if (p->workspace_bytes > 0) {
        p->workspace_bytes += GPU_BLAS_WORKSPACE_ALIGN - SW_STORAGE_ALIGN;
    }
    if (st < 0) {
        sw_free(p);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = p;
    return SW_OK;
}

/* False if the library lacks the product's epilogue: such a product is only a query. */
static bool is_for_use(const struct gpu_products *products, const struct gpu_prepared *p)
{
    return products->uses && (p->blas || !p->shape.gelu);
}

/* Marks a product that a kernel uses. */
static void use(struct gpu_products *products, struct gpu_prepared *p)
{
    p->is_used |= is_for_use(products, p);
    if (p->is_used && !p->blas && products->blas && !products->has_warned) {
        const struct gpu_product *s = &p->shape;
        sw_log(SW_LOG_WARN,
               "%s has no product of %lldx%lldx%lld of %s to %s; our own slow kernel computes it, "
               "and others that the library lacks",
               products->blas->name, (long long)s->m, (long long)s->k, (long long)s->n,
               sw_dtype_name((enum sw_dtype)s->in), sw_dtype_name((enum sw_dtype)s->out));
        products->has_warned = true;
    }
}

sw_status sw_gpu_product_get(const struct gpu_device *dev, const struct gpu_product *shape,
                             const struct gpu_prepared **out)
{
    struct gpu_products *products = dev->products;
    for (int i = 0; i < products->n; i++) {
        if (memcmp(&products->all[i]->shape, shape, sizeof *shape) == 0) {
            use(products, products->all[i]);
            *out = products->all[i];
            return SW_OK;
        }
    }
    if (products->n == products->cap) {
        const int cap = products->cap ? 2 * products->cap : 32;
        struct gpu_prepared **all = sw_realloc("device", products->all, (size_t)cap * sizeof(*all));
        SW_TRY_ALLOC(all, "products");
        products->all = all;
        products->cap = cap;
    }
    struct gpu_prepared *product = NULL;
    SW_TRY(prepare(products, shape, &product));
    use(products, product);
    products->all[products->n++] = product;
    *out = product;
    return SW_OK;
}

static sw_status run_own(const struct gpu_call *call, const struct gpu_product *shape,
                         const struct gpu_product_call *what)
{
    struct gpu_product_args args = {
        .a = what->a,
        .b = what->b,
        .bias = what->bias,
        .d = what->d,
        .m = shape->m,
        .n = shape->n,
        .k = shape->k,
        .a_outer = shape->ta ? 1 : shape->lda,
        .a_inner = shape->ta ? shape->lda : 1,
        .b_outer = shape->tb ? shape->ldb : 1, /* the kernel walks columns of b */
        .b_inner = shape->tb ? 1 : shape->ldb,
        .ldd = shape->ldd,
        .out_type = (int)sw_gpu_type_of((enum sw_dtype)shape->out),
    };
    const struct gpu_grid grid = {.x = sw_ceil_div(shape->m, SW_GPU_PRODUCT_TILE) *
                                       sw_ceil_div(shape->n, SW_GPU_PRODUCT_TILE)};
    GPU_LAUNCH(call, product, sw_gpu_type_of((enum sw_dtype)shape->in), grid, &args);
    return SW_OK;
}

static sw_status check_aligned(const struct gpu_product *s, const void *address, int32_t align,
                               const char *which)
{
    if (address && (uintptr_t)address % (uintptr_t)align == 0) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_ARG,
                   "a product of %lldx%lldx%lld: its %s is %s, wanted at a multiple of %d bytes",
                   (long long)s->m, (long long)s->k, (long long)s->n, which,
                   address ? "elsewhere" : "missing", (int)align);
}

/* Moves the workspace to where the library wants it, within what was reserved. */
static sw_status align_workspace(const struct gpu_prepared *product, struct gpu_product_call *what)
{
    if (product->workspace_bytes == 0) {
        what->workspace = NULL;
        return SW_OK;
    }
    SW_TRY(check_aligned(&product->shape, what->workspace, SW_STORAGE_ALIGN, "workspace"));
    const uintptr_t at = (uintptr_t)what->workspace;
    const uintptr_t beyond = at % GPU_BLAS_WORKSPACE_ALIGN;
    what->workspace = (char *)what->workspace + (beyond ? GPU_BLAS_WORKSPACE_ALIGN - beyond : 0);
    return SW_OK;
}

sw_status sw_gpu_product_run(const struct gpu_call *call, const struct gpu_prepared *product,
                             const struct gpu_product_call *operands)
{
    const struct gpu_product *s = &product->shape;
    struct gpu_product_call what = *operands;
    what.stream = call->stream;
    SW_ASSERT((what.bias != NULL) == (s->has_bias != 0) && !call->is_predicated);
    SW_TRY(check_aligned(s, what.a, s->align_a, "first operand"));
    SW_TRY(check_aligned(s, what.b, s->align_b, "second operand"));
    SW_TRY(check_aligned(s, what.d, s->align_d, "result"));
    if (s->keeps_pre) {
        SW_TRY(check_aligned(s, what.pre, s->align_d, "result before its activation"));
    }
    if (!product->blas) {
        return run_own(call, s, &what);
    }
    SW_TRY(align_workspace(product, &what));
    struct gpu_products *products = call->dev->products;
    SW_TRY(use_device(call->dev));
    pthread_mutex_lock(&products->lock);
    const sw_status st = product->blas->ops->run(product->blas, product, &what);
    pthread_mutex_unlock(&products->lock);
    return st < 0 ? sw_frame_at(__FILE__, __LINE__, st) : SW_OK;
}

sw_status sw_gpu_product_finish(const struct gpu_call *call, enum sw_dtype dtype,
                                struct gpu_product_finish_args *args)
{
    enum { THREADS = 256, PACK = 4 }; /* least elements per thread */
    const int64_t n = args->columns;
    if (!args->bias && args->ld_part == n && args->ld_out == n && (!args->x || args->ld_x == n)) {
        args->columns *= args->rows; /* contiguous rows: the row structure does not matter */
        args->ld_part = args->ld_out = args->ld_x = 0;
        args->rows = 1;
    }
    const int64_t packs = args->rows * sw_ceil_div(args->columns, PACK);
    GPU_LAUNCH(call, product_finish, sw_gpu_type_of(dtype), sw_gpu_grid_for(packs, THREADS), args);
    return SW_OK;
}
