// SPDX-License-Identifier: Apache-2.0
// Whole bf16 products: the cut into items, packing, and the loops around the microkernel.
// Long sums are computed a chunk of terms at a time. The sums of an item stay in the L2 cache
// meanwhile; the chunk of its columns passes through it. The rows of a panel stay in the L1 cache.
#include "device/cpu/dots.h"

#include <string.h>

/* ---- the cut ---- */

enum { LONG_STEPS = 24 };  /* most steps without chunks: 768 terms */
enum { CHUNK_STEPS = 16 }; /* steps of a chunk: 512 terms */
/* Most sums of an item with chunks, and most of the packed columns of one without: they leave a
 * part of an L2 cache of 2 MiB to what passes through it. */
enum { SUMS = 512 * 768, RESIDENT_BYTES = 1250 << 10 };
enum { SHARED_BYTES = 8 << 20 }; /* limit of what is packed for all items */
enum { ALIASING_BYTES = 2048 };  /* rows so far apart share sets of the L1 cache */

/* Relative time. An item first loads its columns and its rows from the L3 cache or from memory,
 * which takes as long as multiplying with about 96 rows or columns; so does packing rows that are
 * stored by terms. At the end some threads wait for others. */
static double cost(const struct cpu_dots *d, int64_t threads)
{
    const int64_t items = sw_ceil_div(d->whole.m, d->mb) * sw_ceil_div(d->whole.n, d->nb);
    const double rounds = (double)sw_ceil_div(items, threads) + 0.1;
    const double rows = d->whole.ta ? 2 * 96 : 96;
    return rounds * (double)(d->mb * d->nb) * (1 + 96.0 / (double)d->mb + rows / (double)d->nb);
}

static bool fits(const struct cpu_dots *d)
{
    return d->chunk < d->steps ? d->mb * d->nb <= SUMS
                               : d->nb * d->steps * 2 * TILE_TERMS <= RESIDENT_BYTES;
}

static void choose_blocks(struct cpu_dots *d, int64_t threads)
{
    static const int64_t edges[] = {32, 64, 128, 192, 256, 384, 512, 640, 768, 1024, 1536, 2048};
    const int64_t nb = d->nb;
    double best = 0;
    struct cpu_dots now = *d;
    d->mb = DOT_EDGE;
    d->nb = sw_max_i64(d->nb, DOT_PART);
    for (size_t i = 0; i < SW_LEN(edges); i++) {
        for (size_t j = 0; j < SW_LEN(edges); j++) {
            now.mb = cpu_even_part(d->whole.m, edges[i], DOT_EDGE);
            now.nb = nb > 0 ? nb : cpu_even_part(d->whole.n, edges[j], DOT_PART);
            const double time = cost(&now, threads);
            if (fits(&now) && (best == 0 || time < best)) {
                best = time;
                d->mb = now.mb;
                d->nb = now.nb;
            }
        }
    }
}

/* Chunks are equal to within a step. */
static int64_t even_chunk(int64_t steps)
{
    return steps <= LONG_STEPS ? sw_max_i64(1, steps)
                               : sw_ceil_div(steps, sw_ceil_div(steps, CHUNK_STEPS));
}

static int64_t steps_of(int64_t terms)
{
    return sw_ceil_div(terms, TILE_TERMS);
}

static size_t tiles_bytes(int64_t rows, int64_t steps)
{
    return (size_t)(sw_ceil_div(rows, DOT_EDGE) * 2 * steps) * TILE_BYTES;
}

/* Bytes of an item's scratch by part: packed rows, packed columns, sums. */
static size_t left_bytes(const struct cpu_dots *d)
{
    return tiles_bytes(DOT_EDGE, d->chunk);
}

static size_t right_bytes(const struct cpu_dots *d)
{
    return d->packs_alone ? tiles_bytes(d->nb, d->chunk) : 0;
}

static size_t sums_bytes(const struct cpu_dots *d)
{
    return (size_t)(d->chunk < d->steps ? d->mb * d->nb : 2 * DOT_EDGE * d->part) * sizeof(float);
}

/* Sets the steps of k terms. */
static void count_steps(struct cpu_dots *d, int64_t k)
{
    const int64_t before = k > 0 ? (k - 1) / d->piece : 0;
    d->whole.k = k;
    d->steps = before * steps_of(d->piece) + steps_of(k - before * d->piece);
}

