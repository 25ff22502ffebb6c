// SPDX-License-Identifier: Apache-2.0
// spillway check - repeats recorded runs of other programs and compares, one row a quantity.
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "spillway/check.h"
#include "spillway/comm.h"

int sw_cmd_check(int argc, char **argv)
{
    struct words cases = {0}, sets = {0};
    int64_t ranks = 0;
    struct cli_device device = {0};
    const struct flag flags[] = {
        {"--ranks", FLAG_INT, &ranks, "R", "number of ranks (default: as recorded, or 1)", 0},
        CLI_DEVICE_FLAG(device.name),
        {"--set", FLAG_LIST, &sets, "KEY=VALUE",
         "edit the configuration of every run; may be repeated", 0},
    };
    const struct command command = {
        "check", "CASE.. [--ranks R] [--device D] [--set KEY=VALUE]",
        "A case is a folder with a model and a recorded run (docs/check.md). Prints a row per\n"
        "quantity: largest error, tolerance, pass or fail. Status 0 if all pass, 1 if one fails,\n"
        "2 if a case cannot be read or needs a feature that is not supported.",
        CLI_FLAGS(flags),
        "tests/cases/gpt2_tied\n"
        "cases/* --device cuda\n"
        "tests/cases/llama_groups --ranks 2\n"};
    int status = cli_parse(&command, argc, argv, &cases);
    if (status < 0 && cases.n == 0) {
        status = cli_fail(&command, CLI_REFUSED, "no CASE is given; see --help");
    }
    if (status < 0 && ranks > SW_THREAD_RANKS_MAX) {
        status = cli_fail(&command, CLI_REFUSED, "--ranks is %lld; wanted at most %d",
                          (long long)ranks, SW_THREAD_RANKS_MAX);
    }
    if (status < 0 && !cli_add_device(&sets, &device)) {
        status = cli_fail(&command, CLI_FAILED, "out of memory");
    }
    if (status < 0) {
        const struct sw_check_options options = {sets.items, sets.n, (int)ranks};
        int n_failed = 0, n_refused = 0;
        status = CLI_DONE;
        for (int i = 0; i < cases.n; i++) {
            int failed = 0;
            if (sw_check_case(cases.items[i], &options, stdout, &failed) < 0) {
                status = cli_error(&command, CLI_REFUSED);
                n_refused++;
            }
            n_failed += failed;
        }
        printf("%d case%s, %d row%s failed", cases.n, cases.n == 1 ? "" : "s", n_failed,
               n_failed == 1 ? "" : "s");
        if (n_refused > 0) {
            printf(", %d case%s refused", n_refused, n_refused == 1 ? "" : "s");
        }
        putchar('\n');
        status = status == CLI_DONE && n_failed > 0 ? CLI_FAILED : status;
    }
    cli_free_words(&cases);
    cli_free_words(&sets);
    free(device.edit);
    return status;
}
