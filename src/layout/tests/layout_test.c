// SPDX-License-Identifier: Apache-2.0
// Tests random layouts on meshes with all three axes. Every element has one owner, ranks hold what
// the runs say, and tensors can be moved from any layout to any other.
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"
#include "support/test.h"

enum { ROUNDS = 400, MOST_ELEMS = 4096 };

static uint64_t state_of_chance;

static int64_t chance(int64_t n) /* random number in 0 .. n - 1 */
{
    state_of_chance =
        state_of_chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(state_of_chance >> 33) % n;
}

struct spread { /* one tensor on a mesh */
    struct sw_mesh mesh;
    struct sw_layout layout; /* before coordinates are set */
    int owner;               /* stage on the pipeline axis; -1 = every stage has it */
};

static struct sw_shape any_shape(void)
{
    struct sw_shape shape = {.rank = (int)chance(4)};
    for (int d = 0; d < shape.rank; d++) {
        shape.dims[d] = chance(5) == 0 ? chance(3) : 1 + chance(15);
    }
    return shape;
}

static struct sw_tensor_split any_split(const struct sw_shape *shape)
{
    struct sw_tensor_split split = {0};
    if (shape->rank == 0 || chance(3) == 0) {
        return split;
    }
    split.dim = (int)chance(shape->rank);
    split.unit = chance(4);
    int64_t left = shape->dims[split.dim];
    if (left == 0) {
        return (struct sw_tensor_split){0};
    }
    for (int64_t n = 2; n <= left && chance(2); n++) { /* groups that repeat */
        left = left % n == 0 ? left / n : left;
    }
    while (left > 0) {
        const bool is_last = split.n_groups == SW_SPLIT_MAX_GROUPS - 1;
        const int64_t n = is_last ? left : 1 + chance(left);
        split.group[split.n_groups++] = n;
        left -= n;
    }
    return split;
}

static struct spread any_spread(const struct sw_shape *shape, const struct sw_tensor_split *split)
{
    struct spread s = {.layout = {.whole = *shape, .split = *split}};
    for (int a = 0; a < SW_AXIS_COUNT; a++) {
        const bool copies = a == SW_AXIS_EXPERT || a == SW_AXIS_CONTEXT;
        s.mesh.size[a] = 1 + (int)chance(copies ? 2 : 4);
    }
    s.owner = chance(2) ? (int)chance(s.mesh.size[SW_AXIS_PIPE]) : -1;
    s.layout.is_sliced = chance(3) > 0;
    s.layout.run = chance(3) == 0 ? 1 + chance(5) * SW_SQUARES_RUN : 0;
    s.layout.tile_elems = chance(2) ? SW_SQUARES_RUN * (1 + chance(6)) : 0;
    return s;
}

/* The layout of one rank. If every pipeline stage has the tensor, they are copies. */
static struct sw_layout of_rank(const struct spread *s, int rank)
{
    const unsigned cut =
        1U << SW_AXIS_DATA | 1U << SW_AXIS_TENSOR | (s->owner >= 0 ? 1U << SW_AXIS_PIPE : 0);
    int place[SW_AXIS_COUNT];
    struct sw_layout layout = s->layout;
    sw_mesh_place(&s->mesh, rank, place);
    layout.tensor = (struct sw_coord){place[SW_AXIS_TENSOR], s->mesh.size[SW_AXIS_TENSOR]};
    layout.data = (struct sw_coord){place[SW_AXIS_DATA], s->mesh.size[SW_AXIS_DATA]};
    layout.is_absent = s->owner >= 0 && place[SW_AXIS_PIPE] != s->owner;
    layout.copy = sw_mesh_coord(&s->mesh, SW_ALL_AXES & ~cut, rank);
    return layout;
}

