"""Status codes of CANN as data: their vendor names, what they mean and what to do next.

The names are facts of the CANN 8.1, CANN 9 and torch_npu headers; the numbers common to them never differ,
but 107045 and 561105 have two names. Codes that are not listed exist: look names up, never assume the set
is closed.
"""

from __future__ import annotations

# "number name" pairs of aclError without the prefix ACL_ERROR_, which 0 (two names) does not follow
_ACL = """
100000 INVALID_PARAM 100001 UNINITIALIZE 100002 REPEAT_INITIALIZE 100003 INVALID_FILE 100004 WRITE_FILE
100005 INVALID_FILE_SIZE 100006 PARSE_FILE 100007 FILE_MISSING_ATTR 100008 FILE_ATTR_INVALID
100009 INVALID_DUMP_CONFIG 100010 INVALID_PROFILING_CONFIG 100011 INVALID_MODEL_ID 100012 DESERIALIZE_MODEL
100013 PARSE_MODEL 100014 READ_MODEL_FAILURE 100015 MODEL_SIZE_INVALID 100016 MODEL_MISSING_ATTR
100017 MODEL_INPUT_NOT_MATCH 100018 MODEL_OUTPUT_NOT_MATCH 100019 MODEL_NOT_DYNAMIC 100020 OP_TYPE_NOT_MATCH
100021 OP_INPUT_NOT_MATCH 100022 OP_OUTPUT_NOT_MATCH 100023 OP_ATTR_NOT_MATCH 100024 OP_NOT_FOUND
100025 OP_LOAD_FAILED 100026 UNSUPPORTED_DATA_TYPE 100027 FORMAT_NOT_MATCH
100028 BIN_SELECTOR_NOT_REGISTERED 100029 KERNEL_NOT_FOUND 100030 BIN_SELECTOR_ALREADY_REGISTERED
100031 KERNEL_ALREADY_REGISTERED 100032 INVALID_QUEUE_ID 100033 REPEAT_SUBSCRIBE 100034 STREAM_NOT_SUBSCRIBE
100035 THREAD_NOT_SUBSCRIBE 100036 WAIT_CALLBACK_TIMEOUT 100037 REPEAT_FINALIZE 100038 NOT_STATIC_AIPP
100039 COMPILING_STUB_MODE 100040 GROUP_NOT_SET 100041 GROUP_NOT_CREATE 100042 PROF_ALREADY_RUN
100043 PROF_NOT_RUN 100044 DUMP_ALREADY_RUN 100045 DUMP_NOT_RUN
107000 RT_PARAM_INVALID 107001 RT_INVALID_DEVICEID 107002 RT_CONTEXT_NULL 107003 RT_STREAM_CONTEXT
107004 RT_MODEL_CONTEXT 107005 RT_STREAM_MODEL 107006 RT_EVENT_TIMESTAMP_INVALID
107007 RT_EVENT_TIMESTAMP_REVERSAL 107008 RT_ADDR_UNALIGNED 107009 RT_FILE_OPEN 107010 RT_FILE_WRITE
107011 RT_STREAM_SUBSCRIBE 107012 RT_THREAD_SUBSCRIBE 107013 RT_GROUP_NOT_SET 107014 RT_GROUP_NOT_CREATE
107015 RT_STREAM_NO_CB_REG 107016 RT_INVALID_MEMORY_TYPE 107017 RT_INVALID_HANDLE
107018 RT_INVALID_MALLOC_TYPE 107019 RT_WAIT_TIMEOUT 107020 RT_TASK_TIMEOUT 107021 RT_SYSPARAMOPT_NOT_SET
107022 RT_DEVICE_TASK_ABORT 107023 RT_STREAM_ABORT 107024 RT_CAPTURE_DEPENDENCY 107025 RT_STREAM_UNJOINED
107026 RT_MODEL_CAPTURED 107027 RT_STREAM_CAPTURED 107028 RT_EVENT_CAPTURED 107029 RT_STREAM_NOT_CAPTURED
107030 RT_CAPTURE_MODE_NOT_SUPPORT 107031 RT_STREAM_CAPTURE_IMPLICIT 107032 STREAM_CAPTURE_CONFLICT
107033 STREAM_TASK_GROUP_STATUS 107034 STREAM_TASK_GROUP_INTR 107035 RT_TASK_ABORT_STOP
107036 RT_STREAM_CAPTURE_UNMATCHED 107037 RT_MODEL_RUNNING 107038 RT_STREAM_CAPTURE_WRONG_THREAD
107039 RT_INSUFFICIENT_INPUT_ARRAY 107040 RT_MODEL_UPDATE_FAILED 107041 RT_CAPTURE_MODE_BLOCK_ASYNC
107042 RT_SYMBOL_NOT_FOUND 107043 RT_INVALID_SYMBOL 107044 RT_INVALID_DEVICE_FUNCTION
107045 RT_STREAM_NOT_SUPPORT_OPERA 107045 RT_SUB_ACLGRAPH_IS_CAPTURING 107046 RT_SUB_ACLGRAPH_IS_CAPTURING
145000 GE_PARAM_INVALID 145001 GE_EXEC_NOT_INIT 145002 GE_EXEC_MODEL_PATH_INVALID
145003 GE_EXEC_MODEL_ID_INVALID 145006 GE_EXEC_MODEL_DATA_SIZE_INVALID 145007 GE_EXEC_MODEL_ADDR_INVALID
145008 GE_EXEC_MODEL_QUEUE_ID_INVALID 145009 GE_EXEC_LOAD_MODEL_REPEATED
145011 GE_DYNAMIC_INPUT_ADDR_INVALID 145012 GE_DYNAMIC_INPUT_LENGTH_INVALID
145013 GE_DYNAMIC_BATCH_SIZE_INVALID 145014 GE_AIPP_BATCH_EMPTY 145015 GE_AIPP_NOT_EXIST
145016 GE_AIPP_MODE_INVALID 145017 GE_OP_TASK_TYPE_INVALID 145018 GE_OP_KERNEL_TYPE_INVALID
145019 GE_PLGMGR_PATH_INVALID 145020 GE_FORMAT_INVALID 145021 GE_SHAPE_INVALID 145022 GE_DATATYPE_INVALID
148046 PROF_REPEAT_SUBSCRIBE 148047 PROF_API_CONFLICT 148048 INVALID_MAX_OPQUEUE_NUM_CONFIG
148049 INVALID_OPP_PATH 148050 OP_UNSUPPORTED_DYNAMIC 148051 RELATIVE_RESOURCE_NOT_CLEARED
148052 UNSUPPORTED_JPEG 148053 INVALID_BUNDLE_MODEL_ID
200000 BAD_ALLOC 200001 API_NOT_SUPPORT 200002 INVALID_DEVICE 200003 MEMORY_ADDRESS_UNALIGNED
200004 RESOURCE_NOT_MATCH 200005 INVALID_RESOURCE_HANDLE 200006 FEATURE_UNSUPPORTED
200007 PROF_MODULES_UNSUPPORTED
207000 RT_FEATURE_NOT_SUPPORT 207001 RT_MEMORY_ALLOCATION 207002 RT_MEMORY_FREE 207003 RT_AICORE_OVER_FLOW
207004 RT_NO_DEVICE 207005 RT_RESOURCE_ALLOC_FAIL 207006 RT_NO_PERMISSION 207007 RT_NO_EVENT_RESOURCE
207008 RT_NO_STREAM_RESOURCE 207009 RT_NO_NOTIFY_RESOURCE 207010 RT_NO_MODEL_RESOURCE
207011 RT_NO_CDQ_RESOURCE 207012 RT_OVER_LIMIT 207013 RT_QUEUE_EMPTY 207014 RT_QUEUE_FULL
207015 RT_REPEATED_INIT 207016 RT_AIVEC_OVER_FLOW 207017 RT_OVER_FLOW 207018 RT_DEVICE_OOM
207019 RT_FEATURE_NOT_SUPPORT_UPDATE_OP 207020 RT_TIMEOUT 207021 RT_LINK_TYPE_NOT_SUPPORTED
245000 GE_MEMORY_ALLOCATION 245001 GE_MEMORY_OPERATE_FAILED 245002 GE_DEVICE_MEMORY_OPERATE_FAILED
300000 STORAGE_OVER_LIMIT
345102 GE_SUBHEALTHY 345103 GE_USER_RAISE_EXCEPTION 345104 GE_DATA_NOT_ALIGNED
500000 INTERNAL_ERROR 500001 FAILURE 500002 GE_FAILURE 500003 RT_FAILURE 500004 DRV_FAILURE
500005 PROFILING_FAILURE
507000 RT_INTERNAL_ERROR 507001 RT_TS_ERROR 507002 RT_STREAM_TASK_FULL 507003 RT_STREAM_TASK_EMPTY
507004 RT_STREAM_NOT_COMPLETE 507005 RT_END_OF_SEQUENCE 507006 RT_EVENT_NOT_COMPLETE
507007 RT_CONTEXT_RELEASE_ERROR 507008 RT_SOC_VERSION 507009 RT_TASK_TYPE_NOT_SUPPORT
507010 RT_LOST_HEARTBEAT 507011 RT_MODEL_EXECUTE 507012 RT_REPORT_TIMEOUT 507013 RT_SYS_DMA
507014 RT_AICORE_TIMEOUT 507015 RT_AICORE_EXCEPTION 507016 RT_AICORE_TRAP_EXCEPTION 507017 RT_AICPU_TIMEOUT
507018 RT_AICPU_EXCEPTION 507019 RT_AICPU_DATADUMP_RSP_ERR 507020 RT_AICPU_MODEL_RSP_ERR
507021 RT_PROFILING_ERROR 507022 RT_IPC_ERROR 507023 RT_MODEL_ABORT_NORMAL 507024 RT_KERNEL_UNREGISTERING
507025 RT_RINGBUFFER_NOT_INIT 507026 RT_RINGBUFFER_NO_DATA 507027 RT_KERNEL_LOOKUP
507028 RT_KERNEL_DUPLICATE 507029 RT_DEBUG_REGISTER_FAIL 507030 RT_DEBUG_UNREGISTER_FAIL
507031 RT_LABEL_CONTEXT 507032 RT_PROGRAM_USE_OUT 507033 RT_DEV_SETUP_ERROR 507034 RT_VECTOR_CORE_TIMEOUT
507035 RT_VECTOR_CORE_EXCEPTION 507036 RT_VECTOR_CORE_TRAP_EXCEPTION 507037 RT_CDQ_BATCH_ABNORMAL
507038 RT_DIE_MODE_CHANGE_ERROR 507039 RT_DIE_SET_ERROR 507040 RT_INVALID_DIEID 507041 RT_DIE_MODE_NOT_SET
507042 RT_AICORE_TRAP_READ_OVERFLOW 507043 RT_AICORE_TRAP_WRITE_OVERFLOW
507044 RT_VECTOR_CORE_TRAP_READ_OVERFLOW 507045 RT_VECTOR_CORE_TRAP_WRITE_OVERFLOW
507046 RT_STREAM_SYNC_TIMEOUT 507047 RT_EVENT_SYNC_TIMEOUT 507048 RT_FFTS_PLUS_TIMEOUT
507049 RT_FFTS_PLUS_EXCEPTION 507050 RT_FFTS_PLUS_TRAP_EXCEPTION 507051 RT_SEND_MSG 507052 RT_COPY_DATA
507053 RT_DEVICE_MEM_ERROR 507054 RT_HBM_MULTI_BIT_ECC_ERROR 507055 RT_SUSPECT_DEVICE_MEM_ERROR
507056 RT_LINK_ERROR 507057 RT_SUSPECT_REMOTE_ERROR
507899 RT_DRV_INTERNAL_ERROR 507900 RT_AICPU_INTERNAL_ERROR 507901 RT_SOCKET_CLOSE
507902 RT_AICPU_INFO_LOAD_RSP_ERR 507903 RT_STREAM_CAPTURE_INVALIDATED 507904 RT_COMM_OP_RETRY_FAIL
507905 SNAPSHOT_LOCK_TIMEOUT 507906 SNAPSHOT_LOCK_FAILED 507907 SNAPSHOT_UNLOCK_FAILED
507908 SNAPSHOT_BACKUP_FAILED 507909 SNAPSHOT_RESTORE_FAILED 507910 HOST_MEMORY_ALREADY_REGISTERED
507911 HOST_MEMORY_NOT_REGISTERED 507912 SNAPSHOT_CALLBACK_FAILED 507913 SNAPSHOT_REGISTER_CALLBACK_FAILED
507914 RT_L3_PORT_ERROR 507915 RT_CCU_TIMEOUT 507916 RT_CCU_EXCEPTION
545000 GE_INTERNAL_ERROR 545001 GE_LOAD_MODEL 545002 GE_EXEC_LOAD_MODEL_PARTITION_FAILED
545003 GE_EXEC_LOAD_WEIGHT_PARTITION_FAILED 545004 GE_EXEC_LOAD_TASK_PARTITION_FAILED
545005 GE_EXEC_LOAD_KERNEL_PARTITION_FAILED 545006 GE_EXEC_RELEASE_MODEL_DATA 545007 GE_COMMAND_HANDLE
545008 GE_GET_TENSOR_INFO 545009 GE_UNLOAD_MODEL 545601 GE_MODEL_EXECUTE_TIMEOUT 545602 GE_REDEPLOYING
"""

