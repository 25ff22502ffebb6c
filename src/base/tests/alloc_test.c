// SPDX-License-Identifier: Apache-2.0
// Counted allocation and arenas: alignment, contents, counters, the failing n-th request.
#include "base/base.h"

#include "support/test.h"

static struct sw_alloc_stats stats(void)
{
    struct sw_alloc_stats now;
    sw_alloc_get_stats(&now);
    return now;
}

static void counters_follow_every_call(void **state)
{
    (void)state;
    const struct sw_alloc_stats before = stats();
    char *a = sw_alloc("test", 100);
    char *b = sw_alloc_zero("test", 7, 11);
    char *c = sw_alloc_aligned("test", 4096, 1);
    assert_int_equal(stats().live_bytes - before.live_bytes, 178);
    assert_int_equal(stats().live_blocks - before.live_blocks, 3);
    assert_int_equal(stats().n_calls - before.n_calls, 3);
    a = sw_realloc("test", a, 1000);
    assert_int_equal(stats().live_bytes - before.live_bytes, 1078);
    assert_int_equal(stats().live_blocks - before.live_blocks, 3);
    assert_true(stats().peak_bytes >= before.live_bytes + 1078);
    sw_free(a);
    sw_free(b);
    sw_free(c);
    sw_free(NULL);
    assert_int_equal(stats().live_bytes, before.live_bytes);
    assert_int_equal(stats().live_blocks, before.live_blocks);
    assert_true(stats().peak_bytes >= before.live_bytes + 1078);
}

static void blocks_are_aligned_and_whole(void **state)
{
    (void)state;
    for (size_t align = 1; align <= 65536; align *= 2) {
        for (size_t bytes = 0; bytes < 70; bytes += 23) {
            unsigned char *mem = sw_alloc_aligned("test", align, bytes);
            assert_non_null(mem);
            assert_int_equal((uintptr_t)mem % align, 0);
            memset(mem, 0xa5, bytes);
            mem = sw_realloc("test", mem, bytes + 5000);
            assert_non_null(mem);
            assert_int_equal((uintptr_t)mem % align, 0);
            for (size_t i = 0; i < bytes; i++) {
                assert_int_equal(mem[i], 0xa5);
            }
            sw_free(mem);
        }
    }
    unsigned char *zero = sw_alloc_zero("test", 1000, 3);
    for (size_t i = 0; i < 3000; i++) {
        assert_int_equal(zero[i], 0);
    }
    sw_free(zero);
    char *empty = sw_alloc("test", 0);
    assert_non_null(empty);
    sw_free(empty);
    char *text = sw_strdup("test", "text");
    assert_string_equal(text, "text");
    sw_free(text);
}

/* Large enough for huge pages, which must change nothing but speed. */
static void large_blocks_keep_their_bytes(void **state)
{
    (void)state;
    enum { MIB = 1 << 20, SMALL = MIB, LARGE = 9 * MIB, LARGER = 70 * MIB, STEP = 4093 };
    unsigned char *mem = sw_alloc_zero("test", LARGE, 1);
    assert_non_null(mem);
    for (size_t i = 0; i < LARGE; i += STEP) {
        assert_int_equal(mem[i], 0);
        mem[i] = (unsigned char)(i / STEP);
    }
    static const size_t sizes[] = {LARGER, LARGE, SMALL};
    for (size_t k = 0; k < SW_LEN(sizes); k++) {
        mem = sw_realloc("test", mem, sizes[k]);
        assert_non_null(mem);
        for (size_t i = 0; i < LARGE && i < sizes[k]; i += STEP) {
            assert_int_equal(mem[i], (unsigned char)(i / STEP));
        }
        mem[sizes[k] - 1] = 0; /* none of those that are looked at */
    }
    sw_free(mem);
}

static void impossible_sizes_give_null(void **state)
{
    (void)state;
    const struct sw_alloc_stats before = stats();
    volatile size_t huge = SIZE_MAX; /* hidden from warnings about constant sizes */
    assert_null(sw_alloc("test", huge));
    assert_null(sw_alloc_zero("test", huge / 2, 3));
    assert_null(sw_alloc_aligned("test", 64, huge - 8));
    char *mem = sw_alloc("test", 3);
    memcpy(mem, "ab", 3);
    assert_null(sw_realloc("test", mem, huge));
    assert_string_equal(mem, "ab");
    sw_free(mem);
    assert_int_equal(stats().live_bytes, before.live_bytes);
}

