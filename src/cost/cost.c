// SPDX-License-Identifier: Apache-2.0
// Costs from rates. Everything that several ranks of a node share is taken to be used by all of
// them at once, since all ranks do the same at the same time.
#include "cost/cost.h"

#include <math.h>

static double min_of(double a, double b)
{
    return a < b ? a : b;
}

static double max_of(double a, double b)
{
    return a > b ? a : b;
}

/* Ranks of a full node. */
static double node_ranks(const struct sw_cost_mesh *mesh)
{
    return min_of((double)mesh->ranks, mesh->cluster->node.devices.value);
}

/* ---- links ---- */

/* A rank's rate and latency through all links of a joint. */
struct way {
    double rate, latency;
};

/* Ranks that use one link or disk of that kind. */
static double users_of(const struct sw_cost_mesh *mesh, int shared_by)
{
    const double there = (double)sw_cluster_sharers(mesh->cluster, (enum sw_sharer)shared_by);
    return min_of(there, node_ranks(mesh));
}

/* both: bytes go both ways at once, as in an exchange. */
static struct way way_of(const struct sw_cost_mesh *mesh, enum sw_joint joint, bool both)
{
    struct way way = {HUGE_VAL, 0};
    for (int i = 0; i < mesh->cluster->n_links; i++) {
        const struct sw_cluster_link *link = &mesh->cluster->links[i];
        if (link->joint != (int)joint) {
            continue;
        }
        double rate = link->rate.value / users_of(mesh, link->shared_by);
        rate *= both && link->reached.kind ? link->reached.value : 1;
        rate /= both && !link->duplex ? 2 : 1;
        way.rate = min_of(way.rate, rate);
        way.latency += link->latency.value;
    }
    return way;
}

