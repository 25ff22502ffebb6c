// SPDX-License-Identifier: Apache-2.0
// hf/pickle - the pickle of a state dict. Pickles are programs of a stack machine that can call
// anything; this machine knows the few instructions and names that dictionaries of tensors are made
// of, and runs no code. Invariant: memory is in proportion to the bytes of the pickle, but for
// copies of tensors that are not contiguous, which together are at most as large as the file, and
// so are names of tensors.
#include "hf/pickle.h"

#include <stdio.h>
#include <string.h>

enum kind {
    NOTHING, /* None, and values that are not used */
    BOOL,
    NUMBER,
    TEXT,
    SEQUENCE, /* a tuple or a list */
    DICTIONARY,
    NAME, /* a name of the list below */
    STORAGE,
    TENSOR,
    BEGIN /* a mark */
};

struct value;
struct sequence { /* a dictionary alternates keys and values */
    struct value *items;
    size_t n, cap;
};
struct storage {
    const struct sw_hf_dtype *dtype;
    const struct sw_zip_member *member;
    int64_t elems;
};
struct tensor {
    struct storage of;
    struct sw_shape shape, strides;
    int64_t first;
};
struct value {
    enum kind kind;
    size_t len; /* TEXT */
    union {
        int64_t number;
        const char *text; /* TEXT: not ended by NUL */
        struct sequence *sequence;
        const struct name *name;
        const struct storage *storage;
        const struct tensor *tensor;
    };
};

enum role { MAKES_DICTIONARY, MAKES_TENSOR, MAKES_PARAMETER, IS_STORAGE };
static const struct name {
    const char *module, *name;
    enum role role;
    const char *dtype; /* dtype of a storage */
} allowed[] = {
    {"collections", "OrderedDict", MAKES_DICTIONARY, NULL},
    {"torch._utils", "_rebuild_tensor_v2", MAKES_TENSOR, NULL},
    {"torch._utils", "_rebuild_parameter", MAKES_PARAMETER, NULL},
    {"torch", "FloatStorage", IS_STORAGE, "F32"},
    {"torch", "HalfStorage", IS_STORAGE, "F16"},
    {"torch", "BFloat16Storage", IS_STORAGE, "BF16"},
    {"torch", "DoubleStorage", IS_STORAGE, "F64"},
    {"torch", "LongStorage", IS_STORAGE, "I64"},
    {"torch", "IntStorage", IS_STORAGE, "I32"},
    {"torch", "ShortStorage", IS_STORAGE, "I16"},
    {"torch", "CharStorage", IS_STORAGE, "I8"},
    {"torch", "ByteStorage", IS_STORAGE, "U8"},
    {"torch", "BoolStorage", IS_STORAGE, "BOOL"},
};

struct machine {
    struct sw_arena *arena;
    const char *path;
    struct sw_zip zip;
    const char *prefix; /* "archive/": of the members */
    size_t prefix_len;
    const unsigned char *code;
    size_t len, at; /* length of the code, position in it */
    struct sequence stack, memo;
    size_t may_copy; /* bytes of tensors, so that no small file asks for all memory */
    size_t may_name; /* bytes of their names: one that is recalled comes again and again */
    bool stopped;
};

static sw_status wrong(const struct machine *m, const char *what)
{
    return SW_FAIL(SW_E_FORMAT, "%s: byte %zu of its pickle: %s", m->path, m->at, what);
}

/* ---- sequences ---- */

static sw_status append(struct machine *m, struct sequence *s, struct value v)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap > 0 ? 2 * s->cap : 4;
        struct value *items = sw_arena_array(m->arena, cap, sizeof *items);
        SW_TRY_ALLOC(items, m->path);
        if (s->n > 0) {
            memcpy(items, s->items, s->n * sizeof *items);
        }
        s->items = items;
        s->cap = cap;
    }
    s->items[s->n++] = v;
    return SW_OK;
}

static sw_status push(struct machine *m, struct value v)
{
    return append(m, &m->stack, v);
}

/* Pops one value, but never a mark. */
static sw_status pop(struct machine *m, struct value *out)
{
    if (m->stack.n == 0 || m->stack.items[m->stack.n - 1].kind == BEGIN) {
        return wrong(m, "the stack is empty");
    }
    *out = m->stack.items[--m->stack.n];
    return SW_OK;
}

