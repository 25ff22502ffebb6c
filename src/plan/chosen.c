// SPDX-License-Identifier: Apache-2.0
// Loads of experts wait for the router. An expert without rows needs no weights: its products read
// none of them. Where a program has so few tokens that many experts stay without, a load has the
// offsets of rows as another operand. The executor looks there, and leaves the load out if no row
// is of its experts. Memory and waits stay those of a plan that loads them all, which is the bound.
// Backward needs no weights of such experts, either: their rows and gradients are zeros. Updates
// take all parameters, since moments and weight decay change those without gradients, too.
//
// Prefetch cannot pass the router with such loads, so they are made only where the gain is larger:
// if at least every fourth expert is expected to stay without rows. A load that several
// micro-batches share, or an update, too, stays as it is.
#include <math.h>

#include "plan/private.h"
#include "plan/technique.h"

/* Expected share of experts without rows, from which on loads wait. */
static const double least_unchosen = 0.25;

/* The readers of a loaded value. */
struct use {
    sw_value offsets;      /* of the rows of its readers; SW_NO_VALUE = it has none yet */
    int64_t first, end, n; /* experts first .. end - 1 of n */
    bool is_open;          /* all readers so far are products of experts */
};

struct pass {
    struct sw_ir *ir;
    struct use *uses; /* [n_values] by root, for outputs of loads */
};

/* True if operand k of the op has weights of experts. */
static bool reads_experts(const struct sw_ir_op *op, int k)
{
    return sw_ir_attrs(op) == SW_ATTRS_EXPERTS && sw_ir_has(op, SW_TRAIT_PRODUCTS) &&
           sw_op_info(op->kind)->factor == SW_EXPERTS_WEIGHTS &&
           (k == SW_EXPERTS_WEIGHTS ||
            (k == SW_EXPERTS_WEIGHTS + 1 && op->detail->attrs.experts.has_bias));
}

/* Expected share of the experts of a layer, n on all ranks, that none of so many choices is of, if
 * all are chosen alike. */
static double unchosen(int64_t n, int64_t choices)
{
    return exp((double)choices * log1p(-1.0 / (double)n));
}

static void note_reader(const struct pass *p, const struct sw_ir_op *op, int k)
{
    struct use *use = &p->uses[sw_ir_root(p->ir, op->in[k])];
    if (!use->is_open || !reads_experts(op, k)) {
        use->is_open = false;
        return;
    }
    const struct sw_ir_form *rows = p->ir->values[op->in[0]].form;
    const struct sw_ir_form *weights = p->ir->values[op->in[SW_EXPERTS_WEIGHTS]].form;
    const sw_value offsets = op->in[SW_EXPERTS_OFFSETS];
    const int64_t first = op->detail->attrs.experts.expert;
    const int64_t end = first + (weights->shape.rank == 3 ? weights->shape.dims[0] : 1);
    const struct sw_shape *shape = &p->ir->values[offsets].form->shape;
    const bool is_first = use->offsets < 0;
    use->n = sw_shape_last(shape) - SW_OFFSETS_BEHIND;
    use->first = is_first || first < use->first ? first : use->first;
    use->end = is_first || end > use->end ? end : use->end;
    use->is_open = (is_first || use->offsets == offsets) && use->n > 1 &&
                   unchosen(use->n * (shape->rank == 2 ? shape->dims[0] : 1),
                            rows->shape.dims[0]) >= least_unchosen;
    use->offsets = offsets;
}

static bool may_wait(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return op->move == SW_MOVE_LOAD && op->n_in == 1 && op->loop == 0 &&
           ir->values[sw_ir_root(ir, op->in[0])].role == SW_ROLE_PARAM &&
           ir->values[op->out[0]].role == SW_ROLE_TRANSIENT && ir->values[op->out[0]].base < 0;
}

static void note_uses(const struct pass *p)
{
    for (int32_t i = 0; i < p->ir->n_ops; i++) {
        const struct sw_ir_op *op = &p->ir->ops[i];
        for (int k = 0; k < op->n_in; k++) {
            if (op->in[k] >= 0) {
                note_reader(p, op, k);
            }
        }
        if (may_wait(p->ir, op)) {
            p->uses[op->out[0]] = (struct use){.offsets = SW_NO_VALUE, .is_open = true};
        }
    }
}

static void add_offsets(const struct pass *p)
{
    for (int32_t i = 0; i < p->ir->n_ops; i++) {
        struct sw_ir_op *op = &p->ir->ops[i];
        const struct use *use = may_wait(p->ir, op) ? &p->uses[op->out[0]] : NULL;
        if (!use || !use->is_open || use->offsets < 0 || use->end - use->first >= use->n ||
            p->ir->values[use->offsets].producer >= i) {
            continue;
        }
        const struct sw_ir_detail detail = {
            .attrs.experts = {.expert = use->first, .n = use->end - use->first}};
        const struct sw_ir_detail *kept = sw_ir_keep_detail(p->ir, &detail);
        if (kept) {
            op->detail = kept;
            op->in[op->n_in++] = use->offsets;
        }
    }
}

static sw_status wait_for_router(struct sw_ir *ir)
{
    struct pass p = {.ir = ir,
                     .uses = sw_alloc_zero("plan", (size_t)ir->n_values + 1, sizeof *p.uses)};
    SW_TRY_ALLOC(p.uses, "the plan");
    note_uses(&p);
    add_offsets(&p);
    sw_free(p.uses);
    return sw_ir_status(ir);
}

/* ---- the technique ---- */

static sw_status run(struct sw_plan *plan, const struct sw_plan_options *options)
{
    (void)options;
    for (int i = 0; i < plan->n_programs; i++) {
        SW_TRY(wait_for_router(plan->programs[i].ir));
    }
    return SW_OK;
}

static void describe(const struct sw_plan *plan, const struct sw_program *program,
                     struct sw_str *out)
{
    size_t bytes = 0;
    char text[32];
    (void)plan;
    for (int32_t i = 0; program && i < program->ir->n_ops; i++) {
        const struct sw_ir_op *op = &program->ir->ops[i];
        bytes += sw_ir_waits_for_router(op) ? sw_transfer_bytes(program->ir, op) : 0;
    }
    if (bytes > 0) {
        sw_str_printf(out, "experts: at most %s loaded%s; those without rows are left out\n",
                      sw_format_bytes(text, sizeof text, (double)bytes),
                      program->kind == SW_PROGRAM_TRAIN ? " in a micro-step" : "");
    }
}

const struct sw_technique sw_technique_chosen = {
    .keys = "",
    .run = run,
    .describe = describe,
};
