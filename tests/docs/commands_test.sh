#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# That commands.sh complains of what it is for: commands_test.sh BUILD_DIR
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/spillway_docs_test_XXXXXX")
trap 'rm -rf "$work"' EXIT
bad=0

# expect BUILD_DIR STATUS WORDS: of the page on standard input.
expect() {
    local found
    sed 's/^    //' > "$work/page.md"
    "$here/commands.sh" "$1" bare "$work/page.md" > "$work/out" 2>&1
    found=$?
    [ $found -ne 77 ] || exit 77
    if [ $found -ne "$2" ] || ! grep -qF -- "$3" "$work/out"; then
        echo "status $found, wanted $2 and \"$3\":"
        cat "$work/page.md" "$work/out"
        bad=1
    fi
}

expect "$1" 0 "1 blocks were run" <<'P'
    ```json mine.json
    {"train_batch_size": 4}
    ```
    ```sh
    spillway config mine.json
    spillway train .. --steps 3
    ```
    ```sh slow
    false
    ```
    ```sh 2026-11-22 wants a download
    spillway train --model gone --data gone --steps 1 --output gone
    ```
P
expect "$1" 1 "spillway train has no --stepz" <<'P'
    ```sh untried
    spillway launch --num-ranks 2 -- spillway train --model m --stepz 1
    ```
P
expect "$1" 1 "page.md:1 : status 3, wanted 0" <<'P'
    ```sh
    exit 3
    ```
P
expect "$1" 1 "status 0, wanted 2" <<'P'
    ```sh exits 2
    true
    ```
P
expect "$1" 1 "a mark that means nothing" <<'P'
    ```sh sometimes
    true
    ```
P
expect "$1" 1 "there is no such file or test" <<'P'
    ```sh elsewhere project/nothing
    true
    ```
P
expect "$1" 1 "stands in a block that is not sh or console" <<'P'
    ```
    spillway plan --model gpt2
    ```
P
expect "$1" 1 "stands in an indented block" <<'P'
    Measured by

        build/bench/bench_train_gpt2 --steps 5
P
expect "$1" 1 "it would change this machine" <<'P'
    ```sh
    false && sudo true
    ```
P
expect "$1" 1 "status 127, wanted 0" <<'P'
    ```console
    $ nobody_has_this \
        --at all
    an output line
    ```
P
exit $bad
