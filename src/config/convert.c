// SPDX-License-Identifier: Apache-2.0
// From a JSON value to the value of a row: type, range, choice; the canonical value goes into the
// effective document and into the struct.
//
// Two sets of rules, as in DeepSpeed. Its typed blocks convert: "yes", 1 and 1.0 are true, "2" and
// true are integers. The blocks that it reads by hand keep whatever they find; here they are
// strict.
#include "config/private.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- scalars; each returns NULL, or why not ---- */

const char *sw_config_to_bool(const struct sw_json *node, bool model, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on", "1", "t", "y"};
    static const char *const no[] = {"false", "no", "off", "0", "f", "n"};
    if (node->type == SW_JSON_BOOL) {
        *out = node->boolean;
        return NULL;
    }
    if (model && (node->type == SW_JSON_INT || node->type == SW_JSON_FLOAT) &&
        (node->number == 0 || node->number == 1)) {
        *out = node->number == 1;
        return NULL;
    }
    for (size_t i = 0; model && node->type == SW_JSON_STRING && i < SW_LEN(yes); i++) {
        if (strcasecmp(node->string, yes[i]) == 0 || strcasecmp(node->string, no[i]) == 0) {
            *out = strcasecmp(node->string, yes[i]) == 0;
            return NULL;
        }
    }
    return "is not a boolean";
}

/* "  1_000 ", "7", "8.0": digits with single underscores between them, and no fraction. */
static bool digits(const char *text, int64_t *out)
{
    char clean[32];
    size_t n = 0;
    while (isspace((unsigned char)*text)) {
        text++;
    }
    if (*text == '-' || *text == '+') {
        clean[n++] = *text++;
    }
    const size_t first = n;
    for (; isdigit((unsigned char)*text) || (*text == '_' && n > first && text[-1] != '_');
         text++) {
        if (*text != '_') {
            if (n + 1 >= sizeof clean) {
                return false;
            }
            clean[n++] = *text;
        }
    }
    if (n == first || text[-1] == '_') {
        return false;
    }
    if (*text == '.') {
        do {
            text++;
        } while (*text == '0');
    }
    while (isspace((unsigned char)*text)) {
        text++;
    }
    clean[n] = '\0';
    errno = 0;
    *out = strtoll(clean, NULL, 10);
    return *text == '\0' && errno == 0;
}

static const char *to_int(const struct sw_json *node, bool model, unsigned flags, int64_t *out)
{
    switch (node->type) {
    case SW_JSON_INT:
        *out = node->integer;
        return NULL;
    case SW_JSON_FLOAT:
        if (node->number != floor(node->number)) {
            return "is not a whole number";
        }
        if (fabs(node->number) >= 0x1p63) {
            return "is an integer too large for 64 bits";
        }
        *out = (int64_t)node->number;
        return NULL;
    case SW_JSON_BOOL:
        if (flags & FIELD_NO_BOOL) {
            return "is a boolean, which is not a number here";
        }
        *out = node->boolean;
        return model ? NULL : "is not an integer";
    case SW_JSON_STRING:
        return model && digits(node->string, out) ? NULL : "is not an integer";
    default:
        return "is not an integer";
    }
}

static const char *to_number(const struct sw_json *node, bool model, unsigned flags, double *out)
{
    char *end;
    switch (node->type) {
    case SW_JSON_INT:
    case SW_JSON_FLOAT:
        *out = node->number;
        break;
    case SW_JSON_BOOL:
        if (flags & FIELD_NO_BOOL) {
            return "is a boolean, which is not a number here";
        }
        *out = node->boolean;
        if (!model) {
            return "is not a number";
        }
        break;
    case SW_JSON_STRING:
        *out = strtod(node->string, &end);
        if (!model || end == node->string || *end != '\0') {
            return "is not a number";
        }
        break;
    default:
        return "is not a number";
    }
    *out += 0.0; /* -0 is 0 */
    return isfinite(*out) ? NULL : "is not finite";
}

/* 512, "512", "512M", "1.5 GB" */
static const char *to_bytes(const struct sw_json *node, int64_t *out)
{
    if (node->type == SW_JSON_STRING) {
        return sw_parse_bytes(node->string, out);
    }
    const bool number = node->type == SW_JSON_INT || node->type == SW_JSON_FLOAT;
    const char *why = number ? to_int(node, false, 0, out) : sw_parse_bytes("", out);
    return why && !strstr(why, "64 bits") ? sw_parse_bytes("", out) : why;
}

/* ---- choices ---- */

