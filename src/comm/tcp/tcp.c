// SPDX-License-Identifier: Apache-2.0
// Exchanges over a socket to every other rank. A frame is a header, which names the operation,
// followed by the messages. A broken connection means that the rank is gone, which is known at
// once. A silent rank is known at the deadline.
//
// A rank that waits for another one may wait for a third, which has stopped. So each tells its
// peers, before the deadline, for whom it waits; an error then names the last one of such a chain.
//
// A group has sockets of its own, so the messages of different groups never wait for each other.
// Invariant: only the thread that is in an exchange of a group writes to its sockets; if there is
// none, whoever ends the job writes the reason.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "comm/tcp/tcp.h"
#include "comm/wait.h"

/* One direction of the traffic with one peer. */
struct talk {
    bool busy;
    struct sw_comm_header header;
    size_t header_done, done; /* bytes done of the header, and of the present message */
    const struct sw_message *message, *end;
};

/* Common to the transport of all ranks and those of groups. */
struct hub {
    pthread_mutex_t lock; /* of all below */
    bool ended;           /* this rank cannot go on */
    bool of_peer;         /* because another one cannot, which `why` names */
    char why[sizeof((struct sw_comm_header){0}).what];
    int wake;          /* readable once `ended` */
    struct tcp *first; /* open transports */
    int n_files;
    struct sw_job_secret secret;
};

struct tcp {
    struct hub *hub;
    struct tcp *next;
    bool busy, told; /* a thread is in an exchange; the peers know that this rank has ended */
    int rank, size;
    struct sw_comm_wait wait; /* in the present exchange */
    bool has_news;            /* a peer that it waits for has said for whom it waits itself */
    int *fds;                 /* [size] */
    char (*awaited)[sizeof((struct sw_comm_header){0}).what]; /* [size] for whom a peer waits */
    char (*hosts)[SW_TCP_HOST_CAP];
    struct talk *out, *in; /* [size] */
    struct pollfd *polls;  /* [size + 1] the last one is hub->wake */
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
    char me[SW_RANK_TEXT], them[SW_RANK_TEXT], where[SW_WHERE_TEXT];
    return SW_FAIL(SW_E_PEER, "%s at %s: %s (%s) is gone: %s",
                   sw_comm_rank_text(x->names, c->rank, me), sw_comm_where(x, where),
                   sw_comm_rank_text(x->names, peer, them), c->hosts[peer],
                   error ? strerror(error) : "it closed the connection");
}

/* The lock is held. The first reason counts. */
static void end(struct hub *hub, const char *why, bool of_peer)
{
    const uint64_t one = 1;
    if (!hub->ended) {
        hub->ended = true;
        hub->of_peer = of_peer;
        snprintf(hub->why, sizeof hub->why, "%.*s", (int)sizeof hub->why - 1, why);
        (void)!write(hub->wake, &one, sizeof one);
    }
}

/* A notice that is passed on names the rank that it is about. */
static sw_status say_aborted(struct tcp *c, const struct sw_exchange *x, int peer,
                             struct sw_comm_header *h)
{
    char them[SW_RANK_TEXT], plain[1024], why[1280];
    h->what[sizeof h->what - 1] = '\0';
    sw_plain_words(h->what, plain, sizeof plain);
    if (h->notice == SW_ABORT_OF_PEER) {
        snprintf(why, sizeof why, "%s", plain);
    } else {
        snprintf(why, sizeof why, "%s (%s) cannot go on: %s",
                 sw_comm_rank_text(x->names, peer, them), c->hosts[peer], plain);
    }
    pthread_mutex_lock(&c->hub->lock);
    end(c->hub, why, true);
    pthread_mutex_unlock(&c->hub->lock);
    return sw_comm_ended(x, c->rank, why);
}

static bool is_awaited(const struct tcp *c, int peer)
{
    return c->in[peer].busy || c->out[peer].busy;
}

/* The ranks that this exchange waits for, with those that they have said to wait for. */
static struct sw_str list_awaited(const struct tcp *c, const struct sw_exchange *x)
{
    struct sw_str list = {0};
    const double now = sw_now_s();
    for (int r = 0; r < c->size; r++) {
        char text[SW_TCP_HOST_CAP + sizeof *c->awaited + 16];
        const char *for_whom = c->awaited[r];
        if (is_awaited(c, r) && sw_comm_wait_is_long(&c->wait, r, now)) {
            snprintf(text, sizeof text, "%s%s%s", c->hosts[r], *for_whom ? ", waits for " : "",
                     for_whom);
            sw_comm_list_rank(&list, x, r, text);
        }
    }
    return list;
}

