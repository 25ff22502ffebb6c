// SPDX-License-Identifier: Apache-2.0
// The header that precedes the messages of an exchange, for the transports between processes. A
// rank compares what arrives with what it would have sent itself.
#include <stdio.h>
#include <string.h>

#include "comm/comm.h"

void sw_comm_header_fill(struct sw_comm_header *out, const struct sw_exchange *x, int peer,
                         bool sends)
{
    const struct sw_message *messages = sends ? x->sends : x->receives;
    const int n = sends ? x->n_sends : x->n_receives;
    memset(out, 0, sizeof *out);
    snprintf(out->op, sizeof out->op, "%s", x->op);
    snprintf(out->what, sizeof out->what, "%s", x->what);
    out->sequence = x->sequence;
    for (int i = 0; i < n; i++) {
        if (messages[i].peer == peer) {
            out->bytes += messages[i].bytes;
            out->sizes = sw_hash_word(out->sizes, (int64_t)messages[i].bytes);
            out->n_messages++;
        }
    }
}

sw_status sw_comm_header_check(const struct sw_comm_header *got, const struct sw_exchange *x,
                               int rank, int peer)
{
    struct sw_comm_header mine, theirs = *got;
    char how[160];
    sw_comm_header_fill(&mine, x, peer, false);
    if (memcmp(&mine, got, sizeof mine) == 0) {
        return SW_OK;
    }
    theirs.sizes = mine.sizes;
    if (memcmp(&mine, &theirs, sizeof mine) == 0) {
        snprintf(how, sizeof how,
                 "their number (%u) and total (%llu bytes) are as wanted, but their sizes differ",
                 mine.n_messages, (unsigned long long)mine.bytes);
        return sw_comm_misfit(x, rank, peer, how);
    }
    theirs.op[sizeof theirs.op - 1] = theirs.what[sizeof theirs.what - 1] = '\0';
    return sw_comm_diverged(x, rank, (size_t)mine.bytes, peer, theirs.op, theirs.what,
                            theirs.sequence, (size_t)theirs.bytes);
}
