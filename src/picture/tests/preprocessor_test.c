// SPDX-License-Identifier: Apache-2.0
// Steps from pictures to pixels: what resizing keeps, crops, and what is refused by its key.
#include "picture/resize.h"
#include "support/files.h"
#include "support/test.h"

enum { W = 13, H = 7 };

static struct sw_picture noise(int64_t width, int64_t height)
{
    struct sw_picture p = {width, height, sw_alloc("test", (size_t)(width * height) * 3)};
    assert_non_null(p.rgb);
    for (int64_t i = 0; i < width * height * 3; i++) {
        p.rgb[i] = (uint8_t)(i * i * 31 + i * 7);
    }
    return p;
}

static const enum sw_resample filters[] = {SW_RESAMPLE_NEAREST, SW_RESAMPLE_BILINEAR,
                                           SW_RESAMPLE_BICUBIC};

/* The same size is the same picture, one colour stays it, and a picture that is mirrored first is
 * the mirrored result. */
static void resizing_keeps_what_it_must(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{W, H}, {1, 1}, {5, 3}, {40, 29}, {13, 1}, {3, 50}};
    struct sw_picture in = noise(W, H), out, mirror = noise(W, H), turned;
    for (int64_t i = 0; i < W * H; i++) {
        memcpy(mirror.rgb + 3 * i, in.rgb + 3 * (i / W * W + W - 1 - i % W), 3);
    }
    for (size_t f = 0; f < SW_LEN(filters); f++) {
        for (size_t i = 0; i < SW_LEN(sizes); i++) {
            const int64_t w = sizes[i][0], h = sizes[i][1];
            assert_int_equal(sw_resize("x", &in, w, h, filters[f], &out), SW_OK);
            assert_int_equal(sw_resize("x", &mirror, w, h, filters[f], &turned), SW_OK);
            for (int64_t k = 0; k < w * h && filters[f] != SW_RESAMPLE_NEAREST; k++) {
                assert_memory_equal(turned.rgb + 3 * k, out.rgb + 3 * (k / w * w + w - 1 - k % w),
                                    3);
            }
            if (i == 0) {
                assert_memory_equal(out.rgb, in.rgb, W * H * 3);
            }
            sw_picture_fini(&out);
            sw_picture_fini(&turned);
            memset(mirror.rgb, 77, W * H * 3);
            assert_int_equal(sw_resize("x", &mirror, w, h, filters[f], &out), SW_OK);
            for (int64_t k = 0; k < w * h * 3; k++) {
                assert_int_equal(out.rgb[k], 77);
            }
            sw_picture_fini(&out);
            for (int64_t k = 0; k < W * H; k++) {
                memcpy(mirror.rgb + 3 * k, in.rgb + 3 * (k / W * W + W - 1 - k % W), 3);
            }
        }
    }
    sw_picture_fini(&in);
    sw_picture_fini(&mirror);
}

/* A reduction by a whole number with the triangle filter is a mean that all pixels have a part
 * in: without antialiasing most would have none. */
static void a_reduction_looks_at_every_pixel(void **state)
{
    (void)state;
    struct sw_picture in = noise(64, 1), out;
    memset(in.rgb, 0, 64 * 3);
    for (int x = 16; x < 48; x++) { /* away from the ends, where weights are others */
        in.rgb[3 * x] = 255;
        int64_t sum = 0;
        assert_int_equal(sw_resize("x", &in, 8, 1, SW_RESAMPLE_BILINEAR, &out), SW_OK);
        for (int k = 0; k < 8; k++) {
            sum += out.rgb[3 * k];
        }
        assert_in_range(sum, 255 / 8 - 2, 255 / 8 + 2);
        sw_picture_fini(&out);
        in.rgb[3 * x] = 0;
    }
    sw_picture_fini(&in);
}

static sw_status read_steps(const char *text, int64_t height, int64_t width,
                            struct sw_image_steps *out)
{
    const struct sw_image_size model = {height, width};
    return sw_image_steps_read(text ? sw_test_write_text(0, "p.json", text) : NULL, model, out);
}

