// ACLNN_EMULATOR_RECORD: one JSON object a line for every kernel that runs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "executor.h"

namespace emu {

namespace {

std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += static_cast<char>(c);
        } else if (c < 0x20 || c > 0x7e) {
            char escape[8];
            snprintf(escape, sizeof escape, "\\u%04x", c);
            out += escape;
        } else {
            out += static_cast<char>(c);
        }
    }
    return out + "\"";
}

template <class Values>
std::string list(const Values &values, size_t count) {
    std::string out = "[";
    for (size_t i = 0; i < count; ++i) out += (i > 0 ? "," : "") + std::to_string(values[i]);
    return out + "]";
}

// JSON has no infinities: those are strings, which float() reads. And its -0 is an integer.
std::string number(double value) {
    if (value == 0 && std::signbit(value)) return "-0.0";
    if (std::isnan(value)) return "\"nan\"";
    if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    return text;
}

std::string base64(const std::string &bytes) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out((bytes.size() + 2) / 3 * 4, '=');
    char *to = &out[0];
    for (size_t i = 0; i < bytes.size(); i += 3, to += 4) {
        uint32_t word = 0;
        for (size_t j = 0; j < 3; ++j) {
            word = word << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0);
        }
        for (size_t j = 0; j < 4 && i + j <= bytes.size(); ++j) to[j] = digits[word >> (18 - 6 * j) & 63];
    }
    return out;
}

// The view's elements in C order, as bytes. Types of less than a byte give the raw bytes of their extent.
std::string contents(const View &view, const Operand &operand) {
    if (operand.end == operand.lowest || view.data == nullptr) return {};
    size_t bits = dtype_bits(view.dtype);
    if (bits % 8 != 0 || bits == 0) {
        const char *base = static_cast<const char *>(operand.base);
        return std::string(base + operand.lowest, static_cast<size_t>(operand.end - operand.lowest));
    }
    auto size = static_cast<int64_t>(bits / 8);
    int64_t expected = 1;
    bool contiguous = true;
    for (int i = view.ndim; i-- > 0; expected *= view.dims[i]) contiguous = contiguous && view.strides[i] == expected;
    if (contiguous) return std::string(static_cast<const char *>(view.data), static_cast<size_t>(expected * size));
    std::string out;
    out.reserve(static_cast<size_t>(view.numel() * size));
    int64_t index[kMaxDims] = {};
    const char *data = static_cast<const char *>(view.data);
    for (int64_t left = view.numel(); left > 0; --left) {
        int64_t at = 0;
        for (int i = 0; i < view.ndim; ++i) at += index[i] * view.strides[i];
        out.append(data + at * size, static_cast<size_t>(size));
        for (int i = view.ndim; i-- > 0 && ++index[i] == view.dims[i];) index[i] = 0;
    }
    return out;
}

std::string element(aclDataType dtype, const char *at) {
    auto load = [at](auto sample) {
        memcpy(&sample, at, sizeof sample);
        return sample;
    };
    switch (dtype) {
        case ACL_FLOAT: return number(load(float{}));
        case ACL_DOUBLE: return number(load(double{}));
        case ACL_INT8: return std::to_string(load(int8_t{}));
        case ACL_INT16: return std::to_string(load(int16_t{}));
        case ACL_INT32: return std::to_string(load(int32_t{}));
        case ACL_INT64: return std::to_string(load(int64_t{}));
        case ACL_UINT8: case ACL_BOOL: return std::to_string(load(uint8_t{}));
        case ACL_UINT16: return std::to_string(load(uint16_t{}));
        case ACL_UINT32: return std::to_string(load(uint32_t{}));
        case ACL_UINT64: return std::to_string(load(uint64_t{}));
        case ACL_FLOAT16: return number(half_to_float(load(uint16_t{})));
        case ACL_BF16: {
            uint32_t bits = static_cast<uint32_t>(load(uint16_t{})) << 16;
            float value;
            memcpy(&value, &bits, sizeof value);
            return number(value);
        }
        default: return "null";
    }
}

bool readable(aclDataType dtype) {
    switch (dtype) {
        case ACL_FLOAT: case ACL_DOUBLE: case ACL_INT8: case ACL_INT16: case ACL_INT32: case ACL_INT64: case ACL_UINT8:
        case ACL_BOOL: case ACL_UINT16: case ACL_UINT32: case ACL_UINT64: case ACL_FLOAT16: case ACL_BF16: return true;
        default: return false;
    }
}

// Short tensors as numbers, long ones (and types without a C equivalent) as base64 of the elements in C order.
std::string data_json(const View &view, const std::string &bytes) {
    constexpr int64_t kListed = 64;
    if (bytes.empty() || view.numel() > kListed || !readable(view.dtype)) {
        return bytes.empty() ? "\"data\":[]" : "\"base64\":" + quoted(base64(bytes));
    }
    size_t size = dtype_bits(view.dtype) / 8;
    std::string out = "\"data\":[";
    for (size_t i = 0; i * size < bytes.size(); ++i) out += (i > 0 ? "," : "") + element(view.dtype, &bytes[i * size]);
    return out + "]";
}

std::string scalar_json(aclDataType dtype, double value, int64_t integer, double imag) {
    return "{\"dtype\":" + quoted(dtype_name(dtype)) + ",\"value\":" + number(value) +
           ",\"integer\":" + std::to_string(integer) + ",\"imag\":" + number(imag) + "}";
}

