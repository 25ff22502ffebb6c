// SPDX-License-Identifier: Apache-2.0
// Tests exchanges of activations between ranks that are threads. Plans are made by hand. Results
// are compared with plain arithmetic, and counted bytes with those of the plan.
#include "run/run.h"

#include <math.h>
#include <string.h>

#include "run/executor.h"
#include "support/test.h"

enum { MOST_INSTRS = 16, MOST_RANKS = 4, GROUP_TENSOR = SW_GROUP_COUNT, GROUP_PIPE, N_GROUPS };

/* A program of exchanges only, on one rank. */
struct hand {
    struct sw_instr instrs[MOST_INSTRS];
    struct sw_operand operands[2 * MOST_INSTRS];
    struct sw_buffer buffers[MOST_INSTRS];
    struct sw_program program;
    struct sw_group groups[N_GROUPS];
    int members[MOST_RANKS];
    struct sw_plan plan;
    struct sw_device *dev;
    struct sw_executor *ex;
};

static const struct sw_instr_about about = {.name = "an exchange", .where = "a test"};

static void open_hand(struct hand *h, const char *device, int n, int me)
{
    memset(h, 0, sizeof *h);
    assert_int_equal(sw_device_open(device, 1, &h->dev), SW_OK);
    for (int r = 0; r < n; r++) {
        h->members[r] = r;
    }
    static const unsigned axes[N_GROUPS] = {SW_ALL_AXES, 1U << SW_AXIS_DATA, 1U << SW_AXIS_TENSOR,
                                            1U << SW_AXIS_PIPE};
    for (int g = 0; g < N_GROUPS; g++) {
        h->groups[g] = (struct sw_group){.axes = axes[g], .n = n, .me = me, .ranks = h->members};
    }
    h->program = (struct sw_program){.instrs = h->instrs,
                                     .operands = h->operands,
                                     .buffers = h->buffers,
                                     .micro_batches = 1,
                                     .turns = 1};
    h->plan = (struct sw_plan){.programs = &h->program,
                               .n_programs = 1,
                               .groups = h->groups,
                               .n_groups = N_GROUPS,
                               .staging.bytes = h->dev->staging_bytes,
                               .tier_bytes[SW_TIER_HOST] = h->dev->staging_bytes};
    sw_plan_share_staging(&h->plan);
}

static size_t take(struct hand *h, size_t bytes)
{
    const size_t at = h->plan.tier_bytes[SW_TIER_DEVICE];
    h->plan.tier_bytes[SW_TIER_DEVICE] = sw_round_up(at + bytes, SW_PLAN_ALIGN);
    return at;
}

static struct sw_operand place(struct hand *h, size_t bytes)
{
    return (struct sw_operand){
        .offset = take(h, bytes), .bytes = bytes, .room = bytes, .tier = SW_TIER_DEVICE};
}

struct wish {
    enum sw_verb verb;
    int group, peer;
    enum sw_dtype dtype;
    int64_t elems[2]; /* of the operands; 0 = there is no second one */
    int64_t slice;    /* elements */
    int32_t runs[2];
};

/* Appends an exchange, with places for its operands and its workspace. */
static struct sw_instr *add(struct hand *h, const struct wish *wish)
{
    struct sw_program *p = &h->program;
    const size_t size = sw_dtype_bytes(wish->dtype);
    struct sw_instr *instr = &h->instrs[p->n_instrs];
    const struct sw_group *group = &h->groups[wish->group];
    *instr = (struct sw_instr){
        .verb = wish->verb,
        .queue = sw_exchange_queue(group->axes, wish->verb),
        .turn = {.again = -1, .order = p->n_instrs},
        .follows = -1,
        .workspace = -1,
        .about = &about,
        .operands = p->n_operands,
        .bytes = wish->slice * (int64_t)size,
        .exchange = {.group = wish->group,
                     .batch = 1,
                     .dtype = wish->dtype,
                     .peer = wish->peer,
                     .runs = {wish->runs[0], wish->runs[1]},
                     .is_padded = wish->verb == SW_VERB_ALL_REDUCE &&
                                  wish->slice * group->n != wish->elems[0]},
    };
    memset(instr->waits, 0xff, sizeof instr->waits);
    for (int k = 0; k < 2 && wish->elems[k] > 0; k++) {
        h->operands[p->n_operands++] = place(h, (size_t)wish->elems[k] * size);
        instr->n_in++;
    }
    const size_t workspace = sw_instr_areas(instr, group->n).bytes;
    if (workspace > 0) {
        instr->workspace = p->n_buffers;
        h->buffers[p->n_buffers++] =
            (struct sw_buffer){.offset = take(h, workspace), .bytes = workspace};
    }
    p->n_instrs++;
    for (int s = 1; s <= SW_SEGMENT_COUNT; s++) {
        p->segment_first[s] = p->n_instrs;
    }
    return instr;
}

