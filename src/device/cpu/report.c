// SPDX-License-Identifier: Apache-2.0
// This processor's peaks and the speed of our products, for `spillway doctor` and the benches.
// Every figure is the best of a few short measurements, since other processes may use the machine
// meanwhile.
#include <stdio.h>
#include <string.h>

#include "device/cpu/fast.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { ATTEMPTS = 5, PRODUCT_EDGE = 1024 };
enum { COPY_BYTES = 64 << 20, COPY_PARTS = 64 };
static const double attempt_s = 0.02; /* least time of one measurement */
static const double product_s = 0.1;  /* least time of all measurements of a product */

void sw_device_processor_name(char *out, size_t cap)
{
    snprintf(out, cap, "unknown processor");
#if defined(__x86_64__)
    unsigned words[12], a, b, c, d;
    if (!__get_cpuid(0x80000000, &a, &b, &c, &d) || a < 0x80000004) {
        return;
    }
    for (unsigned leaf = 0; leaf < 3; leaf++) {
        unsigned *w = words + 4 * leaf;
        __get_cpuid(0x80000002 + leaf, &w[0], &w[1], &w[2], &w[3]);
    }
    char text[sizeof words + 1];
    memcpy(text, words, sizeof words);
    text[sizeof words] = '\0';
    snprintf(out, cap, "%s", text + strspn(text, " "));
#endif
}

/* ---- peak on registers ---- */

static double register_gflops(double (*peak)(int64_t rounds, float *sink))
{
    float sink = 1;
    double best = 0;
    int64_t rounds = 100000;
    for (int i = 0; i < ATTEMPTS; i++) {
        const double start = sw_now_s(), flops = peak(rounds, &sink);
        const double seconds = sw_now_s() - start;
        if (seconds < attempt_s && seconds > 0) {
            rounds = (int64_t)((double)rounds * 1.2 * attempt_s / seconds) + 1;
        }
        best = flops / seconds > best ? flops / seconds : best;
    }
    return best * 1e-9;
}

/* ---- copy ---- */

struct copy_job {
    char *to;
    const char *from;
};

static void copy_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct copy_job *job = ctx;
    const size_t part = COPY_BYTES / COPY_PARTS, at = (size_t)i_item * part;
    (void)i_worker;
    memcpy(job->to + at, job->from + at, part);
}

static sw_status measure_copy(struct cpu_device *cpu, double *out_gb_s)
{
    struct sw_device *dev = &cpu->super;
    void *to = NULL, *from = NULL;
    SW_TRY(sw_device_alloc(dev, SW_MEM_HOST, COPY_BYTES, &to));
    const sw_status st = sw_device_alloc(dev, SW_MEM_HOST, COPY_BYTES, &from);
    if (st < 0) {
        sw_device_free(dev, SW_MEM_HOST, to, COPY_BYTES);
        return st;
    }
    memset(from, 1, COPY_BYTES);
    memset(to, 2, COPY_BYTES);
    struct copy_job job = {to, from};
    double best = 0;
    for (int i = 0; i < ATTEMPTS; i++) {
        const double start = sw_now_s();
        sw_pool_run(cpu->pool, COPY_PARTS, copy_item, &job);
        const double speed = 2.0 * COPY_BYTES / (sw_now_s() - start);
        best = speed > best ? speed : best;
    }
    *out_gb_s = best * 1e-9;
    sw_device_free(dev, SW_MEM_HOST, from, COPY_BYTES);
    sw_device_free(dev, SW_MEM_HOST, to, COPY_BYTES);
    return SW_OK;
}

/* ---- products ---- */

static struct sw_view view(enum sw_dtype dtype, struct sw_shape shape)
{
    struct sw_view out = {.dtype = dtype, .shape = shape};
    sw_shape_row_major(&shape, out.strides);
    return out;
}

static struct sw_view square(enum sw_dtype dtype)
{
    return view(dtype, SW_SHAPE(PRODUCT_EDGE, PRODUCT_EDGE));
}

