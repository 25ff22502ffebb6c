// SPDX-License-Identifier: Apache-2.0
// spillway tokenize - converts lines of text to lines of token ids and back, standard input to
// standard output.
#include "cli/model_flags.h"

struct run {
    const char *tokenizer;
    bool decode, json, target, special, no_special, no_bos, prefix_space, no_prefix_space, chat;
    struct chat_flags chats;
};

/* Returns the exit status. */
static int tokenize(const struct command *command, const struct run *run)
{
    const struct sw_tokenizer_options options = {
        .prefix_space = run->prefix_space      ? SW_PREFIX_ON
                        : run->no_prefix_space ? SW_PREFIX_OFF
                                               : SW_PREFIX_AS_FILE,
        .no_bos = run->no_bos,
    };
    struct sw_tokenize_options stream = {
        .decode = run->decode, .json = run->json, .special = !run->no_special};
    sw_status (*convert)(sw_tokenizer *, const struct sw_tokenize_options *, FILE *, FILE *) =
        run->target ? sw_tokenize_targets : sw_tokenize_stream;
    struct sw_chat_options chat;
    sw_tokenizer *tokenizer = NULL;
    int status = cli_chat_options(command, &run->chats, &chat);
    if (status >= 0) {
        return status;
    }
    if (sw_tokenizer_open(run->tokenizer, &options, &tokenizer) < 0) {
        return cli_error(command, CLI_REFUSED);
    }
    chat.folder = run->tokenizer;
    chat.tokenizer = tokenizer;
    if (run->chat && sw_chat_open(&chat, &stream.chat) < 0) {
        status = cli_error(command, CLI_REFUSED);
    } else if (convert(tokenizer, &stream, stdin, stdout) < 0) {
        status = cli_error(command, CLI_FAILED);
    } else {
        status = CLI_DONE;
    }
    sw_chat_close(stream.chat);
    sw_tokenizer_close(tokenizer);
    return status;
}

int sw_cmd_tokenize(int argc, char **argv)
{
    struct run run = {0};
    const struct flag flags[] = {
        CLI_HEADING("Tokens"),
        {"--tokenizer", FLAG_TEXT, &run.tokenizer, "PATH",
         "folder or file: tokenizer.json, vocab.json, vocab.txt, *.model, source.spm, chars.json",
         0},
        {"--decode", FLAG_BOOL, &run.decode, NULL, "convert lines of ids to lines of text", 0},
        {"--json", FLAG_BOOL, &run.json, NULL,
         "convert JSON lines {\"text\": ..} or {\"pair\": [.., ..]} to {\"ids\": [..]}, and back "
         "with --decode",
         0},
        {"--target", FLAG_BOOL, &run.target, NULL,
         "encode texts that the model writes (default: texts that it reads); Marian's, mBART's and "
         "mBART-50's tokenizers make a difference",
         0},
        {"--special", FLAG_BOOL, &run.special, NULL,
         "add the tokens of the tokenizer's template; with --decode, keep special tokens "
         "(default)",
         0},
        {"--no-special", FLAG_BOOL, &run.no_special, NULL, "leave special tokens out", 0},
        CLI_NO_BOS_FLAG(run.no_bos),
        {"--prefix-space", FLAG_BOOL, &run.prefix_space, NULL,
         "put a space before every text, whatever the files say", 0},
        {"--no-prefix-space", FLAG_BOOL, &run.no_prefix_space, NULL,
         "put no space before texts, whatever the files say", 0},
        CLI_HEADING("Chats"),
        {"--chat", FLAG_BOOL, &run.chat, NULL,
         "convert JSON lines of conversations to {\"text\", \"ids\", \"mask\"}; the mask is 1 "
         "where the loss counts",
         0},
        CLI_CHAT_FLAGS(run.chats),
        {"--loss-on", FLAG_TEXT, &run.chats.loss_on, "answers|last|all",
         "part of a conversation that the mask marks (default: answers)", 0},
    };
    const struct command command = {
        "tokenize", "--tokenizer PATH [--decode] [--json] [--chat] < IN > OUT",
        "Writes one line of token ids for each line of text.", CLI_FLAGS(flags),
        "--tokenizer model < text.txt\n"
        "--tokenizer model --decode < ids.txt\n"
        "--tokenizer model --chat < chats.jsonl\n"};
    const int status = cli_parse(&command, argc, argv, NULL);
    if (status >= 0) {
        return status;
    }
    if (!run.tokenizer) {
        return cli_fail(&command, CLI_REFUSED, "--tokenizer is required; see --help");
    }
    if ((run.special && run.no_special) || (run.prefix_space && run.no_prefix_space)) {
        return cli_fail(&command, CLI_REFUSED, "a flag and its --no- form exclude each other");
    }
    if (run.target && (run.decode || run.chat)) {
        return cli_fail(&command, CLI_REFUSED, "--target excludes --decode and --chat");
    }
    if (run.chat && (run.decode || run.json || run.special || run.no_special || run.no_bos)) {
        return cli_fail(&command, CLI_REFUSED,
                        "--chat excludes --decode, --json, --special, --no-special and --no-bos");
    }
    if (!run.chat && (run.chats.template || run.chats.date || run.chats.loss_on)) {
        return cli_fail(&command, CLI_REFUSED,
                        "--chat-template, --chat-date and --loss-on need --chat");
    }
    return tokenize(&command, &run);
}