static void held_runs_are_disjoint_and_found(const struct sw_layout *layout)
{
    struct sw_run_iter iter;
    struct sw_run run, before = {0};
    int64_t held = 0;
    bool any = false;
    sw_runs_begin(layout, &iter);
    while (sw_runs_next(&iter, &run)) {
        assert_true(run.n > 0 && run.here >= 0 && run.first >= 0);
        assert_true(run.first + run.n <= sw_shape_elems(&layout->whole));
        assert_true(run.here + run.n <= sw_layout_elems(layout));
        assert_true(!any || run.here >= before.here + before.n);
        for (int64_t k = 0; k < run.n; k++) {
            struct sw_run found;
            assert_true(sw_layout_find(layout, run.first + k, &found));
            assert_int_equal(found.here, run.here + k);
            assert_int_equal(found.first, run.first + k);
            assert_int_equal(found.n, run.n - k);
        }
        held += run.n;
        before = run;
        any = true;
    }
    if (sw_shape_elems(&layout->whole) > 0) { /* for a range of elements, compared with `find` */
        const int64_t first = chance(sw_shape_elems(&layout->whole));
        const int64_t n = chance(sw_shape_elems(&layout->whole) - first + 1);
        int64_t n_within = 0;
        sw_runs_begin_within(layout, first, n, &iter);
        while (sw_runs_next(&iter, &run)) {
            struct sw_run found;
            assert_true(run.first >= first && run.first + run.n <= first + n);
            assert_true(sw_layout_find(layout, run.first, &found));
            assert_int_equal(found.here, run.here);
            n_within += run.n;
        }
        for (int64_t e = first; e < first + n; e++) {
            struct sw_run found;
            n_within -= sw_layout_find(layout, e, &found);
        }
        assert_int_equal(n_within, 0);
    }
    int64_t n_found = 0;
    for (int64_t e = 0; e < sw_shape_elems(&layout->whole); e++) {
        struct sw_run found;
        n_found += sw_layout_find(layout, e, &found);
    }
    assert_int_equal(n_found, held);
}

static void every_element_is_owned_once(void **state)
{
    (void)state;
    int n_split = 0, n_tiled = 0, n_shared = 0;
    for (int round = 0; round < ROUNDS; round++) {
        state_of_chance = (uint64_t)round;
        const struct sw_shape shape = any_shape();
        const struct sw_tensor_split split = any_split(&shape);
        const struct spread s = any_spread(&shape, &split);
        const int64_t elems = sw_shape_elems(&shape);
        int *owners = calloc((size_t)elems + 1, sizeof *owners);
        for (int rank = 0; rank < sw_mesh_ranks(&s.mesh); rank++) {
            const struct sw_layout layout = of_rank(&s, rank);
            struct sw_run_iter iter;
            struct sw_run run, found;
            held_runs_are_disjoint_and_found(&layout);
            sw_owned_begin(&layout, &iter);
            while (sw_runs_next(&iter, &run)) {
                /* an owned run is held, too */
                assert_true(sw_layout_find(&layout, run.first, &found));
                assert_int_equal(found.here, run.here);
                assert_true(run.n <= found.n);
                for (int64_t k = 0; k < run.n; k++) {
                    owners[run.first + k]++;
                }
            }
        }
        for (int64_t e = 0; e < elems; e++) {
            assert_int_equal(owners[e], 1);
        }
        free(owners);
        const struct sw_layout first = of_rank(&s, 0);
        n_split += split.n_groups > 1 && first.tensor.size > 1;
        for (int n = 2; n <= first.tensor.size; n++) {
            n_shared += sw_layout_shares(&first, n);
        }
        n_tiled += s.layout.tile_elems > 0 && s.layout.is_sliced;
    }
    assert_true(n_split > 20 && n_tiled > 20 && n_shared > 20);
}

/* Four ranks; a split of n elements in units of `unit`. */
static struct sw_layout split_over_four(int64_t n, int64_t unit, int rank)
{
    return (struct sw_layout){.whole = SW_SHAPE(n, 3),
                              .split = {.n_groups = 1, .group = {n}, .unit = unit},
                              .tensor = {rank, 4}};
}

