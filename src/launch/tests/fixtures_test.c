// SPDX-License-Identifier: Apache-2.0
// Recorded readings of hostfiles, filters, counts and commands by DeepSpeed's launcher: the same
// hosts and slots, the same refusals, the same words. Where we differ on purpose, the difference
// must follow from a rule of docs/differences.md, named here as there; there is no list of cases to
// skip.
#include "launch/private.h"

#include "support/fixtures.h"
#include "support/test.h"

#include "json/json.h"

#include <ctype.h>
#include <unistd.h>

static char folder[TEST_PATH_CAP];

static struct sw_json_doc *open_fixture(const char *name)
{
    char path[TEST_PATH_CAP];
    struct sw_json_doc *doc = NULL;
    test_join(path, folder, name);
    if (sw_json_read(path, SW_JSON_STRICT, &doc) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return doc;
}

static const struct sw_json *first_case(struct sw_json_doc *doc)
{
    const struct sw_json *cases = sw_json_get(sw_json_root(doc), "cases");
    assert_non_null(cases);
    assert_true(cases->n_children > 0);
    return cases->first;
}

static const char *text_of(const struct sw_json *object, const char *key)
{
    const struct sw_json *node = sw_json_get(object, key);
    return node && node->type == SW_JSON_STRING ? node->string : NULL;
}

static int64_t int_of(const struct sw_json *object, const char *key)
{
    const struct sw_json *node = sw_json_get(object, key);
    assert_non_null(node);
    return node->integer;
}

static void describe(const char *what, const struct sw_json *row, sw_status st)
{
    struct sw_str text = {0};
    sw_json_write(row, 0, &text);
    print_error("%s: %.400s\n  we say: %s\n", what, sw_str_text(&text),
                st < 0 ? sw_error_message() : "accepted");
    sw_str_fini(&text);
}

/* ---- hostfiles ---- */

/* Rule `hostfile-words`: behind "slots=" stands a whole number of ASCII digits, behind it nothing
 * but max_slots=N or a comment. Rule `slots-have-a-limit`. Looks at the text, not at what we
 * did. */
static const char *hostfile_rule(const char *text)
{
    for (const char *at = text; (at = strstr(at, "slots=")); at += 6) {
        const char *digits = at + 6, *rest = digits + strspn(digits, "0123456789");
        if (at > text && at[-1] == '_') {
            continue;
        }
        if (rest == digits || !strchr(" \t\r\n#", *rest)) {
            return "hostfile-words";
        }
        if (strlen(digits) > 0 && strtoll(digits, NULL, 10) > SW_LAUNCH_MAX_SLOTS) {
            return "slots-have-a-limit";
        }
        rest += strspn(rest, " \t\r");
        if (*rest && !strchr("\n#", *rest) && strncmp(rest, "max_slots=", 10) != 0) {
            return "hostfile-words";
        }
    }
    return NULL;
}

static bool same_hosts(const struct hosts *hosts, const struct sw_json *want)
{
    int i = 0;
    for (const struct sw_json *each = want->first; each; each = each->next, i++) {
        const struct host *host = i < hosts->n ? &hosts->items[i] : NULL;
        if (!host || strcmp(host->name, each->key) != 0) {
            return false;
        }
        if (each->type == SW_JSON_INT && host->n_slots != each->integer) {
            return false;
        }
        int k = 0;
        for (const struct sw_json *slot = each->first; slot; slot = slot->next, k++) {
            if (k >= host->n_slots || host->slots[k] != slot->integer) {
                return false;
            }
        }
        if (each->type == SW_JSON_ARRAY && k != host->n_slots) {
            return false;
        }
    }
    return i == hosts->n;
}

static bool error_fits(const char *recorded)
{
    static const struct {
        const char *recorded, *ours;
    } pairs[] = {
        {"no host", "got no host"},
        {"host given twice", "is given twice"},
        {"malformed line", "wanted"},
        {"include and exclude both given", "got both"},
        {"unknown host", "the hostfile has no host"},
        {"no such slot", "has no slot"},
        {"slot is not a number", "wanted the number of a slot"},
        {"two colons", "got two"},
        {"num_nodes or num_gpus with include or exclude", "or a filter, got both"},
        {"more than one node without a hostfile", "wanted a --hostfile"},
        {"unknown launcher", "--launcher: wanted"},
        {"line without = in the environment file", "wanted NAME=VALUE"},
        {"this launcher cannot pick single slots", "cannot pick single slots"},
        {"no_ssh needs node_rank", "wanted --node-rank"},
    };
    if (strncmp(recorded, "fails with a Python", 19) == 0) { /* no reason: it was not foreseen */
        return true;
    }
    for (size_t i = 0; i < SW_LEN(pairs); i++) {
        if (strcmp(pairs[i].recorded, recorded) == 0) {
            return strstr(sw_error_message(), pairs[i].ours) != NULL;
        }
    }
    return false;
}

static void test_hostfiles(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("hostfiles.json");
    int n_bad = 0, n_rules = 0;
    for (const struct sw_json *row = first_case(doc); row; row = row->next) {
        struct sw_arena arena;
        struct hosts hosts;
        const char *text = text_of(row, "text"), *error = text_of(row, "error");
        const char *rule = error ? NULL : hostfile_rule(text);
        sw_arena_init(&arena, "test");
        const sw_status st = sw_launch_hosts_parse(&arena, "hosts", text, &hosts);
        const bool good = error  ? st == SW_E_FORMAT && error_fits(error)
                          : rule ? st == SW_E_FORMAT
                                 : st == SW_OK && same_hosts(&hosts, sw_json_get(row, "result"));
        if (!good) {
            describe(rule ? rule : "hostfile", row, st);
        }
        n_bad += !good;
        n_rules += rule != NULL;
        sw_arena_fini(&arena);
    }
    print_message("%d rows differ by rule\n", n_rules);
    assert_int_equal(n_bad, 0);
    sw_json_close(doc);
}

static void test_filters(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("filters.json");
    int n_bad = 0;
    for (const struct sw_json *row = first_case(doc); row; row = row->next) {
        struct sw_arena arena;
        struct hosts hosts;
        const char *error = text_of(row, "error");
        sw_arena_init(&arena, "test");
        assert_int_equal(sw_launch_hosts_parse(&arena, "hosts", text_of(row, "hostfile"), &hosts),
                         SW_OK);
        const sw_status st =
            sw_launch_filter(&arena, text_of(row, "include"), text_of(row, "exclude"), &hosts);
        const bool good = error ? st == SW_E_CONFIG && error_fits(error)
                                : st == SW_OK && same_hosts(&hosts, sw_json_get(row, "result"));
        if (!good) {
            describe("filter", row, st);
        }
        n_bad += !good;
        sw_arena_fini(&arena);
    }
    assert_int_equal(n_bad, 0);
    sw_json_close(doc);
}

static void test_counts(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("counts.json");
    int n_bad = 0;
    for (const struct sw_json *row = first_case(doc); row; row = row->next) {
        struct sw_arena arena;
        struct hosts hosts;
        const int64_t n_nodes = int_of(row, "num_nodes");
        sw_arena_init(&arena, "test");
        assert_int_equal(sw_launch_hosts_parse(&arena, "hosts", text_of(row, "hostfile"), &hosts),
                         SW_OK);
        const bool too_many = n_nodes > hosts.n; /* rule `nodes-must-exist` */
        const sw_status st = sw_launch_count(&arena, n_nodes, int_of(row, "num_gpus"), &hosts);
        const bool good = too_many ? st == SW_E_CONFIG
                                   : st == SW_OK && same_hosts(&hosts, sw_json_get(row, "result"));
        if (!good) {
            describe("counts", row, st);
        }
        n_bad += !good;
        sw_arena_fini(&arena);
    }
    assert_int_equal(n_bad, 0);
    sw_json_close(doc);
}

static void test_ranks(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("ranks.json");
    for (const struct sw_json *row = first_case(doc); row; row = row->next) {
        struct sw_arena arena;
        const char *program[] = {"prog"};
        struct job job = {.arena = &arena};
        sw_arena_init(&arena, "test");
        assert_int_equal(
            sw_launch_hosts_parse(&arena, "hosts", text_of(row, "hostfile"), &job.hosts), SW_OK);
        struct sw_str world = {0};
        sw_launch_world_write(&job.hosts, &world);
        for (const struct sw_json *want = sw_json_get(row, "ranks")->first; want;
             want = want->next) {
            int local;
            const int rank = (int)int_of(want, "rank");
            const int host = sw_launch_host_of(&job, rank, &local);
            assert_string_equal(job.hosts.items[host].name, text_of(want, "host"));
            /* rule `local-ranks`: the place on the host, not the rank modulo its slots */
            assert_int_equal(local, int_of(want, "local_rank_true"));
            assert_int_equal(job.hosts.items[host].slots[local], int_of(want, "slot"));
            /* and the process that is started says so */
            struct sw_launch_options o = {.program = program,
                                          .n_program = 1,
                                          .world = sw_str_text(&world),
                                          .node_rank_given = true,
                                          .node_rank = host};
            struct job started;
            struct commands commands;
            assert_int_equal(sw_launch_job_init(&o, &arena, NULL, &started), SW_OK);
            assert_int_equal(sw_launch_commands(&started, &commands), SW_OK);
            const struct words *added = &commands.items[local].added;
            assert_int_equal(atoi(sw_launch_get(added, "RANK")), rank);
            assert_int_equal(atoi(sw_launch_get(added, "LOCAL_RANK")), local);
        }
        sw_str_fini(&world);
        sw_arena_fini(&arena);
    }
    sw_json_close(doc);
}

/* ---- commands ---- */

/* One row: DeepSpeed's words as options of ours, and what of it no option of ours says. */
struct request {
    const struct sw_json *row, *input;
    const char *env[64];
    const char *program[32];
    struct sw_launch_options options;
    char temp[64], hosts[128];
    bool venv;
};

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void one_flag(struct request *r, const char *flag, const char *value)
{
    struct sw_launch_options *o = &r->options;
    const struct {
        const char *flag;
        const char **text;
        int64_t *number;
    } table[] = {
        {"--master_addr", &o->master_addr, NULL},
        {"--launcher", &o->launcher, NULL},
        {"--launcher_args", &o->launcher_args, NULL},
        {"--include", &o->include, NULL},
        {"--exclude", &o->exclude, NULL},
        {"--master_port", NULL, &o->master_port},
        {"--num_nodes", NULL, &o->num_nodes},
        {"--num_gpus", NULL, &o->num_ranks},
        {"--ssh_port", NULL, &o->ssh_port},
        {"--node_rank", NULL, &o->node_rank},
    };
    for (size_t i = 0; i < SW_LEN(table); i++) {
        if (strcmp(table[i].flag, flag) == 0) {
            if (table[i].text) {
                *table[i].text = value;
            } else {
                *table[i].number = atoll(value);
            }
            o->node_rank_given |= strcmp(flag, "--node_rank") == 0;
            return;
        }
    }
    r->venv |= strcmp(flag, "--venv_script") == 0;
    assert_true(r->venv);
}

static void read_args(struct request *r)
{
    static const char *const alone[] = {"--no_ssh_check", "--no_python", "--no_local_rank",
                                        "--module"};
    const struct sw_json *word = sw_json_get(r->input, "args")->first;
    while (word && strncmp(word->string, "--", 2) == 0) {
        bool single = false;
        for (size_t i = 0; i < SW_LEN(alone); i++) {
            single |= strcmp(word->string, alone[i]) == 0;
        }
        if (strcmp(word->string, "--no_ssh") == 0) {
            r->options.no_ssh = true;
        } else if (strcmp(word->string, "--force_multi") == 0) {
            r->options.force_multi = true;
        } else if (strchr(word->string, '=')) { /* --flag=value */
            char name[64];
            const char *equals = strchr(word->string, '=');
            snprintf(name, sizeof name, "%.*s", (int)(equals - word->string), word->string);
            one_flag(r, name, equals + 1);
        } else if (!single) {
            one_flag(r, word->string, word->next->string);
            word = word->next;
        }
        word = word->next;
    }
    for (; word; word = word->next) {
        r->program[r->options.n_program++] = word->string;
    }
}

static void read_request(struct request *r, const struct sw_json *row)
{
    *r = (struct request){.row = row, .input = sw_json_get(row, "input")};
    snprintf(r->temp, sizeof r->temp, "/tmp/spillway-launch-XXXXXX");
    assert_non_null(mkdtemp(r->temp));
    snprintf(r->hosts, sizeof r->hosts, "%s/hosts", r->temp);
    read_args(r);
    const char *hostfile = text_of(r->input, "hostfile"),
               *file = text_of(r->input, "deepspeed_env");
    if (hostfile) {
        write_text(r->hosts, hostfile);
        r->options.hostfile = r->hosts;
    }
    if (file) {
        char path[128];
        snprintf(path, sizeof path, "%s/.deepspeed_env", r->temp);
        write_text(path, file);
    }
    int n = 0;
    const struct sw_json *env = sw_json_get(r->input, "env");
    for (const struct sw_json *each = env->first; each; each = each->next) {
        static char text[64][128];
        snprintf(text[n], sizeof text[n], "%s=%s", each->key, each->string);
        r->env[n] = text[n];
        n++;
    }
    const struct sw_json *devices = sw_json_get(r->input, "devices");
    r->options.local_slots = devices ? devices->integer : 0;
    r->options.program = r->program;
    r->options.environment = r->env;
    r->options.home = r->options.folder = r->temp;
}

static void drop_request(struct request *r)
{
    char path[128];
    snprintf(path, sizeof path, "%s/.deepspeed_env", r->temp);
    unlink(path);
    unlink(r->hosts);
    rmdir(r->temp);
}

/* Rule `values-stay-whole`: DeepSpeed puts values with other characters in double quotes, which in
 * lists of arguments become part of them. Undone for the comparison. */
static void add_export(struct sw_arena *arena, struct words *out, const char *name, size_t len,
                       const char *value)
{
    char plain[512], key[128];
    const size_t n = strlen(value);
    const bool quoted = n >= 2 && value[0] == '"' && value[n - 1] == '"';
    snprintf(key, sizeof key, "%.*s", (int)len, name);
    snprintf(plain, sizeof plain, "%.*s", (int)(quoted ? n - 2 : n), value + quoted);
    /* rule `programs-not-scripts`: nothing is added to Python's path;
     * rule `no-guessed-network`: no transport is chosen unless the user did;
     * rule `environment-file-has-comments` */
    const bool python = strcmp(key, "PYTHONPATH") == 0 && strcmp(plain, "CWD") == 0;
    if (strcmp(key, "PYTHONPATH") == 0 && strncmp(plain, "CWD:", 4) == 0) {
        memmove(plain, plain + 4, strlen(plain + 4) + 1);
    }
    const bool guessed = strcmp(key, "UCX_TLS") == 0 && strcmp(plain, "tcp") == 0;
    if (!python && !guessed && key[0] != '#') {
        assert_int_equal(sw_launch_set(arena, out, key, plain), SW_OK);
    }
}

static void add_pair(struct sw_arena *arena, struct words *out, const char *text)
{
    const char *equals = strchr(text, '=');
    assert_non_null(equals);
    add_export(arena, out, text, (size_t)(equals - text), equals + 1);
}

/* "export A=1; export B=2; " */
static void recorded_shell(struct sw_arena *arena, struct words *out, const char *text)
{
    while ((text = strstr(text, "export "))) {
        char pair[512];
        text += strlen("export ");
        const char *end = strstr(text, "; ");
        assert_non_null(end);
        snprintf(pair, sizeof pair, "%.*s", (int)(end - text), text);
        add_pair(arena, out, pair);
        text = end;
    }
}

static void recorded_exports(struct sw_arena *arena, const struct words *words, struct words *out)
{
    for (int i = 0; i < words->n; i++) {
        const char *word = words->items[i];
        if (strncmp(word, "--export=ALL", 12) == 0) {
            /* rule `values-stay-whole`: a comma ends a value, unless no other pair begins there */
            char copy[4096], *at = copy;
            snprintf(copy, sizeof copy, "%s", word + 12 + (word[12] == ','));
            while (at && *at) {
                char *pair = at, *comma = strchr(pair, ',');
                while (comma && comma[1 + strcspn(comma + 1, ",=")] != '=') {
                    comma = strchr(comma + 1, ',');
                }
                at = comma ? comma + 1 : NULL;
                if (comma) {
                    *comma = '\0';
                }
                add_pair(arena, out, pair);
            }
        } else if (i + 1 < words->n && (strcmp(word, "-x") == 0 || strcmp(word, "-genv") == 0)) {
            const char *pair = words->items[i + 1];
            if (strchr(pair, '=')) {
                add_pair(arena, out, pair);
            }
        } else if (strncmp(word, "export ", 7) == 0) {
            recorded_shell(arena, out, word);
        }
    }
}

/* Lines of which every one that is not blank is NAME=VALUE. */
static void file_exports(struct sw_arena *arena, const char *text, struct words *out)
{
    char copy[4096], *at = copy;
    assert_true(snprintf(copy, sizeof copy, "%s", text) < (int)sizeof copy);
    for (char *line; (line = strsep(&at, "\n"));) {
        if (line[strspn(line, " \t\r")]) {
            add_pair(arena, out, line);
        }
    }
}

/* Number of the variable that `pair` sets among ours; those that we do not set come last. */
static int number_of(const struct words *ours, const char *pair)
{
    const size_t len = strcspn(pair, "=") + 1;
    int i = 0;
    while (i < ours->n && strncmp(ours->items[i], pair, len) != 0) {
        i++;
    }
    return i;
}

/* Variables that the row exports, in our order: their order means nothing. */
static void row_exports(struct sw_arena *arena, const struct request *r, const struct job *job,
                        const struct words *recorded, struct words *out)
{
    recorded_exports(arena, recorded, out);
    if (recorded->n == 0) { /* rule `environment-file-has-comments` lifted a refusal */
        const char *text = text_of(r->input, "deepspeed_env");
        file_exports(arena, text ? text : "", out);
    }
    for (int i = 1; i < out->n; i++) {
        for (int k = i; k > 0 && number_of(&job->exports, out->items[k - 1]) >
                                     number_of(&job->exports, out->items[k]);
             k--) {
            char *swapped = out->items[k];
            out->items[k] = out->items[k - 1];
            out->items[k - 1] = swapped;
        }
    }
}

static bool same_words(const struct words *a, const struct words *b)
{
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++) {
        same = strcmp(a->items[i], b->items[i]) == 0;
    }
    if (!same) {
        for (int i = 0; i < sw_max_i64(a->n, b->n); i++) {
            print_error("    %s | %s\n", i < a->n ? a->items[i] : "-",
                        i < b->n ? b->items[i] : "-");
        }
    }
    return same;
}

