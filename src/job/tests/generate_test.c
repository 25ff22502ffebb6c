// SPDX-License-Identifier: Apache-2.0
// COST 2
// Texts that an encoder-decoder generates: one a line, with a prefix, next to the targets of a
// file. The rules in its files are followed, or named in a warning. Some requests are refused.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "engine/engine.h"
#include "spillway/data.h"
#include "spillway/train.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

static char warned[512];

/* Suppresses all tokens but letters. */
static void write_plain_rules(void)
{
    test_put("model/generation_config.json", "{\"suppress_tokens\": [0, 1, 2, 3, 4]}");
}

/* Exports the model that `config` describes to the folder `name`, with random weights. */
static void export_model(const char *name, const char *config, const char *words)
{
    char file[32];
    sw_engine *e = NULL;
    snprintf(file, sizeof file, "%s.json", name);
    test_put(file, config);
    const struct sw_engine_options options = {.config.text =
                                                  "{\"train_micro_batch_size_per_gpu\": 1}",
                                              .model.path = test_at(file),
                                              .inputs.seq_len = 8,
                                              .seed = 11,
                                              .evaluate.loss = true};
    assert_int_equal(sw_initialize(&options, &e), SW_OK);
    assert_int_equal(sw_export(e, test_at(name), SW_F32), SW_OK);
    sw_close(e);
    snprintf(file, sizeof file, "%s/vocab.txt", name);
    test_put(file, words);
}

/* Makes a T5 with letters as its vocabulary and large weights, so that texts differ. Also makes a
 * BART, which has a position table. */
