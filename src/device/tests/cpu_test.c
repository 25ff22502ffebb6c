// SPDX-License-Identifier: Apache-2.0
// Kernel selection by processor features, including processors that are not present.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cpu/cpu.h"
#include "device/cpu/fast.h"
#include "support/test.h"

#if defined(__x86_64__) && !defined(SPILLWAY_WITHOUT_AVX512)
enum { HAS_OWN_VDPBF16 = true };
#else
enum { HAS_OWN_VDPBF16 = false };
#endif
#if defined(__x86_64__) && !defined(SPILLWAY_WITHOUT_AMX)
enum { HAS_OWN_AMX = true };
#else
enum { HAS_OWN_AMX = false };
#endif

/* Products on AMX are own ones, or oneDNN's where the build has no own ones or leaves products to
 * it. Naming AMX if nothing uses it would refuse a resume on a processor with the same bits. */
static void amx_is_named_where_something_uses_it(void **state)
{
    (void)state;
    struct cpu_device own = {0}, all = {0}, none = {0}, library = {.by_library = true};
    sw_cpu_use(&own, CPU_AMX_BF16, true, NULL);
    sw_cpu_use(&all, CPU_AVX512_BF16, true, NULL);
    sw_cpu_use(&none, CPU_AVX512_BF16, false, NULL);
    sw_cpu_use(&library, CPU_AMX_BF16, true, NULL);
    assert_int_equal(strstr(own.kernel_set, "bf16:amx") != NULL, HAS_OWN_AMX);
    assert_null(strstr(library.kernel_set, "bf16:amx"));
    assert_int_equal(all.has_amx_bf16, SW_HAVE_DNNL);
    assert_int_equal(strstr(all.kernel_set, "amx_bf16") != NULL, SW_HAVE_DNNL);
    assert_int_equal(strstr(all.kernel_set, "onednn") != NULL, SW_HAVE_DNNL);
    assert_null(strstr(none.kernel_set, "amx"));
    assert_int_equal(strcmp(all.kernel_set, none.kernel_set) == 0, !SW_HAVE_DNNL);
}

/* Intel's processors have no own products by VDPBF16PS, and a limit leaves out the library's. */
static void bf16_is_native_where_a_kernel_takes_it(void **state)
{
    (void)state;
    const enum cpu_isa limit = CPU_AVX512_BF16;
    struct cpu_device own = {.fast_vdpbf16 = true}, all = {0}, limited = {0}, older = {0};
    sw_cpu_use(&own, CPU_AMX_BF16, true, &limit);
    sw_cpu_use(&all, CPU_AVX512_BF16, false, NULL);
    sw_cpu_use(&limited, CPU_AMX_BF16, true, &limit);
    sw_cpu_use(&older, CPU_AVX512, false, NULL);
    assert_int_equal(strstr(own.kernel_set, "bf16:converted") == NULL, HAS_OWN_VDPBF16);
    assert_int_equal(strstr(all.kernel_set, "bf16:native") != NULL, SW_HAVE_DNNL);
    assert_non_null(strstr(limited.kernel_set, "bf16:converted"));
    assert_non_null(strstr(older.kernel_set, "bf16:converted"));
}

/* Checkpoints of either choice have other bits: the name says which one it is. */
static void large_f32_products_are_own_ones_on_amx(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, columns, piece;
        bool ta, tb, is_own;
    } cases[] = {
        {768, 512, 0, false, false, true},  {767, 512, 0, false, true, false},
        {768, 511, 0, true, false, false},  {768, 300, 100, false, true, true},
        {300, 512, 100, true, false, true}, {768, 512, 100, false, false, false},
    };
    struct cpu_device own = {0}, library = {.by_library = true}, older = {0};
    sw_cpu_use(&own, CPU_AMX_BF16, true, NULL);
    sw_cpu_use(&library, CPU_AMX_BF16, true, NULL);
    sw_cpu_use(&older, CPU_AVX512_BF16, true, NULL);
    assert_int_equal(strstr(own.kernel_set, "f32:large") != NULL, SW_HAVE_DNNL);
    assert_null(strstr(library.kernel_set, "f32:large"));
    assert_null(strstr(older.kernel_set, "f32:large"));
    for (size_t i = 0; i < SW_LEN(cases) && SW_HAVE_DNNL; i++) {
        const int64_t m = cases[i].rows, n = cases[i].columns, k = 10;
        struct sw_op op = {.kind = SW_OP_MATMUL, .n_in = 2, .n_out = 1};
        op.attrs.matmul.ta = cases[i].ta;
        op.attrs.matmul.tb = cases[i].tb;
        op.attrs.matmul.piece = cases[i].piece;
        const struct sw_op_desc desc = {
            .op = &op,
            .in = {{.shape = cases[i].ta ? SW_SHAPE(k, m) : SW_SHAPE(m, k)},
                   {.shape = cases[i].tb ? SW_SHAPE(n, k) : SW_SHAPE(k, n)}},
            .out = {{.shape = SW_SHAPE(m, n)}}};
        struct sw_kernel_info by_own = {0}, by_library = {0};
        sw_cpu_matmul_dnnl.query(&own, &desc, &by_own);
        sw_cpu_matmul_dnnl.query(&library, &desc, &by_library);
        assert_true(by_library.supported);
        assert_int_equal(!by_own.supported, cases[i].is_own);
    }
}

