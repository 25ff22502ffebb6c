// SPDX-License-Identifier: Apache-2.0
// COST 3
// Exchanges among devices by the stand-ins for NCCL and RCCL, with ranks as threads and as
// processes. They move the right bytes, in the order of streams, and the stand-ins find what a
// library would hang in or get wrong.
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "support/test.h"

enum { MOST = 4, N = 3000 /* elements of a slice, more than the stand-in's memory has */ };
static const size_t slice = N * sizeof(float);

struct rank {
    const char *device;
    int me, n;
    unsigned char id[SW_CCL_ID_BYTES];
    sw_status (*run)(struct rank *);
    struct sw_device *dev;
    struct sw_stream_queue *on, *other;
    struct sw_ccl *ccl;
    float *src, *dst; /* on the device, [n] slices each */
    float *in, *out;  /* in host memory, the same */
    sw_status st;
    char message[512];
};

/* ---- a rank ---- */

static sw_status alloc(struct rank *r, enum sw_mem kind, float **out)
{
    void *mem = NULL;
    SW_TRY(sw_device_alloc(r->dev, kind, (size_t)r->n * slice, &mem));
    *out = mem;
    return SW_OK;
}

static float value(int rank, int i)
{
    return (float)(rank * 100000 + i) + 0.25F;
}

static sw_status open_rank(struct rank *r)
{
    struct sw_ccl_facts facts;
    struct sw_ccl_options options = {.rank = r->me, .n = r->n, .deadline_s = 60, .name = "all"};
    memcpy(options.id, r->id, sizeof options.id);
    SW_TRY(sw_device_open(r->device, 1, &r->dev));
    SW_TRY(r->dev->ccl->facts(r->dev, &facts));
    SW_TRY(r->dev->ops->stream_open(r->dev, &r->on));
    SW_TRY(r->dev->ops->stream_open(r->dev, &r->other));
    SW_TRY(alloc(r, SW_MEM_DEVICE, &r->src));
    SW_TRY(alloc(r, SW_MEM_DEVICE, &r->dst));
    SW_TRY(alloc(r, SW_MEM_HOST, &r->in));
    SW_TRY(alloc(r, SW_MEM_HOST, &r->out));
    for (int i = 0; i < r->n * N; i++) {
        r->in[i] = value(r->me, i);
    }
    return r->dev->ccl->open(r->dev, &options, &r->ccl);
}

static void close_rank(struct rank *r)
{
    const size_t bytes = (size_t)r->n * slice;
    if (!r->dev) {
        return;
    }
    if (r->ccl && r->st < 0) {
        r->dev->ccl->abort(r->dev, r->ccl);
    }
    for (int i = 0; i < 2; i++) {
        struct sw_stream_queue *stream = i == 0 ? r->on : r->other;
        if (stream) {
            r->dev->ops->stream_close(r->dev, stream);
        }
    }
    r->dev->ccl->close(r->dev, r->ccl, r->st < 0);
    sw_device_free(r->dev, SW_MEM_DEVICE, r->src, bytes);
    sw_device_free(r->dev, SW_MEM_DEVICE, r->dst, bytes);
    sw_device_free(r->dev, SW_MEM_HOST, r->in, bytes);
    sw_device_free(r->dev, SW_MEM_HOST, r->out, bytes);
    sw_device_close(r->dev);
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    r->st = open_rank(r);
    r->st = r->st < 0 ? r->st : r->run(r);
    snprintf(r->message, sizeof r->message, "%s", r->st < 0 ? sw_error_message() : "");
    close_rank(r);
    return NULL;
}

