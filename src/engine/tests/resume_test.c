// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// Loading checkpoints. Rank 0 chooses for all, and ranks that see another checkpoint are named.
// Bytes changed on disk are detected. A refusal names the changes. Two users of the library in one
// folder leave complete checkpoints.
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "engine/private.h"
#include "spillway/comm.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 8, V = 37, ELEMS = V * 24 };

static char model_path[96];

static const char base_config[] =
    "{\"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": {\"stage\": 2}, \"optimizer\": "
    "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"spillway\": {\"threads\": 1, "
    "\"micro_batches\": 2}}";

static sw_status open_engine(sw_comm *comm, uint64_t seed, const char *const *sets, int n_sets,
                             bool unverified, sw_engine **out)
{
    const struct sw_engine_options options = {
        .config = {.text = base_config, .sets = sets, .n_sets = n_sets},
        .model.path = model_path,
        .inputs.seq_len = T,
        .run = {.comm = comm, .load_unverified = unverified},
        .seed = seed,
        .train.wanted = true,
    };
    return sw_initialize(&options, out);
}

static sw_status train(sw_engine *e, int n_steps)
{
    static const struct sw_shape shape = {2, {B, T}};
    int32_t ids[2][B * T];
    struct sw_tensor tensors[2][2];
    struct sw_batch batches[2];
    for (int s = 0; s < n_steps; s++) {
        int n = 0;
        for (int k = e->data.rank; k < 2; k += e->data.size, n++) {
            for (int i = 0; i < B * T; i++) {
                const uint64_t place = (uint64_t)(((e->progress.step * 2) + k) * B * T + i);
                ids[n][i] = (int32_t)(sw_philox_u64(3, 1, place) % V);
            }
            const struct sw_view view = {.data = ids[n], .dtype = SW_I32, .shape = shape};
            tensors[n][0] = (struct sw_tensor){"input_ids", view};
            tensors[n][1] = (struct sw_tensor){"labels", view};
            batches[n] = (struct sw_batch){tensors[n], 2};
        }
        SW_TRY(sw_train_batch(e, batches, n, NULL));
    }
    return SW_OK;
}

/* ---- ranks ---- */

struct job {
    const char *folders[2]; /* the folder as each rank sees it */
    int n_steps;            /* steps before saving to the first folder; 0 = load instead */
    bool unverified;
    sw_status status[2];
    char message[2][1024];
    int64_t step[2];
};

static sw_status rank_main(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    const int rank = sw_comm_rank(comm);
    sw_engine *e = NULL;
    sw_status st = open_engine(comm, 5, NULL, 0, job->unverified, &e);
    if (st >= 0 && job->n_steps > 0) {
        st = train(e, job->n_steps);
        st = st < 0 ? st : sw_save(e, job->folders[0], NULL);
    } else if (st >= 0) {
        job->status[rank] = sw_load(e, job->folders[rank]);
        snprintf(job->message[rank], sizeof job->message[0], "%s", sw_error_message());
        job->step[rank] = sw_engine_step(e);
        if (job->status[rank] >= 0) { /* both ranks train on */
            st = train(e, 1);
        }
    }
    sw_close(e);
    return st;
}

static void run(struct job *job)
{
    if (sw_threads_run(2, 60, rank_main, job) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static void save(const char *dir, int n_steps)
{
    struct job job = {.folders = {dir}, .n_steps = n_steps};
    run(&job);
}

static void copy(const char *from, const char *to)
{
    char command[512];
    snprintf(command, sizeof command, "cp -r %s %s", from, to);
    assert_int_equal(system(command), 0);
}

static void all_ranks_load_what_rank_0_chose(void **state)
{
    (void)state;
    save(test_at("one"), 2);
    copy(test_at("one"), test_at("two"));
    save(test_at("two"), 4); /* rank 1 also sees a newer checkpoint */
    struct job job = {.folders = {test_at("one"), test_at("two")}};
    run(&job);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(job.status[r], SW_OK);
        assert_int_equal(job.step[r], 2);
    }
}

static void a_rank_with_another_checkpoint_is_named(void **state)
{
    (void)state;
    save(test_at("here"), 3);
    assert_int_equal(mkdir(test_at("elsewhere"), 0777), 0);
    copy(test_at("here/checkpoint-3"), test_at("elsewhere"));
    save(test_at("elsewhere"), 3); /* same name and step, from another save */
    struct job job = {.folders = {test_at("here"), test_at("elsewhere")}};
    run(&job);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(job.status[r], SW_E_PEER);
        assert_non_null(strstr(job.message[r], "rank 1 sees another checkpoint"));
        assert_int_equal(job.step[r], 0);
    }
    struct job missing = {.folders = {test_at("here"), test_at("one")}};
    run(&missing);
    assert_int_equal(missing.status[0], SW_E_PEER);
    assert_non_null(strstr(missing.message[0], "rank 1"));
    assert_non_null(strstr(missing.message[1], "rank 0 chose checkpoint-3"));
}

static void none_is_none_on_all_ranks(void **state)
{
    (void)state;
    struct job job = {.folders = {test_at("nowhere"), test_at("here")}};
    run(&job);
    assert_int_equal(job.status[0], SW_PENDING);
    assert_int_equal(job.status[1], SW_PENDING);
}

/* ---- bytes that changed ---- */

static void flip(const char *path)
{
    const int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, lseek(fd, 0, SEEK_END) - 5), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, lseek(fd, 0, SEEK_END) - 5), 1);
    close(fd);
}