size_t sw_config_choice_len(const char *choice)
{
    return strcspn(choice, "|");
}

/* Is text one of the names of a choice "bf16|bfloat16"? */
static bool is_choice(const char *choice, const char *text, bool any_case)
{
    for (const char *name = choice;; name++) {
        const size_t len = sw_config_choice_len(name);
        if (strlen(text) == len &&
            (any_case ? strncasecmp(name, text, len) : strncmp(name, text, len)) == 0) {
            return true;
        }
        name += len;
        if (*name == '\0') {
            return false;
        }
    }
}

/* Index in the list, or -1. */
static int choice_index(const char *const *choices, const char *text, bool any_case)
{
    for (int i = 0; choices[i]; i++) {
        if (is_choice(choices[i], text, any_case)) {
            return i;
        }
    }
    return -1;
}

static const char *const dtype_names[] = {"fp32|float32|float|torch.float32",
                                          "fp16|float16|half|torch.float16",
                                          "bf16|bfloat16|torch.bfloat16", NULL};
static const int dtype_values[] = {SW_F32, SW_F16, SW_BF16};

static void list_choices(const char *const *choices, char *buf, size_t cap)
{
    size_t len = 0;
    buf[0] = '\0';
    for (int i = 0; choices[i] && len < cap; i++) {
        const int n = snprintf(buf + len, cap - len, "%s\"%.*s\"", i ? ", " : "",
                               (int)sw_config_choice_len(choices[i]), choices[i]);
        len += n > 0 ? (size_t)n : 0;
    }
}

/* ---- the value as a person reads it ---- */

static const char *shown(const struct sw_json *node, char *buf, size_t cap)
{
    switch (node->type) {
    case SW_JSON_STRING:
        snprintf(buf, cap, "\"%.60s\"", node->string);
        break;
    case SW_JSON_BOOL:
        snprintf(buf, cap, "%s", node->boolean ? "true" : "false");
        break;
    case SW_JSON_NULL:
        snprintf(buf, cap, "null");
        break;
    case SW_JSON_INT:
        snprintf(buf, cap, "%lld", (long long)node->integer);
        break;
    case SW_JSON_FLOAT:
        snprintf(buf, cap, "%.17g", node->number);
        if (strtod(buf, NULL) == node->number) {
            for (int digits10 = 1; digits10 < 17; digits10++) {
                snprintf(buf, cap, "%.*g", digits10, node->number);
                if (strtod(buf, NULL) == node->number) {
                    break;
                }
            }
        }
        break;
    default:
        snprintf(buf, cap, "%s", sw_json_type_name(node->type));
        break;
    }
    return buf;
}

/* ---- rows ---- */

struct job {
    struct sw_config *config;
    const struct config_field *field;
    bool model;
    const char *path;
    const struct sw_json *node;
    struct sw_json *parent;
    struct sw_json *value; /* the result */
};

static void *member(const struct job *job)
{
    return job->field->offset ? (char *)job->config + job->field->offset : NULL;
}

static sw_status refuse(const struct job *job, const char *why)
{
    char text[128];
    return sw_config_refuse(
        job->config->impl, job->node->line, job->path, "%s %s%s",
        shown(job->node, text, sizeof text), why,
        sw_config_says_auto(job->node) ? "; \"auto\" is not supported for this key" : "");
}

static sw_status put_null(struct job *job)
{
    const struct config_field *field = job->field;
    job->value = sw_json_put(job->config->impl->effective, job->parent, field->key, SW_JSON_NULL);
    void *at = member(job);
    if (!at) {
        return SW_OK;
    }
    switch (field->type) {
    case FIELD_BOOL:
        *(bool *)at = false;
        break;
    case FIELD_INT:
    case FIELD_BYTES:
    case FIELD_WORD:
        *(int64_t *)at = (int64_t)field->null_as;
        break;
    case FIELD_NUMBER:
        *(double *)at = field->null_as;
        break;
    case FIELD_CHOICE:
    case FIELD_DTYPE:
        *(int *)at = (int)field->null_as;
        break;
    case FIELD_STRING:
        *(const char **)at = NULL;
        break;
    case FIELD_STRINGS:
        *(struct sw_config_strings *)at = (struct sw_config_strings){0};
        break;
    case FIELD_NUMBERS:
        *(struct sw_config_numbers *)at = (struct sw_config_numbers){0};
        break;
    case FIELD_JSON:
        break;
    }
    return SW_OK;
}

