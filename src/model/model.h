// SPDX-License-Identifier: Apache-2.0
// model - one file per family, which describes only a forward graph; the registry by Hugging Face's
// model_type; presets. Nothing here knows where a parameter is stored or how it is trained.
#pragma once

#include "graph/graph.h"
#include "json/json.h"
#include "task/task.h"

/* The program to build. Its inputs are those of the model's task, by name (task/task.h). With a
 * cache there are also position i32 [1] and last i32 [B], the query whose logits are wanted.
 * Outputs by name, as requested: loss, the values that the task compares with labels, hidden.I.
 * With a cache an encoder-decoder has two programs. One reads input_ids and keeps the keys and
 * values for the decoder. The other takes a token, decoder_input_ids i32 [B,1], and gives its
 * logits. */
struct sw_forward_spec {
    int64_t batch, tokens; /* batch: rows; a sample may be two (sw_task_rows) */
    int64_t targets;       /* target tokens of an encoder-decoder */
    bool has_mask;         /* decoders take attention_mask; encoders always do */
    bool has_labels;       /* output "loss" */
    bool has_weights;      /* labels of tokens have weights: weights f32 [B,T] */
    bool want_logits;      /* outputs of the task's losses; with a cache, logits are [B,V] */
    bool want_hidden; /* outputs "hidden.I": the input of layer I; the last is the head's input */
    bool is_packed;   /* rows hold several documents: positions i32 [B,T], segments i32 [B,T] */
    double smoothing; /* label smoothing in cross-entropy losses, and in DPO */
    /* losses of preferences; kind: SIGMOID or IPO for a task that leaves it open */
    struct sw_preference_attrs preference;
    /* Experts take at most this times an equal share of the choices; 0 = as many as choose them. */
    double capacity_factor;
    bool pools_first; /* vectors of texts are those of their first tokens; else means over all */
    double router_aux_loss, router_z_loss; /* weights of losses; aux < 0: as config.json says */
    struct sw_expert_ranks experts;        /* all zero: one rank has all of them */
    int64_t cache_tokens; /* tokens whose keys and values are kept as states; 0 = no cache */
    bool is_source;       /* with a cache: builds the encoder's program */
};

/* A class of a family's models: the value of architectures[0] in config.json. */
struct sw_model_class {
    const char *name; /* NULL ends the list */
    /* The task of its head. "classify" includes regression and multi-label, and so does "images" if
     * the family reads problem_type. */
    const char *task;
};

/* Keys of config.json for sizes, by family; fallback: transformers' default. A NULL key: the family
 * has no such size. */
enum sw_model_size {
    SW_SIZE_WIDTH,
    SW_SIZE_LAYERS,
    SW_SIZE_HEADS,
    SW_SIZE_INNER, /* fallback 0: four times the width; also if there is no key */
    SW_SIZE_VOCAB,
    SW_SIZE_TOKENS,
    SW_SIZE_COUNT
};
struct sw_model_key {
    const char *key, *alias; /* alias: another name that transformers reads, or NULL */
    int64_t fallback;
};

/* Requested changes; all zeros: as config.json says. */
struct sw_model_options {
    const char *task; /* NULL: the class's task */
    int64_t labels;   /* number of classes or values; 0: as in config.json */
    bool has_pad_id;  /* of a decoder's classifier whose config.json has no usable pad_token_id */
    int32_t pad_id;
};

struct sw_model; /* the configuration of one family */

/* Most layers of a model that is read. */
enum { SW_MODEL_MOST_LAYERS = 10000 };
enum { SW_MODEL_MAX_CLASSES = 8 };
struct sw_model_ops {
    const char *model_type;
    struct sw_model_class classes[SW_MODEL_MAX_CLASSES]; /* the first is that of presets */
    /* Class of folders without a head; the first class's head is then initialised at random.
     * NULL = one of the classes. */
    const char *trunk_class;
    struct sw_model_key sizes[SW_SIZE_COUNT];
    bool is_of_classes;   /* "images" always has exactly one class per image */
    int64_t labels;       /* default number of labels; 0 = 2 */
    int64_t extra_tokens; /* rows of SW_SIZE_TOKENS that are not positions of a text */
    size_t bytes;         /* of the family's own struct, which begins with its struct sw_model */
    /* Reads config.json into the family's struct, all zero but ops, pad_id and eos_id; refuses
     * unsupported settings by name. */
    sw_status (*read)(struct sw_json_doc *doc, const struct sw_json *config,
                      const struct sw_model_options *options, struct sw_model *model);
    void (*release)(struct sw_model *model); /* frees what the struct owns; NULL: nothing */
    /* Emits the forward graph; *out_loss is SW_NO_VALUE without labels. Failures are in
     * sw_graph_status. */
    void (*forward)(const struct sw_model *model, sw_graph *g, const struct sw_forward_spec *spec,
                    sw_value *out_loss);
    /* Alternative number `i` = 0, 1, .. of `name` in files of other origin; NULL when there are no
     * more. Written to buf. */
    const char *(*alias)(const struct sw_model *model, const char *name, int i, char *buf,
                         size_t cap);
    /* True for file tensors that the family knows and does not use. */
    bool (*ignores)(const struct sw_model *model, const char *file_name);
};

