# What `cmake --install` lays out: bin/garam, lib/ with the shared libraries that it needs beyond the
# C and C++ run time, share/doc/garam, share/garam/examples. The program finds its libraries beside
# itself, so the folder may be moved, also to a machine without these packages.
if(NOT TARGET garam)
  return()
endif()

set_target_properties(garam PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
# RPATH rather than RUNPATH: it also serves the libraries that our libraries need.
target_link_options(garam PRIVATE LINKER:--disable-new-dtags)

install(TARGETS garam garam_arrow RUNTIME_DEPENDENCY_SET garam_libraries
  RUNTIME DESTINATION bin LIBRARY DESTINATION lib)
install(RUNTIME_DEPENDENCY_SET garam_libraries
  # The run time of the system, and libraries that belong to the driver.
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s|cuda|nvidia-.*)\\.so"
  DESTINATION lib)
install(FILES README.md LICENSE DESTINATION share/doc/garam)
install(DIRECTORY docs/ DESTINATION share/doc/garam FILES_MATCHING PATTERN "*.md")
install(DIRECTORY examples/ DESTINATION share/garam/examples)
