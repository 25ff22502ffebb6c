// SPDX-License-Identifier: Apache-2.0
// IM2COL, COL2IM, POOL and POOL_GRAD of 16- and 32-bit floats, with the reference's bits: every sum
// has its terms in the reference's order. The reference gathers an image element from the windows
// that see it. This code walks the windows in that order and adds to the image.
#include <math.h>
#include <string.h>

#include "device/cpu/fast.h"

enum { RUN_ELEMS = 16384 };

struct image {
    enum sw_dtype dtype; /* dtype of x */
    struct sw_window_attrs window;
    int64_t batch, channels, size[2], places[2]; /* rows and columns of the image; of the windows */
    int64_t strides[4];                          /* strides of x */
    int64_t area, width; /* elements of a window per channel; in all channels */
    int64_t *offsets;    /* IM2COL: offset of each element from the window's first */
};

struct job {
    const struct image *m;
    const struct cpu_call *call;
    const struct cpu_vector *vector;
};

/* x: the image, or its gradient */
static struct image image_of(const struct sw_op_desc *desc, const struct sw_view *x)
{
    struct sw_view view;
    sw_image_view(x, &view);
    struct image m = {.dtype = x->dtype,
                      .window = desc->op->attrs.window,
                      .batch = view.shape.dims[0],
                      .channels = view.shape.dims[1]};
    for (int d = 0; d < 2; d++) {
        m.size[d] = view.shape.dims[2 + d];
        m.places[d] = sw_window_places(&m.window, d, m.size[d]);
    }
    m.area = m.window.kernel[0] * m.window.kernel[1];
    m.width = m.channels * m.area;
    memcpy(m.strides, view.strides, sizeof m.strides);
    return m;
}

static void release(void *prepared)
{
    sw_free(prepared);
}

static float value_at(enum sw_dtype dtype, const void *x, int64_t i)
{
    return dtype == SW_F32    ? ((const float *)x)[i]
           : dtype == SW_BF16 ? sw_bf16_to_f32(((const uint16_t *)x)[i])
                              : sw_f16_to_f32(((const uint16_t *)x)[i]);
}

static void query_in(const struct cpu_device *dev, const struct sw_op_desc *desc,
                     struct sw_kernel_info *out)
{
    out->supported =
        cpu_is_fast_float(desc->in[0].dtype) && desc->out[0].dtype == desc->in[0].dtype;
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

/* ---- IM2COL: items are runs of windows ---- */

static sw_status im2col_prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                void **prepared)
{
    const struct image of = image_of(desc, &desc->in[0]);
    (void)dev;
    struct image *m = sw_alloc("device", sizeof *m + (size_t)of.width * sizeof *m->offsets);
    SW_TRY_ALLOC(m, "a table of what a window sees");
    *m = of;
    m->offsets = (int64_t *)(m + 1);
    for (int64_t e = 0; e < m->width; e++) {
        const int64_t at = e % m->area;
        m->offsets[e] = e / m->area * m->strides[1] + at / m->window.kernel[1] * m->strides[2] +
                        at % m->window.kernel[1] * m->strides[3];
    }
    *prepared = m;
    return SW_OK;
}

/* Copies one window that is partly outside; its first element is at `row`, `column`. */
static void window_at_edge(const struct image *m, int64_t row, int64_t column, const char *first,
                           char *to)
{
    const size_t bytes = sw_dtype_bytes(m->dtype);
    for (int64_t e = 0; e < m->width; e++) {
        const int64_t y = row + e % m->area / m->window.kernel[1];
        const int64_t x = column + e % m->window.kernel[1];
        if (y < 0 || x < 0 || y >= m->size[0] || x >= m->size[1]) {
            memset(to + (size_t)e * bytes, 0, bytes);
        } else {
            memcpy(to + (size_t)e * bytes, first + m->offsets[e] * (int64_t)bytes, bytes);
        }
    }
}

static void im2col_item(void *ctx, int64_t item, int i_worker)
{
    const struct job *job = ctx;
    const struct image *m = job->m;
    const int64_t bytes = (int64_t)sw_dtype_bytes(m->dtype),
                  run = sw_max_i64(1, RUN_ELEMS / m->width);
    const int64_t all = m->places[0] * m->places[1];
    (void)i_worker;
    for (int64_t i = item * run; i < sw_min_i64((item + 1) * run, m->batch * all); i++) {
        const int64_t row = i % all / m->places[1] * m->window.stride[0] - m->window.padding[0];
        const int64_t column = i % m->places[1] * m->window.stride[1] - m->window.padding[1];
        const int64_t at = i / all * m->strides[0] + row * m->strides[2] + column * m->strides[3];
        const char *first = (const char *)job->call->in[0] + at * bytes;
        char *to = (char *)job->call->out[0] + i * m->width * bytes;
        if (row < 0 || column < 0 || row + m->window.kernel[0] > m->size[0] ||
            column + m->window.kernel[1] > m->size[1]) {
            window_at_edge(m, row, column, first, to);
        } else if (bytes == 4) {
            for (int64_t e = 0; e < m->width; e++) {
                ((uint32_t *)to)[e] = ((const uint32_t *)first)[m->offsets[e]];
            }
        } else {
            for (int64_t e = 0; e < m->width; e++) {
                ((uint16_t *)to)[e] = ((const uint16_t *)first)[m->offsets[e]];
            }
        }
    }
}