struct sw_model { /* base class: first member of every family's own struct */
    const struct sw_model_ops *ops;
    const struct sw_task *task;
    const char *class_name; /* architectures[0], with the task's head */
    bool is_other_class;    /* the head differs from config.json's, or that has none */
    bool has_other_labels;  /* the requested number of labels differs from config.json's */
    int64_t vocab, max_tokens, width, layers, labels;
    int64_t channels, image_height, image_width;
    int64_t experts;       /* of a layer; 0 = no layer has experts */
    bool tied;             /* the LM head is the embedding table */
    bool ties_absent_head; /* an untied head that a folder lacks is initialised from the table */
    /* config.json key that says whether the head's input is scaled; NULL = never */
    const char *scale_key;
    bool scales_head;        /* the value of that key, or its default */
    bool is_endless;         /* positions are relative: max_tokens is no limit */
    int64_t pad_id;          /* -1 = none */
    bool has_other_pad;      /* pad_id is the requested one, which config.json lacks */
    int64_t eos_id;          /* -1 = none */
    int64_t start_id;        /* first token of an encoder-decoder's decoder; else 0 */
    const char *trunk;       /* module without the heads */
    const char *pooler;      /* module in the trunk that belongs to some heads; NULL = none */
    const char *head_module; /* the last head's, NULL if it is the embedding table */
    const char *head_name;   /* parameter of an untied LM head, NULL otherwise */
    const char *embedding_name;
    const char *lm_head_name; /* name of an untied LM head, even if the model is tied */
};

/* Opens a model by model_type and architectures[0] of a config.json. SW_E_UNSUP names what is
 * unknown, SW_E_CONFIG a task that the family has no head for. options NULL: as config.json
 * says. */
sw_status sw_model_open(struct sw_json_doc *doc, const struct sw_model_options *options,
                        struct sw_model **out);
void sw_model_close(struct sw_model *model);
/* Updates config.json to the task and labels that the model was opened with. label_names: [labels];
 * NULL: the existing ones, else LABEL_0, LABEL_1, .. */
sw_status sw_model_put_task(const struct sw_model *model, const char *const *label_names,
                            struct sw_json_doc *doc);
/* The task continues a text: each token is predicted from the ones before. */
bool sw_model_is_causal(const struct sw_model *model);
/* The task maps a text to a text with an encoder-decoder. */
bool sw_model_is_seq2seq(const struct sw_model *model);
/* The task has labels: classes, numbers or positions, from a head on the trunk. */
bool sw_model_is_labelled(const struct sw_model *model);
/* True for a parameter that a folder of another class lacks, and that then is initialised at
 * random. */
bool sw_model_may_begin(const struct sw_model *model, const char *param);
/* True for a parameter of a head whose number of labels differs from the folder's config.json. */
bool sw_model_has_other_head(const struct sw_model *model, const char *param);
/* Sizes of the task's inputs in a program. */
struct sw_task_sizes sw_model_sizes(const struct sw_model *model,
                                    const struct sw_forward_spec *spec);
/* Input `name` of the model's task. Counted inputs are the same for all rows, [T], unless several
 * documents share a row. */
sw_value sw_model_input(sw_graph *g, const struct sw_model *model,
                        const struct sw_forward_spec *spec, const char *name);
/* Names of parameters while a graph is built. */
struct sw_layer_names {
    const char *trunk, *layers;
    int64_t layer;
    char text[224];
};
/* "<trunk>.<suffix>"; valid until the next name. */
const char *sw_name_in_trunk(struct sw_layer_names *names, const char *suffix);
/* "<trunk>.<layers>.<layer>.<suffix>"; valid until the next name. */
const char *sw_name_in_layer(struct sw_layer_names *names, const char *suffix);
/* Begins the layer that takes h: marks h as output "hidden.I" and pushes the layer's block. */
void sw_model_begin_layer(sw_graph *g, const struct sw_forward_spec *spec,
                          const struct sw_layer_names *names, sw_value h);
