// SPDX-License-Identifier: Apache-2.0
// Compares `plan --predict` with measured steps. For each case, in turns: a training of a few
// steps, and a prediction with new measurements. A round compares a prediction with the mean of the
// trainings before and after it, which are of at least so many steps and seconds each. Prints the
// ratio of the two, and its median over the rounds.
//
//     bench_predict [--path .] [--rounds 9] [--steps 5] [--seconds 2] [--layers 6] [--width 512]
//                   [--vocab 8192] [--batch 2] [--tokens 128] [--micro-batches 2] [--dtype bf16]
//                   [--only CASE] [--wire-gb-s 0.2] [--repeats 5]
//
// CASE is the name of a printed case. Ranks are threads. In the cases with a wire, a message also
// takes its time on a wire of that speed, asleep. bench/predict.sh runs all cases, and repeats
// those of the disk with a throttled disk.
//
// /proc/stat says how much of the processors others had during a round. A round in which they had
// more than 3 % is repeated, up to so many times, and is marked if it is taken all the same. So is
// a round whose two trainings differ by more than 10 %: the machine's speed changed meanwhile, as
// that of a virtual machine does when other guests use the other half of its cores.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "json/json.h"
#include "spillway/comm.h"
#include "spillway/look.h"

enum { MOST_ROUNDS = 101, MOST_K = 64, MOST_RANKS = 2, WARM_UP = 2 };
#define DEADLINE_S 600.0
#define MOST_OTHERS 0.03
#define MOST_CHANGE 0.1

struct args {
    const char *path, *dtype, *only;
    int64_t rounds, repeats, steps, layers, width, vocab, batch, tokens, micro_batches;
    double wire_gb_s, seconds;
    char model[64];
};

static const struct example {
    const char *name, *states, *params; /* devices; NULL = none */
    int ranks, stage;
    const char *more; /* members of "spillway"; NULL = none */
    bool wire, packs;
} examples[] = {
    {"memory", NULL, NULL, 1, 0, NULL, false, false},
    {"states-cpu", "cpu", NULL, 1, 3, NULL, false, false},
    {"both-cpu", "cpu", "cpu", 1, 3, NULL, false, false},
    {"vertical", "cpu", "cpu", 1, 3, "\"schedule\": \"vertical\"", false, false},
    {"packed", NULL, NULL, 1, 0, "\"packing\": true", false, true},
    {"lora", NULL, NULL, 1, 0, "\"lora\": {\"r\": 8, \"target_modules\": \"all-linear\"}", false,
     false},
    {"states-nvme", "nvme", NULL, 1, 3, NULL, false, false},
    {"states-nvme-cpu", "nvme", "cpu", 1, 3, NULL, false, false},
    {"both-nvme", "nvme", "nvme", 1, 3, NULL, false, false},
    {"stage0", NULL, NULL, 2, 0, NULL, false, false},
    {"stage1", NULL, NULL, 2, 1, NULL, false, false},
    {"stage2", NULL, NULL, 2, 2, NULL, false, false},
    {"stage3", NULL, NULL, 2, 3, NULL, false, false},
    {"pipe", NULL, NULL, 2, 0, "\"mesh\": {\"pipe\": 2}", false, false},
    {"pipe-wire", NULL, NULL, 2, 0, "\"mesh\": {\"pipe\": 2}", true, false},
    {"tensor", NULL, NULL, 2, 0, "\"mesh\": {\"tensor\": 2}", false, false},
    {"tensor-wire", NULL, NULL, 2, 0, "\"mesh\": {\"tensor\": 2}", true, false},
};

