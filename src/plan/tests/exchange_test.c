// SPDX-License-Identifier: Apache-2.0
// Tests the rows of exchanges: what each sends, on which queue, what it needs, and what it refuses.
#include "plan/private.h"

#include <string.h>

#include "support/plans.h"
#include "support/test.h"

enum { MOST = 4, ROWS = 12, BATCH = 5, WIDTH = 24 };

/* A list whose only group beside world and data has n members along an axis. */
struct bench {
    struct sw_ir *ir;
    struct sw_group groups[SW_GROUP_COUNT + 1];
    int members[MOST];
};

static void bench_open(struct bench *b, enum sw_axis axis, int n, int me)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    assert_int_equal(sw_ir_open(g, &b->ir), SW_OK);
    sw_graph_close(g);
    for (int r = 0; r < MOST; r++) {
        b->members[r] = r;
    }
    b->groups[SW_GROUP_WORLD] =
        (struct sw_group){.axes = SW_ALL_AXES, .n = n, .me = me, .ranks = b->members};
    b->groups[SW_GROUP_DATA] =
        (struct sw_group){.axes = 1U << SW_AXIS_DATA, .n = 1, .ranks = b->members};
    b->groups[SW_GROUP_COUNT] =
        (struct sw_group){.axes = 1U << axis, .n = n, .me = me, .ranks = b->members};
    b->ir->groups = b->groups;
}

/* Adds an exchange; a shape of rank 0: no such operand. */
static struct sw_ir_op *add(struct bench *b, enum sw_move move, enum sw_dtype dtype,
                            struct sw_shape in, struct sw_shape out)
{
    const sw_value x =
        in.rank > 0 ? sw_ir_new_value(b->ir, SW_ROLE_TRANSIENT, dtype, in) : SW_NO_VALUE;
    const int32_t i = sw_ir_add_exchange(b->ir, move, SW_GROUP_COUNT, &x, in.rank > 0);
    if (out.rank > 0) {
        sw_ir_add_out(b->ir, i, dtype, out);
    } else if (move == SW_MOVE_BROADCAST) {
        sw_ir_add_out_in_place(b->ir, i, x);
    }
    return &b->ir->ops[i];
}

#define NOTHING ((struct sw_shape){0})

/* ---- queues ---- */

static void a_queue_follows_from_axes_and_verb(void **state)
{
    (void)state;
    static const enum sw_queue of_axis[SW_AXIS_COUNT] = {
        [SW_AXIS_PIPE] = SW_QUEUE_COMM,     [SW_AXIS_DATA] = SW_QUEUE_COMM,
        [SW_AXIS_EXPERT] = SW_QUEUE_TENSOR, [SW_AXIS_CONTEXT] = SW_QUEUE_TENSOR,
        [SW_AXIS_TENSOR] = SW_QUEUE_TENSOR,
    };
    for (unsigned axes = 1; axes <= SW_ALL_AXES; axes++) {
        enum sw_queue want = SW_QUEUE_TENSOR;
        for (int a = 0; a < SW_AXIS_COUNT; a++) {
            want = axes >> a & 1 && of_axis[a] == SW_QUEUE_COMM ? SW_QUEUE_COMM : want;
        }
        for (int v = SW_VERB_REDUCE; v < SW_VERB_SEND; v++) {
            assert_int_equal(sw_exchange_queue(axes, (enum sw_verb)v), want);
        }
        assert_int_equal(sw_exchange_queue(axes, SW_VERB_SEND), SW_QUEUE_SENT);
        assert_int_equal(sw_exchange_queue(axes, SW_VERB_RECV), SW_QUEUE_RECEIVED);
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        assert_int_equal(sw_queue_exchanges((enum sw_queue)q),
                         q == SW_QUEUE_COMM || q == SW_QUEUE_TENSOR ||
                             sw_queue_sends((enum sw_queue)q) ||
                             sw_queue_receives((enum sw_queue)q));
    }
}

/* ---- bytes ---- */

struct size_case {
    enum sw_move move;
    bool in, out;          /* that operand has the slices of all members */
    double sent, received; /* in units of the whole tensor, times (n - 1) / n */
};

