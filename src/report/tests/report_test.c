// SPDX-License-Identifier: Apache-2.0
// The page about a run, made of folders that are written here: no spike is lost, whatever a run
// holds is text, what a kill leaves has a page, and what is no run is refused by name.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "json/json.h"
#include "spillway/report.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

static void put(const char *run, const char *name, const char *text, size_t len)
{
    char path[2][TEST_PATH_CAP];
    test_join(path[0], test_folder(), run);
    assert_int_equal(sw_mkdirs(path[0]), SW_OK);
    test_join(path[1], path[0], name);
    FILE *file = fopen(path[1], "w"); /* a disk need not have it */
    assert_true(file && fwrite(text, 1, len, file) == len && fclose(file) == 0);
}

static void put_text(const char *run, const char *name, const char *text)
{
    put(run, name, text, strlen(text));
}

static sw_status write_report(const char *const *runs, int n, const char *output)
{
    char paths[4][TEST_PATH_CAP], *path = NULL;
    const char *list[4];
    for (int i = 0; i < n; i++) {
        test_join(paths[i], test_folder(), runs[i]);
        list[i] = paths[i];
    }
    const struct sw_report_options options = {.runs = list, .n_runs = n, .output = output};
    const sw_status st = sw_report_write(&options, &path);
    sw_text_free(path);
    return st;
}

/* The page of a run; freed by sw_free. */
static char *page_of(const char *run)
{
    char path[TEST_PATH_CAP], *text = NULL;
    size_t len = 0;
    const sw_status st = write_report(&run, 1, NULL);
    if (st < 0) {
        fail_msg("%s", sw_error_message());
    }
    snprintf(path, sizeof path, "%s/%s/report.html", test_folder(), run);
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    assert_int_equal(strlen(text), len);
    return text;
}

static void refused(const char *run, sw_status status, const char *says)
{
    assert_int_equal(write_report(&run, 1, NULL), status);
    if (!strstr(sw_error_message(), says)) {
        fail_msg("\"%s\", wanted \"%s\"", sw_error_message(), says);
    }
}

/* ---- curves ---- */

static void put_steps(const char *run, int n, int spike, int dip)
{
    struct sw_str text = {0};
    for (int i = 1; i <= n; i++) {
        const double loss = i == spike ? 3.0 : i == dip ? 1.0 : 2.0 + 0.01 * (i % 3);
        sw_str_printf(&text,
                      "{\"step\":%d,\"loss\":%.3f,\"grad_norm\":%.17g,\"lr\":0.001,\"skipped\":"
                      "false,\"step_ms\":100.5,\"tokens_per_s\":5000.25,\"device_bytes\":1000000,"
                      "\"resident_bytes\":2000000,\"hidden\":0.5,\"bound\":\"%s\"%s}\n",
                      i, loss, 1 + 0.1 * (i % 7), i % 2 ? "read" : "compute",
                      i % 1000 == 0 ? ",\"val_loss\":2.5,\"val_f1\":0.25" : "");
    }
    assert_false(text.failed);
    put(run, "metrics.jsonl", text.ptr, text.len);
    sw_str_fini(&text);
}

/* Least and greatest row of a path. */
static void rows_of(const char *d, long *out_min, long *out_max)
{
    long y = 0;
    *out_min = 1 << 20;
    *out_max = -1;
    while (*d != '"') {
        const char kind = *d++;
        char *end;
        long dx = 0, dy = 0;
        if (kind == 'M' || kind == 'l') {
            dx = strtol(d, &end, 10);
            d = end;
        }
        (void)dx;
        if (kind != 'h') {
            dy = strtol(d, &end, 10);
            y = kind == 'M' ? dy : y + dy;
        } else {
            strtol(d, &end, 10);
        }
        d = end;
        *out_min = y < *out_min ? y : *out_min;
        *out_max = y > *out_max ? y : *out_max;
    }
}

static const char *path_of(const char *page, const char *title, const char *class)
{
    char begin[128];
    snprintf(begin, sizeof begin, "<h3>%s</h3>", title);
    const char *at = strstr(page, begin);
    assert_non_null(at);
    snprintf(begin, sizeof begin, "<path class=\"%s\" d=\"", class);
    at = strstr(at, begin);
    assert_non_null(at);
    return at + strlen(begin);
}

/* One step of 100,000 up, one down: the axis has them at its ends, and so has the curve. */
static void no_spike_is_lost(void **state)
{
    (void)state;
    long top, bottom;
    put_steps("long", 100000, 61234, 30001);
    char *page = page_of("long");
    assert_true(strlen(page) < 3 << 20);
    rows_of(path_of(page, "Loss", "raw c0"), &top, &bottom);
    assert_in_range(top, 36, 38); /* 4% of the range are left free at either end */
    assert_in_range(bottom, 962, 964);
    assert_non_null(strstr(page, "<h3>val_f1</h3>"));
    assert_non_null(strstr(page, "lowest 1 at step 30001"));
    sw_free(page);
}

