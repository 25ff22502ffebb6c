// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of launch: hosts and slots, lists of words, the job made from
// the options, its command, its processes and the monitor. All of it lives in one arena per job.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include "launch/launch.h"

/* ---- words.c: lists of words, and words between shells ---- */

struct words {
    char **items; /* [n], and a NULL after them once one was added */
    int n, cap;
};

sw_status sw_launch_add(struct sw_arena *arena, struct words *words, const char *word);
/* Adds "NAME=VALUE", or replaces the value of that name. */
sw_status sw_launch_set(struct sw_arena *arena, struct words *words, const char *name,
                        const char *value);
/* Value of "NAME=VALUE" in words, or NULL. */
const char *sw_launch_get(const struct words *words, const char *name);
/* Removes "NAME=..". */
void sw_launch_unset(struct words *words, const char *name);
/* Appends a word, quoted for a POSIX shell. */
void sw_launch_quote(struct sw_str *out, const char *word);
/* Splits text as a shell does: white space, '..', "..", \. `what` is for the message. */
sw_status sw_launch_split(struct sw_arena *arena, const char *what, const char *text,
                          struct words *out);
sw_status sw_launch_read_file(struct sw_arena *arena, const char *path, char **out);

/* ---- hostfile.c ---- */

enum { SW_LAUNCH_MAX_SLOTS = 1 << 20 };

struct host {
    char *name;
    int *slots; /* [n_slots] rising */
    int n_slots;
};

struct hosts {
    struct host *items;
    int n;
};

sw_status sw_launch_hosts_parse(struct sw_arena *arena, const char *name, const char *text,
                                struct hosts *out);
/* Parses a world such as "host:0,1/other:0", by which one launcher tells another its hosts. */
sw_status sw_launch_world_parse(struct sw_arena *arena, const char *text, struct hosts *out);
void sw_launch_world_write(const struct hosts *hosts, struct sw_str *out);
/* A host with slots 0 .. n_slots-1. */
sw_status sw_launch_host_init(struct sw_arena *arena, const char *name, int n_slots,
                              struct host *out);

/* ---- filter.c ---- */

/* Applies the filters; NULL and "" mean no filter. The order of hosts stays. */
sw_status sw_launch_filter(struct sw_arena *arena, const char *include, const char *exclude,
                           struct hosts *hosts);
sw_status sw_launch_count(struct sw_arena *arena, int64_t num_nodes, int64_t num_ranks,
                          struct hosts *hosts);

/* ---- environment.c ---- */

/* Environment of every rank: variables with certain prefixes, the environment files, --export. */
sw_status sw_launch_exports(struct sw_arena *arena, const struct sw_launch_options *options,
                            struct words *out);

/* Value of a variable in the launcher's own environment, or NULL. */
const char *sw_launch_own_value(const struct sw_launch_options *options, const char *name);

/* ---- job.c: options, resolved ---- */

enum launcher { LAUNCH_OPENMPI, LAUNCH_MPICH, LAUNCH_SLURM, LAUNCH_PDSH, LAUNCH_LOCAL };

struct job {
    const struct sw_launch_options *options;
    struct sw_arena *arena;
    enum launcher launcher;
    struct hosts hosts; /* none without a slot */
    bool hosts_given;   /* by a hostfile or a world */
    bool single_slots;  /* a filter picked slots that are not the first ones of a host */
    int n_ranks;
    int node; /* LOCAL: the host that is this machine */
    const char *master_addr;
    int master_port; /* 0: a free one, chosen when the job starts */
    struct words exports, launcher_args;
    const char *secret_text;     /* secret of the environment, kept out of command lines; or NULL */
    struct sw_job_secret secret; /* of this start; not known where nothing is started */
};

/* Makes a job from options. before: an earlier job without some hosts, whose hosts and launcher are
 * used; NULL: they come from the options. */
sw_status sw_launch_job_init(const struct sw_launch_options *options, struct sw_arena *arena,
                             const struct job *before, struct job *out);
const char *sw_launch_name(enum launcher launcher);
bool sw_launch_is_here(const char *host);
/* "user@host" -> "host"; a part of the argument */
const char *sw_launch_without_user(const char *host);
/* The same machine, one of the names without its domain. */
bool sw_launch_same_host(const char *a, const char *b);

/* ---- secret.c: the secret of a job, and how it gets to the ranks ---- */

/* Whether this launcher listens to its ranks itself. If not, the launcher that started it does, and
 * SPILLWAY_LAUNCH is its address. */
bool sw_launch_listens(const struct job *job);
/*
 * sw_launch_choose_secret - sets job->secret for one start: that of the environment, or a new one;
 * the id is new where this launcher can tell it to all ranks.
 *
 * draws        false: nothing is started; only what cannot travel is refused
 *
 * SW_E_CONFIG  it cannot get to all hosts without being seen
 */
sw_status sw_launch_choose_secret(struct job *job, bool draws);
/* Number of the first rank of a host. */
int sw_launch_first_rank(const struct job *job, int i_host);
/* Host of a rank; *out_local is its number there. */
int sw_launch_host_of(const struct job *job, int rank, int *out_local);

/* ---- command.c: a job as processes to start ---- */

struct command {
    struct words words;
    struct words added; /* to the environment of this process, "NAME=VALUE" */
    int rank;           /* -1: all of them */
};

struct commands {
    struct command *items;
    int n;
};

sw_status sw_launch_commands(const struct job *job, struct commands *out);
void sw_launch_commands_write(const struct commands *commands, struct sw_str *out);

/* ---- bind.c: shares of the cores ---- */

