// SPDX-License-Identifier: Apache-2.0
// Stands in for cuBLASLt where GPUs are emulated: every argument of every call is checked, and a
// call that the library would refuse, or get wrong, is refused with a line on stderr. Which
// algorithm a product gets follows from its shape, leading dimensions, types and alignments, and
// algorithms differ in their bits: whoever asks for the same product in two ways finds out.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/lt.h"
#include "device/gpu/standin/standin.h"

#define EXPORT __attribute__((visibility("default")))

enum { INVALID = 7, NOT_SUPPORTED = 15 }; /* CUBLAS_STATUS_.. */
enum { HANDLE = 0x48414e44, DESC = 0x44455343, LAYOUT = 0x4c41594f, PREFERENCE = 0x50524546 };

struct handle {
    int magic;
};
struct desc {
    int magic;
    int32_t compute, scale, trans_a, trans_b, epilogue, bias_type;
    const void *bias;
};
struct layout {
    int magic, type;
    int64_t rows, columns, ld;
};
struct preference {
    int magic;
    uint64_t workspace;
    uint32_t reductions, align[4]; /* a, b, c, d */
};
/* 64 bytes, as the library's. */
struct algo {
    uint64_t product; /* what it was chosen for */
    uint64_t workspace;
    uint32_t align[4];
    uint32_t bias_align;
    int32_t id, split_k, rest[5];
};
_Static_assert(sizeof(struct algo) == 64, "the library's size");
struct answer {
    struct algo algo;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};
_Static_assert(sizeof(struct answer) <= LT_MAX_ANSWER_BYTES, "as many as are made room for");

static int refuse(const char *call, const char *why)
{
    fprintf(stderr, "stand-in for cublasLt%s: %s\n", call, why);
    return INVALID;
}

#define CHECK(condition, call, why)                                                                \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return refuse(call, why);                                                              \
        }                                                                                          \
    } while (0)

/* ---- handles and descriptors ---- */

static int make(void **out, size_t bytes, int magic)
{
    int *made = calloc(1, bytes);
    if (!made) {
        return 3; /* ALLOC_FAILED */
    }
    *made = magic;
    *out = made;
    return LT_SUCCESS;
}

static int destroy(void *x, int magic, const char *call)
{
    CHECK(x && *(int *)x == magic, call, "not what is destroyed here");
    *(int *)x = 0;
    free(x);
    return LT_SUCCESS;
}

EXPORT int cublasLtCreate(void **out)
{
    return make(out, sizeof(struct handle), HANDLE);
}

EXPORT int cublasLtDestroy(void *handle)
{
    return destroy(handle, HANDLE, "Destroy");
}

EXPORT size_t cublasLtGetVersion(void)
{
    return 1; /* of the stand-in */
}

EXPORT int cublasLtMatmulDescCreate(void **out, int compute, int scale)
{
    CHECK(compute == 68 && scale == LT_R_32F, "MatmulDescCreate", "not fp32 without TF32");
    const int code = make(out, sizeof(struct desc), DESC);
    if (code == LT_SUCCESS) {
        ((struct desc *)*out)->epilogue = LT_EPILOGUE_DEFAULT;
        ((struct desc *)*out)->bias_type = LT_NONE;
    }
    return code;
}

EXPORT int cublasLtMatmulDescDestroy(void *desc)
{
    return destroy(desc, DESC, "MatmulDescDestroy");
}

EXPORT int cublasLtMatmulDescSetAttribute(void *x, int attribute, const void *value, size_t bytes)
{
    struct desc *desc = x;
    CHECK(desc && desc->magic == DESC && value, "MatmulDescSetAttribute", "no descriptor or value");
    if (attribute == lt_of_cuda.desc_bias_pointer) {
        CHECK(bytes == sizeof desc->bias, "MatmulDescSetAttribute", "a pointer's size");
        memcpy(&desc->bias, value, bytes);
        return LT_SUCCESS;
    }
    int32_t *to = attribute == lt_of_cuda.desc_trans_a     ? &desc->trans_a
                  : attribute == lt_of_cuda.desc_trans_b   ? &desc->trans_b
                  : attribute == lt_of_cuda.desc_epilogue  ? &desc->epilogue
                  : attribute == lt_of_cuda.desc_bias_type ? &desc->bias_type
                                                           : NULL;
    CHECK(to && bytes == sizeof *to, "MatmulDescSetAttribute", "no such attribute, or its size");
    memcpy(to, value, bytes);
    return LT_SUCCESS;
}