/* Bytes that a rank sends, as formulas of the whole tensor: docs/ARCHITECTURE.md. */
static const struct size_case sizes[] = {
    {SW_MOVE_ALL_GATHER, false, true, 1, 1},
    {SW_MOVE_REDUCE_SCATTER, true, false, 1, 1},
    {SW_MOVE_ALL_TO_ALL, true, true, 1, 1},
    {SW_MOVE_ALL_REDUCE, true, true, 2, 2},
};

static struct sw_instr describe(const struct bench *b, const struct sw_ir_op *op)
{
    struct sw_instr instr = {.op = 0};
    assert_int_equal(sw_move_check(b->ir, op), SW_OK);
    assert_int_equal(sw_exchange_check(b->ir, op), SW_OK);
    sw_exchange_describe(b->ir, op, &instr);
    assert_int_equal(instr.exchange.group, SW_GROUP_COUNT);
    assert_int_equal(sw_exchange_workspace(b->ir, op),
                     sw_instr_areas(&instr, b->groups[SW_GROUP_COUNT].n).bytes);
    return instr;
}

static void bytes_are_those_of_the_formulas(void **state)
{
    (void)state;
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    for (int n = 1; n <= MOST; n++) {
        for (size_t i = 0; i < SW_LEN(sizes) * SW_LEN(dtypes); i++) {
            const struct size_case *c = &sizes[i / SW_LEN(dtypes)];
            const enum sw_dtype dtype = dtypes[i % SW_LEN(dtypes)];
            const double whole = (double)(ROWS * WIDTH * sw_dtype_bytes(dtype));
            const struct sw_shape part = SW_SHAPE(ROWS / n, WIDTH), all = SW_SHAPE(ROWS, WIDTH);
            struct bench b;
            bench_open(&b, SW_AXIS_TENSOR, n, n - 1);
            const struct sw_ir_op *op =
                add(&b, c->move, dtype, c->in ? all : part, c->out ? all : part);
            const struct sw_instr instr = describe(&b, op);
            const struct sw_instr_traffic bytes = sw_instr_traffic(&instr, n, n - 1);
            assert_true((double)bytes.sent == c->sent * (n - 1) * whole / n);
            assert_true((double)bytes.received == c->received * (n - 1) * whole / n);
            assert_int_equal(instr.exchange.dtype, dtype);
            assert_int_equal(sw_move_queue(b.ir, op), SW_QUEUE_TENSOR);
            sw_ir_close(b.ir);
        }
    }
}

/* An all-reduce whose elements do not divide sends equal slices with padding. */
static void an_all_reduce_rounds_its_slices_up(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        struct bench b;
        bench_open(&b, SW_AXIS_TENSOR, n, 0);
        const struct sw_instr instr =
            describe(&b, add(&b, SW_MOVE_ALL_REDUCE, SW_BF16, SW_SHAPE(13), SW_SHAPE(13)));
        assert_int_equal(instr.bytes, 2 * sw_ceil_div(13, n));
        assert_int_equal(instr.exchange.is_padded, n > 1);
        assert_int_equal(sw_instr_traffic(&instr, n, 0).sent, 2 * (n - 1) * instr.bytes);
        sw_ir_close(b.ir);
    }
}

static void one_member_sends_to_one_or_to_all(void **state)
{
    (void)state;
    enum { BYTES = ROWS * WIDTH * 2 };
    for (int n = 2; n <= MOST; n++) {
        for (int me = 0; me < n; me++) {
            const int peer = (me + 1) % n;
            struct bench b;
            bench_open(&b, SW_AXIS_PIPE, n, me);
            struct sw_ir_op *op = add(&b, SW_MOVE_SEND, SW_BF16, SW_SHAPE(ROWS, WIDTH), NOTHING);
            op->exchange.peer = (int16_t)peer;
            struct sw_instr instr = describe(&b, op);
            assert_int_equal(instr.exchange.peer, peer);
            assert_int_equal(sw_instr_traffic(&instr, n, me).sent, BYTES);
            assert_int_equal(sw_instr_traffic(&instr, n, me).received, 0);
            assert_int_equal(sw_move_queue(b.ir, op), SW_QUEUE_SENT);

            op = add(&b, SW_MOVE_RECV, SW_BF16, NOTHING, SW_SHAPE(ROWS, WIDTH));
            op->exchange.peer = (int16_t)peer;
            instr = describe(&b, op);
            assert_int_equal(sw_instr_traffic(&instr, n, me).sent, 0);
            assert_int_equal(sw_instr_traffic(&instr, n, me).received, BYTES);
            assert_int_equal(sw_move_queue(b.ir, op), SW_QUEUE_RECEIVED);

            op = add(&b, SW_MOVE_BROADCAST, SW_BF16, SW_SHAPE(ROWS, WIDTH), NOTHING);
            instr = describe(&b, op);
            assert_int_equal(sw_instr_traffic(&instr, n, me).sent, me == 0 ? (n - 1) * BYTES : 0);
            assert_int_equal(sw_instr_traffic(&instr, n, me).received, me == 0 ? 0 : BYTES);
            assert_int_equal(sw_move_queue(b.ir, op), SW_QUEUE_COMM);
            assert_int_equal(sw_exchange_workspace(b.ir, op), 0);
            sw_ir_close(b.ir);
        }
    }
}

