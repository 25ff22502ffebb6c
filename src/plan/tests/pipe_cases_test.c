// SPDX-License-Identifier: Apache-2.0
// Tests every recorded schedule, partition and topology of DeepSpeed's pipelines. Recorded clock
// steps follow from our phases: each step has a parity for forward and one for backward, and a
// phase takes the first one that it can.
#include "json/json.h"
#include "layout/layout.h"
#include "plan/pipe.h"

#include "support/fixtures.h"
#include "support/test.h"

static char folder[TEST_PATH_CAP];

static struct sw_json_doc *open_cases(const char *name)
{
    struct sw_json_doc *doc = NULL;
    if (sw_json_read(test_in(folder, name), SW_JSON_STRICT, &doc) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return doc;
}

static int number(const struct sw_json *row, const char *key)
{
    return (int)sw_json_get(row, key)->integer;
}

/* Runs a check on every case of a file. */
static void check_all(const char *name, bool (*is_same)(const struct sw_json *row))
{
    struct sw_json_doc *doc = open_cases(name);
    int n = 0, n_wrong = 0;
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "cases")->first; row;
         row = row->next, n++) {
        if (!is_same(row)) {
            struct sw_str text = {0};
            sw_json_write(row, 0, &text);
            print_error("  WRONG: %.*s\n", (int)(text.len < 400 ? text.len : 400), text.ptr);
            sw_str_fini(&text);
            n_wrong++;
        }
    }
    print_message("pipeline/%-26s %d cases, %d wrong\n", name, n, n_wrong);
    assert_true(n > 0);
    assert_int_equal(n_wrong, 0);
    sw_json_close(doc);
}

/* ---- clock steps ---- */

/* The clock step of each phase of each micro-batch; -1 = not yet. */
struct clock {
    struct sw_pipe pipe;
    int *step; /* [stages, 2, micro_batches] by segment */
};

static int *step_of(const struct clock *clock, int stage, enum sw_segment segment, int micro)
{
    return &clock->step[(stage * 2 + (int)segment) * clock->pipe.micro_batches + micro];
}

/* The step at which all is there that the phase reads; -1 = something is missing. */
static int earliest(const struct clock *clock, int stage, const struct sw_pipe_phase *phase)
{
    const bool forward = phase->segment == SW_SEGMENT_FORWARD;
    const int other = forward ? stage - 1 : stage + 1;
    if (other < 0 || other == clock->pipe.stages) {
        return 0;
    }
    const int at = *step_of(clock, other, phase->segment, phase->micro);
    return at < 0 ? -1 : at + 1;
}

/* Gives the phases of all stages their steps. parity: forward takes every second step, the others
 * are for backward */
static void find_steps(struct clock *clock, const struct sw_pipe_schedule *schedule, bool parity)
{
    const struct sw_pipe *pipe = &clock->pipe;
    const int64_t n = parity ? sw_pipe_phases(schedule, pipe) : pipe->micro_batches;
    struct sw_pipe_phase *phases = malloc((size_t)sw_pipe_phases(schedule, pipe) * sizeof *phases);
    int64_t *next = calloc((size_t)pipe->stages, sizeof *next);
    int *now = calloc((size_t)pipe->stages, sizeof *now);
    for (int s = 0; s < pipe->stages; s++) {
        now[s] = parity ? -2 : -1;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < pipe->stages; s++) {
            schedule->list(pipe, s, phases);
            for (; next[s] < n; next[s]++, moved = true) {
                const struct sw_pipe_phase *phase = &phases[next[s]];
                const int ready = earliest(clock, s, phase);
                if (ready < 0) {
                    break;
                }
                int at = ready > now[s] + 1 ? ready : now[s] + 1;
                const bool other = phase->segment == SW_SEGMENT_BACKWARD;
                at += parity && ((at ^ s) & 1) != other;
                now[s] = *step_of(clock, s, phase->segment, phase->micro) = at;
            }
        }
    }
    for (int s = 0; s < pipe->stages; s++) {
        assert_int_equal(next[s], n);
    }
    free(phases);
    free(next);
    free(now);
}

static void open_clock(struct clock *clock, const struct sw_json *row,
                       const struct sw_pipe_schedule *schedule, bool parity)
{
    clock->pipe = (struct sw_pipe){number(row, "stages"), 1, number(row, "micro_batches")};
    const int n = clock->pipe.stages * 2 * clock->pipe.micro_batches;
    clock->step = malloc((size_t)n * sizeof *clock->step);
    for (int i = 0; i < n; i++) {
        clock->step[i] = -1;
    }
    find_steps(clock, schedule, parity);
}

