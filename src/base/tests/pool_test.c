// SPDX-License-Identifier: Apache-2.0
// The thread pool: each item once, worker numbers never shared at one time, nesting, many short
// jobs, sleeping and waking, failures while opening. Run under ThreadSanitizer to see that plain
// memory is handed over correctly: items write and the driver reads without any atomic.
#include "base/base.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/test.h"

static const int thread_counts[] = {1, 2, 3, 7};

struct job {
    struct sw_pool *pool;
    int *done;            /* [n_items] plain on purpose */
    _Atomic int busy[16]; /* by worker */
    _Atomic int n_errors;
    int64_t n_inner;
};

static void mark(void *ctx, int64_t i_item, int i_worker)
{
    struct job *job = ctx;
    if (atomic_fetch_add(&job->busy[i_worker], 1) != 0) {
        atomic_fetch_add(&job->n_errors, 1);
    }
    job->done[i_item]++;
    atomic_fetch_sub(&job->busy[i_worker], 1);
}

static void each_item_once(void **state)
{
    (void)state;
    static const int64_t counts[] = {0, 1, 2, 5, 64, 1000};
    int done[1000];
    for (size_t t = 0; t < SW_LEN(thread_counts); t++) {
        struct job job = {.done = done};
        assert_int_equal(sw_pool_open(thread_counts[t], &job.pool), SW_OK);
        assert_int_equal(sw_pool_threads(job.pool), thread_counts[t]);
        for (size_t c = 0; c < SW_LEN(counts); c++) {
            memset(done, 0, sizeof(done));
            sw_pool_run(job.pool, counts[c], mark, &job);
            for (int64_t i = 0; i < 1000; i++) {
                assert_int_equal(done[i], i < counts[c]);
            }
        }
        assert_int_equal(job.n_errors, 0);
        sw_pool_close(job.pool);
    }
}

static void many_short_jobs_with_naps(void **state)
{
    (void)state;
    int done[8] = {0};
    struct job job = {.done = done};
    assert_int_equal(sw_pool_open(3, &job.pool), SW_OK);
    enum { JOBS = 3000 };
    for (int i = 0; i < JOBS; i++) {
        sw_pool_run(job.pool, 8, mark, &job);
        if (i % 100 == 0) {
            usleep(300); /* long enough for workers to fall asleep */
        }
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(done[i], JOBS);
    }
    assert_int_equal(job.n_errors, 0);
    sw_pool_close(job.pool);
}

struct nested {
    struct job *job;
    int64_t base;
    int i_worker;
};

static void mark_nested(void *ctx, int64_t i_item, int i_worker)
{
    const struct nested *nested = ctx;
    if (i_worker != nested->i_worker) {
        atomic_fetch_add(&nested->job->n_errors, 1);
    }
    nested->job->done[nested->base + i_item]++;
}

static void run_nested(void *ctx, int64_t i_item, int i_worker)
{
    struct job *job = ctx;
    struct nested nested = {job, i_item * job->n_inner, i_worker};
    sw_pool_run(job->pool, job->n_inner, mark_nested, &nested);
}

static void nested_runs_are_inline_on_the_same_worker(void **state)
{
    (void)state;
    for (size_t t = 0; t < SW_LEN(thread_counts); t++) {
        int done[20 * 30] = {0};
        struct job job = {.done = done, .n_inner = 30};
        assert_int_equal(sw_pool_open(thread_counts[t], &job.pool), SW_OK);
        sw_pool_run(job.pool, 20, run_nested, &job);
        for (size_t i = 0; i < SW_LEN(done); i++) {
            assert_int_equal(done[i], 1);
        }
        assert_int_equal(job.n_errors, 0);
        sw_pool_close(job.pool);
    }
}

static void open_own_pool(void *ctx, int64_t i_item, int i_worker)
{
    (void)i_worker;
    struct job *outer = ctx;
    struct job inner = {.done = outer->done + i_item * outer->n_inner};
    if (sw_pool_open(2, &inner.pool) != SW_OK) {
        atomic_fetch_add(&outer->n_errors, 1);
        return;
    }
    sw_pool_run(inner.pool, outer->n_inner, mark, &inner);
    sw_pool_close(inner.pool);
    /* Back in the item of the outer pool: a run there is still nested. */
    sw_pool_run(outer->pool, outer->n_inner, mark, &inner);
    atomic_fetch_add(&outer->n_errors, inner.n_errors);
}

static void an_item_may_drive_another_pool(void **state)
{
    (void)state;
    int done[6 * 10] = {0};
    struct job job = {.done = done, .n_inner = 10};
    assert_int_equal(sw_pool_open(3, &job.pool), SW_OK);
    sw_pool_run(job.pool, 6, open_own_pool, &job);
    for (size_t i = 0; i < SW_LEN(done); i++) {
        assert_int_equal(done[i], 2);
    }
    assert_int_equal(job.n_errors, 0);
    sw_pool_close(job.pool);
}

