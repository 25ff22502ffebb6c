// SPDX-License-Identifier: Apache-2.0
// Which updates stand in line, and when they are launched.
#include "device/gpu/batch.h"

#include <string.h>

enum { SMALL_ELEMS = 1 << 16 };
enum { BLOCK_ELEMS = GPU_UPDATE_THREADS * GPU_UPDATE_PART };
_Static_assert(sizeof(struct gpu_update_many_args) <= 4096, "CUDA passes no more by value");

/* What an update writes, and what it reads besides. */
struct touched {
    struct gpu_range written[GPU_WRITTEN], read[2 * GPU_MAX_STREAMS];
    int n_written, n_read;
};

static size_t bytes_of(int type)
{
    return type == SW_GPU_F32 ? sizeof(float) : sizeof(uint16_t);
}

static struct gpu_range range_of(const void *at, int64_t n, size_t bytes)
{
    return (struct gpu_range){at, (const char *)at + (size_t)n * bytes};
}

static void add_written(struct touched *t, const void *at, int64_t n, size_t bytes)
{
    if (at) {
        t->written[t->n_written++] = range_of(at, n, bytes);
    }
}

static void find_touched(const struct gpu_update_args *args, enum sw_gpu_type type,
                         struct touched *t)
{
    const struct gpu_param *p = &args->param;
    t->n_written = t->n_read = 0;
    add_written(t, p->param, args->n, bytes_of(type));
    add_written(t, p->master, args->n, type == SW_GPU_BF16 ? sizeof(int16_t) : sizeof(float));
    for (int k = 0; k < 2; k++) {
        add_written(t, p->moment[k], args->n, p->half ? sizeof(uint16_t) : sizeof(float));
    }
    for (int k = 0; k < args->streams.n; k++) {
        const struct gpu_stream *s = &args->streams.stream[k];
        const size_t bytes = bytes_of(s->type);
        if (s->index) {
            t->read[t->n_read++] = range_of(s->x, s->n_rows * args->streams.row_elems, bytes);
            t->read[t->n_read++] = range_of(s->index, s->n_rows, sizeof *s->index);
        } else {
            t->read[t->n_read++] =
                range_of((const char *)s->x + (size_t)s->first * bytes, args->n, bytes);
        }
    }
}

static bool any_meets(const struct gpu_range *a, int n_a, const struct gpu_range *b, int n_b)
{
    for (int i = 0; i < n_a; i++) {
        for (int k = 0; k < n_b; k++) {
            if (a[i].begin < b[k].end && b[k].begin < a[i].end) {
                return true;
            }
        }
    }
    return false;
}

/* One of them would see what the other writes. */
static bool meets(const struct gpu_batch *batch, const struct touched *t)
{
    return any_meets(batch->written, batch->n_written, t->written, t->n_written) ||
           any_meets(batch->written, batch->n_written, t->read, t->n_read) ||
           any_meets(batch->read, batch->args.n, t->written, t->n_written);
}

static bool is_small(const struct gpu_update_args *args)
{
    return args->streams.n == 1 && !args->streams.stream[0].index && args->n <= SMALL_ELEMS;
}

static bool goes_with(const struct gpu_batch *batch, const struct gpu_call *call,
                      enum sw_gpu_type type, const struct gpu_update_args *args)
{
    return batch->args.n < GPU_UPDATE_MANY && batch->type == type &&
           batch->scalars == call->scalars && batch->is_predicated == call->is_predicated &&
           memcmp(&batch->args.rule, &args->rule, sizeof args->rule) == 0;
}

static void add(struct gpu_batch *batch, const struct gpu_update_args *args,
                const struct touched *t)
{
    const struct gpu_stream *s = &args->streams.stream[0];
    batch->read[batch->args.n] = t->read[0];
    batch->args.item[batch->args.n++] = (struct gpu_update_item){.param = args->param,
                                                                 .g = t->read[0].begin,
                                                                 .n = args->n,
                                                                 .type = s->type,
                                                                 .first_block = batch->n_blocks};
    batch->n_blocks += (int)sw_ceil_div(args->n, BLOCK_ELEMS);
    memcpy(batch->written + batch->n_written, t->written,
           (size_t)t->n_written * sizeof *t->written);
    batch->n_written += t->n_written;
}

sw_status sw_gpu_batch_launch(struct gpu_batch *batch, struct gpu_device *dev, void *stream)
{
    if (batch->args.n == 0) {
        return SW_OK;
    }
    const struct gpu_call call = {.dev = dev,
                                  .stream = stream,
                                  .scalars = batch->scalars,
                                  .is_predicated = batch->is_predicated};
    const struct gpu_grid grid = {.x = batch->n_blocks};
    const sw_status st = sw_gpu_run_kernel(&call, GPU_update_many, batch->type, grid, 0,
                                           &batch->args, sizeof batch->args);
    batch->args.n = batch->n_blocks = batch->n_written = 0; /* also where it failed */
    return st < 0 ? sw_frame_at(__FILE__, __LINE__, st) : SW_OK;
}

struct gpu_grid sw_gpu_update_grid(int64_t n, int64_t each)
{
    const int64_t blocks = sw_ceil_div(n, each * GPU_UPDATE_THREADS);
    return (struct gpu_grid){.x = sw_max_i64(1, sw_min_i64(blocks, GPU_UPDATE_BLOCKS))};
}

sw_status sw_gpu_batch_update(const struct gpu_call *call, enum sw_gpu_type type,
                              struct gpu_update_args *args)
{
    struct gpu_batch *batch = call->batch;
    struct touched t;
    const bool small = batch && is_small(args);
    if (batch) {
        find_touched(args, type, &t);
        if ((small && !goes_with(batch, call, type, args)) || meets(batch, &t)) {
            SW_TRY(sw_gpu_batch_launch(batch, call->dev, call->stream));
        }
    }
    if (!small) {
        GPU_LAUNCH(call, update, type, sw_gpu_update_grid(args->n, GPU_UPDATE_PART), args);
        return SW_OK;
    }
    if (batch->args.n == 0) {
        batch->type = type;
        batch->scalars = call->scalars;
        batch->is_predicated = call->is_predicated;
        batch->args.rule = args->rule;
        batch->args.rates = args->rates;
    }
    add(batch, args, &t);
    return SW_OK;
}
