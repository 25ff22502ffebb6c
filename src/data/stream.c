// SPDX-License-Identifier: Apache-2.0
// The stream of ids, and the token shards of nanoGPT and llm.c.
//
// llm.c's header is 256 little-endian i32: magic, version, number of tokens, zeros. nanoGPT's file
// has no header, so a file without the magic is taken as one.
#include "data/stream.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 1024, SCAN_IDS = 1 << 26 };
enum { CHUNK_IDS = 4096 };
/* Descriptors are scarce (1024 by default). Shards beyond these are opened for each read. */
enum { MOST_OPEN = 64 };

/* Magic numbers of the llm.c family: token shards, and files that are not token streams. */
static const struct {
    int32_t magic, version;
    int width; /* of an id; 0: refused */
    const char *what;
} formats[] = {
    {20240520, 1, 2, "a token shard"},
    {20240801, 7, 4, "a token shard"},
    {20240522, 0, 0, "a file of multiple-choice questions"},
    {20240326, 0, 0, "a model"},
    {20240328, 0, 0, "a tokenizer"},
};

void sw_stream_init(struct sw_stream *stream, int64_t vocab_size)
{
    *stream = (struct sw_stream){.vocab_size = vocab_size};
}

void sw_stream_fini(struct sw_stream *stream)
{
    for (int i = 0; i < stream->n_segments; ++i) {
        sw_free(stream->segments[i].name);
        sw_free(stream->segments[i].owned);
        if (stream->segments[i].is_shard && stream->segments[i].shard.fd >= 0) {
            close(stream->segments[i].shard.fd);
        }
    }
    sw_free(stream->segments);
    *stream = (struct sw_stream){0};
}

static sw_status refuse_id(const struct sw_stream *stream, const char *name, int64_t i, int64_t id)
{
    return SW_FAIL(SW_E_FORMAT,
                   "%s: token %lld has the id %lld, wanted below the vocabulary's %lld", name,
                   (long long)i, (long long)id, (long long)stream->vocab_size);
}

/* Appends a segment with its name. */
static sw_status push_segment(struct sw_stream *stream, const char *name, struct sw_segment **out)
{
    struct sw_segment *segments = sw_realloc("token stream", stream->segments,
                                             (size_t)(stream->n_segments + 1) * sizeof(*segments));
    SW_TRY_ALLOC(segments, "the token stream");
    stream->segments = segments;
    *out = &segments[stream->n_segments];
    **out = (struct sw_segment){.name = sw_strdup("token stream", name), .first = stream->n};
    SW_TRY_ALLOC((*out)->name, "the token stream");
    stream->n_segments++;
    return SW_OK;
}

/* ---- ids in memory ---- */

static sw_status reserve(struct sw_segment *segment, int64_t n_more)
{
    const int64_t wanted = segment->n + n_more;
    if (wanted > segment->cap) {
        const int64_t cap = sw_max_i64(wanted, segment->cap + segment->cap / 2);
        void *owned = sw_realloc("token stream", segment->owned, (size_t)(cap * segment->width));
        SW_TRY_ALLOC(owned, "the token stream");
        segment->owned = owned;
        segment->cap = cap;
    }
    return SW_OK;
}

sw_status sw_stream_add(struct sw_stream *stream, const char *name, const int32_t *ids, int64_t n)
{
    struct sw_segment *last =
        stream->n_segments > 0 ? &stream->segments[stream->n_segments - 1] : NULL;
    for (int64_t i = 0; i < n; ++i) {
        if (ids[i] < 0 || ids[i] >= stream->vocab_size) {
            return refuse_id(stream, name, i, ids[i]);
        }
    }
    if (n == 0) {
        return SW_OK;
    }
    if (!last || last->is_shard) {
        SW_TRY(push_segment(stream, name, &last));
        last->width = stream->vocab_size <= 0x10000 ? 2 : 4;
    }
    SW_TRY(reserve(last, n));
    for (int64_t i = 0; i < n; ++i) {
        if (last->width == 2) {
            ((uint16_t *)last->owned)[last->n + i] = htole16((uint16_t)ids[i]);
        } else {
            ((uint32_t *)last->owned)[last->n + i] = htole32((uint32_t)ids[i]);
        }
    }
    last->n += n;
    stream->n += n;
    return SW_OK;
}

