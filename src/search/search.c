// SPDX-License-Identifier: Apache-2.0
// The search for a plan. One try is a policy, with the slots and tiles that its budgets require.
// "auto" settings and the advice after a refusal each try a list of policies. The number of tries
// depends on the work of planning, never on a clock, so that all ranks agree.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "search/search.h"

/* Elements of an offloaded tensor that are updated at a time, and bytes that travel ahead of their
 * use. Both take a disk a few milliseconds. */
enum { UPDATE_ELEMS = 1 << 21, LEAST_TRANSFER_BYTES = 1 << 26, MOST_TRANSFER_BYTES = 1 << 30 };

enum { LEAST_TILE = 1 << 15 }; /* in bytes */

/* Number of instructions that takes about a second to plan. Optional tries stop there. */
enum { MOST_INSTRS = 1 << 18 };

struct look {
    const struct sw_search *s;
    struct sw_search_graphs graphs;
    struct sw_plan *plan;    /* plan of the last try, if it fits */
    struct sw_policy policy; /* of the last try */
    /* largest share of the policies tried since it was reset, see struct sw_verdict */
    double share;
    /* refusal of the last try that did not fit; the message is about it */
    struct sw_plan_refusal said;
    size_t enough[SW_TIER_COUNT]; /* see struct sw_plan_options */
};

void sw_policy_print(const struct sw_policy *p, struct sw_str *out)
{
    sw_str_printf(out, "micro-batch %lld x %lld, recompute %lld", (long long)p->micro_batch,
                  (long long)p->micro_batches, (long long)p->recompute.every);
    if (p->recompute.blocks > 0) {
        sw_str_printf(out, " of the first %lld blocks", (long long)p->recompute.blocks);
    }
    sw_str_printf(out, ", %s, stage %d, states on %s", sw_schedule_name(p->schedule), p->stage,
                  sw_tier_name(p->states_tier));
    if (p->states_tier != SW_TIER_DEVICE && p->states_share > 0 && p->states_share < 1) {
        sw_str_printf(out, " (a share of %g)", p->states_share);
    }
    sw_str_printf(out, "%s, parameters on %s, budgets", p->host_updates ? " updated there" : "",
                  sw_tier_name(p->params_tier));
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sw_str_printf(out, " %zu", p->budget[t]);
    }
    sw_str_printf(out, ", tiles of %zu bytes, slots %d, ahead %zu bytes and %lld elements",
                  p->tile_bytes, p->two_slots ? 2 : 1, p->transfer_bytes,
                  (long long)p->prefetch_elems);
}

/* ---- from a policy to options ---- */

static struct sw_plan_options options_of(const struct look *l, const struct sw_policy *policy)
{
    struct sw_plan_options o = l->s->fixed;
    o.policy = *policy;
    o.extra_fingerprint = l->graphs.extra_fingerprint;
    memcpy(o.enough, l->enough, sizeof o.enough);
    return o;
}

static bool may_take_two_slots(const struct look *l, const struct sw_policy *policy)
{
    const struct sw_plan_options o = options_of(l, policy);
    return sw_may_take_two_slots(&o);
}

/* Ignores the restrictions by tiles, which are known only with the plan. */
static bool may_take_two_slots_whole(const struct look *l, const struct sw_policy *policy)
{
    struct sw_policy whole = *policy;
    whole.tile_bytes = 0;
    return may_take_two_slots(l, &whole);
}

/* Default to two slots if only the disk needs the extra room, or if every other tier that does has
 * a budget. */
static bool wants_two_slots(const struct look *l, const struct sw_policy *p)
{
    const enum sw_tier states = p->states_tier, params = p->params_tier;
    if (l->s->slots == 1 || l->s->one_slot || !may_take_two_slots_whole(l, p)) {
        return false;
    }
    return l->s->slots == 2 || ((states == SW_TIER_DISK || p->budget[states] > 0) &&
                                (params == SW_TIER_DISK || p->budget[params] > 0));
}

