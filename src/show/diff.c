// SPDX-License-Identifier: Apache-2.0
// Compares two plans from their JSON. Instructions correspond if they have the same name, scope,
// tensor, phase and micro-batch; several with the same key correspond in order. The longest common
// order counts as unchanged, and waits are compared by their targets. Memory is proportional to the
// plans, and time nearly so.
#include "show/diff.h"

#include <stdio.h>
#include <string.h>

const char *sw_change_name(enum sw_change change)
{
    static const char *const names[SW_CHANGE_COUNT] = {"same", "place", "waits",  "order",
                                                       "work", "tier",  "only_a", "only_b"};
    return names[change];
}

static sw_status no_memory(void)
{
    return SW_FAIL(SW_E_NOMEM, "out of host memory for the comparison of plans");
}

/* ---- numbers ---- */

/* Adds a number of both plans under the name group.name. */
static sw_status add_row(struct sw_diff *d, const char *group, const char *name, int64_t a,
                         int64_t b)
{
    char text[512];
    if (d->n_rows == d->cap_rows) {
        const int64_t cap = d->cap_rows ? d->cap_rows * 2 : 64;
        void *rows = sw_realloc("plan", d->rows, (size_t)cap * sizeof *d->rows);
        if (!rows) {
            return no_memory();
        }
        d->rows = rows;
        d->cap_rows = cap;
    }
    struct sw_diff_row *row = &d->rows[d->n_rows];
    snprintf(text, sizeof text, "%s%s%s", group, *group ? "." : "", name);
    SW_TRY(sw_words_find(&d->words, text, &row->name));
    row->a = a;
    row->b = b;
    d->n_rows++;
    return SW_OK;
}

/* Notes that something else differs, if no more than that is known. */
static sw_status add_other(struct sw_diff *d, const char *group, const char *name, bool differs)
{
    char text[512];
    if (!differs) {
        return SW_OK;
    }
    void *others = sw_realloc("plan", d->others, ((size_t)d->n_others + 1) * sizeof *d->others);
    if (!others) {
        return no_memory();
    }
    d->others = others;
    snprintf(text, sizeof text, "%s%s%s", group, *group ? "." : "", name);
    SW_TRY(sw_words_find(&d->words, text, &d->others[d->n_others]));
    d->n_others++;
    return SW_OK;
}

/* Bytes of shards that ranks exchange in a step. */
static sw_status exchanged_by(struct sw_diff *d, const struct sw_dumped *plan, int64_t *out)
{
    static const char *const words[] = {"update", "commit", "train"};
    enum { UPDATE, COMMIT, TRAIN, N };
    int64_t word[N], exchanges[SW_VERB_COUNT], sum = 0;
    for (int i = 0; i < N; i++) {
        SW_TRY(sw_words_find(&d->words, words[i], &word[i]));
    }
    for (int v = SW_VERB_REDUCE; v < SW_VERB_COUNT; v++) {
        SW_TRY(sw_words_find(&d->words, sw_verb_name((enum sw_verb)v), &exchanges[v]));
    }
    for (int64_t p = 0; p < plan->programs.n; p++) {
        const struct sw_dumped_program *program = sw_dumped_program(plan, p);
        for (int64_t i = 0; i < program->instrs.n && program->kind == word[TRAIN]; i++) {
            const struct sw_dumped_instr *instr = sw_dumped_instr(plan, program->instrs.first + i);
            const bool once = program->micro_batches > 1 || instr->last_only ||
                              instr->segment == word[UPDATE] || instr->segment == word[COMMIT];
            int64_t bytes = 0;
            for (int v = SW_VERB_REDUCE; v < SW_VERB_COUNT; v++) {
                bytes = instr->verb == exchanges[v] ? instr->bytes : bytes;
            }
            if (!sw_mul_i64(bytes, once ? 1 : plan->micro_steps, &bytes) ||
                !sw_add_i64(sum, bytes, &sum) || sum > INT64_MAX / 2) {
                sum = INT64_MAX / 2;
            }
        }
    }
    *out = sum;
    return SW_OK;
}

