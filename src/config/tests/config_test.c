// SPDX-License-Identifier: Apache-2.0
// The configuration reader: every row of the tables, messages, sources, --set, combinations, batch
// arithmetic as a property, round trips, and the pages made from the tables.
#include "config/private.h"

#include <glob.h>
#include <unistd.h>

#include "spillway/config.h"
#include "support/test.h"

static struct sw_config *must(const char *text, const char *const *sets, int n_sets)
{
    struct sw_config *config = NULL;
    if (sw_config_parse("ds.json", text, strlen(text), sets, n_sets, &config) < 0) {
        fail_msg("%s: %s", text, sw_error_message());
    }
    return config;
}

/* Refused, with every one of the words in the message. */
static void refused(const char *text, const char *set, const char *const *words)
{
    struct sw_config *config;
    const sw_status st = sw_config_parse("ds.json", text, strlen(text), &set, set ? 1 : 0, &config);
    if (st >= 0) {
        fail_msg("%s was accepted", text);
    }
    for (; *words; words++) {
        if (!strstr(sw_error_message(), *words)) {
            fail_msg("\"%s\" lacks \"%s\"", sw_error_message(), *words);
        }
    }
}

#define REFUSED(text, ...) refused(text, NULL, (const char *const[]){__VA_ARGS__, NULL})
#define REFUSED_SET(text, set, ...) refused(text, set, (const char *const[]){__VA_ARGS__, NULL})

/* ---- the tables ---- */

/* Each row: keys are unique in their block, defaults convert, needless and later rows have a
 * why. */
static void rows_are_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < sw_config_n_sections(); i++) {
        const struct config_section *section = sw_config_section_at(i);
        for (size_t j = 0; j < section->n_fields; j++) {
            const struct config_field *field = &section->fields[j];
            const struct config_section *found;
            assert_ptr_equal(sw_config_find_field(section->path, field->key, &found), field);
            assert_non_null(field->help);
            assert_non_null(field->default_json);
            assert_true(field->status != STATUS_NEEDLESS || field->why);
            assert_true(field->offset < sizeof(struct sw_config));
            const bool quiet = field->status == STATUS_GONE || field->flags & FIELD_QUIET;
            assert_true(!quiet || field->offset == NOWHERE);
            struct sw_json_doc *doc;
            assert_int_equal(sw_json_parse(field->key, field->default_json,
                                           strlen(field->default_json), SW_JSON_STRICT, &doc),
                             SW_OK);
            sw_json_close(doc);
            if (field->alias) {
                assert_ptr_equal(sw_config_find_field(section->path, field->alias, NULL), field);
            }
        }
    }
    /* every block, the quiet ones too, given empty: all defaults go through the converter */
    struct sw_str text = {0};
    sw_str_puts(&text, "{\"timers\": {\"throughput\": {}}");
    for (size_t i = 0; i < sw_config_n_sections(); i++) {
        const char *path = sw_config_section_at(i)->path;
        if (sw_config_is_child("", path) && strcmp(path, "timers") != 0) {
            sw_str_printf(&text, ", \"%s\": {}", path);
        }
    }
    sw_str_puts(&text, "}");
    sw_config_close(must(text.ptr, NULL, 0));
    sw_str_fini(&text);
}

/* The given types by themselves, with only what they require. */
static void optimizers_and_schedulers_have_defaults(void **state)
{
    (void)state;
    char text[256];
    for (size_t i = 0; i < sw_config_n_optimizers; i++) {
        snprintf(text, sizeof text, "{\"optimizer\": {\"type\": \"%s\"}}",
                 sw_config_optimizers[i].name);
        struct sw_config *config = must(text, NULL, 0);
        assert_string_equal(config->optimizer.name, sw_config_optimizers[i].name);
        assert_int_equal(sw_config_check_built(config),
                         sw_config_optimizers[i].built ? SW_OK : SW_E_UNSUP);
        sw_config_close(config);
    }
    for (size_t i = 0; i < sw_config_n_schedulers; i++) {
        const int type = sw_config_schedulers[i].type;
        snprintf(text, sizeof text, "{\"scheduler\": {\"type\": \"%s\", \"params\": {%s}}}",
                 sw_config_schedulers[i].name,
                 type == SW_SCHEDULER_WARMUP_DECAY || type == SW_SCHEDULER_WARMUP_COSINE ||
                         type == SW_SCHEDULER_LINEAR || type == SW_SCHEDULER_COSINE
                     ? "\"total_num_steps\": 9"
                 : type == SW_SCHEDULER_ONE_CYCLE ? "\"cycle_min_lr\": 0.1, \"cycle_max_lr\": 1"
                                                  : "");
        struct sw_config *config = must(text, NULL, 0);
        assert_int_equal((int)config->scheduler.type, type);
        sw_config_close(config);
    }
}

/* ---- messages ---- */

static void unknown_keys_name_file_line_and_nearest(void **state)
{
    (void)state;
    REFUSED("{\n\"train_batch_size\": 8,\n\"tran_batch_size\": 3}", "ds.json:3", "unknown key",
            "\"tran_batch_size\"", "train_batch_size");
    REFUSED("{\"zero_optimization\": {\n\n\"reduce_bukket_size\": 5}}", "ds.json:3",
            "zero_optimization", "\"reduce_bucket_size\"");
    REFUSED("{\"aio\": {\"blocksize\": 5}}", "aio", "\"block_size\"");
    REFUSED("{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"learning_rate\": 1}}}",
            "optimizer.params", "unknown key");
    REFUSED("{\"optimizer\": {\"type\": \"Adm\"}}", "optimizer.type", "\"Adam\"");
    REFUSED("{\"scheduler\": {\"type\": \"WarmUpLr2\"}}", "scheduler.type", "\"WarmupLR\"");
    REFUSED("{\"spillway\": {\"micro_batch\": 2}}", "spillway", "\"micro_batches\"");
    REFUSED("{\"a\": {\"b\": 1, \"b\": 2}}", "duplicate");
}

static void types_and_ranges(void **state)
{
    (void)state;
    REFUSED("{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": -1}}}",
            "optimizer.params.lr", "-1", "wanted at least 0");
    REFUSED("{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9]}}}",
            "optimizer.params.betas", "two numbers");
    REFUSED("{\"zero_optimization\": {\"stage\": 4}}", "zero_optimization.stage", "0 to 3");
    REFUSED("{\"spillway\": {\"seed\": \"auto\"}}", "spillway.seed", "not supported for this key");
    REFUSED("{\"spillway\": {\"device_memory\": \"12 parsecs\"}}", "spillway.device_memory",
            "bytes");
    REFUSED("{\"spillway\": {\"loss\": \"token\"}}", "spillway.loss", "\"microbatch\", \"tokens\"");
    REFUSED("{\"tensorboard\": false}", "tensorboard", "wanted an object, got a boolean");
    REFUSED("[1]", "ds.json", "wanted an object, got an array");
    REFUSED("{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}", "ds.json:1",
            "bf16.enabled", "both");
    REFUSED("{\"spillway\": {\"reduce\": \"boundary\"}, \"zero_optimization\": {\"stage\": 2}}",
            "spillway.reduce");
    REFUSED("{\"spillway\": {\"disk_slots\": 3}}", "disk_slots", "2");
    REFUSED("{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"nesterov\": true}}}", "momentum");
}

