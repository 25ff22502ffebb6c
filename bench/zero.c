// SPDX-License-Identifier: Apache-2.0
// ZeRO over 2 ranks that are threads with one compute thread each. Measures the time of a step at
// each stage, the share of communication that computation hides, and the collectives' GB/s next to
// those of memcpy. Everything runs in turns, round by round. Figures are medians; ratios are
// medians of the rounds' ratios.
//
//     bench_zero [--rounds 11] [--micro-batches 4] [--batch 2] [--seq-len 128] [--delay-ms 0]
//         [--wire-gb-s 0] [--dtype fp32|bf16]
//
// --delay-ms delays every exchange of the training, as a network would. --wire-gb-s makes it also
// take the time of a wire of that speed, asleep: communication then uses no CPU, and overlap shows
// on any number of cores. Under mpirun -n 2 (SPILLWAY_MODULES names the build's folder) only the
// collectives run, over MPI. --own FILE, the build's bench/own_<mpi>.so, adds MPI's own
// collectives.
//
// "hidden" has two definitions. First: 1 - waited / busy, by the clocks of the executor. Second:
// the extra time of the same plan with every collective blocking, over the time of those
// collectives.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/engine.h"
#include "spillway/comm.h"

enum { RANKS = 2, STAGES = 4, MAX_ROUNDS = 1000, MAX_K = 64 };
#define DEADLINE_S 120.0

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":16384,"
    "\"n_positions\":1024,\"n_embd\":384,\"n_layer\":6,\"n_head\":6}";

struct args {
    int64_t rounds, micro_batches, batch, tokens;
    double delay_ms, wire_gb_s;
    const char *own, *dtype; /* NULL = both */
    char model[64];
};

static bool parse(int argc, char **argv, struct args *args)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--rounds") == 0) {
            args->rounds = atoll(value);
        } else if (strcmp(argv[i], "--micro-batches") == 0) {
            args->micro_batches = atoll(value);
        } else if (strcmp(argv[i], "--batch") == 0) {
            args->batch = atoll(value);
        } else if (strcmp(argv[i], "--seq-len") == 0) {
            args->tokens = atoll(value);
        } else if (strcmp(argv[i], "--delay-ms") == 0) {
            args->delay_ms = atof(value);
        } else if (strcmp(argv[i], "--wire-gb-s") == 0) {
            args->wire_gb_s = atof(value);
        } else if (strcmp(argv[i], "--dtype") == 0) {
            args->dtype = value;
        } else if (strcmp(argv[i], "--own") == 0) {
            args->own = value;
        } else {
            return false;
        }
    }
    return argc % 2 == 1 && args->rounds > 0 && args->rounds <= MAX_ROUNDS &&
           args->micro_batches > 0 && args->micro_batches <= MAX_K && args->batch > 0 &&
           args->tokens > 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int64_t n)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return sorted[n / 2];
}

/* Median of a[i] / b[i]. */
static double median_ratio(const double *a, const double *b, int64_t n)
{
    double ratios[MAX_ROUNDS];
    for (int64_t i = 0; i < n; i++) {
        ratios[i] = a[i] / b[i];
    }
    return median(ratios, n);
}

/* ---- training ---- */

/* The ways of a round: one rank alone, then each stage overlapped and serial, with every collective
 * of that plan blocking. */
enum { ALONE, OVERLAPPED, SERIAL = OVERLAPPED + STAGES, WAYS = SERIAL + STAGES };

struct training {
    const struct args *args;
    const char *precision;
    struct sw_transport transports[RANKS];
    double seconds[WAYS][MAX_ROUNDS];
    /* Nanoseconds up to the end of a round; index 0 is the warm-up. Overlapped: collectives next to
     * computation, and the waits for them. Serial: the same collectives by the clock. */
    double busy[WAYS][RANKS][MAX_ROUNDS + 1], waited[WAYS][RANKS][MAX_ROUNDS + 1];
    int64_t parameters;
};