/* Only runs of models with experts have their charts. */
static void routers_have_charts(void **state)
{
    static const char *const titles[] = {"<h3>Load of experts</h3>", "<h3>Entropy of experts</h3>",
                                         "<h3>Load-balancing loss</h3>"};
    (void)state;
    put_text("experts", "metrics.jsonl",
             "{\"step\":1,\"loss\":1,\"router_aux_loss\":1.5,\"expert_least_load\":0.5,"
             "\"expert_most_load\":2,\"router_entropy\":0.9}\n"
             "{\"step\":2,\"loss\":1,\"router_aux_loss\":1.25,\"expert_least_load\":0.75,"
             "\"expert_most_load\":1.5,\"router_entropy\":0.95}\n");
    put_steps("dense", 3, 1, 2);
    char *page = page_of("experts"), *other = page_of("dense");
    for (size_t i = 0; i < SW_LEN(titles); i++) {
        assert_non_null(strstr(page, titles[i]));
        assert_null(strstr(other, titles[i]));
    }
    assert_null(strstr(page, "Dropped choices"));
    assert_null(strstr(page, "Router z-loss"));
    sw_free(page);
    sw_free(other);
}

/* A run on pictures has images in the place of tokens; beside a run on texts both are named. */
static void pictures_have_a_speed(void **state)
{
    static const char *const runs[] = {"pictures", "texts"};
    char path[TEST_PATH_CAP], *both = NULL;
    size_t len;
    (void)state;
    put_text("pictures", "metrics.jsonl",
             "{\"step\":1,\"loss\":1,\"step_ms\":500,\"images_per_s\":64}\n"
             "{\"step\":2,\"loss\":1,\"step_ms\":500,\"images_per_s\":64}\n");
    put_steps("texts", 3, 1, 2);
    char *page = page_of("pictures"), *other = page_of("texts");
    assert_non_null(strstr(page, "<dt>Images per second"));
    assert_non_null(strstr(page, "64 images; all steps took"));
    assert_non_null(strstr(page, "<h3>Images per second</h3>"));
    assert_null(strstr(page, "okens"));
    assert_null(strstr(other, "Images per second"));
    test_join(path, test_folder(), "speeds.html");
    assert_int_equal(write_report(runs, 2, path), SW_OK);
    assert_int_equal(sw_file_read(path, &both, &len), SW_OK);
    assert_non_null(strstr(both, ">tokens/s or images/s<"));
    assert_non_null(strstr(both, "<td class=\"n\">64<"));
    sw_free(page);
    sw_free(other);
    sw_free(both);
}

static void runs_are_laid_over_each_other(void **state)
{
    (void)state;
    static const char *const runs[] = {"long", "short"};
    char path[TEST_PATH_CAP], *page = NULL;
    size_t len;
    put_steps("short", 160, 10, 20);
    test_join(path, test_folder(), "both.html");
    assert_int_equal(write_report(runs, 2, path), SW_OK);
    assert_int_equal(sw_file_read(path, &page, &len), SW_OK);
    assert_non_null(path_of(page, "Loss", "raw c0"));
    assert_non_null(path_of(page, "Loss", "raw c1"));
    assert_non_null(strstr(page, "<h1>2 runs</h1>"));
    sw_free(page);
}

/* ---- whatever a run holds is text ---- */

static bool is_our_tag(const char *name, size_t len)
{
    static const char *const tags[] = {
        "!doctype", "html",    "head",  "meta",    "title", "style", "body",    "header",
        "h1",       "p",       "nav",   "a",       "main",  "dl",    "div",     "dt",
        "dd",       "small",   "em",    "section", "h2",    "h3",    "figure",  "figcaption",
        "span",     "svg",     "desc",  "path",    "rect",  "i",     "b",       "u",
        "table",    "thead",   "tbody", "tr",      "th",    "td",    "caption", "bdi",
        "details",  "summary", "pre",   "footer",  "ul",    "li",    "code"};
    for (size_t i = 0; i < SW_LEN(tags); i++) {
        if (strlen(tags[i]) == len && strncmp(name, tags[i], len) == 0) {
            return true;
        }
    }
    return false;
}

