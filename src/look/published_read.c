// SPDX-License-Identifier: Apache-2.0
// Reads share/published.json. Every key is a row of a table; one that is unknown, or has a value of
// another type, is refused with its line.
#include "look/published.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "json/json.h"

enum row_type {
    TEXT,
    WHOLE,
    COUNT,
    NUMBER,
    ABOVE,
    SHARE,
    FLAG,
    OTHER,
    DTYPE,
    TIER,
    MEMORY,
    REPEATED
};
struct row {
    const char *key;
    enum row_type type;
    size_t at;
    bool is_required;
};

/* The words of a row that has one of some. */
static const char *const row_words[][4] = {[DTYPE] = {"fp16", "bf16"},
                                           [TIER] = {"device", "host", "nvme"},
                                           [MEMORY] = {"device", "host"},
                                           [REPEATED] = {"blocks", "attention core"}};

enum { WORDS_CAP = 96 };

static const char *const judges[] = {"judged", "range", "fits", "informative", NULL};

static sw_status refuse(const struct pub_file *f, int line, const char *key, const char *wanted,
                        const char *found)
{
    return SW_FAIL(SW_E_CONFIG, "%s:%d: %s: wanted %s, got %.80s", f->path, line, key, wanted,
                   found);
}

/* The file's name without its folders: what is printed is the same on every machine. */
static const char *name_of(const struct pub_file *f)
{
    const char *slash = strrchr(f->path, '/');
    return slash ? slash + 1 : f->path;
}

static sw_status check_key(const struct pub_file *f, const struct sw_json *child,
                           const struct row *rows, size_t n)
{
    enum { MOST = 24 };
    const char *names[MOST];
    for (size_t i = 0; i < n && i < MOST; i++) {
        names[i] = rows[i].key;
        if (strcmp(rows[i].key, child->key) == 0) {
            return SW_OK;
        }
    }
    const char *nearest = sw_nearest(child->key, names, n);
    return SW_FAIL(SW_E_CONFIG, "%s:%d: unknown key \"%.60s\"%s", f->path, child->key_line,
                   child->key, sw_hint(nearest).text);
}

/* list: the words, for a message */
static bool is_word(const char *const *of, const struct sw_json *value, char list[WORDS_CAP])
{
    int len = 0;
    for (int i = 0; of[i]; i++) {
        if (value->type == SW_JSON_STRING && strcmp(value->string, of[i]) == 0) {
            return true;
        }
        len += snprintf(list + len, (size_t)(WORDS_CAP - len), "%s\"%s\"",
                        i == 0      ? ""
                        : of[i + 1] ? ", "
                                    : " or ",
                        of[i]);
    }
    return false;
}

static sw_status take_value(const struct pub_file *f, const struct row *row,
                            const struct sw_json *value, char *to)
{
    const bool is_number = value->type == SW_JSON_INT || value->type == SW_JSON_FLOAT;
    void *at = to + row->at;
    const char *wanted = NULL;
    char list[WORDS_CAP];
    switch (row->type) {
    case TEXT:
        wanted = value->type == SW_JSON_STRING && value->string_len > 0 ? NULL : "a text";
        *(const char **)at = value->string;
        break;
    case DTYPE:
    case TIER:
    case MEMORY:
    case REPEATED:
        wanted = is_word(row_words[row->type], value, list) ? NULL : list;
        *(const char **)at = value->string;
        break;
    case WHOLE:
        wanted = value->type == SW_JSON_INT && value->integer >= 0 ? NULL : "a whole number";
        *(int64_t *)at = value->integer;
        break;
    case COUNT:
        wanted =
            value->type == SW_JSON_INT && value->integer >= 1 ? NULL : "a whole number above 0";
        *(int64_t *)at = value->integer;
        break;
    case NUMBER:
        wanted = is_number && value->number >= 0 ? NULL : "a number of at least 0";
        *(double *)at = value->number;
        break;
    case ABOVE:
        wanted = is_number && value->number > 0 ? NULL : "a number above 0";
        *(double *)at = value->number;
        break;
    case SHARE:
        wanted = is_number && value->number > 0 && value->number <= 1
                     ? NULL
                     : "a number above 0 and at most 1";
        *(double *)at = value->number;
        break;
    case FLAG:
        wanted = value->type == SW_JSON_BOOL ? NULL : "true or false";
        *(bool *)at = value->boolean;
        break;
    case OTHER:
        break;
    }
    return wanted ? refuse(f, value->line, row->key, wanted,
                           is_number                       ? value->raw
                           : value->type == SW_JSON_STRING ? value->string
                                                           : sw_json_type_name(value->type))
                  : SW_OK;
}

