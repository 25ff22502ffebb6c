// SPDX-License-Identifier: Apache-2.0
// Protocol buffers: bytes worked out by hand, and what was written is read.
#include <string.h>

#include "base/base.h"
#include "support/test.h"

static sw_status put(void *ctx, const void *data, size_t len)
{
    struct sw_str *out = ctx;
    sw_str_append(out, data, len);
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a test") : SW_OK;
}

typedef void (*fields_fn)(struct sw_proto_writer *writer);

/* Both passes over the fields. */
static sw_status write(fields_fn fields, struct sw_str *out)
{
    struct sw_proto_writer writer = {0};
    uint64_t len = 0;
    fields(&writer);
    sw_status st = sw_proto_measured(&writer, put, out, &len);
    if (st >= 0) {
        fields(&writer);
        st = sw_proto_written(&writer);
        assert_true(st < 0 || len == out->len);
    }
    sw_proto_writer_fini(&writer);
    return st;
}

static void numbers(struct sw_proto_writer *writer)
{
    sw_proto_put_int(writer, 1, 150);
    sw_proto_put_int(writer, 2, -1);
    sw_proto_put_float(writer, 16, 1.5F);
}

static void nested(struct sw_proto_writer *writer)
{
    sw_proto_begin(writer, 3);
    sw_proto_put_int(writer, 1, 150);
    sw_proto_begin(writer, 4);
    sw_proto_end(writer);
    sw_proto_end(writer);
    sw_proto_put_text(writer, 2, "testing");
}

static void in_pieces(struct sw_proto_writer *writer)
{
    sw_proto_put_bytes(writer, 9, 4);
    sw_proto_add(writer, "ab", 2);
    sw_proto_add(writer, "cd", 2);
}

static void bytes_are_those_of_the_encoding(void **state)
{
    (void)state;
    const struct {
        fields_fn fields;
        const char *bytes;
        size_t len;
    } cases[] = {
        {numbers, "\x08\x96\x01\x10\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01\x85\x01\0\0\xC0\x3F",
         20},
        {nested, "\x1A\x05\x08\x96\x01\x22\0\x12\x07testing", 16},
        {in_pieces,
         "\x4A\x04"
         "abcd",
         6},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct sw_str out = {0};
        assert_int_equal(write(cases[i].fields, &out), SW_OK);
        assert_int_equal(out.len, cases[i].len);
        assert_memory_equal(out.ptr, cases[i].bytes, cases[i].len);
        sw_str_fini(&out);
    }
}

/* Messages of 0 .. 300 bytes, within messages: lengths of one and of two bytes. */
static void chains(struct sw_proto_writer *writer)
{
    char text[301];
    for (int len = 0; len <= 300; len++) {
        memset(text, 'x', sizeof text);
        text[len] = '\0';
        sw_proto_begin(writer, 7);
        sw_proto_begin(writer, 8);
        sw_proto_put_text(writer, 5, text);
        sw_proto_end(writer);
        sw_proto_put_int(writer, 6, len);
        sw_proto_end(writer);
    }
}

static struct sw_proto_field next(struct sw_proto *proto)
{
    struct sw_proto_field field = {0};
    bool more = false;
    assert_int_equal(sw_proto_next(proto, &field, &more), SW_OK);
    assert_true(more);
    return field;
}

static struct sw_proto inside(const struct sw_proto_field *field)
{
    assert_int_equal(field->wire, SW_PROTO_BYTES);
    return (struct sw_proto){field->bytes, field->len, 0};
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    struct sw_str out = {0};
    assert_int_equal(write(chains, &out), SW_OK);
    struct sw_proto all = {(const unsigned char *)out.ptr, out.len, 0};
    for (int len = 0; len <= 300; len++) {
        const struct sw_proto_field outer = next(&all);
        assert_int_equal(outer.number, 7);
        struct sw_proto message = inside(&outer);
        const struct sw_proto_field inner = next(&message), number = next(&message);
        assert_int_equal(number.integer, len);
        assert_int_equal(message.at, message.len);
        struct sw_proto deepest = inside(&inner);
        const struct sw_proto_field text = next(&deepest);
        assert_int_equal(text.number, 5);
        assert_int_equal(text.len, len);
    }
    assert_int_equal(all.at, all.len);
    sw_str_fini(&out);
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    struct sw_str out = {0};
    sw_alloc_fail_nth(1);
    assert_int_equal(write(nested, &out), SW_E_NOMEM);
    sw_alloc_fail_nth(0);
    sw_str_fini(&out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bytes_are_those_of_the_encoding),
    cmocka_unit_test(what_was_written_is_read),
    cmocka_unit_test(lack_of_memory_is_an_error),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
