// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 600
// COST 35
// A sample of the transfers of a training run on disk is failed. The result has the right bits or a
// named error. disk_faults_all_test.c covers all transfers.
#include "engine/tests/disk_faults.h"

#ifdef TEST_SANITIZED /* sanitizers are slow */
enum { SPARSER = 3 }; /* strides are longer by this factor */
#else
enum { SPARSER = 2 };
#endif

static void some_transfers_of_one_rank(void **state)
{
    (void)state;
    disk_faults_meet(1, NULL, 151 * SPARSER);
}

static void some_transfers_of_two_ranks(void **state)
{
    (void)state;
    disk_faults_meet(2, NULL, 457 * SPARSER);
}

static void some_transfers_to_a_device_that_no_disk_reaches(void **state)
{
    (void)state;
    disk_faults_meet(1, "mock", 457 * SPARSER);
    disk_faults_meet(2, "mock:early", 601 * SPARSER);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(some_transfers_of_one_rank),
    cmocka_unit_test(some_transfers_of_two_ranks),
    cmocka_unit_test(some_transfers_to_a_device_that_no_disk_reaches),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = disk_faults_set_up};