# the same for aclnnStatus without the prefix ACLNN_ERR_
_ACLNN = """
161001 PARAM_NULLPTR 161002 PARAM_INVALID 361001 RUNTIME_ERROR 561000 INNER 561001 INNER_INFERSHAPE_ERROR
561002 INNER_TILING_ERROR 561003 INNER_FIND_KERNEL_ERROR 561101 INNER_CREATE_EXECUTOR
561102 INNER_NOT_TRANS_EXECUTOR 561103 INNER_NULLPTR 561104 INNER_WRONG_ATTR_INFO_SIZE
561105 INNER_KEY_CONFILICT 561105 INNER_KEY_CONFLICT 561106 INNER_INVALID_IMPL_MODE
561107 INNER_OPP_PATH_NOT_FOUND 561108 INNER_LOAD_JSON_FAILED 561109 INNER_JSON_VALUE_NOT_FOUND
561110 INNER_JSON_FORMAT_INVALID 561111 INNER_JSON_DTYPE_INVALID 561112 INNER_OPP_KERNEL_PKG_NOT_FOUND
561113 INNER_OP_FILE_INVALID 561114 INNER_ATTR_NUM_OUT_OF_BOUND 561115 INNER_ATTR_LEN_NOT_ENOUGH
561116 INNER_INPUT_NUM_IN_JSON_TOO_LARGE 561117 INNER_INPUT_JSON_IS_NULL
561118 INNER_STATIC_WORKSPACE_INVALID 561119 INNER_STATIC_BLOCK_DIM_INVALID 561201 RUNTIME_INVALID_HANDLE
"""


