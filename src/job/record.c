// SPDX-License-Identifier: Apache-2.0
// The record that a run leaves for its report. run.json is complete before the first step and
// always replaced as a whole, so a run killed at any moment has one. samples.jsonl grows one line
// at a time.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "hf/hf.h"
#include "job/private.h"
#include "run/run.h"
#include "spillway/look.h"

enum { VERSION = 1, MOST_STARTS = 100 };

static sw_status fail_memory(void)
{
    return SW_FAIL(SW_E_NOMEM, "out of host memory for run.json");
}

/* ---- facts that the report shows besides the curves ---- */

/* Records the base and its license, because cards of later exports cannot rely on the base's
 * folder. */
static bool put_base(const struct sw_run_record *r, struct sw_json_doc *doc, struct sw_json *to)
{
    char name[512];
    struct sw_hf_license license;
    const char *folder = r->facts->model_folder;
    if (!folder) {
        return sw_json_put_bool(doc, to, "drawn", true) != NULL;
    }
    sw_hf_base_name(folder, name, sizeof name);
    sw_hf_read_license(folder, &license);
    return (!*name || sw_json_put_str(doc, to, "base", name)) &&
           (!*license.id || sw_json_put_str(doc, to, "license", license.id)) &&
           (!*license.name || sw_json_put_str(doc, to, "license_name", license.name)) &&
           (!*license.link || sw_json_put_str(doc, to, "license_link", license.link));
}

static bool put_model(const struct sw_run_record *r, struct sw_json_doc *doc)
{
    const struct sw_train_options *o = r->options;
    struct sw_json *to = sw_json_put(doc, sw_json_root(doc), "model", SW_JSON_OBJECT);
    return to && sw_json_put_str(doc, to, "name", o->model) && put_base(r, doc, to) &&
           (!o->adapter || sw_json_put_str(doc, to, "adapter", o->adapter)) &&
           sw_json_put_str(doc, to, "task", r->facts->task ? r->facts->task->name : "text") &&
           sw_json_put_i64(doc, to, "parameters", sw_engine_parameters(r->engine)) &&
           sw_json_put_i64(doc, to, "trained", sw_weights_trained(r->facts->weights)) &&
           sw_json_put_str(doc, to, "dtype", sw_dtype_name(r->facts->dtype)) &&
           sw_json_put_i64(doc, to, "vocabulary", sw_engine_vocab(r->engine)) &&
           (!r->tokenizer ||
            sw_json_put_str(doc, to, "tokenizer", sw_tokenizer_kind(r->tokenizer)));
}

static bool put_batch(const struct sw_run_record *r, struct sw_json_doc *doc)
{
    struct sw_json *to = sw_json_put(doc, sw_json_root(doc), "batch", SW_JSON_OBJECT);
    return to && sw_json_put_i64(doc, to, "micro_batches", sw_engine_micro_batches(r->engine)) &&
           sw_json_put_i64(doc, to, "micro_batch", sw_engine_micro_batch_size(r->engine)) &&
           sw_json_put_i64(doc, to, "tokens", sw_engine_seq_len(r->engine)) &&
           sw_json_put_i64(doc, to, "samples", r->samples);
}

/* Records how much of the validation data is covered. */
static bool put_validation(const struct sw_run_record *r, struct sw_json_doc *doc)
{
    struct sw_json *to = r->coverage.of > 0
                             ? sw_json_put(doc, sw_json_root(doc), "validation", SW_JSON_OBJECT)
                             : NULL;
    return r->coverage.of == 0 || (to && sw_job_coverage_put(doc, to, &r->coverage));
}

