// SPDX-License-Identifier: Apache-2.0
// Tests that a trace records when every instruction ran. When it is read back, each instruction is
// there once, and events of a thread do not overlap. Threads have names, and bytes equal those that
// the executor moved. With several ranks, collectives have a thread of their own. With too little
// memory, the trace says what it dropped.
#include <stdlib.h>
#include <string.h>

#include "json/json.h"
#include "run/run.h"
#include "support/plans.h"
#include "support/test.h"

enum { STEPS = 2, ROUNDS = 2, MOST_TRACKS = 128 };

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    sw_device_query(ctx, desc, out);
}

static sw_status build(struct sw_graph **out)
{
    const struct sw_graph_options options = {
        .dtype = SW_F32, .grad_dtype = SW_F32, .loss_chunk = 5};
    const struct sw_init init = {SW_INIT_NORMAL, 0.3};
    struct sw_graph *g = NULL;
    SW_TRY(sw_graph_open(&options, &g));
    const sw_value table = sw_param(g, "table", SW_SHAPE(11, 64), init);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(2, 3)), -1);
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "weight \"%d\"", i);
        h = sw_linear(g, h, sw_param(g, name, SW_SHAPE(64, 64), init), SW_NO_VALUE, true);
    }
    const sw_value loss = sw_linear_cross_entropy(g, h, table, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(2, 3)), 0);
    sw_output(g, "loss", loss);
    *out = g;
    return sw_graph_backward(g, loss);
}

struct rank {
    enum sw_tier states, params;
    int64_t steps; /* steps that the trace has room for */
    struct sw_str text[2];
    struct sw_transfers moved[2];
    struct sw_queue_times times[2][SW_QUEUE_COUNT];
    int64_t sent[2], dropped[2], peak[2];
    int64_t n_allocs;                    /* allocations of the process while it recorded */
    int64_t expected[2][SW_QUEUE_COUNT]; /* expected events per step */
};

static sw_status fill(struct sw_executor *ex, const struct sw_plan *plan)
{
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        SW_TRY(sw_executor_zero(ex, &plan->persistent[i]));
    }
    sw_executor_set(ex, SW_SCALAR_LOSS_SCALE, 1);
    sw_executor_set(ex, SW_SCALAR_GRAD_FACTOR, 1);
    sw_executor_set(ex, SW_SCALAR_OVERFLOW_FACTOR, 1);
    return SW_OK;
}

static sw_status step(struct sw_executor *ex, struct sw_plan *plan, int64_t n)
{
    const struct sw_program *program = &plan->programs[0];
    static const int32_t ids[6] = {1, 5, 2, 10, 0, 5}, labels[6] = {5, 2, -100, 0, 5, 9};
    for (int k = 0; k < ROUNDS; k++) {
        sw_executor_set_of(ex, k, SW_SCALAR_FIRST, k == 0);
    }
    sw_executor_set(ex, SW_SCALAR_STEP, (double)n);
    for (int32_t at = 0; at < plan->step.n_phases;) {
        const struct sw_step_phase *phase = &plan->step.phases[at];
        if (phase->action == SW_STEP_RUN && phase->segment == SW_SEGMENT_FORWARD) {
            SW_TRY(sw_executor_write(ex, sw_program_input(program, "ids", 0), ids, sizeof ids));
            SW_TRY(sw_executor_write(ex, sw_program_input(program, "labels", 0), labels,
                                     sizeof labels));
        }
        SW_TRY(sw_executor_walk(ex, NULL, &at, at + 1));
    }
    return SW_OK;
}

static int64_t sent_by(const sw_comm *comm)
{
    struct sw_traffic traffic;
    int64_t sum = 0;
    if (comm) {
        sw_comm_traffic(comm, &traffic);
        for (int op = 0; op < SW_COMM_OP_COUNT; op++) {
            sum += traffic.sent[op];
        }
    }
    return sum;
}

