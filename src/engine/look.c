// SPDX-License-Identifier: Apache-2.0
// Inspection of an engine: its plan as text, gradients of the last micro-batch, time by operation.
#include <string.h>

#include "engine/private.h"

static sw_status give_text(struct sw_str *text, char **out)
{
    if (text->failed) {
        sw_str_fini(text);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a report");
    }
    if (!text->ptr) {
        sw_str_puts(text, "");
    }
    *out = text->ptr;
    return SW_OK;
}

sw_status sw_plan_text(const sw_engine *e, bool instructions, bool json, char **out)
{
    struct sw_str text = {0};
    const bool moves = e->programs.train >= 0;
    struct sw_str chosen = {0};
    sw_config_print_chosen(e->config, json, &chosen);
    if (json) {
        sw_plan_print_json(e->plan, instructions, &text);
        if (moves && !text.failed) {
            text.len--; /* drops the closing brace */
            sw_str_printf(&text, ",\"micro_steps\":%lld,", (long long)e->sizes.rounds);
            sw_engine_print_moves(e, true, &text);
            sw_str_putc(&text, '}');
        }
        if (chosen.len > 0 && !text.failed) {
            text.len--;
            sw_str_printf(&text, ",\"chosen\":{%s}}", sw_str_text(&chosen));
        }
    } else {
        sw_str_puts(&text, chosen.len > 0 ? "chosen: " : "");
        sw_str_puts(&text, sw_str_text(&chosen));
        sw_str_puts(&text, chosen.len > 0 ? "\n" : "");
        sw_plan_print(e->plan, instructions, &text);
        if (moves) {
            sw_engine_print_moves(e, false, &text);
        }
    }
    text.failed |= chosen.failed;
    sw_str_fini(&chosen);
    return give_text(&text, out);
}

/* ---- gradients ---- */

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
    const struct engine_param *param = sw_engine_find_param(e, name);
    if (!param) {
        return SW_FAIL(SW_E_ARG, "no parameter \"%s\" in this model", name);
    }
    const struct sw_program *program = &e->plan->programs[e->programs.train];
    const int64_t n = sw_shape_elems(&param->work->layout.whole);
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

/* ---- time by operation ---- */

struct row {
    const char *name, *path;
    int64_t ns, flops, count;
};

enum { MAX_ROWS = SW_N_OP_KINDS * 3 };

/* Sums the times into one row for each kind of op and kernel. */
static int sum_rows(const sw_engine *e, struct row rows[MAX_ROWS])
{
    const struct sw_program *program = &e->plan->programs[e->programs.train];
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const char *path = instr->about->kernel.path ? instr->about->kernel.path : "";
        int r = 0;
        while (r < n &&
               (strcmp(rows[r].name, instr->about->name) != 0 || strcmp(rows[r].path, path) != 0)) {
            r++;
        }
        if (r == MAX_ROWS) {
            continue;
        }
        n = r == n ? n + 1 : n;
        rows[r].name = instr->about->name;
        rows[r].path = path;
        const struct sw_profile ran = sw_executor_profile(e->executor, e->programs.train, i);
        rows[r].ns += ran.ns;
        rows[r].flops += instr->flops * ran.n_runs;
        rows[r].count++;
    }
    return n;
}

sw_status sw_profile_text(const sw_engine *e, char **out)
{
    if (!e->options.run.profile || e->programs.train < 0) {
        return SW_FAIL(SW_E_ARG, "the engine was opened without run.profile");
    }
    struct row rows[MAX_ROWS] = {0};
    const int n = sum_rows(e, rows);
    int64_t total = 0;
    for (int r = 0; r < n; r++) {
        total += rows[r].ns;
    }
    struct sw_str text = {0};
    sw_str_printf(&text, "%-20s %-28s %6s %10s %7s %10s\n", "operation", "kernel", "calls", "ms",
                  "share", "GFLOP/s");
    for (int done = 0; done < n; done++) { /* longest first */
        int best = -1;
        for (int r = 0; r < n; r++) {
            if (rows[r].name && (best < 0 || rows[r].ns > rows[best].ns)) {
                best = r;
            }
        }
        const double ms = (double)rows[best].ns / 1e6;
        sw_str_printf(&text, "%-20s %-28s %6lld %10.3f %6.1f%% %10.1f\n", rows[best].name,
                      rows[best].path, (long long)rows[best].count, ms,
                      total > 0 ? 100.0 * (double)rows[best].ns / (double)total : 0,
                      ms > 0 ? (double)rows[best].flops / ms / 1e6 : 0);
        rows[best].name = NULL;
    }
    return give_text(&text, out);
}
