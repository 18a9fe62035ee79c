// ACLNN_EMULATOR_RECORD: each kernel's arguments and data, one JSON object a line.
#include <fstream>

#include "harness.h"

static bool has(const std::string &line, const char *part) {
    if (line.find(part) != std::string::npos) return true;
    fprintf(stderr, "no %s in %s\n", part, line.c_str());
    return false;
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
    }
    std::ifstream file(path);
    std::string first, second, third;
    EXPECT(static_cast<bool>(std::getline(file, first)));
    EXPECT(static_cast<bool>(std::getline(file, second)));
    EXPECT(!std::getline(file, third));
    EXPECT(has(first, "{\"op\":\"aclnnMoeFinalizeRoutingV2Grad\""));
    EXPECT(has(first, "\"name\":\"gradY\",\"kind\":\"tensor\",\"value\":{\"dtype\":\"float32\",\"shape\":[2,4],"
                      "\"strides\":[4,1],\"offset\":0,\"format\":2,\"storage\":[2,4]"));
    EXPECT(has(first, "\"data\":[1,2,3,4,5,6,7,8]"));
    EXPECT(has(first, "\"name\":\"scalesOptional\",\"kind\":\"tensor\",\"value\":null"));
    EXPECT(has(first, "\"name\":\"dropPadMode\",\"kind\":\"int\",\"value\":0"));
    EXPECT(has(first, "\"status\":0,\"written\":{\"gradExpandedXOut\":{\"data\":[5,6,7,8,1,2,3,4]}"));
    EXPECT(has(second, "\"name\":\"rangeOptional\",\"kind\":\"ints\",\"value\":[0,2]"));
    puts("ok");
}
