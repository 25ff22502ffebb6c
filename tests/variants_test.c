// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1800
// COST 15
// SLOW SPILLWAY_VARIANTS=1000
// Random models of every family, with data of their tasks, dtypes, optimizers, adapters, devices
// and batches, each run plainly by one rank and in a random way: stage, ranks, offload, budgets,
// tiles, recomputation, schedule, threads, places on disk, killed and resumed. The way has the
// weights and losses of the plain run, or is refused in one line with status 2; nothing crashes,
// hangs or ends with status 1. What plan says of it is what train does: the same refusal, or the
// same bytes of each tier. What a refusal says is needed is enough.
//
// SPILLWAY_VARIANTS=N of them, from number SPILLWAY_VARIANTS_FIRST on, drawn from
// SPILLWAY_VARIANTS_SEED; SPILLWAY_VARIANT=I runs variant I alone and shows it.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "support/scratch.h"
#include "support/test.h"
#include "support/variants.h"

enum { STEPS = 4, HANG_S = 120, HUNG = -1000, TIERS = 3, MESSAGE = 4096 };

static const char *program;

/* ---- running ---- */

static char *get(const char *name)
{
    char *text = NULL;
    size_t len;
    return sw_file_read(test_at(name), &text, &len) < 0 ? NULL : text;
}

static void forget(const char *name)
{
    test_remove(test_at(name));
}

/* `command` with the flags of a run; sets: words behind them, or NULL. */
static pid_t start(const char *command, const char *config, const char *output,
                   const struct test_variant *v, int64_t ranks, const char *sets)
{
    enum { MOST = 64 };
    char *argv[MOST + 1], words[2048], *rest = words;
    const bool plans = strcmp(command, "plan") == 0;
    snprintf(words, sizeof words,
             "%s %s --model %s --deepspeed %s --output %s --steps %d --save-every 1 --export-dtype "
             "f32 --resume-if-any --quiet --ranks %lld %s %s %s",
             program, command, test_at("model.json"), test_at(config), test_at(output), STEPS,
             (long long)ranks, v->flags, plans ? "--json" : "", sets ? sets : "");
    int n = 0;
    for (char *word; n < MOST && (word = strtok_r(rest, " ", &rest));) {
        argv[n++] = word;
    }
    argv[n] = NULL;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!freopen(test_at("out"), "w", stdout) || !freopen(test_at("err"), "w", stderr)) {
            _exit(99);
        }
        execv(program, argv);
        _exit(98);
    }
    return pid;
}