static sw_status compare_tiers(struct sw_diff *d)
{
    const struct sw_dumped *a = &d->plans[0], *b = &d->plans[1];
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        char name[32];
        snprintf(name, sizeof name, "%s_bytes", sw_tier_name((enum sw_tier)t));
        SW_TRY(add_row(d, "", name, a->tier_bytes[t], b->tier_bytes[t]));
    }
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        char name[32];
        snprintf(name, sizeof name, "%s_budget", sw_tier_name((enum sw_tier)t));
        SW_TRY(add_row(d, "", name, a->tier_budget[t], b->tier_budget[t]));
    }
    for (int t = SW_TIER_HOST; t < SW_TIER_COUNT; t++) {
        for (int way = 0; way < 2; way++) {
            char name[32];
            snprintf(name, sizeof name, "%s_%s", way ? "to" : "from",
                     sw_tier_name((enum sw_tier)t));
            SW_TRY(add_row(d, "moved_in_a_step", name, a->moved[way][t], b->moved[way][t]));
        }
    }
    return SW_OK;
}

static sw_status compare_numbers(struct sw_diff *d)
{
    const struct sw_dumped *a = &d->plans[0], *b = &d->plans[1];
    int64_t exchanged[2];
    SW_TRY(exchanged_by(d, a, &exchanged[0]));
    SW_TRY(exchanged_by(d, b, &exchanged[1]));
    const struct {
        const char *name;
        int64_t a, b;
    } rows[] = {
        {"exchanged_in_a_step", exchanged[0], exchanged[1]},
        {"micro_steps", a->micro_steps, b->micro_steps},
        {"parameter_bytes", a->parameter_bytes, b->parameter_bytes},
        {"state_bytes", a->state_bytes, b->state_bytes},
        {"gradient_bytes", a->gradient_bytes, b->gradient_bytes},
        {"persistent_bytes", a->persistent_bytes, b->persistent_bytes},
        {"staging_bytes", a->staging_bytes, b->staging_bytes},
        {"input_bytes", a->input_bytes, b->input_bytes},
        {"disk_slots", a->disk_slots, b->disk_slots},
        {"tiled_parameters", a->tiled_parameters, b->tiled_parameters},
        {"tiles", a->tiles, b->tiles},
        {"largest_tile_bytes", a->largest_tile_bytes, b->largest_tile_bytes},
        {"packs", a->packs, b->packs},
        {"packed_tensors", a->packed_tensors, b->packed_tensors},
    };
    SW_TRY(compare_tiers(d));
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        SW_TRY(add_row(d, "", rows[i].name, rows[i].a, rows[i].b));
    }
    SW_TRY(add_other(d, "", "groups", a->groups != b->groups));
    SW_TRY(add_other(d, "", "pack_list", a->pack_list != b->pack_list));
    SW_TRY(add_other(d, "", "tile_list", a->tile_list != b->tile_list));
    SW_TRY(add_other(d, "", "step", a->step != b->step));
    SW_TRY(add_other(d, "", "chosen", a->chosen != b->chosen));
    return add_other(d, "", "members that this version does not know", a->rest != b->rest);
}

/* ---- parameters and states ---- */

/* The most severe difference of two tensors. */
static enum sw_change tensor_change(const struct sw_dumped_tensor *a,
                                    const struct sw_dumped_tensor *b)
{
    return a->tier != b->tier ? SW_CHANGE_TIER
           : a->rest != b->rest || a->role != b->role || a->bytes != b->bytes || a->room != b->room
               ? SW_CHANGE_WORK
           : a->offset != b->offset || a->slot_bytes != b->slot_bytes || a->pack != b->pack
               ? SW_CHANGE_PLACE
               : SW_CHANGE_NONE;
}

static void note_tensor(struct sw_diff *d, enum sw_change change, int64_t a, int64_t b)
{
    const int64_t n = d->n_tensors[change]++;
    if (n < SW_DIFF_SHOWN) {
        d->tensors[change][n] = (struct sw_pair){a, b};
    }
}

/* of: [words] index of each plan's tensor of that name, plus 1; 0 = none */
static sw_status index_tensors(const struct sw_diff *d, int side, int64_t *of)
{
    for (int64_t i = 0; i < d->plans[side].tensors.n; i++) {
        int64_t *place = &of[sw_dumped_tensor(&d->plans[side], i)->name];
        if (*place > 0) {
            return SW_FAIL(SW_E_FORMAT, "%s: persistent[%lld].name: persistent[%lld] has the same",
                           d->source[side].name, (long long)i, (long long)*place - 1);
        }
        *place = i + 1;
    }
    return SW_OK;
}

