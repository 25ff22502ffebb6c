// SPDX-License-Identifier: Apache-2.0
// LABEL slow
// TIMEOUT 7200
// ZeRO over ranks, and on a device whose memory the host cannot reach. After 50 steps, each triple
// of choices has the bits of one rank.
#include "engine/tests/matrix.h"

static void each_triple_of_choices_gives_the_bits_of_one_rank(void **state)
{
    (void)state;
    matrix_cover(3, MATRIX_CPU_AND_MOCK, MATRIX_STEPS);
}

static void on_disk_the_update_is_within_backward_on_the_mock_too(void **state)
{
    (void)state;
    matrix_on_disk(MATRIX_MOCK, 8);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(on_disk_the_update_is_within_backward_on_the_mock_too),
    cmocka_unit_test(each_triple_of_choices_gives_the_bits_of_one_rank),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = matrix_set_up};
