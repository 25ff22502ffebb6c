// SPDX-License-Identifier: Apache-2.0
// Tests the clock: small programs whose time is computed by hand, and properties of a real plan
// with arbitrary costs.

#include <math.h>
#include <string.h>

#include "support/plans.h"
#include "support/test.h"
#include "walk/walk.h"

/* ---- by hand ---- */

enum { MOST = 16 };

/* A step of one segment that drains. */
struct hand {
    struct sw_instr instrs[MOST];
    struct sw_cost costs[MOST][2];
    struct sw_program program;
    struct sw_step_phase phases[3];
    struct sw_plan plan;
    struct sw_pace pace;
    struct sw_clock_report report;
};

static void open_hand(struct hand *h)
{
    memset(h, 0, sizeof *h);
    h->program.instrs = h->instrs;
    h->program.micro_batches = 1;
    h->plan.programs = &h->program;
    h->plan.n_programs = 1;
    h->plan.step = (struct sw_step){.phases = h->phases, .n_phases = 1, .ranks = 1, .rounds = 1};
    h->phases[0] = (struct sw_step_phase){.action = SW_STEP_RUN, .n_micro = 1, .drains = true};
    h->pace =
        (struct sw_pace){.costs = (const struct sw_cost(*)[2])h->costs, .disk_share = {0.5, 0.5}};
}

static const struct sw_instr_about a_test = {.name = "a test", .where = "a test"};

static struct sw_instr *add(struct hand *h, enum sw_verb verb, enum sw_queue queue, double seconds)
{
    const int i = h->program.n_instrs++;
    struct sw_instr *instr = &h->instrs[i];
    *instr = (struct sw_instr){.queue = queue,
                               .verb = verb,
                               .follows = -1,
                               .exchange.batch = verb >= SW_VERB_REDUCE,
                               .about = &a_test};
    memset(instr->waits, 0xff, sizeof instr->waits); /* none */
    h->costs[i][0] = h->costs[i][1] = (struct sw_cost){.seconds = seconds};
    return instr;
}

static struct sw_instr *add_kernel(struct hand *h, double seconds)
{
    return add(h, SW_VERB_KERNEL, SW_QUEUE_COMPUTE, seconds);
}

