// SPDX-License-Identifier: Apache-2.0
// Plans, predictions and estimates as text: what a run would need and how long a step would take,
// without training. None of these calls is collective. Each concerns this rank alone, unless it
// says that it is about a pipeline or a mesh.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "spillway/engine.h"
#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * sw_plan_text - the plan as text.
 *
 * instructions  adds one line per instruction, or in JSON everything that running them needs
 *               (docs/train.md lists the members)
 * json          one JSON object
 * out           the caller's: sw_text_free
 */
SW_API sw_status sw_plan_text(const sw_engine *engine, bool instructions, bool json, char **out);
/*
 * sw_plan_diff_text - compare two plans, each a file that sw_plan_text wrote as JSON with
 * instructions.
 *
 * out_same     true if nothing differs
 * out          the caller's: sw_text_free
 *
 * SW_E_FORMAT  a file is not JSON, or is not such a plan; names the file and the member
 */
SW_API sw_status sw_plan_diff_text(const char *path_a, const char *path_b, bool json,
                                   bool *out_same, char **out);
/*
 * sw_plan_stages_text - memory that one of `ranks` ranks would hold, and bytes that it would send
 * per step, at each ZeRO stage, by plans and by formulas.
 *
 * options      as for sw_initialize; nothing is opened, and run.comm and plan.only are not read
 * ranks        at least 1
 * out          the caller's: sw_text_free. A stage that does not fit the budgets is marked. A stage
 *              that refuses another key of the configuration has the reason instead (JSON:
 *              "refused")
 *
 * SW_E_ARG, SW_E_CONFIG, SW_E_UNSUP  the configured stage is refused, as by sw_initialize
 */
SW_API sw_status sw_plan_stages_text(const struct sw_engine_options *options, int ranks, bool json,
                                     char **out);
/*
 * sw_plan_mesh_text - memory of a rank of each stage of a pipeline, micro-batches that it keeps,
 * and bytes that it sends per step along each axis of the mesh.
 *
 * options      as for sw_initialize; nothing is opened, and run.comm and plan.only are not read
 * ranks        at least 1
 * out          the caller's: sw_text_free. JSON: one object. Text: empty if all ranks form the data
 *              axis, as sw_plan_stages_text has it all
 *
 * Errors are those of sw_initialize, for any of the ranks.
 */
SW_API sw_status sw_plan_mesh_text(const struct sw_engine_options *options, int ranks, bool json,
                                   char **out);
/*
 * sw_plan_mesh_choice - choose the sizes of a mesh that is "auto" (spillway.mesh), once for several
 * calls of this header.
 *
 * options      as for sw_initialize; nothing is opened, and run.comm and plan.only are not read. On
 *              a device of a cluster ("sim:NAME"), plan.rates are those of the cluster if none are
 *              given
 * out_edit     the sizes as an item of config.sets; NULL = the mesh is not "auto"
 * out          the best meshes, and why the others lost. NULL = the mesh is not "auto". Both are
 *              the caller's: sw_text_free
 *
 * SW_E_NOMEM   no mesh of these ranks fits the budgets: names the nearest one and the missing bytes
 *
 * Other errors are those of sw_initialize.
 */
SW_API sw_status sw_plan_mesh_choice(const struct sw_engine_options *options, int ranks, bool json,
                                     char **out_edit, char **out);
/* Options of a prediction of the time per step, from its work and the rates of the machine. Rates
 * are given ("f32=200", "bf16=800", "f16=200" in GFLOP/s; "copy=20", "memory=900", "disk_read=2",
 * "disk_write=1", "comm=1.2", "host=20" in GB/s; "comm_latency=50", microseconds that an
 * exchange takes however small it is), or measured within seconds on this machine. Of exchanges,
 * "node=50" and "net=5" are GB/s among ranks of one host and of several; "node_ranks=8" is the
 * number of ranks of a host (default: all). */
struct sw_predict_options {
    const char *const *rates; /* [n_rates] */
    int n_rates;
    bool measure; /* measure rates that are not given; false: they are unknown */
    int ranks;    /* total number of ranks; 0 = 1 */
    bool json;
};
/*
 * sw_plan_predict_text - predict the time per step.
 *
 * options      as for sw_initialize; nothing is opened, and run.comm and plan.only are not read
 * out          the caller's: sw_text_free
 *
 * SW_E_ARG     a rate is unknown: names it
 *
 * Other errors are those of sw_initialize.
 */
SW_API sw_status sw_plan_predict_text(const struct sw_engine_options *options,
                                      const struct sw_predict_options *predict, char **out);
/*
 * sw_plan_schedule_text - the step of a pipeline as the clock predicts it: a lane for each stage,
 * with its micro-batches, the messages that it sends, and its idle share.
 *
 * options      as for sw_initialize; nothing is opened, and run.comm and plan.only are not read
 * predict      its rates, with built-in ones for the others; `measure` is not read
 * svg          file for a picture; NULL = the lanes are text, unless JSON is asked for
 * out          the caller's: sw_text_free
 *
 * SW_E_ARG     a rate is unknown: names it
 * SW_E_IO      the picture cannot be written
 *
 * Other errors are those of sw_initialize.
 */
SW_API sw_status sw_plan_schedule_text(const struct sw_engine_options *options,
                                       const struct sw_predict_options *predict, const char *svg,
                                       char **out);
