// SPDX-License-Identifier: Apache-2.0
// The CPU device. A stream is its caller: work runs inline, its items on the pool, so every queue
// is always drained. A stream that waits for a timeline blocks the caller. Kernels are chosen when
// they are prepared: the first fast row that takes the op, else the reference row.
#include "device/cpu/cpu.h"
#include "device/cpu/dots.h"
#include "device/cpu/fast.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };
enum { FAST_ROWS = 3 }; /* incremented by every change of the fast rows that changes a bit */

/* One byte of state: a handle only has to differ from NULL. */
struct sw_stream_queue {
    char unused;
};

struct sw_kernel {
    const struct cpu_kernel *row;
    struct sw_op op; /* a copy that desc.op points to: the graph may be freed */
    struct sw_op_desc desc;
    void *prepared;
};

static struct cpu_device *cpu_of(struct sw_device *dev)
{
    return SW_CONTAINER(dev, struct cpu_device, super);
}

static void close_device(struct sw_device *dev)
{
    struct cpu_device *cpu = cpu_of(dev);
    sw_pool_close(cpu->pool);
    sw_free(cpu->known_grids);
    sw_free(cpu);
}

static sw_status mem_alloc(struct sw_device *dev, enum sw_mem kind, size_t bytes, void **out)
{
    (void)dev;
    void *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mem == MAP_FAILED) {
        char text[32];
        return SW_FAIL(SW_E_NOMEM, "device cpu: the system has no %s of %s memory (%s)",
                       sw_format_bytes(text, sizeof text, (double)bytes),
                       kind == SW_MEM_DEVICE ? "device" : "host", strerror(errno));
    }
#if defined(MADV_HUGEPAGE)
    if (bytes >= 2 * HUGE_PAGE) {
        madvise(mem, bytes, MADV_HUGEPAGE); /* fewer TLB misses; a refusal is harmless */
    }
#endif
    *out = mem;
    return SW_OK;
}

static void mem_free(struct sw_device *dev, enum sw_mem kind, void *mem, size_t bytes)
{
    (void)dev;
    (void)kind;
    munmap(mem, bytes);
}

static sw_status stream_open(struct sw_device *dev, struct sw_stream_queue **out)
{
    (void)dev;
    struct sw_stream_queue *stream = sw_alloc_zero("device", 1, sizeof *stream);
    SW_TRY_ALLOC(stream, "a stream");
    *out = stream;
    return SW_OK;
}

static void stream_close(struct sw_device *dev, struct sw_stream_queue *stream)
{
    (void)dev;
    sw_free(stream);
}

static sw_status stream_wait(struct sw_device *dev, struct sw_stream_queue *stream)
{
    (void)dev;
    (void)stream;
    return SW_OK;
}

static sw_status copy(struct sw_device *dev, struct sw_stream_queue *on, void *dst, const void *src,
                      size_t bytes)
{
    (void)dev;
    (void)on;
    memmove(dst, src, bytes);
    return SW_OK;
}

static sw_status fill(struct sw_device *dev, struct sw_stream_queue *on, void *dst, int byte,
                      size_t bytes)
{
    (void)dev;
    (void)on;
    memset(dst, byte, bytes);
    return SW_OK;
}

/* Runs on the calling thread, not on the pool: the pool belongs to the computing thread. */
static sw_status add_slices(struct sw_device *dev, struct sw_stream_queue *on,
                            const struct sw_slice_sum *sum)
{
    (void)on;
    const struct cpu_device *cpu = cpu_of(dev);
    if (!cpu->reference) {
        sw_cpu_vector_for(cpu->isa)->add_slices(sum);
        return SW_OK;
    }
    sw_add_slices(sum->acc, sum->dtype, sum->slices, sum->n, sum->n_slices, sum->fresh);
    if (sum->rounded) {
        sw_convert(sum->dtype, sum->rounded, SW_F32, sum->acc, sum->n);
    }
    return SW_OK;
}

