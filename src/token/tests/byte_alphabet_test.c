// SPDX-License-Identifier: Apache-2.0
// The byte alphabet is a bijection.
#include "token/byte_alphabet.h"

#include "support/test.h"

static void the_byte_alphabet_is_a_bijection(void **state)
{
    (void)state;
    struct sw_byte_alphabet alphabet;
    struct sw_str letters = {0}, bytes = {0};
    char all[256];
    sw_byte_alphabet_init(&alphabet);
    for (int i = 0; i < 256; ++i) {
        all[i] = (char)i;
    }
    sw_byte_alphabet_write(&alphabet, all, 256, &letters);
    sw_byte_alphabet_read(&alphabet, letters.ptr, letters.len, &bytes);
    assert_int_equal(bytes.len, 256);
    assert_memory_equal(bytes.ptr, all, 256);
    static const int known[][2] = {{0x00, 0x100}, {0x0A, 0x10A}, {0x20, 0x120},
                                   {0x7F, 0x121}, {0xAD, 0x143}, {'a', 'a'}};
    for (size_t i = 0; i < SW_LEN(known); ++i) {
        assert_int_equal(alphabet.code_point[known[i][0]], known[i][1]);
    }
    sw_str_clear(&bytes); /* a letter outside the alphabet: text is copied as is */
    sw_byte_alphabet_read(&alphabet, "\xC4\xA0x\xE2\x96\x81", 6, &bytes);
    assert_string_equal(sw_str_text(&bytes), "\xC4\xA0x\xE2\x96\x81");
    sw_str_fini(&letters);
    sw_str_fini(&bytes);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_byte_alphabet_is_a_bijection),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