static void im2col_run(const struct cpu_call *call)
{
    struct job job = {.m = call->prepared, .call = call};
    const int64_t n = job.m->batch * job.m->places[0] * job.m->places[1];
    sw_pool_run(call->pool, sw_ceil_div(n, sw_max_i64(1, RUN_ELEMS / job.m->width)), im2col_item,
                &job);
}

const struct cpu_kernel sw_cpu_im2col = {.name = "fast",
                                         .query = query_in,
                                         .prepare = im2col_prepare,
                                         .release = release,
                                         .run = im2col_run};

/* ---- sums over windows: an item is a channel of a sample; worker scratch: its image in f32, and
 * one window ---- */

static size_t sums_bytes(const struct image *m)
{
    return sw_round_up((size_t)(m->size[0] * m->size[1] + m->area) * sizeof(float), CPU_LINE);
}

static float *sums_of(const struct job *job, int i_worker)
{
    float *sums = (float *)((char *)job->call->workspace + (size_t)i_worker * sums_bytes(job->m));
    memset(sums, 0, (size_t)(job->m->size[0] * job->m->size[1]) * sizeof *sums);
    return sums;
}

static void put_sums(const struct job *job, int64_t item, const float *sums)
{
    const int64_t n = job->m->size[0] * job->m->size[1];
    const enum sw_dtype dtype = job->call->desc->out[0].dtype;
    job->vector->cast(dtype, SW_F32,
                      (char *)job->call->out[0] + (size_t)(item * n) * sw_dtype_bytes(dtype), sums,
                      0, n);
}

/* The range of a window's rows or columns, starting at `first`, that lies inside the image. */
static void inside(int64_t first, int64_t kernel, int64_t size, int64_t *begin, int64_t *end)
{
    *begin = sw_max_i64(0, -first);
    *end = sw_min_i64(kernel, size - first);
}

/* Adds one channel of a window at `row`, `column` of the image. */
static void add_window(const struct image *m, int64_t row, int64_t column, const float *d,
                       float *sums)
{
    int64_t y, y_end, x_begin, x_end;
    inside(row, m->window.kernel[0], m->size[0], &y, &y_end);
    inside(column, m->window.kernel[1], m->size[1], &x_begin, &x_end);
    for (; y < y_end; y++) {
        float *to = sums + (row + y) * m->size[1] + column;
        const float *from = d + y * m->window.kernel[1];
        for (int64_t x = x_begin; x < x_end; x++) {
            to[x] += from[x];
        }
    }
}

/* The last window that sees a pixel sees it at the window's first element, so windows run
 * backwards. */
static void col2im_item(void *ctx, int64_t item, int i_worker)
{
    const struct job *job = ctx;
    const struct image *m = job->m;
    const int64_t b = item / m->channels, c = item % m->channels, all = m->places[0] * m->places[1];
    const enum sw_dtype dtype = job->call->desc->in[0].dtype;
    float *sums = sums_of(job, i_worker), *window = sums + m->size[0] * m->size[1];
    for (int64_t place = all - 1; place >= 0; place--) {
        const int64_t at = (b * all + place) * m->width + c * m->area;
        const char *d = (const char *)job->call->in[0] + (size_t)at * sw_dtype_bytes(dtype);
        if (dtype != SW_F32) {
            job->vector->cast(SW_F32, dtype, window, d, 0, m->area);
        }
        add_window(m, place / m->places[1] * m->window.stride[0] - m->window.padding[0],
                   place % m->places[1] * m->window.stride[1] - m->window.padding[1],
                   dtype == SW_F32 ? (const float *)(const void *)d : window, sums);
    }
    put_sums(job, item, sums);
}

