// SPDX-License-Identifier: Apache-2.0
// Output made from the tables: effective values with their sources, the explanation of a key, and
// the manual page docs/config.md.
#include "config/private.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- sources ---- */

enum sw_config_origin sw_config_origin_of(const struct sw_config *config, const char *key)
{
    const struct config_entry *entry = sw_config_find_entry(config, key);
    return entry ? entry->origin : SW_CONFIG_UNKNOWN_KEY;
}

static const char *source_of(const struct sw_config *config, const struct config_entry *entry,
                             char *buf, size_t cap)
{
    switch (entry->origin) {
    case SW_CONFIG_FILE:
    case SW_CONFIG_SET:
    case SW_CONFIG_TRAINER:
        return sw_config_where(config->impl, entry->line, buf, cap);
    case SW_CONFIG_DERIVED:
        snprintf(buf, cap, "derived");
        break;
    case SW_CONFIG_PLANNED:
        snprintf(buf, cap, config->impl->assumes_micro_batch ? "planned, at most" : "planned");
        break;
    default:
        snprintf(buf, cap, "default");
        break;
    }
    return buf;
}

const char *sw_config_source(const struct sw_config *config, const char *key, char *buf, size_t cap)
{
    const struct config_entry *entry = sw_config_find_entry(config, key);
    if (!entry) {
        snprintf(buf, cap, "unknown");
        return buf;
    }
    return source_of(config, entry, buf, cap);
}

const struct sw_json *sw_config_value(const struct sw_config *config, const char *key)
{
    const struct config_entry *entry = sw_config_find_entry(config, key);
    return entry ? entry->value : NULL;
}

/* ---- effective values ---- */

void sw_config_write_json(const struct sw_config *config, int indent, struct sw_str *out)
{
    sw_json_write(sw_json_root(config->impl->effective), indent, out);
}

/* Rows of optional features are shown only if they are given. */
static bool is_shown(const struct config_entry *entry)
{
    return !(entry->section->flags & SECTION_QUIET) || entry->origin != SW_CONFIG_DEFAULT;
}

void sw_config_print(const struct sw_config *config, struct sw_str *out)
{
    struct sw_str value = {0};
    char source[512];
    for (int i = 0; i < config->impl->n_entries; i++) {
        const struct config_entry *entry = &config->impl->entries[i];
        if (!is_shown(entry)) {
            continue;
        }
        sw_str_clear(&value);
        sw_json_write(entry->value, 0, &value);
        sw_str_printf(out, "%-58s %-22s %s", entry->path, sw_str_text(&value),
                      source_of(config, entry, source, sizeof source));
        if (entry->field->status == STATUS_NEEDLESS && entry->origin != SW_CONFIG_DEFAULT) {
            sw_str_printf(out, "   no effect: %s", entry->field->why);
        }
        sw_str_putc(out, '\n');
    }
    if (value.failed) {
        out->failed = true;
    }
    sw_str_fini(&value);
}

void sw_config_print_json(const struct sw_config *config, struct sw_str *out)
{
    char source[512];
    struct sw_str list = {0};
    sw_str_puts(out, "\"config\": ");
    sw_config_write_json(config, 0, out);
    sw_str_puts(out, ",\n\"source\": {");
    bool first = true;
    for (int i = 0; i < config->impl->n_entries; i++) {
        const struct config_entry *entry = &config->impl->entries[i];
        if (is_shown(entry)) {
            source_of(config, entry, source, sizeof source);
            sw_str_puts(out, first ? "" : ", ");
            sw_json_write_string(entry->path, strlen(entry->path), out);
            sw_str_puts(out, ": ");
            sw_json_write_string(source, strlen(source), out);
            first = false;
        }
    }
    sw_str_puts(out, "},\n\"not_built\": [");
    sw_config_list_unbuilt(config, &list);
    const char *line = sw_str_text(&list);
    for (first = true; *line; first = false) {
        const size_t len = strcspn(line, "\n");
        sw_str_puts(out, first ? "" : ", ");
        sw_json_write_string(line, len, out);
        line += len + (line[len] == '\n');
    }
    sw_str_puts(out, "]");
    if (list.failed) {
        out->failed = true;
    }
    sw_str_fini(&list);
}

/* ---- rows in words ---- */

