// SPDX-License-Identifier: Apache-2.0
// Kernels of another system: what it computes or moves besides those of the plan. The plan's
// instructions stay, and the seconds are added to them.
#include <stdio.h>
#include <string.h>

#include "cost/private.h"

/* Scopes of a program by what they have. */
enum has { HAS_CLONE, HAS_GRADIENT };

struct kernels {
    const struct sw_plan *plan;
    const struct sw_cost_mesh *mesh;
    struct sw_cost (*costs)[2];
    struct sw_names scopes; /* of enum has */
    struct sw_arena arena;  /* their names */
};

static bool is_kernel(const struct sw_instr *instr)
{
    return instr->verb == SW_VERB_KERNEL && instr->queue == SW_QUEUE_COMPUTE;
}

static void add(const struct kernels *k, int32_t i, double seconds)
{
    k->costs[i][0].seconds += seconds;
    k->costs[i][1].seconds += seconds;
}

/* ---- whole blocks are recomputed ---- */

/* "a.b" of "a.b.c". */
static const char *outer_of(const char *scope, char *buf, size_t cap)
{
    const char *dot = strrchr(scope, '.');
    snprintf(buf, cap, "%.*s", dot ? (int)(dot - scope) : 0, scope);
    return buf;
}

/* Names the scopes that have a recomputed kernel, those around them, and the first gradient's
 * kernel of each scope. false = out of memory */
static bool name_scopes(struct kernels *k)
{
    const struct sw_program *program = &k->plan->programs[0];
    char outer[256];
    bool good = true;
    for (int32_t i = 0; i < program->n_instrs && good; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        if (!is_kernel(instr) || instr->segment == SW_SEGMENT_FORWARD ||
            instr->segment >= SW_SEGMENT_UPDATE) {
            continue;
        }
        const struct sw_instr_op op = sw_instr_op(program, i);
        const char *scope = instr->about->scope;
        if (!op.is_clone) {
            good = sw_names_add(&k->scopes, HAS_GRADIENT, scope, i);
        } else if (op.math.kind == SW_OP_MATMUL) {
            const char *name = sw_arena_strdup(&k->arena, outer_of(scope, outer, sizeof outer));
            good = name && sw_names_add(&k->scopes, HAS_CLONE, scope, i) &&
                   sw_names_add(&k->scopes, HAS_CLONE, name, i);
        }
    }
    return good;
}

/* Our recomputation leaves out a block's last product, whose output backward does not read. Adds it
 * before the gradients of that product. */
static void repeat_products(const struct kernels *k)
{
    const struct sw_program *program = &k->plan->programs[0];
    char outer[256];
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const char *scope = instr->about->scope;
        if (!is_kernel(instr) || instr->segment != SW_SEGMENT_FORWARD ||
            sw_instr_op(program, i).math.kind != SW_OP_MATMUL ||
            sw_names_find(&k->scopes, HAS_CLONE, scope) >= 0 ||
            sw_names_find(&k->scopes, HAS_CLONE, outer_of(scope, outer, sizeof outer)) < 0) {
            continue;
        }
        const int32_t at = sw_names_find(&k->scopes, HAS_GRADIENT, scope);
        add(k, at >= 0 ? at : i, k->costs[i][1].seconds);
    }
}

/* ---- scores and logits ---- */

/* Scores of all pairs are computed, and pass memory so many times. */
static void move_scores(const struct kernels *k, int32_t i, bool backward)
{
    const struct sw_program *program = &k->plan->programs[0];
    const struct sw_accounting *by = k->mesh->accounting;
    const double passes = backward ? by->scores_backward : by->scores_forward;
    struct sw_op op;
    struct sw_op_desc desc;
    if (passes <= 0) {
        return;
    }
    sw_program_describe(program, i, &op, &desc);
    const struct sw_attention_attrs *attrs = &op.attrs.attention;
    const int first = backward ? 3 : 0; /* of the inputs of attention */
    const struct sw_shape *q = &desc.in[first].shape;
    const double keys = (double)desc.in[first + (attrs->packed ? 0 : 1)].shape.dims[1];
    const double pairs = (double)(q->dims[0] * q->dims[1] * attrs->heads) * keys;
    const double bytes = pairs * (double)sw_dtype_bytes(desc.in[first].dtype);
    const double again = attrs->causal && (double)q->dims[1] == keys ? k->costs[i][1].seconds : 0;
    add(k, i, again + passes * bytes / k->mesh->cluster->device.bandwidth.value);
}

/* A loss computes its logits again before its gradients, of which there are two at most. */
static void keep_logits(const struct kernels *k, int32_t i)
{
    struct sw_op op;
    struct sw_op_desc desc;
    sw_program_describe(&k->plan->programs[0], i, &op, &desc);
    const double gradients = (desc.out[0].shape.rank >= 0) + (desc.out[1].shape.rank >= 0);
    add(k, i, -k->costs[i][1].seconds / (1 + gradients));
}

sw_status sw_cost_kernels(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                          struct sw_cost (*costs)[2])
{
    struct kernels k = {.plan = plan, .mesh = mesh, .costs = costs};
    const struct sw_program *program = &plan->programs[0];
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const enum sw_op_kind kind =
            is_kernel(&program->instrs[i]) ? sw_instr_op(program, i).math.kind : SW_N_OP_KINDS;
        if (kind == SW_OP_ATTENTION || kind == SW_OP_ATTENTION_GRAD) {
            move_scores(&k, i, kind == SW_OP_ATTENTION_GRAD);
        } else if (kind == SW_OP_LINEAR_CE_GRAD && mesh->accounting->keeps_logits) {
            keep_logits(&k, i);
        }
    }
    sw_arena_init(&k.arena, "cost");
    const bool good = !mesh->accounting->whole_blocks || name_scopes(&k);
    if (good && mesh->accounting->whole_blocks) {
        repeat_products(&k);
    }
    sw_names_close(&k.scopes);
    sw_arena_fini(&k.arena);
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the costs of a step");
}
