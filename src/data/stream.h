// SPDX-License-Identifier: Apache-2.0
// A stream of token ids. Some are held in memory, others are read from files on demand. Ids are
// stored in 2 bytes if the vocabulary allows it.
#pragma once

#include "base/base.h"

/* A file of ids. It is read, not mapped, because truncating a mapped file kills the process. */
struct sw_shard {
    int fd;              /* -1: opened for each read, see MOST_OPEN */
    uint64_t dev, inode; /* identity of the file */
    size_t bytes;
    size_t header; /* bytes before the ids */
};

struct sw_segment {
    char *name; /* name of the file; owned */
    bool is_shard;
    struct sw_shard shard; /* ids in a file; else `owned` holds them */
    void *owned;           /* [n] u16 or u32, little endian; grows while it is the last segment */
    int width;             /* bytes of an id: 2 or 4 */
    int64_t first, n;      /* offset in the stream, count */
    int64_t cap;           /* of owned */
};

struct sw_stream {
    struct sw_segment *segments; /* [n_segments] */
    int n_segments;
    int n_open;         /* shards with a descriptor */
    int64_t n;          /* total number of ids */
    int64_t vocab_size; /* reading fails if an id is not below it */
};

void sw_stream_init(struct sw_stream *stream, int64_t vocab_size);
void sw_stream_fini(struct sw_stream *stream);
/* Appends ids. `name` is the file that they come from. */
sw_status sw_stream_add(struct sw_stream *stream, const char *name, const int32_t *ids, int64_t n);
/* Appends a .bin file: llm.c's two formats by their magic number, else nanoGPT's bare u16. */
sw_status sw_stream_add_shard(struct sw_stream *stream, const char *path);
/* Reads ids first .. first + n - 1, which must exist. */
sw_status sw_stream_read(const struct sw_stream *stream, int64_t first, int64_t n, int32_t *out);
