// SPDX-License-Identifier: Apache-2.0
// Costs of transfers, exchanges and updates on the host: the time alone, and the share of each
// link, disk and host that they use meanwhile. With whom a rank shares these is in kinds.c.
#include <math.h>

#include "cost/private.h"

/* ---- what is shared ---- */

/* Numbers of things, in the order in which the clock divides them. Links and disks have two, one
 * for each direction, which are the same if they are not duplex. */
static int disk_number(const struct sw_cluster *c, int disk, bool writes)
{
    return 2 * disk + (writes && c->disks[disk].duplex);
}

static int memory_number(const struct sw_cluster *c)
{
    return 2 * c->n_disks;
}

static int processors_number(const struct sw_cluster *c)
{
    return 2 * c->n_disks + 1;
}

static int link_number(const struct sw_cluster *c, int link, bool out)
{
    return 2 * (c->n_disks + 1 + link) + (out && c->links[link].duplex);
}

int sw_cost_n_things(const struct sw_cluster *c)
{
    return 2 * (c->n_disks + 1 + c->n_links);
}

int64_t sw_cost_sharers(const struct sw_cluster *c, int thing)
{
    const int link = thing / 2 - c->n_disks - 1;
    const int shared_by = thing < memory_number(c) ? c->disks[thing / 2].shared_by
                          : link >= 0              ? c->links[link].shared_by
                                                   : SW_SHARER_NODE;
    return sw_cluster_sharers(c, (enum sw_sharer)shared_by);
}

double sw_cost_node_ranks(const struct sw_cost_mesh *mesh)
{
    return fmin((double)mesh->ranks, mesh->cluster->node.devices.value);
}

/* ---- ways ---- */

/* The bytes that a unit of work moves, and what it computes. */
struct burden {
    double in[SW_JOINT_COUNT], out[SW_JOINT_COUNT]; /* bytes over the links of a joint */
    double read, written;                           /* bytes of disks */
    double memory;                                  /* bytes of the host's memory */
    double updated;                                 /* parameters that the host updates */
};

_Static_assert((int)SW_WAY_USES >= (int)SW_CLUSTER_USES,
               "a way has room for what a cluster lets it use");

static void add_use(struct sw_way *way, int thing, double seconds)
{
    int i = 0;
    while (i < way->n && way->uses[i].kind != thing) {
        i++;
    }
    if (seconds > 0) {
        SW_ASSERT(i < SW_WAY_USES);
        way->uses[i].kind = thing;
        way->uses[i].share = (i < way->n ? way->uses[i].share : 0) + seconds;
        way->n = i < way->n ? way->n : i + 1;
    }
}

/* All disks of the node work together. */
static void add_disks(const struct sw_cluster *c, bool writes, double bytes, struct sw_way *way)
{
    double rate = 0;
    for (int i = 0; i < c->n_disks; i++) {
        const struct sw_cluster_disk *disk = &c->disks[i];
        rate += (writes ? disk->write.value : disk->read.value) * disk->count.value;
    }
    for (int i = 0; i < c->n_disks; i++) {
        add_use(way, disk_number(c, i, writes), bytes / rate);
    }
}

static void add_links(const struct sw_cluster *c, const struct burden *b, struct sw_way *way)
{
    for (int i = 0; i < c->n_links; i++) {
        const struct sw_cluster_link *link = &c->links[i];
        const bool exchanges = link->joint != SW_JOINT_HOST;
        const double reached = exchanges && link->reached.kind ? link->reached.value : 1;
        const double rate = link->rate.value * reached;
        add_use(way, link_number(c, i, false), b->in[link->joint] / rate);
        add_use(way, link_number(c, i, true), b->out[link->joint] / rate);
    }
}

/* The shares that a way uses at full speed. Returns the seconds of a unit of work alone. */
static double find_way(const struct sw_cluster *c, const struct burden *b, struct sw_way *way)
{
    double seconds = 0;
    *way = (struct sw_way){.n = 0};
    add_disks(c, false, b->read, way);
    add_disks(c, true, b->written, way);
    add_use(way, memory_number(c), b->memory / c->host.bandwidth.value);
    if (c->host.adam.kind) {
        add_use(way, processors_number(c), b->updated / c->host.adam.value);
    }
    add_links(c, b, way);
    for (int i = 0; i < way->n; i++) {
        seconds = fmax(seconds, way->uses[i].share);
    }
    for (int i = 0; i < way->n; i++) {
        way->uses[i].share /= seconds;
    }
    return seconds;
}

