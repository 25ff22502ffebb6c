// SPDX-License-Identifier: Apache-2.0
// The engine joins the rooms: configuration, model, graph, plan, executor, checkpoints. Users see
// spillway/engine.h. This header is for the rooms above it and for measurements: it reads and
// steers an open engine.
#pragma once

#include "config/config.h"
#include "device/device.h"
#include "layout/layout.h"
#include "onnx/onnx.h"
#include "plan/plan.h"
#include "run/run.h"
#include "search/search.h"
#include "spillway/engine.h"
#include "task/task.h"
#include "weights/weights.h"

/* ---- facts.c: facts about an open engine ---- */

/* Set when the engine opens. Pointers are borrowed until it closes. */
struct sw_engine_facts {
    const struct sw_config *config;
    const struct sw_plan *plan;
    const struct sw_weights *weights;
    int train_program;                 /* index into plan->programs; -1 = not planned */
    struct sw_device *device, *host;   /* host: updates tensors in host memory; NULL = none */
    struct sw_executor *executor;      /* NULL: the engine was opened for its plan only */
    const struct sw_update_rule *rule; /* zero if it does not train */
    const char *kernel_set, *device_name;
    const char *model_folder;          /* folder that the model was read from; NULL for presets */
    enum sw_dtype dtype, export_dtype; /* dtype of the computation; dtype of the model's folder */
    bool trains;
    const struct sw_task *task; /* NULL for a user's own forward */
    struct sw_task_sizes sizes; /* of the inputs of one micro-batch */
    int64_t rounds;             /* micro-steps of a step on this rank */
    int threads;                /* compute threads of this rank */
    bool profile;               /* every instruction is measured */
    bool lora;                  /* only adapters are trained, saved and exported */
    uint64_t seed;
    sw_comm *comm; /* NULL = one rank */
    struct sw_mesh mesh;
    struct sw_coord world, data; /* this rank among all ranks, and along the data axis */
    int64_t pad_id;              /* of the model, if its vocabulary has it; else -1 */
    int64_t context; /* number of positions of the model, in tokens; 0 for a user's own forward */
    int64_t
        /* longest generated sequence, prompt included; encoder-decoder: new tokens only */
        generate_tokens;
};
struct sw_engine_facts sw_engine_facts(const sw_engine *e);

/* ---- mesh.c ---- */
/* Describes the mesh and the hosts of its ranks in one line, and a second one if tensor neighbours
 * do not share a host. Nothing for a single rank. */
void sw_engine_print_mesh(const sw_engine *e, struct sw_str *out);

/* open.c. The mesh of a configuration on the ranks of run.comm, with their coordinates and hosts.
 * The model is not read. Collective, except with plan.only. */
sw_status sw_engine_describe_mesh(const struct sw_engine_options *options, struct sw_str *out);
/* The host of a rank; NULL = not known. A plan knows those that the rate node_ranks describes. */
const char *sw_engine_host(const sw_engine *e, int rank);
/* The blocks of a chunk of this rank: the first one, and the one after the last. False: it has no
 * such chunk. */
bool sw_engine_blocks(const sw_engine *e, int chunk, int *out_first, int *out_end);

/* ---- lineup.c ---- */
/* The first rank of each stage of a pipeline, opened for its plan only. */
struct sw_lined_rank {
    sw_engine *engine;
    sw_comm *comm;
    int rank;
};
struct sw_lineup {
    struct sw_lined_rank *stages; /* [n] */
    int n;
    int *like; /* [stages of the pipeline] of a sketch: which of the n stands for it; else NULL */
};
/* The edits of a configuration, followed by more of them. out: release with sw_free; the strings
 * are borrowed */
sw_status sw_engine_join_sets(const struct sw_engine_config *config, const char *const *more,
                              int n_more, const char ***out);
/* Opens the lineup of so many ranks. Keys that are "auto" have one value on all stages: that of the
 * stage with the least room. options: as for sw_initialize; run.comm and plan.only are not
 * read. Errors are those of sw_initialize, for any of the ranks. */
