// SPDX-License-Identifier: Apache-2.0
// The cost of busy neighbours. A step of ./quickstart's model on all threads runs next to 0, 1 and
// 2 programs that only spin. Two controls run next to the same neighbours. Everything runs in
// turns, round by round. Figures are medians; slowdowns and ratios are medians over the rounds.
//
//     bench_neighbour [--rounds 7] [--steps 4] [--threads 0] [--neighbours 2] [--other FILE]
//         [--session 0]
//
// "other" is the step of another build, whose bench_neighbour is FILE. There are two controls.
// "one" is the same step on one thread. "apart" runs as many single-threaded programs as the step
// has threads; they do not wait for each other. With fair sharing, T threads next to N neighbours
// on P processors take (T + N) / P times as long, or 1 if that is larger. "apart" shows what the
// scheduler really does. The step's extra time over "apart" is lost because its threads wait for
// one another. With --session 1 each neighbour has its own session, as from another terminal.
// Schedulers that group by session then share among programs, not threads.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "spillway/engine.h"

enum {
    MAX_ROUNDS = 100,
    MAX_NEIGHBOURS = 8,
    MAX_THREADS = 64,
    BATCH = 8,
    TOKENS = 256,
    VOCAB = 256
};
enum way { STEP, OTHER, ONE, APART, WAYS };

static const char *const way_names[WAYS] = {"step", "other", "one", "apart"};

struct args {
    int64_t rounds, steps, threads, neighbours, session;
    const char *other; /* NULL = none */
};

struct runner { /* a process that trains on request */
    pid_t pid;
    int order[2], answer[2];
};

struct bench {
    struct args args;
    struct runner step, other, apart[MAX_THREADS]; /* apart[0] is also "one" */
    double seconds[WAYS][MAX_NEIGHBOURS + 1][MAX_ROUNDS];
};

static bool parse(int argc, char **argv, struct args *args)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--rounds") == 0) {
            args->rounds = atoll(value);
        } else if (strcmp(argv[i], "--steps") == 0) {
            args->steps = atoll(value);
        } else if (strcmp(argv[i], "--threads") == 0) {
            args->threads = atoll(value);
        } else if (strcmp(argv[i], "--neighbours") == 0) {
            args->neighbours = atoll(value);
        } else if (strcmp(argv[i], "--other") == 0) {
            args->other = value;
        } else if (strcmp(argv[i], "--session") == 0) {
            args->session = atoll(value);
        } else {
            return false;
        }
    }
    if (args->threads == 0) {
        args->threads = sw_cpu_count();
    }
    return argc % 2 == 1 && args->rounds > 0 && args->rounds <= MAX_ROUNDS && args->steps > 0 &&
           args->threads > 0 && args->threads <= MAX_THREADS && args->neighbours >= 0 &&
           args->neighbours <= MAX_NEIGHBOURS;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of a[i] / b[i]; if b is NULL, of a[i]. */
static double median(const double *a, const double *b, int64_t n)
{
    double ratios[MAX_ROUNDS];
    for (int64_t i = 0; i < n; i++) {
        ratios[i] = a[i] / (b ? b[i] : 1);
    }
    qsort(ratios, (size_t)n, sizeof *ratios, by_value);
    return ratios[n / 2];
}

/* ---- processes ---- */

static sw_status steps(sw_engine *e, int64_t n)
{
    static int32_t ids[BATCH * TOKENS];
    for (int i = 0; i < BATCH * TOKENS; i++) {
        ids[i] = (int32_t)(sw_philox_u64(1, 0, (uint64_t)i) % VOCAB);
    }
    const struct sw_shape shape = {2, {BATCH, TOKENS}};
    struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = ids, .dtype = SW_I32, .shape = shape}},
    };
    const struct sw_batch batch = {tensors, 2};
    struct sw_step_report report;
    for (int64_t i = 0; i < n; i++) {
        SW_TRY(sw_train_batch(e, &batch, 1, &report));
    }
    return SW_OK;
}

/* Reads orders, each a number of steps, and answers with the seconds that they took. Ends when the
 * orders end. */
static sw_status serve(int order, int answer, int64_t threads)
{
    char config[512];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 1.0, \"optimizer\": "
             "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.003, \"weight_decay\": 0.1}}, "
             "\"spillway\": {\"threads\": %lld, \"decay_1d\": false}}",
             BATCH, (long long)threads);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = "gpt2-tiny",
                                              .inputs.seq_len = TOKENS,
                                              .train.wanted = true};
    sw_engine *e = NULL;
    sw_status st = sw_initialize(&options, &e);
    int64_t n = 0;
    while (st >= 0 && read(order, &n, sizeof n) == (ssize_t)sizeof n) {
        const double begin = sw_now_s();
        st = steps(e, n);
        const double seconds = sw_now_s() - begin;
        if (st >= 0 && write(answer, &seconds, sizeof seconds) != (ssize_t)sizeof seconds) {
            break;
        }
    }
    if (st < 0) {
        fprintf(stderr, "bench_neighbour: %s\n", sw_error_message());
    }
    sw_close(e);
    return st;
}