static sw_status top(struct machine *m, enum kind kind, struct sequence **out)
{
    const size_t n = m->stack.n;
    if (n == 0 || m->stack.items[n - 1].kind != kind) {
        return wrong(m, kind == DICTIONARY ? "there is no dictionary" : "there is no list");
    }
    *out = m->stack.items[n - 1].sequence;
    return SW_OK;
}

static sw_status push_sequence(struct machine *m, enum kind kind, const struct value *items,
                               size_t n)
{
    struct sequence *s = sw_arena_array(m->arena, 1, sizeof *s);
    SW_TRY_ALLOC(s, m->path);
    *s = (struct sequence){0};
    for (size_t i = 0; i < n; i++) {
        SW_TRY(append(m, s, items[i]));
    }
    return push(m, (struct value){.kind = kind, .sequence = s});
}

/* Pops the last mark and the values above it. The values are borrowed from the stack. */
static sw_status above_mark(struct machine *m, const struct value **out, size_t *out_n)
{
    size_t first = m->stack.n;
    while (first > 0 && m->stack.items[first - 1].kind != BEGIN) {
        first--;
    }
    if (first == 0) {
        return wrong(m, "there is no mark");
    }
    *out = m->stack.items + first;
    *out_n = m->stack.n - first;
    m->stack.n = first - 1;
    return SW_OK;
}

/* ---- arguments of instructions ---- */

static sw_status take(struct machine *m, size_t n, const unsigned char **out)
{
    if (n > m->len - m->at) {
        return wrong(m, "it is truncated");
    }
    *out = m->code + m->at;
    m->at += n;
    return SW_OK;
}

static sw_status take_number(struct machine *m, int bytes, uint64_t *out)
{
    const unsigned char *at;
    SW_TRY(take(m, (size_t)bytes, &at));
    *out = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        *out = *out << 8 | at[i];
    }
    return SW_OK;
}

static sw_status take_line(struct machine *m, const char **out, size_t *out_len)
{
    const unsigned char *end = memchr(m->code + m->at, '\n', m->len - m->at);
    if (!end) {
        return wrong(m, "it is truncated");
    }
    *out = (const char *)m->code + m->at;
    *out_len = (size_t)(end - (m->code + m->at));
    m->at += *out_len + 1;
    return SW_OK;
}

/* ---- names ---- */

static bool is_text(const char *text, size_t len, const char *wanted)
{
    return len == strlen(wanted) && memcmp(text, wanted, len) == 0;
}

static int shown(size_t len)
{
    return len < 80 ? (int)len : 80;
}

static sw_status push_name(struct machine *m, const char *module, size_t module_len,
                           const char *name, size_t name_len)
{
    for (size_t i = 0; i < SW_LEN(allowed); i++) {
        if (is_text(module, module_len, allowed[i].module) &&
            is_text(name, name_len, allowed[i].name)) {
            return push(m, (struct value){.kind = NAME, .name = &allowed[i]});
        }
    }
    return SW_FAIL(SW_E_FORMAT, "%s: its pickle imports %.*s.%.*s, which is not allowed", m->path,
                   shown(module_len), module, shown(name_len), name);
}

/* ---- storages and tensors ---- */

/* ("storage", type, key, device, elements) */
static sw_status make_storage(struct machine *m, const struct sequence *s)
{
    char name[256];
    if (s->n != 5 || s->items[0].kind != TEXT ||
        !is_text(s->items[0].text, s->items[0].len, "storage") || s->items[1].kind != NAME ||
        s->items[1].name->role != IS_STORAGE || s->items[2].kind != TEXT ||
        s->items[4].kind != NUMBER) {
        return wrong(m, "its persistent id does not name a storage");
    }
    const struct value *key = &s->items[2];
    const int n = snprintf(name, sizeof name, "%.*sdata/%.*s", shown(m->prefix_len), m->prefix,
                           shown(key->len), key->text);
    struct storage *storage = sw_arena_array(m->arena, 1, sizeof *storage);
    SW_TRY_ALLOC(storage, m->path);
    *storage = (struct storage){.dtype = sw_hf_dtype_of_name(s->items[1].name->dtype),
                                .member = sw_zip_find(&m->zip, name, (size_t)n),
                                .elems = s->items[4].number};
    if (!storage->member) {
        return SW_FAIL(SW_E_FORMAT, "%s: storage %s is missing", m->path, name);
    }
    const size_t width = (size_t)storage->dtype->bits / 8;
    if (storage->elems < 0 || (uint64_t)storage->elems > storage->member->bytes / width) {
        return SW_FAIL(SW_E_FORMAT, "%s: storage %s has %zu bytes, wanted %lld elements of %s",
                       m->path, name, storage->member->bytes, (long long)storage->elems,
                       storage->dtype->name);
    }
    return push(m, (struct value){.kind = STORAGE, .storage = storage});
}

