// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// COST 4
// Adapters through the program. A killed training resumes on another number of ranks and gives the
// same folder, byte by byte. That folder evaluates like the merged model. Wrong input is refused in
// one line.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/processes.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *program;

static void must(const char *arguments)
{
    if (test_run(arguments) != 0) {
        fail_msg("spillway %s: %s", arguments, test_said);
    }
}

static bool exists(const char *name)
{
    return access(test_at(name), F_OK) == 0;
}

#define LORA                                                                                       \
    "train --model base/model --data text.txt --deepspeed ds.json --threads 1 --quiet "            \
    "--save-every 1 --steps "

static int set_up(void **state)
{
    static const char model[] =
        "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":40,"
        "\"n_positions\":16,\"n_embd\":24,\"n_layer\":2,\"n_head\":3}";
    static const char config[] =
        "{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
        "{\"lr\": 0.01}}, \"spillway\": {\"micro_batches\": 3, \"lora\": {\"r\": 2, "
        "\"lora_dropout\": 0.1, \"target_modules\": \"all-linear\"}}}";
    struct sw_str text = {0};
    (void)state;
    program = test_spillway();
    if (!program) {
        return -1;
    }
    for (int i = 0; i < 2000; i++) {
        sw_str_putc(&text, "abcdefghij klmnop\n"[sw_philox_u64(3, 4, (uint64_t)i) % 18]);
    }
    test_put("text.txt", sw_str_text(&text));
    sw_str_fini(&text);
    test_put("model.json", model);
    test_put("ds.json", config);
    must("train --model model.json --data text.txt --steps 2 --output base --threads 1 --quiet");
    must("train --model model.json --data text.txt --steps 1 --output other --seed 8 --quiet");
    must(LORA "6 --output whole");
    return 0;
}

static void the_folder_holds_adapters_alone(void **state)
{
    (void)state;
    assert_true(exists("whole/adapter/adapter_config.json"));
    assert_true(exists("whole/adapter/adapter_model.safetensors"));
    assert_false(exists("whole/model"));
    assert_false(exists("whole/adapter/model.safetensors"));
    assert_int_equal(
        test_shell("grep -c '\"peft_type\": \"LORA\"' whole/adapter/adapter_config.json"), 0);
}

/* On two ranks at stage 3, killed when a checkpoint is there, then on three, then on one. */
static void a_killed_training_goes_on_at_other_ranks(void **state)
{
    char command[1024];
    (void)state;
    snprintf(command, sizeof command,
             "%s " LORA "4 --output killed --ranks 2 --set zero_optimization.stage=3 & "
             "while ! test -e killed/checkpoint-2/manifest.json && kill -0 $! 2>/dev/null; do "
             "sleep 0.01; done; kill -9 $! 2>/dev/null; wait $!; true",
             program);
    assert_int_equal(test_shell(command), 0);
    must(LORA "5 --output killed --resume --ranks 3");
    must(LORA "6 --output killed --resume");
    assert_int_equal(test_shell("cmp killed/adapter/adapter_model.safetensors "
                                "whole/adapter/adapter_model.safetensors && "
                                "cmp killed/adapter/adapter_config.json "
                                "whole/adapter/adapter_config.json"),
                     0);
}

static double number_after(const char *words)
{
    const char *found = strstr(test_said, words);
    assert_non_null(found);
    return atof(found + strlen(words));
}

static void merged_and_beside_it_is_one_model(void **state)
{
    (void)state;
    must("eval --model base/model --data text.txt --batches 4");
    const double base = number_after("loss ");
    must("eval --model base/model --adapter whole/adapter --data text.txt --batches 4");
    const double adapted = number_after("loss ");
    must("export whole --output merged --merge");
    must("eval --model merged --data text.txt --batches 4");
    assert_true(fabs(number_after("loss ") - adapted) < 2e-6);
    assert_true(fabs(base - adapted) > 1e-4);
    must("export whole/adapter --output merged2 --merge --model base/model");
    assert_int_equal(test_shell("cmp merged/model.safetensors merged2/model.safetensors"), 0);
    must("export whole/checkpoint-6 --output again");
    assert_int_equal(test_shell("cmp again/adapter_model.safetensors "
                                "whole/adapter/adapter_model.safetensors"),
                     0);
    must("generate --model base/model --adapter whole/adapter --prompt ab --tokens 3");
    must("export whole --output half --merge --dtype bf16");
    must("generate --model half --prompt ab --tokens 3");
}

/* Another training begins with what is in the folder. */
static void a_training_goes_on_with_a_folder(void **state)
{
    (void)state;
    must("train --model base/model --adapter whole/adapter --data text.txt --steps 1 --output more "
         "--set optimizer.params.lr=0 --set optimizer.type=AdamW --quiet");
    assert_non_null(strstr(test_said, "continues whole/adapter"));
    assert_int_equal(test_shell("cmp more/adapter/adapter_model.safetensors "
                                "whole/adapter/adapter_model.safetensors"),
                     0);
}

static void what_is_wrong_is_refused_in_a_line(void **state)
{
    static const struct {
        const char *arguments, *says;
        int status;
    } cases[] = {
        {LORA "7 --output x --set spillway.lora.r=0", "spillway.lora.r: 0 is too small", 2},
        {LORA "7 --output x --set 'spillway.lora.target_modules=[\"q_proj\"]'",
         "target_modules \"q_proj\" matches no layer of this model", 2},
        {LORA "7 --output x --set spillway.lora.use_qalora=true", "use_qalora true: not built yet",
         2},
        {LORA "7 --output x --adapter whole/adapter", "are both given", 2},
        {"train --model other/model --data text.txt --deepspeed ds.json --output whole --steps 9 "
         "--resume --quiet",
         "its adapters were trained on another base: ", 2},
        {"eval --model base/model --adapter base/model --data text.txt",
         "wanted adapter_config.json", 2},
        {"eval --model whole --data text.txt", "whole is a run of adapters", 2},
        {"eval --model whole/adapter --data text.txt", "whole/adapter is an adapter", 2},
        {"eval --model base/model --adapter alien --data text.txt",
         "alien: lora: target_modules \"q_proj\" matches no layer of this model", 2},
        {"export alien --output x --merge --model base/model", "alien: lora: target_modules ", 1},
        {"export base --output x --merge", "it holds a model without adapters", 2},
        {"export whole --output x --model base/model", "it needs --merge", 2},
        {"export whole/adapter --output x", "is an adapter already", 2},
        {"export whole --output x --merge --model model.json", "it has no base weights", 1},
    };
    (void)state;
    assert_int_equal(
        test_shell("cp -r whole/adapter alien && sed -i 's/\"target_modules\": \\[/&\"q_proj\",/' "
                   "alien/adapter_config.json"),
        0);
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        const int status = test_run(cases[i].arguments);
        const char *end = strchr(test_said, '\n');
        if (status != cases[i].status || !strstr(test_said, cases[i].says) || !end || end[1]) {
            fail_msg("spillway %s: %d, \"%s\" (wanted %d, one line with \"%s\")",
                     cases[i].arguments, status, test_said, cases[i].status, cases[i].says);
        }
    }
    assert_false(exists("x/adapter"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_folder_holds_adapters_alone),
    cmocka_unit_test(a_killed_training_goes_on_at_other_ranks),
    cmocka_unit_test(merged_and_beside_it_is_one_model),
    cmocka_unit_test(a_training_goes_on_with_a_folder),
    cmocka_unit_test(what_is_wrong_is_refused_in_a_line),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
