// SPDX-License-Identifier: Apache-2.0
// Options into a job: which hosts and slots, which launcher, what the ranks are told. Everything
// that can be refused without starting a process is refused here.
#include "launch/private.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char *const names[] = {"openmpi", "mpich", "slurm", "pdsh", "local"};
static const char default_hostfile[] = "/job/hostfile";
enum { DEFAULT_PORT = 29500 };

const char *sw_launch_name(enum launcher launcher)
{
    return names[launcher];
}

bool sw_launch_same_host(const char *a, const char *b)
{
    const size_t len_a = strcspn(a, "."), len_b = strcspn(b, ".");
    return strcasecmp(a, b) == 0 ||
           ((!a[len_a] || !b[len_b]) && len_a == len_b && strncasecmp(a, b, len_a) == 0);
}

static bool same_address(const struct sockaddr *own, const char *text)
{
    char buffer[INET6_ADDRSTRLEN] = "";
    if (own && own->sa_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)own)->sin_addr, buffer,
                  sizeof buffer);
    } else if (own && own->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)own)->sin6_addr, buffer,
                  sizeof buffer);
    }
    return *buffer && strcmp(buffer, text) == 0;
}

const char *sw_launch_without_user(const char *host)
{
    const char *at = strrchr(host, '@');
    return at ? at + 1 : host;
}

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0;
}

/* No name server is asked, because one that does not answer would delay every start. */
bool sw_launch_is_here(const char *host)
{
    char own[HOST_NAME_MAX + 1] = "";
    host = sw_launch_without_user(host);
    if (is_loopback(host)) {
        return true;
    }
    if (gethostname(own, sizeof own - 1) == 0 && sw_launch_same_host(host, own)) {
        return true;
    }
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) == 0) {
        for (const struct ifaddrs *each = all; each && !found; each = each->ifa_next) {
            found = same_address(each->ifa_addr, host);
        }
        freeifaddrs(all);
    }
    return found;
}

static sw_status read_hosts(struct job *job)
{
    const struct sw_launch_options *o = job->options;
    const char *path = o->hostfile;
    if (o->world) {
        job->hosts_given = true;
        return sw_launch_world_parse(job->arena, o->world, &job->hosts);
    }
    if (!path && access(default_hostfile, F_OK) == 0) {
        path = default_hostfile;
    }
    if (path) {
        char *text;
        job->hosts_given = true;
        SW_TRY(sw_launch_read_file(job->arena, path, &text));
        return sw_launch_hosts_parse(job->arena, path, text, &job->hosts);
    }
    if (o->num_nodes > 1) {
        return SW_FAIL(SW_E_CONFIG, "--num-nodes %lld: wanted a --hostfile, got none",
                       (long long)o->num_nodes);
    }
    job->hosts.items = sw_arena_array(job->arena, 1, sizeof *job->hosts.items);
    SW_TRY_ALLOC(job->hosts.items, "the hosts");
    job->hosts.n = 1;
    const int64_t slots = o->local_slots > 0 ? o->local_slots : 1;
    return sw_launch_host_init(job->arena, "localhost", (int)sw_min_i64(slots, SW_LAUNCH_MAX_SLOTS),
                               &job->hosts.items[0]);
}

static sw_status select_hosts(struct job *job)
{
    const struct sw_launch_options *o = job->options;
    const bool filtered = (o->include && *o->include) || (o->exclude && *o->exclude);
    if (filtered && (o->num_nodes > 0 || o->num_ranks > 0)) {
        return SW_FAIL(SW_E_CONFIG, "wanted --num-nodes and --num-ranks, or a filter, got both");
    }
    SW_TRY(sw_launch_filter(job->arena, o->include, o->exclude, &job->hosts));
    return sw_launch_count(job->arena, o->num_nodes, o->num_ranks, &job->hosts);
}

