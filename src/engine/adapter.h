// SPDX-License-Identifier: Apache-2.0
// Adapters as PEFT keeps them, in a folder of adapter_config.json and adapter_model.safetensors, or
// as a checkpoint does; and what an engine with adapters knows of itself. Private to the room.
#pragma once

#include "ckpt/ckpt.h"
#include "engine/private.h"
#include "nn/nn.h"

/* ---- adapter.c: where adapters come from ---- */

/* One of file and ckpt. */
struct sw_adapter_source {
    const char *path;             /* for messages; borrowed */
    const struct sw_json *config; /* as PEFT writes adapter_config.json */
    struct sw_json_doc *doc;      /* owns it, of a folder */
    struct sw_safetensors *file;
    struct sw_ckpt *ckpt; /* borrowed */
};
/* A folder of PEFT's. SW_E_IO: it has no such files; SW_E_UNSUP names a key that is not built. */
sw_status sw_adapter_open(const char *folder, struct sw_adapter_source *out);
/* The same of a checkpoint, which is borrowed. SW_E_ARG: it holds no adapters. */
sw_status sw_adapter_of_checkpoint(struct sw_ckpt *ckpt, struct sw_adapter_source *out);
void sw_adapter_close(struct sw_adapter_source *source);
/* SW_E_FORMAT: it has no tensor of this name and shape, so it is of another base. */
sw_status sw_adapter_check(const struct sw_adapter_source *source, const char *name,
                           const struct sw_shape *shape);
/* Elements [first, first + n) of one that was checked. */
sw_status sw_adapter_read(const struct sw_adapter_source *source, const char *name, int64_t first,
                          int64_t n, float *out);
/* Its configuration as an edit of ours: "spillway.lora={..}". */
void sw_adapter_edit(const struct sw_json *config, struct sw_str *out);

/* "base_model.model.NAME", what PEFT calls a parameter in its file; into buf. */
const char *sw_adapter_name(const char *param, char *buf, size_t cap);

/* ---- lora.c: an engine with adapters ---- */

struct engine_lora {
    struct sw_lora spec; /* strings are of the configuration, the model and the arena */
    struct sw_arena arena;
    struct sw_adapter_source from; /* while weights are read; all zero: adapters begin anew */
    bool continues;                /* they come from there */
    bool untied;                   /* the model's tied pair is two parameters here */
    struct engine_adapted {
        const char *module;
        double scaling;
        bool in_out;
    } * layers; /* [n_layers] in order of the forward */
    int32_t n_layers;
};

/* The folder of options.adapter, and an edit of the configuration that says what it has. */
sw_status sw_engine_open_adapter(struct sw_engine *e, struct sw_str *edit);
/* Of a configuration that has the block; e->lora stays NULL without. */
sw_status sw_engine_open_lora(struct sw_engine *e);
void sw_engine_close_lora(struct sw_engine *e);
/* To the model that was opened: its head; a tied pair of which one is saved becomes two. */
sw_status sw_engine_fit_lora(struct sw_engine *e);
/* Of a graph behind its forward: what is adapted; SW_E_CONFIG names what found no layer. */
sw_status sw_engine_learn_adapted(struct sw_engine *e, const struct sw_graph *g);
/* Is the parameter trained, or read from the base and frozen? Without adapters all count. */
bool sw_engine_keeps(const struct sw_engine *e, const char *param);
/* Will its values be those of the adapter that is given? */
bool sw_engine_adapter_has(const struct sw_engine *e, const char *param);
/* After the base's weights: those of the adapter, where there is one. */
sw_status sw_engine_load_adapter(struct sw_engine *e);
/* What a checkpoint says of adapters ("adapter") and of the model below ("base"). */
bool sw_engine_put_lora(const struct sw_engine *e, struct sw_json_doc *doc, struct sw_json *root);
/* Appends why a checkpoint's base is not this one. */
void sw_engine_check_base(const struct sw_engine *e, const struct sw_ckpt *ckpt,
                          struct sw_str *refusal);
