// SPDX-License-Identifier: Apache-2.0
// Costs from rates: those of kernels here, those of transfers in links.c; and walks of a step at
// these costs. The clock divides links, disks and hosts among the ranks that use them at the time.
// In an accounting that is not as planned, all ranks of a node use them at once.
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

/* The largest operand of an update is a state in f32, which has an element for each parameter. */
static struct sw_cost host_cost(const struct sw_cost_mesh *mesh, const struct sw_program *program,
                                const struct sw_instr *instr, double bytes,
                                struct sw_cost_ways *ways)
{
    double most;
    operand_bytes(program, instr, &most);
    return sw_cost_on_host(mesh, bytes, most / (double)sizeof(float), ways);
}

/* ---- instructions ---- */

static struct sw_cost cost_of(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                              int32_t i, struct sw_cost_ways *ways)
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
               : is_message               ? sw_cost_message(mesh, group, instr, all, ways)
                                          : sw_cost_exchange(mesh, group, all, ways);
    }
    const double bytes = (double)instr->bytes;
    switch (instr->verb) {
    case SW_VERB_KERNEL:
        return load == SW_LOAD_HOST ? host_cost(mesh, program, instr, work, ways)
                                    : kernel_cost(mesh, program, i, load, work);
    case SW_VERB_READ:
    case SW_VERB_WRITE:
        return sw_cost_disk(mesh, instr->verb == SW_VERB_READ, bytes, ways);
    default:
        return sw_cost_copy(mesh, instr->verb == SW_VERB_COPY_OUT, bytes, ways);
    }
}

sw_status sw_cost_fill(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                       struct sw_cost (*costs)[2], struct sw_cost_ways *ways)
{
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        costs[i][0] = costs[i][1] = cost_of(plan, mesh, i, ways);
    }
    if (ways && ways->failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the costs of a step");
    }
    return mesh->accounting ? sw_cost_kernels(plan, mesh, costs) : SW_OK;
}

sw_status sw_cost_instrs(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                         struct sw_cost (*costs)[2])
{
    return sw_cost_fill(plan, mesh, costs, NULL);
}

/* Ranks agree between phases by a message without content. */
static double meeting_of(const struct sw_cost_mesh *mesh)
{
    const bool far = (double)mesh->ranks > mesh->cluster->node.devices.value;
    return mesh->ranks == 1 ? 0 : sw_cost_latency(mesh, far ? SW_JOINT_NODES : SW_JOINT_PEERS);
}

/* With ways, reads and writes share disks by these. */
static struct sw_pace pace_of(const struct sw_cost_mesh *mesh, struct sw_cost (*costs)[2],
                              const struct sw_cost_ways *ways)
{
    const double share = ways ? 1 : sw_cost_disk_share(mesh->cluster);
    return (struct sw_pace){.costs = (const struct sw_cost(*)[2])costs,
                            .meeting = meeting_of(mesh),
                            .disk_share = {share, share},
                            .ways = ways ? ways->list : NULL};
}

