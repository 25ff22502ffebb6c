// SPDX-License-Identifier: Apache-2.0
// Exchanges: the communicators of the groups that a plan uses, and batches of exchanges
// (collectives.c) over them. SEND and RECV have a communicator for each pair of ranks and each
// direction, so that the threads of their queues never share one. So have those of backward: with
// several chunks a rank may send both kinds to the same one, which takes them in its own order.
#include <stdlib.h>

#include "comm/comm.h"
#include "run/executor.h"

int sw_link_number(int n_groups, int group, int n, int from, int to, bool back)
{
    /* the pipe axis comes first */
    const int turn = (group + n_groups - SW_GROUP_COUNT) % n_groups;
    const int ahead = (to - from + n) % n, behind = n - ahead;
    const int step = ahead <= behind ? 2 * (ahead - 1) : 2 * (behind - 1) + 1;
    return 1 + n_groups + 2 * ((turn * n + step) * n + from) + back;
}

/* The link that an instruction uses; its communicator is not open yet. Numbers are equal on all its
 * ranks, and ascend in the order in which every rank opens them. */
static struct link link_of(const struct sw_plan *plan, const struct sw_instr *instr)
{
    const int g = instr->exchange.group, peer = instr->exchange.peer;
    const struct sw_group *group = &plan->groups[g];
    struct link link = {.group = g, .number = g + 1, .from = -1, .to = -1};
    if (instr->verb == SW_VERB_SEND || instr->verb == SW_VERB_RECV) {
        link.from = instr->verb == SW_VERB_SEND ? group->me : peer;
        link.to = instr->verb == SW_VERB_SEND ? peer : group->me;
        link.number = sw_link_number(plan->n_groups, g, group->n, link.from, link.to,
                                     instr->queue >= SW_QUEUE_SENT_BACK);
    }
    return link;
}

static struct link *find_link(const struct exchanges *exchanges, int number)
{
    for (int i = 0; i < exchanges->n_links; i++) {
        if (exchanges->links[i].number == number) {
            return &exchanges->links[i];
        }
    }
    return NULL;
}

static sw_status add_link(struct exchanges *exchanges, const struct link *link)
{
    if (find_link(exchanges, link->number)) {
        return SW_OK;
    }
    struct link *links =
        sw_realloc("run", exchanges->links, ((size_t)exchanges->n_links + 1) * sizeof *links);
    SW_TRY_ALLOC(links, "the groups of ranks");
    exchanges->links = links;
    links[exchanges->n_links++] = *link;
    return SW_OK;
}

