// SPDX-License-Identifier: Apache-2.0
// Bars, lines and lanes of a page of pictures.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/pictures.h"

enum { WIDTH = 1000, GAP = 8 }; /* units of a picture */

/* ---- bytes by tier ---- */

/* A full bar is what there is, or what is taken if that is more. */
static void tier_row(const struct sw_json *tier, struct sw_str *out)
{
    const struct sw_json *bytes = sw_json_get(tier, "bytes");
    const struct sw_json *there = sw_json_get(tier, "there_are");
    const double most = fmax(bytes->number, there->number);
    const bool fits = bytes->number <= there->number;
    sw_str_printf(out, "<div class=\"row\"><span>%s</span>", tier->key);
    sw_str_printf(out,
                  "<svg viewBox=\"0 0 %d 10\" preserveAspectRatio=\"none\" role=\"img\">"
                  "<title>bytes of %s</title><rect class=\"%s\" height=\"10\" width=\"%.2f\"",
                  WIDTH, tier->key, fits ? "b1" : "b3", WIDTH * bytes->number / most);
    sw_picture_source(bytes, out);
    sw_str_puts(out, "/></svg><span class=\"figs\">");
    sw_picture_number(bytes, SW_PICTURE_BYTES, out);
    sw_str_puts(out, " of ");
    sw_picture_number(there, SW_PICTURE_BYTES, out);
    sw_str_puts(out, fits ? "</span></div>\n"
                          : " <span class=\"miss\">does not fit</span></span></div>\n");
}

void sw_picture_tiers(const struct sw_json *of, const char *name, struct sw_str *out)
{
    const struct sw_json *tiers = sw_json_get(of, "tiers");
    if (!tiers) {
        return;
    }
    sw_str_puts(out, "<figure class=\"chart\"><figcaption><h3>Bytes of a rank");
    sw_str_printf(out, "%s%s</h3><span>of what there is</span></figcaption>\n", name ? ", " : "",
                  name ? name : "");
    for (const struct sw_json *tier = tiers->first; tier; tier = tier->next) {
        if (sw_picture_value(tier, "bytes") > 0 || sw_picture_value(tier, "there_are") > 0) {
            tier_row(tier, out);
        }
    }
    sw_str_puts(out, "</figure>\n");
}

/* ---- where the step goes ---- */

static int queue_of(const char *name)
{
    int q = 0;
    while (q + 1 < SW_QUEUE_COUNT && strcmp(sw_queue_name((enum sw_queue)q), name) != 0) {
        q++;
    }
    return q;
}

void sw_picture_find_parts(const struct sw_json *of, bool parts[])
{
    const struct sw_json *all = sw_json_get(of, "of_step");
    for (const struct sw_json *part = all ? all->first : NULL; part; part = part->next) {
        parts[queue_of(part->key)] |= part->number > 0;
    }
}

void sw_picture_queue_keys(const bool parts[], struct sw_str *out)
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (parts[q]) {
            sw_str_printf(out, "<span class=\"key q%d\">%s</span>", q,
                          sw_queue_name((enum sw_queue)q));
        }
    }
}

void sw_picture_stack_bar(const struct sw_picture_stack *stack, double most, struct sw_str *out)
{
    double at = 0;
    sw_str_printf(
        out,
        "<svg viewBox=\"0 0 %d 10\" preserveAspectRatio=\"none\" role=\"img\"><title>parts "
        "of a step</title>",
        WIDTH);
    for (const struct sw_json *part = sw_json_get(stack->of, "of_step")->first; part;
         part = part->next) {
        if (part->number > 0) {
            const double width = WIDTH * part->number / most;
            sw_str_printf(out, "<rect class=\"q%d\" x=\"%.2f\" height=\"10\" width=\"%.2f\"",
                          queue_of(part->key), at, width);
            sw_picture_source(part, out);
            sw_str_puts(out, "/>");
            at += width;
        }
    }
    sw_str_puts(out, "</svg>");
}

static void parts_as_text(const struct sw_json *of, struct sw_str *out)
{
    sw_str_puts(out, "<span class=\"figs\">");
    sw_picture_number(sw_json_get(of, "step_seconds"), SW_PICTURE_SECONDS, out);
    sw_str_puts(out, ":");
    for (const struct sw_json *part = sw_json_get(of, "of_step")->first; part; part = part->next) {
        if (part->number > 0) {
            sw_str_printf(out, " <span class=\"key q%d\">%s ", queue_of(part->key), part->key);
            sw_picture_number(part, SW_PICTURE_SECONDS, out);
            sw_str_puts(out, "</span>");
        }
    }
    sw_str_puts(out, "</span>");
}

