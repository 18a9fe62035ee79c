"""C sources for operators that the emulator does not compute: their declarations, and entry points that record."""

from __future__ import annotations

from collections.abc import Iterable

from ..signatures import Signature

__all__ = ["declarations", "entry_points"]

# kind of a parameter -> its letter and the C type that it travels in, see aclnn_emulator.h
_LETTERS = {
    "tensor": "t", "tensor_list": "l", "scalar": "s", "scalar_list": "S", "int_array": "I", "float_array": "F",
    "bool_array": "B", "string": "c", "float": "d", "double": "d",
}  # fmt: skip
# The sizes of what the sample allocates, so that a copy of more than a vector holds is seen, not its neighbours' bytes.
_HOST_MEMORY = """\
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <new>

#include <aclnn/aclnn_base.h>
#include <aclnn_emulator.h>

namespace {

template <class T>
struct Plain {  // an allocator that does not come back here
    using value_type = T;
    Plain() = default;
    template <class U>
    Plain(const Plain<U> &) {}
    T *allocate(size_t count) { return static_cast<T *>(malloc(count * sizeof(T))); }
    void deallocate(T *block, size_t) { free(block); }
    bool operator==(const Plain &) const { return true; }
    bool operator!=(const Plain &) const { return false; }
};

struct Heap {
    std::mutex mutex;
    std::map<uintptr_t, size_t, std::less<uintptr_t>, Plain<std::pair<const uintptr_t, size_t>>> blocks;
};

Heap &heap() {  // never destroyed
    static Heap *instance = new (malloc(sizeof(Heap))) Heap;
    return *instance;
}

}  // namespace

__attribute__((weak)) void *operator new(size_t size) {
    void *block = malloc(size > 0 ? size : 1);
    if (block == nullptr) throw std::bad_alloc();
    std::lock_guard<std::mutex> lock(heap().mutex);
    heap().blocks[reinterpret_cast<uintptr_t>(block)] = size;
    return block;
}

__attribute__((weak)) void operator delete(void *block) noexcept {
    {
        std::lock_guard<std::mutex> lock(heap().mutex);
        heap().blocks.erase(reinterpret_cast<uintptr_t>(block));
    }
    free(block);
}

__attribute__((weak)) void operator delete(void *block, size_t) noexcept { operator delete(block); }

extern "C" size_t aclnnEmulatorHostRoom(const void *address) {
    auto at = reinterpret_cast<uintptr_t>(address);
    std::lock_guard<std::mutex> lock(heap().mutex);
    auto next = heap().blocks.upper_bound(at);
    if (next == heap().blocks.begin()) return SIZE_MAX;
    --next;
    return at < next->first + next->second ? next->first + next->second - at : SIZE_MAX;
}
"""
_STAGE_TWO = "(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream)"


def declarations(signatures: Iterable[Signature]) -> str:
    """Return a C++ header that declares both stages of operators.

    Examples
    --------
    >>> from aclnn_py.signatures import find
    >>> "aclnnStatus aclnnNegGetWorkspaceSize(const aclTensor *self" in declarations([find("aclnnNeg")])
    True
    """
    # CANN's own headers bring these along, and samples rely on it
    lines = ["#pragma once", "#include <array>", "#include <cstdint>", "#include <string>"]
    lines += ["#include <aclnn/aclnn_base.h>", "#include <aclnn/weight_size.h>", "", 'extern "C" {']
    for signature in signatures:
        lines += [f"{_prototype(signature)};", f"aclnnStatus {signature.name}{_STAGE_TWO};"]
    return "\n".join([*lines, "}", ""])


def entry_points(signatures: Iterable[Signature]) -> str:
    """Return C++ that defines both stages of operators: a call is recorded, its outputs are left as they are.

    It also tells the emulator how long the program's own memory is.

    Raises
    ------
    ValueError
        A parameter has a type that cannot be recorded.
    """
    lines = [_HOST_MEMORY, 'extern "C" {']
    for signature in signatures:
        names = ",".join(p.name for p in signature.parameters)
        letters = "".join(_LETTERS.get(p.kind, "i") for p in signature.parameters)
        values = "".join(
            f", {_passed(p.name, letter)}" for p, letter in zip(signature.parameters, letters, strict=True)
        )
        unknown = [p for p in signature.parameters if p.kind == "unknown"]
        if unknown:
            raise ValueError(f"{signature.stage_one}: the type of {str(unknown[0])!r} cannot be recorded")
        lines += [
            f"{_prototype(signature)} {{",
            f'    return aclnnEmulatorStageOne("{signature.name}", "{names}", "{letters}", '
            f"workspaceSize, executor{values});",
            "}",
            f"aclnnStatus {signature.name}{_STAGE_TWO} {{",
            f'    return aclnnEmulatorStageTwo("{signature.name}", workspace, workspaceSize, executor, stream);',
            "}",
        ]
    return "\n".join([*lines, "}", ""])


def _prototype(signature: Signature) -> str:
    # an enum that only another package declares travels as an int
    text = str(signature)
    return text.replace("acldvppConvertMode ", "int ")


def _passed(name: str, letter: str) -> str:
    return {"i": f"static_cast<long long>({name})", "d": f"static_cast<double>({name})"}.get(letter, name)
