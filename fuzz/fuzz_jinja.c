// SPDX-License-Identifier: Apache-2.0
// Any bytes as a chat template: refused with a message that names it, or rendered twice to the same
// text, or failing with a kind of error, within the limits.
#include "chat/jinja.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char variables[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\" A b \\u00e9 \"},"
    "{\"role\":\"user\",\"content\":"
    "\"Hi\"},{\"role\":\"assistant\",\"content\":null}],\"tools\":[{\"type\":\"function\"}],"
    "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"n\":-3,\"x\":0.5}";

static void render_twice(const struct sw_jinja *jinja, const struct sw_json *root)
{
    struct sw_jinja_text first = {0}, again = {0};
    const sw_status st = sw_jinja_render(jinja, root, 0, &first);
    SW_ASSERT(sw_jinja_render(jinja, root, 0, &again) == st);
    SW_ASSERT(st >= 0 || (first.error != SW_JINJA_NONE && *sw_error_message()));
    SW_ASSERT(first.text.len == again.text.len && first.n_spans == again.n_spans);
    SW_ASSERT(first.text.len == 0 || memcmp(first.text.ptr, again.text.ptr, first.text.len) == 0);
    sw_jinja_text_fini(&first);
    sw_jinja_text_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_json_doc *doc;
    struct sw_jinja *jinja;
    if (sw_jinja_open("fuzz", size ? (const char *)data : "", size, &jinja) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), "fuzz:", 5) == 0);
        return 0;
    }
    SW_ASSERT(sw_json_parse("variables", variables, sizeof(variables) - 1, SW_JSON_STRICT, &doc) ==
              SW_OK);
    render_twice(jinja, sw_json_root(doc));
    sw_json_close(doc);
    sw_jinja_close(jinja);
    return 0;
}
