#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every source is as clang-format 14 leaves it. Another version formats differently: skipped. What it leaves
# alone, comments and strings, keeps to the same columns (columns.sh).
set -eu
sh "$(dirname "$0")/columns.sh"
cd "$(dirname "$0")/../.."

tool=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$tool" ] || ! "$tool" --version | grep -q 'version 14\.'; then
    echo "skipped: clang-format 14 is not here"
    exit 77
fi
find src include examples bench fuzz tests \( -name '*.[ch]' -o -name '*.cc' \) 2>/dev/null | sort |
    xargs "$tool" --dry-run --Werror 2>&1 | grep 'error:' | cut -d: -f1,2 > "${TMPDIR:-/tmp}/format.$$" || true
n=$(wc -l < "${TMPDIR:-/tmp}/format.$$")
sed 's|$|: not formatted (cmake --build <folder> --target format)|' "${TMPDIR:-/tmp}/format.$$" | head -n 50
rm -f "${TMPDIR:-/tmp}/format.$$"
[ "$n" -eq 0 ]