/* The plan has the bytes of all rows. Offsets stand for each member. */
static void rows_of_experts_are_counted(void **state)
{
    enum { N = 3, W = 6 };
    (void)state;
    struct bench b;
    bench_open(&b, SW_AXIS_EXPERT, N, 1);
    struct sw_ir_op *op =
        add(&b, SW_MOVE_ALL_TO_ALL, SW_BF16, SW_SHAPE(ROWS, WIDTH), SW_SHAPE(ROWS, WIDTH));
    struct sw_instr instr = describe(&b, op);
    assert_false(sw_instr_is_counted(&instr));
    const sw_value offsets = sw_ir_new_value(b.ir, SW_ROLE_TRANSIENT, SW_I32, SW_SHAPE(N, W));
    const sw_value bad[] = {
        sw_ir_new_value(b.ir, SW_ROLE_TRANSIENT, SW_I32, SW_SHAPE(N + 1, W)),
        sw_ir_new_value(b.ir, SW_ROLE_TRANSIENT, SW_F32, SW_SHAPE(N, W)),
        sw_ir_new_value(b.ir, SW_ROLE_TRANSIENT, SW_I32, SW_SHAPE(N, 1)),
        sw_ir_new_value(b.ir, SW_ROLE_TRANSIENT, SW_I32, SW_SHAPE(N * W)),
    };
    op->in[1] = op->in[2] = offsets;
    op->n_in = 3;
    instr = describe(&b, op);
    assert_true(sw_instr_is_counted(&instr));
    assert_int_equal(instr.exchange.row_elems, WIDTH);
    assert_int_equal(sw_instr_traffic(&instr, N, 1).sent, (N - 1) * ROWS / N * WIDTH * 2);
    for (size_t i = 0; i < 2 * SW_LEN(bad); i++) {
        op->in[1] = i % 2 ? offsets : bad[i / 2];
        op->in[2] = i % 2 ? bad[i / 2] : offsets;
        assert_int_equal(sw_move_check(b.ir, op), SW_OK);
        assert_int_equal(sw_exchange_check(b.ir, op), SW_E_ARG);
    }
    sw_ir_close(b.ir);
}

/* ---- dimensions and workspace ---- */

