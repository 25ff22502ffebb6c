// SPDX-License-Identifier: Apache-2.0
// Bytes per second of each exchange among the GPUs of a machine by their library, NCCL or RCCL:
// ranks are threads with a GPU each. A rate is that of the bytes that cross the links of one GPU
// (the "bus bandwidth" of nccl-tests): (n - 1)/n of the whole for collectives, the bytes of a
// message for a pair, n - 1 slices sent for an all-to-all. Prints a JSON line for each exchange.
//
//     bench_exchange [--device cuda] [--ranks 2] [--bytes 268435456] [--times 20]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "spillway/comm.h"

enum { MOST_RANKS = 16, WARM = 2 };

enum move { GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL, NEIGHBOUR, N_MOVES };
static const char *const names[N_MOVES] = {"all_gather", "reduce_scatter", "broadcast", "alltoall",
                                           "sendrecv"};

struct run {
    const char *device;
    int64_t ranks, bytes, times;
    double seconds[N_MOVES]; /* of one exchange, by rank 0 */
    char library[32], what[256];
};

struct rank {
    struct run *run;
    struct sw_device *dev;
    struct sw_stream_queue *on;
    struct sw_ccl *ccl;
    int me, n;
    char *src, *dst; /* device [bytes] */
};

/* The ops of a move, of `bytes` bytes in all; returns their number. */
static int ops_of(const struct rank *r, enum move move, size_t bytes, struct sw_ccl_op *ops)
{
    const size_t slice = bytes / (size_t)r->n / 4096 * 4096;
    const int next = (r->me + 1) % r->n, before = (r->me + r->n - 1) % r->n;
    int n = 0;
    switch (move) {
    case GATHER:
        ops[0] = (struct sw_ccl_op){
            .verb = SW_CCL_ALL_GATHER, .src = r->src, .dst = r->dst, .bytes = slice};
        return 1;
    case REDUCE_SCATTER:
        ops[0] = (struct sw_ccl_op){.verb = SW_CCL_REDUCE_SCATTER,
                                    .src = r->src,
                                    .dst = r->dst,
                                    .bytes = slice,
                                    .dtype = SW_F32};
        return 1;
    case BROADCAST:
        ops[0] = (struct sw_ccl_op){
            .verb = SW_CCL_BROADCAST, .src = r->src, .dst = r->dst, .bytes = bytes};
        return 1;
    case ALL_TO_ALL:
        for (int p = 0; p < r->n; p++) {
            if (p != r->me) {
                char *from = r->src + (size_t)p * slice, *to = r->dst + (size_t)p * slice;
                ops[n++] =
                    (struct sw_ccl_op){.verb = SW_CCL_SEND, .peer = p, .src = from, .bytes = slice};
                ops[n++] = (struct sw_ccl_op){
                    .verb = SW_CCL_RECEIVE, .peer = p, .dst = to, .bytes = slice};
            }
        }
        return n;
    default:
        ops[0] =
            (struct sw_ccl_op){.verb = SW_CCL_SEND, .peer = next, .src = r->src, .bytes = bytes};
        ops[1] = (struct sw_ccl_op){
            .verb = SW_CCL_RECEIVE, .peer = before, .dst = r->dst, .bytes = bytes};
        return 2;
    }
}

/* Share of the whole that crosses the links of a GPU in one direction. */
static double share_of(enum move move, int n)
{
    return move == BROADCAST || move == NEIGHBOUR ? 1 : (double)(n - 1) / n;
}

static sw_status time_move(struct rank *r, sw_comm *comm, enum move move)
{
    struct sw_ccl_op ops[2 * MOST_RANKS];
    const int n = ops_of(r, move, (size_t)r->run->bytes, ops);
    int64_t begin = 0;
    for (int64_t i = 0; i < WARM + r->run->times; i++) {
        if (i == WARM) {
            SW_TRY(r->dev->ops->stream_wait(r->dev, r->on));
            SW_TRY(sw_comm_barrier(comm, "the start of a measurement"));
            begin = sw_now_ns();
        }
        SW_TRY(sw_device_exchange(r->dev, r->on, r->ccl, ops, n));
    }
    SW_TRY(r->dev->ops->stream_wait(r->dev, r->on));
    if (r->me == 0) {
        r->run->seconds[move] = (double)(sw_now_ns() - begin) * 1e-9 / (double)r->run->times;
    }
    return SW_OK;
}