/* Pairs the tensors of the plans by name, and notes how each differs. */
static sw_status compare_tensors(struct sw_diff *d)
{
    const struct sw_dumped *a = &d->plans[0], *b = &d->plans[1];
    const size_t n = (size_t)d->words.n;
    int64_t *of = sw_alloc_zero("plan", 2 * n, sizeof *of);
    sw_status st;
    if (!of) {
        return no_memory();
    }
    SW_TRY_OR(done, index_tensors(d, 0, of));
    SW_TRY_OR(done, index_tensors(d, 1, of + n));
    for (int64_t i = 0; i < a->tensors.n; i++) {
        const struct sw_dumped_tensor *tensor = sw_dumped_tensor(a, i);
        const int64_t k = of[n + (size_t)tensor->name] - 1;
        note_tensor(d, k < 0 ? SW_CHANGE_ONLY_A : tensor_change(tensor, sw_dumped_tensor(b, k)), i,
                    k);
    }
    for (int64_t k = 0; k < b->tensors.n; k++) {
        if (of[sw_dumped_tensor(b, k)->name] == 0) {
            note_tensor(d, SW_CHANGE_ONLY_B, -1, k);
        }
    }
done:
    sw_free(of);
    return st;
}

/* ---- instructions ---- */

struct side {
    const struct sw_dumped *plan;
    const struct sw_dumped_instr *instrs; /* [n] */
    int64_t n;
    int64_t *other; /* [n] index of its counterpart; -1 = none */
};

struct match {
    struct side a, b;
    struct sw_hash_key key;
    int64_t *heads; /* [n_heads] first instruction of B with a hash, plus 1; 0 = none */
    int64_t n_heads;
    int64_t *next;  /* [b.n] next one with the same hash, plus 1 */
    int64_t *tails; /* [a.n] see keep_order */
    int64_t *before;
    bool *in_order; /* [a.n] */
};

/* Key of an instruction, independent of its position. */
struct name_of_instr {
    int64_t name, scope, tensor, micro, phase, recomputed;
};

static struct name_of_instr name_of(const struct sw_dumped_instr *instr)
{
    return (struct name_of_instr){instr->name,
                                  instr->scope,
                                  instr->tensor,
                                  instr->micro,
                                  instr->phase ? instr->phase : instr->segment,
                                  instr->recomputed};
}

static int64_t *head_of(const struct match *m, const struct name_of_instr *name)
{
    return &m->heads[sw_hash_keyed(&m->key, name, sizeof *name) & (uint64_t)(m->n_heads - 1)];
}

/* Removes from its chain the first unmatched instruction of B with this key. */
static int64_t take(const struct match *m, const struct name_of_instr *name)
{
    for (int64_t *at = head_of(m, name); *at; at = &m->next[*at - 1]) {
        const int64_t k = *at - 1;
        const struct name_of_instr other = name_of(&m->b.instrs[k]);
        if (memcmp(&other, name, sizeof other) == 0) {
            *at = m->next[k];
            return k;
        }
    }
    return -1;
}

/* Pairs instructions with the same key, in order. B is chained from its end, so that each chain
 * begins with its first instruction. */
static void match_names(struct match *m)
{
    for (int64_t k = m->b.n; k-- > 0;) {
        const struct name_of_instr name = name_of(&m->b.instrs[k]);
        int64_t *head = head_of(m, &name);
        m->next[k] = *head;
        *head = k + 1;
        m->b.other[k] = -1;
    }
    for (int64_t i = 0; i < m->a.n; i++) {
        const struct name_of_instr name = name_of(&m->a.instrs[i]);
        m->a.other[i] = take(m, &name);
        if (m->a.other[i] >= 0) {
            m->b.other[m->a.other[i]] = i;
        }
    }
}

/* Finds the longest subsequence of pairs that is in the same order in both plans. tails[k] ends the
 * best one of k + 1 pairs. */
static void keep_order(struct match *m)
{
    int64_t n = 0;
    for (int64_t i = 0; i < m->a.n; i++) {
        if (m->a.other[i] < 0) {
            continue;
        }
        int64_t low = 0, high = n;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            const bool less = m->a.other[m->tails[middle]] < m->a.other[i];
            low = less ? middle + 1 : low;
            high = less ? high : middle;
        }
        m->before[i] = low > 0 ? m->tails[low - 1] : -1;
        m->tails[low] = i;
        n = low == n ? n + 1 : n;
    }
    for (int64_t i = n > 0 ? m->tails[n - 1] : -1; i >= 0; i = m->before[i]) {
        m->in_order[i] = true;
    }
}