/* Slices along an inner dimension are packed; sums of 16-bit numbers need memory in 32 bits. */
static void workspace_is_what_the_slices_need(void **state)
{
    (void)state;
    enum { N = 3, SLICE = BATCH * 4 * WIDTH, ALL = N * SLICE };
    const struct sw_shape part = SW_SHAPE(BATCH, 4, WIDTH), whole = SW_SHAPE(BATCH, ROWS, WIDTH);
    struct bench b;
    bench_open(&b, SW_AXIS_TENSOR, N, 1);
    struct sw_ir_op *op = add(&b, SW_MOVE_ALL_GATHER, SW_BF16, part, whole);
    op->exchange.dim = 1;
    struct sw_instr instr = describe(&b, op);
    assert_true(instr.exchange.runs[0] == 1 && instr.exchange.runs[1] == BATCH);
    assert_int_equal(sw_exchange_workspace(b.ir, op), ALL * 2);

    op = add(&b, SW_MOVE_REDUCE_SCATTER, SW_BF16, whole, part);
    op->exchange.dim = 1;
    instr = describe(&b, op);
    assert_true(instr.exchange.runs[0] == BATCH && instr.exchange.runs[1] == 1);
    assert_int_equal(sw_exchange_workspace(b.ir, op), 2 * ALL * 2 + SLICE * 4);

    op = add(&b, SW_MOVE_REDUCE_SCATTER, SW_F32, SW_SHAPE(ROWS, WIDTH), SW_SHAPE(4, WIDTH));
    assert_int_equal(describe(&b, op).exchange.runs[0], 1);
    assert_int_equal(sw_exchange_workspace(b.ir, op), ROWS * WIDTH * 4);

    op = add(&b, SW_MOVE_ALL_TO_ALL, SW_F16, whole, SW_SHAPE(BATCH, 4, N * WIDTH));
    op->exchange.dim = 1;
    op->exchange.to_dim = 2;
    instr = describe(&b, op);
    assert_true(instr.exchange.runs[0] == BATCH && instr.exchange.runs[1] == BATCH * 4);
    assert_int_equal(sw_exchange_workspace(b.ir, op), 2 * ALL * 2);
    sw_ir_close(b.ir);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const struct sw_shape part = SW_SHAPE(4, WIDTH), whole = SW_SHAPE(ROWS, WIDTH);
    struct bench b;
    bench_open(&b, SW_AXIS_PIPE, 3, 1);
    const struct {
        enum sw_move move;
        struct sw_shape in, out;
        int dim, to_dim, peer;
    } cases[] = {
        {SW_MOVE_ALL_GATHER, part, whole, 1, 0, 0},
        {SW_MOVE_ALL_GATHER, part, whole, 2, 0, 0},
        {SW_MOVE_ALL_GATHER, whole, part, 0, 0, 0},
        {SW_MOVE_REDUCE_SCATTER, part, whole, 0, 0, 0},
        {SW_MOVE_ALL_TO_ALL, whole, whole, 0, 1, 0},
        {SW_MOVE_ALL_TO_ALL, whole, SW_SHAPE(4, 3 * WIDTH), 1, 0, 0},
        {SW_MOVE_ALL_REDUCE, whole, part, 0, 0, 0},
        {SW_MOVE_SEND, part, NOTHING, 0, 0, 1}, /* to itself */
        {SW_MOVE_SEND, part, NOTHING, 0, 0, 3},
        {SW_MOVE_RECV, NOTHING, part, 0, 0, 1},
        {SW_MOVE_RECV, NOTHING, part, 0, 0, -1},
        {SW_MOVE_BROADCAST, part, NOTHING, 0, 0, 3},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct sw_ir_op *op = add(&b, cases[i].move, SW_BF16, cases[i].in, cases[i].out);
        op->exchange.dim = (int8_t)cases[i].dim;
        op->exchange.to_dim = (int8_t)cases[i].to_dim;
        op->exchange.peer = (int16_t)cases[i].peer;
        assert_int_equal(sw_move_check(b.ir, op), SW_OK);
        assert_int_equal(sw_exchange_check(b.ir, op), SW_E_ARG);
    }
    const struct sw_ir_op *op = add(&b, SW_MOVE_ALL_REDUCE, SW_I32, part, part);
    assert_int_equal(sw_exchange_check(b.ir, op), SW_E_ARG);
    assert_string_equal(sw_error_message(), "plan: all_reduce of i32; wanted f32, bf16 or f16");
    sw_ir_close(b.ir);
}

/* ---- exchanges of a graph ---- */

enum { SAMPLES = 4, TOKENS = 6, CHANNELS = 8 };

/* A sum is scattered over the samples, and what is computed there is gathered. ranks: that the
 * graph is for */
