// SPDX-License-Identifier: Apache-2.0
// COST 5
// SLOW SPILLWAY_BROWSER=1
// Pages about real trainings: one that was killed at each point at which it writes has a page, one
// that goes on is one run, the same run on two ranks differs in no step. With SPILLWAY_BROWSER set,
// pages are loaded in headless Chromium, at widths from a phone's on; where there is none, that is
// skipped.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "json/json.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *program;

/* Runs a line of the shell in the folder, with $S the program; what it says into said. */
static int shell(const char *line, char *said, size_t cap)
{
    char command[8192], path[TEST_PATH_CAP], *text = NULL;
    size_t len;
    snprintf(command, sizeof command,
             "cd %s && S=%s && export S && { %s ; } >said.txt 2>&1 </dev/null", test_folder(),
             program, line);
    const int status = system(command);
    test_join(path, test_folder(), "said.txt");
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    snprintf(said, cap, "%s", text);
    sw_free(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect(const char *line, int status, const char *says)
{
    char said[4096];
    const int found = shell(line, said, sizeof said);
    if (found != status || !strstr(said, says)) {
        fail_msg("%s: status %d, wanted %d; \"%s\", wanted \"%s\"", line, found, status, said,
                 says);
    }
}

#define TRAIN                                                                                      \
    "$S train --model gpt2-tiny --seq-len 16 --data text.txt --quiet --no-export --seed 1 "        \
    "--deepspeed ds.json --eval-every 2 --sample-every 3 --sample-tokens 8 --sample-prompt And "

static void a_run_has_a_page(void **state)
{
    (void)state;
    expect(TRAIN "--steps 6 --output one --trace one/trace.json", 0, "6 steps");
    expect("$S report one", 0, "report: one/report.html");
    expect("for part in curves memory time samples configuration machine; do"
           " grep -q \"<section id=.$part\" one/report.html || echo $part is missing; done;"
           " grep -c '<summary>step [36]</summary>' one/report.html",
           0, "2");
    expect("grep -q 'ds.json:1' one/report.html && grep -q 'Step [0-9]*, ' one/report.html &&"
           " grep -q 'finished' one/report.html",
           0, "");
}

/* Wherever it is killed while it writes, what is there makes a page. */
static void a_killed_run_has_a_page(void **state)
{
    (void)state;
    char line[512], said[4096];
    int status = 1, n = 1;
    for (; status != 0 && n < 100000; n *= 2) {
        snprintf(line, sizeof line,
                 "rm -rf cut; SPILLWAY_FAULT=write:%d:kill " TRAIN
                 "--steps 4 --save-every 2 --output cut",
                 n);
        status = shell(line, said, sizeof said);
        assert_true(status == 0 || status == 128 + 9 || status == 137);
        expect("$S report cut", 0, "report: cut/report.html");
    }
    assert_int_equal(status, 0);
    assert_true(n > 8); /* it was killed at all */
}

static void a_resumed_run_is_one_run(void **state)
{
    (void)state;
    expect(TRAIN "--steps 3 --output twice", 0, "3 steps");
    expect(TRAIN "--steps 6 --output twice --resume", 0, "3 steps");
    expect("grep -c '\"step\": 3,' twice/run.json; grep -c step twice/samples.jsonl", 0, "1\n2\n");
    expect("$S compare one twice", 1, "trace"); /* the key alone */
    expect("$S compare one twice", 1, "steps: 6 of both, the same in loss and norm, bit for bit");
    expect("$S report twice && grep -q 'resumed<td>.*at step 3' twice/report.html", 0, "");
}

static void ranks_differ_in_no_step(void **state)
{
    (void)state;
    expect(TRAIN "--steps 4 --output r1", 0, "4 steps");
    expect(TRAIN "--steps 4 --output r2 --ranks 2", 0, "4 steps");
    expect(TRAIN "--steps 4 --output r3 --set optimizer.params.lr=0.5", 0, "4 steps");
    expect("$S compare r1 r1", 0, "no compared value differs");
    expect("$S compare r1 r2", 1, "steps: 4 of both, the same in loss and norm, bit for bit");
    expect("$S compare r1 r3", 1, "optimizer.params.lr");
    expect("$S compare r1 r3", 1, "the first that differs is step 2");
    expect("$S report r1 r2 r3 --output three.html && grep -c '<h1>3 runs</h1>' three.html", 0,
           "1");
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    expect("$S report", 2, "spillway report: no RUN is given");
    expect("$S report nowhere", 2, "spillway report: nowhere does not exist");
    expect("$S report .", 2, "spillway report: . is not a run");
    expect("$S report r1 --output text.txt", 2, "is not a report; name another file");
    expect("$S compare r1", 2, "spillway compare: wanted A and B");
    expect("$S compare r1 text.txt", 2, "wanted two runs, or two plans");
    expect("$S plan --model gpt2-tiny --json > p.json && $S compare p.json p.json", 0, "");
}

/* ---- in a browser ---- */

/* Loads a page in a frame of each width, and says what its document is wider than. */
static const char frames[] =
    "<!doctype html><title>-</title><script>\n"
    "const said = [], widths = [360, 768, 1280, 2560]\n"
    "function next() {\n"
    "  const width = widths.shift()\n"
    "  if (!width) { document.title = 'said ' + said.join(' '); return }\n"
    "  const frame = document.createElement('iframe')\n"
    "  frame.style.cssText = 'border:0;height:900px;width:' + width + 'px'\n"
    "  frame.onload = () => {\n"
    "    const page = frame.contentDocument.documentElement\n"
    "    said.push(width + (page.scrollWidth > width ? ':wider:' + page.scrollWidth : ':fits') +\n"
    "      (frame.contentDocument.querySelectorAll('svg path').length > 8 ? '' : ':empty'))\n"
    "    frame.remove(); next()\n"
    "  }\n"
    "  frame.src = 'PAGE'; document.body.append(frame)\n"
    "}\n"
    "addEventListener('load', next)\n"
    "</script><body></body>\n";

static void a_browser_shows_it(void **state)
{
    (void)state;
    static const char *const pages[] = {"one/report.html", "three.html"};
    char line[2048], path[TEST_PATH_CAP], said[4096];
    if (!getenv("SPILLWAY_BROWSER") || shell("command -v chromium", said, sizeof said) != 0) {
        skip();
    }
    test_join(path, test_folder(), "frames.html");
    assert_int_equal(sw_file_write_atomic(path, frames, sizeof frames - 1), SW_OK);
    for (size_t i = 0; i < SW_LEN(pages); i++) {
        snprintf(line, sizeof line,
                 "sed 's|PAGE|%s|' frames.html > f.html; chromium --headless=new --no-sandbox "
                 "--disable-gpu --allow-file-access-from-files --enable-logging=stderr "
                 "--virtual-time-budget=20000 --dump-dom file://$PWD/f.html > dom.txt 2> log.txt;"
                 " grep CONSOLE log.txt; grep -o '<title>[^<]*' dom.txt",
                 pages[i]);
        assert_int_equal(shell(line, said, sizeof said), 0);
        assert_string_equal(said, "<title>said 360:fits 768:fits 1280:fits 2560:fits\n");
    }
}

static int set_up(void **state)
{
    (void)state;
    struct sw_str text = {0};
    static const char config[] =
        "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 4, "
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}}\n";
    program = test_spillway();
    if (!program) {
        return -1;
    }
    for (int i = 0; i < 400; i++) {
        sw_str_printf(&text, "And it came to pass in the %d. year, that <they> went & \"came\".\n",
                      i);
    }
    test_put("text.txt", sw_str_text(&text));
    sw_str_fini(&text);
    test_put("ds.json", config);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_run_has_a_page),         cmocka_unit_test(a_killed_run_has_a_page),
    cmocka_unit_test(a_resumed_run_is_one_run), cmocka_unit_test(ranks_differ_in_no_step),
    cmocka_unit_test(what_is_wrong_is_refused), cmocka_unit_test(a_browser_shows_it),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
