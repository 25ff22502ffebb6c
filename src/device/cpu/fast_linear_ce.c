// SPDX-License-Identifier: Apache-2.0
// LINEAR_CE and LINEAR_CE_GRAD: cross entropy of h w^T without the logits; LINEAR_CE_AT_ONCE: both,
// by blocks of rows, see below.
// Forward: the product [rows, V] is cut into chunks of attrs.linear_ce.chunk vocabulary rows, and
// those into blocks. A block keeps only each row's maximum and sum of exponentials, and the label's
// logit. A row's pieces are joined afterwards in vocabulary order (two-term online softmax). A bias
// and a cap are applied to a block of products in cache.
// Rows whose label is ignored (for masked tokens most of them) are left out, forward and backward:
// the other rows are compacted first. An ignored row has an lse of 0, which nothing reads.
// Backward, chunk by chunk: the blocks are computed again and turned into d = (p - onehot) dsum in
// h's dtype. Then dh += d w_chunk in fp32, dw_chunk = d^T h, and the sums of d for the bias, all as
// items of one run. A library may choose its algorithm, and so the bits, by the stride of an
// operand: d has the same stride in every tile of a table.
// With dot-product instructions (dots.h) each of the products of a chunk is one run, whose rows are
// handed over in parts: for the statistics of COLUMNS columns, else of DOT_PART. Own products in
// f32 are one run each, too (fast_panels.c). They hand over blocks of logits and add dh and dw in
// place.
#include <math.h>
#include <string.h>

#include "device/cpu/dots.h"

enum { IGNORED = -100 }; /* a label that is ignored */
enum { DEPTH = 256 };    /* rows of d^T h in one product; products are added in order */
enum { COLUMNS = 512 };  /* columns whose statistics are made at once, by dot products */
enum { PANEL_COLUMNS = 128, PANEL_BYTES = 12 << 20 }; /* the same by panels; limit of a slab */
enum { PANEL_SLACK = 16 }; /* more columns of d: rows of a power of two share sets of the caches */

struct loss_shape {
    enum sw_dtype dtype;
    int64_t rows, vocab, width, chunk, n_chunks;
    /* stride of the slope d: the chunk of the whole table, whatever the tile's rows */
    int64_t stride;
    int64_t first;      /* row of the whole table that is row 0 of this tile or part */
    int64_t first_bias; /* row of the bias that belongs to it */
    int64_t padding;    /* rows of a part after its vocabulary; their gradient is 0 */
    bool continues, partial, by_row;
    int bias; /* 1: there is a bias; later inputs shift by one */
    float cap;
};

/* The bias, if there is one, follows the labels or the lse. */
static int bias_input(int i_h)
{
    return i_h == 0 ? 3 : 5;
}

static bool takes(const struct sw_op_desc *desc, int i_h)
{
    const enum sw_dtype dtype = desc->in[i_h].dtype;
    const struct sw_linear_ce_attrs *attrs = &desc->op->attrs.linear_ce;
    return cpu_is_fast_float(dtype) && desc->in[i_h + 1].dtype == dtype && attrs->chunk > 0 &&
           (!attrs->has_bias || desc->in[bias_input(i_h)].dtype == dtype) &&
           sw_linear_ce_words(attrs, desc->in[i_h + 1].shape.dims[0]) > 0;
}

static struct loss_shape shape_of(const struct sw_op_desc *desc, int i_h)
{
    const struct sw_linear_ce_attrs *attrs = &desc->op->attrs.linear_ce;
    const int64_t table = desc->in[i_h + 1].shape.dims[0];
    const int64_t vocab = sw_linear_ce_words(attrs, table);
    const int64_t stride = attrs->chunk, chunk = sw_min_i64(stride, vocab);
    return (struct loss_shape){
        .dtype = desc->in[i_h].dtype,
        .rows = sw_shape_rows(&desc->in[i_h].shape),
        .vocab = vocab,
        .width = sw_shape_last(&desc->in[i_h].shape),
        .chunk = chunk,
        .n_chunks = sw_ceil_div(vocab, chunk),
        .stride = stride,
        .first = attrs->tile.first,
        .first_bias = sw_linear_ce_bias_row(attrs),
        .padding = table - vocab,
        .continues = attrs->tile.continues,
        .partial = attrs->tile.partial,
        .by_row = attrs->by_row,
        .bias = attrs->has_bias,
        .cap = (float)attrs->cap,
    };
}

/* Vocabulary rows of chunk c. All chunks but the last are alike, so there are two kinds of grid. */
static int64_t chunk_rows(const struct loss_shape *s, int64_t c)
{
    return sw_min_i64(s->chunk, s->vocab - c * s->chunk);
}

/* h [rows, width] times the chunk's rows of w, transposed. */
static struct cpu_gemm logits_gemm(const struct loss_shape *s, int64_t c)
{
    return (struct cpu_gemm){.dtype = s->dtype,
                             .dtype_b = s->dtype,
                             .tb = true,
                             .m = s->rows,
                             .n = chunk_rows(s, c),
                             .k = s->width,
                             .lda = s->width,
                             .ldb = s->width};
}

static sw_status cut_logits(const struct cpu_device *dev, const struct loss_shape *s, int64_t c,
                            struct cpu_grid *out)
{
    const struct cpu_gemm whole = logits_gemm(s, c);
    return sw_cpu_grid_cut(dev, &whole, true, out);
}

/* ---- by dot-product instructions ---- */

/* NULL: by grids. */
static const struct cpu_dot_kernel *dot_kernel(const struct cpu_device *dev,
                                               const struct loss_shape *s)
{
    return s->dtype == SW_BF16 ? sw_cpu_dot_kernel(dev) : NULL;
}

/* nb: columns of an item and of its parts of rows, or 0. */
static void cut_dots(const struct cpu_dot_kernel *kernel, const struct cpu_gemm *whole, int64_t nb,
                     int n_threads, struct cpu_dots *out, size_t *most_bytes)
{
    *out = (struct cpu_dots){.kernel = kernel, .whole = *whole, .nb = nb, .part = nb};
    sw_cpu_dots_cut(out, n_threads);
    const size_t bytes = cpu_dots_bytes(out, n_threads);
    *most_bytes = bytes > *most_bytes ? bytes : *most_bytes;
}

/* Copies a part of a row of sums. */
static void gather(const float *c, int64_t n, float *row)
{
    for (int64_t j = 0; j < n; j += DOT_EDGE, c += DOT_ELEMS) {
        memcpy(row + j, c, DOT_EDGE * sizeof *row);
    }
}

/* ---- by panels ---- */

static bool wants_panels(const struct cpu_device *dev, const struct loss_shape *s)
{
    return s->dtype == SW_F32 && sw_cpu_owns_large_f32(dev);
}

/* False if the sums are too long. */
static bool cut_panels(const struct cpu_device *dev, const struct cpu_gemm *whole, bool in_place,
                       struct cpu_panels *out, size_t *most_bytes)
{
    const bool fits = sw_cpu_panels_cut(dev, whole, in_place, PANEL_COLUMNS, PANEL_BYTES, out);
    const size_t bytes = fits ? sw_cpu_panels_bytes(out, cpu_workers(dev->pool)) : 0;
    *most_bytes = bytes > *most_bytes ? bytes : *most_bytes;
    return fits;
}

/* Multiplies only so many rows, or adds so many terms. */
static void run_panels(const struct cpu_panels *cut, int64_t m, int64_t k, struct sw_pool *pool,
                       const struct cpu_panels_call *call)
{
    struct cpu_panels panels = *cut;
    panels.whole.m = m;
    panels.whole.k = k;
    sw_cpu_panels_run(&panels, pool, call);
}

/* ---- all ---- */

static const char *path_of(const struct cpu_grid *grid)
{
    return grid->path ? grid->path : "empty";
}

/* Address of vocabulary row v of w (or dw). */
static void *vocab_row(const struct loss_shape *s, const void *w, enum sw_dtype dtype, int64_t v)
{
    return (char *)(uintptr_t)w + (size_t)(v * s->width) * sw_dtype_bytes(dtype);
}

