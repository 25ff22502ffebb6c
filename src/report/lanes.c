// SPDX-License-Identifier: Apache-2.0
// Timeline of one step of rank 0 from a trace (docs/trace.md), with a lane for each queue. The
// height of a column is the share of its time that the queue was busy. Its colour is the kind of
// work that took most. Below are the operations that took most time. If the trace is missing or
// damaged, the report has a line that says so.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/private.h"

enum {
    COLUMNS = 720,
    SLIVER = 3, /* columns: a pixel of the narrowest phone */
    LANE = 40,  /* units of the picture */
    GAP = 8,
    MOST_BYTES = 256 << 20, /* largest trace that is read */
    MOST_OPS = 128,
    SHOWN_OPS = 8,
    NAME_CAP = 48
};

enum kind { KIND_FORWARD, KIND_BACKWARD, KIND_UPDATE, KIND_WAIT, KIND_COUNT };

struct slice {
    double begin, end; /* microseconds */
    uint8_t queue, kind;
    int16_t op; /* -1: a wait, or no room for its name */
};

struct op {
    char name[NAME_CAP];
    double us;
    int64_t n;
};

struct trace {
    struct slice *slices; /* [n], cap */
    int64_t n, cap;
    struct {
        double begin, end;
        long long step;
    } steps[64];
    int n_steps;
    struct op ops[MOST_OPS];
    int n_ops;
    /* the event that is being read */
    double ts, dur;
    int64_t pid, tid;
    bool is_slice;
    char name[NAME_CAP], cat[NAME_CAP];
};

/* The numbering of run/trace.c: TRACKS lanes per queue, and the steps among them. */
enum { TRACKS = 8, STEPS_PLACE = SW_QUEUE_HOST + 1, STEPS_TRACK = STEPS_PLACE * TRACKS };

static int find_op(struct trace *t, const char *name)
{
    for (int i = 0; i < t->n_ops; i++) {
        if (strcmp(t->ops[i].name, name) == 0) {
            return i;
        }
    }
    if (t->n_ops == MOST_OPS) {
        return -1;
    }
    memcpy(t->ops[t->n_ops].name, name, strlen(name) + 1);
    return t->n_ops++;
}

static enum kind kind_of(const char *cat)
{
    return strcmp(cat, "forward") == 0    ? KIND_FORWARD
           : strcmp(cat, "backward") == 0 ? KIND_BACKWARD
           : strcmp(cat, "wait") == 0     ? KIND_WAIT
                                          : KIND_UPDATE;
}

static sw_status add_slice(struct trace *t)
{
    if (t->n == t->cap) {
        const int64_t cap = 2 * t->cap + 1024;
        struct slice *slices = sw_realloc("report", t->slices, (size_t)cap * sizeof *slices);
        SW_TRY_ALLOC(slices, "a trace");
        t->slices = slices;
        t->cap = cap;
    }
    const enum kind kind = kind_of(t->cat);
    const int place = t->tid / TRACKS;
    t->slices[t->n++] =
        (struct slice){.begin = t->ts,
                       .end = t->ts + t->dur,
                       .queue = (uint8_t)(place - (place > STEPS_PLACE)),
                       .kind = (uint8_t)kind,
                       .op = (int16_t)(kind == KIND_WAIT ? -1 : find_op(t, t->name))};
    return SW_OK;
}

static sw_status end_event(struct trace *t)
{
    if (!t->is_slice || t->pid != 0 || t->tid < 0 || !(t->dur >= 0) || !isfinite(t->ts)) {
        return SW_OK;
    }
    if (t->tid != STEPS_TRACK) {
        return t->tid < (SW_QUEUE_COUNT + 1) * TRACKS ? add_slice(t) : SW_OK;
    }
    if (t->n_steps < (int)SW_LEN(t->steps) &&
        sscanf(t->name, "step %lld", &t->steps[t->n_steps].step) == 1) {
        t->steps[t->n_steps].begin = t->ts;
        t->steps[t->n_steps].end = t->ts + t->dur;
        t->n_steps++;
    }
    return SW_OK;
}

