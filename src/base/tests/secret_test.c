// SPDX-License-Identifier: Apache-2.0
// The keyed hash against its published vectors, proofs that hold for nothing but what they are
// about, and the files that a secret is taken from.
#include "base/base.h"

#include "support/test.h"

#include <sys/stat.h>
#include <unistd.h>

static void expect_hex(const uint8_t *bytes, size_t n, const char *want)
{
    char text[65];
    sw_hex_write(bytes, n, text);
    assert_string_equal(text, want);
}

/* RFC 7693, appendix B. */
static void blake2s_of_abc(void **state)
{
    (void)state;
    uint8_t out[32];
    sw_blake2s(NULL, 0, "abc", 3, out, sizeof out);
    expect_hex(out, sizeof out, "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982");
}

/* Bytes of the generator in RFC 7693, appendix E. */
static void make_input(uint8_t *out, size_t len, uint32_t seed)
{
    uint32_t a = 0xDEAD4BAD * seed, b = 1;
    for (size_t i = 0; i < len; i++) {
        const uint32_t t = a + b;
        a = b;
        b = t;
        out[i] = (uint8_t)(t >> 24);
    }
}

/* RFC 7693, appendix E: a hash of the hashes of all lengths, without and with a key. */
static void blake2s_of_all_lengths(void **state)
{
    (void)state;
    static const size_t outs[] = {16, 20, 28, 32}, ins[] = {0, 3, 64, 65, 255, 1024};
    uint8_t in[1024], key[32], all[2 * 6 * (16 + 20 + 28 + 32)], out[32];
    size_t n = 0;
    for (size_t i = 0; i < SW_LEN(outs); i++) {
        for (size_t j = 0; j < SW_LEN(ins); j++) {
            make_input(in, ins[j], (uint32_t)ins[j]);
            sw_blake2s(NULL, 0, in, ins[j], all + n, outs[i]);
            n += outs[i];
            make_input(key, outs[i], (uint32_t)outs[i]);
            sw_blake2s(key, outs[i], in, ins[j], all + n, outs[i]);
            n += outs[i];
        }
    }
    assert_int_equal(n, sizeof all);
    sw_blake2s(NULL, 0, all, n, out, sizeof out);
    expect_hex(out, sizeof out, "6a411f08ce25adcdfb02aba641451cec53c598b24f4fc787fbdc88797f4c1dfe");
}

