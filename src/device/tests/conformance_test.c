// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1200
// COST 40
// SLOW SPILLWAY_CONFORMANCE=all
// Every kernel of every device, by one table of cases. Results have the same bits on 1, 3 and 7
// threads, at any operand offset, for each instruction set. The fast kernels are near the plain C
// reference (equal if the op is exact), and the mock is equal to it. A new fast row is covered as
// soon as it takes an op. A case takes one of the numbers of threads and one of the offsets: the
// cases of a kind, and the instruction sets, take turns. SPILLWAY_CONFORMANCE=all takes all.
// For a processor that is emulated, and slow (tests/other_cpu.sh): SPILLWAY_ISA_FROM=avx512 takes
// the instruction sets from that one up, and leaves out the tests that do not depend on them.
// SPILLWAY_SHARD=i/n is part i of n of the kinds of ops, 0 <= i < n.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/tests/op_cases.h"
#include "support/test.h"

static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16, SW_F64};
#ifdef TEST_SANITIZED /* slow, and asks for what a kernel touches: run each on several threads */
static const int thread_counts[] = {3};
enum { N_THREADS = 1, N_SHIFTS = 0 };
#else
static const int thread_counts[] = {1, 3, 7};
enum { N_THREADS = 3, N_SHIFTS = 2 };
#endif
/* A limit above this processor's set changes nothing and repeats the one below. "onednn" is all of
 * the processor with the library's products. NULL is all of the processor. */
#ifdef TEST_SANITIZED /* slow; the vectors of two widths are of the same source */
static const char *const limits[] = {"portable", NULL};
#else
static const char *const limits[] = {"portable", "avx2", "avx512", "avx512_bf16", "onednn", NULL};
#endif

enum { N_LIMITS = SW_LEN(limits) };

/* The first of the limits that is tested. */
static int first_limit;
static int part, n_parts = 1;
static bool all_ways; /* each case runs on each number of threads and at each offset */

struct devices {
    struct sw_device *reference[N_THREADS];
    struct sw_device *fast[N_LIMITS][N_THREADS];
    struct sw_device *mock[2]; /* late, early */
};

static struct sw_device *open_cpu(int n_threads, bool reference, const char *max_isa)
{
    const bool by_library = max_isa && strcmp(max_isa, "onednn") == 0;
    struct sw_cpu_options options = {.n_threads = n_threads,
                                     .reference = reference,
                                     .max_isa = by_library ? NULL : max_isa,
                                     .by_library = by_library};
    struct sw_device *dev = NULL;
    sw_status st = sw_device_open_cpu(&options, &dev);
    if (by_library && st == SW_E_UNSUP) { /* all products are own ones */
        options.by_library = false;
        st = sw_device_open_cpu(&options, &dev);
    }
    if (st < 0) {
        fail_msg("%s", sw_error_message());
    }
    return dev;
}

static int open_devices(void **state)
{
    static struct devices all;
    for (int t = 0; t < N_THREADS; t++) {
        all.reference[t] = open_cpu(thread_counts[t], true, NULL);
        for (int l = 0; l < N_LIMITS; l++) {
            all.fast[l][t] = open_cpu(thread_counts[t], false, limits[l]);
        }
    }
    for (int early = 0; early < 2; early++) {
        const struct sw_mock_options options = {.n_threads = 2, .early = early};
        if (sw_device_open_mock(&options, &all.mock[early]) < 0) {
            fail_msg("%s", sw_error_message());
        }
    }
    *state = &all;
    return 0;
}

static int close_devices(void **state)
{
    struct devices *all = *state;
    for (int t = 0; t < N_THREADS; t++) {
        sw_device_close(all->reference[t]);
        for (int l = 0; l < N_LIMITS; l++) {
            sw_device_close(all->fast[l][t]);
        }
    }
    sw_device_close(all->mock[0]);
    sw_device_close(all->mock[1]);
    return 0;
}

