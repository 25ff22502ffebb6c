// SPDX-License-Identifier: Apache-2.0
// The errors of exchanges. They name the operation, its group, and ranks as their caller names
// them. Text from other ranks is made safe for a terminal.
#include <stdio.h>

#include "comm/comm.h"

const char *sw_comm_rank_text(const char *const *names, int rank, char scratch[SW_RANK_TEXT])
{
    if (names) {
        return names[rank];
    }
    snprintf(scratch, SW_RANK_TEXT, "rank %d", rank);
    return scratch;
}

const char *sw_comm_where(const struct sw_exchange *x, char scratch[SW_WHERE_TEXT])
{
    snprintf(scratch, SW_WHERE_TEXT, "%.32s of %.400s%s%.100s", x->op, x->what,
             x->group_name ? " in group " : "", x->group_name ? x->group_name : "");
    return scratch;
}

void sw_comm_list_rank(struct sw_str *list, const struct sw_exchange *x, int rank, const char *host)
{
    char name[SW_RANK_TEXT];
    sw_str_printf(list, "%s%s", list->len ? ", " : "", sw_comm_rank_text(x->names, rank, name));
    if (host) {
        sw_str_printf(list, " (%s)", host);
    }
}

sw_status sw_comm_late(const struct sw_exchange *x, int rank, double deadline_s,
                       struct sw_str *missing)
{
    char me[SW_RANK_TEXT], where[SW_WHERE_TEXT];
    const sw_status st =
        SW_FAIL(SW_E_PEER, "%s waited %.3g s for %s at %s", sw_comm_rank_text(x->names, rank, me),
                deadline_s, sw_str_text(missing), sw_comm_where(x, where));
    sw_str_fini(missing);
    return st;
}

sw_status sw_comm_ended(const struct sw_exchange *x, int rank, const char *why)
{
    char me[SW_RANK_TEXT], where[SW_WHERE_TEXT];
    return SW_FAIL(SW_E_PEER, "%s at %s: %s", sw_comm_rank_text(x->names, rank, me),
                   sw_comm_where(x, where), why);
}

sw_status sw_comm_diverged(const struct sw_exchange *mine, int rank, size_t bytes, int peer,
                           const char *op, const char *what, int64_t sequence, size_t peer_bytes)
{
    char me[SW_RANK_TEXT], them[SW_RANK_TEXT], where[SW_WHERE_TEXT], plain_op[64], plain_what[512];
    return SW_FAIL(SW_E_PEER,
                   "ranks diverge: %s is at collective %lld, %s with %zu bytes a message, %s at "
                   "%lld, %s of %s with %zu",
                   sw_comm_rank_text(mine->names, rank, me), (long long)mine->sequence,
                   sw_comm_where(mine, where), bytes, sw_comm_rank_text(mine->names, peer, them),
                   (long long)sequence, sw_plain_words(op, plain_op, sizeof plain_op),
                   sw_plain_words(what, plain_what, sizeof plain_what), peer_bytes);
}

sw_status sw_comm_misfit(const struct sw_exchange *mine, int rank, int peer, const char *how)
{
    char me[SW_RANK_TEXT], them[SW_RANK_TEXT], where[SW_WHERE_TEXT];
    return SW_FAIL(SW_E_PEER,
                   "ranks diverge: %s is at collective %lld, %s, and the messages of %s there do "
                   "not fit: %s",
                   sw_comm_rank_text(mine->names, rank, me), (long long)mine->sequence,
                   sw_comm_where(mine, where), sw_comm_rank_text(mine->names, peer, them), how);
}