static void comparisons_see_every_bit(void **state)
{
    (void)state;
    uint8_t a[32] = {0}, b[32] = {0};
    assert_true(sw_same_secret(a, b, sizeof a));
    for (size_t i = 0; i < 8 * sizeof a; i++) {
        b[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_false(sw_same_secret(a, b, sizeof a));
        b[i / 8] ^= (uint8_t)(1 << i % 8);
    }
}

/* Whatever is not the same makes another proof. */
static void proofs_hold_for_one_meeting(void **state)
{
    (void)state;
    struct sw_job_secret secret, other;
    uint8_t nonces[3][SW_NONCE_BYTES], proof[SW_PROOF_BYTES];
    assert_int_equal(sw_job_secret_draw(&secret), SW_OK);
    assert_int_equal(sw_draw_bytes(nonces, sizeof nonces), SW_OK);
    const struct sw_proof_of what = {.role = "rank",
                                     .opener = nonces[0],
                                     .answerer = nonces[1],
                                     .opener_rank = 1,
                                     .answerer_rank = 0,
                                     .more = "port 7",
                                     .more_len = 6};
    sw_prove(&secret, &what, proof);
    assert_true(sw_proves(&secret, &what, proof));
    struct sw_proof_of wrong[7];
    for (size_t i = 0; i < SW_LEN(wrong); i++) {
        wrong[i] = what;
    }
    wrong[0].role = "master";
    wrong[1].opener = nonces[2];
    wrong[2].answerer = nonces[2];
    wrong[3].opener_rank = 2;
    wrong[4].answerer_rank = 1;
    wrong[5].more = "port 8";
    wrong[6].opener = nonces[1], wrong[6].answerer = nonces[0];
    for (size_t i = 0; i < SW_LEN(wrong); i++) {
        assert_false(sw_proves(&secret, &wrong[i], proof));
    }
    other = secret;
    other.key[15] ^= 1;
    assert_false(sw_proves(&other, &what, proof));
    other = secret;
    other.job[0] ^= 1;
    assert_false(sw_proves(&other, &what, proof));
    proof[31] ^= 0x80;
    assert_false(sw_proves(&secret, &what, proof));
}

static void secrets_are_drawn_anew(void **state)
{
    (void)state;
    struct sw_job_secret a, b;
    assert_int_equal(sw_job_secret_draw(&a), SW_OK);
    assert_int_equal(sw_job_secret_draw(&b), SW_OK);
    assert_true(a.known && b.known);
    assert_false(sw_same_secret(a.key, b.key, sizeof a.key));
    assert_string_not_equal(a.job, b.job);
}

static void expect_refusal(const char *text, const char *path, const char *want)
{
    struct sw_job_secret secret;
    assert_true(sw_job_secret_read(text, path, NULL, &secret) < 0);
    if (!strstr(sw_error_message(), want)) {
        fail_msg("wanted \"%s\", got \"%s\"", want, sw_error_message());
    }
}

static const char digits[] = "00112233445566778899aAbBcCdDeEfF";

static void secrets_are_read(void **state)
{
    (void)state;
    char path[] = "/tmp/spillway-secret-XXXXXX", text[64], job[80];
    struct sw_job_secret secret;
    assert_int_equal(sw_job_secret_read(NULL, "", "", &secret), SW_OK);
    assert_false(secret.known);
    assert_int_equal(sw_job_secret_read(digits, NULL, "night 7", &secret), SW_OK);
    assert_true(secret.known);
    expect_hex(secret.key, sizeof secret.key, "00112233445566778899aabbccddeeff");
    assert_string_equal(secret.job, "night 7");
    expect_refusal("0011", NULL, "SPILLWAY_JOB_SECRET: wanted 32 hexadecimal digits");
    snprintf(text, sizeof text, "%s0", digits);
    expect_refusal(text, NULL, "SPILLWAY_JOB_SECRET: wanted 32 hexadecimal digits");
    memset(job, 'x', sizeof job - 1);
    job[sizeof job - 1] = '\0';
    assert_int_equal(sw_job_secret_read(digits, NULL, job, &secret), SW_E_CONFIG);

    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, digits, 32), 32);
    assert_int_equal(write(fd, "\n", 1), 1);
    close(fd);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(sw_job_secret_read(NULL, path, NULL, &secret), SW_OK);
    expect_hex(secret.key, sizeof secret.key, "00112233445566778899aabbccddeeff");
    static const mode_t open_modes[] = {0640, 0604, 0620, 0644};
    for (size_t i = 0; i < SW_LEN(open_modes); i++) {
        assert_int_equal(chmod(path, open_modes[i]), 0);
        expect_refusal(NULL, path, "others may read");
    }
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(truncate(path, 20), 0);
    expect_refusal(NULL, path, "SPILLWAY_JOB_SECRET_FILE: wanted 32 hexadecimal digits");
    assert_int_equal(truncate(path, 0), 0);
    expect_refusal(NULL, path, "SPILLWAY_JOB_SECRET_FILE: wanted 32 hexadecimal digits");
    unlink(path);
    expect_refusal(NULL, path, "No such file");
    expect_refusal(NULL, "/tmp", "no regular file");
}

static void hex_is_read_whole(void **state)
{
    (void)state;
    uint8_t bytes[2];
    assert_true(sw_hex_read("00fF", bytes, 2));
    assert_int_equal(bytes[1], 0xff);
    static const char *const bad[] = {"", "0", "00f", "00ff0", "00fg", " 0ff", "0x00", "-1ff"};
    for (size_t i = 0; i < SW_LEN(bad); i++) {
        assert_false(sw_hex_read(bad[i], bytes, 2));
    }
}

static void files_have_a_limit(void **state)
{
    (void)state;
    assert_int_equal(sw_allow_files(8), SW_OK);
    assert_int_equal(sw_allow_files(INT64_MAX / 2), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "open files, the limit is"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(blake2s_of_abc),
    cmocka_unit_test(blake2s_of_all_lengths),
    cmocka_unit_test(comparisons_see_every_bit),
    cmocka_unit_test(proofs_hold_for_one_meeting),
    cmocka_unit_test(secrets_are_drawn_anew),
    cmocka_unit_test(secrets_are_read),
    cmocka_unit_test(hex_is_read_whole),
    cmocka_unit_test(files_have_a_limit),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
