// SPDX-License-Identifier: Apache-2.0
// Published runs beside what is predicted for them, in their own accounting and in ours.
#include "look/published.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/json.h"
#include "look/private.h"
#include "spillway/look.h"

/* A run and its predictions. Those that are not there have a reason. Of a run with a range of sizes
 * there are two: each end has a result. */
struct result {
    struct pub_run run; /* with what was sought for it */
    char id[80];        /* with the size, of one of two */
    struct pub_prediction theirs, ours;
    char why[2][512]; /* by accounting: why there is no prediction; "" = there is one */
    double error;     /* predicted over published, less 1; of a range, beyond its end */
    bool is_judged, is_met;
};

struct report {
    const struct sw_plan_published *wanted;
    const struct pub_file *file;
    const struct sw_accounting *accounting; /* instead of each group's own */
    bool has_accounting;
    struct result *results;
    int n, n_capacities;
};

/* ---- results ---- */

static double error_of(const struct pub_run *run, double tflops)
{
    const double nearest = fmin(fmax(tflops, run->tflops[0]), run->tflops[1]);
    return run->tflops[0] > 0 ? tflops / nearest - 1 : 0;
}

/* The one that was asked for, or that of the group. NULL = ours */
static const struct sw_accounting *accounting_of(const struct report *r, const struct pub_run *run)
{
    return r->has_accounting     ? r->accounting
           : run->setup.pipe > 1 ? run->group->pipelines
                                 : run->group->accounting;
}

/* Takes the micro-batch and the chunks that were searched for an accounting whose plan is ours. */
static void take_found(const struct pub_setup *theirs, const struct pub_prediction *p,
                       struct pub_setup *ours)
{
    const int64_t cuts = sw_max_i64(1, theirs->tensor) * sw_max_i64(1, theirs->pipe);
    if (theirs->global_batch > 0 && theirs->rows == 0) {
        ours->micro_batch = (int64_t)(p->rows * (double)cuts + 0.5);
    }
    ours->chunks = theirs->pipe > 1 ? p->chunks : ours->chunks;
}

static void copy(const struct pub_prediction *from, struct pub_prediction *to)
{
    *to = *from;
    to->assumed = (struct sw_str){0};
    sw_str_puts(&to->assumed, sw_str_text(&from->assumed));
}

/* In an accounting; settings that were sought have a prediction of ours, and words. */
static sw_status predict_theirs(const struct sw_accounting *by, bool is_sought, struct result *out)
{
    struct pub_run theirs = out->run;
    theirs.setup = by ? out->run.setup : out->run.ours;
    if (is_sought && !by) {
        copy(&out->ours, &out->theirs);
        return SW_OK;
    }
    SW_TRY(sw_published_predict(&theirs, by, NULL, &out->theirs));
    if (is_sought) {
        sw_str_fini(&out->theirs.assumed);
        sw_str_puts(&out->theirs.assumed, sw_str_text(&out->ours.assumed));
    }
    return SW_OK;
}

static sw_status predict_ours(const struct sw_accounting *theirs, struct result *out)
{
    struct pub_run ours = out->run;
    ours.setup = out->run.ours;
    if (theirs->as_planned && !*out->why[0]) {
        take_found(&out->run.setup, &out->theirs, &ours.setup);
    }
    return sw_published_predict(&ours, NULL, NULL, &out->ours);
}

static void predict_both(const struct report *r, bool is_sought, struct result *out)
{
    const struct sw_accounting *by = accounting_of(r, &out->run);
    if (predict_theirs(by, is_sought, out) < 0) {
        snprintf(out->why[0], sizeof out->why[0], "%s", sw_error_message());
    }
    if (!r->wanted->ours) {
        snprintf(out->why[1], sizeof out->why[1], "not asked for");
    } else if (!by) {
        sw_str_fini(&out->ours.assumed);
        copy(&out->theirs, &out->ours);
        memcpy(out->why[1], out->why[0], sizeof out->why[1]);
    } else if (!is_sought && predict_ours(by, out) < 0) {
        snprintf(out->why[1], sizeof out->why[1], "%s", sw_error_message());
    }
}

