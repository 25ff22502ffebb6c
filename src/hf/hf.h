// SPDX-License-Identifier: Apache-2.0
// hf - Hugging Face model folders: safetensors files, their index, config.json and the files beside
// them. What the tensors mean is the model room's business. Formats byte by byte: docs/formats.md.
//
// Reading maps files: opening costs the header, bytes are read when they are touched. A file that
// becomes shorter while it is open is found by sw_safetensor_check, asked before bytes are touched
// (this room never changes one in place: a new file replaces it).
#pragma once

#include "base/base.h"
#include "json/json.h"
#include "tensor/tensor.h"

/* ---- one safetensors file: reading ---- */

struct sw_safetensors;

/* A tensor of an open file or folder; everything is borrowed from it. */
struct sw_safetensor {
    const char *name;
    const char *file; /* path, for messages */
    const struct sw_safetensors *of;
    const char *dtype_name; /* as written: "F32", "BF16", "F8_E4M3" */
    enum sw_dtype dtype; /* SW_DTYPE_COUNT when Spillway has no such element or no such rank: then
                               shape is all zero, and the bytes can only be copied */
    struct sw_shape shape;
    const void *data; /* [bytes] little-endian, row-major, aligned to the element */
    size_t bytes;
};

/*
 * sw_safetensors_open - map a file and check all of its header.
 *
 * SW_E_IO      cannot be opened or mapped
 * SW_E_FORMAT  "path: Kind: what": the kinds are those of the reference reader, checked in its
 *              order - HeaderTooSmall, HeaderTooLarge, InvalidHeaderLength, InvalidHeader,
 *              InvalidHeaderDeserialization, InvalidOffset, ValidationOverflow, MisalignedSlice,
 *              TensorInvalidInfo, MetadataIncompleteBuffer
 */
sw_status sw_safetensors_open(const char *path, struct sw_safetensors **out);
/* The same of bytes in memory, borrowed until close; name is for messages. */
sw_status sw_safetensors_parse(const char *name, const void *bytes, size_t len,
                               struct sw_safetensors **out);
/*
 * sw_pickled_open - the same of what torch.save of PyTorch 1.6 or later wrote: a dictionary of
 * tensors, as pytorch_model.bin has it. Nothing in it is run (pickle.h).
 *
 * SW_E_FORMAT  names path and tensor; a name that is not allowed is in the message
 */
sw_status sw_pickled_open(const char *path, struct sw_safetensors **out);
sw_status sw_pickled_parse(const char *name, const void *bytes, size_t len,
                           struct sw_safetensors **out);
/* SW_E_IO when the file no longer has the bytes of its tensors. */
sw_status sw_safetensor_check(const struct sw_safetensor *tensor);
/* For readers of large files: the pages of bytes [first, first + n) leave this process. They may be
 * read again. */
void sw_safetensor_release(const struct sw_safetensor *tensor, size_t first, size_t n);
void sw_safetensors_close(struct sw_safetensors *file);
int64_t sw_safetensors_count(const struct sw_safetensors *file);
/* i in order of the data, 0 .. count-1. */
const struct sw_safetensor *sw_safetensors_at(const struct sw_safetensors *file, int64_t i);
/* NULL when absent. */
const struct sw_safetensor *sw_safetensors_find(const struct sw_safetensors *file,
                                                const char *name);
/* The value of a key of __metadata__, NULL when absent. */
const char *sw_safetensors_metadata(const struct sw_safetensors *file, const char *key);

/* ---- one safetensors file: writing ---- */

/* A tensor to be written. */
struct sw_safetensor_spec {
    const char *name;
    enum sw_dtype dtype;
    struct sw_shape shape;
};

struct sw_safetensors_options {
    bool page_aligned; /* data starts at a multiple of 4096, for direct I/O; else of 8 */
    /* Pairs of __metadata__. Without any it is {"format":"pt"}, which other readers require. */
    const char *const (*metadata)[2];
    int n_metadata;
};

struct sw_safetensors_writer;

/*
 * sw_safetensors_create - start a file of the declared tensors under a temporary name.
 *
 * The bytes are those of the reference writer: tensors by alignment of the dtype, largest first,
 * then by name. specs and options are borrowed for the call; options may be NULL. Fault points:
 * hf.write, fsync, rename.
 */
sw_status sw_safetensors_create(const char *path, const struct sw_safetensor_spec *specs,
                                int64_t n_specs, const struct sw_safetensors_options *options,
                                struct sw_safetensors_writer **out);
/* Bytes [offset, offset + bytes) of tensor i_spec; pieces in any order, from any thread, each byte
 * once. */
sw_status sw_safetensors_write(struct sw_safetensors_writer *writer, int64_t i_spec, size_t offset,
                               const void *data, size_t bytes);
/* Syncs the file and renames it to its final name. Every byte must have been written. On failure
 * the old file stays. */
sw_status sw_safetensors_commit(struct sw_safetensors_writer *writer);
/* Also removes the temporary file if it was not committed. NULL is a no-op. */
void sw_safetensors_writer_close(struct sw_safetensors_writer *writer);

