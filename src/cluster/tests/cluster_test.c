// SPDX-License-Identifier: Apache-2.0
// Every shipped cluster is read, is written as it is, and says of each number where it is from.
// What a file gets wrong is refused with its line and key.
#include <dirent.h>
#include <stdlib.h>

#include "cluster/cluster.h"
#include "json/json.h"
#include "support/test.h"

static const char *const shipped[] = {"dgx2-v100",   "dgx-a100-selene", "azure-ndm-a100-v4",
                                      "mi100-node",  "h100-node",       "h200-node",
                                      "mi250x-node", "mi300x-node"};

static struct sw_cluster *open_named(const char *name)
{
    struct sw_cluster *cluster = NULL;
    assert_int_equal(sw_cluster_open(name, &cluster), SW_OK);
    assert_string_equal(cluster->name, name);
    return cluster;
}

static void every_shipped_cluster_is_read(void **state)
{
    (void)state;
    int n = 0;
    for (size_t i = 0; i < SW_LEN(shipped); i++) {
        sw_cluster_close(open_named(shipped[i]));
    }
    DIR *dir = opendir("share/clusters");
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    assert_int_equal(n, SW_LEN(shipped));
}

/* Every number of a file is the value of a figure, which has a kind and a source; the number of the
 * format is the exception. Returns how many there are. */
static int check_figures(const struct sw_json *node)
{
    int n = 0;
    for (const struct sw_json *child = node->first; child; child = child->next) {
        if (child->type == SW_JSON_INT || child->type == SW_JSON_FLOAT) {
            if (strcmp(child->key, "format") == 0) {
                continue;
            }
            const struct sw_json *kind = sw_json_get(node, "kind");
            const struct sw_json *source = sw_json_get(node, "source");
            assert_string_equal(child->key, "value");
            assert_non_null(kind);
            assert_non_null(source);
            assert_true(source->string_len > 3);
            n++;
        }
        n += check_figures(child);
    }
    return n;
}

static void each_number_has_kind_and_source(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(shipped); i++) {
        char path[128];
        struct sw_json_doc *doc = NULL;
        snprintf(path, sizeof path, "share/clusters/%s.json", shipped[i]);
        assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &doc), SW_OK);
        assert_true(check_figures(sw_json_root(doc)) > 15);
        sw_json_close(doc);
    }
}

static void each_key_is_documented(const struct sw_json *node, const char *page)
{
    for (const struct sw_json *child = node->first; child; child = child->next) {
        if (child->key) {
            char quoted[80];
            snprintf(quoted, sizeof quoted, "`%s`", child->key);
            if (!strstr(page, quoted)) {
                fail_msg("docs/clusters.md has no %s", quoted);
            }
        }
        each_key_is_documented(child, page);
    }
}

static void the_page_has_every_key(void **state)
{
    (void)state;
    char *page = NULL;
    size_t len = 0;
    struct sw_json_doc *doc = NULL;
    assert_int_equal(sw_file_read("docs/clusters.md", &page, &len), SW_OK);
    assert_int_equal(sw_json_read("share/clusters/dgx2-v100.json", SW_JSON_STRICT, &doc), SW_OK);
    each_key_is_documented(sw_json_root(doc), page);
    for (size_t i = 0; i < SW_LEN(shipped); i++) {
        assert_non_null(strstr(page, shipped[i]));
    }
    assert_non_null(strstr(page, "`reached_share`"));
    sw_json_close(doc);
    sw_free(page);
}

static void what_is_written_is_what_was_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(shipped); i++) {
        char path[128], *text = NULL;
        size_t len = 0;
        struct sw_str written = {0};
        struct sw_cluster *cluster = open_named(shipped[i]);
        sw_cluster_write(cluster, &written);
        snprintf(path, sizeof path, "share/clusters/%s.json", shipped[i]);
        assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
        assert_string_equal(sw_str_text(&written), text);
        sw_free(text);
        sw_str_fini(&written);
        sw_cluster_close(cluster);
    }
}

/* ---- refusals: one text of a good file is replaced ---- */