/* A long name ends with a mark where it was cut, and not in the middle of a character. */
static void take_name(struct trace *t, const char *name)
{
    static const char more[] = "…";
    size_t len = strlen(name);
    const bool fits = len < sizeof t->name;
    if (!fits) {
        len = sizeof t->name - sizeof more;
        while (len > 0 && ((unsigned char)name[len] & 0xc0) == 0x80) {
            len--;
        }
    }
    memcpy(t->name, name, len);
    memcpy(t->name + len, fits ? "" : more, fits ? 1 : sizeof more);
}

static void take_member(struct trace *t, const struct sw_json *value)
{
    const bool text = value->type == SW_JSON_STRING;
    if (strcmp(value->key, "ts") == 0) {
        t->ts = value->number;
    } else if (strcmp(value->key, "dur") == 0) {
        t->dur = value->number;
    } else if (strcmp(value->key, "pid") == 0) {
        t->pid = value->integer;
    } else if (strcmp(value->key, "tid") == 0) {
        t->tid = value->integer;
    } else if (strcmp(value->key, "ph") == 0) {
        t->is_slice = text && strcmp(value->string, "X") == 0;
    } else if (strcmp(value->key, "name") == 0) {
        take_name(t, text ? value->string : "");
    } else if (strcmp(value->key, "cat") == 0) {
        snprintf(t->cat, sizeof t->cat, "%s", text ? value->string : "");
    }
}

static sw_status take_event(void *ctx, enum sw_json_event event, const struct sw_json *value,
                            int depth)
{
    struct trace *t = ctx;
    if (event == SW_JSON_SCALAR && depth == 3 && value->key) {
        take_member(t, value);
    } else if (event == SW_JSON_OPEN && depth == 2) {
        t->is_slice = false;
        t->pid = t->tid = -1;
        t->name[0] = t->cat[0] = '\0';
        t->ts = t->dur = NAN;
    } else if (event == SW_JSON_CLOSE && depth == 2) {
        return end_event(t);
    }
    return SW_OK;
}

/* ---- drawing ---- */

struct window {
    const struct trace *t;
    double begin, end;
    float *busy; /* [SW_QUEUE_COUNT, COLUMNS, KIND_COUNT] share of a column */
    bool used[SW_QUEUE_COUNT];
};

static void add_busy(struct window *w, const struct slice *s)
{
    if (!(s->end > w->begin && s->begin < w->end)) {
        return;
    }
    const double scale = COLUMNS / (w->end - w->begin);
    const double from = fmax((s->begin - w->begin) * scale, 0);
    const double to = fmin((s->end - w->begin) * scale, COLUMNS);
    for (int c = (int)fmin(from, COLUMNS); c < COLUMNS && c < to; c++) {
        const double part = fmin(to, c + 1) - fmax(from, c);
        w->busy[(s->queue * COLUMNS + c) * KIND_COUNT + s->kind] += (float)fmax(part, 0);
        w->used[s->queue] = true;
    }
}

/* The look of columns: kind, and height in tenths. Waits block computation and do not count as
 * work. */
static int look_of(const struct window *w, int queue, int from, int to)
{
    float busy[KIND_COUNT] = {0}, sum = 0;
    int most = 0;
    for (int i = from * KIND_COUNT; i < to * KIND_COUNT; i++) {
        busy[i % KIND_COUNT] += w->busy[queue * COLUMNS * KIND_COUNT + i];
    }
    for (int k = 0; k < KIND_COUNT; k++) {
        sum += busy[k];
        most = busy[k] > busy[most] ? k : most;
    }
    const float share = fminf(sum / (float)(to - from), 1);
    const int height = sum > 0 ? (int)fmaxf(roundf(10 * share), 1) : 0;
    return height * KIND_COUNT + most;
}

/* Columns that look alike. */
struct run {
    int from, to, look;
};