/* ---- a model folder ---- */

/* config.json of a folder; the one beside an ONNX file, or an empty object; or the file itself. */
sw_status sw_hf_read_config(const char *path, struct sw_json_doc **out);

struct sw_hf_folder;

/*
 * sw_hf_folder_open - the weights of a folder as one list of tensors.
 *
 * Reads model.safetensors, or model.safetensors.index.json and the shards it names, or
 * pytorch_model.bin or its index, whichever of them is there first. Tensors of a shard that the
 * index does not map are left out, with a warning.
 *
 * SW_E_FORMAT  a shard or the index is damaged, or a mapped tensor is not in its shard
 * SW_E_IO      no weights there, or not readable
 */
sw_status sw_hf_folder_open(const char *path, struct sw_hf_folder **out);
/* Whether the folder has weights, pickled ones included. False for a config.json alone. */
bool sw_hf_folder_has_weights(const char *path);
void sw_hf_folder_close(struct sw_hf_folder *folder);
int64_t sw_hf_folder_count(const struct sw_hf_folder *folder);
/* i in order of name. */
const struct sw_safetensor *sw_hf_folder_at(const struct sw_hf_folder *folder, int64_t i);
const struct sw_safetensor *sw_hf_folder_find(const struct sw_hf_folder *folder, const char *name);

/* ---- quantized.c: weights that bitsandbytes has quantized ---- */

/* A weight of a folder, whose memory it borrows. form.kind NONE: it is not quantized. */
struct sw_hf_quantized {
    struct sw_shape shape;
    struct sw_quantized q;
};
/*
 * sw_hf_quantized_open - finds what belongs to a weight of a folder, and checks it.
 *
 * SW_E_FORMAT  a tensor is missing, or has another type or size
 * SW_E_UNSUP   another quantization: fp4, or other blocks
 */
sw_status sw_hf_quantized_open(const struct sw_hf_folder *folder,
                               const struct sw_safetensor *weight, struct sw_hf_quantized *out);
/* True for the name of a tensor that belongs to a quantized weight. */
bool sw_hf_is_quantization(const char *name);

struct sw_hf_folder_writer;

/*
 * sw_hf_folder_create - start the weights of a folder, cut into shards if need be.
 *
 * Shards are filled in the order of specs up to max_shard_bytes of data (0 = 5 GB); a tensor that
 * is larger has a shard of its own. One shard is model.safetensors, more have an index.
 */
sw_status sw_hf_folder_create(const char *path, const struct sw_safetensor_spec *specs,
                              int64_t n_specs, int64_t max_shard_bytes,
                              struct sw_hf_folder_writer **out);
/* Like sw_safetensors_write. */
sw_status sw_hf_folder_write(struct sw_hf_folder_writer *writer, int64_t i_spec, size_t offset,
                             const void *data, size_t bytes);
/* Renames each complete file to its final name, the index last. Then removes older weights that are
 * no longer part of the folder. */
sw_status sw_hf_folder_commit(struct sw_hf_folder_writer *writer);
void sw_hf_folder_writer_close(struct sw_hf_folder_writer *writer);

/* Copies the files of a model folder that are neither weights nor a configuration nor its card
 * (tokenizer, generation settings, licence, ..) unchanged, and the subfolders of modules that
 * modules.json names (sentence-transformers). Other subfolders and hidden files are left out. So
 * is, with a warning, a pointer of Git LFS, or a link out of the folder, except to the blobs of
 * the hub cache that the folder is a snapshot of. */
sw_status sw_hf_copy_sidecars(const char *src_path, const char *dst_path);
/* Writes modules.json and 1_Pooling/config.json, by which sentence-transformers reads the folder:
 * vectors of `width` elements, the mean over tokens or the first token. They are normalized if an
 * existing modules.json says so. */
sw_status sw_hf_save_pooling(const char *folder, int64_t width, bool first_token);

/* Whether two paths are the same folder. False if one of them does not exist. */
bool sw_hf_is_same_folder(const char *a, const char *b);

/* ---- model cards ---- */

/* The license that the card of a base names; "" = none. */
struct sw_hf_license {
    char id[64];
    char name[128], link[256]; /* only if the id is "other" */
};
void sw_hf_read_license(const char *folder, struct sw_hf_license *out);
/* "org/name" of a snapshot in the hub's cache; else the folder's own name; "" where there is
 * none. */
void sw_hf_base_name(const char *folder, char *buf, size_t cap);

/* Unknown members are left out of the card. */
struct sw_hf_card {
    const char *base; /* NULL or "" = not known, or none */
    bool is_adapter;
    struct sw_hf_license license;
    const char *const *tags;     /* [n_tags] */
    const char *const *datasets; /* [n_datasets] */
    int n_tags, n_datasets;
    const char *body; /* Markdown */
};
/* Writes README.md of a folder, and replaces an existing one. */
sw_status sw_hf_write_card(const char *folder, const struct sw_hf_card *card);
/* Removes it: it would describe another model. */
sw_status sw_hf_remove_card(const char *folder);
