// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 600
// COST 40
// The whole engine on a device whose memory the host cannot reach: ranks, offloading, tiles,
// vertical schedule, recomputation, checkpoints and generation. Each pair of choices gives the bits
// of one rank of cpu:reference. A host access to the device's memory faults.
#include "engine/tests/matrix.h"

#ifdef TEST_SANITIZED /* sanitizers are slow */
enum { STEPS = 2 };
#else
enum { STEPS = 3 };
#endif

static void each_pair_of_choices_on_the_mock_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    matrix_cover(2, MATRIX_MOCK, STEPS);
}

static void a_mesh_on_the_mock_gives_the_bits_of_its_slices(void **state)
{
    (void)state;
    matrix_on_mesh(MATRIX_MOCK, STEPS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_mesh_on_the_mock_gives_the_bits_of_its_slices),
    cmocka_unit_test(each_pair_of_choices_on_the_mock_gives_the_bits_of_the_cpu),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = matrix_set_up};
