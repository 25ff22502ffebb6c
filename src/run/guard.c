// SPDX-License-Identifier: Apache-2.0
// A round is an all-gather of one beat of each rank. A rank that leaves says so in its last beat;
// after it there are no rounds, and each remaining rank watches alone.
#include "run/guard.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "run/executor.h"

enum { MOST_LINKS = 24, ROUND_MS = 20 };

struct beat {
    int32_t leaves, n_links;
    struct {
        int32_t number;
        int32_t padding;
        int64_t n_issued;
    } links[MOST_LINKS];
    char verdict[256]; /* why nobody can go on; "" = nothing is wrong */
};

struct sw_guard {
    struct sw_executor *ex;
    sw_comm *comm;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_thread, quits, tells;      /* tells: the latest run failed */
    bool is_alone, has_ended;           /* a rank has left; the exchanges were ended */
    struct beat mine, *beats /* [n] */; /* used by the thread */
};

sw_status sw_guard_open(struct sw_executor *ex, struct sw_guard **out)
{
    const struct sw_group *world = &ex->plan->groups[SW_GROUP_WORLD];
    /* free: links of groups have lower numbers, those of pairs higher ones (exchange.c) */
    const struct sw_group_options options = {
        .number = 1 + ex->plan->n_groups, .ranks = world->ranks, .n = world->n, .name = "guard"};
    struct sw_guard *g = sw_alloc_zero("run", 1, sizeof *g);
    SW_TRY_ALLOC(g, "the guard of exchanges");
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->ex = ex;
    g->beats = sw_alloc_zero("run", (size_t)world->n, sizeof *g->beats);
    const sw_status st = g->beats ? sw_comm_open_group(ex->options.comm, &options, &g->comm)
                                  : SW_FAIL(SW_E_NOMEM, "out of host memory for the guard");
    if (st < 0) {
        sw_guard_close(g);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = g;
    return SW_OK;
}

/* ---- what is wrong ---- */

/* The exchanges of a link that a rank has queued; -1 = it is no member. */
static int64_t issued(const struct beat *beat, int number)
{
    for (int i = 0; i < beat->n_links; i++) {
        if (beat->links[i].number == number) {
            return beat->links[i].n_issued;
        }
    }
    return -1;
}

/* The members that an exchange waits for. */
static void blame_ranks(struct sw_guard *g, const struct link *link, struct sw_str *out)
{
    const int64_t mine = issued(&g->mine, link->number);
    const char *between = "";
    for (int r = 0; r < sw_comm_size(g->comm); r++) {
        const int64_t theirs = g->is_alone ? -1 : issued(&g->beats[r], link->number);
        if (theirs >= 0 && theirs < mine) {
            sw_str_printf(out, "%srank %d has not come to it", between, r);
            between = ", ";
        }
    }
    if (out->len == 0) {
        sw_str_puts(out, g->is_alone ? "a rank has left"
                                     : "all its ranks have queued it, and their devices do not "
                                       "finish it");
    }
}

static void judge(struct sw_guard *g, const char *text)
{
    if (!g->mine.verdict[0]) {
        snprintf(g->mine.verdict, sizeof g->mine.verdict, "%s", text);
    }
}

static void find_stuck(struct sw_guard *g)
{
    const double deadline_s = sw_comm_deadline(g->comm);
    struct sw_queue_job job;
    struct sw_str text = {0};
    enum sw_queue queue;
    if (!sw_queues_find_stuck(g->ex->queues, (int64_t)(deadline_s * 1e9), &queue, &job)) {
        return;
    }
    blame_ranks(g, sw_executor_link(g->ex, &job.program->instrs[job.instr]), &text);
    sw_str_printf(&text, " within %g s", deadline_s);
    judge(g, sw_str_text(&text));
    sw_str_fini(&text);
}

static void find_errors(struct sw_guard *g)
{
    const struct exchanges *all = &g->ex->exchanges;
    for (int i = 0; i < all->n_links; i++) {
        struct sw_ccl *ccl = all->links[i].route.ccl;
        if (ccl && g->ex->dev->ccl->check(g->ex->dev, ccl) < 0) {
            judge(g, sw_error_message());
        }
    }
}

/* Ends all exchanges, with the present message as the reason. The instruction that this rank is in
 * goes in front of it. */
static void end_all(struct sw_guard *g, sw_status st)
{
    struct sw_executor *ex = g->ex;
    struct sw_queue_job job;
    enum sw_queue queue;
    if (sw_queues_find_stuck(ex->queues, 0, &queue, &job)) {
        st = sw_executor_blame(ex, queue, &job, st);
    }
    sw_queues_fail(ex->queues, st);
    for (int i = 0; i < ex->exchanges.n_links; i++) {
        if (ex->exchanges.links[i].route.ccl) {
            ex->dev->ccl->abort(ex->dev, ex->exchanges.links[i].route.ccl);
        }
    }
    sw_comm_abort(ex->options.comm, st);
    g->has_ended = true;
}

/* ---- rounds ---- */

static void fill(struct sw_guard *g)
{
    const struct exchanges *all = &g->ex->exchanges;
    struct beat *mine = &g->mine;
    mine->n_links = all->n_links < MOST_LINKS ? all->n_links : MOST_LINKS;
    for (int i = 0; i < mine->n_links; i++) {
        mine->links[i].number = all->links[i].number;
        mine->links[i].n_issued = atomic_load(&all->links[i].n_issued);
    }
}

/* Ends all exchanges for what rank `from` said in a round. First each rank waits until all have
 * that round, or those that leave would be taken for the cause. */
static void end_for(struct sw_guard *g, int from)
{
    struct beat said = from == sw_comm_rank(g->comm) ? g->mine : g->beats[from];
    if (!g->is_alone) {
        sw_comm_all_gather(g->comm, &g->mine, g->beats, sizeof g->mine, "the state of ranks");
    }
    end_all(g, SW_FAIL(SW_E_PEER, "rank %d: %s", from, said.verdict));
}

/* One round, without the lock. Ends all exchanges if anything is wrong. */
static void beat(struct sw_guard *g)
{
    int from = g->mine.verdict[0] ? sw_comm_rank(g->comm) : -1;
    fill(g);
    if (!g->is_alone) {
        const sw_status st =
            sw_comm_all_gather(g->comm, &g->mine, g->beats, sizeof g->mine, "the state of ranks");
        if (st < 0) {
            end_all(g, st);
            return;
        }
    }
    for (int r = 0; r < sw_comm_size(g->comm) && !g->is_alone; r++) {
        from = from < 0 && g->beats[r].verdict[0] ? r : from;
    }
    for (int r = 0; r < sw_comm_size(g->comm); r++) {
        g->is_alone = g->is_alone || g->beats[r].leaves != 0;
    }
    if (from >= 0) {
        end_for(g, from);
        return;
    }
    find_errors(g);
    find_stuck(g);
}

static void sleep_a_round(struct sw_guard *g)
{
    enum { SECOND_NS = 1000000000, MS_NS = 1000000 };
    const int64_t ms = g->mine.verdict[0] ? 0 : ROUND_MS + sw_comm_size(g->comm);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ms * MS_NS;
    until.tv_sec += until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    pthread_cond_timedwait(&g->changed, &g->lock, &until);
}

/* The last beat of this rank, unless the others are alone already. */
static void say_goodbye(struct sw_guard *g)
{
    if (g->is_alone || g->has_ended) {
        return;
    }
    g->mine.leaves = 1;
    fill(g);
    sw_comm_all_gather(g->comm, &g->mine, g->beats, sizeof g->mine, "the state of ranks");
}

static void *watch(void *arg)
{
    struct sw_guard *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->quits && !g->has_ended) {
        pthread_mutex_unlock(&g->lock);
        beat(g);
        pthread_mutex_lock(&g->lock);
        if (!g->quits && !g->has_ended) {
            sleep_a_round(g);
        }
    }
    const bool tells = g->tells;
    pthread_mutex_unlock(&g->lock);
    if (tells && !g->has_ended) {
        end_all(g, SW_FAIL(SW_E_PEER, "an instruction failed"));
    }
    say_goodbye(g);
    return NULL;
}

sw_status sw_guard_start(struct sw_guard *g)
{
    const int error = sw_thread_start(&g->thread, watch, g);
    g->has_thread = error == 0;
    return error ? SW_FAIL(SW_E_NOMEM, "no thread for the guard of exchanges: %s", strerror(error))
                 : SW_OK;
}

void sw_guard_end(struct sw_guard *g, bool failed)
{
    if (!g) {
        return;
    }
    if (!g->has_thread) {
        say_goodbye(g);
        return;
    }
    pthread_mutex_lock(&g->lock);
    g->quits = true;
    g->tells = failed;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    g->has_thread = false;
    g->is_alone = true; /* nothing more is said */
}

bool sw_guard_close(struct sw_guard *g)
{
    if (!g) {
        return false;
    }
    const bool ended = g->has_ended;
    if (g->comm) {
        sw_comm_close(g->comm, ended);
    }
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    sw_free(g->beats);
    sw_free(g);
    return ended;
}
