// SPDX-License-Identifier: Apache-2.0
// The end of a step. Gradients are reduced over ranks to the owners of shards, and accumulated over
// micro-batches. Then come the norm of all gradients with its overflow check, clipping, and the
// update of every trained parameter. Each use of a parameter is accumulated separately; at the
// boundary the streams are added in forward order.
//
// If nothing depends on all gradients, a block may be updated within the step's last backward, as
// soon as its own backward is done (sw_updates_in_backward). Its parameters are on the device
// anyway, and its gradients are freed or leave at once. Offloaded states travel during the backward
// of earlier blocks.
//
// Under clipping, parameters that leave the device may be updated within the next forward instead
// (late_update.c). Their gradients are kept in states until then.
//
// If updates are written to a second slot (two_slots), nothing that counts changes before the last
// segment. An offloaded tensor has a second slot in its tier. A tensor on the device is updated in
// a copy, which the last segment copies into place. This needs no disk.
#include <stdlib.h>
#include <string.h>

#include "plan/private.h"
#include "plan/technique.h"

/* Streams of one parameter as the update reads them: accumulators if K > 1, shards on many
 * ranks. */
struct feed {
    sw_value param;
    sw_value streams[SW_MAX_INPUTS];
    int from[SW_MAX_INPUTS]; /* see struct sw_ir_stream; not 0 = the stream arrives later */
    enum sw_dtype wire;      /* dtype in which its gradients travel */
    int n;
    /* The streams as the next forward reads them, if the update runs there: persistent sums, or
     * where the gradient of the only micro-batch is kept; SW_NO_VALUE = the sum is a stream */
    sw_value kept[SW_MAX_INPUTS];
    struct sw_late_ops ops; /* its sums and its update */
    sw_value moved;         /* the updated value that is not in place yet; SW_NO_VALUE = none */
    /* LAMB of a tile: op of its moments, norms so far, and next tile of the same parameter to be
     * updated; NULL = last tile */
    int32_t moments;
    sw_value norms;
    struct feed *first_tile, *tile_before, *next_tile;
};

/* True if an update depends on norms of the whole parameter (LAMB). */
static bool updates_by_norms(const struct sw_plan_options *options)
{
    return sw_update_facts(options->rule->attrs.kind)->reach == SW_REACH_NORMS;
}

/* A gradient that is an input of the graph is there before any backward. */
static bool is_early(const struct sw_ir *ir, const struct sw_plan_options *options,
                     const struct feed *feed)
{
    return sw_updates_in_backward(options) && !sw_ir_is_shared(ir, feed->param) && feed->n > 0 &&
           ir->values[feed->streams[0]].producer >= 0 &&
           (!options->fp16 || sw_param_leaves(ir, options, feed->param));
}

/* True if the update runs within the next forward. Its gradients are kept until then. */
static bool is_late(const struct feed *feed)
{
    return feed->ops.before >= 0;
}

/* True if sums live from one micro-step to the next. */
static bool sums_stay(const struct sw_plan_options *options)
{
    return !sw_has_one_round(options) || sw_sums_before_reducing(options) ||
           !sw_updates_in_backward(options);
}

/* This rank's shard of a parameter. */
static struct sw_layout shard_of(const struct sw_ir *ir, const struct sw_plan_options *options,
                                 sw_value param)
{
    return sw_ir_shard_of(ir, param, sw_update_run(options->rule));
}

/* Gives v room for all shards. */
static void pad(struct sw_ir *ir, sw_value v, const struct sw_layout *shard)
{
    const struct sw_layout whole = sw_layout_gathered(shard);
    if (v >= 0) {
        sw_ir_set_layout(ir, v, &whole);
    }
}

