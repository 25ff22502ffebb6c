// SPDX-License-Identifier: Apache-2.0
// Reports how much of the validation data the figures of a run cover: in lines, run.json,
// checkpoints and exports.
#include "job/private.h"

bool sw_job_coverage_put(struct sw_json_doc *doc, struct sw_json *object,
                         const struct sw_job_coverage *coverage)
{
    return coverage->of == 0 || (sw_json_put_i64(doc, object, "rows", coverage->rows) &&
                                 sw_json_put_i64(doc, object, "of", coverage->of));
}

static int64_t count_of(const struct sw_json *object, const char *key)
{
    const struct sw_json *value = object ? sw_json_get(object, key) : NULL;
    return value && value->type == SW_JSON_INT ? value->integer : 0;
}

struct sw_job_coverage sw_job_coverage_of(const struct sw_ckpt_meta *meta)
{
    const struct sw_json *validation =
        meta->training ? sw_json_get(meta->training, "validation") : NULL;
    return (struct sw_job_coverage){count_of(validation, "rows"), count_of(validation, "of")};
}

const char *sw_job_coverage_text(const struct sw_job_coverage *coverage, char *buf, size_t cap)
{
    buf[0] = '\0';
    if (coverage->rows < coverage->of) {
        snprintf(buf, cap, "%lld of %lld rows", (long long)coverage->rows, (long long)coverage->of);
    }
    return buf;
}