/* Our words must be these, in this order: the recorded ones with the rules applied. */
struct expected {
    struct sw_arena *arena;
    const struct job *job;
    const struct words *exports, *launcher_args;
    const char *master_addr;
    int master_port;
    struct words *out;
    bool uneven;
    int slots; /* of the first host */
    struct sw_str names, with_slots, repeated;
};

/* Words up to NULL. */
static void add(struct expected *e, ...)
{
    va_list args;
    va_start(args, e);
    for (const char *word; (word = va_arg(args, const char *));) {
        assert_int_equal(sw_launch_add(e->arena, e->out, word), SW_OK);
    }
    va_end(args);
}

static void add_number(struct expected *e, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    add(e, text, NULL);
}

static void list_hosts(struct expected *e)
{
    for (int i = 0; i < e->job->hosts.n; i++) {
        const struct host *host = &e->job->hosts.items[i];
        sw_str_printf(&e->names, "%s%s", i ? "," : "", host->name);
        sw_str_printf(&e->with_slots, "%s%s:%d", i ? "," : "", host->name, host->n_slots);
        for (int k = 0; k < host->n_slots; k++) {
            sw_str_printf(&e->repeated, "%s%s", i || k ? "," : "", host->name);
        }
        e->uneven |= host->n_slots != e->job->hosts.items[0].n_slots;
    }
    e->slots = e->job->hosts.items[0].n_slots;
}

