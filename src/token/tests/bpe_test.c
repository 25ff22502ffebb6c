// SPDX-License-Identifier: Apache-2.0
// Merging a word with the heap = merging it by the definition, on random merges and words.
#include "token/bpe.h"

#include "support/test.h"

enum { N_LETTERS = 3, N_MERGES = 60 };

struct fixture {
    struct sw_vocab vocab;
    struct sw_bpe bpe;
    struct {
        int32_t left, right, id;
    } merges[N_MERGES]; /* by rank */
    int n_merges;
    uint64_t seed, n_drawn;
};

static uint64_t draw(struct fixture *f, uint64_t n)
{
    return sw_philox_u64(f->seed, 0, f->n_drawn++) % n;
}

/* Makes a vocabulary of three letters and random merges of existing tokens. */
static void make(struct fixture *f, uint64_t seed)
{
    *f = (struct fixture){.seed = seed};
    sw_vocab_init(&f->vocab);
    for (int i = 0; i < N_LETTERS; ++i) {
        const char letter = (char)('a' + i);
        assert_int_equal(sw_vocab_add(&f->vocab, &letter, 1, i), SW_OK);
    }
    struct sw_str word = {0};
    for (int tries = 0; tries < 4 * N_MERGES && f->n_merges < N_MERGES; ++tries) {
        const int32_t left = (int32_t)draw(f, (uint64_t)f->vocab.n_ids);
        const int32_t right = (int32_t)draw(f, (uint64_t)f->vocab.n_ids);
        sw_str_clear(&word);
        const struct sw_vocab_token *a = sw_vocab_token(&f->vocab, left);
        const struct sw_vocab_token *b = sw_vocab_token(&f->vocab, right);
        sw_str_append(&word, a->text, a->len);
        sw_str_append(&word, b->text, b->len);
        if (sw_vocab_find(&f->vocab, word.ptr, word.len) < 0 && word.len <= 12) {
            const int32_t id = (int32_t)f->vocab.n_ids;
            assert_int_equal(sw_vocab_add(&f->vocab, word.ptr, word.len, id), SW_OK);
            f->merges[f->n_merges].left = left;
            f->merges[f->n_merges].right = right;
            f->merges[f->n_merges++].id = id;
        }
    }
    sw_str_fini(&word);
    assert_int_equal(sw_bpe_init(&f->bpe, &f->vocab), SW_OK);
    for (int i = 0; i < f->n_merges; ++i) {
        const struct sw_vocab_token *left = sw_vocab_token(&f->vocab, f->merges[i].left);
        const struct sw_vocab_token *right = sw_vocab_token(&f->vocab, f->merges[i].right);
        assert_int_equal(
            sw_bpe_add_merge(&f->bpe, left->text, left->len, right->text, right->len, i), SW_OK);
    }
}

static void drop(struct fixture *f)
{
    sw_bpe_fini(&f->bpe);
    sw_vocab_fini(&f->vocab);
}

static int rank_of(const struct fixture *f, int32_t left, int32_t right)
{
    for (int i = 0; i < f->n_merges; ++i) {
        if (f->merges[i].left == left && f->merges[i].right == right) {
            return i;
        }
    }
    return INT32_MAX;
}

/* Reference merge by definition: repeatedly merges the leftmost pair of lowest rank. */
static int64_t merge_plainly(const struct fixture *f, int32_t *symbols, int64_t n)
{
    for (;;) {
        int best = INT32_MAX;
        int64_t at = 0;
        for (int64_t i = 0; i + 1 < n; ++i) {
            const int rank = rank_of(f, symbols[i], symbols[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == INT32_MAX) {
            return n;
        }
        symbols[at] = f->merges[best].id;
        memmove(symbols + at + 1, symbols + at + 2, (size_t)(n - at - 2) * sizeof(*symbols));
        n--;
    }
}

static void check_word(struct fixture *f, int64_t n)
{
    char word[400];
    int32_t symbols[400];
    struct sw_ids ids = {0};
    for (int64_t i = 0; i < n; ++i) {
        symbols[i] = (int32_t)draw(f, N_LETTERS);
        word[i] = (char)('a' + symbols[i]);
    }
    const int64_t n_wanted = merge_plainly(f, symbols, n);
    for (int turn = 0; turn < 2; ++turn) { /* the second time from memory */
        sw_ids_clear(&ids);
        assert_int_equal(sw_bpe_encode(&f->bpe, word, (size_t)n, &ids), SW_OK);
        assert_int_equal(ids.len, n_wanted);
        assert_memory_equal(ids.ptr, symbols, (size_t)n_wanted * sizeof(*symbols));
    }
    sw_ids_fini(&ids);
}

static void heap_equals_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        struct fixture f;
        make(&f, seed);
        for (int64_t n = 1; n <= 40; ++n) {
            check_word(&f, n);
        }
        check_word(&f, 64);
        check_word(&f, 65);
        check_word(&f, 400);
        drop(&f);
    }
}