static const char *const type_names[] = {
    [FIELD_BOOL] = "boolean",    [FIELD_INT] = "integer",
    [FIELD_NUMBER] = "number",   [FIELD_BYTES] = "bytes, or 300M, 2G, 1T",
    [FIELD_STRING] = "string",   [FIELD_CHOICE] = "choice",
    [FIELD_DTYPE] = "dtype",     [FIELD_WORD] = "word or integer",
    [FIELD_STRINGS] = "strings", [FIELD_NUMBERS] = "numbers",
    [FIELD_JSON] = "any",
};

static void write_bound(double bound, struct sw_str *out)
{
    if (fabs(bound) < 1e15 && bound == floor(bound)) {
        sw_str_printf(out, "%.0f", bound);
    } else {
        sw_str_printf(out, "%g", bound);
    }
}

static void write_range(const struct config_field *field, struct sw_str *out)
{
    if (field->type == FIELD_DTYPE) {
        sw_str_puts(out, "fp32, fp16, bf16");
        return;
    }
    for (int i = 0; field->choices && field->choices[i]; i++) {
        sw_str_printf(out, "%s%.*s", i ? ", " : "", (int)sw_config_choice_len(field->choices[i]),
                      field->choices[i]);
    }
    const bool words = field->choices && field->choices[0];
    const bool numeric = field->type == FIELD_INT || field->type == FIELD_NUMBER ||
                         field->type == FIELD_BYTES || field->type == FIELD_WORD ||
                         field->type == FIELD_NUMBERS;
    if (!numeric || (isinf(field->lo) && isinf(field->hi))) {
        return;
    }
    sw_str_printf(out, "%s%s", words ? ", " : "", field->flags & FIELD_AUTO ? "auto, " : "");
    if (isinf(field->hi)) {
        sw_str_puts(out, field->flags & FIELD_ABOVE ? "> " : ">= ");
        write_bound(field->lo, out);
    } else {
        write_bound(field->lo, out);
        sw_str_puts(out, " .. ");
        write_bound(field->hi, out);
    }
}

static void write_state(const struct config_field *field, struct sw_str *out)
{
    switch (field->status) {
    case STATUS_BUILT:
        sw_str_puts(out, "built");
        break;
    case STATUS_NEEDLESS:
        sw_str_printf(out, "accepted, no effect: %s", field->why);
        break;
    case STATUS_LATER:
        sw_str_puts(out, "not built yet");
        break;
    case STATUS_GONE:
        sw_str_puts(out, "not built; removed from DeepSpeed");
        break;
    }
    if (field->status == STATUS_LATER && field->why) {
        sw_str_printf(out, ": %s", field->why);
    }
}

static const char *default_text(const struct config_field *field)
{
    return field->flags & FIELD_REQUIRED ? "required" : field->default_json;
}

/* ---- all sections, those of `params` included ---- */

struct place {
    const struct config_section *section;
    const char *of; /* "Adam" for a section of params, else NULL */
};

static size_t n_places(void)
{
    return sw_config_n_sections() + sw_config_n_optimizers + sw_config_n_schedulers;
}

static struct place place_at(size_t i)
{
    if (i < sw_config_n_sections()) {
        return (struct place){sw_config_section_at(i), NULL};
    }
    i -= sw_config_n_sections();
    const struct config_variant *variant = i < sw_config_n_optimizers
                                               ? &sw_config_optimizers[i]
                                               : &sw_config_schedulers[i - sw_config_n_optimizers];
    return (struct place){variant->section, variant->name};
}

static void field_path(const struct config_section *section, const char *key, char *buf, size_t cap)
{
    snprintf(buf, cap, "%s%s%s", section->path, section->path[0] ? "." : "", key);
}

/* ---- explain ---- */

static void explain_field(const struct place *place, const struct config_field *field,
                          struct sw_str *out)
{
    char path[160];
    field_path(place->section, field->key, path, sizeof path);
    sw_str_puts(out, path);
    if (place->of) {
        sw_str_printf(out, " of %s", place->of);
    }
    sw_str_printf(out, "\n  %s\n  type     %s%s%s\n  default  %s\n", field->help,
                  type_names[field->type], field->unit ? ", " : "", field->unit ? field->unit : "",
                  default_text(field));
    struct sw_str range = {0};
    write_range(field, &range);
    if (range.len > 0) {
        sw_str_printf(out, "  values   %s%s\n", sw_str_text(&range),
                      field->flags & FIELD_NULL ? ", null" : "");
    }
    sw_str_fini(&range);
    if (field->alias) {
        sw_str_printf(out, "  also     %s\n", field->alias);
    }
    sw_str_puts(out, "  state    ");
    write_state(field, out);
    sw_str_puts(out, "\n");
}