/* The gradient as one dense tensor, padded to equal shards. */
static sw_value spread(struct sw_ir *ir, sw_value grad, const struct sw_layout *shard)
{
    const struct sw_ir_value info = ir->values[grad];
    if (info.sparse_index >= 0) {
        const sw_value in[2] = {grad, info.sparse_index};
        const int32_t op = sw_ir_add_op(ir, SW_OP_DENSIFY, in, 2, NULL);
        grad = sw_ir_add_out(ir, op, info.dtype, shard->whole);
    } else if (info.base >= 0 || info.form->layout.is_padded || info.role != SW_ROLE_GRAD) {
        /* a value that shares its bytes or lies in another one cannot be padded */
        const int32_t op = sw_ir_add_op(ir, SW_OP_CONTIGUOUS, &grad, 1, NULL);
        grad = sw_ir_add_out(ir, op, info.dtype, info.form->shape);
    }
    pad(ir, grad, shard);
    return grad;
}

static enum sw_dtype sum_dtype(const struct sw_ir *ir)
{
    return ir->dtype == SW_F64 ? SW_F64 : SW_F32;
}

static struct sw_shape sum_shape(const struct sw_ir *ir, const struct sw_plan_options *options,
                                 sw_value param, bool whole)
{
    const struct sw_layout shard = shard_of(ir, options, param);
    return whole ? ir->values[param].form->shape : SW_SHAPE(sw_layout_elems(&shard));
}

/* Makes `sum` a sum of gradients of the parameter: of all its elements, or of this rank's shard. */
static sw_value be_sum_of(struct sw_ir *ir, const struct sw_plan_options *options, sw_value param,
                          bool whole, sw_value sum)
{
    const struct sw_layout shard = shard_of(ir, options, param);
    if (sum >= 0) {
        ir->values[sum].param = param;
        if (!whole) {
            sw_ir_set_layout(ir, sum, &shard);
        }
    }
    return sum;
}

/* The accumulator for the micro-batches of one use. It belongs to the owner, or each rank has its
 * own (with its own elements). */
static sw_value accumulator(struct sw_ir *ir, const struct sw_plan_options *options,
                            const struct feed *feed)
{
    const sw_value param = feed->param;
    const enum sw_dtype dtype = sum_dtype(ir);
    const bool whole = sw_ir_spread(ir, param).size <= 1 || sw_sums_before_reducing(options);
    const struct sw_shape shape = sum_shape(ir, options, param, whole);
    /* a tile's sum leaves the device between micro-batches, too */
    const bool stays = sums_stay(options) || sw_ir_is_part(ir, param) || sw_ir_is_shared(ir, param);
    ir->next.phase = SW_PHASE_BACKWARD;
    const sw_value acc = stays ? sw_ir_param_state(ir, param, SW_STATE_SUM, feed->n, dtype, shape)
                               : sw_ir_new_value(ir, SW_ROLE_TRANSIENT, dtype, shape);
    ir->next.phase = SW_PHASE_UPDATE;
    return be_sum_of(ir, options, param, whole, acc);
}

/* True if the rows that may go to an owner are shorter than its shard. */
static bool travels_by_rows(const struct sw_ir *ir, const struct sw_plan_options *options,
                            sw_value acc, sw_value grad)
{
    const sw_value index = ir->values[grad].sparse_index;
    if (!(options->reduces & SW_REDUCES_ROWS) || ir->failure.status < 0 || index < 0 || acc < 0) {
        return false;
    }
    const struct sw_ir_op rows = {
        .move = SW_MOVE_REDUCE, .n_in = 4, .in = {acc, grad, grad, index}};
    struct sw_ir_op slices = rows;
    slices.n_in = 2;
    return sw_exchange_bytes(ir, &rows) < sw_exchange_bytes(ir, &slices);
}

/* Reduces each micro-batch's gradient to the owners of its shards at once. */
static sw_value reduce(struct sw_ir *ir, const struct sw_plan_options *options,
                       const struct feed *feed, sw_value acc, sw_value grad, bool more)
{
    const struct sw_layout shard = shard_of(ir, options, feed->param);
    const sw_value in[4] = {acc, spread(ir, grad, &shard), grad, ir->values[grad].sparse_index};
    const int n_in = travels_by_rows(ir, options, acc, grad) ? 4 : 2;
    const int32_t op =
        sw_ir_add_exchange(ir, SW_MOVE_REDUCE, sw_ir_spread_group(ir, feed->param), in, n_in);
    if (op >= 0) {
        ir->ops[op].exchange.continues = more;
    }
    return sw_ir_add_out_in_place(ir, op, acc);
}

