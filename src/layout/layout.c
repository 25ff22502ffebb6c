// SPDX-License-Identifier: Apache-2.0
// Maps elements of the whole tensor to elements that one rank holds, and back. The core is to find
// where an element of the tensor-axis part lies in the whole, and how long a run stays contiguous
// there.
#include <string.h>

#include "layout/layout.h"

/* ---- the tensor axis ---- */

/* The share that this rank has of a group, along the split dimension. */
struct span {
    int64_t start, n, room; /* in the whole; the part has room for `room` steps */
    bool is_first;          /* no earlier rank holds it */
};

static bool is_split(const struct sw_layout *layout)
{
    return layout->split.n_groups > 0 && layout->tensor.size > 1;
}

static int64_t length_of(const struct sw_layout *layout)
{
    return layout->whole.dims[layout->split.dim];
}

static struct sw_tensor_split split_of(const struct sw_layout *layout)
{
    return sw_split_over(&layout->split, length_of(layout), layout->tensor.size);
}

/* Number of ranks that divide the groups of a repeat, and so each group. */
static int dividers(const struct sw_layout *layout, const struct sw_tensor_split *split)
{
    return layout->tensor.size / (int)sw_split_repeats(split, length_of(layout));
}

/* Ranks have equally many units; only the last ones may have fewer. If a unit is 0, these have room
 * for as many. */
static struct span span_of(const struct sw_layout *layout, const struct sw_tensor_split *split,
                           int group)
{
    const int64_t n = split->group[group], unit = sw_max_i64(split->unit, 1);
    const int ranks = dividers(layout, split), me = layout->tensor.rank % ranks;
    const int share = sw_split_sharing(split, group, ranks), parts = ranks / share;
    const int64_t each = sw_ceil_div(sw_ceil_div(n, unit), parts) * unit;
    const int64_t start = sw_min_i64(each * (me / share), n);
    const int64_t held = sw_min_i64(each, n - start);
    int64_t first =
        layout->tensor.rank / ranks * (length_of(layout) / (layout->tensor.size / ranks));
    for (int g = 0; g < group; g++) {
        first += split->group[g];
    }
    return (struct span){first + start, held, split->unit == 0 ? each : held, me % share == 0};
}

struct sw_shape sw_layout_part(const struct sw_layout *layout)
{
    struct sw_shape part = layout->whole;
    if (is_split(layout)) {
        const struct sw_tensor_split split = split_of(layout);
        part.dims[split.dim] = 0;
        for (int g = 0; g < split.n_groups; g++) {
            part.dims[split.dim] += span_of(layout, &split, g).room;
        }
    }
    return part;
}

int sw_layout_parts(const struct sw_layout *layout)
{
    int64_t common = layout->tensor.size;
    if (!is_split(layout)) {
        return 1;
    }
    const struct sw_tensor_split split = split_of(layout);
    for (int g = 0; g < split.n_groups; g++) {
        common = sw_common_divisor(common, sw_split_sharing(&split, g, dividers(layout, &split)));
    }
    return layout->tensor.size / (int)common;
}

bool sw_layout_shares(const struct sw_layout *layout, int n)
{
    const struct sw_tensor_split split = is_split(layout) ? split_of(layout) : layout->split;
    bool shares = false;
    for (int g = 0; g < split.n_groups && is_split(layout); g++) {
        shares = shares || sw_split_sharing(&split, g, dividers(layout, &split)) == n;
    }
    return shares;
}

/* Number of elements per step along the split dimension. */
static int64_t inner_elems(const struct sw_layout *layout)
{
    int64_t n = 1;
    for (int d = layout->split.dim + 1; d < layout->whole.rank; d++) {
        n *= layout->whole.dims[d];
    }
    return n;
}

int64_t sw_layout_counted(const struct sw_layout *layout)
{
    const struct sw_shape part = sw_layout_part(layout);
    int64_t steps = 0;
    if (!is_split(layout)) {
        return layout->tensor.rank == 0 ? sw_shape_elems(&part) : 0;
    }
    const struct sw_tensor_split split = split_of(layout);
    int g = 0;
    for (; g < split.n_groups && span_of(layout, &split, g).is_first; g++) {
        steps += span_of(layout, &split, g).room;
    }
    if (g == split.n_groups) {
        return sw_shape_elems(&part);
    }
    SW_ASSERT(g == 0 || split.dim == 0);
    return steps * inner_elems(layout);
}

