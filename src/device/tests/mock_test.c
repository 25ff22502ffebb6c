// SPDX-License-Identifier: Apache-2.0
// The mock detects the bugs that it is for, and runs correct programs correctly. The bugs: reads of
// memory that was never written or was released, work that was not waited for or was queued too
// early, addresses that are not the device's, and a host that accesses device memory.
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "device/tests/op_case.h"
#include "support/test.h"

enum { N = 16 };
static const size_t bytes = N * sizeof(float);

struct fixture {
    struct sw_device *dev;
    struct sw_stream_queue *a, *b;
    struct sw_timeline *timeline;
    float *x;                /* device memory */
    float *in, *out, *later; /* [N] of the mock's host memory each */
};

static float *pinned(struct fixture *f)
{
    void *mem = NULL;
    assert_int_equal(sw_device_alloc(f->dev, SW_MEM_HOST, bytes, &mem), SW_OK);
    return mem;
}

static int set_up_mode(void **state, bool early)
{
    static struct fixture f;
    const struct sw_mock_options options = {.n_threads = 1, .early = early};
    assert_int_equal(sw_device_open_mock(&options, &f.dev), SW_OK);
    assert_int_equal(f.dev->ops->stream_open(f.dev, &f.a), SW_OK);
    assert_int_equal(f.dev->ops->stream_open(f.dev, &f.b), SW_OK);
    assert_int_equal(f.dev->ops->timeline_open(f.dev, &f.timeline), SW_OK);
    assert_int_equal(sw_device_alloc(f.dev, SW_MEM_DEVICE, bytes, (void **)&f.x), SW_OK);
    f.in = pinned(&f);
    f.out = pinned(&f);
    f.later = pinned(&f);
    *state = &f;
    return 0;
}

static int set_up(void **state)
{
    return set_up_mode(state, false);
}

static int set_up_early(void **state)
{
    return set_up_mode(state, true);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    sw_device_free(f->dev, SW_MEM_HOST, f->in, bytes);
    sw_device_free(f->dev, SW_MEM_HOST, f->out, bytes);
    sw_device_free(f->dev, SW_MEM_HOST, f->later, bytes);
    sw_device_free(f->dev, SW_MEM_DEVICE, f->x, bytes);
    f->dev->ops->stream_close(f->dev, f->a);
    f->dev->ops->stream_close(f->dev, f->b);
    f->dev->ops->timeline_close(f->dev, f->timeline);
    assert_int_equal(f->dev->live_bytes[SW_MEM_DEVICE], 0);
    assert_int_equal(f->dev->live_bytes[SW_MEM_HOST], 0);
    sw_device_close(f->dev);
    return 0;
}

static void copy(struct fixture *f, struct sw_stream_queue *on, void *dst, const void *src)
{
    assert_int_equal(sw_device_copy(f->dev, on, dst, src, bytes), SW_OK);
}

static void wait_for(struct fixture *f, struct sw_stream_queue *stream)
{
    assert_int_equal(f->dev->ops->stream_wait(f->dev, stream), SW_OK);
}

static void signal_at(struct fixture *f, struct sw_stream_queue *on, int64_t value)
{
    assert_int_equal(f->dev->ops->stream_signal(f->dev, on, f->timeline, value), SW_OK);
}

static void await_at(struct fixture *f, struct sw_stream_queue *on, int64_t value)
{
    assert_int_equal(f->dev->ops->stream_await(f->dev, on, f->timeline, value), SW_OK);
}

static int64_t value_now(struct fixture *f)
{
    return f->dev->ops->timeline_get(f->dev, f->timeline);
}

static void fill_with(float *x, float value)
{
    for (int i = 0; i < N; i++) {
        x[i] = value;
    }
}

static void test_fresh_memory_is_poison(void **state)
{
    struct fixture *f = *state;
    float *out = f->out;
    copy(f, f->a, out, f->x);
    wait_for(f, f->a);
    for (int i = 0; i < N; i++) {
        assert_true(isnan(out[i]));
    }
}