static void unknown_bytes(void **state)
{
    (void)state;
    struct fixture f;
    struct sw_ids ids = {0};
    make(&f, 1);
    assert_int_equal(sw_bpe_encode(&f.bpe, "xy", 2, &ids),
                     SW_OK); /* without an unknown token it is dropped */
    assert_int_equal(ids.len, 0);
    f.bpe.unknown = 2;
    assert_int_equal(sw_bpe_encode(&f.bpe, "pq", 2, &ids), SW_OK);
    assert_int_equal(ids.len, 2);
    f.bpe.fuse_unknown = true;
    assert_int_equal(sw_bpe_encode(&f.bpe, "rs", 2, &ids), SW_OK);
    assert_int_equal(ids.len, 3);
    sw_ids_fini(&ids);
    drop(&f);
}

/* With no merges and an empty list there must be no pointer arithmetic on NULL (clang's
 * sanitizer). */
static void a_word_without_tokens_has_no_ids(void **state)
{
    (void)state;
    struct sw_vocab vocab;
    struct sw_bpe bpe;
    struct sw_ids ids = {0};
    sw_vocab_init(&vocab);
    assert_int_equal(sw_vocab_add(&vocab, "a", 1, 0), SW_OK);
    assert_int_equal(sw_bpe_init(&bpe, &vocab), SW_OK);
    for (int turn = 0; turn < 2; ++turn) { /* the second time from memory */
        assert_int_equal(sw_bpe_encode(&bpe, "xyz", 3, &ids), SW_OK);
        assert_int_equal(ids.len, 0);
    }
    assert_int_equal(sw_bpe_encode(&bpe, "a", 1, &ids), SW_OK);
    assert_int_equal(sw_bpe_encode(&bpe, "yz", 2, &ids), SW_OK); /* after other ids */
    assert_int_equal(ids.len, 1);
    sw_ids_fini(&ids);
    sw_bpe_fini(&bpe);
    sw_vocab_fini(&vocab);
}

static void the_memory_of_words_forgets(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 3);
    for (int i = 0; i < 40000; ++i) { /* more text than the cache's pools hold */
        char word[64];
        struct sw_ids ids = {0};
        for (size_t k = 0; k < sizeof(word); ++k) {
            word[k] = (char)('a' + draw(&f, N_LETTERS));
        }
        assert_int_equal(sw_bpe_encode(&f.bpe, word, 40, &ids), SW_OK);
        sw_ids_fini(&ids);
    }
    check_word(&f, 30);
    drop(&f);
}

/* 40,000 texts whose FNV-1a hashes share the low 17 bits, so that a table by that hash would have
 * one bucket. The last two letters of each are chosen for that. */
static void names_made_to_collide_do_not(void **state)
{
    (void)state;
    enum { N = 40000, BITS = 17, MASK = (1 << BITS) - 1 };
    const uint64_t prime = UINT64_C(0x100000001b3);
    struct sw_vocab vocab;
    int32_t id = 0;
    sw_vocab_init(&vocab);
    for (unsigned n = 0; id < N; ++n) {
        char text[16];
        const int len = snprintf(text, sizeof(text), "%x", n);
        const uint64_t begun = sw_hash(SW_HASH_INIT, text, (size_t)len);
        for (int a = 'A'; a <= 'z' && id < N; ++a) {
            const uint64_t b = ((begun ^ (unsigned)a) * prime) & MASK; /* (b ^ b) * prime is 0 */
            if (b >= 'A' && b <= 'z') {
                text[len] = (char)a;
                text[len + 1] = (char)b;
                assert_int_equal(sw_hash(SW_HASH_INIT, text, (size_t)len + 2) & MASK, 0);
                assert_int_equal(sw_vocab_add(&vocab, text, (size_t)len + 2, id), SW_OK);
                assert_int_equal(sw_vocab_find(&vocab, text, (size_t)len + 2), id);
                id++;
            }
        }
    }
    size_t run = 0, longest = 0;
    for (size_t i = 0; i < vocab.n_slots; ++i) {
        run = vocab.slots[i] >= 0 ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    assert_true(longest < 1000);
    sw_vocab_fini(&vocab);
}

static void merges_name_what_is_missing(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 1);
    assert_int_equal(sw_bpe_add_merge(&f.bpe, "a", 1, "nope", 4, 7), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "nope"));
    assert_non_null(strstr(sw_error_message(), "merge 7"));
    drop(&f);
}

/* Tokens point into the text of a file. Messages must not read past them. */
static void a_missing_token_is_named_and_no_more(void **state)
{
    (void)state;
    struct fixture f;
    make(&f, 1);
    static const char line[] = "a nope\nb c\n";
    assert_int_equal(sw_bpe_add_merge(&f.bpe, line, 1, line + 2, 4, 0), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "token 'nope' is not"));
    assert_int_equal(sw_bpe_add_merge(&f.bpe, line + 2, 4, line, 1, 0), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "token 'nope' is not"));
    char *end = sw_alloc("test", 4); /* a file that ends with the token */
    assert_non_null(end);
    memcpy(end, "nope", 4);
    assert_int_equal(sw_bpe_add_merge(&f.bpe, "a", 1, end, 4, 0), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "token 'nope' is not"));
    sw_free(end);
    drop(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(heap_equals_definition),
    cmocka_unit_test(unknown_bytes),
    cmocka_unit_test(a_word_without_tokens_has_no_ids),
    cmocka_unit_test(the_memory_of_words_forgets),
    cmocka_unit_test(merges_name_what_is_missing),
    cmocka_unit_test(a_missing_token_is_named_and_no_more),
    cmocka_unit_test(names_made_to_collide_do_not),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
