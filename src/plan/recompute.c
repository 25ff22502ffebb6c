// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing (Chen et al. 2016). Of every group of `every` blocks, only values that
// later blocks read are kept. Clones of the forward ops recompute the rest, before the first
// backward op that needs it. If only some blocks are recomputed, they are the first ones: backward
// starts at the last blocks, and has freed what they keep before it recomputes anything. Clones
// keep the path of their original, so dropout draws the same numbers, and the bits equal those of a
// plan that keeps everything.
#include <string.h>

#include "plan/private.h"
#include "plan/technique.h"

struct pass {
    struct sw_ir *ir;
    int32_t n_forward;  /* ops before the first backward op */
    int32_t *group_of;  /* [n_ops] group of blocks of a forward op; -1 = none */
    sw_value *clone_of; /* [n_values] the recomputed value, SW_NO_VALUE = not cloned */
    bool *wanted;       /* [n_ops] forward ops of the present group that are to be cloned */
    bool *kept;         /* [n_values] values that leave their group, see find_kept */
    int32_t *first_op, *last_op; /* [n_groups] first and last forward op */
    int32_t *reads_of;           /* [n_groups + 1] start of each group's part of `reads` */
    sw_value *reads;             /* values that backward reads, by group */
    int32_t n_groups;
    struct sw_op_order order;
    int32_t n_values; /* before cloning */
};

/* Number of the block around the op's scope; -1 = none. Blocks are numbered in order of use. */
static int32_t block_of(const struct sw_ir *ir, const int32_t *block_number, int32_t scope)
{
    for (; scope >= 0; scope = ir->scopes[scope].parent) {
        if (block_number[scope] >= 0) {
            return block_number[scope];
        }
    }
    return -1;
}

/* Sets group_of for forward ops of the blocks that are recomputed; -1 for all others. *out: the
 * numbers of recomputed blocks and of all. false = out of memory */
static bool group_ops(struct pass *p, const struct sw_recompute *how, struct sw_recomputed *out)
{
    const struct sw_ir *ir = p->ir;
    int32_t *number = sw_alloc("plan", (size_t)ir->n_scopes * sizeof *number);
    if (!number) {
        return false;
    }
    int32_t n_blocks = 0;
    for (int32_t i = 0; i < ir->n_scopes; i++) {
        number[i] = ir->scopes[i].is_block ? n_blocks++ : -1;
    }
    const int64_t n = how->blocks > 0 ? sw_min_i64(how->blocks, n_blocks) : n_blocks;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const int32_t block = block_of(ir, number, ir->ops[i].scope);
        const bool again = block >= 0 && block < n && i < p->n_forward;
        p->group_of[i] = again ? (int32_t)(block / how->every) : -1;
    }
    *out = (struct sw_recomputed){n, n_blocks};
    sw_free(number);
    return true;
}

/* The group whose forward makes v; -1 = none. */
static int32_t group_of_value(const struct pass *p, sw_value v)
{
    const int32_t producer = p->ir->values[v].producer;
    return producer >= 0 && producer < p->n_forward ? p->group_of[producer] : -1;
}

/* Marks values of a group's forward that ops outside the group read before backward begins. They
 * are inputs of later ops, and are kept. */
static void find_kept(struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    for (sw_value v = 0; v < p->n_values; v++) {
        p->kept[v] = ir->values[v].is_output && group_of_value(p, v) >= 0;
    }
    for (int32_t i = 0; i < p->n_forward; i++) {
        for (int k = 0; k < ir->ops[i].n_in; k++) {
            const int32_t group = group_of_value(p, ir->ops[i].in[k]);
            if (group >= 0 && group != p->group_of[i]) {
                p->kept[ir->ops[i].in[k]] = true;
            }
        }
    }
}

/* Lists by group its forward ops, and the values that backward reads. false = out of memory */
static bool list_groups(struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    for (int32_t i = 0; i < p->n_forward; i++) {
        p->n_groups = p->group_of[i] >= p->n_groups ? p->group_of[i] + 1 : p->n_groups;
    }
    const size_t n = (size_t)p->n_groups + 2;
    p->first_op = sw_alloc_zero("plan", n, sizeof *p->first_op);
    p->last_op = sw_alloc_zero("plan", n, sizeof *p->last_op);
    p->reads_of = sw_alloc_zero("plan", n, sizeof *p->reads_of);
    if (!p->first_op || !p->last_op || !p->reads_of) {
        return false;
    }
    for (int32_t i = p->n_forward - 1; i >= 0; i--) {
        const int32_t group = p->group_of[i];
        if (group >= 0) {
            p->first_op[group] = i;
            p->last_op[group] = p->last_op[group] == 0 ? i : p->last_op[group];
        }
    }
    for (int pass = 0; pass < 2; pass++) { /* first pass counts, second pass lists */
        for (int32_t i = p->n_forward; i < ir->n_ops; i++) {
            for (int k = 0; k < ir->ops[i].n_in; k++) {
                const sw_value v = ir->ops[i].in[k];
                const int32_t group = group_of_value(p, v);
                if (group >= 0 && pass == 0) {
                    p->reads_of[group + 2]++;
                } else if (group >= 0) {
                    p->reads[p->reads_of[group + 1]++] = v;
                }
            }
        }
        for (int32_t group = 0; pass == 0 && group < p->n_groups; group++) {
            p->reads_of[group + 2] += p->reads_of[group + 1];
        }
        if (pass == 0) {
            p->reads =
                sw_alloc("plan", ((size_t)p->reads_of[p->n_groups + 1] + 1) * sizeof(sw_value));
            if (!p->reads) {
                return false;
            }
        }
    }
    return true;
}

