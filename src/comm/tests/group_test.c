// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 120
// COST 5
// Groups of ranks, each used by its own thread: their exchanges run at the same time and move the
// right bytes, whatever their sizes and order. A failure of one ends all, and names ranks and
// groups as their caller does. The same functions run as processes of each MPI that the build
// found.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/tests/worlds.h"
#include "support/processes.h"
#include "support/scratch.h"
#include "support/test.h"

enum { RANKS = 4, COLUMNS = 2, MOST_GROUPS = 6, MOST_BYTES = 300000 };

/* ---- a mesh of 2 x 2 ranks ---- */

static const char *const names[RANKS] = {"pipe_00-tensor_00", "pipe_00-tensor_01",
                                         "pipe_01-tensor_00", "pipe_01-tensor_01"};

/* The rank's row (tensor), its column (pipe), and the world, each under two numbers. deadline_s: of
 * the first row */
static sw_status open_groups(sw_comm *world, double deadline_s, sw_comm **out)
{
    static const char *const kinds[] = {"tensor", "pipe", "all"};
    const int rank = sw_comm_rank(world), all[RANKS] = {0, 1, 2, 3};
    const int row[] = {rank - rank % COLUMNS, rank - rank % COLUMNS + 1};
    const int column[] = {rank % COLUMNS, rank % COLUMNS + COLUMNS};
    SW_TRY(sw_comm_name_ranks(world, names));
    for (int g = 0; g < MOST_GROUPS; g++) {
        const int kind = g % 3;
        const struct sw_group_options options = {.number = g + 1,
                                                 .ranks = kind == 0   ? row
                                                          : kind == 1 ? column
                                                                      : all,
                                                 .n = kind == 2 ? RANKS : 2,
                                                 .deadline_s =
                                                     g == 0 && row[0] == 0 ? deadline_s : 0,
                                                 .name = kinds[kind]};
        SW_TRY(sw_comm_open_group(world, &options, &out[g]));
    }
    return SW_OK;
}

static void close_groups(sw_comm **groups)
{
    for (int g = 0; g < MOST_GROUPS; g++) {
        sw_comm_close(groups[g], false);
    }
}

/* ---- what an exchange should move ---- */

/* A byte that a member sends in a turn of a group. */
static unsigned char byte_of(int key, int turn, int member, size_t i)
{
    return (unsigned char)(key * 31 + turn * 7 + member * 3 + (int)(i % 251));
}

static void fill(unsigned char *to, int key, int turn, int member, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        to[i] = byte_of(key, turn, member, i);
    }
}

static bool is_filled(const unsigned char *from, int key, int turn, int member, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (from[i] != byte_of(key, turn, member, i)) {
            return false;
        }
    }
    return true;
}

/* The same on all members of a group. */
static uint64_t draw(int key, int turn, uint64_t below)
{
    uint64_t x = (uint64_t)key * 0x9e3779b97f4a7c15u + (uint64_t)turn * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
    return (x ^ (x >> 32)) % below;
}

struct hammer {
    int key, n_turns;
    unsigned char src[RANKS * MOST_BYTES], dst[RANKS * MOST_BYTES];
};

static sw_status gather_or_spread(struct hammer *h, sw_comm *comm, int turn, size_t bytes)
{
    const int n = sw_comm_size(comm), me = sw_comm_rank(comm);
    const bool spread = draw(h->key, turn, 2) == 0;
    for (int r = 0; r < (spread ? n : 1); r++) {
        fill(h->src + (size_t)r * bytes, h->key + (spread ? r : 0), turn, me, bytes);
    }
    SW_TRY(spread ? sw_comm_all_to_all(comm, h->src, h->dst, bytes, "slices")
                  : sw_comm_all_gather(comm, h->src, h->dst, bytes, "a slice"));
    for (int r = 0; r < n; r++) {
        WANT(is_filled(h->dst + (size_t)r * bytes, h->key + (spread ? me : 0), turn, r, bytes));
    }
    return SW_OK;
}

/* Bytes of the slice from one member to another: at times none. */
static size_t counted(const struct hammer *h, int turn, int from, int to, size_t bytes)
{
    return draw(h->key, 1000 * turn + RANKS * from + to, 3) * bytes / 2;
}