static void col2im_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel_info *out)
{
    const struct image m = image_of(desc, &desc->out[0]);
    out->supported = cpu_is_fast_float(desc->in[0].dtype) && cpu_is_fast_float(desc->out[0].dtype);
    out->workspace_bytes = sums_bytes(&m) * (size_t)cpu_workers(dev->pool);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void col2im_run(const struct cpu_call *call)
{
    const struct image m = image_of(call->desc, &call->desc->out[0]);
    struct job job = {&m, call, call->prepared};
    sw_pool_run(call->pool, m.batch * m.channels, col2im_item, &job);
}

const struct cpu_kernel sw_cpu_col2im = {.name = "fast",
                                         .query = col2im_query,
                                         .prepare = sw_cpu_prepare_vector,
                                         .release = sw_cpu_release_nothing,
                                         .run = col2im_run};

/* ---- POOL, POOL_GRAD: an item is a channel of a sample ---- */

static bool pools(const struct sw_op_desc *desc)
{
    const struct sw_window_attrs *w = &desc->op->attrs.window;
    return w->padding[0] == 0 && w->padding[1] == 0; /* no window reaches outside */
}

/* Pools the window whose first element is x[first]: its mean, or its maximum and where that is. */
static float pooled(const struct image *m, const void *x, int64_t first, int64_t *y_of_best,
                    int64_t *x_of_best)
{
    float best = 0, sum = 0;
    for (int64_t i = 0; i < m->window.kernel[0]; i++) {
        for (int64_t j = 0; j < m->window.kernel[1]; j++) {
            const float value =
                value_at(m->dtype, x, first + i * m->strides[2] + j * m->strides[3]);
            sum += value;
            if ((i == 0 && j == 0) || value > best || isnan(value)) {
                best = value;
                *y_of_best = i;
                *x_of_best = j;
            }
        }
    }
    return m->window.mean ? sum / (float)m->area : best;
}

static const void *channel_of(const struct image *m, const void *x, int64_t item)
{
    const int64_t at = item / m->channels * m->strides[0] + item % m->channels * m->strides[1];
    return (const char *)x + at * (int64_t)sw_dtype_bytes(m->dtype);
}

static void pool_item(void *ctx, int64_t item, int i_worker)
{
    const struct job *job = ctx;
    const struct image *m = job->m;
    const struct sw_view *out = &job->call->desc->out[0];
    const void *x = channel_of(m, job->call->in[0], item);
    const int64_t n = m->places[0] * m->places[1];
    char *to = (char *)job->call->out[0] + (size_t)(item * n) * sw_dtype_bytes(out->dtype);
    (void)i_worker;
    enum { AT_ONCE = 64 };
    float values[AT_ONCE];
    for (int64_t i = 0; i < n; i++) {
        int64_t row, column;
        values[i % AT_ONCE] = pooled(m, x,
                                     i / m->places[1] * m->window.stride[0] * m->strides[2] +
                                         i % m->places[1] * m->window.stride[1] * m->strides[3],
                                     &row, &column);
        if (i % AT_ONCE == AT_ONCE - 1 || i == n - 1) {
            const int64_t first = i / AT_ONCE * AT_ONCE;
            job->vector->cast(out->dtype, SW_F32, to + (size_t)first * sw_dtype_bytes(out->dtype),
                              values, 0, i + 1 - first);
        }
    }
}

static void pool_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    query_in(dev, desc, out);
    out->supported = out->supported && pools(desc);
}

static void pool_run(const struct cpu_call *call)
{
    const struct image m = image_of(call->desc, &call->desc->in[0]);
    struct job job = {&m, call, call->prepared};
    sw_pool_run(call->pool, m.batch * m.channels, pool_item, &job);
}

const struct cpu_kernel sw_cpu_pool = {.name = "fast",
                                       .query = pool_query,
                                       .prepare = sw_cpu_prepare_vector,
                                       .release = sw_cpu_release_nothing,
                                       .run = pool_run};

/* Windows in order; each adds to the pixel that it took, or to all that it saw. */
static void pool_grad_item(void *ctx, int64_t item, int i_worker)
{
    const struct job *job = ctx;
    const struct image *m = job->m;
    const void *x = channel_of(m, job->call->in[1], item);
    const int64_t all = m->places[0] * m->places[1];
    float *sums = sums_of(job, i_worker), *window = sums + m->size[0] * m->size[1];
    for (int64_t place = 0; place < all; place++) {
        const int64_t row = place / m->places[1] * m->window.stride[0];
        const int64_t column = place % m->places[1] * m->window.stride[1];
        const float dy = value_at(m->dtype, job->call->in[0], item * all + place);
        if (m->window.mean) {
            for (int64_t k = 0; k < m->area; k++) {
                window[k] = dy / (float)m->area;
            }
            add_window(m, row, column, window, sums);
        } else {
            int64_t y, z;
            pooled(m, x, row * m->strides[2] + column * m->strides[3], &y, &z);
            sums[(row + y) * m->size[1] + column + z] += dy;
        }
    }
    put_sums(job, item, sums);
}

static void pool_grad_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                            struct sw_kernel_info *out)
{
    const struct image m = image_of(desc, &desc->in[1]);
    out->supported = sw_cpu_are_alike(desc, 1) && pools(desc);
    out->workspace_bytes = sums_bytes(&m) * (size_t)cpu_workers(dev->pool);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void pool_grad_run(const struct cpu_call *call)
{
    const struct image m = image_of(call->desc, &call->desc->in[1]);
    struct job job = {&m, call, call->prepared};
    sw_pool_run(call->pool, m.batch * m.channels, pool_grad_item, &job);
}

const struct cpu_kernel sw_cpu_pool_grad = {.name = "fast",
                                            .query = pool_grad_query,
                                            .prepare = sw_cpu_prepare_vector,
                                            .release = sw_cpu_release_nothing,
                                            .run = pool_grad_run};