/* How much longer a way takes if all ranks of a node use it. */
static double crowd_of(const struct sw_cost_mesh *mesh, const struct sw_way *way)
{
    double most = 1;
    for (int i = 0; i < way->n; i++) {
        const double there = (double)sw_cost_sharers(mesh->cluster, way->uses[i].kind);
        most = fmax(most, way->uses[i].share * fmin(there, sw_cost_node_ranks(mesh)));
    }
    return most;
}

static bool are_alike(const struct sw_way *a, const struct sw_way *b)
{
    static const double rounding = 1e-9;
    bool alike = a->n == b->n;
    for (int i = 0; i < a->n && alike; i++) {
        const struct sw_use *x = &a->uses[i], *y = &b->uses[i];
        alike = x->kind == y->kind && fabs(x->share - y->share) <= rounding * x->share;
    }
    return alike;
}

/* 1 + the index of a way in the list. */
static int32_t put_way(struct sw_cost_ways *ways, const struct sw_way *way)
{
    for (int i = ways->n - 1; i >= 0; i--) {
        if (are_alike(&ways->list[i], way)) {
            return i + 1;
        }
    }
    if (ways->n == ways->cap) {
        const int cap = ways->cap > 0 ? 2 * ways->cap : 16;
        struct sw_way *larger = sw_realloc("cost", ways->list, (size_t)cap * sizeof *larger);
        if (!larger) {
            ways->failed = true;
            return 0;
        }
        ways->list = larger;
        ways->cap = cap;
    }
    ways->list[ways->n++] = *way;
    return ways->n;
}

static struct sw_cost cost_of(const struct sw_cost_mesh *mesh, const struct burden *b, double work,
                              struct sw_cost_ways *ways)
{
    struct sw_way way;
    const double seconds = work * find_way(mesh->cluster, b, &way);
    if (!ways) {
        return (struct sw_cost){.seconds = seconds * crowd_of(mesh, &way)};
    }
    return (struct sw_cost){.seconds = seconds, .way = way.n > 0 ? put_way(ways, &way) : 0};
}

/* ---- links ---- */

double sw_cost_latency(const struct sw_cost_mesh *mesh, enum sw_joint joint)
{
    double latency = 0;
    for (int i = 0; i < mesh->cluster->n_links; i++) {
        const struct sw_cluster_link *link = &mesh->cluster->links[i];
        latency += link->joint == (int)joint ? link->latency.value : 0;
    }
    return latency;
}

double sw_cost_joint_rate(const struct sw_cost_mesh *mesh, enum sw_joint joint)
{
    struct burden b = {.in = {0}};
    b.in[joint] = 1;
    b.out[joint] = joint != SW_JOINT_HOST;
    return 1 / cost_of(mesh, &b, 1, NULL).seconds;
}

double sw_cost_host_rate(const struct sw_cost_mesh *mesh)
{
    return sw_cost_joint_rate(mesh, SW_JOINT_HOST);
}

struct sw_cost sw_cost_copy(const struct sw_cost_mesh *mesh, bool out, double bytes,
                            struct sw_cost_ways *ways)
{
    struct burden b = {.memory = 1};
    (out ? b.out : b.in)[SW_JOINT_HOST] = 1;
    struct sw_cost cost = cost_of(mesh, &b, bytes, ways);
    cost.latency = sw_cost_latency(mesh, SW_JOINT_HOST);
    return cost;
}

int64_t sw_cost_node_of(const struct sw_cost_mesh *mesh, int64_t rank)
{
    return rank / (int64_t)mesh->cluster->node.devices.value;
}

/* Members of a group that are on this rank's node, without this rank. */
static int near_ranks(const struct sw_cost_mesh *mesh, const struct sw_group *group)
{
    const int64_t home = sw_cost_node_of(mesh, group->ranks[group->me]);
    int n = -1;
    for (int i = 0; i < group->n; i++) {
        n += sw_cost_node_of(mesh, group->ranks[i]) == home;
    }
    return n;
}

/* Both ways: bytes for each that an exchange sends and receives. */
static struct burden both_ways(double near, double far)
{
    return (struct burden){.in = {[SW_JOINT_PEERS] = near, [SW_JOINT_NODES] = far},
                           .out = {[SW_JOINT_PEERS] = near, [SW_JOINT_NODES] = far}};
}

