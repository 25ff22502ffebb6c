// SPDX-License-Identifier: Apache-2.0
// Cheap rematerialisation: a value that forward makes and backward reads is not kept if an
// inexpensive op can recompute it from values that are available anyway. Examples are the output of
// an activation or a norm from its input, or a gated product from its factors. A clone of that op
// is placed before the first reader in backward. It is the same kernel with the same operands, so
// no bit changes.
//
// There is no list of inexpensive kinds: FLOPs and bytes of the op are compared with the bytes that
// it saves. For a recomputed block, the clones count as its forward. Values that only the clones
// make for backward are made when backward reads them.
//
// With gathers_again, a value that ranks gathered from their parts counts as cheap: each rank keeps
// its own part in between.
#include <string.h>

#include "plan/private.h"
#include "plan/technique.h"

enum {
    LEAST_BYTES = 256, /* bytes that an instruction must save */
    MOST_FLOPS = 16,   /* FLOPs of the op for each byte of its result: attention exceeds this */
    /* bytes that the op touches for each byte of its result: sums of many rows exceed this */
    MOST_BYTES = 8,
    MOST_OPS_IN_LINE = 3 /* longest chain of recomputed ops */
};

/* Uses of a root's storage. Indices refer to the list before cloning. */
struct life {
    int32_t last_forward; /* last op of its forward (see is_early) that touches it */
    int32_t first, last;  /* first and last later op that reads it; n_ops and -1 = none */
    sw_value written;     /* its last version made by forward */
    bool stays;           /* it is an output */
    bool as_it_was;       /* backward reads a version other than `written`, or a view of one */
    bool remade;
};

struct pass {
    struct sw_ir *ir;
    const struct sw_plan_options *options;
    int32_t n_values;    /* before cloning */
    struct life *lives;  /* [n_values] by root */
    int32_t *n_products; /* [n_ops + 1] number of matrix products before an op */
    sw_value *again;     /* [n_values] the recomputed value that replaces it after its clone */
    struct sw_op_order order;
};

static struct life *life_of(const struct pass *p, sw_value v)
{
    return &p->lives[sw_ir_root(p->ir, v)];
}

/* The value that v is a view of, or v itself. */
static sw_value looked_at(const struct sw_ir *ir, sw_value v)
{
    while (ir->values[v].producer >= 0 &&
           sw_ir_has(&ir->ops[ir->values[v].producer], SW_TRAIT_VIEW)) {
        v = ir->ops[ir->values[v].producer].in[0];
    }
    return v;
}

/* True for forward, and for the part of it that is recomputed. */
static bool is_forward(const struct sw_ir *ir, int32_t i)
{
    return ir->ops[i].phase == SW_PHASE_FORWARD || ir->ops[i].is_clone;
}

/* True if op i belongs to the forward that makes v. Values that a clone reads of the first run were
 * kept for it. */
static bool is_early(const struct sw_ir *ir, int32_t i, sw_value v)
{
    const int32_t producer = ir->values[sw_ir_root(ir, v)].producer;
    return ir->ops[i].phase == SW_PHASE_FORWARD ||
           (ir->ops[i].is_clone && producer >= 0 && ir->ops[producer].is_clone);
}

/* Records that op i reads v, or writes it in forward. */
static void touch(const struct pass *p, int32_t i, sw_value v)
{
    const bool is_view = sw_ir_has(&p->ir->ops[i], SW_TRAIT_VIEW);
    struct life *life = life_of(p, v);
    if (is_early(p->ir, i, v)) {
        life->last_forward = is_view ? life->last_forward : i;
        return;
    }
    life->as_it_was |= is_view || looked_at(p->ir, v) != life->written;
    life->first = i < life->first ? i : life->first;
    life->last = i > life->last ? i : life->last;
}

/* Finds how each value is used, and counts the products before each op. */
static void find_lives(const struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    for (sw_value v = 0; v < p->n_values; v++) {
        p->lives[v] = (struct life){-1, ir->n_ops, -1, SW_NO_VALUE, false, false, false};
        p->again[v] = SW_NO_VALUE;
    }
    for (sw_value v = 0; v < p->n_values; v++) {
        life_of(p, v)->stays |= ir->values[v].is_output;
    }
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const struct sw_ir_op *op = &ir->ops[i];
        p->n_products[i + 1] = p->n_products[i] + sw_ir_has(op, SW_TRAIT_PRODUCTS);
        for (int k = 0; k < op->n_in; k++) {
            touch(p, i, op->in[k]);
        }
        for (int k = 0; k < op->n_out && is_forward(ir, i); k++) {
            if (op->out[k] >= 0 && !sw_ir_has(op, SW_TRAIT_VIEW)) {
                touch(p, i, op->out[k]);
                life_of(p, op->out[k])->written = op->out[k];
            }
        }
    }
}