static int make_model(void **state)
{
    static const char words[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\n.\n";
    static const char config[] =
        "{\"model_type\": \"t5\", \"architectures\": [\"T5ForConditionalGeneration\"], "
        "\"vocab_size\": 14, \"d_model\": 16, \"d_kv\": 8, \"d_ff\": 24, \"num_layers\": 2, "
        "\"num_heads\": 2, \"relative_attention_num_buckets\": 8, \"initializer_factor\": 3.0, "
        "\"relative_attention_max_distance\": 12, \"n_positions\": 24, \"pad_token_id\": 0, "
        "\"eos_token_id\": 3, \"decoder_start_token_id\": 0}";
    static const char bart[] =
        "{\"model_type\": \"bart\", \"architectures\": [\"BartForConditionalGeneration\"], "
        "\"vocab_size\": 14, \"d_model\": 16, \"encoder_layers\": 1, \"decoder_layers\": 1, "
        "\"encoder_attention_heads\": 2, \"decoder_attention_heads\": 2, \"encoder_ffn_dim\": 24, "
        "\"decoder_ffn_dim\": 24, \"max_position_embeddings\": 24, \"pad_token_id\": 0, "
        "\"eos_token_id\": 3, \"bos_token_id\": 2, \"decoder_start_token_id\": 3}";
    static const char gpt[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 14, \"n_embd\": 16, "
                              "\"n_layer\": 1, \"n_head\": 2, \"n_positions\": 24}";
    sw_tokenizer *tokenizer = NULL;
    (void)state;
    test_put("vocab.txt", words);
    if (sw_tokenizer_open(test_folder(), NULL, &tokenizer) < 0) {
        print_message("skipped: %s\n", sw_error_message()); /* the tokenizer needs utf8proc */
        exit(77);
    }
    sw_tokenizer_close(tokenizer);
    export_model("model", config, words);
    export_model("bart", bart, words);
    export_model("gpt", gpt, words);
    return 0;
}

static void keep_warning(void *ctx, enum sw_log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    snprintf(warned, sizeof warned, "%s", text);
}

/* The text generated for `lines`, or for a prompt. Owned by the caller. */
static char *generate(struct sw_generate_options o, const char *lines, sw_status *out)
{
    char *text = NULL;
    size_t len = 0;
    bool started;
    FILE *to = open_memstream(&text, &len);
    o.model = o.model ? o.model : test_at("model");
    o.in = lines ? fmemopen((char *)(uintptr_t)lines, strlen(lines), "r") : o.in;
    warned[0] = '\0';
    sw_log_set_sink(keep_warning, NULL);
    *out = sw_generate_text(&o, to, &started);
    sw_log_set_sink(NULL, NULL);
    if (lines) {
        fclose(o.in);
    }
    fclose(to);
    assert_true(*out < 0 || started);
    return text;
}

/* lines: [len] */
static char *generate_bytes(struct sw_generate_options o, const char *lines, size_t len,
                            sw_status *out)
{
    o.in = fmemopen((char *)(uintptr_t)lines, len, "r");
    char *text = generate(o, NULL, out);
    fclose(o.in);
    return text;
}

static char *must(struct sw_generate_options o, const char *lines)
{
    sw_status st;
    char *text = generate(o, lines, &st);
    if (st < 0) {
        fail_msg("%s", sw_error_message());
    }
    return text;
}

static const char *const prompts[] = {"a b c", "h g f e d c b a . a", "d"};

static void each_line_has_a_text(void **state)
{
    char want[512] = "";
    (void)state;
    write_plain_rules();
    for (int i = 0; i < 3; i++) {
        char *one = must((struct sw_generate_options){.prompt = prompts[i], .tokens = 9}, NULL);
        assert_true(strlen(one) > 1);
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s", one);
        free(one);
    }
    char *all =
        must((struct sw_generate_options){.tokens = 9}, "a b c\nh g f e d c b a . a\n\nd\n");
    assert_string_equal(all, want); /* padding of the shorter ones changes nothing */
    free(all);
    char *prefixed = must(
        (struct sw_generate_options){.prompt = "c", .source_prefix = "a b ", .tokens = 9}, NULL);
    assert_memory_equal(prefixed, want, strlen(prefixed));
    free(prefixed);
}

/* CRLF ends a line, and a CR alone does not. A decoder's prompt is printed as it was. */
static void line_ends_of_both_kinds_and_no_nul(void **state)
{
    static const char text[] = "a b\r\nc\rd\r\n\r\n\re";
    const struct sw_generate_options o = {.model = test_at("gpt"), .tokens = 1};
    sw_status st;
    (void)state;
    char *all = generate_bytes(o, text, sizeof text - 1, &st);
    assert_int_equal(st, SW_OK);
    assert_true(strncmp(all, "a b", 3) == 0 && strstr(all, "\nc\rd") && strstr(all, "\n\re"));
    assert_null(strstr(all, "\r\n"));
    free(all);
    free(generate_bytes(o, "a\nb\0c\n", 6, &st));
    assert_int_equal(st, SW_E_FORMAT);
    assert_non_null(
        strstr(sw_error_message(), "standard input line 2: byte 2 is NUL, wanted text"));
}

static void prompts_that_cannot_be_read_are_an_error(void **state)
{
    (void)state;
    FILE *folder = fopen(test_folder(), "r");
    const struct sw_generate_options o = {.model = test_at("model"), .tokens = 9, .in = folder};
    bool started;
    assert_non_null(folder);
    assert_int_equal(sw_generate_text(&o, stdout, &started), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "prompts cannot be read: Is a directory"));
    fclose(folder);
}

/* One of two ranks that share each layer. */
struct shared {
    FILE *in, *out;
};

static sw_status generate_on(void *ctx, sw_comm *comm)
{
    static const char *const sets[] = {"spillway.mesh.tensor=2", "spillway.threads=1"};
    const struct shared *shared = ctx;
    const bool leads = sw_comm_rank(comm) == 0;
    const struct sw_generate_options o = {.model = test_at("model"),
                                          .tokens = 9,
                                          .sets = sets,
                                          .n_sets = 2,
                                          .comm = comm,
                                          .in = leads ? shared->in : stdin};
    bool started;
    return sw_generate_text(&o, leads ? shared->out : NULL, &started);
}

static void ranks_share_the_work_and_the_first_one_prints(void **state)
{
    char lines[] = "a b c\nh g f e d c b a . a\nd\n";
    char *text = NULL;
    size_t len = 0;
    (void)state;
    write_plain_rules();
    char *want = must((struct sw_generate_options){.tokens = 9}, lines);
    const struct shared shared = {fmemopen(lines, strlen(lines), "r"), open_memstream(&text, &len)};
    if (sw_threads_run(2, 60, generate_on, (void *)(uintptr_t)&shared) < 0) {
        fail_msg("%s", sw_error_message());
    }
    fclose(shared.in);
    fclose(shared.out);
    assert_string_equal(text, want);
    free(text);
    free(want);
}

/* Collects the pieces in which a file is written. */
struct pieces {
    char text[256];
    int n;
};

static ssize_t take_piece(void *ctx, const char *bytes, size_t len)
{
    struct pieces *p = ctx;
    strncat(p->text, bytes, len);
    p->n++;
    return (ssize_t)len;
}

static ssize_t refuse_piece(void *ctx, const char *bytes, size_t len)
{
    (void)bytes;
    (void)len;
    struct pieces *p = ctx;
    p->n++;
    return 0;
}

static void words_are_written_as_they_come(void **state)
{
    struct pieces pieces = {0};
    bool started;
    (void)state;
    write_plain_rules();
    const struct sw_generate_options o = {
        .model = test_at("model"), .prompt = prompts[0], .tokens = 9};
    char *want = must(o, NULL);
    FILE *to = fopencookie(&pieces, "w", (cookie_io_functions_t){.write = take_piece});
    assert_int_equal(sw_generate_text(&o, to, &started), SW_OK);
    fclose(to);
    assert_string_equal(pieces.text, want);
    assert_int_equal(pieces.n, 10); /* nine letters and the line break */
    free(want);
    pieces.n = 0;
    to = fopencookie(&pieces, "w", (cookie_io_functions_t){.write = refuse_piece});
    assert_int_equal(sw_generate_text(&o, to, &started), SW_E_IO);
    fclose(to);
    assert_true(pieces.n < 4); /* generation stops soon after a write fails */
}

#define RULES "{\"max_new_tokens\": 1, \"suppress_tokens\": [0, 1, 2, 3, 4], \"eos_token_id\": 3"

static void bad_words_of_one_token_are_followed(void)
{
    const struct sw_generate_options plain = {.prompt = "a b c"};
    char rules[160];
    test_put("model/generation_config.json", RULES "}");
    char *first = must(plain, NULL);
    const int id = *first == '.' ? 13 : *first - 'a' + 5;
    snprintf(rules, sizeof rules, RULES ", \"bad_words_ids\": [[%d], [3]]}", id);
    test_put("model/generation_config.json", rules);
    char *text = must(plain, NULL);
    assert_true(strcmp(text, first) != 0 && !warned[0]);
    free(text);
    snprintf(rules, sizeof rules, RULES ", \"bad_words_ids\": [[%d, 6]]}", id);
    test_put("model/generation_config.json", rules);
    text = must(plain, NULL);
    assert_string_equal(text, first);
    assert_non_null(strstr(warned, "not followed: bad_words_ids ("));
    free(text);
    free(first);
}

static void rules_of_the_folder_are_followed_or_named(void **state)
{
    const struct sw_generate_options plain = {.prompt = "a b c"};
    struct sw_generate_options drawn = plain;
    drawn.sampling = (struct sw_sampling){.temperature = 1, .seed = 4};
    (void)state;
    test_put("model/generation_config.json",
             "{\"forced_bos_token_id\": 7, \"suppress_tokens\": [3], \"max_new_tokens\": 4, "
             "\"num_beams\": 4, \"do_sample\": true, \"typical_p\": 1.0, \"bad_words_ids\": null}");
    char *text = must(plain, NULL);
    assert_true(strncmp(text, "c ", 2) == 0 && strlen(text) == strlen("c x y z\n"));
    free(text);
    assert_non_null(strstr(warned, "generation_config.json: not followed: num_beams, do_sample ("));
    free(must(drawn, NULL));
    assert_non_null(strstr(warned, "not followed: num_beams ("));
    test_put("model/generation_config.json",
             "{\"do_sample\": true, \"top_k\": 20, \"top_p\": 0.8, \"temperature\": 0.7}");
    free(must(plain, NULL));
    assert_non_null(strstr(warned, "not followed: do_sample ("));
    free(must(drawn, NULL));
    assert_non_null(strstr(warned, "not followed: top_k, top_p ("));
    drawn.sampling.top_k = 3;
    free(must(drawn, NULL));
    assert_non_null(strstr(warned, "not followed: top_p ("));
    bad_words_of_one_token_are_followed();
    test_put("model/generation_config.json", "{\"max_length\": 5, \"min_length\": 5}");
    text = must(plain, NULL);
    assert_true(strlen(text) <= strlen("x x x x\n") && !warned[0]);
    free(text);
}

/* A decoder without generation_config.json follows its config.json, as in transformers. */
static void a_decoder_follows_its_config_without_the_other_file(void **state)
{
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], "
        "\"vocab_size\": 14, \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2, "
        "\"n_positions\": 24, \"suppress_tokens\": [0, 1, 2, 3, 4], \"max_length\": 3, "
        "\"eos_token_id\": %s}";
    static const char ends[] = "[5, 6, 7, 8, 9, 10, 11, 12, 13, 50256]";
    struct sw_generate_options o = {.model = test_at("gpt"), .prompt = "a b", .tokens = 4};
    char text[400];
    (void)state;
    snprintf(text, sizeof text, config, ends);
    test_put("gpt/config.json", text);
    char *one = must(o, NULL);
    assert_int_equal(strlen(one), strlen("a b x\n")); /* its first token ends it */
    assert_true(!warned[0]);
    o.ignore_eos = true;
    char *all = must(o, NULL);
    assert_true(strlen(all) >= strlen("a bxxxx\n") && strcmp(all, one) != 0);
    o.ignore_eos = false;
    test_put("gpt/generation_config.json", "{\"suppress_tokens\": [0, 1, 2, 3, 4]}");
    char *other = must(o, NULL);
    assert_string_equal(other, all);
    free(other);
    free(all);
    free(one);
}