static void only_our_markup(const char *page)
{
    for (const char *at = page; (at = strchr(at, '<')) != NULL; at++) {
        const char *name = at + 1 + (at[1] == '/');
        const size_t len = strcspn(name, " >\n");
        if (!is_our_tag(name, len)) {
            fail_msg("markup of nobody's: %.60s", at);
        }
    }
    for (const char *at = page; *at; at++) {
        const unsigned char c = (unsigned char)*at;
        assert_true((c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t');
    }
    assert_int_equal(sw_json_utf8_check(page, strlen(page)), strlen(page));
    static const char *const loads[] = {"src=", "url(", "@import", "http:", "https:", "<link"};
    for (size_t i = 0; i < SW_LEN(loads); i++) {
        assert_null(strstr(page, loads[i]));
    }
}

#define EVIL "<script>alert(1)</script>]]>\\\"'><b onload=x>&amp;"

static void hostile_words_are_text(void **state)
{
    (void)state;
    static const char run[] = "a<script>alert(1)<\\script>\"'\x01\xff&lt;";
    static const char samples[] = "{\"step\":1,\"prompt\":\"" EVIL "\",\"text\":\"" EVIL
                                  "\\u0001\\u009b\\ufffe\\n\\u202e\"}\n"
                                  "no JSON \xff\xfe <script>\n";
    static const char facts[] =
        "{\"model\":{\"name\":\"" EVIL "\",\"dtype\":\"<i>\"},\"machine\":{\"cpu\":\"" EVIL
        "\",\"host\":\"</td><script>\"},\"config\":{\"a\":{\"b\":\"" EVIL "\"},\"<x>\":1},"
        "\"source\":{\"a.b\":\"" EVIL "\",\"<x>\":\"<script>\"},\"starts\":[{\"step\":0,\"at\":"
        "\"<script>\"}],\"data\":{\"files\":[{\"name\":\"" EVIL "\",\"bytes\":3}]},"
        "\"trace\":\"/nowhere/<script>\"}";
    static const char metrics[] =
        "{\"step\":1,\"loss\":2.5,\"val_loss\":1,\"val_<script>\":0.5,\"bound\":\"<script>\"}\n";
    put_text(run, "samples.jsonl", samples);
    put_text(run, "run.json", facts);
    put_text(run, "metrics.jsonl", metrics);
    char *page = page_of(run);
    only_our_markup(page);
    assert_non_null(strstr(page, "&lt;script&gt;alert(1)&lt;/script&gt;]]&gt;&quot;&#39;"));
    assert_non_null(strstr(page, "&lt;b onload=x&gt;&amp;amp;"));
    assert_non_null(strstr(page, "val_&lt;script&gt;"));
    assert_non_null(strstr(page, "no JSON \ufffd\ufffd &lt;script&gt;"));
    sw_free(page);
}

/* ---- what is there, and what is not ---- */

static void a_killed_run_has_a_page(void **state)
{
    (void)state;
    put_text("cut", "run.json", "{\"flags\":{\"steps\":10},\"model\":{\"name\":\"m\"}}\n");
    char *page = page_of("cut"); /* before its first step */
    assert_non_null(strstr(page, "no step yet"));
    sw_free(page);
    put_text("cut", "metrics.jsonl",
             "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":null}\n{\"step\":3,\"lo");
    put_text("cut", "samples.jsonl", "{\"step\":1,\"prompt\":\"p\",\"text\":\"kept\"}\n{\"step\"");
    page = page_of("cut");
    assert_non_null(strstr(page, "2 <em>of 10</em>"));
    assert_non_null(strstr(page, "not finished"));
    assert_non_null(strstr(page, "kept"));
    sw_free(page);
}

static void what_is_no_run_is_refused(void **state)
{
    (void)state;
    char path[TEST_PATH_CAP];
    const char *cut = "cut";
    put_text("other", "notes.txt", "mine");
    refused("nowhere", SW_E_ARG, "nowhere does not exist");
    refused("other", SW_E_ARG, "other is not a run");
    refused("other/notes.txt", SW_E_ARG, "notes.txt is not a run");
    put_text("bad", "metrics.jsonl", "{\"step\":1,\"loss\":1}\n{\"step\":\n{\"step\":3}\n");
    refused("bad", SW_E_FORMAT, "metrics.jsonl: line 2 is not a JSON object");
    put_text("bad", "metrics.jsonl", "{\"step\":2}\n{\"step\":2}\n");
    refused("bad", SW_E_FORMAT, "line 2 has step 2 after step 2");
    put_text("bad", "metrics.jsonl", "{\"step\":9223372036854775807}\n");
    refused("bad", SW_E_FORMAT, "line 1 has step 9223372036854775807; wanted 0 to");
    put_text("bad", "metrics.jsonl", "{\"loss\":2}\n");
    refused("bad", SW_E_FORMAT, "line 1 has no \"step\"");
    test_join(path, test_folder(), "other/notes.txt");
    assert_int_equal(write_report(&cut, 1, path), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "is not a report"));
    test_join(path, test_folder(), "cut/report.html"); /* one of ours is replaced */
    assert_int_equal(write_report(&cut, 1, path), SW_OK);
    assert_int_equal(write_report(&cut, 0, NULL), SW_E_ARG);
}

/* Each request for memory fails once: nothing is lost, and the page before stays. */
static void lack_of_memory_is_survived(void **state)
{
    (void)state;
    struct sw_alloc_stats before, after;
    const char *runs[] = {"cut", "short"};
    char path[TEST_PATH_CAP];
    bool done = false;
    test_join(path, test_folder(), "memory.html");
    sw_alloc_get_stats(&before);
    for (int64_t n = 1; !done && n < 4000; n++) {
        sw_alloc_fail_nth(n);
        const sw_status st = write_report(runs, 2, path);
        sw_alloc_fail_nth(0);
        done = st == SW_OK;
        if (!done && st != SW_E_NOMEM) {
            fail_msg("request %lld: status %d, %s", (long long)n, st, sw_error_message());
        }
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
    assert_true(done);
}

/* ---- comparing ---- */

static void compare(const char *a, const char *b, bool json, bool same, const char *says)
{
    char paths[2][TEST_PATH_CAP], *text = NULL;
    bool found = !same;
    test_join(paths[0], test_folder(), a);
    test_join(paths[1], test_folder(), b);
    assert_int_equal(sw_compare_text(paths[0], paths[1], json, &found, &text), SW_OK);
    if (found != same || !strstr(text, says)) {
        fail_msg("same %d, wanted %d; \"%s\", wanted \"%s\"", found, same, text, says);
    }
    sw_text_free(text);
}

static void put_pair(const char *b_facts, const char *b_metrics)
{
    static const char facts[] = "{\"config\":{\"optimizer\":{\"lr\":0.001}},\"source\":{"
                                "\"optimizer.lr\":\"ds.json:4\"},\"machine\":{\"host\":\"x\"},"
                                "\"plan\":{\"programs\":[{\"kind\":\"train\",\"flops\":5}]}}";
    static const char metrics[] =
        "{\"step\":1,\"loss\":2.5,\"grad_norm\":1.0000000000000002,\"step_ms\":7}\n"
        "{\"step\":2,\"loss\":null,\"grad_norm\":0.5,\"step_ms\":7}\n";
    put_text("a", "run.json", facts);
    put_text("a", "metrics.jsonl", metrics);
    put_text("b", "run.json", b_facts ? b_facts : facts);
    put_text("b", "metrics.jsonl", b_metrics ? b_metrics : metrics);
}

static void runs_are_compared(void **state)
{
    (void)state;
    put_pair(NULL, NULL);
    compare("a", "b", false, true, "no compared value differs");
    compare("a", "b", true, true, "{\"same\":true,");
    put_pair(NULL, "{\"step\":1,\"loss\":2.5,\"grad_norm\":1,\"step_ms\":9}\n"
                   "{\"step\":2,\"loss\":null,\"grad_norm\":0.5}\n"); /* one bit */
    compare("a", "b", false, false, "the first that differs is step 1");
    compare("a", "b", true, false,
            "\"first\":{\"step\":1,\"loss\":[2.5,2.5],\"grad_norm\":[1.0000000000000002,1.0]}");
    put_pair(NULL, "{\"step\":1,\"loss\":2.5,\"grad_norm\":1.0000000000000002}\n");
    compare("a", "b", false, false, "steps: 1 of A alone");
    put_pair(NULL, "{\"step\":1,\"loss\":2.5,\"grad_norm\":1.0000000000000002}\n"
                   "{\"step\":2,\"loss\":\"NaN\",\"grad_norm\":0.5}\n"); /* null in older runs */
    compare("a", "b", false, true, "no compared value differs");
    put_pair(NULL, "{\"step\":1,\"loss\":2.5,\"grad_norm\":1.0000000000000002}\n"
                   "{\"step\":2,\"loss\":\"Infinity\",\"grad_norm\":0.5}\n");
    compare("a", "b", false, false, "B: loss inf, norm 0.5");
    compare("a", "b", true, false, "\"loss\":[\"NaN\",\"Infinity\"],\"grad_norm\":[0.5,0.5]");
    put_text("a", "metrics.jsonl", "{\"step\":2,\"loss\":\"-Infinity\",\"grad_norm\":0.5}\n");
    put_text("b", "metrics.jsonl", "{\"step\":2,\"loss\":\"Infinity\",\"grad_norm\":0.5}\n");
    compare("a", "b", false, false, "A: loss -inf, norm 0.5");
    put_pair("{\"config\":{\"optimizer\":{\"lr\":0.002}},\"source\":{\"optimizer.lr\":\"--set\"},"
             "\"machine\":{\"host\":\"y\"},\"plan\":{\"programs\":[{\"kind\":\"train\",\"flops\":6}"
             "]}}",
             NULL);
    compare("a", "b", false, false, "0.001 (ds.json:4)  0.002 (--set)");
    compare("a", "b", false, false, "programs.train.0.flops");
    compare("a", "b", true, false,
            "{\"of\":\"plan\",\"key\":\"programs.train.0.flops\",\"a\":\"5\",\"b\":\"6\"}");
}

/* Found by fuzzing: a name with a NUL in it was missing on both sides. */
static void a_name_may_hold_a_nul(void **state)
{
    (void)state;
    put_pair("{\"data\":{\"a\\u0000b\":1}}", NULL);
    compare("b", "b", false, true, "no compared value differs");
}

static void a_run_is_no_plan(void **state)
{
    (void)state;
    char paths[2][TEST_PATH_CAP], *text = NULL;
    bool same;
    test_join(paths[0], test_folder(), "a");
    test_join(paths[1], test_folder(), "a/run.json");
    assert_int_equal(sw_compare_text(paths[0], paths[1], false, &same, &text), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "wanted two runs, or two plans"));
    assert_int_equal(sw_compare_text(paths[1], paths[1], false, &same, &text), SW_E_FORMAT);
    test_join(paths[1], test_folder(), "nowhere");
    assert_int_equal(sw_compare_text(paths[0], paths[1], false, &same, &text), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "nowhere does not exist"));
}