/* Adds the gradient of a micro-batch to the sum of this rank, without an exchange; by rows if it is
 * sparse. */
static sw_value add_here(struct sw_ir *ir, sw_value acc, sw_value grad, bool more)
{
    const sw_value in[3] = {acc, grad, ir->values[grad].sparse_index};
    const struct sw_attrs attrs = {.stats = {.continues = more}};
    return sw_ir_add_out_in_place(
        ir, sw_ir_add_op(ir, SW_OP_ACCUMULATE, in, in[2] >= 0 ? 3 : 2, more ? &attrs : NULL), acc);
}

/* Stage 0: every rank updates the whole parameter, so the sums are gathered. */
static sw_value gather_sum(struct sw_ir *ir, sw_value param, sw_value sum)
{
    const struct sw_layout shard = ir->values[sum].form->layout;
    const int32_t op =
        sw_ir_add_exchange(ir, SW_MOVE_GATHER, sw_ir_spread_group(ir, param), &sum, 1);
    const sw_value whole = sw_ir_add_out(ir, op, SW_F32, shard.whole);
    pad(ir, whole, &shard);
    return whole;
}

/* This rank's shard of a parameter that is whole in memory. */
static sw_value slice_of(struct sw_ir *ir, const struct sw_plan_options *options, sw_value param)
{
    const struct sw_layout shard = shard_of(ir, options, param);
    const int64_t first = sw_layout_first(&shard);
    const struct sw_attrs attrs = {.view = {.kind = SW_VIEW_SLICE, .start = first}};
    const int32_t op = sw_ir_add_op(ir, SW_OP_VIEW, &param, 1, &attrs);
    const sw_value v =
        sw_ir_add_out(ir, op, ir->values[param].dtype, SW_SHAPE(sw_layout_elems(&shard)));
    if (v >= 0) {
        ir->values[v].base = param;
        ir->values[v].base_offset = first;
        sw_ir_set_layout(ir, v, &shard);
    }
    return v;
}

/* True if the parameter lies on the device and has one slot. */
static bool stays_here(const struct sw_ir *ir, const struct sw_plan_options *options,
                       sw_value param)
{
    return options->policy.params_tier == SW_TIER_DEVICE ||
           !sw_param_leaves(ir, options, sw_ir_root(ir, param));
}

/* Adds a contiguous copy of a parameter, or of its shard. */
static sw_value copy_of(struct sw_ir *ir, sw_value target)
{
    const struct sw_ir_value info = ir->values[target];
    const int32_t op = sw_ir_add_op(ir, SW_OP_CONTIGUOUS, &target, 1, NULL);
    const sw_value copy = sw_ir_add_out(ir, op, info.dtype, info.form->shape);
    if (copy >= 0) {
        sw_ir_set_layout(ir, copy, &info.form->layout);
        ir->values[copy].param = sw_ir_root(ir, target);
    }
    return copy;
}

/* Gives two slots to the parameter, and to optimizer states that the ops from `first` on read. */
static void write_beside(struct sw_ir *ir, int32_t first, sw_value param, bool late)
{
    for (int32_t i = first; i < ir->n_ops; i++) {
        for (int k = 0; k < ir->ops[i].n_in; k++) {
            const sw_value v = sw_ir_root(ir, ir->ops[i].in[k]);
            const bool writes =
                sw_state_is_optimizer(ir->values[v].state) || v == sw_ir_root(ir, param);
            if (writes) {
                ir->values[v].two_slots = late ? SW_SLOTS_LATE : SW_SLOTS_TWO;
            }
        }
    }
}

