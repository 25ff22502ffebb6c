// SPDX-License-Identifier: Apache-2.0
// Reads a plan from its JSON without building a tree. The tables of fields.h map the members of
// each object to fields of a record. Members that no table has are hashed, so that they count when
// plans are compared. Memory is proportional to the records.
#include "show/dumped.h"

#include <stdio.h>
#include <string.h>

/* ---- words ---- */

sw_status sw_words_open(struct sw_words *words)
{
    int64_t empty;
    *words = (struct sw_words){.n_slots = 0};
    sw_arena_init(&words->arena, "plan");
    sw_hash_key_init(&words->key);
    return sw_words_find(words, "", &empty);
}

void sw_words_close(struct sw_words *words)
{
    sw_arena_fini(&words->arena);
    sw_free(words->texts);
    sw_free(words->slots);
    *words = (struct sw_words){0};
}

/* The slot of a word, or the free slot for it. */
static int64_t slot_of(const struct sw_words *words, const char *text)
{
    const uint64_t mask = (uint64_t)words->n_slots - 1;
    uint64_t i = sw_hash_keyed(&words->key, text, strlen(text)) & mask;
    while (words->slots[i] && strcmp(words->texts[words->slots[i] - 1], text) != 0) {
        i = (i + 1) & mask;
    }
    return (int64_t)i;
}

/* false = out of memory */
static bool grow_words(struct sw_words *words)
{
    const int64_t cap = words->cap ? words->cap * 2 : 256;
    const char **texts = sw_realloc("plan", words->texts, (size_t)cap * sizeof *texts);
    if (!texts) {
        return false;
    }
    words->texts = texts;
    int64_t *slots = sw_alloc_zero("plan", (size_t)cap * 2, sizeof *slots);
    if (!slots) {
        return false;
    }
    sw_free(words->slots);
    words->slots = slots;
    words->n_slots = cap * 2;
    words->cap = cap;
    for (int64_t i = 0; i < words->n; i++) {
        slots[slot_of(words, texts[i])] = i + 1;
    }
    return true;
}

sw_status sw_words_find(struct sw_words *words, const char *text, int64_t *out)
{
    if (words->n == words->cap && !grow_words(words)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the words of a plan");
    }
    const int64_t slot = slot_of(words, text);
    if (!words->slots[slot]) {
        const char *copy = sw_arena_strdup(&words->arena, text);
        SW_TRY_ALLOC(copy, "the words of a plan");
        words->texts[words->n] = copy;
        words->slots[slot] = ++words->n;
    }
    *out = words->slots[slot] - 1;
    return SW_OK;
}

/* ---- reading ---- */

enum { MOST_LEVELS = 16 }; /* nesting depth of the tables; deeper values are hashed */
enum { INNER_PLAN = 63 };  /* bit of struct level.seen */

/* With --ranks, the plan is a member of a table of stages. */
static const struct sw_field inner_plan = {"plan", SW_FIELD_OBJECT, .fields = &sw_fields_of_plan};

struct level { /* an open container that a table knows */
    const struct sw_fields *fields;
    char *record;
    uint64_t *rest;               /* hash of the members that have no row */
    const struct sw_field *field; /* the member whose value it is; NULL = the root, or an element */
    struct sw_dumped_span *span;  /* LIST: its elements; NULL = an object */
    uint64_t seen;                /* bit set of members, by index in the table */
};

struct reading {
    const char *name;
    struct sw_words *words;
    struct sw_dumped *out;
    struct level levels[MOST_LEVELS];
    int n_levels;
    uint64_t *hash; /* hash of the container that is being hashed; NULL = none */
    int hash_depth; /* its depth */
    bool has_inner; /* a plan inside a table of stages */
    uint64_t ignored;
};

/* Refuses with the path, such as "programs[0].instruction_list[7].waits", and the reason. */
static sw_status refuse(const struct reading *r, const char *key, const char *wrong)
{
    struct sw_str path = {0};
    for (int i = 0; i < r->n_levels; i++) {
        const struct level *level = &r->levels[i];
        if (level->field) {
            sw_str_printf(&path, "%s%s", path.len > 0 ? "." : "", level->field->key);
        }
        if (level->span && (i + 1 < r->n_levels || !*key)) {
            sw_str_printf(&path, "[%lld]", (long long)level->span->n - 1);
        }
    }
    sw_str_printf(&path, "%s%s", path.len > 0 && *key ? "." : "", key);
    const sw_status st = SW_FAIL(SW_E_FORMAT, "%s: %s: %s", r->name, sw_str_text(&path), wrong);
    sw_str_fini(&path);
    return st;
}

