// SPDX-License-Identifier: Apache-2.0
// Chooses what is "auto": micro-batch, recomputation, and where updates run. Ranks agree on the
// verdict of each try, so all of them try the same policies.
#include <math.h>

#include "config/config.h"
#include "search/private.h"

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
static void judge(struct sw_search_look *l, const struct sw_policy *policy, struct round *round,
                  struct sw_verdict *v)
{
    struct sw_plan_refusal refusal = {.missing = 0};
    l->share = 0;
    const sw_status st = sw_search_open_in_tiles(l, policy, &refusal);
    const bool refused = sw_search_is_refused(st, &refusal);
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
static bool is_better(const struct sw_search_look *l, const struct sw_verdict *v,
                      const struct round *round)
{
    const int64_t blocks = l->policy.recompute.blocks, best = round->policy.recompute.blocks;
    return !round->plan || v->seconds < round->seconds ||
           (v->seconds == round->seconds && blocks > 0 && (best == 0 || blocks < best));
}

/* Tries one policy on all ranks. Each rank decides by the merged verdict, so that all of them try
 * the same policies. The round keeps the plan if it is the best so far; else it is closed. */
static sw_status try_policy(struct sw_search_look *l, const struct sw_policy *policy,
                            struct round *round)
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
    sw_search_drop_plan(l);
    round->rank = v.rank;
    round->fits = v.fits;
    round->planned += v.n_instrs;
    round->share = fmax(round->share, v.share);
    return st;
}

/* Finds the fewest blocks of one group size that have to be recomputed, by bisection: memory
 * decreases with the number of blocks. */
static sw_status try_fewer_blocks(struct sw_search_look *l, const struct sw_policy *asked,
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
static sw_status try_recomputing(struct sw_search_look *l, struct sw_policy *p, struct round *round)
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
static sw_status try_micro_batch(struct sw_search_look *l, const struct sw_policy *asked,
                                 struct round *round)
{
    struct sw_policy p = *asked;
    p.recompute.every = l->s->any_recompute ? 0 : p.recompute.every;
    *round = (struct round){.refused = p, .blocks = sw_search_blocks(l)};
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
static sw_status refuse_all(struct sw_search_look *l, const struct round *round)
{
    struct sw_str text = {0};
    const struct sw_policy *p = &round->refused;
    sw_status st;
    sw_config_print_auto(l->s->any_micro_batch ? p->micro_batch : 0,
                         l->s->any_recompute ? p->recompute.every : SW_CONFIG_AUTO, &text);
    if (round->missing == 0) {
        st = SW_FAIL(SW_E_PEER, "the plan that fits here does not fit rank %d", round->rank);
    } else {
        st = sw_search_open_asked(l, p);
    }
    st = sw_fail_prefix(st, "%s", sw_str_text(&text));
    sw_str_fini(&text);
    return st;
}

/* Chooses the next micro-batch that may fit. The smallest is tried in any case, for its refusal. */
static bool next_micro_batch(const struct sw_search_look *l, const struct round *round,
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

sw_status sw_search_choose(struct sw_search_look *l, struct sw_policy *policy)
{
    struct round round;
    if (l->s->any_micro_batch) {
        l->s->next(l->s->ctx, INT64_MAX, policy);
    }
    do {
        SW_TRY(sw_search_borrow_graphs(l, policy));
        SW_TRY(try_micro_batch(l, policy, &round));
    } while (!round.plan && next_micro_batch(l, &round, policy));
    if (!round.plan) {
        return refuse_all(l, &round);
    }
    l->plan = round.plan;
    l->policy = round.policy;
    return SW_OK;
}

sw_status sw_search_try_on_host(struct sw_search_look *l)
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
        sw_search_drop_plan(l);
    }
    return st;
}