static sw_status open_way(const struct training *t, int way, sw_comm *comm, sw_engine **out)
{
    const struct args *args = t->args;
    char config[512];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %lld, %s \"gradient_clipping\": 1.0, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.0001}}, "
             "\"zero_optimization\": {\"stage\": %d, \"overlap_comm\": true}, "
             "\"spillway\": {\"micro_batches\": %lld, \"threads\": 1}}",
             (long long)args->batch, t->precision, way == ALONE ? 0 : (way - OVERLAPPED) % STAGES,
             (long long)args->micro_batches);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = args->model,
        .inputs.seq_len = args->tokens,
        .run.comm = way == ALONE ? NULL : comm,
        .train = {.wanted = true, .no_dropout = true},
    };
    sw_engine *e;
    SW_TRY(sw_initialize(&options, &e));
    if (way >= SERIAL) {
        const sw_status st = sw_engine_replace_executor(
            e, (struct sw_executor_options){.comm = comm, .profile = true, .serial = true});
        if (st < 0) {
            sw_close(e);
            return st;
        }
    }
    *out = e;
    return SW_OK;
}

static sw_status step(sw_engine *e)
{
    struct sw_tensor tensors[2];
    struct sw_batch batches[MAX_K];
    const int64_t batch = sw_engine_micro_batch_size(e), tokens = sw_engine_seq_len(e);
    const int64_t n = batch * tokens, local = sw_engine_local_micro_batches(e);
    const struct sw_shape shape = {2, {batch, tokens}};
    const int rank = sw_engine_facts(e).world.rank;
    struct sw_step_report report;
    int32_t *ids = sw_alloc("bench", (size_t)n * sizeof *ids);
    SW_TRY_ALLOC(ids, "a batch");
    for (int64_t i = 0; i < n; i++) {
        ids[i] =
            (int32_t)(sw_philox_u64(1, (uint64_t)rank, (uint64_t)i) % (uint64_t)sw_engine_vocab(e));
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

/* Time of the collectives that the plan overlaps with computation, as a serial executor measured
 * it. */
static double serial_ns(const sw_engine *e)
{
    const struct sw_engine_facts facts = sw_engine_facts(e);
    const struct sw_program *program = &facts.plan->programs[facts.train_program];
    double ns = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        if (instr->queue == SW_QUEUE_COMM && !instr->exchange.blocking) {
            ns += (double)sw_executor_profile(facts.executor, facts.train_program, i).ns;
        }
    }
    return ns;
}

static void note_times(struct training *t, sw_engine **engines, int rank, int64_t round)
{
    for (int w = OVERLAPPED; w < WAYS; w++) {
        struct sw_queue_times times[SW_QUEUE_COUNT];
        sw_executor_queue_times(sw_engine_facts(engines[w]).executor, times);
        const struct sw_queue_times *comm = &times[SW_QUEUE_COMM];
        t->busy[w][rank][round + 1] = w < SERIAL ? (double)comm->busy_ns : serial_ns(engines[w]);
        t->waited[w][rank][round + 1] = (double)comm->waited_ns;
    }
}

/* The order of a round. Overlapped and serial runs of a stage are adjacent, in changing order, so
 * that disturbances affect both alike. */
static int way_of(int64_t round, int turn)
{
    const int pair = (turn - OVERLAPPED) / 2;
    const bool serial = (turn - OVERLAPPED) % 2 != (int)(round & 1);
    return turn == ALONE ? ALONE : (serial ? SERIAL : OVERLAPPED) + pair;
}

static sw_status train_rounds(struct training *t, sw_comm *meet, sw_engine **engines)
{
    const int rank = sw_comm_rank(meet);
    /* the first round touches all memory */
    for (int64_t round = -1; round < t->args->rounds; round++) {
        for (int turn = 0; turn < WAYS; turn++) {
            const int w = way_of(round, turn);
            SW_TRY(sw_comm_barrier(meet, "a step begins"));
            const double begin = sw_now_s();
            if (w != ALONE || rank == 0) {
                SW_TRY(step(engines[w]));
            }
            SW_TRY(sw_comm_barrier(meet, "a step ends"));
            if (rank == 0 && round >= 0) {
                t->seconds[w][round] = sw_now_s() - begin;
            }
        }
        note_times(t, engines, rank, round);
    }
    if (rank == 0) {
        t->parameters = sw_engine_parameters(engines[ALONE]);
    }
    return SW_OK;
}

static sw_status train(void *ctx, sw_comm *meet)
{
    struct training *t = ctx;
    const int rank = sw_comm_rank(meet);
    const struct sw_fault_options wire = {.delay_s = t->args->delay_ms / 1e3,
                                          .bytes_per_s = t->args->wire_gb_s * 1e9};
    struct sw_transport transport = t->transports[rank];
    sw_engine *engines[WAYS] = {NULL};
    sw_comm *comm = NULL;
    if (wire.delay_s > 0 || wire.bytes_per_s > 0) {
        SW_TRY(sw_fault_open(&t->transports[rank], &wire, &transport));
    }
    SW_TRY(sw_comm_open(&transport, &comm));
    sw_status st = SW_OK;
    for (int w = 0; st >= 0 && w < WAYS; w++) {
        st = w == ALONE && rank > 0 ? SW_OK : open_way(t, w, comm, &engines[w]);
    }
    st = st < 0 ? st : train_rounds(t, meet, engines);
    for (int w = 0; w < WAYS; w++) {
        sw_close(engines[w]);
    }
    if (st < 0) {
        sw_comm_abort(comm, st);
    }
    sw_comm_close(comm, st < 0);
    return st;
}

/* Milliseconds of a round, mean over the ranks. */
static double per_round(double (*until)[MAX_ROUNDS + 1], int64_t round)
{
    double ns = 0;
    for (int r = 0; r < RANKS; r++) {
        ns += until[r][round + 1] - until[r][round];
    }
    return ns / 1e6 / RANKS;
}

static void print_training(struct training *t, const char *name)
{
    const int64_t n = t->args->rounds;
    printf("\n%s: GPT-2 of %.1fM parameters, K = %lld micro-batches of %lld x %lld\n", name,
           (double)t->parameters / 1e6, (long long)t->args->micro_batches,
           (long long)t->args->batch, (long long)t->args->tokens);
    if (t->args->delay_ms > 0) {
        printf("each exchange is delayed by %g ms\n", t->args->delay_ms);
    }
    if (t->args->wire_gb_s > 0) {
        printf("over a wire of %g GB/s\n", t->args->wire_gb_s);
    }
    printf("%-9s %8s %9s %8s | %8s %10s %7s | %9s %8s %9s %6s\n", "", "step ms", "/ stage 0",
           "/ 1 rank", "busy ms", "waited ms", "hidden", "serial ms", "comm ms", "hidden", "diff");
    printf("%-9s %8.1f\n", "1 rank", median(t->seconds[ALONE], n) * 1e3);
    for (int s = 0; s < STAGES; s++) {
        const int w = OVERLAPPED + s, v = SERIAL + s;
        double busy[MAX_ROUNDS], waited[MAX_ROUNDS], serial[MAX_ROUNDS], gain[MAX_ROUNDS];
        double hidden, gained;
        for (int64_t i = 0; i < n; i++) {
            busy[i] = per_round(t->busy[w], i);
            waited[i] = per_round(t->waited[w], i);
            serial[i] = per_round(t->busy[v], i);
            gain[i] = (t->seconds[v][i] - t->seconds[w][i]) * 1e3;
        }
        hidden = 100 * (1 - median_ratio(waited, busy, n));
        gained = 100 * median_ratio(gain, serial, n);
        printf(
            "stage %-3d %8.1f %9.3f %8.3f | %8.1f %10.1f %6.0f%% | %9.1f %8.1f %8.0f%% %+6.0f\n", s,
            median(t->seconds[w], n) * 1e3, median_ratio(t->seconds[w], t->seconds[OVERLAPPED], n),
            median_ratio(t->seconds[w], t->seconds[ALONE], n), median(busy, n), median(waited, n),
            hidden, median(t->seconds[v], n) * 1e3, median(serial, n), gained, gained - hidden);
    }
}

static sw_status bench_training(const struct args *args)
{
    static const struct {
        const char *name, *config;
    } precisions[] = {{"fp32", ""}, {"bf16", "\"bf16\": {\"enabled\": true},"}};
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        if (args->dtype && strcmp(args->dtype, precisions[p].name) != 0) {
            continue;
        }
        struct training *t = sw_alloc_zero("bench", 1, sizeof *t);
        SW_TRY_ALLOC(t, "results");
        t->args = args;
        t->precision = precisions[p].config;
        sw_status st = sw_thread_transports_open(RANKS, DEADLINE_S, t->transports);
        st = st < 0 ? st : sw_threads_run(RANKS, DEADLINE_S, train, t);
        if (st >= 0) {
            print_training(t, precisions[p].name);
        }
        sw_free(t);
        SW_TRY(st);
    }
    return SW_OK;
}

