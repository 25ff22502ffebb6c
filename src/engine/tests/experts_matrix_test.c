// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 120
// COST 4
// Mixtures of experts give the bits of one rank in all ways to run them, on the CPU and the mock,
// and on emulated GPUs in some.
#include "engine/tests/matrix.h"

static void experts_have_the_bits_of_one_rank(void **state)
{
    (void)state;
    matrix_of_experts(MATRIX_CPU_AND_MOCK, 18, 2);
}

#ifdef TEST_SANITIZED /* sanitizers are slow */
enum { EMULATED = 1 };
#else
enum { EMULATED = 2 };
#endif

/* A few rows; engine/matrix_emu has all of them. */
static void experts_have_the_bits_of_one_rank_on_emulated_gpus(void **state)
{
    (void)state;
    matrix_skip_without_emulation();
    matrix_of_experts(MATRIX_EMU, EMULATED, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(experts_have_the_bits_of_one_rank),
    cmocka_unit_test(experts_have_the_bits_of_one_rank_on_emulated_gpus),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = matrix_set_up};