/* ---- lanes ---- */

static void a_traced_step_has_lanes(void **state)
{
    (void)state;
    char facts[TEST_PATH_CAP + 64];
    static const char trace[] =
        "{\"traceEvents\":[\n"
        "{\"ph\":\"X\",\"pid\":0,\"tid\":56,\"ts\":0,\"dur\":1000,\"name\":\"step 2\",\"cat\":"
        "\"step\"},\n"
        "{\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":0,\"dur\":500,\"name\":\"matmul\",\"cat\":"
        "\"forward\",\"args\":{\"name\":\"x\"}},\n"
        "{\"ph\":\"X\",\"pid\":0,\"tid\":32,\"ts\":250,\"dur\":500,\"name\":\"load\",\"cat\":"
        "\"backward\"},\n"
        "{\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":0,\"dur\":9,\"name\":\"other\",\"cat\":"
        "\"forward\"}]}\n";
    put_text("traced", "metrics.jsonl", "{\"step\":1,\"loss\":1}\n");
    put_text("traced", "trace.json", trace);
    snprintf(facts, sizeof facts, "{\"trace\":\"/nowhere/trace.json\"}"); /* it has moved */
    put_text("traced", "run.json", facts);
    char *page = page_of("traced");
    assert_non_null(strstr(page, "<h3>Step 2, 1 ms</h3>"));
    assert_non_null(strstr(page, "<span>compute <small>50 %</small></span>"));
    assert_non_null(strstr(page, "<span>read <small>50 %</small></span>"));
    assert_non_null(strstr(page, "<path class=\"k0\" d=\"M0 44V4H360V44z\"/>"));
    assert_non_null(strstr(page, "<path class=\"k1\" d=\"M180 92V52H540V92z\"/>"));
    assert_null(strstr(page, "other</"));
    sw_free(page);
    /* two stages of a rank each; they do not make up three ranks */
    snprintf(
        facts, sizeof facts,
        "{\"trace\":\"/nowhere/trace.json\",\"config\":{\"spillway\":{\"mesh\":{\"pipe\":2}}}}");
    put_text("traced", "run.json", facts);
    page = page_of("traced");
    assert_non_null(strstr(page, "<span>stage 0 <small>50 %</small></span>"
                                 "<span>stage 1 <small>1 %</small></span>"));
    assert_non_null(strstr(page, "<title>Computation of each stage of the pipeline</title>"));
    assert_non_null(strstr(page, "<span>compute <small>50 %</small></span>"));
    sw_free(page);
    *strstr(facts, "2}}}}") = '3';
    put_text("traced", "run.json", facts);
    page = page_of("traced");
    assert_null(strstr(page, "stage 0"));
    sw_free(page);
    put_text("traced", "trace.json", "{\"traceEvents\":[{\"ph\"");
    page = page_of("traced");
    assert_non_null(strstr(page, "is not shown: "));
    sw_free(page);
}

