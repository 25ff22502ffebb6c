// SPDX-License-Identifier: Apache-2.0
// Windows over images, one thread per element of the result. A gradient is gathered from the
// windows that see its pixel, in the reference's order.
#include "device/gpu/module/registry.h"

enum { THREADS = 256 };

template <typename T>
SW_DEVICE float pixel(const struct gpu_image_args &args, int64_t b, int64_t c, int64_t row,
                      int64_t column)
{
    if (row < 0 || column < 0 || row >= args.size[0] || column >= args.size[1]) {
        return 0;
    }
    return load((const T *)args.x, b * args.strides[0] + c * args.strides[1] +
                                       row * args.strides[2] + column * args.strides[3]);
}

template <typename T> SW_KERNEL(THREADS) void im2col(struct gpu_image_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t area = args.kernel[0] * args.kernel[1], width = args.channels * area;
    const int64_t places = args.places[0] * args.places[1];
    for (int64_t i = first_element(); i < args.batch * places * width; i += grid_threads()) {
        const int64_t item = quotient(i, width), e = i - item * width;
        const int64_t b = quotient(item, places), place = item - b * places;
        const int64_t c = quotient(e, area), at = e - c * area;
        const int64_t row = quotient(place, args.places[1]), column = place - row * args.places[1];
        const int64_t k = quotient(at, args.kernel[1]);
        store((T *)args.y, i,
              pixel<T>(args, b, c, row * args.stride[0] - args.padding[0] + k,
                       column * args.stride[1] - args.padding[1] + at - k * args.kernel[1]));
    }
}

SW_DEVICE int64_t place_with(const struct gpu_image_args &args, int dim, int64_t i, int64_t k)
{
    const int64_t from = i + args.padding[dim] - k, stride = args.stride[dim];
    return from >= 0 && from % stride == 0 && from / stride < args.places[dim] ? from / stride : -1;
}

template <typename T> SW_KERNEL(THREADS) void col2im(struct gpu_image_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t area = args.kernel[0] * args.kernel[1], width = args.channels * area;
    const int64_t pixels = args.size[0] * args.size[1];
    for (int64_t at = first_element(); at < args.batch * args.channels * pixels;
         at += grid_threads()) {
        const int64_t item = quotient(at, pixels), i = at - item * pixels;
        const int64_t b = quotient(item, args.channels), c = item - b * args.channels;
        float sum = 0;
        for (int64_t k = 0; k < area; k++) {
            const int64_t row = place_with(args, 0, i / args.size[1], k / args.kernel[1]);
            const int64_t column = place_with(args, 1, i % args.size[1], k % args.kernel[1]);
            if (row >= 0 && column >= 0) {
                const int64_t place = (b * args.places[0] + row) * args.places[1] + column;
                sum += load((const T *)args.d, place * width + c * area + k);
            }
        }
        store_any(args.y, args.out_type, at, sum);
    }
}

template <typename T>
SW_DEVICE float pooled(const struct gpu_image_args &args, int64_t b, int64_t c, int64_t row,
                       int64_t column, int64_t *where)
{
    float best = 0, sum = 0;
    for (int64_t k = 0; k < args.kernel[0] * args.kernel[1]; k++) {
        const int64_t y = row * args.stride[0] + k / args.kernel[1];
        const int64_t x = column * args.stride[1] + k % args.kernel[1];
        const float value = pixel<T>(args, b, c, y, x);
        sum += value;
        if (k == 0 || value > best || value != value) {
            best = value;
            *where = y * args.size[1] + x;
        }
    }
    return args.mean ? sum / (float)(args.kernel[0] * args.kernel[1]) : best;
}

template <typename T> SW_KERNEL(THREADS) void pool(struct gpu_image_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t places = args.places[0] * args.places[1];
    for (int64_t i = first_element(); i < args.batch * args.channels * places;
         i += grid_threads()) {
        const int64_t item = quotient(i, places), place = i - item * places;
        const int64_t b = quotient(item, args.channels), row = quotient(place, args.places[1]);
        int64_t where;
        store((T *)args.y, i,
              pooled<T>(args, b, item - b * args.channels, row, place - row * args.places[1],
                        &where));
    }
}

template <typename T> SW_KERNEL(THREADS) void pool_grad(struct gpu_image_args args)
{
    if (skipped(args.skip)) {
        return;
    }
    const int64_t area = args.kernel[0] * args.kernel[1], pixels = args.size[0] * args.size[1];
    for (int64_t at = first_element(); at < args.batch * args.channels * pixels;
         at += grid_threads()) {
        const int64_t item = quotient(at, pixels), i = at - item * pixels;
        const int64_t b = quotient(item, args.channels), c = item - b * args.channels;
        float sum = 0;
        for (int64_t k = area - 1; k >= 0; k--) {
            const int64_t row = place_with(args, 0, i / args.size[1], k / args.kernel[1]);
            const int64_t column = place_with(args, 1, i % args.size[1], k % args.kernel[1]);
            int64_t where = i;
            if (row < 0 || column < 0) {
                continue;
            }
            if (!args.mean) {
                pooled<T>(args, b, c, row, column, &where);
            }
            const float dy =
                load((const T *)args.d, (item * args.places[0] + row) * args.places[1] + column);
            sum += where != i ? 0 : args.mean ? dy / (float)area : dy;
        }
        store_any(args.y, args.out_type, at, sum);
    }
}

static const struct sw_gpu_kernel rows[] = {SW_FLOATS(im2col, THREADS), SW_FLOATS(col2im, THREADS),
                                            SW_FLOATS(pool, THREADS),
                                            SW_FLOATS(pool_grad, THREADS)};
const struct sw_gpu_kernels sw_gpu_kernels_image = {rows, SW_ROWS(rows)};