static void rules_that_make_no_sense_are_named(void **state)
{
    static const struct {
        const char *json, *says;
    } rows[] = {{"{\"eos_token_id\": \"x\"}", "eos_token_id: wanted an id"},
                {"{\"forced_bos_token_id\": [1, 2]}", "forced_bos_token_id has 2 ids"},
                {"{\"repetition_penalty\": 0}", "repetition_penalty is 0"},
                {"{\"min_length\": -5}", "min_length is -5"},
                {"{\"decoder_start_token_id\": 99}", "rules.start_id 99; the vocabulary has 14"}};
    (void)state;
    for (size_t r = 0; r < SW_LEN(rows); r++) {
        sw_status st;
        test_put("model/generation_config.json", rows[r].json);
        free(generate((struct sw_generate_options){.prompt = "a"}, NULL, &st));
        assert_true(st < 0);
        if (!strstr(sw_error_message(), rows[r].says)) {
            fail_msg("\"%s\" lacks \"%s\"", sw_error_message(), rows[r].says);
        }
    }
}

/* T5's positions are relative, so n_positions is no limit. A position table is a limit. */
static void a_text_longer_than_the_positions_is_named(void **state)
{
    static const char prompt[] = "a a a a a a a a a a a a a a a a a a a a a a a a a a a";
    sw_status st;
    (void)state;
    write_plain_rules();
    free(must((struct sw_generate_options){.prompt = prompt, .tokens = 25}, NULL));
    struct sw_generate_options o = {.model = test_at("bart"), .prompt = prompt};
    free(generate(o, NULL, &st));
    assert_int_equal(st, SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "the model has positions for 24 tokens"));
    o.prompt = "a";
    o.tokens = 25;
    free(generate(o, NULL, &st));
    assert_int_equal(st, SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "generation up to 25 tokens"));
}

