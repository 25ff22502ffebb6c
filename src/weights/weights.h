// SPDX-License-Identifier: Apache-2.0
// The weights of a model: where they come from (a Hugging Face folder, a preset, adapters), their
// values while a plan runs, and the folders and checkpoints that they go to.
#pragma once

#include "base/base.h"
#include "ckpt/ckpt.h"
#include "config/config.h"
#include "device/device.h"
#include "hf/hf.h"
#include "json/json.h"
#include "model/model.h"
#include "nn/nn.h"
#include "onnx/onnx.h"
#include "optim/optim.h"
#include "plan/plan.h"
#include "run/run.h"
#include "spillway/engine.h"
#include "task/task.h"

/* ---- what is open ---- */

struct sw_model_source {
    struct sw_json_doc *doc;    /* config.json; NULL for a user's own forward */
    char *folder;               /* NULL for presets */
    struct sw_hf_folder *files; /* files of the folder, open only while they are read */
    enum sw_dtype dtype;        /* dtype in the folder; f32 without a folder */
};

/* A trained or frozen parameter, and where its parts are stored. */
struct sw_parameter {
    const struct sw_persistent *work;   /* working copy */
    const struct sw_persistent *master; /* fp32 master (fp16), low half (bf16), NULL otherwise */
    const char *file_name; /* name in the folder that it was read from; NULL = same name */
    /* digest of a frozen parameter's values under adapters; NULL = it is trained */
    const char *digest;
};

/* The parameters of a plan. */
struct sw_parameters {
    struct sw_parameter *items;
    int32_t n;
    struct sw_arena names; /* owns file_name and digest */
};

struct sw_adapters;          /* weights/private.h */
struct sw_weights_quantizer; /* weights/quantized.c */
struct sw_named_values;

enum { SW_WEIGHTS_SCRATCH = 1 << 16 };

/* All zero is valid. The caller fills the borrowed members as soon as it has them. */
struct sw_weights {
    const struct sw_engine_options *options; /* its strings are valid only while opening */
    const struct sw_config *config;
    struct sw_executor *executor; /* NULL: the plan does not run */
    float *scratch;               /* [SW_WEIGHTS_SCRATCH] at least */
    struct sw_pool *pool;         /* while values are drawn or read; NULL = one thread */
    uint64_t seed;                /* of initial values */

    struct sw_model_source source;
    struct sw_named_values *given; /* values instead of a folder's or drawn ones; NULL = none */
    struct sw_model *model;        /* NULL for a user's own forward */
    struct sw_adapters *lora;      /* NULL = the whole model is trained */
    struct sw_weights_quantizer *quantizer; /* NULL = no weight is quantized */
    const struct sw_plan *plan;             /* borrowed from sw_weights_index on */
    struct sw_parameters params;
};

/* ---- opening, in this order ---- */

/* Opens the folder options.model.adapter, and writes the configuration edit for its settings. */
sw_status sw_weights_open_adapter(struct sw_weights *w, struct sw_str *edit);
/* Opens the adapters of the configuration; w->lora stays NULL if it has none. */
sw_status sw_weights_open_lora(struct sw_weights *w);
/* Opens the model of a config.json: its family's, or the graph of an ONNX file (SW_ONNX_KEY). */
sw_status sw_weights_open_model(struct sw_json_doc *doc, const struct sw_model_options *options,
                                struct sw_model **out);
/* Opens options.model: its description, the model for the requested task, and the folder. */
sw_status sw_weights_open(struct sw_weights *w);
/* The adapters as a graph takes them; NULL = none. */
const struct sw_adapter *sw_weights_adapter(const struct sw_weights *w);
/* Decides for a graph which weights are quantized; NULL = none. */
struct sw_quantizer *sw_weights_quantizer(const struct sw_weights *w);
/* The file of the adapters that training continues from; NULL = none. */
const struct sw_safetensors *sw_weights_adapter_file(const struct sw_weights *w);
/* Learns the adapted layers of a graph, after its forward. SW_E_CONFIG names an entry that matches
 * no layer. */
sw_status sw_weights_learn_adapted(struct sw_weights *w, const struct sw_graph *g);
/* Builds the table of the parameters of a plan; an earlier table is dropped. */
sw_status sw_weights_index(struct sw_weights *w, const struct sw_plan *plan);
/* Clears states, and the padding of shards. */
sw_status sw_weights_zero_states(struct sw_weights *w);
/* Reads the folder, or draws the initial values. */
sw_status sw_weights_read_folder(struct sw_weights *w);
sw_status sw_weights_draw(struct sw_weights *w);
/* Reads the ONNX file that the model is the graph of. */
sw_status sw_weights_read_imported(struct sw_weights *w);
/* Takes the values that are given by name. */
sw_status sw_weights_take_given(struct sw_weights *w);
/* Loads the values of the adapter, if there is one, over the base's weights. */
sw_status sw_weights_read_adapter(struct sw_weights *w);
/* Closes the folder of the model. */
void sw_weights_close_files(struct sw_weights *w);
/* Closes everything but the borrowed members. */
void sw_weights_close(struct sw_weights *w);

