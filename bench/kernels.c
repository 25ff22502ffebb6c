// SPDX-License-Identifier: Apache-2.0
// The kernels of a GPT-2 (124M) training step, further kernels of a LLaMA of that width, and
// attention with few key heads. Each kernel is compared with the plain C reference on a few tokens,
// then timed at full size. Results are JSON lines with the share of the machine's peak.
//
//     bench_kernels [--batch 4] [--seq-len 64] [--dtype f32|bf16|f16] [--threads 2] [--op matmul]
//                   [--head-width 64] [--json FILE]
//
// --op takes the name of an operation or of a case ("fc dw"), as the lines show them.
// FILE gets the times by operation, dtype and shapes. A cluster's file can name it:
// docs/clusters.md.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"

enum { WIDTH = 768, HEADS = 12, VOCAB = 50257, CHUNK = 4096, CHECK_TOKENS = 9 };

/* The bound of a kernel: multiply-adds in registers, or copying memory. */
enum roof { ROOF_COMPUTE, ROOF_MEMORY };

struct bench_case {
    const char *name;
    struct sw_op op;
    struct sw_op_desc desc;
    int alias[SW_MAX_OUTPUTS]; /* 1 + index of the input that shares its storage; 0 = own storage */
    double flops;
    enum roof roof;
};

/* B and T of the case to build. */
struct size {
    enum sw_dtype dtype;
    int64_t batch, tokens;
    int64_t head_width; /* of attention; divides WIDTH */
};

static struct sw_view view_of(enum sw_dtype dtype, struct sw_shape shape)
{
    struct sw_view view = {.dtype = dtype, .shape = shape};
    int64_t stride = 1;
    for (int d = shape.rank - 1; d >= 0; d--) {
        view.strides[d] = stride;
        stride *= shape.dims[d];
    }
    return view;
}

static size_t bytes_of(const struct sw_view *view)
{
    return view->shape.rank < 0
               ? 0
               : (size_t)sw_shape_elems(&view->shape) * sw_dtype_bytes(view->dtype);
}

static void in(struct bench_case *c, enum sw_dtype dtype, struct sw_shape shape)
{
    c->desc.in[c->op.n_in++] = view_of(dtype, shape);
}

static void out(struct bench_case *c, enum sw_dtype dtype, struct sw_shape shape)
{
    c->desc.out[c->op.n_out++] = view_of(dtype, shape);
}

static void out_in_place(struct bench_case *c, int i_in)
{
    c->alias[c->op.n_out] = 1 + i_in;
    c->desc.out[c->op.n_out++] = c->desc.in[i_in];
}

/* ---- cases ---- */

static void product(struct bench_case *c, const struct size *s, const char *name, int64_t m,
                    int64_t n, int64_t k, bool ta, bool tb)
{
    c->name = name;
    c->op.kind = SW_OP_MATMUL;
    c->op.attrs.matmul.ta = ta;
    c->op.attrs.matmul.tb = tb;
    in(c, s->dtype, ta ? SW_SHAPE(k, m) : SW_SHAPE(m, k));
    in(c, s->dtype, tb ? SW_SHAPE(n, k) : SW_SHAPE(k, n));
    out(c, s->dtype, SW_SHAPE(m, n));
    c->flops = 2.0 * (double)m * (double)n * (double)k;
    c->roof = ROOF_COMPUTE;
}

static void build_qkv(struct bench_case *c, const struct size *s)
{
    product(c, s, "qkv", s->batch * s->tokens, 3 * WIDTH, WIDTH, false, false);
    c->op.attrs.matmul.has_bias = true;
    in(c, s->dtype, SW_SHAPE(3 * WIDTH));
}

static void build_fc(struct bench_case *c, const struct size *s)
{
    product(c, s, "fc + gelu", s->batch * s->tokens, 4 * WIDTH, WIDTH, false, false);
    c->op.attrs.matmul.has_bias = true;
    c->op.attrs.matmul.act = SW_ACT_GELU_TANH;
    in(c, s->dtype, SW_SHAPE(4 * WIDTH));
    out(c, s->dtype, c->desc.out[0].shape);
}

