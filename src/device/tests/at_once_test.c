// SPDX-License-Identifier: Apache-2.0
// LINEAR_CE_AT_ONCE has the bits of the ops that it stands for: LINEAR_CE, LOSS_MEAN_GRAD and
// LINEAR_CE_GRAD, for one block of rows and for several, with ignored labels or none but those, on
// any number of threads. Skipped where the processor has no kernel of it.
#include "device/tests/op_case.h"
#include "support/test.h"

struct loss {
    int64_t rows, vocab, width, chunk;
    int used; /* rows of 8 that have a label */
    bool has_bias;
    double cap, weight;
    int absent; /* bits: 1 no dh, 2 no dw, 4 no db */
};

/* Rows of the third, fourth and fifth are several blocks. */
static const struct loss losses[] = {
    {1, 5, 3, 5, 8, false, 0, 0, 0},         {40, 300, 20, 128, 8, true, 0, 0, 0},
    {700, 1000, 33, 128, 8, false, 0, 0, 0}, {1100, 515, 40, 128, 5, true, 30, 0.125, 0},
    {1024, 900, 300, 256, 8, true, 0, 0, 0}, {600, 130, 16, 130, 0, true, 0, 0, 0},
    {600, 400, 24, 128, 7, true, 0, 0, 1},   {600, 400, 24, 128, 7, true, 0, 0, 2},
    {256, 2000, 64, 512, 8, false, 5, 3, 0}, {600, 400, 24, 128, 7, true, 0, 0, 4},
};
enum { MOST_ROWS = 1100, IGNORED = -100 };

static bool run(struct sw_device *dev, struct op_case *c, struct op_case *result)
{
    const sw_status st = case_run(dev, c, result);
    if (st < 0 && st != SW_E_UNSUP) {
        fail_msg("%s: %s", c->name, sw_error_message());
    }
    return st >= 0;
}

static void copy_in(struct op_case *c, const struct case_tensor *from)
{
    const int i = case_in_zero(c, from->view.dtype, from->view.shape);
    memcpy(c->in[i].view.data, from->view.data, from->bytes);
}

static void put_out(struct op_case *c, bool is_absent, struct sw_shape shape)
{
    if (is_absent) {
        case_out_absent(c);
    } else {
        case_out(c, SW_F32, shape);
    }
}

/* Adds the gradients of h, w and the bias. */
static void put_gradients(struct op_case *c, const struct loss *l)
{
    put_out(c, l->absent & 1, SW_SHAPE(l->rows, l->width));
    put_out(c, l->absent & 2, SW_SHAPE(l->vocab, l->width));
    if (l->has_bias) {
        put_out(c, l->absent & 4, SW_SHAPE(l->vocab));
    }
}

static struct sw_linear_ce_attrs attrs_of(const struct loss *l)
{
    return (struct sw_linear_ce_attrs){.chunk = l->chunk, .cap = l->cap, .has_bias = l->has_bias};
}

/* The whole in one op; its inputs are random. */
static void put_at_once(struct op_case *c, const struct loss *l)
{
    int32_t labels[MOST_ROWS];
    case_init(c, SW_OP_LINEAR_CE_AT_ONCE, "loss of %dx%dx%d, %d used", (int)l->rows, (int)l->vocab,
              (int)l->width, l->used);
    c->op.attrs.linear_ce = attrs_of(l);
    c->op.attrs.linear_ce.mean_weight = l->weight;
    for (int64_t i = 0; i < l->rows; i++) {
        labels[i] = i * 5 % 8 < l->used ? (int32_t)(i * 37 % l->vocab) : IGNORED;
    }
    case_in(c, SW_F32, SW_SHAPE(1), 1, 2);
    case_in(c, SW_F32, SW_SHAPE(l->rows, l->width), -2, 2);
    case_in(c, SW_F32, SW_SHAPE(l->vocab, l->width), -1, 1);
    case_in_i32(c, l->rows, labels);
    if (l->has_bias) {
        case_in(c, SW_F32, SW_SHAPE(l->vocab), -1, 1);
    }
    case_out(c, SW_F32, SW_SHAPE(1));
    case_out(c, SW_F32, SW_SHAPE(1));
    put_gradients(c, l);
}

static void assert_same(const struct op_case *c, const struct case_tensor *have,
                        const struct case_tensor *want, const char *what)
{
    if (memcmp(have->view.data, want->view.data, want->bytes) != 0) {
        fail_msg("%s: other bits of %s", c->name, what);
    }
}

/* Runs the three ops one after the other, and compares. */
static void compare(struct sw_device *dev, const struct loss *l, const struct op_case *whole,
                    const struct op_case *have)
{
    static const char *const names[] = {"dh", "dw", "db"};
    struct op_case forward, mean, backward, sums, slope, grads;
    case_init(&forward, SW_OP_LINEAR_CE, "linear_ce");
    forward.op.attrs.linear_ce = attrs_of(l);
    for (int k = 1; k < whole->op.n_in; k++) {
        copy_in(&forward, &whole->in[k]);
    }
    case_out(&forward, SW_F32, SW_SHAPE(1));
    case_out(&forward, SW_F32, SW_SHAPE(1));
    case_out(&forward, SW_F32, SW_SHAPE(l->rows));
    assert_true(run(dev, &forward, &sums));
    case_init(&mean, SW_OP_LOSS_MEAN_GRAD, "loss_mean_grad");
    mean.op.attrs.loss_mean.weight = l->weight;
    copy_in(&mean, &whole->in[0]);
    copy_in(&mean, &sums.out[1]);
    case_out(&mean, SW_F32, SW_SHAPE(1));
    assert_true(run(dev, &mean, &slope));
    case_init(&backward, SW_OP_LINEAR_CE_GRAD, "linear_ce_grad");
    backward.op.attrs.linear_ce = attrs_of(l);
    copy_in(&backward, &slope.out[0]);
    for (int k = 1; k < 4; k++) {
        copy_in(&backward, &whole->in[k]);
    }
    copy_in(&backward, &sums.out[2]);
    if (l->has_bias) {
        copy_in(&backward, &whole->in[4]);
    }
    put_gradients(&backward, l);
    assert_true(run(dev, &backward, &grads));
    assert_same(whole, &have->out[0], &sums.out[0], "the sum");
    assert_same(whole, &have->out[1], &sums.out[1], "the count");
    for (int k = 0; k < backward.op.n_out; k++) {
        if (!(l->absent & 1 << k)) {
            assert_same(whole, &have->out[2 + k], &grads.out[k], names[k]);
        }
    }
    struct op_case *const all[] = {&forward, &mean, &backward, &sums, &slope, &grads};
    for (size_t i = 0; i < SW_LEN(all); i++) {
        case_fini(all[i]);
    }
}

static void it_has_the_bits_of_the_ops(void **state)
{
    int n_run = 0;
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        const struct sw_cpu_options options = {.n_threads = threads};
        struct sw_device *dev = NULL;
        assert_int_equal(sw_device_open_cpu(&options, &dev), SW_OK);
        for (size_t i = 0; i < SW_LEN(losses); i++) {
            struct op_case whole, have;
            put_at_once(&whole, &losses[i]);
            if (run(dev, &whole, &have)) {
                compare(dev, &losses[i], &whole, &have);
                case_fini(&have);
                n_run++;
            }
            case_fini(&whole);
        }
        sw_device_close(dev);
    }
    if (n_run == 0) {
        skip();
    }
    assert_int_equal(n_run, 3 * (int)SW_LEN(losses));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(it_has_the_bits_of_the_ops),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