/* ---- models on disk ---- */

/* Reads config.json of the options' model: of its text, a path, or else a preset. out: for
 * sw_json_close; out_folder: the path is a folder */
sw_status sw_weights_read_model(const struct sw_engine_options *o, struct sw_json_doc **out,
                                bool *out_folder);
/* The task `asked`, or the one that the model is for (a folder, a config.json, a preset). labels:
 * classes of its head, 0 = as in config.json. Opens nothing. */
sw_status sw_weights_find_task(const char *model, const char *asked, int64_t labels,
                               const struct sw_task **out);
/* Reads the number of positions of a model, in tokens. */
sw_status sw_weights_find_context(const char *model, int64_t *out);

/* ---- parameters ---- */

/* NULL if there is no such parameter. */
const struct sw_parameter *sw_weights_find(const struct sw_weights *w, const char *name);
/* Looks up a parameter by a name from a file; any name of its family will do. NULL if not found. */
const struct sw_parameter *sw_weights_of_file(const struct sw_weights *w, const char *name);
/* True if the model's family knows this tensor and does not compute with it. */
bool sw_weights_ignores(const struct sw_weights *w, const char *name);
/* True if the parameter is trained, false if it is read from the base and frozen. Without adapters:
 * true. */
bool sw_weights_keeps(const struct sw_weights *w, const char *param);
/* Elements of a parameter; of a quantized weight those of the matrix, which its codes have. */
int64_t sw_weights_elems(const struct sw_weights *w, const struct sw_parameter *param);
/* The weights that stay quantized: their number, the kind of the last one, their elements, and the
 * bytes of their codes and scales. */
struct sw_quantized_sizes {
    int32_t n;
    enum sw_quantized_kind kind;
    int64_t elems;
    size_t bytes;
};
struct sw_quantized_sizes sw_weights_quantized_sizes(const struct sw_weights *w);
/* Number of trained elements: those of the adapters, or all without adapters. */
int64_t sw_weights_trained(const struct sw_weights *w);
/* [first, first + n) counts elements of the whole tensor. Setting stores the part that this rank
 * holds; getting needs a range that this rank holds. */
sw_status sw_weights_get(struct sw_weights *w, const struct sw_parameter *param, int64_t first,
                         int64_t n, float *out);
sw_status sw_weights_set(struct sw_weights *w, const struct sw_parameter *param, int64_t first,
                         int64_t n, const float *src);

/* ---- folders ---- */

/* SW_E_ARG: the folder is not empty and has no export marker; or adapters are to be written beside
 * the weights of a model. */
sw_status sw_weights_check_folder(const char *folder, bool adapter);
/* Checks the folder in the same way, creates it, and puts the marker into it. */
sw_status sw_weights_claim_folder(const char *folder, bool adapter);
/* The weights, which this rank has all of, and config.json. */
sw_status sw_weights_export(struct sw_weights *w, const char *folder, enum sw_dtype dtype);
/* The same, and the files beside the weights; the first rank writes what all of comm have.
 * Collective. comm: NULL = one rank */
sw_status sw_weights_export_folder(struct sw_weights *w, sw_comm *comm, const char *folder,
                                   enum sw_dtype dtype);
/* Exports the weights of a checkpoint. *dtype: SW_DTYPE_COUNT means the model's own dtype, which is
 * then returned. */
sw_status sw_weights_export_checkpoint(struct sw_ckpt *ckpt, const char *folder,
                                       enum sw_dtype *dtype);

/* Writes config.json with the dtype of the weights. */
sw_status sw_weights_write_config(const char *folder, const struct sw_json *config,
                                  enum sw_dtype dtype);

/* ---- values by name (named.c) ---- */

/* The values of a model, by the names of its parameters: one of these, borrowed. */
struct sw_named_values {
    const struct sw_weights *folder; /* with its files open */
    struct sw_ckpt *ckpt;
    struct sw_merge *merge;
};
/* Elements [first, first + n) as f32. values: struct sw_named_values. SW_E_FORMAT: there is no such
 * parameter, or it has another shape. */
sw_status sw_named_values_fetch(void *values, const char *name, const struct sw_shape *shape,
                                int64_t first, int64_t n, float *out);
