// SPDX-License-Identifier: Apache-2.0
// spillway tokenize - lines of text to lines of token ids and back, standard input to standard output.
// Exit status 0 done, 1 failed at a line, 2 refused before it started.
#include "spillway/data.h"

#include <string.h>

int sw_cmd_tokenize(int argc, char **argv);

static const char usage[] =
    "usage: spillway tokenize --tokenizer DIR|FILE [--decode] [--json] [--special|--no-special]\n"
    "                         [--prefix-space|--no-prefix-space]\n"
    "\n"
    "Reads standard input line by line and writes one line for each.\n"
    "\n"
    "  --tokenizer PATH  folder or file: tokenizer.json, vocab.json and merges.txt, encoder.json\n"
    "                    and vocab.bpe, chars.json\n"
    "  --decode          lines of ids to lines of text\n"
    "  --json            JSON lines: {\"text\": ..} or {\"pair\": [.., ..]} to {\"ids\": [..]};\n"
    "                    with --decode {\"ids\": [..]} to {\"text\": ..}. Texts may hold line ends\n"
    "  --special         add the tokens of the tokenizer's template; with --decode keep special\n"
    "                    tokens in the text (the default)\n"
    "  --no-special      do neither\n"
    "  --prefix-space    a space in front of every text, whatever the files say\n"
    "  --no-prefix-space none\n";

struct command {
    struct sw_tokenizer_options open;
    struct sw_tokenize_options stream;
    const char *path;
    const char *at; /* the word that parse() was at */
    bool help;
};

/* NULL, or what is wrong with the command line. argv ends with NULL. */
static const char *parse(int argc, char **argv, struct command *command)
{
    for (int i = 1; i < argc; ++i) {
        const char *word = argv[i];
        command->at = word;
        if (strcmp(word, "--tokenizer") == 0) {
            command->path = argv[++i];
            if (!command->path) {
                return "a folder or file is wanted";
            }
        } else if (strcmp(word, "--decode") == 0) {
            command->stream.decode = true;
        } else if (strcmp(word, "--json") == 0) {
            command->stream.json = true;
        } else if (strcmp(word, "--special") == 0) {
            command->stream.special = true;
        } else if (strcmp(word, "--no-special") == 0) {
            command->stream.special = false;
        } else if (strcmp(word, "--prefix-space") == 0) {
            command->open.prefix_space = SW_PREFIX_ON;
        } else if (strcmp(word, "--no-prefix-space") == 0) {
            command->open.prefix_space = SW_PREFIX_OFF;
        } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            command->help = true;
        } else {
            return word[0] == '-' ? "unknown option"
                                  : "not expected; text is read from standard input";
        }
    }
    command->at = "--tokenizer";
    return command->path || command->help ? NULL : "is missing";
}

/* Exit status of an opened tokenizer's work. */
static int run(struct sw_tokenizer *tokenizer, const struct sw_tokenize_options *options)
{
    const sw_status st = sw_tokenize_stream(tokenizer, options, stdin, stdout);
    if (st < 0) {
        fprintf(stderr, "spillway tokenize: %s\n", sw_error_message());
    }
    return st < 0 ? 1 : 0;
}

int sw_cmd_tokenize(int argc, char **argv)
{
    struct command command = {.stream.special = true};
    struct sw_tokenizer *tokenizer = NULL;
    const char *wrong = parse(argc, argv, &command);
    if (command.help && !wrong) {
        fputs(usage, stdout);
        return 0;
    }
    if (wrong) {
        fprintf(stderr, "spillway tokenize: %s: %s; see spillway tokenize --help\n", command.at,
                wrong);
        return 2;
    }
    if (sw_tokenizer_open(command.path, &command.open, &tokenizer) < 0) {
        fprintf(stderr, "spillway tokenize: %s\n", sw_error_message());
        return 2;
    }
    const int status = run(tokenizer, &command.stream);
    sw_tokenizer_close(tokenizer);
    return status;
}
