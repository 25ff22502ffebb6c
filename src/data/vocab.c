// SPDX-License-Identifier: Apache-2.0
// The vocabulary: an array by id, and an open-addressing table of ids by text, at most half full.
#include "data/vocab.h"

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
    sw_free(vocab->tokens);
    sw_free(vocab->slots);
    sw_arena_fini(&vocab->arena);
    *vocab = (struct sw_vocab){0};
}

/* The slot that holds the text, or the empty one where it would go. */
static size_t slot_of(const struct sw_vocab *vocab, const char *text, size_t len)
{
    size_t i = sw_hash_keyed(&vocab->key, text, len) & (vocab->n_slots - 1);
    while (vocab->slots[i] >= 0) {
        const struct sw_vocab_token *token = &vocab->tokens[vocab->slots[i]];
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
    const size_t n_slots = vocab->n_slots ? 2 * vocab->n_slots : 1024;
    int32_t *slots = sw_alloc("vocabulary", n_slots * sizeof(*slots));
    SW_TRY_ALLOC(slots, "the vocabulary");
    memset(slots, 0xFF, n_slots * sizeof(*slots));
    sw_free(vocab->slots);
    vocab->slots = slots;
    vocab->n_slots = n_slots;
    for (int64_t id = 0; id < vocab->n_ids; ++id) {
        const struct sw_vocab_token *token = &vocab->tokens[id];
        if (token->text) {
            slots[slot_of(vocab, token->text, token->len)] = (int32_t)id;
        }
    }
    return SW_OK;
}

static sw_status grow_ids(struct sw_vocab *vocab, int64_t id)
{
    if (id >= vocab->cap) {
        const int64_t cap = sw_max_i64(2 * vocab->cap, sw_max_i64(id + 1, 1024));
        struct sw_vocab_token *tokens =
            sw_realloc("vocabulary", vocab->tokens, (size_t)cap * sizeof(*tokens));
        SW_TRY_ALLOC(tokens, "the vocabulary");
        memset(tokens + vocab->cap, 0, (size_t)(cap - vocab->cap) * sizeof(*tokens));
        vocab->tokens = tokens;
        vocab->cap = cap;
    }
    return SW_OK;
}

sw_status sw_vocab_add(struct sw_vocab *vocab, const char *text, size_t len, int64_t id)
{
    if (id < 0 || id > SW_VOCAB_MAX_ID) {
        return SW_FAIL(SW_E_FORMAT, "token '%.*s': id %lld, wanted 0 to %d",
                       (int)sw_min_i64((int64_t)len, 40), text, (long long)id, SW_VOCAB_MAX_ID);
    }
    SW_TRY(grow_ids(vocab, id));
    SW_TRY(grow_slots(vocab));
    const size_t slot = slot_of(vocab, text, len);
    if (vocab->slots[slot] >= 0) {
        return SW_FAIL(SW_E_FORMAT, "token '%.*s' has the ids %d and %lld",
                       (int)sw_min_i64((int64_t)len, 40), text, vocab->slots[slot], (long long)id);
    }
    if (vocab->tokens[id].text) {
        return SW_FAIL(SW_E_FORMAT, "tokens '%.40s' and '%.*s' have the same id %lld",
                       vocab->tokens[id].text, (int)sw_min_i64((int64_t)len, 40), text,
                       (long long)id);
    }
    const char *copy = sw_arena_strndup(&vocab->arena, text, len);
    SW_TRY_ALLOC(copy, "the vocabulary");
    vocab->tokens[id] = (struct sw_vocab_token){copy, len};
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
    const bool there = id >= 0 && id < vocab->n_ids && vocab->tokens[id].text;
    return there ? &vocab->tokens[id] : NULL;
}

void sw_vocab_find_bytes(const struct sw_vocab *vocab, int32_t out[256])
{
    for (int byte = 0; byte < 256; ++byte) {
        char token[8];
        snprintf(token, sizeof(token), "<0x%02X>", (unsigned)byte);
        out[byte] = sw_vocab_find(vocab, token, 6);
    }
}
