// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes connected by TCP. Private to the room.
#pragma once

#include "comm/comm.h"

enum { SW_TCP_HOST_CAP = 64 };

/*
 * sw_tcp_meet - every rank gets a socket to every other: they meet at rank 0, which tells all where
 * the others listen.
 *
 * out_fds      [size] filled, not blocking; -1 at the own rank. The caller's, to close
 * out_hosts    [size] names of the machines
 *
 * SW_E_PEER    who did not come within the deadline, by name
 */
sw_status sw_tcp_meet(const struct sw_tcp_options *options, int *out_fds,
                      char (*out_hosts)[SW_TCP_HOST_CAP]);

/* ---- hello.c: what two ranks say to each other first, without the sockets ----
 *
 *     who connects                      who listens
 *     greeting: ranks, its nonce   ->
 *                                  <-   challenge: its nonce, its proof
 *     answer: about it, its proof  ->
 *                                  <-   verdict
 */

struct sw_tcp_greeting {
    uint32_t magic; /* also tells another byte order */
    int32_t from, to;
    uint8_t nonce[SW_NONCE_BYTES];
};

struct sw_tcp_challenge {
    uint32_t magic;
    uint8_t nonce[SW_NONCE_BYTES], proof[SW_PROOF_BYTES];
};

struct sw_tcp_about { /* a rank, in its own words */
    int32_t size;     /* of the job, as it counts */
    uint32_t port;    /* where it listens */
    char host[SW_TCP_HOST_CAP];
};

struct sw_tcp_answer {
    struct sw_tcp_about about;
    uint8_t proof[SW_PROOF_BYTES]; /* also of what it says about itself */
};

struct sw_tcp_verdict {
    uint32_t met;
    char why[508]; /* not */
};

struct sw_tcp_self {
    int rank;
    struct sw_job_secret secret;
    struct sw_tcp_about about;
};

/* A hello that is under way, on either side. */
struct sw_tcp_hello {
    int32_t from, to; /* who connects, who listens */
    uint8_t opener[SW_NONCE_BYTES], answerer[SW_NONCE_BYTES];
};

/* Who connects: begins; and hears whether the other side is of this job. */
void sw_tcp_greet(const struct sw_tcp_self *self, int to, const uint8_t nonce[SW_NONCE_BYTES],
                  struct sw_tcp_hello *out, struct sw_tcp_greeting *out_greeting);
bool sw_tcp_hear_challenge(const struct sw_tcp_self *self, struct sw_tcp_hello *hello,
                           const struct sw_tcp_challenge *challenge,
                           struct sw_tcp_answer *out_answer);

/* Who listens; false: no rank that wants this one. */
bool sw_tcp_hear_greeting(const struct sw_tcp_self *self, const struct sw_tcp_greeting *greeting,
                          const uint8_t nonce[SW_NONCE_BYTES], struct sw_tcp_hello *out,
                          struct sw_tcp_challenge *out_challenge);

enum sw_tcp_guest {
    SW_TCP_STRANGER, /* does not prove the secret: is told nothing */
    SW_TCP_MISFIT,   /* of this job, but cannot take part: out_verdict has why */
    SW_TCP_MEMBER    /* out_verdict says so; *out is fit to be printed */
};
enum sw_tcp_guest sw_tcp_hear_answer(const struct sw_tcp_self *self,
                                     const struct sw_tcp_hello *hello,
                                     const struct sw_tcp_answer *answer, struct sw_tcp_about *out,
                                     struct sw_tcp_verdict *out_verdict);
