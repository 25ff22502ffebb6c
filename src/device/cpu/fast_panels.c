// SPDX-License-Identifier: Apache-2.0
// A product that packs b once for all workers, in slabs of columns and, if the result is in place,
// of terms. An item is a range of rows times a group of the slab's blocks: it packs its rows of a,
// which then stay in the L2 cache, and multiplies them by one block of columns after the other.
// Meanwhile it fetches the rows of its next item into the L2 cache.
// With few rows, packing b whole would cost more than its use: there an item packs a few columns,
// depth by depth, and fetches the next ones from memory while it multiplies. Sums are added in the
// order of vector->gemm, so the bits are the same.
#include "device/cpu/fast.h"

enum { BLOCK_COLUMNS = 128 };
enum { LEAST_GROUPS = 4, MOST_GROUPS = 24 };       /* groups of rows in an item */
enum { ROWS_BYTES = 3 << 18, SMALL_L2 = 1 << 18 }; /* of an item, packed */
/* A slab of terms has at least so many of depths, since adding to the result takes time, and more
 * if that leaves room for so many columns. */
enum { LEAST_DEPTHS = 3, LEAST_COLUMNS = 768 };

static int64_t blocks_of(const struct cpu_panels *p, int64_t columns)
{
    return sw_ceil_div(columns, p->nb);
}

static int64_t depths_of(const struct cpu_panels *p, int64_t terms)
{
    return sw_ceil_div(terms, p->vector->gemm_depth);
}

static bool cut_slabs(struct cpu_panels *p, int64_t most_elems)
{
    const int64_t depth = p->vector->gemm_depth, n = p->whole.n;
    const int64_t columns = sw_min_i64(n, LEAST_COLUMNS);
    const int64_t all = depths_of(p, p->whole.k);
    int64_t depths = all;
    if (p->in_place && columns * all * depth > most_elems) {
        depths = sw_max_i64(LEAST_DEPTHS, most_elems / columns / depth);
    }
    p->slab_k = cpu_even_part(p->whole.k, depths * depth, depth);
    const int64_t blocks = most_elems / p->slab_k / p->nb;
    p->slab_n = blocks > 0 ? cpu_even_part(n, blocks * p->nb, p->nb) : 0;
    return blocks > 0;
}

/* Packing a row costs about as much as multiplying it by this many columns. */
enum { PACKING_COLUMNS = 20 };

/* At the end some threads wait for others, for a quarter of an item. */
static void cut_items(struct cpu_panels *p, int64_t threads)
{
    const int64_t tile = p->vector->gemm_tile[CPU_LEFT], groups = sw_ceil_div(p->whole.m, tile);
    const int64_t cache = p->vector->gemm_tile[CPU_RIGHT] >= 32 ? ROWS_BYTES : SMALL_L2;
    const int64_t bytes = depths_of(p, p->slab_k) * p->vector->gemm_packed_elems(CPU_LEFT, tile) *
                          (int64_t)sizeof(float);
    const int64_t most = sw_min_i64(MOST_GROUPS, sw_max_i64(LEAST_GROUPS, cache / bytes));
    const int64_t blocks = blocks_of(p, p->slab_n);
    double best = 0;
    for (int64_t rows = sw_min_i64(most, groups); rows >= sw_min_i64(LEAST_GROUPS, groups);
         rows--) {
        const int64_t n_m = sw_ceil_div(groups, rows);
        for (int64_t n_n = 1; n_n <= blocks; n_n++) {
            const double rounds = (double)sw_ceil_div(n_m * n_n, threads) + 0.25;
            const double columns = (double)(sw_ceil_div(blocks, n_n) * p->nb + PACKING_COLUMNS);
            const double now = rounds * (double)sw_ceil_div(groups, n_m) * columns;
            if (best == 0 || now < best) {
                best = now;
                p->n_m = n_m;
                p->n_n = n_n;
            }
        }
    }
    p->mb = sw_ceil_div(groups, p->n_m) * tile;
}

/* Products with at most so many rows: a depth of them stays in the L2 cache. */
enum { FEW_ROWS = 256, LEAST_FEW_COLUMNS = 64, MOST_FEW_COLUMNS = 256 };