/* As the case says; else the first host, without its user, and DeepSpeed's port. */
static const char *master_addr_of(const struct request *r, const struct job *job)
{
    const char *first = job->hosts.items[0].name, *at = strrchr(first, '@');
    return r->options.master_addr ? r->options.master_addr : at ? at + 1 : first;
}

static int master_port_of(const struct request *r)
{
    return r->options.master_port > 0 ? (int)r->options.master_port : 29500;
}

/* Rules `hosts-by-name`, not the whole hostfile; `threads-need-cores`. */
static void expect_openmpi(struct expected *e)
{
    bool binds = false;
    for (int i = 0; i < e->launcher_args->n; i++) {
        binds |= strcmp(e->launcher_args->items[i], "--bind-to") == 0;
    }
    add(e, "--host", sw_str_text(&e->with_slots), NULL);
    if (!binds) {
        add(e, "--bind-to", "none", NULL);
    }
}

static void expect_openmpi_exports(struct expected *e)
{
    for (int i = 0; i < e->exports->n; i++) {
        add(e, "-x", e->exports->items[i], NULL);
    }
}

static void expect_mpich(struct expected *e)
{
    if (!e->uneven) {
        add(e, "-ppn", NULL);
        add_number(e, e->slots);
    }
}

static void expect_mpich_exports(struct expected *e)
{
    for (int i = 0; i < e->exports->n; i++) {
        const char *each = e->exports->items[i], *equals = strchr(each, '=');
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)(equals - each), each);
        add(e, "-genv", name, equals + 1, NULL);
    }
    add(e, "-genv", "MASTER_ADDR", e->master_addr, "-genv", "MASTER_PORT", NULL);
    add_number(e, e->master_port);
    add(e, "-genv", "WORLD_SIZE", NULL);
    add_number(e, e->job->n_ranks);
    if (!e->uneven) {
        add(e, "-genv", "LOCAL_SIZE", NULL);
        add_number(e, e->slots);
    }
    add(e, "-hosts", sw_str_text(e->uneven ? &e->with_slots : &e->names), NULL);
}