/* Index in the whole of element `at` of the part, -1 = padding, or another rank owns it; out_n:
 * elements from there on that are contiguous in both, or for which it is -1. */
static int64_t to_whole(const struct sw_run_iter *iter, int64_t at, int64_t *out_n)
{
    const struct sw_layout *layout = iter->layout;
    if (!is_split(layout)) {
        *out_n = iter->part_elems - at;
        return at;
    }
    const struct sw_tensor_split split = split_of(layout);
    const int64_t inner = inner_elems(layout), row = iter->part.dims[split.dim] * inner;
    const int64_t rest = at % row, step = rest / inner;
    int64_t here = 0; /* start of a group in the part */
    int g = 0;
    struct span span = span_of(layout, &split, 0);
    while (step >= here + span.room) {
        here += span.room;
        span = span_of(layout, &split, ++g);
    }
    if (step >= here + span.n || (iter->is_owned && !span.is_first)) {
        *out_n = (here + span.room) * inner - rest;
        return -1;
    }
    *out_n = (here + span.n) * inner - rest;
    return (at / row * length_of(layout) + span.start + step - here) * inner + rest % inner;
}

/* The inverse; -1 = another rank has it. */
static int64_t to_part(const struct sw_run_iter *iter, int64_t element)
{
    const struct sw_layout *layout = iter->layout;
    if (!is_split(layout)) {
        return element;
    }
    const struct sw_tensor_split split = split_of(layout);
    const int64_t inner = inner_elems(layout), row = length_of(layout) * inner;
    const int64_t rest = element % row, index = rest / inner;
    int64_t here = 0;
    for (int g = 0; g < split.n_groups; g++) {
        const struct span span = span_of(layout, &split, g);
        const int64_t step = index - span.start;
        if (step >= 0 && step < span.n) {
            return (element / row * iter->part.dims[split.dim] + here + step) * inner +
                   rest % inner;
        }
        here += span.room;
    }
    return -1;
}

/* ---- tiles and shards ---- */

int64_t sw_slice_elems(int64_t elems, int ranks, int64_t run)
{
    return sw_ceil_div(sw_ceil_div(elems, run), ranks) * run;
}

/* Shard length if the part or tile has `elems` elements. */
static int64_t slice_elems(const struct sw_layout *layout, int64_t elems)
{
    return sw_slice_elems(elems, layout->data.size, layout->run > 0 ? layout->run : SW_SQUARES_RUN);
}

static bool is_sliced(const struct sw_layout *layout)
{
    return layout->is_sliced && layout->data.size > 1;
}

/* Elements per tile. The whole part is one tile unless it is sharded tile by tile. At least 1,
 * since positions in the part are divided by it. */
static int64_t tile_elems(const struct sw_run_iter *iter)
{
    const struct sw_layout *layout = iter->layout;
    return is_sliced(layout) && layout->tile_elems > 0 ? layout->tile_elems
                                                       : sw_max_i64(iter->part_elems, 1);
}

int64_t sw_layout_elems(const struct sw_layout *layout)
{
    const struct sw_shape part = sw_layout_part(layout);
    const int64_t elems = sw_shape_elems(&part);
    if (layout->is_absent) {
        return 0;
    }
    if (layout->is_padded && layout->data.size > 1) {
        return slice_elems(layout, elems) * layout->data.size;
    }
    if (!is_sliced(layout)) {
        return elems;
    }
    const int64_t tile = layout->tile_elems > 0 ? layout->tile_elems : elems;
    const int64_t n_whole = tile > 0 ? elems / tile : 0;
    return n_whole * slice_elems(layout, tile) + slice_elems(layout, elems - n_whole * tile);
}