static void predict(const struct report *r, struct result *out)
{
    struct pub_run *run = &out->run;
    const bool is_sought = run->setup.unknown != 0;
    if (is_sought && sw_published_seek(run, &out->ours) < 0) {
        snprintf(out->why[0], sizeof out->why[0], "%s", sw_error_message());
        memcpy(out->why[1], out->why[0], sizeof out->why[1]);
    } else {
        predict_both(r, is_sought, out);
    }
    const bool is_there = !*out->why[0];
    out->is_judged = run->judge != PUB_INFORMATIVE;
    out->error = is_there ? error_of(run, out->theirs.tflops) : 0;
    out->is_met =
        run->judge == PUB_FITS ? !*out->why[1] : is_there && fabs(out->error) <= run->tolerance;
}

static int by_size(const void *a, const void *b)
{
    const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
    return (x > y) - (x < y);
}

struct errors {
    double median, worst;
};

/* Errors of the judged runs of a group, of predictions or of the group's formula; false: there are
 * none. */
static bool errors_of(const struct report *r, const struct pub_group *group, bool by_formula,
                      struct errors *out)
{
    enum { MOST = 256 };
    double errors[MOST];
    int n = 0;
    for (int i = 0; i < r->n && n < MOST && (!by_formula || group->formula.tflops > 0); i++) {
        const struct result *one = &r->results[i];
        if (one->run.group == group && one->run.judge == PUB_JUDGED && !*one->why[0]) {
            errors[n++] =
                by_formula ? error_of(&one->run, sw_published_by_formula(&one->run)) : one->error;
        }
    }
    if (n == 0) {
        return false;
    }
    qsort(errors, (size_t)n, sizeof *errors, by_size);
    out->median = n % 2 ? fabs(errors[n / 2]) : (fabs(errors[n / 2 - 1]) + fabs(errors[n / 2])) / 2;
    out->worst = fabs(errors[n - 1]);
    return true;
}

/* ---- text ---- */

static void print_published(const struct pub_run *run, struct sw_str *out)
{
    char text[48] = "-";
    if (run->tflops[1] >= 1000) {
        snprintf(text, sizeof text, ">= %.4g", run->tflops[0]);
    } else if (run->tflops[1] > run->tflops[0]) {
        snprintf(text, sizeof text, "%.4g-%.4g", run->tflops[0], run->tflops[1]);
    } else if (run->tflops[0] > 0) {
        snprintf(text, sizeof text, "%.4g", run->tflops[0]);
    }
    sw_str_printf(out, "%10s", text);
}

static const char *verdict_of(const struct result *one)
{
    return !one->is_judged ? "" : one->is_met ? "met" : "MISSED";
}

static void print_row(const struct result *one, struct sw_str *out)
{
    const struct pub_run *run = &one->run;
    sw_str_printf(out, "%-32s", one->id);
    print_published(run, out);
    if (*one->why[0]) {
        sw_str_printf(out, " %10s %8s %10s %-8s %s\n", "-", "-", "-", "-", verdict_of(one));
        return;
    }
    sw_str_printf(out, " %10.1f", one->theirs.tflops);
    if (run->tflops[0] > 0) {
        sw_str_printf(out, " %+7.1f%%", 100 * one->error);
    } else {
        sw_str_printf(out, " %8s", "-");
    }
    if (*one->why[1]) {
        sw_str_printf(out, " %10s", "-");
    } else {
        sw_str_printf(out, " %10.1f", one->ours.tflops);
    }
    sw_str_printf(out, " %-8s %s\n", sw_queue_name(one->theirs.bound), verdict_of(one));
}

static void print_assumed(const char *before, const struct pub_prediction *p, struct sw_str *out)
{
    if (p->assumed.len > 2) {
        sw_str_printf(out, "%snot published, and assumed: %.*s\n", before, (int)p->assumed.len - 2,
                      p->assumed.ptr);
    }
}

/* Below a row of several: what was assumed, or why there is no figure. */
static void print_reasons(const struct report *r, const struct result *one, struct sw_str *out)
{
    if (*one->why[0]) {
        sw_str_printf(out, "  no prediction: %s\n", one->why[0]);
    } else {
        print_assumed("  ", &one->theirs, out);
    }
    if (r->wanted->ours && *one->why[1] && strcmp(one->why[0], one->why[1]) != 0) {
        sw_str_printf(out, "  no plan of ours: %.*s\n", (int)strcspn(one->why[1], ";"),
                      one->why[1]);
    }
}

static void print_tiers(const struct pub_prediction *p, struct sw_str *out)
{
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        if (p->bytes[t] > 0) {
            sw_str_printf(out, "  %-6s %16zu bytes of %zu%s\n", sw_tier_name((enum sw_tier)t),
                          p->bytes[t], p->there[t],
                          p->bytes[t] > p->there[t] ? ": does not fit" : "");
        }
    }
}

