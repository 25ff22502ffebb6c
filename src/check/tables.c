// SPDX-License-Identifier: Apache-2.0
// Recorded tables, aux.NAME [T,T] by query and key. The model holds them as a constant "NAME.T"
// with one number for each distance of query and key. Numbers are compared relative to that of
// distance 0, because each side may count from another base.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check/private.h"

static const int32_t *constant_of(const sw_engine *e, const char *name, int64_t tokens)
{
    const struct sw_plan *plan = sw_engine_facts(e).plan;
    char full[128];
    snprintf(full, sizeof full, "%s.%lld", name, (long long)tokens);
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        if (item->data && item->dtype == SW_I32 && strcmp(item->name, full) == 0 &&
            sw_shape_elems(&item->shape) == 2 * tokens - 1) {
            return item->data;
        }
    }
    return NULL;
}

/* ours: indexed by key - query, from 1 - T on. */
static double worst_of(const struct sw_safetensor *ref, const int32_t *ours, int64_t tokens)
{
    double worst = 0;
    for (int64_t q = 0; q < tokens; q++) {
        const double own = sw_check_value(ref, q * tokens + q);
        for (int64_t k = 0; k < tokens; k++) {
            const double want = sw_check_value(ref, q * tokens + k) - own;
            const double have = ours[k - q + tokens - 1] - ours[tokens - 1];
            worst = sw_check_worse(worst, fabs(have - want));
        }
    }
    return worst;
}

/* Largest difference between row-sparse values and the same rows of a dense gradient. INFINITY if
 * the dense gradient lacks a row. */
static double rows_apart(const struct sw_safetensor *rows, const struct sw_safetensor *values,
                         const struct sw_safetensor *dense)
{
    const int64_t n = sw_check_elems(rows), width = sw_shape_last(&values->shape);
    double worst = 0;
    for (int64_t i = 0; i < n * width; i++) {
        const int64_t row = (int64_t)sw_check_value(rows, i / width);
        if (row < 0 || row >= dense->shape.dims[0]) {
            return INFINITY;
        }
        worst = sw_check_worse(worst, fabs(sw_check_value(values, i) -
                                           sw_check_value(dense, row * width + i % width)));
    }
    return worst;
}

void sw_check_sparse(struct check *c)
{
    const struct sw_safetensor *rows = sw_check_tensor(c, "grad_sparse.rows");
    const struct sw_safetensor *values = sw_check_tensor(c, "grad_sparse.values");
    double least = INFINITY;
    if (!rows || !values) {
        return;
    }
    const bool fits = values->shape.rank == 2 && values->shape.dims[0] == sw_check_elems(rows);
    for (int64_t i = 0; fits && i < sw_safetensors_count(c->ref); i++) {
        const struct sw_safetensor *dense = sw_safetensors_at(c->ref, i);
        if (strncmp(dense->name, "grad.", 5) == 0 && dense->shape.rank == 2 &&
            dense->shape.dims[1] == values->shape.dims[1]) {
            least = fmin(least, rows_apart(rows, values, dense));
        }
    }
    sw_check_row(c, values->name, least, sw_check_number(c, "tolerance.grad_rel_to_max", 1e-6),
                 NULL);
}

/* Picks the error of the first rank that has the table: stages of a pipeline have the constants of
 * their own blocks. mine: -1 = this rank lacks it, and so does *out if all do. */
static sw_status pick(const struct check *c, double mine, double *out)
{
    double all[SW_THREAD_RANKS_MAX];
    *out = mine;
    if (!c->comm) {
        return SW_OK;
    }
    SW_TRY(sw_comm_all_gather(c->comm, &mine, all, sizeof mine, "the errors of a table"));
    for (int r = 0; r < sw_comm_size(c->comm) && *out < 0; r++) {
        *out = all[r];
    }
    return SW_OK;
}

sw_status sw_check_tables(struct check *c, const sw_engine *e)
{
    static const char prefix[] = "aux.";
    for (int64_t i = 0; i < sw_safetensors_count(c->ref); i++) {
        const struct sw_safetensor *ref = sw_safetensors_at(c->ref, i);
        const int64_t tokens = ref->shape.rank == 2 ? ref->shape.dims[0] : 0;
        if (strncmp(ref->name, prefix, strlen(prefix)) != 0 || tokens < 1 ||
            ref->shape.dims[1] != tokens) {
            continue;
        }
        const int32_t *ours = constant_of(e, ref->name + strlen(prefix), tokens);
        double worst;
        SW_TRY(pick(c, ours ? worst_of(ref, ours, tokens) : -1, &worst));
        sw_check_tensor(c, "%s", ref->name);
        if (worst >= 0) {
            sw_check_row(c, ref->name, worst, 0, NULL);
        } else {
            sw_check_fail(c, ref->name, "the model has no such table");
        }
    }
    return SW_OK;
}
