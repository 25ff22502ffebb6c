// SPDX-License-Identifier: Apache-2.0
// Rendezvous of the ranks. Rank 0 listens at an address that all know. The others tell it where
// they listen, get the list of all addresses, and connect to the ranks before them. Anybody may
// connect: unproven connections (hello.c) are served concurrently, and a stranger is turned away
// without affecting others. Invariant: only a rank of this job can end a rendezvous or make it
// wait.
//
// Members of a group are connected already. They tell each other where they listen, and connect in
// the same way.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/tcp/tcp.h"

enum {
    SPARE_NEWCOMERS = 256, /* in addition to one per rank */
    ACCEPTS_A_TURN = 32,   /* so that present connections are served in between */
    MOST_TOLD = 8          /* log lines about rejected connections */
};

static const double hello_s = 10.0;      /* limit from a connection to its proof */
static const double one_of_many_s = 3.0; /* limit of an attempt if the host has more addresses */
static const double pause_s = 0.1; /* pause of a listener that cannot accept more connections */

struct place { /* address of a rank, as seen by rank 0 */
    uint16_t family, port;
    uint32_t scope;
    uint8_t address[16];
    char host[SW_TCP_HOST_CAP];
};

struct newcomer { /* a connection without a proof so far */
    int fd;       /* -1 = free place */
    double since;
    bool greeted;
    size_t done; /* bytes received of the expected message */
    union {
        struct sw_tcp_greeting greeting;
        struct sw_tcp_answer answer;
    } in;
    struct sw_tcp_hello hello;
    struct sockaddr_storage from;
};

struct meeting {
    const struct sw_tcp_options *o; /* of a group: rank and size are in the group */
    const char *const *names;       /* [size] of the ranks; NULL = "rank N" */
    bool gathers;                   /* rank 0, from which the others get all addresses */
    struct sw_tcp_self self;
    bool loopback; /* listens on loopback only */
    double until, paused_until;
    int listener;
    int *fds;
    struct place *places;       /* [size] */
    struct newcomer *newcomers; /* [n_newcomers] */
    /* [1 + n_newcomers + size] the listener, then open connections only, since the system limits
     * the array to the number of files */
    struct pollfd *polls;
    int *watched; /* by entry of polls: a newcomer's index, or n_newcomers + rank */
    int n_polls;
    int n_newcomers, n_turned_away;
    bool said_full;
    char last_offloaded[256];
};

static sw_status failed(const char *what, const char *host, int port)
{
    return SW_FAIL(SW_E_IO, "%s %s:%d: %s", what, host, port, strerror(errno));
}

static const char *name_of(const struct meeting *m, int rank, char scratch[SW_RANK_TEXT])
{
    return sw_comm_rank_text(m->names, rank, scratch);
}

static int ms_until(double until)
{
    const double left = until - sw_now_s();
    return left > 0 ? (int)(left * 1000) + 1 : 0;
}

