// SPDX-License-Identifier: Apache-2.0
// The end of a step: accumulation over micro-batches, the norm of all gradients with its overflow
// check, clipping, and the update of every trained parameter (architecture 5a: each use of a parameter
// is summed over k by itself; at the boundary the streams are added in forward order).
#include <stdio.h>

#include "plan/plan.h"

/* Streams of one parameter, as the update reads them: the accumulators where K > 1. */
struct feed {
    sw_value param;
    sw_value streams[SW_OP_MAX_IN];
    int n;
};

static void accumulate(struct sw_graph *g, const struct sw_plan_options *options, struct feed *feed,
                       sw_value grad)
{
    const struct sw_value_info param = g->values[feed->param];
    if (feed->n == SW_OP_MAX_IN) {
        sw_graph_fail(g, SW_E_UNSUP, "%s is used more than %d times", param.name, SW_OP_MAX_IN);
        return;
    }
    if (options->micro_batches > 1) {
        char name[512];
        snprintf(name, sizeof name, "grad_acc.%d/%s", feed->n, param.name);
        const enum sw_dtype dtype = g->dtype == SW_F64 ? SW_F64 : SW_F32;
        const sw_value acc = sw_graph_state(g, name, dtype, param.shape, feed->param);
        const sw_value in[3] = {acc, grad, g->values[grad].sparse_index};
        g->phase = SW_PHASE_BACKWARD;
        const int32_t op = sw_graph_add_op(g, SW_OP_ACCUMULATE, in, in[2] >= 0 ? 3 : 2, NULL);
        grad = sw_graph_add_out_in_place(g, op, acc);
        g->phase = SW_PHASE_UPDATE;
    }
    feed->streams[feed->n++] = grad;
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
            if (options->keep_gradients) {
                keep(g, &g->streams[i], use);
            }
            use++;
            if (options->rule) {
                accumulate(g, options, feed, g->streams[i].grad);
            }
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
        const struct sw_attrs attrs = {.alpha = options->clip, .n = options->fp16};
        sw_graph_add_op(g, SW_OP_STATS_FINISH, &stats, 1, &attrs);
        for (int i = 0; i < n_feeds; i++) {
            sw_update_emit(g, options->rule, feeds[i].param, feeds[i].streams, feeds[i].n);
        }
    }
    sw_free(feeds);
    return sw_graph_status(g);
}
