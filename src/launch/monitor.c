// SPDX-License-Identifier: Apache-2.0
// The launcher's ear: ranks connect and send lines, "hello RANK HOST PID", every second "at RANK STEP
// WHAT", and "bye RANK STATUS". A connection that breaks without a bye is a rank that is gone; one that
// is there and says nothing is a rank that is stopped or cut off. Anybody may connect: what is no such
// line ends its connection and judges nobody.
#include "launch/private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE_CAP = 512, WORD_CAP = 64, SPARE_PEERS = 64 };

struct peer {
    int fd;   /* -1: closed */
    int rank; /* -1: has not said hello */
    bool bye;
    int status; /* that it said with it */
    char host[256];
    long pid;
    long long step; /* -1: none yet */
    char what[WORD_CAP];
    int64_t heard_ns, closed_ns;
    char line[LINE_CAP];
    size_t len;
};

struct monitor {
    const struct job *job;
    int listener, epoll;
    struct peer *peers; /* [n] of [cap]; places of strangers that left are used again */
    int n, cap;
};

/* ---- what peers say ---- */

static void drop(struct monitor *m, struct peer *peer)
{
    epoll_ctl(m->epoll, EPOLL_CTL_DEL, peer->fd, NULL);
    close(peer->fd);
    peer->fd = -1;
    peer->closed_ns = sw_now_ns();
}

static struct peer *find_rank(const struct monitor *m, int rank)
{
    for (int i = 0; i < m->n; i++) {
        if (m->peers[i].rank == rank) {
            return &m->peers[i];
        }
    }
    return NULL;
}

/* false: no line of ours. */
static bool take_line(struct monitor *m, struct peer *peer, const char *line)
{
    int rank = -1, status;
    long long step;
    if (sscanf(line, "hello %d %255s %ld", &rank, peer->host, &peer->pid) == 3) {
        const bool good =
            peer->rank < 0 && rank >= 0 && rank < m->job->n_ranks && !find_rank(m, rank);
        peer->rank = good ? rank : peer->rank;
        return good;
    }
    if (sscanf(line, "at %d %lld %63s", &rank, &step, peer->what) >= 2) {
        peer->step = step;
        return rank == peer->rank;
    }
    if (sscanf(line, "bye %d %d", &rank, &status) == 2) {
        peer->bye |= rank == peer->rank;
        peer->status = status;
        return rank == peer->rank;
    }
    return strncmp(line, "node ", 5) == 0; /* the launcher of a host: it only waits for our end */
}

