// SPDX-License-Identifier: Apache-2.0
// Errors that the fast kernels of attention must not make: leave a case to the reference, process
// blocks of keys that no query of a block sees, or leave workers idle when key heads are few.
#include "device/gpu/open.h"
#include "device/tests/op_cases.h"
#include "support/test.h"

static int set_up(void **state)
{
    const struct sw_cpu_options options = {.n_threads = 2};
    assert_int_equal(sw_device_open_cpu(&options, (struct sw_device **)state), SW_OK);
    return 0;
}

static int tear_down(void **state)
{
    sw_device_close(*state);
    return 0;
}

static struct sw_kernel_info info_of(struct sw_device *dev, const struct op_case *c)
{
    struct sw_op_desc desc = {.op = &c->op};
    struct sw_kernel_info info;
    for (int i = 0; i < c->op.n_in; i++) {
        desc.in[i] = c->in[i].view;
    }
    for (int i = 0; i < c->op.n_out; i++) {
        desc.out[i] = c->out[i].view;
    }
    sw_device_query(dev, &desc, &info);
    assert_true(info.supported);
    return info;
}

/* The reference is correct, but a thousand times too slow for a model. */
static void test_every_attention_has_a_fast_kernel(void **state)
{
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    static const enum sw_op_kind kinds[] = {SW_OP_ATTENTION, SW_OP_ATTENTION_GRAD};
    for (size_t k = 0; k < SW_LEN(kinds); k++) {
        for (size_t d = 0; d < SW_LEN(dtypes); d++) {
            struct op_case c;
            int n = 0;
            for (; op_cases[kinds[k]](&c, dtypes[d], n); n++) {
                if (strcmp(info_of(*state, &c).path, "reference") == 0) {
                    fail_msg("%s ends in the reference", c.name);
                }
                case_fini(&c);
            }
            assert_true(n > 10);
        }
    }
}

enum { TOKENS = 400, WIDTH = 4, POISONED = 100, BEHIND = 224 };

/* Causal, one head; the first keys and values are NaN. Queries before BEHIND may see them. */
static void poisoned_case(struct op_case *c, enum sw_op_kind kind, bool by_window)
{
    case_init(c, kind, "%s of keys behind a %s", kind == SW_OP_ATTENTION ? "attention" : "gradient",
              by_window ? "window" : "segment");
    c->op.attrs.attention =
        (struct sw_attention_attrs){.heads = 1, .kv_heads = 1, .causal = true, .scale = 0.5};
    const struct sw_shape shape = SW_SHAPE(1, TOKENS, WIDTH);
    if (kind == SW_OP_ATTENTION_GRAD) {
        case_in(c, SW_F32, shape, -1, 1);
        case_in(c, SW_F32, shape, -1, 1);
        case_in(c, SW_F32, SW_SHAPE(1, 1, TOKENS), 2, 4);
    }
    case_in(c, SW_F32, shape, -1, 1);
    for (int i = 0; i < 2; i++) {
        float *x = c->in[case_in(c, SW_F32, shape, -1, 1)].view.data;
        for (int64_t e = 0; e < (int64_t)POISONED * WIDTH; e++) {
            x[e] = NAN;
        }
    }
    if (by_window) {
        c->op.attrs.attention.window = BEHIND - 128;
    } else {
        int32_t segments[TOKENS];
        for (int i = 0; i < TOKENS; i++) {
            segments[i] = i >= BEHIND;
        }
        c->op.attrs.attention.has_segments = true;
        case_in_i32(c, TOKENS, segments);
    }
    for (int i = 0; i < (kind == SW_OP_ATTENTION_GRAD ? 3 : 1); i++) {
        case_out(c, SW_F32, shape);
    }
    if (kind == SW_OP_ATTENTION) {
        case_out(c, SW_F32, SW_SHAPE(1, 1, TOKENS));
    }
}

/* A product with a skipped key would be NaN: zero times NaN. So a row's cost follows its window or
 * its documents. */
static void check_hidden_blocks(struct sw_device *dev)
{
    for (int i = 0; i < 4; i++) {
        struct op_case c, r;
        poisoned_case(&c, i & 1 ? SW_OP_ATTENTION_GRAD : SW_OP_ATTENTION, (i & 2) != 0);
        if (case_run(dev, &c, &r) < 0) {
            fail_msg("%s: %s", c.name, sw_error_message());
        }
        const float *out = r.out[0].view.data; /* o, or dq */
        assert_true(out[0] != out[0]);
        for (int64_t e = (int64_t)BEHIND * WIDTH; e < (int64_t)TOKENS * WIDTH; e++) {
            assert_true(out[e] == out[e]);
        }
        case_fini(&c);
        case_fini(&r);
    }
}

static void test_hidden_blocks_are_not_looked_at(void **state)
{
    check_hidden_blocks(*state);
}

/* GPU kernels, emulated. */
static void test_gpus_do_not_look_at_hidden_blocks(void **state)
{
    struct sw_device *dev;
    (void)state;
    if (sw_gpu_open("emu32", 0, 1, &dev) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        skip();
    }
    check_hidden_blocks(dev);
    sw_device_close(dev);
}

/* Workspace bytes of a gradient: one sample, four heads with one key head, `tokens` tokens. */
static size_t workspace_of(int n_threads, int64_t tokens)
{
    const struct sw_cpu_options options = {.n_threads = n_threads};
    const struct sw_shape q = SW_SHAPE(1, tokens, 32), k = SW_SHAPE(1, tokens, 8);
    struct sw_device *dev;
    struct op_case c;
    case_init(&c, SW_OP_ATTENTION_GRAD, "workspace");
    c.op.attrs.attention =
        (struct sw_attention_attrs){.heads = 4, .kv_heads = 1, .causal = true, .scale = 0.5};
    const struct sw_shape in[] = {q, q, SW_SHAPE(1, 4, tokens), q, k, k};
    for (size_t i = 0; i < SW_LEN(in); i++) {
        case_in_zero(&c, SW_F32, in[i]);
    }
    for (int i = 3; i < 6; i++) {
        case_out(&c, SW_F32, in[i]);
    }
    assert_int_equal(sw_device_open_cpu(&options, &dev), SW_OK);
    const size_t bytes = info_of(dev, &c).workspace_bytes;
    sw_device_close(dev);
    case_fini(&c);
    return bytes;
}

/* A key head is one item, with sums for all keys, if there are enough key heads for the workers.
 * Otherwise each block of keys is an item, however many there are. */
static void test_few_key_heads_are_cut(void **state)
{
    (void)state;
    assert_true(workspace_of(1, 1000) > workspace_of(1, 500));
    assert_int_equal(workspace_of(2, 1000), workspace_of(2, 500));
    assert_int_equal(workspace_of(7, 1000), workspace_of(7, 500));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_attention_has_a_fast_kernel),
    cmocka_unit_test(test_hidden_blocks_are_not_looked_at),
    cmocka_unit_test(test_gpus_do_not_look_at_hidden_blocks),
    cmocka_unit_test(test_few_key_heads_are_cut),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
