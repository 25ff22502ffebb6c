// SPDX-License-Identifier: Apache-2.0
// The secret of a job: 128 bits that its processes hold and nobody else does. Both ends of a
// connection prove that they hold it by a keyed hash (BLAKE2s, RFC 7693) over numbers that both
// have just drawn, so that nothing that was heard before is worth anything. Invariant: the secret
// itself is never sent, and a comparison takes as long whatever differs.
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- BLAKE2s ---- */

enum { BLOCK = 64, ROUNDS = 10 };

static const uint32_t iv[8] = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                               0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};

static const uint8_t sigma[ROUNDS][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void mix(uint32_t *v, int a, int b, int c, int d, uint32_t x, uint32_t y)
{
    v[a] += v[b] + x;
    v[d] = rotate(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = rotate(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 7);
}

/* `count` bytes have been taken, this block's among them. */
static void compress(uint32_t h[8], const uint8_t block[BLOCK], uint64_t count, bool last)
{
    uint32_t v[16], m[16];
    for (int i = 0; i < 16; i++) {
        m[i] = (uint32_t)block[4 * i] | (uint32_t)block[4 * i + 1] << 8 |
               (uint32_t)block[4 * i + 2] << 16 | (uint32_t)block[4 * i + 3] << 24;
    }
    memcpy(v, h, 8 * sizeof *h);
    memcpy(v + 8, iv, sizeof iv);
    v[12] ^= (uint32_t)count;
    v[13] ^= (uint32_t)(count >> 32);
    v[14] ^= last ? UINT32_MAX : 0;
    for (int r = 0; r < ROUNDS; r++) {
        const uint8_t *s = sigma[r];
        mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++) {
        h[i] ^= v[i] ^ v[i + 8];
    }
}

void sw_blake2s(const void *key, size_t key_len, const void *data, size_t len, uint8_t *out,
                size_t out_len)
{
    SW_ASSERT(key_len <= 32 && out_len >= 1 && out_len <= 32);
    uint32_t h[8];
    uint8_t block[BLOCK] = {0};
    const uint8_t *at = data;
    uint64_t count = 0;
    memcpy(h, iv, sizeof h);
    h[0] ^= 0x01010000 ^ (uint32_t)key_len << 8 ^ (uint32_t)out_len;
    if (key_len > 0) {
        memcpy(block, key, key_len);
        count = BLOCK;
        compress(h, block, count, len == 0);
    }
    for (; len > BLOCK; at += BLOCK, len -= BLOCK) {
        count += BLOCK;
        compress(h, at, count, false);
    }
    if (len > 0 ||
        key_len == 0) { /* the last block, which only an empty text without a key leaves empty */
        memset(block, 0, sizeof block);
        if (len > 0) {
            memcpy(block, at, len);
        }
        compress(h, block, count + len, true);
    }
    for (size_t i = 0; i < out_len; i++) {
        out[i] = (uint8_t)(h[i / 4] >> 8 * (i % 4));
    }
}

/* ---- drawing and comparing ---- */

bool sw_same_secret(const void *a, const void *b, size_t len)
{
    const volatile uint8_t *x = a, *y = b; /* volatile: no early way out may be found */
    uint8_t differ = 0;
    for (size_t i = 0; i < len; i++) {
        differ |= x[i] ^ y[i];
    }
    return differ == 0;
}

sw_status sw_draw_bytes(void *out, size_t len)
{
    uint8_t *at = out;
    while (len > 0) {
        const ssize_t n = getrandom(at, len, 0);
        if (n < 0 && errno != EINTR) {
            return SW_FAIL(SW_E_IO, "the system gives no random numbers: %s", strerror(errno));
        }
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return SW_OK;
}

void sw_hex_write(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
    out[2 * n] = '\0';
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool sw_hex_read(const char *text, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int high = digit_of(text[2 * i]), low = high < 0 ? -1 : digit_of(text[2 * i + 1]);
        if (low < 0) {
            return false;
        }
        out[i] = (uint8_t)(high << 4 | low);
    }
    return text[2 * n] == '\0';
}

/* ---- the secret of a job ---- */

sw_status sw_job_secret_draw(struct sw_job_secret *out)
{
    uint8_t id[8];
    struct sw_job_secret secret = {.known = true};
    SW_TRY(sw_draw_bytes(secret.key, sizeof secret.key));
    SW_TRY(sw_draw_bytes(id, sizeof id));
    sw_hex_write(id, sizeof id, secret.job);
    *out = secret;
    return SW_OK;
}

/* Its text, less the line's end: so much of it that one that is too long is seen to be. */
static sw_status read_secret_file(const char *path, char *text, size_t cap)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return SW_FAIL(SW_E_IO, "SPILLWAY_JOB_SECRET_FILE: %s: %s", path, strerror(errno));
    }
    const bool looked = fstat(fd, &info) == 0;
    const bool plain = looked && S_ISREG(info.st_mode);
    const bool ours = plain && (info.st_uid == geteuid() || info.st_uid == 0);
    const bool closed = ours && (info.st_mode & 077) == 0;
    const ssize_t n = closed ? read(fd, text, cap - 1) : 0;
    close(fd);
    if (!closed || n < 0) {
        return SW_FAIL(SW_E_CONFIG,
                       "SPILLWAY_JOB_SECRET_FILE: %s: wanted a file of this user that nobody else "
                       "may read (chmod 600), got %s",
                       path,
                       !plain  ? "no regular file"
                       : !ours ? "one of another user"
                       : n < 0 ? "one that cannot be read"
                               : "one that others may read or write");
    }
    text[n] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    return SW_OK;
}

sw_status sw_job_secret_read(const char *text, const char *path, const char *job,
                             struct sw_job_secret *out)
{
    struct sw_job_secret secret = {0};
    char buffer[2 * SW_SECRET_BYTES + 8];
    const bool by_file = !(text && *text) && path && *path;
    if (by_file) {
        SW_TRY(read_secret_file(path, buffer, sizeof buffer));
        text = buffer;
    }
    secret.known = text && *text;
    if ((by_file && !secret.known) ||
        (secret.known && !sw_hex_read(text, secret.key, sizeof secret.key))) {
        return SW_FAIL(SW_E_CONFIG, "%s: wanted %d hexadecimal digits, got something else",
                       by_file ? "SPILLWAY_JOB_SECRET_FILE" : "SPILLWAY_JOB_SECRET",
                       2 * SW_SECRET_BYTES);
    }
    if (job && strlen(job) >= sizeof secret.job) {
        return SW_FAIL(SW_E_CONFIG, "SPILLWAY_JOB_ID: wanted fewer than %zu bytes, got %zu",
                       sizeof secret.job, strlen(job));
    }
    snprintf(secret.job, sizeof secret.job, "%s", job ? job : "");
    *out = secret;
    return SW_OK;
}

void sw_prove(const struct sw_job_secret *secret, const struct sw_proof_of *what,
              uint8_t out[SW_PROOF_BYTES])
{
    /* every part has its own length in it, so that no two meanings make one text */
    struct {
        char role[16];
        uint8_t nonces[2][SW_NONCE_BYTES];
        uint8_t ranks[2][4];
        char job[SW_JOB_ID_CAP];
        uint8_t more[SW_PROOF_BYTES];
    } text = {0};
    snprintf(text.role, sizeof text.role, "%s", what->role);
    memcpy(text.nonces[0], what->opener, SW_NONCE_BYTES);
    memcpy(text.nonces[1], what->answerer, SW_NONCE_BYTES);
    for (int i = 0; i < 4; i++) {
        text.ranks[0][i] = (uint8_t)((uint32_t)what->opener_rank >> 8 * i);
        text.ranks[1][i] = (uint8_t)((uint32_t)what->answerer_rank >> 8 * i);
    }
    memcpy(text.job, secret->job, sizeof text.job);
    sw_blake2s(NULL, 0, what->more, what->more_len, text.more, sizeof text.more);
    sw_blake2s(secret->key, sizeof secret->key, &text, sizeof text, out, SW_PROOF_BYTES);
}

bool sw_proves(const struct sw_job_secret *secret, const struct sw_proof_of *what,
               const uint8_t proof[SW_PROOF_BYTES])
{
    uint8_t want[SW_PROOF_BYTES];
    sw_prove(secret, what, want);
    return sw_same_secret(want, proof, sizeof want);
}
