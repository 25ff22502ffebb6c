#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The network of DeepSpeed's first tutorial on CIFAR-10.
#
#     examples/cifar10.sh OUTPUT [FOLDER]
#
# FOLDER has data_batch_*.bin and test_batch.bin of CIFAR-10's binary version. Without it a small set of the
# same format is generated: ten classes of noisy stripes, 2000 images for training and 400 for validation.
set -eu
output=${1:?usage: cifar10.sh OUTPUT [FOLDER]}
folder=${2:-$output/images}
here=$(dirname "$0")
spillway=${SPILLWAY:-spillway}

# make FIRST COUNT: writes records of a label and 1024 bytes each of red, green and blue
make() {
    LC_ALL=C awk -v first="$1" -v count="$2" 'BEGIN {
        srand(first)
        for (i = 0; i < count; i++) {
            label = (first + i) % 10
            printf "%c", label
            shift = int(rand() * 8)
            for (c = 0; c < 3; c++) {
                for (y = 0; y < 32; y++) {
                    for (x = 0; x < 32; x++) {
                        along = label < 5 ? x : y
                        on = int((along + shift) / (1 + label % 5)) % 2
                        printf "%c", int(on * 120 + rand() * 130)
                    }
                }
            }
        }
    }'
}

mkdir -p "$output"
if [ ! -d "$folder" ]; then
    mkdir -p "$folder"
    make 0 "${IMAGES:-2000}" > "$folder/data_batch_1.bin"
    make 100000 "$((${IMAGES:-2000} / 5))" > "$folder/test_batch.bin"
fi
"$spillway" train --task images --model cifar-net --deepspeed "$here/cifar10.json" \
    --data "$folder"/data_batch_*.bin --val-data "$folder/test_batch.bin" \
    --steps "${STEPS:-300}" --eval-every 100 --metric accuracy --output "$output/run"
"$spillway" eval --model "$output/run/model" --data "$folder/test_batch.bin"
