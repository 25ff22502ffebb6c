// SPDX-License-Identifier: Apache-2.0
// Parameter groups: how spillway.groups and spillway.layer_decay change the update rule of a
// parameter, selected by name. The configuration is read once, then bound to the names of a model
// so that patterns without a match are found. After that, groups can be queried.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json/json.h"
#include "optim/optim.h"

struct group {
    const struct sw_json *match; /* a string, or a list of strings */
    bool has_scale, has_betas, has_decay;
    double lr_scale, betas[2], weight_decay;
};

struct member {
    const char *name;
    const struct group *group; /* NULL = none */
    double layer_scale;
};

struct sw_update_groups {
    struct sw_arena arena;
    struct group *groups;
    int64_t n_groups;
    double layer_decay; /* 0 = none */
    struct member *members;
    int64_t n_members;
};

static const char key[] = "spillway.groups";

static bool is_number(const struct sw_json *value)
{
    return value->type == SW_JSON_INT || value->type == SW_JSON_FLOAT;
}

static sw_status read_number(const struct sw_json *value, int64_t i, double *out, bool *has)
{
    if (!is_number(value) || !(value->number >= 0) || !isfinite(value->number)) {
        return SW_FAIL(SW_E_CONFIG, "%s[%lld].%s: wanted a number, at least 0", key, (long long)i,
                       value->key);
    }
    *out = value->number;
    *has = true;
    return SW_OK;
}

static sw_status read_betas(const struct sw_json *value, int64_t i, struct group *group)
{
    const struct sw_json *first = value->type == SW_JSON_ARRAY ? value->first : NULL;
    for (int k = 0; k < 2; k++, first = first ? first->next : NULL) {
        if (value->n_children != 2 || !first || !is_number(first) || !(first->number >= 0) ||
            first->number >= 1) {
            return SW_FAIL(SW_E_CONFIG, "%s[%lld].betas: wanted two numbers below 1", key,
                           (long long)i);
        }
        group->betas[k] = first->number;
    }
    group->has_betas = true;
    return SW_OK;
}

static bool is_pattern(const struct sw_json *value)
{
    if (value->type != SW_JSON_ARRAY) {
        return value->type == SW_JSON_STRING;
    }
    for (const struct sw_json *m = value->first; m; m = m->next) {
        if (m->type != SW_JSON_STRING) {
            return false;
        }
    }
    return value->n_children > 0;
}

/* Refuses what the optimizer would ignore. */
static sw_status check_group(const struct sw_optimizer_config *optimizer, int64_t i,
                             const struct group *group)
{
    if (group->has_betas && optimizer->betas.n != 2) {
        return SW_FAIL(SW_E_CONFIG, "%s[%lld].betas: the optimizer has no betas", key,
                       (long long)i);
    }
    if (group->has_decay && optimizer->type == SW_OPTIMIZER_SPARSE_ADAM) {
        return SW_FAIL(SW_E_CONFIG, "%s[%lld].weight_decay: SparseAdam has no weight decay", key,
                       (long long)i);
    }
    return SW_OK;
}

static sw_status read_group(const struct sw_json *object, int64_t i, struct group *group)
{
    if (object->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_CONFIG, "%s[%lld] is %s, wanted an object", key, (long long)i,
                       sw_json_type_name(object->type));
    }
    for (const struct sw_json *m = object->first; m; m = m->next) {
        if (strcmp(m->key, "match") == 0 && is_pattern(m)) {
            group->match = m;
        } else if (strcmp(m->key, "match") == 0) {
            return SW_FAIL(SW_E_CONFIG, "%s[%lld].match: wanted a pattern or a list of patterns",
                           key, (long long)i);
        } else if (strcmp(m->key, "lr_scale") == 0) {
            SW_TRY(read_number(m, i, &group->lr_scale, &group->has_scale));
        } else if (strcmp(m->key, "weight_decay") == 0) {
            SW_TRY(read_number(m, i, &group->weight_decay, &group->has_decay));
        } else if (strcmp(m->key, "betas") == 0) {
            SW_TRY(read_betas(m, i, group));
        } else {
            return SW_FAIL(
                SW_E_CONFIG,
                "%s[%lld]: unknown key \"%s\"; wanted match, lr_scale, betas or weight_decay", key,
                (long long)i, m->key);
        }
    }
    return group->match ? SW_OK
                        : SW_FAIL(SW_E_CONFIG, "%s[%lld] has no \"match\"", key, (long long)i);
}

