# SPDX-License-Identifier: Apache-2.0
# cmake -D MANIFEST=<install_manifest.txt> -P SpillwayUninstall.cmake: removes what `cmake --install` of this build put
# there last, and folders that are empty then.

if(NOT EXISTS "${MANIFEST}")
    message(FATAL_ERROR "${MANIFEST} is not there: nothing was installed from this build")
endif()
file(STRINGS "${MANIFEST}" files)
foreach(file IN LISTS files)
    file(REMOVE "$ENV{DESTDIR}${file}")
    cmake_path(GET file PARENT_PATH folder)
    while(NOT folder STREQUAL "/")
        file(GLOB left "$ENV{DESTDIR}${folder}/*" "$ENV{DESTDIR}${folder}/.[!.]*")
        if(left)
            break()
        endif()
        file(REMOVE_RECURSE "$ENV{DESTDIR}${folder}")
        cmake_path(GET folder PARENT_PATH folder)
    endwhile()
endforeach()
file(REMOVE "${MANIFEST}")
