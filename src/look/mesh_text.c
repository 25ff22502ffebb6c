// SPDX-License-Identifier: Apache-2.0
// Tabulates a plan by the stages of its pipeline: the memory that a rank of each stage needs, the
// micro-batches that it keeps, and the bytes that it sends along each axis of the mesh.
#include <stdio.h>
#include <string.h>

#include "json/json.h"
#include "look/private.h"
#include "show/show.h"
#include "spillway/look.h"

enum { MOST_GROUPS = 1 << SW_AXIS_COUNT };

struct row { /* a rank of one stage */
    int rank;
    struct sw_str blocks, json_blocks; /* of its chunks */
    int slots; /* micro-batches that wait for their backward at once, at most */
    size_t tier_bytes[SW_TIER_COUNT];
    int64_t sent[MOST_GROUPS]; /* by the axes of the group */
    int64_t boundary;          /* along data, with "reduce": "boundary"; -1 = refused */
};

struct view {
    struct row *rows; /* [n] by stage */
    int n;
    struct sw_mesh mesh;
    const char *schedule;
    unsigned used;         /* the axes with several ranks */
    struct sw_str line;    /* the mesh in words */
    struct sw_str hosts;   /* its hosts in JSON */
    struct sw_str refused; /* why "boundary" is; empty = it is not */
};

/* ---- a row ---- */

/* Counts the micro-batches whose forward has run and whose backward has not. */
static int count_slots(const struct sw_plan *plan)
{
    int now = 0, most = 0;
    for (int32_t i = 0; i < plan->step.n_phases; i++) {
        const struct sw_step_phase *phase = &plan->step.phases[i];
        if (phase->action == SW_STEP_RUN && phase->n_micro > 0) {
            now += phase->segment == SW_SEGMENT_FORWARD    ? phase->n_micro
                   : phase->segment == SW_SEGMENT_BACKWARD ? -phase->n_micro
                                                           : 0;
            most = now > most ? now : most;
        }
    }
    return most;
}

static int64_t sent_along_data(const struct sw_plan *plan)
{
    return sw_plan_group_bytes(plan, SW_GROUP_DATA);
}

static void print_blocks(const sw_engine *e, struct row *out)
{
    int first, end;
    for (int c = 0; sw_engine_blocks(e, c, &first, &end); c++) {
        sw_str_puts(&out->blocks, c > 0 ? ", " : "");
        sw_str_printf(&out->blocks,
                      end > first + 1 ? "%d to %d"
                      : end > first   ? "%d"
                                      : "none",
                      first, end - 1);
        sw_str_printf(&out->json_blocks, "%s[%d,%d]", c > 0 ? "," : "", first, end);
    }
}

static void fill_row(const struct sw_lined_rank *stage, unsigned used, struct row *out)
{
    const struct sw_engine_facts f = sw_engine_facts(stage->engine);
    *out = (struct row){.rank = stage->rank, .slots = count_slots(f.plan), .boundary = -1};
    print_blocks(stage->engine, out);
    memcpy(out->tier_bytes, f.plan->tier_bytes, sizeof out->tier_bytes);
    for (int g = 0; g < f.plan->n_groups; g++) {
        if (f.plan->groups[g].n > 1) {
            out->sent[f.plan->groups[g].axes & used] += sw_plan_group_bytes(f.plan, g);
        }
    }
}

/* ---- the other order of sums ---- */

/* Opens the same ranks with one edit more. */
static sw_status open_with(const struct sw_engine_options *options, const char *edit, int ranks,
                           struct sw_lineup *out)
{
    struct sw_engine_options o = *options;
    const char **sets = NULL;
    SW_TRY(sw_engine_join_sets(&options->config, &edit, 1, &sets));
    o.config.sets = sets;
    o.config.n_sets++;
    const sw_status st = sw_lineup_open(&o, ranks, out);
    sw_free(sets);
    return st;
}

/* Plans with "reduce": "boundary", for its bytes. A refusal is kept as text. */
static sw_status find_boundary(const struct sw_engine_options *options, int ranks, struct view *v)
{
    struct sw_lineup lineup;
    const sw_status st = open_with(options, "spillway.reduce=boundary", ranks, &lineup);
    if (st == SW_E_CONFIG || st == SW_E_UNSUP || st == SW_E_NOMEM) {
        sw_str_puts(&v->refused, sw_error_message());
        return SW_OK;
    }
    SW_TRY(st);
    for (int s = 0; s < lineup.n && s < v->n; s++) {
        v->rows[s].boundary = sent_along_data(sw_engine_facts(lineup.stages[s].engine).plan);
    }
    sw_lineup_close(&lineup);
    return SW_OK;
}

