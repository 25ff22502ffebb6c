// SPDX-License-Identifier: Apache-2.0
// LABEL slow
// TIMEOUT 86400
// ZeRO over ranks: after 50 steps, every combination has the bits of one rank. SPILLWAY_SHARD=i/n
// runs part i of n, 0 <= i < n; without it nothing runs.
#include "engine/tests/matrix.h"

static long long part, n_parts;

static void every_combination_gives_the_bits_of_one_rank(void **state)
{
    (void)state;
    matrix_part(part, n_parts);
}

static int begin(char **argv)
{
    (void)argv;
    const char *shard = getenv("SPILLWAY_SHARD");
    char more;
    if (!shard) {
        printf("the whole product takes about a day: SPILLWAY_SHARD=i/n runs part i of n\n");
        return TEST_EXIT_SKIPPED;
    }
    if (sscanf(shard, "%lld/%lld%c", &part, &n_parts, &more) != 2 || part < 0 || part >= n_parts) {
        fprintf(stderr, "SPILLWAY_SHARD=%s: wanted i/n with 0 <= i < n\n", shard);
        return 1;
    }
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_combination_gives_the_bits_of_one_rank),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = matrix_set_up, .begin = begin};
