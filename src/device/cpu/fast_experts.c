// SPDX-License-Identifier: Apache-2.0
// EXPERT_MATMUL, its gradient, and the weighted sums of rows of experts. The number of an expert's
// rows is known at run time only. Products by dot-product instructions (dots.h) are cut for about
// the rows of an average expert, and run as often as an expert has that many. Other products are
// blocks of fixed size. Rows do not depend on each other, and a sum over rows depends on the rows
// of its expert alone.
#include "device/cpu/fast_experts.h"

#include <string.h>

#include "device/cpu/dots.h"

/* One of the products of a call: an expert's rows by its matrix, or its gradient. */
struct part {
    const void *a, *b;
    const char *bias;
    char *out;
    int64_t rows;
};

struct experts {
    const struct cpu_vector *vector;
    struct cpu_gemm gemm; /* of one expert; m (forward) or k (gradient) is set at run time */
    struct cpu_dots dots; /* kernel NULL: products by the vector table */
    struct cpu_epilogue epilogue;
    bool is_gradient, has_bias;
    int64_t n;          /* experts of w */
    int64_t first;      /* the first of them */
    int64_t n_all;      /* experts that have rows here */
    int64_t parts;      /* equal parts of the rows, each with offsets of its own */
    size_t elem_bytes;  /* of rows and matrices */
    size_t block_bytes; /* own products: a block of the result */
};

enum { BLOCK_ROWS = 192, BLOCK_COLUMNS = 192 };

/* ---- preparation ---- */

static const struct sw_view *weights_of(const struct sw_op_desc *desc)
{
    return desc->op->kind == SW_OP_EXPERT_MATMUL ? &desc->in[2] : &desc->out[0];
}

static void describe(const struct cpu_device *dev, const struct sw_op_desc *desc,
                     struct experts *out)
{
    const struct sw_experts_attrs *attrs = &desc->op->attrs.experts;
    const bool gradient = desc->op->kind == SW_OP_EXPERT_MATMUL_GRAD;
    const struct sw_view *w = weights_of(desc), *x = &desc->in[0];
    const struct sw_view *offsets = &desc->in[gradient ? 2 : 1];
    const int64_t *matrix = w->shape.dims + w->shape.rank - 2;
    const int64_t depth = sw_shape_last(&x->shape);
    *out = (struct experts){
        .vector = sw_cpu_vector_for(dev->isa),
        .is_gradient = gradient,
        .has_bias = attrs->has_bias,
        .n = w->shape.rank == 3 ? w->shape.dims[0] : 1,
        .first = attrs->expert,
        .n_all = sw_shape_last(&offsets->shape) - 2,
        .parts = sw_shape_elems(&offsets->shape) / sw_shape_last(&offsets->shape),
        .elem_bytes = sw_dtype_bytes(x->dtype),
        .epilogue = {.dtype = desc->out[0].dtype, .bias_dtype = x->dtype},
    };
    const enum sw_dtype dtype = x->dtype;
    if (gradient) {
        out->gemm = (struct cpu_gemm){.dtype = dtype,
                                      .dtype_b = dtype,
                                      .ta = true,
                                      .m = matrix[0],
                                      .n = matrix[1],
                                      .k = x->shape.dims[0],
                                      .lda = matrix[0],
                                      .ldb = matrix[1]};
    } else {
        out->gemm = (struct cpu_gemm){.dtype = dtype,
                                      .dtype_b = dtype,
                                      .tb = attrs->tb,
                                      .m = x->shape.dims[0],
                                      .n = matrix[attrs->tb ? 0 : 1],
                                      .k = depth,
                                      .lda = depth,
                                      .ldb = matrix[1]};
    }
    out->epilogue.ld_out = out->gemm.n;
    const int64_t rows = sw_min_i64(out->gemm.m, BLOCK_ROWS);
    const int64_t columns = sw_min_i64(out->gemm.n, BLOCK_COLUMNS);
    out->block_bytes = sw_round_up((size_t)(rows * columns) * sizeof(float), CPU_LINE);
}

/* Rows of a run of dots: those of an expert that has somewhat more than the mean. */
static int64_t rows_of_run(const struct experts *e)
{
    const int64_t mean = sw_ceil_div(e->gemm.m, e->n_all * e->parts);
    return sw_min_i64(e->gemm.m, sw_ceil_div(mean + mean / 2, 64) * 64);
}

