"""What the emulator has for torch_npu alone; the wheel itself is not needed here."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import aclnn_py
from aclnn_py._signatures import SIGNATURES

pytestmark = pytest.mark.emulator

#: The libraries that the wheel 2.13.0 needs, and the functions of CANN that it links.
LIBRARIES = ("libascendcl.so", "libacl_op_compiler.so", "libacl_tdt_channel.so", "libge_runner.so", "libgraph.so")
LINKED = """
MsprofGetHashId MsprofRegisterCallback MsprofReportAdditionalInfo MsprofReportApi MsprofReportCompactInfo
MsprofSysCycleTime aclAppLog aclCreateDataBuffer aclCreateTensorDesc aclDestroyDataBuffer aclDestroyTensorDesc
aclFinalize aclGetDeviceCapability aclGetRecentErrMsg aclGetTensorDescDimV2 aclGetTensorDescFormat
aclGetTensorDescNumDims aclGetTensorDescType aclInit aclSetTensorDescName aclSetTensorFormat aclSetTensorPlaceMent
aclSetTensorShape aclmdlFinalizeDump aclmdlInitDump aclmdlSetDump aclopCompileAndExecute aclopCreateAttr
aclopDestroyAttr aclopSetAttrBool aclopSetAttrDataType aclopSetAttrFloat aclopSetAttrInt aclopSetAttrListBool
aclopSetAttrListFloat aclopSetAttrListInt aclopSetAttrListListInt aclopSetAttrString aclrtBinaryGetFunction
aclrtBinaryLoadFromData aclrtCreateEventExWithFlag aclrtCreateStream aclrtCreateStreamWithConfig aclrtDestroyEvent
aclrtDestroyStream aclrtDeviceCanAccessPeer aclrtDeviceEnablePeerAccess aclrtDeviceGetBareTgid aclrtEventElapsedTime
aclrtFree aclrtFreeHost aclrtFreePhysical aclrtGetCurrentContext aclrtGetDevice aclrtGetDeviceCount
aclrtGetFunctionAddr aclrtGetMemInfo aclrtGetSocName aclrtMalloc aclrtMallocHost aclrtMallocPhysical aclrtMapMem
aclrtMemExportToShareableHandle aclrtMemImportFromShareableHandle aclrtMemSetPidToShareableHandle aclrtMemcpy
aclrtMemcpyAsync aclrtMemset aclrtProcessReport aclrtRecordEvent aclrtReleaseMemAddress aclrtReserveMemAddress
aclrtResetDevice aclrtResetEvent aclrtSetCurrentContext aclrtSetDevice aclrtStreamWaitEvent aclrtSynchronizeEvent
aclrtSynchronizeStream aclrtUnmapMem rtDevBinaryRegister rtFunctionRegister rtGetC2cCtrlAddr rtKernelLaunch
"""
#: Found by name in a library of its own when torch_npu starts or runs its first operator.
LOOKED_UP = {
    "libascendcl.so": "aclrtCreateEventWithFlag aclrtDestroyStreamForce aclrtGetDeviceInfo aclrtGetLastError "
    "aclrtGetPrimaryCtxState aclrtMallocAlign32 aclrtQueryEventStatus aclrtQueryEventWaitStatus aclrtSetDeviceSatMode "
    "aclrtSetOpExecuteTimeOut aclrtSetOpWaitTimeout aclrtSetStreamFailureMode aclrtStreamQuery aclrtSynchronizeDevice "
    "aclrtSynchronizeStreamWithTimeout aclsysGetCANNVersion aclsysGetVersionStr",
    "libacl_op_compiler.so": "aclSetCompileopt aclGetCompileopt aclGetCompileoptSize aclopCompileAndExecuteV2 "
    "aclrtCtxSetSysParamOpt aclrtGetSysParamOpt aclrtSetSysParamOpt aclCreateGraphDumpOpt aclDestroyGraphDumpOpt",
    "libhccl.so": "HcclSetConfig",
    "libopapi.so": "InitHugeMemThreadLocal UnInitHugeMemThreadLocal ReleaseHugeMem aclCreateTensor aclDestroyTensor",
}


def test_everything_that_torch_npu_links_is_there(emulator_lib: Path) -> None:
    libraries = [ctypes.CDLL(str(emulator_lib / name)) for name in LIBRARIES]
    names = LINKED.split()
    assert len(names) > 80
    assert [name for name in names if not any(hasattr(library, name) for library in libraries)] == []


@pytest.mark.parametrize("library", LOOKED_UP)
def test_what_it_looks_up_is_in_the_library_where_it_looks(emulator_lib: Path, library: str) -> None:
    opened = ctypes.CDLL(str(emulator_lib / library))
    assert [name for name in LOOKED_UP[library].split() if not hasattr(opened, name)] == []


def test_operators_that_are_not_computed_fail_by_name(emulator_lib: Path) -> None:
    code = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1] + "/libaclnn_ops_infer.so")
runtime = ctypes.CDLL(sys.argv[1] + "/libascendcl.so")
runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p
one = library.aclnnStdGetWorkspaceSize(None, None, False, None, None, None)
text = runtime.aclGetRecentErrMsg().decode()
two = library.aclnnStd(None, ctypes.c_uint64(0), None, None)
print(json.dumps([one, text, two]))
"""
    done = subprocess.run([sys.executable, "-c", code, str(emulator_lib)], capture_output=True, text=True, check=True)
    one, text, two = json.loads(done.stdout)
    assert (one, two) == (561107, 561107)
    assert text == "aclnnStdGetWorkspaceSize: the emulator does not have aclnnStd"


def test_a_computed_operator_has_no_failing_twin_and_a_failing_one_does_not_count(emulator_lib: Path) -> None:
    failing = ctypes.CDLL(str(emulator_lib / "libaclnn_ops_infer.so"))
    computed = ctypes.CDLL(str(emulator_lib / "libopapi.so"))
    names = [row[0] for row in SIGNATURES]
    assert [name for name in names if hasattr(failing, name) and hasattr(computed, name)] == []
    backend: Any = aclnn_py.get_backend("emulator")
    assert hasattr(failing, "aclnnStd")
    assert not backend.libraries.has_operator("aclnnStd")
    assert backend.libraries.has_operator("aclnnAdd")
