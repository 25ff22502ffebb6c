// SPDX-License-Identifier: Apache-2.0
// spillway doctor - reports the features of this machine and this build.
#include <limits.h>
#include <stdio.h>

#include "cli/cli.h"
#include "spillway/doctor.h"

int sw_cmd_doctor(int argc, char **argv)
{
    int64_t threads = 0;
    const struct flag flags[] = {
        {"--threads", FLAG_INT, &threads, "N", "number of threads to measure with (default: all)",
         0},
    };
    const struct command command = {
        "doctor",
        "[--threads N]",
        "Prints the libraries found and measured rates of this processor.",
        flags,
        1,
        "\n"
        "--threads 1\n"};
    int status = cli_parse(&command, argc, argv, NULL);
    if (status < 0) {
        char *text = NULL;
        const sw_status st = sw_doctor_text((int)(threads < INT_MAX ? threads : INT_MAX), &text);
        status =
            st >= 0 ? CLI_DONE : cli_error(&command, st == SW_E_ARG ? CLI_REFUSED : CLI_FAILED);
        printf("%s", status == CLI_DONE ? text : "");
        sw_text_free(text);
    }
    return status;
}
