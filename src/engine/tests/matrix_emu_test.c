// SPDX-License-Identifier: Apache-2.0
// LABEL slow
// TIMEOUT 7200
// The whole engine on emulated GPU kernels. Each pair of choices gives the bits of one rank without
// offloading. Choices: ranks, offloading, tiles, vertical schedule, recomputation, checkpoints,
// generation.
#include "device/device.h"
#include "engine/tests/matrix.h"

enum { STEPS = 3 };

static void each_pair_of_choices_gives_the_bits_of_one_rank(void **state)
{
    (void)state;
    matrix_skip_without_emulation();
    matrix_cover(2, MATRIX_EMU, STEPS);
}

static void a_mesh_gives_the_bits_of_its_slices(void **state)
{
    (void)state;
    matrix_skip_without_emulation();
    matrix_on_mesh(MATRIX_EMU, STEPS);
}

static void each_other_family_gives_the_bits_of_one_rank(void **state)
{
    (void)state;
    matrix_skip_without_emulation();
    matrix_of_families(MATRIX_EMU, STEPS);
}

static void experts_give_the_bits_of_one_rank(void **state)
{
    (void)state;
    matrix_skip_without_emulation();
    matrix_of_experts(MATRIX_EMU, 18, STEPS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(experts_give_the_bits_of_one_rank),
    cmocka_unit_test(each_other_family_gives_the_bits_of_one_rank),
    cmocka_unit_test(a_mesh_gives_the_bits_of_its_slices),
    cmocka_unit_test(each_pair_of_choices_gives_the_bits_of_one_rank),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = matrix_set_up};