/* Without hosts that have no slot. */
static sw_status choose_hosts(struct job *job)
{
    struct hosts *hosts = &job->hosts;
    int n = 0;
    int64_t n_ranks = 0;
    for (int i = 0; i < hosts->n; i++) {
        const struct host *host = &hosts->items[i];
        if (host->n_slots > 0) {
            job->single_slots |= host->slots[host->n_slots - 1] != host->n_slots - 1;
            n_ranks += host->n_slots;
            hosts->items[n++] = *host;
        }
    }
    hosts->n = n;
    if (n_ranks == 0 || n_ranks > INT_MAX) {
        return SW_FAIL(SW_E_CONFIG, "wanted a slot for at least one rank, got %lld on %d hosts",
                       (long long)n_ranks, n);
    }
    job->n_ranks = (int)n_ranks;
    return SW_OK;
}

static sw_status choose_launcher(struct job *job)
{
    const struct sw_launch_options *o = job->options;
    if (o->node_rank_given && !o->launcher) {
        job->launcher = LAUNCH_LOCAL;
        return SW_OK;
    }
    if (!o->launcher) {
        const bool here = job->hosts.n == 1 && sw_launch_is_here(job->hosts.items[0].name);
        job->launcher = here && !o->force_multi ? LAUNCH_LOCAL : LAUNCH_OPENMPI;
        return SW_OK;
    }
    for (size_t i = 0; i < SW_LEN(names); i++) {
        if (strcasecmp(o->launcher, names[i]) == 0) {
            job->launcher = (enum launcher)i;
            return SW_OK;
        }
    }
    return SW_FAIL(SW_E_CONFIG, "--launcher: wanted openmpi, mpich, slurm, pdsh or local, got %s",
                   o->launcher);
}

static sw_status check_node(struct job *job)
{
    const struct sw_launch_options *o = job->options;
    if (o->no_ssh && !o->node_rank_given) {
        return SW_FAIL(SW_E_CONFIG, "--no-ssh: wanted --node-rank, the number of this host");
    }
    if (job->launcher != LAUNCH_LOCAL && o->node_rank_given) {
        return SW_FAIL(SW_E_CONFIG, "--node-rank: wanted --launcher local, got %s",
                       sw_launch_name(job->launcher));
    }
    if (job->launcher == LAUNCH_LOCAL && job->hosts.n > 1 && !o->node_rank_given) {
        return SW_FAIL(SW_E_CONFIG,
                       "--launcher local: wanted one host, or the --node-rank of this machine, got "
                       "%d hosts",
                       job->hosts.n);
    }
    if (o->node_rank_given && (o->node_rank < 0 || o->node_rank >= job->hosts.n)) {
        return SW_FAIL(SW_E_CONFIG, "--node-rank: wanted 0 to %d, got %lld", job->hosts.n - 1,
                       (long long)o->node_rank);
    }
    job->node = o->node_rank_given ? (int)o->node_rank : 0;
    return SW_OK;
}

/* Names become words of commands, here and on hosts: none may be an option or anything else but a
 * name. */
static sw_status check_host(const char *host)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-";
    char plain[256];
    bool good = *host && !host[strspn(host, letters)];
    for (const char *part = host; good && part;) { /* "user@host": no part is empty, or an option */
        const char *at = strchr(part, '@');
        good = *part && *part != '-' && at != part;
        part = at ? at + 1 : NULL;
    }
    return good ? SW_OK
                : SW_FAIL(
                      SW_E_CONFIG,
                      "wanted a host name of letters, digits and . _ @ -, without - at the start "
                      "or after @; got \"%s\"",
                      sw_plain_words(host, plain, sizeof plain));
}

/* Refuses options that a launcher cannot honour, because it would silently do something else. */
static sw_status check_launcher(const struct job *job)
{
    const struct sw_launch_options *o = job->options;
    const char *name = sw_launch_name(job->launcher);
    const bool by_mpi = job->launcher != LAUNCH_LOCAL && job->launcher != LAUNCH_PDSH;
    if (by_mpi && job->single_slots) {
        return SW_FAIL(SW_E_CONFIG, "--launcher %s: cannot pick single slots, only their number",
                       name);
    }
    if (by_mpi && (o->bind_cores || o->bind_core_list)) {
        return SW_FAIL(SW_E_CONFIG,
                       "--bind-cores: %s binds its processes itself; use --launcher-args", name);
    }
    if (o->agent && job->launcher != LAUNCH_OPENMPI && job->launcher != LAUNCH_MPICH) {
        return SW_FAIL(SW_E_CONFIG, "--agent: wanted --launcher openmpi or mpich, got %s", name);
    }
    if (o->ssh_port && job->launcher != LAUNCH_OPENMPI && job->launcher != LAUNCH_PDSH) {
        return SW_FAIL(SW_E_CONFIG, "--ssh-port: wanted --launcher openmpi or pdsh, got %s", name);
    }
    for (int i = 0; i < job->hosts.n; i++) {
        const char *host = job->hosts.items[i].name;
        SW_TRY(check_host(host));
    }
    return SW_OK;
}

