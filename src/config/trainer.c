// SPDX-License-Identifier: Apache-2.0
// "auto" in a ds_config.json as transformers' Trainer means it: the value of a flag of the program,
// else the Trainer's own default. Done on the JSON tree before the tables read it, so that from
// there on these are values like any others. Flags and what else is known come as edits that begin
// with "--": "--lr=3e-5", "--hidden-size=768".
//
// As in the Trainer, a key in the file must agree with its flag, a missing block is not created,
// and sizes that follow from the model's width need a model.
#include "config/private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum trainer_fact {
    FACT_LR,
    FACT_BATCH_SIZE,
    FACT_ACCUMULATE,
    FACT_WARMUP_STEPS,
    FACT_WEIGHT_DECAY,
    FACT_CLIP,
    FACT_ADAM_BETA1,
    FACT_ADAM_BETA2,
    FACT_ADAM_EPS,
    FACT_BF16,
    FACT_FP16,
    FACT_STEPS,
    FACT_OPEN_STEPS,
    FACT_HIDDEN_SIZE,
    FACT_PLANNED_BATCH_SIZE,
    N_FACTS
};

enum fact_kind { KIND_NUMBER, KIND_COUNT, KIND_SWITCH };

/* Facts that flags may give, and the Trainer's defaults. NAN: there is no default. */
static const struct {
    const char *name;
    enum fact_kind kind;
    double fallback;
} facts[N_FACTS] = {
    [FACT_LR] = {"--lr", KIND_NUMBER, 5e-5},
    [FACT_BATCH_SIZE] = {"--batch-size", KIND_COUNT, NAN},
    [FACT_ACCUMULATE] = {"--accumulate", KIND_COUNT, 1},
    [FACT_WARMUP_STEPS] = {"--warmup-steps", KIND_NUMBER, 0},
    [FACT_WEIGHT_DECAY] = {"--weight-decay", KIND_NUMBER, 0},
    [FACT_CLIP] = {"--clip", KIND_NUMBER, 1},
    [FACT_ADAM_BETA1] = {"--adam-beta1", KIND_NUMBER, 0.9},
    [FACT_ADAM_BETA2] = {"--adam-beta2", KIND_NUMBER, 0.999},
    [FACT_ADAM_EPS] = {"--adam-eps", KIND_NUMBER, 1e-8},
    [FACT_BF16] = {"--bf16", KIND_SWITCH, 0},
    [FACT_FP16] = {"--fp16", KIND_SWITCH, 0},
    [FACT_STEPS] = {"--steps", KIND_COUNT, NAN},
    [FACT_OPEN_STEPS] = {"--open-steps", KIND_SWITCH, 0}, /* they are counted later */
    [FACT_HIDDEN_SIZE] = {"--hidden-size", KIND_COUNT, NAN},
    [FACT_PLANNED_BATCH_SIZE] = {"--planned-batch-size", KIND_COUNT, NAN},
};

struct fact {
    double value;
    int i_set; /* the edit that says it; -1 = nobody does, and value is the fallback */
};

/* A key and its wanted value. */
struct wanted {
    const char *path;
    double values[2];
    int n_values; /* 2: a list */
    bool is_switch;
    int line;          /* line of the edit, or SW_CONFIG_LINE_OF_TRAINER */
    bool is_not_added; /* a missing key is not added: its default differs, or another key decides */
};

struct filling {
    struct sw_config_impl *impl;
    struct fact facts[N_FACTS];
    bool any_auto;            /* the file leaves a value to flags */
    struct sw_str mismatches; /* "ds.json:4: optimizer.params.lr is 1e-3 and --lr says 3e-05" */
    int n_mismatches;
};

/* ---- what is known ---- */

