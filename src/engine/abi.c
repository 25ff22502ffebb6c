// SPDX-License-Identifier: Apache-2.0
// Sizes of the public structs. tests/checks/abi.sh fails if a struct is missing here.
#include "spillway/abi.h"

#include <string.h>

#include "base/base.h"
#include "spillway/check.h"
#include "spillway/checkpoint.h"
#include "spillway/comm.h"
#include "spillway/config.h"
#include "spillway/data.h"
#include "spillway/doctor.h"
#include "spillway/engine.h"
#include "spillway/launch.h"
#include "spillway/look.h"
#include "spillway/nvme.h"
#include "spillway/report.h"
#include "spillway/train.h"

#define SIZE(name)                                                                                 \
    {                                                                                              \
#name, sizeof(struct name)                                                                 \
    }

static const struct {
    const char *name;
    size_t bytes;
} sizes[] = {
    SIZE(sw_attention_spec),
    SIZE(sw_batch),
    SIZE(sw_chat_options),
    SIZE(sw_check_options),
    SIZE(sw_checkpoint_export_options),
    SIZE(sw_comm_item),
    SIZE(sw_config_options),
    SIZE(sw_cross_entropy_spec),
    SIZE(sw_dataset_options),
    SIZE(sw_embed_options),
    SIZE(sw_doctor_cluster),
    SIZE(sw_each_token),
    SIZE(sw_engine_config),
    SIZE(sw_engine_embed),
    SIZE(sw_engine_evaluate),
    SIZE(sw_engine_generate),
    SIZE(sw_engine_inputs),
    SIZE(sw_engine_model),
    SIZE(sw_engine_options),
    SIZE(sw_engine_plan),
    SIZE(sw_engine_run),
    SIZE(sw_engine_train),
    SIZE(sw_estimate_options),
    SIZE(sw_eval_options),
    SIZE(sw_exchange),
    SIZE(sw_fault_options),
    SIZE(sw_generate_options),
    SIZE(sw_group_options),
    SIZE(sw_hf_input),
    SIZE(sw_ids),
    SIZE(sw_init),
    SIZE(sw_input_info),
    SIZE(sw_launch_options),
    SIZE(sw_lstm_spec),
    SIZE(sw_message),
    SIZE(sw_nvme_buffer_info),
    SIZE(sw_nvme_counters),
    SIZE(sw_nvme_fault),
    SIZE(sw_nvme_info),
    SIZE(sw_nvme_options),
    SIZE(sw_nvme_segment),
    SIZE(sw_onnx_options),
    SIZE(sw_plan_cluster),
    SIZE(sw_plan_published),
    SIZE(sw_plan_scale),
    SIZE(sw_plan_search),
    SIZE(sw_predict_options),
    SIZE(sw_reduction),
    SIZE(sw_report_options),
    SIZE(sw_row_input),
    SIZE(sw_sampling),
    SIZE(sw_save_options),
    SIZE(sw_shape),
    SIZE(sw_step_report),
    SIZE(sw_task_data),
    SIZE(sw_task_options),
    SIZE(sw_tcp_options),
    SIZE(sw_tensor),
    SIZE(sw_tensor_split),
    SIZE(sw_text_rules),
    SIZE(sw_text_writer),
    SIZE(sw_tokenize_options),
    SIZE(sw_tokenizer_options),
    SIZE(sw_traffic),
    SIZE(sw_train_options),
    SIZE(sw_train_result),
    SIZE(sw_transport),
    SIZE(sw_user_op),
    SIZE(sw_view),
    SIZE(sw_window),
};

int sw_abi_version(void)
{
    return SW_ABI_VERSION;
}

int64_t sw_abi_size(const char *name)
{
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        if (strcmp(sizes[i].name, name) == 0) {
            return (int64_t)sizes[i].bytes;
        }
    }
    return -1;
}
