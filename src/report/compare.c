// SPDX-License-Identifier: Apache-2.0
// Differences between two runs: options, data, machine, and the first common step whose loss or
// norm differs in any bit; all NaNs count as the same. The plan room compares two plans.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "report/private.h"

struct difference {
    const char *section, *key, *a, *b;
    struct difference *next;
};

struct comparison {
    struct sw_past_run runs[2];
    struct sw_arena arena;
    struct difference *first, **end;
    bool failed;        /* out of memory */
    int64_t steps;      /* in both runs */
    int64_t first_step; /* the first of them that differs; -1 = none */
    int64_t only[2];    /* steps of one run alone */
    int64_t at[2];      /* index of first_step in each run */
};

/* ---- trees ---- */

static const char *text_of(struct comparison *c, const struct sw_json *value)
{
    struct sw_str text = {0};
    if (!value) {
        return "-";
    }
    sw_json_write(value, 0, &text);
    const char *kept =
        text.failed ? NULL : sw_arena_strndup(&c->arena, sw_str_text(&text), text.len);
    sw_str_fini(&text);
    c->failed |= !kept;
    return kept ? kept : "";
}

/* With the origin of a key of the configuration. */
static const char *with_origin(struct comparison *c, int i, const char *key, const char *text)
{
    const struct sw_json *sources = sw_past_run_sources(&c->runs[i]);
    const struct sw_json *from = sources ? sw_json_get(sources, key) : NULL;
    if (!from || from->type != SW_JSON_STRING) {
        return text;
    }
    const char *both = sw_arena_printf(&c->arena, "%s (%s)", text, from->string);
    c->failed |= !both;
    return both ? both : text;
}

static void add(struct comparison *c, const char *section, const char *key, const char *a,
                const char *b)
{
    struct difference *d = sw_arena_alloc(&c->arena, sizeof *d);
    const char *kept = sw_arena_strdup(&c->arena, key);
    if (!d || !kept) {
        c->failed = true;
        return;
    }
    *d = (struct difference){section, kept, a, b, NULL};
    *c->end = d;
    c->end = &d->next;
}

static bool is_tree(const struct sw_json *value)
{
    return value && value->type == SW_JSON_OBJECT;
}

/* Programs of a plan go by their kind, other items by their number. */
static const char *item_key(const struct sw_json *item, int64_t number, char buf[48])
{
    const struct sw_json *kind = sw_json_get(item, "kind");
    if (kind && kind->type == SW_JSON_STRING) {
        snprintf(buf, 48, "%.12s.%lld", kind->string, (long long)number);
    } else {
        snprintf(buf, 48, "%lld", (long long)number);
    }
    return buf;
}

static void diff(struct comparison *c, const char *section, const char *key,
                 const struct sw_json *a, const struct sw_json *b);

static void diff_member(struct comparison *c, const char *section, const char *key,
                        const char *member, const struct sw_json *a, const struct sw_json *b)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s%s", key, *key ? "." : "", member);
    diff(c, section, path, a, b);
}

/* The member of b that is called as m is; a name may hold a NUL. */
static const struct sw_json *same_member(const struct sw_json *b, const struct sw_json *m)
{
    if (!b || strlen(m->key) == m->key_len) {
        return b ? sw_json_get(b, m->key) : NULL;
    }
    const struct sw_json *other = b->first;
    while (other && (other->key_len != m->key_len || memcmp(other->key, m->key, m->key_len) != 0)) {
        other = other->next;
    }
    return other;
}

static void diff_objects(struct comparison *c, const char *section, const char *key,
                         const struct sw_json *a, const struct sw_json *b)
{
    for (const struct sw_json *m = a ? a->first : NULL; m; m = m->next) {
        diff_member(c, section, key, m->key, m, same_member(b, m));
    }
    for (const struct sw_json *m = b ? b->first : NULL; m; m = m->next) {
        if (!same_member(a, m)) {
            diff_member(c, section, key, m->key, NULL, m);
        }
    }
}

