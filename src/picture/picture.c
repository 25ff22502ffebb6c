// SPDX-License-Identifier: Apache-2.0
// Pictures: detects the format by the first bytes, and reads the size from the header alone.
#include "picture/format.h"

#include <string.h>
#include <unistd.h>

enum format { FORMAT_PNG, FORMAT_JPEG, N_FORMATS };
static const uint8_t png_magic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
static const uint8_t jpeg_magic[] = {0xff, 0xd8, 0xff};

void sw_picture_fini(struct sw_picture *picture)
{
    sw_free(picture->rgb);
    *picture = (struct sw_picture){0};
}

static bool begins_with(const uint8_t *bytes, size_t len, const uint8_t *magic, size_t n)
{
    return len >= n && memcmp(bytes, magic, n) == 0;
}

static sw_status find_format(const char *name, const uint8_t *bytes, size_t len, enum format *out)
{
    const bool png = begins_with(bytes, len, png_magic, sizeof png_magic);
    if (len == 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: the file is empty", name);
    }
    if (!png && !begins_with(bytes, len, jpeg_magic, sizeof jpeg_magic)) {
        return SW_FAIL(SW_E_FORMAT, "%s: by its first bytes it is neither PNG nor JPEG", name);
    }
    if (png ? !SW_HAVE_PNG : !SW_HAVE_JPEG) {
        return SW_FAIL(SW_E_UNSUP, "%s: this build has no %s (apt-get install %s, and build again)",
                       name, png ? "libpng" : "libjpeg", png ? "libpng-dev" : "libjpeg-dev");
    }
    *out = png ? FORMAT_PNG : FORMAT_JPEG;
    return SW_OK;
}

sw_status sw_picture_check_size(const char *name, int64_t width, int64_t height)
{
    if (width < 1 || height < 1 || width > SW_PICTURE_MOST_SIDE || height > SW_PICTURE_MOST_SIDE ||
        width > SW_PICTURE_MOST_PIXELS / height) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: %lld x %lld pixels, wanted 1 to %lld of them, at most %lld a side",
                       name, (long long)width, (long long)height, (long long)SW_PICTURE_MOST_PIXELS,
                       (long long)SW_PICTURE_MOST_SIDE);
    }
    return SW_OK;
}

/* ---- headers ---- */

/* A window of a file that moves to the requested offset. */
struct head {
    const char *path;
    int fd;
    size_t bytes; /* file size */
    size_t first, n;
    uint8_t window[4096];
};

static sw_status look_at(struct head *h, size_t at, size_t n, const uint8_t **out)
{
    if (at > h->bytes || n > h->bytes - at) {
        return SW_FAIL(SW_E_FORMAT, "%s: it ends at byte %zu, within its header", h->path,
                       h->bytes);
    }
    if (at < h->first || at + n > h->first + h->n) {
        const size_t rest = h->bytes - at;
        h->first = at;
        h->n = rest < sizeof h->window ? rest : sizeof h->window;
        SW_TRY(sw_file_read_at(h->fd, h->path, h->window, h->n, (int64_t)at));
    }
    *out = h->window + (at - h->first);
    return SW_OK;
}