/* The micro-batch of a stage at a step; -1 = none. */
static int micro_at(const struct clock *clock, int stage, enum sw_segment segment, int step)
{
    for (int k = 0; k < clock->pipe.micro_batches; k++) {
        if (*step_of(clock, stage, segment, k) == step) {
            return k;
        }
    }
    return -1;
}

/* The steps of a case as text, and what we make of them. */
struct steps {
    struct sw_str text;
    int buffers;
    bool any; /* this step has an instruction */
};

static void put(struct steps *steps, const char *name, int micro)
{
    sw_str_printf(&steps->text, "%s[\"%s\"", steps->any ? "," : "", name);
    if (micro >= 0) {
        sw_str_printf(&steps->text, ",%d", micro % steps->buffers);
    }
    sw_str_puts(&steps->text, "]");
    steps->any = true;
}

static void put_if(struct steps *steps, bool has, const char *name, int micro)
{
    if (has && micro >= 0) {
        put(steps, name, micro);
    }
}

/* Compares the steps of a case, as compact JSON. */
static bool are_same(const struct sw_json *row, struct steps *steps)
{
    struct sw_str want = {0};
    sw_json_write(sw_json_get(row, "steps"), 0, &want);
    size_t n = 0;
    for (size_t i = 0; i < want.len; i++) { /* without white space */
        if (want.ptr[i] != ' ' && want.ptr[i] != '\n') {
            want.ptr[n++] = want.ptr[i];
        }
    }
    const bool same = n == steps->text.len && memcmp(want.ptr, steps->text.ptr, n) == 0 &&
                      number(row, "buffers") == steps->buffers;
    if (!same) {
        print_error("  ours: %.*s\n", (int)steps->text.len, steps->text.ptr);
    }
    sw_str_fini(&want);
    sw_str_fini(&steps->text);
    return same;
}

/* A stage sends what the step before this one made. */
static void put_train_step(struct steps *steps, const struct clock *clock, int stage, int t)
{
    const bool before = stage > 0, after = stage < clock->pipe.stages - 1;
    const int forward = micro_at(clock, stage, SW_SEGMENT_FORWARD, t);
    const int backward = micro_at(clock, stage, SW_SEGMENT_BACKWARD, t);
    put_if(steps, before, "send_grad", micro_at(clock, stage, SW_SEGMENT_BACKWARD, t - 1));
    put_if(steps, before, "recv_activation", forward);
    put_if(steps, after, "recv_grad", backward);
    put_if(steps, after, "send_activation", micro_at(clock, stage, SW_SEGMENT_FORWARD, t - 1));
    put_if(steps, !before || !after, "load", forward);
    put_if(steps, true, "forward", forward);
    put_if(steps, true, "backward", backward);
}

static bool train_is_same(const struct sw_json *row)
{
    struct clock clock;
    open_clock(&clock, row, &sw_pipe_1f1b, true);
    const int stage = number(row, "stage_id");
    struct sw_pipe_phase *phases =
        malloc((size_t)sw_pipe_phases(&sw_pipe_1f1b, &clock.pipe) * sizeof *phases);
    sw_pipe_1f1b.list(&clock.pipe, stage, phases);
    const int slots = sw_pipe_slots(phases, sw_pipe_phases(&sw_pipe_1f1b, &clock.pipe),
                                    &(struct sw_pipe_phase){.segment = SW_SEGMENT_FORWARD},
                                    &(struct sw_pipe_phase){.segment = SW_SEGMENT_BACKWARD}, 0, 0);
    struct steps steps = {.buffers = slots > 2 ? slots : 2}; /* DeepSpeed has at least two */
    const int n = 2 * (clock.pipe.micro_batches + clock.pipe.stages - 1);
    sw_str_puts(&steps.text, "[");
    for (int t = 0; t < n; t++) {
        sw_str_puts(&steps.text, t > 0 ? ",[" : "[");
        steps.any = false;
        put_train_step(&steps, &clock, stage, t);
        if (t == n - 1) {
            put(&steps, "reduce_tied_grads", -1);
            put(&steps, "reduce_grads", -1);
            put(&steps, "optimizer_step", -1);
        }
        sw_str_puts(&steps.text, "]");
    }
    sw_str_puts(&steps.text, "]");
    free(phases);
    free(clock.step);
    return are_same(row, &steps);
}