static bool has_objects(const struct sw_json *value)
{
    return value && value->type == SW_JSON_ARRAY && is_tree(value->first);
}

static void diff_arrays(struct comparison *c, const char *section, const char *key,
                        const struct sw_json *a, const struct sw_json *b)
{
    const struct sw_json *x = a ? a->first : NULL, *y = b ? b->first : NULL;
    char buf[48];
    for (int64_t i = 0; x || y; i++) {
        diff_member(c, section, key, item_key(x ? x : y, i, buf), x, y);
        x = x ? x->next : NULL;
        y = y ? y->next : NULL;
    }
}

static void diff(struct comparison *c, const char *section, const char *key,
                 const struct sw_json *a, const struct sw_json *b)
{
    if ((is_tree(a) || is_tree(b)) && (!a || is_tree(a)) && (!b || is_tree(b))) {
        diff_objects(c, section, key, a, b);
        return;
    }
    if ((has_objects(a) || has_objects(b)) && (!a || has_objects(a)) && (!b || has_objects(b))) {
        diff_arrays(c, section, key, a, b);
        return;
    }
    const char *x = text_of(c, a), *y = text_of(c, b);
    if (strcmp(x, y) != 0) {
        const bool config = strcmp(section, "configuration") == 0;
        add(c, section, key, config ? with_origin(c, 0, key, x) : x,
            config ? with_origin(c, 1, key, y) : y);
    }
}

/* Omits place and time of the start, and facts that follow from other rows. */
static void diff_facts(struct comparison *c)
{
    static const struct {
        const char *section, *path;
    } facts[] = {{"model", "model"},  {"configuration", "config"},
                 {"flags", "flags"},  {"batch", "batch"},
                 {"data", "data"},    {"plan", "plan"},
                 {"memory", "memory"}};
    static const char *const machine[] = {"cpu",    "processors", "threads", "memory_bytes",
                                          "device", "kernels",    "spillway"};
    for (size_t i = 0; i < SW_LEN(facts); i++) {
        diff(c, facts[i].section, "", sw_past_run_fact(&c->runs[0], facts[i].path),
             sw_past_run_fact(&c->runs[1], facts[i].path));
    }
    for (size_t i = 0; i < SW_LEN(machine); i++) {
        char path[64];
        snprintf(path, sizeof path, "machine.%s", machine[i]);
        diff(c, "machine", machine[i], sw_past_run_fact(&c->runs[0], path),
             sw_past_run_fact(&c->runs[1], path));
    }
}

/* ---- steps ---- */

static bool same_bits(const struct comparison *c, enum sw_figure figure, const int64_t at[2])
{
    const double x = c->runs[0].figures[figure][at[0]], y = c->runs[1].figures[figure][at[1]];
    return (isnan(x) && isnan(y)) || memcmp(&x, &y, sizeof x) == 0;
}

static void diff_steps(struct comparison *c)
{
    int64_t at[2] = {0, 0};
    c->first_step = -1;
    while (at[0] < c->runs[0].n && at[1] < c->runs[1].n) {
        const int64_t a = c->runs[0].steps[at[0]], b = c->runs[1].steps[at[1]];
        if (a != b) {
            const int less = a < b ? 0 : 1;
            c->only[less]++;
            at[less]++;
            continue;
        }
        c->steps++;
        if (c->first_step < 0 &&
            !(same_bits(c, SW_FIGURE_LOSS, at) && same_bits(c, SW_FIGURE_NORM, at))) {
            c->first_step = a;
            memcpy(c->at, at, sizeof at);
        }
        at[0]++;
        at[1]++;
    }
    for (int i = 0; i < 2; i++) {
        c->only[i] += c->runs[i].n - at[i];
    }
}

static bool is_same(const struct comparison *c)
{
    return !c->first && c->first_step < 0 && c->only[0] == 0 && c->only[1] == 0;
}