static sw_status read_fact(struct filling *f, int i_set)
{
    const char *text = f->impl->sets[i_set], *equals = strchr(text, '=');
    for (size_t i = 0; equals && i < N_FACTS; i++) {
        const size_t len = strlen(facts[i].name);
        if ((size_t)(equals - text) != len || strncmp(text, facts[i].name, len) != 0) {
            continue;
        }
        char *end = NULL;
        const char *value = equals + 1;
        const bool on = strcmp(value, "true") == 0;
        double number = on ? 1 : 0;
        bool good = on || strcmp(value, "false") == 0;
        if (facts[i].kind != KIND_SWITCH) {
            number = strtod(value, &end);
            good = end != value && *end == '\0' && number >= 0 && isfinite(number);
        }
        if (facts[i].kind == KIND_COUNT) {
            good = good && number >= 1 && number <= 0x1p63 && number == floor(number);
        }
        if (!good) {
            return SW_FAIL(SW_E_CONFIG, "%s: wanted %s, got \"%.40s\"", facts[i].name,
                           facts[i].kind == KIND_SWITCH  ? "true or false"
                           : facts[i].kind == KIND_COUNT ? "a whole number above 0"
                                                         : "a number, at least 0",
                           value);
        }
        f->facts[i] = (struct fact){number, i_set};
        return SW_OK;
    }
    return SW_FAIL(SW_E_CONFIG, "%.80s: no such flag sets a key", text);
}

static sw_status read_facts(struct filling *f)
{
    for (size_t i = 0; i < N_FACTS; i++) {
        f->facts[i] = (struct fact){facts[i].fallback, -1};
    }
    for (int i = 0; i < f->impl->n_sets; i++) {
        if (sw_config_is_fact(f->impl->sets[i])) {
            SW_TRY(read_fact(f, i));
        }
    }
    /* one of the two precisions is not the other */
    if (f->facts[FACT_BF16].i_set < 0 && f->facts[FACT_FP16].value > 0) {
        f->facts[FACT_BF16].i_set = f->facts[FACT_FP16].i_set;
    } else if (f->facts[FACT_FP16].i_set < 0 && f->facts[FACT_BF16].value > 0) {
        f->facts[FACT_FP16].i_set = f->facts[FACT_BF16].i_set;
    }
    return SW_OK;
}

static bool is_given(const struct filling *f, enum trainer_fact fact)
{
    return f->facts[fact].i_set >= 0;
}

static int line_of(const struct filling *f, enum trainer_fact fact)
{
    return is_given(f, fact) ? line_of_set(f->facts[fact].i_set) : SW_CONFIG_LINE_OF_TRAINER;
}

/* ---- one key ---- */

static sw_status put(struct filling *f, struct sw_json *parent, const char *key,
                     const struct wanted *w)
{
    struct sw_json_doc *doc = f->impl->given;
    struct sw_json *node = NULL;
    if (w->n_values == 2) {
        node = sw_json_put(doc, parent, key, SW_JSON_ARRAY);
        for (int i = 0; node && i < 2; i++) {
            if (!sw_json_put_f64(doc, node, NULL, w->values[i])) {
                node = NULL;
            }
        }
    } else if (w->is_switch) {
        node = sw_json_put_bool(doc, parent, key, w->values[0] > 0);
    } else if (w->values[0] == floor(w->values[0]) && w->values[0] < 0x1p53) {
        node = sw_json_put_i64(doc, parent, key, (int64_t)w->values[0]);
    } else {
        node = sw_json_put_f64(doc, parent, key, w->values[0]);
    }
    SW_TRY_ALLOC(node, "the configuration");
    sw_config_mark(node, w->line);
    return SW_OK;
}

static bool is_number(const struct sw_json *node)
{
    return node->type == SW_JSON_INT || node->type == SW_JSON_FLOAT;
}

/* Whether a node has the wanted value. Nodes of other types count as equal; the tables refuse them
 * later. */
static bool says_the_same(const struct sw_json *node, const struct wanted *w)
{
    bool on;
    if (w->is_switch) {
        return sw_config_to_bool(node, true, &on) || on == (w->values[0] > 0);
    }
    if (node->type == SW_JSON_ARRAY && w->n_values == 2 && node->n_children == 2) {
        const struct sw_json *second = node->first->next;
        return is_number(node->first) && node->first->number == w->values[0] && is_number(second) &&
               second->number == w->values[1];
    }
    return !is_number(node) || (w->n_values == 1 && node->number == w->values[0]);
}