static void sizes_are_bytes_or_have_a_unit(void **state)
{
    (void)state;
    struct sw_config *c =
        must("{\"spillway\": {\"device_memory\": \"300M\", \"host_memory\": \"2G\", "
             "\"nvme_space\": \"1T\", \"tile_bytes\": \"64K\", \"transfer_bytes\": 4096}, "
             "\"aio\": {\"block_size\": \"1M\"}}",
             NULL, 0);
    assert_int_equal(c->spillway.device_memory_bytes, 300 << 20);
    assert_int_equal(c->spillway.host_memory_bytes, INT64_C(2) << 30);
    assert_int_equal(c->spillway.nvme_space_bytes, INT64_C(1) << 40);
    assert_int_equal(c->spillway.tile_bytes, 64 << 10);
    assert_int_equal(c->spillway.transfer_bytes, 4096);
    assert_int_equal(c->aio.block_size_bytes, 1 << 20);
    sw_config_close(c);
    REFUSED("{\"spillway\": {\n\"device_memory\": \"lots\"}}", "ds.json:2",
            "spillway.device_memory", "\"lots\"", "\"300M\"");
    REFUSED("{\"spillway\": {\"host_memory\": true}}", "host_memory", "\"300M\"");
    REFUSED("{\"spillway\": {\"host_memory\": 1.5}}", "host_memory", "\"300M\"");
    REFUSED("{\"spillway\": {\"tile_bytes\": \"-1K\"}}", "tile_bytes", "wanted at least 0");
    REFUSED("{\"spillway\": {\"nvme_space\": \"9999999999G\"}}", "nvme_space", "64 bits");
    REFUSED("{\"aio\": {\"block_size\": \"2G\"}}", "aio.block_size", "too large");
    /* a flag may say the same in other words */
    static const char *const same[] = {"spillway.device_memory?=536870912"};
    c = must("{\"spillway\": {\"device_memory\": \"512MiB\"}}", same, 1);
    assert_int_equal(c->spillway.device_memory_bytes, 512 << 20);
    sw_config_close(c);
    REFUSED_SET("{\"spillway\": {\"device_memory\": \"512MiB\"}}", "spillway.device_memory?=512MB",
                "spillway.device_memory", "512MB");
}

/* Flags write numbers with all digits, and texts with their quotes. */
static void a_flag_may_say_what_the_file_says(void **state)
{
    (void)state;
    static const char *const same[] = {"spillway.label_smoothing?=0.10000000000000001",
                                       "spillway.device?=\"cpu\"", "spillway.quantize?=nf4"};
    struct sw_config *c = must("{\"spillway\": {\"label_smoothing\": 0.1, \"device\": \"cpu\", "
                               "\"quantize\": \"nf4\"}}",
                               same, 3);
    assert_true(c->spillway.label_smoothing == 0.1);
    sw_config_close(c);
    REFUSED_SET("{\"spillway\": {\"label_smoothing\": 0.1}}", "spillway.label_smoothing?=0.2",
                "spillway.label_smoothing is 0.1, but the flag says 0.2");
    REFUSED_SET("{\"spillway\": {\"device\": \"cpu\"}}", "spillway.device?=\"mock\"",
                "spillway.device is \"cpu\", but the flag says \"mock\"");
}

/* A default of the program, which depends on what is trained, yields to a value that is given. */
static void a_default_gives_way_to_what_is_said(void **state)
{
    (void)state;
    static const char *const fallback[] = {"spillway.loss:=tokens"};
    static const char *const both[] = {"spillway.loss=microbatch", "spillway.loss:=tokens"};
    static const struct {
        const char *text;
        const char *const *sets;
        int n_sets, wanted;
    } cases[] = {
        {"{}", fallback, 1, SW_LOSS_TOKENS},
        {"{\"spillway\": {\"seed\": 7}}", fallback, 1, SW_LOSS_TOKENS},
        {"{\"spillway\": {\"loss\": \"microbatch\"}}", fallback, 1, SW_LOSS_MICROBATCH},
        {"{}", both, 2, SW_LOSS_MICROBATCH},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct sw_config *c = must(cases[i].text, cases[i].sets, cases[i].n_sets);
        assert_int_equal(c->spillway.loss, cases[i].wanted);
        sw_config_close(c);
    }
}

static void our_own_block(void **state)
{
    (void)state;
    struct sw_config *c = must(
        "{\"spillway\": {\"device_memory\": \"512MiB\", \"host_memory\": 1000, \"nvme_space\": "
        "\"1.5 GB\", \"recompute\": 3, \"loss\": \"tokens\", \"decay_1d\": false, \"frozen\": "
        "[\"transformer.w?e.*\", \"*.bias\"], \"kernels\": \"reference\", \"seed\": 7, "
        "\"disk_slots\": 2}}",
        NULL, 0);
    assert_int_equal(c->spillway.device_memory_bytes, 512 << 20);
    assert_int_equal(c->spillway.host_memory_bytes, 1000);
    assert_int_equal(c->spillway.nvme_space_bytes, 1500000000);
    assert_int_equal(c->spillway.recompute.every, 3);
    assert_int_equal(c->spillway.loss, SW_LOSS_TOKENS);
    assert_int_equal(c->spillway.kernels, SW_KERNELS_REFERENCE);
    assert_int_equal(c->spillway.seed, 7);
    assert_int_equal(c->spillway.disk_slots, 2);
    assert_false(c->spillway.decay_1d);
    assert_true(sw_config_is_frozen(c, "transformer.wte.weight"));
    assert_true(sw_config_is_frozen(c, "h.0.attn.bias"));
    assert_false(sw_config_is_frozen(c, "transformer.h.0.ln_1.weight"));
    assert_false(sw_config_is_frozen(c, "bias"));
    sw_config_close(c);
    c = must("{\"spillway\": {\"recompute\": \"blocks\"}}", NULL, 0);
    assert_int_equal(sw_config_recompute(c, 12).every, 1);
    assert_int_equal(sw_config_recompute(c, 12).blocks, 0);
    sw_config_close(c);
    c = must("{\"activation_checkpointing\": {\"number_checkpoints\": 4}}", NULL, 0);
    assert_int_equal(sw_config_recompute(c, 10).every, 3);
    assert_int_equal(sw_config_recompute(c, 2).every, 1);
    sw_config_close(c);
    c = must("{}", NULL, 0);
    assert_int_equal(sw_config_recompute(c, 12).every, 0);
    assert_true(c->spillway.decay_1d);
    assert_int_equal(c->data_types.grad_accum, SW_DTYPE_COUNT);
    assert_int_equal(c->misc.communication_data_type, SW_DTYPE_COUNT);
    sw_config_close(c);
    c = must("{\"communication_data_type\": \"bf16\"}", NULL, 0);
    assert_int_equal(c->misc.communication_data_type, SW_BF16);
    sw_config_close(c);
    c = must("{\"communication_data_type\": \"bf16\", "
             "\"sequence_parallel_size\": 2}",
             NULL, 0);
    assert_int_equal(c->misc.communication_data_type, SW_F32);
    sw_config_close(c);
}

