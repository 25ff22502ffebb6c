// SPDX-License-Identifier: Apache-2.0
// Errors that the fast kernels of attention must not make: leave a case to the reference, process
// blocks of keys that no query of a block sees, leave workers idle when key heads are few, fail if
// there is no query, or let a row depend on other rows. And the kernels in bf16 on models of their
// instructions.
#include <stddef.h>
#include <stdlib.h>

#include "device/cpu/bf16_tiles.h"
#include "device/cpu/fast.h"
#include "device/gpu/open.h"
#include "device/tests/op_cases.h"
#include "support/test.h"

static int set_up(void **state)
{
    const struct sw_cpu_options options = {.n_threads = 2};
    assert_int_equal(sw_device_open_cpu(&options, (struct sw_device **)state), SW_OK);
    return 0;
}

static int tear_down(void **state)
{
    sw_device_close(*state);
    return 0;
}

static struct sw_kernel_info info_of(struct sw_device *dev, const struct op_case *c)
{
    struct sw_op_desc desc = {.op = &c->op};
    struct sw_kernel_info info;
    for (int i = 0; i < c->op.n_in; i++) {
        desc.in[i] = c->in[i].view;
    }
    for (int i = 0; i < c->op.n_out; i++) {
        desc.out[i] = c->out[i].view;
    }
    sw_device_query(dev, &desc, &info);
    assert_true(info.supported);
    return info;
}

/* The reference is correct, but a thousand times too slow for a model. */
static void test_every_attention_has_a_fast_kernel(void **state)
{
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    static const enum sw_op_kind kinds[] = {SW_OP_ATTENTION, SW_OP_ATTENTION_GRAD};
    for (size_t k = 0; k < SW_LEN(kinds); k++) {
        for (size_t d = 0; d < SW_LEN(dtypes); d++) {
            struct op_case c;
            int n = 0;
            for (; op_cases[kinds[k]](&c, dtypes[d], n); n++) {
                if (strcmp(info_of(*state, &c).path, "reference") == 0) {
                    fail_msg("%s ends in the reference", c.name);
                }
                case_fini(&c);
            }
            assert_true(n > 10);
        }
    }
}

enum { TOKENS = 400, WIDTH = 4, POISONED = 100, BEHIND = 224 };

/* Causal, one head; the first keys and values are NaN. Queries before BEHIND may see them. */
static void poisoned_case(struct op_case *c, enum sw_op_kind kind, bool by_window)
{
    case_init(c, kind, "%s of keys behind a %s", kind == SW_OP_ATTENTION ? "attention" : "gradient",
              by_window ? "window" : "segment");
    c->op.attrs.attention =
        (struct sw_attention_attrs){.heads = 1, .kv_heads = 1, .causal = true, .scale = 0.5};
    const struct sw_shape shape = SW_SHAPE(1, TOKENS, WIDTH);
    if (kind == SW_OP_ATTENTION_GRAD) {
        case_in(c, SW_F32, shape, -1, 1);
        case_in(c, SW_F32, shape, -1, 1);
        case_in(c, SW_F32, SW_SHAPE(1, 1, TOKENS), 2, 4);
    }
    case_in(c, SW_F32, shape, -1, 1);
    for (int i = 0; i < 2; i++) {
        float *x = c->in[case_in(c, SW_F32, shape, -1, 1)].view.data;
        for (int64_t e = 0; e < (int64_t)POISONED * WIDTH; e++) {
            x[e] = NAN;
        }
    }
    if (by_window) {
        c->op.attrs.attention.window = BEHIND - 128;
    } else {
        int32_t segments[TOKENS];
        for (int i = 0; i < TOKENS; i++) {
            segments[i] = i >= BEHIND;
        }
        c->op.attrs.attention.has_segments = true;
        case_in_i32(c, TOKENS, segments);
    }
    for (int i = 0; i < (kind == SW_OP_ATTENTION_GRAD ? 3 : 1); i++) {
        case_out(c, SW_F32, shape);
    }
    if (kind == SW_OP_ATTENTION) {
        case_out(c, SW_F32, SW_SHAPE(1, 1, TOKENS));
    }
}

