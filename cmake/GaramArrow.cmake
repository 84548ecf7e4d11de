# Arrow C++ of the pyarrow wheel: the imported targets garam_arrow_library and garam_parquet_library.
# `./dev setup` installs it into .venv; GARAM_PYARROW names another folder of it.
#
# A wheel has no ArrowConfig.cmake, and its libraries only the names with a version.
set(arrow_so_version 2600)
if(NOT GARAM_PYARROW)
  file(GLOB found "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/pyarrow")
  list(POP_FRONT found GARAM_PYARROW)
endif()
foreach(part include/arrow/api.h libarrow.so.${arrow_so_version} libparquet.so.${arrow_so_version})
  if(NOT EXISTS "${GARAM_PYARROW}/${part}")
    message(FATAL_ERROR "Arrow C++ is not here (no ${part} in '${GARAM_PYARROW}'): run ./dev setup, or "
      "name the folder of a Python package pyarrow 26 with -DGARAM_PYARROW=…/site-packages/pyarrow.")
  endif()
endforeach()

foreach(part arrow parquet)
  add_library(garam_${part}_library SHARED IMPORTED)
  set_target_properties(garam_${part}_library PROPERTIES
    IMPORTED_LOCATION "${GARAM_PYARROW}/lib${part}.so.${arrow_so_version}"
    INTERFACE_INCLUDE_DIRECTORIES "${GARAM_PYARROW}/include")
endforeach()
target_link_libraries(garam_parquet_library INTERFACE garam_arrow_library)