/* ---- shards ---- */

static int32_t header_field(const char *header, int i)
{
    uint32_t value;
    memcpy(&value, header + 4 * i, 4);
    return (int32_t)le32toh(value);
}

static sw_status fail_changed(const struct sw_segment *segment)
{
    return SW_FAIL(SW_E_IO, "%s is another file than the one that was opened", segment->name);
}

/* Gets the descriptor of a shard; return it with give_back. */
static sw_status borrow(const struct sw_segment *segment, int *out)
{
    const struct sw_shard *shard = &segment->shard;
    struct stat info;
    size_t bytes;
    if (shard->fd >= 0) {
        *out = shard->fd;
        return SW_OK;
    }
    SW_TRY(sw_file_open(segment->name, out, &bytes));
    if (fstat(*out, &info) != 0 || (uint64_t)info.st_dev != shard->dev ||
        (uint64_t)info.st_ino != shard->inode) {
        close(*out);
        return fail_changed(segment);
    }
    return SW_OK;
}

static void give_back(const struct sw_segment *segment, int fd)
{
    if (fd != segment->shard.fd) {
        close(fd);
    }
}

/* Opens the file of a segment. Keeps it open if there are descriptors left. */
static sw_status open_shard(struct sw_stream *stream, struct sw_segment *segment)
{
    struct stat info;
    int fd;
    size_t bytes;
    SW_TRY(sw_file_open(segment->name, &fd, &bytes));
    if (fstat(fd, &info) != 0) {
        const int error = errno;
        close(fd);
        return SW_FAIL(SW_E_IO, "%s: %s", segment->name, strerror(error));
    }
    segment->is_shard = true;
    segment->shard = (struct sw_shard){
        .fd = -1, .dev = (uint64_t)info.st_dev, .inode = (uint64_t)info.st_ino, .bytes = bytes};
    if (stream->n_open < MOST_OPEN) {
        segment->shard.fd = fd;
        stream->n_open++;
    } else {
        close(fd);
    }
    return SW_OK;
}

static sw_status read_shard(const struct sw_segment *segment, int64_t at, void *out, size_t bytes)
{
    int fd;
    SW_TRY(borrow(segment, &fd));
    const sw_status st = sw_file_read_at(fd, segment->name, out, bytes, at);
    give_back(segment, fd);
    return st;
}

/* Finds the width and offset of the ids in a file. */
static sw_status read_header(struct sw_segment *segment)
{
    const char *path = segment->name;
    struct sw_shard *shard = &segment->shard;
    char fields[12] = {0};
    if (shard->bytes >= HEADER_BYTES) {
        SW_TRY(read_shard(segment, 0, fields, sizeof(fields)));
    }
    const int32_t magic = header_field(fields, 0);

    segment->width = 2;
    for (size_t i = 0; i < SW_LEN(formats); ++i) {
        if (magic != formats[i].magic) {
            continue;
        }
        if (formats[i].width == 0) {
            return SW_FAIL(SW_E_FORMAT, "%s: is %s, wanted token ids", path, formats[i].what);
        }
        const int32_t version = header_field(fields, 1), n_tokens = header_field(fields, 2);
        if (version != formats[i].version) {
            return SW_FAIL(SW_E_FORMAT, "%s: version %d, wanted %d", path, version,
                           formats[i].version);
        }
        segment->width = formats[i].width;
        shard->header = HEADER_BYTES;
        const int64_t bytes = (int64_t)(shard->bytes - shard->header);
        if (n_tokens < 0 || (int64_t)n_tokens * segment->width != bytes) {
            return SW_FAIL(SW_E_FORMAT, "%s: %lld bytes after the header, wanted %d tokens of %d",
                           path, (long long)bytes, n_tokens, segment->width);
        }
    }
    const size_t bytes = shard->bytes - shard->header;
    if (bytes == 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s", path,
                       shard->header > 0 ? "no token ids after the header" : "the file is empty");
    }
    if (bytes % (size_t)segment->width != 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: %zu bytes of token ids, wanted a multiple of %d", path,
                       bytes, segment->width);
    }
    segment->n = (int64_t)(bytes / (size_t)segment->width);
    return SW_OK;
}

