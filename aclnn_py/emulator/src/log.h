// ACLNN_EMULATOR_RECORD: the file, one JSON object a line.
#pragma once

#include <cstddef>
#include <string>

namespace emu {

bool recording();
void log_line(const std::string &json);  // adds the line's end

// What happens to device memory between operators. An address that is null is the host's.
void log_allocation(const void *address, size_t bytes);
void log_copy(const void *to, const void *from, size_t bytes);
void log_fill(const void *to, size_t bytes);

}  // namespace emu