static void words_are_padded_and_few_heads_are_shared(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        const struct sw_layout words = split_over_four(13, 0, rank);
        const struct sw_layout heads = split_over_four(10, 5, rank);
        struct sw_run_iter iter;
        struct sw_run run;
        assert_int_equal(sw_layout_part(&words).dims[0], 4);
        assert_int_equal(sw_layout_elems(&words), 12);
        assert_int_equal(sw_layout_held(&words), rank < 3 ? 12 : 3);
        assert_int_equal(sw_layout_part(&heads).dims[0], 5);
        sw_runs_begin(&heads, &iter);
        assert_true(sw_runs_next(&iter, &run));
        assert_int_equal(run.first, rank / 2 * 15);
        assert_int_equal(run.n, 15);
        sw_owned_begin(&heads, &iter); /* of two ranks with the same head, the first one owns it */
        assert_int_equal(sw_runs_next(&iter, &run), rank % 2 == 0);
    }
}

/* The contents on all ranks, by rank. Each element is its index in the whole; padding is -1. */
static int64_t **fill(const struct spread *s)
{
    const int n = sw_mesh_ranks(&s->mesh);
    int64_t **held = calloc((size_t)n, sizeof *held);
    for (int rank = 0; rank < n; rank++) {
        const struct sw_layout layout = of_rank(s, rank);
        const int64_t elems = sw_layout_elems(&layout);
        struct sw_run_iter iter;
        struct sw_run run;
        held[rank] = malloc(((size_t)elems + 1) * sizeof **held);
        memset(held[rank], 0xff, ((size_t)elems + 1) * sizeof **held);
        sw_runs_begin(&layout, &iter);
        while (sw_runs_next(&iter, &run)) {
            for (int64_t k = 0; k < run.n; k++) {
                held[rank][run.here + k] = run.first + k;
            }
        }
    }
    return held;
}

static void clear(const struct spread *s, int64_t **held)
{
    for (int rank = 0; rank < sw_mesh_ranks(&s->mesh); rank++) {
        free(held[rank]);
    }
    free(held);
}

/* Ranks of one layout save boxes, as for a checkpoint, and ranks of another layout load them. */
static void any_layout_loads_what_any_other_saved(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        state_of_chance = (uint64_t)round + 1000;
        const struct sw_shape shape = any_shape();
        const struct sw_tensor_split split = any_split(&shape);
        const struct spread from = any_spread(&shape, &split), to = any_spread(&shape, &split);
        const int64_t elems = sw_shape_elems(&shape);
        int64_t *file = malloc(((size_t)elems + 1) * sizeof *file);
        memset(file, 0xff, ((size_t)elems + 1) * sizeof *file);
        int64_t **held = fill(&from);
        for (int rank = 0; rank < sw_mesh_ranks(&from.mesh); rank++) {
            const struct sw_layout layout = of_rank(&from, rank);
            struct sw_run_iter iter;
            struct sw_run run;
            sw_owned_begin(&layout, &iter);
            while (sw_runs_next(&iter, &run)) {
                struct sw_box boxes[SW_BOX_MAX_OF_RANGE];
                const int n = sw_box_of_range(&shape, run.first, run.n, boxes);
                int64_t covered = 0;
                for (int b = 0; b < n; b++) {
                    assert_true(sw_box_inside(&shape, &boxes[b]));
                    covered += sw_box_elems(shape.rank, &boxes[b]);
                }
                assert_int_equal(covered, run.n);
                memcpy(file + run.first, held[rank] + run.here, (size_t)run.n * sizeof *file);
            }
        }
        clear(&from, held);
        for (int64_t e = 0; e < elems; e++) {
            assert_int_equal(file[e], e);
        }
        held = fill(&to);
        for (int rank = 0; rank < sw_mesh_ranks(&to.mesh); rank++) {
            const struct sw_layout layout = of_rank(&to, rank);
            struct sw_run_iter iter;
            struct sw_run run;
            sw_runs_begin(&layout, &iter);
            while (sw_runs_next(&iter, &run)) {
                assert_memory_equal(held[rank] + run.here, file + run.first,
                                    (size_t)run.n * sizeof *file);
            }
        }
        clear(&to, held);
        free(file);
    }
}

/* [4, 12] as q, k and v, each with two heads of width 2, on two ranks: head 0 of each, then head 1
 * of each. */
