// SPDX-License-Identifier: Apache-2.0
// Reader and writer of protocol buffers. The reader checks every length and offset against the
// remaining bytes, because messages come from files.
#include "base/protobuf.h"

#include <string.h>

/* ---- reading ---- */

static sw_status broken(const struct sw_proto *proto, const char *what)
{
    return SW_FAIL(SW_E_FORMAT, "byte offset %zu of a message of %zu: %s", proto->at, proto->len,
                   what);
}

static sw_status read_varint(struct sw_proto *proto, uint64_t *out)
{
    enum { MOST_BYTES = 10, BITS = 7 };
    *out = 0;
    for (int i = 0; i < MOST_BYTES; ++i) {
        if (proto->at == proto->len) {
            return broken(proto, "a number ends early");
        }
        const unsigned char byte = proto->bytes[proto->at++];
        *out |= (uint64_t)(byte & 0x7F) << BITS * i;
        if (byte < 0x80) {
            return SW_OK;
        }
    }
    return broken(proto, "a number of more than ten bytes");
}

static sw_status read_fixed(struct sw_proto *proto, size_t n, int64_t *out)
{
    uint64_t bits = 0;
    if (proto->len - proto->at < n) {
        return broken(proto, "a number ends early");
    }
    for (size_t i = 0; i < n; ++i) {
        bits |= (uint64_t)proto->bytes[proto->at++] << 8 * i;
    }
    *out = (int64_t)bits;
    return SW_OK;
}

static sw_status read_bytes(struct sw_proto *proto, struct sw_proto_field *out)
{
    uint64_t len;
    SW_TRY(read_varint(proto, &len));
    if (len > proto->len - proto->at) {
        return broken(proto, "a field is longer than what is left");
    }
    out->bytes = proto->bytes + proto->at;
    out->len = (size_t)len;
    proto->at += (size_t)len;
    return SW_OK;
}

sw_status sw_proto_next(struct sw_proto *proto, struct sw_proto_field *out, bool *out_more)
{
    uint64_t key, value = 0;
    *out_more = proto->at < proto->len;
    if (!*out_more) {
        return SW_OK;
    }
    SW_TRY(read_varint(proto, &key));
    *out = (struct sw_proto_field){.number = (int64_t)(key >> 3), .wire = (int)(key & 7)};
    switch (out->wire) {
    case SW_PROTO_VARINT:
        SW_TRY(read_varint(proto, &value));
        out->integer = (int64_t)value;
        return SW_OK;
    case SW_PROTO_FIXED64:
        return read_fixed(proto, 8, &out->integer);
    case SW_PROTO_FIXED32:
        return read_fixed(proto, 4, &out->integer);
    case SW_PROTO_BYTES:
        return read_bytes(proto, out);
    default:
        return broken(proto, "a field of an unknown wire type");
    }
}

float sw_proto_float(const struct sw_proto_field *field)
{
    const uint32_t bits = (uint32_t)field->integer;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* ---- writing ---- */

enum { MOST_VARINT = 10 };

static int encode_varint(uint64_t value, unsigned char *out)
{
    int n = 0;
    for (; value > 0x7F; value >>= 7) {
        out[n++] = (unsigned char)(value | 0x80);
    }
    out[n++] = (unsigned char)value;
    return n;
}

void sw_proto_add(struct sw_proto_writer *writer, const void *data, uint64_t len)
{
    if (writer->status >= 0 && writer->put) {
        writer->status = writer->put(writer->ctx, data, (size_t)len);
    }
    writer->at += len;
}

static void put_varint(struct sw_proto_writer *writer, uint64_t value)
{
    unsigned char bytes[MOST_VARINT];
    sw_proto_add(writer, bytes, (uint64_t)encode_varint(value, bytes));
}

static void put_key(struct sw_proto_writer *writer, int number, int wire)
{
    put_varint(writer, (uint64_t)number << 3 | (uint64_t)wire);
}

void sw_proto_put_int(struct sw_proto_writer *writer, int number, int64_t value)
{
    put_key(writer, number, SW_PROTO_VARINT);
    put_varint(writer, (uint64_t)value);
}

void sw_proto_put_float(struct sw_proto_writer *writer, int number, float value)
{
    uint32_t bits;
    unsigned char bytes[sizeof bits];
    memcpy(&bits, &value, sizeof bits);
    for (size_t i = 0; i < sizeof bits; i++) {
        bytes[i] = (unsigned char)(bits >> 8 * i);
    }
    put_key(writer, number, SW_PROTO_FIXED32);
    sw_proto_add(writer, bytes, sizeof bytes);
}

void sw_proto_put_bytes(struct sw_proto_writer *writer, int number, uint64_t len)
{
    put_key(writer, number, SW_PROTO_BYTES);
    put_varint(writer, len);
}

void sw_proto_put_text(struct sw_proto_writer *writer, int number, const char *text)
{
    const size_t len = strlen(text);
    sw_proto_put_bytes(writer, number, len);
    sw_proto_add(writer, text, len);
}

/* Makes room for the size of one more message. */
static bool grow_sizes(struct sw_proto_writer *writer)
{
    if (writer->n_sizes < writer->cap_sizes) {
        return true;
    }
    const size_t cap = writer->cap_sizes > 0 ? 2 * writer->cap_sizes : 256;
    uint64_t *grown = sw_realloc("protobuf", writer->sizes, cap * sizeof *grown);
    if (!grown) {
        writer->status = SW_FAIL(SW_E_NOMEM, "out of host memory for a protocol buffer");
        return false;
    }
    writer->sizes = grown;
    writer->cap_sizes = cap;
    return true;
}

void sw_proto_begin(struct sw_proto_writer *writer, int number)
{
    if (writer->status < 0 || (!writer->put && !grow_sizes(writer))) {
        return;
    }
    SW_ASSERT(writer->depth < SW_PROTO_DEPTH);
    struct sw_proto_open *open = &writer->open[writer->depth++];
    if (writer->put) {
        SW_ASSERT(writer->i_size < writer->n_sizes);
        open->i_size = writer->i_size++;
        sw_proto_put_bytes(writer, number, writer->sizes[open->i_size]);
    } else {
        open->i_size = writer->n_sizes++;
        put_key(writer, number, SW_PROTO_BYTES);
    }
    open->start = writer->at;
}

void sw_proto_end(struct sw_proto_writer *writer)
{
    unsigned char bytes[MOST_VARINT];
    if (writer->status < 0) {
        return;
    }
    SW_ASSERT(writer->depth > 0);
    const struct sw_proto_open *open = &writer->open[--writer->depth];
    const uint64_t size = writer->at - open->start;
    if (writer->put) {
        SW_ASSERT(size == writer->sizes[open->i_size]);
    } else {
        writer->sizes[open->i_size] = size;
        writer->at += (uint64_t)encode_varint(size, bytes);
    }
}

sw_status sw_proto_measured(struct sw_proto_writer *writer,
                            sw_status (*put)(void *ctx, const void *data, size_t len), void *ctx,
                            uint64_t *out)
{
    SW_TRY(writer->status);
    SW_ASSERT(writer->depth == 0 && !writer->put);
    *out = writer->at;
    writer->at = 0;
    writer->put = put;
    writer->ctx = ctx;
    return SW_OK;
}

sw_status sw_proto_written(struct sw_proto_writer *writer)
{
    SW_TRY(writer->status);
    SW_ASSERT(writer->depth == 0 && writer->i_size == writer->n_sizes);
    return SW_OK;
}

void sw_proto_writer_fini(struct sw_proto_writer *writer)
{
    sw_free(writer->sizes);
    *writer = (struct sw_proto_writer){0};
}
