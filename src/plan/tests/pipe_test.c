// SPDX-License-Identifier: Apache-2.0
// Tests schedules and partitions of a pipeline: the properties that every schedule promises, its
// idle share in a simulation, and partitions against an exhaustive search.
#include "plan/pipe.h"
#include "support/test.h"

static const struct sw_pipe_schedule *const schedules[] = {
    &sw_pipe_gpipe, &sw_pipe_1f1b, &sw_pipe_interleaved, &sw_pipe_zero_bubble};

static bool has_chunks(const struct sw_pipe_schedule *schedule)
{
    return schedule == &sw_pipe_interleaved;
}

/* ---- a step of all stages ---- */

enum { MOST_STAGES = 9, MOST_CHUNKS = 4, MOST_MICRO = 33 };

struct run {
    const struct sw_pipe_schedule *schedule;
    struct sw_pipe pipe;
    int64_t n; /* phases of a stage */
    struct sw_pipe_phase *phases[MOST_STAGES];
    int64_t next[MOST_STAGES]; /* phases that a stage has begun */
    double now[MOST_STAGES];   /* time at which it is free */
    /* time at which a phase of a part is over; 0 = it has not begun */
    double over[MOST_STAGES * MOST_CHUNKS][SW_PIPE_SEGMENTS][MOST_MICRO];
};

static void begin_run(struct run *run, const struct sw_pipe_schedule *schedule,
                      const struct sw_pipe *pipe)
{
    memset(run, 0, sizeof *run);
    run->schedule = schedule;
    run->pipe = *pipe;
    run->n = sw_pipe_phases(schedule, pipe);
    for (int s = 0; s < pipe->stages; s++) {
        run->phases[s] = malloc((size_t)run->n * sizeof *run->phases[s]);
        schedule->list(pipe, s, run->phases[s]);
    }
}

static void end_run(struct run *run)
{
    for (int s = 0; s < run->pipe.stages; s++) {
        free(run->phases[s]);
    }
}

/* Time at which all is there that the next phase of a stage reads; -1 = something has not begun. A
 * message arrives when it is produced. */
static double ready(const struct run *run, int stage)
{
    const struct sw_pipe_phase *phase = &run->phases[stage][run->next[stage]];
    const int parts = run->pipe.stages * run->pipe.chunks;
    const int part = phase->chunk * run->pipe.stages + stage;
    double own = run->now[stage], other = own;
    if (phase->segment == SW_SEGMENT_FORWARD) {
        other = part > 0 ? run->over[part - 1][SW_SEGMENT_FORWARD][phase->micro] : own;
        return other == 0 && part > 0 ? -1 : fmax(own, other);
    }
    assert_true(run->over[part][phase->segment - 1][phase->micro] > 0); /* of this stage */
    if (phase->segment == SW_SEGMENT_BACKWARD && part < parts - 1) {
        other = run->over[part + 1][SW_SEGMENT_BACKWARD][phase->micro];
        return other == 0 ? -1 : fmax(own, other);
    }
    return own;
}

/* Runs the phases of all stages, one unit of time each. false = they deadlock */
static bool simulate(struct run *run)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < run->pipe.stages; s++) {
            while (run->next[s] < run->n && ready(run, s) >= 0) {
                const struct sw_pipe_phase *phase = &run->phases[s][run->next[s]];
                const int part = phase->chunk * run->pipe.stages + s;
                run->now[s] = ready(run, s) + 1;
                run->over[part][phase->segment][phase->micro] = run->now[s];
                run->next[s]++;
                moved = true;
            }
        }
    }
    bool good = true;
    for (int s = 0; s < run->pipe.stages; s++) {
        good = good && run->next[s] == run->n;
    }
    return good;
}

/* Idle time over computing time, from the first forward to the last phase, over all stages. */
static double idle_share(const struct run *run)
{
    double end = 0;
    for (int s = 0; s < run->pipe.stages; s++) {
        end = fmax(end, run->now[s]);
    }
    return end / (double)run->n - 1;
}

static double expected_share(const struct run *run)
{
    const double parts = run->schedule == &sw_pipe_zero_bubble ? 3 : run->pipe.chunks;
    return (run->pipe.stages - 1) / (parts * run->pipe.micro_batches);
}