/* Copies an updated value to its parameter; everywhere: gathers a shard on all ranks. */
static void put(struct sw_ir *ir, sw_value moved, sw_value param, bool everywhere)
{
    const int32_t op = everywhere ? sw_ir_add_exchange(ir, SW_MOVE_GATHER,
                                                       sw_ir_spread_group(ir, param), &moved, 1)
                                  : sw_ir_add_op(ir, SW_OP_CONTIGUOUS, &moved, 1, NULL);
    if (op >= 0) {
        sw_ir_add_out_in_place(ir, op, param);
        ir->ops[op].unless_skipped = true;
    }
}

/* Updates one parameter, or the shard of it that this rank owns. */
static void update(struct sw_ir *ir, const struct sw_plan_options *options, struct feed *feed)
{
    const sw_value param = feed->param;
    const bool alone = sw_ir_spread(ir, param).size <= 1 || sw_ir_is_slice(&ir->values[param]);
    if (!alone && options->policy.stage == 0) {
        for (int i = 0; i < feed->n; i++) {
            feed->streams[i] = gather_sum(ir, param, feed->streams[i]);
        }
        sw_emit_update(ir, options, param, param, feed->streams, feed->n);
        return;
    }
    const bool waits = options->policy.two_slots && stays_here(ir, options, param);
    const sw_value own = alone ? param : slice_of(ir, options, param);
    const int32_t first = ir->n_ops;
    const sw_value target = waits && own >= 0 ? copy_of(ir, own) : own;
    const int32_t updates = ir->n_ops;
    const sw_value moved = target < 0
                               ? SW_NO_VALUE
                               : sw_emit_update(ir, options, param, target, feed->streams, feed->n);
    if (options->policy.two_slots) {
        write_beside(ir, waits ? updates : first, param, is_late(feed));
    }
    if (waits) {
        feed->moved = moved;
    } else if (!alone && moved >= 0) {
        put(ir, moved, param, true);
    }
}

static void commit_last(struct sw_ir *ir, const struct feed *feed)
{
    const int32_t first = ir->n_ops;
    const bool alone =
        sw_ir_spread(ir, feed->param).size <= 1 || sw_ir_is_slice(&ir->values[feed->param]);
    put(ir, feed->moved, feed->param, !alone);
    for (int32_t i = first; i < ir->n_ops; i++) {
        ir->ops[i].commits = true;
    }
}

static sw_value tiled_param(const struct sw_ir *ir, const struct feed *feed)
{
    return ir->values[feed->param].base;
}

/* feeds: in the order of their updates. false = out of memory */
static bool link_tiles(const struct sw_ir *ir, struct feed *feeds, int n_feeds)
{
    struct feed **last = sw_alloc_zero("plan", (size_t)ir->n_values + 1, sizeof *last);
    for (int i = 0; last && i < n_feeds; i++) {
        struct feed *feed = &feeds[i];
        if (!sw_ir_is_part(ir, feed->param)) {
            continue;
        }
        struct feed **before = &last[tiled_param(ir, feed)];
        feed->tile_before = *before;
        feed->first_tile = *before ? (*before)->first_tile : feed;
        if (*before) {
            (*before)->next_tile = feed;
        }
        *before = feed;
    }
    sw_free(last);
    return last != NULL;
}

/* LAMB of a tile: its norms are added to those of earlier tiles. After the last tile, all tiles of
 * the parameter are stepped. */
static void update_tile_by_norms(struct sw_ir *ir, const struct sw_plan_options *options,
                                 struct feed *feed)
{
    sw_value norms = feed->tile_before ? feed->tile_before->norms : SW_NO_VALUE;
    sw_value ratio = SW_NO_VALUE;
    feed->moments = sw_emit_lamb_moments(ir, options, feed->param, feed->streams, feed->n);
    feed->norms = norms = sw_emit_lamb_norms(ir, feed->moments, norms);
    if (feed->next_tile) {
        return;
    }
    norms = sw_emit_lamb_merge(ir, feed->moments, norms);
    for (const struct feed *f = feed->first_tile; f && ir->failure.status >= 0; f = f->next_tile) {
        ratio = sw_emit_lamb_step(ir, f->moments, norms, ratio);
    }
}