static void test_nothing_runs_before_somebody_waits(void **state)
{
    struct fixture *f = *state;
    float *in = f->in, *out = f->out;
    fill_with(in, 1);
    fill_with(out, 5);
    copy(f, f->a, f->x, in);
    copy(f, f->a, out, f->x);
    assert_true(out[0] == 5); /* without a wait: the old value */
    fill_with(in, 2);         /* the source is still needed */
    wait_for(f, f->b);
    assert_true(out[0] == 5);
    wait_for(f, f->a);
    assert_true(out[0] == 2);
}

static void test_a_missing_order_shows(void **state)
{
    struct fixture *f = *state;
    float *in = f->in, *out = f->out;
    fill_with(in, 3);
    copy(f, f->a, f->x, in);
    copy(f, f->b, out, f->x); /* nothing between them */
    wait_for(f, f->b);
    assert_true(isnan(out[0]));
}

static void test_a_timeline_orders_two_streams(void **state)
{
    struct fixture *f = *state;
    float *in = f->in, *later = f->later, *out = f->out;
    fill_with(in, 3);
    fill_with(later, 4);
    await_at(f, f->b, 1); /* before any command that sets it is queued */
    copy(f, f->b, out, f->x);
    copy(f, f->a, f->x, in);
    signal_at(f, f->a, 1);
    copy(f, f->a, f->x, later); /* after the signal: b must not see it, and a runs no further */
    signal_at(f, f->a, 2);
    assert_int_equal(value_now(f), 0);
    wait_for(f, f->b);
    assert_int_equal(value_now(f), 1);
    assert_true(out[0] == 3);
    assert_int_equal(f->dev->ops->timeline_wait(f->dev, f->timeline, 2), SW_OK);
    copy(f, f->b, out, f->x);
    wait_for(f, f->b);
    assert_true(out[0] == 4);
}

/* a waits for a signal of b, which waits for the host. */
static void test_the_host_sets_a_timeline(void **state)
{
    struct fixture *f = *state;
    struct sw_timeline *host;
    float *in = f->in, *out = f->out;
    fill_with(in, 3);
    assert_int_equal(f->dev->ops->timeline_open(f->dev, &host), SW_OK);
    assert_int_equal(f->dev->ops->stream_await(f->dev, f->b, host, 7), SW_OK);
    copy(f, f->b, f->x, in);
    signal_at(f, f->b, 1);
    await_at(f, f->a, 1);
    copy(f, f->a, out, f->x);
    fill_with(in, 5);
    assert_int_equal(f->dev->ops->timeline_set(f->dev, host, 7), SW_OK);
    wait_for(f, f->a);
    assert_true(out[0] == 5);
    wait_for(f, f->b);
    f->dev->ops->timeline_close(f->dev, host);
}

static void test_released_memory_is_poison_for_queued_work(void **state)
{
    struct fixture *f = *state;
    float *in = f->in, *out = f->out;
    void *y;
    fill_with(in, 3);
    assert_int_equal(sw_device_alloc(f->dev, SW_MEM_DEVICE, bytes, &y), SW_OK);
    copy(f, f->a, y, in);
    wait_for(f, f->a);
    copy(f, f->a, out, y);
    sw_device_free(f->dev, SW_MEM_DEVICE, y, bytes); /* too early */
    assert_int_equal(sw_device_copy(f->dev, f->b, out, y, bytes), SW_E_ARG);
    wait_for(f, f->a);
    assert_true(isnan(out[0]));
}

static void test_ranges_are_checked(void **state)
{
    struct fixture *f = *state;
    float *in = f->in;
    assert_int_equal(sw_device_copy(f->dev, f->a, f->x + 1, in, bytes), SW_E_ARG);
    assert_int_equal(sw_device_fill(f->dev, f->a, f->x + N - 1, 0, 8), SW_E_ARG);
    assert_int_equal(sw_device_fill(f->dev, f->a, f->x + N - 1, 0, 4), SW_OK);
}

