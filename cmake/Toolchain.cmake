set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # without NDEBUG: internal assertions stay on

# Rooms that parse, print and decide: few loops of theirs are worth the fifth of a build that -O2 takes over -O1. Those
# that are, come after SLOW_LOOPS.
function(compiled_fast target)
  cmake_parse_arguments(ARG "" "" "SLOW_LOOPS" ${ARGN})
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O1)
    set_source_files_properties(${ARG_SLOW_LOOPS} PROPERTIES COMPILE_OPTIONS -O2)
  endif()
endfunction()

# Tests, and the command line: three of the largest tests take 53 s of processor time at -O0 and 74 s at -O1, the largest source of
# the command line 33 s and 49 s; what they run is the library, and that is optimised.
function(compiled_fastest)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -O0)
    endforeach()
  endif()
endfunction()

# GCC 12 leaves empty cold parts of functions (of a destructor, of a sort). LLD lists them at the address of the cold part
# that follows, and an exception that unwinds through that one then ends the program.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-reorder-blocks-and-partition>)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Linked PRIVATE by every room: warnings are errors, and what all rooms need to include.
# -ffp-contract=off: a result must not depend on whether the compiler fused a multiply with an add; where it matters
# for speed, Highway's MulAdd says so.
add_library(kv_warnings INTERFACE)
target_compile_options(kv_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                       -Werror -ffp-contract=off)
target_include_directories(kv_warnings INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)

# With CMAKE_UNITY_BUILD (presets release, asan, cuda) several sources of a room are compiled as one, which halves a clean
# build: headers are most of a file's cost. Sources that Highway compiles once per SIMD target stay alone.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
function(compiled_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

if(KVSCALE_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
endif()
add_link_options(-fuse-ld=lld)

# One precompiled header for all tests: gtest is most of a test's compile time.
# With ccache it needs CCACHE_SLOPPINESS=pch_defines,time_macros (scripts/common.sh sets it) and -fpch-preprocess.
if(KVSCALE_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  file(WRITE ${CMAKE_BINARY_DIR}/pch_main.cc "#include <gtest/gtest.h>\n")
  add_library(kv_test_pch OBJECT ${CMAKE_BINARY_DIR}/pch_main.cc)
  target_link_libraries(kv_test_pch PRIVATE kv_warnings GTest::gtest)
  target_compile_definitions(kv_test_pch PRIVATE KV_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_options(kv_test_pch PRIVATE -fpch-preprocess)
  compiled_fastest(kv_test_pch)
  target_precompile_headers(kv_test_pch PRIVATE <gtest/gtest.h> <algorithm> <cmath> <cstdint> <filesystem> <fstream>
                            <functional> <map> <memory> <optional> <random> <span> <sstream> <string> <vector>)
endif()

# kv_test(NAME SOURCES... LINK rooms...): one test program of a room, its cases listed in CTest by name.
function(kv_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} kv_warnings GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE KV_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE -fpch-preprocess)
  compiled_fastest(${name})
  target_precompile_headers(${name} REUSE_FROM kv_test_pch)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 1200)
endfunction()