/* Parts of slices, of sizes that differ by pair of members. */
static sw_status spread_counted(struct hammer *h, sw_comm *comm, int turn, size_t bytes)
{
    const int n = sw_comm_size(comm), me = sw_comm_rank(comm);
    size_t sent[RANKS], received[RANKS];
    for (int r = 0; r < n; r++) {
        fill(h->src + (size_t)r * bytes, h->key + r, turn, me, bytes);
        sent[r] = counted(h, turn, me, r, bytes);
        received[r] = counted(h, turn, r, me, bytes);
    }
    memset(h->dst, 0xee, (size_t)n * bytes);
    SW_TRY(sw_comm_all_to_all_counted(comm, h->src, h->dst, bytes, sent, received, "rows"));
    for (int r = 0; r < n; r++) {
        const unsigned char *slice = h->dst + (size_t)r * bytes;
        WANT(is_filled(slice, h->key + me, turn, r, received[r]));
        WANT(received[r] == bytes || (slice[received[r]] == 0xee && slice[bytes - 1] == 0xee));
    }
    return SW_OK;
}

static sw_status spread_from_one(struct hammer *h, sw_comm *comm, int turn, size_t bytes)
{
    const int root = (int)draw(h->key, turn + 1, (uint64_t)sw_comm_size(comm));
    fill(h->src, h->key, turn, sw_comm_rank(comm), bytes);
    SW_TRY(sw_comm_broadcast(comm, root, h->src, bytes, "a broadcast"));
    WANT(is_filled(h->src, h->key, turn, root, bytes));
    return SW_OK;
}

/* Each sends to the next one; the last one receives first, so that it ends. */
static sw_status pass_on(struct hammer *h, sw_comm *comm, int turn, size_t bytes)
{
    const int n = sw_comm_size(comm), me = sw_comm_rank(comm);
    const int next = (me + 1) % n, last = (me + n - 1) % n;
    fill(h->src, h->key, turn, me, bytes);
    if (me + 1 < n) {
        SW_TRY(sw_comm_send(comm, next, h->src, bytes, "a message"));
    }
    SW_TRY(sw_comm_receive(comm, last, h->dst, bytes, "a message"));
    if (me + 1 == n) {
        SW_TRY(sw_comm_send(comm, next, h->src, bytes, "a message"));
    }
    WANT(is_filled(h->dst, h->key, turn, last, bytes));
    return SW_OK;
}

/* Small whole numbers, whose sums are exact in any order. */
static sw_status add_up(struct hammer *h, sw_comm *comm, int turn, size_t bytes)
{
    const int n = sw_comm_size(comm), me = sw_comm_rank(comm);
    float *src = (float *)(void *)h->src, *dst = (float *)(void *)h->dst;
    const size_t n_elems = bytes / RANKS / sizeof *src;
    float *workspace = dst + n_elems;
    for (size_t i = 0; i < n_elems; i++) {
        src[i] = byte_of(h->key, turn, me, i);
    }
    const struct sw_comm_item item = {.op = SW_COMM_ALL_REDUCE,
                                      .src = src,
                                      .dst = dst,
                                      .slice_bytes = n_elems * sizeof *src,
                                      .what = "a sum",
                                      .workspace = workspace,
                                      .dtype = SW_F32};
    SW_TRY(sw_comm_run(comm, &item, 1));
    for (size_t i = 0; i < n_elems; i++) {
        float want = 0;
        for (int r = 0; r < n; r++) {
            want += byte_of(h->key, turn, r, i);
        }
        WANT(dst[i] == want);
    }
    return SW_OK;
}

static sw_status hammer(struct test_thread *t)
{
    static sw_status (*const fns[])(struct hammer *, sw_comm *, int, size_t) = {
        gather_or_spread, spread_counted, spread_from_one, pass_on, add_up};
    struct hammer *h = t->ctx;
    for (int turn = 0; turn < h->n_turns; turn++) {
        static const size_t sizes[] = {0, 1, 700, 40000, MOST_BYTES};
        const size_t bytes = sizes[draw(h->key, 3 * turn, SW_LEN(sizes))];
        SW_TRY(fns[draw(h->key, 5 * turn + 1, SW_LEN(fns))](h, t->comm, turn, bytes));
        SW_TRY(turn % 5 ? SW_OK : sw_comm_barrier(t->comm, "a turn"));
    }
    return SW_OK;
}

static void add_traffic(const sw_comm *comm, int64_t *calls, int64_t *sent)
{
    struct sw_traffic traffic;
    sw_comm_traffic(comm, &traffic);
    for (int op = 0; op < SW_COMM_OP_COUNT; op++) {
        *calls += traffic.calls[op];
        *sent += traffic.sent[op];
    }
}

