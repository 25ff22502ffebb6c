// SPDX-License-Identifier: Apache-2.0
// COST 4
// Monitors agree with metrics.jsonl, bit for bit if the format has enough digits: event files, CSV
// and the Prometheus text. This holds on several ranks and after a resume, which neither repeats
// nor loses a row. Watching and profiling change no bit of the training. The profile adds up, and a
// profile of a step outside the run is refused by name.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "json/json.h"
#include "spillway/train.h"
#include "support/events.h"
#include "support/scratch.h"
#include "support/test.h"

struct asked {
    int64_t steps, ranks, profile_step, every;
    int64_t scale_power; /* of fp16; 0 = as in ds.json */
    bool watched, resume, quiet;
    const char *device; /* NULL = the CPU */
};

/* Trains; the log goes to `log`. */
static sw_status train(const char *output, const struct asked *asked,
                       struct sw_train_result *result)
{
    char sets[12][256];
    const char *items[12], *data = test_at("text.txt");
    char metrics_file[256], out_path[192];
    int n = 0;
    bool started = false;
    snprintf(sets[n++], sizeof *sets, "spillway.threads=1");
    if (asked->watched) {
        snprintf(sets[n++], sizeof *sets,
                 "tensorboard={\"enabled\": true, \"output_path\": \"%s\", "
                 "\"job_name\": \"%s.tb\"}",
                 test_folder(), output);
        snprintf(sets[n++], sizeof *sets,
                 "csv_monitor={\"enabled\": true, \"output_path\": \"%s/\", "
                 "\"job_name\": \"%s.csv\"}",
                 test_folder(), output);
        snprintf(sets[n++], sizeof *sets, "wall_clock_breakdown=true");
    }
    if (asked->profile_step > 0) {
        snprintf(sets[n++], sizeof *sets,
                 "flops_profiler={\"enabled\": true, \"profile_step\": %d, "
                 "\"top_modules\": 2, \"output_file\": \"%s/deep/%s.txt\"}",
                 (int)asked->profile_step, test_folder(), output);
    }
    if (asked->device) {
        snprintf(sets[n++], sizeof *sets, "spillway.device=%s", asked->device);
    }
    if (asked->scale_power > 0) {
        snprintf(sets[n++], sizeof *sets, "fp16.initial_scale_power=%d", (int)asked->scale_power);
    }
    if (asked->every > 0) {
        snprintf(sets[n++], sizeof *sets, "steps_per_print=%d", (int)asked->every);
    }
    for (int i = 0; i < n; i++) {
        items[i] = sets[i];
    }
    snprintf(metrics_file, sizeof metrics_file, "%s/%s.prom", test_folder(), output);
    snprintf(out_path, sizeof out_path, "%s", test_at(output));
    const struct sw_train_options options = {.model = "gpt2-tiny",
                                             .data = &data,
                                             .n_data = 1,
                                             .config_path = test_at("ds.json"),
                                             .sets = items,
                                             .n_sets = n,
                                             .output = out_path,
                                             .steps = asked->steps,
                                             .seq_len = 8,
                                             .ranks = asked->ranks,
                                             .resume = asked->resume,
                                             .eval_every = 2,
                                             .save_every = 4,
                                             .export_dtype = -1,
                                             .no_export = true,
                                             .metrics_file = asked->watched ? metrics_file : NULL,
                                             .quiet = asked->quiet};
    FILE *out = fopen(test_at("log"), "w");
    assert_non_null(out);
    const sw_status st = sw_train(&options, out, &started, result);
    fclose(out);
    return st;
}

