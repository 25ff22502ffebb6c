// SPDX-License-Identifier: Apache-2.0
// Reads the files of a training: metrics.jsonl, run.json, samples.jsonl. A run that was killed or
// is still running is read as far as it got: a last line without a line break is ignored.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/private.h"

enum { PATH_CAP = 4200 };
static const int64_t MOST_STEP = INT64_C(1) << 40; /* far from what a double rounds */

static const char *const figure_names[SW_FIGURE_COUNT] = {
    [SW_FIGURE_LOSS] = "loss",
    [SW_FIGURE_NORM] = "grad_norm",
    [SW_FIGURE_LR] = "lr",
    [SW_FIGURE_SCALE] = "loss_scale",
    [SW_FIGURE_STEP_MS] = "step_ms",
    [SW_FIGURE_TOKENS] = "tokens_per_s",
    [SW_FIGURE_IMAGES] = "images_per_s",
    [SW_FIGURE_DEVICE] = "device_bytes",
    [SW_FIGURE_HOST] = "host_bytes",
    [SW_FIGURE_DISK] = "disk_bytes",
    [SW_FIGURE_BESIDES] = "besides_bytes",
    [SW_FIGURE_RESIDENT] = "resident_bytes",
    [SW_FIGURE_READ] = "disk_read_gb_s",
    [SW_FIGURE_WRITE] = "disk_write_gb_s",
    [SW_FIGURE_HIDDEN] = "hidden",
    [SW_FIGURE_VAL_LOSS] = "val_loss",
    [SW_FIGURE_AUX_LOSS] = "router_aux_loss",
    [SW_FIGURE_Z_LOSS] = "router_z_loss",
    [SW_FIGURE_LEAST_LOAD] = "expert_least_load",
    [SW_FIGURE_MOST_LOAD] = "expert_most_load",
    [SW_FIGURE_ENTROPY] = "router_entropy",
    [SW_FIGURE_DROPPED] = "dropped_share",
};

const char *sw_figure_name(enum sw_figure figure)
{
    return figure_names[figure];
}

static sw_status fail_memory(const struct sw_past_run *run)
{
    return SW_FAIL(SW_E_NOMEM, "out of host memory for the run %s", run->path);
}

/* ---- metrics ---- */

struct line {
    struct sw_past_run *run;
    int next;      /* figure that probably comes next: lines are alike */
    bool has_step; /* step is set */
    int64_t step;  /* step of the line */
};

static double *new_column(struct sw_past_run *run, int64_t cap)
{
    double *column = sw_arena_array(&run->arena, (size_t)cap + 1, sizeof *column);
    for (int64_t i = 0; column && i < cap; i++) {
        column[i] = NAN;
    }
    return column;
}

/* null: nothing was measured; in runs of older versions also NaN and infinities. */
static double number_of(const struct sw_json *value)
{
    double number;
    return sw_json_any_f64(value, &number) ? number : NAN;
}

static bool take_figure(struct line *line, const struct sw_json *value)
{
    struct sw_past_run *run = line->run;
    for (int k = 0; k < SW_FIGURE_COUNT; k++) {
        const int i = (line->next + k) % SW_FIGURE_COUNT;
        if (strcmp(value->key, figure_names[i]) == 0) {
            run->figures[i][run->n] = number_of(value);
            line->next = (i + 1) % SW_FIGURE_COUNT;
            return true;
        }
    }
    return false;
}

static uint8_t queue_of(const char *name)
{
    uint8_t q = 0;
    while (q < SW_QUEUE_COUNT && strcmp(sw_queue_name((enum sw_queue)q), name) != 0) {
        q++;
    }
    return q;
}

/* Takes a metric such as "val_accuracy". Metrics for which there is no room are not shown. */
static void take_metric(struct sw_past_run *run, const struct sw_json *value)
{
    int i = 0;
    while (i < run->n_metrics && strcmp(run->metrics[i].name, value->key) != 0) {
        i++;
    }
    if (i < run->n_metrics) {
        run->metrics[i].values[run->n] = number_of(value);
    }
}