/* The most severe difference of two operands. */
static enum sw_change operand_change(const struct sw_dumped_operand *a,
                                     const struct sw_dumped_operand *b)
{
    return a->tier != b->tier ? SW_CHANGE_TIER
           : a->rest != b->rest || a->bytes != b->bytes || a->room != b->room ||
                   a->dtype != b->dtype
               ? SW_CHANGE_WORK
           : a->offset != b->offset || a->rings != b->rings ? SW_CHANGE_PLACE
                                                            : SW_CHANGE_NONE;
}

static enum sw_change worst(enum sw_change a, enum sw_change b)
{
    return a > b ? a : b;
}

static bool does_other_work(const struct sw_dumped_instr *a, const struct sw_dumped_instr *b)
{
    return a->rest != b->rest || a->dtype != b->dtype || a->kernel != b->kernel ||
           a->pieces != b->pieces || a->flops != b->flops || a->bytes != b->bytes ||
           a->n_out != b->n_out || a->workspace_bytes != b->workspace_bytes ||
           a->operands.n != b->operands.n;
}

/* True if B does not wait for the counterpart of what A waits for. */
static bool waits_for_another(const struct match *m, int64_t a, int64_t b)
{
    return a > 0 && a <= m->a.n ? b == 0 || m->a.other[a - 1] != b - 1 : a != b;
}

/* True if the two start under other conditions: another queue or segment, other waits, an exchange
 * of another form, another predicate. */
static bool has_other_waits(const struct match *m, const struct sw_dumped_instr *a,
                            const struct sw_dumped_instr *b)
{
    bool differs =
        a->queue != b->queue || a->segment != b->segment ||
        a->exchange.group != b->exchange.group || a->exchange.batch != b->exchange.batch ||
        a->exchange.blocking != b->exchange.blocking ||
        a->exchange.whole_step != b->exchange.whole_step || a->exchange.rows != b->exchange.rows ||
        a->predicate != b->predicate || a->last_only != b->last_only ||
        waits_for_another(m, a->retired, b->retired) || waits_for_another(m, a->again, b->again) ||
        waits_for_another(m, a->follows, b->follows);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        differs |= waits_for_another(m, a->waits[q], b->waits[q]);
    }
    return differs;
}

/* The most severe change of instruction i of A. */
static enum sw_change change_of(const struct match *m, int64_t i)
{
    const struct sw_dumped_instr *a = &m->a.instrs[i];
    if (m->a.other[i] < 0) {
        return SW_CHANGE_ONLY_A;
    }
    const struct sw_dumped_instr *b = &m->b.instrs[m->a.other[i]];
    enum sw_change change = a->verb != b->verb      ? SW_CHANGE_TIER
                            : does_other_work(a, b) ? SW_CHANGE_WORK
                                                    : SW_CHANGE_NONE;
    change = worst(change, m->in_order[i] ? SW_CHANGE_NONE : SW_CHANGE_ORDER);
    change = worst(change, has_other_waits(m, a, b) ? SW_CHANGE_WAITS : SW_CHANGE_NONE);
    change = worst(change,
                   a->workspace_offset != b->workspace_offset ? SW_CHANGE_PLACE : SW_CHANGE_NONE);
    for (int64_t k = 0; k < a->operands.n && a->operands.n == b->operands.n; k++) {
        change = worst(change, operand_change(sw_dumped_operand(m->a.plan, a->operands.first + k),
                                              sw_dumped_operand(m->b.plan, b->operands.first + k)));
    }
    return change;
}

static void note_instr(struct sw_diff_program *p, enum sw_change change, int64_t a, int64_t b)
{
    if (p->n[change]++ == 0) {
        p->first[change] = (struct sw_pair){a, b};
    }
}

/* Counts the changes of all instructions. Finds the first place at which the plans run something
 * else; other addresses do not count. */
static void note_changes(const struct match *m, struct sw_diff_program *p)
{
    bool together = true;
    int64_t walked = 0;
    for (int64_t i = 0; i < m->a.n; i++) {
        const enum sw_change change = change_of(m, i);
        note_instr(p, change, i, m->a.other[i]);
        together = together && m->a.other[i] == i && change <= SW_CHANGE_PLACE;
        walked += together;
    }
    for (int64_t k = 0; k < m->b.n; k++) {
        if (m->b.other[k] < 0) {
            note_instr(p, SW_CHANGE_ONLY_B, -1, k);
        }
    }
    p->first_both = (struct sw_pair){walked < m->a.n ? walked : -1, walked < m->b.n ? walked : -1};
}

static struct side side_of(const struct sw_dumped *plan, int64_t i)
{
    if (i < 0) {
        return (struct side){.plan = plan};
    }
    const struct sw_dumped_span *span = &sw_dumped_program(plan, i)->instrs;
    return (struct side){.plan = plan, .instrs = sw_dumped_instr(plan, span->first), .n = span->n};
}