/* Fills a struct from an object. null is as if the key were not there. */
static sw_status take_object(const struct pub_file *f, const struct sw_json *object,
                             const struct row *rows, size_t n, void *to)
{
    if (object->type != SW_JSON_OBJECT) {
        return refuse(f, object->line, object->key ? object->key : "this", "an object",
                      sw_json_type_name(object->type));
    }
    for (const struct sw_json *child = object->first; child; child = child->next) {
        SW_TRY(check_key(f, child, rows, n));
    }
    for (size_t i = 0; i < n; i++) {
        const struct sw_json *value = sw_json_get(object, rows[i].key);
        if (value && value->type != SW_JSON_NULL) {
            SW_TRY(take_value(f, &rows[i], value, to));
        } else if (rows[i].is_required) {
            return SW_FAIL(SW_E_CONFIG, "%s:%d: %s: is required", f->path, object->line,
                           rows[i].key);
        }
    }
    return SW_OK;
}

/* ---- accountings and groups ---- */

static sw_status take_accounting(const struct pub_file *f, const struct sw_json *object,
                                 struct pub_accounting *out)
{
    static const struct row rows[] = {
        {"about", TEXT, offsetof(struct pub_accounting, about), true},
        {"exchange", OTHER, 0, true},
        {"update_read", NUMBER, offsetof(struct pub_accounting, is.update_read), true},
        {"update_written", NUMBER, offsetof(struct pub_accounting, is.update_written), true},
        {"moved", NUMBER, offsetof(struct pub_accounting, is.moved), true},
        {"exchanges_overlap", FLAG, offsetof(struct pub_accounting, is.exchanges_overlap), true},
        {"parameters_overlap", FLAG, offsetof(struct pub_accounting, is.parameters_overlap), true},
        {"updates_overlap", FLAG, offsetof(struct pub_accounting, is.updates_overlap), true},
        {"reads_overlap", FLAG, offsetof(struct pub_accounting, is.reads_overlap), true},
        {"as_planned", FLAG, offsetof(struct pub_accounting, is.as_planned), false},
        {"whole_blocks", FLAG, offsetof(struct pub_accounting, is.whole_blocks), false},
        {"keeps_logits", FLAG, offsetof(struct pub_accounting, is.keeps_logits), false},
        {"scores_forward", NUMBER, offsetof(struct pub_accounting, is.scores_forward), false},
        {"scores_backward", NUMBER, offsetof(struct pub_accounting, is.scores_backward), false}};
    SW_TRY(take_object(f, object, rows, SW_LEN(rows), out));
    const struct sw_json *by = sw_json_get(object, "exchange");
    const char *word = by->type == SW_JSON_STRING ? by->string : sw_json_type_name(by->type);
    out->is.name = object->key;
    out->is.rings = strcmp(word, "ring") == 0;
    return out->is.rings || strcmp(word, "direct") == 0
               ? SW_OK
               : refuse(f, by->line, "exchange", "\"direct\" or \"ring\"", word);
}

sw_status sw_published_accounting(const struct pub_file *f, const char *name,
                                  const struct sw_accounting **out)
{
    struct sw_str known = {0};
    *out = NULL;
    for (int i = 0; i < f->n_accountings; i++) {
        if (strcmp(f->accountings[i].is.name, name) == 0) {
            *out = &f->accountings[i].is;
            sw_str_fini(&known);
            return SW_OK;
        }
        sw_str_printf(&known, ", %s", f->accountings[i].is.name);
    }
    const sw_status st = strcmp(name, "ours") == 0
                             ? SW_OK
                             : SW_FAIL(SW_E_ARG, "no accounting \"%.60s\"; wanted one of ours%s",
                                       name, sw_str_text(&known));
    sw_str_fini(&known);
    return st;
}