static bool has_few_rows(const struct cpu_panels *p, size_t most_bytes)
{
    const struct cpu_gemm *g = &p->whole;
    const int64_t a = depths_of(p, g->k) * p->vector->gemm_packed_elems(CPU_LEFT, g->m);
    return p->vector->gemm_tile[CPU_RIGHT] >= 32 && g->m <= FEW_ROWS &&
           (size_t)a * sizeof(float) + CPU_LINE <= most_bytes;
}

static void cut_columns(struct cpu_panels *p, int64_t unit, int64_t threads)
{
    const int64_t n = p->whole.n;
    unit = sw_max_i64(unit, p->vector->gemm_tile[CPU_RIGHT]);
    double best = 0;
    for (int64_t columns = MOST_FEW_COLUMNS; columns >= LEAST_FEW_COLUMNS; columns -= unit) {
        const double rounds = (double)sw_ceil_div(sw_ceil_div(n, columns), threads) + 0.25;
        const double now = rounds * (double)(columns + PACKING_COLUMNS);
        if (best == 0 || now < best) {
            best = now;
            p->nb = columns;
        }
    }
    const int64_t depths = depths_of(p, p->whole.k);
    const int64_t a = depths * p->vector->gemm_packed_elems(CPU_LEFT, p->whole.m);
    const int64_t b = p->vector->gemm_packed_elems(CPU_RIGHT, p->nb);
    const int64_t c = p->in_place ? 0 : p->whole.m * p->nb;
    p->packed_bytes = sw_round_up((size_t)a * sizeof(float), CPU_LINE);
    p->worker_bytes = sw_round_up((size_t)(b + c) * sizeof(float), CPU_LINE);
}

bool sw_cpu_panels_cut(const struct cpu_device *dev, const struct cpu_gemm *whole, bool in_place,
                       int64_t unit, size_t most_bytes, struct cpu_panels *out)
{
    *out = (struct cpu_panels){.whole = *whole,
                               .vector = sw_cpu_vector_for(dev->isa),
                               .nb = BLOCK_COLUMNS,
                               .in_place = in_place};
    if (whole->k == 0) {
        return false;
    }
    out->has_few_rows = has_few_rows(out, most_bytes);
    if (out->has_few_rows) {
        cut_columns(out, unit, cpu_workers(dev->pool));
        return true;
    }
    if (!cut_slabs(out, (int64_t)(most_bytes / sizeof(float)))) {
        return false;
    }
    cut_items(out, cpu_workers(dev->pool));
    const int64_t depths = depths_of(out, out->slab_k), blocks = blocks_of(out, out->slab_n);
    const int64_t b = blocks * depths * out->vector->gemm_packed_elems(CPU_RIGHT, out->nb);
    const int64_t a = depths * out->vector->gemm_packed_elems(CPU_LEFT, out->mb);
    const int64_t c = in_place ? 0 : out->mb * out->nb;
    out->packed_bytes = sw_round_up((size_t)b * sizeof(float), CPU_LINE);
    out->worker_bytes = sw_round_up((size_t)(a + c) * sizeof(float), CPU_LINE);
    return true;
}

size_t sw_cpu_panels_bytes(const struct cpu_panels *panels, int n_threads)
{
    return panels->packed_bytes + panels->worker_bytes * (size_t)n_threads;
}

/* ---- running ---- */

struct job {
    const struct cpu_panels *panels;
    const struct cpu_panels_call *call;
    struct sw_pool *pool;
    int64_t j, k, n, terms; /* the slab */
};

/* The packed terms of a block of the slab follow each other by depth. */
static float *block_at(const struct job *job, int64_t i_block)
{
    const struct cpu_panels *p = job->panels;
    const int64_t elems = p->vector->gemm_packed_elems(CPU_RIGHT, p->nb);
    return (float *)job->call->workspace + i_block * depths_of(p, p->slab_k) * elems;
}

/* Packs one depth of a block of the slab. */
static void pack_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_panels *p = job->panels;
    const int64_t depths = depths_of(p, job->terms), depth = i_item % depths;
    const int64_t j = i_item / depths * p->nb;
    float *to =
        block_at(job, i_item / depths) + depth * p->vector->gemm_packed_elems(CPU_RIGHT, p->nb);
    (void)i_worker;
    p->vector->gemm_pack(&p->whole, CPU_RIGHT, job->call->b, job->j + j,
                         sw_min_i64(p->nb, job->n - j), job->k + depth * p->vector->gemm_depth, to);
}

/* Rows of a, or columns of b, first .. first + n - 1, as they are stored: `terms` of each from term
 * k on. */