/* ---- text ---- */

/* The axes of a group as a heading, such as "data" or "pipe". All of several axes are "world". */
static const char *heading(const struct view *v, unsigned axes, char *buf, size_t cap)
{
    const bool several = (v->used & (v->used - 1)) != 0;
    const struct sw_group group = {.axes = several && axes == v->used ? SW_ALL_AXES : axes};
    return sw_group_format(&group, buf, cap);
}

static bool is_sent(const struct view *v, unsigned axes)
{
    bool any = false;
    for (int s = 0; s < v->n; s++) {
        any |= v->rows[s].sent[axes] > 0;
    }
    return any;
}

static int64_t all_sent(const struct row *row)
{
    int64_t sum = 0;
    for (unsigned axes = 0; axes < MOST_GROUPS; axes++) {
        sum += row->sent[axes];
    }
    return sum;
}

static void print_memory(const struct view *v, struct sw_str *out)
{
    sw_str_puts(out, "bytes held by a rank of each stage\n"
                     "stage   rank     blocks  kept           device             host            "
                     " disk\n");
    for (int s = 0; s < v->n; s++) {
        const struct row *row = &v->rows[s];
        sw_str_printf(out, "%5d %6d %10s %5d", s, row->rank, sw_str_text(&row->blocks), row->slots);
        for (int t = 0; t < SW_TIER_COUNT; t++) {
            sw_str_printf(out, " %16zu", row->tier_bytes[t]);
        }
        sw_str_putc(out, '\n');
    }
    sw_str_puts(out,
                "(kept: micro-batches, of all chunks, between their forward and their backward)\n");
}

static void print_sent(const struct view *v, struct sw_str *out)
{
    char name[64];
    const bool boundary = v->rows[0].boundary >= 0;
    sw_str_puts(out, "\nbytes sent by a rank of each stage in a step, by axis\nstage");
    for (unsigned axes = 0; axes < MOST_GROUPS; axes++) {
        if (is_sent(v, axes)) {
            sw_str_printf(out, " %16s", heading(v, axes, name, sizeof name));
        }
    }
    sw_str_printf(out, " %16s%s\n", "= sent", boundary ? "   data, boundary" : "");
    for (int s = 0; s < v->n; s++) {
        sw_str_printf(out, "%5d", s);
        for (unsigned axes = 0; axes < MOST_GROUPS; axes++) {
            if (is_sent(v, axes)) {
                sw_str_printf(out, " %16lld", (long long)v->rows[s].sent[axes]);
            }
        }
        sw_str_printf(out, " %16lld", (long long)all_sent(&v->rows[s]));
        if (boundary) {
            sw_str_printf(out, " %16lld", (long long)v->rows[s].boundary);
        }
        sw_str_putc(out, '\n');
    }
}

static void print_text(const struct view *v, struct sw_str *out)
{
    sw_str_printf(out, "\n%s", sw_str_text(&v->line));
    if (v->n > 1) {
        sw_str_printf(out, "schedule: %s\n", v->schedule);
    }
    print_memory(v, out);
    print_sent(v, out);
    if (sw_mesh_size(&v->mesh, 1U << SW_AXIS_EXPERT) > 1) {
        sw_str_puts(out, "(expert: at most; the rows that routers count travel)\n");
    }
    if (v->rows[0].boundary >= 0) {
        sw_str_puts(out, "(boundary: \"reduce\": \"boundary\" adds the micro-batches of a rank "
                         "first, so the bits depend on the ranks)\n");
    } else if (v->refused.len > 0) {
        sw_str_printf(out, "\"reduce\": \"boundary\" is refused: %s\n", sw_str_text(&v->refused));
    }
}

/* ---- JSON ---- */

static void json_row(const struct view *v, int s, struct sw_str *out)
{
    const struct row *row = &v->rows[s];
    char name[64];
    sw_str_printf(out, "%s{\"stage\":%d,\"rank\":%d,\"blocks\":[%s],\"kept\":%d", s > 0 ? "," : "",
                  s, row->rank, sw_str_text(&row->json_blocks), row->slots);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sw_str_printf(out, ",\"%s_bytes\":%zu", sw_tier_name((enum sw_tier)t), row->tier_bytes[t]);
    }
    sw_str_puts(out, ",\"sent\":{");
    for (unsigned axes = 0; axes < MOST_GROUPS; axes++) {
        if (is_sent(v, axes)) {
            sw_str_printf(out, "\"%s\":%lld,", heading(v, axes, name, sizeof name),
                          (long long)row->sent[axes]);
        }
    }
    sw_str_printf(out, "\"total\":%lld}", (long long)all_sent(row));
    if (row->boundary >= 0) {
        sw_str_printf(out, ",\"data_boundary\":%lld", (long long)row->boundary);
    }
    sw_str_putc(out, '}');
}

