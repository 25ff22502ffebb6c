// SPDX-License-Identifier: Apache-2.0
// Turns a job into processes to start: a command line of mpirun, srun or pdsh, or one process per
// rank. Variables for the ranks are passed on that command line if the launcher supports it, else
// in its environment. The secret of the job is passed in environments only.
#include "launch/private.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

struct builder {
    const struct job *job;
    struct sw_arena *arena;
    struct command *to;
};

static sw_status put(const struct builder *b, const char *word)
{
    return sw_launch_add(b->arena, &b->to->words, word);
}

static sw_status put_two(const struct builder *b, const char *first, const char *second)
{
    SW_TRY(put(b, first));
    return put(b, second);
}

static sw_status put_int(const struct builder *b, const char *flag, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return put_two(b, flag, text);
}

static sw_status put_words(const struct builder *b, const struct words *words)
{
    for (int i = 0; i < words->n; i++) {
        SW_TRY(put(b, words->items[i]));
    }
    return SW_OK;
}

static sw_status put_program(const struct builder *b)
{
    for (int i = 0; i < b->job->options->n_program; i++) {
        SW_TRY(put(b, b->job->options->program[i]));
    }
    return SW_OK;
}

/* Takes the text, also when it failed. */
static sw_status put_str(const struct builder *b, struct sw_str *text)
{
    const sw_status st = text->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a command")
                                      : put(b, sw_str_text(text));
    sw_str_fini(text);
    return st;
}

/* Into the environment of the launcher that is started. */
static sw_status tell(const struct builder *b, const char *name, const char *value)
{
    return sw_launch_set(b->arena, &b->to->added, name, value);
}

static sw_status tell_int(const struct builder *b, const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return tell(b, name, text);
}

/* mpirun and srun hand their environment on, or what of it they are told to, over their own
 * connections. */
static sw_status tell_secret(const struct builder *b)
{
    char text[2 * SW_SECRET_BYTES + 1];
    if (!b->job->secret.known) {
        return SW_OK;
    }
    sw_hex_write(b->job->secret.key, sizeof b->job->secret.key, text);
    return tell(b, "SPILLWAY_JOB_SECRET", text);
}

/* Splits "NAME=VALUE"; both live in the arena. */
static sw_status split_export(const struct builder *b, const char *text, char **out_name,
                              const char **out_value)
{
    const char *equals = strchr(text, '=');
    *out_name = sw_arena_strndup(b->arena, text, (size_t)(equals - text));
    SW_TRY_ALLOC(*out_name, "a command");
    *out_value = equals + 1;
    return SW_OK;
}

static sw_status tell_exports(const struct builder *b)
{
    for (int i = 0; i < b->job->exports.n; i++) {
        char *name;
        const char *value;
        SW_TRY(split_export(b, b->job->exports.items[i], &name, &value));
        const char *own = sw_launch_own_value(b->job->options, name);
        if (!own || strcmp(own, value) != 0) { /* else it is inherited */
            SW_TRY(tell(b, name, value));
        }
    }
    return SW_OK;
}

/* "a,b", "a:4,b:2" with the slots of each, or each name as often as it has slots. */
enum host_list { NAMES, NAMES_AND_SLOTS, REPEATED };

static sw_status put_hosts(const struct builder *b, const char *flag, enum host_list list)
{
    const struct hosts *hosts = &b->job->hosts;
    struct sw_str text = {0};
    for (int i = 0; i < hosts->n; i++) {
        const int times = list == REPEATED ? hosts->items[i].n_slots : 1;
        for (int k = 0; k < times; k++) {
            sw_str_printf(&text, "%s%s", i || k ? "," : "", hosts->items[i].name);
        }
        if (list == NAMES_AND_SLOTS) {
            sw_str_printf(&text, ":%d", hosts->items[i].n_slots);
        }
    }
    const sw_status st = put(b, flag);
    if (st < 0) {
        sw_str_fini(&text);
        return st;
    }
    return put_str(b, &text);
}

/* Number of slots per host if all hosts have the same number, else 0. */
static int even_slots(const struct job *job)
{
    const int first = job->hosts.items[0].n_slots;
    for (int i = 1; i < job->hosts.n; i++) {
        if (job->hosts.items[i].n_slots != first) {
            return 0;
        }
    }
    return first;
}

