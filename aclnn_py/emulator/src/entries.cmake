# From the prototypes in cdefs/ops: one public header per operator, and the C entry points of those that the emulator
# computes. An entry point therefore cannot differ from its declaration.

# aclnnMoeFinalizeRoutingV2Grad -> aclnn_moe_finalize_routing_v2_grad
function(aclnn_header_name operator out)
  string(REGEX REPLACE "^aclnn" "" name "${operator}")
  string(REGEX REPLACE "([a-z0-9])([A-Z])" "\\1_\\2" name "${name}")
  string(REGEX REPLACE "([A-Z])([A-Z][a-z])" "\\1_\\2" name "${name}")
  string(TOLOWER "aclnn_${name}" name)
  set(${out} "${name}" PARENT_SCOPE)
endfunction()

# CANN declares variants of an operator in one header: aclnn_inplace_adds -> aclnn_add. Unchanged: it has its own.
function(aclnn_header_family name out)
  string(REGEX REPLACE "^aclnn_inplace_" "aclnn_" name "${name}")
  string(REGEX REPLACE "^aclnn_(add|sub|mul|div)s$" "aclnn_\\1" name "${name}")
  string(REGEX REPLACE "^aclnn_clamp_.*" "aclnn_clamp" name "${name}")
  string(REGEX REPLACE "^aclnn_pow_(tensor_scalar|scalar_tensor)$" "aclnn_pow" name "${name}")
  string(REGEX REPLACE "^aclnn_arg_" "aclnn_arg" name "${name}")
  string(REPLACE "mat_mul" "matmul" name "${name}")
  string(REPLACE "log_softmax" "logsoftmax" name "${name}")
  string(REGEX REPLACE "^aclnn_one$" "aclnn_ones" name "${name}")
  set(${out} "${name}" PARENT_SCOPE)
endfunction()

# One header: the operator's declarations, if any, and the headers of its variants.
function(aclnn_write_header include_dir name declarations variants)
  string(TOUPPER "ACLNN_PY_${name}_H" guard)
  set(includes "")
  foreach(variant IN LISTS variants)
    string(APPEND includes "#include \"${variant}.h\"\n")
  endforeach()
  if(declarations)
    set(declarations "
#ifdef __cplusplus
extern \"C\" {
#endif

${declarations}
#ifdef __cplusplus
}
#endif
")
  endif()
  string(REPLACE "@" ";" declarations "${declarations}")
  file(CONFIGURE OUTPUT "${include_dir}/aclnnop/${name}.h" @ONLY CONTENT
"#ifndef @guard@
#define @guard@

#include \"../aclnn/aclnn_base.h\"
@includes@@declarations@
#endif
")
endfunction()

# Reads the headers, writes into include_dir/aclnnop and entries_file. implemented: operator names without "aclnn".
function(aclnn_generate_entries cdefs include_dir entries_file implemented)
  file(GLOB headers CONFIGURE_DEPENDS "${cdefs}/ops/*.h")
  set(includes "")
  set(bodies "")
  set(found "")
  set(headers_named "")
  foreach(header IN LISTS headers)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
    get_filename_component(file "${header}" NAME)
    file(READ "${header}" text)
    string(REPLACE ";" "@" text "${text}")
    string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" " " text "${text}")
    string(REGEX REPLACE "[ \t\r\n]+" " " text "${text}")
    string(REGEX MATCHALL "aclnnStatus [A-Za-z0-9_]+GetWorkspaceSize\\([^()]*\\)@" prototypes "${text}")
    set(family_used FALSE)
    foreach(prototype IN LISTS prototypes)
      string(REGEX MATCH "^aclnnStatus ([A-Za-z0-9_]+)GetWorkspaceSize\\(([^()]*)\\)@" _ "${prototype}")
      set(operator "${CMAKE_MATCH_1}")
      string(STRIP "${CMAKE_MATCH_2}" parameters)
      set(stage_one "aclnnStatus ${operator}GetWorkspaceSize(${parameters})")
      set(stage_two "aclnnStatus ${operator}(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream)")
      aclnn_header_name("${operator}" name)
      list(APPEND headers_named "${name}")
      set(declared_${name} "${stage_one}@\n${stage_two}@\n")
      aclnn_header_family("${name}" family)
      if(NOT family STREQUAL name)
        list(APPEND headers_named "${family}")
        list(APPEND variants_${family} "${name}")
      endif()
      string(REGEX REPLACE "^aclnn" "" short "${operator}")
      if(NOT short IN_LIST implemented)
        continue()
      endif()
      list(APPEND found "${short}")
      set(family_used TRUE)
      string(REPLACE "," ";" parameter_list "${parameters}")
      set(names "")
      foreach(parameter IN LISTS parameter_list)
        string(REGEX MATCH "([A-Za-z0-9_]+) *$" _ "${parameter}")
        list(APPEND names "${CMAKE_MATCH_1}")
      endforeach()
      list(REMOVE_ITEM names workspaceSize executor)
      list(JOIN names ", " arguments)
      list(JOIN names "," quoted)
      string(APPEND bodies
"namespace emu {
extern const Op k${short}@
}
${stage_one} {
    return emu::stage_one(emu::k${short}, __func__, \"${quoted}\", workspaceSize, executor, ${arguments})@
}
${stage_two} {
    return emu::stage_two(emu::k${short}, workspace, workspaceSize, executor, stream)@
}

")
    endforeach()
    if(family_used)
      string(APPEND includes "#include \"ops/${file}\"\n")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES headers_named)
  foreach(name IN LISTS headers_named)
    aclnn_write_header("${include_dir}" "${name}" "${declared_${name}}" "${variants_${name}}")
  endforeach()
  set(missing ${implemented})
  if(found)
    list(REMOVE_ITEM missing ${found})
  endif()
  if(missing)
    message(FATAL_ERROR "No prototype in ${cdefs}/ops for: ${missing}")
  endif()
  string(REPLACE "@" ";" bodies "${bodies}")
  file(CONFIGURE OUTPUT "${entries_file}" @ONLY CONTENT
"// Generated from cdefs/ops by entries.cmake.
@includes@
#include \"executor.h\"

@bodies@")
endfunction()
