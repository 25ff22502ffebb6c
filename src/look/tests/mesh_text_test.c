// SPDX-License-Identifier: Apache-2.0
// The table of a mesh: which blocks and micro-batches a rank of each stage has, and that its bytes
// are those of the table of ZeRO stages.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster.h"
#include "json/json.h"
#include "spillway/doctor.h"
#include "spillway/look.h"
#include "support/scratch.h"
#include "support/test.h"

enum { K = 6, BLOCKS = 4 };

static int write_model(void **state)
{
    (void)state;
    test_put("model.json",
             "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":16,"
             "\"n_embd\":32,\"n_layer\":4,\"n_head\":4,\"tie_word_embeddings\":false}");
    return 0;
}

struct asked {
    int pipe, tensor, ranks, stage;
    const char *schedule;
};

static struct sw_json_doc *parse(char *text)
{
    struct sw_json_doc *doc = NULL;
    if (sw_json_parse("table", text, strlen(text), SW_JSON_STRICT, &doc) < 0) {
        fail_msg("%s", sw_error_message());
    }
    sw_text_free(text);
    return doc;
}

/* Asks for the table of the mesh or, with `zero`, for that of ZeRO stages. */
static char *ask(const struct asked *a, bool zero, bool json)
{
    char config[512], *text = NULL;
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\"}, "
        "\"zero_optimization\": {\"stage\": %d, \"stage3_param_persistence_threshold\": 0}, "
        "\"spillway\": {\"micro_batches\": %d, \"mesh\": {\"pipe\": %d, \"tensor\": %d}%s%s%s}}",
        a->stage, K, a->pipe, a->tensor, a->schedule ? ", \"schedule\": \"" : "",
        a->schedule ? a->schedule : "", a->schedule ? "\"" : "");
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = test_at("model.json"),
                                              .inputs.seq_len = 8,
                                              .train.wanted = true};
    const sw_status st = zero ? sw_plan_stages_text(&options, a->ranks, json, &text)
                              : sw_plan_mesh_text(&options, a->ranks, json, &text);
    if (st < 0) {
        fail_msg("%s", sw_error_message());
    }
    return text;
}

static int64_t number(const struct sw_json *of, const char *path)
{
    const struct sw_json *value = sw_json_path(of, path);
    assert_non_null(value);
    return value->integer;
}

static const struct sw_json *stages_of(struct sw_json_doc *doc)
{
    return sw_json_get(sw_json_root(doc), "stages")->first;
}

/* Stages have all blocks once. With 1F1B a stage keeps a micro-batch for each stage after it, and
 * its own; with GPipe all. */
static void stages_have_their_blocks_and_micro_batches(void **state)
{
    (void)state;
    for (int pipe = 1; pipe <= 4; pipe *= 2) {
        for (int gpipe = 0; gpipe <= (pipe > 1); gpipe++) {
            const struct asked a = {pipe, 1, 2 * pipe, 0, gpipe ? "gpipe" : NULL};
            struct sw_json_doc *doc = parse(ask(&a, false, true));
            const int64_t rounds = K / 2;
            int64_t next = 0, s = 0;
            for (const struct sw_json *row = stages_of(doc); row; row = row->next, s++) {
                const struct sw_json *blocks = sw_json_get(row, "blocks")->first;
                assert_int_equal(blocks->first->integer, next);
                next = blocks->first->next->integer;
                assert_int_equal(number(row, "rank"), 2 * s);
                assert_int_equal(number(row, "kept"), gpipe      ? rounds
                                                      : pipe > 1 ? sw_min_i64(pipe - s, rounds)
                                                                 : 1);
            }
            assert_int_equal(s, pipe);
            assert_int_equal(next, BLOCKS);
            sw_json_close(doc);
        }
    }
}

/* The axes together carry what the table of ZeRO stages counts by kinds, and the memory is the
 * same. */
static void bytes_are_those_of_the_table_of_zero_stages(void **state)
{
    (void)state;
    static const struct asked asked[] = {{1, 1, 4, 0, NULL}, {2, 1, 4, 1, NULL},
                                         {2, 1, 2, 0, NULL}, {1, 2, 4, 3, NULL},
                                         {2, 2, 8, 2, NULL}, {4, 2, 8, 0, NULL}};
    for (size_t i = 0; i < SW_LEN(asked); i++) {
        struct sw_json_doc *mesh = parse(ask(&asked[i], false, true));
        struct sw_json_doc *zero = parse(ask(&asked[i], true, true));
        const struct sw_json *a = stages_of(mesh), *b = stages_of(zero);
        for (int stage = 0; stage < asked[i].stage; stage++) {
            b = b->next;
        }
        assert_int_equal(number(a, "sent.total"), number(b, "sent.total.bytes"));
        assert_int_equal(number(a, "device_bytes"), number(b, "device_bytes"));
        const bool cut = asked[i].ranks > asked[i].pipe * asked[i].tensor;
        assert_int_equal(sw_json_path(a, "sent.data") != NULL, cut);
        assert_int_equal(sw_json_path(a, "sent.pipe") != NULL, asked[i].pipe > 1);
        assert_int_equal(sw_json_path(a, "sent.tensor") != NULL, asked[i].tensor > 1);
        /* the other order of sums sends gradients once instead of once in each micro-step */
        const struct sw_json *boundary = sw_json_get(a, "data_boundary");
        assert_int_equal(boundary != NULL, cut && asked[i].stage < 2);
        assert_true(!boundary || boundary->integer < number(a, "sent.data"));
        sw_json_close(mesh);
        sw_json_close(zero);
    }
}

