// SPDX-License-Identifier: Apache-2.0
// engine - joins the rooms: configuration, model, graph, plan, executor, checkpoints. Users see
// spillway/engine.h; this is what the rooms above it, and measurements, may ask of an open engine
// and tell it.
#pragma once

#include "ckpt/ckpt.h"
#include "config/config.h"
#include "device/device.h"
#include "plan/plan.h"
#include "run/run.h"
#include "spillway/engine.h"
#include "task/task.h"

/* ---- facts.c: what an engine turned out to be ---- */

/* Settled when it is open; what is pointed to is lent until it closes. */
struct sw_engine_facts {
    const struct sw_config *config;
    const struct sw_plan *plan;
    int train_program; /* index into the plan's; -1 = not planned */
    struct sw_device *device;
    struct sw_executor *executor;
    const char *kernel_set, *device_name;
    const char *model_folder;          /* where the model came from; NULL for presets */
    enum sw_dtype dtype, export_dtype; /* that it computes in; that the model's folder had */
    bool trains;
    const struct sw_task *task; /* NULL: a forward of yours */
    struct sw_task_sizes sizes; /* of its inputs, of a micro-batch */
    bool lora;                  /* what is trained, saved and exported are adapters */
    uint64_t seed;
    sw_comm *comm;   /* NULL = alone */
    int rank, ranks; /* of the data axis */
    int64_t context; /* tokens that the model has positions for; 0 = a forward of yours */
    int64_t
        generate_tokens; /* prompt and continuation together; of an encoder-decoder the new ones */
};
struct sw_engine_facts sw_engine_facts(const sw_engine *e);

/* A trained or frozen parameter with where its parts lie. */
struct engine_param {
    const struct sw_persistent *work;   /* working copy */
    const struct sw_persistent *master; /* fp32 master (fp16), low half (bf16), NULL otherwise */
    const char *file_name;              /* in the folder that it was read from; NULL: its own */
    const char *digest; /* of its values, where adapters are trained on it; NULL = is trained */
};
/* Parameter i of sw_engine_n_tensors. */
const struct engine_param *sw_engine_param(const sw_engine *e, int32_t i);
/* The parameter that a file calls `name`, by any of the names of its family; NULL: none. */
const struct engine_param *sw_engine_param_of_file(const sw_engine *e, const char *name);
/* A tensor of this name is known to the model's family, and nothing is computed with it. */
bool sw_engine_ignores(const sw_engine *e, const char *name);

/* Of those that adapters are trained with; without adapters all. */
int64_t sw_engine_trained_parameters(const sw_engine *e);

/* Of the last step: sum and count of each term of the losses of each micro-batch of this rank,
 * [local, terms, 2]. */
const double *sw_engine_losses(const sw_engine *e);
/* Terms of the loss of a micro-batch: one for each loss of the task. */
int sw_engine_terms(const sw_engine *e);
/* sw_evaluate term by term: sum and count of each, [terms, 2]; .. */
sw_status sw_engine_evaluate(sw_engine *e, const struct sw_batch *batch, double *out);
/* .. and the loss of such sums, added up over batches. */
double sw_engine_mean_loss(const struct sw_engine *e, const double *terms);
/* The task that a model (a folder, a config.json, a preset) is for, or that it would be opened
 * with; labels: classes of its head, 0 = those of config.json. Nothing is opened. */
sw_status sw_engine_find_task(const char *model, const char *asked, int64_t labels,
                              const struct sw_task **out);
/* Tokens that it has positions for. */
sw_status sw_engine_find_context(const char *model, int64_t *out);
/* Elements of an output of the program that sw_logits runs; -1: it has none of this name. */
int64_t sw_engine_output_elems(const sw_engine *e, const char *name);
/* Reads one that is there, after sw_logits, widened to f32. */
sw_status sw_engine_output(sw_engine *e, const char *name, float *out);
/* The steps that the trace has, once it is written; false: it is not. */
bool sw_engine_trace_written(const sw_engine *e, int64_t *out_first, int64_t *out_last);

/* The rate of the next step, instead of the schedule's; NaN: the schedule's. For recorded runs. */
void sw_engine_override_lr(sw_engine *e, double lr);

