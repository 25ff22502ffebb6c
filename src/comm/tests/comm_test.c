// SPDX-License-Identifier: Apache-2.0
// Tests communicators over threads: every collective moves and counts the right bytes, and sums are
// in rank order. If a rank gives up, is absent, is silent or does something else, all others name
// it, and none hangs.
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tests/worlds.h"
#include "support/processes.h"
#include "support/test.h"

enum { MOST_RANKS = 5, N = 37 };

static bool same_words(const int32_t *words, int32_t first, int n)
{
    for (int i = 0; i < n; i++) {
        if (words[i] != first + i) {
            return false;
        }
    }
    return true;
}

static void fill_words(int32_t *words, int32_t first, int n)
{
    for (int i = 0; i < n; i++) {
        words[i] = first + i;
    }
}

static sw_status move_slices(void *ctx, sw_comm *comm)
{
    (void)ctx;
    const int rank = sw_comm_rank(comm), size = sw_comm_size(comm);
    int32_t src[MOST_RANKS * N], dst[MOST_RANKS * N];
    for (int turn = 0; turn < 50; turn++) {
        for (int r = 0; r < size; r++) {
            fill_words(src + r * N, rank * 10000 + r * 1000 + turn, N);
        }
        SW_TRY(sw_comm_all_to_all(comm, src, dst, N * sizeof *src, "a gradient"));
        for (int r = 0; r < size; r++) {
            WANT(same_words(dst + r * N, r * 10000 + rank * 1000 + turn, N));
        }
        memset(dst, 0xff, sizeof dst);
        memcpy(dst + rank * N, src, N * sizeof *src); /* in place */
        SW_TRY(sw_comm_all_gather(comm, dst + rank * N, dst, N * sizeof *src, "a parameter"));
        for (int r = 0; r < size; r++) {
            WANT(same_words(dst + r * N, r * 10000 + turn, N));
        }
    }
    struct sw_traffic traffic;
    sw_comm_traffic(comm, &traffic);
    WANT(traffic.calls[SW_COMM_ALL_TO_ALL] == 50 && traffic.calls[SW_COMM_ALL_GATHER] == 50);
    WANT(traffic.sent[SW_COMM_ALL_GATHER] == (int64_t)50 * (size - 1) * N * 4);
    WANT(traffic.sent[SW_COMM_BROADCAST] == 0);
    return SW_OK;
}

/* Rank a sends (3 a + b) % 5 words to rank b, of slices of N; at times nothing. */
static sw_status move_counted(void *ctx, sw_comm *comm)
{
    (void)ctx;
    const int rank = sw_comm_rank(comm), size = sw_comm_size(comm);
    int32_t src[MOST_RANKS * N], dst[MOST_RANKS * N];
    size_t sent[MOST_RANKS], received[MOST_RANKS];
    int64_t bytes = 0;
    for (int r = 0; r < size; r++) {
        fill_words(src + r * N, rank * 10000 + r * 1000, N);
        sent[r] = (size_t)((3 * rank + r) % 5) * sizeof *src;
        received[r] = (size_t)((3 * r + rank) % 5) * sizeof *src;
        bytes += r == rank ? 0 : (int64_t)sent[r];
    }
    memset(dst, 0xff, sizeof dst);
    SW_TRY(sw_comm_all_to_all_counted(comm, src, dst, N * sizeof *src, sent, received, "rows"));
    for (int r = 0; r < size; r++) {
        const int n = (3 * r + rank) % 5;
        WANT(same_words(dst + r * N, r * 10000 + rank * 1000, n));
        WANT(dst[r * N + n] == -1 && dst[r * N + N - 1] == -1);
    }
    struct sw_traffic traffic;
    sw_comm_traffic(comm, &traffic);
    WANT(traffic.calls[SW_COMM_ALL_TO_ALL] == 1 && traffic.sent[SW_COMM_ALL_TO_ALL] == bytes);
    sent[size - 1] = N * sizeof *src + 1;
    WANT(sw_comm_all_to_all_counted(comm, src, dst, N * sizeof *src, sent, received, "rows") ==
         SW_E_ARG);
    return SW_OK;
}