/* Evaluation has the forward phases of a schedule, which come at once. Odd stages receive before
 * they send. */
static bool inference_is_same(const struct sw_json *row)
{
    struct clock clock;
    open_clock(&clock, row, &sw_pipe_gpipe, false);
    const int stage = number(row, "stage_id");
    const bool before = stage > 0, after = stage < clock.pipe.stages - 1;
    struct steps steps = {.buffers = 2};
    sw_str_puts(&steps.text, "[");
    for (int t = 0; t < clock.pipe.micro_batches + clock.pipe.stages - 1; t++) {
        const int now = micro_at(&clock, stage, SW_SEGMENT_FORWARD, t);
        const int last = micro_at(&clock, stage, SW_SEGMENT_FORWARD, t - 1);
        sw_str_puts(&steps.text, t > 0 ? ",[" : "[");
        steps.any = false;
        put_if(&steps, !before || !after, "load", now);
        put_if(&steps, after && stage % 2 == 0, "send_activation", last);
        put_if(&steps, before, "recv_activation", now);
        put_if(&steps, after && stage % 2 == 1, "send_activation", last);
        put_if(&steps, true, "forward", now);
        sw_str_puts(&steps.text, "]");
    }
    sw_str_puts(&steps.text, "]");
    free(clock.step);
    return are_same(row, &steps);
}

static void recorded_train_schedules(void **state)
{
    (void)state;
    check_all("train_schedule.json", train_is_same);
}

static void recorded_inference_schedules(void **state)
{
    (void)state;
    check_all("inference_schedule.json", inference_is_same);
}

/* ---- partitions ---- */

static bool is_list(const struct sw_json *list, const int *values, int n)
{
    int i = 0;
    for (const struct sw_json *item = list->first; item; item = item->next, i++) {
        if (i >= n || item->integer != values[i]) {
            return false;
        }
    }
    return i == n;
}

static bool partition_is_same(const struct sw_json *row)
{
    const int parts = number(row, "parts");
    const struct sw_json *items = sw_json_get(row, "weights");
    int *bounds = malloc((size_t)(parts + 1) * sizeof *bounds);
    if (items) {
        double *weights = calloc((size_t)items->n_children + 1, sizeof *weights);
        int n = 0;
        for (const struct sw_json *item = items->first; item; item = item->next) {
            weights[n++] = item->number;
        }
        assert_int_equal(sw_partition_balanced(weights, n, parts, bounds), SW_OK);
        free(weights);
    } else {
        assert_string_equal(sw_json_get(row, "method")->string, "uniform");
        sw_partition_uniform(number(row, "items"), parts, bounds);
    }
    const bool same = is_list(sw_json_get(row, "bounds"), bounds, parts + 1);
    free(bounds);
    return same;
}

static void recorded_partitions(void **state)
{
    (void)state;
    check_all("partition.json", partition_is_same);
}

/* ---- ranks ---- */

enum { MOST_RANKS = 256 };

/* DeepSpeed's names of our axes. */
static const struct {
    const char *name;
    enum sw_axis axis;
} axes[] = {{"pipe", SW_AXIS_PIPE}, {"data", SW_AXIS_DATA}, {"model", SW_AXIS_TENSOR}};

static bool group_is(const struct sw_mesh *mesh, unsigned bits, int rank,
                     const struct sw_json *list)
{
    int ranks[MOST_RANKS];
    const struct sw_group group = sw_mesh_group(mesh, bits, rank, ranks);
    return is_list(list, group.ranks, group.n);
}

/* Coordinates, name and groups of a rank. */
static bool rank_is_same(const struct sw_json *row, const struct sw_mesh *mesh, int rank,
                         const struct sw_json *place, const struct sw_json *grid)
{
    const unsigned pipe = 1U << SW_AXIS_PIPE, data = 1U << SW_AXIS_DATA,
                   tensor = 1U << SW_AXIS_TENSOR;
    int at[SW_AXIS_COUNT], ours[SW_LEN(axes)], n = 0;
    sw_mesh_place(mesh, rank, at);
    for (size_t a = 0; a < SW_LEN(axes); a++) {
        if (sw_json_get(sw_json_get(row, "sizes"), axes[a].name)) {
            ours[n++] = at[axes[a].axis];
        }
    }
    const struct sw_json *slice = sw_json_get(grid, "slice_group");
    return is_list(place, ours, n) && number(grid, "rank") == rank &&
           number(grid, "stage_id") == at[SW_AXIS_PIPE] &&
           number(grid, "data_parallel_id") == at[SW_AXIS_DATA] &&
           group_is(mesh, pipe | tensor, rank, sw_json_get(grid, "model_and_pipe_group")) &&
           group_is(mesh, data, rank, sw_json_get(grid, "data_group")) &&
           group_is(mesh, pipe, rank, sw_json_get(grid, "pipe_group")) &&
           group_is(mesh, pipe, rank, sw_json_get(grid, "stage_to_global")) &&
           group_is(mesh, tensor, rank, slice);
}

