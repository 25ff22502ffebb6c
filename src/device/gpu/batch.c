// SPDX-License-Identifier: Apache-2.0
// Collects small ops in lines, and decides when a line is launched.
#include "device/gpu/batch.h"

#include <string.h>

/* Limits, in elements, of a small tensor; for LAMB one block processes a whole tensor. */
enum { SMALL_ELEMS = 1 << 16, SMALL_LAMB_ELEMS = 1 << 14 };

static const struct {
    enum sw_gpu_kernel_id kernel;
    int most; /* most ops in a line */
    size_t args_bytes;
} kinds[GPU_N_LINES] = {
    [GPU_LINE_UPDATE] = {GPU_update_many, GPU_UPDATE_MANY, sizeof(struct gpu_update_many_args)},
    [GPU_LINE_SUM] = {GPU_accumulate_many, GPU_ACCUMULATE_MANY,
                      sizeof(struct gpu_accumulate_many_args)},
    [GPU_LINE_STATS] = {GPU_grad_stats_many, GPU_STATS_MANY,
                        sizeof(struct gpu_grad_stats_many_args)},
    [GPU_LINE_LAMB] = {GPU_lamb_many, GPU_LAMB_MANY, sizeof(struct gpu_lamb_many_args)},
};
_Static_assert(sizeof(struct gpu_update_many_args) <= 4096 &&
                   sizeof(struct gpu_accumulate_many_args) <= 4096 &&
                   sizeof(struct gpu_grad_stats_many_args) <= 4096 &&
                   sizeof(struct gpu_lamb_many_args) <= 4096 &&
                   sizeof(struct gpu_update_coded_args) <= 4096,
               "CUDA passes no more by value");
_Static_assert((int)GPU_LINE_WRITTEN >= 4 * (int)GPU_UPDATE_MANY &&
                   (int)GPU_LINE_WRITTEN >= (int)GPU_ACCUMULATE_MANY &&
                   (int)GPU_LINE_READ >= (int)GPU_ACCUMULATE_MANY &&
                   (int)GPU_LINE_READ >= (int)GPU_UPDATE_MANY &&
                   (int)GPU_LINE_READ >= (int)GPU_LAMB_MANY,
               "each item has room for its ranges");

/* ---- conflicts ---- */