/* Sets the settings that follow from the chosen tiers. */
static void choose_tiers(const struct look *l, struct sw_policy *p)
{
    const struct sw_search *s = l->s;
    const bool offloads = p->states_tier != SW_TIER_DEVICE;
    const bool moves =
        offloads || p->params_tier != SW_TIER_DEVICE || p->activations_tier != SW_TIER_DEVICE;
    p->grads_tier = offloads ? SW_TIER_HOST : SW_TIER_DEVICE;
    p->update_elems = moves ? sw_min_i64(s->sub_group_elems, UPDATE_ELEMS) : 0;
    memcpy(p->budget, s->memory, sizeof p->budget);
    if (!moves && p->budget[SW_TIER_DEVICE] == 0) {
        /* nothing is in another tier, and on the CPU both are the same memory */
        p->budget[SW_TIER_DEVICE] = p->budget[SW_TIER_HOST];
    }
    p->two_slots = wants_two_slots(l, p);
    const size_t half = p->budget[SW_TIER_DEVICE] / 2;
    p->transfer_bytes = !moves                        ? 0
                        : s->transfer_bytes > 0       ? s->transfer_bytes
                        : half < LEAST_TRANSFER_BYTES ? LEAST_TRANSFER_BYTES
                        : half > MOST_TRANSFER_BYTES  ? MOST_TRANSFER_BYTES
                                                      : half;
}

/* True if two slots are asked for on the disk, but are impossible. */
static bool wants_other_slots(const struct look *l, const struct sw_policy *p)
{
    const bool on_disk =
        l->s->fixed.rule && (p->states_tier == SW_TIER_DISK || p->params_tier == SW_TIER_DISK);
    return l->s->slots == 2 && on_disk && !may_take_two_slots_whole(l, p);
}

/* ---- a try ---- */

/* Number of micro-steps of a step: micro-batches per rank, rounded up. */
static int64_t rounds_of(const struct look *l, const struct sw_policy *p)
{
    return sw_ceil_div(p->micro_batches, sw_data_ranks(&l->s->fixed));
}

static bool trains(const struct look *l)
{
    return l->graphs.specs[0].kind == SW_PROGRAM_TRAIN;
}

/* Number of blocks of the model; 0 if it is not trained. */
static int64_t count_blocks(const struct look *l)
{
    const struct sw_graph *g = l->graphs.specs[0].graph;
    int64_t n = 0;
    for (int32_t i = 0; trains(l) && i < g->n_scopes; i++) {
        n += g->scopes[i].is_block;
    }
    return n;
}

/* Fails with SW_E_CONFIG if a technique that the policy wants cannot be had. */
static sw_status refuse(const struct look *l, const struct sw_policy *policy)
{
    struct sw_policy asked = *policy;
    asked.two_slots = policy->two_slots && l->s->slots == 2; /* else one slot is used if need be */
    const struct sw_plan_options o = options_of(l, &asked);
    const struct sw_facts facts = {.options = &o, .trains = trains(l), .blocks = count_blocks(l)};
    struct sw_str why = {0};
    const sw_status st =
        sw_technique_refusal(&facts, &why) ? SW_FAIL(SW_E_CONFIG, "%s", sw_str_text(&why)) : SW_OK;
    sw_str_fini(&why);
    return st;
}

/* Borrows the graphs of a policy's micro-batch. */
static sw_status borrow_graphs(struct look *l, const struct sw_policy *policy)
{
    SW_TRY(l->s->graphs(l->s->ctx, policy, &l->graphs));
    return refuse(l, policy);
}

/* True if a budget refused the plan; false if planning itself ran out of memory. */
static bool is_refused(sw_status st, const struct sw_plan_refusal *refusal)
{
    return st == SW_E_NOMEM && refusal->missing > 0;
}

/* Plans a policy as it is, without a change of slots or tiles. Sets l->policy, and l->plan if it
 * fits. If a budget refuses it, sets l->said and raises l->share. */
static sw_status open_plan(struct look *l, const struct sw_policy *policy,
                           struct sw_plan_refusal *refusal)
{
    struct sw_plan_options o = options_of(l, policy);
    o.refusal = refusal;
    l->policy = *policy;
    const sw_status st = sw_plan_open(l->graphs.specs, l->graphs.n_specs, &o, &l->plan);
    if (is_refused(st, refusal)) {
        l->said = *refusal;
        /* transients shrink at most in proportion to the micro-batch, other memory does not
         * shrink */
        const double transients = (double)refusal->transients;
        const double left = transients - (double)refusal->missing;
        l->share = fmax(l->share, refusal->tier != SW_TIER_DEVICE ? 1
                                  : left > 0                      ? left / transients
                                                                  : 0);
    }
    return st;
}