void sw_picture_stacks(const char *title, const struct sw_picture_stack *stacks, int n,
                       struct sw_str *out)
{
    double most = 0;
    for (int i = 0; i < n; i++) {
        most = fmax(most, sw_picture_value(stacks[i].of, "step_seconds"));
    }
    if (n == 0 || !(most > 0)) {
        return;
    }
    sw_str_printf(out,
                  "<figure class=\"chart\"><figcaption><h3>%s</h3><span>computation, and its waits "
                  "for other queues</span></figcaption>\n",
                  title);
    for (int i = 0; i < n; i++) {
        sw_str_puts(out, "<div class=\"row\"><span>");
        sw_html_name(out, stacks[i].name);
        sw_str_puts(out, "</span>");
        sw_picture_stack_bar(&stacks[i], most, out);
        parts_as_text(stacks[i].of, out);
        sw_str_puts(out, "</div>\n");
    }
    sw_str_puts(out, "</figure>\n");
}

/* ---- lines ---- */

sw_status sw_picture_line_open(struct sw_picture_line *line, int most)
{
    line->run.n = 0;
    line->run.steps = sw_alloc_zero("report", (size_t)most + 1, sizeof *line->run.steps);
    SW_TRY_ALLOC(line->run.steps, "a picture");
    for (size_t k = 0; k < SW_LEN(line->values); k++) {
        line->values[k] = sw_alloc_zero("report", (size_t)most + 1, sizeof *line->values[k]);
        SW_TRY_ALLOC(line->values[k], "a picture");
    }
    return SW_OK;
}

void sw_picture_line_add(struct sw_picture_line *line, int64_t x, double predicted,
                         double published, double linear)
{
    const double values[] = {predicted, published, linear};
    for (size_t k = 0; k < SW_LEN(line->values); k++) {
        line->values[k][line->run.n] = values[k];
    }
    line->run.steps[line->run.n++] = x;
}

sw_status sw_picture_line_write(const struct sw_picture_line *line, struct sw_str *out)
{
    static const char *const names[] = {"predicted", "published", NULL};
    static const enum sw_curve_style styles[] = {SW_CURVE_DOTS, SW_CURVE_DOTS, SW_CURVE_LIMIT};
    static const int colors[] = {0, 1, 7};
    bool is_published = false;
    for (int64_t i = 0; i < line->run.n; i++) {
        is_published = is_published || isfinite(line->values[1][i]);
    }
    struct sw_chart chart = {.title = line->title,
                             .x = line->x,
                             .unit = SW_UNIT_NUMBER,
                             .from_zero = true,
                             .first_step = line->run.n > 0 ? line->run.steps[0] : 0,
                             .last_step = line->run.n > 0 ? line->run.steps[line->run.n - 1] : 0,
                             .note = is_published
                                         ? "<span class=\"key c0\">predicted</span><span "
                                           "class=\"key c1\">published</span>dashed: linear"
                                         : "<span class=\"key c0\">predicted</span>dashed: linear"};
    for (size_t k = 0; k < SW_LEN(line->values); k++) {
        sw_chart_add(&chart, &(struct sw_curve){.run = &line->run,
                                                .values = line->values[k],
                                                .name = names[k],
                                                .style = styles[k],
                                                .color = colors[k]});
    }
    return line->run.n > 0 ? sw_chart_write(&chart, out) : SW_OK;
}

void sw_picture_line_close(struct sw_picture_line *line)
{
    sw_free(line->run.steps);
    for (size_t k = 0; k < SW_LEN(line->values); k++) {
        sw_free(line->values[k]);
    }
}

/* ---- lanes ---- */

static enum sw_lane_kind kind_of(const char *name)
{
    int k = 0;
    while (k + 1 < SW_LANE_KINDS && strcmp(sw_lane_kind_name((enum sw_lane_kind)k), name) != 0) {
        k++;
    }
    return (enum sw_lane_kind)k;
}