/* Every phase exactly once, micro-batches ascending within a segment of a chunk. */
static void check_phases(const struct run *run, int stage)
{
    int next[MOST_CHUNKS][SW_PIPE_SEGMENTS] = {{0}};
    for (int64_t i = 0; i < run->n; i++) {
        const struct sw_pipe_phase *phase = &run->phases[stage][i];
        assert_in_range(phase->chunk, 0, run->pipe.chunks - 1);
        assert_int_equal(phase->micro, next[phase->chunk][phase->segment]++);
    }
    for (int c = 0; c < run->pipe.chunks; c++) {
        for (int g = 0; g < SW_PIPE_SEGMENTS; g++) {
            const bool has = g < SW_SEGMENT_WEIGHTS || run->schedule->has_weights;
            assert_int_equal(next[c][g], has ? run->pipe.micro_batches : 0);
        }
    }
}

/* Slots of what forward makes and `until` reads last. */
static int count_slots(const struct run *run, int stage, int chunk, enum sw_segment until)
{
    const struct sw_pipe_phase ends[] = {{chunk, 0, SW_SEGMENT_FORWARD}, {chunk, 0, until}};
    return sw_pipe_slots(run->phases[stage], run->n, &ends[0], &ends[1], 0, 0);
}

/* Slots are what the schedule promises, and micro-batches in flight never share one. */
static void check_slots(const struct run *run, int stage, int chunk)
{
    const int rest = run->pipe.stages - stage, m = run->pipe.micro_batches;
    const int slots = count_slots(run, stage, chunk, SW_SEGMENT_BACKWARD);
    bool taken[MOST_MICRO] = {false};
    if (run->schedule == &sw_pipe_gpipe) {
        assert_int_equal(slots, m);
    } else if (run->schedule != &sw_pipe_interleaved) {
        assert_int_equal(slots, rest < m ? rest : m);
    } else {
        assert_in_range(slots, 1, m);
    }
    for (int64_t i = 0; i < run->n; i++) {
        const struct sw_pipe_phase *phase = &run->phases[stage][i];
        if (phase->chunk == chunk && phase->segment != SW_SEGMENT_WEIGHTS) {
            const bool begins = phase->segment == SW_SEGMENT_FORWARD;
            assert_int_equal(taken[phase->micro % slots], !begins);
            taken[phase->micro % slots] = begins;
        }
    }
    if (run->schedule == &sw_pipe_zero_bubble) { /* the same on all stages */
        const int kept = count_slots(run, stage, chunk, SW_SEGMENT_WEIGHTS);
        assert_int_equal(kept, run->pipe.stages + 1 < m ? run->pipe.stages + 1 : m);
    }
}

static void check_pipe(struct run *run, const struct sw_pipe_schedule *schedule,
                       const struct sw_pipe *pipe)
{
    begin_run(run, schedule, pipe);
    for (int s = 0; s < pipe->stages; s++) {
        check_phases(run, s);
        for (int c = 0; c < pipe->chunks; c++) {
            check_slots(run, s, c);
        }
    }
    assert_true(simulate(run));
    if (pipe->micro_batches >= pipe->stages) {
        assert_float_equal(idle_share(run), expected_share(run), 0.1 * expected_share(run) + 1e-9);
    } else {
        assert_true(idle_share(run) >= expected_share(run) - 1e-9);
    }
    end_run(run);
}

static void schedules_keep_their_promises(void **state)
{
    (void)state;
    struct run *run = malloc(sizeof *run);
    for (size_t i = 0; i < SW_LEN(schedules); i++) {
        const int most = has_chunks(schedules[i]) ? MOST_CHUNKS : 1;
        for (int stages = 1; stages <= MOST_STAGES; stages++) {
            for (int chunks = 1; chunks <= most; chunks++) {
                for (int micro = 1; micro <= MOST_MICRO; micro++) {
                    const struct sw_pipe pipe = {stages, chunks, micro};
                    check_pipe(run, schedules[i], &pipe);
                }
            }
        }
    }
    free(run);
}