static void build_proj(struct bench_case *c, const struct size *s)
{
    product(c, s, "proj", s->batch * s->tokens, WIDTH, 4 * WIDTH, false, false);
    c->op.attrs.matmul.has_bias = true;
    in(c, s->dtype, SW_SHAPE(WIDTH));
}

static void build_fc_dx(struct bench_case *c, const struct size *s)
{
    product(c, s, "fc dx", s->batch * s->tokens, WIDTH, 4 * WIDTH, false, true);
}

static void build_fc_dw(struct bench_case *c, const struct size *s)
{
    product(c, s, "fc dw", WIDTH, 4 * WIDTH, s->batch * s->tokens, true, false);
}

static void build_loss(struct bench_case *c, const struct size *s)
{
    const int64_t rows = s->batch * s->tokens;
    c->name = "loss";
    c->op.kind = SW_OP_LINEAR_CE;
    c->op.attrs.linear_ce.chunk = CHUNK;
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    in(c, s->dtype, SW_SHAPE(VOCAB, WIDTH));
    in(c, SW_I32, SW_SHAPE(rows));
    out(c, SW_F32, SW_SHAPE(1));
    out(c, SW_F32, SW_SHAPE(1));
    out(c, SW_F32, SW_SHAPE(rows));
    c->flops = 2.0 * (double)rows * WIDTH * VOCAB;
    c->roof = ROOF_COMPUTE;
}

static void build_loss_grad(struct bench_case *c, const struct size *s)
{
    const int64_t rows = s->batch * s->tokens;
    c->name = "loss gradient";
    c->op.kind = SW_OP_LINEAR_CE_GRAD;
    c->op.attrs.linear_ce.chunk = CHUNK;
    in(c, SW_F32, SW_SHAPE(1));
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    in(c, s->dtype, SW_SHAPE(VOCAB, WIDTH));
    in(c, SW_I32, SW_SHAPE(rows));
    in(c, SW_F32, SW_SHAPE(rows));
    out(c, s->dtype, SW_SHAPE(rows, WIDTH));
    out(c, s->dtype, SW_SHAPE(VOCAB, WIDTH));
    c->flops = 6.0 * (double)rows * WIDTH * VOCAB;
    c->roof = ROOF_COMPUTE;
}

static void attention(struct bench_case *c, const struct size *s, enum sw_op_kind kind)
{
    const int64_t b = s->batch, t = s->tokens, heads = WIDTH / s->head_width;
    c->op.kind = kind;
    c->op.attrs.attention.packed = c->op.attrs.attention.causal = true;
    c->op.attrs.attention.heads = c->op.attrs.attention.kv_heads = heads;
    c->op.attrs.attention.scale = 1 / sqrt((double)s->head_width);
    c->roof = ROOF_COMPUTE;
    if (kind == SW_OP_ATTENTION_GRAD) {
        in(c, s->dtype, SW_SHAPE(b, t, WIDTH));
        in(c, s->dtype, SW_SHAPE(b, t, WIDTH));
        in(c, SW_F32, SW_SHAPE(b, heads, t));
    }
    in(c, s->dtype, SW_SHAPE(b, t, 3 * WIDTH));
    /* causal: half of the keys are visible */
    c->flops = 2.0 * (double)b * (double)t * (double)t * WIDTH;
}

static void build_attention(struct bench_case *c, const struct size *s)
{
    c->name = "attention";
    attention(c, s, SW_OP_ATTENTION);
    out(c, s->dtype, SW_SHAPE(s->batch, s->tokens, WIDTH));
    out(c, SW_F32, SW_SHAPE(s->batch, WIDTH / s->head_width, s->tokens));
}

static void build_attention_grad(struct bench_case *c, const struct size *s)
{
    c->name = "attention gradient";
    attention(c, s, SW_OP_ATTENTION_GRAD);
    out(c, s->dtype, SW_SHAPE(s->batch, s->tokens, 3 * WIDTH));
    c->flops *= 2.5; /* five products instead of two */
}

