// SPDX-License-Identifier: Apache-2.0
// Overlap in a pipeline of two stages, which are threads with one compute thread each. For each
// number of micro-batches, with and without a wire: the time of a step, and the share of the time
// from the first forward to the last backward in which a stage computes nothing, next to the
// clock's. All ways run in turns, round by round. Figures are medians; ratios are medians of the
// rounds' ratios.
//
//     bench_parallel [--rounds 21] [--batch 8] [--seq-len 128] [--width 128] [--layers 4]
//         [--schedule 1f1b] [--wire-gb-s 0.2] [--micro-batches 0]
//
// --micro-batches runs that number alone: 2, 4, 8 or 16; 0 = all.
//
// The wire is simulated: a message also takes its time on a wire of that speed, asleep. The clock
// has the rate of the wire, and the times of the kernels of each stage in the same step: the mean
// of each kernel, and how much longer those of each phase took. On a shared machine the speed of
// each processor changes for tens of milliseconds, and stages that wait for each other pay for it.
// All else is measured as for `plan --predict`. "bound" is 1.05 + m / (f + b), the most that a wire
// may cost if a message (m) is shorter than a forward (f); b is a backward.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "spillway/comm.h"

enum { STAGES = 2, SIZES = 4, WAYS = 2 * SIZES, MOST_ROUNDS = 1000, MOST_K = 16 };
static const int sizes[SIZES] = {2, 4, 8, 16};
#define DEADLINE_S 120.0

struct args {
    int64_t rounds, batch, tokens, width, layers, micro_batches;
    double wire_gb_s;
    const char *schedule;
    char model[64];
};

static bool is_size(int64_t n)
{
    bool is = false;
    for (int i = 0; i < SIZES; i++) {
        is = is || sizes[i] == n;
    }
    return is;
}

static bool parse(int argc, char **argv, struct args *args)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--rounds") == 0) {
            args->rounds = atoll(value);
        } else if (strcmp(argv[i], "--batch") == 0) {
            args->batch = atoll(value);
        } else if (strcmp(argv[i], "--seq-len") == 0) {
            args->tokens = atoll(value);
        } else if (strcmp(argv[i], "--width") == 0) {
            args->width = atoll(value);
        } else if (strcmp(argv[i], "--layers") == 0) {
            args->layers = atoll(value);
        } else if (strcmp(argv[i], "--schedule") == 0) {
            args->schedule = value;
        } else if (strcmp(argv[i], "--micro-batches") == 0) {
            args->micro_batches = atoll(value);
        } else if (strcmp(argv[i], "--wire-gb-s") == 0) {
            args->wire_gb_s = atof(value);
        } else {
            return false;
        }
    }
    return argc % 2 == 1 && args->rounds > 0 && args->rounds <= MOST_ROUNDS && args->batch > 0 &&
           args->tokens > 0 && args->width > 0 && args->width % 64 == 0 && args->layers > 1 &&
           args->wire_gb_s > 0 && (args->micro_batches == 0 || is_size(args->micro_batches));
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int64_t n)
{
    double sorted[MOST_ROUNDS];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return sorted[n / 2];
}

/* ---- training ---- */

/* A way is a number of micro-batches; the second half has the wire. */
static bool has_wire(int way)
{
    return way >= SIZES;
}

struct span { /* seconds */
    double begin, end, busy;
};

/* The runs of a kernel in a step: in the first micro-step, or in later ones. */
struct runs {
    double seconds;
    int64_t n;
};

struct training {
    const struct args *args;
    struct sw_transport transports[WAYS][STAGES];
    sw_engine *engines[WAYS][STAGES];
    int ways[WAYS], n_ways;          /* those that run */
    struct span spans[STAGES];       /* of the latest step */
    struct runs (*runs[STAGES])[2];  /* [n_instrs] of the latest step */
    double *phases[STAGES];          /* [n_phases] of the latest step, see struct sw_pace */
    struct sw_speeds speeds[STAGES]; /* with the kernels of the latest step */
    double seconds[WAYS][MOST_ROUNDS], idle[WAYS][MOST_ROUNDS];
    double clock_s[WAYS][MOST_ROUNDS], clock_idle[WAYS][MOST_ROUNDS];
    double message_s;
    /* of a stage; both: with its backward */
    double forward_s[WAYS][MOST_ROUNDS], both_s[WAYS][MOST_ROUNDS];
};