/* ---- choosing ---- */

/* True if the op gathers an activation. */
static bool is_gather(const struct sw_ir_op *op)
{
    return op->move == SW_MOVE_ALL_GATHER;
}

/* Finds the op that can make v from other values and makes nothing else: its producer, or the part
 * of a fused op that starts from its other outputs. false = no such op may run again */
static bool find_maker(const struct pass *p, sw_value v, struct sw_op *out)
{
    const struct sw_ir *ir = p->ir;
    const int32_t i = v < 0 ? -1 : ir->values[v].producer; /* an input has no version */
    const struct sw_ir_op *op = i < 0 ? NULL : &ir->ops[i];
    if (!op || !is_forward(ir, i)) {
        return false;
    }
    if (is_gather(op)) {
        *out =
            (struct sw_op){.kind = op->kind, .n_in = 1, .n_out = 1, .in = {op->in[0]}, .out = {v}};
        return p->options->gathers_again;
    }
    if (op->move != SW_MOVE_NONE || p->options->keep_cheap) {
        return false;
    }
    const struct sw_op_info *info = sw_op_info(op->kind);
    struct sw_op_desc desc;
    struct sw_op math;
    sw_ir_describe(ir, op, &math, &desc);
    *out = math;
    if (info->apart && info->apart(&desc, out)) {
        for (int k = 0; k < out->n_out; k++) {
            if (out->out[k] == v) {
                return true;
            }
        }
    }
    *out = math;
    return !math.user && !info->alias && math.n_in > 0 &&
           !sw_kind_has(math.kind, SW_TRAIT_VIEW | SW_TRAIT_PRODUCTS | SW_TRAIT_LOOKUP);
}

/* True if the maker of v computes and touches little for each byte of v. */
static bool is_cheap(const struct sw_ir *ir, const struct sw_op *maker, sw_value v)
{
    if (is_gather(&ir->ops[ir->values[v].producer])) {
        return true;
    }
    struct sw_ir_detail detail = {.attrs = maker->attrs};
    struct sw_ir_op op = {.detail = &detail,
                          .kind = maker->kind,
                          .n_in = (int8_t)maker->n_in,
                          .n_out = (int8_t)maker->n_out};
    memcpy(op.in, maker->in, sizeof op.in);
    memcpy(op.out, maker->out, sizeof op.out);
    const double bytes = (double)sw_ir_bytes(&ir->values[v]);
    return (double)sw_ir_flops(ir, &op) <= MOST_FLOPS * bytes &&
           sw_ir_op_bytes(ir, &op) <= MOST_BYTES * bytes;
}

/* The place of op i, see sw_ir_block_segment. */
static int64_t place_of(const struct pass *p, int32_t i)
{
    return sw_ir_block_segment(p->ir, &p->ir->ops[i]);
}

/* True if the parameter is available at op `at` anyway: it stays on the device, or this or a later
 * op of the same place reads it. Gathering or loading it for this alone is not worthwhile. */
static bool has_parameter(const struct pass *p, sw_value param, int32_t at)
{
    const struct sw_plan_options *o = p->options;
    const bool leaves = (sw_ir_data(p->ir)->n > 1 && o->policy.stage == 3) ||
                        o->policy.params_tier != SW_TIER_DEVICE;
    const int32_t reader = p->lives[param].last;
    return !leaves || p->ir->values[param].form->elems <= o->limits.persistence_elems ||
           (reader >= at && place_of(p, reader) == place_of(p, at));
}

static int64_t price(const struct pass *p, sw_value v, int32_t at, int ops_left, bool take);

/* Sum of the prices of all inputs of `maker`; see price. */
static int64_t price_of_inputs(const struct pass *p, const struct sw_op *maker, int32_t at,
                               int ops_left, bool take)
{
    int64_t sum = 0;
    for (int k = 0; k < maker->n_in && sum >= 0; k++) {
        const int64_t one = price(p, maker->in[k], at, ops_left, take);
        sum = one < 0 ? one : sum + one;
    }
    return sum;
}

/* Bytes that must be kept, or kept longer, so that v is available at backward op `at`; -1 =
 * impossible. take: commits to it. */
