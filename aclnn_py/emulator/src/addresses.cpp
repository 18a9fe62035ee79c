// aclSet*TensorAddr in both spellings, and what little remains of libnnopbase.
#include <cstring>

#include "device.h"
#include "executor.h"

namespace emu {

namespace {

enum class Side { Input, Output, Any };

// C does not tell directions apart; CANN's names do.
bool is_output(const std::string &name) {
    auto ends = [&name](const char *tail) {
        size_t n = strlen(tail);
        return name.size() >= n && name.compare(name.size() - n, n, tail) == 0;
    };
    return name == "out" || name == "y" || name == "gradInput" || ends("Out") || ends("Ref") || ends("OutOptional");
}

// The argument at that position among the tensor (and tensor list) arguments: of one side, or inputs then outputs.
int argument_at(const Executor &executor, Side side, size_t index) {
    for (int pass = 0; pass < 2; ++pass) {
        bool outputs = pass == 1;
        if ((side == Side::Input && outputs) || (side == Side::Output && !outputs)) continue;
        const char *at = executor.parameters;
        for (size_t i = 0; i < executor.kinds.size() && at != nullptr; ++i) {
            std::string name(at, strcspn(at, ","));
            at = strchr(at, ',');
            if (at != nullptr) ++at;
            char kind = executor.kinds[i];
            if ((kind != 't' && kind != 'l') || is_output(name) != outputs) continue;
            if (index == 0) return static_cast<int>(i);
            --index;
        }
    }
    return -1;
}

aclnnStatus set_address(const char *api, aclOpExecutor *handle, Side side, size_t index, int item, Tensor *tensor,
                        const void *tensor_handle, void *address) {
    Executor *executor = executors().get(handle);
    if (executor == nullptr || executor->state != Executor::State::Ready) {
        violation(api, "executor %p: %s", static_cast<void *>(handle), executors().describe(handle));
        return fail(api, 561000, "executor %p is not live", static_cast<void *>(handle));
    }
    if (!executor->repeatable && violation(api, "the executor is not repeatable")) return 561000;
    int argument = argument_at(*executor, side, index);
    for (Operand &operand : executor->operands) {
        if (operand.argument != argument || operand.item != item) continue;
        if (operand.handle != tensor_handle &&
            violation(api, "the tensor is not the one that stage one got at position %zu", index)) {
            return 161002;
        }
        place(executor->args, operand, address);
        tensor->data.store(address);
        return 0;
    }
    return fail(api, 161002, "no tensor at position %zu", index);
}

aclnnStatus set_tensor(const char *api, aclOpExecutor *executor, Side side, size_t index, aclTensor *tensor,
                       void *address) {
    if (int injected = enter(api)) return injected;
    if (executor == nullptr || tensor == nullptr) {
        return fail(api, 561103, "%s is null", executor == nullptr ? "executor" : "tensor");
    }
    Tensor *object = tensors().get(tensor);
    if (object == nullptr) {
        violation(api, "tensor %p: %s", static_cast<void *>(tensor), tensors().describe(tensor));
        return fail(api, 161002, "tensor %p: %s", static_cast<void *>(tensor), tensors().describe(tensor));
    }
    return set_address(api, executor, side, index, -1, object, tensor, address);
}

aclnnStatus set_in_list(const char *api, aclOpExecutor *executor, Side side, size_t index, size_t relative,
                        aclTensorList *list, void *address) {
    if (int injected = enter(api)) return injected;
    if (executor == nullptr || list == nullptr) {
        return fail(api, 561103, "%s is null", executor == nullptr ? "executor" : "tensors");
    }
    TensorList *object = tensor_lists().get(list);
    if (object == nullptr) {
        violation(api, "list %p: %s", static_cast<void *>(list), tensor_lists().describe(list));
        return fail(api, 161002, "list %p: %s", static_cast<void *>(list), tensor_lists().describe(list));
    }
    if (relative >= object->members.size()) {
        return fail(api, 161002, "position %zu, the list has %zu", relative, object->members.size());
    }
    const Member &member = object->members[relative];
    Tensor *tensor = tensors().get_same(member.handle, member.generation);
    if (tensor == nullptr) return fail(api, 161002, "element %zu is null or destroyed", relative);
    return set_address(api, executor, side, index, static_cast<int>(relative), tensor, member.handle, address);
}

}  // namespace

}  // namespace emu

using namespace emu;

#define SETTERS(prefix)                                                                                               \
    aclnnStatus prefix##SetInputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor,            \
                                           void *addr) {                                                              \
        return set_tensor(__func__, executor, Side::Input, index, tensor, addr);                                      \
    }                                                                                                                 \
    aclnnStatus prefix##SetOutputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor,           \
                                            void *addr) {                                                             \
        return set_tensor(__func__, executor, Side::Output, index, tensor, addr);                                     \
    }                                                                                                                 \
    aclnnStatus prefix##SetTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr) {   \
        return set_tensor(__func__, executor, Side::Any, index, tensor, addr);                                        \
    }                                                                                                                 \
    aclnnStatus prefix##SetDynamicInputTensorAddr(aclOpExecutor *executor, size_t irIndex,                            \
                                                  const size_t relativeIndex, aclTensorList *tensors, void *addr) {   \
        return set_in_list(__func__, executor, Side::Input, irIndex, relativeIndex, tensors, addr);                   \
    }                                                                                                                 \
    aclnnStatus prefix##SetDynamicOutputTensorAddr(aclOpExecutor *executor, size_t irIndex,                           \
                                                   const size_t relativeIndex, aclTensorList *tensors, void *addr) {  \
        return set_in_list(__func__, executor, Side::Output, irIndex, relativeIndex, tensors, addr);                  \
    }                                                                                                                 \
    aclnnStatus prefix##SetDynamicTensorAddr(aclOpExecutor *executor, size_t irIndex, const size_t relativeIndex,     \
                                             aclTensorList *tensors, void *addr) {                                    \
        return set_in_list(__func__, executor, Side::Any, irIndex, relativeIndex, tensors, addr);                     \
    }
SETTERS(acl)
SETTERS(Acl)
#undef SETTERS

aclnnStatus aclnnInit(const char *) {
    EMU_ENTER_STATUS();
    return 0;
}

aclnnStatus aclnnFinalize(void) { return enter(__func__); }

aclnnStatus aclDumpOpTensors(const char *opType, const char *opName, aclTensor **tensors, size_t, size_t,
                             aclrtStream stream) {
    EMU_ENTER_STATUS();
    if (opType == nullptr || opName == nullptr || tensors == nullptr || stream == nullptr) {
        return fail(__func__, 161001, "an argument is null");
    }
    return fail(__func__, 207000, "the emulator dumps no tensors: see ACLNN_EMULATOR_RECORD");
}