static sw_status move_the_rest(void *ctx, sw_comm *comm)
{
    (void)ctx;
    const int rank = sw_comm_rank(comm), size = sw_comm_size(comm);
    int32_t words[N] = {0};
    for (int root = 0; root < size; root++) {
        fill_words(words, rank == root ? 7 * root : -1, N);
        SW_TRY(sw_comm_broadcast(comm, root, words, sizeof words, "the words"));
        WANT(same_words(words, 7 * root, N));
    }
    /* along the chain of ranks: each adds one */
    fill_words(words, 0, N);
    if (rank > 0) {
        SW_TRY(sw_comm_receive(comm, rank - 1, words, sizeof words, "the line"));
        WANT(same_words(words, rank, N));
    }
    if (rank + 1 < size) {
        fill_words(words, rank + 1, N);
        SW_TRY(sw_comm_send(comm, rank + 1, words, sizeof words, "the line"));
    }
    SW_TRY(sw_comm_barrier(comm, "the end"));
    SW_TRY(sw_comm_agree(comm, SW_OK, "a save"));
    if (size > 1) {
        const sw_status st = sw_comm_agree(comm, rank == 1 ? SW_E_IO : SW_OK, "a save");
        WANT(st == (rank == 1 ? SW_E_IO : SW_E_PEER));
        WANT(rank == 1 || strstr(sw_error_message(), "a save: rank 1 failed"));
    }
    WANT(sw_comm_send(comm, rank, words, 4, "oneself") == SW_E_ARG);
    WANT(sw_comm_receive(comm, size, words, 4, "nobody") == SW_E_ARG);
    WANT(sw_comm_broadcast(comm, -1, words, 4, "nobody") == SW_E_ARG);
    return SW_OK;
}

/* Several items of different sizes in one exchange; one of them is empty. */
static sw_status move_items(void *ctx, sw_comm *comm)
{
    (void)ctx;
    const int rank = sw_comm_rank(comm), size = sw_comm_size(comm);
    int32_t a[MOST_RANKS * N], b[N], c[1], to_a[MOST_RANKS * N], to_b[MOST_RANKS * N];
    for (int r = 0; r < size; r++) {
        fill_words(a + r * N, rank * 1000 + r * 100, N);
    }
    fill_words(b, rank * 7000, N);
    const struct sw_comm_item items[] = {
        {.op = SW_COMM_REDUCE_SCATTER,
         .src = a,
         .dst = to_a,
         .slice_bytes = N * sizeof *a,
         .what = "a gradient"},
        {.op = SW_COMM_ALL_GATHER, .src = c, .dst = c, .slice_bytes = 0, .what = "nothing"},
        {.op = SW_COMM_ALL_GATHER,
         .src = b,
         .dst = to_b,
         .slice_bytes = (N - 1) * sizeof *b,
         .what = "a parameter"},
    };
    for (int turn = 0; turn < 5; turn++) {
        memset(to_a, 0xff, sizeof to_a);
        memset(to_b, 0xff, sizeof to_b);
        SW_TRY(sw_comm_run(comm, items, 3));
        for (int r = 0; r < size; r++) {
            WANT(same_words(to_a + r * N, r * 1000 + rank * 100, N));
            WANT(same_words(to_b + r * (N - 1), r * 7000, N - 1));
        }
    }
    struct sw_traffic traffic;
    sw_comm_traffic(comm, &traffic);
    WANT(traffic.calls[SW_COMM_ALL_GATHER] == 10 && traffic.calls[SW_COMM_REDUCE_SCATTER] == 5);
    WANT(traffic.sent[SW_COMM_ALL_GATHER] == (int64_t)5 * (size - 1) * (N - 1) * 4);
    return SW_OK;
}

/* The owner's sum equals the sum that a single rank computes, term by term. */
static sw_status sum(void *ctx, sw_comm *comm)
{
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    (void)ctx;
    const int rank = sw_comm_rank(comm), size = sw_comm_size(comm);
    for (size_t d = 0; d < SW_LEN(dtypes); d++) {
        float values[MOST_RANKS][MOST_RANKS * N], want[MOST_RANKS * N], acc[N];
        char src[MOST_RANKS * N * 4], workspace[MOST_RANKS * N * 4];
        float whole[MOST_RANKS * N], fp32[MOST_RANKS * N];
        for (int i = 0; i < size * N; i++) {
            want[i] = 0;
            for (int turn = 0; turn < 2; turn++) {
                for (int r = 0; r < size; r++) {
                    const uint64_t at = (uint64_t)(i + 1000 * r + 100000 * turn);
                    const float x = (float)sw_philox_normal(3, 1, at);
                    char narrow[4];
                    sw_convert(dtypes[d], narrow, SW_F32, &x, 1);
                    sw_convert(SW_F32, &values[r][i], dtypes[d], narrow, 1);
                    want[i] = turn + r == 0 ? values[r][i] : want[i] + values[r][i];
                }
            }
        }
        for (int turn = 0; turn < 2; turn++) {
            for (int i = 0; i < size * N; i++) {
                fp32[i] =
                    (float)sw_philox_normal(3, 1, (uint64_t)(i + 1000 * rank + 100000 * turn));
            }
            sw_convert(dtypes[d], src, SW_F32, fp32, size * N);
            const struct sw_reduction reduction = {.dtype = dtypes[d],
                                                   .src = src,
                                                   .workspace = workspace,
                                                   .acc = acc,
                                                   .n = N,
                                                   .fresh = turn == 0};
            SW_TRY(turn == 0 ? sw_comm_reduce_scatter(comm, &reduction, "a gradient")
                             : sw_comm_all_reduce(comm, &reduction, whole, "a gradient"));
        }
        WANT(memcmp(acc, want + rank * N, sizeof acc) == 0);
        WANT(memcmp(whole, want, (size_t)size * N * sizeof *whole) == 0);
    }
    return SW_OK;
}

