// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1800
// COST 10
// SLOW SPILLWAY_VARIANTS=500
// Random models, dtypes, optimizers and batches, each run plainly by one rank and in a random way:
// stage, ranks, offload, budgets, tiles, recomputation, schedule, threads, places on disk, killed
// and resumed. The way has the weights and losses of the plain run, or is refused in one line with
// status 2; nothing crashes, hangs or ends with status 1.
//
// SPILLWAY_VARIANTS=N of them, drawn from SPILLWAY_VARIANTS_SEED; SPILLWAY_VARIANT=I runs variant I
// alone and shows it.
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
#include "support/test.h"

enum { STEPS = 4, HANG_S = 300, HUNG = -1000 };

static char folder[64], program[512];

/* ---- draws ---- */

struct draw {
    uint64_t seed, variant, n;
};

static int64_t below(struct draw *d, int64_t n)
{
    return (int64_t)(sw_philox_u64(d->seed, d->variant, d->n++) % (uint64_t)n);
}

static const char *one_of(struct draw *d, int n, const char *const *words)
{
    return words[below(d, n)];
}
#define ONE_OF(d, ...)                                                                             \
    one_of((d), (int)SW_LEN(((const char *const[]){__VA_ARGS__})),                                 \
           (const char *const[]){__VA_ARGS__})

/* ---- what is trained, and how ---- */

struct variant {
    char model[512];
    char math[1024], own_math[160]; /* members of ds_config.json; of its block "spillway" */
    int64_t seq_len;
};

struct way {
    char zero[768], other[256], own[512]; /* members, as above */
    int64_t ranks, resumed_ranks;
    int64_t kill_ms; /* -1: never */
};

static void draw_variant(struct draw *d, struct variant *v)
{
    static const int64_t vocabs[] = {31, 37, 64, 257, 1031, 5003};
    const int64_t heads = 1 + below(d, 3), width = heads * (1 + below(d, 12));
    const char *p = ONE_OF(d, "0", "0.1");
    v->seq_len = 1 + below(d, 12);
    snprintf(v->model, sizeof v->model,
             "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"vocab_size\": "
             "%lld, \"n_positions\": 12, \"n_embd\": %lld, \"n_head\": %lld, \"n_layer\": %lld, "
             "\"n_inner\": %lld, \"embd_pdrop\": %s, \"attn_pdrop\": %s, \"resid_pdrop\": %s, "
             "\"activation_function\": \"%s\", \"tie_word_embeddings\": %s}",
             (long long)vocabs[below(d, SW_LEN(vocabs))], (long long)width, (long long)heads,
             (long long)(1 + below(d, 3)), (long long)(1 + below(d, 60)), p, p, p,
             ONE_OF(d, "gelu_new", "relu", "gelu", "relu2", "mish", "hardswish"),
             ONE_OF(d, "true", "false"));
    char optimizer[256];
    static const char *const optimizers[] = {
        "\"AdamW\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1}",
        "\"Adam\", \"params\": {\"lr\": 0.01, \"adam_w_mode\": false, \"weight_decay\": 0.1}",
        "\"SGD\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9}",
        "\"SGD\", \"params\": {\"lr\": 0.1}",
        "\"Lamb\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1}",
    };
    snprintf(optimizer, sizeof optimizer, "%s", one_of(d, SW_LEN(optimizers), optimizers));
    snprintf(v->math, sizeof v->math,
             "\"train_micro_batch_size_per_gpu\": %lld, \"optimizer\": {\"type\": %s}, "
             "\"gradient_clipping\": %s%s%s",
             (long long)(1 + below(d, 3)), optimizer, ONE_OF(d, "0", "0.5"),
             ONE_OF(d, "", ", \"bf16\": {\"enabled\": true}",
                    ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 18, "
                    "\"loss_scale_window\": 2}"),
             ONE_OF(d, "", "", ", \"communication_data_type\": \"bf16\"",
                    ", \"communication_data_type\": \"fp32\""));
    snprintf(v->own_math, sizeof v->own_math,
             "\"seed\": 7, \"micro_batches\": %lld, \"loss\": \"%s\", \"decay_1d\": %s, "
             "\"loss_chunk\": %s, \"frozen\": [%s]",
             (long long)(1 + below(d, 5)), ONE_OF(d, "microbatch", "tokens"),
             ONE_OF(d, "true", "false"), ONE_OF(d, "0", "0", "8", "100"),
             ONE_OF(d, "", "", "\"*.h.0.*\"", "\"*.bias\"", "\"*wte*\", \"*wpe*\""));
}