static void run(struct sw_device *dev, const struct op_case *c, struct op_case *result)
{
    if (case_run(dev, c, result) < 0) {
        fail_msg("%s on %s: %s", c->name, sw_device_kernel_set(dev), sw_error_message());
    }
}

static void same_bits(const struct op_case *a, const struct op_case *b, const char *what,
                      const char *where)
{
    for (int i = 0; i < a->op.n_out; i++) {
        if (!case_same_bits(a, b, i)) {
            fail_msg("%s: output %d has other bits %s (%s), off by %g", a->name, i, what, where,
                     case_error(a, b, i));
        }
    }
    if (memcmp(a->scalars, b->scalars, sizeof a->scalars) != 0) {
        fail_msg("%s: other scalars %s (%s)", a->name, what, where);
    }
}

static void check_apart(struct sw_device *dev, const struct op_case *c,
                        const struct op_case *result)
{
    if (case_run_apart(dev, c, result) < 0) {
        fail_msg("%s (%s)", sw_error_message(), sw_device_kernel_set(dev));
    }
}

/* Is it the turn of number i of n? turn: a count of cases and instruction sets */
static bool is_turn(int i, int n, int turn)
{
    return all_ways || i == turn % n;
}

static void check_fast(struct devices *all, const struct op_case *c, const struct op_case *want,
                       int i_limit, int turn)
{
    struct op_case first, other;
    const char *set = sw_device_kernel_set(all->fast[i_limit][0]);
    run(all->fast[i_limit][0], c, &first);
    check_apart(all->fast[i_limit][0], c, &first);
    for (int t = 1; t < N_THREADS; t++) {
        if (!is_turn(t - 1, N_THREADS - 1, turn)) {
            continue;
        }
        run(all->fast[i_limit][t], c, &other);
        same_bits(&other, &first, "on more threads", set);
        case_fini(&other);
    }
    static const int64_t shifts[] = {1, 8}; /* a row of a tile may begin at any element */
    for (int i = 0; i < N_SHIFTS; i++) {
        if (!is_turn(i, N_SHIFTS, turn / 2)) { /* each offset with each number of threads */
            continue;
        }
        struct op_case shifted = *c;
        shifted.shift = shifts[i];
        run(all->fast[i_limit][0], &shifted, &other);
        same_bits(&other, &first, "elsewhere in memory", set);
        case_fini(&other);
    }
    if (c->exact) {
        same_bits(&first, want, "than the reference", set);
    }
    for (int i = 0; i < c->op.n_out; i++) {
        const double error = case_error(&first, want, i);
        if (error > case_tolerance(c, i)) {
            fail_msg("%s: output %d is off by %g, tolerance %g (%s)", c->name, i, error,
                     case_tolerance(c, i), set);
        }
    }
    case_fini(&first);
}

/* number: of the case among those of its kind and type */
static void check_case(struct devices *all, const struct op_case *c, int number)
{
    struct op_case want, other;
    run(all->reference[0], c, &want);
    check_apart(all->reference[0], c, &want);
    for (int t = 1; t < N_THREADS && first_limit == 0; t++) {
        if (!is_turn(t - 1, N_THREADS - 1, number)) {
            continue;
        }
        run(all->reference[t], c, &other);
        same_bits(&other, &want, "on more threads", "reference");
        case_fini(&other);
    }
    for (int early = 0; early < 2 && first_limit == 0; early++) {
        run(all->mock[early], c, &other);
        same_bits(&other, &want, "than the reference", "mock");
        case_fini(&other);
    }
    for (int l = first_limit; l < N_LIMITS; l++) {
        if (l == first_limit || strcmp(sw_device_kernel_set(all->fast[l][0]),
                                       sw_device_kernel_set(all->fast[l - 1][0])) != 0) {
            check_fast(all, c, &want, l, number + l);
        }
    }
    case_fini(&want);
}