/* Whole path, its other name, or the last part alone when that is what was typed. */
static bool is_asked_for(const struct config_section *section, const struct config_field *field,
                         const char *key)
{
    char path[160];
    const char *const names[] = {field->key, field->alias};
    for (size_t i = 0; i < SW_LEN(names) && names[i]; i++) {
        field_path(section, names[i], path, sizeof path);
        if (strcmp(path, key) == 0 || (!strchr(key, '.') && strcmp(names[i], key) == 0)) {
            return true;
        }
    }
    return false;
}

static void list_types(const char *block, const struct config_variant *list, size_t n,
                       struct sw_str *out)
{
    sw_str_printf(out, "%s.type is one of\n ", block);
    for (size_t i = 0; i < n; i++) {
        sw_str_printf(out, " %s%s", list[i].name, list[i].built ? "" : " (not built)");
    }
    sw_str_putc(out, '\n');
}

static bool explain_section(const char *key, struct sw_str *out)
{
    bool found = false;
    for (size_t i = 0; i < n_places(); i++) {
        const struct place place = place_at(i);
        if (!place.section || place.of || !*key || strcmp(place.section->path, key) != 0) {
            continue;
        }
        found = true;
        sw_str_printf(out, "%s: %s\n", key, place.section->help);
        for (size_t j = 0; j < place.section->n_fields; j++) {
            const struct config_field *field = &place.section->fields[j];
            sw_str_printf(out, "  %-36s %s\n", field->key, field->help);
        }
    }
    if (strcmp(key, "optimizer") == 0) {
        list_types(key, sw_config_optimizers, sw_config_n_optimizers, out);
    } else if (strcmp(key, "scheduler") == 0) {
        list_types(key, sw_config_schedulers, sw_config_n_schedulers, out);
    }
    return found;
}

enum { MAX_KEYS = 700, KEY_CAP = 96 };

static sw_status no_such_key(const char *key)
{
    char(*names)[KEY_CAP] = sw_alloc("config", (size_t)MAX_KEYS * KEY_CAP);
    const char **list = sw_alloc("config", MAX_KEYS * sizeof *list);
    size_t n = 0;
    for (size_t i = 0; names && list && i < n_places(); i++) {
        const struct place place = place_at(i);
        for (size_t j = 0; place.section && j < place.section->n_fields && n < MAX_KEYS; j++) {
            const char *leaf = place.section->fields[j].key;
            if (strchr(key, '.')) {
                field_path(place.section, leaf, names[n], KEY_CAP);
            } else {
                snprintf(names[n], KEY_CAP, "%s", leaf);
            }
            list[n] = names[n];
            n++;
        }
    }
    const char *nearest = n > 0 ? sw_nearest(key, list, n) : NULL;
    const sw_status st = SW_FAIL(SW_E_CONFIG, "no key \"%.80s\"%s", key, sw_hint(nearest).text);
    sw_free(names);
    sw_free(list);
    return st;
}

sw_status sw_config_explain(const char *key, struct sw_str *out)
{
    bool found = explain_section(key, out);
    const struct config_section *last = NULL;
    for (size_t i = 0; i < n_places(); i++) {
        const struct place place = place_at(i);
        for (size_t j = 0; place.section && place.section != last && j < place.section->n_fields;
             j++) {
            if (is_asked_for(place.section, &place.section->fields[j], key)) {
                sw_str_puts(out, found ? "\n" : "");
                explain_field(&place, &place.section->fields[j], out);
                found = true;
            }
        }
        last = place.section;
    }
    return found ? SW_OK : no_such_key(key);
}

/* ---- the manual ---- */

