// SPDX-License-Identifier: Apache-2.0
// Laws that a step on any cluster obeys: with links that cost nothing it is computation and the
// bubble, and with one slow link that link's bytes over its rate. The bytes are those of the plan.
#include <math.h>
#include <string.h>

#include "cluster/cluster.h"
#include "engine/engine.h"
#include "json/json.h"
#include "spillway/look.h"
#include "support/scratch.h"
#include "support/test.h"

static const char model[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":8,"
    "\"n_embd\":1024,\"n_head\":16,\"n_positions\":128,\"vocab_size\":64}";

/* The changes that a test makes to a cluster of H100. */
struct wish {
    int devices;         /* of a node */
    double near, far;    /* bytes/s of links in a node, and between nodes; 0 = they cost nothing */
    bool is_all_product; /* memory and launches cost nothing */
    int drives;          /* slow ones of a node; 0 = as they are */
};

static const char *put_cluster(const struct wish *wish)
{
    enum { FAST = 1000000 }; /* GB/s */
    struct sw_cluster *c = NULL;
    struct sw_str text = {0};
    assert_int_equal(sw_cluster_open("h100-node", &c), SW_OK);
    c->node.devices.value = wish->devices;
    c->node.devices_per_switch.kind = c->node.devices_per_nic.kind = SW_FIGURE_ABSENT;
    int n = 0;
    for (int i = 0; i < c->n_links; i++) { /* a node of one device has no links in it */
        if (c->links[i].joint != SW_JOINT_PEERS || wish->devices > 1) {
            c->links[n++] = c->links[i];
        }
    }
    c->n_links = n;
    for (int i = 0; i < c->n_links; i++) {
        struct sw_cluster_link *link = &c->links[i];
        const double rate = link->joint == SW_JOINT_NODES ? wish->far : wish->near;
        link->shared_by = SW_SHARER_DEVICE;
        link->rate.value = rate > 0 ? rate : FAST * 1e9;
        link->latency.value = 0;
        link->reached.kind = SW_FIGURE_ABSENT;
    }
    if (wish->is_all_product) {
        c->device.bandwidth.value = c->host.bandwidth.value = FAST * 1e9;
        c->device.launch.value = 0;
    }
    for (int i = 0; i < c->n_disks && wish->drives > 0; i++) {
        c->disks[i].count.value = wish->drives;
        c->disks[i].read.value = 4e8;
        c->disks[i].write.value = 3e8;
        c->disks[i].duplex = false;
    }
    sw_cluster_write(c, &text);
    test_put("cluster.json", text.ptr);
    sw_str_fini(&text);
    sw_cluster_close(c);
    return test_at("cluster.json");
}

static struct sw_engine_options options_of(const char *text)
{
    return (struct sw_engine_options){.config.text = text,
                                      .model.path = model,
                                      .inputs.seq_len = 128,
                                      .train = {.wanted = true, .no_dropout = true},
                                      .plan.only = true};
}

static struct sw_json_doc *plan(const char *config, const struct wish *wish, int ranks)
{
    const struct sw_engine_options o = options_of(config);
    struct sw_plan_cluster on = {.name = put_cluster(wish), .ranks = ranks, .json = true};
    struct sw_json_doc *doc = NULL;
    char *text = NULL;
    if (sw_plan_cluster_size(&on) < 0 || sw_plan_cluster_text(&o, &on, &text) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_json_parse("plan", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    sw_text_free(text);
    return doc;
}

static double number(struct sw_json_doc *doc, const char *path)
{
    const struct sw_json *value = sw_json_path(sw_json_root(doc), path);
    if (!value) {
        fail_msg("no %s", path);
    }
    return value->number;
}

static double seconds_of(const char *config, const struct wish *wish, int ranks)
{
    struct sw_json_doc *doc = plan(config, wish, ranks);
    const double seconds = number(doc, "step_seconds");
    sw_json_close(doc);
    return seconds;
}

#define HEAD "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}, "

/* (p - 1) / m of the computation, for p stages and m micro-batches. The embedding and the loss of
 * 64 words take little. */
static void free_links_leave_computation_and_the_bubble(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        double bubble;
    } cases[] = {{HEAD "\"train_micro_batch_size_per_gpu\": 4}", 0},
                 {HEAD "\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 8, "
                       "\"spillway\": {\"mesh\": {\"pipe\": 2}, \"schedule\": \"1f1b\"}}",
                  1.0 / 8},
                 {HEAD "\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 4, "
                       "\"spillway\": {\"mesh\": {\"pipe\": 4}, \"schedule\": \"gpipe\"}}",
                  3.0 / 4}};
    const struct wish wish = {.devices = 4, .is_all_product = true};
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct sw_json_doc *doc = plan(cases[i].config, &wish, 4);
        const double compute = number(doc, "of_step.compute");
        const double seconds = number(doc, "step_seconds");
        if (!(fabs(seconds / (compute * (1 + cases[i].bubble)) - 1) < 0.01)) {
            fail_msg("case %zu: computation %g, a step %g", i, compute, seconds);
        }
        sw_json_close(doc);
    }
}

/* Bytes that a rank sends along an axis, as the plan counts them. */
static double sent_along(unsigned axis, const char *config, const struct wish *wish, int ranks)
{
    struct sw_engine_options o = options_of(config);
    struct sw_str device = {0};
    struct sw_lineup lineup;
    sw_str_printf(&device, "sim:%s", put_cluster(wish));
    o.run.device = device.ptr;
    if (sw_lineup_open(&o, ranks, &lineup) < 0) {
        fail_msg("%s", sw_error_message());
    }
    const struct sw_plan *p = sw_engine_facts(lineup.stages[0].engine).plan;
    const int group = axis == SW_AXIS_DATA ? SW_GROUP_DATA : sw_plan_group(p, 1U << axis);
    const double bytes = (double)sw_plan_group_bytes(p, group);
    sw_lineup_close(&lineup);
    sw_str_fini(&device);
    return bytes;
}

/* The bytes of an axis are those of the plan, and nothing else takes time. */
static void one_slow_link_takes_its_bytes_over_its_rate(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        enum sw_axis axis;
    } cases[] = {
        {HEAD "\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 3}}",
         SW_AXIS_DATA},
        {HEAD "\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 1}}",
         SW_AXIS_DATA},
        {HEAD "\"train_micro_batch_size_per_gpu\": 1, \"spillway\": {\"mesh\": {\"tensor\": 2}}}",
         SW_AXIS_TENSOR},
        {HEAD "\"train_micro_batch_size_per_gpu\": 1, \"spillway\": {\"mesh\": {\"context\": 2}, "
              "\"sequence_parallel\": false}}",
         SW_AXIS_CONTEXT}};
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        const struct wish slow = {.devices = 1, .far = 1e6, .is_all_product = true};
        double bytes = sent_along(cases[i].axis, cases[i].config, &slow, 2);
        if (cases[i].axis == SW_AXIS_CONTEXT) { /* gradients are added over it, too */
            bytes += sent_along(SW_AXIS_DATA, cases[i].config, &slow, 2);
        }
        const double seconds = seconds_of(cases[i].config, &slow, 2);
        assert_true(bytes > 1e6);
        if (!(fabs(seconds / (bytes / slow.far) - 1) < 0.01)) {
            fail_msg("case %zu: %g bytes at %g a second, a step of %g s", i, bytes, slow.far,
                     seconds);
        }
    }
}

/* Everything is on slow drives, which bound the step. */
static void twice_the_drives_are_never_slower(void **state)
{
    (void)state;
    static const char config[] =
        HEAD "\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 3, "
             "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/nvme\"}, "
             "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/nvme\"}}, "
             "\"spillway\": {\"host_memory\": \"128MiB\"}}";
    double first = 0, before = INFINITY;
    for (int drives = 1; drives <= 64; drives *= 2) {
        const double seconds =
            seconds_of(config, &(struct wish){.devices = 2, .drives = drives}, 2);
        if (!(seconds <= before * (1 + 1e-12))) {
            fail_msg("%d drives: a step of %g s; half of them: %g s", drives, seconds, before);
        }
        first = drives == 1 ? seconds : first;
        before = seconds;
    }
    assert_true(before < first / 4);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(free_links_leave_computation_and_the_bubble),
    cmocka_unit_test(one_slow_link_takes_its_bytes_over_its_rate),
    cmocka_unit_test(twice_the_drives_are_never_slower),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