/* A block is [begin, end, share, kind]. */
static void take_blocks(struct sw_lanes *to, int lane, const struct sw_json *queue)
{
    for (const struct sw_json *b = sw_json_get(queue, "blocks")->first; b; b = b->next) {
        const struct sw_json *end = b->first->next, *share = end->next;
        sw_lanes_add(to, lane, kind_of(share->next->string), b->first->number, end->number,
                     share->number);
    }
}

/* The lane of a queue of a rank: its name, share and shapes. */
static sw_status draw_lane(const char *name, const struct sw_json *queue, double seconds,
                           struct sw_str *out)
{
    struct sw_lanes lanes;
    SW_TRY(sw_lanes_open(1, 0, seconds, &lanes));
    take_blocks(&lanes, 0, queue);
    sw_str_puts(out, "<div class=\"names\"><span>");
    sw_html_name(out, name);
    sw_str_puts(out, " <small>");
    sw_picture_number(sw_json_get(queue, "busy_share"), SW_PICTURE_SHARE, out);
    sw_str_printf(out,
                  "</small></span></div><svg style=\"height:2.4rem\" viewBox=\"0 0 %d %d\" "
                  "preserveAspectRatio=\"none\" role=\"img\"><title>Work of ",
                  SW_LANE_COLUMNS, SW_LANE_HEIGHT + GAP);
    sw_html_text(out, name, strlen(name), false);
    sw_str_puts(out, " during the step</title>");
    sw_lane_draw(&lanes, 0, GAP / 2 + SW_LANE_HEIGHT, out);
    sw_str_puts(out, "</svg>\n");
    sw_lanes_close(&lanes);
    return SW_OK;
}

static void rank_name(const struct sw_json *stage, struct sw_str *out)
{
    sw_str_puts(out, "rank ");
    sw_picture_number(sw_json_get(stage, "rank"), SW_PICTURE_COUNT, out);
}

static sw_status draw_rank(const struct sw_json *stage, double seconds, bool open,
                           struct sw_str *out)
{
    sw_str_printf(out, "<details%s><summary>All queues of ", open ? " open" : "");
    rank_name(stage, out);
    sw_str_puts(out, ", idle ");
    sw_picture_number(sw_json_get(stage, "idle_share"), SW_PICTURE_SHARE, out);
    sw_str_puts(out, "</summary><div class=\"lanes\">");
    for (const struct sw_json *q = sw_json_get(stage, "queues")->first; q; q = q->next) {
        SW_TRY(draw_lane(sw_picture_text(q, "queue"), q, seconds, out));
    }
    sw_str_puts(out, "</div></details>\n");
    return SW_OK;
}

/* The computation of all stages below each other. */
static sw_status draw_stages(const struct sw_json *lanes, double seconds, struct sw_str *out)
{
    int number = 0;
    sw_str_puts(out, "<div class=\"lanes\">");
    for (const struct sw_json *stage = lanes->first; stage; stage = stage->next) {
        char name[32];
        snprintf(name, sizeof name, "stage %d", number++);
        for (const struct sw_json *q = sw_json_get(stage, "queues")->first; q; q = q->next) {
            if (strcmp(sw_picture_text(q, "queue"), sw_queue_name(SW_QUEUE_COMPUTE)) == 0) {
                SW_TRY(draw_lane(name, q, seconds, out));
            }
        }
    }
    sw_str_puts(out, "</div>\n");
    return SW_OK;
}

sw_status sw_picture_lanes(const struct sw_json *lanes, struct sw_str *out)
{
    double seconds = 0;
    for (const struct sw_json *stage = lanes->first; stage; stage = stage->next) {
        seconds = fmax(seconds, sw_picture_value(stage, "seconds"));
    }
    if (!(seconds > 0)) {
        return SW_OK;
    }
    sw_str_puts(out,
                "<section><h2>A step of each stage</h2><p class=\"legend\">in our accounting; the "
                "height is the share of its time in which a queue works <span class=\"key "
                "k0\">forward</span><span class=\"key k1\">backward</span><span class=\"key "
                "k2\">update</span></p>\n");
    SW_TRY(lanes->n_children > 1 ? draw_stages(lanes, seconds, out) : SW_OK);
    for (const struct sw_json *stage = lanes->first; stage; stage = stage->next) {
        SW_TRY(draw_rank(stage, seconds, stage == lanes->first, out));
    }
    sw_str_puts(out, "</section>\n");
    return SW_OK;
}
