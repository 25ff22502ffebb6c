// SPDX-License-Identifier: Apache-2.0
// Event files for TensorBoard. A record consists of a length, its checksum, a message and its
// checksum (CRC-32C, masked). A message is one of four protocol buffer shapes, which are encoded by
// hand. A file is only appended to, with one write for each step's record, so a killed run leaves
// whole records. Files of a run end in a hash of its identity and ".spillway"; no others are cut.
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "monitor/private.h"

struct sw_events {
    int fd;
    char *path;
    struct sw_str record, message, value; /* buffers of the current event */
};

/* ".0123456789abcdef.spillway" */
enum { SUFFIX_CAP = 32 };

static int put_suffix(const char *run, char out[SUFFIX_CAP])
{
    return snprintf(out, SUFFIX_CAP, ".%016llx.spillway",
                    (unsigned long long)sw_hash_str(SW_HASH_INIT, run));
}

/* ---- protocol buffers ---- */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
/* Field numbers in Event, Summary.Value and SessionLog. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_NUMBER = 2, SESSION_STATUS = 1, SESSION_START = 1 };

static void put_varint(struct sw_str *out, uint64_t n)
{
    for (; n >= 0x80; n >>= 7) {
        sw_str_putc(out, (char)(n | 0x80));
    }
    sw_str_putc(out, (char)n);
}

static void put_key(struct sw_str *out, int member, int wire)
{
    put_varint(out, (uint64_t)(member << 3 | wire));
}

static void put_little(struct sw_str *out, uint64_t bits, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        sw_str_putc(out, (char)(bits >> (8 * i)));
    }
}

static void put_bytes(struct sw_str *out, int member, const char *bytes, size_t len)
{
    put_key(out, member, WIRE_BYTES);
    put_varint(out, len);
    sw_str_append(out, bytes, len);
}

static void put_double(struct sw_str *out, int member, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(out, member, WIRE_64);
    put_little(out, bits, 8);
}

static void put_float(struct sw_str *out, int member, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(out, member, WIRE_32);
    put_little(out, bits, 4);
}

static uint32_t masked_crc(const void *data, size_t len)
{
    const uint32_t crc = sw_crc32c(0, data, len);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- writing ---- */

static void begin_event(struct sw_events *e, int64_t x)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    sw_str_clear(&e->message);
    put_double(&e->message, EVENT_TIME, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    if (x > 0) {
        put_key(&e->message, EVENT_STEP, WIRE_VARINT);
        put_varint(&e->message, (uint64_t)x);
    }
}

static sw_status end_event(struct sw_events *e)
{
    const uint64_t len = e->message.len;
    sw_str_clear(&e->record);
    put_little(&e->record, len, 8);
    sw_str_append(&e->record, "head", 4); /* placeholder for the checksum of the length */
    sw_str_append(&e->record, sw_str_text(&e->message), (size_t)len);
    put_little(&e->record, masked_crc(sw_str_text(&e->message), (size_t)len), 4);
    if (e->record.failed || e->message.failed || e->value.failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for %s", e->path);
    }
    const uint32_t crc = htole32(masked_crc(e->record.ptr, 8));
    memcpy(e->record.ptr + 8, &crc, sizeof crc);
    const ssize_t n = write(e->fd, e->record.ptr, e->record.len);
    return n == (ssize_t)e->record.len
               ? SW_OK
               : SW_FAIL(SW_E_IO, "%s: %s", e->path, n < 0 ? strerror(errno) : "disk full");
}

sw_status sw_events_add(struct sw_events *e, int64_t x, const struct sw_point *points, int n)
{
    struct sw_str summary = {0};
    begin_event(e, x);
    for (int i = 0; i < n; i++) {
        sw_str_clear(&e->value);
        put_bytes(&e->value, VALUE_TAG, points[i].tag, strlen(points[i].tag));
        put_float(&e->value, VALUE_NUMBER, (float)points[i].value);
        put_bytes(&summary, SUMMARY_VALUE, sw_str_text(&e->value), e->value.len);
    }
    put_bytes(&e->message, EVENT_SUMMARY, sw_str_text(&summary), summary.len);
    e->message.failed |= summary.failed;
    sw_str_fini(&summary);
    return end_event(e);
}

/* Writes the file version, then the start of a session. On a session start TensorBoard drops the
 * points that it has read from this x on. */
static sw_status write_head(struct sw_events *e, int64_t last)
{
    static const char version[] = "brain.Event:2";
    begin_event(e, 0);
    put_bytes(&e->message, EVENT_VERSION, version, sizeof version - 1);
    SW_TRY(end_event(e));
    begin_event(e, last + 1);
    sw_str_clear(&e->value);
    put_key(&e->value, SESSION_STATUS, WIRE_VARINT);
    put_varint(&e->value, SESSION_START);
    put_bytes(&e->message, EVENT_SESSION, sw_str_text(&e->value), e->value.len);
    return end_event(e);
}

/* ---- files of earlier runs ---- */

static uint64_t get_little(const char *at, int bytes)
{
    uint64_t bits = 0;
    for (int i = 0; i < bytes; i++) {
        bits |= (uint64_t)(unsigned char)at[i] << (8 * i);
    }
    return bits;
}

static bool get_varint(const char **at, const char *end, uint64_t *out)
{
    uint64_t n = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        const unsigned char byte = (unsigned char)*(*at)++;
        n |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = n;
            return true;
        }
    }
    return false;
}

