// SPDX-License-Identifier: Apache-2.0
// Recorded readings of ds_config.json by DeepSpeed: same effective values, same refusals. Where we
// differ on purpose, the difference must follow from a rule of docs/differences.md; there is no
// list of cases to skip.
#include "config/private.h"

#include "support/test.h"

#include <strings.h>

static const char *fixtures_root(void)
{
    const char *root = getenv("SPILLWAY_FIXTURES");
    return root ? root : "../shared/fixtures";
}

static struct sw_json_doc *open_fixture(const char *name)
{
    char path[1024];
    struct sw_json_doc *doc;
    snprintf(path, sizeof path, "%s/config/%s", fixtures_root(), name);
    return sw_json_read(path, SW_JSON_STRICT, &doc) == SW_OK ? doc : NULL;
}

static const char *text_of(const struct sw_json *object, const char *key)
{
    const struct sw_json *node = sw_json_get(object, key);
    return node && node->type == SW_JSON_STRING ? node->string : "";
}

/* ---- what is compared ---- */

struct reading {
    const struct sw_json *row; /* of texts.json */
    struct sw_config *config;  /* NULL when we refuse */
    char message[2048];        /* why */
};

static void read_row(const struct sw_json *row, struct reading *out)
{
    const struct sw_json *text = sw_json_get(row, "text");
    *out = (struct reading){.row = row};
    sw_status st = sw_config_parse("case", text->string, text->string_len, NULL, 0, &out->config);
    if (st == SW_OK) {
        st = sw_config_resolve(out->config, 1, 0);
    }
    if (st < 0) {
        snprintf(out->message, sizeof out->message, "%s", sw_error_message());
        sw_config_close(out->config);
        out->config = NULL;
    }
}

static bool says(const struct reading *r, const char *text)
{
    return strstr(r->message, text) != NULL;
}

static bool text_has(const struct reading *r, const char *needle)
{
    return strstr(text_of(r->row, "text"), needle) != NULL;
}

/* The path in "case:3: aio.block_size: ..." or "case: ..": between the place and the text. */
static void path_in_message(const struct reading *r, char *buf, size_t cap)
{
    const char *at = strstr(r->message, ": ");
    buf[0] = '\0';
    if (!at) {
        return;
    }
    at += 2;
    const char *end = strstr(at, ": ");
    if (end && strcspn(at, " \"") >= (size_t)(end - at)) {
        snprintf(buf, cap, "%.*s", (int)(end - at), at);
    }
}

/* Is the block that the message names one that DeepSpeed reads by hand, without types? */
static bool is_hand_block(const struct reading *r)
{
    char path[256];
    path_in_message(r, path, sizeof path);
    const struct config_section *section = sw_config_find_section(path);
    if (!section) {
        char *dot = strrchr(path, '.');
        if (dot) {
            *dot = '\0';
        }
        section = sw_config_find_section(dot ? path : "");
    }
    return !section || !(section->flags & SECTION_MODEL); /* optimizer.params: by hand, too */
}

/* ---- rules of docs/differences.md ---- */

enum kind { WE_REFUSE, WE_ACCEPT, WE_READ };

struct rule {
    const char *id;
    const char *row; /* the recorded row that shows it */
    enum kind kind;
    bool (*holds)(const struct reading *r,
                  const char *recorded); /* reason, or the key that differs */
};

/* The key of the first refusal in a list of them, without its block. */
static const char *refused_key(const struct reading *r)
{
    const struct sw_json *error = sw_json_get(r->row, "error");
    return error && error->type == SW_JSON_ARRAY ? sw_config_leaf(error->first->first->string) : "";
}

/* Does our table have the key as one that DeepSpeed has removed? */
static bool is_removed_key(const char *key)
{
    for (size_t i = 0; i < sw_config_n_sections(); i++) {
        const struct config_section *section = sw_config_section_at(i);
        const bool named = strcmp(sw_config_leaf(section->path), key) == 0;
        for (size_t j = 0; j < section->n_fields; j++) {
            if (section->fields[j].status == STATUS_GONE &&
                (named || strcmp(section->fields[j].key, key) == 0)) {
                return true;
            }
        }
    }
    return false;
}