static bool has_word(const struct words *words, const char *word)
{
    for (int i = 0; i < words->n; i++) {
        if (strcmp(words->items[i], word) == 0) {
            return true;
        }
    }
    return false;
}

static sw_status openmpi(const struct builder *b)
{
    const struct job *job = b->job;
    SW_TRY(put_int(b, "-n", job->n_ranks));
    SW_TRY(put_hosts(b, "--host", NAMES_AND_SLOTS));
    if (!has_word(&job->launcher_args, "--bind-to") && !has_word(&job->launcher_args, "-bind-to")) {
        /* Else Open MPI gives a rank with many threads one core. */
        SW_TRY(put_two(b, "--bind-to", "none"));
    }
    if (job->options->agent) {
        SW_TRY(put_two(b, "--mca", "plm_rsh_agent"));
        SW_TRY(put(b, job->options->agent));
    }
    if (job->options->ssh_port) {
        char text[32];
        snprintf(text, sizeof text, "-p %lld", (long long)job->options->ssh_port);
        SW_TRY(put_two(b, "--mca", "plm_rsh_args"));
        SW_TRY(put(b, text));
    }
    SW_TRY(put_words(b, &job->launcher_args));
    for (int i = 0; i < job->exports.n; i++) {
        SW_TRY(put_two(b, "-x", job->exports.items[i]));
    }
    if (job->secret.known) {
        SW_TRY(put_two(b, "-x", "SPILLWAY_JOB_SECRET")); /* without its value */
        SW_TRY(tell_secret(b));
    }
    return put_program(b);
}

static sw_status put_genv(const struct builder *b, const char *name, const char *value)
{
    SW_TRY(put_two(b, "-genv", name));
    return put(b, value);
}

static sw_status put_genv_int(const struct builder *b, const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return put_genv(b, name, text);
}

static sw_status mpich(const struct builder *b)
{
    const struct job *job = b->job;
    const int even = even_slots(job);
    SW_TRY(put_int(b, "-n", job->n_ranks));
    if (even) {
        SW_TRY(put_int(b, "-ppn", even));
    }
    if (job->options->agent) {
        SW_TRY(put_two(b, "-launcher", "ssh"));
        SW_TRY(put_two(b, "-launcher-exec", job->options->agent));
    }
    SW_TRY(put_words(b, &job->launcher_args));
    for (int i = 0; i < job->exports.n; i++) {
        char *name;
        const char *value;
        SW_TRY(split_export(b, job->exports.items[i], &name, &value));
        SW_TRY(put_genv(b, name, value));
    }
    SW_TRY(put_genv(b, "MASTER_ADDR", job->master_addr));
    SW_TRY(put_genv_int(b, "MASTER_PORT", job->master_port));
    SW_TRY(put_genv_int(b, "WORLD_SIZE", job->n_ranks));
    if (even) {
        SW_TRY(put_genv_int(b, "LOCAL_SIZE", even));
    }
    SW_TRY(put_hosts(b, "-hosts", even ? NAMES : NAMES_AND_SLOTS));
    SW_TRY(tell_secret(b)); /* its ranks get the environment of mpirun */
    return put_program(b);
}

/* srun has no quotes that hold a comma or a quote: such values travel in its environment, which ALL
 * passes on. */
static sw_status put_slurm_exports(const struct builder *b)
{
    struct sw_str text = {0};
    sw_str_puts(&text, "--export=ALL");
    for (int i = 0; i < b->job->exports.n; i++) {
        const char *each = b->job->exports.items[i];
        if (!each[strcspn(each, ",'\"\\\n")]) {
            sw_str_printf(&text, ",%s", each);
        }
    }
    return put_str(b, &text);
}

static sw_status slurm(const struct builder *b)
{
    const struct job *job = b->job;
    const int even = even_slots(job);
    SW_TRY(put_int(b, "-n", job->n_ranks));
    if (job->hosts_given) {
        SW_TRY(put_hosts(b, "--nodelist", even ? NAMES : REPEATED));
        SW_TRY(put_int(b, "--nodes", job->hosts.n));
        if (even) {
            SW_TRY(put_int(b, "--ntasks-per-node", even));
        } else {
            SW_TRY(put(b, "--distribution=arbitrary"));
        }
    }
    SW_TRY(put_words(b, &job->launcher_args));
    SW_TRY(put_slurm_exports(b));
    SW_TRY(tell_exports(b));
    SW_TRY(tell_secret(b));
    return put_program(b);
}