static void drop_plan(struct look *l)
{
    sw_plan_close(l->plan);
    l->plan = NULL;
}

/* True if second slots of tensors cached in host memory cost little. Without them the cache could
 * hold more, and save disk traffic of at least one read and one write per step. The saving must be
 * a small part of the plan's disk traffic. */
static bool is_cheap(const struct look *l, const struct sw_policy *p)
{
    enum { SMALL_PART = 32 };
    const struct sw_plan *plan = l->plan;
    const struct sw_transfers moves = sw_plan_transfers(plan, rounds_of(l, p));
    size_t cache = 0;
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        const enum sw_tier meant = item->role == SW_ROLE_PARAM ? p->params_tier : p->states_tier;
        cache += item->tier == SW_TIER_HOST && meant == SW_TIER_DISK ? item->slot_bytes : 0;
    }
    return 2 * (int64_t)cache <= (moves.in[SW_TIER_DISK] + moves.out[SW_TIER_DISK]) / SMALL_PART;
}

/* Uses two slots if the budgets have room for them, else one. One slot is tried if it could save
 * enough memory, or if two fit but are not cheap; never if the user asked for two. *refusal is
 * about the last plan. */
static sw_status open_in_slots(struct look *l, const struct sw_policy *policy,
                               struct sw_plan_refusal *refusal)
{
    struct sw_policy p = *policy;
    *refusal = (struct sw_plan_refusal){.beside = SIZE_MAX};
    if (p.two_slots && !may_take_two_slots(l, &p)) {
        if (l->s->slots == 2) {
            return refuse(l, &p);
        }
        p.two_slots = false;
    }
    const sw_status st = open_plan(l, &p, refusal);
    const bool helps = is_refused(st, refusal)
                           ? refusal->missing / 2 <= refusal->beside || refusal->whatever_the_tiles
                           : st >= 0 && p.two_slots && !is_cheap(l, &p);
    if (!p.two_slots || l->s->slots == 2 || !helps) {
        return st;
    }
    drop_plan(l);
    p.two_slots = false;
    return open_plan(l, &p, refusal);
}

/* True if tiles of any size are possible. */
static bool may_tile(const struct look *l, const struct sw_policy *policy)
{
    struct sw_policy tiled = *policy;
    tiled.tile_bytes = LEAST_TILE;
    const struct sw_plan_options o = options_of(l, &tiled);
    return sw_technique_allows(&sw_technique_tile, &o);
}

/* Automatic tiles must not cost a second slot that the user asked for. */
static bool tiles_keep_slots(const struct look *l, const struct sw_policy *policy)
{
    struct sw_policy tiled = *policy;
    tiled.tile_bytes = LEAST_TILE;
    return l->s->slots != 2 || !policy->two_slots || may_take_two_slots(l, &tiled);
}

/* Uses tiles if the device's memory is too small for whole parameters: the largest tiles that fit.
 * Some are tried no matter how large the model is. *refusal is about whole parameters, unless
 * planning in tiles failed for another cause than a budget. */
static sw_status open_in_tiles(struct look *l, const struct sw_policy *policy,
                               struct sw_plan_refusal *refusal)
{
    enum { LEAST_TRIES = 4 };
    struct sw_policy p = *policy;
    const bool asked = p.tile_bytes > 0;
    sw_status st = open_in_slots(l, &p, refusal);
    struct sw_plan_refusal last = *refusal;
    int64_t planned = refusal->n_instrs;
    p.tile_bytes = l->s->memory[SW_TIER_DEVICE];
    const bool helps = is_refused(st, refusal) && !asked && refusal->tier == SW_TIER_DEVICE &&
                       !refusal->whatever_the_tiles && may_tile(l, &p) && tiles_keep_slots(l, &p);
    for (int i = 0; is_refused(st, &last) && helps; i++) {
        p.tile_bytes /= 2;
        if (p.tile_bytes < LEAST_TILE || (i >= LEAST_TRIES && planned > MOST_INSTRS)) {
            break;
        }
        st = open_in_slots(l, &p, &last);
        planned += last.n_instrs;
    }
    if (st < 0 && !is_refused(st, &last)) {
        *refusal = last; /* the cause is not a budget */
    }
    return st;
}