/* The hosts, by runs of ranks. */
static void json_hosts(const sw_engine *e, int ranks, struct sw_str *out)
{
    sw_str_puts(out, ",\"hosts\":[");
    for (int first = 0, end; first < ranks && sw_engine_host(e, first); first = end) {
        const char *host = sw_engine_host(e, first);
        for (end = first + 1; end < ranks && strcmp(sw_engine_host(e, end), host) == 0; end++) {
        }
        sw_str_puts(out, first > 0 ? ",{\"name\":" : "{\"name\":");
        sw_json_write_string(host, strlen(host), out);
        sw_str_printf(out, ",\"ranks\":[%d,%d]}", first, end);
    }
    sw_str_putc(out, ']');
}

static void print_json(const struct view *v, struct sw_str *out)
{
    sw_str_puts(out, "{\"sizes\":{");
    for (unsigned a = 0; a < SW_AXIS_COUNT; a++) {
        sw_str_printf(out, "%s\"%s\":%d", a > 0 ? "," : "", sw_axis_name((enum sw_axis)a),
                      sw_mesh_size(&v->mesh, 1U << a));
    }
    sw_str_printf(out, "}%s,\"schedule\":\"%s\",\"stages\":[", sw_str_text(&v->hosts), v->schedule);
    for (int s = 0; s < v->n; s++) {
        json_row(v, s, out);
    }
    sw_str_putc(out, ']');
    if (v->refused.len > 0) {
        sw_str_puts(out, ",\"boundary_refused\":");
        sw_json_write_string(v->refused.ptr, v->refused.len, out);
    }
    sw_str_putc(out, '}');
}

/* ---- entry point ---- */

/* True if a rank sums several micro-batches, so that the two orders differ. */
static bool has_two_orders(const struct sw_lineup *lineup)
{
    const struct sw_engine_facts f = sw_engine_facts(lineup->stages[0].engine);
    return f.trains && f.data.size > 1 && f.rounds > 1 && f.config->zero.stage < 2 &&
           f.config->spillway.reduce == SW_REDUCE_CANONICAL;
}

static sw_status fill(const struct sw_lineup *lineup, struct view *v)
{
    const struct sw_engine_facts f = sw_engine_facts(lineup->stages[0].engine);
    v->mesh = f.mesh;
    v->schedule = sw_schedule_name((enum sw_step_schedule)f.config->spillway.schedule);
    v->rows = sw_alloc_zero("look", (size_t)lineup->n, sizeof *v->rows);
    SW_TRY_ALLOC(v->rows, "a table of stages");
    sw_engine_print_mesh(lineup->stages[0].engine, &v->line);
    json_hosts(lineup->stages[0].engine, f.world.size, &v->hosts);
    for (unsigned a = 0; a < SW_AXIS_COUNT; a++) {
        v->used |= sw_mesh_size(&v->mesh, 1U << a) > 1 ? 1U << a : 0;
    }
    for (v->n = 0; v->n < lineup->n; v->n++) {
        fill_row(&lineup->stages[v->n], v->used, &v->rows[v->n]);
    }
    return SW_OK;
}

/* *failed: set if memory ran out for a part */
static void close_view(struct view *v, bool *failed)
{
    *failed |= v->line.failed || v->hosts.failed || v->refused.failed;
    for (int s = 0; s < v->n; s++) {
        *failed |= v->rows[s].blocks.failed || v->rows[s].json_blocks.failed;
        sw_str_fini(&v->rows[s].blocks);
        sw_str_fini(&v->rows[s].json_blocks);
    }
    sw_str_fini(&v->line);
    sw_str_fini(&v->hosts);
    sw_str_fini(&v->refused);
    sw_free(v->rows);
}

sw_status sw_plan_mesh_text(const struct sw_engine_options *options, int ranks, bool json,
                            char **out)
{
    struct view v = {0};
    struct sw_lineup lineup;
    struct sw_str text = {0};
    SW_TRY_OPTIONS(options);
    SW_TRY(sw_lineup_open(options, ranks, &lineup));
    const bool both = has_two_orders(&lineup);
    sw_status st = fill(&lineup, &v);
    sw_lineup_close(&lineup);
    st = st < 0 || !both ? st : find_boundary(options, ranks, &v);
    if (st >= 0 && json) {
        print_json(&v, &text);
    } else if (st >= 0 && (v.used & ~(1U << SW_AXIS_DATA))) {
        print_text(&v, &text);
    }
    close_view(&v, &text.failed);
    return sw_look_give(st, &text, out);
}