/* Turns rows of a block of products into logits; column: of the block's first column in the
 * tile. */
static void finish_logits(const struct cpu_vector *vector, const struct loss_shape *s,
                          const void *bias, const struct cpu_block *block, int64_t column,
                          float *logits)
{
    if (s->bias || s->cap > 0) {
        const size_t at = (size_t)(s->first_bias + column) * sw_dtype_bytes(s->dtype);
        vector->finish_logits(s->dtype, logits, block->m, block->n,
                              s->bias ? (const char *)bias + at : NULL, s->cap);
    }
}

/* ---- forward ---- */

struct forward {
    const struct cpu_vector *vector;
    struct loss_shape s;
    struct cpu_grid logits[2]; /* for the last chunk; for the others */
    const struct cpu_dot_kernel *kernel;
    struct cpu_dots dots[2]; /* if kernel is not NULL */
    bool by_panels;
    struct cpu_panels panels[2];
    size_t worker_bytes, shared_bytes; /* shared: by dots and panels */
    int64_t n_columns;                 /* columns of blocks, over all chunks */
};

static const struct cpu_grid *forward_grid(const struct forward *f, int64_t c)
{
    return &f->logits[c < f->s.n_chunks - 1];
}

/* Finds everything but the pieces that run. */
static sw_status forward_cut(const struct cpu_device *dev, const struct sw_op_desc *desc,
                             struct forward *f)
{
    *f = (struct forward){.vector = sw_cpu_vector_for(dev->isa), .s = shape_of(desc, 0)};
    f->kernel = dot_kernel(dev, &f->s);
    f->by_panels = wants_panels(dev, &f->s);
    const int kinds = f->s.n_chunks > 1 ? 2 : 1;
    for (int other = 0; other < kinds && f->by_panels; other++) {
        const struct cpu_gemm whole = logits_gemm(&f->s, other ? 0 : f->s.n_chunks - 1);
        f->by_panels = cut_panels(dev, &whole, false, &f->panels[other], &f->shared_bytes);
    }
    for (int other = 0; other < kinds; other++) {
        const int64_t c = other ? 0 : f->s.n_chunks - 1, alike = other ? f->s.n_chunks - 1 : 1;
        const struct cpu_gemm whole = logits_gemm(&f->s, c);
        if (f->kernel) {
            cut_dots(f->kernel, &whole, COLUMNS, cpu_workers(dev->pool), &f->dots[other],
                     &f->shared_bytes);
            f->n_columns += sw_ceil_div(whole.n, COLUMNS) * alike;
        } else if (f->by_panels) {
            f->n_columns += sw_ceil_div(whole.n, PANEL_COLUMNS) * alike;
        } else {
            struct cpu_grid *grid = &f->logits[other];
            SW_TRY(cut_logits(dev, &f->s, c, grid));
            const size_t bytes = cpu_grid_block_bytes(grid) + grid->scratch_bytes;
            f->worker_bytes = bytes > f->worker_bytes ? bytes : f->worker_bytes;
            f->n_columns += grid->n_n * alike;
        }
    }
    return SW_OK;
}

/* The workspace, for the rows that take part: label logits [rows], maxima and sums [n_columns,
 * rows], row indices [rows], h [rows, width]; then the workers' scratch. */
static size_t stats_bytes(const struct forward *f)
{
    return sw_round_up((size_t)(f->s.rows * (2 + 2 * f->n_columns)) * sizeof(float), CPU_LINE);
}

static size_t together_h_bytes(const struct forward *f)
{
    return sw_round_up((size_t)(f->s.rows * f->s.width) * sw_dtype_bytes(f->s.dtype), CPU_LINE);
}

static void forward_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                          struct sw_kernel_info *out)
{
    struct forward f;
    const sw_status st = takes(desc, 0) ? forward_cut(dev, desc, &f) : SW_E_UNSUP;
    out->no_memory = st == SW_E_NOMEM;
    if (st < 0) {
        return;
    }
    out->supported = true;
    out->workspace_bytes = stats_bytes(&f) + together_h_bytes(&f) + f.shared_bytes +
                           f.worker_bytes * (size_t)cpu_workers(dev->pool);
    out->path = f.kernel ? f.kernel->name : f.by_panels ? f.vector->name : path_of(&f.logits[0]);
}

static void forward_release(void *prepared)
{
    struct forward *f = prepared;
    sw_cpu_grid_close(&f->logits[0]);
    sw_cpu_grid_close(&f->logits[1]);
    sw_free(f);
}

static sw_status forward_prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                 void **prepared)
{
    struct forward *f = sw_alloc_zero("device", 1, sizeof *f);
    SW_TRY_ALLOC(f, "the loss");
    sw_status st = SW_OK;
    SW_TRY_OR(release, forward_cut(dev, desc, f));
    SW_TRY_OR(release, sw_cpu_grid_open(dev, &f->logits[0]));
    SW_TRY_OR(release, sw_cpu_grid_open(dev, &f->logits[1]));
    *prepared = f;
    return SW_OK;
release:
    forward_release(f);
    return st;
}

struct forward_job {
    const struct forward *f;
    const struct cpu_call *call;
    float *label_logit, *max, *sum;
    int32_t *place; /* indices of the rows that take part */
    const char *h;  /* h of those rows */
    char *scratch;
    int64_t n_used;
};

/* Finds the rows that take part; returns their number. */
static int64_t find_used(const int32_t *labels, int64_t rows, int32_t *place)
{
    int64_t n_used = 0;
    for (int64_t row = 0; row < rows; row++) {
        if (labels[row] != IGNORED) {
            place[n_used++] = (int32_t)row;
        }
    }
    return n_used;
}

/* Copies h of the rows that take part, then zeros, `room` rows in all. */
static void move_together(const struct loss_shape *s, const char *h, const int32_t *place,
                          int64_t n_used, int64_t room, char *out)
{
    const size_t bytes = (size_t)s->width * sw_dtype_bytes(s->dtype);
    for (int64_t i = 0; i < n_used; i++) {
        memcpy(out + (size_t)i * bytes, h + (size_t)place[i] * bytes, bytes);
    }
    memset(out + (size_t)n_used * bytes, 0, (size_t)(room - n_used) * bytes);
}

/* Sets the outputs of an ignored row. */
static void leave_out(const struct forward_job *job, int64_t row)
{
    const int64_t rows = job->f->s.rows;
    if (job->f->s.partial) {
        float *after = job->call->out[0];
        after[row] = after[rows + row] = after[2 * rows + row] = 0;
    } else {
        ((float *)job->call->out[2])[row] = 0;
    }
}

/* together: room for h of all rows, used if some are left out. */
static void choose_rows(struct forward_job *job, char *together)
{
    const struct loss_shape *s = &job->f->s;
    const int32_t *labels = job->call->in[2];
    job->h = job->call->in[0];
    job->n_used = find_used(labels, s->rows, job->place);
    for (int64_t row = 0; row < s->rows; row++) {
        if (labels[row] == IGNORED) {
            leave_out(job, row);
        }
    }
    if (job->n_used < s->rows) {
        move_together(s, job->h, job->place, job->n_used, s->rows, together);
        job->h = together;
    }
}

/* Keeps the logits of labels that are in the block; column: its first one in the tile. */
static void take_labels(const struct forward_job *job, const struct cpu_block *block,
                        int64_t column, const float *logits)
{
    const int32_t *labels = job->call->in[2];
    for (int64_t i = 0; i < block->m; i++) {
        const int64_t hit = labels[job->place[block->i + i]] - (job->f->s.first + column);
        if (hit >= 0 && hit < block->n) {
            job->label_logit[block->i + i] = logits[i * block->n + hit];
        }
    }
}