static struct sw_graph *graph_of(int ranks, int me)
{
    const struct sw_graph_options options = {
        .dtype = SW_F32, .grad_dtype = SW_F32, .training = true};
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    struct sw_exchange_attrs attrs = {.from = SW_SPREAD_SUM,
                                      .to = SW_SPREAD_CUT,
                                      .axis = SW_AXIS_TENSOR,
                                      .ranks = ranks,
                                      .me = me};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const struct sw_shape shape = SW_SHAPE(SAMPLES, TOKENS);
    const sw_value table = sw_param(g, "table", SW_SHAPE(11, CHANNELS), init);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, shape), -1);
    h = sw_act(g, sw_graph_exchange(g, h, &attrs), SW_ACT_GELU);
    attrs.from = SW_SPREAD_CUT;
    attrs.to = SW_SPREAD_COPIED;
    h = sw_graph_exchange(g, h, &attrs);
    const sw_value loss =
        sw_linear_cross_entropy(g, h, table, SW_NO_VALUE, sw_input(g, "labels", SW_I32, shape), 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}

/* The gradient of each is the other one, so there are two of both. */
static void exchanges_of_a_graph_become_moves(void **state)
{
    (void)state;
    enum { N = 2, ROUNDS = 3, BYTES = SAMPLES * TOKENS * CHANNELS * 4 / N };
    struct sw_plan_options o = {.device = {test_query, NULL},
                                .policy.micro_batches = ROUNDS,
                                .rule = &test_adam,
                                .mesh.size = {[SW_AXIS_TENSOR] = N},
                                .me = 1};
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, graph_of(N, 1)};
    struct sw_plan *plan;
    if (plan_once(&spec, 1, &o, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    const struct sw_program *p = &plan->programs[0];
    const int group = sw_plan_group(plan, 1U << SW_AXIS_TENSOR);
    int n[SW_SEGMENT_COUNT][SW_VERB_COUNT] = {{0}};
    assert_int_equal(group, SW_GROUP_COUNT);
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const struct sw_instr *instr = &p->instrs[i];
        if (sw_instr_exchanges(instr)) {
            n[instr->segment][instr->verb]++;
            assert_int_equal(instr->queue, SW_QUEUE_TENSOR);
            assert_int_equal(instr->exchange.group, group);
            assert_int_equal(instr->bytes, BYTES);
            assert_false(instr->exchange.blocking);
        }
    }
    for (int s = SW_SEGMENT_FORWARD; s <= SW_SEGMENT_BACKWARD; s++) {
        assert_int_equal(n[s][SW_VERB_REDUCE_SCATTER], 1);
        assert_int_equal(n[s][SW_VERB_ALL_GATHER], 1);
    }
    assert_int_equal(sw_plan_check(plan, &o), SW_OK);
    assert_int_equal(sw_plan_group_bytes(plan, group), 4 * ROUNDS * (N - 1) * BYTES);
    assert_int_equal(sw_plan_group_bytes(plan, SW_GROUP_DATA), 0);

    int n_waits = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) { /* each wait is needed */
        struct sw_instr *instr = &plan->programs[0].instrs[i];
        const int32_t wait = instr->waits[SW_QUEUE_TENSOR];
        if (wait >= 0) {
            instr->waits[SW_QUEUE_TENSOR] = -1;
            assert_int_equal(sw_plan_check(plan, &o), SW_E_ARG);
            instr->waits[SW_QUEUE_TENSOR] = wait;
            n_waits++;
        }
    }
    assert_true(n_waits >= 4);
    sw_plan_close(plan);
}

static void a_graph_for_other_ranks_is_refused(void **state)
{
    (void)state;
    const struct sw_plan_options o = {.device = {test_query, NULL},
                                      .policy.micro_batches = 1,
                                      .rule = &test_adam,
                                      .mesh.size = {[SW_AXIS_TENSOR] = 4}};
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, graph_of(2, 0)};
    struct sw_plan *plan;
    assert_int_equal(plan_once(&spec, 1, &o, &plan), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "number 0 of 2 ranks of the tensor axis; wanted"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(exchanges_of_a_graph_become_moves),
    cmocka_unit_test(rows_of_experts_are_counted),
    cmocka_unit_test(a_graph_for_other_ranks_is_refused),
    cmocka_unit_test(a_queue_follows_from_axes_and_verb),
    cmocka_unit_test(bytes_are_those_of_the_formulas),
    cmocka_unit_test(an_all_reduce_rounds_its_slices_up),
    cmocka_unit_test(one_member_sends_to_one_or_to_all),
    cmocka_unit_test(workspace_is_what_the_slices_need),
    cmocka_unit_test(what_does_not_fit_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