static void check_kinds(struct devices *all)
{
    for (int kind = part; kind < SW_N_OP_KINDS; kind += n_parts) {
        for (size_t d = 0; op_cases[kind] && d < SW_LEN(dtypes); d++) {
            struct op_case c;
            for (int variant = 0; op_cases[kind](&c, dtypes[d], variant); variant++) {
                check_case(all, &c, variant);
                case_fini(&c);
            }
            case_fini(&c);
        }
    }
}

static void test_kernels(void **state)
{
    check_kinds(*state);
}

/* Whatever the activations of ignored rows are, no output bit changes. */
static void test_the_loss_leaves_out_rows_without_a_label(void **state)
{
    struct devices *all = *state;
    struct op_case c, plain[N_LIMITS], odd;
    for (int variant = 1; variant < 3; variant++) {
        assert_true(op_cases[SW_OP_LINEAR_CE](&c, SW_F32, variant));
        const int64_t rows = sw_shape_elems(&c.in[2].view.shape);
        const int64_t width = sw_shape_last(&c.in[0].view.shape);
        for (int l = 0; l < N_LIMITS; l++) {
            run(all->fast[l][0], &c, &plain[l]);
        }
        int64_t n_left_out = 0;
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t j = 0; j < width && c.labels[r] == -100; j++, n_left_out++) {
                ((float *)c.in[0].view.data)[r * width + j] = NAN;
            }
        }
        assert_true(n_left_out > 0);
        for (int l = 0; l < N_LIMITS; l++) {
            run(all->fast[l][N_THREADS - 1], &c, &odd);
            same_bits(&odd, &plain[l], "with NaN there", sw_device_kernel_set(all->fast[l][0]));
            for (int64_t r = 0; r < rows; r++) {
                const float lse = ((const float *)odd.out[2].view.data)[r];
                assert_true(c.labels[r] == -100 ? lse == 0 : isfinite(lse));
            }
            case_fini(&odd);
            case_fini(&plain[l]);
        }
        case_fini(&c);
    }
}

enum { LOSS_ROWS = 301, LOSS_VOCAB = 131, LOSS_CHUNK = 100 }; /* several blocks, the last short */

/* The same numbers, whether all rows have a label or only some. */
static void rows_of_loss(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype,
                         int64_t width, bool all_have_labels)
{
    case_init(c, kind, "loss of rows of %d %s", (int)width, sw_dtype_name(dtype));
    c->op.attrs.linear_ce.chunk = LOSS_CHUNK;
    if (kind == SW_OP_LINEAR_CE_GRAD) {
        case_in(c, SW_F32, SW_SHAPE(1), 0.1, 2);
    }
    case_in(c, dtype, SW_SHAPE(LOSS_ROWS, width), -1, 1);
    case_in(c, dtype, SW_SHAPE(LOSS_VOCAB, width), -0.5, 0.5);
    const int i_labels = case_in_ints(c, SW_SHAPE(LOSS_ROWS), 0, LOSS_VOCAB);
    for (int r = 0; r < LOSS_ROWS && !all_have_labels; r++) {
        if (r < 5 || r % 7 == 3 || (r > 150 && r < 230)) {
            ((int32_t *)c->in[i_labels].view.data)[r] = -100;
        }
    }
    c->labels = c->in[i_labels].view.data;
    if (kind == SW_OP_LINEAR_CE_GRAD) {
        case_in(c, SW_F32, SW_SHAPE(LOSS_ROWS), 4.5, 6);
        case_out(c, dtype, SW_SHAPE(LOSS_ROWS, width));
        case_out_absent(c);
    } else {
        case_out(c, SW_F32, SW_SHAPE(1));
        case_out(c, SW_F32, SW_SHAPE(1));
        case_out(c, SW_F32, SW_SHAPE(LOSS_ROWS));
    }
}