static void forward_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct forward_job *job = ctx;
    const struct forward *f = job->f;
    const struct loss_shape *s = &f->s;
    int64_t c = 0, column = 0;
    if (s->n_chunks > 1) {
        c = sw_min_i64(i_item / cpu_grid_items(&f->logits[1]), s->n_chunks - 1);
        column = c * f->logits[1].n_n;
        i_item -= c * cpu_grid_items(&f->logits[1]);
    }
    const struct cpu_grid *grid = forward_grid(f, c);
    struct cpu_block block = sw_cpu_grid_block(grid, i_item);
    float *logits = (float *)(job->scratch + (size_t)i_worker * f->worker_bytes);
    if (block.i >= job->n_used) {
        return;
    }
    sw_cpu_grid_run_rows(grid, i_item, i_worker, job->n_used, job->h,
                         vocab_row(s, job->call->in[1], s->dtype, c * s->chunk), logits,
                         (char *)logits + cpu_grid_block_bytes(grid));
    block.m = sw_min_i64(block.m, job->n_used - block.i);
    finish_logits(f->vector, s, job->call->in[3], &block, c * s->chunk + block.j, logits);
    const int64_t at = (column + block.j / grid->nb) * s->rows + block.i;
    f->vector->softmax_stats(logits, block.n, block.m, block.n, job->max + at, job->sum + at);
    take_labels(job, &block, c * s->chunk + block.j, logits);
}

struct forward_chunk {
    const struct forward_job *job;
    int64_t c;
};

/* Takes a part of a row of a chunk's products. */
static void take_logits(void *ctx, const struct cpu_block *part, const float *c)
{
    const struct forward_chunk *chunk = ctx;
    const struct forward_job *job = chunk->job;
    const struct forward *f = job->f;
    const struct loss_shape *s = &f->s;
    const int64_t first = chunk->c * s->chunk, row = part->i;
    float logits[COLUMNS];
    gather(c, part->n, logits);
    finish_logits(f->vector, s, job->call->in[3], part, first + part->j, logits);
    const int64_t column = chunk->c * sw_ceil_div(s->chunk, COLUMNS) + part->j / COLUMNS;
    const int64_t at = column * s->rows + row;
    f->vector->softmax_stats(logits, part->n, 1, part->n, job->max + at, job->sum + at);
    take_labels(job, part, first + part->j, logits);
}

/* Takes a block of a chunk's products. */
static void take_logits_block(void *ctx, float *logits, struct cpu_block block)
{
    const struct forward_chunk *chunk = ctx;
    const struct forward_job *job = chunk->job;
    const struct forward *f = job->f;
    const struct loss_shape *s = &f->s;
    const int64_t first = chunk->c * s->chunk;
    const int64_t column =
        chunk->c * sw_ceil_div(s->chunk, PANEL_COLUMNS) + block.j / PANEL_COLUMNS;
    finish_logits(f->vector, s, job->call->in[3], &block, first + block.j, logits);
    for (int64_t j = 0; j < block.n; j += PANEL_COLUMNS) {
        const int64_t at = (column + j / PANEL_COLUMNS) * s->rows + block.i;
        f->vector->softmax_stats(logits + j, block.n, block.m,
                                 sw_min_i64(PANEL_COLUMNS, block.n - j), job->max + at,
                                 job->sum + at);
    }
    take_labels(job, &block, first + block.j, logits);
}

static void run_logits(const struct forward_job *job)
{
    const struct forward *f = job->f;
    const struct loss_shape *s = &f->s;
    for (int64_t c = 0; c < s->n_chunks && job->n_used > 0; c++) {
        const bool other = c < s->n_chunks - 1;
        struct forward_chunk chunk = {job, c};
        const void *w = vocab_row(s, job->call->in[1], s->dtype, c * s->chunk);
        if (f->by_panels) {
            const struct cpu_panels_call call = {.a = job->h,
                                                 .b = w,
                                                 .workspace = job->scratch,
                                                 .finish = take_logits_block,
                                                 .ctx = &chunk};
            run_panels(&f->panels[other], job->n_used, s->width, job->call->pool, &call);
            continue;
        }
        const struct cpu_dots_run run = {.a = job->h,
                                         .b = w,
                                         .n_rows = job->n_used,
                                         .workspace = job->scratch,
                                         .sink = take_logits,
                                         .ctx = &chunk};
        sw_cpu_dots_run(&f->dots[other], job->call->pool, &run);
    }
}

/* Joins the pieces of MERGE_ROWS rows, in vocabulary order. */
enum { MERGE_ROWS = 64 };

static void merge_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct forward_job *job = ctx;
    const struct forward *f = job->f;
    const int64_t rows = f->s.rows;
    const float *before = f->s.continues ? job->call->in[3 + f->s.bias] : NULL;
    float *after = f->s.partial ? job->call->out[0] : NULL;
    float *lse = job->call->out[2];
    (void)i_worker;
    const int64_t end = sw_min_i64(job->n_used, (i_item + 1) * MERGE_ROWS);
    for (int64_t i = i_item * MERGE_ROWS; i < end; i++) {
        const int64_t row = job->place[i];
        float top = before ? before[rows + row] : job->max[i];
        float mass = before ? before[2 * rows + row] : job->sum[i];
        for (int64_t c = before ? 0 : 1; c < f->n_columns; c++) {
            const float other = job->max[c * rows + i], other_mass = job->sum[c * rows + i];
            if (other > top) {
                mass = mass * expf(top - other) + other_mass;
                top = other;
            } else { /* both may be -inf */
                mass += other == top ? other_mass : other_mass * expf(other - top);
            }
        }
        if (after) {
            after[row] = job->label_logit[i];
            after[rows + row] = top;
            after[2 * rows + row] = mass;
        } else {
            lse[row] = top + logf(mass);
        }
    }
}

/* The loss and count of each row. */
static void put_rows(const struct forward_job *job, const float *lse)
{
    float *loss = job->call->out[0], *count = job->call->out[1];
    memset(loss, 0, (size_t)job->f->s.rows * sizeof *loss);
    memset(count, 0, (size_t)job->f->s.rows * sizeof *count);
    for (int64_t i = 0; i < job->n_used; i++) {
        loss[job->place[i]] = lse[job->place[i]] - job->label_logit[i];
        count[job->place[i]] = 1;
    }
}

static void forward_run(const struct cpu_call *call)
{
    const struct forward *f = call->prepared;
    const struct loss_shape *s = &f->s;
    float *label_logit = call->workspace;
    float *max = label_logit + s->rows, *sum = max + s->rows * f->n_columns;
    char *together = (char *)call->workspace + stats_bytes(f);
    struct forward_job job = {.f = f,
                              .call = call,
                              .label_logit = label_logit,
                              .max = max,
                              .sum = sum,
                              .place = (int32_t *)(sum + s->rows * f->n_columns),
                              .scratch = together + together_h_bytes(f)};
    choose_rows(&job, together);
    for (int64_t i = 0; i < job.n_used; i++) {
        /* stays NaN if the label is not in the vocabulary */
        label_logit[i] = s->continues ? ((const float *)call->in[3 + s->bias])[job.place[i]] : NAN;
    }
    if (f->kernel || f->by_panels) {
        run_logits(&job);
    } else {
        sw_pool_run(call->pool,
                    (s->n_chunks - 1) * cpu_grid_items(&f->logits[1]) +
                        cpu_grid_items(&f->logits[0]),
                    forward_item, &job);
    }
    sw_pool_run(call->pool, sw_ceil_div(job.n_used, MERGE_ROWS), merge_item, &job);
    if (s->partial) {
        return;
    }
    const float *lse = call->out[2];
    if (s->by_row) {
        put_rows(&job, lse);
        return;
    }
    double total = 0;
    for (int64_t i = 0; i < job.n_used; i++) {
        total += (double)(lse[job.place[i]] - label_logit[i]);
    }
    *(float *)call->out[0] = (float)total;
    *(float *)call->out[1] = (float)job.n_used;
}

const struct cpu_kernel sw_cpu_linear_ce = {.name = "fast",
                                            .query = forward_query,
                                            .prepare = forward_prepare,
                                            .release = forward_release,
                                            .run = forward_run};

/* ---- backward ---- */

struct backward_chunk {
    struct cpu_grid logits, dh, dw;
    struct cpu_dots dots_logits, dots_dh, dots_dw; /* used instead of the grids */
    struct cpu_panels panels_logits, panels_dh, panels_dw;
};