static void cut(struct experts *e, const struct cpu_dot_kernel *kernel, int n_threads)
{
    e->dots = (struct cpu_dots){.kernel = kernel, .whole = e->gemm};
    e->dots.whole.m = e->is_gradient ? e->gemm.m : rows_of_run(e);
    sw_cpu_dots_cut(&e->dots, n_threads);
}

static bool takes(const struct sw_op_desc *desc)
{
    const enum sw_dtype dtype = desc->in[0].dtype;
    const bool gradient = desc->op->kind == SW_OP_EXPERT_MATMUL_GRAD;
    bool good = cpu_is_fast_float(dtype) && cpu_has_output(desc, 0) &&
                cpu_is_fast_float(desc->out[0].dtype);
    good = good && (gradient ? desc->in[1].dtype == dtype : desc->out[0].dtype == dtype);
    for (int k = 2; k < desc->op->n_in && !gradient; k++) {
        good = good && desc->in[k].dtype == dtype;
    }
    return good && (!cpu_has_output(desc, 1) || desc->out[1].dtype == desc->out[0].dtype);
}

/* Sums of a bias. */
static size_t bias_bytes(const struct experts *e)
{
    const int64_t n = sw_max_i64(e->gemm.n, e->gemm.m);
    return e->is_gradient && e->has_bias ? sw_round_up((size_t)n * sizeof(float), CPU_LINE) : 0;
}

static void query_dots(const struct cpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    const struct cpu_dot_kernel *kernel = sw_cpu_dot_kernel(dev);
    struct experts e;
    if (!kernel || !takes(desc) || desc->in[0].dtype != SW_BF16) {
        return;
    }
    describe(dev, desc, &e);
    if (sw_cpu_dot_epilogue_takes(&e.epilogue)) {
        cut(&e, kernel, cpu_workers(dev->pool));
        out->supported = true;
        out->workspace_bytes = cpu_dots_bytes(&e.dots, cpu_workers(dev->pool)) + bias_bytes(&e);
        out->path = kernel->name;
    }
}

static void query_own(const struct cpu_device *dev, const struct sw_op_desc *desc,
                      struct sw_kernel_info *out)
{
    struct experts e;
    if (takes(desc)) {
        describe(dev, desc, &e);
        out->supported = true;
        out->workspace_bytes =
            (e.block_bytes + sw_round_up(e.vector->gemm_scratch_bytes, CPU_LINE)) *
                (size_t)cpu_workers(dev->pool) +
            bias_bytes(&e);
        out->path = e.vector->name;
    }
}

static sw_status prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                         const struct cpu_dot_kernel *kernel, void **prepared)
{
    struct experts *e = sw_alloc("device", sizeof *e);
    SW_TRY_ALLOC(e, "a product of experts");
    describe(dev, desc, e);
    if (kernel) {
        cut(e, kernel, cpu_workers(dev->pool));
    }
    *prepared = e;
    return SW_OK;
}

static sw_status prepare_dots(const struct cpu_device *dev, const struct sw_op_desc *desc,
                              void **prepared)
{
    return prepare(dev, desc, sw_cpu_dot_kernel(dev), prepared);
}

static sw_status prepare_own(const struct cpu_device *dev, const struct sw_op_desc *desc,
                             void **prepared)
{
    return prepare(dev, desc, NULL, prepared);
}

/* ---- products ---- */

/* The offsets of a part of the rows. */
static const int32_t *offsets_of(const struct cpu_call *call, const struct experts *e, int64_t part)
{
    return (const int32_t *)call->in[e->is_gradient ? 2 : 1] + part * (e->n_all + 2);
}