static bool unknown_keys(const struct reading *r, const char *recorded)
{
    (void)recorded;
    return says(r, "unknown key \"") && is_hand_block(r);
}

/* The message is about the value of a key that we know. */
static bool types_everywhere(const struct reading *r, const char *recorded)
{
    char path[256];
    (void)recorded;
    path_in_message(r, path, sizeof path);
    return *path && !says(r, "unknown key") && is_hand_block(r) && !says(r, "\"auto\"") &&
           !says(r, "64 bits");
}

/* Recorded is the text, or that DeepSpeed alone fails; ours is what the Trainer would put there. */
static bool auto_is_filled(const struct reading *r, const char *recorded)
{
    return text_has(r, "\"auto\"") &&
           (strcmp(recorded, "fails with a Python TypeError (wrong type)") == 0 ||
            strcmp(recorded, "gradient_clipping") == 0 ||
            strncmp(recorded, "optimizer_params.", 17) == 0 ||
            strncmp(recorded, "scheduler_params.", 17) == 0);
}

static bool integers_of_64_bits(const struct reading *r, const char *recorded)
{
    (void)recorded;
    return says(r, "is an integer too large for 64 bits");
}

static bool params_need_a_type(const struct reading *r, const char *recorded)
{
    (void)recorded;
    return says(r, "params are given without a type");
}

static bool names_are_checked(const struct reading *r, const char *recorded)
{
    (void)recorded;
    return says(r, ": unknown optimizer \"") || says(r, ": unknown scheduler \"");
}

static bool offload_makes_sense(const struct reading *r, const char *recorded)
{
    (void)recorded;
    return says(r, "is required with device nvme") ||
           says(r, "\"nvme\" is supported only at stage 3") ||
           says(r, "offloading parameters is supported only at stage 3") ||
           says(r, "offloading optimizer states needs ZeRO");
}

static bool old_zero_size(const struct reading *r, const char *recorded)
{
    (void)recorded;
    return says(r, "allgather_size") && says(r, "only with \"zero_optimization\": true");
}

static bool removed_blocks(const struct reading *r, const char *recorded)
{
    return strcmp(recorded, "block of a removed feature") == 0 ||
           (strcmp(recorded, "unknown key") == 0 && is_removed_key(refused_key(r)));
}

static bool scale_fits_fp32(const struct reading *r, const char *recorded)
{
    (void)recorded;
    return says(r, "fp16.initial_scale_power") && says(r, " is too ");
}

/* Python's paths lose double and trailing slashes. */
static bool paths_as_written(const struct reading *r, const char *recorded)
{
    (void)r;
    const size_t len = strlen(recorded), end = strlen(".nvme_path");
    return len > end && strcmp(recorded + len - end, ".nvme_path") == 0 && text_has(r, "/");
}

static bool list_of_paths(const struct reading *r, const char *recorded)
{
    return strcmp(recorded, "not a path") == 0 &&
           (r->config->zero.offload_param.nvme_path.n > 0 ||
            r->config->zero.offload_optimizer.nvme_path.n > 0);
}

static bool old_aio_name(const struct reading *r, const char *recorded)
{
    return strcmp(recorded, "aio_config.intra_op_parallelism") == 0 && text_has(r, "thread_count");
}

static bool sizes_have_units(const struct reading *r, const char *recorded)
{
    const struct sw_json *kept =
        sw_json_path(sw_json_get(r->row, "differs_from_default"), "aio_config.block_size");
    return strcmp(recorded, "aio_config.block_size") == 0 && kept && kept->type == SW_JSON_STRING;
}

static bool adamw_decouples(const struct reading *r, const char *recorded)
{
    return strcmp(recorded, "optimizer_params.adam_w_mode") == 0 &&
           sw_config_choice_is(r->config, "optimizer.type", "AdamW");
}