static bool parse(int argc, char **argv, struct args *args)
{
    const struct {
        const char *name;
        const char **text;
        int64_t *number;
        double *real;
    } options[] = {
        {"--path", .text = &args->path},
        {"--dtype", .text = &args->dtype},
        {"--only", .text = &args->only},
        {"--rounds", .number = &args->rounds},
        {"--repeats", .number = &args->repeats},
        {"--steps", .number = &args->steps},
        {"--layers", .number = &args->layers},
        {"--width", .number = &args->width},
        {"--vocab", .number = &args->vocab},
        {"--batch", .number = &args->batch},
        {"--tokens", .number = &args->tokens},
        {"--micro-batches", .number = &args->micro_batches},
        {"--seconds", .real = &args->seconds},
        {"--wire-gb-s", .real = &args->wire_gb_s},
    };
    for (int i = 1; i + 1 < argc; i += 2) {
        size_t k = 0;
        while (k < SW_LEN(options) && strcmp(argv[i], options[k].name) != 0) {
            k++;
        }
        if (k == SW_LEN(options)) {
            return false;
        }
        if (options[k].text) {
            *options[k].text = argv[i + 1];
        } else if (options[k].real) {
            *options[k].real = atof(argv[i + 1]);
        } else {
            *options[k].number = atoll(argv[i + 1]);
        }
    }
    return argc % 2 == 1 && args->rounds > 0 && args->rounds <= MOST_ROUNDS && args->steps > 0 &&
           args->seconds >= 0 && args->layers > 0 && args->width >= 64 && args->width % 64 == 0 &&
           args->vocab > 0 && args->batch > 0 && args->tokens > 0 && args->micro_batches > 0 &&
           args->micro_batches <= MOST_K && args->wire_gb_s > 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void write_config(const struct args *args, const struct example *x, char *out, size_t cap)
{
    char states[512] = "", params[512] = "";
    if (x->states) {
        snprintf(states, sizeof states,
                 ", \"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}", x->states,
                 args->path);
    }
    if (x->params) {
        snprintf(params, sizeof params,
                 ", \"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}", x->params,
                 args->path);
    }
    snprintf(out, cap,
             "{\"train_micro_batch_size_per_gpu\": %lld, \"gradient_clipping\": 1.0, \"bf16\": "
             "{\"enabled\": %s}, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
             "0.0001}}, \"zero_optimization\": {\"stage\": %d%s%s}, \"spillway\": "
             "{\"micro_batches\": %lld%s%s}}",
             (long long)args->batch, strcmp(args->dtype, "bf16") == 0 ? "true" : "false", x->stage,
             states, params, (long long)args->micro_batches, x->more ? ", " : "",
             x->more ? x->more : "");
}

static struct sw_engine_options options_of(const struct args *args, const char *config)
{
    return (struct sw_engine_options){.config.text = config,
                                      .model.path = args->model,
                                      .inputs.seq_len = args->tokens,
                                      .train = {.wanted = true, .no_dropout = true}};
}

/* ---- predicted ---- */

static sw_status predict(const struct args *args, const struct example *x, double *out)
{
    char config[2048], *text = NULL;
    struct sw_json_doc *doc = NULL;
    write_config(args, x, config, sizeof config);
    const struct sw_engine_options options = options_of(args, config);
    char wire[32];
    snprintf(wire, sizeof wire, "comm=%g", args->wire_gb_s);
    const char *const rates[] = {wire};
    const struct sw_predict_options wanted = {
        .rates = rates, .n_rates = x->wire, .measure = true, .ranks = x->ranks, .json = true};
    SW_TRY(sw_plan_predict_text(&options, &wanted, &text));
    if (getenv("SPILLWAY_BENCH_REPORT")) {
        printf("%s\n", text);
    }
    const sw_status st = sw_json_parse("prediction", text, strlen(text), SW_JSON_STRICT, &doc);
    if (st >= 0) {
        *out = sw_json_path(sw_json_root(doc), "step_seconds")->number;
    }
    sw_json_close(doc);
    sw_text_free(text);
    return st;
}

/* ---- measured ---- */

struct training {
    const struct args *args;
    const struct example *example;
    struct sw_transport transports[MOST_RANKS];
    double seconds; /* mean of the steps */
    int64_t steps;
};

/* Packed rows: each has two texts. */
static void fill_places(int32_t *positions, int32_t *segments, int64_t n, int64_t tokens)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i % tokens, first = at < tokens / 2 ? 0 : tokens / 2;
        positions[i] = (int32_t)(at - first);
        segments[i] = first > 0;
    }
}

static sw_status step(sw_engine *e, int rank, bool packs)
{
    struct sw_batch batches[MOST_K];
    const struct sw_shape shape = {2, {sw_engine_micro_batch_size(e), sw_engine_seq_len(e)}};
    const int64_t n = sw_shape_elems(&shape), local = sw_engine_local_micro_batches(e);
    struct sw_step_report report;
    int32_t *ids = sw_alloc("bench", 3 * (size_t)n * sizeof *ids);
    SW_TRY_ALLOC(ids, "a batch");
    for (int64_t i = 0; i < n; i++) {
        ids[i] =
            (int32_t)(sw_philox_u64(1, (uint64_t)rank, (uint64_t)i) % (uint64_t)sw_engine_vocab(e));
    }
    fill_places(ids + n, ids + 2 * n, n, shape.dims[1]);
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"positions", {.data = ids + n, .dtype = SW_I32, .shape = shape}},
        {"segments", {.data = ids + 2 * n, .dtype = SW_I32, .shape = shape}}};
    for (int64_t k = 0; k < local; k++) {
        batches[k] = (struct sw_batch){tensors, packs ? 4 : 2};
    }
    const sw_status st = sw_train_batch(e, batches, local, &report);
    sw_free(ids);
    return st;
}