static int by_number(const void *a, const void *b)
{
    const struct link *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

/* Hashes what this rank sends and receives over a link, in its order. */
static uint64_t hash_order(const struct sw_executor *ex, const struct link *link)
{
    uint64_t h = SW_HASH_INIT;
    for (int p = 0; p < ex->plan->n_programs; p++) {
        const struct sw_program *program = &ex->plan->programs[p];
        for (int32_t i = 0; i < program->n_instrs; i++) {
            const struct sw_instr *instr = &program->instrs[i];
            if (!sw_instr_exchanges(instr) || link_of(ex->plan, instr).number != link->number) {
                continue;
            }
            const bool is_pair = link->from >= 0;
            const int64_t facts[] = {is_pair ? 0 : (int64_t)instr->verb, instr->bytes,
                                     (int64_t)instr->exchange.dtype, instr->exchange.batch,
                                     is_pair ? 0 : instr->exchange.peer};
            h = sw_hash(h, facts, sizeof facts);
        }
    }
    return h;
}

/* The member of the group that is rank r of the link. The two of a pair ascend. */
static int member_of(const struct link *link, int r)
{
    return link->from < 0 ? r : (r == 0) == (link->from < link->to) ? link->from : link->to;
}

/* Finds ranks with another order of exchanges before any of them waits in a step. */
static sw_status compare_order(const struct sw_executor *ex, const struct link *link,
                               const char *name)
{
    const struct sw_group *group = &ex->plan->groups[link->group];
    const int n = sw_comm_size(link->route.comm), me = sw_comm_rank(link->route.comm);
    const uint64_t mine = hash_order(ex, link);
    uint64_t *all = sw_alloc("run", (size_t)n * sizeof *all);
    SW_TRY_ALLOC(all, "the order of exchanges");
    sw_status st =
        sw_comm_all_gather(link->route.comm, &mine, all, sizeof mine, "the order of exchanges");
    for (int r = 0; r < n && st >= 0; r++) {
        if (all[r] != mine) {
            st = SW_FAIL(SW_E_PEER,
                         "rank %d has another order of exchanges in group %s than rank %d, whose "
                         "plan differs",
                         group->ranks[member_of(link, r)], name, group->ranks[member_of(link, me)]);
        }
    }
    sw_free(all);
    return st;
}

/* The id of one member travels over the transport. */
static sw_status open_ccl(struct sw_executor *ex, struct link *link, const char *name)
{
    sw_comm *comm = link->route.comm;
    struct sw_ccl_options options = {.rank = sw_comm_rank(comm),
                                     .n = sw_comm_size(comm),
                                     .deadline_s = sw_comm_deadline(comm),
                                     .name = name};
    if (options.n == 1) {
        return SW_OK;
    }
    SW_TRY(compare_order(ex, link, name));
    SW_TRY(options.rank == 0 ? ex->dev->ccl->new_id(ex->dev, options.id) : SW_OK);
    SW_TRY(sw_comm_broadcast(comm, 0, options.id, sizeof options.id, "an id of the library"));
    return ex->dev->ccl->open(ex->dev, &options, &link->route.ccl);
}

static sw_status open_link(struct sw_executor *ex, struct link *link, int32_t most_items)
{
    const struct sw_group *group = &ex->plan->groups[link->group];
    char name[64];
    int pair[2];
    sw_group_format(group, name, sizeof name);
    if (link->from < 0) {
        const struct sw_group_options all = {
            .number = link->number, .ranks = group->ranks, .n = group->n, .name = name};
        SW_TRY(sw_comm_open_group(ex->options.comm, &all, &link->route.comm));
    } else {
        pair[0] = group->ranks[member_of(link, 0)];
        pair[1] = group->ranks[member_of(link, 1)];
        const struct sw_group_options two = {
            .number = link->number, .ranks = pair, .n = 2, .name = name};
        SW_TRY(sw_comm_open_group(ex->options.comm, &two, &link->route.comm));
    }
    SW_TRY(sw_comm_reserve(link->route.comm, most_items));
    return ex->options.library ? open_ccl(ex, link, name) : SW_OK;
}

struct link *sw_executor_link(const struct sw_executor *ex, const struct sw_instr *instr)
{
    return find_link(&ex->exchanges, link_of(ex->plan, instr).number);
}

static sw_status note_links(struct sw_executor *ex)
{
    for (int p = 0; p < ex->plan->n_programs; p++) {
        const struct sw_program *program = &ex->plan->programs[p];
        for (int32_t i = 0; i < program->n_instrs; i++) {
            if (sw_instr_exchanges(&program->instrs[i])) {
                const struct link link = link_of(ex->plan, &program->instrs[i]);
                SW_TRY(add_link(&ex->exchanges, &link));
            }
        }
    }
    return SW_OK;
}

/* Scratch for the library's calls of each queue. */
static sw_status open_stages(struct sw_executor *ex, const int64_t n_jobs[SW_QUEUE_COUNT],
                             int32_t most_items)
{
    int most = 1;
    for (int i = 0; i < ex->exchanges.n_links; i++) {
        const int n = sw_comm_size(ex->exchanges.links[i].route.comm);
        most = n > most ? n : most;
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        struct sw_stage *stage = &ex->stages[q];
        if (sw_queue_exchanges((enum sw_queue)q) && n_jobs[q] > 0) {
            stage->ops = sw_alloc("run", (size_t)most_items * (size_t)sw_stage_most_ops(most) *
                                             sizeof *stage->ops);
            SW_TRY_ALLOC(stage->ops, "exchanges");
            stage->in_order = true;
            stage->library_sums = ex->options.library_sums;
        }
    }
    return SW_OK;
}

sw_status sw_executor_open_groups(struct sw_executor *ex, const int64_t n_jobs[SW_QUEUE_COUNT],
                                  int32_t most_items)
{
    struct exchanges *exchanges = &ex->exchanges;
    if (!ex->options.comm) {
        return SW_FAIL(SW_E_ARG, "the plan has collectives, but the executor has no communicator");
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (sw_queue_exchanges((enum sw_queue)q) && n_jobs[q] > 0) {
            exchanges->items[q] =
                sw_alloc_zero("run", 2 * (size_t)most_items, sizeof *exchanges->items[q]);
            SW_TRY_ALLOC(exchanges->items[q], "collectives");
        }
    }
    SW_TRY(note_links(ex));
    qsort(exchanges->links, (size_t)exchanges->n_links, sizeof *exchanges->links, by_number);
    for (int i = 0; i < exchanges->n_links; i++) {
        SW_TRY(open_link(ex, &exchanges->links[i], most_items));
    }
    if (!ex->options.library) {
        return SW_OK;
    }
    SW_TRY(sw_guard_open(ex, &exchanges->guard));
    return open_stages(ex, n_jobs, most_items);
}

void sw_executor_close_groups(struct sw_executor *ex)
{
    const bool failed = sw_guard_close(ex->exchanges.guard);
    for (int i = 0; i < ex->exchanges.n_links; i++) {
        struct link *link = &ex->exchanges.links[i];
        if (link->route.ccl) {
            ex->dev->ccl->close(ex->dev, link->route.ccl, failed);
        }
        sw_comm_close(link->route.comm, failed);
    }
    sw_free(ex->exchanges.links);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        sw_free(ex->exchanges.items[q]);
        sw_free(ex->stages[q].ops);
    }
}

