// SPDX-License-Identifier: Apache-2.0
// Resizing. Weights are fixed-point numbers with 22 fractional bits, so that sums are exact and
// results are the same on all machines.
#include "picture/resize.h"

#include "picture/format.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 3, FRACTION_BITS = 22 };

static const struct {
    const char *name;
    int64_t code;
} filters[] = {[SW_RESAMPLE_NEAREST] = {"nearest", 0},
               [SW_RESAMPLE_BILINEAR] = {"bilinear", 2},
               [SW_RESAMPLE_BICUBIC] = {"bicubic", 3}};

const char *sw_resample_name(enum sw_resample resample)
{
    return filters[resample].name;
}

bool sw_resample_of_code(int64_t code, enum sw_resample *out)
{
    for (size_t i = 0; i < SW_LEN(filters); i++) {
        if (filters[i].code == code) {
            *out = (enum sw_resample)i;
            return true;
        }
    }
    return false;
}

/* Whether rows are resized before columns; this changes how sums are rounded. Pillow 13 chooses so.
 * Earlier versions always begin with the columns. */
static bool rows_first(int64_t width, int64_t height, int64_t new_width, int64_t new_height)
{
    return height > new_height && height - new_height > 2 * (width - new_width);
}

sw_status sw_resize_check(const char *name, int64_t width, int64_t height, int64_t new_width,
                          int64_t new_height)
{
    const int64_t most = SW_PICTURE_MOST_PIXELS;
    const bool first = rows_first(width, height, new_width, new_height);
    const int64_t w = first ? width : new_width, h = first ? new_height : height;
    if (w <= most / h && new_width <= most / new_height) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_FORMAT,
                   "%s: to resize %lld x %lld pixels to %lld x %lld takes more than %lld of them",
                   name, (long long)width, (long long)height, (long long)new_width,
                   (long long)new_height, (long long)most);
}

/* ---- weights along one side ---- */

/* Output i is the sum over k of weights[i * most + k] times input first[i] + k. */
struct weights {
    int64_t most;
    int64_t *first, *n; /* [size] */
    int32_t *weights;   /* [size, most] */
};

static void weights_fini(struct weights *w)
{
    sw_free(w->first);
    sw_free(w->n);
    sw_free(w->weights);
}

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Catmull and Rom's, Keys' a = -1/2. */
static double cubic(double x)
{
    x = fabs(x);
    if (x < 1) {
        return (1.5 * x - 2.5) * x * x + 1;
    }
    return x < 2 ? -0.5 * (((x - 5) * x + 8) * x - 4) : 0;
}

