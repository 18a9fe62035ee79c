// Not C++: a bracket is never closed.
#include "common.h"
#include "aclnnop/aclnn_neg.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<float> host = {1, 2;
    Finish(0, stream);
    return 0;
}
