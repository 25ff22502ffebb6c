// SPDX-License-Identifier: Apache-2.0
// Compares the set of written ranges with an array of flags, after random additions and removals.
#include "store/private.h"

#include "store/tests/helpers.h"

enum { N = 300, CAP = 200 };

static void check(const struct extents *set, const bool *marks)
{
    int64_t previous = -1;
    bool seen[N] = {false};
    for (int64_t i = 0; i < set->n; i++) {
        assert_true(set->items[i].begin > previous);
        assert_true(set->items[i].end > set->items[i].begin);
        previous = set->items[i].end;
        for (int64_t at = set->items[i].begin; at < set->items[i].end; at++) {
            seen[at] = true;
        }
    }
    assert_memory_equal(seen, marks, sizeof seen);
}

static void check_gap(const struct extents *set, const bool *marks, int64_t begin, int64_t end)
{
    struct extent gap;
    int64_t first = begin;
    while (first < end && marks[first]) {
        first++;
    }
    bool touches = false;
    for (int64_t i = begin > 0 ? begin - 1 : 0; i < N && i <= end; i++) {
        touches |= marks[i];
    }
    assert_int_equal(sw_store_extents_touch(set, begin, end), touches);
    assert_int_equal(sw_store_extents_gap(set, begin, end, &gap), first < end);
    if (first < end) {
        int64_t last = first;
        while (last < end && !marks[last]) {
            last++;
        }
        assert_int_equal(gap.begin, first);
        assert_int_equal(gap.end, last);
    }
}

static void as_marks_say(void **state)
{
    (void)state;
    struct extent items[CAP];
    struct extents set = {items, 0, CAP};
    struct test_random random = {.seed = 7};
    bool marks[N] = {false};
    for (int step = 0; step < 20000; step++) {
        const int64_t begin = test_below(&random, N), len = test_below(&random, 12);
        const int64_t end = begin + len < N ? begin + len : N;
        const bool add = test_below(&random, 2);
        if (add) {
            sw_store_extents_add(&set, begin, end);
        } else {
            sw_store_extents_remove(&set, begin, end);
        }
        for (int64_t i = begin; i < end; i++) {
            marks[i] = add;
        }
        check(&set, marks);
        const int64_t a = test_below(&random, N), b = test_below(&random, N);
        check_gap(&set, marks, a < b ? a : b, a < b ? b : a);
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(as_marks_say)};

const struct test_program sw_tests = {TEST_TABLE(tests)};