// The bytes from the start of the storage, where the view's elements alone do not tell them.
std::string memory_json(const Operand &operand) {
    if (!operand.indirect || operand.base == nullptr) return {};
    std::shared_ptr<Block> block = find_block(operand.base);
    if (block == nullptr || block->freed.load()) return {};
    auto start = static_cast<size_t>(static_cast<char *>(operand.base) - block->base);
    size_t held = std::min(operand.storage_bytes, block->capacity - std::min(start, block->capacity));
    return ",\"memory\":" + quoted(base64(std::string(static_cast<char *>(operand.base), held)));
}

std::string name_at(const std::string &names, size_t index) {
    size_t begin = 0;
    for (; index > 0 && begin != std::string::npos; --index) {
        begin = names.find(',', begin);
        if (begin != std::string::npos) ++begin;
    }
    if (begin == std::string::npos) return {};
    return names.substr(begin, names.find(',', begin) - begin);
}

}  // namespace

std::string describe_tensor(const Tensor &tensor, const void *base) {
    std::string out = "\"dtype\":" + quoted(dtype_name(tensor.dtype));
    out += ",\"shape\":" + list(tensor.view.dims, static_cast<size_t>(tensor.view.ndim));
    out += ",\"strides\":" + list(tensor.strides, static_cast<size_t>(tensor.view.ndim));
    out += ",\"offset\":" + std::to_string(tensor.offset) + ",\"format\":" + std::to_string(tensor.format);
    out += ",\"storage\":" + list(tensor.storage.dims, static_cast<size_t>(tensor.storage.ndim));
    char address[24];
    snprintf(address, sizeof address, "\"%p\"", base);
    return out + ",\"address\":" + address;
}

Recorder::Recorder(const Executor &executor, const std::vector<Operand> &operands)
    : operands_(operands), kinds_(executor.kinds), op_(executor.name), parameters_(executor.parameters),
      workspace_(executor.workspace) {}

void Recorder::before(std::vector<Arg> &args) {
    std::string out = "{\"op\":" + quoted(op_) + ",\"workspace\":" + std::to_string(workspace_) + ",\"args\":[";
    size_t next = 0;  // operands come in the order of the arguments
    auto tensor = [&](const View &view, size_t argument) {
        if (next >= operands_.size() || operands_[next].argument != static_cast<int>(argument)) return std::string("null");
        Operand &operand = operands_[next++];
        operand.base = view_of(args, operand).data == nullptr ? nullptr : static_cast<char *>(view.data) - operand.shift;
        data_.push_back(contents(view, operand));
        return "{" + operand.described + "," + data_json(view, data_.back()) + memory_json(operand) + "}";
    };
    for (size_t i = 0; i < args.size(); ++i) {
        const Arg &arg = args[i];
        out += (i > 0 ? ",{\"name\":" : "{\"name\":") + quoted(name_at(parameters_, i)) + ",";
        std::string value = "null";
        const char *kind = "";
        switch (kinds_[i]) {
            case 't':
                kind = "tensor";
                if (arg.present) value = tensor(arg.tensor, i);
                break;
            case 'l':
                kind = "tensors";
                if (!arg.present) break;
                value = "[";
                for (size_t j = 0; j < arg.tensors.size(); ++j) {
                    bool here = next < operands_.size() && operands_[next].argument == static_cast<int>(i) &&
                                operands_[next].item == static_cast<int>(j);
                    value += (j > 0 ? "," : "") + (here ? tensor(arg.tensors[j], i) : "null");
                }
                value += "]";
                break;
            case 's':
                kind = "scalar";
                if (arg.present) value = scalar_json(arg.dtype, arg.f, arg.i, arg.imag);
                break;
            case 'S':
                kind = "scalars";
                if (!arg.present) break;
                value = "[";
                for (size_t j = 0; j < arg.floats.size(); ++j) {
                    value += (j > 0 ? "," : "") + scalar_json(arg.dtype, arg.floats[j], arg.ints[j], 0);
                }
                value += "]";
                break;
            case 'I':
            case 'B':
                kind = kinds_[i] == 'I' ? "ints" : "bools";
                if (arg.present) value = list(arg.ints, arg.ints.size());
                break;
            case 'F':
                kind = "floats";
                if (!arg.present) break;
                value = "[";
                for (size_t j = 0; j < arg.floats.size(); ++j) value += (j > 0 ? "," : "") + number(arg.floats[j]);
                value += "]";
                break;
            case 'c':
                kind = "string";
                if (arg.present) value = quoted(arg.s);
                break;
            case 'd':
                kind = "double";
                value = number(arg.f);
                break;
            default:
                kind = "int";
                value = std::to_string(arg.i);
                break;
        }
        out += "\"kind\":" + quoted(kind) + ",\"value\":" + value + "}";
    }
    line_ = out + "]";
}

void Recorder::idle(std::vector<Arg> &args) {
    before(args);
    after(args, 0);
}

// What changed: nothing in C says which tensors an operator writes.
void Recorder::after(std::vector<Arg> &args, int code) {
    std::string changed;
    for (size_t i = 0; i < operands_.size(); ++i) {
        const View &view = view_of(args, operands_[i]);
        std::string now = contents(view, operands_[i]);
        if (now == data_[i]) continue;
        std::string name = name_at(parameters_, static_cast<size_t>(operands_[i].argument));
        if (operands_[i].item >= 0) name += "[" + std::to_string(operands_[i].item) + "]";
        changed += (changed.empty() ? "" : ",") + quoted(name) + ":{" + data_json(view, now) + "}";
    }
    log_line(line_ + ",\"status\":" + std::to_string(code) + ",\"written\":{" + changed + "}}");
}

}  // namespace emu