/* Waits for one of the events; false = timeout. */
static bool wait_for(double until, int fd, short events)
{
    struct pollfd p = {fd, events, 0};
    int n;
    do {
        n = poll(&p, 1, ms_until(until));
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

static bool transfer(double until, int fd, void *data, size_t bytes, bool sends)
{
    size_t done = 0;
    while (done < bytes) {
        if (!wait_for(until, fd, sends ? POLLOUT : POLLIN)) {
            errno = ETIMEDOUT;
            return false;
        }
        const ssize_t n = sends ? send(fd, (char *)data + done, bytes - done, MSG_NOSIGNAL)
                                : recv(fd, (char *)data + done, bytes - done, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            errno = n == 0 ? ECONNRESET : errno;
            return false;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static void prepare(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* ---- addresses ---- */

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)a;
        return ntohl(four->sin_addr.s_addr) >> 24 == 127;
    }
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    return a->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127));
}

static sw_status resolve(const struct meeting *m, struct addrinfo **out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    char port[16];
    snprintf(port, sizeof port, "%d", m->o->port);
    const int error = getaddrinfo(m->o->host, port, &hints, out);
    return error ? SW_FAIL(SW_E_IO, "rank 0 at %s:%d: %s", m->o->host, m->o->port,
                           gai_strerror(error))
                 : SW_OK;
}

/* A name may mean different addresses on different machines: on the machine itself many names are
 * loopback. */
static bool is_loopback_by_name(const char *host, const struct addrinfo *found)
{
    const bool number = strspn(host, "0123456789.") == strlen(host) || strchr(host, ':');
    return strcasecmp(host, "localhost") == 0 || (number && is_loopback(found->ai_addr));
}

/* Without a secret, ranks cannot be told from strangers, so only loopback is allowed. */
static sw_status choose_reach(struct meeting *m, const struct addrinfo *found)
{
    m->loopback = is_loopback_by_name(m->o->host, found);
    for (const struct addrinfo *a = found; a && !m->self.secret.known; a = a->ai_next) {
        if (!is_loopback(a->ai_addr)) {
            return SW_FAIL(
                SW_E_CONFIG,
                "rank %d: rank 0 is at %s, which is no loopback address: ranks that share "
                "no secret (SPILLWAY_JOB_SECRET) meet on the loopback of one machine only",
                m->o->rank, m->o->host);
        }
        m->loopback = true;
    }
    return SW_OK;
}

static struct place place_of(const struct sockaddr_storage *a, uint32_t port)
{
    struct place place = {.family = 4, .port = (uint16_t)port};
    if (a->ss_family == AF_INET) {
        memcpy(place.address, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
        return place;
    }
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)a;
    if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        memcpy(place.address, six->sin6_addr.s6_addr + 12, 4);
        return place;
    }
    place.family = 6;
    place.scope = six->sin6_scope_id;
    memcpy(place.address, &six->sin6_addr, 16);
    return place;
}

static socklen_t address_of(const struct place *place, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (place->family == 4) {
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(place->port)};
        memcpy(&four.sin_addr, place->address, 4);
        memcpy(out, &four, sizeof four);
        return sizeof four;
    }
    struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons(place->port), .sin6_scope_id = place->scope};
    memcpy(&six.sin6_addr, place->address, 16);
    memcpy(out, &six, sizeof six);
    return sizeof six;
}

/* ---- listening ---- */