/* ---- collectives ---- */

enum { SLICE_BYTES = 16 << 20, SLICE_ELEMS = SLICE_BYTES / 4, WIRE_ROUNDS = 101 };
enum { COPY, GATHER, SCATTER, OWN_GATHER, OWN_SCATTER, MOVES };

struct wires {
    int port; /* TCP port; 0 = use the given communicator */
    int (*own_all_gather)(void *dst, size_t slice_bytes);
    int (*own_reduce_scatter)(const float *src, float *slice, size_t n);
    double seconds[MOVES][MAX_ROUNDS];
};

struct slices {
    char *src, *dst, *acc; /* [RANKS, slice], [RANKS, slice], [slice] */
};

static sw_status move(const struct wires *w, int what, sw_comm *comm, const struct slices *s)
{
    const struct sw_reduction sum = {.dtype = SW_F32,
                                     .src = s->src,
                                     .workspace = s->dst,
                                     .acc = (float *)s->acc,
                                     .n = SLICE_ELEMS,
                                     .fresh = true};
    int failed = 0;
    if (what == COPY) {
        memcpy(s->acc, s->src, SLICE_BYTES);
    } else if (what == GATHER) {
        SW_TRY(sw_comm_all_gather(comm, s->dst + (size_t)sw_comm_rank(comm) * SLICE_BYTES, s->dst,
                                  SLICE_BYTES, "slices"));
    } else if (what == SCATTER) {
        SW_TRY(sw_comm_reduce_scatter(comm, &sum, "slices"));
    } else if (what == OWN_GATHER) {
        failed = w->own_all_gather ? w->own_all_gather(s->dst, SLICE_BYTES) : 0;
    } else {
        failed = w->own_reduce_scatter
                     ? w->own_reduce_scatter((float *)s->src, (float *)s->acc, SLICE_ELEMS)
                     : 0;
    }
    return failed ? SW_FAIL(SW_E_IO, "MPI's own collective failed: %d", failed) : SW_OK;
}

