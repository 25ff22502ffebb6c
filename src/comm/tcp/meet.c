// SPDX-License-Identifier: Apache-2.0
// How ranks find one another: rank 0 listens at an address that all know; the others tell it where they
// listen, get the list of all, and connect to those before them.
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "comm/tcp/tcp.h"

static const uint32_t magic = 0x53574331; /* also tells another byte order */

struct hello {
    uint32_t magic;
    int32_t rank, size;
    uint32_t port; /* where this rank listens */
    char host[SW_TCP_HOST_CAP];
};

struct place { /* of a rank, as rank 0 saw it */
    struct sockaddr_storage address;
    uint32_t address_len;
    char host[SW_TCP_HOST_CAP];
};

struct verdict { /* of rank 0, to all who came */
    uint32_t met;
    char why[508]; /* not */
};

struct meeting {
    const struct sw_tcp_options *o;
    double until;
    int listener;
    int *fds;
    struct place *places; /* [size] */
};

static sw_status failed(const char *what, const char *host, int port)
{
    return SW_FAIL(SW_E_IO, "%s %s:%d: %s", what, host, port, strerror(errno));
}

static int ms_left(const struct meeting *m)
{
    const double left = m->until - sw_now_s();
    return left > 0 ? (int)(left * 1000) + 1 : 0;
}

/* Waits for one of the events; false when the time is up. */
static bool wait_for(const struct meeting *m, int fd, short events)
{
    struct pollfd p = {fd, events, 0};
    int n;
    do {
        n = poll(&p, 1, ms_left(m));
    } while (n < 0 && errno == EINTR);
    return n > 0;
}