static void damage_is_found_on_load(void **state)
{
    (void)state;
    static const char *const parts[] = {"damaged/checkpoint-2/part-00000.safetensors",
                                        "damaged/checkpoint-2/part-00001.safetensors"};
    save(test_at("damaged"), 2);
    for (int i = 0; i < 2; i++) {
        flip(test_at(parts[i]));
        sw_engine *e = NULL;
        assert_int_equal(open_engine(NULL, 5, NULL, 0, false, &e), SW_OK);
        assert_int_equal(sw_load(e, test_at("damaged")), SW_E_FORMAT);
        assert_non_null(strstr(sw_error_message(), parts[i]));
        assert_non_null(strstr(sw_error_message(), "--no-verify"));
        assert_int_equal(sw_engine_step(e), 0);
        assert_int_equal(train(e, 1), SW_E_ARG); /* the failed load left a mixed state */
        sw_close(e);
        struct job job = {.folders = {test_at("damaged"), test_at("damaged")}};
        run(&job);
        assert_int_equal(job.status[i], SW_E_FORMAT); /* reported by the rank that read it */
        assert_int_equal(job.status[1 - i], SW_E_PEER);
        assert_non_null(strstr(job.message[i], parts[i]));
        struct job trusting = {.folders = {test_at("damaged"), test_at("damaged")},
                               .unverified = true};
        run(&trusting);
        assert_int_equal(trusting.status[0], SW_OK);
        flip(test_at(parts[i]));
    }
    sw_engine *e = NULL;
    assert_int_equal(open_engine(NULL, 5, NULL, 0, false, &e), SW_OK);
    assert_int_equal(sw_load(e, test_at("damaged")), SW_OK);
    sw_close(e);
}

/* ---- what changed ---- */

static void every_changed_key_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *sets[2];
        int n_sets;
        int64_t seq_len;
        uint64_t seed;
        const char *says[3];
    } cases[] = {
        {{"optimizer.params.lr=0.02"}, 1, T, 5, {"optimizer.params.lr 0.01 -> 0.02"}},
        {{"optimizer.params.lr=0.02", "gradient_clipping=0.5"},
         2,
         T,
         5,
         {"optimizer.params.lr 0.01 -> 0.02", "gradient_clipping "}},
        /* the schedule changes no bit, so it is no reason */
        {{"spillway.schedule=vertical"}, 1, T, 6, {"seed 5 -> 6"}},
        {{NULL}, 0, T - 1, 5, {"seq_len 8 -> 7"}},
        {{NULL}, 0, T, 6, {"seed 5 -> 6"}},
        {{"bf16.enabled=true"}, 1, T, 5, {"bf16.enabled false -> true"}},
        {{"spillway.kernels=reference"}, 1, T, 5, {"spillway.kernels ", "kernels cpu"}},
    };
    save(test_at("keys"), 1);
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        const struct sw_engine_options options = {
            .config = {.text = base_config, .sets = cases[i].sets, .n_sets = cases[i].n_sets},
            .model.path = model_path,
            .inputs.seq_len = cases[i].seq_len,
            .seed = cases[i].seed,
            .train.wanted = true,
        };
        sw_engine *e = NULL;
        assert_int_equal(sw_initialize(&options, &e), SW_OK);
        assert_int_equal(sw_load(e, test_at("keys")), SW_E_CONFIG);
        for (int k = 0; k < 3 && cases[i].says[k]; k++) {
            if (!strstr(sw_error_message(), cases[i].says[k])) {
                fail_msg("\"%s\", wanted \"%s\"", sw_error_message(), cases[i].says[k]);
            }
        }
        assert_non_null(strstr(sw_error_message(), "allow_other_math"));
        assert_null(strstr(sw_error_message(), "weight_decay")); /* it did not change */
        assert_null(strstr(sw_error_message(), "schedule"));
        assert_true(cases[i].seq_len != T || train(e, 1) == SW_OK); /* the engine is still usable */
        sw_close(e);
    }
}

/* ---- the loss scale ---- */

