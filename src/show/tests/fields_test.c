// SPDX-License-Identifier: Apache-2.0
// Tests the rows of fields.h on plans that together have every member. What is written is read as
// it was. A plan without a needed member is refused. Another value of a member is a difference of
// the kind that its row names.
#include "show/fields.h"

#include <string.h>

#include "show/dumped.h"
#include "show/tests/tower.h"
#include "support/test.h"

/* ---- plans ---- */

enum { N_PLANS = 9, MOST_ROWS = 160 };
static struct sw_str dumps[N_PLANS];

/* Matrices that are large enough for an update in a loop, a lookup of few rows, strided views. */
static struct sw_graph *wide(void)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    const struct sw_attention_spec spec = {.heads = 2,
                                           .causal = true,
                                           .scale = 1,
                                           .mask = SW_NO_VALUE,
                                           .position = SW_NO_VALUE,
                                           .slopes = SW_NO_VALUE,
                                           .segments = SW_NO_VALUE,
                                           .bias = SW_NO_VALUE};
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value table = sw_param(g, "table", SW_SHAPE(256, 256), init);
    const sw_value w = sw_param(g, "w", SW_SHAPE(256, 256), init);
    const sw_value head = sw_param(g, "head", SW_SHAPE(8, 128), init);
    const sw_value x = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(1, 2)), -1);
    const sw_value h = sw_linear(g, x, w, SW_NO_VALUE, true);
    const sw_value q = sw_slice(g, h, 2, 0, 128), k = sw_slice(g, h, 2, 128, 128);
    const sw_value y = sw_attention(g, q, k, k, &spec);
    const sw_value loss = sw_linear_cross_entropy(g, y, head, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(1, 2)), 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}

/* The graph of the last of two tensor ranks: matrices are cut by columns, then by rows. */
static struct sw_graph *cut(void)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    const struct sw_ranks ranks = {.axis = SW_AXIS_TENSOR, .n = 2, .me = 1, .words = true};
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    struct sw_graph *g, *part;
    sw_value at;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value up = sw_param(g, "up", SW_SHAPE(16, 24), init);
    const sw_value down = sw_param(g, "down", SW_SHAPE(24, 16), init);
    const sw_value head = sw_param(g, "head", SW_SHAPE(9, 16), init);
    sw_param_split(g, up, &(struct sw_tensor_split){1, 1, {24}, 0});
    sw_param_split(g, down, &(struct sw_tensor_split){0, 1, {24}, 0});
    sw_param_split(g, head, &(struct sw_tensor_split){0, 1, {9}, 0});
    const sw_value x = sw_input(g, "x", SW_F32, SW_SHAPE(1, 2, 16));
    const sw_value h = sw_act(g, sw_linear(g, x, up, SW_NO_VALUE, true), SW_ACT_GELU);
    const sw_value y = sw_linear(g, h, down, SW_NO_VALUE, true);
    const sw_value loss = sw_linear_cross_entropy(g, y, head, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(1, 2)), 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_part(g, &ranks, loss, &part, &at), SW_OK);
    sw_graph_close(g);
    assert_int_equal(sw_graph_backward(part, at), SW_OK);
    return part;
}

/* Adds members that none of these plans has. */
static void add_by_hand(struct sw_plan *plan)
{
    struct sw_program *program = &plan->programs[0];
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        program->instrs[program->n_instrs - 1].waits[q] = 1;
    }
    struct sw_instr *instr = program->instrs;
    while (instr->verb != SW_VERB_GATHER) {
        instr++;
    }
    instr->verb = SW_VERB_SEND;
    instr->chunk = 1;
    instr->exchange.peer = 1;
    instr->exchange.continues = true;
    instr->exchange.runs[0] = instr->exchange.runs[1] = 2;
    instr->turn.chosen.n = 1;
    instr->turn.from_last = instr->turn.for_next = true;
    while (instr->verb != SW_VERB_GATHER) {
        instr++;
    }
    instr->verb = SW_VERB_ALL_TO_ALL; /* of counted rows */
    instr->exchange.row_elems = 1;
}