/* Collectives that travel with an earlier one are part of its event. */
static void expect(const struct sw_program *program, int64_t out[SW_QUEUE_COUNT])
{
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const bool once = instr->segment >= SW_SEGMENT_UPDATE || instr->last_only;
        const int64_t times = once ? 1 : ROUNDS;
        out[instr->queue] +=
            instr->queue == SW_QUEUE_COMM && instr->exchange.batch == 0 ? 0 : times;
    }
}

/* Peak of device memory while computation is at an instruction. The plan's own peak may be at a
 * transfer, which depends on the kernels' workspace. */
static int64_t peak_of(const struct sw_plan *plan)
{
    const struct sw_program *program = &plan->programs[0];
    size_t most = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        size_t live = 0;
        for (int32_t b = 0; b < program->n_buffers; b++) {
            const struct sw_buffer *buffer = &program->buffers[b];
            live += !buffer->persistent && buffer->tier == SW_TIER_DEVICE && buffer->first <= i &&
                            i <= buffer->last
                        ? buffer->bytes
                        : 0;
        }
        assert_true(live <= program->peak.live_bytes);
        most = program->instrs[i].queue == SW_QUEUE_COMPUTE && live > most ? live : most;
    }
    return (int64_t)(plan->persistent_bytes[SW_TIER_DEVICE] + most);
}

static sw_status work(void *ctx, sw_comm *comm)
{
    struct rank *r = ctx;
    const int rank = comm ? sw_comm_rank(comm) : 0, ranks = comm ? sw_comm_size(comm) : 1;
    static const char *const folder = "/tmp";
    const struct sw_cpu_options cpu = {.n_threads = 1};
    struct sw_executor_options options = {
        .comm = comm, .swap = {.folders = &folder, .n_folders = 1, .rank = rank}};
    struct sw_device *dev = NULL;
    struct sw_plan *plan = NULL;
    struct sw_executor *ex = NULL;
    struct sw_trace *trace = NULL;
    struct sw_graph *g = NULL;
    struct sw_alloc_stats stats;
    sw_status st = SW_OK;
    sw_nvme_options_init(&options.swap.nvme);
    SW_TRY_OR(close, build(&g));
    SW_TRY_OR(close, sw_device_open_cpu(&cpu, &dev));
    const struct sw_plan_options plan_options = {.device = {query, dev},
                                                 .policy.micro_batches = ROUNDS * ranks,
                                                 .clip = 0.5,
                                                 .rule = &test_adam,
                                                 .mesh = sw_mesh_of_data(ranks),
                                                 .me = rank,
                                                 .policy.stage = 3,
                                                 .overlap = true,
                                                 .policy.prefetch_elems = 5000,
                                                 .limits.max_live_elems = 100000,
                                                 .limits.reduce_bucket_elems = 5000,
                                                 .limits.allgather_bucket_elems = 5000,
                                                 .policy.two_slots = r->states == SW_TIER_DISK,
                                                 .policy.states_tier = r->states,
                                                 .policy.params_tier = r->params};
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    st = plan_once(&spec, 1, &plan_options, &plan);
    g = NULL;
    SW_TRY_OR(close, st);
    SW_TRY_OR(close, sw_executor_open(plan, dev, &options, &ex));
    SW_TRY_OR(close, sw_trace_open(plan, r->steps, ROUNDS, &trace));
    SW_TRY_OR(close, fill(ex, plan));
    SW_TRY_OR(close, step(ex, plan, 1)); /* this step is not recorded */
    struct sw_transfers before;
    struct sw_queue_times times[SW_QUEUE_COUNT];
    const int64_t sent = sent_by(comm), base = sw_now_ns();
    sw_executor_transferred(ex, &before);
    sw_executor_queue_times(ex, times);
    if (ranks == 1) {
        sw_alloc_get_stats(&stats);
        r->n_allocs = -stats.n_calls;
    }
    sw_executor_trace(ex, trace);
    for (int64_t n = 2; n < 2 + STEPS; n++) {
        const int64_t begin = sw_now_ns();
        SW_TRY_OR(close, step(ex, plan, n));
        sw_trace_step(trace, n, begin, sw_now_ns());
    }
    sw_executor_trace(ex, NULL);
    if (ranks == 1) {
        sw_alloc_get_stats(&stats);
        r->n_allocs += stats.n_calls;
    }
    r->sent[rank] = sent_by(comm) - sent;
    sw_executor_transferred(ex, &r->moved[rank]);
    sw_executor_queue_times(ex, r->times[rank]);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        r->moved[rank].in[t] -= before.in[t];
        r->moved[rank].out[t] -= before.out[t];
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        r->times[rank][q].bytes_in -= times[q].bytes_in;
        r->times[rank][q].bytes_out -= times[q].bytes_out;
        r->times[rank][q].busy_ns -= times[q].busy_ns;
        r->times[rank][q].waited_ns -= times[q].waited_ns;
    }
    SW_TRY_OR(close, step(ex, plan, 2 + STEPS)); /* this one is not recorded either */
    r->dropped[rank] = sw_trace_dropped(trace);
    r->peak[rank] = peak_of(plan);
    expect(&plan->programs[0], r->expected[rank]);
    SW_TRY_OR(close, sw_trace_render(trace, rank, base, &r->text[rank]));
