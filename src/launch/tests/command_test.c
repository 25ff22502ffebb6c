// SPDX-License-Identifier: Apache-2.0
// Commands without running them: words come back from a shell as they went in, later variables win,
// every refusal names what was wanted, and hosts that differ get their own numbers.
#include "launch/private.h"

#include "support/test.h"

#include <unistd.h>

static const char *const program[] = {"prog", "x y"};
static const char *const nothing[] = {NULL};

static struct sw_launch_options options(const char *world)
{
    return (struct sw_launch_options){.program = program,
                                      .n_program = 2,
                                      .world = world,
                                      .num_nodes = -1,
                                      .num_ranks = -1,
                                      .environment = nothing,
                                      .home = "/nowhere",
                                      .folder = "/nowhere"};
}

static void expect_text(const struct sw_launch_options *o, const char *want)
{
    char *text = NULL;
    if (sw_launch_text(o, &text) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_string_equal(text, want);
    sw_text_free(text);
}

static void expect_refusal(const struct sw_launch_options *o, const char *want)
{
    char *text = NULL;
    assert_true(sw_launch_text(o, &text) < 0);
    if (!strstr(sw_error_message(), want)) {
        fail_msg("wanted \"%s\", got \"%s\"", want, sw_error_message());
    }
}

static void expect_gpus(const char *world, const char *const *environment, const char *want)
{
    char *text = NULL;
    struct sw_launch_options o = options(world);
    o.launcher = "local";
    o.environment = environment;
    assert_int_equal(sw_launch_text(&o, &text), SW_OK);
    const char *line = strstr(text, "CUDA_VISIBLE_DEVICES=");
    if (want ? !line || strncmp(strchr(line, '=') + 1, want, strlen(want)) != 0 ||
                   line[strlen("CUDA_VISIBLE_DEVICES=") + strlen(want)] != ' '
             : line != NULL) {
        fail_msg("%s: wanted GPUs %s in %s", world, want ? want : "untold", text);
    }
    sw_text_free(text);
}

static void single_slots_are_gpus(void **state)
{
    (void)state;
    static const char *const some[] = {"CUDA_VISIBLE_DEVICES=7,6,GPU-5", NULL};
    static const char *const none[] = {"CUDA_VISIBLE_DEVICES=", NULL};
    expect_gpus("a:2,5", nothing, "2,5");
    expect_gpus("a:0,1", nothing, NULL);
    expect_gpus("a:0,2", some, "7,GPU-5");
    expect_gpus("a:0,1,2", some, NULL);
    expect_gpus("a:2", none, NULL);
    struct sw_launch_options o = options("a:3");
    o.launcher = "local";
    o.environment = some;
    expect_refusal(&o, "CUDA_VISIBLE_DEVICES=7,6,GPU-5: wanted an entry for slot 3 of a");
}

static void the_first_host_has_a_name_for_the_others(void **state)
{
    (void)state;
    static const char *const worlds[] = {"localhost:0/b:0", "me@localhost:0/b:0",
                                         "127.0.0.1:0/b:0"};
    for (size_t i = 0; i < SW_LEN(worlds); i++) {
        struct sw_launch_options o = options(worlds[i]);
        char *text = NULL;
        o.launcher = "pdsh";
        expect_refusal(&o, "is the first of 2 hosts");
        o.launcher = "local";
        o.node_rank_given = true;
        expect_refusal(&o, "is the first of 2 hosts");
        o.master_addr = "10.0.0.1";
        assert_int_equal(sw_launch_text(&o, &text), SW_OK);
        sw_text_free(text);
    }
}

/* Any bytes: through our own splitting, and through a real shell. */
static void test_quoting(void **state)
{
    (void)state;
    static const char *const hard[] = {
        "",    "a b",    "it's",  "\"q\"",       "$HOME `x` $(y)", "a\\",
        "\n",  "*?[x]",  "~/x",   "#c",          "a;b&c|d<e>f",    "!h",
        "50%", "\t tab", "{a,b}", "caf\303\251", "'\\''",          "plain"};
    for (size_t i = 0; i < SW_LEN(hard); i++) {
        struct sw_str text = {0}, command = {0};
        struct sw_arena arena;
        struct words back = {0};
        char got[64] = "";
        sw_arena_init(&arena, "test");
        sw_launch_quote(&text, hard[i]);
        assert_int_equal(sw_launch_split(&arena, "test", sw_str_text(&text), &back), SW_OK);
        /* our splitting knows no empty word between blanks; a shell does */
        assert_string_equal(back.n ? back.items[0] : "", hard[i]);
        sw_str_printf(&command, "printf %%s %s", sw_str_text(&text));
        FILE *shell = popen(sw_str_text(&command), "r");
        assert_non_null(shell);
        got[fread(got, 1, sizeof got - 1, shell)] = '\0';
        assert_int_equal(pclose(shell), 0);
        assert_string_equal(got, hard[i]);
        sw_str_fini(&text);
        sw_str_fini(&command);
        sw_arena_fini(&arena);
    }
}

static void test_splitting(void **state)
{
    (void)state;
    struct sw_arena arena;
    struct words words = {0};
    sw_arena_init(&arena, "test");
    assert_int_equal(sw_launch_split(&arena, "t", " a  'b c'\"d e\"\\ f ''g '' ", &words), SW_OK);
    assert_int_equal(words.n, 4);
    assert_string_equal(words.items[0], "a");
    assert_string_equal(words.items[1], "b cd e f");
    assert_string_equal(words.items[2], "g");
    assert_string_equal(words.items[3], "");
    assert_int_equal(sw_launch_split(&arena, "--launcher-args", "a 'b", &words), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "--launcher-args: wanted a closing '"));
    sw_arena_fini(&arena);
}

