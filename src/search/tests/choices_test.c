// SPDX-License-Identifier: Apache-2.0
// The search of combinations of values: it ends at one that no change of one family improves, and
// tries nothing twice.
#include <string.h>

#include "search/search.h"
#include "support/test.h"

enum { FAMILIES = 3, VALUES = 5 };

/* A plan's time is a table of each family and one of pairs; some lack memory. */
struct world {
    int n_judged, n_twice;
    bool seen[VALUES][VALUES][VALUES];
    unsigned seed;
};

static double noise(const struct world *w, int a, int b, int c)
{
    uint32_t x = w->seed * 2654435761U + (uint32_t)(a * 25 + b * 5 + c) * 40503U;
    x ^= x >> 13;
    x *= 0x5bd1e995;
    x ^= x >> 15;
    return (double)(x % 1000) / 1000;
}

static double seconds_of(const struct world *w, const int *at)
{
    return 1 + noise(w, at[0], at[1], 0) + noise(w, at[1], at[2], 1) + noise(w, at[0], at[2], 2);
}

static bool fits(const int *at)
{
    return at[0] + at[2] < 7;
}

/* Value 4 of the second family needs value 0 of the third. */
static bool adapt(void *ctx, int family, struct sw_choice *choice)
{
    (void)ctx;
    if (choice->at[1] != 4 || choice->at[2] == 0) {
        return true;
    }
    choice->at[family == 2 ? 1 : 2] = 0;
    return true;
}

static sw_status judge(void *ctx, struct sw_choice_try *t)
{
    struct world *w = ctx;
    const int *at = t->choice.at;
    bool *seen = &w->seen[at[0]][at[1]][at[2]];
    w->n_judged++;
    w->n_twice += *seen;
    *seen = true;
    t->n_instrs = 1;
    t->result = fits(at) ? SW_MESH_FITS : SW_MESH_MISSES;
    t->missing = fits(at) ? 0 : (size_t)(at[0] + at[2]);
    t->seconds = seconds_of(w, at);
    return SW_OK;
}

static struct sw_choice_space space_of(struct world *w, const struct sw_choice *starts, int n)
{
    return (struct sw_choice_space){.n_families = FAMILIES,
                                    .n_values = {VALUES, VALUES, VALUES},
                                    .starts = starts,
                                    .n_starts = n,
                                    .most_instrs = 1000,
                                    .ctx = w,
                                    .adapt = adapt,
                                    .judge = judge};
}

static void no_change_of_one_family_improves_the_best(void **state)
{
    (void)state;
    static const struct sw_choice starts[] = {{{0, 0, 4}}, {{0, 1, 0}}};
    for (unsigned seed = 1; seed <= 40; seed++) {
        struct world w = {.seed = seed};
        const struct sw_choice_space space = space_of(&w, starts, 2);
        struct sw_choices found;
        assert_int_equal(sw_search_choices(&space, &found), SW_OK);
        assert_true(found.n_fit > 0 && found.n_fit <= found.n && found.n == w.n_judged);
        assert_int_equal(w.n_twice, 0);
        assert_false(found.is_cut);
        for (int i = 1; i < found.n_fit; i++) {
            assert_true(found.tries[i - 1].seconds <= found.tries[i].seconds);
        }
        for (int f = 1; f < FAMILIES; f++) {
            for (int v = 0; v < VALUES; v++) {
                const struct sw_choice_try *t = sw_choices_with(&space, &found, f, v);
                assert_non_null(t); /* all neighbours were tried */
                assert_int_equal(t->choice.at[f], v);
            }
        }
        for (int v = 0; v < VALUES; v++) {
            const struct sw_choice_try *t = sw_choices_with(&space, &found, 0, v);
            for (int i = 0; i < found.n && found.tries[i].result == SW_MESH_FITS; i++) {
                assert_true(found.tries[i].choice.at[0] != v ||
                            found.tries[i].seconds >= t->seconds);
            }
        }
        sw_free(found.tries);
    }
}

static void the_work_of_planning_bounds_the_search(void **state)
{
    (void)state;
    static const struct sw_choice start = {{0, 1, 0}};
    for (int most = 0; most < 30; most++) {
        struct world w = {.seed = 3};
        struct sw_choice_space space = space_of(&w, &start, 1);
        struct sw_choices found;
        space.most_instrs = most;
        assert_int_equal(sw_search_choices(&space, &found), SW_OK);
        assert_true(found.n <= most + 1 && found.n >= 1);
        assert_true(most > 20 || found.is_cut);
        sw_free(found.tries);
    }
}

static void what_never_fits_is_ordered_by_what_it_lacks(void **state)
{
    (void)state;
    static const struct sw_choice start = {{0, 1, 4}};
    struct world w = {.seed = 5};
    struct sw_choice_space space = space_of(&w, &start, 1);
    struct sw_choices found;
    space.n_values[2] = 1;
    sw_status st = sw_search_choices(&space, &found);
    assert_int_equal(st, SW_OK);
    bool any = false;
    for (int i = 1; i < found.n; i++) {
        const bool both = found.tries[i - 1].result == SW_MESH_MISSES;
        assert_true(!both || found.tries[i - 1].missing <= found.tries[i].missing);
        any |= both;
    }
    assert_true(any);
    sw_free(found.tries);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(no_change_of_one_family_improves_the_best),
    cmocka_unit_test(the_work_of_planning_bounds_the_search),
    cmocka_unit_test(what_never_fits_is_ordered_by_what_it_lacks),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