/* ---- what would help ---- */

/* A change that makes a plan smaller: techniques that the search may try, as bits of their numbers,
 * and how far from the device they may go. */
struct remedy {
    unsigned techniques;
    int level; /* see struct sw_technique */
};
enum { LEVELS = SW_TIER_COUNT - 1 };

/* True if only host_memory is given and nothing is offloaded. It is then the one budget, and the
 * host is not a separate place. */
static bool is_one_memory(const struct look *l, const struct sw_policy *p)
{
    return l->s->memory[SW_TIER_DEVICE] == 0 && p->budget[SW_TIER_DEVICE] > 0;
}

/* share of the host if one memory is split because something goes to disk: 1 / HOST_PART */
enum { HOST_PART = 4 };

/* Changes the policy by all techniques of a remedy, each at its farthest level. false = one of them
 * cannot change it, or none goes as far as the remedy says: another remedy covers the rest */
static bool change(const struct look *l, const struct remedy *remedy, struct sw_policy *p)
{
    const struct sw_plan_options o = options_of(l, p);
    const struct sw_facts facts = {.options = &o, .trains = trains(l), .blocks = -1};
    bool reaches = false;
    for (int i = 0; i < sw_n_techniques; i++) {
        if (!(remedy->techniques & 1U << i)) {
            continue;
        }
        int level = remedy->level;
        while (level >= 0 && !sw_techniques[i]->cheaper(&facts, p, level)) {
            level--;
        }
        if (level < 0) {
            return false;
        }
        reaches |= level == remedy->level;
    }
    return reaches;
}

/* Applies a remedy to the policy. false = it changes nothing, or is not allowed */
static bool apply(const struct look *l, const struct remedy *remedy, struct sw_policy *p)
{
    const struct sw_policy before = *p;
    const bool one_memory = is_one_memory(l, p);
    if (!change(l, remedy, p)) {
        return false;
    }
    const bool states = p->states_tier != before.states_tier;
    const bool params = p->params_tier != before.params_tier;
    if (one_memory && ((states && p->states_tier == SW_TIER_HOST) ||
                       (params && p->params_tier == SW_TIER_HOST))) {
        return false;
    }
    const int stage = sw_policy_stage(p);
    p->stage = p->stage < stage ? stage : p->stage;
    if ((l->s->fixed.reduces & SW_REDUCES_SUMS) && p->stage >= 2) {
        return false;
    }
    choose_tiers(l, p);
    if (one_memory && (states || params)) { /* the split is part of the remedy, see describe */
        const size_t all = before.budget[SW_TIER_DEVICE];
        p->budget[SW_TIER_HOST] = all / HOST_PART;
        p->budget[SW_TIER_DEVICE] = all - all / HOST_PART;
    }
    return !wants_other_slots(l, p);
}

/* True if the remedy cannot save enough. Any technique may free transients. */
static bool is_hopeless(const struct remedy *remedy, const struct sw_plan_refusal *refusal)
{
    size_t most = refusal->transients;
    for (int i = 0; i < sw_n_techniques; i++) {
        most += remedy->techniques & 1U << i ? sw_techniques[i]->spares(refusal) : 0;
    }
    return refusal->tier == SW_TIER_DEVICE && refusal->missing > most;
}