static sw_status add_words(struct sw_device *dev, struct sw_stream_queue *on, int64_t *out,
                           const int64_t *words, int64_t n_sets, int64_t n)
{
    (void)dev;
    (void)on;
    for (int64_t i = 0; i < n; i++) {
        uint64_t sum = 0; /* unsigned: words of a skipped update may hold anything */
        for (int64_t k = 0; k < n_sets; k++) {
            sum += (uint64_t)words[k * n + i];
        }
        out[i] = (int64_t)sum;
    }
    return SW_OK;
}

/* ---- timelines ---- */

/* Work runs when it is queued, so a stream signals at once, and a waiting stream blocks the thread
 * that queues. */
struct sw_timeline {
    atomic_llong value;
    atomic_int n_asleep;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static sw_status timeline_open(struct sw_device *dev, struct sw_timeline **out)
{
    (void)dev;
    struct sw_timeline *timeline = sw_alloc_zero("device", 1, sizeof *timeline);
    SW_TRY_ALLOC(timeline, "a timeline");
    pthread_mutex_init(&timeline->lock, NULL);
    pthread_cond_init(&timeline->changed, NULL);
    *out = timeline;
    return SW_OK;
}

static void timeline_close(struct sw_device *dev, struct sw_timeline *timeline)
{
    (void)dev;
    if (timeline) {
        pthread_cond_destroy(&timeline->changed);
        pthread_mutex_destroy(&timeline->lock);
        sw_free(timeline);
    }
}

/* A thread that is about to sleep counts itself as a waiter before its last check. */
static sw_status timeline_set(struct sw_device *dev, struct sw_timeline *timeline, int64_t value)
{
    (void)dev;
    atomic_store(&timeline->value, value);
    if (atomic_load(&timeline->n_asleep) > 0) {
        pthread_mutex_lock(&timeline->lock);
        pthread_cond_broadcast(&timeline->changed);
        pthread_mutex_unlock(&timeline->lock);
    }
    return SW_OK;
}

static int64_t timeline_get(struct sw_device *dev, const struct sw_timeline *timeline)
{
    (void)dev;
    return atomic_load(&timeline->value);
}

static sw_status timeline_wait(struct sw_device *dev, struct sw_timeline *timeline, int64_t value)
{
    enum { LOOKS = 40 };
    (void)dev;
    for (int i = 0; i < LOOKS && atomic_load(&timeline->value) < value; i++) {
        sched_yield(); /* the counter is often nearly there */
    }
    if (atomic_load(&timeline->value) >= value) {
        return SW_OK;
    }
    pthread_mutex_lock(&timeline->lock);
    atomic_fetch_add(&timeline->n_asleep, 1);
    while (atomic_load(&timeline->value) < value) {
        pthread_cond_wait(&timeline->changed, &timeline->lock);
    }
    atomic_fetch_sub(&timeline->n_asleep, 1);
    pthread_mutex_unlock(&timeline->lock);
    return SW_OK;
}

static sw_status stream_signal(struct sw_device *dev, struct sw_stream_queue *on,
                               struct sw_timeline *timeline, int64_t value)
{
    (void)on;
    return timeline_set(dev, timeline, value);
}

static sw_status stream_await(struct sw_device *dev, struct sw_stream_queue *on,
                              struct sw_timeline *timeline, int64_t value)
{
    (void)on;
    return timeline_wait(dev, timeline, value);
}

/* ---- kernels ---- */

static bool takes(const struct cpu_device *cpu, const struct cpu_kernel *row,
                  const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    memset(out, 0, sizeof *out);
    row->query(cpu, desc, out);
    return out->supported;
}

/* The kernel that runs an op decides its bits. If memory ran out during a query, no other kernel is
 * taken instead. */
const struct cpu_kernel *sw_cpu_choose(const struct cpu_device *cpu, const struct sw_op_desc *desc,
                                       struct sw_kernel_info *out)
{
    const enum sw_op_kind kind = desc->op->kind;
    memset(out, 0, sizeof *out);
    for (int i = 0; !cpu->reference && i < 4 && sw_cpu_fast_rows[kind][i]; i++) {
        if (takes(cpu, sw_cpu_fast_rows[kind][i], desc, out)) {
            return sw_cpu_fast_rows[kind][i];
        }
        if (out->no_memory) {
            return NULL;
        }
    }
    const struct cpu_kernel *row = &sw_cpu_reference_rows[kind];
    return row->query && takes(cpu, row, desc, out) ? row : NULL;
}

static void query(struct sw_device *dev, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    if (!sw_cpu_choose(cpu_of(dev), desc, out)) {
        *out = (struct sw_kernel_info){.no_memory = out->no_memory};
    }
}

static sw_status prepare(struct sw_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel **out)
{
    struct cpu_device *cpu = cpu_of(dev);
    struct sw_kernel_info info;
    const struct cpu_kernel *row = sw_cpu_choose(cpu, desc, &info);
    if (!row && info.no_memory) {
        return sw_fail_prefix(SW_E_NOMEM, "a kernel of %s", sw_op_name(desc->op));
    }
    if (!row) {
        return SW_FAIL(SW_E_UNSUP, "device %s has no kernel for op %s", dev->ops->name,
                       sw_op_name(desc->op));
    }
    struct sw_kernel *kernel = sw_alloc_zero("device", 1, sizeof *kernel);
    SW_TRY_ALLOC(kernel, "a kernel");
    kernel->row = row;
    kernel->op = *desc->op;
    kernel->desc = *desc;
    kernel->desc.op = &kernel->op;
    if (row->prepare) {
        const sw_status st = row->prepare(cpu, &kernel->desc, &kernel->prepared);
        if (st < 0) {
            sw_free(kernel);
            return st == SW_E_NOMEM ? sw_fail_prefix(st, "a kernel of %s", sw_op_name(desc->op))
                                    : sw_frame_at(__FILE__, __LINE__, st);
        }
    }
    *out = kernel;
    return SW_OK;
}

static void release(struct sw_device *dev, struct sw_kernel *kernel)
{
    (void)dev;
    if (kernel && kernel->row->release) {
        kernel->row->release(kernel->prepared);
    }
    sw_free(kernel);
}

/* The update writes its fp16 working copy as a whole, so nothing has loaded it. A skipped update
 * rounds it from its master. */
static void leave_operands(const struct sw_op_desc *desc, void *const *in)
{
    if (desc->op->kind != SW_OP_UPDATE || desc->in[0].dtype != SW_F16) {
        return;
    }
    const int64_t n = sw_update_elems(desc);
    const bool is_part = sw_shape_elems(&desc->in[0].shape) > n;
    uint16_t *copy = (uint16_t *)in[0] + (is_part ? desc->op->attrs.update.first : 0);
    sw_convert(SW_F16, copy, SW_F32, in[1], n);
}

static sw_status launch(struct sw_device *dev, struct sw_stream_queue *on, struct sw_kernel *kernel,
                        void *const *in, void *const *out, void *workspace, double *scalars)
{
    (void)on;
    const struct sw_op *op = &kernel->op;
    const bool is_predicated = kernel->desc.is_predicated || sw_op_has(op, SW_TRAIT_UPDATE);
    if (is_predicated && scalars[SW_SCALAR_SKIP] != 0) {
        leave_operands(&kernel->desc, in);
        return SW_OK;
    }
    const struct cpu_call call = {&kernel->desc,   in, out, workspace, scalars, cpu_of(dev)->pool,
                                  kernel->prepared};
    kernel->row->run(&call);
    return SW_OK;
}

static const struct sw_device_ops cpu_ops = {
    .name = "cpu",
    SW_DEVICE_OPS,
};

static void name_kernel_set(struct cpu_device *cpu)
{
    if (cpu->reference) {
        snprintf(cpu->kernel_set, sizeof cpu->kernel_set, "cpu reference");
        return;
    }
    char more[96];
    const struct cpu_dot_kernel *dots = sw_cpu_dot_kernel(cpu);
    const char *bf16 = dots ? dots->name : sw_cpu_dnnl_takes(cpu, SW_BF16) ? "native" : "converted";
    sw_cpu_fast_describe(cpu, more, sizeof more);
    snprintf(cpu->kernel_set, sizeof cpu->kernel_set, "cpu %s v%d%s%s bf16:%s%s%s",
             sw_cpu_isa_name(cpu->isa), FAST_ROWS,
             cpu->isa == CPU_AVX512_BF16 && cpu->fast_vdpbf16 ? " vdpbf16" : "",
             cpu->has_amx_bf16 && cpu->isa < CPU_AMX_BF16 ? " amx_bf16" : "", bf16,
             more[0] ? " " : "", more);
}

void sw_cpu_use(struct cpu_device *cpu, enum cpu_isa found, bool amx_bf16,
                const enum cpu_isa *limit)
{
    cpu->isa = limit && *limit < found ? *limit : found;
    cpu->is_limited = limit && (*limit < found || (amx_bf16 && *limit < CPU_AMX_BF16));
    cpu->has_amx_bf16 = amx_bf16 && sw_cpu_dnnl_takes(cpu, SW_BF16);
    name_kernel_set(cpu);
}

sw_status sw_device_open_cpu(const struct sw_cpu_options *options, struct sw_device **out)
{
    bool amx_bf16;
    enum cpu_isa limit;
    const enum cpu_isa found = sw_cpu_isa_detect(&amx_bf16);
    const char *asked = getenv("SPILLWAY_ISA");
    const char *max_isa = options->max_isa ? options->max_isa : asked && *asked ? asked : NULL;
    if (max_isa && !sw_cpu_isa_parse(max_isa, &limit)) {
        return SW_FAIL(SW_E_ARG,
                       "%s: unknown instruction set \"%s\"; wanted portable, avx2, avx512, "
                       "avx512_bf16 or amx_bf16",
                       options->max_isa ? "device cpu" : "SPILLWAY_ISA", max_isa);
    }
    struct cpu_device *cpu = sw_alloc_zero("device", 1, sizeof *cpu);
    SW_TRY_ALLOC(cpu, "the CPU device");
    cpu->super.ops = &cpu_ops;
    cpu->super.caps = SW_DEVICE_HOST_VISIBLE | SW_DEVICE_DISK_REACHES | SW_DEVICE_COMM_REACHES;
    cpu->super.kernel_set = cpu->kernel_set;
    cpu->super.what = "cpu";
    cpu->reference = options->reference;
    cpu->by_library = options->by_library;
    cpu->fast_vdpbf16 = sw_cpu_isa_fast_vdpbf16();
    sw_cpu_use(cpu, found, amx_bf16, max_isa ? &limit : NULL);
    if (options->by_library && !sw_cpu_dnnl_takes(cpu, SW_F32)) {
        const char *below = cpu->is_limited ? max_isa : "none";
        sw_free(cpu);
        return SW_FAIL(SW_E_UNSUP,
                       "device cpu: kernels \"onednn\" need a build with oneDNN (found: %s), a "
                       "processor with AVX-512 (found: %s) and no limit of the instruction set "
                       "below the processor's (found: %s); wanted: kernels \"fast\"",
                       SW_HAVE_DNNL ? "yes" : "no", sw_cpu_isa_name(found), below);
    }
    cpu->known_grids = sw_alloc_zero("device", CPU_KNOWN_GRIDS, sizeof *cpu->known_grids);
    const sw_status st = cpu->known_grids
                             ? sw_pool_open(options->n_threads, &cpu->pool)
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for the CPU device");
    if (st < 0) {
        close_device(&cpu->super);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = &cpu->super;
    return SW_OK;
}
