// SPDX-License-Identifier: Apache-2.0
// Exchanges over a socket to every other rank. A frame is a header, which names the operation,
// followed by the messages. A broken connection means that the rank is gone, which is known at
// once. A silent rank is known at the deadline.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/tcp/tcp.h"

/* One direction of the traffic with one peer. */
struct talk {
    bool busy;
    struct sw_comm_header header;
    size_t header_done, done; /* bytes done of the header, and of the present message */
    const struct sw_message *message, *end;
};

struct tcp {
    int rank, size;
    double deadline_s;
    int *fds; /* [size] */
    char (*hosts)[SW_TCP_HOST_CAP];
    struct talk *out, *in; /* [size] */
    struct pollfd *polls;  /* [size] */
    bool ended;
};

static const struct sw_message *next_with(const struct sw_message *from,
                                          const struct sw_message *end, int peer)
{
    while (from < end && from->peer != peer) {
        from++;
    }
    return from;
}

static void start(struct talk *t, const struct sw_exchange *x, int peer, bool sends)
{
    const struct sw_message *messages = sends ? x->sends : x->receives;
    const struct sw_message *end = messages + (sends ? x->n_sends : x->n_receives);
    const struct sw_message *first = next_with(messages, end, peer);
    t->busy = first < end;
    if (t->busy) {
        t->message = first;
        t->end = end;
        t->header_done = t->done = 0;
        if (sends) {
            sw_comm_header_fill(&t->header, x, peer, true);
        }
    }
}

/* ---- failures of an exchange ---- */

static sw_status say_gone(struct tcp *c, const struct sw_exchange *x, int peer, int error)
{
    c->ended = true;
    return SW_FAIL(SW_E_PEER, "rank %d at %s of %s: rank %d (%s) is gone: %s", c->rank, x->op,
                   x->what, peer, c->hosts[peer],
                   error ? strerror(error) : "it closed the connection");
}

static sw_status say_aborted(struct tcp *c, const struct sw_exchange *x, int peer,
                             struct sw_comm_header *h)
{
    char why[1024];
    c->ended = true;
    h->what[sizeof h->what - 1] = '\0';
    return SW_FAIL(SW_E_PEER, "rank %d at %s of %s: rank %d (%s) cannot go on: %s", c->rank, x->op,
                   x->what, peer, c->hosts[peer], sw_plain_words(h->what, why, sizeof why));
}

static sw_status say_late(const struct tcp *c, const struct sw_exchange *x)
{
    struct sw_str missing = {0};
    for (int r = 0; r < c->size; r++) {
        if (c->in[r].busy || c->out[r].busy) {
            sw_str_printf(&missing, "%s%d (%s)", missing.len ? ", " : "", r, c->hosts[r]);
        }
    }
    const sw_status st = SW_FAIL(SW_E_PEER, "rank %d waited %.3g s for rank %s at %s of %s",
                                 c->rank, c->deadline_s, sw_str_text(&missing), x->op, x->what);
    sw_str_fini(&missing);
    return st;
}

static sw_status check_header(struct tcp *c, const struct sw_exchange *x, int peer)
{
    struct sw_comm_header *theirs = &c->in[peer].header;
    return theirs->abort ? say_aborted(c, x, peer, theirs)
                         : sw_comm_header_check(theirs, x, c->rank, peer);
}

/* ---- moving bytes ---- */

/* Sending to `peer` is impossible. Its reason may come after unread frames, of this exchange and
 * later ones; these frames are discarded. */
static bool said_why(struct tcp *c, int peer, struct sw_comm_header *out)
{
    char lost[4096];
    const struct talk *t = &c->in[peer];
    size_t skip = 0, done = t->busy ? t->header_done : 0;
    *out = t->header;
    if (done == sizeof *out) {
        for (const struct sw_message *m = t->message; m < t->end;
             m = next_with(m + 1, t->end, peer)) {
            skip += m->bytes;
        }
        skip -= t->done;
        done = 0;
    }
    for (;;) {
        const bool heads = skip == 0;
        const size_t want = heads ? sizeof *out - done : skip < sizeof lost ? skip : sizeof lost;
        const ssize_t n = recv(c->fds[peer], heads ? (char *)out + done : lost, want, MSG_DONTWAIT);
        if (n <= 0) {
            return false;
        }
        skip -= heads ? 0 : (size_t)n;
        done += heads ? (size_t)n : 0;
        if (done == sizeof *out) {
            if (out->abort) {
                return true;
            }
            skip = (size_t)out->bytes;
            done = 0;
        }
    }
}