static const struct rule rules[] = {
    {"unknown-keys", "unknown_top_level_is_ignored", WE_REFUSE, unknown_keys},
    {"auto-is-filled", "clip_auto_kept", WE_READ, auto_is_filled},
    {"auto-is-filled", "batch_auto", WE_ACCEPT, auto_is_filled},
    {"integers-of-64-bits", "bucket_bigint", WE_REFUSE, integers_of_64_bits},
    {"params-need-a-type", "optimizer_no_type", WE_REFUSE, params_need_a_type},
    {"names-are-checked", "", WE_REFUSE, names_are_checked},
    {"offload-makes-sense", "offload_optimizer_nvme_no_path", WE_REFUSE, offload_makes_sense},
    {"old-zero-size", "", WE_REFUSE, old_zero_size},
    {"removed-blocks", "elasticity_removed", WE_ACCEPT, removed_blocks},
    {"scale-fits-fp32", "", WE_REFUSE, scale_fits_fp32},
    {"paths-as-written", "", WE_READ, paths_as_written},
    {"list-of-paths", "offload_param_path_list", WE_ACCEPT, list_of_paths},
    {"adamw-decouples", "", WE_READ, adamw_decouples},
    {"sizes-have-units", "aio_string_kept", WE_READ, sizes_have_units},
    {"old-aio-name", "aio_thread_count_ignored", WE_READ, old_aio_name},
    {"types-everywhere", "batch_micro_fraction", WE_REFUSE, types_everywhere}, /* the others */
};

static const struct rule *find_rule(enum kind kind, const struct reading *r, const char *recorded)
{
    for (size_t i = 0; i < SW_LEN(rules); i++) {
        if (rules[i].kind == kind && rules[i].holds(r, recorded)) {
            return &rules[i];
        }
    }
    return NULL;
}

/* ---- recorded names to ours ---- */

static const struct {
    const char *recorded, *ours;
} names[] = {
    /* a dot at the end: the whole block */
    {"zero_config.", "zero_optimization."},
    {"float16_config.", "fp16."},
    {"bfloat16_config.", "bf16."},
    {"activation_checkpointing_config.", "activation_checkpointing."},
    {"monitor_config.", ""},
    {"flops_profiler_config.", "flops_profiler."},
    {"aio_config.", "aio."},
    {"timers_config.", "timers.throughput."},
    {"checkpoint_config.", "checkpoint."},
    {"optimizer_params.", "optimizer.params."},
    {"scheduler_params.", "scheduler.params."},
    {"zero_optimization_stage", "zero_optimization.stage"},
    {"torch_autocast_enabled", "torch_autocast.enabled"},
    {"torch_autocast_dtype", "torch_autocast.dtype"},
    {"torch_autocast_lower_precision_safe_modules", "torch_autocast.lower_precision_safe_modules"},
    {"optimizer_name", "optimizer.type"},
    {"optimizer_legacy_fusion", "optimizer.legacy_fusion"},
    {"scheduler_name", "scheduler.type"},
    {"use_data_before_expert_parallel_", "use_data_before_expert_parallelism"},
    {"load_universal_checkpoint", "checkpoint.load_universal"},
    {"use_node_local_storage", "checkpoint.use_node_local_storage"},
    {"checkpoint_parallel_write_pipeline", "checkpoint.parallel_write.pipeline_stage"},
    {"grad_accum_dtype", "data_types.grad_accum_dtype"},
    {"param_dtype", "data_types.param_dtype"},
    {"buffer_dtype", "data_types.buffer_dtype"},
    {"keep_in_fp32_modules", "data_types.keep_in_fp32_modules"},
};