EXPORT int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns,
                                      int64_t ld)
{
    CHECK(rows > 0 && columns > 0 && ld >= (int64_t)rows, "MatrixLayoutCreate",
          "empty, or a leading dimension below the rows");
    CHECK(type == LT_R_32F || type == LT_R_16F || type == LT_R_16BF, "MatrixLayoutCreate", "type");
    const int code = make(out, sizeof(struct layout), LAYOUT);
    if (code == LT_SUCCESS) {
        *(struct layout *)*out = (struct layout){LAYOUT, type, (int64_t)rows, (int64_t)columns, ld};
    }
    return code;
}

EXPORT int cublasLtMatrixLayoutDestroy(void *layout)
{
    return destroy(layout, LAYOUT, "MatrixLayoutDestroy");
}

EXPORT int cublasLtMatmulPreferenceCreate(void **out)
{
    const int code = make(out, sizeof(struct preference), PREFERENCE);
    if (code == LT_SUCCESS) {
        ((struct preference *)*out)->reductions = 7; /* all, as the library's */
    }
    return code;
}

EXPORT int cublasLtMatmulPreferenceDestroy(void *preference)
{
    return destroy(preference, PREFERENCE, "MatmulPreferenceDestroy");
}

EXPORT int cublasLtMatmulPreferenceSetAttribute(void *x, int attribute, const void *value,
                                                size_t bytes)
{
    struct preference *p = x;
    CHECK(p && p->magic == PREFERENCE && value, "MatmulPreferenceSetAttribute", "no preference");
    if (attribute == lt_of_cuda.pref_workspace) {
        CHECK(bytes == sizeof p->workspace, "MatmulPreferenceSetAttribute", "size");
        memcpy(&p->workspace, value, bytes);
        return LT_SUCCESS;
    }
    const int first = lt_of_cuda.pref_align_a;
    uint32_t *to = attribute == lt_of_cuda.pref_reductions        ? &p->reductions
                   : attribute >= first && attribute <= first + 3 ? &p->align[attribute - first]
                                                                  : NULL;
    CHECK(to && bytes == sizeof *to, "MatmulPreferenceSetAttribute", "attribute or size");
    memcpy(to, value, bytes);
    return LT_SUCCESS;
}

/* ---- products ---- */

static enum sw_dtype dtype_of(int type)
{
    return type == LT_R_16BF ? SW_BF16 : type == LT_R_16F ? SW_F16 : SW_F32;
}

/* What the descriptors say, without addresses; NULL, or what is wrong with them. */
static const char *product_of(const struct desc *desc, const struct layout *a,
                              const struct layout *b, const struct layout *c,
                              const struct layout *d, struct standin_product *out)
{
    const bool ta = desc->trans_a == lt_of_cuda.op_t, tb = desc->trans_b == lt_of_cuda.op_t;
    const bool has_bias = desc->epilogue == LT_EPILOGUE_BIAS;
    static const char somewhere[16] __attribute__((aligned(16)));
    *out = (struct standin_product){.m = d->rows,
                                    .n = d->columns,
                                    .k = ta ? a->rows : a->columns,
                                    .lda = a->ld,
                                    .ldb = b->ld,
                                    .ldd = d->ld,
                                    .ta = ta,
                                    .tb = tb,
                                    .in = dtype_of(a->type),
                                    .out = dtype_of(d->type),
                                    .a = somewhere,
                                    .b = somewhere,
                                    .d = (void *)(uintptr_t)somewhere};
    return (unsigned)desc->trans_a > 1 || (unsigned)desc->trans_b > 1 ? "a transposition"
           : !has_bias && desc->epilogue != LT_EPILOGUE_DEFAULT       ? "an epilogue"
           : has_bias && desc->bias_type != d->type                   ? "the bias's type"
           : has_bias && !desc->bias                                  ? "no bias"
           : (ta ? a->columns : a->rows) != d->rows                   ? "rows of a and d"
           : (tb ? b->rows : b->columns) != d->columns                ? "columns of b and d"
           : (tb ? b->columns : b->rows) != out->k                    ? "columns of a, rows of b"
           : a->type != b->type || memcmp(c, d, sizeof *c) != 0       ? "types, or c is not d"
                                                                      : standin_problem(out);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_of(const struct standin_product *p, const struct desc *desc)
{
    const int64_t words[] = {p->m,  p->n,  p->k,           p->lda,          p->ldb,        p->ldd,
                             p->ta, p->tb, (int64_t)p->in, (int64_t)p->out, desc->epilogue};
    uint64_t hash = 1;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        hash = mix(hash, (uint64_t)words[i]);
    }
    return hash;
}