/* Eight query heads per key head, as in LLaMA-like models. A batch of one gives few work items. */
static void grouped(struct bench_case *c, const struct size *s, enum sw_op_kind kind)
{
    enum { GROUPED = 32, KEYS = 4, D = 64 };
    const struct sw_shape q = SW_SHAPE(s->batch, s->tokens, GROUPED, D);
    const struct sw_shape o = SW_SHAPE(s->batch, s->tokens, GROUPED * D);
    const struct sw_shape k = SW_SHAPE(s->batch, s->tokens, KEYS, D);
    const bool grad = kind == SW_OP_ATTENTION_GRAD;
    c->op.kind = kind;
    c->op.attrs.attention.causal = true;
    c->op.attrs.attention.heads = GROUPED;
    c->op.attrs.attention.kv_heads = KEYS;
    c->op.attrs.attention.scale = 1 / sqrt(D);
    c->roof = ROOF_COMPUTE;
    if (grad) {
        in(c, s->dtype, o);
        in(c, s->dtype, o);
        in(c, SW_F32, SW_SHAPE(s->batch, GROUPED, s->tokens));
    }
    in(c, s->dtype, q);
    in(c, s->dtype, k);
    in(c, s->dtype, k);
    out(c, s->dtype, grad ? q : o);
    if (grad) {
        out(c, s->dtype, k);
        out(c, s->dtype, k);
    } else {
        out(c, SW_F32, SW_SHAPE(s->batch, GROUPED, s->tokens));
    }
    /* half of the keys are visible; two products forward, five backward */
    c->flops = (grad ? 5.0 : 2.0) * (double)s->tokens * (double)sw_shape_elems(&o);
}

static void build_grouped(struct bench_case *c, const struct size *s)
{
    c->name = "grouped attention";
    grouped(c, s, SW_OP_ATTENTION);
}

static void build_grouped_grad(struct bench_case *c, const struct size *s)
{
    c->name = "grouped attention gradient";
    grouped(c, s, SW_OP_ATTENTION_GRAD);
}

static void build_norm(struct bench_case *c, const struct size *s)
{
    const int64_t rows = s->batch * s->tokens;
    c->name = "add + norm";
    c->op.kind = SW_OP_ADD_LAYER_NORM;
    c->op.attrs.norm.eps = 1e-5;
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    in(c, s->dtype, SW_SHAPE(WIDTH));
    in(c, s->dtype, SW_SHAPE(WIDTH));
    out(c, s->dtype, SW_SHAPE(rows, WIDTH));
    out(c, s->dtype, SW_SHAPE(rows, WIDTH));
    out(c, SW_F32, SW_SHAPE(rows));
    out(c, SW_F32, SW_SHAPE(rows));
}

static void build_norm_grad(struct bench_case *c, const struct size *s)
{
    const int64_t rows = s->batch * s->tokens;
    c->name = "norm gradient";
    c->op.kind = SW_OP_LAYER_NORM_GRAD;
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    in(c, s->dtype, SW_SHAPE(WIDTH));
    in(c, SW_F32, SW_SHAPE(rows));
    in(c, SW_F32, SW_SHAPE(rows));
    out(c, s->dtype, SW_SHAPE(rows, WIDTH));
    out(c, s->dtype, SW_SHAPE(WIDTH));
    out(c, s->dtype, SW_SHAPE(WIDTH));
}

static void build_gelu_grad(struct bench_case *c, const struct size *s)
{
    const int64_t rows = s->batch * s->tokens;
    c->name = "gelu gradient";
    c->op.kind = SW_OP_ACT_GRAD;
    c->op.attrs.act.act = SW_ACT_GELU_TANH;
    in(c, s->dtype, SW_SHAPE(rows, 4 * WIDTH));
    in(c, s->dtype, SW_SHAPE(rows, 4 * WIDTH));
    out(c, s->dtype, SW_SHAPE(rows, 4 * WIDTH));
}

static void build_add(struct bench_case *c, const struct size *s)
{
    const int64_t rows = s->batch * s->tokens;
    c->name = "add";
    c->op.kind = SW_OP_ADD;
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    out(c, s->dtype, SW_SHAPE(rows, WIDTH));
}

