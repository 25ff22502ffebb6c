// SPDX-License-Identifier: Apache-2.0
// PNG files of tests. What PNG asks for is written out: zlib's stream has stored blocks only.
#include "support/pictures.h"

#include "support/png_checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct out {
    uint8_t *bytes;
    size_t len;
};

static void put(struct out *o, const void *bytes, size_t n)
{
    if (n > 0) { /* the chunk at the end has no data, and no place of them */
        memcpy(o->bytes + o->len, bytes, n);
    }
    o->len += n;
}

static void put_u32(struct out *o, uint32_t value)
{
    const uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                              (uint8_t)value};
    put(o, bytes, 4);
}

static void put_chunk(struct out *o, const char *name, const uint8_t *data, size_t n)
{
    put_u32(o, (uint32_t)n);
    const size_t first = o->len;
    put(o, name, 4);
    put(o, data, n);
    put_u32(o, png_check(o->bytes + first, o->len - first));
}

/* Appends to `o` the zlib stream of data. */
static void put_stored(struct out *o, const uint8_t *data, size_t n)
{
    uint32_t a = 1, b = 0;
    put(o, "\x78\x01", 2);
    for (size_t at = 0; at < n || at == 0;) {
        const size_t block = n - at < 65535 ? n - at : 65535;
        const uint8_t head[5] = {at + block == n, (uint8_t)block, (uint8_t)(block >> 8),
                                 (uint8_t)~block, (uint8_t)(~block >> 8)};
        put(o, head, 5);
        put(o, data + at, block);
        at += block;
        if (block == 0) {
            break;
        }
    }
    for (size_t i = 0; i < n; i++) {
        a = (a + data[i]) % 65521;
        b = (b + a) % 65521;
    }
    put_u32(o, b << 16 | a);
}

static size_t bits_of(const struct test_png *png)
{
    static const uint8_t channels[] = {1, 0, 3, 1, 2, 0, 4};
    return (size_t)channels[png->type] * png->depth;
}

size_t test_png_row_bytes(const struct test_png *png, uint32_t width)
{
    return (width * bits_of(png) + 7) / 8;
}

/* Every row with its filter in front, which is none. */
static void put_plain(const struct test_png *png, const uint8_t *rows, struct out *o)
{
    const size_t n = test_png_row_bytes(png, png->width);
    for (uint32_t y = 0; y < png->height; y++) {
        put(o, "", 1);
        put(o, rows + y * n, n);
    }
}

static void put_adam7(const struct test_png *png, const uint8_t *rows, struct out *o)
{
    static const uint8_t passes[7][4] = {/* first column, step, first row, step */
                                         {0, 8, 0, 8}, {4, 8, 0, 8}, {0, 4, 4, 8}, {2, 4, 0, 4},
                                         {0, 2, 2, 4}, {1, 2, 0, 2}, {0, 1, 1, 2}};
    const size_t n = test_png_row_bytes(png, png->width), pixel = bits_of(png) / 8;
    for (int p = 0; p < 7; p++) {
        const uint8_t *of = passes[p];
        for (uint32_t y = of[2]; y < png->height && of[0] < png->width; y += of[3]) {
            put(o, "", 1);
            for (uint32_t x = of[0]; x < png->width; x += of[1]) {
                put(o, rows + y * n + x * pixel, pixel);
            }
        }
    }
}

uint8_t *test_png_make(const struct test_png *png, const uint8_t *rows, size_t *out_len)
{
    const size_t plain = (test_png_row_bytes(png, png->width) + 8) * png->height * 2 + 64;
    struct out raw = {malloc(plain), 0}, data = {malloc(2 * plain + 64), 0};
    struct out file = {malloc(2 * plain + 4096), 0}, head = {(uint8_t[16]){0}, 0};
    if (raw.bytes && data.bytes && file.bytes) {
        put_u32(&head, png->width);
        put_u32(&head, png->height);
        put(&head, (uint8_t[]){png->depth, png->type, 0, 0, png->interlaced}, 5);
        put(&file, "\x89PNG\r\n\x1a\n", 8);
        put_chunk(&file, "IHDR", head.bytes, head.len);
        if (png->palette) {
            put_chunk(&file, "PLTE", png->palette, (size_t)png->n_colours * 3);
        }
        (png->interlaced ? put_adam7 : put_plain)(png, rows, &raw);
        put_stored(&data, raw.bytes, raw.len);
        put_chunk(&file, "IDAT", data.bytes, data.len);
        put_chunk(&file, "IEND", NULL, 0);
    }
    free(raw.bytes);
    free(data.bytes);
    *out_len = file.len;
    return file.bytes;
}

bool test_picture_write(const char *path, uint32_t width, uint32_t height, const uint8_t colour[3],
                        uint32_t seed)
{
    const struct test_png png = {.width = width, .height = height, .depth = 8, .type = 2};
    const size_t n = (size_t)width * height * 3;
    uint8_t *rows = malloc(n + 1), *bytes = NULL;
    size_t len = 0;
    for (size_t i = 0; i < n && rows; i++) {
        seed = seed * 1664525 + 1013904223;
        const int value = colour[i % 3] + (int)(seed >> 27) - 16;
        rows[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    bytes = rows ? test_png_make(&png, rows, &len) : NULL;
    FILE *file = bytes ? fopen(path, "wb") : NULL;
    const bool good = file && fwrite(bytes, 1, len, file) == len;
    const bool closed = file && fclose(file) == 0;
    free(rows);
    free(bytes);
    return good && closed;
}