static sw_status read_groups(struct sw_update_groups *g, const struct sw_config *config)
{
    const struct sw_json *list = sw_config_value(config, key);
    if (!list || list->type == SW_JSON_NULL) {
        return SW_OK;
    }
    if (list->type != SW_JSON_ARRAY) {
        return SW_FAIL(SW_E_CONFIG, "%s is %s, wanted a list of objects", key,
                       sw_json_type_name(list->type));
    }
    g->groups = sw_arena_array(&g->arena, (size_t)list->n_children + 1, sizeof *g->groups);
    SW_TRY_ALLOC(g->groups, "groups of parameters");
    for (const struct sw_json *m = list->first; m; m = m->next) {
        struct group *group = &g->groups[g->n_groups];
        *group = (struct group){0};
        SW_TRY(read_group(m, g->n_groups, group));
        SW_TRY(check_group(&config->optimizer, g->n_groups++, group));
    }
    return SW_OK;
}

sw_status sw_update_groups_open(const struct sw_config *config, struct sw_update_groups **out)
{
    const double layer_decay = config->spillway.layer_decay;
    struct sw_update_groups *g = sw_alloc_zero("optim", 1, sizeof *g);
    SW_TRY_ALLOC(g, "groups of parameters");
    sw_arena_init(&g->arena, "optim");
    g->layer_decay = layer_decay;
    const sw_status st = read_groups(g, config);
    if (st < 0 || (g->n_groups == 0 && layer_decay == 0)) {
        sw_update_groups_close(g);
        *out = NULL;
        return st;
    }
    *out = g;
    return SW_OK;
}

void sw_update_groups_close(struct sw_update_groups *g)
{
    if (g) {
        sw_free(g->members);
        sw_arena_fini(&g->arena);
        sw_free(g);
    }
}

/* ---- layers ---- */

/* Layers whose names differ only in their number. An encoder and the decoder after it are one stack
 * each. */
struct stack {
    const char *name; /* [len] the part of the name before the number */
    size_t len;
    int64_t n_layers;
    bool begun; /* one of its layers was passed */
};

/* The first component of a name that is a number; NULL = none. */
static const char *layer_in(const char *name)
{
    for (const char *part = name; part; part = strchr(part, '.')) {
        part += *part == '.';
        const size_t digits = strspn(part, "0123456789");
        if (digits > 0 && digits < 10 && (part[digits] == '.' || part[digits] == '\0')) {
            return part;
        }
    }
    return NULL;
}

/* The stack of a name with a number; a new stack is added. */
static struct stack *find_stack(struct stack *stacks, int64_t *n, const char *name, size_t len)
{
    for (int64_t i = 0; i < *n; i++) {
        if (stacks[i].len == len && memcmp(stacks[i].name, name, len) == 0) {
            return &stacks[i];
        }
    }
    stacks[*n] = (struct stack){.name = name, .len = len};
    return &stacks[(*n)++];
}

/* Number of leading components (up to a dot) that a name shares with the layers of a stack. */
static int64_t parts_shared(const struct stack *stack, const char *name)
{
    int64_t n = 0;
    for (size_t i = 0; i < stack->len && name[i] == stack->name[i]; i++) {
        n += name[i] == '.';
    }
    return n;
}

/* Position of a parameter without a layer number. It belongs to the stacks whose names share most
 * components with it. After their first layers it counts as 0; before them, as one more than the
 * deepest stack. */
static int64_t layers_from_end(const struct stack *stacks, int64_t n, const char *name)
{
    int64_t most = 0, deepest = 0;
    bool begun = false;
    for (int64_t i = 0; i < n; i++) {
        const int64_t shared = parts_shared(&stacks[i], name);
        if (shared > most) {
            most = shared;
            deepest = 0;
            begun = false;
        }
        if (shared == most) {
            deepest = sw_max_i64(deepest, stacks[i].n_layers);
            begun = begun || stacks[i].begun;
        }
    }
    return begun ? 0 : deepest + 1;
}

/* The last layer of a stack is scaled by the factor once, the layer before it twice, and so on.
 * Parameters after the layers have the full rate. Names come in forward order. */
