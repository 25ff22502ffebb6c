// SPDX-License-Identifier: Apache-2.0
// Steps from a picture to pixels. A model's file sets some of them. Others default by the class of
// processor that the file names; those defaults are here. An unknown key is refused unless it is
// off.
#include "picture/resize.h"

#include "json/json.h"

#include <math.h>
#include <string.h>

enum { MOST_SIDE = 16384 };

#define HALVES                                                                                     \
    {                                                                                              \
        0.5, 0.5, 0.5                                                                              \
    }
#define OF_CLIP                                                                                    \
    .mean = {0.48145466, 0.4578275, 0.40821073}, .std = {0.26862954, 0.26130258, 0.27577711}

/* Processors by the name before ImageProcessor or FeatureExtractor. The first is the default. */
static const struct kind {
    const char *name;
    bool square; /* a single number as size sets both sides, not the shorter one */
    struct sw_image_steps steps;
} kinds[] = {
    {"ViT",
     true,
     {true, 224, 224, 0, SW_RESAMPLE_BILINEAR, 0, 0, 255, .mean = HALVES, .std = HALVES}},
    {"DeiT",
     true,
     {true, 256, 256, 0, SW_RESAMPLE_BICUBIC, 224, 224, 255, .mean = HALVES, .std = HALVES}},
    {"Beit",
     true,
     {true, 224, 224, 0, SW_RESAMPLE_BICUBIC, 0, 0, 255, .mean = HALVES, .std = HALVES}},
    {"Siglip",
     false,
     {true, 224, 224, 0, SW_RESAMPLE_BICUBIC, 0, 0, 255, .mean = HALVES, .std = HALVES}},
    {"Bit", false, {true, 0, 0, 224, SW_RESAMPLE_BICUBIC, 224, 224, 255, OF_CLIP}},
    {"CLIP", false, {true, 0, 0, 224, SW_RESAMPLE_BICUBIC, 224, 224, 255, OF_CLIP}},
};

/* ---- which processor ---- */

static bool is_kind(const char *text, const char *name)
{
    static const char *const ends[] = {"ImageProcessor", "ImageProcessorFast", "ImageProcessorPil",
                                       "FeatureExtractor"};
    const size_t n = strlen(name);
    bool is = false;
    for (size_t i = 0; i < SW_LEN(ends) && strncmp(text, name, n) == 0; i++) {
        is = is || strcmp(text + n, ends[i]) == 0;
    }
    return is;
}

static sw_status find_kind(const struct sw_json_doc *doc, const struct sw_json *root,
                           const struct kind **out)
{
    const struct sw_json *said = sw_json_get(root, "image_processor_type");
    said = said ? said : sw_json_get(root, "feature_extractor_type");
    *out = &kinds[0];
    if (!said) {
        return SW_OK;
    }
    for (size_t i = 0; i < SW_LEN(kinds); i++) {
        if (said->type == SW_JSON_STRING && is_kind(said->string, kinds[i].name)) {
            *out = &kinds[i];
            return SW_OK;
        }
    }
    struct sw_str names = {0};
    for (size_t i = 0; i < SW_LEN(kinds); i++) {
        sw_str_printf(&names, "%s%s", i ? ", " : "", kinds[i].name);
    }
    const sw_status st =
        SW_FAIL(SW_E_UNSUP, "%s: \"%s\": %.60s is not built; image processors that are: %s",
                sw_json_name(doc), said->key,
                said->type == SW_JSON_STRING ? said->string : sw_json_type_name(said->type),
                sw_str_text(&names));
    sw_str_fini(&names);
    return st;
}

/* ---- keys ---- */

/* Known keys: those read below, and those that change no pixel of an RGB picture. */
static const char *const known[] = {
    "do_resize",
    "size",
    "default_to_square",
    "resample",
    "do_center_crop",
    "crop_size",
    "do_rescale",
    "rescale_factor",
    "do_normalize",
    "image_mean",
    "image_std",
    "do_convert_rgb",
    "image_processor_type",
    "feature_extractor_type",
    "processor_class",
    "_valid_processor_keys",
    "data_format",
    "input_data_format",
    "return_tensors",
    "device",
    "disable_grouping",
};

static sw_status check_keys(const struct sw_json_doc *doc, const struct sw_json *root)
{
    for (const struct sw_json *key = root->first; key; key = key->next) {
        size_t i = 0;
        while (i < SW_LEN(known) && strcmp(known[i], key->key) != 0) {
            i++;
        }
        const bool no = key->type == SW_JSON_NULL || (key->type == SW_JSON_BOOL && !key->boolean);
        if (i == SW_LEN(known) && !no) {
            return SW_FAIL(SW_E_UNSUP, "%s: \"%.60s\" is not built", sw_json_name(doc), key->key);
        }
    }
    return SW_OK;
}

