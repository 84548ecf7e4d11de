# garam_room(NAME SOURCES … [LINK …]): the static library garam_NAME of one folder of src/garam.
# LINK names the rooms and packages that it uses; `./dev lint` holds the includes against the table
# of rooms.
set(reading_rooms core io text data models serve train app)
function(garam_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINK" ${ARGN})
  add_library(garam_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(garam_${name} PUBLIC "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(garam_${name} PUBLIC ${ROOM_LINK})
  if(GARAM_FUZZ AND name IN_LIST reading_rooms)
    # g++ calls __sanitizer_cov_trace_pc (tests/fuzz/coverage.cpp) in each basic block.
    target_compile_options(garam_${name} PRIVATE -fsanitize-coverage=trace-pc)
    target_compile_definitions(garam_${name} PRIVATE _GLIBCXX_ASSERTIONS)
    target_link_libraries(garam_${name} INTERFACE garam_fuzz_coverage)
  endif()
endfunction()

# garam_tests(NAME SOURCES … [LINK …]): the test binary of one room, run case by case by CTest with
# the label `fast`. Cases whose suite name begins with Slow get the label `slow` (in parameterised
# suites the name follows the instantiation's prefix). A case that calls GTEST_SKIP counts as
# skipped, not as passed. Cases are listed when CTest starts, since golden suites are generated from
# the folders under GARAM_TEST_DATA.
function(garam_tests name)
  cmake_parse_arguments(TESTS "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name}_tests ${TESTS_SOURCES})
  set_target_properties(${name}_tests PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  target_include_directories(${name}_tests PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name}_tests PRIVATE ${TESTS_LINK} garam_testing GTest::gtest_main)
  gtest_discover_tests(${name}_tests TEST_PREFIX "${name}/" DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
    TEST_FILTER "-Slow*:*/Slow*" PROPERTIES LABELS fast TIMEOUT 300)
  gtest_discover_tests(${name}_tests TEST_PREFIX "${name}/" DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
    TEST_FILTER "Slow*:*/Slow*" PROPERTIES LABELS slow TIMEOUT 3600)
endfunction()
