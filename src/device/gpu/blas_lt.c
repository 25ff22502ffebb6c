// SPDX-License-Identifier: Apache-2.0
// Products with cuBLASLt and hipBLASLt. Their matrices are column-major, ours row-major, so the
// operands are swapped: d^T = b^T a^T. The hipBLASLt path has not been run against the real
// library.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "device/gpu/blas.h"
#include "device/gpu/lt.h"

/* Answers searched for one without split-K; normally the first. */
enum { N_ANSWERS = 8 };

_Static_assert(GPU_BLAS_WORKSPACE == 32 << 20, "lt.h says the same");

struct lt {
    struct gpu_blas super;
    const struct lt_values *values;
    struct lt_functions f;
    void *library, *handle;
};

struct lt_product {
    void *desc, *a, *b, *d; /* a, b: in the library's order */
    unsigned char algo[LT_MAX_ALGO_BYTES];
    size_t workspace_bytes;
};

static struct lt *lt_of(struct gpu_blas *blas)
{
    return SW_CONTAINER(blas, struct lt, super);
}

#define LT_TRY_OR(label, lt, function, ...)                                                        \
    do {                                                                                           \
        const int lt_code = (lt)->f.function(__VA_ARGS__);                                         \
        if (lt_code != LT_SUCCESS) {                                                               \
            st = SW_FAIL(SW_E_DEVICE, "%s: %s%s: status %d", (lt)->super.name,                     \
                         (lt)->values->prefix, #function, lt_code);                                \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/* ---- products ---- */

static void release_parts(struct lt *lt, struct lt_product *p)
{
    void *const layouts[] = {p->a, p->b, p->d};
    for (size_t i = 0; i < SW_LEN(layouts); i++) {
        if (layouts[i]) {
            lt->f.MatrixLayoutDestroy(layouts[i]);
        }
    }
    if (p->desc) {
        lt->f.MatmulDescDestroy(p->desc);
    }
    sw_free(p);
}

static int type_of(int32_t dtype)
{
    return dtype == SW_BF16 ? LT_R_16BF : dtype == SW_F16 ? LT_R_16F : LT_R_32F;
}

static int32_t epilogue_of(const struct gpu_product *s)
{
    const int32_t epilogue = (s->has_bias ? LT_EPILOGUE_BIAS : 0) |
                             (s->gelu ? LT_EPILOGUE_GELU : 0) |
                             (s->keeps_pre ? LT_EPILOGUE_AUX : 0);
    return epilogue ? epilogue : LT_EPILOGUE_DEFAULT;
}

/* Sets the epilogue. The addresses of its operands are not known yet; their alignment is. */
static sw_status describe_epilogue(struct lt *lt, const struct gpu_product *s, void *desc)
{
    const struct lt_values *v = lt->values;
    const int32_t epilogue = epilogue_of(s), type = type_of(s->out);
    const void *somewhere = (const void *)(uintptr_t)GPU_ALIGN;
    sw_status st = SW_OK;
    LT_TRY_OR(out, lt, MatmulDescSetAttribute, desc, v->desc_epilogue, &epilogue, sizeof epilogue);
    if (s->has_bias) {
        LT_TRY_OR(out, lt, MatmulDescSetAttribute, desc, v->desc_bias_type, &type, sizeof type);
        LT_TRY_OR(out, lt, MatmulDescSetAttribute, desc, v->desc_bias_pointer, &somewhere,
                  sizeof somewhere);
    }
    if (s->keeps_pre) {
        LT_TRY_OR(out, lt, MatmulDescSetAttribute, desc, v->desc_aux_ld, &s->ldd, sizeof s->ldd);
        LT_TRY_OR(out, lt, MatmulDescSetAttribute, desc, v->desc_aux_pointer, &somewhere,
                  sizeof somewhere);
    }
out:
    return st;
}

/* Makes descriptors of d^T [n, m] = op(b) [n, k] op(a) [k, m]. */
static sw_status describe(struct lt *lt, const struct gpu_product *s, struct lt_product *p)
{
    const struct lt_values *v = lt->values;
    const int32_t trans_a = s->tb ? v->op_t : v->op_n, trans_b = s->ta ? v->op_t : v->op_n;
    const int in = type_of(s->in), out = type_of(s->out);
    sw_status st = SW_OK;
    LT_TRY_OR(out, lt, MatmulDescCreate, &p->desc, v->compute_32f, LT_R_32F);
    LT_TRY_OR(out, lt, MatmulDescSetAttribute, p->desc, v->desc_trans_a, &trans_a, sizeof trans_a);
    LT_TRY_OR(out, lt, MatmulDescSetAttribute, p->desc, v->desc_trans_b, &trans_b, sizeof trans_b);
    SW_TRY_OR(out, describe_epilogue(lt, s, p->desc));
    LT_TRY_OR(out, lt, MatrixLayoutCreate, &p->a, in, (uint64_t)(s->tb ? s->k : s->n),
              (uint64_t)(s->tb ? s->n : s->k), s->ldb);
    LT_TRY_OR(out, lt, MatrixLayoutCreate, &p->b, in, (uint64_t)(s->ta ? s->m : s->k),
              (uint64_t)(s->ta ? s->k : s->m), s->lda);
    LT_TRY_OR(out, lt, MatrixLayoutCreate, &p->d, out, (uint64_t)s->n, (uint64_t)s->m, s->ldd);
out:
    return st;
}

static sw_status prefer(struct lt *lt, const struct gpu_product *s, void **out)
{
    const struct lt_values *v = lt->values;
    const uint64_t workspace = v->workspace_limit;
    const struct {
        int attribute;
        uint32_t value;
    } rest[] = {{v->pref_reductions, 0},
                {v->pref_align_a, (uint32_t)s->align_b},
                {v->pref_align_b, (uint32_t)s->align_a},
                {v->pref_align_c, (uint32_t)s->align_d},
                {v->pref_align_d, (uint32_t)s->align_d}};
    sw_status st = SW_OK;
    LT_TRY_OR(out, lt, MatmulPreferenceCreate, out);
    LT_TRY_OR(out, lt, MatmulPreferenceSetAttribute, *out, v->pref_workspace, &workspace,
              sizeof workspace);
    for (size_t i = 0; i < SW_LEN(rest); i++) {
        if (rest[i].attribute != LT_NONE) {
            LT_TRY_OR(out, lt, MatmulPreferenceSetAttribute, *out, rest[i].attribute,
                      &rest[i].value, sizeof rest[i].value);
        }
    }
out:
    return st;
}

/* -1: unknown. */
static int config(const struct lt *lt, const void *algo, int attribute)
{
    const bool is_short = attribute == LT_CONFIG_INNER || attribute == LT_CONFIG_CLUSTER;
    uint16_t half = 0; /* the attribute's size is compared */
    int32_t value = 0;
    size_t n = 0;
    if (!lt->f.MatmulAlgoConfigGetAttribute) {
        return 0;
    }
    const int code = lt->f.MatmulAlgoConfigGetAttribute(algo, attribute,
                                                        is_short ? (void *)&half : (void *)&value,
                                                        is_short ? sizeof half : sizeof value, &n);
    return code != LT_SUCCESS ? -1 : is_short ? half : value;
}

/* Names the algorithm for comparisons: equal texts mean equal algorithms. */
static void name_algorithm(const struct lt *lt, const void *algo, char *text, size_t cap)
{
    if (lt->f.MatmulAlgoConfigGetAttribute) {
        snprintf(text, cap,
                 "algorithm %d tile %d stages %d swizzle %d custom %d inner %d cluster %d",
                 config(lt, algo, LT_CONFIG_ID), config(lt, algo, LT_CONFIG_TILE),
                 config(lt, algo, LT_CONFIG_STAGES), config(lt, algo, LT_CONFIG_SWIZZLE),
                 config(lt, algo, LT_CONFIG_CUSTOM), config(lt, algo, LT_CONFIG_INNER),
                 config(lt, algo, LT_CONFIG_CLUSTER));
        return;
    }
    /* Its first word is the index of the solution. */
    int32_t index;
    memcpy(&index, algo, sizeof index);
    snprintf(text, cap, "solution %d", index);
}

/* Chooses the first answer without split-K. */
static sw_status choose(struct lt *lt, const struct gpu_product *s, struct lt_product *p,
                        struct gpu_prepared *out)
{
    const size_t algo_bytes = lt->values->algo_bytes;
    const size_t answer_bytes = algo_bytes + sizeof(size_t) + 6 * sizeof(int);
    _Alignas(16) unsigned char answers[N_ANSWERS * LT_MAX_ANSWER_BYTES];
    void *preference = NULL;
    int n = 0;
    memset(answers, 0, sizeof answers);
    sw_status st;
    SW_TRY_OR(out, prefer(lt, s, &preference));
    if (lt->f.MatmulAlgoGetHeuristic(lt->handle, p->desc, p->a, p->b, p->d, p->d, preference,
                                     N_ANSWERS, answers, &n) != LT_SUCCESS) {
        n = 0;
    }
    st = SW_E_UNSUP;
    for (int i = 0; i < n && st < 0; i++) {
        const unsigned char *answer = answers + (size_t)i * answer_bytes;
        const int split_k = config(lt, answer, LT_CONFIG_SPLIT_K);
        size_t workspace;
        int status;
        memcpy(&workspace, answer + algo_bytes, sizeof workspace);
        memcpy(&status, answer + algo_bytes + sizeof workspace, sizeof status);
        if (status == LT_SUCCESS && workspace <= lt->values->workspace_limit &&
            (split_k == 0 || split_k == 1) && config(lt, answer, LT_CONFIG_REDUCTION) == 0) {
            memcpy(p->algo, answer, algo_bytes);
            p->workspace_bytes = out->workspace_bytes = workspace;
            name_algorithm(lt, answer, out->algorithm, sizeof out->algorithm);
            st = SW_OK;
        }
    }
out:
    if (preference) {
        lt->f.MatmulPreferenceDestroy(preference);
    }
    return st;
}

/* The kept GELU input has the result's row stride, with the library's own alignment rules. */
bool sw_gpu_lt_takes(const struct gpu_product *s)
{
    return !s->keeps_pre || (s->align_d == GPU_ALIGN && s->ldd % LT_AUX_LD_UNIT == 0);
}

static sw_status prepare(struct gpu_blas *blas, struct gpu_prepared *product)
{
    struct lt *lt = lt_of(blas);
    if (!sw_gpu_lt_takes(&product->shape)) {
        return SW_E_UNSUP;
    }
    struct lt_product *p = sw_alloc_zero("device", 1, sizeof *p);
    SW_TRY_ALLOC(p, "a product");
    sw_status st = describe(lt, &product->shape, p);
    st = st < 0 ? st : choose(lt, &product->shape, p, product);
    if (st < 0) {
        release_parts(lt, p);
        return st;
    }
    product->handle = p;
    return SW_OK;
}

static void release(struct gpu_blas *blas, struct gpu_prepared *product)
{
    release_parts(lt_of(blas), product->handle);
}

static sw_status run(struct gpu_blas *blas, const struct gpu_prepared *product,
                     const struct gpu_product_call *call)
{
    struct lt *lt = lt_of(blas);
    const struct lt_product *p = product->handle;
    const float one = 1, zero = 0;
    sw_status st = SW_OK;
    if (call->bias) {
        LT_TRY_OR(out, lt, MatmulDescSetAttribute, p->desc, lt->values->desc_bias_pointer,
                  &call->bias, sizeof call->bias);
    }
    if (call->pre) {
        LT_TRY_OR(out, lt, MatmulDescSetAttribute, p->desc, lt->values->desc_aux_pointer,
                  &call->pre, sizeof call->pre);
    }
    LT_TRY_OR(out, lt, Matmul, lt->handle, p->desc, &one, call->b, p->a, call->a, p->b, &zero,
              call->d, p->d, call->d, p->d, p->algo, call->workspace, p->workspace_bytes,
              call->stream);
out:
    return st;
}

/* ---- the library ---- */

static void close_lt(struct gpu_blas *blas)
{
    struct lt *lt = lt_of(blas);
    if (lt->handle) {
        lt->f.Destroy(lt->handle);
    }
    sw_free(lt); /* the library stays loaded: it may have started threads */
}

static const struct gpu_blas_ops lt_ops = {.adds_bias = true,
                                           .has_gelu = true,
                                           .close = close_lt,
                                           .prepare = prepare,
                                           .release = release,
                                           .run = run};

static void *find(const struct lt *lt, const char *name)
{
    char symbol[96];
    snprintf(symbol, sizeof symbol, "%s%s", lt->values->prefix, name);
    return dlsym(lt->library, symbol);
}

static sw_status find_all(struct lt *lt, const char *path)
{
#define LT_FUNCTION(name)                                                                          \
    {                                                                                              \
#name, offsetof(struct lt_functions, name)                                                 \
    }
    static const struct {
        const char *name;
        size_t at;
    } wanted[] = {LT_FUNCTION(Create),
                  LT_FUNCTION(Destroy),
                  LT_FUNCTION(MatmulDescCreate),
                  LT_FUNCTION(MatmulDescDestroy),
                  LT_FUNCTION(MatmulDescSetAttribute),
                  LT_FUNCTION(MatrixLayoutCreate),
                  LT_FUNCTION(MatrixLayoutDestroy),
                  LT_FUNCTION(MatmulPreferenceCreate),
                  LT_FUNCTION(MatmulPreferenceDestroy),
                  LT_FUNCTION(MatmulPreferenceSetAttribute),
                  LT_FUNCTION(MatmulAlgoGetHeuristic),
                  LT_FUNCTION(Matmul)};
#undef LT_FUNCTION
    for (size_t i = 0; i < SW_LEN(wanted); i++) {
        void *function = find(lt, wanted[i].name);
        if (!function) {
            return SW_FAIL(SW_E_UNSUP, "%s has no %s%s", path, lt->values->prefix, wanted[i].name);
        }
        memcpy((char *)&lt->f + wanted[i].at, &function, sizeof function);
    }
    void *version = find(lt, "GetVersion");
    void *get = find(lt, "MatmulAlgoConfigGetAttribute");
    if (lt->values == &lt_of_hip) {
        memcpy(&lt->f.version_of_hip, &version, sizeof version);
    } else {
        memcpy(&lt->f.version_of_cuda, &version, sizeof version);
        memcpy(&lt->f.MatmulAlgoConfigGetAttribute, &get, sizeof get);
    }
    return SW_OK;
}

static sw_status open_lt(const struct lt_values *values, const char *path, struct gpu_blas **out)
{
    struct lt *lt = sw_alloc_zero("device", 1, sizeof *lt);
    SW_TRY_ALLOC(lt, "a library of products");
    sw_status st = SW_OK;
    lt->super.ops = &lt_ops;
    lt->values = values;
    snprintf(lt->super.name, sizeof lt->super.name, "%s", values->name);
    lt->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lt->library) {
        const char *why = dlerror();
        st = SW_FAIL(SW_E_UNSUP, "%s", why ? why : path);
        goto close;
    }
    SW_TRY_OR(close, find_all(lt, path));
    LT_TRY_OR(close, lt, Create, &lt->handle);
    int version = 0;
    if (lt->f.version_of_cuda) {
        version = (int)lt->f.version_of_cuda();
    } else if (lt->f.version_of_hip) {
        lt->f.version_of_hip(lt->handle, &version);
    }
    snprintf(lt->super.name, sizeof lt->super.name, "%s:%d", values->name, version);
    *out = &lt->super;
    return SW_OK;
close:
    close_lt(&lt->super);
    return st;
}

sw_status sw_gpu_blas_open_cublaslt(const char *path, struct gpu_blas **out)
{
    return open_lt(&lt_of_cuda, path, out);
}

sw_status sw_gpu_blas_open_hipblaslt(const char *path, struct gpu_blas **out)
{
    return open_lt(&lt_of_hip, path, out);
}