/* Appends "; it fits with KEY VALUE, KEY VALUE and KEY VALUE, in tiles". */
static void describe(const struct look *l, const struct sw_policy *policy,
                     const struct remedy *remedy, bool tiles, struct sw_str *out)
{
    struct sw_policy after = *policy;
    struct sw_str items = {0};
    apply(l, remedy, &after);
    for (int i = 0; i < sw_n_techniques; i++) {
        if (sw_techniques[i]->settings) {
            sw_techniques[i]->settings(policy, &after, &items);
        }
    }
    if (is_one_memory(l, policy) &&
        after.budget[SW_TIER_DEVICE] != policy->budget[SW_TIER_DEVICE]) {
        sw_str_printf(&items, "spillway.device_memory %zu\nspillway.host_memory %zu\n",
                      after.budget[SW_TIER_DEVICE], after.budget[SW_TIER_HOST]);
    }
    const char *text = sw_str_text(&items), *end = strchr(text, '\n');
    for (bool first = true; end; first = false) {
        const char *next = strchr(end + 1, '\n');
        sw_str_printf(out, "%s%.*s",
                      first  ? "; it fits with "
                      : next ? ", "
                             : " and ",
                      (int)(end - text), text);
        text = end + 1;
        end = next;
    }
    sw_str_puts(out, tiles ? ", in tiles" : "");
    sw_str_fini(&items);
}

/* True if the plan fits with the remedy, possibly in tiles, which a run would find as well. Only
 * plans that reach scheduling are counted; refusals by the host or the disk come earlier. */
static bool fits_with(struct look *l, const struct sw_policy *policy, const struct remedy *remedy,
                      bool *tiles, int *n_plans)
{
    enum { PART = 8 };
    struct sw_policy p = *policy;
    struct sw_plan_refusal refusal;
    *tiles = false;
    if (!apply(l, remedy, &p)) {
        return false;
    }
    sw_status st = open_in_slots(l, &p, &refusal);
    *n_plans += st != SW_E_NOMEM || refusal.transients > 0;
    if (st == SW_E_NOMEM && p.tile_bytes == 0 && refusal.tier == SW_TIER_DEVICE &&
        !refusal.whatever_the_tiles && may_tile(l, &p) &&
        p.budget[SW_TIER_DEVICE] / PART >= LEAST_TILE && tiles_keep_slots(l, &p)) {
        p.tile_bytes = p.budget[SW_TIER_DEVICE] / PART;
        *tiles = true;
        *n_plans += 1;
        st = open_in_slots(l, &p, &refusal);
    }
    if (st >= 0) {
        drop_plan(l);
    }
    return st >= 0;
}

enum { MESSAGE = 2048 };

/* The budget that the bytes of a tier count against. */
static enum sw_tier budget_of(const struct look *l, const struct sw_policy *p, enum sw_tier tier)
{
    return tier == SW_TIER_DEVICE && is_one_memory(l, p) ? SW_TIER_HOST : tier;
}

/* After a refusal: finds budgets that suffice. It plans again, each time with what the last try
 * lacked. false = another cause prevents the plan */
static bool find_enough(const struct look *look, const struct sw_policy *policy,
                        size_t out[SW_TIER_COUNT])
{
    enum { MOST_TRIES = 32 };
    struct sw_search s = *look->s;
    struct look l = *look;
    sw_status st = SW_E_NOMEM;
    l.s = &s;
    for (int i = 0; i < MOST_TRIES && is_refused(st, &l.said); i++) {
        struct sw_policy p = *policy;
        struct sw_plan_refusal refusal;
        s.memory[budget_of(&l, policy, l.said.tier)] = l.said.needed;
        choose_tiers(&l, &p);
        st = open_in_tiles(&l, &p, &refusal);
        memcpy(out, p.budget, sizeof p.budget);
    }
    drop_plan(&l);
    return st >= 0;
}

/* Adds to the message of the last try the budgets that suffice, if they exceed what it took. */
static sw_status refuse_again(struct look *l, const struct sw_policy *policy, sw_status st)
{
    const struct sw_plan_refusal said = l->said;
    const struct sw_policy last = l->policy;
    struct sw_plan_refusal again = {.missing = 0};
    bool more = false;
    char *message = sw_alloc("plan", MESSAGE);
    if (!message) {
        return st;
    }
    snprintf(message, MESSAGE, "%s", sw_error_message());
    if (find_enough(l, policy, l->enough)) {
        for (int t = 0; t < SW_TIER_COUNT; t++) {
            more |= l->enough[t] > (t == (int)said.tier ? said.needed : last.budget[t]);
        }
    }
    st = more ? open_plan(l, &last, &again) : SW_FAIL(st, "%s", message);
    sw_free(message);
    memset(l->enough, 0, sizeof l->enough);
    return st;
}