/* Updates a parameter, or a tile of one. Only LAMB handles tiles specially: its step depends on
 * norms of all tiles. */
static void emit_update(struct sw_ir *ir, const struct sw_plan_options *options, struct feed *feed)
{
    if (updates_by_norms(options) && sw_ir_is_part(ir, feed->param)) {
        update_tile_by_norms(ir, options, feed);
    } else {
        update(ir, options, feed);
    }
}

/* "reduce": "boundary": each rank sums its own micro-batches. The sums of each use travel once a
 * step, rounded to the dtype in which gradients travel. */
static sw_value reduce_sum(struct sw_ir *ir, const struct sw_plan_options *options,
                           const struct feed *feed, int i)
{
    const struct sw_ir_value param = ir->values[feed->param];
    const struct sw_layout shard = shard_of(ir, options, feed->param);
    sw_value sum = feed->streams[i];
    if (feed->wire != SW_F32) {
        sum = sw_ir_add_out(ir, sw_ir_add_op(ir, SW_OP_CAST, &sum, 1, NULL), feed->wire,
                            param.form->shape);
    }
    pad(ir, sum >= 0 ? sw_ir_root(ir, sum) : sum, &shard);
    const sw_value owned = sw_ir_param_state(ir, feed->param, SW_STATE_REDUCED_SUM, i, SW_F32,
                                             SW_SHAPE(sw_layout_elems(&shard)));
    if (owned >= 0) {
        sw_ir_set_layout(ir, owned, &shard);
    }
    const sw_value moved[2] = {owned, sum};
    const int32_t op = sw_ir_add_exchange(ir, SW_MOVE_REDUCE, SW_GROUP_DATA, moved, 2);
    if (op >= 0) {
        ir->ops[op].whole_step = true;
    }
    return sw_ir_add_out_in_place(ir, op, owned);
}

/* A stream that continues a use is added to the sum of earlier micro-batches. These are of this
 * rank (vertical schedule), or of others (experts). */
static void accumulate(struct sw_ir *ir, const struct sw_plan_options *options, struct feed *feed,
                       const struct sw_ir_stream *stream)
{
    if (ir->failure.status < 0) {
        return;
    }
    const bool is_new = stream->micro == 0 && !stream->continues;
    if (is_new && feed->n == SW_MAX_INPUTS) {
        sw_ir_fail(ir, SW_E_UNSUP, "%s is used more than %d times", ir->values[feed->param].name,
                   SW_MAX_INPUTS);
        return;
    }
    sw_value grad = stream->grad;
    feed->wire = ir->values[grad].dtype;
    if (stream->from > 0) {
        grad = SW_NO_VALUE;
    } else if (sw_ir_data(ir)->n > 1 || options->policy.micro_batches > 1 ||
               sw_ir_is_shared(ir, feed->param)) {
        const sw_value acc = is_new ? accumulator(ir, options, feed) : feed->streams[feed->n - 1];
        if (acc < 0) {
            return;
        }
        sw_ir_go_to_maker(ir, stream->grad, stream->micro);
        grad = sw_ir_spread(ir, feed->param).size > 1 && !sw_sums_before_reducing(options)
                   ? reduce(ir, options, feed, acc, grad, stream->continues)
                   : add_here(ir, acc, grad, stream->continues);
        ir->next = (struct sw_ir_next){.phase = SW_PHASE_UPDATE};
    }
    const bool keeps = is_late(feed) && grad == stream->grad;
    const sw_value kept =
        keeps ? sw_keep_gradient(ir, options, feed->param, feed->n, stream) : SW_NO_VALUE;
    feed->n += is_new;
    feed->kept[feed->n - 1] = kept;
    feed->streams[feed->n - 1] = grad;
    feed->from[feed->n - 1] = stream->from;
}

/* Completes the streams of a parameter that several stages have: each sends the sums of its own
 * uses to the others. */