/* Whether nothing reads the key, so that any value may stay. */
static bool is_idle(const struct config_field *field)
{
    return field->status == STATUS_NEEDLESS && field->offset == NOWHERE;
}

static sw_status put_auto(struct job *job)
{
    job->value =
        sw_json_put_str(job->config->impl->effective, job->parent, job->field->key, "auto");
    if (member(job) && job->field->flags & FIELD_AUTO) {
        *(int64_t *)member(job) = SW_CONFIG_AUTO;
    }
    return SW_OK;
}

/* NULL when the number is in the row's range. */
static const char *out_of_range(const struct config_field *field, double value)
{
    if (value < field->lo || (field->flags & FIELD_ABOVE && value == field->lo)) {
        return "is too small";
    }
    return value > field->hi ? "is too large" : NULL;
}

static sw_status check_range(const struct job *job, double value)
{
    const struct config_field *field = job->field;
    const char *why = out_of_range(field, value);
    if (!why) {
        return SW_OK;
    }
    char text[160];
    if (field->flags & FIELD_CHOICE_INT) {
        snprintf(text, sizeof text, "is not one of the allowed values (%.0f to %.0f)", field->lo,
                 field->hi);
    } else if (value < field->lo && field->lo == 0) {
        snprintf(text, sizeof text, "%s; wanted at least 0", why);
    } else if (value <= field->lo) {
        snprintf(text, sizeof text, "%s; wanted %s%g", why,
                 field->flags & FIELD_ABOVE ? "more than " : "at least ", field->lo);
    } else {
        snprintf(text, sizeof text, "%s; wanted at most %g", why, field->hi);
    }
    return refuse(job, text);
}

static sw_status put_int(struct job *job)
{
    int64_t value = 0;
    const char *why = job->field->type == FIELD_BYTES
                          ? to_bytes(job->node, &value)
                          : to_int(job->node, job->model, job->field->flags, &value);
    if (why) {
        return refuse(job, job->field->flags & FIELD_CHOICE_INT ? "is not one of the allowed values"
                                                                : why);
    }
    SW_TRY(check_range(job, (double)value));
    job->value = sw_json_put_i64(job->config->impl->effective, job->parent, job->field->key, value);
    if (member(job)) {
        *(int64_t *)member(job) = value;
    }
    return SW_OK;
}

static sw_status put_choice(struct job *job)
{
    const struct config_field *field = job->field;
    const bool dtype = field->type == FIELD_DTYPE;
    const char *const *choices = dtype ? dtype_names : field->choices;
    const int i = job->node->type == SW_JSON_STRING
                      ? choice_index(choices, job->node->string, field->flags & FIELD_ANY_CASE)
                      : -1;
    if (i < 0 && field->type == FIELD_WORD && job->node->type != SW_JSON_STRING) {
        return put_int(job);
    }
    if (i < 0) {
        char list[200], text[400];
        list_choices(choices, list, sizeof list);
        const char *hint = field->status == STATUS_BUILT && field->why ? field->why : NULL;
        snprintf(text, sizeof text, "is not one of the allowed values (%s%s)%s%s", list,
                 !(field->flags & FIELD_AUTO) ? ""
                 : *list                      ? ", \"auto\""
                                              : "\"auto\"",
                 hint ? "; " : "", hint ? hint : "");
        return refuse(job, text);
    }
    const char *name =
        sw_arena_strndup(&job->config->impl->arena, choices[i], sw_config_choice_len(choices[i]));
    SW_TRY_ALLOC(name, "the configuration");
    job->value = sw_json_put_str(job->config->impl->effective, job->parent, field->key, name);
    if (member(job) && field->type == FIELD_WORD) {
        *(int64_t *)member(job) = i;
    } else if (member(job)) {
        *(int *)member(job) = dtype ? dtype_values[i] : i;
    }
    return SW_OK;
}

static sw_status put_strings(struct job *job)
{
    struct sw_config_impl *impl = job->config->impl;
    const struct sw_json *node = job->node;
    const bool list = node->type == SW_JSON_ARRAY;
    const int n = list ? (int)node->n_children : 1;
    const char **items = sw_arena_array(&impl->arena, (size_t)n + 1, sizeof *items);
    SW_TRY_ALLOC(items, "the configuration");
    const struct sw_json *item = list ? node->first : node;
    for (int i = 0; i < n; i++, item = item->next) {
        if (item->type != SW_JSON_STRING) {
            return refuse(job, "is not a string or a list of strings");
        }
        items[i] = sw_arena_strndup(&impl->arena, item->string, item->string_len);
        SW_TRY_ALLOC(items[i], "the configuration");
    }
    job->value = sw_json_put_copy(impl->effective, job->parent, job->field->key, node);
    if (member(job)) {
        *(struct sw_config_strings *)member(job) = (struct sw_config_strings){items, n};
    }
    return SW_OK;
}

