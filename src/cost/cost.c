// SPDX-License-Identifier: Apache-2.0
// Costs from rates: those of kernels here, those of transfers in links.c. Everything that several
// ranks of a node share is taken to be used by all of them at once, since all ranks do the same at
// the same time.
#include "cost/cost.h"

#include <math.h>

#include "cost/private.h"

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
        *out_most = fmax(*out_most, bytes);
        sum += bytes;
    }
    return sum;
}

double sw_cost_efficiency(const struct sw_cluster *cluster, enum sw_dtype dtype, double m, double n,
                          double k)
{
    const struct sw_cluster_device *device = &cluster->device;
    double share = 1;
    if (device->tile.kind) {
        const double tile = device->tile.value, processors = device->processors.value;
        const double blocks = ceil(m / tile) * ceil(n / tile);
        share = m * n / (ceil(blocks / processors) * processors * tile * tile);
    }
    if (device->sum.kind) {
        const double bytes = k * (double)sw_dtype_bytes(dtype);
        share *= bytes / (bytes + device->sum.value);
    }
    return share;
}

/* The output of a product says how many sums it has, and its FLOPs how long they are. A loss keeps
 * nothing of its product, which has the size of a vocabulary and leaves nothing idle. */
static double efficiency_of(const struct sw_cluster *cluster, const struct sw_program *program,
                            int32_t i, enum sw_dtype dtype, double flops)
{
    struct sw_op op;
    struct sw_op_desc desc;
    sw_program_describe(program, i, &op, &desc);
    const struct sw_shape *out = &desc.out[0].shape;
    const bool is_loss = sw_op_has(desc.op, SW_TRAIT_LABELS);
    const double all = out->rank > 1 && !is_loss ? (double)sw_shape_elems(out) : 0;
    if (all <= 0) {
        return 1;
    }
    const double n = (double)out->dims[out->rank - 1];
    return sw_cost_efficiency(cluster, dtype, all / n, n, flops / (2 * all));
}

/* The slower one of arithmetic and memory, after the launch. */
static struct sw_cost kernel_cost(const struct sw_cost_mesh *mesh, const struct sw_program *program,
                                  int32_t i, enum sw_load load, double work)
{
    static const enum sw_dtype dtypes[] = {[SW_LOAD_PRODUCTS_F32] = SW_F32,
                                           [SW_LOAD_PRODUCTS_BF16] = SW_BF16,
                                           [SW_LOAD_PRODUCTS_F16] = SW_F16};
    const struct sw_cluster_device *device = &mesh->cluster->device;
    const double measured = sw_cost_measured(mesh->cluster, program, i);
    double most;
    if (measured > 0) {
        return (struct sw_cost){.seconds = measured};
    }
    const bool is_product = load < SW_LOAD_OTHER;
    const double bytes = is_product ? operand_bytes(program, &program->instrs[i], &most) : work;
    double seconds = bytes / device->bandwidth.value;
    if (is_product) {
        const double rate = sw_cluster_peak(mesh->cluster, dtypes[load]) * device->sustained.value;
        const double share = efficiency_of(mesh->cluster, program, i, dtypes[load], work);
        seconds = fmax(seconds, work / (rate * share));
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
        seconds = fmax(seconds, most / (double)sizeof(float) / host->adam.value);
    }
    return (struct sw_cost){.seconds = seconds * sw_cost_node_ranks(mesh)};
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
        const struct sw_group *group = &plan->groups[instr->exchange.group];
        const bool is_message = instr->verb == SW_VERB_SEND || instr->verb == SW_VERB_RECV;
        return instr->exchange.batch <= 0 ? (struct sw_cost){0}
               : is_message               ? sw_cost_message(mesh, group, instr->exchange.peer, all)
                                          : sw_cost_exchange(mesh, group, all);
    }
    const double bytes = (double)instr->bytes;
    switch (instr->verb) {
    case SW_VERB_KERNEL:
        return load == SW_LOAD_HOST ? host_cost(mesh, program, instr, work)
                                    : kernel_cost(mesh, program, i, load, work);
    case SW_VERB_READ:
    case SW_VERB_WRITE:
        return sw_cost_disk(mesh, instr->verb == SW_VERB_READ, bytes);
    default: {
        const struct sw_cost_way way = sw_cost_way(mesh, SW_JOINT_HOST, false);
        return (struct sw_cost){.seconds = bytes / way.rate, .latency = way.latency};
    }
    }
}

sw_status sw_cost_instrs(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                         struct sw_cost (*costs)[2])
{
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        costs[i][0] = costs[i][1] = cost_of(plan, mesh, i);
    }
    return mesh->accounting ? sw_cost_kernels(plan, mesh, costs) : SW_OK;
}

/* Ranks agree between phases by a message without content. */
static double meeting_of(const struct sw_cost_mesh *mesh)
{
    const bool far = (double)mesh->ranks > mesh->cluster->node.devices.value;
    return mesh->ranks == 1
               ? 0
               : sw_cost_way(mesh, far ? SW_JOINT_NODES : SW_JOINT_PEERS, true).latency;
}

static struct sw_pace pace_of(const struct sw_cost_mesh *mesh, struct sw_cost (*costs)[2])
{
    return (struct sw_pace){.costs = (const struct sw_cost(*)[2])costs,
                            .meeting = meeting_of(mesh),
                            .disk_share = sw_cost_disk_share(mesh->cluster)};
}

static sw_status walk(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                      struct sw_cost (*costs)[2], struct sw_clock_report *out)
{
    const struct sw_pace pace = pace_of(mesh, costs);
    return sw_clock_step(plan, &pace, out);
}