static void build_dropout(struct bench_case *c, const struct size *s)
{
    c->name = "dropout";
    c->op.kind = SW_OP_DROPOUT;
    c->op.attrs.dropout.p = 0.1;
    in(c, s->dtype, SW_SHAPE(s->batch, s->tokens, WIDTH));
    out(c, s->dtype, SW_SHAPE(s->batch, s->tokens, WIDTH));
}

static void build_bias_grad(struct bench_case *c, const struct size *s)
{
    c->name = "bias gradient";
    c->op.kind = SW_OP_SUM_ROWS;
    in(c, s->dtype, SW_SHAPE(s->batch * s->tokens, 4 * WIDTH));
    out(c, s->dtype, SW_SHAPE(4 * WIDTH));
}

static void build_accumulate(struct bench_case *c, const struct size *s)
{
    c->name = "accumulate";
    c->op.kind = SW_OP_ACCUMULATE;
    in(c, SW_F32, SW_SHAPE(VOCAB, WIDTH));
    in(c, s->dtype, SW_SHAPE(VOCAB, WIDTH));
    out_in_place(c, 0);
}

static void build_stats(struct bench_case *c, const struct size *s)
{
    c->name = "norm of gradients";
    c->op.kind = SW_OP_GRAD_STATS;
    in(c, SW_I64, SW_SHAPE(SW_STATS_WORDS));
    in(c, s->dtype, SW_SHAPE(VOCAB, WIDTH));
    out_in_place(c, 0);
}

static void build_update(struct bench_case *c, const struct size *s)
{
    const struct sw_shape shape = SW_SHAPE(VOCAB, WIDTH);
    c->name = "adam";
    c->op.kind = SW_OP_UPDATE;
    c->op.attrs.update.rule = (struct sw_update_attrs){.kind = SW_UPDATE_ADAM,
                                                       .decoupled = true,
                                                       .bias_correction = true,
                                                       .eps = 1e-8,
                                                       .weight_decay = 0.1,
                                                       .n_states = s->dtype == SW_F32 ? 2 : 3};
    in(c, s->dtype, shape);
    if (s->dtype != SW_F32) {
        in(c, s->dtype == SW_BF16 ? SW_I16 : SW_F32, shape);
    }
    in(c, SW_F32, shape);
    in(c, SW_F32, shape);
    for (int i = 0; i <= c->op.attrs.update.rule.n_states; i++) {
        out_in_place(c, i);
    }
    in(c, s->dtype, shape);
}

static void build_rms_norm(struct bench_case *c, const struct size *s)
{
    const int64_t rows = s->batch * s->tokens;
    c->name = "add + RMS norm";
    c->op.kind = SW_OP_ADD_RMS_NORM;
    c->op.attrs.norm.eps = 1e-5;
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    in(c, s->dtype, SW_SHAPE(WIDTH));
    out(c, s->dtype, SW_SHAPE(rows, WIDTH));
    out(c, s->dtype, SW_SHAPE(rows, WIDTH));
    out(c, SW_F32, SW_SHAPE(rows));
}

static void build_rms_norm_grad(struct bench_case *c, const struct size *s)
{
    const int64_t rows = s->batch * s->tokens;
    c->name = "RMS norm gradient";
    c->op.kind = SW_OP_RMS_NORM_GRAD;
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    in(c, s->dtype, SW_SHAPE(rows, WIDTH));
    in(c, s->dtype, SW_SHAPE(WIDTH));
    in(c, SW_F32, SW_SHAPE(rows));
    out(c, s->dtype, SW_SHAPE(rows, WIDTH));
    out(c, s->dtype, SW_SHAPE(WIDTH));
}

static void build_gate(struct bench_case *c, const struct size *s)
{
    const struct sw_shape shape = SW_SHAPE(s->batch * s->tokens, 4 * WIDTH);
    c->name = "silu gate";
    c->op.kind = SW_OP_GATED_ACT;
    c->op.attrs.act.act = SW_ACT_SILU;
    in(c, s->dtype, shape);
    in(c, s->dtype, shape);
    out(c, s->dtype, shape);
}