/* All groups and the world at once, each in its own thread and its own random order. */
static sw_status hammer_all(void *ctx, sw_comm *world)
{
    sw_comm *groups[MOST_GROUPS];
    struct test_thread threads[MOST_GROUPS + 1];
    const int rank = sw_comm_rank(world);
    int64_t calls = 0, sent = 0, all_calls = 0, all_sent = 0;
    struct hammer *h = sw_alloc_zero("test", MOST_GROUPS + 1, sizeof *h);
    SW_TRY_ALLOC(h, "a test");
    SW_TRY(open_groups(world, 0, groups));
    for (int g = 0; g <= MOST_GROUPS; g++) {
        const int of_kind[] = {rank / COLUMNS, rank % COLUMNS, 0};
        h[g].key = 100 * g + (g < MOST_GROUPS ? 10 * of_kind[g % 3] : 0);
        h[g].n_turns = *(const int *)ctx;
        threads[g] = (struct test_thread){
            .fn = hammer, .comm = g < MOST_GROUPS ? groups[g] : world, .ctx = &h[g]};
        test_thread_start(&threads[g]);
    }
    sw_status st = SW_OK;
    for (int g = 0; g <= MOST_GROUPS; g++) {
        const sw_status mine = test_thread_join(&threads[g]);
        st = st < 0 ? st : mine;
    }
    for (int g = 0; g < MOST_GROUPS; g++) {
        add_traffic(groups[g], &calls, &sent);
    }
    add_traffic(world, &all_calls, &all_sent);
    close_groups(groups);
    sw_free(h);
    SW_TRY(st);
    WANT(calls > 0 && all_calls > calls && all_sent > sent);
    return SW_OK;
}

static const int many_turns = 20, few_turns = 6;

static void groups_exchange_at_once(void **state)
{
    (void)state;
    for (enum test_wire wire = 0; wire < WIRES; wire++) {
        const bool slow = wire >= WIRE_SLOW_THREADS;
        test_ranks_succeed(wire, RANKS, 60, hammer_all,
                           (void *)(uintptr_t)(slow ? &few_turns : &many_turns));
    }
}

/* ---- orders that would wait for each other on a shared wire ---- */

enum { MUCH = 6 << 20 };

static sw_status send_much(struct test_thread *t)
{
    return sw_comm_send(t->comm, 1, t->ctx, MUCH, "much");
}

static sw_status gather_word(struct test_thread *t)
{
    const int32_t word = sw_comm_rank(t->comm);
    int32_t words[RANKS];
    SW_TRY(sw_comm_all_gather(t->comm, &word, words, sizeof word, "a word"));
    WANT(words[0] == 0 && words[1] == 1);
    return SW_OK;
}

/* Two groups of the same two ranks. Rank 0 sends more than any wire buffers in one group, and rank
 * 1 receives it only after an exchange in the other group. */
static sw_status send_before_it_is_wanted(sw_comm *const *pair, char *data)
{
    struct test_thread sender = {.fn = send_much, .comm = pair[0], .ctx = data};
    struct test_thread other = {.comm = pair[1]};
    if (sw_comm_rank(pair[0]) == 0) {
        memset(data, 7, MUCH);
        test_thread_start(&sender);
        usleep(5000); /* it has begun; if not, the test is only weaker */
        const sw_status st = gather_word(&other);
        SW_TRY(test_thread_join(&sender));
        return st;
    }
    memset(data, 0, MUCH);
    SW_TRY(gather_word(&other));
    SW_TRY(sw_comm_receive(pair[0], 0, data, MUCH, "much"));
    WANT(data[0] == 7 && data[MUCH - 1] == 7);
    return SW_OK;
}

/* Rank 0 begins in one group, rank 1 in the other. */
static sw_status begin_in_opposite_order(sw_comm *const *pair)
{
    const int first = sw_comm_rank(pair[0]);
    struct test_thread threads[2];
    for (int i = 0; i < 2; i++) {
        threads[i] = (struct test_thread){.fn = gather_word, .comm = pair[(first + i) % 2]};
        test_thread_start(&threads[i]);
        usleep(5000);
    }
    const sw_status st = test_thread_join(&threads[0]);
    SW_TRY(test_thread_join(&threads[1]));
    return st;
}