/* Bytes that stay in the node and bytes that leave it go beside each other. latency: of each */
static struct sw_cost beside(const struct sw_cost_mesh *mesh, double bytes, double near, double far,
                             const double latency[2], struct sw_cost_ways *ways)
{
    const struct burden b = both_ways(near, far);
    const struct burden only[2] = {both_ways(near, 0), both_ways(0, far)};
    struct sw_cost cost = cost_of(mesh, &b, bytes, ways);
    double all = 0;
    for (int i = 0; i < 2; i++) {
        struct sw_way way;
        const double seconds = bytes * find_way(mesh->cluster, &only[i], &way);
        const double crowd = ways ? 1 : crowd_of(mesh, &way);
        all = fmax(all, seconds * crowd + latency[i]);
    }
    cost.latency = fmax(0, all - cost.seconds);
    return cost;
}

/* Every rank sends to every other one, each by its links. */
static struct sw_cost direct_cost(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                                  double bytes, struct sw_cost_ways *ways)
{
    const int others = group->n - 1, near = near_ranks(mesh, group), far = others - near;
    const double latency[2] = {near > 0 ? sw_cost_latency(mesh, SW_JOINT_PEERS) : 0,
                               far > 0 ? sw_cost_latency(mesh, SW_JOINT_NODES) : 0};
    return beside(mesh, bytes, (double)near / others, (double)far / others, latency, ways);
}

/* Bytes pass from neighbour to neighbour. They enter a node once, over all adapters that serve its
 * members; other groups of the same axis have the node's other ranks, and their share of these. A
 * rank that sends `bytes` to n - 1 others lets n - 1 times as much of its own pass by, so each link
 * carries `bytes`. */
static struct sw_cost ring_cost(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                                double bytes, struct sw_cost_ways *ways)
{
    const int members = near_ranks(mesh, group) + 1, others = group->n - 1;
    const bool near = members > 1, far = members <= others;
    const int hops = others / members; /* between nodes, as NCCL's cost model counts them */
    const double latency[2] = {near ? sw_cost_latency(mesh, SW_JOINT_PEERS) * (others - hops) : 0,
                               0};
    struct sw_cost cost = beside(mesh, bytes, near, far ? 1.0 / members : 0, latency, ways);
    cost.latency += sw_cost_latency(mesh, SW_JOINT_NODES) * hops;
    return cost;
}

struct sw_cost sw_cost_exchange(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                                double bytes, struct sw_cost_ways *ways)
{
    const bool rings = mesh->accounting && mesh->accounting->rings;
    return group->n < 2 ? (struct sw_cost){0}
                        : (rings ? ring_cost : direct_cost)(mesh, group, bytes, ways);
}

struct sw_cost sw_cost_message(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                               const struct sw_instr *instr, double bytes,
                               struct sw_cost_ways *ways)
{
    const int64_t home = sw_cost_node_of(mesh, group->ranks[group->me]);
    const bool is_near = sw_cost_node_of(mesh, group->ranks[instr->exchange.peer]) == home;
    const enum sw_joint joint = is_near ? SW_JOINT_PEERS : SW_JOINT_NODES;
    struct burden b = {.in = {0}};
    (instr->verb == SW_VERB_SEND ? b.out : b.in)[joint] = 1;
    struct sw_cost cost = cost_of(mesh, &b, bytes, ways);
    cost.latency = sw_cost_latency(mesh, joint);
    return cost;
}

/* ---- disks and hosts ---- */

/* Bytes of disks pass the host's memory and links, too. */
struct sw_cost sw_cost_disk(const struct sw_cost_mesh *mesh, bool reads, double bytes,
                            struct sw_cost_ways *ways)
{
    const struct sw_cluster *c = mesh->cluster;
    struct burden b = {.read = reads, .written = !reads, .memory = 1};
    (reads ? b.in : b.out)[SW_JOINT_HOST] = 1;
    if (c->n_disks == 0) {
        return (struct sw_cost){0};
    }
    struct sw_cost cost = cost_of(mesh, &b, bytes, ways);
    for (int i = 0; i < c->n_disks; i++) {
        cost.latency = fmax(cost.latency, c->disks[i].latency.value);
    }
    return cost;
}

struct sw_cost sw_cost_on_host(const struct sw_cost_mesh *mesh, double bytes, double parameters,
                               struct sw_cost_ways *ways)
{
    const struct burden b = {.memory = bytes, .updated = parameters};
    return cost_of(mesh, &b, 1, ways);
}

double sw_cost_disk_share(const struct sw_cluster *c)
{
    double share = 1;
    for (int i = 0; i < c->n_disks; i++) {
        share = c->disks[i].duplex ? share : 0.5;
    }
    return share;
}