static bool listen_on(struct meeting *m, const struct sockaddr *address, socklen_t len)
{
    const int on = 1, off = 0;
    m->listener = socket(address->sa_family, SOCK_STREAM, 0);
    if (m->listener < 0) {
        return false;
    }
    setsockopt(m->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6) {
        setsockopt(m->listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    prepare(m->listener);
    if (bind(m->listener, address, len) == 0 && listen(m->listener, SOMAXCONN) == 0) {
        return true;
    }
    const int error = errno;
    close(m->listener);
    m->listener = -1;
    errno = error;
    return false;
}

/* Listens at all addresses of this machine; IPv6 may be unavailable. port 0: any */
static bool listen_everywhere(struct meeting *m, int port)
{
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return listen_on(m, (const struct sockaddr *)(const void *)&six, sizeof six) ||
           listen_on(m, (const struct sockaddr *)(const void *)&four, sizeof four);
}

/* Rank 0 listens at all addresses of this machine, or at the loopback address that the others
 * use. */
static sw_status listen_first(struct meeting *m, const struct addrinfo *found)
{
    bool good = false;
    if (!m->loopback) {
        good = listen_everywhere(m, m->o->port);
        return good ? SW_OK : failed("listening at", "any address", m->o->port);
    }
    for (const struct addrinfo *a = found; a && !good; a = a->ai_next) {
        good = listen_on(m, a->ai_addr, a->ai_addrlen);
    }
    return good ? SW_OK : failed("listening at", m->o->host, m->o->port);
}

/* The address of this machine that a connection uses, or that of its peer, with this port. */
static socklen_t address_beside(int fd, bool of_peer, uint32_t port, struct sockaddr_storage *out)
{
    struct sockaddr_storage found = {0};
    socklen_t len = sizeof found;
    if ((of_peer ? getpeername : getsockname)(fd, (struct sockaddr *)&found, &len) != 0) {
        return 0;
    }
    const struct place place = place_of(&found, port);
    return address_of(&place, out);
}

static void learn_port(struct meeting *m)
{
    struct sockaddr_storage own = {0};
    socklen_t len = sizeof own;
    getsockname(m->listener, (struct sockaddr *)&own, &len);
    m->self.about.port = own.ss_family == AF_INET6
                             ? ntohs(((struct sockaddr_in6 *)(void *)&own)->sin6_port)
                             : ntohs(((struct sockaddr_in *)(void *)&own)->sin_port);
}

/* Other ranks listen at the address at which rank 0 sees them, on any port. */
static sw_status listen_beside(struct meeting *m, int fd)
{
    struct sockaddr_storage own;
    const socklen_t len = address_beside(fd, false, 0, &own);
    if (len == 0 || !listen_on(m, (struct sockaddr *)&own, len)) {
        return failed("listening beside", m->o->host, m->o->port);
    }
    learn_port(m);
    return SW_OK;
}

/* ---- newcomers ---- */

static void address_text(const struct sockaddr_storage *a, char *out, size_t cap)
{
    if (getnameinfo((const struct sockaddr *)a, sizeof *a, out, (socklen_t)cap, NULL, 0,
                    NI_NUMERICHOST) != 0) {
        snprintf(out, cap, "somewhere");
    }
}

/* Prints nothing that the stranger sent, except numbers. */
static void tell_turned_away(struct meeting *m, const struct newcomer *c, const char *why)
{
    char from[64], me[SW_RANK_TEXT];
    address_text(&c->from, from, sizeof from);
    snprintf(m->last_offloaded, sizeof m->last_offloaded,
             "a connection from %s that claimed to be rank %d: %.140s", from, c->hello.from, why);
    m->n_turned_away++;
    if (m->n_turned_away <= MOST_TOLD) {
        sw_log(SW_LOG_WARN, "%s turned away %s%s", name_of(m, m->o->rank, me), m->last_offloaded,
               m->n_turned_away == MOST_TOLD ? " (further ones are not reported)" : "");
    }
}

static void forget(struct meeting *m, int rank)
{
    close(m->fds[rank]);
    m->fds[rank] = -1;
}

static void let_go(struct newcomer *c)
{
    close(c->fd);
    c->fd = -1;
}

static bool has_left(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* A proven rank takes its place, or is told why it cannot. A rank that has left may come again. */
static void admit(struct meeting *m, struct newcomer *c)
{
    struct sw_tcp_verdict verdict;
    struct sw_tcp_about about;
    const int rank = c->hello.from;
    enum sw_tcp_guest guest =
        sw_tcp_hear_answer(&m->self, &c->hello, &c->in.answer, &about, &verdict);
    if (guest == SW_TCP_MEMBER && m->fds[rank] >= 0 && has_left(m->fds[rank])) {
        forget(m, rank);
    }
    if (guest == SW_TCP_MEMBER && m->fds[rank] >= 0) {
        guest = SW_TCP_MISFIT;
        snprintf(verdict.why, sizeof verdict.why, "rank %d is already connected, from %s", rank,
                 m->places[rank].host);
        verdict.met = 0;
    }
    if (guest != SW_TCP_MEMBER) {
        tell_turned_away(m, c,
                         guest == SW_TCP_MISFIT ? verdict.why
                                                : "it does not prove the secret of this job");
    }
    /* rank 0 sends its verdict when all have arrived; what is sent now fits into the buffer of a
     * new socket */
    const bool told = guest == SW_TCP_STRANGER || (guest == SW_TCP_MEMBER && m->gathers) ||
                      send(c->fd, &verdict, sizeof verdict, MSG_NOSIGNAL | MSG_DONTWAIT) ==
                          (ssize_t)sizeof verdict;
    if (guest != SW_TCP_MEMBER || !told) {
        let_go(c);
        return;
    }
    if (m->gathers) {
        m->places[rank] = place_of(&c->from, about.port);
        memcpy(m->places[rank].host, about.host, sizeof about.host);
    }
    m->fds[rank] = c->fd;
    c->fd = -1;
}

static bool greet_back(const struct meeting *m, struct newcomer *c)
{
    const struct sw_tcp_greeting greeting = c->in.greeting;
    struct sw_tcp_challenge challenge;
    uint8_t nonce[SW_NONCE_BYTES];
    c->greeted = true;
    c->done = 0;
    return sw_draw_bytes(nonce, sizeof nonce) >= 0 &&
           sw_tcp_hear_greeting(&m->self, &greeting, nonce, &c->hello, &challenge) &&
           send(c->fd, &challenge, sizeof challenge, MSG_NOSIGNAL | MSG_DONTWAIT) ==
               (ssize_t)sizeof challenge;
}

/* Reads what has arrived; drops the connection if it is not a rank of this job. */
static void serve(struct meeting *m, struct newcomer *c)
{
    const size_t want = c->greeted ? sizeof c->in.answer : sizeof c->in.greeting;
    const ssize_t n = recv(c->fd, (char *)&c->in + c->done, want - c->done, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        let_go(c);
        return;
    }
    c->done += n > 0 ? (size_t)n : 0;
    if (c->done < want) {
        return;
    }
    if (c->greeted) {
        admit(m, c);
    } else if (!greet_back(m, c)) {
        let_go(c);
    }
}

/* Returns a free place, or evicts the connection that has been silent longest. */
static struct newcomer *make_room(struct meeting *m)
{
    struct newcomer *oldest = NULL;
    for (int i = 0; i < m->n_newcomers; i++) {
        struct newcomer *c = &m->newcomers[i];
        if (c->fd < 0) {
            return c;
        }
        const bool older =
            !oldest || (c->greeted == oldest->greeted ? c->since < oldest->since : oldest->greeted);
        oldest = older ? c : oldest;
    }
    let_go(oldest);
    return oldest;
}

static void accept_some(struct meeting *m)
{
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof from;
        const int fd = accept4(m->listener, (struct sockaddr *)&from, &len, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            m->paused_until = sw_now_s() + pause_s;
            if (!m->said_full) {
                sw_log(SW_LOG_WARN, "rank %d cannot accept connections for now: %s", m->o->rank,
                       strerror(errno));
            }
            m->said_full = true;
            return;
        }
        if (fd < 0 && errno == EAGAIN) {
            return;
        }
        if (fd >= 0) {
            struct newcomer *c = make_room(m);
            prepare(fd);
            *c = (struct newcomer){.fd = fd, .since = sw_now_s(), .from = from};
        }
    }
}

static bool is_missing(const struct meeting *m, int first)
{
    for (int r = first; r < m->o->size; r++) {
        if (m->fds[r] < 0 && r != m->o->rank) {
            return true;
        }
    }
    return false;
}

static void watch(struct meeting *m, int fd, int who)
{
    if (fd >= 0) {
        m->watched[m->n_polls] = who;
        m->polls[m->n_polls++] = (struct pollfd){fd, POLLIN, 0};
    }
}

/* Fills m->polls; returns the time until which to wait. */
static double watch_all(struct meeting *m)
{
    const double now = sw_now_s();
    double until = m->until;
    const bool paused = now < m->paused_until;
    m->polls[0] = (struct pollfd){paused ? -1 : m->listener, POLLIN, 0};
    m->n_polls = 1;
    if (paused && m->paused_until < until) {
        until = m->paused_until;
    }
    for (int i = 0; i < m->n_newcomers; i++) {
        struct newcomer *c = &m->newcomers[i];
        if (c->fd >= 0 && now > c->since + hello_s) {
            let_go(c);
        }
        if (c->fd >= 0 && c->since + hello_s < until) {
            until = c->since + hello_s;
        }
        watch(m, c->fd, i);
    }
    for (int r = 0; m->gathers && r < m->o->size; r++) {
        watch(m, m->fds[r], m->n_newcomers + r);
    }
    return until;
}

/* Waits until all ranks from `first` on are here; false = timeout. */
static bool hear_all(struct meeting *m, int first)
{
    while (is_missing(m, first)) {
        const double until = watch_all(m);
        const int n = poll(m->polls, (nfds_t)m->n_polls, ms_until(until));
        for (int i = m->n_polls - 1; n > 0 && i > 0; i--) {
            /* proven ranks first, since one may come again */
            if (m->polls[i].revents && m->watched[i] >= m->n_newcomers) {
                /* it should not send anything yet, so it has left */
                forget(m, m->watched[i] - m->n_newcomers);
            } else if (m->polls[i].revents) {
                serve(m, &m->newcomers[m->watched[i]]);
            }
        }
        if (n > 0 && m->polls[0].revents) {
            accept_some(m);
        }
        if (sw_now_s() >= m->until) {
            return !is_missing(m, first);
        }
    }
    return true;
}

static sw_status say_missing(const struct meeting *m, int first)
{
    struct sw_str missing = {0};
    char name[SW_RANK_TEXT];
    for (int r = first; r < m->o->size; r++) {
        if (r != m->o->rank && m->fds[r] < 0) {
            sw_str_printf(&missing, "%s%s", missing.len ? ", " : "", name_of(m, r, name));
        }
    }
    const sw_status st = SW_FAIL(
        SW_E_PEER, "%s waited %.3g s for %s to connect (%s:%d)%s%s", name_of(m, m->o->rank, name),
        m->o->deadline_s, sw_str_text(&missing), m->o->host, m->o->port,
        m->n_turned_away ? "; last turned away: " : "", m->n_turned_away ? m->last_offloaded : "");
    sw_str_fini(&missing);
    return st;
}

/* Rank 0 waits for all ranks, then sends them the list of addresses. After a timeout it tells those
 * present who is missing. */
static sw_status gather_all(struct meeting *m)
{
    sw_status st = hear_all(m, 1) ? SW_OK : say_missing(m, 1);
    struct sw_tcp_verdict verdict = {.met = st >= 0};
    const size_t bytes = (size_t)m->o->size * sizeof *m->places;
    snprintf(verdict.why, sizeof verdict.why, "%s", st < 0 ? sw_error_message() : "");
    const double until = st < 0 ? sw_now_s() + 1 : m->until;
    for (int r = 1; r < m->o->size; r++) {
        const bool told = m->fds[r] >= 0 &&
                          transfer(until, m->fds[r], &verdict, sizeof verdict, true) &&
                          (st < 0 || transfer(until, m->fds[r], m->places, bytes, true));
        if (st >= 0 && !told) {
            return SW_FAIL(SW_E_PEER, "rank %d (%s) is gone: %s", r, m->places[r].host,
                           strerror(errno));
        }
    }
    /* the message of the first failure */
    return st < 0 ? SW_FAIL(st, "%s", verdict.why) : SW_OK;
}

/* ---- connecting ---- */

/* One attempt; -1 with errno on failure. */
static int connect_once(double until, const struct sockaddr *address, socklen_t len)
{
    const int fd = socket(address->sa_family, SOCK_STREAM, 0);
    if (fd < 0) {
        return -1;
    }
    prepare(fd);
    int error = connect(fd, address, len) < 0 ? errno : 0;
    if (error == EINPROGRESS) {
        socklen_t n = sizeof error;
        error = wait_for(until, fd, POLLOUT) ? 0 : ETIMEDOUT;
        if (!error) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
        }
    }
    if (error) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

enum dialled { LINE_BROKE, ANSWERED, NOT_OURS, CANNOT_LISTEN };

/* Handshake up to the answer. On LINE_BROKE, errno has the reason. */
static enum dialled say_hello(struct meeting *m, int fd, int to)
{
    struct sw_tcp_greeting greeting;
    struct sw_tcp_challenge challenge;
    struct sw_tcp_answer answer;
    struct sw_tcp_hello hello;
    uint8_t nonce[SW_NONCE_BYTES];
    if (m->listener < 0 && listen_beside(m, fd) < 0) {
        return CANNOT_LISTEN;
    }
    if (sw_draw_bytes(nonce, sizeof nonce) < 0) {
        return CANNOT_LISTEN;
    }
    sw_tcp_greet(&m->self, to, nonce, &hello, &greeting);
    if (!transfer(m->until, fd, &greeting, sizeof greeting, true) ||
        !transfer(m->until, fd, &challenge, sizeof challenge, false)) {
        return LINE_BROKE;
    }
    if (!sw_tcp_hear_challenge(&m->self, &hello, &challenge, &answer)) {
        return NOT_OURS;
    }
    return transfer(m->until, fd, &answer, sizeof answer, true) ? ANSWERED : LINE_BROKE;
}

struct target {
    int rank;
    const struct addrinfo *names; /* rank 0 has names; other ranks have one address */
    struct sockaddr_storage address;
    socklen_t len;
    char name[128];
};

static sw_status say_not_ours(const struct meeting *m, const struct target *t)
{
    char me[SW_RANK_TEXT], them[SW_RANK_TEXT];
    return SW_FAIL(
        SW_E_PEER,
        "%s: the listener for %s at %s does not prove the secret of this job; it has another "
        "SPILLWAY_JOB_SECRET or SPILLWAY_JOB_ID%s, or is another program",
        name_of(m, m->o->rank, me), name_of(m, t->rank, them), t->name,
        m->self.secret.known ? "" : " (none is set here)");
}

static sw_status say_no_answer(const struct meeting *m, const struct target *t, bool gone,
                               int error)
{
    char me[SW_RANK_TEXT], them[SW_RANK_TEXT];
    if (gone) {
        return SW_FAIL(SW_E_PEER, "%s: %s at %s is gone: %s", name_of(m, m->o->rank, me),
                       name_of(m, t->rank, them), t->name, strerror(error));
    }
    return SW_FAIL(SW_E_PEER, "%s waited %.3g s for %s at %s: %s", name_of(m, m->o->rank, me),
                   m->o->deadline_s, name_of(m, t->rank, them), t->name, strerror(error));
}

/* Connects and shakes hands within the deadline. The listener may start later, and may drop
 * connections when it has too many. */
static sw_status dial(struct meeting *m, const struct target *t, struct sw_tcp_verdict *out)
{
    const struct addrinfo *name = t->names;
    /* the peer may itself wait for others until the deadline */
    const double last_word = m->until + 5;
    bool answered = false;
    for (;;) {
        const double until =
            t->names && t->names->ai_next ? fmin(m->until, sw_now_s() + one_of_many_s) : m->until;
        const int fd = name ? connect_once(until, name->ai_addr, name->ai_addrlen)
                            : connect_once(until, (const struct sockaddr *)&t->address, t->len);
        const enum dialled dialled = fd >= 0 ? say_hello(m, fd, t->rank) : LINE_BROKE;
        const bool gone = answered && fd < 0; /* it was there before, and no longer listens */
        if (dialled == ANSWERED && transfer(last_word, fd, out, sizeof *out, false)) {
            m->fds[t->rank] = fd;
            out->why[sizeof out->why - 1] = '\0';
            return SW_OK;
        }
        const int error = errno;
        answered |= dialled == ANSWERED;
        if (fd >= 0) {
            close(fd);
        }
        if (dialled == CANNOT_LISTEN) {
            return SW_E_IO;
        }
        if (dialled == NOT_OURS) {
            return say_not_ours(m, t);
        }
        if (gone || ms_until(m->until) == 0) {
            return say_no_answer(m, t, gone, error);
        }
        name = name && name->ai_next ? name->ai_next : t->names;
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
}

static sw_status turned_away(const struct meeting *m, const struct target *t, const char *why)
{
    char words[1024], me[SW_RANK_TEXT], them[SW_RANK_TEXT];
    return SW_FAIL(SW_E_PEER, "%s, meeting at %s (%s): %s", name_of(m, m->o->rank, me),
                   name_of(m, t->rank, them), t->name, sw_plain_words(why, words, sizeof words));
}

/* Connects to a rank before this one. */
static sw_status connect_to(struct meeting *m, const struct target *target)
{
    struct sw_tcp_verdict verdict;
    SW_TRY(dial(m, target, &verdict));
    return verdict.met ? SW_OK : turned_away(m, target, verdict.why);
}

static sw_status meet_first(struct meeting *m, const struct addrinfo *found)
{
    struct target first = {.rank = 0, .names = found};
    struct sw_tcp_verdict verdict;
    snprintf(first.name, sizeof first.name, "%s:%d", m->o->host, m->o->port);
    SW_TRY(dial(m, &first, &verdict));
    const size_t bytes = (size_t)m->o->size * sizeof *m->places;
    if (verdict.met && !transfer(m->until + 5, m->fds[0], m->places, bytes, false)) {
        return turned_away(m, &first, strerror(errno));
    }
    return verdict.met ? SW_OK : turned_away(m, &first, verdict.why);
}

static sw_status join(struct meeting *m, const struct addrinfo *found)
{
    SW_TRY(meet_first(m, found));
    for (int r = 0; r < m->o->size; r++) {
        struct place *place = &m->places[r];
        char host[SW_TCP_HOST_CAP];
        snprintf(host, sizeof host, "%.*s", (int)sizeof host - 1, place->host);
        sw_plain_words(host, place->host, sizeof place->host);
    }
    for (int r = 1; r < m->o->rank; r++) {
        struct target target = {.rank = r};
        target.len = address_of(&m->places[r], &target.address);
        snprintf(target.name, sizeof target.name, "%s:%d", m->places[r].host, m->places[r].port);
        SW_TRY(connect_to(m, &target));
    }
    return hear_all(m, m->o->rank + 1) ? SW_OK : say_missing(m, m->o->rank + 1);
}

/* ---- the rendezvous ---- */

static sw_status hold(struct meeting *m)
{
    struct addrinfo *found = NULL;
    SW_TRY(sw_allow_files(m->o->size + SW_TCP_SPARE_FILES));
    SW_TRY(resolve(m, &found));
    sw_status st = choose_reach(m, found);
    if (st >= 0 && m->o->rank == 0) {
        st = listen_first(m, found);
        st = st < 0 ? st : gather_all(m);
    } else if (st >= 0) {
        st = join(m, found);
    }
    freeaddrinfo(found);
    return st;
}

static sw_status make_places(struct meeting *m)
{
    const size_t n = (size_t)m->o->size;
    const int n_newcomers = m->o->size + SPARE_NEWCOMERS;
    m->places = sw_alloc_zero("comm", n, sizeof *m->places);
    m->newcomers = sw_alloc_zero("comm", (size_t)n_newcomers, sizeof *m->newcomers);
    m->polls = sw_alloc_zero("comm", 1 + (size_t)n_newcomers + n, sizeof *m->polls);
    m->watched = sw_alloc_zero("comm", 1 + (size_t)n_newcomers + n, sizeof *m->watched);
    SW_TRY_ALLOC(m->places && m->newcomers && m->polls && m->watched ? m : NULL, "ranks");
    while (m->n_newcomers < n_newcomers) {
        m->newcomers[m->n_newcomers++].fd = -1;
    }
    m->self.rank = m->o->rank;
    m->self.about.size = m->o->size;
    m->self.about.port = (uint32_t)m->o->port;
    gethostname(m->self.about.host, sizeof m->self.about.host - 1);
    memcpy(m->places[m->o->rank].host, m->self.about.host, sizeof m->self.about.host);
    return SW_OK;
}

sw_status sw_tcp_keep_secret(const struct sw_tcp_options *o, struct sw_job_secret *out)
{
    const char *job = o->job ? o->job : "";
    out->known = o->secret != NULL;
    if (o->secret) {
        memcpy(out->key, o->secret, sizeof out->key);
    }
    if (strlen(job) >= sizeof out->job) {
        return SW_FAIL(SW_E_ARG, "the id of a job: wanted fewer than %zu bytes, got %zu",
                       sizeof out->job, strlen(job));
    }
    snprintf(out->job, sizeof out->job, "%s", job);
    return SW_OK;
}

/* Closes what remains of a rendezvous, and the connections if it failed. */
static void end_meeting(struct meeting *m, bool failed)
{
    for (int i = 0; i < m->n_newcomers; i++) {
        if (m->newcomers[i].fd >= 0) {
            close(m->newcomers[i].fd);
        }
    }
    for (int r = 0; failed && r < m->o->size; r++) {
        if (m->fds[r] >= 0) {
            forget(m, r);
        }
    }
    if (m->listener >= 0) {
        close(m->listener);
    }
    sw_free(m->places);
    sw_free(m->newcomers);
    sw_free(m->polls);
    sw_free(m->watched);
}

sw_status sw_tcp_meet(const struct sw_tcp_options *options, const struct sw_job_secret *secret,
                      int *out_fds, char (*out_hosts)[SW_TCP_HOST_CAP])
{
    struct meeting m = {.o = options,
                        .gathers = options->rank == 0,
                        .until = sw_now_s() + options->deadline_s,
                        .listener = -1,
                        .fds = out_fds};
    for (int r = 0; r < options->size; r++) {
        out_fds[r] = -1;
    }
    sw_status st = make_places(&m);
    m.self.secret = *secret;
    st = st < 0 ? st : hold(&m);
    for (int r = 0; st >= 0 && r < options->size; r++) {
        memcpy(out_hosts[r], m.places[r].host, SW_TCP_HOST_CAP);
    }
    end_meeting(&m, st < 0);
    return st;
}

/* ---- groups ---- */

/* Listens at the address at which all members see this machine. If they see different ones, listens
 * at all its addresses, unless all that they see are loopback addresses. */
static sw_status listen_for_group(struct meeting *m, const struct sw_tcp_party *party)
{
    struct sockaddr_storage first, other;
    socklen_t len = 0;
    bool same = true, outside = false;
    for (int i = 0; i < party->group->n; i++) {
        struct sockaddr_storage *at = len == 0 ? &first : &other;
        const socklen_t n = i == party->rank ? 0 : address_beside(party->fds[i], false, 0, at);
        if (n > 0) {
            len = len > 0 ? len : n;
            same = same && n == len && memcmp(&first, at, n) == 0;
            outside = outside || !is_loopback((struct sockaddr *)at);
        }
    }
    const bool everywhere = !same && outside;
    if (!(everywhere ? listen_everywhere(m, 0) : listen_on(m, (struct sockaddr *)&first, len))) {
        return failed("listening at", party->hosts[party->rank], 0);
    }
    learn_port(m);
    return SW_OK;
}

static sw_status hold_group(struct meeting *m, const struct sw_tcp_party *party, uint32_t *ports)
{
    SW_TRY(listen_for_group(m, party));
    SW_TRY(party->swap_ports(party->ctx, m->self.about.port, ports));
    m->until = sw_now_s() + party->deadline_s;
    for (int i = 0; i < party->rank; i++) {
        struct target target = {.rank = i};
        target.len = address_beside(party->fds[i], true, ports[i], &target.address);
        snprintf(target.name, sizeof target.name, "%s:%u", party->hosts[i], ports[i]);
        SW_TRY(connect_to(m, &target));
    }
    return hear_all(m, party->rank + 1) ? SW_OK : say_missing(m, party->rank + 1);
}

sw_status sw_tcp_meet_group(const struct sw_tcp_party *party, int *out_fds)
{
    const int n = party->group->n;
    const struct sw_tcp_options options = {.rank = party->rank,
                                           .size = n,
                                           .host = party->hosts[party->rank],
                                           .deadline_s = party->deadline_s};
    struct meeting m = {.o = &options, .names = party->names, .listener = -1, .fds = out_fds};
    for (int i = 0; i < n; i++) {
        out_fds[i] = -1;
    }
    uint32_t *ports = sw_alloc_zero("comm", (size_t)n, sizeof *ports);
    sw_status st = ports ? make_places(&m) : SW_FAIL(SW_E_NOMEM, "out of host memory for ranks");
    for (int i = 0; st >= 0 && i < n; i++) {
        memcpy(m.places[i].host, party->hosts[i], sizeof m.places[i].host);
    }
    m.self.secret = *party->secret;
    m.self.about.group = party->group->number;
    st = st < 0 ? st : hold_group(&m, party, ports);
    end_meeting(&m, st < 0);
    sw_free(ports);
    return st;
}
