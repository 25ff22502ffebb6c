// SPDX-License-Identifier: Apache-2.0
// json/tree - documents and their nodes: lookup, building, editing. All memory is in the document's
// arena. Replaced and removed nodes stay there until the document is closed, so pointers into the
// tree never dangle before that.

#include "json/private.h"

#include <string.h>

/* ---- key index: linear probing, at most half full ---- */

struct key_slot {
    uint64_t hash;
    struct sw_json *member; /* NULL: free, or removed */
    bool used;              /* also if removed, so that probing continues */
};

struct key_index {
    size_t n_slots; /* a power of two */
    size_t n_used;
    struct sw_hash_key key;
    struct key_slot *slots;
};

static struct sw_json_node *node_of(struct sw_json *json)
{
    return SW_CONTAINER(json, struct sw_json_node, json);
}

static bool key_is(const struct sw_json *member, const char *key, size_t key_len)
{
    return member->key_len == key_len && memcmp(member->key, key, key_len) == 0;
}

static void index_add(struct key_index *index, struct sw_json *member)
{
    const uint64_t hash = sw_hash_keyed(&index->key, member->key, member->key_len);
    size_t i = hash & (index->n_slots - 1);
    while (index->slots[i].used) {
        i = (i + 1) & (index->n_slots - 1);
    }
    index->slots[i] = (struct key_slot){.hash = hash, .member = member, .used = true};
    index->n_used++;
}

static struct key_slot *index_find(const struct key_index *index, const char *key, size_t key_len)
{
    const uint64_t hash = sw_hash_keyed(&index->key, key, key_len);
    size_t i = hash & (index->n_slots - 1);
    for (; index->slots[i].used; i = (i + 1) & (index->n_slots - 1)) {
        struct key_slot *slot = &index->slots[i];
        if (slot->member && slot->hash == hash && key_is(slot->member, key, key_len)) {
            return slot;
        }
    }
    return NULL;
}

/* Rebuilds the index of object's members, with room to double. */
static bool index_build(struct sw_json_doc *doc, struct sw_json *object)
{
    size_t n_slots = 4 * SW_JSON_INDEX_FROM;
    while (n_slots < 4 * (size_t)object->n_children) {
        n_slots *= 2;
    }
    struct key_index *index = sw_arena_alloc(&doc->arena, sizeof(*index));
    struct key_slot *slots = sw_arena_array(&doc->arena, n_slots, sizeof(*slots));
    if (!index || !slots) {
        return false;
    }
    *index = (struct key_index){.n_slots = n_slots, .slots = slots};
    sw_hash_key_init(&index->key);
    for (struct sw_json *m = object->first; m; m = m->next) {
        index_add(index, m);
    }
    node_of(object)->index = index;
    return true;
}

/* ---- nodes ---- */

struct sw_json *sw_json_node_new(struct sw_json_doc *doc, enum sw_json_type type)
{
    struct sw_json_node *node = sw_arena_alloc(&doc->arena, sizeof(*node));
    if (!node) {
        return NULL;
    }
    node->json.type = type;
    return &node->json;
}

bool sw_json_append(struct sw_json_doc *doc, struct sw_json *parent, struct sw_json *child)
{
    child->parent = parent;
    child->next = NULL;
    if (parent->last) {
        parent->last->next = child;
    } else {
        parent->first = child;
    }
    parent->last = child;
    parent->n_children++;

    if (parent->type != SW_JSON_OBJECT || parent->n_children < SW_JSON_INDEX_FROM) {
        return true;
    }
    struct key_index *index = node_of(parent)->index;
    if (!index || 2 * (index->n_used + 1) > index->n_slots) {
        return index_build(doc, parent);
    }
    index_add(index, child);
    return true;
}

struct sw_json *sw_json_find(const struct sw_json *object, const char *key, size_t key_len)
{
    if (!object || object->type != SW_JSON_OBJECT) {
        return NULL;
    }
    const struct key_index *index = ((const struct sw_json_node *)object)->index;
    if (index) {
        const struct key_slot *slot = index_find(index, key, key_len);
        return slot ? slot->member : NULL;
    }
    struct sw_json *member = object->first;
    while (member && !key_is(member, key, key_len)) {
        member = member->next;
    }
    return member;
}

struct sw_json *sw_json_get(const struct sw_json *object, const char *key)
{
    return sw_json_find(object, key, strlen(key));
}

struct sw_json *sw_json_path(const struct sw_json *object, const char *path)
{
    for (;;) {
        const size_t len = strcspn(path, ".");
        struct sw_json *member = sw_json_find(object, path, len);
        if (!member || path[len] == '\0') {
            return member;
        }
        object = member;
        path += len + 1;
    }
}

/* ---- documents ---- */

sw_status sw_json_new(const char *name, struct sw_json_doc **out)
{
    struct sw_json_doc *doc = sw_alloc_zero("json", 1, sizeof(*doc));
    SW_TRY_ALLOC(doc, "a JSON document");
    sw_arena_init(&doc->arena, "json");
    doc->name = sw_arena_strdup(&doc->arena, name);
    doc->root = sw_json_node_new(doc, SW_JSON_OBJECT);
    if (!doc->name || !doc->root) {
        sw_json_close(doc);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the JSON document %s", name);
    }
    *out = doc;
    return SW_OK;
}

void sw_json_close(struct sw_json_doc *doc)
{
    if (doc) {
        sw_arena_fini(&doc->arena);
        sw_free(doc);
    }
}

struct sw_json *sw_json_root(struct sw_json_doc *doc)
{
    return doc->root;
}