/* Rules `hosts-by-name`, `uneven-slots`, and `slots-are-ranks` for --gpus-per-node. */
static void expect_slurm(struct expected *e)
{
    add(e, "--nodelist", sw_str_text(e->uneven ? &e->repeated : &e->names), "--nodes", NULL);
    add_number(e, e->job->hosts.n);
    if (e->uneven) {
        add(e, "--distribution=arbitrary", NULL);
    } else {
        add(e, "--ntasks-per-node", NULL);
        add_number(e, e->slots);
    }
}

static void expect_slurm_exports(struct expected *e)
{
    struct sw_str list = {0};
    sw_str_puts(&list, "--export=ALL");
    for (int i = 0; i < e->exports->n; i++) {
        if (!strpbrk(e->exports->items[i], ",'\"")) { /* rule `values-stay-whole` */
            sw_str_printf(&list, ",%s", e->exports->items[i]);
        }
    }
    add(e, sw_str_text(&list), NULL);
    sw_str_fini(&list);
}

/* pdsh's list of names; its exports are in the word for the remote shells. Rule
 * `pdsh-ends-at-once`. */
static void expect_pdsh(struct expected *e)
{
    add(e, "-S", "-b", "-f", "1024", "-w", sw_str_text(&e->names), NULL);
}

/* The words of --launcher_args, as the shell reads them; recorded commands have them so, one after
 * the other. */