/* Ten thousand slices, each narrower than a pixel, of all kinds by turns: nothing is drawn that is
 * narrower than three of the 720 columns, and what is drawn keeps its share of the time. */
static void slivers_are_merged(void **state)
{
    (void)state;
    static const char *const kinds[] = {"forward", "backward", "update", "wait"};
    enum { SLICES = 10000 };
    struct sw_str trace = {0};
    sw_str_puts(&trace, "{\"traceEvents\":[{\"ph\":\"X\",\"pid\":0,\"tid\":56,\"ts\":0,\"dur\":"
                        "1000000,\"name\":\"step 2\",\"cat\":\"step\"}");
    for (int i = 0; i < SLICES; i++) {
        const int kind = (int)(sw_philox_u64(1, 2, (uint64_t)i) % 4);
        sw_str_printf(&trace,
                      ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%d,\"dur\":%d,\"name\":"
                      "\"op\",\"cat\":\"%s\"}",
                      8 * (i % 3), i * 100, 50 + i % 50, kinds[kind]);
    }
    sw_str_puts(&trace, "]}");
    put_text("slivers", "metrics.jsonl", "{\"step\":1,\"loss\":1}\n");
    put("slivers", "trace.json", trace.ptr, trace.len);
    put_text("slivers", "run.json", "{\"trace\":\"/nowhere/trace.json\"}");
    sw_str_fini(&trace);
    char *page = page_of("slivers");
    int n_shapes = 0;
    for (const char *d = page; (d = strstr(d, "<path class=\"k"));) {
        d = strstr(d, " d=\"") + 4;
        for (long from = 0, to; *d != '"';) {
            assert_int_equal(*d, 'M');
            from = strtol(d + 1, (char **)&d, 10);
            d += strcspn(d, "V");
            while (*d == 'V' && strspn(d + 1, "0123456789") > 0) {
                d += 1 + strspn(d + 1, "0123456789");
                if (*d == 'H') {
                    to = strtol(d + 1, (char **)&d, 10);
                    assert_true(to - from >= 3);
                    from = to;
                }
            }
            assert_int_equal(*d++, 'z');
            n_shapes++;
        }
    }
    assert_in_range(n_shapes, 3, 3 * 240);
    sw_free(page);
}

