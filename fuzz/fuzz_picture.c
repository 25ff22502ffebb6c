// SPDX-License-Identifier: Apache-2.0
// Any bytes as a picture: refused by its path, or as many pixels as its header says. The checks of
// PNG chunks are corrected in a second reading, or nothing behind them would be reached.
// EXECUTIONS 10000
#include "picture/format.h"

#include <stdlib.h>
#include <string.h>

#include "../tests/support/png_checks.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { MOST_PIXELS = 1 << 20 }; /* more takes time, not other code */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    if (!SW_HAVE_PNG && !SW_HAVE_JPEG) {
        printf("skipped: built without libpng and libjpeg\n");
        exit(77);
    }
    return 0;
}

static void read_picture(const uint8_t *data, size_t size)
{
    char path[256];
    int64_t width, height;
    struct sw_picture picture = {0};
    scratch_path(path, "x");
    scratch_write("x", data, size);
    if (sw_picture_look(path, &width, &height) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), path, strlen(path)) == 0);
        return;
    }
    SW_ASSERT(width > 0 && height > 0 && width <= SW_PICTURE_MOST_PIXELS / height);
    if (width > MOST_PIXELS / height) {
        return;
    }
    if (sw_picture_read(path, &picture) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), path, strlen(path)) == 0 && !picture.rgb);
        return;
    }
    SW_ASSERT(picture.width == width && picture.height == height);
    sw_picture_fini(&picture);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);
    read_picture(data, size);
    SW_ASSERT(copy);
    memcpy(copy, data, size);
    png_repair(copy, size);
    if (memcmp(copy, data, size) != 0) {
        read_picture(copy, size);
    }
    free(copy);
    return 0;
}
