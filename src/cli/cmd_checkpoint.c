// SPDX-License-Identifier: Apache-2.0
// spillway checkpoint ls|verify|diff - inspects checkpoints.
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "spillway/checkpoint.h"

int sw_cmd_checkpoint(int argc, char **argv)
{
    bool json = false;
    struct words words = {0};
    const struct flag flags[] = {
        {"--json", FLAG_BOOL, &json, NULL, "ls: print one object per line", 0},
    };
    const struct command command = {
        "checkpoint",
        "ls FOLDER | verify PATH | diff PATH PATH",
        "ls lists a folder's checkpoints, newest first. verify reads every byte and compares the\n"
        "digests. diff compares two checkpoints tensor by tensor and ends with status 1 if they "
        "differ.\n"
        "A folder of checkpoints stands for its newest complete one.",
        flags,
        1,
        "ls run\n"
        "verify run\n"
        "diff run/checkpoint-100 other/checkpoint-100\n"};
    int status = cli_parse(&command, argc, argv, &words);
    const char *verb = words.n > 0 ? words.items[0] : "";
    if (status >= 0) {
        cli_free_words(&words);
        return status;
    }
    sw_status st = SW_OK;
    bool equal = true;
    if (strcmp(verb, "ls") == 0 && words.n == 2) {
        st = sw_checkpoint_list(words.items[1], json, stdout);
    } else if (strcmp(verb, "verify") == 0 && words.n == 2) {
        st = sw_checkpoint_verify(words.items[1], stdout);
    } else if (strcmp(verb, "diff") == 0 && words.n == 3) {
        st = sw_checkpoint_diff(words.items[1], words.items[2], stdout, &equal);
    } else {
        cli_free_words(&words);
        return cli_fail(&command, CLI_REFUSED, "wanted ls FOLDER, verify PATH or diff PATH PATH");
    }
    cli_free_words(&words);
    if (st < 0) {
        return cli_error(&command, CLI_FAILED);
    }
    return equal ? CLI_DONE : CLI_FAILED;
}