static void print_prediction(const char *name, const struct pub_prediction *p, const char *why,
                             struct sw_str *out)
{
    if (*why) {
        sw_str_printf(out, "in the accounting %s: %s\n", name, why);
        return;
    }
    sw_str_printf(out,
                  "in the accounting %s: %.2f TFLOP/s a device, bound by %s; a step takes %.3f s",
                  name, p->tflops, sw_queue_name(p->bound), p->seconds);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (p->part[q] > 0) {
            sw_str_printf(out, "%s%s %.3f s", q > 0 ? ", waits for " : ": ",
                          sw_queue_name((enum sw_queue)q), p->part[q]);
        }
    }
    sw_str_putc(out, '\n');
    print_tiers(p, out);
}

static void print_fitted(const struct result *one, struct sw_str *out)
{
    const struct pub_fitted *f = &one->run.group->fitted;
    const struct pub_prediction *p = &one->theirs;
    if (f->sustained > 0) {
        sw_str_printf(out, "fitted: sustained_share %.4g; the cluster's file has %.4g (%s)\n",
                      f->sustained, p->sustained.value, sw_figure_kind_name(p->sustained.kind));
    }
    if (f->reached > 0) {
        sw_str_printf(out,
                      "fitted: reached_share %.4g of the links between nodes; the cluster's file "
                      "has %.4g\n",
                      f->reached, p->reached.kind ? p->reached.value : 1);
    }
    if (f->tokens > 0 && one->run.setup.rows == 0) {
        sw_str_printf(out, "fitted: %.0f tokens a step, which are not published\n", f->tokens);
    }
}

/* Settings that ours has, and the run does not. */
static void print_setup(const struct pub_setup *theirs, const struct pub_setup *ours,
                        struct sw_str *out)
{
    if (ours->tensor != theirs->tensor) {
        sw_str_printf(out, "ours: %lld ranks along tensor\n", (long long)ours->tensor);
    }
    if (ours->vertical) {
        sw_str_printf(out, "ours: %lld micro-batches, block by block (\"vertical\")\n",
                      (long long)ours->micro_batches);
    }
    if (ours->prefetch > 0) {
        sw_str_printf(out, "ours: %lld elements are gathered ahead\n", (long long)ours->prefetch);
    }
    if (ours->next_forward) {
        sw_str_puts(out, "ours: the next forward updates (\"clipped_update\")\n");
    }
    if (ours->late_share > 0) {
        sw_str_printf(out, "ours: it updates %g of the parameters; the end of the step the rest\n",
                      ours->late_share);
    }
    if (ours->in_backward) {
        sw_str_puts(out, "ours: two slots on the disk, and no clipping, of which the run says "
                         "nothing: backward updates\n");
    }
    if (ours->tile_bytes > 0) {
        sw_str_printf(out, "ours: tiles of %lld bytes\n", (long long)ours->tile_bytes);
    }
}

static void print_details(const struct report *r, const struct result *one, struct sw_str *out)
{
    const struct pub_run *run = &one->run;
    const struct sw_accounting *by = accounting_of(r, run);
    sw_str_printf(out, "\n%lld devices on %lld node%s of %s\n", (long long)run->devices,
                  (long long)run->nodes, run->nodes == 1 ? "" : "s", run->cluster);
    print_prediction(by ? by->name : "ours", &one->theirs, one->why[0], out);
    if (by && r->wanted->ours) {
        print_prediction("ours", &one->ours, one->why[1], out);
    }
    if (!by || r->wanted->ours) {
        print_setup(&run->setup, &run->ours, out);
    }
    print_fitted(one, out);
    print_assumed("", &one->theirs, out);
    sw_str_printf(out, "published: %s%s%s%s\nsource: %s\n", run->reading, run->says ? "; " : "",
                  run->says ? run->says : "", "", run->source);
    if (run->note) {
        sw_str_printf(out, "note: %s\n", run->note);
    }
}

static void print_groups(const struct report *r, struct sw_str *out)
{
    for (int g = 0; g < r->file->n_groups; g++) {
        const struct pub_group *group = &r->file->groups[g];
        struct errors e;
        if (group->worst > 0 && errors_of(r, group, false, &e)) {
            sw_str_printf(out,
                          "%-18s median error %4.1f%% of %4.1f%%, worst %4.1f%% of %4.1f%%: %s\n",
                          group->name, 100 * e.median, 100 * group->median, 100 * e.worst,
                          100 * group->worst, group->about);
        }
        if (errors_of(r, group, true, &e)) {
            sw_str_printf(out, "%-18s median error %4.1f%%, worst %4.1f%% by a formula: %s\n", "",
                          100 * e.median, 100 * e.worst, group->formula.about);
        }
    }
}