static sw_status say_late(const struct tcp *c, const struct sw_exchange *x)
{
    struct sw_str missing = list_awaited(c, x);
    return sw_comm_late(x, c->rank, c->wait.deadline_s, &missing);
}

/* Notes for whom a peer waits. That it waits for this rank is no news. A notice that comes early is
 * of a wait that has ended: if it had not, its sender's deadline would pass before this one's. */
static void note_awaited(struct tcp *c, const struct sw_exchange *x, int peer,
                         struct sw_comm_header *h)
{
    char me[SW_RANK_TEXT], mine[128];
    h->what[sizeof h->what - 1] = '\0';
    snprintf(mine, sizeof mine, "%.100s (", sw_comm_rank_text(x->names, c->rank, me));
    const double waited = sw_now_s() - c->wait.moved[peer];
    if (waited > c->wait.deadline_s / 4 && !strstr(h->what, mine)) {
        sw_plain_words(h->what, c->awaited[peer], sizeof c->awaited[peer]);
        c->has_news |= is_awaited(c, peer);
    }
}

/* Tells the peers on all connections that no thread uses. If many bytes are under way, a notice
 * might be cut; a few, such as an earlier notice without a reply, leave room. */
static void tell_awaited(struct tcp *c, const struct sw_exchange *x)
{
    struct sw_comm_header h = {.notice = SW_NOTICE_OF_WAIT};
    struct sw_str list = list_awaited(c, x);
    snprintf(h.what, sizeof h.what, "%s", sw_str_text(&list));
    sw_str_fini(&list);
    c->has_news = false;
    pthread_mutex_lock(&c->hub->lock);
    for (struct tcp *to = c->hub->ended ? NULL : c->hub->first; to; to = to->next) {
        for (int r = 0; !to->busy && r < to->size; r++) {
            int under_way = 0;
            if (r != to->rank && to->fds[r] >= 0 && ioctl(to->fds[r], SIOCOUTQ, &under_way) == 0 &&
                under_way <= 4 * (int)sizeof h) {
                (void)!send(to->fds[r], &h, sizeof h, MSG_NOSIGNAL | MSG_DONTWAIT);
            }
        }
    }
    pthread_mutex_unlock(&c->hub->lock);
}

/* Another thread of this rank has failed, or was told to end. */
static sw_status say_ended(const struct tcp *c, const struct sw_exchange *x)
{
    char why[sizeof c->hub->why];
    pthread_mutex_lock(&c->hub->lock);
    memcpy(why, c->hub->why, sizeof why);
    pthread_mutex_unlock(&c->hub->lock);
    return sw_comm_ended(x, c->rank, why);
}

