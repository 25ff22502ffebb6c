// SPDX-License-Identifier: Apache-2.0
// A product piece as one oneDNN matmul primitive, run in one thread. oneDNN 2 built for OpenMP asks
// the OpenMP runtime for the number of threads, both when a primitive is made (it picks its
// blocking by it) and when it runs. We set that number to 1 in the calling thread for both and then
// restore it. So results depend on the piece alone, and oneDNN opens no team. The two OpenMP
// functions are looked up in the process, so that we need no OpenMP of our own. Each worker has its
// own stream and memory objects; the scratchpad is ours.
#include "device/cpu/fast.h"

#if SW_HAVE_DNNL
#include <dlfcn.h>
#include <dnnl.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

struct worker {
    dnnl_stream_t stream;
    dnnl_memory_t a, b, c, scratchpad;
};

struct product {
    struct cpu_product super;
    dnnl_engine_t engine;
    dnnl_primitive_t primitive;
    void (*set_threads)(int n);
    int (*max_threads)(void);
    bool is_gemm; /* by oneDNN's GEMM */
    int n_workers;
    struct worker workers[];
};

static void find_openmp(struct product *p)
{
    *(void **)&p->set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    *(void **)&p->max_threads = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
}

static int enter_one_thread(const struct product *p)
{
    if (!p->set_threads || !p->max_threads) {
        return 0;
    }
    const int before = p->max_threads();
    if (before != 1) {
        p->set_threads(1);
    }
    return before;
}

static void leave_one_thread(const struct product *p, int before)
{
    if (before > 1) {
        p->set_threads(before);
    }
}

/* oneDNN's GEMM computes with the stack pointer inside a buffer on the heap. The kernel would write
 * the frame of a signal handler below it, over other blocks of the heap, so signals wait until the
 * product is done. Only worker 0, the caller's thread, receives any. */
