// SPDX-License-Identifier: Apache-2.0
// Runs that others published, as share/published.json has them. Private to this folder.
#pragma once

#include "cluster/cluster.h"
#include "cost/cost.h"
#include "look/private.h"
#include "spillway/look.h"

enum pub_judge { PUB_JUDGED, PUB_RANGE, PUB_FITS, PUB_INFORMATIVE };

struct pub_accounting {
    const char *about;
    struct sw_accounting is;
};

/* Numbers that were chosen so that the group's judged runs are met best. 0 = not fitted. */
struct pub_fitted {
    double sustained, reached; /* share of products; share of the network that exchanges reach */
    double tokens;             /* of a step */
};

/* A formula that meets the judged runs of a group with few constants, to compare predictions with.
 * Seconds of a step: FLOPs of a device by their rate, bytes per parameter that pass the disks of
 * all nodes where states are on disk, and bytes per parameter that enter each node. 0 = no such
 * term */
struct pub_formula {
    const char *about;
    double tflops, disk_bytes, disk_gb_s, network_bytes, network_gb_s; /* rates: of a node */
};

struct pub_group {
    const char *name, *about;
    const struct sw_accounting *accounting, *pipelines; /* of its pipelines; NULL = ours */
    struct pub_fitted fitted;
    struct pub_formula formula; /* tflops 0 = none */
    double median, worst;       /* errors that are allowed; 0 = nothing in it is judged together */
};

/* Numbers that are 0, and texts that are NULL, are not published. */
struct pub_model {
    int64_t layers, hidden, heads, seq_len, vocab;
    double parameters, largest; /* largest: the other end of a range of sizes; 0 = one size */
};
/* Settings that are null in the file have no default. They are sought (published_seek.c). */
enum pub_unknown {
    PUB_BATCH = 1 << 0, /* samples per device */
    PUB_STAGE = 1 << 1,
    PUB_PLACE = 1 << 2, /* where states and parameters are */
    PUB_MESH = 1 << 3   /* ranks along tensor and pipe */
};
struct pub_setup {
    const char *dtype, *states, *parameters, *checkpoints, *recompute;
    double rows;       /* samples per device and micro-batch */
    double late_share; /* of the parameters that the next forward updates; 0 = all */
    int64_t stage, tensor, pipe, micro_batches, micro_batch, global_batch, drives, chunks;
    int64_t prefetch, tile_bytes; /* elements gathered ahead; 0 = ours by default */
    unsigned unknown;             /* of enum pub_unknown */
    bool sequence_parallel, vertical, next_forward, in_backward;
};
struct pub_run {
    const char *file; /* name without folders, for messages */
    const char *id, *cluster, *says, *reading, *source, *note;
    const struct pub_group *group;
    int64_t devices, nodes;
    struct pub_model model;
    struct pub_setup setup, ours; /* ours: in our own accounting; equal if the file has no other */
    double tflops[2];             /* of a device; two that differ are a range; 0 = not published */
    bool by_parameters;           /* they count 8 FLOPs a parameter and token; else GPT's formula */
    int judge;                    /* enum pub_judge */
    double tolerance;
    int line;
};

enum pub_rule {
    PUB_NO_RULE,
    PUB_STATES,  /* bytes of a rank's states, of 16 a parameter, at a ZeRO stage */
    PUB_SPACE,   /* parameters: space of the nodes over bytes a parameter */
    PUB_DEVICES, /* devices: bytes of all parameters over the space of one */
    PUB_LAYERS,  /* parameters of so many layers, with embeddings */
    PUB_LAYER    /* bytes of weight and gradient of a layer from h to 4 h in 16 bits */
};
/* A size that others could hold, by the bytes that they count. */
struct pub_capacity {
    const char *id, *what, *unit, *source, *note;
    double published, tolerance;
    int judge;          /* enum pub_judge */
    enum pub_rule rule; /* how their bytes give it */
    struct {
        double parameters, gb, bytes; /* space of a node or device; of a parameter */
        int64_t ranks, stage, nodes, layers, hidden, vocab, seq_len;
    } by;
    struct pub_run plan; /* a plan of ours for it; cluster NULL = none */
    bool most;           /* the most layers of that plan are sought, too */
};

struct pub_file {
    const char *path;
    struct sw_json_doc *doc; /* has the texts */
    struct sw_arena arena;
    struct pub_accounting *accountings;
    struct pub_group *groups;
    struct pub_run *runs;
    struct pub_capacity *capacities;
    int n_accountings, n_groups, n_runs, n_capacities;
};

