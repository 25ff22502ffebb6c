// SPDX-License-Identifier: Apache-2.0
// COST 3
// Ranks that wait for each other in a chain, as threads, over TCP and over MPI. If the last one
// stays away, the first one names it. If it comes late, all goes on, and what they told each other
// meanwhile harms no exchange.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/tests/worlds.h"
#include "support/test.h"

enum { RANKS = 4, LAST = RANKS - 1 };

static const char *const names[RANKS] = {"pipe_00", "pipe_01", "pipe_02", "pipe_03"};
static const double deadline_s = 1;
/* Threads tell each other nothing. */
static const enum test_wire wires[] = {WIRE_THREADS, WIRE_TCP, WIRE_MPI};

/* A group with the next rank, and one with the rank before; NULL = there is none. */
struct links {
    sw_comm *next, *before;
};

static sw_status open_links(sw_comm *world, struct links *out)
{
    const int rank = sw_comm_rank(world);
    *out = (struct links){NULL, NULL};
    SW_TRY(sw_comm_name_ranks(world, names));
    for (int i = 0; i < LAST; i++) {
        const int pair[] = {i, i + 1};
        const struct sw_group_options options = {
            .number = i + 1, .ranks = pair, .n = 2, .name = "pipe"};
        if (rank == i || rank == i + 1) {
            SW_TRY(sw_comm_open_group(world, &options, rank == i ? &out->next : &out->before));
        }
    }
    return sw_comm_barrier(world, "the start");
}

/* A rank meets the next one first, and then the one before. The first rank begins to wait first. */
static sw_status meet(const struct links *links, int rank)
{
    usleep((useconds_t)(20000 * rank));
    SW_TRY(links->next ? sw_comm_barrier(links->next, "the next one") : SW_OK);
    return links->before ? sw_comm_barrier(links->before, "the next one") : SW_OK;
}

static void close_links(const struct links *links, bool failed)
{
    sw_comm_close(links->next, failed);
    sw_comm_close(links->before, failed);
}

static sw_status stay_away(void *ctx, sw_comm *world)
{
    struct links links;
    const int rank = sw_comm_rank(world);
    char message[1024];
    (void)ctx;
    SW_TRY(open_links(world, &links));
    if (rank == LAST) {
        usleep((useconds_t)(1.5e6 * deadline_s));
        close_links(&links, true);
        return SW_OK;
    }
    const sw_status st = meet(&links, rank);
    snprintf(message, sizeof message, "%s", sw_error_message());
    close_links(&links, true);
    if (st != SW_E_PEER || !strstr(message, "pipe_03")) {
        return SW_FAIL(SW_E_FORMAT, "%s says: %s", names[rank], message);
    }
    return SW_OK;
}

static void the_end_of_a_chain_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(wires); i++) {
        test_ranks_succeed(wires[i], RANKS, deadline_s, stay_away, NULL);
    }
}

/* Exchanges of all kinds of sides: those that only send, only receive, or do both. */
static sw_status exchange_all(const struct links *links, sw_comm *world)
{
    int64_t all[RANKS], word = 0;
    const int64_t mine = sw_comm_rank(world);
    for (int root = 0; root < RANKS; root++) {
        word = mine == root ? 100 + root : 0;
        SW_TRY(sw_comm_broadcast(world, root, &word, sizeof word, "a word"));
        WANT(word == 100 + root);
    }
    SW_TRY(links->next ? sw_comm_send(links->next, 1, &mine, sizeof mine, "a rank") : SW_OK);
    SW_TRY(links->before ? sw_comm_receive(links->before, 0, &word, sizeof word, "a rank") : SW_OK);
    WANT(!links->before || word == mine - 1);
    SW_TRY(sw_comm_all_gather(world, &mine, all, sizeof mine, "words"));
    for (int r = 0; r < RANKS; r++) {
        WANT(all[r] == r);
    }
    return SW_OK;
}

static sw_status come_late(void *ctx, sw_comm *world)
{
    struct links links;
    const int rank = sw_comm_rank(world);
    (void)ctx;
    SW_TRY(open_links(world, &links));
    for (int i = 0; i < 2; i++) {
        if (rank == LAST && i == 0) {
            usleep((useconds_t)(0.85e6 * deadline_s));
        }
        SW_TRY(meet(&links, rank));
        SW_TRY(exchange_all(&links, world));
    }
    close_links(&links, false);
    return SW_OK;
}

static void who_comes_late_harms_nothing(void **state)
{
    (void)state;
    for (size_t i = 1; i < SW_LEN(wires); i++) {
        test_ranks_succeed(wires[i], RANKS, deadline_s, come_late, NULL);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_end_of_a_chain_is_named),
    cmocka_unit_test(who_comes_late_harms_nothing),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