static sw_status take_member(void *ctx, enum sw_json_event event, const struct sw_json *value,
                             int depth)
{
    struct line *line = ctx;
    struct sw_past_run *run = line->run;
    if (event != SW_JSON_SCALAR || depth != 1 || !value->key || take_figure(line, value)) {
        return SW_OK;
    }
    if (strcmp(value->key, "step") == 0 && value->type == SW_JSON_INT) {
        line->has_step = true;
        line->step = value->integer;
    } else if (strcmp(value->key, "skipped") == 0) {
        run->n_skipped += value->type == SW_JSON_BOOL && value->boolean;
    } else if (strcmp(value->key, "bound") == 0 && value->type == SW_JSON_STRING) {
        run->bound[run->n] = queue_of(value->string);
    } else if (strncmp(value->key, "val_", 4) == 0) {
        take_metric(run, value);
    }
    return SW_OK;
}

static sw_status add_metric(struct sw_past_run *run, const char *name, size_t len, int64_t cap)
{
    const bool loss = len == strlen("val_loss") && memcmp(name, "val_loss", len) == 0;
    if (len >= SW_METRIC_CAP || loss || run->n_metrics == SW_PAST_METRICS) {
        return SW_OK;
    }
    double *column = new_column(run, cap);
    if (!column) {
        return fail_memory(run);
    }
    memcpy(run->metrics[run->n_metrics].name, name, len);
    run->metrics[run->n_metrics++].values = column;
    return SW_OK;
}

/* Names of metrics, from the first line that has them: later ones have the same. */
static sw_status find_metrics(struct sw_past_run *run, const char *text, size_t len, int64_t cap)
{
    static const char begin[] = "\"val_";
    const size_t n = sizeof begin - 1;
    const char *at = memmem(text, len, begin, n);
    const char *line = at ? memchr(at, '\n', len - (size_t)(at - text)) : NULL;
    const char *end = line ? line : text + len;
    while (at) {
        const char *name = at + 1, *quote = memchr(name, '"', (size_t)(end - name));
        if (!quote) {
            break;
        }
        SW_TRY(add_metric(run, name, (size_t)(quote - name), cap));
        at = memmem(quote, (size_t)(end - quote), begin, n);
    }
    return SW_OK;
}

static sw_status make_columns(struct sw_past_run *run, int64_t cap)
{
    run->steps = sw_arena_array(&run->arena, (size_t)cap + 1, sizeof *run->steps);
    run->bound = sw_arena_alloc(&run->arena, (size_t)cap + 1);
    bool good = run->steps && run->bound;
    for (int i = 0; i < SW_FIGURE_COUNT && good; i++) {
        run->figures[i] = new_column(run, cap);
        good = run->figures[i] != NULL;
    }
    if (!good) {
        return fail_memory(run);
    }
    memset(run->bound, SW_QUEUE_COUNT, (size_t)cap + 1);
    return SW_OK;
}

static sw_status take_line(struct sw_past_run *run, const char *path, int64_t number,
                           const char *text, size_t len)
{
    struct line line = {.run = run};
    const sw_status st = sw_json_scan(path, text, len, take_member, &line);
    if (st < 0) {
        return st == SW_E_NOMEM ? st
                                : SW_FAIL(SW_E_FORMAT, "%s: line %lld is not a JSON object", path,
                                          (long long)number);
    }
    if (!line.has_step) {
        return SW_FAIL(SW_E_FORMAT, "%s: line %lld has no \"step\"", path, (long long)number);
    }
    if (line.step < 0 || line.step > MOST_STEP) {
        return SW_FAIL(SW_E_FORMAT, "%s: line %lld has step %lld; wanted 0 to %lld", path,
                       (long long)number, (long long)line.step, (long long)MOST_STEP);
    }
    if (run->n > 0 && line.step <= run->steps[run->n - 1]) {
        return SW_FAIL(SW_E_FORMAT, "%s: line %lld has step %lld after step %lld", path,
                       (long long)number, (long long)line.step, (long long)run->steps[run->n - 1]);
    }
    run->steps[run->n++] = line.step;
    return SW_OK;
}