static void exchange_sums(struct sw_ir *ir, const struct sw_plan_options *options,
                          struct feed *feed)
{
    const bool whole = sw_ir_spread(ir, feed->param).size <= 1;
    int n;
    const struct sw_ir_holder *holders = sw_ir_holders(ir, feed->param, &n);
    for (int i = 0; i < feed->n; i++) {
        for (int k = 0; k < n && feed->from[i] == 0; k++) {
            if (holders[k].stage != ir->groups[ir->params.pipe].me) {
                sw_ir_add_message(ir, SW_MOVE_SEND, holders[k].stage, feed->streams[i]);
            }
        }
    }
    for (int i = 0; i < feed->n && ir->failure.status >= 0; i++) {
        if (feed->from[i] > 0) {
            const int32_t op = sw_ir_add_message(ir, SW_MOVE_RECV, feed->from[i] - 1, SW_NO_VALUE);
            const struct sw_shape shape = sum_shape(ir, options, feed->param, whole);
            feed->streams[i] = be_sum_of(ir, options, feed->param, whole,
                                         sw_ir_add_out(ir, op, sum_dtype(ir), shape));
        }
    }
}

/* Adds the gradient streams of a parameter to the statistics. Returns their next version. counted:
 * elements that count, the first ones; 0 = all */
static sw_value add_stats(struct sw_ir *ir, const struct sw_plan_options *options, sw_value stats,
                          const struct feed *feed, int64_t counted)
{
    sw_value in[SW_MAX_INPUTS];
    int n_in = 0;
    in[n_in++] = stats;
    for (int i = 0; i < feed->n; i++) {
        const sw_value index = ir->values[feed->streams[i]].sparse_index;
        if (n_in + 2 > SW_MAX_INPUTS) {
            sw_ir_fail(ir, SW_E_UNSUP, "%s is used too often", ir->values[feed->param].name);
            return SW_NO_VALUE;
        }
        in[n_in++] = feed->streams[i];
        if (index >= 0) {
            in[n_in++] = index;
        }
    }
    const struct sw_attrs attrs = {.stats = {.overflow_skips = options->fp16, .counted = counted}};
    return sw_ir_add_out_in_place(ir, sw_ir_add_op(ir, SW_OP_GRAD_STATS, in, n_in, &attrs), stats);
}

static void keep(struct sw_ir *ir, const struct sw_ir_stream *stream, int use)
{
    sw_ir_param_output(ir, stream->param, SW_STATE_GRADIENT, use, stream->grad);
    sw_ir_param_output(ir, stream->param, SW_STATE_GRADIENT_INDEX, use,
                       ir->values[stream->grad].sparse_index);
}

static int by_ready(const void *a, const void *b)
{
    const struct feed *x = a, *y = b;
    if (x->ops.ready != y->ops.ready) {
        return x->ops.ready < y->ops.ready ? -1 : 1;
    }
    return (x->param > y->param) - (x->param < y->param);
}

/* Sums the streams of all trained parameters over micro-batches and ranks; returns the number of
 * feeds. */
static int sum_streams(struct sw_ir *ir, const struct sw_plan_options *options,
                       const struct sw_uses *known, struct feed *feeds)
{
    int n_feeds = 0;
    struct sw_late_share share = {.latest = SW_NO_VALUE};
    for (int32_t p = 0; p < ir->params.n; p++) {
        struct feed *feed = &feeds[n_feeds];
        const sw_value param = ir->params.at[p];
        const bool stays = stays_here(ir, options, param);
        *feed = (struct feed){.param = param,
                              .ops.sum_first = ir->n_ops,
                              .ops.before =
                                  stays ? -1 : sw_late_place(ir, options, known, &share, param),
                              .moved = SW_NO_VALUE};
        int use = 0;
        for (int32_t i = known->first_stream[feed->param]; i >= 0; i = known->next_stream[i]) {
            use += ir->streams[i].micro == 0;
            if (options->keep_gradients) {
                keep(ir, &ir->streams[i], use - 1);
            }
            if (options->rule) {
                accumulate(ir, options, feed, &ir->streams[i]);
            }
        }
        for (int i = 0; i < feed->n && sw_sums_before_reducing(options); i++) {
            feed->streams[i] =
                feed->from[i] > 0 ? feed->streams[i] : reduce_sum(ir, options, feed, i);
        }
        feed->ops.sum_end = ir->n_ops;
        if (feed->n > 0 && sw_norms_in_backward(options)) {
            /* a message of another stage may come after this one's last backward */
            feed->ops.ready = sw_ir_is_shared(ir, feed->param)
                                  ? INT32_MAX
                                  : sw_uses_ready(ir, known, feed->param);
        }
        n_feeds += feed->n > 0;
    }
    return n_feeds;
}