static void check_rows_of_loss(struct sw_device *dev, enum sw_op_kind kind, enum sw_dtype dtype,
                               int64_t width)
{
    struct op_case c, some, with_all, with_some;
    const int i_out = kind == SW_OP_LINEAR_CE_GRAD ? 0 : 2; /* dh; lse */
    rows_of_loss(&c, kind, dtype, width, true);
    rows_of_loss(&some, kind, dtype, width, false);
    run(dev, &c, &with_all);
    run(dev, &some, &with_some);
    const size_t bytes = some.out[i_out].bytes / LOSS_ROWS;
    for (int r = 0; r < LOSS_ROWS; r++) {
        if (some.labels[r] != -100 &&
            memcmp((char *)with_all.out[i_out].view.data + (size_t)r * bytes,
                   (char *)with_some.out[i_out].view.data + (size_t)r * bytes, bytes) != 0) {
            fail_msg("%s on %s: row %d of kind %d has other bits where rows before it have no "
                     "label",
                     c.name, sw_device_kernel_set(dev), r, (int)kind);
        }
    }
    case_fini(&with_all);
    case_fini(&with_some);
    case_fini(&c);
    case_fini(&some);
}

/* Rows move to other positions in the product's blocks when rows before them are left out. */
static void test_rows_of_the_loss_do_not_depend_on_labels_of_others(void **state)
{
    static const int64_t widths[] = {21, 64};
    struct devices *all = *state;
    for (int l = first_limit; l < N_LIMITS; l++) {
        for (size_t d = 0; d < SW_LEN(dtypes) && dtypes[d] != SW_F64; d++) {
            for (size_t w = 0; w < SW_LEN(widths); w++) {
                struct sw_device *dev = all->fast[l][0];
                check_rows_of_loss(dev, SW_OP_LINEAR_CE, dtypes[d], widths[w]);
                check_rows_of_loss(dev, SW_OP_LINEAR_CE_GRAD, dtypes[d], widths[w]);
            }
        }
    }
}

/* In fp32 each sum of the loss's products is longer than one depth of the kernels (256): over the
 * width, over a chunk of the vocabulary, and over the 264 rows that have a label. The last chunk
 * has few rows. */
enum { DEEP_ROWS = 330, DEEP_VOCAB = 270, DEEP_CHUNK = 260, DEEP_WIDTH = 263 };

static void deep_loss(struct op_case *c, enum sw_op_kind kind)
{
    const bool is_grad = kind == SW_OP_LINEAR_CE_GRAD;
    case_init(c, kind, "loss of long sums, %s", is_grad ? "gradient" : "forward");
    c->op.attrs.linear_ce.chunk = DEEP_CHUNK;
    c->slack = is_grad ? 4 : 2;
    if (is_grad) {
        case_in(c, SW_F32, SW_SHAPE(1), 0.1, 2);
    }
    case_in(c, SW_F32, SW_SHAPE(DEEP_ROWS, DEEP_WIDTH), -1, 1);
    case_in(c, SW_F32, SW_SHAPE(DEEP_VOCAB, DEEP_WIDTH), -0.1, 0.1);
    const int i_labels = case_in_ints(c, SW_SHAPE(DEEP_ROWS), 0, DEEP_VOCAB);
    c->labels = c->in[i_labels].view.data;
    for (int r = 3; r < DEEP_ROWS; r += 5) {
        ((int32_t *)c->in[i_labels].view.data)[r] = -100;
    }
    if (is_grad) {
        case_in(c, SW_F32, SW_SHAPE(DEEP_ROWS), 4.5, 6);
        case_out(c, SW_F32, SW_SHAPE(DEEP_ROWS, DEEP_WIDTH));
        case_out(c, SW_F32, SW_SHAPE(DEEP_VOCAB, DEEP_WIDTH));
    } else {
        case_out(c, SW_F32, SW_SHAPE(1));
        case_out(c, SW_F32, SW_SHAPE(1));
        case_out(c, SW_F32, SW_SHAPE(DEEP_ROWS));
    }
}

