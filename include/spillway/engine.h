// SPDX-License-Identifier: Apache-2.0
// The engine: a model, a configuration (DeepSpeed's ds_config.json) and a plan, ready to train.
//
//     sw_initialize
//     -> { sw_train_batch | K x (sw_forward, sw_backward) then sw_step } ..
//     -> sw_close
//
// Everything is planned when the engine opens: it fits, or sw_initialize says what is missing.
// After the first step nothing is allocated.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "spillway/graph.h"
#include "spillway/status.h"
#include "spillway/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_engine sw_engine;
typedef struct sw_comm sw_comm; /* ranks that train one model together: spillway/comm.h */
struct sw_nvme_fault;           /* spillway/nvme.h */

/* A tensor given to the model by the name of its sw_input; data is row-major and borrowed. */
struct sw_tensor {
    const char *name;
    struct sw_view view; /* strides are not read */
};
struct sw_batch {
    const struct sw_tensor *tensors;
    int n_tensors;
};

/* Describes the forward of one micro-batch of `batch` samples and returns its loss, f32 [1]: what
 * sw_cross_entropy and its like return, or up to two of these, scaled and added. Called once for
 * each program. */
typedef sw_value (*sw_forward_fn)(sw_graph *graph, void *ctx, int64_t batch);

enum { SW_DEFAULT_TOKENS = 1024 }; /* of a row where nobody says; contexts may be far longer */

/* All zero is a legal start; fields that do not apply stay zero. No options at all (NULL) are
 * SW_E_ARG. */
struct sw_engine_options {
    /* Configuration: a path, or text, or neither ("{}"). sets: "a.b=value" edits, in order;
     * "--lr=3e-5" and its like are flags for keys that are "auto": see spillway/config.h. */
    const char *config_path;
    const char *config_text;
    const char *const *sets;
    int n_sets;

    /* The model: a Hugging Face folder, a config.json or a preset ("gpt2-tiny") .. */
    const char *model;
    const char *adapter; /* of the model: a folder that PEFT wrote, or a training; NULL = none */
    int64_t vocab_size;  /* of a preset: replaces its own, 0 keeps it */
    /* What it is to learn, in the words of --task ("masked", "classify", ..); NULL = what its class
     * says. Another one than that of its class has a new head, which begins at random. Borrowed
     * while opening. */
    const char *task;
    int64_t labels;                 /* of a head: classes, or numbers; 0 = those of config.json */
    const char *const *label_names; /* [labels] for config.json; NULL = those that it has */
    int64_t seq_len;                /* T of a micro-batch; 0 = the model's context .. */
    int64_t most_tokens;            /* .. or this, if it is less; 0 = SW_DEFAULT_TOKENS */
    int64_t target_len; /* tokens that a decoder behind an encoder is asked for; 0 = T */
    /* .. or your own. */
    sw_forward_fn forward;
    void *forward_ctx;