/* Seconds of a step. Ranks begin it together. */
static sw_status time_step(sw_engine *e, const struct training *t, sw_comm *comm, double *seconds)
{
    SW_TRY(comm ? sw_comm_barrier(comm, "a step begins") : SW_OK);
    const double begin = sw_now_s();
    SW_TRY(step(e, comm ? sw_comm_rank(comm) : 0, t->example->packs));
    *seconds = sw_now_s() - begin;
    return SW_OK;
}

/* The first rank says when there are enough steps. */
static sw_status time_steps(sw_engine *e, struct training *t, sw_comm *comm)
{
    double seconds, sum = 0;
    int64_t n = 0;
    for (int i = 0; i < WARM_UP; i++) {
        SW_TRY(time_step(e, t, comm, &seconds));
    }
    for (int32_t more = 1; more;) {
        SW_TRY(time_step(e, t, comm, &seconds));
        sum += seconds;
        n++;
        more = n < t->args->steps || sum < t->args->seconds;
        SW_TRY(comm ? sw_comm_broadcast(comm, 0, &more, sizeof more, "a step follows") : SW_OK);
    }
    if (!comm || sw_comm_rank(comm) == 0) {
        t->seconds = sum / (double)n;
        t->steps = n;
    }
    return SW_OK;
}

static sw_status train_with(struct training *t, sw_comm *comm)
{
    char config[2048];
    sw_engine *e = NULL;
    write_config(t->args, t->example, config, sizeof config);
    struct sw_engine_options options = options_of(t->args, config);
    options.run.comm = t->example->ranks > 1 ? comm : NULL;
    SW_TRY(sw_initialize(&options, &e));
    const sw_status st = time_steps(e, t, options.run.comm);
    if (st >= 0 && getenv("SPILLWAY_BENCH_REPORT") && sw_comm_rank(comm) == 0) {
        struct sw_queue_times times[SW_QUEUE_COUNT];
        sw_executor_queue_times(sw_engine_facts(e).executor, times);
        const double n = (double)(t->steps + WARM_UP);
        for (int q = 0; q < SW_QUEUE_COUNT; q++) {
            printf("  %-8s busy %.6f waited %.6f\n", sw_queue_name((enum sw_queue)q),
                   (double)times[q].busy_ns / 1e9 / n, (double)times[q].waited_ns / 1e9 / n);
        }
    }
    sw_close(e);
    return st;
}

/* Trains over the wire, or over memory. */
static sw_status train(void *ctx, sw_comm *comm)
{
    struct training *t = ctx;
    const struct sw_fault_options wire = {.bytes_per_s = t->args->wire_gb_s * 1e9};
    struct sw_transport transport;
    sw_comm *slow = NULL;
    if (!t->example->wire) {
        return train_with(t, comm);
    }
    SW_TRY(sw_fault_open(&t->transports[sw_comm_rank(comm)], &wire, &transport));
    SW_TRY(sw_comm_open(&transport, &slow));
    const sw_status st = train_with(t, slow);
    sw_comm_close(slow, st < 0);
    return st;
}

/* ---- other load ---- */

struct load {
    double wall, own,
        busy; /* seconds: of the clock; of this process and of all on all processors */
};

static struct load load_now(void)
{
    struct load now = {.wall = sw_now_s()};
    struct timespec own;
    double part[8] = {0};
    FILE *f = fopen("/proc/stat", "r");
    if (f && fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &part[0], &part[1], &part[2],
                    &part[3], &part[4], &part[5], &part[6], &part[7]) == 8) {
        for (int k = 0; k < 8; k++) { /* 3, 4: idle, waiting for a disk */
            now.busy += k == 3 || k == 4 ? 0 : part[k] / (double)sysconf(_SC_CLK_TCK);
        }
    }
    if (f) {
        fclose(f);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    now.own = (double)own.tv_sec + (double)own.tv_nsec * 1e-9;
    return now;
}

