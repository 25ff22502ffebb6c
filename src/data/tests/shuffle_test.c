// SPDX-License-Identifier: Apache-2.0
// The order of an epoch: a permutation, another one for each seed and epoch, without a pattern.
#include "data/shuffle.h"

#include "base/base.h"
#include "support/test.h"

static void check_permutation(uint64_t seed, int64_t epoch, int64_t n)
{
    bool *seen = sw_alloc_zero("test", (size_t)n, sizeof(*seen));
    for (int64_t i = 0; i < n; ++i) {
        const int64_t at = sw_shuffle(seed, epoch, n, i);
        assert_true(at >= 0 && at < n);
        assert_false(seen[at]);
        seen[at] = true;
    }
    sw_free(seen);
}

static void every_size_is_a_permutation(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 300; ++n) {
        check_permutation(7, n % 5, n);
    }
    check_permutation(UINT64_MAX, INT64_C(1) << 40, 65536);
    check_permutation(0, 0, 65537);
}

static int64_t n_equal(uint64_t seed_a, int64_t epoch_a, uint64_t seed_b, int64_t epoch_b,
                       int64_t n)
{
    int64_t equal = 0;
    for (int64_t i = 0; i < n; ++i) {
        equal += sw_shuffle(seed_a, epoch_a, n, i) == sw_shuffle(seed_b, epoch_b, n, i);
    }
    return equal;
}

/* Two random permutations agree in one place on average, whatever n; 12 has a chance below 1e-9. */
static void seeds_and_epochs_differ(void **state)
{
    (void)state;
    assert_true(n_equal(1, 0, 2, 0, 5000) < 12);
    assert_true(n_equal(1, 0, 1, 1, 5000) < 12);
    assert_true(n_equal(1, 0, UINT64_C(1) << 32 | 1, 0, 5000) < 12);
    assert_int_equal(n_equal(9, 3, 9, 3, 5000), 5000);
}

/* Neighbours land anywhere: the mean distance of n random pairs is n / 3, its deviation below
 * n / (4 sqrt n). */
static void neighbours_are_torn_apart(void **state)
{
    (void)state;
    const int64_t n = 10000;
    double sum = 0.0;
    for (int64_t i = 1; i < n; ++i) {
        sum += fabs((double)(sw_shuffle(5, 2, n, i) - sw_shuffle(5, 2, n, i - 1)));
    }
    const double mean = sum / (double)(n - 1), wanted = (double)n / 3.0;
    assert_true(fabs(mean - wanted) < 6.0 * (double)n / (4.0 * sqrt((double)n)));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_size_is_a_permutation),
    cmocka_unit_test(seeds_and_epochs_differ),
    cmocka_unit_test(neighbours_are_torn_apart),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
