// SPDX-License-Identifier: Apache-2.0
// Reads a plan from its JSON without building a tree. Tables map the members of each object to
// fields of a record. Members that no table has are hashed, so that they count when plans are
// compared. Memory is proportional to the records.
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

/* ---- tables of members ---- */

enum want {
    WANT_TEXT,   /* number of the word */
    WANT_COUNT,  /* an integer, at least 0 */
    WANT_AFTER,  /* such an integer, plus 1 */
    WANT_FLAG,   /* 1 if true */
    WANT_HASH,   /* any value, hashed */
    WANT_OBJECT, /* an object with further members of the same record */
    WANT_LIST    /* a list of records */
};

struct kind;
struct member {
    const char *key;
    enum want want;
    size_t at;
    bool needed;
    const struct kind *inner; /* for OBJECT and LIST */
};

struct kind {
    const struct member *members;
    int n_members;
    enum sw_dumped_lists list; /* LIST: the list of its records */
    size_t bytes;              /* size of a record */
    bool may_be_null;
};

#define MEMBERS(name) .members = (name), .n_members = SW_LEN(name)
#define OPERAND(field) offsetof(struct sw_dumped_operand, field)
#define INSTR(field) offsetof(struct sw_dumped_instr, field)
#define PROGRAM(field) offsetof(struct sw_dumped_program, field)
#define TENSOR(field) offsetof(struct sw_dumped_tensor, field)
#define PLAN(field) offsetof(struct sw_dumped, field)

static const struct member operand_members[] = {
    {"tier", WANT_TEXT, OPERAND(tier), true, NULL},
    {"offset", WANT_COUNT, OPERAND(offset), true, NULL},
    {"bytes", WANT_COUNT, OPERAND(bytes), true, NULL},
    {"room", WANT_COUNT, OPERAND(room), false, NULL},
    {"rings", WANT_HASH, OPERAND(rings), false, NULL},
    {"dtype", WANT_TEXT, OPERAND(dtype), false, NULL},
};
static const struct kind operand_kind = {MEMBERS(operand_members), .list = SW_DUMPED_OPERANDS,
                                         .bytes = sizeof(struct sw_dumped_operand),
                                         .may_be_null = true};

static const struct member wait_members[] = {
    {"compute", WANT_AFTER, INSTR(waits[SW_QUEUE_COMPUTE]), false, NULL},
    {"comm", WANT_AFTER, INSTR(waits[SW_QUEUE_COMM]), false, NULL},
    {"h2d", WANT_AFTER, INSTR(waits[SW_QUEUE_H2D]), false, NULL},
    {"d2h", WANT_AFTER, INSTR(waits[SW_QUEUE_D2H]), false, NULL},
    {"read", WANT_AFTER, INSTR(waits[SW_QUEUE_READ]), false, NULL},
    {"write", WANT_AFTER, INSTR(waits[SW_QUEUE_WRITE]), false, NULL},
    {"host", WANT_AFTER, INSTR(waits[SW_QUEUE_HOST]), false, NULL},
    {"tensor", WANT_AFTER, INSTR(waits[SW_QUEUE_TENSOR]), false, NULL},
    {"sent", WANT_AFTER, INSTR(waits[SW_QUEUE_SENT]), false, NULL},
    {"received", WANT_AFTER, INSTR(waits[SW_QUEUE_RECEIVED]), false, NULL},
};
static const struct kind waits_kind = {MEMBERS(wait_members)};

static const struct member workspace_members[] = {
    {"offset", WANT_COUNT, INSTR(workspace_offset), true, NULL},
    {"bytes", WANT_COUNT, INSTR(workspace_bytes), true, NULL},
};
static const struct kind workspace_kind = {MEMBERS(workspace_members)};

