// SPDX-License-Identifier: Apache-2.0
// ATTENTION and ATTENTION_GRAD: the layout of each head's rows, and the items. Forward: an item is
// some columns (of 32 queries) of the heads that share one key head of a sample. Backward: an item
// is one (sample, key head) with all its query heads in order, or a part of that. If samples share
// a bias that has a gradient, an item has all samples in order. No two items add to the same
// gradient.
#include <string.h>

#include "device/cpu/fast.h"

struct operands {
    const struct sw_op_desc *desc;
    void *const *in;  /* q, k, v (or qkv), mask, position */
    void *const *out; /* forward: o; backward: dq, dk, dv (or dqkv) */
    int first;        /* index of q among the inputs */
    int64_t batch, t, s, d, heads, kv_heads;
    int64_t position;
    const int32_t *mask, *segments;
    const float *slopes, *bias;
    int64_t bias_batch; /* stride between the samples' biases; 0 = they share one */
};

static struct operands operands_of(const struct sw_op_desc *desc, void *const *in, void *const *out,
                                   int first)
{
    const struct sw_attention_attrs *attrs = &desc->op->attrs.attention;
    const int n_qkv = attrs->packed ? 1 : 3;
    const struct sw_shape *q = &desc->in[first].shape;
    const struct sw_shape *k = &desc->in[first + (attrs->packed ? 0 : 1)].shape;
    struct operands o = {
        .desc = desc,
        .in = in,
        .out = out,
        .first = first,
        .batch = q->dims[0],
        .t = q->dims[1],
        .s = k->dims[1],
        .heads = attrs->heads,
        .kv_heads = attrs->kv_heads > 0 ? attrs->kv_heads : attrs->heads,
        .d = sw_attention_width(attrs, q),
    };
    if (in) {
        int i = first + n_qkv;
        o.mask = attrs->has_mask ? in[i++] : NULL;
        o.position = attrs->has_position ? *(const int32_t *)in[i++] : 0;
        o.slopes = attrs->has_slopes ? in[i++] : NULL;
        o.segments = attrs->has_segments ? in[i++] : NULL;
        o.bias = attrs->has_bias ? in[i] : NULL;
    }
    if (attrs->has_bias) {
        const struct sw_view *bias = &desc->in[sw_attention_bias_input(attrs, first)];
        o.bias_batch = bias->shape.rank == 4 ? o.heads * o.t * o.s : 0;
    }
    return o;
}

/* Address of token 0 of a head of sample b, in a [B,T,heads d] or [B,T,heads,d] tensor. */
static void *head_at(const struct sw_view *view, void *data, int64_t b, int64_t head, int64_t d)
{
    const int64_t at = b * view->strides[0] + head * (view->shape.rank == 4 ? view->strides[2] : d);
    return data ? (char *)data + (size_t)at * sw_dtype_bytes(view->dtype) : NULL;
}

/* Address of q (0), k (1) or v (2) of a head among `views` and `data`: three tensors or one
 * packed. */
static void *place(const struct operands *o, const struct sw_view *views, void *const *data,
                   int which, int64_t b, int64_t head, int64_t *ld)
{
    const bool packed = o->desc->op->attrs.attention.packed;
    const int64_t group = which == 0 ? 0 : o->heads + (which - 1) * o->kv_heads;
    const int i = packed ? 0 : which;
    *ld = views[i].strides[1];
    return head_at(&views[i], data[i], b, (packed ? group : 0) + head, o->d);
}

