// SPDX-License-Identifier: Apache-2.0
// Exchanges over MPI point-to-point messages, which are polled. So every wait has a deadline and
// knows the rank it waits for, unlike MPI's own collectives. A header precedes each payload, so
// ranks in different operations find out instead of exchanging data. Payloads are split below 2^31
// bytes.
#include "comm/mpi/mpi.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAG_HEADER = 1, TAG_PAYLOAD, TAG_ABORT };
enum { MOST_BYTES = 1 << 30 }; /* per MPI message */
enum { NO_REQUEST = -1 };

/* One direction of the traffic with one peer. */
struct talk {
    enum phase { IDLE, HEADER, PAYLOAD } phase;
    int peer;
    struct sw_comm_header header;
    const struct sw_message *message, *end; /* the present one; the end of all messages */
    size_t done;                            /* payload bytes of it that are done */
    int request, chunk;
};

struct notice { /* announces that the sender cannot continue */
    char why[512];
};

struct mpi {
    const struct sw_mpi_module *module;
    int rank, size;
    double deadline_s;
    struct talk *out, *in; /* [size] by peer */
    char (*hosts)[64];     /* [size] */
    struct notice notice;
    bool ended;
};

static sw_status mpi_failed(const struct mpi *m, int code, const char *call, int peer)
{
    char text[256];
    m->module->describe(code, text, sizeof text);
    return SW_FAIL(SW_E_PEER, "rank %d: %s with rank %d: MPI says: %s", m->rank, call, peer, text);
}

#define MPI_TRY(m, call, name, peer)                                                               \
    do {                                                                                           \
        const int mpi_st = (call);                                                                 \
        if (mpi_st != 0) {                                                                         \
            return mpi_failed(m, mpi_st, name, peer);                                              \
        }                                                                                          \
    } while (0)

/* ---- one direction with one peer ---- */

static int chunk_of(const struct talk *t)
{
    const size_t left = t->message->bytes - t->done;
    return left > MOST_BYTES ? MOST_BYTES : (int)left;
}

/* Starts the next chunk of the present message, or the next message with this peer. */
static sw_status start_payload(struct mpi *m, struct talk *t, bool sends)
{
    const int peer = t->peer;
    while ((t->chunk = chunk_of(t)) == 0) {
        t->done = 0;
        do {
            if (++t->message == t->end) {
                t->phase = IDLE;
                return SW_OK;
            }
        } while (t->message->peer != peer);
    }
    char *at = (char *)t->message->data + t->done;
    t->phase = PAYLOAD;
    if (sends) {
        MPI_TRY(m, m->module->isend(at, t->chunk, peer, TAG_PAYLOAD, &t->request), "sending", peer);
    } else {
        MPI_TRY(m, m->module->irecv(at, t->chunk, peer, TAG_PAYLOAD, &t->request), "receiving",
                peer);
    }
    return SW_OK;
}

/* Starts the traffic with the peer of a message, once per peer. */
static sw_status start(struct mpi *m, const struct sw_exchange *x, const struct sw_message *message,
                       bool sends)
{
    struct talk *t = sends ? &m->out[message->peer] : &m->in[message->peer];
    const int bytes = (int)sizeof t->header;
    if (t->phase != IDLE) {
        return SW_OK;
    }
    *t = (struct talk){.phase = HEADER,
                       .peer = message->peer,
                       .message = message,
                       .end = sends ? x->sends + x->n_sends : x->receives + x->n_receives};
    if (!sends) {
        MPI_TRY(m, m->module->irecv(&t->header, bytes, message->peer, TAG_HEADER, &t->request),
                "receiving", message->peer);
        return SW_OK;
    }
    sw_comm_header_fill(&t->header, x, message->peer, true);
    MPI_TRY(m, m->module->isend(&t->header, bytes, message->peer, TAG_HEADER, &t->request),
            "sending", message->peer);
    return SW_OK;
}