static void the_text_has_a_row_for_each_stage(void **state)
{
    (void)state;
    const struct asked mesh = {2, 1, 4, 0, NULL}, data = {1, 1, 4, 0, NULL};
    char *text = ask(&mesh, false, false);
    assert_non_null(strstr(text, "\nmesh: pipe 2 x data 2\nschedule: 1f1b\n"));
    assert_non_null(strstr(text, "\n    1      2     "));
    sw_text_free(text);
    text = ask(&data, false, false);
    assert_string_equal(text, "");
    sw_text_free(text);
    text = ask(&mesh, true, false);
    assert_non_null(strstr(text, " R = 2 data ranks, K = 6 "));
    assert_non_null(strstr(text, "\nmesh: pipe 2 x data 2\n"));
    sw_text_free(text);
}

/* A plan names the hosts that the rates describe, and neighbours that do not share one. */
static void hosts_are_those_of_the_rates(void **state)
{
    (void)state;
    static const char *const rates[] = {"node_ranks=2"};
    static const struct {
        const char *config, *line;
    } cases[] = {
        {"{\"train_micro_batch_size_per_gpu\": 1, "
         "\"spillway\": {\"mesh\": {\"pipe\": 2, \"tensor\": 2}}}",
         "mesh: pipe 2 x tensor 2 on host-0 (ranks 0 to 1), host-1 (ranks 2 to 3)\nschedule: "},
        {"{\"train_micro_batch_size_per_gpu\": 1, "
         "\"spillway\": {\"mesh\": {\"tensor\": 4}}}",
         "mesh: tensor 4 on host-0 (ranks 0 to 1), host-1 (ranks 2 to 3)\nmesh: tensor neighbours "
         "0 (host-0) and 2 (host-1) do not share a host; "},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        char *text = NULL;
        const struct sw_engine_options options = {.config.text = cases[i].config,
                                                  .model.path = test_at("model.json"),
                                                  .inputs.seq_len = 8,
                                                  .plan = {.rates = rates, .n_rates = 1},
                                                  .evaluate.loss = true};
        if (sw_plan_mesh_text(&options, 4, false, &text) < 0) {
            fail_msg("%s", sw_error_message());
        }
        if (!strstr(text, cases[i].line)) {
            fail_msg("%s", text);
        }
        sw_text_free(text);
        assert_int_equal(sw_plan_mesh_text(&options, 4, true, &text), SW_OK);
        assert_non_null(strstr(text, "\"hosts\":[{\"name\":\"host-0\",\"ranks\":[0,2]},"
                                     "{\"name\":\"host-1\",\"ranks\":[2,4]}]"));
        sw_text_free(text);
    }
}

/* The sizes come as an edit, with which the mesh is the chosen one. */
static void a_mesh_is_chosen_once(void **state)
{
    (void)state;
    static const char config[] = "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 1, "
                                 "\"optimizer\": {\"type\": \"AdamW\"}, "
                                 "\"spillway\": {\"mesh\": \"auto\"}}";
    struct sw_engine_options options = {.config.text = config,
                                        .model.path = test_at("model.json"),
                                        .inputs.seq_len = 8,
                                        .train.wanted = true};
    for (int json = 0; json <= 1; json++) {
        char *edit = NULL, *text = NULL, *table = NULL, words[64];
        if (sw_plan_mesh_choice(&options, 4, json, &edit, &text) < 0) {
            fail_msg("%s", sw_error_message());
        }
        int pipe = 0;
        assert_int_equal(
            sscanf(edit, "spillway.mesh={\"pipe\":%d,\"tensor\":1,\"context\":1}", &pipe), 1);
        snprintf(words, sizeof words,
                 json ? "\"pipe\":%d,\"expert\":1,\"data\":%d," : ", the best first\n  ", pipe,
                 4 / pipe);
        assert_non_null(strstr(text, words));
        const char *const sets[] = {edit};
        options.config.sets = sets;
        options.config.n_sets = 1;
        assert_int_equal(sw_plan_mesh_text(&options, 4, true, &table), SW_OK);
        snprintf(words, sizeof words, "{\"sizes\":{\"pipe\":%d,\"expert\":1,\"data\":%d,", pipe,
                 4 / pipe);
        assert_int_equal(strncmp(table, words, strlen(words)), 0);
        sw_text_free(edit);
        sw_text_free(text);
        sw_text_free(table);
        /* there is nothing to choose any more */
        assert_int_equal(sw_plan_mesh_choice(&(struct sw_engine_options){.config.text = "{}"}, 4,
                                             json, &edit, &text),
                         SW_OK);
        assert_true(!edit && !text);
        options.config.n_sets = 0;
    }
}

