// SPDX-License-Identifier: Apache-2.0
// bf16 products by dot-product instructions: the processor's instructions and their models in plain
// C give the same bits, and a whole product has the bits of its definition, however it is cut.
#include <math.h>
#include <string.h>

#include "device/cpu/dots.h"
#include "support/test.h"

enum { STEPS = 3 };

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Ordinary numbers, or any bits: denormals, infinities and NaNs, too; or numbers whose products are
 * near the least normal number. */
enum kind { ORDINARY, ANY, TINY, N_KINDS };

static uint16_t draw_bf16(uint64_t *state, enum kind kind)
{
    const uint16_t bits = (uint16_t)draw(state);
    switch (kind) {
    case ORDINARY:
        return (uint16_t)((bits & 0x80ff) | (0x3e00 + (bits & 0x0300)));
    case TINY: /* exponents 2^-66 .. 2^-60 */
        return (uint16_t)((bits & 0x807f) | (uint16_t)((61 + draw(state) % 7) << 7));
    default:
        return bits;
    }
}

static _Alignas(64) uint16_t a[2][STEPS][TILE_ELEMS], b[2][STEPS][TILE_ELEMS];

static void fill(uint64_t *state, enum kind kind)
{
    for (size_t i = 0; i < sizeof a / sizeof(uint16_t); i++) {
        (&a[0][0][0])[i] = draw_bf16(state, kind);
        (&b[0][0][0])[i] = draw_bf16(state, kind);
    }
}

static void count_step(void *ctx, int64_t i_step)
{
    int64_t *seen = ctx;
    assert_int_equal(*seen, i_step);
    (*seen)++;
}

static void multiply(const struct cpu_dot_kernel *kernel, int64_t first, int64_t steps, float *c)
{
    int64_t seen = 0;
    const struct cpu_dot dot = {.a = {a[0][first], a[1][first]},
                                .a_row = TILE_ROW_BYTES,
                                .a_step = TILE_BYTES,
                                .b = {b[0][first], b[1][first]},
                                .steps = steps,
                                .adds = first > 0,
                                .c = c,
                                .side = count_step,
                                .ctx = &seen};
    if (kernel->begin) {
        kernel->begin();
    }
    kernel->block(&dot);
    if (kernel->end) {
        kernel->end();
    }
    assert_int_equal(seen, steps);
}

static void assert_same(const float *x, const float *y)
{
    for (int i = 0; i < DOT_ELEMS; i++) {
        if (!(isnan(x[i]) && isnan(y[i]))) {
            assert_memory_equal(x + i, y + i, sizeof *x);
        }
    }
}

static const struct pair {
    enum cpu_isa needs;
    const struct cpu_dot_kernel *kernel, *model;
} pairs[] = {
#if defined(__x86_64__) && !defined(SPILLWAY_WITHOUT_AVX512)
    {CPU_AVX512_BF16, &sw_cpu_dot_avx512bf16, &sw_cpu_dot_avx512bf16_model},
#if !defined(SPILLWAY_WITHOUT_AMX)
    {CPU_AMX_BF16, &sw_cpu_dot_amx, &sw_cpu_dot_amx_model},
#endif
#endif
    {CPU_PORTABLE, &sw_cpu_dot_amx_model, &sw_cpu_dot_amx_model},
    {CPU_PORTABLE, &sw_cpu_dot_avx512bf16_model, &sw_cpu_dot_avx512bf16_model},
};

static void instructions_have_the_bits_of_their_models(void **state)
{
    (void)state;
    static _Alignas(64) float got[DOT_ELEMS], wanted[DOT_ELEMS];
    bool amx;
    const enum cpu_isa isa = sw_cpu_isa_detect(&amx);
    uint64_t random = 1;
    for (int round = 0; round < 30; round++) {
        fill(&random, (enum kind)(round % N_KINDS));
        for (size_t p = 0; p < SW_LEN(pairs); p++) {
            if (isa >= pairs[p].needs && pairs[p].kernel != pairs[p].model) {
                multiply(pairs[p].kernel, 0, STEPS, got);
                multiply(pairs[p].model, 0, STEPS, wanted);
                assert_same(got, wanted);
            }
        }
    }
}