/* ---- sources ---- */

static void source_is(const struct sw_config *config, const char *key, const char *want)
{
    char buf[256];
    assert_string_equal(sw_config_source(config, key, buf, sizeof buf), want);
}

static void values_remember_their_source(void **state)
{
    (void)state;
    const char *const sets[] = {"zero_optimization.stage=3", "optimizer.params.lr=2e-4",
                                "spillway.recompute=blocks",
                                "zero_optimization.prefetch_bucket_size=5"};
    struct sw_config *c =
        must("{\n\"train_batch_size\": 8,\n\"zero_optimization\": {\"stage\": 1,\n"
             "\"stage3_prefetch_bucket_size\": 9, \"cpu_offload\": false},\n"
             "\"optimizer\": {\"type\": \"adamw\"}}",
             sets, SW_LEN(sets));
    assert_int_equal(c->zero.stage, 3);
    assert_int_equal(c->zero.prefetch_bucket_elems, 5);
    assert_int_equal(c->spillway.recompute.every, 1);
    assert_true(c->optimizer.lr == 2e-4);
    assert_string_equal(c->optimizer.name, "AdamW");
    assert_int_equal(sw_config_resolve(c, 2, 0), SW_OK);
    source_is(c, "train_batch_size", "ds.json:2");
    source_is(c, "train_micro_batch_size_per_gpu", "derived");
    source_is(c, "zero_optimization.stage", "--set zero_optimization.stage=3");
    source_is(c, "zero_optimization.overlap_comm", "derived");
    source_is(c, "zero_optimization.reduce_bucket_size", "default");
    source_is(c, "optimizer.type", "ds.json:5");
    assert_int_equal(sw_config_origin_of(c, "spillway.seed"), SW_CONFIG_DEFAULT);
    assert_int_equal(sw_config_origin_of(c, "train_batch_size"), SW_CONFIG_FILE);
    assert_int_equal(sw_config_origin_of(c, "optimizer.params.lr"), SW_CONFIG_SET);
    assert_int_equal(sw_config_origin_of(c, "no.such"), SW_CONFIG_UNKNOWN_KEY);
    sw_config_close(c);
    REFUSED_SET("{}", "zero_optimization.stage=9", "--set zero_optimization.stage=9");
    REFUSED_SET("{}", "zero_optimization.stag=1", "unknown key", "\"stage\"");
    REFUSED_SET("{}", "fp16", "KEY=VALUE");
}

static void edits_may_have_old_names(void **state)
{
    static const struct {
        const char *text, *set, *key, *value;
    } rows[] = {
        {"{\"bfloat16\": {\"enabled\": false}}", "bfloat16.enabled=true", "bf16.enabled", "true"},
        {"{\"bf16\": {\"enabled\": true}}", "bfloat16.enabled=false", "bf16.enabled", "false"},
        {"{}", "bfloat16={\"enabled\": true}", "bf16.enabled", "true"},
        {"{\"zero_optimization\": true, \"allgather_size\": 9}", "allgather_size=1000",
         "zero_optimization.allgather_bucket_size", "1000"},
        {"{\"zero_optimization\": false, \"allgather_size\": 1000}", "steps_per_print=1",
         "zero_optimization.allgather_bucket_size", "1000"},
        {"{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", "
         "\"nvme_path\": \"/x\"}}}",
         "zero_optimization.cpu_offload=true", "zero_optimization.offload_optimizer.device",
         "\"cpu\""},
        {"{\"zero_optimization\": {\"stage\": 3, \"cpu_offload\": true}}",
         "zero_optimization.cpu_offload=false", "zero_optimization.offload_optimizer", "null"},
        {"{\"zero_optimization\": {\"gather_16bit_weights_on_model_save\": false}}",
         "zero_optimization.stage3_gather_fp16_weights_on_model_save=true",
         "zero_optimization.gather_16bit_weights_on_model_save", "true"},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct sw_config *c = must(rows[i].text, &rows[i].set, 1), *again;
        struct sw_str text = {0};
        const struct sw_json *value = sw_config_value(c, rows[i].key);
        if (value) {
            sw_json_write(value, 0, &text);
        }
        if (strcmp(value ? sw_str_text(&text) : "null", rows[i].value) != 0) {
            fail_msg("%s: %s is %s", rows[i].set, rows[i].key, sw_str_text(&text));
        }
        sw_str_clear(&text);
        sw_json_write(sw_json_root(c->impl->effective), 0, &text);
        again = must(sw_str_text(&text), NULL, 0); /* what is written can be read */
        sw_config_close(again);
        sw_str_fini(&text);
        sw_config_close(c);
    }
    REFUSED_SET("{}", "allgather_size=1000", "allgather_size");
}

static void a_path_is_no_key(void **state)
{
    (void)state;
    REFUSED("{\"optimizer.params\": {\"lr\": 1}}", "unknown key \"optimizer.params\"");
    REFUSED("{\"spillway.mesh\": {\"pipe\": 4}}", "unknown key \"spillway.mesh\"");
    REFUSED("{\"zero_optimization.offload_optimizer\": {\"device\": \"nvme\"}}",
            "unknown key \"zero_optimization.offload_optimizer\"");
}

static void a_static_scale_is_in_the_range_of_f32(void **state)
{
    (void)state;
    REFUSED("{\"fp16\": {\"enabled\": true, \"loss_scale\": 1e40}}", "fp16.loss_scale", "2^127");
    REFUSED("{\"fp16\": {\"enabled\": true, \"loss_scale\": 1e-42}}", "fp16.loss_scale");
    sw_config_close(must("{\"fp16\": {\"enabled\": true, \"loss_scale\": 128}}", NULL, 0));
}

/* ---- batch arithmetic ---- */

static void a_batch_is_positive_before_it_divides(void **state)
{
    static const char *const rows[][2] = {
        {"{\"train_batch_size\": -9223372036854775808, \"train_micro_batch_size_per_gpu\": -1}",
         "train_batch_size"},
        {"{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 0}",
         "train_micro_batch_size_per_gpu"},
        {"{\"train_batch_size\": 8, \"gradient_accumulation_steps\": -1}",
         "gradient_accumulation_steps"},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct sw_config *c = must(rows[i][0], NULL, 0);
        assert_int_equal(sw_config_resolve(c, 2, 0), SW_E_CONFIG);
        assert_non_null(strstr(sw_error_message(), "positive"));
        assert_non_null(strstr(sw_error_message(), rows[i][1]));
        sw_config_close(c);
    }
}

static void elasticity_contradicts_no_batch_key(void **state)
{
    const char *const sets[] = {"gradient_accumulation_steps=3", "train_micro_batch_size_per_gpu=2",
                                "train_batch_size=5"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(sets); i++) {
        struct sw_config *c =
            must("{\"elasticity\": {\"enabled\": true, \"version\": 0.1, "
                 "\"max_train_batch_size\": 100, \"micro_batch_sizes\": [2, 4], \"max_gpus\": 16}}",
                 &sets[i], 1);
        assert_int_equal(sw_config_resolve(c, 4, 0), SW_E_CONFIG);
        assert_non_null(strstr(sw_error_message(), "contradicts elasticity"));
        sw_config_close(c);
    }
}

