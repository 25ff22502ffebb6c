// SPDX-License-Identifier: Apache-2.0
// spillway report and spillway compare - report on past runs.
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "spillway/report.h"

/* Is the file at `path` standard output, under any name? */
static bool is_standard_output(const char *path)
{
    struct stat there, here;
    return stat(path, &there) == 0 && fstat(STDOUT_FILENO, &here) == 0 &&
           there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

int sw_cmd_report(int argc, char **argv)
{
    const char *output = NULL;
    struct words runs = {0};
    const struct flag flags[] = {
        {"--output", FLAG_TEXT, &output, "F.html",
         "file to write (default: RUN/report.html, or ./report.html for several runs)", 0},
    };
    const struct command command = {
        "report",
        "RUN.. [--output F.html]",
        "Writes one HTML page about a training, finished or not, or about several in one chart.\n"
        "RUN is the --output folder of a training. The page needs no network and no script.",
        flags,
        1,
        "run\n"
        "run-a run-b --output compared.html\n"};
    int status = cli_parse(&command, argc, argv, &runs);
    if (status < 0 && runs.n == 0) {
        status = cli_fail(&command, CLI_REFUSED,
                          "no RUN is given, the --output folder of a training; see --help");
    }
    if (status < 0) {
        const struct sw_report_options options = {
            .runs = runs.items, .n_runs = runs.n, .output = output};
        char *path = NULL;
        const sw_status st = sw_report_write(&options, &path);
        const bool refused = st == SW_E_ARG || st == SW_E_FORMAT;
        status = st >= 0 ? CLI_DONE : cli_error(&command, refused ? CLI_REFUSED : CLI_FAILED);
        if (st >= 0 && !is_standard_output(path)) {
            printf("report: %s\n", path);
        }
        sw_text_free(path);
    }
    cli_free_words(&runs);
    return status;
}

/* Returns the exit status as diff does: 0 if they are the same, 1 if they differ, 2 for trouble. */
int sw_cmd_compare(int argc, char **argv)
{
    bool json = false, same = false;
    struct words words = {0};
    const struct flag flags[] = {{"--json", FLAG_BOOL, &json, NULL, "one JSON object", 0}};
    const struct command command = {
        "compare",
        "A B [--json]",
        "Prints where two runs (the --output folders of trainings) or two plans (files of plan "
        "--json)\ndiffer; for runs also the first step whose loss or norm differs in any bit. "
        "Status 0: no\ndifference, 1: differences, 2: trouble.",
        flags,
        1,
        "run-a run-b\n"
        "a.json b.json --json\n"};
    int status = cli_parse(&command, argc, argv, &words);
    if (status < 0 && words.n != 2) {
        status = cli_fail(&command, CLI_REFUSED,
                          "wanted A and B, two runs or two plans; got %d names", words.n);
    }
    if (status < 0) {
        char *text = NULL;
        if (sw_compare_text(words.items[0], words.items[1], json, &same, &text) < 0) {
            status = cli_error(&command, CLI_REFUSED);
        } else {
            fputs(text, stdout);
            status = fflush(stdout) != 0 ? CLI_REFUSED : same ? CLI_DONE : CLI_FAILED;
        }
        sw_text_free(text);
    }
    cli_free_words(&words);
    return status;
}
