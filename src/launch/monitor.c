// SPDX-License-Identifier: Apache-2.0
// The launcher's monitor. Ranks connect, prove that they belong to this job (report.c), send "at
// RANK STEP WHAT" every second, and at the end "bye RANK STATUS". If a connection breaks without a
// bye, the rank is gone. If it is open but silent, the rank is stopped or cut off. Anybody may
// connect. Without a proof a connection has no influence on verdicts, occupies one slot for a
// while, and cannot block the launcher.
#include "launch/private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SPARE_PEERS = 256,   /* besides one for each rank and host */
    ACCEPTS_A_TURN = 32, /* so that those who are here are heard between two of them */
    OWN_FILES = 48,      /* of the launcher, besides one for each rank and host */
    MOST_TOLD = 8,       /* lines about who was turned away */
    LISTENER = -1        /* in the place of a peer's number */
};

static const double hello_s = 10.0; /* from a connection to its proof */
static const double pause_s = 0.1;  /* of a listener that can take nobody */

struct peer {
    int fd;        /* -1: closed */
    bool is_known; /* a rank or the launcher of a host, as it has proved */
    struct reporter reporter;
    int64_t heard_ns, closed_ns, since_ns;
    char line[SW_LAUNCH_LINE_CAP];
    size_t len;
};

struct monitor {
    const struct job *job;
    FILE *log;
    int listener, epoll;
    bool paused, said_full; /* no descriptor for who connects */
    int64_t resume_ns, sweep_ns;
    struct peer *peers; /* [n] of [cap]; places of strangers that left are used again */
    int n, cap;
    int *by_rank; /* [job->n_ranks] a peer, or -1 */
    int n_turned_away;
};

/* ---- who connects ---- */

static void drop(struct monitor *m, struct peer *peer)
{
    epoll_ctl(m->epoll, EPOLL_CTL_DEL, peer->fd, NULL);
    close(peer->fd);
    peer->fd = -1;
    peer->closed_ns = sw_now_ns();
}

static struct peer *find_rank(const struct monitor *m, int rank)
{
    const bool there = rank >= 0 && rank < m->job->n_ranks && m->by_rank[rank] >= 0;
    return there ? &m->peers[m->by_rank[rank]] : NULL;
}

/* A rank that said goodbye, or broke off, may come again: a program may train twice. */
static const char *seat(struct monitor *m, struct peer *peer)
{
    const int number = peer->reporter.number;
    if (peer->reporter.is_node) {
        peer->is_known = number < m->job->hosts.n;
        return peer->is_known ? NULL : "there is no such host";
    }
    if (number >= m->job->n_ranks) {
        return "there is no such rank";
    }
    struct peer *before = find_rank(m, number);
    if (before && before->fd >= 0 && !before->reporter.bye) {
        return "that rank is already connected";
    }
    if (before && before->fd >= 0) {
        drop(m, before);
    }
    if (before) {
        before->is_known = false;
    }
    peer->is_known = true;
    m->by_rank[number] = (int)(peer - m->peers);
    return NULL;
}

/* Nothing of what it said is printed but a number. */
static void tell_turned_away(struct monitor *m, const struct peer *peer, const char *why)
{
    struct sockaddr_in from = {0};
    socklen_t len = sizeof from;
    char text[INET_ADDRSTRLEN] = "somewhere";
    m->n_turned_away++;
    if (m->n_turned_away > MOST_TOLD) {
        return;
    }
    if (getpeername(peer->fd, (struct sockaddr *)&from, &len) == 0) {
        inet_ntop(AF_INET, &from.sin_addr, text, sizeof text);
    }
    sw_launch_say(m->log, "turned away a connection from %s that claimed to be %s %d: %s%s", text,
                  peer->reporter.is_node ? "host" : "rank", peer->reporter.number, why,
                  m->n_turned_away == MOST_TOLD ? " (further ones are not reported)" : "");
}

