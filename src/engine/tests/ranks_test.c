// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1200
// COST 60
// SLOW SPILLWAY_RANKS=all
// ZeRO over ranks that are threads. Stages 0, 1, 2 and 3 have equal bits, and any number of ranks
// equals one. This holds for every precision, dropout, clipping, tied and frozen tensors, odd
// sizes, and more ranks than micro-batches. A checkpoint resumes on any other number of ranks and
// at any other stage to the same bits. Each pair of choices is covered; SPILLWAY_RANKS=all covers
// all combinations.
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 7, V = 37, MAX_RANKS = 8, MAX_K = 8, MAX_ELEMS = 1 << 16 };
enum { STEPS = 3 }; /* the last step reads the update of an update */

static const char model_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":37,"
    "\"n_positions\":11,\"n_embd\":21,\"n_layer\":2,\"n_head\":3,\"n_inner\":29,\"embd_pdrop\":0.1,"
    "\"attn_pdrop\":0.1,\"resid_pdrop\":0.1}";
static char model_path[96];
static int vocab = V; /* of the model in model_path */
static bool all;      /* runs all combinations, instead of each pair of choices */

/* ---- one training ---- */

struct job {
    int ranks, stage, k;
    int64_t first_step, n_steps;
    const char *precision, *load, *save, *more;
    const char *zero; /* further keys of zero_optimization */
    bool lamb, coded; /* LAMB; AdamW with 8-bit moments; or plain AdamW */
    bool verify, offloads, no_clipping;
    bool sparse; /* sends rows of gradients */
    bool uneven; /* rank 0 has no budget */
    int n_tiled;
    /* results */
    double losses[32], norms[32];
    uint64_t weights;
    int64_t sent; /* bytes in the last step */
};

struct rank {
    struct job *job;
    float *weights; /* shared array of the whole model */
};

static void fill(int32_t *ids, int32_t *labels, int64_t micro)
{
    for (int i = 0; i < B * T; i++) {
        const uint64_t at = (uint64_t)(micro * B * T + i);
        ids[i] = (int32_t)(sw_philox_u64(9, 1, at) % (uint64_t)vocab);
        labels[i] = i % 5 == micro % 5 ? -100 : (int32_t)(sw_philox_u64(9, 2, at) % V);
    }
}

static sw_status one_step(sw_engine *e, const struct job *job, int64_t step,
                          struct sw_step_report *report)
{
    int32_t ids[MAX_K][B * T], labels[MAX_K][B * T];
    struct sw_tensor tensors[MAX_K][2];
    struct sw_batch batches[MAX_K];
    const struct sw_shape shape = {2, {B, T}};
    int n = 0;
    for (int k = e->data.rank; k < job->k; k += e->data.size, n++) {
        fill(ids[n], labels[n], step * job->k + k);
        tensors[n][0] =
            (struct sw_tensor){"input_ids", {.data = ids[n], .dtype = SW_I32, .shape = shape}};
        tensors[n][1] =
            (struct sw_tensor){"labels", {.data = labels[n], .dtype = SW_I32, .shape = shape}};
        batches[n] = (struct sw_batch){tensors[n], 2};
        if (!sw_engine_runs_at_once(e)) {
            SW_TRY(sw_forward(e, &batches[n], NULL));
            SW_TRY(sw_backward(e));
        }
    }
    return sw_engine_runs_at_once(e) ? sw_train_batch(e, batches, n, report) : sw_step(e, report);
}

/* Bytes that one step sends to other ranks by the plan, plus the losses. */
static int64_t planned_bytes(const sw_engine *e)
{
    const struct sw_program *program = &e->plan->programs[0];
    int64_t sum = e->sizes.rounds * 2 * (int64_t)sizeof(double);
    sum += e->plan->update.two_slots ? (int64_t)sizeof(int64_t) : 0; /* the vote on the step */
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const bool once = program->micro_batches > 1 || instr->last_only || instr->turn.once ||
                          instr->segment >= SW_SEGMENT_UPDATE;
        if (instr->verb >= SW_VERB_REDUCE) {
            sum += (once ? 1 : e->sizes.rounds) * sw_instr_sent_bytes(instr);
        }
    }
    return sum * (e->data.size - 1);
}

static int64_t sent_bytes(const sw_comm *comm)
{
    struct sw_traffic traffic;
    int64_t sum = 0;
    sw_comm_traffic(comm, &traffic);
    for (int op = 0; op < SW_COMM_OP_COUNT; op++) {
        sum += traffic.sent[op];
    }
    return sum;
}