const char *sw_json_name(const struct sw_json_doc *doc)
{
    return doc->name;
}

/* ---- building and editing ---- */

/* Moves the value of `value`, a node outside any tree, into member. The member keeps its place
 * among its siblings, and pointers to it stay valid. */
static void assume(struct sw_json *member, struct sw_json *value)
{
    struct sw_json next = *value;
    next.key = member->key;
    next.key_len = member->key_len;
    next.parent = member->parent;
    next.next = member->next;
    *member = next;
    node_of(member)->index = node_of(value)->index;
    for (struct sw_json *child = member->first; child; child = child->next) {
        child->parent = member;
    }
}

static struct sw_json *attach(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                              struct sw_json *value)
{
    SW_ASSERT(parent->type == (key ? SW_JSON_OBJECT : SW_JSON_ARRAY));
    if (!value) {
        return NULL;
    }
    if (key) {
        struct sw_json *member = sw_json_get(parent, key);
        if (member) {
            assume(member, value);
            return member;
        }
        value->key_len = strlen(key);
        value->key = sw_arena_strndup(&doc->arena, key, value->key_len);
        if (!value->key) {
            return NULL;
        }
    }
    return sw_json_append(doc, parent, value) ? value : NULL;
}

struct sw_json *sw_json_put(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                            enum sw_json_type type)
{
    return attach(doc, parent, key, sw_json_node_new(doc, type));
}

struct sw_json *sw_json_put_i64(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                                int64_t value)
{
    struct sw_json *node = sw_json_node_new(doc, SW_JSON_INT);
    if (node) {
        node->integer = value;
        node->number = (double)value;
        node->raw = sw_arena_printf(&doc->arena, "%lld", (long long)value);
    }
    return attach(doc, parent, key, node && node->raw ? node : NULL);
}

struct sw_json *sw_json_put_f64(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                                double value)
{
    struct sw_json *node = sw_json_node_new(doc, SW_JSON_FLOAT);
    if (node) {
        struct sw_str text = {0};
        sw_json_write_f64(value, &text);
        node->number = value;
        node->integer = sw_json_truncate(value);
        node->raw = text.failed ? NULL : sw_arena_strdup(&doc->arena, sw_str_text(&text));
        sw_str_fini(&text);
    }
    return attach(doc, parent, key, node && node->raw ? node : NULL);
}

struct sw_json *sw_json_put_bool(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                                 bool value)
{
    struct sw_json *node = sw_json_node_new(doc, SW_JSON_BOOL);
    if (node) {
        node->boolean = value;
    }
    return attach(doc, parent, key, node);
}

struct sw_json *sw_json_put_str(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                                const char *value)
{
    struct sw_json *node = sw_json_node_new(doc, SW_JSON_STRING);
    if (node) {
        node->string_len = strlen(value);
        node->string = sw_arena_strndup(&doc->arena, value, node->string_len);
        node->raw = node->string;
    }
    return attach(doc, parent, key, node && node->string ? node : NULL);
}

/* Takes a length, since texts may contain NUL. */
static const char *copy_text(struct sw_json_doc *doc, const char *text, size_t len, bool *ok)
{
    const size_t bytes = len + 1;
    char *copy = text ? sw_arena_alloc(&doc->arena, bytes) : NULL;
    if (copy) {
        memcpy(copy, text, bytes);
    }
    *ok = *ok && (copy || !text);
    return copy;
}

/* Copies value alone, outside any tree and without children. */
static struct sw_json *copy_node(struct sw_json_doc *doc, const struct sw_json *value)
{
    struct sw_json *node = sw_json_node_new(doc, value->type);
    if (!node) {
        return NULL;
    }
    bool ok = true;
    struct sw_json copy = *value;
    copy.key = copy_text(doc, value->key, value->key_len, &ok);
    copy.string = copy_text(doc, value->string, value->string_len, &ok);
    copy.raw = value->raw ? copy_text(doc, value->raw, strlen(value->raw), &ok) : NULL;
    copy.parent = copy.first = copy.last = copy.next = NULL;
    copy.n_children = 0;
    *node = copy;
    return ok ? node : NULL;
}

struct sw_json *sw_json_put_copy(struct sw_json_doc *doc, struct sw_json *parent, const char *key,
                                 const struct sw_json *value)
{
    /* the copy is complete before it is attached: value may contain parent, or be replaced */
    struct sw_json *top = copy_node(doc, value);
    struct sw_json *into = top;
    const struct sw_json *from = value->first;
    while (into && from) {
        struct sw_json *node = copy_node(doc, from);
        if (!node || !sw_json_append(doc, into, node)) {
            return NULL;
        }
        if (from->first) {
            into = node;
            from = from->first;
            continue;
        }
        while (!from->next && from->parent != value) {
            from = from->parent;
            into = into->parent;
        }
        from = from->next;
    }
    if (top) {
        top->key = NULL;
        top->key_len = 0;
        top->key_line = top->key_column = 0;
    }
    return attach(doc, parent, key, top);
}

void sw_json_remove(struct sw_json *parent, struct sw_json *child)
{
    struct sw_json *before = NULL;
    struct sw_json *at = parent->first;
    while (at != child) {
        SW_ASSERT(at);
        before = at;
        at = at->next;
    }
    if (before) {
        before->next = child->next;
    } else {
        parent->first = child->next;
    }
    if (parent->last == child) {
        parent->last = before;
    }
    parent->n_children--;
    struct key_index *index = node_of(parent)->index;
    if (index) {
        index_find(index, child->key, child->key_len)->member = NULL;
    }
    child->parent = child->next = NULL;
}