static void must_train(const char *output, const struct asked *asked,
                       struct sw_train_result *result)
{
    if (train(output, asked, result) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static void read_all(const char *path, char **text)
{
    size_t len = 0;
    if (sw_file_read(path, text, &len) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

/* ---- rows against metrics.jsonl ---- */

/* Returns NUMBER of "key":NUMBER in a line; NaN if the key is missing. */
static double member(const char *line, const char *key)
{
    char quoted[64];
    const char *end = strchr(line, '\n');
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *found = strstr(line, quoted);
    return found && (!end || found < end) ? strtod(found + strlen(quoted), NULL) : NAN;
}

static const struct {
    const char *key, *tag, *file;
} columns[] = {
    {"loss", "Train/Samples/train_loss", "Train_Samples_train_loss"},
    {"lr", "Train/Samples/lr", "Train_Samples_lr"},
    {"loss_scale", "Train/Samples/loss_scale", "Train_Samples_loss_scale"},
    {"grad_norm", "Train/Samples/grad_norm", "Train_Samples_grad_norm"},
    {"tokens_per_s", "Train/Samples/tokens_per_s", "Train_Samples_tokens_per_s"},
    {"forward_ms", "Train/Samples/elapsed_time_ms_forward",
     "Train_Samples_elapsed_time_ms_forward"},
    {"backward_ms", "Train/Samples/elapsed_time_ms_backward",
     "Train_Samples_elapsed_time_ms_backward"},
    {"allreduce_ms", "Train/Samples/elapsed_time_ms_backward_allreduce",
     "Train_Samples_elapsed_time_ms_backward_allreduce"},
    {"update_ms", "Train/Samples/elapsed_time_ms_step", "Train_Samples_elapsed_time_ms_step"},
    {"val_loss", "Validation/Samples/loss", "Validation_Samples_loss"},
};

static double point_of(const struct read_points *points, const char *tag, int64_t x)
{
    double value = NAN;
    int n = 0;
    for (int i = 0; i < points->n; i++) {
        if (points->x[i] == x && strcmp(points->tag[i], tag) == 0) {
            value = points->value[i];
            n++;
        }
    }
    assert_true(n <= 1);
    return value;
}

/* Every number of every line of metrics.jsonl is one CSV row and one point, and there are no
 * others. */
static void expect_same_as_metrics(const char *output, int64_t steps)
{
    char path[320];
    static struct read_points points;
    int n_points = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", test_at(output));
    char *metrics = NULL;
    read_all(path, &metrics);
    snprintf(path, sizeof path, "%s.tb", test_at(output));
    read_folder(path, &points);
    for (size_t c = 0; c < SW_LEN(columns); c++) {
        snprintf(path, sizeof path, "%s.csv/%s.csv", test_at(output), columns[c].file);
        char *csv = NULL;
        read_all(path, &csv);
        char *row = strchr(csv, '\n') + 1;
        const char *name = strrchr(columns[c].tag, '/') + 1;
        assert_memory_equal(csv, "step,", 5);
        assert_memory_equal(csv + 5, name, strlen(name));
        int64_t n_lines = 0;
        for (const char *line = metrics; *line; line = strchr(line, '\n') + 1) {
            const double wanted = member(line, columns[c].key);
            const int64_t x = (int64_t)member(line, "samples");
            assert_int_equal(x, ++n_lines * 8);
            if (isnan(wanted)) {
                continue;
            }
            char *comma = NULL;
            assert_int_equal(strtoll(row, &comma, 10), x);
            assert_true(strtod(comma + 1, NULL) == wanted);
            assert_true((float)point_of(&points, columns[c].tag, x) == (float)wanted);
            row = strchr(row, '\n') + 1;
            n_points++;
        }
        assert_int_equal(*row, '\0');
        assert_int_equal(n_lines, steps);
        sw_free(csv);
    }
    sw_free(metrics);
    /* plus one point a step of backward_inner, which is computed from two of the others */
    assert_int_equal(points.n, n_points + steps);
}

static void monitors_say_what_metrics_say(void **state)
{
    (void)state;
    struct sw_train_result plain, watched;
    for (int64_t ranks = 1; ranks <= 3; ranks += 2) {
        char name[2][16];
        snprintf(name[0], sizeof name[0], "plain%d", (int)ranks);
        snprintf(name[1], sizeof name[1], "seen%d", (int)ranks);
        must_train(name[0], &(struct asked){.steps = 4, .ranks = ranks, .quiet = true}, &plain);
        must_train(name[1],
                   &(struct asked){.steps = 4, .ranks = ranks, .watched = true, .profile_step = 2},
                   &watched);
        assert_true(plain.loss == watched.loss && plain.val_loss == watched.val_loss);
        expect_same_as_metrics(name[1], 4);
    }
    char *text = NULL;
    read_all(test_at("seen3.prom"), &text);
    assert_non_null(strstr(text, "\nspillway_step 4.0\n"));
    assert_non_null(strstr(text, "\nspillway_samples_total 32.0\n"));
    const char *loss = strstr(text, "\nspillway_loss ");
    assert_non_null(loss);
    assert_true(strtod(loss + 15, NULL) == watched.loss);
    sw_free(text);
}

/* Removes the last checkpoint, as if the run had been killed before it. */
static void a_resumed_run_has_each_row_once(void **state)
{
    (void)state;
    struct sw_train_result result;
    char command[320];
    must_train("cut", &(struct asked){.steps = 6, .watched = true, .quiet = true}, &result);
    snprintf(command, sizeof command, "rm -r %s/checkpoint-6 && rm -f %s/latest", test_at("cut"),
             test_at("cut"));
    assert_int_equal(system(command), 0);
    must_train("cut", &(struct asked){.steps = 8, .watched = true, .quiet = true, .resume = true},
               &result);
    char *log = NULL;
    read_all(test_at("log"), &log);
    assert_non_null(strstr(log, "resumed at step 4"));
    sw_free(log);
    expect_same_as_metrics("cut", 8);
}

/* A device that computes asynchronously reports when it reaches the end of a phase. */
static void phases_of_other_devices_are_noted(void **state)
{
    (void)state;
    static const char *const devices[] = {"mock"};
    for (size_t i = 0; i < SW_LEN(devices); i++) {
        char name[2][16], path[256];
        struct sw_train_result plain, watched;
        snprintf(name[0], sizeof name[0], "bare%zu", i);
        snprintf(name[1], sizeof name[1], "timed%zu", i);
        must_train(name[0], &(struct asked){.steps = 1, .device = devices[i], .quiet = true},
                   &plain);
        must_train(
            name[1],
            &(struct asked){.steps = 1, .device = devices[i], .quiet = true, .watched = true},
            &watched);
        assert_true(plain.loss == watched.loss);
        snprintf(path, sizeof path, "%s/metrics.jsonl", test_at(name[1]));
        char *metrics = NULL;
        read_all(path, &metrics);
        for (const char *line = metrics; *line; line = strchr(line, '\n') + 1) {
            assert_true(member(line, "forward_ms") > 0);
            assert_true(member(line, "backward_ms") > 0);
            assert_true(member(line, "update_ms") > 0);
        }
        sw_free(metrics);
    }
}

/* A norm that overflowed is told from one that is NaN, and from one that was not measured. */
static void infinite_numbers_have_names(void **state)
{
    (void)state;
    struct sw_train_result result;
    char *metrics = NULL;
    must_train("huge", &(struct asked){.steps = 1, .scale_power = 32, .quiet = true}, &result);
    read_all(test_at("huge/metrics.jsonl"), &metrics);
    assert_non_null(strstr(metrics, "\"skipped\":true"));
    assert_non_null(strstr(metrics, "\"grad_norm\":\"Infinity\""));
    assert_non_null(strstr(metrics, "\"hidden\":null"));
    sw_free(metrics);
}

/* ---- lines ---- */

static int count_of(const char *text, const char *word)
{
    int n = 0;
    for (const char *at_word = text; (at_word = strstr(at_word, word)); at_word++) {
        n++;
    }
    return n;
}

static void lines_are_as_many_as_steps_per_print_says(void **state)
{
    (void)state;
    struct sw_train_result result;
    must_train("lines", &(struct asked){.steps = 7, .every = 3, .watched = true}, &result);
    char *log = NULL;
    read_all(test_at("log"), &log);
    /* printed: 2, 4 and 6 for validation, 3 and 6 as multiples of 3, 7 as the last */
    assert_int_equal(count_of(log, "\nstep "), 5);
    assert_null(strstr(log, "\nstep 1/7"));
    assert_non_null(strstr(log, "\nstep 3/7"));
    assert_int_equal(count_of(log, "\ntime (ms) | fwd: "), 5);
    sw_free(log);
}

/* ---- the profile ---- */

/* Parses "804.99 K", followed by a unit. */
static double value_of(const char *text)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    end += *end == ' ';
    return value * (*end == 'K'   ? 1e3
                    : *end == 'M' ? 1e6
                    : *end == 'G' ? 1e9
                    : *end == 'T' ? 1e12
                                  : 1);
}

static double summary(const char *text, const char *what)
{
    const char *found = strstr(text, what);
    if (!found) {
        fail_msg("\"%s\" is missing", what);
        return NAN;
    }
    return value_of(found + strlen(what) + strspn(found + strlen(what), " "));
}

/* Reads a part's line into out: parameters, MACs. */
static void part(const char *text, const char *name, double out[2])
{
    const char *line = strstr(text, name);
    if (!line) {
        fail_msg("\"%s\" is missing", name);
        return;
    }
    out[0] = value_of(line + strlen(name));
    out[1] = value_of(strstr(line, "Params, ") + 8);
}

/* Parses "24.31 ms" after `what`. */
static double milliseconds(const char *text, const char *what)
{
    const double value = summary(text, what);
    const char *unit = strstr(text, what) + strlen(what);
    unit += strspn(unit, " 0123456789.");
    return value * (*unit == 'm' ? 1 : *unit == 'u' ? 1e-3 : 1e3);
}

/* The profile of step 2 has the latencies of step 1, in which no instruction was measured. Forward
 * and backward are those of one of its four micro-batches. */
static void expect_latencies_of_metrics(const char *profile, const char *metrics)
{
    static const struct {
        const char *latency, *key;
        double parts;
    } rows[] = {{"\nfwd latency: ", "forward_ms", 4},
                {"\nbwd latency: ", "backward_ms", 4},
                {"\nstep latency: ", "update_ms", 1}};
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        const double wanted = member(metrics, rows[i].key) / rows[i].parts;
        assert_true(wanted > 0);
        assert_true(fabs(milliseconds(profile, rows[i].latency) - wanted) <= 0.01 * wanted + 1e-5);
    }
}

static void a_profile_adds_up(void **state)
{
    (void)state;
    struct sw_train_result result;
    double model[2], block[2], attn[2], mlp[2], head[2];
    must_train("profiled", &(struct asked){.steps = 3, .profile_step = 2, .quiet = true}, &result);
    char *text = NULL;
    read_all(test_at("deep/profiled.txt"), &text);
    part(text, "\ngpt2-tiny: ", model);
    part(text, "\n      (3): ", block);
    part(text, "\n        (attn): ", attn);
    part(text, "\n        (mlp): ", mlp);
    part(text, "\n  (head): ", head);
    assert_true(fabs(summary(text, "params per GPU: ") - model[0]) <= 0.01 * model[0]);
    assert_true(fabs(summary(text, "fwd MACs per GPU: ") - model[1]) <= 0.01 * model[1]);
    /* each block: 12 width^2 products for each of 8 tokens in 2 rows, plus attention */
    const double products = 2.0 * 8 * 12 * 128 * 128;
    assert_true(block[1] > products && block[1] < 1.05 * products);
    assert_true(fabs(attn[1] + mlp[1] - block[1]) <= 0.01 * block[1]);
    assert_true(fabs(4 * block[1] + head[1] - model[1]) <= 0.01 * model[1]);
    /* plus biases and norms */
    assert_true(fabs(block[0] - (12.0 * 128 * 128 + 13 * 128)) <= 0.01 * block[0]);
    assert_true(summary(text, "samples/second: ") > 0);
    assert_non_null(strstr(text, "depth 3:\n    params      - {'h.N': '"));
    char *metrics = NULL;
    read_all(test_at("profiled/metrics.jsonl"), &metrics);
    expect_latencies_of_metrics(text, metrics);
    sw_free(metrics);
    sw_free(text);
}

static void a_step_that_the_run_does_not_have_is_refused(void **state)
{
    (void)state;
    struct sw_train_result result;
    assert_int_equal(
        train("none", &(struct asked){.steps = 3, .profile_step = 4, .quiet = true}, &result),
        SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "flops_profiler.profile_step is 4: this run has "
                                               "steps 1 to 3"));
}

static void a_folder_that_cannot_be_is_refused_by_its_block(void **state)
{
    (void)state;
    struct sw_train_result result;
    assert_int_equal(sw_file_write_atomic(test_at("blocked.tb"), "x", 1), SW_OK);
    assert_int_equal(
        train("blocked", &(struct asked){.steps = 1, .watched = true, .quiet = true}, &result),
        SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "tensorboard: "));
    assert_non_null(strstr(sw_error_message(), "blocked.tb"));
}

