// SPDX-License-Identifier: Apache-2.0
// Lanes of a step, as shares of columns, and their shapes.
#include <math.h>

#include "show/show.h"

enum { SLIVER = SW_LANE_COLUMNS / SW_LANE_BLOCKS }; /* columns: a pixel of the narrowest phone */

sw_status sw_lanes_open(int n, double begin, double end, struct sw_lanes *out)
{
    *out = (struct sw_lanes){.begin = begin, .end = end, .n = n};
    out->busy = sw_alloc_zero("show", (size_t)n * SW_LANE_COLUMNS * SW_LANE_KINDS, sizeof(float));
    SW_TRY_ALLOC(out->busy, "a picture of a step");
    return SW_OK;
}

void sw_lanes_close(struct sw_lanes *lanes)
{
    sw_free(lanes->busy);
    lanes->busy = NULL;
}

static float *column_of(const struct sw_lanes *lanes, int lane, int column)
{
    return lanes->busy + ((size_t)lane * SW_LANE_COLUMNS + (size_t)column) * SW_LANE_KINDS;
}

void sw_lanes_add(struct sw_lanes *lanes, int lane, enum sw_lane_kind kind, double begin,
                  double end, double share)
{
    if (!(end > lanes->begin && begin < lanes->end)) {
        return;
    }
    const double scale = SW_LANE_COLUMNS / (lanes->end - lanes->begin);
    const double from = fmax((begin - lanes->begin) * scale, 0);
    const double to = fmin((end - lanes->begin) * scale, SW_LANE_COLUMNS);
    for (int c = (int)fmin(from, SW_LANE_COLUMNS); c < SW_LANE_COLUMNS && c < to; c++) {
        column_of(lanes, lane, c)[kind] +=
            (float)(share * fmax(fmin(to, c + 1) - fmax(from, c), 0));
    }
}

bool sw_lane_is_used(const struct sw_lanes *lanes, int lane)
{
    const float *busy = column_of(lanes, lane, 0);
    for (int i = 0; i < SW_LANE_COLUMNS * SW_LANE_KINDS; i++) {
        if (busy[i] > 0) {
            return true;
        }
    }
    return false;
}

double sw_lane_share(const struct sw_lanes *lanes, int lane)
{
    double sum = 0;
    for (int c = 0; c < SW_LANE_COLUMNS; c++) {
        for (int k = 0; k < SW_LANE_WAIT; k++) {
            sum += column_of(lanes, lane, c)[k];
        }
    }
    return fmin(sum / SW_LANE_COLUMNS, 1);
}

/* The look of columns: kind, and height in tenths. Waits block computation and do not count as
 * work. */
static int look_of(const struct sw_lanes *lanes, int lane, int from, int to)
{
    float busy[SW_LANE_KINDS] = {0}, sum = 0;
    int most = 0;
    for (int c = from; c < to; c++) {
        for (int k = 0; k < SW_LANE_KINDS; k++) {
            busy[k] += column_of(lanes, lane, c)[k];
        }
    }
    for (int k = 0; k < SW_LANE_KINDS; k++) {
        sum += busy[k];
        most = busy[k] > busy[most] ? k : most;
    }
    const float share = fminf(sum / (float)(to - from), 1);
    const int height = sum > 0 ? (int)fmaxf(roundf(10 * share), 1) : 0;
    return height * SW_LANE_KINDS + most;
}

/* Columns that look alike. */
struct run {
    int from, to, look;
};

/* A run has at least SLIVER columns: what is narrower than a pixel is one with what it stands
 * beside. */
static int find_runs(const struct sw_lanes *lanes, int lane, struct run out[SW_LANE_BLOCKS])
{
    int n = 0;
    for (int c = 0; c < SW_LANE_COLUMNS; n++) {
        struct run run = {c, c + SLIVER, look_of(lanes, lane, c, c + SLIVER)};
        while (run.to < SW_LANE_COLUMNS && (look_of(lanes, lane, run.to, run.to + 1) == run.look ||
                                            SW_LANE_COLUMNS - run.to < SLIVER)) {
            run.to++;
        }
        out[n] = run;
        c = run.to;
    }
    return n;
}

const char *sw_lane_kind_name(enum sw_lane_kind kind)
{
    static const char *const names[SW_LANE_KINDS] = {"forward", "backward", "update", "wait"};
    return names[kind];
}

int sw_lane_blocks(const struct sw_lanes *lanes, int lane, struct sw_lane_block out[SW_LANE_BLOCKS])
{
    struct run runs[SW_LANE_BLOCKS];
    const int n_runs = find_runs(lanes, lane, runs);
    const double column = (lanes->end - lanes->begin) / SW_LANE_COLUMNS;
    int n = 0;
    for (int i = 0; i < n_runs; i++) {
        const int height = runs[i].look / SW_LANE_KINDS;
        if (height > 0) {
            out[n++] =
                (struct sw_lane_block){.begin = lanes->begin + column * runs[i].from,
                                       .end = lanes->begin + column * runs[i].to,
                                       .share = height / 10.0,
                                       .kind = (enum sw_lane_kind)(runs[i].look % SW_LANE_KINDS)};
        }
    }
    return n;
}

/* Neighbours of one kind are one shape, with a step where their height changes. */
static void draw_kind(const struct run *runs, int n, int kind, int bottom, struct sw_str *out)
{
    bool open = false;
    sw_str_printf(out, "<path class=\"k%d\" d=\"", kind);
    for (int i = 0; i < n; i++) {
        const int height = SW_LANE_HEIGHT * (runs[i].look / SW_LANE_KINDS) / 10;
        const bool is = runs[i].look % SW_LANE_KINDS == kind && height > 0;
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

void sw_lane_draw(const struct sw_lanes *lanes, int lane, int bottom, struct sw_str *out)
{
    struct run runs[SW_LANE_BLOCKS];
    const int n = find_runs(lanes, lane, runs);
    for (int k = 0; k < SW_LANE_KINDS; k++) {
        draw_kind(runs, n, k, bottom, out);
    }
}