static bool is_list(const struct value *v, struct sw_shape *out)
{
    const size_t n = v->kind == SEQUENCE ? v->sequence->n : 0;
    for (size_t i = 0; i < n && n <= SW_MAX_RANK; i++) {
        if (v->sequence->items[i].kind != NUMBER || v->sequence->items[i].number < 0) {
            return false;
        }
        out->dims[out->rank++] = v->sequence->items[i].number;
    }
    return v->kind == SEQUENCE;
}

/* Element `first`, and all that strides reach from it, are in the storage. */
static bool is_in_storage(const struct tensor *t)
{
    int64_t last = t->first, n = 1;
    bool is_empty = false;
    for (int d = 0; d < t->shape.rank; d++) {
        const int64_t dim = t->shape.dims[d];
        int64_t reach = 0;
        is_empty = is_empty || dim == 0;
        if (__builtin_mul_overflow(n, sw_max_i64(dim, 1), &n) ||
            (dim > 0 && __builtin_mul_overflow(dim - 1, t->strides.dims[d], &reach)) ||
            __builtin_add_overflow(last, reach, &last)) {
            return false;
        }
    }
    return is_empty || (last < t->of.elems && n <= t->of.elems); /* nothing is spread out */
}

/* (storage, first element, size, strides, requires_grad, hooks ..) */
static sw_status make_tensor(struct machine *m, const struct sequence *s)
{
    struct tensor *t = sw_arena_array(m->arena, 1, sizeof *t);
    SW_TRY_ALLOC(t, m->path);
    *t = (struct tensor){0};
    if (s->n < 4 || s->items[0].kind != STORAGE || s->items[1].kind != NUMBER ||
        s->items[1].number < 0 || !is_list(&s->items[2], &t->shape) ||
        !is_list(&s->items[3], &t->strides) || s->items[2].sequence->n != s->items[3].sequence->n) {
        return wrong(m, "these are not the arguments of a tensor");
    }
    if (s->items[2].sequence->n > SW_MAX_RANK) {
        return wrong(m, "a tensor has too many dimensions");
    }
    t->of = *s->items[0].storage;
    t->first = s->items[1].number;
    if (!is_in_storage(t)) {
        return wrong(m, "a tensor is larger than its storage");
    }
    return push(m, (struct value){.kind = TENSOR, .tensor = t});
}

/* ---- instructions ---- */

static sw_status skip_bytes(struct machine *m, int bytes)
{
    const unsigned char *at;
    return take(m, (size_t)bytes, &at);
}

static sw_status push_text(struct machine *m, int bytes)
{
    uint64_t len;
    const unsigned char *text;
    SW_TRY(take_number(m, bytes, &len));
    SW_TRY(take(m, (size_t)len, &text));
    return push(m, (struct value){.kind = TEXT, .len = (size_t)len, .text = (const char *)text});
}

static sw_status push_int(struct machine *m, int bytes)
{
    uint64_t n;
    SW_TRY(take_number(m, bytes, &n));
    const int64_t number = bytes == 4 ? (int32_t)(uint32_t)n : (int64_t)n;
    return push(m, (struct value){.kind = NUMBER, .number = number});
}

static sw_status push_long(struct machine *m, int arg)
{
    uint64_t bytes, n = 0;
    (void)arg;
    SW_TRY(take_number(m, 1, &bytes));
    if (bytes > 8) {
        return wrong(m, "a number has more than 64 bits");
    }
    SW_TRY(take_number(m, (int)bytes, &n));
    if (bytes > 0 && bytes < 8 && n >> (8 * bytes - 1)) {
        n |= UINT64_MAX << (8 * bytes);
    }
    return push(m, (struct value){.kind = NUMBER, .number = (int64_t)n});
}