static void test_sums_of_the_loss_may_be_long(void **state)
{
    static const enum sw_op_kind kinds[] = {SW_OP_LINEAR_CE, SW_OP_LINEAR_CE_GRAD};
    for (size_t i = 0; i < SW_LEN(kinds); i++) {
        struct op_case c;
        deep_loss(&c, kinds[i]);
        check_case(*state, &c, (int)i);
        case_fini(&c);
    }
}

static void test_every_kind_has_cases(void **state)
{
    (void)state;
    for (int kind = 0; kind < SW_N_OP_KINDS; kind++) { /* the last one: at_once_test */
        assert_int_equal(op_cases[kind] == NULL, kind == SW_OP_VIEW || kind == SW_OP_EXCHANGE ||
                                                     kind == SW_OP_LINEAR_CE_AT_ONCE);
    }
}

static void test_a_view_has_no_kernel(void **state)
{
    struct devices *all = *state;
    const struct sw_op op = {.kind = SW_OP_VIEW};
    const struct sw_op_desc desc = {.op = &op};
    struct sw_kernel_info info;
    struct sw_kernel *kernel;
    sw_device_query(all->fast[0][0], &desc, &info);
    assert_false(info.supported);
    assert_int_equal(sw_device_prepare(all->fast[0][0], &desc, &kernel), SW_E_UNSUP);
}

/* No other kernel with other bits is taken, and the error says why. That there was no memory is not
 * remembered, while an answer is: only preparing needs memory then. */
static void test_lack_of_memory_chooses_no_kernel(void **state)
{
    struct devices *all = *state;
    struct sw_device *dev = all->fast[N_LIMITS - 1][0];
    const struct sw_view square = {.dtype = SW_F32, .shape = SW_SHAPE(9, 9), .strides = {9, 1}};
    const struct sw_op op = {.kind = SW_OP_MATMUL, .n_in = 2, .n_out = 1};
    const struct sw_op_desc desc = {.op = &op, .in = {square, square}, .out = {square}};
    struct sw_kernel_info info;
    struct sw_kernel *kernel;
    sw_alloc_fail_nth(1);
    sw_device_query(dev, &desc, &info);
    sw_alloc_fail_nth(0);
    assert_true(!info.supported && info.no_memory);
    sw_device_query(dev, &desc, &info);
    assert_true(info.supported && !info.no_memory);
    const struct sw_kernel_info first = info;
    for (int64_t n = 1; n <= 2; n++) { /* the kernel itself; its product */
        sw_alloc_fail_nth(n);
        const sw_status st = sw_device_prepare(dev, &desc, &kernel);
        sw_device_query(dev, &desc, &info);
        sw_alloc_fail_nth(0);
        assert_int_equal(st, SW_E_NOMEM);
        assert_true(info.supported && info.workspace_bytes == first.workspace_bytes);
        assert_string_equal(info.path, first.path);
    }
    assert_int_equal(sw_device_prepare(dev, &desc, &kernel), SW_OK);
    dev->ops->release(dev, kernel);
}

/* The caps match the ops, and every slot of the table is filled. */
static void test_tables_are_complete(void **state)
{
    struct devices *all = *state;
    struct sw_device *const devs[] = {all->reference[0], all->fast[N_LIMITS - 1][0], all->mock[0],
                                      all->mock[1]};
    for (size_t i = 0; i < SW_LEN(devs); i++) {
        const struct sw_device_ops *ops = devs[i]->ops;
        assert_true(ops->close && ops->mem_alloc && ops->mem_free && ops->stream_open &&
                    ops->stream_close && ops->stream_wait && ops->copy && ops->fill &&
                    ops->add_slices && ops->add_words && ops->timeline_open &&
                    ops->timeline_close && ops->stream_signal && ops->stream_await &&
                    ops->timeline_set && ops->timeline_get && ops->timeline_wait && ops->query &&
                    ops->prepare && ops->release && ops->launch);
        assert_non_null(ops->name);
        assert_true(sw_device_kernel_set(devs[i])[0] != '\0');
        const unsigned reach =
            SW_DEVICE_HOST_VISIBLE | SW_DEVICE_DISK_REACHES | SW_DEVICE_COMM_REACHES;
        assert_int_equal(devs[i]->caps, i < 2 ? reach : 0);
        assert_int_equal(devs[i]->staging_bytes > 0, i >= 2);
    }
}

