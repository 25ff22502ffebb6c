// SPDX-License-Identifier: Apache-2.0
// RELATIVE_SCORES and RELATIVE_SCORES_GRAD. For one head of a sample, all its tokens are multiplied
// with the table rows that any difference selects; the scores are picked from that product. The
// gradient scatters each score's gradient to where it was picked, and then makes two products.
#include <string.h>

#include "device/cpu/fast.h"

struct scores {
    const struct cpu_vector *vector;
    const struct cpu_call *call;
    int64_t batch, tokens, heads, width, rows;
    bool by_key;
    float scale;
    const struct sw_view *x, *table;
    const char *x_data, *table_data;
    const int32_t *index;
    int64_t low, n; /* rows low .. low + n - 1 of the table are used */
    size_t worker_bytes;
};

/* Floats of a worker: picked [T,P]; for the gradient also dx of a sample [T,D], the table's sum
 * [P,D] and its part [P,D]. */
static size_t worker_bytes(const struct cpu_vector *vector, const struct sw_op_desc *desc, int i_x)
{
    const int64_t tokens = desc->in[i_x].shape.dims[1], width = desc->in[i_x].shape.dims[3];
    const int64_t rows = desc->in[i_x + 1].shape.dims[0];
    const int64_t more = i_x > 0 ? (tokens + 2 * rows) * width : 0;
    return sw_round_up(vector->gemm_scratch_bytes, CPU_LINE) +
           sw_round_up((size_t)(tokens * rows + more) * sizeof(float), CPU_LINE);
}

static struct scores scores_of(const struct cpu_call *call, int i_x)
{
    const struct sw_op_desc *desc = call->desc;
    const struct sw_shape *x = &desc->in[i_x].shape;
    struct scores s = {.vector = call->prepared,
                       .call = call,
                       .batch = x->dims[0],
                       .tokens = x->dims[1],
                       .heads = x->dims[2],
                       .width = x->dims[3],
                       .rows = desc->in[i_x + 1].shape.dims[0],
                       .by_key = desc->op->attrs.relative.by_key,
                       .scale = (float)desc->op->attrs.relative.scale,
                       .x = &desc->in[i_x],
                       .table = &desc->in[i_x + 1],
                       .x_data = call->in[i_x],
                       .table_data = call->in[i_x + 1],
                       .index = call->in[i_x + 2],
                       .worker_bytes = worker_bytes(call->prepared, desc, i_x)};
    int64_t high = 0;
    s.low = s.rows;
    for (int64_t d = 0; d < 2 * s.tokens - 1; d++) {
        s.low = sw_min_i64(s.low, s.index[d]);
        high = sw_max_i64(high, s.index[d]);
    }
    s.n = s.tokens > 0 ? high + 1 - s.low : 0;
    return s;
}

static void query(const struct cpu_device *dev, const struct sw_op_desc *desc, int i_x,
                  struct sw_kernel_info *out)
{
    const struct cpu_vector *vector = sw_cpu_vector_for(dev->isa);
    const enum sw_dtype dtype = desc->in[i_x].dtype;
    out->supported = cpu_is_fast_float(dtype) && desc->in[i_x + 1].dtype == dtype;
    for (int i = 0; i < desc->op->n_out; i++) {
        out->supported = out->supported && (!cpu_has_output(desc, i) ||
                                            desc->out[i].dtype == (i_x > 0 ? dtype : SW_F32));
    }
    out->supported = out->supported && (i_x == 0 || desc->in[0].dtype == SW_F32);
    out->workspace_bytes = worker_bytes(vector, desc, i_x) * (size_t)cpu_workers(dev->pool);
    out->path = vector->name;
}

/* Offset of token 0 of a head of a sample; and of a table row for that head. Rows are heads * width
 * apart. */
static size_t token_at(const struct scores *s, int64_t b, int64_t head)
{
    return (size_t)((b * s->tokens * s->heads + head) * s->width) * sw_dtype_bytes(s->x->dtype);
}

static size_t row_at(const struct scores *s, int64_t row, int64_t head)
{
    return (size_t)((row * s->heads + head) * s->width) * sw_dtype_bytes(s->table->dtype);
}

static char *scratch_of(const struct scores *s, int i_worker, float **floats)
{
    char *scratch = (char *)s->call->workspace + (size_t)i_worker * s->worker_bytes;
    *floats = (float *)(scratch + sw_round_up(s->vector->gemm_scratch_bytes, CPU_LINE));
    return scratch;
}

/* ---- forward: an item is a head of a sample ---- */

static void forward_item(void *ctx, int64_t item, int i_worker)
{
    const struct scores *s = ctx;
    const int64_t b = item / s->heads, head = item % s->heads, ld = s->heads * s->width;
    const struct cpu_gemm gemm = {.dtype = s->x->dtype,
                                  .dtype_b = s->table->dtype,
                                  .tb = true,
                                  .m = s->tokens,
                                  .n = s->n,
                                  .k = s->width,
                                  .lda = ld,
                                  .ldb = ld,
                                  .ldc = s->n};
    float *all, *out = (float *)s->call->out[0] + item * s->tokens * s->tokens;
    char *scratch = scratch_of(s, i_worker, &all);
    s->vector->gemm(&gemm, s->x_data + token_at(s, b, head),
                    s->table_data + row_at(s, s->low, head), all, scratch);
    for (int64_t i = 0; i < s->tokens; i++) {
        const int32_t *index = s->index + s->tokens - 1 - i; /* entry of key 0 */
        for (int64_t j = 0; j < s->tokens; j++) {
            const int64_t token = s->by_key ? j : i;
            out[i * s->tokens + j] = s->scale * all[token * s->n + index[j] - s->low];
        }
    }
}