static sw_status walk(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                      struct sw_cost (*costs)[2], struct sw_clock_report *out)
{
    const struct sw_pace pace = pace_of(mesh, costs, NULL);
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

/* ---- the plan's step on all ranks ---- */

struct pricing {
    const struct sw_cost_mesh *mesh;
    struct sw_cost_ways *ways; /* of each rank */
    sw_status st;              /* of the first rank whose costs failed */
};

static struct sw_pace price(void *ctx, int i, const struct sw_plan *plan,
                            struct sw_cost (*costs)[2])
{
    struct pricing *p = ctx;
    const sw_status st = sw_cost_fill(plan, p->mesh, costs, &p->ways[i]);
    p->st = p->st < 0 ? p->st : st;
    return pace_of(p->mesh, costs, &p->ways[i]);
}

sw_status sw_cost_walk(struct sw_clock_rank *ranks, const struct sw_cost_kinds *kinds,
                       const struct sw_cost_mesh *mesh, double *seconds)
{
    const size_t n = (size_t)kinds->n, things = (size_t)sw_cost_n_things(mesh->cluster);
    struct pricing pricing = {mesh, sw_alloc_zero("cost", n, sizeof *pricing.ways), SW_OK};
    const struct sw_prices prices = {price, &pricing};
    SW_TRY_ALLOC(pricing.ways, "the ranks of a step");
    for (size_t k = 0; k < n; k++) {
        ranks[k].shared = &kinds->shared[k * things];
    }
    const sw_status st = sw_clock_priced(ranks, kinds->n, kinds->of, &prices, seconds);
    for (size_t k = 0; k < n; k++) {
        sw_free(pricing.ways[k].list);
        if (st >= 0 && pricing.st < 0 && ranks[k].report) { /* walked at costs that are not whole */
            sw_free(ranks[k].report->instrs);
            ranks[k].report->instrs = NULL;
        }
    }
    sw_free(pricing.ways);
    return st < 0 ? st : pricing.st;
}

/* The rank of a stage that is given stands for its kind; others have plans made from its. own:
 * [kinds->n] all NULL; ranks: [kinds->n] */
static sw_status walk_kinds(struct sw_clock_rank *stages, int n, const struct sw_cost_kinds *kinds,
                            const struct sw_cost_mesh *mesh, struct sw_plan **own,
                            struct sw_clock_rank *ranks, double *seconds)
{
    for (int k = 0; k < kinds->n; k++) {
        const int stage = (int)((int64_t)kinds->first[k] * n / kinds->n_ranks);
        const struct sw_group *world = &stages[stage].plan->groups[SW_GROUP_WORLD];
        if (world->ranks[world->me] == kinds->first[k]) {
            ranks[k] = stages[stage];
            continue;
        }
        SW_TRY(sw_plan_open_like(stages[stage].plan, kinds->first[k], &own[k]));
        ranks[k] = (struct sw_clock_rank){.plan = own[k]};
    }
    SW_TRY(sw_cost_walk(ranks, kinds, mesh, seconds));
    for (int s = 0; s < n; s++) {
        const int k = kinds->of[(int64_t)s * kinds->n_ranks / n];
        stages[s].seconds = ranks[k].seconds;
        stages[s].idle = ranks[k].idle;
    }
    return SW_OK;
}

sw_status sw_cost_stages(struct sw_clock_rank *stages, int n, const struct sw_cost_mesh *mesh,
                         double *seconds)
{
    struct sw_cost_kinds kinds;
    SW_TRY(sw_cost_open_kinds(stages, n, false, mesh, &kinds));
    struct sw_plan **own = sw_alloc_zero("cost", (size_t)kinds.n, sizeof *own);
    struct sw_clock_rank *ranks = sw_alloc_zero("cost", (size_t)kinds.n, sizeof *ranks);
    const sw_status st = own && ranks
                             ? walk_kinds(stages, n, &kinds, mesh, own, ranks, seconds)
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for the ranks of a step");
    for (int k = 0; k < kinds.n && own; k++) {
        sw_plan_close_like(own[k]);
    }
    sw_free(own);
    sw_free(ranks);
    sw_cost_close_kinds(&kinds);
    return st;
}

/* In an accounting that is not as planned, one rank is walked, at costs of ranks that all do the
 * same. */
static sw_status walk_accounted(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                                struct sw_clock_report *out)
{
    struct sw_cost(*costs)[2] =
        sw_alloc_zero("cost", (size_t)plan->programs[0].n_instrs + 1, sizeof *costs);
    SW_TRY_ALLOC(costs, "the costs of a step");
    sw_status st = sw_cost_instrs(plan, mesh, costs);
    st = st < 0 ? st : walk_in(plan, mesh, costs, out);
    sw_free(costs);
    return st;
}

sw_status sw_cost_step(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                       struct sw_clock_report *out)
{
    struct sw_clock_rank rank = {.plan = plan, .report = out};
    double seconds = 0;
    if (mesh->accounting && !mesh->accounting->as_planned) {
        return walk_accounted(plan, mesh, out);
    }
    SW_TRY(sw_cost_stages(&rank, 1, mesh, &seconds));
    out->seconds = seconds;
    return SW_OK;
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
    const double near = sw_cost_joint_rate(mesh, SW_JOINT_PEERS);
    const double far = sw_cost_joint_rate(mesh, SW_JOINT_NODES);
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
                 [SW_LOAD_DISK_READ] = work_of(sw_cost_disk(mesh, true, large, NULL), large),
                 [SW_LOAD_DISK_WRITTEN] = work_of(sw_cost_disk(mesh, false, large, NULL), large),
                 [SW_LOAD_HOST] = c->host.bandwidth.value / sw_cost_node_ranks(mesh)},
        .node = isfinite(near) ? near : 0,
        .net = spans && isfinite(far) ? far : 0,
        .node_ranks = (int)c->node.devices.value,
        .latency = sw_cost_latency(mesh, spans ? SW_JOINT_NODES : SW_JOINT_PEERS)};
    out->work[SW_LOAD_SENT] = out->net > 0 ? out->net : out->node;
}