/* A link is neither replaced nor followed. A file descriptor gets the same texts. */
static void predictions_go_to_files_and_streams(const struct sw_eval_options *options, FILE *out,
                                                const char *want)
{
    struct sw_eval_options o = *options;
    char to[128], stream[64], *got;
    size_t len = 0;
    bool started;
    struct stat info;
    snprintf(to, sizeof to, "%s/link", test_folder());
    assert_int_equal(symlink("aim", to), 0);
    o.predictions = to;
    assert_int_equal(sw_eval(&o, out, &started), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), to));
    assert_non_null(strstr(sw_error_message(), "symbolic link"));
    assert_true(lstat(to, &info) == 0 && S_ISLNK(info.st_mode));
    assert_int_equal(unlink(to), 0);
    const int fd = open(to, O_RDWR | O_CREAT, 0600);
    snprintf(stream, sizeof stream, "/dev/fd/%d", fd);
    o.predictions = stream;
    assert_int_equal(sw_eval(&o, out, &started), SW_OK);
    close(fd);
    assert_int_equal(sw_file_read(to, &got, &len), SW_OK);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(got, want, len);
    sw_free(got);
}

/* Two stages evaluate together. */
struct stages {
    struct sw_eval_options options;
    FILE *out;
};

static sw_status eval_on(void *ctx, sw_comm *comm)
{
    static const char *const sets[] = {"spillway.mesh.pipe=2", "spillway.threads=1"};
    const struct stages *stages = ctx;
    struct sw_eval_options o = stages->options;
    bool started;
    o.comm = comm;
    o.sets = sets;
    o.n_sets = SW_LEN(sets);
    return sw_eval(&o, sw_comm_rank(comm) == 0 ? stages->out : NULL, &started);
}