static int64_t price(const struct pass *p, sw_value v, int32_t at, int ops_left, bool take)
{
    const struct sw_ir *ir = p->ir;
    struct life *life = life_of(p, v);
    const struct sw_ir_value *root = &ir->values[sw_ir_root(ir, v)];
    if (root->role == SW_ROLE_PARAM) {
        return has_parameter(p, sw_ir_root(ir, v), at) ? 0 : -1;
    }
    if (root->role == SW_ROLE_STATE) {
        return root->state == SW_STATE_CONSTANT ? 0 : -1;
    }
    if (root->producer >= 0 && looked_at(ir, v) != life->written) {
        return -1;
    }
    int64_t cost = life->stays || life->last >= at ? 0 : (int64_t)sw_ir_storage_bytes(root);
    struct sw_op maker;
    if (cost > 0 && life->last < 0 && ops_left > 0 && find_maker(p, life->written, &maker) &&
        is_cheap(ir, &maker, life->written)) {
        const int64_t made = price_of_inputs(p, &maker, at, ops_left - 1, false);
        if (made >= 0 && made < cost) {
            cost = made;
            life->remade = take && price_of_inputs(p, &maker, at, ops_left - 1, true) >= 0;
        }
    }
    if (take) {
        life->first = at < life->first ? at : life->first;
        life->last = at > life->last ? at : life->last;
    }
    return cost;
}

/* Worthwhile only if a matrix product, which needs the memory, runs while the value is not kept. */
static bool is_worth_it(const struct pass *p, const struct life *life, int64_t saved, int64_t cost)
{
    return cost >= 0 && saved - cost >= LEAST_BYTES && saved >= 2 * cost &&
           p->n_products[life->first] > p->n_products[life->last_forward + 1];
}

/* Goes from the last value to the first, so that the readers of a value are known to be recomputed
 * or not. */
static void choose(const struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    for (int32_t i = ir->n_ops - 1; i >= 0; i--) {
        for (int k = 0; k < ir->ops[i].n_out && is_forward(ir, i); k++) {
            const sw_value v = ir->ops[i].out[k];
            struct life *life = v < 0 ? NULL : life_of(p, v);
            struct sw_op maker;
            if (!life || life->written != v || life->stays || life->as_it_was || life->remade ||
                life->last < 0 || ir->values[sw_ir_root(ir, v)].role != SW_ROLE_TRANSIENT ||
                !find_maker(p, v, &maker) || !is_cheap(ir, &maker, v)) {
                continue;
            }
            const int64_t saved = (int64_t)sw_ir_storage_bytes(&ir->values[sw_ir_root(ir, v)]);
            const int64_t cost =
                price_of_inputs(p, &maker, life->first, MOST_OPS_IN_LINE - 1, false);
            if (is_worth_it(p, life, saved, cost)) {
                price_of_inputs(p, &maker, life->first, MOST_OPS_IN_LINE - 1, true);
                life->remade = true;
            }
        }
    }
}

/* ---- the clones ---- */

static sw_value make_again(struct pass *p, sw_value v, const struct sw_ir_op *reader);

/* A value like v with its own storage, or for a view in the storage of the recomputed value. */
static sw_value copy_of(struct pass *p, sw_value v, bool is_view)
{
    struct sw_ir *ir = p->ir;
    const sw_value copy = sw_ir_copy_value(ir, v);
    if (copy >= 0) {
        ir->values[copy].base = is_view ? p->again[life_of(p, v)->written] : SW_NO_VALUE;
        ir->values[copy].is_output = false;
    }
    return copy;
}

/* Adds a clone of the op for `reader`, whose operand v is one of the outputs. Its other outputs
 * have no reader. */
static bool clone(struct pass *p, const struct sw_op *maker, sw_value v,
                  const struct sw_ir_op *reader)
{
    struct sw_ir *ir = p->ir;
    struct sw_ir_op op = ir->ops[ir->values[v].producer];
    const bool is_view = !is_gather(&op) && sw_op_has(maker, SW_TRAIT_VIEW);
    if (maker->kind != op.kind) {
        sw_ir_take_math(ir, &op, maker);
    }
    for (int k = 0; k < SW_MAX_INPUTS; k++) {
        op.in[k] = k < maker->n_in ? make_again(p, maker->in[k], reader) : SW_NO_VALUE;
    }
    for (int k = 0; k < SW_MAX_OUTPUTS; k++) {
        const sw_value out = k < maker->n_out ? maker->out[k] : SW_NO_VALUE;
        op.out[k] = out < 0 ? SW_NO_VALUE : copy_of(p, out, is_view);
        if (out >= 0 && life_of(p, out)->remade) {
            p->again[out] = op.out[k];
        }
    }
    op.is_clone = true;
    op.phase = SW_PHASE_BACKWARD;
    op.chunk = reader->chunk; /* another chunk of this stage may have the first reader */
    /* a clone belongs to its own block if that block runs now, else to the block of its reader */
    if (sw_ir_block_segment(ir, &op) != sw_ir_block_segment(ir, reader)) {
        op.scope = reader->scope;
    }
    return ir->failure.status >= 0 && sw_op_order_add(&p->order, &op);
}

