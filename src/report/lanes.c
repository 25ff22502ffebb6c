// SPDX-License-Identifier: Apache-2.0
// Timeline of one step from a trace (docs/trace.md): of a pipeline a lane for the first rank of
// each stage, and of rank 0 a lane for each queue (show/lanes.h). Below are the operations that
// took most time on rank 0. If the trace is missing or damaged, the report has a line that says so.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/private.h"

enum {
    GAP = 8,                /* units of the picture */
    MOST_BYTES = 256 << 20, /* largest trace that is read */
    MOST_OPS = 128,
    MOST_RANKS = 1 << 20,
    SHOWN_OPS = 8,
    NAME_CAP = 48
};

struct slice {
    double begin, end; /* microseconds */
    int32_t rank;
    uint8_t queue, kind;
    int16_t op; /* -1: a wait, another rank than 0, or no room for its name */
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
    int64_t n_ranks; /* that have an event */
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

static enum sw_lane_kind kind_of(const char *cat)
{
    return strcmp(cat, "forward") == 0    ? SW_LANE_FORWARD
           : strcmp(cat, "backward") == 0 ? SW_LANE_BACKWARD
           : strcmp(cat, "weights") == 0  ? SW_LANE_BACKWARD
           : strcmp(cat, "wait") == 0     ? SW_LANE_WAIT
                                          : SW_LANE_UPDATE;
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
    const enum sw_lane_kind kind = kind_of(t->cat);
    const bool is_op = kind != SW_LANE_WAIT && t->pid == 0;
    const int place = t->tid / TRACKS;
    t->slices[t->n++] = (struct slice){.begin = t->ts,
                                       .end = t->ts + t->dur,
                                       .rank = (int32_t)t->pid,
                                       .queue = (uint8_t)(place - (place > STEPS_PLACE)),
                                       .kind = (uint8_t)kind,
                                       .op = (int16_t)(is_op ? find_op(t, t->name) : -1)};
    return SW_OK;
}

static sw_status end_event(struct trace *t)
{
    if (!t->is_slice || t->pid < 0 || t->pid >= MOST_RANKS || t->tid < 0 || !(t->dur >= 0) ||
        !isfinite(t->ts)) {
        return SW_OK;
    }
    t->n_ranks = sw_max_i64(t->n_ranks, t->pid + 1);
    if (t->tid != STEPS_TRACK) {
        return t->tid < (SW_QUEUE_COUNT + 1) * TRACKS ? add_slice(t) : SW_OK;
    }
    if (t->pid == 0 && t->n_steps < (int)SW_LEN(t->steps) &&
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

/* Writes lanes with their names. Lanes without work are left out. */
static void draw_lanes(const struct sw_lanes *lanes, const char *(*name_of)(int, char[16]),
                       const char *title, struct sw_str *out)
{
    int n = 0;
    sw_str_puts(out, "<div class=\"lanes\"><div class=\"names\">");
    for (int i = 0; i < lanes->n; i++) {
        char share[32], name[16];
        if (sw_lane_is_used(lanes, i)) {
            sw_html_number(share, sizeof share, sw_lane_share(lanes, i), SW_UNIT_SHARE);
            sw_str_printf(out, "<span>%s <small>%s</small></span>", name_of(i, name), share);
            n++;
        }
    }
    sw_str_printf(out,
                  "</div><svg style=\"height:%.1frem\" viewBox=\"0 0 %d %d\" "
                  "preserveAspectRatio=\"none\" role=\"img\"><title>%s</title>\n",
                  2.4 * n, SW_LANE_COLUMNS, n * (SW_LANE_HEIGHT + GAP), title);
    for (int i = 0, y = 0; i < lanes->n; i++) {
        if (sw_lane_is_used(lanes, i)) {
            sw_lane_draw(lanes, i, y + GAP / 2 + SW_LANE_HEIGHT, out);
            y += SW_LANE_HEIGHT + GAP;
        }
    }
    sw_str_puts(out, "</svg></div>\n");
}

static const char *queue_name(int i, char buf[16])
{
    (void)buf;
    return sw_queue_name((enum sw_queue)i);
}

static const char *stage_name(int i, char buf[16])
{
    snprintf(buf, 16, "stage %d", i);
    return buf;
}

/* Lanes of the queues of rank 0. */
static sw_status draw_queues(const struct trace *t, double begin, double end, struct sw_str *out)
{
    struct sw_lanes lanes;
    SW_TRY(sw_lanes_open(SW_QUEUE_COUNT, begin, end, &lanes));
    for (int64_t s = 0; s < t->n; s++) {
        const struct slice *slice = &t->slices[s];
        if (slice->rank == 0) {
            sw_lanes_add(&lanes, slice->queue, slice->kind, slice->begin, slice->end, 1);
        }
    }
    draw_lanes(&lanes, queue_name, "Work of each queue during the step", out);
    sw_lanes_close(&lanes);
    return SW_OK;
}

/* Lanes of the computation of the first rank of each stage. Ranks along the pipe axis vary
 * slowest. */
static sw_status draw_stages(const struct trace *t, int64_t stages, double begin, double end,
                             struct sw_str *out)
{
    const int64_t each = t->n_ranks / stages;
    struct sw_lanes lanes;
    if (stages < 2 || each * stages != t->n_ranks) {
        return SW_OK;
    }
    SW_TRY(sw_lanes_open((int)stages, begin, end, &lanes));
    for (int64_t s = 0; s < t->n; s++) {
        const struct slice *slice = &t->slices[s];
        if (slice->rank % each == 0 && slice->queue == SW_QUEUE_COMPUTE &&
            slice->kind != SW_LANE_WAIT) {
            sw_lanes_add(&lanes, (int)(slice->rank / each), slice->kind, slice->begin, slice->end,
                         1);
        }
    }
    draw_lanes(&lanes, stage_name, "Computation of each stage of the pipeline", out);
    sw_lanes_close(&lanes);
    return SW_OK;
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

static sw_status draw_step(struct trace *t, int i, int64_t stages, struct sw_str *out)
{
    char time[32];
    const double begin = t->steps[i].begin, end = t->steps[i].end;
    sw_html_number(time, sizeof time, (end - begin) / 1e3, SW_UNIT_MS);
    sw_str_printf(out,
                  "<h3>Step %lld, %s</h3><p class=\"legend\"><span class=\"key k0\">forward</span>"
                  "<span class=\"key k1\">backward</span><span class=\"key k2\">update</span>"
                  "<span class=\"key k3\">waiting for another queue</span></p>\n",
                  t->steps[i].step, time);
    SW_TRY(draw_stages(t, stages, begin, end, out));
    SW_TRY(draw_queues(t, begin, end, out));
    write_ops(t, begin, end, out);
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

sw_status sw_lanes_write(const char *path, int64_t stages, struct sw_str *out)
{
    bool read = false;
    struct trace *t = sw_alloc_zero("report", 1, sizeof *t);
    SW_TRY_ALLOC(t, "a trace");
    sw_status st = read_trace(path, t, out, &read);
    if (st >= 0 && read) {
        st = draw_step(t, t->n_steps / 2, stages, out);
    }
    sw_free(t->slices);
    sw_free(t);
    return st;
}
