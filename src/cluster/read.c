// SPDX-License-Identifier: Apache-2.0
// From a file to struct sw_cluster: every key is a row of the table, is there once, and has the
// type and the range that its row says. Then the parts are held to each other.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cluster/private.h"
#include "json/json.h"

struct reader {
    struct sw_cluster *cluster;
    const char *name; /* of the file, for messages */
    const struct sw_json *root;
};

enum { PATH_CAP = 160 };
static const double MOST = 9e18; /* bytes, or any other number in its unit: below 2^63 */

static sw_status refuse(const struct reader *r, int line, const char *path, const char *fmt, ...)
    SW_PRINTF(4, 5);
static sw_status refuse(const struct reader *r, int line, const char *path, const char *fmt, ...)
{
    char text[768];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return SW_FAIL(SW_E_CONFIG, "%s:%d: %s%s%s", r->name, line, path, *path ? ": " : "", text);
}

static void join(const char *path, const char *key, char out[PATH_CAP])
{
    snprintf(out, PATH_CAP, "%.80s%s%.60s", path, *path ? "." : "", key);
}

/* ---- keys ---- */

static sw_status check_keys(const struct reader *r, const struct sw_json *node, const char *path,
                            const char *const *names, size_t n)
{
    if (node->type != SW_JSON_OBJECT) {
        return refuse(r, node->line, path, "wanted an object, got %s",
                      sw_json_type_name(node->type));
    }
    for (const struct sw_json *child = node->first; child; child = child->next) {
        size_t i = 0;
        while (i < n && strcmp(names[i], child->key) != 0) {
            i++;
        }
        if (i == n || strlen(child->key) != child->key_len) {
            const char *nearest = sw_nearest(child->key, names, n);
            return refuse(r, child->key_line, path, "unknown key \"%.80s\"%s", child->key,
                          sw_hint(nearest).text);
        }
    }
    return SW_OK;
}

/* ---- values ---- */

static sw_status take_text(const struct reader *r, const struct sw_json *node, const char *path,
                           const char **out)
{
    if (node->type != SW_JSON_STRING || node->string_len == 0 ||
        strlen(node->string) != node->string_len) {
        return refuse(r, node->line, path, "wanted a text, got %s",
                      node->type == SW_JSON_STRING ? "an empty one"
                                                   : sw_json_type_name(node->type));
    }
    *out = sw_arena_strdup(&r->cluster->arena, node->string);
    SW_TRY_ALLOC(*out, "a cluster");
    return SW_OK;
}

/* first: words before it are not allowed in files. */
static sw_status take_word(const struct reader *r, const struct sw_json *node, const char *path,
                           const char *const *words, int first, int *out)
{
    struct sw_str list = {0};
    for (int i = first; words[i]; i++) {
        if (node->type == SW_JSON_STRING && strcmp(words[i], node->string) == 0) {
            *out = i;
            sw_str_fini(&list);
            return SW_OK;
        }
        sw_str_printf(&list, "%s\"%s\"", i == first ? "" : words[i + 1] ? ", " : " or ", words[i]);
    }
    const sw_status st =
        refuse(r, node->line, path, "wanted %s, got %.80s", sw_str_text(&list),
               node->type == SW_JSON_STRING ? node->string : sw_json_type_name(node->type));
    sw_str_fini(&list);
    return st;
}

static sw_status take_number(const struct reader *r, const struct cluster_row *row,
                             const struct sw_json *node, const char *path, double *out)
{
    const bool is_number = node->type == SW_JSON_INT || node->type == SW_JSON_FLOAT;
    const double x = is_number ? node->number : NAN;
    const bool good = row->is_whole      ? node->type == SW_JSON_INT && x >= 1 && x <= 1e9
                      : row->is_share    ? x > 0 && x <= 1
                      : row->may_be_zero ? x >= 0
                                         : x > 0;
    if (!good) {
        return refuse(r, node->line, path, "wanted %s, got %.60s",
                      row->is_whole      ? "a whole number of at least 1 and at most 1000000000"
                      : row->is_share    ? "a number above 0 and at most 1"
                      : row->may_be_zero ? "a number of at least 0"
                                         : "a number above 0",
                      is_number ? node->raw : sw_json_type_name(node->type));
    }
    *out = x * row->unit;
    return *out <= MOST ? SW_OK
                        : refuse(r, node->line, path, "wanted a number of at most %g, got %.60s",
                                 MOST / row->unit, node->raw);
}