/* The training that an engine is in, told on rank 0 alone. Borrowed until it closes. */
struct sw_engine_training {
    const struct sw_ckpt_lock *lock; /* of the folder that it saves to */
    const struct sw_json *data;      /* what it is fed with, for its checkpoints */
    const struct sw_json *state;     /* how it stands, for the next one; NULL: not told */
    bool allow_other_data;           /* than a checkpoint was trained on */
};
void sw_engine_join_training(sw_engine *e, const struct sw_engine_training *training);

/* For measurements: an executor with other options takes the place of the engine's, with weights
 * and states as at the start. */
sw_status sw_engine_replace_executor(sw_engine *e, struct sw_executor_options options);

/* ---- agree.c ---- */
struct sw_agreed {
    const char *what, *hint; /* of a message: "rank 1 has other WHAT than rank 0: HINT" */
    uint8_t digest[32];
};
/* Makes the digest of a text, which it takes. */
sw_status sw_engine_digest(struct sw_str *text, struct sw_agreed *out);
/* SW_E_CONFIG names a rank that has another digest than this one, and of what. Collective. */
sw_status sw_engine_compare(sw_comm *comm, const struct sw_agreed *items, int n);

/* ---- trace.c ---- */
/* The run ends with this step. SW_E_CONFIG: none of the steps of the trace is in it. */
sw_status sw_engine_limit_trace(struct sw_engine *e, int64_t last_step);
/* Writes what there is, if it is not written yet. Collective. */
sw_status sw_engine_finish_trace(struct sw_engine *e);

/* ---- step.c ---- */
/* A step that fails while it updates leaves the disk neither as it was nor as it would be. */
bool sw_engine_writes_in_place(const struct sw_engine *e);

/* ---- save.c ---- */
/* Of one checkpoint, whatever the ranks. */
int64_t sw_engine_checkpoint_bytes(const struct sw_engine *e);

/* ---- weights.c ---- */
/* [first, first + n) counts elements of the whole tensor. Setting stores what this rank holds of
 * them; getting wants a range that it holds. */
sw_status sw_engine_get_master(struct sw_engine *e, const struct engine_param *param, int64_t first,
                               int64_t n, float *out);
sw_status sw_engine_set_master(struct sw_engine *e, const struct engine_param *param, int64_t first,
                               int64_t n, const float *src);

/* ---- export.c ---- */
/* SW_E_ARG: it holds something, and no mark of an export; owned: it is ours all the same. */
sw_status sw_engine_check_folder(const char *folder, bool owned);
/* The same; then makes it, and leaves a mark in it. */
sw_status sw_engine_claim_folder(const char *folder, bool owned);
/* sw_export without the files beside the weights. */
sw_status sw_engine_export_weights(sw_engine *e, const char *folder, enum sw_dtype dtype);
/* The same of a checkpoint; *dtype SW_DTYPE_COUNT: as the model came, and says then what that
 * is. */
sw_status sw_engine_export_checkpoint(struct sw_ckpt *ckpt, const char *folder,
                                      enum sw_dtype *dtype);

/* ---- merge.c: a model with its adapters added ---- */

struct sw_merge;

/*
 * sw_merge_open - the adapters of a folder of PEFT's, or of a checkpoint, on their base.
 *
 * base  folder of the model; NULL: the one that the adapters name
 *
 * SW_E_FORMAT  they are of another base: names the tensor
 */
sw_status sw_merge_open(const char *adapter, const char *base, struct sw_merge **out);
sw_status sw_merge_open_checkpoint(struct sw_ckpt *ckpt, const char *base, struct sw_merge **out);
void sw_merge_close(struct sw_merge *merge);

int64_t sw_merge_n(const struct sw_merge *merge);
/* Tensor i under its name in the base's files; its values come as f32. */
struct sw_safetensor_spec sw_merge_spec(const struct sw_merge *merge, int64_t i);
/* It is not the base's. */
bool sw_merge_changes(const struct sw_merge *merge, int64_t i);
/* Elements [first, first + n). */
sw_status sw_merge_fetch(struct sw_merge *merge, int64_t i, int64_t first, int64_t n, float *out);
enum sw_dtype sw_merge_dtype(const struct sw_merge *merge);          /* that the base has */
const struct sw_json *sw_merge_config(const struct sw_merge *merge); /* config.json */
const char *sw_merge_base(const struct sw_merge *merge);             /* its folder */
/* A model with adapters added, and the files beside the weights of its base. */
sw_status sw_engine_export_merged(struct sw_merge *merge, const char *folder, enum sw_dtype *dtype);
