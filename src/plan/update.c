// SPDX-License-Identifier: Apache-2.0
// The end of a step: reduction over ranks to the owners of slices, accumulation over micro-batches, the norm of all gradients with its overflow
// check, clipping, and the update of every trained parameter (architecture 5a: each use of a parameter
// is summed over k by itself; at the boundary the streams are added in forward order).
#include <stdio.h>

#include "plan/plan.h"

/* Streams of one parameter, as the update reads them: accumulators where K > 1, slices on many ranks. */
struct feed {
    sw_value param;
    sw_value streams[SW_OP_MAX_IN];
    enum sw_dtype wire; /* what its gradients travel as */
    int n;
};

static int64_t slice_elems(const struct sw_graph *g, const struct sw_plan_options *options,
                           sw_value param)
{
    const struct sw_value_info *info = &g->values[param];
    return sw_value_is_slice(info) ? info->shape.dims[0]
                                   : sw_shard_elems(sw_shape_elems(&info->shape), options->ranks);
}

static struct sw_shape whole_shape(const struct sw_value_info *info)
{
    return sw_value_is_slice(info) ? info->whole : info->shape;
}

/* The gradient as one dense tensor with the padding of equal slices. */
static sw_value spread(struct sw_graph *g, sw_value param, sw_value grad, int64_t padded)
{
    const struct sw_value_info info = g->values[grad];
    if (info.sparse_index >= 0) {
        const sw_value in[2] = {grad, info.sparse_index};
        const int32_t op = sw_graph_add_op(g, SW_OP_DENSIFY, in, 2, NULL);
        grad = sw_graph_add_out(g, op, info.dtype, whole_shape(&g->values[param]));
    } else if (info.base >= 0 || info.padded_elems > 0 || info.role != SW_ROLE_GRAD) {
        /* bytes that others share or that lie inside another value cannot grow */
        const int32_t op = sw_graph_add_op(g, SW_OP_CONTIGUOUS, &grad, 1, NULL);
        grad = sw_graph_add_out(g, op, info.dtype, info.shape);
    }
    if (grad >= 0) {
        g->values[grad].padded_elems = padded;
    }
    return grad;
}

/* Where the micro-batches of one use are added up: by its owner, or by each rank (its elements) for itself. */
static sw_value accumulator(struct sw_graph *g, const struct sw_plan_options *options,
                            const struct feed *feed)
{
    char name[512];
    const struct sw_value_info param = g->values[feed->param];
    const enum sw_dtype dtype = g->dtype == SW_F64 ? SW_F64 : SW_F32;
    snprintf(name, sizeof name, "grad_acc.%d/%s", feed->n, param.name);
    if (options->ranks <= 1 || sw_sums_before_reducing(options)) {
        return sw_graph_state(g, name, dtype, param.shape, feed->param);
    }
    const int64_t slice = slice_elems(g, options, feed->param);
    const sw_value acc = sw_graph_state(g, name, SW_F32, SW_SHAPE(slice), feed->param);
    if (acc >= 0) {
        g->values[acc].whole = whole_shape(&param);
        g->values[acc].first = slice * options->rank;
    }
    return acc;
}

/* Each micro-batch's gradient goes to the owners of its slices at once. */
static sw_value reduce(struct sw_graph *g, const struct sw_plan_options *options,
                       const struct feed *feed, sw_value acc, sw_value grad)
{
    const int64_t slice = slice_elems(g, options, feed->param);
    const sw_value in[2] = {acc, spread(g, feed->param, grad, slice * options->ranks)};
    return sw_graph_add_out_in_place(g, sw_graph_add_op(g, SW_OP_REDUCE, in, 2, NULL), acc);
}

static sw_value add_here(struct sw_graph *g, sw_value acc, sw_value grad)
{
    const sw_value in[3] = {acc, grad, g->values[grad].sparse_index};
    return sw_graph_add_out_in_place(
        g, sw_graph_add_op(g, SW_OP_ACCUMULATE, in, in[2] >= 0 ? 3 : 2, NULL), acc);
}

