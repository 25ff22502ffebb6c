// SPDX-License-Identifier: Apache-2.0
// MATMUL: output blocks are the items. Bias, activation and rounding follow each block's product
// while it is in cache. A plain f32 product is written in place. Own kernels pack the operands once
// (fast_panels.c) unless the product is small. A large parameter may be cut into pieces
// (attrs.matmul.piece): a library multiplies each by itself, and sums are cut at them. A tile has
// some of the pieces and computes what the whole op would.
#include <string.h>

#include "device/cpu/fast.h"

enum form { IN_ONE, BY_COLUMNS, BY_DEPTH, BY_ROWS };

struct matmul {
    const struct cpu_vector *vector;
    enum form form;
    struct cpu_grid grid[2]; /* for the last piece; for the others */
    int64_t n_pieces, piece; /* rows of the parameter */
    int64_t first;           /* first row of the parameter that a tile has */
    int64_t n;               /* columns of the result */
    bool in_place;           /* the product writes blocks straight to the output */
    bool has_bias, continues;
    enum sw_act act;
    enum sw_dtype out_dtype, bias_dtype;
    size_t worker_bytes;
    bool has_panels;
    struct cpu_panels panels; /* if has_panels; else each block packs its own operands */
};

static bool takes(const struct sw_op_desc *desc)
{
    const struct sw_view *a = &desc->in[0], *b = &desc->in[1];
    return cpu_is_fast_float(a->dtype) && b->dtype == a->dtype && cpu_has_output(desc, 0) &&
           cpu_is_fast_float(desc->out[0].dtype) &&
           (!cpu_has_output(desc, 1) || desc->out[1].dtype == desc->out[0].dtype) &&
           (!desc->op->attrs.matmul.has_bias || cpu_is_fast_float(desc->in[2].dtype));
}

/* Limit of what is packed at a time: it stays in the L3 cache, or is small beside the result. */
enum { PACKED_BYTES = 12 << 20 };
/* With fewer rows or columns, packing once gains nothing. */
enum { LEAST_EDGE = 128 };

/* Cuts the product of one piece with that many rows of the parameter. */
static sw_status cut_piece(const struct cpu_device *dev, const struct sw_op_desc *desc,
                           bool prefer_dnnl, int64_t rows, const struct matmul *mm,
                           struct cpu_grid *out)
{
    const struct sw_matmul_attrs *attrs = &desc->op->attrs.matmul;
    const struct sw_view *a = &desc->in[0], *b = &desc->in[1];
    const int64_t a_rows = sw_shape_rows(&a->shape), a_cols = sw_shape_last(&a->shape);
    const int64_t b_rows = sw_shape_rows(&b->shape), b_cols = sw_shape_last(&b->shape);
    struct cpu_gemm gemm = {
        .dtype = a->dtype,
        .dtype_b = b->dtype,
        .ta = attrs->ta,
        .tb = attrs->tb,
        .m = attrs->ta ? a_cols : a_rows,
        .n = attrs->tb ? b_rows : b_cols,
        .k = attrs->ta ? a_rows : a_cols,
        .lda = a_cols,
        .ldb = b_cols,
        .ldc = mm->in_place ? mm->n : 0,
    };
    gemm.m = mm->form == BY_ROWS ? rows : gemm.m;
    gemm.n = mm->form == BY_COLUMNS ? rows : gemm.n;
    gemm.k = mm->form == BY_DEPTH ? rows : gemm.k;
    return sw_cpu_grid_cut(dev, &gemm, prefer_dnnl, out);
}

