// SPDX-License-Identifier: Apache-2.0
// spillway export - exports a checkpoint as a Hugging Face folder, or a model as ONNX.
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "spillway/checkpoint.h"
#include "spillway/tensor.h"

int sw_cmd_export(int argc, char **argv)
{
    struct sw_checkpoint_export_options o = {.dtype = -1};
    const char *dtype = NULL, *onnx = NULL;
    int64_t opset = 0;
    bool verify = false;
    struct words words = {0};
    const struct flag flags[] = {
        {"--output", FLAG_TEXT, &o.folder, "DIR",
         "Hugging Face folder to write; new, empty, or left by an earlier export", 0},
        {"--onnx", FLAG_TEXT, &onnx, "DIR",
         "folder for ONNX files instead; CHECKPOINT may then be a model folder, and adapters "
         "are merged",
         0},
        {"--opset", FLAG_INT, &opset, "N", "version of the ONNX operators, 17 to 23 (default: 17)",
         0},
        {"--verify", FLAG_BOOL, &verify, NULL,
         "compare the logits of 8 random batches with ONNX Runtime, if python3 has it", 0},
        {"--best", FLAG_BOOL, &o.best, NULL,
         "in a folder of checkpoints, take the one of least validation loss (default: the "
         "newest)",
         0},
        {"--dtype", FLAG_TEXT, &dtype, "f32|bf16|f16",
         "dtype of the weights (default: the model's; f32 with --onnx, and for a model trained "
         "from nothing)",
         0},
        {"--merge", FLAG_BOOL, &o.merge, NULL,
         "write the base model with the adapters added in fp32 and rounded once (default: the "
         "adapters alone)",
         0},
        {"--model", FLAG_TEXT, &o.model, "DIR",
         "base model for --merge, or of adapters with --onnx (default: the one of the training)",
         0},
        {"--tokenizer", FLAG_TEXT, &o.tokenizer, "DIR",
         "tokenizer files to put beside the weights (default: those of the run)", 0},
    };
    const struct command command = {
        "export",
        "CHECKPOINT (--output DIR [--merge] | --onnx DIR [--opset N] [--verify]) [--best] "
        "[--dtype D] [--tokenizer DIR]",
        "Writes the weights of a checkpoint as a Hugging Face folder. A folder of checkpoints "
        "stands for its\n"
        "newest complete one. If adapters were trained, it writes a folder that PEFT loads, or\n"
        "with --merge a whole model. --merge also takes such a folder instead of a checkpoint.\n"
        "--onnx writes model.onnx, or encoder_model.onnx and decoder_model.onnx (docs/onnx.md).",
        CLI_FLAGS(flags),
        "run --output model --best\n"
        "run/checkpoint-100 --output model --dtype bf16\n"
        "run --output merged --merge\n"
        "run --onnx served --opset 20\n"};
    int status = cli_parse(&command, argc, argv, &words);
    o.path = words.n == 1 ? words.items[0] : NULL;
    if (status < 0 && dtype) {
        o.dtype = strcmp(dtype, "f32") == 0    ? SW_F32
                  : strcmp(dtype, "bf16") == 0 ? SW_BF16
                  : strcmp(dtype, "f16") == 0  ? SW_F16
                                               : -1;
    }
    if (status < 0 && ((onnx && o.folder) || (verify && !onnx) ||
                       (opset != 0 && (!onnx || opset < 17 || opset > 23)))) {
        status = cli_fail(&command, CLI_REFUSED,
                          onnx && o.folder  ? "--output and --onnx exclude each other"
                          : verify && !onnx ? "--verify needs --onnx"
                                            : "--opset is 17 to 23, and needs --onnx");
    }
    o.folder = onnx ? onnx : o.folder;
    if (status < 0 && (!o.path || !*o.path || !o.folder || !*o.folder || (dtype && o.dtype < 0))) {
        status =
            cli_fail(&command, CLI_REFUSED,
                     "wanted one CHECKPOINT, --output or --onnx, and --dtype f32, bf16 or f16");
    }
    if (status < 0) {
        const struct sw_onnx_options to = {.path = o.path,
                                           .best = o.best,
                                           .folder = o.folder,
                                           .dtype = o.dtype,
                                           .opset = (int)opset,
                                           .model = o.model,
                                           .tokenizer = o.tokenizer,
                                           .verify = verify};
        const sw_status st = onnx ? sw_export_onnx(&to, stdout) : sw_checkpoint_export(&o, stdout);
        status =
            st >= 0 ? CLI_DONE : cli_error(&command, st == SW_E_ARG ? CLI_REFUSED : CLI_FAILED);
    }
    cli_free_words(&words);
    return status;
}
