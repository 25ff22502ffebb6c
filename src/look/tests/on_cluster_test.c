// SPDX-License-Identifier: Apache-2.0
// Plans for clusters. A plan for a simulated GPU is the plan that the emulated one of the same
// architecture gets. The cluster's memory is the budget, unless a key says otherwise.
#include <math.h>
#include <string.h>

#include "cluster/cluster.h"
#include "device/device.h"
#include "engine/engine.h"
#include "json/json.h"
#include "spillway/comm.h"
#include "spillway/look.h"
#include "support/scratch.h"
#include "support/test.h"

enum { MOST_SETS = 8 };

struct wish {
    const char *config, *model, *device;
    const char *sets[MOST_SETS];
    int64_t seq_len;
};

static struct sw_engine_options options_of(const struct wish *wish)
{
    struct sw_engine_options o = {
        .config.text = wish->config
                           ? wish->config
                           : "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": "
                             "\"AdamW\", \"params\": {\"lr\": 0.001}}}",
        .model.path = wish->model ? wish->model : "gpt2-tiny",
        .inputs.seq_len = wish->seq_len > 0 ? wish->seq_len : 64,
        .train.wanted = true,
        .run.device = wish->device,
        .plan.only = true};
    o.config.sets = wish->sets;
    while (o.config.n_sets < MOST_SETS && wish->sets[o.config.n_sets]) {
        o.config.n_sets++;
    }
    return o;
}

/* ---- the plan of a GPU ---- */

/* Replaces the names by which the plans of two devices differ. */
static char *without_names(char *text, const char *backend)
{
    struct sw_str out = {0};
    char kernel[64];
    snprintf(kernel, sizeof kernel, "\"kernel\":\"%s\"", backend);
    for (const char *at = text; *at;) {
        const bool is_hash = strncmp(at, "\"fingerprint\":\"", 15) == 0;
        const size_t n = is_hash                               ? 15 + 16
                         : strncmp(at, kernel, strlen(kernel)) ? 0
                                                               : strlen(kernel);
        sw_str_append(&out, n > 0 ? "*" : at, 1);
        at += n > 0 ? n : 1;
    }
    sw_text_free(text);
    return out.ptr;
}

static char *plan_of(const struct wish *wish, int ranks, const char *backend)
{
    struct sw_engine_options o = options_of(wish);
    sw_engine *engine = NULL;
    sw_comm *comm = NULL;
    char *text = NULL;
    assert_int_equal(sw_comm_open(&(struct sw_transport){.size = ranks}, &comm), SW_OK);
    o.run.comm = comm;
    if (sw_initialize(&o, &engine) < 0) {
        fail_msg("%s: %s", wish->device, sw_error_message());
    }
    assert_int_equal(sw_plan_text(engine, true, true, &text), SW_OK);
    sw_close(engine);
    sw_comm_close(comm, false);
    return without_names(text, backend);
}

static bool is_emulated(const char *name)
{
    struct sw_device *dev = NULL;
    const bool is = sw_device_open(name, 1, &dev) >= 0;
    sw_device_close(dev);
    return is;
}

