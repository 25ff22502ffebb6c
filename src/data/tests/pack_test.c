// SPDX-License-Identifier: Apache-2.0
// Packing against a plain search over all rows, and what must hold of any packing.
#include "data/pack.h"
#include "support/test.h"

enum { MOST = 400 };

/* Best-fit decreasing by definition: searches all rows for each document. */
static int64_t plain(const int64_t *lengths, int64_t n, int64_t T, int64_t *row_of)
{
    int64_t room[MOST], since[MOST], n_rows = 0, clock = 0;
    for (int64_t length = T; length >= 1; length--) {
        for (int64_t i = 0; i < n; i++) {
            int64_t best = -1;
            if (lengths[i] != length) {
                continue;
            }
            for (int64_t r = 0; r < n_rows; r++) {
                if (room[r] >= length && (best < 0 || room[r] < room[best] ||
                                          (room[r] == room[best] && since[r] < since[best]))) {
                    best = r;
                }
            }
            if (best < 0) {
                best = n_rows++;
                room[best] = T;
            }
            room[best] -= length;
            since[best] = clock++;
            row_of[i] = best;
        }
    }
    return n_rows;
}

static void rows_are_those_of_the_plain_search(void **state)
{
    (void)state;
    for (uint64_t c = 0; c < 200; c++) {
        int64_t lengths[MOST], row_of[MOST];
        const int64_t n = (int64_t)(sw_philox_u64(c, 1, 0) % MOST);
        const int64_t T = 1 + (int64_t)(sw_philox_u64(c, 2, 0) % 200);
        struct sw_packing packing;
        bool met[MOST] = {false};
        for (int64_t i = 0; i < n; i++) {
            lengths[i] = 1 + (int64_t)(sw_philox_u64(c, 3, (uint64_t)i) % (uint64_t)T);
        }
        assert_int_equal(sw_pack(lengths, n, T, &packing), SW_OK);
        assert_int_equal(packing.n_rows, plain(lengths, n, T, row_of));
        for (int64_t row = 0; row < packing.n_rows; row++) {
            int64_t used = 0;
            for (int64_t at = packing.first[row]; at < packing.first[row + 1]; at++) {
                const int64_t i = packing.documents[at];
                assert_false(met[i]);
                met[i] = true;
                assert_int_equal(row_of[i], row);
                used += lengths[i];
            }
            assert_true(used >= 1 && used <= T);
        }
        for (int64_t i = 0; i < n; i++) {
            assert_true(met[i]);
        }
        sw_packing_fini(&packing);
    }
}

static void the_longest_document_of_a_row_stands_first(void **state)
{
    const int64_t lengths[] = {3, 9, 3, 7, 10, 1};
    const int64_t documents[] = {4, 1, 5, 3, 0, 2}, first[] = {0, 1, 3, 5, 6};
    struct sw_packing packing;
    (void)state;
    assert_int_equal(sw_pack(lengths, 6, 10, &packing), SW_OK);
    assert_int_equal(packing.n_rows, 4);
    assert_memory_equal(packing.first, first, sizeof first);
    assert_memory_equal(packing.documents, documents, sizeof documents);
    sw_packing_fini(&packing);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_are_those_of_the_plain_search),
    cmocka_unit_test(the_longest_document_of_a_row_stands_first),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
