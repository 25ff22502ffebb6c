// SPDX-License-Identifier: Apache-2.0
// Prints the differences of two plans, as text or JSON. Words come from files, so they are
// sanitised for a terminal.
#include "show/diff.h"

#include <stdio.h>
#include <string.h>

/* Instruction i of the program in plan `side` (0 = A, 1 = B); NULL = there is none. */
static const struct sw_dumped_instr *instr_of(const struct sw_diff *d,
                                              const struct sw_diff_program *p, int side, int64_t i)
{
    const int64_t program = side ? p->programs.b : p->programs.a;
    if (program < 0 || i < 0 ||
        i >= sw_dumped_program(&d->plans[side], program)->instruction_list.n) {
        return NULL;
    }
    return sw_dumped_instr(&d->plans[side],
                           sw_dumped_program(&d->plans[side], program)->instruction_list.first + i);
}

/* ---- text ---- */

static void put_word(const struct sw_diff *d, int64_t word, struct sw_str *out)
{
    char plain[256];
    sw_str_puts(out, sw_plain_words(d->words.texts[word], plain, sizeof plain));
}

/* Example: "A 129 backward linear_ce_grad in head of transformer.wte.weight, recomputed" */
static void put_instr(const struct sw_diff *d, const struct sw_diff_program *p, int side, int64_t i,
                      struct sw_str *out)
{
    const struct sw_dumped_instr *instr = instr_of(d, p, side, i);
    if (!instr) {
        sw_str_printf(out, "%c has ended", "AB"[side]);
        return;
    }
    sw_str_printf(out, "%c %lld ", "AB"[side], (long long)i);
    put_word(d, instr->segment, out);
    sw_str_putc(out, ' ');
    put_word(d, instr->name, out);
    if (instr->scope) {
        sw_str_puts(out, " in ");
        put_word(d, instr->scope, out);
    }
    if (instr->tensor) {
        sw_str_puts(out, " of ");
        put_word(d, instr->tensor, out);
    }
    if (instr->micro_batch > 0) {
        sw_str_printf(out, ", micro-batch %lld", (long long)instr->micro_batch);
    }
    sw_str_puts(out, instr->recomputed ? ", recomputed" : "");
}

static void print_fingerprints(const struct sw_diff *d, struct sw_str *out)
{
    sw_str_puts(out, "math fingerprint ");
    put_word(d, d->plans[0].plan.fingerprint, out);
    if (d->plans[0].plan.fingerprint == d->plans[1].plan.fingerprint) {
        sw_str_puts(out, " of both: they train to the same bits\n");
        return;
    }
    sw_str_puts(out, " and ");
    put_word(d, d->plans[1].plan.fingerprint, out);
    sw_str_puts(out, ": they train to other bits\n");
}

static bool is_bytes(const char *name)
{
    const size_t len = strlen(name), end = strlen("_bytes");
    return (len > end && strcmp(name + len - end, "_bytes") == 0) ||
           strstr(name, "_in_a_step") != NULL;
}

/* Prints the rows of the tiers, and other rows that differ. */
static void print_rows(const struct sw_diff *d, struct sw_str *out)
{
    sw_str_printf(out, "%-40s %18s %18s %18s\n", "", "A", "B", "B - A");
    for (int64_t i = 0; i < d->n_rows; i++) {
        const struct sw_diff_row *row = &d->rows[i];
        char plain[256], bytes[32];
        const char *name = sw_plain_words(d->words.texts[row->name], plain, sizeof plain);
        if (row->a == row->b && i >= SW_TIER_COUNT) {
            continue;
        }
        sw_str_printf(out, "%-40s %18lld %18lld %+18lld", name, (long long)row->a,
                      (long long)row->b, (long long)(row->b - row->a));
        if (is_bytes(name) && row->a != row->b) {
            sw_str_printf(out, "  %s",
                          sw_format_bytes(bytes, sizeof bytes, (double)(row->b - row->a)));
        }
        sw_str_putc(out, '\n');
    }
}

/* Prints where the device memory peaks in each plan, if that differs. */
static void print_peak(const struct sw_diff *d, const struct sw_diff_program *p, struct sw_str *out)
{
    if (p->programs.a < 0 || p->programs.b < 0) {
        return;
    }
    const struct sw_dumped_program *a = sw_dumped_program(&d->plans[0], p->programs.a);
    const struct sw_dumped_program *b = sw_dumped_program(&d->plans[1], p->programs.b);
    if (a->peak_live_bytes != b->peak_live_bytes || a->peak_instruction != b->peak_instruction) {
        sw_str_puts(out, "  the peak is at ");
        put_instr(d, p, 0, a->peak_instruction, out);
        sw_str_puts(out, "; ");
        put_instr(d, p, 1, b->peak_instruction, out);
        sw_str_putc(out, '\n');
    }
}

/* Prints how many instructions changed in each way, and the first one of each. Prints nothing if
 * none did. */