/* NULL: the key is null or missing, so the default applies. */
static const struct sw_json *get(const struct sw_json *root, const char *key)
{
    const struct sw_json *value = sw_json_get(root, key);
    return value && value->type != SW_JSON_NULL ? value : NULL;
}

static sw_status get_switch(const struct sw_json_doc *doc, const struct sw_json *root,
                            const char *key, bool fallback, bool *out)
{
    *out = fallback;
    return get(root, key) ? sw_json_get_bool(doc, root, key, fallback, out) : SW_OK;
}

static sw_status fail_size(const struct sw_json_doc *doc, const struct sw_json *value)
{
    struct sw_str found = {0};
    sw_json_write(value, 0, &found);
    const sw_status st =
        SW_FAIL(SW_E_UNSUP,
                "%s: \"%s\": %.80s, wanted a number, [height, width], {\"height\", \"width\"}%s "
                "of 1 to %d",
                sw_json_name(doc), value->key, sw_str_text(&found),
                strcmp(value->key, "size") == 0 ? " or {\"shortest_edge\"}" : "", MOST_SIDE);
    sw_str_fini(&found);
    return st;
}

static bool is_side(const struct sw_json *value)
{
    return value && value->type == SW_JSON_INT && value->integer >= 1 &&
           value->integer <= MOST_SIDE;
}

/* Reads two sides. If `shortest` is not NULL, a size may also be that of the shorter side. */
static sw_status read_size(const struct sw_json_doc *doc, const struct sw_json *value, bool square,
                           int64_t *height, int64_t *width, int64_t *shortest)
{
    const struct sw_json *a = value, *b = value, *one = NULL;
    if (value->type == SW_JSON_ARRAY) {
        a = value->n_children == 2 ? value->first : NULL;
        b = value->last;
    } else if (value->type == SW_JSON_OBJECT) {
        a = get(value, "height");
        b = get(value, "width");
        one = shortest ? get(value, "shortest_edge") : NULL;
        int n_said = 0; /* none beside those that are read */
        for (const struct sw_json *key = value->first; key; key = key->next) {
            n_said += key->type != SW_JSON_NULL;
        }
        a = n_said == (one ? 1 : 2) ? a : NULL;
        one = n_said == 1 ? one : NULL;
    } else if (!square && shortest) {
        one = value;
    }
    if (is_side(one)) {
        *shortest = one->integer;
        *height = *width = 0;
        return SW_OK;
    }
    if (one || !is_side(a) || !is_side(b)) {
        return fail_size(doc, value);
    }
    *height = a->integer;
    *width = b->integer;
    if (shortest) {
        *shortest = 0;
    }
    return SW_OK;
}

static sw_status read_resizing(const struct sw_json_doc *doc, const struct sw_json *root,
                               bool square, struct sw_image_steps *s)
{
    const struct sw_json *size = get(root, "size"), *code = get(root, "resample");
    SW_TRY(get_switch(doc, root, "do_resize", s->resizes, &s->resizes));
    SW_TRY(get_switch(doc, root, "default_to_square", square, &square));
    if (!s->resizes) {
        return SW_OK;
    }
    if (size) {
        SW_TRY(read_size(doc, size, square, &s->height, &s->width, &s->shortest));
    }
    if (code && (code->type != SW_JSON_INT || !sw_resample_of_code(code->integer, &s->resample))) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: \"resample\": %s is not built; wanted 0 (nearest), 2 (bilinear) or 3 "
                       "(bicubic)",
                       sw_json_name(doc), code->raw ? code->raw : sw_json_type_name(code->type));
    }
    return SW_OK;
}

static sw_status read_crop(const struct sw_json_doc *doc, const struct sw_json *root,
                           struct sw_image_steps *s)
{
    const struct sw_json *size = get(root, "crop_size");
    bool crops;
    SW_TRY(get_switch(doc, root, "do_center_crop", s->crop_height > 0, &crops));
    if (crops && size) {
        return read_size(doc, size, true, &s->crop_height, &s->crop_width, NULL);
    }
    if (crops && s->crop_height == 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"do_center_crop\" wants \"crop_size\"",
                       sw_json_name(doc));
    }
    if (!crops) {
        s->crop_height = s->crop_width = 0;
    }
    return SW_OK;
}