static void test_devices_have_names(void **state)
{
    struct devices *all = *state;
    const struct {
        const char *name;
        struct sw_device *like;
    } names[] = {{"cpu", all->fast[N_LIMITS - 1][0]},
                 {"cpu:reference", all->reference[0]},
                 {"mock", all->mock[0]},
                 {"mock:early", all->mock[1]}};
    struct sw_device *dev = NULL;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        assert_int_equal(sw_device_open(names[i].name, 1, &dev), SW_OK);
        assert_string_equal(dev->ops->name, names[i].like->ops->name);
        assert_string_equal(sw_device_kernel_set(dev), sw_device_kernel_set(names[i].like));
        sw_device_close(dev);
    }
    static const char *const unknown[] = {"gpu", "cuda:first", "hip:-1", "emu:128"};
    for (size_t i = 0; i < SW_LEN(unknown); i++) {
        assert_int_equal(sw_device_open(unknown[i], 1, &dev), SW_E_ARG);
        assert_non_null(strstr(sw_error_message(), unknown[i]));
    }
}

/* ---- sums ---- */

enum { SLICE = 37, N_SLICES = 5 };

/* Runs fn on device copies of operand 0 (read and written) and operand 1. */
static void with_operands(struct sw_device *dev, void *inout, size_t inout_bytes, const void *in,
                          size_t in_bytes,
                          sw_status (*fn)(struct sw_device *dev, struct sw_stream_queue *on,
                                          void *inout, const void *in, int arg),
                          int arg)
{
    struct sw_stream_queue *on;
    void *a, *b;
    assert_int_equal(dev->ops->stream_open(dev, &on), SW_OK);
    assert_int_equal(sw_device_alloc(dev, SW_MEM_DEVICE, inout_bytes, &a), SW_OK);
    assert_int_equal(sw_device_alloc(dev, SW_MEM_DEVICE, in_bytes, &b), SW_OK);
    assert_int_equal(case_to_device(dev, on, a, inout, inout_bytes), SW_OK);
    assert_int_equal(case_to_device(dev, on, b, in, in_bytes), SW_OK);
    assert_int_equal(fn(dev, on, a, b, arg), SW_OK);
    assert_int_equal(case_to_host(dev, on, inout, a, inout_bytes), SW_OK);
    sw_device_free(dev, SW_MEM_DEVICE, a, inout_bytes);
    sw_device_free(dev, SW_MEM_DEVICE, b, in_bytes);
    dev->ops->stream_close(dev, on);
}

/* arg: dtype, and whether acc is fresh */
static sw_status add_slices(struct sw_device *dev, struct sw_stream_queue *on, void *acc,
                            const void *slices, int arg)
{
    const struct sw_slice_sum sum = {.acc = acc,
                                     .dtype = (enum sw_dtype)(arg / 2),
                                     .slices = slices,
                                     .n = SLICE,
                                     .n_slices = N_SLICES,
                                     .fresh = arg % 2,
                                     .rounded = (float *)acc + SLICE};
    return sw_device_add_slices(dev, on, &sum);
}