static void split_launcher_args(struct sw_arena *arena, const struct request *r,
                                const struct words *recorded, struct words *out)
{
    const char *text = r->options.launcher_args ? r->options.launcher_args : "";
    assert_int_equal(sw_launch_split(arena, "test", text, out), SW_OK);
    bool found = recorded->n == 0; /* DeepSpeed refused, and a rule lifts that */
    for (int i = 0; !found && i + out->n <= recorded->n; i++) {
        int k = 0;
        while (k < out->n && strcmp(recorded->items[i + k], out->items[k]) == 0) {
            k++;
        }
        found = k == out->n;
    }
    assert_true(found);
}

static void expect_words(struct sw_arena *arena, const struct request *r, const struct job *job,
                         const struct words *recorded, struct words *out)
{
    static const struct {
        const char *program;
        bool count;
        void (*first)(struct expected *e);
        void (*exports)(struct expected *e);
    } table[] = {
        [LAUNCH_OPENMPI] = {"mpirun", true, expect_openmpi, expect_openmpi_exports},
        [LAUNCH_MPICH] = {"mpirun", true, expect_mpich, expect_mpich_exports},
        [LAUNCH_SLURM] = {"srun", true, expect_slurm, expect_slurm_exports},
        [LAUNCH_PDSH] = {"pdsh", false, expect_pdsh, NULL},
    };
    struct words exports = {0}, launcher_args = {0};
    struct expected e = {.arena = arena,
                         .job = job,
                         .exports = &exports,
                         .launcher_args = &launcher_args,
                         .master_addr = master_addr_of(r, job),
                         .master_port = master_port_of(r),
                         .out = out};
    row_exports(arena, r, job, recorded, &exports);
    split_launcher_args(arena, r, recorded, &launcher_args);
    list_hosts(&e);
    add(&e, table[job->launcher].program, NULL);
    if (table[job->launcher].count) {
        add(&e, "-n", NULL);
        add_number(&e, job->n_ranks);
    }
    table[job->launcher].first(&e);
    for (int i = 0; i < launcher_args.n; i++) {
        add(&e, launcher_args.items[i], NULL);
    }
    if (table[job->launcher].exports) {
        table[job->launcher].exports(&e);
        for (int i = 0; i < r->options.n_program; i++) {
            add(&e, r->program[i], NULL);
        }
    }
    sw_str_fini(&e.names);
    sw_str_fini(&e.with_slots);
    sw_str_fini(&e.repeated);
}