/* Reads the shipped file. SW_E_IO: there is none. SW_E_CONFIG: names line and key. */
sw_status sw_published_open(struct pub_file **out);
/* The same for text. */
sw_status sw_published_parse(const char *name, const char *text, size_t len, struct pub_file **out);
void sw_published_close(struct pub_file *file);
/* SW_E_ARG: there is none of that name; lists those that there are. *out NULL = ours. */
sw_status sw_published_accounting(const struct pub_file *file, const char *name,
                                  const struct sw_accounting **out);

/* ---- published_plan.c: what is predicted for a run ---- */

struct pub_prediction {
    double seconds, tflops;      /* of a step; of a device, by the run's own count */
    double part[SW_QUEUE_COUNT]; /* seconds of the step: computation, and waits for each queue */
    enum sw_queue bound;
    size_t bytes[SW_TIER_COUNT], there[SW_TIER_COUNT]; /* of a rank */
    bool fits;
    struct pub_model model; /* with what was assumed */
    double rows;            /* samples per device and micro-batch */
    int64_t micro_batches, chunks;
    struct sw_figure sustained, reached; /* of the cluster's file */
    struct sw_str assumed;               /* what was assumed, in words */
};
/*
 * Plans and walks a run. Micro-batches, and chunks of a pipeline, that are not published are
 * searched: the fastest ones that fit. out->assumed is the caller's, also after a failure.
 *
 * accounting   NULL = ours, which is the only one that has pipelines
 * as           instead of the group's fitted numbers; NULL = these
 *
 * SW_E_UNSUP   the run has something that is not simulated; names key and line
 * SW_E_CONFIG  its cluster is smaller than the run: names key and line
 */
sw_status sw_published_predict(const struct pub_run *run, const struct sw_accounting *accounting,
                               const struct pub_fitted *as, struct pub_prediction *out);
/* The same in ours, without advice in the message where it does not fit, which takes long. */
sw_status sw_published_try(const struct pub_run *run, struct pub_prediction *out);
/* The run's model, with what is assumed where it is not published. assumed gains that in words. */
struct pub_model sw_published_model(const struct pub_run *run, struct sw_str *assumed);
/* Writes the lanes of the step that was predicted in our accounting (sw_look_put_lanes), at the
 * group's fitted numbers. */
sw_status sw_published_lanes(const struct pub_run *run, const struct pub_prediction *p,
                             struct sw_str *out);
/* Parameters as authors count them who count 8 FLOPs for each: 12 l h^2. A size that is published
 * beside a shape is rounded. */
double sw_published_parameters(const struct pub_model *model);
/* FLOPs of a step by the run's own count, for so many samples. */
double sw_published_flops(const struct pub_run *run, const struct pub_model *model, double samples);
/* TFLOP/s of a device by the formula of the run's group, which has one. The run has its samples. */
double sw_published_by_formula(const struct pub_run *run);
/* Plans a run in our own accounting, without a walk: its bytes. SW_E_NOMEM: it does not fit. */
sw_status sw_published_fits(const struct pub_run *run, struct pub_prediction *out);
/* The most layers with which that plan fits. */
sw_status sw_published_most(const struct pub_run *run, struct look_most *out);

/* ---- published_seek.c: what is not published, and has no default ---- */

/*
 * Fills what is unknown in a run's settings, in both accountings alike: of our plans that fit the
 * cluster, those whose states are nearest to the device; of these the largest micro-batch; and of
 * stages and meshes that are unknown, the fastest in ours.
 *
 * ours     the prediction for it, whose `assumed` is the caller's, and ends with what was found
 *
 * SW_E_NOMEM   nothing fits; says which bytes are missing with the least batch
 * else as for sw_published_predict
 */
sw_status sw_published_seek(struct pub_run *run, struct pub_prediction *ours);

/* ---- capacity.c: what others could hold ---- */

/* The number that their bytes give; 0 = there is no rule. */
double sw_published_by_bytes(const struct pub_capacity *capacity);
/* Appends a table of the capacities that are asked for. *n: their number; *missed: as for
 * sw_plan_published_text */
void sw_published_print_capacities(const struct pub_file *file,
                                   const struct sw_plan_published *wanted, int *n, bool *missed,
                                   struct sw_str *out);