/* A sum that is stored and continued is the sum of one run. */
static void a_sum_may_be_cut_at_any_step(void **state)
{
    (void)state;
    static _Alignas(64) float whole[DOT_ELEMS], parts[DOT_ELEMS];
    bool amx;
    const enum cpu_isa isa = sw_cpu_isa_detect(&amx);
    uint64_t random = 7;
    for (int kind = 0; kind < N_KINDS; kind++) {
        fill(&random, (enum kind)kind);
        for (size_t p = 0; p < SW_LEN(pairs); p++) {
            if (isa >= pairs[p].needs) {
                multiply(pairs[p].kernel, 0, STEPS, whole);
                multiply(pairs[p].kernel, 0, 1, parts);
                multiply(pairs[p].kernel, 1, STEPS - 1, parts);
                assert_same(whole, parts);
            }
        }
    }
}

/* One term at a time, the sum is the exact one of small integers. */
static void models_multiply(void **state)
{
    (void)state;
    static _Alignas(64) float c[DOT_ELEMS];
    for (int i = 0; i < 2 * STEPS * TILE_ELEMS; i++) {
        const float x = (float)(i % 5 - 2), y = (float)(i % 7 - 3);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        (&a[0][0][0])[i] = (uint16_t)(bits >> 16);
        memcpy(&bits, &y, sizeof bits);
        (&b[0][0][0])[i] = (uint16_t)(bits >> 16);
    }
    for (size_t p = 0; p < SW_LEN(pairs); p++) {
        if (pairs[p].kernel != pairs[p].model) {
            continue;
        }
        multiply(pairs[p].model, 0, STEPS, c);
        for (int i = 0; i < DOT_ELEMS; i++) {
            const int m = i / DOT_EDGE, n = i % DOT_EDGE;
            int sum = 0;
            for (int k = 0; k < STEPS * TILE_TERMS; k++) {
                const int tile = STEPS * TILE_ELEMS, step = k / TILE_TERMS * TILE_ELEMS;
                const int at_a = m / 16 * tile + step + m % 16 * TILE_TERMS + k % TILE_TERMS;
                const int at_b =
                    n / 16 * tile + step + k % TILE_TERMS / 2 * TILE_TERMS + n % 16 * 2 + k % 2;
                sum += (at_a % 5 - 2) * (at_b % 7 - 3);
            }
            assert_true(c[i] == (float)sum);
        }
    }
}

/* ---- whole products ---- */

struct product {
    struct cpu_gemm gemm;
    int64_t piece;
    int64_t n_terms; /* see struct cpu_dots_run */
    uint16_t *a, *b;
    float *before; /* or NULL */
};

static void open_product(struct product *p, int64_t m, int64_t n, int64_t k, int form)
{
    uint64_t random = (uint64_t)(m * 31 + n * 7 + k + form);
    *p = (struct product){.gemm = {.dtype = SW_BF16,
                                   .dtype_b = SW_BF16,
                                   .ta = form & 1,
                                   .tb = form & 2,
                                   .m = m,
                                   .n = n,
                                   .k = k}};
    const int64_t slack = form & 4 ? 5 : 0; /* padded rows */
    p->gemm.lda = (p->gemm.ta ? m : k) + slack;
    p->gemm.ldb = (p->gemm.tb ? k : n) + slack;
    const int64_t na = (p->gemm.ta ? k : m) * p->gemm.lda, nb = (p->gemm.tb ? n : k) * p->gemm.ldb;
    p->a = malloc((size_t)na * sizeof *p->a + 1);
    p->b = malloc((size_t)nb * sizeof *p->b + 1);
    assert_true(p->a && p->b);
    for (int64_t i = 0; i < na; i++) {
        p->a[i] = draw_bf16(&random, ORDINARY);
    }
    for (int64_t i = 0; i < nb; i++) {
        p->b[i] = draw_bf16(&random, ORDINARY);
    }
}

static void close_product(struct product *p)
{
    free(p->a);
    free(p->b);
    free(p->before);
}

struct result {
    float *c;
    int64_t n;
};

