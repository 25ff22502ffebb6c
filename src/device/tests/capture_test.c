// SPDX-License-Identifier: Apache-2.0
// COST 4
// Captured work on emulated GPUs. Each kernel reads its scalars when it runs, not when it is
// captured, and has the same bits as without a graph. The stand-ins for the graph calls refuse what
// the vendors' run times forbid.
#include <stdlib.h>
#include <string.h>

#include "device/gpu/open.h"
#include "device/tests/op_cases.h"
#include "support/test.h"

static struct sw_device *open_device(const char *name)
{
    struct sw_device *dev = NULL;
    if (sw_device_open(name, 1, &dev) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        skip();
    }
    assert_non_null(dev->capture);
    return dev;
}

static void compare(struct sw_device *dev, const struct op_case *c)
{
    struct op_case alone, captured;
    const sw_status st = case_run(dev, c, &alone);
    if (st == SW_E_UNSUP) {
        case_fini(&alone);
        return;
    }
    if (st < 0 || case_run_captured(dev, c, &captured) < 0) {
        fail_msg("%s: %s", c->name, sw_error_message());
    }
    for (int i = 0; i < c->op.n_out; i++) {
        if (!case_same_bits(&captured, &alone, i)) {
            fail_msg("%s: output %d has other bits captured, off by %g", c->name, i,
                     case_error(&captured, &alone, i));
        }
    }
    assert_memory_equal(captured.scalars, alone.scalars, sizeof alone.scalars);
    case_fini(&alone);
    case_fini(&captured);
}

/* All kinds of ops; of those that have many variants, some. */
static void kernels_read_scalars_when_they_are_replayed(void **state)
{
    (void)state;
    enum { ALL = 6, STEP = 5 };
    struct sw_device *dev = open_device("emu");
    for (int kind = 0; kind < SW_N_OP_KINDS; kind++) {
        struct op_case c;
        for (int v = 0; op_cases[kind] && op_cases[kind](&c, SW_BF16, v);
             v +=
             v < ALL || sw_op_info((enum sw_op_kind)kind)->traits & SW_TRAIT_UPDATE ? 1 : STEP) {
            compare(dev, &c);
            case_fini(&c);
        }
        if (op_cases[kind]) {
            case_fini(&c); /* of the variant that there is not */
        }
    }
    sw_device_close(dev);
}

/* ---- a stream that is captured ---- */

struct on {
    struct sw_device *dev;
    struct sw_stream_queue *stream;
    void *mem, *host;
};

enum { BYTES = 4096 };

static struct on open_on(const char *name)
{
    struct on on = {.dev = open_device(name)};
    assert_int_equal(on.dev->ops->stream_open(on.dev, &on.stream), SW_OK);
    assert_int_equal(sw_device_alloc(on.dev, SW_MEM_DEVICE, BYTES, &on.mem), SW_OK);
    assert_int_equal(sw_device_alloc(on.dev, SW_MEM_HOST, BYTES, &on.host), SW_OK);
    return on;
}

static void close_on(struct on *on)
{
    on->dev->ops->stream_close(on->dev, on->stream);
    sw_device_free(on->dev, SW_MEM_DEVICE, on->mem, BYTES);
    sw_device_free(on->dev, SW_MEM_HOST, on->host, BYTES);
    sw_device_close(on->dev);
}

static int byte_there(struct on *on)
{
    assert_int_equal(sw_device_copy(on->dev, on->stream, on->host, on->mem, BYTES), SW_OK);
    assert_int_equal(on->dev->ops->stream_wait(on->dev, on->stream), SW_OK);
    return *(unsigned char *)on->host;
}

