# SPDX-License-Identifier: Apache-2.0
# Modules of GPUs: the same kernels compiled by nvcc, by hipcc or clang, and by the host's C++ compiler for
# the emulations. Each is one library beside the program that is opened at run time.

set(gpu_root "${PROJECT_SOURCE_DIR}/src/device/gpu/module")
file(GLOB gpu_kernels CONFIGURE_DEPENDS "${gpu_root}/kernels_*.cc")
file(GLOB gpu_headers CONFIGURE_DEPENDS "${gpu_root}/*.h")
set(SPILLWAY_GPU_MODULES "") # that are installed
set(hip_archs "")

# What the kernels' sources are, and those of who chooses among kernels, grids and pieces, for the name of the
# kernel set: whoever changes one of them changes it.
file(GLOB gpu_host CONFIGURE_DEPENDS "${gpu_root}/../op_*.c" "${gpu_root}/../blas*" "${gpu_root}/../lt.h")
set(digest "")
foreach(file IN LISTS gpu_kernels gpu_headers gpu_host)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(SHA256 "${file}" one)
    string(APPEND digest "${one}")
endforeach()
string(SHA256 digest "${digest}")
string(SUBSTRING "${digest}" 0 12 SPILLWAY_GPU_DIGEST)

if(SPILLWAY_GPU_EMULATION)
    # Compiled often and run on little: lightly optimised, and with those checks of the sanitizers that find what a
    # GPU would not forgive.
    set(emu_flags -O1 ${san_flags})
    if(SPILLWAY_SAN)
        list(APPEND emu_flags -fno-sanitize=undefined -fsanitize=alignment,shift,integer-divide-by-zero)
    endif()
    foreach(warp IN LISTS SPILLWAY_EMU_WARPS)
        set(target spillway_emu${warp}_module)
        add_library(${target} MODULE ${gpu_kernels} "${gpu_root}/emu.cc"
            "${gpu_root}/emu_graph.cc" "${gpu_root}/emu_module.cc")
        set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME spillway_emu${warp}
            LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}" CXX_VISIBILITY_PRESET hidden)
        target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
        target_compile_definitions(${target} PRIVATE SW_WARP=${warp}
            SW_GPU_DIGEST="${SPILLWAY_GPU_DIGEST}")
        target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wpointer-arith -fno-exceptions
            -fno-rtti -ffp-contract=off -fno-math-errno -Wno-missing-field-initializers
            "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=" ${emu_flags}
            $<$<BOOL:${SPILLWAY_WERROR}>:-Werror>)
        target_link_options(${target} PRIVATE ${san_flags} -nodefaultlibs)
        target_link_libraries(${target} PRIVATE Threads::Threads m c gcc_s)
        if(BUILD_TESTING)
            add_dependencies(device_tests ${target})
            add_dependencies(engine_tests ${target})
            add_dependencies(look_tests ${target})
            add_dependencies(check_tests ${target})
        endif()
    endforeach()
    # Stand-ins for the vendors' libraries of products and of exchanges, which check what those are given.
    set(standin_root "${PROJECT_SOURCE_DIR}/src/device/gpu/standin")
    foreach(library IN ITEMS cublaslt hipblaslt rocblas nccl rccl)
        set(target spillway_emu_${library}_module)
        set(calls "${standin_root}/lt.c" "${standin_root}/product.c")
        if(library STREQUAL "rocblas")
            set(calls "${standin_root}/rocblas.c" "${standin_root}/product.c")
        elseif(library MATCHES "ccl")
            set(calls "${standin_root}/nccl.c")
        endif()
        add_library(${target} MODULE ${calls})
        if(library STREQUAL "hipblaslt" OR library STREQUAL "rccl")
            target_compile_definitions(${target} PRIVATE STANDIN_IS_HIP=1)
        endif()
        set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME spillway_emu_${library}
            LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}" C_VISIBILITY_PRESET hidden)
        target_link_libraries(${target} PRIVATE sw_compile sw_tensor m Threads::Threads)
        # They carry the emulated trainings: as fast as plain C is. The prototypes of their functions are
        # members of a struct (lt.h, rocblas.h, nccl.h).
        set_source_files_properties(${calls}
            PROPERTIES COMPILE_OPTIONS "-O3;-Wno-missing-prototypes")
        foreach(warp IN LISTS SPILLWAY_EMU_WARPS)
            add_dependencies(spillway_emu${warp}_module ${target})
        endforeach()
    endforeach()
