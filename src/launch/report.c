// SPDX-License-Identifier: Apache-2.0
// The lines between a launcher and its peers, without the sockets. First both prove that they
// belong to the same job; lines before the proof have no effect. Invariant: stored words of a peer
// are safe for a terminal.
#include "launch/private.h"

#include <string.h>

static struct sw_proof_of proof_of(const char *role, const char *hello, const uint8_t *opener,
                                   const uint8_t *answerer)
{
    return (struct sw_proof_of){.role = role,
                                .opener = opener,
                                .answerer = answerer,
                                .more = hello,
                                .more_len = strlen(hello)};
}

/* The rank is in the line of the hello, which the proof covers. */
static const char launcher_role[] = "launcher", reporter_role[] = "reporter";

void sw_launch_report_hello(const char *kind, int number, const char *host, long pid,
                            const uint8_t nonce[SW_NONCE_BYTES], char out[SW_LAUNCH_LINE_CAP])
{
    char digits[2 * SW_NONCE_BYTES + 1];
    sw_hex_write(nonce, SW_NONCE_BYTES, digits);
    snprintf(out, SW_LAUNCH_LINE_CAP, "%s %d %s %ld %s", kind, number, *host ? host : "-", pid,
             digits);
}

bool sw_launch_report_answer(const struct sw_job_secret *secret, const char *hello,
                             const uint8_t nonce[SW_NONCE_BYTES], const char *line,
                             char out[SW_LAUNCH_LINE_CAP])
{
    uint8_t theirs[SW_NONCE_BYTES], proof[SW_PROOF_BYTES];
    char nonce_text[2 * SW_NONCE_BYTES + 2], proof_text[2 * SW_PROOF_BYTES + 2];
    int end = 0;
    if (sscanf(line, "prove %33s %65s%n", nonce_text, proof_text, &end) != 2 || line[end] ||
        !sw_hex_read(nonce_text, theirs, sizeof theirs) ||
        !sw_hex_read(proof_text, proof, sizeof proof)) {
        return false;
    }
    const struct sw_proof_of launcher = proof_of(launcher_role, hello, nonce, theirs);
    if (!sw_proves(secret, &launcher, proof)) {
        return false;
    }
    const struct sw_proof_of mine = proof_of(reporter_role, hello, nonce, theirs);
    sw_prove(secret, &mine, proof);
    memcpy(out, "proof ", 6);
    sw_hex_write(proof, sizeof proof, out + 6);
    return true;
}

/* "hello RANK HOST PID NONCE", "node NUMBER HOST PID NONCE" */
static enum heard take_hello(struct reporter *r, const struct sw_job_secret *secret,
                             const char *line, const uint8_t nonce[SW_NONCE_BYTES], char *reply)
{
    char kind[8], host[256], digits[2 * SW_NONCE_BYTES + 2], proof_text[2 * SW_PROOF_BYTES + 1];
    uint8_t proof[SW_PROOF_BYTES];
    int number = -1, end = 0;
    if (sscanf(line, "%7s %d %255s %ld %33s%n", kind, &number, host, &r->pid, digits, &end) != 5 ||
        line[end] || number < 0 || !sw_hex_read(digits, r->nonces[0], SW_NONCE_BYTES) ||
        (strcmp(kind, "hello") != 0 && strcmp(kind, "node") != 0)) {
        return HEARD_NO_SENSE;
    }
    r->is_node = kind[0] == 'n';
    r->number = number;
    r->stage = REPORT_GREETED;
    snprintf(r->hello, sizeof r->hello, "%s", line);
    memcpy(r->nonces[1], nonce, SW_NONCE_BYTES);
    const struct sw_proof_of mine = proof_of(launcher_role, r->hello, r->nonces[0], r->nonces[1]);
    sw_prove(secret, &mine, proof);
    sw_hex_write(proof, sizeof proof, proof_text);
    sw_hex_write(nonce, SW_NONCE_BYTES, digits);
    snprintf(reply, SW_LAUNCH_LINE_CAP, "prove %s %s\n", digits, proof_text);
    return HEARD_SENSE;
}

static enum heard take_proof(struct reporter *r, const struct sw_job_secret *secret,
                             const char *line)
{
    uint8_t proof[SW_PROOF_BYTES];
    const struct sw_proof_of what = proof_of(reporter_role, r->hello, r->nonces[0], r->nonces[1]);
    if (strncmp(line, "proof ", 6) != 0 || !sw_hex_read(line + 6, proof, sizeof proof) ||
        !sw_proves(secret, &what, proof)) {
        return HEARD_NO_PROOF;
    }
    r->stage = REPORT_PROVEN;
    return HEARD_PROOF;
}

enum heard sw_launch_report_take(struct reporter *r, const struct sw_job_secret *secret,
                                 const char *line, const uint8_t nonce[SW_NONCE_BYTES],
                                 char reply[SW_LAUNCH_LINE_CAP])
{
    char what[sizeof r->what] = "";
    int rank = -1, status = 0;
    long long step = 0;
    *reply = '\0';
    if (r->stage == REPORT_NEW) {
        return take_hello(r, secret, line, nonce, reply);
    }
    if (r->stage == REPORT_GREETED) {
        return take_proof(r, secret, line);
    }
    if (r->is_node) {
        return HEARD_NO_SENSE; /* it only waits for our end */
    }
    if (sscanf(line, "at %d %lld %63s", &rank, &step, what) >= 2 && rank == r->number) {
        r->step = step;
        sw_plain_words(what, r->what, sizeof r->what);
        return HEARD_SENSE;
    }
    if (sscanf(line, "bye %d %d", &rank, &status) == 2 && rank == r->number) {
        r->bye = true;
        r->status = status;
        return HEARD_SENSE;
    }
    return HEARD_NO_SENSE;
}