static void draw_way(struct draw *d, int64_t peak, struct way *w)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    const int64_t stage = below(d, 8) < 5 ? 3 : below(d, 3);
    const int64_t most = stage == 0 ? 1 : stage < 3 ? 2 : 3;
    const char *states = places[below(d, most)], *params = places[below(d, stage == 3 ? 3 : 1)];
    char budget[3][40];
    for (int i = 0; i < 3; i++) {
        const int64_t share = 2 + below(d, 12); /* tenths of what the plain run held */
        snprintf(budget[i], sizeof budget[i], "null");
        if (below(d, 3) == 0) {
            snprintf(budget[i], sizeof budget[i], "%lld",
                     (long long)(peak * share / 10 * (i == 2 ? 2 : 1)));
        }
    }
    snprintf(w->zero, sizeof w->zero,
             "\"zero_optimization\": {\"stage\": %lld, \"stage3_param_persistence_threshold\": %s, "
             "\"sub_group_size\": %s, \"overlap_comm\": %s, \"stage3_prefetch_bucket_size\": %s, "
             "\"reduce_bucket_size\": %s, \"offload_optimizer\": {\"device\": \"%s\", "
             "\"nvme_path\": \"%s\"}, \"offload_param\": {\"device\": \"%s\", \"nvme_path\": "
             "\"%s\"}}",
             (long long)stage, ONE_OF(d, "0", "30", "1000", "100000"),
             ONE_OF(d, "1000000000", "450", "64"), ONE_OF(d, "true", "false"),
             ONE_OF(d, "50000000", "3000"), ONE_OF(d, "500000000", "1000"), states, folder, params,
             folder);
    snprintf(w->other, sizeof w->other, "\"activation_checkpointing\": {\"cpu_checkpointing\": %s}",
             ONE_OF(d, "false", "false", "true"));
    const bool tiles = strcmp(states, "none") != 0 && strcmp(params, "none") != 0;
    snprintf(w->own, sizeof w->own,
             "\"recompute\": %s, \"schedule\": \"%s\", \"threads\": %lld, \"tile_bytes\": %s, "
             "\"disk_slots\": %s, \"transfer_bytes\": %s, \"device_memory\": %s, "
             "\"host_memory\": %s, \"nvme_space\": %s",
             ONE_OF(d, "\"none\"", "\"blocks\"", "2", "\"blocks\", \"recompute_blocks\": 1"),
             ONE_OF(d, "horizontal", "vertical"), (long long)(1 + below(d, 3)),
             tiles || below(d, 20) == 0 ? ONE_OF(d, "null", "1", "512", "4096") : "null",
             ONE_OF(d, "null", "null", "1", "2"), ONE_OF(d, "null", "null", "0", "5000"), budget[0],
             budget[1], budget[2]);
    w->ranks = 1 + below(d, 4);
    w->resumed_ranks = below(d, 2) ? w->ranks : 1 + below(d, 4);
    w->kill_ms = below(d, 3) == 0 ? below(d, 300) : -1;
}

/* ---- running ---- */

