// SPDX-License-Identifier: Apache-2.0
// Reports on DeepSpeed's ds_config.json as this library reads it: effective values and their
// sources, the meaning of keys, and the rates of a schedule. Training takes the file itself: see
// spillway/engine.h.
#pragma once

#include <stdbool.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Only path must be set; all other fields may be zero. A NULL pointer to options is SW_E_ARG. */
struct sw_config_options {
    const char *path;
    /* [n_sets] "a.b=value" edits of the file, in order, or flags for keys that are "auto", as in
     * transformers' Trainer. With a number: --lr=, --batch-size=, --accumulate=, --warmup-steps=,
     * --weight-decay=, --clip=, --adam-beta1=, --adam-beta2=, --adam-eps=. With true or false:
     * --bf16=, --fp16=. Known quantities: --steps=, --hidden-size=, --planned-batch-size=. */
    const char *const *sets;
    int n_sets;
    int ranks;     /* data-parallel ranks for the batch arithmetic; 0 = 1 */
    bool json;     /* one JSON object: config, source, not_built and, if requested, schedule */
    bool schedule; /* add the learning rates of the first n_steps optimizer steps */
    int n_steps;
    long long elastic_ranks; /* for sw_config_elastic_text: available ranks; 0 = not known yet */
};

/*
 * sw_config_report - effective values, one line per key with its source.
 *
 * out_text     the caller's: sw_text_free
 * out_notes    one line for each flag that no key uses, and for each key that needs a feature which
 *              is not built, so that training would refuse it; "" if there is none. The caller's:
 *              sw_text_free
 *
 * SW_E_CONFIG  the file is refused; the message has file, line and key
 */
SW_API sw_status sw_config_report(const struct sw_config_options *options, char **out_text,
                                  char **out_notes);

/* Whether the micro-batch is "auto" and no edit sets it. A plan then chooses it:
 * spillway/engine.h. */
SW_API sw_status sw_config_wants_plan(const struct sw_config_options *options, bool *out);

/*
 * sw_config_elastic_text - result of the `elasticity` block: the global batch, the valid numbers of
 * ranks, and for options->elastic_ranks the micro-batch and accumulation.
 *
 * options      only path, sets, json and elastic_ranks are read
 * out_text     the caller's: sw_text_free
 *
 * SW_E_CONFIG  there is no such block, or elastic_ranks is not a valid number of ranks
 */
SW_API sw_status sw_config_elastic_text(const struct sw_config_options *options, char **out_text);

/* Type, default, range, meaning and state of a key ("fp16.loss_scale", "loss_scale"), or of all
 * keys of a block. Free *out_text with sw_text_free. SW_E_CONFIG: no such
 * key; names the nearest one. */
SW_API sw_status sw_config_explain_text(const char *key, char **out_text);
/* The manual page of all keys, in Markdown. Free *out_text with sw_text_free. */
SW_API sw_status sw_config_docs_text(char **out_text);

#ifdef __cplusplus
}
#endif