def _pairs() -> list[tuple[int, str]]:
    """Read both tables into (number, macro name)."""
    found = [(0, "ACL_SUCCESS"), (0, "ACL_ERROR_NONE")]
    for prefix, table in (("ACL_ERROR_", _ACL), ("ACLNN_ERR_", _ACLNN)):
        words = table.split()
        found += [(int(n), prefix + name) for n, name in zip(words[::2], words[1::2], strict=True)]
    return found


PAIRS: tuple[tuple[int, str], ...] = tuple(_pairs())

NAMES: dict[int, tuple[str, ...]] = {}
for _code, _name in PAIRS:
    NAMES[_code] = (*NAMES.get(_code, ()), _name)

# Plain words for the codes a user meets; the others speak through their name.
MEANINGS: dict[int, str] = {
    100000: "an argument of the call is not valid",
    100001: "acl is not initialised in this process",
    100002: "acl is already initialised in this process",
    100024: "the operator was not found",
    100029: "the kernel of the operator was not found",
    100037: "acl was already finalised in this process",
    100039: "the call reached a link-time stub library, not the real CANN library",
    107000: "the runtime refuses an argument",
    107001: "no device with this number",
    107002: "no device is set on this thread",
    107003: "the stream belongs to another context or device",
    107017: "the handle is stale or of another kind",
    107019: "waiting took longer than the timeout",
    107020: "a task on the device took longer than the timeout",
    107022: "the tasks of the device were aborted",
    107023: "the stream was aborted",
    148049: "the operator package path is not valid",
    161001: "a null pointer where a tensor or array is required",
    161002: "an argument is refused (shape, dtype, format or value)",
    200000: "out of memory",
    200001: "this call is not supported here",
    200006: "this feature is not supported here",
    207000: "this feature is not supported here",
    207001: "out of device memory",
    207004: "no device",
    207005: "a device resource could not be allocated",
    207006: "no permission to use the device",
    207018: "out of device memory",
    207020: "waiting took longer than the timeout",
    361001: "a runtime call inside the operator failed",
    507001: "the task scheduler of the device failed",
    507008: "the software does not fit this SoC",
    507010: "the device does not answer any more",
    507011: "a model run failed on the device",
    507014: "a kernel on an AI core ran too long",
    507015: "a kernel on an AI core raised an exception",
    507017: "an AI CPU kernel ran too long",
    507018: "an AI CPU kernel raised an exception",
    507033: "the device could not be set up",
    507034: "a kernel on a vector core ran too long",
    507035: "a kernel on a vector core raised an exception",
    507046: "the stream did not finish within the timeout",
    507047: "the event did not come within the timeout",
    507053: "a memory fault on the device",
    507054: "an uncorrectable memory error (ECC) on the device",
    507055: "a suspected memory fault on the device",
    507899: "the driver failed",
    561000: "an error inside the aclnn library",
    561001: "the output shape could not be inferred",
    561002: "the operator refuses these shapes or values (tiling failed)",
    561003: "no kernel for this operator, dtype and SoC was found",
    561101: "the executor could not be made",
    561102: "stage one did not hand its executor over",
    561103: "a null pointer inside the aclnn library",
    561107: "the operator package path was not found",
    561108: "a kernel description file could not be read",
    561112: "the kernel package of this SoC was not found",
    561201: "the executor or another handle inside the aclnn library is not valid",
}

