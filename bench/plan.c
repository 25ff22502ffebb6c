// SPDX-License-Identifier: Apache-2.0
// Planning time, and its growth with the model. GPT-2 of 32 to 1024 layers is planned on the
// device, at stage 3 on 512 ranks, on NVMe with tiles, and vertically with 64 micro-batches. Models
// of 175B and 1T parameters are planned on one rank with a budget, which includes the search for a
// plan that fits. sw_plan_open of gpt2-tiny is timed alone. No memory for a model is allocated.
// On clusters: each published run ("published"), 1T on 3072 devices in 64 stages ("stages"), and a
// search of 175B on 512 devices ("search") have limits of time, and the first of memory, too.
//
//     bench_plan [--layers 32,64,128,256,512,1024] [--limit-s 120] [--rounds 3]
//         [--case dense|ranks|nvme|vertical|175B|1T|tiny|published|stages|search]
//         [--runs TEXT]
//
// --runs takes published runs whose ids begin with TEXT.
// Each plan is made in its own process, so that it has its own memory peak. A plan that exceeds the
// time limit is given up, and larger ones of its case are skipped. The time is the minimum over the
// rounds; a plan of more than two seconds is made once. The exit status is 1 if an instruction of
// the largest plan takes 1.5 times as long as one of the smallest: growth is then not linear. This
// check needs an idle machine.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine.h"
#include "json/json.h"
#include "model/model.h"
#include "spillway/look.h"

enum { MOST_SIZES = 16, TOKENS = 1024, VOCAB = 50257 };

struct args {
    int layers[MOST_SIZES], n_layers;
    const char *only; /* NULL = all cases */
    const char *runs; /* how ids of published runs begin */
    int64_t limit_s, rounds;
    char folder[64];
};

/* Result, written by the process that plans. */
struct result {
    double seconds;
    int64_t n_instrs, bytes; /* instructions of all programs; peak memory */
    double params;
    bool done;
};

/* ---- the cases ---- */

struct shape {
    int64_t layers, width, heads, tokens, vocab;
};

static const char optimizer[] =
    "\"bf16\": {\"enabled\": true}, \"gradient_clipping\": 1.0, \"optimizer\": "
    "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.0001}}";
static const char on_nvme[] =
    "\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", "
    "\"nvme_path\": \"/tmp\"}, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/tmp\"}}";

/* The width is small, so that only the number of instructions grows. */
static const struct growing {
    const char *name, *what;
    int ranks;
    int micro_batches;       /* per rank */
    const char *zero, *more; /* members of the configuration, and of its block "spillway" */
} growing[] = {
    {"dense", "everything on the device", 1, 1, "\"zero_optimization\": {\"stage\": 0}",
     "\"recompute\": \"none\""},
    {"ranks", "stage 3 on 512 ranks", 512, 1, "\"zero_optimization\": {\"stage\": 3}",
     "\"recompute\": \"blocks\""},
    {"nvme", "all on NVMe, in tiles", 1, 1, on_nvme,
     "\"recompute\": \"blocks\", \"tile_bytes\": \"128KiB\""},
    {"vertical", "64 micro-batches block by block", 1, 64, "\"zero_optimization\": {\"stage\": 0}",
     "\"recompute\": \"blocks\", \"schedule\": \"vertical\""},
};

static const struct large {
    const char *name;
    struct shape shape;
} large[] = {
    {"175B", {96, 12288, 96, TOKENS, VOCAB}},
    {"1T", {128, 25600, 160, TOKENS, VOCAB}},
};
static const char budget[] = "32GiB";

static void model_text(const struct shape *s, char *text, size_t size)
{
    snprintf(text, size,
             "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"vocab_size\": "
             "%lld, \"n_positions\": %lld, \"n_embd\": %lld, \"n_layer\": %lld, \"n_head\": %lld}",
             (long long)s->vocab, (long long)s->tokens, (long long)s->width, (long long)s->layers,
             (long long)s->heads);
}

static void large_config(char *text, size_t size)
{
    snprintf(text, size,
             "{\"train_micro_batch_size_per_gpu\": 1, %s, %s, \"spillway\": {\"recompute\": "
             "\"blocks\"}}",
             optimizer, on_nvme);
}

/* Opens an engine that only plans, like `spillway plan`. *seconds is the minimum over the
 * rounds. */
