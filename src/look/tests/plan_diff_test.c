// SPDX-License-Identifier: Apache-2.0
// Differences between two plans. A plan does not differ from itself. Other configurations cause the
// expected differences. A copy with one edit differs by that edit alone. Files that are not plans
// are refused by file and member.
#include <string.h>
#include <unistd.h>

#include "json/json.h"
#include "spillway/comm.h"
#include "spillway/engine.h"
#include "spillway/look.h"
#include "support/scratch.h"
#include "support/test.h"

enum { MOST_SETS = 6, PATH_CAP = 128 };

static void path_of(const char *name, char out[PATH_CAP])
{
    snprintf(out, PATH_CAP, "%s/%s", test_folder(), name);
}

static void put(const char *name, const char *text, size_t len)
{
    char path[PATH_CAP];
    path_of(name, path);
    assert_int_equal(sw_file_write_atomic(path, text, len), SW_OK);
}

/* Writes a plan of gpt2-tiny on `ranks` ranks, with configuration edits, to a file. */
static void make_plan(const char *name, int ranks, const char *const sets[])
{
    struct sw_engine_options o = {
        .config = {.text = "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, "
                           "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}}",
                   .sets = sets},
        .model.path = "gpt2-tiny",
        .inputs.seq_len = 8,
        .train.wanted = true,
        .plan.only = true,
    };
    sw_engine *e = NULL;
    char *text = NULL;
    while (sets && sets[o.config.n_sets]) {
        o.config.n_sets++;
    }
    if (ranks > 1) {
        assert_int_equal(sw_comm_open(&(struct sw_transport){.size = ranks}, &o.run.comm), SW_OK);
    }
    if (sw_initialize(&o, &e) < 0 || sw_plan_text(e, true, true, &text) < 0) {
        fail_msg("%s", sw_error_message());
    }
    put(name, text, strlen(text));
    sw_text_free(text);
    sw_close(e);
    sw_comm_close(o.run.comm, false);
}

static sw_status compare(const char *a, const char *b, bool json, bool *same, char **text)
{
    char path_a[PATH_CAP], path_b[PATH_CAP];
    path_of(a, path_a);
    path_of(b, path_b);
    return sw_plan_diff_text(path_a, path_b, json, same, text);
}

static struct sw_json_doc *difference(const char *a, const char *b, bool *same)
{
    char *text = NULL;
    struct sw_json_doc *doc = NULL;
    if (compare(a, b, true, same, &text) < 0 ||
        sw_json_parse("difference", text, strlen(text), SW_JSON_STRICT, &doc) < 0) {
        fail_msg("%s", sw_error_message());
    }
    sw_text_free(text);
    assert_int_equal(sw_json_get(sw_json_root(doc), "same")->boolean, *same);
    return doc;
}

static int64_t number(const struct sw_json *object, const char *path)
{
    const struct sw_json *value = sw_json_path(object, path);
    assert_non_null(value);
    return value->integer;
}

/* Value of one row in one plan; keys contain dots. */
static int64_t row_of(struct sw_json_doc *doc, const char *name, const char *side)
{
    const struct sw_json *rows = sw_json_get(sw_json_root(doc), "numbers");
    return number(sw_json_get(rows, name), side);
}

static const struct sw_json *program_of(struct sw_json_doc *doc)
{
    return sw_json_get(sw_json_root(doc), "programs")->first;
}

/* Asserts that the text report has all of these words. Everything in plans of this version is known
 * to it. */
static void assert_says(const char *a, const char *b, const char *const words[])
{
    bool same;
    char *text = NULL;
    assert_int_equal(compare(a, b, false, &same, &text), SW_OK);
    assert_false(same);
    for (int i = 0; words[i]; i++) {
        if (!strstr(text, words[i])) {
            fail_msg("wanted \"%s\" in: %s", words[i], text);
        }
    }
    assert_null(strstr(text, "does not know"));
    sw_text_free(text);
}

