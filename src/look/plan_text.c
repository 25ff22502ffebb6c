// SPDX-License-Identifier: Apache-2.0
// The plan of an engine as text, what a step of it moves between tiers, and time by operation.
#include "spillway/look.h"

#include <string.h>

#include "engine/engine.h"
#include "json/json.h"
#include "show/show.h"

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

static double parameters_of(const struct sw_plan *plan)
{
    double sum = 0;
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        sum += item->role == SW_ROLE_PARAM ? (double)sw_shape_elems(&item->shape) : 0;
    }
    return sum;
}

static void print_moves(const struct sw_engine_facts *f, bool json, struct sw_str *out)
{
    const struct sw_transfers t = sw_plan_transfers(f->plan, f->rounds);
    const double written = (double)t.out[SW_TIER_DISK], n = parameters_of(f->plan);
    const double each = n > 0 ? written / n : 0, tb = written * 1000 / 1e12;
    if (json) {
        sw_str_printf(out, "\"moved_in_a_step\":{");
        for (int tier = SW_TIER_HOST; tier < SW_TIER_COUNT; tier++) {
            const char *name = sw_tier_name((enum sw_tier)tier);
            sw_str_printf(out, "\"from_%s\":%lld,\"to_%s\":%lld,", name, (long long)t.in[tier],
                          name, (long long)t.out[tier]);
        }
        sw_str_puts(out, "\"disk_written_a_parameter\":");
        sw_json_write_f64(each, out);
        sw_str_puts(out, ",\"disk_tb_in_1000_steps\":");
        sw_json_write_f64(tb, out);
        sw_str_putc(out, '}');
        return;
    }
    for (int tier = SW_TIER_HOST; tier < SW_TIER_COUNT; tier++) {
        if (t.in[tier] + t.out[tier] == 0) {
            continue;
        }
        sw_str_printf(out, "a step moves %lld bytes from the %s and %lld to it",
                      (long long)t.in[tier], sw_tier_name((enum sw_tier)tier),
                      (long long)t.out[tier]);
        if (tier == SW_TIER_DISK) {
            sw_str_printf(out, ": %.3g written a parameter, %.3g TB in 1000 steps", each, tb);
        }
        sw_str_putc(out, '\n');
    }
}

sw_status sw_plan_text(const sw_engine *e, bool instructions, bool json, char **out)
{
    const struct sw_engine_facts f = sw_engine_facts(e);
    struct sw_str text = {0};
    const bool moves = f.train_program >= 0;
    struct sw_str chosen = {0};
    sw_config_print_chosen(f.config, json, &chosen);
    if (json) {
        sw_plan_print_json(f.plan, instructions, &text);
        if (moves && !text.failed) {
            text.len--; /* drops the closing brace */
            sw_str_printf(&text, ",\"micro_steps\":%lld,", (long long)f.rounds);
            print_moves(&f, true, &text);
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
        sw_plan_print(f.plan, instructions, &text);
        if (moves) {
            print_moves(&f, false, &text);
        }
    }
    text.failed |= chosen.failed;
    sw_str_fini(&chosen);
    return give_text(&text, out);
}

/* ---- time by operation ---- */

struct row {
    const char *name, *path;
    int64_t ns, flops, count;
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
