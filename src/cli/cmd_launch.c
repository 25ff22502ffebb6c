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
        return cli_fail(command, CLI_REFUSED, "no program to start is given; see --help");
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
        {"--hostfile", FLAG_TEXT, &o->hostfile, "FILE",
         "file with lines NAME slots=N (default: /job/hostfile)", 0},
        {"-H", FLAG_TEXT, &o->hostfile, "FILE", "same as --hostfile", 0},
        {"--include", FLAG_TEXT, &o->include, "FILTER",
         "use only these hosts or slots: NAME[:SLOT,..][@NAME..]", 0},
        {"-i", FLAG_TEXT, &o->include, "FILTER", "same as --include", 0},
        {"--exclude", FLAG_TEXT, &o->exclude, "FILTER",
         "use all but these hosts or slots, in the same form", 0},
        {"-e", FLAG_TEXT, &o->exclude, "FILTER", "same as --exclude", 0},
        {"--num-nodes", FLAG_INT, &o->num_nodes, "N",
         "number of hosts, from the first on (default: all)", 0},
        {"--num-ranks", FLAG_INT, &o->num_ranks, "N",
         "ranks per host (default: its slots; without a hostfile: 1)", 0},
        {"--num-gpus", FLAG_INT, &o->num_ranks, "N", "same as --num-ranks; DeepSpeed's name", 0},
        {"--num-accelerators", FLAG_INT, &o->num_ranks, "N", "same as --num-ranks", 0},
        CLI_HEADING("Starting and reaching ranks"),
        {"--launcher", FLAG_TEXT, &o->launcher, "NAME",
         "openmpi, mpich, slurm, pdsh or local (default: openmpi for several hosts, else local)",
         0},
        {"--launcher-args", FLAG_TEXT, &o->launcher_args, "WORDS",
         "words passed to mpirun, srun or pdsh", 0},
        {"--agent", FLAG_TEXT, &o->agent, "COMMAND",
         "command that reaches a host; runs as COMMAND HOST WORDS.. (default: ssh)", 0},
        {"--ssh-port", FLAG_INT, &o->ssh_port, "N", "ssh port of the hosts", 0},
        {"--master-addr", FLAG_TEXT, &o->master_addr, "HOST",
         "value of MASTER_ADDR (default: the first host)", 0},
        {"--master-port", FLAG_INT, &o->master_port, "N",
         "value of MASTER_PORT (default: a free port on this machine, else 29500)", 0},
        {"--export", FLAG_LIST, &run.exports, "NAME[=VALUE]", "variable set for all ranks", 0},
        CLI_HEADING("Processors"),
        {"--bind-cores", FLAG_BOOL, &o->bind_cores, NULL,
         "bind each rank to its share of the cores", 0},
        {"--bind-cores-to-rank", FLAG_BOOL, &o->bind_cores, NULL, "same as --bind-cores", 0},
        {"--bind-core-list", FLAG_TEXT, &o->bind_core_list, "LIST",
         "processors to bind to, such as 0-3,8", 0},
        CLI_HEADING("Failures and restarts"),
        {"--restarts", FLAG_INT, &o->restarts, "N",
         "number of restarts after failures (default: 0)", 0},
        {"--elastic", FLAG_BOOL, &o->elastic, NULL, "restart without the hosts that were lost", 0},
        {"--deadline", FLAG_REAL, &o->deadline_s, "S",
         "seconds of silence after which a rank is given up; 0 is never (default: 60)", 0},
        {"--grace", FLAG_REAL, &o->grace_s, "S",
         "seconds between SIGTERM and SIGKILL (default: 30)", 0},
        {"--link-addr", FLAG_TEXT, &o->link_addr, "HOST",
         "address at which ranks reach this machine", 0},
        CLI_HEADING("Special cases"),
        {"--dry-run", FLAG_BOOL, &run.dry_run, NULL, "print the command without starting it", 0},
        {"--force-multi", FLAG_BOOL, &o->force_multi, NULL,
         "use mpirun even for this machine alone", 0},
        {"--no-ssh", FLAG_BOOL, &o->no_ssh, NULL,
         "start only the ranks of this host, which --node-rank names; launch runs on each host "
         "by hand",
         0},
        {"--node-rank", FLAG_INT, &o->node_rank, "N",
         "number of this machine among the hosts, for --no-ssh", 0},
        {"--world", FLAG_TEXT, &o->world, "HOSTS",
         "hosts and slots instead of a hostfile: NAME:0,1/NAME:0", 0},
        {"--no-ssh-check", FLAG_BOOL, &run.nothing, NULL,
         "accepted for DeepSpeed's sake; ssh is never checked", 0},
        {"--no-python", FLAG_BOOL, &run.nothing, NULL,
         "accepted for DeepSpeed's sake; PROGRAM is never run by python", 0},
        {"--no-local-rank", FLAG_BOOL, &run.nothing, NULL,
         "accepted for DeepSpeed's sake; PROGRAM never gets a --local_rank", 0},
    };
    const struct command command = {
        "launch",
        "[OPTIONS] [--] PROGRAM [ARGS..]",
        "Starts PROGRAM once per slot: on this machine, or on hosts by mpirun, srun or pdsh.\n"
        "Options may be written with _ as in DeepSpeed's launcher. Each job has a secret that its "
        "ranks\n"
        "prove to each other; pdsh needs SPILLWAY_JOB_SECRET_FILE, a file with it on every host.",
        CLI_FLAGS(flags),
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