static void print_text(const struct report *r, struct sw_str *out)
{
    if (r->n == 0) {
        return;
    }
    sw_str_printf(out, "%-32s%10s %10s %8s %10s %-8s\n", "TFLOP/s of a device", "published",
                  "predicted", "error", "ours", "bound");
    for (int i = 0; i < r->n; i++) {
        print_row(&r->results[i], out);
        if (r->n > 1) {
            print_reasons(r, &r->results[i], out);
        }
    }
    if (r->n == 1) {
        print_details(r, &r->results[0], out);
    } else {
        sw_str_putc(out, '\n');
        print_groups(r, out);
    }
}

/* ---- JSON ---- */

static void put_prediction(const char *key, const struct pub_prediction *p, const char *why,
                           struct sw_str *out)
{
    sw_str_printf(out, ",\"%s\":{", key);
    if (*why) {
        sw_look_put_text("\"refused\":", why, out);
    } else {
        sw_look_put_number("\"step_seconds\":", p->seconds, out);
        sw_look_put_number(",\"tflops_per_device\":", p->tflops, out);
        sw_look_put_text(",\"bound\":", sw_queue_name(p->bound), out);
        for (int q = 0; q < SW_QUEUE_COUNT; q++) {
            sw_look_put_text(q > 0 ? "," : ",\"of_step\":{", sw_queue_name((enum sw_queue)q), out);
            sw_look_put_number(":", p->part[q], out);
        }
        sw_str_putc(out, '}');
        sw_str_printf(out, ",\"fits\":%s", p->fits ? "true" : "false");
        sw_look_put_text(",\"assumed\":", sw_str_text(&p->assumed), out);
        sw_str_putc(out, ',');
        sw_look_put_tiers(p->bytes, p->there, out);
    }
    sw_str_putc(out, '}');
}

static void put_result(const struct result *one, struct sw_str *out)
{
    const struct pub_run *run = &one->run;
    static const char *const judges[] = {"judged", "range", "fits", "informative"};
    sw_look_put_text("{\"id\":", one->id, out);
    sw_look_put_text(",\"group\":", run->group->name, out);
    sw_look_put_text(",\"judge\":", judges[run->judge], out);
    sw_look_put_text(",\"cluster\":", run->cluster, out);
    sw_str_printf(out, ",\"devices\":%lld,\"nodes\":%lld", (long long)run->devices,
                  (long long)run->nodes);
    sw_look_put_number(",\"parameters\":", run->model.parameters, out);
    sw_look_put_number(",\"published\":[", run->tflops[0], out);
    sw_look_put_number(",", run->tflops[1], out);
    sw_str_putc(out, ']');
    put_prediction("predicted", &one->theirs, one->why[0], out);
    put_prediction("ours", &one->ours, one->why[1], out);
    sw_look_put_number(",\"error\":", one->error, out);
    sw_look_put_number(",\"tolerance\":", run->tolerance, out);
    sw_str_printf(out, ",\"met\":%s}", one->is_met ? "true" : "false");
}

/* The queues of a run alone, in our accounting. */
static sw_status put_lanes(const struct report *r, struct sw_str *out)
{
    const struct result *one = r->results;
    if (r->n != 1 || *one->why[1]) {
        return SW_OK;
    }
    sw_str_puts(out, "\"lanes\":");
    SW_TRY(sw_published_lanes(&one->run, &one->ours, out));
    sw_str_putc(out, ',');
    return SW_OK;
}

static sw_status print_json(const struct report *r, const char *capacities, struct sw_str *out)
{
    sw_str_puts(out, "{\"runs\":[");
    for (int i = 0; i < r->n; i++) {
        sw_str_puts(out, i > 0 ? "," : "");
        put_result(&r->results[i], out);
    }
    sw_str_puts(out, "],");
    SW_TRY(put_lanes(r, out));
    sw_str_puts(out, "\"groups\":{");
    const char *before = "";
    for (int g = 0; g < r->file->n_groups; g++) {
        const struct pub_group *group = &r->file->groups[g];
        struct errors e;
        if (errors_of(r, group, false, &e)) {
            sw_look_put_text(before, group->name, out);
            sw_look_put_number(":{\"median_error\":", e.median, out);
            sw_look_put_number(",\"worst_error\":", e.worst, out);
            if (errors_of(r, group, true, &e)) {
                sw_look_put_number(",\"by_formula\":{\"median_error\":", e.median, out);
                sw_look_put_number(",\"worst_error\":", e.worst, out);
                sw_str_putc(out, '}');
            }
            sw_str_putc(out, '}');
            before = ",";
        }
    }
    sw_str_printf(out, "},\"capacities\":[%s]}\n", capacities);
    return SW_OK;
}

