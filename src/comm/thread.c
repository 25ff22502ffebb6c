// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process. A sender exposes its bytes, the receiver copies them, and the
// sender returns when all of them were taken. No message is buffered.
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"

enum state { EMPTY, SHOWN, COPIED_NOW };

struct post { /* messages from one rank to another */
    enum state state;
    const struct sw_exchange *exchange;
};

struct world {
    pthread_mutex_t lock; /* of all rooms, too */
    bool ended;           /* a rank cannot continue */
    char why[512];        /* the first reason given */
    struct room *rooms;   /* the one of all ranks, then those of groups, oldest first */
};

/* Ranks that exchange messages with each other: all of them, or a group. */
struct room {
    struct world *world;
    struct room *next;
    pthread_cond_t changed;
    atomic_uint n_changes; /* lets a rank spin for a while before it sleeps */
    int number, size, n_open;
    int *ranks;         /* [size] in the world */
    struct post *posts; /* [from, to] */
    struct member {
        struct room *room;
        int rank;
        bool joined;
        double deadline_s;
        const struct sw_exchange *present; /* its exchange; NULL = it is in none */
        char name[128];                    /* of this rank in its last exchange; "" = "rank N" */
        bool *received;                    /* [size] by sender, for the present exchange */
    } * members;
    bool *received; /* [size, size] */
};

static struct post *post_of(struct room *room, int from, int to)
{
    return &room->posts[from * room->size + to];
}

static void tell(struct room *room)
{
    atomic_fetch_add(&room->n_changes, 1);
    pthread_cond_broadcast(&room->changed);
}

static void end(struct world *w, const char *why)
{
    if (!w->ended) {
        w->ended = true;
        snprintf(w->why, sizeof w->why, "%s", why);
    }
    for (struct room *room = w->rooms; room; room = room->next) {
        tell(room);
    }
}

/* ---- one exchange. The lock is held, except while copying ---- */

/* The next message to or from `peer`, at or after `from`; NULL = none. */
static const struct sw_message *next_with(const struct sw_message *from,
                                          const struct sw_message *end, int peer)
{
    while (from < end && from->peer != peer) {
        from++;
    }
    return from < end ? from : NULL;
}

static const struct sw_message *first_send(const struct sw_exchange *x, int peer)
{
    return next_with(x->sends, x->sends + x->n_sends, peer);
}

static const struct sw_message *first_receive(const struct sw_exchange *x, int peer)
{
    return next_with(x->receives, x->receives + x->n_receives, peer);
}

static void show(struct member *m, const struct sw_exchange *x)
{
    snprintf(m->name, sizeof m->name, "%s", x->names ? x->names[m->rank] : "");
    m->present = x;
    for (int r = 0; r < m->room->size; r++) {
        m->received[r] = !first_receive(x, r);
        if (first_send(x, r)) {
            *post_of(m->room, m->rank, r) = (struct post){SHOWN, x};
        }
    }
    tell(m->room);
}

static size_t sum_bytes(const struct sw_message *messages, int n, int peer)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += messages[i].peer == peer ? messages[i].bytes : 0;
    }
    return sum;
}

/* A message that this rank wants, and the one of a peer in its place; NULL = there are no more. */
struct pair {
    const struct sw_message *want, *have;
    int number; /* from 1 */
};

static struct pair next_pair(const struct member *m, const struct sw_exchange *x, int from,
                             const struct sw_exchange *theirs, const struct pair *last)
{
    const struct sw_message *want = last ? last->want + 1 : x->receives;
    const struct sw_message *have = last ? last->have + 1 : theirs->sends;
    return (struct pair){.want = next_with(want, x->receives + x->n_receives, from),
                         .have = next_with(have, theirs->sends + theirs->n_sends, m->rank),
                         .number = last ? last->number + 1 : 1};
}

