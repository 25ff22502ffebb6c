// SPDX-License-Identifier: Apache-2.0
// Sections of a page about a run's options, its data, its machine, and the samples that it wrote.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/private.h"

/* A section with the runs beside each other. */
static void write_runs(const struct sw_page *page, const char *id, const char *title,
                       void (*write)(const struct sw_past_run *run, struct sw_str *out),
                       struct sw_str *out)
{
    sw_str_printf(out, "<section id=\"%s\"><h2>%s</h2>\n<div class=\"texts\">\n", id, title);
    for (int i = 0; i < page->n; i++) {
        sw_str_puts(out, "<div>");
        sw_page_run(page, i, out);
        write(&page->runs[i], out);
        sw_str_puts(out, "</div>\n");
    }
    sw_str_puts(out, "</div></section>\n");
}

/* ---- samples ---- */

enum { SHOWN_SAMPLES = 24, SAMPLE_BYTES = 4000 };

/* Not in the middle of a character. */
static size_t cut(const char *text, size_t len, size_t most)
{
    size_t n = len < most ? len : most;
    while (n > 0 && n < len && ((unsigned char)text[n] & 0xc0) == 0x80) {
        n--;
    }
    return n;
}

static void write_sample(const struct sw_past_sample *s, bool open, struct sw_str *out)
{
    const size_t prompt = cut(s->prompt, s->prompt_len, SAMPLE_BYTES);
    const size_t text = cut(s->text, s->text_len, SAMPLE_BYTES);
    sw_str_printf(out, "<details%s><summary>step %lld</summary><pre dir=\"auto\"><b>",
                  open ? " open" : "", (long long)s->step);
    sw_html_text(out, s->prompt, prompt, true);
    sw_str_puts(out, "</b>");
    sw_html_text(out, s->text, text, true);
    sw_str_puts(out, text < s->text_len ? " …</pre></details>\n" : "</pre></details>\n");
}

/* Shows at most SHOWN_SAMPLES samples: the last, the first, and evenly spaced ones between. */
static void write_samples(const struct sw_past_run *run, struct sw_str *out)
{
    const int64_t n = run->n_samples, shown = sw_min_i64(n, SHOWN_SAMPLES);
    for (int64_t i = shown - 1; i >= 0; i--) {
        const int64_t at = shown > 1 ? i * (n - 1) / (shown - 1) : n - 1;
        write_sample(&run->samples[at], i == shown - 1, out);
    }
    if (shown < n) {
        sw_str_printf(out, "<p class=\"dim\">%lld of %lld samples; all are in samples.jsonl.</p>\n",
                      (long long)shown, (long long)n);
    }
}

sw_status sw_page_samples(const struct sw_page *page, struct sw_str *out)
{
    int64_t n = 0;
    for (int i = 0; i < page->n; i++) {
        n += page->runs[i].n_samples;
    }
    if (n > 0) {
        write_runs(page, "samples", "Samples", write_samples, out);
    }
    return SW_OK;
}

/* ---- configuration ---- */

static void write_json(const struct sw_json *value, struct sw_str *out)
{
    struct sw_str text = {0};
    if (value) {
        sw_json_write(value, 0, &text);
    }
    sw_html_text(out, value ? sw_str_text(&text) : "–", value ? text.len : strlen("–"), false);
    out->failed |= text.failed;
    sw_str_fini(&text);
}

static bool is_default(const struct sw_json *source)
{
    return source->type == SW_JSON_STRING && strcmp(source->string, "default") == 0;
}

static void write_key(const struct sw_past_run *run, const struct sw_json *source,
                      struct sw_str *out)
{
    const struct sw_json *config = sw_past_run_fact(run, "config");
    sw_str_puts(out, "<tr><th scope=\"row\">");
    sw_html_text(out, source->key, source->key_len, false);
    sw_str_puts(out, "<td>");
    write_json(config ? sw_json_path(config, source->key) : NULL, out);
    sw_str_puts(out, "<td class=\"dim\">");
    if (source->type == SW_JSON_STRING) {
        sw_html_text(out, source->string, source->string_len, false);
    }
    sw_str_puts(out, "</tr>\n");
}

static void write_keys(const struct sw_past_run *run, bool defaults, struct sw_str *out)
{
    const struct sw_json *sources = sw_past_run_sources(run);
    sw_str_puts(out, "<div class=\"scroll\"><table class=\"keys\"><thead><tr><th "
                     "scope=\"col\">key<th scope=\"col\">value<th scope=\"col\">from</tr></thead>"
                     "<tbody>\n");
    for (const struct sw_json *s = sources ? sources->first : NULL; s; s = s->next) {
        if (is_default(s) == defaults) {
            write_key(run, s, out);
        }
    }
    sw_str_puts(out, "</tbody></table></div>\n");
}