/* Goes to the next remedy. These are all subsets of the techniques that have `cheaper`, then the
 * same subsets one level farther from the device. The subset counts up as a binary number of their
 * bits. Each further level begins with the empty subset, which the caller skips. false = there is
 * none */
static bool next_remedy(struct remedy *remedy)
{
    unsigned all = 0;
    for (int i = 0; i < sw_n_techniques; i++) {
        all |= sw_techniques[i]->cheaper ? 1U << i : 0;
    }
    remedy->techniques = (remedy->techniques - all) & all; /* the next subset */
    remedy->level += remedy->techniques == 0;
    return remedy->level < LEVELS;
}

/* After a refusal: adds to the message the smallest change with which it fits. The number of tries
 * depends only on the plan, so the same refusal always gives the same advice. */
static sw_status name_remedy(struct look *l, const struct sw_policy *policy,
                             const struct sw_plan_refusal *refusal, sw_status st)
{
    /* instructions that may be planned for advice; takes a fraction of a second */
    enum { MOST_INSTRS_OF_ADVICE = 12000 };
    char *message = sw_alloc("plan", MESSAGE);
    if (!message) {
        return st;
    }
    snprintf(message, MESSAGE, "%s", sw_error_message());
    struct sw_str text = {0};
    int n_plans = 0;
    for (struct remedy remedy = {0}; next_remedy(&remedy) && text.len == 0;) {
        bool tiles;
        if (n_plans * refusal->n_instrs <= MOST_INSTRS_OF_ADVICE && remedy.techniques != 0 &&
            !is_hopeless(&remedy, refusal) && fits_with(l, policy, &remedy, &tiles, &n_plans)) {
            describe(l, policy, &remedy, tiles, &text);
        }
    }
    st = SW_FAIL(SW_E_NOMEM, "%s%s", message, sw_str_text(&text));
    sw_str_fini(&text);
    sw_free(message);
    return st;
}

/* ---- the search ---- */

/* Tries one policy; if it does not fit, finds what would help. */
static sw_status open_asked(struct look *l, const struct sw_policy *policy)
{
    struct sw_plan_refusal refusal = {.missing = 0};
    sw_status st = open_in_tiles(l, policy, &refusal);
    if (!is_refused(st, &refusal)) {
        return st;
    }
    st = refuse_again(l, policy, st);
    return name_remedy(l, policy, &refusal, st);
}

/* ---- what is chosen: "auto" ---- */

/* Results of all recomputation settings that were tried for one micro-batch. */
struct round {
    struct sw_plan *plan; /* the best plan that fits; NULL = none */
    struct sw_policy policy;
    double seconds;
    bool fits;      /* whether the last try fits */
    int64_t blocks; /* fewest recomputed blocks of a plan that fits; all blocks if none fits yet */
    int64_t planned;
    double share; /* largest share of any try, see struct sw_verdict */
    /* if no plan fits this rank: the policy that misses the least memory */
    struct sw_policy refused;
    size_t missing;
    int rank; /* a rank that nothing fits */
};

/* The next group size: 0, 1, 2, ... Group sizes that keep the same number of inputs are equivalent;
 * only the most even one is used. -1 = no more. */
static int64_t next_recompute(int64_t n_blocks, int64_t every)
{
    if (every >= n_blocks) {
        return -1;
    }
    const int64_t kept = every > 0 ? sw_ceil_div(n_blocks, every) : n_blocks + 1;
    return kept > 1 ? sw_ceil_div(n_blocks, kept - 1) : -1;
}

static void log_try(const struct sw_policy *policy, const struct sw_verdict *v)
{
    struct sw_str text = {0};
    sw_policy_print(policy, &text);
    if (v->fits) {
        sw_log(SW_LOG_DEBUG, "plan: %s: a step of %.6g s", sw_str_text(&text), v->seconds);
    } else {
        sw_log(SW_LOG_DEBUG, "plan: %s: does not fit", sw_str_text(&text));
    }
    sw_str_fini(&text);
}

/* Judges a policy on this rank alone. l->plan is set if it fits. If a budget refuses it, the round
 * notes the policy that misses least. */
