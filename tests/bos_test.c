// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 120
// COST 2
// The token that a tokenizer puts before a text, through the program: tokenize, eval, train and
// generate put it there as transformers does, --no-bos leaves it out, and a training that goes on
// has what it had.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/fixtures.h"
#include "support/processes.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *program;

static double loss_of(const char *arguments)
{
    test_expect(arguments, 0, "{\"loss\":");
    return strtod(strstr(test_said, "{\"loss\":") + strlen("{\"loss\":"), NULL);
}

/* Losses of tests/cases/llama_groups on this text in windows of 16 tokens, from transformers 5.23
 * with its defaults, and without the first token. */
static void eval_has_the_loss_of_transformers(void **state)
{
    (void)state;
    const double with = loss_of("eval --model model --data text.txt --seq-len 16 --json");
    const double without =
        loss_of("eval --model model --data text.txt --seq-len 16 --json --no-bos");
    assert_true(fabs(with - 4.468373618) < 1e-5);
    assert_true(fabs(without - 4.489450570) < 1e-5);
}

static void tokenize_and_generate_begin_alike(void **state)
{
    (void)state;
    test_expect("tokenize --tokenizer model < line.txt", 0, "0 11 16 2 22 10 7\n");
    test_expect("tokenize --tokenizer model --no-bos < line.txt", 0, "11 16 2 22 10 7\n");
    assert_true(test_said[0] == '1');
    test_expect("tokenize --tokenizer model --json --no-bos < pair.jsonl", 0, "{\"ids\":[3,4]}");
    test_expect("generate --model model --prompt 'in the' --tokens 3", 0,
                "in thecx"); /* as recorded; the first id has no token, and no text */
    test_expect("generate --model model --prompt 'in the' --tokens 2 --no-bos", 0, "in thesn");
    test_put("lines.txt", "of\n\nin the\n");
    test_expect("generate --model model --tokens 3 < lines.txt", 0, "\nin thecx");
    assert_memory_equal(test_said, "of", 2); /* each line is a prompt */
    test_expect("generate --model model --tokens 3 --prompt ''", 0, "");
    char *begun = strdup(test_said);
    test_expect("generate --model model --tokens 3 < /dev/null", 0, begun); /* as without a line */
    assert_string_equal(test_said, begun);
    free(begun);
}

/* A chat begins as its template says, and rows of other tasks as theirs. */
static void no_bos_is_for_texts(void **state)
{
    (void)state;
    test_expect("eval --model model --data chats.jsonl --seq-len 8 --no-bos", 2, "begin as their");
    test_expect("train --model model --data chats.jsonl --seq-len 8 --steps 1 --output no --no-bos",
                2, "--no-bos: the data is chats");
    test_expect("tokenize --tokenizer model --chat --no-bos < chats.jsonl", 2, "--no-bos");
    test_expect("generate --model model --chat --no-bos --prompt a", 2,
                "--no-bos and --chat exclude");
    test_expect("eval --model model --data rows.csv --task classify --no-bos", 2,
                "--no-bos: rows of");
    test_expect(
        "train --model model --data rows.csv --task classify --steps 1 --output no --no-bos", 2,
        "--no-bos: rows of the task \"classify\" keep the tokenizer's template");
}

/* Data with and without the token counts as different, also for records of versions that added no
 * token. */
static void a_training_goes_on_with_the_tokens_that_it_had(void **state)
{
    (void)state;
#define TRAIN                                                                                      \
    "train --model model --data text.txt --seq-len 8 --quiet --set spillway.threads=1 --no-export "
    test_expect(TRAIN "--output with --steps 1", 0, "");
    test_expect(TRAIN "--output with --steps 2 --resume", 0, "");
    test_expect(TRAIN "--output with --steps 3 --resume --no-bos", 2,
                "it was trained on other data: tokens around a text (--no-bos) <s> .. -> none");
    test_expect(TRAIN "--output with --steps 3 --resume --no-bos --allow-other-data", 0, "");
    test_expect(TRAIN "--output without --steps 1 --no-bos", 0, "");
    test_expect(TRAIN "--output without --steps 2 --resume", 2, "none -> <s> ..");
    test_expect(TRAIN "--output without --steps 2 --resume --no-bos", 0, "");
}

/* ---- files ---- */

static void put_tokenizer(void)
{
    struct sw_str text = {0};
    sw_str_puts(&text,
                "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":"
                "true},{\"id\":1,\"content\":\"</s>\",\"special\":true}],\"normalizer\":null,"
                "\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Fuse\"},\"post_processor\":{"
                "\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\","
                "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{"
                "\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\","
                "\"type_id\":0}},{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":1}},{\"Sequence\":{"
                "\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":"
                "[0],\"tokens\":[\"<s>\"]}}},\"model\":{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,"
                "\"</s>\":1,\" \":2");
    for (int c = 'a'; c <= 'z'; c++) {
        sw_str_printf(&text, ",\"%c\":%d", c, 3 + c - 'a');
    }
    sw_str_puts(&text, "},\"merges\":[]}}");
    test_put("model/tokenizer.json", sw_str_text(&text));
    sw_str_fini(&text);
    test_put("model/tokenizer_config.json",
             "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"chat_template\":"
             "\"{% for m in messages %}{{ m.content }}</s>{% endfor %}\"}");
}

static int set_up(void **state)
{
    (void)state;
    char command[512];
    program = test_spillway();
    if (!program) {
        return -1;
    }
    snprintf(command, sizeof command, "cp -r tests/cases/llama_groups %s/model && chmod -R u+w %s",
             test_folder(), test_folder());
    assert_int_equal(system(command), 0);
    put_tokenizer();
    test_put("text.txt", "in the beginning god created the heaven and the earth and the earth was "
                         "without form and void");
    test_put("line.txt", "in the\n");
    test_put("pair.jsonl", "{\"pair\":[\"a\",\"b\"]}\n");
    test_put("chats.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
                            "\"assistant\",\"content\":\"b\"}]}\n");
    test_put("rows.csv", "text,label\na,0\nb,1\n");
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(eval_has_the_loss_of_transformers),
    cmocka_unit_test(tokenize_and_generate_begin_alike),
    cmocka_unit_test(no_bos_is_for_texts),
    cmocka_unit_test(a_training_goes_on_with_the_tokens_that_it_had),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
