// What torch_npu needs of the runtime beyond the samples: a default device, executors that another thread launches,
// events as its allocator asks for them, and clear failures of what is not there.
#include <unistd.h>

#include <thread>

#include "harness.h"

extern "C" {
struct aclTensorDesc;
struct aclDataBuffer;
struct aclopAttr;
aclTensorDesc *aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t *dims, aclFormat format);
void aclDestroyTensorDesc(const aclTensorDesc *desc);
size_t aclGetTensorDescNumDims(const aclTensorDesc *desc);
aclError aclGetTensorDescDimV2(const aclTensorDesc *desc, size_t index, int64_t *dimSize);
aclDataBuffer *aclCreateDataBuffer(void *data, size_t size);
aclError aclDestroyDataBuffer(const aclDataBuffer *dataBuffer);
aclopAttr *aclopCreateAttr(void);
void aclopDestroyAttr(const aclopAttr *attr);
aclError aclopSetAttrInt(aclopAttr *attr, const char *name, int64_t value);
aclError aclopCompileAndExecuteV2(const char *opType, int numInputs, aclTensorDesc **inputDesc, aclDataBuffer **inputs,
                                  int numOutputs, aclTensorDesc **outputDesc, aclDataBuffer **outputs, aclopAttr *attr,
                                  int engineType, int compileFlag, const char *opPath, aclrtStream stream);
aclError aclSetCompileopt(int opt, const char *value);
size_t aclGetCompileoptSize(int opt);
aclError aclGetCompileopt(int opt, char *value, size_t length);
aclError aclmdlInitDump(void);
int InitHugeMemThreadLocal(void *, bool);
void UnInitHugeMemThreadLocal(void *, bool);
}

static std::string config_file() {
    char name[] = "/tmp/aclnn_emulator_XXXXXX";
    int file = mkstemp(name);
    EXPECT(file >= 0);
    FILE *out = fdopen(file, "w");
    fputs("{\"dump\": {\"dump_scene\": \"x\"},\n \"defaultDevice\": { \"default_device\": \"1\" }}", out);
    fclose(out);
    return name;
}

// The first aclInit of the process: a second one with another configuration would be refused.
static void default_device() {
    int32_t device = -1, active = -1;
    uint32_t flags = 7;
    EXPECT_CODE(aclrtGetDevice(&device), 107002);
    std::string file = config_file();
    OK(aclInit(file.c_str()));
    OK(aclrtGetPrimaryCtxState(1, &flags, &active));
    EXPECT(active == 0 && flags == 0);
    OK(aclrtGetDevice(&device));  // as every thread that sets none
    EXPECT(device == 1);
    std::thread([] {
        int32_t other = -1;
        void *memory = nullptr;
        OK(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST));
        OK(aclrtGetDevice(&other));
        EXPECT(other == 1);
        OK(aclrtFree(memory));
        OK(aclrtSetDevice(0));
        OK(aclrtGetDevice(&other));
        EXPECT(other == 0);
        OK(aclrtResetDevice(0));
    }).join();
    OK(aclrtGetPrimaryCtxState(1, nullptr, &active));
    EXPECT(active == 1);
    EXPECT_CODE(aclrtGetPrimaryCtxState(2, nullptr, &active), 107001);
    OK(aclFinalize());
    EXPECT_CODE(aclrtGetDevice(&device), 107002);
    OK(aclInit(file.c_str()));
    unlink(file.c_str());
    OK(aclrtSetDevice(0));
}

static void hand_over(aclrtStream stream) {
    Grad strict;
    OK(strict.one());
    strict.need_workspace();
    std::thread([&] {
        EXPECT_VIOLATION(strict.two(stream), 561000, "another thread");
    }).join();
    Grad g;
    OK(InitHugeMemThreadLocal(nullptr, false));
    OK(g.one());
    EXPECT_CODE(aclSetAclOpExecutorRepeatable(g.executor), 561000);
    UnInitHugeMemThreadLocal(nullptr, false);
    g.need_workspace();
    int64_t before = count("violations");
    std::thread([&] {
        OK(aclrtSetDevice(0));
        OK(g.two(stream));
        OK(aclrtResetDevice(0));
    }).join();
    OK(aclrtSynchronizeStream(stream));
    EXPECT(g.right());
    EXPECT_CODE(count("violations"), before);
}

