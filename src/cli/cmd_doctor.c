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

/* Prints the mesh of a configuration. */
static int show_mesh(const struct command *command, const struct sw_engine_config *config,
                     int64_t ranks)
{
    char *text = NULL;
    if (ranks > INT_MAX) {
        return cli_fail(command, CLI_REFUSED, "--ranks: wanted at most %d", INT_MAX);
    }
    const sw_status st = sw_doctor_mesh_text(config, (int)ranks, &text);
    printf("%s", st >= 0 ? text : "");
    sw_text_free(text);
    return st >= 0
               ? CLI_DONE
               : cli_error(command, st == SW_E_CONFIG || st == SW_E_ARG ? CLI_REFUSED : CLI_FAILED);
}

static bool asks_for_mesh(const struct sw_engine_config *config, int64_t ranks)
{
    return config->path || config->n_sets > 0 || ranks > 0;
}

static int check(const struct command *command, const struct sw_doctor_cluster *wanted,
                 const struct sw_engine_config *config, int64_t threads, int64_t ranks)
{
    const bool mesh = asks_for_mesh(config, ranks);
    if (!wanted->path &&
        (wanted->device || wanted->disk || wanted->model || wanted->seq_len != 0)) {
        return cli_fail(command, CLI_REFUSED,
                        "--device, --disk, --model and --seq-len need --cluster");
    }
    if (wanted->path && threads != 0) {
        return cli_fail(command, CLI_REFUSED,
                        "--threads does not go with --cluster, which uses all processors");
    }
    if (mesh && (wanted->path || threads != 0)) {
        return cli_fail(command, CLI_REFUSED,
                        "--deepspeed, --set and --ranks print a mesh and go with no other option");
    }
    return -1;
}

int sw_cmd_doctor(int argc, char **argv)
{
    int64_t threads = 0, ranks = 0;
    struct sw_engine_config config = {0};
    struct words sets = {0};
    struct sw_doctor_cluster wanted = {0};
    const struct flag flags[] = {
        {"--threads", FLAG_INT, &threads, "N", "number of threads to measure with (default: all)",
         0},
        {"--deepspeed", FLAG_TEXT, &config.path, "FILE",
         "print the mesh of a configuration, on --ranks or on the ranks of a started job, with "
         "their hosts",
         0},
        {"--set", FLAG_LIST, &sets, "KEY=VALUE", "edit that configuration; may be repeated", 0},
        {"--ranks", FLAG_INT, &ranks, "N", "ranks of that mesh (default: those that were started)",
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
        "[--threads N | --deepspeed FILE [--ranks N] | --cluster FILE]",
        "Prints the libraries found and measured rates of this processor.",
        flags,
        sizeof flags / sizeof *flags,
        "\n"
        "--threads 1\n"
        "--cluster here.json --disk /tmp\n"};
    int status = cli_parse(&command, argc, argv, NULL);
    config.sets = sets.items;
    config.n_sets = sets.n;
    status = status < 0 ? check(&command, &wanted, &config, threads, ranks) : status;
    if (status < 0) {
        status = wanted.path                     ? measure(&command, &wanted)
                 : asks_for_mesh(&config, ranks) ? show_mesh(&command, &config, ranks)
                                                 : report(&command, threads);
    }
    cli_free_words(&sets);
    return status;
}