static void our_name(const char *recorded, char *buf, size_t cap)
{
    for (size_t i = 0; i < SW_LEN(names); i++) {
        const size_t len = strlen(names[i].recorded);
        const bool block = names[i].recorded[len - 1] == '.';
        if (block ? strncmp(names[i].recorded, recorded, len) == 0
                  : strcmp(names[i].recorded, recorded) == 0) {
            snprintf(buf, cap, "%s%s", names[i].ours, block ? recorded + len : "");
            return;
        }
    }
    snprintf(buf, cap, "%s", recorded);
}

static bool flag(const struct sw_config *config, const char *path)
{
    const struct sw_json *node = sw_config_value(config, path);
    return node && node->type == SW_JSON_BOOL && node->boolean;
}

/* Recorded values that follow from others. Returns -1 when the name is not one of them. */
static int derived_flag(const struct sw_config *config, const char *recorded)
{
    if (strcmp(recorded, "zero_enabled") == 0) {
        return config->zero.stage > 0;
    }
    if (strcmp(recorded, "monitor_config.enabled") == 0) {
        return flag(config, "tensorboard.enabled") || flag(config, "wandb.enabled") ||
               flag(config, "csv_monitor.enabled") || flag(config, "comet.enabled");
    }
    if (strcmp(recorded, "checkpoint_tag_validation_enabled") == 0) {
        return !sw_config_choice_is(config, "checkpoint.tag_validation", "IGNORE");
    }
    if (strcmp(recorded, "checkpoint_tag_validation_fail") == 0) {
        return sw_config_choice_is(config, "checkpoint.tag_validation", "FAIL");
    }
    if (strcmp(recorded, "zero_config.offload_optimizer.pipeline") == 0) {
        return config->zero.offload_optimizer.pipeline_read ||
               config->zero.offload_optimizer.pipeline_write;
    }
    return -1;
}

/* "torch.bfloat16" and "bfloat16" are "bf16"; names of optimizers differ in case. */
static bool same_text(const char *recorded, const char *ours)
{
    static const char *const dtypes[][2] = {{"torch.float32", "fp32"},  {"torch.float16", "fp16"},
                                            {"torch.bfloat16", "bf16"}, {"float32", "fp32"},
                                            {"float16", "fp16"},        {"bfloat16", "bf16"},
                                            {"float", "fp32"},          {"half", "fp16"}};
    for (size_t i = 0; i < SW_LEN(dtypes); i++) {
        if (strcmp(recorded, dtypes[i][0]) == 0) {
            return strcmp(ours, dtypes[i][1]) == 0;
        }
    }
    return strcasecmp(recorded, ours) == 0;
}

static bool same_value(const struct sw_json *recorded, const struct sw_json *ours)
{
    if (!ours) {
        return recorded->type == SW_JSON_NULL;
    }
    if (recorded->type == SW_JSON_STRING && ours->type == SW_JSON_STRING) {
        return same_text(recorded->string, ours->string);
    }
    return sw_config_json_equal(recorded, ours);
}

struct comparison {
    const struct reading *reading;
    const struct sw_json *deprecated; /* keys that live on under another name */
    int n_compared, n_wrong;
    const struct rule *rule; /* last one that explained a difference */
};

static bool is_deprecated(const struct comparison *c, const char *path)
{
    for (const struct sw_json *key = c->deprecated->first; key; key = key->next) {
        if (strncmp(path, "zero_config.", 12) == 0 && strcmp(path + 12, key->string) == 0) {
            return true;
        }
    }
    return false;
}

static void compare_leaf(struct comparison *c, const char *path, const struct sw_json *recorded)
{
    char ours[256];
    const struct sw_config *config = c->reading->config;
    const int derived = derived_flag(config, path);
    our_name(path, ours, sizeof ours);
    const struct sw_json *value = sw_json_path(sw_json_root(config->impl->effective), ours);
    const bool params =
        strcmp(path, "optimizer_params") == 0 || strcmp(path, "scheduler_params") == 0;
    bool same = params || same_value(recorded, value);
    if (derived >= 0) {
        same = recorded->type == SW_JSON_BOOL && recorded->boolean == (derived == 1);
    }
    c->n_compared++;
    if (same || is_deprecated(c, path)) {
        return;
    }
    const struct rule *rule = find_rule(WE_READ, c->reading, path);
    if (rule) {
        c->rule = rule;
        return;
    }
    struct sw_str text = {0};
    sw_json_write(recorded, 0, &text);
    sw_str_puts(&text, ", ours ");
    if (value) {
        sw_json_write(value, 0, &text);
    }
    print_error("  %s (%s): recorded %s\n", path, ours, sw_str_text(&text));
    sw_str_fini(&text);
    c->n_wrong++;
}