/* Interleaved with one chunk does what 1F1B does, with forward first. */
static void small_schedules(void **state)
{
    (void)state;
    static const struct {
        const struct sw_pipe_schedule *schedule;
        struct sw_pipe pipe;
        int stage;
        const char *phases; /* F, B or W, then the chunk and the micro-batch */
    } rows[] = {
        {&sw_pipe_gpipe, {2, 1, 2}, 1, "F00 F01 B00 B01"},
        {&sw_pipe_1f1b, {2, 1, 3}, 0, "F00 F01 B00 F02 B01 B02"},
        {&sw_pipe_1f1b, {2, 1, 3}, 1, "F00 B00 F01 B01 F02 B02"},
        {&sw_pipe_1f1b, {4, 1, 2}, 0, "F00 F01 B00 B01"},
        {&sw_pipe_zero_bubble, {2, 1, 3}, 0, "F00 F01 B00 F02 W00 B01 W01 B02 W02"},
        {&sw_pipe_zero_bubble, {2, 1, 3}, 1, "F00 B00 F01 B01 F02 W00 B02 W01 W02"},
        {&sw_pipe_interleaved, {2, 2, 2}, 1, "F00 F01 F10 B10 F11 B11 B00 B01"},
        {&sw_pipe_interleaved, {2, 2, 2}, 0, "F00 F01 F10 F11 B10 B11 B00 B01"},
    };
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct sw_pipe_phase phases[32];
        char text[256] = "";
        const int64_t n = sw_pipe_phases(rows[i].schedule, &rows[i].pipe);
        rows[i].schedule->list(&rows[i].pipe, rows[i].stage, phases);
        for (int64_t k = 0; k < n; k++) {
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%c%d%d", k > 0 ? " " : "",
                     "FBW"[phases[k].segment], phases[k].chunk, phases[k].micro);
        }
        assert_string_equal(text, rows[i].phases);
    }
}

/* ---- partitions ---- */

enum { MOST_ITEMS = 9, MOST_PARTS = 5 };

static uint64_t state_of_chance;

static int chance(int n) /* random number in 0 .. n - 1 */
{
    state_of_chance =
        state_of_chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((state_of_chance >> 33) % (uint64_t)n);
}

static void check_bounds(const int *bounds, int n_items, int parts, bool filled)
{
    assert_int_equal(bounds[0], 0);
    assert_int_equal(bounds[parts], n_items);
    for (int i = 0; i < parts; i++) {
        assert_true(bounds[i + 1] >= bounds[i] + filled);
    }
}

/* Weight of the largest part, and the sum of the squares of all. */
struct measure {
    int64_t largest, squares;
};

static struct measure measure(const int64_t *weights, const int *bounds, int parts)
{
    struct measure m = {0};
    for (int i = 0; i < parts; i++) {
        int64_t sum = 0;
        for (int k = bounds[i]; k < bounds[i + 1]; k++) {
            sum += weights[k];
        }
        m.largest = sum > m.largest ? sum : m.largest;
        m.squares += sum * sum;
    }
    return m;
}

/* Finds the best measure of all partitions whose first `fixed` bounds are given. */
static void search(const int64_t *weights, int n_items, int parts, int *bounds, int fixed,
                   struct measure *best)
{
    if (fixed == parts) {
        bounds[parts] = n_items;
        const struct measure m = measure(weights, bounds, parts);
        if (m.largest < best->largest ||
            (m.largest == best->largest && m.squares < best->squares)) {
            *best = m;
        }
        return;
    }
    for (int k = bounds[fixed - 1] + 1; k <= n_items - (parts - fixed); k++) {
        bounds[fixed] = k;
        search(weights, n_items, parts, bounds, fixed + 1, best);
    }
}

static void the_largest_part_is_least(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        state_of_chance = (uint64_t)round;
        const int n = 1 + chance(MOST_ITEMS), parts = 1 + chance(n < MOST_PARTS ? n : MOST_PARTS);
        const int most = round % 3 == 0 ? 3 : 1000;
        int64_t weights[MOST_ITEMS];
        int bounds[MOST_ITEMS + 1], others[MOST_ITEMS + 1] = {0};
        struct measure best = {INT64_MAX, INT64_MAX};
        for (int i = 0; i < n; i++) {
            weights[i] = chance(most);
        }
        assert_int_equal(sw_partition_least(weights, n, parts, bounds), SW_OK);
        check_bounds(bounds, n, parts, true);
        search(weights, n, parts, others, 1, &best);
        const struct measure m = measure(weights, bounds, parts);
        assert_int_equal(m.largest, best.largest);
        assert_int_equal(m.squares, best.squares);
    }
}