static double walk_hand(struct hand *h)
{
    sw_free(h->report.instrs);
    h->report.instrs = NULL;
    if (sw_clock_step(&h->plan, &h->pace, &h->report) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return h->report.seconds;
}

/* All instructions are of forward. */
static double seconds_of(struct hand *h)
{
    for (int s = 1; s <= SW_SEGMENT_COUNT; s++) {
        h->program.segment_first[s] = h->program.n_instrs;
    }
    return walk_hand(h);
}

static void close_hand(struct hand *h)
{
    sw_free(h->report.instrs);
}

#define assert_near(a, b) assert_true(fabs((a) - (b)) < 1e-9)

static void what_nobody_waits_for_runs_beside(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    add(&h, SW_VERB_READ, SW_QUEUE_READ, 2);
    add_kernel(&h, 3);
    add_kernel(&h, 4)->waits[SW_QUEUE_READ] = 0; /* it has arrived by then */
    assert_near(seconds_of(&h), 7);
    assert_near(h.report.part[SW_QUEUE_READ], 0);
    h.costs[0][0].seconds = 5;
    assert_near(seconds_of(&h), 9);
    assert_near(h.report.part[SW_QUEUE_READ], 2);
    assert_near(h.report.part[SW_QUEUE_COMPUTE], 7);
    assert_near(h.report.instrs[0].charge, 2); /* it waited for that one */
    assert_near(h.report.instrs[0].alone, 5);
    assert_near(h.report.least, 7);
    assert_near(h.report.most, 12);
    assert_int_equal(h.report.bound, SW_QUEUE_COMPUTE);
    assert_int_equal(h.report.longest, 2);
    h.costs[0][0].seconds = 20;
    assert_near(seconds_of(&h), 24);
    assert_int_equal(h.report.bound, SW_QUEUE_READ);
    assert_int_equal(h.report.longest, 0);
    close_hand(&h);
}

static void a_transfer_begins_behind_what_was_issued_and_what_it_waits_for(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    add_kernel(&h, 3); /* makes the value that is written */
    add(&h, SW_VERB_WRITE, SW_QUEUE_WRITE, 2);
    add(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 4)->waits[SW_QUEUE_WRITE] = 1;
    assert_near(seconds_of(&h), 9); /* and the phase drains */
    h.phases[0].drains = false;
    assert_near(seconds_of(&h), 3); /* it continues during the next phase */
    close_hand(&h);
}

static void transfers_of_the_disk_overlap_their_latencies(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    for (int i = 0; i < 3; i++) {
        add(&h, SW_VERB_READ, SW_QUEUE_READ, 1);
        h.costs[i][0].latency = 5;
    }
    assert_near(seconds_of(&h), 8);
    assert_near(h.report.most, 18);
    close_hand(&h);
    open_hand(&h); /* copies follow each other */
    for (int i = 0; i < 3; i++) {
        add(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 1);
        h.costs[i][0].latency = 5;
    }
    assert_near(seconds_of(&h), 18);
    close_hand(&h);
}

static void reads_and_writes_share_the_disk(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    add(&h, SW_VERB_READ, SW_QUEUE_READ, 2);
    add(&h, SW_VERB_WRITE, SW_QUEUE_WRITE, 1);
    assert_near(seconds_of(&h), 3); /* half speed until the write ends, at 2 */
    h.pace.disk_share = (struct sw_disk_share){1, 1};
    assert_near(seconds_of(&h), 2);
    h.pace.disk_share = (struct sw_disk_share){0.75, 0.75};
    assert_near(seconds_of(&h), 4.0 / 3 + 1);
    h.pace.disk_share = (struct sw_disk_share){0.25, 0.5}; /* each has a share of its own */
    assert_near(seconds_of(&h), 2 + 1.5);
    /* slower while a kernel runs: after 4 s a read has 1 s left, a write 0 */
    h.pace.disk_share = (struct sw_disk_share){1, 1};
    h.pace.disk_beside = (struct sw_disk_share){0.25, 0.5};
    add_kernel(&h, 4);
    assert_near(seconds_of(&h), 4 + 1);
    close_hand(&h);
}

static void threads_share_processors(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    add(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 1);
    add_kernel(&h, 1);
    h.costs[0][0].cores = 1;
    h.costs[1][0].cores = 2;
    assert_near(seconds_of(&h), 1); /* unlimited processors */
    h.pace.cores = 2;
    assert_near(seconds_of(&h), 1.5); /* three threads on two processors */
    h.costs[0][0].cores = 0.25; /* a thread that wants little gets it: the others share 1.75 of 2 */
    assert_near(seconds_of(&h), 1 + 0.125);
    h.pace.cores = 3;
    h.costs[0][0].cores = 1;
    assert_near(seconds_of(&h), 1);
    h.pace.cores = 1; /* alone the kernel takes 2; it has two of three threads */
    assert_near(seconds_of(&h), 3);
    assert_near(h.report.most, 3);
    close_hand(&h);
}

static void queues_share_the_bandwidth_of_memory(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    add(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 1);
    add_kernel(&h, 1);
    h.costs[0][0].bandwidth = 0.5;
    h.costs[1][0].bandwidth = 0.5;
    assert_near(seconds_of(&h), 1); /* there is enough */
    h.costs[0][0].bandwidth = h.costs[1][0].bandwidth = 1;
    assert_near(seconds_of(&h), 2); /* each has half of it */
    h.costs[0][0].bandwidth = 0.25; /* it wants little and gets it; the kernel has 3/4 */
    assert_near(seconds_of(&h), 1 + 0.25);
    h.pace.cores = 1; /* with half of a processor each, they have less use for bandwidth */
    h.costs[0][0].cores = h.costs[1][0].cores = 1;
    h.costs[0][0].bandwidth = h.costs[1][0].bandwidth = 1;
    assert_near(seconds_of(&h), 2);
    close_hand(&h);
}

/* A queue that serves one job after the other wakes up once. Who waits wakes up, too. */
static void a_queue_takes_time_to_wake_up(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    add(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 1);
    add(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 1);
    h.pace.wake = 0.125;
    assert_near(seconds_of(&h), 2 + 2 * 0.125);
    assert_near(h.report.part[SW_QUEUE_H2D], 2.25);
    add_kernel(&h, 4); /* beside the copies; the end of the step has nothing to wait for */
    assert_near(seconds_of(&h), 4);
    add(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 1); /* after the kernel: it slept meanwhile */
    assert_near(seconds_of(&h), 4 + 0.125 + 1 + 0.125);
    close_hand(&h);
}

/* Computation hands each job over, and the queue begins meanwhile. */
static void handing_over_takes_time(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    add(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 1);
    add(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 1);
    add_kernel(&h, 4);
    h.pace.issue = 0.25;
    assert_near(seconds_of(&h), 2 * 0.25 + 4);
    assert_near(h.report.part[SW_QUEUE_H2D], 2 * 0.25);
    assert_near(h.report.part[SW_QUEUE_COMPUTE], 4);
    h.program.n_instrs--; /* nothing but the copies: the step waits for them */
    assert_near(seconds_of(&h), 2);
    close_hand(&h);
}

/* A job that a queue begins after it had nothing to do delays the kernel beside it. */
static void a_job_interrupts_a_kernel(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    add(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 1);
    add(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 1); /* follows at once */
    add_kernel(&h, 4);
    add(&h, SW_VERB_COPY_OUT, SW_QUEUE_D2H, 2);
    add_kernel(&h, 4);
    h.pace.yield = 0.25;
    assert_near(seconds_of(&h), 8); /* the copies occupy no processor */
    h.costs[0][0].cores = h.costs[1][0].cores = h.costs[3][0].cores = 1;
    assert_near(seconds_of(&h), 4 + 0.25 * 1 + 4 + 0.25 * 2);
    h.program.n_instrs = 2; /* nothing but copies: there is no kernel to interrupt */
    assert_near(seconds_of(&h), 2);
    close_hand(&h);
}

static void a_kernel_beside_a_job_has_its_share(void **state)
{
    (void)state;
    const struct sw_pace pace = {.cores = 2, .yield = 1};
    const struct sw_cost kernel = {.seconds = 1, .cores = 2, .bandwidth = 0.25};
    const struct sw_cost light = {.seconds = 1, .cores = 0}, job = {.seconds = 1, .cores = 1};
    assert_near(sw_clock_share(&pace, &kernel, &light), 1);
    assert_near(sw_clock_share(&pace, &kernel, &job), 2.0 / 3); /* two of three threads */
    const struct sw_cost moves = {.seconds = 1, .bandwidth = 1};
    assert_near(sw_clock_share(&pace, &(struct sw_cost){.seconds = 1, .bandwidth = 1}, &moves),
                0.5);
}

static void exchanges_travel_in_groups_and_block(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    add(&h, SW_VERB_REDUCE, SW_QUEUE_COMM, 4)->exchange.batch = 2;
    add(&h, SW_VERB_REDUCE, SW_QUEUE_COMM, 100)->exchange.batch =
        0; /* travels with the previous one */
    add_kernel(&h, 1);
    assert_near(seconds_of(&h), 4);
    assert_int_equal(h.report.instrs[1].runs, 1);
    h.instrs[0].exchange.blocking = h.instrs[1].exchange.blocking = true;
    assert_near(seconds_of(&h), 5);
    assert_near(h.report.part[SW_QUEUE_COMM], 4);
    h.plan.step.ranks = 2; /* and they meet between phases */
    h.plan.step.n_phases = 2;
    h.phases[1] = (struct sw_step_phase){.action = SW_STEP_AGREE};
    h.pace.meeting = 0.5;
    assert_near(seconds_of(&h), 5.5);
    close_hand(&h);
}

static void the_first_micro_step_has_costs_of_its_own(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    add_kernel(&h, 2);
    add_kernel(&h, 10)->last_only = true;
    h.instrs[1].micro = -1;
    h.costs[0][1].seconds = 3;
    h.costs[1][1].seconds = 1000; /* belongs to the step as a whole: never a later micro-step */
    h.plan.step.n_phases = 2;
    h.phases[1] = h.phases[0];
    h.phases[1].round = 1;
    h.phases[1].is_last = true;
    assert_near(seconds_of(&h), 2 + 3 + 10);
    assert_int_equal(h.report.instrs[0].runs, 2);
    assert_int_equal(h.report.instrs[1].runs, 1);
    close_hand(&h);
}

/* ---- a real plan ---- */

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    (void)ctx;
    (void)desc;
    *out = (struct sw_kernel_info){.supported = true, .path = "none"};
}