static void add_mismatch(struct filling *f, const struct sw_json *node, const struct wanted *w)
{
    char where[512], flag[128];
    const char *set = f->impl->sets[-w->line - 1];
    snprintf(flag, sizeof flag, "%.*s", (int)strcspn(set, "="), set);
    sw_config_where(f->impl, node->line, where, sizeof where);
    sw_str_printf(&f->mismatches, "%s%s: %s is ", f->n_mismatches++ > 0 ? "; " : "", where,
                  w->path);
    sw_json_write(node, 0, &f->mismatches);
    sw_str_printf(&f->mismatches, " and %s says ", flag);
    for (int i = 0; i < w->n_values && !w->is_switch; i++) {
        sw_str_puts(&f->mismatches, w->n_values == 1 ? "" : i == 0 ? "[" : ", ");
        sw_json_write_f64(w->values[i], &f->mismatches);
        sw_str_puts(&f->mismatches, w->n_values == 2 && i == 1 ? "]" : "");
    }
    if (w->is_switch) {
        sw_str_puts(&f->mismatches, w->values[0] > 0 ? "true" : "false");
    }
}

/* The block that has the key; NULL = there is none. make: a missing block is created, but never one
 * at the top. */
static struct sw_json *find_parent(struct filling *f, const struct wanted *w, bool make)
{
    char block[64];
    struct sw_json *parent = sw_json_root(f->impl->given);
    const char *at = w->path;
    for (const char *dot; (dot = strchr(at, '.')); at = dot + 1) {
        snprintf(block, sizeof block, "%.*s", (int)(dot - at), at);
        struct sw_json *next = sw_json_get(parent, block);
        if (!next && make && at != w->path) {
            next = sw_json_put(f->impl->given, parent, block, SW_JSON_OBJECT);
            if (next) {
                sw_config_mark(next, w->line);
            }
        }
        if (!next || next->type != SW_JSON_OBJECT) {
            return NULL;
        }
        parent = next;
    }
    return parent;
}

/* Replaces "auto" by the wanted value, and adds a missing key that a flag gives. Another value
 * must agree with the flag, else it is a mismatch. A flag whose block the file lacks is idle. */
static sw_status fill(struct filling *f, const struct wanted *w)
{
    const bool given = w->line != SW_CONFIG_LINE_OF_TRAINER;
    const bool may_add = given && !w->is_not_added && !(w->is_switch && w->values[0] <= 0);
    struct sw_json *parent = find_parent(f, w, may_add);
    const char *key = sw_config_leaf(w->path);
    if (!parent) {
        if (may_add) {
            const char *set = f->impl->sets[-w->line - 1];
            SW_ASSERT((size_t)f->impl->n_idle < SW_LEN(f->impl->idle));
            struct config_idle *idle = &f->impl->idle[f->impl->n_idle++];
            *idle = (struct config_idle){set, w->path};
        }
        return SW_OK;
    }
    const struct sw_json *node = sw_json_get(parent, key);
    if (sw_config_says_auto(node) || (!node && may_add)) {
        return put(f, parent, key, w);
    }
    if (node && given && node->type != SW_JSON_NULL && !says_the_same(node, w)) {
        add_mismatch(f, node, w);
    }
    return SW_OK;
}

static sw_status fill_fact(struct filling *f, const char *path, enum trainer_fact fact,
                           bool is_not_added)
{
    return fill(f, &(struct wanted){.path = path,
                                    .values = {f->facts[fact].value},
                                    .n_values = 1,
                                    .is_switch = facts[fact].kind == KIND_SWITCH,
                                    .line = line_of(f, fact),
                                    .is_not_added = is_not_added});
}

/* ---- the batch ---- */

static bool has_number(const struct filling *f, const char *key)
{
    const struct sw_json *node = sw_json_get(sw_json_root(f->impl->given), key);
    return node && node->type == SW_JSON_INT;
}