static void describe(const struct sw_op_desc *desc, struct matmul *out)
{
    const struct sw_matmul_attrs *attrs = &desc->op->attrs.matmul;
    *out = (struct matmul){
        .form = attrs->piece == 0 ? IN_ONE
                : attrs->ta       ? BY_ROWS
                : attrs->tb       ? BY_COLUMNS
                                  : BY_DEPTH,
        .first = attrs->tile.first,
        .n = sw_shape_last(&desc->out[0].shape),
        .has_bias = attrs->has_bias,
        .continues = attrs->tile.continues,
        .act = attrs->act,
        .out_dtype = desc->out[0].dtype,
        .bias_dtype = attrs->has_bias ? desc->in[2].dtype : SW_F32,
    };
    out->in_place = out->out_dtype == SW_F32 && !attrs->has_bias && attrs->act == SW_ACT_NONE &&
                    !cpu_has_output(desc, 1) && out->form != BY_DEPTH;
}

/* Finds everything but the pieces that run. */
static sw_status cut(const struct cpu_device *dev, const struct sw_op_desc *desc, bool prefer_dnnl,
                     struct matmul *out)
{
    describe(desc, out);
    out->vector = sw_cpu_vector_for(dev->isa);
    const int64_t rows = sw_shape_rows(&desc->in[1].shape);
    const int64_t whole = out->form == BY_ROWS ? sw_shape_rows(&desc->out[0].shape) : rows;
    /* for own kernels rows and columns do not depend on each other: only sums are cut */
    const bool in_one = out->form == IN_ONE || (out->form != BY_DEPTH && !prefer_dnnl);
    out->piece = in_one ? whole : desc->op->attrs.matmul.piece;
    out->n_pieces = in_one ? 1 : sw_max_i64(1, sw_ceil_div(whole, out->piece));
    for (int other = 0; other < (out->n_pieces > 1 ? 2 : 1); other++) {
        struct cpu_grid *grid = &out->grid[other];
        const int64_t piece = other ? out->piece : whole - (out->n_pieces - 1) * out->piece;
        SW_TRY(cut_piece(dev, desc, prefer_dnnl, piece, out, grid));
        const size_t blocks = (size_t)(!out->in_place) + (out->form == BY_DEPTH);
        const size_t bytes = grid->scratch_bytes + blocks * cpu_grid_block_bytes(grid);
        out->worker_bytes = bytes > out->worker_bytes ? bytes : out->worker_bytes;
    }
    if (!prefer_dnnl && out->form != BY_DEPTH) {
        const struct cpu_gemm *gemm = &out->grid[0].whole;
        const size_t result = (size_t)(gemm->m * gemm->n) * sizeof(float);
        const size_t most = result / 4 > PACKED_BYTES ? result / 4 : PACKED_BYTES;
        out->has_panels = gemm->m >= LEAST_EDGE && gemm->n >= LEAST_EDGE &&
                          sw_cpu_panels_cut(dev, gemm, out->in_place, 1, most, &out->panels);
    }
    return SW_OK;
}

struct job {
    const struct matmul *matmul;
    const struct cpu_call *call;
};

/* Applies bias, activation and rounding to a block of the result. */
static void finish(const struct job *job, const float *product, struct cpu_block block)
{
    const struct matmul *mm = job->matmul;
    const struct cpu_call *call = job->call;
    const size_t bytes = sw_dtype_bytes(mm->out_dtype), first = (size_t)(block.i * mm->n + block.j);
    char *pre = call->desc->op->n_out > 1 ? call->out[1] : NULL;
    const struct cpu_epilogue epilogue = {
        .dtype = mm->out_dtype,
        .bias_dtype = mm->bias_dtype,
        .act = mm->act,
        .bias = mm->has_bias
                    ? (const char *)call->in[2] + (size_t)block.j * sw_dtype_bytes(mm->bias_dtype)
                    : NULL,
        .out = (char *)call->out[0] + first * bytes,
        .pre = pre ? pre + first * bytes : NULL,
        .ld_out = mm->n,
    };
    mm->vector->epilogue(&epilogue, product, block.m, block.n, block.n);
}