static void train_is_micro_times_steps_times_ranks(void **state)
{
    (void)state;
    char text[160];
    for (int64_t train = 1; train <= 24; train++) {
        for (int64_t micro = 0; micro <= 4; micro++) {
            for (int ranks = 1; ranks <= 5; ranks++) {
                snprintf(text, sizeof text, "{\"train_batch_size\": %d%s%.0d}", (int)train,
                         micro ? ", \"train_micro_batch_size_per_gpu\": " : "", (int)micro);
                struct sw_config *c = must(text, NULL, 0);
                const bool fits = micro ? train % (micro * ranks) == 0 : train % ranks == 0;
                assert_int_equal(sw_config_resolve(c, ranks, 0) == SW_OK, fits);
                if (fits) {
                    const struct sw_batch_config *b = &c->batch;
                    assert_int_equal(b->micro_batch_size * b->accumulation_steps * ranks, train);
                    assert_int_equal(b->micro_batches, b->accumulation_steps * ranks);
                }
                sw_config_close(c);
            }
        }
    }
}

/* K fixed: the same batch for any number of ranks, and steps enough for it. */
static void a_fixed_k_holds_for_any_number_of_ranks(void **state)
{
    (void)state;
    struct sw_config *c = must("{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 2, "
                               "\"gradient_accumulation_steps\": 4}",
                               NULL, 0);
    assert_int_equal(sw_config_resolve(c, 4, 0), SW_OK);
    const int64_t k = c->batch.micro_batches;
    assert_int_equal(k, 16);
    assert_int_equal(sw_config_resolve(c, 3, 0), SW_E_CONFIG);
    for (int ranks = 1; ranks <= 20; ranks++) {
        assert_int_equal(sw_config_resolve(c, ranks, k), SW_OK);
        assert_int_equal(c->batch.train_batch_size, 32);
        assert_int_equal(c->batch.micro_batch_size, 2);
        assert_int_equal(c->batch.accumulation_steps, (k + ranks - 1) / ranks);
    }
    assert_int_equal(sw_config_resolve(c, 1, 5), SW_E_CONFIG);
    sw_config_close(c);
    c = must("{\"train_micro_batch_size_per_gpu\": 3, \"spillway\": {\"micro_batches\": 5}}", NULL,
             0);
    assert_int_equal(sw_config_resolve(c, 2, 0), SW_OK);
    assert_int_equal(c->batch.train_batch_size, 15);
    assert_int_equal(c->batch.accumulation_steps, 3);
    sw_config_close(c);
}

/* ---- "auto" ---- */

/* All micro-batches with which the batch keys hold, from the largest on: found by trying. */
static void auto_offers_what_the_batch_keys_allow(void **state)
{
    (void)state;
    static const char *const more[] = {"", ", \"gradient_accumulation_steps\": 2"};
    for (int64_t train = 1; train <= 18; train++) {
        for (int i = 0; i < 16; i++) {
            const int ranks = i % 4 + 1, k = i / 8 * 3, steps = i / 4 % 2;
            char text[200];
            snprintf(text, sizeof text,
                     "{\"train_batch_size\": %d%s, \"spillway\": {\"micro_batch\": \"auto\"}}",
                     (int)train, more[steps]);
            struct sw_config *c = must(text, NULL, 0);
            const bool any = sw_config_resolve(c, ranks, k) == SW_OK;
            assert_true(any || strstr(sw_error_message(), "ds.json:1: spillway.micro_batch"));
            int64_t most = INT64_MAX;
            int n = 0;
            for (int64_t micro = train; micro > 0; micro--) {
                snprintf(text, sizeof text,
                         "{\"train_batch_size\": %d%s, \"train_micro_batch_size_per_gpu\": %d}",
                         (int)train, more[steps], (int)micro);
                struct sw_config *fixed = must(text, NULL, 0);
                if (sw_config_resolve(fixed, ranks, k) == SW_OK) {
                    assert_int_equal(sw_config_largest_micro_batch(c, ranks, k, most), micro);
                    most = micro - 1;
                    n++;
                }
                sw_config_close(fixed);
            }
            assert_int_equal(sw_config_largest_micro_batch(c, ranks, k, most), 0);
            assert_int_equal(any, n > 0);
            sw_config_close(c);
        }
    }
}

static void what_was_chosen_is_what_is_read_again(void **state)
{
    (void)state;
    struct sw_str said = {0}, first = {0}, second = {0};
    struct sw_config *c = must("{\"train_batch_size\": 24, \"spillway\": {\"micro_batch\": "
                               "\"auto\", \"recompute\": \"auto\"}}",
                               NULL, 0);
    assert_int_equal(c->spillway.micro_batch, SW_MICRO_BATCH_AUTO);
    assert_int_equal(c->spillway.recompute.every, SW_CONFIG_AUTO);
    assert_int_equal(sw_config_resolve(c, 2, 0), SW_OK);
    assert_int_equal(c->batch.train_batch_size, 24);
    assert_int_equal(c->batch.micro_batch_size, 0); /* not yet */
    sw_config_print_chosen(c, false, &said);
    assert_int_equal(said.len, 0);
    assert_int_equal(sw_config_choose(c, 4, (struct sw_recompute){3, 5}, NULL), SW_OK);
    assert_int_equal(sw_config_resolve(c, 2, 0), SW_OK);
    assert_int_equal(c->batch.micro_batch_size, 4);
    assert_int_equal(c->batch.accumulation_steps, 3);
    assert_int_equal(c->batch.micro_batches, 6);
    assert_int_equal(c->spillway.recompute.every, 3);
    source_is(c, "train_micro_batch_size_per_gpu", "planned");
    source_is(c, "spillway.recompute", "planned");
    source_is(c, "spillway.recompute_blocks", "planned");
    assert_int_equal(sw_config_choose(c, 2, (struct sw_recompute){1, 0}, "checkpoint-7"),
                     SW_OK); /* they are no longer auto */
    assert_int_equal(c->spillway.recompute.every, 3);
    assert_int_equal(c->spillway.recompute.blocks, 5);
    sw_config_print_chosen(c, false, &said);
    assert_string_equal(sw_str_text(&said), "spillway.micro_batch 4, spillway.recompute 3, "
                                            "spillway.recompute_blocks 5, kept from checkpoint-7");
    sw_str_clear(&said);
    sw_config_print_chosen(c, true, &said);
    assert_string_equal(sw_str_text(&said),
                        "\"micro_batch\":4,\"recompute\":3,\"recompute_blocks\":5");
    sw_config_write_json(c, 2, &first);
    struct sw_config *again = must(first.ptr, NULL, 0);
    assert_int_equal(sw_config_resolve(again, 2, 0), SW_OK);
    sw_config_write_json(again, 2, &second);
    assert_string_equal(first.ptr, second.ptr);
    assert_int_equal(again->batch.micro_batch_size, 4);
    assert_int_equal(again->spillway.recompute.every, 3);
    assert_int_equal(again->spillway.recompute.blocks, 5);
    sw_config_close(c);
    sw_config_close(again);
    sw_str_fini(&said);
    sw_str_fini(&first);
    sw_str_fini(&second);
    static const char *const words[] = {"none", "blocks"};
    for (int every = 0; every < 2; every++) {
        c = must("{\"spillway\": {\"recompute\": \"auto\"}}", NULL, 0);
        assert_int_equal(sw_config_choose(c, 9, (struct sw_recompute){every, 0}, NULL), SW_OK);
        assert_string_equal(sw_config_value(c, "spillway.recompute")->string, words[every]);
        assert_int_equal(c->spillway.recompute.every, every);
        assert_int_equal(sw_config_value(c, "spillway.recompute_blocks")->type, SW_JSON_NULL);
        assert_int_equal(sw_config_value(c, "train_micro_batch_size_per_gpu")->type, SW_JSON_NULL);
        sw_config_close(c);
    }
}

