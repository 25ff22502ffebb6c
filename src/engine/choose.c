// SPDX-License-Identifier: Apache-2.0
// Resolves configuration keys that are "auto". A run that resumes keeps the values in its
// checkpoint. Otherwise the search (search/auto.c) asks here for micro-batch sizes, and for
// agreement of the ranks. It uses rank 0's rates and the budgets of all ranks, so no rank decides
// alone.
#include <stdio.h>
#include <string.h>

#include "engine/private.h"

/* ---- kept on resume ---- */

/* Rank 0's reading of the checkpoint, as sent to the other ranks. */
struct kept {
    int64_t status, micro_batch;
    struct sw_recompute recompute;
    char name[256]; /* of the checkpoint; "" = none */
};

static struct sw_recompute recompute_of(const struct sw_json *ours)
{
    const struct sw_json *value = sw_json_get(ours, "recompute");
    const struct sw_json *blocks = sw_json_get(ours, "recompute_blocks");
    struct sw_recompute out = {.every = SW_CONFIG_AUTO};
    if (value && value->type == SW_JSON_STRING) {
        out.every = strcmp(value->string, "none") == 0     ? 0
                    : strcmp(value->string, "blocks") == 0 ? 1
                                                           : SW_CONFIG_AUTO;
    } else if (value && value->type == SW_JSON_INT && value->integer > 0) {
        out.every = value->integer;
    }
    out.blocks = blocks && blocks->type == SW_JSON_INT ? sw_max_i64(blocks->integer, 0) : 0;
    return out;
}

static sw_status read_kept(const char *folder, struct kept *out)
{
    struct sw_ckpt *ckpt = NULL;
    const sw_status st = sw_ckpt_open(folder, &ckpt);
    if (st != SW_OK) {
        return st < 0 ? st : SW_OK; /* no checkpoint yet: choose anew */
    }
    const struct sw_json *run = sw_ckpt_meta(ckpt)->config;
    const struct sw_json *config = run ? sw_json_get(run, "ds_config") : NULL;
    const struct sw_json *ours = config ? sw_json_get(config, "spillway") : NULL;
    const struct sw_json *micro =
        config ? sw_json_get(config, "train_micro_batch_size_per_gpu") : NULL;
    snprintf(out->name, sizeof out->name, "%s", sw_ckpt_name(ckpt));
    out->micro_batch = micro && micro->type == SW_JSON_INT ? micro->integer : 0;
    out->recompute = ours ? recompute_of(ours) : out->recompute;
    sw_ckpt_close(ckpt);
    return SW_OK;
}

sw_status sw_engine_keep_choices(struct sw_engine *e)
{
    const struct sw_engine_options *o = &e->options;
    const bool alone = e->world.size == 1 || o->plan.only;
    struct kept kept = {.recompute.every = SW_CONFIG_AUTO};
    if (!o->plan.resume_from || !sw_config_is_auto(e->config)) {
        return SW_OK;
    }
    if (alone || e->world.rank == 0) {
        kept.status = read_kept(o->plan.resume_from, &kept);
    }
    if (!alone) {
        const sw_status mine = (sw_status)kept.status;
        SW_TRY(
            sw_comm_broadcast(o->run.comm, 0, &kept, sizeof kept, "the choices of a checkpoint"));
        kept.name[sizeof kept.name - 1] = '\0';
        if (kept.status < 0 && e->world.rank != 0) {
            return SW_FAIL(SW_E_PEER, "rank 0 cannot read the checkpoint to continue from");
        }
        SW_TRY(mine);
    }
    SW_TRY((sw_status)kept.status);
    return kept.name[0] ? sw_config_choose(e->config, kept.micro_batch, kept.recompute, kept.name)
                        : SW_OK;
}

sw_status sw_engine_keep_cuts(const struct sw_engine *e, int *tensor, int *context)
{
    struct sw_ckpt *ckpt = NULL;
    const char *folder = e->options.plan.resume_from;
    const sw_status st = folder ? sw_ckpt_open(folder, &ckpt) : SW_OK;
    *tensor = *context = 0;
    if (!ckpt) {
        return st < 0 ? st : SW_OK; /* no checkpoint yet */
    }
    *tensor = sw_weights_saved_size(ckpt, "tensor");
    *context = sw_weights_saved_size(ckpt, "context");
    sw_ckpt_close(ckpt);
    return SW_OK;
}

sw_status sw_engine_blame_choices(const struct sw_engine *e, sw_status st)
{
    struct sw_str text = {0};
    sw_config_print_chosen(e->config, false, &text);
    if (text.len > 0) {
        st = sw_fail_prefix(st, "%s", sw_str_text(&text));
    }
    sw_str_fini(&text);
    return st;
}

/* ---- new choices ---- */

void sw_engine_next_micro_batch(const struct sw_engine *e, int64_t most, struct sw_policy *policy)
{
    const struct sw_config *c = e->config;
    const int ranks = sw_engine_batch_ranks(e);
    const int64_t micro = sw_config_largest_micro_batch(c, ranks, 0, most);
    policy->micro_batch = micro;
    policy->micro_batches = micro > 0 ? sw_config_micro_batches_of(c, ranks, 0, micro) : 0;
}

static sw_status judge_all(struct sw_engine *e, const struct sw_verdict *all,
                           struct sw_verdict *out)
{
    const sw_status mine = out->status;
    *out = all[0];
    for (int r = 0; r < e->world.size; r++) {
        const struct sw_verdict *v = &all[r];
        if (v->status < 0 && mine >= 0) {
            return SW_FAIL(SW_E_PEER, "rank %d cannot look for a plan", r);
        }
        out->rank = out->fits && !v->fits ? r : out->rank;
        out->fits = out->fits && v->fits;
        out->seconds = v->seconds > out->seconds ? v->seconds : out->seconds;
        out->share = v->share < out->share ? v->share : out->share;
        out->n_instrs = sw_max_i64(out->n_instrs, v->n_instrs);
    }
    return mine;
}

sw_status sw_engine_agree_on_try(struct sw_engine *e, struct sw_verdict *verdict)
{
    if (e->world.size == 1 || e->options.plan.only) { /* a plan describes only its own rank */
        return verdict->status;
    }
    struct sw_verdict *all = sw_alloc_zero("engine", (size_t)e->world.size, sizeof *all);
    if (!all && verdict->status >= 0) {
        verdict->status = SW_FAIL(SW_E_NOMEM, "out of host memory for the verdicts of ranks");
    }
    sw_status st = all ? sw_comm_all_gather(e->options.run.comm, verdict, all, sizeof *verdict,
                                            "whether a plan fits")
                       : verdict->status;
    st = st < 0 ? st : judge_all(e, all, verdict);
    sw_free(all);
    return st;
}

sw_status sw_engine_find_rates(struct sw_engine *e, struct sw_machine_rates *rates)
{
    const struct sw_engine_options *o = &e->options;
    sw_builtin_rates(rates);
    SW_TRY(sw_engine_take_rates(o->plan.rates, o->plan.n_rates, rates));
    const bool matter = sw_config_is_auto(e->config) || e->host || e->stage_blocks;
    if (e->world.size == 1 || o->plan.only || !matter) {
        return SW_OK;
    }
    return sw_comm_broadcast(o->run.comm, 0, rates, sizeof *rates, "the rates");
}