/* Only these numbers may be fitted. */
static sw_status take_fitted(const struct pub_file *f, const struct sw_json *object,
                             struct pub_fitted *out)
{
    static const struct row rows[] = {
        {"sustained_share", SHARE, offsetof(struct pub_fitted, sustained), false},
        {"reached_share", SHARE, offsetof(struct pub_fitted, reached), false},
        {"tokens", NUMBER, offsetof(struct pub_fitted, tokens), false}};
    return object ? take_object(f, object, rows, SW_LEN(rows), out) : SW_OK;
}

static sw_status take_formula(const struct pub_file *f, const struct sw_json *object,
                              struct pub_formula *out)
{
    static const struct row rows[] = {
        {"about", TEXT, offsetof(struct pub_formula, about), true},
        {"tflops", NUMBER, offsetof(struct pub_formula, tflops), true},
        {"disk_bytes", NUMBER, offsetof(struct pub_formula, disk_bytes), false},
        {"disk_gb_s", NUMBER, offsetof(struct pub_formula, disk_gb_s), false},
        {"network_bytes", NUMBER, offsetof(struct pub_formula, network_bytes), false},
        {"network_gb_s", NUMBER, offsetof(struct pub_formula, network_gb_s), false}};
    if (!object) {
        return SW_OK;
    }
    SW_TRY(take_object(f, object, rows, SW_LEN(rows), out));
    const bool is_whole = out->tflops > 0 && (out->disk_bytes > 0) == (out->disk_gb_s > 0) &&
                          (out->network_bytes > 0) == (out->network_gb_s > 0);
    return is_whole ? SW_OK
                    : refuse(f, object->line, "formula",
                             "tflops above 0, and bytes with their rate", "others");
}

/* The accounting that a value names. */
static sw_status take_name(const struct pub_file *f, const struct sw_json *by,
                           const struct sw_accounting **out)
{
    return by->type == SW_JSON_STRING && sw_published_accounting(f, by->string, out) >= 0
               ? SW_OK
               : refuse(f, by->line, by->key, "\"ours\" or an accounting of this file",
                        by->type == SW_JSON_STRING ? by->string : sw_json_type_name(by->type));
}

static sw_status take_group(const struct pub_file *f, const struct sw_json *object,
                            struct pub_group *out)
{
    static const struct row rows[] = {{"about", TEXT, offsetof(struct pub_group, about), true},
                                      {"accounting", OTHER, 0, true},
                                      {"pipelines", OTHER, 0, false},
                                      {"fitted", OTHER, 0, false},
                                      {"formula", OTHER, 0, false},
                                      {"median", NUMBER, offsetof(struct pub_group, median), false},
                                      {"worst", NUMBER, offsetof(struct pub_group, worst), false}};
    SW_TRY(take_object(f, object, rows, SW_LEN(rows), out));
    SW_TRY(take_fitted(f, sw_json_get(object, "fitted"), &out->fitted));
    SW_TRY(take_formula(f, sw_json_get(object, "formula"), &out->formula));
    out->name = object->key;
    SW_TRY(take_name(f, sw_json_get(object, "accounting"), &out->accounting));
    const struct sw_json *pipelines = sw_json_get(object, "pipelines");
    return pipelines ? take_name(f, pipelines, &out->pipelines) : SW_OK;
}

/* ---- runs ---- */

/* Numbers above 0: one, or [least, most]; none where the key is not there. What is no such value is
 * refused. */
static sw_status take_range(const struct pub_file *f, const struct sw_json *object, const char *key,
                            double out[2])
{
    const struct sw_json *value = sw_json_get(object, key), *ends[2] = {value, value};
    if (!value || value->type == SW_JSON_NULL) {
        return SW_OK;
    }
    if (value->type == SW_JSON_ARRAY && value->n_children == 2) {
        ends[0] = value->first;
        ends[1] = value->last;
    }
    for (int k = 0; k < 2; k++) {
        const bool is_number = ends[k]->type == SW_JSON_INT || ends[k]->type == SW_JSON_FLOAT;
        if (!is_number || ends[k]->number <= 0 || ends[1]->number < ends[0]->number) {
            return refuse(f, ends[k]->line, key, "a number above 0, or [least, most]",
                          is_number ? ends[k]->raw : sw_json_type_name(ends[k]->type));
        }
        out[k] = ends[k]->number;
    }
    return SW_OK;
}