static void doc_table(const struct config_section *section, struct sw_str *out)
{
    if (section->n_fields == 0) {
        return;
    }
    sw_str_puts(out, "| key | type | default | values | meaning | state |\n"
                     "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < section->n_fields; i++) {
        const struct config_field *field = &section->fields[i];
        sw_str_printf(out, "| `%s`", field->key);
        if (field->alias) {
            sw_str_printf(out, ", `%s`", field->alias);
        }
        sw_str_printf(out, " | %s%s%s | ", type_names[field->type], field->unit ? ", " : "",
                      field->unit ? field->unit : "");
        sw_str_printf(out, field->flags & FIELD_REQUIRED ? "%s | " : "`%s` | ",
                      default_text(field));
        write_range(field, out);
        sw_str_printf(out, " | %s | ", field->help);
        write_state(field, out);
        sw_str_puts(out, " |\n");
    }
    sw_str_puts(out, "\n");
}

static void doc_rules(const struct config_section *section, struct sw_str *out)
{
    if (section->flags & SECTION_MODEL) {
        sw_str_puts(out,
                    "Values convert as in DeepSpeed: `\"yes\"`, `1` and `1.0` are true, `\"2\"` "
                    "is 2; `\"auto\"` means the\ndefault, or what transformers' Trainer "
                    "has.\n\n");
    }
}

static void doc_variants(const struct config_variant *list, size_t n, struct sw_str *out)
{
    const struct config_section *last = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!list[i].section || list[i].section == last) {
            continue;
        }
        last = list[i].section;
        sw_str_printf(out, "### `%s` %s%s\n\n", last->path, last->help,
                      list[i].built ? "" : " (not built yet)");
        doc_table(last, out);
    }
    enum { COLUMNS = 100 };
    static const char begins[] = "Known by name and refused:";
    size_t at = sizeof begins - 1;
    sw_str_puts(out, begins);
    for (size_t i = 0; i < n; i++) {
        if (!list[i].built) {
            const size_t more = strlen(list[i].name) + 2; /* with a space and the full stop */
            const bool breaks = at + more > COLUMNS;
            sw_str_printf(out, "%s%s", breaks ? "\n" : " ", list[i].name);
            at = breaks ? more : at + more - 1;
        }
    }
    sw_str_puts(out, ".\n\n");
}

void sw_config_write_docs(struct sw_str *out)
{
    sw_str_puts(
        out,
        "<!-- Written by `spillway config --docs` from the tables in src/config; do not edit. -->\n"
        "# Configuration\n\n"
        "Spillway reads DeepSpeed's `ds_config.json`. Comments, trailing commas, unquoted keys "
        "and\n"
        "missing outer braces are accepted. Unknown and duplicate keys are errors, with file, "
        "line and\n"
        "the nearest known key. `--set a.b=1` edits the file's tree before it is read.\n"
        "`spillway config FILE` prints effective values and where each came from, `spillway "
        "config\n"
        "--explain KEY` one key of this page, `--schedule N` the rates of the first N steps, "
        "`--elastic N`\n"
        "what `elasticity` makes of N ranks. `\"auto\"` is what transformers' Trainer makes of "
        "it, by flags\n"
        "and its defaults ([train.md](train.md#auto-as-hugging-faces-trainer-means-it)). What "
        "differs\n"
        "from DeepSpeed is in [differences.md](differences.md).\n\n"
        "State: **built** acts; **accepted, no effect** is taken and says why nothing is lost;\n"
        "**not built yet** is refused by name before training, when it differs from its "
        "default.\n\n");
    for (size_t i = 0; i < sw_config_n_sections(); i++) {
        const struct config_section *section = sw_config_section_at(i);
        sw_str_printf(out, "## %s%s%s\n\n", section->path[0] ? "`" : "Top level: ",
                      section->path[0] ? section->path : section->help,
                      section->path[0] ? "`" : "");
        if (section->path[0]) {
            sw_str_printf(out, "%c%s.\n\n",
                          section->help[0] -
                              ('a' <= section->help[0] && section->help[0] <= 'z' ? 32 : 0),
                          section->help + 1);
        }
        doc_rules(section, out);
        doc_table(section, out);
        if (section == &sw_config_table_optimizer) {
            doc_variants(sw_config_optimizers, sw_config_n_optimizers, out);
        } else if (section == &sw_config_table_scheduler) {
            doc_variants(sw_config_schedulers, sw_config_n_schedulers, out);
        }
    }
}
