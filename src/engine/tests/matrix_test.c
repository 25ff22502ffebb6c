// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1200
// COST 40
// ZeRO over ranks: each pair of choices gives the bits of one rank. engine/matrix_triples trains
// longer.
#include "engine/tests/matrix.h"

#if defined TEST_SANITIZED || !SW_HAVE_DNNL /* these builds are slow */
enum { STEPS = 2 };
#else
enum { STEPS = 3 };
#endif

static void each_pair_of_choices_gives_the_bits_of_one_rank(void **state)
{
    (void)state;
    matrix_cover(2, MATRIX_CPU, STEPS);
}

static void on_disk_the_update_is_within_backward(void **state)
{
    (void)state;
    matrix_on_disk(MATRIX_CPU, STEPS);
}

static void each_other_family_gives_the_bits_of_one_rank(void **state)
{
    (void)state;
    matrix_of_families(MATRIX_CPU, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_other_family_gives_the_bits_of_one_rank),
    cmocka_unit_test(each_pair_of_choices_gives_the_bits_of_one_rank),
    cmocka_unit_test(on_disk_the_update_is_within_backward),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = matrix_set_up};
