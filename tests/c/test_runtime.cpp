// Initialisation, devices, contexts, memory, copies, streams, events, errors: the codes of the acl runtime.
#include <cmath>
#include <thread>

#include "harness.h"

static void initialisation() {
    EXPECT_CODE(aclFinalize(), 100037);
    uint64_t left = 99;
    EXPECT_CODE(aclFinalizeReference(&left), 100037);
    OK(aclInit(nullptr));
    EXPECT_CODE(aclInit(nullptr), 100002);
    EXPECT_CODE(aclnnEmulatorSetSoc("A3"), 100002);
    OK(aclFinalizeReference(&left));
    EXPECT(left == 1);
    OK(aclFinalizeReference(&left));
    EXPECT(left == 0);
    OK(aclInit(nullptr));
    EXPECT_CODE(aclInit(nullptr), 100002);
    OK(aclFinalize());  // hard: the count is ignored
    EXPECT_CODE(aclFinalize(), 100037);
    EXPECT_CODE(aclInit("/nonexistent.json"), 100003);
    EXPECT_CODE(aclInit("/proc/self/status"), 100000);  // not what the first one of the process had
    aclnnEmulatorFailNext("aclInit", 100002, nullptr);  // another component was first, so its count stays
    EXPECT_CODE(aclInit(nullptr), 100002);
    OK(aclFinalizeReference(&left));
    EXPECT(left == 1);
    OK(aclFinalize());
    OK(aclnnEmulatorSetSoc("Ascend910_9391"));
    EXPECT(std::string(aclrtGetSocName()) == "Ascend910_9391");
    OK(aclnnEmulatorSetSoc("A2"));
    EXPECT(std::string(aclrtGetSocName()) == "Ascend910B1");
    OK(aclnnInit(nullptr));
}