static void auto_is_refused(const char *text, int ranks, const char *why)
{
    struct sw_config *c = must(text, NULL, 0);
    if (sw_config_resolve(c, ranks, 0) != SW_E_CONFIG ||
        !strstr(sw_error_message(), "spillway.micro_batch") || !strstr(sw_error_message(), why)) {
        fail_msg("%s: %s; wanted %s", text, sw_error_message(), why);
    }
    sw_config_close(c);
}

static void auto_beside_other_keys_is_refused_by_name(void **state)
{
    (void)state;
#define AUTO "\"spillway\": {\"micro_batch\": \"auto\"}"
    auto_is_refused("{" AUTO "}", 1, "needs train_batch_size");
    auto_is_refused("{\"train_batch_size\": 0, " AUTO "}", 1, "got 0");
    auto_is_refused("{\"train_batch_size\": -4, " AUTO "}", 1, "got -4");
    auto_is_refused("{\"train_batch_size\": 9000000000000000000, " AUTO "}", 1, "1099511627776");
    auto_is_refused("{\"train_batch_size\": 8, " AUTO "}", 3, "ranks 3");
    auto_is_refused("{\"train_batch_size\": 8, \"gradient_accumulation_steps\": 3, " AUTO "}", 1,
                    "gradient_accumulation_steps 3");
    auto_is_refused("{\"train_batch_size\": 8, \"gradient_accumulation_steps\": 0, " AUTO "}", 1,
                    "gradient_accumulation_steps 0");
    auto_is_refused("{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, " AUTO "}", 1,
                    "train_micro_batch_size_per_gpu, but that is given as 2");
    auto_is_refused("{\"train_batch_size\": 8, \"elasticity\": {\"enabled\": true, "
                    "\"max_train_batch_size\": 8, \"micro_batch_sizes\": [2]}, " AUTO "}",
                    1, "elasticity");
#undef AUTO
    REFUSED("{\"spillway\": {\"micro_batch\": 2}}", "ds.json:1", "spillway.micro_batch", "\"auto\"",
            "\"train_micro_batch_size_per_gpu\"", "\"micro_batches\"");
    REFUSED("{\"spillway\": {\"micro_batch\": \"largest\"}}", "spillway.micro_batch", "\"auto\"");
    REFUSED("{\"spillway\": {\"recompute\": \"some\"}}", "spillway.recompute",
            "\"none\", \"blocks\", \"auto\"");
    REFUSED("{\"spillway\": {\"recompute\": -1}}", "spillway.recompute", "wanted at least 1");
    REFUSED("{\"spillway\": {\"recompute\": \"auto\"}, \"activation_checkpointing\": "
            "{\"number_checkpoints\": 2}}",
            "spillway.recompute", "number_checkpoints");
    REFUSED("{\"spillway\": {\"recompute\": \"auto\", \"recompute_blocks\": 2}}",
            "spillway.recompute_blocks", "chosen by spillway.recompute \"auto\"");
    REFUSED("{\"spillway\": {\"recompute_blocks\": 2}}", "spillway.recompute_blocks",
            "needs spillway.recompute");
    REFUSED("{\"activation_checkpointing\": {\"number_checkpoints\": 2}, \"spillway\": "
            "{\"recompute_blocks\": 2}}",
            "spillway.recompute_blocks", "needs spillway.recompute");
    REFUSED("{\"spillway\": {\"recompute\": 1, \"recompute_blocks\": 0}}",
            "spillway.recompute_blocks", "wanted at least 1");
}

/* ---- what is not built ---- */

static void not_built(const char *text, const char *key)
{
    struct sw_config *c = must(text, NULL, 0);
    if (sw_config_check_built(c) != SW_E_UNSUP || !strstr(sw_error_message(), key)) {
        fail_msg("%s: \"%s\" does not name %s", text, sw_error_message(), key);
    }
    sw_config_close(c);
}

static void is_built(const char *text)
{
    struct sw_config *c = must(text, NULL, 0);
    if (sw_config_check_built(c) < 0) {
        fail_msg("%s: %s", text, sw_error_message());
    }
    sw_config_close(c);
}

/* bitsandbytes' names mean the same as the key. */
static void types_of_8_bits_choose_moments(void **state)
{
    (void)state;
    struct sw_config *c = must("{\"optimizer\": {\"type\": \"adamw8bit\", \"params\": "
                               "{\"adam_w_mode\": false, \"min_8bit_size\": 99}}}",
                               NULL, 0);
    assert_int_equal(c->optimizer.type, SW_OPTIMIZER_ADAM);
    assert_int_equal(c->spillway.moments, SW_MOMENTS_8BIT);
    assert_int_equal(c->optimizer.min_8bit_size, 99);
    assert_true(c->optimizer.adam_w_mode);
    source_is(c, "spillway.moments", "derived");
    assert_true(sw_config_choice_is(c, "spillway.moments", "8bit"));
    sw_config_close(c);
    c = must("{\"optimizer\": {\"type\": \"Adam\"}, \"spillway\": {\"moments\": \"8bit\"}}", NULL,
             0);
    assert_int_equal(c->spillway.moments, SW_MOMENTS_8BIT);
    assert_int_equal(c->optimizer.min_8bit_size, 4096);
    sw_config_close(c);
    is_built("{\"optimizer\": {\"type\": \"Adam8bit\"}, \"spillway\": {\"moments\": \"8bit\"}}");
}

#define ADAFACTOR(params) "\"optimizer\": {\"type\": \"Adafactor\", \"params\": {" params "}}"

