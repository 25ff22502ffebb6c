// SPDX-License-Identifier: Apache-2.0
// spillway estimate - estimates the bytes of model states by DeepSpeed's rules of thumb. `spillway
// plan --ranks` computes what a training here would take.
#include <stdio.h>

#include "cli/cli.h"
#include "spillway/engine.h"
#include "spillway/look.h"

int sw_cmd_estimate(int argc, char **argv)
{
    struct sw_estimate_options o = {.ranks_per_node = 1, .nodes = 1, .buffer_factor = 1.5};
    const struct flag flags[] = {
        {"--model", FLAG_TEXT, &o.model, "DIR|FILE|PRESET",
         "model whose parameters are counted; a config.json is enough", 0},
        {"--parameters", FLAG_INT, &o.parameters, "P", "number of parameters, instead of --model",
         0},
        {"--largest-layer", FLAG_INT, &o.largest_layer, "L",
         "parameters of the largest layer; needed for stage 3 with --parameters", 0},
        {"--gpus-per-node", FLAG_INT, &o.ranks_per_node, "G", "devices per node (default: 1)", 0},
        {"--nodes", FLAG_INT, &o.nodes, "N", "number of nodes (default: 1)", 0},
        {"--buffer-factor", FLAG_REAL, &o.buffer_factor, "F",
         "factor for buffers in host memory (default: 1.5)", 0},
        {"--json", FLAG_BOOL, &o.json, NULL, "print one JSON object", 0},
    };
    const struct command command = {
        "estimate", "--model M | --parameters P [--largest-layer L] [..]",
        "Prints DeepSpeed's estimates, estimate_zero2_model_states_mem_needs and ..zero3..\n"
        "\"spillway plan --ranks R\" prints what a training takes in Spillway.",
        CLI_FLAGS(flags),
        "--model llama-3.1-8b --gpus-per-node 8\n"
        "--parameters 7000000000 --gpus-per-node 8 --nodes 2\n"
        "--model config.json --json\n"};
    char *out = NULL;
    int status = cli_parse(&command, argc, argv, NULL);
    if (status < 0 && !o.model == !o.parameters) {
        status =
            cli_fail(&command, CLI_REFUSED, "wanted either --model or --parameters; see --help");
    }
    if (status < 0) {
        status = sw_estimate_text(&o, &out) < 0 ? cli_error(&command, CLI_REFUSED) : CLI_DONE;
    }
    if (status == CLI_DONE && out) {
        printf("%s", out);
    }
    sw_text_free(out);
    return status;
}