static sw_status refuse_type(const struct reading *r, const char *key, const char *wanted,
                             const struct sw_json *found)
{
    char text[128];
    snprintf(text, sizeof text, "wanted %s, found %s", wanted, sw_json_type_name(found->type));
    return refuse(r, key, text);
}

/* Adds an event of the reader to *hash. 0 stands for "nothing added", so no sum is 0. */
static void add_hash(uint64_t *hash, enum sw_json_event event, const struct sw_json *value)
{
    uint64_t h = *hash ? *hash : SW_HASH_INIT;
    const int64_t words[] = {event, value->type, value->boolean, (int64_t)value->key_len,
                             (int64_t)value->string_len};
    h = sw_hash(h, words, sizeof words);
    h = sw_hash(h, value->key ? value->key : "", value->key_len);
    h = sw_hash(h, value->string ? value->string : "", value->string_len);
    h = value->type == SW_JSON_INT || value->type == SW_JSON_FLOAT ? sw_hash_str(h, value->raw) : h;
    *hash = h ? h : 1;
}

/* Adds all values inside the container that was just opened, at this depth, to *hash. Used for
 * containers without a table, and for WANT_HASH. */
static void begin_hash(struct reading *r, uint64_t *hash, int depth)
{
    r->hash = hash;
    r->hash_depth = depth;
}

/* Stores a number in its field. An INDEX adds 1, so that 0 means absent. */
static sw_status take_number(struct reading *r, const struct sw_field *field,
                             const struct sw_json *value, int64_t *out)
{
    enum { SPARE_BITS = 2 }; /* leaves room for sums and differences of a few */
    if (value->type != SW_JSON_INT || value->integer < 0) {
        return value->type == SW_JSON_INT
                   ? refuse(r, field->key, "wanted a number that is not negative")
                   : refuse_type(r, field->key, "a whole number", value);
    }
    if (value->integer > INT64_MAX >> SPARE_BITS) {
        return refuse(r, field->key, "the number is too large");
    }
    *out = value->integer + (field->type == SW_FIELD_INDEX);
    return SW_OK;
}

/* Stores a scalar in the field of its member. */
static sw_status take_scalar(struct reading *r, struct level *level, const struct sw_field *field,
                             const struct sw_json *value)
{
    int64_t *out = (int64_t *)(void *)(level->record + field->at);
    switch (field->type) {
    case SW_FIELD_TEXT:
        if (value->type != SW_JSON_STRING || strlen(value->string) != value->string_len) {
            return refuse_type(r, field->key, "a string of characters", value);
        }
        return sw_words_find(r->words, value->string, out);
    case SW_FIELD_COUNT:
    case SW_FIELD_NUMBER:
    case SW_FIELD_INDEX:
        return take_number(r, field, value, out);
    case SW_FIELD_FLAG:
        if (value->type != SW_JSON_BOOL) {
            return refuse_type(r, field->key, "true or false", value);
        }
        *out = value->boolean;
        return SW_OK;
    case SW_FIELD_ANY:
        add_hash((uint64_t *)(void *)out, SW_JSON_SCALAR, value);
        return SW_OK;
    case SW_FIELD_OBJECT:
        return refuse_type(r, field->key, "an object", value);
    case SW_FIELD_LIST:
        return refuse_type(r, field->key, "an array", value);
    }
    return SW_OK;
}

static struct level *push(struct reading *r, const struct sw_fields *fields, char *record,
                          const struct sw_field *field)
{
    SW_ASSERT(r->n_levels < MOST_LEVELS); /* a nested plan is refused */
    SW_ASSERT(fields->n <= INNER_PLAN);
    struct level *level = &r->levels[r->n_levels++];
    *level = (struct level){
        .fields = fields, .record = record, .rest = (uint64_t *)(void *)record, .field = field};
    return level;
}