/* Blocks whose parameters wait in host memory or are sharded, and whose states are on disk. */
static struct sw_plan *plan_with(int ranks, int64_t micro_batches)
{
    const struct sw_graph_options options = {
        .dtype = SW_BF16, .grad_dtype = SW_BF16, .loss_chunk = 5};
    const struct sw_init init = {SW_INIT_NORMAL, 0.3};
    struct sw_graph *g = NULL;
    struct sw_plan *plan = NULL;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value table = sw_param(g, "table", SW_SHAPE(11, 64), init);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(2, 3)), -1);
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"w0", "w1", "w2", "w3"};
        sw_scope_push_block(g, names[i]);
        h = sw_linear(g, h, sw_param(g, names[i], SW_SHAPE(64, 64), init), SW_NO_VALUE, true);
        sw_scope_pop(g);
    }
    const sw_value loss = sw_linear_cross_entropy(g, h, table, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(2, 3)), 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    const struct sw_plan_options plan_options = {.device = {query, NULL},
                                                 .policy.micro_batches = micro_batches,
                                                 .rule = &test_adam,
                                                 .clip = ranks > 1 ? 1 : 0,
                                                 .mesh = sw_mesh_of_data(ranks),
                                                 .policy.stage = 3,
                                                 .overlap = true,
                                                 .policy.prefetch_elems = 8192,
                                                 .limits.max_live_elems = 1 << 20,
                                                 .limits.reduce_bucket_elems = 1 << 20,
                                                 .policy.states_tier = SW_TIER_DISK,
                                                 .policy.params_tier = SW_TIER_HOST,
                                                 .policy.grads_tier = SW_TIER_HOST,
                                                 .policy.update_elems = 3000,
                                                 .policy.transfer_bytes = 40000};
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    if (plan_once(&spec, 1, &plan_options, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

static struct sw_plan *plan_of(int ranks)
{
    return plan_with(ranks, 4);
}

static struct sw_clock_report step_of(const struct sw_plan *plan, const double given[SW_LOAD_COUNT])
{
    struct sw_speeds speeds = {.disk_share = {0.5, 0.5}};
    struct sw_clock_report report;
    bool unknown[SW_LOAD_COUNT];
    memcpy(speeds.given.work, given, sizeof speeds.given.work);
    if (sw_speeds_step(plan, &speeds, unknown, &report) < 0) {
        fail_msg("%s", sw_error_message());
    }
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        assert_false(unknown[k]);
    }
    return report;
}

/* All other costs are 0: the step takes as long as that queue alone. */
static void one_slow_queue_is_the_whole_step(void **state)
{
    (void)state;
    static const enum sw_queue queues[SW_LOAD_COUNT] = {
        [SW_LOAD_COPIES_IN] = SW_QUEUE_H2D,  [SW_LOAD_COPIES_OUT] = SW_QUEUE_D2H,
        [SW_LOAD_DISK_READ] = SW_QUEUE_READ, [SW_LOAD_DISK_WRITTEN] = SW_QUEUE_WRITE,
        [SW_LOAD_SENT] = SW_QUEUE_COMM,      [SW_LOAD_HOST] = SW_QUEUE_HOST};
    static const double work_of[SW_LOAD_COUNT] = {0, 1e9, 0, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6};
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct sw_plan *plan = plan_of(ranks);
        for (int slow = 0; slow < SW_LOAD_COUNT; slow++) {
            double given[SW_LOAD_COUNT];
            for (int k = 0; k < SW_LOAD_COUNT; k++) {
                given[k] = k == slow ? work_of[k] : INFINITY;
            }
            if (work_of[slow] <= 0) {
                continue;
            }
            struct sw_clock_report r = step_of(plan, given);
            const enum sw_queue queue = queues[slow];
            assert_true(fabs(r.seconds - r.alone[queue]) < 1e-9 * r.seconds + 1e-15);
            assert_true(r.least == r.alone[queue]);
            assert_int_equal(r.seconds > 0, slow != SW_LOAD_SENT || ranks > 1);
            sw_free(r.instrs);
        }
        sw_plan_close(plan);
    }
}