static sw_status put_numbers(struct job *job)
{
    struct sw_config_impl *impl = job->config->impl;
    const struct sw_json *node = job->node;
    const bool list = node->type == SW_JSON_ARRAY;
    const int n = list ? (int)node->n_children : 1;
    double *items = sw_arena_array(&impl->arena, (size_t)n + 1, sizeof *items);
    struct sw_json *array =
        list ? sw_json_put(impl->effective, job->parent, job->field->key, SW_JSON_ARRAY) : NULL;
    if (!items || (list && !array)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the configuration");
    }
    const struct sw_json *item = list ? node->first : node;
    for (int i = 0; i < n; i++, item = item->next) {
        const char *why = to_number(item, job->model, job->field->flags, &items[i]);
        if (why) {
            return refuse(job, list ? "is not a list of numbers" : why);
        }
        SW_TRY(check_range(job, items[i]));
        job->value = sw_json_put_f64(impl->effective, list ? array : job->parent,
                                     list ? NULL : job->field->key, items[i]);
        SW_TRY_ALLOC(job->value, "the configuration");
    }
    job->value = list ? array : job->value;
    if (member(job)) {
        *(struct sw_config_numbers *)member(job) = (struct sw_config_numbers){items, n, list};
    }
    return SW_OK;
}

static sw_status put_string(struct job *job)
{
    struct sw_config_impl *impl = job->config->impl;
    if (job->node->type != SW_JSON_STRING) {
        return refuse(job, "is not a string");
    }
    const char *copy = sw_arena_strndup(&impl->arena, job->node->string, job->node->string_len);
    SW_TRY_ALLOC(copy, "the configuration");
    job->value = sw_json_put_copy(impl->effective, job->parent, job->field->key, job->node);
    if (member(job)) {
        *(const char **)member(job) = copy;
    }
    return SW_OK;
}

static sw_status put_bool(struct job *job)
{
    bool value = false;
    const char *why = sw_config_to_bool(job->node, job->model, &value);
    if (why) {
        return refuse(job, why);
    }
    job->value =
        sw_json_put_bool(job->config->impl->effective, job->parent, job->field->key, value);
    if (member(job)) {
        *(bool *)member(job) = value;
    }
    return SW_OK;
}

static sw_status put_number(struct job *job)
{
    double value = 0;
    const char *why = to_number(job->node, job->model, job->field->flags, &value);
    if (why) {
        return refuse(job, why);
    }
    SW_TRY(check_range(job, value));
    job->value = sw_json_put_f64(job->config->impl->effective, job->parent, job->field->key, value);
    if (member(job)) {
        *(double *)member(job) = value;
    }
    return SW_OK;
}

static sw_status put_value(struct job *job)
{
    switch (job->field->type) {
    case FIELD_BOOL:
        return put_bool(job);
    case FIELD_INT:
    case FIELD_BYTES:
        return put_int(job);
    case FIELD_NUMBER:
        return put_number(job);
    case FIELD_STRING:
        return put_string(job);
    case FIELD_CHOICE:
    case FIELD_DTYPE:
    case FIELD_WORD:
        return put_choice(job);
    case FIELD_STRINGS:
        return put_strings(job);
    case FIELD_NUMBERS:
        return put_numbers(job);
    case FIELD_JSON:
        break;
    }
    job->value =
        sw_json_put_copy(job->config->impl->effective, job->parent, job->field->key, job->node);
    return SW_OK;
}

sw_status sw_config_convert(struct sw_config *config, const struct config_field *field, bool model,
                            const char *path, const struct sw_json *node, struct sw_json *parent,
                            struct sw_json **out)
{
    struct job job = {config, field, model, path, node, parent, NULL};
    if (node->type == SW_JSON_NULL && (field->flags & FIELD_NULL || field->type == FIELD_JSON)) {
        SW_TRY(put_null(&job));
    } else if ((field->flags & FIELD_AUTO || is_idle(field)) && sw_config_says_auto(node)) {
        SW_TRY(put_auto(&job));
    } else {
        SW_TRY(put_value(&job));
    }
    SW_TRY_ALLOC(job.value, "the configuration");
    *out = job.value;
    return SW_OK;
}
