// SPDX-License-Identifier: Apache-2.0
// Any bytes as lines to a launcher. A peer that does not prove the secret cannot report. If the
// first byte is odd, a valid proof is inserted, so that the lines of a rank are parsed, too. Stored
// text must be safe for a terminal.
#include "launch/private.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t nonce[SW_NONCE_BYTES] = "launcher's";

static void check(const struct reporter *r)
{
    char again[sizeof r->what];
    sw_plain_words(r->what, again, sizeof again);
    SW_ASSERT(strcmp(again, r->what) == 0);
    SW_ASSERT(memchr(r->hello, '\0', sizeof r->hello));
    SW_ASSERT(r->stage == REPORT_NEW || r->number >= 0);
    SW_ASSERT(r->stage == REPORT_PROVEN || (!r->bye && r->step == -1 && !*r->what));
}

/* As one who holds the secret would answer. */
static void answer(struct reporter *r, const struct sw_job_secret *secret, char *reply)
{
    char line[SW_LAUNCH_LINE_CAP];
    reply[strcspn(reply, "\n")] = '\0';
    SW_ASSERT(sw_launch_report_answer(secret, r->hello, r->nonces[0], reply, line));
    SW_ASSERT(sw_launch_report_take(r, secret, line, nonce, reply) == HEARD_PROOF);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sw_job_secret secret = {.known = true, .key = "not to be known", .job = "fuzz"};
    struct reporter r = {.step = -1, .number = -1};
    char line[SW_LAUNCH_LINE_CAP], reply[SW_LAUNCH_LINE_CAP], out[SW_LAUNCH_LINE_CAP];
    const bool proves = size > 0 && data[0] % 2;
    bool is_heard = true;
    for (size_t at = 1; at < size && is_heard;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        const size_t len = end ? (size_t)(end - data) - at : size - at;
        if (len >= sizeof line) {
            break; /* the monitor hangs up */
        }
        memcpy(line, data + at, len);
        line[len] = '\0';
        at += len + 1;
        const bool was_new = r.stage == REPORT_NEW;
        const enum heard heard = sw_launch_report_take(&r, &secret, line, nonce, reply);
        is_heard = heard == HEARD_SENSE || heard == HEARD_PROOF;
        SW_ASSERT(heard != HEARD_PROOF);
        check(&r);
        if (proves && was_new && r.stage == REPORT_GREETED) {
            answer(&r, &secret, reply);
        }
        SW_ASSERT(proves || r.stage != REPORT_PROVEN);
        SW_ASSERT(!sw_launch_report_answer(&secret, "hello 1 h 2 x", nonce, line, out));
    }
    return 0;
}