/* A run has at least SLIVER columns: what is narrower than a pixel is one with what it stands
 * beside. */
static int find_runs(const struct window *w, int queue, struct run out[COLUMNS / SLIVER])
{
    int n = 0;
    for (int c = 0; c < COLUMNS; n++) {
        struct run run = {c, c + SLIVER, look_of(w, queue, c, c + SLIVER)};
        while (run.to < COLUMNS &&
               (look_of(w, queue, run.to, run.to + 1) == run.look || COLUMNS - run.to < SLIVER)) {
            run.to++;
        }
        out[n] = run;
        c = run.to;
    }
    return n;
}

/* Neighbours of one kind are one shape, with a step where their height changes. */
static void draw_kind(const struct run *runs, int n, int kind, int bottom, struct sw_str *out)
{
    bool open = false;
    sw_str_printf(out, "<path class=\"k%d\" d=\"", kind);
    for (int i = 0; i < n; i++) {
        const int height = LANE * (runs[i].look / KIND_COUNT) / 10;
        const bool is = runs[i].look % KIND_COUNT == kind && height > 0;
        if (is && !open) {
            sw_str_printf(out, "M%d %d", runs[i].from, bottom);
        } else if (!is && open) {
            sw_str_printf(out, "V%dz", bottom);
        }
        if (is) {
            sw_str_printf(out, "V%dH%d", bottom - height, runs[i].to);
        }
        open = is;
    }
    if (open) {
        sw_str_printf(out, "V%dz", bottom);
    }
    sw_str_puts(out, "\"/>");
}

static double busy_share(const struct window *w, int queue, bool with_waits)
{
    double sum = 0;
    for (int c = 0; c < COLUMNS; c++) {
        for (int k = 0; k < KIND_COUNT; k++) {
            const bool counts = k != KIND_WAIT || with_waits;
            sum += counts ? w->busy[(queue * COLUMNS + c) * KIND_COUNT + k] : 0;
        }
    }
    return fmin(sum / COLUMNS, 1);
}

static void draw_lanes(const struct window *w, struct sw_str *out)
{
    int n = 0, y = 0;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        n += w->used[q];
    }
    sw_str_puts(out, "<div class=\"lanes\"><div class=\"names\">");
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        char share[32];
        if (w->used[q]) {
            sw_html_number(share, sizeof share, busy_share(w, q, false), SW_UNIT_SHARE);
            sw_str_printf(out, "<span>%s <small>%s</small></span>", sw_queue_name((enum sw_queue)q),
                          share);
        }
    }
    sw_str_printf(out,
                  "</div><svg style=\"height:%.1frem\" viewBox=\"0 0 %d %d\" "
                  "preserveAspectRatio=\"none\" role=\"img\"><title>Work of each queue during "
                  "the step</title>\n",
                  2.4 * n, COLUMNS, n * (LANE + GAP));
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        struct run runs[COLUMNS / SLIVER];
        const int n_runs = w->used[q] ? find_runs(w, q, runs) : 0;
        for (int k = 0; k < KIND_COUNT && w->used[q]; k++) {
            draw_kind(runs, n_runs, k, y + GAP / 2 + LANE, out);
        }
        y += w->used[q] ? LANE + GAP : 0;
    }
    sw_str_puts(out, "</svg></div>\n");
}

static int by_time(const void *a, const void *b)
{
    const double x = ((const struct op *)a)->us, y = ((const struct op *)b)->us;
    return (x < y) - (x > y);
}