static void a_plan_is_that_of_the_emulated_gpu(void **state)
{
    (void)state;
    static const struct {
        const char *emulated, *simulated, *backend;
    } pairs[] = {{"emu:direct", "sim:dgx2-v100", "cuda"},
                 {"emu:direct", "sim:h100-node", "cuda"},
                 {"emu:64:direct", "sim:mi100-node", "hip"}};
    static const char *const configs[] = {
        "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 2, \"optimizer\": "
        "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}}",
        "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 2, \"bf16\": {\"enabled\": "
        "true}, \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": "
        "\"cpu\"}}, \"gradient_clipping\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
        "{\"lr\": 0.001}}}",
        "{\"train_batch_size\": 2, \"train_micro_batch_size_per_gpu\": 1, \"fp16\": {\"enabled\": "
        "true}, \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": "
        "\"nvme\", \"nvme_path\": \"/x\"}, \"offload_param\": {\"device\": \"nvme\", "
        "\"nvme_path\": \"/x\"}}, \"spillway\": {\"tile_bytes\": 100000, \"recompute\": "
        "\"blocks\"}, \"optimizer\": {\"type\": \"Lion\", \"params\": {\"lr\": 0.001}}}"};
    if (!is_emulated(pairs[0].emulated) || !is_emulated(pairs[2].emulated)) {
        skip();
    }
    setenv("SPILLWAY_GPU_BLAS", "own", 1); /* the stand-ins choose workspaces of their own */
    for (size_t c = 0; c < SW_LEN(configs); c++) {
        for (size_t p = 0; p < SW_LEN(pairs); p++) {
            struct wish wish = {.config = configs[c],
                                .device = pairs[p].emulated,
                                .sets = {"spillway.device_memory=100M", "spillway.host_memory=300M",
                                         "spillway.nvme_space=1G", "spillway.comm=host"}};
            const int ranks = c > 0 ? 2 : 1;
            char *emulated = plan_of(&wish, ranks, "emu");
            wish.device = pairs[p].simulated;
            char *simulated = plan_of(&wish, ranks, pairs[p].backend);
            assert_string_equal(emulated, simulated);
            assert_true(strlen(emulated) > 10000);
            sw_free(emulated);
            sw_free(simulated);
        }
    }
    unsetenv("SPILLWAY_GPU_BLAS");
}

static void nothing_runs_on_it(void **state)
{
    (void)state;
    const struct wish wish = {.device = "sim:dgx2-v100"};
    struct sw_engine_options o = options_of(&wish);
    sw_engine *engine = NULL;
    o.plan.only = false;
    assert_int_equal(sw_initialize(&o, &engine), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "device sim:dgx2-v100, V100-SXM3-32GB (sm_70), 32.0 "
                                               "GiB is simulated and computes nothing"));
}

/* ---- budgets and sizes ---- */