    /* This rank among the others, borrowed; NULL = alone. Then every call that computes, saves or
     * loads is collective: each rank makes it, in the same order. */
    sw_comm *comm;
    /* The batch arithmetic of the configuration counts so many ranks, whatever comm has: K stays
     * when a job goes on with fewer. 0 = as many as comm has. */
    int batch_ranks;
    /* Where keys of the configuration are "auto" (spillway.micro_batch, spillway.recompute): the
     * folder of checkpoints that sw_load will be given, whose values are kept; NULL, or none there:
     * they are chosen .. */
    const char *resume_from;
    /* .. by these rates, in the words of sw_predict_options, instead of the built-in ones. */
    const char *const *rates;
    int n_rates;
    uint64_t seed;       /* of initial weights and dropout; the configuration's where it has one */
    bool no_train;       /* no update: evaluation, generation */
    bool want_eval;      /* sw_evaluate */
    bool want_logits;    /* sw_logits; of your own forward: its output "logits" */
    bool want_hidden;    /* with want_logits, of a model */
    bool want_mask;      /* programs take attention_mask */
    bool keep_gradients; /* sw_gradient */
    bool no_dropout;     /* training programs leave dropout out */
    int64_t generate_tokens; /* sw_generate up to this context, of an encoder-decoder up to so many
                                new tokens; 0 = not at all, -1 = seq_len, or target_len */
    bool verify;             /* checks the plan while it runs; slow */
    bool profile;            /* measures every instruction; spillway.trace says when each ran */
    bool load_unverified;    /* sw_load does not compare the digests of a checkpoint's files */
    bool plan_only;          /* no memory is taken and no weights are wanted: for sw_plan_text */
    /* What computes, instead of the configuration's spillway.device: "cpu", "cuda", "hip",
     * "cuda:1", "auto"; for tests "cpu:reference", "mock" and "mock:early", which have its kernels
     * in memory that the host cannot reach, and "emu", the emulation of a GPU. Borrowed while
     * opening. */
    const char *device;
    /* For tests: what befalls the transfers of this rank's disk tier, borrowed while opening; NULL
     * = nothing. */
    const struct sw_nvme_fault *disk_fault;
};

struct sw_step_report {
    int64_t step;    /* optimizer steps so far, skipped ones included */
    int64_t applied; /* of them applied */
    int64_t samples; /* global samples so far */
    double loss, grad_norm, lr, loss_scale;
    bool skipped;   /* overflow: nothing was changed */
    double targets; /* labels that counted in this step, of the loss's first term */
};

/*
 * sw_initialize - plan everything, take the memory, set or read the weights.
 *
 * SW_E_CONFIG  the configuration or the options are wrong: the message names the key
 * SW_E_UNSUP   something asked for is not built
 * SW_E_NOMEM   a budget or the machine is too small: the message has the bytes
 */
SW_API sw_status sw_initialize(const struct sw_engine_options *options, sw_engine **out);
SW_API void sw_close(sw_engine *engine);
/* The path that `name` stands for: itself if it exists or is a preset; ORG/NAME or NAME else is a
 * model of the hub in Hugging Face's local cache (HF_HUB_CACHE, HF_HOME), whose main snapshot is
 * the path. *out is the caller's: sw_text_free. SW_E_IO: not there; the message has the command
 * that downloads it. */
SW_API sw_status sw_model_find(const char *name, char **out);
/* SW_E_ARG where a path for `model` is a run of sw_train or a checkpoint: says where its model is,
 * or how to make one. */
SW_API sw_status sw_model_check_path(const char *path);
/* The width that transformers calls hidden_size, of hidden_sizes the largest; SW_E_CONFIG where a
 * model has none. */
SW_API sw_status sw_model_hidden_size(const char *model, int64_t *out);

/* Micro-batches of one optimizer step, and samples of one micro-batch. */
SW_API int64_t sw_engine_micro_batches(const sw_engine *engine);
SW_API int64_t sw_engine_micro_batch_size(const sw_engine *engine);
SW_API int64_t sw_engine_seq_len(const sw_engine *engine);
SW_API int64_t sw_engine_vocab(const sw_engine *engine);
SW_API int64_t sw_engine_parameters(const sw_engine *engine);
SW_API int64_t sw_engine_step(const sw_engine *engine);
SW_API int64_t sw_engine_samples(const sw_engine *engine);
/* Of initial weights and dropout: the configuration's, where it has one. */
SW_API uint64_t sw_engine_seed(const sw_engine *engine);

/* What a micro-batch consists of: tensors of the training program, else of that of sw_evaluate,
 * else of that of sw_logits. */
struct sw_input_info {
    const char *name; /* lent until the engine closes */
    enum sw_dtype dtype;
    struct sw_shape shape;
    bool optional; /* a batch may leave it out */
};
SW_API int32_t sw_engine_n_inputs(const sw_engine *engine);
/* SW_E_ARG: there is no input i. */
SW_API sw_status sw_engine_input(const sw_engine *engine, int32_t i, struct sw_input_info *out);