static void test_hosts_that_differ(void **state)
{
    (void)state;
    struct sw_launch_options o = options("a:0,1/b:0");
    o.launcher = "openmpi";
    expect_text(&o, "mpirun -n 3 --host a:2,b:1 --bind-to none prog 'x y'\n");
    o.launcher = "mpich";
    expect_text(&o, "mpirun -n 3 -genv MASTER_ADDR a -genv MASTER_PORT 29500 -genv WORLD_SIZE 3 "
                    "-hosts a:2,b:1 prog 'x y'\n");
    o.launcher = "SLURM";
    expect_text(&o, "srun -n 3 --nodelist a,a,b --nodes 2 --distribution=arbitrary --export=ALL "
                    "prog 'x y'\n");
    o.launcher = NULL;
    o.node_rank_given = true;
    o.node_rank = 1;
    expect_text(&o, "RANK=2 LOCAL_RANK=0 WORLD_SIZE=3 LOCAL_SIZE=1 MASTER_ADDR=a "
                    "MASTER_PORT=29500 SPILLWAY_MPI=off prog 'x y'\n");
}

static void write_secret(char *path)
{
    const int fd = mkstemp(path); /* of mode 0600 */
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "00112233445566778899aabbccddeeff\n", 33), 33);
    close(fd);
}

static void test_remote_shells(void **state)
{
    (void)state;
    char path[] = "/tmp/spillway-secret-XXXXXX", variable[64], want[512];
    write_secret(path);
    snprintf(variable, sizeof variable, "SPILLWAY_JOB_SECRET_FILE=%s", path);
    const char *const environment[] = {
        variable, "SPILLWAY_JOB_SECRET=ffeeddccbbaa99887766554433221100", NULL};
    static const char *const percent[] = {"p", "50% it's"};
    const char *exports[] = {"V=a $b"};
    struct sw_launch_options o = options("a:1/b:0");
    o.launcher = "pdsh";
    o.program = percent;
    o.exports = exports;
    o.n_exports = 1;
    o.self = "/opt/spillway";
    o.ssh_port = 22;
    o.environment = environment;
    char *text = NULL;
    assert_int_equal(sw_launch_text(&o, &text), SW_OK);
    struct sw_arena arena;
    struct words words = {0};
    sw_arena_init(&arena, "test");
    assert_int_equal(sw_launch_split(&arena, "t", text, &words), SW_OK);
    assert_string_equal(words.items[0], "PDSH_RCMD_TYPE=ssh");
    assert_string_equal(words.items[1], "PDSH_SSH_ARGS_APPEND=-p 22");
    snprintf(
        want, sizeof want,
        "export SPILLWAY_JOB_SECRET_FILE=%s; export V='a $b'; cd /nowhere && /opt/spillway "
        "launch --launcher local --world a:1/b:0 --node-rank %%n --master-addr a --master-port "
        "29500 --grace 0 -- p '50%%%% it'\\''s'",
        path);
    assert_string_equal(words.items[words.n - 1], want);
    unlink(path);
    sw_arena_fini(&arena);
    sw_text_free(text);
}

