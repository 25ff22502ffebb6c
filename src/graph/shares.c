// SPDX-License-Identifier: Apache-2.0
// Checks that ranks can share a forward: models that the axes tensor and context cannot cut are
// refused before any pass cuts them.
#include <stdio.h>

#include "graph/private.h"

const char *sw_list_divisors(int64_t n, char *buf, size_t cap)
{
    size_t len = 0;
    for (int64_t i = 1; i <= n && len < cap; i++) {
        if (n % i == 0) {
            len +=
                (size_t)snprintf(buf + len, cap - len, "%s%lld", i > 1 ? ", " : "", (long long)i);
        }
    }
    return buf;
}

/* True if all ranks have equally many key heads, or if equally many ranks share each. */
static bool divides_keys(const struct sw_attention_attrs *a, int64_t ranks)
{
    return a->kv_heads % ranks == 0 || ranks % a->kv_heads == 0;
}

static sw_status check_key_heads(const struct sw_graph *g, const struct sw_op *op, int64_t ranks)
{
    const struct sw_attention_attrs *a = &op->attrs.attention;
    char list[128] = "1";
    size_t len = 1;
    for (int64_t i = 2; i <= a->heads && len < sizeof list; i++) {
        if (a->heads % i == 0 && divides_keys(a, i)) {
            len += (size_t)snprintf(list + len, sizeof list - len, ", %lld", (long long)i);
        }
    }
    return divides_keys(a, ranks)
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG,
                         "spillway.mesh.tensor %lld: %s has %lld key heads, which the ranks can "
                         "neither divide nor share equally; sizes that work: %s",
                         (long long)ranks, g->scopes[op->scope].name, (long long)a->kv_heads, list);
}

static sw_status check_heads(const struct sw_graph *g, const struct sw_op *op,
                             const struct sw_shares *shares)
{
    const int64_t heads = op->attrs.attention.heads;
    const int64_t tensor = sw_max_i64(shares->tensor, 1), context = sw_max_i64(shares->context, 1);
    const bool fits = tensor <= heads && context <= heads && heads % (tensor * context) == 0;
    char list[128];
    return fits
               ? check_key_heads(g, op, tensor)
               : SW_FAIL(SW_E_CONFIG,
                         "spillway.mesh: tensor %lld x context %lld does not divide the %lld heads "
                         "of %s; products that do: %s%s",
                         (long long)tensor, (long long)context, (long long)heads,
                         g->scopes[op->scope].name, sw_list_divisors(heads, list, sizeof list),
                         context > 1 ? "; ring attention, which cuts no heads, is not built" : "");
}

/* Checks that rows of ids divide along the context axis. */
static sw_status check_tokens(const struct sw_graph *g, const struct sw_op *op, int64_t context)
{
    const struct sw_shape *ids = &g->values[op->in[1]].shape;
    const int64_t tokens = ids->rank > 0 ? sw_shape_last(ids) : 0;
    return ids->rank != 2 || tokens % context == 0
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG,
                         "spillway.mesh.context %lld does not divide the %lld tokens of the rows "
                         "of %s; wanted rows of a multiple of %lld tokens",
                         (long long)context, (long long)tokens, g->values[op->in[0]].name,
                         (long long)context);
}

static sw_status refuse_op(const struct sw_graph *g, const struct sw_op *op, const char *what,
                           const struct sw_shares *shares)
{
    const char *axis = shares->tensor > 1 ? "tensor" : "context";
    const char *name = g->scopes[op->scope].name;
    return SW_FAIL(SW_E_UNSUP,
                   "spillway.mesh.%s %lld: %s%s%s%s is not cut along the %s axis; ranks along data "
                   "work",
                   axis, (long long)(shares->tensor > 1 ? shares->tensor : shares->context), what,
                   name[0] ? " (" : "", name, name[0] ? ")" : "", axis);
}

sw_status sw_graph_check_shares(const struct sw_graph *g, const struct sw_shares *shares)
{
    for (int32_t i = 0; i < g->n_ops && (shares->tensor > 1 || shares->context > 1); i++) {
        const struct sw_op *op = &g->ops[i];
        if (op->kind == SW_OP_ATTENTION) {
            SW_TRY(check_heads(g, op, shares));
        } else if (op->kind == SW_OP_EMBEDDING && shares->context > 1) {
            SW_TRY(check_tokens(g, op, shares->context));
        } else if (op->kind == SW_OP_LSTM) {
            return refuse_op(g, op, "an LSTM", shares);
        } else if (op->kind == SW_OP_POOL) {
            return refuse_op(g, op, "the CIFAR network, which pools pictures,", shares);
        }
    }
    return SW_OK;
}