static void judge(struct look *l, const struct sw_policy *policy, struct round *round,
                  struct sw_verdict *v)
{
    struct sw_plan_refusal refusal = {.missing = 0};
    l->share = 0;
    const sw_status st = open_in_tiles(l, policy, &refusal);
    const bool refused = is_refused(st, &refusal);
    *v = (struct sw_verdict){
        .status = refused ? SW_OK : st, .fits = st >= 0, .rank = l->s->fixed.me};
    if (st >= 0) {
        v->status = sw_speeds_seconds(l->plan, &l->s->rates, &v->seconds);
        v->share = 1;
        v->n_instrs = sw_plan_count_ops(l->plan);
    } else if (refused) {
        v->share = l->share;
        v->n_instrs = refusal.n_instrs;
        if (round->missing == 0 || refusal.missing < round->missing) {
            round->missing = refusal.missing;
            round->refused = *policy;
        }
    }
    log_try(&l->policy, v);
}

/* True if it is faster, or as fast with fewer recomputed blocks. */
static bool is_better(const struct look *l, const struct sw_verdict *v, const struct round *round)
{
    const int64_t blocks = l->policy.recompute.blocks, best = round->policy.recompute.blocks;
    return !round->plan || v->seconds < round->seconds ||
           (v->seconds == round->seconds && blocks > 0 && (best == 0 || blocks < best));
}

/* Tries one policy on all ranks. Each rank decides by the merged verdict, so that all of them try
 * the same policies. The round keeps the plan if it is the best so far; else it is closed. */
static sw_status try_policy(struct look *l, const struct sw_policy *policy, struct round *round)
{
    struct sw_verdict v;
    judge(l, policy, round, &v);
    sw_status st = v.status;
    if (l->s->agree) {
        st = l->s->agree(l->s->ctx, &v);
    }
    if (st >= 0 && v.fits && is_better(l, &v, round)) {
        sw_plan_close(round->plan);
        round->plan = l->plan;
        round->policy = l->policy;
        round->seconds = v.seconds;
        l->plan = NULL;
    }
    drop_plan(l);
    round->rank = v.rank;
    round->fits = v.fits;
    round->planned += v.n_instrs;
    round->share = fmax(round->share, v.share);
    return st;
}

/* Finds the fewest blocks of one group size that have to be recomputed, by bisection: memory
 * decreases with the number of blocks. */
static sw_status try_fewer_blocks(struct look *l, const struct sw_policy *asked,
                                  struct round *round)
{
    struct sw_policy p = *asked;
    int64_t too_few = 0;
    while (round->blocks - too_few > 1 && round->planned <= MOST_INSTRS) {
        p.recompute.blocks = too_few + (round->blocks - too_few) / 2;
        SW_TRY(try_policy(l, &p, round));
        if (round->fits) {
            round->blocks = p.recompute.blocks;
        } else {
            too_few = p.recompute.blocks;
        }
    }
    return SW_OK;
}

/* Tries one group size after the other. Once a plan fits, larger groups must do with at least one
 * block less, since they keep less. Plans that fit are compared until planning has taken about a
 * second. If even the transients are smaller than what is missing, no recomputation helps. */
static sw_status try_recomputing(struct look *l, struct sw_policy *p, struct round *round)
{
    const int64_t n_blocks = round->blocks;
    for (;;) {
        const int64_t most = round->plan ? round->blocks - 1 : n_blocks;
        const bool enough = round->plan ? round->planned > MOST_INSTRS : round->share <= 0;
        p->recompute.every = enough ? -1 : next_recompute(most, p->recompute.every);
        if (p->recompute.every < 0) {
            return SW_OK;
        }
        p->recompute.blocks = round->plan ? most : 0;
        SW_TRY(try_policy(l, p, round));
        if (round->fits) {
            round->blocks = most;
            SW_TRY(try_fewer_blocks(l, p, round));
        }
    }
}

