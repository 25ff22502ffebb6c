// SPDX-License-Identifier: Apache-2.0
// spillway io - measures, tunes and verifies disks: bench, tune, verify. It works on files of its
// own and removes them; it never touches an existing file. Exit status 0, 1 if something failed, 2
// if refused.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/io.h"

/* ---- helpers ---- */

double io_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

const char *io_size(char *buf, size_t cap, int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(buf, cap, "%.4g %s", value, units[unit]);
    return buf;
}

static int choice(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

/* ---- files ---- */

sw_status io_open(struct io_run *run, sw_nvme **out)
{
    const sw_status st =
        sw_nvme_open(run->paths.items, run->paths.n, run->bytes, &run->options, out);
    run->made |= st >= 0;
    return st;
}

void io_remove(const struct io_run *run)
{
    if (run->made && !run->keep && sw_nvme_remove(run->paths.items, run->paths.n) < 0) {
        cli_error(run->command, CLI_FAILED);
    }
}

/* Adds a path to work on. A folder gets a file of our own; an existing file is refused. */
static int take_path(struct io_run *run, const char *given, char **owned)
{
    struct stat info;
    const bool in_folder = stat(given, &info) == 0 && S_ISDIR(info.st_mode);
    const size_t size = strlen(given) + sizeof "/spillway-io.tmp";
    *owned = malloc(size);
    const char **items = realloc(run->paths.items, ((size_t)run->paths.n + 1) * sizeof *items);
    if (items) {
        run->paths.items = items;
    }
    if (!*owned || !items) {
        return cli_fail(run->command, CLI_FAILED, "out of memory");
    }
    snprintf(*owned, size, "%s%s", given, in_folder ? "/spillway-io.tmp" : "");
    run->paths.items[run->paths.n++] = *owned;
    if (stat(*owned, &info) == 0) {
        return cli_fail(run->command, CLI_REFUSED,
                        in_folder
                            ? "%s exists; remove it unless another run uses it (a killed run or "
                              "--keep leaves it)"
                            : "%s exists and would be overwritten; give a folder or a new name",
                        *owned);
    }
    return -1;
}

static int with_paths(struct io_run *run, int (*work)(struct io_run *run))
{
    int status = -1;
    char **owned = calloc((size_t)run->folders.n + 1, sizeof *owned);
    if (!owned) {
        return cli_fail(run->command, CLI_FAILED, "out of memory");
    }
    for (int i = 0; i < run->folders.n && status < 0; i++) {
        status = take_path(run, run->folders.items[i], &owned[i]);
    }
    if (status < 0) {
        status = work(run);
    }
    for (int i = 0; i < run->folders.n; i++) {
        free(owned[i]);
    }
    free(owned);
    cli_free_words(&run->paths);
    return status;
}

/* ---- the command ---- */

enum { LOOPS = 3 };

struct texts {
    const char *size, *block, *stripe, *checksum, *direct, *backend;
};

static int read_texts(struct io_run *run, const struct texts *texts)
{
    static const char *const directs[] = {"auto", "on", "off"};
    static const char *const backends[] = {"auto", "io_uring", "threads"};
    const struct {
        const char *flag, *text;
        int64_t *to;
    } sizes[] = {{"--size", texts->size, &run->bytes},
                 {"--block-size", texts->block, &run->options.block_bytes},
                 {"--stripe", texts->stripe, &run->options.stripe_bytes},
                 {"--checksum", texts->checksum, &run->options.checksum_bytes}};
    for (int i = 0; i < 4; i++) {
        const char *wrong = sizes[i].text ? sw_parse_bytes(sizes[i].text, sizes[i].to) : NULL;
        if (!wrong && sizes[i].text && *sizes[i].to < 1) {
            wrong = "is too small; wanted at least 1";
        }
        if (wrong) {
            return cli_fail(run->command, CLI_REFUSED, "%s: \"%s\" %s", sizes[i].flag,
                            sizes[i].text, wrong);
        }
    }
    const int direct = choice(texts->direct, directs, 3);
    const int backend = choice(texts->backend, backends, 3);
    if (direct < 0) {
        return cli_fail(run->command, CLI_REFUSED, "--direct: wanted auto, on or off, got \"%s\"",
                        texts->direct);
    }
    if (backend < 0) {
        return cli_fail(run->command, CLI_REFUSED,
                        "--backend: wanted auto, io_uring or threads, got \"%s\"", texts->backend);
    }
    run->options.direct = (enum sw_nvme_direct)direct;
    run->options.backend = (enum sw_nvme_backend)backend;
    return -1;
}

/* Refuses flags that the verb chooses by itself or does not use. */
static int check_verb(const struct io_run *run, const char *verb, const struct texts *texts)
{
    struct sw_nvme_options d;
    sw_nvme_options_init(&d);
    const struct sw_nvme_options *o = &run->options;
    const bool tune = strcmp(verb, "tune") == 0;
    const struct {
        const char *flag;
        bool given;
    } flags[] = {
        {"--block-size", tune && texts->block},
        {"--queue-depth", tune && o->queue_depth != d.queue_depth},
        {"--threads", tune && o->intra_op_parallelism != d.intra_op_parallelism},
        {"--single-submit", tune && o->single_submit != d.single_submit},
        {"--no-overlap", tune && o->overlap_events != d.overlap_events},
        {"--json", !tune && run->json},
        {"--loops", strcmp(verb, "verify") == 0 && run->loops != LOOPS},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (flags[i].given) {
            return cli_fail(run->command, CLI_REFUSED, "%s: %s", flags[i].flag,
                            tune ? "tune finds the best value by itself; leave it out"
                                 : "only for another verb");
        }
    }
    return -1;
}

static int choose(struct io_run *run, const struct words *verbs, const struct texts *texts)
{
    static const char *const names[] = {"bench", "tune", "verify"};
    static int (*const works[])(struct io_run *) = {io_bench, io_tune, io_verify};
    static const int64_t sizes[] = {INT64_C(1) << 30, INT64_C(256) << 20, INT64_C(64) << 20};
    const int verb = verbs->n == 1 ? choice(verbs->items[0], names, 3) : -1;
    if (verb < 0) {
        return cli_fail(run->command, CLI_REFUSED, "wanted bench, tune or verify; see --help");
    }
    if (run->folders.n == 0) {
        return cli_fail(run->command, CLI_REFUSED, "--path is required: a folder on the disk");
    }
    run->bytes = sizes[verb];
    int status = check_verb(run, names[verb], texts);
    status = status < 0 ? read_texts(run, texts) : status;
    if (status >= 0) {
        return status;
    }
    if (run->options.queue_depth < 1 || run->options.intra_op_parallelism < 1) {
        return cli_fail(run->command, CLI_REFUSED,
                        "--queue-depth and --threads: wanted at least 1, got 0");
    }
    if (run->loops < 1 || run->loops > 1000) {
        return cli_fail(run->command, CLI_REFUSED, "--loops: wanted 1 to 1000, got %lld",
                        (long long)run->loops);
    }
    if (run->bytes < (1 << 20)) {
        return cli_fail(run->command, CLI_REFUSED, "--size: wanted at least 1M, got \"%s\"",
                        texts->size);
    }
    return with_paths(run, works[verb]);
}

int sw_cmd_io(int argc, char **argv)
{
    struct io_run run = {.loops = LOOPS};
    struct texts texts = {.direct = "auto", .backend = "auto"};
    struct words verbs = {0};
    bool batches = false;
    sw_nvme_options_init(&run.options);
    struct sw_nvme_options *o = &run.options;
    const struct flag flags[] = {
        {"--path", FLAG_LIST, &run.folders, "P", "folder, or new file; several are striped", true},
        {"--size", FLAG_TEXT, &texts.size, "N",
         "total bytes, or 300M, 2G, 1T in powers of 1024 (default: 1G; tune: 256M; verify: 64M)",
         false},
        {"--block-size", FLAG_TEXT, &texts.block, "N",
         "largest single transfer in bytes (default: 1M; tune tries several)", false},
        {"--queue-depth", FLAG_INT, &o->queue_depth, "N",
         "transfers in flight per lane (default: 8; tune tries several)", false},
        {"--threads", FLAG_INT, &o->intra_op_parallelism, "N",
         "lanes that a request is split over, intra_op_parallelism (default: 1; tune tries "
         "several)",
         false},
        {"--direct", FLAG_TEXT, &texts.direct, "W",
         "O_DIRECT: on, off, or auto, which uses it if the disk supports it (default: auto)",
         false},
        {"--backend", FLAG_TEXT, &texts.backend, "W",
         "io_uring, threads, or auto, which uses io_uring if it is available (default: auto)",
         false},
        {"--single-submit", FLAG_BOOL, &o->single_submit, NULL, "submit transfers one by one",
         false},
        {"--no-overlap", FLAG_BOOL, &batches, NULL,
         "submit a batch only after the last one is done", false},
        {"--stripe", FLAG_TEXT, &texts.stripe, "N",
         "bytes written to one path before the next (default: 1M)", false},
        {"--checksum", FLAG_TEXT, &texts.checksum, "N",
         "bytes per checksum (default: no checksums)", false},
        {"--loops", FLAG_INT, &run.loops, "N",
         "number of measurements of each kind by bench and tune (default: 3)", false},
        {"--json", FLAG_BOOL, &run.json, NULL,
         "tune: print the aio block alone to stdout, the table to stderr", false},
        {"--keep", FLAG_BOOL, &run.keep, NULL, "keep the files", false},
    };
    const struct command command = {
        "io", "bench|tune|verify --path FOLDER.. [--size N] [--block-size N] [--queue-depth N] ..",
        "bench measures the GB/s of a disk. tune finds the best \"aio\" block. verify writes and\n"
        "reads at odd offsets and lengths, and compares.",
        CLI_FLAGS(flags),
        "bench --path /mnt/nvme\n"
        "tune --path /mnt/nvme0 --path /mnt/nvme1\n"
        "verify --path /mnt/nvme\n"};
    run.command = &command;
    int status = cli_parse(&command, argc, argv, &verbs);
    o->overlap_events = !batches;
    if (status < 0) {
        status = choose(&run, &verbs, &texts);
    }
    cli_free_words(&verbs);
    cli_free_words(&run.folders);
    return status;
}