int64_t sw_layout_held(const struct sw_layout *layout)
{
    struct sw_run_iter iter;
    struct sw_run run;
    int64_t n = 0;
    sw_runs_begin(layout, &iter);
    while (sw_runs_next(&iter, &run)) {
        n += run.n;
    }
    return n;
}

int64_t sw_layout_tile_shard(const struct sw_layout *layout)
{
    const struct sw_shape part = sw_layout_part(layout);
    const int64_t elems = layout->tile_elems > 0 ? layout->tile_elems : sw_shape_elems(&part);
    return is_sliced(layout) ? slice_elems(layout, elems) : elems;
}

int64_t sw_layout_first(const struct sw_layout *layout)
{
    return is_sliced(layout) ? sw_layout_tile_shard(layout) * layout->data.rank : 0;
}

int64_t sw_layout_tile_first(const struct sw_layout *layout, int64_t here)
{
    return is_sliced(layout) ? here / sw_layout_tile_shard(layout) * layout->tile_elems : here;
}

/* ---- layouts made of others ---- */

struct sw_layout sw_layout_of_whole(const struct sw_shape *shape)
{
    return (struct sw_layout){.whole = *shape};
}

struct sw_layout sw_layout_sharded(const struct sw_layout *layout, struct sw_coord data,
                                   int64_t run)
{
    struct sw_layout out = *layout;
    out.data = data;
    out.run = run;
    out.is_sliced = true;
    out.is_padded = false;
    return out;
}

struct sw_layout sw_layout_gathered(const struct sw_layout *layout)
{
    struct sw_layout out = *layout;
    out.is_padded = true;
    out.is_sliced = false;
    return out;
}

struct sw_layout sw_layout_per(const struct sw_layout *layout, int64_t n)
{
    struct sw_layout out = *layout;
    const struct sw_shape part = sw_layout_part(layout);
    const int64_t here = sw_ceil_div(sw_shape_elems(&part), n);
    const int64_t parts = sw_layout_parts(layout);
    out.whole = SW_SHAPE(here * parts);
    out.split = (struct sw_tensor_split){0};
    if (is_split(layout)) {
        out.split.n_groups = 1;
        out.split.unit = here;
        out.split.group[0] = here * parts;
    }
    out.tile_elems = sw_ceil_div(layout->tile_elems, n);
    out.run = sw_ceil_div(layout->run, n);
    return out;
}

/* ---- comparing ---- */

bool sw_layout_equal(const struct sw_layout *a, const struct sw_layout *b)
{
    return sw_shape_equal(&a->whole, &b->whole) && a->split.dim == b->split.dim &&
           a->split.n_groups == b->split.n_groups && a->split.unit == b->split.unit &&
           memcmp(a->split.group, b->split.group, sizeof a->split.group) == 0 &&
           a->tensor.rank == b->tensor.rank && a->tensor.size == b->tensor.size &&
           a->data.rank == b->data.rank && a->data.size == b->data.size &&
           a->copy.rank == b->copy.rank && a->copy.size == b->copy.size &&
           a->is_absent == b->is_absent && a->is_sliced == b->is_sliced &&
           a->is_padded == b->is_padded && a->tile_elems == b->tile_elems && a->run == b->run;
}

/* The split along the tensor axis and the copies are left out, since they rarely differ if the rest
 * is equal. */
uint64_t sw_layout_hash(uint64_t h, const struct sw_layout *layout)
{
    const int64_t words[] = {layout->whole.rank, layout->tensor.rank, layout->data.rank,
                             layout->data.size,  layout->is_absent,   layout->is_sliced,
                             layout->is_padded,  layout->tile_elems,  layout->run};
    for (int d = 0; d < layout->whole.rank; d++) {
        h = sw_hash_word(h, layout->whole.dims[d]);
    }
    for (size_t i = 0; i < SW_LEN(words); i++) {
        h = sw_hash_word(h, words[i]);
    }
    return h;
}