static void compare_tree(struct comparison *c, const char *path, const struct sw_json *recorded)
{
    if (recorded->type != SW_JSON_OBJECT) {
        compare_leaf(c, path, recorded);
        return;
    }
    for (const struct sw_json *child = recorded->first; child; child = child->next) {
        char inner[256];
        snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", child->key);
        compare_tree(c, inner, child);
    }
}

/* changes over defaults, as recorded */
static void merge(struct sw_json_doc *doc, struct sw_json *into, const struct sw_json *changes)
{
    for (const struct sw_json *child = changes->first; child; child = child->next) {
        struct sw_json *old = sw_json_get(into, child->key);
        if (old && old->type == SW_JSON_OBJECT && child->type == SW_JSON_OBJECT) {
            merge(doc, old, child);
        } else {
            assert_non_null(sw_json_put_copy(doc, into, child->key, child));
        }
    }
}

/* ---- reasons of refusal ---- */

/* Keys of which a message must name one if the row names none. The wording is free. */
static const struct {
    const char *recorded, *keys[3];
} reasons[] = {
#define BATCH                                                                                      \
    {                                                                                              \
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"        \
    }
    {"neither train_batch_size nor train_micro_batch_size_per_gpu given", BATCH},
    {"train_batch_size not positive", BATCH},
    {"micro batch not positive", BATCH},
    {"accumulation not positive", BATCH},
    {"division by zero", BATCH},
    {"train_batch_size is not micro batch x accumulation x ranks", BATCH},
#undef BATCH
    {"fp16 and bf16 both enabled", {"fp16", "bf16"}},
    {"ratio below 1 only for stage 3", {"ratio"}},
    {"compute_grad_norm false only for stage 1 and 2", {"compute_grad_norm"}},
    {"sum of gradients is not for stage 3", {"gradient_allreduce_op"}},
    {"needs bf16_master_weights_and_grads", {"bf16_master_weights_and_grads"}},
};

static bool names_what_it_is_about(const char *recorded, const char *ours)
{
    for (size_t i = 0; i < SW_LEN(reasons); i++) {
        if (strcmp(reasons[i].recorded, recorded) == 0) {
            bool named = false;
            for (size_t k = 0; k < SW_LEN(reasons[i].keys) && reasons[i].keys[k]; k++) {
                named |= strstr(ours, reasons[i].keys[k]) != NULL;
            }
            return named;
        }
    }
    return true;
}

/* A text, or a list of [key, reason]: the message names one of the keys. */
static bool same_refusal(const struct sw_json *error, const char *ours)
{
    if (error->type == SW_JSON_STRING) {
        return names_what_it_is_about(error->string, ours);
    }
    for (const struct sw_json *item = error->first; item; item = item->next) {
        if (strstr(ours, sw_config_leaf(item->first->string))) {
            return true;
        }
    }
    return false;
}

static const char *reason_text(const struct sw_json *error)
{
    return error->type == SW_JSON_STRING ? error->string : error->first->last->string;
}

/* ---- rows ---- */

struct totals {
    int n, n_wrong;
};

static void report(struct totals *totals, const char *name, const struct rule *rule, bool wrong)
{
    totals->n++;
    totals->n_wrong += wrong;
    print_message("config/texts %-44s %s%s\n", name,
                  wrong  ? "WRONG"
                  : rule ? "differs: "
                         : "same",
                  !wrong && rule ? rule->id : "");
}

static void check_row(const struct sw_json *row, const struct sw_json *defaults,
                      struct totals *totals)
{
    struct reading r;
    read_row(row, &r);
    const struct sw_json *error = sw_json_get(row, "error");
    const struct rule *rule = NULL;
    bool wrong = false;
    if (error && !r.config) {
        wrong = !same_refusal(error, r.message);
    } else if (error) {
        rule = find_rule(WE_ACCEPT, &r, reason_text(error));
        wrong = rule == NULL;
    } else if (!r.config) {
        rule = find_rule(WE_REFUSE, &r, "");
        wrong = rule == NULL;
    } else {
        struct sw_json_doc *doc;
        assert_int_equal(sw_json_new("expected", &doc), SW_OK);
        struct sw_json *expected =
            sw_json_put_copy(doc, sw_json_root(doc), "config", sw_json_get(defaults, "config"));
        merge(doc, expected, sw_json_get(row, "differs_from_default"));
        struct comparison c = {&r, sw_json_get(defaults, "deprecated_in_zero_optimization"), 0, 0,
                               NULL};
        compare_tree(&c, "", expected);
        rule = c.rule;
        wrong = c.n_wrong > 0 || c.n_compared < 100;
        sw_json_close(doc);
    }
    if (wrong) {
        print_error("  recorded: %s\n  ours: %s\n", error ? reason_text(error) : "accepted",
                    r.config ? "accepted" : r.message);
    }
    for (size_t i = 0; i < SW_LEN(rules); i++) {
        if (strcmp(rules[i].row, text_of(row, "name")) == 0 && rule != &rules[i]) {
            print_error("  the row that shows rule %s no longer does\n", rules[i].id);
            wrong = true;
        }
    }
    report(totals, text_of(row, "name"), rule, wrong);
    sw_config_close(r.config);
}

static void texts_are_read_as_recorded(void **state)
{
    (void)state;
    struct sw_json_doc *texts = open_fixture("texts.json");
    struct sw_json_doc *defaults = open_fixture("defaults.json");
    if (!defaults) { /* a set of further cases leaves the defaults to the first */
        char path[1024];
        snprintf(path, sizeof path, "../shared/fixtures/config/defaults.json");
        sw_json_read(path, SW_JSON_STRICT, &defaults);
    }
    assert_non_null(texts);
    assert_non_null(defaults);
    struct totals totals = {0};
    const struct sw_json *cases = sw_json_get(sw_json_root(texts), "cases");
    for (const struct sw_json *row = cases->first; row; row = row->next) {
        check_row(row, sw_json_root(defaults), &totals);
    }
    print_message("%d texts, %d wrong\n", totals.n, totals.n_wrong);
    assert_true(totals.n > 0);
    assert_int_equal(totals.n_wrong, 0);
    sw_json_close(texts);
    sw_json_close(defaults);
}

/* Blocks of offload by default, which defaults.json has apart. */
static void offload_defaults_are_as_recorded(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("defaults.json");
    if (!doc) {
        skip();
    }
    const char *text =
        "{\"zero_optimization\": {\"offload_param\": {}, \"offload_optimizer\": {}}}";
    struct sw_config *config;
    assert_int_equal(sw_config_parse("case", text, strlen(text), NULL, 0, &config), SW_OK);
    const char *const blocks[] = {"offload_param", "offload_optimizer"};
    for (size_t i = 0; i < SW_LEN(blocks); i++) {
        const struct sw_json *block = sw_json_get(sw_json_root(doc), blocks[i]);
        for (const struct sw_json *key = block->first; key; key = key->next) {
            char path[128];
            snprintf(path, sizeof path, "zero_optimization.%s.%s", blocks[i], key->key);
            if (strcmp(key->key, "pipeline") != 0) { /* derived, and cannot be given */
                assert_true(same_value(key, sw_config_value(config, path)));
            }
        }
    }
    const struct sw_json *aliases = sw_json_get(sw_json_root(doc), "aliases_of_zero_optimization");
    for (const struct sw_json *alias = aliases->first; alias; alias = alias->next) {
        const struct config_field *field =
            sw_config_find_field("zero_optimization", alias->key, NULL);
        assert_non_null(field);
        assert_string_equal(field->key, alias->string);
    }
    sw_config_close(config);
    sw_json_close(doc);
}

/* ---- the batch arithmetic ---- */

static bool batch_row(const struct sw_json *row)
{
    struct sw_str text = {0};
    struct sw_config *config;
    sw_json_write(sw_json_get(row, "given"), 0, &text);
    assert_int_equal(sw_config_parse("case", text.ptr, text.len, NULL, 0, &config), SW_OK);
    bool right = true;
    int ranks = 1;
    for (const struct sw_json *want = sw_json_get(row, "ranks_1_to_8")->first; want;
         want = want->next, ranks++) {
        const sw_status st = sw_config_resolve(config, ranks, 0);
        const bool refused = want->type == SW_JSON_STRING;
        bool same = refused == (st < 0);
        if (same && refused) {
            same = names_what_it_is_about(want->string, sw_error_message());
        } else if (same) {
            const struct sw_batch_config *batch = &config->batch;
            const struct sw_json *micro = want->first->next;
            same = batch->train_batch_size == want->first->integer &&
                   batch->micro_batch_size == micro->integer &&
                   batch->accumulation_steps == want->last->integer &&
                   batch->micro_batches == want->last->integer * ranks;
        }
        if (!same) {
            print_error("  %d ranks: %s\n", ranks, st < 0 ? sw_error_message() : "accepted");
            right = false;
        }
    }
    print_message("config/batch %-60s %s\n", sw_str_text(&text), right ? "same" : "WRONG");
    sw_config_close(config);
    sw_str_fini(&text);
    return right;
}

static void batches_are_derived_as_recorded(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("batch.json");
    assert_non_null(doc);
    int n = 0, n_wrong = 0;
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "cases")->first; row;
         row = row->next, n++) {
        n_wrong += !batch_row(row);
    }
    assert_true(n > 0);
    assert_int_equal(n_wrong, 0);
    sw_json_close(doc);
}

