// SPDX-License-Identifier: Apache-2.0
// LABEL slow
// TIMEOUT 7200
// Every transfer of a training run on disk is failed once, by every kind of fault.
#include "engine/tests/disk_faults.h"

static void every_transfer_of_one_rank(void **state)
{
    (void)state;
    disk_faults_meet(1, NULL, 1);
}

static void every_transfer_of_two_ranks(void **state)
{
    (void)state;
    disk_faults_meet(2, NULL, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_transfer_of_one_rank),
    cmocka_unit_test(every_transfer_of_two_ranks),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = disk_faults_set_up};