static void a_plan_and_itself_are_the_same(void **state)
{
    (void)state;
    static const char *const names[] = {"none", "recompute", "stage3", "nvme"};
    for (size_t i = 0; i < SW_LEN(names); i++) {
        bool same = false;
        char *text = NULL;
        assert_int_equal(compare(names[i], names[i], false, &same, &text), SW_OK);
        assert_true(same);
        assert_string_equal(text, "the plans are the same\n");
        sw_text_free(text);
        struct sw_json_doc *doc = difference(names[i], names[i], &same);
        assert_true(same);
        const struct sw_json *program = program_of(doc);
        assert_int_equal(number(program, "same"), row_of(doc, "train.instructions", "a"));
        sw_json_close(doc);
    }
}

static void recomputation_is_in_one_alone(void **state)
{
    (void)state;
    bool same;
    struct sw_json_doc *doc = difference("kept", "recompute", &same);
    const struct sw_json *program = program_of(doc);
    assert_false(same);
    assert_int_equal(number(program, "only_a"), 0);
    assert_true(number(program, "only_b") > 0);
    assert_int_equal(number(program, "only_b"), row_of(doc, "train.instructions", "b") -
                                                    row_of(doc, "train.instructions", "a"));
    assert_int_equal(number(program, "order") + number(program, "work"), 0);
    assert_true(row_of(doc, "device_bytes", "b") < row_of(doc, "device_bytes", "a"));
    assert_true(row_of(doc, "train.flops", "b") > row_of(doc, "train.flops", "a"));
    const struct sw_json *prints = sw_json_get(sw_json_root(doc), "fingerprint");
    assert_string_equal(sw_json_get(prints, "a")->string, sw_json_get(prints, "b")->string);
    sw_json_close(doc);
    static const char *const words[] = {"train to the same bits",
                                        ", recomputed",
                                        "in B alone",
                                        "device_bytes",
                                        "train.kernel.matmul",
                                        "the peak is at A ",
                                        "train.recomputed_blocks",
                                        NULL};
    assert_says("kept", "recompute", words);
}

static void another_stage_sends_and_holds_something_else(void **state)
{
    (void)state;
    bool same;
    struct sw_json_doc *doc = difference("stage1", "stage3", &same);
    assert_false(same);
    assert_true(row_of(doc, "exchanged_in_a_step", "a") < row_of(doc, "exchanged_in_a_step", "b"));
    assert_true(row_of(doc, "parameter_bytes", "a") > row_of(doc, "parameter_bytes", "b"));
    assert_true(row_of(doc, "train.gather.gather", "a") < row_of(doc, "train.gather.gather", "b"));
    assert_true(number(sw_json_root(doc), "tensors.work") > 0);
    assert_int_equal(number(sw_json_root(doc), "tensors.only_a"), 0);
    sw_json_close(doc);
    static const char *const words[] = {"of other sizes or types", "exchanged_in_a_step",
                                        "train.gather.gather", "with other waits", NULL};
    assert_says("stage1", "stage3", words);
}

static void another_tier_is_named(void **state)
{
    (void)state;
    bool same;
    struct sw_json_doc *doc = difference("cpu", "nvme", &same);
    const struct sw_json *tensors = sw_json_get(sw_json_root(doc), "tensors");
    assert_false(same);
    assert_int_equal(row_of(doc, "disk_bytes", "a"), 0);
    assert_true(row_of(doc, "moved_in_a_step.to_disk", "b") > 0);
    assert_true(number(tensors, "tier") > 10);
    const struct sw_json *shown = sw_json_get(tensors, "shown")->first;
    int64_t n = 0;
    for (; shown; shown = shown->next) {
        const bool is_moved = strcmp(sw_json_get(shown, "change")->string, "tier") == 0;
        n += is_moved;
        if (is_moved) {
            assert_string_equal(sw_json_path(shown, "a.tier")->string, "host");
            assert_string_equal(sw_json_path(shown, "b.tier")->string, "disk");
        }
    }
    assert_int_equal(n, 10);
    assert_true(number(program_of(doc), "tier") > 0);
    sw_json_close(doc);
    static const char *const words[] = {
        ": host, disk\n",          "and ", " more\n", "train.read.load", "on another tier",
        "moved_in_a_step.to_disk", NULL};
    assert_says("cpu", "nvme", words);
}