/* Stage 0: every rank updates all of it, so the sums go back to all. */
static sw_value gather_sum(struct sw_graph *g, const struct sw_plan_options *options, sw_value sum,
                           struct sw_shape shape)
{
    const int64_t slice = sw_shape_elems(&g->values[sum].shape);
    const int32_t op = sw_graph_add_op(g, SW_OP_GATHER, &sum, 1, NULL);
    const sw_value whole = sw_graph_add_out(g, op, SW_F32, shape);
    if (whole >= 0) {
        g->values[whole].padded_elems = slice * options->ranks;
    }
    return whole;
}

/* This rank's slice of a parameter that is whole in memory. */
static sw_value slice_of(struct sw_graph *g, const struct sw_plan_options *options, sw_value param)
{
    const int64_t slice = slice_elems(g, options, param);
    const struct sw_attrs attrs = {.view = SW_VIEW_SLICE, .n = slice * options->rank};
    const int32_t op = sw_graph_add_op(g, SW_OP_VIEW, &param, 1, &attrs);
    const sw_value v = sw_graph_add_out(g, op, g->values[param].dtype, SW_SHAPE(slice));
    if (v >= 0) {
        struct sw_value_info *info = &g->values[v];
        info->base = param;
        info->base_offset = slice * options->rank;
        info->whole = g->values[param].shape;
        info->first = slice * options->rank;
    }
    return v;
}

/* The update of one parameter; on many ranks of the slice that this one owns. */
static void update(struct sw_graph *g, const struct sw_plan_options *options, struct feed *feed)
{
    const sw_value param = feed->param;
    if (options->ranks <= 1 || sw_value_is_slice(&g->values[param])) {
        sw_update_emit(g, options->rule, param, param, feed->streams, feed->n);
        return;
    }
    if (options->stage == 0) {
        for (int i = 0; i < feed->n; i++) {
            feed->streams[i] = gather_sum(g, options, feed->streams[i], g->values[param].shape);
        }
        sw_update_emit(g, options->rule, param, param, feed->streams, feed->n);
        return;
    }
    const sw_value moved = sw_update_emit(g, options->rule, param, slice_of(g, options, param),
                                          feed->streams, feed->n);
    const int32_t op = sw_graph_add_op(g, SW_OP_GATHER, &moved, 1, NULL);
    if (op >= 0) {
        sw_graph_add_out_in_place(g, op, param);
        g->ops[op].unless_skipped = true;
    }
}

/* "reduce": "boundary" (architecture 5a): each rank adds its own micro-batches, and the sums of use i travel once a
 * step, rounded to what gradients travel as. */
static sw_value reduce_sum(struct sw_graph *g, const struct sw_plan_options *options,
                           const struct feed *feed, int i)
{
    char name[512];
    const struct sw_value_info param = g->values[feed->param];
    const int64_t slice = slice_elems(g, options, feed->param);
    sw_value sum = feed->streams[i];
    if (feed->wire == SW_F32) {
        g->values[sw_graph_root(g, sum)].padded_elems = slice * options->ranks;
    } else {
        sum = sw_graph_add_out(g, sw_graph_add_op(g, SW_OP_CAST, &sum, 1, NULL), feed->wire,
                               param.shape);
        if (sum >= 0) {
            g->values[sum].padded_elems = slice * options->ranks;
        }
    }
    snprintf(name, sizeof name, "grad_sum.%d/%s", i, param.name);
    const sw_value owned = sw_graph_state(g, name, SW_F32, SW_SHAPE(slice), feed->param);
    if (owned >= 0) {
        g->values[owned].whole = param.shape;
        g->values[owned].first = slice * options->rank;
    }
    const sw_value moved[2] = {owned, sum};
    const struct sw_attrs attrs = {.n = 1};
    return sw_graph_add_out_in_place(g, sw_graph_add_op(g, SW_OP_REDUCE, moved, 2, &attrs), owned);
}

bool sw_sums_before_reducing(const struct sw_plan_options *options)
{
    return options->boundary && options->ranks > 1 && options->micro_batches > options->ranks;
}

