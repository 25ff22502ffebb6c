// SPDX-License-Identifier: Apache-2.0
// Gradients of the last micro-batch, by parameter.
#include <string.h>

#include "engine/private.h"

static void add_rows(float *out, const float *rows, const int32_t *index, int64_t n, int64_t width)
{
    for (int64_t r = 0; r < n && index[r] >= 0; r++) {
        for (int64_t c = 0; c < width; c++) {
            out[index[r] * width + c] += rows[r * width + c];
        }
    }
}

/* Adds the gradient of one use to out. The gradient of a lookup table consists of rows and their
 * indexes. */
static sw_status add_use(struct sw_engine *e, const struct sw_port *grad,
                         const struct sw_port *index_port, float *out)
{
    const int64_t n = sw_shape_elems(&grad->shape);
    sw_status st = SW_OK;
    int32_t *index = NULL;
    float *values = sw_alloc("engine", (size_t)n * sizeof *values);
    SW_TRY_ALLOC(values, "a gradient");
    SW_TRY_OR(done, sw_engine_read_output(e, grad, values));
    if (!index_port) {
        for (int64_t i = 0; i < n; i++) {
            out[i] += values[i];
        }
        goto done;
    }
    index = sw_alloc("engine", sw_port_bytes(index_port));
    if (!index) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a gradient");
        goto done;
    }
    SW_TRY_OR(done, sw_executor_read(e->executor, index_port, index, sw_port_bytes(index_port)));
    add_rows(out, values, index, sw_shape_rows(&grad->shape), sw_shape_last(&grad->shape));
done:
    sw_free(values);
    sw_free(index);
    return st;
}

/* ---- several ranks along tensor and context ---- */

/* Numbers that pass between ranks at once. */
enum { PASSED = 64 * 1024 };

/* The gradients of ranks along an axis, some elements at a time. */
struct passed {
    sw_comm *comm;
    struct sw_coord coord;
    float *values; /* [coord.size][PASSED] */
};

static sw_status open_passed(struct sw_engine *e, enum sw_axis axis, struct passed *out)
{
    const char *name = sw_axis_name(axis);
    *out = (struct passed){.coord = sw_mesh_coord(&e->mesh, 1U << axis, e->world.rank)};
    if (out->coord.size == 1) {
        return SW_OK;
    }
    SW_TRY(sw_engine_group(e, name, &out->comm));
    out->values = sw_alloc("engine", (size_t)out->coord.size * PASSED * sizeof *out->values);
    SW_TRY_ALLOC(out->values, "a gradient");
    return SW_OK;
}

static sw_status pass(struct passed *p, const float *mine, int64_t n)
{
    return sw_comm_all_gather(p->comm, mine, p->values, (size_t)n * sizeof *mine, "a gradient");
}

/* Adds the gradients of the tokens of all ranks, in their order. */
static sw_status add_tokens(struct sw_engine *e, float *part, int64_t n)
{
    struct passed p;
    sw_status st = open_passed(e, SW_AXIS_CONTEXT, &p);
    for (int64_t at = 0; at < n && p.coord.size > 1 && st >= 0; at += PASSED) {
        const int64_t some = sw_min_i64(PASSED, n - at);
        st = pass(&p, part + at, some);
        for (int64_t i = 0; i < some && st >= 0; i++) {
            float sum = p.values[i];
            for (int r = 1; r < p.coord.size; r++) {
                sum += p.values[r * some + i];
            }
            part[at + i] = sum;
        }
    }
    sw_free(p.values);
    return st;
}

/* Copies elements [at, at + n) of a part to their places in the whole. */
static void place(const struct sw_layout *layout, int64_t at, int64_t n, const float *part,
                  float *out)
{
    struct sw_run_iter iter;
    struct sw_run run;
    sw_runs_begin(layout, &iter);
    while (sw_runs_next(&iter, &run)) {
        const int64_t from = sw_max_i64(run.here, at), end = sw_min_i64(run.here + run.n, at + n);
        if (from < end) {
            memcpy(out + run.first + from - run.here, part + from - at,
                   (size_t)(end - from) * sizeof *out);
        }
    }
}

/* Collects the parts of all ranks. layout: of the part of this rank */
static sw_status place_parts(struct sw_engine *e, const struct sw_layout *layout, const float *part,
                             int64_t n, float *out)
{
    struct passed p;
    struct sw_layout of = *layout;
    if (layout->tensor.size <= 1) {
        place(layout, 0, n, part, out);
        return SW_OK;
    }
    sw_status st = open_passed(e, SW_AXIS_TENSOR, &p);
    for (int64_t at = 0; at < n && st >= 0; at += PASSED) {
        const int64_t some = sw_min_i64(PASSED, n - at);
        st = pass(&p, part + at, some);
        for (int r = 0; r < p.coord.size && st >= 0; r++) {
            of.tensor.rank = r;
            place(&of, at, some, p.values + r * some, out);
        }
    }
    sw_free(p.values);
    return st;
}

/* Sums the uses on this rank. part: zeros */
static sw_status add_uses(struct sw_engine *e, const char *name, int64_t n, float *part)
{
    const struct sw_program *program = &e->plan->programs[e->programs.train];
    for (int use = 0;; use++) {
        const struct sw_port *grad = sw_program_gradient(program, name, SW_STATE_GRADIENT, use);
        if (!grad) {
            break;
        }
        SW_TRY(add_use(e, grad, sw_program_gradient(program, name, SW_STATE_GRADIENT_INDEX, use),
                       part));
    }
    const float factor = (float)(1 / e->optimizer.scaler.scale);
    for (int64_t i = 0; i < n; i++) {
        part[i] *= factor;
    }
    return SW_OK;
}

sw_status sw_gradient(sw_engine *e, const char *name, float *out)
{
    if (!e->options.train.keep_gradients || e->programs.train < 0) {
        return SW_FAIL(SW_E_ARG, "sw_gradient: the engine was opened without train.keep_gradients");
    }
    const struct sw_parameter *param = sw_weights_find(&e->weights, name);
    if (!param) {
        return SW_FAIL(SW_E_ARG, "no parameter \"%s\" in this model", name);
    }
    const struct sw_layout layout = {.whole = param->work->layout.whole,
                                     .split = param->work->layout.split,
                                     .tensor = param->work->layout.tensor};
    const int64_t n = sw_layout_elems(&layout);
    float *part = sw_alloc_zero("engine", (size_t)n, sizeof *part);
    SW_TRY_ALLOC(part, "a gradient");
    sw_status st = add_uses(e, param->work->name, n, part);
    st = st < 0 ? st : add_tokens(e, part, n);
    st = st < 0 ? st : place_parts(e, &layout, part, n, out);
    sw_free(part);
    return st;
}