struct backward {
    const struct cpu_vector *vector;
    struct loss_shape s;
    int64_t depth, room; /* rows of a product of dw; rows of all those products */
    bool has_dh, has_dw, has_db;
    bool dw_streams; /* see struct cpu_epilogue */
    enum sw_dtype dh_dtype, dw_dtype, db_dtype;
    struct backward_chunk chunk[2]; /* for the last chunk; for the others */
    const struct cpu_dot_kernel *kernel;
    bool by_panels;
    size_t worker_bytes, shared_bytes; /* shared: by dots and panels */
};

static const struct backward_chunk *backward_chunk(const struct backward *b, int64_t c)
{
    return &b->chunk[c < b->s.n_chunks - 1];
}

static void need_worker(struct backward *b, const struct cpu_grid *grid)
{
    const size_t bytes = 2 * cpu_grid_block_bytes(grid) + grid->scratch_bytes;
    b->worker_bytes = bytes > b->worker_bytes ? bytes : b->worker_bytes;
}

/* d [rows, n] times w [n, width]. */
static struct cpu_gemm dh_gemm(const struct loss_shape *s, int64_t c)
{
    return (struct cpu_gemm){.dtype = s->dtype,
                             .dtype_b = s->dtype,
                             .m = s->rows,
                             .n = s->width,
                             .k = chunk_rows(s, c),
                             .lda = s->stride,
                             .ldb = s->width};
}

/* d^T times h [rows, width], of `depth` rows. */
static struct cpu_gemm dw_gemm(const struct loss_shape *s, int64_t c, int64_t depth)
{
    return (struct cpu_gemm){.dtype = s->dtype,
                             .dtype_b = s->dtype,
                             .ta = true,
                             .m = chunk_rows(s, c),
                             .n = s->width,
                             .k = depth,
                             .lda = s->stride,
                             .ldb = s->width};
}

static sw_status backward_cut_chunk(const struct cpu_device *dev, struct backward *b, int64_t c,
                                    struct backward_chunk *out)
{
    const struct loss_shape *s = &b->s;
    const bool library = sw_cpu_dnnl_takes(dev, s->dtype); /* otherwise blocks fit the threads */
    SW_TRY(cut_logits(dev, s, c, &out->logits));
    need_worker(b, &out->logits);
    if (b->has_dh) {
        const struct cpu_gemm whole = dh_gemm(s, c);
        SW_TRY(sw_cpu_grid_cut(dev, &whole, library, &out->dh));
        need_worker(b, &out->dh);
    }
    if (b->has_dw) {
        const struct cpu_gemm whole = dw_gemm(s, c, b->depth);
        SW_TRY(sw_cpu_grid_cut(dev, &whole, library, &out->dw));
        need_worker(b, &out->dw);
    }
    return SW_OK;
}

static void backward_cut_dots(const struct cpu_device *dev, struct backward *b, int64_t c,
                              struct backward_chunk *out)
{
    const int n = cpu_workers(dev->pool);
    const struct cpu_gemm logits = logits_gemm(&b->s, c), dh = dh_gemm(&b->s, c);
    const struct cpu_gemm dw = dw_gemm(&b->s, c, b->s.rows);
    cut_dots(b->kernel, &logits, 0, n, &out->dots_logits, &b->shared_bytes);
    if (b->has_dh) {
        cut_dots(b->kernel, &dh, 0, n, &out->dots_dh, &b->shared_bytes);
    }
    if (b->has_dw) {
        cut_dots(b->kernel, &dw, 0, n, &out->dots_dw, &b->shared_bytes);
    }
}

static bool backward_cut_panels(const struct cpu_device *dev, struct backward *b, int64_t c,
                                struct backward_chunk *out)
{
    const struct cpu_gemm logits = logits_gemm(&b->s, c);
    struct cpu_gemm dh = dh_gemm(&b->s, c), dw = dw_gemm(&b->s, c, b->s.rows);
    dh.ldc = dw.ldc = b->s.width;
    return cut_panels(dev, &logits, false, &out->panels_logits, &b->shared_bytes) &&
           cut_panels(dev, &dh, true, &out->panels_dh, &b->shared_bytes) &&
           cut_panels(dev, &dw, true, &out->panels_dw, &b->shared_bytes);
}

/* Finds everything but the pieces that run. */
static sw_status backward_cut(const struct cpu_device *dev, const struct sw_op_desc *desc,
                              struct backward *b)
{
    *b = (struct backward){.vector = sw_cpu_vector_for(dev->isa),
                           .s = shape_of(desc, 1),
                           .has_dh = cpu_has_output(desc, 0),
                           .has_dw = cpu_has_output(desc, 1),
                           .has_db = cpu_has_output(desc, 2)};
    b->depth = sw_min_i64(DEPTH, b->s.rows);
    b->room = b->depth > 0 ? sw_ceil_div(b->s.rows, b->depth) * b->depth : 0;
    b->dh_dtype = b->has_dh ? desc->out[0].dtype : SW_F32;
    b->dw_dtype = b->has_dw ? desc->out[1].dtype : SW_F32;
    b->dw_streams =
        b->has_dw && sw_shape_bytes(&desc->out[1].shape, b->dw_dtype) > DOT_STREAMED_BYTES;
    b->db_dtype = b->has_db ? desc->out[2].dtype : SW_F32;
    b->kernel = dot_kernel(dev, &b->s);
    if (b->has_dw && b->dw_dtype == SW_F16) {
        b->kernel = NULL; /* there is no such epilogue */
    }
    const int kinds = b->s.n_chunks > 1 ? 2 : 1;
    b->by_panels =
        wants_panels(dev, &b->s) && b->s.rows > 0 && (!b->has_dw || b->dw_dtype == SW_F32);
    b->s.stride += b->by_panels ? PANEL_SLACK : 0;
    for (int other = 0; other < kinds && b->by_panels; other++) {
        const int64_t c = other ? 0 : b->s.n_chunks - 1;
        b->by_panels = backward_cut_panels(dev, b, c, &b->chunk[other]);
    }
    for (int other = 0; other < kinds && !b->by_panels; other++) {
        const int64_t c = other ? 0 : b->s.n_chunks - 1;
        if (b->kernel) {
            backward_cut_dots(dev, b, c, &b->chunk[other]);
        } else {
            SW_TRY(backward_cut_chunk(dev, b, c, &b->chunk[other]));
        }
    }
    return SW_OK;
}

/* The workspace, for the rows that take part: h [room, width] and d [room, stride] in h's dtype,
 * their labels, lse and indices; dh [rows, width] in fp32; the workers' scratch. */
static size_t rows_bytes(const struct backward *b, int64_t width)
{
    return sw_round_up((size_t)(b->room * width) * sw_dtype_bytes(b->s.dtype), CPU_LINE);
}

static size_t numbers_bytes(const struct backward *b)
{
    return sw_round_up((size_t)b->room * sizeof(float), CPU_LINE);
}

static size_t together_bytes(const struct backward *b)
{
    return rows_bytes(b, b->s.width) + rows_bytes(b, b->s.stride) + 3 * numbers_bytes(b);
}

static size_t dh_bytes(const struct backward *b)
{
    return b->has_dh && (b->by_panels || !b->s.partial)
               ? sw_round_up((size_t)(b->s.rows * b->s.width) * sizeof(float), CPU_LINE)
               : 0;
}

static void backward_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                           struct sw_kernel_info *out)
{
    struct backward b;
    bool good = takes(desc, 1);
    for (int i = 0; i < 3; i++) {
        good = good && (!cpu_has_output(desc, i) || cpu_is_fast_float(desc->out[i].dtype));
    }
    const sw_status st = good ? backward_cut(dev, desc, &b) : SW_E_UNSUP;
    out->no_memory = st == SW_E_NOMEM;
    if (st < 0) {
        return;
    }
    out->supported = true;
    out->workspace_bytes = together_bytes(&b) + dh_bytes(&b) + b.shared_bytes +
                           b.worker_bytes * (size_t)cpu_workers(dev->pool);
    out->path = b.kernel      ? b.kernel->name
                : b.by_panels ? b.vector->name
                              : path_of(&b.chunk[0].logits);
}