endif()

# ---- modules of vendors: one object a file, by custom commands ----

# The first word of a command that compiles, if there is one.
set(gpu_launcher "")
if(SPILLWAY_CCACHE)
    set(gpu_launcher "${SPILLWAY_CCACHE}")
endif()

add_custom_target(gpu_modules)

# Is SPILLWAY_<vendor> on where its compiler is found?
function(sw_gpu_wanted vendor out)
    set(wanted TRUE)
    if(SPILLWAY_${vendor} STREQUAL "OFF")
        set(wanted FALSE)
    elseif(SPILLWAY_${vendor} STREQUAL "AUTO" AND
           (SPILLWAY_MINIMAL OR SPILLWAY_SAN OR SPILLWAY_TSAN OR SPILLWAY_FUZZ))
        set(wanted FALSE)
    endif()
    set(${out} ${wanted} PARENT_SCOPE)
endfunction()

function(sw_gpu_summary vendor found note)
    if(found)
        set_property(GLOBAL APPEND PROPERTY SPILLWAY_SUMMARY "  ✓ ${vendor}: ${note}")
    elseif(SPILLWAY_${vendor} STREQUAL "ON")
        message(FATAL_ERROR "SPILLWAY_${vendor} is ON, but ${note}")
    else()
        set_property(GLOBAL APPEND PROPERTY SPILLWAY_SUMMARY "  ✗ ${vendor}: ${note}")
    endif()
endfunction()

# sw_gpu_objects(<backend> <out> <compiler and options>..): an object for each file of the module. What the
# compiler says, registers and spills too, is kept beside it (tests/checks/gpu_registers.sh).
function(sw_gpu_objects backend out)
    if("${ARGN}" MATCHES "[^ ;]*-NOTFOUND")
        message(FATAL_ERROR "the command that compiles for ${backend} has ${CMAKE_MATCH_0}: a program that was not found")
    endif()
    set(objects "")
    set(folder "${PROJECT_BINARY_DIR}/gpu/${backend}")
    file(MAKE_DIRECTORY "${folder}")
    foreach(source IN LISTS gpu_kernels ITEMS "${gpu_root}/vendor_module.cc")
        get_filename_component(stem "${source}" NAME_WE)
        set(object "${folder}/${stem}.o")
        set(defines "")
        if(stem STREQUAL "vendor_module")
            set(defines "-DSW_GPU_DIGEST=\"${SPILLWAY_GPU_DIGEST}\"")
        endif()
        add_custom_command(OUTPUT "${object}"
            COMMAND sh "${PROJECT_SOURCE_DIR}/cmake/gpu_compile.sh" "${folder}/${stem}.log"
                ${ARGN} ${defines} "-I${PROJECT_SOURCE_DIR}/src" -MD -MF "${object}.d" -c "${source}"
                -o "${object}"
            BYPRODUCTS "${folder}/${stem}.log"
            DEPENDS "${source}" "${PROJECT_SOURCE_DIR}/cmake/gpu_compile.sh"
            DEPFILE "${object}.d" COMMENT "Compiling ${stem} for ${backend}"
            COMMAND_EXPAND_LISTS VERBATIM) # what is not wanted is no argument, not an empty one
        list(APPEND objects "${object}")
    endforeach()
    set(${out} "${objects}" PARENT_SCOPE)
endfunction()

function(sw_gpu_module backend) # OBJECTS .. LINK <command without objects>..
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "OBJECTS;LINK")
    set(output "${PROJECT_BINARY_DIR}/spillway_${backend}.so")
    add_custom_command(OUTPUT "${output}" COMMAND ${arg_LINK} -o "${output}" DEPENDS ${arg_OBJECTS}
        COMMENT "Linking spillway_${backend}.so" COMMAND_EXPAND_LISTS VERBATIM)
    if(SPILLWAY_GPU_BY_NAME)
        add_custom_target(spillway_${backend}_module DEPENDS "${output}")
    else()
        add_custom_target(spillway_${backend}_module ALL DEPENDS "${output}")
    endif()
    add_dependencies(gpu_modules spillway_${backend}_module)
    list(APPEND SPILLWAY_GPU_MODULES "${output}")
    set(SPILLWAY_GPU_MODULES "${SPILLWAY_GPU_MODULES}" PARENT_SCOPE)
