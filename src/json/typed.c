// SPDX-License-Identifier: Apache-2.0
// json/typed - members as C values, with messages that have file, position, key, and the wanted and
// found types.

#include "json/private.h"

#include <stdio.h>

const char *sw_json_type_name(enum sw_json_type type)
{
    static const char *const names[] = {
        [SW_JSON_NULL] = "null",       [SW_JSON_BOOL] = "a boolean",  [SW_JSON_INT] = "an integer",
        [SW_JSON_FLOAT] = "a number",  [SW_JSON_STRING] = "a string", [SW_JSON_ARRAY] = "an array",
        [SW_JSON_OBJECT] = "an object"};
    return names[type];
}

/* The member, or NULL if it is absent or null. */
static const struct sw_json *given(const struct sw_json *object, const char *key)
{
    const struct sw_json *member = sw_json_get(object, key);
    return member && member->type != SW_JSON_NULL ? member : NULL;
}

static sw_status wrong_type(const struct sw_json_doc *doc, const struct sw_json *member,
                            const char *wanted)
{
    char place[32] = "";
    if (member->line > 0) {
        snprintf(place, sizeof(place), ":%d:%d", member->line, member->column);
    }
    return SW_FAIL(SW_E_FORMAT, "%s%s: key \"%s\" must be %s, found %s%s%.60s", sw_json_name(doc),
                   place, member->key, wanted, sw_json_type_name(member->type),
                   member->raw ? " " : "", member->raw ? member->raw : "");
}

sw_status sw_json_get_i64(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, int64_t fallback, int64_t *out)
{
    const struct sw_json *member = given(object, key);
    if (member && member->type != SW_JSON_INT) {
        return wrong_type(doc, member, "an integer");
    }
    *out = member ? member->integer : fallback;
    return SW_OK;
}

sw_status sw_json_get_f64(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, double fallback, double *out)
{
    const struct sw_json *member = given(object, key);
    if (member && member->type != SW_JSON_INT && member->type != SW_JSON_FLOAT) {
        return wrong_type(doc, member, "a number");
    }
    *out = member ? member->number : fallback;
    return SW_OK;
}

sw_status sw_json_get_bool(const struct sw_json_doc *doc, const struct sw_json *object,
                           const char *key, bool fallback, bool *out)
{
    const struct sw_json *member = given(object, key);
    if (member && member->type != SW_JSON_BOOL) {
        return wrong_type(doc, member, "true or false");
    }
    *out = member ? member->boolean : fallback;
    return SW_OK;
}

sw_status sw_json_get_str(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, const char *fallback, const char **out)
{
    const struct sw_json *member = given(object, key);
    if (member && member->type != SW_JSON_STRING) {
        return wrong_type(doc, member, "a string");
    }
    *out = member ? member->string : fallback;
    return SW_OK;
}