/* Element i of rank r, in a dtype. */
static void draw(enum sw_dtype dtype, int rank, int64_t i, char *out)
{
    const float x = (float)sw_philox_normal(7, 2, (uint64_t)(i + 10000 * rank));
    sw_convert(dtype, out, SW_F32, &x, 1);
}

/* The sum in rank order in fp32, rounded once. */
static void draw_sum(enum sw_dtype dtype, int size, int64_t i, char *out)
{
    float sum = 0;
    for (int r = 0; r < size; r++) {
        char narrow[4];
        float x;
        draw(dtype, r, i, narrow);
        sw_convert(SW_F32, &x, dtype, narrow, 1);
        sum = r == 0 ? x : sum + x;
    }
    sw_convert(dtype, out, SW_F32, &sum, 1);
}

static bool is_sum(enum sw_dtype dtype, int size, int64_t first, int64_t n, const char *got)
{
    const size_t width = sw_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++) {
        char want[4];
        draw_sum(dtype, size, first + i, want);
        if (memcmp(want, got + (size_t)i * width, width) != 0) {
            return false;
        }
    }
    return true;
}

/* Sums of the dtype of the addends, in place or not, beside an item that is not a sum. */
static sw_status round_sums(sw_comm *comm, enum sw_dtype dtype, int64_t n, bool in_place)
{
    enum { MOST = 2100 };
    static _Thread_local char src[2][MOST_RANKS * MOST * 4], dst[2][MOST * 4];
    static _Thread_local char workspace[2][MOST_RANKS * MOST * 4];
    const int rank = sw_comm_rank(comm), size = sw_comm_size(comm);
    const size_t width = sw_dtype_bytes(dtype), bytes = (size_t)n * width;
    int32_t words[MOST_RANKS];
    for (int64_t i = 0; i < n * size; i++) {
        draw(dtype, rank, i, src[0] + (size_t)i * width);
        draw(dtype, rank, i, src[1] + (size_t)i * width);
    }
    const struct sw_comm_item items[] = {{.op = SW_COMM_ALL_REDUCE,
                                          .src = src[0],
                                          .dst = in_place ? src[0] : dst[0],
                                          .slice_bytes = bytes,
                                          .what = "a sum",
                                          .workspace = workspace[0],
                                          .dtype = dtype},
                                         {.op = SW_COMM_ALL_GATHER,
                                          .src = &rank,
                                          .dst = words,
                                          .slice_bytes = sizeof rank,
                                          .what = "ranks"},
                                         {.op = SW_COMM_REDUCE_SCATTER,
                                          .src = src[1],
                                          .dst = in_place ? src[1] : dst[1],
                                          .slice_bytes = bytes,
                                          .what = "a slice of a sum",
                                          .workspace = workspace[1],
                                          .dtype = dtype}};
    WANT(sw_comm_all_reduce_workspace(size, bytes, dtype) <= sizeof workspace[0]);
    SW_TRY(sw_comm_run(comm, items, 3));
    WANT(is_sum(dtype, size, 0, n, items[0].dst));
    WANT(is_sum(dtype, size, n * rank, n, items[2].dst));
    WANT(same_words(words, 0, size));
    return SW_OK;
}