static void drop_auto(struct filling *f, const char *key)
{
    struct sw_json *root = sw_json_root(f->impl->given), *node = sw_json_get(root, key);
    if (sw_config_says_auto(node)) {
        sw_json_remove(root, node);
    }
}

/* train_batch_size follows from the others; where it is given, they follow from it. */
static sw_status fill_batch(struct filling *f)
{
    static const char *const train = "train_batch_size", *const steps =
                                                             "gradient_accumulation_steps";
    static const char *const micro = "train_micro_batch_size_per_gpu";
    struct sw_config_impl *impl = f->impl;
    struct sw_json *root = sw_json_root(impl->given), *node = sw_json_get(root, micro);
    drop_auto(f, train);
    if (is_given(f, FACT_BATCH_SIZE)) {
        SW_TRY(fill_fact(f, micro, FACT_BATCH_SIZE, false));
    } else if (sw_config_says_auto(node) && is_given(f, FACT_PLANNED_BATCH_SIZE)) {
        SW_TRY(put(f, root, micro,
                   &(struct wanted){.values = {f->facts[FACT_PLANNED_BATCH_SIZE].value},
                                    .n_values = 1,
                                    .line = SW_CONFIG_LINE_OF_PLAN}));
    } else if (sw_config_says_auto(node)) {
        impl->micro_batch_line = node->line;
        impl->plans_micro_batch = true;
        sw_json_remove(root, node);
    }
    if (has_number(f, train) && !is_given(f, FACT_ACCUMULATE)) {
        drop_auto(f, steps);
        return SW_OK;
    }
    return fill_fact(f, steps, FACT_ACCUMULATE, false);
}

/* ---- optimizer and scheduler ---- */

static sw_status fill_betas(struct filling *f)
{
    const struct wanted w = {
        .path = "optimizer.params.betas",
        .values = {f->facts[FACT_ADAM_BETA1].value, f->facts[FACT_ADAM_BETA2].value},
        .n_values = 2,
        .line = line_of(f, is_given(f, FACT_ADAM_BETA1) ? FACT_ADAM_BETA1 : FACT_ADAM_BETA2)};
    return fill(f, &w);
}

static sw_status fill_optimizer(struct filling *f)
{
    SW_TRY(fill_fact(f, "optimizer.params.lr", FACT_LR, false));
    SW_TRY(fill_betas(f));
    SW_TRY(fill_fact(f, "optimizer.params.eps", FACT_ADAM_EPS, false));
    return fill_fact(f, "optimizer.params.weight_decay", FACT_WEIGHT_DECAY, false);
}

/* The highest rate is the optimizer's, and without a key of its own follows it anyway. */
static sw_status fill_warmup_max(struct filling *f)
{
    const struct sw_json *lr = sw_json_path(sw_json_root(f->impl->given), "optimizer.params.lr");
    struct wanted w = {.path = "scheduler.params.warmup_max_lr",
                       .values = {f->facts[FACT_LR].value},
                       .n_values = 1,
                       .line = line_of(f, FACT_LR),
                       .is_not_added = true};
    if (!is_given(f, FACT_LR) && lr && is_number(lr)) {
        w.values[0] = lr->number;
    }
    return fill(f, &w);
}

/* Handles a missing --steps. Commands that only read weights do not need it. Training needs it. */
static void leave_open(struct filling *f, const char *path, const struct sw_json *node)
{
    if (is_given(f, FACT_OPEN_STEPS)) {
        return;
    }
    f->impl->open_steps = path;
    f->impl->open_steps_line = node ? node->line : 0;
}

/* The schedule is one of the Trainer's, not DeepSpeed's. */
static bool is_trainers_schedule(const struct filling *f)
{
    const struct sw_json *type = sw_json_path(sw_json_root(f->impl->given), "scheduler.type");
    const struct config_variant *variant =
        type && type->type == SW_JSON_STRING
            ? sw_config_find_variant(sw_config_schedulers, sw_config_n_schedulers, type->string)
            : NULL;
    return variant && variant->type >= SW_SCHEDULER_CONSTANT;
}