/* Element 0 of the operands of the piece that begins at `row` of this tile. */
static void operands(const struct job *job, const struct cpu_grid *grid, int64_t row,
                     const void **a, const void **b)
{
    const struct matmul *mm = job->matmul;
    const struct cpu_gemm *g = &grid->whole;
    const int64_t at_a = mm->form == BY_ROWS ? mm->first + row : 0;
    const int64_t at_b = mm->form == BY_COLUMNS ? row * g->ldb : 0;
    *a = (const char *)job->call->in[0] + (size_t)at_a * sw_dtype_bytes(g->dtype);
    *b = (const char *)job->call->in[1] + (size_t)at_b * sw_dtype_bytes(g->dtype_b);
}

/* Computes a block of the result of one piece. */
static void item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct matmul *mm = job->matmul;
    const struct cpu_call *call = job->call;
    int64_t piece = 0;
    if (mm->n_pieces > 1) {
        piece = sw_min_i64(i_item / cpu_grid_items(&mm->grid[1]), mm->n_pieces - 1);
        i_item -= piece * cpu_grid_items(&mm->grid[1]);
    }
    const struct cpu_grid *grid = &mm->grid[piece < mm->n_pieces - 1];
    const int64_t row = piece * mm->piece; /* row of the parameter in this tile */
    struct cpu_block block = sw_cpu_grid_block(grid, i_item);
    block.i += mm->form == BY_ROWS ? row : 0;
    block.j += mm->form == BY_COLUMNS ? mm->first + row : 0;
    const void *a, *b;
    operands(job, grid, row, &a, &b);
    char *scratch = (char *)call->workspace + (size_t)i_worker * mm->worker_bytes;
    float *c = mm->in_place ? (float *)call->out[0] + block.i * mm->n + block.j : (float *)scratch;
    sw_cpu_grid_run(grid, i_item, i_worker, a, b, c,
                    scratch + (mm->in_place ? 0 : cpu_grid_block_bytes(grid)));
    if (!mm->in_place) {
        finish(job, c, block);
    }
}

static void finish_panel(void *ctx, float *product, struct cpu_block block)
{
    const struct job *job = ctx;
    block.j += job->matmul->form == BY_COLUMNS ? job->matmul->first : 0;
    finish(job, product, block);
}

static void run_panels(struct job *job)
{
    const struct matmul *mm = job->matmul;
    struct cpu_panels_call call = {
        .workspace = job->call->workspace, .finish = finish_panel, .ctx = job};
    operands(job, &mm->grid[0], 0, &call.a, &call.b);
    if (mm->in_place) {
        call.c = (float *)job->call->out[0] + (mm->form == BY_COLUMNS ? mm->first : 0);
    }
    sw_cpu_panels_run(&mm->panels, job->call->pool, &call);
}

/* Computes a block of the result, summed over the pieces in order. */
static void sum_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct matmul *mm = job->matmul;
    const struct cpu_call *call = job->call;
    const struct cpu_block block = sw_cpu_grid_block(&mm->grid[0], i_item);
    const size_t block_bytes = cpu_grid_block_bytes(&mm->grid[0]);
    char *scratch = (char *)call->workspace + (size_t)i_worker * mm->worker_bytes;
    float *sum = (float *)scratch, *part = (float *)(scratch + block_bytes);
    if (mm->continues) {
        const float *before = call->in[2 + mm->has_bias];
        for (int64_t i = 0; i < block.m; i++) {
            memcpy(sum + i * block.n, before + (block.i + i) * mm->n + block.j,
                   (size_t)block.n * sizeof *sum);
        }
    }
    for (int64_t piece = 0; piece < mm->n_pieces; piece++) {
        const struct cpu_grid *grid = &mm->grid[piece < mm->n_pieces - 1];
        const struct cpu_gemm *gemm = &grid->whole;
        const int64_t row = piece * mm->piece;
        const bool begins = piece == 0 && !mm->continues;
        sw_cpu_grid_run(
            grid, i_item, i_worker,
            (const char *)call->in[0] + (size_t)(mm->first + row) * sw_dtype_bytes(gemm->dtype),
            (const char *)call->in[1] + (size_t)(row * gemm->ldb) * sw_dtype_bytes(gemm->dtype_b),
            begins ? sum : part, scratch + 2 * block_bytes);
        if (!begins) {
            mm->vector->accumulate_block(sum, block.n, part, block.n, block.m, block.n);
        }
    }
    finish(job, sum, block);
}

