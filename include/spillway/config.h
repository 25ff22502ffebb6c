// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's ds_config.json as this library reads it: what holds, where it came from, what a key
// means, and what a schedule does. Training takes the file itself: see spillway/engine.h.
#pragma once

#include <stdbool.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All zero but the path is a legal start; no options at all (NULL) are SW_E_ARG. */
struct sw_config_options {
    const char *path;
    /* [n_sets] "a.b=value" edits of the file, in order. Flags for keys that are "auto", as
     * transformers' Trainer takes them: --lr=, --batch-size=, --accumulate=, --warmup-steps=,
     * --weight-decay=, --clip=, --adam-beta1=, --adam-beta2=, --adam-eps= a number, --bf16= and
     * --fp16= true or false; and what is known: --steps=, --hidden-size=, --planned-batch-size= */
    const char *const *sets;
    int n_sets;
    int ranks;     /* data-parallel ranks of the batch arithmetic; 0 = 1 */
    bool json;     /* one JSON object: config, source, not_built and, if asked, schedule */
    bool schedule; /* rates of the first n_steps optimizer steps */
    int n_steps;
    long long elastic_ranks; /* sw_config_elastic_text: ranks at hand; 0 = none yet */
};

/*
 * sw_config_report - effective values, one line a key with its source.
 *
 * out_text     the caller's: sw_text_free
 * out_notes    one line for each flag that no key takes, and for each key that asks for something
 *              which is not built: training would refuse it; "" when there is none. The caller's:
 *              sw_text_free
 *
 * SW_E_CONFIG  the file is refused; the message has file, line and key
 */
SW_API sw_status sw_config_report(const struct sw_config_options *options, char **out_text,
                                  char **out_notes);

/* Is the micro-batch "auto", and no edit says it? Then a plan finds it: spillway/engine.h. */
SW_API sw_status sw_config_wants_plan(const struct sw_config_options *options, bool *out);

/*
 * sw_config_elastic_text - what the `elasticity` block makes: global batch, numbers of ranks that
 * divide it, and for options->elastic_ranks the micro-batch and accumulation. Reads the file and
 * edits of the options, and json.
 *
 * out_text     the caller's: sw_text_free
 *
 * SW_E_CONFIG  no such block, or that number of ranks is not among the valid ones
 */
SW_API sw_status sw_config_elastic_text(const struct sw_config_options *options, char **out_text);

/* Type, default, range, meaning and state of a key ("fp16.loss_scale", "loss_scale") or of the keys
 * of a block. The caller's: sw_text_free. SW_E_CONFIG names the nearest key. */
SW_API sw_status sw_config_explain_text(const char *key, char **out_text);
/* The manual page of all keys, in Markdown. The caller's: sw_text_free. */
SW_API sw_status sw_config_docs_text(char **out_text);

#ifdef __cplusplus
}
#endif