close:
    sw_graph_close(g);
    sw_trace_close(trace);
    sw_executor_close(ex);
    sw_plan_close(plan);
    sw_device_close(dev);
    return st;
}

static const char *text_of(const struct sw_json *object, const char *key)
{
    const struct sw_json *member = sw_json_get(object, key);
    return member && member->type == SW_JSON_STRING ? member->string : "";
}

static double number_of(const struct sw_json *object, const char *key)
{
    const struct sw_json *member = sw_json_get(object, key);
    assert_true(member && (member->type == SW_JSON_INT || member->type == SW_JSON_FLOAT));
    return member->number;
}

struct seen {
    int64_t events[SW_QUEUE_COUNT], steps, waits, dropped;
    int64_t in, out, sent, device_peak, disk_read, disk_written;
    bool named[MOST_TRACKS], used[MOST_TRACKS], process;
};

static int queue_of(const char *thread)
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (strncmp(thread, sw_queue_name((enum sw_queue)q),
                    strlen(sw_queue_name((enum sw_queue)q))) == 0) {
            return q;
        }
    }
    return -1;
}

struct slice {
    int track;
    double begin, end;
};

static int by_track(const void *a, const void *b)
{
    const struct slice *x = a, *y = b;
    return x->track != y->track ? x->track - y->track
                                : (x->begin > y->begin) - (x->begin < y->begin);
}