static void print_program(const struct sw_diff *d, const struct sw_diff_program *p,
                          struct sw_str *out)
{
    static const char *const labels[SW_CHANGE_COUNT] = {"the same",
                                                        "at other addresses alone",
                                                        "with other waits or conditions",
                                                        "in another order",
                                                        "with other sizes or kernels",
                                                        "on another tier",
                                                        "in A alone",
                                                        "in B alone"};
    int64_t n = 0;
    for (int c = SW_CHANGE_NONE + 1; c < SW_CHANGE_COUNT; c++) {
        n += p->n[c];
    }
    if (n == 0) {
        return;
    }
    sw_str_puts(out, "instructions of program ");
    put_word(d, p->label, out);
    sw_str_puts(out, "\n");
    for (int c = 0; c < SW_CHANGE_COUNT; c++) {
        if (p->n[c] == 0) {
            continue;
        }
        const int side = p->first[c].a < 0;
        sw_str_printf(out, "  %-32s %8lld", labels[c], (long long)p->n[c]);
        if (c != SW_CHANGE_NONE) {
            sw_str_puts(out, "  first: ");
            put_instr(d, p, side, side ? p->first[c].b : p->first[c].a, out);
        }
        sw_str_putc(out, '\n');
    }
    if (p->first_both.a >= 0 || p->first_both.b >= 0) {
        sw_str_puts(out, "  the first that differ: ");
        put_instr(d, p, 0, p->first_both.a, out);
        sw_str_puts(out, "; ");
        put_instr(d, p, 1, p->first_both.b, out);
        sw_str_putc(out, '\n');
    }
    print_peak(d, p, out);
}

/* Prints a tensor, with both tiers or both sizes if these differ. */
static void print_tensor(const struct sw_diff *d, enum sw_change change, const struct sw_pair *pair,
                         struct sw_str *out)
{
    const struct sw_dumped_tensor *a = pair->a < 0 ? NULL : sw_dumped_tensor(&d->plans[0], pair->a);
    const struct sw_dumped_tensor *b = pair->b < 0 ? NULL : sw_dumped_tensor(&d->plans[1], pair->b);
    const struct sw_dumped_tensor *one = a ? a : b;
    sw_str_puts(out, "    ");
    put_word(d, one->name, out);
    if (change == SW_CHANGE_TIER) {
        sw_str_puts(out, ": ");
        put_word(d, a->tier, out);
        sw_str_puts(out, ", ");
        put_word(d, b->tier, out);
    } else if (change == SW_CHANGE_WORK) {
        sw_str_printf(out, ": %lld bytes, %lld bytes", (long long)a->bytes, (long long)b->bytes);
    } else {
        sw_str_printf(out, ": %lld bytes, ", (long long)one->bytes);
        put_word(d, one->tier, out);
    }
    sw_str_putc(out, '\n');
}

static void print_tensors(const struct sw_diff *d, struct sw_str *out)
{
    static const char *const labels[SW_CHANGE_COUNT] = {
        [SW_CHANGE_PLACE] = "at other addresses alone",
        [SW_CHANGE_WORK] = "of other sizes or types",
        [SW_CHANGE_TIER] = "on another tier",
        [SW_CHANGE_ONLY_A] = "in A alone",
        [SW_CHANGE_ONLY_B] = "in B alone"};
    int64_t n = 0;
    for (int c = SW_CHANGE_NONE + 1; c < SW_CHANGE_COUNT; c++) {
        n += d->n_tensors[c];
    }
    if (n == 0) {
        return;
    }
    sw_str_printf(out, "parameters and states\n  %-32s %8lld\n", "the same",
                  (long long)d->n_tensors[SW_CHANGE_NONE]);
    for (int c = SW_CHANGE_NONE + 1; c < SW_CHANGE_COUNT; c++) {
        if (d->n_tensors[c] == 0) {
            continue;
        }
        sw_str_printf(out, "  %-32s %8lld\n", labels[c], (long long)d->n_tensors[c]);
        for (int64_t i = 0; i < d->n_tensors[c] && i < SW_DIFF_SHOWN && c != SW_CHANGE_PLACE; i++) {
            print_tensor(d, (enum sw_change)c, &d->tensors[c][i], out);
        }
        if (d->n_tensors[c] > SW_DIFF_SHOWN && c != SW_CHANGE_PLACE) {
            sw_str_printf(out, "    and %lld more\n", (long long)d->n_tensors[c] - SW_DIFF_SHOWN);
        }
    }
}

void sw_diff_print(const struct sw_diff *d, struct sw_str *out)
{
    if (d->same) {
        sw_str_puts(out, "the plans are the same\n");
        return;
    }
    for (int i = 0; i < 2; i++) {
        char plain[4096];
        sw_str_printf(out, "%c: %s\n", "AB"[i],
                      sw_plain_words(d->source[i].name, plain, sizeof plain));
    }
    print_fingerprints(d, out);
    print_rows(d, out);
    print_tensors(d, out);
    for (int64_t i = 0; i < d->n_programs; i++) {
        print_program(d, &d->programs[i], out);
    }
    for (int64_t i = 0; i < d->n_others; i++) {
        sw_str_puts(out, i ? ", " : "they differ in ");
        put_word(d, d->others[i], out);
    }
    sw_str_puts(out, d->n_others > 0 ? "\n" : "");
}