/* Share of the processors that others had since then. */
static double others_since(const struct load *then)
{
    const struct load now = load_now();
    const double others = now.busy - then->busy - (now.own - then->own);
    return fmax(0, others / (now.wall - then->wall) / (double)sysconf(_SC_NPROCESSORS_ONLN));
}

/* ---- comparison ---- */

static sw_status train_once(const struct args *args, const struct example *x, double *seconds)
{
    struct training t = {.args = args, .example = x};
    SW_TRY(x->wire ? sw_thread_transports_open(x->ranks, DEADLINE_S, t.transports) : SW_OK);
    SW_TRY(sw_threads_run(x->ranks, DEADLINE_S, train, &t));
    *seconds = t.seconds;
    return SW_OK;
}

struct round {
    double predicted, measured, before, after; /* seconds; before, after: of the trainings */
    double others;
};

static const char *trouble_of(const struct round *r)
{
    const bool changed = fabs(r->after - r->before) > MOST_CHANGE * r->measured;
    return r->others > MOST_OTHERS ? ", too much" : changed ? ", another speed" : "";
}

/* before: seconds of a training just before. */
static sw_status run_round(const struct args *args, const struct example *x, double before,
                           struct round *r)
{
    for (int64_t k = 0; k <= args->repeats; k++) {
        const struct load begin = load_now();
        *r = (struct round){.before = k > 0 ? r->after : before};
        SW_TRY(predict(args, x, &r->predicted));
        SW_TRY(train_once(args, x, &r->after));
        r->measured = (r->before + r->after) / 2;
        r->others = others_since(&begin);
        if (!*trouble_of(r)) {
            break;
        }
    }
    return SW_OK;
}

static sw_status run_example(const struct args *args, const struct example *x)
{
    double ratios[MOST_ROUNDS], predicted[MOST_ROUNDS], measured[MOST_ROUNDS];
    struct round r;
    SW_TRY(train_once(args, x, &r.after));
    for (int64_t i = 0; i < args->rounds; i++) {
        SW_TRY(run_round(args, x, r.after, &r));
        predicted[i] = r.predicted;
        measured[i] = r.measured;
        ratios[i] = r.predicted / r.measured;
        printf("%-16s round %lld: predicted %9.4f s  measured %9.4f s (%.4f, %.4f)  ratio %.3f  "
               "others %.1f%%%s\n",
               x->name, (long long)i + 1, r.predicted, r.measured, r.before, r.after, ratios[i],
               100 * r.others, trouble_of(&r));
        fflush(stdout);
    }
    const double p = median(predicted, args->rounds), m = median(measured, args->rounds);
    printf("%-16s median:  predicted %9.4f s  measured %9.4f s  ratio %.3f\n", x->name, p, m,
           median(ratios, args->rounds));
    return SW_OK;
}

int main(int argc, char **argv)
{
    struct args args = {.path = ".",
                        .dtype = "bf16",
                        .rounds = 9,
                        .repeats = 5,
                        .seconds = 2,
                        .wire_gb_s = 0.2,
                        .steps = 5,
                        .layers = 6,
                        .width = 512,
                        .vocab = 8192,
                        .batch = 2,
                        .tokens = 128,
                        .micro_batches = 2};
    bool found = false;
    if (!parse(argc, argv, &args)) {
        fprintf(stderr, "bench_predict: see the head of bench/predict.c\n");
        return 2;
    }
    snprintf(args.model, sizeof args.model, "/tmp/spillway-bench-predict-%d.json", (int)getpid());
    FILE *f = fopen(args.model, "w");
    if (!f) {
        perror(args.model);
        return 1;
    }
    fprintf(f,
            "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":%lld,"
            "\"n_positions\":1024,\"n_embd\":%lld,\"n_layer\":%lld,\"n_head\":%lld}",
            (long long)args.vocab, (long long)args.width, (long long)args.layers,
            (long long)args.width / 64);
    fclose(f);
    sw_status st = SW_OK;
    for (size_t i = 0; i < SW_LEN(examples) && st >= 0; i++) {
        if (!args.only || strcmp(args.only, examples[i].name) == 0) {
            found = true;
            st = run_example(&args, &examples[i]);
        }
    }
    unlink(args.model);
    if (st < 0 || !found) {
        fprintf(stderr, "bench_predict: %s\n", found ? sw_error_message() : "no such case");
        return 1;
    }
    return 0;
}
