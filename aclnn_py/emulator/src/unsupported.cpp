// Functions that torch_npu links or looks up and that have no counterpart on a host: graphs, profiling, dumps, kernels
// as binaries, memory shared between processes. Each fails with 207000 and says so.
#include "core.h"

using namespace emu;

// The callers' arguments are not looked at, so one shape serves all of them.
#define EMU_UNSUPPORTED(name)                                                       \
    extern "C" aclError name(void) {                                                \
        EMU_ENTER_STATUS();                                                         \
        return fail(__func__, 207000, "the emulator does not have this function");  \
    }

EMU_UNSUPPORTED(aclmdlInitDump)
EMU_UNSUPPORTED(aclmdlSetDump)
EMU_UNSUPPORTED(aclmdlFinalizeDump)
EMU_UNSUPPORTED(aclrtBinaryGetFunction)
EMU_UNSUPPORTED(aclrtBinaryLoadFromData)
EMU_UNSUPPORTED(aclrtGetFunctionAddr)
EMU_UNSUPPORTED(aclrtMallocPhysical)
EMU_UNSUPPORTED(aclrtFreePhysical)
EMU_UNSUPPORTED(aclrtReserveMemAddress)
EMU_UNSUPPORTED(aclrtReleaseMemAddress)
EMU_UNSUPPORTED(aclrtMapMem)
EMU_UNSUPPORTED(aclrtUnmapMem)
EMU_UNSUPPORTED(aclrtMemExportToShareableHandle)
EMU_UNSUPPORTED(aclrtMemImportFromShareableHandle)
EMU_UNSUPPORTED(aclrtMemSetPidToShareableHandle)
EMU_UNSUPPORTED(aclrtProcessReport)
EMU_UNSUPPORTED(aclrtDeviceGetBareTgid)
EMU_UNSUPPORTED(rtDevBinaryRegister)
EMU_UNSUPPORTED(rtFunctionRegister)
EMU_UNSUPPORTED(rtGetC2cCtrlAddr)
EMU_UNSUPPORTED(rtKernelLaunch)

// What a profiler would collect is dropped, and every sum is deterministic as it is: these report success.
#define EMU_DROPPED(name, type) \
    extern "C" type name(void) { return 0; }

EMU_DROPPED(MsprofGetHashId, uint64_t)
EMU_DROPPED(MsprofRegisterCallback, int32_t)
EMU_DROPPED(MsprofReportAdditionalInfo, int32_t)
EMU_DROPPED(MsprofReportApi, int32_t)
EMU_DROPPED(MsprofReportCompactInfo, int32_t)
EMU_DROPPED(MsprofSysCycleTime, uint64_t)
EMU_DROPPED(HcclSetConfig, int32_t)