/* The first rank writes what one rank alone writes. line: of one rank */
static void stages_evaluate_together(const struct sw_eval_options *options, const char *line,
                                     const char *want)
{
    char *text = NULL, *got;
    size_t len = 0;
    struct stages stages = {*options, open_memstream(&text, &len)};
    if (sw_threads_run(2, 60, eval_on, &stages) < 0) {
        fail_msg("%s", sw_error_message());
    }
    fclose(stages.out);
    assert_string_equal(text, line);
    free(text);
    assert_int_equal(sw_file_read(options->predictions, &got, &len), SW_OK);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(got, want, len);
    sw_free(got);
}

static void evaluation_writes_texts_beside_targets(void **state)
{
    char data[128], to[128], model[128];
    const char *files[] = {data};
    char line[256], want[512] = "", *out_text = NULL, *got;
    size_t len = 0;
    bool started;
    struct sw_str records = {0};
    (void)state;
    write_plain_rules();
    snprintf(data, sizeof data, "%s/data.jsonl", test_folder());
    snprintf(to, sizeof to, "%s/texts.jsonl", test_folder());
    snprintf(model, sizeof model, "%s/model", test_folder());
    for (int i = 0; i < 3; i++) {
        char *text = must((struct sw_generate_options){.prompt = prompts[i], .tokens = 6}, NULL);
        text[strcspn(text, "\n")] = '\0';
        snprintf(line, sizeof line, "{\"prediction\": \"%s\", \"target\": \"b %s\"}\n", text,
                 i == 2 ? "d" : "c");
        strncat(want, line, sizeof want - strlen(want) - 1);
        sw_str_printf(&records, "{\"source\": \"%s\", \"target\": \"b %s\"}\n", prompts[i],
                      i == 2 ? "d" : "c");
        free(text);
    }
    test_put("data.jsonl", sw_str_text(&records));
    sw_str_fini(&records);
    FILE *out = open_memstream(&out_text, &len);
    const struct sw_eval_options o = {.model = model,
                                      .data = files,
                                      .n_data = 1,
                                      .task.target_len = 6,
                                      .batch = 2,
                                      .seq_len = 16,
                                      .predictions = to};
    if (sw_eval(&o, out, &started) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_file_read(to, &got, &len), SW_OK);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(got, want, len);
    sw_free(got);
    fflush(out);
    stages_evaluate_together(&o, out_text, want);
    predictions_go_to_files_and_streams(&o, out, want);
    fclose(out);
    free(out_text);
}

/* The same seed gives the same texts. Sampling among one candidate is greedy. */
static void drawn_texts_are_of_their_seed(void **state)
{
    const struct sw_generate_options plain = {.prompt = "a b c", .tokens = 9};
    struct sw_generate_options drawn = plain;
    int n_different = 0;
    (void)state;
    write_plain_rules();
    char *greedy = must(plain, NULL), *first = NULL;
    for (uint64_t seed = 0; seed < 6; seed++) {
        drawn.sampling = (struct sw_sampling){.temperature = 2, .seed = seed};
        char *text = must(drawn, NULL), *again = must(drawn, NULL);
        assert_string_equal(text, again);
        n_different += first && strcmp(first, text) != 0;
        free(again);
        free(first);
        first = text;
    }
    assert_true(n_different > 0);
    free(first);
    drawn.sampling = (struct sw_sampling){.temperature = 2, .top_k = 1, .seed = 3};
    first = must(drawn, NULL);
    assert_string_equal(first, greedy);
    free(first);
    free(greedy);
}