/* Refuses a container as the value of a member that wants something else. */
static sw_status refuse_container(const struct reading *r, const struct sw_field *field,
                                  const struct sw_json *value)
{
    static const char *const wanted[] = {
        [SW_FIELD_TEXT] = "a string",      [SW_FIELD_COUNT] = "a number",
        [SW_FIELD_NUMBER] = "a number",    [SW_FIELD_INDEX] = "a number",
        [SW_FIELD_FLAG] = "true or false", [SW_FIELD_ANY] = "any value",
        [SW_FIELD_OBJECT] = "an object",   [SW_FIELD_LIST] = "an array"};
    return refuse_type(r, field->key, wanted[field->type], value);
}

/* Enters the plan in a table of stages. */
static sw_status enter_inner_plan(struct reading *r)
{
    if (r->n_levels > 1) {
        return refuse(r, inner_plan.key, "a plan inside of a plan");
    }
    r->has_inner = true;
    r->out->plan.rest = 0; /* discards the hash of the table around the plan */
    push(r, inner_plan.fields, (char *)&r->out->plan, &inner_plan);
    return SW_OK;
}

/* Enters a container that is the value of a member. */
static sw_status enter_member(struct reading *r, struct level *level, const struct sw_field *field,
                              const struct sw_json *value, int depth)
{
    char *at = level->record + field->at;
    if (field->type == SW_FIELD_ANY) {
        add_hash((uint64_t *)(void *)at, SW_JSON_OPEN, value);
        begin_hash(r, (uint64_t *)(void *)at, depth);
        return SW_OK;
    }
    if (field->type != (value->type == SW_JSON_OBJECT ? SW_FIELD_OBJECT : SW_FIELD_LIST)) {
        return refuse_container(r, field, value);
    }
    if (field == &inner_plan) {
        return enter_inner_plan(r);
    }
    uint64_t *rest = level->rest;
    struct level *inner = push(r, field->fields, at, field);
    if (field->type == SW_FIELD_LIST) {
        inner->span = (struct sw_dumped_span *)(void *)at;
        *inner->span = (struct sw_dumped_span){.first = r->out->lists[field->fields->list].n};
    } else {
        inner->rest = rest;
    }
    return SW_OK;
}

static bool has_key(const struct sw_field *field, const struct sw_json *value)
{
    return strlen(field->key) == value->key_len &&
           memcmp(field->key, value->key, value->key_len) == 0;
}

/* Looks up a key; NULL = unknown. */
static sw_status find_member(struct reading *r, struct level *level, const struct sw_json *value,
                             const struct sw_field **out)
{
    const struct sw_fields *fields = level->fields;
    int i = 0;
    while (i < fields->n && !has_key(&fields->at[i], value)) {
        i++;
    }
    *out = i < fields->n ? &fields->at[i] : NULL;
    if (i == fields->n && fields == inner_plan.fields && has_key(&inner_plan, value)) {
        *out = &inner_plan;
        i = INNER_PLAN;
    }
    if (*out && level->seen >> i & 1) {
        return refuse(r, value->key, "is given twice");
    }
    level->seen |= *out ? UINT64_C(1) << i : 0;
    return SW_OK;
}

/* Adds a record of zeros to a list. */
static sw_status add_record(struct reading *r, struct level *level, char **out)
{
    const size_t bytes = level->fields->bytes;
    struct sw_dumped_list *list = &r->out->lists[level->fields->list];
    if (list->n == list->cap) {
        const int64_t cap = list->cap ? list->cap * 2 : 64;
        void *items = sw_realloc("plan", list->items, (size_t)cap * bytes);
        SW_TRY_ALLOC(items, "a plan");
        list->items = items;
        list->cap = cap;
    }
    *out = (char *)list->items + (size_t)list->n * bytes;
    memset(*out, 0, bytes);
    list->n++;
    level->span->n++;
    return SW_OK;
}

/* Adds a record for an element of a list, and enters it. */
static sw_status take_element(struct reading *r, struct level *level, enum sw_json_event event,
                              const struct sw_json *value)
{
    char *record;
    SW_TRY(add_record(r, level, &record));
    if (event == SW_JSON_SCALAR && value->type == SW_JSON_NULL && level->fields->may_be_null) {
        return SW_OK;
    }
    if (event == SW_JSON_SCALAR || value->type != SW_JSON_OBJECT) {
        return refuse_type(r, "", "an object", value);
    }
    push(r, level->fields, record, NULL);
    return SW_OK;
}