static sw_status plan(const struct args *args, const struct shape *shape,
                      const struct sw_engine_options *given, struct result *out)
{
    struct sw_engine_options options = *given;
    char path[128], text[512];
    sw_status st = SW_OK;
    snprintf(path, sizeof path, "%s/model.json", args->folder);
    model_text(shape, text, sizeof text);
    SW_TRY(sw_file_write_atomic(path, text, strlen(text)));
    options.model.path = path;
    options.inputs.seq_len = shape->tokens;
    options.plan.only = true;
    for (int64_t round = 0; st >= 0 && round < args->rounds; round++) {
        sw_engine *e = NULL;
        const double begin = sw_now_s();
        st = sw_initialize(&options, &e);
        const double seconds = sw_now_s() - begin;
        if (st >= 0) {
            out->seconds = round == 0 || seconds < out->seconds ? seconds : out->seconds;
            out->n_instrs = 0;
            const struct sw_plan *plan = sw_engine_facts(e).plan;
            for (int p = 0; p < plan->n_programs; p++) {
                out->n_instrs += plan->programs[p].n_instrs;
            }
            out->params = (double)sw_engine_parameters(e);
        }
        sw_close(e);
        if (seconds > 2) {
            break;
        }
    }
    return st;
}

static sw_status plan_growing(const struct args *args, const void *of, int layers,
                              struct result *out)
{
    const struct growing *g = of;
    const struct shape shape = {layers, 256, 4, 64, 512};
    char config[2048];
    sw_comm *comm = NULL;
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": %d, %s, %s, "
             "\"spillway\": {%s}}",
             g->micro_batches, optimizer, g->zero, g->more);
    if (g->ranks > 1) { /* ranks for planning only: nothing is sent */
        const struct sw_transport transport = {.size = g->ranks};
        SW_TRY(sw_comm_open(&transport, &comm));
    }
    const struct sw_engine_options options = {
        .config.text = config, .run.comm = comm, .train.wanted = true};
    const sw_status st = plan(args, &shape, &options, out);
    sw_comm_close(comm, false);
    return st;
}

static sw_status plan_large(const struct args *args, const void *of, int layers, struct result *out)
{
    const struct large *l = of;
    char config[2048], set[64];
    const char *sets[] = {set};
    (void)layers;
    large_config(config, sizeof config);
    snprintf(set, sizeof set, "spillway.device_memory=%s", budget);
    const struct sw_engine_options options = {.config = {.text = config, .sets = sets, .n_sets = 1},
                                              .train.wanted = true};
    return plan(args, &l->shape, &options, out);
}

/* ---- sw_plan_open alone ---- */

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    sw_device_query(ctx, desc, out);
}

static sw_status tiny_graph(const struct sw_model *model, struct sw_graph **out)
{
    const struct sw_graph_options options = {
        .dtype = SW_BF16, .grad_dtype = SW_BF16, .training = true};
    const struct sw_forward_spec forward = {
        .batch = 8, .tokens = model->max_tokens, .has_labels = true};
    sw_value loss = SW_NO_VALUE;
    SW_TRY(sw_graph_open(&options, out));
    model->ops->forward(model, *out, &forward, &loss);
    SW_TRY(sw_graph_status(*out));
    return sw_graph_backward(*out, loss);
}

static sw_status open_tiny(struct sw_device *dev, const struct sw_model *model, struct result *out)
{
    enum { ROUNDS = 50 };
    const struct sw_update_rule adam = {
        .attrs = {.kind = SW_UPDATE_ADAM, .decoupled = true, .bias_correction = true, .eps = 1e-8}};
    const struct sw_plan_options options = {.device = {.query = query, .ctx = dev},
                                            .kernel_set = sw_device_kernel_set(dev),
                                            .policy.micro_batches = 1,
                                            .clip = 1,
                                            .rule = &adam};
    struct sw_graph *g = NULL;
    sw_status st = tiny_graph(model, &g);
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    for (int round = 0; round < ROUNDS && st >= 0; round++) {
        struct sw_plan *p = NULL;
        const double begin = sw_now_s();
        st = sw_plan_open(&spec, 1, &options, &p);
        const double seconds = sw_now_s() - begin;
        if (st >= 0) {
            out->seconds = round == 0 || seconds < out->seconds ? seconds : out->seconds;
            out->n_instrs = p->programs[0].n_instrs;
            sw_plan_close(p);
        }
    }
    sw_graph_close(g);
    return st;
}