static sw_status cross(void *ctx, sw_comm *world)
{
    (void)ctx;
    static const int ranks[] = {0, 1};
    sw_comm *pair[2];
    char *data = sw_alloc("test", MUCH);
    SW_TRY_ALLOC(data, "a test");
    sw_status st = SW_OK;
    if (sw_comm_rank(world) < 2) {
        for (int i = 0; i < 2; i++) {
            const struct sw_group_options options = {.number = i + 1, .ranks = ranks, .n = 2};
            SW_TRY(sw_comm_open_group(world, &options, &pair[i]));
        }
        for (int turn = 0; st >= 0 && turn < 3; turn++) {
            st = begin_in_opposite_order(pair);
            st = st < 0 ? st : send_before_it_is_wanted(pair, data);
        }
        sw_comm_close(pair[0], st < 0);
        sw_comm_close(pair[1], st < 0);
    }
    sw_free(data);
    return st;
}

static void opposite_orders_do_not_wait_for_each_other(void **state)
{
    (void)state;
    for (enum test_wire wire = 0; wire < WIRES; wire++) {
        test_ranks_succeed(wire, 2, 30, cross, NULL);
    }
}

/* ---- a pipeline: each rank has a thread that sends and one that receives ---- */

enum { MICRO = 4, ACTIVATION = 600000 };

struct stage {
    sw_comm *up[2], *down[2]; /* from the stage before and to it; to the next stage and from it */
    char *out, *in;
};

static sw_status send_all(struct test_thread *t)
{
    struct stage *s = t->ctx;
    for (int k = 0; k < MICRO; k++) {
        memset(s->out, k + 1, ACTIVATION);
        SW_TRY(s->down[0] ? sw_comm_send(s->down[0], 1, s->out, ACTIVATION, "x") : SW_OK);
        SW_TRY(s->up[1] ? sw_comm_send(s->up[1], 0, s->out, ACTIVATION, "dx") : SW_OK);
    }
    return SW_OK;
}

static sw_status receive(sw_comm *comm, int from, char *in, int k, const char *what)
{
    SW_TRY(sw_comm_receive(comm, from, in, ACTIVATION, what));
    WANT(in[0] == k + 1 && in[ACTIVATION - 1] == k + 1);
    return SW_OK;
}

/* In another order than they are sent. */
static sw_status receive_all(struct stage *s)
{
    for (int k = 0; k < MICRO; k++) {
        SW_TRY(s->down[1] ? receive(s->down[1], 1, s->in, k, "dx") : SW_OK);
        SW_TRY(s->up[0] ? receive(s->up[0], 0, s->in, k, "x") : SW_OK);
    }
    return SW_OK;
}

/* Two neighbours have a group for each direction. */
static sw_status open_links(sw_comm *world, struct stage *s)
{
    const int rank = sw_comm_rank(world);
    for (int link = rank - 1; link <= rank; link++) {
        const int ranks[] = {link, link + 1};
        for (int way = 0; way < 2 && link >= 0 && link + 1 < sw_comm_size(world); way++) {
            const struct sw_group_options options = {
                .number = 1 + 2 * link + way, .ranks = ranks, .n = 2, .name = "pipe"};
            SW_TRY(sw_comm_open_group(world, &options, link < rank ? &s->up[way] : &s->down[way]));
        }
    }
    return SW_OK;
}

static sw_status run_pipeline(void *ctx, sw_comm *world)
{
    (void)ctx;
    struct stage s = {.out = sw_alloc("test", ACTIVATION), .in = sw_alloc("test", ACTIVATION)};
    struct test_thread sender = {.fn = send_all, .ctx = &s};
    SW_TRY_ALLOC(s.out && s.in ? s.in : NULL, "a test");
    SW_TRY(open_links(world, &s));
    test_thread_start(&sender);
    sw_status st = receive_all(&s);
    const sw_status sent = test_thread_join(&sender);
    st = st < 0 ? st : sent;
    for (int way = 0; way < 2; way++) {
        sw_comm_close(s.up[way], st < 0);
        sw_comm_close(s.down[way], st < 0);
    }
    sw_free(s.out);
    sw_free(s.in);
    return st;
}

static void stages_send_and_receive_at_once(void **state)
{
    (void)state;
    for (enum test_wire wire = 0; wire < WIRES; wire++) {
        test_ranks_succeed(wire, RANKS, 30, run_pipeline, NULL);
    }
}

/* ---- failures ---- */

static bool says(const char *message, const char *words)
{
    return strstr(message, words) != NULL;
}