/* Prefers no recomputation if that fits. */
static sw_status try_micro_batch(struct look *l, const struct sw_policy *asked, struct round *round)
{
    struct sw_policy p = *asked;
    p.recompute.every = l->s->any_recompute ? 0 : p.recompute.every;
    *round = (struct round){.refused = p, .blocks = count_blocks(l)};
    sw_status st = try_policy(l, &p, round);
    if (st >= 0 && l->s->any_recompute && !round->fits) {
        st = try_recomputing(l, &p, round);
    }
    if (st < 0) {
        sw_plan_close(round->plan);
        round->plan = NULL;
    }
    return st;
}

/* Reports that nothing fits, with the message for the policy that misses the least memory on this
 * rank. The graphs are still those of its micro-batch. */
static sw_status refuse_all(struct look *l, const struct round *round)
{
    struct sw_str text = {0};
    const struct sw_policy *p = &round->refused;
    sw_status st;
    sw_config_print_auto(l->s->any_micro_batch ? p->micro_batch : 0,
                         l->s->any_recompute ? p->recompute.every : SW_CONFIG_AUTO, &text);
    if (round->missing == 0) {
        st = SW_FAIL(SW_E_PEER, "the plan that fits here does not fit rank %d", round->rank);
    } else {
        st = open_asked(l, p);
    }
    st = sw_fail_prefix(st, "%s", sw_str_text(&text));
    sw_str_fini(&text);
    return st;
}

/* Chooses the next micro-batch that may fit. The smallest is tried in any case, for its refusal. */
static bool next_micro_batch(const struct look *l, const struct round *round,
                             struct sw_policy *policy)
{
    const int64_t now = policy->micro_batch;
    enum { SLACK = 8 }; /* tolerance, since the gaps between transients vary from plan to plan */
    const double most = (double)now * (round->share + 1.0 / SLACK);
    if (!l->s->any_micro_batch || now <= 1) {
        return false;
    }
    l->s->next(l->s->ctx, most < (double)now ? sw_max_i64((int64_t)most, 1) : now - 1, policy);
    if (policy->micro_batch == 0) {
        l->s->next(l->s->ctx, 1, policy);
    }
    return policy->micro_batch > 0;
}

static sw_status choose(struct look *l, struct sw_policy *policy)
{
    struct round round;
    if (l->s->any_micro_batch) {
        l->s->next(l->s->ctx, INT64_MAX, policy);
    }
    do {
        SW_TRY(borrow_graphs(l, policy));
        SW_TRY(try_micro_batch(l, policy, &round));
    } while (!round.plan && next_micro_batch(l, &round, policy));
    if (!round.plan) {
        return refuse_all(l, &round);
    }
    l->plan = round.plan;
    l->policy = round.policy;
    return SW_OK;
}

/* The plan in l->plan updates on the device. This also tries one that updates on the host, and
 * keeps the faster of the two. On failure l->plan is NULL. */
static sw_status try_on_host(struct look *l)
{
    struct round round = {.plan = l->plan, .policy = l->policy};
    struct sw_policy host = l->policy;
    host.host_updates = true;
    l->plan = NULL;
    sw_status st = sw_speeds_seconds(round.plan, &l->s->rates, &round.seconds);
    st = st < 0 ? st : try_policy(l, &host, &round);
    l->plan = round.plan;
    l->policy = round.policy;
    if (st < 0) {
        drop_plan(l);
    }
    return st;
}

sw_status sw_search_open(const struct sw_search *s, struct sw_policy *out_policy,
                         struct sw_plan **out)
{
    struct look l = {.s = s};
    struct sw_policy policy = s->asked;
    choose_tiers(&l, &policy);
    policy.two_slots |= wants_other_slots(&l, &policy); /* so that it is refused */
    if (s->any_micro_batch || s->any_recompute) {
        SW_TRY(choose(&l, &policy));
    } else {
        SW_TRY(borrow_graphs(&l, &policy));
        SW_TRY(open_asked(&l, &policy));
    }
    if (s->any_update && s->fixed.host.query && policy.states_tier == SW_TIER_HOST) {
        SW_TRY(try_on_host(&l));
    }
    *out_policy = l.policy;
    out_policy->transfer_bytes = l.plan->ahead.transfer_bytes;
    out_policy->prefetch_elems = l.plan->ahead.prefetch_elems;
    *out = l.plan;
    return SW_OK;
}