static sw_status open_way(struct training *t, int way, int rank, sw_comm **comm)
{
    const struct args *args = t->args;
    const struct sw_fault_options wire = {.bytes_per_s = args->wire_gb_s * 1e9};
    struct sw_transport transport = t->transports[way][rank];
    char config[512];
    if (has_wire(way)) {
        SW_TRY(sw_fault_open(&t->transports[way][rank], &wire, &transport));
    }
    SW_TRY(sw_comm_open(&transport, comm));
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %lld, \"optimizer\": {\"type\": \"AdamW\", "
             "\"params\": {\"lr\": 0.0001}}, \"spillway\": {\"micro_batches\": %d, \"threads\": 1, "
             "\"schedule\": \"%s\", \"partition\": \"uniform\", \"mesh\": {\"pipe\": %d}}}",
             (long long)args->batch, sizes[way % SIZES], args->schedule, STAGES);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = args->model,
        .inputs.seq_len = args->tokens,
        .run.comm = *comm,
        .train = {.wanted = true, .no_dropout = true},
    };
    return sw_initialize(&options, &t->engines[way][rank]);
}

static sw_status step(sw_engine *e)
{
    struct sw_tensor tensors[2];
    struct sw_batch batches[MOST_K];
    const int64_t batch = sw_engine_micro_batch_size(e), tokens = sw_engine_seq_len(e);
    const int64_t n = batch * tokens, local = sw_engine_local_micro_batches(e);
    const struct sw_shape shape = {2, {batch, tokens}};
    struct sw_step_report report;
    int32_t *ids = sw_alloc("bench", (size_t)n * sizeof *ids);
    SW_TRY_ALLOC(ids, "a batch");
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(sw_philox_u64(1, 0, (uint64_t)i) % (uint64_t)sw_engine_vocab(e));
    }
    tensors[0] = (struct sw_tensor){"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}};
    tensors[1] = (struct sw_tensor){"labels", {.data = ids, .dtype = SW_I32, .shape = shape}};
    for (int64_t k = 0; k < local; k++) {
        batches[k] = (struct sw_batch){tensors, 2};
    }
    const sw_status st = sw_train_batch(e, batches, local, &report);
    sw_free(ids);
    return st;
}

/* A kernel in a line of a rendered trace; false = the line has none. */
static bool read_kernel(const char *line, double *begin, double *seconds, int *instr)
{
    const char *end = strchr(line, '\n');
    const char *kind = strstr(line, "\"cat\":\""), *number = strstr(line, "\"instruction\":");
    double ts, us;
    int rank, track;
    if (sscanf(line, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%lf,\"dur\":%lf", &rank, &track,
               &ts, &us) != 4 ||
        track != SW_QUEUE_COMPUTE || !kind || !number || (end && number > end) ||
        strncmp(kind, "\"cat\":\"wait\"", 12) == 0) {
        return false;
    }
    *begin = ts / 1e6;
    *seconds = us / 1e6;
    return sscanf(number, "\"instruction\":%d", instr) == 1;
}

/* Adds the kernels of a rendered trace of one step to `runs`. Returns those of forward and
 * backward. */
static sw_status sum_kernels(const char *text, const struct sw_program *program,
                             struct runs (*runs)[2], struct span *out)
{
    bool *ran = sw_alloc_zero("bench", (size_t)program->n_instrs, sizeof *ran);
    SW_TRY_ALLOC(ran, "the kernels of a trace");
    *out = (struct span){INFINITY, 0, 0};
    for (const char *line = text; line; line = strchr(line, '\n')) {
        double begin, seconds;
        int i;
        line += *line == '\n';
        if (!read_kernel(line, &begin, &seconds, &i)) {
            continue;
        }
        runs[i][ran[i]].seconds += seconds;
        runs[i][ran[i]].n++;
        ran[i] = true;
        if (program->instrs[i].segment < SW_SEGMENT_UPDATE) {
            out->begin = fmin(out->begin, begin);
            out->end = fmax(out->end, begin + seconds);
            out->busy += seconds;
        }
    }
    sw_free(ran);
    return SW_OK;
}

