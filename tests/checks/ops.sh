#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Who names a kind of op. Everybody else asks its row (struct sw_op_info), so that a new op needs no line elsewhere.
#   graph, nn, model, onnx, device/cpu, device/gpu   all kinds
#   plan/fuse.c                    what it joins
#   another pass                   what it makes
#   device/quantized.c             the product that runs in blocks
#   cost/kernels.c                 what other systems run in another way
# With an argument, checks that tree instead of this one (checks_test.sh uses that).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"

# may_name <file>: the kinds that it may name, as a pattern
may_name() {
    case $1 in
    src/plan/fuse.c) echo 'MATMUL|DEQUANTIZE|QUANTIZED_MATMUL|ADD|ACT|LAYER_NORM|ADD_LAYER_NORM|RMS_NORM|ADD_RMS_NORM' ;;
    src/device/quantized.c) echo 'MATMUL' ;;
    src/plan/loss.c) echo 'LINEAR_CE|LINEAR_CE_GRAD|LINEAR_CE_AT_ONCE|LOSS_MEAN_GRAD|SEED' ;;
    src/plan/stage.c) echo 'CONTIGUOUS' ;;
    src/plan/tile.c) echo 'SELECT_INDEX' ;;
    src/plan/update.c) echo 'DENSIFY|CONTIGUOUS|ACCUMULATE|VIEW|CAST|GRAD_STATS|STATS_RESET|STATS_FINISH' ;;
    src/plan/late_update.c) echo 'CONTIGUOUS' ;;
    src/plan/emit.c) echo 'UPDATE|LAMB_MOMENTS|LAMB_APPLY|LAMB_ADD_NORMS|MUON_MOMENTS|MUON_APPLY|ADAFACTOR_SUMS|ADAFACTOR_MOMENTS|ADAFACTOR_APPLY' ;;
    src/plan/loads.c) echo 'VIEW' ;;
    src/plan/fetch.c) echo 'CAST' ;;
    src/cost/kernels.c) echo 'MATMUL|ATTENTION|ATTENTION_GRAD|LINEAR_CE_GRAD' ;;
    *) echo 'NONE' ;;
    esac
}

bad=0
for file in $(find src -name '*.[ch]' ! -path '*/tests/*' ! -path 'src/graph/*' ! -path 'src/nn/*' \
    ! -path 'src/model/*' ! -path 'src/onnx/*' ! -path 'src/device/cpu/*' ! -path 'src/device/gpu/*' -exec grep -l SW_OP_ {} + | sort); do
    found=$(awk -f "$here/code.awk" "$file" | grep -oE ':[0-9]+:|SW_OP_[A-Z_]+' | awk '
        /^:/ { line = $0; next }
        { print line $0 }' | grep -vE ":SW_OP_($(may_name "$file"))\$" || true)
    if [ -n "$found" ]; then
        printf '%s\n' "$found" | sed "s|^|$file|; s|\$|   <- ask sw_op_info|"
        bad=1
    fi
done
exit $bad