static void a_slower_disk_is_no_faster_step(void **state)
{
    (void)state;
    struct sw_plan *plan = plan_of(1);
    double before = 0;
    for (double rate = 1e9; rate > 1e3; rate /= 1.7) {
        double given[SW_LOAD_COUNT] = {1, 2e9, 1, 3e8, 2e8, 2e8, rate, rate / 2, 1};
        struct sw_clock_report r = step_of(plan, given);
        assert_true(r.seconds >= before * (1 - 1e-12));
        before = r.seconds;
        sw_free(r.instrs);
    }
    sw_plan_close(plan);
}

static void draw_costs(uint64_t seed, int32_t n, struct sw_cost (*costs)[2])
{
    for (int32_t i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++) {
            const uint64_t word = sw_philox_u64(seed, (uint64_t)k, (uint64_t)i);
            costs[i][k] = (struct sw_cost){.seconds = (double)(word % 1000) / 999,
                                           .latency = word >> 20 & 1 ? 0.3 : 0,
                                           .cores = (double)(word >> 30 & 3)};
        }
    }
}

/* With any costs, perfect overlap and no overlap are bounds, and the parts sum to the step. */
static void a_step_lies_between_its_bounds(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct sw_plan *plan = plan_of(1 + (int)(seed & 1));
        const int32_t n = plan->programs[0].n_instrs;
        struct sw_cost(*costs)[2] = sw_alloc("test", (size_t)n * sizeof *costs);
        draw_costs(seed, n, costs);
        const struct sw_pace pace = {
            .costs = (const struct sw_cost(*)[2])costs,
            .meeting = 0.1,
            .cores = (double)(seed % 5) / 2,
            .wake = (double)(seed % 7) / 50,
            .issue = (double)(seed % 2) / 50,
            .yield = (double)(seed % 3) / 4,
            .disk_share = {0.5 + (double)(seed % 3) / 4, 0.25 + (double)(seed % 4) / 4}};
        struct sw_clock_report r;
        double parts = 0, charges = 0;
        assert_int_equal(sw_clock_step(plan, &pace, &r), SW_OK);
        assert_true(r.least <= r.seconds * (1 + 1e-9) && r.seconds <= r.most * (1 + 1e-9));
        assert_true(r.least > 0 && r.least < r.most);
        for (int q = 0; q < SW_QUEUE_COUNT; q++) {
            parts += r.part[q];
            assert_true(r.part[q] <= r.part[r.bound]);
        }
        for (int32_t i = 0; i < n; i++) {
            charges += r.instrs[i].charge;
        }
        assert_true(fabs(parts - r.seconds) < 1e-9 * r.seconds);
        assert_true(charges <= r.seconds * (1 + 1e-9) && charges > 0.9 * r.seconds);
        sw_free(r.instrs);
        sw_free(costs);
        sw_plan_close(plan);
    }
}

