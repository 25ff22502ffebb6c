// SPDX-License-Identifier: Apache-2.0
// Philox against its published vectors, the streams against their moments, hashes and digests
// against their check values.
#include "base/base.h"

#include "support/test.h"

static void philox_known_answers(void **state)
{
    (void)state;
    /* kat_vectors of Random123, philox4x32 10 */
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        uint32_t out[4];
        sw_philox(rows[i].key, rows[i].counter, out);
        assert_memory_equal(out, rows[i].out, sizeof(out));
    }
}

static void unit_is_in_range(void **state)
{
    (void)state;
    assert_true(sw_u32_unit(0) == 0.0F);
    assert_true(sw_u32_unit(UINT32_MAX) < 1.0F);
    assert_true(sw_u32_unit(UINT32_C(1) << 31) == 0.5F);
}

/* Mean, variance, skewness and kurtosis of n draws, each within five standard errors. */
static void normal_moments(void **state)
{
    (void)state;
    enum { N = 200000 };
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    for (uint64_t i = 0; i < N; i++) {
        const double x = sw_philox_normal(42, 7, i);
        assert_true(isfinite(x));
        m1 += x;
        m2 += x * x;
        m3 += x * x * x;
        m4 += x * x * x * x;
    }
    assert_true(fabs(m1 / N) < 5 / sqrt(N));
    assert_true(fabs(m2 / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(m3 / N) < 5 * sqrt(15.0 / N));
    assert_true(fabs(m4 / N - 3) < 5 * sqrt(96.0 / N));
}

static void uniform_bits_are_balanced(void **state)
{
    (void)state;
    enum { N = 20000 };
    int ones[64] = {0};
    for (uint64_t i = 0; i < N; i++) {
        const uint64_t bits = sw_philox_u64(1, 2, i);
        for (int b = 0; b < 64; b++) {
            ones[b] += (int)(bits >> b & 1);
        }
    }
    for (int b = 0; b < 64; b++) {
        assert_true(fabs(ones[b] - N / 2.0) < 5 * sqrt(N) / 2);
    }
}

static void streams_differ_in_every_argument(void **state)
{
    (void)state;
    const uint64_t big = UINT64_C(1) << 32; /* the upper halves count, too */
    const uint64_t draws[] = {sw_philox_u64(0, 0, 0),   sw_philox_u64(1, 0, 0),
                              sw_philox_u64(0, 1, 0),   sw_philox_u64(0, 0, 1),
                              sw_philox_u64(big, 0, 0), sw_philox_u64(0, big, 0),
                              sw_philox_u64(0, 0, big)};
    for (size_t i = 0; i < SW_LEN(draws); i++) {
        for (size_t j = 0; j < i; j++) {
            assert_true(draws[i] != draws[j]);
        }
    }
    assert_true(sw_philox_normal(3, 4, 5) == sw_philox_normal(3, 4, 5));
    assert_true(sw_philox_normal(3, 4, 5) != sw_philox_normal(3, 5, 4));
}

/* SipHash-1-3 of 00 01 .. under the key 00 .. 0f: the vectors of its reference and of Rust's
 * library. */
static void keyed_hash_values(void **state)
{
    (void)state;
    static const uint64_t wanted[] = {UINT64_C(0xabac0158050fc4dc), UINT64_C(0xc9f49bf37d57ca93)};
    const struct sw_hash_key key = {{UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)}};
    const unsigned char bytes[] = {0};
    for (size_t n = 0; n < SW_LEN(wanted); n++) {
        assert_true(sw_hash_keyed(&key, bytes, n) == wanted[n]);
    }
    struct sw_hash_key drawn, again;
    sw_hash_key_init(&drawn);
    sw_hash_key_init(&again);
    assert_memory_equal(&drawn, &again, sizeof drawn);
    assert_true(sw_hash_keyed(&drawn, "long enough for words", 21) !=
                sw_hash_keyed(&key, "long enough for words", 21));
}

