// SPDX-License-Identifier: Apache-2.0
// Turns rates into costs of instructions. A given rate applies to any size, and uses no shared
// processors. Measurements are per kernel, or per size.
#include <math.h>
#include <string.h>

#include "walk/walk.h"

void sw_speeds_close(struct sw_speeds *speeds)
{
    sw_free(speeds->kernels);
    speeds->kernels = NULL;
}

/* Cost of moving so many bytes. Seconds are interpolated between points. Below the first point they
 * are those of that point; beyond the last one they are proportional to the size. Latency and
 * processors are those of the next larger point, or of the last one. */
static struct sw_cost cost_at(const struct sw_rate_curve *curve, double bytes)
{
    const struct sw_rate_point *last = &curve->at[curve->n - 1];
    struct sw_cost cost = last->cost;
    if (bytes >= last->bytes) {
        cost.seconds *= bytes / last->bytes;
        return cost;
    }
    int k = 0;
    while (curve->at[k].bytes < bytes) {
        k++;
    }
    cost = curve->at[k].cost;
    if (k > 0) {
        const struct sw_rate_point *low = &curve->at[k - 1], *high = &curve->at[k];
        const double part = (bytes - low->bytes) / (high->bytes - low->bytes);
        cost.seconds = low->cost.seconds + part * (high->cost.seconds - low->cost.seconds);
    }
    return cost;
}

/* Exchanges that only move bytes do so as a gather does, if they are not measured. */
static const struct sw_rate_curve *curve_of(const struct sw_speeds *speeds, enum sw_verb verb)
{
    static const enum sw_curve curves[] = {
        [SW_VERB_COPY_IN] = SW_CURVE_COPY_IN,    [SW_VERB_COPY_OUT] = SW_CURVE_COPY_OUT,
        [SW_VERB_READ] = SW_CURVE_READ,          [SW_VERB_WRITE] = SW_CURVE_WRITE,
        [SW_VERB_REDUCE] = SW_CURVE_REDUCE,      [SW_VERB_GATHER] = SW_CURVE_GATHER,
        [SW_VERB_MERGE] = SW_CURVE_GATHER,       [SW_VERB_ALL_GATHER] = SW_CURVE_MOVE,
        [SW_VERB_REDUCE_SCATTER] = SW_CURVE_SUM, [SW_VERB_ALL_TO_ALL] = SW_CURVE_MOVE,
        [SW_VERB_ALL_REDUCE] = SW_CURVE_SUM,     [SW_VERB_BROADCAST] = SW_CURVE_MOVE,
        [SW_VERB_SEND] = SW_CURVE_SEND,          [SW_VERB_RECV] = SW_CURVE_RECEIVE};
    const enum sw_curve curve = curves[verb];
    const bool moves =
        curve == SW_CURVE_MOVE || curve == SW_CURVE_SEND || curve == SW_CURVE_RECEIVE;
    return &speeds->curves[moves && speeds->curves[curve].n == 0 ? SW_CURVE_GATHER : curve];
}

/* True if a transfer moves rows of a table one by one. *n: their number, *row: bytes of each; not
 * set if false. */
static bool by_rows(const struct sw_program *program, const struct sw_instr *instr, double *n,
                    double *row)
{
    const struct sw_operand *operands = &program->operands[instr->operands];
    if ((instr->verb != SW_VERB_READ && instr->verb != SW_VERB_COPY_IN) || instr->n_in < 3) {
        return false;
    }
    *n = (double)(operands[2].bytes / sizeof(int32_t));
    *row = *n > 0 ? (double)operands[1].bytes / *n : 0;
    return true;
}

/* Measured cost of a transfer or an exchange. An exchange has the cost of its whole batch. */
static struct sw_cost measured(const struct sw_speeds *speeds, const struct sw_program *program,
                               int32_t i)
{
    const struct sw_instr *instr = &program->instrs[i];
    const bool disk = instr->verb == SW_VERB_READ;
    const struct sw_rate_curve *curve = curve_of(speeds, instr->verb);
    double n, row, bytes = 0;
    if (by_rows(program, instr, &n, &row)) {
        struct sw_cost cost = cost_at(disk ? &speeds->curves[SW_CURVE_ROW] : curve, row);
        cost.seconds *= n;
        return cost;
    }
    const bool exchange = instr->verb >= SW_VERB_REDUCE;
    for (int32_t k = i; k < i + (exchange ? instr->exchange.batch : 1); k++) {
        bytes += (double)program->instrs[k].bytes;
    }
    struct sw_cost cost = cost_at(curve, bytes);
    if (instr->verb == SW_VERB_ALL_REDUCE) { /* the sums return */
        cost.seconds += cost_at(curve_of(speeds, SW_VERB_ALL_GATHER), bytes).seconds;
    }
    return cost;
}