static sw_status sum_rounded(void *ctx, sw_comm *comm)
{
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    static const int64_t lengths[] = {0, 1, 3, N, 2100};
    (void)ctx;
    const int rank = sw_comm_rank(comm), size = sw_comm_size(comm);
    int64_t sent = 0;
    for (size_t d = 0; d < SW_LEN(dtypes); d++) {
        for (size_t i = 0; i < SW_LEN(lengths); i++) {
            const int64_t n = lengths[i], part = (n + size - 1) / size;
            const int64_t first = rank * part < n ? rank * part : n;
            const int64_t mine = first + part < n ? part : n - first;
            const int64_t width = (int64_t)sw_dtype_bytes(dtypes[d]);
            SW_TRY(round_sums(comm, dtypes[d], n, (d + i) % 2 == 0));
            sent += width * (n - mine + mine * (size - 1));
        }
    }
    struct sw_traffic traffic;
    sw_comm_traffic(comm, &traffic);
    WANT(traffic.calls[SW_COMM_ALL_REDUCE] == (int64_t)(SW_LEN(dtypes) * SW_LEN(lengths)));
    WANT(traffic.sent[SW_COMM_ALL_REDUCE] == sent);
    char byte[8] = {0};
    struct sw_comm_item item = {.op = SW_COMM_ALL_REDUCE, .src = byte, .dst = byte, .what = "it"};
    item.workspace = byte;
    item.dtype = SW_I32;
    WANT(sw_comm_run(comm, &item, 1) == SW_E_ARG);
    WANT(strstr(sw_error_message(), "all_reduce of it: wanted f32, bf16 or f16, found i32"));
    item.dtype = SW_BF16;
    item.slice_bytes = 3;
    WANT(sw_comm_run(comm, &item, 1) == SW_E_ARG);
    item.slice_bytes = 2;
    item.workspace = NULL;
    WANT(sw_comm_run(comm, &item, 1) == SW_E_ARG);
    return SW_OK;
}

/* More than socket buffers hold, so that sending and receiving must alternate. */
static sw_status move_much(void *ctx, sw_comm *comm)
{
    enum { MUCH = 3 << 20 };
    (void)ctx;
    const int rank = sw_comm_rank(comm), size = sw_comm_size(comm);
    char *src = sw_alloc("test", MUCH), *dst = sw_alloc("test", (size_t)size * MUCH);
    SW_TRY_ALLOC(src && dst ? src : NULL, "a test");
    memset(src, 'a' + rank, MUCH);
    SW_TRY(sw_comm_all_gather(comm, src, dst, MUCH, "much"));
    for (int r = 0; r < size; r++) {
        WANT(dst[(size_t)r * MUCH] == 'a' + r && dst[(size_t)(r + 1) * MUCH - 1] == 'a' + r);
    }
    sw_free(src);
    sw_free(dst);
    return SW_OK;
}

static sw_status open_group(sw_comm *comm, int number, const int *ranks, int n, sw_comm **out)
{
    const struct sw_group_options options = {.number = number, .ranks = ranks, .n = n};
    return sw_comm_open_group(comm, &options, out);
}

/* Ranks in rows of two: exchanges in the group of a row, the group of a column, and among all, in
 * turn. */
static sw_status move_in_groups(void *ctx, sw_comm *comm)
{
    (void)ctx;
    const int rank = sw_comm_rank(comm), size = sw_comm_size(comm);
    int row[2], column[MOST_RANKS], n_row = 0, n_column = 0;
    for (int r = 0; r < size; r++) {
        if (r / 2 == rank / 2) {
            row[n_row++] = r;
        }
        if (r % 2 == rank % 2) {
            column[n_column++] = r;
        }
    }
    sw_comm *groups[2];
    SW_TRY(open_group(comm, 1, row, n_row, &groups[0]));
    SW_TRY(open_group(comm, 2, column, n_column, &groups[1]));
    int64_t sent = 0;
    for (int turn = 0; turn < 9; turn++) {
        const int *ranks = turn % 2 ? column : row;
        sw_comm *group = groups[turn % 2];
        const int n = turn % 2 ? n_column : n_row, me = sw_comm_rank(group);
        int32_t word = 100 * turn + rank, words[MOST_RANKS], all[MOST_RANKS];
        WANT(sw_comm_size(group) == n && ranks[me] == rank);
        SW_TRY(sw_comm_all_gather(group, &word, words, sizeof word, "a word"));
        for (int i = 0; i < n; i++) {
            WANT(words[i] == 100 * turn + ranks[i]);
        }
        SW_TRY(sw_comm_broadcast(group, turn % n, &word, sizeof word, "another"));
        WANT(word == 100 * turn + ranks[turn % n]);
        sent += (int64_t)sizeof word * (n - 1 + (turn % n == me ? n - 1 : 0));
        if (turn % 3 == 0) {
            SW_TRY(sw_comm_all_gather(comm, &rank, all, sizeof rank, "all"));
            WANT(same_words(all, 0, size));
            sent += (int64_t)sizeof rank * (size - 1);
        }
    }
    struct sw_traffic traffic;
    sw_comm_traffic(comm, &traffic); /* traffic of groups counts here, too */
    WANT(traffic.sent[SW_COMM_ALL_GATHER] + traffic.sent[SW_COMM_BROADCAST] == sent);
    SW_TRY(sw_comm_barrier(comm, "the end"));
    sw_comm_close(groups[0], false);
    sw_comm_close(groups[1], false);
    return SW_OK;
}

