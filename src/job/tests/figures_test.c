// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1200
// COST 13
// SLOW SPILLWAY_FIGURES=all
// Reported bytes equal planned and held bytes, for each placement and tier. The line at the start,
// the line of each step, the metrics and both forms of `plan` report the same. The disk moved what
// `plan` says. Process memory is at most the sum of: the memory tiers, a baseline measured on a
// one-layer model without offload, and 32 MiB. The quick run halves the 32 MiB, because its models
// are small.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "engine/engine.h"
#include "spillway/comm.h"
#include "spillway/look.h"
#include "spillway/train.h"
#include "support/scratch.h"
#include "support/test.h"

enum { STEPS = 2 };

/* Placement of values at stage 3. tiles: only if both states and parameters are offloaded. */
struct placement {
    const char *states, *params; /* "none", "cpu" or "nvme" */
    bool activations_in_host, pieces, tiles;
};

/* Writes placement number i, without repeats. Returns false after the last one. */
static bool placement(int i, struct placement *out)
{
    static const char *const where[] = {"none", "cpu", "nvme"};
    enum { N_PLACES = 3, N = N_PLACES * N_PLACES * 2 * 2 * 2 };
    for (int at = 0; at < N; at++) {
        const int states = at % N_PLACES, params = at / N_PLACES % N_PLACES;
        const int rest = at / (N_PLACES * N_PLACES);
        const struct placement p = {.states = where[states],
                                    .params = where[params],
                                    .activations_in_host = rest % 2 == 1,
                                    .pieces = rest / 2 % 2 == 1,
                                    .tiles = rest / 4 == 1};
        if (p.tiles && (states == 0 || params == 0)) {
            continue;
        }
        if (i-- == 0) {
            *out = p;
            return true;
        }
    }
    return false;
}

/* Writes a configuration at stage 3 with this placement. pieces: in elements; tiles: in bytes. */
static void write_config(const struct placement *p, int64_t pieces, int64_t tiles,
                         int64_t micro_batches, char *out, size_t size)
{
    char path[96], tile[32] = "null";
    snprintf(path, sizeof path, ", \"nvme_path\": \"%s\"", test_folder());
    snprintf(tile, sizeof tile, p->tiles ? "%lld" : "null", (long long)tiles);
    snprintf(out, size,
             "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 1, "
             "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": %lld, "
             "\"stage3_param_persistence_threshold\": 30, "
             "\"offload_optimizer\": {\"device\": \"%s\"%s}, "
             "\"offload_param\": {\"device\": \"%s\"%s}}, "
             "\"activation_checkpointing\": {\"cpu_checkpointing\": %s}, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}, "
             "\"spillway\": {\"micro_batches\": %lld, \"threads\": 1, \"tile_bytes\": %s}}",
             (long long)(p->pieces ? pieces : 1000000000), p->states,
             strcmp(p->states, "nvme") == 0 ? path : "", p->params,
             strcmp(p->params, "nvme") == 0 ? path : "", p->activations_in_host ? "true" : "false",
             (long long)micro_batches, tile);
}

static void placement_text(const struct placement *p, char *out, size_t size)
{
    snprintf(out, size,
             "states on %s, parameters on %s, activations in the host %d, pieces %d, tiles %d",
             p->states, p->params, p->activations_in_host, p->pieces, p->tiles);
}

/* ---- reported bytes ---- */

struct report {
    char *log, *metrics; /* output of a training */
    char *text, *json;   /* output of `plan` */
};