static char *edited(const char *was, const char *is)
{
    char *text = NULL;
    size_t len = 0;
    struct sw_str out = {0};
    assert_int_equal(sw_file_read("share/clusters/dgx2-v100.json", &text, &len), SW_OK);
    const char *at = strstr(text, was);
    assert_non_null(at);
    sw_str_append(&out, text, (size_t)(at - text));
    sw_str_puts(&out, is);
    sw_str_puts(&out, at + strlen(was));
    sw_free(text);
    return out.ptr;
}

static void expect_refused(const char *was, const char *is, const char *message)
{
    char *text = edited(was, is);
    struct sw_cluster *cluster = NULL;
    const sw_status st = sw_cluster_parse("c.json", text, strlen(text), &cluster);
    sw_free(text);
    assert_true(st == SW_E_CONFIG || st == SW_E_FORMAT);
    assert_null(cluster);
    if (!strstr(sw_error_message(), message)) {
        fail_msg("wanted \"%s\", got \"%s\"", message, sw_error_message());
    }
}

static void a_file_is_refused_by_key_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *was, *is, *message;
    } cases[] = {
        {"\"format\": 1", "\"format\": 2", "c.json:2: format: wanted 1, got 2"},
        {"\"about\"", "\"abuot\"", "c.json:4: unknown key \"abuot\"; the nearest is \"about\""},
        {"\"memory_gib\": {\"value\": 32", "\"memory_gb\": {\"value\": 32",
         "c.json:16: device: unknown key \"memory_gb\"; the nearest is \"memory_gib\""},
        {"\"about\": ", "\"name\": ", "\"name\""},
        {"\"devices\": {\"value\": 16", "\"devices\": {\"value\": 0",
         "c.json:7: node.devices.value: wanted a whole number of at least 1 and at most "
         "1000000000, got 0"},
        {"\"devices\": {\"value\": 16", "\"devices\": {\"value\": 1.5",
         "c.json:7: node.devices.value: wanted a whole number of at least 1 and at most "
         "1000000000, got 1.5"},
        {"\"memory_gib\": {\"value\": 32", "\"memory_gib\": {\"value\": 1e300",
         "c.json:16: device.memory_gib.value: wanted a number of at most 8.38"},
        {"\"memory_gib\": {\"value\": 32", "\"memory_gib\": {\"value\": 2e10",
         "c.json:16: device.memory_gib.value: wanted a number of at most 8.38"},
        {"\"count\": {\"value\": 1", "\"count\": {\"value\": 900000000",
         "disks: wanted at most 9e+18 bytes on a node, got 1.8e+22"},
        {"\"rate_gb_s\": {\"value\": 150", "\"rate_gb_s\": {\"value\": 0",
         "links[2].rate_gb_s.value: wanted a number above 0, got 0"},
        {"\"read_gb_s\": {\"value\": 25", "\"read_gb_s\": {\"value\": 0",
         "disks[0].read_gb_s.value: wanted a number above 0, got 0"},
        {"\"bandwidth_gb_s\": {\"value\": 900", "\"bandwidth_gb_s\": {\"value\": -1",
         "c.json:17: device.bandwidth_gb_s.value: wanted a number above 0, got -1"},
        {"{\"value\": 0.56", "{\"value\": 1.56",
         "device.sustained_share.value: wanted a number above 0 and at most 1, got 1.56"},
        {"\"latency_us\": {\"value\": 3.4", "\"latency_us\": {\"value\": -3.4",
         "links[2].latency_us.value: wanted a number of at least 0, got -3.4"},
        {"\"memory_gib\": {\"value\": 32, \"kind\": \"datasheet\"",
         "\"memory_gib\": {\"value\": 32, \"kind\": \"guess\"",
         "device.memory_gib.kind: wanted \"datasheet\", \"measured\" or \"fitted\", got guess"},
        {"{\"value\": 32, \"kind\": \"datasheet\", ", "{\"value\": 32, ",
         "c.json:16: device.memory_gib.kind: is required"},
        {"{\"value\": 32, \"kind\": \"datasheet\", \"source\": \"Tesla V100 datasheet, 2020\"}",
         "32",
         "c.json:16: device.memory_gib: wanted {\"value\": .., \"kind\": .., \"source\": ..}, got "
         "an integer"},
        {"\"source\": \"Tesla V100 datasheet, 2020\"", "\"source\": \"\"",
         "source: wanted a text, got an empty one"},
        {"\"backend\": \"cuda\"", "\"backend\": \"tpu\"",
         "device.backend: wanted \"cuda\", \"hip\" or \"cpu\", got tpu"},
        {"\"shared_by\": \"switch\"", "\"shared_by\": \"rack\"",
         "links[1].shared_by: wanted \"device\", \"switch\", \"nic\" or \"node\", got rack"},
        {"\"duplex\": true", "\"duplex\": 1", "links[0].duplex: wanted true or false"},
        {"\"joins\": \"device-host\",", "", "links[0].joins: is required"},
        {"\"name\": \"pcie-switch\"", "\"name\": \"pcie\"",
         "links[1].name: \"pcie\" is the name of links[0] too"},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        expect_refused(cases[i].was, cases[i].is, cases[i].message);
    }
}

