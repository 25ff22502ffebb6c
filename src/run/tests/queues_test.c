// SPDX-License-Identifier: Apache-2.0
// Tests the queues beside the computing thread, with jobs that only record what happens to them.
#include "run/queues.h"

#include <pthread.h>
#include <string.h>

#include "support/test.h"

enum { JOBS = 100 };

struct notes {
    pthread_mutex_t lock;
    int32_t begun[SW_QUEUE_COUNT][2 * JOBS], ended[SW_QUEUE_COUNT][JOBS];
    int n_begun[SW_QUEUE_COUNT], n_ended[SW_QUEUE_COUNT];
    int under_way[SW_QUEUE_COUNT], most_under_way[SW_QUEUE_COUNT];
    bool slots[SW_QUEUE_COUNT][SW_QUEUE_BEGUN], slot_twice;
    bool is_closed; /* no job begins */
    pthread_cond_t opened;
    int beside_last;   /* jobs in flight when a job began that follows the one before it */
    int32_t bad_begin; /* job that fails when it begins; -1 = none */
    int32_t bad_end;
    int32_t reads_done_when[JOBS]; /* number of reads that had ended when a write began */
};

static sw_status begin(void *ctx, enum sw_queue queue, const struct sw_queue_job *job, int slot)
{
    struct notes *n = ctx;
    sw_status st = SW_OK;
    pthread_mutex_lock(&n->lock);
    while (n->is_closed) {
        pthread_cond_wait(&n->opened, &n->lock);
    }
    if (job->instr == n->bad_begin) {
        st = SW_FAIL(SW_E_IO, "job %d did not begin", job->instr);
    } else {
        n->slot_twice = n->slot_twice || n->slots[queue][slot];
        n->slots[queue][slot] = true;
        n->begun[queue][n->n_begun[queue]++] = job->instr;
        n->beside_last += job->needs[queue] >= 0 ? n->under_way[queue] : 0;
        n->under_way[queue]++;
        if (n->under_way[queue] > n->most_under_way[queue]) {
            n->most_under_way[queue] = n->under_way[queue];
        }
        if (queue == SW_QUEUE_WRITE) {
            n->reads_done_when[job->instr / 2] = n->n_ended[SW_QUEUE_READ];
        }
    }
    pthread_mutex_unlock(&n->lock);
    return st;
}

static sw_status end(void *ctx, enum sw_queue queue, const struct sw_queue_job *job, int slot)
{
    struct notes *n = ctx;
    pthread_mutex_lock(&n->lock);
    n->slots[queue][slot] = false;
    n->ended[queue][n->n_ended[queue]++] = job->instr;
    n->under_way[queue]--;
    const bool bad = job->instr == n->bad_end;
    pthread_mutex_unlock(&n->lock);
    return bad ? SW_FAIL(SW_E_IO, "job %d did not end well", job->instr) : SW_OK;
}

/* Even instructions are reads; each odd one is a write that waits for the previous read. */
struct bench {
    struct sw_instr instrs[2 * JOBS];
    struct sw_program program;
    struct sw_meter meter;
    struct notes notes;
    struct sw_device *dev;
    struct sw_stream_queue *compute;
    struct sw_queues *queues;
};

static const struct sw_waiter waiter = {0, 0};

static void open_bench(struct bench *b, const char *device, int most_begun, int64_t most_jobs)
{
    memset(b, 0, sizeof *b);
    pthread_mutex_init(&b->notes.lock, NULL);
    pthread_cond_init(&b->notes.opened, NULL);
    b->notes.bad_begin = b->notes.bad_end = -1;
    for (int i = 0; i < 2 * JOBS; i++) {
        b->instrs[i].queue = i % 2 ? SW_QUEUE_WRITE : SW_QUEUE_READ;
        for (int q = 0; q < SW_QUEUE_COUNT; q++) {
            b->instrs[i].waits[q] = i % 2 && q == SW_QUEUE_READ ? i - 1 : -1;
        }
    }
    b->program.instrs = b->instrs;
    b->program.n_instrs = 2 * JOBS;
    assert_int_equal(sw_device_open(device, 1, &b->dev), SW_OK);
    assert_int_equal(b->dev->ops->stream_open(b->dev, &b->compute), SW_OK);
    const struct sw_queues_options options = {
        .dev = b->dev,
        .compute = b->compute,
        .meter = &b->meter,
        .ops = {.begin = begin,
                .end = end,
                .most_begun = {[SW_QUEUE_READ] = most_begun, [SW_QUEUE_WRITE] = most_begun}},
        .ctx = &b->notes,
        .most_jobs = {[SW_QUEUE_READ] = most_jobs, [SW_QUEUE_WRITE] = most_jobs}};
    assert_int_equal(sw_queues_open(&options, &b->queues), SW_OK);
}

static void close_bench(struct bench *b)
{
    sw_queues_close(b->queues);
    b->dev->ops->stream_close(b->dev, b->compute);
    sw_device_close(b->dev);
    pthread_cond_destroy(&b->notes.opened);
    pthread_mutex_destroy(&b->notes.lock);
}

static void issue(struct bench *b, int32_t i)
{
    struct sw_queue_job job = {.program = &b->program, .instr = i, .order = i};
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        job.needs[q] = b->instrs[i].waits[q];
    }
    assert_int_equal(sw_queues_issue(b->queues, b->instrs[i].queue, &job), SW_OK);
}

/* Waits until all work of computation is done. */
static sw_status wait_here(struct bench *b)
{
    assert_int_equal(b->dev->ops->stream_wait(b->dev, b->compute), SW_OK);
    return sw_queues_status(b->queues);
}