static const struct member instr_members[] = {
    {"verb", WANT_TEXT, INSTR(verb), true, NULL},
    {"number", WANT_COUNT, INSTR(number), true, NULL},
    {"name", WANT_TEXT, INSTR(name), true, NULL},
    {"queue", WANT_TEXT, INSTR(queue), true, NULL},
    {"segment", WANT_TEXT, INSTR(segment), true, NULL},
    {"phase", WANT_TEXT, INSTR(phase), false, NULL},
    {"scope", WANT_TEXT, INSTR(scope), false, NULL},
    {"tensor", WANT_TEXT, INSTR(tensor), false, NULL},
    {"micro_batch", WANT_COUNT, INSTR(micro), false, NULL},
    {"recomputed", WANT_FLAG, INSTR(recomputed), false, NULL},
    {"waits", WANT_OBJECT, 0, false, &waits_kind},
    {"retired", WANT_AFTER, INSTR(retired), false, NULL},
    {"group", WANT_COUNT, INSTR(exchange.group), false, NULL},
    {"batch", WANT_COUNT, INSTR(exchange.batch), false, NULL},
    {"loop", WANT_COUNT, INSTR(loop), false, NULL},
    {"pieces", WANT_COUNT, INSTR(pieces), false, NULL},
    {"again", WANT_AFTER, INSTR(again), false, NULL},
    {"follows", WANT_AFTER, INSTR(follows), false, NULL},
    {"blocking", WANT_FLAG, INSTR(exchange.blocking), false, NULL},
    {"whole_step", WANT_FLAG, INSTR(exchange.whole_step), false, NULL},
    {"predicate", WANT_TEXT, INSTR(predicate), false, NULL},
    {"last_only", WANT_FLAG, INSTR(last_only), false, NULL},
    {"dtype", WANT_TEXT, INSTR(dtype), false, NULL},
    {"kernel", WANT_TEXT, INSTR(kernel), false, NULL},
    {"flops", WANT_COUNT, INSTR(flops), false, NULL},
    {"bytes", WANT_COUNT, INSTR(bytes), false, NULL},
    {"rows", WANT_COUNT, INSTR(exchange.rows), false, NULL},
    {"n_out", WANT_COUNT, INSTR(n_out), false, NULL},
    {"workspace", WANT_OBJECT, 0, false, &workspace_kind},
    {"operands", WANT_LIST, INSTR(operands), true, &operand_kind},
};
static const struct kind instr_kind = {MEMBERS(instr_members), .list = SW_DUMPED_INSTRS,
                                       .bytes = sizeof(struct sw_dumped_instr)};

static const struct member program_members[] = {
    {"kind", WANT_TEXT, PROGRAM(kind), true, NULL},
    {"instructions", WANT_COUNT, PROGRAM(instructions), true, NULL},
    {"micro_batches", WANT_COUNT, PROGRAM(micro_batches), true, NULL},
    {"flops", WANT_COUNT, PROGRAM(flops), true, NULL},
    {"transient_bytes", WANT_COUNT, PROGRAM(transient_bytes), true, NULL},
    {"peak_live_bytes", WANT_COUNT, PROGRAM(peak_live_bytes), true, NULL},
    {"peak_instruction", WANT_COUNT, PROGRAM(peak_instruction), true, NULL},
    {"recomputed_blocks", WANT_COUNT, PROGRAM(recomputed_blocks), false, NULL},
    {"turns", WANT_COUNT, PROGRAM(turns), false, NULL},
    {"ahead", WANT_COUNT, PROGRAM(ahead), false, NULL},
    {"inputs", WANT_HASH, PROGRAM(inputs), false, NULL},
    {"outputs", WANT_HASH, PROGRAM(outputs), false, NULL},
    {"instruction_list", WANT_LIST, PROGRAM(instrs), true, &instr_kind},
};
static const struct kind program_kind = {MEMBERS(program_members), .list = SW_DUMPED_PROGRAMS,
                                         .bytes = sizeof(struct sw_dumped_program)};