void sw_executor_traffic(const struct sw_executor *ex, int group, struct sw_traffic *out)
{
    *out = (struct sw_traffic){.calls = {0}};
    for (int i = 0; i < ex->exchanges.n_links; i++) {
        const struct link *link = &ex->exchanges.links[i];
        struct sw_traffic one;
        if (link->group != group) {
            continue;
        }
        sw_comm_traffic(link->route.comm, &one);
        for (int op = 0; op < SW_COMM_OP_COUNT; op++) {
            out->calls[op] += one.calls[op];
            out->sent[op] += one.sent[op];
        }
    }
}

/* Sets the addresses of a batch to the present micro-batch. Only the thread of its queue does. */
static void go_to_slot(const struct sw_executor *ex, struct sw_collective_call *calls, int32_t n,
                       int64_t round)
{
    for (int32_t i = 0; i < n; i++) {
        for (int k = 0; k < calls[i].instr->n_in; k++) {
            calls[i].at[k] = sw_executor_slot(ex, &calls[i].operands[k], round);
        }
    }
}

static struct sw_comm_job job_of(struct sw_executor *ex, enum sw_queue queue,
                                 const struct sw_queue_job *what)
{
    const struct sw_program *program = what->program;
    const int32_t i = what->instr;
    struct loaded *loaded = &ex->programs[program - ex->plan->programs];
    return (struct sw_comm_job){
        .i_program = sw_executor_index(ex, program),
        .plan = ex->plan,
        .meter = &ex->meter,
        .stage = &ex->stages[queue],
        .calls = &loaded->calls[i],
        .instr = i,
        .n = program->instrs[i].exchange.batch,
        .round = what->round,
        .ns = ex->meter.profiles ? &loaded->steps[i].profile.ns : NULL,
    };
}

sw_status sw_executor_exchange(struct sw_executor *ex, enum sw_queue queue,
                               const struct sw_queue_job *what)
{
    const struct sw_comm_job job = job_of(ex, queue, what);
    struct loaded *loaded = &ex->programs[what->program - ex->plan->programs];
    struct sw_collective_call *call = &loaded->calls[what->instr];
    struct sw_instr_traffic more;
    go_to_slot(ex, call, job.n, what->round);
    if (ex->stages[queue].in_order) {
        atomic_fetch_add(&sw_executor_link(ex, &what->program->instrs[what->instr])->n_issued, 1);
    }
    SW_TRY(sw_collectives_run(&job, ex->exchanges.items[queue], &more));
    if (ex->stages[queue].in_order) {
        atomic_fetch_add(&call->more_sent, more.sent);
        atomic_fetch_add(&call->more_received, more.received);
    }
    return SW_OK;
}

void sw_executor_exchanged(struct sw_executor *ex, enum sw_queue queue,
                           const struct sw_queue_job *what, int64_t begin_ns, int64_t end_ns)
{
    const struct sw_comm_job job = job_of(ex, queue, what);
    struct loaded *loaded = &ex->programs[what->program - ex->plan->programs];
    struct sw_collective_call *call = &loaded->calls[what->instr];
    const struct sw_instr_traffic more = {.sent = atomic_exchange(&call->more_sent, 0),
                                          .received = atomic_exchange(&call->more_received, 0)};
    sw_collectives_ran(&job, &more, begin_ns, end_ns);
}

sw_status sw_executor_blame(struct sw_executor *ex, enum sw_queue queue,
                            const struct sw_queue_job *what, sw_status st)
{
    const struct sw_comm_job job = job_of(ex, queue, what);
    return sw_collectives_blame(&job, st);
}