/* One of relative_step, lr and a scheduler chooses the rate. */
static void adafactor_says_who_chooses_its_rate(void **state)
{
    (void)state;
    is_built("{" ADAFACTOR("") "}");
    is_built("{" ADAFACTOR("\"lr\": null, \"warmup_init\": true") "}");
    is_built("{" ADAFACTOR(
        "\"lr\": 1e-3, \"relative_step\": false") ", \"scheduler\": "
                                                  "{\"type\": \"WarmupLR\", \"params\": {}}}");
    REFUSED("{" ADAFACTOR("\"lr\": 1e-3") "}", "optimizer.params.lr", "relative_step");
    REFUSED("{" ADAFACTOR("\"relative_step\": false") "}", "optimizer.params.lr", "is required");
    REFUSED("{" ADAFACTOR("\"relative_step\": false, \"lr\": 1, \"warmup_init\": true") "}",
            "optimizer.params.warmup_init", "relative_step");
    REFUSED("{" ADAFACTOR("") ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {}}}",
            "scheduler.type", "relative_step");
    REFUSED("{" ADAFACTOR("\"eps\": [1e-30]") "}", "optimizer.params.eps", "two numbers");
    REFUSED("{" ADAFACTOR("\"clip_threshold\": 0") "}", "optimizer.params.clip_threshold", "> 0");
    REFUSED("{" ADAFACTOR("") ", \"spillway\": {\"tile_bytes\": \"1MB\"}}", "spillway.tile_bytes",
            "Adafactor");
}

static void what_is_not_built_is_refused_by_name(void **state)
{
    (void)state;
    is_built(
        "{\"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": \"cpu\"}}}");
    is_built("{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", "
             "\"nvme_path\": \"/n\"}}}");
    not_built("{\"zero_optimization\": {\"stage\": 3, \"zero_quantized_weights\": true}}",
              "zero_optimization.zero_quantized_weights");
    not_built("{\"optimizer\": {\"type\": \"NAdam\"}}", "optimizer.type");
    is_built("{\"optimizer\": {\"type\": \"Muon\"}}");
    REFUSED("{\"optimizer\": {\"type\": \"Muon\"}, \"spillway\": {\"tile_bytes\": \"1MB\"}}",
            "spillway.tile_bytes", "whole matrices");
    REFUSED("{\"optimizer\": {\"type\": \"Muon\", \"params\": {\"lr\": 0, \"adam_lr\": 1e-3}}}",
            "optimizer.params.lr", "adam_lr");
    not_built("{\"optimizer\": {\"type\": \"RMSprop\", \"params\": {\"centered\": true}}}",
              "optimizer.params.centered");
    not_built("{\"optimizer\": {\"type\": \"zerooneadam\"}}", "depend on the number of ranks");
    REFUSED("{\"spillway\": {\"label_smoothing\": 1}}", "spillway.label_smoothing", "below 1");
    REFUSED("{\"spillway\": {\"label_smoothing\": -0.1}}", "spillway.label_smoothing", "-0.1");
    REFUSED("{\"optimizer\": {\"type\": \"Lamb\"}, \"spillway\": {\"moments\": \"bf16\"}}",
            "spillway.moments", "Adam and AdamW");
    REFUSED("{\"optimizer\": {\"type\": \"Lion\"}, \"spillway\": {\"moments\": \"8bit\"}}",
            "spillway.moments", "Adam and AdamW");
    REFUSED("{\"optimizer\": {\"type\": \"AdamW8bit\"}, \"spillway\": {\"moments\": \"bf16\"}}",
            "spillway.moments", "AdamW8bit");
    REFUSED("{\"optimizer\": {\"type\": \"Adam8bit\"}, \"spillway\": {\"moments\": \"fp32\"}}",
            "spillway.moments", "Adam8bit");
    REFUSED("{\"optimizer\": {\"type\": \"Adam8bit\", \"params\": {\"min_8bit_size\": -1}}}",
            "optimizer.params.min_8bit_size", "-1");
    not_built("{\"scheduler\": {\"type\": \"StepLR\"}}", "scheduler.type");
    not_built("{\"wandb\": {\"enabled\": true}}", "wandb.enabled");
    not_built("{\"comet\": {\"enabled\": true}}", "comet.enabled");
    is_built(
        "{\"tensorboard\": {\"enabled\": true}, \"csv_monitor\": {\"enabled\": true, "
        "\"output_path\": \"logs\", \"job_name\": \"a\"}, \"flops_profiler\": {\"enabled\": true, "
        "\"profile_step\": 3, \"module_depth\": 2, \"top_modules\": 3, \"detailed\": false, "
        "\"output_file\": \"profile.txt\"}, \"wall_clock_breakdown\": true}");
    not_built("{\"compression_training\": {\"layer_reduction\": {\"enabled\": true}}}",
              "compression_training");
    not_built("{\"sparse_attention\": {}}", "sparse_attention");
    not_built("{\"data_types\": {\"grad_accum_dtype\": \"bf16\"}}", "data_types.grad_accum_dtype");
    not_built("{\"gradient_allreduce_op\": \"sum\"}", "gradient_allreduce_op");
    not_built("{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"max_grad_norm\": 0.5}}}",
              "max_grad_norm");
    is_built("{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"max_grad_norm\": 1.0}}}");
    is_built(
        "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"none\"}}}");
    is_built(
        "{\"tensorboard\": {\"enabled\": false, \"output_path\": \"x\"}, \"elasticity\": null, "
        "\"amp\": {\"enabled\": false, \"opt_level\": \"O2\"}, \"nebula\": false, "
        "\"sparse_gradients\": true, "
        "\"compression_training\": {}, \"hybrid_engine\": {\"enabled\": false}, "
        "\"gradient_allreduce_op\": \"MEAN\", \"autotuning\": {\"enabled\": false}}");
}

/* ---- elasticity ---- */

static void elastic_case(const char *more, int ranks, int64_t k, int64_t want_micro, int64_t want_k,
                         const char *refusal)
{
    char text[512];
    struct sw_config *c = NULL;
    snprintf(text, sizeof text,
             "{%s\"elasticity\": {\"enabled\": true, \"version\": 0.1, "
             "\"max_train_batch_size\": 24, \"micro_batch_sizes\": [2, 4], \"max_gpus\": 8}}",
             more);
    assert_int_equal(sw_config_parse("ds.json", text, strlen(text), NULL, 0, &c), SW_OK);
    const sw_status st = sw_config_resolve(c, ranks, k);
    if (refusal) {
        assert_int_equal(st, SW_E_CONFIG);
        if (!strstr(sw_error_message(), refusal)) {
            fail_msg("%s: \"%s\" does not say \"%s\"", text, sw_error_message(), refusal);
        }
    } else {
        assert_int_equal(st, SW_OK);
        assert_int_equal(c->batch.train_batch_size, 24);
        assert_int_equal(c->batch.micro_batch_size, want_micro);
        assert_int_equal(c->batch.micro_batches, want_k);
        assert_int_equal(sw_config_check_built(c), SW_OK);
    }
    sw_config_close(c);
}

