// SPDX-License-Identifier: Apache-2.0
// Clusters by name, and simple questions about one.
#include "cluster/cluster.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/private.h"

enum { MOST_NAMES = 64, NAME_CAP = 64 };

struct names {
    char text[MOST_NAMES][NAME_CAP];
    int n;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void list_names(struct names *out)
{
    char folder[PATH_MAX];
    out->n = 0;
    DIR *dir = sw_share_find("clusters", folder, sizeof folder) ? opendir(folder) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir)) && out->n < MOST_NAMES;) {
        const size_t n = strlen(entry->d_name);
        if (n > 5 && n - 5 < NAME_CAP && strcmp(entry->d_name + n - 5, ".json") == 0) {
            snprintf(out->text[out->n++], NAME_CAP, "%.*s", (int)(n - 5), entry->d_name);
        }
    }
    if (dir) {
        closedir(dir);
    }
    qsort(out->text, (size_t)out->n, NAME_CAP, by_text);
}

static sw_status no_such(const char *name, const char *path)
{
    struct names known;
    const char *pointers[MOST_NAMES];
    struct sw_str list = {0};
    list_names(&known);
    for (int i = 0; i < known.n; i++) {
        pointers[i] = known.text[i];
        sw_str_printf(&list, "%s%s", i > 0 ? ", " : "", known.text[i]);
    }
    const char *nearest = sw_nearest(name, pointers, (size_t)known.n);
    const sw_status st =
        known.n == 0 ? SW_FAIL(SW_E_ARG,
                               "no cluster \"%.80s\": there is no %s; SPILLWAY_SHARE=FOLDER names "
                               "the folder that has clusters/",
                               name, path)
                     : SW_FAIL(SW_E_ARG,
                               "no cluster \"%.80s\"%s; wanted a file, by a name with \"/\" or "
                               "\".json\", or one of %s",
                               name, sw_hint(nearest).text, sw_str_text(&list));
    sw_str_fini(&list);
    return st;
}

sw_status sw_cluster_open(const char *name, struct sw_cluster **out)
{
    char file[256], path[PATH_MAX];
    const size_t n = strlen(name);
    if (strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".json") == 0)) {
        return sw_cluster_read(name, out);
    }
    snprintf(file, sizeof file, "clusters/%.200s.json", name);
    if (n == 0 || !sw_share_find(file, path, sizeof path)) {
        return no_such(name, path);
    }
    return sw_cluster_read(path, out);
}

static sw_status too_large(const struct sw_cluster *c, const char *key, const struct sw_figure *at,
                           int64_t wanted, const char *what, double most)
{
    return SW_FAIL(SW_E_CONFIG, "%s:%d: %s: wanted %lld %s, but the cluster has %.0f", c->path,
                   at->line, key, (long long)wanted, what, most);
}

sw_status sw_cluster_check_size(const struct sw_cluster *c, int64_t nodes, int64_t ranks)
{
    if ((double)nodes > c->node.most.value) {
        return too_large(c, "node.nodes", &c->node.most, nodes, "nodes", c->node.most.value);
    }
    const double most = (double)nodes * c->node.devices.value;
    if ((double)ranks > most) {
        char what[64];
        snprintf(what, sizeof what, "ranks on %lld node%s", (long long)nodes,
                 nodes == 1 ? "" : "s");
        return too_large(c, "node.devices", &c->node.devices, ranks, what, most);
    }
    return SW_OK;
}

double sw_cluster_peak(const struct sw_cluster *c, enum sw_dtype dtype)
{
    const int at = dtype == SW_BF16 ? 1 : dtype == SW_F16 ? 2 : 0;
    const struct sw_figure *own = &c->device.peak[at];
    return own->kind ? own->value : c->device.peak[0].value;
}

int64_t sw_cluster_sharers(const struct sw_cluster *c, enum sw_sharer shared_by)
{
    const struct sw_figure *const of[] = {[SW_SHARER_DEVICE] = NULL,
                                          [SW_SHARER_SWITCH] = &c->node.devices_per_switch,
                                          [SW_SHARER_NIC] = &c->node.devices_per_nic,
                                          [SW_SHARER_NODE] = &c->node.devices};
    return of[shared_by] ? (int64_t)of[shared_by]->value : 1;
}

double sw_cluster_disk_space(const struct sw_cluster *c)
{
    double sum = 0;
    for (int i = 0; i < c->n_disks; i++) {
        const struct sw_cluster_disk *disk = &c->disks[i];
        const double each = disk->count.value * disk->space.value;
        sum += each * c->node.devices.value /
               (double)sw_cluster_sharers(c, (enum sw_sharer)disk->shared_by);
    }
    return sum;
}

const char *sw_figure_kind_name(enum sw_figure_kind kind)
{
    return sw_cluster_kinds[kind];
}