static void backward_release(void *prepared)
{
    struct backward *b = prepared;
    for (int other = 0; other < 2; other++) {
        sw_cpu_grid_close(&b->chunk[other].logits);
        sw_cpu_grid_close(&b->chunk[other].dh);
        sw_cpu_grid_close(&b->chunk[other].dw);
    }
    sw_free(b);
}

static sw_status backward_prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                  void **prepared)
{
    struct backward *b = sw_alloc_zero("device", 1, sizeof *b);
    SW_TRY_ALLOC(b, "the gradient of the loss");
    sw_status st = SW_OK;
    SW_TRY_OR(release, backward_cut(dev, desc, b));
    for (int other = 0; other < 2; other++) {
        SW_TRY_OR(release, sw_cpu_grid_open(dev, &b->chunk[other].logits));
        SW_TRY_OR(release, sw_cpu_grid_open(dev, &b->chunk[other].dh));
        SW_TRY_OR(release, sw_cpu_grid_open(dev, &b->chunk[other].dw));
    }
    *prepared = b;
    return SW_OK;
release:
    backward_release(b);
    return st;
}

struct backward_job {
    const struct backward *b;
    const struct cpu_call *call;
    int64_t c;
    char *h, *d, *scratch;   /* h, d: the n_used rows that take part, then zeros */
    int32_t *labels, *place; /* labels and indices of those rows */
    float *lse, *dh;
    int64_t n_used;
    bool adds; /* dw and db have the sums of earlier rows */
};

/* An ignored row: its dh is that of the tiles before, or 0. */
static void pass_row(const struct backward_job *job, int64_t row)
{
    const struct backward *b = job->b;
    const struct loss_shape *s = &b->s;
    const size_t bytes = (size_t)s->width * sw_dtype_bytes(b->dh_dtype);
    if (b->has_dh && !s->continues) {
        memset((char *)job->call->out[0] + (size_t)row * bytes, 0, bytes);
    } else if (b->has_dh && !s->partial) { /* a partial sum is already in place */
        b->vector->cast(b->dh_dtype, SW_F32, (char *)job->call->out[0] + (size_t)row * bytes,
                        (const float *)job->call->in[5 + s->bias] + row * s->width, 0, s->width);
    }
}

static void find_rows(struct backward_job *job)
{
    const struct loss_shape *s = &job->b->s;
    const size_t d_bytes = (size_t)s->stride * sw_dtype_bytes(s->dtype);
    const int32_t *labels = job->call->in[3];
    const float *lse = job->call->in[4];
    job->n_used = find_used(labels, s->rows, job->place);
    for (int64_t row = 0; row < s->rows; row++) {
        if (labels[row] == IGNORED) {
            pass_row(job, row);
        }
    }
    for (int64_t i = 0; i < job->n_used; i++) {
        job->labels[i] = labels[job->place[i]];
        job->lse[i] = lse[job->place[i]];
    }
    const size_t rest = (size_t)(job->b->room - job->n_used);
    move_together(s, job->call->in[1], job->place, job->n_used, job->b->room, job->h);
    memset(job->d + (size_t)job->n_used * d_bytes, 0, rest * d_bytes);
    memset(job->lse + job->n_used, 0, rest * sizeof *job->lse);
    for (int64_t i = job->n_used; i < job->b->room; i++) {
        job->labels[i] = IGNORED;
    }
}

/* Logits of n rows of a block -> d. */
static void put_slope(const struct backward_job *job, const struct cpu_block *block,
                      const float *logits, int64_t n)
{
    const struct loss_shape *s = &job->b->s;
    const float *dsum = job->call->in[0];
    const int64_t first = s->first + job->c * s->chunk + block->j;
    const int64_t step = s->by_row ? 1 : n; /* rows with one dsum */
    for (int64_t i = 0; i < n; i += step) {
        const int64_t row = block->i + i;
        job->b->vector->softmax_grad(
            s->dtype, logits + i * block->n, block->n, step, block->n, job->lse + row,
            job->labels + row, first, (struct cpu_onehot){0, 1},
            dsum[s->by_row ? job->place[row] : 0], s->cap,
            job->d + (size_t)(row * s->stride + block->j) * sw_dtype_bytes(s->dtype), s->stride);
    }
}

static void d_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct backward_job *job = ctx;
    const struct backward *b = job->b;
    const struct loss_shape *s = &b->s;
    const struct cpu_grid *grid = &backward_chunk(b, job->c)->logits;
    struct cpu_block block = sw_cpu_grid_block(grid, i_item);
    const int64_t first = job->c * s->chunk;
    float *logits = (float *)(job->scratch + (size_t)i_worker * b->worker_bytes);
    if (block.i >= job->n_used) {
        return;
    }
    sw_cpu_grid_run_rows(grid, i_item, i_worker, job->n_used, job->h,
                         vocab_row(s, job->call->in[2], s->dtype, first), logits,
                         (char *)logits + cpu_grid_block_bytes(grid));
    block.m = sw_min_i64(block.m, job->n_used - block.i); /* later rows of d stay 0 */
    finish_logits(b->vector, s, job->call->in[5], &block, first + block.j, logits);
    put_slope(job, &block, logits, block.m);
}

/* Continues the sum over chunks of a row of a block; the last chunk rounds it. at: offset of its
 * first element. */
static void add_dh(const struct backward_job *job, const float *part, int64_t at, int64_t n)
{
    const struct backward *b = job->b;
    const struct loss_shape *s = &b->s;
    float *sum = job->dh + at;
    if (job->c == 0 && s->continues && !s->partial) { /* a partial sum continues in place */
        memcpy(sum, (const float *)job->call->in[5 + s->bias] + at, (size_t)n * sizeof *sum);
    }
    if (job->c == 0 && !s->continues) {
        memcpy(sum, part, (size_t)n * sizeof *sum);
    } else {
        b->vector->accumulate_block(sum, n, part, n, 1, n);
    }
    if (job->c == s->n_chunks - 1 && !s->partial) {
        b->vector->cast(b->dh_dtype, SW_F32,
                        (char *)job->call->out[0] + (size_t)at * sw_dtype_bytes(b->dh_dtype), sum,
                        0, n);
    }
}

static void dh_item(const struct backward_job *job, int64_t i_item, int i_worker)
{
    const struct backward *b = job->b;
    const struct loss_shape *s = &b->s;
    const struct cpu_grid *grid = &backward_chunk(b, job->c)->dh;
    const struct cpu_block block = sw_cpu_grid_block(grid, i_item);
    float *part = (float *)(job->scratch + (size_t)i_worker * b->worker_bytes);
    if (block.i >= job->n_used) {
        return;
    }
    sw_cpu_grid_run_rows(grid, i_item, i_worker, job->n_used, job->d,
                         vocab_row(s, job->call->in[2], s->dtype, job->c * s->chunk), part,
                         (char *)part + cpu_grid_block_bytes(grid));
    for (int64_t i = 0; i < sw_min_i64(block.m, job->n_used - block.i); i++) {
        add_dh(job, part + i * block.n, job->place[block.i + i] * s->width + block.j, block.n);
    }
}

static void dw_item(const struct backward_job *job, int64_t i_item, int i_worker)
{
    const struct backward *b = job->b;
    const struct loss_shape *s = &b->s;
    const struct cpu_grid *grid = &backward_chunk(b, job->c)->dw;
    const struct cpu_block block = sw_cpu_grid_block(grid, i_item);
    const size_t block_bytes = cpu_grid_block_bytes(grid), bytes = sw_dtype_bytes(s->dtype);
    char *scratch = job->scratch + (size_t)i_worker * b->worker_bytes;
    float *sum = (float *)scratch, *part = (float *)(scratch + block_bytes);
    memset(sum, 0, job->n_used == 0 ? (size_t)(block.m * block.n) * sizeof *sum : 0);
    for (int64_t row = 0; row < job->n_used; row += b->depth) {
        sw_cpu_grid_run(grid, i_item, i_worker, job->d + (size_t)(row * s->stride) * bytes,
                        job->h + (size_t)(row * s->width) * bytes, row == 0 ? sum : part,
                        scratch + 2 * block_bytes);
        if (row > 0) {
            b->vector->accumulate_block(sum, block.n, part, block.n, block.m, block.n);
        }
    }
    char *dw = vocab_row(s, job->call->out[1], b->dw_dtype, job->c * s->chunk + block.i);
    const struct cpu_epilogue round = {.dtype = b->dw_dtype,
                                       .act = SW_ACT_NONE,
                                       .out = dw + (size_t)block.j * sw_dtype_bytes(b->dw_dtype),
                                       .ld_out = s->width};
    b->vector->epilogue(&round, sum, block.m, block.n, block.n);
}

