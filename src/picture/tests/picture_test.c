// SPDX-License-Identifier: Apache-2.0
// Pictures: bytes as Pillow has them, from every kind of file; damaged and hostile files.
#include "json/json.h"
#include "picture/format.h"
#include "support/files.h"
#include "support/pictures.h"
#include "support/png_checks.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- recorded ---- */

static const char *folder(void)
{
    const char *given = getenv("SPILLWAY_PICTURES");
    return given ? given : "src/picture/tests/pictures";
}

static struct sw_json_doc *recorded(void)
{
    struct sw_str path = {0};
    struct sw_json_doc *doc;
    sw_str_printf(&path, "%s/cases.json", folder());
    assert_int_equal(sw_json_read(path.ptr, SW_JSON_STRICT, &doc), SW_OK);
    sw_str_fini(&path);
    return doc;
}

static const char *path_of(const struct sw_json *c, struct sw_str *path)
{
    sw_str_clear(path);
    sw_str_printf(path, "%s/%s", folder(), sw_json_get(c, "picture")->string);
    return path->ptr;
}

/* Calls fn with each picture once. */
static void each_picture(void (*fn)(const char *path, const struct sw_json *c))
{
    struct sw_json_doc *doc = recorded();
    struct sw_str path = {0};
    for (const struct sw_json *c = sw_json_root(doc)->first; c; c = c->next) {
        if (sw_json_get(c, "rgb")) {
            fn(path_of(c, &path), c);
        }
    }
    sw_str_fini(&path);
    sw_json_close(doc);
}