/* ---- the elasticity block ---- */

/* The key that a message must name. */
static const struct {
    const char *recorded, *key;
} elastic_reasons[] = {
    {"world size not in the list of valid counts", "elasticity"},
    {"a micro batch is larger than max_train_batch_size", "micro_batch_sizes"},
    {"max_train_batch_size missing", "max_train_batch_size"},
    {"micro_batch_sizes missing", "micro_batch_sizes"},
    {"micro_batch_sizes is not a list", "micro_batch_sizes"},
    {"micro_batch_sizes holds a number < 1", "micro_batch_sizes"},
    {"micro_batch_sizes holds something that is not an integer", "micro_batch_sizes"},
    {"fails with a Python UFuncTypeError", "micro_batch_sizes"},
    {"min_gpus and max_gpus must be > 0", "_gpus"},
    {"min_gpus > max_gpus", "min_gpus"},
    {"min_time < 0", "min_time"},
    {"disabled", "elasticity.enabled"},
    {"no elasticity block", "elasticity.enabled"},
    {"version too new", "elasticity.version"},
    {"model parallelism needs version 0.2", "model_parallel_size"},
    {"GPUs of a node not divisible by the model-parallel size", "num_gpus_per_node"},
};

/* A reason that is not in the table passes: then a refusal is all that is asked. */
static bool same_elastic_refusal(const char *recorded, const char *ours)
{
    for (size_t i = 0; i < SW_LEN(elastic_reasons); i++) {
        if (strcmp(elastic_reasons[i].recorded, recorded) == 0) {
            return strstr(ours, elastic_reasons[i].key) != NULL;
        }
    }
    return true;
}

