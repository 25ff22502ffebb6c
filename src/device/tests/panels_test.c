// SPDX-License-Identifier: Apache-2.0
// Products whose operands are packed in slabs have the bits of one product in one thread, for every
// cut, number of threads and instruction set of this machine.
#include <stdio.h>
#include <string.h>

#include "device/cpu/fast.h"
#include "support/test.h"

#ifdef TEST_SANITIZED /* slow */
enum { FEWEST_THREADS = 5 };
#else
enum { FEWEST_THREADS = 1 };
#endif

enum { MOST = 512 * 1024 };
static float a[MOST], b[MOST], want[MOST], got[MOST];

struct call {
    int64_t n; /* columns of the result */
};

static void copy_block(void *ctx, float *block, struct cpu_block where)
{
    const struct call *call = ctx;
    for (int64_t i = 0; i < where.m; i++) {
        memcpy(got + (where.i + i) * call->n + where.j, block + i * where.n,
               (size_t)where.n * sizeof *block);
    }
}

static void fill(enum sw_dtype dtype, void *x, uint32_t seed)
{
    for (int64_t i = 0; i < MOST; i++) {
        const uint32_t random = ((uint32_t)i + seed) * UINT32_C(2654435761);
        sw_store_f64(dtype, x, i, (double)(random >> 8) * 0x1p-24 - 0.5);
    }
}

/* Multiplies in slabs of at most that many bytes. Returns false if the product takes none. */
static bool multiplies(const struct cpu_device *dev, const struct cpu_gemm *g, bool in_place,
                       size_t most_bytes)
{
    struct cpu_panels panels;
    if (!sw_cpu_panels_cut(dev, g, in_place, 1, most_bytes, &panels)) {
        return false;
    }
    assert_true(panels.packed_bytes <= most_bytes);
    const size_t bytes =
        panels.packed_bytes + panels.worker_bytes * (size_t)sw_pool_threads(dev->pool);
    void *workspace = aligned_alloc(CPU_LINE, bytes);
    assert_non_null(workspace);
    memset(workspace, 0xff, bytes); /* NaN: whatever is read was written before */
    memset(got, 0xff, sizeof got);
    struct call ctx = {g->n};
    const struct cpu_panels_call call = {.a = a,
                                         .b = b,
                                         .c = in_place ? got : NULL,
                                         .workspace = workspace,
                                         .finish = copy_block,
                                         .ctx = &ctx};
    sw_cpu_panels_run(&panels, dev->pool, &call);
    free(workspace);
    return true;
}

static const struct {
    int64_t m, n, k;
    bool ta, tb, in_place;
    size_t most_bytes;
    int64_t slabs_n, slabs_k; /* wanted cut into slabs */
    bool has_few_rows;        /* with wide panels: a is packed whole */
} cases[] = {
    {128, 128, 1, false, false, true, 1 << 20, 1, 1, true},
    {145, 300, 257, false, true, true, 1 << 20, 1, 1, true},
    {145, 300, 257, false, true, false, 1 << 19, 2, 1, true},
    {131, 260, 700, true, false, false, 1 << 19, 3, 1, true},
    {200, 300, 1100, false, false, true, 400000, 3, 2, false},
    {300, 129, 1600, true, true, true, 400000, 2, 3, false},
};

static void check_case(const struct cpu_device *dev, enum sw_dtype dtype, size_t i)
{
    const struct cpu_gemm g = {.dtype = dtype,
                               .dtype_b = dtype,
                               .ta = cases[i].ta,
                               .tb = cases[i].tb,
                               .m = cases[i].m,
                               .n = cases[i].n,
                               .k = cases[i].k,
                               .lda = cases[i].ta ? cases[i].m : cases[i].k,
                               .ldb = cases[i].tb ? cases[i].k : cases[i].n,
                               .ldc = cases[i].n};
    const struct cpu_vector *vector = sw_cpu_vector_for(dev->isa);
    void *scratch = aligned_alloc(CPU_LINE, sw_round_up(vector->gemm_scratch_bytes, CPU_LINE));
    assert_non_null(scratch);
    vector->gemm(&g, a, b, want, scratch);
    free(scratch);
    struct cpu_panels panels;
    assert_true(sw_cpu_panels_cut(dev, &g, cases[i].in_place, 1, cases[i].most_bytes, &panels));
    const bool is_wide = vector->gemm_tile[CPU_RIGHT] >= 32;
    assert_int_equal(panels.has_few_rows, is_wide && cases[i].has_few_rows);
    if (!panels.has_few_rows) {
        assert_int_equal(sw_ceil_div(g.n, panels.slab_n), cases[i].slabs_n);
        assert_int_equal(sw_ceil_div(g.k, panels.slab_k), cases[i].slabs_k);
    }
    assert_true(multiplies(dev, &g, cases[i].in_place, cases[i].most_bytes));
    assert_memory_equal(got, want, (size_t)(g.m * g.n) * sizeof *got);
}

