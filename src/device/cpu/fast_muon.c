// SPDX-License-Identifier: Apache-2.0
// MUON_MOMENTS and MUON_APPLY. The matrix and the intermediates of its steps are kept in bf16. The
// three products of a step are cut into blocks as all products are; a block is rounded while it is
// in cache.
#include <math.h>
#include <string.h>

#include "device/cpu/fast_streams.h"

/* ---- MUON_MOMENTS: param, states.., streams.. -> momentum, direction ---- */

struct moments_job {
    const struct cpu_vector *vector;
    struct cpu_streams streams;
    struct cpu_update update;
    uint16_t *direction;
};

static void moments_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                          struct sw_kernel_info *out)
{
    out->supported = cpu_is_fast_float(desc->in[0].dtype) &&
                     sw_cpu_takes_streams(desc, 1 + desc->op->attrs.update.rule.n_states);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void moments_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct moments_job *job = ctx;
    struct cpu_streams_item item;
    (void)i_worker;
    const float *sum = sw_cpu_streams_item(job->vector, &job->streams, i_item, &item);
    job->vector->muon_moments(&job->update, item.start, item.n, sum, job->direction);
}

static void moments_run(const struct cpu_call *call)
{
    struct moments_job job = {
        .vector = call->prepared, .update = sw_cpu_update_of(call), .direction = call->out[1]};
    const int64_t n = sw_shape_elems(&call->desc->in[0].shape);
    sw_cpu_streams_of(&job.streams, call, 1 + job.update.attrs->n_states, n);
    sw_pool_run(call->pool, sw_ceil_div(n, CPU_STREAM_ELEMS), moments_item, &job);
}

const struct cpu_kernel sw_cpu_muon_moments = {.name = "fast",
                                               .query = moments_query,
                                               .prepare = sw_cpu_prepare_vector,
                                               .release = sw_cpu_release_nothing,
                                               .run = moments_run};

/* ---- MUON_APPLY: param, its master if any, u ---- */

enum product { GRAM, SQUARE, STEP, N_PRODUCTS };

struct muon {
    const struct cpu_vector *vector;
    int64_t rows, columns;
    bool turned; /* x is transposed */
    struct cpu_grid grid[N_PRODUCTS];
    size_t worker_bytes;
};

struct apply_job {
    const struct muon *m;
    const struct cpu_call *call;
    struct cpu_update update;
    uint16_t *x, *next, *g, *h; /* bf16, in the workspace */
    char *scratch;
    enum product product;
};

/* Finds everything but the pieces that run. */
static sw_status cut(const struct cpu_device *dev, const struct sw_op_desc *desc, struct muon *m)
{
    const int64_t *dims = desc->in[desc->op->n_in - 1].shape.dims;
    *m = (struct muon){.vector = sw_cpu_vector_for(dev->isa),
                       .rows = sw_min_i64(dims[0], dims[1]),
                       .columns = sw_max_i64(dims[0], dims[1]),
                       .turned = dims[0] > dims[1]};
    for (int i = 0; i < N_PRODUCTS; i++) {
        const struct cpu_gemm whole = {.dtype = SW_BF16,
                                       .dtype_b = SW_BF16,
                                       .tb = i == GRAM,
                                       .m = m->rows,
                                       .n = i == STEP ? m->columns : m->rows,
                                       .k = i == GRAM ? m->columns : m->rows,
                                       .lda = i == GRAM ? m->columns : m->rows,
                                       .ldb = i == SQUARE ? m->rows : m->columns};
        SW_TRY(sw_cpu_grid_cut(dev, &whole, true, &m->grid[i]));
        const size_t bytes = cpu_grid_block_bytes(&m->grid[i]) + m->grid[i].scratch_bytes;
        m->worker_bytes = bytes > m->worker_bytes ? bytes : m->worker_bytes;
    }
    return SW_OK;
}

static size_t matrix_bytes(const struct muon *m)
{
    return sw_round_up((size_t)(m->rows * m->columns) * sizeof(uint16_t), CPU_LINE);
}

static size_t gram_bytes(const struct muon *m)
{
    return sw_round_up((size_t)(m->rows * m->rows) * sizeof(uint16_t), CPU_LINE);
}

static void apply_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                        struct sw_kernel_info *out)
{
    struct muon m;
    const sw_status st = cpu_is_fast_float(desc->in[0].dtype) ? cut(dev, desc, &m) : SW_E_UNSUP;
    out->no_memory = st == SW_E_NOMEM;
    if (st < 0) {
        return;
    }
    out->supported = true;
    out->workspace_bytes =
        2 * (matrix_bytes(&m) + gram_bytes(&m)) + m.worker_bytes * (size_t)cpu_workers(dev->pool);
    out->path = m.grid[GRAM].path;
}

static void apply_release(void *prepared)
{
    struct muon *m = prepared;
    for (int i = 0; i < N_PRODUCTS; i++) {
        sw_cpu_grid_close(&m->grid[i]);
    }
    sw_free(m);
}