static int64_t big_endian(const uint8_t *bytes, int n)
{
    int64_t value = 0;
    for (int i = 0; i < n; i++) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static sw_status png_size(struct head *h, int64_t *width, int64_t *height)
{
    const uint8_t *at;
    SW_TRY(look_at(h, sizeof png_magic, 16, &at)); /* length, "IHDR", width, height */
    if (memcmp(at + 4, "IHDR", 4) != 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: the first chunk of this PNG is not IHDR", h->path);
    }
    *width = big_endian(at + 8, 4);
    *height = big_endian(at + 12, 4);
    return SW_OK;
}

/* Whether this marker begins a frame. The size of the picture follows it. */
static bool is_frame(uint8_t marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static sw_status jpeg_size(struct head *h, int64_t *width, int64_t *height)
{
    const uint8_t *at;
    for (size_t pos = 2;;) {
        SW_TRY(look_at(h, pos, 2, &at));
        if (at[0] != 0xff || at[1] == 0xff) { /* fill bytes, or bytes between segments */
            pos++;
            continue;
        }
        const uint8_t marker = at[1];
        if (marker == 0xd9 || marker == 0xda) {
            return SW_FAIL(SW_E_FORMAT, "%s: this JPEG has no frame in front of its data", h->path);
        }
        if (marker <= 0x01 || (marker >= 0xd0 && marker <= 0xd8)) { /* without a length */
            pos += 2;
            continue;
        }
        SW_TRY(look_at(h, pos + 2, 2, &at));
        if (is_frame(marker)) {
            SW_TRY(look_at(h, pos + 5, 4, &at)); /* after length and precision */
            *height = big_endian(at, 2);
            *width = big_endian(at + 2, 2);
            return SW_OK;
        }
        pos += 2 + (size_t)sw_max_i64(big_endian(at, 2), 2);
    }
}

static sw_status check_bytes(const char *path, size_t bytes)
{
    return bytes <= SW_PICTURE_MOST_BYTES
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "%s: %zu bytes, wanted at most %zu", path, bytes,
                         SW_PICTURE_MOST_BYTES);
}

static sw_status look(struct head *h, int64_t *width, int64_t *height)
{
    enum format format = FORMAT_PNG;
    const uint8_t *at = h->window;
    SW_TRY(check_bytes(h->path, h->bytes));
    const size_t n = h->bytes < sizeof png_magic ? h->bytes : sizeof png_magic;
    SW_TRY(look_at(h, 0, n, &at));
    SW_TRY(find_format(h->path, at, n, &format));
    SW_TRY(format == FORMAT_PNG ? png_size(h, width, height) : jpeg_size(h, width, height));
    return sw_picture_check_size(h->path, *width, *height);
}

sw_status sw_picture_look(const char *path, int64_t *out_width, int64_t *out_height)
{
    struct head h;
    h.path = path;
    h.first = h.n = 0;
    SW_TRY(sw_file_open(path, &h.fd, &h.bytes));
    const sw_status st = look(&h, out_width, out_height);
    close(h.fd);
    return st;
}

/* ---- whole files ---- */

/* NULL: this build has no library for the format; find_format refuses it. */
static sw_status (*const decoders[N_FORMATS])(const struct sw_picture_file *file,
                                              struct sw_picture *out) = {
#if SW_HAVE_PNG
    [FORMAT_PNG] = sw_png_decode,
#endif
#if SW_HAVE_JPEG
    [FORMAT_JPEG] = sw_jpeg_decode,
#endif
};

sw_status sw_picture_decode(const char *name, const uint8_t *bytes, size_t len,
                            struct sw_picture *out)
{
    enum format format = FORMAT_PNG;
    const struct sw_picture_file file = {name, bytes, len};
    SW_TRY(find_format(name, bytes, len, &format));
    struct sw_picture picture = {0};
    const sw_status st = decoders[format](&file, &picture);
    if (st < 0) {
        sw_picture_fini(&picture);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *out = picture;
    return SW_OK;
}

static sw_status read_fd(const char *path, int fd, size_t len, struct sw_picture *out)
{
    SW_TRY(check_bytes(path, len));
    uint8_t *bytes = sw_alloc("pictures", len);
    SW_TRY_ALLOC(bytes, path);
    sw_status st = sw_file_read_at(fd, path, bytes, len, 0);
    st = st < 0 ? st : sw_picture_decode(path, bytes, len, out);
    sw_free(bytes);
    return st;
}

sw_status sw_picture_read(const char *path, struct sw_picture *out)
{
    int fd;
    size_t len;
    SW_TRY(sw_file_open(path, &fd, &len));
    const sw_status st = read_fd(path, fd, len, out);
    close(fd);
    return st;
}
