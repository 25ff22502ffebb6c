// SPDX-License-Identifier: Apache-2.0
// Pictures of plans for clusters, and of published runs, from the JSON of `spillway plan` alone: so
// the JSON has every number of a picture. A number on the page names its place there (data-at), and
// has all of its digits (data-v).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/pictures.h"

/* ---- numbers ---- */

static bool is_number(const struct sw_json *value)
{
    return value && (value->type == SW_JSON_INT || value->type == SW_JSON_FLOAT);
}

static int64_t index_of(const struct sw_json *node)
{
    int64_t n = 0;
    for (const struct sw_json *at = node->parent->first; at != node; at = at->next) {
        n++;
    }
    return n;
}

/* The place of a value as "runs.3.error". */
static void write_place(const struct sw_json *node, struct sw_str *out)
{
    if (!node->parent) {
        return;
    }
    write_place(node->parent, out);
    sw_str_puts(out, node->parent->parent ? "." : "");
    if (node->key) {
        sw_html_text(out, node->key, strlen(node->key), false);
    } else {
        sw_str_printf(out, "%lld", (long long)index_of(node));
    }
}

void sw_picture_source(const struct sw_json *value, struct sw_str *out)
{
    sw_str_puts(out, " data-at=\"");
    write_place(value, out);
    sw_str_puts(out, "\" data-v=\"");
    sw_json_write_f64(value->number, out);
    sw_str_putc(out, '"');
}

static const char *text_of(char *buf, size_t cap, double value, enum sw_picture_unit unit)
{
    switch (unit) {
    case SW_PICTURE_SECONDS:
        return value >= 1 ? sw_html_seconds(buf, cap, value)
                          : sw_html_number(buf, cap, 1e3 * value, SW_UNIT_MS);
    case SW_PICTURE_BYTES:
        return sw_html_number(buf, cap, value, SW_UNIT_BYTES);
    case SW_PICTURE_SHARE:
        return sw_html_number(buf, cap, value, SW_UNIT_SHARE);
    case SW_PICTURE_COUNT:
        return sw_html_number(buf, cap, value, SW_UNIT_COUNT);
    case SW_PICTURE_PERCENT:
        snprintf(buf, cap, "%.1f %%", 100 * value);
        return buf;
    case SW_PICTURE_ERROR:
        snprintf(buf, cap, "%+.1f %%", 100 * value);
        return buf;
    default:
        snprintf(buf, cap, "%.1f", value);
        return buf;
    }
}

void sw_picture_number(const struct sw_json *value, enum sw_picture_unit unit, struct sw_str *out)
{
    char text[48];
    if (!is_number(value)) {
        sw_str_puts(out, "–");
        return;
    }
    sw_str_puts(out, "<b");
    sw_picture_source(value, out);
    sw_str_printf(out, ">%s</b>", text_of(text, sizeof text, value->number, unit));
}

double sw_picture_value(const struct sw_json *of, const char *path)
{
    const struct sw_json *value = sw_json_path(of, path);
    return is_number(value) ? value->number : NAN;
}

const char *sw_picture_text(const struct sw_json *of, const char *key)
{
    const struct sw_json *value = sw_json_get(of, key);
    return value && value->type == SW_JSON_STRING ? value->string : "";
}

/* ---- a plan on a cluster ---- */

static void tile(const char *name, const struct sw_json *value, enum sw_picture_unit unit,
                 const char *after, struct sw_str *out)
{
    sw_str_printf(out, "<div class=\"tile\"><dt>%s</dt><dd>", name);
    sw_picture_number(value, unit, out);
    sw_str_printf(out, "<small>%s</small></dd></div>\n", after);
}

static void write_cluster(const struct sw_json *root, struct sw_str *out)
{
    sw_str_puts(out, "<dl class=\"tiles\">");
    tile("A step", sw_json_get(root, "step_seconds"), SW_PICTURE_SECONDS, "predicted", out);
    tile("A device", sw_json_get(root, "tflops_per_device"), SW_PICTURE_RATE, "TFLOP/s", out);
    tile("Ranks", sw_json_get(root, "ranks"), SW_PICTURE_COUNT, "a device each", out);
    sw_str_puts(out, "<div class=\"tile\"><dt>Bound by</dt><dd>");
    sw_html_name(out, sw_picture_text(root, "bound"));
    sw_str_puts(out, "<small>the largest part of the step</small></dd></div></dl>\n");
    sw_picture_tiers(root, NULL, out);
    const struct sw_picture_stack stack = {root, "predicted"};
    sw_picture_stacks("Where the step goes", &stack, 1, out);
}

