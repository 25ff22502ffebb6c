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
    for (int64_t p = 0; p < plan->plan.programs.n; p++) {
        const struct sw_dumped_program *program = sw_dumped_program(plan, p);
        for (int64_t i = 0; i < program->instruction_list.n && program->kind == word[TRAIN]; i++) {
            const struct sw_dumped_instr *instr =
                sw_dumped_instr(plan, program->instruction_list.first + i);
            const bool once = program->micro_batches > 1 || instr->last_only || instr->first_only ||
                              instr->once || instr->segment == word[UPDATE] ||
                              instr->segment == word[COMMIT];
            int64_t bytes = 0;
            for (int v = SW_VERB_REDUCE; v < SW_VERB_COUNT; v++) {
                bytes = instr->verb == exchanges[v] ? instr->bytes : bytes;
            }
            if (!sw_mul_i64(bytes, once ? 1 : plan->plan.micro_steps, &bytes) ||
                !sw_add_i64(sum, bytes, &sum) || sum > INT64_MAX / 2) {
                sum = INT64_MAX / 2;
            }
        }
    }
    *out = sum;
    return SW_OK;
}

/* Adds the members of two records that count as `compare`: rows of numbers, or names. */
static sw_status add_members(struct sw_diff *d, const char *group, const struct sw_fields *fields,
                             const void *a, const void *b, enum sw_compare compare)
{
    for (int i = 0; i < fields->n; i++) {
        const struct sw_field *field = &fields->at[i];
        const int64_t *of_a = (const int64_t *)(const void *)((const char *)a + field->at);
        const int64_t *of_b = (const int64_t *)(const void *)((const char *)b + field->at);
        if (field->type == SW_FIELD_OBJECT) {
            SW_TRY(add_members(d, field->key, field->fields, of_a, of_b, compare));
        } else if (field->compare == compare) {
            SW_TRY(compare == SW_COMPARE_OTHER ? add_other(d, group, field->key, *of_a != *of_b)
                                               : add_row(d, group, field->key, *of_a, *of_b));
        }
    }
    return SW_OK;
}

static const char unknown[] = "members that this version does not know";

static sw_status compare_numbers(struct sw_diff *d)
{
    const struct sw_dumped_plan *a = &d->plans[0].plan, *b = &d->plans[1].plan;
    int64_t exchanged[2];
    SW_TRY(exchanged_by(d, &d->plans[0], &exchanged[0]));
    SW_TRY(exchanged_by(d, &d->plans[1], &exchanged[1]));
    SW_TRY(add_members(d, "", &sw_fields_of_plan, a, b, SW_COMPARE_FIRST));
    SW_TRY(add_row(d, "", "exchanged_in_a_step", exchanged[0], exchanged[1]));
    SW_TRY(add_members(d, "", &sw_fields_of_plan, a, b, SW_COMPARE_ROW));
    SW_TRY(add_members(d, "", &sw_fields_of_plan, a, b, SW_COMPARE_OTHER));
    return add_other(d, "", unknown, a->rest != b->rest);
}

/* ---- records ---- */

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

static enum sw_change worst(enum sw_change a, enum sw_change b)
{
    return a > b ? a : b;
}

/* True if B does not name the counterpart of the instruction that A names; numbers plus 1. */
static bool has_another_target(const struct match *m, int64_t a, int64_t b)
{
    return a > 0 && a <= m->a.n ? b == 0 || m->a.other[a - 1] != b - 1 : a != b;
}

/* The most severe difference of two records. m: needed for members that are a TARGET */
static enum sw_change change_of_fields(const struct match *m, const struct sw_fields *fields,
                                       const void *a, const void *b)
{
    static const enum sw_change changes[] = {
        [SW_COMPARE_PLACE] = SW_CHANGE_PLACE,  [SW_COMPARE_WAITS] = SW_CHANGE_WAITS,
        [SW_COMPARE_TARGET] = SW_CHANGE_WAITS, [SW_COMPARE_WORK] = SW_CHANGE_WORK,
        [SW_COMPARE_TIER] = SW_CHANGE_TIER,    [SW_COMPARE_OTHER] = SW_CHANGE_NONE};
    enum sw_change change = SW_CHANGE_NONE;
    for (int i = 0; i < fields->n; i++) {
        const struct sw_field *field = &fields->at[i];
        const int64_t *of_a = (const int64_t *)(const void *)((const char *)a + field->at);
        const int64_t *of_b = (const int64_t *)(const void *)((const char *)b + field->at);
        if (field->type == SW_FIELD_OBJECT) {
            change = worst(change, change_of_fields(m, field->fields, of_a, of_b));
        } else if (field->type != SW_FIELD_LIST &&
                   (field->compare == SW_COMPARE_TARGET ? has_another_target(m, *of_a, *of_b)
                                                        : *of_a != *of_b)) {
            change = worst(change, changes[field->compare]);
        }
    }
    return change;
}