/* ---- JSON ---- */

static void json_word(const struct sw_diff *d, int64_t word, struct sw_str *out)
{
    const char *text = d->words.texts[word];
    sw_json_write_string(text, strlen(text), out);
}

static void json_counts(const int64_t n[SW_CHANGE_COUNT], struct sw_str *out)
{
    for (int c = 0; c < SW_CHANGE_COUNT; c++) {
        sw_str_printf(out, "%s\"%s\":%lld", c ? "," : "", sw_change_name((enum sw_change)c),
                      (long long)n[c]);
    }
}

static void json_place(int64_t i, struct sw_str *out)
{
    if (i < 0) {
        sw_str_puts(out, "null");
    } else {
        sw_str_printf(out, "%lld", (long long)i);
    }
}

static void json_pair(const char *before, const char *key, const struct sw_pair *pair,
                      struct sw_str *out)
{
    sw_str_printf(out, "%s\"%s\":{\"a\":", before, key);
    json_place(pair->a, out);
    sw_str_puts(out, ",\"b\":");
    json_place(pair->b, out);
    sw_str_putc(out, '}');
}

static void json_program(const struct sw_diff *d, const struct sw_diff_program *p,
                         struct sw_str *out)
{
    const char *before = "";
    sw_str_puts(out, "{\"program\":");
    json_word(d, p->label, out);
    sw_str_putc(out, ',');
    json_counts(p->n, out);
    json_pair(",", "first_different", &p->first_both, out);
    sw_str_puts(out, ",\"first\":{");
    for (int c = SW_CHANGE_NONE + 1; c < SW_CHANGE_COUNT; c++) {
        if (p->n[c] > 0) {
            json_pair(before, sw_change_name((enum sw_change)c), &p->first[c], out);
            before = ",";
        }
    }
    sw_str_puts(out, "}}");
}

static void json_tensor(const struct sw_diff *d, int side, int64_t i, struct sw_str *out)
{
    if (i < 0) {
        sw_str_puts(out, "null");
        return;
    }
    const struct sw_dumped_tensor *tensor = sw_dumped_tensor(&d->plans[side], i);
    sw_str_puts(out, "{\"tier\":");
    json_word(d, tensor->tier, out);
    sw_str_printf(out, ",\"bytes\":%lld}", (long long)tensor->bytes);
}

static void json_tensors(const struct sw_diff *d, struct sw_str *out)
{
    const char *before = "";
    json_counts(d->n_tensors, out);
    sw_str_puts(out, ",\"shown\":[");
    for (int c = SW_CHANGE_NONE + 1; c < SW_CHANGE_COUNT; c++) {
        for (int64_t i = 0; i < d->n_tensors[c] && i < SW_DIFF_SHOWN; i++) {
            const struct sw_pair *pair = &d->tensors[c][i];
            const int side = pair->a < 0;
            sw_str_printf(out, "%s{\"name\":", before);
            json_word(d, sw_dumped_tensor(&d->plans[side], side ? pair->b : pair->a)->name, out);
            sw_str_printf(out, ",\"change\":\"%s\",\"a\":", sw_change_name((enum sw_change)c));
            json_tensor(d, 0, pair->a, out);
            sw_str_puts(out, ",\"b\":");
            json_tensor(d, 1, pair->b, out);
            sw_str_putc(out, '}');
            before = ",";
        }
    }
    sw_str_putc(out, ']');
}

void sw_diff_print_json(const struct sw_diff *d, struct sw_str *out)
{
    sw_str_printf(out, "{\"same\":%s,\"fingerprint\":{\"a\":", d->same ? "true" : "false");
    json_word(d, d->plans[0].plan.fingerprint, out);
    sw_str_puts(out, ",\"b\":");
    json_word(d, d->plans[1].plan.fingerprint, out);
    sw_str_puts(out, "},\"numbers\":{");
    for (int64_t i = 0; i < d->n_rows; i++) {
        sw_str_puts(out, i ? "," : "");
        json_word(d, d->rows[i].name, out);
        sw_str_printf(out, ":{\"a\":%lld,\"b\":%lld}", (long long)d->rows[i].a,
                      (long long)d->rows[i].b);
    }
    sw_str_puts(out, "},\"tensors\":{");
    json_tensors(d, out);
    sw_str_puts(out, "},\"programs\":[");
    for (int64_t i = 0; i < d->n_programs; i++) {
        sw_str_puts(out, i ? "," : "");
        json_program(d, &d->programs[i], out);
    }
    sw_str_puts(out, "],\"others\":[");
    for (int64_t i = 0; i < d->n_others; i++) {
        sw_str_puts(out, i ? "," : "");
        json_word(d, d->others[i], out);
    }
    sw_str_puts(out, "]}");
}