/* ---- rows of nodes ---- */

static void write_row(const struct sw_json *row, bool days, bool money, struct sw_str *out)
{
    sw_str_puts(out, "<tr><th scope=\"row\">");
    sw_picture_number(sw_json_get(row, "nodes"), SW_PICTURE_COUNT, out);
    sw_str_puts(out, "<td class=\"n\">");
    sw_picture_number(sw_json_get(row, "ranks"), SW_PICTURE_COUNT, out);
    if (sw_json_get(row, "refused")) {
        sw_str_puts(out, "<td colspan=\"7\">");
        sw_html_name(out, sw_picture_text(row, "refused"));
        sw_str_puts(out, "</tr>\n");
        return;
    }
    static const struct {
        const char *key;
        enum sw_picture_unit unit;
    } columns[] = {{"step_seconds", SW_PICTURE_SECONDS},
                   {"samples_per_second", SW_PICTURE_RATE},
                   {"linear_samples_per_second", SW_PICTURE_RATE},
                   {"tflops_per_device", SW_PICTURE_RATE},
                   {"days", SW_PICTURE_RATE},
                   {"money", SW_PICTURE_COUNT}};
    for (size_t i = 0; i < SW_LEN(columns) - 2 + days + money; i++) {
        sw_str_puts(out, "<td class=\"n\">");
        sw_picture_number(sw_json_get(row, columns[i].key), columns[i].unit, out);
    }
    sw_str_puts(out, "<td>");
    sw_html_name(out, sw_picture_text(row, "bound"));
    sw_str_puts(out, "</tr>\n");
}

static void write_table(const struct sw_json *rows, struct sw_str *out)
{
    bool days = false, money = false;
    for (const struct sw_json *row = rows->first; row; row = row->next) {
        days = days || sw_json_get(row, "days");
        money = money || sw_json_get(row, "money");
    }
    sw_str_printf(out,
                  "<div class=\"scroll\"><table><thead><tr><th>nodes<th class=\"n\">devices"
                  "<th class=\"n\">a step<th class=\"n\">samples/s<th class=\"n\">linear"
                  "<th class=\"n\">TFLOP/s a device%s%s<th>bound by</tr></thead><tbody>\n",
                  days ? "<th class=\"n\">days" : "", money ? "<th class=\"n\">money" : "");
    for (const struct sw_json *row = rows->first; row; row = row->next) {
        write_row(row, days, money, out);
    }
    sw_str_puts(out, "</tbody></table></div>\n");
}

static sw_status write_rows(const struct sw_json *root, struct sw_str *out)
{
    struct sw_picture_line line = {.title = "Samples a second", .x = "nodes"};
    const struct sw_json *rows = sw_json_get(root, "rows");
    sw_status st = sw_picture_line_open(&line, (int)rows->n_children);
    for (const struct sw_json *row = rows->first; row && st >= 0; row = row->next) {
        if (!sw_json_get(row, "refused")) {
            sw_picture_line_add(&line, (int64_t)sw_picture_value(row, "nodes"),
                                sw_picture_value(row, "samples_per_second"), NAN,
                                sw_picture_value(row, "linear_samples_per_second"));
        }
    }
    if (st >= 0) {
        sw_str_puts(out, "<div class=\"charts\">");
        st = sw_picture_line_write(&line, out);
        sw_str_puts(out, "</div>\n");
        write_table(rows, out);
    }
    sw_picture_line_close(&line);
    return st;
}

/* ---- the page ---- */

static const char extra[] =
    ".q7{fill:var(--7);--k:var(--7)}.q8{fill:var(--5);--k:var(--5)}.q9{fill:var(--6);"
    "--k:var(--6)}.q10{fill:var(--3);--k:var(--3)}.q11{fill:var(--1);--k:var(--1)}"
    ".b0{fill:var(--7);--k:var(--7)}.b1{fill:var(--0);--k:var(--0)}.b2{fill:var(--2);--k:var(--2)}"
    ".b3{fill:var(--4);--k:var(--4)}.tol{fill:var(--ink);opacity:.16}\n"
    ".row{display:grid;grid-template-columns:minmax(0,17rem) minmax(0,1fr) minmax(0,19rem);gap:"
    ".1rem 1rem;align-items:center;padding:.25rem 0;border-bottom:1px solid var(--grid);"
    "font-size:.86rem;overflow-wrap:anywhere}.row:last-child{border:0}.row svg{height:1.9rem;"
    "background:var(--grid);border-radius:4px;overflow:hidden}.row .figs{color:var(--dim);"
    "font-variant-numeric:tabular-nums}.row b{font-weight:600;color:var(--ink)}"
    ".row .miss{color:var(--4)}td b,th b{font-weight:inherit}.why{color:var(--dim)}dd b{"
    "font-weight:inherit}section .chart{margin-bottom:1rem}"
    ".lanes{grid-template-columns:11.5rem minmax(0,1fr)}\n"
    "@media(max-width:720px){.row,.lanes{grid-template-columns:minmax(0,1fr)}"
    ".names{grid-auto-rows:1.4rem}}\n";