static void compare(const char *path, const struct sw_json *c)
{
    struct sw_picture picture = {0};
    int64_t width, height;
    char hex[65];
    if (sw_picture_read(path, &picture) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(picture.width, sw_json_get(c, "width")->integer);
    assert_int_equal(picture.height, sw_json_get(c, "height")->integer);
    assert_int_equal(sw_picture_look(path, &width, &height), SW_OK);
    assert_true(width == picture.width && height == picture.height);
    sw_test_sha256(picture.rgb, (size_t)(width * height) * 3, hex);
    if (strcmp(hex, sw_json_get(c, "rgb")->string) != 0) {
        fail_msg("%s: other bytes than Pillow's", path);
    }
    sw_picture_fini(&picture);
}

static void bytes_are_those_of_pillow(void **state)
{
    (void)state;
    each_picture(compare);
}

/* Steps of a configuration, through a file. */
static void values(const char *path, const struct sw_json *c)
{
    const struct sw_json *config = sw_json_get(c, "config"), *want = sw_json_get(c, "values");
    const struct sw_image_size size = {sw_json_get(c, "height")->integer,
                                       sw_json_get(c, "width")->integer};
    const int64_t n = size.height * size.width * 3, step = sw_json_get(c, "step")->integer;
    struct sw_image_steps steps;
    struct sw_picture picture = {0};
    struct sw_str text = {0};
    float *pixels = calloc((size_t)n, sizeof *pixels);
    assert_non_null(pixels);
    sw_json_write(config, 0, &text);
    if (sw_image_steps_read(sw_test_write_text(0, "config.json", text.ptr), size, &steps) < 0 ||
        sw_picture_read(path, &picture) < 0 ||
        sw_image_steps_apply(&steps, path, &picture, size, pixels) < 0) {
        fail_msg("%s", sw_error_message());
    }
    int64_t at = 0;
    for (const struct sw_json *v = want->first; v; v = v->next, at += step) {
        assert_true(at < n);
        if (!(fabs(pixels[at] - v->number) < 1e-3)) {
            fail_msg("%s by %s: value %lld is %g, wanted %g", path, text.ptr, (long long)at,
                     (double)pixels[at], v->number);
        }
    }
    assert_true(at >= n);
    sw_picture_fini(&picture);
    sw_str_fini(&text);
    free(pixels);
}

static void values_are_those_of_transformers(void **state)
{
    (void)state;
    struct sw_json_doc *doc = recorded();
    struct sw_str path = {0};
    int n = 0;
    for (const struct sw_json *c = sw_json_root(doc)->first; c; c = c->next) {
        if (sw_json_get(c, "config")) {
            values(path_of(c, &path), c);
            n++;
        }
    }
    assert_true(n > 0);
    sw_str_fini(&path);
    sw_json_close(doc);
}

/* ---- PNG, kind by kind ---- */

enum { W = 11, H = 9 };

static void decode(const struct test_png *png, const uint8_t *rows, struct sw_picture *out)
{
    size_t len;
    uint8_t *bytes = test_png_make(png, rows, &len);
    assert_non_null(bytes);
    if (sw_picture_decode("x.png", bytes, len, out) < 0) {
        fail_msg("%s", sw_error_message());
    }
    free(bytes);
    assert_true(out->width == png->width && out->height == png->height);
}

/* Pillow's value for sample `c` of a pixel with samples v: [channels] of `depth` bits. */
static uint8_t expected(const struct test_png *png, const unsigned *v, int c)
{
    static const unsigned scale[] = {[1] = 255, [2] = 85, [4] = 17, [8] = 1};
    switch (png->type) {
    case 0:
        return (uint8_t)(png->depth == 16 ? (v[0] > 255 ? 255 : v[0]) : v[0] * scale[png->depth]);
    case 3:
        return (int)v[0] < png->n_colours ? png->palette[v[0] * 3 + (unsigned)c] : 0;
    default: /* the upper byte, and no alpha */
        return (uint8_t)(v[png->type == 4 ? 0 : c] >> (png->depth - 8));
    }
}

static void check_kind(const struct test_png *png)
{
    static const int channels[] = {1, 0, 3, 1, 2, 0, 4};
    const int n = channels[png->type];
    const size_t row_bytes = test_png_row_bytes(png, W);
    uint8_t *rows = calloc(H, row_bytes);
    struct sw_picture picture = {0};
    assert_non_null(rows);
    for (size_t i = 0; i < H * row_bytes; i++) {
        rows[i] = (uint8_t)(i * 37 + i / 7);
        rows[i] = png->depth == 16 && i % 4 == 0 ? 0 : rows[i]; /* small values among them */
    }
    decode(png, rows, &picture);
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            unsigned v[4] = {0};
            for (int c = 0; c < n; c++) {
                const int bit = (x * n + c) * png->depth;
                const uint8_t *at = rows + (size_t)y * row_bytes + bit / 8;
                v[c] = png->depth == 16 ? (unsigned)at[0] << 8 | at[1]
                                        : (unsigned)at[0] >> (8 - png->depth - bit % 8) &
                                              ((1U << png->depth) - 1);
            }
            for (int c = 0; c < 3; c++) {
                assert_int_equal(picture.rgb[(y * W + x) * 3 + c], expected(png, v, c));
            }
        }
    }
    sw_picture_fini(&picture);
    free(rows);
}

static void every_kind_of_png_is_read(void **state)
{
    (void)state;
    static const uint8_t palette[] = {9, 8, 7, 60, 50, 40, 255, 0, 128};
    static const uint8_t kinds[][2] = {{0, 1}, {0, 2},  {0, 4},  {0, 8}, {0, 16},
                                       {2, 8}, {2, 16}, {3, 1},  {3, 2}, {3, 4},
                                       {3, 8}, {4, 8},  {4, 16}, {6, 8}, {6, 16}};
    for (size_t i = 0; i < SW_LEN(kinds); i++) {
        struct test_png png = {.width = W, .height = H, .type = kinds[i][0], .depth = kinds[i][1]};
        if (png.type == 3) { /* a palette with fewer colours than there are indices */
            png.palette = palette;
            png.n_colours = png.depth == 1 ? 2 : 3;
        }
        check_kind(&png);
        png.interlaced = png.depth >= 8;
        check_kind(&png);
    }
}