static struct cpu_attention head_of(const struct operands *o, const double *scalars, int64_t b,
                                    int64_t h)
{
    const struct sw_op *op = o->desc->op;
    const int64_t kv = h / (o->heads / o->kv_heads);
    const struct sw_view *in = &o->desc->in[o->first];
    struct cpu_attention a = {
        .dtype = in->dtype,
        .t = o->t,
        .s = o->s,
        .d = o->d,
        .position = o->position,
        .window = op->attrs.attention.window,
        .causal = op->attrs.attention.causal,
        .scale = (float)op->attrs.attention.scale,
        .cap = (float)op->attrs.attention.cap,
        .slope = o->slopes ? o->slopes[h] : 0,
        .bf16_slopes = op->attrs.attention.bf16_slopes,
        .mask = o->mask ? o->mask + b * o->s : NULL,
        .segments = o->segments ? o->segments + b * o->s : NULL,
        .bias = o->bias ? o->bias + b * o->bias_batch + h * o->t * o->s : NULL,
        .p = op->attrs.attention.dropout,
        .first_element = (uint64_t)((op->attrs.attention.first_head + h) * o->t) * (uint64_t)o->s,
    };
    a.q = place(o, in, o->in + o->first, 0, b, h, &a.ld_q);
    a.k = place(o, in, o->in + o->first, 1, b, kv, &a.ld_k);
    a.v = place(o, in, o->in + o->first, 2, b, kv, &a.ld_v);
    if (a.p > 0) {
        sw_cpu_draw_init(&a.draw, scalars, op->path, a.p, o->batch, b);
    }
    return a;
}

/* The kernel is a fixed choice by processor and dtype. bf16 on AVX-512 alone, and where VDPBF16PS
 * is slow, is computed in f32, like f16. */
static const struct cpu_attention_kernel *kernel_for(const struct cpu_device *dev,
                                                     const struct sw_view *q)
{
#if defined(__x86_64__) && !defined(SPILLWAY_WITHOUT_AVX512)
#if !defined(SPILLWAY_WITHOUT_AMX)
    if (q->dtype == SW_BF16 && dev->isa == CPU_AMX_BF16) {
        return &sw_cpu_attention_amx;
    }
#endif
    if (q->dtype == SW_BF16 && dev->isa >= CPU_AVX512_BF16 && dev->fast_vdpbf16) {
        return &sw_cpu_attention_avx512bf16;
    }
#endif
    (void)q;
    return sw_cpu_vector_for(dev->isa)->attention;
}

static sw_status forward_prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                 void **prepared)
{
    *prepared = (void *)(uintptr_t)kernel_for(dev, &desc->in[0]);
    return SW_OK;
}

static sw_status backward_prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                  void **prepared)
{
    *prepared = (void *)(uintptr_t)kernel_for(dev, &desc->in[3]);
    return SW_OK;
}

static bool takes(const struct sw_op_desc *desc, int first)
{
    const int n_qkv = desc->op->attrs.attention.packed ? 1 : 3;
    for (int i = 0; i < n_qkv; i++) {
        const struct sw_view *x = &desc->in[first + i];
        if (!cpu_is_fast_float(x->dtype) || x->strides[x->shape.rank - 1] != 1) {
            return false;
        }
    }
    return true;
}

/* The items of backward. A pair is a sample and a key head. If the gradient of a bias is summed
 * over samples, a pair is a key head with all samples. The gradients of a pair are one item, which
 * computes the scores once: five products. If the last pairs are too few to keep all workers busy,
 * they are cut: one item for each block of keys (dk, dv: four products) and one for each block of
 * queries of a head (dq: three). Those items recompute the scores. Sums keep their order, so
 * neither the cut nor the number of workers changes a bit. */
struct cuts {
    int64_t pairs, whole;  /* number of pairs; the first `whole` are uncut */
    int64_t keys, queries; /* items of a cut pair */
    int64_t samples;       /* samples of a pair */
    bool dq, dkv, dbias;   /* wanted gradients; dbias is made with dq */
};

/* ---- forward ---- */

/* A worker packs a block of keys once for the columns of an item. */
enum { MOST_COLUMNS = 16, ITEMS_PER_WORKER = 4 };