static void groups_that_are_none_are_refused(void **state)
{
    (void)state;
    static const int others[] = {1, 2}, down[] = {1, 0}, far[] = {0, 3};
    const struct sw_transport transport = {.rank = 0, .size = 3};
    sw_comm *comm, *group, *inner;
    assert_int_equal(sw_comm_open(&transport, &comm), SW_OK);
    assert_int_equal(open_group(comm, 1, others, 2, &group), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "that include rank 0"));
    assert_int_equal(open_group(comm, 1, down, 2, &group), SW_E_ARG);
    assert_int_equal(open_group(comm, 1, far, 2, &group), SW_E_ARG);
    assert_int_equal(open_group(comm, 1, far, 0, &group), SW_E_ARG);
    assert_int_equal(open_group(comm, 0, far, 1, &group), SW_E_ARG);
    assert_int_equal(open_group(comm, 1, far, 1, &group), SW_OK);
    assert_int_equal(open_group(group, 2, far, 1, &inner), SW_E_ARG);
    sw_comm_close(group, false);
    sw_comm_close(comm, false);
}

/* A transport of a caller that has no groups of its own: one thread uses it for all of them. */
static sw_status without_groups(void *ctx, sw_comm *ignored)
{
    struct sw_transport transport = ((struct sw_transport *)ctx)[sw_comm_rank(ignored)];
    sw_comm *comm;
    transport.open_group = NULL;
    SW_TRY(sw_comm_open(&transport, &comm));
    const sw_status st = move_in_groups(NULL, comm);
    sw_comm_close(comm, st < 0);
    return st;
}

