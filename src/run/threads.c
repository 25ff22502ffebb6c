// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: everybody shows its buffer, waits for all, copies what is its own, and
// waits again before anybody may change a buffer. A rank that fails, stays away beyond the deadline or
// comes with another operation is named by all others, and nobody hangs.
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "run/run.h"

enum kind { ALL_TO_ALL, ALL_GATHER };

struct shown { /* by one rank, at its present operation */
    enum kind kind;
    size_t slice_bytes;
    const void *src;
    const char *what;
    int64_t sequence;
};

struct member {
    struct sw_collectives ops;
    struct sw_thread_ranks *world;
    int64_t sequence;
};

struct sw_thread_ranks {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size, n_arrived;
    int64_t generation; /* barriers passed */
    double deadline_s;
    bool ended; /* somebody cannot go on */
    int ended_by;
    sw_status reason;
    struct shown *shown; /* [size] */
    bool *arrived;       /* [size] at the present barrier */
    struct member *members;
};

static sw_status say_ended(const struct sw_thread_ranks *w, int rank, const char *what)
{
    return SW_FAIL(SW_E_PEER, "rank %d: %s: rank %d cannot go on: %s", rank, what, w->ended_by,
                   sw_status_string(w->reason));
}

static void end(struct sw_thread_ranks *w, int rank, sw_status reason)
{
    if (!w->ended) {
        w->ended = true;
        w->ended_by = rank;
        w->reason = reason;
    }
    pthread_cond_broadcast(&w->changed);
}

/* The deadline passed: names those who are not here. The lock is held. */
static sw_status say_late(struct sw_thread_ranks *w, int rank, const char *what)
{
    struct sw_str missing = {0};
    int first = -1;
    for (int r = 0; r < w->size; r++) {
        if (!w->arrived[r]) {
            sw_str_printf(&missing, "%s%d", first < 0 ? "" : ", ", r);
            first = first < 0 ? r : first;
        }
    }
    const sw_status st = SW_FAIL(SW_E_PEER, "rank %d waited %.3g s for rank %s at %s", rank,
                                 w->deadline_s, sw_str_text(&missing), what);
    sw_str_fini(&missing);
    end(w, first, SW_E_PEER);
    return st;
}

