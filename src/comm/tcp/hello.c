// SPDX-License-Identifier: Apache-2.0
// The handshake of two ranks. Each proves to the other that it knows the secret of the job, using
// nonces that both have just drawn. This file does not use sockets. Invariant: data received before
// the proof only decides whether to continue.
#include <stdio.h>
#include <string.h>

#include "comm/tcp/tcp.h"

static const uint32_t magic = 0x53574333;

static const char listener_role[] = "comm listener", dialer_role[] = "comm dialer";

static struct sw_proof_of proof_of(const struct sw_tcp_hello *hello, const char *role,
                                   const struct sw_tcp_about *about)
{
    return (struct sw_proof_of){.role = role,
                                .opener = hello->opener,
                                .answerer = hello->answerer,
                                .opener_rank = hello->from,
                                .answerer_rank = hello->to,
                                .more = about,
                                .more_len = about ? sizeof *about : 0};
}

void sw_tcp_greet(const struct sw_tcp_self *self, int to, const uint8_t nonce[SW_NONCE_BYTES],
                  struct sw_tcp_hello *out, struct sw_tcp_greeting *out_greeting)
{
    *out = (struct sw_tcp_hello){.from = self->rank, .to = to};
    memcpy(out->opener, nonce, SW_NONCE_BYTES);
    *out_greeting = (struct sw_tcp_greeting){.magic = magic, .from = self->rank, .to = to};
    memcpy(out_greeting->nonce, nonce, SW_NONCE_BYTES);
}

bool sw_tcp_hear_greeting(const struct sw_tcp_self *self, const struct sw_tcp_greeting *greeting,
                          const uint8_t nonce[SW_NONCE_BYTES], struct sw_tcp_hello *out,
                          struct sw_tcp_challenge *out_challenge)
{
    if (greeting->magic != magic || greeting->to != self->rank || greeting->from < 0) {
        return false;
    }
    *out = (struct sw_tcp_hello){.from = greeting->from, .to = greeting->to};
    memcpy(out->opener, greeting->nonce, SW_NONCE_BYTES);
    memcpy(out->answerer, nonce, SW_NONCE_BYTES);
    *out_challenge = (struct sw_tcp_challenge){.magic = magic};
    memcpy(out_challenge->nonce, nonce, SW_NONCE_BYTES);
    const struct sw_proof_of what = proof_of(out, listener_role, NULL);
    sw_prove(&self->secret, &what, out_challenge->proof);
    return true;
}

bool sw_tcp_hear_challenge(const struct sw_tcp_self *self, struct sw_tcp_hello *hello,
                           const struct sw_tcp_challenge *challenge,
                           struct sw_tcp_answer *out_answer)
{
    memcpy(hello->answerer, challenge->nonce, SW_NONCE_BYTES);
    const struct sw_proof_of theirs = proof_of(hello, listener_role, NULL);
    if (challenge->magic != magic || !sw_proves(&self->secret, &theirs, challenge->proof)) {
        return false;
    }
    memset(out_answer, 0, sizeof *out_answer);
    out_answer->about = self->about;
    const struct sw_proof_of mine = proof_of(hello, dialer_role, &out_answer->about);
    sw_prove(&self->secret, &mine, out_answer->proof);
    return true;
}

enum sw_tcp_guest sw_tcp_hear_answer(const struct sw_tcp_self *self,
                                     const struct sw_tcp_hello *hello,
                                     const struct sw_tcp_answer *answer, struct sw_tcp_about *out,
                                     struct sw_tcp_verdict *out_verdict)
{
    const struct sw_proof_of what = proof_of(hello, dialer_role, &answer->about);
    const struct sw_tcp_about *about = &answer->about;
    char host[SW_TCP_HOST_CAP];
    memset(out_verdict, 0, sizeof *out_verdict);
    if (!sw_proves(&self->secret, &what, answer->proof)) {
        return SW_TCP_STRANGER;
    }
    char *why = out_verdict->why;
    if (about->group != self->about.group) {
        snprintf(why, sizeof out_verdict->why,
                 "rank %d connects for group %d, rank %d for group %d", hello->from, about->group,
                 self->rank, self->about.group);
    } else if (about->size != self->about.size) {
        snprintf(why, sizeof out_verdict->why, "rank %d counts %d ranks, rank %d counts %d",
                 hello->from, about->size, self->rank, self->about.size);
    } else if (hello->from <= self->rank || hello->from >= about->size) {
        /* each rank connects to the ranks before it */
        snprintf(why, sizeof out_verdict->why, "rank %d of %d does not connect to rank %d",
                 hello->from, about->size, self->rank);
    } else if (about->port < 1 || about->port > 65535) {
        snprintf(why, sizeof out_verdict->why, "rank %d listens at port %u, which does not exist",
                 hello->from, about->port);
    }
    if (*why) {
        return SW_TCP_MISFIT;
    }
    snprintf(host, sizeof host, "%.*s", (int)sizeof host - 1, about->host);
    *out = *about;
    sw_plain_words(host, out->host, sizeof out->host);
    out_verdict->met = 1;
    return SW_TCP_MEMBER;
}