static int32_t fixed(double weight)
{
    const double scaled = weight * (1 << FRACTION_BITS);
    return (int32_t)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

/* Computes the weights of output i: inputs within the filter's radius, scaled to a sum of 1. */
static void weigh(struct weights *w, int64_t i, int64_t from, double scale, bool is_cubic,
                  double *scratch)
{
    const double stretch = scale < 1 ? 1 : scale, reach = (is_cubic ? 2 : 1) * stretch;
    const double centre = ((double)i + 0.5) * scale;
    const int64_t first = sw_max_i64((int64_t)(centre - reach + 0.5), 0);
    const int64_t n = sw_min_i64((int64_t)(centre + reach + 0.5), from) - first;
    double sum = 0;
    for (int64_t k = 0; k < n; k++) {
        const double x = ((double)(k + first) - centre + 0.5) * (1 / stretch);
        scratch[k] = is_cubic ? cubic(x) : triangle(x);
        sum += scratch[k];
    }
    for (int64_t k = 0; k < n; k++) {
        w->weights[i * w->most + k] = fixed(sum != 0 ? scratch[k] / sum : scratch[k]);
    }
    w->first[i] = first;
    w->n[i] = n;
}

static sw_status weights_init(struct weights *w, int64_t from, int64_t to, bool is_cubic)
{
    const double scale = (double)from / (double)to;
    const double reach = (is_cubic ? 2 : 1) * (scale < 1 ? 1 : scale);
    w->most = (int64_t)ceil(reach) * 2 + 1;
    w->first = sw_alloc_zero("pictures", (size_t)to, sizeof *w->first);
    w->n = sw_alloc_zero("pictures", (size_t)to, sizeof *w->n);
    w->weights = sw_alloc_zero("pictures", (size_t)(to * w->most), sizeof *w->weights);
    double *scratch = sw_alloc("pictures", (size_t)w->most * sizeof *scratch);
    const bool good = w->first && w->n && w->weights && scratch;
    for (int64_t i = 0; good && i < to; i++) {
        weigh(w, i, from, scale, is_cubic, scratch);
    }
    sw_free(scratch);
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the weights of a filter");
}

static uint8_t to_byte(int32_t sum)
{
    const int32_t value = sum >> FRACTION_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Computes one pixel. Inputs are `step` bytes apart. */
static void add_up(const struct weights *w, int64_t i, const uint8_t *in, int64_t step,
                   uint8_t out[CHANNELS])
{
    const int32_t *weights = w->weights + i * w->most;
    int32_t sum[CHANNELS] = {1 << (FRACTION_BITS - 1), 1 << (FRACTION_BITS - 1),
                             1 << (FRACTION_BITS - 1)};
    in += w->first[i] * step;
    for (int64_t k = 0; k < w->n[i]; k++, in += step) {
        for (int c = 0; c < CHANNELS; c++) {
            sum[c] += weights[k] * in[c]; /* below 2^31: absolute weights add up to less than 2 */
        }
    }
    for (int c = 0; c < CHANNELS; c++) {
        out[c] = to_byte(sum[c]);
    }
}

static sw_status reserve(const char *name, int64_t width, int64_t height, struct sw_picture *out)
{
    uint8_t *rgb = sw_alloc("pictures", (size_t)(width * height) * CHANNELS);
    SW_TRY_ALLOC(rgb, name);
    *out = (struct sw_picture){width, height, rgb};
    return SW_OK;
}

static void stretch_columns(const struct weights *w, const struct sw_picture *in,
                            struct sw_picture *out)
{
    for (int64_t y = 0; y < in->height; y++) {
        for (int64_t x = 0; x < out->width; x++) {
            add_up(w, x, in->rgb + y * in->width * CHANNELS, CHANNELS,
                   out->rgb + (y * out->width + x) * CHANNELS);
        }
    }
}

static void stretch_rows(const struct weights *w, const struct sw_picture *in,
                         struct sw_picture *out)
{
    for (int64_t y = 0; y < out->height; y++) {
        for (int64_t x = 0; x < in->width; x++) {
            add_up(w, y, in->rgb + x * CHANNELS, in->width * CHANNELS,
                   out->rgb + (y * in->width + x) * CHANNELS);
        }
    }
}

/* ---- all of it ---- */

/* Centres are accumulated, as in Pillow. This decides the case of a centre on an edge. */
static sw_status take_nearest(const char *name, const struct sw_picture *in, struct sw_picture *out)
{
    const double step_x = (double)in->width / (double)out->width;
    const double step_y = (double)in->height / (double)out->height;
    int64_t *columns = sw_alloc("pictures", (size_t)out->width * sizeof *columns);
    SW_TRY_ALLOC(columns, name);
    double at = step_x * 0.5;
    for (int64_t x = 0; x < out->width; x++, at += step_x) {
        columns[x] = sw_min_i64((int64_t)at, in->width - 1);
    }
    at = step_y * 0.5;
    for (int64_t y = 0; y < out->height; y++, at += step_y) {
        const uint8_t *row =
            in->rgb + sw_min_i64((int64_t)at, in->height - 1) * in->width * CHANNELS;
        for (int64_t x = 0; x < out->width; x++) {
            memcpy(out->rgb + (y * out->width + x) * CHANNELS, row + columns[x] * CHANNELS,
                   CHANNELS);
        }
    }
    sw_free(columns);
    return SW_OK;
}

static sw_status filter(const char *name, const struct sw_picture *in, bool is_cubic,
                        struct sw_picture *out)
{
    sw_status st;
    struct weights columns = {0}, rows = {0};
    struct sw_picture between = {0};
    SW_TRY_OR(done, weights_init(&columns, in->width, out->width, is_cubic));
    SW_TRY_OR(done, weights_init(&rows, in->height, out->height, is_cubic));
    if (rows_first(in->width, in->height, out->width, out->height)) {
        SW_TRY_OR(done, reserve(name, in->width, out->height, &between));
        stretch_rows(&rows, in, &between);
        stretch_columns(&columns, &between, out);
    } else {
        SW_TRY_OR(done, reserve(name, out->width, in->height, &between));
        stretch_columns(&columns, in, &between);
        stretch_rows(&rows, &between, out);
    }
done:
    sw_picture_fini(&between);
    weights_fini(&columns);
    weights_fini(&rows);
    return st;
}

sw_status sw_resize(const char *name, const struct sw_picture *in, int64_t width, int64_t height,
                    enum sw_resample resample, struct sw_picture *out)
{
    struct sw_picture made;
    SW_TRY(sw_resize_check(name, in->width, in->height, width, height));
    SW_TRY(reserve(name, width, height, &made));
    const sw_status st = resample == SW_RESAMPLE_NEAREST
                             ? take_nearest(name, in, &made)
                             : filter(name, in, resample == SW_RESAMPLE_BICUBIC, &made);
    if (st < 0) {
        sw_picture_fini(&made);
        return st;
    }
    *out = made;
    return SW_OK;
}