/* Adds to the statistics what counts on this rank of a parameter's gradient. Where ranks have parts
 * of some parameters, each of them has all of the others. Of ranks that hold the same, the first
 * counts. So does the first one of several stages. */
static sw_value add_counted(struct sw_ir *ir, const struct sw_plan_options *options, sw_value stats,
                            const struct feed *feed)
{
    int n;
    const struct sw_ir_holder *holders = sw_ir_holders(ir, feed->param, &n);
    if (n > 1 && holders[0].stage != ir->groups[ir->params.pipe].me) {
        return stats;
    }
    const int me = ir->params.is_cut ? ir->groups[ir->params.group].me : 0;
    const int64_t counted = sw_ir_counted(ir, feed->param, me);
    if (counted == INT64_MAX || ir->failure.status < 0) {
        return add_stats(ir, options, stats, feed, 0);
    }
    const int64_t here = counted - sw_ir_origin(ir, feed->param, feed->streams[0]);
    return here > 0 ? add_stats(ir, options, stats, feed, here) : stats;
}

/* Merges the statistics of the ranks along the axes; there may be one rank only. */
static sw_value merge_stats(struct sw_ir *ir, const struct sw_plan_options *options, unsigned axes,
                            sw_value stats)
{
    int group = SW_GROUP_DATA;
    if (sw_mesh_size(&options->mesh, axes) == 1) {
        return stats;
    }
    while (ir->groups[group].axes != axes) { /* with several ranks there is one */
        group++;
    }
    return sw_ir_add_out_in_place(ir, sw_ir_add_exchange(ir, SW_MOVE_MERGE, group, &stats, 1),
                                  stats);
}

/* Adds the update of the next forward, which reads the gradients that the step has left. */
static void update_late(struct sw_ir *ir, const struct sw_plan_options *options, struct feed *feed)
{
    for (int i = 0; i < feed->n; i++) {
        const sw_value kept = feed->kept[i] >= 0 ? feed->kept[i] : sw_ir_root(ir, feed->streams[i]);
        sw_sum_alternates(ir, kept);
        sw_sum_alternates(ir, ir->values[kept].sparse_index);
        feed->streams[i] = kept;
    }
    feed->ops.forward_first = ir->n_ops;
    update(ir, options, feed);
    feed->ops.forward_end = ir->n_ops;
}

/* Adds the statistics of all gradients, the updates, and the copies into place of parameters that
 * are still in use. */