/* Pairs the instructions of a program in both plans, and notes their changes. */
static sw_status compare_instrs(const struct sw_diff *d, struct sw_diff_program *p)
{
    struct match m = {.a = side_of(&d->plans[0], p->programs.a),
                      .b = side_of(&d->plans[1], p->programs.b),
                      .n_heads = 16};
    const size_t n_a = (size_t)m.a.n + 1, n_b = (size_t)m.b.n + 1;
    while (m.n_heads < m.b.n) {
        m.n_heads *= 2;
    }
    sw_hash_key_init(&m.key);
    m.heads = sw_alloc_zero("plan", (size_t)m.n_heads, sizeof *m.heads);
    m.a.other = sw_alloc("plan", n_a * sizeof *m.a.other);
    m.b.other = sw_alloc("plan", n_b * sizeof *m.b.other);
    m.next = sw_alloc("plan", n_b * sizeof *m.next);
    m.tails = sw_alloc("plan", n_a * sizeof *m.tails);
    m.before = sw_alloc("plan", n_a * sizeof *m.before);
    m.in_order = sw_alloc_zero("plan", n_a, sizeof *m.in_order);
    const bool good =
        m.heads && m.a.other && m.b.other && m.next && m.tails && m.before && m.in_order;
    if (good) {
        match_names(&m);
        keep_order(&m);
        note_changes(&m, p);
    }
    sw_free(m.heads);
    sw_free(m.a.other);
    sw_free(m.b.other);
    sw_free(m.next);
    sw_free(m.tails);
    sw_free(m.before);
    sw_free(m.in_order);
    return good ? SW_OK : no_memory();
}

/* ---- programs ---- */

/* Counts the instructions of each plan by verb and name, and adds a row for each such pair in the
 * order of its first instruction. */
static sw_status count_kinds(struct sw_diff *d, const struct sw_diff_program *p)
{
    const struct side sides[2] = {side_of(&d->plans[0], p->programs.a),
                                  side_of(&d->plans[1], p->programs.b)};
    const int64_t n = sides[0].n + sides[1].n;
    sw_status st = SW_OK;
    int64_t *word = sw_alloc("plan", ((size_t)n + 1) * sizeof *word), (*count)[2] = NULL;
    if (!word) {
        return no_memory();
    }
    for (int64_t i = 0; i < n && st >= 0; i++) {
        const struct sw_dumped_instr *instr =
            i < sides[0].n ? &sides[0].instrs[i] : &sides[1].instrs[i - sides[0].n];
        char text[512];
        snprintf(text, sizeof text, "%s.%s.%s", d->words.texts[p->label],
                 d->words.texts[instr->verb], d->words.texts[instr->name]);
        st = sw_words_find(&d->words, text, &word[i]);
    }
    SW_TRY_OR(done, st);
    count = sw_alloc_zero("plan", (size_t)d->words.n, sizeof *count);
    if (!count) {
        st = no_memory();
        goto done;
    }
    for (int64_t i = 0; i < n; i++) {
        count[word[i]][i >= sides[0].n]++;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t *of = count[word[i]];
        if (of[0] + of[1] > 0) {
            SW_TRY_OR(done, add_row(d, "", d->words.texts[word[i]], of[0], of[1]));
            of[0] = of[1] = 0;
        }
    }
done:
    sw_free(word);
    sw_free(count);
    return st;
}

static sw_status compare_program(struct sw_diff *d, struct sw_diff_program *p)
{
    static const struct sw_dumped_program none;
    const char *label = d->words.texts[p->label];
    const struct sw_dumped_program *a =
        p->programs.a < 0 ? &none : sw_dumped_program(&d->plans[0], p->programs.a);
    const struct sw_dumped_program *b =
        p->programs.b < 0 ? &none : sw_dumped_program(&d->plans[1], p->programs.b);
    SW_TRY(add_row(d, label, "instructions", a->instructions, b->instructions));
    SW_TRY(add_row(d, label, "micro_batches", a->micro_batches, b->micro_batches));
    SW_TRY(add_row(d, label, "flops", a->flops, b->flops));
    SW_TRY(add_row(d, label, "transient_bytes", a->transient_bytes, b->transient_bytes));
    SW_TRY(add_row(d, label, "peak_live_bytes", a->peak_live_bytes, b->peak_live_bytes));
    SW_TRY(add_row(d, label, "peak_instruction", a->peak_instruction, b->peak_instruction));
    SW_TRY(add_row(d, label, "recomputed_blocks", a->recomputed_blocks, b->recomputed_blocks));
    SW_TRY(add_row(d, label, "turns", a->turns, b->turns));
    SW_TRY(add_row(d, label, "ahead", a->ahead, b->ahead));
    SW_TRY(count_kinds(d, p));
    SW_TRY(add_other(d, label, "inputs", a->inputs != b->inputs));
    SW_TRY(add_other(d, label, "outputs", a->outputs != b->outputs));
    SW_TRY(add_other(d, label, "members that this version does not know", a->rest != b->rest));
    return compare_instrs(d, p);
}