static void no_pool_runs_inline(void **state)
{
    (void)state;
    int done[10] = {0};
    struct job job = {.done = done};
    sw_pool_run(NULL, 10, mark, &job);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(done[i], 1);
    }
    assert_int_equal(sw_pool_threads(NULL), 1);
    sw_pool_close(NULL);
}

static void opening(void **state)
{
    (void)state;
    struct sw_pool *pool = NULL;
    assert_int_equal(sw_pool_open(-1, &pool), SW_E_ARG);
    sw_alloc_fail_nth(1);
    assert_int_equal(sw_pool_open(2, &pool), SW_E_NOMEM);
    assert_null(pool);
    assert_true(sw_cpu_count() >= 1);
    assert_int_equal(sw_pool_open(0, &pool), SW_OK);
    assert_int_equal(sw_pool_threads(pool), sw_cpu_count());
    sw_pool_close(pool);
    for (int i = 0; i < 50; i++) { /* closing right away: workers may not even have started */
        assert_int_equal(sw_pool_open(4, &pool), SW_OK);
        sw_pool_close(pool);
    }
}

static void runs_allocate_nothing(void **state)
{
    (void)state;
    int done[64] = {0};
    struct job job = {.done = done};
    assert_int_equal(sw_pool_open(2, &job.pool), SW_OK);
    struct sw_alloc_stats before, after;
    sw_alloc_get_stats(&before);
    sw_pool_run(job.pool, 64, mark, &job);
    sw_alloc_get_stats(&after);
    assert_int_equal(after.n_calls, before.n_calls);
    sw_pool_close(job.pool);
}

/* Where the two threads of a pool may run, asked by each in an item that waits for the other. */
struct masks {
    atomic_int n_inside;
    cpu_set_t of[2];
};

static void note_mask(void *ctx, int64_t i_item, int i_worker)
{
    struct masks *masks = ctx;
    (void)i_item;
    sched_getaffinity(0, sizeof(cpu_set_t), &masks->of[i_worker]);
    atomic_fetch_add(&masks->n_inside, 1);
    while (atomic_load(&masks->n_inside) < 2) {
        sched_yield();
    }
}

static void a_worker_keeps_off_the_processor_of_the_driver_that_woke_it(void **state)
{
    (void)state;
    cpu_set_t own;
    sched_getaffinity(0, sizeof own, &own);
    if (CPU_COUNT(&own) < 2) {
        skip();
    }
    struct sw_pool *pool = NULL;
    assert_int_equal(sw_pool_open(2, &pool), SW_OK);
    bool kept_off = false;
    for (int i = 0; i < 2000 && !kept_off; i++) {
        usleep(500); /* until the worker was asleep when it was wanted */
        struct masks masks = {0};
        const int before = sched_getcpu();
        sw_pool_run(pool, 2, note_mask, &masks);
        const int after = sched_getcpu();
        assert_true(CPU_EQUAL(&masks.of[0], &own)); /* the caller's thread is left alone */
        cpu_set_t without;
        CPU_XOR(&without, &own, &masks.of[1]);
        assert_true(CPU_COUNT(&without) <= 1);
        kept_off = before == after && CPU_COUNT(&without) == 1 && CPU_ISSET(before, &without);
    }
    assert_true(kept_off);
    sw_pool_close(pool);
}

static void with_too_few_processors_workers_go_where_the_driver_goes(void **state)
{
    (void)state;
    cpu_set_t own, one;
    sched_getaffinity(0, sizeof own, &own);
    const int processor = sched_getcpu();
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    struct sw_pool *pool = NULL;
    assert_int_equal(sw_pool_open(2, &pool), SW_OK);
    for (int i = 0; i < 10; i++) {
        usleep(500);
        struct masks masks = {0};
        sw_pool_run(pool, 2, note_mask, &masks);
        assert_true(CPU_EQUAL(&masks.of[1], &one));
    }
    sw_pool_close(pool);
    assert_int_equal(sched_setaffinity(0, sizeof own, &own), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_item_once),
    cmocka_unit_test(many_short_jobs_with_naps),
    cmocka_unit_test(nested_runs_are_inline_on_the_same_worker),
    cmocka_unit_test(an_item_may_drive_another_pool),
    cmocka_unit_test(no_pool_runs_inline),
    cmocka_unit_test(opening),
    cmocka_unit_test(runs_allocate_nothing),
    cmocka_unit_test(a_worker_keeps_off_the_processor_of_the_driver_that_woke_it),
    cmocka_unit_test(with_too_few_processors_workers_go_where_the_driver_goes),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