/* A crop takes the middle, and black where there is nothing. */
static void a_crop_is_of_the_middle(void **state)
{
    (void)state;
    static const int64_t sides[][2] = {{H, W}, {4, 6}, {5, 5}, {10, 16}, {1, 30}};
    struct sw_picture in = noise(W, H);
    for (size_t i = 0; i < SW_LEN(sides); i++) {
        const struct sw_image_size size = {sides[i][0], sides[i][1]};
        float pixels[16 * 30 * 3];
        char text[160];
        struct sw_image_steps steps;
        snprintf(text, sizeof text,
                 "{\"do_resize\": false, \"do_center_crop\": true, \"crop_size\": [%d, %d], "
                 "\"do_rescale\": false, \"do_normalize\": false}",
                 (int)size.height, (int)size.width);
        assert_int_equal(read_steps(text, size.height, size.width, &steps), SW_OK);
        assert_int_equal(sw_image_steps_apply(&steps, "x", &in, size, pixels), SW_OK);
        const int top = (int)floor((H - (double)size.height) / 2);
        const int left = (int)floor((W - (double)size.width) / 2);
        for (int64_t k = 0; k < size.height * size.width; k++) {
            const int64_t y = k / size.width + top, x = k % size.width + left;
            const bool inside = y >= 0 && y < H && x >= 0 && x < W;
            for (int c = 0; c < 3; c++) {
                assert_true(pixels[c * size.height * size.width + k] ==
                            (inside ? in.rgb[(y * W + x) * 3 + c] : 0));
            }
        }
    }
    sw_picture_fini(&in);
}

static void what_is_not_built_is_refused_by_its_key(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } of[] = {
        {"{\"do_resize\": true, \"size\": 224, \"do_pad\": true}", "\"do_pad\" is not built"},
        {"{\"size\": 224, \"crop_pct\": 0.9}", "\"crop_pct\" is not built"},
        {"{\"size\": 224, \"do_flip_channel_order\": true}", "\"do_flip_channel_order\""},
        {"{\"size\": 224, \"rescale_offset\": true}", "\"rescale_offset\" is not built"},
        {"{\"size\": 224, \"auto_map\": {}}", "\"auto_map\" is not built"},
        {"{\"image_processor_type\": \"ConvNextImageProcessor\"}",
         "\"image_processor_type\": ConvNextImageProcessor is not built; image processors that "
         "are: ViT, DeiT"},
        {"{\"feature_extractor_type\": \"ViTHybridFeatureExtractor\"}",
         "ViTHybridFeatureExtractor"},
        {"{\"resample\": 1}", "\"resample\": 1 is not built"},
        {"{\"resample\": \"bilinear\"}", "\"resample\": bilinear"},
        {"{\"size\": {\"longest_edge\": 224}}", "\"size\": {\"longest_edge\":224}, wanted"},
        {"{\"size\": {\"shortest_edge\": 224, \"longest_edge\": 300}}", "\"size\": {"},
        {"{\"size\": 0}", "\"size\": 0, wanted a number"},
        {"{\"size\": [224]}", "\"size\": [224], wanted"},
        {"{\"size\": 224.5}", "\"size\": 224.5"},
        {"{\"size\": 223}", "\"size\" makes pictures of 223 x 223 pixels, and the model reads 224"},
        {"{\"size\": 224, \"do_center_crop\": true}", "\"do_center_crop\" wants \"crop_size\""},
        {"{\"size\": 256, \"do_center_crop\": true, \"crop_size\": 200}", "\"crop_size\" makes"},
        {"{\"do_center_crop\": true, \"crop_size\": {\"shortest_edge\": 224}}", "\"crop_size\": {"},
        {"{\"rescale_factor\": 0}", "\"rescale_factor\": 0, wanted a number above 0"},
        {"{\"image_mean\": [0, 0, 0]}", "\"image_std\": wanted a list of three numbers"},
        {"{\"image_mean\": 0.5, \"image_std\": 0.5}", "\"image_mean\": wanted a list"},
        {"{\"image_mean\": [0, 0, 0], \"image_std\": [0, 1, 1]}", "three numbers above 0"},
        {"{\"do_resize\": \"yes\"}", "do_resize"},
        {"[]", "wanted an object"},
    };
    for (size_t i = 0; i < SW_LEN(of); i++) {
        struct sw_image_steps steps;
        const sw_status st = read_steps(of[i].text, 224, 224, &steps);
        if (st >= 0 || !strstr(sw_error_message(), of[i].why) ||
            !strstr(sw_error_message(), "p.json")) {
            fail_msg("%s: \"%s\" without \"%s\"", of[i].text, st < 0 ? sw_error_message() : "",
                     of[i].why);
        }
    }
}