static void equal_plans_take_equal_steps(void **state)
{
    (void)state;
    static const double given[SW_LOAD_COUNT] = {1, 2e9, 1, 3e8, 2e8, 2e8, 1e7, 2e7, 1e8};
    struct sw_plan *plans[2] = {plan_of(2), plan_of(2)};
    struct sw_clock_report r[2] = {step_of(plans[0], given), step_of(plans[1], given)};
    const size_t n = (size_t)plans[0]->programs[0].n_instrs;
    assert_true(r[0].seconds == r[1].seconds && r[0].most == r[1].most);
    assert_memory_equal(r[0].instrs, r[1].instrs, n * sizeof *r[0].instrs);
    for (int i = 0; i < 2; i++) {
        sw_free(r[i].instrs);
        sw_plan_close(plans[i]);
    }
}

static void what_has_no_rate_is_named_and_counts_nothing(void **state)
{
    (void)state;
    struct sw_plan *plan = plan_of(2);
    struct sw_speeds speeds = {.given.work = {1, 2e9, 1, 3e8, 2e8, 2e8, 0, 2e7, 0}};
    struct sw_clock_report r;
    bool unknown[SW_LOAD_COUNT];
    assert_int_equal(sw_speeds_step(plan, &speeds, unknown, &r), SW_OK);
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        assert_int_equal(unknown[k], k == SW_LOAD_DISK_READ || k == SW_LOAD_SENT);
    }
    assert_true(r.alone[SW_QUEUE_READ] == 0 && r.alone[SW_QUEUE_COMM] == 0);
    assert_true(r.alone[SW_QUEUE_WRITE] > 0);
    sw_free(r.instrs);
    sw_plan_close(plan);
}