/* ---- words ---- */

static void print_steps(const struct comparison *c, struct sw_str *out)
{
    if (c->first_step < 0) {
        sw_str_printf(out, "steps: %lld of both%s\n", (long long)c->steps,
                      c->steps > 0 ? ", the same in loss and norm, bit for bit" : "");
    } else {
        double values[2][2];
        for (int i = 0; i < 2; i++) {
            values[i][0] = c->runs[i].figures[SW_FIGURE_LOSS][c->at[i]];
            values[i][1] = c->runs[i].figures[SW_FIGURE_NORM][c->at[i]];
        }
        sw_str_printf(out,
                      "steps: %lld of both; the first that differs is step %lld\n"
                      "  A: loss %.17g, norm %.17g\n  B: loss %.17g, norm %.17g\n",
                      (long long)c->steps, (long long)c->first_step, values[0][0], values[0][1],
                      values[1][0], values[1][1]);
    }
    for (int i = 0; i < 2; i++) {
        if (c->only[i] > 0) {
            sw_str_printf(out, "steps: %lld of %s alone\n", (long long)c->only[i], i ? "B" : "A");
        }
    }
}

static int width_of(const char *text)
{
    int n = 0;
    for (; *text; text++) {
        n += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return n;
}

enum { MOST_WIDTH = 48 };

static void print_cell(const char *text, int width, struct sw_str *out)
{
    char plain[2048];
    sw_plain_words(text, plain, sizeof plain);
    const int n = width_of(plain);
    sw_str_printf(out, "%s%*s", plain, width > n ? width - n + 2 : 2, "");
}

static void print_text(const struct comparison *c, struct sw_str *out)
{
    int key = 0, value = 0;
    const char *section = "";
    char plain[2][4200];
    for (const struct difference *d = c->first; d; d = d->next) {
        key = width_of(d->key) > key ? width_of(d->key) : key;
        value = width_of(d->a) > value ? width_of(d->a) : value;
    }
    key = key < MOST_WIDTH ? key : MOST_WIDTH;
    value = value < MOST_WIDTH ? value : MOST_WIDTH;
    sw_str_printf(out, "A: %s\nB: %s\n", sw_plain_words(c->runs[0].path, plain[0], sizeof plain[0]),
                  sw_plain_words(c->runs[1].path, plain[1], sizeof plain[1]));
    for (int i = 0; i < 2; i++) {
        if (!c->runs[i].doc) {
            sw_str_printf(out, "%s has no run.json: its configuration is not known\n",
                          i ? "B" : "A");
        }
    }
    for (const struct difference *d = c->first; d; d = d->next) {
        if (strcmp(section, d->section) != 0) {
            section = d->section;
            sw_str_printf(out, "%s\n", section);
        }
        sw_str_puts(out, "  ");
        print_cell(d->key, key, out);
        print_cell(d->a, value, out);
        print_cell(d->b, 0, out);
        out->len -= 2;
        sw_str_putc(out, '\n');
    }
    print_steps(c, out);
    sw_str_puts(out, is_same(c) ? "no compared value differs\n" : "");
}

/* ---- for programs ---- */

static void put_string(struct sw_str *out, const char *key, const char *text)
{
    sw_str_printf(out, "\"%s\":", key);
    sw_json_write_string(text, strlen(text), out);
}

static void put_pair(const struct comparison *c, enum sw_figure figure, struct sw_str *out)
{
    sw_str_printf(out, ",\"%s\":[", sw_figure_name(figure));
    for (int i = 0; i < 2; i++) {
        const double value = c->runs[i].figures[figure][c->at[i]];
        sw_str_puts(out, i ? "," : "");
        sw_json_write_any_f64(value, out);
    }
    sw_str_putc(out, ']');
}

static void print_json(const struct comparison *c, struct sw_str *out)
{
    sw_str_printf(out, "{\"same\":%s,", is_same(c) ? "true" : "false");
    put_string(out, "a", c->runs[0].path);
    sw_str_putc(out, ',');
    put_string(out, "b", c->runs[1].path);
    sw_str_puts(out, ",\"differences\":[");
    for (const struct difference *d = c->first; d; d = d->next) {
        sw_str_puts(out, d == c->first ? "{" : ",{");
        put_string(out, "of", d->section);
        sw_str_putc(out, ',');
        put_string(out, "key", d->key);
        sw_str_putc(out, ',');
        put_string(out, "a", d->a);
        sw_str_putc(out, ',');
        put_string(out, "b", d->b);
        sw_str_putc(out, '}');
    }
    sw_str_printf(out, "],\"steps\":{\"both\":%lld,\"a_alone\":%lld,\"b_alone\":%lld",
                  (long long)c->steps, (long long)c->only[0], (long long)c->only[1]);
    if (c->first_step >= 0) {
        sw_str_printf(out, ",\"first\":{\"step\":%lld", (long long)c->first_step);
        put_pair(c, SW_FIGURE_LOSS, out);
        put_pair(c, SW_FIGURE_NORM, out);
        sw_str_putc(out, '}');
    }
    sw_str_puts(out, "}}\n");
}

/* ---- what is compared ---- */

static sw_status compare_runs(const char *const paths[2], bool json, bool *out_same,
                              struct sw_str *out)
{
    struct comparison c = {.end = &c.first};
    int n = 0;
    sw_status st = SW_OK;
    sw_arena_init(&c.arena, "report");
    for (; n < 2 && st >= 0; n += st >= 0) {
        st = sw_past_run_read(paths[n], &c.runs[n]);
    }
    if (st >= 0) {
        diff_facts(&c);
        diff_steps(&c);
        if (json) {
            print_json(&c, out);
        } else {
            print_text(&c, out);
        }
        *out_same = is_same(&c);
        st = c.failed || out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a comparison")
                                     : SW_OK;
    }
    for (int i = 0; i < n; i++) {
        sw_past_run_close(&c.runs[i]);
    }
    sw_arena_fini(&c.arena);
    return st;
}

static sw_status compare_plans(const char *const paths[2], bool json, bool *out_same,
                               struct sw_str *out)
{
    struct sw_plan_source source[2];
    char *texts[2] = {NULL, NULL};
    sw_status st = SW_OK;
    for (int i = 0; i < 2 && st >= 0; i++) {
        source[i].name = paths[i];
        st = sw_file_read(paths[i], &texts[i], &source[i].len);
        source[i].text = texts[i];
    }
    st = st < 0 ? st : sw_plan_diff(source, json, out_same, out);
    if (st >= 0 && json) {
        sw_str_putc(out, '\n');
    }
    sw_free(texts[0]);
    sw_free(texts[1]);
    return st;
}

sw_status sw_compare_text(const char *a, const char *b, bool json, bool *out_same, char **out)
{
    const char *const paths[2] = {a, b};
    struct sw_str text = {0};
    struct stat info[2];
    bool folder[2];
    for (int i = 0; i < 2; i++) {
        if (stat(paths[i], &info[i]) != 0) {
            return SW_FAIL(SW_E_ARG, "%s does not exist; wanted a run, or a plan", paths[i]);
        }
        folder[i] = S_ISDIR(info[i].st_mode);
    }
    if (folder[0] != folder[1]) {
        return SW_FAIL(SW_E_ARG, "%s is a folder and %s a file: wanted two runs, or two plans",
                       folder[0] ? a : b, folder[0] ? b : a);
    }
    const sw_status st = folder[0] ? compare_runs(paths, json, out_same, &text)
                                   : compare_plans(paths, json, out_same, &text);
    if (st < 0 || text.failed) {
        sw_str_fini(&text);
        return st < 0 ? st : SW_FAIL(SW_E_NOMEM, "out of host memory for a comparison");
    }
    *out = text.ptr;
    return SW_OK;
}