/* Keys that are null, or say no, leave what the class of the processor does. */
static void a_class_has_its_defaults(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } of[] = {
        {NULL, "resized to 224 x 224, bilinear; (byte / 255 - (0.5 0.5 0.5)) / (0.5 0.5 0.5)"},
        {"{\"size\": null, \"do_pad\": null, \"do_reduce_labels\": false}",
         "resized to 224 x 224, bilinear; (byte / 255 - (0.5 0.5 0.5)) / (0.5 0.5 0.5)"},
        {"{\"image_processor_type\": \"DeiTImageProcessorFast\"}",
         "resized to 256 x 256, bicubic; 224 x 224 from the middle; (byte / 255 - (0.5 0.5 0.5)) / "
         "(0.5 0.5 0.5)"},
        {"{\"image_processor_type\": \"BitImageProcessor\", \"size\": 300}",
         "shorter side resized to 300, bicubic; 224 x 224 from the middle; (byte / 255 - (0.481455 "
         "0.457827 0.408211)) / (0.26863 0.261303 0.275777)"},
        {"{\"do_resize\": false, \"do_normalize\": false}", "(byte / 255 - (0 0 0)) / (1 1 1)"},
    };
    for (size_t i = 0; i < SW_LEN(of); i++) {
        struct sw_image_steps steps;
        struct sw_str text = {0};
        if (read_steps(of[i].text, 224, 224, &steps) < 0) {
            fail_msg("%s", sw_error_message());
        }
        sw_image_steps_text(&steps, &text);
        assert_string_equal(sw_str_text(&text), of[i].want);
        sw_str_fini(&text);
    }
}

/* A picture whose steps go through too much memory, or end at another size. */
static void pictures_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct sw_image_size model = {224, 224};
    struct sw_image_steps steps;
    assert_int_equal(read_steps(NULL, 224, 224, &steps), SW_OK);
    assert_int_equal(sw_image_steps_check(&steps, "a.png", 3000, 2000, model), SW_OK);
    assert_int_equal(sw_image_steps_check(&steps, "a.png", 2, 1000000, model), SW_OK);
    assert_int_equal(
        read_steps("{\"image_processor_type\": \"CLIPImageProcessor\"}", 224, 224, &steps), SW_OK);
    assert_int_equal(sw_image_steps_check(&steps, "a.png", 1, 100000, model), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(),
                           "a.png: to resize 1 x 100000 pixels to 224 x 22400000 takes more"));
    assert_int_equal(read_steps("{\"do_resize\": false}", 224, 224, &steps), SW_OK);
    assert_int_equal(sw_image_steps_check(&steps, "a.png", 224, 224, model), SW_OK);
    assert_int_equal(sw_image_steps_check(&steps, "a.png", 224, 225, model), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "a.png: 225 x 224 pixels (height x width), and"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(resizing_keeps_what_it_must),
    cmocka_unit_test(a_reduction_looks_at_every_pixel),
    cmocka_unit_test(a_crop_is_of_the_middle),
    cmocka_unit_test(what_is_not_built_is_refused_by_its_key),
    cmocka_unit_test(a_class_has_its_defaults),
    cmocka_unit_test(pictures_that_do_not_fit_are_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
