// SPDX-License-Identifier: Apache-2.0
// The plan of an engine as text, and time by operation.
#include "spillway/look.h"

#include <string.h>

#include "look/private.h"
#include "show/show.h"

sw_status sw_look_give(sw_status st, struct sw_str *text, char **out)
{
    if (!text->ptr) {
        sw_str_puts(text, "");
    }
    if (st < 0 || text->failed) {
        sw_str_fini(text);
        return st < 0 ? st : SW_FAIL(SW_E_NOMEM, "out of host memory for a report");
    }
    *out = text->ptr;
    return SW_OK;
}

sw_status sw_plan_text(const sw_engine *e, bool instructions, bool json, char **out)
{
    const struct sw_engine_facts f = sw_engine_facts(e);
    struct sw_str text = {0};
    struct sw_str chosen = {0};
    sw_config_print_chosen(f.config, json, &chosen);
    if (json) {
        sw_plan_print_json(f.plan, instructions, &text);
        if (chosen.len > 0 && !text.failed) {
            text.len--; /* drops the closing brace */
            sw_str_printf(&text, ",\"chosen\":{%s}}", sw_str_text(&chosen));
        }
    } else {
        sw_str_puts(&text, chosen.len > 0 ? "chosen: " : "");
        sw_str_puts(&text, sw_str_text(&chosen));
        sw_str_puts(&text, chosen.len > 0 ? "\n" : "");
        sw_engine_print_mesh(e, &text);
        sw_plan_print(f.plan, instructions, &text);
    }
    text.failed |= chosen.failed;
    sw_str_fini(&chosen);
    return sw_look_give(SW_OK, &text, out);
}

/* ---- time by operation ---- */

struct row {
    const char *name, *path;
    int64_t ns, flops, count, captured; /* captured: instructions that are replayed with others */
};

enum { MAX_ROWS = SW_N_OP_KINDS * 3 };

/* Sums the times into one row for each kind of op and kernel. */
static int sum_rows(const struct sw_engine_facts *f, struct row rows[MAX_ROWS])
{
    const struct sw_program *program = &f->plan->programs[f->train_program];
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
        const struct sw_profile ran = sw_executor_profile(f->executor, f->train_program, i);
        rows[r].ns += ran.ns;
        rows[r].flops += instr->flops * ran.n_runs;
        rows[r].count++;
        rows[r].captured += ran.is_captured;
    }
    return n;
}

sw_status sw_profile_text(const sw_engine *e, char **out)
{
    const struct sw_engine_facts f = sw_engine_facts(e);
    if (!f.profile || !f.executor || f.train_program < 0) {
        return SW_FAIL(SW_E_ARG, "the engine was opened without run.profile");
    }
    struct row rows[MAX_ROWS] = {0};
    const int n = sum_rows(&f, rows);
    int64_t total = 0;
    for (int r = 0; r < n; r++) {
        total += rows[r].ns;
    }
    struct sw_str text = {0};
    const struct sw_captures captures = sw_executor_captures(f.executor);
    sw_str_printf(&text, "%-20s %-28s %6s %10s %7s %10s%s\n", "operation", "kernel", "calls", "ms",
                  "share", "GFLOP/s", captures.n_replays > 0 ? " captured" : "");
    for (int done = 0; done < n; done++) { /* longest first */
        int best = -1;
        for (int r = 0; r < n; r++) {
            if (rows[r].name && (best < 0 || rows[r].ns > rows[best].ns)) {
                best = r;
            }
        }
        const double ms = (double)rows[best].ns / 1e6;
        sw_str_printf(&text, "%-20s %-28s %6lld %10.3f %6.1f%% %10.1f", rows[best].name,
                      rows[best].path, (long long)rows[best].count, ms,
                      total > 0 ? 100.0 * (double)rows[best].ns / (double)total : 0,
                      ms > 0 ? (double)rows[best].flops / ms / 1e6 : 0);
        if (captures.n_replays > 0) {
            sw_str_printf(&text, " %8lld", (long long)rows[best].captured);
        }
        sw_str_putc(&text, '\n');
        rows[best].name = NULL;
    }
    if (captures.n_replays > 0) {
        sw_str_printf(&text,
                      "The profile launched one by one. Without it the %lld launches of captured "
                      "calls in a step are replayed as %lld.\n",
                      (long long)captures.n_launches, (long long)captures.n_replays);
    }
    return sw_look_give(SW_OK, &text, out);
}