static bool same_text(const struct sw_json *a, const struct sw_json *b)
{
    struct sw_str text[2] = {{0}, {0}};
    bool same = !a == !b;
    if (a && b) {
        sw_json_write(a, 0, &text[0]);
        sw_json_write(b, 0, &text[1]);
        same = strcmp(sw_str_text(&text[0]), sw_str_text(&text[1])) == 0;
    }
    sw_str_fini(&text[0]);
    sw_str_fini(&text[1]);
    return same;
}

static const struct sw_json *value_of(const struct sw_past_run *run, const char *key)
{
    const struct sw_json *config = sw_past_run_fact(run, "config");
    return config ? sw_json_path(config, key) : NULL;
}

/* All runs' value of a key, where they are not the same. */
static bool write_difference(const struct sw_page *page, const struct sw_json *source,
                             struct sw_str *out)
{
    const struct sw_json *first = value_of(&page->runs[0], source->key);
    bool same = true;
    for (int i = 1; i < page->n; i++) {
        same = same && same_text(first, value_of(&page->runs[i], source->key));
    }
    if (same) {
        return false;
    }
    sw_str_puts(out, "<tr><th scope=\"row\">");
    sw_html_text(out, source->key, source->key_len, false);
    for (int i = 0; i < page->n; i++) {
        sw_str_puts(out, "<td>");
        write_json(value_of(&page->runs[i], source->key), out);
    }
    sw_str_puts(out, "</tr>\n");
    return true;
}

/* Keys of all runs, each once: of a run those that no run before it has. */
static void write_differences(const struct sw_page *page, struct sw_str *out)
{
    bool any = false;
    sw_str_puts(out, "<div class=\"scroll\"><table class=\"keys\"><caption>Keys that "
                     "differ</caption><thead><tr><th scope=\"col\">key");
    for (int i = 0; i < page->n; i++) {
        sw_str_puts(out, "<th scope=\"col\">");
        sw_html_name(out, page->labels[i]);
    }
    sw_str_puts(out, "</tr></thead><tbody>\n");
    for (int i = 0; i < page->n; i++) {
        const struct sw_json *sources = sw_past_run_sources(&page->runs[i]);
        for (const struct sw_json *s = sources ? sources->first : NULL; s; s = s->next) {
            bool known = false;
            for (int k = 0; k < i; k++) {
                known = known || sw_json_get(sw_past_run_sources(&page->runs[k]), s->key);
            }
            any = (!known && write_difference(page, s, out)) || any;
        }
    }
    sw_str_printf(out, "</tbody></table></div>\n%s",
                  any ? "" : "<p>The configurations are the same.</p>\n");
}

sw_status sw_page_config(const struct sw_page *page, struct sw_str *out)
{
    sw_str_puts(out, "<section id=\"configuration\"><h2>Configuration</h2>\n");
    if (page->n > 1) {
        write_differences(page, out);
    }
    for (int i = 0; i < page->n; i++) {
        const struct sw_past_run *run = &page->runs[i];
        sw_page_run(page, i, out);
        if (!sw_past_run_sources(run)) {
            sw_str_puts(out, "<p class=\"dim\">The folder has no run.json, so the configuration is "
                             "not known.</p>\n");
            continue;
        }
        sw_str_puts(out, page->n > 1 ? "<details><summary>keys that were set</summary>\n" : "");
        write_keys(run, false, out);
        sw_str_puts(out, page->n > 1 ? "</details>\n" : "");
        sw_str_puts(out, "<details><summary>keys that have their default</summary>\n");
        write_keys(run, true, out);
        sw_str_puts(out, "</details>\n");
    }
    sw_str_puts(out, "</section>\n");
    return SW_OK;
}

/* ---- machine and data ---- */

static void write_fact(const struct sw_past_run *run, const char *name, const char *path,
                       enum sw_unit unit, struct sw_str *out)
{
    const struct sw_json *fact = sw_past_run_fact(run, path);
    char text[64];
    if (!fact) {
        return;
    }
    sw_str_printf(out, "<tr><th scope=\"row\">%s<td>", name);
    if (fact->type == SW_JSON_STRING) {
        sw_html_text(out, fact->string, fact->string_len, false);
    } else {
        sw_str_puts(out, sw_html_number(text, sizeof text, fact->number, unit));
    }
    sw_str_puts(out, "</tr>\n");
}