/* The memory an op writes, and the memory it only reads. */
struct touched {
    struct gpu_range written[6], read[2 * GPU_MAX_STREAMS];
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

static void add_read(struct touched *t, const void *at, int64_t n, size_t bytes)
{
    t->read[t->n_read++] = range_of(at, n, bytes);
}

static void add_param(struct touched *t, const struct gpu_param *p, int64_t n,
                      enum sw_gpu_type type)
{
    add_written(t, p->param, n, bytes_of(type));
    add_written(t, p->master, n, type == SW_GPU_BF16 ? sizeof(int16_t) : sizeof(float));
}

static void add_moments(struct touched *t, const struct gpu_param *p, int64_t n)
{
    for (int k = 0; k < 2; k++) {
        add_written(t, p->moment[k], n, p->half ? sizeof(uint16_t) : sizeof(float));
    }
}

static void add_streams(struct touched *t, const struct gpu_streams *streams, int64_t n)
{
    for (int k = 0; k < streams->n; k++) {
        const struct gpu_stream *s = &streams->stream[k];
        const size_t bytes = bytes_of(s->type);
        if (s->index) {
            add_read(t, s->x, s->n_rows * streams->row_elems, bytes);
            add_read(t, s->index, s->n_rows, sizeof *s->index);
        } else {
            add_read(t, (const char *)s->x + (size_t)s->first * bytes, n, bytes);
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

/* True if one would see what the other writes. The accumulators of statistics do not count: their
 * sums do not depend on order. */
static bool meets(const struct gpu_line *line, const struct touched *t)
{
    return any_meets(line->written, line->n_written, t->written, t->n_written) ||
           any_meets(line->written, line->n_written, t->read, t->n_read) ||
           any_meets(line->read, line->n_read, t->written, t->n_written);
}

/* ---- lines ---- */

static sw_status launch_line(struct gpu_batch *batch, int kind, struct gpu_device *dev,
                             void *stream)
{
    struct gpu_line *line = &batch->line[kind];
    if (line->n == 0) {
        return SW_OK;
    }
    const struct gpu_call call = {.dev = dev,
                                  .stream = stream,
                                  .scalars = line->scalars,
                                  .is_predicated = line->is_predicated};
    const struct gpu_grid grid = {.x = line->n_blocks};
    const sw_status st = sw_gpu_run_kernel(&call, kinds[kind].kernel, line->type, grid, 0,
                                           &line->args, kinds[kind].args_bytes);
    /* reset even if the launch failed */
    line->n = line->n_blocks = line->n_written = line->n_read = 0;
    return st < 0 ? sw_frame_at(__FILE__, __LINE__, st) : SW_OK;
}

sw_status sw_gpu_batch_launch(struct gpu_batch *batch, struct gpu_device *dev, void *stream)
{
    sw_status st = SW_OK;
    for (int kind = 0; kind < GPU_N_LINES; kind++) {
        const sw_status one = launch_line(batch, kind, dev, stream);
        st = st < 0 ? st : one;
    }
    return st;
}

/* Launches the lines that must run before an op that touches t. */
static sw_status clear_way(const struct gpu_call *call, const struct touched *t)
{
    for (int kind = 0; kind < GPU_N_LINES; kind++) {
        if (meets(&call->batch->line[kind], t)) {
            SW_TRY(launch_line(call->batch, kind, call->dev, call->stream));
        }
    }
    return SW_OK;
}

static bool goes_with(const struct gpu_line *line, const struct gpu_call *call,
                      enum sw_gpu_type type, const struct gpu_kin *kin)
{
    return line->n > 0 && line->type == type && line->scalars == call->scalars &&
           line->is_predicated == call->is_predicated && memcmp(&line->kin, kin, sizeof *kin) == 0;
}

static void remember(struct gpu_line *line, const struct touched *t)
{
    memcpy(line->written + line->n_written, t->written, (size_t)t->n_written * sizeof *t->written);
    memcpy(line->read + line->n_read, t->read, (size_t)t->n_read * sizeof *t->read);
    line->n_written += t->n_written;
    line->n_read += t->n_read;
}

/* An op that could join a line. */
struct entrant {
    enum gpu_line_kind kind;
    enum sw_gpu_type type;
    struct gpu_kin kin;
    bool is_small;
    int64_t n_blocks;
    struct touched touches;
};

/* Appends the op to a line, as the last item of *out. NULL: the op is not small, and the caller
 * launches it. Lines that must run before it are launched. */
static sw_status join_line(const struct gpu_call *call, const struct entrant *e,
                           struct gpu_line **out)
{
    *out = NULL;
    SW_TRY(clear_way(call, &e->touches));
    if (!e->is_small) {
        return SW_OK;
    }
    struct gpu_line *line = &call->batch->line[e->kind];
    if (line->n == kinds[e->kind].most || !goes_with(line, call, e->type, &e->kin)) {
        SW_TRY(launch_line(call->batch, e->kind, call->dev, call->stream));
    }
    line->kin = e->kin;
    line->type = e->type;
    line->scalars = call->scalars;
    line->is_predicated = call->is_predicated;
    remember(line, &e->touches);
    line->first_block = line->n_blocks;
    line->n_blocks += (int)e->n_blocks;
    line->n++;
    *out = line;
    return SW_OK;
}

/* True for one small dense stream; then sets its first used element and its type. */
static bool is_small(const struct gpu_streams *streams, int64_t n, int64_t most)
{
    return streams->n == 1 && !streams->stream[0].index && n <= most;
}

static struct gpu_dense dense_of(const struct gpu_streams *streams)
{
    const struct gpu_stream *s = &streams->stream[0];
    return (struct gpu_dense){(const char *)s->x + (size_t)s->first * bytes_of(s->type), s->type};
}

/* ---- sums over micro-batches ---- */

sw_status sw_gpu_batch_sum(const struct gpu_call *call, float *acc,
                           const struct gpu_streams *streams, int64_t n, bool *out_stands)
{
    struct entrant e = {.kind = GPU_LINE_SUM,
                        .type = SW_GPU_PLAIN,
                        .is_small = is_small(streams, n, SMALL_ELEMS),
                        .n_blocks = sw_ceil_div(n, GPU_UPDATE_BLOCK)};
    struct gpu_line *line;
    add_written(&e.touches, acc, n, sizeof *acc);
    add_streams(&e.touches, streams, n);
    SW_TRY(join_line(call, &e, &line));
    *out_stands = line != NULL;
    if (line) {
        struct gpu_accumulate_many_args *many = &line->args.sum;
        many->first = call->scalars + SW_SCALAR_FIRST;
        many->n = line->n;
        many->item[line->n - 1] =
            (struct gpu_accumulate_item){.acc = acc,
                                         .g = dense_of(streams),
                                         .n = n,
                                         .first_block = line->first_block,
                                         .continues = call->desc->op->attrs.stats.continues};
    }
    return SW_OK;
}

/* ---- updates ---- */

sw_status sw_gpu_batch_update(const struct gpu_call *call, enum sw_gpu_type type,
                              const struct gpu_update_args *args, bool *out_stands)
{
    struct entrant e = {.kind = GPU_LINE_UPDATE,
                        .type = type,
                        .kin = {.rule = args->rule},
                        .is_small = is_small(&args->streams, args->n, SMALL_ELEMS),
                        .n_blocks = sw_ceil_div(args->n, GPU_UPDATE_BLOCK)};
    struct gpu_line *line;
    add_param(&e.touches, &args->param, args->n, type);
    add_moments(&e.touches, &args->param, args->n);
    add_streams(&e.touches, &args->streams, args->n);
    SW_TRY(join_line(call, &e, &line));
    *out_stands = line != NULL;
    if (line) {
        struct gpu_update_many_args *many = &line->args.update;
        many->rule = args->rule;
        many->rates = args->rates;
        many->n = line->n;
        many->item[line->n - 1] = (struct gpu_update_item){.param = args->param,
                                                           .g = dense_of(&args->streams),
                                                           .n = args->n,
                                                           .first_block = line->first_block};
    }
    return SW_OK;
}

sw_status sw_gpu_batch_clear_coded(const struct gpu_call *call, enum sw_gpu_type type,
                                   const struct gpu_update_coded_args *args)
{
    struct touched t = {.n_written = 0};
    add_param(&t, &args->param, args->n, type);
    for (int k = 0; k < 2; k++) {
        add_written(&t, args->param.moment[k], args->n, sizeof(uint8_t));
        add_written(&t, args->scale[k], sw_ceil_div(args->n, GPU_CODE_RUN), sizeof(float));
    }
    add_streams(&t, &args->streams, args->n);
    return clear_way(call, &t);
}

/* ---- statistics ---- */

sw_status sw_gpu_batch_stats(const struct gpu_call *call, const struct gpu_grad_stats_args *args,
                             bool *out_stands)
{
    struct entrant e = {.kind = GPU_LINE_STATS,
                        .type = SW_GPU_PLAIN,
                        .kin = {.stats = args->stats, .overflow_skips = args->overflow_skips},
                        .is_small = is_small(&args->streams, args->n, SMALL_ELEMS),
                        .n_blocks = sw_ceil_div(args->n, GPU_STATS_BLOCK)};
    struct gpu_line *line;
    add_streams(&e.touches, &args->streams, args->n);
    SW_TRY(join_line(call, &e, &line));
    *out_stands = line != NULL;
    if (line) {
        struct gpu_grad_stats_many_args *many = &line->args.stats;
        many->overflow_factor = args->overflow_factor;
        many->stats = args->stats;
        many->overflow_skips = args->overflow_skips;
        many->n = line->n;
        many->item[line->n - 1] = (struct gpu_grad_stats_item){
            .g = dense_of(&args->streams), .n = args->n, .first_block = line->first_block};
    }
    return SW_OK;
}

/* ---- LAMB: the moments of a tensor, then its step by the resulting norms ---- */

static const struct gpu_range none = {NULL, NULL};

/* Drops earlier norms that another tensor's norms overwrite under the same skip flag: nothing reads
 * them. */
static void drop_norms(struct gpu_line *line, const struct gpu_call *call, const int64_t *norms)
{
    for (int i = 0; i < line->n; i++) {
        struct gpu_lamb_item *item = &line->args.lamb.item[i];
        if (item->norms == norms && line->scalars == call->scalars &&
            line->is_predicated == call->is_predicated) {
            item->norms = NULL;
            line->written[line->norms_at[i]] = none;
        }
    }
}

sw_status sw_gpu_batch_moments(const struct gpu_call *call, enum sw_gpu_type type,
                               const struct gpu_lamb_moments_args *args, bool *out_stands)
{
    struct entrant e = {.kind = GPU_LINE_LAMB,
                        .type = type,
                        .kin = {.rule = args->rule},
                        .is_small = args->n_counted == args->n &&
                                    is_small(&args->streams, args->n, SMALL_LAMB_ELEMS),
                        .n_blocks = 1};
    struct gpu_line *line;
    drop_norms(&call->batch->line[GPU_LINE_LAMB], call, args->norms);
    /* norms come first */
    add_written(&e.touches, args->norms, 2 * GPU_STATS_WORDS, sizeof *args->norms);
    add_param(&e.touches, &args->param, args->n, type); /* written by the step */
    add_moments(&e.touches, &args->param, args->n);
    add_streams(&e.touches, &args->streams, args->n);
    SW_TRY(join_line(call, &e, &line));
    *out_stands = line != NULL;
    if (line) {
        struct gpu_lamb_many_args *many = &line->args.lamb;
        many->rule = args->rule;
        many->rates = args->rates;
        many->item[line->n - 1] = (struct gpu_lamb_item){.param = args->param,
                                                         .g = dense_of(&args->streams),
                                                         .n = args->n,
                                                         .norms = args->norms};
        line->norms_at[line->n - 1] = line->n_written - e.touches.n_written;
    }
    return SW_OK;
}

static bool is_step_of(const struct gpu_lamb_item *item, const struct gpu_lamb_apply_args *args)
{
    return !item->ratio && item->norms == args->norms && item->n == args->n &&
           item->param.param == args->param.param && item->param.master == args->param.master &&
           item->param.moment[0] == args->param.moment[0] &&
           item->param.moment[1] == args->param.moment[1];
}

sw_status sw_gpu_batch_apply(const struct gpu_call *call, enum sw_gpu_type type,
                             const struct gpu_lamb_apply_args *args, bool *out_stands)
{
    struct gpu_line *line = &call->batch->line[GPU_LINE_LAMB];
    const struct gpu_kin kin = {.rule = args->rule};
    struct gpu_lamb_item *last = line->n > 0 ? &line->args.lamb.item[line->n - 1] : NULL;
    struct touched ratio = {.n_written = 0}, t;
    add_written(&ratio, args->ratio, 1, sizeof *args->ratio);
    t = ratio;
    add_param(&t, &args->param, args->n, type);
    add_read(&t, args->norms, 2 * GPU_STATS_WORDS, sizeof *args->norms);
    for (int k = 0; k < 2; k++) {
        add_read(&t, args->param.moment[k], args->n, sizeof(float));
    }
    *out_stands = last && goes_with(line, call, type, &kin) && is_step_of(last, args);
    for (int kind = 0; kind < GPU_N_LINES && *out_stands; kind++) {
        *out_stands = !meets(&call->batch->line[kind], &ratio);
    }
    if (!*out_stands) {
        return clear_way(call, &t);
    }
    last->ratio = args->ratio;
    remember(line, &ratio);
    return SW_OK;
}
