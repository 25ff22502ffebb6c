// SPDX-License-Identifier: Apache-2.0
// Tests that the shelf finds the lowest free address, by comparison with trying all addresses.
#include "plan/private.h"

#include "support/test.h"

struct plain { /* a placed life */
    size_t begin, end;
    int32_t first, last;
};

/* The lowest free address among the placed lives, found by moving up until nothing overlaps. */
static size_t lowest(const struct plain *placed, int n, const struct plain *life, size_t align)
{
    const size_t bytes = life->end;
    size_t at = 0, before;
    do {
        before = at;
        for (int i = 0; i < n; i++) {
            const struct plain *p = &placed[i];
            if (p->first <= life->last && life->first <= p->last && p->begin < at + bytes &&
                at < p->end) {
                at = sw_round_up(p->end, align);
            }
        }
    } while (at != before);
    return at;
}

static int32_t drawn(uint64_t seed, uint64_t stream, int i, int32_t below)
{
    return (int32_t)(sw_philox_u64(seed, stream, (uint64_t)i) % (uint64_t)below);
}

/* Lives as in plans: most short, some long, repeating sizes; `descending`: the largest first. */
static void compare(uint64_t seed, int n, int32_t n_instrs, bool descending)
{
    struct plain *placed = sw_alloc("test", (size_t)n * sizeof *placed);
    struct sw_shelf shelf;
    assert_non_null(placed);
    assert_int_equal(sw_shelf_open(&shelf, n_instrs), SW_OK);
    for (int i = 0; i < n; i++) {
        const size_t align = drawn(seed, 0, i, 4) == 0 ? 4096 : 64;
        const int32_t first = drawn(seed, 1, i, n_instrs + 1);
        const int32_t longest = drawn(seed, 2, i, 4) == 0 ? n_instrs + 1 - first : 5;
        const int32_t length = drawn(seed, 3, i, longest);
        const int32_t last = first + length > n_instrs ? n_instrs : first + length;
        const int32_t steps = descending ? (n - i) / 7 : drawn(seed, 4, i, 40);
        struct plain life = {0, (size_t)steps * 192, first, last};
        size_t at;
        life.begin = lowest(placed, i, &life, align);
        assert_int_equal(sw_shelf_put(&shelf, first, last, life.end, align, &at), SW_OK);
        assert_int_equal(at, life.begin);
        life.end += life.begin;
        placed[i] = life;
    }
    sw_shelf_close(&shelf);
    sw_free(placed);
}

static void finds_what_trying_all_finds(void **state)
{
    static const int32_t instrs[] = {0, 1, 7, 15, 16, 17, 31, 64, 100, 500, 3000};
    (void)state;
    for (size_t i = 0; i < SW_LEN(instrs); i++) {
        compare(i, 600, instrs[i], false);
        compare(i + 100, 600, instrs[i], true);
    }
}

static void what_lives_at_all_times_has_addresses_of_its_own(void **state)
{
    struct sw_shelf shelf;
    size_t at;
    (void)state;
    assert_int_equal(sw_shelf_open(&shelf, 1000), SW_OK);
    for (int32_t i = 0; i < 1000; i++) {
        assert_int_equal(sw_shelf_put(&shelf, i, i, 128, 64, &at), SW_OK);
        assert_int_equal(at, 0);
    }
    assert_int_equal(sw_shelf_put(&shelf, 0, 1000, 64, 64, &at), SW_OK);
    assert_int_equal(at, 128);
    assert_int_equal(sw_shelf_put(&shelf, 500, 501, 192, 64, &at), SW_OK);
    assert_int_equal(at, 192);
    assert_int_equal(sw_shelf_put(&shelf, 1000, 1000, 128, 64, &at), SW_OK);
    assert_int_equal(at, 0);
    sw_shelf_close(&shelf);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(finds_what_trying_all_finds),
    cmocka_unit_test(what_lives_at_all_times_has_addresses_of_its_own),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