/* One number that depends on every transfer between tiers. */
static int64_t weigh(const struct sw_transfers *t)
{
    int64_t sum = 0;
    for (int tier = 0; tier < SW_TIER_COUNT; tier++) {
        sum = sum * 3 + t->in[tier] * 7 + t->out[tier];
    }
    return sum;
}

static int64_t moved_bytes(const sw_engine *e)
{
    struct sw_transfers moved;
    sw_executor_transferred(e->executor, &moved);
    return weigh(&moved);
}

static int64_t planned_moves(const sw_engine *e)
{
    const struct sw_transfers t = sw_plan_transfers(e->plan, e->sizes.rounds);
    return weigh(&t);
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct rank *r = ctx;
    struct job *job = r->job;
    char config[1024];
    const bool limited =
        (job->ranks > 1 || job->stage == 3) && !(job->uneven && sw_comm_rank(comm) == 0);
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": %d, %s%s \"gradient_clipping\": %s, "
        "\"zero_optimization\": {\"stage\": %d, \"stage3_param_persistence_threshold\": 30%s}, "
        "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1%s}}, "
        "\"spillway\": {\"micro_batches\": %d, \"threads\": 1, \"decay_1d\": false, %s"
        "\"frozen\": [\"*.h.1.ln_2.weight\"]%s}}",
        B, job->sparse ? "\"sparse_gradients\": true, " : "", job->precision,
        job->no_clipping ? "0" : "0.5", job->stage, job->zero ? job->zero : "",
        job->lamb    ? "Lamb"
        : job->coded ? "AdamW8bit"
                     : "AdamW",
        job->lamb    ? ", \"min_coeff\": 0"
        : job->coded ? ", \"min_8bit_size\": 100"
                     : "",
        job->k, limited ? "\"device_memory\": \"1GiB\", " : "", job->more);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = model_path,
                                              .inputs.seq_len = T,
                                              .run = {.comm = comm, .verify = job->verify},
                                              .seed = 5,
                                              .train.wanted = true};
    sw_engine *e = NULL;
    sw_status st = sw_initialize(&options, &e);
    if (st >= 0 && e->plan->n_tiled != job->n_tiled) {
        st = SW_FAIL(SW_E_ARG, "%d ranks: %d parameters in tiles, wanted %d", job->ranks,
                     e->plan->n_tiled, job->n_tiled);
    }
    const bool offloads = job->zero && strstr(job->zero, "offload_param");
    const bool blocks = job->zero && strstr(job->zero, "\"overlap_comm\": false");
    const bool brings = offloads ? job->ranks == 1 || !blocks : job->ranks > 1 && !job->zero;
    const bool stays = job->stage == 3 && brings && job->k > job->ranks && job->n_tiled == 0 &&
                       !strstr(job->more, "vertical") && !job->uneven;
    if (st >= 0 && stays != (e->plan->programs[0].peak.kept_bytes > 0) && (stays || job->uneven)) {
        st = SW_FAIL(SW_E_ARG, "%d ranks: weights %s for all micro-batches", job->ranks,
                     stays ? "do not stay" : "stay");
    }
    if (st >= 0 && job->load) {
        st = sw_load(e, job->load);
    }
    for (int64_t i = 0; st >= 0 && i < job->n_steps; i++) {
        struct sw_step_report report;
        const int64_t before = sent_bytes(comm), moved = moved_bytes(e);
        const bool complete = !e->plan->update.in_forward || sw_executor_is_due(e->executor);
        st = one_step(e, job, job->first_step + i, &report);
        const int64_t sent = sent_bytes(comm) - before, planned = planned_bytes(e);
        if (st >= 0 && job->ranks > 1 && !report.skipped &&
            (job->sparse ? sent > planned || sent < planned / 2 : sent != planned)) {
            st = SW_FAIL(SW_E_ARG, "stage %d, %d ranks: a step sent %lld bytes, planned were %lld",
                         job->stage, job->ranks, (long long)sent, (long long)planned);
        }
        if (st >= 0 && complete && !report.skipped && moved_bytes(e) - moved != planned_moves(e)) {
            st = SW_FAIL(SW_E_ARG,
                         "stage %d, %d ranks: other bytes moved between tiers than planned",
                         job->stage, job->ranks);
        }
        if (st >= 0 && job->offloads && planned_moves(e) == 0) {
            st = SW_FAIL(SW_E_ARG, "stage %d: offloaded in name only", job->stage);
        }
        if (st >= 0 && sw_comm_rank(comm) == 0) {
            job->sent = sent;
            job->losses[job->first_step + i] = report.loss;
            job->norms[job->first_step + i] = report.grad_norm;
        }
    }
    if (st >= 0 && job->save) {
        const struct sw_save_options save = {.val_loss = NAN};
        st = sw_save(e, job->save, &save);
    }
    st = st < 0 ? st : test_owned_weights(e, r->weights, MAX_ELEMS);
    sw_close(e);
    return st;
}