struct job {
    const struct cpu_attention_kernel *kernel;
    const struct cpu_call *call;
    struct operands o;
    int64_t columns, per_item; /* forward: columns of a key head, and of an item */
    struct cuts cuts;          /* used by backward */
    size_t worker_bytes;
};

static int64_t group_of(const struct operands *o)
{
    return o->heads / o->kv_heads;
}

/* A worker's scratch: the descriptions of the heads of one item, then the kernel's scratch. */
static size_t heads_bytes(const struct operands *o)
{
    return sw_round_up((size_t)group_of(o) * sizeof(struct cpu_attention), CPU_LINE);
}

static int64_t columns_of(const struct operands *o)
{
    return group_of(o) * sw_ceil_div(o->t, CPU_COLUMN);
}

/* At least 1. Items are smaller if there would be too few; no bit depends on that. */
static int64_t columns_per_item(const struct operands *o, int workers)
{
    const int64_t all = columns_of(o) * o->batch * o->kv_heads;
    const int64_t fair = sw_ceil_div(all, (int64_t)ITEMS_PER_WORKER * workers);
    return sw_max_i64(1, sw_min_i64(sw_min_i64(MOST_COLUMNS, columns_of(o)), fair));
}

static size_t forward_bytes(const struct cpu_attention_kernel *kernel, const struct operands *o,
                            int workers)
{
    const int64_t n = columns_per_item(o, workers);
    return heads_bytes(o) + sw_round_up(kernel->scratch_bytes(n, o->s, o->d), CPU_LINE);
}

static void forward_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                          struct sw_kernel_info *out)
{
    if (!takes(desc, 0)) {
        return;
    }
    const struct cpu_attention_kernel *kernel = kernel_for(dev, &desc->in[0]);
    const struct operands o = operands_of(desc, NULL, NULL, 0);
    const int workers = cpu_workers(dev->pool);
    out->supported = true;
    out->workspace_bytes = forward_bytes(kernel, &o, workers) * (size_t)workers;
    out->path = kernel->name;
}

static void forward_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct operands *o = &job->o;
    const int64_t pairs = o->batch * o->kv_heads, parts = sw_ceil_div(job->columns, job->per_item);
    /* Later queries see more keys: they come first, so that short items end the run. */
    const int64_t part = parts - 1 - i_item / pairs;
    const int64_t b = i_item % pairs / o->kv_heads, kv = i_item % o->kv_heads;
    char *scratch = (char *)job->call->workspace + (size_t)i_worker * job->worker_bytes;
    struct cpu_attention *heads = (struct cpu_attention *)scratch;
    const struct sw_view *out = &job->call->desc->out[0];
    for (int64_t i = 0; i < group_of(o); i++) {
        const int64_t h = kv * group_of(o) + i;
        heads[i] = head_of(o, job->call->scalars, b, h);
        heads[i].o = head_at(out, job->call->out[0], b, h, o->d);
        heads[i].ld_o = out->strides[1];
        heads[i].lse = (float *)job->call->out[1] + (b * o->heads + h) * o->t;
    }
    const int64_t first = part * job->per_item;
    job->kernel->run(job->kernel, heads, group_of(o), first,
                     sw_min_i64(job->columns, first + job->per_item), scratch + heads_bytes(o));
}

static void forward_run(const struct cpu_call *call)
{
    const int workers = cpu_workers(call->pool);
    struct job job = {.kernel = call->prepared,
                      .call = call,
                      .o = operands_of(call->desc, call->in, call->out, 0)};
    job.worker_bytes = forward_bytes(job.kernel, &job.o, workers);
    job.columns = columns_of(&job.o);
    job.per_item = columns_per_item(&job.o, workers);
    sw_pool_run(call->pool, job.o.batch * job.o.kv_heads * sw_ceil_div(job.columns, job.per_item),
                forward_item, &job);
}

const struct cpu_kernel sw_cpu_attention = {.name = "fast",
                                            .query = forward_query,
                                            .prepare = forward_prepare,
                                            .release = sw_cpu_release_nothing,
                                            .run = forward_run};