/* Columns of d are added for the bias gradient, as SUM_ROWS does. */
enum { BIAS_COLUMNS = 256 };

static void db_item(const struct backward_job *job, int64_t i_item)
{
    const struct backward *b = job->b;
    const struct loss_shape *s = &b->s;
    const int64_t first = i_item * BIAS_COLUMNS;
    const int64_t n = sw_min_i64(BIAS_COLUMNS, chunk_rows(s, job->c) - first);
    const int64_t column = s->first_bias + job->c * s->chunk + first;
    float total[BIAS_COLUMNS] = {0}, sums[BIAS_COLUMNS];
    if (job->adds) {
        memcpy(total, (const float *)job->call->out[2] + column, (size_t)n * sizeof *total);
    }
    for (int64_t row = 0; row < job->n_used; row += SW_SUM_BLOCK) {
        const size_t at = (size_t)(row * s->stride + first) * sw_dtype_bytes(s->dtype);
        b->vector->sum_rows(s->dtype, job->d + at, sw_min_i64(SW_SUM_BLOCK, job->n_used - row),
                            s->stride, n, sums);
        b->vector->accumulate_block(total, n, sums, n, 1, n);
    }
    b->vector->cast(b->db_dtype, SW_F32,
                    (char *)job->call->out[2] + (size_t)column * sw_dtype_bytes(b->db_dtype), total,
                    0, n);
}

/* Takes a part of a row of a chunk's products -> d. */
static void take_d(void *ctx, const struct cpu_block *part, const float *c)
{
    const struct backward_job *job = ctx;
    const struct backward *b = job->b;
    const struct loss_shape *s = &b->s;
    const int64_t first = job->c * s->chunk + part->j;
    float logits[DOT_PART];
    gather(c, part->n, logits);
    finish_logits(b->vector, s, job->call->in[5], part, first, logits);
    put_slope(job, part, logits, 1);
}

static void take_dh(void *ctx, const struct cpu_block *part, const float *c)
{
    const struct backward_job *job = ctx;
    float row[DOT_PART];
    gather(c, part->n, row);
    add_dh(job, row, job->place[part->i] * job->b->s.width + part->j, part->n);
}

static void take_dw(void *ctx, const struct cpu_block *part, const float *c)
{
    const struct backward_job *job = ctx;
    const struct backward *b = job->b;
    char *dw = vocab_row(&b->s, job->call->out[1], b->dw_dtype, job->c * b->s.chunk + part->i);
    const struct cpu_epilogue round = {.dtype = b->dw_dtype,
                                       .act = SW_ACT_NONE,
                                       .out = dw + (size_t)part->j * sw_dtype_bytes(b->dw_dtype),
                                       .ld_out = b->s.width,
                                       .streams = b->dw_streams};
    sw_cpu_dot_epilogue(&round, c, part->n);
}

static void bias_item(void *ctx, int64_t i_item, int i_worker)
{
    (void)i_worker;
    db_item(ctx, i_item);
}

static void take_d_block(void *ctx, float *logits, struct cpu_block block)
{
    const struct backward_job *job = ctx;
    const int64_t first = job->c * job->b->s.chunk + block.j;
    finish_logits(job->b->vector, &job->b->s, job->call->in[5], &block, first, logits);
    put_slope(job, &block, logits, block.m);
}

/* Rows of dh that take part come from, or go to, their places. */
static void gather_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct backward_job *job = ctx;
    const struct loss_shape *s = &job->b->s;
    const float *from = s->partial ? job->call->out[0] : job->call->in[5 + s->bias];
    (void)i_worker;
    memcpy(job->dh + i_item * s->width, from + job->place[i_item] * s->width,
           (size_t)s->width * sizeof *from);
}

static void scatter_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct backward_job *job = ctx;
    const struct loss_shape *s = &job->b->s;
    const enum sw_dtype dtype = job->b->dh_dtype;
    (void)i_worker;
    const size_t at = (size_t)(job->place[i_item] * s->width) * sw_dtype_bytes(dtype);
    job->b->vector->cast(dtype, SW_F32, (char *)job->call->out[0] + at, job->dh + i_item * s->width,
                         0, s->width);
}

/* Chunk c's part of the gradients, by panels. */
static void run_gradients(struct backward_job *job)
{
    const struct backward *b = job->b;
    const struct loss_shape *s = &b->s;
    const struct backward_chunk *chunk = backward_chunk(b, job->c);
    struct sw_pool *pool = job->call->pool;
    const int64_t columns = chunk_rows(s, job->c);
    struct cpu_panels_call call = {.a = job->d,
                                   .b = vocab_row(s, job->call->in[2], s->dtype, job->c * s->chunk),
                                   .workspace = job->scratch};
    if (b->has_dh) {
        if (job->c == 0 && s->continues) {
            sw_pool_run(pool, job->n_used, gather_item, job);
        }
        call.c = job->dh;
        call.adds = job->c > 0 || s->continues;
        run_panels(&chunk->panels_dh, job->n_used, columns, pool, &call);
        if (job->c == s->n_chunks - 1) {
            sw_pool_run(pool, job->n_used, scatter_item, job);
        }
    }
    if (b->has_dw) {
        call.b = job->h;
        call.c = vocab_row(s, job->call->out[1], SW_F32, job->c * s->chunk);
        call.adds = job->adds;
        run_panels(&chunk->panels_dw, columns, job->n_used, pool, &call);
        if (job->n_used == 0) {
            memset(call.c, 0, (size_t)(columns * s->width) * sizeof(float));
        }
    }
    if (b->has_db) {
        sw_pool_run(pool, sw_ceil_div(columns, BIAS_COLUMNS), bias_item, job);
    }
}

/* The products of chunk c by panels. */
static void run_chunk_panels(struct backward_job *job)
{
    const struct loss_shape *s = &job->b->s;
    const struct cpu_panels_call call = {
        .a = job->h,
        .b = vocab_row(s, job->call->in[2], s->dtype, job->c * s->chunk),
        .workspace = job->scratch,
        .finish = take_d_block,
        .ctx = job};
    run_panels(&backward_chunk(job->b, job->c)->panels_logits, job->n_used, s->width,
               job->call->pool, &call);
    run_gradients(job);
}

/* The products of chunk c, one after the other. */
static void run_chunk(struct backward_job *job)
{
    const struct backward *b = job->b;
    const struct loss_shape *s = &b->s;
    const struct backward_chunk *chunk = backward_chunk(b, job->c);
    struct sw_pool *pool = job->call->pool;
    const void *w = vocab_row(s, job->call->in[2], s->dtype, job->c * s->chunk);
    struct cpu_dots_run run = {.a = job->h,
                               .b = w,
                               .n_rows = job->n_used,
                               .workspace = job->scratch,
                               .sink = take_d,
                               .ctx = job};
    if (job->n_used > 0) {
        sw_cpu_dots_run(&chunk->dots_logits, pool, &run);
        run.a = job->d;
        run.sink = take_dh;
    }
    if (job->n_used > 0 && b->has_dh) {
        sw_cpu_dots_run(&chunk->dots_dh, pool, &run);
    }
    if (job->n_used > 0 && b->has_dw) {
        run.b = job->h;
        run.n_rows = chunk_rows(s, job->c);
        run.n_terms = job->n_used;
        run.sink = take_dw;
        sw_cpu_dots_run(&chunk->dots_dw, pool, &run);
    } else if (b->has_dw) {
        memset(vocab_row(s, job->call->out[1], b->dw_dtype, job->c * s->chunk), 0,
               (size_t)(chunk_rows(s, job->c) * s->width) * sw_dtype_bytes(b->dw_dtype));
    }
    if (b->has_db) {
        sw_pool_run(pool, sw_ceil_div(chunk_rows(s, job->c), BIAS_COLUMNS), bias_item, job);
    }
}

