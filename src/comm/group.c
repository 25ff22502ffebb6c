// SPDX-License-Identifier: Apache-2.0
// Groups of the ranks of a communicator. A transport that cannot open groups of its own carries
// their messages beside those of all ranks.
#include <stdio.h>
#include <string.h>

#include "comm/private.h"

int sw_comm_member(const struct sw_group_options *group, int world_rank)
{
    int i = 0;
    while (i < group->n && group->ranks[i] != world_rank) {
        i++;
    }
    return i < group->n ? i : -1;
}

static sw_status check_group(const sw_comm *world, const struct sw_group_options *o)
{
    bool good = !sw_comm_is_group(world) && o->number > 0 && o->n >= 1;
    for (int i = 0; good && i < o->n; i++) {
        good = o->ranks[i] >= 0 && o->ranks[i] < sw_comm_size(world) &&
               (i == 0 || o->ranks[i] > o->ranks[i - 1]);
    }
    if (!good || sw_comm_member(o, sw_comm_rank(world)) < 0) {
        return SW_FAIL(
            SW_E_ARG,
            "group %d of %d ranks: wanted a number above 0 and ascending ranks below %d that "
            "include rank %d, in a communicator that is not a group",
            o->number, o->n, sw_comm_size(world), sw_comm_rank(world));
    }
    return o->deadline_s == 0 ? SW_OK : sw_comm_check_deadline(o->deadline_s);
}

/* Members have their names in the world, which are "rank N" by default. */
static sw_status name_members(const sw_comm *world, const struct sw_group_options *o, sw_comm *comm)
{
    char(*text)[SW_RANK_TEXT] = sw_alloc("comm", (size_t)o->n * sizeof *text);
    const char **names = sw_alloc("comm", (size_t)o->n * sizeof *names);
    for (int i = 0; text && names && i < o->n; i++) {
        names[i] = sw_comm_rank_text(world->names, o->ranks[i], text[i]);
    }
    const sw_status st = text && names
                             ? sw_comm_set_names(comm, names, o->n)
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for the names of ranks");
    sw_free(text);
    sw_free(names);
    return st;
}

/* Members find out here whether all of them open this group. */
static sw_status meet(sw_comm *world, const struct sw_group_options *o, sw_comm *comm)
{
    char what[sizeof((struct sw_comm_header){0}).what];
    const char *name = o->name ? o->name : "no name";
    size_t len =
        (size_t)snprintf(what, sizeof what, "group %d (%.40s) of %d ranks,", o->number, name, o->n);
    int n = 0;
    for (int i = 0; i < o->n; i++) {
        if (len < sizeof what) {
            len += (size_t)snprintf(what + len, sizeof what - len, " %d", o->ranks[i]);
        }
        if (o->ranks[i] != sw_comm_rank(world)) {
            comm->sends[n].peer = comm->receives[n].peer = o->ranks[i];
            comm->sends[n].bytes = comm->receives[n].bytes = 0;
            n++;
        }
    }
    const struct sw_exchange x = {.op = "open_group",
                                  .what = what,
                                  .sequence = -1,
                                  .sends = comm->sends,
                                  .receives = comm->receives,
                                  .n_sends = n,
                                  .n_receives = n,
                                  .names = world->names};
    return sw_comm_run_exchange(world, &x);
}

/* The transport of the world, which has no groups: ranks keep their numbers. */
static sw_status share_transport(const sw_comm *world, const struct sw_group_options *o,
                                 sw_comm *comm)
{
    comm->ranks = sw_alloc("comm", (size_t)o->n * sizeof *comm->ranks);
    SW_TRY_ALLOC(comm->ranks, "a communicator");
    memcpy(comm->ranks, o->ranks, (size_t)o->n * sizeof *o->ranks);
    comm->transport.ctx = world->transport.ctx;
    comm->transport.exchange = world->transport.exchange;
    return world->names ? sw_comm_set_names(comm, world->names, sw_comm_size(world)) : SW_OK;
}

static sw_status connect_group(sw_comm *world, const struct sw_group_options *o, sw_comm *comm)
{
    const struct sw_transport *transport = &world->transport;
    if (!transport->exchange || o->n == 1) {
        return SW_OK;
    }
    SW_TRY(meet(world, o, comm));
    if (!transport->open_group) {
        return share_transport(world, o, comm);
    }
    sw_status st = name_members(world, o, comm);
    st = st < 0 ? st : transport->open_group(transport->ctx, o, comm->names, &comm->transport);
    if (st < 0) {
        sw_comm_break_all(world, st); /* members may wait for this one */
    }
    return st;
}

sw_status sw_comm_open_group(sw_comm *world, const struct sw_group_options *options, sw_comm **out)
{
    sw_comm *comm;
    SW_TRY(check_group(world, options));
    SW_TRY(sw_comm_open_bare(sw_comm_member(options, sw_comm_rank(world)), options->n, &comm));
    comm->number = options->number;
    comm->name = options->name ? sw_strdup("comm", options->name) : NULL;
    const sw_status st = options->name && !comm->name
                             ? SW_FAIL(SW_E_NOMEM, "out of host memory for a communicator")
                             : connect_group(world, options, comm);
    if (st < 0) {
        sw_comm_close(comm, true);
        return st;
    }
    pthread_mutex_lock(&world->shared->lock);
    world->shared->n_open++;
    pthread_mutex_unlock(&world->shared->lock);
    comm->shared = world->shared;
    *out = comm;
    return SW_OK;
}
