// SPDX-License-Identifier: Apache-2.0
// The cluster that `spillway doctor` measures: a file that is read, and for which one can plan.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "cluster/cluster.h"
#include "spillway/comm.h"
#include "spillway/doctor.h"
#include "spillway/look.h"
#include "support/test.h"

struct job {
    const char *path;
    int n_wrote;
};

static sw_status measure_rank(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    const struct sw_doctor_cluster wanted = {
        .path = job->path, .device = "cpu", .model = "gpt2-tiny", .seq_len = 16, .comm = comm};
    bool wrote = false;
    const sw_status st = sw_doctor_cluster(&wanted, &wrote);
    if (wrote) {
        job->n_wrote++;
    }
    return st;
}

static void check_file(const char *path)
{
    struct sw_cluster *c = NULL;
    assert_int_equal(sw_cluster_open(path, &c), SW_OK);
    assert_true(c->node.devices.value == 2 && c->node.most.value == 1);
    assert_string_equal(c->device.backend, "cpu");
    /* both are rounded to the digits of a file */
    assert_true(fabs(2 * c->device.memory.value / c->host.memory.value - 1) < 1e-6);
    assert_true(c->device.sustained.value > 0);
    for (int t = 0; t < SW_CLUSTER_DTYPES; t++) {
        assert_int_equal(c->device.peak[t].kind, SW_FIGURE_MEASURED);
    }
    assert_int_equal(c->n_links, 2);
    assert_int_equal(c->links[0].joint, SW_JOINT_HOST);
    assert_int_equal(c->links[1].joint, SW_JOINT_PEERS);
    assert_true(c->links[1].rate.value > 1e6);
    assert_int_equal(c->n_disks, 0);
    sw_cluster_close(c);
}

static void check_plan(const char *path)
{
    struct sw_plan_cluster on = {.name = path};
    char *text = NULL;
    const struct sw_engine_options options = {
        .config.text = "{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": "
                       "{\"stage\": 3}, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
                       "{\"lr\": 0.001}}}",
        .model.path = "gpt2-tiny",
        .inputs.seq_len = 16,
        .train.wanted = true};
    assert_int_equal(sw_plan_cluster_size(&on), SW_OK);
    assert_int_equal(on.ranks, 2);
    assert_int_equal(sw_plan_cluster_text(&options, &on, &text), SW_OK);
    assert_non_null(strstr(text, "2 ranks on 1 node"));
    sw_text_free(text);
}

static void two_ranks_measure_a_node_for_plans(void **state)
{
    (void)state;
    char path[] = "/tmp/spillway-cluster-XXXXXX.json";
    struct job job = {.path = path};
    const int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    close(fd);
    if (sw_threads_run(2, 60, measure_rank, &job) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(job.n_wrote, 1);
    check_file(path);
    check_plan(path);
    unlink(path);
}

static void requests_without_sense_are_refused(void **state)
{
    (void)state;
    bool wrote = true;
    assert_int_equal(sw_doctor_cluster(NULL, &wrote), SW_E_ARG);
    assert_int_equal(sw_doctor_cluster(&(struct sw_doctor_cluster){0}, &wrote), SW_E_ARG);
    const struct sw_doctor_cluster short_one = {.path = "x.json", .seq_len = -1};
    assert_int_equal(sw_doctor_cluster(&short_one, &wrote), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "got x.json and -1"));
    const struct sw_doctor_cluster emulated = {
        .path = "x.json", .device = "mock", .model = "gpt2-tiny", .seq_len = 16};
    assert_int_equal(sw_doctor_cluster(&emulated, &wrote), SW_E_UNSUP);
    assert_int_not_equal(access("x.json", F_OK), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_ranks_measure_a_node_for_plans),
    cmocka_unit_test(requests_without_sense_are_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