/* The one word that the remote shells read: its own reading must give exports, folder and
 * program. */
static bool remote_fits(struct sw_arena *arena, const struct request *r, const struct job *job,
                        const struct words *recorded, const char *remote)
{
    struct words exports = {0}, want = {0}, got = {0};
    char undone[4096];
    size_t n = 0;
    for (const char *at = remote; *at && n + 1 < sizeof undone; at++) {
        at += *at == '%' && at[1] == '%'; /* what pdsh does */
        undone[n++] = *at;
    }
    undone[n] = '\0';
    assert_int_equal(sw_launch_split(arena, "test", undone, &got), SW_OK);
    row_exports(arena, r, job, recorded, &exports);
    char port[16];
    struct sw_str world = {0};
    snprintf(port, sizeof port, "%d", master_port_of(r));
    sw_launch_world_write(&job->hosts, &world);
    const char *tail[] = {"&&",
                          "spillway",
                          "launch",
                          "--launcher",
                          "local",
                          "--world",
                          sw_str_text(&world),
                          "--node-rank",
                          "%n",
                          "--master-addr",
                          master_addr_of(r, job),
                          "--master-port",
                          port,
                          "--grace",
                          "0",
                          "--"};
    for (int i = 0; i < exports.n; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s;", exports.items[i]);
        assert_int_equal(sw_launch_add(arena, &want, "export"), SW_OK);
        assert_int_equal(sw_launch_add(arena, &want, text), SW_OK);
    }
    assert_int_equal(sw_launch_add(arena, &want, "cd"), SW_OK);
    assert_int_equal(sw_launch_add(arena, &want, r->temp), SW_OK);
    for (size_t i = 0; i < SW_LEN(tail); i++) {
        assert_int_equal(sw_launch_add(arena, &want, tail[i]), SW_OK);
    }
    for (int i = 0; i < r->options.n_program; i++) {
        assert_int_equal(sw_launch_add(arena, &want, r->program[i]), SW_OK);
    }
    sw_str_fini(&world);
    return same_words(&want, &got);
}

