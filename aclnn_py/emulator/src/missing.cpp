// Entry points of operators that are not computed: stage one fails, naming the operator. Not part of libopapi, where the
// presence of a name means that the operator works.
#include "core.h"

using namespace emu;

// The callers' arguments are not looked at, so one shape serves all operators.
#define EMU_MISSING(name)                                                                               \
    extern "C" aclnnStatus aclnn##name##GetWorkspaceSize(void) {                                        \
        EMU_ENTER_STATUS();                                                                             \
        return fail("aclnn" #name "GetWorkspaceSize", 561107, "the emulator does not have aclnn" #name); \
    }                                                                                                   \
    extern "C" aclnnStatus aclnn##name(void *, uint64_t, aclOpExecutor *, aclrtStream) {                \
        EMU_ENTER_STATUS();                                                                             \
        return fail("aclnn" #name, 561107, "the emulator does not have aclnn" #name);                   \
    }

#include "missing.inc"
