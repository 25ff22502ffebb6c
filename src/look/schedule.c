// SPDX-License-Identifier: Apache-2.0
// Draws the step of a pipeline, as the clock predicts it: a lane for each stage, with the
// micro-batches that it computes, the messages between stages and the idle share. As text, as JSON
// or as a picture.
#include <stdio.h>
#include <string.h>

#include "json/json.h"
#include "look/private.h"
#include "show/show.h"
#include "spillway/look.h"

struct block { /* neighbouring kernels of a phase */
    double begin, end, busy;
    enum sw_segment segment;
    int64_t micro;
    int chunk;
    const struct sw_step_phase *phase;
};
struct message {
    double begin, end;
    int to; /* stage */
    int64_t bytes;
};

struct lane { /* of a stage */
    const struct sw_plan *plan;
    struct sw_mesh mesh;
    int me;
    struct block *blocks; /* [n_blocks] */
    int n_blocks, cap_blocks;
    struct message *messages; /* [n_messages] that it sends */
    int n_messages, cap_messages;
    bool failed; /* memory ran out */
    double idle;
};

struct picture {
    struct lane *lanes; /* [n] */
    int n;
    double seconds;
    int64_t micro_batches; /* of a rank */
    const char *schedule;
    struct sw_str mesh; /* in words */
};

/* ---- what the clock tells ---- */

static void *grown(void *items, int n, int *cap, size_t size)
{
    if (n < *cap) {
        return items;
    }
    *cap = 2 * *cap + 64;
    return sw_realloc("look", items, (size_t)*cap * size);
}

static void add_block(struct lane *lane, const struct sw_clock_span *span)
{
    struct block *last = lane->n_blocks > 0 ? &lane->blocks[lane->n_blocks - 1] : NULL;
    if (last && last->phase == span->phase) {
        last->end = span->end;
        last->busy += span->end - span->begin;
        return;
    }
    struct block *blocks =
        grown(lane->blocks, lane->n_blocks, &lane->cap_blocks, sizeof *lane->blocks);
    lane->failed |= !blocks;
    if (blocks) {
        lane->blocks = blocks;
        blocks[lane->n_blocks++] = (struct block){.begin = span->begin,
                                                  .end = span->end,
                                                  .busy = span->end - span->begin,
                                                  .segment = span->phase->segment,
                                                  .micro = span->phase->round,
                                                  .chunk = span->phase->chunk,
                                                  .phase = span->phase};
    }
}

static int stage_of(const struct lane *lane, int rank)
{
    return sw_mesh_coord(&lane->mesh, 1U << SW_AXIS_PIPE, rank).rank;
}

static void add_message(struct lane *lane, const struct sw_clock_span *span,
                        const struct sw_instr *instr)
{
    const struct sw_group *group = &lane->plan->groups[instr->exchange.group];
    struct message *messages =
        grown(lane->messages, lane->n_messages, &lane->cap_messages, sizeof *lane->messages);
    lane->failed |= !messages;
    if (messages) {
        lane->messages = messages;
        messages[lane->n_messages++] =
            (struct message){span->begin, span->end,
                             stage_of(lane, group->ranks[instr->exchange.peer]), instr->bytes};
    }
}

static void take_span(void *ctx, const struct sw_clock_span *span)
{
    struct lane *lane = ctx;
    const struct sw_instr *instr = &lane->plan->programs[0].instrs[span->instr];
    if (lane->failed) {
        return;
    }
    if (instr->queue == SW_QUEUE_COMPUTE) {
        add_block(lane, span);
    } else if (instr->verb == SW_VERB_SEND) {
        add_message(lane, span, instr);
    }
}

/* Walks the stages at given rates, and built-in ones for the others. */
static sw_status walk(const struct sw_lineup *lineup, const struct sw_speeds *speeds,
                      struct picture *p)
{
    bool unknown[SW_LOAD_COUNT];
    const size_t n = (size_t)lineup->n;
    struct sw_clock_rank *ranks = sw_alloc_zero("look", n, sizeof *ranks);
    const struct sw_speeds **each = sw_alloc_zero("look", n, sizeof *each);
    sw_status st =
        ranks && each ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for a picture of a step");
    for (int s = 0; s < lineup->n && st >= 0; s++) {
        const struct sw_engine_facts f = sw_engine_facts(lineup->stages[s].engine);
        p->lanes[s] = (struct lane){.plan = f.plan, .mesh = f.mesh, .me = lineup->stages[s].rank};
        ranks[s] = (struct sw_clock_rank){.plan = f.plan, .ran = take_span, .ctx = &p->lanes[s]};
        each[s] = speeds;
    }
    st = st < 0 ? st : sw_speeds_stages(ranks, each, lineup->n, unknown, &p->seconds);
    for (int s = 0; s < lineup->n && st >= 0; s++) {
        p->lanes[s].idle = ranks[s].idle;
        st = p->lanes[s].failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a picture of a step")
                                : SW_OK;
    }
    sw_free(ranks);
    sw_free(each);
    return st;
}