/* ---- backward: inputs do, o, lse, then those of the forward ---- */

/* NULL: there is no such gradient, or it is not wanted. */
static const struct sw_view *bias_gradient(const struct sw_op_desc *desc)
{
    const struct sw_attention_attrs *attrs = &desc->op->attrs.attention;
    const int k = sw_attention_bias_output(attrs);
    return attrs->has_bias && cpu_has_output(desc, k) ? &desc->out[k] : NULL;
}

static struct cuts cuts_of(const struct cpu_attention_kernel *kernel, const struct operands *o,
                           int workers)
{
    const bool packed = o->desc->op->attrs.attention.packed;
    const bool dbias = bias_gradient(o->desc) != NULL;
    const int64_t samples = dbias && o->bias_batch == 0 ? o->batch : 1;
    struct cuts c = {.pairs = o->batch / samples * o->kv_heads,
                     .samples = samples,
                     .dq = cpu_has_output(o->desc, 0) || dbias,
                     .dkv = packed || cpu_has_output(o->desc, 1) || cpu_has_output(o->desc, 2),
                     .dbias = dbias};
    c.keys = c.dkv ? sw_ceil_div(o->s, kernel->key_block) : 0;
    c.queries = c.dq ? group_of(o) * sw_ceil_div(o->t, kernel->query_block) : 0;
    const int64_t last = c.pairs % workers;
    c.whole = c.pairs - (7 * last < 5 * workers ? last : 0);
    return c;
}

static size_t backward_bytes(const struct cpu_attention_kernel *kernel, const struct operands *o,
                             int workers)
{
    const bool whole = cuts_of(kernel, o, workers).whole > 0;
    const int64_t n_keys = whole ? o->s : sw_min_i64(o->s, kernel->key_block);
    return heads_bytes(o) + sw_round_up(kernel->grad_scratch_bytes(o->t, n_keys, o->d), CPU_LINE);
}

static void backward_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                           struct sw_kernel_info *out)
{
    if (!takes(desc, 3) || desc->in[0].dtype != desc->in[3].dtype) {
        return;
    }
    const struct sw_view *dbias = bias_gradient(desc);
    for (int i = 0; i < desc->op->n_out; i++) {
        const enum sw_dtype wanted = &desc->out[i] == dbias ? SW_F32 : desc->in[3].dtype;
        if (desc->out[i].shape.rank >= 0 && desc->out[i].dtype != wanted) {
            return;
        }
    }
    const struct cpu_attention_kernel *kernel = kernel_for(dev, &desc->in[3]);
    const struct operands o = operands_of(desc, NULL, NULL, 3);
    out->supported = true;
    const int workers = cpu_workers(dev->pool);
    out->workspace_bytes = backward_bytes(kernel, &o, workers) * (size_t)workers;
    out->path = kernel->name;
}

/* Describes query head h of sample b, with all that backward reads and writes of it. */
static struct cpu_attention backward_head(const struct job *job, int64_t b, int64_t h)
{
    const struct operands *o = &job->o;
    const struct cpu_call *call = job->call;
    const int64_t kv = h / (o->heads / o->kv_heads);
    struct cpu_attention a = head_of(o, call->scalars, b, h);
    a.d_o = head_at(&call->desc->in[0], call->in[0], b, h, o->d);
    a.ld_do = call->desc->in[0].strides[1];
    a.o = head_at(&call->desc->in[1], call->in[1], b, h, o->d);
    a.ld_o = call->desc->in[1].strides[1];
    a.lse = (float *)call->in[2] + (b * o->heads + h) * o->t;
    a.dq = place(o, call->desc->out, call->out, 0, b, h, &a.ld_dq);
    a.dk = place(o, call->desc->out, call->out, 1, b, kv, &a.ld_dk);
    a.dv = place(o, call->desc->out, call->out, 2, b, kv, &a.ld_dv);
    if (job->cuts.dbias) {
        float *dbias = call->out[sw_attention_bias_output(&call->desc->op->attrs.attention)];
        a.dbias = dbias + b * o->bias_batch + h * o->t * o->s;
    }
    return a;
}