static sw_status wait_for_all(struct member *m, const char *what)
{
    struct sw_thread_ranks *w = m->world;
    const int rank = m->ops.rank;
    struct timespec until;
    sw_status st = SW_OK;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)w->deadline_s;
    until.tv_nsec += (long)((w->deadline_s - (double)(time_t)w->deadline_s) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&w->lock);
    const int64_t generation = w->generation;
    w->arrived[rank] = true;
    if (!w->ended && ++w->n_arrived == w->size) {
        w->n_arrived = 0;
        w->generation++;
        memset(w->arrived, 0, (size_t)w->size * sizeof *w->arrived);
        pthread_cond_broadcast(&w->changed);
    }
    while (st == SW_OK && generation == w->generation) {
        if (w->ended) {
            st = say_ended(w, rank, what);
        } else if (pthread_cond_timedwait(&w->changed, &w->lock, &until) == ETIMEDOUT &&
                   generation == w->generation && !w->ended) {
            st = say_late(w, rank, what);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return st;
}

/* All must be at the same operation of the same size. */
static sw_status check_same(struct member *m)
{
    struct sw_thread_ranks *w = m->world;
    const struct shown *mine = &w->shown[m->ops.rank];
    for (int r = 0; r < w->size; r++) {
        const struct shown *other = &w->shown[r];
        if (other->kind != mine->kind || other->slice_bytes != mine->slice_bytes ||
            other->sequence != mine->sequence) {
            const sw_status st = SW_FAIL(
                SW_E_PEER,
                "ranks diverge at collective %lld: rank %d is at %s with slices of %zu bytes, "
                "rank %d at %s with %zu",
                (long long)mine->sequence, m->ops.rank, mine->what, mine->slice_bytes, r,
                other->what, other->slice_bytes);
            pthread_mutex_lock(&w->lock);
            end(w, r, SW_E_PEER);
            pthread_mutex_unlock(&w->lock);
            return st;
        }
    }
    return SW_OK;
}

static sw_status meet(struct member *m, enum kind kind, const void *src, size_t slice_bytes,
                      const char *what)
{
    m->world->shown[m->ops.rank] = (struct shown){kind, slice_bytes, src, what, m->sequence++};
    SW_TRY(wait_for_all(m, what));
    return check_same(m);
}

static sw_status all_to_all(void *ctx, const void *src, void *dst, size_t slice_bytes,
                            const char *what)
{
    struct member *m = ctx;
    SW_TRY(meet(m, ALL_TO_ALL, src, slice_bytes, what));
    for (int r = 0; r < m->ops.size; r++) {
        memcpy((char *)dst + (size_t)r * slice_bytes,
               (const char *)m->world->shown[r].src + (size_t)m->ops.rank * slice_bytes,
               slice_bytes);
    }
    return wait_for_all(m, what);
}

static sw_status all_gather(void *ctx, const void *src, void *dst, size_t slice_bytes,
                            const char *what)
{
    struct member *m = ctx;
    SW_TRY(meet(m, ALL_GATHER, src, slice_bytes, what));
    for (int r = 0; r < m->ops.size; r++) {
        char *to = (char *)dst + (size_t)r * slice_bytes;
        if (to != m->world->shown[r].src) {
            memcpy(to, m->world->shown[r].src, slice_bytes);
        }
    }
    return wait_for_all(m, what);
}

static void give_up(void *ctx, sw_status reason)
{
    struct member *m = ctx;
    pthread_mutex_lock(&m->world->lock);
    end(m->world, m->ops.rank, reason);
    pthread_mutex_unlock(&m->world->lock);
}

sw_status sw_thread_ranks_open(int size, double deadline_s, struct sw_thread_ranks **out)
{
    if (size < 1 || size > SW_THREAD_RANKS_MAX) {
        return SW_FAIL(SW_E_ARG, "%d ranks; wanted 1 to %d, as threads of one process", size,
                       SW_THREAD_RANKS_MAX);
    }
    if (!(deadline_s > 0 && deadline_s <= SW_THREAD_DEADLINE_MAX_S)) {
        return SW_FAIL(SW_E_ARG, "a deadline of %g s; wanted above 0, at most %d", deadline_s,
                       SW_THREAD_DEADLINE_MAX_S);
    }
    struct sw_thread_ranks *w = sw_alloc_zero("ranks", 1, sizeof *w);
    SW_TRY_ALLOC(w, "ranks");
    w->size = size;
    w->deadline_s = deadline_s;
    w->shown = sw_alloc_zero("ranks", (size_t)size, sizeof *w->shown);
    w->arrived = sw_alloc_zero("ranks", (size_t)size, sizeof *w->arrived);
    w->members = sw_alloc_zero("ranks", (size_t)size, sizeof *w->members);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (!w->shown || !w->arrived || !w->members) {
        sw_thread_ranks_close(w);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for ranks");
    }
    for (int r = 0; r < size; r++) {
        struct member *m = &w->members[r];
        m->world = w;
        m->ops = (struct sw_collectives){.ctx = m,
                                         .rank = r,
                                         .size = size,
                                         .all_to_all = all_to_all,
                                         .all_gather = all_gather,
                                         .abort = give_up};
    }
    *out = w;
    return SW_OK;
}

void sw_thread_ranks_close(struct sw_thread_ranks *w)
{
    if (!w) {
        return;
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    sw_free(w->shown);
    sw_free(w->arrived);
    sw_free(w->members);
    sw_free(w);
}

const struct sw_collectives *sw_thread_ranks_at(const struct sw_thread_ranks *w, int rank)
{
    return &w->members[rank].ops;
}
