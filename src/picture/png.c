// SPDX-License-Identifier: Apache-2.0
// PNG via libpng. Its errors return by longjmp, so all memory to free is in `struct reading`: local
// variables would be lost. Gray, palettes and 16 bits become RGB here, not in libpng, to match
// Pillow. Alpha and transparent colours are dropped. 16-bit gray is clipped at 255; other 16-bit
// samples keep their upper byte. Colours missing from a palette are black.
#include "picture/format.h"

#if SW_HAVE_PNG

#include <png.h>
#include <setjmp.h>
#include <string.h>

enum { MOST_CHUNK_BYTES = 8 << 20 };

struct reading {
    const struct sw_picture_file *file;
    size_t at;
    png_structp png;
    png_infop info;
    jmp_buf failed;
    char why[128];
    bool out_of_memory;
    struct sw_picture picture;
    uint8_t *rows; /* [n_rows, row_bytes] as libpng gives them */
    size_t n_rows, row_bytes;
    int depth, type;         /* of the samples read, and PNG_COLOR_TYPE_* */
    uint8_t palette[256][3]; /* black after its end */
};

/* ---- callbacks of libpng ---- */

static _Noreturn void on_error(png_structp png, png_const_charp text)
{
    struct reading *r = png_get_error_ptr(png);
    snprintf(r->why, sizeof r->why, "%s", text);
    longjmp(r->failed, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static png_voidp on_alloc(png_structp png, png_alloc_size_t bytes)
{
    struct reading *r = png_get_mem_ptr(png);
    void *mem = sw_alloc("pictures", bytes);
    r->out_of_memory = r->out_of_memory || !mem;
    return mem;
}

static void on_free(png_structp png, png_voidp mem)
{
    (void)png;
    sw_free(mem);
}

static void on_read(png_structp png, png_bytep out, size_t n)
{
    struct reading *r = png_get_io_ptr(png);
    if (n > r->file->len - r->at) {
        png_error(png, "the file is cut short");
    }
    memcpy(out, r->file->bytes + r->at, n);
    r->at += n;
}

/* ---- rows ---- */

static void learn_palette(struct reading *r)
{
    png_colorp colours;
    int n = 0;
    if (png_get_PLTE(r->png, r->info, &colours, &n)) {
        for (int i = 0; i < n && i < 256; i++) {
            const uint8_t colour[3] = {colours[i].red, colours[i].green, colours[i].blue};
            memcpy(r->palette[i], colour, 3);
        }
    }
}

/* Makes libpng return 8- or 16-bit gray, 8-bit indices, or 8-bit RGB. */
static void set_up(struct reading *r)
{
    r->depth = png_get_bit_depth(r->png, r->info);
    r->type = png_get_color_type(r->png, r->info);
    if (r->type == PNG_COLOR_TYPE_PALETTE) {
        learn_palette(r);
        png_set_packing(r->png);
    } else if (r->type == PNG_COLOR_TYPE_GRAY) {
        if (r->depth < 8) {
            png_set_expand_gray_1_2_4_to_8(r->png);
        }
    } else {
        png_set_strip_16(r->png);
        png_set_strip_alpha(r->png);
    }
}

static void convert_row(const struct reading *r, const uint8_t *row, uint8_t *out)
{
    const int64_t n = r->picture.width;
    if (r->type & PNG_COLOR_MASK_COLOR && r->type != PNG_COLOR_TYPE_PALETTE) {
        memcpy(out, row, (size_t)n * 3);
        return;
    }
    const bool wide = r->type == PNG_COLOR_TYPE_GRAY && r->depth == 16;
    for (int64_t x = 0; x < n; x++) {
        const uint8_t value = !wide ? row[x] : row[2 * x] ? 255 : row[2 * x + 1];
        if (r->type == PNG_COLOR_TYPE_PALETTE) {
            memcpy(out + 3 * x, r->palette[value], 3);
        } else {
            memset(out + 3 * x, value, 3);
        }
    }
}

/* Interlaced rows come in several passes, each of which adds to all rows. */
static void read_rows(struct reading *r, int n_passes)
{
    for (int pass = 0; pass < n_passes; pass++) {
        for (int64_t y = 0; y < r->picture.height; y++) {
            uint8_t *row = r->rows + (size_t)(n_passes > 1 ? y : 0) * r->row_bytes;
            png_read_row(r->png, row, NULL);
            if (pass == n_passes - 1) {
                convert_row(r, row, r->picture.rgb + y * r->picture.width * 3);
            }
        }
    }
}

static sw_status reserve(struct reading *r, int n_passes)
{
    const size_t n = (size_t)(r->picture.width * r->picture.height);
    r->row_bytes = png_get_rowbytes(r->png, r->info);
    r->n_rows = n_passes > 1 ? (size_t)r->picture.height : 1;
    r->picture.rgb = sw_alloc("pictures", n * 3);
    r->rows = sw_alloc_zero("pictures", r->n_rows, r->row_bytes);
    SW_TRY_ALLOC(r->picture.rgb && r->rows ? r : NULL, r->file->name);
    return SW_OK;
}

/* No local variable between setjmp and here owns memory. */
static sw_status read_all(struct reading *r)
{
    png_set_read_fn(r->png, r, on_read);
    png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* checked below */
    png_set_chunk_malloc_max(r->png, MOST_CHUNK_BYTES);
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* and texts, profiles */
    png_read_info(r->png, r->info);
    r->picture.width = (int64_t)png_get_image_width(r->png, r->info);
    r->picture.height = (int64_t)png_get_image_height(r->png, r->info);
    SW_TRY(sw_picture_check_size(r->file->name, r->picture.width, r->picture.height));
    set_up(r);
    const int n_passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    SW_TRY(reserve(r, n_passes));
    read_rows(r, n_passes);
    return SW_OK;
}

static sw_status read_or_jump(struct reading *r)
{
    if (setjmp(r->failed) != 0) {
        return r->out_of_memory
                   ? SW_FAIL(SW_E_NOMEM, "out of host memory for %s", r->file->name)
                   : SW_FAIL(SW_E_FORMAT, "%s: a damaged PNG: %s", r->file->name, r->why);
    }
    r->info = png_create_info_struct(r->png);
    SW_TRY_ALLOC(r->info, r->file->name);
    return read_all(r);
}

sw_status sw_png_decode(const struct sw_picture_file *file, struct sw_picture *out)
{
    struct reading *r = sw_alloc_zero("pictures", 1, sizeof *r);
    SW_TRY_ALLOC(r, file->name);
    r->file = file;
    r->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, on_error, on_warning, r, on_alloc,
                                      on_free);
    sw_status st =
        r->png ? read_or_jump(r) : SW_FAIL(SW_E_NOMEM, "out of host memory for %s", file->name);
    png_destroy_read_struct(&r->png, &r->info, NULL);
    sw_free(r->rows);
    *out = r->picture;
    sw_free(r);
    return st;
}

#endif