static void run(struct job *job)
{
    static float weights[MAX_ELEMS];
    struct rank rank = {job, weights};
    memset(weights, 0, sizeof weights);
    if (sw_threads_run(job->ranks, 600, train, &rank) < 0) {
        fail_msg("%s", sw_error_message());
    }
    job->weights = sw_hash(SW_HASH_INIT, weights, sizeof weights);
}

static void assert_same(const struct job *a, const struct job *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (a->losses[i] != b->losses[i] || a->norms[i] != b->norms[i]) {
            fail_msg("%d ranks stage %d, %d ranks stage %d, step %lld: loss %.17g and %.17g, norm "
                     "%.17g and %.17g",
                     a->ranks, a->stage, b->ranks, b->stage, (long long)i, a->losses[i],
                     b->losses[i], a->norms[i], b->norms[i]);
        }
    }
    if (a->weights != b->weights) {
        fail_msg("%d ranks stage %d, %d ranks stage %d: weights differ", a->ranks, a->stage,
                 b->ranks, b->stage);
    }
}

static const char *const precisions[] = {
    "", "\"bf16\": {\"enabled\": true},",
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 19, \"loss_scale_window\": 3},"};

/* Runs the job of one rank again, on these ranks. */
static void assert_same_at(const struct job *one, int ranks, int stage)
{
    struct job many = *one;
    many.ranks = ranks;
    many.stage = stage;
    run(&many);
    assert_same(one, &many, STEPS);
}

static void any_ranks_and_stage_give_the_bits_of_one(void **state)
{
    (void)state;
    static const int counts[] = {2, 3, 4, 8};
    static const int ks[] = {8, 6, 2};
    int n_runs = 0;
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        for (size_t k = 0; k < SW_LEN(ks); k++) {
            struct job one = {
                .ranks = 1, .k = ks[k], .n_steps = STEPS, .precision = precisions[p], .more = ""};
            run(&one);
            assert_true(isfinite(one.losses[STEPS - 1]));
            for (size_t c = 0; c < SW_LEN(counts); c++) {
                for (int stage = 0; stage < 4; stage++) {
                    if (!all &&
                        !(p == (c + (size_t)stage) % 3 && k == (c + 2 * (size_t)stage) % 3)) {
                        continue;
                    }
                    assert_same_at(&one, counts[c], stage);
                    n_runs++;
                }
            }
        }
    }
    assert_int_equal(n_runs, all ? 144 : 16);
}

static void recomputation_and_token_mean_too(void **state)
{
    (void)state;
    static const char *const more[] = {", \"recompute\": \"blocks\"", ", \"loss\": \"tokens\""};
    for (size_t i = 0; i < SW_LEN(more); i++) {
        struct job one = {
            .ranks = 1, .k = 5, .n_steps = STEPS, .precision = precisions[1], .more = more[i]};
        run(&one);
        for (int stage = 0; stage < 4; stage++) {
            assert_same_at(&one, 3, stage);
        }
    }
}

/* One table is untied and much larger than a micro-batch's lookups. The other is small, with shards
 * shorter than its rows might be. */