/* srun's list would end such values early. */
static void test_slurm_values(void **state)
{
    (void)state;
    const char *exports[] = {"A=1,2", "B=x y", "HERE"};
    static const char *const environment[] = {"HERE=7", NULL};
    struct sw_launch_options o = options("a:0");
    o.launcher = "slurm";
    o.exports = exports;
    o.n_exports = 3;
    o.environment = environment;
    expect_text(&o, "A=1,2 B='x y' srun -n 1 --nodelist a --nodes 1 --ntasks-per-node 1 "
                    "'--export=ALL,B=x y,HERE=7' prog 'x y'\n");
    const char *missing[] = {"NOT_SET"};
    o.exports = missing;
    o.n_exports = 1;
    expect_refusal(&o, "--export: NOT_SET is not set here");
}

static void test_environment_files(void **state)
{
    (void)state;
    char home[] = "/tmp/spillway-home-XXXXXX", here[] = "/tmp/spillway-here-XXXXXX", path[64];
    static const char *const environment[] = {"UCX_A=env", "NCCL_B=env", "OTHER=no",
                                              "BASH_FUNC_UCX%%=no", NULL};
    const char *exports[] = {"C=asked"};
    assert_true(mkdtemp(home) && mkdtemp(here));
    struct sw_launch_options o = options("a:0");
    o.launcher = "openmpi";
    o.environment = environment;
    o.home = home;
    o.folder = here;
    o.exports = exports;
    o.n_exports = 1;
    snprintf(path, sizeof path, "%s/.deepspeed_env", home);
    FILE *file = fopen(path, "w");
    fputs("# c\n\nUCX_A = home \r\nC=home\nD=home\n", file);
    fclose(file);
    snprintf(path, sizeof path, "%s/.deepspeed_env", here);
    file = fopen(path, "w");
    fputs("D=a=b # stays\n", file);
    fclose(file);
    expect_text(&o, "mpirun -n 1 --host a:1 --bind-to none -x UCX_A=home -x NCCL_B=env -x C=asked "
                    "-x 'D=a=b # stays' prog 'x y'\n");
    file = fopen(path, "w");
    fputs("\nE=1\nx-y=2\n", file);
    fclose(file);
    expect_refusal(&o, ".deepspeed_env:3: wanted the name of a variable, got \"x-y\"");
    unlink(path);
    rmdir(here);
    snprintf(path, sizeof path, "%s/.deepspeed_env", home);
    unlink(path);
    rmdir(home);
}