/* The value that replaces v in backward; SW_NO_VALUE = out of memory. */
static sw_value make_again(struct pass *p, sw_value v, const struct sw_ir_op *reader)
{
    const struct sw_ir *ir = p->ir;
    struct sw_op maker;
    if (v < 0 || v >= p->n_values || !life_of(p, v)->remade) {
        return v;
    }
    if (p->again[v] >= 0) {
        return p->again[v];
    }
    if (v != life_of(p, v)->written) { /* v is a view: remake its base first */
        maker = sw_ir_math(ir, &ir->ops[ir->values[v].producer]);
    } else if (!find_maker(p, v, &maker)) {
        return SW_NO_VALUE;
    }
    return clone(p, &maker, v, reader) ? p->again[v] : SW_NO_VALUE;
}

/* Copies the list. Later readers of a remade value read a clone, which comes before the first one.
 * */
static bool rewrite(struct pass *p)
{
    const int32_t n_ops = p->ir->n_ops;
    for (int32_t i = 0; i < n_ops; i++) {
        struct sw_ir_op op = p->ir->ops[i];
        for (int k = 0; k < op.n_in; k++) {
            op.in[k] = is_early(p->ir, i, op.in[k]) ? op.in[k] : make_again(p, op.in[k], &op);
            if (op.in[k] < 0) {
                return false;
            }
        }
        if (!sw_op_order_add(&p->order, &op)) {
            return false;
        }
    }
    return true;
}

static void count(const struct pass *p, struct sw_remade *out)
{
    for (sw_value v = 0; v < p->n_values; v++) {
        if (p->lives[v].remade) {
            out->n++;
            out->bytes += sw_ir_storage_bytes(&p->ir->values[v]);
        }
    }
}

sw_status sw_pass_remake(struct sw_ir *ir, const struct sw_plan_options *options,
                         struct sw_remade *out)
{
    struct pass p = {.ir = ir, .options = options, .n_values = ir->n_values};
    bool good = false;
    *out = (struct sw_remade){0};
    p.lives = sw_alloc("plan", ((size_t)ir->n_values + 1) * sizeof *p.lives);
    p.n_products = sw_alloc_zero("plan", (size_t)ir->n_ops + 1, sizeof *p.n_products);
    p.again = sw_alloc("plan", ((size_t)ir->n_values + 1) * sizeof *p.again);
    if (p.lives && p.n_products && p.again && sw_op_order_open(&p.order, ir) >= 0) {
        find_lives(&p);
        choose(&p);
        count(&p, out);
        good = rewrite(&p);
        if (good) {
            sw_op_order_install(&p.order, ir);
        }
    }
    sw_free(p.lives);
    sw_free(p.n_products);
    sw_free(p.again);
    sw_op_order_close(&p.order);
    SW_TRY(sw_ir_status(ir));
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}

/* ---- the technique ---- */

static sw_status run(struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int i = 0; i < plan->n_programs; i++) {
        struct sw_program *program = &plan->programs[i];
        if (program->kind == SW_PROGRAM_TRAIN) {
            SW_TRY(sw_pass_remake(program->ir, options, &program->remade));
        }
    }
    return SW_OK;
}

static void describe(const struct sw_plan *plan, const struct sw_program *program,
                     struct sw_str *out)
{
    (void)plan;
    if (program && program->remade.n > 0) {
        char text[32];
        const double bytes = (double)program->remade.bytes * program->micro_batches;
        sw_str_printf(out, "  backward recomputes %d cheap values%s, which saves %s\n",
                      program->remade.n, program->micro_batches > 1 ? " of each micro-batch" : "",
                      sw_format_bytes(text, sizeof text, bytes));
    }
}

const struct sw_technique sw_technique_remake = {
    .keys = "spillway.recompute_cheap spillway.gather_again",
    .run = run,
    .describe = describe,
};
