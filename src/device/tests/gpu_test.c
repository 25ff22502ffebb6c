// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1200
// COST 40
// SLOW SPILLWAY_EMU_ALL=1
// GPU kernels, emulated. They are near the plain C reference (equal if the op is exact) and have
// the same bits in any thread order and at any operand offset. Warps of 64 lanes and the reverse
// thread order belong to the slow label. SPILLWAY_TEST_DEVICE=cuda runs a GPU instead. Each variant
// of a case is run at another offset in some of its types; under the slow label, in all.
#include <math.h>
#include <stdlib.h>

#include "device/gpu/open.h"
#include "device/tests/op_cases.h"
#include "support/test.h"

static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
#ifdef TEST_SANITIZED /* slow, and one run shows all that a kernel does */
enum { IS_REPEATED = 0 };
#else
enum { IS_REPEATED = 1 };
#endif

static struct {
    struct sw_device *reference;
    struct sw_device *emu[4]; /* warps of 32, of 64; then in reverse thread order */
    struct sw_device *own[2]; /* products without a library; with AMD's other library */
    int n, n_own;
} all;

static struct sw_device *open_with(const char *blas, const char *real, const char *emu)
{
    struct sw_device *dev = NULL;
    setenv("SPILLWAY_GPU_BLAS", blas, 1);
    if ((real ? sw_device_open(real, 1, &dev) : sw_gpu_open(emu, 0, &dev)) < 0) {
        fail_msg("%s", sw_error_message());
    }
    unsetenv("SPILLWAY_GPU_BLAS");
    return dev;
}

static int open_devices(void **state)
{
    (void)state;
    const struct sw_cpu_options cpu = {.n_threads = 1, .reference = true};
    assert_int_equal(sw_device_open_cpu(&cpu, &all.reference), SW_OK);
    const char *real = getenv("SPILLWAY_TEST_DEVICE");
    all.n = getenv("SPILLWAY_EMU_ALL") ? 4 : 1;
    for (int i = 0; i < all.n; i++) {
        const char *emu = i % 2 ? "emu64" : "emu32";
        if ((real ? sw_device_open(real, 1, &all.emu[i]) : sw_gpu_open(emu, i / 2, &all.emu[i])) <
            0) {
            print_message("%s\n", sw_error_message());
            exit(real ? 1 : 77);
        }
    }
    all.own[all.n_own++] = open_with("own", real, "emu32");
    if (!real && all.n > 1) {
        all.own[all.n_own++] = open_with("rocblas", NULL, "emu64");
    }
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    sw_device_close(all.reference);
    for (int i = 0; i < all.n_own; i++) {
        sw_device_close(all.own[i]);
    }
    for (int i = 0; i < all.n; i++) {
        sw_device_close(all.emu[i]);
    }
    return 0;
}

/* False: the device has no kernel for the op. */
static bool run(struct sw_device *dev, const struct op_case *c, struct op_case *result)
{
    const sw_status st = case_run(dev, c, result);
    if (st == SW_E_UNSUP) {
        case_fini(result);
        return false;
    }
    if (st < 0) {
        fail_msg("%s on %s: %s", c->name, sw_device_kernel_set(dev), sw_error_message());
    }
    return true;
}

static void check_near(const struct op_case *got, const struct op_case *want, const char *set)
{
    for (int i = 0; i < got->op.n_out; i++) {
        const double error = case_error(got, want, i);
        if (got->exact && !case_same_bits(got, want, i)) {
            fail_msg("%s: output %d has other bits than the reference, off by %g (%s)", got->name,
                     i, error, set);
        }
        if (error > case_tolerance(got, i)) {
            fail_msg("%s: output %d is off by %g, tolerance %g (%s)", got->name, i, error,
                     case_tolerance(got, i), set);
        }
    }
    for (int i = 0; i < SW_SCALAR_COUNT; i++) {
        const double a = got->scalars[i], b = want->scalars[i];
        if (a != b && !(a != a && b != b)) {
            fail_msg("%s: scalar %d is %.17g, not %.17g (%s)", got->name, i, a, b, set);
        }
    }
}

static void same_bits(const struct op_case *a, const struct op_case *b, const char *what)
{
    for (int i = 0; i < a->op.n_out; i++) {
        if (!case_same_bits(a, b, i)) {
            fail_msg("%s: output %d has other bits %s, off by %g", a->name, i, what,
                     case_error(a, b, i));
        }
    }
}

/* One block for each of so many rows takes long. */
static bool is_long(const struct op_case *c)
{
    enum { MANY_ROWS = 4096 };
    const bool is_grad = c->op.kind == SW_OP_LINEAR_CE_GRAD;
    return (is_grad || c->op.kind == SW_OP_LINEAR_CE) &&
           sw_shape_rows(&c->in[is_grad].view.shape) > MANY_ROWS;
}

