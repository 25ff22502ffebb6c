// SPDX-License-Identifier: Apache-2.0
// Any bytes as JSON, in both dialects: refused with a place, or read; what was read is written,
// reads again in the strict dialect and is written the same. What strict accepts, tolerant reads as
// a tree of the same size.
#include "json/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(void)
{
    SW_ASSERT(strncmp(sw_error_message(), "fuzz:", 5) == 0);
}

/* Parents, counts and look-up agree with the lists. Returns the number of nodes. */
static int64_t check_tree(struct sw_json *root)
{
    int64_t n = 0;
    struct sw_json *at = root;
    while (at) {
        n++;
        int64_t n_children = 0;
        for (struct sw_json *c = at->first; c; c = c->next) {
            SW_ASSERT(c->parent == at);
            SW_ASSERT(!c->key || strlen(c->key) != c->key_len || sw_json_get(at, c->key) == c);
            SW_ASSERT(c->line > 0 && c->column > 0);
            n_children++;
        }
        SW_ASSERT(n_children == at->n_children);
        if (at->first) {
            at = at->first;
            continue;
        }
        while (at != root && !at->next) {
            at = at->parent;
        }
        at = at == root ? NULL : at->next;
    }
    return n;
}

static void check_writing(struct sw_json *root, int indent)
{
    struct sw_str first = {0}, second = {0};
    sw_json_write(root, indent, &first);
    struct sw_json_doc *again = NULL;
    SW_ASSERT(sw_json_parse("again", first.ptr, first.len, SW_JSON_STRICT, &again) == SW_OK);
    sw_json_write(sw_json_root(again), indent, &second);
    SW_ASSERT(first.len == second.len && memcmp(first.ptr, second.ptr, first.len) == 0);
    sw_json_close(again);
    sw_str_fini(&first);
    sw_str_fini(&second);
}

/* The number of nodes, -1 when refused. */
static int64_t read_text(const uint8_t *data, size_t size, enum sw_json_dialect dialect)
{
    struct sw_json_doc *doc = NULL;
    if (sw_json_parse("fuzz", (const char *)data, size, dialect, &doc) < 0) {
        check_refusal();
        return -1;
    }
    struct sw_json *root = sw_json_root(doc);
    const int64_t n = check_tree(root);
    check_writing(root, 0);
    check_writing(root, 3);
    sw_json_close(doc);
    return n;
}

static sw_status count_events(void *ctx, enum sw_json_event event, const struct sw_json *value,
                              int depth)
{
    SW_ASSERT(depth >= 0 && (event == SW_JSON_CLOSE || (value->key != NULL) <= (depth > 0)));
    *(int64_t *)ctx += event != SW_JSON_CLOSE;
    return SW_OK;
}

/* Without a tree the same texts are read, but that keys may come twice. */
static void scan_text(const uint8_t *data, size_t size, int64_t n_nodes)
{
    int64_t n = 0;
    if (sw_json_scan("fuzz", (const char *)data, size, count_events, &n) < 0) {
        check_refusal();
        SW_ASSERT(n_nodes < 0);
        return;
    }
    SW_ASSERT(n_nodes < 0 || n == n_nodes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int64_t n = read_text(data, size, SW_JSON_STRICT);
    const int64_t n_tolerant = read_text(data, size, SW_JSON_TOLERANT);
    SW_ASSERT(n < 0 || n == n_tolerant);
    scan_text(data, size, n);
    return 0;
}