void sw_cpu_dots_cut(struct cpu_dots *d, int n_threads)
{
    const struct cpu_gemm *whole = &d->whole;
    const bool in_pieces = d->piece > 0 && d->piece % TILE_TERMS != 0;
    d->piece = sw_max_i64(1, in_pieces ? sw_min_i64(d->piece, whole->k) : whole->k);
    count_steps(d, whole->k);
    d->chunk = even_chunk(d->steps);
    d->packs_left = whole->ta || d->piece % TILE_TERMS != 0 || whole->k % TILE_TERMS != 0 ||
                    whole->lda * 2 % ALIASING_BYTES == 0;
    d->part = d->part > 0 ? d->part : DOT_PART;
    choose_blocks(d, n_threads);
    d->packs_alone = whole->m <= d->mb;
    const int64_t blocks = (int64_t)(SHARED_BYTES / (tiles_bytes(d->nb, d->steps) + 1));
    d->together = d->nb * sw_max_i64(1, sw_min_i64(blocks, sw_ceil_div(whole->n, d->nb)));
    d->shared_bytes = d->packs_alone ? 0 : tiles_bytes(d->together, d->steps);
    d->worker_bytes = left_bytes(d) + right_bytes(d) + sums_bytes(d);
}

/* ---- packing ---- */

struct job {
    const struct cpu_dots *dots;
    const struct cpu_dots_run *run;
    int64_t first, n_columns; /* the columns of this run over all items */
};

/* Packs 32 rows or columns of a chunk. A piece of terms begins with a new step. */
static void pack(const struct cpu_dots *d, bool is_left, const void *x, int64_t i, int64_t n,
                 int64_t step, int64_t steps, char *to)
{
    const struct cpu_gemm *g = &d->whole;
    const bool apart = is_left ? g->ta : !g->tb;
    const int64_t ld = is_left ? g->lda : g->ldb, end = step + steps;
    const int64_t per_piece = sw_max_i64(1, steps_of(d->piece));
    const size_t panel = (size_t)steps * TILE_BYTES;
    while (step < end) {
        const int64_t piece = step / per_piece, within = step % per_piece;
        const int64_t now = sw_min_i64(end - step, per_piece - within);
        const int64_t k = piece * d->piece + within * TILE_TERMS;
        const int64_t last = sw_min_i64(g->k, (piece + 1) * d->piece);
        const int64_t at = apart ? k * ld + i : i * ld + k;
        const struct cpu_dot_pack p = {.is_left = is_left,
                                       .terms_apart = apart,
                                       .from = (const uint16_t *)x + at,
                                       .ld = ld,
                                       .n = sw_min_i64(n, DOT_EDGE),
                                       .terms = sw_min_i64(last - k, now * TILE_TERMS),
                                       .to = {to, to + panel}};
        d->kernel->pack(&p);
        to += now * TILE_BYTES;
        step += now;
    }
}

static int64_t steps_at(const struct cpu_dots *d, int64_t chunk)
{
    return sw_min_i64(d->chunk, d->steps - chunk * d->chunk);
}

/* Columns `column` .. of a chunk, packed for all. Blocks of nb columns follow each other; a block
 * has its chunks one after the other, and a chunk its panels. */
static char *packed_at(const struct job *job, int64_t column, int64_t chunk)
{
    const struct cpu_dots *d = job->dots;
    const int64_t from = column - job->first, block = from / d->nb * d->nb;
    return (char *)job->run->workspace + tiles_bytes(block, d->steps) +
           tiles_bytes(d->nb, chunk * d->chunk) + tiles_bytes(from - block, steps_at(d, chunk));
}

static void pack_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_dots *d = job->dots;
    const int64_t chunks = sw_ceil_div(d->steps, d->chunk);
    const int64_t chunk = i_item % chunks, column = job->first + i_item / chunks * DOT_EDGE;
    (void)i_worker;
    pack(d, false, job->run->b, column, d->whole.n - column, chunk * d->chunk, steps_at(d, chunk),
         packed_at(job, column, chunk));
}

/* ---- items ---- */

/* Beside the steps, the finished sums of the group of columns before are handed to the sink while
 * they are in the L1 cache, and the rows of the next panel are prefetched. */
struct beside {
    const struct cpu_dots_run *run;
    struct cpu_block block; /* a group: `part` columns of a panel of rows. m = 0: none */
    const float *c;         /* its blocks, one after the other */
    int64_t row;            /* rows that are done */
    int64_t step, steps;    /* of the group that is computed now */
    const char *next;       /* rows of the next panel: lines of 64 bytes */
    int64_t line, lines, lines_of_row, column; /* `column`: lines that are done of a row */
    int64_t panel_step, panel_steps;
    size_t row_bytes;
};

static void hand_over(struct beside *p)
{
    const struct cpu_block row = {
        .i = p->block.i + p->row, .j = p->block.j, .m = 1, .n = p->block.n};
    p->run->sink(p->run->ctx, &row, p->c + p->row * DOT_EDGE);
    p->row++;
}

