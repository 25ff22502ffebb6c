# SPDX-License-Identifier: Apache-2.0
# Tests: every <x>_test.c is one program and one ctest entry, found by its place.

add_library(sw_test_support STATIC "${PROJECT_SOURCE_DIR}/tests/support/runner.c"
    "${PROJECT_SOURCE_DIR}/tests/support/fixtures.c" "${PROJECT_SOURCE_DIR}/tests/support/chats.c"
    "${PROJECT_SOURCE_DIR}/tests/support/variants.c" "${PROJECT_SOURCE_DIR}/tests/support/pictures.c"
    "${PROJECT_SOURCE_DIR}/tests/support/files.c" "${PROJECT_SOURCE_DIR}/tests/support/scratch.c"
    "${PROJECT_SOURCE_DIR}/tests/support/processes.c")
target_include_directories(sw_test_support PUBLIC "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(sw_test_support PUBLIC sw_compile sw_ext_CMOCKA sw_base)

# The main of every test program. As an object, so that no library's main comes before it.
add_library(sw_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/support/main.c")
target_link_libraries(sw_test_main PRIVATE sw_test_support)

set(test_environment "SPILLWAY_BUILD_DIR=${PROJECT_BINARY_DIR};SPILLWAY_MODULES=${PROJECT_BINARY_DIR};SPILLWAY_SHARE=${PROJECT_SOURCE_DIR}/share;UBSAN_OPTIONS=print_stacktrace=1")

# sw_test(<label> <source> [LINK <targets>]): ctest name <label>/<x>, target <label>_<x>_test.
# The program runs in the source root; exit 77 means skipped. A comment `// LABEL slow` near the top
# of the source gives the ctest label (ctest -LE slow is the quick run), `// TIMEOUT 600` the limit, `// COST 40` about
# how many seconds it takes: where several run at once, the longest begin first.
# `// SLOW NAME=VALUE` adds <label>/<x>_slow, labelled so, with that variable and no limit to speak of.
function(sw_test label source)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "LINK")
    get_filename_component(stem "${source}" NAME_WE)
    string(REGEX REPLACE "_test$" "" stem "${stem}")
    set(target ${label}_${stem}_test)

    file(STRINGS "${source}" head LIMIT_INPUT 2000)
    set(labels ${label})
    set(timeout 600) # against what hangs; a loaded machine takes many times what is usual
    foreach(line IN LISTS head)
        if(line MATCHES "^// LABEL ([a-z]+)")
            list(APPEND labels ${CMAKE_MATCH_1})
        elseif(line MATCHES "^// TIMEOUT ([0-9]+)")
            set(timeout ${CMAKE_MATCH_1})
        elseif(line MATCHES "^// COST ([0-9]+)")
            set(cost ${CMAKE_MATCH_1})
        elseif(line MATCHES "^// SLOW ([A-Z_]+=[^ ]+)")
            set(slow ${CMAKE_MATCH_1})
        endif()
    endforeach()
    sw_leaves_out(${label}/${stem} left_out)
    if(left_out OR (SPILLWAY_WITHOUT_TESTS AND "slow" IN_LIST labels))
        return()
    endif()

    add_executable(${target} "${source}" $<TARGET_OBJECTS:sw_test_main>)
    set_target_properties(${target} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
    target_link_libraries(${target} PRIVATE ${arg_LINK} sw_test_support sw_compile)
    add_test(NAME ${label}/${stem} COMMAND ${target}
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(${label}/${stem} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${timeout}
        LABELS "${labels}"
        ENVIRONMENT "${test_environment}")
    if(DEFINED cost)
        set_tests_properties(${label}/${stem} PROPERTIES COST ${cost})
    endif()
    if(DEFINED slow)
        add_test(NAME ${label}/${stem}_slow COMMAND ${target}
            WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
        set_tests_properties(${label}/${stem}_slow PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 36000
            LABELS "${label};slow"
            ENVIRONMENT "${test_environment};${slow}")
    endif()
    if(SPILLWAY_SAN OR SPILLWAY_TSAN)
        math(EXPR timeout "${timeout} * 5")
        set_tests_properties(${label}/${stem} PROPERTIES TIMEOUT ${timeout})
    endif()
    add_dependencies(${label}_tests ${target})
endfunction()

add_custom_target(support_tests)
sw_test(support "${PROJECT_SOURCE_DIR}/tests/support/runner_test.c")

# src/<room>/tests/*_test.c, linked to the room and those below; other .c files there are helpers
# shared by all of the room's tests.
function(sw_room_tests name)
    set(root "${PROJECT_SOURCE_DIR}/src/${name}/tests")
    file(GLOB sources CONFIGURE_DEPENDS "${root}/*.c")
    set(helpers ${sources})
    list(FILTER sources INCLUDE REGEX "_test\\.c$")
    list(FILTER helpers EXCLUDE REGEX "_test\\.c$")
    add_custom_target(${name}_tests)
    set(link sw_${name})
    if(helpers)
        add_library(sw_${name}_test_helpers STATIC ${helpers})
        target_link_libraries(sw_${name}_test_helpers PUBLIC sw_${name} sw_test_support)
        list(PREPEND link sw_${name}_test_helpers)
    endif()
    foreach(source IN LISTS sources)
        sw_test(${name} "${source}" LINK ${link})
    endforeach()
endfunction()

# Recorded cases on emulated GPUs, for the slow label: a test for each family and each device, so that processors share
# them, each has an end, and one runs again alone. A family is a folder of the fixtures, or one case of it; cases that no
# family has are those of "others", so that none is lost. What lies where and which rank has it is nothing to warps and
# the order of threads: of DeepSpeed's runs two go through them all, the rest is for one device, as are hundreds of steps
# of one model.
function(sw_emulation_tests)
    if(NOT TARGET check_emu_test OR SPILLWAY_WITHOUT_TESTS OR NOT SPILLWAY_GPU_EMULATION)
        return()
    endif()
    set(one_device zero/nvme zero/offload_cpu zero train)
    set(families ${one_device} zero/w2_acc4_bf16 zero/w2_acc4_fp32 own gpt2 llama mistral qwen2 qwen3 gemma2 gemma3_text opt
        gpt_neox phi phi3 bloom smollm3 olmo2 granite stablelm starcoder2 bert roberta xlm-roberta distilbert deberta-v2
        electra albert mpnet modernbert mixtral qwen3_moe gpt_oss deepseek_v3 t5 mt5 bart mbart deit dinov2 lora packing optimizers vision rnn others)
    list(JOIN families "," all)
    set(timeout 7200)
    if(SPILLWAY_SAN)
        set(timeout 36000)
    endif()
    # Runs of several ranks by the stand-in for NCCL, whose sums have another order.
    foreach(comm IN ITEMS library library_sums)
        foreach(family IN ITEMS zero zero/w2_acc4_bf16 zero/w2_acc4_fp32)
            set(name check/emu_slow/${family}/${comm})
            add_test(NAME ${name} COMMAND check_emu_test WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
            set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${timeout} LABELS "check;slow"
                ENVIRONMENT "${test_environment};SPILLWAY_EMU_FAMILY=${family};SPILLWAY_EMU_DEVICE=emu;SPILLWAY_EMU_COMM=${comm};SPILLWAY_EMU_FAMILIES=${all}")
        endforeach()
    endforeach()
    foreach(device IN ITEMS emu emu:64 emu:reversed)
        foreach(family IN LISTS families)
            if(family IN_LIST one_device AND NOT device STREQUAL "emu")
                continue()
            endif()
            set(name check/emu_slow/${family}/${device})
            add_test(NAME ${name} COMMAND check_emu_test WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
            set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${timeout} LABELS "check;slow"
                ENVIRONMENT "${test_environment};SPILLWAY_EMU_FAMILY=${family};SPILLWAY_EMU_DEVICE=${device};SPILLWAY_EMU_FAMILIES=${all}")
        endforeach()
    endforeach()
endfunction()

# Architecture tests: what the sources and the libraries look like, not what they do.
function(sw_architecture_tests)
    set(checks "${PROJECT_SOURCE_DIR}/tests/checks")
    foreach(check IN ITEMS layers sources ops sizes names planner prose checks_test)
        add_test(NAME architecture/${check} COMMAND sh "${checks}/${check}.sh")
    endforeach()
    # Formatting depends on the version of a tool, so it is a check of its own: ctest -L format.
    add_test(NAME architecture/format COMMAND sh "${checks}/format.sh")
    add_test(NAME architecture/reference COMMAND sh "${checks}/reference.sh")
    # Update rules whose row is incomplete do not compile.
    add_test(NAME architecture/rules COMMAND sh "${checks}/rules.sh" "${CMAKE_C_COMPILER}")
    # Compiles all kernels for all GPUs, unless the build did.
    add_test(NAME architecture/gpu_registers COMMAND sh "${checks}/gpu_registers.sh"
        "${CMAKE_COMMAND}" "${PROJECT_BINARY_DIR}" "${hip_archs}")
    set_tests_properties(architecture/gpu_registers PROPERTIES LABELS "architecture;slow"
        SKIP_RETURN_CODE 77 TIMEOUT 36000)
    # As a user builds for a GPU, whatever this build does.
    add_test(NAME architecture/gpu_build COMMAND sh "${checks}/gpu_build.sh" "${CMAKE_COMMAND}" "${PROJECT_SOURCE_DIR}"
        "${CMAKE_C_COMPILER}")
    set_tests_properties(architecture/gpu_build PROPERTIES LABELS architecture SKIP_RETURN_CODE 77 TIMEOUT 600)
    add_test(NAME architecture/nccl COMMAND sh "${checks}/nccl.sh")
    set_tests_properties(architecture/nccl PROPERTIES LABELS architecture SKIP_RETURN_CODE 77)
    # Sanitizers add names and data of their own.
    if(TARGET spillway AND NOT SPILLWAY_SAN AND NOT SPILLWAY_TSAN)
        add_test(NAME architecture/symbols COMMAND sh "${checks}/symbols.sh"
            $<TARGET_FILE:spillway> $<TARGET_FILE:spillway_static>)
        add_test(NAME architecture/abi COMMAND sh "${checks}/abi.sh" "${CMAKE_C_COMPILER}" $<TARGET_FILE:spillway>)
        file(GLOB examples "${PROJECT_SOURCE_DIR}/examples/*.c")
        add_test(NAME architecture/install COMMAND sh "${checks}/install.sh" "${CMAKE_COMMAND}"
            "${CMAKE_GENERATOR}" "${PROJECT_BINARY_DIR}" "${CMAKE_C_COMPILER}" ${examples})
        set_tests_properties(architecture/symbols architecture/abi architecture/install PROPERTIES
            LABELS architecture SKIP_RETURN_CODE 77)
    endif()
    set_tests_properties(architecture/layers architecture/sources architecture/ops architecture/sizes architecture/names architecture/planner
        architecture/checks_test architecture/rules PROPERTIES LABELS architecture)
    set_tests_properties(architecture/format PROPERTIES LABELS "architecture;format"
        SKIP_RETURN_CODE 77 COST 10)
    set_tests_properties(architecture/reference PROPERTIES LABELS architecture SKIP_RETURN_CODE 77)

    find_program(SPILLWAY_CLANG_FORMAT NAMES clang-format-14 clang-format)
    mark_as_advanced(SPILLWAY_CLANG_FORMAT)
    if(SPILLWAY_CLANG_FORMAT)
        add_custom_target(format
            COMMAND find src include examples bench fuzz tests ( -name "*.[ch]" -o -name "*.cc" ) -exec
                "${SPILLWAY_CLANG_FORMAT}" -i {} +
            WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" VERBATIM)
    endif()
endfunction()

# The package in python/, on the shared library: skipped without Python, numpy and pytest. A sanitizer wants to be
# loaded before Python is: with one, engines are opened and closed and nothing else.
function(sw_python_tests)
    if(NOT TARGET spillway OR NOT TARGET spillway_program OR SPILLWAY_TSAN)
        return()
    elseif(SPILLWAY_SAN)
        add_test(NAME python/leaks_slow COMMAND sh "${PROJECT_SOURCE_DIR}/python/tests/leaks.sh"
            $<TARGET_FILE:spillway> "${CMAKE_C_COMPILER}")
        set_tests_properties(python/leaks_slow PROPERTIES LABELS "python;slow" SKIP_RETURN_CODE 77 TIMEOUT 36000)
        return()
    endif()
    set(run sh "${PROJECT_SOURCE_DIR}/python/tests/run.sh" $<TARGET_FILE:spillway> $<TARGET_FILE:spillway_program>)
    add_test(NAME python/package COMMAND ${run})
    add_test(NAME python/package_slow COMMAND ${run} -k leaves_nothing)
    set_tests_properties(python/package PROPERTIES LABELS python TIMEOUT 600 COST 10)
    set_tests_properties(python/package_slow PROPERTIES LABELS "python;slow" TIMEOUT 3600
        ENVIRONMENT "SPILLWAY_OPENS=1000")
    set_tests_properties(python/package python/package_slow PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# The commands that the pages show. Sanitizers and a minimal build have the same pages.
function(sw_docs_tests)
    if(NOT TARGET spillway_program OR SPILLWAY_SAN OR SPILLWAY_TSAN OR SPILLWAY_MINIMAL)
        return()
    endif()
    set(docs "${PROJECT_SOURCE_DIR}/tests/docs")
    add_test(NAME docs/commands COMMAND bash "${docs}/commands.sh" "${PROJECT_BINARY_DIR}" quick)
    add_test(NAME docs/commands_slow COMMAND bash "${docs}/commands.sh" "${PROJECT_BINARY_DIR}" slow)
    add_test(NAME docs/commands_test COMMAND bash "${docs}/commands_test.sh" "${PROJECT_BINARY_DIR}")
    set_tests_properties(docs/commands docs/commands_test docs/commands_slow PROPERTIES LABELS docs
        SKIP_RETURN_CODE 77 TIMEOUT 600 ENVIRONMENT "SPILLWAY_MODULES=${PROJECT_BINARY_DIR}")
    set_tests_properties(docs/commands PROPERTIES COST 15)
    set_tests_properties(docs/commands_slow PROPERTIES LABELS "docs;slow")
endfunction()

# What is given to users: the tarball (quick), each way to install in a bare system of its own, and what a user does on a
# fresh machine (slow; as root).
function(sw_package_tests)
    set(packaging "${PROJECT_SOURCE_DIR}/packaging")
    add_test(NAME packages/tarball COMMAND sh "${PROJECT_SOURCE_DIR}/tests/tarball.sh" "${packaging}/tarball.sh")
    set_tests_properties(packages/tarball PROPERTIES LABELS packages SKIP_RETURN_CODE 77 TIMEOUT 600)
    foreach(way IN ITEMS deb wheel tarball container)
        add_test(NAME packages/${way}_slow COMMAND "${packaging}/chroots.sh" ${way})
        set_tests_properties(packages/${way}_slow PROPERTIES LABELS "packages;slow" SKIP_RETURN_CODE 77 TIMEOUT 36000
            RESOURCE_LOCK bare_system ENVIRONMENT "SPILLWAY_BUILT=${PROJECT_BINARY_DIR}/packages")
    endforeach()
    add_test(NAME project/clean_machine_slow COMMAND "${PROJECT_SOURCE_DIR}/tests/clean_machine.sh")
    set_tests_properties(project/clean_machine_slow PROPERTIES LABELS "project;slow" SKIP_RETURN_CODE 77 TIMEOUT 36000
        RESOURCE_LOCK bare_system ENVIRONMENT "SPILLWAY_BUILT=${PROJECT_BINARY_DIR}/packages")
endfunction()

# tests/*_test.c: journeys through several rooms, linked to everything but the program.
function(sw_project_tests)
    add_custom_target(project_tests)
    foreach(mpi IN LISTS SPILLWAY_MPI_MODULES)
        add_dependencies(project_tests spillway_${mpi}_module)
    endforeach()
    file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*_test.c")
    foreach(source IN LISTS sources)
        sw_test(project "${source}" LINK sw_cli)
        if(TARGET spillway_program)
            add_dependencies(project_tests spillway_program)
        endif()
    endforeach()
    if(TARGET spillway_program)
        add_test(NAME project/manual COMMAND sh "${PROJECT_SOURCE_DIR}/tests/manual.sh" $<TARGET_FILE:spillway_program>)
        set_tests_properties(project/manual PROPERTIES LABELS project TIMEOUT 600)
        if(SPILLWAY_GPU_EMULATION)
            add_test(NAME project/mutations_slow COMMAND "${PROJECT_SOURCE_DIR}/tests/mutations.sh" "${PROJECT_BINARY_DIR}")
            set_tests_properties(project/mutations_slow PROPERTIES LABELS "project;slow" SKIP_RETURN_CODE 77 TIMEOUT 36000)
        endif()
        add_test(NAME project/launchers_slow COMMAND "${PROJECT_SOURCE_DIR}/tests/peers/launchers.sh" "${PROJECT_BINARY_DIR}")
        set_tests_properties(project/launchers_slow PROPERTIES LABELS "project;slow" SKIP_RETURN_CODE 77 TIMEOUT 600
            ENVIRONMENT "SPILLWAY_MODULES=${PROJECT_BINARY_DIR}")
    endif()
endfunction()