/* Each number says where it is from. */
static sw_status take_figure(const struct reader *r, const struct cluster_row *row,
                             const struct sw_json *node, const char *path, struct sw_figure *out)
{
    static const char *const keys[] = {"value", "kind", "source"};
    const struct sw_json *parts[SW_LEN(keys)];
    char inner[PATH_CAP];
    int kind = SW_FIGURE_ABSENT;
    if (node->type != SW_JSON_OBJECT) {
        return refuse(r, node->line, path,
                      "wanted {\"value\": .., \"kind\": .., \"source\": ..}, got %s",
                      sw_json_type_name(node->type));
    }
    SW_TRY(check_keys(r, node, path, keys, SW_LEN(keys)));
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        parts[i] = sw_json_get(node, keys[i]);
        if (!parts[i]) {
            join(path, keys[i], inner);
            return refuse(r, node->line, inner, "is required");
        }
    }
    join(path, "value", inner);
    SW_TRY(take_number(r, row, parts[0], inner, &out->value));
    join(path, "kind", inner);
    SW_TRY(take_word(r, parts[1], inner, sw_cluster_kinds, SW_FIGURE_DATASHEET, &kind));
    join(path, "source", inner);
    SW_TRY(take_text(r, parts[2], inner, &out->source));
    out->kind = (enum sw_figure_kind)kind;
    out->line = parts[0]->line;
    return SW_OK;
}

static sw_status take_format(const struct reader *r, const struct sw_json *node, int64_t *out)
{
    if (node->type != SW_JSON_INT || node->integer != SW_CLUSTER_FORMAT) {
        return refuse(r, node->line, "format", "wanted %d, got %.60s", SW_CLUSTER_FORMAT,
                      node->type == SW_JSON_INT ? node->raw : sw_json_type_name(node->type));
    }
    *out = node->integer;
    return SW_OK;
}

/* ---- objects and lists ---- */

static sw_status take_object(const struct reader *r, const struct cluster_section *section,
                             const struct sw_json *node, const char *path, char *to);

static sw_status take_list(const struct reader *r, const struct cluster_row *row,
                           const struct sw_json *node, const char *path, char *to)
{
    const struct cluster_section *section = row->section;
    if (node->type != SW_JSON_ARRAY || node->n_children > 64) {
        return refuse(r, node->line, path, "wanted a list of at most 64 objects, got %s",
                      node->type == SW_JSON_ARRAY ? "more" : sw_json_type_name(node->type));
    }
    const int n = (int)node->n_children;
    char *items = sw_arena_array(&r->cluster->arena, (size_t)n + 1, section->bytes);
    SW_TRY_ALLOC(items, "a cluster");
    int i = 0;
    for (const struct sw_json *child = node->first; child; child = child->next, i++) {
        char inner[PATH_CAP], *item = items + (size_t)i * section->bytes;
        snprintf(inner, sizeof inner, "%.100s[%d]", path, i);
        SW_TRY(take_object(r, section, child, inner, item));
        memcpy(item + section->at_line, &child->line, sizeof child->line);
    }
    memcpy(to + row->at, &items, sizeof items);
    memcpy(to + row->at_count, &n, sizeof n);
    return SW_OK;
}

static sw_status take_row(const struct reader *r, const struct cluster_row *row,
                          const struct sw_json *node, const char *path, char *to)
{
    void *at = to + row->at;
    int word = 0;
    switch (row->type) {
    case ROW_FORMAT:
        return take_format(r, node, at);
    case ROW_TEXT:
        return take_text(r, node, path, at);
    case ROW_NAME:
        SW_TRY(take_word(r, node, path, row->words, 0, &word));
        *(const char **)at = row->words[word];
        return SW_OK;
    case ROW_WORD:
        return take_word(r, node, path, row->words, 0, at);
    case ROW_FLAG:
        if (node->type != SW_JSON_BOOL) {
            return refuse(r, node->line, path, "wanted true or false, got %s",
                          sw_json_type_name(node->type));
        }
        *(bool *)at = node->boolean;
        return SW_OK;
    case ROW_FIGURE:
        return take_figure(r, row, node, path, at);
    case ROW_OBJECT:
        return take_object(r, row->section, node, path, at);
    case ROW_LIST:
        return take_list(r, row, node, path, to);
    }
    return SW_OK;
}

