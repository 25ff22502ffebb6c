// SPDX-License-Identifier: Apache-2.0
// Adapters in PEFT's form (a folder with adapter_config.json and adapter_model.safetensors) or in a
// checkpoint, and the adapter state of an engine. Private to the room.
#pragma once

#include "ckpt/ckpt.h"
#include "engine/private.h"
#include "nn/nn.h"

/* ---- adapter.c: sources of adapters ---- */

/* An adapter source: either a file or a checkpoint. */
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
/* SW_E_FORMAT: no tensor has this name and shape, so the adapters belong to another base. */
sw_status sw_adapter_check(const struct sw_adapter_source *source, const char *name,
                           const struct sw_shape *shape);
/* Reads elements [first, first + n) of a tensor that sw_adapter_check accepted. */
sw_status sw_adapter_read(const struct sw_adapter_source *source, const char *name, int64_t first,
                          int64_t n, float *out);
/* Appends the adapter's configuration as an edit of ours: "spillway.lora={..}". */
void sw_adapter_edit(const struct sw_json *config, struct sw_str *out);

/* Writes PEFT's name of a parameter, "base_model.model.NAME", into buf. */
const char *sw_adapter_name(const char *param, char *buf, size_t cap);

/* ---- lora.c: an engine with adapters ---- */

struct engine_lora {
    struct sw_lora spec; /* strings belong to the configuration, the model or the arena */
    struct sw_arena arena;
    struct sw_adapter_source from; /* source, open while weights are read; all zero: new adapters */
    bool continues;                /* the adapters come from `from` */
    bool untied;                   /* the model's tied pair is two parameters here */
    struct engine_adapted {
        const char *module;
        double scaling;
        bool in_out;
    } * layers; /* [n_layers] in the order of the forward */
    int32_t n_layers;
};

/* Opens the folder options.adapter, and writes the configuration edit for its settings. */
sw_status sw_engine_open_adapter(struct sw_engine *e, struct sw_str *edit);
/* Opens the adapters of the configuration; e->lora stays NULL if it has none. */
sw_status sw_engine_open_lora(struct sw_engine *e);
void sw_engine_close_lora(struct sw_engine *e);
/* Fits the adapters to the opened model. If one of a tied pair is saved, the pair becomes two
 * parameters. */
sw_status sw_engine_fit_lora(struct sw_engine *e);
/* Learns the adapted layers of a graph, after its forward. SW_E_CONFIG names an entry that matches
 * no layer. */
sw_status sw_engine_learn_adapted(struct sw_engine *e, const struct sw_graph *g);
/* True if the parameter is trained, false if it is read from the base and frozen. Without adapters:
 * true. */
bool sw_engine_keeps(const struct sw_engine *e, const char *param);
/* True if the given adapter provides the parameter's values. */
bool sw_engine_adapter_has(const struct sw_engine *e, const char *param);
/* Loads the values of the adapter, if there is one, over the base's weights. */
sw_status sw_engine_load_adapter(struct sw_engine *e);
/* Describes the adapters ("adapter") and their base model ("base") for a checkpoint. */
bool sw_engine_put_lora(const struct sw_engine *e, struct sw_json_doc *doc, struct sw_json *root);
/* Appends the reason why a checkpoint's base differs from this one. */
void sw_engine_check_base(const struct sw_engine *e, const struct sw_ckpt *ckpt,
                          struct sw_str *refusal);