static void elasticity_decides_the_batch(void **state)
{
    (void)state;
    elastic_case("", 1, 0, 4, 6, NULL);
    elastic_case("", 3, 0, 4, 6, NULL);
    elastic_case("", 4, 0, 2, 12, NULL);
    elastic_case("\"train_micro_batch_size_per_gpu\": 4, \"train_batch_size\": 24, ", 3, 0, 4, 6,
                 NULL);
    elastic_case("", 5, 0, 0, 0, "does not divide the batch");
    elastic_case("\"train_micro_batch_size_per_gpu\": 4, ", 4, 0, 0, 0,
                 "train_micro_batch_size_per_gpu: 4 contradicts elasticity, which computes 2 on 4");
    elastic_case("\"train_batch_size\": 12, ", 3, 0, 0, 0, "elasticity, which computes 24");
    /* a job that began with six micro-batches a step keeps them, or does not go on */
    elastic_case("", 2, 6, 4, 6, NULL);
    elastic_case("", 4, 6, 0, 0, "on 4 ranks it needs 12 micro-batches of 2 samples");
}

/* ---- printing ---- */

static void effective_values_read_again(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "{\"zero_optimization\": true, \"allgather_size\": 7}",
        "{\"train_batch_size\": 24, \"zero_optimization\": {\"stage\": 3, \"offload_param\": "
        "{\"device\": \"nvme\", \"nvme_path\": [\"/a\", \"/b\"]}, \"stage3_max_live_parameters\": "
        "1e9}, \"bfloat16\": {\"enabled\": \"yes\"}, \"aio\": {\"thread_count\": 2}}",
        "{\"optimizer\": {\"type\": \"lamb\", \"params\": {\"lr\": 11e-3, \"max_coeff\": 0.3}}, "
        "\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": [0.1, 0.2], "
        "\"cycle_max_lr\": 0.3}}, \"spillway\": {\"recompute\": 4, \"host_memory\": \"3GiB\"}}",
        "{\"optimizer\": {\"type\": \"NAdam\", \"params\": {\"momentum_decay\": 0.9}}}",
    };
    for (size_t i = 0; i < SW_LEN(texts); i++) {
        struct sw_str first = {0}, second = {0};
        struct sw_config *c = must(texts[i], NULL, 0);
        sw_config_resolve(c, 1, 0);
        sw_config_write_json(c, 2, &first);
        struct sw_config *again = must(first.ptr, NULL, 0);
        sw_config_write_json(again, 2, &second);
        assert_string_equal(first.ptr, second.ptr);
        assert_int_equal(again->zero.stage, c->zero.stage);
        assert_int_equal(again->spillway.host_memory_bytes, c->spillway.host_memory_bytes);
        sw_config_close(c);
        sw_config_close(again);
        sw_str_fini(&first);
        sw_str_fini(&second);
    }
}

static void machines_get_one_object(void **state)
{
    (void)state;
    struct sw_str text = {0};
    struct sw_config *c =
        must("{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"NAdam\"}}", NULL, 0);
    sw_str_puts(&text, "{");
    sw_config_print_json(c, &text);
    sw_str_puts(&text, "}");
    struct sw_json_doc *doc;
    assert_int_equal(sw_json_parse("out", text.ptr, text.len, SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *root = sw_json_root(doc);
    assert_int_equal(sw_json_path(root, "config.train_batch_size")->integer, 8);
    assert_string_equal(sw_json_get(sw_json_get(root, "source"), "train_batch_size")->string,
                        "ds.json:1");
    assert_int_equal(sw_json_get(root, "not_built")->n_children, 1);
    sw_json_close(doc);
    sw_str_clear(&text);
    sw_config_print(c, &text);
    assert_non_null(strstr(text.ptr, "zero_optimization.stage"));
    sw_config_close(c);
    sw_str_fini(&text);
}

static void explained(const char *key, const char *word)
{
    struct sw_str text = {0};
    assert_int_equal(sw_config_explain(key, &text), SW_OK);
    if (!strstr(sw_str_text(&text), word)) {
        fail_msg("--explain %s lacks \"%s\": %s", key, word, sw_str_text(&text));
    }
    sw_str_fini(&text);
}

static void keys_are_explained(void **state)
{
    (void)state;
    struct sw_str text = {0};
    explained("zero_optimization.stage", "0 .. 3");
    explained("stage3_prefetch_bucket_size", "zero_optimization.prefetch_bucket_size");
    explained("fp16", "loss_scale_window");
    explained("warmup_num_steps", "WarmupLR");
    explained("optimizer", "OneBitAdam (not built)");
    explained("spillway.loss", "microbatch, tokens");
    assert_int_equal(sw_config_explain("zero_optimization.stagee", &text), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "\"zero_optimization.stage\""));
    sw_str_fini(&text);
}

/* The block of adapters: absent is none, what is wrong and what is not built is named. */
static void lora_is_a_block_of_its_own(void **state)
{
    static const char *const bad[][2] = {
        {"{\"r\": 4}", "spillway.lora.target_modules: is required"},
        {"{\"r\": 0, \"target_modules\": [\"q\"]}", "spillway.lora.r: 0 is too small"},
        {"{\"lora_alpha\": 0, \"target_modules\": [\"q\"]}", "spillway.lora.lora_alpha: 0"},
        {"{\"lora_dropout\": 1, \"target_modules\": [\"q\"]}",
         "spillway.lora.lora_dropout: wanted a number below 1"},
        {"{\"rank\": 4, \"target_modules\": [\"q\"]}", "unknown key \"rank\""},
    };
    static const char *const unbuilt[] = {
        "\"lora_bias\": true",
        "\"use_qalora\": true",
        "\"init_lora_weights\": \"pissa\"",
        "\"target_parameters\": [\"a.weight\"]",
        "\"trainable_token_indices\": [1]",
        "\"loftq_config\": {\"loftq_bits\": 4}",
        "\"eva_config\": {\"rho\": 2}",
    };
    (void)state;
    char text[256];
    struct sw_config *c = must("{}", NULL, 0);
    assert_int_equal(c->spillway.lora.r, 0);
    sw_config_close(c);
    c = must("{\"spillway\": {\"lora\": {\"target_modules\": \"all-linear\"}}}", NULL, 0);
    assert_int_equal(c->spillway.lora.r, 8);
    assert_int_equal(c->spillway.lora.target_modules.n, 1);
    assert_int_equal(sw_config_check_built(c), SW_OK);
    sw_config_close(c);
    for (size_t i = 0; i < SW_LEN(bad); i++) {
        snprintf(text, sizeof text, "{\"spillway\": {\"lora\": %s}}", bad[i][0]);
        assert_int_equal(sw_config_parse("t", text, strlen(text), NULL, 0, &c), SW_E_CONFIG);
        assert_non_null(strstr(sw_error_message(), bad[i][1]));
    }
    for (size_t i = 0; i < SW_LEN(unbuilt); i++) {
        snprintf(text, sizeof text, "{\"spillway\": {\"lora\": {%s, \"target_modules\": [\"q\"]}}}",
                 unbuilt[i]);
        c = must(text, NULL, 0);
        assert_int_equal(sw_config_check_built(c), SW_E_UNSUP);
        assert_non_null(strstr(sw_error_message(), "spillway.lora."));
        sw_config_close(c);
    }
}

/* Each file of examples/ is a configuration of today, all of which is built. */
static void examples_are_read(void **state)
{
    glob_t found;
    (void)state;
    assert_int_equal(glob("examples/*.json", 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 4);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct sw_config *c = NULL;
        if (sw_config_load(found.gl_pathv[i], NULL, 0, &c) < 0 || sw_config_check_built(c) < 0) {
            fail_msg("%s: %s", found.gl_pathv[i], sw_error_message());
        }
        sw_config_close(c);
    }
    globfree(&found);
}

/* docs/config.md is what the tables say today. */
static void manual_is_up_to_date(void **state)
{
    (void)state;
    struct sw_str text = {0};
    char *page;
    size_t len;
    sw_config_write_docs(&text);
    assert_false(text.failed);
    assert_int_equal(sw_file_read("docs/config.md", &page, &len), SW_OK);
    if (strcmp(page, text.ptr) != 0) {
        fail_msg("docs/config.md is old: spillway config --docs > docs/config.md");
    }
    sw_free(page);
    sw_str_fini(&text);
}

/* ---- elastic batches ---- */

#define ELASTIC(more) "{\"elasticity\": {\"enabled\": true, " more "}}"

static sw_status elastic(const char *text, int64_t ranks, struct sw_config_elastic *out)
{
    struct sw_config *c = must(text, NULL, 0);
    const sw_status st = sw_config_elastic(c, ranks, out);
    sw_config_close(c);
    return st;
}

static void elastic_refused(const char *text, int64_t ranks, const char *word)
{
    struct sw_config_elastic out = {0};
    assert_true(elastic(text, ranks, &out) < 0);
    if (!strstr(sw_error_message(), word)) {
        fail_msg("%s: \"%s\" lacks \"%s\"", text, sw_error_message(), word);
    }
    assert_null(out.ranks);
}

static void elastic_batches_have_most_divisors(void **state)
{
    (void)state;
    struct sw_config_elastic out;
    /* 2 x 6, 3 x 4 and their multiple 6 x 2 all make 12 */
    static const char small[] =
        ELASTIC("\"version\": 0.1, \"max_train_batch_size\": 13, \"micro_batch_sizes\": [2, 3]");
    static const int64_t counts[] = {1, 2, 3, 4, 6};
    assert_int_equal(elastic(small, 4, &out), SW_OK);
    assert_int_equal(out.train_batch_size, 12);
    assert_int_equal(out.micro_batch_size, 3);
    assert_int_equal(out.n_ranks, SW_LEN(counts));
    assert_memory_equal(out.ranks, counts, sizeof counts);
    sw_config_elastic_fini(&out);
    assert_null(out.ranks);
    elastic_refused(small, 5, "does not divide");
    elastic_refused(small, -1, "at least 0 ranks, got -1");
    elastic_refused(ELASTIC("\"max_train_batch_size\": 64, \"micro_batch_sizes\": [4]"), 0,
                    "needs the number of ranks");
    elastic_refused(ELASTIC("\"version\": 0.1, \"max_train_batch_size\": 4611686018427387904, "
                            "\"micro_batch_sizes\": [4611686018427387903, 4611686018427387904]"),
                    0, "too large");
    elastic_refused("{}", 1, "elasticity.enabled");
}

static void elastic_batches_are_printed(void **state)
{
    (void)state;
    static const char *const sets[] = {"elasticity.enabled=true", "elasticity.version=0.1",
                                       "elasticity.max_train_batch_size=8",
                                       "elasticity.micro_batch_sizes=[2]"};
    char path[] = "/tmp/sw_elastic_XXXXXX", *text = NULL;
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "{}", 2) == 2);
    close(fd);
    struct sw_config_options options = {.path = path, .sets = sets, .n_sets = 4};
    options.elastic_ranks = 2;
    assert_int_equal(sw_config_elastic_text(&options, &text), SW_OK);
    assert_string_equal(text, "train_batch_size 8\n2 ranks: micro-batch 2, 2 accumulation steps\n"
                              "valid numbers of ranks: 1 2 4\n");
    sw_text_free(text);
    options.json = true;
    assert_int_equal(sw_config_elastic_text(&options, &text), SW_OK);
    assert_string_equal(text, "{\"train_batch_size\": 8, \"ranks\": 2, \"micro_batch\": 2, "
                              "\"accumulation\": 2, \"valid_ranks\": [1, 2, 4]}\n");
    sw_text_free(text);
    unlink(path);
}