static void groups_may_share_a_transport(void **state)
{
    (void)state;
    struct sw_transport transports[MOST_RANKS];
    assert_int_equal(sw_thread_transports_open(MOST_RANKS, 60, transports), SW_OK);
    if (sw_threads_run(MOST_RANKS, 60, without_groups, transports) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

/* The names of a group are at its ranks in the transport; other ranks keep theirs. */
static sw_status name_a_pair(void *ctx, sw_comm *ignored)
{
    static const char *const all[] = {"one", "two", "three", "four"}, *const pair[] = {"left",
                                                                                       "right"};
    static const int ranks[] = {2, 3};
    const int rank = sw_comm_rank(ignored);
    struct sw_transport transport = ((struct sw_transport *)ctx)[rank];
    sw_comm *world, *group;
    transport.open_group = NULL;
    SW_TRY(sw_comm_open(&transport, &world));
    SW_TRY(sw_comm_name_ranks(world, all));
    for (int turn = 0; turn < 2 && rank >= 2; turn++) {
        SW_TRY(open_group(world, 1 + turn, ranks, 2, &group));
        SW_TRY(turn ? sw_comm_name_ranks(group, pair) : SW_OK);
        WANT(sw_comm_agree(group, rank == 3 ? SW_E_IO : SW_OK, "a file") ==
             (rank == 3 ? SW_E_IO : SW_E_PEER));
        WANT(rank == 3 ||
             strstr(sw_error_message(), turn ? "a file: right failed" : "a file: four failed"));
        sw_comm_close(group, false);
    }
    sw_comm_close(world, false);
    return SW_OK;
}

static void a_group_without_a_transport_has_names(void **state)
{
    (void)state;
    struct sw_transport transports[4];
    assert_int_equal(sw_thread_transports_open(4, 60, transports), SW_OK);
    if (sw_threads_run(4, 60, name_a_pair, transports) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

/* The sum of the bytes is the same on both ranks. */
static sw_status mix_sizes(void *ctx, sw_comm *comm)
{
    const bool *names_it = ctx;
    const int rank = sw_comm_rank(comm);
    const size_t first = rank ? 16 : 8;
    char src[24] = {0}, dst[2][32];
    const struct sw_comm_item items[] = {
        {.op = SW_COMM_ALL_GATHER, .src = src, .dst = dst[0], .slice_bytes = first, .what = "w"},
        {.op = SW_COMM_ALL_GATHER,
         .src = src,
         .dst = dst[1],
         .slice_bytes = 24 - first,
         .what = "v"}};
    memset(dst, 7, sizeof dst);
    WANT(sw_comm_run(comm, items, 2) == SW_E_PEER);
    WANT(strstr(sw_error_message(), "ranks diverge") && strstr(sw_error_message(), "do not fit"));
    WANT(!*names_it || strstr(sw_error_message(), "message 1 has "));
    for (size_t i = 0; i < sizeof dst[0]; i++) {
        WANT(dst[0][i] == 7 && dst[1][i] == 7);
    }
    return SW_OK;
}

static void messages_of_other_sizes_do_not_fit(void **state)
{
    (void)state;
    static const enum test_wire wires[] = {WIRE_THREADS, WIRE_TCP, WIRE_MPI};
    for (size_t i = 0; i < SW_LEN(wires); i++) {
        bool names_it = wires[i] == WIRE_THREADS;
        test_ranks_succeed(wires[i], 2, 60, mix_sizes, &names_it);
    }
}

static void collectives_move(void **state)
{
    (void)state;
    static const sw_rank_fn fns[] = {move_slices, move_items,  move_counted, move_the_rest,
                                     sum,         sum_rounded, move_much,    move_in_groups};
    for (int size = 1; size <= MOST_RANKS; size++) {
        for (size_t i = 0; i < SW_LEN(fns); i++) {
            test_ranks_succeed(WIRE_THREADS, size, 60, fns[i], NULL);
            test_ranks_succeed(WIRE_TCP, size, 60, fns[i], NULL);
        }
    }
}

struct meeting {
    int port;
    double deadline_s;
};

static sw_status connect_rank(const struct meeting *m, int rank, int size, struct sw_transport *out)
{
    const struct sw_tcp_options options = {.rank = rank,
                                           .size = size,
                                           .host = "127.0.0.1",
                                           .port = m->port,
                                           .deadline_s = m->deadline_s};
    return sw_tcp_open(&options, out);
}

static sw_status come_in_part(void *ctx, sw_comm *thread)
{
    struct sw_transport transport;
    if (sw_comm_rank(thread) == 2) {
        return SW_OK;
    }
    WANT(connect_rank(ctx, sw_comm_rank(thread), 3, &transport) == SW_E_PEER);
    WANT(strstr(sw_error_message(), "for rank 2 to connect"));
    return SW_OK;
}

static void a_meeting_names_who_is_missing(void **state)
{
    (void)state;
    struct meeting m = {test_free_port(), 0.5};
    if (sw_threads_run(3, 60, come_in_part, &m) < 0) {
        fail_msg("%s", sw_error_message());
    }
    struct sw_tcp_options wrong = {
        .rank = 3, .size = 3, .host = "127.0.0.1", .port = 1, .deadline_s = 1};
    struct sw_transport transport;
    assert_int_equal(sw_tcp_open(&wrong, &transport), SW_E_ARG);
    wrong.rank = 0;
    wrong.deadline_s = 2.0 * SW_DEADLINE_MAX_S; /* in milliseconds it exceeds an int */
    assert_int_equal(sw_tcp_open(&wrong, &transport), SW_E_ARG);
}

/* ---- failures ---- */

enum mode { GIVES_UP, STAYS_AWAY, COMES_WITH_ANOTHER, OTHER_SIZE, FAILS, IS_SILENT, MODES };

struct outcome {
    enum mode mode;
    bool counted; /* the second exchange */
    sw_status st[4];
    char message[4][512];
};

/* A gather of slices, or an all-to-all of parts of them. */
static sw_status exchange(bool counted, sw_comm *comm, size_t bytes)
{
    const size_t part = bytes / 4, parts[4] = {part, part, part, part};
    int32_t src[8] = {0}, dst[8];
    return counted ? sw_comm_all_to_all_counted(comm, src, dst, 8, parts, parts, "second")
                   : sw_comm_all_gather(comm, src, dst, bytes, "second");
}

static sw_status second(const struct outcome *o, sw_comm *comm)
{
    int32_t src[4] = {0}, dst[8];
    if (sw_comm_rank(comm) != 2) {
        return exchange(o->counted, comm, 4);
    }
    switch (o->mode) {
    case GIVES_UP:
        sw_comm_abort(comm, SW_E_IO);
        return SW_E_IO;
    case STAYS_AWAY:
        return SW_OK;
    case COMES_WITH_ANOTHER:
        return sw_comm_all_to_all(comm, src, dst, 4, "another");
    case OTHER_SIZE:
        return exchange(o->counted, comm, 8);
    default:
        return exchange(o->counted, comm, 4);
    }
}

static sw_status misbehave(void *ctx, sw_comm *comm)
{
    struct outcome *o = ctx;
    const int rank = sw_comm_rank(comm);
    int32_t src[4] = {0}, dst[4];
    /* a slow rank may already hear in the first that rank 2 has given up in the second */
    o->st[rank] = sw_comm_all_gather(comm, src, dst, 4, "first");
    if (o->st[rank] >= 0) {
        o->st[rank] = second(o, comm);
    }
    snprintf(o->message[rank], sizeof o->message[rank], "%s", sw_error_message());
    if (o->st[rank] < 0) {
        sw_comm_abort(comm, o->st[rank]);
    }
    return SW_OK;
}

struct caller { /* one rank, whose transport is wrapped */
    struct outcome *outcome;
    struct sw_transport transport;
};

static sw_status with_fault(void *ctx, sw_comm *ignored)
{
    struct caller *c = &((struct caller *)ctx)[sw_comm_rank(ignored)];
    const enum mode mode = c->outcome->mode;
    const struct sw_fault_options options = {
        .fail_at = mode == FAILS ? 2 : 0, .silent_at = mode == IS_SILENT ? 2 : 0, .delay_s = 0.001};
    struct sw_transport faulty = c->transport;
    sw_comm *comm = NULL;
    if (faulty.rank == 2) {
        SW_TRY(sw_fault_open(&c->transport, &options, &faulty));
    }
    SW_TRY(sw_comm_open(&faulty, &comm));
    SW_TRY(misbehave(c->outcome, comm));
    sw_comm_close(comm, false);
    return SW_OK;
}

/* NULL if all name rank 2; else the first other message. */
static const char *misbehave_together(enum mode mode, bool counted, bool tcp, double deadline_s,
                                      struct outcome *outcome)
{
    struct caller callers[4];
    struct sw_transport transports[4];
    *outcome = (struct outcome){.mode = mode, .counted = counted};
    if (tcp) {
        test_ranks_succeed(WIRE_TCP, 4, deadline_s, misbehave, outcome);
    } else if (mode == FAILS || mode == IS_SILENT) {
        assert_int_equal(sw_thread_transports_open(4, deadline_s, transports), SW_OK);
        for (int r = 0; r < 4; r++) {
            callers[r] = (struct caller){outcome, transports[r]};
        }
        assert_int_equal(sw_threads_run(4, 600, with_fault, callers), SW_OK);
    } else {
        assert_int_equal(sw_threads_run(4, deadline_s, misbehave, outcome), SW_OK);
    }
    for (int r = 0; r < 4; r++) {
        if (r != 2 && (outcome->st[r] != SW_E_PEER || !strstr(outcome->message[r], "rank 2"))) {
            return outcome->message[r];
        }
    }
    return mode == STAYS_AWAY || outcome->st[2] < 0 ? NULL : "rank 2 did well";
}

/* On a busy machine other ranks are late, too. A longer deadline must then tell them apart. */
static void name_failures(bool counted, bool tcp)
{
    for (enum mode mode = 0; mode < (tcp ? FAILS : MODES); mode++) {
        const bool waits = mode == STAYS_AWAY || mode == IS_SILENT;
        struct outcome outcome;
        const char *wrong = "";
        for (double deadline_s = waits ? 0.3 : 600; wrong && deadline_s < 700; deadline_s *= 4) {
            wrong = misbehave_together(mode, counted, tcp, deadline_s, &outcome);
        }
        if (wrong) {
            fail_msg("%s, mode %d%s: \"%s\" does not name rank 2", tcp ? "TCP" : "threads", mode,
                     counted ? ", counted" : "", wrong);
        }
    }
}

static void failures_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        name_failures(i % 2, i / 2);
    }
}

/* Only rank 0 communicates with rank 1, which is gone. It must tell rank 2, to which it may or may
 * not have begun to send. */
static sw_status lose_one(void *ctx, sw_comm *comm)
{
    enum { MUCH = 8 << 20 };
    const int rank = sw_comm_rank(comm);
    SW_TRY(sw_comm_barrier(comm, "the begin"));
    if (rank == 1) {
        return SW_OK;
    }
    char *data = sw_alloc_zero("test", MUCH, 1);
    SW_TRY_ALLOC(data, "a test");
    if (rank == 0) {
        usleep(100000);
    }
    sw_status st = sw_comm_broadcast(comm, 0, data, MUCH, "much");
    st = st < 0 ? st : sw_comm_barrier(comm, "the end");
    sw_free(data);
    WANT(st == SW_E_PEER && strstr(sw_error_message(), "rank 1 ("));
    sw_comm_abort(comm, st);
    if (rank == 2) {
        *(int *)ctx = 1;
    }
    return SW_OK;
}

static void a_rank_that_died_is_named_by_those_who_do_not_talk_to_it(void **state)
{
    (void)state;
    int done = 0;
    test_ranks_succeed(WIRE_TCP, 3, 60, lose_one, &done);
    assert_int_equal(done, 1);
}

/* Rank 1 sends a message to rank 0. It then cannot continue because rank 2 is gone, says so, and
 * leaves. Rank 0 arrives only then, with more data than socket buffers hold. The connection is
 * broken, and the reason comes after the message. */
static sw_status come_late(void *ctx, sw_comm *thread)
{
    enum { MUCH = 8 << 20 };
    const int rank = sw_comm_rank(thread);
    struct sw_transport transport;
    sw_comm *comm = NULL;
    int32_t word = 0;
    SW_TRY(connect_rank(ctx, rank, 3, &transport));
    SW_TRY(sw_comm_open(&transport, &comm));
    if (rank == 1) {
        SW_TRY(sw_comm_send(comm, 0, &word, sizeof word, "a word"));
        const sw_status st = sw_comm_receive(comm, 2, &word, sizeof word, "what never comes");
        WANT(st == SW_E_PEER);
        sw_comm_abort(comm, st);
    }
    if (rank != 0) {
        sw_comm_close(comm, true);
        return sw_comm_barrier(thread, "both have left");
    }
    char *much = sw_alloc_zero("test", MUCH, 1);
    SW_TRY_ALLOC(much, "a test");
    SW_TRY(sw_comm_barrier(thread, "both have left"));
    WANT(sw_comm_send(comm, 1, much, MUCH, "much") == SW_E_PEER);
    WANT(strstr(sw_error_message(), "rank 1 (") && strstr(sw_error_message(), "cannot go on"));
    WANT(strstr(sw_error_message(), "rank 2 ("));
    sw_free(much);
    sw_comm_close(comm, true);
    return SW_OK;
}

static void why_is_heard_behind_what_nobody_has_read(void **state)
{
    (void)state;
    sw_status st = SW_E_IO;
    for (int turn = 0; turn < 3 && st == SW_E_IO; turn++) { /* another process may take the port */
        struct meeting m = {test_free_port(), 60};
        st = sw_threads_run(3, 60, come_late, &m);
    }
    if (st < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static sw_status fail_one(void *ctx, sw_comm *comm)
{
    (void)ctx;
    int32_t src[4] = {0}, dst[4];
    if (sw_comm_rank(comm) == 1) {
        return SW_FAIL(SW_E_IO, "the disk is gone");
    }
    return sw_comm_all_gather(comm, src, dst, 4, "a parameter");
}

static void first_cause_is_returned(void **state)
{
    (void)state;
    assert_int_equal(sw_threads_run(4, 60, fail_one, NULL), SW_E_IO);
    assert_string_equal(sw_error_message(), "rank 1: the disk is gone");
    assert_int_equal(sw_threads_run(0, 60, fail_one, NULL), SW_E_ARG);
    assert_int_equal(sw_threads_run(SW_THREAD_RANKS_MAX + 1, 60, fail_one, NULL), SW_E_ARG);
    assert_int_equal(sw_threads_run(2, 0, fail_one, NULL), SW_E_ARG);
    assert_int_equal(sw_threads_run(2, NAN, fail_one, NULL), SW_E_ARG);
}

static void plans_need_no_transport(void **state)
{
    (void)state;
    sw_comm *comm = NULL;
    int32_t word = 0, words[3];
    const struct sw_transport none = {.rank = 1, .size = 3}, wrong = {.rank = 3, .size = 3};
    assert_int_equal(sw_comm_open(&none, &comm), SW_OK);
    assert_int_equal(sw_comm_rank(comm), 1);
    assert_int_equal(sw_comm_all_gather(comm, &word, words, 4, "a word"), SW_E_ARG);
    sw_comm_close(comm, false);
    assert_int_equal(sw_comm_open(&wrong, &comm), SW_E_ARG);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(messages_of_other_sizes_do_not_fit),
    cmocka_unit_test(collectives_move),
    cmocka_unit_test(groups_may_share_a_transport),
    cmocka_unit_test(a_group_without_a_transport_has_names),
    cmocka_unit_test(groups_that_are_none_are_refused),
    cmocka_unit_test(a_meeting_names_who_is_missing),
    cmocka_unit_test(failures_are_named),
    cmocka_unit_test(first_cause_is_returned),
    cmocka_unit_test(plans_need_no_transport),
    cmocka_unit_test(a_rank_that_died_is_named_by_those_who_do_not_talk_to_it),
    cmocka_unit_test(why_is_heard_behind_what_nobody_has_read),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