/* One addition per element and slice, in order and in fp32. The sums are rounded once. */
static void test_slices_are_added_in_order(void **state)
{
    struct devices *all = *state;
    struct sw_device *devs[N_LIMITS + 3] = {all->reference[0], all->mock[0], all->mock[1]};
    for (int l = 0; l < N_LIMITS; l++) {
        devs[3 + l] = all->fast[l][N_THREADS - 1];
    }
    for (int arg = 0; arg < 6; arg++) {
        static const enum sw_dtype of[] = {SW_F32, SW_BF16, SW_F16};
        const enum sw_dtype dtype = of[arg / 2];
        const size_t bytes = sw_dtype_bytes(dtype);
        const bool fresh = arg % 2;
        char slices[N_SLICES * SLICE * sizeof(float)];
        float start[SLICE], want[SLICE];
        for (int i = 0; i < N_SLICES * SLICE; i++) {
            sw_store_f64(dtype, slices, i, ldexp(sw_philox_normal(3, 1, (uint64_t)i), i % 13));
        }
        for (int i = 0; i < SLICE; i++) {
            start[i] = want[i] = fresh ? NAN : (float)sw_philox_normal(3, 2, (uint64_t)i);
            for (int k = 0; k < N_SLICES; k++) {
                const float x = (float)sw_load_f64(dtype, slices, k * SLICE + i);
                want[i] = fresh && k == 0 ? x : want[i] + x;
            }
        }
        for (size_t d = 0; d < SW_LEN(devs); d++) {
            float got[2 * SLICE] = {0};
            char rounded[SLICE * sizeof(float)];
            memcpy(got, start, sizeof start);
            with_operands(devs[d], got, sizeof got, slices, N_SLICES * SLICE * bytes, add_slices,
                          2 * (int)dtype + fresh);
            assert_memory_equal(got, want, sizeof want);
            sw_convert(dtype, rounded, SW_F32, want, SLICE);
            assert_memory_equal(got + SLICE, rounded, SLICE * bytes);
        }
    }
    const struct sw_slice_sum ints = {
        .acc = (float[1]){0}, .dtype = SW_I32, .slices = "", .n = 1, .n_slices = 1};
    struct sw_stream_queue *on;
    assert_int_equal(devs[0]->ops->stream_open(devs[0], &on), SW_OK);
    assert_int_equal(sw_device_add_slices(devs[0], on, &ints), SW_E_ARG);
    devs[0]->ops->stream_close(devs[0], on);
}

static sw_status add_words(struct sw_device *dev, struct sw_stream_queue *on, void *out,
                           const void *words, int arg)
{
    (void)arg;
    return sw_device_add_words(dev, on, out, words, N_SLICES, SLICE);
}

static void test_words_are_added(void **state)
{
    struct devices *all = *state;
    struct sw_device *const devs[] = {all->reference[0], all->fast[N_LIMITS - 1][N_THREADS - 1],
                                      all->mock[0], all->mock[1]};
    int64_t words[N_SLICES * SLICE], want[SLICE] = {0}, got[SLICE];
    for (int i = 0; i < N_SLICES * SLICE; i++) {
        words[i] = (int64_t)(sw_philox_u64(4, 1, (uint64_t)i) >> 8) - (INT64_C(1) << 55);
        want[i % SLICE] += words[i];
    }
    for (size_t d = 0; d < SW_LEN(devs); d++) {
        memset(got, 0xff, sizeof got);
        with_operands(devs[d], got, sizeof got, words, sizeof words, add_words, 0);
        assert_memory_equal(got, want, sizeof got);
    }
}

/* ---- timelines ---- */

enum { TURNS = 50 };

struct turns {
    struct sw_device *dev;
    struct sw_timeline *mine, *theirs;
    uint8_t *byte; /* device */
    bool failed;
};

/* Every turn waits for the other thread's turn, on a stream of its own, and fills the byte. */
static void *take_turns(void *arg)
{
    struct turns *t = arg;
    const struct sw_device_ops *ops = t->dev->ops;
    struct sw_stream_queue *on;
    t->failed = ops->stream_open(t->dev, &on) < 0;
    for (int64_t turn = 1; turn <= TURNS && !t->failed; turn++) {
        t->failed = ops->stream_await(t->dev, on, t->theirs, turn) < 0 ||
                    sw_device_fill(t->dev, on, t->byte, (int)turn, 1) < 0 ||
                    ops->stream_signal(t->dev, on, t->mine, turn) < 0;
    }
    t->failed = ops->stream_wait(t->dev, on) < 0 || t->failed;
    ops->stream_close(t->dev, on);
    return NULL;
}

