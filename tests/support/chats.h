// SPDX-License-Identifier: Apache-2.0
// A character tokenizer with a chat template, and conversations, for tests.
#pragma once

/* ChatML in one line. */
extern const char test_chatml[];

/* Writes tokenizer.json and, with this template (NULL: none), tokenizer_config.json into a folder
 * that is there: the printable characters of ASCII and the line end (id 95), then <|im_start|>,
 * <|im_end|> and <|endoftext|>, 99 tokens in all. */
void test_write_chat_tokenizer(const char *folder, const char *template_text);
/* Writes n conversations of one to three answers as JSON lines. */
void test_write_chats(const char *path, int n);