/* Labels of programs: "decode", "decode 2". A plan has few programs. */
static sw_status label_of(struct sw_diff *d, const struct sw_dumped *plan, int64_t i, int64_t *out)
{
    char text[512];
    int64_t n = 1;
    const int64_t kind = sw_dumped_program(plan, i)->kind;
    for (int64_t k = 0; k < i; k++) {
        n += sw_dumped_program(plan, k)->kind == kind;
    }
    snprintf(text, sizeof text, n > 1 ? "%s %lld" : "%s", d->words.texts[kind], (long long)n);
    return sw_words_find(&d->words, text, out);
}

enum { MOST_PROGRAMS = 64 };

/* Pairs the programs of the plans by label. */
static sw_status pair_programs(struct sw_diff *d)
{
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < d->plans[side].programs.n; i++) {
            int64_t label, k = 0;
            SW_TRY(label_of(d, &d->plans[side], i, &label));
            while (k < d->n_programs && d->programs[k].label != label) {
                k++;
            }
            struct sw_diff_program *p = &d->programs[k];
            if (k == d->n_programs) {
                *p = (struct sw_diff_program){.label = label, .programs = {-1, -1}};
                d->n_programs++;
            }
            *(side ? &p->programs.b : &p->programs.a) = i;
        }
    }
    return SW_OK;
}

static sw_status compare_programs(struct sw_diff *d)
{
    for (int side = 0; side < 2; side++) {
        if (d->plans[side].programs.n > MOST_PROGRAMS) {
            return SW_FAIL(SW_E_FORMAT, "%s: programs: wanted at most %d, found %lld",
                           d->source[side].name, MOST_PROGRAMS,
                           (long long)d->plans[side].programs.n);
        }
    }
    d->programs = sw_alloc_zero("plan", 2 * MOST_PROGRAMS, sizeof *d->programs);
    if (!d->programs) {
        return no_memory();
    }
    SW_TRY(pair_programs(d));
    for (int64_t i = 0; i < d->n_programs; i++) {
        SW_TRY(compare_program(d, &d->programs[i]));
    }
    return SW_OK;
}

/* ---- the comparison ---- */

static bool is_same(const struct sw_diff *d)
{
    bool same = d->plans[0].fingerprint == d->plans[1].fingerprint && d->n_others == 0;
    for (int64_t i = 0; i < d->n_rows; i++) {
        same &= d->rows[i].a == d->rows[i].b;
    }
    for (int c = SW_CHANGE_NONE + 1; c < SW_CHANGE_COUNT; c++) {
        same &= d->n_tensors[c] == 0;
        for (int64_t i = 0; i < d->n_programs; i++) {
            same &= d->programs[i].n[c] == 0;
        }
    }
    return same;
}

sw_status sw_plan_diff(const struct sw_plan_source source[2], bool json, bool *out_same,
                       struct sw_str *out)
{
    sw_status st;
    struct sw_diff d = {.source = source};
    SW_TRY_OR(done, sw_words_open(&d.words));
    for (int i = 0; i < 2; i++) {
        SW_TRY_OR(done, sw_dumped_read(&source[i], &d.words, &d.plans[i]));
    }
    SW_TRY_OR(done, compare_numbers(&d));
    SW_TRY_OR(done, compare_programs(&d));
    SW_TRY_OR(done, compare_tensors(&d));
    d.same = is_same(&d);
    (json ? sw_diff_print_json : sw_diff_print)(&d, out);
    *out_same = d.same;
    st = out->failed ? no_memory() : SW_OK;
done:
    for (int i = 0; i < 2; i++) {
        sw_dumped_close(&d.plans[i]);
    }
    sw_words_close(&d.words);
    sw_free(d.rows);
    sw_free(d.programs);
    sw_free(d.others);
    return st;
}