_PACKAGE = (
    "check that the operator kernel package (opp) of this SoC is installed and has the CANN version of the "
    "toolkit; source CANN's set_env.sh before Python starts, or set ASCEND_OPP_PATH (and "
    "ASCEND_CUSTOM_OPP_PATH for custom operators)"
)
_REFUSED = "compare the shapes, dtypes and attribute values with the limits of the operator"
_ARGUMENT = "check the arguments of the call: device memory, not host memory; sizes; the copy direction"
_TIMEOUT = (
    "the work may still be running: a longer timeout, or a hung kernel; run again with "
    "ACLNN_PY_LAUNCH_BLOCKING=1 to see which operator it is"
)
_MEMORY = (
    "free arrays that are no longer needed, use smaller ones, or look with npu-smi for other processes that "
    "hold the memory of this device"
)
_UNSUPPORTED = "check that this CANN release and this SoC support the call (see: aclnn-py info)"
_ABORTED = "the work was aborted: close the stream, make a new one and submit the work again"
_HARDWARE = "the device memory or hardware is at fault: look at npu-smi and the logs, reset the device"

# What to do next. FAMILY_HINTS holds for code // 1000 where there is no entry for the code itself.
HINTS: dict[int, str] = {
    100000: _ARGUMENT,
    100001: "initialise the runtime first: get_backend(), or torch_npu before any acl call",
    100002: (
        "another package (torch_npu, for example) called aclInit first: treat acl as initialised, and leave "
        "aclFinalize to that package"
    ),
    100024: _PACKAGE,
    100029: _PACKAGE,
    100037: "acl cannot be used after aclFinalize: finalise once, at the very end of the process",
    100039: (
        "this is a library of a devlib or stub directory, made for linking only: remove it from "
        "LD_LIBRARY_PATH and ACLNN_PY_LIBRARY_PATH, and install the driver and the CANN runtime"
    ),
    107000: _ARGUMENT,
    107001: ("list the devices with npu-smi info; ASCEND_RT_VISIBLE_DEVICES limits and renumbers them from 0"),
    107002: "set the device on this thread first (aclrtSetDevice): each thread has its own current device",
    107003: "make the device of the stream current on this thread, and use the stream on that device only",
    107017: "the object was already destroyed, or belongs to another device or process (fork)",
    107019: _TIMEOUT,
    107020: _TIMEOUT,
    107022: _ABORTED,
    107023: _ABORTED,
    148049: _PACKAGE,
    161001: (
        "if no required argument is None, the installed package lacks this operator or does not support this "
        "SoC: " + _PACKAGE
    ),
    161002: _REFUSED,
    200000: _MEMORY,
    200001: _UNSUPPORTED,
    200006: _UNSUPPORTED,
    207000: _UNSUPPORTED,
    207001: _MEMORY,
    207004: "check npu-smi info and, in a container, that /dev/davinci* and the driver are passed in",
    207006: "add the user to the group that owns /dev/davinci* (HwHiAiUser as a rule)",
    207018: _MEMORY,
    207020: _TIMEOUT,
    361001: "the text above names the runtime call; check the device, the stream and free memory",
    507008: _PACKAGE,
    507033: "check the driver with npu-smi info, and that its version fits the CANN version",
    507046: _TIMEOUT,
    507047: _TIMEOUT,
    507053: _HARDWARE,
    507054: _HARDWARE,
    507055: _HARDWARE,
    507899: "check the driver with npu-smi info, and that its version fits the CANN version",
    561000: (
        "if this came from aclSetAclOpExecutorRepeatable, this operator cannot be reused: run stage one "
        "again for each call; else see the plog files (~/ascend/log, or ASCEND_PROCESS_LOG_PATH)"
    ),
    561001: _REFUSED,
    561002: _REFUSED,
    561003: _PACKAGE,
    561101: "executors that are never run or destroyed fill the pool: destroy the unused ones",
    561103: (
        "two causes look the same here. Either a shape, dtype or value is refused: " + _REFUSED + ". Or no "
        "kernel fits this SoC: " + _PACKAGE
    ),
    561107: _PACKAGE,
    561108: _PACKAGE,
    561112: _PACKAGE,
    561201: "an executor may be used once, and only on the thread of its stage one",
}

FAMILY_HINTS: dict[int, str] = {
    507: (
        "faults of a device are asynchronous: this one was first seen here but may come from any operator "
        "queued earlier; run again with ACLNN_PY_LAUNCH_BLOCKING=1 to see which. The stream or device may be "
        "unusable now: start a new process. More in the plog files (~/ascend/log)"
    ),
    561: "see the plog files of CANN (~/ascend/log, or ASCEND_PROCESS_LOG_PATH) for the cause",
}