static void write_ops(struct trace *t, double begin, double end, struct sw_str *out)
{
    for (int64_t i = 0; i < t->n; i++) {
        const struct slice *s = &t->slices[i];
        if (s->op >= 0 && s->begin < end && s->end > begin) {
            t->ops[s->op].us += s->end - s->begin;
            t->ops[s->op].n++;
        }
    }
    qsort(t->ops, (size_t)t->n_ops, sizeof *t->ops, by_time);
    sw_str_puts(out, "<div class=\"scroll\"><table><caption>Operations by time in this step, all "
                     "queues</caption><thead><tr><th scope=\"col\">operation<th scope=\"col\" "
                     "class=\"n\">times<th scope=\"col\" class=\"n\">time<th scope=\"col\" "
                     "class=\"n\">of the step</tr></thead><tbody>\n");
    for (int i = 0; i < t->n_ops && i < SHOWN_OPS && t->ops[i].us > 0; i++) {
        char time[32], share[32];
        sw_html_number(time, sizeof time, t->ops[i].us / 1e3, SW_UNIT_MS);
        sw_html_number(share, sizeof share, t->ops[i].us / (end - begin), SW_UNIT_SHARE);
        sw_str_puts(out, "<tr><th scope=\"row\">");
        sw_html_name(out, t->ops[i].name);
        sw_str_printf(out, "<td class=\"n\">%lld<td class=\"n\">%s<td class=\"n\">%s</tr>\n",
                      (long long)t->ops[i].n, time, share);
    }
    sw_str_puts(out, "</tbody></table></div>\n");
}

static sw_status draw_step(struct trace *t, int i, struct sw_str *out)
{
    char time[32];
    struct window w = {.t = t, .begin = t->steps[i].begin, .end = t->steps[i].end};
    w.busy = sw_alloc_zero("report", (size_t)SW_QUEUE_COUNT * COLUMNS * KIND_COUNT, sizeof *w.busy);
    SW_TRY_ALLOC(w.busy, "a trace");
    for (int64_t s = 0; s < t->n; s++) {
        add_busy(&w, &t->slices[s]);
    }
    sw_html_number(time, sizeof time, (w.end - w.begin) / 1e3, SW_UNIT_MS);
    sw_str_printf(out,
                  "<h3>Step %lld, %s</h3><p class=\"legend\"><span class=\"key k0\">forward</span>"
                  "<span class=\"key k1\">backward</span><span class=\"key k2\">update</span>"
                  "<span class=\"key k3\">waiting for another queue</span></p>\n",
                  t->steps[i].step, time);
    draw_lanes(&w, out);
    sw_free(w.busy);
    write_ops(t, w.begin, w.end, out);
    return SW_OK;
}

static void complain(const char *path, const char *why, struct sw_str *out)
{
    sw_str_puts(out, "<p class=\"dim\">The trace ");
    sw_html_name(out, path);
    sw_str_puts(out, " is not shown: ");
    sw_html_name(out, why);
    sw_str_puts(out, ".</p>\n");
}

static sw_status read_trace(const char *path, struct trace *t, struct sw_str *out, bool *out_read)
{
    char *text = NULL;
    size_t len = 0;
    int fd = -1;
    *out_read = false;
    if (sw_file_open(path, &fd, &len) < 0) {
        complain(path, "it no longer exists", out);
        return SW_OK;
    }
    close(fd);
    if (len > MOST_BYTES) {
        complain(path, "it has more than 256 MiB", out);
        return SW_OK;
    }
    SW_TRY(sw_file_read(path, &text, &len));
    const sw_status st = sw_json_scan(path, text, len, take_event, t);
    sw_free(text);
    if (st == SW_E_NOMEM) {
        return st;
    }
    if (st < 0 || t->n_steps == 0) {
        complain(path, st < 0 ? sw_error_message() : "it has no step", out);
        return SW_OK;
    }
    *out_read = true;
    return SW_OK;
}

sw_status sw_lanes_write(const char *path, struct sw_str *out)
{
    bool read = false;
    struct trace *t = sw_alloc_zero("report", 1, sizeof *t);
    SW_TRY_ALLOC(t, "a trace");
    sw_status st = read_trace(path, t, out, &read);
    if (st >= 0 && read) {
        st = draw_step(t, t->n_steps / 2, out);
    }
    sw_free(t->slices);
    sw_free(t);
    return st;
}
