// ACLNN_EMULATOR_RECORD: each kernel's arguments and data, and what happens to device memory, one JSON object a line.
#include <fstream>
#include <vector>

#include "harness.h"

static bool has(const std::string &line, const char *part) {
    if (line.find(part) != std::string::npos) return true;
    fprintf(stderr, "no %s in %s\n", part, line.c_str());
    return false;
}

// A transposed view with an offset and exact integers, through the entry points of an operator that is not computed.
static void generic(Session &s) {
    const int64_t big = (int64_t{1} << 53) + 1;
    Tensor x({7}, ACL_INT64, std::vector<int64_t>{big, 2, 3, 4, 5, 6, 7});
    const int64_t dims[] = {2, 3}, strides[] = {1, 2}, storage[] = {7};
    aclTensor *view = aclCreateTensor(dims, 2, ACL_INT64, strides, 1, ACL_FORMAT_ND, storage, 1, x.data);
    aclTensor *empty = aclCreateTensor(dims, 0, ACL_INT64, nullptr, 0, ACL_FORMAT_ND, dims, 0, x.data);
    int64_t numbers[] = {3, 4};
    aclIntArray *array = aclCreateIntArray(numbers, 2);
    float half = 0.5f;
    aclScalar *scalar = aclCreateScalar(&half, ACL_FLOAT);
    for (int round = 0; round < 2; ++round) {  // the second from the op cache
        uint64_t workspace = 1;
        aclOpExecutor *executor = nullptr;
        OK(aclnnEmulatorStageOne("aclnnMine", "x,y,dims,alpha,name,eps,n", "ttIscdi", &workspace, &executor, view, empty,
                                 array, scalar, "a\"b", 0.25, static_cast<long long>(big)));
        EXPECT(workspace == 0);
        OK(aclnnEmulatorStageTwo("aclnnMine", nullptr, 0, executor, s.stream));
        OK(aclrtSynchronizeStream(s.stream));
    }
    uint64_t workspace = 0;
    aclOpExecutor *executor = nullptr;
    EXPECT(aclnnEmulatorStageOne("aclnnMine", "x", "t", nullptr, &executor, view) == 161001);
    EXPECT(aclnnEmulatorStageOne("aclnnMine", "x", "t", &workspace, &executor, &half) == 161002);
    int64_t back[3];
    OK(aclrtMemcpy(back, sizeof back, x.data, sizeof back, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(back[0] == big);
    OK(aclDestroyTensor(view));
    OK(aclDestroyTensor(empty));
    OK(aclDestroyIntArray(array));
    OK(aclDestroyScalar(scalar));
}

int main() {
    const char *path = getenv("ACLNN_EMULATOR_RECORD");
    EXPECT(path != nullptr);
    remove(path);
    {
        Session s;
        Grad g;
        OK(g.one());
        g.need_workspace();
        OK(g.two(s.stream));
        EpGrad e;
        OK(e.one());
        e.need_workspace();
        OK(e.two(s.stream));
        OK(aclrtSynchronizeStream(s.stream));
        generic(s);
    }
    std::ifstream file(path);
    std::vector<std::string> calls, events;
    for (std::string line; std::getline(file, line);) {
        (line.compare(0, 7, "{\"op\":\"") == 0 ? calls : events).push_back(line);
    }
    EXPECT(calls.size() == 4);
    const std::string &first = calls[0], &second = calls[1], &third = calls[2], &fourth = calls[3];
    EXPECT(has(first, "{\"op\":\"aclnnMoeFinalizeRoutingV2Grad\""));
    EXPECT(has(first, "\"name\":\"gradY\",\"kind\":\"tensor\",\"value\":{\"dtype\":\"float32\",\"shape\":[2,4],"
                      "\"strides\":[4,1],\"offset\":0,\"format\":2,\"storage\":[2,4]"));
    EXPECT(has(first, "\"data\":[1,2,3,4,5,6,7,8]"));
    EXPECT(has(first, "\"name\":\"scalesOptional\",\"kind\":\"tensor\",\"value\":null"));
    EXPECT(has(first, "\"name\":\"dropPadMode\",\"kind\":\"int\",\"value\":0"));
    EXPECT(has(first, "\"status\":0,\"written\":{\"gradExpandedXOut\":{\"data\":[5,6,7,8,1,2,3,4]}"));
    EXPECT(has(second, "\"name\":\"rangeOptional\",\"kind\":\"ints\",\"value\":[0,2]"));
    EXPECT(has(third, "{\"op\":\"aclnnMine\""));
    EXPECT(has(third, "\"shape\":[2,3],\"strides\":[1,2],\"offset\":1,\"format\":2,\"storage\":[7]"));
    EXPECT(has(third, "\"data\":[2,4,6,3,5,7],\"memory\":\"AQAAAAAAIAACAAAAAAAAAAMAAAAAAAAA"));
    EXPECT(has(third, "\"shape\":[],\"strides\":[],\"offset\":0"));
    EXPECT(has(third, "\"data\":[9007199254740993]}"));
    EXPECT(has(third, "\"name\":\"dims\",\"kind\":\"ints\",\"value\":[3,4]"));
    EXPECT(has(third, "\"kind\":\"scalar\",\"value\":{\"dtype\":\"float32\",\"value\":0.5"));
    EXPECT(has(third, "\"kind\":\"string\",\"value\":\"a\\\"b\""));
    EXPECT(has(third, "\"kind\":\"double\",\"value\":0.25"));
    EXPECT(has(third, "\"name\":\"n\",\"kind\":\"int\",\"value\":9007199254740993"));
    EXPECT(has(third, "\"written\":{}}"));
    EXPECT(fourth == third);
    EXPECT(has(events[0], "{\"event\":\"allocate\",\"address\":\"0x"));
    EXPECT(has(events[1], "{\"event\":\"copy\",\"to\":\"0x"));
    EXPECT(has(events[1], ",\"from\":null,\"bytes\":"));
    EXPECT(has(events.back(), "{\"event\":\"copy\",\"to\":null,\"from\":\"0x"));
    EXPECT(has(events.back(), "\"bytes\":24}"));
    puts("ok");
}