static const struct member tensor_members[] = {
    {"name", WANT_TEXT, TENSOR(name), true, NULL},
    {"role", WANT_TEXT, TENSOR(role), true, NULL},
    {"tier", WANT_TEXT, TENSOR(tier), true, NULL},
    {"offset", WANT_COUNT, TENSOR(offset), true, NULL},
    {"bytes", WANT_COUNT, TENSOR(bytes), true, NULL},
    {"room", WANT_COUNT, TENSOR(room), false, NULL},
    {"slot_bytes", WANT_COUNT, TENSOR(slot_bytes), false, NULL},
    {"pack", WANT_TEXT, TENSOR(pack), false, NULL},
};
static const struct kind tensor_kind = {MEMBERS(tensor_members), .list = SW_DUMPED_TENSORS,
                                        .bytes = sizeof(struct sw_dumped_tensor)};

static const struct member moved_members[] = {
    {"from_host", WANT_COUNT, PLAN(moved[0][SW_TIER_HOST]), true, NULL},
    {"to_host", WANT_COUNT, PLAN(moved[1][SW_TIER_HOST]), true, NULL},
    {"from_disk", WANT_COUNT, PLAN(moved[0][SW_TIER_DISK]), true, NULL},
    {"to_disk", WANT_COUNT, PLAN(moved[1][SW_TIER_DISK]), true, NULL},
    {"disk_written_a_parameter", WANT_HASH, PLAN(ignored), false, NULL},
    {"disk_tb_in_1000_steps", WANT_HASH, PLAN(ignored), false, NULL},
};
static const struct kind moved_kind = {MEMBERS(moved_members)};

static const struct kind plan_kind;
static const struct member plan_members[] = {
    {"plan", WANT_OBJECT, 0, false, &plan_kind}, /* with --ranks, the plan is inside a table */
    {"fingerprint", WANT_TEXT, PLAN(fingerprint), true, NULL},
    {"device_bytes", WANT_COUNT, PLAN(tier_bytes[SW_TIER_DEVICE]), true, NULL},
    {"host_bytes", WANT_COUNT, PLAN(tier_bytes[SW_TIER_HOST]), true, NULL},
    {"disk_bytes", WANT_COUNT, PLAN(tier_bytes[SW_TIER_DISK]), true, NULL},
    {"parameter_bytes", WANT_COUNT, PLAN(parameter_bytes), true, NULL},
    {"state_bytes", WANT_COUNT, PLAN(state_bytes), true, NULL},
    {"gradient_bytes", WANT_COUNT, PLAN(gradient_bytes), true, NULL},
    {"persistent_bytes", WANT_COUNT, PLAN(persistent_bytes), true, NULL},
    {"staging_bytes", WANT_COUNT, PLAN(staging_bytes), false, NULL},
    {"input_bytes", WANT_COUNT, PLAN(input_bytes), false, NULL},
    {"device_budget", WANT_COUNT, PLAN(tier_budget[SW_TIER_DEVICE]), false, NULL},
    {"host_budget", WANT_COUNT, PLAN(tier_budget[SW_TIER_HOST]), false, NULL},
    {"disk_budget", WANT_COUNT, PLAN(tier_budget[SW_TIER_DISK]), false, NULL},
    {"disk_slots", WANT_COUNT, PLAN(disk_slots), true, NULL},
    {"tiled_parameters", WANT_COUNT, PLAN(tiled_parameters), true, NULL},
    {"tiles", WANT_COUNT, PLAN(tiles), true, NULL},
    {"largest_tile_bytes", WANT_COUNT, PLAN(largest_tile_bytes), true, NULL},
    {"packs", WANT_COUNT, PLAN(packs), true, NULL},
    {"packed_tensors", WANT_COUNT, PLAN(packed_tensors), true, NULL},
    {"micro_steps", WANT_COUNT, PLAN(micro_steps), false, NULL},
    {"moved_in_a_step", WANT_OBJECT, 0, false, &moved_kind},
    {"programs", WANT_LIST, PLAN(programs), true, &program_kind},
    {"persistent", WANT_LIST, PLAN(tensors), true, &tensor_kind},
    {"groups", WANT_HASH, PLAN(groups), false, NULL},
    {"pack_list", WANT_HASH, PLAN(pack_list), false, NULL},
    {"tile_list", WANT_HASH, PLAN(tile_list), false, NULL},
    {"step", WANT_HASH, PLAN(step), false, NULL},
    {"chosen", WANT_HASH, PLAN(chosen), false, NULL},
    {"prediction", WANT_HASH, PLAN(ignored), false, NULL},
};
static const struct kind plan_kind = {MEMBERS(plan_members)};

