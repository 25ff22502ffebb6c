// SPDX-License-Identifier: Apache-2.0
// pictures - PNG files that tests write themselves: any type of samples, uncompressed.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct test_png {
    uint32_t width, height;
    uint8_t depth, type; /* bits of a sample; 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA */
    bool interlaced;     /* by Adam7; whole bytes a pixel only */
    const uint8_t *palette; /* [n_colours, 3] */
    int n_colours;
};
/* Bytes of a row of samples. */
size_t test_png_row_bytes(const struct test_png *png, uint32_t width);
/* The file for rows [height, row bytes]; NULL without memory, else the caller's: free. */
uint8_t *test_png_make(const struct test_png *png, const uint8_t *rows, size_t *out_len);
/* Writes a picture whose pixels are all near one colour: noise of `seed`. false: it cannot. */
bool test_picture_write(const char *path, uint32_t width, uint32_t height, const uint8_t colour[3],
                        uint32_t seed);