static bool is_power(uint32_t x)
{
    return x > 0 && x <= 256 && (x & (x - 1)) == 0;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *x_desc, void *a, void *b, void *c,
                                          void *d, void *x_preference, int n_wanted, void *answers,
                                          int *n_answers)
{
    static const char call[] = "MatmulAlgoGetHeuristic";
    const struct desc *desc = x_desc;
    const struct preference *p = x_preference;
    struct standin_product product;
    CHECK(handle && *(int *)handle == HANDLE && desc && desc->magic == DESC && p &&
              p->magic == PREFERENCE && a && b && c && d && answers && n_answers && n_wanted > 0,
          call, "an argument is missing");
    const char *problem = product_of(desc, a, b, c, d, &product);
    CHECK(!problem, call, problem);
    CHECK(p->workspace == lt_of_cuda.workspace_limit && p->reductions == 0, call,
          "the limit of workspace, or reductions are allowed");
    struct answer *to = answers;
    struct answer answer = {.algo = {.product = hash_of(&product, desc)}};
    uint64_t hash = answer.algo.product;
    for (int i = 0; i < 4; i++) {
        CHECK(is_power(p->align[i]), call, "an alignment");
        answer.algo.align[i] = p->align[i];
        hash = mix(hash, p->align[i]);
    }
    const uintptr_t bias = (uintptr_t)desc->bias;
    answer.algo.bias_align = (uint32_t)(bias & -bias);
    answer.algo.id = 1 + (int32_t)(hash & 1);
    answer.algo.workspace = answer.workspace = 256 + 64 * (hash % 5);
    *n_answers = 0;
    if (product.k > 1000) { /* one that must not be taken comes first */
        answer.algo.split_k = 4;
        to[(*n_answers)++] = answer;
        answer.algo.split_k = 1;
    }
    if (*n_answers < n_wanted) {
        to[(*n_answers)++] = answer;
    }
    return LT_SUCCESS;
}

EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const void *x, int attribute, void *value,
                                                size_t bytes, size_t *n_written)
{
    struct algo algo;
    memcpy(&algo, x, sizeof algo);
    const int32_t is = attribute == LT_CONFIG_ID        ? algo.id
                       : attribute == LT_CONFIG_SPLIT_K ? algo.split_k
                                                        : 0;
    const bool is_short = attribute == LT_CONFIG_INNER || attribute == LT_CONFIG_CLUSTER;
    const size_t wanted = is_short ? sizeof(uint16_t) : sizeof is; /* of a little-endian machine */
    CHECK(value && n_written && bytes == wanted, "MatmulAlgoConfigGetAttribute", "an argument");
    memcpy(value, &is, wanted);
    *n_written = wanted;
    return LT_SUCCESS;
}

static bool is_at(const void *x, uint32_t align)
{
    return x && (align == 0 || (uintptr_t)x % align == 0);
}

EXPORT int cublasLtMatmul(void *handle, void *x_desc, const void *alpha, const void *a,
                          void *a_layout, const void *b, void *b_layout, const void *beta,
                          const void *c, void *c_layout, void *d, void *d_layout,
                          const void *x_algo, void *workspace, size_t workspace_bytes, void *stream)
{
    static const char call[] = "Matmul";
    const struct desc *desc = x_desc;
    struct standin_product product;
    struct algo algo;
    CHECK(handle && *(int *)handle == HANDLE && desc && desc->magic == DESC && a_layout &&
              b_layout && c_layout && d_layout && alpha && beta && x_algo && stream,
          call, "an argument is missing");
    memcpy(&algo, x_algo, sizeof algo);
    const char *problem = product_of(desc, a_layout, b_layout, c_layout, d_layout, &product);
    CHECK(!problem, call, problem);
    CHECK(algo.product == hash_of(&product, desc), call, "the algorithm is another product's");
    CHECK(algo.split_k <= 1, call, "an algorithm with partial sums");
    CHECK(*(const float *)alpha == 1 && *(const float *)beta == 0 && c == d, call,
          "not a plain product");
    CHECK(is_at(a, algo.align[0]) && is_at(b, algo.align[1]) && is_at(d, algo.align[3]), call,
          "an operand is missing, or not aligned as the algorithm was promised");
    CHECK(workspace_bytes >= algo.workspace && is_at(workspace, 16), call,
          "workspace is missing, too small, or not aligned");
    product.a = a;
    product.b = b;
    product.d = d;
    if (desc->epilogue == LT_EPILOGUE_BIAS) {
        CHECK(is_at(desc->bias, algo.bias_align), call, "the bias is not aligned as promised");
        product.bias = desc->bias;
    }
    memset(workspace, 0xa5, (size_t)algo.workspace); /* it is there */
    product.backwards = algo.id == 2;
    return standin_run(&product) ? LT_SUCCESS : 3;
}
