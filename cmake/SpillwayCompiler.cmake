# SPDX-License-Identifier: Apache-2.0
# Language, warnings, sanitizers, instruction sets.
#
# sw_compile carries what every file of ours is compiled with. Contraction of a*b+c into one rounding
# is off everywhere: the bits of a result may depend on the kernel that was chosen, never on what the
# optimizer made of an expression. Kernels that want a fused multiply-add write it.

include(CheckCCompilerFlag)

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set_property(GLOBAL PROPERTY USE_FOLDERS ON)

find_program(SPILLWAY_CCACHE ccache)
mark_as_advanced(SPILLWAY_CCACHE)
if(SPILLWAY_CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER "${SPILLWAY_CCACHE}")
endif()

find_package(Threads REQUIRED)
include(CheckCCompilerFlag)

add_library(sw_compile INTERFACE)
target_compile_definitions(sw_compile INTERFACE _GNU_SOURCE _FILE_OFFSET_BITS=64
    SPILLWAY_VERSION="${PROJECT_VERSION}" SPILLWAY_LIBDIR="${CMAKE_INSTALL_LIBDIR}")
target_compile_options(sw_compile INTERFACE
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith
    -ffp-contract=off -fno-math-errno "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/="
    $<$<BOOL:${SPILLWAY_WERROR}>:-Werror>)
if(NOT SPILLWAY_AVX2)
    target_compile_definitions(sw_compile INTERFACE SPILLWAY_WITHOUT_AVX2)
endif()
if(NOT SPILLWAY_AVX512)
    target_compile_definitions(sw_compile INTERFACE SPILLWAY_WITHOUT_AVX512)
endif()
# Kernels on the tiles of AMX need gcc 11 or clang 12.
set(SPILLWAY_AMX_FLAGS -mamx-tile -mamx-bf16 -mavx512bf16)
string(JOIN " " amx_flags ${SPILLWAY_AMX_FLAGS})
check_c_compiler_flag("${amx_flags}" SPILLWAY_COMPILER_HAS_AMX)
if(NOT SPILLWAY_AVX512 OR NOT SPILLWAY_COMPILER_HAS_AMX)
    target_compile_definitions(sw_compile INTERFACE SPILLWAY_WITHOUT_AMX)
endif()
target_link_libraries(sw_compile INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)

set(san_flags "")
if(SPILLWAY_SAN)
    # Without the check that adding to a pointer does not wrap: what such a pointer reads or writes the address sanitizer
    # finds, and the check takes 40 % of the time to compile.
    set(san_flags -fsanitize=address,undefined -fno-sanitize=pointer-overflow -fno-sanitize-recover=all
        -fno-omit-frame-pointer)
elseif(SPILLWAY_TSAN)
    set(san_flags -fsanitize=thread -fno-omit-frame-pointer)
endif()
# The code that sanitizers add hides from gcc which paths were checked: it then warns of nothing.
if(san_flags AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(sw_compile INTERFACE -Wno-maybe-uninitialized)
endif()
if(SPILLWAY_FUZZ)
    list(APPEND san_flags -fsanitize=fuzzer-no-link)
endif()
target_compile_options(sw_compile INTERFACE ${san_flags})
target_link_options(sw_compile INTERFACE ${san_flags})

# A kernel file is compiled for the instruction set its name ends in; the device room asks the
# processor before it calls into one. Elsewhere than on x86-64 such a file compiles to nothing: its
# body is inside #if defined(__AVX512F__) (or __AVX2__).
function(sw_kernel_flags)
    # Kernels take most of the time of a training: a fifth of a step less than by the default type's -O2. Conversions and
    # sums of slices become vectors. Sums keep their order.
    if(CMAKE_BUILD_TYPE STREQUAL RelWithDebInfo AND NOT SPILLWAY_SAN AND NOT SPILLWAY_TSAN)
        foreach(source IN LISTS ARGN)
            if(source MATCHES "/device/cpu/fast_|/tensor/(convert|slices)[.]c$")
                set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -O3)
            endif()
        endforeach()
    endif()
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
        return()
    endif()
    set(avx2 -mavx2 -mfma -mf16c)
    set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c)
    foreach(source IN LISTS ARGN)
        if(source MATCHES "_avx2\\.c$" AND SPILLWAY_AVX2)
            set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${avx2})
        elseif(source MATCHES "_avx512\\.c$" AND SPILLWAY_AVX512)
            set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${avx512})
        elseif(source MATCHES "_avx512bf16\\.c$" AND SPILLWAY_AVX512)
            set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${avx512} -mavx512bf16)
        elseif(source MATCHES "_amx\\.c$" AND SPILLWAY_AVX512 AND SPILLWAY_COMPILER_HAS_AMX)
            set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${avx512} ${SPILLWAY_AMX_FLAGS})
        endif()
    endforeach()
endfunction()