/* How input i of a micro-batch comes out of a batch of transformers' collators. */
struct sw_hf_input {
    const char *name; /* there ("position_ids" of positions); lent until the engine closes */
    /* Padding of a shorter row, after its end: the model's padding id (-1: it has none, and any
     * id will do), -100 for ids of labels, NaN for numbers of labels, 0 for others. */
    double pad;
    int32_t start; /* id that a decoder reads before these labels; -1 = they are not read */
    bool shifted;  /* the label of a token is the one after it; there it stands at its own token */
};
/* SW_E_ARG: there is no input i. */
SW_API sw_status sw_engine_hf_input(const sw_engine *engine, int32_t i, struct sw_hf_input *out);

/* Of them on this rank: k = rank, rank + ranks, .. of the K micro-batches of a step. */
SW_API int64_t sw_engine_local_micro_batches(const sw_engine *engine);

/*
 * The whole step: [n] micro-batches, n = sw_engine_local_micro_batches. All of them are looked at
 * before the first one runs: SW_E_ARG names a tensor that is missing or of another shape, or an id
 * or label that is out of range, and its place.
 *
 * After a failure, SW_E_ARG of a call that was wrong apart, the engine is as it was before the step
 * where it can be, and the next micro-batch begins a step, the same or another one: on one rank
 * before anything was updated, and with two slots on the disk (spillway.disk_slots) whatever
 * failed there, on any rank; SW_E_PEER: on another one. Elsewhere, and when a rank is lost, it
 * takes no step before it has loaded a checkpoint, and says so.
 */
SW_API sw_status sw_train_batch(sw_engine *engine, const struct sw_batch *micro_batches, int64_t n,
                                struct sw_step_report *out);
/* Its horizontal form, as DeepSpeed's users know it. sw_step must follow the K-th sw_backward,
 * which, where states are offloaded and gradients are not clipped, updates weights already; with
 * two slots on the disk they count from sw_step on. On several ranks a disk that fails is then
 * heard of in sw_step, on all of them; losses until there mean nothing. SW_E_CONFIG under
 * spillway.schedule "vertical", where all micro-batches of a step run together. */
SW_API sw_status sw_forward(sw_engine *engine, const struct sw_batch *batch, double *out_loss);
SW_API sw_status sw_backward(sw_engine *engine);
SW_API sw_status sw_step(sw_engine *engine, struct sw_step_report *out);

/* Sum of losses and number of targets of one batch, without dropout (want_eval); of a loss of
 * several terms the loss, and 1. SW_E_ARG, here and in all calls that take a batch: the message has
 * the option that the engine was opened without, or the tensor that is missing or wrong. */
SW_API sw_status sw_evaluate(sw_engine *engine, const struct sw_batch *batch, double *out_sum,
                             double *out_count);
/* Logits as f32 into out (want_logits): [B,T,V], or [B,labels] for a classifier; of a task with
 * several outputs the first. out NULL: nothing is read. */
SW_API sw_status sw_logits(sw_engine *engine, const struct sw_batch *batch, float *out);
SW_API int64_t sw_logits_elems(const sw_engine *engine);

/* A vector for each row of a batch, by an engine for the task "embed" (want_logits), whose logits
 * are what the trunk gives for each token, [B,T,width]: the mean over the tokens of attention_mask,
 * or the first one's; normalized to length 1. out [B, width]. */
enum sw_pooling { SW_POOL_MEAN, SW_POOL_CLS };
struct sw_embed_options {
    enum sw_pooling pool;
    bool normalize;
};
SW_API sw_status sw_embed(sw_engine *engine, const struct sw_batch *batch,
                          const struct sw_embed_options *options, float *out);
SW_API int64_t sw_engine_width(const sw_engine *engine);

/* ---- weights: decoded fp32 values by name ---- */

