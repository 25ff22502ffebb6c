// SPDX-License-Identifier: Apache-2.0
// A long row of token ids: some made here from text, some read from files when they are asked for,
// as one. Ids are kept in 2 bytes where the vocabulary allows it.
#pragma once

#include "base/base.h"

/* A file of ids. It is read, not mapped: a map of a file that becomes shorter ends the process. */
struct sw_shard {
    int fd;              /* -1: opened for each read, see MOST_OPEN */
    uint64_t dev, inode; /* which file it was */
    size_t bytes;
    size_t header; /* of them, before the ids */
};

struct sw_segment {
    char *name; /* owned; the file */
    bool is_shard;
    struct sw_shard shard; /* of a file; else `owned` holds the ids */
    void *owned;           /* [n] u16 or u32, little endian; grows while it is the last segment */
    int width;             /* bytes of an id: 2 or 4 */
    int64_t first, n;      /* place in the stream, count */
    int64_t cap;           /* of owned */
};

struct sw_stream {
    struct sw_segment *segments; /* [n_segments] */
    int n_segments;
    int n_open;         /* shards with a descriptor */
    int64_t n;          /* ids in all */
    int64_t vocab_size; /* every id is below it, or reading fails */
};

void sw_stream_init(struct sw_stream *stream, int64_t vocab_size);
void sw_stream_fini(struct sw_stream *stream);
/* Appends ids; name is the file they are from. */
sw_status sw_stream_add(struct sw_stream *stream, const char *name, const int32_t *ids, int64_t n);
/* Appends a .bin file: llm.c's two formats by their magic number, else nanoGPT's bare u16. */
sw_status sw_stream_add_shard(struct sw_stream *stream, const char *path);
/* ids first .. first + n - 1, which must be there. */
sw_status sw_stream_read(const struct sw_stream *stream, int64_t first, int64_t n, int32_t *out);
