// Executors: what stage one makes and stage two uses up.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core.h"
#include "descriptors.h"
#include "handles.h"
#include "log.h"
#include "memory.h"
#include "stream.h"

namespace emu {

// One tensor of a call: where its view sits in the arguments, and where its bytes are.
struct Operand {
    const void *handle = nullptr;  // the caller's aclTensor
    uint32_t generation = 0;
    int argument = 0;
    int item = -1;          // position in a list, -1 for a plain tensor
    void *base = nullptr;   // data address without the view offset
    int64_t shift = 0;      // bytes from base to the view's first element
    int64_t lowest = 0, end = 0;  // bytes from base that the view touches: [lowest, end)
    std::string described;      // JSON, when calls are recorded
    bool indirect = false;      // then too: the storage holds more, or in another order, than the view
    size_t storage_bytes = 0;
};

struct Executor {
    enum class State { Ready, Stuck, Failed };  // Stuck: refused launch of kind B; Failed: its stage one failed

    const Op *op = nullptr;
    const char *name = nullptr;        // of stage two
    const char *parameters = nullptr;  // C names, separated by commas
    bool wrapper = false;              // A': from a hit in the op cache
    bool repeatable = false;
    bool handed_over = false;          // may be launched on another thread
    bool launch = true;
    State state = State::Ready;
    uint64_t thread = 0;
    uint64_t serial = 0;               // of its stage one
    uint64_t workspace = 0;
    Config config;
    std::vector<Arg> args;
    std::string kinds;                 // a letter for each argument: see Call::add
    std::vector<Operand> operands;
    std::string key;                   // of the op cache, composite only
};

HandleTable<Executor> &executors();

View &view_of(std::vector<Arg> &args, const Operand &operand);
void place(std::vector<Arg> &args, Operand &operand, void *base);

// Stage one while its arguments are being read.
struct Call {
    Call(const Op &op, const char *api, const char *parameters, uint64_t *workspace_size, aclOpExecutor **executor);
    ~Call();

    // Null checks, context, slot; the status to return, or 0.
    aclnnStatus begin();
    // Cache, check, executor.
    aclnnStatus finish();

    void add(const aclTensor *tensor);
    void add(const aclScalar *scalar);
    void add(const aclIntArray *array);
    void add(const aclFloatArray *array);
    void add(const aclBoolArray *array);
    void add(const aclTensorList *list);
    void add(const aclScalarList *list);
    void add(const char *text);
    void add(double value);
    void add(float value) { add(static_cast<double>(value)); }
    void add(int64_t value);
    void add(uint64_t value) { add(static_cast<int64_t>(value)); }
    void add(int32_t value) { add(static_cast<int64_t>(value)); }
    void add(uint32_t value) { add(static_cast<int64_t>(value)); }
    void add(int8_t value) { add(static_cast<int64_t>(value)); }
    void add(bool value) { add(static_cast<int64_t>(value)); }
    void add(aclDataType value) { add(static_cast<int64_t>(value)); }

    const Op &op;
    const char *api;
    uint64_t *workspace_size;
    aclOpExecutor **out;
    std::unique_ptr<Executor> executor;

  private:
    template <class T>
    const T *lookup(HandleTable<T> &table, const void *handle, uint32_t *generation = nullptr);
    void read_tensor(const Tensor &tensor, const void *handle, uint32_t generation, int item, View &view);
    void read_scalar(const Scalar &scalar, Arg &arg);
    void key(const void *data, size_t size) { executor->key.append(static_cast<const char *>(data), size); }
    template <class T>
    void key(const T &value) {
        key(&value, sizeof value);
    }
    const char *parameter();  // name of the argument being read

    void *slot_ = nullptr;  // kind B: handle written before the checks
    Executor *slotted_ = nullptr;
    int bad_ = 0;  // status of the first bad argument
};

// What the generated entry points call.
template <class... Arguments>
aclnnStatus stage_one(const Op &op, const char *api, const char *parameters, uint64_t *workspace_size,
                      aclOpExecutor **executor, Arguments... arguments) {
    Call call(op, api, parameters, workspace_size, executor);
    if (aclnnStatus code = call.begin()) return code;
    (call.add(arguments), ...);
    return call.finish();
}

aclnnStatus stage_two(const Op &op, void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
                      aclrtStream stream);

// ---- op cache (cache.cpp), one per thread ----------------------------------------------------------------------

struct Cached {
    uint64_t workspace = 0;
    bool launch = true;
};
bool cache_find(const std::string &key, Cached &out);
void cache_insert(const std::string &key, const Cached &value);  // after the first stage two
void cache_forget(const std::string &key);                       // and never again on this thread

// ---- launch (launch.cpp) ---------------------------------------------------------------------------------------

// Checks the operands' memory and queues the kernel.
aclnnStatus launch(const char *api, Executor &executor, bool keep, void *workspace, uint64_t workspace_size,
                   const std::shared_ptr<Stream> &stream);

// ---- recording (record.cpp) ------------------------------------------------------------------------------------

std::string describe_tensor(const Tensor &tensor, const void *base);
class Recorder {
  public:
    Recorder(const Executor &executor, const std::vector<Operand> &operands);
    void before(std::vector<Arg> &args);
    void after(std::vector<Arg> &args, int code);
    void idle(std::vector<Arg> &args);  // a call that runs no kernel

  private:
    std::vector<Operand> operands_;
    std::string kinds_, op_, parameters_, line_;
    uint64_t workspace_;
    std::vector<std::string> data_;
};

}  // namespace emu