static void a_link_that_nobody_is_on_is_refused(void **state)
{
    (void)state;
    expect_refused("\"devices\": {\"value\": 16", "\"devices\": {\"value\": 1",
                   "node.devices_per_switch: wanted at most node.devices, 1, got 4");
    expect_refused("\"nodes\": {\"value\": 64", "\"nodes\": {\"value\": 1",
                   "links[3].joins: nobody is on it: it joins nodes, but node.nodes is 1");
    expect_refused("\"devices_per_switch\": {\"value\": 4", "\"devices_per_nic\": {\"value\": 4",
                   "devices_per_nic");
    expect_refused("\"joins\": \"node-node\"", "\"joins\": \"device-device\"",
                   "c.json:33: links: no link joins nodes (\"node-node\")");
    char *text = edited(
        "    \"devices_per_switch\": {\"value\": 4, \"kind\": \"measured\", \"source\": \"authors' "
        "slides of ZeRO-Infinity at SC21: 3 GB/s each with all 16 at once, a "
        "quarter of 12\"},\n",
        "");
    struct sw_cluster *cluster = NULL;
    assert_int_equal(sw_cluster_parse("c.json", text, strlen(text), &cluster), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(),
                           "links[1].shared_by: nobody is on it: it is shared by the devices of a "
                           "\"switch\", but node.devices_per_switch is not given"));
    sw_free(text);
}

/* Parses the DGX-2 with so many of its disks, and of its links among the devices of a node. */
static sw_status parse_with(int n_disks, int n_peers)
{
    enum { MOST = 16 };
    struct sw_cluster_disk disks[MOST];
    struct sw_cluster_link links[MOST];
    struct sw_str text = {0};
    struct sw_cluster *cluster = open_named("dgx2-v100"), *again = NULL;
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
    for (int i = 0; i < n_disks; i++) {
        disks[i] = cluster->disks[0];
    }
    memcpy(links, cluster->links, (size_t)cluster->n_links * sizeof *links);
    for (int i = 1; i < n_peers; i++) {
        links[cluster->n_links] = links[2];
        links[cluster->n_links++].name = names[i];
    }
    cluster->disks = disks;
    cluster->n_disks = n_disks;
    cluster->links = links;
    sw_cluster_write(cluster, &text);
    const sw_status st = sw_cluster_parse("c.json", text.ptr, text.len, &again);
    sw_str_fini(&text);
    sw_cluster_close(cluster);
    sw_cluster_close(again);
    return st;
}

/* Two links and the memory of a host leave five disks. A link of a node and three among its devices
 * are eight, with both directions. */
static void a_transfer_uses_eight_things_at_most(void **state)
{
    (void)state;
    assert_int_equal(parse_with(5, 3), SW_OK);
    assert_int_equal(parse_with(6, 1), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), ": disks[5]: wanted at most 8 things"));
    assert_int_equal(parse_with(1, 4), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), ": links[6]: wanted at most 8 things"));
}

static void a_single_device_has_no_peers(void **state)
{
    (void)state;
    struct sw_str text = {0};
    struct sw_cluster *cluster = open_named("mi100-node");
    cluster->node.devices.value = 1;
    sw_cluster_write(cluster, &text);
    sw_cluster_close(cluster);
    cluster = NULL;
    assert_int_equal(sw_cluster_parse("c.json", text.ptr, text.len, &cluster), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "links[1].joins: nobody is on it: it joins the "
                                               "devices of a node, but node.devices is 1"));
    sw_str_fini(&text);
}