/* Advances one direction as far as possible without waiting. */
static sw_status advance(struct mpi *m, const struct sw_exchange *x, struct talk *t, bool sends)
{
    while (t->phase != IDLE) {
        int done = 0;
        MPI_TRY(m, m->module->test(t->request, &done), sends ? "sending" : "receiving", t->peer);
        if (!done) {
            return SW_OK;
        }
        if (t->phase == HEADER && !sends) {
            SW_TRY(sw_comm_header_check(&t->header, x, m->rank, t->peer));
        } else if (t->phase == PAYLOAD) {
            t->done += (size_t)t->chunk;
        }
        SW_TRY(start_payload(m, t, sends));
    }
    return SW_OK;
}

/* ---- waiting ---- */

static const char *host_of(const struct mpi *m, int rank)
{
    return m->hosts[rank][0] ? m->hosts[rank] : "unknown host";
}

/* Fails if a rank has announced that it cannot continue. */
static sw_status look_for_notice(struct mpi *m, const struct sw_exchange *x)
{
    int here = 0, peer = 0, request, done = 0;
    struct notice notice = {0};
    MPI_TRY(m, m->module->probe(TAG_ABORT, &here, &peer), "listening", peer);
    if (!here) {
        return SW_OK;
    }
    MPI_TRY(m, m->module->irecv(&notice, sizeof notice, peer, TAG_ABORT, &request), "receiving",
            peer);
    while (!done) {
        MPI_TRY(m, m->module->test(request, &done), "receiving", peer);
    }
    m->ended = true;
    char why[1024];
    notice.why[sizeof notice.why - 1] = '\0';
    return SW_FAIL(SW_E_PEER, "rank %d at %s of %s: rank %d (%s) cannot go on: %s", m->rank, x->op,
                   x->what, peer, host_of(m, peer), sw_plain_words(notice.why, why, sizeof why));
}

static sw_status say_late(const struct mpi *m, const struct sw_exchange *x)
{
    struct sw_str missing = {0};
    for (int r = 0; r < m->size; r++) {
        if (m->in[r].phase != IDLE || m->out[r].phase != IDLE) {
            sw_str_printf(&missing, "%s%d (%s)", missing.len ? ", " : "", r, host_of(m, r));
        }
    }
    const sw_status st = SW_FAIL(SW_E_PEER, "rank %d waited %.3g s for rank %s at %s of %s",
                                 m->rank, m->deadline_s, sw_str_text(&missing), x->op, x->what);
    sw_str_fini(&missing);
    return st;
}

/* There may be fewer processors than ranks: it yields first, and sleeps later. */
static void give_way(double waited_s)
{
    if (waited_s < 0.0005) {
        sched_yield();
    } else {
        const struct timespec t = {0, waited_s < 0.05 ? 20000 : 200000};
        nanosleep(&t, NULL);
    }
}

static sw_status advance_all(struct mpi *m, const struct sw_exchange *x, bool *out_done)
{
    *out_done = true;
    for (int i = 0; i < x->n_sends; i++) {
        struct talk *t = &m->out[x->sends[i].peer];
        SW_TRY(advance(m, x, t, true));
        *out_done &= t->phase == IDLE;
    }
    for (int i = 0; i < x->n_receives; i++) {
        struct talk *t = &m->in[x->receives[i].peer];
        SW_TRY(advance(m, x, t, false));
        *out_done &= t->phase == IDLE;
    }
    return SW_OK;
}

static sw_status exchange(void *ctx, const struct sw_exchange *x)
{
    struct mpi *m = ctx;
    const double begin = sw_now_s();
    bool done = false;
    for (int i = 0; i < x->n_receives; i++) {
        SW_TRY(start(m, x, &x->receives[i], false));
    }
    for (int i = 0; i < x->n_sends; i++) {
        SW_TRY(start(m, x, &x->sends[i], true));
    }
    for (;;) {
        SW_TRY(advance_all(m, x, &done));
        if (done) {
            return SW_OK;
        }
        const double waited = sw_now_s() - begin;
        SW_TRY(look_for_notice(m, x));
        if (waited > m->deadline_s) {
            return say_late(m, x);
        }
        give_way(waited);
    }
}