/* ---- reading ---- */

static sw_status decode(const struct sw_stream *stream, const struct sw_segment *segment,
                        int64_t from, const void *raw, int64_t n, int32_t *out)
{
    for (int64_t i = 0; i < n; ++i) {
        const int64_t id = segment->width == 2 ? (int64_t)le16toh(((const uint16_t *)raw)[i])
                                               : (int64_t)le32toh(((const uint32_t *)raw)[i]);
        if (id >= stream->vocab_size) {
            return refuse_id(stream, segment->name, from + i, id);
        }
        out[i] = (int32_t)id;
    }
    return SW_OK;
}

/* Reads ids from .. from + n - 1 of a segment. */
static sw_status read_segment(const struct sw_stream *stream, const struct sw_segment *segment,
                              int64_t from, int64_t n, int32_t *out)
{
    uint32_t raw[CHUNK_IDS];
    const int64_t width = segment->width;
    if (!segment->is_shard) {
        return decode(stream, segment, from, (const char *)segment->owned + from * width, n, out);
    }
    while (n > 0) {
        const int64_t here = sw_min_i64(n, CHUNK_IDS);
        SW_TRY(read_shard(segment, (int64_t)segment->shard.header + from * width, raw,
                          (size_t)(here * width)));
        SW_TRY(decode(stream, segment, from, raw, here, out));
        from += here;
        out += here;
        n -= here;
    }
    return SW_OK;
}

/* A wrong vocabulary should stop a run before it starts, so the first 2^26 ids are checked now.
 * Later ids are checked when they are read. */
static sw_status scan(const struct sw_stream *stream, const struct sw_segment *segment)
{
    int32_t ids[CHUNK_IDS];
    const int64_t n = sw_min_i64(segment->n, SCAN_IDS);
    for (int64_t i = 0; i < n; i += CHUNK_IDS) {
        SW_TRY(read_segment(stream, segment, i, sw_min_i64(n - i, CHUNK_IDS), ids));
    }
    return SW_OK;
}

sw_status sw_stream_add_shard(struct sw_stream *stream, const char *path)
{
    struct sw_segment *segment;
    SW_TRY(push_segment(stream, path, &segment));
    SW_TRY(open_shard(stream, segment));
    SW_TRY(read_header(segment));
    SW_TRY(scan(stream, segment));
    stream->n += segment->n;
    return SW_OK;
}

/* The segment that holds id `at`: the last one that starts at or before it. */
static const struct sw_segment *segment_of(const struct sw_stream *stream, int64_t at)
{
    int low = 0, high = stream->n_segments - 1;
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        if (stream->segments[middle].first <= at) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return &stream->segments[low];
}

sw_status sw_stream_read(const struct sw_stream *stream, int64_t first, int64_t n, int32_t *out)
{
    SW_ASSERT(first >= 0 && n >= 0 && first + n <= stream->n);
    while (n > 0) {
        const struct sw_segment *segment = segment_of(stream, first);
        const int64_t from = first - segment->first, here = sw_min_i64(n, segment->n - from);
        SW_TRY(read_segment(stream, segment, from, here, out));
        first += here;
        out += here;
        n -= here;
    }
    return SW_OK;
}
