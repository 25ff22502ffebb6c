// SPDX-License-Identifier: Apache-2.0
// The choice of a mesh that is "auto", with plans that a function makes up: the fastest mesh that
// fits wins, meshes that cut sums come last, and ties are broken by name.
#include <string.h>

#include "search/search.h"
#include "support/test.h"

enum { MOST = 64, NEVER = 1 << 30 };

/* A world of made-up plans. */
struct world {
    double (*seconds)(const struct sw_mesh *mesh);
    size_t (*missing)(const struct sw_mesh *mesh); /* 0 = it fits */
    bool (*refused)(const struct sw_mesh *mesh);
    int64_t n_instrs; /* of a plan */
    struct sw_mesh asked[MOST];
    int n_asked;
    double bound; /* the share of the time that is known at first; 0 = all of it */
    bool (*misses_later)(const struct sw_mesh *mesh); /* when all stages are planned */
    int n_measured;
};

static int along(const struct sw_mesh *mesh, enum sw_axis axis)
{
    return sw_mesh_size(mesh, 1U << axis);
}

static int cut_of(const struct sw_mesh *mesh)
{
    return along(mesh, SW_AXIS_TENSOR) * along(mesh, SW_AXIS_CONTEXT);
}

static sw_status judge(void *ctx, struct sw_mesh_try *t)
{
    struct world *w = ctx;
    assert_true(w->n_asked < MOST);
    w->asked[w->n_asked++] = t->mesh;
    t->n_instrs = w->n_instrs;
    t->missing = w->missing ? w->missing(&t->mesh) : 0;
    t->tier = SW_TIER_HOST;
    if (w->refused && w->refused(&t->mesh)) {
        t->result = SW_MESH_REFUSED;
        snprintf(t->refused, sizeof t->refused, "made up");
    } else if (t->missing > 0) {
        t->result = SW_MESH_MISSES;
    } else {
        t->seconds = w->seconds(&t->mesh) * (w->bound > 0 ? w->bound : 1);
        t->is_bound = w->bound > 0;
        t->samples = 4;
    }
    return SW_OK;
}

static sw_status measure(void *ctx, struct sw_mesh_try *t)
{
    struct world *w = ctx;
    w->n_measured++;
    t->seconds = w->seconds(&t->mesh);
    if (w->misses_later && w->misses_later(&t->mesh)) {
        t->result = SW_MESH_MISSES;
        t->missing = 1;
    }
    return SW_OK;
}

