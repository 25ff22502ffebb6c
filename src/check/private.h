// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of `check`: an open case and its rows. Private to the room; its
// interface is spillway/check.h.
#pragma once

#include "base/base.h"
#include "engine/engine.h"
#include "hf/hf.h"
#include "json/json.h"
#include "spillway/check.h"
#include "task/task.h"

struct check {
    const char *path;
    char adapter[4096]; /* folder of the recorded model's adapter; "" = none */
    const struct sw_check_options *options;
    FILE *out;
    struct sw_json_doc *doc;    /* reference.json */
    struct sw_safetensors *ref; /* reference.safetensors */
    bool *understood;           /* [tensors of ref] */
    const struct sw_task *task; /* model cases: the task of the model's class, or `asked` */
    const char *asked; /* task that the labels imply, if config.json leaves it open; else NULL */
    sw_comm *comm;     /* model cases on several ranks, which each have a struct check; else NULL */
    int n_rows, n_failed;
};

/* ---- rows ---- */

/* Adds a row that passes if error <= tolerance (NaN fails). why: reason why the row does not
 * decide, or NULL. */
void sw_check_row(struct check *c, const char *quantity, double error, double tolerance,
                  const char *why);
void sw_check_fail(struct check *c, const char *quantity, const char *why);

/* Notes that the ranks of a mesh do not give outputs with this prefix, as `st` and its message say,
 * and that the rest of the case goes on. Another failure than SW_E_UNSUP, or one on a single rank,
 * is returned. */
sw_status sw_check_note(struct check *c, sw_status st, const char *prefix);

/* Prints a heading for the rows of ds_config.<run>.json. Rows of different runs may have the same
 * names. */
void sw_check_heading(struct check *c, const char *run);

/* The larger of two errors. NaN counts as the largest, and persists. */
double sw_check_worse(double worst, double error);

/* Adds a row that does not decide: the recording lacks the gradient norm on n steps. n = 0 adds no
 * row. */
void sw_check_no_norms(struct check *c, const char *series, int64_t n);

/* ---- tables.c ---- */

/* Compares the recorded tables with the model's. Collective. */
sw_status sw_check_tables(struct check *c, const sw_engine *e);
/* Checks a gradient that is recorded as sparse rows. They must equal those of a recorded dense
 * gradient, which is itself compared with the model's. */
void sw_check_sparse(struct check *c);

/* ---- the recording ---- */

/* Looks up a tensor of the recording and marks it as understood. NULL if there is none. */
const struct sw_safetensor *sw_check_tensor(struct check *c, const char *fmt, ...) SW_PRINTF(2, 3);
/* The same for a tensor with `elems` elements. A tensor of another size adds a failed row, and
 * gives NULL. */
const struct sw_safetensor *sw_check_tensor_of(struct check *c, int64_t elems, const char *fmt, ...)
    SW_PRINTF(3, 4);
double sw_check_value(const struct sw_safetensor *tensor, int64_t i);
int64_t sw_check_elems(const struct sw_safetensor *tensor);
/* A number in reference.json by path, such as "tolerance.loss_rel"; `fallback` if absent. */
double sw_check_number(const struct check *c, const char *path, double fallback);
const char *sw_check_text(const struct check *c, const char *path);
/* SW_E_FORMAT: a key of reference.json has the wrong type, or a tensor of the recording is empty;
 * the message names it. */
sw_status sw_check_reference(const struct check *c);
/* SW_E_FORMAT: a tensor is empty; the message names it. */
sw_status sw_check_none_empty(const struct sw_safetensors *file);
/* Marks every tensor whose name starts with `prefix` as understood. */
void sw_check_understand(struct check *c, const char *prefix);

/* ---- running ---- */

/* Opens an engine for the case's model on the ranks of c->comm, with the given configuration and
 * the user's edits. */
sw_status sw_check_engine(const struct check *c, struct sw_engine_options options, sw_engine **out);
/* True if rows of the recording hold several documents. */
bool sw_check_is_packed(const struct check *c);
/* One of several trainings in a recording, identified by the suffix of its rows. The trainings
 * differ in the meaning of a step's loss, or use dense or sparse gradients of a table. */
struct check_meaning {
    const char *suffix;
    bool tokens, sparse; /* mean over all targets of the step; SparseAdam instead of Adam */
};
/* Writes a configuration with the optimizer of reference.json's `train` into buf. */
sw_status sw_check_train_config(const struct check *c, int64_t batch, int64_t micro_batches,
                                const struct check_meaning *meaning, char *buf, size_t cap);
/* Calls visit for each run of a case in the order of names: "x" for ds_config.x.json. */
sw_status sw_check_each_run(const struct check *c, sw_status (*visit)(void *ctx, const char *run),
                            void *ctx, int *out_n);
/* Resolves "shared/X" to X beside the root of the recorded cases. */
void sw_check_shared_path(const char *name, char *buf, size_t cap);

/* ---- several ranks (weight.c) ---- */

/* Reads a whole parameter of which each rank may hold a part. out: its elements. Collective. */
sw_status sw_check_weight(const struct check *c, sw_engine *e, const struct sw_parameter *param,
                          float *out);

/* ---- batches (batch.c) ---- */

/* Recorded inputs: "input.NAME" for one batch, or "train.NAME" for stacked batches. */
struct check_group {
    const char *name;
    int leading;                  /* dims before those of a batch */
    int64_t steps, micro_batches; /* steps = 0: none of the task's inputs is recorded */
    struct sw_task_sizes sizes;
    bool has_mask;
};
/* SW_E_FORMAT: an input has the wrong rank; the message names it. */
sw_status sw_check_group_open(struct check *c, const char *group, struct check_group *out);

/* One micro-batch, in the dtypes of the engine. */
struct check_batch {
    void *data[SW_TASK_MAX_INPUTS];
    struct sw_tensor tensors[SW_TASK_MAX_INPUTS];
    struct sw_batch batch;
};
/* Opens batch i of the stacked ones. The caller closes it even after a failure. */
sw_status sw_check_batch_open(struct check *c, const struct check_group *group, int64_t i,
                              struct check_batch *out);
void sw_check_batch_close(struct check_batch *batch);

/* ---- kinds of case ---- */

typedef sw_status sw_check_kind(struct check *c);
sw_check_kind sw_check_model, sw_check_curve, sw_check_optimizer, sw_check_ranks, sw_check_offload;