static sw_status read_numbers(const struct sw_json_doc *doc, const struct sw_json *root,
                              const char *key, double least, double out[3])
{
    const struct sw_json *list = get(root, key);
    bool good = list && list->type == SW_JSON_ARRAY && list->n_children == 3;
    const struct sw_json *one = good ? list->first : NULL;
    for (int n = 0; one; one = one->next) {
        const bool number = one->type == SW_JSON_INT || one->type == SW_JSON_FLOAT;
        good = good && number && one->number > least && isfinite(one->number);
        out[n++] = one->number;
    }
    return good ? SW_OK
                : SW_FAIL(SW_E_FORMAT, "%s: \"%s\": wanted a list of three numbers%s",
                          sw_json_name(doc), key, least == 0 ? " above 0" : "");
}

/* Reads the scale. A factor of 1 / 255 becomes an exact division by 255. */
static sw_status read_scale(const struct sw_json_doc *doc, const struct sw_json *root,
                            struct sw_image_steps *s)
{
    const struct sw_json *factor = get(root, "rescale_factor");
    bool rescales, normalizes;
    SW_TRY(get_switch(doc, root, "do_rescale", true, &rescales));
    SW_TRY(get_switch(doc, root, "do_normalize", true, &normalizes));
    if (rescales && factor) {
        const bool number = factor->type == SW_JSON_INT || factor->type == SW_JSON_FLOAT;
        if (!number || !(factor->number > 1e-30 && factor->number < 1e30)) {
            return SW_FAIL(SW_E_FORMAT, "%s: \"rescale_factor\": %s, wanted a number above 0",
                           sw_json_name(doc), factor->raw ? factor->raw : "no number");
        }
        const double divisor = 1 / factor->number;
        s->divisor = fabs(divisor - 255) < 1e-4 ? 255 : divisor;
    }
    s->divisor = rescales ? s->divisor : 1;
    if (!normalizes) {
        for (int c = 0; c < 3; c++) {
            s->mean[c] = 0;
            s->std[c] = 1;
        }
        return SW_OK;
    }
    if (!get(root, "image_mean") && !get(root, "image_std")) {
        return SW_OK;
    }
    SW_TRY(read_numbers(doc, root, "image_mean", -INFINITY, s->mean));
    return read_numbers(doc, root, "image_std", 0, s->std);
}

/* ---- sizes ---- */

/* Size after resizing. */
static struct sw_image_size resized(const struct sw_image_steps *s, int64_t width, int64_t height)
{
    if (!s->resizes) {
        return (struct sw_image_size){height, width};
    }
    if (s->shortest == 0) {
        return (struct sw_image_size){s->height, s->width};
    }
    const int64_t less = sw_min_i64(width, height), more = sw_max_i64(width, height);
    const double longer = (double)(s->shortest * more) / (double)less; /* as Python divides */
    return width <= height ? (struct sw_image_size){(int64_t)longer, s->shortest}
                           : (struct sw_image_size){s->shortest, (int64_t)longer};
}

static sw_status check_model(const struct sw_json_doc *doc, const struct sw_image_steps *s,
                             struct sw_image_size model)
{
    const bool crops = s->crop_height > 0;
    const int64_t height = crops ? s->crop_height : s->height;
    const int64_t width = crops ? s->crop_width : s->width;
    if (!crops && s->resizes && s->shortest > 0 && model.height != model.width) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: \"size\": by \"shortest_edge\" alone pictures do not have the model's "
                       "%lld x %lld pixels",
                       sw_json_name(doc), (long long)model.height, (long long)model.width);
    }
    if ((crops || (s->resizes && s->shortest == 0)) &&
        (height != model.height || width != model.width)) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: \"%s\" makes pictures of %lld x %lld pixels, and the model reads %lld "
                       "x %lld",
                       sw_json_name(doc), crops ? "crop_size" : "size", (long long)height,
                       (long long)width, (long long)model.height, (long long)model.width);
    }
    return SW_OK;
}

sw_status sw_image_steps_check(const struct sw_image_steps *steps, const char *name, int64_t width,
                               int64_t height, struct sw_image_size model)
{
    const struct sw_image_size size = resized(steps, width, height);
    if (steps->resizes) {
        SW_TRY(sw_resize_check(name, width, height, size.width, size.height));
    }
    if (steps->crop_height == 0 && (size.height != model.height || size.width != model.width)) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: %lld x %lld pixels (height x width)%s, and the model reads %lld x %lld",
                       name, (long long)size.height, (long long)size.width,
                       steps->resizes ? " after resizing" : "", (long long)model.height,
                       (long long)model.width);
    }
    return SW_OK;
}