static void new_id(const char *device, unsigned char id[SW_CCL_ID_BYTES])
{
    struct sw_device *dev = NULL;
    struct sw_ccl_facts facts;
    assert_int_equal(sw_device_open(device, 1, &dev), SW_OK);
    assert_non_null(dev->ccl);
    if (dev->ccl->facts(dev, &facts) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(dev->ccl->new_id(dev, id), SW_OK);
    sw_device_close(dev);
}

static void skip_without_emulation(void)
{
    struct sw_device *dev = NULL;
    if (sw_device_open("emu", 1, &dev) < 0) {
        skip();
    }
    sw_device_close(dev);
}

static void make_ranks(const char *device, int n, sw_status (*run)(struct rank *),
                       struct rank ranks[MOST])
{
    unsigned char id[SW_CCL_ID_BYTES];
    new_id(device, id);
    for (int r = 0; r < n; r++) {
        ranks[r] = (struct rank){.device = device, .me = r, .n = n, .run = run};
        memcpy(ranks[r].id, id, sizeof id);
    }
}

/* The ranks are threads. */
static void run_threads(const char *device, int n, sw_status (*run)(struct rank *),
                        struct rank ranks[MOST])
{
    pthread_t threads[MOST];
    make_ranks(device, n, run, ranks);
    for (int r = 0; r < n; r++) {
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &ranks[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(threads[r], NULL);
    }
}

/* The ranks are processes. Returns a rank that failed, or -1. */
static int run_processes(const char *device, int n, sw_status (*run)(struct rank *))
{
    struct rank ranks[MOST];
    pid_t pids[MOST];
    int bad = -1;
    make_ranks(device, n, run, ranks);
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            rank_main(&ranks[r]);
            if (ranks[r].st < 0) {
                fprintf(stderr, "rank %d: %s\n", r, ranks[r].message);
            }
            _exit(ranks[r].st < 0);
        }
    }
    for (int r = 0; r < n; r++) {
        int status = 1;
        waitpid(pids[r], &status, 0);
        bad = status != 0 ? r : bad;
    }
    return bad;
}

/* ---- what the ranks do ---- */

/* The exchange begins after a copy to src, and a copy of dst follows it, on the same stream. */
static sw_status exchange(struct rank *r, const struct sw_ccl_op *ops, int n)
{
    const size_t bytes = (size_t)r->n * slice;
    SW_TRY(sw_device_copy(r->dev, r->on, r->src, r->in, bytes));
    SW_TRY(sw_device_fill(r->dev, r->on, r->dst, 0, bytes));
    SW_TRY(sw_device_exchange(r->dev, r->on, r->ccl, ops, n));
    SW_TRY(sw_device_copy(r->dev, r->on, r->out, r->dst, bytes));
    SW_TRY(sw_device_fill(r->dev, r->on, r->src, 0xff, bytes));
    return r->dev->ops->stream_wait(r->dev, r->on);
}

/* out [k] is what rank `from` has at element `at` of its memory. */
static sw_status expect(const struct rank *r, int k, int from, int at)
{
    for (int i = 0; i < N; i++) {
        if (r->out[k * N + i] != value(from, at + i)) {
            return SW_FAIL(SW_E_ARG, "slice %d, element %d: %g, wanted %g", k, i,
                           (double)r->out[k * N + i], (double)value(from, at + i));
        }
    }
    return SW_OK;
}

static sw_status gather(struct rank *r)
{
    const struct sw_ccl_op op = {
        .verb = SW_CCL_ALL_GATHER, .src = r->src, .dst = r->dst, .bytes = slice};
    SW_TRY(exchange(r, &op, 1));
    for (int k = 0; k < r->n; k++) {
        SW_TRY(expect(r, k, k, 0));
    }
    return SW_OK;
}

static sw_status all_to_all(struct rank *r)
{
    struct sw_ccl_op ops[2 * MOST];
    int n = 0;
    for (int i = 1; i < r->n; i++) {
        const int peer = (r->me + i) % r->n;
        ops[n++] = (struct sw_ccl_op){
            .verb = SW_CCL_SEND, .peer = peer, .src = r->src + peer * N, .bytes = slice};
        ops[n++] = (struct sw_ccl_op){
            .verb = SW_CCL_RECEIVE, .peer = peer, .dst = r->dst + peer * N, .bytes = slice};
    }
    SW_TRY(exchange(r, ops, n));
    for (int k = 0; k < r->n; k++) {
        SW_TRY(k == r->me ? SW_OK : expect(r, k, k, r->me * N));
    }
    return SW_OK;
}

static sw_status broadcast(struct rank *r)
{
    const struct sw_ccl_op op = {
        .verb = SW_CCL_BROADCAST, .peer = r->n - 1, .src = r->src, .dst = r->dst, .bytes = slice};
    SW_TRY(exchange(r, &op, 1));
    return expect(r, 0, r->n - 1, 0);
}

