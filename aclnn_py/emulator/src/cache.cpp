// The op cache: per thread, least recently used out first, as many entries as ACLNN_CACHE_LIMIT says.
#include <cstdlib>
#include <list>
#include <unordered_map>

#include "executor.h"

namespace emu {

namespace {

constexpr size_t kKeyBytes = 8192;
constexpr size_t kEvicted = 30;

struct Limits {
    size_t entries = 10000;
    Limits() {
        if (getenv("DISABLE_L2_CACHE") != nullptr) entries = 0;
        const char *text = getenv("ACLNN_CACHE_LIMIT");
        if (text == nullptr || entries == 0) return;
        char *end = nullptr;
        unsigned long long number = strtoull(text, &end, 10);
        if (end != text && *end == '\0' && *text != '-') entries = std::min<unsigned long long>(number, 10000000);
    }
};

size_t limit() {
    static const Limits limits;
    return limits.entries;
}

struct OpCache : ThreadCache {
    struct Entry {
        std::string key;
        Cached value;
        bool valid;
    };
    std::list<Entry> order;  // newest first
    std::unordered_map<std::string, std::list<Entry>::iterator> index;

    void put(const std::string &key, const Cached &value, bool valid) {
        auto found = index.find(key);
        if (found != index.end()) {
            // a key that was discarded before its first stage two is not cached again
            if (found->second->valid) found->second->valid = valid;
            return;
        }
        if (index.size() >= limit()) {
            for (size_t i = 0; i < kEvicted && !order.empty(); ++i) {
                index.erase(order.back().key);
                order.pop_back();
            }
        }
        order.push_front({key, value, valid});
        index[key] = order.begin();
    }
};

OpCache &cache() {
    auto &held = thread_state().cache;
    if (held == nullptr) held = std::make_unique<OpCache>();
    return static_cast<OpCache &>(*held);
}

}  // namespace

bool cache_find(const std::string &key, Cached &out) {
    if (limit() == 0 || key.size() > kKeyBytes) return false;
    OpCache &all = cache();
    auto found = all.index.find(key);
    if (found == all.index.end() || !found->second->valid) return false;
    all.order.splice(all.order.begin(), all.order, found->second);
    out = found->second->value;
    return true;
}

void cache_insert(const std::string &key, const Cached &value) {
    if (limit() != 0 && key.size() <= kKeyBytes) cache().put(key, value, true);
}

void cache_forget(const std::string &key) {
    if (limit() != 0 && key.size() <= kKeyBytes) cache().put(key, {}, false);
}

}  // namespace emu
