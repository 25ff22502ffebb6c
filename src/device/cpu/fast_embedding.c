// SPDX-License-Identifier: Apache-2.0
// EMBEDDING copies rows. EMBEDDING_GRAD sorts the tokens by (id, position). Each distinct row's sum
// is one item and runs in token order.
#include <math.h>
#include <string.h>

#include "device/cpu/fast.h"

enum { RUN_TOKENS = 32, RUN_ROWS = 16, RUN_COLUMNS = 1024 };

/* ---- EMBEDDING: table [V,C], ids -> [..,C] ---- */

static void lookup_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel_info *out)
{
    (void)dev;
    out->supported =
        cpu_is_fast_float(desc->in[0].dtype) && desc->out[0].dtype == desc->in[0].dtype;
    out->path = "copy";
}

static void lookup_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct cpu_call *call = ctx;
    const struct sw_tile_attrs *tile = &call->desc->op->attrs.embedding.tile;
    const struct sw_view *table = &call->desc->in[0];
    const int64_t vocab = table->shape.dims[0], width = sw_shape_last(&table->shape);
    const int64_t n_tokens = sw_shape_elems(&call->desc->in[1].shape);
    const size_t row = (size_t)width * sw_dtype_bytes(table->dtype);
    const int32_t *ids = call->in[1];
    (void)i_worker;
    for (int64_t t = i_item * RUN_TOKENS; t < sw_min_i64(n_tokens, (i_item + 1) * RUN_TOKENS);
         t++) {
        char *to = (char *)call->out[0] + (size_t)t * row;
        const int64_t id = ids[t] - tile->first;
        if (id >= 0 && id < vocab) {
            memcpy(to, (const char *)call->in[0] + (size_t)id * row, row);
        }
        if (tile->continues || (id >= 0 && id < vocab)) {
            continue;
        }
        /* an id out of range reads nothing; it gives 0 if another part may have it, else NaN */
        for (int64_t c = 0; c < width; c++) {
            sw_store_f64(table->dtype, to, c,
                         call->desc->op->attrs.embedding.whole > 0 ? 0 : (double)NAN);
        }
    }
}

static void lookup_run(const struct cpu_call *call)
{
    const int64_t n_tokens = sw_shape_elems(&call->desc->in[1].shape);
    sw_pool_run(call->pool, sw_ceil_div(n_tokens, RUN_TOKENS), lookup_item,
                (void *)(uintptr_t)call);
}

const struct cpu_kernel sw_cpu_embedding = {.name = "fast",
                                            .query = lookup_query,
                                            .prepare = sw_cpu_prepare_vector,
                                            .release = sw_cpu_release_nothing,
                                            .run = lookup_run};

/* ---- EMBEDDING_GRAD: dy [..,C], ids -> rows [N,C], index [N] ---- */

struct grad {
    const struct cpu_vector *vector;
    const struct cpu_call *call;
    const uint64_t *keys;  /* id << 32 | token, ascending */
    const int32_t *starts; /* [n_distinct + 1] offsets in keys */
    int64_t n_distinct, n_rows;
};

/* The workspace: keys, a buffer for sorting them, starts. */
static size_t keys_bytes(int64_t n_tokens)
{
    return (size_t)n_tokens * sizeof(uint64_t);
}

static void grad_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    const int64_t n_tokens = sw_shape_elems(&desc->in[1].shape);
    if (!cpu_is_fast_float(desc->in[0].dtype) || !cpu_is_fast_float(desc->out[0].dtype) ||
        n_tokens >= INT32_MAX) {
        return;
    }
    out->supported = true;
    out->workspace_bytes = 2 * keys_bytes(n_tokens) + (size_t)(n_tokens + 1) * sizeof(int32_t);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

/* Radix sort by bytes of the id, lowest first: it is stable, so tokens stay in order. The result is
 * in `keys`. */
static void sort_by_id(uint64_t *keys, uint64_t *buffer, int64_t n)
{
    for (int shift = 32; shift < 64; shift += 8) { /* four passes: the last one ends in `keys` */
        int64_t counts[257] = {0};
        for (int64_t i = 0; i < n; i++) {
            counts[((keys[i] >> shift) & 255) + 1]++;
        }
        for (int b = 0; b < 256; b++) {
            counts[b + 1] += counts[b];
        }
        for (int64_t i = 0; i < n; i++) {
            buffer[counts[(keys[i] >> shift) & 255]++] = keys[i];
        }
        uint64_t *sorted = buffer;
        buffer = keys;
        keys = sorted;
    }
}

static void sum_row(const struct grad *g, int64_t row)
{
    const struct sw_op_desc *desc = g->call->desc;
    const enum sw_dtype from = desc->in[0].dtype, to = desc->out[0].dtype;
    const int64_t width = sw_shape_last(&desc->out[0].shape);
    const bool used = row < g->n_distinct;
    ((int32_t *)g->call->out[1])[row] = used ? (int32_t)(g->keys[g->starts[row]] >> 32) : -1;
    char *out = (char *)g->call->out[0] + (size_t)(row * width) * sw_dtype_bytes(to);
    for (int64_t c = 0; c < width; c += RUN_COLUMNS) {
        const int64_t n = sw_min_i64(RUN_COLUMNS, width - c);
        float sums[RUN_COLUMNS] = {0};
        for (int32_t i = used ? g->starts[row] : 0; used && i < g->starts[row + 1]; i++) {
            const int64_t token = (int64_t)(uint32_t)g->keys[i];
            const char *dy =
                (const char *)g->call->in[0] + (size_t)(token * width + c) * sw_dtype_bytes(from);
            g->vector->accumulate(from, false, sums, dy, 0, n);
        }
        g->vector->cast(to, SW_F32, out + (size_t)c * sw_dtype_bytes(to), sums, 0, n);
    }
}

static void grad_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct grad *g = ctx;
    (void)i_worker;
    for (int64_t r = i_item * RUN_ROWS; r < sw_min_i64(g->n_rows, (i_item + 1) * RUN_ROWS); r++) {
        sum_row(g, r);
    }
}

static void grad_run(const struct cpu_call *call)
{
    const int64_t n_tokens = sw_shape_elems(&call->desc->in[1].shape);
    const int64_t padding = call->desc->op->attrs.embedding.padding_id;
    const int32_t *ids = call->in[1];
    uint64_t *keys = call->workspace;
    int32_t *starts = (int32_t *)(keys + 2 * n_tokens);
    int64_t n = 0;
    for (int64_t t = 0; t < n_tokens; t++) {
        if (ids[t] >= 0 && ids[t] != padding) {
            keys[n++] = (uint64_t)ids[t] << 32 | (uint64_t)t;
        }
    }
    sort_by_id(keys, keys + n_tokens, n);
    struct grad g = {.vector = call->prepared,
                     .call = call,
                     .keys = keys,
                     .starts = starts,
                     .n_rows = call->desc->out[0].shape.dims[0]};
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || keys[i] >> 32 != keys[i - 1] >> 32) {
            starts[g.n_distinct++] = (int32_t)i;
        }
    }
    starts[g.n_distinct] = (int32_t)n;
    sw_pool_run(call->pool, sw_ceil_div(g.n_rows, RUN_ROWS), grad_item, &g);
}

const struct cpu_kernel sw_cpu_embedding_grad = {.name = "fast",
                                                 .query = grad_query,
                                                 .prepare = sw_cpu_prepare_vector,
                                                 .release = sw_cpu_release_nothing,
                                                 .run = grad_run};