static sw_status scale_by_layer(struct sw_update_groups *g)
{
    struct stack *stacks = sw_arena_array(&g->arena, (size_t)g->n_members + 1, sizeof *stacks);
    int64_t n = 0;
    SW_TRY_ALLOC(stacks, "groups of parameters");
    for (int64_t i = 0; i < g->n_members; i++) {
        const char *name = g->members[i].name, *number = layer_in(name);
        if (number) {
            struct stack *stack = find_stack(stacks, &n, name, (size_t)(number - name));
            stack->n_layers = sw_max_i64(stack->n_layers, strtoll(number, NULL, 10) + 1);
        }
    }
    if (n == 0) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.layer_decay: no parameter name contains the number of a layer");
    }
    for (int64_t i = 0; i < g->n_members; i++) {
        const char *name = g->members[i].name, *number = layer_in(name);
        int64_t from_end;
        if (number) {
            struct stack *stack = find_stack(stacks, &n, name, (size_t)(number - name));
            stack->begun = true;
            from_end = stack->n_layers - strtoll(number, NULL, 10);
        } else {
            from_end = layers_from_end(stacks, n, name);
        }
        for (int64_t k = 0; k < from_end; k++) {
            g->members[i].layer_scale *= g->layer_decay;
        }
    }
    return SW_OK;
}

/* ---- names ---- */

static bool matches(const struct sw_json *match, const char *name)
{
    if (match->type == SW_JSON_STRING) {
        return sw_glob_match(match->string, name);
    }
    for (const struct sw_json *m = match->first; m; m = m->next) {
        if (sw_glob_match(m->string, name)) {
            return true;
        }
    }
    return false;
}

sw_status sw_update_groups_bind(struct sw_update_groups *g, const char *const *names, int64_t n)
{
    struct member *members = sw_alloc("optim", (size_t)(n + 1) * sizeof *members);
    SW_TRY_ALLOC(members, "groups of parameters");
    sw_free(g->members);
    g->members = members;
    g->n_members = n;
    for (int64_t i = 0; i < n; i++) {
        char *name = sw_arena_strdup(&g->arena, names[i]);
        SW_TRY_ALLOC(name, "groups of parameters");
        members[i] = (struct member){name, NULL, 1};
        for (int64_t k = g->n_groups - 1; k >= 0; k--) {
            members[i].group = matches(g->groups[k].match, name) ? &g->groups[k] : members[i].group;
        }
    }
    for (int64_t k = 0; k < g->n_groups; k++) {
        bool found = false;
        for (int64_t i = 0; i < n && !found; i++) {
            found = matches(g->groups[k].match, members[i].name);
        }
        if (!found) {
            return SW_FAIL(SW_E_CONFIG, "%s[%lld].match: no parameter has such a name", key,
                           (long long)k);
        }
    }
    return g->layer_decay > 0 ? scale_by_layer(g) : SW_OK;
}

static const struct member *find(const struct sw_update_groups *g, const char *name)
{
    for (int64_t i = 0; g && i < g->n_members; i++) {
        if (strcmp(g->members[i].name, name) == 0) {
            return &g->members[i];
        }
    }
    return NULL;
}

void sw_update_groups_apply(const struct sw_update_groups *g, const char *name,
                            struct sw_update_attrs *attrs)
{
    const struct member *m = find(g, name);
    const struct group *group = m ? m->group : NULL;
    if (!m) {
        return;
    }
    const double scale =
        group && group->has_scale ? group->lr_scale * m->layer_scale : m->layer_scale;
    if (scale != 1) {
        attrs->lr_scale = attrs->is_scaled ? attrs->lr_scale * scale : scale;
        attrs->is_scaled = true;
    }
    if (group && group->has_decay) {
        attrs->weight_decay = group->weight_decay;
    }
    if (group && group->has_betas && attrs->kind != SW_UPDATE_MUON) {
        attrs->has_betas = true;
        attrs->beta1 = group->betas[0];
        attrs->beta2 = group->betas[1];
    }
}

uint64_t sw_update_groups_hash(const struct sw_update_groups *g, uint64_t h)
{
    for (int64_t i = 0; g && i < g->n_members; i++) {
        struct sw_update_attrs a = {0};
        const struct group *group = g->members[i].group;
        sw_update_groups_apply(g, g->members[i].name, &a);
        const double values[] = {a.is_scaled,   a.lr_scale, a.has_betas,
                                 a.beta1,       a.beta2,    group && group->has_decay,
                                 a.weight_decay};
        h = sw_hash_str(h, g->members[i].name);
        h = sw_hash(h, values, sizeof values);
    }
    return h;
}