static void test_timelines_order_streams_and_threads(void **state)
{
    struct devices *all = *state;
    struct sw_device *const devs[] = {all->reference[0], all->mock[0], all->mock[1]};
    for (size_t d = 0; d < SW_LEN(devs); d++) {
        const struct sw_device_ops *ops = devs[d]->ops;
        struct turns t = {.dev = devs[d]};
        struct sw_stream_queue *on;
        pthread_t thread;
        uint8_t byte = 0;
        void *mem;
        assert_int_equal(sw_device_alloc(devs[d], SW_MEM_DEVICE, 1, &mem), SW_OK);
        t.byte = mem;
        assert_int_equal(ops->stream_open(devs[d], &on), SW_OK);
        assert_int_equal(ops->timeline_open(devs[d], &t.mine), SW_OK);
        assert_int_equal(ops->timeline_open(devs[d], &t.theirs), SW_OK);
        assert_int_equal(ops->timeline_get(devs[d], t.mine), 0);
        assert_int_equal(pthread_create(&thread, NULL, take_turns, &t), 0);
        for (int64_t turn = 1; turn <= TURNS; turn++) {
            assert_int_equal(ops->timeline_set(devs[d], t.theirs, turn), SW_OK);
            assert_int_equal(ops->timeline_wait(devs[d], t.mine, turn), SW_OK);
            assert_int_equal(ops->timeline_get(devs[d], t.mine), turn);
            assert_int_equal(case_to_host(devs[d], on, &byte, t.byte, 1), SW_OK);
            assert_int_equal(byte, turn);
        }
        pthread_join(thread, NULL);
        assert_false(t.failed);
        ops->timeline_close(devs[d], t.mine);
        ops->timeline_close(devs[d], t.theirs);
        ops->stream_close(devs[d], on);
        sw_device_free(devs[d], SW_MEM_DEVICE, mem, 1);
    }
}

static bool choose(void)
{
    const char *isa = getenv("SPILLWAY_ISA_FROM"), *shard = getenv("SPILLWAY_SHARD");
    char more;
    all_ways = getenv("SPILLWAY_CONFORMANCE") != NULL;
    while (isa && first_limit < N_LIMITS - 1 && strcmp(limits[first_limit], isa) != 0) {
        first_limit++;
    }
    if (isa && first_limit == N_LIMITS - 1) {
        fprintf(stderr, "SPILLWAY_ISA_FROM=%s: wanted portable, avx2, avx512 or avx512_bf16\n",
                isa);
        return false;
    }
    if (shard &&
        (sscanf(shard, "%d/%d%c", &part, &n_parts, &more) != 2 || part < 0 || part >= n_parts)) {
        fprintf(stderr, "SPILLWAY_SHARD=%s: wanted i/n with 0 <= i < n\n", shard);
        return false;
    }
    return true;
}

static int begin(char **argv)
{
    (void)argv;
    return choose() ? 0 : 1;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_kind_has_cases),
    cmocka_unit_test(test_a_view_has_no_kernel),
    cmocka_unit_test(test_lack_of_memory_chooses_no_kernel),
    cmocka_unit_test(test_tables_are_complete),
    cmocka_unit_test(test_devices_have_names),
    cmocka_unit_test(test_slices_are_added_in_order),
    cmocka_unit_test(test_words_are_added),
    cmocka_unit_test(test_timelines_order_streams_and_threads),
    cmocka_unit_test(test_the_loss_leaves_out_rows_without_a_label),
    cmocka_unit_test(test_rows_of_the_loss_do_not_depend_on_labels_of_others),
    cmocka_unit_test(test_sums_of_the_loss_may_be_long),
    cmocka_unit_test(test_kernels),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = open_devices,
                                      .teardown = close_devices, .begin = begin};