static sw_status push_nothing(struct machine *m, int bytes)
{
    SW_TRY(skip_bytes(m, bytes)); /* a floating-point number: no tensor asks for one */
    return push(m, (struct value){.kind = NOTHING});
}

static sw_status push_bool(struct machine *m, int truth)
{
    return push(m, (struct value){.kind = BOOL, .number = truth});
}

static sw_status push_mark(struct machine *m, int arg)
{
    (void)arg;
    return push(m, (struct value){.kind = BEGIN});
}

static sw_status push_empty(struct machine *m, int kind)
{
    return push_sequence(m, (enum kind)kind, NULL, 0);
}

static sw_status tuple_of(struct machine *m, int n)
{
    struct value items[3];
    for (int i = n - 1; i >= 0; i--) {
        SW_TRY(pop(m, &items[i]));
    }
    return push_sequence(m, SEQUENCE, items, (size_t)n);
}

static sw_status tuple_above(struct machine *m, int arg)
{
    const struct value *items;
    size_t n;
    (void)arg;
    SW_TRY(above_mark(m, &items, &n));
    struct value *copy = sw_arena_array(m->arena, n + 1, sizeof *copy);
    SW_TRY_ALLOC(copy, m->path);
    memcpy(copy, items, n * sizeof *copy); /* the stack goes on above it */
    return push_sequence(m, SEQUENCE, copy, n);
}

/* n items, or all above the mark, go to the list or dictionary below them. */
static sw_status put_items(struct machine *m, enum kind kind, int n)
{
    struct value some[2];
    const struct value *items = some;
    size_t n_items = (size_t)n;
    struct sequence *to;
    for (int i = n - 1; i >= 0; i--) {
        SW_TRY(pop(m, &some[i]));
    }
    if (n == 0) {
        SW_TRY(above_mark(m, &items, &n_items));
    }
    SW_TRY(top(m, kind, &to));
    if (kind == DICTIONARY && n_items % 2 != 0) {
        return wrong(m, "a key has no value");
    }
    for (size_t i = 0; i < n_items; i++) {
        SW_TRY(append(m, to, items[i]));
    }
    return SW_OK;
}

static sw_status set_items(struct machine *m, int n)
{
    return put_items(m, DICTIONARY, n);
}

static sw_status append_items(struct machine *m, int n)
{
    return put_items(m, SEQUENCE, n);
}

static sw_status remember(struct machine *m, int bytes)
{
    uint64_t i = m->memo.n;
    if (bytes > 0) {
        SW_TRY(take_number(m, bytes, &i));
    }
    if (m->stack.n == 0 || i > m->memo.n) {
        return wrong(m, "it memoizes an empty stack, or out of order");
    }
    if (i == m->memo.n) {
        return append(m, &m->memo, m->stack.items[m->stack.n - 1]);
    }
    m->memo.items[i] = m->stack.items[m->stack.n - 1];
    return SW_OK;
}

static sw_status recall(struct machine *m, int bytes)
{
    uint64_t i;
    SW_TRY(take_number(m, bytes, &i));
    return i < m->memo.n ? push(m, m->memo.items[i])
                         : wrong(m, "it reads a memo entry that was never written");
}

static sw_status global(struct machine *m, int arg)
{
    const char *module, *name;
    size_t module_len, name_len;
    (void)arg;
    SW_TRY(take_line(m, &module, &module_len));
    SW_TRY(take_line(m, &name, &name_len));
    return push_name(m, module, module_len, name, name_len);
}

static sw_status stack_global(struct machine *m, int arg)
{
    struct value module, name;
    (void)arg;
    SW_TRY(pop(m, &name));
    SW_TRY(pop(m, &module));
    if (module.kind != TEXT || name.kind != TEXT) {
        return wrong(m, "a name is not a text");
    }
    return push_name(m, module.text, module.len, name.text, name.len);
}

static sw_status persistent(struct machine *m, int arg)
{
    struct value id;
    (void)arg;
    SW_TRY(pop(m, &id));
    return id.kind == SEQUENCE ? make_storage(m, id.sequence)
                               : wrong(m, "its persistent id does not name a storage");
}