/* ---- text ---- */

enum { TEXT_COLUMNS = 96 };

/* The character of a block: a digit for forward, a letter for backward. */
static char sign_of(const struct block *block)
{
    return block->segment == SW_SEGMENT_FORWARD    ? (char)('0' + block->micro % 10)
           : block->segment == SW_SEGMENT_BACKWARD ? (char)('a' + block->micro % 26)
           : block->segment == SW_SEGMENT_WEIGHTS  ? (char)('A' + block->micro % 26)
                                                   : '=';
}

/* A column shows the block in its middle. */
static void fill_columns(const struct picture *p, const struct lane *lane, char line[])
{
    memset(line, '.', TEXT_COLUMNS);
    line[TEXT_COLUMNS] = '\0';
    for (int i = 0; i < lane->n_blocks; i++) {
        const struct block *block = &lane->blocks[i];
        for (int c = 0; c < TEXT_COLUMNS; c++) {
            const double at = p->seconds * (c + 0.5) / TEXT_COLUMNS;
            line[c] = block->begin <= at && at < block->end ? sign_of(block) : line[c];
        }
    }
}

static void fill_messages(const struct picture *p, int stage, char line[])
{
    const struct lane *lane = &p->lanes[stage];
    memset(line, ' ', TEXT_COLUMNS);
    line[TEXT_COLUMNS] = '\0';
    for (int i = 0; i < lane->n_messages; i++) {
        const int c = (int)(lane->messages[i].begin / p->seconds * TEXT_COLUMNS);
        const char sign = lane->messages[i].to > stage ? '>' : '<';
        char *at = &line[c < TEXT_COLUMNS ? c : TEXT_COLUMNS - 1];
        *at = *at == ' ' || *at == sign ? sign : 'x';
    }
}

static void print_text(const struct picture *p, struct sw_str *out)
{
    char line[TEXT_COLUMNS + 1];
    sw_str_printf(out, "\na step of %.6f s, %s, %lld micro-batch%s on a rank%s%s", p->seconds,
                  p->schedule, (long long)p->micro_batches, p->micro_batches == 1 ? "" : "es",
                  p->mesh.len > 0 ? "; " : "\n", sw_str_text(&p->mesh));
    for (int s = 0; s < p->n; s++) {
        fill_columns(p, &p->lanes[s], line);
        sw_str_printf(out, "stage %-3d|%s| idle %5.1f%%\n", s, line, 100 * p->lanes[s].idle);
        fill_messages(p, s, line);
        if (p->lanes[s].n_messages > 0) {
            sw_str_printf(out, "%9s|%s|\n", "", line);
        }
    }
    sw_str_puts(
        out,
        "digit: forward of that micro-batch (mod 10), with its waits; letter: backward (a = 0; A: "
        "gradients of weights alone); =: update; .: nothing\n>, <: a message to the next or the "
        "previous stage begins (x: both); idle: share of the time from the first forward to the "
        "last backward in which the stage does not compute\n");
}

/* ---- JSON ---- */

static void json_number(const char *key, double value, struct sw_str *out)
{
    sw_str_printf(out, "\"%s\":", key);
    sw_json_write_f64(value, out);
}

static void json_lane(const struct lane *lane, struct sw_str *out)
{
    sw_str_printf(out, "{\"rank\":%d,", lane->me);
    json_number("idle_share", lane->idle, out);
    sw_str_puts(out, ",\"phases\":[");
    for (int i = 0; i < lane->n_blocks; i++) {
        const struct block *block = &lane->blocks[i];
        const bool has_micro = block->segment < SW_SEGMENT_UPDATE;
        sw_str_printf(out, "%s{\"segment\":\"%s\",", i > 0 ? "," : "",
                      sw_segment_name(block->segment));
        if (has_micro) {
            sw_str_printf(out, "\"micro_batch\":%lld,\"chunk\":%d,", (long long)block->micro,
                          block->chunk);
        }
        json_number("begin", block->begin, out);
        sw_str_putc(out, ',');
        json_number("end", block->end, out);
        sw_str_putc(out, ',');
        json_number("busy", block->busy, out);
        sw_str_putc(out, '}');
    }
    sw_str_puts(out, "],\"messages\":[");
    for (int i = 0; i < lane->n_messages; i++) {
        const struct message *message = &lane->messages[i];
        sw_str_printf(out, "%s{\"to\":%d,\"bytes\":%lld,", i > 0 ? "," : "", message->to,
                      (long long)message->bytes);
        json_number("begin", message->begin, out);
        sw_str_putc(out, ',');
        json_number("end", message->end, out);
        sw_str_putc(out, '}');
    }
    sw_str_puts(out, "]}");
}