static void heads_stay_together(void **state)
{
    (void)state;
    struct sw_layout layout = {.whole = SW_SHAPE(2, 12),
                               .split = {.dim = 1, .n_groups = 3, .group = {4, 4, 4}, .unit = 2},
                               .tensor = {1, 2}};
    const struct sw_run wanted[] = {{0, 2, 2},  {2, 6, 2},  {4, 10, 2},
                                    {6, 14, 2}, {8, 18, 2}, {10, 22, 2}};
    struct sw_run_iter iter;
    struct sw_run run;
    sw_runs_begin(&layout, &iter);
    for (size_t i = 0; i < SW_LEN(wanted); i++) {
        assert_true(sw_runs_next(&iter, &run));
        assert_memory_equal(&run, &wanted[i], sizeof run);
    }
    assert_false(sw_runs_next(&iter, &run));
    layout.tensor.size = 3; /* with two heads on three ranks, one rank has none */
    layout.tensor.rank = 2;
    assert_int_equal(sw_layout_elems(&layout), 0);
    sw_runs_begin(&layout, &iter);
    assert_false(sw_runs_next(&iter, &run));
}

/* Four query heads and two key heads of width 2, with one of each kind of value on four ranks: each
 * rank has a query head, and its key and value with another rank, of which the first owns them. */
static void packed_heads_share_keys(void **state)
{
    static const struct {
        struct sw_tensor_split split;
        int64_t first[3]; /* of rank 3 */
    } forms[] = {
        {{.n_groups = 3, .group = {8, 4, 4}, .unit = 2}, {6, 10, 14}}, /* q, k and v */
        {{.n_groups = 3, .group = {4, 2, 2}, .unit = 2}, {10, 12, 14}} /* by key head */
    };
    (void)state;
    for (size_t f = 0; f < SW_LEN(forms); f++) {
        struct sw_layout layout = {
            .whole = SW_SHAPE(16, 3), .split = forms[f].split, .tensor = {3, 4}};
        struct sw_run_iter iter;
        struct sw_run run;
        int64_t n = 0;
        for (int g = 0; g < 3; g++) {
            for (int64_t e = 0; e < 2 * 3; e++) {
                assert_true(sw_layout_find(&layout, 3 * forms[f].first[g] + e, &run));
                assert_int_equal(run.here, 6 * g + e);
            }
        }
        assert_int_equal(sw_layout_held(&layout), 18);
        assert_int_equal(sw_layout_parts(&layout), 4);
        assert_true(sw_layout_shares(&layout, 2) && !sw_layout_shares(&layout, 4));
        assert_int_equal(sw_layout_counted(&layout), 6);
        sw_owned_begin(&layout, &iter);
        while (sw_runs_next(&iter, &run)) {
            assert_true(run.here + run.n <= 6);
            n += run.n;
        }
        assert_int_equal(n, 6);
        layout.tensor.rank = 2;
        assert_int_equal(sw_layout_counted(&layout), 18);
        layout.tensor = (struct sw_coord){1, 2}; /* whole heads of each kind */
        assert_int_equal(sw_layout_counted(&layout), 24);
        assert_int_equal(sw_layout_parts(&layout), 2);
        assert_false(sw_layout_shares(&layout, 2));
    }
}

/* A shard begins where its runs say, ranks hold each element once, the gathered tensor has room for
 * all shards, and an element for each n of a tensor is where these n are. */
