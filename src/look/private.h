// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of look. Private to the room.
#pragma once

#include "cost/cost.h"
#include "engine/engine.h"

/* Hands the text to the caller (sw_text_free). If st is an error, or memory ran out while the text
 * was written, it frees the text and returns the error. */
sw_status sw_look_give(sw_status st, struct sw_str *text, char **out);

/* ---- write.c: parts of JSON and of tables ---- */

/* Appends `before` and a number, or a string; NULL: null. */
void sw_look_put_number(const char *before, double x, struct sw_str *out);
void sw_look_put_text(const char *before, const char *text, struct sw_str *out);
/* Appends the bytes of a rank by tier against what there is, as a member of an object, or as a
 * table. */
void sw_look_put_tiers(const size_t bytes[SW_TIER_COUNT], const size_t there[SW_TIER_COUNT],
                       struct sw_str *out);
void sw_look_print_tiers(const size_t bytes[SW_TIER_COUNT], const size_t there[SW_TIER_COUNT],
                         struct sw_str *out);

/* ---- cluster_step.c ---- */

/* Walks a step of all stages at a cluster's rates. A pipeline needs a mesh without accounting.
 *
 * out     of the stage that computes longest, without `instrs`; seconds: of the slowest stage
 * flops   out: of a device's kernels in a step, the mean of all stages */
sw_status sw_look_cluster_step(const struct sw_lineup *lineup, const struct sw_cost_mesh *mesh,
                               struct sw_clock_report *out, double *flops);
/* Like it, with `instrs` of that stage: release with sw_free. stage: out, its number */
sw_status sw_look_cluster_stage(const struct sw_lineup *lineup, const struct sw_cost_mesh *mesh,
                                struct sw_clock_report *out, double *flops, int *stage);

/* bytes, there   out, by tier: what the rank that takes most takes, and what there is */
void sw_look_tiers(const struct sw_lineup *lineup, size_t bytes[SW_TIER_COUNT],
                   size_t there[SW_TIER_COUNT]);

/* ---- step_lanes.c ---- */

/*
 * Writes a JSON list about one rank of each stage: its queues, with the work that they do in a step
 * at a cluster's rates. A mesh has no accounting.
 *
 * seconds   of the step, as sw_look_cluster_step finds it
 */
sw_status sw_look_put_lanes(const struct sw_lineup *lineup, const struct sw_cost_mesh *mesh,
                            double seconds, struct sw_str *out);

/* ---- largest.c ---- */

/* The most layers that fit, and their parameters. */
struct look_most {
    int64_t layers, parameters; /* 0 = not even one fits */
    bool is_cut;                /* more may fit, and planning them takes long */
};
/* Finds them for so many ranks. options: run.device is a cluster's */
sw_status sw_look_most_layers(const struct sw_engine_options *options, int ranks,
                              struct look_most *out);
