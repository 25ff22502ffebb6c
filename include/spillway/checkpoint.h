// SPDX-License-Identifier: Apache-2.0
// Inspection and export of checkpoints without an engine. Formats: docs/checkpoint.md.
//
// No call here is collective. SW_E_IO: a file cannot be read or written. SW_E_FORMAT: a file is
// damaged. Both name the file.
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Prints one line per checkpoint of a folder, newest first. json: one object per line. */
SW_API sw_status sw_checkpoint_list(const char *folder, bool json, FILE *out);
/* Reads every byte, compares the digests and prints one line. If `path` is a folder of checkpoints,
 * its newest complete checkpoint is verified. */
SW_API sw_status sw_checkpoint_verify(const char *path, FILE *out);
/* Prints one line per tensor that differs, and a summary. *out_equal is true if no tensor
 * differs. */
SW_API sw_status sw_checkpoint_diff(const char *first, const char *second, FILE *out,
                                    bool *out_equal);

struct sw_checkpoint_export_options {
    /* A checkpoint, or a folder of checkpoints, of which the newest complete one is exported. With
     * `merge`, also an adapter folder. */
    const char *path;
    bool best;          /* of a folder, export the checkpoint with the lowest validation loss */
    const char *folder; /* the Hugging Face folder to write */
    int dtype; /* enum sw_dtype of the weights: f32, bf16, f16; -1: the dtype of the loaded model */
    bool merge; /* export the base model with the adapters added; false: export the adapters only */
    const char *model;     /* base model for `merge`; NULL: the folder that the adapters name */
    const char *tokenizer; /* tokenizer files to put beside the weights; NULL: those of the run */
};

/*
 * sw_checkpoint_export - write the weights of a checkpoint as a Hugging Face folder.
 *
 * The folder gets the other files of the run's model, too. Adapters become a folder that PEFT can
 * load, or are merged into their base. Uses constant memory. Compares all digests first, and prints
 * the name of the checkpoint.
 *
 * SW_E_ARG     the folder holds something that no export made
 * SW_E_FORMAT  the checkpoint has no model configuration, or is damaged
 */
SW_API sw_status sw_checkpoint_export(const struct sw_checkpoint_export_options *options,
                                      FILE *out);

struct sw_onnx_options {
    /* A checkpoint, a folder of checkpoints, a model folder, or an adapter folder, which is merged
     * into its base. */
    const char *path;
    bool best;             /* of a folder, export the checkpoint with the lowest validation loss */
    const char *folder;    /* the folder to write */
    int dtype;             /* enum sw_dtype of weights and activations: f32, bf16, f16; -1: f32 */
    int opset;             /* version of the ONNX operators, 17 to 23; 0: 17 */
    const char *model;     /* base model of adapters; NULL: the folder that they name */
    const char *tokenizer; /* tokenizer files to put beside the weights; NULL: those of the model */
    /* Compare the logits of 8 random batches with ONNX Runtime, by a script for python3 of PATH.
     * Takes the memory of the model. Without ONNX Runtime a line says so. */
    bool verify;
};

/*
 * sw_export_onnx - write a model as ONNX files, with the files that accompany a model.
 *
 * Writes model.onnx, or encoder_model.onnx and decoder_model.onnx, and prints what was written.
 * Uses constant memory. docs/onnx.md describes the files.
 *
 * SW_E_ARG     the folder holds something that no export made, or weights of a model
 * SW_E_FORMAT  the source is damaged, or lacks a weight
 * SW_E_UNSUP   an op of the model has no ONNX nodes; the message names it
 * SW_E_PEER    verify: ONNX Runtime has other logits, or does not load the files
 */
SW_API sw_status sw_export_onnx(const struct sw_onnx_options *options, FILE *out);

#ifdef __cplusplus
}
#endif
