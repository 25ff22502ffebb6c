// SPDX-License-Identifier: Apache-2.0
// BPE: the merge table, the merging of one word, and the cache of words.
//
// A word is a doubly linked list of symbols; a binary heap holds (rank, position) of every pair
// that has a rank. An entry is stale when the symbols at its position have changed: it is checked
// when it is popped, which costs less than removing it. A word of n bytes thus takes O(n log n).
#include "token/bpe.h"

#include "text/text.h"

#include <string.h>

struct sw_bpe_merge {
    int32_t left, right; /* ids; left -1 marks an empty slot */
    int32_t rank, id;    /* merge order; token that the pair becomes */
};

/* Cache of words: a direct-mapped table with fixed pools, cleared when a pool is full. It never
 * grows, so it cannot fail during encoding. */
enum {
    CACHE_SLOTS = 1 << 16,
    CACHE_TEXT_BYTES = 1 << 20,
    CACHE_IDS = 1 << 19,
    CACHE_WORD_BYTES = 64
};

struct cache_slot {
    uint64_t hash;
    uint32_t text, ids;       /* offsets in the pools */
    uint16_t text_len, n_ids; /* text_len 0: empty */
};

struct sw_bpe_cache {
    struct cache_slot slots[CACHE_SLOTS];
    char text[CACHE_TEXT_BYTES];
    int32_t ids[CACHE_IDS];
    size_t text_used, ids_used;
};

static const struct cache_slot *cache_find(const struct sw_bpe_cache *cache, uint64_t hash,
                                           const char *word, size_t len)
{
    const struct cache_slot *slot = &cache->slots[hash % CACHE_SLOTS];
    const bool same = slot->hash == hash && slot->text_len == len &&
                      memcmp(cache->text + slot->text, word, len) == 0;
    return same ? slot : NULL;
}

static void cache_put(struct sw_bpe_cache *cache, uint64_t hash, const char *word, size_t len,
                      const int32_t *ids, size_t n_ids)
{
    if (cache->text_used + len > CACHE_TEXT_BYTES || cache->ids_used + n_ids > CACHE_IDS) {
        memset(cache->slots, 0, sizeof(cache->slots));
        cache->text_used = cache->ids_used = 0;
    }
    memcpy(cache->text + cache->text_used, word, len);
    if (n_ids > 0) {
        memcpy(cache->ids + cache->ids_used, ids, n_ids * sizeof(*ids));
    }
    cache->slots[hash % CACHE_SLOTS] =
        (struct cache_slot){hash, (uint32_t)cache->text_used, (uint32_t)cache->ids_used,
                            (uint16_t)len, (uint16_t)n_ids};
    cache->text_used += len;
    cache->ids_used += n_ids;
}

sw_status sw_bpe_init(struct sw_bpe *bpe, const struct sw_vocab *vocab)
{
    *bpe = (struct sw_bpe){.vocab = vocab, .unknown = -1};
    sw_hash_key_init(&bpe->key);
    bpe->cache = sw_alloc_zero("word cache", 1, sizeof(*bpe->cache));
    SW_TRY_ALLOC(bpe->cache, "the cache of words");
    sw_byte_alphabet_init(&bpe->alphabet);
    for (int byte = 0; byte < 256; ++byte) {
        char letter[4];
        const size_t n = sw_utf8_put(bpe->alphabet.code_point[byte], letter);
        bpe->byte_id[byte] = sw_vocab_find(vocab, letter, n);
    }
    return SW_OK;
}

void sw_bpe_use_chars(struct sw_bpe *bpe, bool byte_fallback)
{
    bpe->by_char = true;
    bpe->byte_fallback = byte_fallback;
    sw_vocab_find_bytes(bpe->vocab, bpe->byte_id);
}

sw_status sw_bpe_set_affixes(struct sw_bpe *bpe, const char *prefix, const char *suffix)
{
    sw_str_puts(&bpe->prefix, prefix);
    sw_str_puts(&bpe->suffix, suffix);
    return bpe->prefix.failed || bpe->suffix.failed
               ? SW_FAIL(SW_E_NOMEM, "out of host memory for a tokenizer")
               : SW_OK;
}

void sw_bpe_fini(struct sw_bpe *bpe)
{
    sw_free(bpe->merges);
    sw_free(bpe->cache);
    sw_free(bpe->heap);
    sw_ids_fini(&bpe->symbols);
    sw_ids_fini(&bpe->links);
    sw_str_fini(&bpe->letters);
    sw_str_fini(&bpe->spelled);
    sw_str_fini(&bpe->prefix);
    sw_str_fini(&bpe->suffix);
    *bpe = (struct sw_bpe){0};
}