static void keep(void *ctx, const struct cpu_block *part, const float *c)
{
    const struct result *r = ctx;
    for (int64_t j = 0; j < part->n; j++) {
        r->c[part->i * r->n + part->j + j] = c[j / DOT_EDGE * DOT_ELEMS + j % DOT_EDGE];
    }
}

/* The first `rows` rows of a product that is cut for n_threads and run by n_workers. */
static float *multiply_all(const struct product *p, const struct cpu_dot_kernel *kernel,
                           int n_threads, int n_workers, int64_t rows)
{
    struct cpu_dots dots = {.kernel = kernel, .whole = p->gemm, .piece = p->piece};
    struct sw_pool *pool = NULL;
    sw_cpu_dots_cut(&dots, n_threads);
    if (n_workers > 1) {
        assert_int_equal(sw_pool_open(n_workers, &pool), SW_OK);
    }
    const size_t bytes = sw_round_up(cpu_dots_bytes(&dots, n_workers), CPU_LINE);
    void *workspace = aligned_alloc(CPU_LINE, bytes);
    struct result result = {malloc((size_t)(p->gemm.m * p->gemm.n) * sizeof(float)), p->gemm.n};
    assert_true(workspace && result.c);
    memset(workspace, 0xff, bytes); /* NaN: what was not packed shows */
    const struct cpu_dots_run run = {.a = p->a,
                                     .b = p->b,
                                     .before = p->before,
                                     .n_rows = rows,
                                     .n_terms = p->n_terms,
                                     .workspace = workspace,
                                     .sink = keep,
                                     .ctx = &result};
    sw_cpu_dots_run(&dots, pool, &run);
    sw_pool_close(pool);
    free(workspace);
    return result.c;
}

/* An element by its definition: one step of 32 terms after the other. */
static float element(const struct product *p, bool is_amx, int64_t i, int64_t j)
{
    static float c[TILE_EDGE * TILE_EDGE];
    const struct cpu_gemm *g = &p->gemm;
    const int64_t piece = p->piece ? p->piece : g->k;
    c[0] = p->before ? p->before[i * g->n + j] : 0;
    for (int64_t first = 0; first < g->k; first += piece) {
        const int64_t end = sw_min_i64(g->k, first + piece);
        for (int64_t k = first; k < end; k += TILE_TERMS) {
            uint16_t row[TILE_ELEMS] = {0}, column[TILE_ELEMS] = {0};
            for (int64_t t = 0; t < sw_min_i64(TILE_TERMS, end - k); t++) {
                row[t] = p->a[g->ta ? (k + t) * g->lda + i : i * g->lda + k + t];
                column[is_amx ? t / 2 * TILE_TERMS + t % 2 : t] =
                    p->b[g->tb ? j * g->ldb + k + t : (k + t) * g->ldb + j];
            }
            if (is_amx) {
                sw_cpu_model_tdpbf16ps(c, row, column);
                continue;
            }
            for (int t = 0; t < TILE_TERMS; t += 2) {
                sw_cpu_model_vdpbf16ps(c, row + t, column + t);
            }
        }
    }
    return c[0];
}

/* The kernels of this processor and the models. */
static const struct cpu_dot_kernel *usable(size_t i)
{
    bool amx;
    return sw_cpu_isa_detect(&amx) >= pairs[i].needs ? pairs[i].kernel : NULL;
}

static void check_elements(const struct product *p, const struct cpu_dot_kernel *kernel,
                           const float *c)
{
    const bool is_amx = strstr(kernel->name, "amx") != NULL;
    const int64_t n = p->gemm.m * p->gemm.n;
    for (int64_t at = 0; at < n; at += n / 7 + 1) {
        assert_true(c[at] == element(p, is_amx, at / p->gemm.n, at % p->gemm.n));
    }
    if (n > 0) {
        assert_true(c[n - 1] == element(p, is_amx, p->gemm.m - 1, p->gemm.n - 1));
    }
}

static const int64_t shapes[][3] = {{1, 1, 1},     {33, 65, 31}, {70, 100, 900},
                                    {5, 300, 100}, {64, 96, 64}, {34, 33, 0}};

