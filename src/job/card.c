// SPDX-License-Identifier: Apache-2.0
// Writes the model card of an export: base, data, settings and results. They come from the
// checkpoint and from the files of its run (run.json, metrics.jsonl). Facts that were not recorded
// are left out.
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "hf/hf.h"
#include "job/private.h"

enum { MOST_FILES = 64 };

struct card {
    const struct sw_ckpt_meta *meta;
    struct sw_json_doc *run;     /* run.json; NULL = missing */
    struct sw_json_doc *metrics; /* the line of the checkpoint's step; NULL = missing */
    const char *dtype;           /* dtype of the weights */
    bool is_adapter;
    struct sw_str body;
};

/* ---- facts ---- */

static const struct sw_json *at(struct sw_json_doc *doc, const char *path)
{
    return doc ? sw_json_path(sw_json_root(doc), path) : NULL;
}

static const struct sw_json *setting(const struct card *c, const char *path)
{
    const struct sw_json *config =
        c->meta->config ? sw_json_get(c->meta->config, "ds_config") : NULL;
    return config ? sw_json_path(config, path) : NULL;
}

static const char *text_of(const struct sw_json *value)
{
    return value && value->type == SW_JSON_STRING ? value->string : "";
}

static bool is_true(const struct sw_json *value)
{
    return value && value->type == SW_JSON_BOOL && value->boolean;
}

static bool is_number(const struct sw_json *value)
{
    return value && (value->type == SW_JSON_INT || value->type == SW_JSON_FLOAT);
}

/* Quotes a name, which the user chose, so that nothing in it acts as Markdown. */
static void put_name(struct sw_str *out, const char *name)
{
    sw_str_putc(out, '`');
    for (; *name; name++) {
        sw_str_putc(out, strchr("`|\r\n", *name) ? '_' : *name);
    }
    sw_str_putc(out, '`');
}

/* ---- sections ---- */

static void put_base(struct card *c)
{
    const char *base = text_of(at(c->run, "model.base")), *name = text_of(at(c->run, "model.name"));
    sw_str_puts(&c->body, c->is_adapter ? "\n# LoRA adapter" : "\n# Model");
    sw_str_puts(&c->body, " trained with Spillway\n\n");
    if (is_true(at(c->run, "model.drawn"))) {
        sw_str_puts(&c->body, "Trained from nothing: ");
        put_name(&c->body, name);
        sw_str_puts(&c->body, " with weights drawn at random.\n");
    } else if (*base) {
        sw_str_puts(&c->body, c->is_adapter ? "Its base is " : "Fine-tuned from ");
        put_name(&c->body, base);
        sw_str_puts(&c->body, ".\n");
    }
    const char *task = text_of(at(c->run, "model.task"));
    if (*task) {
        sw_str_printf(&c->body, "Task: %s.\n", task);
    }
}

static void put_files(struct card *c, const char *what, const char *key)
{
    const struct sw_json *files = c->meta->data ? sw_json_get(c->meta->data, key) : NULL;
    int n = 0;
    for (const struct sw_json *f = files ? files->first : NULL; f; f = f->next, n++) {
        const char *name = text_of(sw_json_get(f, "name"));
        if (n < MOST_FILES && *name) {
            sw_str_printf(&c->body, "- %s", what);
            put_name(&c->body, name);
            sw_str_putc(&c->body, '\n');
        }
    }
    if (n > MOST_FILES) {
        sw_str_printf(&c->body, "- and %d more\n", n - MOST_FILES);
    }
}

static void put_data(struct card *c)
{
    const struct sw_json *samples = c->meta->data ? sw_json_get(c->meta->data, "samples") : NULL;
    if (!c->meta->data) {
        return;
    }
    sw_str_puts(&c->body, "\n## Data\n\n");
    put_files(c, "", "files");
    put_files(c, "validation: ", "val_files");
    if (is_number(samples)) {
        sw_str_printf(&c->body, "\n%lld training samples.\n", (long long)samples->integer);
    }
}