/* The pair and the part that an item covers, and its query heads. */
static struct cpu_attention_part part_of(const struct job *job, int64_t i_item, int64_t *pair,
                                         int64_t *first_head, int64_t *n_heads)
{
    const struct operands *o = &job->o;
    const struct cuts *c = &job->cuts;
    struct cpu_attention_part part = {0, o->t, 0, o->s, c->dq, c->dkv, c->dbias};
    *first_head = 0;
    *n_heads = o->heads / o->kv_heads;
    *pair = i_item;
    if (i_item < c->whole) {
        return part;
    }
    *pair = c->whole + (i_item - c->whole) / (c->keys + c->queries);
    const int64_t i = (i_item - c->whole) % (c->keys + c->queries), j = i - c->keys;
    if (i < c->keys) { /* earlier keys are seen by more queries, so they come first */
        part.dq = part.dbias = false;
        part.first_key = i * job->kernel->key_block;
        part.end_key = sw_min_i64(o->s, part.first_key + job->kernel->key_block);
    } else { /* later queries see more keys */
        part.dkv = false;
        part.first_query = (c->queries - 1 - j) / *n_heads * job->kernel->query_block;
        part.end_query = sw_min_i64(o->t, part.first_query + job->kernel->query_block);
        *first_head = j % *n_heads;
        *n_heads = 1;
    }
    return part;
}

static void backward_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct operands *o = &job->o;
    int64_t pair, first, n_heads;
    const struct cpu_attention_part part = part_of(job, i_item, &pair, &first, &n_heads);
    char *scratch = (char *)job->call->workspace + (size_t)i_worker * job->worker_bytes;
    struct cpu_attention *heads = (struct cpu_attention *)scratch;
    const int64_t h = pair % o->kv_heads * (o->heads / o->kv_heads) + first;
    for (int64_t b = 0; b < job->cuts.samples; b++) {
        for (int64_t i = 0; i < n_heads; i++) {
            heads[i] = backward_head(job, pair / o->kv_heads + b, h + i);
        }
        job->kernel->run_grad(job->kernel, heads, n_heads, &part, scratch + heads_bytes(o));
    }
}

/* Zeroes dbias: a (query, key) pair that is never computed has no gradient. */
static void clear_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct operands *o = &job->o;
    (void)i_worker;
    float *dbias = job->call->out[sw_attention_bias_output(&job->call->desc->op->attrs.attention)];
    memset(dbias + i_item * o->t * o->s, 0, (size_t)(o->t * o->s) * sizeof *dbias);
}

static void backward_run(const struct cpu_call *call)
{
    const int workers = cpu_workers(call->pool);
    struct job job = {.kernel = call->prepared,
                      .call = call,
                      .o = operands_of(call->desc, call->in, call->out, 3)};
    job.cuts = cuts_of(job.kernel, &job.o, workers);
    job.worker_bytes = backward_bytes(job.kernel, &job.o, workers);
    const int64_t n_cut = job.cuts.pairs - job.cuts.whole;
    if (job.cuts.dbias) {
        sw_pool_run(call->pool, job.o.heads * (job.o.bias_batch > 0 ? job.o.batch : 1), clear_item,
                    &job);
    }
    sw_pool_run(call->pool, job.cuts.whole + n_cut * (job.cuts.keys + job.cuts.queries),
                backward_item, &job);
}

const struct cpu_kernel sw_cpu_attention_grad = {.name = "fast",
                                                 .query = backward_query,
                                                 .prepare = backward_prepare,
                                                 .release = sw_cpu_release_nothing,
                                                 .run = backward_run};
