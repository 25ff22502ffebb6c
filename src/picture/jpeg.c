// SPDX-License-Identifier: Apache-2.0
// JPEG via libjpeg. Its errors return by longjmp, so all memory to free is in `struct reading`:
// local variables would be lost. Four components are read as Adobe's inverted CMYK, as Pillow does.
// EXIF orientation is ignored. A gap in the coded data is an error; libjpeg would fill it with
// gray.
#include "picture/format.h"

#if SW_HAVE_JPEG

#include <stdio.h> /* jpeglib.h needs it and does not include it */

#include <jpeglib.h>
#include <jerror.h>
#include <setjmp.h>
#include <string.h>

enum { MOST_SCANS = 500 };

struct reading {
    const struct sw_picture_file *file;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char why[JMSG_LENGTH_MAX];
    bool out_of_memory;
    struct sw_picture picture;
    uint8_t *row; /* [width, components] */
};

static struct reading *reading_of(j_common_ptr jpeg)
{
    return jpeg->client_data;
}

/* ---- callbacks of libjpeg ---- */

static _Noreturn void on_error(j_common_ptr jpeg)
{
    struct reading *r = reading_of(jpeg);
    r->errors.format_message(jpeg, r->why);
    r->out_of_memory = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
    longjmp(r->failed, 1);
}

/* Treats warnings of missing or invalid coded data as errors, and ignores others. */
static void on_message(j_common_ptr jpeg, int level)
{
    const int code = jpeg->err->msg_code;
    if (level < 0 && (code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
                      code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC)) {
        on_error(jpeg);
    }
}

static void no_output(j_common_ptr jpeg)
{
    (void)jpeg;
}

static void no_more(j_decompress_ptr jpeg)
{
    (void)jpeg;
}

static boolean on_end(j_decompress_ptr jpeg)
{
    ERREXIT(jpeg, JERR_INPUT_EOF);
    return FALSE;
}

static void on_skip(j_decompress_ptr jpeg, long n)
{
    struct jpeg_source_mgr *source = jpeg->src;
    if (n > 0 && (size_t)n > source->bytes_in_buffer) {
        on_end(jpeg);
    }
    if (n > 0) {
        source->next_input_byte += n;
        source->bytes_in_buffer -= (size_t)n;
    }
}

/* Each scan is a pass over the whole picture, and a small file may hold any number of them. */
static void on_progress(j_common_ptr jpeg)
{
    struct reading *r = reading_of(jpeg);
    if (r->jpeg.input_scan_number > MOST_SCANS) {
        snprintf(r->why, sizeof r->why, "more than %d scans", MOST_SCANS);
        longjmp(r->failed, 1);
    }
}

/* ---- rows ---- */

/* a * b / 255, rounded. */
static int by_255(int a, int b)
{
    const int product = a * b + 128;
    return ((product >> 8) + product) >> 8;
}

/* Samples are inverted: 255 is no ink. */
static void convert_cmyk(const uint8_t *row, int64_t width, uint8_t *out)
{
    for (int64_t x = 0; x < width; x++) {
        const int white = row[4 * x + 3];
        for (int c = 0; c < 3; c++) {
            const int left = white - by_255(255 - row[4 * x + c], white);
            out[3 * x + c] = (uint8_t)(left < 0 ? 0 : left);
        }
    }
}

static void convert_row(const struct reading *r, uint8_t *out)
{
    const int64_t width = r->picture.width;
    if (r->jpeg.output_components == 3) {
        memcpy(out, r->row, (size_t)width * 3);
    } else if (r->jpeg.output_components == 4) {
        convert_cmyk(r->row, width, out);
    } else {
        for (int64_t x = 0; x < width; x++) {
            memset(out + 3 * x, r->row[x], 3);
        }
    }
}

static sw_status begin(struct reading *r)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    jpeg_read_header(jpeg, TRUE);
    r->picture.width = (int64_t)jpeg->image_width;
    r->picture.height = (int64_t)jpeg->image_height;
    SW_TRY(sw_picture_check_size(r->file->name, r->picture.width, r->picture.height));
    const int n = jpeg->num_components;
    if (n != 1 && n != 3 && n != 4) {
        return SW_FAIL(SW_E_UNSUP, "%s: a JPEG of %d colours, wanted 1, 3 or 4", r->file->name, n);
    }
    jpeg->out_color_space = n == 1 ? JCS_GRAYSCALE : n == 3 ? JCS_RGB : JCS_CMYK;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg->do_fancy_upsampling = TRUE;
    jpeg_start_decompress(jpeg);
    r->picture.rgb = sw_alloc("pictures", (size_t)(r->picture.width * r->picture.height) * 3);
    r->row = sw_alloc("pictures", (size_t)r->picture.width * 4);
    SW_TRY_ALLOC(r->picture.rgb && r->row ? r : NULL, r->file->name);
    return SW_OK;
}

static void attach(struct reading *r)
{
    r->source = (struct jpeg_source_mgr){.next_input_byte = r->file->bytes,
                                         .bytes_in_buffer = r->file->len,
                                         .init_source = no_more,
                                         .fill_input_buffer = on_end,
                                         .skip_input_data = on_skip,
                                         .resync_to_restart = jpeg_resync_to_restart,
                                         .term_source = no_more};
    r->progress.progress_monitor = on_progress;
    r->jpeg.src = &r->source;
    r->jpeg.progress = &r->progress;
}

/* No local variable between setjmp and here owns memory. */
static sw_status read_or_jump(struct reading *r)
{
    if (setjmp(r->failed) != 0) {
        return r->out_of_memory
                   ? SW_FAIL(SW_E_NOMEM, "out of host memory for %s", r->file->name)
                   : SW_FAIL(SW_E_FORMAT, "%s: a damaged JPEG: %s", r->file->name, r->why);
    }
    jpeg_create_decompress(&r->jpeg); /* err and client_data stay */
    attach(r);
    SW_TRY(begin(r));
    for (int64_t y = 0; y < r->picture.height; y++) {
        JSAMPROW row = r->row;
        jpeg_read_scanlines(&r->jpeg, &row, 1);
        convert_row(r, r->picture.rgb + y * r->picture.width * 3);
    }
    return SW_OK;
}

sw_status sw_jpeg_decode(const struct sw_picture_file *file, struct sw_picture *out)
{
    struct reading *r = sw_alloc_zero("pictures", 1, sizeof *r);
    SW_TRY_ALLOC(r, file->name);
    r->file = file;
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->errors.output_message = no_output;
    const sw_status st = read_or_jump(r);
    jpeg_destroy_decompress(&r->jpeg);
    sw_free(r->row);
    *out = r->picture;
    sw_free(r);
    return st;
}

#endif