/* oneDNN picks instructions by itself, so it is left out under a limit: AMX is above every
 * limit. */
static void a_limit_leaves_amx_out(void **state)
{
    (void)state;
    const enum cpu_isa newest = CPU_AVX512_BF16, older = CPU_AVX2;
    struct cpu_device limited = {0}, plain = {0};
    sw_cpu_use(&limited, CPU_AVX512_BF16, true, &newest);
    assert_true(limited.isa == newest && limited.is_limited && !limited.has_amx_bf16);
    assert_null(strstr(limited.kernel_set, "onednn"));
    assert_null(strstr(limited.kernel_set, "amx"));
    sw_cpu_use(&plain, CPU_AVX512_BF16, false, &newest);
    assert_false(plain.is_limited); /* there is nothing above the limit */
    sw_cpu_use(&plain, CPU_AVX512, false, &older);
    assert_true(plain.isa == CPU_AVX2 && plain.is_limited);
    sw_cpu_use(&plain, CPU_AVX2, false, &newest);
    assert_true(plain.isa == CPU_AVX2 && !plain.is_limited);
}

static void a_refusal_of_onednn_has_what_was_found(void **state)
{
    (void)state;
    bool amx;
    char found[64];
    struct sw_device *dev;
    const enum cpu_isa isa = sw_cpu_isa_detect(&amx);
    const struct sw_cpu_options options = {
        .n_threads = 1, .max_isa = "portable", .by_library = true};
    assert_int_equal(sw_device_open_cpu(&options, &dev), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), SW_HAVE_DNNL ? "(found: yes)" : "(found: no)"));
    snprintf(found, sizeof found, "(found: %s)", sw_cpu_isa_name(isa));
    assert_non_null(strstr(sw_error_message(), found));
    assert_non_null(
        strstr(sw_error_message(), isa > CPU_PORTABLE ? "(found: portable)" : "(found: none)"));
}

#if defined(SYS_arch_prctl)

