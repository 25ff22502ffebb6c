// SPDX-License-Identifier: Apache-2.0
// Reads protocol buffers field by field, without a schema.
#pragma once

#include "base/base.h"

struct sw_proto {
    const unsigned char *bytes;
    size_t len, at;
};

enum { SW_PROTO_VARINT = 0, SW_PROTO_FIXED64 = 1, SW_PROTO_BYTES = 2, SW_PROTO_FIXED32 = 5 };

struct sw_proto_field {
    int64_t number;
    int wire;
    int64_t integer;            /* VARINT, as two's complement; FIXED*: its bits */
    const unsigned char *bytes; /* BYTES: [len] */
    size_t len;
};

/* The next field; *out_more false at the end. SW_E_FORMAT names the offset. */
sw_status sw_proto_next(struct sw_proto *proto, struct sw_proto_field *out, bool *out_more);
float sw_proto_float(const struct sw_proto_field *field);