static bool is_measured(const struct sw_speeds *speeds, const struct sw_instr *instr)
{
    return instr->verb == SW_VERB_KERNEL ? speeds->kernels != NULL
                                         : curve_of(speeds, instr->verb)->n > 0 &&
                                               (instr->verb != SW_VERB_ALL_REDUCE ||
                                                curve_of(speeds, SW_VERB_ALL_GATHER)->n > 0);
}

static int node_of(const struct sw_machine_rates *rates, int rank)
{
    return rates->node_ranks > 0 ? rank / rates->node_ranks : 0;
}

double sw_exchange_rate(const struct sw_plan *plan, const struct sw_instr *instr,
                        const struct sw_machine_rates *rates)
{
    const struct sw_group *group = &plan->groups[instr->exchange.group];
    const bool two = instr->verb == SW_VERB_SEND || instr->verb == SW_VERB_RECV;
    const int mine = node_of(rates, group->ranks[group->me]);
    bool share = true;
    for (int k = 0; k < group->n; k++) {
        const bool takes_part = !two || k == instr->exchange.peer;
        share = share && (!takes_part || node_of(rates, group->ranks[k]) == mine);
    }
    const double rate = share ? rates->node : rates->net;
    return rate > 0 ? rate : rates->work[SW_LOAD_SENT];
}

/* Bytes of memory that an instruction reads and writes. A transfer reads and writes what it moves,
 * a disk one of both, and so does each side of a message. */
static double memory_bytes(const struct sw_program *program, int32_t i)
{
    const struct sw_instr *instr = &program->instrs[i];
    double sum = 0;
    if (instr->verb == SW_VERB_READ || instr->verb == SW_VERB_WRITE ||
        instr->verb == SW_VERB_SEND || instr->verb == SW_VERB_RECV) {
        return (double)instr->bytes;
    }
    if (instr->verb == SW_VERB_KERNEL) {
        for (int k = 0; k < instr->n_in + instr->n_out; k++) {
            const struct sw_operand *operand = &program->operands[instr->operands + k];
            sum += operand->tier < SW_TIER_COUNT ? (double)operand->bytes : 0;
        }
        return sum;
    }
    const bool exchange = instr->verb >= SW_VERB_REDUCE;
    for (int32_t k = i; k < i + (exchange ? instr->exchange.batch : 1); k++) {
        sum += 2 * (double)program->instrs[k].bytes;
    }
    return sum;
}

/* Caches are not considered, so the share of small operands is too large. */
static void take_bandwidth(double bytes, double bandwidth, struct sw_cost *cost)
{
    cost->bandwidth = cost->seconds > 0 ? fmin(1, bytes / cost->seconds / bandwidth) : 0;
}

/* Adds to an exchange at a given rate, if it is measured, what it takes in this machine's memory
 * before and after: handing over, copies and sums. */
static void add_handling(const struct sw_cost *in_memory, struct sw_cost *cost)
{
    const double seconds = cost->seconds + in_memory->seconds;
    cost->cores = seconds > 0 ? in_memory->cores * in_memory->seconds / seconds : 0;
    cost->seconds = seconds;
}

/* Costs of an instruction in the first micro-step and in later ones. A given rate precedes a
 * measurement. Without either, the costs are 0 and unknown[load] is set. An exchange inside a batch
 * has no cost. */
static void find_cost(const struct sw_plan *plan, const struct sw_speeds *speeds, int32_t i,
                      bool *unknown, struct sw_cost out[2])
{
    const struct sw_program *program = &plan->programs[0];
    const struct sw_instr *instr = &program->instrs[i];
    double work = 0, all = 0;
    const enum sw_load load = sw_instr_load(plan, program, i, &work);
    const bool exchange = instr->verb >= SW_VERB_REDUCE;
    for (int32_t k = i; k < i + (exchange ? instr->exchange.batch : 1); k++) {
        sw_instr_load(plan, program, k, &work);
        all += work;
    }
    out[0] = out[1] = (struct sw_cost){0};
    if (all <= 0) {
        return;
    }
    const double rate =
        exchange ? sw_exchange_rate(plan, instr, &speeds->given) : speeds->given.work[load];
    const bool is_handled = exchange && is_measured(speeds, instr);
    if (rate > 0) {
        const struct sw_cost in_memory =
            is_handled ? measured(speeds, program, i) : (struct sw_cost){0};
        out[0].seconds = all / rate + (exchange ? speeds->given.latency : 0);
        add_handling(&in_memory, &out[0]);
        out[1] = out[0];
    } else if (!is_measured(speeds, instr)) {
        unknown[load] = true;
    } else if (instr->verb == SW_VERB_KERNEL) {
        out[0] = speeds->kernels[i][0];
        out[1] = speeds->kernels[i][1];
    } else {
        out[0] = out[1] = measured(speeds, program, i);
    }
    if ((rate <= 0 || is_handled) && speeds->bandwidth > 0) {
        const double bytes = memory_bytes(program, i);
        take_bandwidth(bytes, speeds->bandwidth, &out[0]);
        take_bandwidth(bytes, speeds->bandwidth, &out[1]);
    }
}

