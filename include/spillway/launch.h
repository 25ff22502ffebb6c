// SPDX-License-Identifier: Apache-2.0
// Starting a program on many places: on this machine, or on hosts through mpirun, srun or pdsh. It
// builds their command, starts it, watches it and may start it again; it is not a cluster manager.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All zero, with `program`, is one process on this machine. Texts are borrowed for the call. */
struct sw_launch_options {
    const char *const *program; /* [n_program] the program and its arguments */
    int n_program;
    const char *self; /* path of the program `spillway`, for pdsh to start on each host */

    const char *hostfile; /* NULL: /job/hostfile where it exists, else this machine alone */
    const char *world;    /* instead of a hostfile: "host:0,1/other:0" */
    const char *include, *exclude;
    int64_t num_nodes, num_ranks; /* first hosts; ranks a host. 0 and -1: all */
    int64_t local_slots;          /* of this machine where no hostfile says it; 0: one */

    const char *launcher; /* openmpi, mpich, slurm, pdsh, local; NULL: what the hosts need */
    const char *launcher_args;
    const char *agent;       /* how to reach a host, instead of ssh: agent HOST COMMAND */
    const char *master_addr; /* NULL: the first host */
    int64_t master_port;     /* 0: 29500 */
    int64_t ssh_port;        /* 0: ssh's own */
    bool force_multi;        /* a launcher for hosts, for one host that is this machine, too */
    bool no_ssh;             /* started by hand on each host: node_rank must be given */
    bool node_rank_given;    /* which host this machine is */
    int64_t node_rank;

    const char *const *exports; /* [n_exports] NAME=VALUE, or NAME with its value here */
    int n_exports;
    const char *const *environment; /* NULL-terminated; NULL: that of this process */
    const char *home, *folder;      /* NULL: $HOME, the current folder */

    bool bind_cores;            /* each rank to its share of the cores */
    const char *bind_core_list; /* "0-3,8": of these processors only */

    int64_t restarts;      /* after a failure, so many times */
    bool elastic;          /* at a restart without the hosts that were lost */
    double deadline_s;     /* of a rank that is silent; 0: never */
    double grace_s;        /* between SIGTERM and SIGKILL */
    const char *link_addr; /* address of this machine for the hosts; NULL: found out */
};

/*
 * sw_launch_text - the command, quoted for a shell, without running it.
 *
 * out          free with sw_text_free (spillway/config.h)
 *
 * SW_E_CONFIG  the request cannot be honoured
 * SW_E_FORMAT  a hostfile or an environment file
 */
SW_API sw_status sw_launch_text(const struct sw_launch_options *options, char **out);

/*
 * sw_launch_run - start it, watch it, end the rest when one part fails.
 *
 * Signals INT, TERM and HUP that come meanwhile are passed on. Blocks; one call at a time in a
 * process.
 *
 * log          who failed and how, a line each; may be NULL
 * out_started  false: refused before anything was started
 * out_exit     exit status: the program's, or 128 + the signal that ended it
 */
SW_API sw_status sw_launch_run(const struct sw_launch_options *options, FILE *log,
                               bool *out_started, int *out_exit);

#ifdef __cplusplus
}
#endif