/* Below 1 it is a share of all steps. DeepSpeed's schedules warm up for one step at least. */
static sw_status fill_warmup_steps(struct filling *f)
{
    static const char *const path = "scheduler.params.warmup_num_steps";
    double n = f->facts[FACT_WARMUP_STEPS].value;
    const struct sw_json *params = sw_json_path(sw_json_root(f->impl->given), "scheduler.params");
    if (n > 0 && n < 1 && params) {
        if (!is_given(f, FACT_STEPS)) {
            leave_open(f, path, sw_json_get(params, "warmup_num_steps"));
        }
        n = is_given(f, FACT_STEPS) ? ceil(n * f->facts[FACT_STEPS].value) : 1;
    }
    return fill(f, &(struct wanted){.path = path,
                                    .values = {fmax(floor(n), is_trainers_schedule(f) ? 0 : 1)},
                                    .n_values = 1,
                                    .line = line_of(f, FACT_WARMUP_STEPS)});
}

/* A training always runs --steps steps. The file must agree if it leaves values to flags. Otherwise
 * it may describe a longer training. */
static sw_status fill_total_steps(struct filling *f)
{
    static const char *const path = "scheduler.params.total_num_steps";
    const struct sw_json *node = sw_json_path(sw_json_root(f->impl->given), path);
    if (is_given(f, FACT_STEPS)) {
        return f->any_auto || sw_config_says_auto(node) ? fill_fact(f, path, FACT_STEPS, true)
                                                        : SW_OK;
    }
    if (!sw_config_says_auto(node)) {
        return SW_OK;
    }
    leave_open(f, path, node);
    return fill(f,
                &(struct wanted){
                    .path = path, .values = {2}, .n_values = 1, .line = SW_CONFIG_LINE_OF_TRAINER});
}

sw_status sw_config_check_steps(const struct sw_config *config)
{
    const struct sw_config_impl *impl = config->impl;
    return !impl->open_steps
               ? SW_OK
               : sw_config_refuse(
                     impl, impl->open_steps_line, impl->open_steps,
                     "\"auto\" needs the number of steps of the training; give --steps");
}

static sw_status fill_scheduler(struct filling *f)
{
    SW_TRY(fill(f, &(struct wanted){.path = "scheduler.params.warmup_min_lr",
                                    .n_values = 1,
                                    .line = SW_CONFIG_LINE_OF_TRAINER}));
    SW_TRY(fill_warmup_max(f));
    SW_TRY(fill_warmup_steps(f));
    return fill_total_steps(f);
}

/* ---- sizes that follow from the model's width ---- */

static bool is_stage_3(const struct filling *f)
{
    const struct sw_json *stage =
        sw_json_path(sw_json_root(f->impl->given), "zero_optimization.stage");
    return stage && stage->type == SW_JSON_INT && stage->integer == 3;
}

static sw_status fill_sizes(struct filling *f)
{
    const double hidden = f->facts[FACT_HIDDEN_SIZE].value;
    const struct {
        const char *path;
        double value;
        bool at_stage_3;
    } sizes[] = {
        {"zero_optimization.reduce_bucket_size", hidden * hidden, false},
        {"zero_optimization.stage3_prefetch_bucket_size", floor(0.9 * hidden * hidden), true},
        {"zero_optimization.stage3_param_persistence_threshold", 10 * hidden, true},
    };
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        const struct sw_json *node = sw_json_path(sw_json_root(f->impl->given), sizes[i].path);
        if (!sw_config_says_auto(node)) {
            continue;
        }
        if (!is_given(f, FACT_HIDDEN_SIZE)) { /* a typed block: its default, until it is known */
            f->impl->sizes[f->impl->n_sizes++] =
                (struct config_open_size){sizes[i].path, node->line};
        } else if (!sizes[i].at_stage_3 || is_stage_3(f)) {
            SW_TRY(fill(f, &(struct wanted){.path = sizes[i].path,
                                            .values = {sizes[i].value},
                                            .n_values = 1,
                                            .line = SW_CONFIG_LINE_OF_TRAINER}));
        }
    }
    return SW_OK;
}

