// SPDX-License-Identifier: Apache-2.0
// EMBEDDING_GRAD: sorts the tokens' keys, numbers the rows, and adds each row's tokens in order.
#include "device/gpu/gpu.h"

enum { THREADS = 256 };

struct places {
    int64_t n_tokens, n_keys, n_tiles;
    size_t keys, counts, starts, n_rows, end; /* offsets in the workspace, in bytes */
};

static struct places places_of(const struct sw_op_desc *desc)
{
    struct places p = {.n_tokens = gpu_elems(&desc->in[1]), .n_keys = GPU_SORT_TILE};
    while (p.n_keys < p.n_tokens) {
        p.n_keys *= 2;
    }
    p.n_tiles = p.n_keys / GPU_SORT_TILE;
    p.counts = (size_t)p.n_keys * sizeof(uint64_t);
    p.starts = p.counts + (size_t)p.n_tiles * sizeof(int32_t);
    p.n_rows = p.starts + (size_t)(p.n_tokens + 1) * sizeof(int32_t);
    p.end = p.n_rows + sizeof(int32_t);
    return p;
}

static void query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = sw_gpu_all_floats(desc->in, 1) && sw_gpu_all_floats(desc->out, 1) &&
                     gpu_elems(&desc->in[1]) < INT32_MAX / 2;
    out->workspace_bytes = places_of(desc).end;
}

static sw_status sort(const struct gpu_call *call, const struct places *p, uint64_t *keys)
{
    const struct gpu_grid tiles = {.x = p->n_tiles};
    struct gpu_sort_tiles_args sort = {.ids = call->in[1],
                                       .keys = keys,
                                       .n_tokens = p->n_tokens,
                                       .padding = call->desc->op->attrs.embedding.padding_id};
    GPU_LAUNCH(call, sort_tiles, SW_GPU_PLAIN, tiles, &sort);
    struct gpu_merge_args merge = {.keys = keys, .n_keys = p->n_keys};
    for (merge.run = 2 * GPU_SORT_TILE; merge.run <= p->n_keys; merge.run *= 2) {
        for (merge.distance = merge.run / 2; merge.distance >= GPU_SORT_TILE; merge.distance /= 2) {
            GPU_LAUNCH(call, merge_far, SW_GPU_PLAIN, sw_gpu_grid_for(p->n_keys / 2, THREADS),
                       &merge);
        }
        GPU_LAUNCH(call, merge_near, SW_GPU_PLAIN, tiles, &merge);
    }
    return SW_OK;
}

static sw_status embedding_grad(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const struct places p = places_of(desc);
    const struct gpu_grid tiles = {.x = p.n_tiles};
    char *at = call->workspace;
    uint64_t *keys = (uint64_t *)(void *)at;
    struct gpu_number_rows_args rows = {.keys = keys,
                                        .counts = (int32_t *)(void *)(at + p.counts),
                                        .starts = (int32_t *)(void *)(at + p.starts),
                                        .n_rows = (int32_t *)(void *)(at + p.n_rows),
                                        .n_keys = p.n_keys};
    SW_TRY(sort(call, &p, keys));
    GPU_LAUNCH(call, count_rows, SW_GPU_PLAIN, tiles, &rows);
    GPU_LAUNCH(call, number_rows, SW_GPU_PLAIN, tiles, &rows);
    struct gpu_sum_tokens_args sum = {.keys = keys,
                                      .starts = rows.starts,
                                      .n_rows = rows.n_rows,
                                      .dy = call->in[0],
                                      .rows = call->out[0],
                                      .index = call->out[1],
                                      .n_out = desc->out[0].shape.dims[0],
                                      .width = sw_shape_last(&desc->out[0].shape),
                                      .out_type = (int)sw_gpu_type_of(desc->out[0].dtype)};
    const int64_t elems = desc->in[0].dtype == SW_F32 ? 4 : 8; /* elements per lane */
    const int64_t warps = sw_ceil_div(sum.width, elems * call->dev->facts.warp); /* warps per row */
    GPU_LAUNCH(call, sum_tokens, sw_gpu_type_of(desc->in[0].dtype),
               sw_gpu_grid_for(sum.n_out * warps * call->dev->facts.warp, THREADS), &sum);
    return SW_OK;
}
const struct gpu_op sw_gpu_embedding_grad = {.query = query, .run = embedding_grad};
