// SPDX-License-Identifier: Apache-2.0
// Products cut into blocks, each a single-threaded piece; and the piece made of our own kernels.
#include <string.h>

#include "device/cpu/fast.h"

/* ---- the own piece ---- */

struct own {
    struct cpu_product super;
    const struct cpu_vector *vector;
    struct cpu_gemm gemm;
};

static void run(const void *self, int i_worker, int64_t m, const void *a, const void *b, float *c,
                void *scratch)
{
    const struct own *own = self;
    struct cpu_gemm gemm = own->gemm;
    (void)i_worker;
    gemm.m = sw_min_i64(m, gemm.m); /* a row's bits do not depend on the other rows */
    own->vector->gemm(&gemm, a, b, c, scratch);
}

static void close(void *self)
{
    sw_free(self);
}

static const struct cpu_product_ops own_ops = {.run = run, .close = close};

sw_status sw_cpu_product_open_own(const struct cpu_device *dev, const struct cpu_gemm *gemm,
                                  struct cpu_product **out)
{
    struct own *own = sw_alloc("device", sizeof *own);
    SW_TRY_ALLOC(own, "a matrix product");
    own->vector = sw_cpu_vector_for(dev->isa);
    own->gemm = *gemm;
    own->super = (struct cpu_product){
        .ops = &own_ops,
        .scratch_bytes = own->vector->gemm_scratch_bytes,
        .path = gemm->dtype == SW_F32 ? own->vector->name : own->vector->gemm_path_converted};
    *out = &own->super;
    return SW_OK;
}

/* ---- the cut ---- */

enum { MAX_BLOCK_ELEMS = 128 * 1024 }; /* half a megabyte of f32: a block stays in the L2 cache */

/* Relative time of the whole product with these blocks. Packing an operand costs about as much as
 * multiplying 12 columns of a block. With few blocks some of 2, 4, 8 or 16 threads idle at the end;
 * more common counts weigh more. The machine's own thread count is deliberately ignored: the bits
 * of library products and of sums by block must not depend on it. */
static double cost(int64_t m, int64_t n, int64_t mb, int64_t nb)
{
    static const struct {
        int64_t threads;
        double weight;
    } machines[] = {{2, 0.4}, {4, 0.3}, {8, 0.2}, {16, 0.1}};
    const int64_t items = sw_ceil_div(m, mb) * sw_ceil_div(n, nb);
    double idle = 0;
    for (size_t i = 0; i < SW_LEN(machines); i++) {
        const int64_t threads = machines[i].threads;
        idle +=
            machines[i].weight * (double)(sw_ceil_div(items, threads) * threads) / (double)items;
    }
    const double padding = (double)(items * mb * nb) / ((double)m * (double)n);
    return idle * padding * (1 + 12.0 / (double)mb + 12.0 / (double)nb);
}

/* Relative time of products with own kernels on that many threads: their bits do not depend on the
 * cut. At the end some threads wait for others, for a quarter of a block. */
static double own_cost(int64_t m, int64_t n, int64_t mb, int64_t nb, int64_t threads)
{
    const int64_t items = sw_ceil_div(m, mb) * sw_ceil_div(n, nb);
    const double rounds = (double)sw_ceil_div(items, threads) + 0.25;
    return rounds * (double)(mb * nb) * (1 + 8.0 / (double)mb + 8.0 / (double)nb);
}

static void choose_blocks(struct cpu_grid *grid, const struct cpu_device *dev, bool own)
{
    /* No edge is below 128: library kernels and ours lose a fifth and more there. */
    static const int64_t edges[] = {128, 192, 256, 384, 512, 768, 1024};
    const int64_t *tile = sw_cpu_vector_for(dev->isa)->gemm_tile;
    const int64_t m = grid->whole.m, n = grid->whole.n, threads = cpu_workers(dev->pool);
    double best = 0;
    for (size_t i = 0; i < SW_LEN(edges); i++) {
        for (size_t j = 0; j < SW_LEN(edges); j++) {
            const int64_t mb = sw_min_i64(m, cpu_even_part(m, edges[i], own ? tile[CPU_LEFT] : 16));
            const int64_t nb =
                sw_min_i64(n, cpu_even_part(n, edges[j], own ? tile[CPU_RIGHT] : 16));
            if (mb * nb > MAX_BLOCK_ELEMS) {
                continue;
            }
            const double now = own ? own_cost(m, n, mb, nb, threads) : cost(m, n, mb, nb);
            if (best == 0 || now < best) {
                best = now;
                grid->mb = mb;
                grid->nb = nb;
            }
        }
    }
    grid->n_m = sw_ceil_div(m, grid->mb);
    grid->n_n = sw_ceil_div(n, grid->nb);
}

static sw_status open_piece(const struct cpu_device *dev, struct cpu_grid *grid, int last_m,
                            int last_n)
{
    struct cpu_gemm gemm = grid->whole;
    gemm.m = last_m ? gemm.m - (grid->n_m - 1) * grid->mb : grid->mb;
    gemm.n = last_n ? gemm.n - (grid->n_n - 1) * grid->nb : grid->nb;
    if (gemm.ldc == 0) {
        gemm.ldc = gemm.n;
    }
    struct cpu_product *piece = NULL;
    if (grid->prefer_dnnl) {
        SW_TRY(sw_cpu_product_open_dnnl(dev, &gemm, &piece));
    }
    if (!piece) {
        SW_TRY(sw_cpu_product_open_own(dev, &gemm, &piece));
    }
    grid->piece[last_m][last_n] = piece;
    if (piece->scratch_bytes > grid->scratch_bytes) {
        grid->scratch_bytes = piece->scratch_bytes;
    }
    grid->path = piece->path;
    return SW_OK;
}