static void build_gate_grad(struct bench_case *c, const struct size *s)
{
    const struct sw_shape shape = SW_SHAPE(s->batch * s->tokens, 4 * WIDTH);
    c->name = "silu gate gradient";
    c->op.kind = SW_OP_GATED_ACT_GRAD;
    c->op.attrs.act.act = SW_ACT_SILU;
    in(c, s->dtype, shape);
    in(c, s->dtype, shape);
    in(c, s->dtype, shape);
    out(c, s->dtype, shape);
    out(c, s->dtype, shape);
}

static void build_rotary(struct bench_case *c, const struct size *s)
{
    const struct sw_shape shape = SW_SHAPE(s->batch, s->tokens, HEADS, WIDTH / HEADS);
    c->name = "rotary";
    c->op.kind = SW_OP_ROTARY;
    in(c, s->dtype, shape);
    in(c, SW_F32, SW_SHAPE(s->tokens, WIDTH / HEADS));
    in(c, SW_I32, SW_SHAPE(s->tokens));
    out(c, s->dtype, shape);
}

static void (*const builders[])(struct bench_case *c, const struct size *s) = {
    build_qkv,           build_fc,           build_proj,
    build_fc_dx,         build_fc_dw,        build_loss,
    build_loss_grad,     build_attention,    build_attention_grad,
    build_norm,          build_norm_grad,    build_gelu_grad,
    build_add,           build_dropout,      build_bias_grad,
    build_accumulate,    build_stats,        build_update,
    build_grouped,       build_grouped_grad, build_rms_norm,
    build_rms_norm_grad, build_gate,         build_gate_grad,
    build_rotary,
};

static void build(struct bench_case *c, int i, const struct size *s)
{
    *c = (struct bench_case){.roof = ROOF_MEMORY};
    for (int k = 0; k < SW_MAX_OUTPUTS; k++) {
        c->desc.out[k].shape.rank = -1;
    }
    builders[i](c, s);
    c->desc.op = &c->op;
}

/* ---- running ---- */

struct run {
    struct sw_device *dev;
    struct sw_stream_queue *stream;
    struct sw_kernel *kernel;
    struct sw_kernel_info info;
    void *in[SW_MAX_INPUTS], *out[SW_MAX_OUTPUTS], *workspace;
    double scalars[SW_SCALAR_COUNT];
};

/* Fills an input with small numbers, positive if a root is taken of them. Ids are within the
 * vocabulary or the table. */
static void fill(const struct bench_case *c, int i_in, void *data)
{
    const struct sw_op_info *info = sw_op_info(c->op.kind);
    const int64_t n_ids = info->n_indexed ? info->n_indexed(&c->desc) : VOCAB;
    const struct sw_view *view = &c->desc.in[i_in];
    const int64_t n = sw_shape_elems(&view->shape);
    const bool is_second_moment =
        c->op.kind == SW_OP_UPDATE && i_in == c->op.attrs.update.rule.n_states;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t random = (uint32_t)i * UINT32_C(2654435761) + (uint32_t)i_in * 97;
        const double x = (double)(random >> 8) * 0x1p-24 - (is_second_moment ? 0.0 : 0.5);
        if (view->dtype == SW_I32) {
            ((int32_t *)data)[i] = (int32_t)(random % (uint32_t)n_ids);
        } else if (view->dtype == SW_I16) {
            ((int16_t *)data)[i] = (int16_t)(random >> 16);
        } else {
            sw_store_f64(view->dtype, data, i, view->dtype == SW_I64 ? 0 : x);
        }
    }
}

static void stop(struct run *r, const struct bench_case *c)
{
    if (r->kernel) {
        r->dev->ops->release(r->dev, r->kernel);
    }
    if (r->stream) {
        r->dev->ops->stream_close(r->dev, r->stream);
    }
    for (int i = 0; i < c->op.n_in; i++) {
        free(r->in[i]);
    }
    for (int i = 0; i < c->op.n_out; i++) {
        if (!c->alias[i]) {
            free(r->out[i]);
        }
    }
    free(r->workspace);
}