static void an_unknown_name_lists_the_known_ones(void **state)
{
    (void)state;
    struct sw_cluster *cluster = NULL;
    assert_int_equal(sw_cluster_open("dgx2-v10", &cluster), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "no cluster \"dgx2-v10\"; the nearest is "
                                               "\"dgx2-v100\""));
    for (size_t i = 0; i < SW_LEN(shipped); i++) {
        assert_non_null(strstr(sw_error_message(), shipped[i]));
    }
    assert_int_equal(sw_cluster_open("./none.json", &cluster), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "none.json"));
    const char *share = getenv("SPILLWAY_SHARE");
    char before[4096];
    assert_non_null(share);
    snprintf(before, sizeof before, "%s", share);
    setenv("SPILLWAY_SHARE", "/nowhere", 1);
    assert_int_equal(sw_cluster_open("dgx2-v100", &cluster), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "/nowhere/clusters/dgx2-v100.json"));
    setenv("SPILLWAY_SHARE", before, 1);
}

static void a_mesh_larger_than_the_cluster_is_refused(void **state)
{
    (void)state;
    struct sw_cluster *cluster = open_named("dgx2-v100");
    assert_int_equal(sw_cluster_check_size(cluster, 64, 1024), SW_OK);
    assert_int_equal(sw_cluster_check_size(cluster, 65, 1), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "dgx2-v100.json:6: node.nodes: wanted 65 nodes, but "
                                               "the cluster has 64"));
    assert_int_equal(sw_cluster_check_size(cluster, 1, 17), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "dgx2-v100.json:7: node.devices: wanted 17 ranks on "
                                               "1 node, but the cluster has 16"));
    sw_cluster_close(cluster);
}

static void sharers_and_space_follow_from_the_node(void **state)
{
    (void)state;
    struct sw_cluster *cluster = open_named("dgx2-v100");
    assert_int_equal(sw_cluster_sharers(cluster, SW_SHARER_DEVICE), 1);
    assert_int_equal(sw_cluster_sharers(cluster, SW_SHARER_SWITCH), 4);
    assert_int_equal(sw_cluster_sharers(cluster, SW_SHARER_NIC), 2);
    assert_int_equal(sw_cluster_sharers(cluster, SW_SHARER_NODE), 16);
    assert_true(sw_cluster_disk_space(cluster) == 2e13);
    assert_true(sw_cluster_peak(cluster, SW_F16) == 125e12);
    assert_true(sw_cluster_peak(cluster, SW_BF16) == sw_cluster_peak(cluster, SW_F32));
    cluster->disks[0].shared_by = SW_SHARER_DEVICE;
    assert_true(sw_cluster_disk_space(cluster) == 16 * 2e13);
    sw_cluster_close(cluster);
    cluster = open_named("azure-ndm-a100-v4");
    assert_true(sw_cluster_disk_space(cluster) == 0);
    sw_cluster_close(cluster);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    sw_status st = SW_E_NOMEM;
    int64_t n = 1;
    for (; st == SW_E_NOMEM; n++) {
        struct sw_cluster *cluster = NULL;
        sw_alloc_fail_nth(n);
        st = sw_cluster_open("h100-node", &cluster);
        sw_alloc_fail_nth(0);
        assert_true(st == SW_OK || !cluster);
        sw_cluster_close(cluster);
    }
    assert_int_equal(st, SW_OK);
    assert_true(n > 5);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_shipped_cluster_is_read),
    cmocka_unit_test(each_number_has_kind_and_source),
    cmocka_unit_test(the_page_has_every_key),
    cmocka_unit_test(what_is_written_is_what_was_read),
    cmocka_unit_test(a_file_is_refused_by_key_and_line),
    cmocka_unit_test(a_link_that_nobody_is_on_is_refused),
    cmocka_unit_test(a_transfer_uses_eight_things_at_most),
    cmocka_unit_test(a_single_device_has_no_peers),
    cmocka_unit_test(an_unknown_name_lists_the_known_ones),
    cmocka_unit_test(a_mesh_larger_than_the_cluster_is_refused),
    cmocka_unit_test(sharers_and_space_follow_from_the_node),
    cmocka_unit_test(no_memory_is_an_error),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