/* Enters a tile: sets the range of it that this rank holds or owns. */
static void enter(struct sw_run_iter *iter, int64_t tile)
{
    const struct sw_layout *layout = iter->layout;
    const int64_t most = tile_elems(iter), begin = tile * most;
    const int64_t elems = sw_min_i64(most, iter->part_elems - begin);
    const bool sliced = is_sliced(layout);
    iter->tile = tile;
    iter->at = begin;
    iter->end = begin + elems;
    if (sliced || (iter->is_owned && layout->data.size > 1)) {
        const int64_t slice = slice_elems(layout, elems);
        const int64_t from = sw_min_i64(slice * layout->data.rank, elems);
        iter->at = begin + from;
        iter->end = iter->at + sw_min_i64(slice, elems - from);
    }
    iter->here = sliced ? tile * slice_elems(layout, most) : iter->at;
}

static void begin(const struct sw_layout *layout, bool is_owned, struct sw_run_iter *iter)
{
    *iter = (struct sw_run_iter){.layout = layout, .is_owned = is_owned, .to = INT64_MAX};
    const bool is_whole = !is_split(layout);
    if (layout->is_absent ||
        (is_owned && (layout->copy.rank > 0 || (is_whole && layout->tensor.rank > 0)))) {
        return; /* there are no runs */
    }
    iter->part = sw_layout_part(layout);
    iter->part_elems = sw_shape_elems(&iter->part);
    if (iter->part_elems > 0) {
        enter(iter, 0);
    }
}

void sw_runs_begin(const struct sw_layout *layout, struct sw_run_iter *iter)
{
    begin(layout, false, iter);
}

void sw_owned_begin(const struct sw_layout *layout, struct sw_run_iter *iter)
{
    begin(layout, true, iter);
}

void sw_owned_begin_within(const struct sw_layout *layout, int64_t first, int64_t n,
                           struct sw_run_iter *iter)
{
    begin(layout, true, iter);
    iter->from = first;
    iter->to = first + n;
}

void sw_runs_begin_within(const struct sw_layout *layout, int64_t first, int64_t n,
                          struct sw_run_iter *iter)
{
    begin(layout, false, iter);
    iter->from = first;
    iter->to = first + n;
    if (iter->part_elems > 0 && !is_split(layout)) {
        /* without a tensor split, tiles are in order */
        enter(iter, sw_min_i64(first, iter->part_elems - 1) / tile_elems(iter));
    }
}

static bool next(struct sw_run_iter *iter, struct sw_run *out)
{
    struct sw_run run = {.first = -1};
    int64_t n = 0;
    while (run.first < 0) {
        while (iter->at == iter->end) {
            if ((iter->tile + 1) * tile_elems(iter) >= iter->part_elems) {
                return false;
            }
            enter(iter, iter->tile + 1);
        }
        run = (struct sw_run){.here = iter->here, .first = to_whole(iter, iter->at, &n)};
        if (run.first < 0) { /* padding, or another rank's */
            n = sw_min_i64(n, iter->end - iter->at);
            iter->at += n;
            iter->here += n;
        }
    }
    do {
        n = sw_min_i64(n, iter->end - iter->at);
        run.n += n;
        iter->at += n;
        iter->here += n;
    } while (iter->at < iter->end && to_whole(iter, iter->at, &n) == run.first + run.n);
    *out = run;
    return true;
}

bool sw_runs_next(struct sw_run_iter *iter, struct sw_run *out)
{
    struct sw_run run;
    while (next(iter, &run)) {
        const int64_t from = sw_max_i64(run.first, iter->from);
        const int64_t to = sw_min_i64(run.first + run.n, iter->to);
        if (from < to) {
            *out = (struct sw_run){run.here + from - run.first, from, to - from};
            return true;
        }
        if (run.first >= iter->to && !is_split(iter->layout)) {
            return false;
        }
    }
    return false;
}

bool sw_layout_find(const struct sw_layout *layout, int64_t first, struct sw_run *out)
{
    struct sw_run_iter iter;
    sw_runs_begin(layout, &iter);
    const int64_t at = iter.part_elems > 0 ? to_part(&iter, first) : -1;
    if (at < 0) {
        return false;
    }
    enter(&iter, at / tile_elems(&iter));
    if (at < iter.at || at >= iter.end) {
        return false;
    }
    iter.here += at - iter.at;
    iter.at = at;
    return sw_runs_next(&iter, out);
}
