// SPDX-License-Identifier: Apache-2.0
// choices - the families of choices that `plan --search` varies, on a cluster. Private to this
// folder.
#pragma once

#include "cluster/cluster.h"
#include "look/private.h"

enum choice_family {
    CHOICE_MESH,
    CHOICE_STAGE,
    CHOICE_STATES,
    CHOICE_PARAMETERS,
    CHOICE_CHECKPOINTS,
    CHOICE_RECOMPUTE,
    CHOICE_MICRO_BATCH,
    CHOICE_SCHEDULE,
    CHOICE_TILES,
    CHOICE_COUNT
};

enum { CHOICE_VALUES = 12, CHOICE_EDITS = 16, CHOICE_EDIT = 96 };

/* Families and their values. A value of the mesh is a number of `meshes`, one of the schedule has
 * the chunks of a stage, too. */
struct choices {
    struct sw_choice_space space;
    struct sw_engine_options options; /* without flags that name a micro-batch */
    const char **sets;
    const struct sw_cluster *cluster;
    int ranks;
    int64_t samples; /* of a step */
    struct sw_mesh *meshes;
    int64_t values[CHOICE_COUNT][CHOICE_VALUES];
    bool is_kept[CHOICE_COUNT]; /* the configuration has the value; no other is tried */
    struct sw_choice starts[16];
};

/* Makes the space for so many ranks of a cluster. options: their run.device is the cluster's.
 * Values that the configuration gives are kept, but for the micro-batch; its batch is that of each
 * step.
 * Release with sw_choices_close; all are borrowed until then. */
sw_status sw_choices_open(const struct sw_engine_options *options, const struct sw_cluster *cluster,
                          int ranks, struct choices *out);
void sw_choices_close(struct choices *c);
const char *sw_choice_name(enum choice_family family);
/* A value in words. */
void sw_choice_print(const struct choices *c, enum choice_family family, int value,
                     struct sw_str *out);
/* Plans these values. refusal: as for sw_lineup_try */
sw_status sw_choice_open(const struct choices *c, const struct sw_choice *choice,
                         struct sw_plan_refusal *refusal, struct sw_lineup *out);
/* Writes the edits of the configuration that make a plan of these values; returns their number. */
int sw_choice_edits(const struct choices *c, const struct sw_choice *choice,
                    char edits[CHOICE_EDITS][CHOICE_EDIT]);
