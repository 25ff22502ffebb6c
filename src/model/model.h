// SPDX-License-Identifier: Apache-2.0
// model - one file per family, described only as a forward graph; the registry by Hugging Face's
// model_type; presets. Nothing here knows where a parameter lives or how it is trained.
#pragma once

#include "graph/graph.h"
#include "json/json.h"
#include "task/task.h"

/* What a program of the model computes. Its inputs are those of the model's task, by name
 * (task/task.h); with a cache also position i32 [1] and last i32 [B], the query whose logits are
 * wanted. Outputs by name: loss, those that the task compares with labels, hidden.I, as asked
 * for.
 * Of an encoder and a decoder a cache has two programs: one reads input_ids, and keeps the keys and
 * values that the decoder sees of them; the other one takes a token, decoder_input_ids i32 [B,1],
 * and gives its logits. */
struct sw_forward_spec {
    int64_t batch, tokens;
    int64_t targets;      /* tokens that a decoder behind an encoder is asked for */
    bool has_mask;        /* decoders take attention_mask; encoders always do */
    bool has_labels;      /* output "loss" */
    bool want_logits;     /* outputs of the task's losses; with a cache logits are [B,V] */
    bool want_hidden;     /* outputs "hidden.I": the input of layer I; last, what the head reads */
    bool is_packed;       /* rows hold several documents: positions i32 [B,T], segments i32 [B,T] */
    double smoothing;     /* of labels, in losses that are cross entropies */
    int64_t cache_tokens; /* keys and values of so many tokens are kept as states; 0 = none */
    bool is_source;       /* with a cache: the program of the encoder */
};

/* A class of a family's models: what architectures[0] of config.json says. */
struct sw_model_class {
    const char *name; /* NULL: behind the last */
    /* That it has a head for. "classify" is regression and multi-label, too, and so is "images" of
     * families that read problem_type. */
    const char *task;
};

/* Keys of config.json that families have under some name; fallback: what transformers takes where
 * the key is absent. A key that is NULL is none of the family's. */
enum sw_model_size {
    SW_SIZE_WIDTH,
    SW_SIZE_LAYERS,
    SW_SIZE_HEADS,
    SW_SIZE_INNER, /* fallback 0: four times the width; without a key it is always that */
    SW_SIZE_VOCAB,
    SW_SIZE_TOKENS,
    SW_SIZE_COUNT
};
struct sw_model_key {
    const char *key, *alias; /* alias: an older name, or NULL */
    int64_t fallback;
};

/* What is asked for; all zeros: what config.json says. */
struct sw_model_options {
    const char *task; /* NULL: that of the class */
    int64_t labels;   /* classes, or numbers, of a head; 0: those of config.json */
};

struct sw_model; /* one family's configuration */

enum { SW_MODEL_MAX_CLASSES = 8 };
struct sw_model_ops {
    const char *model_type;
    struct sw_model_class classes[SW_MODEL_MAX_CLASSES]; /* the first is that of presets */
    const char *trunk_class; /* of folders that have no head: that of the first class begins at
                                random; NULL = one of the classes */
    struct sw_model_key sizes[SW_SIZE_COUNT];
    bool is_of_classes;   /* "images" of these are always classes of which one counts */
    int64_t extra_tokens; /* SW_SIZE_TOKENS counts so many rows that are no positions of a text */
    /* Reads config.json; refuses by name what it cannot compute. */
    sw_status (*open)(const struct sw_model_ops *ops, struct sw_json_doc *doc,
                      const struct sw_json *config, const struct sw_model_options *options,
                      struct sw_model **out);
    void (*close)(struct sw_model *model);
    /* Emits the forward; *out_loss is SW_NO_VALUE without labels. Failures are in
     * sw_graph_status. */
    void (*forward)(const struct sw_model *model, sw_graph *g, const struct sw_forward_spec *spec,
                    sw_value *out_loss);
    /* The name `name` has in a file of other origin, number `i` = 0, 1, ..; NULL when there are no
     * more. Written to buf. */
    const char *(*alias)(const struct sw_model *model, const char *name, int i, char *buf,
                         size_t cap);
    /* Tensors of a file that the family knows and has no use for. */
    bool (*ignores)(const struct sw_model *model, const char *file_name);
};

struct sw_model { /* base; first member of every family's own struct */
    const struct sw_model_ops *ops;
    const struct sw_task *task;
    const char *class_name; /* of architectures[0], with the task's head */
    bool is_other_class;    /* than config.json says: it has another head, or none */
    bool has_other_labels;  /* than config.json says: as many were asked for */
    int64_t vocab, max_tokens, width, layers, labels;
    int64_t channels, image_height, image_width;
    bool tied;               /* the LM head is the embedding table */
    bool ties_absent_head;   /* an untied head that a folder does not have is the table */
    const char *scale_key;   /* of config.json: the head reads what is scaled; NULL = never */
    bool scales_head;        /* what that key says, or what its absence means */
    bool is_endless;         /* tokens are told by how far they are apart: max_tokens is no bound */
    int64_t pad_id;          /* -1 = none */
    int64_t eos_id;          /* -1 = none */
    int64_t start_id;        /* what a decoder behind an encoder begins with; else 0 */
    const char *trunk;       /* module without its heads */
    const char *pooler;      /* module in the trunk that is of some heads; NULL = none */
    const char *head_module; /* the last one, NULL where it is the embedding table */
    const char *head_name;   /* parameter of an untied LM head, NULL otherwise */
    const char *embedding_name;
    const char *lm_head_name; /* what an untied head of a language model is called, tied or not */
};

