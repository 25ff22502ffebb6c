// SPDX-License-Identifier: Apache-2.0
// Ranks that would train differently are refused before the first step, with the rank and the
// difference named. Paths and budgets may differ between hosts.
#include <stdlib.h>
#include <unistd.h>

#include "job/private.h"
#include "support/scratch.h"
#include "support/test.h"

struct setup { /* setup of rank 1; the others use the plain one */
    const char *config, *model, *set, *text;
};

static const char plain_config[] =
    "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 1, \"optimizer\": "
    "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"zero_optimization\": {\"stage\": 3}, "
    "\"spillway\": {\"threads\": 1}}";

static const char plain_model[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":8,\"n_embd\":8,\"n_layer\":1,"
    "\"n_head\":2,\"embd_pdrop\":0.1,\"_name_or_path\":\"here\"}";

static const char *in_folder(const char *name, const char *text)
{
    static _Thread_local char path[128];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    if (text) {
        assert_int_equal(sw_file_write_atomic(path, text, strlen(text)), SW_OK);
    }
    return path;
}

static sw_status open_one(void *ctx, sw_comm *comm)
{
    const struct setup *odd = ctx;
    const bool is_odd = sw_comm_rank(comm) == 1;
    sw_engine *engine = NULL;
    char path[128];
    const char *model = is_odd && odd->model ? odd->model : "plain.json";
    snprintf(path, sizeof path, "%s/%s", test_folder(), model);
    const struct sw_engine_options options = {
        .config = {.text = is_odd && odd->config ? odd->config : plain_config,
                   .sets = &odd->set,
                   .n_sets = is_odd && odd->set},
        .model.path = path,
        .run.comm = comm,
        .seed = 1,
        .train.wanted = true,
    };
    const sw_status st = sw_initialize(&options, &engine);
    sw_close(engine);
    return st;
}

static void expect(sw_status st, const char *why)
{
    const char *message = sw_error_message();
    if (!why && st >= 0) {
        return;
    }
    if (!why || st != SW_E_CONFIG || !strstr(message, why) || !strstr(message, "from rank") ||
        !strstr(message, "rank 1")) {
        fail_msg("wanted \"%s\", got %d, \"%s\"", why ? why : "success", st, message);
    }
}

static void expect_of_setup(struct setup odd, const char *why)
{
    expect(sw_threads_run(3, 60, open_one, &odd), why);
}

static void configurations_are_compared(void **state)
{
    (void)state;
    expect_of_setup((struct setup){0}, NULL);
    expect_of_setup((struct setup){.set = "optimizer.params.lr=0.02"}, "keys in its configuration");
    expect_of_setup((struct setup){.set = "gradient_clipping=2"}, "keys in its configuration");
    expect_of_setup((struct setup){.set = "spillway.seed=7"}, "keys in its configuration");
    expect_of_setup((struct setup){.set = "spillway.threads=2"}, NULL);
    expect_of_setup((struct setup){.set = "spillway.device_memory=1GiB"}, NULL);
    expect_of_setup((struct setup){.set = "spillway.host_memory=1GiB"}, NULL);
    expect_of_setup((struct setup){.set = "spillway.nvme_space=1GiB"}, NULL);
}

static void models_are_compared(void **state)
{
    (void)state;
    in_folder("dropout.json",
              "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":8,\"n_embd\":8,"
              "\"n_layer\":1,\"n_head\":2,\"embd_pdrop\":0.2}");
    in_folder("path.json",
              "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":8,\"n_embd\":8,"
              "\"n_layer\":1,\"n_head\":2,\"embd_pdrop\":0.1,\"_name_or_path\":\"there\"}");
    expect_of_setup((struct setup){.model = "dropout.json"}, "settings or weights in its model");
    expect_of_setup((struct setup){.model = "path.json"}, NULL);
}

static void export_model(const char *name, const char *from, uint64_t seed)
{
    sw_engine *engine = NULL;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", test_folder(), from);
    const struct sw_engine_options options = {
        .config.text = plain_config, .model.path = path, .seed = seed, .train.wanted = true};
    assert_int_equal(sw_initialize(&options, &engine), SW_OK);
    assert_int_equal(sw_export(engine, in_folder(name, NULL), SW_F32), SW_OK);
    sw_close(engine);
}

static sw_status open_folders(void *ctx, sw_comm *comm)
{
    struct setup both = {.model = ctx};
    sw_engine *engine = NULL;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", test_folder(),
             sw_comm_rank(comm) == 1 ? both.model : "one");
    const struct sw_engine_options options = {.config.text = plain_config,
                                              .model.path = path,
                                              .run.comm = comm,
                                              .seed = 1,
                                              .train.wanted = true};
    const sw_status st = sw_initialize(&options, &engine);
    sw_close(engine);
    return st;
}