static sw_status call(struct machine *m, int arg)
{
    struct value args, name;
    (void)arg;
    SW_TRY(pop(m, &args));
    SW_TRY(pop(m, &name));
    if (name.kind != NAME || args.kind != SEQUENCE || name.name->role == IS_STORAGE) {
        return wrong(m, "it calls something that is not callable");
    }
    if (name.name->role == MAKES_TENSOR) {
        return make_tensor(m, args.sequence);
    }
    if (name.name->role == MAKES_DICTIONARY && args.sequence->n == 0) {
        return push_sequence(m, DICTIONARY, NULL, 0);
    }
    if (name.name->role == MAKES_PARAMETER && args.sequence->n > 0 &&
        args.sequence->items[0].kind == TENSOR) {
        return push(m, args.sequence->items[0]);
    }
    return SW_FAIL(SW_E_FORMAT, "%s: byte %zu of its pickle: %s has the wrong arguments", m->path,
                   m->at, name.name->name);
}

/* Ignores the attributes of a state dict, which are versions. */
static sw_status build(struct machine *m, int arg)
{
    struct value state;
    struct sequence *dictionary;
    (void)arg;
    SW_TRY(pop(m, &state));
    return top(m, DICTIONARY, &dictionary);
}

static sw_status stop(struct machine *m, int arg)
{
    (void)arg;
    m->stopped = true;
    return SW_OK;
}

static const struct instruction {
    unsigned char code;
    sw_status (*run)(struct machine *m, int arg);
    int arg;
} instructions[] = {
    {0x80, skip_bytes, 1},
    {0x95, skip_bytes, 8},
    {'}', push_empty, DICTIONARY},
    {')', push_empty, SEQUENCE},
    {']', push_empty, SEQUENCE},
    {'(', push_mark, 0},
    {'t', tuple_above, 0},
    {0x85, tuple_of, 1},
    {0x86, tuple_of, 2},
    {0x87, tuple_of, 3},
    {'J', push_int, 4},
    {'K', push_int, 1},
    {'M', push_int, 2},
    {0x8a, push_long, 0},
    {'G', push_nothing, 8},
    {'N', push_nothing, 0},
    {0x88, push_bool, 1},
    {0x89, push_bool, 0},
    {'X', push_text, 4},
    {0x8c, push_text, 1},
    {'q', remember, 1},
    {'r', remember, 4},
    {0x94, remember, 0},
    {'h', recall, 1},
    {'j', recall, 4},
    {'c', global, 0},
    {0x93, stack_global, 0},
    {'Q', persistent, 0},
    {'R', call, 0},
    {'b', build, 0},
    {'s', set_items, 2},
    {'u', set_items, 0},
    {'a', append_items, 1},
    {'e', append_items, 0},
    {'.', stop, 0},
};

static sw_status run(struct machine *m)
{
    while (!m->stopped) {
        const struct instruction *found = NULL;
        const unsigned char *code;
        SW_TRY(take(m, 1, &code));
        for (size_t i = 0; i < SW_LEN(instructions) && !found; i++) {
            found = instructions[i].code == *code ? &instructions[i] : NULL;
        }
        if (!found) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s: byte %zu of its pickle: instruction 0x%02x is not allowed", m->path,
                           m->at - 1, *code);
        }
        SW_TRY(found->run(m, found->arg));
    }
    return SW_OK;
}

/* ---- the archive ---- */

static bool ends_with(const struct sw_zip_member *member, const char *end)
{
    const size_t len = strlen(end);
    return member->name_len >= len && memcmp(member->name + member->name_len - len, end, len) == 0;
}

static sw_status open_archive(struct machine *m, const void *bytes, size_t len)
{
    static const char program[] = "data.pkl", order[] = "byteorder";
    SW_TRY(sw_zip_read(m->arena, m->path, bytes, len, &m->zip));
    for (size_t i = 0; i < m->zip.n; i++) {
        const struct sw_zip_member *member = &m->zip.members[i];
        if (ends_with(member, "/data.pkl") && !m->code) {
            m->code = member->data;
            m->len = member->bytes;
            m->prefix = member->name;
            m->prefix_len = member->name_len - strlen(program);
        }
    }
    if (!m->code || m->prefix_len > 80) {
        return SW_FAIL(SW_E_FORMAT, "%s: the archive has no data.pkl", m->path);
    }
    char name[128];
    const int n = snprintf(name, sizeof name, "%.*s%s", (int)m->prefix_len, m->prefix, order);
    const struct sw_zip_member *written = sw_zip_find(&m->zip, name, (size_t)n);
    if (written && !is_text((const char *)written->data, written->bytes, "little")) {
        return SW_FAIL(SW_E_FORMAT, "%s: wanted little-endian data, got another byte order",
                       m->path);
    }
    return SW_OK;
}