static struct sw_mesh_choice search(struct world *w, int ranks, int tensor)
{
    const struct sw_mesh_search s = {.ranks = ranks,
                                     .tensor = tensor,
                                     .context = tensor > 0,
                                     .ctx = w,
                                     .judge = judge,
                                     .measure = measure};
    struct sw_mesh_choice choice;
    w->n_asked = 0;
    if (sw_search_mesh(&s, &choice) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(choice.n, w->n_asked);
    return choice;
}

static void expect_words(const struct sw_mesh_choice *choice, int i, const char *words)
{
    char buf[SW_MESH_WORDS];
    assert_string_equal(sw_mesh_words(&choice->tries[i].mesh, buf), words);
}

static void expect_text(const struct sw_mesh_choice *choice, const char *const *words)
{
    struct sw_str text = {0};
    sw_mesh_choice_print(choice, &text);
    for (; *words; words++) {
        if (!strstr(sw_str_text(&text), *words)) {
            fail_msg("\"%s\" lacks \"%s\"", sw_str_text(&text), *words);
        }
    }
    sw_str_fini(&text);
}
#define EXPECT_TEXT(choice, ...) expect_text(choice, (const char *const[]){__VA_ARGS__, NULL})

static double stages_are_fast(const struct sw_mesh *mesh)
{
    return 8.0 / along(mesh, SW_AXIS_PIPE);
}

static double all_alike(const struct sw_mesh *mesh)
{
    (void)mesh;
    return 2;
}

/* A rank has a share of the model along pipe and tensor, and room for a quarter. */
static size_t quarters_fit(const struct sw_mesh *mesh)
{
    const int shares = along(mesh, SW_AXIS_PIPE) * along(mesh, SW_AXIS_TENSOR);
    return shares >= 4 ? 0 : 1000 / (size_t)shares - 250;
}

static size_t nothing_fits(const struct sw_mesh *mesh)
{
    return 1000 + 10 * (size_t)along(mesh, SW_AXIS_DATA);
}

static bool has_stages(const struct sw_mesh *mesh)
{
    return along(mesh, SW_AXIS_PIPE) > 1;
}

/* Without a mesh that cuts sums, the others are not even planned. Every rank is in each mesh. */
static void the_fastest_mesh_of_pipe_and_data_wins(void **state)
{
    (void)state;
    struct world w = {.seconds = stages_are_fast};
    struct sw_mesh_choice choice = search(&w, 12, 0);
    assert_true(choice.found && !choice.cuts);
    assert_int_equal(choice.n, 6); /* the divisors of 12 */
    assert_true(choice.spared > 0);
    for (int i = 0; i < choice.n; i++) {
        assert_int_equal(sw_mesh_ranks(&choice.tries[i].mesh), 12);
        assert_int_equal(cut_of(&choice.tries[i].mesh), 1);
        assert_true(i == 0 || choice.tries[i].seconds >= choice.tries[i - 1].seconds);
    }
    expect_words(&choice, 0, "pipe 12");
    expect_words(&choice, 5, "data 12");
    EXPECT_TEXT(&choice, "6 of the meshes of 12 ranks", "0.666667 s a step, taken\n",
                "s a step, 100.0% slower\n", "they are not tried, as others fit");
    sw_mesh_choice_fini(&choice);
}

/* Times are found for as few meshes as possible. */
static void bounds_spare_walks(void **state)
{
    (void)state;
    struct world w = {.seconds = stages_are_fast, .bound = 0.9};
    struct sw_mesh_choice choice = search(&w, 12, 0);
    expect_words(&choice, 0, "pipe 12");
    assert_int_equal(w.n_measured, 1);
    assert_false(choice.tries[0].is_bound);
    assert_true(choice.tries[1].is_bound);
    EXPECT_TEXT(&choice, "0.666667 s a step, taken\n", "at least 1.2 s a step, 80.0% slower");
    sw_mesh_choice_fini(&choice);
    w = (struct world){.seconds = stages_are_fast, .bound = 0.4};
    choice = search(&w, 12, 0);
    expect_words(&choice, 0, "pipe 12");
    assert_int_equal(w.n_measured, 2); /* 0.4 * 8 / 6 is less than 8 / 12 */
    sw_mesh_choice_fini(&choice);
    w = (struct world){.seconds = stages_are_fast, .bound = 0.9, .misses_later = has_stages};
    choice = search(&w, 4, 0);
    expect_words(&choice, 0, "data 4");
    assert_true(choice.found && !choice.cuts);
    sw_mesh_choice_fini(&choice);
}

static void equals_are_taken_by_name(void **state)
{
    (void)state;
    struct world w = {.seconds = all_alike};
    struct sw_mesh_choice choice = search(&w, 4, 0);
    expect_words(&choice, 0, "data 4");
    expect_words(&choice, 1, "pipe 2 x data 2");
    expect_words(&choice, 2, "pipe 4");
    sw_mesh_choice_fini(&choice);
}

static void sums_are_cut_only_if_nothing_else_fits(void **state)
{
    (void)state;
    struct world w = {.seconds = all_alike, .missing = quarters_fit};
    struct sw_mesh_choice choice = search(&w, 4, 0);
    assert_true(choice.found && !choice.cuts);
    expect_words(&choice, 0, "pipe 4");
    EXPECT_TEXT(&choice, "lacks 250 bytes (250 B) of host memory on stage 0",
                "lacks 750 bytes (750 B) of host memory\n");
    sw_mesh_choice_fini(&choice);
    w.refused = has_stages;
    choice = search(&w, 4, 0);
    assert_true(choice.found && choice.cuts && choice.spared == 0);
    assert_int_equal(choice.n, 10); /* all of them */
    expect_words(&choice, 0, "tensor 4");
    EXPECT_TEXT(&choice, "so this one cuts sums", "is refused: made up");
    for (int i = 1; i < choice.n; i++) { /* those that cut less were tried before */
        assert_true(cut_of(&w.asked[i - 1]) <= cut_of(&w.asked[i]));
    }
    sw_mesh_choice_fini(&choice);
}

static void the_nearest_mesh_is_first_if_none_fits(void **state)
{
    (void)state;
    struct world w = {.missing = nothing_fits};
    struct sw_mesh_choice choice = search(&w, 2, 0);
    assert_false(choice.found);
    assert_int_equal(choice.tries[0].missing, 1010);
    assert_int_equal(choice.tries[choice.n - 1].missing, 1020);
    expect_words(&choice, 0, "context 2");
    sw_mesh_choice_fini(&choice);
}

/* A run that resumes has the sums of its checkpoint. */
static void kept_sizes_stay(void **state)
{
    (void)state;
    struct world w = {.seconds = stages_are_fast};
    struct sw_mesh_choice choice = search(&w, 8, 2);
    assert_int_equal(choice.n, 3);
    for (int i = 0; i < choice.n; i++) {
        assert_int_equal(along(&choice.tries[i].mesh, SW_AXIS_TENSOR), 2);
        assert_int_equal(along(&choice.tries[i].mesh, SW_AXIS_CONTEXT), 1);
    }
    expect_words(&choice, 0, "pipe 4 x tensor 2");
    EXPECT_TEXT(&choice, "are those of the checkpoint");
    sw_mesh_choice_fini(&choice);
}

static void planning_is_bounded(void **state)
{
    (void)state;
    struct world w = {.seconds = stages_are_fast, .n_instrs = NEVER};
    struct sw_mesh_choice choice = search(&w, 12, 0);
    assert_int_equal(choice.n, 1);
    assert_true(choice.untried > 0);
    EXPECT_TEXT(&choice, "are not tried, as planning them takes long");
    sw_mesh_choice_fini(&choice);
}

static void the_other_order_of_sums_is_named(void **state)
{
    (void)state;
    struct world w = {.seconds = all_alike};
    struct sw_mesh_choice choice = search(&w, 2, 0);
    choice.boundary = 1.5;
    EXPECT_TEXT(&choice, "\"boundary\" would take 1.5 s a step", "it is not chosen");
    sw_mesh_choice_fini(&choice);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    struct world w = {.seconds = all_alike};
    const struct sw_mesh_search s = {.ranks = 4, .ctx = &w, .judge = judge};
    struct sw_mesh_choice choice;
    sw_alloc_fail_nth(1);
    assert_int_equal(sw_search_mesh(&s, &choice), SW_E_NOMEM);
    sw_alloc_fail_nth(0);
    assert_int_equal(choice.n, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_fastest_mesh_of_pipe_and_data_wins),
    cmocka_unit_test(bounds_spare_walks),
    cmocka_unit_test(equals_are_taken_by_name),
    cmocka_unit_test(sums_are_cut_only_if_nothing_else_fits),
    cmocka_unit_test(the_nearest_mesh_is_first_if_none_fits),
    cmocka_unit_test(kept_sizes_stay),
    cmocka_unit_test(planning_is_bounded),
    cmocka_unit_test(the_other_order_of_sums_is_named),
    cmocka_unit_test(survives_lack_of_memory),
};
const struct test_program sw_tests = {TEST_TABLE(tests)};