/* program: the bench of another build; NULL = this one. */
static bool start(struct runner *r, int64_t threads, const char *program)
{
    char count[32];
    snprintf(count, sizeof count, "%lld", (long long)threads);
    fflush(NULL);
    if (pipe(r->order) != 0 || pipe(r->answer) != 0) {
        return false;
    }
    r->pid = fork();
    if (r->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(r->order[1]);
        close(r->answer[0]);
        if (program) {
            dup2(r->order[0], STDIN_FILENO);
            dup2(r->answer[1], STDOUT_FILENO);
            execl(program, program, "--serve", count, (char *)NULL);
            _exit(1);
        }
        _exit(serve(r->order[0], r->answer[1], threads) < 0);
    }
    close(r->order[0]);
    close(r->answer[1]);
    return r->pid > 0;
}

/* Mean seconds of the runners when they run at the same time; negative if one failed. */
static double run(const struct runner *runners, int64_t n, int64_t steps)
{
    double sum = 0, seconds;
    bool ok = true;
    for (int64_t i = 0; i < n; i++) {
        ok = write(runners[i].order[1], &steps, sizeof steps) == (ssize_t)sizeof steps && ok;
    }
    for (int64_t i = 0; ok && i < n; i++) {
        ok = read(runners[i].answer[0], &seconds, sizeof seconds) == (ssize_t)sizeof seconds;
        sum += seconds;
    }
    return ok ? sum / (double)n : -1;
}

static pid_t start_neighbour(bool own_session)
{
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (own_session) {
            setsid();
        }
        for (volatile unsigned i = 0;; i++) {
        }
    }
    return pid;
}

static void stop(pid_t pid)
{
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

/* ---- rounds ---- */

static bool wants(const struct args *args, int way)
{
    return way != OTHER || args->other;
}

static double run_way(const struct bench *b, int way)
{
    const int64_t n = b->args.steps;
    return way == STEP    ? run(&b->step, 1, n)
           : way == OTHER ? run(&b->other, 1, n)
           : way == ONE   ? run(b->apart, 1, n)
                          : run(b->apart, b->args.threads, n);
}

static bool run_round(struct bench *b, int64_t round)
{
    const int64_t counts = b->args.neighbours + 1;
    for (int64_t turn = 0; turn < counts; turn++) {
        const int n = (int)((turn + round + 1) % counts);
        pid_t neighbours[MAX_NEIGHBOURS] = {0};
        bool ok = true;
        for (int i = 0; i < n; i++) {
            neighbours[i] = start_neighbour(b->args.session != 0);
        }
        usleep(50000); /* the neighbours have settled on their processors */
        for (int w = 0; ok && w < WAYS; w++) {
            if (wants(&b->args, w)) {
                const double seconds = run_way(b, w);
                ok = seconds >= 0;
                if (round >= 0) { /* the first round touches all memory */
                    b->seconds[w][n][round] = seconds;
                }
            }
        }
        for (int i = 0; i < n; i++) {
            stop(neighbours[i]);
        }
        if (!ok) {
            return false;
        }
    }
    return true;
}

static void print(const struct bench *b)
{
    const int64_t n = b->args.rounds;
    printf("%lld threads on %d processors, %lld rounds of %lld steps\n", (long long)b->args.threads,
           sw_cpu_count(), (long long)n, (long long)b->args.steps);
    printf("%-11s %-6s %8s %9s %6s %8s\n", "neighbours", "way", "step ms", "slowdown", "/ one",
           "/ apart");
    for (int k = 0; k <= b->args.neighbours; k++) {
        double slower[WAYS][MAX_ROUNDS];
        for (int w = 0; w < WAYS; w++) {
            for (int64_t i = 0; i < n; i++) {
                slower[w][i] = b->seconds[w][k][i] / b->seconds[w][0][i];
            }
        }
        for (int w = 0; w < WAYS; w++) {
            if (wants(&b->args, w)) {
                printf("%-11d %-6s %8.1f %9.2f %6.2f %8.2f\n", k, way_names[w],
                       median(b->seconds[w][k], NULL, n) * 1e3 / (double)b->args.steps,
                       median(slower[w], NULL, n), median(slower[w], slower[ONE], n),
                       median(slower[w], slower[APART], n));
            }
        }
    }
}

int main(int argc, char **argv)
{
    static struct bench b = {.args = {.rounds = 7, .steps = 4, .neighbours = 2}};
    if (argc == 3 && strcmp(argv[1], "--serve") == 0) {
        return serve(STDIN_FILENO, STDOUT_FILENO, atoll(argv[2])) < 0;
    }
    if (!parse(argc, argv, &b.args)) {
        fprintf(stderr,
                "usage: %s [--rounds 7] [--steps 4] [--threads 0] [--neighbours 2] [--other FILE] "
                "[--session 0]\n",
                argv[0]);
        return 2;
    }
    bool ok = start(&b.step, b.args.threads, NULL) &&
              (!b.args.other || start(&b.other, b.args.threads, b.args.other));
    for (int64_t i = 0; i < b.args.threads; i++) {
        ok = start(&b.apart[i], 1, NULL) && ok;
    }
    for (int64_t round = -1; ok && round < b.args.rounds; round++) {
        ok = run_round(&b, round);
    }
    stop(b.step.pid);
    stop(b.other.pid);
    for (int64_t i = 0; i < b.args.threads; i++) {
        stop(b.apart[i].pid);
    }
    if (ok) {
        print(&b);
    }
    return ok ? 0 : 1;
}