/* ---- the result ---- */

static bool is_contiguous(const struct tensor *t)
{
    int64_t step = 1;
    for (int d = t->shape.rank - 1; d >= 0; d--) {
        if (t->shape.dims[d] > 1 && t->strides.dims[d] != step) {
            return false;
        }
        step *= t->shape.dims[d];
    }
    return true;
}

static void copy_elements(const struct tensor *t, size_t width, unsigned char *to)
{
    const int64_t n = sw_shape_elems(&t->shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = t->first;
        for (int d = t->shape.rank - 1; d >= 0; d--) {
            at += rest % t->shape.dims[d] * t->strides.dims[d];
            rest /= t->shape.dims[d];
        }
        memcpy(to + (size_t)i * width, t->of.member->data + (size_t)at * width, width);
    }
}

static sw_status lend(struct machine *m, const struct value *key, const struct tensor *t,
                      struct sw_safetensor *out)
{
    const size_t width = (size_t)t->of.dtype->bits / 8;
    const int64_t n = sw_shape_elems(&t->shape);
    if (key->len > m->may_name) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: tensor \"%.*s\": the names of tensors are longer than the file",
                       m->path, shown(key->len), key->text);
    }
    m->may_name -= key->len;
    char *name = sw_arena_strndup(m->arena, key->text, key->len);
    SW_TRY_ALLOC(name, m->path);
    *out = (struct sw_safetensor){.name = name,
                                  .dtype_name = t->of.dtype->name,
                                  .dtype = t->of.dtype->dtype,
                                  .shape = t->shape,
                                  .data = n > 0 ? t->of.member->data + (size_t)t->first * width
                                                : t->of.member->data,
                                  .bytes = (size_t)n * width};
    if (n == 0 || is_contiguous(t)) {
        return SW_OK;
    }
    if (out->bytes > m->may_copy) {
        return SW_FAIL(SW_E_FORMAT, "%s: tensor \"%s\": too many tensors that are not contiguous",
                       m->path, name);
    }
    m->may_copy -= out->bytes;
    unsigned char *copy = sw_arena_alloc(m->arena, out->bytes);
    SW_TRY_ALLOC(copy, m->path);
    copy_elements(t, width, copy);
    out->data = copy;
    return SW_OK;
}

static sw_status list_tensors(struct machine *m, struct sw_safetensor **out, int64_t *out_n)
{
    struct value result;
    SW_TRY(pop(m, &result));
    if (result.kind != DICTIONARY) {
        return SW_FAIL(SW_E_FORMAT, "%s: it holds no dictionary of tensors", m->path);
    }
    const struct sequence *s = result.sequence;
    struct sw_safetensor *tensors = sw_arena_array(m->arena, s->n / 2 + 1, sizeof *tensors);
    SW_TRY_ALLOC(tensors, m->path);
    for (size_t i = 0; i + 1 < s->n; i += 2) {
        const struct value *key = &s->items[i], *v = &s->items[i + 1];
        if (key->kind != TEXT || memchr(key->text, 0, key->len)) {
            return SW_FAIL(SW_E_FORMAT, "%s: the name of a tensor is not a text", m->path);
        }
        if (v->kind != TENSOR) {
            return SW_FAIL(SW_E_FORMAT, "%s: \"%.*s\" is not a tensor", m->path, shown(key->len),
                           key->text);
        }
        SW_TRY(lend(m, key, v->tensor, &tensors[i / 2]));
    }
    *out = tensors;
    *out_n = (int64_t)(s->n / 2);
    return SW_OK;
}

sw_status sw_pickle_read(struct sw_arena *arena, const char *path, const void *bytes, size_t len,
                         struct sw_safetensor **out, int64_t *out_n)
{
    struct machine m = {.arena = arena, .path = path, .may_copy = len, .may_name = len};
    SW_TRY(open_archive(&m, bytes, len));
    SW_TRY(run(&m));
    return list_tensors(&m, out, out_n);
}
