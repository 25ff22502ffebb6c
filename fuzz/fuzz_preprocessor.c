// SPDX-License-Identifier: Apache-2.0
// Any bytes as preprocessor_config.json: refused by its path, or steps that make pixels of the
// model's size, all of them numbers, of any picture that they accept.
#include "picture/picture.h"

#include <math.h>
#include <string.h>

#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIDE = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t sizes[][2] = {{1, 1}, {16, 16}, {7, 30}, {40, 9}};
    const struct sw_image_size model = {SIDE, SIDE};
    uint8_t rgb[30 * 30 * 3];
    float pixels[3 * SIDE * SIDE];
    struct sw_image_steps steps;
    struct sw_str text = {0};
    char path[256];
    scratch_path(path, "p.json");
    scratch_write("p.json", data, size);
    if (sw_image_steps_read(path, model, &steps) < 0) {
        SW_ASSERT(strstr(sw_error_message(), path));
        return 0;
    }
    memset(rgb, 200, sizeof rgb);
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        const struct sw_picture picture = {sizes[i][0], sizes[i][1], rgb};
        if (sw_image_steps_apply(&steps, "picture", &picture, model, pixels) < 0) {
            SW_ASSERT(strncmp(sw_error_message(), "picture: ", 9) == 0);
            continue;
        }
        for (size_t k = 0; k < SW_LEN(pixels); k++) {
            SW_ASSERT(!isnan(pixels[k]));
        }
    }
    sw_image_steps_text(&steps, &text);
    SW_ASSERT(!text.failed && text.len > 0);
    sw_str_fini(&text);
    return 0;
}
