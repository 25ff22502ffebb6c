// SPDX-License-Identifier: Apache-2.0
// The mock finds what it is for: reads of memory that was never written or was released, work that was not
// waited for, addresses that are not the device's; and does correct programs correctly.
#include "device/tests/op_case.h"
#include "support/test.h"

enum { N = 16 };
static const size_t bytes = N * sizeof(float);

struct fixture {
    struct sw_device *dev;
    struct sw_stream_queue *a, *b;
    struct sw_event *event;
    float *x; /* device */
};

static int set_up(void **state)
{
    static struct fixture f;
    assert_int_equal(sw_device_open_mock(1, &f.dev), SW_OK);
    assert_int_equal(f.dev->ops->stream_open(f.dev, &f.a), SW_OK);
    assert_int_equal(f.dev->ops->stream_open(f.dev, &f.b), SW_OK);
    assert_int_equal(f.dev->ops->event_open(f.dev, &f.event), SW_OK);
    assert_int_equal(sw_device_alloc(f.dev, SW_MEM_DEVICE, bytes, (void **)&f.x), SW_OK);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    sw_device_free(f->dev, SW_MEM_DEVICE, f->x, bytes);
    f->dev->ops->event_close(f->dev, f->event);
    f->dev->ops->stream_close(f->dev, f->a);
    f->dev->ops->stream_close(f->dev, f->b);
    assert_int_equal(f->dev->live_bytes[SW_MEM_DEVICE], 0);
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

static void fill_with(float *x, float value)
{
    for (int i = 0; i < N; i++) {
        x[i] = value;
    }
}

static void test_fresh_memory_is_poison(void **state)
{
    struct fixture *f = *state;
    float out[N] = {0};
    copy(f, f->a, out, f->x);
    wait_for(f, f->a);
    for (int i = 0; i < N; i++) {
        assert_true(isnan(out[i]));
    }
}

static void test_nothing_runs_before_somebody_waits(void **state)
{
    struct fixture *f = *state;
    float in[N], out[N];
    fill_with(in, 1);
    fill_with(out, 5);
    copy(f, f->a, f->x, in);
    copy(f, f->a, out, f->x);
    assert_true(out[0] == 5); /* forgot to wait: the old value */
    fill_with(in, 2);         /* and the source was still needed */
    wait_for(f, f->b);
    assert_true(out[0] == 5);
    wait_for(f, f->a);
    assert_true(out[0] == 2);
}

static void test_a_missing_event_shows(void **state)
{
    struct fixture *f = *state;
    float in[N], out[N];
    fill_with(in, 3);
    copy(f, f->a, f->x, in);
    copy(f, f->b, out, f->x); /* no event between */
    wait_for(f, f->b);
    assert_true(isnan(out[0]));
}

static void test_an_event_orders_two_streams(void **state)
{
    struct fixture *f = *state;
    float in[N], later[N], out[N];
    fill_with(in, 3);
    fill_with(later, 4);
    copy(f, f->a, f->x, in);
    assert_int_equal(f->dev->ops->event_record(f->dev, f->event, f->a), SW_OK);
    assert_int_equal(f->dev->ops->event_wait(f->dev, f->event, f->b), SW_OK);
    copy(f, f->a, f->x, later); /* after the event: b must not see it, and a is run no further */
    copy(f, f->b, out, f->x);
    wait_for(f, f->b);
    assert_true(out[0] == 3);
    wait_for(f, f->a);
    copy(f, f->b, out, f->x);
    wait_for(f, f->b);
    assert_true(out[0] == 4);
}

static void test_released_memory_is_poison_for_queued_work(void **state)
{
    struct fixture *f = *state;
    float in[N], out[N];
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
    float in[N] = {0};
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
    float in[N], host[N];
    double scalars[SW_SCALAR_COUNT] = {0};
    double *table;
    const size_t table_bytes = sizeof scalars;
    fill_with(in, 3);
    assert_int_equal(sw_device_alloc(f->dev, SW_MEM_DEVICE, table_bytes, (void **)&table), SW_OK);
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

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_fresh_memory_is_poison),
        CASE(test_nothing_runs_before_somebody_waits),
        CASE(test_a_missing_event_shows),
        CASE(test_an_event_orders_two_streams),
        CASE(test_released_memory_is_poison_for_queued_work),
        CASE(test_ranges_are_checked),
        CASE(test_kernels_take_device_addresses_only),
        CASE(test_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
