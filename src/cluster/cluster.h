// SPDX-License-Identifier: Apache-2.0
// cluster - a machine room as a file: devices, hosts, disks, links and how many of each there are.
// Each number has its source, and says whether it is from a datasheet, measured or fitted. The
// format is in docs/clusters.md. Invariant: a cluster that was read is complete. Its rates are
// above 0, and each link has somebody on it.
#pragma once

#include "base/base.h"
#include "tensor/tensor.h"

enum sw_figure_kind {
    SW_FIGURE_ABSENT, /* optional, and the file does not have it */
    SW_FIGURE_DATASHEET,
    SW_FIGURE_MEASURED,
    SW_FIGURE_FITTED
};

struct sw_figure {
    double value; /* bytes, bytes/s, FLOP/s, seconds, or a number; 0 if it is absent */
    enum sw_figure_kind kind;
    const char *source; /* for people; NULL if it is absent */
    int line;           /* of the file; 0 = made by code */
};

/* Each of these has a disk or a link of its own. The devices below it share the rate. */
enum sw_sharer { SW_SHARER_DEVICE, SW_SHARER_SWITCH, SW_SHARER_NIC, SW_SHARER_NODE };

enum sw_joint {
    SW_JOINT_HOST,  /* a device and its host */
    SW_JOINT_PEERS, /* devices of a node */
    SW_JOINT_NODES, /* nodes */
    SW_JOINT_COUNT
};

enum { SW_CLUSTER_DTYPES = 3 }; /* f32, bf16, f16 */
/* Disks, links and memories that one transfer may use at once. A link of two directions that both
 * pass counts twice. */
enum { SW_CLUSTER_USES = 8 };

/* The time of a kernel, as it was measured. */
struct sw_cluster_kernel {
    const char *op;                /* name of the operation */
    enum sw_dtype dtype;           /* of the first operand that has floats */
    const struct sw_shape *shapes; /* [n_shapes] of its inputs and outputs, without absent ones */
    int n_shapes, line;
    double seconds;
};

struct sw_cluster_device {
    const char *name, *backend, *arch; /* "Tesla V100", "cuda", "hip" or "cpu", "sm_70" */
    struct sw_figure processors, memory, bandwidth;
    struct sw_figure peak[SW_CLUSTER_DTYPES]; /* absent: the device has no such products */
    struct sw_figure sustained;               /* share of the peak that large products reach */
    struct sw_figure launch;                  /* seconds of a kernel that has nothing to do */
    /* Edge of the block of a product that one processor computes. Absent: products of all shapes
     * are equally fast. */
    struct sw_figure tile;
    /* Bytes of a sum's terms, of one factor, at which a product has half of its speed. Absent: the
     * length of sums does not matter. */
    struct sw_figure sum;
    const char *measured; /* the file of `kernels`; NULL = there is none */
    struct sw_cluster_kernel *kernels;
    int n_kernels;
};

struct sw_cluster_host {
    struct sw_figure processors, memory, bandwidth;
    struct sw_figure adam; /* parameters updated per second; absent: bandwidth bounds it */
};

struct sw_cluster_node {
    struct sw_figure most;                                /* nodes of the cluster */
    struct sw_figure devices;                             /* per node */
    struct sw_figure devices_per_switch, devices_per_nic; /* absent: there are none */
};

/* A transfer passes all links of its joint. Each one's rate is shared by the devices below it. */
struct sw_cluster_link {
    const char *name;
    int joint, shared_by;     /* enum sw_joint, enum sw_sharer */
    bool duplex;              /* each direction has the rate; else both share it */
    struct sw_figure rate;    /* bytes/s */
    struct sw_figure latency; /* seconds */
    struct sw_figure reached; /* share of the rate that exchanges reach; absent = 1 */
    int line;
};

struct sw_cluster_disk {
    const char *name;
    int shared_by; /* enum sw_sharer */
    bool duplex;   /* reads and writes each have their rate at the same time */
    struct sw_figure count, space, read, write, latency; /* of one drive; count: per sharer */
    int line;
};

struct sw_cluster {
    const char *path, *name, *about;
    int64_t format;
    struct sw_cluster_node node;
    struct sw_cluster_device device;
    struct sw_cluster_host host;
    struct sw_cluster_link *links; /* [n_links], at least 1 */
    struct sw_cluster_disk *disks; /* [n_disks] */
    int n_links, n_disks;
    struct sw_arena arena; /* has all of the above */
};

/*
 * sw_cluster_open - reads a cluster.
 *
 * name         a name, looked up as clusters/NAME.json of the shared files (sw_share_find), or a
 *              file: it has a "/" or ends in ".json"
 * out          the caller's: sw_cluster_close
 *
 * SW_E_ARG     there is no cluster of that name; the message lists those that there are
 * SW_E_IO      the file cannot be read
 * SW_E_FORMAT  not JSON
 * SW_E_CONFIG  "file:line: key: what was wanted, and what was found"
 */
sw_status sw_cluster_open(const char *name, struct sw_cluster **out);
/* The same for text; name: for messages. */
sw_status sw_cluster_parse(const char *name, const char *text, size_t len, struct sw_cluster **out);
void sw_cluster_close(struct sw_cluster *cluster); /* NULL is allowed */
/* Appends the cluster as such a file; what is read from it equals the cluster. */
void sw_cluster_write(const struct sw_cluster *cluster, struct sw_str *out);

/* SW_E_CONFIG, naming key and line: more nodes or ranks than there are. nodes >= 1. */
sw_status sw_cluster_check_size(const struct sw_cluster *cluster, int64_t nodes, int64_t ranks);
/* FLOP/s of products of f32, bf16 or f16. Without a rate of its own, a dtype has that of f32. */
double sw_cluster_peak(const struct sw_cluster *cluster, enum sw_dtype dtype);
/* Seconds of a kernel with this operation, dtype and shapes; 0 = it was not measured. */
double sw_cluster_kernel_seconds(const struct sw_cluster *cluster,
                                 const struct sw_cluster_kernel *like);
/* Devices of a node that share one link or disk of that kind. */
int64_t sw_cluster_sharers(const struct sw_cluster *cluster, enum sw_sharer shared_by);
/* Bytes of all disks of a node; 0 = there are none. */
double sw_cluster_disk_space(const struct sw_cluster *cluster);
/* "datasheet", "measured" or "fitted". */
const char *sw_figure_kind_name(enum sw_figure_kind kind);