/* The time of an exchange in memory is added to that of a given rate. before: without it */
static void an_exchange_is_also_handled(const struct sw_plan *plan, struct sw_speeds *speeds,
                                        double before)
{
    const struct sw_program *program = &plan->programs[0];
    struct sw_clock_report r;
    bool unknown[SW_LOAD_COUNT];
    double times = 0;
    for (int c = SW_CURVE_GATHER; c < SW_CURVE_COUNT; c++) {
        /* of any size */
        speeds->curves[c] = (struct sw_rate_curve){1, {{1e12, {.seconds = 0.125, .cores = 1}}}};
    }
    assert_int_equal(sw_speeds_step(plan, speeds, unknown, &r), SW_OK);
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const bool first = program->instrs[i].exchange.batch > 0;
        times += program->instrs[i].queue == SW_QUEUE_COMM && first ? (double)r.instrs[i].runs : 0;
    }
    assert_true(times > 4);
    assert_near(r.alone[SW_QUEUE_COMM] - before, 0.125 * times);
    sw_free(r.instrs);
}

/* Exchanges that travel together have one latency, and so has each meeting of the ranks. */
static void an_exchange_costs_latency_and_bytes(void **state)
{
    (void)state;
    static const double latency = 0.25, rate = 1e6;
    struct sw_plan *plan = plan_of(3);
    const struct sw_program *program = &plan->programs[0];
    struct sw_speeds speeds = {.given = {.latency = latency}};
    struct sw_clock_report r;
    bool unknown[SW_LOAD_COUNT];
    double bytes = 0, latencies = 0;
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        speeds.given.work[k] = k == SW_LOAD_SENT ? rate : INFINITY;
    }
    assert_int_equal(sw_speeds_step(plan, &speeds, unknown, &r), SW_OK);
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const bool exchange = instr->queue == SW_QUEUE_COMM;
        bytes += exchange ? (double)(2 * sw_instr_sent_bytes(instr) * r.instrs[i].runs) : 0;
        latencies += exchange && instr->exchange.batch > 0 ? (double)r.instrs[i].runs : 0;
    }
    for (int32_t i = 0; i < plan->step.n_phases; i++) {
        const enum sw_step_action action = plan->step.phases[i].action;
        latencies += action == SW_STEP_LOSSES || action == SW_STEP_AGREE;
    }
    assert_true(bytes > 0 && latencies > 4);
    assert_true(fabs(r.seconds - bytes / rate - latencies * latency) < 1e-9 * r.seconds);
    const double before = r.alone[SW_QUEUE_COMM];
    sw_free(r.instrs);
    an_exchange_is_also_handled(plan, &speeds, before);
    sw_plan_close(plan);
}