/* The first pair that does not fit; two NULL if all do. Copies those before it if `really`. */
static struct pair copy(const struct member *m, const struct sw_exchange *x, int from,
                        const struct sw_exchange *theirs, bool really)
{
    struct pair p = next_pair(m, x, from, theirs, NULL);
    while (p.want && p.have && p.want->bytes == p.have->bytes) {
        if (really && p.want->bytes > 0) {
            memcpy(p.want->data, p.have->data, p.want->bytes);
        }
        p = next_pair(m, x, from, theirs, &p);
    }
    return p;
}

/* Fails unless the messages of `from` are those that this rank wants. */
static sw_status check(const struct member *m, const struct sw_exchange *x, int from,
                       const struct sw_exchange *theirs)
{
    const bool same = theirs->sequence == x->sequence && strcmp(theirs->op, x->op) == 0 &&
                      strcmp(theirs->what, x->what) == 0;
    const struct pair p = same ? copy(m, x, from, theirs, false) : (struct pair){.number = 0};
    if (same && !p.want && !p.have) {
        return SW_OK;
    }
    if (p.want && p.have) {
        char how[100];
        snprintf(how, sizeof how, "message %d has %zu bytes, wanted %zu", p.number, p.have->bytes,
                 p.want->bytes);
        return sw_comm_misfit(x, m->rank, from, how);
    }
    return sw_comm_diverged(x, m->rank, sum_bytes(x->receives, x->n_receives, from), from,
                            theirs->op, theirs->what, theirs->sequence,
                            sum_bytes(theirs->sends, theirs->n_sends, m->rank));
}

/* Takes the messages of `from` to this rank. The lock is released while copying. */
static sw_status take_from(struct member *m, const struct sw_exchange *x, int from)
{
    struct world *w = m->room->world;
    struct post *post = post_of(m->room, from, m->rank);
    const struct sw_exchange *theirs = post->exchange;
    const sw_status st = check(m, x, from, theirs);
    if (st < 0) {
        end(w, sw_error_message());
        return st;
    }
    post->state = COPIED_NOW;
    pthread_mutex_unlock(&w->lock);
    copy(m, x, from, theirs, true);
    pthread_mutex_lock(&w->lock);
    post->state = EMPTY;
    m->received[from] = true;
    tell(m->room);
    return SW_OK;
}

static bool is_missing(const struct member *m, int rank)
{
    return !m->received[rank] || post_of(m->room, m->rank, rank)->state != EMPTY;
}

/* Takes all messages for this rank. *out_left: number of ranks with messages still to receive or
 * send. *out_copied: the lock was released, so look again before waiting. */
static sw_status take(struct member *m, const struct sw_exchange *x, int *out_left,
                      bool *out_copied)
{
    *out_left = 0;
    *out_copied = false;
    for (int r = 0; r < m->room->size; r++) {
        if (!m->received[r] && post_of(m->room, r, m->rank)->state == SHOWN) {
            SW_TRY(take_from(m, x, r));
            *out_copied = true;
        }
    }
    for (int r = 0; r < m->room->size; r++) {
        *out_left += is_missing(m, r);
    }
    return SW_OK;
}

/* Withdraws a sender's messages: nobody may read its bytes after it has left for any reason. */
static void withdraw(struct member *m)
{
    for (int r = 0; r < m->room->size; r++) {
        struct post *post = post_of(m->room, m->rank, r);
        while (post->state == COPIED_NOW) {
            pthread_cond_wait(&m->room->changed, &m->room->world->lock);
        }
        post->state = EMPTY;
    }
    m->present = NULL;
}

/* An exchange in which a rank of the world waits; NULL = it waits for nobody. */
static const struct member *find_waiting(const struct world *w, int rank)
{
    for (const struct room *room = w->rooms; room; room = room->next) {
        for (int i = 0; i < room->size; i++) {
            const struct member *m = &room->members[i];
            for (int r = 0; room->ranks[i] == rank && m->present && r < room->size; r++) {
                if (is_missing(m, r)) {
                    return m;
                }
            }
        }
    }
    return NULL;
}