/* Parts of a tier that would be narrower than a pixel are one part, or none; words name each. */
static void slivers_of_memory_are_merged(void **state)
{
    (void)state;
    put_text("memory", "metrics.jsonl", "{\"step\":1,\"loss\":1}\n");
    put_text("memory", "run.json",
             "{\"memory\":{\"device\":{\"parameters\":1000000,\"optimizer\":3000,\"gradients\":"
             "4000,\"other\":1,\"planned\":1007001}}}");
    char *page = page_of("memory");
    double sum = 0;
    for (const char *i = page; (i = strstr(i, "style=\"width:"));) {
        const double width = strtod(i + strlen("style=\"width:"), (char **)&i);
        assert_true(width >= 0.5);
        sum += width;
    }
    assert_true(sum > 99.9 && sum < 100.1);
    assert_non_null(strstr(page, "title=\"smaller parts 6.8 KiB\""));
    assert_non_null(strstr(page, ">gradients 3.9 KiB<"));
    assert_non_null(strstr(page, ">constants and caches 1 B<"));
    sw_free(page);
}

/* ---- axes ---- */

/* Labels of the next axis of a class: four to six, each once, in order, within the picture. */
static const char *check_axis(const char *at, const char *class, const char *property, int least)
{
    char begin[64], labels[8][64];
    double last = NAN;
    int n = 0;
    snprintf(begin, sizeof begin, "<div class=\"%s\"", class);
    at = strstr(at, begin);
    assert_non_null(at);
    const char *end = strstr(at, "</div>");
    for (const char *s = at; (s = strstr(s, "<span")) && s < end; n++) {
        assert_in_range(n, 0, 5);
        s = strstr(s, property);
        const double where = strtod(s + strlen(property), (char **)&s);
        assert_true(where >= 0 && where <= 100 && where != last);
        last = where;
        s = strchr(s, '>') + 1;
        snprintf(labels[n], sizeof labels[n], "%.*s", (int)strcspn(s, "<"), s);
        for (int i = 0; i < n; i++) {
            assert_string_not_equal(labels[i], labels[n]);
        }
    }
    if (n < least) {
        fail_msg("%d ticks, wanted %d at least: %.*s", n, least, (int)(end - at), at);
    }
    return end;
}