/* The product of the rows that expert i of w has in a part. */
static struct part part_of(const struct cpu_call *call, const struct experts *e, int64_t i,
                           int64_t part)
{
    const int32_t *offsets = offsets_of(call, e, part) + e->first + i;
    const int64_t room = call->desc->in[0].shape.dims[0] / e->parts;
    const int64_t first = part * room + offsets[0];
    const size_t out_bytes = sw_dtype_bytes(e->epilogue.dtype);
    struct part p = {.rows = offsets[1] - offsets[0]};
    if (e->is_gradient) {
        const bool tb = call->desc->op->attrs.experts.tb;
        p.a = (const char *)call->in[tb ? 0 : 1] + (size_t)(first * e->gemm.m) * e->elem_bytes;
        p.b = (const char *)call->in[tb ? 1 : 0] + (size_t)(first * e->gemm.n) * e->elem_bytes;
        p.out = (char *)call->out[0] + (size_t)(i * e->gemm.m * e->gemm.n) * out_bytes;
        return p;
    }
    const size_t matrix = (size_t)(e->gemm.k * e->gemm.n) * e->elem_bytes;
    p.a = (const char *)call->in[0] + (size_t)(first * e->gemm.k) * e->elem_bytes;
    p.b = (const char *)call->in[2] + (size_t)i * matrix;
    p.out = (char *)call->out[0] + (size_t)(first * e->gemm.n) * out_bytes;
    p.bias =
        e->has_bias ? (const char *)call->in[3] + (size_t)(i * e->gemm.n) * e->elem_bytes : NULL;
    return p;
}

struct job {
    const struct experts *e;
    const struct cpu_call *call;
    struct part part;
    struct cpu_gemm gemm; /* of the part */
};

static void finish_dots(void *ctx, const struct cpu_block *block, const float *c)
{
    const struct job *job = ctx;
    const struct experts *e = job->e;
    struct cpu_epilogue epilogue = e->epilogue;
    epilogue.out =
        job->part.out + (size_t)(block->i * e->gemm.n + block->j) * sw_dtype_bytes(epilogue.dtype);
    epilogue.bias = job->part.bias ? job->part.bias + (size_t)block->j * e->elem_bytes : NULL;
    sw_cpu_dot_epilogue(&epilogue, c, block->n);
}

static void run_dots(struct job *job)
{
    const struct experts *e = job->e;
    const struct part whole = job->part;
    const int64_t all = e->is_gradient ? e->gemm.m : whole.rows; /* of the result */
    const int64_t most = e->dots.whole.m;
    for (int64_t at = 0; at < all; at += most) {
        job->part.out = whole.out + (size_t)(at * e->gemm.n) * sw_dtype_bytes(e->epilogue.dtype);
        const struct cpu_dots_run run = {.a = (const char *)whole.a +
                                              (size_t)(at * e->gemm.k) * e->elem_bytes,
                                         .b = whole.b,
                                         .n_rows = sw_min_i64(most, all - at),
                                         .n_terms = e->is_gradient ? whole.rows : 0,
                                         .workspace = job->call->workspace,
                                         .sink = finish_dots,
                                         .ctx = job};
        sw_cpu_dots_run(&e->dots, job->call->pool, &run);
    }
}

/* Computes a block of the result. */
static void own_item(void *ctx, int64_t item, int i_worker)
{
    const struct job *job = ctx;
    const struct experts *e = job->e;
    const int64_t columns = sw_ceil_div(job->gemm.n, BLOCK_COLUMNS);
    const int64_t i = item / columns * BLOCK_ROWS, j = item % columns * BLOCK_COLUMNS;
    struct cpu_gemm g = job->gemm;
    g.m = sw_min_i64(BLOCK_ROWS, job->gemm.m - i);
    g.n = sw_min_i64(BLOCK_COLUMNS, job->gemm.n - j);
    g.ldc = g.n;
    const size_t scratch = sw_round_up(e->vector->gemm_scratch_bytes, CPU_LINE);
    char *own = (char *)job->call->workspace + (size_t)i_worker * (e->block_bytes + scratch);
    const char *a = (const char *)job->part.a + (size_t)(g.ta ? i : i * g.lda) * e->elem_bytes;
    const char *b = (const char *)job->part.b + (size_t)(g.tb ? j * g.ldb : j) * e->elem_bytes;
    struct cpu_epilogue epilogue = e->epilogue;
    epilogue.out = job->part.out + (size_t)(i * job->gemm.n + j) * sw_dtype_bytes(epilogue.dtype);
    epilogue.bias = job->part.bias ? job->part.bias + (size_t)j * e->elem_bytes : NULL;
    e->vector->gemm(&g, a, b, (float *)own, own + e->block_bytes);
    e->vector->epilogue(&epilogue, (const float *)own, g.m, g.n, g.n);
}