static void block_signals(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

static void run(const void *self, int i_worker, int64_t m, const void *a, const void *b, float *c,
                void *scratch)
{
    (void)m; /* a primitive has a fixed number of rows */
    const struct product *p = self;
    const struct worker *w = &p->workers[i_worker];
    bool ok = dnnl_memory_set_data_handle(w->a, (void *)(uintptr_t)a) == dnnl_success &&
              dnnl_memory_set_data_handle(w->b, (void *)(uintptr_t)b) == dnnl_success &&
              dnnl_memory_set_data_handle(w->c, c) == dnnl_success;
    if (w->scratchpad) {
        ok = ok && dnnl_memory_set_data_handle(w->scratchpad, scratch) == dnnl_success;
    }
    const dnnl_exec_arg_t args[4] = {{DNNL_ARG_SRC, w->a},
                                     {DNNL_ARG_WEIGHTS, w->b},
                                     {DNNL_ARG_DST, w->c},
                                     {DNNL_ARG_SCRATCHPAD, w->scratchpad}};
    sigset_t signals;
    const bool receives_signals = p->is_gemm && i_worker == 0;
    if (receives_signals) {
        block_signals(&signals);
    }
    const int before = enter_one_thread(p);
    ok = ok && dnnl_primitive_execute(p->primitive, w->stream, w->scratchpad ? 4 : 3, args) ==
                   dnnl_success;
    leave_one_thread(p, before);
    if (receives_signals) {
        pthread_sigmask(SIG_SETMASK, &signals, NULL);
    }
    SW_ASSERT(ok); /* a prepared primitive has no reason to fail */
}

static void close_product(void *self)
{
    struct product *p = self;
    for (int i = 0; i < p->n_workers; i++) {
        struct worker *w = &p->workers[i];
        dnnl_memory_destroy(w->a);
        dnnl_memory_destroy(w->b);
        dnnl_memory_destroy(w->c);
        dnnl_memory_destroy(w->scratchpad);
        dnnl_stream_destroy(w->stream);
    }
    dnnl_primitive_destroy(p->primitive);
    dnnl_engine_destroy(p->engine);
    sw_free(p);
}

static const struct cpu_product_ops product_ops = {.run = run, .close = close_product};

static bool describe(dnnl_memory_desc_t *out, dnnl_data_type_t dtype, int64_t rows, int64_t cols,
                     int64_t ld, bool transposed)
{
    const dnnl_dims_t dims = {rows, cols};
    const dnnl_dims_t strides = {transposed ? 1 : ld, transposed ? ld : 1};
    return dnnl_memory_desc_init_by_strides(out, 2, dims, dtype, strides) == dnnl_success;
}

static bool open_worker(struct product *p, struct worker *w, const dnnl_memory_desc_t *a,
                        const dnnl_memory_desc_t *b, const dnnl_memory_desc_t *c,
                        const dnnl_memory_desc_t *scratchpad)
{
    return dnnl_stream_create(&w->stream, p->engine, dnnl_stream_default_flags) == dnnl_success &&
           dnnl_memory_create(&w->a, a, p->engine, DNNL_MEMORY_NONE) == dnnl_success &&
           dnnl_memory_create(&w->b, b, p->engine, DNNL_MEMORY_NONE) == dnnl_success &&
           dnnl_memory_create(&w->c, c, p->engine, DNNL_MEMORY_NONE) == dnnl_success &&
           (p->super.scratch_bytes == 0 || dnnl_memory_create(&w->scratchpad, scratchpad, p->engine,
                                                              DNNL_MEMORY_NONE) == dnnl_success);
}

/* False if oneDNN has no direct implementation of this product. */
static bool open_primitive(struct product *p, const struct cpu_gemm *g)
{
    const dnnl_data_type_t dtype = g->dtype == SW_BF16 ? dnnl_bf16 : dnnl_f32;
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    bool ok =
        dnnl_engine_create(&p->engine, dnnl_cpu, 0) == dnnl_success &&
        describe(&a, dtype, g->m, g->k, g->lda, g->ta) &&
        describe(&b, dtype, g->k, g->n, g->ldb, g->tb) &&
        describe(&c, dnnl_f32, g->m, g->n, g->ldc, false) &&
        dnnl_matmul_desc_init(&desc, &a, &b, NULL, &c) == dnnl_success &&
        dnnl_primitive_attr_create(&attr) == dnnl_success &&
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success &&
        dnnl_primitive_desc_create(&pd, &desc, attr, p->engine, NULL) == dnnl_success;
    if (ok) {
        const char *implementation = "";
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &implementation);
        const dnnl_memory_desc_t *scratchpad =
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        p->super.scratch_bytes = sw_round_up(dnnl_memory_desc_get_size(scratchpad), CPU_LINE);
        p->is_gemm = strstr(implementation, "gemm") != NULL;
        ok = !strstr(implementation, "ref") &&
             dnnl_primitive_create(&p->primitive, pd) == dnnl_success;
        for (int i = 0; ok && i < p->n_workers; i++) {
            ok = open_worker(p, &p->workers[i], &a, &b, &c, scratchpad);
        }
    }
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return ok;
}

/* True from AVX-512 on. With AVX2 alone our products are faster: on an AMD EPYC, oneDNN 2.6 reaches
 * 0.37 of the multiply-add peak, ours 0.6. oneDNN picks instructions by itself, so it is left out
 * if a limit is set: otherwise the limit would not hold. */
bool sw_cpu_dnnl_takes(const struct cpu_device *dev, enum sw_dtype dtype)
{
    return dev->isa > CPU_AVX2 && !dev->is_limited &&
           (dtype == SW_F32 || (dtype == SW_BF16 && dev->isa >= CPU_AVX512_BF16));
}

/* A generous estimate of what oneDNN maps for the code and tables of one primitive. */
enum { ROOM_MAPS = 4, ROOM_BYTES = 16 << 20 };

