// SPDX-License-Identifier: Apache-2.0
// spillway launch - turns flags into a launch. The words from the first one that is no flag are the
// program.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "spillway/launch.h"

struct run {
    struct sw_launch_options o;
    struct words program, exports;
    bool dry_run, nothing;
    char self[4096];
};

/* Sets pointers into `run`, valid as long as it is. */
static void finish(struct run *run)
{
    const ssize_t len = readlink("/proc/self/exe", run->self, sizeof run->self - 1);
    run->o.self = len > 0 ? run->self : NULL;
    run->o.program = run->program.items;
    run->o.n_program = run->program.n;
    run->o.exports = run->exports.items;
    run->o.n_exports = run->exports.n;
    run->o.node_rank_given = run->o.node_rank >= 0;
}

static int refuse(const struct command *command, const struct run *run)
{
    const struct sw_launch_options *o = &run->o;
    if (run->program.n == 0) {
        return cli_fail(command, CLI_REFUSED, "wanted a program to start; see --help");
    }
    if (o->restarts < 0 || o->deadline_s < 0 || o->grace_s < 0) {
        return cli_fail(command, CLI_REFUSED,
                        "--restarts, --deadline and --grace must not be negative");
    }
    return -1;
}

static int start(const struct command *command, const struct run *run)
{
    if (run->dry_run) {
        char *text;
        if (sw_launch_text(&run->o, &text) < 0) {
            return cli_error(command, CLI_REFUSED);
        }
        fputs(text, stdout);
        sw_text_free(text);
        return CLI_DONE;
    }
    bool started = false;
    int status = CLI_FAILED;
    if (sw_launch_run(&run->o, stderr, &started, &status) < 0) {
        return cli_error(command, started ? CLI_FAILED : CLI_REFUSED);
    }
    return status;
}

int sw_cmd_launch(int argc, char **argv)
{
    struct run run = {
        .o = {.num_nodes = -1, .num_ranks = -1, .node_rank = -1, .deadline_s = 60, .grace_s = 30}};
    struct sw_launch_options *o = &run.o;
    const struct flag flags[] = {
        CLI_HEADING("Hosts and ranks"),
        {"--hostfile", FLAG_TEXT, &o->hostfile, "FILE", "lines NAME slots=N (/job/hostfile)", 0},
        {"-H", FLAG_TEXT, &o->hostfile, "FILE", "the same", 0},
        {"--include", FLAG_TEXT, &o->include, "FILTER", "only these: NAME[:SLOT,..][@NAME..]", 0},
        {"-i", FLAG_TEXT, &o->include, "FILTER", "the same", 0},
        {"--exclude", FLAG_TEXT, &o->exclude, "FILTER", "all but these", 0},
        {"-e", FLAG_TEXT, &o->exclude, "FILTER", "the same", 0},
        {"--num-nodes", FLAG_INT, &o->num_nodes, "N", "the first N hosts (all)", 0},
        {"--num-ranks", FLAG_INT, &o->num_ranks, "N", "ranks of each host (its slots; here: 1)", 0},
        {"--num-gpus", FLAG_INT, &o->num_ranks, "N", "the same, as DeepSpeed calls it", 0},
        {"--num-accelerators", FLAG_INT, &o->num_ranks, "N", "the same", 0},
        CLI_HEADING("Starting and reaching ranks"),
        {"--launcher", FLAG_TEXT, &o->launcher, "NAME",
         "openmpi, mpich, slurm, pdsh or local (by the hosts: openmpi or local)", 0},
        {"--launcher-args", FLAG_TEXT, &o->launcher_args, "WORDS", "for mpirun, srun or pdsh", 0},
        {"--agent", FLAG_TEXT, &o->agent, "COMMAND", "reaches a host: COMMAND HOST WORDS.. (ssh)",
         0},
        {"--ssh-port", FLAG_INT, &o->ssh_port, "N", "port of ssh on the hosts", 0},
        {"--master-addr", FLAG_TEXT, &o->master_addr, "HOST", "MASTER_ADDR (the first host)", 0},
        {"--master-port", FLAG_INT, &o->master_port, "N",
         "MASTER_PORT (a free one on this machine, else 29500)", 0},
        {"--export", FLAG_LIST, &run.exports, "NAME[=VALUE]", "a variable for all ranks", 0},
        CLI_HEADING("Processors"),
        {"--bind-cores", FLAG_BOOL, &o->bind_cores, NULL, "each rank to its share of the cores", 0},
        {"--bind-cores-to-rank", FLAG_BOOL, &o->bind_cores, NULL, "the same", 0},
        {"--bind-core-list", FLAG_TEXT, &o->bind_core_list, "LIST",
         "of these processors only: 0-3,8", 0},
        CLI_HEADING("Failures and restarts"),
        {"--restarts", FLAG_INT, &o->restarts, "N", "start again after a failure (0)", 0},
        {"--elastic", FLAG_BOOL, &o->elastic, NULL, "at a restart without the hosts lost", 0},
        {"--deadline", FLAG_REAL, &o->deadline_s, "S",
         "seconds of silence after which a rank is given up (60; 0: never)", 0},
        {"--grace", FLAG_REAL, &o->grace_s, "S", "seconds between SIGTERM and SIGKILL (30)", 0},
        {"--link-addr", FLAG_TEXT, &o->link_addr, "HOST", "this machine, for the ranks", 0},
        CLI_HEADING("Special cases"),
        {"--dry-run", FLAG_BOOL, &run.dry_run, NULL, "print the command, start nothing", 0},
        {"--force-multi", FLAG_BOOL, &o->force_multi, NULL, "mpirun for this machine alone, too",
         0},
        {"--no-ssh", FLAG_BOOL, &o->no_ssh, NULL, "started by hand on each host; --node-rank", 0},
        {"--node-rank", FLAG_INT, &o->node_rank, "N", "which host this machine is", 0},
        {"--world", FLAG_TEXT, &o->world, "HOSTS", "instead of a hostfile: NAME:0,1/NAME:0", 0},
        {"--no-ssh-check", FLAG_BOOL, &run.nothing, NULL, "always so", 0},
        {"--no-python", FLAG_BOOL, &run.nothing, NULL, "always so", 0},
        {"--no-local-rank", FLAG_BOOL, &run.nothing, NULL, "always so", 0},
    };
    const struct command command = {
        "launch",
        "[OPTIONS] [--] PROGRAM [ARGS..]",
        "Starts PROGRAM once a slot: on this machine, or on hosts by mpirun, srun or pdsh.\n"
        "Options may be written with _ as in DeepSpeed's launcher. Each job has a secret that its "
        "ranks\n"
        "prove to each other; pdsh wants SPILLWAY_JOB_SECRET_FILE, a file with it on every host.",
        flags,
        (int)(sizeof flags / sizeof flags[0]),
        "--num-gpus 4 spillway train --model org/name --data book.txt --output run --steps 500\n"
        "--hostfile hosts --launcher openmpi spillway train --model org/name --data book.txt "
        "--output run --steps 500\n"
        "--hostfile hosts --include node1:0,1 python train.py\n",
    };
    int status = cli_parse_program(&command, argc, argv, &run.program);
    finish(&run);
    if (status < 0) {
        status = refuse(&command, &run);
    }
    if (status < 0) {
        status = start(&command, &run);
    }
    cli_free_words(&run.program);
    cli_free_words(&run.exports);
    return status;
}
