// SPDX-License-Identifier: Apache-2.0
// Any bytes as a plan in JSON, compared with itself and with a plan that is one: refused with a
// message that names it, or the same as itself; and the report as JSON reads again.
#include "json/json.h"
#include "show/show.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char known[] =
    "{\"fingerprint\":\"1\",\"device_bytes\":64,\"host_bytes\":0,\"disk_bytes\":0,"
    "\"parameter_bytes\":4,\"state_bytes\":0,\"gradient_bytes\":0,\"persistent_bytes\":4,"
    "\"disk_slots\":1,\"tiled_parameters\":0,\"tiles\":0,\"largest_tile_bytes\":0,\"packs\":0,"
    "\"packed_tensors\":0,\"programs\":[{\"kind\":\"train\",\"instructions\":1,\"micro_batches\":1,"
    "\"flops\":1,\"transient_bytes\":4,\"peak_live_bytes\":4,\"peak_instruction\":0,"
    "\"instruction_list\":[{\"verb\":\"kernel\",\"number\":0,\"name\":\"add\","
    "\"queue\":\"compute\",\"segment\":\"forward\",\"operands\":[null]}]}],"
    "\"persistent\":[{\"name\":\"w\",\"role\":\"parameter\",\"tier\":\"device\","
    "\"offset\":0,\"bytes\":4}]}";

static sw_status compare(const struct sw_plan_source source[2], bool *same)
{
    struct sw_str text = {0};
    struct sw_json_doc *doc = NULL;
    const sw_status st = sw_plan_diff(source, true, same, &text);
    if (st == SW_OK) {
        SW_ASSERT(sw_json_parse("report", text.ptr, text.len, SW_JSON_STRICT, &doc) == SW_OK);
        sw_json_close(doc);
        sw_str_clear(&text);
        SW_ASSERT(sw_plan_diff(source, false, same, &text) == SW_OK);
    } else {
        SW_ASSERT(st == SW_E_FORMAT && strstr(sw_error_message(), "input") != NULL);
    }
    sw_str_fini(&text);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sw_plan_source input = {"input", (const char *)data, size};
    const struct sw_plan_source other = {"known", known, sizeof known - 1};
    const struct sw_plan_source twice[2] = {input, input}, both[2] = {input, other};
    bool same = false;
    const sw_status st = compare(twice, &same);
    SW_ASSERT(st < 0 || same);
    SW_ASSERT(compare(both, &same) == st);
    return 0;
}
