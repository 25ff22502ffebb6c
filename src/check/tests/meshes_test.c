// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1200
// COST 10
// SLOW SPILLWAY_MESHES=all
// Recorded cases on meshes of pipe 2, data 2, tensor 2, within their tolerances. If the heads or
// the class of a model do not allow that, the case runs on the next mesh that is allowed, which is
// printed. Each family passes a case at (2, 2, 2); the LSTM and the CIFAR network are not cut.
// Without SPILLWAY_MESHES=all each family has one case, and some have none. Gradients are those of
// the same ranks without stages, which keep none.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "spillway/check.h"
#include "support/fixtures.h"
#include "support/test.h"

/* The families, with a folder of cases each: of recorded ones, or of our own. */
struct family {
    const char *name, *own;
    bool is_cut; /* along pipe and tensor */
};
static const struct family families[] = {
    {"gpt2", "gpt2_tied", true},
    {"llama", "llama_groups", true},
    {"mistral", NULL, true},
    {"qwen2", NULL, true},
    {"qwen3", "qwen3_even", true},
    {"gemma2", NULL, true},
    {"gemma3_text", NULL, true},
    {"phi3", NULL, true},
    {"olmo2", NULL, true},
    {"granite", NULL, true},
    {"starcoder2", NULL, true},
    {"gpt_neox", "neox_odd", true},
    {"opt", "opt_350m", true},
    {"phi", NULL, true},
    {"bloom", "bloom_even", true},
    {"gptj", "gptj_even", true},
    {"bert", NULL, true},
    {"roberta", "roberta_untied", true},
    {"distilbert", NULL, true},
    {"deberta-v2", "deberta_answers", true},
    {"bart", NULL, true},
    {"t5", NULL, true},
    {"mt5", NULL, true},
    {"albert", NULL, true},
    {"mbart", NULL, true},
    {"vision/vit", "vit_even", true},
    {"lora", "llama_dora", true},
    {"rnn", NULL, false},
    {"vision/cifar_net", NULL, false},
    {"falcon", "falcon_even", true},
    {"cohere", "cohere_even", true},
    {"gemma", "gemma_odd", true},
    {"glm4", "glm4_even", true},
    {"smollm3", "smollm3_even", true},
    {"stablelm", "stablelm_even", true},
    {"modernbert", NULL, true},
    {"gpt_oss", NULL, true},
};

enum { N_SLOW = 8 }; /* the last ones, only with SPILLWAY_MESHES=all */

struct mesh {
    int pipe, data, tensor;
};
/* In the order in which they are tried. */
static const struct mesh meshes[] = {{2, 2, 2}, {2, 2, 3}, {1, 4, 2}, {2, 4, 1}, {1, 8, 1}};

static bool all;

/* Runs a case on a mesh. *out_refused: the mesh does not suit the model; the message says why. */
static bool passes(const char *path, struct mesh mesh, bool *out_refused)
{
    char pipe[48], tensor[48];
    char *text = NULL;
    size_t len = 0;
    int failed = 0;
    FILE *out = open_memstream(&text, &len);
    snprintf(pipe, sizeof pipe, "spillway.mesh.pipe=%d", mesh.pipe);
    snprintf(tensor, sizeof tensor, "spillway.mesh.tensor=%d", mesh.tensor);
    const char *const sets[] = {pipe, tensor};
    const struct sw_check_options options = {
        .sets = sets, .n_sets = SW_LEN(sets), .ranks = mesh.pipe * mesh.data * mesh.tensor};
    assert_non_null(out);
    const sw_status st = sw_check_case(path, &options, out, &failed);
    fclose(out);
    *out_refused = st == SW_E_CONFIG || st == SW_E_UNSUP;
    if (failed > 0 || (st < 0 && !*out_refused)) {
        print_message("%s%s\n", text, st < 0 ? sw_error_message() : "");
    }
    free(text); /* allocated by the C library */
    return st >= 0 && failed == 0;
}

/* Runs a case on the first mesh that suits it. Returns the index of that mesh. */
static size_t check_case(const char *path)
{
    char why[256] = "";
    for (size_t i = 0; i < SW_LEN(meshes); i++) {
        bool refused = false;
        if (passes(path, meshes[i], &refused)) {
            if (i > 0) {
                print_message("%s: pipe %d, data %d, tensor %d, as %s\n", path, meshes[i].pipe,
                              meshes[i].data, meshes[i].tensor, why);
            }
            return i;
        }
        if (!refused) {
            fail_msg("%s: pipe %d, data %d, tensor %d", path, meshes[i].pipe, meshes[i].data,
                     meshes[i].tensor);
        }
        if (i == 0) {
            snprintf(why, sizeof why, "%s", sw_error_message());
        }
    }
    fail_msg("%s: no mesh suits it: %s", path, sw_error_message());
    return SW_LEN(meshes);
}

/* Runs the cases of a folder, or the folder if it is one. Returns the least index of their meshes.
 */
static size_t check_folder(const char *folder)
{
    enum { MOST = 64 };
    static char names[MOST][TEST_NAME_CAP];
    char path[TEST_PATH_CAP], recording[TEST_PATH_CAP];
    size_t best = SW_LEN(meshes);
    test_join(recording, folder, "reference.safetensors");
    if (test_exists(recording)) {
        return check_case(folder);
    }
    const int n = test_list(folder, "", names, MOST);
    for (int i = 0; i < n && (all || best == SW_LEN(meshes)); i++) {
        test_join(path, folder, names[i]);
        test_join(recording, path, "reference.safetensors");
        if (test_exists(recording)) {
            const size_t mesh = check_case(path);
            best = mesh < best ? mesh : best;
        }
    }
    return best;
}

static void each_family_passes_on_a_mesh_of_three_axes(void **state)
{
    int n = 0;
    (void)state;
    for (size_t i = 0; i < SW_LEN(families) - (all ? 0 : N_SLOW); i++) {
        const struct family *f = &families[i];
        size_t best = SW_LEN(meshes);
        char folder[TEST_PATH_CAP];
        if (f->own) {
            test_join(folder, "tests/cases", f->own);
            best = check_case(folder);
        }
        if ((all || !f->own) && test_fixture_folder(f->name, folder)) {
            const size_t mesh = check_folder(folder);
            best = mesh < best ? mesh : best;
        }
        if (best < SW_LEN(meshes)) {
            n++;
            assert_int_equal(best == 0, f->is_cut);
        }
    }
    print_message("%d families\n", n);
    assert_true(n >= 10); /* those with cases of our own */
}

static int set_up(void **state)
{
    const char *asked = getenv("SPILLWAY_MESHES");
    (void)state;
    all = asked && strcmp(asked, "all") == 0;
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_family_passes_on_a_mesh_of_three_axes),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