static void test_refusals(void **state)
{
    (void)state;
    struct sw_launch_options o = options("a:0,1/b:0");
    o.launcher = "impi";
    expect_refusal(&o, "--launcher: wanted openmpi, mpich, slurm, pdsh or local, got impi");
    o.launcher = "local";
    expect_refusal(&o, "--launcher local: wanted one host, or the --node-rank");
    o.launcher = "openmpi";
    o.include = "a:1";
    expect_refusal(&o, "--launcher openmpi: cannot pick single slots");
    o.include = "c";
    expect_refusal(&o, "--include \"c\": the hostfile has no host \"c\"");
    o.include = NULL;
    o.exclude = "a@b";
    expect_refusal(&o, "wanted a slot for at least one rank, got 0 on 0 hosts");
    o.exclude = NULL;
    o.num_nodes = 3;
    expect_refusal(&o, "--num-nodes: wanted at most the 2 hosts there are, got 3");
    o.num_nodes = -1;
    o.bind_cores = true;
    expect_refusal(&o, "--bind-cores: openmpi binds its processes itself");
    o.bind_cores = false;
    o.node_rank_given = true;
    expect_refusal(&o, "--node-rank: wanted --launcher local, got openmpi");
    o.node_rank_given = false;
    o.launcher = "pdsh";
    o.agent = "rsh";
    expect_refusal(&o, "--agent: wanted --launcher openmpi or mpich, got pdsh");
    o.agent = NULL;
    o.launcher = "openmpi";
    static const char *const bad_hosts[] = {
        "a,b", "-oProxyCommand=x", "u@-h", "@h", "u@", "a\033[2J", "a b", "a%n", "a;b"};
    static const char *const launchers[] = {"openmpi", "mpich", "slurm", "pdsh", "local"};
    for (size_t i = 0; i < SW_LEN(bad_hosts); i++) {
        for (size_t k = 0; k < SW_LEN(launchers); k++) {
            char world[64];
            snprintf(world, sizeof world, "%s:0", bad_hosts[i]);
            o.world = world;
            o.launcher = launchers[k];
            expect_refusal(&o, "wanted a host name");
            assert_null(strchr(sw_error_message(), '\033'));
        }
    }
    o.launcher = "openmpi";
    o.world = "a:0";
    const char *told[] = {"SPILLWAY_JOB_SECRET=00112233445566778899aabbccddeeff"};
    o.exports = told;
    o.n_exports = 1;
    expect_refusal(&o, "--export SPILLWAY_JOB_SECRET: every user can read a command line");
    assert_null(strstr(sw_error_message(), "0011"));
    o.n_exports = 0;
    o.launcher = "pdsh";
    expect_refusal(&o, "wanted SPILLWAY_JOB_SECRET_FILE");
    o.world = "a:0/a:1";
    expect_refusal(&o, "--world: host a is given twice");
    o.world = "a:x";
    expect_refusal(&o, "--world: a: wanted a slot, got \"x\"");
    o.world = "a:3,1";
    o.include = "a:3";
    expect_refusal(&o, "--world: a: wanted rising slots, got 1 after 3");
    o.world = "a:1,1";
    expect_refusal(&o, "--world: a: wanted rising slots, got 1 after 1");
    o.include = NULL;
    o.world = "a:0";
    o.master_port = 70000;
    expect_refusal(&o, "--master-port: wanted 1 to 65535, got 70000");
    o.n_program = 0;
    expect_refusal(&o, "wanted a program");
}

static void test_this_machine(void **state)
{
    (void)state;
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    assert_true(sw_launch_is_here(name));
    assert_true(sw_launch_is_here("localhost"));
    assert_true(sw_launch_is_here("user@127.0.0.1"));
    assert_false(sw_launch_is_here("no-such-host-1"));
    assert_false(sw_launch_is_here("203.0.113.7"));
    struct sw_launch_options o = options("localhost:0");
    expect_text(&o, "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 LOCAL_SIZE=1 MASTER_ADDR=127.0.0.1 "
                    "MASTER_PORT=0 SPILLWAY_MPI=off prog 'x y'\n");
    static const char *const own[] = {"SPILLWAY_MPI=on", NULL};
    o.environment = own;
    expect_text(&o, "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 LOCAL_SIZE=1 MASTER_ADDR=127.0.0.1 "
                    "MASTER_PORT=0 prog 'x y'\n");
    o.environment = nothing;
    o.force_multi = true;
    expect_text(&o, "mpirun -n 1 --host localhost:1 --bind-to none prog 'x y'\n");
    o = options("no-such-host-1:0");
    expect_text(&o, "mpirun -n 1 --host no-such-host-1:1 --bind-to none prog 'x y'\n");
}