static void start(struct hand *h, sw_comm *comm)
{
    const struct sw_executor_options options = {.comm = comm};
    if (sw_executor_open(&h->plan, h->dev, &options, &h->ex) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static void close_hand(struct hand *h)
{
    sw_executor_close(h->ex);
    sw_device_close(h->dev);
}

static struct sw_port port_of(const struct hand *h, int i_instr, int k)
{
    const struct sw_operand *at = &h->operands[h->instrs[i_instr].operands + k];
    return (struct sw_port){
        .dtype = SW_U8, .shape = SW_SHAPE((int64_t)at->bytes), .at = *at, .name = "an operand"};
}

/* ---- numbers ---- */

/* Element i of rank r's data of kind k, rounded to the type. */
static double element(enum sw_dtype dtype, int k, int r, int64_t i)
{
    char at[8];
    sw_store_f64(dtype, at, 0,
                 ldexp(sw_philox_normal(11, (uint64_t)(k * MOST_RANKS + r), (uint64_t)i), i % 9));
    return sw_load_f64(dtype, at, 0);
}

static void give(struct hand *h, int i_instr, int kind, int rank, enum sw_dtype dtype)
{
    char bytes[4096];
    const struct sw_port port = port_of(h, i_instr, 0);
    const int64_t n = (int64_t)(port.at.bytes / sw_dtype_bytes(dtype));
    for (int64_t i = 0; i < n; i++) {
        sw_store_f64(dtype, bytes, i, element(dtype, kind, rank, i));
    }
    assert_int_equal(sw_executor_write(h->ex, &port, bytes, port.at.bytes), SW_OK);
}

/* ---- each verb against plain arithmetic ---- */

enum { A = 3, B = 4, C = 5 }; /* a part is [A, B, C], the whole [A, n B, C] */

struct verb_case {
    enum sw_verb verb;
    enum sw_dtype dtype;
    bool inner;   /* along the second dimension; else the first of [n A B, C] */
    int64_t more; /* ALL_REDUCE: elements beyond those that divide */
    const char *device;
};

static struct wish wish_of(const struct verb_case *c, int n)
{
    const int64_t part = A * B * C, whole = n * part;
    const int32_t runs = c->inner ? A : 1;
    struct wish w = {.verb = c->verb, .group = GROUP_TENSOR, .dtype = c->dtype, .slice = part};
    w.runs[0] = w.runs[1] = 1;
    w.elems[0] = w.elems[1] = whole;
    switch (c->verb) {
    case SW_VERB_ALL_GATHER:
        w.elems[0] = part;
        w.runs[1] = runs;
        break;
    case SW_VERB_REDUCE_SCATTER:
        w.elems[1] = part;
        w.runs[0] = runs;
        break;
    case SW_VERB_ALL_TO_ALL: /* from the second dimension to the third */
        w.runs[0] = runs;
        w.runs[1] = c->inner ? A * B : 1;
        break;
    case SW_VERB_ALL_REDUCE:
        w.elems[0] = w.elems[1] = part + c->more;
        w.slice = sw_ceil_div(part + c->more, n);
        break;
    default:
        w.elems[0] = part;
        w.elems[1] = 0;
        w.peer = n - 1;
    }
    return w;
}

/* The sum of the ranks' elements, in rank order and in fp32; the caller rounds it. */
static double sum_of(enum sw_dtype dtype, int n, int64_t i)
{
    float sum = (float)element(dtype, 0, 0, i);
    for (int r = 1; r < n; r++) {
        sum += (float)element(dtype, 0, r, i);
    }
    return sum;
}

/* Element i of the result on rank `me`. */
static double wanted(const struct verb_case *c, int n, int me, int64_t i)
{
    const int64_t part = A * B * C;
    const int64_t a = i / (B * C), b = i / C % B, col = i % C; /* of a part */
    const int64_t whole_b = i / C % (n * B), whole_a = i / (n * B * C);
    switch (c->verb) {
    case SW_VERB_ALL_GATHER:
        return !c->inner ? element(c->dtype, 0, (int)(i / part), i % part)
                         : element(c->dtype, 0, (int)(whole_b / B),
                                   (whole_a * B + whole_b % B) * C + col);
    case SW_VERB_REDUCE_SCATTER:
        return sum_of(c->dtype, n, c->inner ? (a * n * B + me * B + b) * C + col : me * part + i);
    case SW_VERB_ALL_TO_ALL: { /* [A, B, n C] */
        const int64_t to_col = i % (n * C), to_b = i / (n * C) % B, to_a = i / (n * C * B);
        return !c->inner ? element(c->dtype, 0, (int)(i / part), me * part + i % part)
                         : element(c->dtype, 0, (int)(to_col / C),
                                   (to_a * n * B + me * B + to_b) * C + to_col % C);
    }
    case SW_VERB_ALL_REDUCE:
        return sum_of(c->dtype, n, i);
    default:
        return element(c->dtype, 0, n - 1, i);
    }
}

static sw_status run_verb(void *ctx, sw_comm *comm)
{
    const struct verb_case *c = ctx;
    const int n = sw_comm_size(comm), me = sw_comm_rank(comm);
    struct hand h;
    char got[4096], want[8];
    open_hand(&h, c->device, n, me);
    const struct wish wish = wish_of(c, n);
    const struct sw_instr *instr = add(&h, &wish);
    start(&h, comm);
    give(&h, 0, 0, me, c->dtype);
    sw_status st = sw_executor_forward(h.ex, 0);
    const struct sw_port out = port_of(&h, 0, instr->n_in - 1);
    assert_int_equal(sw_executor_read(h.ex, &out, got, out.at.bytes), SW_OK);
    const size_t size = sw_dtype_bytes(c->dtype);
    for (int64_t i = 0; st >= 0 && i < (int64_t)(out.at.bytes / size); i++) {
        sw_store_f64(c->dtype, want, 0, wanted(c, n, me, i));
        if (memcmp(got + (size_t)i * size, want, size) != 0) {
            st = SW_FAIL(SW_E_ARG, "%s on %s, %d ranks: element %lld is %g, wanted %g",
                         sw_verb_name(c->verb), c->device, n, (long long)i,
                         sw_load_f64(c->dtype, got, i), sw_load_f64(c->dtype, want, 0));
        }
    }
    struct sw_traffic traffic;
    struct sw_queue_times times[SW_QUEUE_COUNT];
    int64_t sent = 0;
    sw_executor_traffic(h.ex, GROUP_TENSOR, &traffic);
    sw_executor_queue_times(h.ex, times);
    for (int op = 0; op < SW_COMM_OP_COUNT; op++) {
        sent += traffic.sent[op];
    }
    const struct sw_instr_traffic planned = sw_instr_traffic(instr, n, me);
    assert_int_equal(sent, planned.sent);
    assert_int_equal(times[SW_QUEUE_TENSOR].bytes_out, planned.sent);
    assert_int_equal(times[SW_QUEUE_TENSOR].bytes_in, planned.received);
    close_hand(&h);
    return st;
}

static void each_verb_is_plain_arithmetic(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu:reference", "mock", "mock:early"};
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    static const enum sw_verb verbs[] = {SW_VERB_ALL_GATHER, SW_VERB_REDUCE_SCATTER,
                                         SW_VERB_ALL_TO_ALL, SW_VERB_ALL_REDUCE, SW_VERB_BROADCAST};
    for (size_t i = 0; i < SW_LEN(devices) * SW_LEN(dtypes) * SW_LEN(verbs) * 2; i++) {
        struct verb_case c = {.device = devices[i / 2 % SW_LEN(devices)],
                              .inner = i % 2,
                              .more = i % 2,
                              .dtype = dtypes[i / 6 % SW_LEN(dtypes)],
                              .verb = verbs[i / 18]};
        for (int n = 1; n <= MOST_RANKS; n++) {
            if (sw_threads_run(n, 60, run_verb, &c) < 0) {
                fail_msg("%s", sw_error_message());
            }
        }
    }
}

/* ---- messages between two ranks ---- */

/* Rank 0 sends to rank 2, which hands the same memory on to rank 1. */
static sw_status hand_on(void *ctx, sw_comm *comm)
{
    enum { ELEMS = 700 };
    static const struct {
        enum sw_verb verb;
        int peer;
    } of_rank[3][2] = {
        {{SW_VERB_SEND, 2}}, {{SW_VERB_RECV, 2}}, {{SW_VERB_RECV, 0}, {SW_VERB_SEND, 1}}};
    const int me = sw_comm_rank(comm);
    struct hand h;
    float got[ELEMS];
    open_hand(&h, ctx, 3, me);
    for (int i = 0; i < 1 + (me == 2); i++) {
        const struct wish wish = {.verb = of_rank[me][i].verb,
                                  .group = GROUP_PIPE,
                                  .peer = of_rank[me][i].peer,
                                  .dtype = SW_F32,
                                  .elems = {ELEMS},
                                  .slice = ELEMS,
                                  .runs = {1, 1}};
        struct sw_instr *instr = add(&h, &wish);
        h.operands[instr->operands] = h.operands[0];
        instr->waits[SW_QUEUE_RECEIVED] = i - 1;
    }
    start(&h, comm);
    give(&h, 0, 0, me, SW_F32);
    const sw_status st = sw_executor_forward(h.ex, 0);
    const struct sw_port port = port_of(&h, 0, 0);
    assert_int_equal(sw_executor_read(h.ex, &port, got, sizeof got), SW_OK);
    for (int i = 0; i < ELEMS && st >= 0; i++) {
        assert_true(got[i] == (float)element(SW_F32, 0, 0, i));
    }
    struct sw_queue_times times[SW_QUEUE_COUNT];
    sw_executor_queue_times(h.ex, times);
    assert_int_equal(times[SW_QUEUE_SENT].bytes_out, me == 1 ? 0 : sizeof got);
    assert_int_equal(times[SW_QUEUE_RECEIVED].bytes_in, me == 0 ? 0 : sizeof got);
    close_hand(&h);
    return st;
}

static void a_message_reaches_its_peer(void **state)
{
    (void)state;
    char devices[][16] = {"cpu:reference", "mock", "mock:early"};
    for (size_t d = 0; d < SW_LEN(devices); d++) {
        if (sw_threads_run(3, 60, hand_on, devices[d]) < 0) {
            fail_msg("%s: %s", devices[d], sw_error_message());
        }
    }
}

/* ---- queues side by side ---- */

enum { SIDE_ELEMS = 300, ROUNDS = 20 };

/* Rank 0 begins with the tensor group and rank 1 with the other one; they share no queue. */
static sw_status cross(void *ctx, sw_comm *comm)
{
    const int n = sw_comm_size(comm), me = sw_comm_rank(comm);
    struct hand h;
    float got[SIDE_ELEMS];
    open_hand(&h, ctx, n, me);
    for (int i = 0; i < 2; i++) {
        const struct wish wish = {.verb = SW_VERB_ALL_REDUCE,
                                  .group = (i == 0) == (me % 2 == 0) ? GROUP_TENSOR : GROUP_PIPE,
                                  .dtype = SW_F32,
                                  .elems = {SIDE_ELEMS, SIDE_ELEMS},
                                  .slice = sw_ceil_div(SIDE_ELEMS, n),
                                  .runs = {1, 1}};
        add(&h, &wish);
    }
    start(&h, comm);
    give(&h, 0, 0, me, SW_F32);
    give(&h, 1, 0, me, SW_F32);
    sw_status st = SW_OK;
    for (int round = 0; round < ROUNDS && st >= 0; round++) {
        st = sw_executor_forward(h.ex, 0);
    }
    for (int i = 0; i < 2; i++) {
        const struct sw_port port = port_of(&h, i, 1);
        assert_int_equal(sw_executor_read(h.ex, &port, got, sizeof got), SW_OK);
        for (int k = 0; k < SIDE_ELEMS && st >= 0; k++) {
            assert_true(got[k] == (float)sum_of(SW_F32, n, k));
        }
    }
    close_hand(&h);
    return st;
}

/* Each rank sends to the next one and receives from the one before, at once and in turn. */
static sw_status go_round(void *ctx, sw_comm *comm)
{
    const int n = sw_comm_size(comm), me = sw_comm_rank(comm);
    struct hand h;
    float got[SIDE_ELEMS];
    open_hand(&h, ctx, n, me);
    for (int i = 0; i < 2; i++) {
        const bool sends = (i == 0) == (me % 2 == 0);
        const struct wish wish = {.verb = sends ? SW_VERB_SEND : SW_VERB_RECV,
                                  .group = GROUP_PIPE,
                                  .peer = (sends ? me + 1 : me + n - 1) % n,
                                  .dtype = SW_F32,
                                  .elems = {SIDE_ELEMS},
                                  .slice = SIDE_ELEMS,
                                  .runs = {1, 1}};
        add(&h, &wish);
    }
    const int sent = me % 2 == 0 ? 0 : 1;
    start(&h, comm);
    give(&h, sent, 0, me, SW_F32);
    sw_status st = SW_OK;
    for (int round = 0; round < ROUNDS && st >= 0; round++) {
        st = sw_executor_forward(h.ex, 0);
    }
    const struct sw_port port = port_of(&h, 1 - sent, 0);
    assert_int_equal(sw_executor_read(h.ex, &port, got, sizeof got), SW_OK);
    for (int k = 0; k < SIDE_ELEMS && st >= 0; k++) {
        assert_true(got[k] == (float)element(SW_F32, 0, (me + n - 1) % n, k));
    }
    struct sw_traffic traffic;
    sw_executor_traffic(h.ex, GROUP_PIPE, &traffic);
    assert_int_equal(traffic.sent[SW_COMM_SEND], ROUNDS * sizeof got);
    close_hand(&h);
    return st;
}

static void queues_do_not_wait_for_each_other(void **state)
{
    (void)state;
    char devices[][16] = {"cpu:reference", "mock", "mock:early"};
    for (size_t d = 0; d < SW_LEN(devices); d++) {
        for (int n = 2; n <= MOST_RANKS; n++) {
            if (sw_threads_run(n, 60, cross, devices[d]) < 0 ||
                sw_threads_run(n, 60, go_round, devices[d]) < 0) {
                fail_msg("%s: %s", devices[d], sw_error_message());
            }
        }
    }
}

/* No two links of a pipeline share a number, and those of neighbours, also from the last stage to
 * the first, are few: MPI has numbers up to 16000. */
static void links_of_many_stages_have_small_numbers(void **state)
{
    (void)state;
    enum { N_PLAN_GROUPS = 5, MOST_STAGES = 24 };
    for (int n = 2; n <= MOST_STAGES; n++) {
        bool taken[2 + N_PLAN_GROUPS + 2 * MOST_STAGES * MOST_STAGES] = {false};
        for (int pair = 0; pair < n * n; pair++) {
            const int from = pair / n, to = pair % n;
            for (int back = 0; back < 2 && from != to; back++) {
                const int i = sw_link_number(N_PLAN_GROUPS, SW_GROUP_COUNT, n, from, to, back);
                assert_true(i > N_PLAN_GROUPS && i < (int)SW_LEN(taken) && !taken[i]);
                taken[i] = true;
            }
        }
    }
    for (int r = 0; r < 1000; r++) {
        for (int step = 1; step < 1000; step += 998) {
            const int i =
                sw_link_number(N_PLAN_GROUPS, SW_GROUP_COUNT, 1000, r, (r + step) % 1000, true);
            assert_true(i <= N_PLAN_GROUPS + 4000);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(queues_do_not_wait_for_each_other),
    cmocka_unit_test(a_message_reaches_its_peer),
    cmocka_unit_test(links_of_many_stages_have_small_numbers),
    cmocka_unit_test(each_verb_is_plain_arithmetic),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