/* Moves a walk to the next run of a kernel. Returns the number of its phase; -1 = there is none. */
static int32_t find_phase(struct sw_walk *walk, const struct sw_step *step, int instr)
{
    struct sw_event event;
    do {
        sw_walk_next(walk, &event);
        if (event.kind == SW_EVENT_ISSUE && walk->instr == instr) {
            return (int32_t)(walk->phase - step->phases);
        }
    } while (event.kind != SW_EVENT_END);
    return -1;
}

/* How much longer the kernels of each phase took than the mean of each kernel's runs. */
static sw_status compare_phases(const char *text, const struct sw_plan *plan,
                                struct runs (*runs)[2], double **out)
{
    const struct sw_step *step = &plan->step;
    const size_t n = (size_t)step->n_phases;
    double *seconds = sw_alloc_zero("bench", 2 * n, sizeof *seconds);
    bool *ran = sw_alloc_zero("bench", (size_t)plan->programs[0].n_instrs, sizeof *ran);
    struct sw_walk walk;
    sw_free(*out);
    *out = seconds;
    sw_status st = seconds && ran ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of memory for phases");
    double *means = seconds ? seconds + n : NULL;
    sw_walk_begin(&walk, plan, step->phases, step->n_phases);
    for (const char *line = text; line && st >= 0; line = strchr(line, '\n')) {
        double begin, took;
        int i;
        line += *line == '\n';
        if (!read_kernel(line, &begin, &took, &i)) {
            continue;
        }
        const int32_t phase = find_phase(&walk, step, i);
        if (phase < 0) {
            st = SW_FAIL(SW_E_ARG, "a trace has a kernel that the step has not, instruction %d", i);
            break;
        }
        const struct runs *of = &runs[i][ran[i]];
        seconds[phase] += took;
        means[phase] += of->seconds / (double)of->n;
        ran[i] = true;
    }
    for (size_t k = 0; k < n && st >= 0; k++) {
        seconds[k] = means[k] > 0 ? seconds[k] / means[k] : 1;
    }
    sw_free(ran);
    return st;
}

/* All ways have the same kernels. */
static const struct sw_plan *plan_of(const struct training *t, int stage)
{
    return sw_engine_facts(t->engines[t->ways[0]][stage]).plan;
}

static size_t n_instrs(const struct training *t, int stage)
{
    return (size_t)plan_of(t, stage)->programs[0].n_instrs;
}

/* Runs a step and notes when its kernels ran. */
static sw_status traced_step(struct training *t, int way, int rank)
{
    sw_engine *e = t->engines[way][rank];
    const struct sw_engine_facts facts = sw_engine_facts(e);
    struct sw_trace *trace = NULL;
    struct sw_str text = {0};
    memset(t->runs[rank], 0, n_instrs(t, rank) * sizeof *t->runs[rank]);
    SW_TRY(sw_trace_open(facts.plan, 1, facts.rounds, &trace));
    sw_executor_trace(facts.executor, trace);
    sw_status st = step(e);
    sw_executor_trace(facts.executor, NULL);
    st = st < 0 ? st : sw_trace_render(trace, rank, 0, &text);
    st = st < 0 ? st
                : sum_kernels(sw_str_text(&text), &facts.plan->programs[0], t->runs[rank],
                              &t->spans[rank]);
    st = st < 0 ? st
                : compare_phases(sw_str_text(&text), facts.plan, t->runs[rank], &t->phases[rank]);
    sw_str_fini(&text);
    sw_trace_close(trace);
    return st;
}

/* Share of the time from the first forward to the last backward, mean of the stages. */
static double idle_share(const struct span spans[STAGES])
{
    double begin = INFINITY, end = 0, busy = 0;
    for (int s = 0; s < STAGES; s++) {
        begin = fmin(begin, spans[s].begin);
        end = fmax(end, spans[s].end);
        busy += spans[s].busy / STAGES;
    }
    return 1 - busy / (end - begin);
}

/* ---- predicted ---- */

static sw_status measure(struct training *t, int stage)
{
    struct sw_device *devices[STAGES];
    for (int s = 0; s < STAGES; s++) {
        devices[s] = sw_engine_facts(t->engines[t->ways[0]][(stage + s) % STAGES]).device;
    }
    const struct sw_measure_options options = {
        .devices = devices, .n_devices = STAGES, .ranks = STAGES};
    return sw_speeds_measure(plan_of(t, stage), &options, &t->speeds[stage]);
}

/* Gives the clock the kernels of the latest step. Returns the seconds of forward; *both: with
 * backward. */
