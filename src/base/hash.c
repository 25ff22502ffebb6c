// SPDX-License-Identifier: Apache-2.0
// FNV-1a for names and fingerprints, and digests of files: XXH3-128 by libxxhash where it was
// found, CRC-32C of our own everywhere, so that what one build wrote any build can at least name.
#include "base/base.h"

#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

#if SW_HAVE_XXHASH
#define XXH_STATIC_LINKING_ONLY /* the size of the state, so that its memory is counted as ours */
#include <xxhash.h>
#endif

uint64_t sw_hash(uint64_t h, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i++) {
        h = (h ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return h;
}

uint64_t sw_hash_str(uint64_t h, const char *text)
{
    return sw_hash(h, text, strlen(text) + 1);
}

/* ---- SipHash-1-3 ---- */

/* The kernel's random bytes for this process: 16 of them, also where there is no /dev. */
void sw_hash_key_init(struct sw_hash_key *key)
{
    const unsigned long at = getauxval(AT_RANDOM);
    *key = (struct sw_hash_key){{0x736f6d6570736575, 0x646f72616e646f6d}};
    if (at) {
        memcpy(key->words, (const void *)(uintptr_t)at, sizeof(key->words));
    }
}

static uint64_t rotated(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotated(v[1], 13) ^ v[0];
    v[0] = rotated(v[0], 32);
    v[2] += v[3];
    v[3] = rotated(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotated(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotated(v[1], 17) ^ v[2];
    v[2] = rotated(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

uint64_t sw_hash_keyed(const struct sw_hash_key *key, const void *data, size_t len)
{
    const uint64_t k0 = key->words[0], k1 = key->words[1];
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
                     k1 ^ 0x7465646279746573};
    const unsigned char *at = data;
    uint64_t word;
    for (size_t left = len; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        sip_word(v, word);
    }
    word = (uint64_t)len << 56;
    for (size_t i = 0; i < len % 8; i++) {
        word |= (uint64_t)at[i] << (8 * i);
    }
    sip_word(v, word);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) {
        sip_round(v);
    }
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- CRC-32C (Castagnoli), reflected polynomial 0x82F63B78 ----
 * The table is linear over exclusive or: entry i is the sum of the entries of i's bits. */
// clang-format off
#define BIT(i, b, value) (((i) >> (b) & 1) ? UINT32_C(value) : 0)
#define ENTRY(i)                                                                      \
    (BIT(i, 0, 0xF26B8303) ^ BIT(i, 1, 0xE13B70F7) ^ BIT(i, 2, 0xC79A971F) ^          \
     BIT(i, 3, 0x8AD958CF) ^ BIT(i, 4, 0x105EC76F) ^ BIT(i, 5, 0x20BD8EDE) ^          \
     BIT(i, 6, 0x417B1DBC) ^ BIT(i, 7, 0x82F63B78))
#define ENTRIES4(i) ENTRY(i), ENTRY(i + 1), ENTRY(i + 2), ENTRY(i + 3)
#define ENTRIES16(i) ENTRIES4(i), ENTRIES4(i + 4), ENTRIES4(i + 8), ENTRIES4(i + 12)
#define ENTRIES64(i) ENTRIES16(i), ENTRIES16(i + 16), ENTRIES16(i + 32), ENTRIES16(i + 48)
// clang-format on

static uint32_t crc_portable(uint32_t crc, const unsigned char *bytes, size_t len)
{
    static const uint32_t table[256] = {ENTRIES64(0), ENTRIES64(64), ENTRIES64(128),
                                        ENTRIES64(192)};
    for (size_t i = 0; i < len; i++) {
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 0xff];
    }
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc,
                                                            const unsigned char *bytes, size_t len)
{
    uint64_t wide = crc;
    for (; len >= 8; len -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof(word));
        wide = __builtin_ia32_crc32di(wide, word);
    }
    return crc_portable((uint32_t)wide, bytes, len);
}

static uint32_t crc_update(uint32_t crc, const unsigned char *bytes, size_t len)
{
    return __builtin_cpu_supports("sse4.2") ? crc_sse42(crc, bytes, len)
                                            : crc_portable(crc, bytes, len);
}
#else
static uint32_t crc_update(uint32_t crc, const unsigned char *bytes, size_t len)
{
    return crc_portable(crc, bytes, len);
}
#endif

uint32_t sw_crc32c(uint32_t crc, const void *data, size_t len)
{
    return ~crc_update(~crc, data, len);
}

/* ---- digests ---- */

enum algorithm { CRC32C, XXH3_128 };

struct sw_digest {
    enum algorithm algorithm;
    uint32_t crc;
#if SW_HAVE_XXHASH
    XXH3_state_t xxh3; /* 64-byte aligned */
#endif
};

static const char *const algorithm_names[] = {[CRC32C] = "crc32c", [XXH3_128] = "xxh3-128"};

const char *sw_digest_name(void)
{
    return algorithm_names[SW_HAVE_XXHASH ? XXH3_128 : CRC32C];
}

sw_status sw_digest_open_named(const char *name, struct sw_digest **out)
{
    const bool is_xxh3 = strcmp(name, algorithm_names[XXH3_128]) == 0;
    if (!is_xxh3 && strcmp(name, algorithm_names[CRC32C]) != 0) {
        return SW_FAIL(SW_E_FORMAT, "unknown digest \"%s\"", name);
    }
    if (is_xxh3 && !SW_HAVE_XXHASH) {
        return SW_FAIL(SW_E_UNSUP, "digest %s needs libxxhash, which this build was made without",
                       name);
    }
    struct sw_digest *digest =
        sw_alloc_aligned("digest", _Alignof(struct sw_digest), sizeof(*digest));
    SW_TRY_ALLOC(digest, "a digest");
    digest->algorithm = is_xxh3 ? XXH3_128 : CRC32C;
    digest->crc = 0;
#if SW_HAVE_XXHASH
    XXH3_INITSTATE(&digest->xxh3);
    XXH3_128bits_reset(&digest->xxh3);
#endif
    *out = digest;
    return SW_OK;
}

sw_status sw_digest_open(struct sw_digest **out)
{
    return sw_digest_open_named(sw_digest_name(), out);
}

void sw_digest_update(struct sw_digest *digest, const void *data, size_t len)
{
#if SW_HAVE_XXHASH
    if (digest->algorithm == XXH3_128) {
        XXH3_128bits_update(&digest->xxh3, data, len);
        return;
    }
#endif
    digest->crc = sw_crc32c(digest->crc, data, len);
}

void sw_digest_hex(const struct sw_digest *digest, char out[33])
{
#if SW_HAVE_XXHASH
    if (digest->algorithm == XXH3_128) {
        const XXH128_hash_t hash = XXH3_128bits_digest(&digest->xxh3);
        snprintf(out, 33, "%016llx%016llx", (unsigned long long)hash.high64,
                 (unsigned long long)hash.low64);
        return;
    }
#endif
    snprintf(out, 33, "%08x", digest->crc);
}

void sw_digest_close(struct sw_digest *digest)
{
    sw_free(digest);
}
