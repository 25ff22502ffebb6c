#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clean_machine.sh [quickstart] [minimal] [cuda] [hip]: what a user does on a fresh Debian 12, each in a bare system of
# its own (all of them, where none is named), from the commit that is checked out:
#   quickstart  ./quickstart, then ./quickstart --test
#   minimal     cmake and cmake --build with nothing but a C compiler
#   cuda        the same with this machine's CUDA toolkit in its place, without ccache and Ninja
#   hip         the same with hipcc from Debian
# Wants what packaging/bare.sh wants, and the network for packages; without it the whole is skipped (77). An hour on two
# processors, and 12 GiB in $TMPDIR. Run it before a release and after each change of the build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ways=("$@")
[ $# -gt 0 ] || ways=(quickstart minimal cuda hip)
# shellcheck source=packaging/bare.sh
. "$here/../packaging/bare.sh"

cuda=$(readlink -f /usr/local/cuda || true)

# new <name> <packages>: a system with the tree in /root/spillway and these packages
new() {
    fresh "$1"
    commit "$scratch/$1/root/spillway"
    within "$1" 'apt-get update -qq'
    [ -z "$2" ] || within "$1" "$install $2 > /tmp/log 2>&1 || { tail /tmp/log; exit 1; }"
}
# build <name> <lines for the shell first> [<folder of this machine>]: configures, builds, trains a few steps
build() {
    within "$1" "cd /root/spillway
        $2
        ! command -v ccache
        ! command -v ninja
        cmake -S . -B b > /tmp/log 2>&1 || { tail -n 30 /tmp/log; exit 1; }
        sed -n '/optional dependencies/,/Configuring/{/Configuring/!p}' /tmp/log
        cmake --build b --parallel $(nproc) > /tmp/log 2>&1 || { grep -m 5 -A 5 -i error /tmp/log; tail -n 30 /tmp/log; exit 1; }
        i=0
        while [ \$i -lt 300 ]; do echo \"\$i and \$((i * i % 97)) are two numbers.\" >> text.txt; i=\$((i + 1)); done
        b/spillway train --model gpt2-tiny --data text.txt --steps 3 --seq-len 32 --output run > /tmp/log
        tail -n 1 /tmp/log" "${3:-}"
}
# has <name> <module>: the module was built, is an ELF library, and is what doctor looks for
has() {
    test -s "$scratch/$1/root/spillway/b/$2"
    [ "$(head -c 4 "$scratch/$1/root/spillway/b/$2" | tail -c 3)" = ELF ]
    echo "$2: $(stat -c %s "$scratch/$1/root/spillway/b/$2") bytes"
}

way_quickstart() {
    new quickstart ''
    within quickstart 'cd /root/spillway; ./quickstart < /dev/null'
    within quickstart 'cd /root/spillway; ./quickstart --test < /dev/null > /tmp/log 2>&1 || {
            grep -A 60 "\*\*\*Failed" /tmp/log; tail -n 60 /tmp/log; exit 1; }
        grep "tests passed" /tmp/log'
}

way_minimal() {
    new minimal 'gcc libc6-dev cmake make'
    build minimal '! command -v c++'
}

way_cuda() {
    [ -x "$cuda/bin/nvcc" ] || { echo "skipped: no CUDA toolkit in /usr/local/cuda"; return; }
    new cuda 'gcc g++ libc6-dev cmake make'
    ln -s "$cuda" "$scratch/cuda/usr/local/cuda"
    build cuda '' "$cuda"
    has cuda spillway_cuda.so
}

way_hip() {
    new hip 'gcc g++ libc6-dev cmake make hipcc libamdhip64-dev'
    build hip ''
    has hip spillway_hip.so
}

for way in "${ways[@]}"; do
    say "$way"
    "way_$way"
done
say "all of ${ways[*]} worked"
