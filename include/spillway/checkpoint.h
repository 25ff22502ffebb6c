// SPDX-License-Identifier: Apache-2.0
// Looking at checkpoints without an engine, and exporting them. Formats: docs/checkpoint.md.
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One line a checkpoint of a folder, newest first; json: one object a line. */
SW_API sw_status sw_checkpoint_list(const char *folder, bool json, FILE *out);
/* Reads every byte and compares the digests; prints one line. A folder of checkpoints stands for
 * its newest complete one. */
SW_API sw_status sw_checkpoint_verify(const char *path, FILE *out);
/* One line a tensor that differs, and a summary; *out_equal tells whether all are the same. */
SW_API sw_status sw_checkpoint_diff(const char *first, const char *second, FILE *out,
                                    bool *out_equal);

struct sw_checkpoint_export_options {
    /* a checkpoint, or a folder of them, which stands for its newest complete one; to merge, a
     * folder of an adapter, too .. */
    const char *path;
    bool best;          /* .. or for that of least validation loss */
    const char *folder; /* the Hugging Face folder to write */
    int dtype;          /* enum sw_dtype of the weights: f32, bf16, f16; -1: as the model came */
    bool merge; /* adapters are added to their base, which is exported; else they alone are */
    const char *model;     /* that base; NULL: the folder that the adapters name */
    const char *tokenizer; /* put these tokenizer files beside them; NULL: those of the run */
};

/*
 * sw_checkpoint_export - a checkpoint's weights as a Hugging Face folder, in constant memory, with
 * the files that the model of its run has; prints which checkpoint it was. Of a checkpoint of
 * adapters a folder that PEFT loads, or their base with them added. All digests are compared first.
 *
 * SW_E_ARG     the folder holds something that no export made
 * SW_E_FORMAT  the checkpoint has no model configuration, or is damaged
 */
SW_API sw_status sw_checkpoint_export(const struct sw_checkpoint_export_options *options,
                                      FILE *out);

#ifdef __cplusplus
}
#endif