/* ---- ending ---- */

/* Tells all others, and waits until they have heard and reported it themselves. When a process of
 * an MPI job fails, its launcher kills the rest. */
static void give_up(void *ctx, sw_status reason)
{
    struct mpi *m = ctx;
    const double grace_s = m->deadline_s < 4 ? m->deadline_s / 2 : 2;
    const double begin = sw_now_s();
    snprintf(m->notice.why, sizeof m->notice.why, "%s",
             sw_error_message()[0] ? sw_error_message() : sw_status_string(reason));
    for (int r = 0; r < m->size && !m->ended; r++) {
        int request;
        if (r != m->rank) {
            m->module->isend(&m->notice, sizeof m->notice, r, TAG_ABORT, &request);
        }
    }
    while (sw_now_s() - begin < grace_s) {
        int here, peer; /* makes MPI progress its messages */
        m->module->probe(TAG_ABORT, &here, &peer);
        give_way(1);
    }
    m->ended = true;
}

static void close_mpi(void *ctx, bool failed)
{
    struct mpi *m = ctx;
    if (!failed && !m->ended) {
        m->module->finalize(); /* waits for the others, so only if nothing failed */
    }
    sw_free(m->out);
    sw_free(m->in);
    sw_free(m->hosts);
    sw_free(m);
}

/* ---- opening ---- */

static sw_status share_hosts(struct mpi *m)
{
    struct sw_message *messages = sw_alloc_zero("comm", 2 * (size_t)m->size, sizeof *messages);
    SW_TRY_ALLOC(messages, "ranks");
    gethostname(m->hosts[m->rank], sizeof *m->hosts - 1);
    for (int i = 1; i < m->size; i++) {
        const int peer = (m->rank + i) % m->size;
        messages[i - 1] = (struct sw_message){peer, m->hosts[m->rank], sizeof *m->hosts};
        messages[m->size + i - 1] = (struct sw_message){peer, m->hosts[peer], sizeof *m->hosts};
    }
    const struct sw_exchange x = {.op = "all_gather",
                                  .what = "the names of hosts",
                                  .sequence = -1,
                                  .sends = messages,
                                  .receives = messages + m->size,
                                  .n_sends = m->size - 1,
                                  .n_receives = m->size - 1};
    const sw_status st = exchange(m, &x);
    for (int r = 0; st >= 0 && r < m->size; r++) {
        char name[sizeof *m->hosts];
        snprintf(name, sizeof name, "%.*s", (int)sizeof name - 1, m->hosts[r]);
        sw_plain_words(name, m->hosts[r], sizeof *m->hosts);
    }
    sw_free(messages);
    return st;
}

sw_status sw_mpi_open(const struct sw_mpi_module *module, double deadline_s,
                      struct sw_transport *out)
{
    sw_status st = SW_OK;
    SW_TRY(sw_comm_check_deadline(deadline_s));
    struct mpi *m = sw_alloc_zero("comm", 1, sizeof *m);
    SW_TRY_ALLOC(m, "MPI");
    m->module = module;
    m->deadline_s = deadline_s;
    const int code = module->init(&m->rank, &m->size);
    if (code != 0) {
        char text[256];
        module->describe(code, text, sizeof text);
        st = SW_FAIL(SW_E_PEER, "MPI does not start: %s", text);
        goto close;
    }
    m->out = sw_alloc_zero("comm", (size_t)m->size, sizeof *m->out);
    m->in = sw_alloc_zero("comm", (size_t)m->size, sizeof *m->in);
    m->hosts = sw_alloc_zero("comm", (size_t)m->size, sizeof *m->hosts);
    if (!m->out || !m->in || !m->hosts) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for MPI");
        goto close;
    }
    SW_TRY_OR(close, share_hosts(m));
    *out = (struct sw_transport){.ctx = m,
                                 .rank = m->rank,
                                 .size = m->size,
                                 .exchange = exchange,
                                 .abort = give_up,
                                 .close = close_mpi};
    return SW_OK;
close:
    close_mpi(m, true);
    return st;
}