static void dump_plan(const struct sw_plan_options *o, struct sw_graph *g, struct sw_str *out)
{
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    if (plan_once(&spec, 1, o, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    if (o->reduces == SW_REDUCES_SUMS) {
        add_by_hand(plan);
    }
    sw_plan_print_json(plan, true, out);
    assert_false(out->failed);
    sw_plan_close(plan);
}

static int make_plans(void **state)
{
    (void)state;
    struct sw_plan_options o = options(1, 0, 3);
    o.fp16 = true;
    o.policy.schedule = SW_STEP_VERTICAL;
    o.policy.recompute = (struct sw_recompute){.every = 1};
    dump_plan(&o, tower(SW_BF16, TIED | BIAS, false), &dumps[0]);
    o = options(3, 1, 5);
    o.reduces = SW_REDUCES_ROWS;
    dump_plan(&o, wide(), &dumps[1]);
    o = options(3, 3, 6);
    o.overlap = true;
    o.policy.params_tier = o.policy.states_tier = o.policy.grads_tier = SW_TIER_DISK;
    o.policy.schedule = SW_STEP_VERTICAL; /* micro-batches write the same sums to disk */
    o.policy.tile_bytes = 1 << 16;
    o.policy.two_slots = true;
    o.staging_bytes = 1 << 20;
    dump_plan(&o, wide(), &dumps[2]);
    o = options(1, 3, 1);
    o.policy.states_tier = SW_TIER_HOST;
    o.policy.update_elems = 1024;
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        o.policy.budget[t] = 1 << 30;
    }
    dump_plan(&o, wide(), &dumps[3]);
    o = options(2, 1, 4);
    o.reduces = SW_REDUCES_SUMS;
    dump_plan(&o, tower(SW_BF16, TIED, false), &dumps[4]);
    o = options(1, 1, 2);
    o.host = o.device;
    o.policy.states_tier = o.policy.grads_tier = SW_TIER_HOST;
    o.policy.host_updates = true;
    dump_plan(&o, tower(SW_BF16, TIED, false), &dumps[5]);
    o = options(2, 0, 2);
    o.mesh = (struct sw_mesh){.size[SW_AXIS_TENSOR] = 2};
    o.me = 1;
    dump_plan(&o, cut(), &dumps[6]);
    assert_non_null(strstr(dumps[6].ptr, "\"whole\":9,\"first\":5")); /* of the loss */
    o = options(1, 3, 1);
    o.policy.params_tier = o.policy.states_tier = o.policy.grads_tier = SW_TIER_DISK;
    o.policy.two_slots = true;
    o.policy.clipped_update = SW_CLIPPED_NEXT_FORWARD;
    o.clip = 1;
    dump_plan(&o, wide(), &dumps[7]);
    o = options(2, 3, 4);
    o.overlap = true;
    o.limits.max_live_elems = o.limits.kept_elems = 1 << 14;
    o.policy.budget[SW_TIER_DEVICE] = 1 << 30;
    dump_plan(&o, tower(SW_BF16, TIED, true), &dumps[8]);
    return 0;
}

/* ---- reading ---- */

/* A member of a plan: its row, the first object of the plans that has it, and the plan. */
struct seen {
    const struct sw_fields *fields;
    const struct sw_field *field;
    int plan;
};
static struct seen rows[MOST_ROWS];
static int n_rows;

static void note(const struct sw_fields *fields, const struct sw_field *field, int plan)
{
    int i = 0;
    while (i < n_rows && rows[i].field != field) {
        i++;
    }
    if (i == n_rows) {
        assert_true(n_rows < MOST_ROWS);
        rows[n_rows++] = (struct seen){fields, field, -1};
    }
    rows[i].plan = rows[i].plan < 0 ? plan : rows[i].plan;
}

struct reading {
    int plan;
    struct sw_words words;
    struct sw_dumped read;
};

static void check_record(const struct reading *r, const struct sw_fields *fields,
                         const struct sw_json *object, const char *record);

static void check_list(const struct reading *r, const struct sw_fields *fields,
                       const struct sw_json *list, const struct sw_dumped_span *span)
{
    const char *records = r->read.lists[fields->list].items;
    int64_t n = 0;
    for (const struct sw_json *at = list ? list->first : NULL; at; at = at->next, n++) {
        if (at->type != SW_JSON_NULL) {
            check_record(r, fields, at, records + (size_t)(span->first + n) * fields->bytes);
        }
    }
    assert_int_equal(n, span->n);
}

/* Compares a member with the field of its record. */
static void check_field(const struct reading *r, const struct sw_field *field,
                        const struct sw_json *value, const char *record)
{
    const int64_t *read = (const int64_t *)(const void *)(record + field->at);
    switch (field->type) {
    case SW_FIELD_TEXT:
        assert_string_equal(r->words.texts[*read], value ? value->string : "");
        break;
    case SW_FIELD_COUNT:
    case SW_FIELD_NUMBER:
        assert_int_equal(*read, value ? value->integer : 0);
        break;
    case SW_FIELD_INDEX:
        assert_int_equal(*read, value ? value->integer + 1 : 0);
        break;
    case SW_FIELD_FLAG:
        assert_int_equal(*read, value != NULL);
        break;
    case SW_FIELD_ANY:
        assert_int_equal(*read != 0, value != NULL);
        break;
    case SW_FIELD_OBJECT:
        if (value) {
            check_record(r, field->fields, value, (const char *)read);
        }
        break;
    case SW_FIELD_LIST:
        check_list(r, field->fields, value, (const struct sw_dumped_span *)(const void *)read);
        break;
    }
}

static void check_record(const struct reading *r, const struct sw_fields *fields,
                         const struct sw_json *object, const char *record)
{
    for (int i = 0; i < fields->n; i++) {
        const struct sw_json *value = sw_json_get(object, fields->at[i].key);
        note(fields, &fields->at[i], value ? r->plan : -1);
        if (strcmp(fields->at[i].key, "phase") != 0) { /* reading adds it */
            check_field(r, &fields->at[i], value, record);
        }
    }
    /* no member is without a row */
    for (const struct sw_json *at = object->first; at; at = at->next) {
        int i = 0;
        while (i < fields->n && strcmp(fields->at[i].key, at->key) != 0) {
            i++;
        }
        if (i == fields->n) {
            fail_msg("\"%s\" is written without a row", at->key);
        }
    }
}

static struct sw_json_doc *parse(int plan)
{
    struct sw_json_doc *doc = NULL;
    assert_int_equal(sw_json_parse("plan", dumps[plan].ptr, dumps[plan].len, SW_JSON_STRICT, &doc),
                     SW_OK);
    return doc;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    for (int p = 0; p < N_PLANS; p++) {
        struct reading r = {.plan = p};
        const struct sw_plan_source source = {"plan", dumps[p].ptr, dumps[p].len};
        struct sw_json_doc *doc = parse(p);
        assert_int_equal(sw_words_open(&r.words), SW_OK);
        assert_int_equal(sw_dumped_read(&source, &r.words, &r.read), SW_OK);
        check_record(&r, &sw_fields_of_plan, sw_json_root(doc), (const char *)&r.read.plan);
        assert_int_equal(r.read.plan.rest, 0);
        sw_dumped_close(&r.read);
        sw_words_close(&r.words);
        sw_json_close(doc);
    }
    for (int i = 0; i < n_rows; i++) {
        const char *key = rows[i].field->key;
        const bool others_write = strcmp(key, "chosen") == 0 || strcmp(key, "prediction") == 0;
        if (rows[i].plan < 0 && !others_write) {
            fail_msg("no plan has the member \"%s\"", key);
        }
    }
}

/* ---- edits ---- */

/* The first object with a list of members that has `key`, or any such object if key is NULL. */
static struct sw_json *find(const struct sw_fields *fields, struct sw_json *object,
                            const struct sw_fields *wanted, const char *key)
{
    if (fields == wanted && (!key || sw_json_get(object, key))) {
        return object;
    }
    for (int i = 0; i < fields->n; i++) {
        const struct sw_field *field = &fields->at[i];
        struct sw_json *value = field->fields ? sw_json_get(object, field->key) : NULL;
        if (value && field->type == SW_FIELD_OBJECT) {
            value = find(field->fields, value, wanted, key);
        } else if (value) {
            struct sw_json *at = value->first;
            for (value = NULL; at && !value; at = at->next) {
                value = at->type == SW_JSON_NULL ? NULL : find(field->fields, at, wanted, key);
            }
        }
        if (value) {
            return value;
        }
    }
    return NULL;
}

/* Gives a member another value, or takes an element from a list. false = it has rows of its own. */
static bool edit(struct sw_json_doc *doc, struct sw_json *object, const struct sw_field *field)
{
    struct sw_json *value = sw_json_get(object, field->key);
    const int64_t number = value && value->type == SW_JSON_INT ? value->integer : 0;
    if (strcmp(field->key, "segment") == 0 && !sw_json_get(object, "phase")) {
        sw_json_put_str(doc, object, "phase", value->string); /* it stays as it was */
    }
    switch (field->type) {
    case SW_FIELD_TEXT:
        sw_json_put_str(doc, object, field->key, "elsewhere");
        return true;
    case SW_FIELD_COUNT:
    case SW_FIELD_NUMBER:
        sw_json_put_i64(doc, object, field->key, number + 1000);
        return true;
    case SW_FIELD_INDEX:
        sw_json_put_i64(doc, object, field->key, number > 0 ? number - 1 : 1);
        return true;
    case SW_FIELD_FLAG:
        sw_json_put_bool(doc, object, field->key, !value);
        return true;
    case SW_FIELD_ANY:
        sw_json_put_i64(doc, object, field->key, 1000);
        return true;
    case SW_FIELD_LIST:
        sw_json_remove(value, value->first);
        return false;
    case SW_FIELD_OBJECT:
        return false;
    }
    return false;
}

static sw_status compare(int plan, struct sw_json_doc *edited, bool *same,
                         struct sw_json_doc **report)
{
    struct sw_str text = {0}, out = {0};
    sw_json_write(sw_json_root(edited), 0, &text);
    const struct sw_plan_source source[2] = {{"plan", dumps[plan].ptr, dumps[plan].len},
                                             {"edited", text.ptr, text.len}};
    const sw_status st = sw_plan_diff(source, true, same, &out);
    *report = NULL;
    if (st >= 0) {
        assert_int_equal(sw_json_parse("report", out.ptr, out.len, SW_JSON_STRICT, report), SW_OK);
    }
    sw_str_fini(&text);
    sw_str_fini(&out);
    return st;
}

/* Number of instructions and tensors that the report counts under a change. */
static int64_t count(struct sw_json_doc *report, const char *change)
{
    const struct sw_json *root = sw_json_root(report);
    int64_t sum = sw_json_get(sw_json_get(root, "tensors"), change)->integer;
    for (const struct sw_json *at = sw_json_get(root, "programs")->first; at; at = at->next) {
        sum += sw_json_get(at, change)->integer;
    }
    return sum;
}

/* True if the report has a row of different numbers, or a name, that ends with the key. */
static bool names(struct sw_json_doc *report, enum sw_compare compare, const char *key)
{
    const bool other = compare == SW_COMPARE_OTHER;
    const struct sw_json *at =
        sw_json_get(sw_json_root(report), other ? "others" : "numbers")->first;
    for (; at; at = at->next) {
        const char *name = other ? at->string : at->key, *dot = strrchr(name, '.');
        if (strcmp(dot ? dot + 1 : name, key) == 0 &&
            (other || sw_json_get(at, "a")->integer != sw_json_get(at, "b")->integer)) {
            return true;
        }
    }
    return false;
}

/* The report has the difference that the row names, and the plans are the same without one. */
static void check_report(struct sw_json_doc *report, const struct seen *row, bool same)
{
    static const char *const changes[] = {
        [SW_COMPARE_KEY] = "only_a",   [SW_COMPARE_PLACE] = "place", [SW_COMPARE_WAITS] = "waits",
        [SW_COMPARE_TARGET] = "waits", [SW_COMPARE_WORK] = "work",   [SW_COMPARE_TIER] = "tier"};
    const enum sw_compare compare = row->field->compare;
    bool good = same == (compare == SW_COMPARE_NOT);
    if (compare >= SW_COMPARE_ROW) {
        good = good && names(report, compare, row->field->key);
    } else if (compare != SW_COMPARE_NOT && row->fields != &sw_fields_of_plan) {
        good = good && count(report, changes[compare]) > 0;
    }
    if (!good) {
        struct sw_str text = {0};
        sw_json_write(sw_json_root(report), 0, &text);
        fail_msg("another \"%s\": %s", row->field->key, sw_str_text(&text));
    }
}

/* Parses the plan of the row, and finds the object that has the member. A member that no plan has
 * is added to an object of the first plan that has one. */
static struct sw_json *object_of(struct seen *row, struct sw_json_doc **doc)
{
    const char *key = row->plan < 0 ? NULL : row->field->key;
    struct sw_json *object = NULL;
    for (int p = row->plan < 0 ? 0 : row->plan; p < N_PLANS; p++) {
        *doc = parse(p);
        object = find(&sw_fields_of_plan, sw_json_root(*doc), row->fields, key);
        if (object) {
            row->plan = p;
            return object;
        }
        sw_json_close(*doc);
    }
    fail_msg("no plan has an object for the member \"%s\"", row->field->key);
    return NULL;
}

static void another_value_is_a_difference(void **state)
{
    (void)state;
    assert_true(n_rows > 90);
    for (int i = 0; i < n_rows; i++) {
        struct seen row = rows[i];
        struct sw_json_doc *doc = NULL, *report;
        struct sw_json *object = object_of(&row, &doc);
        const bool is_list = row.field->type == SW_FIELD_LIST;
        const bool edited = edit(doc, object, row.field);
        bool same = false;
        const sw_status st = compare(row.plan, doc, &same, &report);
        if (edited && strcmp(row.field->key, "number") != 0) {
            assert_int_equal(st, SW_OK);
            check_report(report, &row, same);
        } else {
            assert_true(st == SW_E_FORMAT || (st == SW_OK && same == !is_list));
        }
        sw_json_close(report);
        sw_json_close(doc);
    }
}

/* A member that is needed is missed by its name; that another one is absent is a difference. */
static void an_absent_member_is_noticed(void **state)
{
    (void)state;
    for (int i = 0; i < n_rows; i++) {
        const struct seen *row = &rows[i];
        if (row->plan < 0) {
            continue;
        }
        struct sw_json_doc *doc = parse(row->plan), *report;
        struct sw_json *object =
            find(&sw_fields_of_plan, sw_json_root(doc), row->fields, row->field->key);
        struct sw_json *value = sw_json_get(object, row->field->key);
        const bool is_zero = value->type == SW_JSON_INT && value->integer == 0;
        sw_json_remove(object, value);
        bool same = false;
        const sw_status st = compare(row->plan, doc, &same, &report);
        if (row->field->needed) {
            assert_int_equal(st, SW_E_FORMAT);
            assert_non_null(strstr(sw_error_message(), row->field->key));
        } else {
            assert_int_equal(st, SW_OK);
            if (row->field->compare != SW_COMPARE_NOT && !is_zero) {
                check_report(report, row, same);
            }
        }
        sw_json_close(report);
        sw_json_close(doc);
    }
}

static int drop_plans(void **state)
{
    (void)state;
    for (int p = 0; p < N_PLANS; p++) {
        sw_str_fini(&dumps[p]);
    }
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_written_is_read),
    cmocka_unit_test(another_value_is_a_difference),
    cmocka_unit_test(an_absent_member_is_noticed),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_plans,
                                      .teardown = drop_plans};
