// SPDX-License-Identifier: Apache-2.0
// Stands in for cuBLASLt and hipBLASLt when GPUs are emulated; this file is compiled once for each
// (STANDIN_IS_HIP). Every argument of every call is checked. A call that the library would refuse,
// or get wrong, is refused with a line on stderr. The algorithm of a product follows from its
// shape, strides, types, epilogue and, if the library is told, alignments. Algorithms differ in
// their bits, so that asking for the same product in two ways shows.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/lt.h"
#include "device/gpu/module/emu_stream.h"
#include "device/gpu/standin/standin.h"

#if STANDIN_IS_HIP
#define EXPORT(type, name) __attribute__((visibility("default"))) type hipblasLt##name
#define VALUES lt_of_hip
#else
#define EXPORT(type, name) __attribute__((visibility("default"))) type cublasLt##name
#define VALUES lt_of_cuda
#endif

enum { INVALID = 7, NO_MEMORY = 3 };
enum { WORKSPACE_ALIGN = 256 }; /* cublasLtMatmul documents it */
enum { HANDLE = 0x48414e44, DESC = 0x44455343, LAYOUT = 0x4c41594f, PREFERENCE = 0x50524546 };

struct handle {
    int magic;
};
struct desc {
    int magic;
    int32_t trans_a, trans_b, epilogue, bias_type;
    const void *bias;
    void *aux;
    int64_t aux_ld;
};
struct layout {
    int magic, type;
    int64_t rows, columns, ld;
};
struct preference {
    int magic;
    uint64_t workspace;
    uint32_t reductions, align[4]; /* alignments of a, b, c, d */
};
/* As large as the smaller of the two libraries' structs; the rest of the larger one is 0. */
struct algo {
    int32_t id;       /* first, as in hipBLASLt */
    uint32_t product; /* the product that it was chosen for */
    uint8_t align[3]; /* alignment of a, b, d; 0 = not given */
    uint8_t bias_align;
    int32_t split_k;
    uint64_t workspace;
};
_Static_assert(sizeof(struct algo) == 24, "hipBLASLt's size");

static int refuse(const char *call, const char *why)
{
    fprintf(stderr, "stand-in for %s%s: %s\n", VALUES.prefix, call, why);
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
        return NO_MEMORY;
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

EXPORT(int, Create)(void **out)
{
    return make(out, sizeof(struct handle), HANDLE);
}

EXPORT(int, Destroy)(void *handle)
{
    return destroy(handle, HANDLE, "Destroy");
}

/* The first algorithm; the stand-in's own value. */
#if STANDIN_IS_HIP
EXPORT(int, GetVersion)(void *handle, int *version)
{
    CHECK(handle && *(int *)handle == HANDLE && version, "GetVersion", "an argument is missing");
    *version = 1;
    return LT_SUCCESS;
}
#else
EXPORT(size_t, GetVersion)(void)
{
    return 1;
}
#endif

EXPORT(int, MatmulDescCreate)(void **out, int compute, int scale)
{
    CHECK(compute == VALUES.compute_32f && scale == LT_R_32F, "MatmulDescCreate",
          "not fp32 without TF32");
    const int code = make(out, sizeof(struct desc), DESC);
    if (code == LT_SUCCESS) {
        struct desc *made = *out;
        made->trans_a = made->trans_b = VALUES.op_n;
        made->epilogue = LT_EPILOGUE_DEFAULT;
        made->bias_type = LT_NONE;
    }
    return code;
}

EXPORT(int, MatmulDescDestroy)(void *desc)
{
    return destroy(desc, DESC, "MatmulDescDestroy");
}

EXPORT(int, MatmulDescSetAttribute)(void *x, int attribute, const void *value, size_t bytes)
{
    struct desc *desc = x;
    const struct {
        int attribute;
        size_t at, bytes;
    } known[] = {{VALUES.desc_trans_a, offsetof(struct desc, trans_a), sizeof desc->trans_a},
                 {VALUES.desc_trans_b, offsetof(struct desc, trans_b), sizeof desc->trans_b},
                 {VALUES.desc_epilogue, offsetof(struct desc, epilogue), sizeof desc->epilogue},
                 {VALUES.desc_bias_type, offsetof(struct desc, bias_type), sizeof desc->bias_type},
                 {VALUES.desc_bias_pointer, offsetof(struct desc, bias), sizeof desc->bias},
                 {VALUES.desc_aux_pointer, offsetof(struct desc, aux), sizeof desc->aux},
                 {VALUES.desc_aux_ld, offsetof(struct desc, aux_ld), sizeof desc->aux_ld}};
    CHECK(desc && desc->magic == DESC && value, "MatmulDescSetAttribute", "no descriptor or value");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].attribute == attribute) {
            CHECK(bytes == known[i].bytes, "MatmulDescSetAttribute", "the attribute's size");
            memcpy((char *)desc + known[i].at, value, bytes);
            return LT_SUCCESS;
        }
    }
    return refuse("MatmulDescSetAttribute", "no such attribute");
}

