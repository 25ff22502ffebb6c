// SPDX-License-Identifier: Apache-2.0
// Shared by the readers of tokenizer.json's components: the tokenizer being read, and small checks.
// A component is null or an object of a supported `type`. Anything else is refused by name, because
// ids that are nearly right are worse than none.
#pragma once

#include "token/pipeline.h"

struct sw_components {
    struct sw_json_doc *doc;
    struct sw_pipeline *self;
    const struct sw_tokenizer_options *options;
    bool byte_level; /* the pre-tokenizer ends with ByteLevel */
};

bool sw_component_is_null(const struct sw_json *node);
/* Fails unless the node exists and has this type; `what` names it. */
sw_status sw_component_want(const struct sw_json *node, enum sw_json_type type, const char *what);
sw_status sw_component_member(const struct sw_json *object, const char *key, enum sw_json_type type,
                              const struct sw_json **out);
sw_status sw_component_unbuilt(const char *component, const char *what);
/* The `type` of a component that is an object. */
sw_status sw_component_type(const struct sw_json *component, const char *what, const char **out);

/* Read a component into in->self. */
sw_status sw_component_normalizer(struct sw_components *in, const struct sw_json *component);
sw_status sw_component_pretokenizer(struct sw_components *in, const struct sw_json *component);
/* The decoder must be read after the model. */
sw_status sw_component_decoder(struct sw_components *in, const struct sw_json *component);