static sw_status plan_tiny(const struct args *args, const void *of, int layers, struct result *out)
{
    const struct sw_cpu_options cpu = {.n_threads = 1};
    struct sw_json_doc *doc = NULL;
    struct sw_model *model = NULL;
    struct sw_device *dev = NULL;
    sw_status st = SW_OK;
    (void)args, (void)of, (void)layers;
    SW_TRY_OR(done, sw_model_preset("gpt2-tiny", 0, 0, &doc));
    SW_TRY_OR(done, sw_model_open(doc, NULL, &model));
    SW_TRY_OR(done, sw_device_open_cpu(&cpu, &dev));
    st = open_tiny(dev, model, out);
done:
    sw_device_close(dev);
    sw_model_close(model);
    sw_json_close(doc);
    return st;
}

/* ---- on clusters ---- */

static sw_status plan_published(const struct args *args, const void *of, int layers,
                                struct result *out)
{
    const struct sw_plan_published wanted = {.id = of, .ours = true};
    const double begin = sw_now_s();
    bool missed;
    char *text = NULL;
    (void)args, (void)layers;
    const sw_status st = sw_plan_published_text(&wanted, &missed, &text);
    sw_text_free(text);
    out->seconds = sw_now_s() - begin;
    return st;
}

static const struct on_cluster {
    const char *name, *what, *cluster;
    struct shape shape;
    int64_t nodes;
    double most_s;
    const char *config;
    bool searches;
} on_clusters[] = {
    {"stages",
     "1T on 3072 devices: 64 stages, 512 micro-batches for each replica",
     "dgx-a100-selene",
     {128, 25600, 160, 2048, 51200},
     384,
     30,
     "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 512, "
     "\"fp16\": {\"enabled\": true}, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
     "{\"lr\": 0.0001}}, \"spillway\": {\"recompute\": \"blocks\", \"reduce\": \"boundary\", "
     "\"mesh\": {\"pipe\": 64, \"tensor\": 8}}}",
     false},
    {"search",
     "a search of 175B on 512 devices",
     "azure-ndm-a100-v4",
     {96, 12288, 96, 2048, 51200},
     64,
     120,
     "{\"train_batch_size\": 1536, \"bf16\": {\"enabled\": true}, \"optimizer\": "
     "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.0001}}}",
     true}};

static sw_status plan_on_cluster(const struct args *args, const void *of, int layers,
                                 struct result *out)
{
    const struct on_cluster *c = of;
    char model[512], *text = NULL;
    model_text(&c->shape, model, sizeof model);
    struct sw_engine_options options = {.config.text = c->config,
                                        .model.path = model,
                                        .inputs.seq_len = c->shape.tokens,
                                        .train = {.wanted = true, .no_dropout = true},
                                        .plan.only = true};
    struct sw_plan_cluster on = {.name = c->cluster, .nodes = c->nodes};
    const double begin = sw_now_s();
    (void)args, (void)layers;
    SW_TRY(sw_plan_cluster_size(&on));
    const struct sw_plan_search search = {
        .cluster = c->cluster, .nodes = on.nodes, .ranks = on.ranks};
    const sw_status st = c->searches ? sw_plan_search_text(&options, &search, &text)
                                     : sw_plan_cluster_text(&options, &on, &text);
    sw_text_free(text);
    out->seconds = sw_now_s() - begin;
    return st;
}

/* ---- one process per plan ---- */

typedef sw_status (*plan_fn)(const struct args *args, const void *of, int layers,
                             struct result *out);