/* Leaves a container. SW_E_FORMAT: a needed member is missing. */
static sw_status leave(struct reading *r)
{
    const struct level *level = &r->levels[r->n_levels - 1];
    const bool is_table = r->n_levels == 1 && r->has_inner;
    for (int i = 0; !level->span && !is_table && i < level->fields->n; i++) {
        if (level->fields->at[i].needed && !(level->seen >> i & 1)) {
            return refuse(r, level->fields->at[i].key,
                          "is missing; wanted what \"spillway plan --json\" writes, without "
                          "--summary");
        }
    }
    r->n_levels--;
    return SW_OK;
}

/* Takes one event of the JSON reader. Members without a field are hashed. The table around a plan
 * counts for nothing. */
static sw_status take_event(void *ctx, enum sw_json_event event, const struct sw_json *value,
                            int depth)
{
    struct reading *r = ctx;
    if (r->hash) {
        add_hash(r->hash, event, value);
        r->hash = event == SW_JSON_CLOSE && depth == r->hash_depth ? NULL : r->hash;
        return SW_OK;
    }
    if (event == SW_JSON_CLOSE) {
        return leave(r);
    }
    if (r->n_levels == 0) {
        if (value->type != SW_JSON_OBJECT) {
            return SW_FAIL(SW_E_FORMAT, "%s: wanted a plan, an object, found %s", r->name,
                           sw_json_type_name(value->type));
        }
        push(r, &sw_fields_of_plan, (char *)&r->out->plan, NULL);
        return SW_OK;
    }
    struct level *level = &r->levels[r->n_levels - 1];
    if (level->span) {
        return take_element(r, level, event, value);
    }
    const struct sw_field *field;
    SW_TRY(find_member(r, level, value, &field));
    if (!field) {
        const bool is_table = r->n_levels == 1 && r->has_inner;
        uint64_t *rest = is_table ? &r->ignored : level->rest;
        add_hash(rest, event, value);
        if (event == SW_JSON_OPEN) {
            begin_hash(r, rest, depth);
        }
        return SW_OK;
    }
    return event == SW_JSON_OPEN ? enter_member(r, level, field, value, depth)
                                 : take_scalar(r, level, field, value);
}

/* Checks that the number of each instruction is its index in the list. Adds the phase of each,
 * which the plan leaves out if it is the segment. */
static sw_status complete(const struct sw_dumped *d, const char *name)
{
    struct sw_dumped_instr *instrs = d->lists[SW_DUMPED_INSTRS].items;
    for (int64_t p = 0; p < d->plan.programs.n; p++) {
        const struct sw_dumped_span *list = &sw_dumped_program(d, p)->instruction_list;
        for (int64_t i = 0; i < list->n; i++) {
            struct sw_dumped_instr *instr = &instrs[list->first + i];
            instr->phase = instr->phase ? instr->phase : instr->segment;
            if (instr->number != i) {
                return SW_FAIL(SW_E_FORMAT,
                               "%s: programs[%lld].instruction_list[%lld].number: wanted %lld, "
                               "found %lld",
                               name, (long long)p, (long long)i, (long long)i,
                               (long long)instr->number);
            }
        }
    }
    return SW_OK;
}

sw_status sw_dumped_read(const struct sw_plan_source *source, struct sw_words *words,
                         struct sw_dumped *out)
{
    memset(out, 0, sizeof *out);
    struct reading r = {.name = source->name, .words = words, .out = out};
    sw_status st = sw_json_scan(source->name, source->text, source->len, take_event, &r);
    st = st < 0 ? st : complete(out, source->name);
    if (st < 0) {
        sw_dumped_close(out);
    }
    return st;
}

void sw_dumped_close(struct sw_dumped *dumped)
{
    for (int i = 0; i < SW_DUMPED_LISTS; i++) {
        sw_free(dumped->lists[i].items);
        dumped->lists[i] = (struct sw_dumped_list){0};
    }
}
