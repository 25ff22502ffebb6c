// SPDX-License-Identifier: Apache-2.0
// The vocabulary: pages of tokens by id, and an open-addressing table of ids by text, at most half
// full.
#include "token/vocab.h"

#include <stdio.h>
#include <string.h>

void sw_vocab_init(struct sw_vocab *vocab)
{
    *vocab = (struct sw_vocab){0};
    sw_arena_init(&vocab->arena, "vocabulary");
    sw_hash_key_init(&vocab->key);
}

void sw_vocab_fini(struct sw_vocab *vocab)
{
    for (int64_t i = 0; i < vocab->n_pages; ++i) {
        sw_free(vocab->pages[i]);
    }
    sw_free(vocab->pages);
    sw_free(vocab->slots);
    sw_arena_fini(&vocab->arena);
    *vocab = (struct sw_vocab){0};
}

/* The slot that holds the text, or the empty one where it would go. */
static size_t slot_of(const struct sw_vocab *vocab, const char *text, size_t len)
{
    size_t i = sw_hash_keyed(&vocab->key, text, len) & (vocab->n_slots - 1);
    while (vocab->slots[i] >= 0) {
        const struct sw_vocab_token *token = sw_vocab_token(vocab, vocab->slots[i]);
        if (token->len == len && memcmp(token->text, text, len) == 0) {
            break;
        }
        i = (i + 1) & (vocab->n_slots - 1);
    }
    return i;
}

static sw_status grow_slots(struct sw_vocab *vocab)
{
    if (2 * (vocab->n_used + 1) <= vocab->n_slots) {
        return SW_OK;
    }
    const size_t n_old = vocab->n_slots, n_slots = n_old ? 2 * n_old : 1024;
    int32_t *old = vocab->slots, *slots = sw_alloc("vocabulary", n_slots * sizeof(*slots));
    SW_TRY_ALLOC(slots, "the vocabulary");
    memset(slots, 0xFF, n_slots * sizeof(*slots));
    vocab->slots = slots;
    vocab->n_slots = n_slots;
    for (size_t i = 0; i < n_old; ++i) {
        if (old[i] >= 0) {
            const struct sw_vocab_token *token = sw_vocab_token(vocab, old[i]);
            slots[slot_of(vocab, token->text, token->len)] = old[i];
        }
    }
    sw_free(old);
    return SW_OK;
}

/* The entry of an id; allocates its page. Memory grows with the tokens, not with the highest id. */
static sw_status place_of(struct sw_vocab *vocab, int64_t id, struct sw_vocab_token **out)
{
    const int64_t i_page = id / SW_VOCAB_PAGE;
    if (i_page >= vocab->n_pages) {
        const int64_t n = sw_max_i64(2 * vocab->n_pages, i_page + 1);
        struct sw_vocab_token **pages =
            sw_realloc("vocabulary", vocab->pages, (size_t)n * sizeof(*pages));
        SW_TRY_ALLOC(pages, "the vocabulary");
        memset(pages + vocab->n_pages, 0, (size_t)(n - vocab->n_pages) * sizeof(*pages));
        vocab->pages = pages;
        vocab->n_pages = n;
    }
    struct sw_vocab_token **page = &vocab->pages[i_page];
    if (!*page) {
        *page = sw_alloc_zero("vocabulary", SW_VOCAB_PAGE, sizeof(**page));
        SW_TRY_ALLOC(*page, "the vocabulary");
    }
    *out = *page + id % SW_VOCAB_PAGE;
    return SW_OK;
}

sw_status sw_vocab_add(struct sw_vocab *vocab, const char *text, size_t len, int64_t id)
{
    if (id < 0 || id > SW_VOCAB_MAX_ID) {
        return SW_FAIL(SW_E_FORMAT, "token '%.*s': id %lld, wanted 0 to %d",
                       (int)sw_min_i64((int64_t)len, 40), text, (long long)id, SW_VOCAB_MAX_ID);
    }
    struct sw_vocab_token *token;
    SW_TRY(place_of(vocab, id, &token));
    SW_TRY(grow_slots(vocab));
    const size_t slot = slot_of(vocab, text, len);
    if (vocab->slots[slot] >= 0) {
        return SW_FAIL(SW_E_FORMAT, "token '%.*s' has the ids %d and %lld",
                       (int)sw_min_i64((int64_t)len, 40), text, vocab->slots[slot], (long long)id);
    }
    if (token->text) {
        return SW_FAIL(SW_E_FORMAT, "tokens '%.40s' and '%.*s' have the same id %lld", token->text,
                       (int)sw_min_i64((int64_t)len, 40), text, (long long)id);
    }
    const char *copy = sw_arena_strndup(&vocab->arena, text, len);
    SW_TRY_ALLOC(copy, "the vocabulary");
    *token = (struct sw_vocab_token){copy, len};
    vocab->slots[slot] = (int32_t)id;
    vocab->n_used++;
    vocab->n_ids = sw_max_i64(vocab->n_ids, id + 1);
    return SW_OK;
}

int32_t sw_vocab_find(const struct sw_vocab *vocab, const char *text, size_t len)
{
    return vocab->n_slots ? vocab->slots[slot_of(vocab, text, len)] : -1;
}

const struct sw_vocab_token *sw_vocab_token(const struct sw_vocab *vocab, int64_t id)
{
    const struct sw_vocab_token *page =
        id >= 0 && id < vocab->n_ids ? vocab->pages[id / SW_VOCAB_PAGE] : NULL;
    return page && page[id % SW_VOCAB_PAGE].text ? &page[id % SW_VOCAB_PAGE] : NULL;
}

void sw_vocab_find_bytes(const struct sw_vocab *vocab, int32_t out[256])
{
    for (int byte = 0; byte < 256; ++byte) {
        char token[8];
        snprintf(token, sizeof(token), "<0x%02X>", (unsigned)byte);
        out[byte] = sw_vocab_find(vocab, token, 6);
    }
}