static double take_kernels(struct training *t, int stage, double *both)
{
    const struct sw_program *program = &plan_of(t, stage)->programs[0];
    double forward = 0;
    *both = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct runs *runs = t->runs[stage][i];
        struct sw_cost *costs = t->speeds[stage].kernels[i];
        for (int later = 0; later < 2 && runs[0].n > 0; later++) {
            const struct runs *of = &runs[runs[later].n > 0 ? later : 0];
            costs[later].seconds = of->seconds / (double)of->n;
        }
        const enum sw_segment segment = program->instrs[i].segment;
        forward += segment == SW_SEGMENT_FORWARD ? costs[1].seconds : 0;
        *both += segment < SW_SEGMENT_UPDATE ? costs[1].seconds : 0;
    }
    return forward;
}

/* Walks the stages with the kernels of the latest step. */
static sw_status predict(struct training *t, int way, int64_t round)
{
    struct sw_clock_rank stages[STAGES];
    const struct sw_speeds *all[STAGES];
    bool unknown[SW_LOAD_COUNT];
    memset(stages, 0, sizeof stages);
    for (int s = 0; s < STAGES; s++) {
        double both;
        t->forward_s[way][round] += take_kernels(t, s, &both) / STAGES;
        t->both_s[way][round] += both / STAGES;
        t->speeds[s].given.work[SW_LOAD_SENT] = has_wire(way) ? t->args->wire_gb_s * 1e9 : 0;
        stages[s].plan = sw_engine_facts(t->engines[way][s]).plan;
        t->speeds[s].phases = t->phases[s];
        all[s] = &t->speeds[s];
    }
    SW_TRY(sw_speeds_stages(stages, all, STAGES, unknown, &t->clock_s[way][round]));
    t->clock_idle[way][round] = (stages[0].idle + stages[1].idle) / STAGES;
    return SW_OK;
}

/* ---- rounds ---- */

/* Each round runs all ways, in changing order. The first round touches all memory. */
static sw_status train_rounds(struct training *t, sw_comm *meet)
{
    const int rank = sw_comm_rank(meet);
    for (int64_t i = 0; i < (t->args->rounds + 1) * t->n_ways; i++) {
        const int64_t round = i / t->n_ways - 1;
        const int way = t->ways[(i + round + 1) % t->n_ways];
        SW_TRY(sw_comm_barrier(meet, "a step begins"));
        const double begin = sw_now_s();
        SW_TRY(traced_step(t, way, rank));
        SW_TRY(sw_comm_barrier(meet, "a step ends"));
        if (rank == 0 && round >= 0) {
            t->seconds[way][round] = sw_now_s() - begin;
            t->idle[way][round] = idle_share(t->spans);
            SW_TRY(predict(t, way, round));
        }
    }
    return sw_comm_barrier(meet, "the rounds end"); /* before an engine closes */
}

/* ---- all of it ---- */

static sw_status run_rank(void *ctx, sw_comm *meet)
{
    struct training *t = ctx;
    const int rank = sw_comm_rank(meet);
    sw_comm *comms[WAYS] = {NULL};
    sw_status st = SW_OK;
    for (int i = 0; i < t->n_ways && st >= 0; i++) {
        st = open_way(t, t->ways[i], rank, &comms[t->ways[i]]);
    }
    st = st < 0 ? st : sw_comm_barrier(meet, "all ways are open");
    if (st >= 0) {
        t->runs[rank] = sw_alloc_zero("bench", n_instrs(t, rank), sizeof *t->runs[rank]);
        st = t->runs[rank] ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of memory for kernels");
    }
    for (int s = 0; s < STAGES && rank == 0; s++) {
        st = st < 0 ? st : measure(t, s);
    }
    st = st < 0 ? st : train_rounds(t, meet);
    for (int way = 0; way < WAYS; way++) {
        sw_close(t->engines[way][rank]);
        if (comms[way]) {
            sw_comm_close(comms[way], st < 0);
        }
    }
    sw_free(t->runs[rank]);
    sw_free(t->phases[rank]);
    return st;
}