static sw_status measure_product(struct sw_device *dev, enum sw_dtype dtype, char *path, size_t cap,
                                 double *out_gflops)
{
    const struct sw_op op = {.kind = SW_OP_MATMUL, .n_in = 2, .n_out = 1};
    const struct sw_op_desc desc = {
        .op = &op, .in = {square(dtype), square(dtype)}, .out = {square(dtype)}};
    struct sw_kernel_info info;
    sw_device_query(dev, &desc, &info);
    if (!info.supported) {
        return SW_FAIL(SW_E_UNSUP, "device %s does not multiply %s", dev->ops->name,
                       sw_dtype_name(dtype));
    }
    snprintf(path, cap, "%s", info.path ? info.path : "");
    const size_t bytes = (size_t)PRODUCT_EDGE * PRODUCT_EDGE * sw_dtype_bytes(dtype);
    const size_t total = 3 * bytes + info.workspace_bytes;
    struct sw_stream_queue *stream = NULL;
    struct sw_kernel *kernel = NULL;
    void *mem = NULL;
    sw_status st = SW_OK;
    SW_TRY(sw_device_alloc(dev, SW_MEM_DEVICE, total, &mem));
    SW_TRY_OR(free_memory, dev->ops->stream_open(dev, &stream));
    SW_TRY_OR(close_stream, sw_device_prepare(dev, &desc, &kernel));
    memset(mem, 0, total); /* touches the pages; zeros multiply as fast as other numbers */
    void *in[2] = {mem, (char *)mem + bytes};
    void *out[1] = {(char *)mem + 2 * bytes};
    void *workspace = (char *)mem + 3 * bytes;
    double scalars[SW_SCALAR_COUNT] = {0};
    double best = 0;
    const double begin = sw_now_s();
    for (int i = 0; i < ATTEMPTS || sw_now_s() - begin < product_s; i++) {
        const double start = sw_now_s();
        SW_TRY_OR(release_kernel,
                  sw_device_launch(dev, stream, kernel, in, out, workspace, scalars));
        SW_TRY_OR(release_kernel, dev->ops->stream_wait(dev, stream));
        const double speed =
            2.0 * PRODUCT_EDGE * PRODUCT_EDGE * PRODUCT_EDGE / (sw_now_s() - start);
        best = speed > best ? speed : best;
    }
    *out_gflops = best * 1e-9;
release_kernel:
    dev->ops->release(dev, kernel);
close_stream:
    dev->ops->stream_close(dev, stream);
free_memory:
    sw_device_free(dev, SW_MEM_DEVICE, mem, total);
    return st;
}

/* ---- the kernels by op and dtype ---- */

enum { TOKENS = 512, HEADS = 12, WIDTH = 768, VOCAB = 50257, CHUNK = 4096 };

static void attention_op(struct sw_op *op, struct sw_op_desc *desc, enum sw_dtype dtype, bool grad)
{
    const struct sw_view packed = view(dtype, SW_SHAPE(1, TOKENS, 3 * WIDTH));
    const struct sw_view rows = view(dtype, SW_SHAPE(1, TOKENS, WIDTH));
    const struct sw_view lse = view(SW_F32, SW_SHAPE(1, HEADS, TOKENS));
    op->attrs.attention = (struct sw_attention_attrs){
        .heads = HEADS, .kv_heads = HEADS, .causal = true, .packed = true, .scale = 0.125};
    if (grad) {
        const struct sw_view in[] = {rows, rows, lse, packed};
        memcpy(desc->in, in, sizeof in);
        desc->out[0] = packed;
    } else {
        desc->in[0] = packed;
        desc->out[0] = rows;
        desc->out[1] = lse;
    }
    op->n_in = grad ? 4 : 1;
    op->n_out = grad ? 1 : 2;
}

static void loss_op(struct sw_op *op, struct sw_op_desc *desc, enum sw_dtype dtype, bool grad)
{
    const struct sw_view scalar = view(SW_F32, SW_SHAPE(1));
    const struct sw_view x = view(dtype, SW_SHAPE(TOKENS, WIDTH));
    const struct sw_view w = view(dtype, SW_SHAPE(VOCAB, WIDTH));
    const struct sw_view label = view(SW_I32, SW_SHAPE(TOKENS));
    const struct sw_view lse = view(SW_F32, SW_SHAPE(TOKENS));
    op->attrs.linear_ce.chunk = CHUNK;
    if (grad) {
        const struct sw_view in[] = {scalar, x, w, label, lse};
        memcpy(desc->in, in, sizeof in);
        desc->out[0] = x;
        desc->out[1] = w;
    } else {
        const struct sw_view in[] = {x, w, label}, out[] = {scalar, scalar, lse};
        memcpy(desc->in, in, sizeof in);
        memcpy(desc->out, out, sizeof out);
    }
    op->n_in = grad ? 5 : 3;
    op->n_out = grad ? 2 : 3;
}

