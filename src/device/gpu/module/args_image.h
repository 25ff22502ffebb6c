// SPDX-License-Identifier: Apache-2.0
// args_image - windows over images.
#pragma once

#include <stdint.h>

#define SW_GPU_IMAGE_KERNELS(X) X(im2col) X(col2im) X(pool) X(pool_grad)

/* The image is [batch, channels, size[0], size[1]]; places: positions of the window along each
 * dim. */
struct gpu_image_args {
    const double *skip;
    const void *x, *d; /* x: the image, if it is read; d: gradient of the result */
    void *y;
    int64_t batch, channels;
    int64_t size[2], places[2], kernel[2], stride[2], padding[2];
    int64_t strides[4]; /* strides of x */
    int mean, out_type;
};