static void layouts_made_of_others_agree_with_their_runs(void **state)
{
    (void)state;
    state_of_chance = 7;
    for (int i = 0; i < ROUNDS; i++) {
        const struct sw_shape shape = any_shape();
        const int64_t elems = sw_shape_elems(&shape), n = 1 + chance(4);
        const int ranks = 1 + (int)chance(5);
        const int64_t run = n * SW_SQUARES_RUN * (1 + chance(3));
        const struct sw_layout whole = sw_layout_of_whole(&shape);
        int64_t held = 0;
        for (int r = 0; r < ranks; r++) {
            const struct sw_layout shard =
                sw_layout_sharded(&whole, (struct sw_coord){r, ranks}, run);
            const struct sw_layout gathered = sw_layout_gathered(&shard);
            const struct sw_layout per = sw_layout_per(&shard, n);
            struct sw_run_iter iter;
            struct sw_run piece;
            sw_runs_begin(&shard, &iter);
            if (sw_runs_next(&iter, &piece)) {
                assert_int_equal(piece.first, sw_layout_first(&shard));
                assert_int_equal(piece.n, sw_layout_held(&shard));
            } else {
                assert_int_equal(sw_layout_held(&shard), 0);
                assert_true(sw_layout_first(&shard) >= elems);
            }
            held += sw_layout_held(&shard);
            if (ranks > 1) {
                assert_int_equal(sw_layout_elems(&gathered), ranks * sw_layout_elems(&shard));
                assert_int_equal(sw_layout_elems(&per) * n, sw_layout_elems(&shard));
                assert_int_equal(sw_layout_first(&per) * n, sw_layout_first(&shard));
            }
            assert_int_equal(sw_layout_held(&per), sw_ceil_div(sw_layout_held(&shard), n));
            assert_true(sw_layout_equal(&shard, &shard));
            assert_false(sw_layout_equal(&shard, &gathered));
            assert_true(r == 0 || elems == 0 || sw_layout_first(&shard) > 0);
        }
        assert_int_equal(held, elems);
    }
}

/* Each tile of a sharded tensor lies after the shards of the tiles before it. */
static void tiles_are_found_by_where_they_lie(void **state)
{
    (void)state;
    state_of_chance = 11;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t tile = SW_SQUARES_RUN * (1 + chance(6)), tiles = 1 + chance(5);
        const struct sw_shape shape = SW_SHAPE(tiles * tile);
        const int ranks = 1 + (int)chance(4);
        struct sw_layout layout = sw_layout_of_whole(&shape);
        layout.tile_elems = tile;
        layout = sw_layout_sharded(&layout, (struct sw_coord){(int)chance(ranks), ranks}, 0);
        const int64_t shard = sw_layout_tile_shard(&layout);
        assert_int_equal(shard * tiles, sw_layout_elems(&layout));
        for (int64_t t = 0; t < tiles; t++) {
            assert_int_equal(sw_layout_tile_first(&layout, t * shard), t * tile);
        }
    }
}

/* Runs of n elements are counted in each part, and ranks with one part have the same ones. */
static void runs_of_parts_follow_one_another(void **state)
{
    (void)state;
    state_of_chance = 11;
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t n = 1 + chance(5);
        const int ranks = 2 << chance(2), units = 1 << chance(4);
        struct sw_layout layout = {.whole = SW_SHAPE(1 + chance(4), units * (1 + chance(3))),
                                   .split = {.dim = 1, .n_groups = 1},
                                   .tensor.size = ranks};
        layout.split.unit = chance(2) ? layout.whole.dims[1] / units : 0;
        layout.split.group[0] = layout.whole.dims[1];
        const int64_t part_units = layout.split.unit > 0 ? units : layout.whole.dims[1];
        if (layout.split.unit > 0 && units > ranks && units % ranks != 0) {
            continue; /* parts of one shape only */
        }
        int64_t next = 0;
        for (int r = 0; r < ranks; r++) {
            struct sw_run_iter iter;
            struct sw_run run;
            layout.tensor.rank = r;
            const struct sw_layout per = sw_layout_per(&layout, n);
            const struct sw_shape part = sw_layout_part(&layout);
            sw_runs_begin(&per, &iter);
            assert_true(sw_runs_next(&iter, &run));
            assert_int_equal(run.n, sw_ceil_div(sw_shape_elems(&part), n));
            const int share = (int)sw_max_i64(
                1, part_units < ranks && ranks % part_units == 0 ? ranks / part_units : 1);
            next = r % share == 0 && r > 0 ? next + run.n : next;
            assert_int_equal(run.first, next);
            assert_false(sw_runs_next(&iter, &run));
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_element_is_owned_once),
    cmocka_unit_test(words_are_padded_and_few_heads_are_shared),
    cmocka_unit_test(any_layout_loads_what_any_other_saved),
    cmocka_unit_test(heads_stay_together),
    cmocka_unit_test(packed_heads_share_keys),
    cmocka_unit_test(layouts_made_of_others_agree_with_their_runs),
    cmocka_unit_test(runs_of_parts_follow_one_another),
    cmocka_unit_test(tiles_are_found_by_where_they_lie),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