/* [n] CPU sets: the cores that this process may use, or the single CPUs that `list` names. */
sw_status sw_launch_cores(struct sw_arena *arena, const char *list, cpu_set_t **out, int *out_n);
/* The share of slot i of n. */
sw_status sw_launch_share(const cpu_set_t *cores, int n_cores, int i_slot, int n_slots,
                          cpu_set_t *out);

/* ---- report.c: the lines between a launcher and its ranks and host launchers ---- */

enum { SW_LAUNCH_LINE_CAP = 512 };

struct reporter {
    enum { REPORT_NEW, REPORT_GREETED, REPORT_PROVEN } stage;
    bool is_node; /* the launcher of a host; else a rank */
    int number;   /* as it says; of a host, of a rank */
    long pid;
    bool bye;
    int status;     /* that it said with it */
    long long step; /* -1: none yet */
    char what[64];
    char hello[SW_LAUNCH_LINE_CAP];
    uint8_t nonces[2][SW_NONCE_BYTES];
};

enum heard {
    HEARD_SENSE,
    HEARD_PROOF,    /* it has just proved that it belongs to this job */
    HEARD_NO_PROOF, /* its proof was wrong */
    HEARD_NO_SENSE
};

/* The launcher's side. nonce: fresh, for its answer to a hello. reply: a line to send, or "". */
enum heard sw_launch_report_take(struct reporter *reporter, const struct sw_job_secret *secret,
                                 const char *line, const uint8_t nonce[SW_NONCE_BYTES],
                                 char reply[SW_LAUNCH_LINE_CAP]);
/* The other side's first line, kind "hello" or "node", and its answer to the launcher's; false:
 * that is no launcher of this job. Lines without their end. */
void sw_launch_report_hello(const char *kind, int number, const char *host, long pid,
                            const uint8_t nonce[SW_NONCE_BYTES], char out[SW_LAUNCH_LINE_CAP]);
bool sw_launch_report_answer(const struct sw_job_secret *secret, const char *hello,
                             const uint8_t nonce[SW_NONCE_BYTES], const char *line,
                             char out[SW_LAUNCH_LINE_CAP]);

/* ---- monitor.c: listens to the ranks (launch.h, sw_launch_link_open) ---- */

struct monitor;

/* A rank without which the job cannot go on. */
struct verdict {
    int rank;
    int i_host;       /* of the job, or -1 */
    bool silent;      /* the connection is open but silent; false: the connection broke */
    int64_t found_ns; /* time of the verdict */
    char text[512];   /* the message */
};

/* *out_address: "host:port" for the ranks, in the job's arena. log: who was turned away; may be
 * NULL. */
sw_status sw_launch_monitor_open(const struct job *job, FILE *log, struct monitor **out,
                                 const char **out_address);
void sw_launch_monitor_close(struct monitor *monitor);
/* A descriptor that is readable when sw_launch_monitor_hear has work. */
int sw_launch_monitor_fd(const struct monitor *monitor);
/* Handles pending connections and lines, in bounded time. Call it every second. */
void sw_launch_monitor_hear(struct monitor *monitor);
/* Finds the first rank that is gone, or silent for silent_s (0: silence is not checked). */
bool sw_launch_monitor_judge(struct monitor *monitor, double silent_s, struct verdict *out);
/* Whether every rank said goodbye, and the last one did so at least for_s ago. */
bool sw_launch_monitor_all_left(const struct monitor *monitor, double for_s);
/* Marks the hosts on which all ranks that ever reported are silent. out [hosts.n]. */
void sw_launch_monitor_silent_hosts(struct monitor *monitor, double silent_s, bool *lost);
/* "at step 12, forward" of a rank, or "". */
void sw_launch_monitor_place(const struct monitor *monitor, int rank, char *out, size_t cap);

/* ---- link.c ---- */

/* Connects to "host:port". */
sw_status sw_launch_connect(const char *address, int *out_fd);
/* Connects, and both sides prove that they belong to the same job. */
sw_status sw_launch_introduce(const char *address, const struct sw_job_secret *secret,
                              const char *kind, int number, int *out_fd);

/* ---- processes.c: starting and ending ---- */

struct process {
    pid_t pid;
    int rank; /* -1: all */
    bool running;
    int status; /* of waitpid, when it no longer runs */
};

/*
 * sw_launch_spawn - start a process in its own group, so that signals also reach its children.
 *
 * cores        NULL: those of this process
 * mask         signals it starts with
 */
sw_status sw_launch_spawn(const struct job *job, const struct command *command,
                          const cpu_set_t *cores, const sigset_t *mask, struct process *out);
void sw_launch_signal(const struct process *process, int signal_number);
/* Returns true once, when the process has just ended. If it failed, or with sweep, the rest of its
 * group is killed. */
bool sw_launch_reap(struct process *process, bool sweep);
/* Exit status as a shell says it: 128 + the signal. */
int sw_launch_exit_of(int status);
/* "ended with status 3", "was ended by signal 9 (Killed)" */
void sw_launch_tell_status(int status, char *out, size_t cap);

/* ---- watch.c: from start to end ---- */

struct outcome {
    bool started;
    int exit;
    bool asked; /* a signal to the launcher */
};

/* Writes lines to log (may be NULL). monitor may be NULL. lost[i] is set where host i was silent
 * when the job failed, before its end made everybody so. */
sw_status sw_launch_watch(const struct job *job, const struct commands *commands,
                          struct monitor *monitor, FILE *log, bool *lost, struct outcome *out);
void sw_launch_say(FILE *log, const char *fmt, ...) SW_PRINTF(2, 3);

/* ---- lost.c ---- */

/* Sets lost[i] for hosts that the job's agent cannot reach. */
sw_status sw_launch_probe(const struct job *job, bool *lost);
