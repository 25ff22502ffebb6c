// SPDX-License-Identifier: Apache-2.0
// Overlap in a pipeline of two stages, which are threads with one compute thread each. For each
// number of micro-batches, with and without a wire: the time of a step, and the share of the time
// from the first forward to the last backward in which a stage computes nothing, next to the
// clock's. All ways run in turns, round by round. Figures are medians; ratios are medians of the
// rounds' ratios.
//
//     bench_parallel [--rounds 21] [--batch 8] [--seq-len 128] [--width 128] [--layers 4]
//         [--schedule 1f1b] [--wire-gb-s 0.2]
//
// The wire is simulated: a message also takes its time on a wire of that speed, asleep. The clock
// has the kernels' times as measured while both stages compute, and the rate of the wire. "bound"
// is 1.05 + m / (f + b), the most that a wire may cost if a message (m) is shorter than a forward
// (f); b is a backward.
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
    int64_t rounds, batch, tokens, width, layers;
    double wire_gb_s;
    const char *schedule;
    char model[64];
};

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
        } else if (strcmp(argv[i], "--wire-gb-s") == 0) {
            args->wire_gb_s = atof(value);
        } else {
            return false;
        }
    }
    return argc % 2 == 1 && args->rounds > 0 && args->rounds <= MOST_ROUNDS && args->batch > 0 &&
           args->tokens > 0 && args->width > 0 && args->width % 64 == 0 && args->layers > 1 &&
           args->wire_gb_s > 0;
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

