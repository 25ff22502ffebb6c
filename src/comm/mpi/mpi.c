// SPDX-License-Identifier: Apache-2.0
// Exchanges over MPI point-to-point messages, which are polled. So every wait has a deadline and
// knows the rank it waits for, unlike MPI's own collectives. A header precedes each payload, so
// ranks in different operations find out instead of exchanging data. Payloads are split below 2^31
// bytes.
//
// A rank that waits for another one may wait for a third, which has stopped. So each tells its
// peers, before the deadline, for whom it waits, and when it does no more; an error then names the
// last one of such a chain.
//
// Each group has its own tags. Invariant: one lock is held during each call of MPI, and no call
// waits, so exchanges of different threads advance in turn.
#include "comm/mpi/mpi.h"
#include "comm/wait.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A group adds twice its number to the tags of its headers and payloads. MPI guarantees tags up to
 * 32767. */
enum { TAG_WAITS, TAG_ABORT, TAG_HEADER, TAG_PAYLOAD, MOST_GROUPS = 16000 };
enum { MOST_BYTES = 1 << 28 }; /* per MPI message: progress is seen when one has moved */
enum { NO_REQUEST = -1 };

/* One direction of the traffic with one peer. */
struct talk {
    enum phase { IDLE, HEADER, PAYLOAD } phase;
    int peer; /* its number in the group */
    struct sw_comm_header header;
    const struct sw_message *message, *end; /* the present one; the end of all messages */
    size_t done;                            /* payload bytes of it that are done */
    int request, chunk;
};

struct notice { /* announces that the sender cannot continue */
    char name[64], why[512];
};

struct wait { /* tells for whom the sender waits; empty = for nobody any more */
    char whom[256];
};

/* Common to the transport of all ranks and those of groups. */
struct job {
    const struct sw_mpi_module *module;
    pthread_mutex_t lock; /* of the module and all below */
    int rank, size;
    char (*hosts)[64];    /* [size] */
    struct wait *awaited; /* [size] as the ranks have told */
    struct told {         /* [size] to a rank; a request is NO_REQUEST or in flight */
        struct wait wait;
        int request;
    } * told;
    int n_telling; /* exchanges that have told for whom they wait */
    struct notice notice;
    bool ended;         /* a rank cannot go on */
    double grace_until; /* until then the others hear and report it */
    char why[1024];
};

struct mpi {
    struct job *job;
    int rank, size, number;   /* of the group; 0 = all ranks */
    int *ranks;               /* [size] in the job; NULL = the same */
    struct sw_comm_wait wait; /* in the present exchange */
    struct talk *out, *in;    /* [size] by peer */
    char name[sizeof((struct notice){0})
                  .name]; /* of this rank in its last exchange; "" = "rank N" */
};

static int job_rank(const struct mpi *m, int peer)
{
    return m->ranks ? m->ranks[peer] : peer;
}

static int tag_of(const struct mpi *m, int tag)
{
    return tag + 2 * m->number;
}