static void rows_travel_where_that_is_shorter(void **state)
{
    (void)state;
    static const char wide_json[] =
        "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":211,"
        "\"n_positions\":11,\"n_embd\":21,\"n_layer\":2,\"n_head\":3,\"n_inner\":29,"
        "\"embd_pdrop\":0.1,\"tie_word_embeddings\":false}";
    char small_path[96];
    strcpy(small_path, model_path);
    snprintf(model_path, sizeof model_path, "%s/wide.json", test_folder());
    assert_int_equal(sw_file_write_atomic(model_path, wide_json, strlen(wide_json)), SW_OK);
    vocab = 211;
    for (int i = 0; i < 8; i++) {
        const int k = i % 2 ? 5 : 8;
        struct job one = {.ranks = 1,
                          .k = k,
                          .n_steps = STEPS,
                          .precision = precisions[i % 3],
                          .more = i == 5 ? ", \"schedule\": \"vertical\"" : "",
                          .zero = i == 6 ? ", \"overlap_comm\": true" : "",
                          .verify = true,
                          .sparse = true};
        run(&one);
        for (int ranks = 2; ranks <= 4; ranks++) {
            struct job dense = one, rows = one;
            rows.ranks = dense.ranks = ranks;
            rows.stage = dense.stage = (i + ranks) % 4;
            dense.sparse = false;
            run(&dense);
            run(&rows);
            assert_same(&one, &dense, STEPS);
            assert_same(&one, &rows, STEPS);
            assert_true(rows.sent < dense.sent);
        }
    }
    strcpy(model_path, small_path);
    vocab = V;
    struct job dense = {.ranks = 4, .k = 8, .n_steps = 2, .precision = "", .more = "", .stage = 2};
    struct job rows = dense;
    rows.sparse = true;
    run(&dense);
    run(&rows);
    assert_same(&dense, &rows, 2);
    assert_int_equal(dense.sent, rows.sent);
}

/* Prefetch distance, batching and overlap with computation change no bit. Freed bytes are poisoned,
 * so reading data before it arrives gives NaN. */
static void overlap_changes_no_bit(void **state)
{
    (void)state;
    static const char *const zero[] = {
        ", \"overlap_comm\": true",
        ", \"overlap_comm\": false",
        ", \"overlap_comm\": true, \"stage3_prefetch_bucket_size\": 0",
        ", \"overlap_comm\": true, \"stage3_prefetch_bucket_size\": 3000, "
        "\"reduce_bucket_size\": 1000",
        ", \"overlap_comm\": true, \"stage3_max_live_parameters\": 1, \"allgather_bucket_size\": "
        "700",
        ", \"overlap_comm\": false, \"reduce_bucket_size\": 1, \"allgather_bucket_size\": 0",
    };
    struct job one = {.ranks = 1, .k = 5, .n_steps = STEPS, .precision = precisions[1], .more = ""};
    run(&one);
    for (size_t z = 0; z < SW_LEN(zero); z++) {
        for (int stage = 0; stage < 4; stage++) {
            struct job many = one;
            many.ranks = 2 + (int)(z % 2);
            many.stage = stage;
            many.zero = zero[z];
            many.verify = true;
            run(&many);
            assert_same(&one, &many, STEPS);
        }
    }
}

static void offload_changes_no_bit(void **state)
{
    (void)state;
    static const struct {
        int first_stage;
        const char *zero;
    } ways[] = {
        {1, ", \"offload_optimizer\": {\"device\": \"cpu\"}"},
        {3, ", \"offload_param\": {\"device\": \"cpu\"}"},
        {3, ", \"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": "
            "\"cpu\"}"},
        {3, ", \"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": "
            "\"cpu\"}, "
            "\"overlap_comm\": false"},
    };
    static const char *const more[] = {"", ", \"recompute\": \"blocks\""};
    int n_runs = 0;
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        for (int lamb = 0; lamb < 2; lamb++) {
            for (int k = 1; k <= 5; k += 4) {
                struct job one = {.ranks = 1,
                                  .k = k,
                                  .n_steps = STEPS,
                                  .precision = precisions[p],
                                  .more = "",
                                  .lamb = lamb};
                run(&one);
                for (size_t w = 0; w < SW_LEN(ways); w++) {
                    for (int stage = ways[w].first_stage; stage <= 3; stage++) {
                        const int place = (int)w + stage; /* 1 .. 6 */
                        if (!all &&
                            !(lamb == (place + (int)p) % 2 && k / 4 == (place / 2 + (int)p) % 2)) {
                            continue;
                        }
                        struct job off = one;
                        off.ranks = 1 + (place + (int)p) % 3;
                        off.stage = stage;
                        off.zero = ways[w].zero;
                        off.more = more[(stage + (int)p) % 2];
                        off.verify = off.offloads = true;
                        run(&off);
                        assert_same(&one, &off, STEPS);
                        n_runs++;
                    }
                }
            }
        }
    }
    assert_int_equal(n_runs, all ? 72 : 18);
}

