// SPDX-License-Identifier: Apache-2.0
// The deadline of an exchange counts from the last byte that moved. The clock is the test's own.
#include "comm/wait.h"

#include "support/test.h"

enum { PEERS = 3 };

static double moved[PEERS];

static struct sw_comm_wait start(double now)
{
    struct sw_comm_wait wait = {.deadline_s = 8, .moved = moved};
    sw_comm_wait_start(&wait, PEERS, now);
    return wait;
}

static void expect(const struct sw_comm_wait *wait, double since, double now,
                   enum sw_comm_wait_step step)
{
    double left;
    if (sw_comm_wait_step(wait, since, now, &left) != step) {
        fail_msg("since %g, at %g: wanted step %d", since, now, step);
    }
    assert_true((left > 0) == (step == SW_WAIT_ON));
}

static void a_silent_peer_is_late(void **state)
{
    (void)state;
    struct sw_comm_wait wait = start(100);
    expect(&wait, moved[0], 100, SW_WAIT_ON);
    expect(&wait, moved[0], 105.5, SW_WAIT_ON);
    expect(&wait, moved[0], 106, SW_WAIT_TELL);
    wait.told = moved[0];
    expect(&wait, moved[0], 106, SW_WAIT_ON);
    expect(&wait, moved[0], 107.5, SW_WAIT_ON);
    expect(&wait, moved[0], 108, SW_WAIT_LATE);
}

static void a_peer_that_sends_is_not(void **state)
{
    (void)state;
    struct sw_comm_wait wait = start(100);
    for (double now = 105; now < 200; now += 5) {
        expect(&wait, moved[0], now, SW_WAIT_ON);
        moved[0] = now;
    }
    expect(&wait, moved[0], 201, SW_WAIT_TELL);
    wait.told = moved[0];
    moved[0] = 202.5; /* a later wait is told of, too */
    expect(&wait, moved[0], 204, SW_WAIT_ON);
    expect(&wait, moved[0], 208.5, SW_WAIT_TELL);
    wait.told = moved[0];
    expect(&wait, moved[0], 210.5, SW_WAIT_LATE);
}

static void only_long_waits_are_listed(void **state)
{
    (void)state;
    const struct sw_comm_wait wait = start(100);
    moved[1] = 103.5;
    moved[2] = 104.5;
    assert_true(sw_comm_wait_is_long(&wait, 0, 108));
    assert_true(sw_comm_wait_is_long(&wait, 1, 108));
    assert_false(sw_comm_wait_is_long(&wait, 2, 108));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_silent_peer_is_late),
    cmocka_unit_test(a_peer_that_sends_is_not),
    cmocka_unit_test(only_long_waits_are_listed),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