static void print_way(const struct training *t, int way)
{
    const int64_t n = t->args->rounds;
    const int size = sizes[way % SIZES];
    double ratios[MOST_ROUNDS];
    const double idle = median(t->idle[way], n), clock = median(t->clock_idle[way], n);
    for (int64_t k = 0; k < n; k++) {
        ratios[k] = t->seconds[way][k] / t->seconds[way % SIZES][k];
    }
    printf("%3d %-5s | %8.2f %8.2f | %6.3f %6.3f %+6.3f %8.3f |", size, has_wire(way) ? "wire" : "",
           median(t->seconds[way], n) * 1e3, median(t->clock_s[way], n) * 1e3, idle, clock,
           idle - clock, (STAGES - 1.0) / (size + STAGES - 1));
    if (has_wire(way)) {
        printf(" %6.3f %6.3f", median(ratios, n),
               1.05 + t->message_s / median(t->both_s[way % SIZES], n));
    }
    putchar('\n');
}

static void print_results(const struct training *t)
{
    const struct args *args = t->args;
    const int some = t->ways[0];
    const double forward_s = median(t->forward_s[some], args->rounds);
    printf("GPT-2 of %lld layers of width %lld, %lld x %lld tokens, %s, wire of %g GB/s\n"
           "a stage's forward %.2f ms, its backward %.2f ms, a message on the wire %.2f ms\n\n",
           (long long)args->layers, (long long)args->width, (long long)args->batch,
           (long long)args->tokens, args->schedule, args->wire_gb_s, forward_s * 1e3,
           (median(t->both_s[some], args->rounds) - forward_s) * 1e3, t->message_s * 1e3);
    printf("%3s %-5s | %8s %8s | %6s %6s %6s %8s | %6s %6s\n", "M", "", "step ms", "clock", "idle",
           "clock", "diff", "(S-1)/..", "ratio", "bound");
    for (int i = 0; i < t->n_ways; i++) {
        print_way(t, t->ways[i]);
    }
}

/* Without and with the wire, for each number of micro-batches that was asked for. */
static void list_ways(struct training *t)
{
    for (int way = 0; way < WAYS; way++) {
        const int of = way % 2 * SIZES + way / 2;
        if (t->args->micro_batches == 0 || t->args->micro_batches == sizes[of % SIZES]) {
            t->ways[t->n_ways++] = of;
        }
    }
}

static sw_status bench(struct args *args)
{
    char model[256];
    snprintf(model, sizeof model,
             "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":64,"
             "\"n_positions\":%lld,\"n_embd\":%lld,\"n_layer\":%lld,\"n_head\":%lld,"
             "\"tie_word_embeddings\":false}",
             (long long)args->tokens, (long long)args->width, (long long)args->layers,
             (long long)args->width / 32);
    snprintf(args->model, sizeof args->model, "/tmp/bench-parallel-XXXXXX");
    const int fd = mkstemp(args->model);
    if (fd < 0) {
        return SW_FAIL(SW_E_IO, "no file in /tmp");
    }
    close(fd);
    struct training *t = sw_alloc_zero("bench", 1, sizeof *t);
    sw_status st = t ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of memory for results");
    st = st < 0 ? st : sw_file_write_atomic(args->model, model, strlen(model));
    for (int way = 0; way < WAYS && st >= 0; way++) {
        st = sw_thread_transports_open(STAGES, DEADLINE_S, t->transports[way]);
    }
    if (st >= 0) {
        t->args = args;
        t->message_s =
            4.0 * (double)(args->batch * args->tokens * args->width) / (args->wire_gb_s * 1e9);
        list_ways(t);
        st = sw_threads_run(STAGES, DEADLINE_S, run_rank, t);
    }
    if (st >= 0) {
        print_results(t);
    }
    unlink(args->model);
    for (int s = 0; s < STAGES && t; s++) {
        sw_speeds_close(&t->speeds[s]);
    }
    sw_free(t);
    return st;
}

int main(int argc, char **argv)
{
    struct args args = {.rounds = 21,
                        .batch = 8,
                        .tokens = 128,
                        .width = 128,
                        .layers = 4,
                        .schedule = "1f1b",
                        .wire_gb_s = 0.2};
    if (!parse(argc, argv, &args)) {
        fprintf(stderr, "usage: bench_parallel [--rounds N] [--batch B] [--seq-len T] [--width C] "
                        "[--layers L] [--schedule NAME] [--wire-gb-s W] [--micro-batches M]\n");
        return 2;
    }
    if (bench(&args) < 0) {
        fprintf(stderr, "bench_parallel: %s\n", sw_error_message());
        return 1;
    }
    return 0;
}
