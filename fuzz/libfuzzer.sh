#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzing guided by coverage, with sanitizers: clang's libFuzzer instead of driver.c.
#
#     libfuzzer.sh FOLDER build       builds every target in FOLDER
#     libfuzzer.sh FOLDER X [SECONDS] runs fuzz_X for a minute, or so many seconds
#
# What a run learns stays in FOLDER/corpus/X, and the next one goes on from there. An input that
# breaks something is FOLDER/found/X-crash-..; the status is then not 0. It is 77, skipped, where
# there is no clang with libFuzzer (Debian: clang, libclang-rt-14-dev).
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
folder=$1
target=$2
seconds=${3:-60}

find_clang() {
    for clang in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
        if echo 'int LLVMFuzzerTestOneInput(void *p, unsigned long n); int LLVMFuzzerTestOneInput(void *p, unsigned long n) { return p && n > 9 ? 0 : 0; }' |
            "$clang" -fsanitize=fuzzer,address,undefined -x c -o "$folder/probe" - 2> /dev/null; then
            return
        fi
    done
    echo "skipped: there is no clang that links libFuzzer"
    exit 77
}

mkdir -p "$folder"
find_clang
if [ "$target" = build ]; then
    launcher=
    command -v ccache > /dev/null && launcher="-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache"
    # shellcheck disable=SC2086 # two words
    cmake -S "$source" -B "$folder/build" -DCMAKE_C_COMPILER="$clang" -DSPILLWAY_SAN=ON -DSPILLWAY_FUZZ=ON $launcher
    exec cmake --build "$folder/build" --target fuzz_targets --parallel "$(nproc)"
fi
mkdir -p "$folder/corpus/$target" "$folder/found"
exec "$folder/build/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 \
    -artifact_prefix="$folder/found/$target-" "$folder/corpus/$target" "$source/fuzz/seeds/$target"