static void *memory(size_t bytes)
{
    void *mem = aligned_alloc(4096, sw_round_up(bytes + 1, 4096));
    if (!mem) {
        fprintf(stderr, "bench_kernels: out of memory\n");
        exit(1);
    }
    memset(mem, 0, sw_round_up(bytes + 1, 4096));
    return mem;
}

static sw_status start(struct run *r, struct sw_device *dev, const struct bench_case *c)
{
    *r = (struct run){.dev = dev,
                      .scalars = {[SW_SCALAR_LR] = 1e-4,
                                  [SW_SCALAR_BETA1] = 0.9,
                                  [SW_SCALAR_BETA2] = 0.999,
                                  [SW_SCALAR_STEP] = 2,
                                  [SW_SCALAR_GRAD_FACTOR] = 1,
                                  [SW_SCALAR_CLIP] = 1,
                                  [SW_SCALAR_OVERFLOW_FACTOR] = 1}};
    sw_scalars_complete(r->scalars);
    for (int i = 0; i < c->op.n_in; i++) {
        r->in[i] = memory(bytes_of(&c->desc.in[i]));
        fill(c, i, r->in[i]);
    }
    for (int i = 0; i < c->op.n_out; i++) {
        r->out[i] = c->alias[i] ? r->in[c->alias[i] - 1] : memory(bytes_of(&c->desc.out[i]));
    }
    sw_device_query(dev, &c->desc, &r->info);
    if (!r->info.supported) {
        return SW_FAIL(SW_E_UNSUP, "%s: no kernel", c->name);
    }
    r->workspace = memory(r->info.workspace_bytes);
    SW_TRY(dev->ops->stream_open(dev, &r->stream));
    SW_TRY(sw_device_prepare(dev, &c->desc, &r->kernel));
    return SW_OK;
}

static sw_status launch(struct run *r)
{
    SW_TRY(sw_device_launch(r->dev, r->stream, r->kernel, r->in, r->out, r->workspace, r->scalars));
    return r->dev->ops->stream_wait(r->dev, r->stream);
}

/* Largest difference of the outputs, relative to the largest element. */
static double difference(const struct bench_case *c, const struct run *a, const struct run *b)
{
    double worst = 0;
    for (int k = 0; k < c->op.n_out; k++) {
        const struct sw_view *view = &c->desc.out[k];
        double error = 0, size = 0;
        for (int64_t i = 0; i < sw_shape_elems(&view->shape); i++) {
            const double x = sw_load_f64(view->dtype, a->out[k], i);
            const double y = sw_load_f64(view->dtype, b->out[k], i);
            error = fmax(error, isnan(x - y) ? INFINITY : fabs(x - y));
            size = fmax(size, fabs(y));
        }
        worst = fmax(worst, size > 0 ? error / size : error);
    }
    return worst;
}

static sw_status check(struct sw_device *fast, struct sw_device *reference,
                       const struct bench_case *c, double *error)
{
    struct run a = {0}, b = {0};
    sw_status st = SW_OK;
    SW_TRY_OR(stop, start(&a, fast, c));
    SW_TRY_OR(stop, start(&b, reference, c));
    SW_TRY_OR(stop, launch(&a));
    SW_TRY_OR(stop, launch(&b));
    *error = difference(c, &a, &b);
stop:
    stop(&a, c);
    stop(&b, c);
    return st;
}

enum { MIN_RUNS = 3 };
static const double min_s = 0.3;

static sw_status measure(struct sw_device *dev, const struct bench_case *c, double *seconds,
                         const char **path)
{
    struct run r = {0};
    sw_status st = SW_OK;
    SW_TRY_OR(stop, start(&r, dev, c));
    *path = r.info.path;
    *seconds = INFINITY;
    const double begin = sw_now_s();
    for (int i = 0; i < MIN_RUNS || sw_now_s() - begin < min_s; i++) {
        const double now = sw_now_s();
        SW_TRY_OR(stop, launch(&r));
        *seconds = fmin(*seconds, sw_now_s() - now);
    }
stop:
    stop(&r, c);
    return st;
}