static void forward_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                          struct sw_kernel_info *out)
{
    query(dev, desc, 0, out);
}

static void forward_run(const struct cpu_call *call)
{
    struct scores s = scores_of(call, 0);
    sw_pool_run(call->pool, s.batch * s.heads, forward_item, &s);
}

const struct cpu_kernel sw_cpu_relative_scores = {.name = "fast",
                                                  .query = forward_query,
                                                  .prepare = sw_cpu_prepare_vector,
                                                  .release = sw_cpu_release_nothing,
                                                  .run = forward_run};

/* ---- backward: d, x, table, index -> dx, dtable; an item is a head, its samples in order ---- */

/* Scatters d of a head of a sample to where each score was picked. */
static void put_back(const struct scores *s, int64_t b, int64_t head, float *all)
{
    const float *d = (const float *)s->call->in[0] + (b * s->heads + head) * s->tokens * s->tokens;
    memset(all, 0, (size_t)(s->tokens * s->n) * sizeof *all);
    for (int64_t i = 0; i < s->tokens; i++) {
        const int32_t *index = s->index + s->tokens - 1 - i;
        for (int64_t j = 0; j < s->tokens; j++) {
            const int64_t token = s->by_key ? j : i;
            all[token * s->n + index[j] - s->low] += s->scale * d[i * s->tokens + j];
        }
    }
}

/* Copies a dense block [m, width] of a head into an output whose rows span all heads. */
static void put_head(const struct scores *s, int i_out, const float *block, int64_t m, size_t at)
{
    const struct cpu_epilogue epilogue = {.dtype = s->call->desc->out[i_out].dtype,
                                          .act = SW_ACT_NONE,
                                          .out = (char *)s->call->out[i_out] + at,
                                          .ld_out = s->heads * s->width};
    s->vector->epilogue(&epilogue, block, m, s->width, s->width);
}

static void put_table(const struct scores *s, int64_t head, const float *sum, float *zeros)
{
    memset(zeros, 0, (size_t)s->width * sizeof *zeros);
    for (int64_t row = 0; row < s->rows; row++) {
        const bool used = row >= s->low && row < s->low + s->n;
        put_head(s, 1, used ? sum + (row - s->low) * s->width : zeros, 1, row_at(s, row, head));
    }
}

static void backward_item(void *ctx, int64_t head, int i_worker)
{
    const struct scores *s = ctx;
    const int64_t ld = s->heads * s->width;
    const struct cpu_gemm to_x = {.dtype = SW_F32,
                                  .dtype_b = s->table->dtype,
                                  .m = s->tokens,
                                  .n = s->width,
                                  .k = s->n,
                                  .lda = s->n,
                                  .ldb = ld,
                                  .ldc = s->width};
    const struct cpu_gemm to_table = {.dtype = SW_F32,
                                      .dtype_b = s->x->dtype,
                                      .ta = true,
                                      .m = s->n,
                                      .n = s->width,
                                      .k = s->tokens,
                                      .lda = s->n,
                                      .ldb = ld,
                                      .ldc = s->width};
    float *all;
    char *scratch = scratch_of(s, i_worker, &all);
    float *dx = all + s->tokens * s->n, *sum = dx + s->tokens * s->width;
    float *part = sum + s->rows * s->width;
    for (int64_t b = 0; b < s->batch; b++) {
        put_back(s, b, head, all);
        if (cpu_has_output(s->call->desc, 0)) {
            s->vector->gemm(&to_x, all, s->table_data + row_at(s, s->low, head), dx, scratch);
            put_head(s, 0, dx, s->tokens, token_at(s, b, head));
        }
        if (cpu_has_output(s->call->desc, 1)) {
            s->vector->gemm(&to_table, all, s->x_data + token_at(s, b, head), b == 0 ? sum : part,
                            scratch);
            if (b > 0) {
                s->vector->accumulate_block(sum, s->width, part, s->width, s->n, s->width);
            }
        }
    }
    if (cpu_has_output(s->call->desc, 1)) {
        put_table(s, head, sum, part);
    }
}

static void backward_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                           struct sw_kernel_info *out)
{
    query(dev, desc, 1, out);
}

static void backward_run(const struct cpu_call *call)
{
    struct scores s = scores_of(call, 1);
    sw_pool_run(call->pool, s.heads, backward_item, &s);
}

const struct cpu_kernel sw_cpu_relative_scores_grad = {.name = "fast",
                                                       .query = backward_query,
                                                       .prepare = sw_cpu_prepare_vector,
                                                       .release = sw_cpu_release_nothing,
                                                       .run = backward_run};