/* Runs the case again on device i, which gave `got`. */
static void repeat(const struct op_case *c, int i, const struct op_case *got)
{
    struct op_case other;
    if (i < 2) { /* a row of a tile may begin at any element */
        struct op_case shifted = *c;
        shifted.shift = 8;
        run(all.emu[i], &shifted, &other);
    } else {
        run(all.emu[i - 2], c, &other);
    }
    same_bits(&other, got, i < 2 ? "elsewhere in memory" : "in the other order of threads");
    case_fini(&other);
}

/* False: the device has no kernel for it. is_repeated: runs it again elsewhere */
static bool check_case(const struct op_case *c, bool is_repeated)
{
    struct op_case want, got;
    if (is_long(c) && all.n == 1) {
        return true; /* left to the slow label */
    }
    run(all.reference, c, &want);
    for (int i = 0; i < all.n; i++) {
        const char *set = sw_device_kernel_set(all.emu[i]);
        if (!run(all.emu[i], c, &got)) {
            case_fini(&want);
            return false;
        }
        check_near(&got, &want, set);
        if (case_run_apart(all.emu[i], c, &got) < 0) {
            fail_msg("%s (%s)", sw_error_message(), set);
        }
        if (IS_REPEATED && (is_repeated || all.n > 1)) {
            repeat(c, i, &got);
        }
        case_fini(&got);
    }
    const bool has_products = c->op.kind == SW_OP_MATMUL || c->op.kind == SW_OP_LINEAR_CE_GRAD;
    for (int i = 0; has_products && i < all.n_own; i++) {
        run(all.own[i], c, &got);
        check_near(&got, &want, sw_device_kernel_set(all.own[i]));
        case_fini(&got);
    }
    case_fini(&want);
    return true;
}

/* The comparisons above really use the stand-ins and our kernel. */
static void products_are_made_by_the_stand_ins_and_by_our_kernel(void **state)
{
    static const char *const names[] = {"products:cublaslt:1 ", "products:hipblaslt:1 "};
    static const char *const others[] = {"products:own ", "products:rocblas:stand-in."};
    (void)state;
    for (int i = 0; i < all.n && !getenv("SPILLWAY_TEST_DEVICE"); i++) {
        assert_non_null(strstr(sw_device_kernel_set(all.emu[i]), names[i % 2]));
    }
    for (int i = 0; i < all.n_own; i++) {
        assert_non_null(strstr(sw_device_kernel_set(all.own[i]), others[i]));
    }
}

/* No GPU kernel takes fp64. */
static bool has_f64(const struct op_case *c)
{
    bool found = false;
    for (int i = 0; i < c->op.n_in; i++) {
        found = found || c->in[i].view.dtype == SW_F64;
    }
    for (int i = 0; i < c->op.n_out; i++) {
        found = found || c->out[i].view.dtype == SW_F64;
    }
    return found;
}

static bool is_the_cpus(int kind)
{
    return kind == SW_OP_USER || kind == SW_OP_MUON_MOMENTS || kind == SW_OP_MUON_APPLY;
}

static void what_is_the_cpus_alone_is_refused(void **state)
{
    (void)state;
    for (int kind = 0; kind < SW_N_OP_KINDS; kind++) {
        struct op_case c, got;
        if (!is_the_cpus(kind) || !op_cases[kind]) {
            continue;
        }
        assert_true(op_cases[kind](&c, SW_F32, 0));
        assert_false(run(all.emu[0], &c, &got));
        case_fini(&c);
    }
}

/* SPILLWAY_EMU_OP=name runs only that kind. */
static void test_kernels(void **state)
{
    (void)state;
    const char *only = getenv("SPILLWAY_EMU_OP");
    int n_missing = 0;
    for (int kind = 0; kind < SW_N_OP_KINDS; kind++) {
        const struct sw_op named = {.kind = (enum sw_op_kind)kind};
        bool known = true;
        if (is_the_cpus(kind) || (only && strcmp(only, sw_op_name(&named)) != 0)) {
            continue;
        }
        for (size_t d = 0; known && op_cases[kind] && d < SW_LEN(dtypes); d++) {
            struct op_case c;
            for (int variant = 0; known && op_cases[kind](&c, dtypes[d], variant); variant++) {
                known = has_f64(&c) || check_case(&c, (variant + (int)d) % 2 == 0);
                if (!known) {
                    print_message("no kernel for %s\n", c.name);
                    n_missing++;
                }
                case_fini(&c);
            }
            case_fini(&c);
        }
    }
    assert_int_equal(n_missing, 0);
}

/* A skipped update puts no data in a parameter's place, and its kernels check this on the
 * device. */
static void test_skipped_copy_writes_nothing(void **state)
{
    (void)state;
    for (int skip = 0; skip < 2; skip++) {
        struct op_case c, want, got;
        assert_true(op_cases[SW_OP_CONTIGUOUS](&c, SW_F32, 0));
        c.is_predicated = true;
        c.scalars[SW_SCALAR_SKIP] = skip;
        assert_true(run(all.reference, &c, &want) && run(all.emu[0], &c, &got));
        check_near(&got, &want, "skipped");
        const uint32_t first = *(const uint32_t *)got.out[0].view.data;
        assert_int_equal(first == UINT32_MAX, skip); /* the old contents */
        case_fini(&got);
        case_fini(&want);
        case_fini(&c);
    }
}

