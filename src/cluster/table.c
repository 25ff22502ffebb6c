// SPDX-License-Identifier: Apache-2.0
// The keys of a cluster's file, one row each. Reading, refusing and writing walk these rows.
#include "cluster/table.h"

static const char *const joints[] = {"device-host", "device-device", "node-node", NULL};
static const char *const sharers[] = {"device", "switch", "nic", "node", NULL};
static const char *const backends[] = {"cuda", "hip", "cpu", NULL};
const char *const sw_cluster_kinds[] = {"absent", "datasheet", "measured", "fitted", NULL};

#define GIB 1073741824.0
#define FIGURE(k, s, member, factor, ...)                                                          \
    {                                                                                              \
        .key = (k), .type = ROW_FIGURE, .at = offsetof(s, member), .unit = (factor), __VA_ARGS__   \
    }
#define ROW(k, t, s, member, ...)                                                                  \
    {                                                                                              \
        .key = (k), .type = (t), .at = offsetof(s, member), __VA_ARGS__                            \
    }
#define SECTION(list)                                                                              \
    {                                                                                              \
        .rows = (list), .n_rows = SW_LEN(list)                                                     \
    }
#define LIST_OF(list, s)                                                                           \
    {                                                                                              \
        .rows = (list), .n_rows = SW_LEN(list), .bytes = sizeof(s), .at_line = offsetof(s, line)   \
    }

static const struct cluster_row node_rows[] = {
    FIGURE("nodes", struct sw_cluster_node, most, 1, .is_whole = true),
    FIGURE("devices", struct sw_cluster_node, devices, 1, .is_whole = true),
    FIGURE("devices_per_switch", struct sw_cluster_node, devices_per_switch, 1, .is_whole = true,
           .is_optional = true),
    FIGURE("devices_per_nic", struct sw_cluster_node, devices_per_nic, 1, .is_whole = true,
           .is_optional = true),
};
static const struct cluster_section node = SECTION(node_rows);

static const struct cluster_row peak_rows[SW_CLUSTER_DTYPES] = {
    {"f32", ROW_FIGURE, .at = 0, .unit = 1e12},
    {"bf16", ROW_FIGURE, .at = sizeof(struct sw_figure), .unit = 1e12, .is_optional = true},
    {"f16", ROW_FIGURE, .at = 2 * sizeof(struct sw_figure), .unit = 1e12, .is_optional = true},
};
static const struct cluster_section peak = SECTION(peak_rows);

static const struct cluster_row device_rows[] = {
    ROW("name", ROW_TEXT, struct sw_cluster_device, name),
    ROW("backend", ROW_NAME, struct sw_cluster_device, backend, .words = backends),
    ROW("arch", ROW_TEXT, struct sw_cluster_device, arch),
    FIGURE("processors", struct sw_cluster_device, processors, 1, .is_whole = true),
    FIGURE("memory_gib", struct sw_cluster_device, memory, GIB),
    FIGURE("bandwidth_gb_s", struct sw_cluster_device, bandwidth, 1e9),
    ROW("peak_tflops", ROW_OBJECT, struct sw_cluster_device, peak, .section = &peak),
    FIGURE("sustained_share", struct sw_cluster_device, sustained, 1, .is_share = true),
    FIGURE("launch_us", struct sw_cluster_device, launch, 1e-6, .may_be_zero = true),
    FIGURE("product_tile", struct sw_cluster_device, tile, 1, .is_whole = true,
           .is_optional = true),
    FIGURE("product_sum_bytes", struct sw_cluster_device, sum, 1, .may_be_zero = true,
           .is_optional = true),
    ROW("measured", ROW_TEXT, struct sw_cluster_device, measured, .is_optional = true),
};
static const struct cluster_section device = SECTION(device_rows);

static const struct cluster_row host_rows[] = {
    FIGURE("processors", struct sw_cluster_host, processors, 1, .is_whole = true),
    FIGURE("memory_gib", struct sw_cluster_host, memory, GIB),
    FIGURE("bandwidth_gb_s", struct sw_cluster_host, bandwidth, 1e9),
    FIGURE("adam_gparam_s", struct sw_cluster_host, adam, 1e9, .is_optional = true),
};
static const struct cluster_section host = SECTION(host_rows);

static const struct cluster_row link_rows[] = {
    ROW("name", ROW_TEXT, struct sw_cluster_link, name),
    ROW("joins", ROW_WORD, struct sw_cluster_link, joint, .words = joints),
    ROW("shared_by", ROW_WORD, struct sw_cluster_link, shared_by, .words = sharers),
    ROW("duplex", ROW_FLAG, struct sw_cluster_link, duplex),
    FIGURE("rate_gb_s", struct sw_cluster_link, rate, 1e9),
    FIGURE("latency_us", struct sw_cluster_link, latency, 1e-6, .may_be_zero = true),
    FIGURE("reached_share", struct sw_cluster_link, reached, 1, .is_share = true,
           .is_optional = true),
};
static const struct cluster_section link_section = LIST_OF(link_rows, struct sw_cluster_link);

static const struct cluster_row disk_rows[] = {
    ROW("name", ROW_TEXT, struct sw_cluster_disk, name),
    ROW("shared_by", ROW_WORD, struct sw_cluster_disk, shared_by, .words = sharers),
    ROW("duplex", ROW_FLAG, struct sw_cluster_disk, duplex),
    FIGURE("count", struct sw_cluster_disk, count, 1, .is_whole = true),
    FIGURE("space_gb", struct sw_cluster_disk, space, 1e9),
    FIGURE("read_gb_s", struct sw_cluster_disk, read, 1e9),
    FIGURE("write_gb_s", struct sw_cluster_disk, write, 1e9),
    FIGURE("latency_us", struct sw_cluster_disk, latency, 1e-6, .may_be_zero = true),
};
static const struct cluster_section disk = LIST_OF(disk_rows, struct sw_cluster_disk);

static const struct cluster_row top_rows[] = {
    ROW("format", ROW_FORMAT, struct sw_cluster, format),
    ROW("name", ROW_TEXT, struct sw_cluster, name),
    ROW("about", ROW_TEXT, struct sw_cluster, about),
    ROW("node", ROW_OBJECT, struct sw_cluster, node, .section = &node),
    ROW("device", ROW_OBJECT, struct sw_cluster, device, .section = &device),
    ROW("host", ROW_OBJECT, struct sw_cluster, host, .section = &host),
    ROW("links", ROW_LIST, struct sw_cluster, links, .section = &link_section,
        .at_count = offsetof(struct sw_cluster, n_links)),
    ROW("disks", ROW_LIST, struct sw_cluster, disks, .section = &disk,
        .at_count = offsetof(struct sw_cluster, n_disks)),
};
const struct cluster_section sw_cluster_top = SECTION(top_rows);
