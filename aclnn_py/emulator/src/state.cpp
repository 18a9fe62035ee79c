// Environment, SoC names and products, initialise and finalise.
#include <strings.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include "core.h"
#include "device.h"
#include "violations.h"

namespace emu {

namespace {

const char *env(const char *name, const char *fallback) {
    const char *value = getenv(name);
    return value != nullptr && *value != '\0' ? value : fallback;
}

// Each setting is read once, so that this is said once.
void ignored(const char *name, const char *value, const char *accepted) {
    fprintf(stderr, "aclnn emulator: %s=%s is ignored; accepted: %s\n", name, value, accepted);
}

int64_t env_number(const char *name, int64_t fallback, int64_t lowest, int64_t highest, const char *accepted) {
    const char *value = env(name, nullptr);
    if (value == nullptr) return fallback;
    char *end = nullptr;
    double number = strtod(value, &end);
    int shift = 0;
    switch (*end) {  // 4G, 512M
        case 'G': case 'g': shift = 30; break;
        case 'M': case 'm': shift = 20; break;
        case 'K': case 'k': shift = 10; break;
        default: break;
    }
    number = std::ldexp(number, shift);
    bool whole = end != value && end[shift != 0] == '\0' && number == std::floor(number);
    if (whole && number >= static_cast<double>(lowest) && number <= static_cast<double>(highest)) {
        return static_cast<int64_t>(number);
    }
    ignored(name, value, accepted);
    return fallback;
}

bool env_deferred() {
    constexpr const char *name = "ACLNN_EMULATOR_STREAM", *usual = "worker";
    const char *value = env(name, usual);
    if (strcasecmp(value, "deferred") == 0) return true;
    if (strcasecmp(value, usual) != 0) ignored(name, value, "worker or deferred");
    return false;
}

bool starts_with(const std::string &name, const char *prefix) {
    return strncasecmp(name.c_str(), prefix, strlen(prefix)) == 0;
}

struct Soc {
    std::mutex mutex;
    char name[64] = {};  // aclrtGetSocName hands out its address
    std::atomic<int> product{-1};
};

std::string full_soc_name(const std::string &name) {
    if (strcasecmp(name.c_str(), "A2") == 0) return "Ascend910B1";
    if (strcasecmp(name.c_str(), "A3") == 0) return "Ascend910_9391";
    if (name == "950") return "Ascend950PR_9589";
    return name;
}

Product product_of(const std::string &soc) {
    if (starts_with(soc, "Ascend910_93")) return Product::A3;
    if (starts_with(soc, "Ascend950") || starts_with(soc, "Ascend910_95")) return Product::P950;
    if (starts_with(soc, "Ascend910B") && soc.size() > 10 && soc[10] >= '1' && soc[10] <= '4') return Product::A2;
    return Product::Other;
}

void store(Soc &soc, const std::string &name) {
    std::string full = full_soc_name(name).substr(0, sizeof soc.name - 1);
    memcpy(soc.name, full.c_str(), full.size() + 1);
    soc.product.store(static_cast<int>(product_of(full)));
}

Soc &soc() {
    static Soc *instance = [] {
        auto *made = new Soc;
        constexpr const char *name = "ACLNN_EMULATOR_SOC", *usual = "Ascend910B1";
        store(*made, env(name, usual));
        if (!starts_with(made->name, "Ascend") || strpbrk(made->name, "0123456789") == nullptr) {
            ignored(name, made->name, "A2, A3, 950 or the name of a SoC, such as Ascend910B1");
            store(*made, usual);
        }
        return made;
    }();
    return *instance;
}

Release release() {
    static const Release value = [] {
        constexpr const char *name = "ACLNN_EMULATOR_CANN", *usual = "host";
        std::string version = env(name, usual);
        if (version != usual && version.substr(1, 1).find_first_not_of('.') == std::string::npos) {
            if (version[0] == '9') return Release::Cann91;
            if (version[0] == '8') return Release::Cann8;
        }
        if (version != usual) ignored(name, version.c_str(), "host, 8 or 9, or a release of these, such as 9.1");
        return Release::Host;
    }();
    return value;
}

struct Init {
    std::mutex mutex;
    uint64_t count = 0;
    bool configured = false;
    std::string config;  // contents of the first configuration of the process
};

Init &init() {
    static Init *instance = new Init;
    return *instance;
}

// "defaultDevice": {"default_device": "0"} gives threads that set no device this one; -1 without it.
int default_device(const std::string &config) {
    std::string plain;
    for (char c : config) {
        if (isspace(static_cast<unsigned char>(c)) == 0) plain += c;
    }
    constexpr const char *entry = "\"defaultDevice\":{\"default_device\":\"";
    size_t at = plain.find(entry);
    return at == std::string::npos ? -1 : atoi(plain.c_str() + at + strlen(entry));
}

}  // namespace

const Settings &settings() {
    static const Settings *instance = [] {
        auto *made = new Settings;
        made->devices = static_cast<int>(env_number("ACLNN_EMULATOR_DEVICES", 1, 0, 64, "0 to 64"));
        made->memory = static_cast<uint64_t>(env_number("ACLNN_EMULATOR_MEMORY", int64_t{64} << 30, 1, int64_t{1} << 62,
                                                        "a number of bytes, such as 67108864, 512M or 64G"));
        made->deferred = env_deferred();
        made->record = env("ACLNN_EMULATOR_RECORD", "");
        int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
        made->threads = static_cast<int>(env_number("ACLNN_EMULATOR_THREADS", cores, 1, 256, "1 to 256"));
        return made;
    }();
    return *instance;
}

std::string soc_name() {
    std::lock_guard<std::mutex> lock(soc().mutex);
    return soc().name;
}

bool set_soc(const char *name) {
    std::lock_guard<std::mutex> init_lock(init().mutex);
    if (init().count != 0) return false;
    std::lock_guard<std::mutex> lock(soc().mutex);
    store(soc(), name);
    return true;
}

Config current_config() {
    Config config;
    config.product = static_cast<Product>(soc().product.load(std::memory_order_relaxed));
    config.release = release();
    return config;
}

bool initialised() {
    std::lock_guard<std::mutex> lock(init().mutex);
    return init().count != 0;
}

}  // namespace emu