/* The gradient of queries that attend to MANY keys equally. Keys differ a little from a common
 * vector; outputs are multiples of 1/MANY that 16 bits represent. */
enum { MANY = 256, HEAD = 16, IN_COMMON = 16 };
static void alike_case(struct op_case *c, enum sw_dtype dtype)
{
    const struct sw_shape shape = SW_SHAPE(1, MANY, HEAD);
    case_init(c, SW_OP_ATTENTION_GRAD, "gradient of queries, %s", sw_dtype_name(dtype));
    c->op.attrs.attention = (struct sw_attention_attrs){.heads = 1, .kv_heads = 1, .scale = 1};
    case_in(c, dtype, shape, -1, 1); /* gradient of the outputs */
    const int o = case_in_zero(c, dtype, shape);
    const int lse = case_in_zero(c, SW_F32, SW_SHAPE(1, 1, MANY));
    case_in_zero(c, dtype, shape); /* queries */
    const int k = case_in_zero(c, dtype, shape), v = case_in_zero(c, dtype, shape);
    for (int64_t at = 0; at < (int64_t)MANY * HEAD; at++) {
        const double step = floor(case_random(c, 1, (uint64_t)at, 0, 8));
        const double value = floor(case_random(c, 2, (uint64_t)at, -2, 3));
        sw_store_f64(dtype, c->in[k].view.data, at, IN_COMMON + step / 8);
        sw_store_f64(dtype, c->in[v].view.data, at, value);
        for (int64_t i = at % HEAD; i < (int64_t)MANY * HEAD; i += HEAD) {
            const double sum = sw_load_f64(dtype, c->in[o].view.data, i);
            sw_store_f64(dtype, c->in[o].view.data, i, sum + value / MANY);
        }
    }
    for (int i = 0; i < MANY; i++) {
        sw_store_f64(SW_F32, c->in[lse].view.data, i, log(MANY));
    }
    case_out(c, dtype, shape);
    case_out_absent(c);
    case_out_absent(c);
}

/* Squared errors of a query's gradient: of the given one, and of one with rounded slopes. */
static void errors_of_query(const struct op_case *c, const struct op_case *got, int i,
                            double *given, double *rounded)
{
    const enum sw_dtype dtype = got->out[0].view.dtype;
    double exact[HEAD] = {0}, simple[HEAD] = {0};
    for (int j = 0; j < MANY; j++) {
        double slope = 0;
        uint16_t narrow;
        for (int e = 0; e < HEAD; e++) {
            slope += sw_load_f64(dtype, c->in[0].view.data, i * HEAD + e) *
                     (sw_load_f64(dtype, c->in[5].view.data, j * HEAD + e) -
                      sw_load_f64(dtype, c->in[1].view.data, i * HEAD + e)) /
                     MANY;
        }
        sw_store_f64(dtype, &narrow, 0, slope);
        for (int e = 0; e < HEAD; e++) {
            const double key = sw_load_f64(dtype, c->in[4].view.data, j * HEAD + e);
            exact[e] += slope * key;
            simple[e] += sw_load_f64(dtype, &narrow, 0) * key;
        }
    }
    for (int e = 0; e < HEAD; e++) {
        const double x = sw_load_f64(dtype, got->out[0].view.data, i * HEAD + e);
        *given += (x - exact[e]) * (x - exact[e]);
        *rounded += (simple[e] - exact[e]) * (simple[e] - exact[e]);
    }
}

/* The slopes of a query's scores add up to zero, so a part common to its keys does not contribute
 * to its gradient. Rounding the slopes to 16 bits must not bring it in. */
static void test_what_keys_have_in_common_cancels(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * all.n; i++) {
        struct op_case c, got;
        double given = 0, rounded = 0;
        alike_case(&c, i % 2 ? SW_F16 : SW_BF16);
        assert_true(run(all.emu[i / 2], &c, &got));
        for (int query = 0; query < MANY; query++) {
            errors_of_query(&c, &got, query, &given, &rounded);
        }
        print_message("%s: %g of %g\n", c.name, sqrt(given), sqrt(rounded));
        assert_true(rounded > 0 && given < rounded / 9); /* at most a third of the error */
        case_fini(&got);
        case_fini(&c);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(products_are_made_by_the_stand_ins_and_by_our_kernel),
    cmocka_unit_test(what_is_the_cpus_alone_is_refused),
    cmocka_unit_test(test_kernels),
    cmocka_unit_test(test_skipped_copy_writes_nothing),
    cmocka_unit_test(test_what_keys_have_in_common_cancels),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = open_devices,
                                      .teardown = close_devices};
