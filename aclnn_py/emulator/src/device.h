// Devices, contexts and the thread's current context.
#pragma once

#include <cstdint>
#include <memory>

#include "core.h"

namespace emu {

class Stream;

struct Context {
    int device = 0;
    bool is_default = false;
    std::shared_ptr<Stream> stream;  // its default stream
    void *stream_handle = nullptr;   // made when asked for
};

// The current context of this thread, or nullptr with the failure 107002 set.
Context *current_context(const char *api);

// Resolves a stream argument; NULL is the default stream of the current context. On failure returns nullptr and
// sets code: 107002 without a context, 107017 for a handle that is none, 107003 for another context's stream.
std::shared_ptr<Stream> resolve_stream(const char *api, aclrtStream stream, int &code, bool any_context = false);

// The device of threads that set none, -1 for none, as aclInit's configuration may name it.
void set_default_device(int id);

// What aclFinalize does: every context, stream and allocation goes.
void close_all_devices();

}  // namespace emu