static sw_status move_rounds(struct wires *w, sw_comm *comm, const struct slices *s)
{
    memset(s->src, 0, (size_t)RANKS * SLICE_BYTES);
    memset(s->dst, 0, (size_t)RANKS * SLICE_BYTES);
    for (int64_t round = -1; round < WIRE_ROUNDS; round++) {
        for (int m = 0; m < MOVES; m++) {
            SW_TRY(sw_comm_barrier(comm, "a round begins"));
            const double begin = sw_now_s();
            SW_TRY(move(w, m, comm, s));
            SW_TRY(sw_comm_barrier(comm, "a round ends"));
            if (sw_comm_rank(comm) == 0 && round >= 0) {
                w->seconds[m][round] = sw_now_s() - begin;
            }
        }
    }
    return SW_OK;
}

static sw_status move_slices(void *ctx, sw_comm *comm)
{
    const struct slices s = {sw_alloc("bench", (size_t)RANKS * SLICE_BYTES),
                             sw_alloc("bench", (size_t)RANKS * SLICE_BYTES),
                             sw_alloc("bench", SLICE_BYTES)};
    const sw_status st = s.src && s.dst && s.acc
                             ? move_rounds(ctx, comm, &s)
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for slices");
    sw_free(s.src);
    sw_free(s.dst);
    sw_free(s.acc);
    return st;
}

static sw_status move_slices_over_tcp(void *ctx, sw_comm *thread)
{
    const struct wires *w = ctx;
    const struct sw_tcp_options options = {.rank = sw_comm_rank(thread),
                                           .size = RANKS,
                                           .host = "localhost",
                                           .port = w->port,
                                           .deadline_s = DEADLINE_S};
    struct sw_transport transport;
    sw_comm *comm = NULL;
    SW_TRY(sw_tcp_open(&options, &transport));
    SW_TRY(sw_comm_open(&transport, &comm));
    const sw_status st = move_slices(ctx, comm);
    sw_comm_close(comm, st < 0);
    return st;
}

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    int port = 0;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &len) == 0) {
        port = ntohs(a.sin_port);
    }
    close(fd);
    return port;
}

static double gb_per_s(const struct wires *w, int move)
{
    return SLICE_BYTES / median(w->seconds[move], WIRE_ROUNDS) / 1e9;
}