/* From now on the system refuses what arch_prctl asks for. */
static bool refuse_registers(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {SW_LEN(code), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void amx_that_the_system_withholds_is_found(void **state)
{
    (void)state;
    enum { NOT_REFUSED = 77 };
    bool amx;
    int status;
    sw_cpu_isa_detect(&amx);
    assert_false(amx && sw_cpu_isa_amx_is_withheld());
    const pid_t child = fork();
    if (child == 0 && !refuse_registers()) {
        _exit(NOT_REFUSED);
    } else if (child == 0) {
        bool left;
        _exit(sw_cpu_isa_detect(&left) < CPU_AMX_BF16 && !left &&
                      sw_cpu_isa_amx_is_withheld() == amx
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!amx || (WIFEXITED(status) && WEXITSTATUS(status) == NOT_REFUSED)) {
        skip();
    }
    assert_int_equal(status, 0);
}

#endif

/* Bytes of this process's address space. */
static rlim_t mapped(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu", &pages), 1);
    fclose(file);
    return (rlim_t)(pages * (unsigned long long)sysconf(_SC_PAGESIZE));
}

/* The status that `check` returns in a process that may map `more` bytes beyond what it has. */
static int within(rlim_t more, int (*check)(const struct cpu_device *, struct cpu_product *),
                  const struct cpu_device *dev, struct cpu_product *product)
{
    const pid_t child = fork();
    if (child == 0) {
        const rlim_t most = mapped() + more;
        const struct rlimit limit = {most, most};
        _exit(setrlimit(RLIMIT_AS, &limit) == 0 ? check(dev, product) : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int is_refused(const struct cpu_device *dev, struct cpu_product *none)
{
    const struct cpu_gemm gemm = {.dtype = SW_F32, .m = 1, .n = 1, .k = 1};
    return sw_cpu_product_open_dnnl(dev, &gemm, &none) == SW_E_NOMEM && !none &&
                   strstr(sw_error_message(), "RLIMIT_AS")
               ? 0
               : 1;
}

static void a_product_of_onednn_without_room_names_the_limit(void **state)
{
    (void)state;
    if (!SW_HAVE_DNNL) {
        skip();
    }
    struct cpu_device dev = {0};
    sw_cpu_use(&dev, CPU_AVX512, false, NULL);
    assert_int_equal(sw_cpu_dnnl_has_room(), SW_OK);
    assert_int_equal(within(4 << 20, is_refused, &dev, NULL), 0);
}

static int grid_is_refused(const struct cpu_device *dev, struct cpu_product *none)
{
    const struct cpu_gemm gemm = {.dtype = SW_F32, .m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1};
    struct cpu_grid grid;
    (void)none;
    return sw_cpu_grid_cut(dev, &gemm, true, &grid) == SW_OK &&
                   sw_cpu_grid_open(dev, &grid) == SW_E_NOMEM && !grid.piece[1][1] &&
                   strstr(sw_error_message(), "RLIMIT_AS")
               ? 0
               : 1;
}

/* A remembered product answers questions. Opening it checks the room again. */
static void a_known_grid_still_needs_room_when_it_is_opened(void **state)
{
    (void)state;
    if (!SW_HAVE_DNNL || !__builtin_cpu_supports("avx512f")) {
        skip();
    }
    static struct cpu_grid known[CPU_KNOWN_GRIDS];
    struct cpu_device dev = {.known_grids = known};
    sw_cpu_use(&dev, CPU_AVX512, false, NULL);
    assert_int_not_equal(within(4 << 20, grid_is_refused, &dev, NULL), 0);
    const struct cpu_gemm gemm = {.dtype = SW_F32, .m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1};
    struct cpu_grid grid;
    assert_int_equal(sw_cpu_grid_cut(&dev, &gemm, true, &grid), SW_OK);
    assert_int_equal(within(4 << 20, grid_is_refused, &dev, NULL), 0);
}

/* More products than there is room for: the answers are those of a device that remembers none. */
static void a_grid_that_was_remembered_is_that_of_its_product(void **state)
{
    (void)state;
    static struct cpu_grid known[CPU_KNOWN_GRIDS];
    struct cpu_device none = {0}, dev = {.known_grids = known};
    sw_cpu_use(&none, CPU_PORTABLE, false, NULL);
    sw_cpu_use(&dev, CPU_PORTABLE, false, NULL);
    for (int i = 0; i < 4 * CPU_KNOWN_GRIDS; i++) {
        const int64_t edge = 1 + i / 2 % (CPU_KNOWN_GRIDS / 3) * 40;
        const struct cpu_gemm gemm = {
            .dtype = SW_F32, .tb = i % 2, .m = edge, .n = 500, .k = 8, .lda = 8, .ldb = 500};
        struct cpu_grid a, b;
        assert_int_equal(sw_cpu_grid_cut(&dev, &gemm, false, &a), SW_OK);
        assert_int_equal(sw_cpu_grid_cut(&none, &gemm, false, &b), SW_OK);
        assert_true(a.whole.m == edge && a.whole.tb == (i % 2 == 1) && a.mb == b.mb &&
                    a.nb == b.nb && a.n_m == b.n_m && a.n_n == b.n_n && !a.piece[1][1] &&
                    a.scratch_bytes == b.scratch_bytes && strcmp(a.path, b.path) == 0);
    }
}

enum { LD = 40 };

static int is_three(const struct cpu_device *dev, struct cpu_product *product)
{
    static const float one[2 * LD] = {1}, three[2 * LD] = {3};
    float c[4] = {0};
    (void)dev;
    product->ops->run(product, 0, 2, one, three, c, NULL);
    return c[0] == 3 ? 0 : 1;
}

/* oneDNN makes some of its code when a product first runs: what was opened has it by then. */
static void a_product_that_was_opened_needs_no_more_room_for_code(void **state)
{
    (void)state;
    struct cpu_device dev = {0};
    sw_cpu_use(&dev, CPU_AVX512, false, NULL);
    if (!SW_HAVE_DNNL || !__builtin_cpu_supports("avx512f") || !sw_cpu_dnnl_takes(&dev, SW_F32)) {
        skip();
    }
    for (int64_t ld = 2; ld <= LD; ld += LD - 2) { /* oneDNN has one way for either */
        const struct cpu_gemm gemm = {
            .dtype = SW_F32, .m = 2, .n = 2, .k = 2, .lda = ld, .ldb = ld, .ldc = 2};
        struct cpu_product *product = NULL;
        assert_int_equal(sw_cpu_product_open_dnnl(&dev, &gemm, &product), SW_OK);
        assert_non_null(product);
        if (product->scratch_bytes == 0) {
            assert_int_equal(within(256 << 10, is_three, &dev, product), 0);
        }
        product->ops->close(product);
    }
}

/* The stack of the thread of the test, and where handlers ran. */
static struct {
    const char *stack;
    size_t stack_bytes;
    volatile sig_atomic_t handled, off_the_stack;
} signals;

static void on_alarm(int number)
{
    const char here = (char)number;
    signals.handled++;
    signals.off_the_stack += (size_t)(&here - signals.stack) >= signals.stack_bytes;
}

static void find_stack(void)
{
    pthread_attr_t attr;
    void *stack;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attr), 0);
    assert_int_equal(pthread_attr_getstack(&attr, &stack, &signals.stack_bytes), 0);
    pthread_attr_destroy(&attr);
    signals.stack = stack;
}

/* Some products of oneDNN compute with the stack pointer in the heap, which a handler would damage:
 * none runs there. */
static void a_signal_during_a_product_is_handled_on_the_stack(void **state)
{
    (void)state;
    enum { ROWS = 7, COLS = 16, TERMS = 128, APART = 384, HANDLED = 50 };
    static float a[TERMS * APART], b[TERMS * APART], c[ROWS * COLS], scratch[1 << 18];
    struct cpu_device dev = {0};
    sw_cpu_use(&dev, CPU_AVX512, false, NULL);
    if (!SW_HAVE_DNNL || !__builtin_cpu_supports("avx512f") || !sw_cpu_dnnl_takes(&dev, SW_F32)) {
        skip();
    }
    find_stack();
    assert_true(signal(SIGALRM, on_alarm) != SIG_ERR);
    const struct itimerval often = {{0, 300}, {0, 300}}, never = {0};
    for (int form = 0; form < 4; form++) {
        const struct cpu_gemm gemm = {.dtype = SW_F32,
                                      .ta = form & 1,
                                      .tb = form & 2,
                                      .m = ROWS,
                                      .n = COLS,
                                      .k = TERMS,
                                      .lda = APART,
                                      .ldb = APART,
                                      .ldc = COLS};
        struct cpu_product *product = NULL;
        assert_int_equal(sw_cpu_product_open_dnnl(&dev, &gemm, &product), SW_OK);
        assert_non_null(product);
        assert_true(product->scratch_bytes <= sizeof scratch);
        signals.handled = 0;
        setitimer(ITIMER_REAL, &often, NULL);
        while (signals.handled < HANDLED) {
            product->ops->run(product, 0, ROWS, a, b, c, scratch);
        }
        setitimer(ITIMER_REAL, &never, NULL);
        product->ops->close(product);
    }
    signal(SIGALRM, SIG_DFL);
    assert_int_equal(signals.off_the_stack, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(amx_is_named_where_something_uses_it),
    cmocka_unit_test(large_f32_products_are_own_ones_on_amx),
    cmocka_unit_test(bf16_is_native_where_a_kernel_takes_it),
    cmocka_unit_test(a_limit_leaves_amx_out),
    cmocka_unit_test(a_refusal_of_onednn_has_what_was_found),
#if defined(SYS_arch_prctl)
    cmocka_unit_test(amx_that_the_system_withholds_is_found),
#endif
    cmocka_unit_test(a_product_of_onednn_without_room_names_the_limit),
    cmocka_unit_test(a_known_grid_still_needs_room_when_it_is_opened),
    cmocka_unit_test(a_grid_that_was_remembered_is_that_of_its_product),
    cmocka_unit_test(a_product_that_was_opened_needs_no_more_room_for_code),
    cmocka_unit_test(a_signal_during_a_product_is_handled_on_the_stack),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