static bool transfer(const struct meeting *m, int fd, void *data, size_t bytes, bool sends)
{
    size_t done = 0;
    while (done < bytes) {
        if (!wait_for(m, fd, sends ? POLLOUT : POLLIN)) {
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

/* port 0: any. */
static sw_status listen_at(struct meeting *m, int port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int on = 1, off = 0;
    m->listener = socket(AF_INET6, SOCK_STREAM, 0);
    if (m->listener >= 0) {
        setsockopt(m->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        setsockopt(m->listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (bind(m->listener, (struct sockaddr *)&six, sizeof six) < 0) {
            close(m->listener);
            m->listener = -1;
        }
    }
    if (m->listener < 0) { /* no IPv6 here */
        m->listener = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(m->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (m->listener < 0 || bind(m->listener, (struct sockaddr *)&four, sizeof four) < 0) {
            return failed("listening at", "any address", port);
        }
    }
    prepare(m->listener);
    return listen(m->listener, m->o->size) < 0 ? failed("listening at", "any address", port)
                                               : SW_OK;
}

static uint32_t listening_port(const struct meeting *m)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    getsockname(m->listener, (struct sockaddr *)&a, &len);
    return a.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&a)->sin6_port)
                                   : ntohs(((struct sockaddr_in *)&a)->sin_port);
}

static void set_port(struct sockaddr_storage *a, uint32_t port)
{
    if (a->ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
    } else {
        ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
    }
}

static struct hello own_hello(const struct meeting *m)
{
    struct hello h = {
        .magic = magic, .rank = m->o->rank, .size = m->o->size, .port = listening_port(m)};
    gethostname(h.host, sizeof h.host - 1);
    return h;
}

/* Tells a rank why it cannot take part; who is no rank learns nothing. */
static void turn_away(const struct meeting *m, int fd, const struct hello *h)
{
    struct verdict verdict = {.met = false};
    if (h->magic != magic || m->o->rank != 0) {
        return;
    }
    if (h->size != m->o->size || h->rank < 1 || h->rank >= m->o->size) {
        snprintf(verdict.why, sizeof verdict.why, "rank %d counts %d ranks, rank 0 counts %d",
                 h->rank, h->size, m->o->size);
    } else {
        snprintf(verdict.why, sizeof verdict.why, "rank %d is here already, from %s", h->rank,
                 m->places[h->rank].host);
    }
    (void)!send(fd, &verdict, sizeof verdict, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* One that connects and says hello properly; -1 when the time is up. Others are turned away. */
static int accept_one(const struct meeting *m, struct hello *out, struct sockaddr_storage *from,
                      socklen_t *from_len)
{
    while (wait_for(m, m->listener, POLLIN)) {
        *from_len = sizeof *from;
        const int fd = accept(m->listener, (struct sockaddr *)from, from_len);
        if (fd < 0) {
            continue;
        }
        prepare(fd);
        const struct meeting brief = {.o = m->o, .until = sw_now_s() + 5};
        const bool said = transfer(&brief, fd, out, sizeof *out, false);
        if (said && out->magic == magic && out->rank >= 0 && out->rank < m->o->size &&
            m->fds[out->rank] < 0 && out->rank != m->o->rank) {
            out->host[sizeof out->host - 1] = '\0';
            return fd;
        }
        if (said) {
            turn_away(m, fd, out);
        }
        close(fd);
    }
    return -1;
}

static sw_status say_missing(const struct meeting *m, int first)
{
    struct sw_str missing = {0};
    for (int r = first; r < m->o->size; r++) {
        if (r != m->o->rank && m->fds[r] < 0) {
            sw_str_printf(&missing, "%s%d", missing.len ? ", " : "", r);
        }
    }
    const sw_status st =
        SW_FAIL(SW_E_PEER, "rank %d waited %.3g s for rank %s to connect (%s:%d)", m->o->rank,
                m->o->deadline_s, sw_str_text(&missing), m->o->host, m->o->port);
    sw_str_fini(&missing);
    return st;
}

/* Connects within the deadline: whoever listens may start later than we do. */
static int connect_to(const struct meeting *m, const struct sockaddr *address, socklen_t len)
{
    for (;;) {
        const int fd = socket(address->sa_family, SOCK_STREAM, 0);
        if (fd < 0) {
            return -1;
        }
        prepare(fd);
        int error = connect(fd, address, len) < 0 ? errno : 0;
        if (error == EINPROGRESS) {
            socklen_t n = sizeof error;
            error = wait_for(m, fd, POLLOUT) ? 0 : ETIMEDOUT;
            if (!error) {
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
            }
        }
        if (!error) {
            return fd;
        }
        close(fd);
        errno = error;
        if (ms_left(m) == 0) {
            return -1;
        }
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
}

static sw_status connect_to_first(const struct meeting *m, int *out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", m->o->port);
    const int error = getaddrinfo(m->o->host, port, &hints, &found);
    if (error) {
        return SW_FAIL(SW_E_IO, "rank 0 at %s:%d: %s", m->o->host, m->o->port, gai_strerror(error));
    }
    *out = connect_to(m, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return *out >= 0
               ? SW_OK
               : SW_FAIL(SW_E_PEER, "rank %d waited %.3g s for rank 0 at %s:%d: %s", m->o->rank,
                         m->o->deadline_s, m->o->host, m->o->port, strerror(errno));
}

static sw_status hear_all(struct meeting *m)
{
    for (int n = 1; n < m->o->size; n++) {
        struct hello h;
        struct sockaddr_storage from;
        socklen_t len;
        const int fd = accept_one(m, &h, &from, &len);
        if (fd < 0) {
            return say_missing(m, 1);
        }
        m->fds[h.rank] = fd;
        if (h.size != m->o->size) {
            return SW_FAIL(SW_E_PEER, "rank %d (%s) counts %d ranks, rank 0 counts %d", h.rank,
                           h.host, h.size, m->o->size);
        }
        set_port(&from, h.port);
        m->places[h.rank].address = from;
        m->places[h.rank].address_len = len;
        memcpy(m->places[h.rank].host, h.host, sizeof h.host);
    }
    gethostname(m->places[0].host, sizeof m->places[0].host - 1);
    return SW_OK;
}

/* Rank 0: hears all, then tells all where all are; or those who came, who did not. */
static sw_status gather_all(struct meeting *m)
{
    sw_status st = hear_all(m);
    struct verdict verdict = {.met = st >= 0};
    const size_t bytes = (size_t)m->o->size * sizeof *m->places;
    snprintf(verdict.why, sizeof verdict.why, "%s", st < 0 ? sw_error_message() : "");
    m->until = st < 0 ? sw_now_s() + 1 : m->until;
    for (int r = 1; r < m->o->size; r++) {
        const bool told = m->fds[r] >= 0 &&
                          transfer(m, m->fds[r], &verdict, sizeof verdict, true) &&
                          (st < 0 || transfer(m, m->fds[r], m->places, bytes, true));
        if (st >= 0 && !told) {
            return SW_FAIL(SW_E_PEER, "rank %d (%s) is gone: %s", r, m->places[r].host,
                           strerror(errno));
        }
    }
    /* the message of what happened first */
    return st < 0 ? SW_FAIL(st, "%s", verdict.why) : SW_OK;
}

static sw_status join(struct meeting *m)
{
    struct hello mine = own_hello(m), h;
    struct verdict verdict = {0};
    SW_TRY(connect_to_first(m, &m->fds[0]));
    /* rank 0 has the last word */
    const struct meeting patient = {.o = m->o, .until = m->until + 5};
    if (!transfer(m, m->fds[0], &mine, sizeof mine, true) ||
        !transfer(&patient, m->fds[0], &verdict, sizeof verdict, false) ||
        (verdict.met && !transfer(&patient, m->fds[0], m->places,
                                  (size_t)m->o->size * sizeof *m->places, false))) {
        snprintf(verdict.why, sizeof verdict.why, "%s", strerror(errno));
        verdict.met = false;
    }
    if (!verdict.met) {
        verdict.why[sizeof verdict.why - 1] = '\0';
        return SW_FAIL(SW_E_PEER, "rank %d, meeting at rank 0 (%s:%d): %s", m->o->rank, m->o->host,
                       m->o->port, verdict.why);
    }
    for (int r = 1; r < m->o->rank; r++) {
        const struct place *place = &m->places[r];
        m->fds[r] =
            connect_to(m, (const struct sockaddr *)&place->address, (socklen_t)place->address_len);
        if (m->fds[r] < 0 || !transfer(m, m->fds[r], &mine, sizeof mine, true)) {
            return SW_FAIL(SW_E_PEER, "rank %d cannot reach rank %d (%s): %s", m->o->rank, r,
                           place->host, strerror(errno));
        }
    }
    for (int n = m->o->rank + 1; n < m->o->size; n++) {
        struct sockaddr_storage from;
        socklen_t len;
        const int fd = accept_one(m, &h, &from, &len);
        if (fd < 0) {
            return say_missing(m, m->o->rank + 1);
        }
        m->fds[h.rank] = fd;
    }
    return SW_OK;
}

sw_status sw_tcp_meet(const struct sw_tcp_options *options, int *out_fds,
                      char (*out_hosts)[SW_TCP_HOST_CAP])
{
    struct meeting m = {
        .o = options, .until = sw_now_s() + options->deadline_s, .listener = -1, .fds = out_fds};
    for (int r = 0; r < options->size; r++) {
        out_fds[r] = -1;
    }
    m.places = sw_alloc_zero("comm", (size_t)options->size, sizeof *m.places);
    SW_TRY_ALLOC(m.places, "ranks");
    sw_status st = listen_at(&m, options->rank == 0 ? options->port : 0);
    st = st < 0 ? st : options->rank == 0 ? gather_all(&m) : join(&m);
    for (int r = 0; r < options->size; r++) {
        memcpy(out_hosts[r], m.places[r].host, SW_TCP_HOST_CAP);
        out_hosts[r][SW_TCP_HOST_CAP - 1] = '\0';
        if (st < 0 && out_fds[r] >= 0) {
            close(out_fds[r]);
        }
    }
    if (m.listener >= 0) {
        close(m.listener);
    }
    sw_free(m.places);
    return st;
}