SW_API int32_t sw_engine_n_tensors(const sw_engine *engine);
SW_API sw_status sw_engine_tensor(const sw_engine *engine, int32_t i, const char **out_name,
                                  struct sw_shape *out_shape);
/* Elements [first, first + n) of a parameter. */
SW_API sw_status sw_get_weight(sw_engine *engine, const char *name, int64_t first, int64_t n,
                               float *out);
SW_API sw_status sw_set_weight(sw_engine *engine, const char *name, int64_t first, int64_t n,
                               const float *src);
/* Gradient of the last micro-batch (keep_gradients), unscaled, all uses added; [elements]. */
SW_API sw_status sw_gradient(sw_engine *engine, const char *name, float *out);

/* ---- folders ---- */

/* Writes a Hugging Face folder: weights, config.json, and the files beside the weights of the
 * folder that the model came from, without a model card (README.md). dtype: SW_F32, SW_BF16,
 * SW_F16, or SW_DTYPE_COUNT for the dtype it had. */
SW_API sw_status sw_export(sw_engine *engine, const char *folder, enum sw_dtype dtype);

/* ---- checkpoints ---- */

struct sw_save_options {
    int keep_last;   /* 0 = all */
    double val_loss; /* NaN = unknown; the best one is kept besides */
    /* By which the best is best, instead of the validation loss: the name of a metric (NULL =
     * none), its value (NaN = unknown), and whether less is better. */
    const char *metric;
    double metric_value;
    bool metric_falls;
};
/* options      NULL: all are kept, and the validation loss is unknown */
SW_API sw_status sw_save(sw_engine *engine, const char *folder,
                         const struct sw_save_options *options);
/*
 * sw_load - the newest complete checkpoint of the folder, or a checkpoint itself.
 *
 * Rank 0 chooses for all. Each file is read whole once, beside loading, and compared with its
 * digest.
 *
 * SW_PENDING   there is none
 * SW_E_CONFIG  it was written under other arithmetic: names every key that changed
 * SW_E_FORMAT  a file is damaged; the engine takes no step before it has loaded another checkpoint
 * SW_E_PEER    a rank, which is named, has another checkpoint before it than rank 0
 */
SW_API sw_status sw_load(sw_engine *engine, const char *folder);

/* ---- generation ---- */

/* What is said of a text besides its draws, as generation_config.json says it; ids are -1 for none,
 * all else 0. */
struct sw_text_rules {
    int32_t start_id;      /* what a decoder behind an encoder begins with; -1 = the model's */
    int32_t first_id;      /* the first token, behind at most one other */
    int32_t last_id;       /* the last one of n_new */
    int64_t least;         /* new tokens before one that ends the text */
    int64_t no_repeat;     /* so many tokens in a row occur once only */
    double repetition;     /* above 0 a logit of a token that is there is divided by it, below 0
                              multiplied; 0 or 1 = left */
    const int32_t *never;  /* [n_never] tokens that are not chosen */
    const int32_t *begins; /* [n_begins] not as the first one that is free */
    int64_t n_never, n_begins;
};
struct sw_sampling {
    double temperature; /* 0 = greedy */
    int64_t top_k;      /* 0 = all */
    double top_p;       /* 0 or 1 = all */
    uint64_t seed;
    int32_t stop_id;         /* ends the text; -1 = none */
    const int32_t *stop_ids; /* [n_stop_ids] end it, too */
    int64_t n_stop_ids;
    const struct sw_text_rules *rules; /* NULL = none */
};
/* Continues prompt [n_prompt] by up to n_new tokens; out [n_new], *out_n = how many. logits, when
 * not NULL, [n_new, V]: what the model gave for each, before any rule. sampling NULL: greedy, up to
 * n_new. Needs generate_tokens >= n_prompt + n_new. An encoder-decoder reads the prompt, at most T
 * tokens, and writes another text: generate_tokens >= n_new. */