/* The same on disk, with tensors of all sizes; no file remains. K = 5 on 2 ranks leaves a rank
 * idle, while the other rank needs its shards. */
static void disk_changes_no_bit(void **state)
{
    (void)state;
    char zero[3][512];
    snprintf(zero[0], sizeof zero[0],
             ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}",
             test_folder());
    snprintf(zero[1], sizeof zero[1],
             ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
             "\"offload_param\": "
             "{\"device\": \"nvme\", \"nvme_path\": \"%s\"}",
             test_folder(), test_folder());
    snprintf(
        zero[2], sizeof zero[2],
        ", \"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": \"nvme\", "
        "\"nvme_path\": [\"%s\"]}",
        test_folder());
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        struct job one = {.ranks = 1,
                          .k = 5,
                          .n_steps = 3,
                          .precision = precisions[p],
                          .more = "",
                          .lamb = p == 2};
        run(&one);
        for (size_t w = 0; w < SW_LEN(zero); w++) {
            struct job off = one;
            off.ranks = 1 + (int)(w + p) % 2;
            off.stage = 3;
            off.zero = zero[w];
            off.verify = off.offloads = true;
            run(&off);
            assert_same(&one, &off, 3);
        }
    }
    char command[256];
    snprintf(command, sizeof command, "ls %s | grep -c swap", test_folder());
    assert_int_not_equal(system(command), 0); /* grep finds no match */
}

/* Tables in tiles, each sharded and gathered alone: five and two tiles, or three. Some ranks hold
 * only padding of the last tile. A checkpoint from tiles resumes without tiles, and the reverse. */
static void tiles_change_no_bit(void **state)
{
    (void)state;
    char path[128], nvme[512];
    static const char whole[] = ", \"loss_chunk\": 8";
    static const char *const more[] = {
        ", \"loss_chunk\": 8, \"tile_bytes\": 700",
        ", \"loss_chunk\": 8, \"tile_bytes\": 700, \"recompute\": \"blocks\"",
        ", \"loss_chunk\": 8, \"tile_bytes\": 700, \"schedule\": \"vertical\"",
    };
    snprintf(path, sizeof path, "%s/tiles", test_folder());
    snprintf(nvme, sizeof nvme,
             ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
             "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}",
             test_folder(), test_folder());
    const char *const zero[] = {
        ", \"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": "
        "\"cpu\"}",
        ", \"sub_group_size\": 16, \"stage3_prefetch_bucket_size\": 0, \"offload_optimizer\": "
        "{\"device\": \"cpu\"}, \"offload_param\": {\"device\": \"cpu\"}",
        nvme,
    };
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        for (int k = 1; k <= 5; k += 4) {
            for (int way = 0; way < 4; way++) { /* with and without clipping, AdamW and LAMB */
                if (((int)p + way + k / 4) % 2 != 0) {
                    continue; /* each pair of choices, not each triple */
                }
                struct job one = {.ranks = 1,
                                  .k = k,
                                  .n_steps = 4,
                                  .precision = precisions[p],
                                  .more = whole,
                                  .no_clipping = !(way & 1),
                                  .lamb = way & 2};
                run(&one);
                for (int ranks = 1 + ((int)p + way / 2) % 2; ranks <= 4; ranks += 2) {
                    struct job tiled = one;
                    tiled.ranks = ranks == 4 ? 8 : ranks;
                    tiled.stage = 3;
                    tiled.zero = zero[(ranks + way + k) % 3];
                    tiled.more = more[(ranks + (int)p) % 3];
                    tiled.n_tiled = p == 0 ? 2 : 1;
                    tiled.verify = tiled.offloads = true;
                    run(&tiled);
                    assert_same(&one, &tiled, 4);
                    struct job other = one;
                    other.ranks = 1 + ranks % 3;
                    struct job first = (k + ranks) % 2 ? other : tiled;
                    struct job rest = (k + ranks) % 2 ? tiled : other;
                    first.n_steps = 2;
                    first.save = path;
                    run(&first);
                    memcpy(rest.losses, first.losses, sizeof rest.losses);
                    memcpy(rest.norms, first.norms, sizeof rest.norms);
                    rest.first_step = rest.n_steps = 2;
                    rest.load = path;
                    run(&rest);
                    assert_same(&one, &rest, 4);
                }
            }
        }
    }
    test_remove(path);
}

/* This order of the sum gives the same bits at both stages that have it. With one micro-batch per
 * rank it is the canonical order. */
