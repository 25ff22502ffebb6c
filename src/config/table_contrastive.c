// SPDX-License-Identifier: Apache-2.0
// The rows of "spillway.contrastive": settings of the loss that compares vectors of texts.
#include "config/table.h"

static const char *const poolings[] = {"mean", "cls", NULL};

static const struct config_field contrastive_fields[] = {
    NUMBER("scale", AT(spillway.contrastive.scale), "20.0", 0, HIGHEST,
           "factor of cosines: 1 over the temperature", BUILT),
    CHOICE("pooling", AT(spillway.contrastive.pooling), "\"mean\"", poolings,
           "vector of a text: the mean over its tokens, or that of its first token", BUILT),
};
SECTION(sw_config_table_contrastive, "spillway.contrastive", contrastive_fields, 0,
        "The loss of vectors of texts, for the task contrastive");