static void products_are_chains_of_steps(void **state)
{
    (void)state;
    for (size_t s = 0; s < SW_LEN(shapes); s++) {
        for (int form = 0; form < 8; form++) {
            struct product p;
            open_product(&p, shapes[s][0], shapes[s][1], shapes[s][2], form);
            for (size_t i = 0; i < SW_LEN(pairs); i++) {
                const bool is_model = pairs[i].kernel == pairs[i].model;
                if (usable(i) && !(is_model && form > 3)) {
                    p.piece = is_model ? 0 : 45 * (form & 1);
                    float *c = multiply_all(&p, pairs[i].kernel, 1, 1, p.gemm.m);
                    check_elements(&p, pairs[i].kernel, c);
                    free(c);
                }
            }
            close_product(&p);
        }
    }
}

/* Blocks follow from the number of threads. */
static void products_do_not_depend_on_blocks_workers_or_rows(void **state)
{
    (void)state;
    static const int64_t large[][3] = {{300, 200, 1100}, {130, 1000, 160}, {40, 90, 70}};
    for (size_t s = 0; s < SW_LEN(large); s++) {
        for (int form = 0; form < 4; form++) {
            struct product p;
            open_product(&p, large[s][0], large[s][1], large[s][2], form);
            const int64_t rows = p.gemm.m - 37;
            for (size_t i = 0; i < SW_LEN(pairs); i++) {
                if (!usable(i) || (pairs[i].kernel == pairs[i].model && (s < 2 || form > 1))) {
                    continue;
                }
                float *one = multiply_all(&p, pairs[i].kernel, 1, 1, p.gemm.m);
                float *more = multiply_all(&p, pairs[i].kernel, 7, 3, p.gemm.m);
                float *some = multiply_all(&p, pairs[i].kernel, 2, 2, rows);
                assert_memory_equal(one, more, (size_t)(p.gemm.m * p.gemm.n) * sizeof *one);
                assert_memory_equal(one, some, (size_t)(rows * p.gemm.n) * sizeof *one);
                free(one);
                free(more);
                free(some);
            }
            close_product(&p);
        }
    }
}

/* A tile has the last pieces of terms, and continues the sums of the first. */
static void sums_continue(void **state)
{
    (void)state;
    enum { M = 35, N = 40, PIECE = 45, K = 4 * PIECE + 3 };
    for (size_t i = 0; i < SW_LEN(pairs); i++) {
        if (!usable(i)) {
            continue;
        }
        struct product whole, first, last;
        open_product(&whole, M, N, K, 0);
        whole.piece = PIECE;
        first = last = whole;
        first.gemm.k = 2 * PIECE;
        last.gemm.k = K - 2 * PIECE;
        last.a += 2 * PIECE;
        last.b += 2 * PIECE * whole.gemm.ldb;
        float *wanted = multiply_all(&whole, pairs[i].kernel, 1, 1, M);
        last.before = multiply_all(&first, pairs[i].kernel, 1, 1, M);
        float *got = multiply_all(&last, pairs[i].kernel, 1, 1, M);
        assert_memory_equal(wanted, got, M * N * sizeof *got);
        check_elements(&whole, pairs[i].kernel, wanted);
        free(wanted);
        free(got);
        free(last.before);
        close_product(&whole);
    }
}

/* Terms from n_terms on, which are NaN, are left out; also if sums of all terms are computed in
 * chunks, and those of the others are not. */