/* A product with a skipped key would be NaN: zero times NaN. So a row's cost follows its window or
 * its documents. */
static void check_hidden_blocks(struct sw_device *dev)
{
    for (int i = 0; i < 4; i++) {
        struct op_case c, r;
        poisoned_case(&c, i & 1 ? SW_OP_ATTENTION_GRAD : SW_OP_ATTENTION, (i & 2) != 0);
        if (case_run(dev, &c, &r) < 0) {
            fail_msg("%s: %s", c.name, sw_error_message());
        }
        const float *out = r.out[0].view.data; /* o, or dq */
        assert_true(out[0] != out[0]);
        for (int64_t e = (int64_t)BEHIND * WIDTH; e < (int64_t)TOKENS * WIDTH; e++) {
            assert_true(out[e] == out[e]);
        }
        case_fini(&c);
        case_fini(&r);
    }
}

static void test_hidden_blocks_are_not_looked_at(void **state)
{
    check_hidden_blocks(*state);
}

/* GPU kernels, emulated. */
static void test_gpus_do_not_look_at_hidden_blocks(void **state)
{
    struct sw_device *dev;
    (void)state;
    if (sw_gpu_open("emu32", 0, &dev) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        skip();
    }
    check_hidden_blocks(dev);
    sw_device_close(dev);
}

/* Workspace bytes of a gradient: one sample, four heads with one key head, `tokens` tokens. */
static size_t workspace_of(int n_threads, int64_t tokens)
{
    const struct sw_cpu_options options = {.n_threads = n_threads};
    const struct sw_shape q = SW_SHAPE(1, tokens, 32), k = SW_SHAPE(1, tokens, 8);
    struct sw_device *dev;
    struct op_case c;
    case_init(&c, SW_OP_ATTENTION_GRAD, "workspace");
    c.op.attrs.attention =
        (struct sw_attention_attrs){.heads = 4, .kv_heads = 1, .causal = true, .scale = 0.5};
    const struct sw_shape in[] = {q, q, SW_SHAPE(1, 4, tokens), q, k, k};
    for (size_t i = 0; i < SW_LEN(in); i++) {
        case_in_zero(&c, SW_F32, in[i]);
    }
    for (int i = 3; i < 6; i++) {
        case_out(&c, SW_F32, in[i]);
    }
    assert_int_equal(sw_device_open_cpu(&options, &dev), SW_OK);
    const size_t bytes = info_of(dev, &c).workspace_bytes;
    sw_device_close(dev);
    case_fini(&c);
    return bytes;
}

/* A key head is one item, with sums for all keys, if there are enough key heads for the workers.
 * Otherwise each block of keys is an item, however many there are. */
static void test_few_key_heads_are_cut(void **state)
{
    (void)state;
    assert_true(workspace_of(1, 1000) > workspace_of(1, 500));
    assert_int_equal(workspace_of(2, 1000), workspace_of(2, 500));
    assert_int_equal(workspace_of(7, 1000), workspace_of(7, 500));
}

/* No samples, then no queries. */
static void test_no_query_has_no_result(void **state)
{
    enum { KEYS = 5, WIDE = 8 };
    static const int64_t sizes[][2] = {{0, KEYS}, {1, 0}}; /* samples, queries */
    static const enum sw_op_kind kinds[] = {SW_OP_ATTENTION, SW_OP_ATTENTION_GRAD};
    for (int i = 0; i < 4; i++) {
        const int64_t b = sizes[i % 2][0], t = sizes[i % 2][1];
        const bool grad = kinds[i / 2] == SW_OP_ATTENTION_GRAD;
        const struct sw_shape q = SW_SHAPE(b, t, WIDE), k = SW_SHAPE(b, KEYS, WIDE);
        const struct sw_shape lse = SW_SHAPE(b, 2, t);
        struct op_case c, out;
        case_init(&c, kinds[i / 2], "attention of %d samples of %d queries", (int)b, (int)t);
        c.op.attrs.attention = (struct sw_attention_attrs){.heads = 2, .kv_heads = 2, .scale = 0.5};
        if (grad) {
            case_in(&c, SW_F32, q, -1, 1);
            case_in(&c, SW_F32, q, -1, 1);
            case_in(&c, SW_F32, lse, -1, 1);
        }
        case_in(&c, SW_F32, q, -1, 1);
        case_in(&c, SW_F32, k, -1, 1);
        case_in(&c, SW_F32, k, -1, 1);
        case_out(&c, SW_F32, q);
        case_out(&c, SW_F32, grad ? k : lse);
        if (grad) {
            case_out(&c, SW_F32, k);
        }
        if (case_run(*state, &c, &out) < 0) {
            fail_msg("%s: %s", c.name, sw_error_message());
        }
        for (int64_t e = 0; grad && e < b * KEYS * WIDE; e++) { /* dk: no query reads a key */
            assert_true(((const float *)out.out[1].view.data)[e] == 0);
        }
        case_fini(&c);
        case_fini(&out);
    }
}