static sw_status exchange_until_it_fails(struct test_thread *t)
{
    sw_status st = SW_OK;
    while (st >= 0) {
        st = gather_word(t);
    }
    return st;
}

static sw_status wait_for_all(struct test_thread *t)
{
    return sw_comm_barrier(t->comm, "the end");
}

/* Rank 1 never comes to its row. Rank 0 waits for it there. The other row has nothing to do with
 * it, and goes on until the failure ends it. */
static sw_status stay_away(void *ctx, sw_comm *world)
{
    sw_comm *groups[MOST_GROUPS];
    const double *deadline_s = ctx;
    const int rank = sw_comm_rank(world);
    SW_TRY(open_groups(world, *deadline_s, groups));
    struct test_thread waits = {.fn = wait_for_all, .comm = rank == 1 ? groups[2] : world};
    struct test_thread works = {.fn = exchange_until_it_fails, .comm = groups[0]};
    if (rank != 1) {
        test_thread_start(&works);
    }
    test_thread_start(&waits);
    WANT(test_thread_join(&waits) == SW_E_PEER);
    WANT(rank == 1 || test_thread_join(&works) == SW_E_PEER);
    if (rank == 0) {
        WANT(says(works.message, "pipe_00-tensor_00 waited "));
        WANT(says(works.message, " s for pipe_00-tensor_01"));
        WANT(says(works.message, "all_gather of a word in group tensor"));
    }
    WANT(says(waits.message, "for pipe_00-tensor_01"));
    WANT(rank < 2 || says(works.message, "for pipe_00-tensor_01"));
    /* nothing goes on */
    WANT(sw_comm_barrier(groups[4], "more") == SW_E_PEER);
    sw_comm_close(groups[1], true);
    groups[1] = NULL;
    close_groups(groups);
    return SW_OK;
}

static void a_missing_rank_is_named_by_its_coordinates(void **state)
{
    (void)state;
    double deadline_s = 0.15;
    for (enum test_wire wire = 0; wire < WIRES; wire++) {
        test_ranks_succeed(wire, RANKS, 60, stay_away, &deadline_s);
    }
}

/* Waits until `n` ranks were counted. An exchange does not tell that: a rank that has left it may
 * give up while others are still in it. */
static void wait_for_ranks(atomic_int *counted, int n)
{
    while (atomic_load(counted) < n) {
        usleep(1000);
    }
}

/* Rank 3 gives up. All other threads wait in all groups, also for ranks that did not fail. */
static sw_status give_up(void *ctx, sw_comm *world)
{
    sw_comm *groups[MOST_GROUPS];
    struct test_thread threads[MOST_GROUPS];
    atomic_int *opened = ctx;
    SW_TRY(open_groups(world, 0, groups));
    atomic_fetch_add(opened, 1);
    if (sw_comm_rank(world) == 3) {
        wait_for_ranks(opened, RANKS);
        (void)SW_FAIL(SW_E_IO, "the disk is gone");
        sw_comm_abort(world, SW_E_IO);
        close_groups(groups);
        return SW_OK;
    }
    /* rank 0 has no group of two with rank 3, and waits there for ranks that are told later */
    for (int g = 0; g < MOST_GROUPS; g++) {
        threads[g] = (struct test_thread){.fn = exchange_until_it_fails, .comm = groups[g]};
        test_thread_start(&threads[g]);
    }
    for (int g = 0; g < MOST_GROUPS; g++) {
        WANT(test_thread_join(&threads[g]) == SW_E_PEER);
        WANT(says(threads[g].message, names[3]) && says(threads[g].message, "cannot go on"));
    }
    WANT(sw_comm_barrier(world, "the end") == SW_E_PEER);
    close_groups(groups);
    return SW_OK;
}

static void who_gives_up_ends_all_threads_of_all_ranks(void **state)
{
    (void)state;
    for (enum test_wire wire = 0; wire < WIRES; wire++) {
        atomic_int opened = 0;
        test_ranks_succeed(wire, RANKS, 60, give_up, &opened);
    }
}

static sw_status open_pair(sw_comm *world, int number, const char *name, sw_comm **out)
{
    static const int ranks[] = {0, 1};
    const struct sw_group_options options = {
        .number = number, .ranks = ranks, .n = 2, .deadline_s = 0.3, .name = name};
    return sw_comm_open_group(world, &options, out);
}