/* false: no line of ours. */
static bool take_line(struct monitor *m, struct peer *peer, const char *line)
{
    char reply[SW_LAUNCH_LINE_CAP];
    uint8_t nonce[SW_NONCE_BYTES] = {0};
    if (peer->reporter.stage == REPORT_NEW && sw_draw_bytes(nonce, sizeof nonce) < 0) {
        return false;
    }
    const enum heard heard =
        sw_launch_report_take(&peer->reporter, &m->job->secret, line, nonce, reply);
    const char *why = heard == HEARD_PROOF      ? seat(m, peer)
                      : heard == HEARD_NO_PROOF ? "it does not prove the secret of this job"
                                                : NULL;
    if (why) {
        tell_turned_away(m, peer, why);
        return false;
    }
    const size_t len = strlen(reply); /* fits a new socket */
    return heard != HEARD_NO_SENSE &&
           (len == 0 || send(peer->fd, reply, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len);
}

static bool take_bytes(struct monitor *m, struct peer *peer)
{
    const size_t cap = sizeof peer->line;
    const ssize_t got = recv(peer->fd, peer->line + peer->len, cap - 1 - peer->len, 0);
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
    return peer->len < cap - 1 && !memchr(peer->line, '\0', peer->len);
}

/* A free place, or that of the stranger who has been here longest; -1: all are known. */
static int make_room(struct monitor *m)
{
    int oldest = -1;
    for (int i = 0; i < m->n; i++) {
        const struct peer *peer = &m->peers[i];
        if (!peer->is_known && peer->fd < 0) {
            return i;
        }
        if (!peer->is_known && (oldest < 0 || peer->since_ns < m->peers[oldest].since_ns)) {
            oldest = i;
        }
    }
    if (m->n < m->cap) {
        return m->n++;
    }
    if (oldest >= 0) {
        drop(m, &m->peers[oldest]);
    }
    return oldest;
}

static bool listen_to(const struct monitor *m, int fd, int i_peer)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i_peer};
    return epoll_ctl(m->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* A listener that is always ready and can take nobody would keep the launcher busy. */
static void pause_listening(struct monitor *m, int error)
{
    if (!m->said_full) {
        sw_launch_say(m->log, "connections cannot be accepted for now: %s", strerror(error));
    }
    m->said_full = m->paused = true;
    m->resume_ns = sw_now_ns() + (int64_t)(pause_s * 1e9);
    epoll_ctl(m->epoll, EPOLL_CTL_DEL, m->listener, NULL);
}

static void accept_some(struct monitor *m)
{
    for (int k = 0; k < ACCEPTS_A_TURN; k++) {
        const int fd = accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            pause_listening(m, errno);
            return;
        }
        if (fd < 0 && errno == EAGAIN) {
            return;
        }
        if (fd < 0) {
            continue;
        }
        const int i = make_room(m);
        if (i < 0 || !listen_to(m, fd, i)) {
            close(fd);
            continue;
        }
        const int64_t now = sw_now_ns();
        m->peers[i] = (struct peer){
            .fd = fd, .heard_ns = now, .since_ns = now, .reporter = {.step = -1, .number = -1}};
    }
}

static void keep_hours(struct monitor *m)
{
    const int64_t now = sw_now_ns();
    if (m->paused && now >= m->resume_ns) {
        m->paused = !listen_to(m, m->listener, LISTENER);
    }
    for (int i = 0; now >= m->sweep_ns && i < m->n; i++) {
        struct peer *peer = &m->peers[i];
        if (peer->fd >= 0 && !peer->is_known && (double)(now - peer->since_ns) > 1e9 * hello_s) {
            drop(m, peer);
        }
    }
    m->sweep_ns = now >= m->sweep_ns ? now + 1000000000 : m->sweep_ns;
}

void sw_launch_monitor_hear(struct monitor *m)
{
    struct epoll_event events[64];
    keep_hours(m);
    /* each peer once or so: who never stops talking must not be listened to for ever */
    for (int turn = 0; turn <= m->cap / (int)SW_LEN(events); turn++) {
        const int n = epoll_wait(m->epoll, events, (int)SW_LEN(events), 0);
        for (int i = 0; i < n; i++) {
            const int who = (int)events[i].data.u32;
            if (who == LISTENER) {
                accept_some(m);
            } else if (m->peers[who].fd >= 0 && !take_bytes(m, &m->peers[who])) {
                drop(m, &m->peers[who]);
            }
        }
        if (n < (int)SW_LEN(events)) {
            return;
        }
    }
}

/* ---- what follows from it ---- */

static bool is_silent(const struct peer *peer, double silent_s)
{
    return peer->fd >= 0 && !peer->reporter.bye && silent_s > 0 &&
           (double)(sw_now_ns() - peer->heard_ns) > 1e9 * silent_s;
}

void sw_launch_monitor_place(const struct monitor *m, int rank, char *out, size_t cap)
{
    const struct peer *peer = find_rank(m, rank);
    *out = '\0';
    if (peer && peer->reporter.step >= 0) {
        const struct reporter *r = &peer->reporter;
        snprintf(out, cap, "at step %lld%s%s", r->step, *r->what ? ", " : "", r->what);
    }
}

/* The host that the peer names, if the job has one of that name: srun has an order of its own. Else
 * the one where the launcher would put its number; hosts are also given by their addresses. */
static int host_of(const struct monitor *m, const struct peer *peer)
{
    char name[256];
    int local;
    if (sscanf(peer->reporter.hello, "%*s %*d %255s", name) == 1) {
        for (int i = 0; i < m->job->hosts.n; i++) {
            const char *host = sw_launch_without_user(m->job->hosts.items[i].name);
            if (sw_launch_same_host(host, name)) {
                return i;
            }
        }
    }
    return sw_launch_host_of(m->job, peer->reporter.number, &local);
}