/* Marks the ops of the group that must run again so that v exists in backward. */
static void want(struct pass *p, sw_value v, int32_t group)
{
    const int32_t producer = p->ir->values[v].producer;
    if (producer < 0 || producer >= p->n_forward || p->group_of[producer] != group || p->kept[v] ||
        p->wanted[producer]) {
        return;
    }
    p->wanted[producer] = true;
    const struct sw_ir_op *op = &p->ir->ops[producer];
    for (int k = 0; k < op->n_in; k++) {
        want(p, op->in[k], group);
    }
}

/* A new value with the same type as v; views keep pointing into the clone of their base. */
static sw_value clone_value(struct pass *p, sw_value v)
{
    struct sw_ir *ir = p->ir;
    const sw_value copy = sw_ir_copy_value(ir, v);
    if (copy < 0) {
        return SW_NO_VALUE;
    }
    struct sw_ir_value *info = &ir->values[copy];
    info->is_output = false;
    if (info->base >= 0 && info->base < p->n_values && p->clone_of[info->base] >= 0) {
        info->base = p->clone_of[info->base];
    }
    return copy;
}

/* The latest clone of v; v itself if it has none. */
static sw_value again(const struct pass *p, sw_value v)
{
    return v >= 0 && v < p->n_values && p->clone_of[v] >= 0 ? p->clone_of[v] : v;
}

/* Adds clones of the wanted ops of a group for `reader`, and clears `wanted`. Later ops read the
 * outputs of clones, but kept values themselves. false = out of memory */
static bool emit_clones(struct pass *p, int32_t group, const struct sw_ir_op *reader)
{
    for (int32_t i = p->first_op[group]; i <= p->last_op[group]; i++) {
        if (!p->wanted[i]) {
            continue;
        }
        struct sw_ir_op op = p->ir->ops[i];
        op.is_clone = true;
        op.phase = SW_PHASE_BACKWARD;
        op.chunk = reader->chunk;
        for (int k = 0; k < op.n_in; k++) {
            op.in[k] = again(p, op.in[k]);
        }
        for (int k = 0; k < op.n_out; k++) {
            if (op.out[k] < 0) {
                continue;
            }
            const sw_value v = op.out[k];
            const sw_value copy = clone_value(p, v);
            if (copy < 0) {
                return false;
            }
            op.out[k] = copy;
            if (!p->kept[v]) {
                p->clone_of[v] = copy;
            }
        }
        if (!sw_op_order_add(&p->order, &op)) {
            return false;
        }
        p->wanted[i] = false;
    }
    return true;
}

/* The groups from which a backward op reads values that were neither kept nor recomputed yet, the
 * last group first. */
static int missing_groups(const struct pass *p, const struct sw_ir_op *op, const bool *done,
                          int32_t out[SW_MAX_INPUTS])
{
    int n = 0;
    for (int k = 0; k < op->n_in; k++) {
        const sw_value v = op->in[k];
        const int32_t group = v < p->n_values && !p->kept[v] ? group_of_value(p, v) : -1;
        int at = 0;
        while (at < n && out[at] > group) {
            at++;
        }
        if (group < 0 || done[group] || (at < n && out[at] == group)) {
            continue;
        }
        memmove(&out[at + 1], &out[at], (size_t)(n - at) * sizeof *out);
        out[at] = group;
        n++;
    }
    return n;
}

/* Copies forward, then backward. Before an op of backward that first reads a group's values, the
 * clones of that group are added. */
static bool rewrite(struct pass *p)
{
    struct sw_ir *ir = p->ir;
    bool *done = sw_alloc_zero("plan", (size_t)p->n_groups + 1, sizeof *done);
    bool good = done != NULL;
    for (int32_t i = 0; good && i < p->n_forward; i++) {
        good = sw_op_order_add(&p->order, &ir->ops[i]);
    }
    const int32_t n_ops = ir->n_ops;
    for (int32_t i = p->n_forward; good && i < n_ops; i++) {
        int32_t groups[SW_MAX_INPUTS];
        const int n = missing_groups(p, &ir->ops[i], done, groups);
        for (int g = 0; good && g < n; g++) {
            const int32_t group = groups[g];
            done[group] = true;
            const int32_t begin = group > 0 ? p->reads_of[group] : 0;
            for (int32_t r = begin; r < p->reads_of[group + 1]; r++) {
                want(p, p->reads[r], group);
            }
            good = emit_clones(p, group, &ir->ops[i]);
        }
        struct sw_ir_op op = ir->ops[i];
        for (int k = 0; k < op.n_in; k++) {
            op.in[k] = again(p, op.in[k]);
        }
        good = good && sw_op_order_add(&p->order, &op);
    }
    sw_free(done);
    return good;
}