/* ---- one edit ---- */

enum { EDITED = 7 }; /* the index of an instruction that runs a kernel */

static struct sw_json *instr_at(struct sw_json_doc *doc, int64_t i)
{
    struct sw_json *program = sw_json_get(sw_json_root(doc), "programs")->first;
    struct sw_json *at = sw_json_get(program, "instruction_list")->first;
    for (; i > 0; i--) {
        at = at->next;
    }
    return at;
}

static void move_it(struct sw_json_doc *doc)
{
    struct sw_json *operand = sw_json_get(instr_at(doc, EDITED), "operands")->first;
    sw_json_put_i64(doc, operand, "offset", sw_json_get(operand, "offset")->integer + 64);
}

static void wait_longer(struct sw_json_doc *doc)
{
    struct sw_json *waits = sw_json_put(doc, instr_at(doc, EDITED), "waits", SW_JSON_OBJECT);
    sw_json_put_i64(doc, waits, "read", 2);
}

static void use_another_kernel(struct sw_json_doc *doc)
{
    sw_json_put_str(doc, instr_at(doc, EDITED), "kernel", "abacus");
}

static void add_what_nobody_knows(struct sw_json_doc *doc)
{
    sw_json_put_str(doc, instr_at(doc, EDITED), "colour", "red");
}

static void transpose(struct sw_json_doc *doc)
{
    sw_json_put_bool(doc, sw_json_put(doc, instr_at(doc, EDITED), "attributes", SW_JSON_OBJECT),
                     "ta", true);
}

static void reshape(struct sw_json_doc *doc)
{
    struct sw_json *operand = sw_json_get(instr_at(doc, EDITED), "operands")->first;
    sw_json_put_i64(doc, sw_json_get(operand, "shape"), NULL, 1);
}

static void lie_elsewhere(struct sw_json_doc *doc)
{
    sw_json_put_str(doc, sw_json_get(instr_at(doc, EDITED), "operands")->first, "tier", "host");
}

/* Makes the edited instruction run last; references to the others get their new indexes. */
static void run_last(struct sw_json_doc *doc)
{
    struct sw_json *list = instr_at(doc, 0)->parent, *moved = instr_at(doc, EDITED);
    sw_json_put_copy(doc, list, NULL, moved);
    sw_json_remove(list, moved);
    int64_t i = 0;
    for (struct sw_json *at = list->first; at; at = at->next, i++) {
        sw_json_put_i64(doc, at, "number", i);
        sw_json_put_i64(doc, at, "retired", i);
    }
}

static void rename_it(struct sw_json_doc *doc)
{
    sw_json_put_str(doc, instr_at(doc, EDITED), "scope", "elsewhere");
}

/* Each edit, and the change that must be reported for it. */
static const struct {
    void (*edit)(struct sw_json_doc *doc);
    const char *change, *also;
} edits[] = {
    {move_it, "place", NULL},           {wait_longer, "waits", NULL},
    {use_another_kernel, "work", NULL}, {add_what_nobody_knows, "work", NULL},
    {transpose, "work", NULL},          {reshape, "work", NULL},
    {lie_elsewhere, "tier", NULL},      {run_last, "order", NULL},
    {rename_it, "only_a", "only_b"},
};

static struct sw_json_doc *read_plan(const char *name)
{
    char path[PATH_CAP];
    struct sw_json_doc *doc = NULL;
    path_of(name, path);
    assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &doc), SW_OK);
    return doc;
}

static void put_doc(const char *name, struct sw_json_doc *doc)
{
    struct sw_str text = {0};
    sw_json_write(sw_json_root(doc), 0, &text);
    put(name, text.ptr, text.len);
    sw_str_fini(&text);
    sw_json_close(doc);
}