/* Marks h as output "hidden.I", if hidden states are wanted. */
void sw_model_name_hidden(sw_graph *g, const struct sw_forward_spec *spec, int64_t i, sw_value h);
/* True if a glob matches the name, or if it is the head that a tied model's file has anyway. globs:
 * NULL-terminated, or NULL. */
bool sw_model_ignores(const struct sw_model *model, const char *const *globs,
                      const char *file_name);
/* Alternative number i for `name` in `pairs` (name, alternative, ..; NULL-terminated, or NULL);
 * NULL: there are no more. */
const char *sw_model_other_name(const char *const *pairs, const char *name, int i);
/* Makes a preset's config.json as a new document. vocab > 0 replaces the vocabulary, max_tokens > 0
 * the context. SW_E_CONFIG: no such preset; the message lists them. */
sw_status sw_model_preset(const char *name, int64_t vocab, int64_t max_tokens,
                          struct sw_json_doc **out);
bool sw_model_is_preset(const char *name);
/* Finds a family by model_type; NULL: none. */
const struct sw_model_ops *sw_model_family(const char *type);
/* Lists families and presets, one per line, for people. */
void sw_model_list(struct sw_str *out);
/* Appends " name" for each preset of a family. */
void sw_model_list_presets(const char *type, struct sw_str *out);

/* ---- config.json reading shared by the families (read.c) ---- */

/* Reads the task, class and labels of model. */
sw_status sw_model_read_task(const struct sw_model_ops *ops, struct sw_json_doc *doc,
                             const struct sw_json *config, const struct sw_model_options *options,
                             struct sw_model *model);
/* Refuses all but positive 32-bit numbers. */
sw_status sw_model_check_size(const struct sw_json_doc *doc, const char *key, int64_t value);
/* Reads such a size under either of its names; refuses two different numbers. */
sw_status sw_model_read_size(struct sw_json_doc *doc, const struct sw_json *config,
                             const struct sw_model_key *key, int64_t fallback, int64_t *out);
/* Reads vocab, max_tokens, width and layers of model, and the family's own sizes. */
sw_status sw_model_read_sizes(struct sw_json_doc *doc, const struct sw_json *config,
                              struct sw_model *model, int64_t *out_heads, int64_t *out_inner);
/* Checks that the elements of all parameters together fit 64 bits. layer: elements of one layer. */
sw_status sw_model_check_parameters(const struct sw_json_doc *doc, const struct sw_model *model,
                                    double layer, int64_t inner);
/* Finds activation `name`, the value of `key`; SW_E_UNSUP: unknown. */
sw_status sw_model_find_act(const struct sw_json_doc *doc, const char *key, const char *name,
                            enum sw_act *out);
sw_status sw_model_read_act(const struct sw_json_doc *doc, const struct sw_json *config,
                            const char *key, const char *fallback, enum sw_act *out);
/* Reads num_labels, or the size of id2label, or the family's default. */
sw_status sw_model_read_labels(const struct sw_model_ops *ops, const struct sw_json_doc *doc,
                               const struct sw_json *config, int64_t *out);
/* Requires 0 <= p < 1; absent or null is `fallback`. */
sw_status sw_model_read_dropout(struct sw_json_doc *doc, const struct sw_json *config,
                                const char *key, double fallback, double *out);
/* Reads a number that is 0 or more. */
sw_status sw_model_read_amount(struct sw_json_doc *doc, const struct sw_json *config,
                               const char *key, double fallback, double *out);
/* SW_E_UNSUP unless the key is absent, null or the supported value. */
sw_status sw_model_only(struct sw_json_doc *doc, const struct sw_json *config, const char *key,
                        bool built);
/* A special token's id, or the first of a list; -1 = none. */
int64_t sw_model_token_id(const struct sw_json *config, const char *key);
/* The embedding row that pad_token_id names, which gets no gradient from the lookup. Absent is
 * `fallback`, null is none (-1); a negative id counts from the end of the table. */
int64_t sw_model_padding_row(const struct sw_json *config, const struct sw_model *model,
                             int64_t fallback);

#include "model/heads.h"