/* Bytes that must move between CPU and memory; in-place operands count twice. */
static double traffic(const struct bench_case *c)
{
    double bytes = 0;
    for (int i = 0; i < c->op.n_in; i++) {
        bytes += (double)bytes_of(&c->desc.in[i]);
    }
    for (int i = 0; i < c->op.n_out; i++) {
        bytes += (double)bytes_of(&c->desc.out[i]);
    }
    return bytes;
}

/* Tolerance for rounding of the outputs, including sums of thousands of terms. */
static double tolerance(enum sw_dtype dtype)
{
    return dtype == SW_BF16 ? 1.0 / 64 : dtype == SW_F16 ? 1.0 / 512 : 1e-4;
}

/* Adds the times of a kernel to the file: the dtype of the first operand that has floats, and the
 * shapes of all operands that are there. */
static void add_to_file(const struct bench_case *c, double seconds, FILE *file)
{
    const char *before = "", *dtype = NULL;
    for (int i = 0; i < c->op.n_in + c->op.n_out; i++) {
        const struct sw_view *v = i < c->op.n_in ? &c->desc.in[i] : &c->desc.out[i - c->op.n_in];
        dtype = dtype || v->shape.rank < 0 || !sw_dtype_is_float(v->dtype)
                    ? dtype
                    : sw_dtype_name(v->dtype);
    }
    fprintf(file, "%s\n{\"op\":\"%s\",\"dtype\":\"%s\",\"shapes\":[", ftell(file) > 0 ? "," : "",
            sw_op_name(&c->op), dtype ? dtype : "f32");
    for (int i = 0; i < c->op.n_in + c->op.n_out; i++) {
        const struct sw_view *v = i < c->op.n_in ? &c->desc.in[i] : &c->desc.out[i - c->op.n_in];
        for (int d = 0; d < v->shape.rank; d++) {
            fprintf(file, "%s%lld",
                    d > 0     ? ","
                    : *before ? ",["
                              : "[",
                    (long long)v->shape.dims[d]);
        }
        fprintf(file, "%s%s", v->shape.rank == 0 ? (*before ? ",[" : "[") : "",
                v->shape.rank >= 0 ? "]" : "");
        before = v->shape.rank >= 0 ? "," : before;
    }
    fprintf(file, "],\"seconds\":%.9g}", seconds);
}

static sw_status bench(int i, struct sw_device *fast, struct sw_device *reference,
                       const struct size *size, double compute_gflops, double copy_gb_s, FILE *file)
{
    struct bench_case c;
    const struct size few = {size->dtype, 1, CHECK_TOKENS, size->head_width};
    double error = 0, seconds = 0;
    const char *path = "";
    build(&c, i, &few);
    SW_TRY(check(fast, reference, &c, &error));
    if (!(error <= tolerance(size->dtype))) {
        return SW_FAIL(SW_E_DEVICE, "%s differs from the reference by %g", c.name, error);
    }
    build(&c, i, size);
    SW_TRY(measure(fast, &c, &seconds, &path));
    if (file) {
        add_to_file(&c, seconds, file);
    }
    printf("{\"op\":\"%s\",\"case\":\"%s\",\"dtype\":\"%s\",\"tokens\":%lld,\"path\":\"%s\","
           "\"error\":%.2g,\"ms\":%.3f,",
           sw_op_name(&c.op), c.name, sw_dtype_name(size->dtype),
           (long long)(size->batch * size->tokens), path, error, seconds * 1e3);
    if (c.roof == ROOF_COMPUTE) {
        const double gflops = c.flops / seconds * 1e-9;
        printf("\"gflops\":%.1f,\"of_roof\":%.3f}\n", gflops, gflops / compute_gflops);
    } else {
        const double gb_s = traffic(&c) / seconds * 1e-9;
        printf("\"gb_s\":%.1f,\"of_roof\":%.3f}\n", gb_s, gb_s / copy_gb_s);
    }
    fflush(stdout);
    return SW_OK;
}

