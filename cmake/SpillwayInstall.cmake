# SPDX-License-Identifier: Apache-2.0
# cmake --install: program, manual, completion, docs, libraries, public headers, pkg-config file, CMake package.

if(NOT TARGET spillway)
    return()
endif()
include(CMakePackageConfigHelpers)

# Which folders the installation makes, for the target uninstall: the others are somebody else's, empty or not.
install(CODE "set(ours ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_LIBDIR}/spillway ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        ${CMAKE_INSTALL_LIBDIR}/cmake/spillway ${CMAKE_INSTALL_INCLUDEDIR}/spillway ${CMAKE_INSTALL_MANDIR}/man1
        ${CMAKE_INSTALL_DATADIR}/bash-completion/completions ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
        ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
        ${CMAKE_INSTALL_DATADIR}/spillway/clusters ${CMAKE_INSTALL_DATADIR}/doc/spillway/docs ${CMAKE_INSTALL_DATADIR}/doc/spillway/examples)
    set(record \"${PROJECT_BINARY_DIR}/install_folders.txt\")")
install(CODE [[
    foreach(folder IN LISTS ours)
        cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" NORMALIZE)
        while(NOT EXISTS "$ENV{DESTDIR}${folder}")
            file(APPEND "${record}" "${folder}\n")
            cmake_path(GET folder PARENT_PATH folder)
        endwhile()
    endforeach()]])

install(TARGETS spillway EXPORT spillwayTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS spillway_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET spillway_program)
    install(TARGETS spillway_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(SPILLWAY_MANUAL)
    install(DIRECTORY "${SPILLWAY_MANUAL}/man1" DESTINATION ${CMAKE_INSTALL_MANDIR})
    install(FILES "${SPILLWAY_MANUAL}/bash/spillway"
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES "${SPILLWAY_MANUAL}/zsh/_spillway" DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES "${SPILLWAY_MANUAL}/fish/spillway.fish"
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
# As in the source tree, so that links between them hold, and beside the program, which says where they are.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" "${PROJECT_SOURCE_DIR}/examples"
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/spillway PATTERN "__pycache__" EXCLUDE)
install(FILES "${PROJECT_SOURCE_DIR}/README.md" DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/spillway)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/share/clusters" DESTINATION ${CMAKE_INSTALL_DATADIR}/spillway)
install(FILES "${PROJECT_SOURCE_DIR}/share/published.json" "${PROJECT_SOURCE_DIR}/share/onnx_verify.py"
    DESTINATION ${CMAKE_INSTALL_DATADIR}/spillway)
foreach(mpi IN LISTS SPILLWAY_MPI_MODULES)
    install(PROGRAMS "${PROJECT_BINARY_DIR}/spillway_${mpi}.so"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/spillway)
endforeach()
foreach(module IN LISTS SPILLWAY_GPU_MODULES)
    if(SPILLWAY_GPU_BY_NAME)
        install(PROGRAMS "${module}" DESTINATION ${CMAKE_INSTALL_LIBDIR}/spillway OPTIONAL)
    else()
        install(PROGRAMS "${module}" DESTINATION ${CMAKE_INSTALL_LIBDIR}/spillway)
    endif()
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/spillway"
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# Relative to the place of spillway.pc, so that an installed tree may be moved.
set(pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
string(REGEX REPLACE "[^/]+" ".." pc_up "${pc_dir}")
get_property(pc_private GLOBAL PROPERTY SPILLWAY_PRIVATE_LIBS)
list(REMOVE_ITEM pc_private -lcmocka)
list(JOIN pc_private " " pc_private)
configure_file("${PROJECT_SOURCE_DIR}/cmake/spillway.pc.in" "${PROJECT_BINARY_DIR}/spillway.pc"
    @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/spillway.pc" DESTINATION ${pc_dir})

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/spillway")
install(EXPORT spillwayTargets NAMESPACE spillway:: DESTINATION ${package_dir}
    FILE spillwayTargets.cmake)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/spillwayConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/spillwayConfig.cmake" INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/spillwayConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/spillwayConfig.cmake"
    "${PROJECT_BINARY_DIR}/spillwayConfigVersion.cmake" DESTINATION ${package_dir})

add_custom_target(uninstall
    COMMAND "${CMAKE_COMMAND}" -D "BUILD=${PROJECT_BINARY_DIR}" -P "${PROJECT_SOURCE_DIR}/cmake/SpillwayUninstall.cmake" VERBATIM)