/* Every allocation failed once: a status, and nothing is left behind. */
static void memory_may_run_out(void **state)
{
    (void)state;
    static const char text[] =
        "{\"train_batch_size\": 8, \"zero_optimization\": {\"cpu_offload\": true, \"stage\": 2}, "
        "\"bfloat16\": {\"enabled\": true}, \"scheduler\": {\"type\": \"WarmupLR\"}}";
    const char *const sets[] = {"spillway.frozen=[\"a\"]", "aio.block_size=5"};
    struct sw_alloc_stats before, after;
    sw_alloc_get_stats(&before);
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        struct sw_config *c = NULL;
        sw_alloc_fail_nth(n);
        const sw_status st = sw_config_parse("ds.json", text, strlen(text), sets, 2, &c);
        sw_alloc_fail_nth(0);
        done = st == SW_OK;
        assert_true(done || st == SW_E_NOMEM || st == SW_E_CONFIG);
        sw_config_close(c);
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_are_sound),
    cmocka_unit_test(optimizers_and_schedulers_have_defaults),
    cmocka_unit_test(unknown_keys_name_file_line_and_nearest),
    cmocka_unit_test(types_and_ranges),
    cmocka_unit_test(sizes_are_bytes_or_have_a_unit),
    cmocka_unit_test(a_flag_may_say_what_the_file_says),
    cmocka_unit_test(a_default_gives_way_to_what_is_said),
    cmocka_unit_test(our_own_block),
    cmocka_unit_test(lora_is_a_block_of_its_own),
    cmocka_unit_test(values_remember_their_source),
    cmocka_unit_test(train_is_micro_times_steps_times_ranks),
    cmocka_unit_test(a_fixed_k_holds_for_any_number_of_ranks),
    cmocka_unit_test(types_of_8_bits_choose_moments),
    cmocka_unit_test(adafactor_says_who_chooses_its_rate),
    cmocka_unit_test(what_is_not_built_is_refused_by_name),
    cmocka_unit_test(elasticity_decides_the_batch),
    cmocka_unit_test(auto_offers_what_the_batch_keys_allow),
    cmocka_unit_test(what_was_chosen_is_what_is_read_again),
    cmocka_unit_test(auto_beside_other_keys_is_refused_by_name),
    cmocka_unit_test(effective_values_read_again),
    cmocka_unit_test(machines_get_one_object),
    cmocka_unit_test(keys_are_explained),
    cmocka_unit_test(examples_are_read),
    cmocka_unit_test(manual_is_up_to_date),
    cmocka_unit_test(elastic_batches_have_most_divisors),
    cmocka_unit_test(elastic_batches_are_printed),
    cmocka_unit_test(memory_may_run_out),
    cmocka_unit_test(edits_may_have_old_names),
    cmocka_unit_test(a_path_is_no_key),
    cmocka_unit_test(a_static_scale_is_in_the_range_of_f32),
    cmocka_unit_test(a_batch_is_positive_before_it_divides),
    cmocka_unit_test(elasticity_contradicts_no_batch_key),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
