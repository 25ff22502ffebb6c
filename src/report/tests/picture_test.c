// SPDX-License-Identifier: Apache-2.0
// Pages of pictures: each number on a page is that of the JSON at the place that it names, the
// lengths of bars are in proportion to these numbers, and nothing else on a page is a number.
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "json/json.h"
#include "spillway/report.h"
#include "support/scratch.h"
#include "support/test.h"

#define OF_STEP(compute, comm)                                                                     \
    "\"of_step\":{\"compute\":" #compute ",\"comm\":" #comm ",\"h2d\":0.0}"
#define TIERS(bytes)                                                                               \
    "\"tiers\":{\"device\":{\"bytes\":" #bytes ",\"there_are\":34359738368},"                      \
    "\"host\":{\"bytes\":0,\"there_are\":4096},\"disk\":{\"bytes\":0,\"there_are\":0}}"
#define LANES                                                                                      \
    "\"lanes\":[{\"rank\":0,\"seconds\":0.75,\"idle_share\":0.125,\"queues\":[{\"queue\":"         \
    "\"compute\",\"busy_share\":0.625,\"blocks\":[[0.0,0.25,0.9,\"forward\"],[0.25,0.5,1,"         \
    "\"backward\"]]},{\"queue\":\"comm\",\"busy_share\":0.0625,\"blocks\":[]}]},{\"rank\":4,"      \
    "\"seconds\":0.5,\"idle_share\":0.25,\"queues\":[]}]"
#define PREDICTION(tflops, compute, comm)                                                          \
    "{\"step_seconds\":12.5,\"tflops_per_device\":" #tflops                                        \
    ",\"bound\":\"comm\"," OF_STEP(compute, comm) "," TIERS(44359738368) "}"
#define RUN(id, devices, published, predicted, error)                                              \
    "{\"id\":\"" id "\",\"group\":\"g\",\"judge\":\"judged\",\"devices\":" #devices                \
    ",\"published\":[" published "],\"predicted\":" PREDICTION(                                    \
        predicted, 10.5,                                                                           \
        2.0) ",\"ours\":{\"refused\":\"too <large>, by 1234567\"},\"error\":" #error               \
             ",\"tolerance\":0.05,\"met\":false}"

static const char *const pages[] = {
    "{\"name\":\"a <b> cluster\",\"nodes\":3,\"ranks\":48,\"step_seconds\":0.75,"
    "\"tflops_per_device\":123.456,\"bound\":\"compute\"," TIERS(17179869184) "," OF_STEP(
        0.5, 0.25) "," LANES "}",
    "{\"name\":\"c\",\"rows\":[{\"nodes\":1,\"ranks\":8,\"step_seconds\":0.0847,"
    "\"samples_per_second\":377.77,\"linear_samples_per_second\":377.77,"
    "\"tflops_per_device\":486.03,\"days\":0.9,\"money\":1431.2,\"bound\":\"compute\"},"
    "{\"nodes\":2,\"ranks\":16,\"refused\":\"no room for 99 bytes\"},"
    "{\"nodes\":3,\"ranks\":24,\"step_seconds\":1.154,\"samples_per_second\":622.33,"
    "\"linear_samples_per_second\":1133.31,\"tflops_per_device\":266.88,\"days\":0.54,"
    "\"money\":785,\"bound\":\"comm\"}]}",
    "{\"runs\":[" RUN("r<i>-8-x", 8, "50.0,50.0", 47.5, -0.05) "],\"groups\":{}," LANES "}",
    "{\"runs\":[" RUN("r<i>-8-x", 8, "50.0,50.0", 47.5, -0.05) "," RUN(
        "r<i>-16-x", 16, "40.0,1000", 30.5, -0.2375) "," RUN("r<i>-32-x", 32, "38.0,44.0", 41.25,
                                                             0) "],\"groups\":{\"g\":"
                                                                "{\"median_error\":0.05,"
                                                                "\"worst_error\":0.2375}}}"};

static char *page_of(const char *json)
{
    char *html = NULL;
    size_t len;
    if (sw_report_picture(json, test_at("page.html")) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_file_read(test_at("page.html"), &html, &len), SW_OK);
    return html;
}

/* The node at a place such as "runs.0.error". */
static const struct sw_json *node_at(const struct sw_json *root, const char *place, size_t len)
{
    const char *end = place + len;
    while (root && place < end) {
        char key[64];
        const size_t n = strcspn(place, ".\"");
        assert_true(n < sizeof key);
        memcpy(key, place, n);
        key[n] = '\0';
        if (root->type == SW_JSON_ARRAY) {
            root = root->first;
            for (long i = strtol(key, NULL, 10); i > 0 && root; i--) {
                root = root->next;
            }
        } else {
            root = sw_json_get(root, key);
        }
        place += n + 1;
    }
    return root;
}

/* True if a text is what a number looks like in one of the units, rounded as its digits say. */
static bool is_text_of(const char *text, double value)
{
    static const double units[] = {1, 100, 1e3, 0x1p-10, 0x1p-20, 0x1p-30, 0x1p-40};
    char plain[64];
    size_t n = 0, after = 0;
    bool point = false;
    for (; *text && *text != '<' && *text != ' ' && n + 1 < sizeof plain; text++) {
        if (*text != ',') {
            after += point && isdigit((unsigned char)*text);
            point = point || *text == '.';
            plain[n++] = *text;
        }
    }
    plain[n] = '\0';
    for (size_t u = 0; u < SW_LEN(units); u++) {
        const double shown = strtod(plain, NULL);
        if (fabs(shown - value * units[u]) <= 0.5000001 * pow(10, -(double)after)) {
            return true;
        }
    }
    return false;
}