static void update_all(struct sw_ir *ir, const struct sw_plan_options *options, struct feed *feeds,
                       int n_feeds)
{
    feeds[0].ops.update_first = ir->n_ops;
    sw_value stats = sw_ir_state(ir, "stats", SW_I64, SW_SHAPE(SW_STATS_WORDS));
    stats = sw_ir_add_out_in_place(ir, sw_ir_add_op(ir, SW_OP_STATS_RESET, &stats, 1, NULL), stats);
    for (int i = 0; i < n_feeds && ir->failure.status >= 0; i++) {
        feeds[i].ops.update_first = i == 0 ? feeds[0].ops.update_first : ir->n_ops;
        exchange_sums(ir, options, &feeds[i]);
        stats = add_counted(ir, options, stats, &feeds[i]);
        if (is_early(ir, options, &feeds[i])) {
            emit_update(ir, options, &feeds[i]);
        }
        feeds[i].ops.update_end = ir->n_ops;
    }
    stats = merge_stats(ir, options, sw_zero_axes(&options->mesh), stats);
    if (options->stage_blocks) { /* stages have the gradients of different parameters */
        stats = merge_stats(ir, options, 1U << SW_AXIS_PIPE, stats);
    }
    if (ir->params.is_cut) { /* of different parts */
        stats = merge_stats(ir, options, 1U << SW_AXIS_TENSOR, stats);
    }
    const struct sw_attrs attrs = {
        .stats = {.clip = options->clip, .overflow_skips = options->fp16}};
    sw_ir_add_op(ir, SW_OP_STATS_FINISH, &stats, 1, &attrs);
    for (int i = 0; i < n_feeds && ir->failure.status >= 0; i++) {
        if (is_late(&feeds[i])) {
            update_late(ir, options, &feeds[i]);
        } else if (!is_early(ir, options, &feeds[i])) {
            emit_update(ir, options, &feeds[i]);
        }
    }
    for (int i = 0; i < n_feeds && ir->failure.status >= 0; i++) {
        if (feeds[i].moved >= 0) {
            commit_last(ir, &feeds[i]);
        }
    }
}

/* early: sums and norms move, too */
static sw_status move_into_passes(struct sw_ir *ir, const struct feed *feeds, int n_feeds,
                                  int32_t n_before, bool early)
{
    struct sw_late_ops *late = sw_alloc("plan", ((size_t)n_feeds + 1) * sizeof *late);
    SW_TRY_ALLOC(late, "the update pass");
    for (int i = 0; i < n_feeds; i++) {
        late[i] = feeds[i].ops;
        if (!early) {
            late[i].sum_end = late[i].sum_first;
            late[i].update_end = late[i].update_first;
        }
    }
    const sw_status st = sw_move_into_backward(ir, late, n_feeds, n_before);
    sw_free(late);
    return st;
}

sw_status sw_pass_update(struct sw_ir *ir, const struct sw_plan_options *options)
{
    struct feed *feeds = sw_alloc_zero("plan", (size_t)ir->params.n + 1, sizeof *feeds);
    const int32_t n_before = ir->n_ops;
    struct sw_uses known = {0};
    if (!feeds || !sw_uses_open(ir, &known)) {
        sw_free(feeds);
        sw_uses_close(&known);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the update pass");
    }
    ir->next.phase = SW_PHASE_UPDATE;
    const int n_feeds = sum_streams(ir, options, &known, feeds);
    sw_uses_close(&known);
    if (sw_norms_in_backward(options)) {
        qsort(feeds, (size_t)n_feeds, sizeof *feeds, by_ready);
    }
    if (!link_tiles(ir, feeds, n_feeds)) {
        sw_free(feeds);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the update pass");
    }
    if (options->rule && ir->failure.status >= 0) {
        update_all(ir, options, feeds, n_feeds);
    }
    sw_status st = sw_ir_status(ir);
    const bool early = sw_norms_in_backward(options);
    if (st >= 0 && (early || sw_updates_in_forward(options))) {
        st = move_into_passes(ir, feeds, n_feeds, n_before, early);
    }
    sw_free(feeds);
    return st;
}

/* ---- the technique: updates in the step's last backward ---- */

static sw_status run(struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int i = 0; i < plan->n_programs; i++) {
        if (plan->programs[i].kind == SW_PROGRAM_TRAIN) {
            SW_TRY(sw_pass_update(plan->programs[i].ir, options));
        }
    }
    const bool trains = plan->programs[0].kind == SW_PROGRAM_TRAIN;
    plan->update.norms_in_backward = trains && sw_norms_in_backward(options);
    plan->update.in_backward = trains && sw_updates_in_backward(options);
    plan->update.in_forward = trains && sw_updates_in_forward(options);
    return SW_OK;
}

const struct sw_technique sw_technique_early_update = {
    .keys = "gradient_clipping",
    .run = run,
};
