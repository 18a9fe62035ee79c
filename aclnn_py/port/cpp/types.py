"""C++ types as the samples use them: numeric types by NumPy name, everything else by its own name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .syntax import Node

__all__ = ["NUMERIC", "CType", "numeric", "type_of"]

NUMERIC = {
    "bool": "bool", "char": "int8", "signed char": "int8", "unsigned char": "uint8", "short": "int16",
    "unsigned short": "uint16", "int": "int32", "unsigned int": "uint32", "long": "int64", "unsigned long": "uint64",
    "int8_t": "int8", "uint8_t": "uint8", "int16_t": "int16", "uint16_t": "uint16", "int32_t": "int32",
    "uint32_t": "uint32", "int64_t": "int64", "uint64_t": "uint64", "size_t": "uint64", "ssize_t": "int64",
    "ptrdiff_t": "int64", "uintptr_t": "uint64", "intptr_t": "int64", "streamsize": "int64", "float": "float32",
    "double": "float64", "half": "float16", "fp16_t": "float16", "__fp16": "float16", "tagFp16": "float16",
    "_Float16": "float16", "bfloat16": "bfloat16", "aclFloat16": "uint16", "uint": "uint32", "ulong": "uint64",
    "uint8": "uint8", "int8": "int8",
    "u_int8_t": "uint8", "u_int16_t": "uint16", "u_int32_t": "uint32", "u_int64_t": "uint64",
    "byte": "uint8", "size_type": "uint64", "float32_t": "float32",
    "float64_t": "float64", "int_fast32_t": "int64", "HcclResult": "int32", "long double": "float64",
}  # fmt: skip
# enums of the C API: 32-bit numbers that keep their name as text
ENUMS = frozenset({"aclError", "aclnnStatus", "aclDataType", "aclFormat", "aclrtMemcpyKind", "aclrtMemMallocPolicy"})
SIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
    "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True)
class CType:
    """A type: base name without ``std::``, template arguments, pointer depth, reference, array extents follow apart."""

    base: str
    args: tuple[CType | int | None, ...] = ()
    ptr: int = 0
    ref: bool = False

    def pointee(self) -> CType:
        """Return the type that a pointer of this type points to."""
        return replace(self, ptr=self.ptr - 1, ref=False)

    def pointer(self) -> CType:
        """Return a pointer to this type."""
        return replace(self, ptr=self.ptr + 1, ref=False)

    def bare(self) -> CType:
        """Without the reference."""
        return replace(self, ref=False) if self.ref else self

    def arg(self, index: int) -> CType:
        """Return a template argument that is a type; ``auto`` where there is none."""
        found = self.args[index] if index < len(self.args) else None
        return found if isinstance(found, CType) else AUTO

    @property
    def size(self) -> int | None:
        """Bytes of a number, a pointer or a well-known object; None when unknown."""
        if self.ptr:
            return 8
        return SIZES.get(self.base) or {"vector": 24, "string": 32}.get(self.base)


AUTO = CType("auto")
INT, LONG, ULONG, FLOAT, DOUBLE, BOOL = (CType(n) for n in ("int32", "int64", "uint64", "float32", "float64", "bool"))
CHAR = CType("int8")


def numeric(ctype: CType | None) -> str | None:
    """Return the NumPy name of a numeric type, or None."""
    return ctype.base if ctype is not None and not ctype.ptr and ctype.base in SIZES else None


def named(name: str) -> CType:
    """Return the type of that name (without ``std::``), numbers by NumPy name."""
    if name in NUMERIC:
        return CType(NUMERIC[name])
    if name in ENUMS:
        return CType("int32")
    if name in ("FILE", "ifstream", "ofstream", "fstream"):
        return CType("file")
    return CType(name)


_SMART = frozenset({"unique_ptr", "shared_ptr"})
# how a name is looked up: a typedef, template parameter or nested type in scope
Lookup = Callable[[str], CType | None]
Constant = Callable[[Node], int | None]


def _sized(node: Node) -> CType:
    words = [w for w in node.text.split() if w not in ("const", "volatile", "static", "constexpr")]
    sign = "unsigned " if "unsigned" in words else "signed " if "signed" in words else ""
    rest = [w for w in words if w not in ("unsigned", "signed")]
    if "double" in rest:
        return DOUBLE
    core = "char" if "char" in rest else "short" if "short" in rest else "long" if "long" in rest else "int"
    if rest and rest[0] in NUMERIC and rest[0] not in ("char", "short", "long", "int"):
        core = rest[0]
    return named((sign if core == "char" else sign.replace("signed ", "") if sign == "signed " else sign) + core)


def type_of(node: Node, lookup: Lookup, constant: Constant) -> CType:
    """Return the type that a type node names (without its declarator)."""
    kind = node.kind
    if kind in ("primitive_type", "type_identifier", "identifier", "namespace_identifier"):
        found = lookup(node.text)
        return found if found is not None else named(node.text)
    if kind == "sized_type_specifier":
        return _sized(node)
    if kind == "template_type":
        name = node["name"].text
        args: list[CType | int | None] = []
        for arg in node["arguments"].kids:
            args.append(type_of(arg, lookup, constant) if arg.kind == "type_descriptor" else constant(arg))
        found = lookup(name + "<>")
        if found is not None:  # an alias template: its single parameter is replaced
            return _substitute(found, args)
        if name in ("remove_pointer", "remove_pointer_t"):
            inner = args[0]
            return (
                inner.pointee()
                if isinstance(inner, CType) and inner.ptr
                else inner
                if isinstance(inner, CType)
                else AUTO
            )
        if name in (
            "remove_reference",
            "remove_cv",
            "decay",
            "remove_const",
            "decay_t",
            "remove_reference_t",
            "remove_cv_t",
        ):
            return args[0].bare() if isinstance(args[0], CType) else AUTO
        if name == "conditional_t" and isinstance(args[0], int) and len(args) == 3:
            chosen = args[1] if args[0] else args[2]
            return chosen if isinstance(chosen, CType) else AUTO
        if name == "complex" and args:
            return CType("complex64" if args[0] == FLOAT else "complex128")
        return CType(name, tuple(args))
    if kind in ("qualified_identifier", "dependent_type", "scoped_type_identifier"):
        inner_node = node.get("name") or node.kids[-1]
        scope = node.get("scope")
        if (
            kind != "dependent_type"
            and scope is not None
            and scope.kind == "template_type"
            and inner_node.text == "type"
        ):
            return type_of(scope, lookup, constant)
        if scope is not None and inner_node.text == "type" and inner_node.kind == "type_identifier":
            return type_of(scope, lookup, constant)
        if scope is not None and scope.kind == "template_type" and inner_node.text in ("value_type", "element_type"):
            return type_of(scope, lookup, constant).arg(0)
        if scope is not None and inner_node.text == "value_type":
            return type_of(scope, lookup, constant).arg(0)
        return type_of(inner_node, lookup, constant)
    if kind == "type_descriptor":
        base = type_of(node["type"], lookup, constant)
        declarator = node.get("declarator")
        return declare(base, declarator)[0] if declarator is not None else base
    if kind in ("struct_specifier", "class_specifier", "enum_specifier", "union_specifier"):
        name_node = node.get("name")
        return named(name_node.text) if name_node is not None else CType(f"anonymous@{node.start}")
    if kind == "decltype":
        inner = lookup("decltype:" + "".join(k.text for k in node.kids))
        return inner if inner is not None else CType("auto")
    return AUTO


def _substitute(ctype: CType, args: list[CType | int | None]) -> CType:
    if ctype.base == "T0":
        first = args[0] if args else None
        return replace(first, ptr=first.ptr + ctype.ptr) if isinstance(first, CType) else AUTO
    return replace(ctype, args=tuple(_substitute(a, args) if isinstance(a, CType) else a for a in ctype.args))


def declare(ctype: CType, declarator: Node | None) -> tuple[CType, Node | None, list[Node | None]]:
    """Apply a declarator to a type: the full type, the name node, and the array extents (outermost first)."""
    extents: list[Node | None] = []
    node = declarator
    while node is not None:
        kind = node.kind
        if kind in ("pointer_declarator", "abstract_pointer_declarator"):
            ctype = ctype.pointer()
        elif kind in ("reference_declarator", "abstract_reference_declarator"):
            ctype = replace(ctype, ref=True)
            node = next((k for k in node.kids if k.kind not in ("type_qualifier",)), None)
            continue
        elif kind in ("array_declarator", "abstract_array_declarator"):
            extents.insert(0, node.get("size"))
        elif kind in ("function_declarator", "abstract_function_declarator"):
            ctype = CType("function")
        elif kind in ("parenthesized_declarator", "abstract_parenthesized_declarator", "attributed_declarator"):
            node = next((k for k in node.kids if k.kind.endswith("declarator") or k.kind == "identifier"), None)
            continue
        else:
            return ctype, node, extents
        node = node.get("declarator")
    return ctype, None, extents
