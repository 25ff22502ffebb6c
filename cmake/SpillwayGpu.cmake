# SPDX-License-Identifier: Apache-2.0
# Modules of GPUs: the same kernels compiled by nvcc, by hipcc or clang, and by the host's C++ compiler for
# the emulations. Each is one library beside the program that is opened at run time.

set(gpu_root "${PROJECT_SOURCE_DIR}/src/device/gpu/module")
file(GLOB gpu_kernels CONFIGURE_DEPENDS "${gpu_root}/kernels_*.cc")
file(GLOB gpu_headers CONFIGURE_DEPENDS "${gpu_root}/*.h")
set(SPILLWAY_GPU_MODULES "")

# What the kernels' sources are, for the name of the kernel set: whoever changes a kernel changes it.
set(digest "")
foreach(file IN LISTS gpu_kernels gpu_headers)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(SHA256 "${file}" one)
    string(APPEND digest "${one}")
endforeach()
string(SHA256 digest "${digest}")
string(SUBSTRING "${digest}" 0 12 SPILLWAY_GPU_DIGEST)

if(SPILLWAY_GPU_EMULATION)
    foreach(warp IN ITEMS 32 64)
        set(target spillway_emu${warp}_module)
        add_library(${target} MODULE ${gpu_kernels} "${gpu_root}/emu.cc" "${gpu_root}/emu_module.cc")
        set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME spillway_emu${warp}
            LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}" CXX_VISIBILITY_PRESET hidden)
        target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
        target_compile_definitions(${target} PRIVATE SW_WARP=${warp}
            SW_GPU_DIGEST="${SPILLWAY_GPU_DIGEST}")
        target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wpointer-arith -fno-exceptions
            -fno-rtti -ffp-contract=off -fno-math-errno -Wno-missing-field-initializers
            "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=" ${san_flags}
            $<$<BOOL:${SPILLWAY_WERROR}>:-Werror>)
        target_link_options(${target} PRIVATE ${san_flags} -nodefaultlibs)
        target_link_libraries(${target} PRIVATE Threads::Threads m c gcc_s)
        list(APPEND SPILLWAY_GPU_MODULES ${target})
        if(BUILD_TESTING)
            add_dependencies(device_tests ${target})
            add_dependencies(engine_tests ${target})
        endif()
    endforeach()
    # Stand-ins for the vendors' libraries of products, which check what those are given.
    set(standin_root "${PROJECT_SOURCE_DIR}/src/device/gpu/standin")
    foreach(library IN ITEMS cublaslt rocblas)
        set(target spillway_emu_${library}_module)
        add_library(${target} MODULE "${standin_root}/${library}.c" "${standin_root}/product.c")
        set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME spillway_emu_${library}
            LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}" C_VISIBILITY_PRESET hidden)
        target_link_libraries(${target} PRIVATE sw_compile sw_tensor)
        # They carry the emulated trainings: as fast as plain C is. The prototypes of their functions are
        # members of a struct (lt.h, rocblas.h).
        set_source_files_properties("${standin_root}/${library}.c" "${standin_root}/product.c"
            PROPERTIES COMPILE_OPTIONS "-O3;-Wno-missing-prototypes")
        add_dependencies(spillway_emu32_module ${target})
        add_dependencies(spillway_emu64_module ${target})
        list(APPEND SPILLWAY_GPU_MODULES ${target})
    endforeach()
endif()