/* Is every line blank, a comment or NAME=VALUE? */
static bool has_pairs_alone(const char *text)
{
    for (const char *line = text ? text : ""; *line; line += line[strcspn(line, "\n")] == '\n') {
        const size_t len = strcspn(line, "\n"), blank = strspn(line, " \t\r");
        if (blank < len && line[blank] != '#' && !memchr(line, '=', len)) {
            return false;
        }
        line += len;
    }
    return true;
}

/* A refusal of DeepSpeed's that we do not share, or one of ours; NULL: as recorded. */
static const char *command_rule(const struct request *r, const char *error)
{
    const char *launcher = r->options.launcher;
    if (launcher && strcasecmp(launcher, "impi") == 0) {
        return "no-intel-mpi";
    }
    if (!error) {
        return NULL;
    }
    if (strcmp(error, "this launcher takes no include or exclude") == 0 ||
        strcmp(error, "this launcher takes no num_nodes or num_gpus") == 0) {
        return "mpi-takes-filters";
    }
    if (strcmp(error, "hosts must have equal slots") == 0) {
        return "uneven-slots";
    }
    if (strcmp(error, "line without = in the environment file") == 0 &&
        has_pairs_alone(text_of(r->input, "deepspeed_env"))) {
        return "environment-file-has-comments";
    }
    return NULL;
}