static void run_own(struct job *job)
{
    job->gemm = job->e->gemm;
    *(job->e->is_gradient ? &job->gemm.k : &job->gemm.m) = job->part.rows;
    sw_pool_run(job->call->pool,
                sw_ceil_div(job->gemm.m, BLOCK_ROWS) * sw_ceil_div(job->gemm.n, BLOCK_COLUMNS),
                own_item, job);
}

/* The gradient of the bias of expert i. */
static void sum_bias(const struct cpu_call *call, const struct experts *e, int64_t i)
{
    const int64_t part = call->desc->op->attrs.experts.part;
    const int32_t *offsets = offsets_of(call, e, part) + e->first + i;
    const int64_t n = sw_shape_last(&call->desc->in[0].shape);
    const int64_t first = part * (call->desc->in[0].shape.dims[0] / e->parts) + offsets[0];
    float *sums = call->workspace;
    memset(sums, 0, (size_t)n * sizeof *sums);
    e->vector->sum_rows(call->desc->in[0].dtype,
                        (const char *)call->in[0] + (size_t)(first * n) * e->elem_bytes,
                        offsets[1] - offsets[0], n, n, sums);
    const enum sw_dtype to = call->desc->out[1].dtype;
    sw_convert(to, (char *)call->out[1] + (size_t)(i * n) * sw_dtype_bytes(to), SW_F32, sums, n);
}

/* The first of several products writes 0 in rows that no expert has. */
static void clear_rest(const struct cpu_call *call, const struct experts *e)
{
    const int64_t room = e->gemm.m / e->parts;
    const size_t row = (size_t)e->gemm.n * sw_dtype_bytes(e->epilogue.dtype);
    for (int64_t part = 0; part < e->parts; part++) {
        const int64_t used = offsets_of(call, e, part)[e->n_all];
        memset((char *)call->out[0] + (size_t)(part * room + used) * row, 0,
               (size_t)(room - used) * row);
    }
}

static void run(const struct cpu_call *call)
{
    const struct experts *e = call->prepared;
    const int64_t n = e->is_gradient ? e->n : e->n * e->parts; /* a gradient is of one part */
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = k % e->n;
        const int64_t part = e->is_gradient ? call->desc->op->attrs.experts.part : k / e->n;
        struct job job = {.e = e, .call = call, .part = part_of(call, e, i, part)};
        if (job.part.rows > 0) {
            (e->dots.kernel ? run_dots : run_own)(&job);
        } else if (e->is_gradient) {
            memset(job.part.out, 0,
                   (size_t)(e->gemm.m * e->gemm.n) * sw_dtype_bytes(e->epilogue.dtype));
        }
        if (e->is_gradient && cpu_has_output(call->desc, 1)) {
            sum_bias(call, e, i);
        }
    }
    if (!e->is_gradient && !call->desc->op->attrs.experts.continues) {
        clear_rest(call, e);
    }
}

const struct cpu_kernel sw_cpu_expert_dots = {
    .name = "dots", .query = query_dots, .prepare = prepare_dots, .release = sw_free, .run = run};
const struct cpu_kernel sw_cpu_expert_own = {
    .name = "own", .query = query_own, .prepare = prepare_own, .release = sw_free, .run = run};

/* ---- weighted sums of rows ---- */

/* Two rows in f32 for each worker. */
static void query_sums(const struct cpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    const enum sw_dtype dtype = desc->in[0].dtype;
    const bool gradient = desc->op->kind == SW_OP_FROM_EXPERTS_GRAD;
    const int weights = gradient ? 4 : 3;
    if (cpu_is_fast_float(dtype) && desc->out[0].dtype == dtype &&
        (!gradient || (cpu_has_output(desc, 0) && desc->in[1].dtype == dtype)) &&
        (desc->op->n_in <= weights || desc->in[weights].dtype == SW_F32)) {
        const size_t row = (size_t)sw_shape_last(&desc->in[0].shape) * sizeof(float);
        out->supported = true;
        out->workspace_bytes = 2 * sw_round_up(row, CPU_LINE) * (size_t)cpu_workers(dev->pool);
        out->path = "rows";
    }
}