void sw_speeds_costs(const struct sw_plan *plan, const struct sw_speeds *speeds,
                     bool unknown[SW_LOAD_COUNT], struct sw_cost (*costs)[2])
{
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        unknown[k] = false;
    }
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        find_cost(plan, speeds, i, unknown, costs[i]);
    }
}

static double share_of(double measured)
{
    return measured > 0 ? measured : 0.5;
}

struct sw_pace sw_speeds_pace(const struct sw_speeds *speeds, struct sw_cost (*costs)[2])
{
    const double latency = speeds->given.latency;
    return (struct sw_pace){
        .costs = (const struct sw_cost(*)[2])costs,
        .meeting = latency > 0 ? latency : speeds->meeting,
        .cores = speeds->cores,
        .wake = speeds->wake,
        .issue = speeds->issue,
        .yield = speeds->yield,
        .phases = speeds->phases,
        .disk_beside = speeds->disk_beside,
        .disk_share = {share_of(speeds->disk_share.reads), share_of(speeds->disk_share.writes)}};
}

static sw_status open_costs(const struct sw_plan *plan, const struct sw_speeds *speeds,
                            bool unknown[SW_LOAD_COUNT], struct sw_cost (**out)[2])
{
    struct sw_cost(*costs)[2] =
        sw_alloc_zero("walk", (size_t)plan->programs[0].n_instrs + 1, sizeof *costs);
    SW_TRY_ALLOC(costs, "the costs of a step");
    sw_speeds_costs(plan, speeds, unknown, costs);
    *out = costs;
    return SW_OK;
}

sw_status sw_speeds_step(const struct sw_plan *plan, const struct sw_speeds *speeds,
                         bool unknown[SW_LOAD_COUNT], struct sw_clock_report *out)
{
    struct sw_cost(*costs)[2];
    SW_TRY(open_costs(plan, speeds, unknown, &costs));
    const struct sw_pace pace = sw_speeds_pace(speeds, costs);
    const sw_status st = sw_clock_step(plan, &pace, out);
    sw_free(costs);
    return st;
}

/* ---- the stages of a pipeline ---- */

struct pricing {
    const struct sw_speeds *const *speeds;
    bool *unknown; /* [SW_LOAD_COUNT] of any stage */
};

static struct sw_pace price(void *ctx, int i, const struct sw_plan *plan,
                            struct sw_cost (*costs)[2])
{
    const struct pricing *p = ctx;
    bool its[SW_LOAD_COUNT];
    sw_speeds_costs(plan, p->speeds[i], its, costs);
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        p->unknown[k] = p->unknown[k] || its[k];
    }
    return sw_speeds_pace(p->speeds[i], costs);
}

sw_status sw_speeds_stages(struct sw_clock_rank *stages, const struct sw_speeds *const *speeds,
                           int n, bool unknown[SW_LOAD_COUNT], double *seconds)
{
    struct pricing pricing = {speeds, unknown};
    const struct sw_prices prices = {price, &pricing};
    memset(unknown, 0, SW_LOAD_COUNT * sizeof *unknown);
    return sw_clock_priced(stages, n, NULL, &prices, seconds);
}

/* ---- the time of a step alone ---- */

void sw_builtin_rates(struct sw_machine_rates *out)
{
    static const struct sw_machine_rates rates = {
        .work = {[SW_LOAD_PRODUCTS_F32] = 500e9,
                 [SW_LOAD_PRODUCTS_BF16] = 1000e9,
                 [SW_LOAD_PRODUCTS_F16] = 500e9,
                 [SW_LOAD_OTHER] = 20e9,
                 [SW_LOAD_COPIES_IN] = 20e9,
                 [SW_LOAD_COPIES_OUT] = 20e9,
                 [SW_LOAD_DISK_READ] = 3e9,
                 [SW_LOAD_DISK_WRITTEN] = 1.5e9,
                 [SW_LOAD_SENT] = 1.2e9,
                 [SW_LOAD_HOST] = 20e9},
        .latency = 50e-6,
    };
    *out = rates;
}

/* A micro-step is a forward and a backward. The first one has costs of its own. */
enum { MICRO_STEP = 2, SECOND = MICRO_STEP };

static bool is_alike(const struct sw_step_phase *a, const struct sw_step_phase *b)
{
    return a->action == SW_STEP_RUN && b->action == SW_STEP_RUN && a->turn == 0 && b->turn == 0 &&
           a->program == b->program && a->segment == b->segment && a->n_micro == b->n_micro &&
           a->is_last == b->is_last && a->drains == b->drains && a->joins == b->joins;
}