/* ---- a row by itself ---- */

enum { ROWS = 600, ROW_HEADS = 2, ROW_WIDTH = 40, ROW = ROW_HEADS * ROW_WIDTH };

/* Queries first .. first + n - 1 of `whole`, or all of new ones. */
static void rows_case(struct op_case *c, enum sw_dtype dtype, const struct op_case *whole,
                      int64_t first, int64_t n)
{
    const size_t width = sw_dtype_bytes(dtype);
    case_init(c, SW_OP_ATTENTION, "%d rows from %d on in %s", (int)n, (int)first,
              sw_dtype_name(dtype));
    c->op.attrs.attention = (struct sw_attention_attrs){.heads = ROW_HEADS,
                                                        .kv_heads = 1,
                                                        .causal = true,
                                                        .has_position = true,
                                                        .has_slopes = true,
                                                        .scale = 0.3};
    case_in(c, dtype, SW_SHAPE(1, n, ROW), -2, 2);
    case_in(c, dtype, SW_SHAPE(1, ROWS, ROW_WIDTH), -2, 2);
    case_in(c, dtype, SW_SHAPE(1, ROWS, ROW_WIDTH), -2, 2);
    const int position = case_in_i32(c, 1, (int32_t[]){(int32_t)first});
    case_in(c, SW_F32, SW_SHAPE(ROW_HEADS), 0, 0.01);
    for (int i = 1; whole && i < c->op.n_in; i++) {
        if (i != position) {
            memcpy(c->in[i].view.data, whole->in[i].view.data, c->in[i].bytes);
        }
    }
    if (whole) {
        memcpy(c->in[0].view.data,
               (const char *)whole->in[0].view.data + (size_t)(first * ROW) * width,
               (size_t)(n * ROW) * width);
    }
    case_out(c, dtype, SW_SHAPE(1, n, ROW));
    case_out(c, SW_F32, SW_SHAPE(1, ROW_HEADS, n));
}

static void run_rows(struct sw_device *dev, const struct op_case *c, struct op_case *out)
{
    if (case_run(dev, c, out) < 0) {
        fail_msg("%s: %s", c->name, sw_error_message());
    }
}

/* As in generation with a cache, where a query comes alone. */
static void check_rows(struct sw_device *dev, enum sw_dtype dtype)
{
    static const int64_t parts[][2] = {{0, 1}, {31, 3}, {511, 1}, {512, 40}, {599, 1}};
    const size_t width = sw_dtype_bytes(dtype);
    struct op_case all, all_out;
    rows_case(&all, dtype, NULL, 0, ROWS);
    run_rows(dev, &all, &all_out);
    for (size_t p = 0; p < SW_LEN(parts); p++) {
        const int64_t first = parts[p][0], n = parts[p][1];
        struct op_case some, out;
        rows_case(&some, dtype, &all, first, n);
        run_rows(dev, &some, &out);
        const float *lse = out.out[1].view.data, *all_lse = all_out.out[1].view.data;
        const char *o = all_out.out[0].view.data;
        if (memcmp(out.out[0].view.data, o + (size_t)(first * ROW) * width,
                   (size_t)(n * ROW) * width) != 0 ||
            memcmp(lse, all_lse + first, (size_t)n * sizeof *lse) != 0 ||
            memcmp(lse + n, all_lse + ROWS + first, (size_t)n * sizeof *lse) != 0) {
            fail_msg("%s: not those of all rows (%s)", some.name, sw_device_kernel_set(dev));
        }
        case_fini(&some);
        case_fini(&out);
    }
    case_fini(&all);
    case_fini(&all_out);
}