/* Records flags that are not configuration keys. Numbers that were not given are 0. */
static bool put_flags(const struct sw_run_record *r, struct sw_json_doc *doc)
{
    const struct sw_train_options *o = r->options;
    struct sw_json *to = sw_json_put(doc, sw_json_root(doc), "flags", SW_JSON_OBJECT);
    return to && sw_json_put_i64(doc, to, "steps", r->steps) &&
           (o->epochs == 0 || sw_json_put_f64(doc, to, "epochs", o->epochs)) &&
           sw_json_put_i64(doc, to, "ranks", r->facts->world.size) &&
           sw_json_put_i64(doc, to, "seed", (int64_t)r->facts->seed) &&
           sw_json_put_i64(doc, to, "eval_every", o->eval_every) &&
           (o->early_stopping == 0 ||
            sw_json_put_i64(doc, to, "early_stopping", o->early_stopping)) &&
           sw_json_put_i64(doc, to, "sample_every", o->sample_every) &&
           sw_json_put_i64(doc, to, "save_every", o->save_every) &&
           sw_json_put_i64(doc, to, "keep_last", o->keep_last);
}

static bool put_machine(const struct sw_run_record *r, struct sw_json_doc *doc)
{
    char cpu[128], system[256] = "", host[256] = "";
    struct utsname name;
    if (uname(&name) == 0) {
        snprintf(host, sizeof host, "%s", name.nodename);
        snprintf(system, sizeof system, "%.60s %.100s %.60s", name.sysname, name.release,
                 name.machine);
    }
    sw_device_processor_name(cpu, sizeof cpu);
    const int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    struct sw_json *to = sw_json_put(doc, sw_json_root(doc), "machine", SW_JSON_OBJECT);
    return to && sw_json_put_str(doc, to, "host", host) &&
           sw_json_put_str(doc, to, "system", system) && sw_json_put_str(doc, to, "cpu", cpu) &&
           sw_json_put_i64(doc, to, "processors", sw_cpu_count()) &&
           sw_json_put_i64(doc, to, "threads", r->facts->threads) &&
           sw_json_put_i64(doc, to, "memory_bytes", memory) &&
           sw_json_put_str(doc, to, "device", r->facts->device_name) &&
           sw_json_put_str(doc, to, "kernels", r->facts->kernel_set) &&
           sw_json_put_str(doc, to, "spillway", sw_version());
}

/* ---- memory ---- */

enum held { HELD_PARAMETERS, HELD_OPTIMIZER, HELD_GRADIENTS, HELD_OTHER, HELD_SECOND, HELD_COUNT };

static enum held what_is(const struct sw_persistent *item)
{
    if (item->role == SW_ROLE_PARAM) {
        return HELD_PARAMETERS;
    }
    return sw_state_is_optimizer(item->state) ? HELD_OPTIMIZER
           : sw_state_is_sum(item->state)     ? HELD_GRADIENTS
                                              : HELD_OTHER;
}

/* Writes the bytes of each tier by use. They add up to the planned bytes of the tier. */
static bool put_memory(const struct sw_run_record *r, struct sw_json_doc *doc)
{
    static const char *const names[HELD_COUNT] = {"parameters", "optimizer", "gradients", "other",
                                                  "second_slots"};
    const struct sw_plan *plan = r->facts->plan;
    size_t bytes[SW_TIER_COUNT][HELD_COUNT] = {{0}};
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        bytes[item->tier][what_is(item)] += sw_persistent_taken(item);
    }
    struct sw_json *memory = sw_json_put(doc, sw_json_root(doc), "memory", SW_JSON_OBJECT);
    bool good = memory != NULL;
    for (int t = 0; t < SW_TIER_COUNT && good; t++) {
        const char *tier = sw_tier_name((enum sw_tier)t);
        struct sw_json *to = sw_json_put(doc, memory, tier, SW_JSON_OBJECT);
        size_t rest = plan->tier_bytes[t];
        bytes[t][HELD_SECOND] = sw_plan_second_places(plan, (enum sw_tier)t);
        good = to != NULL;
        for (int k = 0; k < HELD_COUNT && good; k++) {
            const size_t part = bytes[t][k] < rest ? bytes[t][k] : rest;
            good = sw_json_put_i64(doc, to, names[k], (int64_t)part) != NULL;
            rest -= part;
        }
        good = good && sw_json_put_i64(doc, to, "transients", (int64_t)rest) &&
               sw_json_put_i64(doc, to, "planned", (int64_t)plan->tier_bytes[t]) &&
               sw_json_put_i64(doc, to, "budget", (int64_t)plan->tier_budget[t]);
    }
    return good;
}