static struct sw_json_doc *ask(const struct wish *wish, struct sw_plan_cluster on)
{
    const struct sw_engine_options o = options_of(wish);
    struct sw_json_doc *doc = NULL;
    char *text = NULL;
    on.json = true;
    if (sw_plan_cluster_size(&on) < 0 || sw_plan_cluster_text(&o, &on, &text) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_json_parse("cluster", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    sw_text_free(text);
    return doc;
}

static double at(struct sw_json_doc *doc, const char *path)
{
    const struct sw_json *value = sw_json_path(sw_json_root(doc), path);
    if (!value) {
        fail_msg("no %s", path);
    }
    return value->number;
}

static void ranks_of_a_node_share_its_host(void **state)
{
    (void)state;
    static const int64_t ranks[] = {1, 2, 16, 32};
    const struct wish wish = {0};
    for (size_t i = 0; i < SW_LEN(ranks); i++) {
        struct sw_json_doc *doc =
            ask(&wish, (struct sw_plan_cluster){.name = "dgx2-v100", .ranks = ranks[i]});
        const double sharing = ranks[i] < 16 ? (double)ranks[i] : 16;
        assert_true(at(doc, "ranks") == (double)ranks[i]);
        assert_true(at(doc, "nodes") == (ranks[i] > 16 ? 2 : 1));
        assert_true(at(doc, "tiers.device.there_are") == 32 * 0x1p30 * 63 / 64);
        assert_true(at(doc, "tiers.host.there_are") == 1536 * 0x1p30 / sharing);
        assert_true(at(doc, "tiers.disk.there_are") == 2e13 / sharing);
        assert_true(at(doc, "tiers.device.bytes") > 0);
        sw_json_close(doc);
    }
}

static double budget_of(const char *cluster, int ranks, const char *set)
{
    static const char key[] = "\"device_budget\":";
    const struct wish wish = {.device = cluster, .sets = {"train_batch_size=8", set}};
    char *text = plan_of(&wish, ranks, "");
    const char *found = strstr(text, key);
    assert_non_null(found);
    const double bytes = strtod(found + strlen(key), NULL);
    sw_free(text);
    return bytes;
}

/* As on the machine: 256 MiB for each that its ranks would open. */
static void communicators_take_memory(void **state)
{
    (void)state;
    const double alone = 32 * 0x1p30 * 63 / 64;
    static const struct {
        const char *cluster;
        int ranks;
        const char *set;
        int n;
    } rows[] = {{"sim:mi100-node", 1, NULL, 0},
                {"sim:mi100-node", 4, NULL, 3},
                {"sim:mi100-node", 4, "spillway.mesh.pipe=2", 11},
                {"sim:mi100-node", 4, "spillway.comm=library", 3},
                {"sim:mi100-node", 4, "spillway.comm=host", 0},
                {"sim:dgx2-v100", 2, NULL, 3}};
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        const double budget = budget_of(rows[i].cluster, rows[i].ranks, rows[i].set);
        if (budget != alone - rows[i].n * 0x1p28) {
            fail_msg("row %zu: %.0f bytes, wanted %.0f less %d communicators", i, budget, alone,
                     rows[i].n);
        }
    }
}

static void sizes_follow_from_each_other(void **state)
{
    (void)state;
    struct sw_plan_cluster on = {.name = "dgx2-v100"};
    assert_int_equal(sw_plan_cluster_size(&on), SW_OK);
    assert_true(on.nodes == 1 && on.ranks == 16);
    on = (struct sw_plan_cluster){.name = "dgx2-v100", .nodes = 3};
    assert_int_equal(sw_plan_cluster_size(&on), SW_OK);
    assert_true(on.ranks == 48);
    on = (struct sw_plan_cluster){.name = "dgx2-v100", .ranks = 17};
    assert_int_equal(sw_plan_cluster_size(&on), SW_OK);
    assert_true(on.nodes == 2 && on.ranks == 17);
    on = (struct sw_plan_cluster){.name = "dgx2-v100", .nodes = 65};
    assert_int_equal(sw_plan_cluster_size(&on), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "node.nodes: wanted 65 nodes"));
    on = (struct sw_plan_cluster){.name = "dgx2-v100", .nodes = 2, .ranks = 33};
    assert_int_equal(sw_plan_cluster_size(&on), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "node.devices: wanted 33 ranks on 2 nodes"));
    on = (struct sw_plan_cluster){.name = "dgx2-v100", .nodes = -1};
    assert_int_equal(sw_plan_cluster_size(&on), SW_E_ARG);
    on = (struct sw_plan_cluster){.nodes = 1};
    assert_int_equal(sw_plan_cluster_size(&on), SW_E_ARG);
}

static sw_status plan_on(const struct wish *wish)
{
    const struct sw_engine_options o = options_of(wish);
    const struct sw_plan_cluster on = {.name = "dgx2-v100", .nodes = 1, .ranks = 1};
    char *text = NULL;
    const sw_status st = sw_plan_cluster_text(&o, &on, &text);
    sw_text_free(text);
    return st;
}

static void a_model_fits_or_the_missing_bytes_are_said(void **state)
{
    (void)state;
    struct wish wish = {.model = "gpt2", .seq_len = 1024};
    assert_int_equal(plan_on(&wish), SW_OK);
    wish.model = "gpt2-xl";
    wish.sets[0] = "train_micro_batch_size_per_gpu=8";
    assert_int_equal(plan_on(&wish), SW_E_NOMEM);
    assert_non_null(strstr(sw_error_message(), "the budget is 33822867456"));
    assert_non_null(strstr(sw_error_message(), "are missing"));
    wish.sets[1] = "spillway.device_memory=null"; /* in the place of the cluster's */
    assert_int_equal(plan_on(&wish), SW_OK);
    wish.sets[1] = "spillway.recompute=blocks";
    assert_int_equal(plan_on(&wish), SW_OK);
    wish.sets[2] = "spillway.device_memory=1G";
    assert_int_equal(plan_on(&wish), SW_E_NOMEM);
}

