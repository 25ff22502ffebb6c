#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu_build.sh CMAKE SOURCE COMPILER: the CUDA module's own file and one file of kernels compile as on the machine of a
# user who has the CUDA toolkit and neither ccache nor Ninja: both are hidden, and the build uses Makefiles. CMake looks
# for programs in PATH alone, where otherwise it knows /usr/bin by itself.
set -eu
cmake=$1 source=$2 compiler=$3
command -v nvcc > /dev/null || [ -x /usr/local/cuda/bin/nvcc ] || {
    echo "skipped: there is no nvcc"
    exit 77
}
command -v make > /dev/null || {
    echo "skipped: there is no make"
    exit 77
}
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Links to all programs, the first of a name, but these two and what resolves to them. nvcc finds its parts beside it.
mkdir "$scratch/bin"
IFS=:
for folder in $PATH; do
    [ "$folder" != "${nvcc%/*}" ] || continue
    for program in "$folder"/*; do
        case $(readlink -f "$program") in
        */ccache | */ninja | */ninja-build) ;;
        *) [ ! -x "$program" ] || [ -e "$scratch/bin/${program##*/}" ] || ln -s "$program" "$scratch/bin" ;;
        esac
    done
done
unset IFS CMAKE_GENERATOR CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER
PATH=$scratch/bin:${nvcc%/*}
export PATH
! command -v ccache || exit 1
! command -v ninja || exit 1

"$cmake" -S "$source" -B "$scratch/build" -DCMAKE_C_COMPILER="$compiler" -DBUILD_TESTING=OFF -DSPILLWAY_CUDA=ON \
    -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF -DSPILLWAY_CUDA_ARCHS=sm_90 -DSPILLWAY_HIP=OFF -DSPILLWAY_GPU_EMULATION=OFF > "$scratch/log" 2>&1 || {
    cat "$scratch/log"
    exit 1
}
! grep -E '=.*/(ccache|ninja)' "$scratch/build/CMakeCache.txt" || exit 1
smallest=$(ls -rS "$source"/src/device/gpu/module/kernels_*.cc | head -n 1)
cd "$scratch/build"
for stem in vendor_module "$(basename "$smallest" .cc)"; do
    make -f CMakeFiles/spillway_cuda_module.dir/build.make "gpu/cuda/$stem.o"
    test -s "gpu/cuda/$stem.o"
done
