// SPDX-License-Identifier: Apache-2.0
// spillway config - effective values of a ds_config.json and where each came from; what a key means;
// what a schedule does; the manual page. Exit status 0, or 2 when something was refused.
#include "spillway/config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sw_cmd_config(int argc, char **argv);

static const char usage[] =
    "usage: spillway config FILE [--ranks N] [--set KEY=VALUE].. [--json] [--schedule N]\n"
    "       spillway config --explain KEY\n"
    "       spillway config --docs\n"
    "\n"
    "  --ranks N        data-parallel ranks of the batch arithmetic (1)\n"
    "  --set KEY=VALUE  edit the file before it is read: --set fp16.enabled=true\n"
    "  --json           for machines: config, source, not_built and schedule\n"
    "  --schedule N     learning rate and momentum of the first N steps\n"
    "  --explain KEY    type, default, range and meaning of a key or a block\n"
    "  --docs           docs/config.md, from the tables\n";

struct options {
    struct sw_config_options report;
    const char *explain;
    const char *at; /* the word that parse() was at */
    bool docs, help;
};

/* A whole number of at least `least`, or why the word is none. */
static const char *count(const char *word, int least, int *out)
{
    char *end;
    errno = 0;
    const long value = word ? strtol(word, &end, 10) : 0;
    if (!word || end == word || *end || errno || value < least || value > INT_MAX) {
        return least ? "a positive whole number is wanted" : "a whole number is wanted";
    }
    *out = (int)value;
    return NULL;
}

/* NULL, or what is wrong with the command line. argv ends with NULL. */
static const char *parse(int argc, char **argv, struct options *o, const char **sets)
{
    const char *wrong = NULL;
    for (int i = 1; i < argc && !wrong; i++) {
        const char *word = argv[i], *next = argv[i + 1];
        o->at = word;
        if (strcmp(word, "--json") == 0) {
            o->report.json = true;
        } else if (strcmp(word, "--docs") == 0) {
            o->docs = true;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            o->help = true;
        } else if (strcmp(word, "--explain") == 0 && next) {
            o->explain = argv[++i];
        } else if (strcmp(word, "--set") == 0 && next) {
            sets[o->report.n_sets++] = argv[++i];
        } else if (strcmp(word, "--ranks") == 0) {
            wrong = count(argv[++i], 1, &o->report.ranks);
        } else if (strcmp(word, "--schedule") == 0) {
            wrong = count(argv[++i], 0, &o->report.n_steps);
            o->report.schedule = true;
        } else if (word[0] == '-' || o->report.path) {
            wrong = word[0] != '-' ? "one file at a time"
                    : next         ? "unknown option"
                                   : "unknown option, or one without its value";
        } else {
            o->report.path = word;
        }
    }
    const bool nothing = !o->report.path && !o->explain && !o->docs;
    return wrong ? wrong : nothing ? "no file given" : NULL;
}

static sw_status run(const struct options *o, char **out_text, char **out_notes)
{
    if (o->explain) {
        return sw_config_explain_text(o->explain, out_text);
    }
    if (o->docs) {
        return sw_config_docs_text(out_text);
    }
    return sw_config_report(&o->report, out_text, out_notes);
}

int sw_cmd_config(int argc, char **argv)
{
    char *text = NULL, *notes = NULL;
    struct options o = {0};
    const char **sets = calloc((size_t)argc + 1, sizeof *sets);
    if (!sets) {
        fputs("spillway config: out of memory\n", stderr);
        return 2;
    }
    o.report.sets = sets;
    const char *wrong = parse(argc, argv, &o, sets);
    int status = 0;
    if (o.help) {
        fputs(usage, stdout);
    } else if (wrong) {
        fprintf(stderr, "spillway config: %s: %s; see spillway config --help\n",
                o.at ? o.at : "FILE", wrong);
        status = 2;
    } else if (run(&o, &text, &notes) < 0) {
        fprintf(stderr, "spillway config: %s\n", sw_error_message());
        status = 2;
    } else {
        fputs(text, stdout);
        fputs(notes && !o.report.json ? notes : "", stderr);
    }
    sw_text_free(text);
    sw_text_free(notes);
    free(sets);
    return status;
}