static void test_rows_do_not_depend_on_other_rows(void **state)
{
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    bool amx;
    (void)state;
    for (enum cpu_isa isa = CPU_PORTABLE; isa <= sw_cpu_isa_detect(&amx); isa++) {
        const struct sw_cpu_options options = {.n_threads = 2, .max_isa = sw_cpu_isa_name(isa)};
        struct sw_device *dev;
        assert_int_equal(sw_device_open_cpu(&options, &dev), SW_OK);
        for (size_t d = 0; d < SW_LEN(dtypes); d++) {
            check_rows(dev, dtypes[d]);
        }
        sw_device_close(dev);
    }
}

/* ---- products in bf16 ---- */

#if defined(__x86_64__) && !defined(SPILLWAY_WITHOUT_AVX512)

enum { BF16_ROWS = 290, BF16_WIDTH = 40, BF16_ELEMS = BF16_ROWS * BF16_WIDTH };

struct bf16_run {
    uint16_t q[BF16_ELEMS], k[BF16_ELEMS], v[BF16_ELEMS], d_o[BF16_ELEMS];
    uint16_t o[BF16_ELEMS], dq[BF16_ELEMS], dk[BF16_ELEMS], dv[BF16_ELEMS];
    float lse[BF16_ROWS], dbias[BF16_ROWS * BF16_ROWS];
};

static void draw_inputs(struct bf16_run *r)
{
    uint16_t *const x[] = {r->q, r->k, r->v, r->d_o};
    uint64_t state = 1;
    for (size_t i = 0; i < SW_LEN(x); i++) {
        for (int e = 0; e < BF16_ELEMS; e++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            x[i][e] = sw_f32_to_bf16((float)(state >> 40) * 0x1p-23f - 1);
        }
    }
}

static void *scratch_of(size_t bytes)
{
    void *scratch = aligned_alloc(CPU_LINE, sw_round_up(bytes, CPU_LINE));
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes); /* NaN */
    return scratch;
}

/* The first n rows; with a cap, a window, dropout and the gradient of a bias. */
static struct cpu_attention head_of_run(struct bf16_run *r, int64_t n)
{
    struct cpu_attention a = {.dtype = SW_BF16,
                              .t = n,
                              .s = n,
                              .d = BF16_WIDTH,
                              .causal = true,
                              .window = 270,
                              .scale = 0.5f,
                              .cap = 3,
                              .dbias = r->dbias,
                              .q = r->q,
                              .k = r->k,
                              .v = r->v,
                              .o = r->o,
                              .d_o = r->d_o,
                              .dq = r->dq,
                              .dk = r->dk,
                              .dv = r->dv,
                              .lse = r->lse,
                              .p = 0.1,
                              .draw = {.key = {1, 2}, .threshold = UINT32_C(429496730)}};
    a.ld_q = a.ld_k = a.ld_v = a.ld_o = a.ld_do = a.ld_dq = a.ld_dk = a.ld_dv = BF16_WIDTH;
    return a;
}

static void run_part(const struct cpu_attention_kernel *kernel, const struct cpu_attention *a,
                     const struct cpu_attention_part *part)
{
    const int64_t n_keys =
        part->dkv ? part->end_key - part->first_key : sw_min_i64(a->s, kernel->key_block);
    void *scratch = scratch_of(kernel->grad_scratch_bytes(a->t, n_keys, a->d));
    kernel->run_grad(kernel, a, 1, part, scratch);
    free(scratch);
}