EXPORT(int, MatrixLayoutCreate)(void **out, int type, uint64_t rows, uint64_t columns, int64_t ld)
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

EXPORT(int, MatrixLayoutDestroy)(void *layout)
{
    return destroy(layout, LAYOUT, "MatrixLayoutDestroy");
}

EXPORT(int, MatmulPreferenceCreate)(void **out)
{
    const int code = make(out, sizeof(struct preference), PREFERENCE);
    if (code == LT_SUCCESS) {
        ((struct preference *)*out)->reductions = 7; /* all allowed, as in the library */
    }
    return code;
}

EXPORT(int, MatmulPreferenceDestroy)(void *preference)
{
    return destroy(preference, PREFERENCE, "MatmulPreferenceDestroy");
}

EXPORT(int, MatmulPreferenceSetAttribute)(void *x, int attribute, const void *value, size_t bytes)
{
    struct preference *p = x;
    CHECK(p && p->magic == PREFERENCE && value, "MatmulPreferenceSetAttribute", "no preference");
    if (attribute == VALUES.pref_workspace) {
        CHECK(bytes == sizeof p->workspace, "MatmulPreferenceSetAttribute", "size");
        memcpy(&p->workspace, value, bytes);
        return LT_SUCCESS;
    }
    const int first = VALUES.pref_align_a;
    uint32_t *to = attribute == LT_NONE                           ? NULL
                   : attribute == VALUES.pref_reductions          ? &p->reductions
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

static bool has(const struct desc *desc, int32_t part)
{
    return (desc->epilogue & part) != 0;
}

/* NULL, or the problem with the epilogue; d: the result. */
static const char *epilogue_problem(const struct desc *desc, const struct layout *d)
{
    const int32_t known = LT_EPILOGUE_BIAS | LT_EPILOGUE_GELU | LT_EPILOGUE_AUX;
    const bool keeps = has(desc, LT_EPILOGUE_AUX);
    return desc->epilogue == LT_EPILOGUE_DEFAULT                       ? NULL
           : (desc->epilogue & ~known) != 0                            ? "an epilogue"
           : keeps && !has(desc, LT_EPILOGUE_GELU)                     ? "nothing to keep"
           : has(desc, LT_EPILOGUE_BIAS) && desc->bias_type != d->type ? "the bias's type"
           : has(desc, LT_EPILOGUE_BIAS) && !desc->bias                ? "no bias"
           : keeps && (!desc->aux || (uintptr_t)desc->aux % 16 != 0)   ? "what is kept: where"
           : keeps && (desc->aux_ld % LT_AUX_LD_UNIT || desc->aux_ld < d->rows)
               ? "what is kept: its leading dimension"
               : NULL;
}

/* Takes the product from the descriptors, without addresses. Returns NULL, or the problem with
 * them. */
static const char *product_of(const struct desc *desc, const struct layout *a,
                              const struct layout *b, const struct layout *c,
                              const struct layout *d, struct standin_product *out)
{
    const bool ta = desc->trans_a == VALUES.op_t, tb = desc->trans_b == VALUES.op_t;
    const char *problem = epilogue_problem(desc, d);
    static const char somewhere[16] __attribute__((aligned(16)));
    *out = (struct standin_product){.m = d->rows,
                                    .n = d->columns,
                                    .k = ta ? a->rows : a->columns,
                                    .lda = a->ld,
                                    .ldb = b->ld,
                                    .ldd = d->ld,
                                    .ta = ta,
                                    .tb = tb,
                                    .gelu = has(desc, LT_EPILOGUE_GELU),
                                    .in = dtype_of(a->type),
                                    .out = dtype_of(d->type),
                                    .a = somewhere,
                                    .b = somewhere,
                                    .d = (void *)(uintptr_t)somewhere};
    return problem ? problem
           : (!ta && desc->trans_a != VALUES.op_n) || (!tb && desc->trans_b != VALUES.op_n)
               ? "a transposition"
           : (ta ? a->columns : a->rows) != d->rows             ? "rows of a and d"
           : (tb ? b->rows : b->columns) != d->columns          ? "columns of b and d"
           : (tb ? b->columns : b->rows) != out->k              ? "columns of a, rows of b"
           : a->type != b->type || memcmp(c, d, sizeof *c) != 0 ? "types, or c is not d"
                                                                : standin_problem(out);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint32_t hash_of(const struct standin_product *p, const struct desc *desc)
{
    const int64_t words[] = {p->m,  p->n,  p->k,           p->lda,          p->ldb,        p->ldd,
                             p->ta, p->tb, (int64_t)p->in, (int64_t)p->out, desc->epilogue};
    uint64_t hash = 1;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        hash = mix(hash, (uint64_t)words[i]);
    }
    return (uint32_t)(hash ^ hash >> 32);
}

static bool is_power(uint32_t x)
{
    return x > 0 && x <= 128 && (x & (x - 1)) == 0;
}

/* hipBLASLt opens on an MI100, for which it has no code. Some products with an epilogue have no
 * algorithm; here, those of one column. */
static bool has_algorithm(const struct standin_product *p)
{
    const char *arch = getenv("SPILLWAY_STANDIN_ARCH");
    return !(arch && strcmp(arch, "gfx908") == 0) && (!p->gelu || p->n > 1);
}

static void put_answer(void *answers, int i, const struct algo *algo, int status)
{
    const size_t algo_bytes = VALUES.algo_bytes, workspace = (size_t)algo->workspace;
    char *to = (char *)answers + (size_t)i * (algo_bytes + sizeof(size_t) + 6 * sizeof(int));
    memset(to, 0, algo_bytes + sizeof(size_t) + 6 * sizeof(int));
    memcpy(to, algo, sizeof *algo);
    memcpy(to + algo_bytes, &workspace, sizeof workspace);
    memcpy(to + algo_bytes + sizeof workspace, &status, sizeof status);
}

static int choose(const struct standin_product *product, const struct desc *desc,
                  const struct preference *p, struct algo *out)
{
    static const int of[3] = {0, 1, 3}; /* c is d */
    *out = (struct algo){.product = hash_of(product, desc)};
    uint64_t hash = out->product;
    for (int i = 0; i < 3 && VALUES.pref_align_a != LT_NONE; i++) {
        CHECK(is_power(p->align[of[i]]) && p->align[2] == p->align[3], "MatmulAlgoGetHeuristic",
              "an alignment");
        out->align[i] = (uint8_t)p->align[of[i]];
        hash = mix(hash, out->align[i]);
    }
    const uintptr_t bias = (uintptr_t)desc->bias;
    out->bias_align = (uint8_t)(bias & -bias & 0x7f);
    out->id = 1 + (int32_t)(hash & 1);
    out->workspace = VALUES.workspace_limit > 0 ? 256 + 64 * (hash % 5) : 0;
    return LT_SUCCESS;
}

EXPORT(int, MatmulAlgoGetHeuristic)
(void *handle, void *x_desc, void *a, void *b, void *c, void *d, void *x_preference, int n_wanted,
 void *answers, int *n_answers)
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
    CHECK(p->workspace == VALUES.workspace_limit &&
              (p->reductions == 0 || VALUES.pref_reductions == LT_NONE),
          call, "the limit of workspace, or reductions are allowed");
    struct algo algo;
    *n_answers = 0;
    if (!has_algorithm(&product)) {
        return LT_SUCCESS;
    }
    const int code = choose(&product, desc, p, &algo);
    if (code == LT_SUCCESS && product.k > 1000) { /* an answer that must not be taken comes first */
        algo.split_k = VALUES.pref_reductions == LT_NONE ? 0 : 4;
        put_answer(answers, (*n_answers)++, &algo, algo.split_k ? LT_SUCCESS : INVALID);
        algo.split_k = algo.split_k ? 1 : 0;
    }
    if (code == LT_SUCCESS && *n_answers < n_wanted) {
        put_answer(answers, (*n_answers)++, &algo, LT_SUCCESS);
    }
    return code;
}