static sw_status bench_all(const struct size *size, int n_threads, const char *only, FILE *file)
{
    const struct sw_cpu_options options = {.n_threads = n_threads};
    const struct sw_cpu_options plain = {.n_threads = n_threads, .reference = true};
    struct sw_device *fast = NULL, *reference = NULL;
    struct sw_cpu_report report;
    sw_status st = SW_OK;
    SW_TRY(sw_device_open_cpu(&options, &fast));
    SW_TRY_OR(close, sw_device_open_cpu(&plain, &reference));
    SW_TRY_OR(close, sw_device_cpu_report(fast, &report));
    const int peak = size->dtype == SW_F32 ? 0 : size->dtype == SW_BF16 ? 1 : 2;
    const double compute = report.peak[peak].register_gflops * report.n_threads;
    printf("{\"cpu\":\"%s\",\"kernels\":\"%s\",\"threads\":%d,\"peak_gflops\":%.1f,"
           "\"copy_gb_s\":%.1f}\n",
           report.cpu, sw_device_kernel_set(fast), report.n_threads, compute, report.copy_gb_s);
    for (int i = 0; i < (int)SW_LEN(builders); i++) {
        struct bench_case c;
        build(&c, i, size);
        if (!only || strcmp(only, sw_op_name(&c.op)) == 0 || strcmp(only, c.name) == 0) {
            SW_TRY_OR(close, bench(i, fast, reference, size, compute, report.copy_gb_s, file));
        }
    }
close:
    sw_device_close(reference);
    sw_device_close(fast);
    return st;
}

struct args {
    struct size size;
    int n_threads;
    const char *only, *json;
};

static bool parse(int argc, char **argv, struct args *a)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--batch") == 0) {
            a->size.batch = atoll(value);
        } else if (strcmp(argv[i], "--seq-len") == 0) {
            a->size.tokens = atoll(value);
        } else if (strcmp(argv[i], "--head-width") == 0) {
            a->size.head_width = atoll(value);
        } else if (strcmp(argv[i], "--threads") == 0) {
            a->n_threads = atoi(value);
        } else if (strcmp(argv[i], "--op") == 0) {
            a->only = value;
        } else if (strcmp(argv[i], "--json") == 0) {
            a->json = value;
        } else if (strcmp(argv[i], "--dtype") != 0 || !sw_dtype_parse(value, &a->size.dtype) ||
                   (a->size.dtype != SW_F32 && a->size.dtype != SW_BF16 &&
                    a->size.dtype != SW_F16)) {
            return false;
        }
    }
    return argc % 2 == 1 && a->size.batch > 0 && a->size.tokens > 0 && a->n_threads >= 0 &&
           a->size.head_width > 0 && WIDTH % a->size.head_width == 0;
}

/* Writes the rows first, since they are counted by the place in the file; then what is around them.
 */
static sw_status bench_into(const struct args *a)
{
    FILE *rows = a->json ? tmpfile() : NULL, *file = a->json ? fopen(a->json, "w") : NULL;
    sw_status st =
        a->json && (!rows || !file) ? SW_FAIL(SW_E_IO, "cannot write %s", a->json) : SW_OK;
    st = st < 0 ? st : bench_all(&a->size, a->n_threads, a->only, rows);
    if (st >= 0 && file) {
        fprintf(file, "{\"format\":1,\"machine\":\"bench_kernels\",\"kernels\":[");
        rewind(rows);
        for (int c; (c = fgetc(rows)) != EOF;) {
            fputc(c, file);
        }
        st = fprintf(file, "\n]}\n") > 0 ? SW_OK : SW_FAIL(SW_E_IO, "cannot write %s", a->json);
    }
    if (rows) {
        fclose(rows);
    }
    if (file && fclose(file) != 0 && st >= 0) {
        st = SW_FAIL(SW_E_IO, "cannot write %s", a->json);
    }
    return st;
}

int main(int argc, char **argv)
{
    struct args a = {.size = {SW_F32, 4, 64, WIDTH / HEADS}};
    if (!parse(argc, argv, &a)) {
        fprintf(stderr, "usage: bench_kernels [--batch B] [--seq-len T] [--dtype f32|bf16|f16] "
                        "[--threads N] [--op NAME] [--json FILE] [--head-width D]\n");
        return 2;
    }
    if (bench_into(&a) < 0) {
        fprintf(stderr, "bench_kernels: %s\n", sw_error_message());
        return 1;
    }
    return 0;
}