static void slabs_have_the_bits_of_one_product(void **state)
{
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    (void)state;
    bool amx;
    struct cpu_device dev = {0};
    const enum cpu_isa found = sw_cpu_isa_detect(&amx);
    for (size_t t = 0; t < SW_LEN(dtypes); t++) {
        fill(dtypes[t], a, 1);
        fill(dtypes[t], b, 1000003);
        for (int threads = FEWEST_THREADS; threads <= 5; threads += 2) {
            assert_int_equal(sw_pool_open(threads, &dev.pool), SW_OK);
            for (dev.isa = CPU_PORTABLE; dev.isa <= found; dev.isa++) {
                for (size_t i = 0; i < SW_LEN(cases); i++) {
                    check_case(&dev, dtypes[t], i);
                }
            }
            sw_pool_close(dev.pool);
        }
    }
}

static void a_product_without_terms_or_with_too_many_has_no_slab(void **state)
{
    (void)state;
    struct cpu_device dev = {0};
    assert_int_equal(sw_pool_open(1, &dev.pool), SW_OK);
    const struct cpu_gemm none = {.m = 200, .n = 200, .k = 0, .lda = 1, .ldb = 200};
    const struct cpu_gemm deep = {.m = 200, .n = 200, .k = 5000, .lda = 5000, .ldb = 200};
    struct cpu_panels panels;
    assert_false(sw_cpu_panels_cut(&dev, &none, true, 1, 1 << 24, &panels));
    assert_false(sw_cpu_panels_cut(&dev, &deep, false, 1, 1 << 20, &panels));
    assert_true(sw_cpu_panels_cut(&dev, &deep, true, 1, 1 << 20, &panels));
    sw_pool_close(dev.pool);
}

/* Blocks of a run with fewer rows than its cut begin where they should. */
struct blocks {
    int64_t unit, rows, elems;
};

static void check_block(void *ctx, float *block, struct cpu_block where)
{
    struct blocks *seen = ctx;
    assert_int_equal(where.j % seen->unit, 0);
    assert_true(where.m > 0 && where.i + where.m <= seen->rows);
    for (int64_t i = 0; i < where.m; i++) {
        const float *row = want + (where.i + i) * 300 + where.j;
        assert_memory_equal(block + i * where.n, row, (size_t)where.n * sizeof *block);
    }
    seen->elems += where.m * where.n;
}

static void a_run_may_have_fewer_rows_and_terms_and_add_to_its_result(void **state)
{
    static const int64_t rows[] = {200, 700}; /* few of them, and many */
    (void)state;
    bool amx;
    struct cpu_device dev = {0};
    const enum cpu_isa found = sw_cpu_isa_detect(&amx);
    fill(SW_F32, a, 1);
    fill(SW_F32, b, 1000003);
    assert_int_equal(sw_pool_open(1, &dev.pool), SW_OK);
    for (dev.isa = CPU_PORTABLE; dev.isa <= found; dev.isa++) {
        for (size_t r = 0; r < SW_LEN(rows); r++) {
            const struct cpu_vector *vector = sw_cpu_vector_for(dev.isa);
            const struct cpu_gemm whole = {
                .m = rows[r], .n = 300, .k = 600, .lda = 600, .ldb = 300, .ldc = 300};
            struct cpu_gemm part = whole;
            part.m = 30;
            part.k = 512; /* two whole depths, so that a sum in two steps has the bits of one */
            void *scratch = aligned_alloc(CPU_LINE, sw_round_up(vector->gemm_scratch_bytes, 64));
            assert_non_null(scratch);
            vector->gemm(&part, a, b, want, scratch);
            free(scratch);
            struct cpu_panels panels;
            assert_true(sw_cpu_panels_cut(&dev, &whole, false, 128, 1 << 20, &panels));
            void *workspace = aligned_alloc(CPU_LINE, sw_cpu_panels_bytes(&panels, 1));
            assert_non_null(workspace);
            struct blocks seen = {.unit = 128, .rows = part.m};
            struct cpu_panels_call call = {
                .a = a, .b = b, .workspace = workspace, .finish = check_block, .ctx = &seen};
            panels.whole = part;
            sw_cpu_panels_run(&panels, dev.pool, &call);
            assert_int_equal(seen.elems, part.m * part.n);
            free(workspace);

            assert_true(sw_cpu_panels_cut(&dev, &whole, true, 1, 1 << 20, &panels));
            workspace = aligned_alloc(CPU_LINE, sw_cpu_panels_bytes(&panels, 1));
            assert_non_null(workspace);
            call.workspace = workspace;
            call.c = got;
            panels.whole.m = part.m;
            panels.whole.k = 256;
            sw_cpu_panels_run(&panels, dev.pool, &call);
            call.a = a + 256;
            call.b = b + 256 * whole.n;
            call.adds = true;
            sw_cpu_panels_run(&panels, dev.pool, &call);
            assert_memory_equal(got, want, (size_t)(part.m * part.n) * sizeof *got);
            free(workspace);
        }
    }
    sw_pool_close(dev.pool);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(slabs_have_the_bits_of_one_product),
    cmocka_unit_test(a_product_without_terms_or_with_too_many_has_no_slab),
    cmocka_unit_test(a_run_may_have_fewer_rows_and_terms_and_add_to_its_result),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
