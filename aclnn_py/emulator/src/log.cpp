#include "log.h"

#include <cstdio>
#include <mutex>

#include "core.h"

namespace emu {

namespace {

struct Log {
    std::mutex mutex;
    FILE *file = nullptr;
};

Log &log() {
    static Log *instance = [] {
        auto *made = new Log;
        const std::string &path = settings().record;
        if (path.empty()) return made;
        made->file = fopen(path.c_str(), "a");
        if (made->file == nullptr) fprintf(stderr, "aclnn emulator: cannot write %s\n", path.c_str());
        return made;
    }();
    return *instance;
}

std::string address(const void *pointer) {
    if (pointer == nullptr) return "null";
    char text[24];
    snprintf(text, sizeof text, "\"%p\"", pointer);
    return text;
}

void event(const char *name, const std::string &fields, size_t bytes) {
    log_line(std::string("{\"event\":\"") + name + "\"," + fields + ",\"bytes\":" + std::to_string(bytes) + "}");
}

}  // namespace

bool recording() { return log().file != nullptr; }

void log_line(const std::string &json) {
    std::lock_guard<std::mutex> lock(log().mutex);
    fwrite(json.data(), 1, json.size(), log().file);
    fputc('\n', log().file);
    fflush(log().file);
}

void log_allocation(const void *pointer, size_t bytes) {
    if (recording()) event("allocate", "\"address\":" + address(pointer), bytes);
}

void log_copy(const void *to, const void *from, size_t bytes) {
    if (recording()) event("copy", "\"to\":" + address(to) + ",\"from\":" + address(from), bytes);
}

void log_fill(const void *to, size_t bytes) {
    if (recording()) event("fill", "\"to\":" + address(to), bytes);
}

}  // namespace emu
