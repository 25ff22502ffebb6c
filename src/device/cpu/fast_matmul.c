// SPDX-License-Identifier: Apache-2.0
// MATMUL: output blocks are the items; bias, activation and rounding follow each block's product while
// it is in cache. A plain f32 product is written in place.
#include "device/cpu/fast.h"

struct matmul {
    const struct cpu_vector *vector;
    struct cpu_grid grid;
    bool in_place; /* blocks are written to the output by the product itself */
    bool has_bias;
    enum sw_act act;
    enum sw_dtype out_dtype, bias_dtype;
    size_t worker_bytes;
};

static bool has_output(const struct sw_op_desc *desc, int i)
{
    return i < desc->op->n_out && desc->out[i].shape.rank >= 0;
}

static bool takes(const struct sw_op_desc *desc)
{
    const struct sw_view *a = &desc->in[0], *b = &desc->in[1];
    return cpu_is_fast_float(a->dtype) && b->dtype == a->dtype && has_output(desc, 0) &&
           cpu_is_fast_float(desc->out[0].dtype) &&
           (!has_output(desc, 1) || desc->out[1].dtype == desc->out[0].dtype) &&
           (!desc->op->attrs.has_bias || cpu_is_fast_float(desc->in[2].dtype));
}

static sw_status open(const struct cpu_device *dev, const struct sw_op_desc *desc, bool prefer_dnnl,
                      struct matmul *out)
{
    const struct sw_attrs *attrs = &desc->op->attrs;
    const struct sw_view *a = &desc->in[0], *b = &desc->in[1];
    const int64_t a_rows = sw_shape_rows(&a->shape), a_cols = sw_shape_last(&a->shape);
    const int64_t b_rows = sw_shape_rows(&b->shape), b_cols = sw_shape_last(&b->shape);
    *out = (struct matmul){
        .vector = sw_cpu_vector_for(dev->isa),
        .has_bias = attrs->has_bias,
        .act = attrs->act,
        .out_dtype = desc->out[0].dtype,
        .bias_dtype = attrs->has_bias ? desc->in[2].dtype : SW_F32,
    };
    out->in_place = out->out_dtype == SW_F32 && !attrs->has_bias && attrs->act == SW_ACT_NONE &&
                    !has_output(desc, 1);
    const int64_t n = attrs->tb ? b_rows : b_cols;
    const struct cpu_gemm whole = {
        .dtype = a->dtype,
        .dtype_b = b->dtype,
        .ta = attrs->ta,
        .tb = attrs->tb,
        .m = attrs->ta ? a_cols : a_rows,
        .n = n,
        .k = attrs->ta ? a_rows : a_cols,
        .lda = a_cols,
        .ldb = b_cols,
        .ldc = out->in_place ? n : 0,
    };
    SW_TRY(sw_cpu_grid_open(dev, &whole, prefer_dnnl, &out->grid));
    out->worker_bytes = out->grid.scratch_bytes;
    if (!out->in_place) {
        out->worker_bytes += cpu_grid_block_bytes(&out->grid);
    }
    return SW_OK;
}

struct job {
    const struct matmul *matmul;
    const struct cpu_call *call;
};

static void item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct matmul *mm = job->matmul;
    const struct cpu_call *call = job->call;
    const struct cpu_block block = sw_cpu_grid_block(&mm->grid, i_item);
    const int64_t n = mm->grid.whole.n, first = block.i * n + block.j;
    char *scratch = (char *)call->workspace + (size_t)i_worker * mm->worker_bytes;
    if (mm->in_place) {
        sw_cpu_grid_run(&mm->grid, i_item, i_worker, call->in[0], call->in[1],
                        (float *)call->out[0] + first, scratch);
        return;
    }
    float *product = (float *)scratch;
    sw_cpu_grid_run(&mm->grid, i_item, i_worker, call->in[0], call->in[1], product,
                    scratch + cpu_grid_block_bytes(&mm->grid));
    const size_t bytes = sw_dtype_bytes(mm->out_dtype);
    char *pre = call->desc->op->n_out > 1 ? call->out[1] : NULL;
    const struct cpu_epilogue epilogue = {
        .dtype = mm->out_dtype,
        .bias_dtype = mm->bias_dtype,
        .act = mm->act,
        .bias = mm->has_bias
                    ? (const char *)call->in[2] + (size_t)block.j * sw_dtype_bytes(mm->bias_dtype)
                    : NULL,
        .out = (char *)call->out[0] + (size_t)first * bytes,
        .pre = pre ? pre + (size_t)first * bytes : NULL,
        .ld_out = n,
    };
    mm->vector->epilogue(&epilogue, product, block.m, block.n, block.n);
}

static void run(const struct cpu_call *call)
{
    struct job job = {call->prepared, call};
    sw_pool_run(call->pool, cpu_grid_items(&job.matmul->grid), item, &job);
}

static sw_status prepare_with(const struct cpu_device *dev, const struct sw_op_desc *desc,
                              bool prefer_dnnl, void **prepared)
{
    struct matmul *mm = sw_alloc("device", sizeof *mm);
    SW_TRY_ALLOC(mm, "a matrix product");
    const sw_status st = open(dev, desc, prefer_dnnl, mm);
    if (st < 0) {
        sw_free(mm);
        return st;
    }
    *prepared = mm;
    return SW_OK;
}

static void release(void *prepared)
{
    struct matmul *mm = prepared;
    sw_cpu_grid_close(&mm->grid);
    sw_free(mm);
}

static void query_with(const struct cpu_device *dev, const struct sw_op_desc *desc,
                       bool prefer_dnnl, struct sw_kernel_info *out)
{
    struct matmul mm;
    if (!takes(desc) || open(dev, desc, prefer_dnnl, &mm) < 0) {
        return;
    }
    out->supported = true;
    out->workspace_bytes = mm.worker_bytes * (size_t)cpu_workers(dev->pool);
    out->path = mm.grid.path;
    sw_cpu_grid_close(&mm.grid);
}

static void query_dnnl(const struct cpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    if (sw_cpu_dnnl_takes(dev, desc->in[0].dtype)) {
        query_with(dev, desc, true, out);
    }
}

static sw_status prepare_dnnl(const struct cpu_device *dev, const struct sw_op_desc *desc,
                              void **prepared)
{
    return prepare_with(dev, desc, true, prepared);
}

static void query_own(const struct cpu_device *dev, const struct sw_op_desc *desc,
                      struct sw_kernel_info *out)
{
    query_with(dev, desc, false, out);
}

static sw_status prepare_own(const struct cpu_device *dev, const struct sw_op_desc *desc,
                             void **prepared)
{
    return prepare_with(dev, desc, false, prepared);
}

const struct cpu_kernel sw_cpu_matmul_dnnl = {
    .name = "dnnl", .query = query_dnnl, .prepare = prepare_dnnl, .release = release, .run = run};
const struct cpu_kernel sw_cpu_matmul_own = {
    .name = "own", .query = query_own, .prepare = prepare_own, .release = release, .run = run};