endfunction()

list(JOIN SPILLWAY_CUDA_ARCHS " " cuda_archs)
sw_gpu_wanted(CUDA wanted)
find_program(SPILLWAY_NVCC nvcc PATHS /usr/local/cuda/bin ENV CUDA_HOME ENV CUDA_PATH
    PATH_SUFFIXES bin)
mark_as_advanced(SPILLWAY_NVCC)
if(NOT wanted)
    sw_gpu_summary(CUDA FALSE "no NVIDIA GPUs (switched off)")
elseif(NOT SPILLWAY_NVCC)
    sw_gpu_summary(CUDA FALSE "no NVIDIA GPUs: there is no nvcc, of the CUDA toolkit 12 or 13")
else()
    set(gencode "")
    foreach(arch IN LISTS SPILLWAY_CUDA_ARCHS)
        if(arch MATCHES "^sm_([0-9]+)" AND CMAKE_MATCH_1 LESS 80)
            message(FATAL_ERROR "SPILLWAY_CUDA_ARCHS: ${arch}: the kernels use matrix instructions that begin with "
                "sm_80 (docs/gpu.md)")
        endif()
        string(REPLACE "sm_" "compute_" virtual "${arch}")
        list(APPEND gencode -gencode "arch=${virtual},code=${arch}")
    endforeach()
    list(APPEND gencode -gencode "arch=${virtual},code=${virtual}") # for GPUs that come later
    sw_gpu_objects(cuda objects ${gpu_launcher} "${SPILLWAY_NVCC}" -std=c++17 -x cu ${gencode}
        -fmad=false -prec-div=true -prec-sqrt=true -ftz=false -Xptxas -v
        $<$<BOOL:${SPILLWAY_WERROR}>:-Werror=all-warnings> -Xcompiler
        -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-O2,-Wall,-Wextra
        "-DSW_GPU_ARCHS=\"${cuda_archs}\"")
    sw_gpu_module(cuda OBJECTS ${objects} LINK "${SPILLWAY_NVCC}" -shared -cudart static
        -Xlinker --as-needed ${objects})
    sw_gpu_summary(CUDA TRUE "${cuda_archs}, by ${SPILLWAY_NVCC}")
endif()

# hipcc, or a clang that is newer than the one of an old hipcc, with device libraries in the build folder:
# what an old HIP has for gfx940 serves gfx942 too.
function(sw_gpu_hip_try result) # <compiler and options>..
    set(file "${PROJECT_BINARY_DIR}/gpu/try.hip")
    file(WRITE "${file}" "#include <hip/hip_runtime.h>\n__global__ void set(int *p) { *p = 1; }\n")
    execute_process(COMMAND ${ARGN} -x hip -c "${file}" -o "${file}.o" RESULT_VARIABLE failed
        OUTPUT_QUIET ERROR_QUIET)
    if(failed)
        set(${result} FALSE PARENT_SCOPE)
    else()
        set(${result} TRUE PARENT_SCOPE)
    endif()
endfunction()

