// SPDX-License-Identifier: Apache-2.0
// spillway models - lists the built-in model families and the presets of each.
#include <stdio.h>

#include "cli/cli.h"
#include "spillway/doctor.h"

int sw_cmd_models(int argc, char **argv)
{
    const struct command command = {"models",
                                    "",
                                    "Lists model families by the model_type of config.json, and "
                                    "the presets that --model takes.",
                                    NULL,
                                    0,
                                    "\n"};
    int status = cli_parse(&command, argc, argv, NULL);
    if (status < 0) {
        char *text = NULL;
        status = sw_models_text(&text) >= 0 ? CLI_DONE : cli_error(&command, CLI_FAILED);
        printf("%s", status == CLI_DONE ? text : "");
        sw_text_free(text);
    }
    return status;
}
