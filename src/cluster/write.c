// SPDX-License-Identifier: Apache-2.0
// A cluster as its file, by the rows by which it is read.
#include <string.h>

#include "cluster/private.h"
#include "json/json.h"

static void indent(int depth, struct sw_str *out)
{
    sw_str_printf(out, "\n%*s", 2 * depth, "");
}

static void put_text(const char *text, struct sw_str *out)
{
    sw_json_write_string(text, strlen(text), out);
}

static void put_figure(const struct cluster_row *row, const struct sw_figure *f, struct sw_str *out)
{
    sw_str_printf(out, "{\"value\": %.12g", f->value / row->unit);
    sw_str_printf(out, ", \"kind\": \"%s\", \"source\": ", sw_figure_kind_name(f->kind));
    put_text(f->source, out);
    sw_str_putc(out, '}');
}

static void put_object(const struct cluster_section *section, const char *from, int depth,
                       struct sw_str *out);

static void put_list(const struct cluster_row *row, const char *from, int depth, struct sw_str *out)
{
    const char *items;
    int n;
    memcpy(&items, from + row->at, sizeof items);
    memcpy(&n, from + row->at_count, sizeof n);
    sw_str_putc(out, '[');
    for (int i = 0; i < n; i++) {
        sw_str_puts(out, i > 0 ? "," : "");
        indent(depth + 1, out);
        put_object(row->section, items + (size_t)i * row->section->bytes, depth + 1, out);
    }
    if (n > 0) {
        indent(depth, out);
    }
    sw_str_putc(out, ']');
}

static void put_row(const struct cluster_row *row, const char *from, int depth, struct sw_str *out)
{
    const void *at = from + row->at;
    switch (row->type) {
    case ROW_FORMAT:
        sw_str_printf(out, "%d", SW_CLUSTER_FORMAT);
        break;
    case ROW_TEXT:
    case ROW_NAME:
        put_text(*(const char *const *)at, out);
        break;
    case ROW_WORD:
        put_text(row->words[*(const int *)at], out);
        break;
    case ROW_FLAG:
        sw_str_puts(out, *(const bool *)at ? "true" : "false");
        break;
    case ROW_FIGURE:
        put_figure(row, at, out);
        break;
    case ROW_OBJECT:
        put_object(row->section, at, depth, out);
        break;
    case ROW_LIST:
        put_list(row, from, depth, out);
        break;
    }
}

static bool is_absent(const struct cluster_row *row, const void *at)
{
    const struct sw_figure *figure = at;
    const char *const *text = at;
    return row->is_optional && (row->type == ROW_FIGURE ? !figure->kind : !*text);
}

static void put_object(const struct cluster_section *section, const char *from, int depth,
                       struct sw_str *out)
{
    const char *before = "{";
    for (size_t i = 0; i < section->n_rows; i++) {
        const struct cluster_row *row = &section->rows[i];
        if (is_absent(row, from + row->at)) {
            continue;
        }
        sw_str_puts(out, before);
        indent(depth + 1, out);
        put_text(row->key, out);
        sw_str_puts(out, ": ");
        put_row(row, from, depth + 1, out);
        before = ",";
    }
    indent(depth, out);
    sw_str_putc(out, '}');
}

void sw_cluster_write(const struct sw_cluster *cluster, struct sw_str *out)
{
    put_object(&sw_cluster_top, (const char *)cluster, 0, out);
    sw_str_putc(out, '\n');
}