/* Quoted for the remote shell, and % doubled: pdsh puts its own words in the place of %h, %n and
 * %u. */
static void remote_word(struct sw_str *out, const char *word)
{
    struct sw_str quoted = {0};
    sw_launch_quote(&quoted, word);
    for (const char *at = sw_str_text(&quoted); *at; at++) {
        sw_str_puts(out, *at == '%' ? "%%" : (char[]){*at, '\0'});
    }
    out->failed |= quoted.failed;
    sw_str_fini(&quoted);
}

static void remote_words(struct sw_str *out, const char *const *words, int n)
{
    for (int i = 0; i < n; i++) {
        sw_str_putc(out, ' ');
        remote_word(out, words[i]);
    }
}

static sw_status remote_flags(const struct builder *b, struct sw_str *out)
{
    const struct job *job = b->job;
    struct sw_str world = {0};
    sw_launch_world_write(&job->hosts, &world);
    out->failed |= world.failed;
    const char *flags[] = {"launch", "--launcher", "local", "--world", sw_str_text(&world)};
    remote_words(out, flags, (int)SW_LEN(flags));
    sw_str_fini(&world);
    sw_str_puts(out, " --node-rank %n --master-addr ");
    remote_word(out, job->master_addr);
    sw_str_printf(out, " --master-port %d --grace %g", job->master_port, job->options->grace_s);
    if (job->options->bind_cores) {
        sw_str_puts(out, " --bind-cores");
    }
    if (job->options->bind_core_list) {
        const char *list[] = {"--bind-core-list", job->options->bind_core_list};
        remote_words(out, list, 2);
    }
    sw_str_puts(out, " --");
    remote_words(out, job->options->program, job->options->n_program);
    return SW_OK;
}

/* pdsh starts one launcher per host, which starts the ranks of that host. */
static sw_status pdsh(const struct builder *b)
{
    const struct job *job = b->job;
    char folder[PATH_MAX] = "";
    struct sw_str text = {0};
    SW_TRY(put_two(b, "-S", "-b")); /* else one SIGINT prints a status, and the job goes on */
    SW_TRY(put(b, "-f"));
    SW_TRY(put(b, "1024"));
    SW_TRY(put_hosts(b, "-w", NAMES));
    SW_TRY(put_words(b, &job->launcher_args));
    if (!job->options->folder && !getcwd(folder, sizeof folder)) {
        return SW_FAIL(SW_E_IO, "the current folder has no name");
    }
    for (int i = 0; i < job->exports.n; i++) {
        sw_str_puts(&text, "export ");
        const char *each = job->exports.items[i], *equals = strchr(each, '=');
        sw_str_append(&text, each, (size_t)(equals - each) + 1);
        remote_word(&text, equals + 1);
        sw_str_puts(&text, "; ");
    }
    sw_str_puts(&text, "cd ");
    remote_word(&text, job->options->folder ? job->options->folder : folder);
    sw_str_puts(&text, " && ");
    remote_word(&text, job->options->self ? job->options->self : "spillway");
    SW_TRY(remote_flags(b, &text));
    SW_TRY(put_str(b, &text));
    SW_TRY(tell(b, "PDSH_RCMD_TYPE", "ssh"));
    if (job->options->ssh_port) {
        char port[32];
        snprintf(port, sizeof port, "-p %lld", (long long)job->options->ssh_port);
        SW_TRY(tell(b, "PDSH_SSH_ARGS_APPEND", port));
    }
    return SW_OK;
}