/* Work beside the walk lengthens it by what is left of the longest queue. */
static void add(const struct sw_cost_added *added, const double *moved, int32_t n,
                struct sw_clock_report *clock)
{
    int longest = 0;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        longest = added->beside[q] > added->beside[longest] ? q : longest;
        clock->alone[q] += added->alone[q] + added->beside[q];
        clock->most += added->alone[q] + added->beside[q];
    }
    const double left = fmax(0, added->beside[longest] - clock->seconds);
    clock->seconds += left;
    clock->part[longest] += left;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        clock->seconds += added->alone[q];
        clock->part[q] += added->alone[q];
        clock->bound = clock->part[q] > clock->part[clock->bound] ? (enum sw_queue)q : clock->bound;
    }
    for (int32_t i = 0; i < n; i++) {
        clock->instrs[i].alone += moved[i];
        clock->instrs[i].charge += moved[i];
    }
}

static int32_t longest_of(const struct sw_program *program, const struct sw_clock_report *clock)
{
    int32_t longest = -1;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const double least = longest >= 0 ? clock->instrs[longest].charge : 0;
        const enum sw_queue queue = program->instrs[i].queue;
        longest = queue == clock->bound && clock->instrs[i].charge > least ? i : longest;
    }
    return longest;
}

/* Walks the step as planned, to learn how often each instruction runs; then in the accounting. */
static sw_status walk_in(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                         struct sw_cost (*costs)[2], struct sw_clock_report *out)
{
    const struct sw_program *program = &plan->programs[0];
    struct sw_clock_report as_planned;
    struct sw_cost_added added = {0};
    double *moved = sw_alloc_zero("cost", (size_t)program->n_instrs + 1, sizeof *moved);
    SW_TRY_ALLOC(moved, "the costs of a step");
    sw_status st = walk(plan, mesh, costs, &as_planned);
    if (st >= 0) {
        sw_cost_account(plan, mesh, &as_planned, costs, moved, &added);
        sw_free(as_planned.instrs);
        st = walk(plan, mesh, costs, out);
    }
    if (st >= 0) {
        add(&added, moved, program->n_instrs, out);
        out->longest = longest_of(program, out);
    }
    sw_free(moved);
    return st;
}

sw_status sw_cost_step(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                       struct sw_clock_report *out)
{
    struct sw_cost(*costs)[2] =
        sw_alloc_zero("cost", (size_t)plan->programs[0].n_instrs + 1, sizeof *costs);
    SW_TRY_ALLOC(costs, "the costs of a step");
    const bool as_planned = !mesh->accounting || mesh->accounting->as_planned;
    sw_status st = sw_cost_instrs(plan, mesh, costs);
    st = st < 0 ? st : (as_planned ? walk : walk_in)(plan, mesh, costs, out);
    sw_free(costs);
    return st;
}

/* ---- pipelines ---- */

struct pricing {
    const struct sw_cost_mesh *mesh;
    sw_status st; /* of the first stage whose costs failed */
};

static struct sw_pace price(void *ctx, int i, const struct sw_plan *plan,
                            struct sw_cost (*costs)[2])
{
    struct pricing *p = ctx;
    (void)i;
    const sw_status st = sw_cost_instrs(plan, p->mesh, costs);
    p->st = p->st < 0 ? p->st : st;
    return pace_of(p->mesh, costs);
}

sw_status sw_cost_stages(struct sw_clock_rank *stages, int n, const struct sw_cost_mesh *mesh,
                         double *seconds)
{
    struct pricing pricing = {mesh, SW_OK};
    const struct sw_prices prices = {price, &pricing};
    SW_TRY(sw_clock_priced_stages(stages, n, &prices, seconds));
    return pricing.st;
}

/* ---- as the rates of a machine ---- */

static double work_of(struct sw_cost cost, double work)
{
    return cost.seconds > 0 ? work / cost.seconds : 0;
}

void sw_cost_rates(const struct sw_cost_mesh *mesh, struct sw_machine_rates *out)
{
    static const double large = 1e9; /* bytes that hide a latency */
    const struct sw_cluster *c = mesh->cluster;
    const struct sw_cost_way near = sw_cost_way(mesh, SW_JOINT_PEERS, true);
    const struct sw_cost_way far = sw_cost_way(mesh, SW_JOINT_NODES, true);
    const bool spans = (double)mesh->ranks > c->node.devices.value;
    const double share = c->device.sustained.value;
    const double copied = 2 * sw_cost_host_rate(mesh); /* bytes read and bytes written */
    *out = (struct sw_machine_rates){
        .work = {[SW_LOAD_PRODUCTS_F32] = share * sw_cluster_peak(c, SW_F32),
                 [SW_LOAD_PRODUCTS_BF16] = share * sw_cluster_peak(c, SW_BF16),
                 [SW_LOAD_PRODUCTS_F16] = share * sw_cluster_peak(c, SW_F16),
                 [SW_LOAD_OTHER] = c->device.bandwidth.value,
                 [SW_LOAD_COPIES_IN] = copied,
                 [SW_LOAD_COPIES_OUT] = copied,
                 [SW_LOAD_DISK_READ] = work_of(sw_cost_disk(mesh, true, large), large),
                 [SW_LOAD_DISK_WRITTEN] = work_of(sw_cost_disk(mesh, false, large), large),
                 [SW_LOAD_HOST] = c->host.bandwidth.value / sw_cost_node_ranks(mesh)},
        .node = isfinite(near.rate) ? near.rate : 0,
        .net = spans && isfinite(far.rate) ? far.rate : 0,
        .node_ranks = (int)c->node.devices.value,
        .latency = spans ? far.latency : near.latency};
    out->work[SW_LOAD_SENT] = out->net > 0 ? out->net : out->node;
}
