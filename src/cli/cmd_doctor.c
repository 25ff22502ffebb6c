// SPDX-License-Identifier: Apache-2.0
// spillway doctor - reports the features of this machine and this build, or measures it as a
// cluster.
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "spillway/doctor.h"

static int report(const struct command *command, int64_t threads)
{
    char *text = NULL;
    const sw_status st = sw_doctor_text((int)(threads < INT_MAX ? threads : INT_MAX), &text);
    const int status =
        st >= 0 ? CLI_DONE : cli_error(command, st == SW_E_ARG ? CLI_REFUSED : CLI_FAILED);
    printf("%s", status == CLI_DONE ? text : "");
    sw_text_free(text);
    return status;
}

static int measure(const struct command *command, const struct sw_doctor_cluster *wanted)
{
    bool wrote = false;
    const sw_status st = sw_doctor_cluster(wanted, &wrote);
    if (st < 0) {
        const bool refused = st == SW_E_ARG || st == SW_E_CONFIG || st == SW_E_UNSUP;
        return cli_error(command, refused ? CLI_REFUSED : CLI_FAILED);
    }
    if (wrote) {
        printf("wrote %s; spillway plan --on %s%s plans for it\n", wanted->path,
               strchr(wanted->path, '/') ? "" : "./", wanted->path);
    }
    return CLI_DONE;
}

int sw_cmd_doctor(int argc, char **argv)
{
    int64_t threads = 0;
    struct sw_doctor_cluster wanted = {0};
    const struct flag flags[] = {
        {"--threads", FLAG_INT, &threads, "N", "number of threads to measure with (default: all)",
         0},
        {"--cluster", FLAG_TEXT, &wanted.path, "FILE",
         "measure this machine, or the hosts of a started job, into a cluster's file for plan --on",
         0},
        {"--device", FLAG_TEXT, &wanted.device, "DEVICE",
         "device to measure with --cluster: cpu, cuda or hip (default: as for train)", 0},
        {"--disk", FLAG_TEXT, &wanted.disk, "FOLDER",
         "folder whose disk --cluster measures (default: none)", 0},
        {"--model", FLAG_TEXT, &wanted.model, "MODEL",
         "model whose kernels --cluster measures (default: gpt2)", 0},
        {"--seq-len", FLAG_INT, &wanted.seq_len, "T",
         "tokens of its sequences (default: those of the model)", 0},
    };
    const struct command command = {
        "doctor",
        "[--threads N | --cluster FILE]",
        "Prints the libraries found and measured rates of this processor.",
        flags,
        sizeof flags / sizeof *flags,
        "\n"
        "--threads 1\n"
        "--cluster here.json --disk /tmp\n"};
    const int status = cli_parse(&command, argc, argv, NULL);
    if (status >= 0) {
        return status;
    }
    if (!wanted.path && (wanted.device || wanted.disk || wanted.model || wanted.seq_len != 0)) {
        return cli_fail(&command, CLI_REFUSED,
                        "--device, --disk, --model and --seq-len need --cluster");
    }
    if (wanted.path && threads != 0) {
        return cli_fail(&command, CLI_REFUSED,
                        "--threads does not go with --cluster, which uses all processors");
    }
    return wanted.path ? measure(&command, &wanted) : report(&command, threads);
}