/* Entry i of "a,b,..": its length, and 0 if there is none. */
static size_t entry_of(const char *list, int i, const char **out)
{
    for (; i > 0 && list; i--) {
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    *out = list;
    return list ? strcspn(list, ",") : 0;
}

/* If slots are chosen by number, a rank sees the GPUs with these numbers, among those that it sees
 * otherwise. HIP's libraries read this variable, too. */
static sw_status tell_gpus(const struct builder *b)
{
    static const char name[] = "CUDA_VISIBLE_DEVICES";
    const struct host *host = &b->job->hosts.items[b->job->node];
    const char *given = sw_launch_get(&b->job->exports, name), *entry;
    struct sw_str text = {0};
    given = given ? given : sw_launch_own_value(b->job->options, name);
    if (!b->job->single_slots || (given && (!*given || *given == '-'))) { /* all, or none */
        return SW_OK;
    }
    for (int i = 0; i < host->n_slots; i++) {
        sw_str_puts(&text, i > 0 ? "," : "");
        if (!given) {
            sw_str_printf(&text, "%d", host->slots[i]);
            continue;
        }
        const size_t len = entry_of(given, host->slots[i], &entry);
        if (len == 0) {
            sw_str_fini(&text);
            return SW_FAIL(SW_E_CONFIG, "%s=%s: wanted an entry for slot %d of %s", name, given,
                           host->slots[i], host->name);
        }
        sw_str_append(&text, entry, len);
    }
    const sw_status st = text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a command")
                                     : tell(b, name, sw_str_text(&text));
    sw_str_fini(&text);
    return st;
}

/* Ranks that inherit the environment of an mpirun or srun around this launcher would ask its MPI
 * otherwise. */
static sw_status tell_no_mpi(const struct builder *b)
{
    static const char name[] = "SPILLWAY_MPI";
    return sw_launch_get(&b->job->exports, name) ? SW_OK : tell(b, name, "off");
}

static sw_status local_rank(const struct builder *b, int i_local)
{
    const struct job *job = b->job;
    SW_TRY(tell_exports(b));
    SW_TRY(tell_gpus(b));
    SW_TRY(tell_secret(b));
    SW_TRY(tell_int(b, "RANK", b->to->rank));
    SW_TRY(tell_int(b, "LOCAL_RANK", i_local));
    SW_TRY(tell_int(b, "WORLD_SIZE", job->n_ranks));
    SW_TRY(tell_int(b, "LOCAL_SIZE", job->hosts.items[job->node].n_slots));
    SW_TRY(tell(b, "MASTER_ADDR", job->master_addr));
    SW_TRY(tell_int(b, "MASTER_PORT", job->master_port));
    SW_TRY(tell_no_mpi(b));
    return put_program(b);
}

static sw_status one(const struct builder *b)
{
    static const char *const programs[] = {"mpirun", "mpirun", "srun", "pdsh"};
    SW_TRY(put(b, programs[b->job->launcher]));
    switch (b->job->launcher) {
    case LAUNCH_OPENMPI:
        return openmpi(b);
    case LAUNCH_MPICH:
        return mpich(b);
    case LAUNCH_SLURM:
        return slurm(b);
    case LAUNCH_PDSH:
        return pdsh(b);
    case LAUNCH_LOCAL:
        break;
    }
    return SW_OK;
}

sw_status sw_launch_commands(const struct job *job, struct commands *out)
{
    const bool local = job->launcher == LAUNCH_LOCAL;
    const int n = local ? job->hosts.items[job->node].n_slots : 1;
    struct commands commands = {.n = n};
    commands.items = sw_arena_array(job->arena, (size_t)n, sizeof *commands.items);
    SW_TRY_ALLOC(commands.items, "the commands");
    const int first = local ? sw_launch_first_rank(job, job->node) : -1;
    for (int i = 0; i < n; i++) {
        const struct builder b = {job, job->arena, &commands.items[i]};
        b.to->rank = first + (local ? i : 0);
        SW_TRY(local ? local_rank(&b, i) : one(&b));
    }
    *out = commands;
    return SW_OK;
}

static void write_command(const struct command *command, struct sw_str *out)
{
    for (int i = 0; i < command->added.n; i++) {
        const char *each = command->added.items[i], *equals = strchr(each, '=');
        sw_str_append(out, each, (size_t)(equals - each) + 1);
        sw_launch_quote(out, equals + 1);
        sw_str_putc(out, ' ');
    }
    for (int i = 0; i < command->words.n; i++) {
        if (i > 0) {
            sw_str_putc(out, ' ');
        }
        sw_launch_quote(out, command->words.items[i]);
    }
}

void sw_launch_commands_write(const struct commands *commands, struct sw_str *out)
{
    for (int i = 0; i < commands->n; i++) {
        write_command(&commands->items[i], out);
        sw_str_puts(out, commands->n > 1 ? " &\n" : "\n");
    }
    if (commands->n > 1) {
        sw_str_puts(out, "wait\n");
    }
}
