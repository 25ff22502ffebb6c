// SPDX-License-Identifier: Apache-2.0
// Costs of transfers: what the ranks of a node share is taken to be used by all of them at once,
// since all ranks do the same at the same time.
#include <math.h>

#include "cost/private.h"

double sw_cost_node_ranks(const struct sw_cost_mesh *mesh)
{
    return fmin((double)mesh->ranks, mesh->cluster->node.devices.value);
}

/* ---- links ---- */

/* Ranks that use one link or disk of that kind. */
static double users_of(const struct sw_cost_mesh *mesh, int shared_by)
{
    const double there = (double)sw_cluster_sharers(mesh->cluster, (enum sw_sharer)shared_by);
    return fmin(there, sw_cost_node_ranks(mesh));
}

struct sw_cost_way sw_cost_way(const struct sw_cost_mesh *mesh, enum sw_joint joint, bool both)
{
    struct sw_cost_way way = {HUGE_VAL, 0};
    for (int i = 0; i < mesh->cluster->n_links; i++) {
        const struct sw_cluster_link *link = &mesh->cluster->links[i];
        if (link->joint != (int)joint) {
            continue;
        }
        double rate = link->rate.value / users_of(mesh, link->shared_by);
        rate *= both && link->reached.kind ? link->reached.value : 1;
        rate /= both && !link->duplex ? 2 : 1;
        way.rate = fmin(way.rate, rate);
        way.latency += link->latency.value;
    }
    return way;
}

double sw_cost_host_rate(const struct sw_cost_mesh *mesh)
{
    return sw_cost_way(mesh, SW_JOINT_HOST, false).rate;
}

static int64_t node_of(const struct sw_cost_mesh *mesh, int64_t rank)
{
    return rank / (int64_t)mesh->cluster->node.devices.value;
}

/* Members of a group that are on this rank's node, without this rank. */
static int near_ranks(const struct sw_cost_mesh *mesh, const struct sw_group *group)
{
    const int64_t home = node_of(mesh, group->ranks[group->me]);
    int n = -1;
    for (int i = 0; i < group->n; i++) {
        n += node_of(mesh, group->ranks[i]) == home;
    }
    return n;
}

/* Every rank sends to every other one. What stays in the node and what leaves it go beside each
 * other, each by its links. */
static struct sw_cost direct_cost(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                                  double bytes)
{
    const int others = group->n - 1, near = near_ranks(mesh, group), far = others - near;
    struct sw_cost cost = {0};
    if (others < 1) {
        return cost;
    }
    if (near > 0) {
        const struct sw_cost_way way = sw_cost_way(mesh, SW_JOINT_PEERS, true);
        cost.seconds = bytes * near / others / way.rate + way.latency;
    }
    if (far > 0) {
        const struct sw_cost_way way = sw_cost_way(mesh, SW_JOINT_NODES, true);
        cost.seconds = fmax(cost.seconds, bytes * far / others / way.rate + way.latency);
    }
    return cost;
}

/* Bytes pass from neighbour to neighbour. They enter a node once, over all adapters that serve its
 * members; other groups of the same axis have the node's other ranks, and their share of these. A
 * rank that sends `bytes` to n - 1 others lets n - 1 times as much of its own pass by, so each link
 * carries `bytes`. */
static struct sw_cost ring_cost(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                                double bytes)
{
    const int members = near_ranks(mesh, group) + 1, others = group->n - 1;
    struct sw_cost cost = {0};
    if (others < 1) {
        return cost;
    }
    if (members > 1) {
        const struct sw_cost_way way = sw_cost_way(mesh, SW_JOINT_PEERS, true);
        cost.seconds = bytes / way.rate + way.latency * (others - others / members);
    }
    if (members <= others) {
        const struct sw_cost_way way = sw_cost_way(mesh, SW_JOINT_NODES, true);
        const double hops = sw_ceil_div(group->n, members);
        cost.seconds = fmax(cost.seconds, bytes / (way.rate * members)) + way.latency * hops;
    }
    return cost;
}

struct sw_cost sw_cost_exchange(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                                double bytes)
{
    const bool rings = mesh->accounting && mesh->accounting->rings;
    return (rings ? ring_cost : direct_cost)(mesh, group, bytes);
}

struct sw_cost sw_cost_message(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                               int peer, double bytes)
{
    const bool is_near =
        node_of(mesh, group->ranks[peer]) == node_of(mesh, group->ranks[group->me]);
    const struct sw_cost_way way =
        sw_cost_way(mesh, is_near ? SW_JOINT_PEERS : SW_JOINT_NODES, true);
    return (struct sw_cost){.seconds = bytes / way.rate + way.latency};
}

/* ---- disks ---- */

/* All disks of the node work together. What they give passes the host's links, too. */
struct sw_cost sw_cost_disk(const struct sw_cost_mesh *mesh, bool reads, double bytes)
{
    const struct sw_cluster *c = mesh->cluster;
    double rate = 0, latency = 0;
    for (int i = 0; i < c->n_disks; i++) {
        const struct sw_cluster_disk *disk = &c->disks[i];
        const double each = reads ? disk->read.value : disk->write.value;
        rate += each * disk->count.value / users_of(mesh, disk->shared_by);
        latency = fmax(latency, disk->latency.value);
    }
    rate = fmin(rate, sw_cost_host_rate(mesh));
    return (struct sw_cost){.seconds = rate > 0 ? bytes / rate : 0, .latency = latency};
}

double sw_cost_disk_share(const struct sw_cluster *c)
{
    double share = 1;
    for (int i = 0; i < c->n_disks; i++) {
        share = c->disks[i].duplex ? share : 0.5;
    }
    return share;
}