/* By model_type and architectures[0] of a config.json. SW_E_UNSUP names what is not known,
 * SW_E_CONFIG a task that the family has no head for. options NULL: as config.json says. */
sw_status sw_model_open(struct sw_json_doc *doc, const struct sw_model_options *options,
                        struct sw_model **out);
void sw_model_close(struct sw_model *model);
/* config.json says of the model what it was opened as. label_names: [labels]; NULL: those that it
 * has, else LABEL_0, LABEL_1, .. */
sw_status sw_model_put_task(const struct sw_model *model, const char *const *label_names,
                            struct sw_json_doc *doc);
/* A text of the task's words is continued: each token is predicted from those before it. */
bool sw_model_is_causal(const struct sw_model *model);
/* Its decoder writes what its encoder is asked for: a text for a text. */
bool sw_model_is_seq2seq(const struct sw_model *model);
/* Its head tells classes, numbers or places: one of its own on the trunk. */
bool sw_model_is_labelled(const struct sw_model *model);
/* A parameter that a folder of another class does not have, and that begins at random then. */
bool sw_model_may_begin(const struct sw_model *model, const char *param);
/* The parameter is of a head for other classes than the folder's, where as many are asked for as
 * config.json does not say. */
bool sw_model_has_other_head(const struct sw_model *model, const char *param);
/* Sizes of the task's inputs in a program. */
struct sw_task_sizes sw_model_sizes(const struct sw_model *model,
                                    const struct sw_forward_spec *spec);
/* Input `name` of the model's task. Counted ones are the same for all rows, [T], unless several
 * documents share a row. */
sw_value sw_model_input(sw_graph *g, const struct sw_model *model,
                        const struct sw_forward_spec *spec, const char *name);
/* Output "hidden.I", where hidden states are asked for. */
void sw_model_name_hidden(sw_graph *g, const struct sw_forward_spec *spec, int64_t i, sw_value h);
/* One of the globs (they end with NULL, or are it) knows the name, or it is the head that a tied
 * model's file has all the same. */
bool sw_model_ignores(const struct sw_model *model, const char *const *globs,
                      const char *file_name);
/* Number i of the other names that `pairs` (a name, another one of it, ..; they end with NULL, or
 * are it) has for `name`; NULL: there are no more. */
const char *sw_model_other_name(const char *const *pairs, const char *name, int i);
/* config.json of a preset into a new document, with the vocabulary replaced where vocab > 0 and the
 * context where max_tokens > 0; SW_E_CONFIG lists the presets when the name is none. */
sw_status sw_model_preset(const char *name, int64_t vocab, int64_t max_tokens,
                          struct sw_json_doc **out);
bool sw_model_is_preset(const char *name);
/* By model_type; NULL: there is none. */
const struct sw_model_ops *sw_model_family(const char *type);
/* Families and presets, a line each, for a reader. */
void sw_model_list(struct sw_str *out);
/* " name" of each preset of a family. */
void sw_model_list_presets(const char *type, struct sw_str *out);

/* ---- config.json reading shared by the families (read.c) ---- */

/* The members of model that say what it is for. */
sw_status sw_model_read_task(const struct sw_model_ops *ops, struct sw_json_doc *doc,
                             const struct sw_json *config, const struct sw_model_options *options,
                             struct sw_model *model);
/* A positive 32-bit number. */
sw_status sw_model_check_size(const struct sw_json_doc *doc, const char *key, int64_t value);
/* The same, read; *key may have an older name, too. */
sw_status sw_model_read_size(struct sw_json_doc *doc, const struct sw_json *config,
                             const struct sw_model_key *key, int64_t fallback, int64_t *out);
/* vocab, max_tokens, width and layers of model, and what a family keeps itself. */
sw_status sw_model_read_sizes(struct sw_json_doc *doc, const struct sw_json *config,
                              struct sw_model *model, int64_t *out_heads, int64_t *out_inner);
/* Sizes that are fine one by one: what is summed over all parameters must still fit 64 bits. layer:
 * elements of one. */
sw_status sw_model_check_parameters(const struct sw_json_doc *doc, const struct sw_model *model,
                                    double layer, int64_t inner);
/* `name`, which stands under the key, as an activation; SW_E_UNSUP: it is none that is known. */
sw_status sw_model_find_act(const struct sw_json_doc *doc, const char *key, const char *name,
                            enum sw_act *out);
sw_status sw_model_read_act(const struct sw_json_doc *doc, const struct sw_json *config,
                            const char *key, const char *fallback, enum sw_act *out);
/* num_labels, or the size of id2label, or 2. */
sw_status sw_model_read_labels(const struct sw_json_doc *doc, const struct sw_json *config,
                               int64_t *out);
/* 0 <= p < 1; absent or null is `fallback`. */
sw_status sw_model_read_dropout(struct sw_json_doc *doc, const struct sw_json *config,
                                const char *key, double fallback, double *out);
/* A number that is 0 or more. */
sw_status sw_model_read_amount(struct sw_json_doc *doc, const struct sw_json *config,
                               const char *key, double fallback, double *out);
/* SW_E_UNSUP unless the key is absent, null or the value that is built. */
sw_status sw_model_only(struct sw_json_doc *doc, const struct sw_json *config, const char *key,
                        bool built);
/* A special token's id, the first of a list; -1 = none. */
int64_t sw_model_token_id(const struct sw_json *config, const char *key);
/* The row of the embedding's table that pad_token_id names, which takes no gradient from the
 * look-up: absent is `fallback`, null none (-1), and a negative one counts from the end of the
 * table. */
int64_t sw_model_padding_row(const struct sw_json *config, const struct sw_model *model,
                             int64_t fallback);