static void product_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct backward_job *job = ctx;
    const struct backward_chunk *chunk = backward_chunk(job->b, job->c);
    const int64_t n_dh = cpu_grid_items(&chunk->dh), n_dw = cpu_grid_items(&chunk->dw);
    if (i_item < n_dh) {
        dh_item(job, i_item, i_worker);
    } else if (i_item < n_dh + n_dw) {
        dw_item(job, i_item - n_dh, i_worker);
    } else {
        db_item(job, i_item - n_dh - n_dw);
    }
}

/* The gradients of padding. */
static void clear_padding(const struct backward *b, const struct cpu_call *call)
{
    const struct loss_shape *s = &b->s;
    if (b->has_dw) {
        memset(vocab_row(s, call->out[1], b->dw_dtype, s->vocab), 0,
               (size_t)(s->padding * s->width) * sw_dtype_bytes(b->dw_dtype));
    }
    if (b->has_db) {
        const size_t bytes = sw_dtype_bytes(b->db_dtype);
        memset((char *)call->out[2] + (size_t)s->vocab * bytes, 0, (size_t)s->padding * bytes);
    }
}

static void backward_run(const struct cpu_call *call)
{
    const struct backward *b = call->prepared;
    char *mem = call->workspace;
    struct backward_job job = {.b = b,
                               .call = call,
                               .h = mem,
                               .d = mem + rows_bytes(b, b->s.width),
                               .scratch = mem + together_bytes(b) + dh_bytes(b)};
    char *numbers = job.d + rows_bytes(b, b->s.stride);
    job.labels = (int32_t *)numbers;
    job.place = (int32_t *)(numbers + numbers_bytes(b));
    job.lse = (float *)(numbers + 2 * numbers_bytes(b));
    job.dh = b->s.partial && !b->by_panels ? call->out[0] : (void *)(mem + together_bytes(b));
    find_rows(&job);
    for (job.c = 0; job.c < b->s.n_chunks; job.c++) {
        const struct backward_chunk *chunk = backward_chunk(b, job.c);
        if (b->by_panels) {
            run_chunk_panels(&job);
            continue;
        }
        if (b->kernel) {
            run_chunk(&job);
            continue;
        }
        sw_pool_run(call->pool, cpu_grid_items(&chunk->logits), d_item, &job);
        const int64_t n_db = b->has_db ? sw_ceil_div(chunk_rows(&b->s, job.c), BIAS_COLUMNS) : 0;
        sw_pool_run(call->pool, cpu_grid_items(&chunk->dh) + cpu_grid_items(&chunk->dw) + n_db,
                    product_item, &job);
    }
    if (b->s.padding > 0) {
        clear_padding(b, call);
    }
}

const struct cpu_kernel sw_cpu_linear_ce_grad = {.name = "fast",
                                                 .query = backward_query,
                                                 .prepare = backward_prepare,
                                                 .release = backward_release,
                                                 .run = backward_run};

/* ---- the loss and its gradient at once ---- */

/* LINEAR_CE_AT_ONCE goes through the rows block by block. It keeps the logits of a block over the
 * whole vocabulary, in fp32, until d replaces them, so that they are computed once. A block is all
 * rows, or has a multiple of DEPTH of them: then dw and the sums of d are added in the same runs as
 * those of all rows. Only by panels: dw of 16 bits cannot hold a partial sum. */
struct at_once {
    struct forward f; /* of a block */
    struct backward b;
    int64_t rows;
    size_t scratch_bytes;
};

/* The logits of a block are about as large as the slopes d of a chunk of all rows, or twice. */
static int64_t rows_at_once(const struct loss_shape *s)
{
    const int64_t most = 2 * s->rows * s->chunk / s->vocab;
    return sw_min_i64(s->rows,
                      cpu_even_part(s->rows, sw_max_i64(DEPTH, most / DEPTH * DEPTH), DEPTH));
}
_Static_assert(DEPTH % SW_SUM_BLOCK == 0, "a block ends where a partial sum does");

/* The two ops that it replaces, of n rows; both descs point to their op. */
struct loss_pair {
    struct sw_op op[2];
    struct sw_op_desc desc[2];
};

static void split(const struct sw_op_desc *both, int64_t n, struct loss_pair *out)
{
    const struct sw_op *op = both->op;
    struct sw_view h = both->in[1];
    const bool has_bias = op->attrs.linear_ce.has_bias;
    h.shape = SW_SHAPE(n, sw_shape_last(&h.shape));
    *out = (struct loss_pair){
        .op = {{.kind = SW_OP_LINEAR_CE, .n_in = 3 + has_bias, .n_out = 3, .attrs = op->attrs},
               {.kind = SW_OP_LINEAR_CE_GRAD,
                .n_in = 5 + has_bias,
                .n_out = op->n_out - 2,
                .attrs = op->attrs}},
        .desc = {{.in = {h, both->in[2], both->in[3], both->in[4]}},
                 {.in = {both->in[0], h, both->in[2], both->in[3], both->in[0], both->in[4]}}}};
    for (int i = 0; i < 2; i++) {
        out->desc[i].op = &out->op[i];
    }
    memcpy(out->desc[1].out, &both->out[2], 3 * sizeof *both->out);
    out->desc[1].out[0].shape = both->out[2].shape.rank >= 0 ? h.shape : both->out[2].shape;
}

static bool takes_at_once(const struct sw_op_desc *desc)
{
    const struct sw_linear_ce_attrs *attrs = &desc->op->attrs.linear_ce;
    bool good = !attrs->by_row && attrs->whole == 0 && attrs->tile.first == 0 &&
                !attrs->tile.continues && !attrs->tile.partial && desc->in[1].dtype == SW_F32 &&
                desc->in[2].dtype == SW_F32 && sw_shape_rows(&desc->in[1].shape) > 0 &&
                attrs->chunk > 0;
    for (int i = 2; i < 5; i++) {
        good = good && (!cpu_has_output(desc, i) || desc->out[i].dtype == SW_F32);
    }
    return good;
}

/* SW_E_UNSUP: not by panels */
static sw_status at_once_cut(const struct cpu_device *dev, const struct sw_op_desc *desc,
                             struct at_once *both)
{
    struct loss_pair pair;
    *both = (struct at_once){.rows = sw_shape_rows(&desc->in[1].shape)};
    split(desc, both->rows, &pair);
    const struct loss_shape whole = shape_of(&pair.desc[0], 0);
    if (!wants_panels(dev, &whole)) {
        return SW_E_UNSUP;
    }
    split(desc, rows_at_once(&whole), &pair);
    SW_TRY(forward_cut(dev, &pair.desc[0], &both->f));
    SW_TRY(backward_cut(dev, &pair.desc[1], &both->b));
    struct backward *b = &both->b;
    b->s.stride = sw_ceil_div(b->s.vocab, PANEL_SLACK) * PANEL_SLACK + PANEL_SLACK;
    for (int other = 0; other < 2 && b->by_panels; other++) { /* with the stride of d */
        const int64_t c = other ? 0 : b->s.n_chunks - 1;
        b->by_panels = backward_cut_panels(dev, b, c, &b->chunk[other]);
    }
    both->scratch_bytes =
        both->f.shared_bytes > b->shared_bytes ? both->f.shared_bytes : b->shared_bytes;
    return both->f.by_panels && b->by_panels ? SW_OK : SW_E_UNSUP;
}

/* The workspace: of all rows the logits of labels, lse and indices, and dsum; of a block the
 * statistics, h, dh and d. */
static size_t column_bytes(const struct at_once *both)
{
    return sw_round_up((size_t)both->rows * sizeof(float), CPU_LINE);
}

