// SPDX-License-Identifier: Apache-2.0
// Brings elements of a parameter from the ranks that own them to the first rank.
#include <string.h>

#include "weights/private.h"

/* The runs of elements [first, first + n) that this rank owns, and their values one after another.
 * *out_n: the number of runs */
static sw_status take_own(struct sw_weights *w, const struct sw_parameter *param, int64_t first,
                          int64_t n, const struct sw_collect *c, int64_t *out_n)
{
    struct sw_run_iter iter;
    int64_t at = 0;
    *out_n = 0;
    sw_owned_begin_within(&param->work->layout, first, n, &iter);
    while (sw_runs_next(&iter, &c->runs[*out_n])) {
        struct sw_run *run = &c->runs[(*out_n)++];
        SW_TRY(sw_weights_get(w, param, run->first, run->n, c->values + at));
        at += run->n;
    }
    return SW_OK;
}

/* Copies values to their places. */
static void put(const struct sw_collect *c, int64_t n_runs, int64_t first, float *out)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n_runs; i++) {
        memcpy(out + c->runs[i].first - first, c->values + at, (size_t)c->runs[i].n * sizeof *out);
        at += c->runs[i].n;
    }
}

static int64_t count(const struct sw_collect *c, int64_t n_runs)
{
    int64_t n = 0;
    for (int64_t i = 0; i < n_runs; i++) {
        n += c->runs[i].n;
    }
    return n;
}

static sw_status give(const struct sw_collect *c, int64_t n_runs)
{
    SW_TRY(sw_comm_send(c->comm, 0, &n_runs, sizeof n_runs, "the number of runs"));
    if (n_runs == 0) {
        return SW_OK;
    }
    SW_TRY(sw_comm_send(c->comm, 0, c->runs, (size_t)n_runs * sizeof *c->runs, "runs of weights"));
    return sw_comm_send(c->comm, 0, c->values, (size_t)count(c, n_runs) * sizeof *c->values,
                        "weights");
}

static sw_status receive(const struct sw_collect *c, int rank, int64_t *n_runs)
{
    SW_TRY(sw_comm_receive(c->comm, rank, n_runs, sizeof *n_runs, "the number of runs"));
    if (*n_runs == 0) {
        return SW_OK;
    }
    SW_TRY(sw_comm_receive(c->comm, rank, c->runs, (size_t)*n_runs * sizeof *c->runs,
                           "runs of weights"));
    return sw_comm_receive(c->comm, rank, c->values, (size_t)count(c, *n_runs) * sizeof *c->values,
                           "weights");
}

sw_status sw_weights_collect(struct sw_weights *w, const struct sw_parameter *param, int64_t first,
                             int64_t n, const struct sw_collect *c, float *out)
{
    int64_t n_runs;
    if (!c->comm) {
        return sw_weights_get(w, param, first, n, out);
    }
    const sw_status st = take_own(w, param, first, n, c, &n_runs);
    n_runs = st < 0 ? 0 : n_runs; /* the first rank learns of it when all agree */
    if (sw_comm_rank(c->comm) > 0) {
        SW_TRY(give(c, n_runs));
        return st;
    }
    put(c, n_runs, first, out);
    for (int r = 1; r < sw_comm_size(c->comm); r++) {
        SW_TRY(receive(c, r, &n_runs));
        put(c, n_runs, first, out);
    }
    return st;
}