static sw_status take_model(const struct pub_file *f, const struct sw_json *object,
                            struct pub_model *out)
{
    static const struct row rows[] = {
        {"layers", WHOLE, offsetof(struct pub_model, layers), false},
        {"hidden", WHOLE, offsetof(struct pub_model, hidden), false},
        {"heads", WHOLE, offsetof(struct pub_model, heads), false},
        {"seq_len", WHOLE, offsetof(struct pub_model, seq_len), false},
        {"vocab", WHOLE, offsetof(struct pub_model, vocab), false},
        {"parameters", OTHER, 0, false}};
    double sizes[2] = {0};
    SW_TRY(take_object(f, object, rows, SW_LEN(rows), out));
    SW_TRY(take_range(f, object, "parameters", sizes));
    out->parameters = sizes[0];
    out->largest = sizes[1] > sizes[0] ? sizes[1] : 0;
    return SW_OK;
}

static sw_status take_setup(const struct pub_file *f, const struct sw_json *object,
                            struct pub_setup *out)
{
    static const struct row rows[] = {
        {"dtype", DTYPE, offsetof(struct pub_setup, dtype), false},
        {"stage", WHOLE, offsetof(struct pub_setup, stage), false},
        {"tensor", WHOLE, offsetof(struct pub_setup, tensor), false},
        {"pipe", WHOLE, offsetof(struct pub_setup, pipe), false},
        {"states", TIER, offsetof(struct pub_setup, states), false},
        {"parameters", TIER, offsetof(struct pub_setup, parameters), false},
        {"checkpoints", MEMORY, offsetof(struct pub_setup, checkpoints), false},
        {"recompute", REPEATED, offsetof(struct pub_setup, recompute), false},
        {"rows", NUMBER, offsetof(struct pub_setup, rows), false},
        {"micro_batches", WHOLE, offsetof(struct pub_setup, micro_batches), false},
        {"micro_batch", WHOLE, offsetof(struct pub_setup, micro_batch), false},
        {"global_batch", WHOLE, offsetof(struct pub_setup, global_batch), false},
        {"drives", WHOLE, offsetof(struct pub_setup, drives), false},
        {"chunks", WHOLE, offsetof(struct pub_setup, chunks), false},
        {"prefetch", WHOLE, offsetof(struct pub_setup, prefetch), false},
        {"tile_bytes", WHOLE, offsetof(struct pub_setup, tile_bytes), false},
        {"vertical", FLAG, offsetof(struct pub_setup, vertical), false},
        {"next_forward", FLAG, offsetof(struct pub_setup, next_forward), false},
        {"next_forward_share", SHARE, offsetof(struct pub_setup, late_share), false},
        {"in_backward", FLAG, offsetof(struct pub_setup, in_backward), false},
        {"sequence_parallel", FLAG, offsetof(struct pub_setup, sequence_parallel), false}};
    static const struct {
        const char *key;
        enum pub_unknown is;
    } nulls[] = {
        {"rows", PUB_BATCH}, {"stage", PUB_STAGE}, {"states", PUB_PLACE}, {"tensor", PUB_MESH}};
    SW_TRY(take_object(f, object, rows, SW_LEN(rows), out));
    for (size_t i = 0; i < SW_LEN(nulls); i++) {
        const struct sw_json *value = sw_json_get(object, nulls[i].key);
        if (value) {
            out->unknown &= ~(unsigned)nulls[i].is;
            out->unknown |= value->type == SW_JSON_NULL ? nulls[i].is : 0U;
        }
    }
    return SW_OK;
}