static void terms_may_be_left_out(void **state)
{
    (void)state;
    enum { M = 70, N = 150, K = 900 };
    static const int64_t n_terms[] = {800, 512, 140};
    for (int form = 0; form < 4; form++) {
        struct product all;
        open_product(&all, M, N, K, form);
        for (size_t t = 0; t < SW_LEN(n_terms); t++) {
            const struct cpu_gemm *g = &all.gemm;
            for (int64_t k = n_terms[t]; k < K; k++) {
                for (int64_t i = 0; i < M; i++) {
                    all.a[g->ta ? k * g->lda + i : i * g->lda + k] = 0x7fc0;
                }
                for (int64_t j = 0; j < N; j++) {
                    all.b[g->tb ? j * g->ldb + k : k * g->ldb + j] = 0x7fc0;
                }
            }
            struct product some = all;
            some.gemm.k = all.n_terms = n_terms[t];
            some.n_terms = 0;
            for (size_t i = 0; i < SW_LEN(pairs); i++) {
                const bool is_model = pairs[i].kernel == pairs[i].model;
                if (!usable(i) || (is_model && (form != 1 || n_terms[t] > 140))) {
                    continue;
                }
                float *wanted = multiply_all(&some, pairs[i].kernel, 1, 1, M);
                float *got = multiply_all(&all, pairs[i].kernel, 2, 2, M);
                check_elements(&some, pairs[i].kernel, got);
                assert_memory_equal(got, wanted, M * N * sizeof *got);
                free(wanted);
                free(got);
            }
        }
        close_product(&all);
    }
}

/* inf times the zeros of padding would be NaN. */
static void padding_does_not_meet_infinity(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(pairs); i++) {
        struct product p;
        open_product(&p, 33, 33, 40, 4); /* rows of a are followed by 5 more elements */
        for (int64_t row = 0; row < 33; row++) {
            for (int64_t k = 40; k < 45; k++) {
                p.a[row * 45 + k] = 0x7f80;
            }
        }
        if (usable(i)) {
            float *c = multiply_all(&p, pairs[i].kernel, 1, 1, 33);
            for (int e = 0; e < 33 * 33; e++) {
                assert_true(isfinite(c[e]));
            }
            free(c);
        }
        close_product(&p);
    }
}

/* One row of sums by the epilogue: at `at` bytes from a cache line, with what lies around it. */
enum { ROW_COLUMNS = 3 * DOT_EDGE, ROW_ROOM = 4 * DOT_EDGE };

static void finish_row(bool streams, enum sw_act act, int64_t n, int64_t at, const float *c,
                       uint16_t out[2][ROW_ROOM])
{
    memset(out, 0xee, 2 * ROW_ROOM * sizeof **out);
    const struct cpu_epilogue epilogue = {.dtype = SW_BF16,
                                          .act = act,
                                          .out = out[0] + at,
                                          .pre = act == SW_ACT_NONE ? NULL : out[1] + at,
                                          .ld_out = 0,
                                          .streams = streams};
    sw_cpu_dot_epilogue(&epilogue, c, n);
}

static void streamed_results_are_those_of_ordinary_stores(void **state)
{
    (void)state;
    static _Alignas(64) float c[ROW_COLUMNS / DOT_EDGE * DOT_ELEMS];
    static _Alignas(64) uint16_t wanted[2][ROW_ROOM], got[2][ROW_ROOM];
    bool amx;
    if (sw_cpu_isa_detect(&amx) < CPU_AVX512_BF16) {
        skip();
    }
    for (size_t i = 0; i < SW_LEN(c); i++) {
        c[i] = (float)(i % 97) / 16 - 3;
    }
    for (int64_t n = 1; n <= ROW_COLUMNS; n++) {
        for (int64_t at = 0; at < 2; at++) {
            const enum sw_act act = n % 2 ? SW_ACT_NONE : SW_ACT_GELU_TANH;
            finish_row(false, act, n, at, c, wanted);
            finish_row(true, act, n, at, c, got);
            assert_memory_equal(wanted, got, sizeof wanted);
            assert_int_equal(got[0][at + n], 0xeeee);
            assert_int_not_equal(got[0][at + n - 1], 0xeeee);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(models_multiply),
    cmocka_unit_test(instructions_have_the_bits_of_their_models),
    cmocka_unit_test(a_sum_may_be_cut_at_any_step),
    cmocka_unit_test(products_are_chains_of_steps),
    cmocka_unit_test(products_do_not_depend_on_blocks_workers_or_rows),
    cmocka_unit_test(sums_continue),
    cmocka_unit_test(terms_may_be_left_out),
    cmocka_unit_test(padding_does_not_meet_infinity),
    cmocka_unit_test(streamed_results_are_those_of_ordinary_stores),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