/* If weights could stay on some ranks only, they stay on none. */
static void budgets_may_differ(void **state)
{
    (void)state;
    struct job one = {
        .ranks = 1, .k = MAX_K, .n_steps = STEPS, .precision = "", .more = "", .uneven = true};
    run(&one);
    assert_same_at(&one, 2, 3);
    assert_same_at(&one, 4, 3);
}

static void boundary_sums_travel_once(void **state)
{
    (void)state;
    static const char *const wide = ", \"reduce\": \"boundary\"";
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        for (int ranks = 2; ranks <= 3; ranks++) {
            struct job canonical = {
                .ranks = ranks, .k = 5, .n_steps = STEPS, .precision = precisions[p], .more = ""};
            struct job zero = canonical;
            zero.more = wide;
            zero.verify = true;
            struct job one = zero;
            one.stage = 1;
            run(&canonical);
            run(&zero);
            run(&one);
            assert_same(&zero, &one, STEPS);
            for (int i = 0; i < 4; i++) {
                assert_true(fabs(zero.losses[i] - canonical.losses[i]) < 0.05);
            }
        }
        struct job canonical = {
            .ranks = 3, .k = 3, .n_steps = 3, .precision = precisions[p], .more = ""};
        struct job same = canonical;
        same.more = wide;
        run(&canonical);
        run(&same);
        assert_same(&canonical, &same, 3);
    }
}

/* The vertical schedule gives the same bits and the planned bytes, also with idle ranks (K = 8 on
 * 3, K = 5 on 2). */
static void vertically_too(void **state)
{
    (void)state;
    static const char *const more[] = {
        ", \"schedule\": \"vertical\"",
        ", \"schedule\": \"vertical\", \"recompute\": \"blocks\"",
        ", \"schedule\": \"vertical\", \"recompute\": 2",
    };
    static const char *const zero[] = {
        "",
        ", \"overlap_comm\": false",
        ", \"overlap_comm\": true, \"stage3_prefetch_bucket_size\": 3000, "
        "\"reduce_bucket_size\": 1000",
    };
    static const int ks[] = {8, 5, 2};
    int n_runs = 0;
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        for (size_t k = 0; k < SW_LEN(ks); k++) {
            struct job one = {.ranks = 1,
                              .k = ks[k],
                              .n_steps = STEPS,
                              .precision = precisions[p],
                              .more = "",
                              .lamb = (p + k) % 2 != 0};
            run(&one);
            for (int ranks = 1; ranks <= 4; ranks++) {
                for (int stage = 0; stage < 4; stage++) {
                    if (!all &&
                        !((int)p == (ranks + stage) % 3 && (int)k == (ranks + 2 * stage) % 3)) {
                        continue;
                    }
                    struct job vertical = one;
                    vertical.ranks = ranks;
                    vertical.stage = stage;
                    vertical.more = more[((int)p + ranks + stage) % 3];
                    vertical.zero = zero[((int)k + stage) % 3];
                    vertical.verify = true;
                    run(&vertical);
                    assert_same(&one, &vertical, STEPS);
                    n_runs++;
                }
            }
        }
    }
    assert_int_equal(n_runs, all ? 144 : 16);
}

static void vertically_from_other_tiers(void **state)
{
    (void)state;
    char zero[3][512];
    snprintf(zero[0], sizeof zero[0], ", \"offload_optimizer\": {\"device\": \"cpu\"}");
    snprintf(zero[1], sizeof zero[1],
             ", \"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": "
             "\"cpu\"}");
    snprintf(zero[2], sizeof zero[2],
             ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
             "\"offload_param\": "
             "{\"device\": \"nvme\", \"nvme_path\": \"%s\"}",
             test_folder(), test_folder());
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        struct job one = {.ranks = 1,
                          .k = 5,
                          .n_steps = STEPS,
                          .precision = precisions[p],
                          .more = "",
                          .lamb = p == 1};
        run(&one);
        for (int ranks = 1; ranks <= 3; ranks++) {
            for (size_t w = 0; w < SW_LEN(zero); w++) {
                struct job off = one;
                off.ranks = ranks;
                off.stage = 3;
                off.zero = zero[w];
                off.more = w == 1 ? ", \"schedule\": \"vertical\", \"recompute\": \"blocks\""
                                  : ", \"schedule\": \"vertical\"";
                off.verify = off.offloads = true;
                run(&off);
                assert_same(&one, &off, STEPS);
            }
        }
    }
}

