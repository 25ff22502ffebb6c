// SPDX-License-Identifier: Apache-2.0
// Paths of fixtures, temporary files and SHA-256 for tests.
#include "support/files.h"

#include "support/scratch.h"
#include "support/test.h"

#include <unistd.h>

const char *sw_test_fixtures(void)
{
    const char *root = getenv("SPILLWAY_FIXTURES");
    root = root ? root : "../shared/fixtures";
    if (access(root, R_OK) != 0) {
        print_message("skipped: no fixtures at %s (set SPILLWAY_FIXTURES)\n", root);
        return NULL;
    }
    return root;
}

const char *sw_test_data(struct sw_str *path, const char *name)
{
    const char *root = getenv("SPILLWAY_FIXTURES");
    sw_str_clear(path);
    sw_str_printf(path, "%s/../data/%s", root ? root : "../shared/fixtures", name);
    if (access(path->ptr, R_OK) != 0) {
        sw_str_clear(path);
        sw_str_printf(path, "../shared/data/%s", name);
    }
    return path->ptr;
}

const char *sw_test_write(int slot, const char *name, const void *data, size_t len)
{
    static char paths[8][256];
    snprintf(paths[slot], sizeof(paths[slot]), "%s/%s", test_folder(), name);
    assert_int_equal(sw_file_write_atomic(paths[slot], data, len), SW_OK);
    return paths[slot];
}

const char *sw_test_write_text(int slot, const char *name, const char *text)
{
    return sw_test_write(slot, name, text, strlen(text));
}

/* ---- SHA-256 ---- */

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

/* First 32 bits of the fractional part of the k-th root of a prime, exactly: the largest r with
 * r^k <= p 2^(32 k), by bisection in 128-bit arithmetic. */
static uint32_t root_bits(uint32_t prime, int k)
{
    uint64_t low = 0, high = UINT64_C(1) << 37;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        const long double power =
            k == 2 ? (long double)middle * middle : (long double)middle * middle * middle;
        if (power <= ldexpl((long double)prime, 32 * k)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (uint32_t)low;
}

static void constants(uint32_t h[8], uint32_t k[64])
{
    int n = 0;
    for (uint32_t p = 2; n < 64; ++p) {
        bool prime = true;
        for (uint32_t d = 2; d * d <= p; ++d) {
            prime = prime && p % d != 0;
        }
        if (prime) {
            if (n < 8) {
                h[n] = root_bits(p, 2);
            }
            k[n++] = root_bits(p, 3);
        }
    }
}

static void block(uint32_t h[8], const uint32_t k[64], const unsigned char *p)
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; ++i) {
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    }
    for (int i = 16; i < 64; ++i) {
        const uint32_t a = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        const uint32_t b = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(s, h, sizeof(s));
    for (int i = 0; i < 64; ++i) {
        const uint32_t e = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
        const uint32_t t1 = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
        const uint32_t a = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
        const uint32_t t2 = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof(*s));
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; ++i) {
        h[i] += s[i];
    }
}

void sw_test_sha256(const void *data, size_t len, char out[65])
{
    uint32_t h[8], k[64];
    unsigned char last[128] = {0};
    const unsigned char *p = data;
    const size_t whole = len / 64 * 64, rest = len - whole, n_last = rest < 56 ? 64 : 128;
    constants(h, k);
    for (size_t i = 0; i < whole; i += 64) {
        block(h, k, p + i);
    }
    if (rest > 0) {
        memcpy(last, p + whole, rest);
    }
    last[rest] = 0x80;
    for (int i = 0; i < 8; ++i) {
        last[n_last - 1 - (size_t)i] = (unsigned char)((uint64_t)len * 8 >> 8 * i);
    }
    for (size_t i = 0; i < n_last; i += 64) {
        block(h, k, last + i);
    }
    for (int i = 0; i < 8; ++i) {
        snprintf(out + 8 * i, 9, "%08x", (unsigned)h[i]);
    }
}