static char *read_all(const char *name)
{
    char path[128], *text = NULL;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    if (sw_file_read(path, &text, &len) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return text;
}

static void take_report(const char *config, int ranks, struct report *out)
{
    char model[96], data[96], log[96], run[96], command[128];
    snprintf(model, sizeof model, "%s/small.json", test_folder());
    snprintf(data, sizeof data, "%s/text.txt", test_folder());
    snprintf(log, sizeof log, "%s/log", test_folder());
    snprintf(run, sizeof run, "%s/run", test_folder());
    test_put("ds.json", config);
    char config_path[96];
    snprintf(config_path, sizeof config_path, "%s/ds.json", test_folder());
    const char *files[] = {data};
    const struct sw_train_options train = {.model = model,
                                           .data = files,
                                           .n_data = 1,
                                           .config_path = config_path,
                                           .seq_len = 8,
                                           .steps = STEPS,
                                           .ranks = ranks,
                                           .output = run,
                                           .no_export = true,
                                           .export_dtype = -1};
    struct sw_train_result result;
    bool started;
    FILE *to = fopen(log, "w");
    assert_non_null(to);
    if (sw_train(&train, to, &started, &result) < 0) {
        fail_msg("%s", sw_error_message());
    }
    fclose(to);
    out->log = read_all("log");
    out->metrics = read_all("run/metrics.jsonl");
    snprintf(command, sizeof command, "rm -rf %s", run);
    assert_int_equal(system(command), 0);

    sw_comm *comm = NULL;
    sw_engine *e = NULL;
    if (ranks > 1) {
        assert_int_equal(sw_comm_open(&(struct sw_transport){.size = ranks}, &comm), SW_OK);
    }
    const struct sw_engine_options plan = {.config.text = config,
                                           .model.path = model,
                                           .inputs.seq_len = 8,
                                           .run.comm = comm,
                                           .seed = 42,
                                           .train.wanted = true,
                                           .plan.only = true};
    if (sw_initialize(&plan, &e) < 0 || sw_plan_text(e, true, false, &out->text) < 0 ||
        sw_plan_text(e, false, true, &out->json) < 0) {
        fail_msg("%s", sw_error_message());
    }
    sw_close(e);
    if (comm) {
        sw_comm_close(comm, false);
    }
}

static void free_report(struct report *r)
{
    sw_free(r->log);
    sw_free(r->metrics);
    sw_text_free(r->text);
    sw_text_free(r->json);
}

/* Returns the number after the first `key` that follows `from`. */
static int64_t number_behind(const char *text, const char *from, const char *key)
{
    const char *at = strstr(text, from);
    at = at ? strstr(at, key) : NULL;
    if (!at) {
        fail_msg("no \"%s\" behind \"%s\" in: %s", key, from, text);
    }
    return atoll(at + strlen(key));
}

/* Checks the formatted figure after `key` in the line that begins with `line`. */
static void assert_shown(const char *text, const char *line, const char *key, int64_t bytes)
{
    char shown[32], wanted[64];
    snprintf(wanted, sizeof wanted, "%s%s", key,
             sw_format_bytes(shown, sizeof shown, (double)bytes));
    const char *at = strstr(text, line);
    const char *found = at ? strstr(at, wanted) : NULL;
    const char *end = at ? strchr(at, '\n') : NULL;
    if (!found || (end && found > end)) {
        fail_msg("wanted \"%s\" in the line \"%s..\" of: %s", wanted, line, text);
    }
}

static void check_report(const struct placement *p, int ranks, const char *config)
{
    static const char *const tiers[] = {"device", "host", "disk"};
    struct report r;
    take_report(config, ranks, &r);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        char key[32], line[32];
        snprintf(key, sizeof key, "\"%s_bytes\":", tiers[t]);
        const int64_t planned = number_behind(r.json, "{", key);
        snprintf(line, sizeof line, "%-7s peak ", tiers[t]);
        assert_int_equal(number_behind(r.text, line, "peak "), planned);
        for (int step = 1; step <= STEPS; step++) {
            char from[32];
            snprintf(from, sizeof from, "{\"step\":%d,", step);
            assert_int_equal(number_behind(r.metrics, from, key), planned);
        }
        snprintf(key, sizeof key, " %s ", tiers[t]);
        assert_shown(r.log, ranks > 1 ? "plan of a rank:" : "plan:", key, planned);
        if (t != SW_TIER_DISK) {
            assert_shown(r.log, "step 1/", key, planned);
            assert_shown(r.log, "step 2/", key, planned);
        }
        const bool on_disk = strcmp(p->states, "nvme") == 0 || strcmp(p->params, "nvme") == 0;
        const bool on_host = strcmp(p->states, "none") != 0 || strcmp(p->params, "cpu") == 0 ||
                             p->activations_in_host;
        assert_int_equal(planned > 0, t == SW_TIER_DISK   ? on_disk
                                      : t == SW_TIER_HOST ? on_host
                                                          : true);
    }
    if (strcmp(p->states, "nvme") == 0 || strcmp(p->params, "nvme") == 0) {
        assert_shown(r.log, "disk: read ", "read ",
                     ranks * STEPS * number_behind(r.json, "moved_in_a_step", "\"from_disk\":"));
        assert_shown(r.log, "disk: read ", "written ",
                     ranks * STEPS * number_behind(r.json, "moved_in_a_step", "\"to_disk\":"));
    }
    if (strstr(r.text, " in )") || strstr(r.text, " in ,") || strstr(r.text, " in \n")) {
        fail_msg("a place without a name in: %s", r.text);
    }
    free_report(&r);
}

static void what_is_reported_is_what_is_planned(void **state)
{
    (void)state;
    char config[2048], text[128];
    struct placement p;
    for (int i = 0; placement(i, &p); i++) {
        placement_text(&p, text, sizeof text);
        const int ranks = 1 + i % 2; /* each placement choice runs with both */
        write_config(&p, 450, 700, ranks + i / 2 % 2, config, sizeof config);
        check_report(&p, ranks, config);
    }
}

/* ---- held bytes ---- */

static int64_t field_of_status(const char *name)
{
    char line[256], format[32];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    snprintf(format, sizeof format, "%s: %%lld kB", name);
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, format, &kib) == 1) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return kib * 1024;
}

struct held {
    int64_t planned[SW_TIER_COUNT], resident; /* sum over ranks; peak of the process */
};

struct job {
    const char *config, *model;
    struct held *held;
    int64_t *planned; /* [ranks, SW_TIER_COUNT] */
};