sw_status sw_pass_recompute(struct sw_ir *ir, const struct sw_recompute *how,
                            struct sw_recomputed *out)
{
    struct pass p = {.ir = ir, .n_values = ir->n_values};
    bool good = false;
    *out = (struct sw_recomputed){0};
    if (how->every <= 0) {
        return SW_OK;
    }
    for (p.n_forward = 0; p.n_forward < ir->n_ops; p.n_forward++) {
        if (ir->ops[p.n_forward].phase != SW_PHASE_FORWARD) {
            break;
        }
    }
    p.group_of = sw_alloc_zero("plan", (size_t)ir->n_ops, sizeof *p.group_of);
    p.wanted = sw_alloc_zero("plan", (size_t)ir->n_ops, sizeof *p.wanted);
    p.clone_of = sw_alloc("plan", (size_t)ir->n_values * sizeof *p.clone_of);
    p.kept = sw_alloc_zero("plan", (size_t)ir->n_values, sizeof *p.kept);
    if (p.group_of && p.wanted && p.clone_of && p.kept && sw_op_order_open(&p.order, ir) >= 0 &&
        group_ops(&p, how, out)) {
        for (sw_value v = 0; v < ir->n_values; v++) {
            p.clone_of[v] = SW_NO_VALUE;
        }
        find_kept(&p);
        good = list_groups(&p) && rewrite(&p);
        if (good) {
            sw_op_order_install(&p.order, ir);
        }
    }
    sw_free(p.group_of);
    sw_free(p.wanted);
    sw_free(p.clone_of);
    sw_free(p.kept);
    sw_free(p.first_op);
    sw_free(p.last_op);
    sw_free(p.reads_of);
    sw_free(p.reads);
    sw_op_order_close(&p.order);
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}

/* ---- the technique ---- */

static sw_status run(struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int i = 0; i < plan->n_programs; i++) {
        struct sw_program *program = &plan->programs[i];
        if (program->kind == SW_PROGRAM_TRAIN) {
            SW_TRY(
                sw_pass_recompute(program->ir, &options->policy.recompute, &program->recomputed));
        }
    }
    return SW_OK;
}

static bool refuses(const struct sw_facts *facts, struct sw_str *why)
{
    const int64_t asked = facts->options->policy.recompute.blocks;
    return facts->trains && facts->blocks >= 0 && asked > facts->blocks &&
           sw_refuse(why,
                     "spillway.recompute_blocks: wanted at most %lld, the blocks of the model, got "
                     "%lld",
                     (long long)facts->blocks, (long long)asked);
}

/* Recomputes all blocks if some of them are kept. */
static bool cheaper(const struct sw_facts *facts, struct sw_policy *p, int level)
{
    const bool keeps = p->recompute.every == 0 || p->recompute.blocks > 0;
    if (level > 0 || !facts->trains || !keeps) {
        return false;
    }
    p->recompute = (struct sw_recompute){.every = sw_max_i64(p->recompute.every, 1)};
    return true;
}

/* Recomputation frees activations only, which are transients. */
static size_t spares(const struct sw_plan_refusal *refusal)
{
    (void)refusal;
    return 0;
}

static void settings(const struct sw_policy *before, const struct sw_policy *after,
                     struct sw_str *out)
{
    if (before->recompute.every == 0 && after->recompute.every > 0) {
        sw_str_puts(out, "spillway.recompute \"blocks\"\n");
    } else if (before->recompute.blocks > 0 && after->recompute.blocks == 0) {
        sw_str_puts(out, "spillway.recompute_blocks null\n");
    }
}

static void advise(const struct sw_shortage *s, struct sw_str *out)
{
    const struct sw_recomputed *done = &s->program->recomputed;
    if (s->tier != SW_TIER_DEVICE) {
        return;
    }
    if (s->options->policy.recompute.every == 0) {
        sw_advise(out, ", ", "spillway.recompute \"blocks\"");
    }
    if (done->blocks > 0 && done->blocks < done->of) {
        sw_advise(out, ", ", "a larger spillway.recompute_blocks");
    }
}

static void describe(const struct sw_plan *plan, const struct sw_program *program,
                     struct sw_str *out)
{
    (void)plan;
    if (program && program->recomputed.blocks > 0) {
        sw_str_printf(out, "  backward recomputes the first %lld of %lld blocks\n",
                      (long long)program->recomputed.blocks, (long long)program->recomputed.of);
    }
}

const struct sw_technique sw_technique_recompute = {
    .keys = "spillway.recompute spillway.recompute_blocks",
    .refuses = refuses,
    .run = run,
    .cheaper = cheaper,
    .spares = spares,
    .settings = settings,
    .advise = advise,
    .describe = describe,
};