static void print_json(const struct picture *p, struct sw_str *out)
{
    sw_str_putc(out, '{');
    json_number("step_seconds", p->seconds, out);
    sw_str_printf(out, ",\"schedule\":\"%s\",\"stages\":[", p->schedule);
    for (int s = 0; s < p->n; s++) {
        sw_str_puts(out, s > 0 ? "," : "");
        json_lane(&p->lanes[s], out);
    }
    sw_str_puts(out, "]}");
}

/* ---- a picture ---- */

enum { LEFT = 70, RIGHT = 90, TOP = 56, STRIDE = SW_LANE_HEIGHT + 28 };

static double x_of(const struct picture *p, double at)
{
    return LEFT + at / p->seconds * SW_LANE_COLUMNS;
}

static enum sw_lane_kind kind_of(const struct block *block)
{
    return block->segment == SW_SEGMENT_FORWARD ? SW_LANE_FORWARD
           : block->segment < SW_SEGMENT_UPDATE ? SW_LANE_BACKWARD
                                                : SW_LANE_UPDATE;
}

/* The number of each micro-batch, where its block has room for it. */
static void draw_numbers(const struct picture *p, const struct lane *lane, int y,
                         struct sw_str *out)
{
    enum { ROOM = 14 };
    for (int i = 0; i < lane->n_blocks; i++) {
        const struct block *block = &lane->blocks[i];
        const double x = x_of(p, block->begin), to = x_of(p, block->end);
        if (block->segment < SW_SEGMENT_UPDATE && to - x >= ROOM) {
            sw_str_printf(out, "<text class=\"n\" x=\"%.1f\" y=\"%d\">%lld</text>\n", (x + to) / 2,
                          y + SW_LANE_HEIGHT / 2 + 4, (long long)block->micro);
        }
    }
}

static void draw_messages(const struct picture *p, int stage, struct sw_str *out)
{
    const struct lane *lane = &p->lanes[stage];
    sw_str_puts(out, lane->n_messages > 0 ? "<path class=\"m\" d=\"" : "");
    for (int i = 0; i < lane->n_messages; i++) {
        const struct message *m = &lane->messages[i];
        const bool down = m->to > stage;
        sw_str_printf(out, "M%.1f %dL%.1f %d", x_of(p, m->begin),
                      TOP + stage * STRIDE + (down ? SW_LANE_HEIGHT : 0), x_of(p, m->end),
                      TOP + m->to * STRIDE + (down ? 0 : SW_LANE_HEIGHT));
    }
    sw_str_puts(out, lane->n_messages > 0 ? "\"/>\n" : "");
}

static void draw_head(const struct picture *p, struct sw_str *out)
{
    const int width = LEFT + SW_LANE_COLUMNS + RIGHT, height = TOP + p->n * STRIDE;
    sw_str_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">\n"
        "<title>The stages of a step</title>\n<style>text{font:12px sans-serif;fill:#333}"
        ".n{font-size:10px;fill:#fff;text-anchor:middle}.k0{fill:#1f62a8}.k1{fill:#7848ad}"
        ".k2{fill:#2b7a4b}.k3{fill:#ccc}.m{stroke:#b9520a;fill:none}</style>\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
        "<text x=\"%d\" y=\"18\">%.6f s a step, %s, %lld micro-batches on a rank</text>\n",
        width, height, width, height, LEFT, p->seconds, p->schedule, (long long)p->micro_batches);
    static const char *const names[] = {"forward", "backward", "update"};
    for (int k = 0; k < (int)SW_LEN(names); k++) {
        sw_str_printf(out,
                      "<rect class=\"k%d\" x=\"%d\" y=\"27\" width=\"12\" height=\"12\"/>"
                      "<text x=\"%d\" y=\"37\">%s</text>\n",
                      k, LEFT + 90 * k, LEFT + 90 * k + 17, names[k]);
    }
    sw_str_printf(out,
                  "<path class=\"m\" d=\"M%d 33h20\"/><text x=\"%d\" y=\"37\">message</text>\n",
                  LEFT + 270, LEFT + 296);
}