static void nth_request_fails_once(void **state)
{
    (void)state;
    sw_alloc_fail_nth(2);
    char *a = sw_alloc("test", 1), *b = sw_alloc("test", 1), *c = sw_alloc("test", 1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    sw_alloc_fail_nth(1);
    assert_null(sw_realloc("test", a, 100));
    sw_alloc_fail_nth(1);
    sw_alloc_fail_nth(0);
    b = sw_alloc_zero("test", 1, 1);
    assert_non_null(b);
    sw_free(a);
    sw_free(b);
    sw_free(c);
}

static void arena_gives_zeroed_aligned_disjoint_blocks(void **state)
{
    (void)state;
    const struct sw_alloc_stats before = stats();
    struct sw_arena arena;
    sw_arena_init(&arena, "test");
    unsigned char *blocks[300];
    size_t sizes[300];
    for (size_t i = 0; i < 300; i++) {
        sizes[i] = i % 50 == 49 ? (size_t)3 << 20 : i * 37 % 500;
        blocks[i] = sw_arena_alloc(&arena, sizes[i]);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        for (size_t j = 0; j < sizes[i]; j += 7) {
            assert_int_equal(blocks[i][j], 0);
        }
        memset(blocks[i], (int)i & 0xff, sizes[i]);
    }
    for (size_t i = 0; i < 300; i++) {
        for (size_t j = 0; j < sizes[i]; j += 13) {
            assert_int_equal(blocks[i][j], i & 0xff);
        }
    }
    assert_string_equal(sw_arena_strdup(&arena, "whole"), "whole");
    assert_string_equal(sw_arena_strndup(&arena, "partial", 4), "part");
    assert_string_equal(sw_arena_strndup(&arena, "", 0), "");
    assert_string_equal(sw_arena_printf(&arena, "%s-%d", "x", 12), "x-12");
    volatile size_t huge = SIZE_MAX;
    assert_null(sw_arena_alloc(&arena, huge));
    assert_null(sw_arena_array(&arena, huge / 4, 8));
    sw_arena_fini(&arena);
    sw_arena_fini(&arena);
    assert_int_equal(stats().live_blocks, before.live_blocks);
}

static void arena_survives_a_failed_request(void **state)
{
    (void)state;
    struct sw_arena arena;
    sw_arena_init(&arena, "test");
    sw_alloc_fail_nth(1);
    assert_null(sw_arena_alloc(&arena, 10));
    char *text = sw_arena_strdup(&arena, "kept");
    sw_alloc_fail_nth(1);
    assert_null(sw_arena_alloc(&arena, 1 << 20));
    assert_string_equal(text, "kept");
    assert_non_null(sw_arena_alloc(&arena, 1 << 20));
    sw_arena_fini(&arena);
}

static void checked_arithmetic(void **state)
{
    (void)state;
    size_t size;
    int64_t wide;
    assert_true(sw_mul_size(3, 5, &size) && size == 15);
    assert_false(sw_mul_size(SIZE_MAX / 2, 3, &size));
    assert_false(sw_add_size(SIZE_MAX, 1, &size));
    assert_false(sw_mul_i64(INT64_MIN, -1, &wide));
    assert_false(sw_add_i64(INT64_MAX, 1, &wide));
    assert_int_equal(sw_round_up(0, 8), 0);
    assert_int_equal(sw_round_up(17, 8), 24);
}

static void division_rounds_up_without_overflow(void **state)
{
    (void)state;
    for (int64_t a = -9; a <= 9; a++) {
        for (int64_t b = 1; b <= 5; b++) {
            const int64_t up = sw_ceil_div(a, b);
            assert_true(up * b >= a && (up - 1) * b < a);
        }
    }
    assert_true(sw_ceil_div(INT64_MAX, 1) == INT64_MAX);
    assert_true(sw_ceil_div(INT64_MAX, 2) == INT64_MAX / 2 + 1);
    assert_true(sw_ceil_div(INT64_MAX, INT64_MAX) == 1);
    assert_true(sw_ceil_div(INT64_MAX - 1, INT64_MAX) == 1);
    assert_true(sw_ceil_div(INT64_MIN, INT64_MAX) == -1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(counters_follow_every_call),
    cmocka_unit_test(blocks_are_aligned_and_whole),
    cmocka_unit_test(large_blocks_keep_their_bytes),
    cmocka_unit_test(impossible_sizes_give_null),
    cmocka_unit_test(nth_request_fails_once),
    cmocka_unit_test(arena_gives_zeroed_aligned_disjoint_blocks),
    cmocka_unit_test(arena_survives_a_failed_request),
    cmocka_unit_test(checked_arithmetic),
    cmocka_unit_test(division_rounds_up_without_overflow),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