/* ---- reading ---- */

enum { MOST_LEVELS = 16 }; /* nesting depth of the tables; deeper values are hashed */

struct level { /* an open container that a table knows */
    const struct kind *kind;
    char *record;
    const struct member *member; /* the member whose value it is; NULL = the root, or an element */
    struct sw_dumped_span *span; /* LIST: its elements; NULL = an object */
    uint64_t seen;               /* bit set of members, by index in the table */
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
};

/* Refuses with the path, such as "programs[0].instruction_list[7].waits", and the reason. */
static sw_status refuse(const struct reading *r, const char *key, const char *wrong)
{
    struct sw_str path = {0};
    for (int i = 0; i < r->n_levels; i++) {
        const struct level *level = &r->levels[i];
        if (level->member) {
            sw_str_printf(&path, "%s%s", path.len > 0 ? "." : "", level->member->key);
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

/* Stores a number in its field. WANT_AFTER adds 1, so that 0 means absent. */
static sw_status take_number(struct reading *r, const struct member *member,
                             const struct sw_json *value, int64_t *field)
{
    enum { SPARE_BITS = 2 }; /* leaves room for sums and differences of a few */
    if (value->type != SW_JSON_INT || value->integer < 0) {
        return value->type == SW_JSON_INT
                   ? refuse(r, member->key, "wanted a number that is not negative")
                   : refuse_type(r, member->key, "a whole number", value);
    }
    if (value->integer > INT64_MAX >> SPARE_BITS) {
        return refuse(r, member->key, "the number is too large");
    }
    *field = value->integer + (member->want == WANT_AFTER);
    return SW_OK;
}

/* Stores a scalar in the field of its member. */
static sw_status take_scalar(struct reading *r, struct level *level, const struct member *member,
                             const struct sw_json *value)
{
    int64_t *field = (int64_t *)(void *)(level->record + member->at);
    switch (member->want) {
    case WANT_TEXT:
        if (value->type != SW_JSON_STRING || strlen(value->string) != value->string_len) {
            return refuse_type(r, member->key, "a string of characters", value);
        }
        return sw_words_find(r->words, value->string, field);
    case WANT_COUNT:
    case WANT_AFTER:
        return take_number(r, member, value, field);
    case WANT_FLAG:
        if (value->type != SW_JSON_BOOL) {
            return refuse_type(r, member->key, "true or false", value);
        }
        *field = value->boolean;
        return SW_OK;
    case WANT_HASH:
        add_hash((uint64_t *)(void *)field, SW_JSON_SCALAR, value);
        return SW_OK;
    case WANT_OBJECT:
        return refuse_type(r, member->key, "an object", value);
    case WANT_LIST:
        return refuse_type(r, member->key, "an array", value);
    }
    return SW_OK;
}

static struct level *push(struct reading *r, const struct kind *kind, char *record,
                          const struct member *member)
{
    SW_ASSERT(r->n_levels < MOST_LEVELS); /* a nested plan is refused */
    struct level *level = &r->levels[r->n_levels++];
    *level = (struct level){.kind = kind, .record = record, .member = member};
    return level;
}

/* Enters a container that is the value of a member. */
static sw_status enter_member(struct reading *r, struct level *level, const struct member *member,
                              const struct sw_json *value, int depth)
{
    char *field = level->record + member->at;
    if (member->want == WANT_HASH) {
        add_hash((uint64_t *)(void *)field, SW_JSON_OPEN, value);
        begin_hash(r, (uint64_t *)(void *)field, depth);
        return SW_OK;
    }
    if ((member->want == WANT_OBJECT) != (value->type == SW_JSON_OBJECT) ||
        member->want < WANT_HASH) {
        return member->want == WANT_OBJECT ? refuse_type(r, member->key, "an object", value)
               : member->want == WANT_LIST ? refuse_type(r, member->key, "an array", value)
               : member->want == WANT_TEXT ? refuse_type(r, member->key, "a string", value)
                                           : refuse_type(r, member->key, "a number", value);
    }
    if (member->inner == &plan_kind) {
        if (r->n_levels > 1) {
            return refuse(r, member->key, "a plan inside of a plan");
        }
        r->has_inner = true;
        r->out->rest = 0; /* discards the hash of the table around the plan */
    }
    struct level *inner = push(r, member->inner, level->record, member);
    if (member->want == WANT_LIST) {
        inner->span = (struct sw_dumped_span *)(void *)field;
        *inner->span = (struct sw_dumped_span){.first = r->out->lists[member->inner->list].n};
    }
    return SW_OK;
}

/* Looks up a key; NULL = unknown. */
static sw_status find_member(struct reading *r, struct level *level, const struct sw_json *value,
                             const struct member **out)
{
    *out = NULL;
    for (int i = 0; i < level->kind->n_members; i++) {
        const char *key = level->kind->members[i].key;
        if (strlen(key) == value->key_len && memcmp(key, value->key, value->key_len) == 0) {
            if (level->seen >> i & 1) {
                return refuse(r, value->key, "is given twice");
            }
            level->seen |= UINT64_C(1) << i;
            *out = &level->kind->members[i];
        }
    }
    return SW_OK;
}

/* Adds a record of zeros to a list. */
static sw_status add_record(struct reading *r, struct level *level, char **out)
{
    const size_t bytes = level->kind->bytes;
    struct sw_dumped_list *list = &r->out->lists[level->kind->list];
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
    if (event == SW_JSON_SCALAR && value->type == SW_JSON_NULL && level->kind->may_be_null) {
        return SW_OK;
    }
    if (event == SW_JSON_SCALAR || value->type != SW_JSON_OBJECT) {
        return refuse_type(r, "", "an object", value);
    }
    push(r, level->kind, record, NULL);
    return SW_OK;
}

/* Leaves a container. SW_E_FORMAT: a needed member is missing. */
static sw_status leave(struct reading *r)
{
    const struct level *level = &r->levels[r->n_levels - 1];
    const bool is_table = r->n_levels == 1 && r->has_inner;
    for (int i = 0; !level->span && !is_table && i < level->kind->n_members; i++) {
        if (level->kind->members[i].needed && !(level->seen >> i & 1)) {
            return refuse(r, level->kind->members[i].key,
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
        push(r, &plan_kind, (char *)r->out, NULL);
        return SW_OK;
    }
    struct level *level = &r->levels[r->n_levels - 1];
    if (level->span) {
        return take_element(r, level, event, value);
    }
    const struct member *member;
    SW_TRY(find_member(r, level, value, &member));
    if (!member) {
        const bool is_table = r->n_levels == 1 && r->has_inner;
        uint64_t *rest = is_table ? &r->out->ignored : (uint64_t *)(void *)level->record;
        add_hash(rest, event, value);
        if (event == SW_JSON_OPEN) {
            begin_hash(r, rest, depth);
        }
        return SW_OK;
    }
    return event == SW_JSON_OPEN ? enter_member(r, level, member, value, depth)
                                 : take_scalar(r, level, member, value);
}

/* Checks that the number of each instruction is its index in the list. */
static sw_status check_numbers(const struct sw_dumped *d, const char *name)
{
    for (int64_t p = 0; p < d->programs.n; p++) {
        const struct sw_dumped_span *instrs = &sw_dumped_program(d, p)->instrs;
        for (int64_t i = 0; i < instrs->n; i++) {
            const int64_t number = sw_dumped_instr(d, instrs->first + i)->number;
            if (number != i) {
                return SW_FAIL(SW_E_FORMAT,
                               "%s: programs[%lld].instruction_list[%lld].number: wanted %lld, "
                               "found %lld",
                               name, (long long)p, (long long)i, (long long)i, (long long)number);
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
    st = st < 0 ? st : check_numbers(out, source->name);
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