sw_status sw_cpu_dnnl_has_room(void)
{
    const size_t part = ROOM_BYTES / (2 * ROOM_MAPS);
    char *room = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int error = room == MAP_FAILED ? errno : 0;
    for (size_t i = 0; i < ROOM_MAPS && !error; i++) { /* every other part, a mapping of its own */
        error = mprotect(room + 2 * i * part, part, PROT_READ | PROT_WRITE | PROT_EXEC) ? errno : 0;
    }
    if (room != MAP_FAILED) {
        munmap(room, ROOM_BYTES);
    }
    if (!error) {
        return SW_OK;
    }
    struct rlimit limit;
    char bytes[32] = "none";
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        sw_format_bytes(bytes, sizeof bytes, (double)limit.rlim_cur);
    }
    return SW_FAIL(SW_E_NOMEM, /* no reason to take another kernel, whose bits are others */
                   "oneDNN cannot map %d MiB of memory for the code of a product: %s; the limit of "
                   "the address space (ulimit -v, RLIMIT_AS) is %s, that of mappings is "
                   "vm.max_map_count, and executable memory must be allowed; SPILLWAY_ISA=avx2 "
                   "computes without oneDNN",
                   ROOM_BYTES >> 20, strerror(error), bytes);
}

/* *out is NULL where oneDNN has no such product. */
static sw_status open_product(const struct cpu_gemm *gemm, int n_workers, struct product **out)
{
    struct product *p =
        sw_alloc_zero("device", 1, sizeof *p + (size_t)n_workers * sizeof p->workers[0]);
    *out = NULL;
    SW_TRY_ALLOC(p, "a matrix product");
    p->super.ops = &product_ops;
    p->n_workers = n_workers;
    find_openmp(p);
    const int before = enter_one_thread(p);
    const bool ok = open_primitive(p, gemm);
    leave_one_thread(p, before);
    if (!ok) {
        close_product(p);
        return SW_OK;
    }
    *out = p;
    return SW_OK;
}

/* oneDNN makes the code of its GEMM when the first product by it runs in a process, and ends the
 * program if that code cannot be mapped. Here a product whose rows lie apart, which the GEMM takes,
 * has it made. */
static sw_status make_gemm_code(enum sw_dtype dtype)
{
    enum { LD = 16 };
    const struct cpu_gemm gemm = {
        .dtype = dtype, .m = 2, .n = 2, .k = 2, .lda = LD, .ldb = LD, .ldc = 2};
    const float zeros[2 * LD] = {0};
    float c[4];
    struct product *p;
    SW_TRY(open_product(&gemm, 1, &p));
    if (p && p->super.scratch_bytes == 0) {
        run(p, 0, gemm.m, zeros, zeros, c, NULL);
    }
    if (p) {
        close_product(p);
    }
    return SW_OK;
}

sw_status sw_cpu_product_open_dnnl(const struct cpu_device *dev, const struct cpu_gemm *gemm,
                                   struct cpu_product **out)
{
    *out = NULL;
    if (!sw_cpu_dnnl_takes(dev, gemm->dtype) || gemm->m == 0 || gemm->n == 0 || gemm->k == 0) {
        return SW_OK;
    }
    SW_TRY(sw_cpu_dnnl_has_room());
    struct product *p;
    SW_TRY(open_product(gemm, cpu_workers(dev->pool), &p));
    if (!p) {
        return SW_OK;
    }
    const sw_status st = p->is_gemm ? make_gemm_code(gemm->dtype) : SW_OK;
    if (st < 0) {
        close_product(p);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    p->super.path = gemm->dtype == SW_F32 ? "onednn f32" : "onednn bf16";
    *out = &p->super;
    return SW_OK;
}

void sw_cpu_dnnl_describe(char *out, size_t cap)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(out, cap, "onednn-%d.%d.%d:%x", version->major, version->minor, version->patch,
             (unsigned)dnnl_get_effective_cpu_isa());
}

#else

bool sw_cpu_dnnl_takes(const struct cpu_device *dev, enum sw_dtype dtype)
{
    (void)dev;
    (void)dtype;
    return false;
}

sw_status sw_cpu_dnnl_has_room(void)
{
    return SW_OK;
}

sw_status sw_cpu_product_open_dnnl(const struct cpu_device *dev, const struct cpu_gemm *gemm,
                                   struct cpu_product **out)
{
    (void)dev;
    (void)gemm;
    *out = NULL;
    return SW_OK;
}

void sw_cpu_dnnl_describe(char *out, size_t cap)
{
    if (cap > 0) {
        out[0] = '\0';
    }
}
#endif
