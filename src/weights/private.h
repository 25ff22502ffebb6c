// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of the room. Private to it.
#pragma once

#include "weights/weights.h"

/* ---- source.c ---- */
void sw_weights_close_source(struct sw_weights *w);
/* Opens the model again, with head and embedding tied or untied. It overwrites
 * tie_word_embeddings of the config.json in memory, and keeps the scale of the head. */
sw_status sw_weights_tie(struct sw_weights *w, bool tied);

/* ---- values.c ---- */
/* Unties head and embedding if the file holds different values for them, whatever the configuration
 * says. */
sw_status sw_weights_resolve_tie(struct sw_weights *w);
/* Reads or writes a parameter or a state in the form of a checkpoint. fp32 and bf16 values are fp32
 * there; 8-bit codes stay as they are. Ranges are as for sw_weights_get. */
sw_status sw_weights_store_state(struct sw_weights *w, const struct sw_persistent *item,
                                 int64_t first, int64_t n, const void *src);
sw_status sw_weights_fetch_state(struct sw_weights *w, const struct sw_persistent *item,
                                 int64_t first, int64_t n, void *dst);
/* The tensor of the folder that holds parameter `name`; NULL if there is none. */
const struct sw_safetensor *sw_weights_find_in_folder(const struct sw_weights *w, const char *name);
/* The tensor that parameter `name` is initialized from. If a tied pair is two parameters here, the
 * file may have only one of them. */
const struct sw_safetensor *sw_weights_find_source(const struct sw_weights *w, const char *name);
/* SW_E_FORMAT: the tensor is not of a float type read here (its shape may be unknown then), or its
 * shape is not the parameter's. */
sw_status sw_weights_check_floats(const struct sw_safetensor *tensor);
sw_status sw_weights_check_tensor(const struct sw_parameter *param,
                                  const struct sw_safetensor *tensor);

/* Stores elements of a parameter or a state in its own dtype. Ranges are as for sw_weights_get. */
sw_status sw_weights_store(struct sw_weights *w, const struct sw_persistent *item, int64_t first,
                           int64_t n, const void *src);
/* Begins the digest of a parameter's values; *out = NULL if it is trained. The end frees it, and
 * notes it unless st is a failure, which is returned. */
sw_status sw_weights_begin_digest(const struct sw_weights *w, const struct sw_parameter *param,
                                  struct sw_digest **out);
sw_status sw_weights_end_digest(struct sw_weights *w, struct sw_parameter *param,
                                struct sw_digest *digest, sw_status st);

/* ---- quantized.c ---- */
/* Elements of a weight, as f32. Several threads may fetch at once, unless they are of an ONNX file.
 */
struct sw_values {
    sw_status (*fetch)(void *ctx, int64_t first, int64_t n, float *out);
    void *ctx;
    enum sw_dtype dtype; /* one that has all of the values exactly */
};
/* Opens w->quantizer if the configuration or the folder has quantized weights. Refuses by name what
 * does not work with them. */
sw_status sw_weights_open_quantizer(struct sw_weights *w);
void sw_weights_close_quantizer(struct sw_weights *w);
/* True for the parameter that has the codes of a quantized weight; for one that has scales. */
bool sw_weights_is_quantized(const struct sw_weights *w, const char *param);
bool sw_weights_is_scales(const struct sw_weights *w, const char *param);
/* The shape of a quantized weight as a matrix. */
struct sw_shape sw_weights_quantized_shape(const struct sw_weights *w, const char *param);
/* Fills the parameters of a quantized weight, from the folder (from) or else from values that it
 * quantizes. */
sw_status sw_weights_put_quantized(struct sw_weights *w, struct sw_parameter *param,
                                   const struct sw_hf_quantized *from,
                                   const struct sw_values *values);

/* Values as they are once they are quantized: encoded and decoded. */
struct sw_decoding {
    const struct sw_values *values;
    const struct sw_weights *w;
    const char *name; /* NULL: the values are not quantized here */
    float offset;     /* of the scales of NF4 */
    int64_t run;      /* most elements at a time; pieces begin at multiples of it */
};
/* name: of a parameter, which may be quantized; NULL = it is not. piece: [SW_WEIGHTS_SCRATCH / 2]
 */