/* Lists the absent ranks of an exchange, each with those that it waits for itself: the last one of
 * such a chain has stopped. seen: [ranks of the world] those that the text has */
static void list_missing(const struct member *m, bool *seen, struct sw_str *out)
{
    const struct room *room = m->room;
    for (int r = 0; r < room->size; r++) {
        const int rank = room->ranks[r];
        struct sw_str theirs = {0};
        if (!is_missing(m, r)) {
            continue;
        }
        const struct member *next = seen[rank] ? NULL : find_waiting(room->world, rank);
        seen[rank] = true;
        if (next) {
            sw_str_puts(&theirs, "waits for ");
            list_missing(next, seen, &theirs);
        }
        sw_comm_list_rank(out, m->present, r, next ? sw_str_text(&theirs) : NULL);
        sw_str_fini(&theirs);
    }
}

/* After the deadline: names the absent ranks. */
static sw_status say_late(struct member *m, const struct sw_exchange *x)
{
    bool seen[SW_THREAD_RANKS_MAX] = {false};
    struct sw_str missing = {0};
    seen[m->room->ranks[m->rank]] = true;
    list_missing(m, seen, &missing);
    const sw_status st = sw_comm_late(x, m->rank, m->deadline_s, &missing);
    end(m->room->world, sw_error_message());
    return st;
}

static struct timespec deadline_from_now(double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return until;
}

/* Sleeps until something changes, or the deadline passes (true). Other ranks are often nearly
 * ready, so it spins for some microseconds first. It yields meanwhile, because there may be fewer
 * processors than ranks. */
static bool wait_for_change(struct room *room, const struct timespec *until)
{
    enum { LOOKS = 40 };
    pthread_mutex_t *lock = &room->world->lock;
    const unsigned before = atomic_load(&room->n_changes);
    pthread_mutex_unlock(lock);
    for (int i = 0; i < LOOKS && atomic_load(&room->n_changes) == before; i++) {
        sched_yield();
    }
    pthread_mutex_lock(lock);
    return atomic_load(&room->n_changes) == before &&
           pthread_cond_timedwait(&room->changed, lock, until) == ETIMEDOUT;
}

static sw_status exchange(void *ctx, const struct sw_exchange *x)
{
    struct member *m = ctx;
    struct world *w = m->room->world;
    const struct timespec until = deadline_from_now(m->deadline_s);
    sw_status st = SW_OK;
    bool late = false;
    pthread_mutex_lock(&w->lock);
    show(m, x);
    for (;;) {
        int left;
        bool copied;
        st = take(m, x, &left, &copied);
        if (st < 0 || left == 0) {
            break;
        }
        if (copied) {
            continue;
        }
        if (w->ended || late) {
            st = w->ended ? sw_comm_ended(x, m->rank, w->why) : say_late(m, x);
            break;
        }
        late = wait_for_change(m->room, &until);
    }
    withdraw(m);
    pthread_mutex_unlock(&w->lock);
    return st;
}

static void give_up(void *ctx, sw_status reason)
{
    struct member *m = ctx;
    struct world *w = m->room->world;
    char why[256], name[SW_RANK_TEXT];
    pthread_mutex_lock(&w->lock);
    snprintf(why, sizeof why, "%s cannot go on: %s",
             *m->name ? m->name : sw_comm_rank_text(NULL, m->room->ranks[m->rank], name),
             sw_status_string(reason));
    end(w, why);
    pthread_mutex_unlock(&w->lock);
}

/* ---- opening, closing ---- */

static void free_room(struct room *room)
{
    pthread_cond_destroy(&room->changed);
    sw_free(room->ranks);
    sw_free(room->posts);
    sw_free(room->received);
    sw_free(room->members);
    sw_free(room);
}