struct counts {
    atomic_int opened; /* ranks that have the group */
    atomic_int over;   /* 1: rank 0 has seen its thread return */
};

/* Rank 1 does nothing, and is told nothing that it would hear. Rank 0 gives up while one of its own
 * threads waits. */
static sw_status wake_oneself(void *ctx, sw_comm *world)
{
    static const int ranks[] = {0, 1};
    const struct sw_group_options options = {.number = 1, .ranks = ranks, .n = 2, .name = "data"};
    struct counts *counts = ctx;
    struct test_thread waits = {.fn = wait_for_all};
    SW_TRY(sw_comm_open_group(world, &options, &waits.comm));
    atomic_fetch_add(&counts->opened, 1);
    sw_status st = SW_E_PEER;
    if (sw_comm_rank(world) == 0) {
        wait_for_ranks(&counts->opened, 2);
        test_thread_start(&waits);
        usleep(5000);
        (void)SW_FAIL(SW_E_IO, "the disk is gone");
        sw_comm_abort(world, SW_E_IO);
        st = test_thread_join(&waits);
        atomic_store(&counts->over, 1);
    }
    wait_for_ranks(&counts->over, 1);
    sw_comm_close(waits.comm, true);
    WANT(st == SW_E_PEER);
    WANT(sw_comm_rank(world) == 1 || says(waits.message, "barrier of the end in group data"));
    return SW_OK;
}

static void who_gives_up_wakes_its_own_threads(void **state)
{
    (void)state;
    for (enum test_wire wire = 0; wire < WIRES; wire++) {
        struct counts counts = {0};
        test_ranks_succeed(wire, 2, 60, wake_oneself, &counts);
    }
}

/* Members that open different groups find out at once. */
static sw_status open_different_groups(void *ctx, sw_comm *world)
{
    (void)ctx;
    sw_comm *group;
    WANT(open_pair(world, 1 + sw_comm_rank(world), "data", &group) == SW_E_PEER);
    WANT(says(sw_error_message(), "open_group of group 1 (data) of 2 ranks, 0 1"));
    WANT(says(sw_error_message(), "group 2 (data)"));
    return SW_OK;
}

/* One member is in a collective of all ranks, the other one in the same collective of a group. */
static sw_status mistake_the_group(void *ctx, sw_comm *world)
{
    (void)ctx;
    int32_t word = 0, words[2];
    sw_comm *group;
    SW_TRY(open_pair(world, 1, "data", &group));
    sw_comm *mine = sw_comm_rank(world) ? group : world;
    WANT(sw_comm_all_gather(mine, &word, words, sizeof word, "a word") == SW_E_PEER);
    WANT(says(sw_error_message(), "waited 0.3 s for rank 0"));
    WANT(says(sw_error_message(), "all_gather of a word in group data"));
    WANT(sw_comm_all_gather(world, &word, words, sizeof word, "a word") == SW_E_PEER);
    WANT(says(sw_error_message(), "an earlier exchange failed"));
    sw_comm_close(group, true);
    return SW_OK;
}

/* Members at different exchanges of a group are told apart from each other. */
static sw_status diverge(void *ctx, sw_comm *world)
{
    (void)ctx;
    const bool second = sw_comm_rank(world) == 1;
    char data[8] = {0}, all[16];
    sw_comm *group;
    SW_TRY(open_pair(world, 1, "data", &group));
    WANT(sw_comm_all_gather(group, data, all, second ? 8 : 4, "a word") == SW_E_PEER);
    WANT(says(sw_error_message(), "ranks diverge"));
    WANT(says(sw_error_message(), "all_gather of a word in group data"));
    sw_comm_close(group, true);
    return SW_OK;
}

static void mistakes_about_groups_are_named(void **state)
{
    (void)state;
    static const sw_rank_fn fns[] = {open_different_groups, mistake_the_group, diverge};
    for (size_t i = 0; i < SW_LEN(fns); i++) {
        test_ranks_succeed(WIRE_THREADS, 2, 60, fns[i], NULL);
        test_ranks_succeed(WIRE_TCP, 2, 60, fns[i], NULL);
    }
}