/* Forward, then the gradients, as a whole or in parts. */
static void run_bf16(const struct cpu_attention_kernel *kernel, struct bf16_run *r, int64_t n,
                     bool in_parts)
{
    memset(r, 0, sizeof *r);
    draw_inputs(r);
    const struct cpu_attention a = head_of_run(r, n);
    const int64_t n_columns = sw_ceil_div(n, CPU_COLUMN), cut = in_parts ? 1 : n_columns;
    for (int64_t i = 0; i < n_columns; i += cut) {
        const int64_t end = sw_min_i64(n_columns, i + cut);
        void *scratch = scratch_of(kernel->scratch_bytes(end - i, a.s, a.d));
        kernel->run(kernel, &a, 1, i, end, scratch);
        free(scratch);
    }
    if (!in_parts) {
        run_part(kernel, &a, &(struct cpu_attention_part){0, n, 0, n, true, true, true});
        return;
    }
    for (int64_t j = 0; j < n; j += kernel->key_block) {
        const int64_t end = sw_min_i64(n, j + kernel->key_block);
        run_part(kernel, &a, &(struct cpu_attention_part){0, n, j, end, false, true, false});
    }
    for (int64_t i = 0; i < n; i += kernel->query_block) {
        const int64_t end = sw_min_i64(n, i + kernel->query_block);
        run_part(kernel, &a, &(struct cpu_attention_part){i, end, 0, n, true, false, true});
    }
}

static struct bf16_run *new_run(void)
{
    struct bf16_run *r = malloc(sizeof *r);
    assert_non_null(r);
    return r;
}

static void check_same(const struct cpu_attention_kernel *a, bool parts_a,
                       const struct cpu_attention_kernel *b, bool parts_b, int64_t n)
{
    struct bf16_run *x = new_run(), *y = new_run();
    run_bf16(a, x, n, parts_a);
    run_bf16(b, y, n, parts_b);
    const size_t at[] = {offsetof(struct bf16_run, o),   offsetof(struct bf16_run, dq),
                         offsetof(struct bf16_run, dk),  offsetof(struct bf16_run, dv),
                         offsetof(struct bf16_run, lse), offsetof(struct bf16_run, dbias),
                         sizeof(struct bf16_run)};
    static const char *const names[] = {"o", "dq", "dk", "dv", "lse", "dbias"};
    static const char zeros[4];
    for (size_t i = 0; i + 1 < SW_LEN(at); i++) {
        const char *p = (char *)x + at[i], *q = (char *)y + at[i];
        if (memcmp(p, q, at[i + 1] - at[i]) != 0) {
            fail_msg("%s%s: %s has not the bits of %s", a->name, parts_a ? " in parts" : "",
                     names[i], b->name);
        }
        const int64_t row = n / 2 * (i < 4 ? BF16_WIDTH * 2 : i == 4 ? 4 : n * 4);
        assert_true(memcmp(p + row, zeros, 4) != 0);
    }
    free(x);
    free(y);
}

/* Each instruction and its model give the same bits, whole and in parts. */
static void test_models_are_the_instructions(void **state)
{
    bool amx;
    const enum cpu_isa isa = sw_cpu_isa_detect(&amx);
    (void)state;
    if (isa < CPU_AVX512_BF16) {
        print_message("skipped: no AVX512-BF16\n");
        skip();
    }
    const struct cpu_attention_kernel *vdp = &sw_cpu_attention_avx512bf16;
    check_same(&sw_cpu_attention_avx512bf16_model, false, vdp, true, 75);
    check_same(vdp, false, vdp, true, BF16_ROWS);
    check_same(&sw_cpu_attention_amx_model, true, &sw_cpu_attention_amx_model, false, 75);
#if !defined(SPILLWAY_WITHOUT_AMX)
    if (isa >= CPU_AMX_BF16) {
        check_same(&sw_cpu_attention_amx_model, false, &sw_cpu_attention_amx, true, 75);
        check_same(&sw_cpu_attention_amx, false, &sw_cpu_attention_amx, true, BF16_ROWS);
    }
#endif
}

#endif

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_attention_has_a_fast_kernel),
    cmocka_unit_test(test_hidden_blocks_are_not_looked_at),
    cmocka_unit_test(test_gpus_do_not_look_at_hidden_blocks),
    cmocka_unit_test(test_few_key_heads_are_cut),
    cmocka_unit_test(test_no_query_has_no_result),
    cmocka_unit_test(test_rows_do_not_depend_on_other_rows),
#if defined(__x86_64__) && !defined(SPILLWAY_WITHOUT_AVX512)
    cmocka_unit_test(test_models_are_the_instructions),
#endif
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