static void name_kernels(struct sw_device *dev, struct sw_cpu_report *report)
{
    static const struct {
        enum sw_op_kind kind;
        bool grad;
        const char *name; /* NULL = that of the op */
    } ops[SW_CPU_OPS] = {{SW_OP_MATMUL, false, NULL},    {SW_OP_MATMUL, false, "matmul, 512 rows"},
                         {SW_OP_ATTENTION, false, NULL}, {SW_OP_ATTENTION_GRAD, true, NULL},
                         {SW_OP_LINEAR_CE, false, NULL}, {SW_OP_LINEAR_CE_GRAD, true, NULL}};
    for (size_t i = 0; i < SW_LEN(ops); i++) {
        for (size_t k = 0; k < SW_LEN(report->peak); k++) {
            const enum sw_dtype dtype = report->peak[k].dtype;
            struct sw_op op = {.kind = ops[i].kind, .n_in = 2, .n_out = 1};
            struct sw_op_desc desc = {.op = &op};
            struct sw_kernel_info info;
            for (int o = 0; o < SW_MAX_OUTPUTS; o++) {
                desc.out[o].shape.rank = -1;
            }
            const enum sw_op_kind kind = ops[i].kind;
            if (kind == SW_OP_MATMUL && ops[i].name) {
                desc.in[0] = desc.out[0] = view(dtype, SW_SHAPE(TOKENS, WIDTH));
                desc.in[1] = view(dtype, SW_SHAPE(WIDTH, WIDTH));
            } else if (kind == SW_OP_MATMUL) {
                desc.in[0] = desc.in[1] = desc.out[0] = square(dtype);
            } else if (kind == SW_OP_ATTENTION || kind == SW_OP_ATTENTION_GRAD) {
                attention_op(&op, &desc, dtype, ops[i].grad);
            } else {
                loss_op(&op, &desc, dtype, ops[i].grad);
            }
            sw_device_query(dev, &desc, &info);
            report->kernel[i].op = ops[i].name ? ops[i].name : sw_op_name(&op);
            snprintf(report->kernel[i].path[k], sizeof report->kernel[i].path[k], "%s",
                     !info.supported ? "none"
                     : info.path     ? info.path
                                     : "plain C");
        }
    }
}

/* The peak of bf16: that of the fastest instruction in use. */
static void measure_bf16(const struct cpu_device *cpu, struct sw_cpu_report *report)
{
#if defined(__x86_64__) && !defined(SPILLWAY_WITHOUT_AVX512)
    const double by_vector = cpu->isa >= CPU_AVX512_BF16 ? register_gflops(sw_cpu_peak_bf16) : 0;
    if (by_vector > report->peak[1].register_gflops) {
        report->peak[1].register_gflops = by_vector;
        report->peak[1].unit = "vdpbf16ps";
    }
#endif
#if defined(__x86_64__) && !defined(SPILLWAY_WITHOUT_AMX)
    const double by_tiles = cpu->isa >= CPU_AMX_BF16 ? register_gflops(sw_cpu_peak_amx) : 0;
    if (by_tiles > report->peak[1].register_gflops) {
        report->peak[1].register_gflops = by_tiles;
        report->peak[1].unit = "tdpbf16ps";
    }
#endif
    (void)cpu;
    (void)report;
}

sw_status sw_device_cpu_report(struct sw_device *dev, struct sw_cpu_report *out)
{
    if (strcmp(dev->ops->name, "cpu") != 0) {
        return SW_FAIL(SW_E_ARG, "device %s is not a processor of this machine", dev->ops->name);
    }
    struct cpu_device *cpu = SW_CONTAINER(dev, struct cpu_device, super);
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    struct sw_cpu_report report = {.n_threads = sw_pool_threads(cpu->pool)};
    bool amx = false;
    const enum cpu_isa found = sw_cpu_isa_detect(&amx);
    sw_device_processor_name(report.cpu, sizeof report.cpu);
    snprintf(report.isa, sizeof report.isa, "%s found%s, %s used", sw_cpu_isa_name(found),
             amx && found < CPU_AMX_BF16 ? " with amx" : "",
             cpu->reference ? "plain C" : sw_cpu_isa_name(cpu->isa));
    const struct cpu_vector *vector = sw_cpu_vector_for(cpu->isa);
    const double fma = register_gflops(vector->peak);
    for (size_t i = 0; i < SW_LEN(dtypes); i++) {
        report.peak[i].dtype = dtypes[i];
        report.peak[i].register_gflops = fma;
        report.peak[i].unit = vector->name;
        SW_TRY(measure_product(dev, dtypes[i], report.peak[i].path, sizeof report.peak[i].path,
                               &report.peak[i].product_gflops));
    }
    report.without_amx = sw_cpu_isa_amx_is_withheld()
                             ? "the operating system does not let this process use it"
                         : amx && found < CPU_AMX_BF16
                             ? "this build has no kernels for it: they need gcc 11 or clang 12 and "
                               "-DSPILLWAY_AVX512=ON"
                             : NULL;
    measure_bf16(cpu, &report);
    name_kernels(dev, &report);
    SW_TRY(measure_copy(cpu, &report.copy_gb_s));
    *out = report;
    return SW_OK;
}