/* Returns false if the plan failed or was given up; an error line is printed. */
static bool measure(const struct args *args, plan_fn fn, const void *of, int layers,
                    struct result *out)
{
    int ends[2], status;
    struct rusage usage;
    memset(out, 0, sizeof *out);
    fflush(stdout);
    if (pipe(ends) != 0) {
        return false;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        struct result mine = {0};
        close(ends[0]);
        alarm((unsigned)args->limit_s);
        const sw_status st = fn(args, of, layers, &mine);
        mine.done = st >= 0;
        if (st < 0) {
            fprintf(stderr, "bench_plan: %s\n", sw_error_message());
        }
        _exit(write(ends[1], &mine, sizeof mine) != (ssize_t)sizeof mine || st < 0);
    }
    close(ends[1]);
    const bool got = pid > 0 && read(ends[0], out, sizeof *out) == (ssize_t)sizeof *out;
    close(ends[0]);
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid) {
        printf("no process\n");
        return false;
    }
    out->bytes = (int64_t)usage.ru_maxrss * 1024;
    if (WIFSIGNALED(status)) {
        printf("given up: %s after %lld s\n",
               WTERMSIG(status) == SIGALRM ? "the limit" : strsignal(WTERMSIG(status)),
               (long long)args->limit_s);
        return false;
    }
    return got && out->done;
}

static void print_result(const struct result *r)
{
    printf("%10lld instructions %9.3f s %8.3f us each %9.1f MiB\n", (long long)r->n_instrs,
           r->seconds, r->seconds * 1e6 / (double)r->n_instrs, (double)r->bytes / 0x1p20);
}

static bool wanted(const struct args *args, const char *name)
{
    return !args->only || strcmp(args->only, name) == 0;
}

/* Compares the time per instruction of the largest plan with that of the smallest one. */
static bool grow(const struct args *args, const struct growing *g)
{
    const double most = 1.5;
    double first = 0, last = 0;
    bool all = true;
    printf("\n%s: %s\n", g->name, g->what);
    for (int i = 0; i < args->n_layers && all; i++) {
        struct result r;
        printf("  %5d layers ", args->layers[i]);
        all = measure(args, plan_growing, g, args->layers[i], &r);
        if (all) {
            print_result(&r);
            last = r.seconds / (double)r.n_instrs;
            first = first > 0 ? first : last;
        }
    }
    const double growth = first > 0 ? last / first : 0;
    printf("  an instruction takes %.2f times as long as in the smallest%s%s\n", growth,
           all ? "" : ", in the largest that was planned", growth < most ? "" : ": too much");
    return all && growth < most;
}

static bool plan_at_once(const struct args *args, const struct large *l)
{
    struct result r;
    char model[512], config[1024];
    model_text(&l->shape, model, sizeof model);
    large_config(config, sizeof config);
    printf(
        "\n%s\n  echo '%s' > model.json\n  echo '%s' > ds.json\n  spillway plan --model model.json "
        "--deepspeed ds.json --seq-len %d --device-memory %s --summary\n  ",
        l->name, model, config, TOKENS, budget);
    if (!measure(args, plan_large, l, 0, &r)) {
        return false;
    }
    printf("%.1f billion parameters: ", r.params / 1e9);
    print_result(&r);
    return true;
}

static bool judge(const char *what, const struct result *r, double most_s)
{
    printf("%s: %.1f s of %.0f s, %.0f MiB%s\n", what, r->seconds, most_s,
           (double)r->bytes / 0x1p20, r->seconds < most_s ? "" : ": too long");
    return r->seconds < most_s;
}

/* Each run in a process of its own; those without a plan take next to no time. */
static bool bench_published(const struct args *args)
{
    static const double most_s = 10, most_bytes = 1.5e9;
    struct sw_json_doc *doc = NULL;
    char path[1024];
    struct result longest = {0}, largest = {0};
    const char *slow = "", *big = "";
    int n = 0;
    bool all = sw_share_find("published.json", path, sizeof path) &&
               sw_json_read(path, SW_JSON_STRICT, &doc) >= 0;
    const struct sw_json *runs = all ? sw_json_get(sw_json_root(doc), "runs") : NULL;
    for (const struct sw_json *run = runs ? runs->first : NULL; run && all; run = run->next) {
        const char *id = sw_json_get(run, "id")->string;
        struct result r;
        if (strncmp(id, args->runs, strlen(args->runs)) != 0) {
            continue;
        }
        all = measure(args, plan_published, id, 0, &r);
        n++;
        slow = r.seconds > longest.seconds ? id : slow;
        longest = r.seconds > longest.seconds ? r : longest;
        big = r.bytes > largest.bytes ? id : big;
        largest = r.bytes > largest.bytes ? r : largest;
    }
    printf("\npublished: %d runs; the longest is %s, the largest %s\n  ", n, slow, big);
    longest.bytes = largest.bytes;
    all =
        judge("  each run", &longest, most_s) && all && n > 0 && (double)largest.bytes < most_bytes;
    sw_json_close(doc);
    return all;
}