/* A room for these ranks; NULL = out of memory. */
static struct room *make_room(struct world *w, int number, const int *ranks, int size)
{
    const size_t n = (size_t)size;
    struct room *room = sw_alloc_zero("comm", 1, sizeof *room);
    if (!room) {
        return NULL;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&room->changed, &attr);
    pthread_condattr_destroy(&attr);
    room->world = w;
    room->number = number;
    room->size = size;
    room->ranks = sw_alloc("comm", n * sizeof *room->ranks);
    room->posts = sw_alloc_zero("comm", n * n, sizeof *room->posts);
    room->received = sw_alloc_zero("comm", n * n, sizeof *room->received);
    room->members = sw_alloc_zero("comm", n, sizeof *room->members);
    if (!room->ranks || !room->posts || !room->received || !room->members) {
        free_room(room);
        return NULL;
    }
    for (int r = 0; r < size; r++) {
        room->ranks[r] = ranks ? ranks[r] : r;
        room->members[r] =
            (struct member){.room = room, .rank = r, .received = room->received + (size_t)r * n};
    }
    return room;
}

static void add_room(struct world *w, struct room *room)
{
    struct room **at = &w->rooms;
    while (*at) {
        at = &(*at)->next;
    }
    *at = room;
}

/* The last member to leave frees the room. */
static void leave_group(void *ctx, bool failed)
{
    (void)failed;
    struct room *room = ((struct member *)ctx)->room;
    struct world *w = room->world;
    pthread_mutex_lock(&w->lock);
    if (--room->n_open == 0) {
        struct room **at = &w->rooms;
        while (*at != room) {
            at = &(*at)->next;
        }
        *at = room->next;
        free_room(room);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Groups are closed by then. */
static void leave(void *ctx, bool failed)
{
    (void)failed;
    struct member *m = ctx;
    struct room *all = m->room;
    struct world *w = all->world;
    pthread_mutex_lock(&w->lock);
    const bool last = --all->n_open == 0;
    pthread_mutex_unlock(&w->lock);
    if (last) {
        free_room(all);
        pthread_mutex_destroy(&w->lock);
        sw_free(w);
    }
}

static void join(struct room *room, int rank, double deadline_s, struct sw_transport *out)
{
    struct member *m = &room->members[rank];
    m->joined = true;
    m->deadline_s = deadline_s;
    room->n_open++;
    *out = (struct sw_transport){.ctx = m,
                                 .rank = rank,
                                 .size = room->size,
                                 .exchange = exchange,
                                 .abort = give_up,
                                 .deadline_s = deadline_s,
                                 .close = leave_group};
}

/* The room that another member has opened for this group; NULL = this rank is the first one. */
static struct room *find_room(const struct world *w, const struct sw_group_options *o, int rank)
{
    struct room *room = w->rooms;
    while (room && (room->number != o->number || room->size != o->n ||
                    memcmp(room->ranks, o->ranks, (size_t)o->n * sizeof *o->ranks) != 0 ||
                    room->members[rank].joined)) {
        room = room->next;
    }
    return room;
}

static sw_status open_group(void *ctx, const struct sw_group_options *o, const char *const *names,
                            struct sw_transport *out)
{
    const struct member *m = ctx;
    struct world *w = m->room->world;
    const int rank = sw_comm_member(o, m->rank);
    (void)names;
    pthread_mutex_lock(&w->lock);
    struct room *found = find_room(w, o, rank);
    struct room *room = found ? found : make_room(w, o->number, o->ranks, o->n);
    if (room && !found) {
        add_room(w, room);
    }
    if (room) {
        join(room, rank, o->deadline_s > 0 ? o->deadline_s : m->deadline_s, out);
    }
    pthread_mutex_unlock(&w->lock);
    SW_TRY_ALLOC(room, "a group of ranks");
    return SW_OK;
}

sw_status sw_thread_transports_open(int size, double deadline_s, struct sw_transport *out)
{
    if (size < 1 || size > SW_THREAD_RANKS_MAX) {
        return SW_FAIL(SW_E_ARG, "%d ranks; wanted 1 to %d, as threads of one process", size,
                       SW_THREAD_RANKS_MAX);
    }
    SW_TRY(sw_comm_check_deadline(deadline_s));
    struct world *w = sw_alloc_zero("comm", 1, sizeof *w);
    SW_TRY_ALLOC(w, "ranks");
    struct room *all = make_room(w, 0, NULL, size);
    if (!all) {
        sw_free(w);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for ranks");
    }
    pthread_mutex_init(&w->lock, NULL);
    add_room(w, all);
    for (int r = 0; r < size; r++) {
        join(all, r, deadline_s, &out[r]);
        out[r].close = leave;
        out[r].open_group = open_group;
    }
    return SW_OK;
}

sw_status sw_threads_open(int size, double deadline_s, sw_comm **out_comms)
{
    struct sw_transport *transports =
        sw_alloc_zero("comm", (size_t)(size > 0 ? size : 1), sizeof *transports);
    SW_TRY_ALLOC(transports, "ranks");
    int n = 0;
    sw_status st = sw_thread_transports_open(size, deadline_s, transports);
    const bool opened = st >= 0;
    for (; st >= 0 && n < size; n++) {
        st = sw_comm_open(&transports[n], &out_comms[n]);
        if (st < 0) {
            break;
        }
    }
    if (opened && st < 0) {
        for (int r = 0; r < size; r++) {
            if (r < n) {
                sw_comm_close(out_comms[r], true);
            } else {
                leave(transports[r].ctx, true);
            }
        }
    }
    sw_free(transports);
    return st;
}

/* ---- running a function on every rank ---- */

struct rank_thread {
    pthread_t thread;
    sw_rank_fn fn;
    void *ctx;
    sw_comm *comm;
    sw_status st;
    char message[1024];
};

static void *rank_main(void *arg)
{
    struct rank_thread *t = arg;
    t->st = t->fn(t->ctx, t->comm);
    if (t->st < 0) {
        snprintf(t->message, sizeof t->message, "%s", sw_error_message());
        sw_comm_abort(t->comm, t->st);
    }
    return NULL;
}

/* The rank whose failure the others only report. */
static int first_failure(const struct rank_thread *threads, int n)
{
    int first = -1;
    for (int r = 0; r < n; r++) {
        if (threads[r].st < 0 &&
            (first < 0 || (threads[first].st == SW_E_PEER && threads[r].st != SW_E_PEER))) {
            first = r;
        }
    }
    return first;
}

static sw_status run_threads(struct rank_thread *threads, sw_comm *const *comms, int size,
                             sw_rank_fn fn, void *ctx)
{
    sw_status st = SW_OK;
    int n = 0;
    for (; n < size; n++) {
        threads[n] = (struct rank_thread){.fn = fn, .ctx = ctx, .comm = comms[n]};
        if (pthread_create(&threads[n].thread, NULL, rank_main, &threads[n]) != 0) {
            sw_comm_abort(comms[n], SW_E_NOMEM);
            st = SW_FAIL(SW_E_NOMEM, "no thread for rank %d", n);
            break;
        }
    }
    for (int r = 0; r < n; r++) {
        pthread_join(threads[r].thread, NULL);
    }
    const int failed = first_failure(threads, n);
    if (st >= 0 && failed >= 0) {
        st = SW_FAIL(threads[failed].st, "rank %d: %s", failed, threads[failed].message);
    }
    return st;
}

sw_status sw_threads_run(int size, double deadline_s, sw_rank_fn fn, void *ctx)
{
    const size_t n = (size_t)(size > 0 ? size : 1);
    struct rank_thread *threads = sw_alloc_zero("comm", n, sizeof *threads);
    sw_comm **comms = sw_alloc_zero("comm", n, sizeof *comms);
    sw_status st = SW_OK;
    if (!threads || !comms) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for ranks");
        goto done;
    }
    SW_TRY_OR(done, sw_threads_open(size, deadline_s, comms));
    st = run_threads(threads, comms, size, fn, ctx);
    for (int r = 0; r < size; r++) {
        sw_comm_close(comms[r], st < 0);
    }
done:
    sw_free(threads);
    sw_free(comms);
    return st;
}