static struct sw_train_options training(const char **file, char *output, size_t cap)
{
    static char data[128], model[128];
    write_plain_rules();
    test_put("pairs.jsonl", "{\"source\": \"a b c\", \"target\": \"b c d\"}\n"
                            "{\"source\": \"d e f\", \"target\": \"e f g\"}\n"
                            "{\"source\": \"h g\", \"target\": \"g f\"}\n"
                            "{\"source\": \"c d e\", \"target\": \"d e\"}\n");
    snprintf(data, sizeof data, "%s/pairs.jsonl", test_folder());
    snprintf(model, sizeof model, "%s/model", test_folder());
    snprintf(output, cap, "%s/run", test_folder());
    *file = data;
    return (struct sw_train_options){.model = model,
                                     .data = file,
                                     .n_data = 1,
                                     .output = output,
                                     .steps = 2,
                                     .seq_len = 8,
                                     .task.target_len = 6,
                                     .sample_every = 2,
                                     .export_dtype = -1,
                                     .quiet = true};
}

/* The sample after the last step equals the text that the exported folder generates. */
static void samples_of_a_training_are_texts_of_its_weights(void **state)
{
    char output[128], run[160], want[256], *got;
    const char *file;
    size_t len;
    struct sw_train_options o = training(&file, output, sizeof output);
    struct sw_train_result result;
    bool started;
    FILE *out = tmpfile();
    (void)state;
    o.sample_prompt = "c";
    o.task.source_prefix = "a b ";
    if (sw_train(&o, out, &started, &result) < 0) {
        fail_msg("%s", sw_error_message());
    }
    fclose(out);
    snprintf(run, sizeof run, "%s/model", output);
    char *text =
        must((struct sw_generate_options){.model = run, .prompt = "a b c", .tokens = 6}, NULL);
    text[strcspn(text, "\n")] = '\0';
    assert_true(strlen(text) > 0);
    snprintf(want, sizeof want, "\\n%s\"", text);
    snprintf(run, sizeof run, "%s/samples.jsonl", output);
    assert_int_equal(sw_file_read(run, &got, &len), SW_OK);
    if (!strstr(got, want) || !strstr(got, "\"c\"")) {
        fail_msg("%s lacks %s", got, want);
    }
    sw_free(got);
    free(text);
}

static void samples_that_cannot_be_are_refused_first(void **state)
{
    static const struct {
        const char *prompt, *says;
    } rows[] = {{NULL, "wanted --sample-prompt"},
                {"a b c d e f g h", "--sample-prompt has 10 tokens; wanted fewer than 9"}};
    (void)state;
    for (size_t r = 0; r < SW_LEN(rows); r++) {
        char output[128];
        const char *file;
        struct sw_train_options o = training(&file, output, sizeof output);
        struct sw_train_result result;
        bool started;
        o.sample_prompt = rows[r].prompt;
        strcat(output, "-refused");
        assert_true(sw_train(&o, stdout, &started, &result) < 0);
        assert_false(started);
        if (!strstr(sw_error_message(), rows[r].says)) {
            fail_msg("\"%s\" lacks \"%s\"", sw_error_message(), rows[r].says);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_line_has_a_text),
    cmocka_unit_test(line_ends_of_both_kinds_and_no_nul),
    cmocka_unit_test(prompts_that_cannot_be_read_are_an_error),
    cmocka_unit_test(words_are_written_as_they_come),
    cmocka_unit_test(ranks_share_the_work_and_the_first_one_prints),
    cmocka_unit_test(rules_of_the_folder_are_followed_or_named),
    cmocka_unit_test(a_decoder_follows_its_config_without_the_other_file),
    cmocka_unit_test(rules_that_make_no_sense_are_named),
    cmocka_unit_test(a_text_longer_than_the_positions_is_named),
    cmocka_unit_test(evaluation_writes_texts_beside_targets),
    cmocka_unit_test(drawn_texts_are_of_their_seed),
    cmocka_unit_test(samples_of_a_training_are_texts_of_its_weights),
    cmocka_unit_test(samples_that_cannot_be_are_refused_first),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_model};
