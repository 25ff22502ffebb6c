#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The reference of the C library: Doxygen has nothing to complain of, knows every public function, and finds what
# comments say of fields and parameters. Skipped (77) without doxygen.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v doxygen > /dev/null; then
    echo "skipped: there is no doxygen"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
{
    cat docs/Doxyfile
    printf 'OUTPUT_DIRECTORY = %s\nGENERATE_HTML = NO\nGENERATE_XML = YES\nXML_PROGRAMLISTING = NO\n' "$scratch"
} | doxygen -
bad=0
cat "$scratch"/xml/*_8h.xml "$scratch"/xml/struct*.xml > "$scratch/all"
sed -n '/SW_API/,/;/p' include/spillway/*.h | grep -v '^typedef\|^#' | grep -oE '\bsw_[a-z0-9_]+\(' | sort -u | tr -d '(' > "$scratch/names"
[ -s "$scratch/names" ]
while read -r name; do
    grep -qF "<name>$name</name>" "$scratch/all" || { echo "$name: the reference does not have it"; bad=1; }
done < "$scratch/names"
# in front of a function, its parameter, behind a field, in the head of a file
for words in 'the rows of samples first' 'NUL-terminated, the caller' 'windows or rows' 'the numbered samples of a training run'; do
    grep -q "$words" "$scratch/all" || { echo "the reference does not say \"$words\""; bad=1; }
done
exit $bad