static bool same_elastic(const struct sw_config_elastic *ours, const struct sw_json *row)
{
    const struct sw_json *micro = sw_json_get(row, "micro_batch");
    const struct sw_json *ranks = sw_json_get(row, "valid_gpus");
    bool same = sw_json_get(row, "final_batch_size")->integer == ours->train_batch_size &&
                ranks->n_children == ours->n_ranks &&
                (micro ? micro->integer : 0) == ours->micro_batch_size;
    int i = 0;
    for (const struct sw_json *rank = ranks->first; same && rank; rank = rank->next, i++) {
        same = rank->integer == ours->ranks[i];
    }
    return same;
}

/* Rule elastic-batch-is-real: a recorded batch of none, or for nobody. */
static bool elastic_nothing(const struct sw_json *row)
{
    const struct sw_json *batch = sw_json_get(row, "final_batch_size");
    const struct sw_json *ranks = sw_json_get(row, "valid_gpus");
    return (batch && batch->integer < 1) || (ranks && ranks->n_children == 0);
}

static bool elastic_row(const struct sw_json *row)
{
    struct sw_str text = {0};
    struct sw_config *config = NULL;
    struct sw_config_elastic elastic = {0};
    const struct sw_json *error = sw_json_get(row, "error");
    sw_json_write(sw_json_get(row, "config"), 0, &text);
    sw_status st = sw_config_parse("case", text.ptr, text.len, NULL, 0, &config);
    st = st < 0 ? st : sw_config_elastic(config, sw_json_get(row, "world_size")->integer, &elastic);
    const bool right = error ? st < 0 && same_elastic_refusal(error->string, sw_error_message())
                       : elastic_nothing(row) ? st < 0
                                              : st >= 0 && same_elastic(&elastic, row);
    if (!right) {
        print_error(
            "  recorded: %s\n  ours: batch %lld, micro-batch %lld, %d counts of ranks; %s\n",
            error ? error->string : "a batch", (long long)elastic.train_batch_size,
            (long long)elastic.micro_batch_size, elastic.n_ranks,
            st < 0 ? sw_error_message() : "accepted");
    }
    print_message("config/elasticity %-60s %s\n", sw_str_text(&text), right ? "same" : "WRONG");
    sw_config_elastic_fini(&elastic);
    sw_config_close(config);
    sw_str_fini(&text);
    return right;
}