static sw_status take_object(const struct reader *r, const struct cluster_section *section,
                             const struct sw_json *node, const char *path, char *to)
{
    const char *names[16];
    SW_ASSERT(section->n_rows <= SW_LEN(names));
    for (size_t i = 0; i < section->n_rows; i++) {
        names[i] = section->rows[i].key;
    }
    SW_TRY(check_keys(r, node, path, names, section->n_rows));
    for (size_t i = 0; i < section->n_rows; i++) {
        const struct cluster_row *row = &section->rows[i];
        const struct sw_json *child = sw_json_get(node, row->key);
        char inner[PATH_CAP];
        join(path, row->key, inner);
        if (child) {
            SW_TRY(take_row(r, row, child, inner, to));
        } else if (!row->is_optional) {
            return refuse(r, node->line, inner, "is required");
        }
    }
    return SW_OK;
}

/* ---- the parts among each other ---- */

/* Who shares a link or a disk must be there. */
static sw_status check_sharer(const struct reader *r, int shared_by, int line, const char *what,
                              int i)
{
    const struct sw_cluster_node *node = &r->cluster->node;
    char path[PATH_CAP];
    snprintf(path, sizeof path, "%s[%d].shared_by", what, i);
    if (shared_by == SW_SHARER_SWITCH && !node->devices_per_switch.kind) {
        return refuse(r, line, path,
                      "nobody is on it: it is shared by the devices of a \"switch\", but "
                      "node.devices_per_switch is not given");
    }
    if (shared_by == SW_SHARER_NIC && !node->devices_per_nic.kind) {
        return refuse(r, line, path,
                      "nobody is on it: it is shared by the devices of a \"nic\", but "
                      "node.devices_per_nic is not given");
    }
    return SW_OK;
}

static sw_status check_link(const struct reader *r, int i)
{
    const struct sw_cluster *c = r->cluster;
    const struct sw_cluster_link *link = &c->links[i];
    char path[PATH_CAP];
    snprintf(path, sizeof path, "links[%d].joins", i);
    if (link->joint == SW_JOINT_PEERS && c->node.devices.value < 2) {
        return refuse(r, link->line, path,
                      "nobody is on it: it joins the devices of a node, but node.devices is 1");
    }
    if (link->joint == SW_JOINT_NODES && c->node.most.value < 2) {
        return refuse(r, link->line, path, "nobody is on it: it joins nodes, but node.nodes is 1");
    }
    for (int k = 0; k < i; k++) {
        if (strcmp(c->links[k].name, link->name) == 0) {
            snprintf(path, sizeof path, "links[%d].name", i);
            return refuse(r, link->line, path, "\"%.60s\" is the name of links[%d] too", link->name,
                          k);
        }
    }
    return check_sharer(r, link->shared_by, link->line, "links", i);
}

static sw_status check_node(const struct reader *r)
{
    const struct sw_cluster_node *n = &r->cluster->node;
    const struct sw_figure *each[] = {&n->devices_per_switch, &n->devices_per_nic};
    static const char *const paths[] = {"node.devices_per_switch", "node.devices_per_nic"};
    for (size_t i = 0; i < SW_LEN(each); i++) {
        if (each[i]->value > n->devices.value) {
            return refuse(r, each[i]->line, paths[i], "wanted at most node.devices, %.0f, got %.0f",
                          n->devices.value, each[i]->value);
        }
    }
    return SW_OK;
}

/* Whoever has to talk has a link. */
static sw_status check_joints(const struct reader *r)
{
    static const char *const what[SW_JOINT_COUNT] = {"a device and its host (\"device-host\")",
                                                     "the devices of a node (\"device-device\")",
                                                     "nodes (\"node-node\")"};
    const struct sw_cluster *c = r->cluster;
    bool joined[SW_JOINT_COUNT] = {false, c->node.devices.value < 2, c->node.most.value < 2};
    for (int i = 0; i < c->n_links; i++) {
        joined[c->links[i].joint] = true;
    }
    for (int k = 0; k < SW_JOINT_COUNT; k++) {
        if (!joined[k]) {
            return refuse(r, sw_json_get(r->root, "links")->line, "links", "no link joins %s",
                          what[k]);
        }
    }
    return SW_OK;
}