static void weights_are_compared(void **state)
{
    (void)state;
    export_model("one", "plain.json", 1);
    export_model("same", "plain.json", 1);
    export_model("other", "plain.json", 2);
    expect(sw_threads_run(2, 60, open_folders, "same"), NULL);
    expect(sw_threads_run(2, 60, open_folders, "other"), "settings or weights in its model");
}

static sw_status open_data(void *ctx, sw_comm *comm)
{
    const struct setup *odd = ctx;
    const bool is_odd = sw_comm_rank(comm) == 1;
    char path[128];
    const char *file = path;
    sw_tokenizer *tokenizer = NULL;
    sw_dataset *dataset = NULL;
    snprintf(path, sizeof path, "%s/%s", test_folder(),
             is_odd && odd->text ? odd->text : "text.txt");
    sw_status st = sw_tokenizer_open_chars_of(&file, 1, false, &tokenizer);
    const struct sw_dataset_options options = {.files = &file,
                                               .n_files = 1,
                                               .val_fraction = 0.1,
                                               .tokenizer = tokenizer,
                                               .seq_len = 8,
                                               .seed = 1};
    st = st < 0 ? st : sw_dataset_open(&options, &dataset);
    struct sw_job_rows rows = {0};
    const struct sw_config config = {0};
    const struct sw_engine_facts facts = {.config = &config,
                                          .sizes = {{[SW_DIM_BATCH] = 2, [SW_DIM_TOKENS] = 8}}};
    st = st < 0 ? st : sw_job_rows_open(sw_task_of("causal"), &facts, 1, &rows);
    st = st < 0 ? st : sw_job_agree(comm, dataset, &rows, is_odd && odd->set ? odd->set : "5 0");
    sw_job_rows_close(&rows);
    sw_dataset_close(dataset);
    sw_tokenizer_close(tokenizer);
    return st;
}

static void data_and_flags_are_compared(void **state)
{
    (void)state;
    static const char text[] = "a text of some length that all of the ranks read in the same way, "
                               "with enough of it for some samples to be held back; and so on.";
    char other[sizeof text];
    memcpy(other, text, sizeof text);
    other[77] = 'z' == other[77] ? 'y' : other[78]; /* a character that the text already has */
    other[78] = text[77];
    in_folder("text.txt", text);
    in_folder("copy.txt", text);
    in_folder("other.txt", other);
    struct setup odd = {0};
    expect(sw_threads_run(3, 60, open_data, &odd), NULL);
    odd.text = "copy.txt";
    expect(sw_threads_run(3, 60, open_data, &odd), NULL);
    odd.text = "other.txt";
    expect(sw_threads_run(3, 60, open_data, &odd), "has different data");
    odd = (struct setup){.set = "6 0"};
    expect(sw_threads_run(3, 60, open_data, &odd), "has different flags");
}

static int make_folder(void **state)
{
    (void)state;
    in_folder("plain.json", plain_model);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(configurations_are_compared),
    cmocka_unit_test(models_are_compared),
    cmocka_unit_test(weights_are_compared),
    cmocka_unit_test(data_and_flags_are_compared),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_folder};