/* The part of a cluster that a plan is made for: docs/clusters.md. */
struct sw_plan_cluster {
    const char *name;     /* a shipped cluster, or a file: with a "/", or ending in ".json" */
    int64_t nodes, ranks; /* 0 = follows from the other one; both 0 = a whole node */
    bool json;
};
/*
 * sw_plan_cluster_size - check the size, and fill in what is 0.
 *
 * SW_E_ARG     there is no such cluster: lists those that there are
 * SW_E_CONFIG  the file is refused, or the cluster is smaller: names file, line and key
 */
SW_API sw_status sw_plan_cluster_size(struct sw_plan_cluster *cluster);
/*
 * sw_plan_cluster_text - what a rank of the plan takes of such a cluster.
 *
 * options      as for sw_initialize; nothing is opened, and run.comm, run.device and plan.only are
 *              not read
 * cluster      a size that sw_plan_cluster_size has filled in
 * out          the caller's: sw_text_free
 *
 * Errors are those of sw_plan_cluster_size and sw_initialize.
 */
SW_API sw_status sw_plan_cluster_text(const struct sw_engine_options *options,
                                      const struct sw_plan_cluster *cluster, char **out);
/* A training on a growing part of a cluster. */
struct sw_plan_scale {
    const char *cluster; /* see struct sw_plan_cluster */
    int64_t first, last; /* nodes; a rank on each of their devices */
    double
        tokens; /* to train on, an encoder-decoder's: of the encoder; 0 = days are not asked for */
    double price; /* of a device for an hour; 0 = not asked for. Needs tokens */
    bool json;
};
/*
 * sw_plan_scale_text - the time of a step for each number of nodes from `first` to `last`, and the
 * days and the money that so many tokens take.
 *
 * options      as for sw_plan_cluster_text. A mesh that is "auto" is chosen for each number
 * out          the caller's: sw_text_free. A number of nodes without a plan has the reason instead
 *              (JSON: "refused")
 *
 * SW_E_ARG     a number is out of range
 *
 * Other errors are those of sw_plan_cluster_text: of the last number, if none has a plan.
 */
SW_API sw_status sw_plan_scale_text(const struct sw_engine_options *options,
                                    const struct sw_plan_scale *scale, char **out);
/* A search for the fastest plan on a cluster. */
struct sw_plan_search {
    const char *cluster;  /* see struct sw_plan_cluster */
    int64_t nodes, ranks; /* as sw_plan_cluster_size fills them in */
    double tokens, price; /* see struct sw_plan_scale */
    bool json;
};
/*
 * sw_plan_search_text - the five fastest plans that were found, and why other choices lost.
 *
 * Varies the mesh, the ZeRO stage, the tiers of states, parameters and kept activations,
 * recomputation, the micro-batch, the schedule and tiles. What the configuration gives is kept, but
 * for the micro-batch; all plans have the configuration's batch. The same options give the same
 * text on every machine.
 *
 * options      as for sw_plan_cluster_text
 * out          the caller's: sw_text_free
 *
 * SW_E_NOMEM   no plan fits: names the nearest one
 *
 * Other errors are those of sw_plan_cluster_text.
 */
SW_API sw_status sw_plan_search_text(const struct sw_engine_options *options,
                                     const struct sw_plan_search *search, char **out);
/*
 * sw_plan_largest_text - the most layers of a model with which its plan fits a cluster.
 *
 * The width and all else stay. Layers are doubled until they are refused, by a budget or otherwise,
 * then bisected; the work of planning ends that, and then more may fit.
 *
 * options      as for sw_plan_cluster_text; the model is a path or a preset
 * cluster      a size that sw_plan_cluster_size has filled in
 * out          the caller's: sw_text_free
 *
 * SW_E_NOMEM   no number of layers fits: has the missing bytes
 * SW_E_UNSUP   the model's family has no number of layers
 *
 * Other errors are those of sw_plan_cluster_text.
 */
SW_API sw_status sw_plan_largest_text(const struct sw_engine_options *options,
                                      const struct sw_plan_cluster *cluster, char **out);
/* Runs that others published, with predictions for them: docs/clusters.md. */
struct sw_plan_published {
    const char *id;         /* a run, a group of runs, a capacity, "capacities", or "all" */
    const char *accounting; /* instead of that of the run's group; NULL = that one */
    bool ours;              /* predict in our own accounting, too */
    bool json;
};
/*
 * sw_plan_published_text - published figures beside predicted ones.
 *
 * missed       true if a judged run is outside of its tolerance, or has no prediction
 * out          the caller's: sw_text_free
 *
 * SW_E_ARG     there is no such run or accounting
 * SW_E_IO, SW_E_CONFIG  the shipped file is missing or wrong
 */
SW_API sw_status sw_plan_published_text(const struct sw_plan_published *published, bool *missed,
                                        char **out);
/* Options of DeepSpeed's memory estimators for ZeRO 2 and 3: formulas that need no plan. */
struct sw_estimate_options {
    const char *model; /* as for the engine, weights are not needed; NULL = use the next two */
    int64_t parameters, largest_layer; /* without a largest layer, stage 3 is left out */
    int64_t ranks_per_node, nodes;
    double buffer_factor; /* factor on host memory; DeepSpeed's is 1.5 */
    bool json;
};
/*
 * sw_estimate_text - bytes per device and per node by those formulas, one row per configuration.
 *
 * out          the caller's: sw_text_free
 *
 * SW_E_ARG     a number is out of range: names it
 */
SW_API sw_status sw_estimate_text(const struct sw_estimate_options *options, char **out);

/* Text table of time by operation (run.profile). Free *out with sw_text_free. SW_E_ARG: the engine
 * was opened without it, or without training. */
SW_API sw_status sw_profile_text(const sw_engine *engine, char **out);

#ifdef __cplusplus
}
#endif