#if !STANDIN_IS_HIP
EXPORT(int, MatmulAlgoConfigGetAttribute)
(const void *x, int attribute, void *value, size_t bytes, size_t *n_written)
{
    struct algo algo;
    memcpy(&algo, x, sizeof algo);
    const int32_t is = attribute == LT_CONFIG_ID        ? algo.id
                       : attribute == LT_CONFIG_SPLIT_K ? algo.split_k
                                                        : 0;
    const bool is_short = attribute == LT_CONFIG_INNER || attribute == LT_CONFIG_CLUSTER;
    /* correct on little-endian machines */
    const size_t wanted = is_short ? sizeof(uint16_t) : sizeof is;
    CHECK(value && n_written && bytes == wanted, "MatmulAlgoConfigGetAttribute", "an argument");
    memcpy(value, &is, wanted);
    *n_written = wanted;
    return LT_SUCCESS;
}
#endif

static bool is_at(const void *x, uint32_t align)
{
    return x && (align == 0 || (uintptr_t)x % align == 0);
}

/* A product that a stream has, or a graph. */
struct queued {
    struct standin_product product;
    void *workspace;
    uint64_t workspace_bytes;
};

static int run_queued(void *args)
{
    const struct queued *q = args;
    for (uint64_t i = 0; i < q->workspace_bytes; i++) {
        ((unsigned char *)q->workspace)[i] = 0xa5; /* checks that the workspace is writable */
    }
    return standin_run(&q->product) ? LT_SUCCESS : NO_MEMORY;
}