static sw_status reduce_scatter(struct rank *r)
{
    const struct sw_ccl_op op = {.verb = SW_CCL_REDUCE_SCATTER,
                                 .src = r->src,
                                 .dst = r->dst,
                                 .bytes = slice,
                                 .dtype = SW_F32};
    SW_TRY(exchange(r, &op, 1));
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int k = 0; k < r->n; k++) {
            sum += value(k, r->me * N + i);
        }
        if (fabsf(r->out[i] - sum) > sum / 1e5F) {
            return SW_FAIL(SW_E_ARG, "element %d: %g, wanted %g", i, (double)r->out[i],
                           (double)sum);
        }
    }
    return SW_OK;
}

static sw_status all_of_them(struct rank *r)
{
    for (int i = 0; i < 2; i++) { /* both ways in which the stand-in takes memory */
        SW_TRY(gather(r));
        SW_TRY(all_to_all(r));
        SW_TRY(broadcast(r));
        SW_TRY(reduce_scatter(r));
        SW_TRY(all_to_all(r));
    }
    return SW_OK;
}

static void bytes_arrive_in_stream_order(void **state)
{
    (void)state;
    static const char *const devices[] = {"emu", "emu:early", "emu:64"};
    skip_without_emulation();
    for (size_t d = 0; d < SW_LEN(devices); d++) {
        struct sw_device *dev = NULL;
        if (sw_device_open(devices[d], 1, &dev) < 0) { /* a build may have one of the warps */
            print_message("left out: %s\n", sw_error_message());
            continue;
        }
        sw_device_close(dev);
        for (int n = 2; n <= MOST; n++) {
            struct rank ranks[MOST];
            run_threads(devices[d], n, all_of_them, ranks);
            for (int r = 0; r < n; r++) {
                if (ranks[r].st < 0) {
                    fail_msg("%s, rank %d of %d: %s", devices[d], r, n, ranks[r].message);
                }
            }
            assert_int_equal(run_processes(devices[d], n, all_of_them), -1);
        }
    }
}

/* ---- what is wrong ---- */

/* Has the stream run by a thread, as an executor's queue has, until the library sees an error. */
struct runner {
    struct rank *r;
    pthread_t thread;
};

static void *run_stream(void *arg)
{
    struct rank *r = ((struct runner *)arg)->r;
    r->dev->ops->stream_wait(r->dev, r->on);
    return NULL;
}

static sw_status await_error(struct rank *r, const struct sw_ccl_op *ops, int n)
{
    struct runner runner = {.r = r};
    sw_status st = sw_device_exchange(r->dev, r->on, r->ccl, ops, n);
    char message[512];
    if (st < 0) {
        return st;
    }
    if (pthread_create(&runner.thread, NULL, run_stream, &runner) != 0) {
        return SW_E_NOMEM;
    }
    while (st >= 0) {
        usleep(1000);
        st = r->dev->ccl->check(r->dev, r->ccl);
    }
    snprintf(message, sizeof message, "%s", sw_error_message());
    r->dev->ccl->abort(r->dev, r->ccl);
    pthread_join(runner.thread, NULL);
    return SW_FAIL(st, "%s", message);
}

static sw_status send_first(struct rank *r)
{
    const struct sw_ccl_op op = {
        .verb = SW_CCL_SEND, .peer = (r->me + 1) % r->n, .src = r->src, .bytes = slice};
    return await_error(r, &op, 1);
}

static sw_status first_sends(struct rank *r)
{
    return r->me == 0 ? send_first(r) : SW_OK;
}

static sw_status other_order(struct rank *r)
{
    const struct sw_ccl_op ops[] = {
        {.verb = SW_CCL_ALL_GATHER, .src = r->src, .dst = r->dst, .bytes = 16},
        {.verb = SW_CCL_BROADCAST, .src = r->src, .dst = r->dst, .bytes = 16}};
    return await_error(r, &ops[r->me == 1], 1);
}

static sw_status other_count(struct rank *r)
{
    const struct sw_ccl_op op = {
        .verb = SW_CCL_ALL_GATHER, .src = r->src, .dst = r->dst, .bytes = r->me == 0 ? 16 : 20};
    return await_error(r, &op, 1);
}

static sw_status overlapping(struct rank *r)
{
    const struct sw_ccl_op op = {
        .verb = SW_CCL_ALL_GATHER, .src = r->dst + 1, .dst = r->dst, .bytes = 16};
    SW_TRY(sw_device_exchange(r->dev, r->on, r->ccl, &op, 1));
    return r->dev->ops->stream_wait(r->dev, r->on);
}

