# SPDX-License-Identifier: Apache-2.0
# Everything a user may set with -D, in one place.

option(SPILLWAY_MINIMAL "Build with no optional dependency at all" OFF)
option(SPILLWAY_WERROR "Treat warnings as errors" OFF)
option(SPILLWAY_SAN "AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(SPILLWAY_TSAN "ThreadSanitizer" OFF)
option(SPILLWAY_FUZZ "Link the fuzz targets with libFuzzer instead of our driver (clang)" OFF)
option(SPILLWAY_AVX2 "Vector kernels for AVX2, which are used where the processor has it and no newer ones" ON)
option(SPILLWAY_AVX512 "Kernels for AVX-512, which are used where the processor has it" ON)
option(SPILLWAY_EXAMPLES "Build the example programs" ON)
set(SPILLWAY_WITHOUT_TESTS "" CACHE STRING
    "Regular expressions of whole names, in a list: these tests, and slow ones, are not built; nothing leaves out none")

# sw_leaves_out(<test> <variable>): whether SPILLWAY_WITHOUT_TESTS names this test. Several expressions, because one has
# at most nine groups.
function(sw_leaves_out test out)
    set(found FALSE)
    foreach(names IN LISTS SPILLWAY_WITHOUT_TESTS)
        if(test MATCHES "^(${names})$")
            set(found TRUE)
        endif()
    endforeach()
    set(${out} ${found} PARENT_SCOPE)
endfunction()

# GPUs. The emulation runs their kernels on the CPU, for tests; it wants a C++ compiler. Its fibers are nothing that
# the thread sanitizer knows.
include(CheckLanguage)
check_language(CXX)
set(gpu_emulation OFF)
if(BUILD_TESTING AND CMAKE_CXX_COMPILER AND NOT SPILLWAY_MINIMAL AND NOT SPILLWAY_TSAN)
    set(gpu_emulation ON)
endif()
option(SPILLWAY_GPU_EMULATION "Emulate GPUs on the CPU, for tests (device emu)" ${gpu_emulation})
set(SPILLWAY_EMU_WARPS 32 64 CACHE STRING "Lanes of an emulated warp, a module each: 32, 64")
if(SPILLWAY_GPU_EMULATION)
    enable_language(CXX)
    set(CMAKE_CXX_STANDARD 17)
    set(CMAKE_CXX_EXTENSIONS ON)
endif()

# Modules for real ones: spillway_cuda.so by nvcc, spillway_hip.so by hipcc or clang. AUTO builds what there
# is a compiler for, but not beside sanitizers, nor in a minimal build, where ON asks for it.
foreach(vendor IN ITEMS CUDA HIP)
    set(SPILLWAY_${vendor} AUTO CACHE STRING "Build the module for ${vendor}: AUTO, ON or OFF")
    set_property(CACHE SPILLWAY_${vendor} PROPERTY STRINGS AUTO ON OFF)
endforeach()
option(SPILLWAY_GPU_BY_NAME
    "Build those modules by the target gpu_modules alone: it takes minutes" OFF)
set(SPILLWAY_CUDA_ARCHS "sm_80;sm_90" CACHE STRING "NVIDIA GPUs to compile for; of the last PTX too")
set(SPILLWAY_HIP_ARCHS "gfx908;gfx90a;gfx942" CACHE STRING "AMD GPUs to compile for")

# AUTO uses a dependency when it is found, ON insists on it, OFF ignores it.
foreach(dep IN ITEMS DNNL URING MPI PCRE2 UTF8PROC PNG JPEG XXHASH HWLOC CMOCKA)
    set(SPILLWAY_${dep} AUTO CACHE STRING "Use ${dep}: AUTO, ON or OFF")
    set_property(CACHE SPILLWAY_${dep} PROPERTY STRINGS AUTO ON OFF)
endforeach()

if(SPILLWAY_SAN AND SPILLWAY_TSAN)
    message(FATAL_ERROR "SPILLWAY_SAN and SPILLWAY_TSAN exclude each other: use two build folders")
endif()
if(SPILLWAY_FUZZ AND NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "SPILLWAY_FUZZ needs clang (-DCMAKE_C_COMPILER=clang), which has libFuzzer")
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING
        "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()