static void put_row(struct card *c, const char *name, const struct sw_json *value)
{
    struct sw_str text = {0};
    if (!value || value->type == SW_JSON_NULL) {
        return;
    }
    sw_json_write(value, 0, &text);
    sw_str_printf(&c->body, "| %s | %s |\n", name,
                  value->type == SW_JSON_STRING ? value->string : sw_str_text(&text));
    c->body.failed |= text.failed;
    sw_str_fini(&text);
}

static void put_settings(struct card *c)
{
    const bool bf16 = is_true(setting(c, "bf16.enabled"));
    const bool fp16 = is_true(setting(c, "fp16.enabled"));
    sw_str_puts(&c->body, "\n## Settings\n\n| setting | value |\n|---|---|\n");
    put_row(c, "optimizer", setting(c, "optimizer.type"));
    put_row(c, "learning rate", setting(c, "optimizer.params.lr"));
    put_row(c, "schedule", setting(c, "scheduler.type"));
    put_row(c, "weight decay", setting(c, "optimizer.params.weight_decay"));
    put_row(c, "samples of a step", setting(c, "train_batch_size"));
    put_row(c, "tokens of a sample",
            c->meta->config ? sw_json_get(c->meta->config, "seq_len") : NULL);
    sw_str_printf(&c->body, "| steps | %lld |\n| seed | %llu |\n", (long long)c->meta->step,
                  (unsigned long long)c->meta->seed);
    if (c->meta->config) {
        sw_str_printf(&c->body, "| trained in | %s |\n", bf16 ? "bf16" : fp16 ? "fp16" : "f32");
    }
    sw_str_printf(&c->body, "| weights | %s |\n", c->dtype);
}

static void put_result(struct card *c, const char *name, double value, const char *of)
{
    if (isfinite(value)) {
        sw_str_printf(&c->body, "| %s | %.6g | %s |\n", name, value, of);
    }
}

/* Writes the metrics of the step's validation. Without its metrics line, only the metric that
 * checkpoints are compared by is known. */
static void put_metrics(struct card *c, const char *of)
{
    const struct sw_ckpt_metric *metric = &c->meta->metric;
    bool has_metric = false;
    put_result(c, "validation loss", c->meta->val_loss, of);
    const struct sw_json *line = c->metrics ? sw_json_root(c->metrics) : NULL;
    for (const struct sw_json *m = line ? line->first : NULL; m; m = m->next) {
        if (strncmp(m->key, "val_", 4) == 0 && strcmp(m->key, "val_loss") != 0 && is_number(m)) {
            put_result(c, m->key + 4, m->number, of);
            has_metric = has_metric || (metric->name && strcmp(m->key + 4, metric->name) == 0);
        }
    }
    if (metric->name && !has_metric) {
        put_result(c, metric->name, metric->value, of);
    }
}

static void put_results(struct card *c)
{
    const struct sw_json *loss = at(c->metrics, "loss");
    const struct sw_job_coverage coverage = sw_job_coverage_of(c->meta);
    char rows[64];
    if (!is_number(loss) && !isfinite(c->meta->val_loss)) {
        return;
    }
    snprintf(rows, sizeof rows,
             coverage.of == 0              ? "validation data"
             : coverage.rows < coverage.of ? "%lld of %lld rows of the validation data"
                                           : "all %lld rows of the validation data",
             (long long)coverage.rows, (long long)coverage.of);
    sw_str_printf(&c->body,
                  "\n## Results\n\nAfter step %lld:\n\n| result | value | of |\n|---|---|---|\n",
                  (long long)c->meta->step);
    put_result(c, "training loss", is_number(loss) ? loss->number : NAN, "the samples of the step");
    put_metrics(c, rows);
}

/* ---- files of the run ---- */