SW_API sw_status sw_generate(sw_engine *engine, const int32_t *prompt, int64_t n_prompt,
                             int64_t n_new, const struct sw_sampling *sampling, int32_t *out,
                             int64_t *out_n, float *logits);
/* Whom tokens are told to while a text is written: fn gets all that are new so far [n], after each
 * of them, the last one included. What it fails with ends the text. */
struct sw_each_token {
    sw_status (*fn)(void *ctx, const int32_t *ids, int64_t n);
    void *ctx;
};
/* As sw_generate, and tells each token. */
SW_API sw_status sw_generate_each(sw_engine *engine, const int32_t *prompt, int64_t n_prompt,
                                  int64_t n_new, const struct sw_sampling *sampling,
                                  const struct sw_each_token *each, int32_t *out, int64_t *out_n);

/* ---- looking ---- */

/* Text of the plan; with instructions, one line each, or as JSON all that running them takes
 * (docs/train.md has the members). The caller's: sw_text_free. */
SW_API sw_status sw_plan_text(const sw_engine *engine, bool instructions, bool json, char **out);
/*
 * sw_plan_diff_text - what two plans do differently, each a file of what sw_plan_text gives as JSON
 * with instructions.
 *
 * out_same     nothing differs
 * out          the caller's: sw_text_free
 *
 * SW_E_FORMAT  a file is no JSON, or no such plan: names it and the member
 */
SW_API sw_status sw_plan_diff_text(const char *path_a, const char *path_b, bool json,
                                   bool *out_same, char **out);
/* What one of `ranks` ranks would hold, and send in a step, at each ZeRO stage, planned and by
 * formulas; nothing is opened. A stage that does not fit the budgets is listed as such; one that
 * refuses another key of the configuration has the reason instead, as JSON in "refused". A
 * configured stage that does so fails. The caller's: sw_text_free. */
SW_API sw_status sw_plan_stages_text(const struct sw_engine_options *options, int ranks, bool json,
                                     char **out);
/* How long a step would take: its work, by rates that are given ("f32=200", "bf16=800", "f16=200"
 * in GFLOP/s, "copy=20", "disk_read=2", "disk_write=1", "comm=1.2", "host=20" in GB/s), or measured
 * within seconds on this machine. */
struct sw_predict_options {
    const char *const *rates; /* [n_rates] */
    int n_rates;
    bool measure; /* what is not given; else it is unknown */
    int ranks;    /* this is one of so many; 0 = 1 */
    bool json;
};
/* SW_E_ARG: no such rate. The caller's: sw_text_free. */
SW_API sw_status sw_plan_predict_text(const struct sw_engine_options *options,
                                      const struct sw_predict_options *predict, char **out);
/* What DeepSpeed's memory estimators say of ZeRO 2 and 3: formulas of a few numbers, no plan. */
struct sw_estimate_options {
    const char *model; /* as for the engine; its weights are not needed. Or NULL .. */
    int64_t parameters, largest_layer; /* .. and these; without a largest layer no stage 3 */
    int64_t ranks_per_node, nodes;
    double buffer_factor; /* of host memory; DeepSpeed's is 1.5 */
    bool json;
};
/* The caller's: sw_text_free. */
SW_API sw_status sw_estimate_text(const struct sw_estimate_options *options, char **out);
/* Bytes of the plan a tier holds: 0 device, 1 host, 2 disk. */
SW_API int64_t sw_engine_tier_bytes(const sw_engine *engine, int tier);
/* Highest byte of the arena that a kernel touched (verify). */
SW_API int64_t sw_engine_high_water(const sw_engine *engine);
/* Allocations by the library and the device so far: stands still after the first step. */
SW_API int64_t sw_engine_allocations(const sw_engine *engine);
/* Floating-point operations of one optimizer step. */
SW_API double sw_engine_step_flops(const sw_engine *engine);
/* profile: a table of time by operation, text. */
SW_API sw_status sw_profile_text(const sw_engine *engine, char **out);

#ifdef __cplusplus
}
#endif