sw_status sw_cpu_grid_open(const struct cpu_device *dev, struct cpu_grid *grid)
{
    sw_status st = SW_OK;
    for (int i = 0; i < 4; i++) {
        const int last_m = i / 2, last_n = i % 2;
        if (grid->n_m > !last_m && grid->n_n > !last_n) {
            SW_TRY_OR(close, open_piece(dev, grid, last_m, last_n));
        }
    }
    return SW_OK;
close:
    sw_cpu_grid_close(grid);
    return st;
}

void sw_cpu_grid_close(struct cpu_grid *grid)
{
    for (int i = 0; i < 4; i++) {
        struct cpu_product *piece = grid->piece[i / 2][i % 2];
        if (piece) {
            piece->ops->close(piece);
        }
    }
    memset(grid->piece, 0, sizeof grid->piece);
}

/* ---- grids that were cut before ---- */

/* All that a grid depends on, besides the device. */
struct question {
    int64_t words[7];
};

static struct question question_of(const struct cpu_gemm *g, bool prefer_dnnl)
{
    const int64_t bits = g->ta | g->tb << 1 | prefer_dnnl << 2;
    const int64_t kind = bits | (int64_t)g->dtype << 8 | (int64_t)g->dtype_b << 16;
    return (struct question){{kind, g->m, g->n, g->k, g->lda, g->ldb, g->ldc}};
}

/* The entry of the same product, or else the one that its answer goes to. */
static struct cpu_grid *entry_of(const struct cpu_device *dev, const struct cpu_gemm *whole,
                                 bool prefer_dnnl, bool *is_known)
{
    enum { NEAR = 8 };
    const struct question asked = question_of(whole, prefer_dnnl);
    uint64_t first = SW_HASH_INIT;
    for (size_t i = 0; i < SW_LEN(asked.words); i++) {
        first = sw_hash_word(first, asked.words[i]);
    }
    *is_known = false;
    for (uint64_t i = first; i < first + NEAR; i++) {
        struct cpu_grid *entry = &dev->known_grids[i % CPU_KNOWN_GRIDS];
        const struct question other = question_of(&entry->whole, entry->prefer_dnnl);
        *is_known = memcmp(&asked, &other, sizeof asked) == 0;
        if (*is_known || entry->n_m == 0) {
            return entry;
        }
    }
    return &dev->known_grids[first % CPU_KNOWN_GRIDS];
}

sw_status sw_cpu_grid_cut(const struct cpu_device *dev, const struct cpu_gemm *whole,
                          bool prefer_dnnl, struct cpu_grid *out)
{
    *out = (struct cpu_grid){.whole = *whole, .prefer_dnnl = prefer_dnnl};
    if (whole->m == 0 || whole->n == 0) {
        return SW_OK; /* there are no items */
    }
    bool is_known = false;
    struct cpu_grid *entry = dev->known_grids ? entry_of(dev, whole, prefer_dnnl, &is_known) : NULL;
    if (is_known) {
        *out = *entry;
        return SW_OK;
    }
    choose_blocks(out, dev, !prefer_dnnl);
    SW_TRY(sw_cpu_grid_open(dev, out));
    sw_cpu_grid_close(out);
    if (entry) {
        *entry = *out;
    }
    return SW_OK;
}

/* Neighbouring items share the columns of b, the larger operand in the cases that matter. */
struct cpu_block sw_cpu_grid_block(const struct cpu_grid *grid, int64_t i_item)
{
    const int64_t i = i_item % grid->n_m * grid->mb, j = i_item / grid->n_m * grid->nb;
    return (struct cpu_block){.i = i,
                              .j = j,
                              .m = sw_min_i64(grid->mb, grid->whole.m - i),
                              .n = sw_min_i64(grid->nb, grid->whole.n - j)};
}

void sw_cpu_grid_run_rows(const struct cpu_grid *grid, int64_t i_item, int i_worker, int64_t n_rows,
                          const void *a, const void *b, float *c, void *scratch)
{
    const struct cpu_gemm *g = &grid->whole;
    const struct cpu_block block = sw_cpu_grid_block(grid, i_item);
    const struct cpu_product *piece =
        grid->piece[i_item % grid->n_m == grid->n_m - 1][i_item / grid->n_m == grid->n_n - 1];
    const size_t bytes = sw_dtype_bytes(g->dtype);
    const char *from_a = (const char *)a + (size_t)(g->ta ? block.i : block.i * g->lda) * bytes;
    const char *from_b = (const char *)b + (size_t)(g->tb ? block.j * g->ldb : block.j) * bytes;
    piece->ops->run(piece, i_worker, n_rows - block.i, from_a, from_b, c, scratch);
}

void sw_cpu_grid_run(const struct cpu_grid *grid, int64_t i_item, int i_worker, const void *a,
                     const void *b, float *c, void *scratch)
{
    sw_cpu_grid_run_rows(grid, i_item, i_worker, grid->whole.m, a, b, c, scratch);
}