static struct cpu_rows stored(const struct job *job, enum cpu_side side, int64_t first, int64_t n,
                              int64_t k, int64_t terms)
{
    const struct cpu_gemm *g = &job->panels->whole;
    const bool is_left = side == CPU_LEFT, by_term = is_left ? g->ta : !g->tb;
    const int64_t size = (int64_t)sw_dtype_bytes(is_left ? g->dtype : g->dtype_b);
    const int64_t step = (is_left ? g->lda : g->ldb) * size;
    const char *x = is_left ? job->call->a : job->call->b;
    return by_term ? (struct cpu_rows){x + k * step + first * size, terms, n * size, step}
                   : (struct cpu_rows){x + first * step + k * size, n, terms * size, step};
}

/* Multiplies the packed rows of an item by a block of the slab. */
static void multiply(const struct job *job, const float *a, int64_t i_block, struct cpu_block where,
                     const struct cpu_rows *next, float *block)
{
    const struct cpu_panels *p = job->panels;
    const int64_t ldc = p->in_place ? p->whole.ldc : where.n;
    const struct cpu_gemm gemm = {.m = where.m, .n = where.n, .k = job->terms, .ldc = ldc};
    const struct cpu_packed packed = {.at = {a, block_at(job, i_block)},
                                      .step = {p->vector->gemm_packed_elems(CPU_LEFT, where.m),
                                               p->vector->gemm_packed_elems(CPU_RIGHT, p->nb)},
                                      .next = next};
    float *c = p->in_place ? job->call->c + where.i * ldc + where.j : block;
    p->vector->gemm_packed(&gemm, &packed, job->k > 0 || job->call->adds, c);
    if (!p->in_place) {
        job->call->finish(job->call->ctx, c, where);
    }
}

/* First row of a range of rows. */
static int64_t row_of(const struct cpu_panels *p, int64_t range)
{
    const int64_t tile = p->vector->gemm_tile[CPU_LEFT], groups = sw_ceil_div(p->whole.m, tile);
    return sw_min_i64(groups * range / p->n_m * tile, p->whole.m);
}

/* Part i of n of the rows of a that this worker probably packs next. */
static struct cpu_rows next_rows(const struct job *job, int64_t i_item, int64_t i, int64_t n)
{
    const struct cpu_panels *p = job->panels;
    const int64_t after = i_item + cpu_workers(job->pool), range = after % p->n_m;
    const int64_t first = row_of(p, range), m = row_of(p, range + 1) - first;
    if (after >= p->n_m * p->n_n) {
        return (struct cpu_rows){.at = job->call->a, .n = 1};
    }
    struct cpu_rows rows = stored(job, CPU_LEFT, first, m, job->k, job->terms);
    const int64_t begin = rows.n * i / n;
    rows.at += begin * rows.step;
    rows.n = sw_max_i64(1, rows.n * (i + 1) / n - begin);
    return rows;
}

static void item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_panels *p = job->panels;
    const int64_t range = i_item % p->n_m, group = i_item / p->n_m;
    const int64_t i = row_of(p, range), m = row_of(p, range + 1) - i;
    if (m == 0) {
        return; /* the product has fewer rows than its cut */
    }
    float *a = (float *)((char *)job->call->workspace + p->packed_bytes +
                         (size_t)i_worker * p->worker_bytes);
    const int64_t elems = p->vector->gemm_packed_elems(CPU_LEFT, m);
    const int64_t depths = depths_of(p, job->terms), blocks = blocks_of(p, job->n);
    for (int64_t d = 0; d < depths; d++) {
        p->vector->gemm_pack(&p->whole, CPU_LEFT, job->call->a, i, m,
                             job->k + d * p->vector->gemm_depth, a + d * elems);
    }
    const int64_t first = blocks * group / p->n_n, end = blocks * (group + 1) / p->n_n;
    for (int64_t s = first; s < end; s++) {
        const int64_t j = s * p->nb;
        const struct cpu_block where = {
            .i = i, .j = job->j + j, .m = m, .n = sw_min_i64(p->nb, job->n - j)};
        const struct cpu_rows next = next_rows(job, i_item, s - first, end - first);
        multiply(job, a, s, where, &next, a + depths * elems);
    }
}

/* ---- few rows ---- */

enum { PACKED_GROUPS = 4 }; /* groups of rows of an item that packs a */