/* ---- JSON printed by other rooms ---- */

/* Copies the members of the object in `text` under `key`, or to the root. Takes ownership of
 * `text`. */
static sw_status put_printed(struct sw_json_doc *doc, const char *key, struct sw_str *text)
{
    struct sw_json_doc *printed = NULL;
    sw_status st = text->failed ? fail_memory()
                                : sw_json_parse("run.json", sw_str_text(text), text->len,
                                                SW_JSON_STRICT, &printed);
    sw_str_fini(text);
    SW_TRY(st);
    const struct sw_json *root = sw_json_root(printed);
    bool good = !key || sw_json_put_copy(doc, sw_json_root(doc), key, root);
    for (const struct sw_json *m = root->first; m && !key && good; m = m->next) {
        good = sw_json_put_copy(doc, sw_json_root(doc), m->key, m) != NULL;
    }
    sw_json_close(printed);
    return good ? SW_OK : fail_memory();
}

static sw_status put_config(const struct sw_run_record *r, struct sw_json_doc *doc)
{
    struct sw_str text = {0};
    sw_str_putc(&text, '{');
    sw_config_print_json(r->facts->config, &text);
    sw_str_putc(&text, '}');
    return put_printed(doc, NULL, &text);
}

static sw_status put_plan(const struct sw_run_record *r, struct sw_json_doc *doc)
{
    char *summary = NULL;
    struct sw_str text = {0};
    SW_TRY(sw_plan_text(r->engine, false, true, &summary));
    sw_str_puts(&text, summary);
    sw_text_free(summary);
    return put_printed(doc, "plan", &text);
}

/* ---- starts and end ---- */

static bool put_start(struct sw_json_doc *doc, struct sw_json *list, int64_t step)
{
    char text[32] = "";
    const time_t now = time(NULL);
    struct tm at;
    if (gmtime_r(&now, &at)) {
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &at);
    }
    struct sw_json *to = sw_json_put(doc, list, NULL, SW_JSON_OBJECT);
    return to && sw_json_put_i64(doc, to, "step", step) && sw_json_put_str(doc, to, "at", text);
}

/* Copies the earlier starts that this run continues from the file being replaced, and adds this
 * one. At the end of the run it is already listed. */
static bool put_starts(struct sw_json_doc *doc, const char *path, int64_t first_step, bool ended)
{
    struct sw_json *list = sw_json_put(doc, sw_json_root(doc), "starts", SW_JSON_ARRAY);
    struct sw_json_doc *old = NULL;
    bool good = list != NULL;
    if ((first_step > 0 || ended) && access(path, R_OK) == 0 &&
        sw_json_read(path, SW_JSON_STRICT, &old) >= 0) {
        const struct sw_json *starts = sw_json_get(sw_json_root(old), "starts");
        for (const struct sw_json *s = starts ? starts->first : NULL; s && good; s = s->next) {
            const struct sw_json *step = sw_json_get(s, "step");
            if (step && (ended || step->integer < first_step) && list->n_children < MOST_STARTS) {
                good = sw_json_put_copy(doc, list, NULL, s) != NULL;
            }
        }
        sw_json_close(old);
    }
    return good && (ended || put_start(doc, list, first_step));
}

static bool put_end(const struct sw_run_record *r, struct sw_json_doc *doc)
{
    struct sw_json *to = r->end ? sw_json_put(doc, sw_json_root(doc), "end", SW_JSON_OBJECT) : NULL;
    return !r->end || (to && sw_json_put_i64(doc, to, "step", r->last_step) &&
                       sw_json_put_str(doc, to, "why", r->end));
}