/* ---- at the rates of a cluster ---- */

/* Writes a cluster with other links between nodes, and returns the device that stands for it. */
static const char *cluster_with(double links, const char *file)
{
    static char device[256];
    struct sw_cluster *c = NULL;
    struct sw_str text = {0};
    assert_int_equal(sw_cluster_open("dgx2-v100", &c), SW_OK);
    for (int i = 0; i < c->n_links; i++) {
        c->links[i].rate.value *= c->links[i].joint == SW_JOINT_NODES ? links : 1;
    }
    sw_cluster_write(c, &text);
    test_put(file, sw_str_text(&text));
    sw_str_fini(&text);
    sw_cluster_close(c);
    snprintf(device, sizeof device, "sim:%s", test_at(file));
    return device;
}

/* Step of the mesh of data ranks alone, by sw_plan_mesh_choice on 2 nodes. *chosen: stages of the
 * mesh that is taken */
static double seconds_of_data(const char *device, int *chosen)
{
    char *edit = NULL, *text = NULL;
    const struct sw_engine_options options = {
        .config.text = "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 1, "
                       "\"optimizer\": {\"type\": \"AdamW\"}, \"spillway\": {\"mesh\": \"auto\"}}",
        .model.path = test_at("model.json"),
        .inputs.seq_len = 8,
        .run.device = device,
        .train.wanted = true};
    if (sw_plan_mesh_choice(&options, 32, false, &edit, &text) < 0) {
        fail_msg("%s", sw_error_message());
    }
    const char *data = strstr(text, "  data 32 ");
    assert_non_null(data);
    data += strcspn(data + 10, "0123456789") + 10;
    const double seconds = strtod(data, NULL);
    assert_int_equal(sscanf(edit, "spillway.mesh={\"pipe\":%d,", chosen), 1);
    assert_non_null(strstr(text, "predicted at the rates of the cluster: --rates f32="));
    assert_non_null(strstr(text, " node=150 ")); /* NVSwitch */
    assert_non_null(strstr(text, " node_ranks=16 "));
    sw_text_free(edit);
    sw_text_free(text);
    return seconds;
}

/* With slow links between nodes a pipeline spans them; with fast ones data ranks alone gain more
 * than all others. */
static void meshes_are_chosen_at_the_rates_of_a_cluster(void **state)
{
    int slow_stages, fast_stages;
    (void)state;
    const double slow = seconds_of_data(cluster_with(0.001, "slow.json"), &slow_stages);
    const double fast = seconds_of_data(cluster_with(100, "fast.json"), &fast_stages);
    assert_true(fast < slow / 10);
    assert_true(slow_stages > 1);
    assert_true(fast_stages <= slow_stages);
}

/* The mesh of a configuration needs no model. */
static void a_configuration_has_a_mesh(void **state)
{
    (void)state;
    const struct sw_engine_config config = {
        .text = "{\"spillway\": {\"mesh\": {\"pipe\": 2, \"tensor\": 2}}}"};
    char *text = NULL;
    assert_int_equal(sw_doctor_mesh_text(&config, 8, &text), SW_OK);
    assert_int_equal(strncmp(text, "mesh: pipe 2 x data 2 x tensor 2\n", 33), 0);
    assert_non_null(strstr(text, "\n  rank 6    pipe_01-data_01-tensor_00\n"));
    sw_text_free(text);
    assert_int_equal(sw_doctor_mesh_text(&config, 6, &text), SW_E_CONFIG);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_configuration_has_a_mesh),
    cmocka_unit_test(a_mesh_is_chosen_once),
    cmocka_unit_test(meshes_are_chosen_at_the_rates_of_a_cluster),
    cmocka_unit_test(hosts_are_those_of_the_rates),
    cmocka_unit_test(stages_have_their_blocks_and_micro_batches),
    cmocka_unit_test(bytes_are_those_of_the_table_of_zero_stages),
    cmocka_unit_test(the_text_has_a_row_for_each_stage),
};
const struct test_program sw_tests = {TEST_TABLE(tests), .setup = write_model};