static const char *at(const char *name)
{
    static char paths[8][256];
    static int i;
    char *path = paths[i++ % 8];
    snprintf(path, 256, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    if (sw_file_write_atomic(at(name), text, strlen(text)) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static char *get(const char *name)
{
    char *text = NULL;
    size_t len;
    return sw_file_read(at(name), &text, &len) < 0 ? NULL : text;
}

static void forget(const char *name)
{
    char command[320];
    snprintf(command, sizeof command, "rm -rf %s", at(name));
    assert_int_equal(system(command), 0);
}

static pid_t start(const char *config, const char *output, const struct variant *v, int64_t ranks)
{
    char texts[2][24], steps[8];
    snprintf(texts[0], sizeof texts[0], "%lld", (long long)v->seq_len);
    snprintf(texts[1], sizeof texts[1], "%lld", (long long)ranks);
    snprintf(steps, sizeof steps, "%d", STEPS);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!freopen(at("out"), "w", stdout) || !freopen(at("err"), "w", stderr)) {
            _exit(99);
        }
        execl(program, program, "train", "--model", at("model.json"), "--data", at("text.txt"),
              "--deepspeed", at(config), "--steps", steps, "--seq-len", texts[0], "--output",
              at(output), "--save-every", "1", "--export-dtype", "f32", "--resume-if-any",
              "--quiet", "--ranks", texts[1], (char *)NULL);
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

static bool is_one_line(const char *text)
{
    const char *end = text ? strchr(text, '\n') : NULL;
    return end && end > text && end[1] == '\0';
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

static bool same_weights(void)
{
    char *one = NULL, *two = NULL;
    size_t len[2] = {0, 0};
    const bool same = sw_file_read(at("plain/model/model.safetensors"), &one, &len[0]) >= 0 &&
                      sw_file_read(at("way/model/model.safetensors"), &two, &len[1]) >= 0 &&
                      len[0] == len[1] && memcmp(one, two, len[0]) == 0;
    sw_free(one);
    sw_free(two);
    return same;
}

/* ---- one variant ---- */

enum outcome { SAME, REFUSED, NO_MODEL, BAD };

static void write_config(const char *name, const struct variant *v, const struct way *w)
{
    char text[4096];
    snprintf(text, sizeof text, "{%s%s%s%s%s, \"spillway\": {%s%s%s}}", v->math, w ? ", " : "",
             w ? w->zero : "", w ? ", " : "", w ? w->other : "", v->own_math, w ? ", " : "",
             w ? w->own : "");
    put(name, text);
}

static int64_t peak_of(const char *metrics)
{
    const char *found = strstr(metrics, "\"device_bytes\":");
    return found ? strtoll(found + strlen("\"device_bytes\":"), NULL, 10) : 0;
}

static enum outcome bad(const struct draw *d, const char *what, int status)
{
    char *err = get("err"), *model = get("model.json"), *config = get("way.json");
    print_error("variant %llu of seed %llu: %s (status %d)\n  %s  model %s\n  config %s\n",
                (unsigned long long)d->variant, (unsigned long long)d->seed, what, status,
                err ? err : "", model, config ? config : "plain");
    sw_free(err);
    sw_free(model);
    sw_free(config);
    return BAD;
}

static enum outcome compare(struct draw *d, const struct variant *v, const char *plain, bool show)
{
    struct way w;
    draw_way(d, peak_of(plain), &w);
    write_config("way.json", v, &w);
    if (show) {
        char *config = get("way.json");
        print_message("model %s\nconfig %s\nranks %lld, then %lld, killed after %lld ms\n",
                      v->model, config, (long long)w.ranks, (long long)w.resumed_ranks,
                      (long long)w.kill_ms);
        sw_free(config);
    }
    int64_t ranks = w.ranks;
    if (w.kill_ms >= 0) {
        const pid_t pid = start("way.json", "way", v, w.ranks);
        pause_ms(w.kill_ms);
        kill(pid, SIGKILL);
        finish(pid);
        ranks = w.resumed_ranks;
    }
    const int status = finish(start("way.json", "way", v, ranks));
    if (status == 2) {
        char *err = get("err");
        const bool good = is_one_line(err);
        if (show) {
            print_message("%s", err);
        }
        sw_free(err);
        return good ? REFUSED : bad(d, "refused, and not in one line", status);
    }
    if (status != 0) {
        return bad(d, status == HUNG ? "hangs" : status >= 128 ? "crashes" : "fails", status);
    }
    char *metrics = get("way/metrics.jsonl");
    const char *other = metrics ? other_metrics(plain, metrics) : "no metrics";
    sw_free(metrics);
    other = other ? other : same_weights() ? NULL : "other weights";
    return other ? bad(d, other, status) : SAME;
}

static enum outcome run(uint64_t seed, uint64_t i, bool show)
{
    struct draw d = {seed, i, 0};
    struct variant v;
    forget("plain");
    forget("way");
    forget("way.json");
    draw_variant(&d, &v);
    put("model.json", v.model);
    write_config("plain.json", &v, NULL);
    const int status = finish(start("plain.json", "plain", &v, 1));
    if (status == 2) {
        char *err = get("err");
        print_message("variant %llu: no such model: %s", (unsigned long long)i, err);
        sw_free(err);
        return NO_MODEL;
    }
    char *plain = status == 0 ? get("plain/metrics.jsonl") : NULL;
    if (!plain) {
        return bad(&d, "the plain run fails", status);
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
    const uint64_t first = number_of("SPILLWAY_VARIANT", 0);
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
    assert_true(alone || counts[SAME] > (int)n / 4); /* not everything is refused */
}

static int set_up(void **state)
{
    (void)state;
    const char *build = getenv("SPILLWAY_BUILD_DIR");
    snprintf(program, sizeof program, "%s/spillway", build ? build : "build");
    snprintf(folder, sizeof folder, "/tmp/spillway-variants-XXXXXX");
    if (access(program, X_OK) != 0 || !mkdtemp(folder)) {
        fprintf(stderr, "no program %s\n", program);
        return -1;
    }
    struct sw_str text = {0};
    for (int i = 0; i < 100; i++) {
        sw_str_printf(&text, "line %d of a small text; ", i * i % 97);
    }
    put("text.txt", sw_str_text(&text));
    sw_str_fini(&text);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_has_the_bits_of_the_plain_run_or_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
