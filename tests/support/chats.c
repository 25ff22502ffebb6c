// SPDX-License-Identifier: Apache-2.0
// The files, written line by line.
#include "support/chats.h"

#include <stdio.h>

#include "support/test.h"

const char test_chatml[] =
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static FILE *begin(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    return file;
}

static void put_string(FILE *file, const char *text)
{
    putc('"', file);
    for (; *text; text++) {
        if (*text == '\n') {
            fputs("\\n", file);
        } else {
            fprintf(file, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
        }
    }
    putc('"', file);
}

void test_write_chat_tokenizer(const char *folder, const char *template_text)
{
    static const char *const special[] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"};
    FILE *file = begin(folder, "tokenizer.json");
    fputs("{\"version\":\"1.0\",\"added_tokens\":[", file);
    for (int i = 0; i < 3; i++) {
        fprintf(file,
                "%s{\"id\":%d,\"content\":\"%s\",\"special\":true,\"normalized\":false,"
                "\"single_word\":false,\"lstrip\":false,\"rstrip\":false}",
                i > 0 ? "," : "", 96 + i, special[i]);
    }
    fputs("],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":"
          "{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{",
          file);
    for (char c = ' '; c <= '~'; c++) {
        const char text[2] = {c, '\0'};
        put_string(file, text);
        fprintf(file, ":%d,", c - ' ');
    }
    fputs("\"\\n\":95}}}\n", file);
    assert_int_equal(fclose(file), 0);
    file = begin(folder, "tokenizer_config.json");
    fputs("{\"eos_token\":\"<|im_end|>\",\"pad_token\":\"<|endoftext|>\"", file);
    if (template_text) {
        fputs(",\"chat_template\":", file);
        put_string(file, template_text);
    }
    fputs("}\n", file);
    assert_int_equal(fclose(file), 0);
}

void test_write_chats(const char *path, int n)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < n; i++) {
        fputs("{\"messages\":[", file);
        for (int turn = 0; turn <= i % 3; turn++) {
            fprintf(file,
                    "%s{\"role\":\"user\",\"content\":\"%d + %d?\"},"
                    "{\"role\":\"assistant\",\"content\":\"%d\"}",
                    turn > 0 ? "," : "", i, turn, i + turn);
        }
        fputs("]}\n", file);
    }
    assert_int_equal(fclose(file), 0);
}