/* Stores the absolute path of the trace, so that the report finds it from any folder. */
static bool put_trace(const struct sw_run_record *r, struct sw_json_doc *doc)
{
    char folder[PATH_MAX], path[2 * PATH_MAX];
    const char *trace = r->facts->config->spillway.trace;
    if (!trace || !*trace) {
        return true;
    }
    const bool here = *trace != '/' && getcwd(folder, sizeof folder);
    snprintf(path, sizeof path, "%s%s%s", here ? folder : "", here ? "/" : "", trace);
    return sw_json_put_str(doc, sw_json_root(doc), "trace", path) != NULL;
}

static sw_status fill(const struct sw_run_record *r, const char *path, struct sw_json_doc *doc)
{
    struct sw_json *root = sw_json_root(doc);
    if (!sw_json_put_i64(doc, root, "spillway_run", VERSION) ||
        !put_starts(doc, path, r->first_step, r->end) || !put_end(r, doc) || !put_model(r, doc) ||
        !put_batch(r, doc) || !put_validation(r, doc) || !put_flags(r, doc) ||
        !put_machine(r, doc) || !put_memory(r, doc) || !put_trace(r, doc) ||
        (r->data && !sw_json_put_copy(doc, root, "data", r->data))) {
        return fail_memory();
    }
    SW_TRY(put_plan(r, doc));
    return put_config(r, doc);
}

sw_status sw_run_record_write(const struct sw_run_record *record)
{
    char path[PATH_MAX];
    struct sw_json_doc *doc = NULL;
    struct sw_str text = {0};
    snprintf(path, sizeof path, "%s/run.json", record->options->output);
    SW_TRY(sw_json_new("run.json", &doc));
    sw_status st = fill(record, path, doc);
    if (st >= 0) {
        sw_json_write(sw_json_root(doc), 1, &text);
        sw_str_putc(&text, '\n');
        st = sw_file_write_str(path, &text);
    }
    sw_str_fini(&text);
    sw_json_close(doc);
    return st;
}

/* ---- lines of steps ---- */

static sw_status add_line(const char *path, const struct sw_str *line)
{
    int fd;
    SW_TRY(sw_file_append(path, &fd));
    const ssize_t n = write(fd, line->ptr, line->len);
    const int error = n < 0 ? errno : ENOSPC;
    close(fd);
    return n == (ssize_t)line->len ? SW_OK : SW_FAIL(SW_E_IO, "%s: %s", path, strerror(error));
}

sw_status sw_sample_record(const char *output, int64_t step, const char *prompt,
                           const char *between, const char *text)
{
    char path[PATH_MAX];
    struct sw_str line = {0}, shown = {0};
    sw_str_puts(&shown, between);
    sw_str_puts(&shown, text);
    snprintf(path, sizeof path, "%s/samples.jsonl", output);
    sw_str_printf(&line, "{\"step\":%lld,\"prompt\":", (long long)step);
    sw_json_write_string(prompt, strlen(prompt), &line);
    sw_str_puts(&line, ",\"text\":");
    sw_json_write_string(sw_str_text(&shown), shown.len, &line);
    sw_str_puts(&line, "}\n");
    line.failed |= shown.failed;
    sw_str_fini(&shown);
    const sw_status st = line.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a sample")
                                     : add_line(path, &line);
    sw_str_fini(&line);
    return st;
}

sw_status sw_job_keep_lines(const char *output, const char *file, int64_t last)
{
    char path[PATH_MAX], *old = NULL;
    size_t len = 0, kept = 0;
    snprintf(path, sizeof path, "%s/%s", output, file);
    if (access(path, F_OK) != 0) {
        return SW_OK;
    }
    SW_TRY(sw_file_read(path, &old, &len));
    while (kept < len) {
        const char *end = memchr(old + kept, '\n', len - kept);
        long long step = 0;
        if (!end || sscanf(old + kept, "{\"step\":%lld", &step) != 1 || step > last) {
            break;
        }
        kept = (size_t)(end + 1 - old);
    }
    const sw_status st = sw_file_write_atomic(path, old, kept);
    sw_free(old);
    return st;
}

int64_t sw_job_resident_bytes(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*s %lld", &pages) != 1) {
        pages = 0;
    }
    if (file) {
        fclose(file);
    }
    return pages * (int64_t)sysconf(_SC_PAGESIZE);
}
