#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh <cmake> <generator> <build folder> <C compiler> <example.c>..: what `cmake --install`
# leaves is enough: the program answers, and each example compiles and links through pkg-config and
# through the CMake package, outside of the source tree, after the installed tree has been moved.
set -eu
cmake=$1 generator=$2 build=$3 cc=$4
shift 4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

mkdir -p first/bin first/share
touch first/share/mine
"$cmake" --install "$build" --prefix "$scratch/first" > install.log
"$cmake" --build "$build" --target uninstall > uninstall.log
[ "$(find first | LC_ALL=C sort | tr '\n' ' ')" = 'first first/bin first/share first/share/mine ' ]
rm -r first
"$cmake" --install "$build" --prefix "$scratch/first" > install.log
mv first moved
library=$(dirname "$(find moved -name libspillway.so)")
export LD_LIBRARY_PATH="$scratch/$library"
moved/bin/spillway --version
for file in man/man1/spillway.1 man/man1/spillway-train.1 bash-completion/completions/spillway zsh/site-functions/_spillway \
    fish/vendor_completions.d/spillway.fish; do
    test -s "moved/share/$file"
done
test -s moved/share/spillway/clusters/dgx2-v100.json
docs=$(moved/bin/spillway train --help | sed -n 's/^The pages of docs.* are in \(.*\)\.$/\1/p')
[ "$docs" = "$(realpath moved)/share/doc/spillway/docs" ]
for page in $(for command in $(moved/bin/spillway --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
    moved/bin/spillway "$command" --help
done | grep -o 'docs/[a-z]*\.md' | sort -u); do
    test -s "moved/share/doc/spillway/$page"
done

# what it was compiled with is what it finds
cat > binary.c << 'EOF'
#include <spillway/abi.h>
#include <spillway/engine.h>
#include <stddef.h>
int main(void)
{
    const int64_t bytes = (int64_t)sizeof(struct sw_engine_options);
    sw_engine *engine;
    return sw_abi_version() == SW_ABI_VERSION && sw_abi_size("sw_engine_options") == bytes &&
                   sw_initialize(NULL, &engine) == SW_E_ARG
               ? 0
               : 1;
}
EOF
set -- "$scratch/binary.c" "$@"

mkdir project
{
    printf 'cmake_minimum_required(VERSION 3.25)\nproject(user C)\nfind_package(spillway REQUIRED)\n'
    for example in "$@"; do
        name=$(basename "$example" .c)
        printf 'add_executable(%s "%s")\ntarget_link_libraries(%s PRIVATE spillway::spillway m)\n' \
            "$name" "$example" "$name"
    done
} > project/CMakeLists.txt
"$cmake" -S project -B project/build -G "$generator" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_PREFIX_PATH="$scratch/moved" > cmake.log
"$cmake" --build project/build > build.log
for example in "$@"; do
    test -x "project/build/$(basename "$example" .c)"
done
project/build/binary
echo 'the CMake package works'

if command -v pkg-config > /dev/null; then
    export PKG_CONFIG_PATH="$scratch/$library/pkgconfig"
    for example in "$@"; do
        # a list of words
        # shellcheck disable=SC2046
        "$cc" "$example" $(pkg-config --cflags --libs spillway) -lm -o example
        test -x example
        [ "$example" != "$scratch/binary.c" ] || ./example
    done
    echo 'pkg-config works'
fi
