// SPDX-License-Identifier: Apache-2.0
// Keys of the mesh: ours and DeepSpeed's name the same sizes and partition, contradictions are
// refused with both keys, and effective values load again.
#include "config/private.h"

#include "support/test.h"

static sw_status parse(const char *text, const char *set, struct sw_config **out)
{
    return sw_config_parse("ds.json", text, strlen(text), &set, set ? 1 : 0, out);
}

static void refused(const char *text, const char *set, sw_status wanted, const char *const *words)
{
    struct sw_config *config;
    assert_int_equal(parse(text, set, &config), wanted);
    for (; *words; words++) {
        if (!strstr(sw_error_message(), *words)) {
            fail_msg("%s: \"%s\" lacks \"%s\"", text, sw_error_message(), *words);
        }
    }
}
#define REFUSED(text, ...)                                                                         \
    refused(text, NULL, SW_E_CONFIG, (const char *const[]){__VA_ARGS__, NULL})

static bool same_strings(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void assert_same(const struct sw_config *a, const struct sw_config *b)
{
    const struct sw_parallel_config *p = &a->parallel, *q = &b->parallel;
    assert_int_equal(p->pipe, q->pipe);
    assert_int_equal(p->tensor, q->tensor);
    assert_int_equal(p->context, q->context);
    assert_int_equal(p->chunks, q->chunks);
    assert_int_equal(p->sequence_parallel, q->sequence_parallel);
    assert_int_equal(p->partition.by, q->partition.by);
    assert_true(same_strings(p->partition.type, q->partition.type));
    assert_int_equal(p->partition.bounds.n, q->partition.bounds.n);
    for (int i = 0; i < p->partition.bounds.n; i++) {
        assert_true(p->partition.bounds.items[i] == q->partition.bounds.items[i]);
    }
    assert_int_equal(a->spillway.schedule, b->spillway.schedule);
}

/* Two texts mean the same, and so do their effective values. */
static void same(const char *ours, const char *theirs)
{
    struct sw_config *a, *b, *again;
    struct sw_str text = {0};
    assert_int_equal(parse(ours, NULL, &a), SW_OK);
    assert_int_equal(parse(theirs, NULL, &b), SW_OK);
    assert_same(a, b);
    sw_config_write_json(b, 0, &text);
    assert_int_equal(parse(sw_str_text(&text), NULL, &again), SW_OK);
    assert_same(b, again);
    sw_str_fini(&text);
    sw_config_close(a);
    sw_config_close(b);
    sw_config_close(again);
}

static void keys_of_deepspeed_mean_the_same(void **state)
{
    (void)state;
    same("{\"spillway\": {\"mesh\": {\"pipe\": 4}}}", "{\"pipeline\": {\"stages\": 4}}");
    same("{}", "{\"pipeline\": {\"stages\": \"auto\", \"partition\": \"best\"}}");
    same("{}", "{\"tensor_parallel\": {\"autotp_size\": 0}, \"sequence_parallel_size\": 1}");
    same("{\"spillway\": {\"mesh\": {\"tensor\": 2, \"context\": 3}}}",
         "{\"tensor_parallel\": {\"autotp_size\": \"2\"}, \"sequence_parallel_size\": 3}");
    same("{\"spillway\": {\"mesh\": {\"pipe\": 2}, \"partition\": \"uniform\"}}",
         "{\"pipeline\": {\"stages\": 2, \"partition\": \"uniform\"}}");
    same("{\"spillway\": {\"mesh\": {\"pipe\": 2}, \"partition\": [0, 3, 7]}}",
         "{\"pipeline\": {\"stages\": 2, \"partition\": [0, 3, 7]}}");
    same("{\"spillway\": {\"mesh\": {\"pipe\": 3}, \"partition\": [0, 0, 4, 4]}}",
         "{\"pipeline\": {\"stages\": 3, \"partition\": [0, 0, 4, 4]}}");
    same("{\"spillway\": {\"partition\": \"type:Block\"}}",
         "{\"pipeline\": {\"partition\": \"type:Block\"}}");
    same("{\"spillway\": {\"partition\": \"best\"}}", "{\"spillway\": {\"partition\": \"time\"}}");
    /* both, if they agree */
    same("{\"spillway\": {\"mesh\": {\"pipe\": 2}}}",
         "{\"spillway\": {\"mesh\": {\"pipe\": 2}}, \"pipeline\": {\"stages\": 2}}");
    same("{\"spillway\": {\"mesh\": {\"pipe\": 2}, \"schedule\": \"1f1b\"}}",
         "{\"spillway\": {\"mesh\": {\"pipe\": 2}}}");
    same("{\"spillway\": {\"mesh\": null}}", "{}");
}

static void values_are_read(void **state)
{
    (void)state;
    struct sw_config *c;
    assert_int_equal(parse("{}", NULL, &c), SW_OK);
    assert_int_equal(c->parallel.pipe * c->parallel.tensor * c->parallel.context, 1);
    assert_int_equal(c->parallel.chunks, 1);
    assert_true(c->parallel.sequence_parallel);
    assert_int_equal(c->parallel.partition.by, SW_PARTITION_TIME);
    assert_int_equal(c->spillway.schedule, SW_STEP_HORIZONTAL);
    sw_config_close(c);
    assert_int_equal(parse("{\"spillway\": {\"mesh\": {\"pipe\": 2, \"tensor\": 3}, \"schedule\": "
                           "\"interleaved\", \"chunks\": 2, \"partition\": [0, 1, 2, 4, 9], "
                           "\"sequence_parallel\": false}}",
                           NULL, &c),
                     SW_OK);
    assert_int_equal(c->parallel.pipe, 2);
    assert_int_equal(c->parallel.tensor, 3);
    assert_int_equal(c->parallel.chunks, 2);
    assert_false(c->parallel.sequence_parallel);
    assert_int_equal(c->parallel.partition.bounds.n, 5);
    assert_true(c->parallel.partition.bounds.items[4] == 9);
    assert_int_equal(c->spillway.schedule, SW_STEP_INTERLEAVED);
    sw_config_close(c);
    assert_int_equal(parse("{\"pipeline\": {\"stages\": 3}}", NULL, &c), SW_OK);
    assert_int_equal(c->spillway.schedule, SW_STEP_1F1B);
    assert_int_equal(sw_config_origin_of(c, "spillway.schedule"), SW_CONFIG_DERIVED);
    assert_int_equal(sw_config_origin_of(c, "spillway.mesh.pipe"), SW_CONFIG_DERIVED);
    sw_config_close(c);
    assert_int_equal(parse("{}", "spillway.mesh.context=2", &c), SW_OK);
    assert_int_equal(c->parallel.context, 2);
    sw_config_close(c);
}

static void two_meshes_are_refused(void **state)
{
    (void)state;
    REFUSED("{\"spillway\": {\"mesh\": {\"pipe\": 2}},\n \"pipeline\": {\"stages\": 4}}",
            "ds.json:2", "pipeline.stages", "4 contradicts", "spillway.mesh.pipe 2", "ds.json:1");
    REFUSED("{\"spillway\": {\"mesh\": {\"tensor\": 2}}, \"tensor_parallel\": {\"autotp_size\": "
            "4}}",
            "tensor_parallel.autotp_size", "spillway.mesh.tensor 2");
    REFUSED("{\"spillway\": {\"mesh\": {\"context\": 2}}, \"sequence_parallel_size\": 1}",
            "sequence_parallel_size", "spillway.mesh.context 2");
    REFUSED("{\"spillway\": {\"partition\": \"time\"}, \"pipeline\": {\"partition\": "
            "\"uniform\"}}",
            "pipeline.partition", "spillway.partition \"time\"");
}

static void bad_values_are_refused(void **state)
{
    (void)state;
    REFUSED("{\"spillway\": {\"mesh\": {\"pipes\": 2}}}", "unknown key \"pipes\"", "\"pipe\"");
    REFUSED("{\"spillway\": {\"mesh\": {\"tensor\": 0}}}", "spillway.mesh.tensor", "at least 1");
    REFUSED("{\"spillway\": {\"mesh\": {\"tensor\": \"2\"}}}", "tensor", "is not an integer");
    REFUSED("{\"spillway\": {\"mesh\": 4}}", "spillway.mesh", "wanted an object");
    REFUSED("{\"pipeline\": {\"stages\": 0}}", "pipeline.stages", "at least 1");
    REFUSED("{\"pipeline\": {\"stages\": \"two\"}}", "pipeline.stages", "(\"auto\")");
    REFUSED("{\"tensor_parallel\": {\"autotp_sise\": 2}}", "unknown key", "autotp_size");
    REFUSED("{\"spillway\": {\"partition\": \"unifrom\"}}", "unifrom", "nearest is \"uniform\"");
    REFUSED("{\"spillway\": {\"partition\": \"type:\"}}", "\"type:\" is not");
    REFUSED("{\"spillway\": {\"partition\": 3}}", "spillway.partition", "found an integer");
    REFUSED("{\"spillway\": {\"mesh\": {\"pipe\": 2}, \"partition\": [0, 3]}}", "2 stages",
            "found 2 numbers, [0,3]");
    REFUSED("{\"spillway\": {\"mesh\": {\"pipe\": 2}, \"partition\": [1, 3, 4]}}", "ascend from 0");
    REFUSED("{\"spillway\": {\"mesh\": {\"pipe\": 2}, \"partition\": [0, 3, 2]}}", "ascend from 0");
    REFUSED("{\"spillway\": {\"mesh\": {\"pipe\": 2}, \"partition\": [0, -1, 2]}}",
            "ascend from 0");
    REFUSED("{\"spillway\": {\"mesh\": {\"pipe\": 3}, \"partition\": [0, 2, 2, 4]}}",
            "all chunks but the first and the last one");
    REFUSED("{\"spillway\": {\"mesh\": \"automatic\"}}", "ds.json:1", "spillway.mesh",
            "\"automatic\" is not \"auto\"");
    REFUSED("{\"spillway\": {\"mesh\": {\"pipe\": 2,\n \"data\": 2}}}", "ds.json:2",
            "spillway.mesh", "the data axis has no key");
    REFUSED("{\"spillway\": {\"mesh\": \"auto\"}, \"pipeline\": {\"stages\": 2}}", "ds.json:1",
            "pipeline.stages", "2 contradicts spillway.mesh \"auto\"");
}

/* Sizes that are to be chosen are 1 until then. The effective values load again. */
static void a_mesh_may_be_chosen(void **state)
{
    (void)state;
    static const char text[] = "{\"train_batch_size\": 8, \"spillway\": {\"mesh\": \"auto\"}}";
    struct sw_config *c, *again;
    struct sw_str effective = {0}, chosen = {0};
    same(text, text);
    assert_int_equal(parse(text, NULL, &c), SW_OK);
    assert_true(c->parallel.is_auto && sw_config_fixes_batch(c));
    assert_int_equal(c->parallel.pipe, 1);
    sw_config_write_json(c, 0, &effective);
    assert_non_null(strstr(sw_str_text(&effective), "\"mesh\":\"auto\""));
    assert_int_equal(parse(text, "spillway.mesh={\"pipe\": 2}", &again), SW_OK);
    assert_false(again->parallel.is_auto);
    assert_int_equal(again->parallel.pipe, 2);
    assert_int_equal(again->spillway.schedule, SW_STEP_1F1B);
    sw_config_print_chosen(again, false, &chosen);
    assert_int_equal(chosen.len, 0);
    sw_config_note_mesh(again);
    sw_config_print_chosen(again, false, &chosen);
    assert_string_equal(sw_str_text(&chosen),
                        "spillway.mesh {\"pipe\":2,\"tensor\":1,\"context\":1,\"expert\":1}");
    assert_int_equal(sw_config_origin_of(again, "spillway.mesh.pipe"), SW_CONFIG_PLANNED);
    sw_str_fini(&effective);
    sw_str_fini(&chosen);
    sw_config_close(again);
    sw_config_close(c);
    /* a pipeline's schedule and bounds suit some of the meshes */
    assert_int_equal(parse("{\"spillway\": {\"mesh\": \"auto\", \"schedule\": \"gpipe\", "
                           "\"partition\": [0, 2, 4]}}",
                           NULL, &c),
                     SW_OK);
    assert_false(sw_config_fixes_batch(c));
    sw_config_close(c);
}

static void combinations_are_refused(void **state)
{
    (void)state;
    REFUSED("{\"spillway\": {\"schedule\": \"gpipe\"}}", "spillway.schedule", "mesh.pipe",
            "\"vertical\" work");
    REFUSED("{\"spillway\": {\"schedule\": \"vertical\", \"mesh\": {\"pipe\": 2}}}",
            "\"vertical\" is not supported", "\"1f1b\"");
    REFUSED("{\"spillway\": {\"schedule\": \"horizontal\", \"mesh\": {\"pipe\": 2}}}",
            "\"horizontal\" is for one stage");
    REFUSED("{\"spillway\": {\"schedule\": \"interleaved\", \"mesh\": {\"pipe\": 2}}}",
            "spillway.chunks of at least 2");
    REFUSED("{\"spillway\": {\"chunks\": 2}}", "spillway.chunks", "\"interleaved\"");
    REFUSED("{\"spillway\": {\"mesh\": {\"tensor\": 2}}, \"optimizer\": {\"type\": \"Muon\"}}",
            "spillway.mesh.tensor", "Muon", "AdamW");
    REFUSED("{\"tensor_parallel\": {\"autotp_size\": 2}, \"optimizer\": {\"type\": "
            "\"Adafactor\"}}",
            "Adafactor", "AdamW");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(keys_of_deepspeed_mean_the_same),
    cmocka_unit_test(values_are_read),
    cmocka_unit_test(two_meshes_are_refused),
    cmocka_unit_test(bad_values_are_refused),
    cmocka_unit_test(a_mesh_may_be_chosen),
    cmocka_unit_test(combinations_are_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