/* A stream that continues a use (vertical schedule) goes onto the sum of the micro-batches before it. */
static void accumulate(struct sw_graph *g, const struct sw_plan_options *options, struct feed *feed,
                       const struct sw_stream *stream)
{
    if (stream->micro == 0 && feed->n == SW_OP_MAX_IN) {
        sw_graph_fail(g, SW_E_UNSUP, "%s is used more than %d times", g->values[feed->param].name,
                      SW_OP_MAX_IN);
        return;
    }
    sw_value grad = stream->grad;
    feed->wire = g->values[grad].dtype;
    if (options->ranks > 1 || options->micro_batches > 1) {
        const sw_value acc =
            stream->micro > 0 ? feed->streams[feed->n - 1] : accumulator(g, options, feed);
        if (acc < 0) {
            return;
        }
        g->phase = SW_PHASE_BACKWARD;
        g->micro = stream->micro;
        grad = options->ranks > 1 && !sw_sums_before_reducing(options)
                   ? reduce(g, options, feed, acc, grad)
                   : add_here(g, acc, grad);
        g->phase = SW_PHASE_UPDATE;
        g->micro = 0;
    }
    feed->n += stream->micro == 0;
    feed->streams[feed->n - 1] = grad;
}

static sw_value add_stats(struct sw_graph *g, const struct sw_plan_options *options, sw_value stats,
                          const struct feed *feed)
{
    sw_value in[SW_OP_MAX_IN];
    int n_in = 0;
    in[n_in++] = stats;
    for (int i = 0; i < feed->n; i++) {
        const sw_value index = g->values[feed->streams[i]].sparse_index;
        if (n_in + 2 > SW_OP_MAX_IN) {
            sw_graph_fail(g, SW_E_UNSUP, "%s is used too often", g->values[feed->param].name);
            return SW_NO_VALUE;
        }
        in[n_in++] = feed->streams[i];
        if (index >= 0) {
            in[n_in++] = index;
        }
    }
    const struct sw_attrs attrs = {.n = options->fp16};
    return sw_graph_add_out_in_place(g, sw_graph_add_op(g, SW_OP_GRAD_STATS, in, n_in, &attrs),
                                     stats);
}

static void keep(struct sw_graph *g, const struct sw_stream *stream, int use)
{
    char name[512];
    snprintf(name, sizeof name, "grad.%d/%s", use, g->values[stream->param].name);
    sw_output(g, name, stream->grad);
    const sw_value index = g->values[stream->grad].sparse_index;
    if (index >= 0) {
        snprintf(name, sizeof name, "grad_index.%d/%s", use, g->values[stream->param].name);
        sw_output(g, name, index);
    }
}

sw_status sw_pass_update(struct sw_graph *g, const struct sw_plan_options *options)
{
    struct feed *feeds = sw_alloc_zero("plan", (size_t)g->n_params + 1, sizeof *feeds);
    SW_TRY_ALLOC(feeds, "the update pass");
    g->phase = SW_PHASE_UPDATE;
    int n_feeds = 0;
    for (int32_t p = 0; p < g->n_params; p++) {
        struct feed *feed = &feeds[n_feeds];
        *feed = (struct feed){.param = g->params[p]};
        int use = 0;
        for (int32_t i = 0; i < g->n_streams; i++) {
            if (g->streams[i].param != feed->param) {
                continue;
            }
            use += g->streams[i].micro == 0;
            if (options->keep_gradients) {
                keep(g, &g->streams[i], use - 1);
            }
            if (options->rule) {
                accumulate(g, options, feed, &g->streams[i]);
            }
        }
        for (int i = 0; i < feed->n && sw_sums_before_reducing(options); i++) {
            feed->streams[i] = reduce_sum(g, options, feed, i);
        }
        n_feeds += feed->n > 0;
    }
    if (options->rule) {
        sw_value stats = sw_graph_state(g, "stats", SW_I64, SW_SHAPE(SW_STATS_WORDS), SW_NO_VALUE);
        stats = sw_graph_add_out_in_place(g, sw_graph_add_op(g, SW_OP_STATS_RESET, &stats, 1, NULL),
                                          stats);
        for (int i = 0; i < n_feeds; i++) {
            stats = add_stats(g, options, stats, &feeds[i]);
        }
        if (options->ranks > 1) {
            stats = sw_graph_add_out_in_place(
                g, sw_graph_add_op(g, SW_OP_STATS_MERGE, &stats, 1, NULL), stats);
        }
        const struct sw_attrs attrs = {.alpha = options->clip, .n = options->fp16};
        sw_graph_add_op(g, SW_OP_STATS_FINISH, &stats, 1, &attrs);
        for (int i = 0; i < n_feeds; i++) {
            update(g, options, &feeds[i]);
        }
    }
    sw_free(feeds);
    return sw_graph_status(g);
}