static void each_number_is_that_of_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(pages); i++) {
        struct sw_json_doc *doc = NULL;
        char *html = page_of(pages[i]);
        int n = 0, n_texts = 0;
        assert_int_equal(sw_json_parse("p", pages[i], strlen(pages[i]), SW_JSON_STRICT, &doc),
                         SW_OK);
        for (const char *at = html; (at = strstr(at, " data-at=\"")) != NULL; n++) {
            const char *place = at + strlen(" data-at=\""), *end = strchr(place, '"');
            const struct sw_json *node = node_at(sw_json_root(doc), place, (size_t)(end - place));
            if (!node) {
                fail_msg("no place %.40s", place);
            }
            at = strstr(end, "data-v=\"") + strlen("data-v=\"");
            assert_true(strtod(at, NULL) == node->number);
            const char *text = strchr(at, '"') + 1;
            if (*text == '>') {
                n_texts++;
                if (!is_text_of(text + 1, node->number)) {
                    fail_msg("%.20s is not %g", text + 1, node->number);
                }
            }
        }
        assert_true(n > 10 && n_texts > 8);
        sw_json_close(doc);
        sw_free(html);
    }
}

/* Removes what is between `open` and `close`. */
static void cut(char *html, const char *open, const char *close)
{
    for (char *at = html; (at = strstr(at, open)) != NULL;) {
        const char *end = strstr(at, close);
        assert_non_null(end);
        memmove(at, end + strlen(close), strlen(end + strlen(close)) + 1);
    }
}

/* Names, axes and descriptions aside. */
static void nothing_else_is_a_number(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(pages); i++) {
        char *html = page_of(pages[i]);
        cut(html, "<b data-at", "</b>");
        cut(html, "<bdi>", "</bdi>");
        cut(html, "<head>", "</head>");
        cut(html, "<footer>", "</footer>");
        cut(html, "<title>", "</title>");
        cut(html, "<desc>", "</desc>");
        cut(html, "<div class=\"y\"", "</div>");
        cut(html, "<div class=\"x\"", "</div>");
        bool inside = false;
        for (const char *at = html; *at; at++) {
            inside = *at == '<' || (inside && *at != '>');
            if (!inside && isdigit((unsigned char)*at) && at[-1] != 'h' && at[1] != 'h') {
                fail_msg("a number without a place: %.40s", at - 10); /* h2d, d2h are names */
            }
        }
        sw_free(html);
    }
}

/* The rects of a figure are as wide as their numbers, at one scale. Bars of tiers have one each. */
static void bars_are_in_proportion(void **state)
{
    (void)state;
    char *html = page_of(pages[3]);
    int n = 0;
    double scale = 0;
    for (const char *at = html; (at = strstr(at, "<rect class=\"b")) != NULL; at++) {
        const char *width = strstr(at, "width=\"") + strlen("width=\"");
        const double value = strtod(strstr(at, "data-v=\"") + strlen("data-v=\""), NULL);
        scale = scale > 0 ? scale : strtod(width, NULL) / value;
        assert_true(fabs(strtod(width, NULL) / value / scale - 1) < 1e-3);
        n++;
    }
    assert_int_equal(n, 6); /* published and predicted of three runs */
    sw_free(html);
}

/* Another number makes another picture, also one in a lane, which has no text. */
static void a_picture_follows_its_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *is, *becomes;
    } edits[] = {{"[0.25,0.5,1,", "[0.35,0.5,1,"}, {"\"comm\":0.25", "\"comm\":0.2"}};
    for (size_t i = 0; i < SW_LEN(edits); i++) {
        char *was = page_of(pages[0]), *json = sw_strdup("test", pages[0]);
        char *at = strstr(json, edits[i].is);
        assert_non_null(at);
        memmove(at + strlen(edits[i].becomes), at + strlen(edits[i].is),
                strlen(at + strlen(edits[i].is)) + 1);
        memcpy(at, edits[i].becomes, strlen(edits[i].becomes));
        char *is = page_of(json);
        assert_string_not_equal(was, is);
        sw_free(was);
        sw_free(is);
        sw_free(json);
    }
}

static void a_page_loads_nothing_and_shows_names_as_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(pages); i++) {
        char *html = page_of(pages[i]);
        assert_null(strstr(html, "<script"));
        assert_null(strstr(html, "http://"));
        assert_null(strstr(html, "https://"));
        assert_null(strstr(html, "<large>"));
        assert_null(strstr(html, "<i>"));
        assert_null(strstr(html, "a <b> cluster"));
        sw_free(html);
    }
}

static void other_json_and_other_files_are_refused(void **state)
{
    (void)state;
    test_put("notes.html", "<p>mine</p>");
    assert_int_equal(sw_report_picture("{\"x\":1}", test_at("page.html")), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "wanted the JSON of a plan on a cluster"));
    assert_true(sw_report_picture("{", test_at("page.html")) < 0);
    static const char *const wrong[] = {
        "{\"runs\":[]}", "{\"runs\":[{\"id\":\"a\"}]}",
        "{\"tiers\":{},\"lanes\":[{\"queues\":[{\"blocks\":[[0,1,1]]}]}]}"};
    for (size_t i = 0; i < SW_LEN(wrong); i++) {
        assert_int_equal(sw_report_picture(wrong[i], test_at("page.html")), SW_E_ARG);
    }
    assert_int_equal(sw_report_picture(pages[0], test_at("notes.html")), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "--picture"));
    assert_non_null(strstr(sw_error_message(), "is not a report"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_number_is_that_of_its_place),
    cmocka_unit_test(nothing_else_is_a_number),
    cmocka_unit_test(bars_are_in_proportion),
    cmocka_unit_test(a_picture_follows_its_numbers),
    cmocka_unit_test(a_page_loads_nothing_and_shows_names_as_text),
    cmocka_unit_test(other_json_and_other_files_are_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