/* ---- damage ---- */

static char *load(const char *path, size_t *len)
{
    char *bytes;
    assert_int_equal(sw_file_read(path, &bytes, len), SW_OK);
    return bytes;
}

/* A truncated file is refused by name, unless the missing end has no data. */
static void cut(const char *path, const struct sw_json *c)
{
    (void)c;
    size_t len;
    int64_t width, height;
    char *bytes = load(path, &len);
    struct sw_picture whole = {0};
    assert_int_equal(sw_picture_read(path, &whole), SW_OK);
    for (size_t n = 0; n < len; n++) {
        struct sw_picture part = {0};
        if (sw_picture_decode("cut", (const uint8_t *)bytes, n, &part) < 0) {
            assert_memory_equal(sw_error_message(), "cut: ", 5);
            assert_null(part.rgb);
            continue;
        }
        assert_true(n + 32 > len && part.width == whole.width && part.height == whole.height);
        assert_memory_equal(part.rgb, whole.rgb, (size_t)(whole.width * whole.height) * 3);
        sw_picture_fini(&part);
    }
    const char *short_path = sw_test_write(0, "short", bytes, 20);
    assert_int_equal(sw_picture_look(short_path, &width, &height), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "short: it ends at byte 20, within its header"));
    sw_picture_fini(&whole);
    sw_free(bytes);
}

static void a_file_that_is_cut_short_is_refused(void **state)
{
    (void)state;
    each_picture(cut);
}

static void expect_refused(const uint8_t *bytes, size_t len, const char *why)
{
    struct sw_picture picture = {0};
    const sw_status st = sw_picture_decode("x", bytes, len, &picture);
    if (st >= 0 || !strstr(sw_error_message(), why)) {
        fail_msg("\"%s\" without \"%s\"", st < 0 ? sw_error_message() : "", why);
    }
    assert_null(picture.rgb);
}

static void a_damaged_file_is_refused(void **state)
{
    (void)state;
    size_t len;
    char *png = load("src/picture/tests/pictures/rgb.png", &len);
    png[len / 2] ^= 1;
    expect_refused((uint8_t *)png, len, "x: a damaged PNG: IDAT: ");
    expect_refused((const uint8_t *)"GIF89a", 6, "neither PNG nor JPEG");
    expect_refused((const uint8_t *)"", 0, "x: the file is empty");
    sw_free(png);
    char *jpeg = load("src/picture/tests/pictures/420.jpg", &len);
    memset(jpeg + len - 200, 0, 100); /* data that goes on, and another end of block */
    memcpy(jpeg + len - 100, "\xff\xd9", 2);
    expect_refused((uint8_t *)jpeg, len, "x: a damaged JPEG: ");
    sw_free(jpeg);
}

/* ---- hostile files ---- */

/* A size is refused before memory is allocated for it. */
static void a_size_without_bounds_is_refused(void **state)
{
    (void)state;
    size_t len;
    int64_t width, height;
    struct sw_alloc_stats before, after;
    char *png = load("src/picture/tests/pictures/rgb.png", &len);
    memcpy(png + 16, "\0\0\xff\xff\0\0\xff\xff", 8); /* width and height of IHDR */
    png_repair((uint8_t *)png, len);
    const char *path = sw_test_write(0, "huge.png", png, len);
    sw_alloc_get_stats(&before);
    assert_int_equal(sw_picture_look(path, &width, &height), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "huge.png: 65535 x 65535 pixels, wanted 1 to"));
    expect_refused((uint8_t *)png, len, "x: 65535 x 65535 pixels");
    sw_free(png);
    char *jpeg = load("src/picture/tests/pictures/420.jpg", &len);
    char *frame = memmem(jpeg, len, "\xff\xc0", 2);
    memcpy(frame + 5, "\xfe\xff\xfe\xff", 4);
    path = sw_test_write(0, "huge.jpg", jpeg, len);
    assert_int_equal(sw_picture_look(path, &width, &height), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "huge.jpg: 65279 x 65279 pixels"));
    expect_refused((uint8_t *)jpeg, len, "x: 65279 x 65279 pixels");
    sw_alloc_get_stats(&after);
    assert_true(after.peak_bytes < before.live_bytes + (1 << 20) ||
                after.peak_bytes == before.peak_bytes);
    sw_free(jpeg);
}