static void one_edit_is_one_difference(void **state)
{
    (void)state;
    static const char *const changes[] = {"place", "waits",  "order", "work",
                                          "tier",  "only_a", "only_b"};
    for (size_t i = 0; i < SW_LEN(edits); i++) {
        bool same;
        struct sw_json_doc *edited = read_plan("none");
        edits[i].edit(edited);
        put_doc("edited", edited);
        struct sw_json_doc *doc = difference("none", "edited", &same);
        const struct sw_json *program = program_of(doc);
        assert_false(same);
        for (size_t c = 0; c < SW_LEN(changes); c++) {
            const bool wanted = strcmp(changes[c], edits[i].change) == 0 ||
                                (edits[i].also && strcmp(changes[c], edits[i].also) == 0);
            assert_int_equal(number(program, changes[c]), wanted);
        }
        char path[64];
        snprintf(path, sizeof path, "first.%s.a", edits[i].change);
        assert_int_equal(number(program, path), EDITED);
        if (strcmp(edits[i].change, "place") != 0) {
            assert_int_equal(number(program, "first_different.a"), EDITED);
        }
        sw_json_close(doc);
    }
}

/* Unknown members of an instruction count as differences; the machine's speed does not. */
static void other_members_count(void **state)
{
    (void)state;
    bool same;
    struct sw_json_doc *edited = read_plan("none");
    sw_json_put_i64(edited, sw_json_put(edited, sw_json_root(edited), "prediction", SW_JSON_OBJECT),
                    "seconds", 3);
    put_doc("edited", edited);
    sw_json_close(difference("none", "edited", &same));
    assert_true(same);
    edited = read_plan("none");
    sw_json_put_i64(edited, sw_json_put(edited, sw_json_root(edited), "phases", SW_JSON_ARRAY),
                    NULL, 3);
    put_doc("edited", edited);
    sw_json_close(difference("none", "edited", &same));
    assert_false(same);
}

/* A table of stages contains the plan of one rank. */
static void a_table_of_stages_has_a_plan(void **state)
{
    (void)state;
    bool same;
    struct sw_json_doc *plan = read_plan("stage1"), *table = NULL;
    assert_int_equal(sw_json_new("table", &table), SW_OK);
    sw_json_put_i64(table, sw_json_root(table), "ranks", 2);
    sw_json_put_copy(table, sw_json_root(table), "plan", sw_json_root(plan));
    sw_json_put_i64(table, sw_json_root(table), "more", 2);
    sw_json_close(plan);
    put_doc("table", table);
    sw_json_close(difference("stage1", "table", &same));
    assert_true(same);
    sw_json_close(difference("table", "stage3", &same));
    assert_false(same);
}

/* ---- bad files ---- */

static void what_is_no_plan_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "end of the text"},
        {"{\"fingerprint\": \"1\"", "end of the text"},
        {"3", "wanted a plan, an object, found an integer"},
        {"{}", "fingerprint: is missing"},
        {"{\"stages\": [1, {\"a\": 2}], \"plan\": null}", "plan: wanted an object, found null"},
        {"{\"plan\": {}}", "plan.fingerprint: is missing"},
        {"{\"plan\": {\"plan\": {}}}", "plan.plan: a plan inside of a plan"},
        {"{\"fingerprint\": 3}", "fingerprint: wanted a string"},
        {"{\"fingerprint\": {}}", "fingerprint: wanted a string"},
        {"{\"fingerprint\": \"a\", \"fingerprint\": \"a\"}", "fingerprint: is given twice"},
        {"{\"device_bytes\": -3}", "device_bytes: wanted a number that is not negative"},
        {"{\"device_bytes\": 1.5}", "device_bytes: wanted a whole number"},
        {"{\"device_bytes\": 9223372036854775807}", "device_bytes: the number is too large"},
        {"{\"programs\": {}}", "programs: wanted an array, found an object"},
        {"{\"programs\": [{}, 4]}", "programs[0].kind: is missing"},
        {"{\"persistent\": [4]}", "persistent[0]: wanted an object, found an integer"},
        {"{\"programs\": [{\"instruction_list\": [{\"verb\": \"kernel\", \"waits\": {\"read\": "
         "true}}]}]}",
         "programs[0].instruction_list[0].waits.read: wanted a whole number"},
        {"{\"programs\": [{\"instruction_list\": [{\"operands\": [null, {\"tier\": []}]}]}]}",
         "programs[0].instruction_list[0].operands[1].tier: wanted a string"},
        {"{\"programs\": [{\"instruction_list\": [{\"blocking\": 1}]}]}",
         "programs[0].instruction_list[0].blocking: wanted true or false"},
    };
    bool same;
    char *text = NULL;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        for (int side = 0; side < 2; side++) {
            put("bad", cases[i].text, strlen(cases[i].text));
            assert_int_equal(
                compare(side ? "none" : "bad", side ? "bad" : "none", false, &same, &text),
                SW_E_FORMAT);
            if (!strstr(sw_error_message(), "/bad:") ||
                !strstr(sw_error_message(), cases[i].says)) {
                fail_msg("%s: wanted \"%s\", found \"%s\"", cases[i].text, cases[i].says,
                         sw_error_message());
            }
        }
    }
    assert_int_equal(compare("none", "nowhere", false, &same, &text), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "nowhere"));
    assert_null(text);
}