sw_status sw_lineup_open(const struct sw_engine_options *options, int ranks, struct sw_lineup *out);
/* Like it. If a budget refuses a plan, fills in `refusal` instead of searching for advice, and
 * out->n is the stage. */
sw_status sw_lineup_try(const struct sw_engine_options *options, int ranks,
                        struct sw_plan_refusal *refusal, struct sw_lineup *out);
/* Like sw_lineup_try, but plans only the first stage, the last stage, and one of the others for
 * each number of blocks. Of a mesh with fewer than four stages it plans all. */
sw_status sw_lineup_sketch(const struct sw_engine_options *options, int ranks,
                           struct sw_plan_refusal *refusal, struct sw_lineup *out);
void sw_lineup_close(struct sw_lineup *lineup);
/* The choice for a mesh that was "auto", on the rank that made it; NULL = there was none. */
const struct sw_mesh_choice *sw_engine_mesh_choice(const sw_engine *e);

/* The weights of an open engine, to change them. */
struct sw_weights *sw_engine_weights(sw_engine *e);
/* Runs the update of the last step if it is due, so that parameters and states are those after the
 * step. Collective. After a failure it is still due. */
sw_status sw_engine_settle(sw_engine *e);

/* Most totals of a micro-batch, and most numbers that sw_engine_evaluate writes. */
enum {
    SW_ENGINE_MAX_TOTALS = 11,
    SW_ENGINE_MAX_SUMS = 2 * (SW_TASK_MAX_TERMS + SW_ENGINE_MAX_TOTALS)
};
/* Sums and counts that metrics are made of: those of preferences (SW_PREFERENCE_TOTALS), then those
 * of experts (2 SW_LOADS). Their number, and those of the last step over all ranks. */
int sw_engine_n_totals(const sw_engine *e);
const double *sw_engine_totals(const sw_engine *e);
/* A metric from such totals; NaN = they do not give it. */
double sw_engine_metric(enum sw_metric metric, const double *totals);
/* The routers of a model with experts in the last step, over all ranks. NaN = not computed. */
struct sw_engine_routers {
    /* Means over layers and micro-batches: the least and the most rows that an expert had, 1 = an
     * equal share, and the entropy of the experts' shares, 1 = all equal. */
    double least_load, most_load, entropy;
    double dropped, choices; /* numbers; choices are those of all tokens and layers */
    double aux_loss, z_loss; /* without their weights; NaN = the loss has no such term */
};
/* False: the model has no experts. */
bool sw_engine_routers(const sw_engine *e, struct sw_engine_routers *out);
/* An output of the batch that sw_engine_evaluate ran last: "log_probs" of preferences, [rows], or
 * "embeddings" of the contrastive task, [rows, width]. */
sw_status sw_engine_evaluated(sw_engine *e, const char *name, float *out);

/* Losses of the last step on this rank: sum and count of each term of each micro-batch, [local,
 * terms + totals, 2]. */
const double *sw_engine_losses(const sw_engine *e);
/* sw_evaluate_terms, and then the totals: [terms + totals, 2]. */
sw_status sw_engine_evaluate(sw_engine *e, const struct sw_batch *batch, double *out);
/* Elements of an output of the program that sw_logits runs; -1 if it has no output of this name. */
int64_t sw_engine_output_elems(const sw_engine *e, const char *name);
/* Reads such an output after sw_logits, widened to f32. */
sw_status sw_engine_output(sw_engine *e, const char *name, float *out);
/* True once the trace is written; then returns its first and last step. */
bool sw_engine_trace_written(const sw_engine *e, int64_t *out_first, int64_t *out_last);

/* Replaces the schedule's learning rate for the next step; NaN restores the schedule. For replaying
 * recorded runs. */
void sw_engine_override_lr(sw_engine *e, double lr);

/* Sets the training run that drives the engine, on rank 0 only. */
void sw_engine_join_training(sw_engine *e, const struct sw_training *training);

/* ---- device.c ---- */
/* Opens another device like the engine's: same kernels, same threads per rank. */
sw_status sw_engine_open_device(const struct sw_engine *e, struct sw_device **out);
/* Opens the CPU as a second device that updates tensors in host memory. NULL if the engine's device
 * reaches host memory, or if the configuration forbids it. */