/* ---- merges ---- */

/* The slot of the pair, or the empty one where it would go. */
static struct sw_bpe_merge *merge_slot(const struct sw_bpe *bpe, int32_t left, int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = ((pair ^ bpe->key.words[0]) * (bpe->key.words[1] | 1)) >> 32 & (bpe->n_slots - 1);
    while (bpe->merges[i].left >= 0 &&
           (bpe->merges[i].left != left || bpe->merges[i].right != right)) {
        i = (i + 1) & (bpe->n_slots - 1);
    }
    return &bpe->merges[i];
}

static const struct sw_bpe_merge *find_merge(const struct sw_bpe *bpe, int32_t left, int32_t right)
{
    if (bpe->n_slots == 0) {
        return NULL;
    }
    const struct sw_bpe_merge *merge = merge_slot(bpe, left, right);
    return merge->left >= 0 ? merge : NULL;
}

static sw_status grow_merges(struct sw_bpe *bpe)
{
    if (2 * (bpe->n_used + 1) <= bpe->n_slots) {
        return SW_OK;
    }
    struct sw_bpe_merge *old = bpe->merges;
    const size_t n_old = bpe->n_slots, n_slots = n_old ? 2 * n_old : 1024;
    struct sw_bpe_merge *merges = sw_alloc("merges", n_slots * sizeof(*merges));
    SW_TRY_ALLOC(merges, "the merges");
    for (size_t i = 0; i < n_slots; ++i) {
        merges[i].left = -1;
    }
    bpe->merges = merges;
    bpe->n_slots = n_slots;
    for (size_t i = 0; i < n_old; ++i) {
        if (old[i].left >= 0) {
            *merge_slot(bpe, old[i].left, old[i].right) = old[i];
        }
    }
    sw_free(old);
    return SW_OK;
}

sw_status sw_bpe_add_merge(struct sw_bpe *bpe, const char *left, size_t left_len, const char *right,
                           size_t right_len, int64_t rank)
{
    const size_t n_prefix = bpe->prefix.len;
    if (right_len < n_prefix || memcmp(right, sw_str_text(&bpe->prefix), n_prefix) != 0) {
        return SW_FAIL(SW_E_FORMAT,
                       "merge %lld: '%.*s' does not begin with the continuing_subword_prefix '%s'",
                       (long long)rank, (int)sw_min_i64((int64_t)right_len, 60), right,
                       sw_str_text(&bpe->prefix));
    }
    sw_str_clear(&bpe->letters);
    sw_str_append(&bpe->letters, left, left_len);
    sw_str_append(&bpe->letters, right + n_prefix, right_len - n_prefix);
    if (bpe->letters.failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the merges");
    }
    const struct {
        const char *text;
        size_t len;
    } words[3] = {
        {left, left_len}, {right, right_len}, {sw_str_text(&bpe->letters), bpe->letters.len}};
    int32_t ids[3];
    for (int i = 0; i < 3; ++i) {
        ids[i] = sw_vocab_find(bpe->vocab, words[i].text, words[i].len);
        if (ids[i] < 0) {
            return SW_FAIL(SW_E_FORMAT, "merge %lld: token '%.*s' is not in the vocabulary",
                           (long long)rank, (int)sw_min_i64((int64_t)words[i].len, 60),
                           words[i].text);
        }
    }
    if (rank < 0 || rank > INT32_MAX) {
        return SW_FAIL(SW_E_FORMAT, "merge %lld: too many merges", (long long)rank);
    }
    SW_TRY(grow_merges(bpe));
    struct sw_bpe_merge *merge = merge_slot(bpe, ids[0], ids[1]);
    bpe->n_used += merge->left < 0;
    *merge = (struct sw_bpe_merge){ids[0], ids[1], (int32_t)rank, ids[2]};
    return SW_OK;
}

/* ---- merging one word ---- */

/* A word being merged. Symbol i is joined into its left neighbour by symbol[i] = -1; next and
 * previous skip over such symbols. */
struct word {
    int32_t *symbol, *previous, *next; /* [n] */
    int32_t n;
    uint64_t *heap; /* [n_heap] rank << 32 | position of the left symbol */
    size_t n_heap;
};