/* The groups along an axis, each once. */
static bool groups_are_same(const struct sw_json *lists, const struct sw_mesh *mesh,
                            enum sw_axis axis)
{
    int n = 0;
    for (const struct sw_json *list = lists->first; list; list = list->next, n++) {
        const int first = list->first ? (int)list->first->integer : 0;
        if (!group_is(mesh, 1U << axis, first, list)) {
            return false;
        }
    }
    return n * sw_mesh_size(mesh, 1U << axis) == sw_mesh_ranks(mesh);
}

/* The ranks with each coordinate of an axis. */
static bool ranks_are_same(const struct sw_json *lists, const struct sw_mesh *mesh,
                           enum sw_axis axis)
{
    int i = 0;
    for (const struct sw_json *list = lists->first; list; list = list->next, i++) {
        int at[SW_AXIS_COUNT] = {0};
        at[axis] = i;
        if (!group_is(mesh, SW_ALL_AXES & ~(1U << axis), sw_mesh_rank(mesh, at), list)) {
            return false;
        }
    }
    return i == sw_mesh_size(mesh, 1U << axis);
}

static bool topology_is_same(const struct sw_json *row)
{
    int size[SW_AXIS_COUNT] = {1, 1, 1, 1, 1};
    struct sw_mesh mesh;
    for (size_t a = 0; a < SW_LEN(axes); a++) {
        const struct sw_json *n = sw_json_get(sw_json_get(row, "sizes"), axes[a].name);
        size[axes[a].axis] = n ? (int)n->integer : 1;
    }
    assert_int_equal(sw_mesh_init(&mesh, size, number(row, "world_size")), SW_OK);
    assert_true(sw_mesh_ranks(&mesh) <= MOST_RANKS);
    const struct sw_json *place = sw_json_get(row, "coordinates_of_rank")->first;
    const struct sw_json *grid = sw_json_get(row, "grid")->first;
    bool same = true;
    for (int rank = 0; rank < sw_mesh_ranks(&mesh); rank++) {
        same = same && rank_is_same(row, &mesh, rank, place, grid);
        place = place->next;
        grid = grid->next;
    }
    for (size_t a = 0; a < SW_LEN(axes); a++) {
        const struct sw_json *lists = sw_json_get(sw_json_get(row, "comm_lists"), axes[a].name);
        const struct sw_json *ranks = sw_json_get(sw_json_get(row, "ranks_at"), axes[a].name);
        same = same && (!lists || (groups_are_same(lists, &mesh, axes[a].axis) &&
                                   ranks_are_same(ranks, &mesh, axes[a].axis)));
    }
    return same;
}

static void recorded_topologies(void **state)
{
    (void)state;
    check_all("topology.json", topology_is_same);
}

static bool grid_is_same(const struct sw_json *row)
{
    const struct sw_mesh mesh = sw_mesh_of_pipe_and_data(number(row, "world_size"));
    return sw_mesh_size(&mesh, 1U << SW_AXIS_PIPE) == number(row, "pipe") &&
           sw_mesh_size(&mesh, 1U << SW_AXIS_DATA) == number(row, "data") &&
           sw_mesh_ranks(&mesh) == number(row, "world_size");
}

static void recorded_grids(void **state)
{
    (void)state;
    check_all("default_grid.json", grid_is_same);
}

static int begin(char **argv)
{
    (void)argv;
    return test_fixture_folder("pipeline", folder) ? 0 : TEST_EXIT_SKIPPED;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(recorded_train_schedules), cmocka_unit_test(recorded_inference_schedules),
    cmocka_unit_test(recorded_partitions),      cmocka_unit_test(recorded_topologies),
    cmocka_unit_test(recorded_grids),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .begin = begin};
