// SPDX-License-Identifier: Apache-2.0
// Compares `plan --predict` with measured steps. For each case, in turns: a prediction with new
// measurements, then a training of a few steps in the same process. Prints the ratio of the two,
// and its median over the rounds.
//
//     bench_predict [--path .] [--rounds 5] [--steps 5] [--layers 6] [--width 512] [--vocab 8192]
//                   [--batch 2] [--tokens 128] [--micro-batches 2] [--dtype bf16] [--only CASE]
//
// CASE is the name of a printed case. bench/predict.sh runs all cases, and repeats those of the
// disk with a throttled disk.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "json/json.h"
#include "spillway/comm.h"
#include "spillway/look.h"

enum { MOST_ROUNDS = 101, MOST_STEPS = 101, MOST_K = 64, MOST_RANKS = 2, WARM_UP = 2 };
#define DEADLINE_S 600.0

struct args {
    const char *path, *dtype, *only;
    int64_t rounds, steps, layers, width, vocab, batch, tokens, micro_batches;
    bool report;
    char model[64];
};

static const struct example {
    const char *name, *states, *params; /* devices; NULL = none */
    int ranks, stage;
} examples[] = {
    {"memory", NULL, NULL, 1, 0},
    {"states-cpu", "cpu", NULL, 1, 3},
    {"both-cpu", "cpu", "cpu", 1, 3},
    {"states-nvme", "nvme", NULL, 1, 3},
    {"states-nvme-cpu", "nvme", "cpu", 1, 3},
    {"both-nvme", "nvme", "nvme", 1, 3},
    {"stage0", NULL, NULL, 2, 0},
    {"stage1", NULL, NULL, 2, 1},
    {"stage2", NULL, NULL, 2, 2},
    {"stage3", NULL, NULL, 2, 3},
};

static bool parse(int argc, char **argv, struct args *args)
{
    const struct {
        const char *name;
        const char **text;
        int64_t *number;
    } options[] = {
        {"--path", &args->path, NULL},
        {"--dtype", &args->dtype, NULL},
        {"--only", &args->only, NULL},
        {"--rounds", NULL, &args->rounds},
        {"--steps", NULL, &args->steps},
        {"--layers", NULL, &args->layers},
        {"--width", NULL, &args->width},
        {"--vocab", NULL, &args->vocab},
        {"--batch", NULL, &args->batch},
        {"--tokens", NULL, &args->tokens},
        {"--micro-batches", NULL, &args->micro_batches},
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
        } else {
            *options[k].number = atoll(argv[i + 1]);
        }
    }
    return argc % 2 == 1 && args->rounds > 0 && args->rounds <= MOST_ROUNDS && args->steps > 0 &&
           args->steps <= MOST_STEPS && args->layers > 0 && args->width >= 64 &&
           args->width % 64 == 0 && args->vocab > 0 && args->batch > 0 && args->tokens > 0 &&
           args->micro_batches > 0 && args->micro_batches <= MOST_K;
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
             "{\"micro_batches\": %lld}}",
             (long long)args->batch, strcmp(args->dtype, "bf16") == 0 ? "true" : "false", x->stage,
             states, params, (long long)args->micro_batches);
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
    const struct sw_predict_options wanted = {.measure = true, .ranks = x->ranks, .json = true};
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
    double seconds; /* median of the steps */
};

static sw_status step(sw_engine *e, int rank)
{
    struct sw_batch batches[MOST_K];
    const struct sw_shape shape = {2, {sw_engine_micro_batch_size(e), sw_engine_seq_len(e)}};
    const int64_t n = sw_shape_elems(&shape), local = sw_engine_local_micro_batches(e);
    struct sw_step_report report;
    int32_t *ids = sw_alloc("bench", (size_t)n * sizeof *ids);
    SW_TRY_ALLOC(ids, "a batch");
    for (int64_t i = 0; i < n; i++) {
        ids[i] =
            (int32_t)(sw_philox_u64(1, (uint64_t)rank, (uint64_t)i) % (uint64_t)sw_engine_vocab(e));
    }
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = ids, .dtype = SW_I32, .shape = shape}}};
    for (int64_t k = 0; k < local; k++) {
        batches[k] = (struct sw_batch){tensors, 2};
    }
    const sw_status st = sw_train_batch(e, batches, local, &report);
    sw_free(ids);
    return st;
}

static sw_status time_steps(sw_engine *e, const struct args *args, sw_comm *comm, double *out)
{
    double seconds[MOST_STEPS];
    const int rank = comm ? sw_comm_rank(comm) : 0;
    for (int64_t i = -WARM_UP; i < args->steps; i++) {
        if (comm) {
            SW_TRY(sw_comm_barrier(comm, "a step begins"));
        }
        const double begin = sw_now_s();
        SW_TRY(step(e, rank));
        if (i >= 0) {
            seconds[i] = sw_now_s() - begin;
        }
    }
    if (rank == 0) {
        *out = median(seconds, args->steps);
    }
    return SW_OK;
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct training *t = ctx;
    char config[2048];
    sw_engine *e = NULL;
    write_config(t->args, t->example, config, sizeof config);
    struct sw_engine_options options = options_of(t->args, config);
    options.run.comm = t->example->ranks > 1 ? comm : NULL;
    SW_TRY(sw_initialize(&options, &e));
    const sw_status st = time_steps(e, t->args, options.run.comm, &t->seconds);
    if (st >= 0 && getenv("SPILLWAY_BENCH_REPORT") && sw_comm_rank(comm) == 0) {
        struct sw_queue_times times[SW_QUEUE_COUNT];
        sw_executor_queue_times(sw_engine_facts(e).executor, times);
        const double n = (double)(t->args->steps + WARM_UP);
        for (int q = 0; q < SW_QUEUE_COUNT; q++) {
            printf("  %-8s busy %.6f waited %.6f\n", sw_queue_name((enum sw_queue)q),
                   (double)times[q].busy_ns / 1e9 / n, (double)times[q].waited_ns / 1e9 / n);
        }
    }
    sw_close(e);
    return st;
}

/* ---- comparison ---- */

static sw_status run_example(const struct args *args, const struct example *x)
{
    double ratios[MOST_ROUNDS], predicted[MOST_ROUNDS], measured[MOST_ROUNDS];
    for (int64_t round = 0; round < args->rounds; round++) {
        struct training t = {.args = args, .example = x};
        SW_TRY(predict(args, x, &predicted[round]));
        SW_TRY(sw_threads_run(x->ranks, DEADLINE_S, train, &t));
        measured[round] = t.seconds;
        ratios[round] = predicted[round] / measured[round];
        printf("%-16s round %lld: predicted %9.4f s  measured %9.4f s  ratio %.3f\n", x->name,
               (long long)round + 1, predicted[round], measured[round], ratios[round]);
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
                        .rounds = 5,
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
