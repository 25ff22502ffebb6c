// SPDX-License-Identifier: Apache-2.0
// Launching a program with many ranks, on this machine or on several hosts through mpirun, srun or
// pdsh. The launcher builds their command, starts it, watches it and may restart it. It is not a
// cluster manager.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* With only `program` set, one process is started on this machine. Strings are borrowed for the
 * call. */
struct sw_launch_options {
    const char *const *program; /* [n_program] the program and its arguments */
    int n_program;
    const char *self; /* path of the program `spillway`, for pdsh to start on each host */

    const char *hostfile; /* NULL: /job/hostfile if it exists, else only this machine */
    const char *world;    /* instead of a hostfile: "host:0,1/other:0" */
    const char *include, *exclude;
    int64_t num_nodes, num_ranks; /* number of hosts; ranks per host. 0 and -1: all */
    int64_t local_slots;          /* slots of this machine if there is no hostfile; 0: one */

    const char *launcher; /* openmpi, mpich, slurm, pdsh, local; NULL: chosen by the hosts */
    const char *launcher_args;
    const char *agent;       /* remote shell instead of ssh, called as: agent HOST COMMAND */
    const char *master_addr; /* NULL: the first host */
    int64_t master_port;     /* 0: 29500 */
    int64_t ssh_port;        /* 0: the default of ssh */
    bool force_multi;        /* use a multi-host launcher even if the only host is this machine */
    bool no_ssh;             /* launched by hand on each host: node_rank must be given */
    bool node_rank_given;    /* node_rank is set */
    int64_t node_rank;       /* index of this machine among the hosts */

    const char *const *exports; /* [n_exports] NAME=VALUE, or NAME to pass on its value */
    int n_exports;
    const char *const *environment; /* NULL-terminated; NULL: environment of this process */
    const char *home, *folder;      /* NULL: $HOME, the current folder */

    bool bind_cores;            /* bind each rank to its share of the cores */
    const char *bind_core_list; /* cores to share out, such as "0-3,8" */

    int64_t restarts;      /* maximum number of restarts after failures */
    bool elastic;          /* restart without the hosts that were lost */
    double deadline_s;     /* a rank that is silent this long has failed; 0: no limit */
    double grace_s;        /* time between SIGTERM and SIGKILL */
    const char *link_addr; /* address at which hosts reach this machine; NULL: detected */
};

/*
 * sw_launch_text - the command that would be run, quoted for a shell.
 *
 * out          the caller's: sw_text_free (spillway/status.h)
 *
 * SW_E_CONFIG  the request cannot be fulfilled
 * SW_E_FORMAT  a hostfile or an environment file is malformed
 */
SW_API sw_status sw_launch_text(const struct sw_launch_options *options, char **out);

/*
 * sw_launch_run - start the program and wait for it; if one rank fails, end the others.
 *
 * Forwards the signals INT, TERM and HUP. Blocks. Only one call at a time is allowed per process.
 *
 * log          gets one line per failure: which rank failed, and how; may be NULL
 * out_started  false if the request was refused before anything was started
 * out_exit     exit status of the program, or 128 + the signal that ended it
 */
SW_API sw_status sw_launch_run(const struct sw_launch_options *options, FILE *log,
                               bool *out_started, int *out_exit);

#ifdef __cplusplus
}
#endif
