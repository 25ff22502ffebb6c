// SPDX-License-Identifier: Apache-2.0
// Exchanges of simulated ranks. All members of a group meet at its gate; SEND and RECV meet at each
// other's queues.
#include "walk/ranks.h"

static bool has_met(const struct rank *r, const struct job *job)
{
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        if (r->lines[q].n_done < job->needs[q]) {
            return false;
        }
    }
    return true;
}

/* Starts the job for which a queue has met the other ranks. A queue that had nothing to do wakes up
 * first, and delays a kernel. */
static void start(struct rank *r, struct line *line, const struct meeting *m)
{
    const bool was_busy = line->n_served > 0 && line->free_from >= r->now;
    line->is_here = false;
    line->serving = true;
    line->delay = fmax(m->from - r->now, 0) + (was_busy ? 0 : r->pace->wake);
    r->report.most += was_busy ? 0 : r->pace->wake;
    line->since = r->now + line->delay;
    line->left = m->seconds;
    line->latency = m->latency;
    if (!was_busy && r->kernel > 0 && line->cores > 0) {
        r->kernel += r->pace->yield * m->seconds;
        r->report.most += r->pace->yield * m->seconds;
    }
}

/* A rank that was at a meeting goes on. queue: that of its exchange; COMPUTE = ranks talk */
static void let_go(struct clock *c, struct rank *r, enum sw_queue queue, const struct meeting *m)
{
    r->n_here--;
    if (queue == SW_QUEUE_COMPUTE) {
        r->talks = false;
        const struct sw_cost cost = {.seconds = fmax(m->from - r->now, 0) + m->seconds};
        sw_rank_compute(r, &cost, SW_QUEUE_COMM, -1);
    } else {
        start(r, &r->lines[queue], m);
    }
    struct unit *u = &c->units[r->unit];
    if (u->place >= 0) {
        sw_clock_take_back(c, u);
        c->ready[c->n_ready++] = r->unit;
    }
}

void sw_clock_meet(struct clock *c, struct rank *r, int group, enum sw_queue queue,
                   const struct meeting *mine)
{
    r->n_here++;
    if (!c->gates) {
        let_go(c, r, queue, mine);
        return;
    }
    const struct circle *circle = &r->circles[group];
    struct gate *gate = &c->gates[(int64_t)group * c->n + circle->who[0]];
    struct meeting *m = &gate->meeting;
    *m = gate->n_here > 0 ? *m : (struct meeting){0, 0, 0};
    *m = (struct meeting){fmax(m->from, mine->from), fmax(m->seconds, mine->seconds),
                          fmax(m->latency, mine->latency)};
    if (++gate->n_here < circle->n) {
        return;
    }
    gate->n_here = 0;
    const struct meeting all = *m;
    for (int i = 0; i < circle->n; i++) {
        let_go(c, &c->ranks[circle->who[i]], queue, &all);
    }
}

/* The index of the peer of a SEND or a RECV; -1 = it does not exist. */
static int peer_of(const struct clock *c, const struct rank *r, const struct sw_instr *instr)
{
    const struct sw_group *group = &r->plan->groups[instr->exchange.group];
    const int peer = instr->exchange.peer;
    return peer >= 0 && peer < group->n ? sw_clock_index(c, group->ranks[peer]) : -1;
}

/* The queue of the peer that meets a queue of messages. */
static enum sw_queue other_side(enum sw_queue queue)
{
    static const enum sw_queue others[SW_QUEUE_COUNT] = {
        [SW_QUEUE_SENT] = SW_QUEUE_RECEIVED,
        [SW_QUEUE_RECEIVED] = SW_QUEUE_SENT,
        [SW_QUEUE_SENT_BACK] = SW_QUEUE_RECEIVED_BACK,
        [SW_QUEUE_RECEIVED_BACK] = SW_QUEUE_SENT_BACK};
    return others[queue];
}

/* Takes a rank to its peer. The second one to come lets both of them go. */
static sw_status arrive_at_peer(struct clock *c, struct rank *r, enum sw_queue queue,
                                const struct meeting *mine)
{
    const enum sw_queue other_queue = other_side(queue);
    const struct sw_instr *instr = sw_rank_instr(r, &r->lines[queue]);
    const int me = (int)(r - c->ranks), peer = c->gates ? peer_of(c, r, instr) : me;
    if (peer < 0) {
        return SW_FAIL(SW_E_ARG, "rank %d: instruction %d (%s in %s) has peer %d of %d ranks", me,
                       (int)(instr - r->plan->programs[0].instrs), instr->about->name,
                       instr->about->where, instr->exchange.peer,
                       r->plan->groups[instr->exchange.group].n);
    }
    struct rank *other = &c->ranks[peer];
    const struct line *theirs = &other->lines[other_queue];
    r->n_here++;
    if (!c->gates) {
        let_go(c, r, queue, mine);
        return SW_OK;
    }
    if (!theirs->is_here || peer_of(c, other, sw_rank_instr(other, theirs)) != me) {
        return SW_OK;
    }
    const struct sw_instr *of_peer = sw_rank_instr(other, theirs);
    if (of_peer->bytes != instr->bytes) {
        return SW_FAIL(
            SW_E_ARG,
            "rank %d: instruction %d (%s in %s) moves %lld bytes; that of rank %d (%s in "
            "%s) moves %lld",
            me, (int)(instr - r->plan->programs[0].instrs), instr->about->name, instr->about->where,
            (long long)instr->bytes, peer, of_peer->about->name, of_peer->about->where,
            (long long)of_peer->bytes);
    }
    const struct meeting both = {fmax(theirs->since, mine->from), fmax(theirs->left, mine->seconds),
                                 fmax(theirs->latency, mine->latency)};
    let_go(c, other, other_queue, &both);
    let_go(c, r, queue, &both);
    return SW_OK;
}

/* Begins the next job of a queue, if it can. An exchange waits for others. */
static sw_status serve_next(struct clock *c, struct rank *r, enum sw_queue queue)
{
    struct line *line = &r->lines[queue];
    const bool disk = queue == SW_QUEUE_READ || queue == SW_QUEUE_WRITE;
    const bool room = line->n_served - line->n_done < (disk ? SW_QUEUE_BEGUN : 1);
    if (line->serving || line->is_here || line->n_served == line->n_issued || !room) {
        return SW_OK;
    }
    const struct job *job = sw_job_at(line, line->n_served);
    if (!has_met(r, job)) {
        return SW_OK;
    }
    const struct sw_cost cost = sw_rank_cost(r, job->instr, job->later);
    const struct meeting m = {r->now, cost.seconds, cost.latency};
    line->cores = cost.cores;
    line->bandwidth = cost.bandwidth;
    line->way = cost.way;
    if (!sw_queue_exchanges(queue)) {
        start(r, line, &m);
        return SW_OK;
    }
    line->is_here = true;
    line->since = r->now;
    line->left = cost.seconds;
    line->latency = cost.latency;
    if (sw_queue_sends(queue) || sw_queue_receives(queue)) {
        return arrive_at_peer(c, r, queue, &m);
    }
    sw_clock_meet(c, r, sw_rank_instr(r, line)->exchange.group, queue, &m);
    return SW_OK;
}

sw_status sw_clock_serve(struct clock *c, struct rank *r)
{
    for (int q = SW_QUEUE_COMM; q < r->end; q++) {
        SW_TRY(serve_next(c, r, (enum sw_queue)q));
    }
    return SW_OK;
}