static int64_t host_waits(const struct bench *b, enum sw_queue queue)
{
    struct sw_queue_times times[SW_QUEUE_COUNT];
    sw_meter_read(&b->meter, times);
    return times[queue].n_host_waits;
}

static void jobs_keep_their_order_and_their_waits(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "mock", "mock:early"};
    for (int way = 0; way < 3 * 6; way++) {
        const int most_begun = 1 << way / 3;
        struct bench b;
        open_bench(&b, devices[way % 3], most_begun, JOBS / 3); /* the ring wraps around */
        for (int32_t i = JOBS / 2; i < JOBS; i += 7) {          /* no other job is in flight then */
            b.instrs[i].waits[b.instrs[i].queue] = i - 2;
        }
        for (int32_t i = 0; i < 2 * JOBS; i++) {
            issue(&b, i);
        }
        assert_int_equal(sw_queues_order(b.queues, SW_QUEUE_READ, JOBS, &waiter), SW_OK);
        assert_int_equal(wait_here(&b), SW_OK);
        pthread_mutex_lock(&b.notes.lock);
        assert_true(b.notes.n_ended[SW_QUEUE_READ] > JOBS / 2);
        pthread_mutex_unlock(&b.notes.lock);
        assert_int_equal(sw_queues_barrier(b.queues, &waiter), SW_OK);
        assert_int_equal(wait_here(&b), SW_OK);
        for (int k = 0; k < JOBS; k++) {
            assert_int_equal(b.notes.begun[SW_QUEUE_READ][k], 2 * k);
            assert_int_equal(b.notes.ended[SW_QUEUE_READ][k], 2 * k);
            assert_int_equal(b.notes.begun[SW_QUEUE_WRITE][k], 2 * k + 1);
            assert_int_equal(b.notes.ended[SW_QUEUE_WRITE][k], 2 * k + 1);
            assert_true(b.notes.reads_done_when[k] > k);
        }
        assert_true(b.notes.most_under_way[SW_QUEUE_READ] <= most_begun);
        assert_int_equal(b.notes.beside_last, 0);
        assert_false(b.notes.slot_twice);
        close_bench(&b);
    }
}

/* On an asynchronous device, computation waits: the issuing thread has issued everything before the
 * first job begins. If the ring is full the thread waits, and the wait is counted. */
static void the_thread_that_issues_waits_for_nobody(void **state)
{
    (void)state;
    static const char *const devices[] = {"mock", "mock:early"};
    for (int way = 0; way < 4; way++) {
        const bool fits = way < 2;
        struct bench b;
        open_bench(&b, devices[way % 2], 4, fits ? JOBS : JOBS / 2);
        b.notes.is_closed = fits;
        for (int32_t i = 0; i < 2 * JOBS; i++) {
            issue(&b, i);
            assert_int_equal(sw_queues_order(b.queues, b.instrs[i].queue, i, &waiter), SW_OK);
        }
        assert_int_equal(sw_queues_barrier(b.queues, &waiter), SW_OK);
        pthread_mutex_lock(&b.notes.lock);
        assert_int_equal(fits ? b.notes.n_ended[SW_QUEUE_READ] : 0, 0);
        b.notes.is_closed = false;
        pthread_cond_broadcast(&b.notes.opened);
        pthread_mutex_unlock(&b.notes.lock);
        assert_int_equal(wait_here(&b), SW_OK);
        assert_int_equal(b.notes.n_ended[SW_QUEUE_READ], JOBS);
        assert_int_equal(b.notes.n_ended[SW_QUEUE_WRITE], JOBS);
        assert_true(!fits || host_waits(&b, SW_QUEUE_COMPUTE) == 0);
        close_bench(&b);
    }
}

/* Jobs that were begun are ended, and no job after a failure begins. Afterwards new jobs are
 * accepted. */
static void a_failure_stops_what_has_not_begun(void **state)
{
    (void)state;
    for (int where = 0; where < 2; where++) {
        struct bench b;
        open_bench(&b, "mock", 4, JOBS);
        *(where ? &b.notes.bad_end : &b.notes.bad_begin) = 40;
        for (int32_t i = 0; i < 2 * JOBS; i++) {
            issue(&b, i);
        }
        if (sw_queues_order(b.queues, SW_QUEUE_WRITE, INT64_MAX, &waiter) >= 0) {
            assert_int_equal(wait_here(&b), SW_E_IO);
        }
        assert_non_null(strstr(sw_error_message(), "job 40"));
        sw_queues_stop(b.queues);
        assert_int_equal(b.notes.n_begun[SW_QUEUE_READ], b.notes.n_ended[SW_QUEUE_READ]);
        assert_int_equal(b.notes.n_begun[SW_QUEUE_WRITE], b.notes.n_ended[SW_QUEUE_WRITE]);
        assert_true(b.notes.n_begun[SW_QUEUE_READ] <= 20 + 4);
        assert_true(b.notes.n_begun[SW_QUEUE_WRITE] <= 20 + 1);
        const int n_reads = b.notes.n_ended[SW_QUEUE_READ];
        const int n_writes = b.notes.n_ended[SW_QUEUE_WRITE];
        b.notes.bad_begin = b.notes.bad_end = -1;
        issue(&b, 0);
        issue(&b, 1);
        assert_int_equal(sw_queues_barrier(b.queues, &waiter), SW_OK);
        assert_int_equal(wait_here(&b), SW_OK);
        assert_int_equal(b.notes.n_ended[SW_QUEUE_READ], n_reads + 1);
        assert_int_equal(b.notes.n_ended[SW_QUEUE_WRITE], n_writes + 1);
        close_bench(&b);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(jobs_keep_their_order_and_their_waits),
    cmocka_unit_test(the_thread_that_issues_waits_for_nobody),
    cmocka_unit_test(a_failure_stops_what_has_not_begun),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