static void print_wires(const struct wires *w, const char *name)
{
    static const char *const names[MOVES] = {"memcpy", "all_gather", "reduce_scatter",
                                             "MPI's all_gather", "MPI's reduce_scatter"};
    for (int m = COPY; m < (w->own_all_gather ? MOVES : OWN_GATHER); m++) {
        printf("%-8s %-20s %6.2f GB/s, over memcpy %.3f", name, names[m], gb_per_s(w, m),
               median_ratio(w->seconds[COPY], w->seconds[m], WIRE_ROUNDS));
        if (w->own_all_gather && (m == GATHER || m == SCATTER)) {
            printf(", over MPI's own %.3f",
                   median_ratio(w->seconds[m + 2], w->seconds[m], WIRE_ROUNDS));
        }
        putchar('\n');
    }
}

static sw_status bench_wires(void)
{
    static struct wires w;
    printf(
        "\n16 MiB to each of the other ranks; bytes sent by one rank over the time; both copy at "
        "once\n");
    SW_TRY(sw_threads_run(RANKS, DEADLINE_S, move_slices, &w));
    print_wires(&w, "threads");
    w.port = free_port();
    SW_TRY(sw_threads_run(RANKS, DEADLINE_S, move_slices_over_tcp, &w));
    print_wires(&w, "TCP");
    return SW_OK;
}

/* Benchmarks the collectives under mpirun. */
static sw_status bench_world(const struct args *args, sw_comm *comm)
{
    static struct wires w;
    if (sw_comm_size(comm) != RANKS) {
        return SW_FAIL(SW_E_ARG, "%d processes were started: wanted %d", sw_comm_size(comm), RANKS);
    }
    if (args->own) {
        void *own = dlopen(args->own, RTLD_NOW);
        if (own) {
            *(void **)&w.own_all_gather = dlsym(own, "own_all_gather");
            *(void **)&w.own_reduce_scatter = dlsym(own, "own_reduce_scatter");
        }
        if (!w.own_all_gather || !w.own_reduce_scatter) {
            return SW_FAIL(SW_E_IO, "%s", dlerror());
        }
    }
    SW_TRY(move_slices(&w, comm));
    if (sw_comm_rank(comm) == 0) {
        print_wires(&w, "MPI");
    }
    return SW_OK;
}

static sw_status print_cpu(const struct args *args)
{
    const struct sw_cpu_options options = {.n_threads = 1};
    struct sw_device *dev = NULL;
    struct sw_cpu_report report;
    SW_TRY(sw_device_open_cpu(&options, &dev));
    const sw_status st = sw_device_cpu_report(dev, &report);
    if (st >= 0) {
        printf("%s, %s, %d processors; medians of %lld rounds\n", report.cpu, report.isa,
               sw_cpu_count(), (long long)args->rounds);
    }
    sw_device_close(dev);
    return st;
}

static sw_status bench(struct args *args)
{
    sw_comm *world = NULL;
    SW_TRY(sw_world_open(DEADLINE_S, &world));
    if (world) {
        const sw_status st = bench_world(args, world);
        sw_comm_close(world, st < 0);
        return st;
    }
    SW_TRY(print_cpu(args));
    snprintf(args->model, sizeof args->model, "/tmp/bench-zero-XXXXXX");
    const int fd = mkstemp(args->model);
    if (fd < 0) {
        return SW_FAIL(SW_E_IO, "no file in /tmp");
    }
    close(fd);
    sw_status st = sw_file_write_atomic(args->model, model_json, strlen(model_json));
    st = st < 0 ? st : bench_training(args);
    unlink(args->model);
    fflush(stdout);
    return st < 0 ? st : bench_wires();
}

int main(int argc, char **argv)
{
    struct args args = {.rounds = 11, .micro_batches = 4, .batch = 2, .tokens = 128};
    if (!parse(argc, argv, &args)) {
        fprintf(stderr,
                "usage: bench_zero [--rounds N] [--micro-batches K] [--batch B] [--seq-len T] "
                "[--delay-ms D] [--wire-gb-s W] [--dtype fp32|bf16] [--own FILE]\n");
        return 2;
    }
    if (bench(&args) < 0) {
        fprintf(stderr, "bench_zero: %s\n", sw_error_message());
        return 1;
    }
    return 0;
}
