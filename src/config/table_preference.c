// SPDX-License-Identifier: Apache-2.0
// The rows of "spillway.preference": settings of the losses that compare responses.
#include "config/table.h"

static const char *const losses[] = {"sigmoid", "ipo", NULL};
static const char *const log_probs[] = {"sum", "mean", NULL};

static const struct config_field preference_fields[] = {
    CHOICE("loss_type", AT(spillway.preference.loss), "\"sigmoid\"", losses,
           "loss of the task dpo: the sigmoid of DPO, or the square of IPO", BUILT),
    NUMBER("beta", AT(spillway.preference.beta), "0.1", 0, HIGHEST,
           "weight of the distance to the reference; for orpo, weight lambda of the odds ratio",
           BUILT),
    CHOICE("log_probs", AT(spillway.preference.log_probs), "\"sum\"", log_probs,
           "log-probability of a response in the tasks dpo and kto: the sum over its tokens as "
           "published, or the mean, as TRL has it for ipo",
           BUILT),
    STRING("reference", AT(spillway.preference.reference), "null",
           "model folder of the reference for dpo and kto; null = the model of the training, as it "
           "is before the first step and without its adapter",
           .flags = FIELD_NULL, BUILT),
    NUMBER("desirable_weight", AT(spillway.preference.desirable), "1.0", 0, HIGHEST,
           "kto: weight of desirable responses", BUILT),
    NUMBER("undesirable_weight", AT(spillway.preference.undesirable), "1.0", 0, HIGHEST,
           "kto: weight of undesirable responses", BUILT),
};
SECTION(sw_config_table_preference, "spillway.preference", preference_fields, 0,
        "Losses of preferences, for the tasks dpo, orpo and kto");
