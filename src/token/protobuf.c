// SPDX-License-Identifier: Apache-2.0
// Every length and offset is checked against the remaining bytes, because messages come from files.
#include "token/protobuf.h"

#include <string.h>

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