/* Trains two steps with the first settings. Returns the scaler after loading with the others. */
static struct sw_scaler resume_scaler(const char *dir, const char *const *was, int n_was,
                                      const char *const *is, int n_is)
{
    sw_engine *e = NULL;
    assert_int_equal(open_engine(NULL, 5, was, n_was, false, &e), SW_OK);
    assert_int_equal(train(e, 2), SW_OK);
    assert_int_equal(sw_save(e, dir, NULL), SW_OK);
    sw_close(e);
    assert_int_equal(open_engine(NULL, 5, is, n_is, false, &e), SW_OK);
    assert_int_equal(sw_load(e, dir), SW_OK);
    const struct sw_scaler scaler = e->optimizer.scaler;
    assert_int_equal(train(e, 1), SW_OK);
    sw_close(e);
    return scaler;
}

static void a_static_loss_scale_is_the_configurations(void **state)
{
    (void)state;
    static const char *const dynamic[] = {"fp16.enabled=true", "fp16.initial_scale_power=10"};
    static const char *const fixed[] = {"fp16.enabled=true", "fp16.loss_scale=128"};
    static const char *const other[] = {"fp16.enabled=true", "fp16.initial_scale_power=8"};
    sw_log_set_level(SW_LOG_ERROR); /* a change is a warning */
    assert_true(resume_scaler(test_at("to_static"), dynamic, 2, fixed, 2).scale == 128);
    assert_true(resume_scaler(test_at("to_dynamic"), fixed, 2, other, 2).scale == 256);
    assert_true(resume_scaler(test_at("still_dynamic"), dynamic, 2, other, 2).scale == 1024);
    sw_log_set_level(SW_LOG_WARN);
}

static void a_dynamic_loss_scale_begins_anew_after_another_dtype(void **state)
{
    (void)state;
    static const char *const bf16[] = {"bf16.enabled=true"};
    static const char *const fp16[] = {"fp16.enabled=true", "fp16.initial_scale_power=9",
                                       "spillway.allow_other_math=true"};
    sw_log_set_level(SW_LOG_ERROR);
    const struct sw_scaler s = resume_scaler(test_at("from_bf16"), bf16, 1, fp16, 3);
    sw_log_set_level(SW_LOG_WARN);
    assert_true(s.scale == 512);
    assert_int_equal(s.hysteresis_left, 2);
    assert_int_equal(s.iteration, 0);
    assert_int_equal(s.last_overflow, -1);
}

/* ---- two users of the library ---- */

struct user {
    uint64_t seed;
    sw_engine *engine;
    sw_status status;
};

static void *save_often(void *arg)
{
    struct user *user = arg;
    for (int i = 0; i < 8 && user->status >= 0; i++) {
        user->status = sw_save(user->engine, test_at("shared"), NULL);
    }
    return NULL;
}

static void two_users_in_one_folder_leave_whole_checkpoints(void **state)
{
    (void)state;
    struct user users[2] = {{.seed = 7}, {.seed = 8}};
    pthread_t threads[2];
    sw_log_set_level(SW_LOG_ERROR); /* each warns that it waits for the other */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(open_engine(NULL, users[i].seed, NULL, 0, false, &users[i].engine), SW_OK);
        assert_int_equal(train(users[i].engine, 1), SW_OK);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, save_often, &users[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(users[i].status, SW_OK);
    }
    sw_log_set_level(SW_LOG_WARN);
    struct sw_ckpt *ckpt;
    assert_int_equal(sw_ckpt_open(test_at("shared"), &ckpt), SW_OK);
    assert_int_equal(sw_ckpt_verify(ckpt), SW_OK);
    assert_int_equal(sw_ckpt_identity(ckpt).serial, 16); /* no number was used twice */
    const int from = sw_ckpt_meta(ckpt)->seed == 8;
    static float have[ELEMS], want[ELEMS];
    const char *name = "transformer.wte.weight";
    assert_int_equal(sw_ckpt_read(ckpt, sw_ckpt_find(ckpt, name, "master"), NULL, SW_F32, have),
                     SW_OK);
    assert_int_equal(sw_get_weight(users[from].engine, name, 0, ELEMS, want), SW_OK);
    assert_memory_equal(have, want, sizeof have);
    sw_ckpt_close(ckpt);
    sw_close(users[0].engine);
    sw_close(users[1].engine);
}

static int set_up(void **state)
{
    (void)state;
    static const char model[] = "{\"model_type\":\"gpt2\",\"vocab_size\":37,\"n_positions\":16,"
                                "\"n_embd\":24,\"n_layer\":1,\"n_head\":3}";
    snprintf(model_path, sizeof model_path, "%s/config.json", test_folder());
    test_put("config.json", model);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_ranks_load_what_rank_0_chose),
    cmocka_unit_test(a_rank_with_another_checkpoint_is_named),
    cmocka_unit_test(none_is_none_on_all_ranks),
    cmocka_unit_test(damage_is_found_on_load),
    cmocka_unit_test(every_changed_key_is_named),
    cmocka_unit_test(a_static_loss_scale_is_the_configurations),
    cmocka_unit_test(a_dynamic_loss_scale_begins_anew_after_another_dtype),
    cmocka_unit_test(two_users_in_one_folder_leave_whole_checkpoints),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