static void run(const struct cpu_call *call)
{
    struct job job = {.matmul = call->prepared, .call = call};
    const struct matmul *mm = call->prepared;
    if (mm->has_panels) {
        run_panels(&job);
        return;
    }
    if (mm->form == BY_DEPTH) {
        sw_pool_run(call->pool, cpu_grid_items(&mm->grid[0]), sum_item, &job);
        return;
    }
    sw_pool_run(call->pool,
                (mm->n_pieces - 1) * cpu_grid_items(&mm->grid[1]) + cpu_grid_items(&mm->grid[0]),
                item, &job);
}

static void release(void *prepared)
{
    struct matmul *mm = prepared;
    sw_cpu_grid_close(&mm->grid[0]);
    sw_cpu_grid_close(&mm->grid[1]);
    sw_free(mm);
}

static sw_status prepare_with(const struct cpu_device *dev, const struct sw_op_desc *desc,
                              bool prefer_dnnl, void **prepared)
{
    struct matmul *mm = sw_alloc_zero("device", 1, sizeof *mm);
    SW_TRY_ALLOC(mm, "a matrix product");
    sw_status st = SW_OK;
    SW_TRY_OR(release, cut(dev, desc, prefer_dnnl, mm));
    SW_TRY_OR(release, sw_cpu_grid_open(dev, &mm->grid[0]));
    SW_TRY_OR(release, sw_cpu_grid_open(dev, &mm->grid[1]));
    *prepared = mm;
    return SW_OK;
release:
    release(mm);
    return st;
}

static void query_with(const struct cpu_device *dev, const struct sw_op_desc *desc,
                       bool prefer_dnnl, struct sw_kernel_info *out)
{
    struct matmul mm;
    const sw_status st = takes(desc) ? cut(dev, desc, prefer_dnnl, &mm) : SW_E_UNSUP;
    out->no_memory = st == SW_E_NOMEM;
    if (st < 0) {
        return;
    }
    out->supported = true;
    const int workers = cpu_workers(dev->pool);
    out->workspace_bytes = mm.has_panels ? sw_cpu_panels_bytes(&mm.panels, workers)
                                         : mm.worker_bytes * (size_t)workers;
    out->path = mm.grid[0].path;
}

/* Own products are faster from so many rows and columns on: 1.1 times where b or a is transposed.
 * Below, packing takes the gain. */
enum { OWN_ROWS = 768, OWN_COLUMNS = 512 };

bool sw_cpu_owns_large_f32(const struct cpu_device *dev)
{
    return dev->isa == CPU_AMX_BF16 && !dev->by_library && sw_cpu_dnnl_takes(dev, SW_F32);
}

/* A parameter in pieces is large, and its tiles are computed like the whole. */
static bool owns(const struct cpu_device *dev, const struct sw_op_desc *desc)
{
    struct matmul mm;
    if (desc->in[0].dtype != SW_F32 || !sw_cpu_owns_large_f32(dev) || !takes(desc)) {
        return false;
    }
    describe(desc, &mm);
    const int64_t rows = desc->op->attrs.matmul.ta ? sw_shape_last(&desc->in[0].shape)
                                                   : sw_shape_rows(&desc->in[0].shape);
    return mm.form != BY_DEPTH && (mm.form == BY_ROWS || rows >= OWN_ROWS) &&
           (mm.form == BY_COLUMNS || mm.n >= OWN_COLUMNS);
}

static void query_dnnl(const struct cpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    if (sw_cpu_dnnl_takes(dev, desc->in[0].dtype) && !owns(dev, desc)) {
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