using namespace emu;

aclError aclInit(const char *configPath) {
    int injected = enter(__func__);
    std::lock_guard<std::mutex> lock(init().mutex);
    if (injected == 100002) init().count += init().count == 0 ? 2 : 1;  // someone else was first
    if (injected != 0) return injected;
    if (init().count > 0) {
        ++init().count;
        return fail(__func__, 100002, "already initialised");
    }
    std::string contents;
    if (configPath != nullptr && *configPath != '\0') {
        std::ifstream file(configPath);
        if (!file) return fail(__func__, 100003, "cannot open the configuration file %s", configPath);
        contents.assign(std::istreambuf_iterator<char>(file), {});
    }
    if (init().configured && contents != init().config) {
        return fail(__func__, 100000, "the configuration differs from that of the first aclInit of this process");
    }
    init().configured = true;
    init().config = contents;
    init().count = 1;
    set_default_device(default_device(contents));
    return 0;
}

static aclError finalise(const char *api, bool hard, uint64_t *left) {
    std::lock_guard<std::mutex> lock(init().mutex);
    if (init().count == 0) return fail(api, 100037, "not initialised, or finalised already");
    init().count = hard ? 0 : init().count - 1;
    if (left != nullptr) *left = init().count;
    if (init().count == 0) close_all_devices();
    return 0;
}

aclError aclFinalize(void) {
    int injected = enter(__func__);
    aclError code = finalise(__func__, true, nullptr);
    return injected != 0 ? injected : code;
}

aclError aclFinalizeReference(uint64_t *refCount) {
    int injected = enter(__func__);
    aclError code = finalise(__func__, false, refCount);
    return injected != 0 ? injected : code;
}

const char *aclrtGetSocName(void) {
    EMU_ENTER(nullptr);
    return soc().name;
}