static sw_status open_rank(struct rank *r, sw_comm *comm)
{
    const struct sw_device_place place = {r->me, r->n, r->n};
    const size_t bytes = (size_t)r->run->bytes;
    struct sw_ccl_facts facts;
    struct sw_ccl_options options = {.rank = r->me, .n = r->n, .deadline_s = 60, .name = "all"};
    void *src = NULL, *dst = NULL;
    SW_TRY(sw_device_open_at(r->run->device, 1, &place, &r->dev));
    if (!r->dev->ccl) {
        return SW_FAIL(SW_E_UNSUP, "device %s has no library for exchanges", r->run->device);
    }
    SW_TRY(r->dev->ccl->facts(r->dev, &facts));
    SW_TRY(r->dev->ops->stream_open(r->dev, &r->on));
    SW_TRY(sw_device_alloc(r->dev, SW_MEM_DEVICE, bytes, &src));
    r->src = src;
    SW_TRY(sw_device_alloc(r->dev, SW_MEM_DEVICE, bytes, &dst));
    r->dst = dst;
    SW_TRY(sw_device_fill(r->dev, r->on, src, 0, bytes));
    SW_TRY(r->me == 0 ? r->dev->ccl->new_id(r->dev, options.id) : SW_OK);
    SW_TRY(sw_comm_broadcast(comm, 0, options.id, sizeof options.id, "an id of the library"));
    if (r->me == 0) {
        snprintf(r->run->library, sizeof r->run->library, "%s", facts.name);
        snprintf(r->run->what, sizeof r->run->what, "%s", r->dev->what);
    }
    return r->dev->ccl->open(r->dev, &options, &r->ccl);
}

static void close_rank(struct rank *r, bool failed)
{
    if (!r->dev) {
        return;
    }
    if (r->on) {
        r->dev->ops->stream_close(r->dev, r->on);
    }
    if (r->ccl) {
        r->dev->ccl->close(r->dev, r->ccl, failed);
    }
    sw_device_free(r->dev, SW_MEM_DEVICE, r->src, (size_t)r->run->bytes);
    sw_device_free(r->dev, SW_MEM_DEVICE, r->dst, (size_t)r->run->bytes);
    sw_device_close(r->dev);
}

static sw_status run_rank(void *ctx, sw_comm *comm)
{
    struct rank r = {.run = ctx, .me = sw_comm_rank(comm), .n = sw_comm_size(comm)};
    sw_status st = open_rank(&r, comm);
    for (int move = 0; move < N_MOVES && st >= 0; move++) {
        st = time_move(&r, comm, (enum move)move);
    }
    close_rank(&r, st < 0);
    return st;
}

static bool parse(int argc, char **argv, struct run *run)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--device") == 0) {
            run->device = value;
        } else if (strcmp(argv[i], "--ranks") == 0) {
            run->ranks = atoll(value);
        } else if (strcmp(argv[i], "--bytes") == 0) {
            run->bytes = atoll(value);
        } else if (strcmp(argv[i], "--times") == 0) {
            run->times = atoll(value);
        } else {
            return false;
        }
    }
    return argc % 2 == 1 && run->ranks > 1 && run->ranks <= MOST_RANKS && run->times > 0 &&
           run->bytes >= run->ranks * 4096;
}

int main(int argc, char **argv)
{
    enum { DEADLINE_S = 300 };
    struct run run = {.device = "cuda", .ranks = 2, .bytes = 256 << 20, .times = 20};
    if (!parse(argc, argv, &run)) {
        fputs("usage: bench_exchange [--device cuda] [--ranks 2 .. 16] [--bytes N] [--times N]\n",
              stderr);
        return 2;
    }
    if (sw_threads_run((int)run.ranks, DEADLINE_S, run_rank, &run) < 0) {
        fprintf(stderr, "bench_exchange: %s\n", sw_error_message());
        return 1;
    }
    for (int move = 0; move < N_MOVES; move++) {
        printf("{\"exchange\":\"%s\",\"ranks\":%lld,\"bytes\":%lld,\"seconds\":%.6f,"
               "\"gb_s\":%.3f,\"library\":\"%s\",\"device\":\"%s\"}\n",
               names[move], (long long)run.ranks, (long long)run.bytes, run.seconds[move],
               share_of((enum move)move, (int)run.ranks) * (double)run.bytes / run.seconds[move] *
                   1e-9,
               run.library, run.what);
    }
    return 0;
}