/* ---- parameters and states ---- */

/* The most severe difference of two tensors. */
static enum sw_change tensor_change(const struct sw_dumped_tensor *a,
                                    const struct sw_dumped_tensor *b)
{
    return worst(a->rest != b->rest ? SW_CHANGE_WORK : SW_CHANGE_NONE,
                 change_of_fields(NULL, &sw_fields_of_persistent, a, b));
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
    for (int64_t i = 0; i < d->plans[side].plan.persistent.n; i++) {
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
    for (int64_t i = 0; i < a->plan.persistent.n; i++) {
        const struct sw_dumped_tensor *tensor = sw_dumped_tensor(a, i);
        const int64_t k = of[n + (size_t)tensor->name] - 1;
        note_tensor(d, k < 0 ? SW_CHANGE_ONLY_A : tensor_change(tensor, sw_dumped_tensor(b, k)), i,
                    k);
    }
    for (int64_t k = 0; k < b->plan.persistent.n; k++) {
        if (of[sw_dumped_tensor(b, k)->name] == 0) {
            note_tensor(d, SW_CHANGE_ONLY_B, -1, k);
        }
    }
done:
    sw_free(of);
    return st;
}

/* ---- instructions ---- */

/* Key of an instruction, independent of its position: its members that are a KEY, in order. */
struct name_of_instr {
    int64_t at[8];
};

static struct name_of_instr name_of(const struct sw_dumped_instr *instr)
{
    const struct sw_fields *fields = &sw_fields_of_instruction_list;
    struct name_of_instr name = {0};
    size_t n = 0;
    for (int i = 0; i < fields->n; i++) {
        if (fields->at[i].compare == SW_COMPARE_KEY) {
            SW_ASSERT(n < SW_LEN(name.at));
            memcpy(&name.at[n++], (const char *)instr + fields->at[i].at, sizeof *name.at);
        }
    }
    return name;
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

static enum sw_change operand_change(const struct sw_dumped_operand *a,
                                     const struct sw_dumped_operand *b)
{
    return worst(a->rest != b->rest ? SW_CHANGE_WORK : SW_CHANGE_NONE,
                 change_of_fields(NULL, &sw_fields_of_operands, a, b));
}

/* The most severe change of instruction i of A. */
static enum sw_change change_of(const struct match *m, int64_t i)
{
    const struct sw_dumped_instr *a = &m->a.instrs[i];
    if (m->a.other[i] < 0) {
        return SW_CHANGE_ONLY_A;
    }
    const struct sw_dumped_instr *b = &m->b.instrs[m->a.other[i]];
    const bool works = a->rest != b->rest || a->operands.n != b->operands.n;
    enum sw_change change = change_of_fields(m, &sw_fields_of_instruction_list, a, b);
    change = worst(change, works ? SW_CHANGE_WORK : SW_CHANGE_NONE);
    change = worst(change, m->in_order[i] ? SW_CHANGE_NONE : SW_CHANGE_ORDER);
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
    const struct sw_dumped_span *span = &sw_dumped_program(plan, i)->instruction_list;
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
    SW_TRY(add_members(d, label, &sw_fields_of_programs, a, b, SW_COMPARE_ROW));
    SW_TRY(count_kinds(d, p));
    SW_TRY(add_members(d, label, &sw_fields_of_programs, a, b, SW_COMPARE_OTHER));
    SW_TRY(add_other(d, label, unknown, a->rest != b->rest));
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
        for (int64_t i = 0; i < d->plans[side].plan.programs.n; i++) {
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
        if (d->plans[side].plan.programs.n > MOST_PROGRAMS) {
            return SW_FAIL(SW_E_FORMAT, "%s: programs: wanted at most %d, found %lld",
                           d->source[side].name, MOST_PROGRAMS,
                           (long long)d->plans[side].plan.programs.n);
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
    bool same = d->plans[0].plan.fingerprint == d->plans[1].plan.fingerprint && d->n_others == 0;
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