/* The configuration of a checkpoint's model, as a document of its own. */
sw_status sw_weights_checkpoint_config(struct sw_ckpt *ckpt, struct sw_json_doc **out);
/* True if the checkpoint has adapters, not a model. */
bool sw_weights_has_adapter(struct sw_ckpt *ckpt);

/* ---- checkpoints ---- */

/* The training run that drives an engine; set on rank 0 only. Borrowed until the engine closes. */
struct sw_training {
    const struct sw_ckpt_lock *lock; /* lock of the folder that it saves to */
    const struct sw_json *data;      /* description of its data, stored in its checkpoints */
    const struct sw_json *state;     /* its state, stored in the next checkpoint; NULL = none */
    bool allow_other_data;           /* accept a checkpoint that was trained on other data */
};

/* The run whose weights these are: its ranks, and the progress that a checkpoint records. */
struct sw_weights_run {
    sw_comm *comm;
    int rank, ranks;
    struct sw_device *device;
    int64_t tokens; /* of a sample */
    const struct sw_training *training;
    int64_t step, applied, samples;
    struct sw_scaler scaler;
};

/* Size of one checkpoint; it does not depend on the number of ranks. */
int64_t sw_weights_checkpoint_bytes(const struct sw_weights *w);
/* Size of an axis of the mesh ("tensor", "context") in the run that saved a checkpoint. */
int sw_weights_saved_size(const struct sw_ckpt *ckpt, const char *axis);
/* As sw_save. Collective. */
sw_status sw_weights_save(struct sw_weights *w, const struct sw_weights_run *run,
                          const char *folder, const struct sw_save_options *options);
/* As sw_load; on success the progress of `run` is that of the checkpoint. *out_begun: weights were
 * written, so a failure leaves them half loaded. Collective. */
sw_status sw_weights_load(struct sw_weights *w, struct sw_weights_run *run, const char *folder,
                          bool *out_begun);

/* ---- sources of adapters ---- */

/* Adapters in PEFT's form: a folder with adapter_config.json and adapter_model.safetensors, or a
 * checkpoint. */
struct sw_adapter_source {
    const char *path;             /* for messages; borrowed */
    const struct sw_json *config; /* in the form of PEFT's adapter_config.json */
    struct sw_json_doc *doc;      /* owner of config, if it was read from a folder */
    struct sw_safetensors *file;
    struct sw_ckpt *ckpt; /* borrowed */
};
/* Opens a PEFT folder. SW_E_IO: the files are missing. SW_E_UNSUP names a key that is not
 * supported. */
sw_status sw_adapter_open(const char *folder, struct sw_adapter_source *out);
/* Opens the adapters of a checkpoint, which is borrowed. SW_E_ARG: it holds no adapters. */
sw_status sw_adapter_of_checkpoint(struct sw_ckpt *ckpt, struct sw_adapter_source *out);
void sw_adapter_close(struct sw_adapter_source *source);
/* Appends the adapter's configuration as an edit of ours: "spillway.lora={..}". */
void sw_adapter_edit(const struct sw_json *config, struct sw_str *out);

/* ---- a model with its adapters added ---- */

struct sw_merge;

/*
 * sw_merge_open - merge adapters into their base.
 *
 * weights  the base with adapters, planned, and with its folder open; borrowed
 * from     taken over
 *
 * SW_E_FORMAT  the adapters belong to another base: the message names the tensor
 */
sw_status sw_merge_open(const struct sw_weights *weights, struct sw_adapter_source *from,
                        struct sw_merge **out);
void sw_merge_close(struct sw_merge *merge);

int64_t sw_merge_n(const struct sw_merge *merge);
/* Tensor i under its name in the base's files. Its values are returned as f32. */
struct sw_safetensor_spec sw_merge_spec(const struct sw_merge *merge, int64_t i);
/* The tensor of a parameter; -1 = none. */
int64_t sw_merge_find(const struct sw_merge *merge, const char *param);
/* True if adapters change tensor i. */
bool sw_merge_changes(const struct sw_merge *merge, int64_t i);
/* Elements [first, first + n). */
sw_status sw_merge_fetch(struct sw_merge *merge, int64_t i, int64_t first, int64_t n, float *out);
enum sw_dtype sw_merge_dtype(const struct sw_merge *merge);          /* dtype of the base */
const struct sw_json *sw_merge_config(const struct sw_merge *merge); /* config.json */
const char *sw_merge_base(const struct sw_merge *merge);             /* folder of the base */
/* Exports the merged model, and the files beside the weights of its base. */
sw_status sw_weights_export_merged(struct sw_merge *merge, const char *folder,
                                   enum sw_dtype *dtype);