/* Nothing but a message is left when memory runs out, wherever that is. */
static void test_out_of_memory(void **state)
{
    (void)state;
    struct sw_launch_options o = options("a:0,1/b:0");
    const char *exports[] = {"A=1"};
    o.exports = exports;
    o.n_exports = 1;
    o.include = "a:0,1@b";
    char path[] = "/tmp/spillway-secret-XXXXXX", variable[64];
    write_secret(path);
    snprintf(variable, sizeof variable, "SPILLWAY_JOB_SECRET_FILE=%s", path);
    const char *const environment[] = {variable, NULL};
    o.environment = environment;
    for (int launcher = 0; launcher < 4; launcher++) {
        o.launcher = sw_launch_name((enum launcher)launcher);
        struct sw_alloc_stats before, after;
        sw_alloc_get_stats(&before);
        bool done = false;
        for (int n = 1; n < 1000 && !done; n++) {
            char *text = NULL;
            sw_alloc_fail_nth(n);
            const sw_status st = sw_launch_text(&o, &text);
            sw_alloc_fail_nth(0);
            done = st == SW_OK;
            assert_true(done || st == SW_E_NOMEM);
            sw_text_free(text);
        }
        assert_true(done);
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
    unlink(path);
}

/* A secret of the environment is in no command, and printing one draws none. */
static void a_printed_command_holds_no_secret(void **state)
{
    (void)state;
    static const char *const environment[] = {
        "SPILLWAY_JOB_SECRET=00112233445566778899aabbccddeeff", NULL};
    static const char *const launchers[] = {"openmpi", "mpich", "slurm", NULL};
    for (size_t i = 0; i < SW_LEN(launchers); i++) {
        struct sw_launch_options o = options("localhost:0");
        char *text = NULL;
        o.launcher = launchers[i];
        o.environment = environment;
        assert_int_equal(sw_launch_text(&o, &text), SW_OK);
        assert_null(strstr(text, "0011"));
        sw_text_free(text);
    }
}

/* The command line of a launcher, and whether its environment has the secret. */
static void the_secret_travels_in_environments_only(void **state)
{
    (void)state;
    char path[] = "/tmp/spillway-secret-XXXXXX", variable[64], text[33];
    write_secret(path);
    snprintf(variable, sizeof variable, "SPILLWAY_JOB_SECRET_FILE=%s", path);
    const char *const with_file[] = {variable, NULL};
    for (int i = 0; i < 10; i++) {
        struct sw_launch_options o = options("localhost:0");
        struct sw_arena arena;
        struct job job;
        struct commands commands;
        const enum launcher launcher = (enum launcher)(i % 5);
        o.launcher = sw_launch_name(launcher);
        o.environment = i < 5 && launcher != LAUNCH_PDSH ? nothing : with_file;
        sw_arena_init(&arena, "test");
        assert_int_equal(sw_launch_job_init(&o, &arena, NULL, &job), SW_OK);
        assert_int_equal(sw_launch_choose_secret(&job, true), SW_OK);
        assert_int_equal(sw_launch_commands(&job, &commands), SW_OK);
        sw_hex_write(job.secret.key, sizeof job.secret.key, text);
        const struct command *command = &commands.items[0];
        for (int k = 0; k < command->words.n; k++) {
            assert_null(strstr(command->words.items[k], text));
        }
        const char *told = sw_launch_get(&command->added, "SPILLWAY_JOB_SECRET");
        assert_int_equal(told != NULL, launcher != LAUNCH_PDSH);
        assert_true(!told || strcmp(told, text) == 0);
        assert_int_equal(strcmp(text, "00112233445566778899aabbccddeeff") == 0,
                         o.environment == with_file);
        sw_arena_fini(&arena);
    }
    unlink(path);
    /* by hand on each of several hosts nobody could hand a new one round */
    struct sw_launch_options o = options("a:0/b:0");
    struct sw_arena arena;
    struct job job;
    o.node_rank_given = true;
    sw_arena_init(&arena, "test");
    assert_int_equal(sw_launch_job_init(&o, &arena, NULL, &job), SW_OK);
    assert_int_equal(sw_launch_choose_secret(&job, true), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "launchers on 2 hosts must be given one secret"));
    sw_arena_fini(&arena);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_quoting),
    cmocka_unit_test(single_slots_are_gpus),
    cmocka_unit_test(the_first_host_has_a_name_for_the_others),
    cmocka_unit_test(test_splitting),
    cmocka_unit_test(test_hosts_that_differ),
    cmocka_unit_test(test_remote_shells),
    cmocka_unit_test(test_slurm_values),
    cmocka_unit_test(test_environment_files),
    cmocka_unit_test(test_refusals),
    cmocka_unit_test(test_this_machine),
    cmocka_unit_test(test_out_of_memory),
    cmocka_unit_test(a_printed_command_holds_no_secret),
    cmocka_unit_test(the_secret_travels_in_environments_only),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
