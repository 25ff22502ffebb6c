// SPDX-License-Identifier: Apache-2.0
// model - one file per family, described only as a forward graph; the registry by Hugging Face's
// model_type; presets. Nothing here knows where a parameter lives or how it is trained.
#pragma once

#include "graph/graph.h"
#include "json/json.h"

enum sw_head { SW_HEAD_LM, SW_HEAD_CLASSIFY };

/* What a program of the model computes. Inputs by name: input_ids i32 [B,T], positions i32 [T],
 * attention_mask i32 [B,T] (has_mask), labels i32 [B,T] already shifted, or [B] for a classifier
 * (has_labels); with a cache: position i32 [1], last i32 [B] (the query whose logits are wanted).
 * Outputs by name: loss, logits, hidden.I, as asked for. */
struct sw_forward_spec {
    int64_t batch, tokens;
    bool has_mask;
    bool has_labels;      /* output "loss" */
    bool want_logits;     /* output "logits": [B,T,V], classifiers [B,labels], with a cache [B,V] */
    bool want_hidden;     /* outputs "hidden.I": the input of layer I; last, what the head reads */
    bool is_packed;       /* rows hold several documents: positions i32 [B,T], segments i32 [B,T] */
    int64_t cache_tokens; /* keys and values of so many tokens are kept as states; 0 = none */
};

struct sw_model; /* one family's configuration */

struct sw_model_ops {
    const char *model_type;
    /* Reads config.json; refuses by name what it cannot compute. */
    sw_status (*open)(const struct sw_model_ops *ops, struct sw_json_doc *doc,
                      const struct sw_json *config, struct sw_model **out);
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
    enum sw_head head;
    int64_t vocab, max_tokens, width, layers, labels;
    bool tied;             /* the LM head is the embedding table */
    int64_t pad_id;        /* -1 = none */
    int64_t eos_id;        /* -1 = none */
    const char *head_name; /* parameter of an untied or classifying head, NULL for a tied one */
    const char *embedding_name;
    const char *lm_head_name; /* what an untied head of a language model is called, tied or not */
};

/* By model_type and architectures[0] of a config.json. SW_E_UNSUP names what is not known. */
sw_status sw_model_open(struct sw_json_doc *doc, struct sw_model **out);
void sw_model_close(struct sw_model *model);
/* config.json of a preset into a new document, with the vocabulary replaced where vocab > 0 and the
 * context where max_tokens > 0; SW_E_CONFIG lists the presets when the name is none. */
sw_status sw_model_preset(const char *name, int64_t vocab, int64_t max_tokens,
                          struct sw_json_doc **out);
bool sw_model_is_preset(const char *name);
/* Families and presets, a line each, for a reader. */
void sw_model_list(struct sw_str *out);

/* ---- config.json reading shared by the families ---- */

sw_status sw_model_read_act(const struct sw_json_doc *doc, const struct sw_json *config,
                            const char *key, const char *fallback, enum sw_act *out);
/* num_labels, or the size of id2label, or 2. */
sw_status sw_model_read_labels(const struct sw_json_doc *doc, const struct sw_json *config,
                               int64_t *out);