static void pause_ms(int64_t ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

/* Exit status, 128 and above for a signal, or HUNG. */
static int finish(pid_t pid)
{
    const double end = sw_now_s() + HANG_S;
    int status = 0;
    for (pid_t done = 0; done == 0;) {
        done = waitpid(pid, &status, WNOHANG);
        if (done == 0 && sw_now_s() > end) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return HUNG;
        }
        if (done == 0) {
            pause_ms(2);
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Whether train printed exactly one line of its own. Warnings and notes of emulated libraries are
 * not counted. */
static bool is_one_line(const char *text)
{
    static const char begin[] = "spillway train: ";
    int n = 0;
    for (const char *line = text; line && *line;) {
        const char *end = strchr(line, '\n');
        n += strncmp(line, begin, sizeof begin - 1) == 0 && end;
        line = end ? end + 1 : NULL;
    }
    return n == 1;
}

/* NULL, or in which step losses or norms differ. Their digits are all of the number. */
static const char *other_metrics(const char *one, const char *two)
{
    static char text[128];
    for (int step = 1; step <= STEPS; step++) {
        const char *a = strstr(one, "\"loss\""), *b = strstr(two, "\"loss\"");
        const char *end_a = a ? strstr(a, ",\"lr\"") : NULL,
                   *end_b = b ? strstr(b, ",\"lr\"") : NULL;
        if (!end_a || !end_b || end_a - a != end_b - b || memcmp(a, b, (size_t)(end_a - a)) != 0) {
            snprintf(text, sizeof text, "other losses or norms in step %d", step);
            return text;
        }
        one = end_a;
        two = end_b;
    }
    return NULL;
}

static bool same_file(const char *name)
{
    char *texts[2] = {NULL, NULL}, path[128];
    size_t len[2] = {0, 0};
    bool good = true;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", i == 0 ? "plain" : "way", name);
        good = sw_file_read(test_at(path), &texts[i], &len[i]) >= 0 && good;
    }
    good = good && len[0] == len[1] && memcmp(texts[0], texts[1], len[0]) == 0;
    sw_free(texts[0]);
    sw_free(texts[1]);
    return good;
}

static bool same_weights(void)
{
    const bool adapted = access(test_at("plain/adapter"), F_OK) == 0;
    return same_file(adapted ? "adapter/adapter_model.safetensors" : "model/model.safetensors");
}

/* ---- what plan and train say ---- */

struct said {
    int status;
    char message[MESSAGE]; /* of a refusal, without who says it */
    long long bytes[TIERS];
};

/* Behind "spillway plan: ", and behind the rank. */
static void take_message(char *out)
{
    char *err = get("err"), *line = NULL;
    for (char *rest = err, *next; rest && (next = strtok_r(rest, "\n", &rest));) {
        line = strstr(next, "warning: ") ? line : next;
    }
    const char *text = line ? strstr(line, ": ") : NULL;
    text = text ? text + 2 : "";
    if (strncmp(text, "rank ", 5) == 0 && strstr(text, ": ")) {
        text = strstr(text, ": ") + 2;
    }
    snprintf(out, MESSAGE, "%s", text);
    sw_free(err);
}

/* The last of each in a text. */
static void take_bytes(const char *text, long long bytes[TIERS])
{
    static const char *const keys[TIERS] = {
        "\"device_bytes\":", "\"host_bytes\":", "\"disk_bytes\":"};
    for (int t = 0; t < TIERS; t++) {
        bytes[t] = -1;
        for (const char *c = text; (c = strstr(c, keys[t]));) {
            c += strlen(keys[t]);
            bytes[t] = strtoll(c, NULL, 10);
        }
    }
}

static void ask_plan(const struct test_variant *v, int64_t ranks, const char *sets,
                     struct said *out)
{
    out->status = finish(start("plan", "way.json", "way", v, ranks, sets));
    take_message(out->message);
    char *text = get("out"), *plan = text ? strstr(text, "\"plan\":{") : NULL;
    char *last = plan ? plan : text; /* of many ranks: behind the table of stages */
    char *programs = last ? strstr(last, "\"programs\"") : NULL;
    if (programs) {
        *programs = '\0';
    }
    take_bytes(last ? last : "", out->bytes);
    sw_free(text);
}

/* NULL, or how the plan's verdict is another than the training's. */
static const char *other_verdict(const struct said *plan, const struct said *train)
{
    static char text[2 * MESSAGE + 128];
    if (plan->status != train->status ||
        (plan->status == 2 && strcmp(plan->message, train->message) != 0)) {
        snprintf(text, sizeof text, "plan ends with %d (%s), train with %d (%s)", plan->status,
                 plan->message, train->status, train->message);
        return text;
    }
    for (int t = 0; t < TIERS && plan->status == 0; t++) {
        if (plan->bytes[t] != train->bytes[t]) {
            snprintf(text, sizeof text, "plan has %lld bytes in tier %d, train %lld",
                     plan->bytes[t], t, train->bytes[t]);
            return text;
        }
    }
    return NULL;
}

/* The edits that give each tier what a refusal says it needs; "" = it is about no bytes. */
static void take_needs(const struct test_way *w, const char *message, char *out, size_t cap)
{
    static const char *const tiers[TIERS] = {"device memory needs ", "host memory needs ",
                                             "disk memory needs "};
    static const char *const keys[TIERS] = {"device_memory", "host_memory", "nvme_space"};
    out[0] = '\0';
    for (int t = 0; t < TIERS; t++) {
        const char *found = strstr(message, tiers[t]);
        if (found) {
            const bool one_memory = t == 0 && !w->has_device_memory;
            const size_t len = strlen(out);
            snprintf(out + len, cap - len, " --set spillway.%s=%lld", keys[one_memory ? 1 : t],
                     strtoll(found + strlen(tiers[t]), NULL, 10));
        }
    }
}

/* NULL, or what a plan with the bytes that the refusal names says. */
static const char *short_of(const struct test_variant *v, const struct test_way *w, int64_t ranks,
                            const struct said *plan)
{
    static char text[2 * MESSAGE + 128];
    char sets[256];
    struct said again;
    take_needs(w, plan->message, sets, sizeof sets);
    if (plan->status != 2 || sets[0] == '\0') {
        return NULL;
    }
    ask_plan(v, ranks, sets, &again);
    if (again.status == 0) {
        return NULL;
    }
    snprintf(text, sizeof text, "%s is not enough: %s", sets, again.message);
    return text;
}

/* ---- one variant ---- */

enum outcome { SAME, REFUSED, NO_MODEL, BAD };

static void write_config(const char *name, const struct test_variant *v, const struct test_way *w)
{
    char text[4096];
    snprintf(text, sizeof text, "{%s%s%s%s%s, \"spillway\": {%s%s%s}}", v->math, w ? ", " : "",
             w ? w->zero : "", w ? ", " : "", w ? w->other : "", v->own_math, w ? ", " : "",
             w ? w->own : "");
    test_put(name, text);
}

static int64_t peak_of(const char *metrics)
{
    const char *found = strstr(metrics, "\"device_bytes\":");
    return found ? strtoll(found + strlen("\"device_bytes\":"), NULL, 10) : 0;
}

static enum outcome bad(const struct test_draw *d, const struct test_variant *v, const char *what,
                        int status)
{
    static const char *const names[] = {"err", "model.json", "way.json"};
    fprintf(stderr, "variant %llu of seed %llu: %s (status %d)\n  flags %s\n",
            (unsigned long long)d->variant, (unsigned long long)d->seed, what, status, v->flags);
    for (size_t i = 0; i < SW_LEN(names); i++) {
        char *text = get(names[i]);
        fprintf(stderr, "  %s: %s\n", names[i], text ? text : "none");
        sw_free(text);
    }
    return BAD;
}

static enum outcome compare(struct test_draw *d, const struct test_variant *v, const char *plain,
                            bool show)
{
    struct test_way w;
    test_draw_way(d, v, test_folder(), peak_of(plain), &w);
    write_config("way.json", v, &w);
    if (show) {
        char *config = get("way.json");
        fprintf(stderr, "model %s\nconfig %s\nranks %lld, then %lld, killed after %lld ms\n",
                v->model, config, (long long)w.ranks, (long long)w.resumed_ranks,
                (long long)w.kill_ms);
        sw_free(config);
    }
    int64_t ranks = w.ranks;
    if (w.kill_ms >= 0) {
        const pid_t pid = start("train", "way.json", "way", v, w.ranks, NULL);
        pause_ms(w.kill_ms);
        kill(pid, SIGKILL);
        finish(pid);
        ranks = w.resumed_ranks;
    }
    struct said plan, train = {0};
    char last[32];
    snprintf(last, sizeof last, "way/checkpoint-%d", STEPS);
    const bool is_done = access(test_at(last), F_OK) == 0; /* killed behind its last step */
    ask_plan(v, ranks, NULL, &plan);
    train.status = finish(start("train", "way.json", "way", v, ranks, NULL));
    take_message(train.message);
    char *metrics = get("way/metrics.jsonl");
    take_bytes(metrics ? metrics : "", train.bytes);
    if (is_done) { /* nothing was left to train */
        memcpy(train.bytes, plan.bytes, sizeof train.bytes);
    }
    const char *other = other_verdict(&plan, &train);
    if (train.status == 2) {
        char *err = get("err");
        other = is_one_line(err) ? other : "refused, and not in one line";
        other = other ? other : short_of(v, &w, ranks, &plan);
        if (show) {
            print_message("%s", err);
        }
        sw_free(err);
    } else if (train.status != 0) {
        other = train.status == HUNG ? "hangs" : train.status >= 128 ? "crashes" : "fails";
    } else if (!other) {
        other = metrics ? other_metrics(plain, metrics) : "no metrics";
        other = other ? other : same_weights() ? NULL : "other weights";
    }
    sw_free(metrics);
    return other ? bad(d, v, other, train.status) : train.status == 2 ? REFUSED : SAME;
}

static enum outcome run(uint64_t seed, uint64_t i, bool show)
{
    struct test_draw d = {seed, i, 0};
    struct test_variant v;
    forget("plain");
    forget("way");
    forget("way.json");
    test_draw_variant(&d, test_folder(), &v);
    test_put("model.json", v.model);
    write_config("plain.json", &v, NULL);
    const int status = finish(start("train", "plain.json", "plain", &v, 1, NULL));
    if (status == 2) {
        char *err = get("err");
        print_message("variant %llu: no such model: %s", (unsigned long long)i, err);
        sw_free(err);
        return NO_MODEL;
    }
    char *plain = status == 0 ? get("plain/metrics.jsonl") : NULL;
    if (!plain) {
        return bad(&d, &v, "the plain run fails", status);
    }
    const enum outcome outcome = compare(&d, &v, plain, show);
    sw_free(plain);
    return outcome;
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void every_way_has_the_bits_of_the_plain_run_or_is_refused(void **state)
{
    const uint64_t seed = number_of("SPILLWAY_VARIANTS_SEED", 1);
    const bool alone = getenv("SPILLWAY_VARIANT") != NULL;
    const uint64_t first = number_of("SPILLWAY_VARIANT", number_of("SPILLWAY_VARIANTS_FIRST", 0));
    const uint64_t n = alone ? 1 : number_of("SPILLWAY_VARIANTS", 20);
    int counts[BAD + 1] = {0};
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = first; i < first + n; i++) {
        counts[run(seed, i, alone)]++;
    }
    print_message("%d the same, %d refused, %d without a model, %d bad\n", counts[SAME],
                  counts[REFUSED], counts[NO_MODEL], counts[BAD]);
    assert_int_equal(counts[BAD], 0);
    assert_true(alone || counts[SAME] > ((int)n - counts[NO_MODEL]) / 4); /* not all are refused */
}

/* ---- configurations that plan and train took differently ---- */

#define GPT2                                                                                       \
    "{\"model_type\": \"gpt2\", \"vocab_size\": 64, \"n_positions\": 16, \"n_embd\": 8, "          \
    "\"n_head\": 2, \"n_layer\": 2}"
#define BART                                                                                       \
    "{\"model_type\": \"bart\", \"vocab_size\": 64, \"d_model\": 16, \"encoder_layers\": 2, "      \
    "\"decoder_layers\": 2, \"encoder_attention_heads\": 2, \"decoder_attention_heads\": 2, "      \
    "\"encoder_ffn_dim\": 24, \"decoder_ffn_dim\": 20, \"max_position_embeddings\": 24, "          \
    "\"pad_token_id\": 0, \"eos_token_id\": 3, \"decoder_start_token_id\": 2}"
#define TEXT "text.txt --seq-len 8"
#define TARGETS                                                                                    \
    "targets.jsonl --seq-len 16 --target-len 10 --sample-every 2 --sample-tokens 4 "               \
    "--sample-prompt a --tokenizer "
#define CPU_STATES                                                                                 \
    "\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}"

static const struct {
    const char *model, *data, *config; /* members, without the micro-batch */
    int64_t ranks;
    int status;
} differed[] = {
    {GPT2, TEXT, "\"optimizer\": {\"type\": \"Muon\", \"params\": {\"lr\": 0.01}}", 2, 0},
    {BART, TARGETS,
     "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 100, "
     "\"stage3_model_persistence_threshold\": 100}",
     2, 0},
    {GPT2, TEXT, "\"spillway\": {\"kernels\": \"reference\", \"device\": \"mock\"}", 1, 2},
    {GPT2, TEXT, "\"spillway\": {\"kernels\": \"reference\", \"device\": \"mock\"}", 2, 2},
    {GPT2, TEXT, "\"zero_optimization\": {\"stage\": 1}, \"spillway\": {\"reduce\": \"boundary\"}",
     2, 0},
    {GPT2, TEXT, CPU_STATES ", \"spillway\": {\"device\": \"mock\", \"update\": \"host\"}", 2, 0},
    {GPT2, TEXT, "\"spillway\": {\"device_memory\": 9000}", 2, 2},
    {GPT2, TEXT, "\"spillway\": {\"tile_bytes\": 512, \"recompute\": \"auto\"}", 2, 2},
};

static void plan_says_what_train_does(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(differed); i++) {
        struct test_variant v = {.device = ""};
        struct said plan, train = {0};
        char config[1024];
        const bool reads = strcmp(differed[i].model, BART) == 0;
        const bool has_optimizer = strstr(differed[i].config, "\"optimizer\"") != NULL;
        snprintf(v.flags, sizeof v.flags, "--data %s/%s%s%s", test_folder(), differed[i].data,
                 reads ? test_folder() : "", reads ? "/words" : "");
        snprintf(config, sizeof config, "{\"train_micro_batch_size_per_gpu\": 2, %s%s}",
                 differed[i].config,
                 has_optimizer ? ""
                               : ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
                                 "0.01}}");
        forget("way");
        test_put("model.json", differed[i].model);
        test_put("way.json", config);
        ask_plan(&v, differed[i].ranks, NULL, &plan);
        train.status = finish(start("train", "way.json", "way", &v, differed[i].ranks, NULL));
        take_message(train.message);
        if (reads && strstr(train.message, "utf8proc")) {
            continue; /* there is no tokenizer of words */
        }
        char *metrics = get("way/metrics.jsonl");
        take_bytes(metrics ? metrics : "", train.bytes);
        sw_free(metrics);
        const char *other = other_verdict(&plan, &train);
        if (other || train.status != differed[i].status) {
            fail_msg("%s: %s (%d)", config, other ? other : train.message, train.status);
        }
    }
}

static int set_up(void **state)
{
    (void)state;
    program = test_spillway();
    if (!program) {
        return -1;
    }
    test_write_variant_files(test_folder());
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(plan_says_what_train_does),
    cmocka_unit_test(every_way_has_the_bits_of_the_plain_run_or_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
