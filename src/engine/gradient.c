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

sw_status sw_gradient(sw_engine *e, const char *name, float *out)
{
    if (!e->options.train.keep_gradients || e->programs.train < 0) {
        return SW_FAIL(SW_E_ARG, "sw_gradient: the engine was opened without train.keep_gradients");
    }
    const struct sw_parameter *param = sw_weights_find(&e->weights, name);
    if (!param) {
        return SW_FAIL(SW_E_ARG, "no parameter \"%s\" in this model", name);
    }
    const int64_t n = sw_shape_elems(&param->work->layout.whole);
    const struct sw_program *program = &e->plan->programs[e->programs.train];
    memset(out, 0, (size_t)n * sizeof *out);
    for (int use = 0;; use++) {
        const struct sw_port *grad = sw_program_gradient(program, name, SW_STATE_GRADIENT, use);
        if (!grad) {
            break;
        }
        SW_TRY(add_use(e, grad, sw_program_gradient(program, name, SW_STATE_GRADIENT_INDEX, use),
                       out));
    }
    const float factor = (float)(1 / e->optimizer.scaler.scale);
    for (int64_t i = 0; i < n; i++) {
        out[i] *= factor;
    }
    return SW_OK;
}