/* Index of a text among words; -1 = none. */
static int word_of(const struct sw_json *value, const char *const *words)
{
    for (int i = 0; words[i]; i++) {
        if (value->type == SW_JSON_STRING && strcmp(value->string, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

static sw_status take_words(const struct pub_file *f, const struct sw_json *object,
                            struct pub_run *out)
{
    static const char *const counts[] = {"gpt", "8P", NULL};
    const struct sw_json *group = sw_json_get(object, "group");
    const struct sw_json *judge = sw_json_get(object, "judge");
    const struct sw_json *flops = sw_json_get(object, "flops");
    const int count = word_of(flops, counts);
    for (int i = 0; i < f->n_groups && group->type == SW_JSON_STRING; i++) {
        out->group = strcmp(f->groups[i].name, group->string) == 0 ? &f->groups[i] : out->group;
    }
    out->judge = word_of(judge, judges);
    out->by_parameters = count == 1;
    if (!out->group) {
        return refuse(f, group->line, "group", "a group of this file",
                      group->type == SW_JSON_STRING ? group->string : "something else");
    }
    if (out->judge < 0) {
        return refuse(f, judge->line, "judge", "\"judged\", \"range\", \"fits\" or \"informative\"",
                      judge->type == SW_JSON_STRING ? judge->string : "something else");
    }
    return count >= 0 ? SW_OK
                      : refuse(f, flops->line, "flops", "\"gpt\" or \"8P\"",
                               flops->type == SW_JSON_STRING ? flops->string : "something else");
}

static sw_status take_run(const struct pub_file *f, const struct sw_json *object,
                          struct pub_run *out)
{
    static const struct row rows[] = {
        {"id", TEXT, offsetof(struct pub_run, id), true},
        {"group", OTHER, 0, true},
        {"cluster", TEXT, offsetof(struct pub_run, cluster), true},
        {"devices", COUNT, offsetof(struct pub_run, devices), true},
        {"nodes", COUNT, offsetof(struct pub_run, nodes), true},
        {"model", OTHER, 0, true},
        {"setup", OTHER, 0, true},
        {"ours", OTHER, 0, false},
        {"tflops", OTHER, 0, false},
        {"says", TEXT, offsetof(struct pub_run, says), false},
        {"flops", OTHER, 0, true},
        {"judge", OTHER, 0, true},
        {"tolerance", NUMBER, offsetof(struct pub_run, tolerance), false},
        {"reading", TEXT, offsetof(struct pub_run, reading), true},
        {"source", TEXT, offsetof(struct pub_run, source), true},
        {"note", TEXT, offsetof(struct pub_run, note), false}};
    out->tolerance = 0.05;
    out->file = name_of(f);
    out->line = object->line;
    SW_TRY(take_object(f, object, rows, SW_LEN(rows), out));
    SW_TRY(take_words(f, object, out));
    SW_TRY(take_model(f, sw_json_get(object, "model"), &out->model));
    SW_TRY(take_setup(f, sw_json_get(object, "setup"), &out->setup));
    out->ours = out->setup;
    const struct sw_json *ours = sw_json_get(object, "ours");
    SW_TRY(ours ? take_setup(f, ours, &out->ours) : SW_OK);
    SW_TRY(take_range(f, object, "tflops", out->tflops));
    const bool needs_tflops = out->judge == PUB_JUDGED || out->judge == PUB_RANGE;
    return !needs_tflops || out->tflops[0] > 0
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG, "%s:%d: tflops: a judged run needs them", f->path, out->line);
}

/* ---- capacities ---- */

static sw_status take_rule(const struct pub_file *f, const struct sw_json *object,
                           struct pub_capacity *out)
{
    static const char *const rules[] = {"states", "space", "devices", "layers", "layer", NULL};
    static const struct row rows[] = {
        {"rule", OTHER, 0, true},
        {"parameters", NUMBER, offsetof(struct pub_capacity, by.parameters), false},
        {"gb", NUMBER, offsetof(struct pub_capacity, by.gb), false},
        {"bytes", NUMBER, offsetof(struct pub_capacity, by.bytes), false},
        {"ranks", WHOLE, offsetof(struct pub_capacity, by.ranks), false},
        {"stage", WHOLE, offsetof(struct pub_capacity, by.stage), false},
        {"nodes", WHOLE, offsetof(struct pub_capacity, by.nodes), false},
        {"layers", WHOLE, offsetof(struct pub_capacity, by.layers), false},
        {"hidden", WHOLE, offsetof(struct pub_capacity, by.hidden), false},
        {"vocab", WHOLE, offsetof(struct pub_capacity, by.vocab), false},
        {"seq_len", WHOLE, offsetof(struct pub_capacity, by.seq_len), false}};
    if (!object) {
        return SW_OK;
    }
    SW_TRY(take_object(f, object, rows, SW_LEN(rows), out));
    const struct sw_json *rule = sw_json_get(object, "rule");
    out->rule = (enum pub_rule)(word_of(rule, rules) + 1);
    if (out->rule == PUB_NO_RULE) {
        return refuse(f, rule->line, "rule",
                      "\"states\", \"space\", \"devices\", \"layers\" or \"layer\"",
                      rule->type == SW_JSON_STRING ? rule->string : "something else");
    }
    return sw_published_by_bytes(out) > 0
               ? SW_OK
               : refuse(f, object->line, "by", "the numbers that the rule needs, above 0",
                        "others");
}

/* The plan of ours for a capacity, if it has a cluster. */
static sw_status take_plan(const struct pub_file *f, const struct sw_json *object,
                           struct pub_capacity *out)
{
    const struct sw_json *model = sw_json_get(object, "model");
    const struct sw_json *setup = sw_json_get(object, "setup");
    if (!out->plan.cluster) {
        return SW_OK;
    }
    if (!model || !setup || out->plan.devices == 0 || out->plan.nodes == 0) {
        return SW_FAIL(SW_E_CONFIG, "%s:%d: a cluster needs model, setup, devices and nodes",
                       f->path, object->line);
    }
    out->plan.id = out->id;
    out->plan.file = name_of(f);
    out->plan.line = object->line;
    SW_TRY(take_model(f, model, &out->plan.model));
    return take_setup(f, setup, &out->plan.setup);
}

static sw_status take_capacity(const struct pub_file *f, const struct sw_json *object,
                               struct pub_capacity *out)
{
    static const struct row rows[] = {
        {"id", TEXT, offsetof(struct pub_capacity, id), true},
        {"what", TEXT, offsetof(struct pub_capacity, what), true},
        {"published", ABOVE, offsetof(struct pub_capacity, published), true},
        {"unit", TEXT, offsetof(struct pub_capacity, unit), true},
        {"judge", OTHER, 0, true},
        {"tolerance", NUMBER, offsetof(struct pub_capacity, tolerance), false},
        {"by", OTHER, 0, false},
        {"cluster", TEXT, offsetof(struct pub_capacity, plan.cluster), false},
        {"devices", COUNT, offsetof(struct pub_capacity, plan.devices), false},
        {"nodes", COUNT, offsetof(struct pub_capacity, plan.nodes), false},
        {"model", OTHER, 0, false},
        {"setup", OTHER, 0, false},
        {"most", FLAG, offsetof(struct pub_capacity, most), false},
        {"source", TEXT, offsetof(struct pub_capacity, source), true},
        {"note", TEXT, offsetof(struct pub_capacity, note), false}};
    out->tolerance = 0.05;
    SW_TRY(take_object(f, object, rows, SW_LEN(rows), out));
    const struct sw_json *judge = sw_json_get(object, "judge");
    out->judge = word_of(judge, judges);
    if (out->judge < 0) {
        return refuse(f, judge->line, "judge", "\"judged\", \"range\", \"fits\" or \"informative\"",
                      judge->type == SW_JSON_STRING ? judge->string : "something else");
    }
    SW_TRY(take_rule(f, sw_json_get(object, "by"), out));
    SW_TRY(take_plan(f, object, out));
    const bool needs = out->judge == PUB_FITS ? out->plan.cluster != NULL : out->rule > 0;
    return needs ? SW_OK
                 : SW_FAIL(SW_E_CONFIG, "%s:%d: %s: what judges it is missing", f->path,
                           object->line, out->judge == PUB_FITS ? "cluster" : "by");
}

/* ---- the file ---- */

/* Allocates the elements of a list or an object. */
static sw_status room_for(struct pub_file *f, const struct sw_json *list, enum sw_json_type type,
                          const char *key, size_t bytes, void *out)
{
    if (!list || list->type != type) {
        return refuse(f, list ? list->line : 1, key, type == SW_JSON_ARRAY ? "a list" : "an object",
                      list ? sw_json_type_name(list->type) : "nothing");
    }
    void *items = sw_arena_array(&f->arena, (size_t)list->n_children + 1, bytes);
    SW_TRY_ALLOC(items, "published runs");
    memcpy(out, &items, sizeof items);
    return SW_OK;
}

static sw_status take_file(struct pub_file *f)
{
    static const struct row rows[] = {
        {"format", OTHER, 0, true}, {"about", OTHER, 0, true}, {"accountings", OTHER, 0, true},
        {"groups", OTHER, 0, true}, {"runs", OTHER, 0, true},  {"capacities", OTHER, 0, false}};
    const struct sw_json *root = sw_json_root(f->doc);
    const struct sw_json *accountings = sw_json_get(root, "accountings");
    const struct sw_json *groups = sw_json_get(root, "groups"), *runs = sw_json_get(root, "runs");
    SW_TRY(take_object(f, root, rows, SW_LEN(rows), f));
    const struct sw_json *format = sw_json_get(root, "format");
    if (format->type != SW_JSON_INT || format->integer != 1) {
        return refuse(f, format->line, "format", "1",
                      format->type == SW_JSON_INT ? format->raw : sw_json_type_name(format->type));
    }
    SW_TRY(room_for(f, accountings, SW_JSON_OBJECT, "accountings", sizeof *f->accountings,
                    &f->accountings));
    SW_TRY(room_for(f, groups, SW_JSON_OBJECT, "groups", sizeof *f->groups, &f->groups));
    SW_TRY(room_for(f, runs, SW_JSON_ARRAY, "runs", sizeof *f->runs, &f->runs));
    for (const struct sw_json *at = accountings->first; at; at = at->next) {
        SW_TRY(take_accounting(f, at, &f->accountings[f->n_accountings++]));
    }
    for (const struct sw_json *at = groups->first; at; at = at->next) {
        SW_TRY(take_group(f, at, &f->groups[f->n_groups++]));
    }
    for (const struct sw_json *at = runs->first; at; at = at->next) {
        SW_TRY(take_run(f, at, &f->runs[f->n_runs++]));
    }
    const struct sw_json *capacities = sw_json_get(root, "capacities");
    if (capacities) {
        SW_TRY(room_for(f, capacities, SW_JSON_ARRAY, "capacities", sizeof *f->capacities,
                        &f->capacities));
    }
    for (const struct sw_json *at = capacities ? capacities->first : NULL; at; at = at->next) {
        SW_TRY(take_capacity(f, at, &f->capacities[f->n_capacities++]));
    }
    return SW_OK;
}

/* Takes the document, also when it fails. */
static sw_status take(struct sw_json_doc *doc, struct pub_file **out)
{
    struct pub_file *f = sw_alloc_zero("look", 1, sizeof *f);
    if (!f) {
        sw_json_close(doc);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for published runs");
    }
    f->doc = doc;
    f->path = sw_json_name(doc);
    sw_arena_init(&f->arena, "look");
    const sw_status st = take_file(f);
    if (st < 0) {
        sw_published_close(f);
        return st;
    }
    *out = f;
    return SW_OK;
}

sw_status sw_published_parse(const char *name, const char *text, size_t len, struct pub_file **out)
{
    struct sw_json_doc *doc;
    SW_TRY(sw_json_parse(name, text, len, SW_JSON_STRICT, &doc));
    return take(doc, out);
}

sw_status sw_published_open(struct pub_file **out)
{
    char path[PATH_MAX];
    struct sw_json_doc *doc;
    sw_share_find("published.json", path, sizeof path);
    SW_TRY(sw_json_read(path, SW_JSON_STRICT, &doc));
    return take(doc, out);
}

void sw_published_close(struct pub_file *f)
{
    if (f) {
        sw_json_close(f->doc);
        sw_arena_fini(&f->arena);
        sw_free(f);
    }
}