static void write_head(const char *title, struct sw_str *out)
{
    sw_html_begin(out);
    sw_html_text(out, title, strlen(title), false);
    sw_html_end_head(extra, out);
    sw_str_puts(out, "<header><h1>");
    sw_html_name(out, title);
    sw_str_puts(out, "</h1></header>\n<main>\n");
}

static sw_status write_page(const struct sw_json *root, struct sw_str *out)
{
    const struct sw_json *lanes = sw_json_get(root, "lanes"), *runs = sw_json_get(root, "runs");
    const char *name = runs && runs->n_children == 1 ? sw_picture_text(runs->first, "id")
                       : runs                        ? "Published runs"
                                                     : sw_picture_text(root, "name");
    write_head(name, out);
    if (runs) {
        SW_TRY(sw_picture_runs(root, out));
    } else if (sw_json_get(root, "rows")) {
        SW_TRY(write_rows(root, out));
    } else {
        write_cluster(root, out);
    }
    if (lanes) {
        SW_TRY(sw_picture_lanes(lanes, out));
    }
    sw_str_printf(out,
                  "</main>\n<footer>Written by spillway %s plan. Its --json has every number of "
                  "this page.</footer>\n</body></html>\n",
                  sw_version());
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a picture") : SW_OK;
}

/* A block is [begin, end, share, kind]. */
static bool is_block(const struct sw_json *block)
{
    return block->n_children == 4 && is_number(block->first) && is_number(block->first->next) &&
           is_number(block->first->next->next) && block->last->type == SW_JSON_STRING;
}

static bool are_lanes(const struct sw_json *lanes)
{
    bool are = true;
    for (const struct sw_json *lane = lanes ? lanes->first : NULL; lane; lane = lane->next) {
        const struct sw_json *queues = sw_json_get(lane, "queues");
        are = are && queues;
        for (const struct sw_json *q = queues ? queues->first : NULL; q; q = q->next) {
            const struct sw_json *blocks = sw_json_get(q, "blocks");
            are = are && blocks;
            for (const struct sw_json *b = blocks ? blocks->first : NULL; b; b = b->next) {
                are = are && is_block(b);
            }
        }
    }
    return are;
}

static bool are_runs(const struct sw_json *runs)
{
    bool are = !runs || runs->n_children > 0;
    for (const struct sw_json *run = runs ? runs->first : NULL; run; run = run->next) {
        const struct sw_json *published = sw_json_get(run, "published");
        are = are && published && published->n_children == 2 && is_number(published->first) &&
              is_number(published->last) && sw_json_get(run, "met");
    }
    return are;
}

static sw_status check(const struct sw_json *root)
{
    const bool is_one =
        sw_json_get(root, "runs") || sw_json_get(root, "rows") || sw_json_get(root, "tiers");
    return is_one && are_lanes(sw_json_get(root, "lanes")) && are_runs(sw_json_get(root, "runs"))
               ? SW_OK
               : SW_FAIL(SW_E_ARG, "a picture: wanted the JSON of a plan on a cluster, of rows "
                                   "of nodes or of published runs");
}

sw_status sw_report_picture(const char *json, const char *path)
{
    struct sw_json_doc *doc = NULL;
    struct sw_output file = {.fd = -1};
    struct sw_str html = {0};
    SW_TRY_OPTIONS(json);
    SW_TRY_OPTIONS(path);
    SW_TRY(sw_json_parse("a picture", json, strlen(json), SW_JSON_STRICT, &doc));
    const struct sw_json *root = sw_json_root(doc);
    sw_status st = check(root);
    st = st < 0 ? st : sw_html_open(path, "--picture", &file);
    st = st < 0 ? st : write_page(root, &html);
    st = st < 0 ? st : sw_output_put(&file, html.ptr, html.len, true);
    sw_output_close(&file);
    sw_str_fini(&html);
    sw_json_close(doc);
    return st;
}