static sw_status apply_prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                               void **prepared)
{
    struct muon *m = sw_alloc_zero("device", 1, sizeof *m);
    SW_TRY_ALLOC(m, "a step of Muon");
    sw_status st = SW_OK;
    SW_TRY_OR(release, cut(dev, desc, m));
    for (int i = 0; i < N_PRODUCTS; i++) {
        SW_TRY_OR(release, sw_cpu_grid_open(dev, &m->grid[i]));
    }
    *prepared = m;
    return SW_OK;
release:
    apply_release(m);
    return st;
}

/* Index in x of element e of the matrix. */
static int64_t place_of(const struct muon *m, int64_t e)
{
    return m->turned ? e % m->rows * m->columns + e / m->rows : e;
}

static void normalize(const struct apply_job *job, const uint16_t *u)
{
    const int64_t n = job->m->rows * job->m->columns;
    double squares = 0;
    for (int64_t e = 0; e < n; e++) {
        const double value = sw_bf16_to_f32(u[e]);
        squares += value * value;
    }
    const float rounded = sw_bf16_to_f32(sw_f32_to_bf16((float)sqrt(squares)));
    const float norm = rounded < CPU_MUON_LEAST_NORM ? CPU_MUON_LEAST_NORM : rounded;
    for (int64_t e = 0; e < n; e++) {
        job->x[place_of(job->m, e)] = sw_f32_to_bf16(sw_bf16_to_f32(u[e]) / norm);
    }
}

/* to = own a + by b for a block; rows are ld apart in `own` and `to`. */
static void mix(const struct cpu_block *block, const float *product, float by, const uint16_t *own,
                float of_own, uint16_t *to, int64_t ld)
{
    for (int64_t i = 0; i < block->m; i++) {
        const int64_t at = (block->i + i) * ld + block->j;
        for (int64_t j = 0; j < block->n; j++) {
            to[at + j] = sw_f32_to_bf16(of_own * sw_bf16_to_f32(own[at + j]) +
                                        by * product[i * block->n + j]);
        }
    }
}

static void product_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct apply_job *job = ctx;
    const struct muon *m = job->m;
    const struct cpu_grid *grid = &m->grid[job->product];
    const struct cpu_block block = sw_cpu_grid_block(grid, i_item);
    char *scratch = job->scratch + (size_t)i_worker * m->worker_bytes;
    float *product = (float *)scratch;
    sw_cpu_grid_run(grid, i_item, i_worker,
                    job->product == GRAM     ? job->x
                    : job->product == SQUARE ? job->g
                                             : job->h,
                    job->product == SQUARE ? job->g : job->x, product,
                    scratch + cpu_grid_block_bytes(grid));
    if (job->product == GRAM) {
        const struct cpu_epilogue round = {.dtype = SW_BF16,
                                           .act = SW_ACT_NONE,
                                           .out = job->g + block.i * m->rows + block.j,
                                           .ld_out = m->rows};
        m->vector->epilogue(&round, product, block.m, block.n, block.n);
    } else if (job->product == SQUARE) {
        mix(&block, product, CPU_MUON_C, job->g, CPU_MUON_B, job->h, m->rows);
    } else {
        mix(&block, product, 1, job->x, CPU_MUON_A, job->next, m->columns);
    }
}

static void apply_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct apply_job *job = ctx;
    const int64_t start = i_item * CPU_STREAM_ELEMS;
    const int64_t n =
        sw_min_i64(CPU_STREAM_ELEMS, job->call->desc->op->attrs.update.n_elems - start);
    float x[CPU_STREAM_ELEMS];
    (void)i_worker;
    for (int64_t e = 0; e < n; e++) {
        x[e] = sw_bf16_to_f32(job->x[place_of(job->m, (int64_t)job->update.origin + start + e)]);
    }
    job->m->vector->muon_apply(&job->update, start, n, x);
}

static void apply_run(const struct cpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const struct muon *m = call->prepared;
    char *mem = call->workspace;
    struct apply_job job = {.m = m,
                            .call = call,
                            .update = sw_cpu_update_of(call),
                            .x = (uint16_t *)mem,
                            .next = (uint16_t *)(mem + matrix_bytes(m)),
                            .g = (uint16_t *)(mem + 2 * matrix_bytes(m)),
                            .h = (uint16_t *)(mem + 2 * matrix_bytes(m) + gram_bytes(m)),
                            .scratch = mem + 2 * (matrix_bytes(m) + gram_bytes(m))};
    job.update.step_size = (float)sw_cpu_muon_step(
        desc, sw_update_rates_of(job.update.attrs, call->scalars).step_size);
    normalize(&job, call->in[desc->op->n_in - 1]);
    for (int step = 0; step < job.update.attrs->ns_steps; step++) {
        for (int i = 0; i < N_PRODUCTS; i++) {
            job.product = (enum product)i;
            sw_pool_run(call->pool, cpu_grid_items(&m->grid[i]), product_item, &job);
        }
        uint16_t *x = job.x;
        job.x = job.next;
        job.next = x;
    }
    sw_pool_run(call->pool, sw_ceil_div(desc->op->attrs.update.n_elems, CPU_STREAM_ELEMS),
                apply_item, &job);
}

const struct cpu_kernel sw_cpu_muon_apply = {.name = "fast",
                                             .query = apply_query,
                                             .prepare = apply_prepare,
                                             .release = apply_release,
                                             .run = apply_run};