static void prefetch_line(struct beside *p)
{
    __builtin_prefetch(p->next + p->column * TILE_ROW_BYTES, 0, 2);
    p->line++;
    if (++p->column == p->lines_of_row) {
        p->column = 0;
        p->next += p->row_bytes;
    }
}

static void beside(void *ctx, int64_t i_step)
{
    struct beside *p = ctx;
    (void)i_step;
    p->step++;
    p->panel_step++;
    while (p->row < p->block.m && p->row * p->steps < p->step * p->block.m) {
        hand_over(p);
    }
    while (p->line < p->lines && p->line * p->panel_steps < p->panel_step * p->lines) {
        prefetch_line(p);
    }
}

static void finish(struct beside *p)
{
    while (p->row < p->block.m) {
        hand_over(p);
    }
}

struct item {
    const struct job *job;
    struct cpu_block block; /* its rows and columns */
    char *left, *right;     /* scratch */
    float *sums;
    int64_t chunk, steps;
    int64_t n_groups;    /* so far */
    const char *columns; /* packed, of this chunk */
    struct beside beside;
};

/* Sets the left operand of the rows that begin at `row` of the item. */
static void choose_left(const struct item *it, int64_t row, struct cpu_dot *dot)
{
    const struct cpu_dots *d = it->job->dots;
    const struct cpu_dots_run *run = it->job->run;
    const int64_t i = it->block.i + row, rest = run->n_rows - i, step = it->chunk * d->chunk;
    if (!d->packs_left && rest >= DOT_EDGE) {
        const size_t row_bytes = (size_t)d->whole.lda * sizeof(uint16_t);
        dot->a_row = row_bytes;
        dot->a_step = TILE_ROW_BYTES;
        dot->a[0] = (const char *)run->a + (size_t)i * row_bytes + (size_t)step * TILE_ROW_BYTES;
        dot->a[1] = (const char *)dot->a[0] + TILE_EDGE * row_bytes;
        return;
    }
    pack(d, true, run->a, i, rest, step, it->steps, it->left);
    dot->a_row = TILE_ROW_BYTES;
    dot->a_step = TILE_BYTES;
    dot->a[0] = it->left;
    dot->a[1] = it->left + (size_t)it->steps * TILE_BYTES;
}

/* Sets what is prefetched beside the panel at `row`: the rows of the next one. Stored by terms, a
 * line has one term of them; the lines lie too far apart for the processor's own prefetchers. */
static void look_ahead(struct item *it, int64_t row)
{
    const struct cpu_dots *d = it->job->dots;
    struct beside *p = &it->beside;
    const int64_t next = row + DOT_EDGE, i = it->block.i + next;
    const int64_t term = it->chunk * d->chunk * TILE_TERMS;
    p->line = p->lines = p->column = 0;
    if (next >= it->block.m) {
        return;
    }
    p->row_bytes = (size_t)d->whole.lda * sizeof(uint16_t);
    p->next = (const char *)it->job->run->a + (size_t)(d->whole.ta ? term : i) * p->row_bytes +
              (size_t)(d->whole.ta ? i : term) * sizeof(uint16_t);
    p->lines_of_row = d->whole.ta ? 1 : it->steps;
    p->lines = d->whole.ta ? sw_min_i64(it->steps * TILE_TERMS, d->whole.k - term)
                           : it->steps * sw_min_i64(DOT_EDGE, it->block.m - next);
}

static void load_before(const struct item *it, const struct cpu_block *block, float *c)
{
    const int64_t ld = it->job->dots->whole.n;
    memset(c, 0, DOT_ELEMS * sizeof *c);
    for (int64_t i = 0; i < block->m; i++) {
        memcpy(c + i * DOT_EDGE, it->job->run->before + (block->i + i) * ld + block->j,
               (size_t)block->n * sizeof *c);
    }
}

/* Sums of the next group of columns of a panel: all sums of an item are kept from chunk to chunk,
 * else those of two groups in turn. */
static float *next_sums(struct item *it, int64_t row, int64_t column)
{
    const struct cpu_dots *d = it->job->dots;
    if (d->chunk < d->steps) {
        return it->sums + row * d->nb + column * DOT_EDGE;
    }
    return it->sums + (it->n_groups++ & 1) * DOT_EDGE * d->part;
}

