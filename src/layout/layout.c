// SPDX-License-Identifier: Apache-2.0
// Maps elements of the whole tensor to elements that one rank holds, and back. The core is to find
// where an element of the tensor-axis part lies in the whole, and how long a run stays contiguous
// there.
#include <string.h>

#include "layout/layout.h"

/* ---- the tensor axis ---- */

struct span { /* a range along the split dimension; the part has room for `room` steps */
    int64_t start, n, room;
};

static bool is_split(const struct sw_layout *layout)
{
    return layout->split.n_groups > 0 && layout->tensor.size > 1;
}

int sw_split_sharing(const struct sw_tensor_split *split, int ranks)
{
    const int64_t units = sw_ceil_div(split->group[0], sw_max_i64(split->unit, 1));
    return split->n_groups == 1 && units > 0 && units < ranks && ranks % units == 0
               ? ranks / (int)units
               : 1;
}

static int sharing(const struct sw_layout *layout)
{
    return sw_split_sharing(&layout->split, layout->tensor.size);
}

/* This rank's share of a group. Ranks have equally many units; only the last ones may have fewer.
 * If a unit is 0, these have room for as many. */
static struct span share_of(const struct sw_layout *layout, int group)
{
    const int64_t n = layout->split.group[group];
    const int64_t unit = sw_max_i64(layout->split.unit, 1);
    const int share = sharing(layout), parts = layout->tensor.size / share;
    const int64_t each = sw_ceil_div(sw_ceil_div(n, unit), parts) * unit;
    const int64_t start = sw_min_i64(each * (layout->tensor.rank / share), n);
    const int64_t held = sw_min_i64(each, n - start);
    return (struct span){start, held, layout->split.unit == 0 ? each : held};
}

struct sw_shape sw_layout_part(const struct sw_layout *layout)
{
    struct sw_shape part = layout->whole;
    if (is_split(layout)) {
        part.dims[layout->split.dim] = 0;
        for (int g = 0; g < layout->split.n_groups; g++) {
            part.dims[layout->split.dim] += share_of(layout, g).room;
        }
    }
    return part;
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

/* Index in the whole of element `at` of the part, -1 = padding; out_n: elements from there on that
 * are contiguous in both, or padding. */
static int64_t to_whole(const struct sw_run_iter *iter, int64_t at, int64_t *out_n)
{
    const struct sw_layout *layout = iter->layout;
    if (!is_split(layout)) {
        *out_n = iter->part_elems - at;
        return at;
    }
    const int dim = layout->split.dim;
    const int64_t inner = inner_elems(layout), row = iter->part.dims[dim] * inner;
    const int64_t rest = at % row, step = rest / inner;
    int64_t here = 0, there = 0; /* start of a group in the part, and in the whole */
    int g = 0;
    struct span share = share_of(layout, 0);
    while (step >= here + share.room) {
        here += share.room;
        there += layout->split.group[g];
        share = share_of(layout, ++g);
    }
    if (step >= here + share.n) {
        *out_n = (here + share.room) * inner - rest;
        return -1;
    }
    *out_n = (here + share.n) * inner - rest;
    const int64_t index = there + share.start + step - here;
    return (at / row * layout->whole.dims[dim] + index) * inner + rest % inner;
}

/* The inverse; -1 = another rank has it. */
static int64_t to_part(const struct sw_run_iter *iter, int64_t element)
{
    const struct sw_layout *layout = iter->layout;
    if (!is_split(layout)) {
        return element;
    }
    const int dim = layout->split.dim;
    const int64_t inner = inner_elems(layout), row = layout->whole.dims[dim] * inner;
    const int64_t rest = element % row, index = rest / inner;
    int64_t here = 0, there = 0;
    for (int g = 0; g < layout->split.n_groups; g++) {
        const struct span share = share_of(layout, g);
        const int64_t step = index - there - share.start;
        if (step >= 0 && step < share.n) {
            return (element / row * iter->part.dims[dim] + here + step) * inner + rest % inner;
        }
        here += share.room;
        there += layout->split.group[g];
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
    const int64_t parts = is_split(layout) ? layout->tensor.size / sharing(layout) : 1;
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
    const int copies = is_split(layout) ? sharing(layout) : (int)sw_max_i64(layout->tensor.size, 1);
    if (layout->is_absent ||
        (is_owned && (layout->copy.rank > 0 || layout->tensor.rank % copies > 0))) {
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
        if (run.first < 0) { /* padding */
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