EXPORT(int, Matmul)
(void *handle, void *x_desc, const void *alpha, const void *a, void *a_layout, const void *b,
 void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
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
    CHECK(is_at(a, algo.align[0]) && is_at(b, algo.align[1]) && is_at(d, algo.align[2]), call,
          "an operand is missing, or not aligned as the algorithm was promised");
    CHECK(workspace_bytes >= algo.workspace &&
              (algo.workspace == 0 || is_at(workspace, WORKSPACE_ALIGN)),
          call, "workspace is missing, too small, or not aligned");
    product.a = a;
    product.b = b;
    product.d = d;
    if (has(desc, LT_EPILOGUE_BIAS)) {
        CHECK(is_at(desc->bias, algo.bias_align), call, "the bias is not aligned as promised");
        product.bias = desc->bias;
    }
    if (has(desc, LT_EPILOGUE_AUX)) {
        product.kept = desc->aux;
        product.ld_kept = desc->aux_ld;
    }
    problem = standin_problem(&product);
    CHECK(!problem, call, problem);
    product.backwards = algo.id == 2;
    struct queued queued = {product, workspace, algo.workspace};
    struct emu_stream *on = stream;
    return on->record ? on->record(on, run_queued, &queued, sizeof queued) : run_queued(&queued);
}