/* The lock is held. */
static sw_status mpi_failed(const struct mpi *m, int code, const char *call, int peer)
{
    char text[256];
    m->job->module->describe(code, text, sizeof text);
    return SW_FAIL(SW_E_PEER, "rank %d: %s with rank %d: MPI says: %s", m->job->rank, call,
                   job_rank(m, peer), text);
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

static sw_status post(struct mpi *m, struct talk *t, void *data, int bytes, int tag, bool sends)
{
    const struct sw_mpi_module *module = m->job->module;
    const int whom = job_rank(m, t->peer), whose = tag_of(m, tag);
    const int code = sends ? module->isend(data, bytes, whom, whose, &t->request)
                           : module->irecv(data, bytes, whom, whose, &t->request);
    return code == 0 ? SW_OK : mpi_failed(m, code, sends ? "sending" : "receiving", t->peer);
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
    return post(m, t, at, t->chunk, TAG_PAYLOAD, sends);
}

/* Starts the traffic with the peer of a message, once per peer. */
static sw_status start(struct mpi *m, const struct sw_exchange *x, const struct sw_message *message,
                       bool sends)
{
    struct talk *t = sends ? &m->out[message->peer] : &m->in[message->peer];
    if (t->phase != IDLE) {
        return SW_OK;
    }
    *t = (struct talk){.phase = HEADER,
                       .peer = message->peer,
                       .request = NO_REQUEST,
                       .message = message,
                       .end = sends ? x->sends + x->n_sends : x->receives + x->n_receives};
    if (sends) {
        sw_comm_header_fill(&t->header, x, message->peer, true);
    }
    return post(m, t, &t->header, (int)sizeof t->header, TAG_HEADER, sends);
}

/* Advances one direction as far as possible without waiting. */
static sw_status advance(struct mpi *m, const struct sw_exchange *x, struct talk *t, bool sends)
{
    while (t->phase != IDLE) {
        int done = 0;
        MPI_TRY(m, m->job->module->test(t->request, &done), sends ? "sending" : "receiving",
                t->peer);
        if (!done) {
            return SW_OK;
        }
        t->request = NO_REQUEST;
        if (t->phase == HEADER && !sends) {
            SW_TRY(sw_comm_header_check(&t->header, x, m->rank, t->peer));
        } else if (t->phase == PAYLOAD) {
            t->done += (size_t)t->chunk;
        }
        m->wait.moved[t->peer] = sw_now_s();
        SW_TRY(start_payload(m, t, sends));
    }
    return SW_OK;
}

/* ---- waiting ---- */

static const char *host_of(const struct job *job, int rank)
{
    return job->hosts[rank][0] ? job->hosts[rank] : "unknown host";
}

/* Hears whether a rank has announced that it cannot continue. Returns an error of MPI, or 0. */
static int hear_notice(struct job *job)
{
    const struct sw_mpi_module *module = job->module;
    int here = 0, peer = 0, request, done = 0;
    struct notice notice = {0};
    int code = module->probe(TAG_ABORT, &here, &peer);
    if (code != 0 || !here || job->ended) {
        return code;
    }
    code = module->irecv(&notice, sizeof notice, peer, TAG_ABORT, &request);
    while (code == 0 && !done) { /* it has arrived, so this does not wait */
        code = module->test(request, &done);
    }
    char name[2 * sizeof notice.name], why[sizeof job->why - 2 * sizeof name];
    notice.name[sizeof notice.name - 1] = notice.why[sizeof notice.why - 1] = '\0';
    snprintf(job->why, sizeof job->why, "%s (%s) cannot go on: %s",
             sw_plain_words(notice.name, name, sizeof name), host_of(job, peer),
             sw_plain_words(notice.why, why, sizeof why));
    job->ended = true;
    return code;
}

/* ---- chains of waits ---- */

/* Hears for whom ranks wait. Returns an error of MPI, or 0. The lock is held. */
static int hear_waits(struct job *job)
{
    const struct sw_mpi_module *module = job->module;
    int here = 1, peer = 0, request, code = 0;
    while (code == 0 && here) {
        struct wait wait;
        int done = 0;
        code = module->probe(TAG_WAITS, &here, &peer);
        if (code != 0 || !here) {
            break;
        }
        code = module->irecv(&wait, sizeof wait, peer, TAG_WAITS, &request);
        while (code == 0 && !done) { /* it has arrived, so this does not wait */
            code = module->test(request, &done);
        }
        wait.whom[sizeof wait.whom - 1] = '\0';
        sw_plain_words(wait.whom, job->awaited[peer].whom, sizeof job->awaited[peer].whom);
    }
    return code;
}

static bool is_awaited(const struct mpi *m, int peer)
{
    return m->in[peer].phase != IDLE || m->out[peer].phase != IDLE;
}

/* The ranks that this exchange waits for, with those that they have said to wait for. The lock is
 * held. */
static struct sw_str list_awaited(const struct mpi *m, const struct sw_exchange *x)
{
    struct sw_str list = {0};
    const double now = sw_now_s();
    for (int r = 0; r < m->size; r++) {
        const int rank = job_rank(m, r);
        const char *whom = m->job->awaited[rank].whom;
        char text[sizeof *m->job->hosts + sizeof *m->job->awaited + 16];
        if (is_awaited(m, r) && sw_comm_wait_is_long(&m->wait, r, now)) {
            snprintf(text, sizeof text, "%s%s%s", host_of(m->job, rank),
                     *whom ? ", waits for " : "", whom);
            sw_comm_list_rank(&list, x, r, text);
        }
    }
    return list;
}

/* Tells all other ranks for whom this one waits; "" = for nobody any more. That is left out for a
 * rank that has not taken the last word yet. The lock is held. */
static int tell_waits(struct job *job, const char *whom)
{
    int code = 0;
    for (int r = 0; r < job->size && code == 0; r++) {
        struct told *told = &job->told[r];
        int done = 1;
        if (told->request != NO_REQUEST) {
            code = job->module->test(told->request, &done);
            told->request = done || code != 0 ? NO_REQUEST : told->request;
        }
        if (code == 0 && done && r != job->rank) {
            snprintf(told->wait.whom, sizeof told->wait.whom, "%s", whom);
            code = job->module->isend(&told->wait, sizeof told->wait, r, TAG_WAITS, &told->request);
        }
    }
    return code;
}

/* Late in a wait: tells for whom, and tells again if a peer's notice changed that. said: what the
 * peers know */
static sw_status follow_chain(struct mpi *m, const struct sw_exchange *x, struct wait *said)
{
    struct wait now;
    pthread_mutex_lock(&m->job->lock);
    int code = hear_waits(m->job);
    struct sw_str whom = list_awaited(m, x);
    snprintf(now.whom, sizeof now.whom, "%.*s", (int)sizeof now.whom - 1, sw_str_text(&whom));
    sw_str_fini(&whom);
    if (code == 0 && strcmp(now.whom, said->whom) != 0) {
        m->job->n_telling += said->whom[0] == '\0';
        *said = now;
        code = tell_waits(m->job, now.whom);
    }
    const sw_status st = code == 0 ? SW_OK : mpi_failed(m, code, "telling a wait", m->rank);
    pthread_mutex_unlock(&m->job->lock);
    return st;
}

static sw_status say_late(const struct mpi *m, const struct sw_exchange *x)
{
    pthread_mutex_lock(&m->job->lock);
    struct sw_str missing = list_awaited(m, x);
    pthread_mutex_unlock(&m->job->lock);
    return sw_comm_late(x, m->rank, m->wait.deadline_s, &missing);
}

/* ---- the exchange ---- */

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

static sw_status start_all(struct mpi *m, const struct sw_exchange *x)
{
    snprintf(m->name, sizeof m->name, "%s", x->names ? x->names[m->rank] : "");
    for (int i = 0; i < x->n_receives; i++) {
        SW_TRY(start(m, x, &x->receives[i], false));
    }
    for (int i = 0; i < x->n_sends; i++) {
        SW_TRY(start(m, x, &x->sends[i], true));
    }
    return SW_OK;
}

/* One look at everything that this exchange waits for. The lock is held. */
static sw_status look(struct mpi *m, const struct sw_exchange *x, bool starts, bool *out_done)
{
    SW_TRY(starts ? start_all(m, x) : SW_OK);
    SW_TRY(advance_all(m, x, out_done));
    if (*out_done) {
        return SW_OK;
    }
    MPI_TRY(m, hear_notice(m->job), "listening", m->rank);
    return m->job->ended ? sw_comm_ended(x, m->rank, m->job->why) : SW_OK;
}

/* After a failure: other threads let MPI go on, and it must not write to memory that the caller of
 * this exchange frees. */
static void drop_receives(struct mpi *m)
{
    pthread_mutex_lock(&m->job->lock);
    for (int r = 0; r < m->size; r++) {
        if (m->in[r].phase != IDLE && m->in[r].request != NO_REQUEST) {
            m->job->module->cancel(m->in[r].request);
        }
    }
    pthread_mutex_unlock(&m->job->lock);
}

static sw_status look_locked(struct mpi *m, const struct sw_exchange *x, bool starts, bool tells,
                             bool *out_done)
{
    pthread_mutex_lock(&m->job->lock);
    const sw_status st = look(m, x, starts, out_done);
    if ((st < 0 || *out_done) && tells && --m->job->n_telling == 0 && st >= 0) {
        tell_waits(m->job, "");
    }
    pthread_mutex_unlock(&m->job->lock);
    return st;
}

/* When a byte last moved of the peer for which it has waited longest. */
static double waits_since(const struct mpi *m, double now)
{
    double since = now;
    for (int r = 0; r < m->size; r++) {
        since = is_awaited(m, r) && m->wait.moved[r] < since ? m->wait.moved[r] : since;
    }
    return since;
}

static sw_status run_exchange(struct mpi *m, const struct sw_exchange *x)
{
    struct wait said = {""};
    bool done = false;
    const double begin = sw_now_s();
    sw_comm_wait_start(&m->wait, m->size, begin);
    for (bool starts = true;; starts = false) {
        const sw_status st = look_locked(m, x, starts, said.whom[0] != 0, &done);
        if (st < 0 || done) {
            return st;
        }
        const double now = sw_now_s(), since = waits_since(m, now);
        double left;
        const enum sw_comm_wait_step step = sw_comm_wait_step(&m->wait, since, now, &left);
        if (step == SW_WAIT_LATE) {
            return say_late(m, x);
        }
        if (step == SW_WAIT_TELL || m->wait.told == since) { /* its peers' waits may change */
            SW_TRY(follow_chain(m, x, &said));
            m->wait.told = since;
        }
        give_way(now - begin);
    }
}

static sw_status exchange(void *ctx, const struct sw_exchange *x)
{
    const sw_status st = run_exchange(ctx, x);
    if (st < 0) {
        drop_receives(ctx);
    }
    return st;
}

/* ---- ending ---- */

/* Tells all others. The lock is held. */
static void tell_others(const struct mpi *m, sw_status reason)
{
    struct job *job = m->job;
    char name[SW_RANK_TEXT];
    snprintf(job->notice.name, sizeof job->notice.name, "%s",
             *m->name ? m->name : sw_comm_rank_text(NULL, job->rank, name));
    snprintf(job->notice.why, sizeof job->notice.why, "%s",
             sw_error_message()[0] ? sw_error_message() : sw_status_string(reason));
    snprintf(job->why, sizeof job->why, "%s", job->notice.why);
    for (int r = 0; r < job->size; r++) {
        int request;
        if (r != job->rank) {
            job->module->isend(&job->notice, sizeof job->notice, r, TAG_ABORT, &request);
        }
    }
}

/* Tells all others, and waits until they have heard and reported it themselves. When a process of
 * an MPI job fails, its launcher kills the rest. */
static void give_up(void *ctx, sw_status reason)
{
    struct mpi *m = ctx;
    struct job *job = m->job;
    pthread_mutex_lock(&job->lock);
    if (!job->ended) {
        tell_others(m, reason);
        job->ended = true;
    }
    if (job->grace_until == 0) {
        job->grace_until = sw_now_s() + (m->wait.deadline_s < 4 ? m->wait.deadline_s / 2 : 2);
    }
    while (sw_now_s() < job->grace_until) {
        int here, peer; /* makes MPI progress its messages */
        job->module->probe(TAG_ABORT, &here, &peer);
        pthread_mutex_unlock(&job->lock);
        give_way(1);
        pthread_mutex_lock(&job->lock);
    }
    pthread_mutex_unlock(&job->lock);
}

static void close_group(void *ctx, bool failed)
{
    (void)failed;
    struct mpi *m = ctx;
    sw_free(m->out);
    sw_free(m->in);
    sw_free(m->wait.moved);
    sw_free(m->ranks);
    sw_free(m);
}

static void close_mpi(void *ctx, bool failed)
{
    struct job *job = ((struct mpi *)ctx)->job;
    if (!failed && !job->ended) {
        pthread_mutex_lock(&job->lock);
        hear_waits(job);
        pthread_mutex_unlock(&job->lock);
        job->module->finalize(); /* waits for the others, so only if nothing failed */
    }
    close_group(ctx, failed);
    pthread_mutex_destroy(&job->lock);
    sw_free(job->hosts);
    sw_free(job->awaited);
    sw_free(job->told);
    sw_free(job);
}

/* ---- opening ---- */

static sw_status share_hosts(struct mpi *m)
{
    char(*hosts)[64] = m->job->hosts;
    struct sw_message *messages = sw_alloc_zero("comm", 2 * (size_t)m->size, sizeof *messages);
    SW_TRY_ALLOC(messages, "ranks");
    gethostname(hosts[m->rank], sizeof *hosts - 1);
    for (int i = 1; i < m->size; i++) {
        const int peer = (m->rank + i) % m->size;
        messages[i - 1] = (struct sw_message){peer, hosts[m->rank], sizeof *hosts};
        messages[m->size + i - 1] = (struct sw_message){peer, hosts[peer], sizeof *hosts};
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
        char name[sizeof *hosts];
        snprintf(name, sizeof name, "%.*s", (int)sizeof name - 1, hosts[r]);
        sw_plain_words(name, hosts[r], sizeof *hosts);
    }
    sw_free(messages);
    return st;
}

/* NULL = out of memory. */
static struct mpi *make_mpi(struct job *job, int rank, int size, double deadline_s)
{
    struct mpi *m = sw_alloc_zero("comm", 1, sizeof *m);
    if (!m) {
        return NULL;
    }
    *m = (struct mpi){.job = job, .rank = rank, .size = size, .wait.deadline_s = deadline_s};
    m->out = sw_alloc_zero("comm", (size_t)size, sizeof *m->out);
    m->in = sw_alloc_zero("comm", (size_t)size, sizeof *m->in);
    m->wait.moved = sw_alloc_zero("comm", (size_t)size, sizeof *m->wait.moved);
    if (!m->out || !m->in || !m->wait.moved) {
        close_group(m, true);
        return NULL;
    }
    return m;
}

static struct sw_transport transport_of(struct mpi *m)
{
    return (struct sw_transport){.ctx = m,
                                 .rank = m->rank,
                                 .size = m->size,
                                 .exchange = exchange,
                                 .abort = give_up,
                                 .deadline_s = m->wait.deadline_s,
                                 .close = close_group};
}

static sw_status open_group(void *ctx, const struct sw_group_options *o, const char *const *names,
                            struct sw_transport *out)
{
    const struct mpi *world = ctx;
    (void)names;
    if (o->number > MOST_GROUPS) {
        return SW_FAIL(SW_E_ARG, "a group with the number %d: wanted at most %d, over MPI",
                       o->number, MOST_GROUPS);
    }
    struct mpi *m = make_mpi(world->job, sw_comm_member(o, world->rank), o->n,
                             o->deadline_s > 0 ? o->deadline_s : world->wait.deadline_s);
    SW_TRY_ALLOC(m, "a group of ranks");
    m->number = o->number;
    m->ranks = sw_alloc("comm", (size_t)o->n * sizeof *m->ranks);
    if (!m->ranks) {
        close_group(m, true);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a group of ranks");
    }
    memcpy(m->ranks, o->ranks, (size_t)o->n * sizeof *m->ranks);
    *out = transport_of(m);
    return SW_OK;
}

sw_status sw_mpi_open(const struct sw_mpi_module *module, double deadline_s,
                      struct sw_transport *out)
{
    sw_status st = SW_OK;
    SW_TRY(sw_comm_check_deadline(deadline_s));
    struct mpi *m = NULL;
    struct job *job = sw_alloc_zero("comm", 1, sizeof *job);
    SW_TRY_ALLOC(job, "MPI");
    job->module = module;
    pthread_mutex_init(&job->lock, NULL);
    const int code = module->init(&job->rank, &job->size);
    if (code != 0) {
        char text[256];
        module->describe(code, text, sizeof text);
        st = SW_FAIL(SW_E_PEER, "MPI does not start: %s", text);
        goto close;
    }
    m = make_mpi(job, job->rank, job->size, deadline_s);
    job->hosts = sw_alloc_zero("comm", (size_t)job->size, sizeof *job->hosts);
    job->awaited = sw_alloc_zero("comm", (size_t)job->size, sizeof *job->awaited);
    job->told = sw_alloc_zero("comm", (size_t)job->size, sizeof *job->told);
    if (!m || !job->hosts || !job->awaited || !job->told) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for MPI");
        goto close;
    }
    for (int r = 0; r < job->size; r++) {
        job->told[r].request = NO_REQUEST;
    }
    SW_TRY_OR(close, share_hosts(m));
    *out = transport_of(m);
    out->close = close_mpi;
    out->open_group = open_group;
    return SW_OK;
close:
    if (m) {
        close_group(m, true);
    }
    pthread_mutex_destroy(&job->lock);
    sw_free(job->hosts);
    sw_free(job->awaited);
    sw_free(job->told);
    sw_free(job);
    return st;
}