static void heap_push(struct word *word, uint64_t entry)
{
    size_t i = word->n_heap++;
    while (i > 0 && word->heap[(i - 1) / 2] > entry) {
        word->heap[i] = word->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    word->heap[i] = entry;
}

static uint64_t heap_pop(struct word *word)
{
    const uint64_t top = word->heap[0], last = word->heap[--word->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= word->n_heap) {
            break;
        }
        child += child + 1 < word->n_heap && word->heap[child + 1] < word->heap[child];
        if (word->heap[child] >= last) {
            break;
        }
        word->heap[i] = word->heap[child];
        i = child;
    }
    word->heap[i] = last;
    return top;
}

static void push_pair(const struct sw_bpe *bpe, struct word *word, int32_t at)
{
    if (at < 0 || word->next[at] >= word->n) {
        return;
    }
    const struct sw_bpe_merge *merge =
        find_merge(bpe, word->symbol[at], word->symbol[word->next[at]]);
    if (merge) {
        heap_push(word, (uint64_t)(uint32_t)merge->rank << 32 | (uint32_t)at);
    }
}

static void merge_all(const struct sw_bpe *bpe, struct word *word)
{
    for (int32_t i = 0; i + 1 < word->n; ++i) {
        push_pair(bpe, word, i);
    }
    while (word->n_heap > 0) {
        const uint64_t entry = heap_pop(word);
        const int32_t at = (int32_t)(uint32_t)entry, rank = (int32_t)(entry >> 32);
        if (word->symbol[at] < 0 || word->next[at] >= word->n) {
            continue;
        }
        const int32_t right = word->next[at];
        const struct sw_bpe_merge *merge = find_merge(bpe, word->symbol[at], word->symbol[right]);
        if (!merge || merge->rank != rank) {
            continue;
        }
        word->symbol[at] = merge->id;
        word->symbol[right] = -1;
        word->next[at] = word->next[right];
        if (word->next[at] < word->n) {
            word->previous[word->next[at]] = at;
        }
        push_pair(bpe, word, word->previous[at]);
        push_pair(bpe, word, at);
    }
}

/* Reserves memory for a word of n symbols. The heap holds n - 1 initial pairs, plus two for each of
 * n - 1 merges. */
static sw_status reserve(struct sw_bpe *bpe, size_t n)
{
    while (bpe->links.cap < 2 * (int64_t)n) {
        bpe->links.len = bpe->links.cap;
        SW_TRY(sw_ids_push(&bpe->links, 0));
    }
    if (bpe->heap_cap < 3 * n) {
        uint64_t *heap = sw_realloc("merge heap", bpe->heap, 3 * n * sizeof(*heap));
        SW_TRY_ALLOC(heap, "the merging of a word");
        bpe->heap = heap;
        bpe->heap_cap = 3 * n;
    }
    return SW_OK;
}

/* The initial symbols of a word, one per byte. */
static sw_status first_symbols(struct sw_bpe *bpe, const char *bytes, size_t len)
{
    bool after_unknown = false;
    sw_ids_clear(&bpe->symbols);
    for (size_t i = 0; i < len; ++i) {
        int32_t id = bpe->byte_id[(unsigned char)bytes[i]];
        const bool known = id >= 0;
        if (!known) {
            id = after_unknown && bpe->fuse_unknown ? -1 : bpe->unknown;
        }
        after_unknown = !known;
        if (id >= 0) {
            SW_TRY(sw_ids_push(&bpe->symbols, id));
        }
    }
    return SW_OK;
}

/* Whether each byte of a character has a token. */
static bool have_tokens(const struct sw_bpe *bpe, const char *bytes, size_t n)
{
    bool all = bpe->byte_fallback;
    for (size_t i = 0; i < n && all; ++i) {
        all = bpe->byte_id[(unsigned char)bytes[i]] >= 0;
    }
    return all;
}

struct spelling {
    const char *text;
    size_t len;
};

/* Spells a character as its token does, with the affixes of its position in the word. */
static sw_status spell(struct sw_bpe *bpe, bool first, bool last, struct spelling *character)
{
    if ((first || bpe->prefix.len == 0) && (!last || bpe->suffix.len == 0)) {
        return SW_OK;
    }
    sw_str_clear(&bpe->spelled);
    sw_str_puts(&bpe->spelled, first ? "" : sw_str_text(&bpe->prefix));
    sw_str_append(&bpe->spelled, character->text, character->len);
    sw_str_puts(&bpe->spelled, last ? sw_str_text(&bpe->suffix) : "");
    *character = (struct spelling){sw_str_text(&bpe->spelled), bpe->spelled.len};
    return bpe->spelled.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a word") : SW_OK;
}

/* The initial symbols of a word, one per character. As in the reference, a pending unknown is
 * emitted before the next character with a token, or at the end. Byte tokens do not emit it. */