static sw_status train_rank(void *ctx, sw_comm *comm)
{
    enum { T = 16 };
    const struct job *job = ctx;
    static const int32_t ids[T] = {1, 2, 3, 4, 5, 6, 7};
    const struct sw_shape shape = {2, {1, T}};
    const struct sw_view view = {.data = (void *)ids, .dtype = SW_I32, .shape = shape};
    const struct sw_tensor tensors[] = {{"input_ids", view}, {"labels", view}};
    const struct sw_batch batch = {tensors, 2};
    const struct sw_engine_options options = {.config.text = job->config,
                                              .model.path = job->model,
                                              .inputs.seq_len = T,
                                              .run.comm = comm,
                                              .seed = 5,
                                              .train.wanted = true};
    sw_engine *e = NULL;
    sw_status st = sw_initialize(&options, &e);
    for (int i = 0; st >= 0 && i < STEPS; i++) {
        st = sw_train_batch(e, &batch, 1, NULL);
    }
    for (int t = 0; st >= 0 && t < SW_TIER_COUNT; t++) {
        job->planned[(comm ? sw_comm_rank(comm) : 0) * SW_TIER_COUNT + t] =
            sw_engine_tier_bytes(e, t);
    }
    sw_close(e);
    return st;
}

/* Trains in a child process, which starts with fresh memory. */
static void hold(const char *config, const char *model, int ranks, struct held *out)
{
    int64_t planned[8 * SW_TIER_COUNT] = {0};
    const struct job job = {config, model, out, planned};
    const sw_status st = ranks > 1 ? sw_threads_run(ranks, 300, train_rank, (void *)&job)
                                   : train_rank((void *)&job, NULL);
    if (st < 0) {
        fprintf(stderr, "%s\n", sw_error_message());
        _exit(2);
    }
    out->resident = field_of_status("VmHWM");
    for (int i = 0; i < ranks * SW_TIER_COUNT; i++) {
        out->planned[i % SW_TIER_COUNT] += planned[i];
    }
}

static struct held measure(const char *config, const char *model, int ranks)
{
    struct held held = {0};
    int ends[2], status = 0;
    char path[96];
    snprintf(path, sizeof path, "%s/%s", test_folder(), model);
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        hold(config, path, ranks, &held);
        _exit(write(ends[1], &held, sizeof held) == sizeof held ? 0 : 4);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &held, sizeof held), sizeof held);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return held;
}

static int64_t besides(const struct held *held)
{
    return held->resident - held->planned[SW_TIER_DEVICE] - held->planned[SW_TIER_HOST];
}

static void what_is_held_is_what_is_planned(void **state)
{
    (void)state;
    char config[2048], text[128];
    struct placement p = {.states = "none", .params = "none"};
    const bool all = getenv("SPILLWAY_FIGURES") != NULL;
    const int64_t limit = (all ? 32 : 16) * INT64_C(1048576);
#ifdef TEST_SANITIZED
    skip(); /* the sanitizer's shadow counts as memory */
#endif
    write_config(&p, 1, 1, 1, config, sizeof config);
    const struct held one_layer = measure(config, "layer.json", 1);
    int64_t most = 0;
    for (int i = 0; placement(i, &p); i++) {
        for (int ranks = 1; ranks <= 2; ranks++) {
            /* the quick run covers each pair of states and parameters */
            if (!all && (i % 4 != 0 || i / 4 % 2 + 1 != ranks)) {
                continue;
            }
            write_config(&p, 100000, 100000, ranks, config, sizeof config);
            const struct held held = measure(config, all ? "large.json" : "medium.json", ranks);
            const int64_t more = besides(&held) - besides(&one_layer);
            assert_true(held.planned[SW_TIER_DEVICE] + held.planned[SW_TIER_HOST] > 2 * limit);
            if (more > limit) {
                placement_text(&p, text, sizeof text);
                fail_msg("%s, %d ranks: device %lld and host %lld bytes, and %lld that no tier has",
                         text, ranks, (long long)held.planned[SW_TIER_DEVICE],
                         (long long)held.planned[SW_TIER_HOST], (long long)more);
            }
            most = more > most ? more : most;
        }
    }
    print_message("at most %.1f MiB beside the plan and the baseline\n", (double)most / 0x1p20);
}

/* ---- files ---- */

static void write_model(const char *name, int vocab, int width, int layers)
{
    char text[256];
    snprintf(text, sizeof text,
             "{\"model_type\":\"gpt2\",\"vocab_size\":%d,\"n_positions\":16,\"n_embd\":%d,"
             "\"n_layer\":%d,\"n_head\":4}",
             vocab, width, layers);
    test_put(name, text);
}

static int set_up(void **state)
{
    (void)state;
    struct sw_str text = {0};
    for (int i = 0; i < 40; i++) {
        sw_str_puts(&text, "what is reported is what is planned\n");
    }
    test_put("text.txt", sw_str_text(&text));
    sw_str_fini(&text);
    write_model("small.json", 37, 20, 2);
    write_model("layer.json", 64, 32, 1);
    write_model("medium.json", 256, 224, 4);
    write_model("large.json", 512, 384, 4);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_reported_is_what_is_planned),
    cmocka_unit_test(what_is_held_is_what_is_planned),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