static void look(struct sw_json *events, int rank, struct seen *seen)
{
    struct slice *slices = malloc((size_t)(events->n_children + 1) * sizeof *slices);
    const char *threads[MOST_TRACKS] = {0};
    size_t n = 0;
    for (const struct sw_json *e = events->first; e; e = e->next) {
        if (strcmp(text_of(e, "name"), "thread_name") == 0 && number_of(e, "pid") == rank) {
            const int track = (int)number_of(e, "tid");
            assert_in_range(track, 0, MOST_TRACKS - 1);
            assert_null(threads[track]);
            threads[track] = text_of(sw_json_get(e, "args"), "name");
        }
    }
    for (const struct sw_json *e = events->first; e; e = e->next) {
        const char *phase = text_of(e, "ph"), *name = text_of(e, "name");
        if (number_of(e, "pid") != rank) {
            continue;
        }
        seen->process |= strcmp(name, "process_name") == 0;
        const struct sw_json *args = sw_json_get(e, "args");
        if (strcmp(name, "dropped") == 0) {
            seen->dropped = (int64_t)number_of(args, "events");
        }
        if (*phase == 'C') {
            const int64_t bytes = (int64_t)number_of(args, "bytes");
            int64_t *most = strcmp(name, "device bytes") == 0   ? &seen->device_peak
                            : strcmp(name, "disk read") == 0    ? &seen->disk_read
                            : strcmp(name, "disk written") == 0 ? &seen->disk_written
                                                                : NULL;
            if (most) {
                *most = bytes > *most ? bytes : *most;
            }
        }
        if (*phase != 'X') {
            continue;
        }
        const int track = (int)number_of(e, "tid");
        const char *category = text_of(e, "cat");
        assert_non_null(threads[track]);
        assert_true(number_of(e, "dur") >= 0 && number_of(e, "ts") >= 0);
        slices[n++] =
            (struct slice){track, number_of(e, "ts"), number_of(e, "ts") + number_of(e, "dur")};
        if (strcmp(category, "wait") == 0) {
            assert_int_equal(queue_of(threads[track]), SW_QUEUE_COMPUTE);
            seen->waits++;
        } else if (strcmp(category, "step") == 0) {
            seen->steps++;
        } else {
            const int queue = queue_of(threads[track]);
            assert_true(queue >= 0);
            seen->events[queue]++;
            assert_non_null(sw_json_get(args, "instruction"));
            assert_non_null(sw_json_get(args, "scope"));
            if (queue != SW_QUEUE_COMPUTE) {
                const int64_t bytes = (int64_t)number_of(args, "bytes");
                int64_t *sum = queue == SW_QUEUE_COMM      ? &seen->sent
                               : strcmp(name, "load") == 0 ? &seen->in
                                                           : &seen->out;
                *sum += bytes;
                assert_true(*text_of(args, "tensor") || strcmp(name, "stats_merge") == 0);
            }
        }
    }
    qsort(slices, n, sizeof *slices, by_track);
    for (size_t i = 1; i < n; i++) {
        if (slices[i].track == slices[i - 1].track) { /* numbers have three decimals */
            assert_true(slices[i].begin > slices[i - 1].end - 1e-4);
        }
    }
    free(slices);
}

static void record(struct rank *r, int ranks, struct seen seen[2])
{
    const sw_status st = ranks == 1 ? work(r, NULL) : sw_threads_run(ranks, 60, work, r);
    if (st < 0) {
        fail_msg("%s", sw_error_message());
    }
    const char *parts[2] = {sw_str_text(&r->text[0]), sw_str_text(&r->text[1])};
    struct sw_str all = {0};
    struct sw_json_doc *doc = NULL;
    sw_trace_document(parts, ranks, &all);
    if (sw_json_parse("trace", all.ptr, all.len, SW_JSON_STRICT, &doc) < 0) {
        fail_msg("%s", sw_error_message());
    }
    struct sw_json *events = sw_json_get(sw_json_root(doc), "traceEvents");
    assert_non_null(events);
    for (int i = 0; i < ranks; i++) {
        memset(&seen[i], 0, sizeof seen[i]);
        look(events, i, &seen[i]);
        assert_true(seen[i].process);
        assert_int_equal(seen[i].dropped, r->dropped[i]);
    }
    sw_json_close(doc);
    sw_str_fini(&all);
    sw_str_fini(&r->text[0]);
    sw_str_fini(&r->text[1]);
}

static void check(const struct rank *r, int i, const struct seen *seen)
{
    int64_t in = 0, out = 0;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        assert_int_equal(seen->events[q], STEPS * r->expected[i][q]);
        assert_true(r->times[i][q].busy_ns >= 0 && r->times[i][q].waited_ns >= 0);
        assert_int_equal(r->times[i][q].busy_ns > 0, r->expected[i][q] > 0);
    }
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        in += r->moved[i].in[t];
        out += r->moved[i].out[t];
    }
    assert_int_equal(r->dropped[i], 0);
    assert_int_equal(seen->steps, STEPS);
    assert_int_equal(seen->in, in);
    assert_int_equal(seen->out, out);
    assert_int_equal(seen->disk_read, r->moved[i].in[SW_TIER_DISK]);
    assert_int_equal(seen->disk_written, r->moved[i].out[SW_TIER_DISK]);
    assert_int_equal(seen->sent, r->sent[i]);
    assert_int_equal(seen->device_peak, r->peak[i]);
    assert_int_equal(r->times[i][SW_QUEUE_READ].bytes_in, r->moved[i].in[SW_TIER_DISK]);
    assert_int_equal(r->times[i][SW_QUEUE_WRITE].bytes_out, r->moved[i].out[SW_TIER_DISK]);
    assert_int_equal(r->times[i][SW_QUEUE_H2D].bytes_in, r->moved[i].in[SW_TIER_HOST]);
    assert_int_equal(r->times[i][SW_QUEUE_COMM].bytes_out, r->sent[i]);
}