/* Runs of n steps from `first` on, whose values lie between lo and hi, or on them. */
static void check_axes(int64_t first, int64_t n, double lo, double hi, double typical)
{
    struct sw_str text = {0};
    for (int64_t i = 0; i < n; i++) {
        const double v = i == 0 ? lo : i == n - 1 ? hi : typical;
        sw_str_printf(&text,
                      "{\"step\":%lld,\"loss\":%.17g,\"lr\":%.17g,\"step_ms\":%.17g,"
                      "\"tokens_per_s\":%.17g,\"resident_bytes\":%.17g}\n",
                      (long long)(first + i), v, v, fabs(v), fabs(v), fabs(v));
    }
    put("axes", "metrics.jsonl", text.ptr, text.len);
    sw_str_fini(&text);
    char *page = page_of("axes");
    int n_charts = 0;
    for (const char *at = page; (at = strstr(at, "<div class=\"plot\">")); n_charts++) {
        at = check_axis(at, "y", "top:", 4);
        at = check_axis(at, "x", "left:", n < 4 ? (int)n : 4);
    }
    assert_int_equal(n_charts, 5);
    sw_free(page);
}

static void axes_have_four_to_six_ticks(void **state)
{
    (void)state;
    static const double ranges[][3] = {{0, 0, 0},
                                       {1, 1, 1},
                                       {-1, 1, 0},
                                       {2.5, 2.5000001, 2.5},
                                       {1e-9, 3e-9, 2e-9},
                                       {0, 1e300, 5},
                                       {-1e308, 1e308, 0},
                                       {1, 1 + 1e-15, 1},
                                       {9999, 10001, 1e4},
                                       {0.1, 700, 0.2},
                                       {1e-12, 1e9, 1e-11},
                                       {1e-300, 1e300, 1e-299},
                                       {1e-7, 1e-3, 1e-7},
                                       {5e-324, 1, 1e-320},
                                       {60000, 61000, 60500},
                                       {1048576, 3e9, 2e9},
                                       {999999, 1000001, 1e6}};
    for (size_t i = 0; i < SW_LEN(ranges); i++) {
        check_axes(1, 40, ranges[i][0], ranges[i][1], ranges[i][2]);
    }
    for (int64_t n = 1; n <= 40; n += n < 8 ? 1 : 8) {
        check_axes(1 + n * n, n, 1, 1 + (double)n * 0.37, 1);
    }
    for (int i = 0; i < 24; i++) { /* ranges of all lengths and places, plain and logarithmic */
        const double lo = (double)(sw_philox_u64(3, 1, (uint64_t)i) % 1000) / 7;
        const double length = pow(10, (double)(sw_philox_u64(3, 2, (uint64_t)i) % 700) / 100 - 3);
        check_axes(1, 30, lo, lo + length, i % 2 ? lo + length : lo);
    }
}

/* ---- cards ---- */

/* Cards grow into what is left of their row, so no place in a row stays empty. */
static void cards_fill_the_grid(void **state)
{
    (void)state;
    static const char *const rules[] = {
        ".tiles{display:flex;flex-wrap:wrap;",  ".tile{flex:1 1 ",
        ".charts{display:flex;flex-wrap:wrap;", ".charts .chart{flex:1 1 min(100%,",
        ".texts{display:flex;flex-wrap:wrap;",  ".texts div{flex:1 1 min(100%,"};
    char *page = page_of("axes");
    for (size_t i = 0; i < SW_LEN(rules); i++) {
        assert_non_null(strstr(page, rules[i]));
    }
    assert_null(strstr(page, "auto-fit"));
    assert_null(strstr(page, "<div class=\"charts\">\n</div>"));
    sw_free(page);
}

/* ---- names and numbers ---- */

/* Names of runs and of operations: no markup, no turning of what stands behind them, no character
 * cut in two. */