/* Skips the value of a field. */
static bool skip_member(const char **at, const char *end, int wire)
{
    uint64_t n = 0;
    switch (wire) {
    case WIRE_VARINT:
        return get_varint(at, end, &n);
    case WIRE_BYTES:
        if (!get_varint(at, end, &n)) {
            return false;
        }
        break;
    case WIRE_64:
    case WIRE_32:
        n = wire == WIRE_64 ? 8 : 4;
        break;
    default:
        return false;
    }
    if (n > (uint64_t)(end - *at)) {
        return false;
    }
    *at += n;
    return true;
}

/* Reads the x of an event, and whether it has points. Returns false if the bytes are not an
 * event. */
static bool read_event(const char *at, const char *end, int64_t *out_x, bool *out_points)
{
    uint64_t key = 0, x = 0;
    *out_x = 0;
    *out_points = false;
    while (at < end) {
        if (!get_varint(&at, end, &key)) {
            return false;
        }
        const int member = (int)(key >> 3), wire = (int)(key & 7);
        if (member == EVENT_STEP && wire == WIRE_VARINT) {
            if (!get_varint(&at, end, &x)) {
                return false;
            }
            *out_x = (int64_t)x;
            continue;
        }
        *out_points |= member == EVENT_SUMMARY;
        if (!skip_member(&at, end, wire)) {
            return false;
        }
    }
    return true;
}

/* Length of the prefix of whole records up to `last`. */
static size_t good_bytes(const char *text, size_t len, int64_t last, bool *out_points)
{
    enum { HEAD = 12, TAIL = 4 };
    size_t at = 0;
    *out_points = false;
    while (len - at >= HEAD + TAIL) {
        const uint64_t bytes = get_little(text + at, 8);
        const char *message = text + at + HEAD;
        int64_t x = 0;
        bool points = false;
        if (masked_crc(text + at, 8) != get_little(text + at + 8, 4) ||
            bytes > len - at - HEAD - TAIL ||
            masked_crc(message, bytes) != get_little(message + bytes, 4) ||
            !read_event(message, message + bytes, &x, &points) || x > last) {
            break;
        }
        *out_points |= points;
        at += HEAD + (size_t)bytes + TAIL;
    }
    return at;
}

static sw_status cut_file(const char *path, const struct sw_monitor_place *place)
{
    char *text = NULL;
    size_t len = 0;
    bool points = false;
    SW_TRY(sw_file_read(path, &text, &len));
    const size_t good = good_bytes(text, len, place->last, &points);
    sw_free(text);
    if (points && good == len) {
        return SW_OK;
    }
    if (points) {
        return sw_monitor_cut(path, good);
    }
    return unlink(path) == 0 ? SW_OK : SW_FAIL(SW_E_IO, "%s: %s", path, strerror(errno));
}

static bool is_ours(const char *name, const struct sw_monitor_place *place)
{
    char suffix[SUFFIX_CAP];
    const size_t len = strlen(name), tail = (size_t)put_suffix(place->run, suffix);
    return strncmp(name, "events.out.tfevents.", 20) == 0 && len > tail &&
           strcmp(name + len - tail, suffix) == 0;
}

/* ---- open, close ---- */

/* Names the file as TensorBoard's own writers do: its readers order files by name, which begins
 * with the time. */
static sw_status create(const struct sw_monitor_place *place, struct sw_events *e)
{
    char host[256] = "localhost", suffix[SUFFIX_CAP];
    gethostname(host, sizeof host - 1);
    put_suffix(place->run, suffix);
    for (int i = 0; i < 1000; i++) {
        struct sw_str path = {0};
        sw_str_printf(&path, "%s/events.out.tfevents.%010lld.%s.%d.%d%s", place->folder,
                      (long long)time(NULL), host, (int)getpid(), i, suffix);
        if (path.failed) {
            sw_str_fini(&path);
            return SW_FAIL(SW_E_NOMEM, "out of host memory for event files");
        }
        e->fd = open(path.ptr, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        const int error = errno;
        sw_free(e->path);
        e->path = path.ptr;
        if (e->fd >= 0 || error != EEXIST) {
            return e->fd >= 0 ? SW_OK : SW_FAIL(SW_E_IO, "%s: %s", e->path, strerror(error));
        }
    }
    return SW_FAIL(SW_E_IO, "%s: there is no name left for an event file", place->folder);
}

sw_status sw_events_open(const struct sw_monitor_place *place, struct sw_events **out)
{
    SW_TRY(sw_mkdirs(place->folder));
    SW_TRY(place->goes_on ? sw_monitor_each(place, "event files", is_ours, cut_file) : SW_OK);
    struct sw_events *e = sw_alloc_zero("monitor", 1, sizeof *e);
    SW_TRY_ALLOC(e, "event files");
    e->fd = -1;
    sw_status st = create(place, e);
    st = st < 0 ? st : write_head(e, place->last);
    if (st < 0) {
        sw_events_close(e);
        return st;
    }
    *out = e;
    return SW_OK;
}

void sw_events_close(struct sw_events *e)
{
    if (!e) {
        return;
    }
    if (e->fd >= 0) {
        close(e->fd);
    }
    sw_free(e->path);
    sw_str_fini(&e->record);
    sw_str_fini(&e->message);
    sw_str_fini(&e->value);
    sw_free(e);
}