/* Weights near the end of their type do not overflow, and equal blocks go to later stages. */
static void ties_and_large_weights(void **state)
{
    (void)state;
    static const int64_t equal[] = {5, 5, 5, 5, 5, 5, 5}, none[3] = {0},
                         large[] = {INT64_MAX / 4, INT64_MAX / 4, INT64_MAX / 8, INT64_MAX / 8};
    int bounds[4];
    assert_int_equal(sw_partition_least(equal, 7, 3, bounds), SW_OK);
    assert_memory_equal(bounds, ((int[]){0, 2, 4, 7}), sizeof bounds);
    assert_int_equal(sw_partition_least(none, 3, 3, bounds), SW_OK);
    assert_memory_equal(bounds, ((int[]){0, 1, 2, 3}), sizeof bounds);
    assert_int_equal(sw_partition_least(large, 4, 3, bounds), SW_OK);
    assert_memory_equal(bounds, ((int[]){0, 1, 2, 4}), sizeof bounds);
}

static void deepspeeds_partitions(void **state)
{
    (void)state;
    static const struct {
        double weights[8];
        int n, parts;
        int bounds[6];
    } rows[] = {
        {{1, 1, 1, 1}, 4, 2, {0, 2, 4}},
        {{5, 4, 3, 2, 1}, 5, 2, {0, 2, 5}},
        {{0, 0, 0, 0}, 4, 2, {0, 3, 4}},              /* the later cut of equals */
        {{1, 5, 3, 1, 1}, 5, 3, {0, 2, 3, 5}},        /* [0, 1, 2, 5] has a smaller largest part */
        {{3, 4}, 2, 4, {0, 1, 2, 2, 2}},              /* fewer items than parts */
        {{10, 1, 1, 1, 1, 1, 10}, 7, 3, {0, 1, 6, 7}} /* embedding and head alone */
    };
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        int bounds[6];
        assert_int_equal(sw_partition_balanced(rows[i].weights, rows[i].n, rows[i].parts, bounds),
                         SW_OK);
        for (int k = 0; k <= rows[i].parts; k++) {
            assert_int_equal(bounds[k], rows[i].bounds[k]);
        }
    }
    for (int n = 0; n < 40; n++) {
        for (int parts = 1; parts < 12; parts++) {
            int bounds[13];
            sw_partition_uniform(n, parts, bounds);
            check_bounds(bounds, n, parts, n >= parts);
            for (int i = 0; i < parts; i++) {
                assert_int_equal(bounds[i + 1] - bounds[i], n / parts + (i < n % parts));
            }
        }
    }
}

static void bounds_of_items_become_bounds_of_blocks(void **state)
{
    (void)state;
    int bounds[] = {0, 1, 4, 7, 8}; /* 6 blocks between an embedding and a head */
    sw_partition_to_blocks(6, 4, bounds);
    assert_memory_equal(bounds, ((int[]){0, 0, 3, 6, 6}), sizeof bounds);
}

static void wrong_bounds_are_named(void **state)
{
    (void)state;
    static const struct {
        int64_t bounds[4];
        int n;
        const char *message; /* NULL = they are good */
    } rows[] = {{{0, 2, 4, 6}, 4, NULL},
                {{0, 0, 6, 6}, 4, NULL}, /* no block with the embedding and with the head */
                {{0, 2, 6}, 3, "4 numbers; got 3"},
                {{1, 2, 4, 6}, 4, "from 0 to the 6 blocks of the model; got 1 to 6"},
                {{0, 2, 4, 7}, 4, "got 0 to 7"},
                {{0, 3, 3, 6}, 4, "chunk 1 has blocks from 3 to before 3"},
                {{0, 4, 2, 6}, 4, "chunk 1 has blocks from 4 to before 2"},
                {{0, -1, 2, 6}, 4, "chunk 0 has blocks from 0 to before -1"}};
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        const sw_status st = sw_partition_check(rows[i].bounds, rows[i].n, 6, 3);
        assert_int_equal(st, rows[i].message ? SW_E_CONFIG : SW_OK);
        assert_true(!rows[i].message || strstr(sw_error_message(), rows[i].message));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(schedules_keep_their_promises),
    cmocka_unit_test(small_schedules),
    cmocka_unit_test(the_largest_part_is_least),
    cmocka_unit_test(ties_and_large_weights),
    cmocka_unit_test(deepspeeds_partitions),
    cmocka_unit_test(bounds_of_items_become_bounds_of_blocks),
    cmocka_unit_test(wrong_bounds_are_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
