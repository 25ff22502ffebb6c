// SPDX-License-Identifier: Apache-2.0
// The variables of launchers: a process that was started as one of several never trains alone
// because one of them is wrong.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "support/test.h"

static void set_all(const char *size, const char *rank, const char *port)
{
    static const char *const mpis[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
                                       "SLURM_STEP_NUM_TASKS"};
    const struct {
        const char *name, *value;
    } ours[] = {
        {"WORLD_SIZE", size}, {"RANK", rank}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}};
    for (size_t i = 0; i < SW_LEN(mpis); i++) {
        unsetenv(mpis[i]);
    }
    for (size_t i = 0; i < SW_LEN(ours); i++) {
        assert_int_equal(
            ours[i].value ? setenv(ours[i].name, ours[i].value, 1) : unsetenv(ours[i].name), 0);
    }
}

static void expect_refusal(const char *name, const char *text)
{
    sw_comm *comm;
    char wanted[100];
    snprintf(wanted, sizeof wanted, "%s is \"%s\": wanted a number from ", name, text);
    if (sw_world_open(0.05, &comm) != SW_E_CONFIG || !strstr(sw_error_message(), wanted)) {
        fail_msg("wanted '%s', got '%s'", wanted, sw_error_message());
    }
}

static void a_wrong_number_is_refused(void **state)
{
    (void)state;
    static const char *const sizes[] = {"two", "",   "0",           "-2", "2x",
                                        " 2",  "+2", "99999999999", "2.0"};
    static const char *const ranks[] = {"one", "", "2", "-1", "1x", " 1", "99999999999"};
    static const char *const ports[] = {"", "0", "65536", "29500a", "-1"};
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        set_all(sizes[i], "1", "29500");
        expect_refusal("WORLD_SIZE", sizes[i]);
    }
    for (size_t i = 0; i < SW_LEN(ranks); i++) {
        set_all("2", ranks[i], "29500");
        expect_refusal("RANK", ranks[i]);
    }
    set_all("1", "1", "29500");
    expect_refusal("RANK", "1");
    for (size_t i = 0; i < SW_LEN(ports); i++) {
        set_all("2", "1", ports[i]);
        expect_refusal("MASTER_PORT", ports[i]);
    }
}

static void a_missing_one_is_named(void **state)
{
    (void)state;
    sw_comm *comm;
    set_all("2", NULL, "29500");
    assert_int_equal(sw_world_open(0.05, &comm), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "found RANK unset, MASTER_ADDR 127.0.0.1"));
    set_all("2", "1", NULL);
    assert_int_equal(sw_world_open(0.05, &comm), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "MASTER_PORT unset"));
}

static void one_process_is_alone(void **state)
{
    (void)state;
    static const char *const sizes[] = {NULL, "1"};
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        sw_comm *comm;
        set_all(sizes[i], NULL, NULL);
        assert_int_equal(sw_world_open(0.05, &comm), SW_OK);
        assert_null(comm);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_wrong_number_is_refused),
    cmocka_unit_test(a_missing_one_is_named),
    cmocka_unit_test(one_process_is_alone),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