static size_t block_stats_bytes(const struct at_once *both)
{
    const struct forward *f = &both->f;
    return sw_round_up((size_t)(2 * f->s.rows * f->n_columns) * sizeof(float), CPU_LINE);
}

static size_t block_bytes(const struct at_once *both, int64_t width)
{
    return sw_round_up((size_t)(both->b.s.rows * width) * sizeof(float), CPU_LINE);
}

static void at_once_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                          struct sw_kernel_info *out)
{
    struct at_once both;
    const sw_status st = takes_at_once(desc) ? at_once_cut(dev, desc, &both) : SW_E_UNSUP;
    out->no_memory = st == SW_E_NOMEM;
    if (st < 0) {
        return;
    }
    const struct loss_shape *s = &both.b.s;
    out->supported = true;
    out->workspace_bytes = 3 * column_bytes(&both) + CPU_LINE + block_stats_bytes(&both) +
                           2 * block_bytes(&both, s->width) + block_bytes(&both, s->stride) +
                           both.scratch_bytes;
    out->path = both.f.vector->name;
}

static void at_once_release(void *prepared)
{
    sw_free(prepared);
}

static sw_status at_once_prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                 void **prepared)
{
    struct at_once *both = sw_alloc_zero("device", 1, sizeof *both);
    SW_TRY_ALLOC(both, "the loss and its gradient");
    const sw_status st = at_once_cut(dev, desc, both);
    if (st < 0) {
        sw_free(both);
        return st;
    }
    *prepared = both;
    return SW_OK;
}

struct at_once_job {
    const struct at_once *both;
    struct forward_job forward; /* of the present block */
    struct backward_job backward;
    float *logits; /* of the block, then d */
};

struct at_once_chunk {
    struct forward_chunk forward; /* first: take_logits_block takes it */
    const struct at_once_job *job;
};

/* Takes a block of a chunk's products, and keeps its logits. */
static void keep_logits_block(void *ctx, float *logits, struct cpu_block block)
{
    const struct at_once_chunk *chunk = ctx;
    const struct loss_shape *s = &chunk->job->both->b.s;
    take_logits_block(ctx, logits, block);
    float *to = chunk->job->logits + block.i * s->stride + chunk->forward.c * s->chunk + block.j;
    for (int64_t i = 0; i < block.m; i++) {
        memcpy(to + i * s->stride, logits + i * block.n, (size_t)block.n * sizeof *to);
    }
}

/* Logits of the chunk -> d, of one row. */
static void slope_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct backward_job *job = ctx;
    const struct loss_shape *s = &job->b->s;
    const int64_t row = job->place[i_item], n = chunk_rows(s, job->c);
    float *d = (float *)job->d + i_item * s->stride;
    (void)i_worker;
    job->b->vector->softmax_grad(SW_F32, d, s->stride, 1, n, job->lse + row, job->labels + row,
                                 job->c * s->chunk, (struct cpu_onehot){0, 1},
                                 *(const float *)job->call->in[0], s->cap, d, s->stride);
}

/* The logits, statistics and lse of a block. */
static void run_block_logits(const struct at_once_job *job)
{
    const struct forward_job *forward = &job->forward;
    const struct forward *f = forward->f;
    const struct loss_shape *s = &f->s;
    struct sw_pool *pool = forward->call->pool;
    for (int64_t c = 0; c < s->n_chunks && forward->n_used > 0; c++) {
        struct at_once_chunk chunk = {.forward = {forward, c}, .job = job};
        const struct cpu_panels_call call = {
            .a = forward->h,
            .b = vocab_row(s, forward->call->in[1], SW_F32, c * s->chunk),
            .workspace = forward->scratch,
            .finish = keep_logits_block,
            .ctx = &chunk};
        run_panels(&f->panels[c < s->n_chunks - 1], forward->n_used, s->width, pool, &call);
    }
    sw_pool_run(pool, sw_ceil_div(forward->n_used, MERGE_ROWS), merge_item,
                (void *)(uintptr_t)forward);
}

static void run_block_gradients(struct at_once_job *job)
{
    struct backward_job *backward = &job->backward;
    const struct loss_shape *s = &backward->b->s;
    for (backward->c = 0; backward->c < s->n_chunks; backward->c++) {
        backward->d = (char *)(job->logits + backward->c * s->chunk);
        sw_pool_run(backward->call->pool, backward->n_used, slope_item, backward);
        run_gradients(backward);
    }
}

static void at_once_run(const struct cpu_call *call)
{
    const struct at_once *both = call->prepared;
    const struct loss_shape *s = &both->b.s;
    const struct sw_linear_ce_attrs *attrs = &call->desc->op->attrs.linear_ce;
    const int32_t *labels = call->in[3];
    char *mem = call->workspace;
    float *label_logit = (float *)mem, *lse = (float *)(mem + column_bytes(both));
    int32_t *place = (int32_t *)(mem + 2 * column_bytes(both));
    float *dsum = (float *)(mem + 3 * column_bytes(both)), *stats = dsum + CPU_LINE / sizeof *dsum;
    char *together = (char *)stats + block_stats_bytes(both);
    float *dh = (float *)(together + block_bytes(both, s->width));
    float *logits = (float *)((char *)dh + block_bytes(both, s->width));
    char *scratch = (char *)logits + block_bytes(both, s->stride);
    const void *bias = s->bias ? call->in[4] : NULL;
    struct cpu_call parts[2] = {*call, *call};
    parts[0].in = (void *const[]){call->in[1], call->in[2], call->in[3], (void *)(uintptr_t)bias};
    parts[0].out = (void *const[]){NULL, NULL, lse};
    parts[1].in =
        (void *const[]){dsum, call->in[1], call->in[2], call->in[3], lse, (void *)(uintptr_t)bias};
    parts[1].out = call->out + 2;
    struct at_once_job job = {.both = both,
                              .forward = {.f = &both->f,
                                          .call = &parts[0],
                                          .max = stats,
                                          .sum = stats + both->f.s.rows * both->f.n_columns,
                                          .scratch = scratch},
                              .backward = {.b = &both->b,
                                           .call = &parts[1],
                                           .labels = (int32_t *)(uintptr_t)labels,
                                           .lse = lse,
                                           .dh = dh,
                                           .scratch = scratch},
                              .logits = logits};
    const int64_t n_used = find_used(labels, both->rows, place);
    for (int64_t row = 0; row < both->rows; row++) {
        if (labels[row] == IGNORED) {
            pass_row(&job.backward, row);
        }
    }
    const float dloss = *(const float *)call->in[0], count = (float)n_used;
    *dsum = attrs->mean_weight != 0 ? dloss * (float)attrs->mean_weight
            : count > 0             ? dloss / count
                                    : 0;
    int64_t first = 0;
    do {
        const int64_t n = sw_min_i64(s->rows, n_used - first);
        const char *h = (const char *)call->in[1] + (size_t)(first * s->width) * sizeof(float);
        job.forward.place = job.backward.place = place + first;
        job.forward.label_logit = label_logit + first;
        job.forward.n_used = job.backward.n_used = n;
        for (int64_t i = 0; i < n; i++) {
            job.forward.label_logit[i] = NAN; /* see forward_run */
        }
        if (n_used < both->rows) {
            move_together(s, call->in[1], place + first, n, n, together);
            h = together;
        }
        job.forward.h = h;
        job.backward.h = (char *)(uintptr_t)h;
        job.backward.adds = first > 0;
        run_block_logits(&job);
        run_block_gradients(&job);
        first += n;
    } while (first < n_used);
    double total = 0;
    for (int64_t i = 0; i < n_used; i++) {
        total += (double)(lse[place[i]] - label_logit[i]);
    }
    *(float *)call->out[0] = (float)total;
    *(float *)call->out[1] = count;
}

const struct cpu_kernel sw_cpu_linear_ce_at_once = {.name = "fast",
                                                    .query = at_once_query,
                                                    .prepare = at_once_prepare,
                                                    .release = at_once_release,
                                                    .run = at_once_run};
