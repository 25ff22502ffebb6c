// SPDX-License-Identifier: Apache-2.0
// EXECUTIONS 5000
// Any bytes as the files of a run, with form feeds between: refused with a message that names a
// file, or a page whose markup is closed and that holds no control character; and a run is the same
// as itself.
#include "report/private.h"

#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"metrics.jsonl", "run.json", "samples.jsonl", "trace.json"};

static void put_files(const char *at, size_t left)
{
    for (size_t i = 0; i < SW_LEN(names); i++) {
        char path[256];
        const char *end = memchr(at, '\f', left);
        const size_t n = end ? (size_t)(end - at) : left;
        scratch_path(path, names[i]);
        unlink(path);
        if (n > 0) {
            scratch_write(names[i], at, n);
        }
        at += end ? n + 1 : n;
        left -= end ? n + 1 : n;
    }
}

/* In a tag there are words of this program alone: a place or a size that is no number. Elsewhere a
 * run may say "nan". */
static bool is_no_number(const char *at)
{
    return strncmp(at, "nan", 3) == 0 || strncmp(at, "inf", 3) == 0;
}

static void check_page(const char *path)
{
    char *page = NULL;
    size_t len = 0;
    int64_t open = 0;
    SW_ASSERT(sw_file_read(path, &page, &len) == SW_OK);
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)page[i];
        open += (c == '<') - (c == '>');
        SW_ASSERT(open == 0 || !is_no_number(page + i));
        SW_ASSERT((open == 0 || open == 1) && (c >= 0x20 || c == '\n' || c == '\t') && c != 0x7f);
    }
    SW_ASSERT(open == 0 && sw_json_utf8_check(page, len) == len);
    SW_ASSERT(!strstr(page, "<script"));
    sw_free(page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *path = NULL, *text = NULL;
    const char *run = scratch_folder();
    char output[256];
    bool same = false;
    sw_log_set_level(SW_LOG_ERROR);
    put_files((const char *)data, size);
    scratch_path(output, "report.html");
    unlink(output);
    const struct sw_report_options options = {.runs = &run, .n_runs = 1};
    if (sw_report_write(&options, &path) < 0) {
        SW_ASSERT(strstr(sw_error_message(), run));
        return 0;
    }
    check_page(path);
    sw_text_free(path);
    SW_ASSERT(sw_compare_text(run, run, false, &same, &text) == SW_OK && same);
    sw_text_free(text);
    return 0;
}