static sw_status draw(const struct picture *p, struct sw_str *out)
{
    struct sw_lanes lanes;
    SW_TRY(sw_lanes_open(p->n, 0, p->seconds, &lanes));
    draw_head(p, out);
    for (int s = 0; s < p->n; s++) {
        const int y = TOP + s * STRIDE;
        for (int i = 0; i < p->lanes[s].n_blocks; i++) {
            const struct block *block = &p->lanes[s].blocks[i];
            const double share = block->busy / (block->end - block->begin);
            sw_lanes_add(&lanes, s, kind_of(block), block->begin, block->end, share);
        }
        sw_str_printf(out,
                      "<text x=\"8\" y=\"%d\">stage %d</text><g transform=\"translate(%d 0)\">",
                      y + SW_LANE_HEIGHT / 2 + 4, s, LEFT);
        sw_lane_draw(&lanes, s, y + SW_LANE_HEIGHT, out);
        sw_str_printf(out, "</g><text x=\"%d\" y=\"%d\">idle %.1f%%</text>\n",
                      LEFT + SW_LANE_COLUMNS + 10, y + SW_LANE_HEIGHT / 2 + 4,
                      100 * p->lanes[s].idle);
        draw_numbers(p, &p->lanes[s], y, out);
        draw_messages(p, s, out);
    }
    sw_str_puts(out, "</svg>\n");
    sw_lanes_close(&lanes);
    return SW_OK;
}

static sw_status write_picture(const struct picture *p, const char *path)
{
    struct sw_output file;
    struct sw_str svg = {0};
    SW_TRY(sw_output_open(path, true, &file));
    sw_status st = draw(p, &svg);
    st = st >= 0 && svg.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a picture") : st;
    st = st < 0 ? st : sw_output_put(&file, svg.ptr, svg.len, true);
    sw_output_close(&file);
    sw_str_fini(&svg);
    return st;
}

/* ---- entry point ---- */

static sw_status fill(const struct sw_lineup *lineup, const struct sw_predict_options *wanted,
                      struct picture *p)
{
    const struct sw_engine_facts f = sw_engine_facts(lineup->stages[0].engine);
    struct sw_speeds speeds;
    memset(&speeds, 0, sizeof speeds);
    sw_builtin_rates(&speeds.given);
    SW_TRY(sw_engine_take_rates(wanted->rates, wanted->n_rates, &speeds.given));
    p->schedule = sw_schedule_name((enum sw_step_schedule)f.config->spillway.schedule);
    p->micro_batches = f.rounds;
    sw_engine_print_mesh(lineup->stages[0].engine, &p->mesh);
    p->lanes = sw_alloc_zero("look", (size_t)lineup->n, sizeof *p->lanes);
    SW_TRY_ALLOC(p->lanes, "a picture of a step");
    p->n = lineup->n;
    return walk(lineup, &speeds, p);
}

static void close_picture(struct picture *p)
{
    for (int s = 0; s < p->n; s++) {
        sw_free(p->lanes[s].blocks);
        sw_free(p->lanes[s].messages);
    }
    sw_free(p->lanes);
    sw_str_fini(&p->mesh);
}

sw_status sw_plan_schedule_text(const struct sw_engine_options *options,
                                const struct sw_predict_options *wanted, const char *svg,
                                char **out)
{
    struct picture p = {0};
    struct sw_lineup lineup;
    struct sw_str text = {0};
    SW_TRY_OPTIONS(options);
    SW_TRY_OPTIONS(wanted);
    SW_TRY(sw_lineup_open(options, wanted->ranks > 1 ? wanted->ranks : 1, &lineup));
    sw_status st = fill(&lineup, wanted, &p);
    st = st < 0 || !svg ? st : write_picture(&p, svg);
    if (st >= 0 && wanted->json) {
        print_json(&p, &text);
    } else if (st >= 0 && svg) {
        sw_str_printf(&text, "\nschedule: %s, a step of %.6f s\n", svg, p.seconds);
    } else if (st >= 0) {
        print_text(&p, &text);
    }
    text.failed |= p.mesh.failed;
    close_picture(&p);
    sw_lineup_close(&lineup);
    return sw_look_give(st, &text, out);
}