static sw_status first_characters(struct sw_bpe *bpe, const char *text, size_t len)
{
    bool waits = false;
    sw_ids_clear(&bpe->symbols);
    for (size_t pos = 0; pos < len;) {
        const size_t at = pos;
        sw_utf8_step(text, len, &pos);
        struct spelling character = {text + at, pos - at};
        SW_TRY(spell(bpe, at == 0, pos == len, &character));
        const int32_t id = sw_vocab_find(bpe->vocab, character.text, character.len);
        if (id < 0 && have_tokens(bpe, character.text, character.len)) {
            for (size_t i = 0; i < character.len; ++i) {
                SW_TRY(sw_ids_push(&bpe->symbols, bpe->byte_id[(unsigned char)character.text[i]]));
            }
            continue;
        }
        if (waits && (id >= 0 || !bpe->fuse_unknown)) {
            SW_TRY(sw_ids_push(&bpe->symbols, bpe->unknown));
        }
        waits = id < 0 && bpe->unknown >= 0;
        if (id >= 0) {
            SW_TRY(sw_ids_push(&bpe->symbols, id));
        }
    }
    return waits ? sw_ids_push(&bpe->symbols, bpe->unknown) : SW_OK;
}

/* Spells the word as its token does: bytes become letters. */
static sw_status write_letters(struct sw_bpe *bpe, struct spelling *word)
{
    if (bpe->by_char) {
        return SW_OK;
    }
    sw_str_clear(&bpe->letters);
    sw_byte_alphabet_write(&bpe->alphabet, word->text, word->len, &bpe->letters);
    if (bpe->letters.failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a word of %zu bytes", word->len);
    }
    *word = (struct spelling){sw_str_text(&bpe->letters), bpe->letters.len};
    return SW_OK;
}

static sw_status encode_new(struct sw_bpe *bpe, const char *bytes, size_t len, struct sw_ids *out)
{
    const bool plain = !bpe->by_char && bpe->prefix.len == 0 && bpe->suffix.len == 0;
    struct spelling word_text = {bytes, len};
    if (bpe->whole_word_first || !plain) {
        SW_TRY(write_letters(bpe, &word_text));
    }
    if (bpe->whole_word_first) {
        const int32_t id = sw_vocab_find(bpe->vocab, word_text.text, word_text.len);
        if (id >= 0) {
            return sw_ids_push(out, id);
        }
    }
    SW_TRY(plain ? first_symbols(bpe, bytes, len)
                 : first_characters(bpe, word_text.text, word_text.len));
    const size_t n = (size_t)bpe->symbols.len;
    if (n == 0) { /* no byte of it has a token */
        return SW_OK;
    }
    SW_TRY(reserve(bpe, n));
    struct word word = {
        .symbol = bpe->symbols.ptr,
        .previous = bpe->links.ptr,
        .next = bpe->links.ptr + n,
        .n = (int32_t)n,
        .heap = bpe->heap,
    };
    for (int32_t i = 0; i < word.n; ++i) {
        word.previous[i] = i - 1;
        word.next[i] = i + 1;
    }
    merge_all(bpe, &word);
    for (int32_t i = 0; i < word.n; ++i) {
        if (word.symbol[i] >= 0) {
            SW_TRY(sw_ids_push(out, word.symbol[i]));
        }
    }
    return SW_OK;
}

sw_status sw_bpe_encode(struct sw_bpe *bpe, const char *word, size_t len, struct sw_ids *out)
{
    if (len == 0) {
        return SW_OK;
    }
    if (len > INT32_MAX / 4) {
        return SW_FAIL(SW_E_UNSUP, "a word of %zu bytes: longer than %d", len, INT32_MAX / 4);
    }
    if (len > CACHE_WORD_BYTES) {
        return encode_new(bpe, word, len, out);
    }
    const uint64_t hash = sw_hash(SW_HASH_INIT, word, len);
    const struct cache_slot *slot = cache_find(bpe->cache, hash, word, len);
    if (slot) {
        for (uint32_t i = 0; i < slot->n_ids; ++i) {
            SW_TRY(sw_ids_push(out, bpe->cache->ids[slot->ids + i]));
        }
        return SW_OK;
    }
    const int64_t start = out->len;
    SW_TRY(encode_new(bpe, word, len, out));
    const int32_t *ids = out->len > start ? out->ptr + start : NULL; /* no id yet */
    cache_put(bpe->cache, hash, word, len, ids, (size_t)(out->len - start));
    return SW_OK;
}