/* Row i of an operand in f32; buffer: [n], used unless the operand is f32. */
static const float *row_of(const void *x, enum sw_dtype dtype, int64_t i, int64_t n, float *buffer)
{
    const char *at = (const char *)x + (size_t)(i * n) * sw_dtype_bytes(dtype);
    if (dtype == SW_F32) {
        return (const float *)at;
    }
    sw_convert(SW_F32, buffer, dtype, at, n);
    return buffer;
}

static float *buffer_of(const struct cpu_call *call, int64_t n, int i_worker)
{
    const size_t row = sw_round_up((size_t)n * sizeof(float), CPU_LINE);
    return (float *)((char *)call->workspace + 2 * row * (size_t)i_worker);
}

static void from_experts_item(void *ctx, int64_t token, int i_worker)
{
    const struct cpu_call *call = ctx;
    const int64_t n = sw_shape_last(&call->desc->in[0].shape);
    const int64_t k = call->desc->in[1].shape.dims[1];
    const enum sw_dtype dtype = call->desc->in[0].dtype;
    const int32_t *slots = (const int32_t *)call->in[1] + token * k;
    const float *weights = call->desc->op->n_in > 3 ? (const float *)call->in[3] + token * k : NULL;
    float *sum = buffer_of(call, n, i_worker);
    float *row = sum + sw_round_up((size_t)n * sizeof(float), CPU_LINE) / sizeof(float);
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t j = 0; j < k; j++) {
        const float *y = slots[j] < 0 ? NULL : row_of(call->in[0], dtype, slots[j], n, row);
        const float weight = weights ? weights[j] : 1;
        for (int64_t i = 0; y && i < n; i++) {
            sum[i] += weight * y[i];
        }
    }
    sw_convert(dtype, (char *)call->out[0] + (size_t)(token * n) * sw_dtype_bytes(dtype), SW_F32,
               sum, n);
}

static void run_from_experts(const struct cpu_call *call)
{
    sw_pool_run(call->pool, call->desc->in[1].shape.dims[0], from_experts_item, (void *)call);
}

/* The gradients of row r, and of its weight. */
static void from_experts_grad_item(void *ctx, int64_t r, int i_worker)
{
    const struct cpu_call *call = ctx;
    const int64_t n = sw_shape_last(&call->desc->in[0].shape);
    const int64_t k = call->desc->in[2].shape.dims[1];
    const enum sw_dtype dtype = call->desc->in[0].dtype;
    const int32_t source = ((const int32_t *)call->in[3])[r];
    float *a = buffer_of(call, n, i_worker);
    float *b = a + sw_round_up((size_t)n * sizeof(float), CPU_LINE) / sizeof(float);
    char *to = (char *)call->out[0] + (size_t)(r * n) * sw_dtype_bytes(dtype);
    if (source < 0) {
        memset(to, 0, (size_t)n * sw_dtype_bytes(dtype));
        return;
    }
    const float weight = ((const float *)call->in[4])[source];
    const float *dy = row_of(call->in[0], dtype, source / k, n, a);
    if (cpu_has_output(call->desc, 1)) {
        const float *y = row_of(call->in[1], dtype, r, n, b);
        float dot = 0;
        for (int64_t i = 0; i < n; i++) {
            dot += dy[i] * y[i];
        }
        ((float *)call->out[1])[source] = dot;
    }
    for (int64_t i = 0; i < n; i++) {
        b[i] = weight * dy[i];
    }
    sw_convert(dtype, to, SW_F32, b, n);
}

/* Choices that were dropped have no row. */
static void run_from_experts_grad(const struct cpu_call *call)
{
    if (cpu_has_output(call->desc, 1)) {
        memset(call->out[1], 0, sw_shape_bytes(&call->desc->out[1].shape, SW_F32));
    }
    sw_pool_run(call->pool, call->desc->in[1].shape.dims[0], from_experts_grad_item, (void *)call);
}

const struct cpu_kernel sw_cpu_from_experts = {
    .name = "rows", .query = query_sums, .run = run_from_experts};
const struct cpu_kernel sw_cpu_from_experts_grad = {
    .name = "rows", .query = query_sums, .run = run_from_experts_grad};
