// SPDX-License-Identifier: Apache-2.0
// COST 3
// Trainings of vectors on pairs of texts. Pairs are learned. The negatives are all pairs of the
// step: how it is cut into micro-batches changes rounding only, and ranks, stages and tiers change
// no bit.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "spillway/train.h"
#include "support/scratch.h"
#include "support/test.h"

static int make_folder(void **state)
{
    static const char words[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\n";
    static const char config[] =
        "{\"model_type\": \"bert\", \"vocab_size\": 13, \"hidden_size\": 16, "
        "\"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
        "\"max_position_embeddings\": 32, \"hidden_dropout_prob\": 0.1, "
        "\"architectures\": [\"BertModel\"]}";
    struct sw_str pairs = {0};
    (void)state;
    if (!SW_HAVE_UTF8PROC) {
        print_message("skipped: the tokenizer needs utf8proc\n");
        exit(77);
    }
    test_put("vocab.txt", words);
    test_put("config.json", config);
    for (int i = 0; i < 40; i++) { /* texts of the same letters, in another order */
        const char a = (char)('a' + i % 8), b = (char)('a' + i * 3 % 8), c = (char)('a' + i / 8);
        sw_str_printf(&pairs, "{\"anchor\": \"%c %c %c\", \"positive\": \"%c %c %c %c\"}\n", a, b,
                      c, c, a, b, a);
    }
    test_put("pairs.jsonl", sw_str_text(&pairs));
    test_put("negatives.jsonl", "{\"anchor\": \"a\", \"positive\": \"b\", \"negative\": \"c\"}\n");
    sw_str_fini(&pairs);
    return 0;
}

struct run {
    const char *out, *data;
    const char *sets[4];
    int64_t ranks, steps;
    bool resume;
};

static sw_status try_run(const struct run *r, struct sw_train_result *result)
{
    const char *data = test_at(r->data ? r->data : "pairs.jsonl");
    const char *sets[8] = {"optimizer={\"type\": \"AdamW\", \"params\": {\"lr\": 0.003}}",
                           "gradient_clipping=1"};
    int n = 2;
    bool started;
    FILE *quiet = fopen("/dev/null", "w");
    for (int i = 0; i < 4 && r->sets[i]; i++) {
        sets[n++] = r->sets[i];
    }
    const struct sw_train_options o = {.model = test_at("config.json"),
                                       .tokenizer = test_folder(),
                                       .data = &data,
                                       .n_data = 1,
                                       .task.name = "contrastive",
                                       .output = test_at(r->out),
                                       .seq_len = 12,
                                       .config_text = "{}",
                                       .steps = r->steps > 0 ? r->steps : 30,
                                       .eval_every = 10,
                                       .resume = r->resume,
                                       .ranks = r->ranks,
                                       .sets = sets,
                                       .n_sets = n,
                                       .export_dtype = -1};
    const sw_status st = sw_train(&o, quiet, &started, result);
    fclose(quiet);
    return st;
}

static struct sw_train_result run(struct run r)
{
    struct sw_train_result result = {0};
    if (try_run(&r, &result) < 0) {
        fail_msg("%s: %s", r.out, sw_error_message());
    }
    return result;
}

static void same_weights(const char *a, const char *b)
{
    char path[2][256];
    snprintf(path[0], sizeof path[0], "%s/model/model.safetensors", test_at(a));
    snprintf(path[1], sizeof path[1], "%s/model/model.safetensors", test_at(b));
    test_same_file(path[0], path[1]);
}

/* The exported folder has the pooling of the training, by which sentence-transformers reads it. */
static void has_pooling(const char *out, const char *mode)
{
    char path[256];
    char *text = NULL;
    size_t len;
    snprintf(path, sizeof path, "%s/model/modules.json", test_at(out));
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    assert_non_null(strstr(text, "\"1_Pooling\""));
    sw_free(text);
    snprintf(path, sizeof path, "%s/model/1_Pooling/config.json", test_at(out));
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    assert_non_null(strstr(text, mode));
    assert_non_null(strstr(text, "\"word_embedding_dimension\": 16"));
    sw_free(text);
}

#define TWO "train_micro_batch_size_per_gpu=2"
#define FOUR "spillway.micro_batches=4"

static void pairs_are_learned_with_the_same_bits_everywhere(void **state)
{
    char disk[512];
    (void)state;
    snprintf(disk, sizeof disk,
             "zero_optimization={\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", "
             "\"nvme_path\": \"%s\"}, \"offload_optimizer\": {\"device\": \"nvme\", "
             "\"nvme_path\": \"%s\"}}",
             test_folder(), test_folder());
    const struct sw_train_result one = run((struct run){.out = "one", .sets = {TWO, FOUR}});
    assert_true(one.loss < 0.8 * log(8)); /* log(8): all positives are as near */
    run((struct run){.out = "two", .sets = {TWO, FOUR}, .ranks = 2});
    run((struct run){.out = "disk", .sets = {TWO, FOUR, disk}, .ranks = 3});
    same_weights("one", "two");
    same_weights("one", "disk");
    has_pooling("one", "\"pooling_mode_mean_tokens\": true");
    run((struct run){.out = "parts", .sets = {TWO, FOUR}, .steps = 15});
    run((struct run){.out = "parts", .sets = {TWO, FOUR}, .resume = true, .ranks = 4});
    same_weights("one", "parts");
}

static void negatives_are_all_pairs_of_the_step(void **state)
{
    (void)state;
    const struct sw_train_result cut =
        run((struct run){.out = "cut", .sets = {TWO, FOUR}, .steps = 6});
    const struct sw_train_result whole =
        run((struct run){.out = "whole",
                         .sets = {"train_micro_batch_size_per_gpu=8", "spillway.micro_batches=1"},
                         .steps = 6});
    assert_true(fabs(cut.loss - whole.loss) < 1e-4 * whole.loss);
    const struct sw_train_result first = run((struct run){
        .out = "first", .sets = {TWO, FOUR, "spillway.contrastive.pooling=cls"}, .steps = 6});
    assert_true(first.loss != cut.loss);
}

static void what_is_not_built_is_refused(void **state)
{
    static const struct {
        const char *data, *set, *text;
    } rows[] = {{"negatives.jsonl", NULL, "\"negative\""},
                {NULL, "spillway.contrastive.scale=0", "above 0"},
                {NULL, "spillway.mesh.tensor=2", "without other axes"}};
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct sw_train_result result;
        const struct run r = {.out = "refused",
                              .data = rows[i].data,
                              .sets = {TWO, FOUR, rows[i].set},
                              .ranks = i == 2 ? 2 : 1};
        assert_true(try_run(&r, &result) < 0);
        if (!strstr(sw_error_message(), rows[i].text)) {
            fail_msg("wanted \"%s\" in: %s", rows[i].text, sw_error_message());
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pairs_are_learned_with_the_same_bits_everywhere),
    cmocka_unit_test(negatives_are_all_pairs_of_the_step),
    cmocka_unit_test(what_is_not_built_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_folder};