static sw_status take_metrics(struct sw_past_run *run, const char *path, const char *text,
                              size_t len)
{
    int64_t lines = 0;
    for (const char *at = text; (at = memchr(at, '\n', len - (size_t)(at - text))) != NULL; at++) {
        lines++;
    }
    SW_TRY(make_columns(run, lines));
    SW_TRY(find_metrics(run, text, len, lines));
    const char *at = text;
    for (int64_t i = 0; i < lines; i++) {
        const char *end = memchr(at, '\n', len - (size_t)(at - text));
        SW_TRY(take_line(run, path, i + 1, at, (size_t)(end - at)));
        at = end + 1;
    }
    return SW_OK;
}

/* ---- samples ---- */

static const char *keep_string(struct sw_past_run *run, const struct sw_json *value,
                               size_t *out_len)
{
    const bool there = value && value->type == SW_JSON_STRING;
    *out_len = there ? value->string_len : 0;
    return there ? sw_arena_strndup(&run->arena, value->string, value->string_len) : "";
}

/* A line that is no JSON, which no training writes, is shown as it is. */
static sw_status take_sample(struct sw_past_run *run, const char *path, const char *text,
                             size_t len)
{
    struct sw_json_doc *doc = NULL;
    struct sw_past_sample *s = &run->samples[run->n_samples];
    const sw_status st = sw_json_parse(path, text, len, SW_JSON_STRICT, &doc);
    if (st == SW_E_NOMEM) {
        return st;
    }
    if (st < 0) {
        *s = (struct sw_past_sample){
            .prompt = "", .text = sw_arena_strndup(&run->arena, text, len), .text_len = len};
    } else {
        const struct sw_json *root = sw_json_root(doc), *step = sw_json_get(root, "step");
        s->step = step && step->type == SW_JSON_INT ? step->integer : 0;
        s->prompt = keep_string(run, sw_json_get(root, "prompt"), &s->prompt_len);
        s->text = keep_string(run, sw_json_get(root, "text"), &s->text_len);
        sw_json_close(doc);
    }
    if (!s->prompt || !s->text) {
        return fail_memory(run);
    }
    run->n_samples++;
    return SW_OK;
}

static sw_status take_samples(struct sw_past_run *run, const char *path, const char *text,
                              size_t len)
{
    int64_t lines = 0;
    for (size_t i = 0; i < len; i++) {
        lines += text[i] == '\n';
    }
    run->samples = sw_arena_array(&run->arena, (size_t)lines + 1, sizeof *run->samples);
    if (!run->samples) {
        return fail_memory(run);
    }
    const char *at = text;
    for (int64_t i = 0; i < lines; i++) {
        const char *end = memchr(at, '\n', len - (size_t)(at - text));
        SW_TRY(take_sample(run, path, at, (size_t)(end - at)));
        at = end + 1;
    }
    return SW_OK;
}

/* ---- a folder ---- */

typedef sw_status (*take_fn)(struct sw_past_run *run, const char *path, const char *text,
                             size_t len);

/* No such file: nothing happens. */
static sw_status take_file(struct sw_past_run *run, const char *name, take_fn take, bool *out_there)
{
    char path[PATH_CAP], *text = NULL;
    size_t len = 0;
    snprintf(path, sizeof path, "%s/%s", run->path, name);
    *out_there = access(path, F_OK) == 0;
    if (!*out_there) {
        return SW_OK;
    }
    SW_TRY(sw_file_read(path, &text, &len));
    const sw_status st = take(run, path, text, len);
    sw_free(text);
    return st;
}

static sw_status take_facts(struct sw_past_run *run, const char *path, const char *text, size_t len)
{
    SW_TRY(sw_json_parse(path, text, len, SW_JSON_STRICT, &run->doc));
    return sw_json_root(run->doc)->type == SW_JSON_OBJECT
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "%s: wanted an object", path);
}