static void test_kernels_take_device_addresses_only(void **state)
{
    struct fixture *f = *state;
    struct sw_kernel *kernel;
    struct sw_op op = {
        .kind = SW_OP_SCALE, .n_in = 1, .n_out = 1, .attrs = {.scale = {.factor = 2}}};
    struct sw_op_desc desc = {.op = &op};
    desc.in[0] = (struct sw_view){NULL, SW_F32, SW_SHAPE(N), {1}};
    desc.out[0] = desc.in[0];
    float *in = f->in, *host = f->out;
    double *scalars, *table;
    const size_t table_bytes = SW_SCALAR_COUNT * sizeof *table;
    fill_with(in, 3);
    assert_int_equal(sw_device_alloc(f->dev, SW_MEM_DEVICE, table_bytes, (void **)&table), SW_OK);
    assert_int_equal(sw_device_alloc(f->dev, SW_MEM_HOST, table_bytes, (void **)&scalars), SW_OK);
    memset(scalars, 0, table_bytes);
    assert_int_equal(sw_device_copy(f->dev, f->a, table, scalars, table_bytes), SW_OK);
    assert_int_equal(sw_device_prepare(f->dev, &desc, &kernel), SW_OK);
    void *device_x[] = {f->x}, *host_x[] = {host};
    assert_int_equal(sw_device_launch(f->dev, f->a, kernel, host_x, device_x, NULL, table),
                     SW_E_ARG);
    assert_int_equal(sw_device_launch(f->dev, f->a, kernel, device_x, device_x, NULL, scalars),
                     SW_E_ARG);
    copy(f, f->a, f->x, in);
    assert_int_equal(sw_device_launch(f->dev, f->a, kernel, device_x, device_x, NULL, table),
                     SW_OK);
    copy(f, f->a, host, f->x);
    wait_for(f, f->a);
    assert_true(host[N - 1] == 6);
    f->dev->ops->release(f->dev, kernel);
    sw_device_free(f->dev, SW_MEM_DEVICE, table, table_bytes);
    sw_device_free(f->dev, SW_MEM_HOST, scalars, table_bytes);
}

static void test_counters(void **state)
{
    struct fixture *f = *state;
    void *y;
    const int64_t before = f->dev->n_allocs;
    assert_int_equal(sw_device_alloc(f->dev, SW_MEM_DEVICE, 1000, &y), SW_OK);
    assert_int_equal(f->dev->n_allocs, before + 1);
    assert_int_equal(f->dev->live_bytes[SW_MEM_DEVICE], 1000 + (int64_t)bytes);
    sw_device_free(f->dev, SW_MEM_DEVICE, y, 1000);
    assert_int_equal(f->dev->live_bytes[SW_MEM_DEVICE], (int64_t)bytes);
    assert_int_equal(f->dev->peak_bytes[SW_MEM_DEVICE], 1000 + (int64_t)bytes);
    assert_int_equal(sw_device_alloc(f->dev, SW_MEM_DEVICE, 0, &y), SW_E_ARG);
}

/* A system call with the address fails where an access would fault. */
static void test_the_host_does_not_reach_it(void **state)
{
    struct fixture *f = *state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], f->in, bytes), bytes);
    assert_int_equal(read(ends[0], f->x, bytes), -1);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(write(ends[1], f->x, bytes), -1);
    assert_int_equal(errno, EFAULT);
    close(ends[0]);
    close(ends[1]);
}

static void test_host_memory_of_others_is_refused(void **state)
{
    struct fixture *f = *state;
    float mine[N] = {0};
    assert_int_equal(sw_device_copy(f->dev, f->a, f->x, mine, bytes), SW_E_ARG);
    assert_int_equal(sw_device_copy(f->dev, f->a, mine, f->x, bytes), SW_E_ARG);
    assert_int_equal(sw_device_fill(f->dev, f->a, mine, 0, bytes), SW_E_ARG);
    const struct sw_slice_sum sum = {
        .acc = f->x, .dtype = SW_F32, .slices = f->in, .n = N, .n_slices = 1};
    assert_int_equal(sw_device_add_slices(f->dev, f->a, &sum), SW_E_ARG); /* host memory */
}