/* ---- entry point ---- */

static bool is_wanted(const struct pub_run *run, const char *id)
{
    return strcmp(id, "all") == 0 || strcmp(id, run->id) == 0 || strcmp(id, run->group->name) == 0;
}

/* A result for each size of a run. */
static void add_run(struct report *r, const struct pub_run *run)
{
    static const double billion = 1e9;
    const double sizes[] = {run->model.parameters, run->model.largest};
    for (size_t k = 0; k < SW_LEN(sizes) && (k == 0 || sizes[k] > 0); k++) {
        struct result *one = &r->results[r->n++];
        one->run = *run;
        one->run.model.parameters = sizes[k];
        snprintf(one->id, sizeof one->id, "%s", run->id);
        if (run->model.largest > 0) {
            snprintf(one->id, sizeof one->id, "%.60s-%.4gB", run->id, sizes[k] / billion);
        }
    }
}

static sw_status find_runs(struct report *r)
{
    const struct pub_file *f = r->file;
    r->results = sw_alloc_zero("look", 2 * (size_t)f->n_runs + 1, sizeof *r->results);
    SW_TRY_ALLOC(r->results, "published runs");
    for (int i = 0; i < f->n_runs; i++) {
        if (is_wanted(&f->runs[i], r->wanted->id)) {
            add_run(r, &f->runs[i]);
        }
    }
    if (r->n > 0 || r->n_capacities > 0) {
        return SW_OK;
    }
    const char **names = sw_alloc("look", ((size_t)f->n_runs + 1) * sizeof *names);
    SW_TRY_ALLOC(names, "published runs");
    for (int i = 0; i < f->n_runs; i++) {
        names[i] = f->runs[i].id;
    }
    const char *nearest = sw_nearest(r->wanted->id, names, (size_t)f->n_runs);
    const sw_status st =
        SW_FAIL(SW_E_ARG,
                "no published run \"%.80s\"%s; wanted the id of a run, a group, \"capacities\" or "
                "\"all\"; %s has them",
                r->wanted->id, sw_hint(nearest).text, f->path);
    sw_free(names);
    return st;
}

static sw_status report(struct report *r, bool *missed, struct sw_str *out)
{
    if (r->has_accounting) {
        SW_TRY(sw_published_accounting(r->file, r->wanted->accounting, &r->accounting));
    }
    struct sw_str capacities = {0};
    *missed = false;
    sw_published_print_capacities(r->file, r->wanted, &r->n_capacities, missed, &capacities);
    const sw_status st = find_runs(r);
    if (st < 0) {
        sw_str_fini(&capacities);
        return st;
    }
    for (int i = 0; i < r->n; i++) {
        predict(r, &r->results[i]);
        *missed |= r->results[i].is_judged && !r->results[i].is_met;
    }
    const char *text = sw_str_text(&capacities);
    sw_status printed = SW_OK;
    if (r->wanted->json) {
        printed = print_json(r, text, out);
    } else {
        sw_str_puts(out, text);
        sw_str_puts(out, r->n > 0 && r->n_capacities > 0 ? "\n" : "");
        print_text(r, out);
    }
    out->failed |= capacities.failed;
    sw_str_fini(&capacities);
    return printed;
}

sw_status sw_plan_published_text(const struct sw_plan_published *wanted, bool *missed, char **out)
{
    struct pub_file *file = NULL;
    struct sw_str text = {0};
    SW_TRY_OPTIONS(wanted);
    SW_TRY_OPTIONS(wanted->id);
    SW_TRY(sw_published_open(&file));
    struct report r = {
        .wanted = wanted, .file = file, .has_accounting = wanted->accounting != NULL};
    sw_status st = report(&r, missed, &text);
    for (int i = 0; i < r.n; i++) {
        sw_str_fini(&r.results[i].theirs.assumed);
        sw_str_fini(&r.results[i].ours.assumed);
    }
    sw_free(r.results);
    sw_published_close(file);
    return sw_look_give(st, &text, out);
}