static void devices() {
    uint32_t devices = 0;
    OK(aclrtGetDeviceCount(&devices));
    EXPECT(devices == 2);
    int32_t id = -1;
    EXPECT_CODE(aclrtGetDevice(&id), 107002);
    EXPECT_CODE(aclrtSetDevice(2), 107001);
    EXPECT_CODE(aclrtSetDevice(-1), 107001);
    EXPECT_VIOLATION(aclrtSetDevice(0), 100001, "before aclInit");
    OK(aclInit(nullptr));
    aclrtStream stream = nullptr;
    EXPECT_CODE(aclrtCreateStream(&stream), 107002);
    void *p = nullptr;
    EXPECT_CODE(aclrtMalloc(&p, 8, ACL_MEM_MALLOC_HUGE_FIRST), 107002);
    OK(aclrtSetDevice(1));
    OK(aclrtGetDevice(&id));
    EXPECT(id == 1);
    OK(aclrtSetDevice(1));
    std::thread([] {
        int32_t other = 0;
        EXPECT_CODE(aclrtGetDevice(&other), 107002);  // contexts are per thread
    }).join();
    OK(aclrtResetDevice(1));
    OK(aclrtGetDevice(&id));  // set twice, reset once
    OK(aclrtMalloc(&p, 8, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtResetDevice(1));
    EXPECT_CODE(aclrtGetDevice(&id), 107002);
    EXPECT_CODE(count("device_bytes"), 0);  // gone with the device
    EXPECT_VIOLATION(aclrtResetDevice(1), 107001, "more often");
    OK(aclrtSetDevice(0));
    aclrtRunMode mode = ACL_DEVICE;
    OK(aclrtGetRunMode(&mode));
    EXPECT(mode == ACL_HOST);
    int64_t cores = 0;
    OK(aclGetDeviceCapability(0, ACL_DEVICE_INFO_VECTOR_CORE_NUM, &cores));
    EXPECT(cores == 48);
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
}

static void contexts() {
    OK(aclInit(nullptr));
    OK(aclrtSetDevice(0));
    aclrtContext zero = nullptr, one = nullptr, now = nullptr;
    OK(aclrtGetCurrentContext(&zero));
    aclrtStream on_zero = nullptr, on_one = nullptr;
    OK(aclrtCreateStream(&on_zero));
    OK(aclrtCreateContext(&one, 1));  // becomes the current one
    OK(aclrtGetCurrentContext(&now));
    EXPECT(now == one);
    OK(aclrtCreateStream(&on_one));
    aclrtEvent event = nullptr;
    OK(aclrtCreateEvent(&event));
    EXPECT_CODE(aclrtRecordEvent(event, on_zero), 107003);
    EXPECT_CODE(aclrtDestroyStream(on_zero), 107003);
    EXPECT_CODE(aclrtStreamWaitEvent(on_zero, event), 107003);
    int word = 0;
    void *p = nullptr;
    OK(aclrtMalloc(&p, 4, ACL_MEM_MALLOC_HUGE_FIRST));
    EXPECT_CODE(aclrtMemcpyAsync(p, 4, &word, 4, ACL_MEMCPY_HOST_TO_DEVICE, on_zero), 107003);
    OK(aclrtSynchronizeStream(on_zero));  // switches by itself
    OK(aclrtFree(p));
    OK(aclrtDestroyEvent(event));
    OK(aclrtDestroyStream(on_one));
    OK(aclrtDestroyContext(one));
    EXPECT_CODE(aclrtGetCurrentContext(&now), 107002);
    EXPECT_VIOLATION(aclrtSetCurrentContext(one), 107017, "already destroyed");
    OK(aclrtSetCurrentContext(zero));
    {
        Grad g;
        aclrtContext other = nullptr;
        OK(g.one());
        g.need_workspace();
        OK(aclrtCreateContext(&other, 0));
        EXPECT_CODE(g.two(on_zero), 107003);  // and the executor is used up
        EXPECT_CODE(count("executors"), 0);
        OK(aclrtDestroyContext(other));
        OK(aclrtSetCurrentContext(zero));
    }
    OK(aclrtDestroyStream(on_zero));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
}

static void memory() {
    Session s;
    void *p = reinterpret_cast<void *>(1);
    EXPECT_CODE(aclrtMalloc(&p, 0, ACL_MEM_MALLOC_HUGE_FIRST), 100000);
    EXPECT_CODE(aclrtMalloc(nullptr, 8, ACL_MEM_MALLOC_HUGE_FIRST), 100000);
    EXPECT_CODE(aclrtMallocHost(&p, 0), 100000);
    EXPECT_CODE(aclrtFree(nullptr), 100000);
    EXPECT_CODE(aclrtFreeHost(nullptr), 100000);
    size_t before = 0, after = 0, total = 0;
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total));
    EXPECT(total == size_t{64} << 20 && before == total);
    OK(aclrtMalloc(&p, 33, static_cast<aclrtMemMallocPolicy>(77)));
    EXPECT(reinterpret_cast<uintptr_t>(p) % 64 == 0);
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total));
    EXPECT(before - after == 64 + 32);
    unsigned char fresh[33];
    OK(aclrtMemcpy(fresh, 33, p, 33, ACL_MEMCPY_DEVICE_TO_HOST));
    for (unsigned char c : fresh) EXPECT(c == 0xA5);  // poisoned, not zero
    OK(aclrtFree(p));
    OK(aclrtMallocAlign32(&p, 33, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total));
    EXPECT(before - after == 64);
    OK(aclrtFreeWithDevSync(p));
    EXPECT_CODE(aclrtMalloc(&p, 64 << 20, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
    EXPECT(error_text().find("67108864") != std::string::npos);
    EXPECT_CODE(aclrtMalloc(&p, SIZE_MAX, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
    OK(aclrtMalloc(&p, 60 << 20, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtFree(p));
    EXPECT_CODE(count("device_allocations"), 0);
    OK(aclrtMallocHost(&p, 10));
    EXPECT_CODE(count("host_bytes"), 10);
    OK(aclrtFreeHost(p));
}

static void copies() {
    Session s;
    void *d = nullptr;
    OK(aclrtMalloc(&d, 16, ACL_MEM_MALLOC_HUGE_FIRST));
    char host[16] = "abcdefghijklmno", back[16] = "";
    OK(aclrtMemcpy(nullptr, 0, nullptr, 0, ACL_MEMCPY_HOST_TO_DEVICE));
    EXPECT_CODE(aclrtMemcpy(nullptr, 16, host, 16, ACL_MEMCPY_HOST_TO_DEVICE), 100000);
    EXPECT_CODE(aclrtMemcpy(d, 15, host, 16, ACL_MEMCPY_HOST_TO_DEVICE), 107000);
    EXPECT_CODE(aclrtMemcpy(d, 16, host, 16, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE), 100000);
    OK(aclrtMemcpy(d, 16, d, 16, ACL_MEMCPY_DEVICE_TO_DEVICE));
    OK(aclrtMemcpy(d, 16, host, 16, ACL_MEMCPY_HOST_TO_DEVICE));
    OK(aclrtMemcpy(back, 16, d, 16, ACL_MEMCPY_DEFAULT));
    EXPECT(memcmp(host, back, 16) == 0);
    OK(aclrtMemset(d, 16, 0x1234, 4));
    EXPECT_CODE(aclrtMemset(d, 3, 0, 4), 107000);
    EXPECT_CODE(aclrtMemset(nullptr, 3, 0, 1), 100000);
    OK(aclrtMemset(nullptr, 0, 0, 0));
    OK(aclrtMemcpy(back, 16, d, 16, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(memcmp(back, "\x34\x34\x34\x34" "efgh", 8) == 0);
    EXPECT_CODE(aclrtMemcpyAsync(back, 16, host, 16, ACL_MEMCPY_HOST_TO_HOST, s.stream), 207000);
    char *pinned = nullptr;
    OK(aclrtMallocHost(reinterpret_cast<void **>(&pinned), 16));
    OK(aclrtMemsetAsync(d, 16, 7, 16, s.stream));
    OK(aclrtMemcpyAsync(pinned, 16, d, 16, ACL_MEMCPY_DEVICE_TO_HOST, s.stream));
    OK(aclrtSynchronizeStream(s.stream));
    for (int i = 0; i < 16; ++i) EXPECT(pinned[i] == 7);
    OK(aclrtMemsetAsync(d, 16, 9, 16, s.stream));
    OK(aclrtMemcpyAsync(back, 16, d, 16, ACL_MEMCPY_DEVICE_TO_HOST, s.stream));  // pageable: done on return
    EXPECT(back[15] == 9);
    OK(aclrtMemset(d, 16, 0, 16));  // so the host has waited for the fill as well
    OK(aclrtFreeHost(pinned));
    OK(aclrtFree(d));
}

static void streams() {
    Session s;
    EXPECT_CODE(aclrtDestroyStream(nullptr), 100000);
    EXPECT_CODE(aclrtSynchronizeStreamWithTimeout(s.stream, -2), 107000);
    OK(aclrtSynchronizeStreamWithTimeout(s.stream, -1));
    OK(aclrtSynchronizeStream(nullptr));  // the context's default stream
    aclrtStream other = nullptr, fallback = nullptr;
    OK(aclrtCreateStreamWithConfig(&other, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC));
    int32_t a = -1, b = -1;
    OK(aclrtStreamGetId(s.stream, &a));
    OK(aclrtStreamGetId(other, &b));
    EXPECT(a != b);
    OK(aclrtCtxGetCurrentDefaultStream(&fallback));
    Grad g;
    OK(g.one());
    g.need_workspace();
    OK(g.two(fallback));
    OK(aclrtSynchronizeStream(nullptr));
    EXPECT(g.right());
    EXPECT_CODE(aclrtDestroyStream(fallback), 107000);

    aclnnEmulatorSetDelay(200);
    OK(g.one());
    OK(g.two(s.stream));
    EXPECT_CODE(aclrtSynchronizeStreamWithTimeout(s.stream, 5), 507046);
    aclrtStreamStatus status = ACL_STREAM_STATUS_COMPLETE;
    OK(aclrtStreamQuery(s.stream, &status));
    EXPECT(status == ACL_STREAM_STATUS_NOT_READY);
    EXPECT_CODE(aclrtSynchronizeDeviceWithTimeout(1), 507046);
    OK(aclrtSynchronizeDevice());
    aclnnEmulatorSetDelay(0);
    OK(aclrtStreamQuery(s.stream, &status));
    EXPECT(status == ACL_STREAM_STATUS_COMPLETE);
    OK(aclrtDestroyStream(other));
    EXPECT_VIOLATION(aclrtSynchronizeStream(other), 107017, "already destroyed");
    EXPECT_VIOLATION(aclrtDestroyStream(&other), 107017, "no such handle");

    // an aborted stream drops what has not started
    aclnnEmulatorSetDelay(50);
    int64_t launches = count("launches");
    for (int i = 0; i < 4; ++i) {
        OK(g.one());
        OK(g.two(s.stream));
    }
    OK(aclrtStreamAbort(s.stream));
    OK(aclrtSynchronizeStream(s.stream));
    aclnnEmulatorSetDelay(0);
    EXPECT(count("launches") - launches <= 1);
}

static void events() {
    Session s;
    aclrtStream other = nullptr;
    OK(aclrtCreateStream(&other));
    aclrtEvent start = nullptr, end = nullptr, plain = nullptr;
    OK(aclrtCreateEvent(&start));
    OK(aclrtCreateEventWithFlag(&end, ACL_EVENT_TIME_LINE));
    OK(aclrtCreateEventExWithFlag(&plain, ACL_EVENT_SYNC));
    float ms = -1;
    EXPECT_CODE(aclrtEventElapsedTime(&ms, start, end), 107006);
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_COMPLETE;
    OK(aclrtQueryEventStatus(start, &status));
    EXPECT(status == ACL_EVENT_RECORDED_STATUS_NOT_READY);
    OK(aclrtRecordEvent(start, s.stream));
    Grad g;
    OK(g.one());
    g.need_workspace();
    aclnnEmulatorSetDelay(40);
    OK(g.two(s.stream));
    OK(aclrtRecordEvent(end, s.stream));
    EXPECT_CODE(aclrtEventElapsedTime(&ms, start, end), 507006);
    EXPECT_CODE(aclrtSynchronizeEventWithTimeout(end, 1), 507047);
    EXPECT_CODE(aclrtSynchronizeEventWithTimeout(end, -2), 107000);
    OK(aclrtSynchronizeEvent(end));
    aclnnEmulatorSetDelay(0);
    OK(aclrtEventElapsedTime(&ms, start, end));
    EXPECT(ms >= 39.0f);
    EXPECT_CODE(aclrtEventElapsedTime(&ms, end, start), 107007);
    OK(aclrtRecordEvent(plain, s.stream));
    OK(aclrtSynchronizeEvent(plain));
    EXPECT_CODE(aclrtEventElapsedTime(&ms, start, plain), 107006);
    OK(aclrtQueryEventStatus(end, &status));
    EXPECT(status == ACL_EVENT_RECORDED_STATUS_COMPLETE);

    // an event orders two streams: the copy waits for the slow kernel of the other one
    float *pinned = nullptr;
    OK(aclrtMallocHost(reinterpret_cast<void **>(&pinned), 32));
    g.clear();
    aclnnEmulatorSetDelay(40);
    OK(g.one());
    OK(g.two(s.stream));
    OK(aclrtRecordEvent(end, s.stream));
    OK(aclrtStreamWaitEvent(other, end));
    OK(aclrtMemcpyAsync(pinned, 32, g.out.data, 32, ACL_MEMCPY_DEVICE_TO_HOST, other));
    OK(aclrtSynchronizeStream(other));
    aclnnEmulatorSetDelay(0);
    EXPECT(pinned[0] == 5.0f);
    g.clear();  // the host has waited for the other stream, which had waited for this one
    OK(aclrtFreeHost(pinned));
    for (aclrtEvent e : {start, end, plain}) OK(aclrtDestroyEvent(e));
    EXPECT_VIOLATION(aclrtDestroyEvent(start), 107017, "already destroyed");
    EXPECT_CODE(aclrtDestroyEvent(nullptr), 100000);
    OK(aclrtDestroyStream(other));
}

static void errors() {
    Session s;
    while (aclGetRecentErrMsg() != nullptr) {
    }
    aclrtGetLastError(ACL_RT_THREAD_LEVEL);
    EXPECT(aclGetRecentErrMsg() == nullptr);
    EXPECT_CODE(aclrtFree(nullptr), 100000);
    std::thread([] { EXPECT(aclGetRecentErrMsg() == nullptr); }).join();
    EXPECT(error_text() == "aclrtFree: the pointer is null");
    EXPECT(aclGetRecentErrMsg() == nullptr);  // drained
    EXPECT_CODE(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 100000);
    EXPECT_CODE(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 100000);
    EXPECT_CODE(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 0);
}

static void information() {
    Session s;
    int32_t major = 0, minor = 0, patch = 0;
    OK(aclrtGetVersion(&major, &minor, &patch));
    EXPECT(major == 1 && minor == 17 && patch == 0);
    aclCANNPackageVersion version;
    OK(aclsysGetCANNVersion(ACL_PKG_NAME_CANN, &version));
    EXPECT(std::string(version.version) == "9.1.0");
    char text[128] = "";
    OK(aclsysGetVersionStr(const_cast<char *>("runtime"), text));
    EXPECT(std::string(text) == "9.1.0");
    int64_t value = 7;
    OK(aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value));
    EXPECT(value == 0);
    EXPECT_CODE(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), 107021);
    OK(aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1));
    OK(aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value));
    EXPECT(value == 1);
    OK(aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1));
    OK(aclrtSetOpExecuteTimeOut(100));
    int32_t attribute = 0;
    OK(aclGetCannAttribute(ACL_CANN_ATTR_BF16, &attribute));
    EXPECT(attribute == 1);
    EXPECT(aclDataTypeSize(ACL_BF16) == 2 && aclDataTypeSize(ACL_INT4) == 1 && aclDataTypeSize(ACL_STRING) == 0);
    EXPECT(aclDataTypeSize(ACL_COMPLEX32) == 4 && aclDataTypeSize(ACL_FLOAT4_E2M1) == 8);
    EXPECT(aclDataTypeSize(ACL_COMPLEX128) == 16 && aclDataTypeSize(ACL_FLOAT8_E5M2) == 1);
}

int main() {
    aclnnEmulatorSetStrict(1);
    EXPECT(std::string(aclnnEmulatorVersion()) != "");
    initialisation();
    devices();
    contexts();
    memory();
    copies();
    streams();
    events();
    errors();
    information();
    expect_no_handles();
    puts("ok");
}
