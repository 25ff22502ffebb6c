// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 120
// COST 4
// Mixtures of experts give the bits of one rank in all ways to run them, on the CPU and the mock.
#include "engine/tests/matrix.h"

static void experts_have_the_bits_of_one_rank(void **state)
{
    (void)state;
    matrix_of_experts(MATRIX_CPU_AND_MOCK, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(experts_have_the_bits_of_one_rank),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = matrix_set_up};
