// Operators that the emulator does not compute: both stages by name and argument letters, for the record of calls.
#include <cstdarg>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "aclnn_emulator.h"
#include "executor.h"

namespace emu {

namespace {

struct Known {
    std::string name, stage_one, parameters;
    Op op;
};

Status accept(const std::vector<Arg> &, const Config &) { return {}; }
void leave_outputs(std::vector<Arg> &, const Config &) {}

// Made at the first call of either stage and kept: executors point at it.
const Known &known(const char *name, const char *parameters) {
    static auto *mutex = new std::mutex;
    static auto *all = new std::map<std::string, std::unique_ptr<Known>>;
    std::lock_guard<std::mutex> lock(*mutex);
    std::unique_ptr<Known> &entry = (*all)[name];
    if (entry == nullptr) {
        entry.reset(new Known{name, std::string(name) + "GetWorkspaceSize", "", {}});
        entry->op = Op{entry->name.c_str(), Kind::Composite, accept, leave_outputs};
    }
    if (entry->parameters.empty() && parameters != nullptr) entry->parameters = parameters;
    return *entry;
}

}  // namespace

}  // namespace emu

using namespace emu;

int32_t aclnnEmulatorStageOne(const char *op, const char *parameters, const char *letters, uint64_t *workspaceSize,
                              aclOpExecutor **executor, ...) {
    const Known &entry = known(op, parameters);
    Call call(entry.op, entry.stage_one.c_str(), entry.parameters.c_str(), workspaceSize, executor);
    if (aclnnStatus code = call.begin()) return code;
    va_list list;
    va_start(list, executor);
    for (const char *letter = letters; *letter != '\0'; ++letter) {
        switch (*letter) {
            case 't': call.add(va_arg(list, const aclTensor *)); break;
            case 'l': call.add(va_arg(list, const aclTensorList *)); break;
            case 's': call.add(va_arg(list, const aclScalar *)); break;
            case 'S': call.add(va_arg(list, const aclScalarList *)); break;
            case 'I': call.add(va_arg(list, const aclIntArray *)); break;
            case 'F': call.add(va_arg(list, const aclFloatArray *)); break;
            case 'B': call.add(va_arg(list, const aclBoolArray *)); break;
            case 'c': call.add(va_arg(list, const char *)); break;
            case 'd': call.add(va_arg(list, double)); break;
            default: call.add(static_cast<int64_t>(va_arg(list, long long))); break;
        }
    }
    va_end(list);
    return call.finish();
}

int32_t aclnnEmulatorStageTwo(const char *op, void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                              aclrtStream stream) {
    return stage_two(known(op, nullptr).op, workspace, workspaceSize, executor, stream);
}