/* Faults count the exchanges of all groups. */
static sw_status fail_in_a_group(void *ctx, sw_comm *ignored)
{
    struct sw_transport *transports = ctx, faulty;
    const struct sw_fault_options fault = {.fail_at = 4};
    const int rank = sw_comm_rank(ignored);
    sw_comm *world, *group;
    char data[4] = {0}, all[8];
    SW_TRY(rank == 0 ? sw_fault_open(&transports[0], &fault, &faulty) : SW_OK);
    SW_TRY(sw_comm_open(rank == 0 ? &faulty : &transports[1], &world));
    SW_TRY(sw_comm_name_ranks(world, names));
    SW_TRY(open_pair(world, 1, "data", &group)); /* the first exchange */
    SW_TRY(sw_comm_all_gather(group, data, all, 4, "a word"));
    SW_TRY(sw_comm_all_gather(world, data, all, 4, "a word"));
    const sw_status st = sw_comm_all_gather(group, data, all, 4, "another");
    WANT(st == (rank == 0 ? SW_E_IO : SW_E_PEER));
    WANT(says(sw_error_message(), "pipe_00-tensor_00"));
    WANT(rank == 1 || says(sw_error_message(), "exchange 4, all_gather of another in group data"));
    sw_comm_close(world, true);
    sw_comm_close(group, true);
    return SW_OK;
}

