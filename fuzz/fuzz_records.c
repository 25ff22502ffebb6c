// SPDX-License-Identifier: Apache-2.0
// Any bytes as a table or as JSON of records: refused with the path, or objects whose fields are
// texts of UTF-8. The first byte chooses the format.
#include "data/record.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static sw_status look(void *ctx, const struct sw_json_doc *doc, const struct sw_json *record)
{
    const char *path = ctx;
    SW_ASSERT(record->type == SW_JSON_OBJECT);
    SW_ASSERT(strncmp(sw_json_name(doc), path, strlen(path)) == 0);
    for (const struct sw_json *field = record->first; field; field = field->next) {
        if (field->type == SW_JSON_STRING) {
            SW_ASSERT(sw_json_utf8_check(field->string, field->string_len) == field->string_len);
        }
    }
    return SW_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const paths[] = {"x.csv", "x.tsv", "x.json", "x.csv"};
    if (size < 1) {
        return 0;
    }
    const int which = data[0] & 3;
    const char *path = paths[which], *text = (const char *)data + 1;
    if (sw_records_parse(path, text, size - 1, which == 3, look, (void *)(uintptr_t)path) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), path, strlen(path)) == 0);
    }
    return 0;
}
