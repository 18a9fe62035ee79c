// The parts of the violation record that only the control functions use.
#pragma once

#include <string>

namespace emu {

std::string last_violation();
void forget_violations();
void set_strict(bool on);
bool set_soc(const char *name);

}  // namespace emu