static sw_status read_files(struct sw_past_run *run)
{
    bool facts = false, metrics = false, samples;
    SW_TRY(take_file(run, "run.json", take_facts, &facts));
    SW_TRY(take_file(run, "metrics.jsonl", take_metrics, &metrics));
    if (!facts && !metrics) {
        struct stat info;
        const bool there = stat(run->path, &info) == 0;
        return SW_FAIL(SW_E_ARG, "%s %s", run->path,
                       !there ? "does not exist; wanted the --output folder of a training"
                       : S_ISDIR(info.st_mode)
                           ? "is not a run: it has neither metrics.jsonl nor run.json"
                           : "is not a run; wanted the --output folder of a training");
    }
    return take_file(run, "samples.jsonl", take_samples, &samples);
}

sw_status sw_past_run_read(const char *path, struct sw_past_run *out)
{
    *out = (struct sw_past_run){.path = path};
    sw_arena_init(&out->arena, "report");
    const sw_status st = read_files(out);
    if (st < 0) {
        sw_past_run_close(out);
    }
    return st;
}

void sw_past_run_close(struct sw_past_run *run)
{
    sw_json_close(run->doc);
    run->doc = NULL;
    sw_arena_fini(&run->arena);
}

const struct sw_json *sw_past_run_fact(const struct sw_past_run *run, const char *path)
{
    return run->doc ? sw_json_path(sw_json_root(run->doc), path) : NULL;
}

const struct sw_json *sw_past_run_sources(const struct sw_past_run *run)
{
    const struct sw_json *sources = sw_past_run_fact(run, "source");
    return sources && sources->type == SW_JSON_OBJECT ? sources : NULL;
}

const char *sw_past_run_text(const struct sw_past_run *run, const char *path)
{
    const struct sw_json *fact = sw_past_run_fact(run, path);
    return fact && fact->type == SW_JSON_STRING ? fact->string : "";
}

double sw_past_run_number(const struct sw_past_run *run, const char *path)
{
    const struct sw_json *fact = sw_past_run_fact(run, path);
    return fact ? number_of(fact) : NAN;
}

/* ---- figures of a column ---- */

/* The k-th least of n numbers, which change places: those that are less come before it. */
static double select_kth(double *values, int64_t n, int64_t k)
{
    int64_t lo = 0, hi = n - 1;
    while (lo < hi) {
        const double pivot = values[lo + (hi - lo) / 2];
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (values[i] < pivot) {
                i++;
            }
            while (values[j] > pivot) {
                j--;
            }
            if (i <= j) {
                const double kept = values[i];
                values[i++] = values[j];
                values[j--] = kept;
            }
        }
        if (k <= j) {
            hi = j;
        } else if (k >= i) {
            lo = i;
        } else {
            break;
        }
    }
    return values[k];
}

sw_status sw_stats_of(const int64_t *steps, const double *values, int64_t n, struct sw_stats *out)
{
    struct sw_stats s = {.first = NAN, .last = NAN, .min = NAN, .max = NAN, .median = NAN};
    double *kept = sw_alloc("report", ((size_t)n + 1) * sizeof *kept);
    SW_TRY_ALLOC(kept, "a report");
    for (int64_t i = 0; i < n; i++) {
        const double v = values[i];
        if (!isfinite(v)) {
            continue;
        }
        if (s.n == 0 || v < s.min) {
            s.min = v;
            s.min_step = steps[i];
        }
        if (s.n == 0 || v > s.max) {
            s.max = v;
            s.max_step = steps[i];
        }
        s.first = s.n == 0 ? v : s.first;
        s.last = v;
        s.last_step = steps[i];
        s.sum += v;
        kept[s.n++] = v;
    }
    if (s.n > 0) {
        s.median = select_kth(kept, s.n, s.n / 2);
    }
    sw_free(kept);
    *out = s;
    return SW_OK;
}