static void every_instruction_is_there_once(void **state)
{
    (void)state;
    static const enum sw_tier tiers[][2] = {{SW_TIER_DEVICE, SW_TIER_DEVICE},
                                            {SW_TIER_DISK, SW_TIER_DEVICE},
                                            {SW_TIER_HOST, SW_TIER_HOST},
                                            {SW_TIER_DISK, SW_TIER_HOST},
                                            {SW_TIER_DISK, SW_TIER_DISK}};
    for (size_t i = 0; i < SW_LEN(tiers); i++) {
        for (int ranks = 1; ranks <= 2; ranks++) {
            struct rank r = {.states = tiers[i][0], .params = tiers[i][1], .steps = STEPS};
            struct seen seen[2];
            record(&r, ranks, seen);
            for (int k = 0; k < ranks; k++) {
                check(&r, k, &seen[k]);
            }
            assert_int_equal(r.n_allocs, 0);
            assert_int_equal(seen[0].events[SW_QUEUE_COMM] > 0, ranks > 1);
            assert_int_equal(seen[0].events[SW_QUEUE_READ] > 0, tiers[i][0] == SW_TIER_DISK);
            assert_int_equal(seen[0].events[SW_QUEUE_WRITE] > 0, tiers[i][0] == SW_TIER_DISK);
        }
    }
}

static void what_finds_no_place_is_counted(void **state)
{
    (void)state;
    struct rank r = {.states = SW_TIER_DISK, .params = SW_TIER_DEVICE, .steps = 1};
    struct seen seen[2];
    record(&r, 1, seen);
    assert_int_equal(seen[0].events[SW_QUEUE_COMPUTE], r.expected[0][SW_QUEUE_COMPUTE]);
    assert_int_equal(seen[0].events[SW_QUEUE_READ], r.expected[0][SW_QUEUE_READ]);
    assert_true(r.dropped[0] >= r.expected[0][SW_QUEUE_COMPUTE] + r.expected[0][SW_QUEUE_READ]);
}

/* A trace that runs out of memory leaves nothing behind, and returns the error. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    const struct sw_cpu_options cpu = {.n_threads = 1};
    struct sw_graph *g = NULL;
    struct sw_device *dev = NULL;
    struct sw_plan *plan = NULL;
    struct sw_alloc_stats before, after;
    assert_int_equal(sw_device_open_cpu(&cpu, &dev), SW_OK);
    assert_int_equal(build(&g), SW_OK);
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    const struct sw_plan_options options = {
        .device = {query, dev}, .policy.micro_batches = ROUNDS, .rule = &test_adam};
    assert_int_equal(plan_once(&spec, 1, &options, &plan), SW_OK);
    sw_alloc_get_stats(&before);
    for (int n = 1;; n++) {
        struct sw_trace *trace = NULL;
        struct sw_str text = {0};
        sw_alloc_fail_nth(n);
        sw_status st = sw_trace_open(plan, STEPS, ROUNDS, &trace);
        st = st < 0 ? st : sw_trace_render(trace, 0, 0, &text);
        sw_alloc_fail_nth(0);
        sw_str_fini(&text);
        sw_trace_close(trace);
        if (st == SW_OK) {
            assert_true(n > SW_QUEUE_COUNT);
            break;
        }
        assert_int_equal(st, SW_E_NOMEM);
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
    sw_plan_close(plan);
    sw_device_close(dev);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_instruction_is_there_once),
    cmocka_unit_test(what_finds_no_place_is_counted),
    cmocka_unit_test(every_allocation_may_fail),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