/* Computes the blocks of a group of columns of a panel of rows. */
static void run_group(struct item *it, const struct cpu_dot *left, const struct cpu_block *group)
{
    const struct cpu_dots *d = it->job->dots;
    const struct cpu_dots_run *run = it->job->run;
    struct beside *p = &it->beside;
    struct cpu_dot dot = *left;
    const int64_t row = group->i - it->block.i, first = group->j - it->block.j;
    float *c = next_sums(it, row, first);
    p->step = 0;
    p->steps = it->steps * sw_ceil_div(group->n, DOT_EDGE);
    for (int64_t column = 0; column < group->n; column += DOT_EDGE) {
        dot.c = c + column * DOT_EDGE;
        dot.b[0] = it->columns + tiles_bytes(first + column, it->steps);
        dot.b[1] = (const char *)dot.b[0] + (size_t)it->steps * TILE_BYTES;
        if (it->chunk == 0 && run->before) {
            const struct cpu_block part = {group->i, group->j + column, group->m,
                                           sw_min_i64(DOT_EDGE, group->n - column)};
            load_before(it, &part, dot.c);
        }
        d->kernel->block(&dot);
    }
    finish(p);
    if ((it->chunk + 1) * d->chunk >= d->steps) {
        p->block = *group;
        p->c = c;
        p->row = 0;
    }
}

/* Computes the blocks of a panel of rows. */
static void run_panel(struct item *it, int64_t row)
{
    const struct cpu_dots *d = it->job->dots;
    struct beside *p = &it->beside;
    struct cpu_dot left = {.steps = it->steps,
                           .adds = it->chunk > 0 || it->job->run->before,
                           .side = beside,
                           .ctx = p};
    p->panel_step = 0;
    p->panel_steps = it->steps * sw_ceil_div(it->block.n, DOT_EDGE);
    look_ahead(it, row);
    choose_left(it, row, &left);
    for (int64_t column = 0; column < it->block.n; column += d->part) {
        const struct cpu_block group = {.i = it->block.i + row,
                                        .j = it->block.j + column,
                                        .m = sw_min_i64(DOT_EDGE, it->block.m - row),
                                        .n = sw_min_i64(d->part, it->block.n - column)};
        run_group(it, &left, &group);
    }
}

static void pack_columns(struct item *it)
{
    const struct cpu_dots *d = it->job->dots;
    for (int64_t column = 0; column < it->block.n; column += DOT_EDGE) {
        pack(d, false, it->job->run->b, it->block.j + column, it->block.n - column,
             it->chunk * d->chunk, it->steps, it->right + tiles_bytes(column, it->steps));
    }
}

static void run_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct job *job = ctx;
    const struct cpu_dots *d = job->dots;
    const struct cpu_dots_run *run = job->run;
    const int64_t n_m = sw_ceil_div(run->n_rows, d->mb);
    const int64_t i = i_item % n_m * d->mb, j = i_item / n_m * d->nb;
    char *scratch = (char *)run->workspace + d->shared_bytes + (size_t)i_worker * d->worker_bytes;
    struct item it = {.job = job,
                      .block = {.i = i,
                                .j = job->first + j,
                                .m = sw_min_i64(d->mb, run->n_rows - i),
                                .n = sw_min_i64(d->nb, job->n_columns - j)},
                      .left = scratch,
                      .right = scratch + left_bytes(d),
                      .sums = (float *)(scratch + left_bytes(d) + right_bytes(d)),
                      .beside = {.run = run}};
    if (d->kernel->begin) {
        d->kernel->begin();
    }
    for (int64_t chunk = 0; chunk == 0 || chunk * d->chunk < d->steps; chunk++) {
        it.chunk = chunk;
        it.steps = steps_at(d, chunk);
        if (d->packs_alone) {
            pack_columns(&it);
        }
        it.columns = d->packs_alone ? it.right : packed_at(job, it.block.j, chunk);
        for (int64_t row = 0; row < it.block.m; row += DOT_EDGE) {
            run_panel(&it, row);
        }
    }
    finish(&it.beside);
    if (d->kernel->end) {
        d->kernel->end();
    }
}

void sw_cpu_dots_run(const struct cpu_dots *dots, struct sw_pool *pool,
                     const struct cpu_dots_run *run)
{
    struct cpu_dots d = *dots;
    if (run->n_terms > 0) {
        count_steps(&d, run->n_terms);
        d.packs_left = d.packs_left || run->n_terms % TILE_TERMS != 0;
    }
    const int64_t n_m = sw_ceil_div(run->n_rows, d.mb), chunks = sw_ceil_div(d.steps, d.chunk);
    struct job job = {.dots = &d, .run = run};
    for (; job.first < d.whole.n; job.first += d.together) {
        job.n_columns = sw_min_i64(d.together, d.whole.n - job.first);
        if (!d.packs_alone) {
            sw_pool_run(pool, sw_ceil_div(job.n_columns, DOT_EDGE) * chunks, pack_item, &job);
        }
        sw_pool_run(pool, n_m * sw_ceil_div(job.n_columns, d.nb), run_item, &job);
    }
}