sw_status sw_weights_begin_decoding(const struct sw_weights *w, const char *name,
                                    const struct sw_values *values, float *piece,
                                    struct sw_decoding *out);
sw_status sw_weights_fetch_decoded(const struct sw_decoding *decoding, int64_t first, int64_t n,
                                   float *out);

/* ---- collect.c ---- */
struct sw_collect {
    sw_comm *comm;       /* NULL = one rank has all */
    struct sw_run *runs; /* [most elements at a time] scratch, like values */
    float *values;
};
/* Elements [first, first + n) of a parameter, on the first rank; others give what they own and get
 * nothing. Collective; after a failure of one rank, all go on, so they should agree then. */
sw_status sw_weights_collect(struct sw_weights *w, const struct sw_parameter *param, int64_t first,
                             int64_t n, const struct sw_collect *collect, float *out);

/* ---- adapter.c ---- */
/* SW_E_FORMAT: no tensor has this name and shape, so the adapters belong to another base. */
sw_status sw_adapter_check(const struct sw_adapter_source *source, const char *name,
                           const struct sw_shape *shape);
/* Reads elements [first, first + n) of a tensor that sw_adapter_check accepted. */
sw_status sw_adapter_read(const struct sw_adapter_source *source, const char *name, int64_t first,
                          int64_t n, float *out);
/* Writes PEFT's name of a parameter, "base_model.model.NAME", into buf. wrapped: it is the bias of
 * a layer with an adapter, "base_model.model.LAYER.base_layer.bias" */
const char *sw_adapter_name(const char *param, bool wrapped, char *buf, size_t cap);
/* True for a bias; out is the name of matrix A that its layer has if it is adapted. */
bool sw_adapter_beside_bias(const char *param, char *out, size_t cap);

/* ---- lora.c ---- */

struct sw_adapters {
    struct sw_lora spec; /* strings belong to the configuration, the model or the arena */
    struct sw_arena arena;
    struct sw_adapter_source from; /* source, open while weights are read; all zero: new adapters */
    bool continues;                /* the adapters come from `from` */
    bool untied;                   /* the model's tied pair is two parameters here */
    struct sw_adapted_layer {
        const char *module;
        double scaling;
        bool in_out;
    } * layers; /* [n_layers] in the order of the forward */
    int32_t n_layers;
};

void sw_weights_close_lora(struct sw_weights *w);
/* The layer whose magnitudes a parameter has. */
const struct sw_adapted_layer *sw_weights_layer_of(const struct sw_weights *w,
                                                   const char *magnitudes);
/* True for the bias of a layer with an adapter. */
bool sw_weights_is_adapted(const struct sw_weights *w, const char *bias);
/* Fits the adapters to the opened model. If one of a tied pair is saved, the pair becomes two
 * parameters. */
sw_status sw_weights_fit_lora(struct sw_weights *w);
/* True if the given adapter provides the parameter's values. */
bool sw_weights_adapter_has(const struct sw_weights *w, const char *param);
/* Describes the adapters ("adapter") and their base model ("base") for a checkpoint. */
bool sw_weights_put_lora(const struct sw_weights *w, struct sw_json_doc *doc, struct sw_json *root);
/* Appends the reason why a checkpoint's base differs from this one. */
void sw_weights_check_base(const struct sw_weights *w, const struct sw_ckpt *ckpt,
                           struct sw_str *refusal);

/* ---- save.c ---- */
/* Describes the run: the effective configuration, the model's config.json (so that a checkpoint can
 * be exported by itself), and the sample length. The caller owns *out. */
sw_status sw_weights_describe_run(const struct sw_weights *w, int64_t tokens,
                                  struct sw_json_doc **out);

/* ---- recode.c ---- */
/* Loads 8-bit moments of a checkpoint of `ranks` ranks along tensor, if this run has another number
 * of them. codes, scales: of one parameter and moment */
sw_status sw_weights_recode(struct sw_weights *w, struct sw_ckpt *ckpt,
                            const struct sw_persistent *codes, const struct sw_persistent *scales,
                            int ranks);

/* ---- resume.c ---- */
/* SW_E_CONFIG names every key and file that changed, with old and new value. */
sw_status sw_weights_check_resume(const struct sw_weights *w, const struct sw_weights_run *run,
                                  const struct sw_ckpt *ckpt);