static void disks_need_a_cluster_that_has_some(void **state)
{
    (void)state;
    const struct wish wish = {
        .config = "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\"},\n"
                  " \"zero_optimization\": {\"stage\": 3,\n  \"offload_param\": {\n\"device\": "
                  "\"nvme\", \"nvme_path\": \"/x\"}}}"};
    const struct sw_engine_options o = options_of(&wish);
    struct sw_plan_cluster on = {.name = "azure-ndm-a100-v4", .nodes = 1, .ranks = 8};
    char *text = NULL;
    assert_int_equal(sw_plan_cluster_text(&o, &on, &text), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), ":4: zero_optimization.offload_param.device: wanted "
                                               "\"none\" or \"cpu\", got \"nvme\", and there are "
                                               "no disks on sim:azure-ndm-a100-v4"));
    on.name = "dgx-a100-selene";
    assert_int_equal(sw_plan_cluster_text(&o, &on, &text), SW_OK);
    sw_text_free(text);
}

/* Seconds of computation are at least those of its FLOPs at the rate that products reach, and a
 * slower cluster is slower. */
static void the_time_follows_from_the_rates(void **state)
{
    (void)state;
    static const char *const names[] = {"h100-node", "dgx-a100-selene", "dgx2-v100"};
    static const double reached[] = {0.73 * 67e12, 0.655 * 19.5e12, 0.56 * 15.7e12};
    const struct wish wish = {.model = "gpt2", .seq_len = 256};
    double before = 0;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        struct sw_json_doc *doc =
            ask(&wish, (struct sw_plan_cluster){.name = names[i], .ranks = 2});
        const double seconds = at(doc, "step_seconds"), flops = at(doc, "flops");
        assert_true(flops > 0 && at(doc, "seconds.compute") >= flops / reached[i]);
        assert_true(seconds >= at(doc, "seconds.compute") && seconds >= at(doc, "seconds.comm"));
        assert_true(at(doc, "seconds.comm") > 0 && at(doc, "seconds.read") == 0);
        assert_true(fabs(at(doc, "tflops_per_device") - flops / seconds / 1e12) < 1e-6);
        assert_true(seconds > before);
        before = seconds;
        sw_json_close(doc);
    }
}

/* ---- lanes ---- */

static double number(const struct sw_json *of, const char *path)
{
    const struct sw_json *value = sw_json_path(of, path);
    assert_non_null(value);
    return value->number;
}

/* The share of the step in which the blocks of a queue work. They ascend, within the step. */
static double share_of(const struct sw_json *queue, double seconds)
{
    double last = 0, busy = 0;
    for (const struct sw_json *b = sw_json_get(queue, "blocks")->first; b; b = b->next) {
        const double begin = b->first->number, end = b->first->next->number;
        assert_true(begin >= last && end > begin && end <= seconds * (1 + 1e-9));
        busy += b->first->next->next->number * (end - begin);
        last = end;
    }
    return busy / seconds;
}

