// SPDX-License-Identifier: Apache-2.0
// Any bytes as the first message of a connection to a rank, from either side. A peer that does not
// prove the secret is not accepted. If the first byte is odd, the proof is corrected, so that the
// rest of the message is parsed, too. Stored values must be in bounds and safe for a terminal.
#include "comm/tcp/tcp.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RANK = 1, SIZE = 4 };

struct bytes {
    const uint8_t *at;
    size_t left;
};

/* Zeros behind the end. */
static void take(struct bytes *from, void *to, size_t n)
{
    const size_t have = from->left < n ? from->left : n;
    memset(to, 0, n);
    if (have > 0) {
        memcpy(to, from->at, have);
    }
    from->at += have;
    from->left -= have;
}

static void check_plain(const char *text)
{
    char again[256];
    sw_plain_words(text, again, sizeof again);
    SW_ASSERT(strcmp(again, text) == 0);
}

static void put_right(const struct sw_tcp_self *self, const struct sw_tcp_hello *hello,
                      struct sw_tcp_answer *answer)
{
    const struct sw_proof_of what = {.role = "comm dialer",
                                     .opener = hello->opener,
                                     .answerer = hello->answerer,
                                     .opener_rank = hello->from,
                                     .answerer_rank = hello->to,
                                     .more = &answer->about,
                                     .more_len = sizeof answer->about};
    sw_prove(&self->secret, &what, answer->proof);
}

static void listen(const struct sw_tcp_self *self, struct bytes in, bool proves)
{
    static const uint8_t nonce[SW_NONCE_BYTES] = "listener's";
    struct sw_tcp_greeting greeting;
    struct sw_tcp_challenge challenge;
    struct sw_tcp_answer answer;
    struct sw_tcp_hello hello;
    struct sw_tcp_about about;
    struct sw_tcp_verdict verdict;
    take(&in, &greeting, sizeof greeting);
    if (!sw_tcp_hear_greeting(self, &greeting, nonce, &hello, &challenge)) {
        return;
    }
    take(&in, &answer, sizeof answer);
    if (proves) {
        put_right(self, &hello, &answer);
    }
    const enum sw_tcp_guest guest = sw_tcp_hear_answer(self, &hello, &answer, &about, &verdict);
    SW_ASSERT(proves == (guest != SW_TCP_STRANGER));
    SW_ASSERT((guest == SW_TCP_MEMBER) == (verdict.met == 1));
    SW_ASSERT((guest == SW_TCP_MISFIT) == (verdict.why[0] != '\0'));
    check_plain(verdict.why);
    if (guest == SW_TCP_MEMBER) {
        SW_ASSERT(hello.from > RANK && hello.from < SIZE && about.size == SIZE);
        SW_ASSERT(about.port >= 1 && about.port <= 65535);
        SW_ASSERT(memchr(about.host, '\0', sizeof about.host));
        check_plain(about.host);
    }
}

static void connect_to(const struct sw_tcp_self *self, struct bytes in)
{
    static const uint8_t nonce[SW_NONCE_BYTES] = "dialer's";
    struct sw_tcp_greeting greeting;
    struct sw_tcp_challenge challenge;
    struct sw_tcp_answer answer;
    struct sw_tcp_hello hello;
    sw_tcp_greet(self, 0, nonce, &hello, &greeting);
    take(&in, &challenge, sizeof challenge);
    SW_ASSERT(!sw_tcp_hear_challenge(self, &hello, &challenge, &answer));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sw_tcp_self self = {
        .rank = RANK,
        .secret = {.known = true, .key = "not to be known", .job = "fuzz"},
        .about = {.size = SIZE, .port = 7, .host = "here"}};
    if (size > 0) {
        listen(&self, (struct bytes){data + 1, size - 1}, data[0] % 2);
        connect_to(&self, (struct bytes){data + 1, size - 1});
    }
    return 0;
}