static void write_verdict(const struct monitor *m, const struct peer *peer, bool silent,
                          struct verdict *out)
{
    char place[128];
    const int rank = peer->reporter.number;
    *out = (struct verdict){.rank = rank, .silent = silent, .found_ns = sw_now_ns()};
    out->i_host = host_of(m, peer);
    sw_launch_monitor_place(m, rank, place, sizeof place);
    const char *name = m->job->hosts.items[out->i_host].name;
    char how[96] = "is gone: its connection broke";
    if (silent) {
        snprintf(how, sizeof how, "has been silent for %.0f s: stopped, or cut off",
                 (double)(sw_now_ns() - peer->heard_ns) / 1e9);
    }
    snprintf(out->text, sizeof out->text, "rank %d (pid %ld) on %s %s%s%s", rank,
             peer->reporter.pid, name, how, *place ? "; last heard " : "", place);
}

bool sw_launch_monitor_judge(struct monitor *m, double silent_s, struct verdict *out)
{
    const struct peer *first = NULL;
    for (int r = 0; r < m->job->n_ranks; r++) {
        const struct peer *peer = find_rank(m, r);
        const bool gone = peer && peer->fd < 0 && !peer->reporter.bye;
        if (gone && (!first || peer->closed_ns < first->closed_ns)) {
            first = peer;
        }
    }
    for (int r = 0; r < m->job->n_ranks && !first; r++) {
        const struct peer *peer = find_rank(m, r);
        first = peer && is_silent(peer, silent_s) ? peer : NULL;
    }
    if (first) {
        write_verdict(m, first, first->fd >= 0, out);
    }
    return first != NULL;
}

bool sw_launch_monitor_all_left(const struct monitor *m, double for_s)
{
    int64_t last_ns = 0;
    for (int r = 0; r < m->job->n_ranks; r++) {
        const struct peer *peer = find_rank(m, r);
        if (!peer || !peer->reporter.bye) {
            return false;
        }
        last_ns = sw_max_i64(last_ns, peer->heard_ns);
    }
    return (double)(sw_now_ns() - last_ns) > 1e9 * for_s;
}

void sw_launch_monitor_silent_hosts(struct monitor *m, double silent_s, bool *lost)
{
    enum { SILENT = 1, OTHER = 2 };
    unsigned char *heard = sw_alloc_zero("launch", (size_t)m->job->hosts.n, sizeof *heard);
    for (int r = 0; r < m->job->n_ranks && heard; r++) {
        const struct peer *peer = find_rank(m, r);
        if (peer) {
            heard[host_of(m, peer)] |= is_silent(peer, silent_s) ? SILENT : OTHER;
        }
    }
    for (int i = 0; i < m->job->hosts.n && heard; i++) {
        lost[i] |= heard[i] == SILENT;
    }
    sw_free(heard);
}

/* ---- opening ---- */

/* The address of this machine on the way to a host; "" when it cannot be told. */
static void own_address(const char *host, char *out, size_t cap)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;
    *out = '\0';
    if (getaddrinfo(sw_launch_without_user(host), "9", &hints, &found) != 0) {
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
    if (m->listener < 0 || m->epoll < 0 ||
        bind(m->listener, (struct sockaddr *)&own, sizeof own) != 0 ||
        listen(m->listener, SOMAXCONN) != 0 ||
        getsockname(m->listener, (struct sockaddr *)&own, &len) != 0 ||
        !listen_to(m, m->listener, LISTENER)) {
        return SW_FAIL(SW_E_IO, "no port for the ranks to report to: %s", strerror(errno));
    }
    *out_port = ntohs(own.sin_port);
    return SW_OK;
}

sw_status sw_launch_monitor_open(const struct job *job, FILE *log, struct monitor **out,
                                 const char **out_address)
{
    char host[256];
    int port;
    sw_status st;
    struct monitor *m = sw_alloc_zero("launch", 1, sizeof *m);
    SW_TRY_ALLOC(m, "the monitor");
    m->job = job;
    m->log = log;
    m->listener = m->epoll = -1;
    m->cap = job->n_ranks + job->hosts.n + SPARE_PEERS;
    m->peers = sw_alloc_zero("launch", (size_t)m->cap, sizeof *m->peers);
    m->by_rank = sw_alloc("launch", (size_t)job->n_ranks * sizeof *m->by_rank);
    for (int r = 0; m->by_rank && r < job->n_ranks; r++) {
        m->by_rank[r] = -1;
    }
    choose_address(job, host, sizeof host);
    SW_TRY_OR(close_monitor, sw_allow_files((int64_t)job->n_ranks + job->hosts.n + OWN_FILES));
    SW_TRY_OR(close_monitor, listen_on(m, strcmp(host, "127.0.0.1") == 0, &port));
    *out_address = sw_arena_printf(job->arena, "%s:%d", host, port);
    if (!m->peers || !m->by_rank || !*out_address) {
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
    sw_free(m->by_rank);
    sw_free(m);
}