static void hash_values(void **state)
{
    (void)state;
    /* published FNV-1a 64 values */
    assert_true(sw_hash(SW_HASH_INIT, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(sw_hash(SW_HASH_INIT, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(sw_hash(SW_HASH_INIT, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    const uint64_t ab_c = sw_hash_str(sw_hash_str(SW_HASH_INIT, "ab"), "c");
    const uint64_t a_bc = sw_hash_str(sw_hash_str(SW_HASH_INIT, "a"), "bc");
    assert_true(ab_c != a_bc);
}

static void crc32c_values(void **state)
{
    (void)state;
    assert_int_equal(sw_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(sw_crc32c(0, "", 0), 0);
    unsigned char bytes[200];
    memset(bytes, 0, 32); /* RFC 3720, B.4 */
    assert_int_equal(sw_crc32c(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(sw_crc32c(0, bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 200; i++) {
        bytes[i] = (unsigned char)(i * 7 + 3);
    }
    const uint32_t whole = sw_crc32c(0, bytes, 200);
    for (size_t cut = 0; cut <= 200; cut++) { /* also the definition, bit by bit */
        assert_int_equal(sw_crc32c(sw_crc32c(0, bytes, cut), bytes + cut, 200 - cut), whole);
    }
    uint32_t bitwise = ~UINT32_C(0);
    for (int i = 0; i < 200; i++) {
        bitwise ^= bytes[i];
        for (int b = 0; b < 8; b++) {
            bitwise = bitwise >> 1 ^ (bitwise & 1 ? UINT32_C(0x82F63B78) : 0);
        }
    }
    assert_int_equal(~bitwise, whole);
}

static void digest_of(const char *name, const char *text, size_t piece, char out[33])
{
    struct sw_digest *digest;
    assert_int_equal(sw_digest_open_named(name, &digest), SW_OK);
    const size_t len = strlen(text);
    for (size_t i = 0; i < len; i += piece) {
        sw_digest_update(digest, text + i, len - i < piece ? len - i : piece);
    }
    sw_digest_hex(digest, out);
    sw_digest_close(digest);
}

static void digests(void **state)
{
    (void)state;
    char hex[33], again[33];
    digest_of("crc32c", "123456789", 4, hex);
    assert_string_equal(hex, "e3069283");
    digest_of(sw_digest_name(), "some text of a file", 100, hex);
    digest_of(sw_digest_name(), "some text of a file", 3, again);
    assert_string_equal(hex, again);
    digest_of(sw_digest_name(), "some text of a fild", 3, again);
    assert_string_not_equal(hex, again);

    struct sw_digest *digest = NULL;
    assert_int_equal(sw_digest_open_named("md5", &digest), SW_E_FORMAT);
    assert_null(digest);
    if (SW_HAVE_XXHASH) {
        assert_string_equal(sw_digest_name(), "xxh3-128");
        digest_of("xxh3-128", "", 1, hex); /* published value for no input, seed 0 */
        assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
    } else {
        assert_string_equal(sw_digest_name(), "crc32c");
        assert_int_equal(sw_digest_open_named("xxh3-128", &digest), SW_E_UNSUP);
        assert_non_null(strstr(sw_error_message(), "libxxhash"));
    }
    sw_alloc_fail_nth(1);
    assert_int_equal(sw_digest_open(&digest), SW_E_NOMEM);
    assert_null(digest);
    sw_digest_close(NULL);
}

static void clock_moves_forward(void **state)
{
    (void)state;
    const int64_t before = sw_now_ns();
    const double before_s = sw_now_s();
    assert_true(sw_now_ns() >= before);
    assert_true(sw_now_s() >= before_s);
    assert_true(fabs(before_s - (double)before * 1e-9) < 60);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(philox_known_answers),
    cmocka_unit_test(unit_is_in_range),
    cmocka_unit_test(normal_moments),
    cmocka_unit_test(uniform_bits_are_balanced),
    cmocka_unit_test(streams_differ_in_every_argument),
    cmocka_unit_test(hash_values),
    cmocka_unit_test(keyed_hash_values),
    cmocka_unit_test(crc32c_values),
    cmocka_unit_test(digests),
    cmocka_unit_test(clock_moves_forward),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