static sw_status refuse_use(const struct reader *r, int line, const char *list, int i)
{
    char path[PATH_CAP];
    snprintf(path, sizeof path, "%s[%d]", list, i);
    return refuse(r, line, path,
                  "wanted at most %d things that one transfer uses: all disks, the host's memory "
                  "and the \"device-host\" links; or the other links, duplex ones twice. Equal "
                  "disks may be one with a count",
                  SW_CLUSTER_USES);
}

/* A transfer from disks passes the host's memory and links. An exchange passes the other links both
 * ways. */
static sw_status check_uses(const struct reader *r)
{
    const struct sw_cluster *c = r->cluster;
    int of_host = 1, of_exchange = 0;
    for (int i = 0; i < c->n_links; i++) {
        const bool is_host = c->links[i].joint == SW_JOINT_HOST;
        of_host += is_host;
        of_exchange += is_host ? 0 : 1 + c->links[i].duplex;
        if (of_host > SW_CLUSTER_USES || of_exchange > SW_CLUSTER_USES) {
            return refuse_use(r, c->links[i].line, "links", i);
        }
    }
    for (int i = 0; i < c->n_disks; i++) {
        if (of_host + i + 1 > SW_CLUSTER_USES) {
            return refuse_use(r, c->disks[i].line, "disks", i);
        }
    }
    return SW_OK;
}

static sw_status check(const struct reader *r)
{
    SW_TRY(check_node(r));
    SW_TRY(check_uses(r));
    for (int i = 0; i < r->cluster->n_links; i++) {
        SW_TRY(check_link(r, i));
    }
    for (int i = 0; i < r->cluster->n_disks; i++) {
        const struct sw_cluster_disk *disk = &r->cluster->disks[i];
        SW_TRY(check_sharer(r, disk->shared_by, disk->line, "disks", i));
    }
    if (sw_cluster_disk_space(r->cluster) > MOST) {
        return refuse(r, r->cluster->disks[0].line, "disks",
                      "wanted at most %g bytes on a node, got %g", MOST,
                      sw_cluster_disk_space(r->cluster));
    }
    return check_joints(r);
}

/* Takes the document, also when it fails. */
static sw_status take(struct sw_json_doc *doc, const char *name, struct sw_cluster **out)
{
    struct sw_cluster *cluster = sw_alloc_zero("cluster", 1, sizeof *cluster);
    sw_status st = SW_E_NOMEM;
    if (!cluster) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a cluster");
        goto close;
    }
    sw_arena_init(&cluster->arena, "cluster");
    const struct reader r = {cluster, name, sw_json_root(doc)};
    cluster->path = sw_arena_strdup(&cluster->arena, name);
    if (!cluster->path) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a cluster");
        goto close;
    }
    SW_TRY_OR(close, take_object(&r, &sw_cluster_top, r.root, "", (char *)cluster));
    SW_TRY_OR(close, check(&r));
    SW_TRY_OR(close, sw_cluster_read_measured(cluster));
    *out = cluster;
    cluster = NULL;
close:
    sw_cluster_close(cluster);
    sw_json_close(doc);
    return st;
}

sw_status sw_cluster_parse(const char *name, const char *text, size_t len, struct sw_cluster **out)
{
    struct sw_json_doc *doc;
    SW_TRY(sw_json_parse(name, text, len, SW_JSON_STRICT, &doc));
    return take(doc, name, out);
}

sw_status sw_cluster_read(const char *path, struct sw_cluster **out)
{
    struct sw_json_doc *doc;
    SW_TRY(sw_json_read(path, SW_JSON_STRICT, &doc));
    return take(doc, path, out);
}

void sw_cluster_close(struct sw_cluster *cluster)
{
    if (cluster) {
        sw_arena_fini(&cluster->arena);
        sw_free(cluster);
    }
}