static sw_status other_stream(struct rank *r)
{
    const struct sw_ccl_op op = {
        .verb = SW_CCL_ALL_GATHER, .src = r->src, .dst = r->dst, .bytes = 16};
    SW_TRY(sw_device_exchange(r->dev, r->on, r->ccl, &op, 1));
    SW_TRY(r->dev->ops->stream_wait(r->dev, r->on));
    SW_TRY(sw_device_exchange(r->dev, r->other, r->ccl, &op, 1));
    return r->dev->ops->stream_wait(r->dev, r->other);
}

static sw_status outside(struct rank *r)
{
    const struct sw_ccl_op op = {
        .verb = SW_CCL_BROADCAST, .src = r->src, .dst = r->dst, .bytes = (size_t)r->n * slice + 1};
    return sw_device_exchange(r->dev, r->on, r->ccl, &op, 1);
}

/* All ranks fail, and a message has both texts. */
static void assert_found(int n, sw_status (*run)(struct rank *), const char *a, const char *b)
{
    struct rank ranks[MOST];
    bool found = false;
    run_threads("emu", n, run, ranks);
    for (int r = 0; r < n; r++) {
        if (ranks[r].st >= 0) {
            fail_msg("rank %d did not fail", r);
        }
        found = found || (strstr(ranks[r].message, a) && strstr(ranks[r].message, b));
    }
    if (!found) {
        fail_msg("wanted \"%s\" and \"%s\", found \"%s\"", a, b, ranks[0].message);
    }
}

static void mistakes_are_found(void **state)
{
    (void)state;
    skip_without_emulation();
    assert_found(2, send_first, "ranks wait for each other: rank", "ncclSend");
    assert_found(3, send_first, "ranks wait for each other: rank", "ncclSend");
    assert_found(3, other_order, "ncclAllGather", "ncclBroadcast");
    assert_found(2, other_count, "a message of", "expected");
    assert_found(2, overlapping, "ncclAllGather", "invalid argument: ncclAllGather: src and dst");
    assert_found(2, other_stream, "ncclAllGather", "another stream than that of earlier calls");
    assert_found(2, outside, "bytes at offset 0", "block of");
}

static void a_call_can_be_made_to_fail(void **state)
{
    (void)state;
    struct rank ranks[MOST];
    skip_without_emulation();
    assert_int_equal(setenv("SPILLWAY_STANDIN_NCCL", "rank=0,fail=1", 1), 0);
    run_threads("emu", 2, first_sends, ranks);
    assert_int_equal(unsetenv("SPILLWAY_STANDIN_NCCL"), 0);
    assert_int_equal(ranks[0].st, SW_E_DEVICE);
    assert_non_null(strstr(ranks[0].message, "injected failure in exchange 1: ncclSend"));
}

static void a_rank_that_does_not_come_is_missed(void **state)
{
    (void)state;
    struct rank r = {.device = "emu", .n = 2};
    struct sw_ccl_facts facts;
    struct sw_ccl_options options = {.rank = 1, .n = 2, .deadline_s = 0.05, .name = "all"};
    skip_without_emulation();
    new_id("emu", options.id);
    assert_int_equal(sw_device_open(r.device, 1, &r.dev), SW_OK);
    assert_int_equal(r.dev->ccl->facts(r.dev, &facts), SW_OK);
    assert_int_equal(r.dev->ccl->open(r.dev, &options, &r.ccl), SW_E_PEER);
    assert_non_null(strstr(sw_error_message(), "not all 2 ranks came within 0.05 s"));
    sw_device_close(r.dev);
}

static void an_old_library_is_refused(void **state)
{
    (void)state;
    struct sw_device *dev = NULL;
    struct sw_ccl_facts facts;
    skip_without_emulation();
    assert_int_equal(sw_device_open("emu", 1, &dev), SW_OK);
    assert_int_equal(setenv("SPILLWAY_STANDIN_NCCL_VERSION", "21706", 1), 0);
    assert_int_equal(dev->ccl->facts(dev, &facts), SW_E_UNSUP);
    assert_int_equal(unsetenv("SPILLWAY_STANDIN_NCCL_VERSION"), 0);
    assert_non_null(strstr(sw_error_message(), "is nccl 2.17.6; wanted 2.18 or later"));
    sw_device_close(dev);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bytes_arrive_in_stream_order),
    cmocka_unit_test(mistakes_are_found),
    cmocka_unit_test(a_call_can_be_made_to_fail),
    cmocka_unit_test(a_rank_that_does_not_come_is_missed),
    cmocka_unit_test(an_old_library_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