static void write_files(const struct sw_past_run *run, const char *path, const char *name,
                        struct sw_str *out)
{
    enum { MOST = 8 };
    const struct sw_json *files = sw_past_run_fact(run, path);
    int64_t n = 0;
    for (const struct sw_json *f = files ? files->first : NULL; f; f = f->next, n++) {
        const struct sw_json *label = sw_json_get(f, "name"), *bytes = sw_json_get(f, "bytes");
        char text[32];
        if (n < MOST && label && label->type == SW_JSON_STRING && bytes) {
            sw_str_printf(out, "<tr><th scope=\"row\">%s<td>", name);
            sw_html_name(out, label->string);
            sw_str_printf(out, ", %s</tr>\n", sw_format_bytes(text, sizeof text, bytes->number));
        }
    }
    if (n > MOST) {
        sw_str_printf(out, "<tr><th scope=\"row\">%s<td>and %lld more files</tr>\n", name,
                      (long long)(n - MOST));
    }
}

/* The share of the validation data that the figures of the page cover. */
static void write_coverage(const struct sw_past_run *run, struct sw_str *out)
{
    const double rows = sw_past_run_number(run, "validation.rows");
    const double of = sw_past_run_number(run, "validation.of");
    char text[2][48];
    if (isfinite(rows) && isfinite(of)) {
        sw_str_printf(out, "<tr><th scope=\"row\">validated<td>%s of %s rows</tr>\n",
                      sw_html_number(text[0], sizeof text[0], rows, SW_UNIT_COUNT),
                      sw_html_number(text[1], sizeof text[1], of, SW_UNIT_COUNT));
    }
}

static void write_starts(const struct sw_past_run *run, struct sw_str *out)
{
    const struct sw_json *starts = sw_past_run_fact(run, "starts");
    for (const struct sw_json *s = starts ? starts->first : NULL; s; s = s->next) {
        const struct sw_json *step = sw_json_get(s, "step"), *at = sw_json_get(s, "at");
        if (step && at && at->type == SW_JSON_STRING) {
            sw_str_printf(out, "<tr><th scope=\"row\">%s<td>",
                          step->integer > 0 ? "resumed" : "started");
            sw_html_text(out, at->string, at->string_len, false);
            sw_str_printf(out, step->integer > 0 ? ", at step %lld</tr>\n" : "</tr>\n",
                          (long long)step->integer);
        }
    }
}

static void write_facts(const struct sw_past_run *run, struct sw_str *out)
{
    static const struct {
        const char *name, *path;
        enum sw_unit unit;
    } facts[] = {
        {"ended", "end.why", SW_UNIT_COUNT},
        {"model", "model.name", SW_UNIT_COUNT},
        {"adapter", "model.adapter", SW_UNIT_COUNT},
        {"task", "model.task", SW_UNIT_COUNT},
        {"parameters", "model.parameters", SW_UNIT_COUNT},
        {"trained parameters", "model.trained", SW_UNIT_COUNT},
        {"dtype", "model.dtype", SW_UNIT_COUNT},
        {"tokenizer", "model.tokenizer", SW_UNIT_COUNT},
        {"vocabulary", "model.vocabulary", SW_UNIT_COUNT},
        {"micro-batches per step", "batch.micro_batches", SW_UNIT_COUNT},
        {"samples per micro-batch", "batch.micro_batch", SW_UNIT_COUNT},
        {"tokens per sample", "batch.tokens", SW_UNIT_COUNT},
        {"samples per epoch", "batch.samples", SW_UNIT_COUNT},
        {"ranks", "flags.ranks", SW_UNIT_COUNT},
        {"seed", "flags.seed", SW_UNIT_NUMBER},
        {"math fingerprint", "plan.fingerprint", SW_UNIT_COUNT},
        {"host", "machine.host", SW_UNIT_COUNT},
        {"processor", "machine.cpu", SW_UNIT_COUNT},
        {"processors", "machine.processors", SW_UNIT_COUNT},
        {"threads", "machine.threads", SW_UNIT_COUNT},
        {"memory", "machine.memory_bytes", SW_UNIT_BYTES},
        {"device", "machine.device", SW_UNIT_COUNT},
        {"kernels", "machine.kernels", SW_UNIT_COUNT},
        {"system", "machine.system", SW_UNIT_COUNT},
        {"spillway", "machine.spillway", SW_UNIT_COUNT},
    };
    sw_str_puts(out, "<div class=\"scroll\"><table class=\"keys\"><tbody>\n");
    write_starts(run, out);
    for (size_t i = 0; i < SW_LEN(facts); i++) {
        write_fact(run, facts[i].name, facts[i].path, facts[i].unit, out);
    }
    write_files(run, "data.files", "data", out);
    write_files(run, "data.val_files", "validation data", out);
    write_coverage(run, out);
    sw_str_puts(out, "<tr><th scope=\"row\">folder<td>");
    sw_html_name(out, run->path);
    sw_str_puts(out, "</tr>\n</tbody></table></div>\n");
}

sw_status sw_page_machine(const struct sw_page *page, struct sw_str *out)
{
    write_runs(page, "machine", "Model, data and machine", write_facts, out);
    return SW_OK;
}