struct training {
    const struct args *args;
    struct sw_transport transports[WAYS][STAGES];
    sw_engine *engines[WAYS][STAGES];
    struct span spans[WAYS][STAGES]; /* of the latest round */
    double seconds[WAYS][MOST_ROUNDS], idle[WAYS][MOST_ROUNDS];
    double predicted[WAYS], predicted_s[WAYS]; /* idle share, step */
    double forward_s, both_s, message_s;       /* of a stage, by the clock's costs */
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

/* Adds the kernels of forward and backward in a rendered trace. */
static struct span sum_kernels(const char *text)
{
    struct span sum = {INFINITY, 0, 0};
    for (const char *line = text; line; line = strchr(line + 1, '\n')) {
        const char *end = strchr(line + 1, '\n');
        const char *kind = strstr(line, "\"cat\":\"");
        double ts, us;
        int rank, track;
        line += *line == '\n';
        if (sscanf(line, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%lf,\"dur\":%lf", &rank,
                   &track, &ts, &us) == 4 &&
            track == SW_QUEUE_COMPUTE && kind && (!end || kind < end) &&
            (strncmp(kind, "\"cat\":\"forward\"", 15) == 0 ||
             strncmp(kind, "\"cat\":\"backward\"", 16) == 0 ||
             strncmp(kind, "\"cat\":\"weights\"", 15) == 0)) {
            sum.begin = fmin(sum.begin, ts / 1e6);
            sum.end = fmax(sum.end, (ts + us) / 1e6);
            sum.busy += us / 1e6;
        }
        line = end ? end - 1 : line;
        if (!end) {
            break;
        }
    }
    return sum;
}

/* Runs a step and notes when its kernels ran. */
static sw_status traced_step(struct training *t, int way, int rank)
{
    sw_engine *e = t->engines[way][rank];
    const struct sw_engine_facts facts = sw_engine_facts(e);
    struct sw_trace *trace = NULL;
    struct sw_str text = {0};
    SW_TRY(sw_trace_open(facts.plan, 1, facts.rounds, &trace));
    sw_executor_trace(facts.executor, trace);
    sw_status st = step(e);
    sw_executor_trace(facts.executor, NULL);
    st = st < 0 ? st : sw_trace_render(trace, rank, 0, &text);
    if (st >= 0) {
        t->spans[way][rank] = sum_kernels(sw_str_text(&text));
    }
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

/* Each round runs all ways, in changing order. The first round touches all memory. */
static sw_status train_rounds(struct training *t, sw_comm *meet)
{
    const int rank = sw_comm_rank(meet);
    for (int64_t round = -1; round < t->args->rounds; round++) {
        for (int turn = 0; turn < WAYS; turn++) {
            const int way = (int)((turn + round + 1) % WAYS);
            SW_TRY(sw_comm_barrier(meet, "a step begins"));
            const double begin = sw_now_s();
            SW_TRY(traced_step(t, way, rank));
            SW_TRY(sw_comm_barrier(meet, "a step ends"));
            if (rank == 0 && round >= 0) {
                t->seconds[way][round] = sw_now_s() - begin;
                t->idle[way][round] = idle_share(t->spans[way]);
            }
        }
    }
    return SW_OK;
}

/* ---- predicted ---- */

/* Seconds of the kernels of a segment, by the measured costs. */
static double segment_s(const struct sw_plan *plan, const struct sw_speeds *speeds,
                        enum sw_segment segment)
{
    const struct sw_program *program = &plan->programs[0];
    double sum = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        sum += instr->segment == segment && instr->verb == SW_VERB_KERNEL
                   ? speeds->kernels[i][1].seconds
                   : 0;
    }
    return sum;
}

static sw_status measure(struct training *t, int stage, struct sw_speeds *out)
{
    const struct sw_engine_facts own = sw_engine_facts(t->engines[0][stage]);
    const struct sw_engine_facts other = sw_engine_facts(t->engines[0][1 - stage]);
    struct sw_device *devices[STAGES] = {own.device, other.device};
    const struct sw_measure_options options = {
        .devices = devices, .n_devices = STAGES, .ranks = STAGES};
    return sw_speeds_measure(own.plan, &options, out);
}

/* Walks the stages of each way with the same kernels' costs, whose plans have the same ones. */
static sw_status predict(struct training *t)
{
    struct sw_speeds speeds[STAGES] = {{.given = {.latency = 0}}};
    sw_status st = SW_OK;
    for (int s = 0; s < STAGES && st >= 0; s++) {
        st = measure(t, s, &speeds[s]);
    }
    for (int way = 0; way < WAYS && st >= 0; way++) {
        struct sw_clock_rank stages[STAGES];
        const struct sw_speeds *all[STAGES];
        bool unknown[SW_LOAD_COUNT];
        memset(stages, 0, sizeof stages);
        for (int s = 0; s < STAGES; s++) {
            speeds[s].given.work[SW_LOAD_SENT] = has_wire(way) ? t->args->wire_gb_s * 1e9 : 0;
            stages[s].plan = sw_engine_facts(t->engines[way][s]).plan;
            all[s] = &speeds[s];
        }
        st = sw_speeds_stages(stages, all, STAGES, unknown, &t->predicted_s[way]);
        t->predicted[way] = (stages[0].idle + stages[1].idle) / STAGES;
    }
    for (int s = 0; s < STAGES && st >= 0; s++) {
        const struct sw_plan *plan = sw_engine_facts(t->engines[0][s]).plan;
        t->forward_s += segment_s(plan, &speeds[s], SW_SEGMENT_FORWARD) / STAGES;
        t->both_s += (segment_s(plan, &speeds[s], SW_SEGMENT_FORWARD) +
                      segment_s(plan, &speeds[s], SW_SEGMENT_BACKWARD)) /
                     STAGES;
    }
    for (int s = 0; s < STAGES; s++) {
        sw_speeds_close(&speeds[s]);
    }
    const struct args *args = t->args;
    t->message_s =
        4.0 * (double)(args->batch * args->tokens * args->width) / (args->wire_gb_s * 1e9);
    return st;
}

/* ---- all of it ---- */

static sw_status run_rank(void *ctx, sw_comm *meet)
{
    struct training *t = ctx;
    const int rank = sw_comm_rank(meet);
    sw_comm *comms[WAYS] = {NULL};
    sw_status st = SW_OK;
    for (int way = 0; way < WAYS && st >= 0; way++) {
        st = open_way(t, way, rank, &comms[way]);
    }
    st = st < 0 ? st : train_rounds(t, meet);
    st = st < 0 ? st : sw_comm_barrier(meet, "the rounds end");
    if (rank == 0) {
        st = st < 0 ? st : predict(t);
    }
    st = st < 0 ? st : sw_comm_barrier(meet, "the predictions end");
    for (int way = 0; way < WAYS; way++) {
        sw_close(t->engines[way][rank]);
        if (comms[way]) {
            sw_comm_close(comms[way], st < 0);
        }
    }
    return st;
}

static void print_results(const struct training *t)
{
    const struct args *args = t->args;
    const double bound = 1.05 + t->message_s / t->both_s;
    printf("GPT-2 of %lld layers of width %lld, %lld x %lld tokens, %s, wire of %g GB/s\n"
           "a stage's forward %.2f ms, its backward %.2f ms, a message on the wire %.2f ms\n\n",
           (long long)args->layers, (long long)args->width, (long long)args->batch,
           (long long)args->tokens, args->schedule, args->wire_gb_s, t->forward_s * 1e3,
           (t->both_s - t->forward_s) * 1e3, t->message_s * 1e3);
    printf("%3s %-5s | %8s %8s | %6s %6s %6s %8s | %6s %6s\n", "M", "", "step ms", "clock", "idle",
           "clock", "diff", "(S-1)/..", "ratio", "bound");
    for (int i = 0; i < SIZES; i++) {
        for (int wire = 0; wire < 2; wire++) {
            const int way = wire * SIZES + i;
            double ratios[MOST_ROUNDS];
            const double idle = median(t->idle[way], args->rounds);
            for (int64_t k = 0; k < args->rounds; k++) {
                ratios[k] = t->seconds[way][k] / t->seconds[i][k];
            }
            printf("%3d %-5s | %8.2f %8.2f | %6.3f %6.3f %+6.3f %8.3f |", sizes[i],
                   wire ? "wire" : "", median(t->seconds[way], args->rounds) * 1e3,
                   t->predicted_s[way] * 1e3, idle, t->predicted[way], idle - t->predicted[way],
                   (STAGES - 1.0) / (sizes[i] + STAGES - 1));
            if (wire) {
                printf(" %6.3f %6.3f", median(ratios, args->rounds), bound);
            }
            putchar('\n');
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
        st = sw_threads_run(STAGES, DEADLINE_S, run_rank, t);
    }
    if (st >= 0) {
        print_results(t);
    }
    unlink(args->model);
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
                        "[--layers L] [--schedule NAME] [--wire-gb-s W]\n");
        return 2;
    }
    if (bench(&args) < 0) {
        fprintf(stderr, "bench_parallel: %s\n", sw_error_message());
        return 1;
    }
    return 0;
}