/* Parses the last line of the step as JSON. */
static sw_status read_line(const char *path, int64_t step, struct sw_json_doc **out)
{
    char *text = NULL, head[48];
    size_t len = 0;
    if (access(path, R_OK) != 0) {
        return SW_OK;
    }
    SW_TRY(sw_file_read(path, &text, &len));
    const int n = snprintf(head, sizeof head, "{\"step\":%lld,", (long long)step);
    const char *found = NULL;
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        found = strncmp(line, head, (size_t)n) == 0 ? line : found;
    }
    const sw_status st =
        found ? sw_json_parse(path, found, strcspn(found, "\n"), SW_JSON_STRICT, out) : SW_OK;
    sw_free(text);
    return st;
}

/* Reads the files of the run next to the checkpoint. A damaged one counts as missing. */
static void read_run(const char *checkpoint, struct card *c)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/../run.json", checkpoint);
    if (access(path, R_OK) == 0 && sw_json_read(path, SW_JSON_STRICT, &c->run) < 0) {
        c->run = NULL;
    }
    snprintf(path, sizeof path, "%s/../metrics.jsonl", checkpoint);
    if (read_line(path, c->meta->step, &c->metrics) < 0) {
        c->metrics = NULL;
    }
}

static sw_status write_card(const struct card *c, const char *folder)
{
    const char *names[MOST_FILES], *tags[3] = {"spillway"};
    struct sw_hf_card card = {.base = text_of(at(c->run, "model.base")),
                              .is_adapter = c->is_adapter,
                              .tags = tags,
                              .datasets = names,
                              .n_tags = 1,
                              .body = sw_str_text(&c->body)};
    const char *task = text_of(at(c->run, "model.task"));
    if (*task) {
        tags[card.n_tags++] = task;
    }
    if (c->is_adapter) {
        tags[card.n_tags++] = "lora";
    }
    snprintf(card.license.id, sizeof card.license.id, "%s", text_of(at(c->run, "model.license")));
    snprintf(card.license.name, sizeof card.license.name, "%s",
             text_of(at(c->run, "model.license_name")));
    snprintf(card.license.link, sizeof card.license.link, "%s",
             text_of(at(c->run, "model.license_link")));
    const struct sw_json *files = c->meta->data ? sw_json_get(c->meta->data, "files") : NULL;
    for (const struct sw_json *f = files ? files->first : NULL; f; f = f->next) {
        const char *name = text_of(sw_json_get(f, "name"));
        if (*name && card.n_datasets < MOST_FILES) {
            names[card.n_datasets++] = name;
        }
    }
    return c->body.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a model card")
                          : sw_hf_write_card(folder, &card);
}

sw_status sw_job_write_card(const struct sw_ckpt *ckpt, const char *folder, enum sw_dtype dtype,
                            bool is_merged)
{
    const struct sw_ckpt_meta *meta = sw_ckpt_meta(ckpt);
    struct card c = {.meta = meta,
                     .dtype = sw_dtype_name(dtype),
                     .is_adapter =
                         !is_merged && meta->config && sw_json_get(meta->config, "adapter")};
    read_run(sw_ckpt_path(ckpt), &c);
    put_base(&c);
    put_data(&c);
    put_settings(&c);
    put_results(&c);
    const sw_status st = write_card(&c, folder);
    sw_json_close(c.run);
    sw_json_close(c.metrics);
    sw_str_fini(&c.body);
    return st;
}

sw_status sw_job_write_merged_card(const char *adapter, const char *base, const char *folder)
{
    static const char *const tags[] = {"spillway"};
    char name[512];
    struct sw_str body = {0};
    struct sw_hf_card card = {.base = name, .tags = tags, .n_tags = 1};
    sw_hf_base_name(base, name, sizeof name);
    sw_hf_read_license(base, &card.license);
    sw_str_puts(&body, "\n# Model with an adapter added by Spillway\n\nThe base is ");
    put_name(&body, name);
    sw_hf_base_name(adapter, name, sizeof name);
    sw_str_puts(&body, ", the adapter ");
    put_name(&body, name);
    sw_str_puts(&body, ".\n");
    sw_hf_base_name(base, name, sizeof name);
    card.body = sw_str_text(&body);
    const sw_status st = body.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a model card")
                                     : sw_hf_write_card(folder, &card);
    sw_str_fini(&body);
    return st;
}