static void elastic_batches_are_as_recorded(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("elasticity.json");
    if (!doc) {
        skip(); /* a set of further cases may leave it out */
    }
    int n = 0, n_wrong = 0;
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "cases")->first; row;
         row = row->next, n++) {
        n_wrong += !elastic_row(row);
    }
    assert_true(n > 0);
    assert_int_equal(n_wrong, 0);
    sw_json_close(doc);
}

/* Each rule is written down, with the row that shows it. */
static void rules_are_documented(void **state)
{
    (void)state;
    char *page;
    size_t len;
    assert_int_equal(sw_file_read("docs/differences.md", &page, &len), SW_OK);
    for (size_t i = 0; i < SW_LEN(rules); i++) {
        char title[128];
        snprintf(title, sizeof title, "`%s`", rules[i].id);
        if (!strstr(page, title) || !strstr(page, rules[i].row)) {
            fail_msg("docs/differences.md lacks rule %s, row %s", rules[i].id, rules[i].row);
        }
    }
    sw_free(page);
}

static int begin(char **argv)
{
    (void)argv;
    struct sw_json_doc *doc = open_fixture("texts.json");
    if (!doc) {
        printf("skip: no recorded configurations in %s\n", fixtures_root());
        return TEST_EXIT_SKIPPED;
    }
    sw_json_close(doc);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(texts_are_read_as_recorded),
    cmocka_unit_test(offload_defaults_are_as_recorded),
    cmocka_unit_test(batches_are_derived_as_recorded),
    cmocka_unit_test(elastic_batches_are_as_recorded),
    cmocka_unit_test(rules_are_documented),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .begin = begin};