function(sw_gpu_find_hip)
    set(offload "")
    foreach(arch IN LISTS SPILLWAY_HIP_ARCHS)
        list(APPEND offload "--offload-arch=${arch}")
    endforeach()
    find_program(SPILLWAY_HIPCC hipcc PATHS /opt/rocm/bin)
    find_program(SPILLWAY_HIP_CLANG NAMES clang-20 clang-19 clang-18)
    find_path(SPILLWAY_HIP_BITCODE ocml.bc PATHS /usr/lib/x86_64-linux-gnu/amdgcn/bitcode)
    mark_as_advanced(SPILLWAY_HIPCC SPILLWAY_HIP_CLANG SPILLWAY_HIP_BITCODE)
    if(SPILLWAY_HIPCC)
        sw_gpu_hip_try(works "${SPILLWAY_HIPCC}" ${offload})
        if(works)
            set(SPILLWAY_HIP_COMMAND "${SPILLWAY_HIPCC};${offload}" CACHE INTERNAL "")
            set(SPILLWAY_HIP_HAS "${SPILLWAY_HIP_ARCHS}" CACHE INTERNAL "")
            return()
        endif()
    endif()
    if(SPILLWAY_HIP_CLANG AND SPILLWAY_HIP_BITCODE)
        set(bitcode "${PROJECT_BINARY_DIR}/gpu/bitcode")
        file(COPY "${SPILLWAY_HIP_BITCODE}/" DESTINATION "${bitcode}")
        if(NOT EXISTS "${bitcode}/oclc_isa_version_942.bc" AND
           EXISTS "${bitcode}/oclc_isa_version_940.bc")
            file(COPY_FILE "${bitcode}/oclc_isa_version_940.bc"
                "${bitcode}/oclc_isa_version_942.bc")
        endif()
        set(clang "${SPILLWAY_HIP_CLANG}" ${offload} -D__HIP_PLATFORM_AMD__ --rocm-path=/usr
            "--rocm-device-lib-path=${bitcode}")
        sw_gpu_hip_try(works ${clang})
        if(works)
            set(SPILLWAY_HIP_COMMAND "${clang}" CACHE INTERNAL "")
            set(SPILLWAY_HIP_HAS "${SPILLWAY_HIP_ARCHS}" CACHE INTERNAL "")
            return()
        endif()
    endif()
    set(command "")
    set(has "")
    foreach(arch IN LISTS SPILLWAY_HIP_ARCHS) # those that an old hipcc knows
        if(SPILLWAY_HIPCC)
            sw_gpu_hip_try(works "${SPILLWAY_HIPCC}" "--offload-arch=${arch}")
            if(works)
                list(APPEND has "${arch}")
                list(APPEND command "--offload-arch=${arch}")
            endif()
        endif()
    endforeach()
    if(has)
        list(PREPEND command "${SPILLWAY_HIPCC}")
    endif()
    set(SPILLWAY_HIP_COMMAND "${command}" CACHE INTERNAL "")
    set(SPILLWAY_HIP_HAS "${has}" CACHE INTERNAL "")
endfunction()

sw_gpu_wanted(HIP wanted)
if(NOT wanted)
    sw_gpu_summary(HIP FALSE "no AMD GPUs (switched off)")
else()
    if(NOT "${SPILLWAY_HIP_ARCHS}" STREQUAL "${SPILLWAY_HIP_TRIED}")
        sw_gpu_find_hip()
        set(SPILLWAY_HIP_TRIED "${SPILLWAY_HIP_ARCHS}" CACHE INTERNAL "")
    endif()
    find_library(SPILLWAY_AMDHIP amdhip64 PATHS /opt/rocm/lib)
    mark_as_advanced(SPILLWAY_AMDHIP)
    if(NOT SPILLWAY_HIP_HAS OR NOT SPILLWAY_AMDHIP)
        sw_gpu_summary(HIP FALSE
            "no AMD GPUs: there is no hipcc that works (apt-get install hipcc libamdhip64-dev)")
    else()
        list(JOIN SPILLWAY_HIP_HAS " " hip_archs)
        sw_gpu_objects(hip objects ${gpu_launcher} ${SPILLWAY_HIP_COMMAND} -std=c++17 -x hip -O3
            -ffp-contract=off -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti -Wall -Wextra
            $<$<BOOL:${SPILLWAY_WERROR}>:-Werror> -Rpass-analysis=kernel-resource-usage
            "-DSW_GPU_ARCHS=\"${hip_archs}\"")
        sw_gpu_module(hip OBJECTS ${objects} LINK "${CMAKE_C_COMPILER}" -shared ${objects}
            "${SPILLWAY_AMDHIP}")
        list(GET SPILLWAY_HIP_COMMAND 0 hip_compiler)
        sw_gpu_summary(HIP TRUE "${hip_archs}, by ${hip_compiler}")
    endif()
endif()