static bool take_bytes(struct monitor *m, struct peer *peer)
{
    const ssize_t got = recv(peer->fd, peer->line + peer->len, LINE_CAP - 1 - peer->len, 0);
    if (got <= 0) {
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    peer->len += (size_t)got;
    peer->line[peer->len] = '\0';
    peer->heard_ns = sw_now_ns();
    char *end, *at = peer->line;
    while ((end = strchr(at, '\n'))) {
        *end = '\0';
        if (!take_line(m, peer, at)) {
            return false;
        }
        at = end + 1;
    }
    peer->len -= (size_t)(at - peer->line);
    memmove(peer->line, at, peer->len);
    return peer->len < LINE_CAP - 1 && !memchr(peer->line, '\0', peer->len);
}

static void accept_one(struct monitor *m)
{
    const int fd = accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    int i = 0;
    if (fd < 0) {
        return;
    }
    while (i < m->n && (m->peers[i].fd >= 0 || m->peers[i].rank >= 0)) {
        i++;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
    if (i == m->cap || epoll_ctl(m->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        close(fd);
        return;
    }
    m->peers[i] = (struct peer){.fd = fd, .rank = -1, .step = -1, .heard_ns = sw_now_ns()};
    m->n = i == m->n ? i + 1 : m->n;
}

void sw_launch_monitor_hear(struct monitor *m)
{
    struct epoll_event events[64];
    int n;
    while ((n = epoll_wait(m->epoll, events, (int)SW_LEN(events), 0)) > 0) {
        for (int i = 0; i < n; i++) {
            if (events[i].data.u32 == UINT32_MAX) {
                accept_one(m);
            } else if (m->peers[events[i].data.u32].fd >= 0 &&
                       !take_bytes(m, &m->peers[events[i].data.u32])) {
                drop(m, &m->peers[events[i].data.u32]);
            }
        }
    }
}

/* ---- what follows from it ---- */

static bool is_silent(const struct peer *peer, double silent_s)
{
    return peer->fd >= 0 && !peer->bye && silent_s > 0 &&
           (double)(sw_now_ns() - peer->heard_ns) > 1e9 * silent_s;
}

void sw_launch_monitor_place(const struct monitor *m, int rank, char *out, size_t cap)
{
    const struct peer *peer = find_rank(m, rank);
    *out = '\0';
    if (peer && peer->step >= 0) {
        snprintf(out, cap, "at step %lld%s%s", peer->step, *peer->what ? ", " : "", peer->what);
    }
}

static void write_verdict(const struct monitor *m, const struct peer *peer, bool silent,
                          struct verdict *out)
{
    int local;
    char place[128];
    *out = (struct verdict){.rank = peer->rank, .silent = silent, .found_ns = sw_now_ns()};
    out->i_host = sw_launch_host_of(m->job, peer->rank, &local);
    sw_launch_monitor_place(m, peer->rank, place, sizeof place);
    const char *name = m->job->hosts.items[out->i_host].name;
    char how[96] = "is gone: its connection broke";
    if (silent) {
        snprintf(how, sizeof how, "has been silent for %.0f s: stopped, or cut off",
                 (double)(sw_now_ns() - peer->heard_ns) / 1e9);
    }
    snprintf(out->text, sizeof out->text, "rank %d (pid %ld) on %s %s%s%s", peer->rank, peer->pid,
             name, how, *place ? "; last heard " : "", place);
}

bool sw_launch_monitor_judge(struct monitor *m, double silent_s, struct verdict *out)
{
    const struct peer *first = NULL;
    for (int i = 0; i < m->n; i++) {
        const struct peer *peer = &m->peers[i];
        const bool gone = peer->rank >= 0 && peer->fd < 0 && !peer->bye;
        if (gone && (!first || peer->closed_ns < first->closed_ns)) {
            first = peer;
        }
    }
    for (int i = 0; i < m->n && !first; i++) {
        const struct peer *peer = &m->peers[i];
        if (peer->rank >= 0 && is_silent(peer, silent_s)) {
            first = peer;
        }
    }
    if (first) {
        write_verdict(m, first, first->fd >= 0, out);
    }
    return first != NULL;
}

bool sw_launch_monitor_all_left(const struct monitor *m, double for_s, int *out_exit)
{
    int n = 0, exit = 0;
    int64_t last_ns = 0;
    for (int i = 0; i < m->n; i++) {
        const struct peer *peer = &m->peers[i];
        if (peer->rank >= 0 && peer->bye) {
            n++;
            exit = exit ? exit : peer->status;
            last_ns = sw_max_i64(last_ns, peer->heard_ns);
        }
    }
    *out_exit = exit;
    return n == m->job->n_ranks && for_s > 0 && (double)(sw_now_ns() - last_ns) > 1e9 * for_s;
}

void sw_launch_monitor_silent_hosts(struct monitor *m, double silent_s, bool *lost)
{
    for (int i = 0; i < m->job->hosts.n; i++) {
        const int first = sw_launch_first_rank(m->job, i);
        int n_silent = 0, n_other = 0;
        for (int k = 0; k < m->job->hosts.items[i].n_slots; k++) {
            const struct peer *peer = find_rank(m, first + k);
            n_silent += peer && is_silent(peer, silent_s);
            n_other += peer && !is_silent(peer, silent_s);
        }
        lost[i] |= n_silent > 0 && n_other == 0;
    }
}

/* ---- opening ---- */

/* The address of this machine on the way to a host; "" when it cannot be told. */
static void own_address(const char *host, char *out, size_t cap)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;
    const char *at = strrchr(host, '@');
    *out = '\0';
    if (getaddrinfo(at ? at + 1 : host, "9", &hints, &found) != 0) {
        return;
    }
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in own = {0};
    socklen_t len = sizeof own;
    if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
        getsockname(fd, (struct sockaddr *)&own, &len) == 0) {
        inet_ntop(AF_INET, &own.sin_addr, out, (socklen_t)cap);
    }
    if (fd >= 0) {
        close(fd);
    }
    freeaddrinfo(found);
}

static bool all_here(const struct job *job)
{
    for (int i = 0; i < job->hosts.n; i++) {
        if (!sw_launch_is_here(job->hosts.items[i].name)) {
            return false;
        }
    }
    return true;
}

static void choose_address(const struct job *job, char *out, size_t cap)
{
    *out = '\0';
    if (job->options->link_addr) {
        snprintf(out, cap, "%s", job->options->link_addr);
        return;
    }
    if (all_here(job)) {
        snprintf(out, cap, "127.0.0.1");
        return;
    }
    for (int i = 0; i < job->hosts.n && !*out; i++) {
        if (!sw_launch_is_here(job->hosts.items[i].name)) {
            own_address(job->hosts.items[i].name, out, cap);
        }
    }
    if (!*out && gethostname(out, cap - 1) != 0) {
        *out = '\0';
    }
}

static sw_status listen_on(struct monitor *m, bool here_only, int *out_port)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t len = sizeof own;
    own.sin_addr.s_addr = htonl(here_only ? INADDR_LOOPBACK : INADDR_ANY);
    m->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = UINT32_MAX};
    if (m->listener < 0 || m->epoll < 0 ||
        bind(m->listener, (struct sockaddr *)&own, sizeof own) != 0 ||
        listen(m->listener, 1024) != 0 ||
        getsockname(m->listener, (struct sockaddr *)&own, &len) != 0 ||
        epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->listener, &event) != 0) {
        return SW_FAIL(SW_E_IO, "no port for the ranks to report to: %s", strerror(errno));
    }
    *out_port = ntohs(own.sin_port);
    return SW_OK;
}