/* ---- reading ---- */

static sw_status read_steps(const struct sw_json_doc *doc, struct sw_image_size model,
                            struct sw_image_steps *out)
{
    const struct sw_json *root = sw_json_root((struct sw_json_doc *)(uintptr_t)doc);
    const struct kind *kind;
    if (root->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s: wanted an object", sw_json_name(doc));
    }
    SW_TRY(find_kind(doc, root, &kind));
    SW_TRY(check_keys(doc, root));
    struct sw_image_steps steps = kind->steps;
    SW_TRY(read_resizing(doc, root, kind->square, &steps));
    SW_TRY(read_crop(doc, root, &steps));
    SW_TRY(read_scale(doc, root, &steps));
    if (!get(root, "size") && steps.crop_height == 0 && steps.shortest == 0) {
        steps.height = model.height; /* the file has no other size */
        steps.width = model.width;
    }
    SW_TRY(check_model(doc, &steps, model));
    *out = steps;
    return SW_OK;
}

sw_status sw_image_steps_read(const char *path, struct sw_image_size model,
                              struct sw_image_steps *out)
{
    struct sw_json_doc *doc;
    if (!path) {
        *out = kinds[0].steps;
        out->height = model.height;
        out->width = model.width;
        return SW_OK;
    }
    SW_TRY(sw_json_read(path, SW_JSON_STRICT, &doc));
    const sw_status st = read_steps(doc, model, out);
    sw_json_close(doc);
    return st;
}

/* ---- applying the steps ---- */

/* Pixels outside the picture are black before mean and deviation apply. */
static void put_pixels(const struct sw_image_steps *s, const struct sw_picture *picture,
                       struct sw_image_size model, float *pixels)
{
    static const uint8_t black[3] = {0};
    float values[3][256];
    for (int c = 0; c < 3; c++) {
        for (int byte = 0; byte < 256; byte++) {
            values[c][byte] = (float)((byte / s->divisor - s->mean[c]) / s->std[c]);
        }
    }
    const int64_t top = (picture->height - model.height) >> 1; /* rounded down, also below 0 */
    const int64_t left = (picture->width - model.width) >> 1;
    for (int64_t y = 0; y < model.height; y++) {
        for (int64_t x = 0; x < model.width; x++) {
            const int64_t from_y = y + top, from_x = x + left;
            const bool inside =
                from_y >= 0 && from_y < picture->height && from_x >= 0 && from_x < picture->width;
            const uint8_t *rgb =
                inside ? picture->rgb + (from_y * picture->width + from_x) * 3 : black;
            for (int c = 0; c < 3; c++) {
                pixels[(c * model.height + y) * model.width + x] = values[c][rgb[c]];
            }
        }
    }
}

sw_status sw_image_steps_apply(const struct sw_image_steps *steps, const char *name,
                               const struct sw_picture *picture, struct sw_image_size model,
                               float *pixels)
{
    struct sw_picture other = {0};
    SW_TRY(sw_image_steps_check(steps, name, picture->width, picture->height, model));
    const struct sw_image_size size = resized(steps, picture->width, picture->height);
    if (size.width != picture->width || size.height != picture->height) {
        SW_TRY(sw_resize(name, picture, size.width, size.height, steps->resample, &other));
    }
    put_pixels(steps, other.rgb ? &other : picture, model, pixels);
    sw_picture_fini(&other);
    return SW_OK;
}

static void put_three(const double numbers[3], struct sw_str *out)
{
    sw_str_printf(out, "(%g %g %g)", numbers[0], numbers[1], numbers[2]);
}

void sw_image_steps_text(const struct sw_image_steps *steps, struct sw_str *out)
{
    const struct sw_image_steps *s = steps;
    if (s->resizes && s->shortest > 0) {
        sw_str_printf(out, "shorter side resized to %lld, ", (long long)s->shortest);
    } else if (s->resizes) {
        sw_str_printf(out, "resized to %lld x %lld, ", (long long)s->height, (long long)s->width);
    }
    if (s->resizes) {
        sw_str_printf(out, "%s; ", sw_resample_name(s->resample));
    }
    if (s->crop_height > 0) {
        sw_str_printf(out, "%lld x %lld from the middle; ", (long long)s->crop_height,
                      (long long)s->crop_width);
    }
    sw_str_printf(out, "(byte / %g - ", s->divisor);
    put_three(s->mean, out);
    sw_str_puts(out, ") / ");
    put_three(s->std, out);
}
