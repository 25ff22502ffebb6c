// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes connected by TCP. Private to this folder.
#pragma once

#include "comm/comm.h"

enum { SW_TCP_HOST_CAP = 64, SW_TCP_SPARE_FILES = 64 };

/* Copies the secret and the id of the job. */
sw_status sw_tcp_keep_secret(const struct sw_tcp_options *options, struct sw_job_secret *out);

/*
 * sw_tcp_meet - connects every rank to every other. They meet at rank 0, which sends all addresses.
 *
 * out_fds      [size] filled, non-blocking; -1 for this rank; the caller closes them. All are -1
 *              after a failure
 * out_hosts    [size] names of the machines
 *
 * SW_E_PEER    names the ranks that did not come within the deadline
 */
sw_status sw_tcp_meet(const struct sw_tcp_options *options, const struct sw_job_secret *secret,
                      int *out_fds, char (*out_hosts)[SW_TCP_HOST_CAP]);

/* A rank that connects to the other members of a group. Connections to all of them exist already,
 * and tell their addresses. */
struct sw_tcp_party {
    const struct sw_group_options *group;
    const char *const *names; /* [n] of the members */
    int rank;                 /* in the group */
    double deadline_s;
    const struct sw_job_secret *secret;
    const int *fds;                 /* [n] the connections to the members; -1 for this rank */
    char (*hosts)[SW_TCP_HOST_CAP]; /* [n] */
    /* Tells the members the port at which this rank listens, and hears theirs. */
    sw_status (*swap_ports)(void *ctx, uint32_t mine, uint32_t *out_ports);
    void *ctx;
};
/* Connects every member to every other, with the same handshake. out_fds: as in sw_tcp_meet */
sw_status sw_tcp_meet_group(const struct sw_tcp_party *party, int *out_fds);

/* ---- hello.c: the handshake of two ranks, without sockets ----
 *
 * connecting side                   listening side
 *     greeting: ranks, its nonce   ->
 *                                  <-   challenge: its nonce, its proof
 *     answer: about it, its proof  ->
 *                                  <-   verdict */

struct sw_tcp_greeting {
    uint32_t magic; /* also detects another byte order */
    int32_t from, to;
    uint8_t nonce[SW_NONCE_BYTES];
};

struct sw_tcp_challenge {
    uint32_t magic;
    uint8_t nonce[SW_NONCE_BYTES], proof[SW_PROOF_BYTES];
};

struct sw_tcp_about { /* a rank's description of itself */
    int32_t size;     /* its number of ranks in the job or the group */
    int32_t group;    /* number of the group to connect for; 0 = all ranks */
    uint32_t port;    /* port on which it listens */
    char host[SW_TCP_HOST_CAP];
};

struct sw_tcp_answer {
    struct sw_tcp_about about;
    uint8_t proof[SW_PROOF_BYTES]; /* also covers `about` */
};

struct sw_tcp_verdict {
    uint32_t met;
    char why[508]; /* reason if `met` is 0 */
};

struct sw_tcp_self {
    int rank;
    struct sw_job_secret secret;
    struct sw_tcp_about about;
};

/* A handshake in progress, on either side. */
struct sw_tcp_hello {
    int32_t from, to; /* connecting rank, listening rank */
    uint8_t opener[SW_NONCE_BYTES], answerer[SW_NONCE_BYTES];
};

/* Connecting side: starts, and checks that the other side belongs to this job. */
void sw_tcp_greet(const struct sw_tcp_self *self, int to, const uint8_t nonce[SW_NONCE_BYTES],
                  struct sw_tcp_hello *out, struct sw_tcp_greeting *out_greeting);
bool sw_tcp_hear_challenge(const struct sw_tcp_self *self, struct sw_tcp_hello *hello,
                           const struct sw_tcp_challenge *challenge,
                           struct sw_tcp_answer *out_answer);

/* Listening side; false = the peer is not a rank that wants to reach this one. */
bool sw_tcp_hear_greeting(const struct sw_tcp_self *self, const struct sw_tcp_greeting *greeting,
                          const uint8_t nonce[SW_NONCE_BYTES], struct sw_tcp_hello *out,
                          struct sw_tcp_challenge *out_challenge);

enum sw_tcp_guest {
    SW_TCP_STRANGER, /* it did not prove the secret, and gets no reply */
    SW_TCP_MISFIT,   /* a rank of this job that cannot take part; out_verdict has the reason */
    SW_TCP_MEMBER    /* a member of the job; *out is safe to print */
};
enum sw_tcp_guest sw_tcp_hear_answer(const struct sw_tcp_self *self,
                                     const struct sw_tcp_hello *hello,
                                     const struct sw_tcp_answer *answer, struct sw_tcp_about *out,
                                     struct sw_tcp_verdict *out_verdict);