sw_status sw_launch_monitor_open(const struct job *job, struct monitor **out,
                                 const char **out_address)
{
    char host[256];
    int port;
    sw_status st;
    struct monitor *m = sw_alloc_zero("launch", 1, sizeof *m);
    SW_TRY_ALLOC(m, "the monitor");
    m->job = job;
    m->listener = m->epoll = -1;
    m->cap = job->n_ranks + job->hosts.n + SPARE_PEERS;
    m->peers = sw_alloc_zero("launch", (size_t)m->cap, sizeof *m->peers);
    choose_address(job, host, sizeof host);
    SW_TRY_OR(close_monitor, listen_on(m, strcmp(host, "127.0.0.1") == 0, &port));
    *out_address = sw_arena_printf(job->arena, "%s:%d", host, port);
    if (!m->peers || !*out_address) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the monitor");
        goto close_monitor;
    }
    *out = m;
    return SW_OK;
close_monitor:
    sw_launch_monitor_close(m);
    return st;
}

int sw_launch_monitor_fd(const struct monitor *m)
{
    return m->epoll;
}

void sw_launch_monitor_close(struct monitor *m)
{
    if (!m) {
        return;
    }
    for (int i = 0; m->peers && i < m->n; i++) {
        if (m->peers[i].fd >= 0) {
            close(m->peers[i].fd);
        }
    }
    if (m->listener >= 0) {
        close(m->listener);
    }
    if (m->epoll >= 0) {
        close(m->epoll);
    }
    sw_free(m->peers);
    sw_free(m);
}
