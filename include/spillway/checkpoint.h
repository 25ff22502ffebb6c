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
/* Reads every byte and compares the digests; prints one line. A folder of checkpoints stands for its
 * newest complete one. */
SW_API sw_status sw_checkpoint_verify(const char *path, FILE *out);
/* One line a tensor that differs, and a summary; *out_equal tells whether all are the same. */
SW_API sw_status sw_checkpoint_diff(const char *first, const char *second, FILE *out,
                                    bool *out_equal);

/*
 * sw_checkpoint_export - a checkpoint's weights as a Hugging Face folder, in constant memory.
 *
 * folder       made when it is not there
 * dtype        enum sw_dtype of the weights: f32, bf16, f16
 *
 * SW_E_FORMAT  the checkpoint has no model configuration, or is damaged
 */
SW_API sw_status sw_checkpoint_export(const char *path, const char *folder, int dtype);

#ifdef __cplusplus
}
#endif