void sw_config_print_warnings(const struct sw_config *config, struct sw_str *out)
{
    for (int i = 0; i < config->impl->n_idle; i++) {
        const struct config_idle *idle = &config->impl->idle[i];
        sw_str_printf(out, "%.*s has no effect: %s has no block \"%.*s\"\n",
                      (int)strcspn(idle->set, "="), idle->set, config->impl->name,
                      (int)strcspn(idle->path, "."), idle->path);
    }
}

void sw_config_warn(const struct sw_config *config)
{
    struct sw_str text = {0};
    sw_config_print_warnings(config, &text);
    for (const char *line = sw_str_text(&text); *line; line += strcspn(line, "\n") + 1) {
        sw_log(SW_LOG_WARN, "%.*s", (int)strcspn(line, "\n"), line);
    }
    sw_str_fini(&text);
}

bool sw_config_wants_hidden_size(const struct sw_config *config)
{
    return config->impl->n_sizes > 0;
}

sw_status sw_config_refuse_sizes(const struct sw_config *config, const char *why)
{
    const struct sw_config_impl *impl = config->impl;
    struct sw_str keys = {0};
    for (int i = 1; i < impl->n_sizes; i++) {
        sw_str_printf(&keys, "%s%s", i > 1 ? ", " : " (so does that of ", impl->sizes[i].path);
    }
    sw_str_puts(&keys, impl->n_sizes > 1 ? ")" : "");
    const sw_status st =
        sw_config_refuse(impl, impl->sizes[0].line, impl->sizes[0].path,
                         "\"auto\" needs the model's hidden size%s, but %s; give a number instead",
                         sw_str_text(&keys), why);
    sw_str_fini(&keys);
    return st;
}

/* ---- the whole ---- */

/* Whether "auto" is a default that depends on what is trained (set.c), and not the user's. */
static bool is_of_default(const struct sw_config_impl *impl, const struct sw_json *node)
{
    const bool is_set = node->line < 0 && node->line >= line_of_set(impl->n_sets - 1);
    const char *equals = is_set ? strchr(impl->sets[-node->line - 1], '=') : NULL;
    return equals && equals > impl->sets[-node->line - 1] && equals[-1] == ':';
}

/* Our own block has "auto" of its own. */
static bool has_auto(const struct sw_config_impl *impl, const struct sw_json *node)
{
    for (const struct sw_json *child = node->first; child; child = child->next) {
        const bool ours = child->key && strcmp(child->key, "spillway") == 0;
        if (!ours && ((sw_config_says_auto(child) && !is_of_default(impl, child)) ||
                      has_auto(impl, child))) {
            return true;
        }
    }
    return false;
}

bool sw_config_is_fact(const char *set)
{
    return strncmp(set, "--", 2) == 0;
}

sw_status sw_config_fill_auto(struct sw_config_impl *impl)
{
    struct filling f = {.impl = impl, .any_auto = has_auto(impl, sw_json_root(impl->given))};
    sw_status st = SW_OK;
    SW_TRY_OR(done, read_facts(&f));
    SW_TRY_OR(done, fill_batch(&f));
    SW_TRY_OR(done, fill_fact(&f, "gradient_clipping", FACT_CLIP, false));
    SW_TRY_OR(done, fill_optimizer(&f));
    SW_TRY_OR(done, fill_scheduler(&f));
    SW_TRY_OR(done, fill_fact(&f, "fp16.enabled", FACT_FP16, false));
    SW_TRY_OR(done, fill_fact(&f, "bf16.enabled", FACT_BF16, false));
    SW_TRY_OR(done, fill_sizes(&f));
    if (f.n_mismatches > 0) {
        st = SW_FAIL(SW_E_CONFIG, "%s", sw_str_text(&f.mismatches));
    }
done:
    sw_str_fini(&f.mismatches);
    return st;
}