/* Transfers as much as possible without waiting; *out_n bytes. */
static sw_status move(struct tcp *c, const struct sw_exchange *x, int peer, void *data,
                      size_t bytes, bool sends, bool more, size_t *out_n)
{
    const ssize_t n =
        sends ? send(c->fds[peer], data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0))
              : recv(c->fds[peer], data, bytes, MSG_DONTWAIT);
    *out_n = n > 0 ? (size_t)n : 0;
    if (n == 0 && !sends) {
        return say_gone(c, x, peer, 0);
    }
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        const int error = errno;
        struct sw_comm_header h;
        return sends && said_why(c, peer, &h) ? say_aborted(c, x, peer, &h)
                                              : say_gone(c, x, peer, error);
    }
    return SW_OK;
}

static sw_status advance(struct tcp *c, const struct sw_exchange *x, int peer, bool sends)
{
    struct talk *t = sends ? &c->out[peer] : &c->in[peer];
    size_t n = 1;
    while (t->busy && n > 0) {
        const bool heads = t->header_done < sizeof t->header;
        if (!heads && t->done == t->message->bytes) {
            t->message = next_with(t->message + 1, t->end, peer);
            t->done = 0;
            t->busy = t->message < t->end;
            continue;
        }
        char *at = heads ? (char *)&t->header + t->header_done : (char *)t->message->data + t->done;
        const size_t left = heads ? sizeof t->header - t->header_done : t->message->bytes - t->done;
        SW_TRY(move(c, x, peer, at, left, sends, heads && t->header.bytes > 0, &n));
        if (!heads) {
            t->done += n;
            continue;
        }
        t->header_done += n;
        if (!sends && t->header_done == sizeof t->header) {
            SW_TRY(check_header(c, x, peer));
        }
    }
    return SW_OK;
}

/* Listens to a rank from which no data is expected: it may announce that it cannot continue, or be
 * gone. *out_ahead: it has sent bytes for a later exchange, or has finished, and will not send more
 * in this one. */
static sw_status listen_to(struct tcp *c, const struct sw_exchange *x, int peer, bool *out_ahead)
{
    struct sw_comm_header h;
    const ssize_t n = recv(c->fds[peer], &h, sizeof h, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 && c->out[peer].busy) {
        return say_gone(c, x, peer, 0);
    }
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR ? SW_OK : say_gone(c, x, peer, errno);
    }
    if ((size_t)n == sizeof h && h.abort) {
        return say_aborted(c, x, peer, &h);
    }
    *out_ahead = true;
    return SW_OK;
}

static sw_status serve(struct tcp *c, const struct sw_exchange *x, int peer)
{
    struct pollfd *p = &c->polls[peer];
    const short seen = p->revents;
    bool ahead = false;
    p->revents = 0;
    if (seen & POLLOUT && c->out[peer].busy) {
        SW_TRY(advance(c, x, peer, true));
    }
    if (seen & (POLLIN | POLLHUP | POLLERR)) {
        if (c->in[peer].busy) {
            SW_TRY(advance(c, x, peer, false));
        } else {
            SW_TRY(listen_to(c, x, peer, &ahead));
        }
    }
    p->events = (short)((ahead ? 0 : POLLIN) | (c->out[peer].busy ? POLLOUT : 0));
    p->fd = p->events ? p->fd : -1;
    return SW_OK;
}

static bool is_busy(const struct tcp *c)
{
    for (int r = 0; r < c->size; r++) {
        if (c->out[r].busy || c->in[r].busy) {
            return true;
        }
    }
    return false;
}

static bool is_in_frame(const struct tcp *c, int peer)
{
    return c->out[peer].busy && c->out[peer].header_done > 0;
}

/* After a failure of this exchange: completes frames for peers that wait for the rest, if they
 * accept it soon. Otherwise they could not receive the reason, and would blame this rank. */
static void finish_frames(struct tcp *c, const struct sw_exchange *x)
{
    const double until = sw_now_s() + (c->deadline_s < 1 ? c->deadline_s : 1);
    for (double left = 1; left > 0; left = until - sw_now_s()) {
        int n = 0;
        for (int r = 0; r < c->size; r++) {
            const bool open = is_in_frame(c, r);
            c->polls[r] = (struct pollfd){.fd = open ? c->fds[r] : -1, .events = POLLOUT};
            n += open;
        }
        if (n == 0 || poll(c->polls, (nfds_t)c->size, 50) < 0) {
            break;
        }
        for (int r = 0; r < c->size; r++) {
            if (c->polls[r].revents && advance(c, x, r, true) < 0) {
                c->out[r].busy = false; /* the peer is gone */
            }
        }
    }
}