static void captured_work_runs_in_the_order_of_its_stream(void **state)
{
    (void)state;
    static const char *const names[] = {"emu", "emu:early", "emu:64", "emu:direct"};
    for (size_t i = 0; i < SW_LEN(names); i++) {
        struct on on = open_on(names[i]);
        struct sw_captured *captured = NULL;
        assert_int_equal(sw_device_fill(on.dev, on.stream, on.mem, 1, BYTES), SW_OK);
        assert_int_equal(sw_device_capture_begin(on.dev, on.stream), SW_OK);
        assert_int_equal(sw_device_fill(on.dev, on.stream, on.mem, 7, BYTES), SW_OK);
        assert_int_equal(sw_device_fill(on.dev, on.stream, on.mem, 2, BYTES), SW_OK);
        assert_int_equal(sw_device_capture_end(on.dev, on.stream, &captured), SW_OK);
        assert_int_equal(captured->n_launches, 2);
        assert_int_equal(byte_there(&on), 1);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(sw_device_fill(on.dev, on.stream, on.mem, 3, BYTES), SW_OK);
            assert_int_equal(sw_device_replay(on.dev, on.stream, captured), SW_OK);
            assert_int_equal(byte_there(&on), 2);
        }
        assert_int_equal(sw_device_replay(on.dev, on.stream, captured), SW_OK);
        assert_int_equal(sw_device_fill(on.dev, on.stream, on.mem, 4, BYTES), SW_OK);
        assert_int_equal(byte_there(&on), 4);
        sw_device_captured_close(on.dev, captured);
        close_on(&on);
    }
}

/* As with the vendors, such a call also ends what was captured. */
static void what_may_not_be_captured_is_refused(void **state)
{
    (void)state;
    struct on on = open_on("emu:direct");
    const struct sw_device_ops *ops = on.dev->ops;
    struct sw_timeline *timeline;
    void *more;
    assert_int_equal(ops->timeline_open(on.dev, &timeline), SW_OK);
    for (int call = 0; call < 5; call++) {
        struct sw_captured *captured = NULL;
        assert_int_equal(sw_device_capture_begin(on.dev, on.stream), SW_OK);
        assert_true((call == 0   ? ops->stream_wait(on.dev, on.stream)
                     : call == 1 ? ops->stream_signal(on.dev, on.stream, timeline, 1)
                     : call == 2 ? ops->stream_await(on.dev, on.stream, timeline, 1)
                     : call == 3 ? sw_device_capture_begin(on.dev, on.stream)
                                 : sw_device_alloc(on.dev, SW_MEM_DEVICE, BYTES, &more)) < 0);
        const sw_status st = sw_device_capture_end(on.dev, on.stream, &captured);
        assert_int_equal(st, call == 3 ? SW_OK : SW_E_DEVICE);
        if (call != 3) {
            assert_non_null(strstr(sw_error_message(), "not permitted"));
        }
        sw_device_captured_close(on.dev, captured);
    }
    struct sw_captured *none = NULL;
    assert_int_equal(sw_device_capture_end(on.dev, on.stream, &none), SW_E_DEVICE);
    ops->timeline_close(on.dev, timeline);
    close_on(&on);
}

static void exchanges_are_not_captured(void **state)
{
    (void)state;
    struct on on = open_on("emu");
    struct sw_timeline *timeline;
    assert_int_equal(on.dev->ops->timeline_open(on.dev, &timeline), SW_OK);
    assert_int_equal(sw_device_capture_begin(on.dev, on.stream), SW_OK);
    assert_int_equal(on.dev->ops->stream_signal(on.dev, on.stream, timeline, 1), SW_E_ARG);
    assert_int_equal(on.dev->ops->stream_wait(on.dev, on.stream), SW_E_ARG);
    assert_int_equal(sw_device_capture_end(on.dev, on.stream, NULL), SW_OK);
    on.dev->ops->timeline_close(on.dev, timeline);
    close_on(&on);
}

static void a_driver_that_is_too_old_is_named(void **state)
{
    (void)state;
    struct on on = open_on("emu");
    close_on(&on);
    assert_int_equal(setenv("SPILLWAY_STANDIN_DRIVER", "1", 1), 0);
    struct sw_device *dev = NULL;
    assert_int_equal(sw_device_open("emu", 1, &dev), SW_OK);
    assert_int_equal(unsetenv("SPILLWAY_STANDIN_DRIVER"), 0);
    assert_null(dev->capture);
    assert_int_equal(sw_device_capture_begin(dev, NULL), SW_E_UNSUP);
    assert_non_null(strstr(dev->no_capture, "too old for graphs: its version is 1, wanted 2"));
    sw_device_close(dev);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(kernels_read_scalars_when_they_are_replayed),
    cmocka_unit_test(captured_work_runs_in_the_order_of_its_stream),
    cmocka_unit_test(what_may_not_be_captured_is_refused),
    cmocka_unit_test(exchanges_are_not_captured),
    cmocka_unit_test(a_driver_that_is_too_old_is_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