static void test_early_work_runs_when_it_is_queued(void **state)
{
    struct fixture *f = *state;
    fill_with(f->in, 1);
    copy(f, f->a, f->x, f->in);
    copy(f, f->a, f->out, f->x);
    assert_true(f->out[0] == 1); /* there was no wait */
    fill_with(f->in, 2);
    wait_for(f, f->a);
    assert_true(f->out[0] == 1); /* the copy had already run */
    await_at(f, f->b, 1);
    copy(f, f->b, f->later, f->x);
    signal_at(f, f->a, 1); /* whatever waited for it runs at once */
    assert_int_equal(value_now(f), 1);
    assert_true(f->later[0] == 1);
    copy(f, f->a, f->x, f->in);
    await_at(f, f->b, 2);
    copy(f, f->b, f->later, f->x);
    assert_true(f->later[0] == 1);
    assert_int_equal(f->dev->ops->timeline_set(f->dev, f->timeline, 2), SW_OK);
    assert_true(f->later[0] == 2);
}

/* ---- several threads ---- */

struct worker {
    struct fixture *f;
    int i;
    bool failed;
};

/* Uses its own queue: each round writes a number, reads it back and compares. */
static void *work(void *arg)
{
    struct worker *w = arg;
    struct sw_device *dev = w->f->dev;
    struct sw_stream_queue *on;
    void *x, *host;
    w->failed = dev->ops->stream_open(dev, &on) < 0 ||
                dev->ops->mem_alloc(dev, SW_MEM_DEVICE, bytes, &x) < 0 ||
                dev->ops->mem_alloc(dev, SW_MEM_HOST, bytes, &host) < 0;
    for (int round = 0; round < 200 && !w->failed; round++) {
        float *at = host;
        fill_with(at, (float)(1000 * w->i + round));
        w->failed |=
            sw_device_copy(dev, on, x, at, bytes) < 0 || dev->ops->stream_wait(dev, on) < 0;
        fill_with(at, 0);
        w->failed |=
            sw_device_copy(dev, on, at, x, bytes) < 0 || dev->ops->stream_wait(dev, on) < 0;
        w->failed |= at[N - 1] != (float)(1000 * w->i + round);
    }
    dev->ops->mem_free(dev, SW_MEM_DEVICE, x, bytes);
    dev->ops->mem_free(dev, SW_MEM_HOST, host, bytes);
    dev->ops->stream_close(dev, on);
    return NULL;
}

/* One thread advances the counter that another thread's stream waits for, a step at a time. */
static void *set_steps(void *arg)
{
    struct fixture *f = arg;
    for (int64_t value = 1; value <= 200; value++) {
        f->dev->ops->timeline_set(f->dev, f->timeline, value);
    }
    return NULL;
}

static void test_a_stream_waits_for_another_thread(void **state)
{
    struct fixture *f = *state;
    pthread_t thread;
    fill_with(f->in, 3);
    for (int64_t value = 1; value <= 200; value++) {
        await_at(f, f->a, value);
        copy(f, f->a, f->x, f->in);
    }
    assert_int_equal(pthread_create(&thread, NULL, set_steps, f), 0);
    copy(f, f->a, f->out, f->x);
    wait_for(f, f->a);
    assert_true(f->out[0] == 3);
    assert_int_equal(value_now(f), 200);
    pthread_join(thread, NULL);
}

static void test_threads_use_it_at_once(void **state)
{
    enum { THREADS = 3 };
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){*state, i, false};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(workers[i].failed);
    }
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    CASE(test_fresh_memory_is_poison),
    CASE(test_nothing_runs_before_somebody_waits),
    CASE(test_a_missing_order_shows),
    CASE(test_a_timeline_orders_two_streams),
    CASE(test_the_host_sets_a_timeline),
    CASE(test_released_memory_is_poison_for_queued_work),
    CASE(test_ranges_are_checked),
    CASE(test_kernels_take_device_addresses_only),
    CASE(test_counters),
    CASE(test_the_host_does_not_reach_it),
    CASE(test_host_memory_of_others_is_refused),
    cmocka_unit_test_setup_teardown(test_early_work_runs_when_it_is_queued, set_up_early,
                                    tear_down),
    CASE(test_a_stream_waits_for_another_thread),
    CASE(test_threads_use_it_at_once),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