/* Whether a host is another machine. */
static bool has_others(const struct job *job)
{
    for (int i = 1; i < job->hosts.n; i++) {
        if (!is_loopback(sw_launch_without_user(job->hosts.items[i].name))) {
            return true;
        }
    }
    return false;
}

static sw_status set_master(struct job *job)
{
    const struct sw_launch_options *o = job->options;
    if (o->master_port < 0 || o->master_port > 65535) {
        return SW_FAIL(SW_E_CONFIG, "--master-port: wanted 1 to 65535, got %lld",
                       (long long)o->master_port);
    }
    const bool alone = job->launcher == LAUNCH_LOCAL && !o->node_rank_given;
    job->master_port = o->master_port ? (int)o->master_port : alone ? 0 : DEFAULT_PORT;
    job->master_addr = job->launcher == LAUNCH_LOCAL && job->hosts.n == 1
                           ? "127.0.0.1"
                           : sw_launch_without_user(job->hosts.items[0].name);
    if (o->master_addr && *o->master_addr) {
        job->master_addr = o->master_addr;
        return SW_OK;
    }
    const bool tells = job->launcher == LAUNCH_LOCAL || job->launcher == LAUNCH_PDSH;
    if (tells && has_others(job) && is_loopback(job->master_addr)) {
        return SW_FAIL(SW_E_CONFIG,
                       "%s is the first of %d hosts, and each takes that name for itself; give the "
                       "name of this machine in its place, or --master-addr",
                       job->master_addr, job->hosts.n);
    }
    return SW_OK;
}

sw_status sw_launch_job_init(const struct sw_launch_options *options, struct sw_arena *arena,
                             const struct job *before, struct job *out)
{
    struct job job = {.options = options, .arena = arena};
    if (options->n_program < 1) {
        return SW_FAIL(SW_E_CONFIG, "wanted a program to start, got none");
    }
    if (before) {
        job.hosts = before->hosts;
        job.hosts_given = before->hosts_given;
        job.launcher = before->launcher;
    } else {
        SW_TRY(read_hosts(&job));
        SW_TRY(select_hosts(&job));
    }
    SW_TRY(choose_hosts(&job));
    if (!before) {
        SW_TRY(choose_launcher(&job));
    }
    SW_TRY(check_node(&job));
    SW_TRY(check_launcher(&job));
    SW_TRY(set_master(&job));
    SW_TRY(sw_launch_exports(arena, options, &job.exports));
    job.secret_text = sw_launch_get(&job.exports, "SPILLWAY_JOB_SECRET");
    sw_launch_unset(&job.exports, "SPILLWAY_JOB_SECRET");
    SW_TRY(sw_launch_split(arena, "--launcher-args",
                           options->launcher_args ? options->launcher_args : "",
                           &job.launcher_args));
    if (job.launcher == LAUNCH_LOCAL && job.launcher_args.n > 0) {
        return SW_FAIL(
            SW_E_CONFIG,
            "--launcher-args: --launcher local starts no other launcher; leave them out");
    }
    *out = job;
    return SW_OK;
}

int sw_launch_first_rank(const struct job *job, int i_host)
{
    int rank = 0;
    for (int i = 0; i < i_host; i++) {
        rank += job->hosts.items[i].n_slots;
    }
    return rank;
}

int sw_launch_host_of(const struct job *job, int rank, int *out_local)
{
    for (int i = 0; i < job->hosts.n; i++) {
        if (rank < job->hosts.items[i].n_slots) {
            *out_local = rank;
            return i;
        }
        rank -= job->hosts.items[i].n_slots;
    }
    return -1;
}