/* The time of a step alone leaves out micro-steps that are alike. */
static void micro_steps_that_are_alike_take_equal_times(void **state)
{
    (void)state;
    const struct sw_machine_rates rates = {.work = {1, 2e9, 1, 3e8, 2e8, 2e8, 1e7, 2e7, 1e8},
                                           .latency = 1e-4};
    for (int ranks = 1; ranks <= 3; ranks++) {
        for (int64_t micro_batches = 1; micro_batches < 20; micro_batches += 3) {
            struct sw_plan *plan = plan_with(ranks, micro_batches);
            const struct sw_speeds speeds = {.given = rates};
            struct sw_clock_report r;
            bool unknown[SW_LOAD_COUNT];
            double seconds;
            assert_int_equal(sw_speeds_step(plan, &speeds, unknown, &r), SW_OK);
            assert_int_equal(sw_speeds_seconds(plan, &rates, &seconds), SW_OK);
            assert_true(fabs(seconds - r.seconds) < 1e-9 * r.seconds);
            sw_free(r.instrs);
            sw_plan_close(plan);
        }
    }
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    static const double given[SW_LOAD_COUNT] = {1, 2e9, 1, 3e8, 2e8, 2e8, 1e7, 2e7, 1e8};
    struct sw_plan *plan = plan_of(1);
    struct sw_speeds speeds = {.disk_share = {0.5, 0.5}};
    memcpy(speeds.given.work, given, sizeof speeds.given.work);
    sw_status st = SW_E_NOMEM;
    for (int64_t nth = 1; st < 0; nth++) {
        struct sw_clock_report r;
        bool unknown[SW_LOAD_COUNT];
        sw_alloc_fail_nth(nth);
        st = sw_speeds_step(plan, &speeds, unknown, &r);
        sw_alloc_fail_nth(0);
        assert_true(st >= 0 || st == SW_E_NOMEM);
        if (st >= 0) {
            sw_free(r.instrs);
        }
        assert_true(nth < 100);
    }
    sw_plan_close(plan);
}

/* Two forwards and a backward: what a phase sends may be on its way during the next one, and has
 * left when the one after that starts. Other transfers end with their phase. */
static void messages_outlast_their_phase_by_one(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h);
    h.plan.step.n_phases = 3;
    h.phases[2] = h.phases[1] = h.phases[0];
    h.phases[2].segment = SW_SEGMENT_BACKWARD;
    add_kernel(&h, 1);
    add(&h, SW_VERB_COPY_OUT, SW_QUEUE_SENT_BACK, 5)->exchange.batch = 1;
    add(&h, SW_VERB_COPY_OUT, SW_QUEUE_D2H, 2);
    add_kernel(&h, 1)->segment = SW_SEGMENT_BACKWARD;
    for (int s = 1; s <= SW_SEGMENT_COUNT; s++) {
        h.program.segment_first[s] = s == 1 ? 3 : 4;
    }
    assert_near(walk_hand(&h), 13); /* a barrier after each */
    for (int p = 0; p < 3; p++) {
        h.phases[p].turn = p + 1;
        h.phases[p].sent = p > 1;
        h.phases[p].runs_on = p < 2;
    }
    /* the forwards end at 3 and 6, their messages leave at 6 and 11 */
    assert_near(walk_hand(&h), 11);
    assert_near(h.report.passes.end, 7);
    assert_near(h.report.passes.busy, 3);
    h.costs[1][0].seconds = h.costs[1][1].seconds = 10; /* backward waits for the first: 1 + 10 */
    assert_near(walk_hand(&h), 21);
    assert_near(h.report.passes.end, 12);
    close_hand(&h);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_nobody_waits_for_runs_beside),
    cmocka_unit_test(a_transfer_begins_behind_what_was_issued_and_what_it_waits_for),
    cmocka_unit_test(transfers_of_the_disk_overlap_their_latencies),
    cmocka_unit_test(reads_and_writes_share_the_disk),
    cmocka_unit_test(threads_share_processors),
    cmocka_unit_test(queues_share_the_bandwidth_of_memory),
    cmocka_unit_test(a_queue_takes_time_to_wake_up),
    cmocka_unit_test(handing_over_takes_time),
    cmocka_unit_test(a_job_interrupts_a_kernel),
    cmocka_unit_test(a_kernel_beside_a_job_has_its_share),
    cmocka_unit_test(exchanges_travel_in_groups_and_block),
    cmocka_unit_test(the_first_micro_step_has_costs_of_its_own),
    cmocka_unit_test(one_slow_queue_is_the_whole_step),
    cmocka_unit_test(a_slower_disk_is_no_faster_step),
    cmocka_unit_test(a_step_lies_between_its_bounds),
    cmocka_unit_test(equal_plans_take_equal_steps),
    cmocka_unit_test(what_has_no_rate_is_named_and_counts_nothing),
    cmocka_unit_test(an_exchange_costs_latency_and_bytes),
    cmocka_unit_test(micro_steps_that_are_alike_take_equal_times),
    cmocka_unit_test(messages_outlast_their_phase_by_one),
    cmocka_unit_test(survives_lack_of_memory),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
