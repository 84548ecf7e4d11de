# garam_room(NAME SOURCES … [LINK …]): the static library garam_NAME of one folder of src/garam.
# LINK names the rooms and packages that it uses; `./dev lint` holds the includes against the table
# in docs/architecture.md.
function(garam_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINK" ${ARGN})
  add_library(garam_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(garam_${name} PUBLIC "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(garam_${name} PUBLIC ${ROOM_LINK})
endfunction()

# garam_tests(NAME SOURCES … [LINK …]): the test binary of one room, run case by case by CTest with
# the label `fast`. Cases whose suite name begins with Slow get the label `slow`.
function(garam_tests name)
  cmake_parse_arguments(TESTS "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name}_tests ${TESTS_SOURCES})
  target_include_directories(${name}_tests PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${name}_tests PRIVATE ${TESTS_LINK} garam_testing GTest::gtest_main)
  gtest_discover_tests(${name}_tests TEST_PREFIX "${name}/" TEST_FILTER "-Slow*" DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS fast ENVIRONMENT "OMP_WAIT_POLICY=passive")
  gtest_discover_tests(${name}_tests TEST_PREFIX "${name}/" TEST_FILTER "Slow*" DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS slow ENVIRONMENT "OMP_WAIT_POLICY=passive")
endfunction()