/* Does the filter leave other slots of a host than its first ones, and is it MPI's or Slurm's
 * launcher that is asked for them? */
static bool wants_single_slots(struct sw_arena *arena, const struct request *r)
{
    const struct sw_launch_options *o = &r->options;
    const char *text = text_of(r->input, "hostfile");
    struct hosts hosts;
    if (!text || !o->launcher || strcasecmp(o->launcher, "pdsh") == 0 ||
        (!o->include && !o->exclude)) {
        return false;
    }
    if (sw_launch_hosts_parse(arena, "hosts", text, &hosts) < 0 ||
        sw_launch_filter(arena, o->include ? o->include : "", o->exclude ? o->exclude : "",
                         &hosts) < 0) {
        return false;
    }
    bool single = false;
    for (int i = 0; i < hosts.n; i++) {
        const int n = hosts.items[i].n_slots;
        single |= n > 0 && hosts.items[i].slots[n - 1] != n - 1;
    }
    return single;
}

static bool check_started(struct sw_arena *arena, const struct request *r, const struct job *job)
{
    const struct sw_json *result = sw_json_get(r->row, "result");
    const struct sw_json *world = sw_json_get(result, "world_info");
    struct words recorded = {0}, want = {0};
    struct commands commands;
    assert_int_equal(sw_launch_commands(job, &commands), SW_OK);
    const struct sw_json *words = sw_json_get(result, "command");
    for (const struct sw_json *word = words ? words->first : NULL; word; word = word->next) {
        assert_int_equal(sw_launch_add(arena, &recorded, word->string), SW_OK);
    }
    /* rule `slots-are-ranks`: CUDA_VISIBLE_DEVICES picks nothing */
    const struct sw_json *env = sw_json_get(r->input, "env");
    const bool picked = sw_json_get(env, "CUDA_VISIBLE_DEVICES") && r->options.num_ranks <= 0;
    if (world && !picked && !same_hosts(&job->hosts, world)) {
        return false;
    }
    if (job->launcher == LAUNCH_LOCAL) {
        return commands.n == job->hosts.items[job->node].n_slots;
    }
    expect_words(arena, r, job, &recorded, &want);
    struct words *got = &commands.items[0].words;
    if (job->launcher == LAUNCH_PDSH) {
        const char *remote = got->items[--got->n];
        return remote_fits(arena, r, job, &recorded, remote) && same_words(&want, got);
    }
    return same_words(&want, got);
}

static bool check_row(struct sw_arena *arena, const struct request *r, sw_status *out_st)
{
    struct job job;
    const char *error = text_of(r->row, "error");
    const sw_status st = sw_launch_job_init(&r->options, arena, NULL, &job);
    *out_st = st;
    const char *rule = command_rule(r, error);
    if (rule && strcmp(rule, "no-intel-mpi") == 0) {
        return st == SW_E_CONFIG && strstr(sw_error_message(), "--launcher: wanted");
    }
    if (!error || rule) {
        /* rules `mpi-takes-filters` and `uneven-slots` lift a refusal, but single slots stay
         * refused */
        if (wants_single_slots(arena, r)) {
            return st == SW_E_CONFIG && strstr(sw_error_message(), "cannot pick single slots");
        }
        return st == SW_OK && check_started(arena, r, &job);
    }
    return st < 0 && error_fits(error);
}

static void test_commands(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("commands.json");
    int n_bad = 0;
    for (const struct sw_json *row = first_case(doc); row; row = row->next) {
        struct sw_arena arena;
        struct request r;
        sw_status st = SW_OK;
        sw_arena_init(&arena, "test");
        read_request(&r, row);
        if (!check_row(&arena, &r, &st)) {
            describe("command", row, st);
            n_bad++;
        }
        drop_request(&r);
        sw_arena_fini(&arena);
    }
    assert_int_equal(n_bad, 0);
    sw_json_close(doc);
}

static int begin(char **argv)
{
    (void)argv;
    return test_fixture_folder("launcher", folder) ? 0 : TEST_EXIT_SKIPPED;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_hostfiles), cmocka_unit_test(test_filters),
    cmocka_unit_test(test_counts),    cmocka_unit_test(test_ranks),
    cmocka_unit_test(test_commands),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .begin = begin};