/* Number of micro-steps from the second on that are alike and begin and end with nothing in
 * flight: each takes the same time. */
static int32_t count_alike(const struct sw_step *step)
{
    const struct sw_step_phase *second = &step->phases[SECOND];
    int32_t n = 0;
    if (step->n_phases < SECOND + MICRO_STEP || !second[-1].drains || !second[1].drains) {
        return 0;
    }
    while (SECOND + MICRO_STEP * (n + 1) <= step->n_phases &&
           is_alike(&second[MICRO_STEP * n], &second[0]) &&
           is_alike(&second[MICRO_STEP * n + 1], &second[1])) {
        n++;
    }
    return n;
}

/* Seconds that n phases of a step take. */
static sw_status walk_phases(const struct sw_plan *plan, const struct sw_pace *pace,
                             struct sw_step_phase *phases, int32_t n, double *out)
{
    struct sw_plan part = *plan;
    struct sw_clock_rank rank = {.plan = &part, .pace = pace};
    part.step.phases = phases;
    part.step.n_phases = n;
    SW_TRY(sw_clock_ranks(&rank, 1));
    *out = rank.seconds;
    return SW_OK;
}

/* Walks one of the micro-steps that are alike, and the step without the others. */
static sw_status walk_once(const struct sw_plan *plan, const struct sw_pace *pace, double *out)
{
    const struct sw_step *step = &plan->step;
    const int32_t others = sw_max_i64(count_alike(step) - 1, 0);
    const int32_t n = step->n_phases - MICRO_STEP * others;
    double one = 0, rest = 0;
    if (others == 0) {
        return walk_phases(plan, pace, step->phases, step->n_phases, out);
    }
    struct sw_step_phase *phases = sw_alloc("walk", (size_t)n * sizeof *phases);
    SW_TRY_ALLOC(phases, "the time of a step");
    memcpy(phases, step->phases, SECOND * sizeof *phases);
    memcpy(phases + SECOND, step->phases + step->n_phases - (n - SECOND),
           (size_t)(n - SECOND) * sizeof *phases);
    sw_status st = walk_phases(plan, pace, phases, n, &rest);
    st = st < 0 ? st : walk_phases(plan, pace, step->phases + SECOND, MICRO_STEP, &one);
    sw_free(phases);
    *out = rest + one * others;
    return st;
}

sw_status sw_speeds_seconds(const struct sw_plan *plan, const struct sw_machine_rates *rates,
                            double *out)
{
    const struct sw_speeds speeds = {.given = *rates};
    bool unknown[SW_LOAD_COUNT];
    struct sw_cost(*costs)[2];
    SW_TRY(open_costs(plan, &speeds, unknown, &costs));
    const struct sw_pace pace = sw_speeds_pace(&speeds, costs);
    const sw_status st = walk_once(plan, &pace, out);
    sw_free(costs);
    return st;
}

/* ---- a stage that waits for no other one ---- */

/* Walks the phases of the first n micro-batches, and those of the step as a whole. */
static sw_status walk_some(const struct sw_plan *plan, const struct sw_pace *pace, int64_t n,
                           double *out)
{
    const struct sw_step *step = &plan->step;
    int32_t count = 0;
    struct sw_step_phase *phases = sw_alloc("walk", (size_t)step->n_phases * sizeof *phases);
    SW_TRY_ALLOC(phases, "the time of a stage");
    for (int32_t i = 0; i < step->n_phases; i++) {
        if (step->phases[i].turn == 0 || step->phases[i].round < n) {
            phases[count++] = step->phases[i];
        }
    }
    const sw_status st = walk_phases(plan, pace, phases, count, out);
    sw_free(phases);
    return st;
}

sw_status sw_speeds_alone(const struct sw_plan *plan, const struct sw_machine_rates *rates,
                          double *seconds, double *micro_step)
{
    enum { FIRST = 2 };
    const int64_t rounds = plan->step.rounds;
    const int64_t few = sw_min_i64(rounds, FIRST), more = sw_min_i64(rounds, FIRST + 1);
    const struct sw_speeds speeds = {.given = *rates};
    bool unknown[SW_LOAD_COUNT];
    struct sw_cost(*costs)[2];
    double with = 0, without = 0;
    SW_TRY(open_costs(plan, &speeds, unknown, &costs));
    const struct sw_pace pace = sw_speeds_pace(&speeds, costs);
    sw_status st = walk_some(plan, &pace, few, &without);
    st = st < 0 ? st : walk_some(plan, &pace, more, &with);
    sw_free(costs);
    *micro_step = more > few ? with - without : with / (double)sw_max_i64(rounds, 1);
    *seconds = with + *micro_step * (double)(rounds - more);
    return st;
}