sw_status sw_engine_open_host(const struct sw_engine *e, struct sw_device **out);

/* ---- fit.c ---- */
/* The disk tier of the engine. */
struct sw_swap_options sw_engine_swap(const struct sw_engine *e);

/* ---- rates.c ---- */
/* Parses rates such as "bf16=800" into `rates`. SW_E_ARG: unknown rate. */
sw_status sw_engine_take_rates(const char *const *texts, int n, struct sw_machine_rates *rates);

/* For measurements: replaces the engine's executor by one with other options. Weights and states
 * begin anew. */
sw_status sw_engine_replace_executor(sw_engine *e, struct sw_executor_options options);

/* ---- agree.c ---- */
struct sw_agreed {
    const char *what, *hint; /* for the message "rank 1 has different WHAT from rank 0: HINT" */
    uint8_t digest[32];
};
/* Computes the digest of a text, and frees the text. */
sw_status sw_engine_digest(struct sw_str *text, struct sw_agreed *out);
/* SW_E_CONFIG: a rank has a different digest; the message names the rank and the item.
 * Collective. */
sw_status sw_engine_compare(sw_comm *comm, const struct sw_agreed *items, int n);

/* ---- trace.c ---- */
/* Tells the trace that the run ends with `last_step`. SW_E_CONFIG: none of the traced steps is
 * reached. */
sw_status sw_engine_limit_trace(struct sw_engine *e, int64_t last_step);
/* Writes the steps recorded so far, unless the trace is already written. Collective. */
sw_status sw_engine_finish_trace(struct sw_engine *e);

/* ---- step.c ---- */
/* True if a step that fails during the update leaves the disk half updated. */
bool sw_engine_writes_in_place(const struct sw_engine *e);

/* ---- merge.c ---- */

/* A model with its adapters added, and the plan that describes it. */
struct sw_engine_merge {
    sw_engine *engine;
    struct sw_merge *merge;
};

/*
 * sw_engine_open_merge - opens adapters (a PEFT folder, or a checkpoint) together with their base.
 *
 * base  folder of the model; NULL = the one that the adapters name
 * out   close with sw_engine_close_merge
 *
 * SW_E_FORMAT  the adapters belong to another base: the message names the tensor
 */
sw_status sw_engine_open_merge(const char *adapter, const char *base, struct sw_engine_merge *out);
sw_status sw_engine_open_merge_of(struct sw_ckpt *ckpt, const char *base,
                                  struct sw_engine_merge *out);
void sw_engine_close_merge(struct sw_engine_merge *merge);

/* ---- onnx.c ---- */

struct sw_engine_onnx {
    const char *folder;  /* to write: new, empty, or left by an earlier export */
    enum sw_dtype dtype; /* f32, f16, bf16 */
    int opset;
    bool is_asked;         /* dtype or opset was asked for: the graph of a file has its own */
    const char *task;      /* NULL = the model's own */
    const char *case_path; /* safetensors file for 8 random batches and their logits; NULL = none */
};
/*
 * sw_engine_onnx_folder - write a model folder as ONNX, with config.json and the files beside it;
 * or an ONNX file, with the same bytes.
 *
 * SW_E_ARG    the folder to write holds something that no export made, or weights
 * SW_E_UNSUP  an op of the model has no nodes
 */
sw_status sw_engine_onnx_folder(const char *model, const struct sw_engine_onnx *options,
                                struct sw_onnx_summary *out);
/* The same for a PEFT folder and its base (NULL = the one that it names), which are merged. */
sw_status sw_engine_onnx_adapter(const char *adapter, const char *base,
                                 const struct sw_engine_onnx *options, struct sw_onnx_summary *out);
/* The same for a checkpoint, without the files beside it. base: for one of adapters. */
sw_status sw_engine_onnx_checkpoint(struct sw_ckpt *ckpt, const char *base,
                                    const struct sw_engine_onnx *options,
                                    struct sw_onnx_summary *out);