static void events(aclrtStream stream) {
    aclrtEvent event = nullptr;
    aclrtStream other = nullptr;
    OK(aclrtCreateEvent(&event));
    OK(aclrtCreateStream(&other));
    aclrtEventWaitStatus waited = ACL_EVENT_WAIT_STATUS_RESERVED;
    OK(aclrtQueryEventWaitStatus(event, &waited));
    EXPECT(waited == ACL_EVENT_WAIT_STATUS_COMPLETE);
    aclnnEmulatorSetDelay(200);
    Grad g;
    OK(g.one());
    g.need_workspace();
    OK(g.two(stream));
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtStreamWaitEvent(other, event));
    OK(aclrtQueryEventWaitStatus(event, &waited));
    EXPECT(waited == ACL_EVENT_WAIT_STATUS_NOT_READY);
    OK(aclrtSynchronizeStream(other));
    OK(aclrtQueryEventWaitStatus(event, &waited));
    EXPECT(waited == ACL_EVENT_WAIT_STATUS_COMPLETE && g.right());
    aclnnEmulatorSetDelay(0);
    aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    OK(aclrtQueryEventStatus(event, &recorded));
    EXPECT(recorded == ACL_EVENT_RECORDED_STATUS_COMPLETE);
    OK(aclrtResetEvent(event, stream));
    OK(aclrtQueryEventStatus(event, &recorded));
    EXPECT(recorded == ACL_EVENT_RECORDED_STATUS_NOT_READY);
    EXPECT_CODE(aclrtQueryEventWaitStatus(event, nullptr), 100000);
    OK(aclrtDestroyStream(other));
    OK(aclrtDestroyEvent(event));
    EXPECT_VIOLATION(aclrtResetEvent(event, stream), 107017, "already destroyed");
}

static void single_operators() {
    int64_t dims[2] = {2, 3}, dim = 0;
    aclTensorDesc *desc = aclCreateTensorDesc(ACL_FLOAT, 2, dims, ACL_FORMAT_ND);
    aclDataBuffer *buffer = aclCreateDataBuffer(nullptr, 0);
    aclopAttr *attr = aclopCreateAttr();
    EXPECT(aclGetTensorDescNumDims(desc) == 2);
    OK(aclGetTensorDescDimV2(desc, 1, &dim));
    EXPECT(dim == 3);
    EXPECT_CODE(aclGetTensorDescDimV2(desc, 2, &dim), 100000);
    EXPECT(aclCreateTensorDesc(ACL_FLOAT, -1, dims, ACL_FORMAT_ND) == nullptr);
    OK(aclopSetAttrInt(attr, "axis", 1));
    EXPECT_CODE(aclopSetAttrInt(nullptr, "axis", 1), 100000);
    error_text();
    EXPECT_CODE(aclopCompileAndExecuteV2("ReduceMeanD", 1, &desc, &buffer, 1, &desc, &buffer, attr, 0, 0, nullptr, nullptr),
                100024);
    EXPECT(error_text().find("no operator ReduceMeanD of the graph engine") != std::string::npos);
    aclopDestroyAttr(attr);
    OK(aclDestroyDataBuffer(buffer));
    aclDestroyTensorDesc(desc);
    char value[8];
    OK(aclSetCompileopt(5, "disable"));
    EXPECT(aclGetCompileoptSize(5) == 8);
    OK(aclGetCompileopt(5, value, sizeof value));
    EXPECT(std::string(value) == "disable");
    EXPECT_CODE(aclGetCompileopt(5, value, 7), 100000);
}

static void settings_and_figures(aclrtStream stream) {
    int64_t value = 0;
    OK(aclrtGetDeviceInfo(0, ACL_DEV_ATTR_CUBE_CORE_NUM, &value));
    EXPECT(value == 24);
    OK(aclrtGetDeviceInfo(0, ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE, &value));
    EXPECT(value == int64_t{64} << 30);
    EXPECT_CODE(aclrtGetDeviceInfo(0, ACL_DEV_ATTR_AICPU_CORE_NUM, &value), 207000);
    EXPECT_CODE(aclrtGetDeviceInfo(9, ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE, &value), 107001);
    int32_t can = -1;
    OK(aclrtDeviceCanAccessPeer(&can, 0, 1));
    EXPECT(can == 1);
    OK(aclrtDeviceCanAccessPeer(&can, 0, 0));
    EXPECT(can == 0);
    EXPECT_CODE(aclrtDeviceCanAccessPeer(&can, 0, 2), 107001);
    OK(aclrtDeviceEnablePeerAccess(1, 0));
    OK(aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_INFNAN));
    EXPECT_CODE(aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_SATURATION), 207000);
    OK(aclrtSetOpWaitTimeout(10));
    OK(aclrtSetStreamFailureMode(stream, 1));
    EXPECT_CODE(aclrtSetStreamFailureMode(stream, 2), 107000);
    error_text();
    EXPECT_CODE(aclmdlInitDump(), 207000);
    EXPECT(error_text() == "aclmdlInitDump: the emulator does not have this function");
}

int main() {
    aclnnEmulatorSetStrict(1);
    default_device();
    aclrtStream stream = nullptr;
    OK(aclrtCreateStream(&stream));
    hand_over(stream);
    events(stream);
    single_operators();
    settings_and_figures(stream);
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    expect_no_handles();
    puts("ok");
}