static void pack_rows_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_panels *p = job->panels;
    const struct cpu_gemm *g = &p->whole;
    const int64_t rows = PACKED_GROUPS * p->vector->gemm_tile[CPU_LEFT];
    const int64_t ranges = sw_ceil_div(g->m, rows), depth = i_item / ranges;
    const int64_t i = i_item % ranges * rows;
    float *to = (float *)job->call->workspace +
                depth * p->vector->gemm_packed_elems(CPU_LEFT, g->m) +
                p->vector->gemm_packed_elems(CPU_LEFT, i);
    (void)i_worker;
    p->vector->gemm_pack(g, CPU_LEFT, job->call->a, i, sw_min_i64(rows, g->m - i),
                         depth * p->vector->gemm_depth, to);
}

/* Columns j .. of one depth of b, as they are stored; none past the end. */
static struct cpu_rows next_columns(const struct job *job, int64_t j, int64_t k)
{
    const struct cpu_panels *p = job->panels;
    const struct cpu_gemm *g = &p->whole;
    const int64_t n = sw_min_i64(p->nb, g->n - j);
    return n > 0 ? stored(job, CPU_RIGHT, j, n, k, sw_min_i64(p->vector->gemm_depth, g->k - k))
                 : (struct cpu_rows){.at = job->call->b, .n = 1};
}

/* Multiplies all rows by a block of columns. */
static void columns_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_panels *p = job->panels;
    const struct cpu_gemm *g = &p->whole;
    const int64_t depth = p->vector->gemm_depth, j = i_item * p->nb;
    /* probably the next item of this worker */
    const int64_t after = j + cpu_workers(job->pool) * p->nb;
    const int64_t a_elems = p->vector->gemm_packed_elems(CPU_LEFT, g->m);
    const struct cpu_block where = {.j = j, .m = g->m, .n = sw_min_i64(p->nb, g->n - j)};
    float *b = (float *)((char *)job->call->workspace + p->packed_bytes +
                         (size_t)i_worker * p->worker_bytes);
    float *c = p->in_place ? job->call->c + j : b + p->vector->gemm_packed_elems(CPU_RIGHT, p->nb);
    struct cpu_gemm gemm = {.m = g->m, .n = where.n, .ldc = p->in_place ? g->ldc : where.n};
    for (int64_t k = 0; k < g->k; k += depth) {
        const bool is_last = k + depth >= g->k;
        const struct cpu_rows next =
            next_columns(job, is_last ? after : j, is_last ? 0 : k + depth);
        const struct cpu_packed packed = {
            .at = {(const float *)job->call->workspace + k / depth * a_elems, b}, .next = &next};
        p->vector->gemm_pack(g, CPU_RIGHT, job->call->b, j, where.n, k, b);
        gemm.k = sw_min_i64(depth, g->k - k);
        p->vector->gemm_packed(&gemm, &packed, k > 0 || job->call->adds, c);
    }
    if (!p->in_place) {
        job->call->finish(job->call->ctx, c, where);
    }
}

static void run_columns(struct job *job, struct sw_pool *pool)
{
    const struct cpu_panels *p = job->panels;
    const int64_t rows = PACKED_GROUPS * p->vector->gemm_tile[CPU_LEFT];
    sw_pool_run(pool, sw_ceil_div(p->whole.m, rows) * depths_of(p, p->whole.k), pack_rows_item,
                job);
    sw_pool_run(pool, blocks_of(p, p->whole.n), columns_item, job);
}

void sw_cpu_panels_run(const struct cpu_panels *panels, struct sw_pool *pool,
                       const struct cpu_panels_call *call)
{
    const struct cpu_gemm *g = &panels->whole;
    struct job job = {.panels = panels, .call = call, .pool = pool};
    if (panels->has_few_rows) {
        run_columns(&job, pool);
        return;
    }
    for (job.j = 0; job.j < g->n; job.j += panels->slab_n) {
        job.n = sw_min_i64(panels->slab_n, g->n - job.j);
        for (job.k = 0; job.k < g->k; job.k += panels->slab_k) {
            job.terms = sw_min_i64(panels->slab_k, g->k - job.k);
            const int64_t parts = blocks_of(panels, job.n) * depths_of(panels, job.terms);
            sw_pool_run(pool, parts, pack_item, &job);
            sw_pool_run(pool, panels->n_m * panels->n_n, item, &job);
        }
    }
}