static bool bench_clusters(const struct args *args)
{
    bool all = true;
    if (wanted(args, "published")) {
        all &= bench_published(args);
    }
    for (size_t i = 0; i < SW_LEN(on_clusters); i++) {
        const struct on_cluster *c = &on_clusters[i];
        struct result r;
        if (wanted(args, c->name)) {
            printf("\n%s: ", c->name);
            all &= measure(args, plan_on_cluster, c, 0, &r) && judge(c->what, &r, c->most_s);
        }
    }
    return all;
}

static bool bench(const struct args *args)
{
    bool all = bench_clusters(args);
    for (size_t i = 0; i < SW_LEN(growing); i++) {
        if (wanted(args, growing[i].name)) {
            all &= grow(args, &growing[i]);
        }
    }
    for (size_t i = 0; i < SW_LEN(large); i++) {
        if (wanted(args, large[i].name)) {
            all &= plan_at_once(args, &large[i]);
        }
    }
    if (wanted(args, "tiny")) {
        struct result r;
        printf("\nsw_plan_open of gpt2-tiny, its graph made before\n  ");
        if (measure(args, plan_tiny, NULL, 0, &r)) {
            printf("%10lld instructions %9.3f ms\n", (long long)r.n_instrs, r.seconds * 1e3);
        } else {
            all = false;
        }
    }
    return all;
}

/* ---- arguments ---- */

static bool parse_layers(const char *text, struct args *args)
{
    args->n_layers = 0;
    for (char *end; *text; text = *end == ',' ? end + 1 : end) {
        const long n = strtol(text, &end, 10);
        if (end == text || n < 1 || n > 1 << 20 || args->n_layers == MOST_SIZES ||
            (*end && *end != ',')) {
            return false;
        }
        args->layers[args->n_layers++] = (int)n;
    }
    return args->n_layers > 0;
}

static bool is_case(const char *name)
{
    bool known = strcmp(name, "tiny") == 0 || strcmp(name, "published") == 0;
    for (size_t i = 0; i < SW_LEN(on_clusters); i++) {
        known |= strcmp(name, on_clusters[i].name) == 0;
    }
    for (size_t i = 0; i < SW_LEN(growing); i++) {
        known |= strcmp(name, growing[i].name) == 0;
    }
    for (size_t i = 0; i < SW_LEN(large); i++) {
        known |= strcmp(name, large[i].name) == 0;
    }
    return known;
}

static bool parse(int argc, char **argv, struct args *args)
{
    bool good = argc % 2 == 1;
    for (int i = 1; i + 1 < argc && good; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--layers") == 0) {
            good = parse_layers(value, args);
        } else if (strcmp(name, "--case") == 0) {
            args->only = value;
            good = is_case(value);
        } else if (strcmp(name, "--runs") == 0) {
            args->runs = value;
        } else if (strcmp(name, "--limit-s") == 0) {
            args->limit_s = atoll(value);
        } else if (strcmp(name, "--rounds") == 0) {
            args->rounds = atoll(value);
        } else {
            good = false;
        }
    }
    return good && args->limit_s > 0 && args->rounds > 0;
}

int main(int argc, char **argv)
{
    struct args args = {.layers = {32, 64, 128, 256, 512, 1024},
                        .n_layers = 6,
                        .runs = "",
                        .limit_s = 120,
                        .rounds = 3,
                        .folder = "/tmp/bench-plan-XXXXXX"};
    char path[128];
    if (!parse(argc, argv, &args)) {
        fprintf(stderr,
                "usage: bench_plan [--layers N,N,..] [--case dense|ranks|nvme|vertical|175B|1T|"
                "tiny|published|stages|search] [--runs TEXT] [--limit-s S] [--rounds N]\n");
        return 2;
    }
    if (!mkdtemp(args.folder)) {
        fprintf(stderr, "bench_plan: no folder in /tmp\n");
        return 1;
    }
    const bool all = bench(&args);
    snprintf(path, sizeof path, "%s/model.json", args.folder);
    unlink(path);
    rmdir(args.folder);
    return !all;
}