/* A rank adds its own micro-batches first, in the same order: the bits of the horizontal schedule
 * on the same number of ranks. */
static void vertical_boundary_sums(void **state)
{
    (void)state;
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        for (int stage = 0; stage < 2; stage++) {
            struct job horizontal = {.ranks = 3,
                                     .stage = stage,
                                     .k = 8,
                                     .n_steps = STEPS,
                                     .precision = precisions[p],
                                     .more = ", \"reduce\": \"boundary\""};
            struct job vertical = horizontal;
            vertical.more = ", \"reduce\": \"boundary\", \"schedule\": \"vertical\"";
            vertical.verify = true;
            run(&horizontal);
            run(&vertical);
            assert_same(&horizontal, &vertical, STEPS);
        }
    }
}

static void any_ranks_and_stage_have_the_bits_of_one(bool lamb, bool coded)
{
    static const int counts[] = {2, 3, 8};
    int n_runs = 0;
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        struct job one = {.ranks = 1,
                          .k = 6,
                          .n_steps = STEPS,
                          .precision = precisions[p],
                          .more = "",
                          .lamb = lamb,
                          .coded = coded};
        run(&one);
        assert_true(isfinite(one.losses[4]));
        for (size_t c = 0; c < SW_LEN(counts); c++) {
            for (int stage = 0; stage < 4; stage++) {
                if (!all && p != (c + (size_t)stage) % 3) {
                    continue;
                }
                assert_same_at(&one, counts[c], stage);
                n_runs++;
            }
        }
    }
    assert_int_equal(n_runs, all ? 36 : 12);
}

/* The trust ratio covers the whole tensor, so sharding must not change it. Small weights have small
 * ratios; the test removes the lower bound, so that each ratio matters. */
static void lamb_too(void **state)
{
    (void)state;
    any_ranks_and_stage_have_the_bits_of_one(true, false);
}

/* A scale covers a run of elements, and no shard boundary splits it. */
static void moments_of_8_bits_too(void **state)
{
    (void)state;
    any_ranks_and_stage_have_the_bits_of_one(false, true);
}

static void goes_on(const char *precision, bool lamb, bool coded)
{
    static const int counts[] = {1, 2, 3, 8};
    char path[128];
    snprintf(path, sizeof path, "%s/save", test_folder());
    struct job never = {.ranks = 1,
                        .k = 4,
                        .n_steps = 6,
                        .precision = precision,
                        .more = "",
                        .lamb = lamb,
                        .coded = coded};
    run(&never);
    struct job first = never;
    first.ranks = 4;
    first.stage = 3;
    first.n_steps = 3;
    first.save = path;
    run(&first);
    for (size_t c = 0; c < SW_LEN(counts); c++) {
        struct job again = first;
        again.ranks = counts[c];
        again.stage = (int)c;
        again.first_step = 3;
        again.save = NULL;
        again.load = path;
        run(&again);
        assert_same(&never, &again, 6);
    }
    test_remove(path);
}

static void a_checkpoint_goes_on_at_any_ranks_and_stage(void **state)
{
    (void)state;
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        goes_on(precisions[p], false, false);
        goes_on(precisions[p], true, false);
        goes_on(precisions[p], false, true);
    }
}

static int make_files(void **state)
{
    (void)state;
    all = getenv("SPILLWAY_RANKS") != NULL;
    test_put("config.json", model_json);
    snprintf(model_path, sizeof model_path, "%s/config.json", test_folder());
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(any_ranks_and_stage_give_the_bits_of_one),
    cmocka_unit_test(recomputation_and_token_mean_too),
    cmocka_unit_test(rows_travel_where_that_is_shorter),
    cmocka_unit_test(overlap_changes_no_bit),
    cmocka_unit_test(offload_changes_no_bit),
    cmocka_unit_test(disk_changes_no_bit),
    cmocka_unit_test(tiles_change_no_bit),
    cmocka_unit_test(budgets_may_differ),
    cmocka_unit_test(boundary_sums_travel_once),
    cmocka_unit_test(vertically_too),
    cmocka_unit_test(vertically_from_other_tiers),
    cmocka_unit_test(vertical_boundary_sums),
    cmocka_unit_test(lamb_too),
    cmocka_unit_test(moments_of_8_bits_too),
    cmocka_unit_test(a_checkpoint_goes_on_at_any_ranks_and_stage),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_files};
