// SPDX-License-Identifier: Apache-2.0
// Protocol buffers, field by field and without a schema. The reader copies nothing; the writer
// streams. Format: protobuf.dev/programming-guides/encoding. Part of base.h.
#pragma once

#include "base/base.h"

/* ---- reading ---- */

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

/* ---- writing ---- */

enum { SW_PROTO_DEPTH = 16 }; /* of messages within messages */

/*
 * A nested message is preceded by its length, so a message is written twice: a pass that measures,
 * then one that passes bytes on. The caller makes the same calls in both. All zero is ready for the
 * first pass. A failure is sticky; sw_proto_measured and sw_proto_written return it.
 */
struct sw_proto_writer {
    sw_status (*put)(void *ctx, const void *data, size_t len); /* NULL while measuring */
    void *ctx;
    uint64_t at;     /* bytes so far */
    uint64_t *sizes; /* [n_sizes] of nested messages, in the order of their beginnings */
    size_t n_sizes, cap_sizes, i_size;
    int depth;
    struct sw_proto_open {
        size_t i_size;
        uint64_t start;
    } open[SW_PROTO_DEPTH];
    sw_status status;
};

/* Ends the first pass: *out is the length of the message. put is for the second one. */
sw_status sw_proto_measured(struct sw_proto_writer *writer,
                            sw_status (*put)(void *ctx, const void *data, size_t len), void *ctx,
                            uint64_t *out);
/* Ends the second pass. Aborts if it had other calls than the first. */
sw_status sw_proto_written(struct sw_proto_writer *writer);
void sw_proto_writer_fini(struct sw_proto_writer *writer);

void sw_proto_put_int(struct sw_proto_writer *writer, int number, int64_t value);
void sw_proto_put_float(struct sw_proto_writer *writer, int number, float value);
void sw_proto_put_text(struct sw_proto_writer *writer, int number, const char *text);
/* A field of len bytes, which follow by sw_proto_add in pieces. */
void sw_proto_put_bytes(struct sw_proto_writer *writer, int number, uint64_t len);
/* data is not read while measuring and may then be NULL. */
void sw_proto_add(struct sw_proto_writer *writer, const void *data, uint64_t len);
/* A nested message: the fields between these calls. */
void sw_proto_begin(struct sw_proto_writer *writer, int number);
void sw_proto_end(struct sw_proto_writer *writer);