double sw_cost_host_rate(const struct sw_cost_mesh *mesh)
{
    return way_of(mesh, SW_JOINT_HOST, false).rate;
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
static struct sw_cost exchange_cost(const struct sw_cost_mesh *mesh, const struct sw_group *group,
                                    double bytes)
{
    const int others = group->n - 1, near = near_ranks(mesh, group), far = others - near;
    struct sw_cost cost = {0};
    if (others < 1) {
        return cost;
    }
    if (near > 0) {
        const struct way way = way_of(mesh, SW_JOINT_PEERS, true);
        cost.seconds = bytes * near / others / way.rate + way.latency;
    }
    if (far > 0) {
        const struct way way = way_of(mesh, SW_JOINT_NODES, true);
        cost.seconds = max_of(cost.seconds, bytes * far / others / way.rate + way.latency);
    }
    return cost;
}

/* ---- disks ---- */

/* All disks of the node work together. What they give passes the host's links, too. */
static struct sw_cost disk_cost(const struct sw_cost_mesh *mesh, bool reads, double bytes)
{
    const struct sw_cluster *c = mesh->cluster;
    double rate = 0, latency = 0;
    for (int i = 0; i < c->n_disks; i++) {
        const struct sw_cluster_disk *disk = &c->disks[i];
        const double each = reads ? disk->read.value : disk->write.value;
        rate += each * disk->count.value / users_of(mesh, disk->shared_by);
        latency = max_of(latency, disk->latency.value);
    }
    rate = min_of(rate, sw_cost_host_rate(mesh));
    return (struct sw_cost){.seconds = rate > 0 ? bytes / rate : 0, .latency = latency};
}

/* Share of their rate that reads and writes have beside each other. */
static double disk_share(const struct sw_cluster *c)
{
    double share = 1;
    for (int i = 0; i < c->n_disks; i++) {
        share = c->disks[i].duplex ? share : 0.5;
    }
    return share;
}

/* ---- kernels ---- */

/* Bytes of all operands, and of the largest one. */
static double operand_bytes(const struct sw_program *program, const struct sw_instr *instr,
                            double *out_most)
{
    double sum = 0;
    *out_most = 0;
    for (int k = 0; k < instr->n_in + instr->n_out; k++) {
        const struct sw_operand *operand = &program->operands[instr->operands + k];
        const double bytes = operand->tier < SW_TIER_COUNT ? (double)operand->bytes : 0;
        *out_most = max_of(*out_most, bytes);
        sum += bytes;
    }
    return sum;
}

/* The slower one of arithmetic and memory, after the launch. */
static struct sw_cost kernel_cost(const struct sw_cost_mesh *mesh, const struct sw_program *program,
                                  const struct sw_instr *instr, enum sw_load load, double work)
{
    static const enum sw_dtype dtypes[] = {[SW_LOAD_PRODUCTS_F32] = SW_F32,
                                           [SW_LOAD_PRODUCTS_BF16] = SW_BF16,
                                           [SW_LOAD_PRODUCTS_F16] = SW_F16};
    const struct sw_cluster_device *device = &mesh->cluster->device;
    double most;
    const bool is_product = load < SW_LOAD_OTHER;
    const double bytes = is_product ? operand_bytes(program, instr, &most) : work;
    double seconds = bytes / device->bandwidth.value;
    if (is_product) {
        const double peak = sw_cluster_peak(mesh->cluster, dtypes[load]);
        seconds = max_of(seconds, work / (peak * device->sustained.value));
    }
    return (struct sw_cost){.seconds = seconds + device->launch.value};
}

/* Ranks of a node share its memory and its processors. The largest operand of an update is a state
 * in f32, which has an element for each parameter. */
static struct sw_cost host_cost(const struct sw_cost_mesh *mesh, const struct sw_program *program,
                                const struct sw_instr *instr, double bytes)
{
    const struct sw_cluster_host *host = &mesh->cluster->host;
    double seconds = bytes / host->bandwidth.value, most;
    if (host->adam.kind) {
        operand_bytes(program, instr, &most);
        seconds = max_of(seconds, most / (double)sizeof(float) / host->adam.value);
    }
    return (struct sw_cost){.seconds = seconds * node_ranks(mesh)};
}

/* ---- instructions ---- */

static struct sw_cost cost_of(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                              int32_t i)
{
    const struct sw_program *program = &plan->programs[0];
    const struct sw_instr *instr = &program->instrs[i];
    double work = 0, all = 0;
    const enum sw_load load = sw_instr_load(plan, program, i, &work);
    if (instr->verb >= SW_VERB_REDUCE) {
        for (int32_t k = i; k < i + instr->exchange.batch; k++) {
            sw_instr_load(plan, program, k, &work);
            all += work;
        }
        return instr->exchange.batch > 0
                   ? exchange_cost(mesh, &plan->groups[instr->exchange.group], all)
                   : (struct sw_cost){0};
    }
    const double bytes = (double)instr->bytes;
    switch (instr->verb) {
    case SW_VERB_KERNEL:
        return load == SW_LOAD_HOST ? host_cost(mesh, program, instr, work)
                                    : kernel_cost(mesh, program, instr, load, work);
    case SW_VERB_READ:
    case SW_VERB_WRITE:
        return disk_cost(mesh, instr->verb == SW_VERB_READ, bytes);
    default: {
        const struct way way = way_of(mesh, SW_JOINT_HOST, false);
        return (struct sw_cost){.seconds = bytes / way.rate, .latency = way.latency};
    }
    }
}

void sw_cost_instrs(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                    struct sw_cost (*costs)[2])
{
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        costs[i][0] = costs[i][1] = cost_of(plan, mesh, i);
    }
}

/* Ranks agree between phases by a message without content. */
static double meeting_of(const struct sw_cost_mesh *mesh)
{
    const bool far = (double)mesh->ranks > mesh->cluster->node.devices.value;
    return mesh->ranks == 1 ? 0 : way_of(mesh, far ? SW_JOINT_NODES : SW_JOINT_PEERS, true).latency;
}

sw_status sw_cost_step(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                       struct sw_clock_report *out)
{
    struct sw_cost(*costs)[2] =
        sw_alloc_zero("cost", (size_t)plan->programs[0].n_instrs + 1, sizeof *costs);
    SW_TRY_ALLOC(costs, "the costs of a step");
    sw_cost_instrs(plan, mesh, costs);
    const struct sw_pace pace = {.costs = (const struct sw_cost(*)[2])costs,
                                 .meeting = meeting_of(mesh),
                                 .disk_share = disk_share(mesh->cluster)};
    const sw_status st = sw_clock_step(plan, &pace, out);
    sw_free(costs);
    return st;
}