static void an_injected_fault_is_of_any_group(void **state)
{
    (void)state;
    struct sw_transport transports[2];
    assert_int_equal(sw_thread_transports_open(2, 60, transports), SW_OK);
    if (sw_threads_run(2, 60, fail_in_a_group, transports) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

/* ---- closing ---- */

static sw_status close_the_world_first(void *ctx, sw_comm *ignored)
{
    struct sw_transport *transports = ctx;
    int32_t word, words[2];
    struct sw_traffic traffic;
    sw_comm *world, *group[2];
    SW_TRY(sw_comm_open(&transports[sw_comm_rank(ignored)], &world));
    SW_TRY(open_pair(world, 1, NULL, &group[0]));
    SW_TRY(open_pair(world, 2, NULL, &group[1]));
    sw_comm_close(world, false);
    for (int i = 0; i < 2; i++) {
        word = sw_comm_rank(ignored);
        SW_TRY(sw_comm_all_gather(group[i], &word, words, sizeof word, "a word"));
        WANT(words[0] == 0 && words[1] == 1);
        sw_comm_traffic(group[i], &traffic);
        WANT(traffic.sent[SW_COMM_ALL_GATHER] == sizeof word);
        sw_comm_close(group[i], false);
    }
    return SW_OK;
}

static void a_world_may_be_closed_before_its_groups(void **state)
{
    (void)state;
    struct sw_transport transports[2];
    struct sw_alloc_stats before, after;
    sw_alloc_get_stats(&before);
    assert_int_equal(sw_thread_transports_open(2, 60, transports), SW_OK);
    if (sw_threads_run(2, 60, close_the_world_first, transports) < 0) {
        fail_msg("%s", sw_error_message());
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_bytes, before.live_bytes);
}

/* The error of the others has the name of a rank in its last exchange, although the communicator
 * that named it has other names or is closed. The names have the same length, so their memory is
 * used again. */
static sw_status rename_and_give_up(void *ctx, sw_comm *ignored)
{
    struct sw_transport *transports = ctx;
    const int rank = sw_comm_rank(ignored);
    static const char *const first[] = {"the first left", "the first right"},
                             *const others[] = {"the other left", "the other right"};
    sw_comm *world, *group;
    SW_TRY(sw_comm_open(&transports[rank], &world));
    SW_TRY(sw_comm_name_ranks(world, first));
    SW_TRY(open_pair(world, 1, "data", &group));
    SW_TRY(sw_comm_barrier(world, "names"));
    for (int i = 0; i < 3; i++) {
        SW_TRY(sw_comm_name_ranks(world, others));
    }
    sw_comm_close(world, false);
    if (rank == 1) {
        sw_comm_abort(group, SW_E_IO);
    }
    const sw_status st = sw_comm_barrier(group, "the end");
    WANT(st == SW_E_PEER && says(sw_error_message(), "the first right cannot go on"));
    sw_comm_close(group, true);
    return SW_OK;
}

static void a_name_outlives_the_communicator_that_gave_it(void **state)
{
    (void)state;
    struct sw_transport transports[2];
    assert_int_equal(sw_thread_transports_open(2, 60, transports), SW_OK);
    if (sw_threads_run(2, 60, rename_and_give_up, transports) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

/* A number may be used again, and a group may be opened while others work. */
static sw_status open_again(void *ctx, sw_comm *world)
{
    (void)ctx;
    int32_t word = 5, words[2];
    for (int turn = 0; turn < 4; turn++) {
        sw_comm *group;
        SW_TRY(open_pair(world, 1, "data", &group));
        for (int i = 0; i < turn; i++) {
            SW_TRY(sw_comm_all_gather(group, &word, words, sizeof word, "a word"));
        }
        sw_comm_close(group, false);
    }
    return SW_OK;
}

static void a_number_may_be_used_again(void **state)
{
    (void)state;
    test_ranks_succeed(WIRE_THREADS, 2, 60, open_again, NULL);
    test_ranks_succeed(WIRE_TCP, 2, 60, open_again, NULL);
}

/* ---- MPI: this program as processes of mpirun ---- */

static const struct mpi {
    const char *name, *module, *run;
} mpis[] = {
    {"Open MPI", "spillway_openmpi.so", "mpirun.openmpi --allow-run-as-root --oversubscribe"},
    {"MPICH", "spillway_mpich.so", "mpirun.mpich"},
};

static const char part_name[] = "SPILLWAY_GROUP_TEST_PART";

static sw_status run_well(sw_comm *world)
{
    SW_TRY(hammer_all((void *)(uintptr_t)&few_turns, world));
    SW_TRY(cross(NULL, world));
    SW_TRY(run_pipeline(NULL, world));
    return sw_comm_barrier(world, "the end");
}

/* A process of mpirun runs this. If it ends before the others, mpirun ends them. */
static int take_part(const char *part)
{
    const bool waits = strcmp(part, "missing, slowly") == 0;
    const bool fails = waits || strcmp(part, "missing") == 0;
    double deadline_s = 0.15;
    sw_comm *world = NULL;
    sw_status st = sw_world_open(fails && !waits ? 2 : 30, &world);
    if (st >= 0) {
        st = !world  ? SW_FAIL(SW_E_ARG, "no other process was found")
             : fails ? stay_away(&deadline_s, world)
                     : run_well(world);
    }
    printf("%s\n", st < 0 ? sw_error_message() : "it did well");
    fflush(stdout);
    usleep(fails ? 200000 : 0);
    sw_comm_close(world, fails);
    return st < 0 ? 1 : 0;
}

static bool all_did_well(const struct mpi *m, const char *part)
{
    char self[512] = "", line[1024];
    int n = 0;
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(line, sizeof line, "%s='%s' exec %s -n %d %s", part_name, part, m->run, RANKS, self);
    test_shell(line);
    for (const char *at = test_said; (at = strstr(at, "it did well")); at++) {
        n++;
    }
    return n == RANKS;
}

static void processes_of_mpi_have_groups(void **state)
{
    (void)state;
    const char *modules = getenv("SPILLWAY_MODULES");
    int n = 0;
    for (size_t i = 0; i < SW_LEN(mpis); i++) {
        const struct mpi *m = &mpis[i];
        if (!modules || test_system("test -r %s/%s && command -v %.*s > /dev/null", modules,
                                    m->module, (int)strcspn(m->run, " "), m->run) != 0) {
            continue;
        }
        n++;
        const bool missing = all_did_well(m, "missing") || all_did_well(m, "missing, slowly");
        if (!missing || !all_did_well(m, "well")) {
            fail_msg("%s: %s", m->name, test_said);
        }
    }
    if (n == 0) {
        skip();
    }
}

static int begin(char **argv)
{
    (void)argv;
    const char *part = getenv(part_name);
    sw_log_set_level(SW_LOG_ERROR);
    if (part) {
        exit(take_part(part));
    }
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* Open MPI leaves some of its own */
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(groups_exchange_at_once),
    cmocka_unit_test(opposite_orders_do_not_wait_for_each_other),
    cmocka_unit_test(stages_send_and_receive_at_once),
    cmocka_unit_test(a_missing_rank_is_named_by_its_coordinates),
    cmocka_unit_test(who_gives_up_ends_all_threads_of_all_ranks),
    cmocka_unit_test(who_gives_up_wakes_its_own_threads),
    cmocka_unit_test(mistakes_about_groups_are_named),
    cmocka_unit_test(an_injected_fault_is_of_any_group),
    cmocka_unit_test(a_world_may_be_closed_before_its_groups),
    cmocka_unit_test(a_name_outlives_the_communicator_that_gave_it),
    cmocka_unit_test(a_number_may_be_used_again),
    cmocka_unit_test(processes_of_mpi_have_groups),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .begin = begin};