static void names_do_not_break_the_page(void **state)
{
    (void)state;
    char long_name[201], op[64] = "", trace[512];
    memset(long_name, 'w', 200);
    long_name[200] = '\0';
    for (int i = 0; i < 30; i++) {
        strcat(op, "\u00e9");
    }
    const char *runs[] = {"<", "\u202e\u05d0\u2066<title>\t", long_name};
    char *path = NULL, *page = NULL, full[3][TEST_PATH_CAP], output[TEST_PATH_CAP];
    size_t len = 0;
    snprintf(trace, sizeof trace,
             "{\"traceEvents\":[{\"ph\":\"X\",\"pid\":0,\"tid\":56,\"ts\":0,\"dur\":9,\"name\":"
             "\"step 2\"},{\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":0,\"dur\":9,\"name\":\"%s\","
             "\"cat\":\"forward\"}]}",
             op);
    for (int i = 0; i < 3; i++) {
        put_text(i ? runs[i] : "<//script>", "metrics.jsonl", "{\"step\":1,\"loss\":1}\n");
        put_text(i ? runs[i] : "<//script>", "trace.json", trace);
        put_text(i ? runs[i] : "<//script>", "run.json", "{\"trace\":\"/nowhere/trace.json\"}");
        test_join(full[i], test_folder(), i ? runs[i] : "</script>");
    }
    test_join(output, test_folder(), "names.html");
    const char *list[] = {full[0], full[1], full[2]};
    const struct sw_report_options options = {.runs = list, .n_runs = 3, .output = output};
    assert_int_equal(sw_report_write(&options, &path), SW_OK);
    sw_text_free(path);
    assert_int_equal(sw_file_read(output, &page, &len), SW_OK);
    only_our_markup(page);
    assert_null(strstr(page, "</script"));
    assert_null(strstr(page, "\u202e"));
    assert_null(strstr(page, "\u2066"));
    assert_non_null(strstr(page, "script&gt;"));
    assert_non_null(strstr(page, "\u05d0\ufffd&lt;title&gt;\ufffd"));
    assert_non_null(strstr(page, "\u00e9\u2026</bdi>")); /* cut behind a character */
    assert_null(strstr(page, "\u00e9\ufffd"));
    assert_non_null(strstr(page, long_name));
    /* wherever a name may stand it may be broken */
    assert_non_null(strstr(page, "h1{font-size:clamp(1.5rem,3vw,2.1rem);line-height:1.2;margin:0;"
                                 "overflow-wrap:anywhere}"));
    assert_non_null(strstr(page, ".runs tbody th{overflow-wrap:anywhere"));
    sw_free(page);
}

static void huge_numbers_are_shown(void **state)
{
    (void)state;
    put_text("huge", "metrics.jsonl", "{\"step\":1,\"loss\":1e300}\n");
    put_text("huge", "run.json",
             "{\"model\":{\"parameters\":1e300,\"trained\":-12345678},\"flags\":{\"steps\":"
             "123456789012345678}}");
    char *page = page_of("huge");
    assert_non_null(strstr(page, "<td>1e+300</tr>"));
    assert_non_null(strstr(page, "<td>-12,345,678</tr>"));
    assert_non_null(strstr(page, "123,456,789,012,345,680"));
    sw_free(page);
}

/* Found by fuzzing: elements of a list have no keys. */
static void sources_that_are_a_list_are_not_known(void **state)
{
    (void)state;
    put_text("list", "run.json", "{\"config\":{\"a\":1},\"source\":[\"x\",2]}");
    char *page = page_of("list");
    assert_non_null(strstr(page, "so the configuration is not known"));
    sw_free(page);
    compare("list", "list", false, true, "");
}

/* Figures of a part of the validation data say so; of all of it they need not. */
static void a_part_of_the_validation_is_named(void **state)
{
    (void)state;
    static const char *const runs[] = {"part", "whole"};
    static const char *const jsons[] = {
        "{\"spillway_run\":1,\"validation\":{\"rows\":128,\"of\":200}}\n",
        "{\"spillway_run\":1,\"validation\":{\"rows\":200,\"of\":200}}\n"};
    for (int i = 0; i < 2; i++) {
        put_text(runs[i], "metrics.jsonl",
                 "{\"step\":1,\"loss\":2.0,\"val_loss\":2.5}\n{\"step\":2,\"loss\":1.5}\n");
        put_text(runs[i], "run.json", jsons[i]);
        char *page = page_of(runs[i]);
        assert_true((strstr(page, "at step 1; of 128 of 200 rows<") != NULL) == (i == 0));
        assert_non_null(strstr(page, i == 0 ? "<td>128 of 200 rows<" : "<td>200 of 200 rows<"));
        sw_free(page);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_part_of_the_validation_is_named),
    cmocka_unit_test(no_spike_is_lost),
    cmocka_unit_test(routers_have_charts),
    cmocka_unit_test(pictures_have_a_speed),
    cmocka_unit_test(runs_are_laid_over_each_other),
    cmocka_unit_test(hostile_words_are_text),
    cmocka_unit_test(a_killed_run_has_a_page),
    cmocka_unit_test(what_is_no_run_is_refused),
    cmocka_unit_test(lack_of_memory_is_survived),
    cmocka_unit_test(runs_are_compared),
    cmocka_unit_test(a_name_may_hold_a_nul),
    cmocka_unit_test(a_run_is_no_plan),
    cmocka_unit_test(a_traced_step_has_lanes),
    cmocka_unit_test(slivers_are_merged),
    cmocka_unit_test(slivers_of_memory_are_merged),
    cmocka_unit_test(axes_have_four_to_six_ticks),
    cmocka_unit_test(cards_fill_the_grid),
    cmocka_unit_test(names_do_not_break_the_page),
    cmocka_unit_test(huge_numbers_are_shown),
    cmocka_unit_test(sources_that_are_a_list_are_not_known),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
