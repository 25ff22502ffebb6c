// SPDX-License-Identifier: Apache-2.0
// Small models for the tests of this room, and their exports.
#include "onnx/tests/models.h"

#include <string.h>

#include "json/json.h"
#include "support/test.h"

struct sw_model *test_model(const char *config)
{
    struct sw_json_doc *doc = NULL;
    struct sw_model *model = NULL;
    if (sw_json_parse("config.json", config, strlen(config), SW_JSON_STRICT, &doc) < 0 ||
        sw_model_open(doc, NULL, &model) < 0) {
        fail_msg("%s", sw_error_message());
    }
    sw_json_close(doc);
    return model;
}

/* Eighths between -1 and 1, which every dtype has. */
float test_value(const char *name, int64_t i)
{
    const uint64_t h = sw_hash_str(SW_HASH_INIT, name) + (uint64_t)i * 7;
    return (float)((int64_t)(h % 17) - 8) / 8;
}

static sw_status fetch(void *ctx, const char *name, const struct sw_shape *shape, int64_t first,
                       int64_t n, float *out)
{
    (void)ctx;
    (void)shape;
    for (int64_t i = 0; i < n; i++) {
        out[i] = test_value(name, first + i);
    }
    return SW_OK;
}

sw_status test_export_model(const struct sw_model *model, const char *folder, int opset,
                            enum sw_dtype dtype, int64_t inside_bytes, struct sw_onnx_summary *out)
{
    const struct sw_onnx_export_options options = {.model = model,
                                                   .values = {.fetch = fetch},
                                                   .folder = folder,
                                                   .dtype = dtype,
                                                   .opset = opset,
                                                   .inside_bytes = inside_bytes};
    SW_TRY(sw_mkdirs(folder));
    return sw_onnx_export(&options, out);
}

sw_status test_export(const char *config, const char *folder, int opset, enum sw_dtype dtype,
                      int64_t inside_bytes, struct sw_onnx_summary *out)
{
    struct sw_model *model = test_model(config);
    const sw_status st = test_export_model(model, folder, opset, dtype, inside_bytes, out);
    sw_model_close(model);
    return st;
}