#ifdef __SANITIZE_THREAD__ /* trainings are slow there, and add no new kind of thread */
enum { HAS_TRAININGS = 0 };
#else
enum { HAS_TRAININGS = 1 };
#endif

static int set_up(void **state)
{
    static const char ds[] =
        "{\"train_micro_batch_size_per_gpu\": 2, \"spillway\": {\"micro_batches\": 4}, "
        "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 8}, "
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}}";
    char text[4001];
    (void)state;
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        text[i] = i % 7 == 6 ? '\n' : (char)('a' + (i * i + i / 7) % 13);
    }
    text[sizeof text - 1] = '\0';
    test_put("text.txt", text);
    test_put("ds.json", ds);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(phases_of_other_devices_are_noted),
    TEST_IF(HAS_TRAININGS, monitors_say_what_metrics_say),
    TEST_IF(HAS_TRAININGS, a_resumed_run_has_each_row_once),
    TEST_IF(HAS_TRAININGS, infinite_numbers_have_names),
    TEST_IF(HAS_TRAININGS, lines_are_as_many_as_steps_per_print_says),
    TEST_IF(HAS_TRAININGS, a_profile_adds_up),
    TEST_IF(HAS_TRAININGS, a_step_that_the_run_does_not_have_is_refused),
    TEST_IF(HAS_TRAININGS, a_folder_that_cannot_be_is_refused_by_its_block),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