/* One rank stands for each stage. What its queues do is what the clock says of the step. */
static void lanes_have_the_work_of_a_step(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 4; stages *= 4) {
        const struct wish wish = {
            .sets = {stages > 1 ? "spillway.mesh.pipe=4" : "spillway.mesh.pipe=1",
                     "spillway.micro_batches=8"}};
        const struct sw_engine_options o = options_of(&wish);
        const struct sw_plan_cluster on = {"h100-node", 1, 8, true};
        struct sw_json_doc *doc = NULL;
        char *text = NULL;
        int n = 0;
        if (sw_plan_cluster_text(&o, &on, &text) < 0) {
            fail_msg("%s", sw_error_message());
        }
        assert_int_equal(sw_json_parse("plan", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
        const struct sw_json *root = sw_json_root(doc), *lanes = sw_json_get(root, "lanes");
        const double seconds = number(root, "step_seconds");
        for (const struct sw_json *lane = lanes->first; lane; lane = lane->next, n++) {
            assert_int_equal((int)number(lane, "rank"), n * 8 / stages);
            assert_true(number(lane, "seconds") <= seconds);
            for (const struct sw_json *q = sw_json_get(lane, "queues")->first; q; q = q->next) {
                const double share = number(q, "busy_share");
                assert_true(share > 0 && share <= 1);
                assert_true(fabs(share_of(q, seconds) - share) < 0.06); /* heights are tenths */
            }
        }
        assert_int_equal(n, stages);
        const double busy =
            number(sw_json_get(lanes->first, "queues")->first, "busy_share") * seconds;
        assert_true(stages > 1 || fabs(busy / number(root, "of_step.compute") - 1) < 1e-3);
        sw_json_close(doc);
        sw_text_free(text);
    }
}

/* ---- measured kernels ---- */

static void put_kernel(const struct sw_program *program, int32_t i, struct sw_str *out)
{
    struct sw_op op;
    struct sw_op_desc desc;
    const char *dtype = NULL, *before = "";
    sw_program_describe(program, i, &op, &desc);
    struct sw_str shapes = {0};
    for (int k = 0; k < desc.op->n_in + desc.op->n_out; k++) {
        const struct sw_view *v = k < desc.op->n_in ? &desc.in[k] : &desc.out[k - desc.op->n_in];
        if (v->shape.rank >= 0) {
            const bool first = !dtype && sw_dtype_is_float(v->dtype);
            dtype = first ? sw_dtype_name(v->dtype) : dtype;
            sw_str_printf(&shapes, "%s[", before);
            for (int d = 0; d < v->shape.rank; d++) {
                sw_str_printf(&shapes, "%s%lld", d > 0 ? "," : "", (long long)v->shape.dims[d]);
            }
            sw_str_putc(&shapes, ']');
            before = ",";
        }
    }
    sw_str_printf(out, "%s{\"op\":\"%s\",\"dtype\":\"%s\",\"shapes\":[%s],\"seconds\":0.25}",
                  out->len > 0 ? ",\n" : "", sw_op_name(desc.op), dtype ? dtype : "f32",
                  sw_str_text(&shapes));
    sw_str_fini(&shapes);
}

/* All kernels of a training, each with a quarter of a second; returns how many there are. */
static int put_kernels(const char *device)
{
    const struct wish wish = {.device = device};
    const struct sw_engine_options o = options_of(&wish);
    sw_engine *e = NULL;
    struct sw_str rows = {0}, file = {0};
    int n = 0;
    assert_int_equal(sw_initialize(&o, &e), SW_OK);
    const struct sw_program *program = &sw_engine_facts(e).plan->programs[0];
    for (int32_t i = 0; i < program->n_instrs; i++) {
        if (program->instrs[i].verb == SW_VERB_KERNEL) {
            put_kernel(program, i, &rows);
            n++;
        }
    }
    sw_str_printf(&file, "{\"format\":1,\"machine\":\"a test\",\"kernels\":[%s]}", rows.ptr);
    test_put("kernels.json", file.ptr);
    sw_str_fini(&rows);
    sw_str_fini(&file);
    sw_close(e);
    return n;
}

/* A node of one H100, whose file names another file. */
static void put_cluster(const char *measured)
{
    struct sw_cluster *c = NULL;
    struct sw_str text = {0};
    assert_int_equal(sw_cluster_open("h100-node", &c), SW_OK);
    c->device.measured = measured;
    sw_cluster_write(c, &text);
    test_put("node.json", text.ptr);
    sw_str_fini(&text);
    sw_cluster_close(c);
}

static void measured_kernels_take_their_time(void **state)
{
    (void)state;
    const struct wish wish = {0};
    const struct sw_engine_options o = options_of(&wish);
    const struct sw_plan_cluster on = {test_at("node.json"), 1, 1, true};
    struct sw_json_doc *doc = NULL;
    char *text = NULL;
    put_cluster("kernels.json");
    const int n = put_kernels("sim:h100-node");
    if (sw_plan_cluster_text(&o, &on, &text) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_json_parse("plan", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    assert_true(n > 50);
    assert_true(fabs(number(sw_json_root(doc), "of_step.compute") / (n * 0.25) - 1) < 1e-9);
    sw_json_close(doc);
    sw_text_free(text);
}

static void a_file_of_kernels_is_refused_by_key_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } files[] = {
        {"{\"format\":2,\"machine\":\"m\",\"kernels\":[]}", "kernels.json:1: format: wanted 1"},
        {"{\"format\":1,\"machine\":\"m\"}", "measured.kernels: is required"},
        {"{\"format\":1,\"machine\":\"m\",\"kernels\":[\n{\"op\":\"add\",\"dtype\":\"f32\","
         "\"shapes\":[[1]],\"seconds\":0}]}",
         "kernels.json:2: kernels.seconds: wanted a number above 0"},
        {"{\"format\":1,\"machine\":\"m\",\"kernels\":[\n{\"op\":\"add\",\"dtype\":\"f32\","
         "\"shapes\":[[0]],\"seconds\":1}]}",
         "kernels.json:2: kernels.shapes: wanted a list"},
        {"{\"format\":1,\"machine\":\"m\",\"kernels\":[{\"op\":\"add\",\"dtype\":\"f3\","
         "\"shapes\":[[1]],\"seconds\":1}]}",
         "kernels.dtype: wanted"},
        {"{\"format\":1,\"machine\":\"m\",\"kernels\":[{\"op\":\"add\",\"dtype\":\"i32\","
         "\"shapes\":[[1]],\"seconds\":1}]}",
         "kernels.dtype: wanted"},
        {"{\"format\":1,\"machine\":2,\"kernels\":[]}", "machine: wanted a text, got an integer"},
        {"{\"format\":1,\"machine\":\"m\",\"kernels\":[{\"op\":\"add\",\"dtyp\":\"f32\",\"dtype\":"
         "\"f32\",\"shapes\":[[1]],\"seconds\":1}]}",
         "unknown key \"dtyp\"; the nearest is \"dtype\""},
        {"{\"format\":1,\"machine\":\"m\",\"kernels\":[{\"op\":\"add\",\"ms\":1,\"dtype\":\"f32\","
         "\"shapes\":[[1]],\"seconds\":1}]}",
         "unknown key \"ms\""}};
    struct sw_cluster *c = NULL;
    put_cluster("kernels.json");
    for (size_t i = 0; i < SW_LEN(files); i++) {
        test_put("kernels.json", files[i].text);
        assert_int_equal(sw_cluster_open(test_at("node.json"), &c), SW_E_CONFIG);
        if (!strstr(sw_error_message(), files[i].why)) {
            fail_msg("%s, not %s", sw_error_message(), files[i].why);
        }
    }
    const struct wish wish = {0};
    const struct sw_engine_options o = options_of(&wish);
    const struct sw_plan_cluster on = {test_at("node.json"), 1, 1, true};
    char *text = NULL;
    test_put("kernels.json", "{\"format\":1,\"machine\":\"m\",\"kernels\":[\n{\"op\":\"matmull\","
                             "\"dtype\":\"f32\",\"shapes\":[[1]],\"seconds\":1}]}");
    assert_int_equal(sw_plan_cluster_text(&o, &on, &text), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "kernels.json:2: kernels.op: no operation is named "
                                               "\"matmull\"; the nearest is \"matmul\""));
    put_cluster("missing.json");
    assert_int_equal(sw_cluster_open(test_at("node.json"), &c), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "device.measured"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_plan_is_that_of_the_emulated_gpu),
    cmocka_unit_test(nothing_runs_on_it),
    cmocka_unit_test(ranks_of_a_node_share_its_host),
    cmocka_unit_test(communicators_take_memory),
    cmocka_unit_test(sizes_follow_from_each_other),
    cmocka_unit_test(a_model_fits_or_the_missing_bytes_are_said),
    cmocka_unit_test(disks_need_a_cluster_that_has_some),
    cmocka_unit_test(the_time_follows_from_the_rates),
    cmocka_unit_test(lanes_have_the_work_of_a_step),
    cmocka_unit_test(measured_kernels_take_their_time),
    cmocka_unit_test(a_file_of_kernels_is_refused_by_key_and_line),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