static void numbers_are_places_and_names_are_there_once(void **state)
{
    (void)state;
    bool same;
    char *text = NULL;
    struct sw_json_doc *doc = read_plan("none");
    sw_json_put_i64(doc, instr_at(doc, 4), "number", 5);
    put_doc("edited", doc);
    assert_int_equal(compare("edited", "none", false, &same, &text), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "instruction_list[4].number: wanted 4, found 5"));
    doc = read_plan("none");
    struct sw_json *list = sw_json_get(sw_json_root(doc), "persistent");
    sw_json_put_copy(doc, list, NULL, list->first);
    put_doc("edited", doc);
    assert_int_equal(compare("none", "edited", false, &same, &text), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "persistent[0] has the same"));
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    struct sw_alloc_stats before, after;
    sw_alloc_get_stats(&before);
    for (int64_t n = 1;; n += 1 + n / 8) { /* fails request n */
        bool same;
        char *text = NULL;
        sw_alloc_fail_nth(n);
        const sw_status st = compare("none", "recompute", false, &same, &text);
        sw_alloc_fail_nth(0);
        sw_text_free(text);
        if (st == SW_OK) {
            assert_true(n > 5);
            break;
        }
        assert_int_equal(st, SW_E_NOMEM);
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
}

static int make_plans(void **state)
{
    (void)state;
    static const char *const kept[] = {"spillway.recompute_cheap=false", NULL};
    static const char *const recompute[] = {"spillway.recompute_cheap=false",
                                            "spillway.recompute=blocks", NULL};
    static const char *const stage1[] = {"zero_optimization.stage=1", NULL};
    static const char *const stage3[] = {"zero_optimization.stage=3",
                                         "zero_optimization.stage3_param_persistence_threshold=0",
                                         NULL};
    char nvme_path[128];
    const char *cpu[] = {"zero_optimization.stage=3",
                         "zero_optimization.offload_optimizer.device=cpu", NULL};
    const char *nvme[] = {"zero_optimization.stage=3",
                          "zero_optimization.offload_optimizer.device=nvme", nvme_path, NULL};
    snprintf(nvme_path, sizeof nvme_path, "zero_optimization.offload_optimizer.nvme_path=%s",
             test_folder());
    make_plan("none", 1, NULL);
    make_plan("kept", 1, kept);
    make_plan("recompute", 1, recompute);
    make_plan("stage1", 2, stage1);
    make_plan("stage3", 2, stage3);
    make_plan("cpu", 1, cpu);
    make_plan("nvme", 1, nvme);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_plan_and_itself_are_the_same),
    cmocka_unit_test(recomputation_is_in_one_alone),
    cmocka_unit_test(another_stage_sends_and_holds_something_else),
    cmocka_unit_test(another_tier_is_named),
    cmocka_unit_test(one_edit_is_one_difference),
    cmocka_unit_test(other_members_count),
    cmocka_unit_test(a_table_of_stages_has_a_plan),
    cmocka_unit_test(what_is_no_plan_is_refused),
    cmocka_unit_test(numbers_are_places_and_names_are_there_once),
    cmocka_unit_test(survives_lack_of_memory),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_plans};