static sw_status exchange_all(struct tcp *c, const struct sw_exchange *x)
{
    const double until = sw_now_s() + c->deadline_s;
    for (int r = 0; r < c->size; r++) {
        start(&c->out[r], x, r, true);
        start(&c->in[r], x, r, false);
        c->polls[r] = (struct pollfd){.fd = c->fds[r], .events = POLLIN};
    }
    for (int r = 0; r < c->size; r++) {
        SW_TRY(advance(c, x, r, true));
        c->polls[r].events |= c->out[r].busy ? POLLOUT : 0;
    }
    while (is_busy(c)) {
        const double left = until - sw_now_s();
        if (left <= 0) {
            return say_late(c, x);
        }
        const int n = poll(c->polls, (nfds_t)c->size, (int)(left * 1000) + 1);
        if (n < 0 && errno != EINTR) {
            return SW_FAIL(SW_E_IO, "rank %d: poll: %s", c->rank, strerror(errno));
        }
        for (int r = 0; n > 0 && r < c->size; r++) {
            if (c->polls[r].revents) {
                SW_TRY(serve(c, x, r));
            }
        }
    }
    return SW_OK;
}

static sw_status exchange(void *ctx, const struct sw_exchange *x)
{
    char why[1024];
    const sw_status st = exchange_all(ctx, x);
    if (st >= 0) {
        return st;
    }
    snprintf(why, sizeof why, "%s", sw_error_message());
    finish_frames(ctx, x);
    return SW_FAIL(st, "%s", why);
}

/* ---- ending ---- */

static void give_up(void *ctx, sw_status reason)
{
    struct tcp *c = ctx;
    struct sw_comm_header h = {.abort = 1};
    const char *why = sw_error_message();
    snprintf(h.what, sizeof h.what, "%s", why[0] ? why : sw_status_string(reason));
    for (int r = 0; r < c->size; r++) {
        /* in the middle of a frame no message is possible; the broken connection tells */
        if (r != c->rank && c->fds[r] >= 0 && !is_in_frame(c, r)) {
            (void)!send(c->fds[r], &h, sizeof h, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
}

static void close_tcp(void *ctx, bool failed)
{
    (void)failed;
    struct tcp *c = ctx;
    for (int r = 0; c->fds && r < c->size; r++) {
        if (c->fds[r] >= 0) {
            shutdown(c->fds[r], SHUT_WR);
            close(c->fds[r]);
        }
    }
    sw_free(c->fds);
    sw_free(c->hosts);
    sw_free(c->out);
    sw_free(c->in);
    sw_free(c->polls);
    sw_free(c);
}

sw_status sw_tcp_open(const struct sw_tcp_options *options, struct sw_transport *out)
{
    if (options->size < 1 || options->rank < 0 || options->rank >= options->size) {
        return SW_FAIL(SW_E_ARG, "rank %d of %d ranks does not exist", options->rank,
                       options->size);
    }
    SW_TRY(sw_comm_check_deadline(options->deadline_s));
    const size_t n = (size_t)options->size;
    struct tcp *c = sw_alloc_zero("comm", 1, sizeof *c);
    SW_TRY_ALLOC(c, "connections");
    c->rank = options->rank;
    c->size = options->size;
    c->deadline_s = options->deadline_s;
    int *fds = sw_alloc("comm", n * sizeof *fds);
    c->hosts = sw_alloc_zero("comm", n, sizeof *c->hosts);
    c->out = sw_alloc_zero("comm", n, sizeof *c->out);
    c->in = sw_alloc_zero("comm", n, sizeof *c->in);
    c->polls = sw_alloc_zero("comm", n, sizeof *c->polls);
    sw_status st = fds && c->hosts && c->out && c->in && c->polls
                       ? sw_tcp_meet(options, fds, c->hosts)
                       : SW_FAIL(SW_E_NOMEM, "out of host memory for connections");
    if (st < 0) {
        sw_free(fds);
        close_tcp(c, true);
        return st;
    }
    c->fds = fds;
    *out = (struct sw_transport){.ctx = c,
                                 .rank = c->rank,
                                 .size = c->size,
                                 .exchange = exchange,
                                 .abort = give_up,
                                 .close = close_tcp};
    return SW_OK;
}