static sw_status check_header(struct tcp *c, const struct sw_exchange *x, int peer)
{
    struct sw_comm_header *theirs = &c->in[peer].header;
    if (theirs->notice == SW_NOTICE_OF_WAIT) {
        note_awaited(c, x, peer, theirs);
        c->in[peer].header_done = 0;
        return SW_OK;
    }
    return theirs->notice ? say_aborted(c, x, peer, theirs)
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
            if (out->notice && out->notice != SW_NOTICE_OF_WAIT) {
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
        } else {
            t->header_done += n;
        }
        if (heads && !sends && t->header_done == sizeof t->header) {
            SW_TRY(check_header(c, x, peer));
        }
        /* a received header is one of a frame when all of it is here, and may be a notice before */
        if (n > 0 && (sends || t->header_done == sizeof t->header)) {
            c->wait.moved[peer] = sw_now_s();
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
    const bool tells = (size_t)n == sizeof h && h.notice;
    if (tells && h.notice != SW_NOTICE_OF_WAIT) {
        return say_aborted(c, x, peer, &h);
    }
    if (tells) {
        note_awaited(c, x, peer, &h);
        (void)!recv(c->fds[peer], &h, sizeof h, MSG_DONTWAIT);
    }
    *out_ahead = !tells;
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

/* *out_since: when a byte last moved of the peer for which it has waited longest */
static bool is_busy(const struct tcp *c, double *out_since)
{
    bool busy = false;
    for (int r = 0; r < c->size; r++) {
        if (is_awaited(c, r)) {
            *out_since = busy && *out_since < c->wait.moved[r] ? *out_since : c->wait.moved[r];
            busy = true;
        }
    }
    return busy;
}

static bool is_in_frame(const struct tcp *c, int peer)
{
    return c->out[peer].busy && c->out[peer].header_done > 0;
}

/* After a failure of this exchange: completes frames for peers that wait for the rest, if they
 * accept it soon. Otherwise they could not receive the reason, and would blame this rank. */
static void finish_frames(struct tcp *c, const struct sw_exchange *x)
{
    const double until = sw_now_s() + (c->wait.deadline_s < 1 ? c->wait.deadline_s : 1);
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

/* Messages to and from all peers begin; none has moved yet. */
static void start_all(struct tcp *c, const struct sw_exchange *x)
{
    sw_comm_wait_start(&c->wait, c->size, sw_now_s());
    c->has_news = false;
    for (int r = 0; r < c->size; r++) {
        c->awaited[r][0] = '\0';
        start(&c->out[r], x, r, true);
        start(&c->in[r], x, r, false);
        c->polls[r] = (struct pollfd){.fd = c->fds[r], .events = POLLIN};
    }
    c->polls[c->size] = (struct pollfd){.fd = c->hub->wake, .events = POLLIN};
}

static sw_status exchange_all(struct tcp *c, const struct sw_exchange *x)
{
    double since, left;
    start_all(c, x);
    for (int r = 0; r < c->size; r++) {
        SW_TRY(advance(c, x, r, true));
        c->polls[r].events |= c->out[r].busy ? POLLOUT : 0;
    }
    while (is_busy(c, &since)) {
        const enum sw_comm_wait_step step = sw_comm_wait_step(&c->wait, since, sw_now_s(), &left);
        if (step == SW_WAIT_LATE) {
            return say_late(c, x);
        }
        if (step == SW_WAIT_TELL || (c->has_news && c->wait.told == since)) {
            tell_awaited(c, x);
            c->wait.told = since;
            continue;
        }
        const int n = poll(c->polls, (nfds_t)c->size + 1, (int)(left * 1000) + 1);
        if (n < 0 && errno != EINTR) {
            return SW_FAIL(SW_E_IO, "rank %d: poll: %s", c->rank, strerror(errno));
        }
        for (int r = 0; n > 0 && r < c->size; r++) {
            if (c->polls[r].revents) {
                SW_TRY(serve(c, x, r));
            }
        }
        if (n > 0 && c->polls[c->size].revents && is_busy(c, &since)) {
            return say_ended(c, x);
        }
    }
    return SW_OK;
}

/* Tells the peers why this rank ends. The lock of the hub is held, and no thread is in an exchange
 * of this transport. */
static void tell_peers(struct tcp *c)
{
    struct sw_comm_header h = {.notice = c->hub->of_peer ? SW_ABORT_OF_PEER : SW_ABORT_OF_SENDER};
    memcpy(h.what, c->hub->why, sizeof h.what);
    c->told = true;
    for (int r = 0; r < c->size; r++) {
        /* in the middle of a frame no message is possible; the broken connection tells */
        if (r != c->rank && c->fds[r] >= 0 && !is_in_frame(c, r)) {
            (void)!send(c->fds[r], &h, sizeof h, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
}

static bool begin(struct tcp *c)
{
    pthread_mutex_lock(&c->hub->lock);
    c->busy = !c->hub->ended;
    pthread_mutex_unlock(&c->hub->lock);
    return c->busy;
}

static void finish(struct tcp *c)
{
    pthread_mutex_lock(&c->hub->lock);
    c->busy = false;
    if (c->hub->ended && !c->told) {
        tell_peers(c);
    }
    pthread_mutex_unlock(&c->hub->lock);
}

static sw_status exchange(void *ctx, const struct sw_exchange *x)
{
    struct tcp *c = ctx;
    char why[1024];
    if (!begin(c)) {
        return say_ended(c, x);
    }
    sw_status st = exchange_all(c, x);
    if (st < 0) {
        snprintf(why, sizeof why, "%s", sw_error_message());
        finish_frames(c, x);
        st = SW_FAIL(st, "%s", why);
    }
    finish(c);
    return st;
}

/* ---- ending ---- */

static void give_up(void *ctx, sw_status reason)
{
    struct hub *hub = ((struct tcp *)ctx)->hub;
    const char *why = sw_error_message();
    pthread_mutex_lock(&hub->lock);
    end(hub, why[0] ? why : sw_status_string(reason), false);
    for (struct tcp *c = hub->first; c; c = c->next) {
        if (!c->busy && !c->told) {
            tell_peers(c);
        }
    }
    pthread_mutex_unlock(&hub->lock);
}

/* Notices that nobody has read would make the kernel cut off what the peer has yet to read. */
static void close_quietly(int fd)
{
    char lost[4096];
    shutdown(fd, SHUT_WR);
    while (recv(fd, lost, sizeof lost, MSG_DONTWAIT) > 0) {
    }
    close(fd);
}

static void free_tcp(struct tcp *c)
{
    for (int r = 0; c->fds && r < c->size; r++) {
        if (c->fds[r] >= 0) {
            close_quietly(c->fds[r]);
        }
    }
    sw_free(c->fds);
    sw_free(c->hosts);
    sw_free(c->awaited);
    sw_free(c->wait.moved);
    sw_free(c->out);
    sw_free(c->in);
    sw_free(c->polls);
    sw_free(c);
}

static void free_hub(struct hub *hub)
{
    if (hub->wake >= 0) {
        close(hub->wake);
    }
    pthread_mutex_destroy(&hub->lock);
    sw_free(hub);
}

static void close_group(void *ctx, bool failed)
{
    (void)failed;
    struct tcp *c = ctx;
    struct tcp **at = &c->hub->first;
    pthread_mutex_lock(&c->hub->lock);
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    c->hub->n_files -= c->size;
    pthread_mutex_unlock(&c->hub->lock);
    free_tcp(c);
}

static void close_tcp(void *ctx, bool failed)
{
    struct hub *hub = ((struct tcp *)ctx)->hub;
    close_group(ctx, failed);
    free_hub(hub);
}

/* ---- opening ---- */

/* Without connections so far. */
static struct tcp *make_tcp(struct hub *hub, int rank, int size, double deadline_s)
{
    const size_t n = (size_t)size;
    struct tcp *c = sw_alloc_zero("comm", 1, sizeof *c);
    if (!c) {
        return NULL;
    }
    *c = (struct tcp){.hub = hub, .rank = rank, .size = size, .wait.deadline_s = deadline_s};
    c->fds = sw_alloc("comm", n * sizeof *c->fds);
    c->hosts = sw_alloc_zero("comm", n, sizeof *c->hosts);
    c->awaited = sw_alloc_zero("comm", n, sizeof *c->awaited);
    c->wait.moved = sw_alloc_zero("comm", n, sizeof *c->wait.moved);
    c->out = sw_alloc_zero("comm", n, sizeof *c->out);
    c->in = sw_alloc_zero("comm", n, sizeof *c->in);
    c->polls = sw_alloc_zero("comm", n + 1, sizeof *c->polls);
    for (size_t r = 0; c->fds && r < n; r++) {
        c->fds[r] = -1;
    }
    if (!c->fds || !c->hosts || !c->awaited || !c->wait.moved || !c->out || !c->in || !c->polls) {
        free_tcp(c);
        return NULL;
    }
    return c;
}

/* The transport is connected; failures of others end it from now on. */
static void add_tcp(struct tcp *c, struct sw_transport *out)
{
    pthread_mutex_lock(&c->hub->lock);
    c->next = c->hub->first;
    c->hub->first = c;
    c->hub->n_files += c->size;
    pthread_mutex_unlock(&c->hub->lock);
    *out = (struct sw_transport){.ctx = c,
                                 .rank = c->rank,
                                 .size = c->size,
                                 .exchange = exchange,
                                 .abort = give_up,
                                 .deadline_s = c->wait.deadline_s,
                                 .close = close_group};
}

/* The members of a group, who use the connections of the world. */
struct swap {
    struct tcp *world;
    const struct sw_group_options *group;
    struct sw_message *messages; /* [2 n] */
};

static sw_status swap_ports(void *ctx, uint32_t mine, uint32_t *out_ports)
{
    const struct swap *s = ctx;
    struct sw_message *sends = s->messages, *receives = s->messages + s->group->n;
    int n = 0;
    for (int i = 0; i < s->group->n; i++) {
        const int peer = s->group->ranks[i];
        if (peer != s->world->rank) {
            sends[n] = (struct sw_message){peer, &mine, sizeof mine};
            receives[n++] = (struct sw_message){peer, &out_ports[i], sizeof *out_ports};
        }
    }
    const struct sw_exchange x = {.op = "open_group",
                                  .what = "ports",
                                  .sequence = -1,
                                  .sends = sends,
                                  .receives = receives,
                                  .n_sends = n,
                                  .n_receives = n,
                                  .group_name = s->group->name};
    return exchange(s->world, &x);
}

static sw_status connect_group(struct tcp *world, const struct sw_group_options *o,
                               const char *const *names, struct tcp *c)
{
    struct swap swap = {.world = world, .group = o};
    const size_t n = (size_t)o->n;
    int *fds = sw_alloc("comm", n * sizeof *fds);
    swap.messages = sw_alloc_zero("comm", 2 * n, sizeof *swap.messages);
    for (int i = 0; fds && i < o->n; i++) {
        fds[i] = world->fds[o->ranks[i]];
        memcpy(c->hosts[i], world->hosts[o->ranks[i]], sizeof *c->hosts);
    }
    const struct sw_tcp_party party = {.group = o,
                                       .names = names,
                                       .rank = c->rank,
                                       .deadline_s = c->wait.deadline_s,
                                       .secret = &world->hub->secret,
                                       .fds = fds,
                                       .hosts = c->hosts,
                                       .swap_ports = swap_ports,
                                       .ctx = &swap};
    const sw_status st = fds && swap.messages
                             ? sw_tcp_meet_group(&party, c->fds)
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for connections");
    sw_free(fds);
    sw_free(swap.messages);
    return st;
}

static sw_status open_group(void *ctx, const struct sw_group_options *o, const char *const *names,
                            struct sw_transport *out)
{
    struct tcp *world = ctx;
    struct hub *hub = world->hub;
    pthread_mutex_lock(&hub->lock);
    const int n_files = hub->n_files + o->n;
    pthread_mutex_unlock(&hub->lock);
    struct tcp *c = make_tcp(hub, sw_comm_member(o, world->rank), o->n,
                             o->deadline_s > 0 ? o->deadline_s : world->wait.deadline_s);
    SW_TRY_ALLOC(c, "connections");
    sw_status st = sw_allow_files(n_files + SW_TCP_SPARE_FILES);
    st = st < 0 ? st : connect_group(world, o, names, c);
    if (st < 0) {
        free_tcp(c);
        return st;
    }
    add_tcp(c, out);
    return SW_OK;
}

static sw_status make_hub(const struct sw_tcp_options *options, struct hub **out)
{
    struct hub *hub = sw_alloc_zero("comm", 1, sizeof *hub);
    SW_TRY_ALLOC(hub, "connections");
    pthread_mutex_init(&hub->lock, NULL);
    hub->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sw_status st = hub->wake < 0
                       ? SW_FAIL(SW_E_IO, "rank %d: eventfd: %s", options->rank, strerror(errno))
                       : sw_tcp_keep_secret(options, &hub->secret);
    if (st < 0) {
        free_hub(hub);
        return st;
    }
    *out = hub;
    return SW_OK;
}

sw_status sw_tcp_open(const struct sw_tcp_options *options, struct sw_transport *out)
{
    if (options->size < 1 || options->rank < 0 || options->rank >= options->size) {
        return SW_FAIL(SW_E_ARG, "rank %d of %d ranks does not exist", options->rank,
                       options->size);
    }
    struct hub *hub;
    SW_TRY(sw_comm_check_deadline(options->deadline_s));
    SW_TRY(make_hub(options, &hub));
    struct tcp *c = make_tcp(hub, options->rank, options->size, options->deadline_s);
    sw_status st = c ? sw_tcp_meet(options, &hub->secret, c->fds, c->hosts)
                     : SW_FAIL(SW_E_NOMEM, "out of host memory for connections");
    if (st < 0) {
        if (c) {
            free_tcp(c);
        }
        free_hub(hub);
        return st;
    }
    add_tcp(c, out);
    out->close = close_tcp;
    out->open_group = open_group;
    return SW_OK;
}
