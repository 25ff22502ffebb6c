// SPDX-License-Identifier: Apache-2.0
// What the files of `check` share: an open case, its rows. Private to the room, whose door is
// spillway/check.h.
#pragma once

#include "base/base.h"
#include "engine/engine.h"
#include "hf/hf.h"
#include "json/json.h"
#include "spillway/check.h"
#include "task/task.h"

struct check {
    const char *path;
    char adapter[4096]; /* folder of one that the recorded model has; "" = none */
    const struct sw_check_options *options;
    FILE *out;
    struct sw_json_doc *doc;    /* reference.json */
    struct sw_safetensors *ref; /* reference.safetensors */
    bool *understood;           /* [tensors of ref] */
    const struct sw_task *task; /* model cases: of the model's class, or .. */
    const char *asked; /* .. the one that labels say, where config.json leaves it open; or NULL */
    int n_rows, n_failed;
};

/* ---- rows ---- */

/* Passes when error <= tolerance (a NaN does not). why: NULL, or why the row does not decide. */
void sw_check_row(struct check *c, const char *quantity, double error, double tolerance,
                  const char *why);
void sw_check_fail(struct check *c, const char *quantity, const char *why);

/* The rows that follow are of ds_config.<run>.json: some have the same names as those of other
 * runs. */
void sw_check_heading(struct check *c, const char *run);

/* The larger of two errors; a NaN is the largest, and stays. */
double sw_check_worse(double worst, double error);

/* A row that does not decide: on n steps the recording has no norm of the gradients. None: no
 * row. */
void sw_check_no_norms(struct check *c, const char *series, int64_t n);

/* ---- tables.c ---- */

/* Rows of the tables that are recorded. */
void sw_check_tables(struct check *c, const sw_engine *e);
/* A gradient that is recorded by its rows, too: they are those of one of the whole ones, which are
 * compared with the model's. */
void sw_check_sparse(struct check *c);

/* ---- the recording ---- */

/* A tensor of the recording, marked as understood; NULL when there is none. */
const struct sw_safetensor *sw_check_tensor(struct check *c, const char *fmt, ...) SW_PRINTF(2, 3);
/* The same, of so many values; any other number of them is a row that failed, and NULL. */
const struct sw_safetensor *sw_check_tensor_of(struct check *c, int64_t elems, const char *fmt, ...)
    SW_PRINTF(3, 4);
double sw_check_value(const struct sw_safetensor *tensor, int64_t i);
int64_t sw_check_elems(const struct sw_safetensor *tensor);
/* A number of reference.json by path, "tolerance.loss_rel"; fallback where it is absent. */
double sw_check_number(const struct check *c, const char *path, double fallback);
const char *sw_check_text(const struct check *c, const char *path);
/* SW_E_FORMAT names a key of reference.json of another type, or a tensor of the recording without
 * values. */
sw_status sw_check_reference(const struct check *c);
/* SW_E_FORMAT names a tensor without values. */
sw_status sw_check_none_empty(const struct sw_safetensors *file);
/* Marks every tensor whose name starts so. */
void sw_check_understand(struct check *c, const char *prefix);

/* ---- running ---- */

/* Opens an engine for the case's model with text or a file of configuration and the user's
 * edits. */
sw_status sw_check_engine(const struct check *c, struct sw_engine_options options, sw_engine **out);
/* Rows of the recording hold several documents. */
bool sw_check_is_packed(const struct check *c);
/* One of the trainings of a recording, by the suffix of its rows: "" or both meanings of a step's
 * loss, with all of a table's gradient or with its rows alone. */
struct check_meaning {
    const char *suffix;
    bool tokens, sparse; /* the mean over all targets; SparseAdam instead of Adam */
};
/* The optimizer block of reference.json's `train` as a configuration; into buf. */
sw_status sw_check_train_config(const struct check *c, int64_t batch, int64_t micro_batches,
                                const struct check_meaning *meaning, char *buf, size_t cap);
/* Calls visit for each run of a case, "x" for ds_config.x.json, in the order of names. */
sw_status sw_check_each_run(const struct check *c, sw_status (*visit)(void *ctx, const char *run),
                            void *ctx, int *out_n);
/* "shared/X" is X beside the root of the recorded cases. */
void sw_check_shared_path(const char *name, char *buf, size_t cap);

/* ---- batches (batch.c) ---- */

/* The recorded inputs "input.NAME", one batch, or "train.NAME", stacked. */
struct check_group {
    const char *name;
    int leading;                  /* dims before those of a batch */
    int64_t steps, micro_batches; /* 0 steps: none of the task's inputs is recorded */
    struct sw_task_sizes sizes;
    bool has_mask;
};
/* SW_E_FORMAT names an input of another rank. */
sw_status sw_check_group_open(struct check *c, const char *group, struct check_group *out);

/* One micro-batch in the engine's own types. */
struct check_batch {
    void *data[SW_TASK_MAX_INPUTS];
    struct sw_tensor tensors[SW_TASK_MAX_INPUTS];
    struct sw_batch batch;
};
/* Number i of those that are stacked. To be closed after a failure, too. */
sw_status sw_check_batch_open(struct check *c, const struct check_group *group, int64_t i,
                              struct check_batch *out);
void sw_check_batch_close(struct check_batch *batch);

/* ---- kinds of case ---- */

sw_status sw_check_model(struct check *c);
sw_status sw_check_curve(struct check *c);
sw_status sw_check_optimizer(struct check *c);
sw_status sw_check_ranks(struct check *c);
sw_status sw_check_offload(struct check *c);