/* Each scan is a pass over the picture, so a small file of repeated scans could take hours. */
static void scans_without_end_are_refused(void **state)
{
    (void)state;
    enum { TIMES = 600 };
    size_t len;
    char *jpeg = load("src/picture/tests/pictures/progressive.jpg", &len);
    const char *scan = memmem(jpeg, len, "\xff\xda", 2), *end = scan + 2;
    while ((uint8_t)end[0] != 0xff || end[1] == 0) { /* the next marker */
        end++;
    }
    const size_t head = (size_t)(scan - jpeg), n = (size_t)(end - scan);
    uint8_t *many = malloc(head + TIMES * n + 2);
    assert_non_null(many);
    memcpy(many, jpeg, head);
    for (size_t i = 0; i < TIMES; i++) {
        memcpy(many + head + i * n, scan, n);
    }
    memcpy(many + head + TIMES * n, "\xff\xd9", 2);
    expect_refused(many, head + TIMES * n + 2, "more than 500 scans");
    free(many);
    sw_free(jpeg);
}

static void lacks_memory(const char *path, const struct sw_json *c)
{
    (void)c;
    struct sw_alloc_stats before, after;
    struct sw_picture picture = {0};
    sw_alloc_get_stats(&before);
    for (int64_t n = 1;; n++) {
        sw_alloc_fail_nth(n);
        const sw_status st = sw_picture_read(path, &picture);
        sw_alloc_fail_nth(0);
        if (st >= 0) {
            assert_true(n > 3);
            break;
        }
        assert_int_equal(st, SW_E_NOMEM);
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
    sw_picture_fini(&picture);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    each_picture(lacks_memory);
}

/* All coefficients of a progressive picture wait in memory that libjpeg takes itself: 120 MB. */
static void a_picture_without_room_is_not_called_damaged(void **state)
{
    (void)state;
#ifdef TEST_SANITIZED
    skip(); /* they end a process that asks for too much */
#endif
    size_t len;
    struct sw_picture picture = {0};
    char *jpeg = load("src/picture/tests/pictures/progressive.jpg", &len);
    char *frame = memmem(jpeg, len, "\xff\xc2", 2);
    assert_non_null(frame);
    memcpy(frame + 5, "\x18\x00\x18\x00", 4);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {64 << 20, 64 << 20};
        _exit(setrlimit(RLIMIT_AS, &limit) == 0 &&
                      sw_picture_decode("x", (uint8_t *)jpeg, len, &picture) == SW_E_NOMEM &&
                      strcmp(sw_error_message(), "out of host memory for x") == 0
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    sw_free(jpeg);
}

static int begin(char **argv)
{
    (void)argv;
    if (getenv("SPILLWAY_PICTURES")) { /* pictures of a user may be large */
        test_run_only("_are_those_of_");
    }
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bytes_are_those_of_pillow),
    cmocka_unit_test(values_are_those_of_transformers),
    cmocka_unit_test(every_kind_of_png_is_read),
    cmocka_unit_test(a_file_that_is_cut_short_is_refused),
    cmocka_unit_test(a_damaged_file_is_refused),
    cmocka_unit_test(a_size_without_bounds_is_refused),
    cmocka_unit_test(scans_without_end_are_refused),
    cmocka_unit_test(survives_lack_of_memory),
    cmocka_unit_test(a_picture_without_room_is_not_called_damaged),
};

const struct test_program sw_tests = {
    TEST_TABLE(tests), .begin = begin,
    .left_out = SW_HAVE_PNG && SW_HAVE_JPEG ? NULL : "built without libpng or libjpeg"};
